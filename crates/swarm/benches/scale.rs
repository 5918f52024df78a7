//! How a swarm grows: uniting 10,000 to 100,000 runs, and a coordinator with 10,000 tasks that run.
//!
//! `FATHOM_BENCH_RUNS` (10000,30000,100000) synthetic runs, `FATHOM_BENCH_TASKS` (10000) tasks for
//! `FATHOM_BENCH_SECONDS` (30).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fathom_record::run::{Count, Kind, Run, Sample};
use fathom_record::swarm::SwarmStatus;
use fathom_record::{STATES_FILE, VisitedStates};
use fathom_swarm::engine::{Engine, Order, Seen};
use fathom_swarm::plan::Limits;
use fathom_swarm::{
    Coordinator, Merged, Plan, Reason, SwarmDirectory, SwarmError, Tasks, Watcher, merge,
};
use serde_json::{Value, json};

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let runs = std::env::var("FATHOM_BENCH_RUNS").unwrap_or_else(|_| "10000,30000,100000".into());
    let mut made = 0;
    let mut merges = Vec::new();
    for wanted in runs.split(',').filter_map(|number| number.parse::<u64>().ok()) {
        for index in made..wanted {
            let tasks = dir.path().join("runs").join((index / 1000).to_string());
            synthetic(&tasks.join(index.to_string()), index, 500);
        }
        made = wanted;
        merges.push(measured_merge(&dir.path().join("runs"), wanted));
    }
    let result = json!({"merge": merges, "coordinator": coordinator(&dir.path().join("swarm"))});
    println!("{result}");
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn measured_merge(runs: &Path, count: u64) -> Value {
    // The kernel forgets the peak of before.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let (began, before) = (Instant::now(), processor_seconds());
    let merged = merge(&[runs.to_owned()]);
    let (seconds, processor) = (began.elapsed().as_secs_f64(), processor_seconds() - before);
    assert_eq!(merged.runs, count);
    let peak = peak_mib();
    println!(
        "{count} runs: {seconds:.1} s, {processor:.1} s of a processor, {:.0} µs each, {peak} MiB, {} states",
        processor / count as f64 * 1e6,
        merged.states_total().states
    );
    json!({"runs": count, "seconds": seconds, "processor_seconds": processor, "peak_mib": peak})
}

fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) >> 10
}

/// Time that this process has used, in user mode and in the kernel.
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<u64> =
        stat.rsplit(") ").next().unwrap_or("").split(' ').filter_map(|f| f.parse().ok()).collect();
    // The state is no number: fields 14 and 15 of proc(5) are the eleventh and twelfth numbers after it. Linux
    // counts 100 ticks per second here, whatever it does elsewhere.
    (fields.get(10).unwrap_or(&0) + fields.get(11).unwrap_or(&0)) as f64 / 100.0
}

/// A run as a check of some seconds leaves it; half of its states are its neighbour's.
fn synthetic(dir: &Path, index: u64, states_count: u64) {
    fs::create_dir_all(dir).expect("a directory");
    let mut run = Run::start(Kind::Check, &format!("fathom check model --seed {index}"), "model");
    (run.seed, run.complete, run.seconds) = (Some(index), true, 30.0);
    let count = |name: &str, value| Count { name: name.to_owned(), value, about: String::new() };
    run.counts = vec![count("operations", 10_000), count("states", states_count)];
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
    let first = index * states_count / 2;
    (first..first + states_count).for_each(|state| states.add(u128::from(state)));
    fs::write(dir.join(STATES_FILE), states.sketch().encode("trees")).expect("a file");
}

/// An engine whose tasks have begun, and run until they are asked to end.
struct Endless<'a> {
    directory: SwarmDirectory,
    capacity: usize,
    asked: &'a Cell<u64>,
    is_over: bool,
}

impl Engine for Endless<'_> {
    fn name(&self) -> &'static str {
        "endless"
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn start(&mut self, orders: &[Order], _: &Limits) -> Result<(), SwarmError> {
        for order in orders {
            let out = self.directory.attempt(&order.task.name(), order.attempt);
            synthetic(&out, order.task.number, 500);
        }
        Ok(())
    }

    fn watch(&mut self, names: &[String]) -> Result<BTreeMap<String, Seen>, SwarmError> {
        self.asked.set(self.asked.get() + 1);
        let seen = match self.is_over {
            true => Seen::Gone(Reason::Stopped, String::new()),
            false => Seen::Running,
        };
        Ok(names.iter().map(|name| (name.clone(), seen.clone())).collect())
    }

    fn stop(&mut self) -> Result<(), SwarmError> {
        self.is_over = true;
        Ok(())
    }
}

/// Measures a coordinator from its first result to the end of the time.
struct Clock<'a> {
    time: Duration,
    began: Cell<Option<(Instant, f64, u64)>>,
    asked: &'a Cell<u64>,
    looks: Cell<u64>,
    results: u64,
    measured: &'a Cell<Option<Value>>,
}

impl Watcher for Clock<'_> {
    fn event(&mut self, _: &str) {}

    fn status(&mut self, _: &SwarmStatus, _: &Merged) {
        self.results += 1;
        if self.began.get().is_none() {
            self.began.set(Some((Instant::now(), processor_seconds(), self.asked.get())));
            self.looks.set(0);
        }
    }

    fn wants_the_end(&self) -> bool {
        self.looks.set(self.looks.get() + 1);
        let Some((at, processor, asked)) = self.began.get() else { return false };
        let seconds = at.elapsed().as_secs_f64();
        if at.elapsed() < self.time {
            return false;
        }
        self.measured.set(Some(json!({
            "seconds": seconds,
            "processors": (processor_seconds() - processor) / seconds,
            "looks_per_s": self.looks.get() as f64 / seconds,
            "questions_per_s": (self.asked.get() - asked) as f64 / seconds,
            "results": self.results - 1,
            "peak_mib": peak_mib(),
        })));
        true
    }
}

fn coordinator(path: &Path) -> Value {
    let tasks = number("FATHOM_BENCH_TASKS", 10_000);
    let text = format!("tasks = {tasks}\n[[campaign]]\ncommand = \"check model --ops 10\"\n");
    let plan = Plan::parse(&text).expect("a plan");
    let directory = SwarmDirectory::new(path);
    let made: Vec<_> = Tasks::new(&plan).expect("tasks").collect();
    directory.create(&plan, "endless", &made).expect("a swarm");
    let (asked, measured) = (Cell::new(0), Cell::new(None));
    let engine = Endless {
        directory: directory.clone(),
        capacity: tasks as usize,
        asked: &asked,
        is_over: false,
    };
    let mut clock = Clock {
        time: Duration::from_secs(number("FATHOM_BENCH_SECONDS", 30)),
        began: Cell::new(None),
        asked: &asked,
        looks: Cell::new(0),
        results: 0,
        measured: &measured,
    };
    let _ = fs::write("/proc/self/clear_refs", "5");
    let coordinator =
        Coordinator::new(&directory, Box::new(engine), &mut clock).expect("it starts");
    coordinator.run().expect("it ends");
    let mut value = measured.take().unwrap_or_default();
    value["tasks"] = tasks.into();
    println!("a coordinator with {tasks} running tasks: {value}");
    value
}
