//! The search against stateright: the same systems, one process per measurement.
//!
//! `cargo xtask bench search`, or `cargo bench -p fathom-engine --bench search`. Each measurement is
//! a child process, so that its peak of resident memory (proc_pid_status(5), `VmHWM`) is its own;
//! the program itself is subtracted. The two sides take turns and the best of each counts: other
//! load of the machine only ever makes a run slower.

#[allow(dead_code)]
#[path = "../tests/search/systems/puzzle.rs"]
mod puzzle;
#[allow(dead_code)]
#[path = "../tests/search/systems/two_phase.rs"]
mod two_phase;

use std::process::Command;
use std::time::Instant;

use fathom_engine::search::{Plan, Strategy, System, Unobserved, search};
use puzzle::Puzzle;
use stateright::{Checker, Model, Property};
use two_phase::{Action, Manager, State, TwoPhase};

const ROUNDS: usize = 3;

/// 1,745,408 states (no formula is known to us; both sides must agree).
const TWO_PHASE: TwoPhase = TwoPhase { managers: 8, symmetric: false };

/// 10! / 2 = 1,814,400 states.
const PUZZLE: Puzzle = Puzzle { width: 5, height: 2 };

impl Model for TwoPhase {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.list_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(TwoPhase::step(state, action))
    }

    fn properties(&self) -> Vec<Property<TwoPhase>> {
        vec![
            Property::sometimes("all abort", |_, state| TwoPhase::all(state, Manager::Aborted)),
            Property::sometimes("all commit", |_, state| TwoPhase::all(state, Manager::Committed)),
            Property::always("consistent", |_, state| TwoPhase::consistent(state)),
        ]
    }
}

impl Model for Puzzle {
    type State = u64;
    type Action = u8;

    fn init_states(&self) -> Vec<u64> {
        vec![self.start()]
    }

    fn actions(&self, _: &u64, actions: &mut Vec<u8>) {
        actions.extend(0..4);
    }

    fn next_state(&self, state: &u64, direction: u8) -> Option<u64> {
        self.slide(*state, direction)
    }

    fn properties(&self) -> Vec<Property<Puzzle>> {
        vec![Property::always("has a blank", |puzzle: &Puzzle, state| puzzle.has_blank(*state))]
    }
}

/// One measurement.
#[derive(Clone, Copy)]
struct Sample {
    states: f64,
    seconds: f64,
    bytes: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [child, side, system, threads] = &arguments[..]
        && child == "child"
    {
        let threads = threads.parse().expect("a number of threads");
        let sample = match system.as_str() {
            "2pc" => measure(TWO_PHASE, side, threads),
            _ => measure(PUZZLE, side, threads),
        };
        return println!("{} {} {}", sample.states, sample.seconds, sample.bytes);
    }
    compare();
}

/// Explores a system completely with one of the sides.
fn measure<S>(system: S, side: &str, threads: usize) -> Sample
where
    S: System<State = <S as Model>::State> + Model + Send + 'static,
    <S as Model>::State: Clone + PartialEq + std::hash::Hash + Send + Sync,
    <S as Model>::Action: Clone + PartialEq,
{
    let before = peak_bytes();
    let started = Instant::now();
    let states = if side == "fathom" {
        let plan = Plan { threads, stop_at_first: false, ..Plan::default() };
        let report = search(&system, &Strategy::Bfs, &plan, &mut Unobserved);
        report.expect("a sound plan").states as f64
    } else {
        system.checker().threads(threads).spawn_bfs().join().unique_state_count() as f64
    };
    let seconds = started.elapsed().as_secs_f64();
    Sample { states, seconds, bytes: peak_bytes() - before }
}

fn peak_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024.0
}

/// Runs a measurement in a child.
fn sample(side: &str, system: &str, threads: usize) -> Sample {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["child", side, system, &threads.to_string()])
        .output()
        .expect("a child process");
    let text = String::from_utf8(output.stdout).expect("numbers");
    let numbers: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect(&text)).collect();
    let [states, seconds, bytes] = numbers[..] else { panic!("{text}") };
    Sample { states, seconds, bytes }
}

fn compare() {
    println!(
        "system  threads   fathom Mstates/s  stateright Mstates/s  ratio   bytes/state (peak)"
    );
    let mut ratios = [f64::INFINITY; 2];
    let mut bytes = [0.0_f64, f64::INFINITY];
    for system in ["2pc", "puzzle"] {
        for (threads, ratio) in [1, 2].into_iter().zip(&mut ratios) {
            let mut best =
                [Sample { states: 0.0, seconds: f64::INFINITY, bytes: f64::INFINITY }; 2];
            for _ in 0..ROUNDS {
                for (side, best) in ["fathom", "stateright"].into_iter().zip(&mut best) {
                    let sample = sample(side, system, threads);
                    best.states = sample.states;
                    best.seconds = best.seconds.min(sample.seconds);
                    best.bytes = best.bytes.min(sample.bytes);
                }
            }
            let [ours, theirs] = best;
            assert_eq!(ours.states, theirs.states, "both must explore the same");
            let rate = |sample: Sample| sample.states / sample.seconds / 1e6;
            let per_state = |sample: Sample| sample.bytes / sample.states;
            println!(
                "{system:<7} {threads:>7} {:>18.2} {:>21.2} {:>6.2}   {:.1} against {:.1}",
                rate(ours),
                rate(theirs),
                rate(ours) / rate(theirs),
                per_state(ours),
                per_state(theirs),
            );
            *ratio = ratio.min(rate(ours) / rate(theirs));
            // The worst of ours, the best of theirs.
            bytes = [bytes[0].max(per_state(ours)), bytes[1].min(per_state(theirs))];
        }
    }
    println!(
        "{{\"vs_stateright_1t\":{:.2},\"vs_stateright_2t\":{:.2},\"bytes_per_state\":{:.1},\"stateright_bytes_per_state\":{:.1}}}",
        ratios[0], ratios[1], bytes[0], bytes[1],
    );
}
