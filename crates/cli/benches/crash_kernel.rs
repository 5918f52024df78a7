//! `cargo xtask bench crash-kernel`: crash states of kernel file systems judged per second, against the
//! bare loop of mounting, walking and unmounting the same kind of disks in the same run; natively (root)
//! and in a guest (FATHOM_GUEST_KERNEL). Every figure is of the host's clock: a guest's stands still while
//! it computes. Parts of it can be asked for by name: `cargo xtask bench crash-kernel --part guest`.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fathom_block::disks::{
    End, Examine, Facts, Questions, Recording, SubjectFailure, Workload, borrow_all,
};
use fathom_block::{DiskFileSystem, Distinct, Geometry, Guarantee, Image, Record, Window};
use fathom_core::{HarnessFault, Op};
use fathom_engine::crash::sequences::crash_sequences;
use fathom_engine::crash::{CrashConfig, CrashPlan, CrashReport};
use fathom_engine::search::Strategy;
use fathom_generate::ace::{self, Space};
use fathom_guest::{Job, Kernel, run_job};
use fathom_record::Silent;
use fathom_subjects::Recipe;
use fathom_subjects::kernel::KernelDisks;
use fathom_subjects::kernel::disks::CrashProfile;
use mimalloc::MiMalloc;
use serde_json::{Map, Value};

/// As in the program, for both sides: in a guest every page that an allocator gives back and takes again costs
/// two changes of processes.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The word with which this program is started to do one thing.
const INSIDE: &str = "inside";
/// Workloads of the loops that are compared.
const WORKLOADS: usize = 8;
/// The same with the full oracle, which takes longer.
const WORKLOADS_FULL: usize = 1;
/// Workloads of ace:2 for each of two guests, at persistence points and everywhere.
const ACE2_POINTS: u64 = 250;
const ACE2_ALL: u64 = 40;
/// Runs of which the median counts.
const RUNS: usize = 3;

/// What can be measured by itself, each in less than two minutes on a machine with nothing else to do.
const PARTS: [&str; 8] = [
    "native",
    "native-full",
    "guest",
    "guest-full",
    "ace2-ext4",
    "ace2-btrfs",
    "ace2-all",
    "ace2-all-btrfs",
];

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

/// Disks per second.
#[derive(Clone, Copy)]
struct Rates {
    /// Judged, each of them mounted; with the full oracle, what is known of earlier disks is not done again.
    judged: f64,
    bare: f64,
    /// Judged with read sets, disks that these answer counted in.
    with_read_sets: Option<f64>,
}

/// The loops, as far as they were measured.
#[derive(Default)]
struct Loops {
    native: Option<Rates>,
    native_full: Option<Rates>,
    guest: Option<Rates>,
    guest_full: Option<Rates>,
}

impl Loops {
    fn measure(kernel: Option<&Kernel>, is_wanted: impl Fn(&str) -> bool) -> Loops {
        let mut loops = Loops::default();
        println!("ext4           judged/s     bare/s   ratio  with read sets/s");
        for part in &PARTS[..4] {
            let kernel = if part.starts_with("guest") { kernel } else { None };
            if !is_wanted(part) || (part.starts_with("guest") && kernel.is_none()) {
                continue;
            }
            let rates = compare(kernel, if part.ends_with("-full") { "-full" } else { "" });
            let Rates { judged, bare, with_read_sets } = rates;
            let told = with_read_sets.map_or_else(String::new, |rate| format!("{rate:.0}"));
            println!("{part:<12} {judged:>10.0} {bare:>10.0} {:>7.2} {told:>17}", judged / bare);
            let place = match *part {
                "native" => &mut loops.native,
                "native-full" => &mut loops.native_full,
                "guest" => &mut loops.guest,
                _ => &mut loops.guest_full,
            };
            *place = Some(rates);
        }
        loops
    }

