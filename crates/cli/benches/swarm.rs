//! What a swarm costs: the same 18 tasks by hand and through an engine, in alternating pairs; guests against plain
//! processes; uniting results.
//!
//! Overhead is that of the time on a clock. That of the processors, which other work on the machine changes little,
//! is told beside it for the local engine. Slurm takes some seconds to start anything, so that a side must take a
//! minute: 18 tasks with 18 philosophers do on two processors.
//!
//! `FATHOM_BENCH_PAIRS` (5) pairs of each; Slurm if `SLURM_CONF` names a cluster of three nodes; guests if
//! `FATHOM_GUEST_KERNEL` names a kernel and this is root. `FATHOM_BENCH_SIZE` (18) philosophers, or several numbers
//! (`16,17,18`) for a table of which the last row is the result; `FATHOM_BENCH_OPS` (12000) operations of each task
//! of `check ext4`; `FATHOM_BENCH_RUNS` (3000) synthetic runs are united. `FATHOM_BENCH_PARTS`
//! (local,slurm,guest,merge) measures some of it only; what was not measured is null.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use fathom_record::run::{Count, Kind, Run, Sample};
use fathom_record::{STATES_FILE, VisitedStates};
use serde_json::{Value, json};

const FATHOM: &str = env!("CARGO_BIN_EXE_fathom");

/// Tasks of the comparison.
const TASKS: usize = 18;

fn main() {
    let pairs = number("FATHOM_BENCH_PAIRS", 5).max(1);
    let parts = std::env::var("FATHOM_BENCH_PARTS");
    let parts = parts.unwrap_or_else(|_| "local,slurm,guest,merge".to_owned());
    let is_wanted = |part: &str| parts.split(',').any(|wanted| wanted == part);
    // Runners that outlive the coordinator for a moment come to this process, which waits for them.
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).expect("Linux has it");
    let dir = tempfile::tempdir().expect("a directory");
    let places = places();
    println!("{TASKS} tasks, {pairs} pairs, seconds by hand and through the engine");
    let mut rows = Vec::new();
    let sizes = std::env::var("FATHOM_BENCH_SIZE").unwrap_or_else(|_| "18".to_owned());
    for size in sizes.split(',').filter_map(|size| size.parse().ok()) {
        let plan = philosophers(dir.path(), size);
        let places = places.iter().filter(|place| is_wanted(place.on));
        rows.extend(
            places.map(|place| Row { size, costs: costs(dir.path(), &plan, place, pairs) }),
        );
    }
    tell(&rows);
    let guests: Vec<Guests> = match is_wanted("guest") {
        true => places.iter().filter_map(|place| guests(dir.path(), place, pairs)).collect(),
        false => Vec::new(),
    };
    let merged = is_wanted("merge").then(|| {
        let (rate, seconds, memory) = merge_rate(dir.path(), number("FATHOM_BENCH_RUNS", 3000));
        println!("uniting: {rate:.0} runs/s, {seconds:.2} s, {} MiB", memory >> 20);
        (rate, seconds, memory >> 20)
    });
    let on = |on: &str| rows.iter().rfind(|row| row.costs.on == on).map(|row| &row.costs);
    let guests_on = |on: &str| guests.iter().find(|guests| guests.on == on);
    let result = json!({
        "engine_overhead_local": on("local").map(Costs::overhead),
        "engine_processor_overhead_local": on("local").map(Costs::processor_overhead),
        "engine_overhead_slurm": on("slurm").map(Costs::overhead),
        "guest_vs_plain": guests_on("local").map(|guests| guests.vs_plain),
        "guest_vs_plain_slurm": guests_on("slurm").map(|guests| guests.vs_plain),
        "guest_engine_overhead_local": guests_on("local").map(|guests| guests.overhead),
        "guest_engine_overhead_slurm": guests_on("slurm").map(|guests| guests.overhead),
        "philosophers": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "merge_runs_per_s": merged.map(|(rate, ..)| rate),
        "merge_seconds": merged.map(|(_, seconds, _)| seconds),
        "merge_memory_mib": merged.map(|(.., memory)| memory),
    });
    println!("{result}");
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Where tasks run: the name of the engine, and how many run at once.
struct Place {
    on: &'static str,
    at_once: usize,
}

/// This machine, and three nodes with all of its cores each, if there is a cluster.
fn places() -> Vec<Place> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut places = vec![Place { on: "local", at_once: cores }];
    if std::env::var_os("SLURM_CONF").is_some() {
        places.push(Place { on: "slurm", at_once: cores * 3 });
    }
    places
}

