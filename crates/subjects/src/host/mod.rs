//! [`HostSubject`]: the one frame of all subjects that live in the kernel of this host.
//!
//! A directory, a file system of the kernel, a FUSE daemon and RefFS behind FUSE execute the same
//! system calls and are looked at in the same way: that is the frame's work, with the [`Executor`].
//! They differ in where their root directory comes from, how it becomes empty again and how it goes
//! back to an earlier state: that is a [`Backend`].
//!
//! Whenever a backend takes its file system away from under the operations (to unmount it, to
//! restore it), the frame has let go of it before: no slot is open, and every thread is elsewhere.
//!
//! Caller 0 executes on the thread of the subject, every other caller on one of its own, which is
//! started with its first operation ([ADR 19](../../../../docs/adr/0019-one-frame-of-host-subjects.md)).

mod at_once;
mod callers;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use fathom_core::flags::ServerEvents;
use fathom_core::schedule::DiskDelays;
use fathom_core::{
    Caller, Capability, CheckerReport, Digest, FsBytes, FsPath, HarnessFault, Op, Outcome,
    PathState, RestoreMethod, Saved, Schedule, Step, Subject, Testbed, Tree, Unblock,
};

use crate::sys::{Executor, Guard, View};
use callers::CallerThread;

/// Writes a file system back and gives it its mount options once more.
pub type Reconfigure = Box<dyn FnMut() -> std::io::Result<()> + Send>;

/// What one kind of host file system does in its own way. All but starting again is optional.
pub trait Backend {
    /// The name of the subject on the command line.
    fn name(&self) -> String;

    /// What operations can do here, apart from switching identities and remounting.
    fn capabilities(&self) -> BTreeSet<Capability>;

    /// Whether other users than the one of this process may use the file system at all.
    fn admits_other_users(&self) -> bool {
        true
    }

    /// Makes the file system empty, as it was first; returns its root.
    ///
    /// # Errors
    /// If the harness cannot.
    fn reset(&mut self) -> Result<OwnedFd, HarnessFault>;

