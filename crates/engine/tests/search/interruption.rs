//! Stop, die, go on: the result is that of a search that was never interrupted.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fathom_engine::search::{
    CheckpointError, Checkpoints, Discovery, Observer, Plan, Progress, SearchError, Stop, Strategy,
    System, Unobserved, search,
};

use super::systems::puzzle::Puzzle;
use super::systems::random::RandomGraph;
use super::systems::recorder::Recorder;
use super::{BITSTATE, THREADS, busy, comparable, everything, run};

fn graph() -> RandomGraph {
    RandomGraph { seed: 8, nodes: 30_000, degree: 7, vague: true, bad: 101 }
}

pub(crate) fn with_file(plan: &Plan, path: &Path, resume: bool) -> Plan {
    let checkpoints = Checkpoints {
        path: path.to_owned(),
        label: "test".to_owned(),
        every: Duration::from_millis(1),
        resume,
    };
    Plan { checkpoints: Some(checkpoints), ..plan.clone() }
}

#[test]
fn searches_in_pieces_are_the_whole_search() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    for memory in [Plan::default().memory, BITSTATE] {
        let plan = Plan { memory, deadlock: true, ..everything() };
        let whole = comparable(run(&graph(), &Strategy::Bfs, &plan));
        let mut resume = false;
        for (round, states_max) in (500..).step_by(1777).enumerate() {
            let threads = THREADS[round % 3];
            let plan = Plan { states_max: Some(states_max), threads, ..plan.clone() };
            let report = run(&graph(), &Strategy::Bfs, &with_file(&plan, &path, resume));
            resume = true;
            if report.stop == Stop::Exhausted {
                assert_eq!(comparable(report), whole);
                assert!(round > 3, "{round} interruptions");
                break;
            }
            assert_eq!((report.stop, report.states), (Stop::States, states_max));
        }
    }
}

#[test]
fn a_deeper_bound_goes_on_where_the_last_one_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    for strategy in [Strategy::Bfs, Strategy::Dfs] {
        let graph = RandomGraph { vague: false, ..graph() };
        // Without any bound, a depth-first search keeps no depths: that is another search.
        let last = if strategy == Strategy::Bfs { None } else { Some(30) };
        for (round, depth_max) in [Some(2), Some(5), Some(6), last].into_iter().enumerate() {
            let plan = Plan { depth_max, ..everything() };
            let resumed = run(&graph, &strategy, &with_file(&plan, &path, round > 0));
            let whole = run(&graph, &strategy, &plan);
            assert_eq!(
                resumed.states_by_depth, whole.states_by_depth,
                "{strategy:?} {depth_max:?}"
            );
            assert_eq!(resumed.stop, whole.stop);
        }
        let shallower = Plan { depth_max: Some(3), ..everything() };
        let refused =
            search(&graph, &strategy, &with_file(&shallower, &path, true), &mut Unobserved);
        assert!(matches!(refused, Err(SearchError::Plan(_))), "{refused:?}");
    }
}

/// Ends a search after some time, again and again.
pub(crate) struct Restless(pub(crate) u32);

impl Observer for Restless {
    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        self.0 -= 1;
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn discovery(&mut self, _: &Discovery) {}
}

/// The 3 × 3 puzzle, slowed down.
struct SlowPuzzle;

const PUZZLE: Puzzle = Puzzle { width: 3, height: 3 };

impl System for SlowPuzzle {
    type State = u64;
    type Action = u8;

    fn init(&self) -> Vec<u64> {
        PUZZLE.init()
    }

    fn actions(&self, state: &u64, actions: &mut Vec<u8>) {
        PUZZLE.actions(state, actions);
    }

    fn next(&self, state: &u64, action: &u8) -> Option<u64> {
        busy(Duration::from_micros(1));
        PUZZLE.next(state, action)
    }

    fn key(&self, state: &u64) -> u128 {
        PUZZLE.key(state)
    }
}

#[test]
fn ended_on_request_and_resumed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    for strategy in [Strategy::Bfs, Strategy::Dfs] {
        let whole = comparable(run(&SlowPuzzle, &strategy, &everything()));
        let mut rounds = 0;
        loop {
            let plan = with_file(&everything(), &path, rounds > 0);
            let report =
                search(&SlowPuzzle, &strategy, &plan, &mut Restless(1)).expect("a sound plan");
            rounds += 1;
            if report.stop != Stop::Asked {
                assert_eq!(comparable(report), whole);
                break;
            }
        }
        assert!(rounds > 1, "never interrupted");
    }
}

