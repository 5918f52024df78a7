//! `cargo xtask campaign fsck`: every checker on its first disk, so many minutes each; and what
//! `cargo xtask bench fsck` measures with the program itself: paths, and cases that a kernel looks at.
//!
//! A campaign of a checker is kept in `target/fsck` and goes on where it was (`fathom fsck --resume`), until it
//! has had its time. Findings stay there; numbers and causes go to `docs/campaigns` ([`Ledger`]).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::ledger::Ledger;
use crate::shell;

/// The checkers.
const CHECKERS: &[&str] = &[
    "fsck.minix",
    "fsck.fat",
    "jfs_fsck",
    "xfs_repair",
    "btrfs",
    "fsck.f2fs",
    "reiserfsck",
    "fsck.exfat",
    "e2fsck",
];

/// The piece of a checker in the ledger: each has one.
const PIECE: u64 = 1;

/// Runs the campaigns of all checkers, or of some, and prints a table.
pub(crate) fn run(program: &Path, minutes: u64, only: &[String]) -> Result<()> {
    let mut ledger = Ledger::open("fsck")?;
    println!("| checker | cases | with a violation | causes | classes |\n|---|---:|---:|---:|---|");
    let wanted = |checker: &str| only.is_empty() || only.iter().any(|wanted| wanted == checker);
    for checker in CHECKERS.iter().filter(|checker| wanted(checker)) {
        if !ledger.has(checker, PIECE) {
            match campaign(program, checker, minutes)? {
                Ok(result) => ledger.add(checker, PIECE, &result)?,
                Err(why) => println!("| {checker} | {why} | | | |"),
            }
        }
        for line in ledger.of(checker) {
            println!("{}", row(checker, line));
        }
    }
    Ok(())
}

/// The campaign of one checker until it has had its time: what is kept of it, or why it cannot be.
fn campaign(program: &Path, checker: &str, minutes: u64) -> Result<Result<Value, String>> {
    let out = shell::root().join("target/fsck").join(checker);
    let path = out.join("fsck.json");
    let done = read(&path);
    let seconds = done.as_ref().and_then(|state| state["seconds"].as_f64()).unwrap_or(0.0);
    let complete = done.as_ref().is_some_and(|state| state["complete"] == true);
    let left = (minutes as f64 * 60.0 - seconds).max(0.0) as u64;
    if !complete && left > 0 {
        let mut command = Command::new(program);
        command.arg("--out").arg(&out).args(["--json", "fsck", checker]);
        command.args(["--budget", &format!("{left}s")]);
        if done.is_some() {
            command.arg("--resume");
        }
        let output =
            command.output().with_context(|| format!("cannot start {}", shell::show(&command)))?;
        if !matches!(output.status.code(), Some(0 | 1)) {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            return Ok(Err(why.lines().last().unwrap_or_default().to_owned()));
        }
    }
    // What ended before its time, because of a fault of ours, is no campaign of so many minutes.
    let run = read(&out.join("run.json")).unwrap_or_default();
    if run["complete"] != true {
        return Ok(Err(string(&run["stop"]).to_owned()));
    }
    Ok(read(&path).map(|state| kept(&state)).ok_or_else(|| "it left no state".to_owned()))
}

