//! Exploring ext4: a tour against the discipline of Metis (depth first, unmounting and mounting
//! around every meta-operation, the whole tree compared after it).
//!
//! The same program, seed, operations and weights, on one processor; the three take turns, and the
//! medians count. The operations are those of Metis: five meta-operations and ten single calls.
//! Needs root. The last line is one JSON object.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Turns of each.
const ROUNDS: usize = 5;

/// Time of one turn.
const TURN: &str = "4s";

/// Metis's operations, in a namespace that keeps about 15 objects.
const CONFIG: &str = r#"
[names]
files = 3
dirs = 2
symlinks = 1
nodes = 1
depth_max = 2
entries_max = 15
long_percent = 0
[data]
io_bytes_max = 4096
offset_bytes_max = 16384
huge_percent = 0
[slots]
session_percent = 0
[odd]
percent = 5
[weights]
"#;

const METIS: [&str; 14] = [
    "open",
    "write",
    "chown",
    "fallocate",
    "truncate",
    "unlink",
    "mkdir",
    "rmdir",
    "chmod",
    "setxattr",
    "removexattr",
    "rename",
    "link",
    "symlink",
];

const OTHERS: [&str; 25] = [
    "close",
    "read",
    "pread",
    "pwrite",
    "lseek",
    "readlink",
    "mknod",
    "utimens",
    "getxattr",
    "listxattr",
    "stat",
    "getdents",
    "statfs",
    "access",
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "sync_file_range",
    "mmap_store",
    "mmap_load",
    "copy_file_range",
    "umask",
    "identity",
    "remount",
];

/// A way to explore.
struct Contender {
    name: &'static str,
    args: &'static [&'static str],
}

const CONTENDERS: [Contender; 3] = [
    Contender {
        name: "depth first, remount every meta-operation, whole tree",
        args: &["--strategy", "dfs", "--remount", "every-op", "--back", "remount", "--every-tree"],
    },
    Contender {
        name: "tour, whole tree after every operation",
        args: &["--strategy", "tour", "--remount", "never", "--every-tree"],
    },
    Contender {
        name: "tour, what was touched after every operation",
        args: &["--strategy", "tour", "--remount", "never"],
    },
];

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("metis.toml");
    let mut text = CONFIG.to_owned();
    METIS.iter().for_each(|call| text.push_str(&format!("{call} = 1\n")));
    OTHERS.iter().for_each(|call| text.push_str(&format!("{call} = 0\n")));
    std::fs::write(&config, text).expect("the configuration can be written");

    // Operations per second and new states per second, by contender and round.
    let mut rates = vec![Vec::new(); CONTENDERS.len()];
    let mut states = vec![Vec::new(); CONTENDERS.len()];
    for round in 0..ROUNDS {
        for (index, contender) in CONTENDERS.iter().enumerate() {
            let report = turn(contender, &config, dir.path(), round as u64 + 1);
            let per_second = |field: &str| {
                report[field].as_f64().unwrap_or(0.0) / report["seconds"].as_f64().unwrap_or(1.0)
            };
            rates[index].push(per_second("ops"));
            states[index].push(per_second("states_known"));
        }
    }
    println!(
        "{:56} {:>10} {:>8} {:>12}",
        "ext4 against the model, one processor", "ops/s", "ratio", "new states/s"
    );
    let base = median(&rates[0]);
    for (index, contender) in CONTENDERS.iter().enumerate() {
        let rate = median(&rates[index]);
        println!(
            "{:56} {rate:>10.0} {:>8.1} {:>12.0}",
            contender.name,
            rate / base,
            median(&states[index])
        );
    }
    println!(
        "{}",
        json!({
            "full_walk_vs_remount": median(&rates[1]) / base,
            "incremental_vs_remount": median(&rates[2]) / base,
            "incremental_ops_per_s": median(&rates[2]),
            "states_per_s": median(&states[2]),
            "remount_ops_per_s": base,
            "remount_states_per_s": median(&states[0]),
        })
    );
}

fn turn(contender: &Contender, config: &Path, out: &Path, seed: u64) -> Value {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", env!("CARGO_BIN_EXE_fathom"), "check", "ext4", "--json"]);
    command.args(["--seed", &seed.to_string(), "--budget", TURN, "--images", "0"]);
    command.args(contender.args).arg("--config").arg(config).arg("--out").arg(out);
    let output = command.output().expect("taskset (package util-linux) can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let report: Value = serde_json::from_str(last).unwrap_or_else(|_| {
        panic!("{}: {text}{}", contender.name, String::from_utf8_lossy(&output.stderr))
    });
    assert_eq!(report["findings"], json!([]), "{}: {report}", contender.name);
    report
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
