//! `fathom design` as people and machines use it.

use std::process::Command;

use serde_json::Value;

fn ask(args: &[&str]) -> (i32, String, String) {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let output = Command::new(env!("CARGO_BIN_EXE_fathom"))
        .arg("design")
        .args(args)
        .current_dir(dir.path())
        .env("NO_COLOR", "1")
        .output()
        .expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("it ends by itself"), text(output.stdout), text(output.stderr))
}

fn json(args: &[&str]) -> (i32, Value) {
    let (code, out, err) = ask(&[args, &["--json"]].concat());
    let line = out.lines().last().unwrap_or_default();
    (code, serde_json::from_str(line).unwrap_or_else(|_| panic!("{args:?}: {out} {err}")))
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
        "  1. thread 0: create file 0: changes the tables in memory",
        "  2. thread 0: writes block 0, inodes 0 and 1",
        "  3. POWER FAILURE; the checker finds a lost block (of a file, not allocated)",
        "  [0] FREE, of file 0, holds nothing written",
        "link: 1,569 states",
        "every reachable state was visited",
    ] {
        assert!(out.contains(part), "{part:?} is missing:\n{out}");
    }
    let (code, out, _) = ask(&["journal", "--switch", "no-barrier", "--depth", "3", "--first"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("POWER FAILURE at epoch:"), "{out}");
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

#[test]
fn mistakes_have_clear_errors() {
    for (args, text) in [
        (&["ling"][..], "did you mean link"),
        (&["link", "--files", "5"], "a link-type design has 1 to 4 files"),
        (&["link", "--threads", "3"], "the model has 1 or 2 threads"),
        (&["link", "--switch", "fifo"], "this design has no switch \"fifo\": it has none"),
        (&["log", "--switch", "lifo"], "did you mean fifo"),
        (&["philosophers", "--size", "1"], "there are 2 to 32 seats"),
        (&[], "required"),
    ] {
        let (code, _, err) = ask(args);
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains(text), "{args:?}: {err}");
    }
}