    /// The reason why [`Backend::remount`] is impossible, if it is.
    fn why_no_remount(&self) -> Option<&'static str> {
        Some("nothing is mounted: what lies under it belongs to somebody else")
    }

    /// Unmounts and mounts again; returns the new root.
    ///
    /// # Errors
    /// If the file system cannot be unmounted or mounted.
    fn remount(&mut self) -> Result<OwnedFd, HarnessFault> {
        let why = self.why_no_remount().unwrap_or("it is not implemented");
        Err(HarnessFault::new("executing Remount", why))
    }

    /// How it can go back, the cheapest first.
    fn restore_methods(&self) -> Vec<RestoreMethod> {
        Vec::new()
    }

    /// Saves the mounted file system by a method that leaves it mounted.
    ///
    /// # Errors
    /// If it cannot be saved.
    fn save_mounted(&mut self) -> Result<Saved, HarnessFault> {
        Err(HarnessFault::new("saving", format!("{} cannot save what is mounted", self.name())))
    }

    /// Unmounts, saves ([`RestoreMethod::Remount`]) and mounts again; returns the new root, too.
    ///
    /// # Errors
    /// If it cannot be saved.
    fn save_unmounted(&mut self) -> Result<(Saved, OwnedFd), HarnessFault> {
        Err(HarnessFault::new("saving", format!("{} cannot be unmounted", self.name())))
    }

    /// Whether the root may stay open while a saved state is restored.
    fn root_stays(&self) -> bool {
        false
    }

    /// Goes back to a saved state; returns the root, unless it is the one that stayed open.
    ///
    /// # Errors
    /// If it cannot be restored.
    fn restore(&mut self, saved: Saved) -> Result<Option<OwnedFd>, HarnessFault> {
        Err(HarnessFault::new("restoring", format!("{saved:?} was not saved")))
    }

    /// Forgets a saved state.
    fn forget(&mut self, _saved: Saved) {}

    /// See [`Testbed::image`].
    ///
    /// # Errors
    /// If it cannot be read.
    fn image(&mut self, _saved: Saved) -> Result<Option<Vec<u8>>, HarnessFault> {
        Ok(None)
    }

    /// See [`Testbed::image_digest`].
    ///
    /// # Errors
    /// If it cannot be read.
    fn image_digest(&mut self, _saved: Saved) -> Result<Option<Digest>, HarnessFault> {
        Ok(None)
    }

    /// See [`Testbed::adopt`].
    ///
    /// # Errors
    /// If the subject has no disk, or not of this size.
    fn adopt(&mut self, _image: &[u8]) -> Result<Saved, HarnessFault> {
        Err(HarnessFault::new("taking over an image", format!("{} has no disk", self.name())))
    }

    /// Whether there is a checker for [`Backend::fsck`].
    fn has_checker(&self) -> bool {
        false
    }

    /// Unmounts, runs the checker and mounts again; returns what it said and the new root.
    ///
    /// # Errors
    /// If the checker cannot be run.
    fn fsck(&mut self) -> Result<(CheckerReport, OwnedFd), HarnessFault> {
        Err(HarnessFault::new("running the checker", format!("{} has none", self.name())))
    }

    /// See [`Testbed::complaints`].
    ///
    /// # Errors
    /// If the log cannot be read.
    fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        Ok(Vec::new())
    }

    /// See [`Testbed::wrong_locks`].
    fn wrong_locks(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// See [`Testbed::has_ended`].
    fn has_ended(&mut self) -> bool {
        false
    }

    /// See [`Testbed::last_words`].
    fn last_words(&mut self) -> Option<String> {
        None
    }

    /// See [`Testbed::unblock`].
    fn unblock(&self) -> Option<Unblock> {
        None
    }

    /// The root by another way (a second client of the same server), if there is one. What is closed on one
    /// way must be seen on the other: they take turns, see [`HostSubject`].
    ///
    /// # Errors
    /// If it cannot be had.
    fn other_root(&self) -> Result<Option<OwnedFd>, HarnessFault> {
        Ok(None)
    }

    /// From the next reset on, requests to the disk can be delayed, or no longer. Without a disk nothing happens.
    fn want_delays(&mut self, _wanted: bool) {}

    /// Delays the requests to the disk from now on, or no longer.
    fn delay_requests(&mut self, _delays: Option<DiskDelays>) {}

    /// What writes the mounted file system back and gives it its options once more, from another thread; `None`
    /// where nothing is mounted.
    ///
    /// # Errors
    /// If it cannot be made.
    fn reconfigurer(&self) -> Result<Option<Reconfigure>, HarnessFault> {
        Ok(None)
    }

    /// Is called after every operation on files.
    fn after_operation(&mut self) {}

    /// Whether [`Backend::remember_operation`] is to be called.
    fn remembers_operations(&self) -> bool {
        false
    }

    /// Is called after every operation on files, as the process itself.
    ///
    /// # Errors
    /// If what is to be remembered cannot be had.
    fn remember_operation(&mut self) -> Result<(), HarnessFault> {
        Ok(())
    }

    /// Whether what is looked at after [`Backend::disturb`] is asked of the server itself.
    fn asks_server_afterwards(&self) -> bool {
        false
    }

    /// Lets something happen to the server, until it is over: [`Op::Server`].
    /// The answer is how many calls were served from an export that was away: none should.
    ///
    /// # Errors
    /// If there is none, or it does not come back.
    fn disturb(&mut self, _events: ServerEvents) -> Result<Outcome, HarnessFault> {
        Err(HarnessFault::new("executing Server", format!("{} has no server", self.name())))
    }
}

/// A subject in the kernel of this host. Takes over its thread: see [`crate::sys`].
///
/// Where there are two ways to the file system ([`Backend::other_root`]), operations go the one, and while no
/// slot is open everything is looked at on the other. Whenever the last slot is closed, the ways are
/// exchanged: what that follows from is the operations alone, so that they can be run again and shortened.
pub struct HostSubject<B> {
    /// Executes the operations of caller 0. Dropped first: it keeps the file system busy.
    executor: Executor,
    /// Looks at the file system by the other way.
    watcher: Option<Executor>,
    /// The other callers.
    others: BTreeMap<Caller, CallerThread>,
    view: View,
    /// What each saved state contains that must be minded there.
    guards: BTreeMap<Saved, Guard>,
    /// Whether attributes are asked of the file system itself until the next operation.
    looks_past_caches: bool,
    pub(crate) backend: B,
}

impl<B: Backend> HostSubject<B> {
    /// Makes a subject of a backend and its root, which must be empty.
    pub(crate) fn with_root(
        backend: B,
        root: OwnedFd,
        view: View,
    ) -> Result<HostSubject<B>, HarnessFault> {
        let mut look = view.clone();
        look.opened = true;
        let watcher = backend.other_root()?.map(|root| Executor::new(root, look)).transpose()?;
        let executor = Executor::new(root, view.clone())?;
        let (others, guards) = (BTreeMap::new(), BTreeMap::new());
        let looks_past_caches = false;
        Ok(HostSubject { executor, watcher, others, view, guards, looks_past_caches, backend })
    }

