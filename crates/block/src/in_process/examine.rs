//! Examining disks with a library file system: does it mount, can everything be read, is recovery
//! itself safe, can the file system be used.
//!
//! Nothing here depends on what should be there.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use fathom_core::{Digest, Errno, HarnessFault, Tree};

use super::usable::use_everything;
use super::{InProcess, device, guarded};
use crate::backed::{BlockBacked, Mounted};
use crate::crash::{Bounds, Level, Window};
use crate::disks::{
    Checked, Examine, Facts, Interrupted, Memo, Questions, Recheck, SubjectFailure, Trouble, View,
};
use crate::image::Image;
use crate::reads::{ReadSet, Reads};
use crate::recorder::Recorder;

impl Examine for InProcess<'_> {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        disks
            .iter()
            .map(|disk| examine(self.library(), disk, questions, None).map(Arc::new))
            .collect()
    }

    fn examine_knowing(
        &self,
        disks: &[Image],
        questions: &Questions,
        memo: &Memo,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        let known = |disk| examine(self.library(), disk, questions, Some(memo)).map(Arc::new);
        disks.iter().map(known).collect()
    }
}

fn examine(
    subject: &dyn BlockBacked,
    disk: &Image,
    questions: &Questions,
    memo: Option<&Memo>,
) -> Result<Facts, HarnessFault> {
    let start = Instant::now();
    let mut examination = Examination::new(subject, disk, questions, memo);
    let mut facts = examination.look()?;
    if questions.repaired {
        facts.repaired = Some(examination.repair()?);
    }
    let is_readable = matches!(&facts.view, Ok(view) if view.broken.is_none());
    if let (Some(recheck), true) = (questions.recheck, is_readable) {
        let used = guarded(|| examination.use_again(recheck, &mut facts));
        match used.unwrap_or_else(|message| {
            examination.forget_reads();
            Err(Stop::Trouble(Trouble::Panic(message)))
        }) {
            Err(Stop::Fault(fault)) => return Err(fault),
            Err(Stop::Trouble(trouble)) => facts.trouble = Some(trouble),
            Ok(unmounted) if questions.checker && subject.has_checker() => {
                let complaint = subject.fsck(&unmounted)?;
                facts.checker = complaint.map_or(Checked::Content, Checked::Complains);
                // A checker is another program: it does not tell what it reads.
                examination.forget_reads();
            }
            Ok(_) => {}
        }
    }
    facts.read = examination.read();
    facts.took = start.elapsed();
    Ok(facts)
}

/// One disk of so many is mounted twice and looked at twice before it is used: see
/// [`Examination::is_looked_at_twice`].
const TWICE_EVERY: u128 = 8;

/// Something that is wrong with the disk, or with the harness.
enum Stop {
    Trouble(Trouble),
    Fault(HarnessFault),
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Stop {
        Stop::Trouble(trouble)
    }
}

impl From<HarnessFault> for Stop {
    fn from(fault: HarnessFault) -> Stop {
        Stop::Fault(fault)
    }
}

/// One disk under examination, and what was read of it so far.
struct Examination<'a> {
    subject: &'a dyn BlockBacked,
    disk: &'a Image,
    questions: &'a Questions,
    /// Knows what disks show that are made of this one.
    memo: Option<&'a Memo>,
    /// `None` once something was read that was not noted.
    reads: Option<Reads>,
    /// What the first look showed.
    tree: Arc<Tree>,
    digest: Digest,
    /// The mount of the first look, if it is used further.
    mounted: Option<Box<dyn Mounted>>,
}

