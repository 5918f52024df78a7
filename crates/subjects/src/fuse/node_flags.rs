//! The flags of chattr(1): kept with the inode, and obeyed.
//!
//! The kernel passes `FS_IOC_SETFLAGS` and `FS_IOC_FSSETXATTR` on as ioctls, after it has checked who
//! may set what (vfs_fileattr_set, fs/file_attr.c), but knows nothing of the flags afterwards. So every
//! request that they forbid is refused here. They are an extended attribute of a class that programs
//! cannot name, so that snapshots and files with states have them too.

use bitflags::bitflags;
use fathom_core::Errno;
use fathom_core::flags::XattrFlags;
use fathom_model::{Ino, Volume};

/// The attribute that holds the flags.
pub(super) const NAME: &[u8] = b"system.reffs.flags";

bitflags! {
    /// Flags of an inode, with the values of `FS_IOC_GETFLAGS` (include/uapi/linux/fs.h).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct NodeFlags: u32 {
        const SYNC = 0x08;
        const IMMUTABLE = 0x10;
        const APPEND = 0x20;
        const NODUMP = 0x40;
        const NOATIME = 0x80;
    }
}

/// The ioctl numbers, as the kernel passes them on.
mod number {
    pub(super) const GET: u32 = 0x8008_6601;
    pub(super) const SET: u32 = 0x4008_6602;
    pub(super) const GET_EXTENDED: u32 = 0x801c_581f;
    pub(super) const SET_EXTENDED: u32 = 0x401c_5820;
}

/// The bytes of `struct fsxattr`, of which the first four are flags.
const EXTENDED_BYTES: usize = 28;

/// Each flag beside its value in `struct fsxattr`.
const EXTENDED: [(NodeFlags, u32); 5] = [
    (NodeFlags::IMMUTABLE, 0x08),
    (NodeFlags::APPEND, 0x10),
    (NodeFlags::SYNC, 0x20),
    (NodeFlags::NOATIME, 0x40),
    (NodeFlags::NODUMP, 0x80),
];

/// The flags of an inode; none for one that is gone.
pub(super) fn of(volume: &Volume, ino: Ino) -> NodeFlags {
    let value = volume.getxattr(ino, NAME).ok();
    let bits =
        value.and_then(|value| value.as_bytes().try_into().ok()).map_or(0, u32::from_le_bytes);
    NodeFlags::from_bits_truncate(bits)
}

fn set(volume: &mut Volume, ino: Ino, bits: u32) -> Result<(), Errno> {
    let flags = NodeFlags::from_bits(bits).ok_or(Errno::EOPNOTSUPP)?;
    if flags == of(volume, ino) {
        return Ok(());
    }
    match flags.is_empty() {
        true => volume.removexattr(ino, NAME),
        false => volume.setxattr(ino, NAME, &flags.bits().to_le_bytes(), XattrFlags::empty()),
    }
}

/// Answers an ioctl on flags with the bytes for the caller; `None` if it is about something else.
pub(super) fn ioctl(
    volume: &mut Volume,
    ino: Ino,
    command: u32,
    argument: &[u8],
) -> Option<Result<Vec<u8>, Errno>> {
    let word = argument.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    Some(match command {
        number::GET => Ok(of(volume, ino).bits().to_le_bytes().to_vec()),
        number::GET_EXTENDED => {
            let flags = of(volume, ino);
            let set = EXTENDED.iter().filter(|(flag, _)| flags.contains(*flag));
            let mut answer = set.map(|(_, value)| value).sum::<u32>().to_le_bytes().to_vec();
            answer.resize(EXTENDED_BYTES, 0);
            Ok(answer)
        }
        number::SET => {
            word.ok_or(Errno::EINVAL).and_then(|bits| set(volume, ino, bits)).map(|()| Vec::new())
        }
        number::SET_EXTENDED => word.ok_or(Errno::EINVAL).and_then(|extended| {
            let known: u32 = EXTENDED.iter().map(|(_, value)| value).sum();
            let chosen = EXTENDED.iter().filter(|(_, value)| extended & value != 0);
            let flags = chosen.fold(NodeFlags::empty(), |all, (flag, _)| all | *flag);
            if extended & !known != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            set(volume, ino, flags.bits()).map(|()| Vec::new())
        }),
        _ => return None,
    })
}

/// What a request wants to do with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Change or remove the inode, its attributes, its contents, or a name in it.
    Change,
    /// Add to it: a name to a directory, bytes to the end of a file.
    Add,
}

/// Refuses what the flags of an inode forbid, to everybody.
pub(super) fn check(volume: &Volume, ino: Ino, wish: Wish) -> Result<(), Errno> {
    let flags = of(volume, ino);
    let refused = flags.contains(NodeFlags::IMMUTABLE)
        || (wish == Wish::Change && flags.contains(NodeFlags::APPEND));
    if refused { Err(Errno::EPERM) } else { Ok(()) }
}

/// Refuses to open a file in a way that its flags forbid.
pub(super) fn check_open(volume: &Volume, ino: Ino, flags: i32) -> Result<(), Errno> {
    let truncates = flags & libc::O_TRUNC != 0;
    if flags & libc::O_ACCMODE == libc::O_RDONLY && !truncates {
        return Ok(());
    }
    let adds = flags & libc::O_APPEND != 0 && !truncates;
    check(volume, ino, if adds { Wish::Add } else { Wish::Change })
}
