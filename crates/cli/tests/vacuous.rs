//! A run that has examined nothing says so and exits with 2, whichever command it is.

mod common;

use std::fs;
use std::path::Path;

use common::{ask, json, scratch};

/// Asks for people and for machines: exit code 2, and the reason in both.
#[track_caller]
fn says_nothing(args: &[&str], dir: &Path, reason: &str) {
    let answer = ask(args, dir);
    assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
    assert!(answer.err.contains(reason), "{args:?}: {}", answer.err);
    let (code, value) = json(&[args, &["--json"]].concat(), dir);
    assert_eq!(code, 2, "{args:?}: {value}");
    assert!(value["error"].as_str().is_some_and(|text| text.contains(reason)), "{args:?}: {value}");
    assert_eq!(value["complete"], false, "{args:?}");
}

#[test]
fn a_check_that_executed_nothing() {
    let dir = scratch();
    says_nothing(&["check", "model", "--ops", "0"], dir.path(), "checks nothing");
    for bound in ["--depth", "--moves", "--states"] {
        says_nothing(&["check", "model", bound, "0"], dir.path(), "nothing would be explored");
    }
    // Everything within the bounds was tried by the run before.
    let bounds = ["--depth", "1", "--moves", "1", "--seed", "1", "--map", "map"];
    let first = ask(&[&["check", "model"], &bounds[..]].concat(), dir.path());
    assert_eq!(first.code, 0, "{}{}", first.out, first.err);
    let again = [&["check", "model", "--resume"], &bounds[..]].concat();
    says_nothing(&again, dir.path(), "nothing was executed");
}

#[test]
fn a_crash_check_that_examined_no_image() {
    let dir = scratch();
    says_nothing(&["crash", "littlefs", "--depth", "0"], dir.path(), "depth");
    // In an empty file system there is nothing that could be removed.
    says_nothing(&["crash", "littlefs", "--steps", "rmdir"], dir.path(), "no crash image");
}

#[test]
fn a_design_in_which_no_step_was_taken() {
    let dir = scratch();
    says_nothing(&["design", "journal", "--depth", "0"], dir.path(), "no step was taken");
}

#[test]
fn a_trace_without_operations() {
    let dir = scratch();
    let found = ["check", "model:rmdir-errno", "--ops", "9000", "--seed", "1", "--first", "--json"];
    let (code, value) = json(&found, dir.path());
    assert_eq!(code, 1, "{value}");
    let id = value["findings"][0]["id"].as_str().expect("an id");
    let trace = fs::read_to_string(dir.path().join("fathom-out").join(id).join("minimal.jsonl"));
    let trace = trace.expect("a trace");
    let header = trace.lines().next().expect("a header").replace(r#""steps":1"#, r#""steps":0"#);
    fs::write(dir.path().join("empty.jsonl"), format!("{header}\n")).expect("written");
    let answer = ask(&["replay", "empty.jsonl"], dir.path());
    assert_eq!(answer.code, 2, "{}{}", answer.out, answer.err);
}

#[test]
fn a_command_that_touches_nothing_that_is_watched() {
    let Ok(watched) = tempfile::tempdir_in("/dev/shm") else {
        return println!("SKIP a_command_that_touches_nothing_that_is_watched: no /dev/shm");
    };
    let dir = scratch();
    let mount = watched.path().to_str().expect("text");
    let answer = ask(&["cover", "--mount", mount, "--", "/bin/true"], dir.path());
    assert_eq!(answer.code, 2, "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("this run says nothing"), "{}", answer.err);
}

/// What the parser refuses is said in the same way to machines.
#[test]
fn arguments_that_cannot_be_understood() {
    let dir = scratch();
    for args in [
        &["check"][..],
        &["check", "model", "--budget", "soon"],
        &["check", "model", "--no-such-option"],
        &["no-such-command"],
        &["crash", "littlefs", "--jobs", "many"],
        &["design", "journal", "--depth", "deep"],
        &["replay"],
        &["shrink"],
        &["cover"],
        &["list", "nothing"],
    ] {
        let answer = ask(&[args, &["--json"]].concat(), dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
        let value: serde_json::Value = serde_json::from_str(&answer.out)
            .unwrap_or_else(|_| panic!("{args:?}: {}", answer.out));
        assert!(value["error"].as_str().is_some_and(|text| text.len() > 10), "{args:?}: {value}");
        assert_eq!(value["complete"], false, "{args:?}");
        assert!(!answer.err.is_empty(), "{args:?}");
    }
    let help = ask(&["check", "--help", "--json"], dir.path());
    assert_eq!(help.code, 0, "{}", help.err);
}
