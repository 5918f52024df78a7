//! Executes operations by real system calls, relative to a directory of the host.
//!
//! [`Executor`] is shared by the subjects that live in the host's kernel. It takes over the thread
//! on which it is made (see [`thread_context`]) and is not [`Send`]: current directory, umask and
//! identity are the thread's. Run every subject on a thread of its own, or let several take turns
//! on one.
//!
//! One method per operation, grouped by what they work on; the `match` only dispatches.

mod attr;
mod buffer;
mod call;
mod content;
mod data;
mod guard;
mod listing;
mod memory;
mod name;
mod observe_entry;
mod observe_paths;
mod observe_tree;
mod open;
mod path;
pub mod thread_context;
mod written;
mod xattr;

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use fathom_core::flags::FallocateMode;
use fathom_core::schedule::EventClock;
use fathom_core::{
    Capability, FsBytes, FsPath, HarnessFault, Op, Outcome, PathState, Slot, Target, Tree,
};

use buffer::{BUFFER_BYTES, Buffer};
use guard::Last;
use open::OpenFile;
use path::CPath;
use thread_context::ThreadContext;
use written::Written;

pub(crate) use guard::Guard;
pub use guard::Refusal;
pub use observe_entry::View;
pub use thread_context::Identity;

/// Says in its environment that a process runs in a guest, a machine that nobody else uses.
pub(crate) const IN_GUEST: &str = "FATHOM_IN_GUEST";

/// Whether this process runs in a guest.
pub(crate) fn in_guest() -> bool {
    std::env::var_os(IN_GUEST).is_some()
}

/// How the root is opened to be synced.
const ROOT_FLAGS: rustix::fs::OFlags =
    rustix::fs::OFlags::DIRECTORY.union(rustix::fs::OFlags::CLOEXEC);

/// The result of an operation method: the file system's answer, or the reason why it was not asked.
type Applied = Result<Outcome, Refusal>;

/// Executes operations in a directory, on the thread on which it was made.
pub(crate) struct Executor {
    context: ThreadContext,
    /// The open file of each [`Slot`].
    slots: Vec<Option<OpenFile>>,
    guard: Guard,
    buffer: Buffer,
    view: View,
    /// Where files may have data.
    written: Written,
}

/// A [`Target`] in the form that a call takes.
enum Place {
    Path(CPath),
    Link(CPath),
    Slot(RawFd),
}

impl Executor {
    /// Makes an executor for `root`, which must be empty: files that others made are not guarded
    /// against.
    ///
    /// # Errors
    /// If the thread cannot be taken over.
    pub(crate) fn new(root: OwnedFd, view: View) -> Result<Executor, HarnessFault> {
        let buffer =
            Buffer::new().map_err(|error| HarnessFault::new("reserving a buffer", error))?;
        let slots = (0..=Slot::MAX).map(|_| None).collect();
        Ok(Executor {
            context: ThreadContext::new(root)?,
            slots,
            guard: Guard::default(),
            buffer,
            view,
            written: Written::default(),
        })
    }

