//! The campaign: generate, execute on all sides, judge, and look closer at what is wrong.
//!
//! [`Exploration`] says in which order states are visited: a [`tour`], depth first ([`dfs`]) or a
//! random [`walk`]. All of them share what is here: one step, the upkeep between steps, and what
//! happens when something is wrong.

mod dfs;
pub mod explore;
mod map;
mod panel;
mod tour;
mod upkeep;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fathom_core::{Capability, HarnessFault, Op, Territory, Violation, Way};

use crate::Reporter;
use crate::choice::Choices;
use crate::coverage::OpCoverage;
use crate::duel::Look;
use crate::finding::investigate::{Case, hang, investigate};
use crate::finding::{Disks, Finding};
use crate::generate::{Config, Generator};
use crate::oracle::Signature;
use crate::pulse::LastWords;
use crate::stats::{Goals, Stats};
use panel::{Blame, Panel};
use upkeep::Upkeep;

pub use explore::{Back, Exploration, Remounts, Strategy};
pub use panel::Player;

/// How often a reporter is told of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Looking at the clock takes as long as a cheap operation; it is looked at once in so many.
const CLOCK_EVERY: u64 = 16;

/// Everything that decides a campaign.
#[derive(Clone)]
pub struct Plan {
    /// Seed of the one choice stream.
    pub seed: u64,
    /// The workload.
    pub config: Config,
    /// The reference of the first player.
    pub reference: fathom_model::Config,
    /// In which order states are visited.
    pub explore: Exploration,
    /// Ends after so many operations.
    pub ops_max: Option<u64>,
    /// Ends after this time; verifying and shrinking a finding may take longer.
    pub budget: Option<Duration>,
    /// Where the map of a tour is kept, and whether it is gone on with.
    pub map: Option<(PathBuf, bool)>,
    /// What a reader of a finding wants to know: kernel version, profile, ….
    pub labels: BTreeMap<String, String>,
    /// What to do when a call does not return even after the rescue; by default nothing but to go on
    /// waiting.
    pub last_words: LastWords,
}

impl Plan {
    /// A plan without limits.
    pub fn new(seed: u64, config: Config, reference: fathom_model::Config) -> Plan {
        Plan {
            seed,
            config,
            reference,
            explore: Exploration::default(),
            ops_max: None,
            budget: None,
            map: None,
            labels: BTreeMap::new(),
            last_words: Arc::new(|_, _| {}),
        }
    }
}

/// How a campaign ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was done.
    pub stats: Stats,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Goals of the workload that were never reached.
    pub never: Vec<String>,
    /// The inputs and outputs that the first subject has seen.
    pub coverage: OpCoverage,
    /// Every operation with the errors that it should meet in a long run.
    pub goals: Goals,
}

/// Compares `subject` with the reference until a limit of the plan is reached.
///
/// # Errors
/// If the harness fails; that is never a finding.
pub fn check(
    subject: &mut dyn Territory,
    plan: &Plan,
    reporter: &mut dyn Reporter,
) -> Result<Report, HarnessFault> {
    check_all(vec![Player { subject, reference: plan.reference.clone() }], plan, reporter)
}

/// Compares all players, each with its own reference, and lets them vote on who is wrong. The first
/// one decides the workload's reference.
///
/// # Errors
/// If the harness fails; that is never a finding.
pub fn check_all(
    players: Vec<Player<'_>>,
    plan: &Plan,
    reporter: &mut dyn Reporter,
) -> Result<Report, HarnessFault> {
    // Only what all of them can do is asked of any.
    let can = |player: &Player<'_>| player.subject.capabilities();
    let capabilities: BTreeSet<Capability> = players
        .iter()
        .map(can)
        .reduce(|all, some| all.intersection(&some).copied().collect())
        .unwrap_or_default();
    let mut config = plan.config.clone();
    if plan.explore.strategy != Strategy::Walk && config.data.patterns == 0 {
        config.data.patterns = explore::PATTERNS;
    }
    let disks = players.iter().map(|_| Disks::default()).collect();
    let remountable = capabilities.contains(&Capability::Remount);
    let times = plan.config.check.times;
    let campaign = Campaign {
        plan,
        generator: Generator::new(Choices::new(plan.seed), config.clone(), capabilities),
        config,
        panel: Panel::start(players, times, &plan.explore, &plan.last_words)?,
        upkeep: Upkeep::new(&plan.explore, remountable, plan.seed),
        reporter,
        started: Instant::now(),
        told: Instant::now(),
        asked: 0,
        over: false,
        since_walk: 0,
        since_disk: 0,
        disks,
        stats: Stats::default(),
        seen: BTreeSet::new(),
        findings: Vec::new(),
        coverage: OpCoverage::default(),
    };
    campaign.run()
}

