//! Every mistake of the toy is found, and named for what it is.

use fathom_block::backed::Durable;
use fathom_block::{BlockBacked, Examine, Image, InProcess, Level};
use fathom_core::Digest;
use fathom_engine::crash::config::Identity;
use fathom_engine::crash::recovery::{Recovered, questions};
use fathom_engine::crash::workload::StepKind;
use fathom_engine::crash::{Class, CrashConfig, CrashPlan, CrashReport};

use super::bug::Bug;
use super::toy::Toy;
use super::{base, check, find, plan, run};

fn config(levels: &[Level], depth: u32) -> CrashConfig {
    CrashConfig { levels: levels.to_vec(), depth, sizes: vec![600], fsck: false, ..base() }
}

fn toy(bug: Bug) -> Toy {
    Toy::new(Durable::Operation).with(bug)
}

/// All classes of a report, sorted.
fn classes(report: &CrashReport) -> Vec<Class> {
    let mut classes: Vec<Class> =
        report.findings.iter().map(|finding| finding.record.cause.class).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// What a check of depth 2 finds at some levels; all of it can be seen again.
fn found(toy: &Toy, levels: &[Level]) -> Vec<Class> {
    let report = check(toy, &config(levels, 2));
    for finding in &report.findings {
        let record = &finding.record;
        assert_eq!(record.runs_reproduced, record.runs, "{finding}");
    }
    classes(&report)
}

#[test]
fn snapshots_without_a_checksum() {
    let toy = toy(Bug::NoChecksum);
    assert_eq!(
        found(&toy, &[Level::Torn]),
        [Class::LostEntry, Class::ResurrectedEntry, Class::WrongContent, Class::NotIdempotent]
    );
    // Nobody tears a write, neither of an operation nor of its recovery.
    assert_eq!(found(&toy, &[Level::Linear, Level::Epoch, Level::Lost, Level::Erase]), []);
}

#[test]
fn snapshots_in_place() {
    for level in [Level::Linear, Level::Epoch, Level::Torn, Level::Erase] {
        let found = found(&toy(Bug::InPlace), &[level]);
        assert_eq!(found, [Class::LostEntry, Class::NotIdempotent], "{level}");
    }
}

#[test]
fn flushes_that_are_missing_show_only_if_writes_are_reordered() {
    let before = Toy::new(Durable::Operation).ordered().with(Bug::NoFlushBefore);
    let after = toy(Bug::NoFlushAfter);
    for level in [Level::Linear, Level::Torn, Level::Erase] {
        assert_eq!(found(&before, &[level]), [], "{level}");
        assert_eq!(found(&after, &[level]), [], "{level}");
    }
    assert_eq!(found(&before, &[Level::Epoch]), [Class::LostEntry, Class::WrongContent]);
    assert_eq!(found(&before, &[Level::Lost]), [Class::LostEntry]);
    let all = [Class::Unmountable, Class::LostEntry, Class::ResurrectedEntry, Class::WrongContent];
    assert_eq!(found(&after, &[Level::Epoch]), all);
    assert_eq!(found(&after, &[Level::Lost]), all);
}

/// However many consequences it has, one missing flush is one finding, and two are two.
#[test]
fn findings_are_as_many_as_missing_flushes() {
    let group = |bug: Option<Bug>| {
        let toy = Toy::new(Durable::Operation);
        let toy = bug.into_iter().fold(toy, Toy::with);
        let plan = CrashPlan { group: true, ..plan(&config(&[Level::Epoch], 3)) };
        let report = run(&toy, &plan);
        let mut places = Vec::new();
        for finding in &report.findings {
            let cause = &finding.record.cause;
            assert_eq!(finding.record.runs_reproduced, finding.record.runs, "{finding}");
            places.push(cause.unflushed.as_ref().map(ToString::to_string).unwrap_or_default());
        }
        places.sort_unstable();
        let variants = report.findings.iter().map(|finding| finding.record.variants.len());
        (places, variants.sum::<usize>())
    };
    assert_eq!(group(None).0, [""; 0]);
    let (places, variants) = group(Some(Bug::NoFlushAfterMkdir));
    assert_eq!(places, ["no flush after mkdir"]);
    assert!(variants > 3, "{variants} other consequences");
    let (places, _) = group(Some(Bug::NoFlushAfterTwo));
    assert_eq!(places, ["no flush after mkdir", "no flush after unlink"]);
    let (places, variants) = group(Some(Bug::NoFlushAfter));
    assert_eq!(places.len(), 1, "{places:?}");
    assert!(variants > 10, "{variants} other consequences");
}

#[test]
fn a_sequence_number_that_stands_still() {
    let report = check(&toy(Bug::StaleSequence), &config(&[Level::Linear], 2));
    find(&report, Class::LostEntry, "mkdir");
    find(&report, Class::ResurrectedEntry, "rmdir");
    find(&report, Class::WrongContent, "pwrite");
}

#[test]
fn operations_that_lie() {
    let report = check(&toy(Bug::UnlinkDoesNothing), &config(&[Level::Linear], 2));
    let finding = find(&report, Class::WrongAnswer, "unlink");
    let record = &finding.record;
    assert_eq!((record.runs_reproduced, record.count), (2, 1));
    assert!(finding.image.is_none() && record.levels.is_empty());
    assert_eq!(finding.cut(), "no power failure is needed");
    // One cause, however large the file is.
    let sizes = CrashConfig { sizes: vec![1, 10, 300], ..config(&[Level::Linear], 2) };
    let report = check(&toy(Bug::UnlinkDoesNothing), &sizes);
    let wrong = |finding: &&super::CrashFinding| finding.record.cause.class == Class::WrongAnswer;
    assert_eq!(report.findings.iter().filter(wrong).count(), 1);

    let report = check(&toy(Bug::RenamePanics), &config(&[Level::Linear], 2));
    let finding = find(&report, Class::WrongAnswer, "rename");
    assert_eq!(finding.record.what, "panics: a toy that cannot rename");
    let finding = find(&report, Class::NotUsable, "mkdir");
    assert_eq!(finding.record.what, "panics when used: a toy that cannot rename");
}

#[test]
fn a_rename_in_two_steps_leaves_both_names() {
    assert_eq!(found(&toy(Bug::RenameInTwoSteps), &[Level::Linear]), [Class::ResurrectedEntry]);
    let report = check(&toy(Bug::RenameInTwoSteps), &config(&[Level::Linear], 2));
    let finding = find(&report, Class::ResurrectedEntry, "rename");
    assert_eq!(finding.record.ops, 2);
    assert!(finding.record.what.starts_with("b should not be there: "), "{finding}");
}

#[test]
fn a_truncation_that_does_not_wait() {
    let toy = Toy::new(Durable::Close).with(Bug::TruncatesAtOnce);
    assert_eq!(found(&toy, &[Level::Linear]), [Class::WrongContent]);
    let report = check(&toy, &config(&[Level::Linear], 2));
    let finding = find(&report, Class::WrongContent, "open");
    assert!(finding.record.what.starts_with("a: size should be "), "{finding}");
}

#[test]
fn recovery_that_forgets() {
    assert_eq!(found(&toy(Bug::ForgetsLast), &[Level::Linear]), [Class::LostEntry]);
    let report = check(&toy(Bug::ForgetsLast), &config(&[Level::Linear], 2));
    let finding = find(&report, Class::LostEntry, "mkdir");
    assert_eq!(finding.record.what, "a is missing");
    assert_eq!(finding.record.cause.place, "another entry of the same directory");
}

#[test]
fn recovery_that_cannot_be_repeated() {
    for (bug, what) in [
        (Bug::RepairsInPlace, "recovery, interrupted, leaves what cannot be mounted"),
        (Bug::MountsOnce, "recovery, interrupted, leaves what cannot be mounted"),
    ] {
        assert_eq!(found(&toy(bug), &[Level::Linear]), [Class::NotIdempotent], "{bug:?}");
        let report = check(&toy(bug), &config(&[Level::Linear], 2));
        assert_eq!(find(&report, Class::NotIdempotent, "mkdir").record.what, what);
    }
}

#[test]
fn a_mount_that_writes_is_interrupted_too() {
    let toy = toy(Bug::MountRewrites);
    let report = check(&toy, &config(&[Level::Linear], 2));
    let finding = find(&report, Class::LostEntry, "remount");
    assert_eq!((finding.record.runs_reproduced, finding.record.ops), (2, 3), "{finding}");
    assert_eq!(
        found(&toy, &[Level::Linear]),
        [Class::LostEntry, Class::WrongContent, Class::NotIdempotent]
    );
}

#[test]
fn a_recovered_disk_that_cannot_be_used() {
    for (bug, class, what) in [
        (Bug::RefusesNewFiles, Class::NotUsable, "a file in \".\" cannot be made: EROFS"),
        (Bug::PanicsWhenUsed, Class::NotUsable, "panics when used: a toy that is marked"),
        (Bug::Unreadable, Class::Unreadable, "open(\"a\") fails with EIO"),
        (Bug::RecoveryLeaks, Class::Leak, "only "),
        (Bug::UnlinkLeaks, Class::Leak, "2048 bytes fit, then not even 2048: freed space is gone"),
        (Bug::RecoveryPanics, Class::Unmountable, "panics: a toy of 1 parts"),
    ] {
        let toy = toy(bug);
        assert_eq!(found(&toy, &[Level::Linear]), [class], "{bug:?}");
        // Without the probe, what only use shows is not seen.
        let unused = CrashConfig { probe: false, ..config(&[Level::Linear], 2) };
        let seen = matches!(class, Class::Unreadable | Class::Unmountable);
        assert_eq!(!check(&toy, &unused).findings.is_empty(), seen, "{bug:?}");
        let report = check(&toy, &config(&[Level::Linear], 2));
        let finding = find(&report, class, "rename");
        assert!(finding.record.what.starts_with(what), "{bug:?}: {}", finding.record.what);
    }
}

#[test]
fn what_only_an_independent_checker_sees() {
    let with = |fsck| {
        let config = CrashConfig { fsck, ..config(&[Level::Linear], 2) };
        check(&toy(Bug::LeavesMark), &config)
    };
    assert!(with(false).findings.is_empty());
    let report = with(true);
    assert_eq!(classes(&report), [Class::Rejected]);
    assert_eq!(find(&report, Class::Rejected, "mkdir").record.what, "a mark is set");
}

#[test]
fn answers_that_change() {
    let report = check(&toy(Bug::ForgetsSometimes), &config(&[Level::Linear], 2));
    assert_eq!(classes(&report), [Class::NonDeterministic]);
    let finding = find(&report, Class::NonDeterministic, "mkdir");
    assert_eq!(finding.record.what, "the same image mounted twice shows two trees");
}

#[test]
fn a_mount_that_reads_for_ever_is_ended() {
    let toy = toy(Bug::ReadsForEver);
    let good = toy.format().expect("a good image");
    let questions = questions(&base(), &[Level::Torn], false);
    let judged = |disk: &Image| {
        let facts = InProcess::new(&toy).examine(std::slice::from_ref(disk), &questions);
        Recovered::from(&*facts.expect("examined")[0])
    };
    assert_eq!(judged(&good).defect, None);
    let mut damaged = good;
    damaged.write(0, &[0; 512]);
    let recovered = judged(&damaged);
    assert_eq!(recovered.tree, Digest::default());
    let defect = recovered.defect.expect("it is noticed");
    assert_eq!((defect.class, &*defect.what), (Class::Unmountable, "mount fails with EIO"));
}

/// What happened matters although the tree does not show it: the reason for `remember`.
#[test]
fn a_bug_that_shapes_without_a_memory_miss() {
    let steps = vec![StepKind::Put, StepKind::Mkdir, StepKind::Rename, StepKind::Unlink];
    let config = CrashConfig { steps, ..config(&[Level::Linear], 4) };
    let with = |identity, remember| {
        let config = CrashConfig { identity, remember, ..config.clone() };
        let report = check(&toy(Bug::UnlinkMarks), &config);
        (report.search.states, classes(&report))
    };
    let found = [0, 1, 2].map(|remember| with(Identity::Shape, remember));
    assert_eq!(found, [(26, vec![]), (56, vec![Class::LostEntry]), (109, vec![Class::LostEntry])]);
    assert_eq!(with(Identity::Image, 0), (277, vec![Class::LostEntry]));
}

/// Whatever was touched since the last sync may be lost, but nothing else.
#[test]
fn a_loose_promise_is_still_one() {
    let with = |toy: &Toy, depth| {
        let steps = vec![StepKind::Put, StepKind::Sync];
        check(toy, &CrashConfig { steps, ..config(&[Level::Linear], depth) })
    };
    let toy = Toy::new(Durable::Sync).loose();
    assert_eq!(classes(&with(&toy, 4)), []);
    let toy = toy.with(Bug::ForgetsLast);
    // Only what the first sync saves is certain, and only the second one can be interrupted then.
    assert_eq!(classes(&with(&toy, 3)), []);
    let report = with(&toy, 4);
    assert_eq!(classes(&report), [Class::LostEntry]);
    assert_eq!(find(&report, Class::LostEntry, "sync").record.what, "a is missing");
}
