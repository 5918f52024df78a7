//! A disk in memory that a checker works on, and what a run changed of it.
//!
//! The disk is a memfd of fixed size: it has no name that a killed run could leave behind, and it cannot
//! grow, like a device. Only the pages that a run changed are written back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use twox_hash::XxHash3_128;

use super::RunError;
use super::spawn::off_fixed_numbers;

/// The unit in which changes are found and kept.
pub(crate) const PAGE: usize = 4096;
/// How much of the output of a run is kept; a checker cannot print more.
pub(crate) const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// Disks up to this size are looked at in place.
const VIEWED_MAX: usize = 64 << 20;
/// Bytes that are compared at once.
const COMPARED: usize = 256 << 10;

/// The pages of a disk that differ from the healthy one, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskDelta {
    pages: Vec<(u64, Box<[u8]>)>,
}

impl DiskDelta {
    /// The difference between two disks of the same size.
    #[cfg(test)]
    pub(crate) fn between(base: &[u8], disk: &[u8]) -> DiskDelta {
        let mut pages = Vec::new();
        for (index, (before, after)) in base.chunks(PAGE).zip(disk.chunks(PAGE)).enumerate() {
            if before != after {
                pages.push((index as u64, Box::from(after)));
            }
        }
        DiskDelta { pages }
    }

    /// The healthy disk with some bytes written.
    pub(crate) fn written(base: &[u8], writes: &[(u64, Vec<u8>)]) -> DiskDelta {
        let mut pages = std::collections::BTreeMap::<u64, Box<[u8]>>::new();
        for (at, bytes) in writes {
            for (offset, byte) in bytes.iter().enumerate() {
                let at = *at as usize + offset;
                let start = at / PAGE * PAGE;
                let page = pages.entry((at / PAGE) as u64).or_insert_with(|| {
                    Box::from(&base[start.min(base.len())..(start + PAGE).min(base.len())])
                });
                if let Some(place) = page.get_mut(at - start) {
                    *place = *byte;
                }
            }
        }
        pages.retain(|index, page| {
            let at = *index as usize * PAGE;
            base.get(at..at + page.len()) != Some(&page[..])
        });
        DiskDelta { pages: pages.into_iter().collect() }
    }

    /// Undoes [`DiskDelta::apply`].
    pub(crate) fn revert(&self, disk: &mut [u8], base: &[u8]) {
        for (index, page) in &self.pages {
            let at = *index as usize * PAGE;
            if let Some(place) = disk.get_mut(at..at + page.len()) {
                place.copy_from_slice(&base[at..at + page.len()]);
            }
        }
    }

    /// Names the contents of the disk.
    pub(crate) fn digest(&self) -> u128 {
        let mut bytes = Vec::with_capacity(self.pages.len() * (PAGE + 8));
        for (index, page) in &self.pages {
            bytes.extend(index.to_le_bytes());
            bytes.extend(&page[..]);
        }
        XxHash3_128::oneshot(&bytes)
    }

    /// The difference as bytes: number and length of each page, and the page.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, page) in &self.pages {
            bytes.extend(index.to_le_bytes());
            bytes.extend((page.len() as u64).to_le_bytes());
            bytes.extend(&page[..]);
        }
        bytes
    }

    /// Reads what [`DiskDelta::to_bytes`] wrote.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> DiskDelta {
        let mut pages = Vec::new();
        while let Some((head, rest)) = bytes.split_first_chunk::<16>() {
            let number = |at: usize| {
                head[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
            };
            let length = (number(8) as usize).min(rest.len());
            pages.push((number(0), Box::from(&rest[..length])));
            bytes = &rest[length..];
        }
        DiskDelta { pages }
    }

    /// Changes a copy of the healthy disk into this one.
    pub(crate) fn apply(&self, disk: &mut [u8]) {
        for (index, page) in &self.pages {
            let at = *index as usize * PAGE;
            if let Some(place) = disk.get_mut(at..at + page.len()) {
                place.copy_from_slice(page);
            }
        }
    }

    /// The page with a number, if it is changed.
    fn page(&self, index: u64) -> Option<&[u8]> {
        let found = self.pages.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        Some(&self.pages[found].1)
    }

    /// The bytes in which another disk differs from this one: place, before, after.
    pub(crate) fn changes(&self, base: &[u8], after: &DiskDelta) -> Vec<(u64, u8, u8)> {
        let mut indices: Vec<u64> =
            self.pages.iter().chain(&after.pages).map(|(index, _)| *index).collect();
        indices.sort_unstable();
        indices.dedup();
        let mut out = Vec::new();
        for index in indices {
            let at = index as usize * PAGE;
            let healthy = &base[at..(at + PAGE).min(base.len())];
            let old = self.page(index).unwrap_or(healthy);
            let new = after.page(index).unwrap_or(healthy);
            let differing = old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new);
            out.extend(differing.map(|(offset, (old, new))| ((at + offset) as u64, *old, *new)));
        }
        out
    }
}

