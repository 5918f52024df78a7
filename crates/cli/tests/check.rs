//! `fathom check` as it is used: kernel file systems, votes, disks of findings, mistakes.

mod common;

use std::path::Path;

use common::{ask, json, scratch};
use serde_json::Value;

/// Prints the reason if this machine cannot mount.
fn can_mount(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt;
        meta.uid() == 0
    });
    let can = root && Path::new("/dev/loop-control").exists();
    if !can {
        println!("SKIP {test}: mounting needs root and loop devices");
    }
    can
}

#[test]
fn mistakes_are_named_with_exit_code_2() {
    let dir = scratch();
    let cases: &[(&[&str], &str)] = &[
        (&["check", "model", "--strategy", "bfs"], "tour, dfs, walk"),
        (&["check", "model", "--remount", "sometimes"], "p=0.01"),
        (&["check", "model", "--remount", "p=1.5"], "p=0.01"),
        (&["check", "model", "--back", "tape"], "cheapest, clone, ioctl, freeze, remount, replay"),
        (&["check", "model", "--back", "freeze", "--strategy", "dfs"], "cannot go back by freeze"),
        (&["check", "model", "--fsck", "0"], "is no number of operations"),
        (&["check", "model", "--moves", "0"], "need at least 1"),
        (&["check", "model", "--against", "model,ext5"], "unknown subject \"ext5\""),
        (&["check", "litlefs"], "did you mean littlefs"),
        (&["check", "design:journal"], "design:journal is known, but `fathom check` needs"),
        (&["crash", "tmpfs"], "tmpfs is known, but `fathom crash` needs a disk"),
        (&["crash", "model"], "model is known, but `fathom crash` needs a disk"),
        (&["check", "littlefs", "--space", "1M"], "--space is for kernel file systems"),
        (&["check", "model", "--map", "m", "--strategy", "walk"], "--strategy tour"),
        (&["check", "model", "--resume"], "--map"),
        (&["check", "model", "--map", "nowhere", "--resume", "--seed", "1"], "nowhere"),
        (&["check", "model", "--deadline", "0s"], "give at least 1ms"),
        (&["check", "model", "--every-tree", "--tree-every", "3"], "cannot be used with"),
    ];
    for (args, expected) in cases {
        let answer = ask(args, dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(expected), "{args:?} says {:?}", answer.err);
    }
}

#[test]
fn a_bounded_tour_ends_by_itself_and_can_be_gone_on_with() {
    let dir = scratch();
    let bounds = ["--depth", "3", "--moves", "5", "--seed", "1", "--json"];
    let whole = [&["check", "model"], &bounds[..]].concat();
    let (code, report) = json(&whole, dir.path());
    assert_eq!((code, &report["complete"]), (0, &Value::Bool(true)), "{report}");
    let part = [&["check", "model", "--states", "3", "--map", "m"], &bounds[..]].concat();
    assert_eq!(json(&part, dir.path()).1["complete"], false);
    let rest = [&["check", "model", "--map", "m", "--resume"], &bounds[..]].concat();
    let (_, rest) = json(&rest, dir.path());
    assert_eq!(
        (&rest["complete"], &rest["states_known"]),
        (&Value::Bool(true), &report["states_known"])
    );
}

/// A tour whose first moves change nothing, by chance, has not tried everything: with these seeds one move in
/// every state leads nowhere from the start.
#[test]
fn a_tour_leaves_the_start() {
    let dir = scratch();
    for seed in 1..=4 {
        let seed = seed.to_string();
        let args = ["check", "model", "--moves", "1", "--ops", "50", "--seed", &seed, "--json"];
        let (code, report) = json(&args, dir.path());
        assert_eq!(code, 0, "{report}");
        assert!(report["states"].as_u64() > Some(1), "{report}");
    }
}

#[test]
fn the_vote_names_the_mutant_among_real_file_systems() {
    if !can_mount("the_vote_names_the_mutant_among_real_file_systems") {
        return;
    }
    let dir = scratch();
    let against = "model,tmpfs,reffs:rename-nlink";
    let mut args = vec!["check", "ext4", "--against", against, "--first"];
    args.extend(["--budget", "60s", "--seed", "1", "--json"]);
    let (code, report) = json(&args, dir.path());
    assert_eq!(code, 1, "{report}");
    let vote = report["findings"][0]["vote"].as_str().unwrap_or_default();
    assert_eq!(vote, "reffs:rename-nlink is alone; as expected: ext4, tmpfs, model");
}

