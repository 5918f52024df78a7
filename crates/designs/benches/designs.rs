//! The search on designs: against SPIN, and the log-structured design by itself.
//!
//! SPIN's models (`link.pml`, and the philosophers below) are processes whose steps are those of
//! ours, so that both sides visit the same number of states, which is compared. `pan` is compiled
//! with `-O2 -DSAFETY`. Both sides use one thread; they take turns and the medians count. Rates of one
//! thread are per second of processor time (proc_pid_stat(5)): other load of the machine comes and
//! goes. The speed-up of two threads is by the clock and needs two idle cores.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fathom_designs::classic::Philosophers;
use fathom_designs::logfs::Logfs;
use fathom_designs::mapping::{Kind, Layout, Mapping};
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
    let [philosophers, link] = models().map(|model| against_spin(&model));
    let (one, rate) = log_seconds(1);
    let (two, _) = log_seconds(2);
    let speedup = one / two;
    println!("log design: {rate:.0} operations/s on one thread, {speedup:.2} times as fast on two");
    log_length_10();
    // The slower of exact and bitstate counts.
    let number = |ratios: Option<[f64; 2]>| match ratios {
        None => "null".to_owned(),
        Some([exact, bitstate]) => format!("{:.2}", exact.min(bitstate)),
    };
    println!(
        "{{\"vs_spin_philosophers\":{},\"vs_spin_link\":{},\"f2fs_ops_per_s_1t\":{rate:.0},\
         \"speedup_2t\":{speedup:.2}}}",
        number(philosophers),
        number(link)
    );
}

/// Processor time of this process, or of its children that have ended.
fn cpu_seconds(children: bool) -> f64 {
    // utime and stime are fields 14 and 15, those of children 16 and 17, in ticks of 1/100 s; the
    // name of the program, field 2, is in parentheses.
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat.rsplit(')').next().expect("a name in parentheses").split_whitespace();
    let ticks = fields.skip(if children { 13 } else { 11 }).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().expect("ticks") / 100.0).sum()
}

