//! The program as people and machines use it: its text, its JSON, its exit codes.

mod common;
#[path = "../../core/tests/common/golden.rs"]
mod golden;

use std::process::Stdio;

use common::{ask, command, json, scratch};
use fathom_core::{Op, Trace};
use golden::assert_golden;
use serde_json::Value;

#[test]
fn the_short_help_fits_one_screen() {
    let answer = ask(&["-h"], scratch().path());
    assert_eq!(answer.code, 0);
    assert!(answer.out.lines().count() <= 32, "{}", answer.out);
    assert_golden("help.txt", &answer.out);
}

#[test]
fn every_mistake_has_a_clear_error_and_exit_code_2() {
    let dir = scratch();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    std::fs::write(dir.path().join("bad.toml"), "[odd]\npercnt = 1\n").unwrap();
    std::fs::write(dir.path().join("new.jsonl"), "{\"fathom_trace\":999}\n").unwrap();
    std::fs::write(dir.path().join("damaged.jsonl"), "not a trace\n").unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["check", "ext5"], "`fathom list subjects` shows all, dir:PATH is any directory"),
        (&["check", "dir"], "write dir:PATH"),
        (&["check", "dir:nowhere"], "nowhere"),
        (&["check", "dir:file"], "not a directory"),
        (&["check", "model", "--mutant", "rename-nlnk"], "did you mean rename-nlink"),
        (&["check", "model:rename-nlnk"], "did you mean rename-nlink"),
        (&["check", "dir:nowhere", "--mutant", "rename-nlink"], "has no mutants"),
        (&["check", "model", "--profile", "ext44"], "did you mean ext4"),
        (&["check", "model", "--config", "nowhere.toml"], "cannot read nowhere.toml"),
        (&["check", "model", "--config", "bad.toml"], "percnt"),
        (&["check", "ext5"], "did you mean ext"),
        (&["check", "model", "--seed", "-1"], "is no seed: give a whole number from 0 to"),
        (&["check", "model", "--ops", "0"], "give at least 1"),
        (&["check", "model", "--budget", "0s"], "give at least 1ms"),
        (&["check", "model", "--budget", "soon"], "write for example 30s"),
        (&["check", "model", "--tree-every", "0"], "check.tree_every cannot be 0"),
        (&["check", "model", "--ops", "5", "--budget", "5s"], "cannot be used with"),
        (&["replay", "c0ffee"], "no file, no directory and no finding"),
        (&["replay", "new.jsonl"], "use a newer fathom"),
        (&["replay", "damaged.jsonl"], "line 1 of the trace is damaged"),
        (&["replay", "."], "not a finding"),
        (&["shrink", "c0ffee"], "no file, no directory and no finding"),
        (&["export", "c0ffee", "--c"], "no file, no directory and no finding"),
        (&["export", "new.jsonl"], "--c|--shell"),
        (&["mount", "nowhere"], "does not exist"),
        (&["mount", "file"], "is not a directory"),
        (&["mount", "."], "is not empty: give an empty directory"),
        (&["mount", ".", "-o", "noatme"], "did you mean noatime?"),
        (&["mount", ".", "-o", "capacity=many"], "capacity=many: no number"),
        (&["report", "--mail"], "required"),
        (&["mount", ".", "--capacity", "0"], "give at least 1"),
        (&["mount", ".", "--block-bytes", "5"], "use 512, 1024, 2048 or 4096"),
        (&["mount", ".", "--mutant", "nope"], "unknown mutant"),
        (&["snapshot", "save", ".", "1"], "not on a mount"),
        (&["list", "everything"], "possible values"),
        (&["frobnicate"], "unrecognized subcommand"),
    ];
    for (args, expected) in cases {
        let answer = ask(args, dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(expected), "{args:?} says {:?}", answer.err);
        assert_eq!(answer.out, "", "{args:?}");
    }
}

#[test]
fn the_end_of_a_check_is_five_lines() {
    let dir = scratch();
    let answer = ask(&["check", "model", "--ops", "2000", "--seed", "1"], dir.path());
    assert_eq!((answer.code, answer.out.lines().count()), (0, 5), "{}", answer.out);
}

#[test]
fn manual_pages_and_completions_come_from_the_one_definition() {
    let dir = scratch();
    for (shell, words) in [("bash", "_fathom"), ("zsh", "#compdef fathom"), ("fish", "complete -c")]
    {
        let answer = ask(&["completions", shell], dir.path());
        assert_eq!(answer.code, 0, "{}", answer.err);
        assert!(answer.out.contains(words) && answer.out.contains("snapshot"), "{shell}");
    }
    let answer = ask(&["man", "man1"], dir.path());
    assert_eq!(answer.code, 0, "{}", answer.err);
    for (page, words) in [
        ("fathom.1", "fathom\\-check"),
        ("fathom-check.1", "remount"),
        ("fathom-cover-diff.1", "fathom"),
    ] {
        let text = std::fs::read_to_string(dir.path().join("man1").join(page)).expect(page);
        assert!(text.starts_with(".ie") || text.contains(".TH"), "{page}: {text}");
        assert!(text.contains(words), "{page} does not mention {words}");
    }
}