/// A plan, and the commands that it stands for.
struct Plan {
    path: String,
    commands: Vec<Vec<String>>,
}

impl Plan {
    fn write(dir: &Path, name: &str, text: &str) -> Plan {
        let path = dir.join(name);
        fs::write(&path, text).expect("the plan");
        let path = path.display().to_string();
        let dry = Command::new(FATHOM).args(["swarm", &path, "--dry-run"]).output();
        let dry = dry.expect("it starts");
        let text = String::from_utf8_lossy(&dry.stdout).into_owned();
        let commands: Vec<Vec<String>> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split(' ').skip(1).map(str::to_owned).collect())
            .collect();
        assert_eq!(commands.len(), TASKS, "{text}{}", String::from_utf8_lossy(&dry.stderr));
        Plan { path, commands }
    }
}

/// Searches of the same length in every order.
fn philosophers(dir: &Path, size: usize) -> Plan {
    let text = format!(
        "tasks = {TASKS}\n[limits]\nmemory = \"2G\"\n\
         [[campaign]]\ncommand = \"design philosophers --size {size} --jobs 1\"\n\
         vary = {{ action-order = [\"{{seed}}\"] }}\n"
    );
    Plan::write(dir, &format!("philosophers-{size}.toml"), &text)
}

/// All tasks, once.
#[derive(Clone, Copy)]
struct Turn {
    seconds: f64,
    /// Time of processors.
    processors: f64,
    /// Sums of what the tasks have done.
    states: u64,
    operations: u64,
}

impl Turn {
    fn of(out: &Path, work: impl FnOnce()) -> Turn {
        let (began, before) = (Instant::now(), processor_seconds());
        work();
        let seconds = began.elapsed().as_secs_f64();
        // Until there are none.
        while rustix::process::wait(rustix::process::WaitOptions::empty()).is_ok() {}
        let (states, operations) = done(out);
        // It may be gigabytes; the next turn has a place of its own.
        let _ = fs::remove_dir_all(out);
        Turn { seconds, processors: processor_seconds() - before, states, operations }
    }

    fn by_hand(out: &Path, plan: &Plan, place: &Place) -> Turn {
        Turn::of(out, || by_hand(out, &plan.commands, place.at_once))
    }

    fn by_engine(out: &Path, plan: &Plan, place: &Place) -> Turn {
        Turn::of(out, || {
            let mut swarm = Command::new(FATHOM);
            swarm.args(["swarm", &plan.path, "--on", place.on, "--json", "--out"]).arg(out);
            let output = swarm.stderr(Stdio::inherit()).output().expect("it starts");
            let last = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.code() != Some(2), "the swarm failed: {last}");
        })
    }
}

/// States and operations of the complete runs below a directory.
fn done(out: &Path) -> (u64, u64) {
    let (mut states, mut operations) = (0, 0);
    for entry in fs::read_dir(out).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || entry.file_name() == "united" {
            continue;
        }
        let (more_states, more_operations) = match Run::read(&entry.path()) {
            Ok(run) if run.complete => {
                (run.count("states").unwrap_or(0), run.count("operations").unwrap_or(0))
            }
            Ok(_) => (0, 0),
            Err(_) => done(&entry.path()),
        };
        (states, operations) = (states + more_states, operations + more_operations);
    }
    (states, operations)
}

/// What an engine costs beside the commands by themselves, in pairs of turns by hand and through it.
struct Costs {
    on: &'static str,
    turns: Vec<(Turn, Turn)>,
}

impl Costs {
    /// The median of the ratios of pairs, minus one.
    fn overhead(&self) -> f64 {
        median(self.turns.iter().map(|(hand, engine)| engine.seconds / hand.seconds)) - 1.0
    }

    fn processor_overhead(&self) -> f64 {
        median(self.turns.iter().map(|(hand, engine)| engine.processors / hand.processors)) - 1.0
    }

    fn seconds(&self) -> (f64, f64) {
        let hand = median(self.turns.iter().map(|(hand, _)| hand.seconds));
        (hand, median(self.turns.iter().map(|(_, engine)| engine.seconds)))
    }
}

