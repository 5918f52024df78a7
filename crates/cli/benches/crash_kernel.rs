//! `cargo xtask bench crash-kernel`: crash states of kernel file systems judged per second, against the
//! bare loop of mounting, walking and unmounting the same kind of disks in the same run; natively (root)
//! and in a guest (FATHOM_GUEST_KERNEL). Every figure is of the host's clock: a guest's stands still while
//! it computes. Parts of it can be asked for by name: `cargo xtask bench crash-kernel --part guest`.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fathom_block::disks::{End, Workload, borrow_all};
use fathom_block::{DiskFileSystem, Distinct, Image, Record, Window};
use fathom_core::Op;
use fathom_engine::crash::sequences::crash_sequences;
use fathom_engine::crash::{CrashConfig, CrashPlan};
use fathom_engine::search::Strategy;
use fathom_generate::ace::{self, Space};
use fathom_guest::{Job, Kernel, run_job};
use fathom_record::Silent;
use fathom_subjects::Recipe;
use fathom_subjects::kernel::KernelDisks;
use fathom_subjects::kernel::disks::CrashProfile;
use serde_json::{Map, Value};

/// The word with which this program is started to do one thing.
const INSIDE: &str = "inside";
/// Workloads of the loops that are compared.
const WORKLOADS: usize = 8;
/// The same with the full oracle, which takes longer.
const WORKLOADS_FULL: usize = 1;
/// Workloads of ace:2 for each of two guests, at persistence points and everywhere.
const ACE2_POINTS: u64 = 250;
const ACE2_ALL: u64 = 25;
/// Runs of which the median counts.
const RUNS: usize = 3;

/// What can be measured by itself, each in less than two minutes on a machine with nothing else to do.
const PARTS: [&str; 7] =
    ["native", "native-full", "guest", "guest-full", "ace2-ext4", "ace2-btrfs", "ace2-all"];

fn main() {
    if let Some(code) = fathom_guest::take_over() {
        std::process::exit(code);
    }
    // cargo says --bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [word, fs, mode] = args.as_slice()
        && word == INSIDE
    {
        return inside(fs, mode);
    }
    if let Some(unknown) = args.iter().find(|arg| !PARTS.contains(&arg.as_str())) {
        eprintln!("there is no part {unknown:?}: {}", PARTS.join(", "));
        std::process::exit(2);
    }
    let is_wanted = |part: &str| args.is_empty() || args.iter().any(|arg| arg == part);
    let name = std::env::var("FATHOM_GUEST_KERNEL").ok();
    let kernel = name.as_deref().map(|name| fathom_guest::resolve(name).expect("a kernel"));
    let loops = Loops::measure(kernel.as_ref(), is_wanted);
    let mut value = loops.json();
    match &name {
        None => println!("SKIP the guest: set FATHOM_GUEST_KERNEL to a kernel with time travel"),
        Some(name) => value.extend(measure_ace2(name, is_wanted)),
    }
    println!("{}", Value::Object(value));
}

/// Disks per second, judged and in the bare loop, as far as they were measured.
#[derive(Default)]
struct Loops {
    native: Option<(f64, f64)>,
    native_full: Option<(f64, f64)>,
    guest: Option<(f64, f64)>,
    guest_full: Option<(f64, f64)>,
}

impl Loops {
    fn measure(kernel: Option<&Kernel>, is_wanted: impl Fn(&str) -> bool) -> Loops {
        let mut loops = Loops::default();
        println!("{:<12} {:>10} {:>10} {:>7}", "ext4", "judged/s", "bare/s", "ratio");
        for part in &PARTS[..4] {
            let kernel = if part.starts_with("guest") { kernel } else { None };
            if !is_wanted(part) || (part.starts_with("guest") && kernel.is_none()) {
                continue;
            }
            let is_full = part.ends_with("-full");
            let measured = compare(kernel, if is_full { "-full" } else { "" });
            println!(
                "{part:<12} {:>10.0} {:>10.0} {:>7.2}",
                measured.0,
                measured.1,
                measured.0 / measured.1
            );
            let place = match *part {
                "native" => &mut loops.native,
                "native-full" => &mut loops.native_full,
                "guest" => &mut loops.guest,
                _ => &mut loops.guest_full,
            };
            *place = Some(measured);
        }
        loops
    }

