//! The result tables of the study that the mapping and log designs come from, made again.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use fathom_designs::logfs::{Logfs, Switch};
use fathom_designs::mapping::{Fault, Kind, Layout, Mapping, Order};
use fathom_designs::volume::{Explorer, Limits};
use fathom_engine::search::Unobserved;
use fathom_record::run::{FILE, Plot, Series};
use serde_json::{Value, json};

use super::page::measured;
use super::{DesignArgs, bounds as plan, explore, make_out};
use crate::command::Ending;
use crate::text::{grouped, print, print_json};

/// Small enough to be exhausted in seconds; the errors are the same as with more.
const FILES: usize = 2;
const BLOCKS: usize = 3;
/// Operations of a workload in the table on the operations kept in a state.
const DEPTH: u32 = 5;
/// Operations of a workload in the table on names: one more is ten times as many states.
const NAMES_DEPTH: u32 = 6;

const DIFFERENCES: &str = "\
Differences from the study:
* It stops at the first error of a run and does not look for dead blocks with two threads and the
  naive order; here every state is visited, and dead blocks are always counted (and freed).
* Its tables are with a cache; the lines without one show why it was introduced.
* Its 16 blocks and 4 files have about 10^10 states and are searched with 97 % coverage by bitstate
  hashing; these tables use 3 data blocks and 2 files, and are complete. With `--files 4 --blocks 11
  --bitstate-mib 2048` the search is the one of the study.
* Its log-structured model loses the root directory after a trace of 8; this one after 7, because
  here a write fills a whole segment.
";

const REPORT: &str = "\nas curves: fathom report --html report.html\n";

pub(super) fn run(args: &DesignArgs, out: &Path, json: bool) -> Result<Ending> {
    make_out(out)?;
    let start = Instant::now();
    let (mut text, mut rows) = (String::new(), Vec::new());
    mapping_table(args, &mut text, &mut rows)?;
    let isomorphism = isomorphism_table(args, &mut text)?;
    let remember = remember_table(args, &mut text)?;
    let plots = vec![remember_plot(&remember), isomorphism_plot(&isomorphism)];
    let seconds = start.elapsed().as_secs_f64();
    measured("the designs of the study", seconds, args.jobs, plots).write(&out.join(FILE))?;
    match json {
        true => {
            print_json(&json!({"mapping": rows, "isomorphism": isomorphism, "remember": remember}))?
        }
        false => print(&(text + "\n" + DIFFERENCES + REPORT))?,
    }
    Ok(Ending::Clean)
}

/// Tables 4.4 and 4.5.
fn mapping_table(args: &DesignArgs, text: &mut String, rows: &mut Vec<Value>) -> Result<()> {
    let _ = writeln!(text, "design order cache threads  states  dead    lost    double  content");
    for kind in [Kind::Link, Kind::Index] {
        for order in [Order::Naive, Order::Safe] {
            for cache in [false, true] {
                for threads in [1, 2] {
                    let layout = Layout::new(kind, FILES, BLOCKS)?;
                    let seed = Mapping::new(kind)?;
                    let mapping = Mapping { layout, order, cache, threads, ..seed };
                    let report = explore(&mapping, args, &plan(args, None)?, &mut Unobserved)?;
                    let found = Fault::ALL.map(|fault| report.discovery(fault.name()).is_some());
                    let cells = Fault::ALL.map(|fault| match report.discovery(fault.name()) {
                        None => "-",
                        Some(_) if fault.is_critical() => "ERROR",
                        Some(_) => "freed",
                    });
                    let order = format!("{order:?}").to_lowercase();
                    let _ = writeln!(
                        text,
                        "{:<6} {order:<5} {:<5} {threads:>7} {:>7}  {:<7} {:<7} {:<7} {}",
                        kind.to_string(),
                        if cache { "yes" } else { "no" },
                        grouped(report.states),
                        cells[0],
                        cells[1],
                        cells[2],
                        cells[3]
                    );
                    rows.push(json!({
                        "design": kind.to_string(), "order": order, "cache": cache,
                        "threads": threads, "states": report.states, "dead": found[0],
                        "lost": found[1], "double": found[2], "content": found[3],
                    }));
                }
            }
        }
    }
    Ok(())
}

