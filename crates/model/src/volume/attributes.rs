//! Operations on mode, owner, times and extended attributes.

use fathom_core::flags::XattrFlags;
use fathom_core::{Errno, FsBytes, Kind, Mode, Stamp};

use super::inode::Xattrs;
use super::state::State;
use super::{Ino, ROOT, SetTime, Volume, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use crate::feature::Feature;
use crate::mutant::Mutant;
use crate::quirks::Quirks;

impl Volume {
    /// Sets the permission bits.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn chmod(&mut self, ino: Ino, mode: Mode) -> Result<(), Errno> {
        let inode = self.state.get(ino)?;
        if self.state.lacks(Feature::Modes) {
            return Ok(());
        }
        let mut bits = mode.perm();
        if self.state.mutant(Mutant::ChmodDropsSetuid) {
            bits &= !Mode::S_ISUID;
        }
        if self.state.mutant(Mutant::SetuidSurvives) && !inode.is_dir() {
            bits |= inode.mode.0 & Mode::S_ISUID;
        }
        let (state, now) = self.edit();
        state.update(ino, |inode| {
            inode.mode = Mode(bits);
            inode.times.ctime = now;
        });
        Ok(())
    }

    /// Drops setuid, and setgid of a group-executable file, as after a write by somebody without
    /// `CAP_FSETID` (`setattr_should_drop_suidgid` in `fs/attr.c`).
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn kill_privileges(&mut self, ino: Ino) -> Result<(), Errno> {
        let inode = self.state.get(ino)?;
        let mut bits = inode.mode.0 & !Mode::S_ISUID;
        if bits & Mode::S_IXGRP != 0 {
            bits &= !Mode::S_ISGID;
        }
        if inode.is_dir() || Mode(bits) == inode.mode {
            return Ok(());
        }
        self.chmod(ino, Mode(bits))
    }

    /// Sets owner and group and nothing else (no clearing of setuid: see
    /// [`Volume::kill_privileges`]).
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn chown(&mut self, ino: Ino, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        self.state.get(ino)?;
        if self.state.lacks(Feature::Owners) {
            return Ok(());
        }
        let (state, now) = self.edit();
        let uid = if state.mutant(Mutant::ChgrpChangesOwner) { uid.or(gid) } else { uid };
        state.update(ino, |inode| {
            inode.uid = uid.unwrap_or(inode.uid);
            inode.gid = gid.unwrap_or(inode.gid);
            inode.times.ctime = now;
        });
        Ok(())
    }

    /// Sets times; `None` leaves one as it is. The change time becomes the present.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn set_times(
        &mut self,
        ino: Ino,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    ) -> Result<(), Errno> {
        self.state.get(ino)?;
        if atime.is_none() && mtime.is_none() {
            return Ok(());
        }
        let quirks = &self.state.config.quirks;
        let is_link = self.attr(ino)?.kind == Kind::Symlink;
        let is_kept =
            (ino != ROOT || quirks.root_times_kept) && (!is_link || quirks.link_times_kept);
        let grain = quirks.time_grain_nsec;
        let (state, now) = self.edit();
        let stamp = |time| match time {
            SetTime::Now => now,
            // Nobody knows what it shows instead.
            SetTime::At { .. } if !is_kept => now,
            SetTime::At { sec, nsec } => cut(sec, nsec, grain),
        };
        state.touch(ino, |inode| {
            inode.times.atime = atime.map_or(inode.times.atime, stamp);
            inode.times.mtime = mtime.map_or(inode.times.mtime, stamp);
            inode.times.ctime = now;
        });
        Ok(())
    }

    /// Updates the access time; a stale number is ignored.
    pub fn note_access(&mut self, ino: Ino) {
        if self.state.get(ino).is_ok() {
            let (state, now) = self.edit();
            state.touch(ino, |inode| inode.times.atime = now);
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EINVAL` (flags), `ERANGE` (name), `E2BIG` (value), `EEXIST`, `ENODATA`, `ENOSPC`.
    pub fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let state = &*self.state;
        let xattrs = &state.get(ino)?.xattrs;
        state.check_xattrs()?;
        if flags.bits() & !(XattrFlags::XATTR_CREATE | XattrFlags::XATTR_REPLACE).bits() != 0 {
            return Err(Errno::EINVAL);
        }
        check_xattr_name(name)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        let old = xattrs.get(name);
        let must_exist = flags.contains(XattrFlags::XATTR_REPLACE);
        if old.is_some() && flags.contains(XattrFlags::XATTR_CREATE) {
            return Err(Errno::EEXIST);
        }
        if old.is_none() && must_exist && !state.mutant(Mutant::XattrReplaceCreates) {
            return Err(Errno::ENODATA);
        }
        if !state.has_room_for_xattr(xattrs, name, value.len()) {
            return Err(Errno::ENOSPC);
        }
        let mut value = value.to_vec();
        if let Some(tail) = old.and_then(|old| old.as_bytes().get(value.len()..))
            && state.mutant(Mutant::XattrTail)
        {
            value.extend_from_slice(tail);
        }
        let (state, now) = self.edit();
        state.update(ino, |inode| {
            inode.xattrs.set(name, &value);
            inode.times.ctime = now;
        });
        Ok(())
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ERANGE` (name), `ENODATA`.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<FsBytes, Errno> {
        let xattrs = &self.state.get(ino)?.xattrs;
        self.state.check_xattrs()?;
        check_xattr_name(name)?;
        xattrs.get(name).cloned().ok_or(Errno::ENODATA)
    }

    /// The names of all extended attributes, sorted.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<FsBytes>, Errno> {
        let xattrs = &self.state.get(ino)?.xattrs;
        self.state.check_xattrs()?;
        Ok(xattrs.list().iter().map(|xattr| xattr.name.clone()).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ERANGE` (name), `ENODATA`.
    pub fn removexattr(&mut self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        self.getxattr(ino, name)?;
        let (state, now) = self.edit();
        state.update(ino, |inode| {
            inode.xattrs.remove(name);
            inode.times.ctime = now;
        });
        Ok(())
    }
}

/// A time as it is kept in steps of `grain` nanoseconds: the last one that is not later.
fn cut(sec: i64, nsec: u32, grain: u64) -> Stamp {
    let second = 1_000_000_000;
    match grain {
        0 | 1 => Stamp::At { sec, nsec },
        grain if grain < second => Stamp::At { sec, nsec: nsec - nsec % grain as u32 },
        grain => Stamp::At { sec: sec - sec.rem_euclid((grain / second) as i64), nsec: 0 },
    }
}

impl State {
    /// Whether `xattrs` can have the attribute `name` with a value of this length: by the format's
    /// limits ([`Quirks`]) and by the free blocks.
    fn has_room_for_xattr(&self, xattrs: &Xattrs, name: &[u8], value_bytes: usize) -> bool {
        let quirks = &self.config.quirks;
        let mut cost = Quirks::xattr_cost(name, value_bytes);
        let mut bytes = name.len() + value_bytes;
        if bytes > quirks.xattr_bytes_max as usize {
            return false;
        }
        for other in xattrs.list().iter().filter(|other| other.name.as_bytes() != name) {
            let (name, value) = (other.name.as_bytes(), other.value.as_bytes());
            cost += Quirks::xattr_cost(name, value.len());
            bytes += name.len() + value.len();
        }
        let block_bytes = u64::from(self.config.block_bytes);
        let blocks_before = xattrs.bytes().div_ceil(block_bytes);
        cost <= quirks.xattr_total_bytes_max as usize
            && (bytes as u64).div_ceil(block_bytes) <= blocks_before + self.blocks_free()
    }
}

fn check_xattr_name(name: &[u8]) -> Result<(), Errno> {
    if (1..=XATTR_NAME_BYTES_MAX).contains(&name.len()) { Ok(()) } else { Err(Errno::ERANGE) }
}
