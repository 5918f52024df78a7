//! [`KernelDisks`]: kernel file systems behind `Record` and `Examine`. Needs root.
//!
//! Operations are executed on a disk that is recorded ([`recorder`]); disks that a power failure left
//! are mounted, looked at, checked and used on loop devices in memory ([`examiner`]). Both happen on
//! threads of their own ([`pool`]), since an executor takes over its thread.

mod account;
mod examiner;
mod lying;
mod pool;
mod profile;
mod recorder;
mod rest;
mod server;
mod shared;
mod slow;
mod usable;
mod wire;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use fathom_block::disks::{
    Accounts, End, Examine, Facts, Interrupted, Questions, Recording, SubjectFailure, Trouble,
    Workload,
};
use fathom_block::{
    Bounds, CrashPoint, DiskFileSystem, Geometry, Guarantee, Image, Level, Record, Window,
};
use fathom_core::flags::OpenFlags;
use fathom_core::{Errno, HarnessFault, Op, Outcome, Tree};

use self::account::NamedPaths;
use self::examiner::{Examiner, execute};
use self::pool::{Equipped, Pool};
use self::recorder::DiskRecorder;
use self::rest::RestMemo;
use super::KernelSubject;
use super::recipe::Recipe;
use crate::error::SubjectError;
use crate::sys::{Executor, Guard, View};

pub use self::lying::Lie;
pub(crate) use self::lying::LyingDisks;
pub use self::profile::{CrashProfile, UnknownCrashProfile};
pub(crate) use self::server::PROCESS_NAME as DISK_PROCESS_NAME;
pub(super) use self::slow::SlowDisk;

/// Recovery is interrupted and repeated for one disk in so many: it takes as long as examining dozens.
const INTERRUPTED_ONE_IN: u128 = 64;

/// Disks of an interrupted recovery that are looked at.
const INTERRUPTED_MAX: usize = 24;

/// Disks that are examined at once.
const BATCH_DISKS: usize = 32;

/// A kernel file system whose power can be cut.
pub struct KernelDisks {
    name: String,
    version: String,
    profile: CrashProfile,
    blank: Image,
    recorders: Pool<Equipped<RecordingPlace>>,
    examiners: Pool<Equipped<Examiner>>,
    /// Examiners that tell what they read.
    telling: Pool<Equipped<Examiner>>,
    /// How much fits on a new disk, once that is known.
    capacity_bytes: OnceLock<u64>,
}

/// A disk that is recorded, and who executes on it.
struct RecordingPlace {
    recipe: Recipe,
    executor: Option<Executor>,
    disk: DiskRecorder,
}

impl KernelDisks {
    /// A new file system, made as the recipe says and held to the promises of the profile. `threads`
    /// disks are examined at the same time.
    ///
    /// # Errors
    /// Without root, without the formatting program, or if the kernel does not mount it.
    pub fn new(
        name: &str,
        recipe: Recipe,
        profile: CrashProfile,
        threads: usize,
    ) -> Result<KernelDisks, SubjectError> {
        let blank = new_disk(&recipe)?;
        let (place, size, repair) = (recipe.clone(), blank.size(), profile.repair(&recipe));
        let (first, rests) = (repair.clone(), Arc::new(RestMemo::default()));
        let told_rests = Arc::clone(&rests);
        let examiners = Pool::new("examiner", threads, move || {
            Ok(Examiner::new(&place, first.clone(), size, Arc::clone(&rests))?)
        })?;
        let soil = |examiner: &mut Examiner, disk: Image| examiner.soil(&disk);
        let blank = examiners.each([blank.clone()], soil)?.pop().unwrap_or(blank);
        let (place, base) = (recipe.clone(), blank.clone());
        let telling = Pool::new("telling", threads, move || {
            Ok(Examiner::telling_reads(&place, repair.clone(), &base, Arc::clone(&told_rests))?)
        })?;
        let (place, base) = (recipe.clone(), blank.clone());
        let recorders = Pool::new("recorder", 1, move || {
            let disk = DiskRecorder::new(&base)?;
            Ok(RecordingPlace { recipe: place.clone(), executor: None, disk })
        })?;
        let capacity_bytes = OnceLock::new();
        let (name, version) = (name.to_owned(), version(&recipe));
        Ok(KernelDisks {
            name,
            version,
            profile,
            blank,
            recorders,
            examiners,
            telling,
            capacity_bytes,
        })
    }

    /// The bare loop with which examining is compared: each disk is mounted, walked and unmounted, and
    /// nothing else; `full`: then checked, and once more. How many entries there were.
    ///
    /// # Errors
    /// If a disk does not mount, or the harness fails.
    pub fn walk_bare(&self, disks: &[Image], full: bool) -> Result<u64, HarnessFault> {
        let walk = move |examiner: &mut Examiner, disk: Image| examiner.walk_bare(&disk, full);
        Ok(self.examiners.each(disks.to_vec(), walk)?.into_iter().sum())
    }

