//! Executes operations that open and close files.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use fathom_core::flags::OpenFlags;
use fathom_core::{FsPath, Mode, Outcome, Slot};

use super::guard::last_of_open;
use super::listing::Pieces;
use super::{Applied, Executor, call};

/// The open file of a slot.
pub(super) struct OpenFile {
    pub(super) file: OwnedFd,
    /// Whether it is a FIFO opened without `O_NONBLOCK`: reading and writing could wait for ever.
    pub(super) may_block: bool,
    /// A directory that is read in pieces.
    pub(super) pieces: Pieces,
}

impl OpenFile {
    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Executor {
    pub(super) fn open(
        &mut self,
        slot: Slot,
        path: &FsPath,
        flags: OpenFlags,
        mode: Mode,
    ) -> Applied {
        let c_path = self.guard.within(path, last_of_open(flags))?;
        self.guard.check_open(path, c_path.c(), flags)?;
        self.slots[usize::from(slot)] = None;
        match call::open(c_path.c(), host_flags(flags), mode.0) {
            Ok(file) => {
                let may_block =
                    !flags.contains(OpenFlags::O_NONBLOCK) && self.guard.is_fifo(file.as_raw_fd());
                self.slots[usize::from(slot)] =
                    Some(OpenFile { file, may_block, pieces: Pieces::default() });
                Ok(Outcome::ok(0))
            }
            Err(errno) => Ok(Outcome::err(errno)),
        }
    }

    pub(super) fn close(&mut self, slot: Slot) -> Outcome {
        call::close(self.slots[usize::from(slot)].take().map(|open| open.file)).into()
    }
}

/// Converts flags to those of this architecture. The core's values are those of x86-64; elsewhere
/// four differ (the kernel's `arch/*/include/uapi/asm/fcntl.h`).
fn host_flags(flags: OpenFlags) -> i32 {
    const VARYING: [(OpenFlags, i32); 4] = [
        (OpenFlags::O_DIRECT, libc::O_DIRECT),
        (OpenFlags::O_DIRECTORY, libc::O_DIRECTORY),
        (OpenFlags::O_NOFOLLOW, libc::O_NOFOLLOW),
        // libc says 0 on 64-bit systems, where the kernel sets it by itself.
        (OpenFlags::O_LARGEFILE, 0),
    ];
    let mut host = flags;
    for (flag, _) in VARYING {
        host.remove(flag);
    }
    VARYING
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .fold(host.bits() as i32, |bits, (_, own)| bits | own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_core_become_flags_of_the_host() {
        let flags =
            OpenFlags::O_TMPFILE | OpenFlags::O_RDWR | OpenFlags::O_DIRECT | OpenFlags::O_SYNC;
        let host = libc::O_TMPFILE | libc::O_RDWR | libc::O_DIRECT | libc::O_SYNC;
        assert_eq!(host_flags(flags), host);
        assert_eq!(
            host_flags(OpenFlags::O_NOFOLLOW | OpenFlags::O_PATH),
            libc::O_NOFOLLOW | libc::O_PATH
        );
        assert_eq!(host_flags(OpenFlags::from_bits_retain(1 << 30)), 1 << 30);
    }
}
