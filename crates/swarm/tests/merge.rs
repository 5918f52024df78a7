//! Uniting results: the same whatever the order and however often; damaged and hostile entries are
//! refused one by one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use fathom_record::run::{Count, FindingPage, Kind, Run, Sample};
use fathom_record::{Evidence, Finding, STATES_FILE, VisitedStates};
use fathom_swarm::{Merged, merge};
use proptest::prelude::*;
use serde_json::json;

/// Coverage of a run with so many calls.
fn coverage(calls: u64) -> String {
    let place = |kind: &str, name: &str| {
        json!({
            "kind": kind, "hit": 1, "total": 2, "variation": 1.0,
            "partitions": [{"name": name, "count": calls}, {"name": "rest", "count": 0}],
        })
    };
    let open = json!({
        "scope": "core", "calls": calls, "variants": {"openat": calls}, "partitions_hit": 2, "partitions_total": 4,
        "args": {"flags": place("bitmask", "O_RDONLY")}, "output": place("output", "ok"),
    });
    json!({
        "fathom_cover": 1, "title": "a run", "tracer": "stream", "limits": [], "mounts": [], "ended": null,
        "seconds": 1.5, "amounts": "powers", "has_outputs": true, "calls": calls, "lost": 0, "unresolved": 0,
        "guessed": 0, "partitions_hit": 2, "partitions_total": 4, "partitions_unreachable": 0, "pairs_hit": 0,
        "pairs_total": 0, "scopes": {"core": {"hit": 2, "total": 4}}, "bases": {"open": open}, "orphans": {},
        "holes": [{"words": "never", "add": "open()", "partitions": ["open.flags.rest"]}],
    })
    .to_string()
}

