//! Changes of attributes: one request, `setattr`, stands for many calls, and does not say all of
//! them.

use fathom_core::{Errno, Kind, Mode, Stamp};
use fathom_model::{Attr, Ino, SetTime, Volume};
use fuser::{Request, TimeOrNow};

use super::caller;
use super::convert::set_time;
use super::node_flags::Wish;

/// The arguments of `setattr` that Linux uses.
pub(super) struct Change {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
    /// Whether the file is named by a descriptor.
    pub(super) has_handle: bool,
}

impl Change {
    /// What the flags of the inode must allow: of an append-only file only the present can be set as
    /// its times (may_setattr, fs/attr.c).
    pub(super) fn wish(&self) -> Wish {
        let is_now = |time: &Option<TimeOrNow>| !matches!(time, Some(TimeOrNow::SpecificTime(_)));
        let only_times = self.mode.is_none()
            && self.uid.is_none()
            && self.gid.is_none()
            && self.size.is_none()
            && is_now(&self.atime)
            && is_now(&self.mtime);
        if only_times { Wish::Add } else { Wish::Change }
    }

    /// Makes the change. The size, which alone can fail, comes first.
    pub(super) fn apply(&self, volume: &mut Volume, req: &Request, ino: Ino) -> Result<(), Errno> {
        let is_dir = volume.attr(ino)?.kind == Kind::Dir;
        if let Some(size) = self.size {
            // With a handle it is ftruncate(2), which sets the times in any case (do_ftruncate,
            // fs/open.c, asks for ATTR_MTIME), but leaves that to us (update_mtime, fs/fuse/dir.c).
            truncate(volume, req, ino, size, self.has_handle)?;
        }
        if self.uid.is_some() || self.gid.is_some() {
            // FATTR_KILL_SUIDGID, which fuser does not hand on: the kernel sets it for every change
            // of owner except a directory's (fuse_do_setattr, fs/fuse/dir.c). What it makes of
            // `chown` to neither user nor group, a request without any change, is ignored: it comes
            // from whoever asks, without a check of permissions.
            if !is_dir {
                caller::kill_privileges(volume, req, ino)?;
            }
            volume.chown(ino, self.uid, self.gid)?;
        }
        if let Some(mode) = self.mode {
            volume.chmod(ino, Mode(mode & 0o7777))?;
        }
        if self.atime.is_some() || self.mtime.is_some() {
            volume.set_times(ino, self.atime.map(set_time), self.mtime.map(set_time))?;
        }
        Ok(())
    }

    /// Makes the change to an inode of which only the attributes are left, see
    /// [`super::state::State`]. It is not an open file: of those the size could change too.
    pub(super) fn apply_to_removed(&self, attr: &mut Attr, now: Stamp) {
        let stamp = |time: TimeOrNow| match set_time(time) {
            SetTime::Now => now,
            SetTime::At { sec, nsec } => Stamp::At { sec, nsec },
        };
        if attr.kind != Kind::Dir && (self.uid.is_some() || self.gid.is_some()) {
            attr.mode.0 &= !(Mode::S_ISUID | Mode::S_ISGID);
        }
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        attr.mode = self.mode.map_or(attr.mode, |mode| Mode(mode & 0o7777));
        attr.times.atime = self.atime.map_or(attr.times.atime, stamp);
        attr.times.mtime = self.mtime.map_or(attr.times.mtime, stamp);
        attr.times.ctime = now;
    }
}

/// Truncates, and updates setuid bits, and times even if the size stays.
pub(super) fn truncate(
    volume: &mut Volume,
    req: &Request,
    ino: Ino,
    size: u64,
    sets_times: bool,
) -> Result<(), Errno> {
    let changes = volume.attr(ino)?.size != size;
    volume.truncate(ino, size)?;
    if sets_times && !changes {
        volume.set_times(ino, None, Some(SetTime::Now))?;
    }
    caller::kill_privileges_unless_privileged(volume, req, ino)
}