/// A view of a disk without copying it.
struct View {
    place: *const u8,
    bytes: usize,
}

// SAFETY: the view is read only, and only by the thread that owns the file.
unsafe impl Send for View {}

impl View {
    /// Maps a file; nothing if that is not possible.
    fn of(file: &File, bytes: usize) -> Option<View> {
        // SAFETY: a new mapping of a file whose size is sealed; it is unmapped when the view is dropped.
        let place = unsafe {
            let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), bytes, read, shared, file.as_raw_fd(), 0)
        };
        (place != libc::MAP_FAILED).then_some(View { place: place.cast(), bytes })
    }

    /// The bytes of the disk. Nobody may change them while they are looked at: the checker has ended.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is as long as the view lives; no process that could write is running.
        unsafe { std::slice::from_raw_parts(self.place, self.bytes) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference to it.
        unsafe { libc::munmap(self.place.cast_mut().cast(), self.bytes) };
    }
}

/// The files of one worker: a disk, the output of the checker, a log, the empty input.
pub(crate) struct DiskFile {
    disk: File,
    output: File,
    log: File,
    input: File,
    /// What an instrumented checker writes, if that was asked for.
    record: Option<File>,
    base: Arc<Vec<u8>>,
    /// A small disk is looked at where it is; of a large one only what is not a hole is read.
    view: Option<View>,
    /// What the file holds, if it is known.
    holds: DiskDelta,
}

impl DiskFile {
    /// Makes the files and fills the disk.
    ///
    /// # Errors
    /// If memory or descriptors are short.
    pub(crate) fn new(base: Arc<Vec<u8>>) -> Result<DiskFile, RunError> {
        let disk = memory_file(base.len() as u64)?;
        for (at, chunk) in base.chunks(COMPARED).enumerate() {
            // Holes stay holes.
            if chunk.iter().any(|byte| *byte != 0) {
                let at = (at * COMPARED) as u64;
                disk.write_all_at(chunk, at).map_err(|source| fault("fill the disk", source))?;
            }
        }
        let small = !base.is_empty() && base.len() <= VIEWED_MAX;
        let view = small.then(|| View::of(&disk, base.len())).flatten();
        let input = File::open("/dev/null").map_err(|source| fault("open /dev/null", source))?;
        let input = File::from(off_fixed_numbers(input.into())?);
        let output = memory_file(OUTPUT_BYTES_MAX as u64)?;
        // The checker truncates its log, so it has no fixed size.
        let log = unsealed_file(0)?;
        Ok(DiskFile {
            disk,
            output,
            log,
            input,
            record: None,
            base,
            view,
            holds: DiskDelta::default(),
        })
    }

    /// Has every run read these words, for checkers that ask whatever they are told.
    ///
    /// # Errors
    /// If memory or descriptors are short.
    pub(crate) fn answer_with(&mut self, words: &str) -> Result<(), RunError> {
        self.input = unsealed_file(0)?;
        let written = self.input.write_all_at(words.as_bytes(), 0);
        written.map_err(|source| fault("write the answers for a checker", source))
    }

