//! Opens a FUSE connection and mounts it: directly as root, through fusermount3 as an ordinary
//! user.

use std::fs;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno as OsErrno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::error::MountError;
use super::options::Options;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// A connection to the kernel.
pub(super) struct Connection {
    /// The device, on which requests arrive.
    pub(super) device: OwnedFd,
    /// Whether users other than ours may use the mount.
    pub(super) allow_other: bool,
}

/// Checks that something can be mounted on `point`, and makes it absolute. What a directory has in it
/// would be out of reach: covering it must be asked for.
pub(super) fn check_point(point: &Path, options: &Options) -> Result<PathBuf, MountError> {
    let point = point.to_owned();
    let stat = rustix::fs::statx(CWD, &point, AtFlags::empty(), StatxFlags::TYPE);
    let stat = match stat {
        Ok(stat) => stat,
        Err(OsErrno::NOENT) => return Err(MountError::NotFound { point }),
        Err(OsErrno::NOTDIR) => return Err(MountError::NotADirectory { point }),
        Err(OsErrno::NOTCONN) => return Err(MountError::Stale { point }),
        Err(e) => return Err(MountError::Point { point, source: e.into() }),
    };
    if u32::from(stat.stx_mode) & libc::S_IFMT != libc::S_IFDIR {
        return Err(MountError::NotADirectory { point });
    }
    let fs = rustix::fs::statfs(&point).map_err(MountError::os("statfs"))?;
    let is_fuse = fs.f_type == libc::FUSE_SUPER_MAGIC;
    if is_fuse && stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(MountError::Busy { point });
    }
    // A directory that may not be read is refused by the mount itself, or fine.
    let has_something = fs::read_dir(&point).is_ok_and(|mut names| names.next().is_some());
    if has_something && !options.over_files {
        return Err(MountError::NotEmpty { point });
    }
    match point.canonicalize() {
        Ok(absolute) => Ok(absolute),
        Err(source) => Err(MountError::Point { point, source }),
    }
}

/// Mounts on `point`.
pub(super) fn attach(point: &Path, options: &Options) -> Result<Connection, MountError> {
    check_device()?;
    if !rustix::process::geteuid().is_root() {
        return ask_helper(point, options);
    }
    let (connection, mount) = match mount_detached(options) {
        // Root without CAP_SYS_ADMIN, in a container say.
        Err(MountError::Os { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            return ask_helper(point, options);
        }
        result => result?,
    };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    match move_mount(&mount, "", CWD, point, flags) {
        Ok(()) => Ok(connection),
        Err(OsErrno::BUSY) => Err(MountError::Busy { point: point.to_owned() }),
        Err(e) => Err(MountError::Os { call: "move_mount", source: e.into() }),
    }
}

/// Mounts nowhere: the file system lives as long as the returned root directory or a file in it is
/// open. Nothing can see it and nothing stays behind. For root only.
pub(super) fn mount_detached(options: &Options) -> Result<(Connection, OwnedFd), MountError> {
    check_device()?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = match rustix::fs::open(DEVICE, flags, Mode::empty()) {
        Ok(device) => device,
        Err(OsErrno::ACCESS | OsErrno::PERM) => return Err(MountError::DeviceDenied),
        Err(e) => return Err(MountError::Os { call: "open /dev/fuse", source: e.into() }),
    };
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).map_err(MountError::os("fsopen"))?;
    let settings = [
        ("source", options.source.clone()),
        ("subtype", options.subtype.clone()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", format!("{:o}", libc::S_IFDIR)),
        ("user_id", rustix::process::getuid().as_raw().to_string()),
        ("group_id", rustix::process::getgid().as_raw().to_string()),
    ];
    for (key, value) in settings.into_iter().filter(|(_, value)| !value.is_empty()) {
        fsconfig_set_string(&context, key, value).map_err(MountError::os("fsconfig"))?;
    }
    for flag in ["default_permissions", "allow_other"] {
        fsconfig_set_flag(&context, flag).map_err(MountError::os("fsconfig"))?;
    }
    if options.read_only {
        fsconfig_set_flag(&context, "ro").map_err(MountError::os("fsconfig"))?;
    }
    fsconfig_create(&context).map_err(MountError::os("fsconfig: create"))?;
    // Neither nosuid nor nodev unless asked for: only root can get here, and makes what it likes on
    // any file system.
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, options.mount_flags())
        .map_err(MountError::os("fsmount"))?;
    Ok((Connection { device, allow_other: true }, mount))
}

