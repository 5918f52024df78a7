//! The search on designs: against SPIN, and the log-structured design by itself.
//!
//! SPIN's models (`link.pml`, and the philosophers below) are processes whose steps are those of
//! ours, so that both sides visit the same number of states, which is compared. `pan` is compiled
//! with `-O2 -DSAFETY`. Both sides use one thread; they take turns and the best of each counts. Rates
//! of one thread are per second of processor time (proc_pid_stat(5)): other load of the machine comes and
//! goes. The speed-up of two threads is by the clock, the best of some short windows of each, and
//! needs two idle cores. What two cores can give at all is measured in the same turns: two separate
//! searches at the same time. On a busy machine the ratio of processor times says what is lost to
//! searching in parallel. The load is printed.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fathom_designs::classic::Philosophers;
use fathom_designs::logfs::Logfs;
use fathom_designs::mapping::{Kind, Layout, Mapping};
use fathom_designs::volume::{Explorer, Limits};
use fathom_engine::search::{Memory, Plan, Report, Strategy, System, Unobserved, search};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// 1,331,714 states: some seconds for either side.
const SEATS: u32 = 16;
/// Memory of a bitstate set: log₂ of its bits, as SPIN wants it.
const BITS_LOG: u32 = 27;
/// Operations of a workload of the log-structured design: a second. Neighbours on a shared machine
/// leave both cores alone for that long now and then.
const LENGTH: u32 = 7;
/// Windows of which the best counts.
const WINDOWS: usize = 60;
/// What the study needed 475 s, and 68,117 s and 11 GB for; and what we give them.
const LONG: [(u32, u64); 2] = [(10, 120), (13, 1800)];
const MEMORY_MAX_BYTES: u64 = 8 << 30;

fn main() {
    keep_memory();
    println!("load: {}", fs::read_to_string("/proc/loadavg").expect("Linux").trim());
    let [philosophers, link] = models().map(|model| against_spin(&model));
    let two_threads = speedup("link", |threads| {
        let mapping = link_mapping();
        let plan = Plan { threads, ..plan(Memory::Exact) };
        Window::measure(|| explore(&mapping, plan).transitions)
    });
    println!(
        "link: {:.2} times as fast on two threads, two separate searches {:.2}",
        two_threads.speedup, two_threads.machine
    );
    let two_threads = speedup("log", |threads| {
        let explorer = log_explorer();
        let plan = Plan { threads, depth_max: Some(LENGTH), ..Plan::default() };
        Window::measure(|| explore(&explorer, plan).transitions + explorer.recoveries())
    });
    let TwoThreads { rate, speedup, machine } = two_threads;
    println!(
        "log design: {rate:.0} operations/s on one thread, {speedup:.2} times as fast on two, \
         two separate searches {machine:.2}"
    );
    LONG.iter().for_each(|(length, seconds)| log_of_length(*length, *seconds));
    // The slower of exact and bitstate counts.
    let number = |ratios: Option<[f64; 2]>| match ratios {
        None => "null".to_owned(),
        Some([exact, bitstate]) => format!("{:.2}", exact.min(bitstate)),
    };
    println!(
        "{{\"vs_spin_philosophers\":{},\"vs_spin_link\":{},\"f2fs_ops_per_s_1t\":{rate:.0},\
         \"speedup_2t\":{speedup:.2},\"machine_2t\":{machine:.2}}}",
        number(philosophers),
        number(link)
    );
}

/// Windows follow each other in one process. What one gives back to the system the next would have to
/// get again, page by page, which costs a window of a second more than it costs a long search: this
/// process keeps it. (The allocator reads its options when a process begins.)
fn keep_memory() {
    const OPTION: &str = "MIMALLOC_PURGE_DELAY";
    if std::env::var_os(OPTION).is_none() {
        let program = std::env::current_exe().expect("Linux");
        let error = Command::new(program).args(std::env::args().skip(1)).env(OPTION, "-1").exec();
        panic!("starting again with {OPTION}: {error}");
    }
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
    /// Rounds of which the best counts.
    rounds: usize,
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
        rounds: 5,
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
        rounds: 15,
        states_more: 1,
        ours: |memory| explore(&link_mapping(), plan(memory)).states,
    };
    [philosophers, link]
}

