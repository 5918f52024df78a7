//! `fathom check --callers` and `--workload layered` as people use them.

mod common;

use std::fs;

use common::running::is_root;
use common::{ask, command, json, scratch};

#[test]
fn the_reference_is_explained_and_a_race_is_found_and_repeated() {
    let dir = scratch();
    let clean = ["check", "model", "--callers", "4", "--ops", "3000", "--seed", "1", "--json"];
    let (code, report) = json(&clean, dir.path());
    assert_eq!(code, 0, "{report}");
    assert!(report["ops"].as_u64() >= Some(3000) && report["overlaps"].as_u64() > Some(0));

    let racy = ["check", "model:race-create", "--callers", "4", "--budget", "60s", "--first"];
    let (code, report) = json(&[&racy[..], &["--seed", "1", "--json"]].concat(), dir.path());
    assert_eq!(code, 1, "{report}");
    let id = report["findings"][0]["id"].as_str().expect("an id");
    assert_eq!(report["findings"][0]["class"], "no_order");
    let found = dir.path().join("fathom-out").join(id);
    for file in ["round.json", "history.jsonl", "history.txt", "timeline.txt", "last.tree"] {
        assert!(found.join(file).is_file(), "{file}");
    }
    let drawn = fs::read_to_string(found.join("timeline.txt")).expect("a timeline");
    assert!(drawn.contains("caller ") && drawn.contains("has no place"), "{drawn}");
    let (code, again) = json(&["replay", id, "--json"], dir.path());
    assert_eq!(code, 0, "{again}");
    assert!(again["shown"].as_u64() > Some(0) && again["runs"].as_u64() >= again["shown"].as_u64());
}

/// File systems that Linux does not promise everything of are not accused of what it does not promise.
#[test]
fn file_systems_here_are_explained() {
    if !is_root() {
        return println!("SKIP file_systems_here_are_explained: needs root");
    }
    let dir = scratch();
    for (subject, ops) in [("tmpfs", "12000"), ("reffs", "2500")] {
        let args = ["check", subject, "--callers", "4", "--ops", ops, "--seed", "1", "--json"];
        let (code, report) = json(&args, dir.path());
        assert_eq!(code, 0, "{report}");
        assert!(report["overlaps"].as_u64() > Some(100), "{report}");
        assert_eq!(report["unknown"], 0, "{report}");
    }
}

/// What is relaxed for file systems behind the kernel's cache does not hide the race that the server has.
#[test]
fn a_race_of_a_server_is_found_through_the_kernel() {
    if !is_root() {
        return println!("SKIP a_race_of_a_server_is_found_through_the_kernel: needs root");
    }
    let dir = scratch();
    let args = [
        "check",
        "reffs:race-xattr",
        "--callers",
        "4",
        "--theme",
        "attributes",
        "--budget",
        "120s",
        "--first",
    ];
    let (code, report) = json(&[&args[..], &["--seed", "1", "--json"]].concat(), dir.path());
    assert_eq!(code, 1, "{report}");
    assert_eq!(report["findings"][0]["class"], "no_order", "{report}");
}

/// In a guest with time travel who runs when follows from the seed alone: every call is invoked, returns and
/// answers as in the boot before.
#[test]
fn a_seed_is_one_order_of_calls_in_a_guest() {
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        let test = "a_seed_is_one_order_of_calls_in_a_guest";
        return println!("SKIP {test}: set FATHOM_GUEST_KERNEL to a kernel with time travel");
    };
    let dir = scratch();
    let run = |seed: &str, delay: &str| {
        let args = ["check", "ext4", "--callers", "4", "--ops", "1600", "--guest", &kernel];
        let more = ["--seed", seed, "--disk-delay", delay, "--json"];
        let (code, report) = json(&[&args[..], &more].concat(), dir.path());
        assert_eq!(code, 0, "{report}");
        assert!(report["ops"].as_u64() >= Some(1600) && report["remounts"].as_u64() > Some(0));
        let histories = report["histories"].as_str().expect("a digest").to_owned();
        (histories, report["overlaps"].as_u64().unwrap_or_default())
    };
    let first = run("5", "0");
    for _ in 0..2 {
        assert_eq!(run("5", "0"), first);
    }
    let others = [run("6", "0"), run("7", "0")];
    assert!(others[0].0 != first.0 && others[1].0 != first.0 && others[0].0 != others[1].0);
    // Requests to the disk that take their time are another schedule, with more calls that overlap.
    let late = run("5", "50");
    assert_eq!(run("5", "50"), late);
    assert!(late.0 != first.0 && late.1 > first.1, "{late:?} {first:?}");
}

