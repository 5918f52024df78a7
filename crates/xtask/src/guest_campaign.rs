//! `cargo xtask campaign guest-filesystems | debug-kernel`: the file systems of a guest's kernel, in pieces
//! of a minute.
//!
//! Every file system gets its first piece before one gets its second, and a piece is kept as soon as it is
//! there ([`Ledger`]): an interrupted campaign goes on with the pieces that are missing, and what is done at
//! any time is spread evenly. Several pieces can run at once, each in a guest of its own. The table is printed
//! from the pieces; findings stay in `target/campaign`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::ledger::{self, Ledger};
use crate::shell;

/// A piece of a campaign.
const PIECE_SECONDS: u64 = 60;

/// Who runs `fathom` with these arguments.
pub(crate) type Fathom<'a> = &'a dyn Fn(&[&str]) -> Result<(Option<i32>, Value)>;

/// How a campaign is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// So many minutes for every file system.
    FileSystems,
    /// So many minutes for all of them together, in the kernel that watches itself.
    DebugKernel,
    /// So many minutes for every NFS server and version, over one file system after the other.
    Nfs,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::FileSystems => "guest-filesystems",
            Kind::DebugKernel => "debug-kernel",
            Kind::Nfs => "nfs",
        }
    }

    fn kernel(self) -> String {
        ledger::kernel(match self {
            Kind::FileSystems | Kind::Nfs => "6.12",
            Kind::DebugKernel => "6.12-debug",
        })
    }

    /// The pieces in their order: a file system and its seed.
    fn pieces(self, subjects: &[String], minutes: u64) -> Vec<(String, u64)> {
        let rounds = match self {
            Kind::FileSystems => minutes,
            Kind::Nfs => return nfs_pieces(minutes),
            Kind::DebugKernel => minutes.div_ceil(subjects.len().max(1) as u64),
        };
        let of_round = |seed| subjects.iter().map(move |subject| (subject.clone(), seed));
        let all = (1..=rounds).flat_map(of_round);
        match self {
            Kind::FileSystems | Kind::Nfs => all.collect(),
            Kind::DebugKernel => all.take(minutes as usize).collect(),
        }
    }
}

/// What is asked of a campaign.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// For every row, or for all together.
    pub(crate) minutes: u64,
    /// Only these rows, if there are any.
    pub(crate) only: &'a [String],
    /// So many pieces at once.
    pub(crate) jobs: usize,
}

/// Checks the file systems that are in the kernel and whose programs are here, and prints the table.
pub(crate) fn run(kind: Kind, plan: Plan<'_>, program: &Path) -> Result<()> {
    let Plan { minutes, only, jobs } = plan;
    let kernel = kind.kernel();
    let (subjects, missing) = match kind {
        Kind::Nfs => Default::default(),
        _ => subjects(&kernel, only, program)?,
    };
    let mut pieces = kind.pieces(&subjects, minutes);
    if kind == Kind::Nfs {
        let is_wanted = |name: &String| only.iter().all(|word| name.contains(word.as_str()));
        pieces.retain(|(name, _)| is_wanted(name));
    }
    let ledger = Ledger::open(kind.name())?;
    let missing_pieces =
        pieces.iter().filter(|(subject, seed)| !ledger.has(subject, *seed)).collect();
    let ledger = Mutex::new(ledger);
    let failed = at_once(jobs, missing_pieces, |(subject, seed)| {
        let result = piece(kind, subject, *seed, &kernel, program)?;
        println!("{subject}, seed {seed}: {}", told(&result));
        // One that failed, for example because the machine was too busy to boot a guest, is missing.
        if result["ops"].as_u64().is_none_or(|ops| ops == 0) {
            return Ok(Some(format!("{subject}, seed {seed}")));
        }
        let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.add(subject, *seed, &result).map(|()| None)
    })?;
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    let ledger = ledger.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\n{}", table(&ledger));
    for (subject, reasons) in &missing {
        println!("not there: {subject} ({reasons})");
    }
    ledger.tell_time(pieces.len() as u64 * PIECE_SECONDS / 60);
    if !failed.is_empty() {
        bail!("pieces that failed, to be run again: {}", failed.join("; "));
    }
    Ok(())
}

