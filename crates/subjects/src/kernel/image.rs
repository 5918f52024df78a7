//! [`Image`]: a disk in memory that is ours: what changed on it can be taken out and put back.
//!
//! The memory is a memfd under a loop device. What the kernel's cache of the device holds is never
//! looked at: it may be stale, or ahead of what was written (the "false discrepancies" of checkers
//! that save and restore through the device). So nothing may be mounted, or the file system must be
//! frozen, while the image is read, and nothing may be mounted while it is written.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, Mutex, PoisonError};

use fathom_core::Digest;
use rustix::fs::{
    CWD, FallocateFlags, MemfdFlags, Mode, OFlags, SeekFrom, fallocate, ftruncate, memfd_create,
    openat, seek,
};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::loop_device::LoopDevice;
use super::recipe::{Program, Recipe};
use super::spawn;
use crate::error::SubjectError;

/// Root's programs, which the PATH of a plain `su` does not have.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// What is compared and stored as one: a page of the memfd.
pub(super) const BLOCK_BYTES: usize = 4096;

/// One read while scanning: small enough to stay in a processor's cache until it is compared.
const CHUNK_BYTES: usize = 64 * BLOCK_BYTES;

/// Blocks of one write: far below what the kernel takes at once (`IOV_MAX`, 1024).
const PAGES_AT_ONCE: usize = 256;

/// What a block holds; `None` is zeros.
pub(super) type Block = Option<Arc<Page>>;

/// The bytes of a block, shared by all states in which it is the same.
#[derive(Debug, PartialEq)]
pub(super) struct Page {
    digest: Digest,
    bytes: [u8; BLOCK_BYTES],
}

impl Page {
    /// A page with these bytes, which must be those of a whole block.
    pub(super) fn new(bytes: &[u8]) -> Page {
        Page { digest: Page::digest_of(bytes), bytes: bytes.try_into().expect("a whole block") }
    }

    fn digest_of(bytes: &[u8]) -> Digest {
        Digest::of(DOMAIN_BLOCK, bytes)
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    pub(super) fn bytes(&self) -> &[u8; BLOCK_BYTES] {
        &self.bytes
    }
}

/// The blocks that differ from the first state, in ascending order of their numbers, each by the digest of
/// its page; `None` is zeros.
pub(super) type Changes = Vec<(u32, Option<Digest>)>;

/// Who keeps the pages of states.
pub(super) trait Pages {
    /// Takes a page for one more state.
    fn hold(&mut self, page: &Arc<Page>) -> io::Result<()>;

    /// Gives back what it holds.
    fn load(&self, digest: &Digest) -> io::Result<Arc<Page>>;

    /// The same, if it need not be read from a file.
    fn in_memory(&self, digest: &Digest) -> Option<Arc<Page>>;
}

/// As many pages of the last state are remembered. A state can be much larger (a file system with a log writes
/// to all of its disk), and in a guest every page may be one of the mappings that its host allows.
const LAST_PAGES_MAX: usize = 4096;

/// Keeps the hashes of blocks apart from all others.
const DOMAIN_BLOCK: u64 = 0xb10c;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// A memfd, and what it held in the beginning.
pub(super) struct Image {
    memory: OwnedFd,
    pristine: Vec<Block>,
    /// How it differed from the beginning when it was last read or rewritten, or the first part of it. Most
    /// blocks are still the same when it is read again, and are not copied and hashed once more.
    last: Vec<(u32, Block)>,
    chunk: Box<[u8]>,
}

/// How a state differs from the first one, asked for its blocks in ascending order.
struct State<'a, T> {
    changes: std::slice::Iter<'a, (u32, T)>,
}