fn link_mapping() -> Mapping {
    let seed = Mapping::new(Kind::Link).expect("the seed's geometry");
    let layout = Layout::new(Kind::Link, 2, 3).expect("it fits");
    Mapping { layout, threads: 2, symmetry: false, ..seed }
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
            let round = |_| [our_rate(model, bitstate), spin_rate(&dir, model, bitstate)];
            let rates: Vec<[f64; 2]> = (0..model.rounds).map(round).collect();
            let [ours, spin] =
                [0, 1].map(|side: usize| rates.iter().map(|rates| rates[side]).fold(0.0, f64::max));
            ours / spin
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

fn log_explorer() -> Explorer<Logfs> {
    Explorer::new(Logfs::default(), Limits::default()).expect("a sound design")
}

/// One run: operations (power failures included), seconds by the clock and of processor time.
struct Window {
    operations: u64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Window {
    fn measure(run: impl FnOnce() -> u64) -> Window {
        let (started, before) = (Instant::now(), cpu_seconds(false));
        let operations = run();
        let (seconds, cpu_seconds) = (started.elapsed().as_secs_f64(), cpu_seconds(false) - before);
        Window { operations, seconds, cpu_seconds }
    }
}

struct TwoThreads {
    /// Operations per second of processor time, one thread.
    rate: f64,
    /// Of two threads against one, by the clock.
    speedup: f64,
    /// Of two searches at the same time against one after the other.
    machine: f64,
}

/// One thread, two threads, and two searches of one thread each, in turns.
fn speedup(name: &str, run: impl Fn(usize) -> Window + Sync) -> TwoThreads {
    let side_by_side = || {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| run(1).seconds);
            let here = run(1);
            Window { seconds: here.seconds.max(other.join().expect("it searches")), ..here }
        })
    };
    let windows: Vec<[Window; 3]> =
        (0..WINDOWS).map(|_| [run(1), run(2), side_by_side()]).collect();
    let best = |seconds: fn(&Window) -> f64| {
        [0, 1, 2].map(|kind: usize| {
            windows.iter().map(|turn| seconds(&turn[kind])).fold(f64::INFINITY, f64::min)
        })
    };
    let operations = windows[0][0].operations;
    assert!(windows.iter().flatten().all(|window| window.operations == operations), "{name}");
    let [one, two, separate] = best(|window| window.seconds);
    let [cpu_one, cpu_two, _] = best(|window| window.cpu_seconds);
    println!(
        "{name}: {operations} operations; one thread {one:.2} s ({cpu_one:.2} s of processor time), \
         two threads {two:.2} s ({cpu_two:.2} s: {:.2} times the work), \
         two searches at the same time {separate:.2} s",
        cpu_two / cpu_one
    );
    let machine = 2.0 * one / separate;
    TwoThreads { rate: operations as f64 / cpu_one, speedup: one / two, machine }
}

/// All workloads of a length on two threads, or as many as the time and the memory suffice for.
fn log_of_length(length: u32, seconds_max: u64) {
    let explorer = log_explorer();
    let time_max = Some(Duration::from_secs(seconds_max));
    let memory_max_bytes = Some(MEMORY_MAX_BYTES);
    let plan =
        Plan { threads: 2, depth_max: Some(length), time_max, memory_max_bytes, ..Plan::default() };
    let before = cpu_seconds(false);
    let report = explore(&explorer, plan);
    println!(
        "log design, workloads of {length}: {} states, {} operations, depth {}, {:.1} s \
         ({:.1} s of processor time), {:.1} bytes per state, {} in memory at most: {}",
        report.states,
        report.transitions + explorer.recoveries(),
        report.depth(),
        report.elapsed.as_secs_f64(),
        cpu_seconds(false) - before,
        report.bytes_per_state(),
        memory_peak(),
        report.stop
    );
}

/// The most memory that this process has had so far.
fn memory_peak() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.expect("proc_pid_status(5)").trim().to_owned()
}
