//! What is found: counterexamples, witnesses, deadlocks, and that they can be replayed.

use fathom_engine::search::{Discovery, Path, Plan, Stop, Strategy};

use super::systems::grid::Grid;
use super::systems::jugs::{Action, Jugs};
use super::systems::philosophers::{Philosophers, WAITS};
use super::systems::queens::Queens;
use super::systems::two_phase::TwoPhase;
use super::{BITSTATE, everything, run, run_with_all_threads};

#[test]
fn the_shortest_counterexample() {
    let jugs = Jugs { sizes: [3, 5], wanted: 4 };
    let report = run_with_all_threads(&jugs, &Strategy::Bfs, &Plan::default());
    assert_eq!(report.stop, Stop::Violation);
    let path = &report.discovery("not measured").expect("4 can be measured").path;
    assert_eq!(path.steps(), 6);
    let trace = path.trace(&jugs).expect("a path of this system");
    assert!(trace.end().contains(&4));
    use Action::{Empty, Fill, PourFrom};
    let known = [Fill(1), PourFrom(1), Empty(0), PourFrom(1), Fill(1), PourFrom(1)];
    assert!(trace.actions().eq(&known), "the only solution of 6 steps: {:?}", trace.steps);
    assert_eq!(Path::of_actions(&jugs, 0, &known).as_ref(), Some(path));
}

#[test]
fn a_search_that_ends_at_a_violation_ends_exactly_there() {
    for forbidden in 0..12 {
        let grid = Grid { forbidden, ..Grid::new(&[6, 5, 3]) };
        let report = run_with_all_threads(&grid, &Strategy::Bfs, &Plan::default());
        let nearer: u64 = grid.states_by_depth()[..forbidden as usize].iter().sum();
        let found = report.discovery("allowed").expect("reachable");
        assert_eq!((found.path.steps(), found.count), (forbidden as usize, 1));
        assert_eq!(report.states, nearer + 1, "all nearer states, and the first of the others");
        let path = found.path.trace(&grid).expect("a path");
        assert_eq!(path.end().iter().map(|c| u32::from(*c)).sum::<u32>(), forbidden);
    }
}

#[test]
fn without_stopping_all_violations_are_counted() {
    for strategy in [Strategy::Bfs, Strategy::Dfs] {
        let report = run_with_all_threads(&Queens(8), &strategy, &everything());
        let found = report.discovery("unsolved").expect("8 queens can be placed");
        assert_eq!((found.count, found.path.steps()), (92, 8));
        assert_eq!(report.stop, Stop::Exhausted);
    }
}

#[test]
fn deadlocks() {
    for n in [2, 3, 6, 9] {
        let plan = Plan { deadlock: true, ..Plan::default() };
        let report = run_with_all_threads(&Philosophers(n), &Strategy::Bfs, &plan);
        assert_eq!(report.stop, Stop::Violation);
        let deadlock = report.discovery(Discovery::DEADLOCK).expect("all take the left fork");
        assert_eq!(deadlock.path.steps(), n);
        let trace = deadlock.path.trace(&Philosophers(n)).expect("a path");
        assert!(trace.end().iter().all(|philosopher| *philosopher == WAITS));
        for strategy in [Strategy::Bfs, Strategy::Dfs] {
            let plan = Plan { stop_at_first: false, ..plan.clone() };
            let report = run_with_all_threads(&Philosophers(n), &strategy, &plan);
            assert_eq!(report.discovery(Discovery::DEADLOCK).map(|d| d.count), Some(1));
            assert_eq!(report.states, Philosophers(n).states());
        }
    }
}

#[test]
fn a_proper_end_is_no_deadlock() {
    let plan = Plan { deadlock: true, ..everything() };
    let count = |queens| {
        let report = run_with_all_threads(&Queens(queens), &Strategy::Bfs, &plan);
        report.discovery(Discovery::DEADLOCK).map_or(0, |deadlock| deadlock.count)
    };
    // One queen: placed. Two: each of the two first moves leaves no second one. Three: the two
    // corners leave one second move each, and none of the three leaves a third.
    assert_eq!([1, 2, 3].map(count), [0, 2, 3]);
}