/// What was found in a guest is shown again by every boot of its replay, in the same way.
#[test]
fn two_boots_of_a_replay_go_the_same_way() {
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        let test = "two_boots_of_a_replay_go_the_same_way";
        return println!("SKIP {test}: set FATHOM_GUEST_KERNEL to a kernel with time travel");
    };
    let dir = scratch();
    let racy = ["check", "model:race-append", "--callers", "4", "--ops", "4000", "--first"];
    let args = [&racy[..], &["--seed", "1", "--guest", &kernel, "--json"]].concat();
    let (code, report) = json(&args, dir.path());
    assert_eq!(code, 1, "{report}");
    let id = report["findings"][0]["id"].as_str().expect("an id");
    let boot = || json(&["replay", id, "--guest", &kernel, "--json"], dir.path());
    let (code, first) = boot();
    assert!(code == 0 && first["shown"].as_u64() > Some(0), "{first}");
    assert_eq!(first["same_every_time"], true, "{first}");
    assert_eq!(boot(), (code, first));
}

/// Options that do not go together are learned and counted; the run goes on with some that do.
#[test]
fn options_that_are_refused_are_counted_and_the_run_goes_on() {
    let test = "options_that_are_refused_are_counted_and_the_run_goes_on";
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        return println!("SKIP {test}: set FATHOM_GUEST_KERNEL to a kernel with ext4");
    };
    let dir = scratch();
    let learned = dir.path().join("fathom-out/refused-options.json");
    for seed in 1..=8 {
        let seed = seed.to_string();
        let args = ["check", "ext4", "--options", "random", "--ops", "20", "--guest", &kernel];
        let (code, report) = json(&[&args[..], &["--seed", &seed, "--json"]].concat(), dir.path());
        assert_ne!(code, 2, "{report}");
        assert!(report["subject"].as_str().is_some_and(|name| name.contains("-opts=")), "{report}");
    }
    let text = fs::read_to_string(learned).expect("some combination was refused");
    assert!(text.contains("ext4"), "{text}");
}

/// Options with which nothing can be made: the command ends, and says how many were refused.
#[test]
fn options_that_never_mount_end_the_run() {
    if !is_root() {
        return println!("SKIP options_that_never_mount_end_the_run: needs root");
    }
    use std::os::unix::fs::PermissionsExt;
    let dir = scratch();
    // A formatting program that refuses everything; so nothing is mounted here.
    let programs = dir.path().join("programs");
    fs::create_dir(&programs).expect("a directory");
    let refuses = programs.join("mkfs.jfs");
    fs::write(&refuses, "#!/bin/sh\necho unknown option >&2\nexit 1\n").expect("a file");
    fs::set_permissions(&refuses, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = std::env::var("PATH").unwrap_or_default();
    let args = ["check", "jfs", "--options", "random", "--on-host", "--ops", "20", "--seed", "1"];
    let run = || {
        let mut command = command(&args, dir.path());
        let command = command.env("PATH", format!("{}:{path}", programs.display()));
        let answer = command.output().expect("the program starts");
        (answer.status.code(), String::from_utf8_lossy(&answer.stderr).into_owned())
    };
    let (code, first) = run();
    assert_eq!(code, Some(2), "{first}");
    assert!(first.contains("no combination of options works"), "{first}");
    let refused = |text: &str| {
        let words: Vec<&str> = text.split(' ').collect();
        let at = words.iter().position(|word| *word == "works:").expect("how many");
        words[at + 1].parse::<u64>().expect("a number")
    };
    assert!(refused(&first) >= 1, "{first}");
    // By now all of them are known.
    let (code, second) = run();
    assert!(code == Some(2) && refused(&second) < refused(&first), "{second}");
}

/// The power fails during a layered workload of a file system that keeps its promises.
#[test]
fn the_power_fails_during_layered_workloads() {
    if !is_root() {
        return println!("SKIP the_power_fails_during_layered_workloads: needs root");
    }
    let dir = scratch();
    let args = ["crash", "ext4", "--workload", "layered", "--level", "linear", "--seed", "1"];
    let (code, report) = json(&[&args[..], &["--budget", "20s", "--json"]].concat(), dir.path());
    assert_eq!(code, 0, "{report}");
    assert!(report["crash_states"].as_u64() > Some(100), "{report}");
}

/// A swarm plan takes them as `check` does: its tasks are commands with a preset and a seed each.
#[test]
fn a_swarm_executes_layered_workloads() {
    let dir = scratch();
    let plan = "tasks = 3\n[limits]\ncpus = 1\nmemory = \"256M\"\nat_once = 2\n[[campaign]]\n\
        command = \"check model --mutant mkdir-nlink --workload layered --ops 3000\"\n";
    fs::write(dir.path().join("plan.toml"), plan).expect("a file");
    let (code, dry) = json(&["swarm", "plan.toml", "--dry-run", "--json"], dir.path());
    assert_eq!(code, 0, "{dry}");
    let lines: Vec<&str> =
        dry["tasks"].as_array().expect("tasks").iter().filter_map(|line| line.as_str()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.contains("--workload layered")), "{lines:?}");
    let swarm = ask(&["swarm", "plan.toml", "--out", "swarm"], dir.path());
    assert_eq!(swarm.code, 1, "{} {}", swarm.out, swarm.err);
    let (_, status) = json(&["swarm", "status", "--out", "swarm", "--json"], dir.path());
    assert_eq!(status["runs"], 3, "{status}");
    assert_eq!(status["findings"].as_array().map(Vec::len), Some(1), "{status}");
    let refused = plan.replace("layered", "layered:dogfod");
    fs::write(dir.path().join("plan.toml"), refused).expect("a file");
    let refused = ask(&["swarm", "plan.toml", "--dry-run"], dir.path());
    assert!(refused.code == 2 && refused.err.contains("dogfood-b3"), "{}", refused.err);
}

