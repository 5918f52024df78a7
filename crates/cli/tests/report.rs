//! `fathom report`: from a run directory to text, HTML and JSON; its mistakes.

mod common;

use std::path::Path;

use common::Answer;
use serde_json::Value;

/// The run that the tests of the reports use.
const RUN: &str = include_str!("../../report/tests/golden/run.json");

fn report(args: &[&str], dir: &Path) -> (i32, String, String) {
    let Answer { code, out, err } = common::ask(&[&["report"], args].concat(), dir);
    (code, out, err)
}

fn run_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let out = dir.path().join("fathom-out");
    std::fs::create_dir(&out).expect("created");
    std::fs::write(out.join("run.json"), RUN).expect("written");
    dir
}

#[test]
fn a_run_is_found_by_default_by_directory_and_by_file() {
    let dir = run_directory();
    let (code, by_default, _) = report(&[], dir.path());
    assert_eq!(code, 0, "a report of a run with findings is a success");
    assert!(by_default.contains("fathom replay littlefs-128x512-3f9c1ab2"), "{by_default}");
    for path in ["fathom-out", "fathom-out/run.json"] {
        assert_eq!(report(&[path], dir.path()), (0, by_default.clone(), String::new()));
    }
    let elsewhere = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("fathom-out");
    let (code, text, _) = report(&["--out", out.to_str().expect("text")], elsewhere.path());
    assert_eq!((code, text), (0, by_default));
}

#[test]
fn the_page_is_one_file() {
    let dir = run_directory();
    let (code, text, _) = report(&["--html", "page.html"], dir.path());
    assert_eq!((code, text.as_str()), (0, "page.html\n"));
    let page = std::fs::read_to_string(dir.path().join("page.html")).expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "{page}");
    assert!(page.contains("The file next to a renamed one disappears"));
    let (code, line, _) = report(&["--html", "page.html", "--json"], dir.path());
    let value: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((code, &value["findings"]), (0, &Value::from(1)));
}

#[test]
fn json_is_the_run_on_one_line() {
    let (code, text, _) = report(&["--json"], run_directory().path());
    assert_eq!((code, text.lines().count()), (0, 1));
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value, serde_json::from_str::<Value>(RUN).expect("JSON"));
}

#[test]
fn every_mistake_has_a_clear_error_and_exit_code_2() {
    let dir = run_directory();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect(name);
    std::fs::create_dir(dir.path().join("empty")).expect("created");
    write("damaged.json", &RUN[..RUN.len() / 2]);
    write("text.json", "not a run");
    write("newer.json", &RUN.replacen("\"format\": 4", "\"format\": 99", 1));
    let cases: &[(&[&str], &str)] = &[
        (&["nowhere"], "`fathom crash SUBJECT --out DIR` makes a run"),
        (&["nowhere"], "nowhere: there is no run"),
        (&["empty"], "empty/run.json: there is no run"),
        (&["--out", "nowhere"], "nowhere: there is no run"),
        (&["damaged.json"], "damaged.json: is no run or is damaged: EOF"),
        (&["text.json"], "text.json: is no run or is damaged"),
        (&["newer.json"], "has format 99, this program reads up to format 4"),
        (&["--html", "nowhere/page.html"], "cannot write nowhere/page.html"),
    ];
    for (args, message) in cases {
        let (code, out, err) = report(args, dir.path());
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.starts_with("fathom: ") && err.contains(message), "{args:?}: {err}");
    }
}