/// Not a test by itself: what [`killed_and_resumed`] kills.
#[test]
fn victim() {
    if let (Some(path), Some(strategy)) = (std::env::var_os("VICTIM"), std::env::var_os("STRATEGY"))
    {
        let strategy = if strategy == "bfs" { Strategy::Bfs } else { Strategy::Dfs };
        let slow = Recorder { effort: Duration::from_micros(10), ..Recorder::new(graph()) };
        run(&slow, &strategy, &with_file(&everything(), Path::new(&path), false));
    }
}

#[test]
fn killed_and_resumed() {
    let directory = tempfile::tempdir().expect("a directory");
    for (strategy, name) in [(Strategy::Bfs, "bfs"), (Strategy::Dfs, "dfs")] {
        let path = directory.path().join(name);
        let mut victim = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "interruption::victim"])
            .envs([("VICTIM", path.as_os_str()), ("STRATEGY", name.as_ref())])
            .stdout(Stdio::null())
            .spawn()
            .expect("a child process");
        let patience = Instant::now() + Duration::from_secs(60);
        while fs::metadata(&path).map_or(0, |file| file.len()) < 20_000 {
            assert!(Instant::now() < patience, "no checkpoint was written");
            std::thread::sleep(Duration::from_millis(1));
        }
        victim.kill().expect("SIGKILL");
        let status = victim.wait().expect("its end");
        assert!(!status.success(), "it was too fast to be killed");
        let (resumed, whole) = (Recorder::new(graph()), Recorder::new(graph()));
        let report = run(&resumed, &strategy, &with_file(&everything(), &path, true));
        assert_eq!(comparable(report), comparable(run(&whole, &strategy, &everything())));
        assert_eq!(resumed.records(), whole.records());
        let judged = |recorder: &Recorder| recorder.judged.load(Ordering::Relaxed);
        assert!(judged(&resumed) < judged(&whole), "it began again");
    }
}

#[test]
fn damage_is_refused_wherever_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    let graph = Recorder::new(RandomGraph { nodes: 24, ..graph() });
    let start = with_file(&everything(), &path, false);
    run(&graph, &Strategy::Bfs, &start);
    let good = fs::read(&path).expect("the checkpoint");
    let resume = with_file(&everything(), &path, true);
    let attempt = || search(&graph, &Strategy::Bfs, &resume, &mut Unobserved);
    assert!(attempt().is_ok());
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("written");
        let error = attempt().expect_err("damaged");
        assert!(matches!(error, SearchError::Checkpoint(CheckpointError::Damaged(_))), "{error}");
    };
    for byte in 0..good.len() {
        let mut bad = good.clone();
        bad[byte] ^= 0x10;
        refused(&bad);
        refused(&good[..byte]);
    }
    fs::remove_file(&path).expect("removed");
    let error = attempt().expect_err("missing").to_string();
    assert!(error.contains("cannot read the checkpoint"), "{error}");
}

#[test]
fn another_search_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    let start = with_file(&Plan { states_max: Some(100), ..everything() }, &path, false);
    run(&graph(), &Strategy::Bfs, &start);
    let resume = with_file(&everything(), &path, true);
    let error = |graph: &RandomGraph, strategy: &Strategy, plan: &Plan| match search(
        graph,
        strategy,
        plan,
        &mut Unobserved,
    ) {
        Err(SearchError::Checkpoint(error)) => error,
        other => panic!("{other:?}"),
    };
    let other = error(&graph(), &Strategy::Dfs, &resume);
    assert!(matches!(other, CheckpointError::Other { .. }), "{other}");
    let other = error(&graph(), &Strategy::Bfs, &Plan { memory: BITSTATE, ..resume.clone() });
    assert!(matches!(other, CheckpointError::Other { .. }), "{other}");
    let changed = error(&RandomGraph { seed: 9, ..graph() }, &Strategy::Bfs, &resume);
    assert!(matches!(changed, CheckpointError::Changed(_)), "{changed}");
    let nowhere = with_file(&everything(), Path::new("/nonexistent/checkpoint"), false);
    let io = error(&graph(), &Strategy::Bfs, &nowhere);
    assert!(matches!(io, CheckpointError::Io { .. }), "{io}");
}
