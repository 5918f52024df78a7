//! `cargo xtask campaign determinism`: is a guest a function of its seed, also while the host is busy?
//!
//! Every file system is checked in fresh guests with one seed, and once with another. A race that hardly
//! ever shows is looked for natively and in guests, and the execution that shows it is repeated.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::guest_campaign::Fathom;
use crate::ledger;

/// Without FATHOM_GUEST_KERNEL.
const DEFAULT_KERNEL: &str = "6.12";

/// What is checked.
const FILE_SYSTEMS: [&str; 6] = ["ext4", "xfs", "btrfs", "f2fs", "jfs", "nilfs2"];

/// Operations of one run.
const OPS: &str = "1000";

/// Runs with one seed, half of them while the host is busy.
const BOOTS: usize = 20;

/// Threads that keep the host busy.
const BUSY_THREADS: usize = 2;

/// The subject with a race, and the operations of one run of it.
const RACE: &str = "test:loses-a-race-on-rename";
const RACE_OPS: &str = "60";

/// Native runs of the race, and repetitions of the execution that shows it.
const RACE_RUNS: usize = 50;

/// Seeds of guests that are tried until one shows the race.
const RACE_SEEDS_MAX: u64 = 1000;

/// Keeps the host busy until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start() -> Busy {
        let goes_on = Arc::new(AtomicBool::new(true));
        for _ in 0..BUSY_THREADS {
            let goes_on = Arc::clone(&goes_on);
            thread::spawn(move || {
                let mut number = 1u64;
                while goes_on.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        number = std::hint::black_box(number.wrapping_mul(6364136223846793005));
                    }
                }
            });
        }
        Busy(goes_on)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Prints both tables; an error names what was not the same.
pub(crate) fn determinism(fathom: Fathom<'_>, findings: &Path) -> Result<()> {
    let kernel = ledger::kernel(DEFAULT_KERNEL);
    let mut wrong = Vec::new();
    println!(
        "| file system | boots | equal to the first | clock at the end | execution | disk | disk of another seed |"
    );
    println!("|---|---:|---:|---:|---|---|---|");
    for name in FILE_SYSTEMS {
        let first = execution(name, &kernel, "1", fathom, findings)?;
        let mut equal = 1;
        for boot in 1..BOOTS {
            let _busy = (boot % 2 == 1).then(Busy::start);
            let again = execution(name, &kernel, "1", fathom, findings)?;
            match again == first {
                true => equal += 1,
                false => wrong.push(format!("{name}, boot {boot}: {again}, not {first}")),
            }
        }
        let other = execution(name, &kernel, "2", fathom, findings)?;
        if other["disk"] == first["disk"] {
            wrong.push(format!("{name}: another seed makes the same disk"));
        }
        println!(
            "| {name} | {BOOTS} | {equal} | {:.3} s | {} | {} | {} |",
            first["clock_ns"].as_u64().unwrap_or(0) as f64 / 1e9 - 1_735_689_600.0,
            hexadecimal(&first["digest"]),
            hexadecimal(&first["disk"]),
            hexadecimal(&other["disk"]),
        );
    }
    race(&kernel, fathom, findings)?;
    match wrong.is_empty() {
        true => Ok(()),
        false => bail!("not the same:\n{}", wrong.join("\n")),
    }
}

fn hexadecimal(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |number| format!("{number:016x}"))
}

/// Operations, clock, digest and disk of one run in a fresh guest.
fn execution(
    name: &str,
    kernel: &str,
    seed: &str,
    fathom: Fathom<'_>,
    findings: &Path,
) -> Result<Value> {
    // What is in the output directory is part of what a guest sees: each begins with none.
    let _ = std::fs::remove_dir_all(findings);
    let args = ["check", name, "--guest", kernel, "--ops", OPS, "--seed", "5"];
    let (code, report) = fathom(&[&args[..], &["--guest-seed", seed]].concat())?;
    if code != Some(0) && code != Some(1) {
        bail!("{name}: {report}");
    }
    let guest = report["guest"].clone();
    match guest["operations"].as_u64() {
        Some(1..) => Ok(guest),
        _ => bail!("{name}: no execution was recorded: {report}"),
    }
}

/// A race: how often it shows natively, in how many guests, and in how many repetitions of one of them.
fn race(kernel: &str, fathom: Fathom<'_>, findings: &Path) -> Result<()> {
    let args = ["check", RACE, "--ops", RACE_OPS, "--strategy", "walk", "--seed", "5", "--first"];
    let mut native = 0;
    for _ in 0..RACE_RUNS {
        native += usize::from(fathom(&args)?.0 == Some(1));
    }
    println!("\na race: shows in {native} of {RACE_RUNS} native runs of {RACE_OPS} operations");
    let guest = ["--guest", kernel, "--guest-seed"];
    let mut shown = None;
    for seed in 1..=RACE_SEEDS_MAX {
        // An execution begins with an empty directory, as its repetition does.
        let _ = std::fs::remove_dir_all(findings);
        let (code, report) = fathom(&[&args[..], &guest[..], &[&seed.to_string()]].concat())?;
        if code == Some(1) {
            shown = report["findings"][0]["id"].as_str().map(|id| (seed, id.to_owned()));
            break;
        }
    }
    let (seed, id) = shown.context("no guest shows the race")?;
    println!("in guests: the first seed that shows it is {seed}: finding {id}");
    let mut same = 0;
    for repetition in 0..RACE_RUNS {
        let _busy = (repetition % 2 == 1).then(Busy::start);
        let (_, report) = fathom(&["replay", &id, "--guest", kernel, "--execution"])?;
        same += usize::from(report["verdict"] == "same_execution");
    }
    println!("the same execution in {same} of {RACE_RUNS} repetitions");
    match same == RACE_RUNS {
        true => Ok(()),
        false => bail!("{} repetitions were another execution", RACE_RUNS - same),
    }
}
