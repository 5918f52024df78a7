//! The caller of a request, and the effect of a caller on setuid and setgid bits.

use std::fs;
use std::sync::Arc;

use fathom_core::{Errno, Mode};
use fathom_model::{Identity, Ino, Volume};
use fuser::Request;

/// Reads the caller as a request names it: user and group. Permissions were checked by the kernel
/// (`default_permissions`), which is where the other groups of a process matter.
pub(super) fn of(req: &Request) -> Identity {
    Identity { uid: req.uid(), gid: req.gid(), groups: Arc::from([]) }
}

/// Whether the caller has `CAP_FSETID`, as far as a request shows it.
pub(super) fn is_privileged(req: &Request) -> bool {
    req.uid() == 0
}

/// Drops setuid and setgid bits after a change of contents, unless the caller is privileged.
pub(super) fn kill_privileges_unless_privileged(
    volume: &mut Volume,
    req: &Request,
    ino: Ino,
) -> Result<(), Errno> {
    if is_privileged(req) { Ok(()) } else { kill_privileges(volume, req, ino) }
}

/// Drops setuid; and setgid if the group may execute or the caller is not of the group
/// (setattr_should_drop_sgid, fs/attr.c).
pub(super) fn kill_privileges(volume: &mut Volume, req: &Request, ino: Ino) -> Result<(), Errno> {
    if volume.attr(ino)?.mode.0 & (Mode::S_ISUID | Mode::S_ISGID) == 0 {
        return Ok(());
    }
    volume.kill_privileges(ino)?;
    let attr = volume.attr(ino)?;
    if attr.mode.0 & Mode::S_ISGID != 0 && !keeps_setgid(req, attr.gid) {
        volume.chmod(ino, Mode(attr.mode.0 & !Mode::S_ISGID))?;
    }
    Ok(())
}

/// Whether the setgid bit of a file of this group stays when the caller changes its mode.
pub(super) fn keeps_setgid(req: &Request, gid: u32) -> bool {
    is_privileged(req) || in_group(req, gid)
}

/// Whether `gid` is one of the caller's groups. A request does not carry the supplementary groups;
/// as libfuse does (`fuse_req_getgroups`), they are read from /proc.
fn in_group(req: &Request, gid: u32) -> bool {
    if req.gid() == gid {
        return true;
    }
    let status = fs::read_to_string(format!("/proc/{}/status", req.pid())).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().any(|group| group.parse() == Ok(gid))
}