fn log_explorer(limits: Limits, switches: &[Switch]) -> Result<Explorer<Logfs>> {
    Ok(Explorer::new(Logfs { switches: switches.to_vec(), ..Logfs::default() }, limits)?)
}

/// Figure 5.11: without power failures, all trees against trees up to names.
fn isomorphism_table(args: &DesignArgs, text: &mut String) -> Result<Vec<Value>> {
    let _ = writeln!(
        text,
        "\nlog design, no power failures: states\nlength   all names  up to names  fewer"
    );
    let mut rows = Vec::new();
    for depth in 1..=NAMES_DEPTH {
        let count = |names_count| -> Result<u64> {
            let remember = if names_count { 8 } else { 0 };
            let explorer = log_explorer(Limits { remember, names_count, crashes: 0 }, &[])?;
            Ok(explore(&explorer, args, &plan(args, Some(depth))?, &mut Unobserved)?.states)
        };
        let (all, few) = (count(true)?, count(false)?);
        let fewer = 100.0 * (1.0 - few as f64 / all as f64);
        let (a, f) = (grouped(all), grouped(few));
        let _ = writeln!(text, "{depth:>6} {a:>11} {f:>12} {fewer:>6.2}%");
        rows.push(json!({"length": depth, "all": all, "up_to_names": few, "fewer_percent": fewer}));
    }
    Ok(rows)
}

/// Figure 5.13: how many of the last operations belong to a state, against what is found.
fn remember_table(args: &DesignArgs, text: &mut String) -> Result<Vec<Value>> {
    let _ = writeln!(
        text,
        "\nlog design with reuse-early and one-log, workloads of {}: operations kept in a state\n\
         kept   states  properties violated",
        DEPTH + 1
    );
    let mut rows = Vec::new();
    for remember in 0..=4 {
        let limits = Limits { remember, ..Limits::default() };
        let explorer = log_explorer(limits, &[Switch::ReuseEarly, Switch::OneLog])?;
        let report = explore(&explorer, args, &plan(args, Some(DEPTH + 1))?, &mut Unobserved)?;
        let (states, found) = (grouped(report.states), report.violations().count());
        let _ = writeln!(text, "{remember:>4} {states:>8}  {found}");
        rows.push(json!({"kept": remember, "states": report.states, "violated": found}));
    }
    Ok(rows)
}

fn series(rows: &[Value], name: &str, x: &str, y: &str) -> Series {
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap_or_default();
    let points = rows.iter().map(|row| (number(row, x), number(row, y))).collect();
    Series { name: name.to_owned(), points }
}

fn remember_plot(rows: &[Value]) -> Plot {
    Plot {
        title: "Errors found by operations kept in a state".to_owned(),
        about: format!(
            "The log design with reuse-early and one-log, workloads of {}. A state is a tree up to \
             names and its last k operations: with none of them errors are missed.",
            DEPTH + 1
        ),
        x: "operations kept (k)".to_owned(),
        y: "properties violated".to_owned(),
        logarithmic: false,
        series: vec![series(rows, "properties violated", "kept", "violated")],
    }
}

fn isomorphism_plot(rows: &[Value]) -> Plot {
    let fewer = rows.last().and_then(|row| row["fewer_percent"].as_f64()).unwrap_or_default();
    Plot {
        title: "States with and without names".to_owned(),
        about: format!(
            "The log design without power failures: trees that differ only in names are one state. \
             {fewer:.2} % fewer states at the longest workload."
        ),
        x: "operations of a workload".to_owned(),
        y: "states".to_owned(),
        logarithmic: true,
        series: vec![
            series(rows, "all names", "length", "all"),
            series(rows, "up to names", "length", "up_to_names"),
        ],
    }
}