impl<'a, T> State<'a, T> {
    fn new(changes: &'a [(u32, T)]) -> State<'a, T> {
        State { changes: changes.iter() }
    }

    /// What a block holds if that is not what it held in the beginning.
    fn changed(&mut self, index: usize) -> Option<&'a T> {
        loop {
            let (at, block) = self.changes.as_slice().first()?;
            match (*at as usize).cmp(&index) {
                Ordering::Less => _ = self.changes.next(),
                Ordering::Equal => return Some(block),
                Ordering::Greater => return None,
            }
        }
    }
}

/// A part of the memory as a scan meets it.
enum Part<'a> {
    /// Blocks from this index on.
    Data(usize, &'a [u8]),
    /// Blocks from the first index up to the second, which hold nothing.
    Hole(usize, usize),
}

impl Image {
    /// Formats a new disk; [`Image::settle`] says when it is in its first state.
    pub(super) fn format(recipe: &Recipe, format: &Program) -> Result<Image, SubjectError> {
        let make = || -> io::Result<OwnedFd> {
            // So that a loop device in a listing says whose it is.
            let name = format!("fathom-image-{}", std::process::id());
            let memory = memfd_create(name, MemfdFlags::CLOEXEC)?;
            ftruncate(&memory, recipe.image_bytes)?;
            Ok(memory)
        };
        let memory = make().map_err(SubjectError::io("make an image in", "memory"))?;
        let output = match format.on_device {
            true => {
                let device = LoopDevice::attach(&memory)?;
                run(format, &memory, Some(device.path()), &RunningProgram::default())?
            }
            false => run(format, &memory, None, &RunningProgram::default())?,
        };
        if !output.status.success() {
            return Err(SubjectError::Format {
                command: format.text(),
                image_bytes: recipe.image_bytes,
                output: text(&output),
            });
        }
        if recipe.flash_erase_bytes.is_some() {
            erase_rest(&memory, recipe.image_bytes)
                .map_err(SubjectError::io("erase flash in", "memory"))?;
        }
        let blocks = recipe.image_bytes as usize / BLOCK_BYTES;
        let pristine = std::iter::repeat_with(|| None).take(blocks).collect();
        Ok(Image { memory, pristine, last: Vec::new(), chunk: vec![0; CHUNK_BYTES].into() })
    }

