//! `fathom crash` on file systems of the kernel. Needs root.

mod common;

use std::path::Path;

use serde_json::Value;

use common::{ask, copy_program, scratch};
use fathom_block::disks::StoredRecording;

fn json(args: &[&str], dir: &Path) -> (i32, Value) {
    common::json(&[args, &["--json"]].concat(), dir)
}

/// Whether file systems can be mounted here; says so if not.
fn can_mount(test: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    // The files of a process belong to its effective user (proc(5)).
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        println!("SKIP {test}: needs root");
    }
    root
}

/// A few workloads, looked at after each write. None of them moves a file and syncs its new directory, after which
/// btrfs can show both names (docs/CRASH.md).
const FEW: [&str; 8] =
    ["--workload", "ace:1", "--ace-ops", "rename,truncate", "--level", "linear", "--part", "1/4"];

#[test]
fn ace_is_counted_exported_and_imported() {
    let dir = scratch();
    let (code, counts) = json(&["crash", "ext4", "--workload", "ace:1", "--count"], dir.path());
    assert_eq!(code, 0);
    assert_eq!(counts["workloads"], 328);
    assert_eq!(counts["unique"], 316);
    assert_eq!(counts["unique_merged"], 300);
    let nested = ["crash", "--workload", "ace:1,nested", "--count"];
    assert_eq!(json(&nested, dir.path()).1["unique_merged"], 545);
    let export = ["crash", "--workload", "ace:1,demo", "--export-jlang", "files"];
    let answer = ask(&export, dir.path());
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{}", answer.out);
    let files = std::fs::read_dir(dir.path().join("files")).expect("a directory").count();
    assert!(answer.out.starts_with(&format!("{files} files")), "{}", answer.out);
    // Somebody else's workloads.
    if !can_mount("ace_is_counted_exported_and_imported") {
        return;
    }
    let import = ["crash", "ext4", "--workload", "jlang:files", "--level", "linear"];
    let (code, report) = json(&import, dir.path());
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["workloads"]["workloads"], files, "{report}");
    assert_eq!(report["workloads"]["not_followed"], 0, "{report}");
    assert!(report["crash_images"].as_u64() > Some(20), "{report}");
}

#[test]
fn mistakes_have_a_clear_error() {
    let dir = scratch();
    let wrong = |args: &[&str], word: &str| {
        let answer = ask(&[&["crash"], args].concat(), dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}", answer.out);
        assert!(answer.err.contains(word), "{args:?}: {}", answer.err);
    };
    wrong(&["ext4", "--workload", "ace:4"], "1, 2 or 3");
    wrong(&["ext4", "--workload", "ace:2,deep"], "nested or demo");
    wrong(&["ext4", "--workload", "stpes"], "there are steps, ops, layered, ace:1");
    wrong(&["ext4", "--part", "17/16"], "3/16");
    wrong(&["ext4", "--workload", "steps", "--part", "1/2"], "steps are searched");
    for strategy in ["bfs", "walk"] {
        let given = ["ext4", "--workload", "ops", "--strategy", strategy];
        wrong(&given, "--strategy orders the search of --workload steps");
    }
    wrong(&["ext4", "--profile", "ext5"], "unknown profile \"ext5\"");
    wrong(&["littlefs", "--profile", "ext4"], "--profile is for kernel file systems");
    wrong(&["ext4", "--ace-ops", "leap"], "ACE has no operation \"leap\"");
    wrong(&["ext4", "--promises", "ext5"], "ext4-journal");
    wrong(&["ext4", "--mutant", "drop-everything"], "drop-flush");
    wrong(&["littlefs", "--mount-opts", "x"], "kernel file systems");
    for workload in ["ace:1", "ops", "known"] {
        wrong(&["design:journal", "--workload", workload], "give --workload steps");
    }
    wrong(&["tmpfs"], "in memory");
    // A file system without a profile: says what it assumes, even if it is not there at all.
    wrong(&["minix"], "assuming posix");
    if can_mount("mistakes_have_a_clear_error") {
        let tiny = "[disk]\nimage_kib = 1024\n";
        let xfs = include_str!("../../subjects/profiles/crash/xfs.toml");
        let tiny = xfs.replace("[disk]\nimage_kib = 16384\n", tiny);
        std::fs::write(dir.path().join("tiny.toml"), tiny).expect("a file");
        wrong(&["xfs", "--promises", "tiny.toml"], "mkfs.xfs");
        wrong(&["ext4", "--mkfs-opts=-Z"], "mkfs.ext4");
        wrong(&["ext4", "--mount-opts", "no_such_option"], "no_such_option");
    }
}

