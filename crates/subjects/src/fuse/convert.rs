//! Converts between the words of the model and those of the FUSE protocol.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fathom_core::{Errno, Kind, Stamp};
use fathom_model::{Attr, NewNode, SetTime};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

use super::clock::Clock;

/// Converts an error to fuser's type.
pub(super) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(i32::from(errno.0))
}

/// Converts a file type to fuser's type.
pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::Char => FileType::CharDevice,
        Kind::Block => FileType::BlockDevice,
    }
}

/// Converts attributes to fuser's type.
pub(super) fn file_attr(attr: &Attr, clock: &Clock, block_bytes: u32) -> FileAttr {
    let time = |stamp| match stamp {
        Stamp::Tick(tick) => {
            let (sec, nsec) = clock.time_of(tick);
            system_time(sec, nsec)
        }
        Stamp::At { sec, nsec } => system_time(sec, nsec),
    };
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks_512,
        atime: time(attr.times.atime),
        mtime: time(attr.times.mtime),
        ctime: time(attr.times.ctime),
        crtime: UNIX_EPOCH, // macOS only
        kind: file_type(attr.kind),
        perm: attr.mode.perm() as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: encode_device(attr.rdev),
        blksize: block_bytes,
        flags: 0, // macOS only
    }
}

/// Reads the node that `mknod` is to make; `None` for a mode that names no such type.
pub(super) fn new_node(mode: u32, rdev: u32) -> Option<NewNode> {
    let (major, minor) = decode_device(rdev);
    Some(match Kind::of_mode(mode)? {
        Kind::File => NewNode::File,
        Kind::Fifo => NewNode::Fifo,
        Kind::Socket => NewNode::Socket,
        Kind::Char => NewNode::Char(major, minor),
        Kind::Block => NewNode::Block(major, minor),
        Kind::Dir | Kind::Symlink => return None,
    })
}

/// Converts a time argument of `setattr`.
pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    let TimeOrNow::SpecificTime(time) = time else { return SetTime::Now };
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => SetTime::At { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        // fuser 0.18 turns (-5 s, 7 ns), which means 7 ns *after* -5 s, into 5 s and 7 ns *before*
        // the epoch (its src/time.rs): so both parts are here as they came, but for the sign.
        Err(before) => {
            let before = before.duration();
            SetTime::At { sec: -(before.as_secs() as i64), nsec: before.subsec_nanos() }
        }
    }
}

fn system_time(sec: i64, nsec: u32) -> SystemTime {
    let whole = Duration::from_secs(sec.unsigned_abs());
    let start = if sec < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    start + Duration::from_nanos(u64::from(nsec))
}

/// Encodes a device number like `new_encode_dev` of the kernel (include/linux/kdev_t.h), the form
/// of the FUSE protocol.
fn encode_device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Decodes a device number like `new_decode_dev` of the kernel.
fn decode_device(rdev: u32) -> (u32, u32) {
    ((rdev & 0xf_ff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_round_trip() {
        for device in [(0, 0), (1, 3), (8, 255), (8, 256), (4095, 1_048_575)] {
            assert_eq!(decode_device(encode_device(device)), device);
        }
        assert_eq!(encode_device((1, 3)), 0x103);
    }

    #[test]
    fn times_before_the_epoch_are_exact() {
        // This is how fuser's system_time_from_time converts (-5, 7).
        let received = UNIX_EPOCH - Duration::new(5, 7);
        assert_eq!(set_time(TimeOrNow::SpecificTime(received)), SetTime::At { sec: -5, nsec: 7 });
        // This is what fuser's time_from_system_time takes for (-5, 7).
        assert_eq!(system_time(-5, 7), UNIX_EPOCH - Duration::new(4, 999_999_993));
    }
}
