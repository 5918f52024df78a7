//! Tasks of a swarm that go wrong: each is named with its reason, is started again within bounds, keeps its partial
//! result, and disturbs nobody.

mod common;

use std::fs;
use std::path::Path;

use common::swarm::{files, plan, reasons, value};
use common::{Answer, ask, json, scratch};
use serde_json::Value;

/// A task that goes wrong, and one beside it.
fn swarm(fault: &str, limits: &str, more: &str, dir: &Path) -> Answer {
    let text = format!(
        "tasks = 2\n[limits]\nretries = 1\nat_once = 2\n{limits}\n\
         [[campaign]]\ncommand = \"{fault}\"\n{more}\n\
         [[campaign]]\ncommand = \"check model --ops 3000\"\n"
    );
    ask(&["swarm", &plan(dir, &text), "--out", "swarm"], dir)
}

/// The task is named with the reason and given up after two attempts, both of which are kept; its neighbour is done.
fn is_given_up(fault: &str, limits: &str, reason: &str, words: &str) -> tempfile::TempDir {
    let dir = scratch();
    let answer = swarm(fault, limits, "", dir.path());
    let told = format!("{}{}", answer.out, answer.err);
    assert!(told.contains("1 of 2 tasks over"), "{fault}: {told}");
    assert!(told.contains(words) && told.contains("given up"), "{fault}: {told}");
    assert!(told.contains("1 started again"), "{fault}: {told}");
    let out = dir.path().join("swarm");
    let mut ends = reasons(&out);
    ends.sort();
    let mut expected = [reason, reason, "done"];
    expected.sort_unstable();
    assert_eq!(ends, expected, "{fault}: two attempts and the neighbour: {told}");
    dir
}

/// The runs of all attempts that there are, complete or not.
fn runs(dir: &Path) -> Vec<Value> {
    files(&dir.join("swarm"), "run.json").iter().map(|path| value(path)).collect()
}

/// Also what attempts have done that were ended is in the sum.
fn united_operations(dir: &Path) -> u64 {
    let (_, united) = json(&["swarm", "merge", "swarm/tasks", "--out", "merged", "--json"], dir);
    united["operations"].as_u64().expect("a number")
}

#[test]
fn a_task_out_of_time_is_named() {
    let limits = "time = \"4s\"";
    let dir = is_given_up("check model --budget 100s --seed 1", limits, "time", "out of time");
    let runs = runs(dir.path());
    assert_eq!(runs.len(), 3, "the partial results are kept");
    // Both attempts are the same run, of which the one that came furthest counts.
    let whole = runs.iter().filter(|run| run["complete"] == true).count();
    assert_eq!(whole, 1, "{runs:?}");
    assert!(united_operations(dir.path()) > 3000);
}

/// A call that never returns: the task is asked to end, and ended when it does not answer.
#[test]
fn a_task_that_hangs_is_named() {
    let fault = "check test:hangs-after-50 --ops 100000 --seed 1";
    let dir = is_given_up(fault, "time = \"2s\"", "time", "out of time");
    let partial: Vec<Value> =
        runs(dir.path()).into_iter().filter(|run| run["complete"] == false).collect();
    assert_eq!(partial.len(), 2, "{partial:?}");
    assert!(partial.iter().all(|run| run["subject"] == "test:hangs-after-50"), "{partial:?}");
}

/// The checkpoint of a search grows with the states that it has seen.
#[test]
fn a_task_over_its_disk_is_named() {
    let fault = "crash littlefs --depth 6 --checkpoint --checkpoint-every 1s --budget 100s";
    let dir = is_given_up(fault, "disk = \"1M\"", "disk", "out of disk");
    let partial: Vec<Value> =
        runs(dir.path()).into_iter().filter(|run| run["subject"] == "littlefs").collect();
    assert_eq!(partial.len(), 2, "{partial:?}");
}

#[test]
fn a_task_that_fails_is_named_with_its_last_words() {
    let dir = is_given_up("check dir:/nowhere --seed 1", "", "failed", "/nowhere");
    assert!(!dir.path().join("swarm/united/refused").exists());
}

/// Memory that belongs to no process can only be counted by a control group.
#[test]
fn a_task_out_of_memory_is_named() {
    let dir = scratch();
    let fault = "check test:fills-a-memory-file-after-500 --ops 100000 --seed 1";
    if !has_groups(dir.path()) {
        return println!("SKIP a_task_out_of_memory: no control groups can be made here");
    }
    let dir = is_given_up(fault, "memory = \"96M\"", "memory", "out of memory");
    let found = files(&dir.path().join("swarm"), "ended.json");
    let peaks = found.iter().filter_map(|path| value(path)["memory_bytes"].as_u64());
    assert!(peaks.max() <= Some(96 << 20), "the limit held");
}