impl<'a> Examination<'a> {
    fn new(
        subject: &'a dyn BlockBacked,
        disk: &'a Image,
        questions: &'a Questions,
        memo: Option<&'a Memo>,
    ) -> Examination<'a> {
        let reads = Some(Reads::new(&subject.geometry()));
        let (tree, digest) = (Arc::default(), Digest::default());
        Examination { subject, disk, questions, memo, reads, tree, digest, mounted: None }
    }

    /// Whether the disk is mounted and looked at a second time before it is used. The same bytes show
    /// the same tree to a deterministic file system, and a second look is a third of the work: every
    /// eighth disk is looked at twice, chosen by its contents so that the choice is the same in every
    /// run. Whoever accuses a disk looks again in any case.
    fn is_looked_at_twice(&self) -> bool {
        self.disk.digest().0.is_multiple_of(TWICE_EVERY)
    }

    fn forget_reads(&mut self) {
        self.reads = None;
    }

    fn read(self) -> ReadSet {
        self.reads.map_or_else(ReadSet::everything, Reads::into_set)
    }

    /// Mounts a disk. What was read of the examined disk so far goes with the device, and comes back
    /// by [`Examination::finish`].
    fn mount(&mut self, disk: &Image) -> Result<Result<Box<dyn Mounted>, Errno>, HarnessFault> {
        let mut device = device(self.subject, disk)?;
        if let Some(reads) = self.reads.take() {
            device = device.noting(reads);
        }
        Ok(self.subject.mount(device).map_err(|mut failure| {
            self.reads = failure.device.take_noted().map(Reads::for_fresh_copy);
            failure.errno
        }))
    }

    /// Takes the notes back from a device that starts as the examined disk the next time.
    fn finish(&mut self, mut device: Recorder) {
        self.reads = device.take_noted().map(Reads::for_fresh_copy);
    }

    /// Mounts a disk that is the examined one or made from it, and looks. Everything that is read
    /// counts, also what was written before: more than necessary, never less.
    fn view(&mut self, disk: &Image) -> Result<Result<Tree, Errno>, HarnessFault> {
        Ok(self.mount(disk)?.map(|mut mounted| {
            let tree = mounted.observe();
            self.finish(mounted.power_off());
            tree
        }))
    }

    /// As [`Examination::view`] of the examined disk, which stays mounted if all of it can be read.
    fn view_and_stay(&mut self) -> Result<Result<Tree, Errno>, HarnessFault> {
        Ok(self.mount(self.disk)?.map(|mut mounted| {
            let tree = mounted.observe();
            if tree.entries.values().any(|entry| entry.broken.is_some()) {
                self.finish(mounted.power_off());
            } else {
                self.mounted = Some(mounted);
            }
            tree
        }))
    }

    /// The examined disk, mounted, and looked at in that mount: that of the first look, or another.
    fn mounted_again(&mut self) -> Result<Box<dyn Mounted>, Stop> {
        if let Some(mounted) = self.mounted.take() {
            return Ok(mounted);
        }
        let mut mounted = self.mount(self.disk)?.map_err(Trouble::MountsOnce)?;
        if mounted.observe().digest() != self.digest {
            return Err(self.stop(mounted, Trouble::TwoTrees));
        }
        Ok(mounted)
    }

    /// The digest of what a disk shows that was made of the examined one. Many examinations make the
    /// same disk, or one that differs only where nobody looks: then the memo knows it.
    fn view_again(&mut self, disk: &Image) -> Result<Result<Digest, Errno>, Stop> {
        let Some(memo) = self.memo else {
            return Ok(self.view(disk)?.map(|tree| tree.digest()));
        };
        let facts =
            memo.look(disk, || examine(self.subject, disk, &Questions::VIEW, None).map(Arc::new))?;
        if !self.reads.as_mut().is_some_and(|reads| reads.note_set(&facts.read)) {
            self.forget_reads();
        }
        match &facts.view {
            Ok(view) => Ok(Ok(view.digest)),
            Err(SubjectFailure::Mount(errno)) => Ok(Err(*errno)),
            Err(SubjectFailure::Panic(message)) => Err(Trouble::Panic(message.clone()).into()),
        }
    }

    /// The first look. The mount stays if the disk is used further in it.
    fn look(&mut self) -> Result<Facts, HarnessFault> {
        let disk = self.disk;
        let once = self.questions.recheck.is_some()
            && !self.questions.repaired
            && !self.is_looked_at_twice();
        let view = match guarded(|| if once { self.view_and_stay() } else { self.view(disk) }) {
            Ok(looked) => looked?.map_err(SubjectFailure::Mount),
            Err(message) => {
                self.forget_reads();
                Err(SubjectFailure::Panic(message))
            }
        };
        Ok(Facts::new(view.map(|tree| {
            self.tree = Arc::new(tree);
            let view = View::new(&self.tree, self.questions.tree);
            self.digest = view.digest;
            view
        })))
    }

    /// The tree after the part of recovery that the file system postpones.
    fn repair(&mut self) -> Result<Result<Arc<Tree>, SubjectFailure>, HarnessFault> {
        let disk = self.disk;
        let repaired = guarded(|| {
            let mounted = self.mount(disk)?;
            let repaired = mounted.and_then(|mut mounted| {
                let tree = mounted.recover().map(|()| Arc::new(mounted.observe()));
                self.finish(mounted.power_off());
                tree
            });
            Ok(repaired.map_err(SubjectFailure::Mount))
        });
        repaired.unwrap_or_else(|message| {
            self.forget_reads();
            Ok(Err(SubjectFailure::Panic(message)))
        })
    }

    /// Recovers the disk and works with it; returns it after a clean unmount.
    fn use_again(&mut self, recheck: Recheck, facts: &mut Facts) -> Result<Image, Stop> {
        let disk = self.disk;
        let mut mounted = self.mounted_again()?;
        if let Err(errno) = mounted.recover() {
            return Err(self.stop(mounted, Trouble::Recovery(errno)));
        }
        let recovered_at = mounted.position();
        facts.wrote = recovered_at > 0;
        if facts.wrote && mounted.observe().digest() != self.digest {
            return Err(self.stop(mounted, Trouble::RecoveryChanges));
        }
        let (outcome, mut device) = mounted.unmount();
        self.reads = device.take_noted();
        let (unmounted, log) = device.into_parts();
        if let Err(errno) = outcome.result {
            return Err(Trouble::Unmount(errno).into());
        }
        if facts.wrote {
            // These start from the disk as it was given; afterwards the unmounted one is looked at.
            let written = self.reads.as_mut().map(Reads::take_written);
            let atomic_bytes = self.subject.geometry().atomic_bytes;
            let window = Window::new(disk, &log, atomic_bytes).between(0, recovered_at);
            self.interrupt_recovery(&window, recheck)?;
            if let (Some(reads), Some(written)) = (&mut self.reads, written) {
                reads.put_written(written);
            }
        }
        // What was never written to is the disk that was mounted twice already.
        let changed = !log.is_empty();
        if self.questions.usable {
            let mut mounted = self.mount(&unmounted)?.map_err(Trouble::MountsOnce)?;
            let used =
                use_everything(self.subject, &mut *mounted, &self.tree, self.digest, changed);
            self.finish(mounted.power_off());
            facts.capacity_bytes = Some(used?);
        } else if changed {
            let again = self.view_again(&unmounted)?.map_err(Trouble::MountsOnce)?;
            if again != self.digest {
                return Err(Trouble::RemountChanges.into());
            }
        }
        Ok(unmounted)
    }

    /// Ends a mount because of a trouble.
    fn stop(&mut self, mounted: Box<dyn Mounted>, trouble: Trouble) -> Stop {
        self.finish(mounted.power_off());
        Stop::Trouble(trouble)
    }

    /// Recovery may be interrupted anywhere and repeated: the same tree must be visible.
    fn interrupt_recovery(&mut self, window: &Window<'_>, recheck: Recheck) -> Result<(), Stop> {
        let mut wrong = Ok(());
        let torn: &[Level] = &[Level::Linear, Level::Torn];
        for level in if recheck.torn { torn } else { &[Level::Linear] } {
            let _ = level.enumerator(&Bounds::default()).visit(window, &mut |_, disk| {
                wrong = match self.view_again(disk) {
                    Ok(Ok(again)) if again == self.digest => return ControlFlow::Continue(()),
                    Ok(Ok(_)) => Err(Trouble::Interrupted(Interrupted::OtherTree).into()),
                    Ok(Err(_)) => Err(Trouble::Interrupted(Interrupted::Unmountable).into()),
                    Err(stop) => Err(stop),
                };
                ControlFlow::Break(())
            });
        }
        wrong
    }
}
