//! Coverage of executed operations: counted by classes, exact to the last partition.

mod common;

use std::collections::BTreeSet;

use common::{Liar, Lie, plan, reference};
use fathom_core::flags::{
    FallocateMode, MsyncFlags, OpenFlags, SyncRangeFlags, Whence, XattrFlags,
};
use fathom_core::partition::{Coverage, Granularity, Hit, Partition, Place};
use fathom_core::{Capability, Errno, FsBytes, Mode, Op, Outcome, Pattern, Payload, Target};
use fathom_engine::{OpCoverage, Silent, check};
use fathom_generate::choice::Choices;
use fathom_generate::{Config, Generator};
use fathom_model::Model;

/// Operations from one seed with the answers of the model.
fn generated(seed: u64, count: usize) -> Vec<(Op, Outcome)> {
    let capabilities: BTreeSet<Capability> =
        [Capability::Identity, Capability::Remount, Capability::Devices].into();
    let mut generator = Generator::new(Choices::new(seed), Config::default(), capabilities);
    let mut model = Model::new(reference()).unwrap();
    let mut all = Vec::new();
    for _ in 0..count {
        let op = generator.next(&model);
        let outcome = model.execute(&op);
        generator.note(&op, &outcome, &model);
        all.push((op, outcome));
    }
    all
}

/// Both methods of counting, at both granularities.
fn assert_exact(all: &[(Op, Outcome)]) -> OpCoverage {
    let mut counted = OpCoverage::default();
    all.iter().for_each(|(op, outcome)| counted.record(op, outcome));
    for how in [Granularity::Powers, Granularity::Boundaries] {
        let mut one_by_one = Coverage::new(how);
        all.iter().for_each(|(op, outcome)| one_by_one.add(op, outcome));
        assert!(counted.partitions(how) == one_by_one, "{how:?}: {}", {
            let differs = |(hit, count): &(&Hit, u64)| one_by_one.count(hit) != *count;
            let counted = counted.partitions(how);
            counted.hits().filter(differs).map(|(hit, _)| format!("{hit}; ")).collect::<String>()
        });
    }
    counted
}

#[test]
fn generated_operations_are_counted_as_one_by_one() {
    for seed in 1..=3 {
        let all = generated(seed, 20_000);
        let counted = assert_exact(&all);
        let calls = all.iter().filter(|(op, _)| !matches!(op, Op::Identity { .. } | Op::Remount));
        let sum: u64 = counted.seen().iter().map(|seen| seen.count).sum();
        assert_eq!(sum, calls.count() as u64);
        // Classes are worth having: most operations are like an earlier one.
        assert!(counted.seen().len() < all.len() / 2, "{}", counted.seen().len());
    }
}

/// Around every power of two, and what is special.
fn amounts() -> impl Iterator<Item = u64> {
    let near = |power: u32| {
        let value = 1u64 << power;
        [value.wrapping_sub(2), value - 1, value, value + 1, value + 2]
    };
    (0..64).flat_map(near).chain([0, u64::MAX - 1, u64::MAX, 65_537, 4095])
}

