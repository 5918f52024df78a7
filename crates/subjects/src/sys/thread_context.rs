//! [`ThreadContext`]: an executor's place on its thread: current directory, file mode creation mask, identity.
//!
//! In Linux these belong to a thread, if it asks for it: `unshare(2)` with `CLONE_FS` (needs no
//! privilege) gives it a current directory and a umask of its own, and credentials are per thread
//! anyway (credentials(7): only the C library keeps the threads of a process alike). So subjects on
//! different threads do not disturb each other. Several on one thread take turns: whoever is asked
//! to do something activates its context first.
#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use fathom_core::{Errno, HarnessFault};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::UnshareFlags;

use super::call;

/// A user on whose behalf operations run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Real and effective user.
    pub uid: u32,
    /// Real and effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// The one of this process.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn of_process() -> Result<Identity, HarnessFault> {
        let groups = rustix::process::getgroups()
            .map_err(|error| HarnessFault::new("reading the supplementary groups", error))?;
        Ok(Identity {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(|gid| gid.as_raw()).collect(),
        })
    }
}

/// The mask of a new executor: the one that the reference starts with.
pub const UMASK: u32 = 0o022;

/// Where the thread was before the first context on it was taken.
struct OriginalContext {
    dir: OwnedFd,
    umask: u32,
}

thread_local! {
    static SEATED: Cell<u64> = const { Cell::new(NOBODY) };
    static HOME: RefCell<Option<OriginalContext>> = const { RefCell::new(None) };
}

const NOBODY: u64 = 0;
static NEXT_ID: AtomicU64 = AtomicU64::new(NOBODY + 1);

/// See the module documentation.
pub(super) struct ThreadContext {
    id: u64,
    /// The directory that paths are relative to; none while the file system is unmounted.
    root: Option<OwnedFd>,
    umask: u32,
    own: Identity,
    acting: Identity,
    can_switch: bool,
    /// The kernel state behind it belongs to the thread it was made on.
    not_send: PhantomData<*const ()>,
}

impl ThreadContext {
    /// Takes a context in `root` on this thread.
    pub(super) fn new(root: OwnedFd) -> Result<ThreadContext, HarnessFault> {
        HOME.with_borrow_mut(|home| {
            if home.is_none() {
                *home = Some(leave_shared_home()?);
            }
            Ok::<_, HarnessFault>(())
        })?;
        let own = Identity::of_process()?;
        let mut context = ThreadContext {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            root: Some(root),
            umask: UMASK,
            acting: own.clone(),
            can_switch: false,
            own,
            not_send: PhantomData,
        };
        context.activate()?;
        context.can_switch = context.try_to_switch()?;
        Ok(context)
    }

    /// Makes the thread's state this context's, if another context was used in between.
    pub(super) fn activate(&self) -> Result<(), HarnessFault> {
        if SEATED.get() == self.id {
            return Ok(());
        }
        let root = self.root.as_ref().ok_or_else(|| {
            HarnessFault::new("executing on an unmounted file system", "mount it first")
        })?;
        SEATED.set(NOBODY);
        if self.can_switch {
            become_user(&self.own)?;
        }
        call::fchdir(root.as_raw_fd())
            .map_err(|errno| HarnessFault::new("entering the directory of the subject", errno))?;
        call::umask(self.umask).expect("umask(2) cannot fail");
        if self.acting != self.own {
            become_user(&self.acting)?;
        }
        SEATED.set(self.id);
        Ok(())
    }

    /// Gives the thread back: its directory, its mask, the identity of the process.
    pub(super) fn deactivate(&self) {
        if SEATED.get() != self.id {
            return;
        }
        SEATED.set(NOBODY);
        if self.acting != self.own {
            become_user(&self.own).expect("the saved user id allows the way back");
        }
        HOME.with_borrow(|home| {
            let home = home.as_ref().expect("new() has set it");
            call::umask(home.umask).expect("umask(2) cannot fail");
            // The old directory may have been removed meanwhile, but it can still be entered.
            call::fchdir(home.dir.as_raw_fd()).expect("a directory that was current before");
        });
    }

