//! Several callers at once: every race of the reference is found, the reference itself is never accused.

use std::collections::BTreeSet;
use std::time::Duration;

use fathom_core::{
    Caller, Capability, CheckerReport, HarnessFault, Op, Outcome, Schedule, Step, Subject, Testbed,
    Tree,
};
use fathom_engine::Silent;
use fathom_engine::callers::again::repeat;
use fathom_engine::callers::finding::{StoredRound, Wrong};
use fathom_engine::callers::{CallersPlan, check_callers};
use fathom_generate::callers::Theme;
use fathom_model::{Config, ModelSubject, Race};

fn plan(seed: u64, seconds: u64) -> CallersPlan {
    let mut plan = CallersPlan::new(seed, 4, Config::default());
    plan.budget = Some(Duration::from_secs(seconds));
    plan.shrink = Duration::from_secs(4);
    plan
}

#[test]
fn the_reference_is_never_accused() {
    let mut subject = ModelSubject::new(Config::default()).unwrap();
    let mut plan = plan(1, 600);
    plan.calls_max = Some(6_000);
    let report = check_callers(&mut subject, &plan, &mut Silent).unwrap();
    let stories: Vec<String> = report.findings.iter().map(|finding| finding.story()).collect();
    assert!(stories.is_empty(), "{}", stories.join("\n"));
    assert_eq!(report.unknown, 0);
    assert!(report.rounds > 20 && report.overlaps > 0, "{report:?}");
}

#[test]
fn every_race_is_found_drawn_and_shown_again() {
    for race in Race::ALL {
        let config = Config { race: Some(*race), ..Config::default() };
        let mut subject = ModelSubject::new(config).unwrap();
        let mut plan = plan(1, 60);
        plan.findings_max = 1;
        let report = check_callers(&mut subject, &plan, &mut Silent).unwrap();
        let [finding] = &report.findings[..] else { panic!("{} was not found", race.name()) };
        assert!(matches!(finding.wrong, Wrong::NoOrder(_)), "{}", finding.story());
        assert!(finding.complete && finding.runs > 0);
        assert!(finding.round.schedule.len() <= finding.calls_first);
        let story = finding.story();
        assert!(story.contains("caller ") && story.contains("┌"), "{story}");
        let out = tempfile::tempdir().unwrap();
        let dir = finding.record().write(out.path()).unwrap();
        let stored = StoredRound::read(&dir).unwrap();
        assert!(StoredRound::is_in(&dir) && stored.round == finding.round);
        let again = repeat(&mut subject, &stored, 400, Duration::from_secs(10)).unwrap();
        assert!(again.shown > 0, "{} was not shown again in {} runs", race.name(), again.runs);
    }
}

/// A campaign whose rounds have few calls, in virtual time.
fn few_calls(seed: u64, schedules: u64, calls_max: u64) -> CallersPlan {
    let mut plan = CallersPlan::new(seed, 2, Config::default());
    (plan.calls, plan.theme, plan.schedules) = (4, Some(Theme::Exclusive), schedules);
    (plan.calls_max, plan.findings_max) = (Some(calls_max), 1);
    plan.shrink = Duration::from_secs(120);
    plan
}