/// A trace and a finding that somebody else sent.
#[test]
fn what_came_from_elsewhere_neither_runs_commands_nor_leaves_the_directory() {
    let dir = scratch();
    let args = ["check", "model:rename-nlink", "--seed", "1", "--first", "--out", "out"];
    assert_eq!(ask(&args, dir.path()).code, 1);
    let out = dir.path().join("out");
    let entries = std::fs::read_dir(&out).expect("the run has a directory").flatten();
    let finding = entries.map(|entry| entry.path()).find(|path| path.is_dir()).expect("a finding");
    let mail = ask(&["report", finding.to_str().unwrap(), "--mail"], dir.path());
    assert_eq!(mail.code, 0, "{}", mail.err);
    assert!(mail.out.lines().skip(1).all(|line| line.chars().count() <= 72), "{}", mail.out);
    assert!(mail.out.contains("Expected and found:"), "{}", mail.out);

    let minimal = std::fs::read(finding.join("minimal.jsonl")).expect("a trace");
    let mut trace = Trace::read(&minimal[..]).expect("a whole trace");
    let write = |name: &str, trace: &Trace| {
        let file = std::fs::File::create(dir.path().join(name)).expect("a file");
        trace.write(file).expect("it can be written");
    };
    trace.header.subject = "fuse:touch pwned; false {mnt}".to_owned();
    write("foreign.jsonl", &trace);
    let answer = ask(&["replay", "foreign.jsonl"], dir.path());
    assert_eq!(answer.code, 2, "{}", answer.out);
    assert!(answer.err.contains("add --trust"), "{}", answer.err);
    assert!(!dir.path().join("pwned").exists());
    let answer = ask(&["replay", "foreign.jsonl", "--subject", "model:rename-nlink"], dir.path());
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);

    trace.steps[0].op = Op::Unlink { path: "d/../../precious".into() };
    write("leaving.jsonl", &trace);
    for language in ["--c", "--shell"] {
        let answer = ask(&["export", "leaving.jsonl", language], dir.path());
        assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{}", answer.err);
        assert!(answer.err.contains("operation 1 leaves the directory"), "{}", answer.err);
    }
}

#[test]
fn a_clean_check_ends_with_0_and_counts() {
    let dir = scratch();
    let args = ["check", "model", "--ops", "3000", "--seed", "1", "--json"];
    let (code, report) = json(&args, dir.path());
    assert_eq!((code, report["ops"].as_u64(), report["seed"].as_u64()), (0, Some(3000), Some(1)));
    assert_eq!(report["findings"], serde_json::json!([]));
    for key in ["states", "remounts", "seconds"] {
        assert!(report[key].is_number(), "{key}: {report}");
    }
    let recorded = std::fs::read_dir(dir.path().join("fathom-out")).unwrap();
    let mut names: Vec<_> = recorded.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let expected = ["coverage.json", "run.json", "states.sketch"];
    assert_eq!(names, expected, "there are no findings to record");
}

