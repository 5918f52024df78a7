//! One operation on both sides: the reference first, then the subject, then the judge.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fathom_core::{
    Activity, Difference, Digest, Errno, HarnessFault, Op, Outcome, Payload, RestoreMethod, Saved,
    Step, Testbed, Tree, Verdict, Violation,
};
use fathom_model::{Config, Model};

use crate::check::call_monitor::CallMonitor;
use crate::check::oracle::space::{Baseline, Instead, ran_out, takes_space};
use crate::check::oracle::{Oracle, Signature, is_piece, is_segment, touched};
use crate::check::rerun::Runner;

/// How often a server that answers like a dead one is asked whether it is dead.
const PATIENCE_WITH_THE_DEAD: u32 = 8;

/// What the kernel answers where nobody serves (fs/fuse/dev.c).
const SERVER_IS_GONE: [Result<u64, Errno>; 2] = [Err(Errno::ENOTCONN), Err(Errno::ECONNABORTED)];

/// The time that is waited beyond that for which answers may be kept: kernels count it in ticks.
const CACHE_MARGIN: Duration = Duration::from_millis(100);

/// The kernel's log is read after so many operations, and whenever the whole tree is compared.
const LISTEN_EVERY: usize = 32;

/// The closeness of the look at a subject after an operation. The answer is always compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspection {
    /// The answer alone is compared.
    Answer,
    /// The paths that the operation named are looked at.
    Touched,
    /// The whole tree, and what the operation named.
    Whole,
}

/// A subject and the reference, having executed the same operations.
pub struct SideBySide<'a> {
    subject: &'a mut dyn Testbed,
    model: Model,
    reference: Config,
    oracle: Oracle,
    monitor: Option<Arc<CallMonitor>>,
    /// What both said of their space when they were empty.
    space: Option<Baseline>,
    /// Whether what differs is given the time to become right.
    patient: bool,
    /// The tree before the last remount, until the subject is looked at again.
    before_remount: Option<Tree>,
    steps: Vec<Step>,
    /// Number of operations that the subject had no space for.
    without_space: u64,
}

/// The judgement of one operation.
#[derive(Clone, Debug)]
pub struct StepJudgement {
    /// The answer of the subject.
    pub found: Outcome,
    /// The answer of the reference.
    pub expected: Outcome,
    /// Whether the whole tree was compared.
    pub tree_compared: bool,
    /// The judgement.
    pub verdict: Verdict,
}

/// A state to which both sides can return.
#[derive(Clone, Debug)]
pub(crate) struct Bookmark {
    /// `None`: the subject starts again and repeats the operations.
    saved: Option<Saved>,
    model: Model,
    steps: usize,
}