    /// What the disk holds now is what [`Image::changes`] are changes of. Zeros that were written (most of an
    /// empty journal) become holes, which no later scan has to read.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        let size = self.bytes();
        let Image { memory, pristine, last, chunk } = self;
        pristine.fill(None);
        last.clear();
        let mut writer = Writer::new(memory);
        scan(memory, size, chunk, |part| {
            if let Part::Data(first, bytes) = part {
                for (index, block) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                    pristine[index] = as_block(block);
                    if pristine[index].is_none() {
                        writer.put(index, &None)?;
                    }
                }
            }
            Ok(())
        })?;
        writer.flush()
    }

    /// The memory.
    pub(super) fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// Size of the disk.
    pub(super) fn bytes(&self) -> usize {
        self.pristine.len() * BLOCK_BYTES
    }

    /// The blocks that are not as in the beginning, in ascending order. Their pages are handed over one by one.
    pub(super) fn changes(&mut self, pages: &mut impl Pages) -> io::Result<Changes> {
        let size = self.bytes();
        let Image { memory, pristine, last, chunk } = self;
        let mut before = State::new(last);
        let (mut changes, mut now) = (Changes::with_capacity(last.len()), Vec::new());
        let mut changed = |index: usize, block: Block| {
            if let Some(page) = &block {
                pages.hold(page)?;
            }
            changes.push((index as u32, block.as_ref().map(|page| page.digest())));
            if now.len() < LAST_PAGES_MAX {
                now.push((index as u32, block));
            }
            Ok(())
        };
        scan(memory, size, chunk, |part| match part {
            Part::Data(first, bytes) => {
                let mut blocks = (first..).zip(bytes.chunks_exact(BLOCK_BYTES));
                blocks.try_for_each(|(index, block)| match before.changed(index) {
                    Some(known) if block == content(known) => changed(index, known.clone()),
                    _ if block == content(&pristine[index]) => Ok(()),
                    _ => changed(index, as_block(block)),
                })
            }
            Part::Hole(start, end) => {
                let mut lost = (start..end).filter(|index| pristine[*index].is_some());
                lost.try_for_each(|index| changed(index, None))
            }
        })?;
        *last = now;
        Ok(changes)
    }

    /// Makes the disk what it was in the beginning but for `changes`, which are in ascending order.
    /// Only what differs is written; zeros become holes, so that later scans are short.
    pub(super) fn become_changed(
        &mut self,
        changes: &[(u32, Option<Digest>)],
        pages: &impl Pages,
    ) -> io::Result<()> {
        let size = self.bytes();
        let Image { memory, pristine, last, chunk } = self;
        let mut target = State::new(changes);
        let mut writer = Writer::new(memory);
        let mut put = |index: usize, block: &[u8]| -> io::Result<()> {
            let page = match target.changed(index) {
                None => pristine[index].clone(),
                Some(None) => None,
                Some(Some(digest)) => match pages.in_memory(digest) {
                    // What is there already need not be read from the file.
                    None if Page::digest_of(block) == *digest => return Ok(()),
                    None => Some(pages.load(digest)?),
                    page => page,
                },
            };
            // Nearly all of a hole stays one.
            let is_hole_still = page.is_none() && std::ptr::eq(block, &ZEROS[..]);
            if !is_hole_still && block != content(&page) {
                writer.put(index, &page)
            } else {
                Ok(())
            }
        };
        scan(memory, size, chunk, |part| match part {
            Part::Data(first, bytes) => {
                let mut blocks = (first..).zip(bytes.chunks_exact(BLOCK_BYTES));
                blocks.try_for_each(|(index, block)| put(index, block))
            }
            Part::Hole(start, end) => (start..end).try_for_each(|index| put(index, &ZEROS)),
        })?;
        writer.flush()?;
        let in_memory = changes.iter().filter_map(|(index, digest)| match digest {
            Some(digest) => Some((*index, Some(pages.in_memory(digest)?))),
            None => Some((*index, None)),
        });
        *last = in_memory.take(LAST_PAGES_MAX).collect();
        Ok(())
    }

    /// The whole disk, if it were changed like this.
    pub(super) fn whole(
        &self,
        changes: &[(u32, Option<Digest>)],
        pages: &impl Pages,
    ) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes()];
        self.blocks(changes, pages, |index, page| {
            bytes[index * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(page.bytes());
        })?;
        Ok(bytes)
    }

    /// A digest of the whole disk, if it were changed like this: a chain over the blocks that hold
    /// something, each with its number.
    pub(super) fn digest(
        &self,
        changes: &[(u32, Option<Digest>)],
        pages: &impl Pages,
    ) -> io::Result<Digest> {
        let mut digest = Digest::of(0, &[]);
        self.blocks(changes, pages, |index, page| {
            let contents = Digest::of(index as u64, page.bytes());
            let link = [digest.0.to_le_bytes(), contents.0.to_le_bytes()].concat();
            digest = Digest::of(0, &link);
        })?;
        Ok(digest)
    }

    /// The blocks that hold something, if the disk were changed like this.
    fn blocks(
        &self,
        changes: &[(u32, Option<Digest>)],
        pages: &impl Pages,
        mut visit: impl FnMut(usize, &Page),
    ) -> io::Result<()> {
        let mut state = State::new(changes);
        for (index, first) in self.pristine.iter().enumerate() {
            match (state.changed(index), first) {
                (Some(Some(digest)), _) => visit(index, &*pages.load(digest)?),
                (None, Some(page)) => visit(index, page),
                (Some(None), _) | (None, None) => {}
            }
        }
        Ok(())
    }

    /// How a whole disk differs from the first state.
    pub(super) fn changes_of(&self, whole: &[u8], pages: &mut impl Pages) -> io::Result<Changes> {
        let mut changes = Changes::new();
        let blocks = whole.chunks_exact(BLOCK_BYTES).zip(&self.pristine).enumerate();
        for (index, (block, _)) in blocks.filter(|(_, (block, first))| *block != content(first)) {
            let page = as_block(block);
            if let Some(page) = &page {
                pages.hold(page)?;
            }
            changes.push((index as u32, page.map(|page| page.digest())));
        }
        Ok(changes)
    }

    /// Runs a checking program on the disk, which it can only read.
    pub(super) fn check(
        &self,
        program: &Program,
        running: &RunningProgram,
    ) -> Result<Output, SubjectError> {
        check(&self.memory, program, running)
    }

    /// The whole disk as it is now.
    pub(super) fn now(&mut self) -> io::Result<fathom_block::Image> {
        let mut image = fathom_block::Image::new(self.bytes(), fathom_block::Erased::Zeros);
        scan(&self.memory, self.bytes(), &mut self.chunk, |part| {
            if let Part::Data(first, data) = part {
                let blocks = data.chunks(BLOCK_BYTES).enumerate();
                for (index, block) in
                    blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0))
                {
                    image.write((first + index) * BLOCK_BYTES, block);
                }
            }
            Ok(())
        })?;
        Ok(image)
    }
}

