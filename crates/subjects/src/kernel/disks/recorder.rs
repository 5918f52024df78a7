//! [`DiskRecorder`]: a loop device over a file that a process of ours serves, and the log of what the
//! device was told.
//!
//! ```text
//!  file system ──► loop device (direct I/O, no merging) ──► FUSE file ──► server process ──► log
//! ```
//!
//! One entry of the log is one `bio` of the file system. Everything is detached, so that nothing is
//! left when this process ends: the mount goes first, then the loop device, the FUSE connection, and
//! the server.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use fathom_block::disks::ReadSet;
use fathom_block::{Event, Image, WriteLog};
use fathom_core::{HarnessFault, Op, Outcome};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

use super::server::{BUFFER_BYTES, Served, Server};
use super::shared::{Journal, SharedMemory, Told, UNIT_BYTES};
use crate::error::SubjectError;
use crate::kernel::loop_device::LoopDevice;

/// What is compared and copied as one.
const BLOCK_BYTES: usize = 4096;

/// Answers to writes are held until nothing has arrived for so long. A file system that does not wait
/// sends its flush within microseconds (measured: 22 µs on an idle machine).
const HOLD_NANOS: u32 = 60_000;

/// A disk that can be mounted and tells what it was told.
pub(super) struct DiskRecorder {
    /// Dropped first: then the kernel lets go of the connection, and the server ends.
    device: LoopDevice,
    merging: Option<Merging>,
    /// The file under the device.
    file: OwnedFd,
    server: Server,
    disk: SharedMemory,
    journal: Journal,
    /// For one request: the server's.
    _buffer: SharedMemory,
    /// What the disk held before the log.
    base: Image,
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> SubjectError {
    SubjectError::io(what, "the recording disk")
}

impl DiskRecorder {
    /// A disk that holds `base`.
    pub(super) fn new(base: &Image) -> Result<DiskRecorder, SubjectError> {
        let size = base.size();
        let disk = SharedMemory::new("fathom-disk", size).map_err(failed("make"))?;
        let journal = Journal::new().map_err(failed("make"))?;
        let buffer =
            SharedMemory::new("fathom-disk-buffer", BUFFER_BYTES).map_err(failed("make"))?;
        journal.head().hold_nanos.store(HOLD_NANOS, Ordering::Relaxed);
        let (connection, mount) = connect().map_err(failed("mount"))?;
        let (served, buffer_ref) = (&disk, &buffer);
        let served =
            Served { connection: &connection, disk: served, journal: &journal, buffer: buffer_ref };
        let server = Server::start(&served).map_err(failed("serve"))?;
        // Only the server has it now: when the server ends, so does the connection.
        drop(connection);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&mount, "disk", flags, Mode::empty())
            .map_err(|errno| failed("open")(errno.into()))?;
        let device = LoopDevice::attach_direct(&file)?;
        let merging = Merging::switch_off(&device);
        let blank = Image::new(size, base.erased());
        let mut recorder = DiskRecorder {
            device,
            merging,
            file,
            server,
            disk,
            journal,
            _buffer: buffer,
            base: blank,
        };
        recorder.restart(base)?;
        Ok(recorder)
    }

    /// A disk whose requests are answered at once and may be merged: nobody asks for the order of its writes.
    pub(super) fn prompt(base: &Image) -> Result<DiskRecorder, SubjectError> {
        let mut recorder = DiskRecorder::new(base)?;
        recorder.merging = None;
        recorder.journal.head().hold_nanos.store(0, Ordering::Relaxed);
        Ok(recorder)
    }

    /// The disk as a file.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// What was read of the disk since it was made to hold its base.
    ///
    /// # Errors
    /// If the process that serves it has died.
    pub(super) fn reads(&self) -> Result<ReadSet, HarnessFault> {
        self.check_server()?;
        Ok(match self.journal.units_read(self.disk.len()) {
            Some(units) => ReadSet::unordered(UNIT_BYTES, units),
            None => ReadSet::everything(),
        })
    }