    /// Who looks: the watcher, if there is one and everything is closed.
    fn looker(&mut self) -> &mut Executor {
        match &mut self.watcher {
            Some(watcher) if !self.executor.has_open_slots() => {
                watcher.learn_from(&self.executor);
                watcher
            }
            _ => &mut self.executor,
        }
    }

    /// The other way is taken from now on.
    fn exchange_ways(&mut self) -> Result<(), HarnessFault> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        let (ours, theirs) = (self.executor.root()?, watcher.root()?);
        self.executor.resume(theirs)?;
        watcher.resume(ours)
    }

    /// What is to be done after an operation on files.
    fn after_operation(&mut self) -> Result<(), HarnessFault> {
        self.backend.after_operation();
        if self.backend.remembers_operations() {
            self.executor.as_process(|| self.backend.remember_operation())??;
        }
        Ok(())
    }

    /// Lets the watcher look at what the backend has now.
    fn restart_watcher(&mut self) -> Result<(), HarnessFault> {
        match (&mut self.watcher, self.backend.other_root()?) {
            (Some(watcher), Some(root)) => watcher.restart(root),
            _ => Ok(()),
        }
    }

    /// The thread of a caller other than the first.
    fn other(&mut self, caller: Caller) -> Result<&CallerThread, HarnessFault> {
        if !self.others.contains_key(&caller) {
            let root = self.executor.root()?;
            self.executor.step_aside();
            let thread = CallerThread::start(caller, root, self.view.clone())?;
            self.others.insert(caller, thread);
        }
        Ok(&self.others[&caller])
    }

    /// Lets go of the file system: no caller has a slot open or is in it.
    fn release(&mut self) -> Result<(), HarnessFault> {
        self.executor.release();
        self.watcher.iter_mut().for_each(Executor::release);
        self.others.values().try_for_each(|other| other.run(Executor::release))
    }

    fn has_open_slots(&self) -> Result<bool, HarnessFault> {
        let mut open = self.executor.has_open_slots();
        for other in self.others.values() {
            open |= other.run(|executor| executor.has_open_slots())?;
        }
        Ok(open)
    }

    /// Ends all callers but the first, who lets go of the file system.
    fn release_alone(&mut self) {
        self.others.clear();
        self.executor.release();
        self.watcher.iter_mut().for_each(Executor::release);
    }

    /// Lets go of the file system while the backend exchanges its root for another one.
    fn with_released<T>(
        &mut self,
        exchange: impl FnOnce(&mut B) -> Result<(T, OwnedFd), HarnessFault>,
    ) -> Result<T, HarnessFault> {
        self.release()?;
        let (done, root) = exchange(&mut self.backend)?;
        for other in self.others.values() {
            let failed = |error| HarnessFault::new("sharing the root with all callers", error);
            let root = root.try_clone().map_err(failed)?;
            other.run(|executor| executor.resume(root))??;
        }
        self.executor.resume(root)?;
        self.restart_watcher()?;
        Ok(done)
    }

    fn remount(&mut self) -> Result<Outcome, HarnessFault> {
        if let Some(why) = self.backend.why_no_remount() {
            return Err(HarnessFault::new("executing Remount", why));
        }
        self.with_released(|backend| Ok((Outcome::ok(0), backend.remount()?)))
    }
}

impl<B: Backend> Subject for HostSubject<B> {
    fn name(&self) -> String {
        self.backend.name()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut capabilities = self.backend.capabilities();
        if self.executor.can_switch_identity() && self.backend.admits_other_users() {
            capabilities.insert(Capability::Identity);
        }
        if self.backend.why_no_remount().is_none() {
            capabilities.insert(Capability::Remount);
        }
        capabilities
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        if std::mem::take(&mut self.looks_past_caches) {
            self.ask_past_caches(false);
        }
        match op {
            Op::Remount => self.remount(),
            Op::Server { events } => {
                let outcome = self.executor.as_process(|| self.backend.disturb(*events))??;
                if self.backend.asks_server_afterwards() {
                    // What a client remembers of files that are open would hide what the server has lost.
                    self.looks_past_caches = true;
                    self.ask_past_caches(true);
                }
                Ok(outcome)
            }
            Op::Close { .. } if self.watcher.is_some() => {
                let was_open = self.executor.has_open_slots();
                let outcome = self.executor.apply(op)?;
                if was_open && !self.executor.has_open_slots() {
                    self.exchange_ways()?;
                }
                self.after_operation()?;
                Ok(outcome)
            }
            op => {
                let outcome = self.executor.apply(op)?;
                self.after_operation()?;
                Ok(outcome)
            }
        }
    }