/// Goes through the memory of a disk in ascending order, without touching large holes. Small ones between data
/// are read as zeros: asking for them costs more, above all in a guest.
fn scan(
    memory: &OwnedFd,
    size: usize,
    chunk: &mut [u8],
    mut visit: impl FnMut(Part<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut at = 0;
    while at < size {
        let start = match seek(memory, SeekFrom::Data(at as u64)) {
            Err(Errno::NXIO) => size,
            start => start? as usize,
        };
        if start > at {
            visit(Part::Hole(at / BLOCK_BYTES, start / BLOCK_BYTES))?;
        }
        let len = (size - start).min(chunk.len());
        if len > 0 {
            read_exact(memory, &mut chunk[..len], start as u64)?;
            visit(Part::Data(start / BLOCK_BYTES, &chunk[..len]))?;
        }
        at = start + len;
    }
    Ok(())
}

/// Fills what a program for flash has left out at the end: erased flash reads as ones.
fn erase_rest(memory: &OwnedFd, image_bytes: u64) -> io::Result<()> {
    let mut at = rustix::fs::fstat(memory)?.st_size as u64;
    let ones = [0xff; BLOCK_BYTES];
    while at < image_bytes {
        let count = ones.len().min((image_bytes - at) as usize);
        at += rustix::io::pwrite(memory, &ones[..count], at)? as u64;
    }
    Ok(())
}

/// Runs a checking program on a disk in memory, which it can only read.
pub(super) fn check(
    memory: &OwnedFd,
    program: &Program,
    running: &RunningProgram,
) -> Result<Output, SubjectError> {
    let path = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(memory));
    let readable = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| SubjectError::io("read an image in", "memory")(errno.into()))?;
    run(program, &readable, None, running)
}

/// Runs a program that repairs what is in memory.
pub(super) fn repair(memory: &OwnedFd, program: &Program) -> Result<Output, SubjectError> {
    let path = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(memory));
    let writable = openat(CWD, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| SubjectError::io("change an image in", "memory")(errno.into()))?;
    run(program, &writable, None, &RunningProgram::default())
}

fn content(block: &Block) -> &[u8] {
    block.as_ref().map_or(&ZEROS[..], |page| page.bytes())
}

fn as_block(bytes: &[u8]) -> Block {
    if bytes == ZEROS {
        return None;
    }
    Some(Arc::new(Page::new(bytes)))
}

/// Writes blocks in ascending order. Those that follow each other are one system call, which in a guest costs
/// more than the block.
struct Writer<'a> {
    memory: &'a OwnedFd,
    /// Where the collected blocks begin, and how many there are.
    first: usize,
    count: usize,
    /// What they hold; nothing if they are to become a hole.
    pages: Vec<Arc<Page>>,
}