    /// The memory that holds the disk.
    pub(super) fn memory(&self) -> &SharedMemory {
        &self.disk
    }

    /// Notes units of the unmounted disk as read, but for those that were overwritten since it was made to hold
    /// its base.
    pub(super) fn note_read(&self, units: &[u32]) {
        for unit in units {
            self.journal.note_read(*unit as usize * UNIT_BYTES, UNIT_BYTES);
        }
    }

    /// The device under it.
    pub(super) fn device(&self) -> &LoopDevice {
        &self.device
    }

    /// Whether the log has one entry per `bio`, rather than per request.
    #[cfg(test)]
    pub(super) fn is_unmerged(&self) -> bool {
        self.merging.is_some()
    }

    /// The process that serves the disk.
    #[cfg(test)]
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Whether what the disk does is to be believed. A process that dies ends its connection before others see
    /// that it is dead, so the connection is asked, too.
    ///
    /// # Errors
    /// If the process that serves it has died.
    pub(super) fn check_server(&self) -> Result<(), HarnessFault> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let answers = || statx(&self.file, "", flags, StatxFlags::SIZE).is_ok();
        match self.server.is_alive() && answers() {
            true => Ok(()),
            false => {
                let what = "the process that serves it has died";
                Err(HarnessFault::new("recording a disk", what))
            }
        }
    }

    /// Makes the unmounted disk hold `base`, and forgets the log.
    ///
    /// # Errors
    /// If the disk cannot be changed.
    pub(super) fn restart(&mut self, base: &Image) -> Result<(), SubjectError> {
        // What was written since, wherever it was.
        for index in 0..self.journal.len() {
            let request = self.journal.request(index);
            let at = request.at.load(Ordering::Acquire) as usize;
            let len = request.len.load(Ordering::Acquire) as usize;
            if request.told.load(Ordering::Acquire) != Told::Flush as u32 {
                put(&mut self.disk, base, at, len);
            }
        }
        if base.digest() != self.base.digest() {
            put_whole(&mut self.disk, base, Unused::Kept)?;
            self.base = base.clone();
        }
        self.journal.clear(self.disk.len());
        Ok(())
    }

    /// The present position in the log, in requests.
    pub(super) fn position(&self) -> usize {
        self.journal.len()
    }

    /// Whether the disk holds what the log says.
    #[cfg(test)]
    pub(super) fn is_exact(&self, log: &WriteLog) -> bool {
        let mut image = self.base.clone();
        log.apply(0..log.len(), &mut image);
        self.disk.bytes(0, self.disk.len()).is_some_and(|bytes| image.to_vec() == bytes)
    }

    /// The log up to a position, and the given positions in it.
    ///
    /// # Errors
    /// If it is incomplete: too long, or the server has died.
    pub(super) fn log(&self, positions: &[usize]) -> Result<(WriteLog, Vec<usize>), HarnessFault> {
        let wrong = |what: &str| Err(HarnessFault::new("recording a disk", what));
        if self.journal.head().overflow.load(Ordering::Acquire) != 0 {
            return wrong("more was written than the log can hold");
        }
        self.check_server()?;
        let until = positions.last().copied().unwrap_or(0);
        let order = order(&self.journal, until);
        let mut log = WriteLog::new();
        for index in &order {
            let request = self.journal.request(*index);
            let at = request.at.load(Ordering::Acquire) as usize;
            let told = request.told.load(Ordering::Acquire);
            log.push(if told == Told::Write as u32 {
                let data = self.journal.data(request);
                Event::Write { at, data, fua: false, metadata: false }
            } else if told == Told::Erase as u32 {
                Event::Erase { at, len: request.len.load(Ordering::Acquire) as usize }
            } else {
                Event::Flush
            });
        }
        // A write that moved behind a flush takes positions before that flush along.
        let position = |position: &usize| {
            let first_later = order.iter().position(|index| index >= position);
            first_later.unwrap_or(order.len())
        };
        let mut marks: Vec<usize> = positions.iter().map(position).collect();
        for index in 1..marks.len() {
            marks[index] = marks[index].max(marks[index - 1]);
        }
        Ok((log, marks))
    }
}

