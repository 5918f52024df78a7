//! [`Examiner`]: a loop device on memory, on which one disk after the other is mounted, looked at,
//! checked and used.
//!
//! Only what differs from the disk before is written. The kernel's cache of the device is emptied each
//! time: what it remembers of the last disk would be mounted instead of the new one.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fathom_block::Image;
use fathom_block::disks::{
    Checked, Facts, PruneCounts, Questions, ReadSet, SubjectFailure, Trouble, View as DiskView,
};
use fathom_core::flags::OpenFlags;
use fathom_core::plain::FILE_MODE;
use fathom_core::{Errno, FsPath, HarnessFault, Op, Outcome, Pattern, Tree};
use rustix::fs::AtFlags;

use super::account;
use super::recorder::{DiskRecorder, Unused, changed, narrowed, put_whole};
use super::rest::{Asked, RestMemo};
use super::shared::SharedMemory;
use super::usable::{self, Filling};
use crate::error::SubjectError;
use crate::kernel::image::RunningProgram;
use crate::kernel::log::KernelLog;
use crate::kernel::loop_device::LoopDevice;
use crate::kernel::recipe::{Program, Recipe};
use crate::kernel::{image, judge, mount};
use crate::sys::{Executor, Guard, View};

/// A place where disks are mounted. Takes over its thread: see [`crate::sys`].
pub(super) struct Examiner {
    recipe: Recipe,
    /// What is run on every disk before it is mounted.
    repair: Option<Program>,
    executor: Option<Executor>,
    place: Place,
    log: Result<KernelLog, HarnessFault>,
    /// The disk that is mounted, if one is.
    mounted: Option<(fathom_core::Digest, OwnedFd)>,
    /// What all examiners know of the rest of examinations.
    rests: Arc<RestMemo>,
    /// A disk that tells what the rest of an examination reads, once one was wanted.
    served: Option<DiskRecorder>,
}

/// Where the disk is.
enum Place {
    /// In memory.
    Memory { device: Option<LoopDevice>, disk: SharedMemory },
    /// Served by a process of ours that notes what is read. Slower.
    Served(DiskRecorder),
}

impl Place {
    /// Makes the unmounted disk hold `image`.
    fn load(&mut self, image: &Image) -> Result<(), HarnessFault> {
        match self {
            Place::Memory { device, disk } => {
                put_whole(disk, image, Unused::GivenBack)?;
                // The device remembers what it has read.
                if !device.as_ref().is_some_and(LoopDevice::forget_cache) {
                    *device = None;
                    *device = Some(LoopDevice::attach(disk.file())?);
                }
            }
            Place::Served(disk) => {
                disk.restart(image)?;
                if !disk.device().forget_cache() {
                    *disk = DiskRecorder::prompt(image)?;
                }
            }
        }
        Ok(())
    }

    fn device(&self) -> Result<&LoopDevice, HarnessFault> {
        let none = || HarnessFault::new("examining a disk", "its device could not be made");
        match self {
            Place::Memory { device, .. } => device.as_ref().ok_or_else(none),
            Place::Served(disk) => Ok(disk.device()),
        }
    }

    /// The disk as a file.
    fn file(&self) -> &OwnedFd {
        match self {
            Place::Memory { disk, .. } => disk.file(),
            Place::Served(disk) => disk.file(),
        }
    }

    /// The memory that holds the disk.
    fn memory(&self) -> &SharedMemory {
        match self {
            Place::Memory { disk, .. } => disk,
            Place::Served(disk) => disk.memory(),
        }
    }

    /// Notes units that were read of a copy of the unmounted disk.
    fn note_read(&self, units: &[u32]) {
        if let Place::Served(disk) = self {
            disk.note_read(units);
        }
    }

    /// What was read of the disk since it was loaded.
    fn reads(&self) -> Result<ReadSet, HarnessFault> {
        match self {
            Place::Memory { .. } => Ok(ReadSet::everything()),
            Place::Served(disk) => disk.reads(),
        }
    }
}

/// What a deleted file leaves on every new disk: more than a workload writes.
const SOIL_BYTES: u64 = 1 << 20;

/// How long a device of ours may be claimed by a copy of a descriptor.
const BUSY_AT_MOST: Duration = Duration::from_secs(10);

/// No workload writes this pattern.
const SOIL_SEED: u64 = u64::MAX;