impl Writer<'_> {
    fn new(memory: &OwnedFd) -> Writer<'_> {
        Writer { memory, first: 0, count: 0, pages: Vec::new() }
    }

    fn put(&mut self, index: usize, block: &Block) -> io::Result<()> {
        let follows = index == self.first + self.count && block.is_none() == self.pages.is_empty();
        if !follows || self.pages.len() >= PAGES_AT_ONCE {
            self.flush()?;
            self.first = index;
        }
        self.count += 1;
        self.pages.extend(block.clone());
        Ok(())
    }

    /// Writes what was collected.
    fn flush(&mut self) -> io::Result<()> {
        let at = (self.first * BLOCK_BYTES) as u64;
        let len = (self.count * BLOCK_BYTES) as u64;
        if self.pages.is_empty() && len > 0 {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(self.memory, punch, at, len)?;
        }
        let mut slices: Vec<IoSlice<'_>> =
            self.pages.iter().map(|page| IoSlice::new(page.bytes())).collect();
        let (mut rest, mut at) = (&mut slices[..], at);
        while !rest.is_empty() {
            let written = rustix::io::pwritev(self.memory, rest, at)?;
            IoSlice::advance_slices(&mut rest, written);
            at += written as u64;
        }
        self.pages.clear();
        self.count = 0;
        Ok(())
    }
}

fn read_exact(memory: &OwnedFd, to: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < to.len() {
        match rustix::io::pread(memory, &mut to[done..], at + done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok(())
}

/// A program that is perhaps running, to be ended by another thread.
#[derive(Clone, Default)]
pub(super) struct RunningProgram(Arc<Mutex<Option<OwnedFd>>>);

impl RunningProgram {
    fn set(&self, program: Option<OwnedFd>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = program;
    }

    /// Ends the program, if there is one.
    pub(super) fn kill(&self) {
        if let Some(program) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // It may have ended meanwhile: then there is nothing to do.
            let _ = pidfd_send_signal(program, Signal::KILL);
        }
    }
}

/// Runs a program on a device, or on an image that is its standard input, so that no path of ours has to
/// be visible to it. It ends when we do.
fn run(
    program: &Program,
    image: &OwnedFd,
    device: Option<&Path>,
    running: &RunningProgram,
) -> Result<Output, SubjectError> {
    let (name, arguments) = program.command.split_first().ok_or_else(|| {
        SubjectError::Recipe("a command is empty: give a program and its arguments".to_owned())
    })?;
    let path = std::env::var("PATH").unwrap_or_default();
    let found = find(name, &format!("{path}:{SBIN}"));
    let device = device.unwrap_or(Path::new("/proc/self/fd/0")).as_os_str();
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).chain([device]).collect();
    let given = program.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let variables: Vec<(&str, &str)> = given.chain([("LC_ALL", "C")]).collect();
    let mut started = |child: libc::pid_t| {
        // It may have ended already: then there is nobody to end.
        let child = Pid::from_raw(child).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        running.set(child);
    };
    let output =
        spawn::output(found.as_os_str(), &arguments, &variables, image.as_fd(), &mut started);
    running.set(None);
    output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            SubjectError::NoProgram { program: name.clone(), package: program.package.clone() }
        }
        _ => SubjectError::io("run", name)(error),
    })
}

/// What a program printed.
pub(super) fn text(output: &Output) -> String {
    let bytes = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&bytes).trim().replace("/proc/self/fd/0", "the image")
}

