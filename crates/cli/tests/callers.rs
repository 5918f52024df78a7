//! `fathom check --callers` and `--workload layered` as people use them.

mod common;

use std::fs;

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