/// Something that is wrong with the disk, or with the harness.
enum Stop {
    Trouble(Trouble),
    Fault(HarnessFault),
}

impl From<HarnessFault> for Stop {
    fn from(fault: HarnessFault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Stop {
        Stop::Trouble(trouble)
    }
}

/// Mounts a device that is ours. Another thread that is about to start a program has for a moment copies of our
/// descriptors, and with one of them it claims the device: no fault of the disk.
pub(super) fn mount_free(recipe: &Recipe, device: &LoopDevice) -> Result<OwnedFd, SubjectError> {
    let deadline = Instant::now() + BUSY_AT_MOST;
    loop {
        match mount::mount(recipe, Some(device.path())) {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                device.wait_until_free()?
            }
            mounted => return mounted,
        }
    }
}

/// Whether the kernel did not mount a device because somebody else had it.
fn is_busy(error: &SubjectError) -> bool {
    let SubjectError::Mount { source, .. } = error else { return false };
    source.raw_os_error() == Some(libc::EBUSY)
}

/// The errno of a mount that the kernel refused; what else goes wrong is a fault of the harness.
pub(super) fn refused(error: SubjectError) -> Result<Errno, HarnessFault> {
    match error {
        busy if is_busy(&busy) => Err(busy.into()),
        SubjectError::Mount { source, what, .. } if what == "superblock" || what == "fsmount" => {
            Ok(Errno(source.raw_os_error().unwrap_or(libc::EIO) as u16))
        }
        other => Err(other.into()),
    }
}

impl Examiner {
    /// A place for disks of so many bytes.
    pub(super) fn new(
        recipe: &Recipe,
        repair: Option<Program>,
        disk_bytes: usize,
        rests: Arc<RestMemo>,
    ) -> Result<Examiner, SubjectError> {
        let name = format!("fathom-image-{}", std::process::id());
        let disk =
            SharedMemory::new(&name, disk_bytes).map_err(SubjectError::io("make", "a disk"))?;
        let device = Some(LoopDevice::attach(disk.file())?);
        Ok(Examiner::at(recipe, repair, Place::Memory { device, disk }, rests))
    }

    /// A place for disks like `image` that tells what is read of them.
    pub(super) fn telling_reads(
        recipe: &Recipe,
        repair: Option<Program>,
        image: &Image,
        rests: Arc<RestMemo>,
    ) -> Result<Examiner, SubjectError> {
        Ok(Examiner::at(recipe, repair, Place::Served(DiskRecorder::prompt(image)?), rests))
    }

    fn at(
        recipe: &Recipe,
        repair: Option<Program>,
        place: Place,
        rests: Arc<RestMemo>,
    ) -> Examiner {
        let log = KernelLog::open();
        Examiner {
            recipe: recipe.clone(),
            repair,
            executor: None,
            place,
            log,
            mounted: None,
            rests,
            served: None,
        }
    }

    /// Makes the unmounted disk hold `image`, repaired if it must be.
    fn load(&mut self, image: &Image) -> Result<(), HarnessFault> {
        self.place.load(image)?;
        if let Some(repair) = &self.repair {
            // What it says is told by what it leaves.
            image::repair(self.place.file(), repair)?;
            self.remove_made_entries()?;
        }
        Ok(())
    }

    /// Takes away what a checker makes as mkfs does and the reference does not have (`lost+found`); if something
    /// is in it, it stays: that has lost its place, and whoever looks shall see it.
    fn remove_made_entries(&self) -> Result<(), HarnessFault> {
        if self.recipe.removed_entries.is_empty() {
            return Ok(());
        }
        // A disk that does not mount is told of when it is mounted to be looked at.
        let Ok(root) = mount_free(&self.recipe, self.device()?) else { return Ok(()) };
        for name in &self.recipe.removed_entries {
            let _ = rustix::fs::unlinkat(&root, name, AtFlags::REMOVEDIR);
        }
        drop(root);
        Ok(self.device()?.wait_until_free()?)
    }

    fn device(&self) -> Result<&LoopDevice, HarnessFault> {
        self.place.device()
    }

