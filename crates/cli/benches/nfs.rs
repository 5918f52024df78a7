//! `cargo xtask bench nfs`: checked operations and new states per second with the reference behind the
//! kernel's NFS server, against the same reference without NFS in the same guest. Needs a kernel with NFS
//! (FATHOM_GUEST_KERNEL); no root.

use std::process::Command;

use serde_json::Value;

/// Runs of each, alternating; the median counts.
const RUNS: usize = 3;
/// Time of one run.
const BUDGET: &str = "20s";

fn main() {
    if let Some(code) = fathom_guest::take_over() {
        std::process::exit(code);
    }
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        println!("SKIP bench nfs: set FATHOM_GUEST_KERNEL to a kernel with NFS");
        return;
    };
    let subjects = ["nfs:reffs", "nfs:ext4", "reffs"];
    let mut rates = subjects.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..RUNS {
        for (subject, rates) in subjects.iter().zip(&mut rates) {
            let value = check(subject, &kernel);
            let seconds = value["seconds"].as_f64().unwrap_or(1.0);
            let rate = |count: &str| value[count].as_f64().unwrap_or(0.0) / seconds;
            // Bugs of others cost them time; the reference has none.
            let is_clean = value["findings"].as_array().is_some_and(Vec::is_empty);
            assert!(is_clean || *subject == "nfs:ext4", "{}", value["findings"]);
            rates.0.push(rate("ops"));
            rates.1.push(rate("states"));
        }
    }
    println!("{:<12} {:>14} {:>14}", "in a guest", "operations/s", "states/s");
    let medians = rates.map(|(ops, states)| (median(ops), median(states)));
    for (subject, (ops, states)) in subjects.iter().zip(&medians) {
        println!("{subject:<12} {ops:>14.0} {states:>14.0}");
    }
    let value = serde_json::json!({
        "nfs_ops_per_s": medians[0].0.round(),
        "nfs_states_per_s": medians[0].1.round(),
        "nfs_ext4_ops_per_s": medians[1].0.round(),
        "ops_vs_reffs": (medians[0].0 / medians[2].0 * 1000.0).round() / 1000.0,
    });
    println!("{value}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn check(subject: &str, kernel: &str) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_fathom"))
        .args(["check", subject, "--guest", kernel, "--budget", BUDGET, "--seed", "1", "--json"])
        .current_dir(dir.path())
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}
