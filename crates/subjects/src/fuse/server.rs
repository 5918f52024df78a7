//! [`Server`]: answers the kernel's requests from the volume.
//!
//! One method per request, and nothing but translation: what a call means is decided by the model.
//! Any number of threads may answer requests; each takes the one lock for the time of one volume
//! operation and answers after it has let go of it. None of them ever waits for the kernel.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fathom_core::flags::{FallocateMode, RenameFlags, XattrFlags};
use fathom_core::{Errno, FsBytes, Kind, Mode};
use fathom_model::{DirEntry, Feature, NewNode, Race, Volume};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::change::{Change, truncate};
use super::control::{self, Job};
use super::convert::{errno, file_type, new_node};
use super::node_flags::{self, Wish};
use super::options::{AccessTimes, Options};
use super::state::State;
use super::{acl, caller};

/// The handle of every open file. No state is behind it: the kernel names the inode in every
/// request.
const HANDLE: FileHandle = FileHandle(0);

/// The generation of every inode. Inode numbers are never used twice: they need no generation
/// beside them.
const GENERATION: Generation = Generation(0);

/// For how long a rename in halves lets others in.
const GAP: Duration = Duration::from_micros(50);

/// The state that outlives a mount: unmounting and mounting again takes it along.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// The server's own user, who may save and restore, beside root.
    pub(super) owner_uid: u32,
}

impl Shared {
    pub(super) fn new(volume: Volume) -> Shared {
        let owner_uid = rustix::process::geteuid().as_raw();
        Shared { state: Mutex::new(State::new(volume)), owner_uid }
    }

    /// Locks the state. A panic in the model leaves the lock poisoned and takes the server down
    /// with it: better than serving a broken reference.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the reference file system panicked")
    }
}

