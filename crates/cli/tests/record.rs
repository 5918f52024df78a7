//! What a run leaves behind: findings at once, `run.json` always, known findings, old findings.

mod common;

use std::fs;
use std::path::Path;

use common::{ask, json, scratch};

const CHECK: [&str; 7] = ["check", "model:rmdir-errno", "--ops", "6000", "--seed", "1", "--json"];

#[test]
fn every_command_leaves_a_run_that_can_be_reported() {
    let dir = scratch();
    let runs: [(&[&str], i32, &str); 4] = [
        (&["check", "model", "--ops", "300", "--seed", "3"], 0, "answered like the reference"),
        (&["check", "model:rmdir-errno", "--ops", "6000"], 1, "differs from the reference"),
        (&["crash", "littlefs", "--depth", "1", "--steps", "mkdir"], 0, "kept its promises"),
        (&["design", "philosophers", "--size", "3"], 1, "is broken"),
    ];
    for (args, code, verdict) in runs {
        let _ = fs::remove_dir_all(dir.path().join("fathom-out"));
        let answer = ask(args, dir.path());
        assert_eq!(answer.code, code, "{args:?}: {}{}", answer.out, answer.err);
        let report = ask(&["report"], dir.path());
        assert_eq!(report.code, 0, "{args:?}: {}", report.err);
        let text = report.out.replace(['\n', '\u{a0}'], " ");
        assert!(text.contains(verdict), "{args:?}: {text}");
        assert!(text.contains(&args.join(" ")), "{args:?}: {text}");
        let (_, run) = json(&["report", "--json"], dir.path());
        assert_eq!(run["complete"], true, "{run}");
        let page = ask(&["report", "--html", "page.html"], dir.path());
        assert_eq!(page.code, 0, "{}", page.err);
    }
}

#[test]
fn a_check_goes_on_after_a_finding_unless_it_is_told_to_stop() {
    let dir = scratch();
    let (code, all) = json(&CHECK, dir.path());
    assert_eq!((code, all["ops"].as_u64()), (1, Some(6000)), "{all}");
    assert!(all["findings"][0]["sightings"].as_u64() > Some(1), "{all}");
    let (code, first) = json(&[&CHECK[..], &["--first"]].concat(), dir.path());
    assert_eq!((code, first["findings"].as_array().map(Vec::len)), (1, Some(1)), "{first}");
    assert!(first["ops"].as_u64() < Some(6000), "{first}");
    assert_eq!(first["findings"][0]["id"], all["findings"][0]["id"]);
}

/// `--first` stops at what is news: a search does not end where everybody has been already.
#[test]
fn the_first_finding_that_counts_is_one_that_is_not_known() {
    let dir = scratch();
    let design = ["design", "journal", "--switch", "no-barrier", "--depth", "3", "--json"];
    let first = [&design[..], &["--first"]].concat();
    let (code, all) = json(&design, dir.path());
    assert_eq!(code, 1, "{all}");
    let (_, short) = json(&first, dir.path());
    assert!(short["states"].as_u64() < all["states"].as_u64(), "it stops: {short}");
    for violation in all["violations"].as_array().unwrap() {
        let Some(id) = violation["id"].as_str() else { continue };
        let add = ask(&["known", "add", id, "--because", "an experiment"], dir.path());
        assert_eq!(add.code, 0, "{}", add.err);
    }
    let (code, again) = json(&first, dir.path());
    assert_eq!((code, &again["states"]), (0, &all["states"]), "{again}");
}

#[test]
fn known_findings_are_counted_and_their_absence_is_said() {
    let dir = scratch();
    let (_, run) = json(&CHECK, dir.path());
    let ids: Vec<&str> =
        run["findings"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap()).collect();
    for id in &ids {
        let add = ask(&["known", "add", id, "--because", "an experiment"], dir.path());
        assert_eq!(add.code, 0, "{}", add.err);
    }
    let no_reason = ask(&["known", "add", ids[0], "--because", " "], dir.path());
    assert_eq!(no_reason.code, 2);
    let (_, list) = json(&["known", "list", "--json"], dir.path());
    assert_eq!(list.as_array().map(Vec::len), Some(ids.len()), "{list}");

    let (code, again) = json(&CHECK, dir.path());
    assert_eq!((code, &again["findings"]), (0, &serde_json::json!([])), "{again}");
    assert_eq!(again["known"][0]["because"], "an experiment", "{again}");
    let elsewhere = [&CHECK[..], &["--known", "none.toml"]].concat();
    assert_eq!(json(&elsewhere, dir.path()).0, 1);

    // Too short to meet it.
    let short = ["check", "model:rmdir-errno", "--ops", "5", "--seed", "1"];
    let answer = ask(&short, dir.path());
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("NO LONGER SEEN"), "{}", answer.out);
    // Another subject could not have shown it.
    let answer = ask(&["check", "model", "--ops", "5", "--seed", "1"], dir.path());
    assert!(!answer.out.contains("NO LONGER SEEN"), "{}", answer.out);

    assert_eq!(ask(&["known", "remove", "99"], dir.path()).code, 2);
    for _ in &ids {
        assert_eq!(ask(&["known", "remove", "1"], dir.path()).code, 0);
    }
    assert_eq!(json(&CHECK, dir.path()).0, 1);
}

#[test]
fn json_has_one_value_also_if_nothing_worked() {
    let dir = scratch();
    let (code, value) = json(&["check", "dir:nowhere", "--json"], dir.path());
    assert_eq!((code, &value["complete"]), (2, &serde_json::json!(false)), "{value}");
    assert!(value["error"].as_str().is_some_and(|text| text.contains("nowhere")), "{value}");
}

/// Findings of the first format, as an older program recorded them.
#[test]
fn findings_of_the_first_format_are_replayed() {
    let dir = scratch();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings-1");
    for kind in ["check", "crash", "design"] {
        // A replay leaves its run beside the finding.
        let finding = dir.path().join(kind);
        std::fs::create_dir(&finding).unwrap();
        for entry in std::fs::read_dir(fixtures.join(kind)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), finding.join(entry.file_name())).unwrap();
        }
        let (code, value) = json(&["replay", finding.to_str().unwrap(), "--json"], dir.path());
        assert_eq!((code, value["verdict"].as_str()), (0, Some("reproduced")), "{kind}: {value}");
    }
}