/// `--profile` says what it says of `check`: quirks of the reference, or how the disk is made.
#[test]
fn a_profile_is_that_of_check() {
    if !can_mount("a_profile_is_that_of_check") {
        return;
    }
    let dir = scratch();
    let plan = |more: &[&str]| {
        let (code, plan) = json(&[&["crash", "ext4", "--dry-run"], more].concat(), dir.path());
        assert_eq!(code, 0, "{plan}");
        let reference =
            plan["guarantee"]["reference"]["is"].as_str().expect("a profile").to_owned();
        (plan["geometry"]["size_bytes"].as_u64(), reference)
    };
    let own = plan(&[]);
    assert_eq!(own, (Some(8 << 20), "ext4".to_owned()));
    assert_eq!(plan(&["--profile", "xfs"]), (own.0, "xfs".to_owned()));
    std::fs::write(dir.path().join("quirks.toml"), "inherits = \"ext4\"\nlink_max = 7\n")
        .expect("a file");
    let (size, reference) = plan(&["--profile", "quirks.toml"]);
    assert!(size == own.0 && reference.contains("link_max = 7"), "{reference}");
    let recipe = include_str!("../../subjects/profiles/kernel/ext4.toml");
    let recipe = recipe.replace("image_kib = 65536", "image_kib = 12288");
    std::fs::write(dir.path().join("recipe.toml"), recipe).expect("a file");
    assert_eq!(plan(&["--profile", "recipe.toml"]).0, Some(12 << 20));
    // What is found can be played again: the profile belongs to the name.
    let found =
        ["crash", "ext4", "--profile", "quirks.toml", "--mutant", "ignore-fsync", "--first"];
    let few = ["--level", "linear", "--ace-ops", "creat", "--no-checker", "--no-probe"];
    let (code, report) = json(&[&found[..], &few].concat(), dir.path());
    assert_eq!(
        (code, report["subject"].as_str()),
        (1, Some("ext4+ignore-fsync --profile=quirks.toml"))
    );
    let (code, replay) =
        json(&["replay", report["findings"][0]["id"].as_str().expect("an id")], dir.path());
    assert_eq!((code, replay["verdict"].as_str()), (0, Some("reproduced")), "{replay}");
}

/// Who is not root and names no guest is told of guests.
#[test]
fn without_root_and_guest_it_says_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    if !can_mount("without_root_and_guest_it_says_what_to_do") {
        return;
    }
    let dir = scratch();
    let public = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), public.clone()).expect("it is ours");
    // The program may be where nobody can go.
    let program = dir.path().join("fathom");
    copy_program(env!("CARGO_BIN_EXE_fathom").as_ref(), &program);
    std::fs::set_permissions(&program, public).expect("it is ours");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    let answer = command.args(["crash", "ext4"]).current_dir(dir.path()).output();
    let answer = answer.expect("setpriv of util-linux");
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(2), "{said}");
    assert!(said.contains("--guest KERNEL"), "{said}");
}

fn is_clean(name: &str) {
    if !can_mount(name) {
        return;
    }
    let dir = scratch();
    let (code, report) = json(&[&["crash", name], &FEW[..]].concat(), dir.path());
    assert_eq!(code, 0, "{report}");
    let states = report["crash_states"].as_u64().expect("a number");
    let images = report["crash_images"].as_u64().expect("a number");
    assert!(states > images && images > 5, "{report}");
}

#[test]
fn ext4_keeps_its_promises() {
    is_clean("ext4");
}

#[test]
fn xfs_keeps_its_promises() {
    is_clean("xfs");
}

#[test]
fn btrfs_keeps_its_promises() {
    is_clean("btrfs");
}

/// What lies is found, with the right class, and the recorded disk shows it again.
fn finds(subject: &str, more: &[&str], classes: &[&str]) {
    if !can_mount(subject) {
        return;
    }
    let dir = scratch();
    let few =
        ["--workload", "ace:1", "--ace-ops", "creat", "--first", "--no-checker", "--no-probe"];
    let args = [&["crash", subject], more, &few].concat();
    let (code, report) = json(&args, dir.path());
    assert_eq!(code, 1, "{args:?}: {report}");
    let finding = &report["findings"][0];
    let class = finding["class"].as_str().expect("a class");
    assert!(classes.contains(&class), "{args:?}: {finding}");
    assert_eq!(finding["reproduced"], true, "{finding}");
    let id = finding["id"].as_str().expect("an id");
    let found = dir.path().join("fathom-out").join(id);
    for file in ["recording.bin", "crash.img", "repro.sh", "xfstests.sh", "log-writes.bin"] {
        assert!(found.join(file).is_file(), "{file}");
    }
    let (code, replay) = json(&["replay", id], dir.path());
    assert_eq!((code, replay["verdict"].as_str()), (0, Some("reproduced")), "{replay}");
    let (code, said) = run_script(&found, &found.join("crash.img"));
    assert_eq!(code, Some(1), "{said}");
    // A recording that is damaged is refused.
    let stored = std::fs::read(found.join("recording.bin")).expect("a recording");
    for damaged in [&stored[..stored.len() / 2], &stored[1..], b"no recording"] {
        std::fs::write(found.join("recording.bin"), damaged).expect("written");
        let answer = ask(&["replay", id], dir.path());
        assert_eq!(answer.code, 2, "{} {}", answer.out, answer.err);
        assert!(answer.err.contains("recording.bin"), "{}", answer.err);
    }
    std::fs::write(found.join("recording.bin"), stored).expect("written");
    if more.contains(&"drop-flush") {
        // Everything was written; only the order was not kept.
        let recording = std::fs::read(found.join("recording.bin")).expect("a recording");
        let recording = StoredRecording::from_bytes(&recording).expect("of this version");
        let last = recording.segments.last().expect("a mount");
        let legal = found.join("legal.img");
        std::fs::write(&legal, last.recording.disk_after(&last.base).to_vec()).expect("written");
        let (code, said) = run_script(&found, &legal);
        assert_eq!(code, Some(0), "{said}");
    }
}