#[test]
fn a_directory_of_the_host_is_checked_without_a_trace_of_it() {
    let dir = scratch();
    let target = dir.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let args = ["check", "dir:target", "--ops", "2000", "--seed", "1"];
    let answer = ask(&args, dir.path());
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    assert!(answer.out.contains("every answer and every tree as expected"), "{}", answer.out);
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_finding_is_told_recorded_replayed_shrunk_and_exported() {
    let dir = scratch();
    let check = ["check", "model", "--mutant", "rmdir-errno", "--ops", "9000", "--seed", "1"];
    let answer = ask(&check, dir.path());
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    let id = answer.out.split_whitespace().nth(1).unwrap().trim_end_matches(':').to_owned();
    let recorded =
        std::fs::read_to_string(dir.path().join(format!("fathom-out/{id}/finding.toml")));
    let recorded: toml::Table = toml::from_str(&recorded.unwrap()).unwrap();
    let told = format!("{}files:  fathom-out/{id}\n", recorded["story"].as_str().unwrap());
    assert!(answer.out.starts_with(&told), "{}", answer.out);
    assert!(told.contains(&format!("replay: fathom replay {id}\n")), "{told}");

    let replay = ask(&["replay", &id], dir.path());
    assert_eq!(replay.code, 0, "{}", replay.err);
    assert!(replay.out.contains("reproduced on model:rmdir-errno"), "{}", replay.out);
    let (code, value) = json(&["replay", &id[..6], "--subject", "model", "--json"], dir.path());
    assert_eq!((code, value["verdict"].as_str()), (1, Some("not_reproduced")));
    let full = ask(&["replay", &format!("fathom-out/{id}"), "--full"], dir.path());
    assert_eq!(full.code, 0, "{}", full.err);

    let shrink = ask(&["shrink", &id, "--budget", "1s"], dir.path());
    assert_eq!(shrink.code, 1, "{}", shrink.err);

    let export = ask(&["export", &id, "--c", "-o", "repro.c"], dir.path());
    assert_eq!((export.code, export.out.as_str()), (0, ""), "{}", export.err);
    assert!(std::fs::read_to_string(dir.path().join("repro.c")).unwrap().contains("int main"));
    let export = ask(&["export", &id, "--shell"], dir.path());
    assert!(export.out.starts_with("#!"), "{}", export.out);
}

#[test]
fn the_same_seed_gives_the_same_finding() {
    let ids: Vec<Value> = [scratch(), scratch()]
        .iter()
        .map(|dir| {
            let args = ["check", "model:rename-nlink", "--ops", "9000", "--seed", "7", "--json"];
            json(&args, dir.path()).1["findings"][0]["id"].clone()
        })
        .collect();
    assert!(ids[0].is_string());
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn a_dry_run_prints_the_plan_and_does_nothing() {
    let dir = scratch();
    let answer = ask(&["check", "model", "--dry-run", "--budget", "2s", "--seed", "5"], dir.path());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let plan: toml::Table = toml::from_str(&answer.out).expect("the plan is TOML");
    assert_eq!(plan["seed"].as_integer(), Some(5));
    assert_eq!(plan["budget_seconds"].as_float(), Some(2.0));
    assert!(plan["reference"]["quirks"].is_table());
}

#[test]
fn lists_are_complete_in_text_and_json() {
    let dir = scratch();
    let (code, mutants) = json(&["list", "mutants", "--json"], dir.path());
    let mutants = mutants.as_array().unwrap();
    assert_eq!(code, 0);
    assert!(mutants.len() >= 30);
    for mutant in mutants {
        for key in ["name", "description", "inspired_by"] {
            assert!(mutant[key].as_str().is_some_and(|text| !text.is_empty()), "{mutant}");
        }
    }
    let (_, subjects) = json(&["list", "subjects", "--json"], dir.path());
    let model = subjects.as_array().unwrap().iter().find(|row| row["name"] == "model").unwrap();
    assert_eq!(model["missing"], serde_json::json!([]));
    let row = |name: &str| subjects.as_array().unwrap().iter().find(|row| row["name"] == name);
    let littlefs = row("littlefs").unwrap();
    assert_eq!(littlefs["commands"], serde_json::json!(["check", "crash"]));
    assert_eq!(littlefs["offers"]["operations"].as_array().unwrap().len(), 13);
    let ext4 = row("ext4").unwrap();
    assert_eq!(ext4["commands"], serde_json::json!(["check", "crash"]));
    let tmpfs = row("tmpfs").unwrap();
    assert!(tmpfs["lacks"]["crash"].as_str().is_some_and(|text| text.contains("in memory")));
    assert_eq!(ext4["needs"][1], "Linux 5.2 (fsmount)");
    assert_eq!(row("design:journal").unwrap()["commands"], serde_json::json!(["crash"]));
    let (_, ops) = json(&["list", "ops", "--json"], dir.path());
    assert_eq!(ops.as_array().unwrap().len(), 43);
    let mutants = ask(&["list", "mutants"], dir.path()).out;
    assert!(mutants.contains("\nforget-stable\n") && mutants.contains("\nfreeze-second\n"));
    for what in ["subjects", "mutants", "profiles", "ops"] {
        let answer = ask(&["list", what], dir.path());
        assert!(answer.code == 0 && answer.out.lines().count() > 5, "{what}: {}", answer.err);
    }
}

#[test]
fn the_printed_configuration_can_be_given_back() {
    let dir = scratch();
    let answer = ask(&["config"], dir.path());
    std::fs::write(dir.path().join("fathom.toml"), &answer.out).unwrap();
    let check = ["check", "model", "--ops", "100", "--seed", "1", "--config", "fathom.toml"];
    assert_eq!(ask(&check, dir.path()).code, 0);
}

#[test]
fn a_reader_that_has_gone_is_fine() {
    let mut child = command(&["list", "mutants"], scratch().path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}
