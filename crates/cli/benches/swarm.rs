//! What a swarm costs: the same 18 tasks by hand and through an engine, in alternating pairs; a guest against
//! plain processes; uniting results.
//!
//! Overhead is that of the time on a clock. That of the processors, which other work on the machine changes little,
//! is told beside it for the local engine.
//!
//! `FATHOM_BENCH_PAIRS` (5) pairs of each; Slurm if `SLURM_CONF` names a cluster; a guest if
//! `FATHOM_GUEST_KERNEL` names a kernel and this is root. `FATHOM_BENCH_RUNS` (3000) synthetic runs are united.
//! `FATHOM_BENCH_PARTS` (local,slurm,guest,merge) measures some of it only; what was not measured is null.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use fathom_record::run::{Count, Kind, Run, Sample};
use fathom_record::{STATES_FILE, VisitedStates};
use serde_json::json;

const FATHOM: &str = env!("CARGO_BIN_EXE_fathom");

/// Tasks of the comparison.
const TASKS: usize = 18;

fn main() {
    let pairs = number("FATHOM_BENCH_PAIRS", 5);
    let parts = std::env::var("FATHOM_BENCH_PARTS");
    let parts = parts.unwrap_or_else(|_| "local,slurm,guest,merge".to_owned());
    let is_wanted = |part: &str| parts.split(',').any(|wanted| wanted == part);
    // Runners that outlive the coordinator for a moment come to this process, which waits for them.
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).expect("Linux has it");
    let dir = tempfile::tempdir().expect("a directory");
    let plan = philosophers(dir.path());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{TASKS} tasks of philosophers, {pairs} pairs, seconds by hand and through the engine"
    );
    let local = is_wanted("local").then(|| overhead(dir.path(), &plan, "local", cores, pairs));
    let has_slurm = is_wanted("slurm") && std::env::var_os("SLURM_CONF").is_some();
    // Three nodes with all cores of this machine each.
    let slurm = has_slurm.then(|| overhead(dir.path(), &plan, "slurm", cores * 3, pairs));
    let guest = is_wanted("guest").then(|| guest_vs_plain(dir.path())).flatten();
    let merged = is_wanted("merge").then(|| {
        let (rate, seconds, memory) = merge_rate(dir.path(), number("FATHOM_BENCH_RUNS", 3000));
        println!("uniting: {rate:.0} runs/s, {seconds:.2} s, {} MiB", memory >> 20);
        (rate, seconds, memory >> 20)
    });
    let result = json!({
        "engine_overhead_local": local.map(|overhead| overhead.clock),
        "engine_processor_overhead_local": local.map(|overhead| overhead.processors),
        "engine_overhead_slurm": slurm.map(|overhead| overhead.clock),
        "guest_vs_plain": guest,
        "merge_runs_per_s": merged.map(|(rate, ..)| rate),
        "merge_seconds": merged.map(|(_, seconds, _)| seconds),
        "merge_memory_mib": merged.map(|(.., memory)| memory),
    });
    println!("{result}");
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Searches of some seconds each, of the same length in every order.
fn philosophers(dir: &Path) -> String {
    let size = number("FATHOM_BENCH_SIZE", 17);
    let plan = dir.join("plan.toml");
    let text = format!(
        "tasks = {TASKS}\n[limits]\nmemory = \"1G\"\n\
         [[campaign]]\ncommand = \"design philosophers --size {size} --jobs 1\"\n\
         vary = {{ action-order = [\"{{seed}}\"] }}\n"
    );
    fs::write(&plan, text).expect("the plan");
    plan.display().to_string()
}

/// What an engine costs, as a part of what the commands cost by themselves.
#[derive(Clone, Copy)]
struct Overhead {
    clock: f64,
    processors: f64,
}

/// The medians of the ratios of pairs, minus one.
fn overhead(dir: &Path, plan: &str, on: &str, at_once: usize, pairs: usize) -> Overhead {
    let dry = Command::new(FATHOM).args(["swarm", plan, "--dry-run"]).output().expect("it starts");
    let dry = String::from_utf8_lossy(&dry.stdout).into_owned();
    let commands: Vec<Vec<String>> = dry
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').skip(1).map(str::to_owned).collect())
        .collect();
    assert_eq!(commands.len(), TASKS, "{dry}");
    let (mut clock, mut processors) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let hand = timed(|| by_hand(&dir.join(format!("hand-{on}-{pair}")), &commands, at_once));
        let out = dir.join(format!("swarm-{on}-{pair}")).display().to_string();
        let engine = timed(|| {
            let mut swarm = Command::new(FATHOM);
            swarm.args(["swarm", plan, "--on", on, "--out", &out, "--json"]);
            let code = swarm.stdout(Stdio::null()).stderr(Stdio::null()).status();
            assert!(code.expect("it starts").code() != Some(2), "the swarm failed: {out}");
        });
        println!(
            "{on}: {:.2} s by hand, {:.2} s; {:.2} and {:.2} s of processors",
            hand.0, engine.0, hand.1, engine.1
        );
        clock.push(engine.0 / hand.0);
        processors.push(engine.1 / hand.1);
    }
    Overhead { clock: median(clock) - 1.0, processors: median(processors) - 1.0 }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The seconds of some work on a clock, and those that its processes had a processor.