/// Runs the script of a finding on a disk.
fn run_script(found: &Path, disk: &Path) -> (Option<i32>, String) {
    let ran = std::process::Command::new("bash").arg(found.join("repro.sh")).arg(disk).output();
    let ran = ran.expect("a shell");
    let said = [ran.stdout, ran.stderr].concat();
    (ran.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_call_that_syncs_nothing_is_found_on_ext4() {
    finds("ext4", &["--mutant", "ignore-fsync", "--level", "linear"], &["lost_entry"]);
}

#[test]
fn a_disk_that_drops_flushes_is_found_on_btrfs() {
    let more = ["--mutant", "drop-flush", "--level", "lost"];
    finds("btrfs", &more, &["unmountable", "lost_entry", "unreadable"]);
}

/// Journal commits after 5 s and writeback after 30 s are crashed too: in a guest waiting takes no time.
#[test]
fn waiting_shows_what_the_kernel_writes_by_itself() {
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        println!("SKIP waiting_shows_what_the_kernel_writes_by_itself: set FATHOM_GUEST_KERNEL");
        return;
    };
    let dir = scratch();
    let states = |more: &[&str]| {
        let workloads = ["crash", "ext4", "--guest", &kernel, "--workload", "ace:1"];
        let levels = ["--ace-ops", "creat", "--level", "linear", "--no-probe", "--no-checker"];
        let end = ["--states", "6"];
        let (code, report) = json(&[&workloads[..], &levels, &end, more].concat(), dir.path());
        assert_eq!((code, &report["workloads"]["workloads"]), (0, &6.into()), "{report}");
        report["crash_states"].as_u64().expect("a number")
    };
    let (at_once, later) = (states(&[]), states(&["--wait", "40"]));
    assert!(later > at_once, "{later} states with waiting, {at_once} without");
}

/// f2fs loses what its first fsync after a checkpoint writes (docs/FOUND_BUGS.md), so that a lost file does not
/// show that barriers are switched off. Here the first fsync has nothing to lose, and the second one is sound.
const SECOND_FSYNC: &str = "# define\ntest\nfoo\nbar\n\n# declare\nlocal_checkpoint\n\n# setup\n\n\n# run\n\
    open foo O_RDWR|O_CREAT 0777\nsync\ncheckpoint 0\ntruncate foo 0\nfsync foo\ncheckpoint 1\n\
    open bar O_RDWR|O_CREAT 0777\nfsync bar\ncheckpoint 2\nclose foo\nclose bar\n";

/// Whoever lies to f2fs, and how that shows.
const LIES: [(&[&str], &str, &str); 4] = [
    (&["--mount-opts", "fsync_mode=nobarrier"], "epoch", "lost_entry"),
    (&["--mutant", "drop-flush"], "linear,lost", "unreadable"),
    (&["--mutant", "reorder-flush"], "linear,lost", "lost_entry"),
    (&["--mutant", "ignore-fsync"], "linear,lost", "lost_entry"),
];

#[test]
fn lies_are_told_from_f2fs() {
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        println!("SKIP lies_are_told_from_f2fs: set FATHOM_GUEST_KERNEL");
        return;
    };
    let dir = scratch();
    std::fs::write(dir.path().join("second-fsync"), SECOND_FSYNC).expect("a file");
    let run = |level: &str, more: &[&str]| {
        let workload = ["crash", "f2fs", "--guest", &kernel, "--workload", "jlang:second-fsync"];
        let levels = ["--level", level, "--no-probe", "--no-checker"];
        json(&[&workload[..], &levels, more].concat(), dir.path())
    };
    for level in ["epoch", "linear,lost"] {
        let (code, report) = run(level, &[]);
        assert_eq!((code, &report["workloads"]["workloads"]), (0, &1.into()), "{report}");
    }
    for (lie, level, class) in LIES {
        let (code, report) = run(level, lie);
        assert_eq!(code, 1, "{lie:?}: {report}");
        assert_eq!(report["findings"][0]["class"], class, "{lie:?}: {report}");
    }
}