/// What of the state of a campaign is kept in the repository: numbers, and the name of each cause.
fn kept(state: &Value) -> Value {
    let causes = state["causes"].as_object().into_iter().flatten();
    let causes: Vec<Value> = causes
        .map(|(signature, cause)| {
            let case = format!("{}={}", string(&cause["case"]["field"]), cause["case"]["value"]);
            json!({"signature": signature, "cases": cause["cases"], "case": case})
        })
        .collect();
    json!({
        "seconds": state["seconds"],
        "cases": state["done"],
        "cases_total": state["total"],
        "violations": state["violations"],
        "by_class": state["by_class"],
        "causes": causes,
    })
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn row(checker: &str, state: &Value) -> String {
    let classes = state["by_class"].as_object().into_iter().flatten();
    let classes: Vec<String> = classes.map(|(class, cases)| format!("{class} {cases}")).collect();
    format!(
        "| {checker} | {} of {} | {} | {} | {} |",
        state["cases"],
        state["cases_total"],
        state["violations"],
        state["causes"].as_array().map_or(0, Vec::len),
        classes.join(", ")
    )
}

/// The field of 32 bits that symbolic execution closed.
const WIDE: &str = "superblock.s_last_orphan";
/// The fields of 8 and 16 bits that symbolic execution was tried on.
const EXPLORED: &[&str] = &[
    "superblock.s_state",
    "superblock.s_errors",
    "superblock.s_minor_rev_level",
    "superblock.s_def_hash_version",
    "superblock.s_jnl_backup_type",
    "superblock.s_want_extra_isize",
    "group[0].bg_free_blocks_count_lo",
    "group[0].bg_flags",
    "inode[17].i_links_count",
    "inode[17].i_extra_isize",
    "inode[17].i_mode",
    "inode[22].i_mode",
    "dirent[2].entry[25684].file_type",
    "dirent[2].entry[25684].name_len",
    "htree[12].hash_version",
    "htree[12].indirect_levels",
    "htree[12].count",
    "inode[23].extents.eh_magic",
    "inode[23].extents.eh_entries",
    "inode[17].xattr.entry[0].e_value_offs",
    "xattr_block[1351 of 15].entry[0].e_name_len",
];
/// Cases that are run with a kernel and without one.
const MOUNTED_CASES: &str = "400";

/// Runs the bench of the crate, then what needs the program, and prints everything as the last line.
pub(crate) fn bench(program: &Path) -> Result<()> {
    let mut cargo = shell::cargo();
    let words = ["bench", "--quiet", "--package", "fathom-fsck", "--bench", "fsck"];
    let text = shell::output(cargo.args(words))?;
    print!("{text}");
    let last = text.lines().last().unwrap_or_default();
    let mut value: Value = serde_json::from_str(last).context("the last line of the bench")?;
    match paths(program) {
        Ok(found) => {
            let fields = found["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
            let (wide, narrow): (Vec<&Value>, Vec<&Value>) =
                fields.iter().partition(|field| field["field"] == WIDE);
            let paths = |fields: &[&Value]| -> u64 {
                fields.iter().filter_map(|field| field["paths"].as_u64()).sum()
            };
            let closed =
                |fields: &[&Value]| fields.iter().filter(|field| field["closed"] == true).count();
            value["paths_reached"] = json!(paths(&narrow));
            value["fields_closed"] = json!(closed(&narrow));
            value["last_orphan_paths"] = json!(paths(&wide));
            value["last_orphan_closed"] = json!(closed(&wide) == 1);
        }
        Err(error) => println!("no paths: {error:#}"),
    }
    for (key, words) in [("cases_per_s_unmounted", &[][..]), ("cases_per_s_mounted", &["--mount"])]
    {
        match rate(program, words) {
            Ok(rate) => value[key] = json!((rate * 10.0).round() / 10.0),
            Err(error) => println!("no {key}: {error:#}"),
        }
    }
    println!("{value}");
    Ok(())
}

/// Explores fields with an instrumented e2fsck, which is built if it is not there.
fn paths(program: &Path) -> Result<Value> {
    let dir = shell::root().join("target/fsck/e2fsprogs-instrumented");
    let checker = std::env::var_os("FATHOM_INSTRUMENTED").map(PathBuf::from);
    let checker = checker.unwrap_or_else(|| dir.join("e2fsck"));
    if !checker.exists() {
        shell::output(
            Command::new(program).args(["fsck", "build", "e2fsprogs", "--dir"]).arg(&dir),
        )?;
    }
    let mut command = Command::new(program);
    command.args(["--json", "fsck", "explore", "--program"]).arg(checker).args(EXPLORED).arg(WIDE);
    last_json(&mut command)
}

/// Cases per second of the processor in a short campaign on one thread, its start included.
fn rate(program: &Path, words: &[&str]) -> Result<f64> {
    let out = shell::root().join("target/fsck/bench");
    let mut command = Command::new(program);
    command.args(["--json", "--out"]).arg(&out).args(["fsck", "e2fsck", "--jobs", "1"]);
    command.args(["--cases", MOUNTED_CASES]).args(words);
    let start = processor_seconds_of_children()?;
    let value = last_json(&mut command)?;
    let seconds = processor_seconds_of_children()? - start;
    // What it found is not asked here.
    let _ = std::fs::remove_dir_all(&out);
    value["cases"].as_f64().map(|cases| cases / seconds).context("it says nothing about cases")
}

/// The last line that a command prints; findings are no failure.
fn last_json(command: &mut Command) -> Result<Value> {
    let output =
        command.output().with_context(|| format!("cannot start {}", shell::show(command)))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0 | 1) => Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?),
        _ => bail!("{}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}

/// User and system time of the children that have ended.
fn processor_seconds_of_children() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let after = text.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(13).take(2);
    // Ticks of 10 ms.
    Ok(ticks.filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() / 100.0)
}