#[test]
fn sometimes_properties_have_witnesses_or_say_never() {
    for memory in [fathom_engine::search::Memory::Exact, BITSTATE] {
        let plan = Plan { memory, ..everything() };
        for strategy in [Strategy::Bfs, Strategy::Dfs] {
            let grid = Grid::new(&[4, 4]);
            let report = run_with_all_threads(&grid, &strategy, &plan);
            let full = report.discovery("full").expect("a witness");
            assert_eq!((full.violation, full.count, full.path.steps()), (false, 1, 6));
            assert_eq!(report.never, ["overfull"]);
            let report = run_with_all_threads(&TwoPhase::new(3), &strategy, &plan);
            assert_eq!(report.violations().count(), 0);
            assert_eq!((report.discoveries.len(), report.never.len()), (2, 0));
        }
    }
}

#[test]
fn walks_find_what_they_can_and_are_repeatable() {
    let jugs = Jugs { sizes: [3, 5], wanted: 4 };
    let walk = |seed| Strategy::Walk { seed, walks: 2000 };
    let plan = Plan { depth_max: Some(40), ..Plan::default() };
    let report = run_with_all_threads(&jugs, &walk(1), &plan);
    assert_eq!(report.stop, Stop::Violation);
    let found = report.discovery("not measured").expect("found").clone();
    assert!(found.path.trace(&jugs).expect("a path").end().contains(&4));
    for memory in [fathom_engine::search::Memory::Exact, BITSTATE] {
        let plan = Plan { memory, ..everything() };
        let report = run_with_all_threads(&Philosophers(5), &walk(1), &plan);
        assert_eq!((report.stop, report.states), (Stop::Walked, 82));
    }
    assert_ne!(run(&jugs, &walk(1), &plan).discoveries, run(&jugs, &walk(2), &plan).discoveries);
}

#[test]
fn walks_meet_deadlocks() {
    let plan = Plan { deadlock: true, ..Plan::default() };
    let walk = Strategy::Walk { seed: 4, walks: 1000 };
    let report = run_with_all_threads(&Philosophers(3), &walk, &plan);
    let path = &report.discovery(Discovery::DEADLOCK).expect("met").path;
    assert_eq!(path.trace(&Philosophers(3)).expect("a path").end(), &vec![WAITS; 3]);
}

#[test]
fn a_path_is_a_strategy() {
    let jugs = Jugs { sizes: [3, 5], wanted: 4 };
    let found = run(&jugs, &Strategy::Bfs, &Plan::default()).discoveries.remove(0);
    let replay = |path: &str| {
        let path = path.parse().expect("a path");
        run(&jugs, &Strategy::Replay(path), &Plan::default())
    };
    let again = replay(&found.path.to_string());
    assert_eq!((again.stop, &again.discoveries[..]), (Stop::Violation, &[found.clone()][..]));
    assert_eq!((again.states, again.transitions), (7, 6));
    let further = replay(&format!("{}/0/0", found.path));
    assert_eq!(further.discoveries, [found]);
    assert_eq!(replay("0/0/1").stop, Stop::Replayed);
    assert_eq!(replay("0/0/6/0").stop, Stop::Diverged(2));
    assert_eq!(replay("1/0").stop, Stop::Diverged(0));
    let plan = Plan { deadlock: true, ..Plan::default() };
    let stuck = run(&Philosophers(3), &Strategy::Replay(Path(vec![0, 0, 1, 2])), &plan);
    assert_eq!(stuck.discovery(Discovery::DEADLOCK).map(|d| d.path.steps()), Some(3));
    let impossible = run(&Philosophers(3), &Strategy::Replay(Path(vec![0, 0, 0, 1])), &plan);
    assert_eq!(impossible.stop, Stop::Diverged(3));
}
