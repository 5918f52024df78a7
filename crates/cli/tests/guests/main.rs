//! Campaigns in guests: the same answers as on the host, every death a finding of its class, and every
//! execution a function of its seed. Deaths are tested with Debian's kernel; what needs a clock of the
//! guest's own uses the kernel that FATHOM_GUEST_KERNEL names.

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod deaths;
mod refusals;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use common::scratch;
use serde_json::Value;

/// What a command answered.
struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Answer {
    fn json(&self) -> Value {
        let line = self.out.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|_| panic!("{}\n{}", self.out, self.err))
    }
}

fn fathom(args: &[&str], dir: &Path) -> Answer {
    fathom_with(args, dir, &[])
}

fn fathom_with(args: &[&str], dir: &Path, environment: &[(&str, &str)]) -> Answer {
    let output = common::command(args, dir)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Debian's kernel, or the reason why a test is skipped.
fn debian(test: &str) -> Option<&'static str> {
    if Path::new("/usr/bin/linux.uml").exists() {
        return Some("debian");
    }
    println!("SKIP {test}: no linux.uml: apt-get install user-mode-linux");
    None
}

/// A kernel with time travel, or the reason why a test is skipped.
fn own(test: &str) -> Option<String> {
    let named = std::env::var("FATHOM_GUEST_KERNEL").ok();
    if named.is_none() {
        println!("SKIP {test}: no kernel with time travel: set FATHOM_GUEST_KERNEL");
    }
    named
}

/// The only finding of a run that has a class.
fn finding(dir: &Path, class: &str) -> (String, toml::Table) {
    for entry in fs::read_dir(dir.join("fathom-out")).unwrap().flatten() {
        let Ok(text) = fs::read_to_string(entry.path().join("finding.toml")) else { continue };
        let table: toml::Table = toml::from_str(&text).unwrap();
        if table["class"].as_str() == Some(class) {
            return (entry.file_name().to_string_lossy().into_owned(), table);
        }
    }
    panic!("no finding of class {class}");
}

#[test]
fn a_kernel_that_panics_is_a_finding_and_the_next_guest_goes_on() {
    let Some(kernel) = debian("a_kernel_that_panics") else { return };
    let dir = scratch();
    let args = ["check", "test:crashes-the-kernel-after-50", "--guest", kernel, "--ops", "120"];
    let answer = fathom(&[&args[..], &["--seed", "3", "--json"]].concat(), dir.path());
    assert_eq!(answer.code, Some(1), "{}{}", answer.out, answer.err);
    let value = answer.json();
    assert_eq!(value["guests_died"], 2, "{value}");
    let found = value["findings"].as_array().unwrap();
    assert_eq!((found.len(), found[0]["class"].as_str()), (1, Some("kernel_panic")), "{value}");
    assert_eq!(found[0]["sightings"], value["guests_died"]);
    let (id, table) = finding(dir.path(), "kernel_panic");
    let title = table["signature"].as_str().unwrap();
    assert!(title.starts_with("kernel_panic panic: sysrq triggered crash"), "{title}");
    let trace = fs::read_to_string(dir.path().join("fathom-out").join(&id).join("trace.jsonl"));
    let trace = trace.unwrap();
    let steps = trace.lines().filter(|line| line.contains("\"op\"")).count();
    assert_eq!(steps, 51, "50 operations and the one in flight");
    let console = dir.path().join("fathom-out").join(&id).join("console.txt");
    assert!(fs::read_to_string(console).unwrap().contains("sysrq triggered crash"));
    let run = fs::read_to_string(dir.path().join("fathom-out/run.json")).unwrap();
    assert!(run.contains(&id), "run.json names it");
    let replay = fathom(&["replay", &id, "--guest", kernel, "--json"], dir.path());
    assert_eq!(replay.json()["verdict"], "reproduced", "{}", replay.err);
    assert_eq!(replay.code, Some(0));
    // Named as known it is counted and not reported.
    assert_eq!(fathom(&["known", "add", &id, "--because", "asked for"], dir.path()).code, Some(0));
    let args = [&args[..], &["--seed", "4"]].concat();
    let again = fathom(&args, dir.path());
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    assert!(again.out.contains("known: kernel_panic"), "{}", again.out);
}

#[test]
fn an_execution_is_a_function_of_its_seed() {
    let Some(kernel) = own("an_execution_is_a_function_of_its_seed") else { return };
    for subject in ["ext4", "xfs", "btrfs"] {
        let run = |seed: &str| {
            let dir = scratch();
            let args =
                ["check", subject, "--guest", &kernel, "--ops", "300", "--seed", "5", "--json"];
            let answer = fathom(&[&args[..], &["--guest-seed", seed]].concat(), dir.path());
            assert!(answer.code < Some(2), "{}{}", answer.out, answer.err);
            answer.json()["guest"].clone()
        };
        let (first, again, other) = (run("1"), run("1"), run("2"));
        assert!(first["operations"].as_u64() >= Some(300), "{first}");
        assert_eq!(first, again, "{subject}");
        assert_ne!(first["disk"], other["disk"], "{subject}: another seed, another disk");
    }
}

#[test]
fn a_replay_is_compared_with_the_recorded_execution() {
    let Some(kernel) = own("a_replay_is_compared_with_the_recorded_execution") else { return };
    let dir = scratch();
    let args = ["check", "model", "--mutant", "mkdir-nlink", "--guest", &kernel, "--ops", "20000"];
    let answer = fathom(&[&args[..], &["--seed", "5", "--first", "--json"]].concat(), dir.path());
    assert_eq!(answer.code, Some(1), "{}{}", answer.out, answer.err);
    let id = answer.json()["findings"][0]["id"].as_str().unwrap().to_owned();
    let replay = || fathom(&["replay", &id, "--guest", &kernel, "--json"], dir.path()).json();
    assert_eq!(replay()["guest"]["execution"], "recorded");
    assert_eq!(replay()["guest"]["execution"], "same");
    let record = fs::read_dir(dir.path().join("fathom-out").join(&id)).unwrap().flatten();
    let record =
        record.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("execution-"));
    let record = record.unwrap();
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
    value["steps"][0] = 1.into();
    fs::write(&record, value.to_string()).unwrap();
    assert_eq!(replay()["guest"], serde_json::json!({ "execution": "left", "operation": 1 }));
}
