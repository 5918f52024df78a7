//! [`ModelSubject`]: the reference in the place of a file system under test.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use fathom_core::schedule::{EventClock, Planned, in_order, scheduled_step};
use fathom_core::{
    Caller, Capability, FsBytes, FsPath, HarnessFault, Op, Outcome, PathState, RestoreMethod,
    Saved, Schedule, Step, Subject, Testbed, Tree,
};

use crate::config::{Config, ConfigError};
use crate::race;
use crate::syscall::Model;
use crate::virtual_time;
use crate::volume::TreeOptions;

/// A [`Model`] that can be walked on. With a mutant switched on it is the liar that a campaign must
/// find, without one the honest subject that it must not accuse.
#[derive(Clone, Debug)]
pub struct ModelSubject {
    model: Model,
    empty: Model,
    saved: BTreeMap<Saved, Model>,
    saved_next: u64,
    virtual_time: bool,
}

/// What is looked at: everything there is.
const EVERYTHING: TreeOptions = TreeOptions { segments: true, times: true };

impl ModelSubject {
    /// An empty file system.
    ///
    /// # Errors
    /// If the configuration cannot work.
    pub fn new(config: Config) -> Result<ModelSubject, ConfigError> {
        let empty = Model::new(config)?;
        Ok(ModelSubject {
            model: empty.clone(),
            empty,
            saved: BTreeMap::new(),
            saved_next: 0,
            virtual_time: false,
        })
    }

    /// Lets several callers work in a time of their own: one schedule is then one history, on every machine.
    #[must_use]
    pub fn with_virtual_time(self) -> ModelSubject {
        ModelSubject { virtual_time: true, ..self }
    }

    /// The file system as it is now.
    pub fn model(&self) -> &Model {
        &self.model
    }
}

impl Subject for ModelSubject {
    fn name(&self) -> String {
        self.model.name()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.model.capabilities()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        self.model.apply(op)
    }

    fn apply_as(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        self.model.apply_as(caller, op)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.model.observe()
    }
}

/// How long a call in halves lets others in, in turns of a loop: there is no clock here.
const GAP_TURNS: u64 = 20_000;

/// What one turn stands for.
const TURN_NS: u64 = 5;

/// One model that several threads use, one call at a time; in halves where a race is switched on.
struct Shared {
    model: Mutex<Model>,
    clock: EventClock,
    barrier: Barrier,
}

