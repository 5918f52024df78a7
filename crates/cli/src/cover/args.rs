//! What was typed after `fathom cover`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct CoverArgs {
    #[command(subcommand)]
    pub(crate) action: Option<CoverAction>,

    /// Count calls on the file system of this directory; remounts there are followed. Can be given
    /// several times [default: the file system of the current directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) mount: Vec<PathBuf>,
    /// Watch a running process and its descendants instead of a command
    #[arg(long, value_name = "PID", group = "who")]
    pub(crate) pid: Option<i32>,
    /// Watch the processes of a control group (a directory of cgroup2) instead of a command
    #[arg(long, value_name = "DIR", group = "who")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Watch every process of the machine instead of a command
    #[arg(long, group = "who")]
    pub(crate) system: bool,
    /// Stop watching after this time [default: with --pid, --cgroup and --system when interrupted]
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration)]
    pub(crate) budget: Option<Duration>,
    /// Who watches: bpf and stream need privilege, ptrace none
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) tracer: Tracer,
    /// Write every call to a file too, as lines of JSON (needs bpf)
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: CoverOutput,

    /// The test tool with its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "who")]
    pub(crate) command: Vec<OsString>,
}

/// What is made of the counts; the same for traced and for imported calls.
#[derive(Debug, Args)]
pub(crate) struct CoverOutput {
    /// Partition amounts by the values around powers of two as well
    #[arg(long)]
    pub(crate) boundaries: bool,
    /// More partitions that no test can reach, with reasons (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) unreachable: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) forms: Forms,
}

/// In which forms a report is told, and what is demanded of it.
#[derive(Debug, Args)]
pub(crate) struct Forms {
    /// Print every partition, not only the summary
    #[arg(long)]
    pub(crate) full: bool,
    /// Write one self-contained page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write one line per partition
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the nested JSON of IOCov
    #[arg(long, value_name = "FILE")]
    pub(crate) iocov: Option<PathBuf>,
    /// Exit with 1 if fewer of the reachable partitions were exercised
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) fail_under: Option<f64>,
    /// Exit with 1 if this partition was not exercised: CALL.ARGUMENT.NAME or CALL.output.NAME
    #[arg(long, value_name = "PARTITION")]
    pub(crate) require: Vec<String>,
    /// Restrict completeness and --fail-under to these calls: names, or core, extended, mount,
    /// notify, async
    #[arg(long, value_name = "CALLS", value_delimiter = ',')]
    pub(crate) calls: Vec<String>,
    /// Where JSON goes: the file, or the last line of the output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tracer {
    /// The first of the others that works here
    Auto,
    /// Counted inside the kernel
    Bpf,
    /// The same with paths resolved in user space: for kernels on which bpf fails its self-test
    Stream,
    /// Stopped at every call; no privilege needed
    Ptrace,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CoverAction {
    /// Coverage of logs that other tools have written
    Import(ImportArgs),
    /// Show a report that was made earlier (the JSON of `fathom cover`, or `coverage.json` of a run
    /// of `fathom check` or `fathom crash`)
    Report(ShowArgs),
    /// Compare reports (the JSON of `fathom cover`) side by side
    Diff(DiffArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The logs; their counts are added up
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// What they are [default: guessed from the first lines]
    #[arg(long, value_enum)]
    pub(crate) format: Option<LogFormat>,
    /// Count only calls below this path of the traced machine. Can be given several times
    #[arg(long, value_name = "PATH")]
    pub(crate) mount: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: CoverOutput,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The report, or the directory of a run
    pub(crate) report: PathBuf,
    #[command(flatten)]
    pub(crate) output: Forms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// strace -f -y -X raw
    Strace,
    /// Text of babeltrace from LTTng
    Lttng,
    /// Programs of syzkaller (inputs only)
    Syzkaller,
    /// Sequence logs (inputs only) and output logs of Metis
    Metis,
    /// Calls recorded with --record
    Record,
    /// Traces of fathom itself
    Trace,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Two reports or more
    #[arg(required = true, num_args = 2..)]
    pub(crate) reports: Vec<PathBuf>,
    /// Write one self-contained page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write one line per partition, one column per report
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Where JSON goes: the file, or the last line of the output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<String>,
}

/// `70%`, `70` or `0.7`: a share from 0 to 1.
fn percent(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is no share: write for example 70%");
    let (number, whole) = match text.strip_suffix('%') {
        Some(number) => (number, true),
        None => (text, false),
    };
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let share = if whole || value > 1.0 { value / 100.0 } else { value };
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        assert_eq!(percent("70%"), Ok(0.7));
        assert_eq!(percent("70"), Ok(0.7));
        assert_eq!(percent("0.7"), Ok(0.7));
        assert_eq!(percent("1%"), Ok(0.01));
        for wrong in ["", "%", "-1%", "101%", "x"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
