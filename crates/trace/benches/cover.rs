//! What tracing costs: CPU time of the traced program, untraced, traced by us, by strace and by
//! bpftrace, in one run; and how fast the importer reads. The last line is JSON.
//!
//! Everything runs as users run it: on any processor, with ordinary priority. The traced time of a run is
//! divided by the untraced time of the run beside it, so that slow changes of the machine fall out; which of
//! the two is first alternates, so that neither always finds what the other left behind (ext4 writes back
//! for seconds); the figure is the median of these ratios. A first run that fills the caches is
//! discarded. The CPU time is that of the traced program, user and system, with its descendants: not what
//! the kernel does for it in its own threads (journal, loop device), and not the tracer itself.
//!
//! Beside it stand pairs that are pinned to one processor and run before everything else there: another
//! question, and no steadier on ext4. strace costs a pinned program much less (2.7 times on ext4 instead of
//! 9, probably because no other processor has to be woken at each stop), but nobody runs it so.
//!
//! All mounts are made in a private namespace, which ends with the program; tracefs, which bpftrace
//! needs, among them.
//!
//! The program calls itself for the workloads, so that all tracers start the same commands.

#![allow(unsafe_code, reason = "system calls of the workloads")]

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fathom_core::partition::Granularity;
use fathom_trace::run::{self, Plan, Tracer, Who};
use fathom_trace::{Target, import};

/// Nine calls per round, as a test tool mixes them.
const CALLS_PER_ROUND: u64 = 9;
/// Rounds that take about a second of CPU time untraced.
const TMPFS_ROUNDS: &str = "120000";
const EXT4_ROUNDS: &str = "20000";
const SHELL_ROUNDS: &str = "50";
/// Pairs of untraced and traced runs.
const PAIRS: usize = 6;
/// Fewer for those that only stand beside them: pinned, and by the other tracers. Under strace a call takes
/// up to sixty times as long, so that a part of the rounds is enough.
const OTHER_PAIRS: usize = 3;
const TMPFS_SHORT: &str = "8000";
const EXT4_SHORT: &str = "6000";
const SHELL_SHORT: &str = "15";

const SHELL: &str = r#"
cd "$1" || exit 1
i=0
while [ $i -lt "$2" ]; do
  mkdir sub$i; echo hello > sub$i/a; cp sub$i/a sub$i/b; mv sub$i/b sub$i/c
  ln -s c sub$i/l; ln sub$i/a sub$i/h; cat sub$i/l > /dev/null; stat sub$i/a > /dev/null
  chmod 600 sub$i/a; dd if=/dev/zero of=sub$i/z bs=4k count=16 2>/dev/null
  truncate -s 100 sub$i/z; ls -lR sub$i > /dev/null; cmp sub$i/a sub$i/c
  touch -d 2000-01-01 sub$i/a; rm -rf sub$i; cat sub$i/none 2>/dev/null
  i=$((i+1))
done
exit 0
"#;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("--loop") => system_calls(Path::new(&args[2]), args[3].parse().expect("a number")),
        Some("--import") => println!("{:.0} MB per CPU-second", import_speed(Path::new(&args[2]))),
        Some("--measure") => measure(&args[2], &args[3..], false),
        Some("--measure-pinned") => measure(&args[2], &args[3..], true),
        _ => bench(),
    }
}

/// The loop: open, write, pwrite, lseek, read, fstat, close, stat, access.
fn system_calls(dir: &Path, rounds: u64) {
    let path = dir.join("loop");
    let path = std::ffi::CString::new(path.to_string_lossy().as_bytes()).expect("no NUL");
    let mut buffer = [b'x'; 4096];
    // SAFETY: the path ends with NUL, buffers are as long as said.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        for _ in 0..rounds {
            let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC, 0o644);
            assert!(fd >= 0, "cannot open");
            libc::write(fd, buffer.as_ptr().cast(), 512);
            libc::pwrite(fd, buffer.as_ptr().cast(), 100, 1000);
            libc::lseek(fd, 0, libc::SEEK_SET);
            libc::read(fd, buffer.as_mut_ptr().cast(), 512);
            libc::fstat(fd, &raw mut stat);
            libc::close(fd);
            libc::stat(path.as_ptr(), &raw mut stat);
            libc::access(path.as_ptr(), libc::R_OK);
        }
    }
}

