//! Whoever lies to a kernel file system about what is durable is found, with the right class: disks and calls
//! that lie here (root), mount options that make the file system careless in a guest (FATHOM_GUEST_KERNEL).

mod common;

use common::{json, running::is_root, scratch};

/// A file system, what lies to it, the levels at which that shows, and as what.
type Lie = (&'static str, [&'static str; 2], &'static str, &'static [&'static str]);

const DISKS: [Lie; 6] = [
    ("ext4", ["--mutant", "reorder-flush"], "linear,lost", &["lost_entry"]),
    ("ext4", ["--mutant", "drop-flush"], "linear,lost", &["unmountable", "lost_entry"]),
    ("xfs", ["--mutant", "reorder-flush"], "linear,lost", &["lost_entry"]),
    ("xfs", ["--mutant", "drop-flush"], "linear,lost", &["lost_entry", "unmountable"]),
    ("xfs", ["--mutant", "ignore-fsync"], "linear", &["lost_entry"]),
    ("btrfs", ["--mutant", "reorder-flush"], "linear,lost", &["lost_entry", "unmountable"]),
];

/// `data=writeback` is held to what `data=ordered` promises: that is what a user of ext4 reads.
const OPTIONS: [Lie; 3] = [
    ("ext4", ["--mount-opts", "barrier=0"], "linear,lost", &["unmountable", "lost_entry"]),
    ("btrfs", ["--mount-opts", "nobarrier"], "linear,lost", &["unmountable", "lost_entry"]),
    ("ext4", ["--mount-opts", "data=writeback,nodelalloc"], "linear", &["wrong_content"]),
];

/// Without the checker and the use of the disk: what is lost shows at the first look.
const LOOKING: [&str; 2] = ["--no-checker", "--no-probe"];

fn is_found((subject, lie, level, classes): &Lie, more: &[&str]) {
    let dir = scratch();
    let run = ["crash", subject, "--level", level, "--workload", "ace:1", "--first", "--json"];
    let (code, report) = json(&[&run[..], lie, more, &LOOKING].concat(), dir.path());
    assert_eq!(code, 1, "{subject} {lie:?}: {report}");
    let finding = &report["findings"][0];
    let class = finding["class"].as_str().expect("a class");
    assert!(classes.contains(&class), "{subject} {lie:?}: {finding}");
    assert_eq!(finding["reproduced"], true, "{subject} {lie:?}: {finding}");
}

fn is_clean(subject: &str, more: &[&str]) {
    let dir = scratch();
    let run = ["crash", subject, "--level", "linear,lost", "--workload", "ace:1", "--states", "8"];
    let (code, report) = json(&[&run[..], &LOOKING, more, &["--json"]].concat(), dir.path());
    assert_eq!(code, 0, "{subject}: {report}");
    assert!(report["crash_images"].as_u64() > Some(10), "{subject}: {report}");
}

#[test]
fn disks_and_calls_that_lie_are_found() {
    if !is_root() {
        return println!("SKIP disks_and_calls_that_lie_are_found: needs root");
    }
    for lie in &DISKS {
        is_found(lie, &["--ace-ops", "creat"]);
    }
    for subject in ["ext4", "xfs", "btrfs"] {
        is_clean(subject, &["--ace-ops", "creat"]);
    }
}

#[test]
fn careless_mount_options_are_found_in_a_guest() {
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        let test = "careless_mount_options_are_found_in_a_guest";
        return println!("SKIP {test}: set FATHOM_GUEST_KERNEL to a kernel");
    };
    for lie in &OPTIONS {
        is_found(lie, &["--guest", &kernel]);
    }
    for subject in ["ext4", "btrfs"] {
        is_clean(subject, &["--guest", &kernel]);
    }
}
