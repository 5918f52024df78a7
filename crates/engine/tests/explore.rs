//! Exploring states: what is tried, who is named, what is noticed besides answers and trees.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{plan, reference};
use fathom_core::{
    Capability, CheckerReport, FsPath, HarnessFault, Op, Outcome, PathState, RestoreMethod, Saved,
    Subject, Testbed, Tree, Unblock,
};
use fathom_engine::{
    Participant, Plan, Remounts, Report, RestorePolicy, Silent, Strategy, check, check_all, replay,
};
use fathom_model::{Config, Model, Mutant, TreeOptions};

/// The model as a subject with everything that a kernel file system has: methods back, a checker, a log,
/// calls that hang.
struct Stage {
    name: String,
    config: Config,
    model: Model,
    saved: Vec<Model>,
    methods: Vec<RestoreMethod>,
    trouble: Trouble,
    applied: u64,
    rescued: Arc<AtomicBool>,
    restores: u64,
}

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// Observing paths shows the wrong size of files with two names.
    Glance,
    /// The checker does not like symbolic links.
    Fsck,
    /// The kernel complains about every fifo.
    Log,
    /// The seventh `mkdir` does not return before it is rescued.
    Hang,
    /// The whole tree, and only that, shows the wrong size of files with two names.
    Whole,
    /// It takes its time, now more and now less.
    Slow,
}

impl Stage {
    fn new(name: &str, mutant: Option<Mutant>, trouble: Trouble) -> Stage {
        let config = Config { mutant, ..reference() };
        Stage {
            name: name.to_owned(),
            model: Model::new(config.clone()).unwrap(),
            config,
            saved: Vec::new(),
            methods: vec![RestoreMethod::Clone],
            trouble,
            applied: 0,
            rescued: Arc::default(),
            restores: 0,
        }
    }

    fn tree(&self) -> Tree {
        self.model.volume().tree(TreeOptions::default())
    }
}

impl Subject for Stage {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.model.capabilities()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        if self.trouble == Trouble::Slow {
            self.applied += 1;
            thread::sleep(Duration::from_micros(u64::from(self.applied as u32 % 5) * 100));
        }
        if self.trouble == Trouble::Hang && matches!(op, Op::Mkdir { .. }) {
            self.applied += 1;
            let since = Instant::now();
            while self.applied == 7 && !self.rescued.load(Ordering::Relaxed) {
                assert!(since.elapsed() < Duration::from_secs(20), "nobody came to the rescue");
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.model.apply(op)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        let mut tree = self.tree();
        if self.trouble == Trouble::Whole {
            for entry in tree.entries.values_mut() {
                let is_file = entry.kind == fathom_core::Kind::File;
                entry.size += u64::from(is_file && entry.nlink == 2);
            }
        }
        Ok(tree)
    }
}

impl Testbed for Stage {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.model = Model::new(self.config.clone()).unwrap();
        self.applied = 0;
        self.rescued.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn observe_paths(&mut self, paths: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
        let tree = self.tree();
        let mut seen: Vec<PathState> = paths.iter().map(|path| tree.path_state(path)).collect();
        if self.trouble == Trouble::Glance {
            for entry in seen.iter_mut().filter_map(|path_state| path_state.entry.as_mut()) {
                entry.size += u64::from(entry.nlink == 2 && entry.target.as_bytes().is_empty());
            }
        }
        Ok(seen)
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        self.methods.clone()
    }

    fn save(&mut self, method: RestoreMethod) -> Result<Saved, HarnessFault> {
        assert!(self.methods.contains(&method));
        self.saved.push(self.model.clone());
        Ok(Saved(self.saved.len() as u64 - 1))
    }

    fn restore(&mut self, saved: Saved) -> Result<(), HarnessFault> {
        self.restores += 1;
        self.model = self.saved[saved.0 as usize].clone();
        Ok(())
    }

    fn fsck(&mut self) -> Result<Option<CheckerReport>, HarnessFault> {
        let bad = self.trouble == Trouble::Fsck
            && self.tree().entries.values().any(|entry| !entry.target.as_bytes().is_empty());
        let output = if bad { "a symbolic link!" } else { "clean" }.to_owned();
        let code = Some(if bad { 4 } else { 0 });
        Ok(Some(CheckerReport { command: "fsck.stage".to_owned(), clean: !bad, code, output }))
    }

    fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        let fifo = |entry: &fathom_core::Entry| entry.kind == fathom_core::Kind::Fifo;
        let bad = self.trouble == Trouble::Log && self.tree().entries.values().any(fifo);
        Ok(if bad { vec!["STAGE-fs error (device loop7): a fifo".to_owned()] } else { Vec::new() })
    }

    fn unblock(&self) -> Option<Unblock> {
        let rescued = Arc::clone(&self.rescued);
        Some(Box::new(move || rescued.store(true, Ordering::Relaxed)))
    }
}

/// A small world: the bounds are reached.
fn bounded(strategy: Strategy, depth_max: u32, moves: u16) -> Plan {
    let mut plan = plan(1, 1_000_000);
    plan.explore.strategy = strategy;
    plan.explore.depth_max = depth_max;
    plan.explore.moves = moves;
    plan.explore.remounts = Some(Remounts::Never);
    plan.explore.hold_files = false;
    plan
}

fn run(stage: &mut Stage, plan: &Plan) -> Report {
    check(stage, plan, &mut Silent).expect("the harness works")
}

fn found(trouble: Trouble, plan: &Plan) -> Report {
    let report = run(&mut Stage::new("stage", None, trouble), plan);
    assert_eq!(report.findings.len(), 1, "{trouble:?} was not found");
    report
}

#[test]
fn a_tour_and_a_depth_first_search_know_the_same_states_at_the_end() {
    for (depth, moves) in [(1, 8), (2, 6), (3, 5)] {
        let states = |strategy, back| {
            let mut plan = bounded(strategy, depth, moves);
            plan.explore.back = back;
            let report = run(&mut Stage::new("stage", None, Trouble::None), &plan);
            assert!(report.stats.complete && report.findings.is_empty(), "{strategy} {back}");
            assert_eq!((report.stats.open, report.stats.given_up), (0, 0));
            (report.stats.known, report.stats.depth)
        };
        let tour = states(Strategy::Tour, RestorePolicy::Cheapest);
        assert_eq!(states(Strategy::Dfs, RestorePolicy::By(RestoreMethod::Clone)), tour);
        assert_eq!(states(Strategy::Dfs, RestorePolicy::Replay), tour);
        assert_eq!(tour.1, depth);
        let all: u64 = (0..=depth).map(|level| u64::from(moves).pow(level)).sum();
        assert!(tour.0 <= all, "no state has more successors than moves");
    }
}

#[test]
fn every_move_of_every_state_is_tried_once_by_a_depth_first_search() {
    let plan = bounded(Strategy::Dfs, 2, 6);
    let report = run(&mut Stage::new("stage", None, Trouble::None), &plan);
    // 6 moves in the start and in each state of depth 1; those of depth 2 are not gone on from.
    let inner = run(&mut Stage::new("stage", None, Trouble::None), &bounded(Strategy::Dfs, 1, 6));
    assert_eq!(report.stats.metas, 6 * inner.stats.known);
}

#[test]
fn a_tour_that_was_interrupted_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("map");
    let whole = run(&mut Stage::new("s", None, Trouble::None), &bounded(Strategy::Tour, 3, 5));
    let part = |states, resume| {
        let mut plan = bounded(Strategy::Tour, 3, 5);
        plan.explore.states_max = states;
        plan.map = Some((path.clone(), resume));
        run(&mut Stage::new("s", None, Trouble::None), &plan).stats
    };
    let first = part(Some(6), false);
    assert!(first.known < whole.stats.known && !first.complete);
    let rest = part(None, true);
    assert_eq!((rest.known, rest.complete), (whole.stats.known, true));
    assert_eq!(part(None, true).metas, 0, "nothing is left to be done");
    refused(&path);
}

/// Maps that are not of this run.
fn refused(path: &Path) {
    let go_on = |seed| {
        let mut plan = bounded(Strategy::Tour, 3, 5);
        plan.seed = seed;
        plan.map = Some((path.to_owned(), true));
        check(&mut Stage::new("s", None, Trouble::None), &plan, &mut Silent)
            .unwrap_err()
            .to_string()
    };
    assert!(go_on(2).contains("it was made with --seed 1"));
    std::fs::write(path, b"something else").unwrap();
    assert!(go_on(1).contains("going on with the map"));
    std::fs::remove_file(path).unwrap();
    assert!(go_on(1).contains("No such file"));
}

