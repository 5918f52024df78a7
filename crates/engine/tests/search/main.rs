//! The search on systems whose numbers are known: every strategy, visited set and number of threads.

mod bounds;
mod counts;
mod findings;
mod interruption;
mod records;
mod same_result;
mod systems;

use std::time::{Duration, Instant};

use fathom_engine::search::{Memory, Plan, Report, Strategy, System, Unobserved, search};

const THREADS: [usize; 3] = [1, 2, 4];

/// Large enough that nothing is missed in the small systems here (checked by their counts).
const BITSTATE: Memory = Memory::Bitstate { bytes: 1 << 23, hashes: 3, seed: 1 };

/// Works for at least so long.
fn busy(effort: Duration) {
    let started = Instant::now();
    while started.elapsed() < effort {
        std::hint::spin_loop();
    }
}

/// A plan that explores everything.
fn everything() -> Plan {
    Plan { stop_at_first: false, ..Plan::default() }
}

fn run<S: System>(system: &S, strategy: &Strategy, plan: &Plan) -> Report {
    search(system, strategy, plan, &mut Unobserved).expect("a sound plan")
}

/// A report without what may differ between two runs of the same search: time, and the memory of
/// keys that a search inserted ahead of the point where it ended.
fn comparable(report: Report) -> Report {
    Report { elapsed: Duration::ZERO, visited_bytes: 0, links_bytes: 0, omitted: 0.0, ..report }
}

/// Runs a search with each number of threads, checks that the result is the same, and returns it.
fn run_with_all_threads<S: System>(system: &S, strategy: &Strategy, plan: &Plan) -> Report {
    let mut reports = THREADS.iter().map(|threads| {
        comparable(run(system, strategy, &Plan { threads: *threads, ..plan.clone() }))
    });
    let first = reports.next().expect("at least one");
    for other in reports {
        assert_eq!(first, other, "{strategy:?}");
    }
    first
}