/// Does so many tasks at a time, begun in their order. After an error no other one is begun.
pub(crate) fn at_once<T: Send, R: Send>(
    jobs: usize,
    tasks: Vec<T>,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (tasks, results) = (Mutex::new(tasks.into_iter()), Mutex::new(Vec::new()));
    let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || -> Result<()> {
        while let Some(task) = next() {
            let result = work(task);
            if result.is_err() {
                while next().is_some() {}
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push(result?);
        }
        Ok(())
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// File systems behind an NFS server, one per minute in turn; the second half with two clients.
const BEHIND: [&str; 5] = ["reffs", "ext4", "xfs", "btrfs", "tmpfs"];

/// Every server and version gets its first minute before one gets its second.
fn nfs_pieces(minutes: u64) -> Vec<(String, u64)> {
    let mut pieces = Vec::new();
    for seed in 1..=minutes {
        for server in ["kernel", "ganesha"] {
            for version in ["3", "4.0", "4.1", "4.2"] {
                let behind = BEHIND[seed as usize % BEHIND.len()];
                let clients = if seed % 4 == 3 { " --clients=2" } else { "" };
                let lossy = if seed % 6 == 5 { " --lossy" } else { "" };
                let name =
                    format!("nfs:{behind} --nfs={version} --server={server}{clients}{lossy}");
                pieces.push((name, seed));
            }
        }
    }
    pieces
}

/// The file systems that the kernel serves by itself, and those that are missing with the reasons.
fn subjects(
    kernel: &str,
    only: &[String],
    program: &Path,
) -> Result<(Vec<String>, BTreeMap<String, String>)> {
    let (_, all) = fathom(program, &["list", "subjects", "--guest", kernel])?;
    let all = all.as_array().context("`fathom list` printed no list")?;
    let (mut there, mut missing) = (Vec::new(), BTreeMap::new());
    for subject in all.iter().filter(|subject| is_kernel_file_system(subject)) {
        let name = subject["name"].as_str().unwrap_or_default().to_owned();
        let reasons: Vec<&str> =
            subject["missing"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !reasons.is_empty() {
            missing.insert(name, reasons.join(", "));
        } else if only.is_empty() || only.contains(&name) {
            there.push(name);
        }
    }
    Ok((there, missing))
}

/// Those that a kernel serves by itself.
fn is_kernel_file_system(subject: &Value) -> bool {
    let needs = subject["needs"].as_array().map(Vec::as_slice).unwrap_or_default();
    needs.iter().any(|need| need.as_str().is_some_and(|need| need.ends_with("in the kernel")))
}

/// Runs `fathom` with these arguments; returns its exit code and what it reports.
pub(crate) fn fathom(program: &Path, args: &[&str]) -> Result<(Option<i32>, Value)> {
    let mut command = Command::new(program);
    let output = command.args(args).arg("--json").output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(text.lines().last().unwrap_or_default());
    let value = value.with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{} printed no JSON: {text}{errors}", shell::show(&command))
    })?;
    Ok((output.status.code(), value))
}

fn piece(kind: Kind, subject: &str, seed: u64, kernel: &str, program: &Path) -> Result<Value> {
    let (budget, text) = (format!("{PIECE_SECONDS}s"), seed.to_string());
    let dir = shell::root().join("target/campaign").join(kind.name());
    let out = dir.join(subject.replace([':', '/', ' '], "_")).join(&text).display().to_string();
    // The name of an NFS row has the options of the subject behind it.
    let mut args = vec!["check"];
    args.extend(subject.split_whitespace());
    args.extend(["--guest", kernel, "--budget", &budget, "--seed", &text]);
    args.extend(["--remount", "every 500", "--out", &out]);
    let (code, report) = fathom(program, &args)?;
    // A guest that was ended in the middle of something cannot tell: what it found is in its directory.
    let recorded = std::fs::read_to_string(Path::new(&out).join("run.json")).unwrap_or_default();
    let recorded: Value = serde_json::from_str(&recorded).unwrap_or_default();
    Ok(json!({
        "kernel": ledger::kernel_name(kernel),
        "code": code,
        "seconds": report["seconds"],
        "ops": report["ops"],
        "findings": found(&report, &recorded),
        "guests_died": report["guests_died"],
        "error": report["error"],
    }))
}

/// The signatures that a run told, and those that it has only recorded: a title is a signature and the subject.
fn found(report: &Value, recorded: &Value) -> Vec<Value> {
    let mut all = ledger::signatures(report);
    let pages = recorded["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    for title in pages.iter().filter_map(|page| page["title"].as_str()) {
        let signature = json!(title.rsplit_once(" on ").map_or(title, |(signature, _)| signature));
        if !all.contains(&signature) {
            all.push(signature);
        }
    }
    all
}

/// What came out of a piece, in a line.
fn told(row: &Value) -> String {
    if let Some(error) = row["error"].as_str() {
        return format!("failed: {}", error.lines().next().unwrap_or_default());
    }
    let findings = row["findings"].as_array().map_or(0, Vec::len);
    format!("{} operations, {findings} findings", row["ops"])
}

/// The table as Markdown, as it goes into docs/KERNELS.md: a line for each file system.
fn table(ledger: &Ledger) -> String {
    let mut text =
        "| file system | minutes | operations | findings |\n|---|---:|---:|---|\n".to_owned();
    for name in ledger.rows() {
        let of_it: Vec<&Value> = ledger.of(name).collect();
        text.push_str(&line(name, &of_it));
        text.push('\n');
    }
    text
}

fn line(name: &str, rows: &[&Value]) -> String {
    let ops: u64 = rows.iter().filter_map(|row| row["ops"].as_u64()).sum();
    let mut findings: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows {
        let told = row["findings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for finding in told {
            *findings.entry(finding.to_owned()).or_default() += 1;
        }
    }
    let findings: Vec<String> = findings
        .into_iter()
        .map(|(finding, pieces)| match pieces {
            1 => finding,
            pieces => format!("{finding} ({pieces}×)"),
        })
        .collect();
    let findings = if findings.is_empty() { "none".to_owned() } else { findings.join("; ") };
    format!("| {name} | {} | {ops} | {findings} |", rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_file_system_become_one_line() {
        let rows = [
            json!({"ops": 10, "findings": ["a", "b"]}),
            json!({"ops": 20, "findings": ["a"]}),
            json!({"ops": 3, "findings": []}),
        ];
        assert_eq!(line("jfs", &[&rows[0], &rows[1]]), "| jfs | 2 | 30 | a (2×); b |");
        assert_eq!(line("udf", &[&rows[2]]), "| udf | 1 | 3 | none |");
        let failed = json!({"ops": null, "error": "no memory\nand the console"});
        assert_eq!(told(&failed), "failed: no memory");
        let kernel = json!({"needs": ["root", "jfs in the kernel"]});
        assert!(is_kernel_file_system(&kernel) && !is_kernel_file_system(&json!({"needs": []})));
    }

    #[test]
    fn what_a_guest_could_not_tell_is_taken_from_its_record() {
        let told = json!({ "findings": [{ "signature": "tree rename nlink" }] });
        let titles = ["tree rename nlink on vfat", "outcome open EINVAL/success on vfat"];
        let recorded = json!({ "findings": titles.map(|title| json!({ "title": title })) });
        let both = ["tree rename nlink", "outcome open EINVAL/success"];
        assert_eq!(found(&told, &recorded), both);
        assert_eq!(found(&json!({}), &recorded), both);
        assert_eq!(found(&told, &Value::Null), ["tree rename nlink"]);
    }

    #[test]
    fn pieces_run_at_once_and_an_error_begins_no_other() {
        let done = at_once(3, (0..20).collect(), |task| Ok(task * 2)).unwrap();
        assert_eq!(done.iter().sum::<u64>(), 380);
        // All of them wait for each other: with fewer at once this would not end.
        let all_there = std::sync::Barrier::new(3);
        at_once(3, vec![(); 3], |()| Ok(all_there.wait())).unwrap();
        let begun = Mutex::new(Vec::new());
        let failed = at_once(1, (0..20).collect(), |task| {
            begun.lock().unwrap().push(task);
            if task == 2 { bail!("the disk is full") } else { Ok(()) }
        });
        assert!(failed.is_err());
        assert_eq!(begun.into_inner().unwrap(), [0, 1, 2]);
    }

    #[test]
    fn every_file_system_gets_its_first_piece_before_one_gets_its_second() {
        let subjects = ["a".to_owned(), "b".to_owned()];
        let names = |kind: Kind, minutes| {
            let pieces = kind.pieces(&subjects, minutes).into_iter();
            pieces.map(|(name, seed)| format!("{name}{seed}")).collect::<Vec<_>>()
        };
        assert_eq!(names(Kind::FileSystems, 2), ["a1", "b1", "a2", "b2"]);
        assert_eq!(names(Kind::DebugKernel, 3), ["a1", "b1", "a2"]);
    }
}
