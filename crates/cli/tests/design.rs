//! `fathom design` as people and machines use it.

mod common;

use std::fs;
use std::path::Path;

use serde_json::Value;

use common::{fathom, scratch};

fn ask(args: &[&str]) -> (i32, String, String) {
    fathom(&[&["design"], args].concat(), scratch().path())
}

fn json(args: &[&str]) -> (i32, Value) {
    common::json(&[&["design"], args, &["--json"]].concat(), scratch().path())
}

#[test]
fn a_machine_gets_one_object() {
    let (code, value) = json(&["philosophers", "--size", "5"]);
    assert_eq!(code, 1);
    assert_eq!(value["states"], 82);
    assert_eq!(value["violations"][0]["property"], "deadlock");
    assert_eq!(value["violations"][0]["steps"], 5);
    assert!(value["ops"].as_u64() > Some(82) && value["depth"] == 5, "{value}");
    let (code, value) = json(&["philosophers", "--size", "5", "--switch", "polite"]);
    assert_eq!((code, &value["violations"]), (0, &serde_json::json!([])));
}

#[test]
fn a_counterexample_can_be_followed() {
    let (code, out, _) = ask(&["link", "--files", "2", "--blocks", "3"]);
    assert_eq!(code, 1, "{out}");
    for part in [
        "no lost block is violated in",
        "  1. thread 0: create file 0 changes the tables in memory",
        "  2. thread 0, inodes 0 and 1: writes 0",
        "  3. POWER FAILURE between two writes",
        "the checker finds a lost block (of a file, not allocated)",
        "before: FREE, of file 0, holds nothing written",
        "replay: fathom replay ",
        "link (2 files, 3 blocks): 1,569 states",
        "every reachable state was visited",
    ] {
        assert!(out.contains(part), "{part:?} is missing:\n{out}");
    }
    let (code, out, _) = ask(&["journal", "--switch", "no-barrier", "--depth", "3", "--first"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("POWER FAILURE with ") && out.contains("(epoch:"), "{out}");
}

#[test]
fn what_is_sound_is_clean_and_what_is_repaired_is_no_finding() {
    let safe = ["link", "--files", "2", "--blocks", "3", "--order", "safe", "--threads", "2"];
    let (code, out, _) = ask(&safe);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("no dead block (harmless: repaired) is violated"), "{out}");
    let (code, value) = json(&["journal", "--depth", "3"]);
    assert_eq!((code, &value["violations"]), (0, &serde_json::json!([])));
}

/// What `--json` says of a run in a directory.
fn json_in(dir: &Path, args: &[&str]) -> (i32, Value) {
    let (code, out, err) = fathom(&[args, &["--json"]].concat(), dir);
    let line = out.lines().last().unwrap_or_default();
    (code, serde_json::from_str(line).unwrap_or_else(|_| panic!("{args:?}: {out} {err}")))
}

#[test]
fn a_violation_is_recorded_replayed_and_shrunk() {
    for (args, switch_off) in [
        (&["journal", "--switch", "no-barrier", "--depth", "3"][..], Some("journal")),
        (&["log", "--switch", "reuse-early,one-log", "--depth", "6"], Some("log")),
        (&["link", "--files", "2", "--blocks", "3"], None),
        (&["philosophers", "--size", "4"], None),
    ] {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let (code, value) = json_in(dir.path(), &[&["design"], args].concat());
        assert_eq!(code, 1, "{args:?}");
        let critical = |violation: &&Value| violation["critical"] == true;
        let violations = value["violations"].as_array().expect("a list");
        for violation in violations.iter().filter(critical) {
            let id = violation["id"].as_str().expect("it is recorded");
            let files = dir.path().join("fathom-out").join(id);
            for name in ["finding.toml", "trace.jsonl", "minimal.jsonl", "story.txt", "blocks.txt"]
            {
                assert!(files.join(name).is_file(), "{args:?}: {name}");
            }
            let lines = fs::read_to_string(files.join("minimal.jsonl")).expect("text");
            assert_eq!(lines.lines().count() as u64, violation["steps_minimal"], "{args:?}");
            let (code, out, err) = fathom(&["replay", id], dir.path());
            assert_eq!(code, 0, "{args:?}: {out}{err}");
            assert!(out.contains("\nreproduced on "), "{out}");
            // What a search by breadth finds is shortest: shrinking finds nothing shorter.
            let (code, again) = json_in(dir.path(), &["shrink", id]);
            assert_eq!((code, &again["ops"]), (1, &violation["steps_minimal"]), "{args:?}");
            if let Some(sound) = switch_off {
                let (code, out, err) = fathom(&["replay", id, "--subject", sound], dir.path());
                assert_eq!(code, 1, "{args:?}: {out}{err}");
                assert!(out.contains("\nnot reproduced on "), "{out}");
            }
            let (code, _, err) = fathom(&["export", id, "--c"], dir.path());
            assert_eq!(code, 2, "{err}");
            assert!(err.contains("is a finding on a design"), "{err}");
        }
        let (code, out, _) = fathom(&["report"], dir.path());
        assert_eq!(code, 0);
        assert!(out.contains("The design ") && out.contains("what happens"), "{out}");
    }
}