impl Shared {
    fn locked(&self, work: &mut dyn FnMut(&mut Model)) {
        work(&mut self.model.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn execute(&self, caller: Caller, op: &Op) -> Outcome {
        let mut outcome = Outcome::ok(0);
        let mut race = None;
        self.locked(&mut |model| {
            race = model.volume().config().race;
            if race.is_none() {
                outcome = model.execute_as(caller, op);
            }
        });
        match race {
            None => outcome,
            Some(race) => {
                let gap = || {
                    thread::yield_now();
                    pause(GAP_TURNS);
                };
                race::execute(race, caller, op, &|work| self.locked(work), &gap)
            }
        }
    }

    fn run(&self, caller: Caller, lane: &[Planned]) -> Vec<Step> {
        self.barrier.wait();
        let mut steps = Vec::with_capacity(lane.len());
        for Planned { delay_ns, op } in lane {
            pause(delay_ns / TURN_NS);
            let (outcome, from, to) = self.clock.timed(|| self.execute(caller, op));
            steps.push(scheduled_step(caller, op, outcome, (from, to)));
        }
        steps
    }
}

/// Does nothing for so many turns. Yielding instead would wait for every other process of a busy machine.
fn pause(turns: u64) {
    for _ in 0..turns {
        std::hint::spin_loop();
    }
}

impl Testbed for ModelSubject {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.model = self.empty.clone();
        Ok(())
    }

    fn run_callers(&mut self, schedule: &Schedule) -> Result<Vec<Step>, HarnessFault> {
        if self.virtual_time {
            let (model, steps) = virtual_time::run(self.model.clone(), schedule);
            self.model = model;
            return Ok(steps);
        }
        let shared = Shared {
            model: Mutex::new(self.model.clone()),
            clock: EventClock::default(),
            barrier: Barrier::new(schedule.lanes.len()),
        };
        let mut steps = Vec::with_capacity(schedule.len());
        thread::scope(|scope| {
            let threads: Vec<_> = schedule
                .lanes
                .iter()
                .enumerate()
                .map(|(caller, lane)| {
                    let shared = &shared;
                    scope.spawn(move || shared.run(caller as Caller, lane))
                })
                .collect();
            for thread in threads {
                let fault = |_| HarnessFault::new("running a caller", "it panicked: see above");
                steps.extend(thread.join().map_err(fault)?);
            }
            Ok::<_, HarnessFault>(())
        })?;
        self.model = shared.model.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(in_order(steps))
    }

    fn observe_paths(&mut self, paths: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
        let volume = self.model.volume();
        Ok(paths.iter().map(|path| volume.path_state(path, EVERYTHING)).collect())
    }

    fn read_contents(
        &mut self,
        path: &FsPath,
        offset: u64,
        len: usize,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        let volume = self.model.volume();
        let mut bytes = Vec::new();
        let read = volume.find(path, false).map(|ino| volume.read(ino, offset, len, &mut bytes));
        Ok(matches!(read, Some(Ok(()))).then_some(bytes))
    }

    fn read_xattr(
        &mut self,
        path: &FsPath,
        name: &FsBytes,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        let volume = self.model.volume();
        let value = volume.find(path, false).map(|ino| volume.getxattr(ino, name.as_bytes()));
        Ok(value.and_then(Result::ok).map(|value| value.as_bytes().to_vec()))
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        vec![RestoreMethod::Clone]
    }

    /// A clone shares everything with the original until one of them changes.
    fn save(&mut self, method: RestoreMethod) -> Result<Saved, HarnessFault> {
        if method != RestoreMethod::Clone {
            return Err(HarnessFault::new("saving", format!("the model cannot save by {method}")));
        }
        let saved = Saved(self.saved_next);
        self.saved_next += 1;
        self.saved.insert(saved, self.model.clone());
        Ok(saved)
    }

    fn restore(&mut self, saved: Saved) -> Result<(), HarnessFault> {
        let state = self.saved.get(&saved).ok_or_else(|| {
            HarnessFault::new("restoring", format!("the model saved no {saved:?}"))
        })?;
        self.model = state.clone();
        self.model.renew_process();
        Ok(())
    }

    fn forget(&mut self, saved: Saved) {
        self.saved.remove(&saved);
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Errno, Mode, Pattern};

    use super::*;

    fn create(path: &str) -> Op {
        let flags = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
        Op::Open { slot: 0, path: path.into(), flags, mode: Mode(0o644) }
    }

    #[test]
    fn saved_states_come_back_and_the_process_starts_again() {
        let mut subject = ModelSubject::new(Config::default()).unwrap();
        subject.apply(&create("f")).unwrap();
        let (saved, tree) =
            (subject.save(RestoreMethod::Clone).unwrap(), subject.observe().unwrap());
        let data = Pattern { seed: 1, len: 9 };
        subject.apply(&Op::Write { slot: 0, data }).unwrap();
        subject.apply(&Op::Umask { mask: Mode(0o7) }).unwrap();
        subject.apply(&Op::Identity { uid: 7, gid: 7, groups: Vec::new() }).unwrap();
        for _ in 0..2 {
            subject.restore(saved).unwrap();
            assert_eq!(tree, subject.observe().unwrap());
            let closed = subject.apply(&Op::Close { slot: 0 }).unwrap();
            assert_eq!(closed, Outcome::err(Errno::EBADF), "every slot is closed");
            let mask = subject.apply(&Op::Umask { mask: Mode(0o77) }).unwrap();
            assert_eq!(mask, Outcome::ok(0o022), "the first mask");
            let mkdir = Op::Mkdir { path: "d".into(), mode: Mode(0o755) };
            assert_eq!(subject.apply(&mkdir).unwrap(), Outcome::ok(0), "the first user");
        }
        subject.forget(saved);
        assert!(subject.restore(saved).is_err());
        assert!(subject.save(RestoreMethod::Freeze).is_err());
        subject.reset().unwrap();
        assert_eq!(subject.observe().unwrap().entries.len(), 1);
    }

    #[test]
    fn observing_paths_shows_what_the_tree_shows() {
        let mut subject = ModelSubject::new(Config::default()).unwrap();
        for path in ["d", "d/e", "d/e/f", "d/b"] {
            subject.apply(&Op::Mkdir { path: path.into(), mode: Mode(0o755) }).unwrap();
        }
        subject.apply(&create("d/a")).unwrap();
        subject.apply(&Op::Symlink { target: "d".into(), path: "l".into() }).unwrap();
        let tree = subject.observe().unwrap();
        let paths = [".", "d", "d/a", "d/e/f", "l", "missing", "d/a/x"].map(FsPath::from);
        for (path, seen) in paths.iter().zip(subject.observe_paths(&paths).unwrap()) {
            assert_eq!(seen, tree.path_state(path), "{path}");
        }
    }
}
