//! `cargo xtask bench guest`: what a kernel of its own costs, and what it gives back, against the host in
//! the same run. Needs root for the host's side, and a kernel with time travel (FATHOM_GUEST_KERNEL).
//!
//! The clock of a guest stands still while it computes, so everything is timed by the host: a program that
//! goes back says when it begins and when it has done, here as there.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fathom_core::{Mode, Op, RestoreMethod, Subject, Testbed};
use fathom_guest::{Boot, Guest, Kernel};
use fathom_subjects::sys::View;
use fathom_subjects::{KernelSubject, Recipe};
use mimalloc::MiMalloc;
use serde_json::Value;

/// As in the program: saving and restoring is allocating, too.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Boots that are measured; the median counts.
const BOOTS: usize = 7;
/// Pairs of runs, alternating.
const PAIRS: usize = 5;
/// Operations of one run.
const OPS: &str = "20000";
/// How often one run saves and restores.
const CYCLES: u32 = 400;

/// The argument that makes this program save and restore, and what it says.
const GO_BACK: &str = "go-back";
const BEGINS: &str = "begins";
const DONE: &str = "done";

/// What takes longer does not come to an end.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    if let Some(code) = fathom_guest::take_over() {
        std::process::exit(code);
    }
    if std::env::args().nth(1).as_deref() == Some(GO_BACK) {
        return go_back();
    }
    let Ok(name) = std::env::var("FATHOM_GUEST_KERNEL") else {
        println!("SKIP bench guest: set FATHOM_GUEST_KERNEL to a kernel with time travel");
        return;
    };
    let kernel = fathom_guest::resolve(&name).expect("FATHOM_GUEST_KERNEL is a kernel");
    let command_s = median((0..BOOTS).map(|_| boot(&kernel)).collect());
    let boot_s = median((0..BOOTS).map(|_| first_operation(&name)).collect());
    println!("boot until a command runs ({}): {command_s:.2} s", kernel.release);
    println!("`fathom check tmpfs --ops 1` in a guest, boot and halt included: {boot_s:.2} s");
    let ops = pairs(|| rate(&[]), || rate(&["--guest", &name]));
    let remounts = pairs(cycles_here, || cycles_in(&kernel));
    println!("{:<34} {:>10} {:>10}", "ext4", "host", "guest");
    println!("{:<34} {:>10.0} {:>10.0}", "checked operations per second", ops.0, ops.1);
    println!("{:<34} {:>10.0} {:>10.0}", "saved and restored per second", remounts.0, remounts.1);
    let value = serde_json::json!({
        "boot_s": (boot_s * 1000.0).round() / 1000.0,
        "ops_vs_host": ratio(ops),
        "remounts_vs_host": ratio(remounts),
    });
    println!("{value}");
}

fn ratio((host, guest): (f64, f64)) -> f64 {
    (guest / host * 1000.0).round() / 1000.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Two rates: medians of alternating runs.
fn pairs(host: impl Fn() -> f64, guest: impl Fn() -> f64) -> (f64, f64) {
    let (here, there): (Vec<f64>, Vec<f64>) = (0..PAIRS).map(|_| (host(), guest())).unzip();
    (median(here), median(there))
}

/// Seconds from nothing to the first output of a command.
fn boot(kernel: &Kernel) -> f64 {
    let began = Instant::now();
    let mut guest = start(kernel, vec!["/bin/echo".into(), "here".into()]);
    said(&mut guest, "here");
    began.elapsed().as_secs_f64()
}

fn start(kernel: &Kernel, command: Vec<OsString>) -> Guest {
    let boot = Boot::new(kernel, 1, command).expect("this program knows where it is");
    Guest::start(&boot).expect("a guest")
}

/// Waits until the command of a guest has said something.
fn said(guest: &mut Guest, words: &str) {
    let (began, mut out, mut err) = (Instant::now(), Vec::new(), Vec::new());
    while !String::from_utf8_lossy(&out).contains(words) {
        assert!(began.elapsed() < PATIENCE, "{}", guest.console());
        guest.pass_on(&mut out, &mut err).expect("its output");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Seconds of a command with one operation, from its start to its end: an upper bound of what passes until
/// the operation begins.
fn first_operation(kernel: &str) -> f64 {
    let began = Instant::now();
    check("tmpfs", &["--ops", "1", "--guest", kernel]);
    began.elapsed().as_secs_f64()
}

/// Checked operations per second.
fn rate(args: &[&str]) -> f64 {
    let value = check("ext4", &[&["--ops", OPS], args].concat());
    let rate = value["ops"].as_f64().unwrap_or(0.0) / value["seconds"].as_f64().unwrap_or(1.0);
    assert!(rate > 0.0, "{value}");
    rate
}

fn check(subject: &str, args: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_fathom"))
        .args(["check", subject, "--seed", "1", "--json"])
        .args(args)
        .current_dir(dir.path())
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Saves a small ext4 by unmounting it, changes it, and restores it, again and again.
fn go_back() {
    let recipe = Recipe::named("ext4").expect("a recipe");
    let mut subject = KernelSubject::new(recipe, View::default()).expect("ext4");
    let apply = |subject: &mut KernelSubject, name: String| {
        let op = Op::Mkdir { path: name.as_str().into(), mode: Mode(0o755) };
        let outcome = subject.apply(&op).expect("the harness works");
        assert!(outcome.result.is_ok(), "{op:?}: {outcome}");
    };
    (0..10).for_each(|number| apply(&mut subject, format!("d{number}")));
    println!("{BEGINS}");
    for round in 0..CYCLES {
        let saved = subject.save(RestoreMethod::Remount).expect("saved");
        apply(&mut subject, format!("new{round}"));
        subject.restore(saved).expect("restored");
        subject.forget(saved);
    }
    println!("{DONE}");
}

/// This program, as it can be started again.
fn this_program() -> std::path::PathBuf {
    std::env::current_exe().expect("this program knows where it is")
}

/// States saved and restored per second on the host.
fn cycles_here() -> f64 {
    let mut child = Command::new(this_program())
        .arg(GO_BACK)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut wait = |words: &str| {
        let found = lines.any(|line| line.is_ok_and(|line| line == words));
        assert!(found, "it did not say {words:?}");
        Instant::now()
    };
    let (began, done) = (wait(BEGINS), wait(DONE));
    assert!(child.wait().expect("our child").success());
    f64::from(CYCLES) / (done - began).as_secs_f64()
}

/// The same in a guest.
fn cycles_in(kernel: &Kernel) -> f64 {
    let mut guest = start(kernel, vec![this_program().into(), GO_BACK.into()]);
    said(&mut guest, BEGINS);
    let began = Instant::now();
    said(&mut guest, DONE);
    f64::from(CYCLES) / began.elapsed().as_secs_f64()
}