/// A run of a made-up check: its states are `seed * 50 .. seed * 50 + 100`, so neighbours share half.
fn write_run(dir: &Path, seed: u64, complete: bool, finding: Option<&str>) {
    let command = format!("fathom check model --seed {seed} --out {}", dir.display());
    let mut run = Run::start(Kind::Check, &command, "model");
    (run.seed, run.complete, run.seconds) = (Some(seed), complete, 1.5);
    let operations = if complete { 1000 } else { 400 };
    let count = |name: &str, value| Count { name: name.to_owned(), value, about: String::new() };
    run.counts = vec![count("operations", operations), count("states", 100)];
    run.samples = vec![Sample {
        seconds: 0.5,
        states: 50,
        crash_images: 0,
        findings: 0,
        coverage: 0,
        operations: operations / 2,
    }];
    if let Some(signature) = finding {
        let id = format!("{seed:012x}");
        let mut finding = Finding::new("check", &id, signature);
        finding.subject = "model".to_owned();
        finding.evidence = vec![Evidence::text("trace.jsonl", "{}\n")];
        finding.write(dir).unwrap();
        run.findings.push(FindingPage {
            id,
            title: signature.to_owned(),
            count: 2,
            ..Default::default()
        });
    }
    fs::create_dir_all(dir).unwrap();
    run.write(dir).unwrap();
    fs::write(dir.join("coverage.json"), coverage(operations)).unwrap();
    let states = VisitedStates::default();
    (seed * 50..seed * 50 + 100).for_each(|state| states.add(u128::from(state)));
    fs::write(dir.join(STATES_FILE), states.sketch().encode("trees")).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Everything that must not depend on the order.
fn summary(merged: &Merged) -> String {
    let mut run = merged.run("", "");
    run.findings.iter_mut().for_each(|page| page.directory.clear());
    let states = merged.states_total();
    format!("{} {states:?} {:?}", serde_json::to_string(&run).unwrap(), merged.counts)
}

#[test]
fn numbers_are_added_states_united_and_findings_grouped_by_cause() {
    let out = tempfile::tempdir().unwrap();
    for seed in 0..4 {
        let signature = if seed < 3 { "tree link size" } else { "outcome rmdir" };
        write_run(&out.path().join(format!("{seed}")), seed, seed != 2, Some(signature));
    }
    let merged = merge(&[out.path().to_owned()]);
    assert_eq!((merged.runs, merged.complete), (4, 3));
    assert_eq!(merged.count("operations"), 3400);
    let covered = merged.coverage.as_ref().map(|report| (report.calls, report.partitions_hit));
    assert_eq!(covered, Some((3400, 2)), "counts are added, partitions are the same");
    assert_eq!(merged.states_total().states, 250, "0..100, 50..150, 100..200, 150..250");
    let causes: Vec<_> = merged.findings.iter().map(|f| (f.signature.as_str(), f.runs)).collect();
    assert_eq!(causes, [("tree link size", 3), ("outcome rmdir", 1)]);
    assert_eq!(merged.findings[0].sightings, 6);
    assert_eq!(merged.refused, []);
    let run = merged.run("fathom swarm", "swarm");
    assert_eq!(run.samples.last().map(|sample| sample.operations), Some(3400));

    let united = tempfile::tempdir().unwrap();
    merged.write(&run, united.path()).unwrap();
    assert_eq!(Run::read(united.path()).unwrap(), run);
    let record = united.path().join(&run.findings[0].id);
    assert!(record.join("finding.toml").exists() && record.join("trace.jsonl").exists());
    // A result is no run: it is not counted again.
    assert_eq!(merge(&[united.path().to_owned()]).runs, 0);
}

/// A run shrinks what it has found while it is united: the record goes by another name when it is to be copied.
#[test]
fn a_record_that_went_away_meanwhile_is_no_error() {
    let out = tempfile::tempdir().unwrap();
    write_run(&out.path().join("1"), 1, false, Some("tree link size"));
    write_run(&out.path().join("2"), 2, true, Some("outcome rmdir"));
    let merged = merge(&[out.path().to_owned()]);
    fs::remove_dir_all(out.path().join("1/000000000001")).unwrap();
    let united = tempfile::tempdir().unwrap();
    merged.write(&merged.run("", ""), united.path()).unwrap();
    let records = fs::read_dir(united.path()).unwrap().flatten();
    let records = records.filter(|entry| entry.path().is_dir()).count();
    assert_eq!(records, 1, "nothing half copied is left");
}

/// A copy that stopped earlier, one that is the same, an attempt before: one run.
#[test]
fn a_run_is_counted_once_and_the_one_that_came_furthest_speaks() {
    let out = tempfile::tempdir().unwrap();
    write_run(&out.path().join("tasks/1/attempt-1"), 7, false, Some("tree link size"));
    write_run(&out.path().join("tasks/1/attempt-2"), 7, true, None);
    copy(&out.path().join("tasks/1/attempt-2"), &out.path().join("copy"));
    let merged = merge(&[out.path().to_owned()]);
    assert_eq!((merged.runs, merged.complete, merged.count("operations")), (1, 1, 1000));
    assert_eq!(merged.findings.len(), 1, "what an earlier attempt found is not lost");
    assert_eq!(merged.findings[0].runs, 0, "and is not counted twice");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn order_and_repetition_change_nothing(
        runs in prop::collection::vec((0_u64..6, any::<bool>(), 0_usize..4), 1..8),
        turn in any::<prop::sample::Index>(),
        again in any::<prop::sample::Index>(),
    ) {
        let out = tempfile::tempdir().unwrap();
        let signatures = ["tree link size", "outcome rmdir", "tree open mode"];
        let mut dirs: Vec<PathBuf> = Vec::new();
        for (index, (seed, complete, finding)) in runs.iter().enumerate() {
            let dir = out.path().join(index.to_string());
            write_run(&dir, *seed, *complete, signatures.get(*finding).copied());
            dirs.push(dir);
        }
        let once = summary(&merge(&dirs));
        dirs.push(again.get(&dirs).clone());
        copy(again.get(&dirs).clone().as_path(), &out.path().join("copied"));
        dirs.push(out.path().join("copied"));
        let turn = turn.index(dirs.len());
        dirs.rotate_left(turn);
        prop_assert_eq!(summary(&merge(&dirs)), once.clone());
        dirs.reverse();
        prop_assert_eq!(summary(&merge(&dirs)), once);
    }

    /// Any damage to any file of one directory, cut off or written over, leaves the others as they are.
    #[test]
    fn damage_stays_where_it_is(
        file in 0_usize..5,
        at in any::<prop::sample::Index>(),
        cut in any::<bool>(),
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            // What is damaged and can still be read.
            prop::collection::vec(prop::sample::select(b"0123456789e-.,:{}[]\"".to_vec()), 0..24),
        ],
    ) {
        let out = tempfile::tempdir().unwrap();
        let (good, bad) = (out.path().join("good"), out.path().join("bad"));
        write_run(&good, 1, true, Some("tree link size"));
        write_run(&bad, 3, true, Some("outcome rmdir"));
        let trace = "000000000003/trace.jsonl";
        let name = ["run.json", STATES_FILE, "000000000003/finding.toml", "coverage.json", trace][file];
        let mut contents = fs::read(bad.join(name)).unwrap();
        let at = at.index(contents.len());
        let end = if cut { contents.len() } else { (at + bytes.len()).min(contents.len()) };
        contents.splice(at..end, bytes);
        fs::write(bad.join(name), &contents).unwrap();
        let merged = merge(&[out.path().to_owned()]);
        prop_assert!(merged.runs >= 1 && merged.count("operations") >= 1000);
        prop_assert!(merged.findings.iter().any(|f| f.signature == "tree link size"));
        prop_assert!(merged.states_total().states >= 100);
        let calls = merged.coverage.as_ref().map_or(0, |report| report.calls);
        prop_assert!(calls >= 1000, "the coverage of the good one: {calls} calls");
        let united = tempfile::tempdir().unwrap();
        let run = merged.run("", "");
        merged.write(&run, united.path()).unwrap();
        if name == trace {
            // Nobody reads it on the way: it is evidence, and comes along as it is.
            prop_assert_eq!(merged.findings.len(), 2);
            let page = run.findings.iter().find(|page| page.id.contains("000000000003")).unwrap();
            let copied = fs::read(united.path().join(&page.id).join("trace.jsonl")).unwrap();
            prop_assert_eq!(copied, contents);
        }
    }
}