    /// Makes the disk what it should be.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn set(&mut self, wanted: &DiskDelta) -> Result<(), RunError> {
        // The last run has read what there was. An empty input has no place to go back to.
        let _ = self.input.rewind();
        let write = |index: u64, page: &[u8]| {
            let written = self.disk.write_all_at(page, index * PAGE as u64);
            written.map_err(|source| fault("write the disk", source))
        };
        for (index, page) in &self.holds.pages {
            if wanted.page(*index).is_none_or(|new| new != &page[..]) {
                let at = *index as usize * PAGE;
                write(*index, &self.base[at..(at + PAGE).min(self.base.len())])?;
            }
        }
        for (index, page) in &wanted.pages {
            if self.holds.page(*index) != Some(page) {
                write(*index, page)?;
            }
        }
        self.holds = wanted.clone();
        Ok(())
    }

    /// Finds out what the disk is now.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn look(&mut self) -> Result<DiskDelta, RunError> {
        if let Some(view) = &self.view {
            let mut pages = Vec::new();
            let chunks = self.base.chunks(COMPARED).zip(view.bytes().chunks(COMPARED));
            for (number, (healthy, found)) in chunks.enumerate() {
                if healthy == found {
                    continue;
                }
                let first = number * (COMPARED / PAGE);
                for (index, (old, new)) in healthy.chunks(PAGE).zip(found.chunks(PAGE)).enumerate()
                {
                    if old != new {
                        pages.push(((first + index) as u64, Box::from(new)));
                    }
                }
            }
            self.holds = DiskDelta { pages };
            return Ok(self.holds.clone());
        }
        let read = |source| fault("read the disk", source);
        let mut pages = Vec::new();
        let mut buffer = vec![0_u8; COMPARED];
        let mut at = 0;
        while at < self.base.len() {
            // Holes of the file are zeros; most of a large disk is one.
            let Some(data) = next_data(&self.disk, at as u64).map_err(read)? else {
                pages.extend(zero_pages(&self.base, at, self.base.len()));
                break;
            };
            let data = (data as usize / PAGE * PAGE).max(at);
            pages.extend(zero_pages(&self.base, at, data));
            let length = COMPARED.min(self.base.len() - data);
            self.disk.read_exact_at(&mut buffer[..length], data as u64).map_err(read)?;
            let healthy = &self.base[data..data + length];
            if buffer[..length] != *healthy {
                for (index, page) in buffer[..length].chunks(PAGE).enumerate() {
                    if page != &healthy[index * PAGE..index * PAGE + page.len()] {
                        pages.push((((data / PAGE) + index) as u64, Box::from(page)));
                    }
                }
            }
            at = data + length;
        }
        self.holds = DiskDelta { pages };
        Ok(self.holds.clone())
    }

    /// Forgets output and log of the run before.
    pub(super) fn rewind(&self) -> Result<(), RunError> {
        for mut file in [&self.output, &self.log] {
            file.seek(SeekFrom::Start(0)).map_err(|source| fault("rewind the output", source))?;
        }
        Ok(())
    }

    /// What the last run printed.
    pub(super) fn output(&self) -> Result<Vec<u8>, RunError> {
        let read = |source| fault("read the output", source);
        let mut file = &self.output;
        let length = file.stream_position().map_err(read)?;
        let mut bytes = vec![0; length as usize];
        file.seek(SeekFrom::Start(0)).map_err(read)?;
        file.read_exact(&mut bytes).map_err(read)?;
        Ok(bytes)
    }

    /// The log that the last run wrote through `/proc/self/fd/101`; it is empty afterwards.
    pub(crate) fn take_log(&self) -> Result<Vec<u8>, RunError> {
        let read = |source| fault("read the log", source);
        let length = self.log.metadata().map_err(read)?.len().min(1 << 20);
        let mut bytes = vec![0; length as usize];
        self.log.read_exact_at(&mut bytes, 0).map_err(read)?;
        self.log.set_len(0).map_err(read)?;
        Ok(bytes)
    }

    /// Forgets the record of the run before, and makes room for the next.
    ///
    /// # Errors
    /// If memory is short.
    pub(crate) fn clear_record(&mut self, bytes: usize) -> Result<(), RunError> {
        // A new file is all zeros; writing zeros over the old one would be slower.
        self.record = Some(unsealed_file(bytes as u64)?);
        Ok(())
    }

    /// The record of the last run.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn record(&self) -> Result<Vec<u8>, RunError> {
        let read = |source| fault("read the record", source);
        let Some(record) = &self.record else { return Ok(Vec::new()) };
        let mut bytes = vec![0; record.metadata().map_err(read)?.len() as usize];
        record.read_exact_at(&mut bytes, 0).map_err(read)?;
        Ok(bytes)
    }

    pub(super) fn record_fd(&self) -> RawFd {
        self.record.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    pub(super) fn disk_fd(&self) -> RawFd {
        self.disk.as_raw_fd()
    }

    pub(super) fn output_fd(&self) -> RawFd {
        self.output.as_raw_fd()
    }

    pub(super) fn log_fd(&self) -> RawFd {
        self.log.as_raw_fd()
    }

    pub(super) fn input_fd(&self) -> RawFd {
        self.input.as_raw_fd()
    }
}

