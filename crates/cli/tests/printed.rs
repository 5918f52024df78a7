//! The three workloads that the paper of layered workloads prints, call by call, on the reference and on file systems
//! of the kernel: all of them agree with the reference.

mod common;

use common::running::is_root;
use common::{json, scratch};

/// 672 calls of the first workload, of whose 4,096 levels paths reach 153; 4,101 of the second; 13 of the third.
const CALLS: u64 = 672 + 4101 + 13;

/// Room for four thousand directories on each of them.
const DISK: &str = "512M";

fn agrees(subject: &str, more: &[&str]) {
    let dir = scratch();
    let args = ["check", subject, "--workload", "printed", "--json"];
    let (code, report) = json(&[&args[..], more].concat(), dir.path());
    assert_eq!(code, 0, "{subject}: {report}");
    assert_eq!(report["ops"], CALLS, "{subject}: {report}");
    assert_eq!(report["episodes"], 3, "{subject}: {report}");
    assert_eq!(report["remounts"], 0, "nothing is done that is not printed: {report}");
    let largest = report["structure"].as_array().and_then(|samples| samples.last()).cloned();
    let largest = largest.expect("a sample");
    assert!(largest["depth"].as_u64() > Some(150), "{subject}: {largest}");
    println!("{subject}: {} calls, {} trees compared", report["ops"], report["trees_compared"]);
}

#[test]
fn the_printed_workloads_run_on_the_reference() {
    agrees("model", &[]);
}

#[test]
fn the_printed_workloads_run_here() {
    if !is_root() {
        return println!("SKIP the_printed_workloads_run_here: needs root");
    }
    for subject in ["tmpfs", "ext4", "xfs", "btrfs"] {
        agrees(subject, &["--disk", DISK]);
    }
}

#[test]
fn the_printed_workloads_run_in_guests() {
    let test = "the_printed_workloads_run_in_guests";
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        return println!(
            "SKIP {test}: set FATHOM_GUEST_KERNEL to a kernel with these file systems"
        );
    };
    for subject in ["ext4", "btrfs", "f2fs", "reiserfs", "jfs", "gfs2"] {
        if subject == "gfs2" && !is_program("mkfs.gfs2") {
            println!("{test}: gfs2 is left out: mkfs.gfs2 is not installed");
            continue;
        }
        agrees(subject, &["--disk", DISK, "--guest", &kernel]);
    }
}

fn is_program(name: &str) -> bool {
    ["/usr/sbin", "/sbin", "/usr/bin"]
        .iter()
        .any(|dir| std::path::Path::new(dir).join(name).exists())
}
