//! Each bound ends a search and says so.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fathom_engine::search::{
    Discovery, Memory, Observer, Plan, Progress, Stop, Strategy, System, Unobserved, search,
};

use super::systems::grid::Grid;
use super::systems::puzzle::Puzzle;
use super::{everything, run, run_with_all_threads};

#[test]
fn depth() {
    let grid = Grid::new(&[9, 9, 9]);
    let by_depth = grid.states_by_depth();
    for depth_max in [0, 1, 7, 23, 24, 25] {
        let plan = Plan { depth_max: Some(depth_max), ..everything() };
        for strategy in [Strategy::Bfs, Strategy::Dfs] {
            let report = run_with_all_threads(&grid, &strategy, &plan);
            let within = by_depth.len().min(depth_max as usize + 1);
            assert_eq!(report.states_by_depth, &by_depth[..within]);
            let expected = if depth_max > 24 { Stop::Exhausted } else { Stop::Depth };
            assert_eq!(report.stop, expected);
        }
    }
}

#[test]
fn states_exactly() {
    let puzzle = Puzzle { width: 3, height: 3 };
    for states_max in [1, 2, 1000, 100_000] {
        for strategy in [Strategy::Bfs, Strategy::Dfs] {
            let plan = Plan { states_max: Some(states_max), ..everything() };
            let report = run_with_all_threads(&puzzle, &strategy, &plan);
            assert_eq!((report.states, &report.stop), (states_max, &Stop::States));
            assert!(report.states_open > 0 && report.states_open <= states_max);
        }
    }
    let all = puzzle.states();
    let plan = Plan { states_max: Some(all), ..everything() };
    assert_eq!(run(&puzzle, &Strategy::Bfs, &plan).stop, Stop::Exhausted);
}

/// Counters without end, each step a little slow.
struct Slow(Duration);

impl System for Slow {
    type State = [u32; 3];
    type Action = usize;

    fn init(&self) -> Vec<[u32; 3]> {
        vec![[0; 3]]
    }

    fn actions(&self, _: &[u32; 3], actions: &mut Vec<usize>) {
        actions.extend(0..3);
    }

    fn next(&self, state: &[u32; 3], action: &usize) -> Option<[u32; 3]> {
        std::thread::sleep(self.0);
        let mut next = *state;
        next[*action] += 1;
        assert!(next[0] < 30, "thirty");
        Some(next)
    }

    fn key(&self, state: &[u32; 3]) -> u128 {
        state.iter().fold(0, |key, counter| key << 32 | u128::from(*counter))
    }
}

#[test]
fn time() {
    for threads in [1, 2] {
        let time_max = Some(Duration::from_millis(60));
        let plan = Plan { time_max, threads, ..everything() };
        let started = Instant::now();
        let report = run(&Slow(Duration::from_millis(1)), &Strategy::Bfs, &plan);
        assert_eq!(report.stop, Stop::Time);
        assert!(report.states > 1 && report.states_open > 0);
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }
}

#[test]
fn memory() {
    let plan = Plan { memory_max_bytes: Some(1), ..everything() };
    let report = run(&Slow(Duration::from_millis(2)), &Strategy::Bfs, &plan);
    assert_eq!(report.stop, Stop::Memory);
}

#[test]
fn an_observer_hears_everything_and_may_end_the_search() {
    #[derive(Default)]
    struct Impatient {
        progress: Vec<Progress>,
        discoveries: Vec<Discovery>,
    }
    impl Observer for Impatient {
        fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
            self.progress.push(progress.clone());
            if self.progress.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
        fn discovery(&mut self, discovery: &Discovery) {
            self.discoveries.push(discovery.clone());
        }
    }
    let mut observer = Impatient::default();
    let slow = Slow(Duration::from_millis(1));
    let report = search(&slow, &Strategy::Bfs, &everything(), &mut observer).expect("sound");
    assert_eq!((report.stop, observer.progress.len()), (Stop::Asked, 3));
    assert!(observer.progress.is_sorted_by_key(|progress| progress.states));
    let last = observer.progress.last().expect("three");
    assert!(last.states <= report.states && last.open > 0 && last.bytes > 0);

    let mut observer = Impatient::default();
    let grid = Grid { forbidden: 3, ..Grid::new(&[3, 3]) };
    let report = search(&grid, &Strategy::Bfs, &everything(), &mut observer).expect("sound");
    let names: Vec<&str> = observer.discoveries.iter().map(|d| d.property.as_str()).collect();
    assert_eq!(names, ["allowed", "full"]);
    assert_eq!(report.discoveries.len(), 2);
}

#[test]
fn a_system_that_panics_does_so_for_the_caller() {
    for threads in [1, 2, 4] {
        let plan = Plan { threads, ..everything() };
        let slow = Slow(Duration::ZERO);
        let caught = catch_unwind(AssertUnwindSafe(|| run(&slow, &Strategy::Bfs, &plan)));
        let panic = caught.expect_err("lost");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"thirty"));
    }
}

#[test]
fn a_plan_without_sense_is_refused() {
    let memory = Memory::Bitstate { bytes: 1000, hashes: 0, seed: 0 };
    let plan = Plan { memory, ..everything() };
    assert!(search(&Grid::new(&[2]), &Strategy::Bfs, &plan, &mut Unobserved).is_err());
}

#[test]
fn a_visited_state_costs_less_than_26_bytes() {
    let report = run(&Puzzle { width: 3, height: 3 }, &Strategy::Bfs, &everything());
    assert!(report.bytes_per_state() < 26.0, "{}", report.bytes_per_state());
}