struct Campaign<'a, 'b> {
    plan: &'a Plan,
    config: Config,
    generator: Generator,
    panel: Panel<'b>,
    upkeep: Upkeep,
    reporter: &'a mut dyn Reporter,
    started: Instant,
    /// When the reporter was last told of progress.
    told: Instant,
    /// How often it was asked whether it is over.
    asked: u64,
    over: bool,
    /// Operations since the whole trees were compared.
    since_walk: u64,
    /// Operations since the disks were kept.
    since_disk: u64,
    /// Of each player.
    disks: Vec<Disks>,
    stats: Stats,
    seen: BTreeSet<Signature>,
    findings: Vec<Finding>,
    coverage: OpCoverage,
}

/// How a meta-operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    /// As expected.
    Well,
    /// Something is wrong, and was looked at closely: the subjects are in an unknown state.
    Wrong,
    /// The operations are used up in the middle of it.
    Short,
}

impl Campaign<'_, '_> {
    fn run(mut self) -> Result<Report, HarnessFault> {
        match self.plan.explore.strategy {
            Strategy::Tour => self.tour()?,
            Strategy::Dfs => self.dfs()?,
            Strategy::Walk => self.walk()?,
        }
        self.tell();
        let calls: Vec<&str> = self.generator.calls().map(|call| call.name()).collect();
        let (never, goals) = (self.stats.never(&calls), self.stats.goals(&calls));
        let Campaign { stats, findings, coverage, .. } = self;
        Ok(Report { stats, findings, never, coverage, goals })
    }

    /// Executes one operation on all, looks as closely as it is time for, and counts it.
    fn act(&mut self, op: &Op) -> Result<Option<Blame>, HarnessFault> {
        self.since_walk += 1;
        let whole = self.since_walk >= self.plan.config.check.walk_every || *op == Op::Remount;
        let look = if whole { Look::Whole } else { Look::Touched };
        let tried = self.panel.step(op, look)?;
        if tried.skipped {
            return Ok(None);
        }
        if tried.walked {
            self.since_walk = 0;
            self.stats.walks += 1;
        }
        self.stats.count(op, &tried.found, self.panel.model().digest());
        self.coverage.record(op, &tried.found);
        self.generator.note(op, &tried.expected, self.panel.model());
        Ok(tried.blame)
    }

    /// Executes a meta-operation.
    fn perform(&mut self, ops: &[Op]) -> Result<Went, HarnessFault> {
        self.stats.metas += 1;
        for op in ops {
            if self.plan.ops_max.is_some_and(|ops_max| self.stats.ops >= ops_max) {
                self.over = true;
                return Ok(Went::Short);
            }
            if let Some(blame) = self.act(op)? {
                return self.look_closer(blame);
            }
        }
        Ok(Went::Well)
    }

    /// Remounts, checks and keeps the disk, if it is time.
    fn keep_up(&mut self, ops: usize) -> Result<Went, HarnessFault> {
        self.since_disk += ops as u64;
        let due = self.since_disk >= self.config.check.disk_every;
        if due && !self.panel.model().has_open_files() {
            self.since_disk = 0;
            self.keep_disks()?;
        }
        let due = self.upkeep.after(ops as u64);
        if due.remount
            && let Some(blame) = self.act(&Op::Remount)?
        {
            return self.look_closer(blame);
        }
        if due.fsck { self.fsck() } else { Ok(Went::Well) }
    }

