//! [`ThreadContext`]: current directory, file mode creation mask and identity of an executor on its
//! thread.
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
    /// The identity of the calling process.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub(crate) fn of_process() -> Result<Identity, HarnessFault> {
        let groups = rustix::process::getgroups()
            .map_err(|error| HarnessFault::new("reading the supplementary groups", error))?;
        Ok(Identity {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(|gid| gid.as_raw()).collect(),
        })
    }
}

/// The mask of a new executor: the same one that the reference starts with.
pub const UMASK: u32 = 0o022;

/// The directory and mask of the thread before the first context on it was taken.
struct OriginalContext {
    dir: OwnedFd,
    umask: u32,
}

thread_local! {
    static ACTIVE: Cell<u64> = const { Cell::new(NO_CONTEXT) };
    static ORIGINAL: RefCell<Option<OriginalContext>> = const { RefCell::new(None) };
}

/// The thread is as it was before the first context.
const NO_CONTEXT: u64 = 0;
/// A context was to be taken, and the thread may be half way.
const UNKNOWN_CONTEXT: u64 = 1;
static NEXT_ID: AtomicU64 = AtomicU64::new(UNKNOWN_CONTEXT + 1);

/// Current directory, file mode creation mask and identity that an executor needs on its thread.
pub(super) struct ThreadContext {
    id: u64,
    /// The directory that paths are relative to; none while the file system is unmounted.
    root: Option<OwnedFd>,
    umask: u32,
    own: Identity,
    acting: Identity,
    can_switch: bool,
    /// Keeps the context on its thread, to which the kernel state behind it belongs.
    not_send: PhantomData<*const ()>,
}

impl ThreadContext {
    /// Takes a context in `root` on this thread.
    pub(super) fn new(root: OwnedFd) -> Result<ThreadContext, HarnessFault> {
        ORIGINAL.with_borrow_mut(|original| {
            if original.is_none() {
                *original = Some(unshare_context()?);
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

    /// Gives the thread the directory, mask and identity of this context, if another context was
    /// used in between.
    pub(super) fn activate(&self) -> Result<(), HarnessFault> {
        if ACTIVE.get() == self.id {
            return Ok(());
        }
        let root = self.root.as_ref().ok_or_else(|| {
            HarnessFault::new("executing on an unmounted file system", "mount it first")
        })?;
        // What the thread has already is not set again: system calls are dear in a guest.
        let is_original = ACTIVE.replace(UNKNOWN_CONTEXT) == NO_CONTEXT;
        if self.can_switch && !is_original {
            become_user(&self.own)?;
        }
        call::fchdir(root.as_raw_fd())
            .map_err(|errno| HarnessFault::new("entering the directory of the subject", errno))?;
        if !is_original || self.umask != original_umask() {
            call::umask(self.umask).expect("umask(2) cannot fail");
        }
        if self.acting != self.own {
            become_user(&self.acting)?;
        }
        ACTIVE.set(self.id);
        Ok(())
    }

    /// Gives the thread back its directory, its mask, and the identity of the process.
    pub(super) fn deactivate(&self) {
        if ACTIVE.get() != self.id {
            return;
        }
        ACTIVE.set(NO_CONTEXT);
        if self.acting != self.own {
            become_user(&self.own).expect("the saved user id allows the way back");
        }
        ORIGINAL.with_borrow(|original| {
            let original = original.as_ref().expect("new() has set it");
            if self.umask != original.umask {
                call::umask(original.umask).expect("umask(2) cannot fail");
            }
            // The old directory may have been removed meanwhile, but it can still be entered.
            call::fchdir(original.dir.as_raw_fd()).expect("a directory that was current before");
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

    /// Restores mask and identity to those of the beginning.
    pub(super) fn forget(&mut self) {
        self.deactivate();
        self.umask = UMASK;
        self.acting = self.own.clone();
    }

    /// Restores mask and identity to those of the beginning, in the same directory: three system
    /// calls fewer than [`ThreadContext::forget`], and none at all if nothing was changed.
    pub(super) fn reset(&mut self) -> Result<(), HarnessFault> {
        let is_active = ACTIVE.get() == self.id;
        if is_active && self.acting != self.own {
            become_user(&self.own)?;
        }
        if is_active && self.umask != UMASK {
            call::umask(UMASK).expect("umask(2) cannot fail");
        }
        self.umask = UMASK;
        self.acting.clone_from(&self.own);
        Ok(())
    }

    /// The directory that paths are relative to.
    pub(super) fn root(&self) -> Option<&OwnedFd> {
        self.root.as_ref()
    }

    /// Whether [`ThreadContext::act_as`] is possible.
    pub(super) fn can_switch(&self) -> bool {
        self.can_switch
    }

    /// Calls `umask(2)`.
    pub(super) fn set_umask(&mut self, mask: u32) -> call::Answer {
        self.umask = mask & 0o777;
        call::umask(mask)
    }

    /// Makes operations run as this user from now on.
    pub(super) fn act_as(&mut self, user: Identity) -> Result<(), HarnessFault> {
        become_user(&user)?;
        self.acting = user;
        Ok(())
    }

    /// Runs `work` with the rights of the process, whoever operations run as. Those come with the effective
    /// user alone, so that the groups stay: every operation is looked at this way.
    pub(super) fn as_process<T>(&self, work: impl FnOnce() -> T) -> Result<T, HarnessFault> {
        if self.acting == self.own {
            return Ok(work());
        }
        become_effective(self.own.uid)?;
        let result = work();
        become_effective(self.acting.uid)?;
        Ok(result)
    }

    /// Whether identities can really be switched: root in a container may lack the capabilities.
    fn try_to_switch(&self) -> Result<bool, HarnessFault> {
        /// An unprivileged id: `nobody` of most distributions; any id but 0 would do.
        const UNPRIVILEGED: u32 = 65534;
        if self.own.uid != 0 {
            return Ok(false);
        }
        let unprivileged = Identity { uid: UNPRIVILEGED, gid: UNPRIVILEGED, groups: Vec::new() };
        let switched = become_user(&unprivileged).is_ok();
        become_user(&self.own)?;
        Ok(switched)
    }
}

impl Drop for ThreadContext {
    fn drop(&mut self) {
        self.deactivate();
    }
}

/// The mask of the thread before the first context on it was taken.
fn original_umask() -> u32 {
    ORIGINAL.with_borrow(|original| original.as_ref().expect("new() has set it").umask)
}

/// Remembers where the thread is and gives it a directory and mask of its own.
fn unshare_context() -> Result<OriginalContext, HarnessFault> {
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
        if user.uid != ROOT {
            call::setresuid(user.uid, user.uid, ROOT)?;
        }
        Ok(())
    };
    switch().map_err(|errno| HarnessFault::new(format!("becoming {user:?}"), errno))
}

/// Sets the effective user id of this thread. Its capabilities become effective again with user 0, since one
/// of its ids has always been 0 (see [`become_user`]).
fn become_effective(uid: u32) -> Result<(), HarnessFault> {
    /// What setresuid(2) leaves as it is.
    const UNCHANGED: u32 = u32::MAX;
    call::setresuid(UNCHANGED, uid, UNCHANGED)
        .map(drop)
        .map_err(|errno| HarnessFault::new(format!("acting as user {uid}"), errno))
}
