//! `fathom crash` as people and machines use it, on the real littlefs.

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use common::{ask, command, fathom, scratch};

fn json(args: &[&str], dir: &Path) -> (i32, Value) {
    common::json(&[args, &["--json"]].concat(), dir)
}

/// Workloads without a rename into another directory, in which littlefs has no known bug.
const WITHOUT_MOVES: &str = "put,mkdir,rewrite,rename,replace,unlink,rmdir,remount";

#[test]
fn the_bare_program_finds_the_rename_bug_of_littlefs_and_replays_it() {
    let dir = scratch();
    let (code, out, err) = fathom(&[], dir.path());
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("lost entry in rename into another directory"), "{out}");
    assert!(out.contains("littlefs: 1 finding"), "{out}");
    let line = out.lines().find(|line| line.starts_with("replay: ")).expect("how to replay");
    let id = line.rsplit(' ').next().expect("an id");
    // open, close, mkdir; then the rename.
    let record = std::fs::read_to_string(dir.path().join(format!("fathom-out/{id}/finding.toml")));
    let record: toml::Table = record.expect("recorded").parse().expect("TOML");
    assert_eq!(record["details"]["ops"].as_integer(), Some(4), "{record}");
    let (code, replay) = json(&["replay", id], dir.path());
    assert_eq!((code, replay["verdict"].as_str()), (0, Some("reproduced")), "{replay}");
    let html = std::fs::read_to_string(dir.path().join("fathom-out/report.html")).expect("a page");
    assert!(html.contains(id) && html.contains("<svg"), "the page shows the finding");
}

/// Every workload of up to six steps from a small alphabet: exact numbers, for any number of threads.
#[test]
fn an_exhaustive_run_to_depth_6_has_exact_counts() {
    let args = [
        "crash",
        "littlefs",
        "--depth",
        "6",
        "--steps",
        "put,mkdir,rename,move,unlink,rmdir",
        "--sizes",
        "10",
        "--no-probe",
    ];
    for jobs in ["1", "2"] {
        let dir = scratch();
        let (code, run) = json(&[&args[..], &["--jobs", jobs]].concat(), dir.path());
        assert_eq!(code, 1, "{run}");
        assert_eq!(run["states"], 634, "{run}");
        assert_eq!(run["crash_images"], 37_361, "{run}");
        let findings = run["findings"].as_array().expect("a list");
        assert_eq!(findings.len(), 1, "{run}");
        assert_eq!(findings[0]["class"], "lost_entry");
        assert_eq!(findings[0]["count"], 2_933, "{run}");
        assert_eq!(findings[0]["reproduced"], true);
        assert_eq!(findings[0]["ops"].as_array().expect("a list").len(), 4);
    }
}

#[test]
fn without_moves_littlefs_is_clean() {
    let dir = scratch();
    let (code, run) =
        json(&["crash", "littlefs", "--depth", "3", "--steps", WITHOUT_MOVES], dir.path());
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["findings"].as_array().map(Vec::len), Some(0));
    assert_eq!(run["levels"], serde_json::json!(["linear", "torn"]));
}

/// Whether a finding, or a variant of it, is of a class.
fn shows(finding: &serde_json::Value, class: &str) -> bool {
    let variants = finding["variants"].as_array().expect("a list");
    finding["class"] == class || variants.iter().any(|variant| variant["class"] == class)
}

/// A missing flush is one mistake, however many operations and classes show it.
#[test]
fn the_findings_of_one_missing_flush_are_one() {
    let dir = scratch();
    let args = ["crash", "littlefs", "--mutant", "drop-flush", "--level", "epoch", "--depth", "1"];
    let (code, run) = json(&args, dir.path());
    let findings = run["findings"].as_array().expect("a list");
    assert_eq!((code, findings.len()), (1, 1), "{run}");
    let variants = findings[0]["variants"].as_array().expect("a list");
    assert!(variants.len() >= 5, "{run}");
    for class in ["lost_entry", "unmountable"] {
        assert!(shows(&findings[0], class), "{class}: {run}");
    }
    let text = ask(&["report"], dir.path()).out;
    assert!(text.contains("also as: "), "{text}");
}

