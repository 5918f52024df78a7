//! `cargo xtask campaign NAME`: long runs of the release binary.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::ledger::{self, Ledger};
use crate::{ace2, guest_campaign, guest_runs, shell, suites};

/// The campaigns.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Name {
    /// The reference against tmpfs, ext4, xfs and btrfs: ten million operations in pieces; goes on where it was
    /// interrupted (root)
    Hosts,
    /// ext4, xfs, btrfs, ext2, tmpfs and overlay against the reference: an hour in all (root)
    Kernel,
    /// Every mutant, in process, through FUSE, and served by another process: found; the unmutated
    /// model never accused
    Mutants,
    /// Every file system of the kernel that FATHOM_GUEST_KERNEL names (6.12), in guests, so many minutes each;
    /// goes on where it was interrupted
    GuestFilesystems,
    /// Guests repeat themselves: 1,000 operations on six file systems in 20 boots each, half of them on a busy
    /// host; a race that shows in few native runs shows in every repetition (FATHOM_GUEST_KERNEL)
    Determinism,
    /// 100 guests killed at random moments leave no process, no file and no memory
    GuestKills,
    /// The file systems of a kernel that watches itself (FATHOM_GUEST_KERNEL, 6.12-debug), so many minutes in
    /// all; goes on where it was interrupted
    DebugKernel,
    /// The kernel's NFS server and Ganesha with versions 3, 4.0, 4.1 and 4.2 over all file systems, so many
    /// minutes for each server and version; goes on where it was interrupted (FATHOM_GUEST_KERNEL)
    Nfs,
    /// Layered workloads on the file systems of the Dogfood paper in guests, beside tours and walks, so many
    /// minutes each; goes on where it was interrupted
    Layered,
    /// Four callers at once on tmpfs, ext4, xfs, btrfs, f2fs, overlay, reiserfs, gfs2 and jfs in guests, on tmpfs
    /// and RefFS here, so many minutes each; goes on where it was interrupted
    Callers,
    /// ACE's sequences of two operations on btrfs and ext4 in guests (FATHOM_GUEST_KERNEL), at CrashMonkey's
    /// points, in pieces that can be interrupted
    Ace2,
    /// Everything that `check` generates while the power of ext4, xfs, btrfs (root) and of f2fs in a guest
    /// (FATHOM_GUEST_KERNEL) is cut, so many minutes each; goes on where it was interrupted
    CrashOps,
    /// Foreign test suites on the served reference: pjdfstest, fsx, LTP's file-system calls, xfstests (root)
    Suites,
    /// A swarm on a real Kubernetes cluster that loses and wins nodes
    Kubernetes,
    /// What a task that goes wrong does to the others, with plain processes, limits and guests (root, control
    /// groups of version 1; FATHOM_GUEST_KERNEL, SLURM_CONF, FATHOM_CLUSTER for guests, Slurm, Kubernetes)
    Isolation,
    /// States and partitions that eight tasks reach in the same time: one seed, seeds, everything varied
    Diversity,
    /// 200 runs killed at random moments leave no mount, no device, no file, no process (root)
    Kills,
    /// Every checker on its first disk, so many minutes each; goes on where it was (FATHOM_GUEST_KERNEL, which
    /// fills most of the disks); what is done stays in docs/campaigns
    Fsck,
    /// Forty file systems that people have, two minutes each with the defaults; goes on where it was (root)
    Hunt,
}

/// Number of runs that `campaign kills` asks of the test.
const KILLS: &str = "200";

/// Number of guests that `campaign guest-kills` asks of the test.
const GUEST_KILLS: &str = "100";

/// The release binary, which is built now, or the program that FATHOM_PROGRAM names.
pub(crate) fn built_program() -> Result<std::path::PathBuf> {
    built_program_with(&[])
}

/// The same with features that the default build does not have.
pub(crate) fn built_program_with(features: &[&str]) -> Result<std::path::PathBuf> {
    if std::env::var_os(PROGRAM).is_none() {
        let mut build = shell::cargo();
        build.args(["build", "--release", "--quiet", "--package", "fathom"]);
        if !features.is_empty() {
            build.arg("--features").arg(features.join(","));
        }
        shell::run(&mut build)?;
    }
    Ok(program())
}