    fn capacity_bytes(&self) -> Result<u64, HarnessFault> {
        if let Some(bytes) = self.capacity_bytes.get() {
            return Ok(*bytes);
        }
        let blank = self.blank.clone();
        let measured = self.examiners.each([blank], |examiner, disk| examiner.capacity(&disk))?;
        let bytes = measured.first().copied().unwrap_or(0);
        Ok(*self.capacity_bytes.get_or_init(|| bytes))
    }

    /// What an interrupted recovery of a disk comes to, if not to the same tree.
    fn interrupt_recovery(
        &self,
        disk: &Image,
        torn: bool,
        facts: &Facts,
    ) -> Result<Option<Trouble>, HarnessFault> {
        let Ok(view) = &facts.view else { return Ok(None) };
        let workload = Workload { ops: &[], end: End::PowerOff, look: false };
        let Ok(mounting) = self.record(disk, &workload)? else { return Ok(None) };
        let window = Window::new(disk, &mounting.log, self.geometry().atomic_bytes);
        let window = window.between(0, mounting.marks[0]);
        let mut disks = Vec::new();
        let levels: &[Level] = if torn { &[Level::Linear, Level::Torn] } else { &[Level::Linear] };
        for level in levels {
            let bounds = Bounds { subsets_max: 1, cuts_max: 1 };
            let _ = level.enumerator(&bounds).visit(&window, &mut |point, image| {
                disks.push((point.clone(), image.clone()));
                ControlFlow::Continue(())
            });
        }
        let step = disks.len().div_ceil(INTERRUPTED_MAX).max(1);
        let some: Vec<(CrashPoint, Image)> = disks.into_iter().step_by(step).collect();
        let (digest, tree) = (view.digest, view.tree.clone());
        let looked = self.examiners.each(some, move |examiner, (point, disk)| {
            let facts = examiner.examine(&disk, &Questions::TREE, None)?;
            Ok(match facts.view {
                Ok(view) if view.digest == digest => None,
                Ok(view) => Some(another_tree(&point, tree.as_deref(), view.tree.as_deref())),
                Err(failure) => {
                    let what = "recovery, interrupted, leaves what cannot be mounted";
                    let what = format!("{what} ({failure:?}; {point})");
                    Some(Trouble::InterruptedAt(Interrupted::Unmountable, what))
                }
            })
        })?;
        Ok(looked.into_iter().flatten().next())
    }
}

/// Recovery was interrupted at a point and repeated, and shows `found` instead of `tree`.
fn another_tree(point: &CrashPoint, tree: Option<&Tree>, found: Option<&Tree>) -> Trouble {
    let mut what = "recovery, interrupted and repeated, gives another tree".to_owned();
    if let (Some(tree), Some(found)) = (tree, found) {
        for difference in tree.differences(found) {
            what.push_str(&format!("; {difference}"));
        }
    }
    what.push_str(&format!(" ({point})"));
    Trouble::InterruptedAt(Interrupted::OtherTree, what)
}

/// What exactly is tested.
fn version(recipe: &Recipe) -> String {
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy().into_owned();
    let options = match recipe.options.as_slice() {
        [] => String::new(),
        options => format!(", mounted with {}", options.join(",")),
    };
    format!("{} of Linux {kernel}{options}", recipe.fs_type)
}

/// A new disk as the recipe makes it, mounted once and emptied.
fn new_disk(recipe: &Recipe) -> Result<Image, SubjectError> {
    if recipe.format.is_none() || recipe.layer.is_some() {
        let what = format!("{} has no disk of its own whose power could be cut", recipe.name);
        return Err(SubjectError::Recipe(what));
    }
    KernelSubject::new_disk(recipe)
}

/// Whether operations only look: they are executed where disks are examined, and leave no log.
fn only_reads(workload: &Workload<'_>) -> bool {
    let reads = |op: &&Op| match op {
        Op::Open { flags, .. } => flags.is_empty() || *flags == OpenFlags::O_DIRECTORY,
        Op::Pread { .. } | Op::Stat { .. } | Op::Getxattr { .. } | Op::Close { .. } => true,
        _ => false,
    };
    let ends = workload.end == End::PowerOff && !workload.look;
    ends && !workload.ops.is_empty() && workload.ops.iter().all(reads)
}

impl Record for KernelDisks {
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        let ops: Vec<Op> = workload.ops.iter().map(|op| (*op).clone()).collect();
        let (end, look, base) = (workload.end, workload.look, base.clone());
        let mut recorded = match only_reads(workload) {
            true => self.examiners.each([(base, ops)], |examiner, (disk, ops)| {
                let outcomes = examiner.read(&disk, &ops)?;
                Ok(outcomes.map(unrecorded).map_err(SubjectFailure::Mount))
            })?,
            false => self.recorders.each([(base, ops)], move |place, (base, ops)| {
                let recorded = place.record(&base, &ops, end, look)?;
                Ok(recorded.map_err(SubjectFailure::Mount))
            })?,
        };
        recorded.pop().ok_or_else(|| HarnessFault::new("recording", "nothing came of it"))
    }
}