/// Runs a command and writes its CPU seconds, descendants included, to a file.
fn measure(out: &str, command: &[String], pinned: bool) {
    if pinned {
        pin();
    }
    let status = Command::new(&command[0]).args(&command[1..]).status().expect("it starts");
    assert!(status.success(), "{command:?} ended with {status}");
    std::fs::write(out, cpu_seconds(libc::RUSAGE_CHILDREN).to_string()).expect("it can be written");
}

/// On one processor and before everything else there; whatever traces us runs as usual.
fn pin() {
    // SAFETY: plain structures for which all zeroes are valid; the set has room for processor 0.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut one);
        let first = libc::sched_param { sched_priority: 10 };
        let pinned = libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one);
        let before = libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first);
        assert!(pinned == 0 && before == 0, "cannot run undisturbed: needs root");
    }
}

fn cpu_seconds(who: i32) -> f64 {
    // SAFETY: a plain structure for which all zeroes are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

struct Workload {
    name: &'static str,
    dir: PathBuf,
    command: Vec<String>,
    /// What the slow tracers run.
    short: Vec<String>,
}

/// Untraced seconds, and medians of traced over untraced.
struct Slowdowns {
    untraced: f64,
    ours: f64,
    strace: f64,
    bpftrace: f64,
    pinned: f64,
}

struct Bench {
    scratch: tempfile::TempDir,
    lost: u64,
}

const STRACE: [&str; 4] = ["strace", "-f", "-o", "/dev/null"];
const BPFTRACE: [&str; 4] =
    ["bpftrace", "-e", "tracepoint:raw_syscalls:sys_enter { @[args->id] = count(); }", "-c"];

/// Values of two measurements, of which the second is made first every other time.
fn in_turns<T>(
    turn: usize,
    bench: &mut Bench,
    first: impl FnOnce(&mut Bench) -> T,
    second: impl FnOnce(&mut Bench) -> T,
) -> (T, T) {
    if turn.is_multiple_of(2) {
        let first = first(bench);
        (first, second(bench))
    } else {
        let second = second(bench);
        (first(bench), second)
    }
}

impl Bench {
    /// The command, wrapped so that its CPU time is written to a file.
    fn wrapped(&self, command: &[String], pinned: bool) -> (Vec<String>, PathBuf) {
        let out = self.scratch.path().join("seconds");
        let how = if pinned { "--measure-pinned" } else { "--measure" };
        let mut words = vec![this(), how.to_owned(), out.display().to_string()];
        words.extend(command.iter().cloned());
        (words, out)
    }

    fn untraced(&self, command: &[String], pinned: bool) -> f64 {
        self.under(&[], command, pinned).expect("the workload itself works")
    }

    /// CPU seconds of the workload under a tracer; `None` if that does not work here.
    fn under(&self, tracer: &[&str], command: &[String], pinned: bool) -> Option<f64> {
        let (words, out) = self.wrapped(command, pinned);
        let mut all: Vec<String> = tracer.iter().map(|word| (*word).to_owned()).collect();
        if tracer.first() == Some(&"bpftrace") {
            all.push(words.join(" "));
        } else {
            all.extend(words);
        }
        let status = Command::new(&all[0])
            .args(&all[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .ok()?;
        status.success().then(|| read_seconds(&out))
    }

    fn under_fathom(&mut self, workload: &Workload, pinned: bool) -> f64 {
        let (words, out) = self.wrapped(&workload.command, pinned);
        let plan = Plan {
            who: Who::Command(words.into_iter().map(OsString::from).collect()),
            targets: vec![Target::new(&workload.dir).expect("it is mounted")],
            tracer: Tracer::Bpf,
            record: None,
            budget: None,
            distrust: false,
        };
        let traced = run::run(&plan).expect("the tracer works here");
        self.lost += traced.lost;
        read_seconds(&out)
    }

    /// The median slowdown by us, and the median of the untraced seconds.
    fn ours(&mut self, workload: &Workload, pairs: usize, pinned: bool) -> (f64, f64) {
        let (mut ratios, mut base) = (Vec::new(), Vec::new());
        for pair in 0..pairs {
            let (untraced, traced) = in_turns(
                pair,
                self,
                |bench| bench.untraced(&workload.command, pinned),
                |bench| bench.under_fathom(workload, pinned),
            );
            base.push(untraced);
            ratios.push(traced / untraced);
        }
        (median(ratios), median(base))
    }

    /// The median slowdown by another tracer.
    fn by(&mut self, tracer: &[&str], command: &[String]) -> f64 {
        let mut ratios = Vec::new();
        for pair in 0..OTHER_PAIRS {
            let (untraced, traced) = in_turns(
                pair,
                self,
                |bench| Some(bench.untraced(command, false)),
                |bench| bench.under(tracer, command, false),
            );
            ratios.extend(traced.zip(untraced).map(|(traced, untraced)| traced / untraced));
        }
        median(ratios)
    }

    fn slowdowns(&mut self, workload: &Workload) -> Slowdowns {
        self.untraced(&workload.command, false);
        let (ours, untraced) = self.ours(workload, PAIRS, false);
        let (pinned, _) = self.ours(workload, OTHER_PAIRS, true);
        let strace = self.by(&STRACE, &workload.short);
        let bpftrace = self.by(&BPFTRACE, &workload.short);
        Slowdowns { untraced, ours, strace, bpftrace, pinned }
    }
}

fn this() -> String {
    std::env::current_exe().expect("we are running").display().to_string()
}

fn read_seconds(path: &Path) -> f64 {
    let text = std::fs::read_to_string(path).expect("the workload has ended");
    std::fs::remove_file(path).expect("it is ours");
    text.parse().expect("a number")
}

/// The middle of the values, or of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n => f64::midpoint(values[(n - 1) / 2], values[n / 2]),
    }
}

/// JSON has no number for what was not measured.
fn number(value: f64) -> String {
    if value.is_nan() { "null".to_owned() } else { format!("{value:.3}") }
}

fn tool(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// A mount that goes with the bench.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        tool("umount", &[&self.0.to_string_lossy()]);
    }
}