#[test]
fn a_way_that_the_subject_does_not_have_is_refused_by_name() {
    let mut plan = bounded(Strategy::Dfs, 2, 2);
    plan.explore.back = RestorePolicy::By(RestoreMethod::Freeze);
    let error = check(&mut Stage::new("stage", None, Trouble::None), &plan, &mut Silent);
    let text = error.unwrap_err().to_string();
    assert_eq!(text, "stage cannot go back by freeze: give one of clone, replay");
}

#[test]
fn observing_paths_finds_what_is_wrong_with_what_was_touched() {
    let mut plan = bounded(Strategy::Tour, 50, 4);
    plan.config.check.tree_every = 1_000_000;
    plan.config.check.shrink_seconds = 0;
    let report = found(Trouble::Glance, &plan);
    let finding = &report.findings[0];
    assert!(finding.signature.to_string().starts_with("tree "), "{finding}");
    // The whole tree is fine: it is what was touched that confirms it.
    assert_eq!(finding.reproduced(), (2, 2));
}

#[test]
fn the_checker_is_asked_and_believed() {
    let mut plan = bounded(Strategy::Tour, 50, 4);
    plan.explore.fsck_every = Some(10);
    let clean = run(&mut Stage::new("stage", None, Trouble::None), &bounded(Strategy::Tour, 2, 4));
    assert_eq!(clean.stats.fscks, 0, "nobody asked");
    let report = found(Trouble::Fsck, &plan);
    let finding = &report.findings[0];
    assert_eq!(finding.signature.to_string(), "checker exit 4");
    assert!(finding.minimal.steps.len() <= 2, "{finding}");
    assert!(finding.to_string().contains("a symbolic link!"), "{finding}");
    let mut stage = Stage::new("stage", None, Trouble::Fsck);
    assert_eq!(
        replay(&mut stage, &finding.minimal).unwrap().signature,
        Some(finding.signature.clone())
    );
}

#[test]
fn what_the_kernel_logs_is_a_finding() {
    let report = found(Trouble::Log, &bounded(Strategy::Tour, 50, 4));
    let finding = &report.findings[0];
    assert_eq!(finding.signature.to_string(), "kernel_log STAGE-fs error (device a fifo");
    assert_eq!(finding.minimal.steps.len(), 1, "{finding}");
}

#[test]
fn a_call_that_does_not_return_is_a_finding_and_is_rescued() {
    let mut plan = bounded(Strategy::Tour, 50, 4);
    plan.explore.deadline = Duration::from_millis(100);
    plan.config.check.shrink_seconds = 1;
    let report = found(Trouble::Hang, &plan);
    let finding = &report.findings[0];
    assert_eq!(finding.signature.to_string(), "hang mkdir no answer");
    assert_eq!(finding.reproduced(), (2, 2));
}

#[test]
fn a_call_that_never_returns_is_told_with_all_operations_before_it() {
    let told: Arc<Mutex<Vec<Op>>> = Arc::default();
    let mut plan = bounded(Strategy::Tour, 50, 4);
    plan.explore.deadline = Duration::from_millis(50);
    let words = Arc::clone(&told);
    let stage = Stage::new("stage", None, Trouble::Hang);
    let deaf = Arc::clone(&stage.rescued);
    plan.on_stuck = Arc::new(move |ops, late| {
        assert!(late >= Duration::from_millis(100));
        *words.lock().unwrap() = ops.to_vec();
        deaf.store(true, Ordering::Relaxed);
    });
    /// Offers no rescue.
    struct Deaf(Stage);
    impl Subject for Deaf {
        fn name(&self) -> String {
            self.0.name()
        }
        fn capabilities(&self) -> BTreeSet<Capability> {
            self.0.capabilities()
        }
        fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
            self.0.apply(op)
        }
        fn observe(&mut self) -> Result<Tree, HarnessFault> {
            self.0.observe()
        }
    }
    impl Testbed for Deaf {
        fn reset(&mut self) -> Result<(), HarnessFault> {
            self.0.reset()
        }
    }
    plan.config.check.shrink_seconds = 0;
    check(&mut Deaf(stage), &plan, &mut Silent).unwrap();
    let ops = told.lock().unwrap();
    assert!(matches!(ops.last(), Some(Op::Mkdir { .. })), "{ops:?}");
    let mkdirs = ops.iter().filter(|op| matches!(op, Op::Mkdir { .. })).count();
    assert_eq!(mkdirs, 7);
}