    fn apply_as(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        if caller == 0 || *op == Op::Remount {
            return self.apply(op);
        }
        // What any caller has made must be minded by all.
        let (guard, op) = (self.executor.guard().clone(), op.clone());
        let (outcome, guard) = self.other(caller)?.run(move |executor| {
            executor.set_guard(guard);
            (executor.apply(&op), executor.guard().clone())
        })?;
        self.executor.set_guard(guard);
        outcome
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.looker().observe()
    }
}

impl<B: Backend> Testbed for HostSubject<B> {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.release_alone();
        let root = self.backend.reset()?;
        self.executor.restart(root)?;
        self.restart_watcher()
    }

    fn expect_callers(&mut self, schedule: &Schedule) {
        self.backend.want_delays(schedule.disk.is_some());
    }

    fn run_callers(&mut self, schedule: &Schedule) -> Result<Vec<Step>, HarnessFault> {
        self.run_at_once(schedule)
    }

    fn observe_paths(&mut self, paths: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
        self.looker().observe_paths(paths)
    }

    fn read_contents(
        &mut self,
        path: &FsPath,
        offset: u64,
        len: usize,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.executor.read_contents(path, offset, len)
    }

    fn read_xattr(
        &mut self,
        path: &FsPath,
        name: &FsBytes,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.executor.read_xattr(path, name)
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        self.backend.restore_methods()
    }

    fn save(&mut self, method: RestoreMethod) -> Result<Saved, HarnessFault> {
        let fault = |message| Err(HarnessFault::new("saving", message));
        if !self.restore_methods().contains(&method) {
            return fault(format!("{} cannot save by {method}", self.name()));
        }
        // A file system that saves itself knows what it has open.
        if method != RestoreMethod::Ioctl && self.has_open_slots()? {
            return fault("a slot is open: close it first".to_owned());
        }
        let saved = match method {
            RestoreMethod::Remount => self.with_released(Backend::save_unmounted)?,
            // The thread may be acting for a user who may not save anything.
            _ => self.executor.as_process(|| self.backend.save_mounted())??,
        };
        self.guards.insert(saved, self.executor.guard().clone());
        Ok(saved)
    }

    fn restore(&mut self, saved: Saved) -> Result<(), HarnessFault> {
        let none = || HarnessFault::new("restoring", format!("{saved:?} was not saved"));
        let guard = self.guards.get(&saved).cloned().ok_or_else(none)?;
        if self.backend.root_stays() {
            self.others.clear();
            self.executor.close_all();
        } else {
            self.release_alone();
        }
        match self.backend.restore(saved)? {
            Some(root) => self.executor.restart_with(root, &guard)?,
            None => self.executor.restart_here(guard)?,
        }
        self.restart_watcher()
    }

    fn forget(&mut self, saved: Saved) {
        if self.guards.remove(&saved).is_some() {
            self.backend.forget(saved);
        }
    }

    fn image(&mut self, saved: Saved) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.backend.image(saved)
    }

    fn image_digest(&mut self, saved: Saved) -> Result<Option<Digest>, HarnessFault> {
        self.backend.image_digest(saved)
    }

    /// Nothing is known of what is in the image, so operations in it are looked at more closely.
    fn adopt(&mut self, image: &[u8]) -> Result<Saved, HarnessFault> {
        let saved = self.backend.adopt(image)?;
        self.guards.insert(saved, Guard::wary());
        Ok(saved)
    }

    fn fsck(&mut self) -> Result<Option<CheckerReport>, HarnessFault> {
        if !self.backend.has_checker() {
            return Ok(None);
        }
        self.with_released(Backend::fsck).map(Some)
    }

    fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        self.backend.complaints()
    }

    fn wrong_locks(&mut self) -> Vec<String> {
        self.backend.wrong_locks()
    }

    fn has_ended(&mut self) -> bool {
        self.backend.has_ended()
    }

    fn last_words(&mut self) -> Option<String> {
        self.backend.last_words()
    }

    fn step_aside(&mut self) {
        self.executor.step_aside();
    }

    fn ask_past_caches(&mut self, ask: bool) {
        self.executor.set_fresh(ask);
        self.watcher.iter_mut().for_each(|watcher| watcher.set_fresh(ask));
    }

    fn unblock(&self) -> Option<Unblock> {
        self.backend.unblock()
    }
}