/// Answers the requests of one mount.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) shared: Arc<Shared>,
    /// Takes work that must not be done by a thread that answers requests.
    pub(super) jobs: Sender<Job>,
    /// The options of the mount.
    pub(super) options: Options,
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    fn answer_entry(&self, reply: ReplyEntry, result: Result<FileAttr, Errno>) {
        match result {
            Ok(attr) => reply.entry(&self.options.remembered, &attr, GENERATION),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn answer_attr(&self, reply: ReplyAttr, result: Result<FileAttr, Errno>) {
        match result {
            Ok(attr) => reply.attr(&self.options.remembered, &attr),
            Err(e) => reply.error(errno(e)),
        }
    }

    /// Whether the kernel may keep what it knows. Then it need not tell what it opens, either: after `ENOSYS` it
    /// never asks again, makes new files with MKNOD, and keeps contents and lists of names until they change or
    /// RESTORE invalidates them (fuse_file_open, fs/fuse/file.c; fuse_atomic_open, fs/fuse/dir.c).
    fn is_remembered(&self) -> bool {
        !self.options.remembered.is_zero()
    }

    /// What was answered is kept: there is nothing to do, and after `ENOSYS` the kernel knows.
    fn answer_sync(&self, reply: ReplyEmpty) {
        match self.is_remembered() {
            true => reply.error(errno(Errno::ENOSYS)),
            false => reply.ok(),
        }
    }

    /// Makes an inode that is no symbolic link.
    fn make(
        &self,
        state: &mut State,
        req: &Request,
        (parent, name): (INodeNo, &OsStr),
        node: NewNode,
        (mode, umask): (u32, u32),
    ) -> Result<FileAttr, Errno> {
        let (caller, mode) = (caller::of(req), Mode(mode & 0o7777));
        let place = (parent.0, name.as_bytes());
        match self.options.acl {
            true => acl::make(state, &caller, place, node, mode, umask),
            // The kernel has applied the mask.
            false => state.make(&caller, place.0, place.1, node, mode),
        }
    }

    /// [`Race::Xattr`]: the old value is gone for a moment before the new one is there. The kernel asks for
    /// values without a lock, so this is a race that others see through it.
    fn forgets_attribute(&self, ino: u64, name: &[u8], value: &[u8], flags: XattrFlags) -> bool {
        let mut state = self.state();
        let forgotten = state.volume().config().race == Some(Race::Xattr)
            && state.volume().clone().setxattr(ino, name, value, flags).is_ok()
            && state.volume_mut().removexattr(ino, name).is_ok();
        drop(state);
        if forgotten {
            std::thread::sleep(GAP);
        }
        forgotten
    }

    /// The rule for access times of a file or directory that was opened with these flags.
    fn access_times(&self, is_directory: bool, has_noatime: bool) -> AccessTimes {
        let Options { read_only, keep_directory_times, access_times, .. } = self.options;
        match read_only || has_noatime || (is_directory && keep_directory_times) {
            true => AccessTimes::Never,
            false => access_times,
        }
    }
}

/// Greatest number of entries looked up for one READDIR: as many as fit into the 32 KiB that C
/// libraries ask for.
const READDIR_ENTRIES_MAX: usize = 1024;

fn answer_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

/// Answers with a value or a list of names: with its length if no buffer was given.
fn answer_xattr(reply: ReplyXattr, size: u32, result: Result<&[u8], Errno>) {
    match result {
        Err(e) => reply.error(errno(e)),
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(errno(Errno::ERANGE)),
        Ok(bytes) => reply.data(bytes),
    }
}

/// Checks the name of an extended attribute: it must be of a class that Linux file systems have.
/// For others the kernel would not even ask them, but FUSE passes every name on (fs/fuse/xattr.c).
/// The kernel decides who may use which class. Of `system.` there are access control lists, if they were
/// asked for.
fn xattr_name<'a>(name: &'a OsStr, options: &Options) -> Result<&'a [u8], Errno> {
    let name = name.as_bytes();
    if options.acl && [acl::ACCESS, acl::DEFAULT].contains(&name) {
        return Ok(name);
    }
    let classes = [&b"user."[..], b"trusted.", b"security."];
    match classes.iter().find_map(|class| name.strip_prefix(*class)) {
        None => Err(Errno::EOPNOTSUPP),
        Some([]) => Err(Errno::EINVAL),
        Some(_) => Ok(name),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Wanted where the kernel has them (an older one is no reason to fail):
        let wanted = [
            // Lookups and readdirs of one directory side by side.
            InitFlags::FUSE_PARALLEL_DIROPS,
            // A write is one request, as long as it is shorter than those are at most. Otherwise every page
            // is one, and another caller sees the file between two of them.
            InitFlags::FUSE_BIG_WRITES,
            // File handles stay good when the kernel has forgotten the inode: it looks up `.` in it.
            InitFlags::FUSE_EXPORT_SUPPORT,
            // We clear setuid bits. Otherwise the kernel does, but it then asks for the attribute
            // security.capability before every single write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        for capability in wanted {
            let _ = config.add_capabilities(capability);
        }
        if !self.is_remembered() {
            // O_TRUNC comes with OPEN. As a request of its own it would look like truncate(2), which
            // leaves the times of an empty file alone.
            let _ = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        }
        if self.options.acl {
            // Without either of them the lists would be kept and not obeyed.
            let needed = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
            config.add_capabilities(needed).map_err(|_| io::ErrorKind::Unsupported)?;
        }
        Ok(())
    }

    fn destroy(&mut self) {
        self.state().unmounted();
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let result = self.state().lookup(parent.0, name.as_bytes());
        self.answer_entry(reply, result);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.state().forget(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let result = self.state().attr(ino.0);
        self.answer_attr(reply, result);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, uid, gid, size, atime, mtime, has_handle: fh.is_some() };
        let mut state = self.state();
        let allowed = node_flags::check(state.volume(), ino.0, change.wish());
        let result = allowed.and_then(|()| match state.removed_mut(ino.0) {
            Some((attr, now)) => {
                change.apply_to_removed(attr, now);
                Ok(())
            }
            None => change.apply(state.volume_mut(), req, ino.0),
        });
        let result = result.and_then(|()| match mode.filter(|_| self.options.acl) {
            Some(mode) => acl::follow_chmod(state.volume_mut(), ino.0, mode),
            None => Ok(()),
        });
        let result = result.and_then(|()| state.attr(ino.0));
        drop(state);
        self.answer_attr(reply, result);
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let mut state = self.state();
        let result = state.volume().readlink(ino.0);
        state.note_access(ino.0, self.access_times(false, false));
        drop(state);
        match result {
            Ok(target) => reply.data(target.as_bytes()),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let result = new_node(mode, rdev).ok_or(Errno::EINVAL).and_then(|node| {
            self.make(&mut self.state(), req, (parent, name), node, (mode, umask))
        });
        self.answer_entry(reply, result);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let result = self.make(&mut self.state(), req, (parent, name), NewNode::Dir, (mode, umask));
        self.answer_entry(reply, result);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.state().unlink(parent.0, name.as_bytes());
        answer_empty(reply, result);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.state().rmdir(parent.0, name.as_bytes());
        answer_empty(reply, result);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let node = NewNode::Symlink(FsBytes::from(target.as_os_str().as_bytes()));
        let (caller, mode) = (caller::of(req), Mode(0o777));
        let result = self.state().make(&caller, parent.0, link_name.as_bytes(), node, mode);
        self.answer_entry(reply, result);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = RenameFlags::from_bits_retain(flags.bits());
        let (from, to) = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        let caller = caller::of(req);
        let result = self.state().rename(&caller, from, to, flags);
        answer_empty(reply, result);
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let result = self.state().link(ino.0, newparent.0, newname.as_bytes());
        self.answer_entry(reply, result);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.is_remembered() {
            return reply.error(errno(Errno::ENOSYS));
        }
        let mut state = self.state();
        let mut result = node_flags::check_open(state.volume(), ino.0, flags.0);
        if result.is_ok() && flags.0 & libc::O_TRUNC != 0 {
            result = truncate(state.volume_mut(), req, ino.0, 0, true);
        }
        let result = result.and_then(|()| state.open(ino.0, true));
        drop(state);
        match result {
            Ok(()) => reply.opened(HANDLE, FopenFlags::empty()),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        if self.is_remembered() {
            return reply.error(errno(Errno::ENOSYS));
        }
        let mut state = self.state();
        let result = self
            .make(&mut state, req, (parent, name), NewNode::File, (mode, umask))
            .and_then(|attr| state.open(attr.ino.0, true).map(|()| attr));
        drop(state);
        match result {
            Ok(attr) => {
                let remembered = &self.options.remembered;
                reply.created(remembered, &attr, GENERATION, HANDLE, FopenFlags::empty());
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = Vec::new();
        let mut state = self.state();
        let result = state.volume().read(ino.0, offset, size as usize, &mut bytes);
        if result.is_ok() {
            let has_noatime = flags.0 & libc::O_NOATIME != 0;
            state.note_access(ino.0, self.access_times(false, has_noatime));
        }
        drop(state);
        match result {
            Ok(()) => reply.data(&bytes),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let volume = state.volume_mut();
        let mut result = volume.write(ino.0, offset, data);
        if result.is_ok() && write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            result = result.and_then(|n| caller::kill_privileges(volume, req, ino.0).map(|()| n));
        }
        drop(state);
        match result {
            Ok(written) => reply.written(written as u32),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Nothing is ever delayed here, so close(2) has nothing to report: after this answer the
        // kernel does not ask again.
        reply.error(errno(Errno::ENOSYS));
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.state().release(ino.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.answer_sync(reply);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.is_remembered() {
            return reply.error(errno(Errno::ENOSYS));
        }
        let mut state = self.state();
        if let Err(e) = state.open(ino.0, false) {
            return reply.error(errno(e));
        }
        let handle = FileHandle(state.listings.open(flags.0 & libc::O_NOATIME != 0));
        reply.opened(handle, FopenFlags::empty());
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut state = self.state();
        let noatime = state.listings.is_noatime(fh.0);
        state.note_access(ino.0, self.access_times(true, noatime));
        let volume = state.volume();
        let entries = volume.entries_up_to(ino.0, offset.max(2), READDIR_ENTRIES_MAX);
        let known =
            volume.parent(ino.0).and_then(|parent| Ok((parent, volume.entries_end(ino.0)?)));
        let ((parent, directory_end), entries) = match (known, entries) {
            (Ok(known), Ok(entries)) => (known, entries),
            (Err(e), _) | (_, Err(e)) => return reply.error(errno(e)),
        };
        let end = state.listings.end(fh.0, offset, directory_end);
        drop(state);
        let dots = [(".", ino.0), ("..", parent)];
        let dots = dots.into_iter().zip(1..).map(|((name, ino), cookie)| DirEntry {
            name: FsBytes::from(name),
            ino,
            kind: Kind::Dir,
            cookie,
        });
        let entries = entries.into_iter().take_while(|entry| entry.cookie < end);
        for entry in dots.filter(|dot| dot.cookie > offset).chain(entries) {
            let name = OsStr::from_bytes(entry.name.as_bytes());
            let kind = file_type(entry.kind);
            if reply.add(INodeNo(entry.ino), entry.cookie, kind, name) {
                break; // full: the kernel comes back with the last cookie
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        state.release(ino.0);
        state.listings.close(fh.0);
        drop(state);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.answer_sync(reply);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let s = self.state().volume().statfs();
        let (block_bytes, name_max) = (s.block_bytes as u32, s.name_bytes_max as u32);
        reply.statfs(
            s.blocks,
            s.blocks_free,
            s.blocks_available,
            s.files,
            s.files_free,
            block_bytes,
            name_max,
            block_bytes,
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mut flags = XattrFlags::from_bits_retain(flags as u32);
        if self.forgets_attribute(ino.0, name.as_bytes(), value, flags) {
            flags = XattrFlags::empty();
        }
        let mut state = self.state();
        let result = xattr_name(name, &self.options).and_then(|name| {
            node_flags::check(state.volume(), ino.0, Wish::Change)?;
            match name {
                acl::ACCESS | acl::DEFAULT => acl::set(state.volume_mut(), req, ino.0, name, value),
                _ => state.volume_mut().setxattr(ino.0, name, value, flags),
            }
        });
        drop(state);
        answer_empty(reply, result);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let result = xattr_name(name, &self.options)
            .and_then(|name| self.state().volume().getxattr(ino.0, name));
        answer_xattr(reply, size, result.as_ref().map(FsBytes::as_bytes).map_err(|e| *e));
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let result = self.state().volume().listxattr(ino.0);
        let list = result.map(|names| -> Vec<u8> {
            let shown = names.iter().filter(|name| name.as_bytes() != node_flags::NAME);
            shown.flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect()
        });
        answer_xattr(reply, size, list.as_deref().map_err(|e| *e));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        let result = xattr_name(name, &self.options).and_then(|name| {
            node_flags::check(state.volume(), ino.0, Wish::Change)?;
            state.volume_mut().removexattr(ino.0, name)
        });
        drop(state);
        answer_empty(reply, result);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateMode::from_bits_retain(mode as u32);
        let mut state = self.state();
        let volume = state.volume_mut();
        let result = node_flags::check(volume, ino.0, Wish::Change)
            .and_then(|()| volume.fallocate(ino.0, mode, offset, length))
            .and_then(|()| caller::kill_privileges_unless_privileged(volume, req, ino.0));
        drop(state);
        answer_empty(reply, result);
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // The kernel answers SEEK_SET, SEEK_CUR and SEEK_END by itself (fuse_file_llseek,
        // fs/fuse/file.c), and so does it with a negative offset.
        let offset = offset as u64;
        let state = self.state();
        let result = match whence {
            // From then on the kernel says that everything is data, as it does for most daemons.
            _ if !state.volume().config().quirks.has(Feature::Holes) => Err(Errno::ENOSYS),
            libc::SEEK_DATA => state.volume().seek_data(ino.0, offset),
            libc::SEEK_HOLE => state.volume().seek_hole(ino.0, offset),
            _ => Err(Errno::EINVAL),
        };
        match result {
            Ok(found) => reply.offset(found as i64),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let volume = state.volume_mut();
        let copied = node_flags::check(volume, ino_out.0, Wish::Add)
            .and_then(|()| volume.copy_range(ino_in.0, offset_in, ino_out.0, offset_out, len));
        let result = copied.and_then(|copied| {
            caller::kill_privileges_unless_privileged(volume, req, ino_out.0).map(|()| copied)
        });
        drop(state);
        match result {
            Ok(copied) => reply.written(copied as u32),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let about_flags = node_flags::ioctl(self.state().volume_mut(), ino.0, cmd, in_data);
        match about_flags {
            Some(Ok(answer)) => reply.ioctl(0, &answer),
            Some(Err(e)) => reply.error(errno(e)),
            None => control::answer(self, req, cmd, in_data, reply),
        }
    }
}