fn timed(work: impl FnOnce()) -> (f64, f64) {
    let (began, before) = (Instant::now(), processor_seconds());
    work();
    let seconds = began.elapsed().as_secs_f64();
    // Until there are none.
    while rustix::process::wait(rustix::process::WaitOptions::empty()).is_ok() {}
    (seconds, processor_seconds() - before)
}

/// Time of processors that children of this process have used that have ended.
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<f64>().ok());
    // Fields 16 and 17 of proc(5); Linux counts 100 ticks per second here, whatever it does elsewhere.
    (ticks(16).unwrap_or(0.0) + ticks(17).unwrap_or(0.0)) / 100.0
}

/// Runs commands, so many at once.
fn by_hand(dir: &Path, commands: &[Vec<String>], at_once: usize) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(words) = commands.get(index) else { return };
                    let mut command = Command::new(FATHOM);
                    command.args(words).arg("--out").arg(dir.join(index.to_string()));
                    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
                    assert!(status.expect("it starts").code() != Some(2), "{words:?}");
                }
            });
        }
    });
}

/// Operations per second of `check ext4` in a guest, relative to the host.
fn guest_vs_plain(dir: &Path) -> Option<f64> {
    let kernel = std::env::var("FATHOM_GUEST_KERNEL").ok()?;
    let rate = |more: &[&str]| -> Option<f64> {
        let out = dir.join(format!("guest-{}", more.len())).display().to_string();
        let mut command = Command::new(FATHOM);
        command.args(["check", "ext4", "--ops", "20000", "--seed", "1", "--json", "--out", &out]);
        let output = command.args(more).stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
        Some(value["ops"].as_f64()? / value["seconds"].as_f64()?)
    };
    let (plain, guest) = (rate(&[])?, rate(&["--guest", &kernel])?);
    println!("check ext4: {plain:.0} operations/s plain, {guest:.0} in a guest");
    Some(guest / plain)
}

/// Unites synthetic runs: runs per second, seconds, the most memory.
fn merge_rate(dir: &Path, runs: usize) -> (f64, f64, u64) {
    let tasks = dir.join("synthetic");
    for index in 0..runs {
        synthetic(&tasks.join((index / 1000).to_string()).join(index.to_string()), index as u64);
    }
    let out = dir.join("united").display().to_string();
    let began = Instant::now();
    let mut merge = Command::new(FATHOM);
    merge.args(["swarm", "merge", &tasks.display().to_string(), "--out", &out, "--json"]);
    let mut child = merge.stdout(Stdio::null()).spawn().expect("it starts");
    let mut memory = 0;
    while child.try_wait().expect("it ends").is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        memory = memory.max(peak.unwrap_or(0) << 10);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let seconds = began.elapsed().as_secs_f64();
    (runs as f64 / seconds, seconds, memory)
}

/// A run as a check of some seconds leaves it, with 500 states, half of them its neighbour's.
fn synthetic(dir: &Path, index: u64) {
    fs::create_dir_all(dir).expect("a directory");
    let mut run = Run::start(Kind::Check, &format!("fathom check model --seed {index}"), "model");
    (run.seed, run.complete, run.seconds) = (Some(index), true, 30.0);
    let count = |name: &str, value| Count { name: name.to_owned(), value, about: String::new() };
    run.counts = vec![count("operations", 10_000), count("states", 500)];
    let sample = |n: u64| Sample {
        seconds: n as f64,
        states: n * 16,
        crash_images: 0,
        findings: 0,
        coverage: n,
        operations: n * 333,
    };
    run.samples = (1..=30).map(sample).collect();
    fs::write(dir.join("run.json"), serde_json::to_vec(&run).expect("plain data")).expect("a file");
    let states = VisitedStates::default();
    (index * 250..index * 250 + 500).for_each(|state| states.add(u128::from(state)));
    fs::write(dir.join(STATES_FILE), states.sketch().encode("trees")).expect("a file");
}