/// One mutant among three: the vote names it, wherever it sits.
#[test]
fn the_one_that_is_alone_is_named() {
    for guilty in 0..3 {
        let mut stages: Vec<Stage> = ["one", "two", "three"]
            .iter()
            .enumerate()
            .map(|(seat, name)| {
                let mutant = (seat == guilty).then_some(Mutant::ALL[0]);
                Stage::new(name, mutant, Trouble::None)
            })
            .collect();
        let names: Vec<String> = stages.iter().map(|stage| stage.name.clone()).collect();
        let players =
            stages.iter_mut().map(|subject| Participant { subject, reference: reference() });
        let plan = bounded(Strategy::Tour, 10_000, 12);
        let report = check_all(players.collect(), &plan, &mut Silent).unwrap();
        let finding = &report.findings[0];
        assert_eq!(finding.minimal.header.subject, names[guilty]);
        let vote = &finding.labels["vote"];
        assert!(vote.starts_with(&format!("{} is alone; as expected: ", names[guilty])), "{vote}");
    }
}

#[test]
fn if_all_agree_against_the_model_it_is_the_model_that_is_alone() {
    let mut stages =
        ["one", "two"].map(|name| Stage::new(name, Some(Mutant::ALL[0]), Trouble::None));
    let players = stages.iter_mut().map(|subject| Participant { subject, reference: reference() });
    let plan = bounded(Strategy::Tour, 10_000, 12);
    let report = check_all(players.collect(), &plan, &mut Silent).unwrap();
    assert_eq!(report.findings[0].labels["vote"], "the model is alone against one, two");
}

/// What a search that goes on after its findings has found, with how often.
fn all_found(stage: &mut Stage, plan: &Plan) -> Vec<(String, bool)> {
    let report = run(stage, plan);
    assert_eq!(report.stats.ops, 4000, "{:?}", plan.explore);
    let told =
        |finding: &fathom_engine::Finding| (finding.signature.to_string(), finding.sightings > 1);
    report.findings.iter().map(told).collect()
}

/// What was saved or looked at when something is found is not gone on from: otherwise everything
/// that follows is accused.
#[test]
fn a_search_that_goes_on_after_a_finding_starts_from_a_known_state() {
    for strategy in [Strategy::Dfs, Strategy::Tour] {
        let mut plan = bounded(strategy, 50, 4);
        plan.ops_max = Some(4000);
        plan.config.check.findings_max = 100;
        plan.explore.fsck_every = Some(5);
        let found = all_found(&mut Stage::new("stage", None, Trouble::Fsck), &plan);
        assert_eq!(found, [("checker exit 4".to_owned(), true)], "{strategy}: maintenance");

        plan.explore.fsck_every = None;
        plan.config.check.tree_every = 1_000_000;
        let mut stage = Stage::new("stage", None, Trouble::Whole);
        stage.methods = vec![RestoreMethod::Remount];
        // A tour looks at the whole tree when it starts again, which is seldom with such a method.
        plan.config.check.episode_ops = 200;
        let found = all_found(&mut stage, &plan);
        assert!(
            matches!(found.as_slice(), [(only, _)] if only == "tree link size"),
            "{strategy}: the last look: {found:?}"
        );
    }
}

/// What a seed does must not depend on how fast the machine is.
#[test]
fn a_tour_does_not_depend_on_the_clock() {
    let tour = |trouble| {
        let mut plan = bounded(Strategy::Tour, 50, 4);
        plan.ops_max = Some(1500);
        plan.config.check.episode_ops = 300;
        let report = check(&mut Stage::new("stage", None, trouble), &plan, &mut Silent).unwrap();
        let stats = report.stats;
        (stats.ops, stats.known, stats.routes, stats.sweeps, stats.restores, stats.depth)
    };
    let quick = tour(Trouble::None);
    assert!(quick.2 > 0 && quick.4 > 0, "{quick:?}");
    assert_eq!(quick, tour(Trouble::Slow));
}
