//! The file-mapping designs: the result tables of the seed, exact state counts, symmetry.

use fathom_designs::mapping::{Fault, Kind, Layout, Mapping, Order};
use fathom_designs::story::ExplainedSystem;
use fathom_engine::search::{Plan, Report, Stop, Strategy, Unobserved, search};

fn mapping(kind: Kind, order: Order, cache: bool, threads: usize) -> Mapping {
    let layout = Layout::new(kind, 2, 3).expect("it fits");
    Mapping { layout, order, cache, threads, ..Mapping::new(kind).expect("the seed's geometry") }
}

fn explore(mapping: &Mapping, jobs: usize) -> Report {
    let plan = Plan { threads: jobs, stop_at_first: false, ..Plan::default() };
    let report = search(mapping, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
    assert_eq!(report.stop, Stop::Exhausted);
    report
}

fn faults(report: &Report) -> [bool; 4] {
    Fault::ALL.map(|fault| report.discovery(fault.name()).is_some())
}

/// Kind, order, cache, threads → states, transitions, and which of dead, lost, double, content occur.
type Row = (Kind, Order, bool, usize, u64, u64, [bool; 4]);

const NONE: [bool; 4] = [false; 4];
const DEAD: [bool; 4] = [true, false, false, false];
const CRITICAL: [bool; 4] = [false, true, true, true];
const ALL: [bool; 4] = [true; 4];

const ROWS: [Row; 16] = [
    (Kind::Link, Order::Naive, false, 1, 1569, 2693, CRITICAL),
    (Kind::Link, Order::Naive, false, 2, 85748, 255502, ALL),
    (Kind::Link, Order::Naive, true, 1, 371, 809, NONE),
    (Kind::Link, Order::Naive, true, 2, 51257, 152795, ALL),
    (Kind::Link, Order::Safe, false, 1, 639, 1532, DEAD),
    (Kind::Link, Order::Safe, false, 2, 2743, 9530, DEAD),
    (Kind::Link, Order::Safe, true, 1, 283, 633, NONE),
    (Kind::Link, Order::Safe, true, 2, 7182, 23135, DEAD),
    (Kind::Index, Order::Naive, false, 1, 1916, 3131, ALL),
    (Kind::Index, Order::Naive, false, 2, 41822, 109419, ALL),
    (Kind::Index, Order::Naive, true, 1, 324, 709, NONE),
    (Kind::Index, Order::Naive, true, 2, 69276, 200060, ALL),
    (Kind::Index, Order::Safe, false, 1, 366, 896, DEAD),
    (Kind::Index, Order::Safe, false, 2, 1478, 5233, DEAD),
    (Kind::Index, Order::Safe, true, 1, 230, 521, NONE),
    (Kind::Index, Order::Safe, true, 2, 4083, 13306, DEAD),
];

#[test]
fn the_tables_of_the_seed() {
    for (kind, order, cache, threads, states, transitions, expected) in ROWS {
        let report = explore(&mapping(kind, order, cache, threads), 0);
        let what = format!("{kind} {order:?} cache {cache} threads {threads}");
        assert_eq!(faults(&report), expected, "{what}");
        assert_eq!((report.states, report.transitions), (states, transitions), "{what}");
    }
}

#[test]
fn without_power_failures_nothing_is_ever_wrong() {
    for kind in [Kind::Link, Kind::Index] {
        for order in [Order::Naive, Order::Safe] {
            for threads in [1, 2] {
                let mapping = Mapping { crashes: false, ..mapping(kind, order, true, threads) };
                assert_eq!(faults(&explore(&mapping, 0)), NONE, "{kind} {order:?} {threads}");
            }
        }
    }
}

#[test]
fn symmetry_loses_states_but_no_fault() {
    for (kind, order) in [(Kind::Link, Order::Naive), (Kind::Index, Order::Safe)] {
        let with = mapping(kind, order, true, 2);
        let without = Mapping { symmetry: false, ..with };
        let (with, without) = (explore(&with, 0), explore(&without, 0));
        assert_eq!(faults(&with), faults(&without));
        // Two files and two threads: at most four states of an orbit, and hardly fewer.
        let ratio = without.states as f64 / with.states as f64;
        assert!((3.0..=4.0).contains(&ratio), "{kind}: {} / {}", without.states, with.states);
    }
}

#[test]
fn any_number_of_threads_finds_the_same() {
    let mapping = mapping(Kind::Link, Order::Naive, true, 2);
    let (one, three) = (explore(&mapping, 1), explore(&mapping, 3));
    assert_eq!(one.states_by_depth, three.states_by_depth);
    assert_eq!(one.discoveries, three.discoveries);
}

#[test]
fn the_shortest_lost_block_is_the_one_of_the_study() {
    let mapping = mapping(Kind::Link, Order::Naive, false, 1);
    let report = explore(&mapping, 1);
    let trace = report.discovery(Fault::Lost.name()).expect("found").path.trace(&mapping);
    let trace = trace.expect("its own path");
    let story = mapping.story(&trace, Fault::Lost.name());
    assert_eq!(
        story.to_string(),
        "  1. thread 0: create file 0 changes the tables in memory
  2. thread 0, inodes 0 and 1: writes 0
  3. POWER FAILURE between two writes
     recovery writes nothing; the checker finds a lost block (of a file, not allocated)
     broken: no lost block
"
    );
    assert_eq!(
        story.drawing(),
        "  step               1  2  3
  0 inodes 0 and 1      ■
                     before: file 0, 0 blocks: [0]; no file 1
  2 data 0
                     before: FREE, of file 0, holds nothing written
  ■ written, ✗ written and lost in the power failure
"
    );
}

#[test]
fn a_geometry_that_cannot_hold_the_design_is_refused() {
    let message = |files, data| Layout::new(Kind::Link, files, data).unwrap_err().to_string();
    assert_eq!(
        message(5, 4),
        "5 files and 4 data blocks do not fit: a link-type design has 1 to 4 files"
    );
    assert_eq!(
        message(4, 12),
        "4 files and 12 data blocks do not fit: a link-type design has 1 to 11 data blocks"
    );
}
