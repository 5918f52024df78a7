//! Executes operations that read, write and move in open files.

use fathom_core::flags::{FallocateMode, Whence};
use fathom_core::{Outcome, Pattern, Slot};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::buffer::BUFFER_BYTES;
use super::call::{self, Answer};
use super::guard::Refusal;
use super::{Applied, Executor, buffer_len};

/// Bytes of a write to a FIFO that does not wait if poll(2) calls the FIFO ready (pipe(7)).
const PIPE_BUF: u64 = libc::PIPE_BUF as u64;

impl Executor {
    pub(super) fn read(&mut self, slot: Slot, len: u64) -> Applied {
        self.check_wait(slot, PollFlags::IN, 0)?;
        let fd = self.fd(slot);
        self.read_with(len, |to| call::read(fd, to))
    }

    pub(super) fn pread(&mut self, slot: Slot, offset: i64, len: u64) -> Applied {
        let fd = self.fd(slot);
        self.read_with(len, |to| call::pread(fd, to, offset))
    }

    pub(super) fn write(&mut self, slot: Slot, data: Pattern) -> Applied {
        self.check_wait(slot, PollFlags::OUT, data.len)?;
        buffer_len(data.len)?;
        Ok(call::write(self.fd(slot), self.buffer.pattern(data)).into())
    }

    pub(super) fn pwrite(&mut self, slot: Slot, offset: i64, data: Pattern) -> Applied {
        buffer_len(data.len)?;
        Ok(call::pwrite(self.fd(slot), self.buffer.pattern(data), offset).into())
    }

    pub(super) fn lseek(&mut self, slot: Slot, offset: i64, whence: Whence) -> Outcome {
        let whence = match whence {
            Whence::Set => libc::SEEK_SET,
            Whence::Cur => libc::SEEK_CUR,
            Whence::End => libc::SEEK_END,
            Whence::Data => libc::SEEK_DATA,
            Whence::Hole => libc::SEEK_HOLE,
        };
        self.end_listing(slot);
        call::lseek(self.fd(slot), offset, whence).into()
    }

    pub(super) fn fallocate(
        &mut self,
        slot: Slot,
        mode: FallocateMode,
        offset: i64,
        len: i64,
    ) -> Outcome {
        call::fallocate(self.fd(slot), mode.bits(), offset, len).into()
    }

    pub(super) fn copy_file_range(
        &mut self,
        from: (Slot, Option<i64>),
        to: (Slot, Option<i64>),
        len: u64,
        flags: u32,
    ) -> Outcome {
        let (mut from_offset, mut to_offset) = (from.1, to.1);
        let (from, to) = (self.fd(from.0), self.fd(to.0));
        call::copy_file_range(from, &mut from_offset, to, &mut to_offset, len, flags).into()
    }

    /// Reads into the buffer. A longer `len` than the buffer is not wrong: most files are shorter.
    /// Only when the buffer gets full the answer would be ours and not the file system's.
    fn read_with(&mut self, len: u64, read: impl FnOnce(&mut [u8]) -> Answer) -> Applied {
        let room = len.min(BUFFER_BYTES as u64) as usize;
        let to = self.buffer.slice(room);
        match read(to) {
            Err(errno) => Ok(Outcome::err(errno)),
            Ok(count) if count == room as u64 && len > count => {
                Err(Refusal::TooLong { len, max: BUFFER_BYTES })
            }
            Ok(count) => Ok(Outcome::data(&to[..count as usize])),
        }
    }

    /// Refuses to wait for a FIFO that is not ready, or that may have no room for `write_bytes`.
    fn check_wait(&self, slot: Slot, event: PollFlags, write_bytes: u64) -> Result<(), Refusal> {
        let Some(open) = self.slots[usize::from(slot)].as_ref().filter(|open| open.may_block)
        else {
            return Ok(());
        };
        let mut ready = [PollFd::new(&open.file, event)];
        match rustix::event::poll(&mut ready, Some(&Timespec::default())) {
            Ok(1) if write_bytes <= PIPE_BUF => Ok(()),
            _ => Err(Refusal::Blocks),
        }
    }
}