    /// Executes one operation.
    ///
    /// # Errors
    /// If it was refused (see [`Refusal`]) or the thread's state could not be set.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        self.context.activate()?;
        let outcome = self
            .dispatch(op)
            .map_err(|refusal| HarnessFault::new(format!("refused to execute {op:?}"), refusal))?;
        if let Ok(done) = outcome.result {
            self.note_written(op, done);
        }
        Ok(outcome)
    }

    /// Executes one operation; the clock says when the call itself was made and when it returned.
    ///
    /// # Errors
    /// As [`Executor::apply`].
    pub(crate) fn apply_timed(
        &mut self,
        op: &Op,
        clock: &EventClock,
    ) -> Result<(Outcome, (u64, u64)), HarnessFault> {
        self.context.activate()?;
        let (outcome, invoked, returned) = clock.timed(|| self.dispatch(op));
        let outcome = outcome
            .map_err(|refusal| HarnessFault::new(format!("refused to execute {op:?}"), refusal))?;
        Ok((outcome, (invoked, returned)))
    }

    /// Remembers where an operation that gave `done` has put data.
    fn note_written(&mut self, op: &Op, done: u64) {
        match *op {
            Op::Write { slot, .. } => self.note_written_at(slot, None, done),
            Op::Pwrite { slot, offset, .. } | Op::MmapStore { slot, offset, .. } => {
                self.note_written_at(slot, Some(offset), done);
            }
            Op::CopyFileRange { to, to_offset, .. } => self.note_written_at(to, to_offset, done),
            Op::Fallocate { mode, len, .. }
                if mode.contains(FallocateMode::FALLOC_FL_COLLAPSE_RANGE) =>
            {
                self.written.shift(-len);
            }
            Op::Fallocate { mode, len, .. }
                if mode.contains(FallocateMode::FALLOC_FL_INSERT_RANGE) =>
            {
                self.written.shift(len);
            }
            _ => {}
        }
    }

    /// Without an offset the data is before the position. With one it may be at the end all the same
    /// (`O_APPEND`).
    fn note_written_at(&mut self, slot: Slot, offset: Option<i64>, len: u64) {
        let fd = self.fd(slot);
        let before = |end: u64| end.saturating_sub(len);
        let start = match offset {
            Some(offset) => Ok(offset as u64),
            None => call::lseek(fd, 0, libc::SEEK_CUR).map(before),
        };
        if let Ok(start) = start {
            self.written.add(start, len);
        }
        if let Ok(stat) = call::statx(fd, c"", libc::AT_EMPTY_PATH) {
            self.written.add(before(stat.stx_size), len);
        }
    }

    /// Whether attributes are asked of the file system itself from now on: see [`View::fresh`].
    pub(crate) fn set_fresh(&mut self, fresh: bool) {
        self.view.fresh = fresh;
    }

    /// Walks the whole visible state, as root if the process is root.
    ///
    /// # Errors
    /// If the harness itself reached a limit; whatever the file system does is in the tree.
    pub(crate) fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.context.activate()?;
        let root = self.context.root().expect("activate() has checked").as_raw_fd();
        let (view, written, buffer) = (&self.view, &self.written, &mut self.buffer);
        self.context.as_process(|| observe_tree::observe_tree(root, view, written, buffer))?
    }

    /// Observes some paths and nothing else, as [`fathom_core::Testbed::observe_paths`] requires.
    ///
    /// If the harness itself reached a limit; whatever the file system does is in the states of the
    /// paths.
    pub(crate) fn observe_paths(
        &mut self,
        paths: &[FsPath],
    ) -> Result<Vec<PathState>, HarnessFault> {
        self.context.activate()?;
        let (guard, view, buffer) = (&self.guard, &self.view, &mut self.buffer);
        let written = &self.written;
        self.context
            .as_process(|| observe_paths::observe_paths(paths, guard, view, written, buffer))?
    }

    /// Reads a part of a file; see [`fathom_core::Testbed::read_contents`].
    ///
    /// # Errors
    /// If the thread cannot be taken over.
    pub(crate) fn read_contents(
        &mut self,
        path: &FsPath,
        offset: u64,
        len: usize,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.context.activate()?;
        let (guard, buffer) = (&self.guard, &mut self.buffer);
        self.context.as_process(|| observe_paths::read_contents(path, offset, len, guard, buffer))
    }

    /// Reads an extended attribute; see [`fathom_core::Testbed::read_xattr`].
    ///
    /// # Errors
    /// If the thread cannot be taken over.
    pub(crate) fn read_xattr(
        &mut self,
        path: &FsPath,
        name: &FsBytes,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.context.activate()?;
        let (guard, buffer) = (&self.guard, &mut self.buffer);
        self.context.as_process(|| observe_paths::read_xattr(path, name, guard, buffer))
    }

    /// Does something as the process itself, whoever the operations are executed as.
    ///
    /// # Errors
    /// If the thread cannot change its identity.
    pub(crate) fn as_process<T>(&self, work: impl FnOnce() -> T) -> Result<T, HarnessFault> {
        // Another executor of this thread would be left with the identity of this one.
        self.context.activate()?;
        self.context.as_process(work)
    }

    /// Whether [`Op::Identity`] works.
    pub(crate) fn can_switch_identity(&self) -> bool {
        self.context.can_switch()
    }

    /// Closes every slot.
    pub(crate) fn close_all(&mut self) {
        self.slots.fill_with(|| None);
    }

    /// Closes every slot and lets go of the directory: nothing keeps its file system busy.
    pub(crate) fn release(&mut self) {
        self.close_all();
        self.context.release_root();
    }

    /// Goes on in another directory (the same one after a remount, say); mask and identity stay.
    ///
    /// # Errors
    /// If the directory cannot be entered.
    pub(crate) fn resume(&mut self, root: OwnedFd) -> Result<(), HarnessFault> {
        self.context.set_root(root)
    }

    /// Forgets the past (slots, mask, identity, what was made) and starts in an empty directory.
    ///
    /// # Errors
    /// If the directory cannot be entered.
    pub(crate) fn restart(&mut self, root: OwnedFd) -> Result<(), HarnessFault> {
        self.written = Written::default();
        self.restart_with(root, &Guard::default())
    }

    /// Starts anew like [`Executor::restart`], in a directory that is not empty; `guard` knows what
    /// is in it.
    pub(crate) fn restart_with(
        &mut self,
        root: OwnedFd,
        guard: &Guard,
    ) -> Result<(), HarnessFault> {
        self.close_all();
        self.context.forget();
        self.guard = guard.clone();
        self.context.set_root(root)
    }

    /// Starts anew like [`Executor::restart_with`], in the same directory: it stayed open while what
    /// is in it was replaced.
    pub(crate) fn restart_here(&mut self, guard: Guard) -> Result<(), HarnessFault> {
        self.close_all();
        self.guard = guard;
        self.context.reset()
    }

    /// The directory that paths are relative to, once more.
    pub(crate) fn root(&self) -> Result<OwnedFd, HarnessFault> {
        let fault = |message: String| HarnessFault::new("sharing the root of the subject", message);
        let root = self.context.root().ok_or_else(|| fault("it is unmounted".to_owned()))?;
        root.try_clone().map_err(|error| fault(error.to_string()))
    }

    /// Gives the thread back its own directory, mask and identity until the next operation.
    pub(crate) fn step_aside(&self) {
        self.context.deactivate();
    }

    /// Takes over what another executor in the same directory knows of it.
    pub(crate) fn set_guard(&mut self, guard: Guard) {
        self.guard = guard;
    }

    /// Takes over what another executor knows of the same file system, to look at it.
    pub(crate) fn learn_from(&mut self, other: &Executor) {
        self.guard = other.guard.clone();
        self.written = other.written.clone();
    }

    /// The guard, which knows what has been made in the directory so far.
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Whether a slot is open.
    pub(crate) fn has_open_slots(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    /// sync(2). On a machine with others it syncs the file system under test and no other: one that hangs
    /// would otherwise make this call hang, and everybody's. In a guest it is the call itself.
    fn sync(&self) -> Outcome {
        if in_guest() {
            return call::sync().into();
        }
        let root = self.context.root().expect("activate() has checked");
        let synced = self.context.as_process(|| {
            let directory = rustix::fs::openat(root, ".", ROOT_FLAGS, rustix::fs::Mode::empty());
            directory.map(|directory| call::syncfs(directory.as_raw_fd()))
        });
        // sync(2) cannot fail, and says nothing of errors.
        drop(synced);
        Outcome::ok(0)
    }

    fn dispatch(&mut self, op: &Op) -> Applied {
        match op {
            Op::Open { slot, path, flags, mode } => self.open(*slot, path, *flags, *mode),
            Op::Close { slot } => Ok(self.close(*slot)),
            Op::Read { slot, len } => self.read(*slot, *len),
            Op::Pread { slot, offset, len } => self.pread(*slot, *offset, *len),
            Op::Write { slot, data } => self.write(*slot, *data),
            Op::Pwrite { slot, offset, data } => self.pwrite(*slot, *offset, *data),
            Op::Lseek { slot, offset, whence } => Ok(self.lseek(*slot, *offset, *whence)),
            Op::Truncate { target, len } => self.truncate(target, *len),
            Op::Fallocate { slot, mode, offset, len } => {
                Ok(self.fallocate(*slot, *mode, *offset, *len))
            }
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Unlink { path } => self.unlink(path),
            Op::Rename { from, to, flags } => self.rename(from, to, *flags),
            Op::Link { from, to, follow } => self.link(from, to, *follow),
            Op::LinkSlot { slot, to, by_proc } => self.link_slot(*slot, to, *by_proc),
            Op::Symlink { target, path } => self.symlink(target, path),
            Op::Readlink { path, len } => self.readlink(path, *len),
            Op::Mknod { path, mode, dev } => self.mknod(path, *mode, *dev),
            Op::Chmod { target, mode } => self.chmod(target, *mode),
            Op::Chown { target, uid, gid } => self.chown(target, *uid, *gid),
            Op::Utimens { target, atime, mtime } => self.utimens(target, *atime, *mtime),
            Op::Setxattr { target, name, value, flags } => {
                self.setxattr(target, name, *value, *flags)
            }
            Op::Getxattr { target, name, len } => self.getxattr(target, name, *len),
            Op::Listxattr { target, len } => self.listxattr(target, *len),
            Op::Removexattr { target, name } => self.removexattr(target, name),
            Op::Stat { target } => self.stat(target),
            Op::Getdents { slot } => Ok(self.getdents(*slot)),
            Op::ListPiece { slot, back, len } => Ok(self.list_piece(*slot, *back, *len)),
            Op::Statfs { target } => self.statfs(target),
            Op::Access { target, mode, effective } => self.access(target, *mode, *effective),
            Op::Fsync { slot } => Ok(call::fsync(self.fd(*slot)).into()),
            Op::Fdatasync { slot } => Ok(call::fdatasync(self.fd(*slot)).into()),
            Op::Sync => Ok(self.sync()),
            Op::Syncfs { slot } => Ok(call::syncfs(self.fd(*slot)).into()),
            Op::SyncFileRange { slot, offset, len, flags } => {
                Ok(call::sync_file_range(self.fd(*slot), *offset, *len, flags.bits()).into())
            }
            Op::MmapStore { slot, offset, data, sync } => {
                self.mmap_store(*slot, *offset, *data, *sync)
            }
            Op::MmapLoad { slot, offset, len } => self.mmap_load(*slot, *offset, *len),
            Op::CopyFileRange { from, from_offset, to, to_offset, len, flags } => {
                Ok(self.copy_file_range((*from, *from_offset), (*to, *to_offset), *len, *flags))
            }
            Op::Umask { mask } => Ok(self.context.set_umask(mask.0).into()),
            Op::Identity { uid, gid, groups } => self.identity(*uid, *gid, groups),
            Op::Remount => Err(Refusal::Incapable(Capability::Remount)),
            Op::Server { .. } => Err(Refusal::Incapable(Capability::Server)),
            Op::Wait { seconds } => {
                std::thread::sleep(Duration::from_secs(u64::from(*seconds)));
                Ok(Outcome::ok(0))
            }
        }
    }

    fn identity(&mut self, uid: u32, gid: u32, groups: &[u32]) -> Applied {
        if !self.context.can_switch() {
            return Err(Refusal::Incapable(Capability::Identity));
        }
        let user = Identity { uid, gid, groups: groups.to_vec() };
        self.context.act_as(user).map_err(|fault| Refusal::Identity(fault.to_string()))?;
        Ok(Outcome::ok(0))
    }

    /// The descriptor of a slot; −1 for an empty one, so that the kernel says `EBADF`.
    fn fd(&self, slot: Slot) -> RawFd {
        self.slots[usize::from(slot)].as_ref().map_or(-1, OpenFile::fd)
    }

    fn place(&self, target: &Target) -> Result<Place, Refusal> {
        Ok(match target {
            Target::Path(path) => Place::Path(self.guard.within(path, Last::Follow)?),
            Target::Link(path) => Place::Link(self.guard.within(path, Last::Keep)?),
            Target::Slot(slot) => Place::Slot(self.fd(*slot)),
        })
    }
}

/// Checks that a length is not too long for the buffer.
fn buffer_len(len: u64) -> Result<usize, Refusal> {
    match usize::try_from(len) {
        Ok(len) if len <= BUFFER_BYTES => Ok(len),
        _ => Err(Refusal::TooLong { len, max: BUFFER_BYTES }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// With two clients of NFS, the thread stayed the user that operations were executed as, and could not go back.
    #[test]
    fn acting_for_the_process_leaves_no_identity_behind() {
        let dir = tempfile::tempdir().unwrap();
        let executor = || {
            Executor::new(OwnedFd::from(File::open(dir.path()).unwrap()), View::default()).unwrap()
        };
        let (mut one, mut other) = (executor(), executor());
        if !one.can_switch_identity() {
            println!("SKIP acting_for_the_process_leaves_no_identity_behind: needs root");
            return;
        }
        one.apply(&Op::Identity { uid: 1000, gid: 1000, groups: Vec::new() }).unwrap();
        other.observe().unwrap();
        one.as_process(|| ()).unwrap();
        other.release();
        one.release();
        assert!(rustix::process::geteuid().is_root());
    }
}
