//! The campaign: generate, execute on both sides, judge, and look closer at what is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fathom_core::{HarnessFault, Step, Verdict};

use crate::choice::Choices;
use crate::duel::Duel;
use crate::finding::Finding;
use crate::finding::investigate::{Case, investigate};
use crate::generate::{Config, Generator};
use crate::oracle::{Oracle, Signature};
use crate::run::{Runner, step};
use crate::stats::Stats;
use fathom_core::Territory;

use crate::Reporter;

/// How often a reporter is told of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Everything that decides a campaign.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the one choice stream.
    pub seed: u64,
    /// The workload.
    pub config: Config,
    /// The reference.
    pub reference: fathom_model::Config,
    /// Ends after so many operations.
    pub ops_max: Option<u64>,
    /// Ends after this time; verifying and shrinking a finding may take longer.
    pub budget: Option<Duration>,
    /// What a reader of a finding wants to know: kernel version, profile, ….
    pub labels: BTreeMap<String, String>,
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
    let mut campaign = Campaign {
        plan,
        oracle: Oracle::new(&plan.reference, plan.config.check.times),
        reporter,
        started: Instant::now(),
        told: Instant::now(),
        stats: Stats::default(),
        seen: BTreeSet::new(),
        findings: Vec::new(),
    };
    campaign.run(subject)?;
    let generator = Generator::new(Choices::new(0), plan.config.clone(), subject.capabilities());
    let ops: Vec<&str> = generator.calls().map(|call| call.name()).collect();
    let never = campaign.stats.never(&ops);
    Ok(Report { stats: campaign.stats, findings: campaign.findings, never })
}

struct Campaign<'a> {
    plan: &'a Plan,
    oracle: Oracle,
    reporter: &'a mut dyn Reporter,
    started: Instant,
    /// When the reporter was last told of progress.
    told: Instant,
    stats: Stats,
    seen: BTreeSet<Signature>,
    findings: Vec<Finding>,
}

impl Campaign<'_> {
    fn run(&mut self, subject: &mut dyn Territory) -> Result<(), HarnessFault> {
        while !self.is_over() && self.stats.findings < self.plan.config.check.findings_max {
            let case = self.episode(subject)?;
            self.stats.episodes += 1;
            if let Some(case) = case {
                self.look_closer(subject, case)?;
            }
        }
        self.tell();
        Ok(())
    }

    /// Runs from an empty file system to the first violation or the end of the episode.
    fn episode(&mut self, subject: &mut dyn Territory) -> Result<Option<Case>, HarnessFault> {
        let choices = Choices::of_episode(self.plan.seed, self.stats.episodes);
        let capabilities = subject.capabilities();
        let mut generator = Generator::new(choices, self.plan.config.clone(), capabilities);
        let oracle = self.oracle.clone();
        let mut duel = Duel::start(subject, &self.plan.reference, &oracle)?;
        let mut steps: Vec<Step> = Vec::new();
        let (walk_every, episode_ops) =
            (self.plan.config.check.walk_every, self.plan.config.check.episode_ops);
        for index in 0..episode_ops {
            if self.is_over() {
                break;
            }
            let op = generator.next(duel.model());
            let walk = (index + 1) % walk_every == 0 || index + 1 == episode_ops;
            let judged = duel.step(&op, walk)?;
            self.stats.count(&op, &judged.found, duel.model().digest());
            self.stats.walks += u64::from(judged.tree.is_some());
            let verdict = judged.verdict.clone();
            generator.note(&op, &judged.expected, duel.model());
            steps.push(step(index as usize, &op, judged));
            if let Verdict::Violation(violation) = verdict {
                return Ok(Some(Case { steps, violation }));
            }
        }
        self.last_look(&mut duel, steps)
    }

    /// The limits may end an episode between two walks: what it did since the last one counts too.
    fn last_look(
        &mut self,
        duel: &mut Duel<'_>,
        steps: Vec<Step>,
    ) -> Result<Option<Case>, HarnessFault> {
        if steps.last().is_none_or(|step| step.tree.is_some()) {
            return Ok(None);
        }
        self.stats.walks += 1;
        let tree = duel.subject_tree()?;
        Ok(match self.oracle.tree(duel.model(), &tree) {
            Verdict::Violation(violation) => Some(Case { steps, violation }),
            _ => None,
        })
    }

    /// Verifies, shrinks and reports, unless the same was found before.
    fn look_closer(&mut self, subject: &mut dyn Territory, case: Case) -> Result<(), HarnessFault> {
        let signature = case.signature();
        if !self.seen.insert(signature.clone()) {
            return Ok(());
        }
        self.reporter.suspicion(&signature, case.steps.len());
        let mut runner = Runner { subject, reference: &self.plan.reference, oracle: &self.oracle };
        let finding = investigate(&mut runner, self.plan, self.stats.episodes - 1, case)?;
        // With rare walks the guilty operation is only known now.
        if finding.signature != signature && !self.seen.insert(finding.signature.clone()) {
            return Ok(());
        }
        self.stats.findings += 1;
        self.reporter.finding(&finding);
        self.findings.push(finding);
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        let elapsed = self.started.elapsed();
        self.stats.elapsed = elapsed;
        if self.told.elapsed() >= PROGRESS_EVERY {
            self.tell();
        }
        self.plan.ops_max.is_some_and(|ops_max| self.stats.ops >= ops_max)
            || self.plan.budget.is_some_and(|budget| elapsed >= budget)
    }

    fn tell(&mut self) {
        self.told = Instant::now();
        self.reporter.progress(&self.stats);
    }
}