fn explore<S: System>(system: &S, plan: Plan) -> Report {
    search(system, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan")
}

/// A model that both sides know.
struct Model {
    name: &'static str,
    /// Files for SPIN; the first is the model.
    files: Vec<(&'static str, String)>,
    /// For the C compiler.
    defines: &'static [&'static str],
    /// States that SPIN has more: before its process has begun.
    states_more: u64,
    /// Explores it; how many states.
    ours: fn(Memory) -> u64,
}

fn models() -> [Model; 2] {
    let philosophers = Model {
        name: "philosophers",
        files: vec![("model.pml", promela())],
        defines: &[],
        states_more: 0,
        ours: |memory| {
            let table = Philosophers::new(SEATS, false).expect("enough seats");
            explore(&table, plan(memory)).states
        },
    };
    let link = Model {
        name: "link",
        files: vec![
            ("model.pml", include_str!("link.pml").to_owned()),
            ("link.h", include_str!("link.h").to_owned()),
        ],
        defines: &["-DFILES=2", "-DBLOCKS=3", "-DTHREADS=2", "-DCACHE=0"],
        states_more: 1,
        ours: |memory| {
            let seed = Mapping::new(Kind::Link).expect("the seed's geometry");
            let layout = Layout::new(Kind::Link, 2, 3).expect("it fits");
            let mapping = Mapping { layout, threads: 2, symmetry: false, ..seed };
            explore(&mapping, plan(memory)).states
        },
    };
    [philosophers, link]
}

fn plan(memory: Memory) -> Plan {
    Plan { threads: 1, deadlock: true, stop_at_first: false, memory, ..Plan::default() }
}

/// Our states per second by SPIN's: exact, and bitstate. None if SPIN does not work here.
fn against_spin(model: &Model) -> Option<[f64; 2]> {
    let name = format!("fathom-spin-{}-{}", model.name, std::process::id());
    let dir = std::env::temp_dir().join(name);
    fs::create_dir_all(&dir).expect("a scratch directory");
    let result = compile_spin(&dir, model).map(|()| {
        [false, true].map(|bitstate| {
            let round = |_| our_rate(model, bitstate) / spin_rate(&dir, model, bitstate);
            let mut ratios: Vec<f64> = (0..ROUNDS).map(round).collect();
            ratios.sort_by(f64::total_cmp);
            ratios[ROUNDS / 2]
        })
    });
    fs::remove_dir_all(&dir).expect("our own directory");
    result
}

fn our_rate(model: &Model, bitstate: bool) -> f64 {
    let bytes = 1 << (BITS_LOG - 3);
    let memory =
        if bitstate { Memory::Bitstate { bytes, hashes: 3, seed: 1 } } else { Memory::Exact };
    let before = cpu_seconds(false);
    let states = (model.ours)(memory);
    let rate = states as f64 / (cpu_seconds(false) - before);
    println!("{}, bitstate {bitstate}: fathom {states} states, {rate:.0}/s", model.name);
    rate
}

/// The table of the philosophers in Promela.
fn promela() -> String {
    let mut model = format!("byte p[{SEATS}];\nactive proctype table() {{ do\n");
    for seat in 0..SEATS {
        let (before, after) = ((seat + SEATS - 1) % SEATS, (seat + 1) % SEATS);
        for (guard, then) in [
            (format!("p[{seat}] == 0 && p[{before}] != 2"), 1),
            (format!("p[{seat}] == 1 && p[{after}] == 0"), 2),
            (format!("p[{seat}] == 2"), 0),
        ] {
            let _ = writeln!(model, ":: d_step {{ {guard} -> p[{seat}] = {then} }}");
        }
    }
    model + "od }\n"
}

fn compile_spin(dir: &Path, model: &Model) -> Option<()> {
    for (name, text) in &model.files {
        fs::write(dir.join(name), text).expect("a scratch file");
    }
    let run = |program: &str, args: &[&str]| {
        let ran = Command::new(program).args(args).current_dir(dir).output();
        let worked = ran.as_ref().is_ok_and(|output| output.status.success());
        if !worked {
            println!("SKIP against SPIN: {program} does not work here: {ran:?}");
        }
        worked.then_some(())
    };
    run("spin", &["-a", "model.pml"])?;
    let common = [&["-O2", "-DSAFETY", "-DNOREDUCE", "-w", "pan.c", "-o"][..], model.defines];
    run("gcc", &[common[0], &["pan-exact"], common[1]].concat())?;
    run("gcc", &[common[0], &["pan-bit", "-DBITSTATE"], common[1]].concat())
}

fn spin_rate(dir: &Path, model: &Model, bitstate: bool) -> f64 {
    let (program, hash) = if bitstate { ("pan-bit", BITS_LOG) } else { ("pan-exact", 22) };
    let before = cpu_seconds(true);
    // -c0: do not stop at violations; -m: the depth of the search.
    let output = Command::new(dir.join(program))
        .args(["-c0", "-m4000000", &format!("-w{hash}")])
        .current_dir(dir)
        .output()
        .expect("pan was compiled");
    let seconds = cpu_seconds(true) - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let stored = text.lines().find_map(|line| line.trim().strip_suffix(" states, stored"));
    let states: u64 =
        stored.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("{text}"));
    if !bitstate {
        assert_eq!(states - model.states_more, (model.ours)(Memory::Exact), "{}", model.name);
    }
    let rate = states as f64 / seconds;
    println!("{}, bitstate {bitstate}: SPIN   {states} states, {rate:.0}/s", model.name);
    rate
}

/// Seconds by the clock, and operations (power failures included) per second of processor time.
fn log_seconds(threads: usize) -> (f64, f64) {
    let explorer = Explorer::new(Logfs::default(), Limits::default()).expect("a sound design");
    let (started, before) = (Instant::now(), cpu_seconds(false));
    let plan = Plan { threads, depth_max: Some(LENGTH), ..Plan::default() };
    let report = explore(&explorer, plan);
    let seconds = started.elapsed().as_secs_f64();
    let operations = report.transitions + explorer.recoveries();
    let rate = operations as f64 / (cpu_seconds(false) - before);
    println!(
        "log design, {threads} threads: {} states, {operations} operations, {seconds:.2} s, {:.0} bytes per state",
        report.states,
        report.bytes_per_state()
    );
    (seconds, rate)
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
