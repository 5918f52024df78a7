//! The campaign against subjects that lie in a known way.

mod common;
#[path = "../../core/tests/common/golden.rs"]
mod golden;

use common::{Liar, Lie, plan};
use fathom_core::flags::OpenFlags;
use fathom_core::{Mode, Op, Pattern};
use fathom_engine::check::finding::Stored;
use fathom_engine::check::finding::investigate::{Case, investigate, shrink_further};
use fathom_engine::check::rerun::{CompareTrees, Runner};
use fathom_engine::{Finding, Oracle, ReplayVerdict, Report, Silent, check, replay};
use fathom_generate::Call;
use golden::assert_golden;

fn run(lie: Lie, seed: u64, ops: u64) -> Report {
    check(&mut Liar::new(lie), &plan(seed, ops), &mut Silent).expect("the harness works")
}

fn find(lie: Lie) -> Finding {
    let mut report = run(lie, 1, 50_000);
    assert_eq!(report.findings.len(), 1, "{lie:?} was not found");
    report.findings.remove(0)
}

#[test]
fn an_honest_subject_is_not_accused_and_the_goals_are_reached() {
    let report = run(Lie::Honest, 1, 30_000);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!((report.stats.ops, report.stats.trees_compared), (30_000, 30_000));
    assert!(report.stats.remounts > 0 && report.stats.states() > 5_000);
    assert_eq!(report.never, Vec::<String>::new());
}

#[test]
fn rare_walks_look_at_the_last_operation_too() {
    let mut plan = plan(1, 1000);
    plan.config.check.tree_every = 300;
    plan.config.weights.insert(Call::Remount, 0);
    let report = check(&mut Liar::new(Lie::Honest), &plan, &mut Silent).unwrap();
    assert_eq!(report.stats.trees_compared, 4);
}

#[test]
fn a_wrong_errno_is_found_and_shrunk_to_what_it_needs() {
    let finding = find(Lie::WrongErrno);
    assert_eq!(finding.signature.to_string(), "outcome rmdir ENOTEMPTY/EEXIST");
    assert!(finding.minimal.steps.len() <= 4, "{finding}");
    assert_eq!(finding.reproduced(), (2, 2));
}

#[test]
fn a_wrong_tree_is_found_and_shrunk_to_what_it_needs() {
    assert_names_the_link(&find(Lie::WrongSize));
}

/// Either call that makes a second name shows the wrong size, with nothing but what it needs: a file, and for the
/// second one a descriptor of it.
fn assert_names_the_link(finding: &Finding) {
    let steps = match finding.signature.to_string().as_str() {
        "tree link size" => 2,
        "tree link_slot size" => 3,
        _ => panic!("{finding}"),
    };
    assert!(finding.minimal.steps.len() <= steps, "{finding}");
}

/// What becomes of a violation that these operations lead to.
fn investigate_ops(lie: Lie, ops: &[Op]) -> Finding {
    let plan = plan(1, 1);
    let oracle = Oracle::new(&plan.reference, false);
    let mut subject = Liar::new(lie);
    let mut runner = Runner {
        subject: &mut subject,
        reference: &plan.reference,
        oracle: &oracle,
        monitor: None,
        fsck: false,
        patient: false,
    };
    let run = runner.run(ops, CompareTrees::AfterEach).unwrap();
    let violation = run.violation.expect("a violation");
    let case = Case { steps: run.steps, violation, planned: run.planned };
    investigate(&mut runner, &plan, 0, case, Vec::new()).unwrap()
}

#[test]
fn the_story_tells_operations_expectation_and_how_to_replay() {
    let create = |path: &str| Op::Open {
        slot: 0,
        path: path.into(),
        flags: OpenFlags::O_RDWR | OpenFlags::O_CREAT | OpenFlags::O_SYNC,
        mode: Mode(0o6711),
    };
    let data = Pattern { seed: 1, len: 5000 };
    let ops = [
        Op::Mkdir { path: "d0".into(), mode: Mode(0o755) },
        Op::Mkdir { path: "d0/d1".into(), mode: Mode(0o755) },
        create("d0/d1/f0"),
        Op::Write { slot: 0, data },
        Op::Fsync { slot: 0 },
        Op::Link { from: "d0/d1/f0".into(), to: "d0/f1".into(), follow: false },
        Op::Rmdir { path: "d0".into() },
    ];
    let tree = investigate_ops(Lie::WrongSize, &ops);
    assert_golden("story-tree.txt", &tree.to_string());
    let outcome = investigate_ops(Lie::WrongErrno, &ops);
    assert_golden("story-outcome.txt", &outcome.to_string());
}