/// Pages between two places that are not zero on the healthy disk, and are on this one.
fn zero_pages(base: &[u8], from: usize, to: usize) -> Vec<(u64, Box<[u8]>)> {
    let mut out = Vec::new();
    for at in (from..to).step_by(PAGE) {
        let page = &base[at..(at + PAGE).min(base.len())];
        if page.iter().any(|byte| *byte != 0) {
            out.push(((at / PAGE) as u64, vec![0; page.len()].into_boxed_slice()));
        }
    }
    out
}

fn fault(what: &str, source: io::Error) -> RunError {
    RunError { what: what.to_owned(), source }
}

/// The next place with data at or behind `at`.
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    // SAFETY: a system call on a descriptor that lives.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at as i64, libc::SEEK_DATA) };
    match found {
        0.. => Ok(Some(found as u64)),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}

/// A file in memory without a name, of a size that cannot change.
fn memory_file(bytes: u64) -> Result<File, RunError> {
    let file = unsealed_file(bytes)?;
    let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: a system call on a descriptor that lives.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(RunError::last("seal a file in memory"));
    }
    Ok(file)
}

/// A file in memory without a name.
fn unsealed_file(bytes: u64) -> Result<File, RunError> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a system call with a valid name.
    let fd = unsafe { libc::memfd_create(c"fathom-disk".as_ptr(), flags) };
    if fd < 0 {
        return Err(RunError::last("make a file in memory"));
    }
    // SAFETY: the descriptor was made just now and is ours.
    let file = File::from(off_fixed_numbers(unsafe { OwnedFd::from_raw_fd(fd) })?);
    file.set_len(bytes).map_err(|source| fault("size a file in memory", source))?;
    Ok(file)
}

/// Puts a text into memory under a path that every child can read; it stays for the life of the process.
///
/// # Errors
/// If memory or descriptors are short.
pub(crate) fn shared_text(text: &str) -> Result<String, RunError> {
    // One descriptor for each text, however many subjects use it.
    static PATHS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut paths = PATHS.lock().unwrap_or_else(|error| error.into_inner());
    if let Some(path) = paths.get(text) {
        return Ok(path.clone());
    }
    let file = memory_file(text.len() as u64)?;
    file.write_all_at(text.as_bytes(), 0).map_err(|source| fault("write a text", source))?;
    let fd = file.as_raw_fd();
    // SAFETY: a system call on a descriptor that lives; children may inherit this one.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } != 0 {
        return Err(RunError::last("share a text"));
    }
    std::mem::forget(file);
    let path = format!("/proc/self/fd/{fd}");
    paths.insert(text.to_owned(), path.clone());
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_what_it_was_set_to_and_changes_are_found() {
        let mut base = vec![0_u8; 5 * PAGE + 100];
        base[PAGE] = 7;
        base[5 * PAGE + 1] = 9;
        let base = Arc::new(base);
        let mut file = DiskFile::new(base.clone()).unwrap();
        assert_eq!(file.look().unwrap(), DiskDelta::default());
        let mut other = (*base).clone();
        other[3 * PAGE] = 1;
        other[PAGE] = 0;
        other[5 * PAGE + 99] = 2;
        let delta = DiskDelta::between(&base, &other);
        file.set(&delta).unwrap();
        assert_eq!(file.look().unwrap(), delta);
        let mut copy = (*base).clone();
        delta.apply(&mut copy);
        assert_eq!(copy, other);
        let changes = DiskDelta::default().changes(&base, &delta);
        assert_eq!(changes, [(4096, 7, 0), (3 * 4096, 0, 1), (5 * 4096 + 99, 0, 2)]);
        file.set(&DiskDelta::default()).unwrap();
        assert_eq!(file.look().unwrap(), DiskDelta::default());
    }
}