/// A recording of operations that wrote nothing.
fn unrecorded(outcomes: Vec<Outcome>) -> Recording {
    let (marks, accounts) = (vec![0; outcomes.len() + 1], Vec::new());
    let log = fathom_block::WriteLog::new();
    Recording { outcomes, log, marks, unmounted: None, tree: None, accounts }
}

/// What came of operations so far.
#[derive(Default)]
struct Done {
    outcomes: Vec<Outcome>,
    marks: Vec<usize>,
    accounts: Vec<Accounts>,
}

impl RecordingPlace {
    /// Mounts a disk, executes, and takes the log.
    fn record(
        &mut self,
        base: &Image,
        ops: &[Op],
        end: End,
        look: bool,
    ) -> Result<Result<Recording, Errno>, HarnessFault> {
        self.disk.restart(base)?;
        if !self.disk.device().forget_cache() {
            // Somebody keeps the device open: a new one.
            self.disk = DiskRecorder::new(base)?;
        }
        let root = match examiner::mount_free(&self.recipe, self.disk.device()) {
            Ok(root) => root,
            Err(error) => {
                self.disk.check_server()?;
                return examiner::refused(error).map(Err);
            }
        };
        let mut done = Done { marks: vec![self.disk.position()], ..Done::default() };
        let shared = root.try_clone().map_err(SubjectError::io("share", "a mount"))?;
        match &mut self.executor {
            Some(executor) => executor.restart_with(shared, &Guard::wary())?,
            none => *none = Some(Executor::new(shared, View::default())?),
        }
        let looked = self.execute(ops, &root, look, &mut done);
        if let Some(executor) = &mut self.executor {
            executor.release();
        }
        drop(root);
        self.disk.device().wait_until_free()?;
        let tree = looked?;
        let unmounted = (end == End::Unmount).then(|| Outcome::ok(0));
        if unmounted.is_some() {
            done.marks.push(self.disk.position());
        }
        let Done { outcomes, marks, accounts } = done;
        let (log, marks) = self.disk.log(&marks)?;
        Ok(Ok(Recording { outcomes, log, marks, unmounted, tree, accounts }))
    }

    fn execute(
        &mut self,
        ops: &[Op],
        root: &std::os::fd::OwnedFd,
        look: bool,
        done: &mut Done,
    ) -> Result<Option<Tree>, HarnessFault> {
        let none = || HarnessFault::new("recording", "nobody executes");
        let executor = self.executor.as_mut().ok_or_else(none)?;
        let mut named = NamedPaths::default();
        for op in ops {
            done.outcomes.push(execute(executor, op, root)?);
            done.marks.push(self.disk.position());
            named.note(op);
            done.accounts.push(named.accounts_after(op, root));
        }
        if look { executor.observe().map(Some) } else { Ok(None) }
    }
}

impl Examine for KernelDisks {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        self.examine_in(&self.examiners, disks, questions)
    }

    fn examine_telling_reads(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Option<Result<Vec<Arc<Facts>>, HarnessFault>> {
        Some(self.examine_in(&self.telling, disks, questions))
    }

    fn batch_disks(&self) -> usize {
        BATCH_DISKS
    }
}

impl KernelDisks {
    /// Has disks examined by a pool, and the recovery of some of them interrupted.
    fn examine_in(
        &self,
        pool: &Pool<Equipped<Examiner>>,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        let capacity_bytes = questions.usable.then(|| self.capacity_bytes()).transpose()?;
        let asked = *questions;
        let facts = pool.each(disks.to_vec(), move |examiner, disk| {
            examiner.examine(&disk, &asked, capacity_bytes)
        })?;
        let mut all = Vec::new();
        for (disk, mut facts) in disks.iter().zip(facts) {
            let interrupts = disk.digest().0 % INTERRUPTED_ONE_IN == 0 && facts.trouble.is_none();
            if let Some(recheck) = questions.recheck.filter(|_| interrupts) {
                facts.trouble = self.interrupt_recovery(disk, recheck.torn, &facts)?;
            }
            all.push(Arc::new(facts));
        }
        Ok(all)
    }
}

impl DiskFileSystem for KernelDisks {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn geometry(&self) -> Geometry {
        self.profile.geometry(self.blank.size())
    }

    fn guarantee(&self) -> &Guarantee {
        &self.profile.guarantee
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        Ok(self.blank.clone())
    }

    fn is_deterministic(&self) -> bool {
        false
    }
}