/// Runs one campaign with the release binary.
pub(crate) fn run(name: Name, minutes: u64) -> Result<()> {
    // These have a program of their own, with the client of Kubernetes.
    if !matches!(name, Name::Kubernetes | Name::Isolation) {
        built_program()?;
    }
    match name {
        Name::Hosts => hosts(minutes),
        Name::Kernel => kernel(minutes),
        Name::Hunt => hunt(120, None, &[]),
        Name::Mutants => mutants(),
        Name::Determinism => guest_runs::determinism(&fathom, &findings()),
        Name::GuestKills => {
            let test =
                ["test", "--release", "--quiet", "--package", "fathom-guest", "--test", "guests"];
            let only = ["--", "killed_guests_leave_nothing"];
            shell::run(shell::cargo().args(test).args(only).env("FATHOM_GUEST_KILLS", GUEST_KILLS))
        }
        Name::GuestFilesystems | Name::DebugKernel | Name::Nfs => {
            guests(name, guest_campaign::Plan { minutes, only: &[], jobs: 1 })
        }
        Name::Layered | Name::Callers => {
            long_workloads(name, guest_campaign::Plan { minutes, only: &[], jobs: 1 })
        }
        Name::Ace2 => {
            ace2::run(&program(), guest_campaign::Plan { minutes, only: &[], jobs: cores() })
        }
        Name::CrashOps => crate::crash_ops::run(&program(), minutes, &[]),
        Name::Fsck => crate::fsck::run(&program(), minutes, &[]),
        Name::Suites => suites::run(&program(), &[]),
        Name::Kubernetes => {
            crate::setup::kubernetes()?;
            let test = ["test", "--release", "--package", "fathom", "--features", "kubernetes"];
            let only = ["--test", "swarm_kubernetes", "--", "--nocapture"];
            shell::run(shell::cargo().args(test).args(only))
        }
        Name::Isolation => isolation(&[]),
        Name::Diversity => crate::diversity::run(&program()),
        Name::Kills => {
            let test = ["test", "--release", "--quiet", "--package", "fathom"];
            let tests = ["--test", "kills", "--test", "crash_kills", "--test", "fsck_kills"];
            shell::run(shell::cargo().args(test).args(tests).env("FATHOM_KILLS", KILLS))
        }
    }?;
    // After a failure the findings stay for whoever explains them.
    let _ = std::fs::remove_dir_all(findings());
    Ok(())
}

/// Runs the pieces of [`guest_campaign`] with the release binary, or with the program that FATHOM_PROGRAM
/// names.
pub(crate) fn guests(name: Name, plan: guest_campaign::Plan<'_>) -> Result<()> {
    let kind = match name {
        Name::DebugKernel => guest_campaign::Kind::DebugKernel,
        Name::Nfs => guest_campaign::Kind::Nfs,
        _ => guest_campaign::Kind::FileSystems,
    };
    let given = std::env::var_os("FATHOM_PROGRAM").map(std::path::PathBuf::from);
    if given.is_none() {
        shell::run(shell::cargo().args(["build", "--release", "--quiet", "--package", "fathom"]))?;
    }
    guest_campaign::run(kind, plan, &given.unwrap_or_else(program))
}

/// Runs the pieces of layered workloads, or of several callers, with the release binary, or with the program that
/// FATHOM_PROGRAM names.
pub(crate) fn long_workloads(name: Name, plan: guest_campaign::Plan<'_>) -> Result<()> {
    let program = built_program()?;
    match name {
        Name::Layered => crate::long_workloads::layered(&program, plan),
        _ => crate::long_workloads::callers(&program, plan),
    }
}

/// Runs the rows of [`hunt`] with the release binary, or with the program that FATHOM_PROGRAM names.
pub(crate) fn hunt(seconds: u64, guest: Option<&str>, only: &[String]) -> Result<()> {
    if std::env::var_os(PROGRAM).is_none() {
        shell::run(shell::cargo().args(["build", "--release", "--quiet", "--package", "fathom"]))?;
    }
    crate::hunt::run(&program(), seconds, guest, only)
}

/// Measures the rows of [`crate::isolation`] with a program that has the engines for them.
pub(crate) fn isolation(only: &[String]) -> Result<()> {
    crate::isolation::run(&built_program_with(crate::isolation::features())?, only)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn findings() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("fathom-campaign-{}", std::process::id()))
}

/// Names another program than the release binary, which is then not built.
const PROGRAM: &str = "FATHOM_PROGRAM";