    /// Mounts the disk as it is.
    fn mount(&mut self) -> Result<Result<OwnedFd, Errno>, HarnessFault> {
        let root = match mount_free(&self.recipe, self.device()?) {
            Ok(root) => root,
            Err(error) => return refused(error).map(Err),
        };
        let shared = root.try_clone().map_err(SubjectError::io("share", "a mount"))?;
        // Nothing is known of what is in it.
        match &mut self.executor {
            Some(executor) => executor.restart_with(shared, &Guard::wary())?,
            none => {
                let mut executor = Executor::new(shared, View::default())?;
                let again = root.try_clone().map_err(SubjectError::io("share", "a mount"))?;
                executor.restart_with(again, &Guard::wary())?;
                *none = Some(executor);
            }
        }
        Ok(Ok(root))
    }

    fn executor(&mut self) -> Result<&mut Executor, HarnessFault> {
        let none = || HarnessFault::new("examining a disk", "nothing is mounted");
        self.executor.as_mut().ok_or_else(none)
    }

    fn unmount(&mut self, root: OwnedFd) -> Result<(), HarnessFault> {
        if let Some(executor) = &mut self.executor {
            executor.release();
        }
        drop(root);
        Ok(self.device()?.wait_until_free()?)
    }

    /// Unmounts what was left mounted for further questions.
    fn leave(&mut self) -> Result<(), HarnessFault> {
        match self.mounted.take() {
            Some((_, root)) => self.unmount(root),
            None => Ok(()),
        }
    }

    /// What the kernel has said about the device since the last time.
    fn kernel_lines(&mut self) -> Result<Vec<String>, HarnessFault> {
        let name = self.device()?.path().file_name().unwrap_or_default().to_string_lossy();
        let names = [name.into_owned()];
        match &mut self.log {
            Ok(log) => log.complaints(&names),
            Err(fault) => Err(HarnessFault::new(&*fault.context, &fault.message)),
        }
    }

    /// Whatever the kernel has said so far is no matter of the next disk.
    fn skip_kernel_lines(&self) -> Result<(), HarnessFault> {
        self.log.as_ref().map_or(Ok(()), KernelLog::skip)
    }

    /// The facts about a disk.
    pub(super) fn examine(
        &mut self,
        disk: &Image,
        questions: &Questions,
        filling: Option<Filling>,
    ) -> Result<Facts, HarnessFault> {
        let start = Instant::now();
        self.leave()?;
        self.load(disk)?;
        self.skip_kernel_lines()?;
        let root = match self.mount()? {
            Ok(root) => root,
            Err(errno) => {
                let mut facts = Facts::new(Err(SubjectFailure::Mount(errno)));
                facts.kernel_lines = self.kernel_lines()?;
                facts.took = start.elapsed();
                return Ok(facts);
            }
        };
        let tree = Arc::new(self.executor()?.observe()?);
        let view = DiskView::new(&tree, questions.tree);
        let is_readable = view.broken.is_none();
        let mut facts = Facts::new(Ok(view));
        facts.accounts = Arc::new(account::of_tree(&root, &tree));
        facts.repaired = questions.repaired.then(|| Ok(Arc::clone(&tree)));
        // A mount writes: the journal is replayed, the disk is marked as in use.
        facts.wrote = true;
        if questions.recheck.is_some() && is_readable {
            self.unmount(root)?;
            self.examine_rest(disk, &tree, questions, filling, &mut facts)?;
        } else {
            self.unmount(root)?;
        }
        facts.kernel_lines.extend(self.kernel_lines()?);
        facts.read = self.place.reads()?;
        facts.took = start.elapsed();
        Ok(facts)
    }