/// Every operation with amounts, flags and names of every kind.
fn edges() -> Vec<Op> {
    let mut all = Vec::new();
    for amount in amounts() {
        let (slot, len, offset) = (0, amount, amount as i64);
        let data = Pattern { seed: 1, len };
        let text: FsBytes = "x".repeat((amount % 5000) as usize).into_bytes().into();
        let name: FsBytes =
            format!("user.{}", "n".repeat((amount % 300) as usize)).into_bytes().into();
        let target = Target::Link("a".into());
        all.extend([
            Op::Read { slot, len },
            Op::Pread { slot, offset, len: 5 },
            Op::Write { slot, data },
            Op::Pwrite { slot, offset, data: Pattern { seed: 1, len: 5 } },
            Op::Lseek { slot, offset, whence: Whence::Data },
            Op::Truncate { target: target.clone(), len: offset },
            Op::Fallocate { slot, mode: FallocateMode::empty(), offset, len: 7 },
            Op::Fallocate { slot, mode: FallocateMode::empty(), offset: 7, len: offset },
            Op::SyncFileRange { slot, offset, len: 9, flags: SyncRangeFlags::empty() },
            Op::SyncFileRange { slot, offset: 9, len: offset, flags: SyncRangeFlags::empty() },
            Op::MmapStore { slot, offset: offset & 0xffff, data, sync: MsyncFlags::empty() },
            Op::MmapLoad { slot, offset: offset >> 1, len: 100 },
            Op::MmapLoad { slot, offset: 4095, len },
            Op::CopyFileRange {
                from: 0,
                from_offset: Some(offset),
                to: 1,
                to_offset: None,
                len: 3,
                flags: 0,
            },
            Op::CopyFileRange {
                from: 0,
                from_offset: None,
                to: 1,
                to_offset: Some(offset),
                len,
                flags: amount as u32,
            },
            Op::Readlink { path: "l".into(), len },
            Op::Symlink { target: text, path: "l".into() },
            Op::Setxattr {
                target: target.clone(),
                name: name.clone(),
                value: data,
                flags: XattrFlags::empty(),
            },
            Op::Getxattr { target: Target::Slot(1), name, len },
            Op::Listxattr { target: target.clone(), len },
            Op::Open {
                slot,
                path: "f".into(),
                flags: OpenFlags::from_bits_retain(amount as u32),
                mode: Mode((amount >> 20) as u32),
            },
            Op::Umask { mask: Mode(amount as u32) },
            Op::Chmod { target: Target::Path("".into()), mode: Mode(amount as u32) },
            Op::Chown { target, uid: Some(amount as u32), gid: (amount > 9).then_some(0) },
        ]);
    }
    all
}

/// Every namespace of attributes, on every kind of target.
fn names() -> Vec<Op> {
    let mut all = Vec::new();
    for space in ["user.a", "trusted.a", "security.a", "system.a", "useR.a", "", "."] {
        for target in [Target::Path("a".into()), Target::Link("/a".into()), Target::Slot(7)] {
            all.push(Op::Removexattr { target: target.clone(), name: space.into() });
            all.push(Op::Utimens {
                target,
                atime: fathom_core::TimeArg::Now,
                mtime: fathom_core::TimeArg::Omit,
            });
        }
    }
    all
}

#[test]
fn edges_of_all_arguments_are_counted_as_one_by_one() {
    let mut all = Vec::new();
    for (index, op) in edges().into_iter().chain(names()).enumerate() {
        for outcome in [
            Outcome::ok(0),
            Outcome::ok(index as u64),
            Outcome::err(Errno::EBADF),
            Outcome::err(Errno::ENOSPC),
        ] {
            all.push((op.clone(), outcome));
        }
    }
    for names in 0..40 {
        let entries = (0..names).map(|n| (FsBytes::from(format!("{n:0n$}").into_bytes()), 'f'));
        let payload = Payload::Entries(entries.collect());
        all.push((Op::Getdents { slot: 0 }, Outcome { result: Ok(names as u64), payload }));
    }
    assert_exact(&all);
}

#[test]
fn counts_can_be_merged_and_saved() {
    let (one, two) = (generated(1, 3000), generated(2, 3000));
    let mut both = assert_exact(&one);
    let text = serde_json::to_string(assert_exact(&two).seen()).unwrap();
    let saved: Vec<fathom_engine::coverage::Seen> = serde_json::from_str(&text).unwrap();
    both.merge(&saved);
    let all = assert_exact(&[one, two].concat());
    let how = Granularity::Boundaries;
    assert!(both.partitions(how) == all.partitions(how));
}

/// What counts is what the subject answered, not what the reference expected.
#[test]
fn a_campaign_counts_the_answers_of_the_subject() {
    let report = check(&mut Liar::new(Lie::WrongErrno), &plan(1, 50_000), &mut Silent).unwrap();
    let errors = |errno| {
        let partition = Partition::Error(errno);
        let hit = Hit { base: "rmdir", place: Place::Output, partition };
        report.coverage.partitions(Granularity::Powers).count(&hit)
    };
    assert_eq!(report.findings.len(), 1);
    // The first lie ends the campaign: the only one that says EEXIST.
    assert_eq!((errors(Errno::EEXIST), errors(Errno::ENOTEMPTY)), (1, 0));
    let made: u64 = report.coverage.seen().iter().map(|seen| seen.count).sum();
    let answers = report.stats.answers();
    let others = answers.iter().filter(|row| matches!(row.op, "identity" | "remount"));
    assert_eq!(made + others.map(|row| row.count).sum::<u64>(), report.stats.ops);
}