#[test]
fn layered_workloads_are_executed_and_a_mutant_is_found() {
    let dir = scratch();
    let clean = ["check", "model", "--workload", "layered", "--ops", "4000", "--seed", "1"];
    let (code, report) = json(&[&clean[..], &["--json"]].concat(), dir.path());
    assert_eq!(code, 0, "{report}");
    let last = report["structure"].as_array().and_then(|samples| samples.last());
    assert!(last.is_some_and(|sample| sample["depth"].as_u64() > Some(1)), "{report}");
    let wrong =
        ["check", "model:mkdir-nlink", "--workload", "layered", "--ops", "20000", "--first"];
    let (code, report) = json(&[&wrong[..], &["--seed", "1", "--json"]].concat(), dir.path());
    assert_eq!(code, 1, "{report}");
    assert!(report["findings"][0]["ops"].as_u64() <= Some(2), "{report}");
}

#[test]
fn what_cannot_be_done_is_refused_with_the_next_step() {
    let dir = scratch();
    let table: [(&[&str], &str); 11] = [
        (&["--callers", "0"], "at least 1 and at most 64"),
        (&["--callers", "65"], "at least 1 and at most 64"),
        (&["--callers", "many"], "is no number of callers"),
        (&["--callers", "2", "--theme", "weather"], "give one of data, names"),
        (&["--theme", "data"], "--callers"),
        (&["--callers", "2", "--schedules", "0"], "1..=1000"),
        (&["--schedules", "2"], "--callers"),
        (&["--workload", "layered:dogfod"], "give one of default, dogfood"),
        (&["--workload", "onions"], "give ops, layered or printed"),
        (&["--workload", "layered", "--callers", "2"], "leave one of them out"),
        (&["--callers", "2", "--against", "model,reffs"], "leave --against out"),
    ];
    for (args, expected) in table {
        let answer = ask(&[&["check", "model"], args].concat(), dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(expected), "{args:?}: {}", answer.err);
    }
    let unknown = ask(&["check", "model:race-apend", "--callers", "2"], dir.path());
    assert!(unknown.code == 2 && unknown.err.contains("list mutants"), "{}", unknown.err);
    let served = ask(&["check", "reffs:race-append", "--callers", "2"], dir.path());
    assert!(served.code == 2 && served.err.contains("use model:race-append"), "{}", served.err);
    let crash = ask(&["crash", "littlefs", "--workload", "layered:no"], dir.path());
    assert!(crash.code == 2 && crash.err.contains("there is no preset"), "{}", crash.err);
}
