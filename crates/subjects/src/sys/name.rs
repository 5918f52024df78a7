//! Executes operations that make, remove and move names.

use std::ffi::CString;

use fathom_core::flags::RenameFlags;
use fathom_core::{FsBytes, FsPath, Mode, Outcome, Slot};

use super::guard::Last;
use super::path::CPath;
use super::{Applied, Executor, call};

/// Greatest length of the buffer of readlink(2). No symbolic link is longer than a path (PATH_MAX
/// of the kernel's `limits.h`), so a longer buffer than this changes nothing.
const READLINK_BYTES_MAX: i32 = 4096;

impl Executor {
    pub(super) fn mkdir(&mut self, path: &FsPath, mode: Mode) -> Applied {
        let path = self.guard.within(path, Last::Keep)?;
        Ok(call::mkdir(path.c(), mode.0).into())
    }

    pub(super) fn rmdir(&mut self, path: &FsPath) -> Applied {
        let path = self.guard.within(path, Last::Keep)?;
        Ok(call::unlink(path.c(), libc::AT_REMOVEDIR).into())
    }

    pub(super) fn unlink(&mut self, path: &FsPath) -> Applied {
        let path = self.guard.within(path, Last::Keep)?;
        Ok(call::unlink(path.c(), 0).into())
    }

    pub(super) fn rename(&mut self, from: &FsPath, to: &FsPath, flags: RenameFlags) -> Applied {
        let from = self.guard.within(from, Last::Keep)?;
        let to = self.guard.within(to, Last::Keep)?;
        self.guard.note_rename(flags);
        Ok(call::rename(from.c(), to.c(), flags.bits()).into())
    }

    pub(super) fn link(&mut self, from: &FsPath, to: &FsPath, follow: bool) -> Applied {
        let (last, flags) =
            if follow { (Last::Follow, libc::AT_SYMLINK_FOLLOW) } else { (Last::Keep, 0) };
        let from = self.guard.within(from, last)?;
        let to = self.guard.within(to, Last::Keep)?;
        Ok(call::link(from.c(), to.c(), flags).into())
    }

    /// By the descriptor, or by its entry in /proc. An empty slot is descriptor -1, which has none.
    pub(super) fn link_slot(&mut self, slot: Slot, to: &FsPath, by_proc: bool) -> Applied {
        let to = self.guard.within(to, Last::Keep)?;
        let fd = self.fd(slot);
        if by_proc {
            let from = CString::new(format!("/proc/self/fd/{fd}")).expect("it has no zero byte");
            return Ok(call::link(&from, to.c(), libc::AT_SYMLINK_FOLLOW).into());
        }
        Ok(call::link_fd(fd, to.c()).into())
    }

    pub(super) fn symlink(&mut self, target: &FsBytes, path: &FsPath) -> Applied {
        let path = self.guard.within(path, Last::Keep)?;
        let c_target = CPath::new(target)?;
        self.guard.note_symlink(target);
        Ok(call::symlink(c_target.c(), path.c()).into())
    }

    pub(super) fn readlink(&mut self, path: &FsPath, len: u64) -> Applied {
        let path = self.guard.within(path, Last::Keep)?;
        // The kernel's type of the length is int, and what is not positive is EINVAL.
        let len = (len as i32).clamp(0, READLINK_BYTES_MAX);
        let to = self.buffer.slice(len as usize);
        Ok(match call::readlink(libc::AT_FDCWD, path.c(), to) {
            Ok(count) => Outcome::data(&to[..count as usize]),
            Err(errno) => Outcome::err(errno),
        })
    }

    pub(super) fn mknod(&mut self, path: &FsPath, mode: Mode, dev: (u32, u32)) -> Applied {
        let path = self.guard.within(path, Last::Keep)?;
        self.guard.note_node(mode);
        Ok(call::mknod(path.c(), mode.0, device_word(dev)).into())
    }
}

/// Encodes a device number as mknod(2) takes it: 12 bits of major and 20 of minor number
/// (`new_decode_dev` in the kernel's `include/linux/kdev_t.h`). Higher bits cannot be encoded.
fn device_word((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xfff00) << 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_packed_as_the_kernel_unpacks_them() {
        assert_eq!(device_word((1, 3)), 0x103);
        assert_eq!(u64::from(device_word((4095, 0xfffff))), libc::makedev(4095, 0xfffff));
        assert_eq!(u64::from(device_word((60, 300))), libc::makedev(60, 300));
    }
}