/// The requests before a position, in the order in which the log has them: a write that had not been
/// answered when a flush arrived was not flushed by it, and stands behind it.
fn order(journal: &Journal, until: usize) -> Vec<usize> {
    let is_flush =
        |index: &usize| journal.request(*index).told.load(Ordering::Acquire) == Told::Flush as u32;
    let flushes: Vec<usize> = (0..until).filter(is_flush).collect();
    let place = |index: usize| {
        let request = journal.request(index);
        let answered = match request.answered.load(Ordering::Acquire) {
            0 => usize::MAX,
            _ => request.answered_at.load(Ordering::Acquire) as usize,
        };
        let during = |flush: &&usize| **flush > index && **flush < answered;
        flushes.iter().rfind(during).map_or(index, |flush| *flush)
    };
    let mut order: Vec<(usize, usize)> = (0..until)
        .map(|index| if is_flush(&index) { (index, 0) } else { (place(index), index + 1) })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(place, index)| if index == 0 { place } else { index - 1 }).collect()
}

/// What becomes of memory of a disk that held something and is to hold zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unused {
    /// It is given back.
    GivenBack,
    /// It is kept, unless there is much of it: a process that serves a disk maps each page that it writes, which
    /// in a guest costs more than writing zeros to thousands of bytes.
    Kept,
}

/// Memory of a served disk that is kept although nothing is in it.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Makes a whole disk what an image holds; writes only what differs, and looks only at what somebody has
/// touched: a disk of 64 MiB is mostly zeros that nobody has.
pub(super) fn put_whole(
    disk: &mut SharedMemory,
    image: &Image,
    unused: Unused,
) -> Result<(), SubjectError> {
    let failed = |what| SubjectError::io(what, "a disk in memory");
    let touched = disk.touched().map_err(failed("look at"))?;
    let keeps = unused == Unused::Kept
        && touched.iter().map(|part| part.len()).sum::<usize>() <= KEPT_BYTES_MAX;
    let clear = |disk: &mut SharedMemory, part: Range<usize>| match keeps {
        true => {
            put(disk, image, part.start, part.len());
            Ok(())
        }
        false => disk.forget(part).map_err(failed("clear")),
    };
    let whole = |part: Range<usize>| {
        let end = part.end.next_multiple_of(BLOCK_BYTES).min(image.size());
        part.start / BLOCK_BYTES * BLOCK_BYTES..end
    };
    let occupied: Vec<Range<usize>> = image.occupied().into_iter().map(whole).collect();
    for held in touched {
        // What is between the parts that the image occupies.
        let mut at = held.start;
        for part in occupied.iter().filter(|part| part.end > held.start && part.start < held.end) {
            if part.start > at {
                clear(disk, at..part.start)?;
            }
            at = at.max(part.end);
        }
        if at < held.end {
            clear(disk, at..held.end)?;
        }
    }
    for part in occupied {
        put(disk, image, part.start, part.len());
    }
    Ok(())
}

/// What an unmounted disk holds that held `image` before; shares with it what is the same.
pub(super) fn changed(disk: &SharedMemory, image: &Image) -> Result<Image, SubjectError> {
    let mut changed = image.clone();
    let mut parts = disk.touched().map_err(SubjectError::io("look at", "a disk in memory"))?;
    // What nobody has touched reads as zeros, also if the image held something there.
    parts.extend(image.occupied());
    for at in parts.into_iter().flat_map(|part| {
        let first = part.start / BLOCK_BYTES * BLOCK_BYTES;
        (first..part.end.min(image.size())).step_by(BLOCK_BYTES)
    }) {
        let Some(now) = disk.bytes(at, BLOCK_BYTES.min(image.size() - at)) else { break };
        let mut from = 0;
        let same = changed.slices(at, now.len()).all(|part| {
            from += part.len();
            part == &now[from - part.len()..from]
        });
        if !same {
            changed.write(at, now);
        }
    }
    Ok(changed)
}