#[test]
fn a_long_way_is_shrunk_to_a_short_one() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let deep = ["--dfs", "--first", "--depth", "10", "--files", "2"];
    let no_revoke = ["design", "journal", "--switch", "no-revoke"];
    let (code, value) = json_in(dir.path(), &[&no_revoke[..], &deep].concat());
    assert_eq!(code, 1);
    let violation = &value["violations"][0];
    assert!(violation["steps"].as_u64() > Some(7), "{violation}");
    assert_eq!(violation["steps_minimal"], 7);
    let id = violation["id"].as_str().expect("it is recorded");
    assert_eq!(fathom(&["replay", id], dir.path()).0, 0);
    assert_eq!(fathom(&["replay", id, "--full"], dir.path()).0, 0);
    // A damaged record says so.
    let minimal = dir.path().join("fathom-out").join(id).join("minimal.jsonl");
    fs::write(&minimal, "{\"call\":{\"jump\":\"/a\"}}\n").expect("it can be written");
    let (code, _, err) = fathom(&["replay", id], dir.path());
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("minimal.jsonl: unknown variant `jump`"), "{err}");
}

#[test]
fn designs_run_under_the_crash_checker_of_libraries() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (code, value) = json_in(dir.path(), &["crash", "design:journal", "--depth", "3"]);
    assert_eq!((code, &value["findings"]), (0, &serde_json::json!([])), "{value}");
    assert_eq!(value["levels"], serde_json::json!(["epoch"]));
    let broken = ["crash", "design:journal:no-checksum", "--depth", "2", "--first"];
    let (code, value) = json_in(dir.path(), &broken);
    assert_eq!(code, 1, "{value}");
    let id = value["findings"][0]["id"].as_str().expect("it is recorded");
    let (code, out, err) = fathom(&["replay", id], dir.path());
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("the same image, the same violation"), "{out}");
    let sound = ["replay", id, "--subject", "design:journal"];
    assert_eq!(fathom(&sound, dir.path()).0, 1, "the checksum helps");
    for (args, text) in [
        (&["crash", "design:jurnal"][..], "did you mean journal"),
        (&["crash", "design:link"], "journal and log have"),
        (&["crash", "design:log:no-checksum"], "log has no switch \"no-checksum\""),
        (&["crash", "design:log", "--geometry", "8x16"], "a geometry of its own"),
    ] {
        let (code, _, err) = fathom(args, dir.path());
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains(text), "{args:?}: {err}");
    }
}

#[test]
fn every_switch_that_is_listed_exists() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (code, listed) = json_in(dir.path(), &["list", "designs"]);
    let listed = listed.as_array().expect("a list");
    assert_eq!((code, listed.len()), (0, 6));
    for design in listed {
        let name = design["name"].as_str().expect("a name");
        for switch in design["switches"].as_array().expect("a list") {
            let switch = switch.as_str().expect("a name");
            let args = ["design", name, "--switch", switch, "--depth", "1"];
            let (code, _, err) = fathom(&args, dir.path());
            assert_eq!(code, 0, "{name} {switch}: {err}");
        }
    }
}

#[test]
fn the_paper_tables_are_drawn_as_curves() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (code, value) = json_in(dir.path(), &["design", "--paper-tables"]);
    assert_eq!(code, 0);
    let rows = value["mapping"].as_array().expect("a table");
    assert_eq!(rows.len(), 16, "two kinds, two orders, cache, threads");
    let violated = |row: &Value| row["violated"].as_u64().expect("a number");
    let found: Vec<u64> =
        value["remember"].as_array().expect("a table").iter().map(violated).collect();
    let all = found.iter().copied().max().expect("rows");
    assert!(found[0] == 0 && all > 0 && found[2..].iter().all(|n| *n == all), "{found:?}");
    let fewer = value["isomorphism"].as_array().and_then(|rows| rows.last()).expect("rows");
    assert!(fewer["fewer_percent"].as_f64() > Some(99.0), "{fewer}");
    let (code, _, err) = fathom(&["report", "--html", "page.html"], dir.path());
    assert_eq!(code, 0, "{err}");
    let page = fs::read_to_string(dir.path().join("page.html")).expect("text");
    // Two curves and one, each drawn for a desk and for a phone.
    assert_eq!(page.matches("<polyline ").count(), 6);
    for part in ["Errors found by operations kept in a state", "States with and without names"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn mistakes_have_clear_errors() {
    for (args, text) in [
        (&["ling"][..], "did you mean link"),
        (&["link", "--files", "5"], "a link-type design has 1 to 4 files"),
        (&["link", "--blocks", "12"], "a link-type design has 1 to 11 data blocks"),
        (&["index", "--files", "0"], "an index-type design has 1 to 4 files"),
        (
            &["journal", "--files", "8"],
            "files 8: journal has room for 1 to 7 files and directories",
        ),
        (&["log", "--files", "13"], "files 13: log has room for 1 to 12 files and directories"),
        (&["journal", "--threads", "2"], "journal has no threads: that is for link and index"),
        (&["log", "--cache"], "log has no cache"),
        (&["link", "--size", "3"], "link has no size: that is for philosophers and two-phase"),
        (&["link", "--threads", "3"], "the model has 1 or 2 threads"),
        (&["link", "--switch", "fifo"], "link has no switch \"fifo\": it has none"),
        (&["journal", "--switch", "no-barier"], "did you mean no-barrier"),
        (&["log", "--switch", "lifo"], "did you mean fifo"),
        (&["philosophers", "--size", "1"], "there are 2 to 32 seats"),
        (&[], "required"),
    ] {
        let (code, _, err) = ask(args);
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains(text), "{args:?}: {err}");
    }
}