/// Gives the mount on `point` other options: those that are the kernel's. For root only.
///
/// # Errors
/// If nothing is mounted there, or the kernel refuses.
pub fn remount(point: &Path, options: &Options) -> Result<(), MountError> {
    rustix::mount::mount_remount(point, options.remount_flags(), c"")
        .map_err(MountError::os("mount: remount"))
}

fn check_device() -> Result<(), MountError> {
    if fs::exists(DEVICE).unwrap_or(true) { Ok(()) } else { Err(MountError::NoDevice) }
}

/// Lets fusermount3, which is setuid root, mount on `point`: it sends the device through the socket
/// that it has as standard input (the protocol of libfuse's lib/mount_util.c).
fn ask_helper(point: &Path, options: &Options) -> Result<Connection, MountError> {
    let (ours, theirs) = UnixStream::pair().map_err(MountError::os("socketpair"))?;
    let mut command = Command::new(find_helper().ok_or(MountError::NoHelper)?);
    command
        .args(["-o", &options.helper_words(), "--"])
        .arg(point)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(MountError::os("running fusermount3"))?;
    drop(command); // and with it the other end of the socket, so that a failure ends the wait
    let device = receive_descriptor(&ours).map_err(MountError::os("recvmsg"))?;
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut message);
    }
    child.wait().map_err(MountError::os("waiting for fusermount3"))?;
    match device {
        Some(device) => Ok(Connection { device, allow_other: options.allow_other }),
        None if message.contains("failed to open /dev/fuse") => Err(MountError::DeviceDenied),
        None => Err(MountError::Helper { message: message.trim().to_owned() }),
    }
}

fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    let device = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(device)
}

/// Finds fusermount3 on the path and in the usual directories.
pub(super) fn find_helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let places = std::env::split_paths(&path).chain(usual);
    places.map(|dir| dir.join(HELPER)).find(|helper| helper.is_file())
}

/// The result of an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detached {
    /// The file system is gone.
    Gone,
    /// It has left its place, but somebody uses it, and it lives as long as that lasts.
    InUse,
}

/// Unmounts what is on `point`.
pub(super) fn detach(point: &Path) -> Result<Detached, MountError> {
    match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Detached::Gone),
        Err(OsErrno::BUSY) => rustix::mount::unmount(point, UnmountFlags::DETACH)
            .map(|()| Detached::InUse)
            .map_err(MountError::os("umount")),
        // EPERM: not root. EINVAL: not mounted any more; somebody else unmounted it.
        Err(OsErrno::PERM) => detach_with_helper(point),
        Err(OsErrno::INVAL) => Ok(Detached::Gone),
        Err(e) => Err(MountError::Os { call: "umount", source: e.into() }),
    }
}

fn detach_with_helper(point: &Path) -> Result<Detached, MountError> {
    let helper = find_helper().ok_or(MountError::NoHelper)?;
    let run = |lazy: &[&str]| {
        let mut command = Command::new(&helper);
        command.arg("-u").args(lazy).arg("--").arg(point).stdin(Stdio::null());
        command.output().map_err(MountError::os("running fusermount3"))
    };
    if run(&[])?.status.success() {
        return Ok(Detached::Gone);
    }
    let lazily = run(&["-z"])?;
    if lazily.status.success() {
        return Ok(Detached::InUse);
    }
    let message = String::from_utf8_lossy(&lazily.stderr);
    if message.contains("not found in") {
        return Ok(Detached::Gone); // "entry for POINT not found in /etc/mtab"
    }
    Err(MountError::Helper { message: message.trim().to_owned() })
}