#[test]
fn with_rare_walks_the_guilty_operation_is_still_named() {
    let mut plan = plan(1, 50_000);
    plan.config.check.tree_every = 50;
    let report = check(&mut Liar::new(Lie::WrongSize), &plan, &mut Silent).unwrap();
    assert_names_the_link(&report.findings[0]);
}

#[test]
fn a_moody_subject_is_its_own_class() {
    let finding = find(Lie::Moody);
    assert_eq!(finding.violation.class(), "non_deterministic");
    assert_eq!(finding.signature.to_string(), "non_deterministic mkdir answer");
}

#[test]
fn a_failing_harness_is_never_a_finding() {
    for (lie, expected) in [
        (Lie::HarnessFails, "harness is full"),
        (Lie::HarnessPanics, "panicked: the harness has a bug"),
    ] {
        let fault = check(&mut Liar::new(lie), &plan(1, 1000), &mut Silent).unwrap_err();
        assert!(fault.to_string().contains(expected), "{fault}");
    }
}

#[test]
fn the_same_seed_finds_the_same() {
    let (one, other) = (find(Lie::WrongErrno), find(Lie::WrongErrno));
    assert_eq!((one.id, one.trace, one.minimal), (other.id, other.trace, other.minimal));
}

#[test]
fn a_campaign_goes_on_to_findings_with_other_signatures() {
    let mut plan = plan(1, 20_000);
    plan.config.check.findings_max = 3;
    let report = check(&mut Liar::new(Lie::TwoErrnos), &plan, &mut Silent).unwrap();
    let mut found: Vec<_> = report.findings.iter().map(|f| f.signature.to_string()).collect();
    found.sort();
    assert_eq!(found, ["outcome rmdir ENOTEMPTY/EEXIST", "outcome unlink EISDIR/EPERM"]);
    assert_eq!((report.stats.findings, report.stats.ops), (2, 20_000));
}

#[test]
fn a_finding_is_a_directory_that_can_be_read_replayed_and_shrunk_again() {
    let out = tempfile::tempdir().unwrap();
    let finding = find(Lie::WrongErrno);
    let dir = finding.write(out.path()).unwrap();
    assert_eq!(dir.file_name().unwrap().to_str(), Some(finding.id.as_str()));
    for name in [
        "finding.toml",
        "trace.jsonl",
        "minimal.jsonl",
        "before.tree",
        "expected.tree",
        "after.tree",
        "diff.txt",
        "repro.c",
        "repro.sh",
        "runs.jsonl",
    ] {
        assert!(dir.join(name).metadata().unwrap().len() > 0, "{name}");
    }
    let stored = Stored::read(&dir).unwrap();
    assert_eq!(stored.recorded, finding.recorded());
    assert_eq!((&stored.trace, &stored.minimal), (&finding.trace, &finding.minimal));
    assert_eq!(stored.runs.len(), 3);

    let verdict = |lie, trace| replay(&mut Liar::new(lie), trace).unwrap().verdict;
    assert_eq!(verdict(Lie::WrongErrno, &stored.trace), ReplayVerdict::Reproduced);
    assert_eq!(verdict(Lie::WrongErrno, &stored.minimal), ReplayVerdict::Reproduced);
    assert_eq!(verdict(Lie::Honest, &stored.minimal), ReplayVerdict::NotReproduced);
    let size = find(Lie::WrongSize);
    let mut stranger = size.minimal.clone();
    stranger.header.config["signature"] = "outcome rmdir ENOTEMPTY/EEXIST".into();
    assert_eq!(verdict(Lie::WrongSize, &stranger), ReplayVerdict::Different);

    let budget = std::time::Duration::from_secs(5);
    let mut subject = Liar::new(Lie::WrongErrno);
    let again = shrink_further(&mut subject, stored.clone(), budget, &None).unwrap().unwrap();
    assert!(again.minimal.steps.len() <= finding.minimal.steps.len());
    assert!(shrink_further(&mut Liar::new(Lie::Honest), stored, budget, &None).unwrap().is_none());
}