    fn json(&self) -> Map<String, Value> {
        let ratio = |rates: Rates| rounded(rates.judged / rates.bare);
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
            let faster = rounded(guest.judged / native.judged);
            value.insert("guest_vs_native".to_owned(), faster.into());
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
        ("ace2-all-btrfs", "btrfs", false, "ace2_workloads_per_s_btrfs_all_levels"),
    ];
    println!(
        "ace:2 on two guests, full oracle     workloads/s  states  distinct  examined  of them wholly"
    );
    for (part, fs, persistence, field) in rows {
        if !is_wanted(part) {
            continue;
        }
        let run = ace2(name, fs, persistence);
        let points = if persistence { "persistence" } else { "all levels" };
        let what = format!("{fs}, {points}");
        println!(
            "{what:<36} {:>11.1} {:>7} {:>9} {:>9} {:>15}",
            run.rate, run.states, run.distinct, run.examined, run.wholly
        );
        value.insert(field.to_owned(), rounded(run.rate).into());
        if !persistence {
            // Every disk that was mounted counts as judged, also if the rest of its examination was known.
            let suffix = if fs == "ext4" { "" } else { "_btrfs" };
            let effective = |judged: u64| rounded(run.states as f64 / judged.max(1) as f64);
            value.insert(format!("effective_vs_judged{suffix}"), effective(run.examined).into());
            let wholly = format!("effective_vs_judged_wholly{suffix}");
            value.insert(wholly, effective(run.wholly).into());
        }
    }
    value
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Disks judged per second, recording included, and disks per second of the bare loop.
fn compare(kernel: Option<&Kernel>, suffix: &str) -> Rates {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (mut judged, mut bare, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let run = |mode: &str| start(kernel, &format!("{mode}{suffix}"));
        let per_second = |mode: &str, apart: f64| {
            let (count, took) = run(mode);
            count / (took - apart).max(1e-3)
        };
        let (_, idle) = run("nothing");
        judged.push(per_second("judge", idle));
        if suffix.is_empty() {
            told.push(per_second("read-sets", idle));
        }
        let (_, recording) = run("record");
        bare.push(per_second("bare", recording));
    }
    let with_read_sets = (!told.is_empty()).then(|| median(told));
    Rates { judged: median(judged), bare: median(bare), with_read_sets }
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
        "judge" if full => judge(&disks, true, &mut workloads).memo.examined,
        // The same disks as in the bare loop, each of them mounted.
        "judge" => judge(&EachIsMounted(&disks), false, &mut workloads).memo.examined,
        "read-sets" => judge(&disks, false, &mut workloads).crash_images,
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

fn judge(
    disks: &dyn DiskFileSystem,
    full: bool,
    workloads: &mut dyn Iterator<Item = Vec<Op>>,
) -> CrashReport {
    let plan = plan(CrashConfig { probe: full, fsck: full, recheck: full, ..config() });
    crash_sequences(disks, &plan, "bench", workloads, &mut Silent).expect("a report")
}

/// Does not tell what was read: no disk is answered by another one.
struct EachIsMounted<'a>(&'a KernelDisks);

impl Record for EachIsMounted<'_> {
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        self.0.record(base, workload)
    }
}

impl Examine for EachIsMounted<'_> {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        self.0.examine(disks, questions)
    }

    fn batch_disks(&self) -> usize {
        self.0.batch_disks()
    }
}

impl DiskFileSystem for EachIsMounted<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn version(&self) -> &str {
        self.0.version()
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.0.guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.0.format()
    }

    fn is_deterministic(&self) -> bool {
        self.0.is_deterministic()
    }
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

#[derive(Clone, Copy, Debug, Default)]
struct Ace2 {
    rate: f64,
    states: u64,
    distinct: u64,
    examined: u64,
    /// Of the examined ones: those with checker, second mount and use, since these were not known.
    wholly: u64,
}

/// ace:2 in two guests at once: workloads per second of both, boot included.
fn ace2(kernel: &str, fs: &str, persistence: bool) -> Ace2 {
    let dir = tempfile::tempdir().expect("a directory");
    let began = Instant::now();
    let start = |part: usize| ace2_part(kernel, fs, persistence, part, dir.path());
    let guests: Vec<Child> = (1..=2).map(start).collect();
    let (mut workloads, mut run) = (0, Ace2::default());
    for guest in guests {
        let output = guest.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}"));
        workloads += value["workloads"]["workloads"].as_u64().unwrap_or(0);
        let count = |name: &str| value[name].as_u64().unwrap_or(0);
        run.states += count("crash_states");
        run.distinct += count("crash_images");
        run.examined += count("crash_images_examined");
        let known = count("rests_known").saturating_sub(count("rests_judged_again"));
        run.wholly += count("crash_images_examined").saturating_sub(known);
    }
    Ace2 { rate: workloads as f64 / began.elapsed().as_secs_f64(), ..run }
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
