//! `cargo xtask campaign layered` and `campaign callers`: layered workloads, and several callers at once, so many
//! minutes for each row, in pieces of some minutes with a seed each; a piece is kept as soon as it is there
//! ([`Ledger`]), so an interrupted campaign goes on where it was.
//!
//! In guests of the kernel that FATHOM_GUEST_KERNEL names; what may run on this machine runs on it.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::ledger::{self, Ledger};
use crate::shell;
use crate::structure_plot::{Series, draw};

/// Who runs `fathom` with these arguments.
type Fathom<'a> = &'a dyn Fn(&[&str]) -> Result<(Option<i32>, Value)>;

/// Without FATHOM_GUEST_KERNEL.
const DEFAULT_KERNEL: &str = "6.12";

/// Minutes of a piece.
const PIECE_MINUTES: u64 = 5;

/// Samples of the structures that a piece keeps.
const SAMPLES: usize = 60;

/// The file systems of the paper.
const LAYERED: [&str; 6] = ["ext4", "btrfs", "f2fs", "reiserfs", "gfs2", "jfs"];

/// Beside layered workloads: what the program does otherwise.
const WAYS: [(&str, &[&str]); 3] = [
    ("layered", &["--workload", "layered"]),
    ("tour", &["--strategy", "tour"]),
    ("walk", &["--strategy", "walk"]),
];

/// File systems that are raced in guests, and on this machine.
const RACED: [(&str, bool); 8] = [
    ("tmpfs", true),
    ("ext4", true),
    ("xfs", true),
    ("btrfs", true),
    ("f2fs", true),
    ("overlay", true),
    ("tmpfs", false),
    ("reffs", false),
];

/// One row: its name, and the arguments of the run.
struct Row {
    name: String,
    args: Vec<String>,
    /// More arguments for every second piece.
    even: &'static [&'static str],
}

/// Dogfood's bugs needed unusual options.
const UNUSUAL: &[&str] = &["--options", "random"];

/// A disk that takes its time.
const LATE: &[&str] = &["--disk-delay", "50"];

/// Its checkpoint asks again and again until a request is complete (`f2fs_sync_dirty_inodes()`), while the clock of
/// a guest stands still and nothing that is late ever comes.
const NEVER_LATE: &str = "f2fs";

/// Layered workloads on the file systems of the paper, beside tours and walks.
pub(crate) fn layered(minutes: u64, fathom: Fathom<'_>) -> Result<()> {
    let kernel = ledger::kernel(DEFAULT_KERNEL);
    let rows = LAYERED.iter().flat_map(|subject| {
        let kernel = &kernel;
        WAYS.iter().map(move |(way, args)| {
            let guest = ["--guest", kernel.as_str()];
            Row {
                even: if *way == "layered" { UNUSUAL } else { &[] },
                name: format!("{subject} {way}"),
                args: [&["check", subject], *args, &guest[..]]
                    .concat()
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            }
        })
    });
    let done = run("layered", &kernel, minutes, rows.collect(), fathom);
    plot(&Ledger::open("layered")?)?;
    done
}

/// Draws the structures of every file system over the time of the first piece.
fn plot(ledger: &Ledger) -> Result<()> {
    for subject in LAYERED {
        let series: Vec<Series> = WAYS
            .iter()
            .filter_map(|(way, _)| {
                let name = format!("{subject} {way}");
                let first = ledger.of(&name).find(|line| line["piece"] == 1)?;
                let samples = first["structure"].as_array().cloned().unwrap_or_default();
                Some(Series { samples, name })
            })
            .collect();
        if !series.is_empty() {
            let file = shell::root().join(format!("target/structure-{subject}.svg"));
            std::fs::write(&file, draw(subject, &series))?;
            println!("structures over time: {}", file.display());
        }
    }
    Ok(())
}