/// The path of the program that campaigns run.
fn program() -> std::path::PathBuf {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return program.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| shell::root().join("target"), std::path::PathBuf::from);
    target.join("release/fathom")
}

fn fathom(args: &[&str]) -> Result<(Option<i32>, Value)> {
    let mut command = Command::new(program());
    command.args(args).arg("--out").arg(findings()).arg("--json");
    let output =
        command.output().with_context(|| format!("cannot start {}", shell::show(&command)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let report = serde_json::from_str(last).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{} printed no JSON: {text}{errors}", shell::show(&command))
    })?;
    Ok((output.status.code(), report))
}

/// File systems of the campaign `kernel`.
const KERNEL: [&str; 6] = ["ext4", "xfs", "btrfs", "ext2", "tmpfs", "overlay"];

/// Strategies with which each of them is explored, with their further arguments.
const STRATEGIES: [(&str, &[&str]); 3] = [
    ("tour", &["--remount", "every 500", "--fsck", "5000"]),
    ("walk", &["--fsck", "20000"]),
    ("dfs", &["--depth", "60", "--fsck", "2000"]),
];

fn kernel(minutes: u64) -> Result<()> {
    let budget = format!("{}s", (minutes * 60 / (KERNEL.len() * STRATEGIES.len()) as u64).max(1));
    let mut accused = Vec::new();
    let (mut ops_all, mut states_all) = (0, 0);
    println!(
        "{:8} {:5} {:>10} {:>8} {:>9} {:>8} {:>6} {:>8}  goals",
        "subject", "way", "ops", "ops/s", "states", "remounts", "fscks", "findings"
    );
    for (subject, (strategy, args)) in
        KERNEL.iter().flat_map(|subject| STRATEGIES.iter().map(move |strategy| (subject, strategy)))
    {
        let mut all =
            vec!["check", subject, "--strategy", strategy, "--budget", &budget, "--seed", "1"];
        all.extend(*args);
        let (code, report) = fathom(&all)?;
        let number = |field: &str| report[field].as_u64().unwrap_or(0);
        let seconds = report["seconds"].as_f64().unwrap_or(f64::INFINITY);
        let missing = report["goals"]["missing"].as_array().map_or(0, Vec::len);
        println!(
            "{subject:8} {strategy:5} {:>10} {:>8.0} {:>9} {:>8} {:>6} {:>8}  {} of {}",
            number("ops"),
            number("ops") as f64 / seconds,
            number("states"),
            number("remounts"),
            number("fscks"),
            report["findings"].as_array().map_or(0, Vec::len),
            report["goals"]["reached"],
            report["goals"]["reached"].as_u64().unwrap_or(0) + missing as u64,
        );
        if let Some(goals) = report["goals"]["missing"].as_array().filter(|goals| goals.len() < 16)
        {
            let goals: Vec<&str> = goals.iter().filter_map(Value::as_str).collect();
            println!("         never: {}", goals.join(", "));
        }
        ops_all += number("ops");
        states_all += number("states");
        if code != Some(0) {
            accused.push(format!("{subject} {strategy}: {}", report["findings"]));
        }
    }
    println!("total: {ops_all} operations, {states_all} states");
    if !accused.is_empty() {
        bail!("unexplained divergences:\n{}", accused.join("\n"));
    }
    Ok(())
}

/// Operations of a piece; 4 file systems × 50 seeds × this are ten million.
const HOST_OPS: u64 = 50_000;
const HOST_SEEDS: u64 = 50;

/// File systems that are on every host.
const HOSTS: [&str; 4] = ["tmpfs", "ext4", "xfs", "btrfs"];

/// Half of the pieces are tours, which are the default; the others walks, which hold more files open.
fn host_piece(subject: &str, seed: u64) -> Result<Value> {
    let strategy = if seed.is_multiple_of(2) { "walk" } else { "tour" };
    let (seed, ops) = (seed.to_string(), HOST_OPS.to_string());
    let args = ["check", subject, "--strategy", strategy, "--ops", &ops, "--seed", &seed];
    let (code, report) = fathom(&[&args[..], &["--tree-every", "5"]].concat())?;
    Ok(json!({
        "code": code,
        "strategy": strategy,
        "seconds": report["seconds"],
        "ops": report["ops"],
        "findings": ledger::signatures(&report),
    }))
}