    /// Keeps the present disks for a finding, where there are disks.
    fn keep_disks(&mut self) -> Result<(), HarnessFault> {
        let max = self.plan.explore.images;
        for (duel, disks) in self.panel.duels.iter_mut().zip(&mut self.disks) {
            let ways = duel.subject().ways();
            let Some(way) = ways.iter().find(|way| matches!(way, Way::Freeze | Way::Remount))
            else {
                continue;
            };
            if max > 0 {
                let ops = duel.steps().len();
                let saved = duel.subject().save(*way)?;
                disks.push(duel.subject(), ops, saved, max);
            }
        }
        Ok(())
    }

    fn fsck(&mut self) -> Result<Went, HarnessFault> {
        let (checkers, blame) = self.panel.fsck()?;
        self.stats.fscks += checkers;
        match blame {
            Some(blame) => self.look_closer(blame),
            None => Ok(Went::Well),
        }
    }

    /// Compares the whole trees, unless that has just been done.
    fn last_look(&mut self) -> Result<Went, HarnessFault> {
        if self.since_walk == 0 {
            return Ok(Went::Well);
        }
        self.since_walk = 0;
        self.stats.walks += 1;
        match self.panel.walk()? {
            Some(blame) => self.look_closer(blame),
            None => Ok(Went::Well),
        }
    }

    /// All start again with empty file systems.
    fn restart(&mut self) -> Result<(), HarnessFault> {
        self.stats.episodes += 1;
        self.since_walk = 0;
        self.since_disk = 0;
        for (duel, disks) in self.panel.duels.iter_mut().zip(&mut self.disks) {
            disks.clear(duel.subject());
        }
        self.panel.restart()
    }

    /// Verifies, shrinks and reports, unless the same was found before.
    fn look_closer(&mut self, blame: Blame) -> Result<Went, HarnessFault> {
        let duel = &mut self.panel.duels[blame.player];
        if duel.steps().is_empty() {
            return Err(HarnessFault::new(
                format!("{} is wrong before the first operation", duel.subject().name()),
                format!("{:?}", blame.violation),
            ));
        }
        let case = Case { steps: duel.steps().to_vec(), violation: blame.violation };
        let signature = case.signature();
        if !self.seen.insert(signature.clone()) {
            return Ok(Went::Wrong);
        }
        self.reporter.suspicion(&signature, case.steps.len());
        let name = duel.subject().name();
        let disks = self.disks[blame.player].read(duel.subject())?;
        self.disks[blame.player].clear(duel.subject());
        let mut plan = self.plan.clone();
        plan.labels.extend(blame.vote.map(|vote| ("vote".to_owned(), vote)));
        let mut runner = duel.runner(signature.is_checker());
        let hung = matches!(case.violation, Violation::Hang { .. });
        let ops = case.ops();
        let finding = match investigate(&mut runner, &plan, self.stats.episodes, case, disks) {
            // What has hung once need not come up again; the finding is not lost for that.
            Err(_) if hung => hang(&name, &plan, &ops, plan.explore.deadline),
            finding => finding?,
        };
        // With rare walks the guilty operation is only known now.
        if finding.signature != signature && !self.seen.insert(finding.signature.clone()) {
            return Ok(Went::Wrong);
        }
        self.stats.findings += 1;
        self.over |= self.stats.findings >= self.plan.config.check.findings_max;
        self.reporter.finding(&finding);
        self.findings.push(finding);
        Ok(Went::Wrong)
    }

    fn is_over(&mut self) -> bool {
        self.asked += 1;
        self.over |= self.plan.ops_max.is_some_and(|ops_max| self.stats.ops >= ops_max);
        if self.asked % CLOCK_EVERY == 1 {
            let elapsed = self.started.elapsed();
            self.stats.elapsed = elapsed;
            self.over |= self.plan.budget.is_some_and(|budget| elapsed >= budget);
            if self.told.elapsed() >= PROGRESS_EVERY {
                self.tell();
            }
        }
        self.over
    }

    fn tell(&mut self) {
        self.told = Instant::now();
        self.stats.elapsed = self.started.elapsed();
        self.reporter.progress(&self.stats);
    }
}