fn mounted(scratch: &Path, kind: &str) -> Option<Mounted> {
    let point = scratch.join(kind);
    std::fs::create_dir(&point).ok()?;
    let text = point.display().to_string();
    if kind == "tmpfs" {
        return tool("mount", &["-t", "tmpfs", "none", &text]).then_some(Mounted(point));
    }
    let image = scratch.join("image");
    std::fs::File::create(&image).ok()?.set_len(256 << 20).ok()?;
    let image = image.display().to_string();
    let made = tool("mkfs.ext4", &["-q", &image]) && tool("mount", &["-o", "loop", &image, &text]);
    made.then_some(Mounted(point))
}

/// A mount namespace of our own, with tracefs where it is looked for.
fn private_mounts() -> std::io::Result<()> {
    // SAFETY: an integer; the program has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let tracefs = Path::new("/sys/kernel/tracing");
    let private = tool("mount", &["--make-rprivate", "/"]);
    let has_tracefs = || tracefs.join("events/raw_syscalls").exists();
    if private && !has_tracefs() {
        tool("mount", &["-t", "tracefs", "none", "/sys/kernel/tracing"]);
    }
    if !has_tracefs() {
        println!("no tracefs here: the column of bpftrace stays empty");
    }
    Ok(())
}

fn bench() {
    if let Err(error) = private_mounts() {
        return println!("{{\"skipped\": \"needs root: {error}\"}}");
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let (Some(tmpfs), Some(ext4)) =
        (mounted(scratch.path(), "tmpfs"), mounted(scratch.path(), "ext4"))
    else {
        return println!("{{\"skipped\": \"needs root, tmpfs and ext4\"}}");
    };
    let looped = |dir: &Path, rounds: &str| {
        vec![this(), "--loop".to_owned(), dir.display().to_string(), rounds.to_owned()]
    };
    // A file, because bpftrace splits its command at spaces.
    let script = scratch.path().join("suite.sh");
    std::fs::write(&script, SHELL).expect("it is ours");
    let (script, dir) = (script.to_string_lossy(), ext4.0.to_string_lossy());
    let shell = |rounds: &str| ["sh", &script, &dir, rounds].map(str::to_owned).to_vec();
    let workloads = [
        Workload {
            name: "loop, tmpfs",
            dir: tmpfs.0.clone(),
            command: looped(&tmpfs.0, TMPFS_ROUNDS),
            short: looped(&tmpfs.0, TMPFS_SHORT),
        },
        Workload {
            name: "loop, ext4",
            dir: ext4.0.clone(),
            command: looped(&ext4.0, EXT4_ROUNDS),
            short: looped(&ext4.0, EXT4_SHORT),
        },
        Workload {
            name: "shell, ext4",
            dir: ext4.0.clone(),
            command: shell(SHELL_ROUNDS),
            short: shell(SHELL_SHORT),
        },
    ];
    let mut bench = Bench { scratch: tempfile::tempdir().expect("a directory"), lost: 0 };
    println!("CPU time of the traced program, traced over untraced (median of {PAIRS} pairs)");
    println!(
        "{:12} {:>9} {:>8} {:>8} {:>9} {:>15}",
        "workload", "untraced", "fathom", "strace", "bpftrace", "fathom, pinned"
    );
    let mut found = Vec::new();
    for workload in &workloads {
        let one = bench.slowdowns(workload);
        println!(
            "{:12} {:>7.2} s {:>8.2} {:>8.2} {:>9.2} {:>15.2}",
            workload.name, one.untraced, one.ours, one.strace, one.bpftrace, one.pinned
        );
        found.push(one);
    }
    let speed = import_speed(scratch.path());
    println!("import of LTTng text: {speed:.0} MB per CPU-second");
    println!("calls per round of the loop: {CALLS_PER_ROUND}; lost: {}", bench.lost);
    println!("{}", json(&found, speed, bench.lost));
}

/// The figures in one line.
fn json(found: &[Slowdowns], speed: f64, lost: u64) -> String {
    let mut fields = Vec::new();
    for (name, one) in ["tmpfs", "ext4", "shell"].iter().zip(found) {
        let less = (one.strace - 1.0) / (one.ours - 1.0);
        fields.extend([
            format!("\"{name}_slowdown\": {}", number(one.ours)),
            format!("\"pinned_{name}_slowdown\": {}", number(one.pinned)),
            format!("\"strace_{name}_slowdown\": {}", number(one.strace)),
            format!("\"bpftrace_{name}_slowdown\": {}", number(one.bpftrace)),
            format!("\"less_overhead_than_strace_{name}\": {}", number(less)),
        ]);
    }
    fields.push(format!("\"import_mb_per_cpu_second\": {speed:.0}, \"lost\": {lost}"));
    format!("{{{}}}", fields.join(", "))
}

/// Reads a log as LTTng writes them: four threads, opens, writes, reads and closes.
fn import_speed(dir: &Path) -> f64 {
    let path = dir.join("lttng.txt");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("it is ours"));
    let mut bytes = 0u64;
    let mut n = 0u64;
    while bytes < 256 << 20 {
        let (tid, size) = (100 + n % 4, 1 << (n % 20));
        let head = format!("[16:02:{:02}.{:09}] (+0.000001234) host", n / 1000 % 60, n);
        let context = format!("{{ cpu_id = {} }}, {{ vtid = {tid}, vpid = {tid} }}", n % 2);
        let name = format!("/mnt/test/dir{}/file{}", n % 7, n % 101);
        let calls = [
            ("openat", format!("dfd = -100, filename = \"{name}\", flags = 0x8242, mode = 420"), 3),
            ("write", format!("fd = 3, buf = 0x7ffd1234, count = {size}"), size),
            ("pread64", format!("fd = 3, count = {size}, pos = {}", size * 3), size),
            ("close", "fd = 3".to_owned(), 0),
        ];
        for (call, args, result) in calls {
            let text = format!(
                "{head} syscall_entry_{call}: {context}, {{ {args} }}\n\
                 {head} syscall_exit_{call}: {context}, {{ ret = {result} }}\n"
            );
            bytes += text.len() as u64;
            file.write_all(text.as_bytes()).expect("there is room");
        }
        n += 1;
    }
    file.flush().expect("there is room");
    let mounts = [PathBuf::from("/mnt/test")];
    let start = cpu_seconds(libc::RUSAGE_SELF);
    let found = import::read(&[path], Some(import::Format::Lttng), &mounts, Granularity::Powers);
    let seconds = cpu_seconds(libc::RUSAGE_SELF) - start;
    assert_eq!(found.expect("the log is right").traced.samples.calls(), 4 * n);
    bytes as f64 / 1e6 / seconds
}
