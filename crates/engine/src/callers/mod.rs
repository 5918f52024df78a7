//! Several callers at once on one file system, judged by linearizability.
//!
//! A campaign is a number of rounds. Each starts with an empty file system: a few operations of one caller
//! after the other, then all callers at once ([`round`]), then a look at the whole tree. The same operations are
//! run under several schedules: with other delays before the calls, and other things beside them. If no order of the
//! calls explains all answers and the tree ([`crate::linear`]), the round is run again and made smaller
//! ([`again`]), and is a [`finding`]. What the kernel logs and what the file system's checker says of the disk
//! are judged as well; calls that never return are the supervisor's business.

pub mod again;
pub mod finding;
pub mod round;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fathom_core::{Digest, HarnessFault, Supervision, Testbed};
use fathom_record::pace::Moment;
use fathom_record::{Observer, Progress};

use crate::check::SeenFirst;
use crate::check::call_monitor::CallMonitor;
use crate::linear::Relaxations;
use again::Again;
use fathom_generate::callers::Theme;
use finding::{CallersFinding, Wrong};
use round::{Round, RoundMaker, Seems, Seen, check_disk};

/// Domain of the digests of histories.
const DOMAIN_HISTORY: u64 = 41;

/// Schedules of each round, if nothing else is said: few, since other operations show more than other delays do.
const SCHEDULES: u64 = 3;

/// How often an observer is told of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Everything that decides a campaign.
#[derive(Clone, Debug)]
pub struct CallersPlan {
    /// Seed of every choice.
    pub seed: u64,
    /// How many callers there are.
    pub callers: u32,
    /// Calls of each caller in a round.
    pub calls: usize,
    /// Greatest delay before a call, in nanoseconds.
    pub delay_ns_max: u64,
    /// Under how many schedules the operations of a round are run: with other delays each time.
    pub schedules: u64,
    /// Whether the file system is synced and remounted beside some of the rounds.
    pub remounts: bool,
    /// Lets the requests to the disk take up to so many nanoseconds.
    pub disk_delay_ns_max: Option<u64>,
    /// What every round is about; otherwise the seed says it.
    pub theme: Option<Theme>,
    /// The reference of the subject.
    pub reference: fathom_model::Config,
    /// What is not promised to be one step.
    pub relaxations: Relaxations,
    /// Ends after so many calls.
    pub calls_max: Option<u64>,
    /// Ends after this time.
    pub budget: Option<Duration>,
    /// Ends after so many findings.
    pub findings_max: u64,
    /// Lets the checker look after so many rounds.
    pub fsck_every: Option<u64>,
    /// Time for running a finding again and making it smaller.
    pub shrink: Duration,
    /// Kernel version, profile, ….
    pub labels: BTreeMap<String, String>,
    /// Who reads along, and may ask for the end.
    pub supervision: Supervision,
}

impl CallersPlan {
    /// A plan without limits.
    pub fn new(seed: u64, callers: u32, reference: fathom_model::Config) -> CallersPlan {
        CallersPlan {
            seed,
            callers,
            calls: 12,
            delay_ns_max: 3000,
            schedules: SCHEDULES,
            remounts: false,
            disk_delay_ns_max: None,
            theme: None,
            reference,
            relaxations: Relaxations::none(),
            calls_max: None,
            budget: None,
            findings_max: 10,
            fsck_every: None,
            shrink: Duration::from_secs(20),
            labels: BTreeMap::new(),
            supervision: None,
        }
    }
}

/// What a campaign did.
#[derive(Clone, Debug, Default)]
pub struct CallersReport {
    /// Rounds: each schedule of the same operations is one.
    pub rounds: u64,
    /// How many of them went another way than every other one of the same operations.
    pub different: u64,
    /// Calls that were executed at once.
    pub calls: u64,
    /// Times that the file system was remounted beside them.
    pub remounts: u64,
    /// Pairs of calls that overlapped.
    pub overlaps: u64,
    /// Histories on which the search gave up.
    pub unknown: u64,
    /// Times the checker looked.
    pub fscks: u64,
    /// Digest of all histories: the same if every call of every round was invoked, returned and answered as in
    /// another campaign.
    pub histories: Digest,
    /// What was found.
    pub findings: Vec<CallersFinding>,
    /// The time that it took.
    pub elapsed: Duration,
    /// The observer ended it.
    pub stopped: bool,
}

/// Lets several callers work on `subject` until a limit of the plan is reached.
///
/// # Errors
/// If the harness fails; that is never a finding.
pub fn check_callers(
    subject: &mut dyn Testbed,
    plan: &CallersPlan,
    observer: &mut dyn Observer,
) -> Result<CallersReport, HarnessFault> {
    let journal = plan.supervision.as_ref().map(|supervisor| supervisor.journal(0));
    let mut campaign = Campaign {
        maker: RoundMaker::new(plan),
        monitor: CallMonitor::new(journal),
        subject,
        plan,
        observer,
        report: CallersReport::default(),
        signatures: BTreeSet::new(),
        of_round: BTreeSet::new(),
        began: Moment::now(),
        started: Instant::now(),
        told: Instant::now(),
    };
    let ended = campaign.run();
    campaign.report.elapsed = campaign.started.elapsed();
    campaign.tell();
    ended?;
    Ok(campaign.report)
}

