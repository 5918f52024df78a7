//! `fathom cover` as people and machines use it.
//!
//! The tests watch a directory of `/dev/shm`, which is a file system of its own that every user can
//! write to; what the shell does elsewhere must not count.

mod common;

use std::path::Path;

use common::Answer;
use serde_json::Value;

fn fathom(args: &[&str]) -> Answer {
    common::ask(args, common::scratch().path())
}

/// A directory on a file system of its own, or why there is none.
fn scratch() -> Option<tempfile::TempDir> {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => Some(dir),
        Err(error) => {
            println!("SKIP cover: /dev/shm: {error}");
            None
        }
    }
}

/// Runs a shell script and reads the report.
fn covered(dir: &Path, options: &[&str], script: &str) -> (Answer, Value) {
    let report = dir.join("report.json");
    let (mount, file) = (dir.display().to_string(), report.display().to_string());
    let mut args = vec!["cover", "--mount", &mount, "--json", &file];
    args.extend(options);
    let script = format!("cd {mount} || exit 99; {script}");
    args.extend(["--", "/bin/sh", "-c", &script]);
    let answer = fathom(&args);
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    (answer, serde_json::from_str(&text).unwrap_or_default())
}

const SCRIPT: &str = "mkdir a b; mkdir a 2>/dev/null; echo hello > a/f; cat a/f; rm a/f; rmdir a b";

fn count(report: &Value, call: &str, place: &str, name: &str) -> u64 {
    let call = &report["bases"][call];
    let place = if place == "output" { &call["output"] } else { &call["args"][place] };
    let partitions = place["partitions"].as_array().cloned().unwrap_or_default();
    let found = partitions.iter().find(|partition| partition["name"] == name);
    found.and_then(|partition| partition["count"].as_u64()).unwrap_or(u64::MAX)
}

/// Calls without an operand, and one that does not return.
#[test]
fn getcwd_and_execve_are_counted() {
    for tracer in ["ptrace", "bpf", "stream"] {
        let Some(dir) = scratch() else { return };
        let script =
            "cp /bin/true here; ./here; cd /; /bin/pwd; cd - >/dev/null; /bin/pwd; /bin/pwd";
        let (answer, report) = covered(dir.path(), &["--tracer", tracer], script);
        if answer.err.contains("the tracer in the kernel cannot be used") {
            println!("SKIP cover with bpf: {}", answer.err);
            continue;
        }
        assert_eq!(answer.code, 0, "{tracer}: {}", answer.err);
        assert_eq!(count(&report, "execve", "output", "success"), 1, "{tracer}");
        let calls = report["bases"]["getcwd"]["calls"].as_u64().unwrap_or(0);
        // The shell asks once when it starts in the scratch directory or changes to it; pwd each time.
        assert!((2..=4).contains(&calls), "{tracer}: {calls} calls of getcwd");
    }
}

