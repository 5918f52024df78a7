//! `cargo xtask bench guest`: what a kernel of its own costs, and what it gives back, against the host in
//! the same run. Needs root for the host's side, and a kernel with time travel (FATHOM_GUEST_KERNEL).

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fathom_guest::{Boot, Guest, Kernel};
use serde_json::Value;

/// Boots that are measured; the median counts.
const BOOTS: usize = 7;
/// Pairs of runs, alternating.
const PAIRS: usize = 3;
/// Operations of one run.
const OPS: &str = "20000";
/// Operations of one run that remounts before each of them.
const OPS_REMOUNTED: &str = "1500";

fn main() {
    if let Some(code) = fathom_guest::take_over() {
        std::process::exit(code);
    }
    let Ok(name) = std::env::var("FATHOM_GUEST_KERNEL") else {
        println!("SKIP bench guest: set FATHOM_GUEST_KERNEL to a kernel with time travel");
        return;
    };
    let kernel = fathom_guest::resolve(&name).expect("FATHOM_GUEST_KERNEL is a kernel");
    let boot_s = median((0..BOOTS).map(|_| boot(&kernel)).collect());
    println!("boot until the command runs ({}): {boot_s:.2} s", kernel.release);
    let ops = pairs(&name, &["--ops", OPS], "ops");
    let remounted = ["--ops", OPS_REMOUNTED, "--remount", "every-op", "--strategy", "walk"];
    let remounts = pairs(&name, &remounted, "remounts");
    println!("{:<28} {:>10} {:>10}", "ext4", "host", "guest");
    println!("{:<28} {:>10.0} {:>10.0}", "checked operations per second", ops.0, ops.1);
    println!("{:<28} {:>10.0} {:>10.0}", "remounts per second", remounts.0, remounts.1);
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

/// Seconds from nothing to the first output of a command.
fn boot(kernel: &Kernel) -> f64 {
    let command = ["/bin/echo", "here"].map(OsString::from).to_vec();
    let boot = Boot::new(kernel, 1, command).expect("this program knows where it is");
    let began = Instant::now();
    let mut guest = Guest::start(&boot).expect("a guest");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    while out.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", guest.console());
        guest.pass_on(&mut out, &mut err).expect("its output");
        std::thread::sleep(Duration::from_millis(1));
    }
    began.elapsed().as_secs_f64()
}

/// The rate of a count on the host and in a guest: medians of alternating runs.
fn pairs(kernel: &str, args: &[&str], count: &str) -> (f64, f64) {
    let (mut host, mut guest) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        host.push(rate(args, count));
        guest.push(rate(&[args, &["--guest", kernel]].concat(), count));
    }
    (median(host), median(guest))
}

fn rate(args: &[&str], count: &str) -> f64 {
    let dir = tempfile::tempdir().expect("a directory");
    let value = check(args, dir.path());
    let rate = value[count].as_f64().unwrap_or(0.0) / value["seconds"].as_f64().unwrap_or(1.0);
    assert!(rate > 0.0, "{value}");
    rate
}

fn check(args: &[&str], dir: &Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_fathom"))
        .args(["check", "ext4", "--seed", "1", "--json"])
        .args(args)
        .current_dir(dir)
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}