    /// Lets go of the directory, so that its file system can be unmounted.
    pub(super) fn release_root(&mut self) {
        self.deactivate();
        self.root = None;
    }

    /// Moves to another directory; mask and identity stay.
    pub(super) fn set_root(&mut self, root: OwnedFd) -> Result<(), HarnessFault> {
        self.deactivate();
        self.root = Some(root);
        self.activate()
    }

    /// Mask and identity as they were in the beginning.
    pub(super) fn forget(&mut self) {
        self.deactivate();
        self.umask = UMASK;
        self.acting = self.own.clone();
    }

    /// The directory that paths are relative to.
    pub(super) fn root(&self) -> Option<&OwnedFd> {
        self.root.as_ref()
    }

    /// Whether [`ThreadContext::act_as`] is possible.
    pub(super) fn can_switch(&self) -> bool {
        self.can_switch
    }

    /// `umask(2)`
    pub(super) fn set_umask(&mut self, mask: u32) -> call::Answer {
        self.umask = mask & 0o777;
        call::umask(mask)
    }

    /// From now on operations run as this user.
    pub(super) fn act_as(&mut self, user: Identity) -> Result<(), HarnessFault> {
        become_user(&user)?;
        self.acting = user;
        Ok(())
    }

    /// Runs `work` with the identity of the process, whoever operations run as.
    pub(super) fn as_process<T>(&self, work: impl FnOnce() -> T) -> Result<T, HarnessFault> {
        if self.acting == self.own {
            return Ok(work());
        }
        become_user(&self.own)?;
        let result = work();
        become_user(&self.acting)?;
        Ok(result)
    }

    /// Whether identities can really be switched: root in a container may lack the capabilities.
    fn try_to_switch(&self) -> Result<bool, HarnessFault> {
        /// `nobody` of most distributions; any id but 0 would do.
        const SOMEBODY: u32 = 65534;
        if self.own.uid != 0 {
            return Ok(false);
        }
        let somebody = Identity { uid: SOMEBODY, gid: SOMEBODY, groups: Vec::new() };
        let switched = become_user(&somebody).is_ok();
        become_user(&self.own)?;
        Ok(switched)
    }
}

impl Drop for ThreadContext {
    fn drop(&mut self) {
        self.deactivate();
    }
}

/// Remembers where the thread is and gives it a directory and mask of its own.
fn leave_shared_home() -> Result<OriginalContext, HarnessFault> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, ".", flags, Mode::empty())
        .map_err(|error| HarnessFault::new("opening the current directory", error))?;
    // SAFETY: CLONE_FS concerns the current directory, root and umask of this thread alone; no
    // memory and no descriptor is affected.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
        .map_err(|error| HarnessFault::new("giving the thread its own directory", error))?;
    let umask = call::umask(UMASK).expect("umask(2) cannot fail") as u32;
    call::umask(umask).expect("umask(2) cannot fail");
    Ok(OriginalContext { dir, umask })
}

/// Sets real and effective ids of this thread. The saved user id stays 0: the permission checks of
/// the kernel look at the effective ids and capabilities, which go with them (capabilities(7),
/// "Effect of user ID changes on capabilities"), and the saved one allows the way back.
fn become_user(user: &Identity) -> Result<(), HarnessFault> {
    const ROOT: u32 = 0;
    let switch = || -> Result<(), Errno> {
        call::setresuid(ROOT, ROOT, ROOT)?;
        call::setgroups(&user.groups)?;
        call::setresgid(user.gid, user.gid, user.gid)?;
        call::setresuid(user.uid, user.uid, ROOT)?;
        Ok(())
    };
    switch().map_err(|errno| HarnessFault::new(format!("becoming {user:?}"), errno))
}