/// A command that has started others in sessions of their own does not outlive a killed tracer.
#[test]
fn nothing_of_the_command_outlives_a_killed_cover() {
    for tracer in ["ptrace", "bpf"] {
        let Some(dir) = scratch() else { return };
        let (pids, mount) = (dir.path().join("pids"), dir.path().display().to_string());
        let script = format!(
            "(setsid sh -c 'echo $$ >> {0}; sleep 300 & echo $! >> {0}; wait') & echo $$ >> {0}; wait",
            pids.display()
        );
        let args = ["cover", "--tracer", tracer, "--mount", &mount, "--", "/bin/sh", "-c", &script];
        let scratch = common::scratch();
        let mut cover = common::command(&args, scratch.path())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the program starts");
        let started = || std::fs::read_to_string(&pids).unwrap_or_default();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while started().lines().count() < 3 && cover.try_wait().unwrap().is_none() {
            assert!(std::time::Instant::now() < deadline, "{tracer}: {}", started());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        if cover.try_wait().unwrap().is_some() {
            println!("SKIP killed cover with {tracer}: it cannot be used here");
            continue;
        }
        cover.kill().unwrap();
        cover.wait().unwrap();
        let lives = |pid: &&str| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
            !state.is_empty() && !state.starts_with(['Z', 'X'])
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let text = started();
        while text.lines().filter(lives).count() > 0 {
            assert!(std::time::Instant::now() < deadline, "{tracer}: they live on: {text}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn all_tracers_count_the_same() {
    for tracer in ["ptrace", "bpf", "stream"] {
        let Some(dir) = scratch() else { return };
        let (answer, report) = covered(dir.path(), &["--tracer", tracer], SCRIPT);
        if answer.err.contains("the tracer in the kernel cannot be used") {
            println!("SKIP cover with bpf: {}", answer.err);
            continue;
        }
        assert_eq!(answer.code, 0, "{tracer}: {}", answer.err);
        assert_eq!(report["tracer"], tracer);
        assert_eq!(report["bases"]["mkdir"]["calls"], 3, "{tracer}");
        assert_eq!(count(&report, "mkdir", "output", "success"), 2, "{tracer}");
        assert_eq!(count(&report, "mkdir", "output", "EEXIST"), 1, "{tracer}");
        assert_eq!(count(&report, "rmdir", "output", "success"), 2, "{tracer}");
        assert_eq!(count(&report, "write", "count", "[2^2,2^3)"), 1, "{tracer}");
        assert_eq!(count(&report, "unlink", "output", "success"), 1, "{tracer}");
        assert_eq!(report["lost"], 0);
        assert!(answer.out.contains("mkdir"), "{}", answer.out);
    }
}

#[test]
fn totals_are_per_call_and_in_all() {
    let Some(dir) = scratch() else { return };
    let (_, report) = covered(dir.path(), &["--tracer", "ptrace"], SCRIPT);
    let bases = report["bases"].as_object().expect("the calls");
    assert_eq!(bases.len(), 81);
    let sum = |key: &str| bases.values().filter_map(|base| base[key].as_u64()).sum::<u64>();
    for key in ["partitions_hit", "partitions_total"] {
        assert_eq!(report[key].as_u64(), Some(sum(key)), "{key}");
    }
    assert!(report["partitions_hit"].as_u64() > Some(20));
    assert_eq!(report["holes"].as_array().map(Vec::len), Some(10));
}

#[test]
fn a_failing_command_is_told_as_such_and_its_coverage_kept() {
    let Some(dir) = scratch() else { return };
    let script = "mkdir a; exit 3";
    let (answer, report) = covered(dir.path(), &["--tracer", "ptrace"], script);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("the command itself failed: exit code 3"), "{}", answer.err);
    assert_eq!(report["bases"]["mkdir"]["calls"], 1);
    assert_eq!(report["ended"]["exit"], 3);
    let (answer, report) = covered(dir.path(), &["--tracer", "ptrace"], "mkdir b; kill -9 $$");
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("killed by signal 9"), "{}", answer.err);
    assert_eq!(report["bases"]["mkdir"]["calls"], 1);
}

#[test]
fn what_cannot_work_is_said_before_or_instead() {
    for tracer in ["auto", "ptrace"] {
        let answer = fathom(&["cover", "--tracer", tracer, "--", "/no/such/program"]);
        assert_eq!(answer.code, 2);
        assert!(
            answer.err.contains("cannot execute /no/such/program: No such file"),
            "{}",
            answer.err
        );
    }
    let answer = fathom(&["cover", "--mount", "/no/such/mount", "--", "true"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("cannot watch /no/such/mount"), "{}", answer.err);
    let answer = fathom(&["cover", "--require", "open.flags.O_NONSENSE", "--", "true"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("no such partition"), "{}", answer.err);
    // Known before the command runs, not after an hour of it.
    for option in ["--html", "--csv", "--iocov", "--json"] {
        let answer = fathom(&["cover", option, "/no/such/place", "--", "/no/such/program"]);
        assert_eq!(answer.code, 2);
        assert!(answer.err.contains("cannot write /no/such/place"), "{}", answer.err);
    }
    let answer = fathom(&["cover", "--tracer", "stream", "--record", "/dev/null", "--", "true"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("a stream makes no record"), "{}", answer.err);
    let answer = fathom(&["cover", "--tracer", "ptrace", "--system"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("only the tracer in the kernel"), "{}", answer.err);
}

#[test]
fn demands_of_ci_end_with_1() {
    let Some(dir) = scratch() else { return };
    let run = |options: &[&str]| {
        let options = [&["--tracer", "ptrace"], options].concat();
        covered(dir.path(), &options, "echo x >> f").0
    };
    assert_eq!(run(&["--require", "open.flags.O_APPEND"]).code, 0);
    let answer = run(&["--require", "open.flags.O_DIRECT"]);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("open.flags.O_DIRECT was never exercised"), "{}", answer.err);
    assert_eq!(run(&["--fail-under", "70%"]).code, 1);
    assert_eq!(run(&["--fail-under", "0.01%"]).code, 0);
    assert_eq!(run(&["--fail-under", "90%", "--calls", "open"]).code, 1);
}

#[test]
fn every_form_of_a_report_is_written() {
    let Some(dir) = scratch() else { return };
    let elsewhere = tempfile::tempdir().expect("a directory");
    let file = |name: &str| elsewhere.path().join(name).display().to_string();
    let (html, csv, iocov) = (file("a.html"), file("a.csv"), file("a.json"));
    let options =
        ["--tracer", "ptrace", "--html", &html, "--csv", &csv, "--iocov", &iocov, "--full"];
    let (answer, _) = covered(dir.path(), &options, SCRIPT);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let read = |path: &str| std::fs::read_to_string(path).expect("it was written");
    let page = read(&html);
    assert!(page.contains("<svg") && page.contains("viewport"), "{page}");
    assert!(!page.contains("http://") && !page.contains("<script"), "it must stand alone");
    assert!(read(&csv).contains("mkdir,output,output,EEXIST,1,"), "{}", read(&csv));
    let iocov: Value = serde_json::from_str(&read(&iocov)).expect("JSON");
    assert_eq!(iocov["output"]["mkdir"]["-17"], 1);
    assert_eq!(iocov["input"]["write"]["count"]["4"], 1);
    assert!(answer.out.contains("mkdir.output.EEXIST"), "{}", answer.out);
}

#[test]
fn runs_are_compared_side_by_side() {
    let Some(dir) = scratch() else { return };
    let report = |name: &str, script: &str| {
        covered(dir.path(), &["--tracer", "ptrace"], script);
        let path = dir.path().join(name);
        std::fs::rename(dir.path().join("report.json"), &path).expect("it was written");
        path.display().to_string()
    };
    let (a, b) =
        (report("first.json", "echo x > f"), report("second.json", "echo x >> f; mkdir d"));
    let answer = fathom(&["cover", "diff", &a, &b, "--json"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let line = answer.out.lines().last().unwrap_or_default();
    let value: Value = serde_json::from_str(line).expect("JSON");
    let only = value["runs"][1]["only_here"].as_array().expect("a list");
    assert!(only.iter().any(|id| id == "open.flags.O_APPEND"), "{only:?}");
    assert!(fathom(&["cover", "diff", &a, &b]).out.contains("O_APPEND"));
    let answer = fathom(&["cover", "diff", &a, "/no/such/report"]);
    assert_eq!(answer.code, 2);
}

#[test]
fn logs_are_imported_by_their_looks() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    std::fs::write(
        &log,
        "12 mkdir(\"/m/a\", 0755) = -1 EEXIST (File exists)\n12 mkdir(\"/x\", 01) = 0\n",
    )
    .expect("it can be written");
    let log = log.display().to_string();
    let answer = fathom(&["cover", "import", &log, "--mount", "/m", "--json"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let report: Value =
        serde_json::from_str(answer.out.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(report["calls"], 1);
    assert_eq!(count(&report, "mkdir", "output", "EEXIST"), 1);
    std::fs::write(dir.path().join("log"), "what is this\n").expect("it can be written");
    let answer = fathom(&["cover", "import", &log]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("not recognised"), "{}", answer.err);
}

#[test]
fn a_record_reads_back_as_what_was_counted() {
    let Some(dir) = scratch() else { return };
    let elsewhere = tempfile::tempdir().expect("a directory");
    let record = elsewhere.path().join("record.jsonl").display().to_string();
    let (answer, live) = covered(dir.path(), &["--tracer", "bpf", "--record", &record], SCRIPT);
    if answer.code == 2 {
        return println!("SKIP record: {}", answer.err);
    }
    let answer = fathom(&["cover", "import", &record, "--json"]);
    let read: Value =
        serde_json::from_str(answer.out.lines().last().unwrap_or_default()).expect("JSON");
    assert!(live["calls"].as_u64() > Some(10));
    for key in ["calls", "partitions_hit", "pairs_hit", "bases"] {
        assert_eq!(live[key], read[key], "{key}");
    }
}

/// `check` and `crash` know what they execute: the same report without a tracer.
#[test]
fn our_own_runs_report_coverage_without_tracing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (out, check, crash) = (file("out"), file("check.json"), file("crash.json"));
    let args = ["check", "model", "--seed", "1", "--ops", "3000", "--coverage", &check];
    let answer = fathom(&[&args[..], &["--out", &out]].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let told: Vec<&str> =
        answer.out.lines().skip_while(|line| !line.starts_with("coverage: ")).collect();
    assert!(told.len() <= 2, "it is one line, and the way to the report: {told:?}");
    assert!(told[0].contains("fathom cover report"), "{told:?}");
    let saved = std::fs::read_to_string(file("out/coverage.json")).expect("it was written");
    assert_eq!(saved, std::fs::read_to_string(&check).expect("it was written"));
    let report: Value = serde_json::from_str(&saved).expect("JSON");
    // The sums of the short form, of --json and of the file are the same.
    let answer = fathom(&[&args[..], &["--out", &out, "--json"]].concat());
    let json: Value = serde_json::from_str(answer.out.lines().last().unwrap_or_default()).unwrap();
    for key in ["partitions_hit", "partitions_total"] {
        assert_eq!(json[key], report[key]);
        assert_eq!(json["coverage"]["open"][key], report["bases"]["open"][key]);
    }
    let args = ["crash", "--depth", "2", "--steps", "put,mkdir", "--coverage", &crash];
    let answer = fathom(&[&args[..], &["--out", &out]].concat());
    assert_eq!(answer.code, 0, "{}", answer.err);
    // Both read back, as a report and side by side.
    let answer = fathom(&["cover", "report", &out]);
    assert!(answer.out.starts_with("fathom crash littlefs\n"), "{}", answer.out);
    let answer = fathom(&["cover", "report", &crash, "--require", "mkdir.output.success"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let answer = fathom(&["cover", "report", &crash, "--require", "open.flags.O_APPEND"]);
    assert_eq!(answer.code, 1, "{}", answer.err);
    let answer = fathom(&["cover", "diff", &check, &crash]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    // What cannot be written is said before the run.
    let answer = fathom(&["check", "model", "--coverage", "/no/such/place", "--out", &out]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("/no/such/place"), "{}", answer.err);
    let answer = fathom(&["cover", "report", "/no/such/report"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("cannot read /no/such/report"), "{}", answer.err);
}