/// Four callers at once.
pub(crate) fn callers(minutes: u64, fathom: Fathom<'_>) -> Result<()> {
    let kernel = ledger::kernel(DEFAULT_KERNEL);
    let rows = RACED.iter().map(|(subject, in_guest)| {
        let mut args = vec!["check", subject, "--callers", "4"];
        if *in_guest {
            args.extend(["--guest", &kernel]);
        }
        let place = if *in_guest { "guest" } else { "here" };
        let args = args.into_iter().map(str::to_owned).collect();
        let even = if *in_guest && *subject != NEVER_LATE { LATE } else { &[] };
        Row { name: format!("{subject} {place}"), args, even }
    });
    run("callers", &kernel, minutes, rows.collect(), fathom)
}

fn run(
    campaign: &str,
    kernel: &str,
    minutes: u64,
    rows: Vec<Row>,
    fathom: Fathom<'_>,
) -> Result<()> {
    let mut ledger = Ledger::open(campaign)?;
    let mut failed = Vec::new();
    let pieces = minutes.div_ceil(PIECE_MINUTES);
    // Every row gets its first piece before one gets its second.
    for (piece, row) in (1..=pieces).flat_map(|piece| rows.iter().map(move |row| (piece, row))) {
        if ledger.has(&row.name, piece) {
            continue;
        }
        let (budget, seed) = (format!("{PIECE_MINUTES}m"), piece.to_string());
        let mut args: Vec<&str> = row.args.iter().map(String::as_str).collect();
        args.extend(["--budget", &budget, "--seed", &seed]);
        let more = if piece % 2 == 0 { row.even } else { &[] };
        args.extend(more);
        let (code, report) = fathom(&args)?;
        match report["error"].as_str().filter(|_| code == Some(2)) {
            Some(error) => failed.push(format!("{}, piece {piece}: {error}", row.name)),
            None => ledger.add(&row.name, piece, &result(kernel, (piece, more), code, &report))?,
        }
        println!("{}, piece {piece}: {} calls", row.name, report["ops"]);
    }
    println!("\n| run | minutes | calls | overlaps | findings |\n|---|---:|---:|---:|---|");
    for row in &rows {
        println!("{}", line(&row.name, &ledger.of(&row.name).collect::<Vec<_>>()));
    }
    ledger.tell_time(pieces * PIECE_MINUTES * rows.len() as u64);
    if !failed.is_empty() {
        bail!("pieces that failed, to be run again:\n  {}", failed.join("\n  "));
    }
    Ok(())
}

fn result(kernel: &str, (piece, more): (u64, &[&str]), code: Option<i32>, report: &Value) -> Value {
    let structure = report["structure"].as_array().filter(|_| piece == 1);
    let structure = structure.map(|samples| {
        let step = samples.len().div_ceil(SAMPLES).max(1);
        samples.iter().step_by(step).cloned().collect::<Vec<_>>()
    });
    json!({
        "kernel": ledger::kernel_name(kernel),
        "code": code,
        "more": more.join(" "),
        "subject": report["subject"],
        "ops": report["ops"],
        "overlaps": report["overlaps"],
        "seconds": report["seconds"],
        "structure": structure,
        "findings": ledger::signatures(report),
        "guests_died": report["guests_died"],
    })
}

/// The line of a table with all pieces of a row.
fn line(name: &str, pieces: &[&Value]) -> String {
    let sum = |field: &str| pieces.iter().filter_map(|piece| piece[field].as_f64()).sum::<f64>();
    let mut found: Vec<&str> = pieces
        .iter()
        .flat_map(|piece| piece["findings"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    found.sort_unstable();
    found.dedup();
    let found = if found.is_empty() { "none".to_owned() } else { found.join("; ") };
    let minutes = sum("seconds") / 60.0;
    format!("| {name} | {minutes:.0} | {} | {} | {found} |", sum("ops"), sum("overlaps"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_row_become_one_line() {
        let found = json!([{"signature": "no_order write ok/ok"}]);
        let report = json!({ "ops": 10, "overlaps": 3, "seconds": 300.0, "findings": found });
        let (first, second) = (
            result("6.12", (1, &[]), Some(1), &report),
            result("6.12", (2, LATE), Some(1), &report),
        );
        let line = line("ext4 guest", &[&first, &second]);
        assert_eq!((&first["more"], &second["more"]), (&json!(""), &json!("--disk-delay 50")));
        assert_eq!(line, "| ext4 guest | 10 | 20 | 6 | no_order write ok/ok |");
    }
}
