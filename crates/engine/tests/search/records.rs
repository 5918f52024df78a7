//! Systems that judge and remember by themselves: their records survive any interruption.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fathom_engine::search::{
    CheckpointError, Plan, Report, SearchError, Stop, Strategy, Unobserved, search,
};

use super::interruption::{Restless, with_file};
use super::systems::random::{RandomGraph, plain_bfs};
use super::systems::recorder::Recorder;
use super::{THREADS, comparable, everything, run};

fn graph() -> RandomGraph {
    RandomGraph { seed: 8, nodes: 30_000, degree: 7, vague: true, bad: 101 }
}

/// A new recorder, as a new process would have it, takes part in one piece of a search.
fn piece(strategy: &Strategy, plan: &Plan, path: &Path, resume: bool) -> (Recorder, Report) {
    let recorder = Recorder::new(graph());
    let report = run(&recorder, strategy, &with_file(plan, path, resume));
    (recorder, report)
}

#[test]
fn records_are_those_of_the_whole_search() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    let whole = Recorder::new(graph());
    let whole_report = comparable(run(&whole, &Strategy::Bfs, &everything()));
    let plain = plain_bfs(&graph(), usize::MAX);
    assert_eq!((plain.states, plain.transitions), (25_108, 69_548));
    assert_eq!((whole_report.states, whole_report.transitions), (plain.states, plain.transitions));
    assert_eq!(whole.records().len(), 27_631);
    for step in [911, 4003, 9999] {
        let mut resume = false;
        for (round, states_max) in (3..).step_by(step).enumerate() {
            let threads = THREADS[round % 3];
            let plan = Plan { states_max: Some(states_max), threads, ..everything() };
            let (recorder, report) = piece(&Strategy::Bfs, &plan, &path, resume);
            resume = true;
            if report.stop == Stop::Exhausted {
                assert!(round > 1, "{round} interruptions");
                assert_eq!(comparable(report), whole_report);
                assert_eq!(recorder.records(), whole.records());
                break;
            }
            assert_eq!((report.stop, report.states), (Stop::States, states_max));
        }
    }
}

#[test]
fn nothing_is_judged_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    for strategy in [Strategy::Bfs, Strategy::Dfs] {
        let (whole, report) = piece(&strategy, &everything(), &path, false);
        assert_eq!(whole.retraced.load(Ordering::Relaxed), 0);
        for threads in THREADS {
            let plan = Plan { threads, ..everything() };
            let (again, same) = piece(&strategy, &plan, &path, true);
            assert_eq!(comparable(same), comparable(report.clone()));
            assert_eq!(again.records(), whole.records());
            assert_eq!(again.judged.load(Ordering::Relaxed), 0);
            // All but the initial states, once.
            assert_eq!(again.retraced.load(Ordering::Relaxed), report.states - 3);
        }
        let found = &report.discoveries[0].path;
        let looker = Recorder::new(graph());
        let trace = found.trace(&looker).expect("its own path");
        assert_eq!(trace.end().0 % looker.graph.bad, 0);
        assert_eq!(looker.judged.load(Ordering::Relaxed), 0);
        assert_eq!(looker.retraced.load(Ordering::Relaxed), found.steps() as u64);
        run(&looker, &Strategy::Replay(found.clone()), &everything());
        assert_eq!(looker.judged.load(Ordering::Relaxed), found.steps() as u64);
    }
}

#[test]
fn every_bound_leaves_a_checkpoint() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    let whole = Recorder::new(graph());
    let whole_report = comparable(run(&whole, &Strategy::Bfs, &everything()));
    let stops = [
        (Stop::Time, Plan { time_max: Some(Duration::from_millis(3)), ..everything() }),
        (Stop::Memory, Plan { memory_max_bytes: Some(1), ..everything() }),
        (Stop::Asked, everything()),
    ];
    for (stop, plan) in stops {
        let recorder = Recorder { effort: Duration::from_micros(10), ..Recorder::new(graph()) };
        let plan = with_file(&Plan { threads: 2, ..plan }, &path, false);
        let report = search(&recorder, &Strategy::Bfs, &plan, &mut Restless(1));
        assert_eq!(report.expect("a sound plan").stop, stop);
        let (resumed, report) = piece(&Strategy::Bfs, &everything(), &path, true);
        assert_eq!(comparable(report), whole_report);
        assert_eq!(resumed.records(), whole.records());
        fs::remove_file(&path).expect("it was written");
    }
}

#[test]
fn records_of_another_kind_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    piece(&Strategy::Bfs, &Plan { states_max: Some(50), ..everything() }, &path, false);
    let resume = with_file(&everything(), &path, true);
    // The same system, without records.
    let error = search(&graph(), &Strategy::Bfs, &resume, &mut Unobserved).expect_err("records");
    assert!(matches!(error, SearchError::Checkpoint(CheckpointError::Records(_))), "{error}");
}