/// Makes a range of a disk what an image holds there; writes only what differs.
pub(super) fn put(disk: &mut SharedMemory, image: &Image, at: usize, len: usize) {
    let first = at / BLOCK_BYTES * BLOCK_BYTES;
    let end = (at + len).min(image.size());
    let mut at = first;
    for wanted in image.slices(first, end.saturating_sub(first)) {
        if disk.bytes(at, wanted.len()) != Some(wanted) {
            disk.write(at, wanted);
        }
        at += wanted.len();
    }
}

/// A FUSE connection, and its mount that is nowhere.
pub(super) fn connect() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let connection = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let settings = [
        ("source", "fathom-disk".to_owned()),
        ("fd", connection.as_raw_fd().to_string()),
        ("rootmode", format!("{:o}", libc::S_IFDIR)),
        ("user_id", rustix::process::getuid().as_raw().to_string()),
        ("group_id", rustix::process::getgid().as_raw().to_string()),
    ];
    for (key, value) in settings {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    Ok((connection, mount))
}

/// The setting of a device that lets the kernel merge requests; put back when dropped.
struct Merging {
    setting: PathBuf,
    before: String,
}

impl Merging {
    fn switch_off(device: &LoopDevice) -> Option<Merging> {
        let name = device.path().file_name()?.to_string_lossy().into_owned();
        let setting = PathBuf::from(format!("/sys/block/{name}/queue/nomerges"));
        let before = std::fs::read_to_string(&setting).ok()?;
        std::fs::write(&setting, "2").ok()?;
        Some(Merging { setting, before })
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        // The device may be gone: then there is nothing to put back.
        let _ = std::fs::write(&self.setting, self.before.trim());
    }
}

/// Executes an operation so that only the file system under test is concerned: `sync` is for all file
/// systems of the machine, `syncfs` for one.
pub(super) fn narrowed(op: &Op, root: &OwnedFd) -> Option<Outcome> {
    matches!(op, Op::Sync).then(|| {
        // The descriptor of a mount is only a place.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(root, ".", flags, Mode::empty());
        match opened.and_then(rustix::fs::syncfs) {
            Ok(()) => Outcome::ok(0),
            Err(errno) => Outcome::err(fathom_core::Errno(errno.raw_os_error() as u16)),
        }
    })
}

#[cfg(test)]
mod tests {
    use fathom_block::Erased;

    use super::*;

    /// A disk holds what an image holds, whatever it held before, and whether memory is kept or given back.
    #[test]
    fn what_is_put_is_what_is_there() {
        let size = 64 * BLOCK_BYTES;
        let mut image = Image::new(size, Erased::Zeros);
        image.write(3 * BLOCK_BYTES + 100, b"here");
        image.write(9 * BLOCK_BYTES - 2, b"over");
        for (unused, blocks) in [(Unused::GivenBack, 3), (Unused::Kept, 5)] {
            let mut disk = SharedMemory::new("fathom-test", size).unwrap();
            for block in [0, 3, 8, 40] {
                disk.write(block * BLOCK_BYTES, &[7; BLOCK_BYTES]);
            }
            put_whole(&mut disk, &image, unused).unwrap();
            assert!(disk.bytes(0, size) == Some(&image.to_vec()), "{unused:?}");
            // Looking at it has touched all of it.
            let mut disk = SharedMemory::new("fathom-test", size).unwrap();
            for block in [0, 3, 8, 40] {
                disk.write(block * BLOCK_BYTES, &[7; BLOCK_BYTES]);
            }
            put_whole(&mut disk, &image, unused).unwrap();
            let held: usize = disk.touched().unwrap().iter().map(|part| part.len()).sum();
            assert_eq!(held, blocks * BLOCK_BYTES, "{unused:?}");
            let changed = changed(&disk, &Image::new(size, Erased::Zeros)).unwrap();
            assert_eq!((changed.digest(), &changed), (image.digest(), &image));
        }
    }
}
