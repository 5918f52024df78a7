//! The search on designs: against SPIN, and the log-structured design by itself.
//!
//! SPIN's model is written here in Promela: one process whose steps are those of ours, so that both
//! visit the same number of states, which is compared. `pan` is compiled with `-O2 -DSAFETY`. Both
//! sides use one core; they take turns and the medians count. What SPIN needs is told if it is absent.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fathom_designs::classic::Philosophers;
use fathom_designs::logfs::Logfs;
use fathom_designs::volume::{Explorer, Limits};
use fathom_engine::search::{Memory, Plan, Report, Strategy, System, Unobserved, search};

/// 1,331,714 states: some seconds for either side.
const SEATS: u32 = 16;
/// Rounds of which the median counts; odd.
const ROUNDS: usize = 3;
/// Memory of a bitstate set: log₂ of its bits, as SPIN wants it.
const BITS_LOG: u32 = 27;
/// Operations of a workload of the log-structured design.
const LENGTH: u32 = 7;

fn main() {
    let philosophers = spin_philosophers();
    let (one, two) = (log_seconds(1), log_seconds(2));
    let (speedup, rate) = (one.0 / two.0, one.1 / one.0);
    println!(
        "log design, workloads of {LENGTH}: {rate:.0} operations/s on one thread, {speedup:.2} times as fast on two"
    );
    log_length_10();
    let [exact, bitstate] = philosophers.unwrap_or([f64::NAN; 2]);
    let number =
        |value: f64| if value.is_nan() { "null".to_owned() } else { format!("{value:.2}") };
    println!(
        "{{\"vs_spin_philosophers\":{},\"vs_spin_philosophers_bitstate\":{},\"vs_spin_link\":null,\
         \"f2fs_ops_per_s_1t\":{rate:.0},\"speedup_2t\":{speedup:.2}}}",
        number(exact),
        number(bitstate)
    );
}

fn explore<S: System>(system: &S, plan: Plan) -> Report {
    search(system, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan")
}

/// Our states per second by SPIN's: exact, and bitstate.
fn spin_philosophers() -> Option<[f64; 2]> {
    let dir = std::env::temp_dir().join(format!("fathom-spin-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a scratch directory");
    let result = compile_spin(&dir).map(|()| {
        [false, true].map(|bitstate| {
            let mut ratios: Vec<f64> = (0..ROUNDS)
                .map(|_| our_philosophers(bitstate) / spin_rate(&dir, bitstate))
                .collect();
            ratios.sort_by(f64::total_cmp);
            ratios[ROUNDS / 2]
        })
    });
    fs::remove_dir_all(&dir).expect("our own directory");
    result
}

fn our_philosophers(bitstate: bool) -> f64 {
    let table = Philosophers::new(SEATS, false).expect("enough seats");
    let bytes = 1 << (BITS_LOG - 3);
    let memory =
        if bitstate { Memory::Bitstate { bytes, hashes: 3, seed: 1 } } else { Memory::Exact };
    let plan = Plan { threads: 1, deadlock: true, stop_at_first: false, memory, ..Plan::default() };
    let started = Instant::now();
    let report = explore(&table, plan);
    let rate = report.states as f64 / started.elapsed().as_secs_f64();
    if !bitstate {
        assert_eq!(report.states, table.states());
    }
    println!("philosophers, bitstate {bitstate}: fathom {} states, {rate:.0}/s", report.states);
    rate
}

/// The same table in Promela.
fn promela() -> String {
    let mut model = format!("byte p[{SEATS}];\nactive proctype table() {{ do\n");
    for seat in 0..SEATS {
        let (before, after) = ((seat + SEATS - 1) % SEATS, (seat + 1) % SEATS);
        let _ =
            writeln!(model, ":: d_step {{ p[{seat}] == 0 && p[{before}] != 2 -> p[{seat}] = 1 }}");
        let _ =
            writeln!(model, ":: d_step {{ p[{seat}] == 1 && p[{after}] == 0 -> p[{seat}] = 2 }}");
        let _ = writeln!(model, ":: d_step {{ p[{seat}] == 2 -> p[{seat}] = 0 }}");
    }
    model + "od }\n"
}

fn compile_spin(dir: &Path) -> Option<()> {
    fs::write(dir.join("table.pml"), promela()).expect("a scratch file");
    let run = |program: &str, args: &[&str]| {
        let ran = Command::new(program).args(args).current_dir(dir).output();
        let worked = ran.as_ref().is_ok_and(|output| output.status.success());
        if !worked {
            println!("SKIP against SPIN: {program} does not work here: {ran:?}");
        }
        worked.then_some(())
    };
    run("spin", &["-a", "table.pml"])?;
    run("gcc", &["-O2", "-DSAFETY", "-DNOREDUCE", "-w", "-o", "pan-exact", "pan.c"])?;
    run("gcc", &["-O2", "-DSAFETY", "-DNOREDUCE", "-DBITSTATE", "-w", "-o", "pan-bit", "pan.c"])
}

fn spin_rate(dir: &Path, bitstate: bool) -> f64 {
    let (program, hash) = if bitstate { ("pan-bit", BITS_LOG) } else { ("pan-exact", 22) };
    let started = Instant::now();
    // -c0: do not stop at the deadlock; -m: the depth of the search.
    let output = Command::new(dir.join(program))
        .args(["-c0", "-m4000000", &format!("-w{hash}")])
        .current_dir(dir)
        .output()
        .expect("pan was compiled");
    let seconds = started.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    let stored = text.lines().find_map(|line| line.trim().strip_suffix(" states, stored"));
    let states: f64 =
        stored.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("{text}"));
    if !bitstate {
        assert_eq!(states as u64, Philosophers::new(SEATS, false).expect("enough").states());
    }
    println!(
        "philosophers, bitstate {bitstate}: SPIN   {states} states, {:.0}/s",
        states / seconds
    );
    states / seconds
}

/// Seconds and operations (power failures included).
fn log_seconds(threads: usize) -> (f64, f64) {
    let explorer = Explorer::new(Logfs::default(), Limits::default()).expect("a sound design");
    let started = Instant::now();
    let plan = Plan { threads, depth_max: Some(LENGTH), ..Plan::default() };
    let report = explore(&explorer, plan);
    let seconds = started.elapsed().as_secs_f64();
    let operations = report.transitions + explorer.recoveries();
    println!(
        "log design, {threads} threads: {} states, {operations} operations, {seconds:.2} s, {:.0} bytes per state",
        report.states,
        report.bytes_per_state()
    );
    (seconds, operations as f64)
}

/// Workloads of 10 in the time that the study needed for them on a larger machine, or as far as that
/// goes.
fn log_length_10() {
    let explorer = Explorer::new(Logfs::default(), Limits::default()).expect("a sound design");
    let time_max = Some(Duration::from_secs(120));
    let plan = Plan { depth_max: Some(10), time_max, ..Plan::default() };
    let report = explore(&explorer, plan);
    println!(
        "log design, workloads of 10: {} states, {} operations, depth {}, {:.1} s: {}",
        report.states,
        report.transitions + explorer.recoveries(),
        report.depth(),
        report.elapsed.as_secs_f64(),
        report.stop
    );
}