/// Turns by hand and through the engine; who comes first changes.
fn costs(dir: &Path, plan: &Plan, place: &Place, pairs: usize) -> Costs {
    let mut turns = Vec::new();
    for pair in 0..pairs {
        let hand = || Turn::by_hand(&dir.join("hand"), plan, place);
        let engine = || Turn::by_engine(&dir.join("swarm"), plan, place);
        let (hand, engine) = if pair % 2 == 0 {
            let hand = hand();
            (hand, engine())
        } else {
            let engine = engine();
            (hand(), engine)
        };
        println!(
            "{}: {:.2} s by hand, {:.2} s; {:.2} and {:.2} s of processors",
            place.on, hand.seconds, engine.seconds, hand.processors, engine.processors
        );
        assert_eq!(hand.states, engine.states, "the same tasks visit the same states");
        turns.push((hand, engine));
    }
    Costs { on: place.on, turns }
}

/// A size of the table.
struct Row {
    size: usize,
    costs: Costs,
}

impl Row {
    fn states(&self) -> u64 {
        self.costs.turns[0].0.states
    }

    fn json(&self) -> Value {
        let (hand, engine) = self.costs.seconds();
        json!({
            "philosophers": self.size, "on": self.costs.on, "states": self.states(),
            "hand_seconds": hand, "engine_seconds": engine,
            "hand_states_per_s": self.states() as f64 / hand,
            "engine_states_per_s": self.states() as f64 / engine,
        })
    }
}

/// The table of the study that this follows: medians of the pairs.
fn tell(rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    println!("philosophers  engine  total states   by hand: s, states/s   engine: s, states/s");
    for row in rows {
        let (hand, engine) = row.costs.seconds();
        let states = row.states() as f64;
        println!(
            "{:12}  {:6}  {:12}   {:10.2} {:11.0}   {:9.2} {:11.0}",
            row.size,
            row.costs.on,
            row.states(),
            hand,
            states / hand,
            engine,
            states / engine
        );
    }
}

/// The middle one, or the upper one of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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

/// What guests cost on a place.
struct Guests {
    on: &'static str,
    /// Operations per second in guests, relative to the same tasks on the kernel of the machine.
    vs_plain: f64,
    /// What the engine adds to the guests that are started by hand.
    overhead: f64,
}

/// The same tasks of `check ext4` on the kernel of the machine, in guests, and in guests by hand; who comes first
/// changes.
fn guests(dir: &Path, place: &Place, pairs: usize) -> Option<Guests> {
    let kernel = std::env::var("FATHOM_GUEST_KERNEL").ok()?;
    if !rustix::process::geteuid().is_root() {
        println!("guests: nothing to compare with, the kernel's ext4 needs root");
        return None;
    }
    // A path must be the same for tasks in other directories; a name is one everywhere.
    let kernel = fs::canonicalize(&kernel).map_or(kernel, |path| path.display().to_string());
    let ops = number("FATHOM_BENCH_OPS", 12_000);
    let text = |more: &str| {
        format!(
            "tasks = {TASKS}\nprivileged = true\n[limits]\nmemory = \"1G\"\n\
             [[campaign]]\ncommand = \"check ext4 --ops {ops}\"\n{more}\n"
        )
    };
    let plain = Plan::write(dir, "plain.toml", &text(""));
    let guest = Plan::write(dir, "guest.toml", &text(&format!("kernels = [\"{kernel}\"]")));
    let (mut vs_plain, mut overhead) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let mut turns = [None; 3];
        for side in 0..3 {
            let side = (side + pair) % 3;
            let out = dir.join(format!("ext4-{side}"));
            turns[side] = Some(match side {
                0 => Turn::by_engine(&out, &plain, place),
                1 => Turn::by_engine(&out, &guest, place),
                _ => Turn::by_hand(&out, &guest, place),
            });
        }
        let [plain, guest, hand] = turns.map(|turn| turn.expect("all three ran"));
        let rate = |turn: Turn| turn.operations as f64 / turn.seconds;
        println!(
            "{}, check ext4: {:.2} s plain, {:.2} s in guests, {:.2} s in guests by hand; \
             {:.0}, {:.0} and {:.0} operations/s",
            place.on,
            plain.seconds,
            guest.seconds,
            hand.seconds,
            rate(plain),
            rate(guest),
            rate(hand)
        );
        vs_plain.push(rate(guest) / rate(plain));
        overhead.push(rate(hand) / rate(guest) - 1.0);
    }
    let (vs_plain, overhead) = (median(vs_plain.into_iter()), median(overhead.into_iter()));
    Some(Guests { on: place.on, vs_plain, overhead })
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
