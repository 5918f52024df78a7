//! `fathom check --callers` and `--workload layered` as people use them.

mod common;

use std::fs;

use common::running::is_root;
use common::{ask, json, scratch};

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
        let args = ["check", "ext4", "--callers", "4", "--ops", "800", "--guest", &kernel];
        let more = ["--seed", seed, "--disk-delay", delay, "--json"];
        let (code, report) = json(&[&args[..], &more].concat(), dir.path());
        assert_eq!(code, 0, "{report}");
        assert!(report["ops"].as_u64() >= Some(800) && report["remounts"].as_u64() > Some(0));
        let histories = report["histories"].as_str().expect("a digest").to_owned();
        (histories, report["overlaps"].as_u64().unwrap_or_default())
    };
    let first = run("5", "0");
    assert_eq!(run("5", "0"), first);
    assert_ne!(run("6", "0"), first);
    // Requests to the disk that take their time are another schedule, with more calls that overlap.
    let late = run("5", "50");
    assert_eq!(run("5", "50"), late);
    assert!(late.0 != first.0 && late.1 > first.1, "{late:?} {first:?}");
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
    let table: [(&[&str], &str); 9] = [
        (&["--callers", "0"], "at least 1 and at most 64"),
        (&["--callers", "65"], "at least 1 and at most 64"),
        (&["--callers", "many"], "is no number of callers"),
        (&["--callers", "2", "--theme", "weather"], "give one of data, names"),
        (&["--theme", "data"], "--callers"),
        (&["--workload", "layered:dogfod"], "give one of default, dogfood"),
        (&["--workload", "onions"], "give ops or layered"),
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