/// What one schedule of some operations does not show, another one of the same does; and of the delays that it took
/// few are needed.
#[test]
fn a_race_is_shown_by_another_schedule_of_the_same_operations() {
    let config = Config { race: Some(Race::Create), ..Config::default() };
    let mut subject = ModelSubject::new(config).unwrap().with_virtual_time();
    let (mut by_first, mut by_another) = (0, 0);
    let (mut delays_first, mut delays_left) = (0, 0);
    for seed in 0..200 {
        let one = check_callers(&mut subject, &few_calls(seed, 1, 1), &mut Silent).unwrap();
        assert_eq!((one.rounds, one.different), (1, 1));
        if !one.findings.is_empty() {
            by_first += 1;
            continue;
        }
        let plan = few_calls(seed, 8, 8 * one.calls);
        let report = check_callers(&mut subject, &plan, &mut Silent).unwrap();
        let Some(finding) = report.findings.first() else {
            assert!(report.rounds == 8 && report.different <= 8, "{report:?}");
            continue;
        };
        by_another += 1;
        assert!(finding.round.number == 0 && finding.round.attempt > 0, "{}", finding.story());
        assert!(report.different > 1, "other delays are another history");
        assert_eq!(finding.runs, finding.runs_reproduced, "virtual time repeats itself");
        assert!(finding.round.schedule.len() < finding.calls_first, "{}", finding.story());
        delays_first += finding.delays_first;
        delays_left += finding.round.schedule.delays();
    }
    assert!(2 * delays_left < delays_first, "{delays_left} of {delays_first} delays are left");
    assert!(by_another >= 5, "{by_first} by the first schedule, {by_another} by another one");
    println!("{by_first} by the first schedule, {by_another} by another one of eight");
    println!("{delays_left} of {delays_first} delays are left");
}

/// The reference with a kernel's log and a checker that complain if two kinds of calls were made at once.
struct Complaining {
    inner: ModelSubject,
    by_log: bool,
    complains: bool,
}

impl Subject for Complaining {
    fn name(&self) -> String {
        "complaining".to_owned()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.inner.capabilities()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        self.inner.apply(op)
    }

    fn apply_as(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        self.inner.apply_as(caller, op)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.inner.observe()
    }
}

impl Testbed for Complaining {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.complains = false;
        self.inner.reset()
    }

    fn run_callers(&mut self, schedule: &Schedule) -> Result<Vec<Step>, HarnessFault> {
        let has = |name: &str| schedule.lanes.iter().flatten().any(|it| it.op.name() == name);
        self.complains = has("rename") && has("unlink");
        self.inner.run_callers(schedule)
    }

    fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        let lines = vec!["something is wrong with a name".to_owned()];
        Ok(if self.by_log && self.complains { lines } else { Vec::new() })
    }

    fn fsck(&mut self) -> Result<Option<CheckerReport>, HarnessFault> {
        let clean = self.by_log || !self.complains;
        let (command, output) = ("fsck".to_owned(), "a name is lost".to_owned());
        Ok(Some(CheckerReport { command, clean, code: Some(i32::from(!clean)), output }))
    }
}

#[test]
fn what_the_log_and_the_checker_say_is_made_smaller() {
    for by_log in [true, false] {
        let inner = ModelSubject::new(Config::default()).unwrap().with_virtual_time();
        let mut subject = Complaining { inner, by_log, complains: false };
        let mut plan = CallersPlan::new(1, 4, Config::default());
        (plan.theme, plan.findings_max, plan.fsck_every) = (Some(Theme::Names), 1, Some(1));
        (plan.calls_max, plan.shrink) = (Some(10_000), Duration::from_secs(120));
        let report = check_callers(&mut subject, &plan, &mut Silent).unwrap();
        let [finding] = &report.findings[..] else { panic!("nothing was found: {by_log}") };
        assert_eq!(finding.wrong.class(), if by_log { "kernel_log" } else { "checker" });
        assert!(finding.runs > 0 && finding.runs == finding.runs_reproduced);
        let names = finding.round.schedule.lanes.iter().flatten().map(|planned| planned.op.name());
        assert_eq!(names.collect::<BTreeSet<_>>(), BTreeSet::from(["rename", "unlink"]));
        let left = (finding.round.schedule.len(), finding.round.schedule.delays());
        assert_eq!(left, (2, 0), "{}", finding.story());
        let out = tempfile::tempdir().unwrap();
        let stored = StoredRound::read(&finding.record().write(out.path()).unwrap()).unwrap();
        let again = repeat(&mut subject, &stored, 5, Duration::from_secs(60)).unwrap();
        assert_eq!((again.shown, again.same), (5, 5));
        assert!(again.same_every_time);
    }
}