fn has_groups(dir: &Path) -> bool {
    let text = "tasks = 1\n[[campaign]]\ncommand = \"check model --ops 10\"\n";
    assert_eq!(ask(&["swarm", &plan(dir, text), "--out", "probe"], dir).code, 0);
    let ended = files(&dir.join("probe"), "ended.json");
    value(&ended[0])["kept_by"].as_str().unwrap_or_default().contains("control group")
}

/// A process that uses too much is ended by its own supervisor, and then that is what it found; or by the kernel,
/// which may be faster, or by the runner.
#[test]
fn a_process_that_eats_memory_is_a_finding_or_a_reason() {
    let dir = scratch();
    let fault = "check test:eats-memory-after-500 --ops 100000 --seed 1";
    let answer = swarm(fault, "memory = \"96M\"", "", dir.path());
    let told = format!("{}{}", answer.out, answer.err);
    let out = dir.path().join("swarm");
    let ends = reasons(&out);
    assert_eq!(ends.iter().filter(|reason| *reason == "done").count(), 1, "{told}");
    match ends.iter().any(|reason| reason == "found") {
        true => assert!(told.contains("out_of_memory") || told.contains("memory"), "{told}"),
        false => {
            assert_eq!(ends.iter().filter(|reason| *reason == "memory").count(), 2, "{told}");
            assert!(told.contains("out of memory") && told.contains("given up"), "{told}");
        }
    }
}

/// The crash of a guest's kernel is a finding of its task, which goes on in the next guest; the machine and the
/// neighbour do not notice.
#[test]
fn a_kernel_that_panics_is_a_finding_of_its_task_alone() {
    if !Path::new("/usr/bin/linux.uml").exists() {
        return println!(
            "SKIP a_kernel_that_panics: no linux.uml: apt-get install user-mode-linux"
        );
    }
    let dir = scratch();
    let fault = "check test:crashes-the-kernel-after-200 --ops 300 --seed 1";
    let answer = swarm(fault, "memory = \"1G\"", "kernels = [\"debian\"]", dir.path());
    let told = format!("{}{}", answer.out, answer.err);
    assert_eq!(answer.code, 1, "{told}");
    assert!(told.contains("2 of 2 tasks over") && told.contains("0 started again"), "{told}");
    let mut ends = reasons(&dir.path().join("swarm"));
    ends.sort();
    assert_eq!(ends, ["done", "found"], "{told}");
    let (_, status) = json(&["swarm", "status", "--out", "swarm", "--json"], dir.path());
    assert_eq!(status["findings"].as_array().map(Vec::len), Some(1), "{status}");
    let signature = status["findings"][0]["signature"].as_str().unwrap_or_default();
    assert!(signature.contains("panic") || signature.contains("oops"), "{status}");
    // What it had done before, and afterwards in the next guest, is counted.
    assert!(united_operations(dir.path()) >= 3200, "{told}");
}

/// Every file below a directory, by its path.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(at).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => left.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(dir).unwrap().display().to_string();
                    found.push((name, fs::read(entry.path()).unwrap()));
                }
            }
        }
    }
    found.sort();
    found
}

/// JSON without what says when something was and how long it took.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The course of a run is what was so at certain moments.
            fields.retain(|name, _| !TIMES.contains(&name.as_str()));
            fields.values_mut().for_each(without_times);
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        _ => {}
    }
}

/// Fields that say when something was.
const TIMES: [&str; 4] = ["seconds", "started_ms", "samples", "memory_bytes"];

#[test]
fn the_same_task_twice_gives_the_same_directory_times_aside() {
    let dir = scratch();
    let text = "tasks = 1\n[limits]\nmemory = \"256M\"\n[[campaign]]\n\
                command = \"check model --mutant rmdir-errno --ops 4000\"\n";
    let plan = plan(dir.path(), text);
    // In the same place: a finding says where it lies.
    let run = || {
        let answer = ask(&["swarm", &plan, "--out", "swarm"], dir.path());
        assert_eq!(answer.code, 1, "{} {}", answer.out, answer.err);
        let attempt = files(&dir.path().join("swarm"), "run.json")[0].parent().unwrap().to_owned();
        let found = contents(&attempt);
        fs::remove_dir_all(dir.path().join("swarm")).unwrap();
        found
    };
    let (one, two) = (run(), run());
    let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&one), names(&two));
    for ((name, one), (_, two)) in one.iter().zip(&two) {
        let plain = |bytes: &[u8]| -> Value {
            let mut value = serde_json::from_slice(bytes).unwrap_or_default();
            without_times(&mut value);
            value
        };
        match name.as_str() {
            // What the command says has its speed in it.
            "output.log" | "runner.log" => {}
            name if name.ends_with(".json") => assert_eq!(plain(one), plain(two), "{name}"),
            _ => assert!(one == two, "{name} differs"),
        }
    }
}