    fn json(&self) -> Map<String, Value> {
        let ratio = |(judged, bare): (f64, f64)| rounded(judged / bare);
        let mut value = Map::new();
        for (name, measured) in [
            ("judged_vs_bare_native", self.native),
            ("judged_vs_bare_native_full", self.native_full),
            ("judged_vs_bare_guest", self.guest),
            ("judged_vs_bare_guest_full", self.guest_full),
        ] {
            value.extend(measured.map(|measured| (name.to_owned(), ratio(measured).into())));
        }
        if let (Some(native), Some(guest)) = (self.native, self.guest) {
            value.insert("judged_vs_bare".to_owned(), ratio(native).min(ratio(guest)).into());
            value.insert("guest_vs_native".to_owned(), rounded(guest.0 / native.0).into());
        }
        value
    }
}

/// ace:2 in two guests, as far as it is wanted.
fn measure_ace2(name: &str, is_wanted: impl Fn(&str) -> bool) -> Map<String, Value> {
    let mut value = Map::new();
    let rows = [
        ("ace2-ext4", "ext4", true, "ace2_workloads_per_s_ext4"),
        ("ace2-btrfs", "btrfs", true, "ace2_workloads_per_s_btrfs"),
        ("ace2-all", "ext4", false, "ace2_workloads_per_s_ext4_all_levels"),
    ];
    println!("ace:2 on two guests, full oracle     workloads/s  states  examined");
    for (part, fs, persistence, field) in rows {
        if !is_wanted(part) {
            continue;
        }
        let run = ace2(name, fs, persistence);
        let points = if persistence { "persistence" } else { "all levels" };
        let what = format!("{fs}, {points}");
        println!("{what:<36} {:>11.1} {:>7} {:>9}", run.rate, run.states, run.examined);
        value.insert(field.to_owned(), rounded(run.rate).into());
        if !persistence {
            let effective = rounded(run.states as f64 / run.examined.max(1) as f64);
            value.insert("effective_vs_judged".to_owned(), effective.into());
        }
    }
    value
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Disks judged per second, recording included, and disks per second of the bare loop.
fn compare(kernel: Option<&Kernel>, suffix: &str) -> (f64, f64) {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (mut judged, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let run = |mode: &str| start(kernel, &format!("{mode}{suffix}"));
        let (_, idle) = run("nothing");
        let (count, took) = run("judge");
        judged.push(count / (took - idle).max(1e-3));
        let (_, recording) = run("record");
        let (count, took) = run("bare");
        bare.push(count / (took - recording).max(1e-3));
    }
    (median(judged), median(bare))
}

/// Does one thing in a process of its own, or in a guest; how many disks there were, and seconds.
fn start(kernel: Option<&Kernel>, mode: &str) -> (f64, f64) {
    let args = [INSIDE, "ext4", mode];
    let began = Instant::now();
    let text = match kernel {
        None => {
            let program = std::env::current_exe().expect("this program");
            let output = Command::new(program).args(args).output().expect("it starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Some(kernel) => {
            let dir = tempfile::tempdir().expect("a directory");
            let args = args.map(OsString::from).to_vec();
            let mut job = Job::new(args, dir.path().to_owned());
            job.deadline = Duration::from_secs(300);
            let end = run_job(kernel, 1, &job).expect("a guest");
            assert!(end.is_done(), "{}{}{}", end.console, end.stdout, end.stderr);
            end.stdout
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    (text.trim().parse().unwrap_or_else(|_| panic!("{text}")), seconds)
}

fn subject(fs: &str) -> KernelDisks {
    let profile = CrashProfile::of(fs);
    let recipe = profile.adapt(Recipe::named(fs).expect("a recipe"));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    KernelDisks::new(fs, recipe, profile, threads).expect("root, and the file system")
}

/// What the started program does: prints how many disks there were.
fn inside(fs: &str, mode: &str) {
    let disks = subject(fs);
    let full = mode.ends_with("-full");
    let space = Space::new(1, false, false).expect("ACE has it");
    let count = if full { WORKLOADS_FULL } else { WORKLOADS };
    // Every so many, so that there are different operations among them.
    let workloads = ace::unique(&space, ace::Part::WHOLE).step_by(37).take(count);
    let mut workloads = workloads.map(|workload| workload.ops());
    let count = match mode.trim_end_matches("-full") {
        "nothing" => 0,
        "judge" => {
            let config = CrashConfig { probe: full, fsck: full, recheck: full, ..config() };
            let (mut silent, plan) = (Silent, plan(config));
            let done = crash_sequences(&disks, &plan, "bench", &mut workloads, &mut silent);
            // What read sets answered is not counted as judged.
            done.expect("a report").memo.examined
        }
        mode => {
            let images = images(&disks, workloads);
            if mode == "bare" {
                for batch in images.chunks(disks_at_once()) {
                    disks.walk_bare(batch, full).expect("they mount");
                }
            }
            images.len() as u64
        }
    };
    println!("{count}");
}

/// As many as the check examines at once.
fn disks_at_once() -> usize {
    32
}

fn config() -> CrashConfig {
    let mut config = CrashConfig { prefixes: false, ..CrashConfig::default() };
    config.bounds.subsets_max = 256;
    config
}

fn plan(config: CrashConfig) -> CrashPlan {
    CrashPlan {
        config,
        strategy: Strategy::Bfs,
        threads: 0,
        time_max: None,
        states_max: None,
        memory_max_bytes: None,
        stop_at_first: false,
        checkpoint: None,
        checkpoint_every: Duration::from_secs(60),
        shrink_budget: Duration::ZERO,
        labels: Default::default(),
        group: true,
        supervision: None,
        states: Default::default(),
        order: Default::default(),
    }
}

/// The different disks that power failures in workloads leave.
fn images(disks: &KernelDisks, workloads: impl Iterator<Item = Vec<Op>>) -> Vec<Image> {
    let (blank, config) = (disks.format().expect("a disk"), config());
    let (mut known, mut images) = (Distinct::default(), Vec::new());
    for ops in workloads {
        let workload = Workload { ops: &borrow_all(&ops), end: End::PowerOff, look: true };
        let recorded = disks.record(&blank, &workload).expect("a recording").expect("it mounts");
        let whole = Window::new(&blank, &recorded.log, disks.geometry().atomic_bytes);
        for pair in recorded.marks.windows(2) {
            for (from, to) in [(pair[0], pair[1]), (pair[1], pair[1])] {
                let window = whole.clone().between(from, to);
                for level in &disks.guarantee().survives.is {
                    let _ = level.enumerator(&config.bounds).visit(&window, &mut |_, image| {
                        if known.insert(image) {
                            images.push(image.clone());
                        }
                        ControlFlow::Continue(())
                    });
                }
            }
        }
    }
    images
}

#[derive(Clone, Copy)]
struct Ace2 {
    rate: f64,
    states: u64,
    examined: u64,
}

/// ace:2 in two guests at once: workloads per second of both, boot included.
fn ace2(kernel: &str, fs: &str, persistence: bool) -> Ace2 {
    let dir = tempfile::tempdir().expect("a directory");
    let began = Instant::now();
    let start = |part: usize| ace2_part(kernel, fs, persistence, part, dir.path());
    let guests: Vec<Child> = (1..=2).map(start).collect();
    let (mut workloads, mut states, mut examined) = (0, 0, 0);
    for guest in guests {
        let output = guest.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}"));
        workloads += value["workloads"]["workloads"].as_u64().unwrap_or(0);
        states += value["crash_states"].as_u64().unwrap_or(0);
        examined += value["crash_images_examined"].as_u64().unwrap_or(0);
    }
    Ace2 { rate: workloads as f64 / began.elapsed().as_secs_f64(), states, examined }
}

fn ace2_part(kernel: &str, fs: &str, persistence: bool, part: usize, dir: &Path) -> Child {
    let (points, workloads) =
        if persistence { ("persistence", ACE2_POINTS) } else { ("all", ACE2_ALL) };
    Command::new(env!("CARGO_BIN_EXE_fathom"))
        .args(["crash", fs, "--guest", kernel, "--workload", "ace:2", "--points", points])
        .args(["--part", &format!("{part}/2"), "--states", &workloads.to_string(), "--json"])
        .args(["--out", &format!("out{part}")])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts")
}