impl<'a> SideBySide<'a> {
    /// Starts with an empty subject and an empty reference; `monitor` is told what is being done.
    ///
    /// # Errors
    /// If the subject cannot be reset or the reference cannot be made.
    pub fn start(
        subject: &'a mut dyn Testbed,
        reference: &Config,
        oracle: &Oracle,
        monitor: Option<Arc<CallMonitor>>,
    ) -> Result<SideBySide<'a>, HarnessFault> {
        let (oracle, reference) = (oracle.clone(), reference.clone());
        let model = new_model(&reference)?;
        let mut pair = SideBySide {
            subject,
            model,
            reference,
            oracle,
            monitor,
            space: None,
            patient: false,
            before_remount: None,
            steps: Vec::new(),
            without_space: 0,
        };
        pair.restart()?;
        Ok(pair)
    }

    /// Waits before it calls something wrong that may only be old ([`Quirks::cache_seconds`]).
    ///
    /// [`Quirks::cache_seconds`]: fathom_model::Quirks::cache_seconds
    pub(crate) fn patient(self) -> SideBySide<'a> {
        SideBySide { patient: true, ..self }
    }

    /// The configuration of the reference.
    pub(crate) fn reference(&self) -> &Config {
        &self.reference
    }

    /// Compares the empty file systems. What differs is not compared from then on; it is nobody's
    /// fault.
    ///
    /// # Errors
    /// If the harness of the subject fails or panics.
    pub(crate) fn compare_empty(&mut self) -> Result<Vec<Difference>, HarnessFault> {
        let tree = self
            .watched(Activity::Looking, Self::subject_tree)
            .map_err(|late| late.fault("looking at the empty file system"))??;
        let mut differences = self.expected_tree().differences(&tree);
        // A name too many or too few is part of every state: that is for the first operation to tell.
        differences.retain(|difference| difference.what != "entry");
        self.oracle.leave_out(&differences);
        self.reference.quirks = self.oracle.quirks().clone();
        Ok(differences)
    }

    /// Starts with the disk that was there after `ops`, when nothing was open.
    ///
    /// # Errors
    /// If the subject cannot take the disk over.
    pub(crate) fn start_from(
        subject: &'a mut dyn Testbed,
        reference: &Config,
        oracle: &Oracle,
        disk: &[u8],
        ops: &[Op],
    ) -> Result<SideBySide<'a>, HarnessFault> {
        let mut pair = SideBySide::start(subject, reference, oracle, None)?;
        let saved = pair.subject.adopt(disk)?;
        pair.subject.restore(saved)?;
        for op in ops {
            pair.model.execute(op);
        }
        Ok(pair)
    }

    /// Starts again with both sides empty.
    ///
    /// # Errors
    /// If the subject cannot be reset.
    pub(crate) fn restart(&mut self) -> Result<(), HarnessFault> {
        self.steps.clear();
        self.reset()?;
        self.model = new_model(&self.reference)?;
        self.space = self
            .watched(Activity::Looking, |pair| {
                Baseline::of(pair.subject, &pair.model, pair.oracle.quirks())
            })
            .map_err(|late| late.fault("asking for the space of an empty file system"))??;
        Ok(())
    }

    /// Makes the subject empty; the operations before are still known if that never ends.
    fn reset(&mut self) -> Result<(), HarnessFault> {
        let unblock = self.subject.unblock();
        if let Some(monitor) = &self.monitor {
            monitor.set_unblock(unblock);
        }
        let reset = self.watched(Activity::Restoring, |pair| pair.subject.reset());
        // One that hung on its way down has been ended, and starts again from nothing.
        match reset {
            Ok(reset) => reset?,
            Err(_) => self
                .watched(Activity::Restoring, |pair| pair.subject.reset())
                .map_err(|late| late.fault("making the file system empty"))??,
        }
        let unblock = self.subject.unblock();
        if let Some(monitor) = &self.monitor {
            monitor.clear();
            monitor.set_unblock(unblock);
        }
        Ok(())
    }

    /// Does something that may not return.
    fn watched<T>(
        &mut self,
        activity: Activity,
        work: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, Overdue> {
        if let Some(monitor) = &self.monitor {
            monitor.begin_activity(activity);
        }
        let done = work(self);
        match self.monitor.as_ref().and_then(|monitor| monitor.end()) {
            Some(seconds) => Err(Overdue { seconds }),
            None => Ok(done),
        }
    }

    /// Runs other operations on the same subject, from an empty file system. This pair must start
    /// again afterwards.
    pub(crate) fn runner(&mut self, signature: &Signature) -> Runner<'_> {
        Runner {
            subject: self.subject,
            reference: &self.reference,
            oracle: &self.oracle,
            monitor: self.monitor.clone(),
            fsck: signature.is_checker(),
            patient: signature.is_stale(),
        }
    }

    /// The subject.
    pub(crate) fn subject(&mut self) -> &mut dyn Testbed {
        self.subject
    }

    /// The reference as it is now.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the steps since the start.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the steps since the start.
    pub(crate) fn into_steps(self) -> Vec<Step> {
        self.steps
    }

    /// Executes one operation on both and judges. An operation that would block, or whose answer
    /// says nothing, is executed on neither.
    ///
    /// # Errors
    /// If the harness of the subject fails or panics.
    pub fn step(&mut self, op: &Op, look: Inspection) -> Result<StepJudgement, HarnessFault> {
        if let Some(why) = self.model.unspecified(op) {
            let nothing = Outcome::ok(0);
            let verdict = Verdict::Inconclusive(format!("{op}: {why}"));
            return Ok(StepJudgement {
                expected: nothing.clone(),
                found: nothing,
                tree_compared: false,
                verdict,
            });
        }
        self.step_specified(op, look)
    }

    /// Executes one operation whose answer says something: see [`SideBySide::step`].
    ///
    /// # Errors
    /// If the harness of the subject fails or panics.
    pub(crate) fn step_specified(
        &mut self,
        op: &Op,
        look: Inspection,
    ) -> Result<StepJudgement, HarnessFault> {
        let tree = self.model.digest();
        let before =
            (takes_space(op) || is_segment(op) || is_piece(op)).then(|| self.model.clone());
        self.before_remount = match op {
            Op::Remount => self.watched(Activity::Looking, Self::subject_tree).ok().transpose()?,
            _ => None,
        };
        let mut expected = self.model.execute(op);
        if let Some(monitor) = &self.monitor {
            monitor.begin(op);
        }
        let found = guarded(op.name(), || self.subject.apply(op));
        if let Some(seconds) = self.monitor.as_ref().and_then(|monitor| monitor.end()) {
            return Ok(self.hung(op, expected, seconds));
        }
        let found = match found {
            Ok(found) => found,
            Err(fault) => return self.without_server(op, expected, Err(fault)),
        };
        if SERVER_IS_GONE.contains(&found.result) && expected != found {
            return self.without_server(op, expected, Ok(found));
        }
        if let (Op::ListPiece { .. }, Some(before)) = (op, &before) {
            // The subject has its own order: the reference goes on from what the subject has listed.
            self.model = before.clone();
            expected = self.model.follow_piece(op, &found).unwrap_or(expected);
        } else if let Some(before) = before.filter(|_| expected != found) {
            self.fall_back(op, before, &mut expected, &found)?;
        }
        let mut verdict = self.judge(op, &expected, &found);
        let mut seen = None;
        if verdict == Verdict::Ok {
            let changed = tree != self.model.digest();
            let looked = self.watched(Activity::Looking, |pair| {
                let (verdict, seen) = pair.look(op, look, changed)?;
                let again = pair.unless_old(verdict, |pair| pair.look(op, look, changed));
                again.map(|verdict| (verdict, seen))
            });
            match looked {
                Ok(Ok(looked)) => (verdict, seen) = looked,
                Ok(Err(fault)) => return self.without_server(op, expected, Err(fault)),
                Err(late) => return Ok(self.hung(op, expected, late.seconds)),
            }
            verdict = self.unless_dead(verdict);
        } else if let Op::Stat { .. } = op {
            verdict = self.unless_old(verdict, |pair| {
                let now = guarded(op.name(), || pair.subject.apply(op))?;
                Ok((pair.judge(op, &expected, &now), None))
            })?;
        }
        if let (Op::Server { .. }, Verdict::Ok) = (op, &verdict) {
            verdict = self.ask_about_locks();
        }
        let listens = look == Inspection::Whole || self.steps.len().is_multiple_of(LISTEN_EVERY);
        if verdict == Verdict::Ok && listens {
            verdict = self.listen()?;
        }
        self.record(op, &expected, &found, seen);
        Ok(StepJudgement { expected, found, tree_compared: seen.is_some(), verdict })
    }

    /// Nothing answers any more, or in a way that only a dead server does: if it is dead, that is the
    /// finding.
    fn without_server(
        &mut self,
        op: &Op,
        expected: Outcome,
        found: Result<Outcome, HarnessFault>,
    ) -> Result<StepJudgement, HarnessFault> {
        // On a busy machine its end is seen late. That it does answer like a dead one is rare enough to wait.
        let last_words = (0..PATIENCE_WITH_THE_DEAD).find_map(|_| self.subject.last_words());
        let verdict = match (last_words, &found) {
            (Some(last_words), _) => Violation::ServerDied { last_words },
            (None, Ok(found)) => {
                Violation::Outcome { expected: expected.clone(), found: found.clone() }
            }
            (None, Err(fault)) => {
                return Err(HarnessFault::new(&*fault.context, &fault.message));
            }
        };
        let found = found.unwrap_or_else(|_| Outcome::err(Errno::ENOTCONN));
        self.record(op, &expected, &found, None);
        let verdict = Verdict::Violation(verdict);
        Ok(StepJudgement { expected, found, tree_compared: false, verdict })
    }

    /// Tells what is old from what is wrong: `look` is asked again, of the file system itself and then
    /// after the time for which answers may be kept.
    fn unless_old(
        &mut self,
        verdict: Verdict,
        mut look: impl FnMut(&mut Self) -> Result<(Verdict, Option<Digest>), HarnessFault>,
    ) -> Result<Verdict, HarnessFault> {
        let quirks = self.oracle.quirks();
        let (seconds, allowed) = (quirks.cache_seconds, quirks.stale_allowed);
        if seconds == 0 {
            return Ok(verdict);
        }
        let differences = match &verdict {
            Verdict::Violation(Violation::Tree { differences }) => differences.clone(),
            Verdict::Violation(Violation::Outcome { expected, found }) => {
                let (expected, found) = (expected.to_string(), found.to_string());
                vec![Difference { path: ".".into(), what: "answer".to_owned(), expected, found }]
            }
            _ => return Ok(verdict),
        };
        let is_data = |one: &Difference| matches!(one.what.as_str(), "content" | "size");
        if quirks.close_to_open && differences.iter().any(is_data) {
            return Ok(verdict);
        }
        self.subject.ask_past_caches(true);
        let again = look(self);
        self.subject.ask_past_caches(false);
        let mut again = again?.0;
        if again != Verdict::Ok && self.patient {
            std::thread::sleep(Duration::from_secs(seconds.into()) + CACHE_MARGIN);
            again = look(self)?.0;
        }
        Ok(match again {
            Verdict::Ok if allowed => Verdict::Ok,
            Verdict::Ok => Verdict::Violation(Violation::Stale { differences }),
            _ => verdict,
        })
    }

    /// The operation, or looking at what it did, had to be ended from outside; what came back then
    /// says nothing.
    fn hung(&mut self, op: &Op, expected: Outcome, seconds: u64) -> StepJudgement {
        let found = Outcome::err(Errno::ETIME);
        self.record(op, &expected, &found, None);
        let verdict = Verdict::Violation(Violation::Hang { seconds });
        StepJudgement { expected, found, tree_compared: false, verdict }
    }

    /// Number of operations so far that the subject had no space for.
    pub(crate) fn without_space(&self) -> u64 {
        self.without_space
    }

    /// Where the subject rightly did less than the reference, the reference does the same.
    fn fall_back(
        &mut self,
        op: &Op,
        before: Model,
        expected: &mut Outcome,
        found: &Outcome,
    ) -> Result<(), HarnessFault> {
        let shorter = self.oracle.short_copy(op, expected, found).map(Instead::Less);
        let instead = match shorter.or_else(|| self.oracle.other_segment(op, &before, found)) {
            Some(instead) => Some(instead),
            None => {
                let instead = ran_out(self.subject, op, expected, found)?;
                self.without_space += u64::from(instead.is_some());
                instead
            }
        };
        if let Some(instead) = instead {
            self.model = before;
            *expected = match instead {
                Instead::Less(shorter) => self.model.execute(&shorter),
                Instead::Nothing => {
                    // What the slot held is closed before anything else is tried.
                    if let Op::Open { slot, .. } = op {
                        self.model.execute(&Op::Close { slot: *slot });
                    }
                    found.clone()
                }
            };
        }
        Ok(())
    }

    fn judge(&self, op: &Op, expected: &Outcome, found: &Outcome) -> Verdict {
        if let (Some(space), Op::Statfs { .. }, Payload::Statfs(counts)) =
            (&self.space, op, &found.payload)
            && expected.result.is_ok()
            && !space.is_followed(&self.model, counts, self.oracle.quirks())
        {
            let (expected, found) = (expected.clone(), found.clone());
            return Verdict::Violation(Violation::Outcome { expected, found });
        }
        self.oracle.outcome(op, expected, found)
    }

    fn look(
        &mut self,
        op: &Op,
        look: Inspection,
        changed: bool,
    ) -> Result<(Verdict, Option<Digest>), HarnessFault> {
        match look {
            Inspection::Answer => Ok((Verdict::Ok, None)),
            Inspection::Touched => Ok((self.look_at_touched(op, changed)?, None)),
            Inspection::Whole => {
                let tree = self.subject_tree()?;
                let mut verdict = self.oracle.tree(&self.model, &tree);
                if let (Verdict::Ok, Some(before)) = (&verdict, self.before_remount.take()) {
                    verdict = self.oracle.kept_times(&self.model, &before, &tree);
                }
                if verdict == Verdict::Ok {
                    verdict = self.look_at_touched(op, changed)?;
                }
                Ok((verdict, Some(tree.digest())))
            }
        }
    }

    /// Judges the paths that an operation named. It sees what a tree has no place for: a name that is
    /// listed twice, a time that was set.
    fn look_at_touched(&mut self, op: &Op, changed: bool) -> Result<Verdict, HarnessFault> {
        let paths = touched(op, &self.model, changed);
        if paths.is_empty() {
            return Ok(Verdict::Ok);
        }
        let seen = guarded("looking at what was touched", || self.subject.observe_paths(&paths))?;
        let verdict = self.oracle.path_states(&self.model, &seen);
        match op {
            Op::Utimens { .. } if verdict == Verdict::Ok => {
                Ok(self.oracle.set_times(&self.model, &seen))
            }
            _ => Ok(verdict),
        }
    }

    fn record(&mut self, op: &Op, expected: &Outcome, found: &Outcome, tree: Option<Digest>) {
        self.steps.push(Step {
            expected: (expected != found).then(|| expected.clone()),
            tree,
            ..Step::new(self.steps.len() as u64, op.clone(), found.clone())
        });
    }

    /// Whether clients were answered about locks as fcntl(2) says.
    fn ask_about_locks(&mut self) -> Verdict {
        let lines = self.subject.wrong_locks();
        if lines.is_empty() { Verdict::Ok } else { Verdict::Violation(Violation::Locks { lines }) }
    }

    /// Whether the kernel has complained.
    ///
    /// # Errors
    /// If its log cannot be read.
    fn listen(&mut self) -> Result<Verdict, HarnessFault> {
        let lines = self.subject.complaints()?;
        Ok(if lines.is_empty() {
            Verdict::Ok
        } else {
            Verdict::Violation(Violation::KernelLog { lines })
        })
    }

    /// Lets the file system's checker look at the unmounted disk. Says whether there is one, too. The
    /// reference does not notice: to go on afterwards, no slot may be open before.
    ///
    /// # Errors
    /// If it cannot be run.
    pub(crate) fn fsck(&mut self) -> Result<(bool, Verdict), HarnessFault> {
        let checked = match self.watched(Activity::Checking, |pair| pair.subject.fsck()) {
            Ok(checked) => checked?,
            Err(Overdue { seconds }) => {
                return Ok((true, Verdict::Violation(Violation::Hang { seconds })));
            }
        };
        let there = checked.is_some();
        let verdict = match checked {
            Some(checked) if !checked.clean => Verdict::Violation(Violation::Checker {
                command: checked.command,
                code: checked.code,
                output: checked.output,
            }),
            _ => Verdict::Ok,
        };
        Ok((there, verdict))
    }

    /// Remembers the present state; without a way, only how it was reached.
    ///
    /// # Errors
    /// If the subject cannot save it.
    pub(crate) fn save(&mut self, method: Option<RestoreMethod>) -> Result<Bookmark, HarnessFault> {
        let saved = match method {
            None => None,
            Some(method) => Some(
                self.watched(Activity::Saving, |pair| pair.subject.save(method))
                    .map_err(|late| late.fault("saving the state"))??,
            ),
        };
        Ok(Bookmark { saved, model: self.model.clone(), steps: self.steps.len() })
    }

    /// Goes back to an earlier state of this run: one that has been reached since the last start,
    /// and not been left behind by going back further.
    ///
    /// # Errors
    /// If the subject cannot.
    pub(crate) fn restore(&mut self, mark: &Bookmark) -> Result<(), HarnessFault> {
        let steps: Vec<Step> = self.steps.drain(..mark.steps).collect();
        match mark.saved {
            Some(saved) => {
                self.watched(Activity::Restoring, |pair| pair.subject.restore(saved))
                    .map_err(|late| late.fault("going back to a saved state"))??;
                let unblock = self.subject.unblock();
                if let Some(monitor) = &self.monitor {
                    monitor.truncate(steps.len());
                    monitor.set_unblock(unblock);
                }
            }
            None => {
                self.reset()?;
                steps.iter().try_for_each(|step| self.repeat(&step.op))?;
            }
        }
        self.model = mark.model.clone();
        self.steps = steps;
        Ok(())
    }

    /// Executes an operation on the subject alone; it has been judged before.
    fn repeat(&mut self, op: &Op) -> Result<(), HarnessFault> {
        if let Some(monitor) = &self.monitor {
            monitor.begin(op);
        }
        let done = guarded(op.name(), || self.subject.apply(op));
        match self.monitor.as_ref().and_then(|monitor| monitor.end()) {
            Some(seconds) => Err(Overdue { seconds }.fault(op.name())),
            None => done.map(|_| ()),
        }
    }

    /// The state will not be needed again.
    pub(crate) fn forget(&mut self, mark: &Bookmark) {
        if let Some(saved) = mark.saved {
            self.subject.forget(saved);
        }
    }

    /// Compares the whole trees now.
    ///
    /// # Errors
    /// If the harness of the subject fails or panics.
    pub(crate) fn walk(&mut self) -> Result<Verdict, HarnessFault> {
        match self.watched(Activity::Looking, Self::subject_tree) {
            Ok(tree) => {
                let verdict = self.oracle.tree(&self.model, &tree?);
                let verdict = self.unless_old(verdict, |pair| {
                    let tree = pair.subject_tree()?;
                    Ok((pair.oracle.tree(&pair.model, &tree), None))
                })?;
                Ok(self.unless_dead(verdict))
            }
            Err(Overdue { seconds }) => Ok(Verdict::Violation(Violation::Hang { seconds })),
        }
    }

    /// What a tree shows that nobody serves any more is not its fault.
    fn unless_dead(&mut self, verdict: Verdict) -> Verdict {
        let differs = matches!(verdict, Verdict::Violation(Violation::Tree { .. }));
        match differs.then(|| self.subject.last_words()).flatten() {
            Some(last_words) => Verdict::Violation(Violation::ServerDied { last_words }),
            None => verdict,
        }
    }

    /// Whether the server has ended by itself after the last operation, when nothing was asked of it.
    pub(crate) fn look_for_server(&mut self) -> Verdict {
        match !self.steps.is_empty() && self.subject.has_ended() {
            true => {
                let last_words = self.subject.last_words().unwrap_or_default();
                Verdict::Violation(Violation::ServerDied { last_words })
            }
            false => Verdict::Ok,
        }
    }

    /// The tree that the subject shows now.
    ///
    /// # Errors
    /// If the harness of the subject fails or panics.
    pub(crate) fn subject_tree(&mut self) -> Result<Tree, HarnessFault> {
        guarded("observing the tree", || self.subject.observe())
    }

    /// The tree that the subject should show now.
    pub(crate) fn expected_tree(&self) -> Tree {
        self.oracle.expected_tree(&self.model)
    }
}

/// Something had to be ended from outside.
struct Overdue {
    seconds: u64,
}

impl Overdue {
    fn fault(&self, context: &str) -> HarnessFault {
        HarnessFault::new(context, format!("it did not end within {} s", self.seconds))
    }
}

fn new_model(reference: &Config) -> Result<Model, HarnessFault> {
    Model::new(reference.clone()).map_err(|error| HarnessFault::new("making the reference", error))
}

/// A panic of the subject's harness is a fault of the harness.
fn guarded<T>(
    context: &str,
    work: impl FnOnce() -> Result<T, HarnessFault>,
) -> Result<T, HarnessFault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(HarnessFault::new(context, format!("the harness of the subject panicked: {message}")))
    })
}