/// Every file system gets its first piece before one gets its second; a piece is kept as soon as it is there.
fn hosts(minutes: u64) -> Result<()> {
    let mut ledger = Ledger::open("hosts")?;
    let start = Instant::now();
    for (seed, subject) in (1..=HOST_SEEDS).flat_map(|seed| HOSTS.map(|subject| (seed, subject))) {
        if start.elapsed().as_secs() >= minutes * 60 {
            break;
        }
        if !ledger.has(subject, seed) {
            let result = host_piece(subject, seed)?;
            println!("{subject}, seed {seed}: {result}");
            ledger.add(subject, seed, &result)?;
        }
    }
    let mut total = 0;
    let mut accused = Vec::new();
    println!("| subject | pieces | operations | findings |\n|---|---|---|---|");
    for subject in HOSTS {
        let (mut pieces, mut ops, mut findings) = (0, 0, 0);
        for line in ledger.of(subject) {
            pieces += 1;
            ops += line["ops"].as_u64().unwrap_or(0);
            findings += line["findings"].as_array().map_or(0, Vec::len);
            if line["code"] != 0 {
                accused.push(format!("{subject} seed {}: {}", line["piece"], line["findings"]));
            }
        }
        println!("| {subject} | {pieces} | {ops} | {findings} |");
        total += ops;
    }
    let planned = HOST_OPS * HOST_SEEDS * HOSTS.len() as u64;
    println!("{total} of {planned} operations are done (docs/campaigns/hosts.jsonl)");
    if !accused.is_empty() {
        bail!("unexplained divergences:\n{}", accused.join("\n"));
    }
    Ok(())
}

/// Ways in which a mutant is served.
const SERVED: [&str; 3] = ["model", "reffs", "fuse"];

/// Mutants that a FUSE server does not hear of: the kernel cuts what is behind the end of a file, and O_TMPFILE is
/// not carried.
const IN_PROCESS: [&str; 2] = ["mapped-tail-shows", "tmpfile-link-empties"];

/// Makes the subject with a mutant, or without. The third way is a daemon like any other: it keeps
/// its volume in a file, so that it can be stopped and started again.
fn served(by: &str, mutant: Option<&str>) -> Result<String> {
    let bug = mutant.map(|name| format!(":{name}")).unwrap_or_default();
    if by != "fuse" {
        return Ok(format!("{by}{bug}"));
    }
    let bug = mutant.map(|name| format!(" --mutant {name}")).unwrap_or_default();
    let program = program();
    let program = program.to_str().context("the path of the program is not text")?;
    Ok(format!("fuse:{program} mount {{mnt}} --state {{state}}/volume{bug}"))
}

fn mutants() -> Result<()> {
    let (_, list) = fathom(&["list", "mutants"])?;
    let names: Vec<&str> =
        list.as_array().context("no list")?.iter().filter_map(|m| m["name"].as_str()).collect();
    let mut missed = Vec::new();
    print!("{:32}", "mutant");
    SERVED.iter().for_each(|by| print!(" {:>8} {:>8}", format!("{by} s"), "ops"));
    println!();
    for name in &names {
        let mut row = format!("{name:32}");
        for by in SERVED {
            if by != "model" && IN_PROCESS.contains(name) {
                row.push_str(&format!(" {:>8} {:>8}", "-", "-"));
                continue;
            }
            let start = Instant::now();
            let subject = served(by, Some(name))?;
            let args = ["--budget", "120s", "--seed", "1", "--remount", "500"];
            let (code, report) = fathom(&[&["check", &subject], &args[..]].concat())?;
            let ops = report["ops"].as_u64().unwrap_or(0);
            row.push_str(&format!(" {:>8.1} {ops:>8}", start.elapsed().as_secs_f64()));
            if code != Some(1) {
                missed.push(format!("{name} in {by}"));
            }
        }
        println!("{row}");
    }
    for by in SERVED {
        let (code, report) =
            fathom(&["check", &served(by, None)?, "--budget", "60s", "--seed", "1"])?;
        println!("{by} without mutant: {} operations", report["ops"]);
        if code != Some(0) {
            bail!("the unmutated {by} was accused: {}", report["findings"]);
        }
    }
    let all = names.len() * SERVED.len() - IN_PROCESS.len() * (SERVED.len() - 1);
    println!("found: {} of {all}", all - missed.len());
    if !missed.is_empty() {
        bail!("not found: {}", missed.join(", "));
    }
    Ok(())
}
