//! Numbers of states, against closed formulas and published ones.

use std::collections::HashSet;

use fathom_engine::search::{Plan, Stop, Strategy, System};

use super::systems::disk::Disk;
use super::systems::grid::Grid;
use super::systems::jugs::Jugs;
use super::systems::philosophers::Philosophers;
use super::systems::puzzle::{self, Puzzle};
use super::systems::queens::{self, Queens};
use super::systems::two_phase::TwoPhase;
use super::{BITSTATE, everything, run, run_with_all_threads};

/// Explores with every exhaustive strategy, memory and number of threads.
fn expect<S: System>(system: &S, states: u64, transitions: u64, by_depth: Option<&[u64]>) {
    for memory in [fathom_engine::search::Memory::Exact, BITSTATE] {
        let plan = Plan { memory, ..everything() };
        for strategy in [Strategy::Bfs, Strategy::Dfs] {
            let report = run_with_all_threads(system, &strategy, &plan);
            assert_eq!(report.stop, Stop::Exhausted, "{strategy:?} {memory:?}");
            assert_eq!(report.states, states, "{strategy:?} {memory:?}");
            assert_eq!(report.transitions, transitions, "{strategy:?} {memory:?}");
            assert_eq!(report.states_by_depth.iter().sum::<u64>(), states);
            assert_eq!(report.states_open, 0);
            if let (Strategy::Bfs, Some(by_depth)) = (&strategy, by_depth) {
                assert_eq!(report.states_by_depth, by_depth);
            }
        }
    }
}

#[test]
fn grids() {
    for sides in [&[7, 5, 4][..], &[2; 10], &[1], &[200], &[60, 60]] {
        let grid = Grid::new(sides);
        expect(&grid, grid.states(), grid.transitions(), Some(&grid.states_by_depth()));
    }
}

#[test]
fn large_states() {
    let disk = Disk { versions: 3 };
    expect(&disk, disk.states(), disk.transitions(), Some(&Grid::new(&[3; 8]).states_by_depth()));
}

#[test]
fn binary_counters_are_binomial_by_depth() {
    let report = run(&Grid::new(&[2; 6]), &Strategy::Bfs, &everything());
    assert_eq!(report.states_by_depth, [1, 6, 15, 20, 15, 6, 1]);
}

#[test]
fn two_phase_commit_as_published() {
    // stateright also publishes the steps: 1,146 and 58,146 states generated, with the initial one.
    expect(&TwoPhase::new(3), 288, 1_145, None);
    expect(&TwoPhase::new(5), 8_832, 58_145, None);
}

#[test]
fn symmetry_leaves_one_state_of_each_orbit() {
    let full = TwoPhase::new(5);
    let mut orbits = HashSet::new();
    let (mut seen, mut stack) = (HashSet::from([full.start()]), full.init());
    while let Some(state) = stack.pop() {
        orbits.insert(TwoPhase::symmetric_key(&state));
        let mut actions = Vec::new();
        full.actions(&state, &mut actions);
        let next = actions.iter().map(|action| TwoPhase::step(&state, *action));
        stack.extend(next.filter(|next| seen.insert(next.clone())));
    }
    assert_eq!(seen.len(), 8_832);
    let symmetric = TwoPhase { symmetric: true, ..full };
    for strategy in [Strategy::Bfs, Strategy::Dfs] {
        let report = run_with_all_threads(&symmetric, &strategy, &everything());
        assert_eq!(report.states, orbits.len() as u64);
    }
}

#[test]
fn dining_philosophers() {
    assert_eq!([2, 3, 4, 5, 6].map(|n| Philosophers(n).states()), [6, 14, 34, 82, 198]);
    for n in [2, 3, 5, 9] {
        let report = run_with_all_threads(&Philosophers(n), &Strategy::Bfs, &everything());
        assert_eq!(report.states, Philosophers(n).states());
    }
}

#[test]
fn water_jugs() {
    for sizes in [[3, 5], [4, 7], [1, 9]] {
        let jugs = Jugs { sizes, wanted: u32::MAX };
        let states = u64::from(2 * (sizes[0] + sizes[1]));
        expect(&jugs, states, 6 * states, None);
    }
}

#[test]
fn sliding_puzzles() {
    let small = Puzzle { width: 3, height: 2 };
    // Each of the 7 neighbouring pairs of cells has the blank in one of them in a third of all
    // positions, and gives one step in each: 2 * 7 / 6 steps per position.
    expect(&small, 360, 360 * 14 / 6, None);
    let eight = Puzzle { width: 3, height: 3 };
    let report = run_with_all_threads(&eight, &Strategy::Bfs, &everything());
    assert_eq!(report.states, eight.states());
    assert_eq!(report.states_by_depth, puzzle::EIGHT_BY_DEPTH);
}

#[test]
fn queens() {
    expect(&Queens(8), 2057, 2056, Some(&queens::EIGHT_BY_DEPTH));
}

#[test]
fn a_bitstate_set_that_is_too_small_says_so() {
    let puzzle = Puzzle { width: 3, height: 3 };
    let memory = fathom_engine::search::Memory::Bitstate { bytes: 1 << 17, hashes: 2, seed: 3 };
    let plan = Plan { memory, ..everything() };
    let report = run_with_all_threads(&puzzle, &Strategy::Bfs, &plan);
    assert!(report.states < puzzle.states());
    let report = run(&puzzle, &Strategy::Bfs, &plan);
    // The estimate does not know what lies behind the missed states: never below the truth.
    let truth = report.states as f64 / puzzle.states() as f64;
    assert!(report.coverage() >= truth - 0.01 && report.coverage() < 0.999, "{report:?}");
}
