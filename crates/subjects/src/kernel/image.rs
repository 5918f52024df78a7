//! [`Image`]: a disk in memory that is ours: what changed on it can be taken out and put back.
//!
//! The memory is a memfd under a loop device. What the kernel's cache of the device holds is never
//! looked at: it may be stale, or ahead of what was written (the "false discrepancies" of checkers
//! that save and restore through the device). So nothing may be mounted, or the file system must be
//! frozen, while the image is read, and nothing may be mounted while it is written.

use std::cmp::Ordering;
use std::collections::BTreeMap;
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
        let digest = Digest::of(DOMAIN_BLOCK, bytes);
        Page { digest, bytes: bytes.try_into().expect("a whole block") }
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    pub(super) fn bytes(&self) -> &[u8; BLOCK_BYTES] {
        &self.bytes
    }
}

/// The blocks that differ from the first state, in ascending order of their numbers.
pub(super) type Changes = Vec<(u32, Block)>;

/// Keeps the hashes of blocks apart from all others.
const DOMAIN_BLOCK: u64 = 0xb10c;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// A memfd, and what it held in the beginning.
pub(super) struct Image {
    memory: OwnedFd,
    pristine: Vec<Block>,
    /// How it differed from the beginning when it was last read or rewritten. Most blocks are still the same
    /// when it is read again, and are not copied and hashed once more.
    last: Changes,
    chunk: Box<[u8]>,
}

/// A state, asked for its blocks in ascending order.
struct State<'a> {
    pristine: &'a [Block],
    changes: std::slice::Iter<'a, (u32, Block)>,
}

