//! The search against stateright, for any bench that wants to run it.
//!
//! Each measurement is a child process, so that its peak of resident memory (proc_pid_status(5),
//! `VmHWM`) is its own: everything that a search needs, the waiting states included, of either side;
//! what the process occupied before is subtracted. The sides take turns and the medians count, since
//! other load of the machine comes and goes. A program that includes this module calls
//! [`measured_as_child`] first.

#[allow(dead_code)]
#[path = "../../tests/search/systems/disk.rs"]
mod disk;
mod models;
#[allow(dead_code)]
#[path = "../../tests/search/systems/puzzle.rs"]
mod puzzle;
#[allow(dead_code)]
#[path = "../../tests/search/systems/two_phase.rs"]
mod two_phase;

use std::hash::Hash;
use std::process::Command;
use std::time::Instant;

use fathom_engine::search::{Plan, Strategy, System, Unobserved, search};
use stateright::{Checker, Model};

use disk::Disk;
use puzzle::Puzzle;
use two_phase::TwoPhase;

/// As in the program; for both sides.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds of which the median counts; odd.
const ROUNDS: usize = 5;

/// The first argument of a child.
const CHILD: &str = "measure-search";

/// States of 8 bytes, 10! / 2 of them.
const PUZZLE: Puzzle = Puzzle { width: 5, height: 2 };

/// States with three vectors or trees each (no formula is known to us; both sides must agree).
const TWO_PHASE: TwoPhase = TwoPhase { managers: 8, symmetric: false };

/// States of 512 bytes, 5⁸ of them.
const DISK: Disk = Disk { versions: 5 };

/// The names of the systems.
const SYSTEMS: [&str; 3] = ["puzzle", "two-phase", "disk"];

/// Who searches.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Fathom,
    Stateright,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Sample {
    states: u64,
    transitions: u64,
    seconds: f64,
    bytes: f64,
}

/// The comparison of one system with one number of threads: medians of all rounds.
struct Row {
    system: &'static str,
    threads: usize,
    states: u64,
    /// States per second, ours and theirs.
    rates: [f64; 2],
    /// Peak of memory by the number of states, ours and theirs.
    bytes_per_state: [f64; 2],
    /// Our speed by theirs.
    ratio: f64,
}

/// What the comparison comes to, over all systems.
pub(crate) struct Summary {
    /// The smallest ratio of speeds with one thread.
    pub(crate) vs_stateright_1t: f64,
    /// The smallest ratio of speeds with two threads.
    pub(crate) vs_stateright_2t: f64,
    /// Bytes per visited state where we compare worst.
    pub(crate) bytes_per_state: f64,
    /// Theirs, at the same place.
    pub(crate) stateright_bytes_per_state: f64,
}

/// Does what a child is asked to do; false if this process is not one.
pub(crate) fn measured_as_child() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [child, side, system, threads] = &arguments[..] else { return false };
    if child != CHILD {
        return false;
    }
    let side = if side == "ours" { Side::Fathom } else { Side::Stateright };
    let threads = threads.parse().expect("a number of threads");
    let Sample { states, transitions, seconds, bytes } = match system.as_str() {
        "puzzle" => measure(PUZZLE, side, threads),
        "two-phase" => measure(TWO_PHASE, side, threads),
        "disk" => measure(DISK, side, threads),
        other => panic!("no system {other}"),
    };
    println!("{states} {transitions} {seconds} {bytes}");
    true
}

/// Explores a system completely with one of the sides.
fn measure<S>(system: S, side: Side, threads: usize) -> Sample
where
    S: System<State = <S as Model>::State> + Model + Send + 'static,
    <S as Model>::State: Clone + PartialEq + Hash + Send + Sync,
    <S as Model>::Action: Clone + PartialEq,
{
    let before = peak_bytes();
    let started = Instant::now();
    let (states, transitions) = match side {
        Side::Fathom => {
            let plan = Plan { threads, stop_at_first: false, ..Plan::default() };
            let report = search(&system, &Strategy::Bfs, &plan, &mut Unobserved);
            let report = report.expect("a sound plan");
            (report.states, report.transitions)
        }
        Side::Stateright => {
            let checker = system.checker().threads(threads).spawn_bfs().join();
            // It also counts arriving at the initial state.
            (checker.unique_state_count() as u64, checker.state_count() as u64 - 1)
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    Sample { states, transitions, seconds, bytes: peak_bytes() - before }
}

fn peak_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024.0
}

/// Runs a measurement in a child.
fn sample(side: Side, system: &str, threads: usize) -> Sample {
    let side = if side == Side::Fathom { "ours" } else { "theirs" };
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([CHILD, side, system, &threads.to_string()])
        .output()
        .expect("a child process");
    let text = String::from_utf8(output.stdout).expect("numbers");
    let numbers: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect(&text)).collect();
    let [states, transitions, seconds, bytes] = numbers[..] else { panic!("{system}: {text}") };
    Sample { states: states as u64, transitions: transitions as u64, seconds, bytes }
}

fn compare_one(system: &'static str, threads: usize) -> Row {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            ours.push(sample(Side::Fathom, system, threads));
            theirs.push(sample(Side::Stateright, system, threads));
        } else {
            theirs.push(sample(Side::Stateright, system, threads));
            ours.push(sample(Side::Fathom, system, threads));
        }
    }
    let Sample { states, transitions, .. } = ours[0];
    for sample in ours.iter().chain(&theirs) {
        assert_eq!((sample.states, sample.transitions), (states, transitions), "{system}");
    }
    let rate = |sample: &Sample| states as f64 / sample.seconds;
    let bytes = |sample: &Sample| sample.bytes / states as f64;
    Row {
        system,
        threads,
        states,
        rates: [median(ours.iter().map(rate)), median(theirs.iter().map(rate))],
        bytes_per_state: [median(ours.iter().map(bytes)), median(theirs.iter().map(bytes))],
        ratio: median(ours.iter().zip(&theirs).map(|(ours, theirs)| rate(ours) / rate(theirs))),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Compares the sides, and prints a table.
pub(crate) fn compare() -> Summary {
    println!("system     threads     states   Mstates/s: fathom  stateright  ratio   bytes/state");
    let mut rows = Vec::new();
    for system in SYSTEMS {
        for threads in [1, 2] {
            let row = compare_one(system, threads);
            let ([ours, theirs], [bytes, their_bytes]) = (row.rates, row.bytes_per_state);
            println!(
                "{system:<10} {threads:>7} {:>10} {:>19.3} {:>11.3} {:>6.2}   {bytes:.1} against {their_bytes:.1}",
                row.states,
                ours / 1e6,
                theirs / 1e6,
                row.ratio,
            );
            rows.push(row);
        }
    }
    summary(&rows)
}

fn summary(rows: &[Row]) -> Summary {
    let slowest = |threads| {
        let ratios = rows.iter().filter(|row| row.threads == threads).map(|row| row.ratio);
        ratios.fold(f64::INFINITY, f64::min)
    };
    let share = |row: &&Row| row.bytes_per_state[0] / row.bytes_per_state[1];
    let largest = rows.iter().max_by(|a, b| share(a).total_cmp(&share(b))).expect("rows");
    println!("bytes per state compare worst for {} ({} threads)", largest.system, largest.threads);
    let [bytes_per_state, stateright_bytes_per_state] = largest.bytes_per_state;
    Summary {
        vs_stateright_1t: slowest(1),
        vs_stateright_2t: slowest(2),
        bytes_per_state,
        stateright_bytes_per_state,
    }
}