    /// What comes after the first look at a disk; or its answer, if recovery has left the disk as it left
    /// another one.
    fn examine_rest(
        &mut self,
        disk: &Image,
        tree: &Tree,
        questions: &Questions,
        filling: Option<Filling>,
        facts: &mut Facts,
    ) -> Result<(), HarnessFault> {
        let (rests, memory) = (Arc::clone(&self.rests), self.place.memory());
        let asked = Asked { questions: *questions, tree: tree.digest(), filling };
        if let Some(answer) = rests.answer(&asked, |at, len| memory.bytes(at, len)) {
            self.place.note_read(&answer.units);
            facts.rest = PruneCounts { pruned: 1, ..PruneCounts::default() };
            if answer.verify {
                self.try_using(tree, questions, filling, facts)?;
                facts.rest.verified = 1;
                if facts.trouble.is_some() || facts.checker != answer.checker {
                    facts.rest.refuted = 1;
                    rests.switch_off();
                }
            } else {
                facts.checker = answer.checker;
            }
            return Ok(());
        }
        if !rests.pays() {
            return self.try_using(tree, questions, filling, facts);
        }
        rests.count_told();
        // The same disk, where reads are noted; what the kernel says of it is said of another device.
        let recovered = changed(memory, disk)?;
        facts.kernel_lines = self.kernel_lines()?;
        let mut served = match self.served.take() {
            Some(served) => served,
            None => DiskRecorder::prompt(&recovered)?,
        };
        served.restart(&recovered)?;
        if !served.device().forget_cache() {
            served = DiskRecorder::prompt(&recovered)?;
        }
        let place = std::mem::replace(&mut self.place, Place::Served(served));
        let used = self.try_using(tree, questions, filling, facts);
        let read = self.place.reads();
        let lines = self.kernel_lines();
        if let Place::Served(served) = std::mem::replace(&mut self.place, place) {
            self.served = Some(served);
        }
        used?;
        let (read, lines) = (read?, lines?);
        // A disk that is too large to be noted tells nothing, here or there.
        if let Some(units) = read.unordered_units().map(Iterator::collect::<Arc<[u32]>>) {
            self.place.note_read(&units);
            let is_content = !matches!(facts.checker, Checked::Complains(_));
            if is_content && facts.trouble.is_none() && lines.is_empty() {
                rests.learn(&asked, recovered, units, facts.checker.clone());
            }
        }
        facts.kernel_lines.extend(lines);
        Ok(())
    }

    /// Asks the checker, mounts the disk a second time and works with it; notes what came of it.
    fn try_using(
        &mut self,
        tree: &Tree,
        questions: &Questions,
        filling: Option<Filling>,
        facts: &mut Facts,
    ) -> Result<(), HarnessFault> {
        match self.use_again(tree, questions, filling, facts) {
            Ok(()) => Ok(()),
            Err(Stop::Trouble(trouble)) => {
                facts.trouble = Some(trouble);
                Ok(())
            }
            Err(Stop::Fault(fault)) => Err(fault),
        }
    }

    /// Asks the checker, mounts the disk a second time and works with it.
    fn use_again(
        &mut self,
        tree: &Tree,
        questions: &Questions,
        filling: Option<Filling>,
        facts: &mut Facts,
    ) -> Result<(), Stop> {
        if questions.checker {
            facts.checker = self.check()?;
        }
        let root = self.mount()?.map_err(Trouble::MountsOnce)?;
        let again = self.executor()?.observe()?;
        let mut outcome = Ok(());
        if again.digest() != tree.digest() {
            outcome = Err(Trouble::RemountChanges);
        } else if questions.usable {
            outcome = usable::use_everything(self.executor()?, tree, filling)?;
        }
        self.unmount(root)?;
        Ok(outcome?)
    }

    fn check(&self) -> Result<Checked, HarnessFault> {
        let Some(checker) = &self.recipe.checker else { return Ok(Checked::NotAsked) };
        let output = image::check(self.place.file(), &checker.program, &RunningProgram::default())?;
        let report = judge(checker, &output)?;
        Ok(match report.clean {
            true => Checked::Content,
            false => Checked::Complains(complaint(&report.output)),
        })
    }

    /// Executes operations that change nothing on a disk, which stays mounted for the next ones.
    pub(super) fn read(
        &mut self,
        disk: &Image,
        ops: &[Op],
    ) -> Result<Result<Vec<Outcome>, Errno>, HarnessFault> {
        if self.mounted.as_ref().is_none_or(|(digest, _)| *digest != disk.digest()) {
            self.leave()?;
            self.load(disk)?;
            match self.mount()? {
                Ok(root) => self.mounted = Some((disk.digest(), root)),
                Err(errno) => return Ok(Err(errno)),
            }
        }
        let executor = self.executor()?;
        let outcomes: Result<Vec<_>, _> = ops.iter().map(|op| executor.apply(op)).collect();
        executor.close_all();
        outcomes.map(Ok)
    }