#[test]
fn hostile_entries_are_refused_by_name() {
    let out = tempfile::tempdir().unwrap();
    let secret = out.path().join("secret");
    fs::write(&secret, "format = 2\nprivate\n").unwrap();
    let runs = out.path().join("runs");
    write_run(&runs.join("good"), 1, true, None);

    // A finding that leads out of its directory.
    write_run(&runs.join("way-out"), 2, true, Some("x"));
    let mut run = Run::read(&runs.join("way-out")).unwrap();
    run.findings[0].id = "../../secret".to_owned();
    run.findings.push(FindingPage { id: String::new(), ..Default::default() });
    run.write(&runs.join("way-out")).unwrap();
    // A link instead of a record, of states, of a run, of a directory.
    write_run(&runs.join("links"), 3, true, Some("x"));
    fs::remove_file(runs.join("links/000000000003/finding.toml")).unwrap();
    symlink(&secret, runs.join("links/000000000003/finding.toml")).unwrap();
    fs::remove_file(runs.join("links").join(STATES_FILE)).unwrap();
    symlink("/dev/zero", runs.join("links").join(STATES_FILE)).unwrap();
    fs::create_dir(runs.join("linked-run")).unwrap();
    symlink(runs.join("good/run.json"), runs.join("linked-run/run.json")).unwrap();
    symlink(runs.join("good"), runs.join("linked-directory")).unwrap();
    // A pipe that nobody writes to, a directory, a file that is too large.
    for (name, make) in [("pipe", 0), ("directory", 1), ("large", 2)] {
        let dir = runs.join(name);
        fs::create_dir(&dir).unwrap();
        match make {
            0 => rustix::fs::mknodat(
                rustix::fs::CWD,
                dir.join("run.json"),
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RUSR,
                0,
            )
            .unwrap(),
            1 => fs::create_dir(dir.join("run.json")).unwrap(),
            _ => fs::File::create(dir.join("run.json")).unwrap().set_len(1 << 32).unwrap(),
        }
    }
    let merged = merge(&[runs.clone(), out.path().join("not-there")]);
    assert_eq!(merged.runs, 3, "good, way-out and links are runs");
    assert!(merged.findings.is_empty(), "{:?}", merged.findings);
    let told: Vec<String> = merged.refused.iter().map(ToString::to_string).collect();
    for name in [
        "way-out",
        "links/000000000003",
        "states.sketch",
        "linked-run",
        "pipe",
        "directory",
        "large",
        "not-there",
    ] {
        assert!(told.iter().any(|line| line.contains(name)), "{name} in {told:#?}");
    }
    assert!(!told.iter().any(|line| line.contains("private")), "{told:#?}");
}