/// Where a program is; its bare name if it is nowhere. Beside a program there may be the same one without shared
/// libraries (`e2fsck.static`), which is preferred: a checker is started for every disk, and finding and mapping
/// its libraries is a third of its time in a guest.
fn find(program: &str, path: &str) -> PathBuf {
    let named = |dir: &str| {
        [format!("{program}.static"), program.to_owned()].map(|name| PathBuf::from(dir).join(name))
    };
    let candidates = path.split(':').filter(|dir| PathBuf::from(dir).join(program).is_file());
    let mut candidates = candidates.flat_map(named);
    candidates.find(|file| file.is_file()).unwrap_or_else(|| program.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(blocks: usize) -> Image {
        let memory = memfd_create("fathom-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, (blocks * BLOCK_BYTES) as u64).unwrap();
        let pristine = std::iter::repeat_with(|| None).take(blocks).collect();
        Image { memory, pristine, last: Vec::new(), chunk: vec![0; CHUNK_BYTES].into() }
    }

    fn block(byte: u8) -> Block {
        as_block(&[byte; BLOCK_BYTES])
    }

    fn write(image: &Image, index: usize, value: &Block) {
        let mut writer = Writer::new(&image.memory);
        writer.put(index, value).unwrap();
        writer.flush().unwrap();
    }

    fn allocated_blocks(image: &Image) -> i64 {
        rustix::fs::fstat(&image.memory).unwrap().st_blocks / 8
    }

    #[test]
    fn a_program_without_shared_libraries_is_preferred_to_itself_with_them() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = format!("{}:{}", one.path().display(), other.path().display());
        assert_eq!(find("check", &path), PathBuf::from("check"));
        // Another one further back, perhaps of another version, is not it.
        std::fs::write(other.path().join("check.static"), "").unwrap();
        assert_eq!(find("check", &path), PathBuf::from("check"));
        std::fs::write(one.path().join("check"), "").unwrap();
        std::fs::write(other.path().join("check"), "").unwrap();
        assert_eq!(find("check", &path), one.path().join("check"));
        std::fs::write(one.path().join("check.static"), "").unwrap();
        assert_eq!(find("check", &path), one.path().join("check.static"));
    }

    #[test]
    fn flash_is_erased_behind_what_was_written() {
        let disk = image(1);
        erase_rest(&disk.memory, 2 * BLOCK_BYTES as u64 + 10).unwrap();
        let mut bytes = vec![1; 2 * BLOCK_BYTES + 10];
        read_exact(&disk.memory, &mut bytes, 0).unwrap();
        let (written, erased) = bytes.split_at(BLOCK_BYTES);
        assert!(written.iter().all(|byte| *byte == 0) && erased.iter().all(|byte| *byte == 0xff));
    }

    /// Keeps every page in memory, and counts those that it was given.
    #[derive(Default)]
    struct Kept {
        pages: Vec<Arc<Page>>,
        /// Pages behind the first ones are "in a file".
        in_memory_max: Option<usize>,
    }

    impl Pages for Kept {
        fn hold(&mut self, page: &Arc<Page>) -> io::Result<()> {
            self.pages.push(Arc::clone(page));
            Ok(())
        }

        fn load(&self, digest: &Digest) -> io::Result<Arc<Page>> {
            let mut pages = self.pages.iter();
            let found = pages.find(|page| page.digest() == *digest);
            found.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        }

        fn in_memory(&self, digest: &Digest) -> Option<Arc<Page>> {
            let count = self.in_memory_max.unwrap_or(usize::MAX).min(self.pages.len());
            self.pages[..count].iter().find(|page| page.digest() == *digest).cloned()
        }
    }

    fn digest(block: &Block) -> Option<Digest> {
        block.as_ref().map(|page| page.digest())
    }

    #[test]
    fn what_did_not_change_is_not_copied_again() {
        let mut disk = image(100);
        disk.settle().unwrap();
        write(&disk, 3, &block(1));
        write(&disk, 50, &block(2));
        let (mut first, mut second, mut third) =
            (Kept::default(), Kept::default(), Kept::default());
        let changes = disk.changes(&mut first).unwrap();
        write(&disk, 3, &block(4));
        write(&disk, 7, &block(5));
        let expected = [(3, digest(&block(4))), (7, digest(&block(5))), (50, digest(&block(2)))];
        assert_eq!(disk.changes(&mut second).unwrap(), expected);
        assert!(Arc::ptr_eq(&first.pages[1], &second.pages[2]));
        disk.become_changed(&changes, &first).unwrap();
        assert_eq!(disk.changes(&mut third).unwrap(), changes);
        assert!(third.pages.iter().zip(&first.pages).all(|(one, other)| Arc::ptr_eq(one, other)));
        // A block that is again as in the beginning is no change, also if it was one before.
        write(&disk, 3, &None);
        assert_eq!(disk.changes(&mut third).unwrap(), [(50, digest(&block(2)))]);
        disk.settle().unwrap();
        assert_eq!(disk.changes(&mut third).unwrap(), []);
    }

    #[test]
    fn a_large_state_is_not_remembered_as_a_whole() {
        let mut disk = image(LAST_PAGES_MAX + 100);
        disk.settle().unwrap();
        let number = |index: usize| (1 + index % 250) as u8;
        (0..LAST_PAGES_MAX + 100).for_each(|index| write(&disk, index, &block(number(index))));
        let mut pages = Kept { in_memory_max: Some(10), ..Kept::default() };
        let changes = disk.changes(&mut pages).unwrap();
        assert_eq!(disk.last.len(), LAST_PAGES_MAX);
        assert_eq!(disk.changes(&mut Kept::default()).unwrap(), changes);
        // Also if most of it must be read again, it is what it was.
        for index in [5, 20, LAST_PAGES_MAX + 50] {
            write(&disk, index, &None);
        }
        disk.become_changed(&changes, &pages).unwrap();
        assert!(disk.last.len() < LAST_PAGES_MAX);
        assert_eq!(disk.changes(&mut Kept::default()).unwrap(), changes);
    }

    #[test]
    fn changes_are_those_since_the_beginning_and_bring_it_back() {
        let mut disk = image(1000);
        for index in [0, 5, 500] {
            write(&disk, index, &block(7));
        }
        disk.settle().unwrap();
        let mut pages = Kept::default();
        assert_eq!(disk.changes(&mut pages).unwrap(), []);
        // Changed, new, gone (zeros and a hole), zeros where nothing was, rewritten with the same.
        write(&disk, 0, &block(8));
        write(&disk, 999, &block(9));
        rustix::io::pwrite(&disk.memory, &ZEROS, 5 * 4096).unwrap();
        write(&disk, 500, &None);
        rustix::io::pwrite(&disk.memory, &ZEROS, 77 * 4096).unwrap();
        let changes = disk.changes(&mut pages).unwrap();
        let expected = [(0, digest(&block(8))), (5, None), (500, None), (999, digest(&block(9)))];
        assert_eq!(changes, expected);
        let whole = disk.whole(&changes, &pages).unwrap();
        assert_eq!(disk.changes_of(&whole, &mut pages).unwrap(), expected);
        let digest_now = disk.digest(&changes, &pages).unwrap();
        assert_ne!(digest_now, disk.digest(&[], &pages).unwrap());

        disk.become_changed(&[], &pages).unwrap();
        assert_eq!(disk.changes(&mut pages).unwrap(), []);
        write(&disk, 300, &block(3));
        disk.become_changed(&changes, &pages).unwrap();
        assert_eq!(disk.changes(&mut pages).unwrap(), expected);
        let mut bytes = vec![0; disk.bytes()];
        read_exact(&disk.memory, &mut bytes, 0).unwrap();
        assert!(bytes == whole);
        pages.hold(&Arc::new(Page::new(&[1; BLOCK_BYTES]))).unwrap();
        disk.become_changed(&[(1, digest(&block(1)))], &pages).unwrap();
        assert_eq!(disk.changes(&mut pages).unwrap(), [(1, digest(&block(1)))]);
        assert_eq!(
            allocated_blocks(&disk),
            5,
            "what was put back to zeros takes no memory: 0, 1, 5, 77, 500"
        );
    }
}