    /// Mounts, walks and unmounts, with as little as that takes; see [`super::KernelDisks::walk_bare`].
    pub(super) fn walk_bare(&mut self, disk: &Image, full: bool) -> Result<u64, HarnessFault> {
        self.leave()?;
        self.load(disk)?;
        let mut entries = 0;
        for round in 0..if full { 2 } else { 1 } {
            if round > 0 {
                self.check()?;
            }
            let root = mount::mount(&self.recipe, Some(self.device()?.path()))?;
            let path = format!("/proc/self/fd/{}", root.as_raw_fd());
            entries += walk(Path::new(&path))
                .map_err(|error| HarnessFault::new("walking a disk", error))?;
            drop(root);
            self.device()?.wait_until_free()?;
        }
        Ok(entries)
    }

    /// The disk after a file was written and deleted: on a disk of zeros nobody sees blocks that show
    /// what was there before, since zeros are what a file that grew may show.
    pub(super) fn soil(&mut self, disk: &Image) -> Result<Image, HarnessFault> {
        self.load(disk)?;
        let root =
            self.mount()?.map_err(|errno| HarnessFault::new("mounting a new disk", errno))?;
        let path = FsPath::from("fathom0");
        let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
        let data = Pattern { seed: SOIL_SEED, len: SOIL_BYTES.min(disk.size() as u64 / 8) };
        let ops = [
            Op::Open { slot: 0, path: path.clone(), flags, mode: FILE_MODE },
            Op::Pwrite { slot: 0, offset: 0, data },
            Op::Fsync { slot: 0 },
            Op::Close { slot: 0 },
            Op::Unlink { path },
            Op::Sync,
        ];
        for op in &ops {
            // What does not fit is not needed.
            execute(self.executor()?, op, &root)?;
        }
        self.unmount(root)?;
        let Place::Memory { disk: memory, .. } = &self.place else {
            return Err(HarnessFault::new("making a new disk", "it is not in memory"));
        };
        Ok(changed(memory, disk)?)
    }

    /// How many bytes one file can take on a disk; no more than `max_bytes` are tried.
    pub(super) fn capacity(&mut self, disk: &Image, max_bytes: u64) -> Result<u64, HarnessFault> {
        self.leave()?;
        self.load(disk)?;
        let root =
            self.mount()?.map_err(|errno| HarnessFault::new("mounting a new disk", errno))?;
        let filled = usable::fill(self.executor()?, max_bytes)?;
        self.unmount(root)?;
        filled.map_err(|trouble| HarnessFault::new("filling a new disk", format!("{trouble:?}")))
    }
}

/// Reads everything in a directory; how many entries there were.
fn walk(dir: &Path) -> io::Result<u64> {
    let mut entries = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        entries += 1;
        if about.is_dir() {
            entries += walk(&entry.path())?;
        } else if about.is_file() {
            std::fs::read(entry.path())?;
        }
    }
    Ok(entries)
}

/// The lines of a checker's output that say what is wrong.
fn complaint(output: &str) -> String {
    let noise = |line: &&str| {
        let line = line.trim();
        let quiet = [
            "Pass ",
            "e2fsck ",
            "Phase ",
            "Opening filesystem",
            "[",
            "        - ",
            "No modify flag set",
            "Cannot get host filesystem geometry",
            "Repair may fail if there is a sector size mismatch",
            "the image and the host filesystem",
        ];
        !line.is_empty() && !quiet.iter().any(|start| line.starts_with(start.trim_start()))
    };
    let lines: Vec<&str> = output.lines().filter(noise).take(12).collect();
    if lines.is_empty() { output.to_owned() } else { lines.join("\n") }
}

/// Executes an operation of a workload, on a mount.
pub(super) fn execute(
    executor: &mut Executor,
    op: &Op,
    root: &OwnedFd,
) -> Result<Outcome, HarnessFault> {
    match narrowed(op, root) {
        Some(outcome) => Ok(outcome),
        None => executor.apply(op),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_checker_says_of_itself_is_no_complaint() {
        let said = "Phase 1 - find and verify superblock...\nCannot get host filesystem geometry.\n\
                    Repair may fail if there is a sector size mismatch between\n\
                    the image and the host filesystem.\nagi unlinked bucket 3 is 11075 in ag 0\n\
                    No modify flag set, skipping phase 5\n";
        assert_eq!(complaint(said), "agi unlinked bucket 3 is 11075 in ag 0");
        assert_eq!(complaint("Pass 1: Checking"), "Pass 1: Checking", "better than nothing");
    }
}
