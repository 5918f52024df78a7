//! `cargo xtask bench crash-kernel`: crash states of kernel file systems judged per second, against the
//! bare loop of mounting, walking and unmounting the same kind of disks in the same run; natively (root)
//! and in a guest (FATHOM_GUEST_KERNEL). Every figure is of the host's clock: a guest's stands still while
//! it computes.

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
use serde_json::{Value, json};

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

fn main() {
    if let Some(code) = fathom_guest::take_over() {
        std::process::exit(code);
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, fs, mode] = args.as_slice()
        && word == INSIDE
    {
        return inside(fs, mode);
    }
    let name = std::env::var("FATHOM_GUEST_KERNEL").ok();
    let kernel = name.as_deref().map(|name| fathom_guest::resolve(name).expect("a kernel"));
    println!("{:<8} {:<7} {:>10} {:>10} {:>7}", "ext4", "", "judged/s", "bare/s", "ratio");
    let native = compare(None, "");
    tell("native", "", native);
    tell("native", "full", compare(None, "-full"));
    let Some(kernel) = kernel else {
        println!("SKIP the guest: set FATHOM_GUEST_KERNEL to a kernel with time travel");
        println!("{}", json!({"judged_vs_bare": rounded(native.0 / native.1)}));
        return;
    };
    let guest = compare(Some(&kernel), "");
    tell("guest", "", guest);
    tell("guest", "full", compare(Some(&kernel), "-full"));
    let name = name.expect("the kernel has a name");
    let ext4 = ace2(&name, "ext4", true);
    let btrfs = ace2(&name, "btrfs", true);
    let all = ace2(&name, "ext4", false);
    println!("ace:2 on two guests, full oracle     workloads/s  states  examined");
    for (what, run) in
        [("ext4, persistence", ext4), ("btrfs, persistence", btrfs), ("ext4, all levels", all)]
    {
        println!("{what:<36} {:>11.1} {:>7} {:>9}", run.rate, run.states, run.examined);
    }
    let value = json!({
        "judged_vs_bare": rounded((guest.0 / guest.1).min(native.0 / native.1)),
        "judged_vs_bare_native": rounded(native.0 / native.1),
        "judged_vs_bare_guest": rounded(guest.0 / guest.1),
        "effective_vs_judged": rounded(all.states as f64 / all.examined.max(1) as f64),
        "ace2_workloads_per_s_ext4": rounded(ext4.rate),
        "ace2_workloads_per_s_ext4_all_levels": rounded(all.rate),
        "ace2_workloads_per_s_btrfs": rounded(btrfs.rate),
        "guest_vs_native": rounded(guest.0 / native.0),
    });
    println!("{value}");
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn tell(place: &str, what: &str, (judged, bare): (f64, f64)) {
    println!("{place:<8} {what:<7} {judged:>10.0} {bare:>10.0} {:>7.2}", judged / bare);
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