/// ext4 judged by a profile in which symbolic links are short is found guilty at the first long one:
/// a finding that every replay must show again.
#[test]
fn a_finding_on_a_disk_is_shown_again_from_the_newest_disk() {
    if !can_mount("a_finding_on_a_disk_is_shown_again_from_the_newest_disk") {
        return;
    }
    let dir = scratch();
    let config = "[check]\ndisk_every = 1\nshrink_seconds = 1\n";
    std::fs::write(dir.path().join("c.toml"), config).unwrap();
    std::fs::write(dir.path().join("wrong.toml"), "symlink_bytes_max = 58\n").unwrap();
    let mut args = vec!["check", "ext4", "--profile", "wrong.toml", "--config", "c.toml"];
    args.extend(["--first", "--seed", "2", "--budget", "60s", "--json"]);
    let (code, report) = json(&args, dir.path());
    let finding = &report["findings"][0];
    assert_eq!((code, finding["class"].as_str()), (1, Some("outcome")), "{report}");
    let id = finding["id"].as_str().unwrap();
    let disks = std::fs::read_dir(dir.path().join("fathom-out").join(id).join("disks")).unwrap();
    assert!((1..=10).contains(&disks.count()));
    let (code, replay) = json(&["replay", id, "--json"], dir.path());
    assert_eq!((code, replay["verdict"].as_str()), (0, Some("reproduced")), "{replay}");
    assert_eq!(replay["disk"]["tried"], 0, "{replay}");
    let text = ask(&["replay", id], dir.path()).out;
    assert!(text.contains("from its newest disk (before operation "), "{text}");
}

#[test]
fn every_way_back_and_every_policy_leave_ext4_as_the_model_has_it() {
    if !can_mount("every_way_back_and_every_policy_leave_ext4_as_the_model_has_it") {
        return;
    }
    let dir = scratch();
    let common = ["check", "ext4", "--seed", "1", "--json", "--ops"];
    let runs: [&[&str]; 6] = [
        &["2000", "--strategy", "dfs", "--back", "freeze"],
        &["600", "--strategy", "dfs", "--back", "remount", "--remount", "every-op", "--every-tree"],
        &["1000", "--strategy", "dfs", "--back", "replay", "--depth", "12"],
        &["3000", "--strategy", "tour", "--remount", "every 100", "--fsck", "every 500"],
        &["2000", "--strategy", "tour", "--remount", "p=0.02", "--every-tree"],
        &["3000", "--strategy", "walk", "--fsck", "1000"],
    ];
    for run in runs {
        let (code, report) = json(&[&common[..], run].concat(), dir.path());
        assert_eq!(
            (code, &report["findings"]),
            (0, &Value::Array(Vec::new())),
            "{run:?}: {report}"
        );
        assert!(report["ops"].as_u64() >= run[0].parse().ok(), "{run:?}: {report}");
        if run.contains(&"--fsck") {
            assert!(report["fscks"].as_u64() >= Some(2), "{run:?}: {report}");
        }
    }
}

#[test]
fn a_library_is_checked_in_process_and_not_accused() {
    let dir = scratch();
    for (strategy, seed) in [("walk", "1"), ("walk", "2"), ("tour", "3"), ("dfs", "4")] {
        let check = ["check", "littlefs", "--ops", "5000", "--strategy", strategy, "--seed", seed];
        let (code, report) = json(&[&check[..], &["--json"]].concat(), dir.path());
        assert_eq!(code, 0, "{strategy} {seed}: {report}");
        assert!(report["ops"].as_u64().is_some_and(|ops| ops >= 5000), "{report}");
        assert!(report["answers"].to_string().contains("ENOTEMPTY"), "errors are compared, too");
    }
}

#[test]
fn a_library_with_a_fault_is_found_and_replays() {
    let dir = scratch();
    let check = ["check", "littlefs", "--mutant", "lost-write", "--ops", "20000", "--seed", "1"];
    // Looking at open files writes, too, so that other writes are lost: what a remount shows does not
    // depend on when somebody looked, and a walk remounts.
    let walk = ["--strategy", "walk", "--first", "--json"];
    let (code, report) = json(&[&check[..], &walk].concat(), dir.path());
    assert_eq!(code, 1, "{report}");
    assert_eq!(report["subject"], "littlefs+lost-write");
    let id = report["findings"][0]["id"].as_str().expect("an id");
    let (code, replay) = json(&["replay", id, "--json"], dir.path());
    assert_eq!((code, &replay["verdict"]), (0, &Value::from("reproduced")), "{replay}");
    let (code, healthy) = json(&["replay", id, "--subject", "littlefs", "--json"], dir.path());
    assert_eq!(code, 1, "the fault is in the wrapper: {healthy}");
}

#[test]
fn limits_follow_from_what_was_made() {
    if !can_mount("limits_follow_from_what_was_made") {
        return;
    }
    let dir = scratch();
    let subjects = [
        ("ext4", "-b 1024", 1024, 1023),
        ("ext4", "-b 2048", 2048, 2047),
        ("xfs", "-b size=1024", 1024, 1023),
    ];
    for (subject, mkfs, block_bytes, symlink_bytes_max) in subjects {
        let check = ["check", subject, "--mkfs-opts", mkfs, "--json", "--seed", "1"];
        let (code, report) = json(&[&check[..], &["--ops", "2000"]].concat(), dir.path());
        assert_eq!(code, 0, "{subject} {mkfs}: {report}");
        assert_eq!(report["reference"]["block_bytes"], block_bytes, "{subject} {mkfs}");
        let found = &report["reference"]["quirks"]["symlink_bytes_max"];
        assert_eq!(*found, symlink_bytes_max, "{subject} {mkfs}");
    }
}
