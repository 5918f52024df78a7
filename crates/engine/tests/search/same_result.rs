//! The same result for any number of threads, compared with a plain search on random graphs.

use fathom_engine::search::{Plan, Stop, Strategy};

use super::systems::random::{RandomGraph, plain_bfs};
use super::{BITSTATE, comparable, everything, run, run_with_all_threads};

fn graphs() -> impl Iterator<Item = RandomGraph> {
    (0..12).map(|seed| RandomGraph {
        seed,
        nodes: [50, 3000, 40_000][seed as usize % 3],
        degree: 5 + seed % 4,
        vague: seed % 2 == 1,
        bad: 97 + seed,
    })
}

#[test]
fn bfs_is_the_plain_search() {
    let mut states = 0;
    for graph in graphs() {
        for depth_max in [None, Some(0), Some(1), Some(5), Some(9)] {
            let plain = plain_bfs(&graph, depth_max.map_or(usize::MAX, |max: u32| max as usize));
            let plan = Plan { depth_max, ..everything() };
            let report = run_with_all_threads(&graph, &Strategy::Bfs, &plan);
            assert_eq!(report.states, plain.states);
            assert_eq!(report.transitions, plain.transitions);
            assert_eq!(report.states_by_depth, plain.states_by_depth);
            let found = report.discovery("good");
            assert_eq!(found.map(|found| found.path.clone()), plain.first_bad);
            assert_eq!(found.map_or(0, |found| found.count), plain.bad);
            let at_bound = depth_max.and_then(|max| plain.states_by_depth.get(max as usize));
            assert_eq!(report.stop == Stop::Depth, at_bound.is_some());
            assert_eq!(report.states_open, at_bound.copied().unwrap_or(0));
            states += report.states;
        }
    }
    assert!(states > 100_000, "the graphs are too small to mean anything: {states} states");
}

#[test]
fn states_that_were_forgotten_are_made_again() {
    for graph in graphs() {
        for depth_max in [None, Some(6)] {
            let plan = |waiting_max| Plan { depth_max, waiting_max, ..everything() };
            let whole = comparable(run(&graph, &Strategy::Bfs, &plan(None)));
            for waiting_max in [0, 1, 300, 5000] {
                let report = run_with_all_threads(&graph, &Strategy::Bfs, &plan(Some(waiting_max)));
                assert_eq!(report, whole, "{waiting_max} wait");
            }
        }
    }
}

#[test]
fn any_search_is_the_same_with_any_number_of_threads() {
    let walk = Strategy::Walk { seed: 5, walks: 700 };
    for graph in graphs() {
        for strategy in [&Strategy::Bfs, &Strategy::Dfs, &walk] {
            for (memory, deadlock) in [(Plan::default().memory, true), (BITSTATE, false)] {
                for stop_at_first in [false, true] {
                    for states_max in [None, Some(1), Some(700)] {
                        let plan =
                            Plan { memory, deadlock, stop_at_first, states_max, ..everything() };
                        run_with_all_threads(&graph, strategy, &plan);
                    }
                }
            }
        }
    }
}

#[test]
fn dfs_within_a_depth_bound_misses_nothing() {
    for graph in graphs().filter(|graph| !graph.vague) {
        for depth_max in [0, 1, 4, 8, 12] {
            let plan = Plan { depth_max: Some(depth_max), ..everything() };
            let bfs = run(&graph, &Strategy::Bfs, &plan);
            let dfs = run_with_all_threads(&graph, &Strategy::Dfs, &plan);
            assert_eq!(dfs.states_by_depth, bfs.states_by_depth);
            assert_eq!(
                (dfs.states, dfs.stop, dfs.states_open),
                (bfs.states, bfs.stop, bfs.states_open)
            );
            let count = |report: &fathom_engine::search::Report| {
                report.discovery("good").map_or(0, |found| found.count)
            };
            assert_eq!(count(&dfs), count(&bfs));
        }
    }
}

#[test]
fn a_second_run_is_the_same() {
    let graph = graphs().nth(2).expect("a graph");
    let once = || comparable(run(&graph, &Strategy::Bfs, &Plan { threads: 3, ..everything() }));
    assert_eq!(once(), once());
}