impl<'a> State<'a> {
    fn new(pristine: &'a [Block], changes: &'a [(u32, Block)]) -> State<'a> {
        State { pristine, changes: changes.iter() }
    }

    /// What a block holds if that is not what it held in the beginning.
    fn changed(&mut self, index: usize) -> Option<&'a Block> {
        loop {
            let (at, block) = self.changes.as_slice().first()?;
            match (*at as usize).cmp(&index) {
                Ordering::Less => _ = self.changes.next(),
                Ordering::Equal => return Some(block),
                Ordering::Greater => return None,
            }
        }
    }

    /// What a block holds.
    fn block(&mut self, index: usize) -> &'a Block {
        self.changed(index).unwrap_or(&self.pristine[index])
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
        let mut blocks = std::mem::take(&mut self.pristine);
        blocks.fill(None);
        self.last.clear();
        let mut writer = Writer::new(self.memory.try_clone()?);
        let done = self.scan(|part| {
            if let Part::Data(first, bytes) = part {
                for (index, block) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                    blocks[index] = as_block(block);
                    if blocks[index].is_none() {
                        writer.put(index, &None)?;
                    }
                }
            }
            Ok(())
        });
        let done = done.and_then(|()| writer.flush());
        self.pristine = blocks;
        done
    }

    /// The memory.
    pub(super) fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// Size of the disk.
    pub(super) fn bytes(&self) -> usize {
        self.pristine.len() * BLOCK_BYTES
    }

    /// The blocks that are not as in the beginning, in ascending order.
    pub(super) fn changes(&mut self) -> io::Result<Changes> {
        let (pristine, last) = (std::mem::take(&mut self.pristine), std::mem::take(&mut self.last));
        let mut before = State::new(&pristine, &last);
        let mut changes = Vec::with_capacity(last.len());
        let done = self.scan(|part| {
            match part {
                Part::Data(first, bytes) => {
                    for (index, block) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                        match before.changed(index) {
                            Some(known) if block == content(known) => {
                                changes.push((index as u32, known.clone()));
                            }
                            _ if block == content(&pristine[index]) => {}
                            _ => changes.push((index as u32, as_block(block))),
                        }
                    }
                }
                Part::Hole(start, end) => {
                    let lost = (start..end).filter(|index| pristine[*index].is_some());
                    changes.extend(lost.map(|index| (index as u32, None)));
                }
            }
            Ok(())
        });
        self.pristine = pristine;
        done?;
        self.last.clone_from(&changes);
        Ok(changes)
    }

    /// Makes the disk what it was in the beginning but for `changes`, which are in ascending order.
    /// Only what differs is written; zeros become holes, so that later scans are short.
    pub(super) fn become_changed(&mut self, changes: &[(u32, Block)]) -> io::Result<()> {
        let pristine = std::mem::take(&mut self.pristine);
        let mut target = State::new(&pristine, changes);
        let mut writer = Writer::new(self.memory.try_clone()?);
        let done = self.scan(|part| {
            match part {
                Part::Data(first, bytes) => {
                    for (index, block) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                        let wanted = target.block(index);
                        if block != content(wanted) {
                            writer.put(index, wanted)?;
                        }
                    }
                }
                Part::Hole(start, end) => {
                    for index in start..end {
                        let wanted = target.block(index);
                        if wanted.is_some() {
                            writer.put(index, wanted)?;
                        }
                    }
                }
            }
            Ok(())
        });
        let done = done.and_then(|()| writer.flush());
        self.pristine = pristine;
        done?;
        self.last = changes.to_vec();
        Ok(())
    }

    /// The whole disk, if it were changed like this.
    pub(super) fn whole(&self, changes: &[(u32, Block)]) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes()];
        let all = self.pristine.iter().enumerate();
        let changed = changes.iter().map(|(index, block)| (*index as usize, block));
        for (index, block) in all.chain(changed) {
            // What is zero may have been something else in the beginning.
            let to = &mut bytes[index * BLOCK_BYTES..][..BLOCK_BYTES];
            match block {
                Some(page) => to.copy_from_slice(page.bytes()),
                None if self.pristine[index].is_some() => to.fill(0),
                None => {}
            }
        }
        bytes
    }

    /// A digest of the whole disk, if it were changed like this: a chain over the blocks that hold
    /// something, each with its number.
    pub(super) fn digest(&self, changes: Changes) -> Digest {
        let mut changed: BTreeMap<usize, Block> =
            changes.into_iter().map(|(index, block)| (index as usize, block)).collect();
        let mut digest = Digest::of(0, &[]);
        for (index, pristine) in self.pristine.iter().enumerate() {
            let now = changed.remove(&index);
            if let Some(page) = now.as_ref().unwrap_or(pristine) {
                let contents = Digest::of(index as u64, page.bytes());
                let link = [digest.0.to_le_bytes(), contents.0.to_le_bytes()].concat();
                digest = Digest::of(0, &link);
            }
        }
        digest
    }

    /// How a whole disk differs from the first state.
    pub(super) fn changes_of(&self, whole: &[u8]) -> Changes {
        let blocks = whole.chunks_exact(BLOCK_BYTES).zip(&self.pristine).enumerate();
        let changed = blocks.filter(|(_, (block, first))| *block != content(first));
        changed.map(|(index, (block, _))| (index as u32, as_block(block))).collect()
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
    pub(super) fn now(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes()];
        self.scan(|part| match part {
            Part::Data(first, data) => {
                bytes[first * BLOCK_BYTES..][..data.len()].copy_from_slice(data);
                Ok(())
            }
            Part::Hole(..) => Ok(()),
        })?;
        Ok(bytes)
    }

    /// Goes through the memory in ascending order, without touching large holes. Small ones between data are
    /// read as zeros: asking for them costs more, above all in a guest.
    fn scan(&mut self, mut visit: impl FnMut(Part<'_>) -> io::Result<()>) -> io::Result<()> {
        let size = rustix::fs::fstat(&self.memory)?.st_size as u64;
        let mut at = 0;
        while at < size {
            let start = match seek(&self.memory, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => size,
                start => start?,
            };
            if start > at {
                visit(Part::Hole(at as usize / BLOCK_BYTES, start as usize / BLOCK_BYTES))?;
            }
            let len = ((size - start) as usize).min(CHUNK_BYTES);
            if len > 0 {
                read_exact(&self.memory, &mut self.chunk[..len], start)?;
                visit(Part::Data(start as usize / BLOCK_BYTES, &self.chunk[..len]))?;
            }
            at = start + len as u64;
        }
        Ok(())
    }
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
struct Writer {
    memory: OwnedFd,
    /// Where the collected blocks begin, and how many there are.
    first: usize,
    count: usize,
    /// What they hold; nothing if they are to become a hole.
    pages: Vec<Arc<Page>>,
}

impl Writer {
    fn new(memory: OwnedFd) -> Writer {
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
            fallocate(&self.memory, punch, at, len)?;
        }
        let mut slices: Vec<IoSlice<'_>> =
            self.pages.iter().map(|page| IoSlice::new(page.bytes())).collect();
        let (mut rest, mut at) = (&mut slices[..], at);
        while !rest.is_empty() {
            let written = rustix::io::pwritev(&self.memory, rest, at)?;
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

/// Where a program is; its bare name if it is nowhere.
fn find(program: &str, path: &str) -> PathBuf {
    let candidates = path.split(':').map(|dir| PathBuf::from(dir).join(program));
    candidates.into_iter().find(|file| file.is_file()).unwrap_or_else(|| program.into())
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
        let mut writer = Writer::new(image.memory.try_clone().unwrap());
        writer.put(index, value).unwrap();
        writer.flush().unwrap();
    }

    fn allocated_blocks(image: &Image) -> i64 {
        rustix::fs::fstat(&image.memory).unwrap().st_blocks / 8
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

    #[test]
    fn what_did_not_change_is_not_copied_again() {
        let mut disk = image(100);
        disk.settle().unwrap();
        write(&disk, 3, &block(1));
        write(&disk, 50, &block(2));
        let first = disk.changes().unwrap();
        write(&disk, 3, &block(4));
        write(&disk, 7, &block(5));
        let second = disk.changes().unwrap();
        assert_eq!(second, [(3, block(4)), (7, block(5)), (50, block(2))]);
        let is_shared = |one: &Block, other: &Block| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        };
        assert!(is_shared(&first[1].1, &second[2].1));
        disk.become_changed(&first).unwrap();
        let third = disk.changes().unwrap();
        assert!(third.iter().zip(&first).all(|((_, one), (_, other))| is_shared(one, other)));
        // A block that is again as in the beginning is no change, also if it was one before.
        write(&disk, 3, &None);
        assert_eq!(disk.changes().unwrap(), [(50, block(2))]);
        disk.settle().unwrap();
        assert_eq!(disk.changes().unwrap(), []);
    }

    #[test]
    fn changes_are_those_since_the_beginning_and_bring_it_back() {
        let mut disk = image(1000);
        for index in [0, 5, 500] {
            write(&disk, index, &block(7));
        }
        disk.settle().unwrap();
        assert_eq!(disk.changes().unwrap(), []);
        // Changed, new, gone (zeros and a hole), zeros where nothing was, rewritten with the same.
        write(&disk, 0, &block(8));
        write(&disk, 999, &block(9));
        rustix::io::pwrite(&disk.memory, &ZEROS, 5 * 4096).unwrap();
        write(&disk, 500, &None);
        rustix::io::pwrite(&disk.memory, &ZEROS, 77 * 4096).unwrap();
        let changes = disk.changes().unwrap();
        let expected = [(0, block(8)), (5, None), (500, None), (999, block(9))];
        assert_eq!(changes, expected);
        let whole = disk.whole(&changes);
        assert_eq!(disk.changes_of(&whole), expected);

        disk.become_changed(&[]).unwrap();
        assert_eq!(disk.changes().unwrap(), []);
        write(&disk, 300, &block(3));
        disk.become_changed(&changes).unwrap();
        assert_eq!(disk.changes().unwrap(), expected);
        let mut bytes = vec![0; disk.bytes()];
        read_exact(&disk.memory, &mut bytes, 0).unwrap();
        assert!(bytes == whole);
        disk.become_changed(&[(1, block(1))]).unwrap();
        assert_eq!(disk.changes().unwrap(), [(1, block(1))]);
        assert_eq!(
            allocated_blocks(&disk),
            5,
            "what was put back to zeros takes no memory: 0, 1, 5, 77, 500"
        );
    }
}