struct Campaign<'a> {
    maker: RoundMaker,
    monitor: Arc<CallMonitor>,
    subject: &'a mut dyn Testbed,
    plan: &'a CallersPlan,
    observer: &'a mut dyn Observer,
    report: CallersReport,
    /// What was found already.
    signatures: BTreeSet<String>,
    /// The histories of the operations that are being run.
    of_round: BTreeSet<Digest>,
    /// The start, for whoever waits outside of a guest.
    began: Moment,
    started: Instant,
    told: Instant,
}

impl Campaign<'_> {
    fn run(&mut self) -> Result<(), HarnessFault> {
        while !self.is_over() {
            let schedules = self.plan.schedules.max(1);
            let rounds = self.report.rounds;
            let round = self.maker.round(rounds / schedules, rounds % schedules);
            let seen = round.run(self.subject, &self.monitor)?;
            self.count(&round, &seen);
            let wrong = match seen.judge(self.plan)? {
                Seems::Wrong(wrong) => Some(wrong),
                seems => {
                    self.report.unknown += u64::from(matches!(seems, Seems::Unknown));
                    if self.is_time_for_fsck() { self.fsck()? } else { None }
                }
            };
            if let Some(wrong) = wrong {
                self.found(&round, seen, wrong)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, round: &Round, seen: &Seen) {
        let steps = seen.history.steps.iter().map(|step| {
            let moments = step.interval.map(|at| (at.invoked(), at.returned()));
            format!("{} {moments:?} {} = {}\n", step.caller, step.op, step.outcome)
        });
        let text = format!("{}\n{}", round.number, steps.collect::<String>());
        let history = Digest::of(DOMAIN_HISTORY, text.as_bytes());
        self.report.histories += history;
        if round.attempt == 0 {
            self.of_round.clear();
        }
        self.report.different += u64::from(self.of_round.insert(history));
        self.report.rounds += 1;
        self.report.calls += round.schedule.len() as u64;
        self.report.remounts += round.schedule.remounts.len() as u64;
        self.report.overlaps += seen.history.overlaps() as u64;
    }

    fn is_time_for_fsck(&self) -> bool {
        self.plan.fsck_every.is_some_and(|every| self.report.rounds.is_multiple_of(every))
    }

    fn fsck(&mut self) -> Result<Option<Wrong>, HarnessFault> {
        let checked = check_disk(self.subject, &self.monitor)?;
        self.report.fscks += u64::from(checked.is_some());
        Ok(checked.flatten())
    }

    /// Tells what was found, runs it again, and tells it again.
    fn found(&mut self, round: &Round, seen: Seen, wrong: Wrong) -> Result<(), HarnessFault> {
        let name = self.subject.name();
        let mut finding = CallersFinding::new(&name, self.plan, round, seen, wrong);
        let seconds = self.began.elapsed().as_secs_f64();
        finding.seen_first = SeenFirst { ops: self.report.calls, seconds };
        if !self.signatures.insert(finding.signature.clone()) {
            let same = |known: &&mut CallersFinding| known.signature == finding.signature;
            if let Some(known) = self.report.findings.iter_mut().find(same) {
                known.sightings += 1;
            }
            return Ok(());
        }
        let first = finding.record();
        self.subject.step_aside();
        if self.observer.seen(&first) {
            let mut again =
                Again::new(self.subject, &self.monitor, self.plan, finding.wrong.class());
            again.verify(&mut finding)?;
            again.shrink(&mut finding)?;
            self.subject.step_aside();
            self.observer.finding(&finding.record(), Some(&first.id));
        }
        self.report.findings.push(finding);
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        let elapsed = self.started.elapsed();
        if self.told.elapsed() >= PROGRESS_EVERY {
            self.tell();
        }
        self.report.stopped
            || self.plan.supervision.as_ref().is_some_and(|by| by.wants_the_end())
            || self.plan.calls_max.is_some_and(|max| self.report.calls >= max)
            || self.plan.budget.is_some_and(|budget| elapsed >= budget)
            || self.report.findings.len() as u64 >= self.plan.findings_max
    }

    fn tell(&mut self) {
        self.told = Instant::now();
        let report = &self.report;
        let elapsed = self.started.elapsed();
        let share = match (self.plan.calls_max, self.plan.budget) {
            (Some(max), _) => Some(report.calls as f64 / max as f64),
            (None, Some(budget)) => Some(elapsed.as_secs_f64() / budget.as_secs_f64()),
            (None, None) => None,
        };
        let progress = Progress {
            elapsed,
            counts: vec![
                ("operations", report.calls),
                ("rounds", report.rounds),
                ("different", report.different),
                ("overlaps", report.overlaps),
                ("remounts", report.remounts),
                ("fscks", report.fscks),
                ("unknown", report.unknown),
            ],
            share,
            findings: report.findings.len() as u64,
        };
        self.subject.step_aside();
        self.report.stopped |= self.observer.progress(&progress).is_break();
    }
}