/// Every seeded bug is found and shows what it should; the wrapper without a bug is clean.
#[test]
fn every_seeded_crash_bug_is_found() {
    let dir = scratch();
    let (_, mutants) = json(&["list", "crash-mutants"], dir.path());
    let mutants = mutants.as_array().expect("a list");
    // Those of kernel file systems have tests of their own.
    let mutants: Vec<&Value> =
        mutants.iter().filter(|mutant| mutant["subjects"] == "library").collect();
    assert!(mutants.len() >= 19, "{}", mutants.len());
    let mut missed = Vec::new();
    for mutant in mutants {
        let [name, class, level] =
            ["name", "class", "level"].map(|key| mutant[key].as_str().expect("text"));
        let found = ["2", "3"].into_iter().any(|depth| {
            let args = [
                "crash",
                "littlefs",
                "--mutant",
                name,
                "--level",
                level,
                "--depth",
                depth,
                "--steps",
                WITHOUT_MOVES,
            ];
            let (code, run) = json(&args, dir.path());
            let findings = run["findings"].as_array().expect("a list");
            code == 1 && findings.iter().any(|finding| shows(finding, class))
        });
        if !found {
            missed.push(name);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
    for level in ["linear", "lost"] {
        let args = [
            "crash",
            "littlefs",
            "--mutant",
            "correct",
            "--level",
            level,
            "--depth",
            "3",
            "--steps",
            WITHOUT_MOVES,
        ];
        let (code, run) = json(&args, dir.path());
        assert_eq!(code, 0, "{run}");
    }
}

/// What a run of given workloads on a library counted.
fn counted(run: &Value, what: &str) -> u64 {
    run["workloads"][what].as_u64().unwrap_or_else(|| panic!("{what}: {run}"))
}

/// Workloads that were made for kernel file systems, on a library: what it lacks is left out and told.
#[test]
fn a_library_takes_the_workloads_of_kernel_file_systems() {
    let ace = ["--workload", "ace:1", "--ace-ops", "creat,unlink,write"];
    let ops = ["--workload", "ops", "--states", "60", "--seed", "3"];
    for workloads in [&ace[..], &ops] {
        let dir = scratch();
        let run =
            |more: &[&str]| json(&[&["crash", "littlefs"], workloads, more].concat(), dir.path());
        let (_, correct) = run(&["--mutant", "correct"]);
        assert_eq!(correct["findings"].as_array().map(Vec::len), Some(0), "{correct}");
        let (code, plain) = run(&[]);
        // The one bug that littlefs is known to have.
        let known = |finding: &Value| {
            finding["cause"]
                .as_str()
                .is_some_and(|cause| cause.contains("rename into another directory"))
        };
        let findings = plain["findings"].as_array().expect("a list");
        assert!(findings.iter().all(known) && code == i32::from(!findings.is_empty()), "{plain}");
        let [all, left_out] = ["workloads", "ops_left_out"].map(|what| counted(&plain, what));
        let followed = all - counted(&plain, "not_followed");
        assert!(all >= 40 && left_out > 0 && followed * 10 > all * 7, "{plain}");
        assert!(plain["crash_images"].as_u64() > Some(200), "{plain}");
        let (code, lazy) = run(&["--mutant", "lazy-unlink", "--first"]);
        assert_eq!(code, 1, "{lazy}");
        let id = lazy["findings"][0]["id"].as_str().expect("an id");
        let (code, replay) = json(&["replay", id], dir.path());
        assert_eq!((code, replay["verdict"].as_str()), (0, Some("reproduced")), "{replay}");
    }
}

/// Whatever the workloads come from, the parts of a run are the whole, and no two share a workload.
#[test]
fn the_parts_of_every_source_are_complete_and_disjoint() {
    let dir = scratch();
    let export = ["crash", "--workload", "ace:1", "--ace-ops", "creat", "--export-jlang", "files"];
    assert_eq!(ask(&export, dir.path()).code, 0);
    let quick = ["--level", "linear", "--no-probe", "--points", "persistence"];
    let run = |source: &[&str], part: &str| {
        let args = [&["crash", "littlefs"], source, &quick, &["--part", part]].concat();
        let (_, run) = json(&args, dir.path());
        ["workloads", "ops", "ops_left_out"].map(|what| counted(&run, what))
    };
    for source in ["known", "jlang:files", "ace:1"] {
        let source = ["--workload", source];
        let whole = run(&source, "1/1");
        let mut sum = [0; 3];
        for part in ["1/3", "2/3", "3/3"] {
            let counts = run(&source, part);
            assert!(counts[0] > 0 && counts[0] < whole[0], "{source:?} {part}: {counts:?}");
            (0..3).for_each(|index| sum[index] += counts[index]);
        }
        assert_eq!(sum, whole, "{source:?}");
    }
    // A stream has no end: the first ten are the first five of both halves.
    let first = |part: &str, count: &str| run(&["--workload", "ops", "--states", count], part);
    let (whole, halves) = (first("1/1", "10"), [first("1/2", "5"), first("2/2", "5")]);
    assert_eq!([0, 1].map(|index| halves[0][index] + halves[1][index]), whole[..2]);
}

/// A finding of a mutant carries the mutant in its name, so that it replays.
#[test]
fn findings_of_mutants_replay() {
    let dir = scratch();
    let args =
        ["crash", "littlefs", "--mutant", "lazy-unlink", "--depth", "2", "--level", "linear"];
    let (code, run) = json(&args, dir.path());
    assert_eq!(code, 1, "{run}");
    let id = run["findings"][0]["id"].as_str().expect("an id");
    let (code, replay) = json(&["replay", id], dir.path());
    assert_eq!((code, replay["verdict"].as_str()), (0, Some("reproduced")), "{replay}");
    let (code, replay) = json(&["replay", id, "--subject", "littlefs"], dir.path());
    assert_eq!((code, replay["verdict"].as_str()), (1, Some("not_reproduced")), "{replay}");
}

/// Killed in the middle and resumed: the same numbers and the same findings.
#[test]
fn a_killed_run_is_resumed_to_the_same_result() {
    let run = ["crash", "littlefs", "--depth", "4", "--no-probe"];
    let whole = scratch();
    let (code, expected) = json(&run, whole.path());
    assert_eq!(code, 1);

    let dir = scratch();
    let saved = [&run[..], &["--checkpoint", "--checkpoint-every", "50ms"]].concat();
    let mut child = command(&saved, dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let checkpoint = dir.path().join("fathom-out/crash.checkpoint");
    let patience = Instant::now() + Duration::from_secs(60);
    while !checkpoint.exists() {
        assert!(Instant::now() < patience, "no checkpoint was written");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("SIGKILL");
    let status = child.wait().expect("it is gone");
    assert_eq!(status.code(), None, "it was killed before it ended");

    let (code, resumed) = json(&[&run[..], &["--resume"]].concat(), dir.path());
    assert_eq!(code, 1);
    for key in ["states", "transitions", "states_by_depth", "crash_images", "findings"] {
        assert_eq!(resumed[key], expected[key], "{key}");
    }
}

#[test]
fn bad_input_is_named_and_ends_with_2() {
    let dir = scratch();
    std::fs::write(dir.path().join("file"), "").expect("writable");
    std::fs::create_dir_all(dir.path().join("bad")).expect("writable");
    std::fs::write(dir.path().join("bad/finding.toml"), "kind = \"crash\"\n").expect("writable");
    std::fs::write(dir.path().join("odd.toml"), "depht = 3\n").expect("writable");
    let mut cases: Vec<(&[&str], &str)> = vec![
        (&["crash", "littelfs"], "did you mean littlefs"),
        (&["crash", "--depth", "0"], "depth is 0"),
        (&["crash", "--crashes", "0"], "crashes is 0"),
        (&["crash", "--geometry", "8"], "is no geometry"),
        (&["crash", "--geometry", "32x250/16"], "not a multiple"),
        (&["crash", "--geometry", "1x256"], "needs at least 2"),
        (&["crash", "--geometry", "32x64"], "at least 128"),
        (&["crash", "--level", "all"], "no crash level is called"),
        (&["crash", "--steps", "jump"], "no step is called"),
        (&["crash", "--mutant", "lazy-unlnk"], "did you mean lazy-unlink"),
        (&["crash", "--config", "odd.toml"], "unknown field `depht`"),
        (&["crash", "--config", "none.toml"], "cannot read none.toml"),
        (&["crash", "--out", "file/in"], "give another --out"),
        (&["crash", "--resume"], "crash.checkpoint"),
        (&["crash", "--resume", "--strategy", "walk"], "walks are repeated"),
        (&["replay", "bad"], "finding.toml"),
        (&["replay", "nothing"], "no finding"),
    ];
    if !cfg!(feature = "fatfs") {
        cases.push((&["crash", "fatfs"], "--features fatfs"));
    }
    for (args, complaint) in cases {
        let (code, out, err) = fathom(args, dir.path());
        assert_eq!(code, 2, "{args:?}: {out}{err}");
        assert!(err.contains(complaint), "{args:?}: {err}");
    }
}
