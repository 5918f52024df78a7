//! Allocated blocks and modification times: demanded where the profile says so, as long as nothing has
//! touched the file since, and never beyond what the file system itself said.

use std::collections::BTreeMap;

use fathom_block::Guarantee;
use fathom_block::disks::{Account, Accounts};
use fathom_core::{FsPath, Kind, Op, Stamp, Subject};
use fathom_engine::crash::promise::{Promise, Rule};
use fathom_generate::known;
use fathom_model::{Model, TreeOptions};

use super::profiles::{BTRFS, EXT4, POSIX, XFS, profile};
use super::script::{all_ops, reference};

const LINES: &str = "\n    blocks = { is = \"data\", cite = \"fstests generic/468\" }\n    \
                     mtime = { is = \"file\", cite = \"fstests generic/392\" }\n    [durable]";

/// A profile that promises blocks and times.
fn promising(text: &str) -> Guarantee {
    profile(&text.replacen("[durable]", LINES, 1))
}

/// What a file system says that allocates as the reference does.
fn said(model: &Model) -> Accounts {
    let volume = model.volume();
    let files = volume.tree(TreeOptions::default()).entries.into_iter();
    let files = files.filter(|(_, entry)| entry.kind == Kind::File);
    let account = |path: &FsPath| {
        let attr = volume.attr(volume.find(path, false)?).ok()?;
        let mtime = match attr.times.mtime {
            Stamp::Tick(tick) => (tick as i64, 0),
            Stamp::At { sec, nsec } => (sec, nsec),
        };
        Some(Account { blocks_512: attr.blocks_512, mtime })
    };
    files.filter_map(|(path, _)| Some((path.clone(), account(&path)?))).collect()
}

/// What is promised after operations, and what was said after each.
fn run(guarantee: &Guarantee, ops: &[Op]) -> (Promise, Vec<Accounts>, Model) {
    let mut model = reference(guarantee);
    let mut promise = Promise::new(model.clone());
    let mut noted = Vec::new();
    for op in ops {
        model.apply(op).unwrap();
        promise.step(guarantee, op, &model);
        match op {
            Op::Remount => noted.clear(),
            _ => noted.push(said(&model)),
        }
    }
    (promise, noted, model)
}

/// The rule that is broken if every file shows so many blocks fewer, and another time.
fn broken(guarantee: &Guarantee, history: &str, fewer: u64, earlier: i64) -> Option<Rule> {
    let (promise, noted, model) = run(guarantee, &all_ops(history));
    let change = |account: Account| Account {
        blocks_512: account.blocks_512.saturating_sub(fewer),
        mtime: (account.mtime.0 - earlier, account.mtime.1),
    };
    let found = said(&model).into_iter().map(|(path, account)| (path, change(account)));
    promise.lost_account(&found.collect(), &noted).map(|broken| broken.rule)
}

const KEPT: &str = "creat a; write a 1 0 4096; keep a 4096 4096";

#[test]
fn what_was_durable_is_demanded_and_nothing_else() {
    let (space, time) = (Some(Rule::Allocation), Some(Rule::ModificationTime));
    // Behind the history: the rule if eight blocks are missing, and if the time is an earlier one.
    let cases = [
        ("", None, None),
        ("fsync a", space, time),
        ("sync", space, time),
        ("syncfs", space, time),
        ("fdatasync a", space, None),
        ("fsync .", None, None),
        // Its name and its mode are not its data.
        ("fsync a; rename a b", space, time),
        ("fsync a; link a b; chmod a 600", space, time),
        // What a later change leaves is not said, whether that was made durable or not.
        ("fsync a; write a 2 0 512", None, None),
        ("fsync a; trunc a 0", None, None),
        ("fsync a; keep a 0 4096", None, None),
        ("fsync a; setxattr a user.x 1", None, time),
        ("fsync a; write a 2 0 512; fsync a", space, time),
        ("fsync a; write a 2 0 512; fdatasync a", space, None),
        // Another file at the same path is another file.
        ("fsync a; creat b; rename b a", None, None),
        ("fsync a; unlink a", None, None),
        // Said during another mount.
        ("fsync a; remount", None, None),
        ("fsync a; remount; fsync a", space, time),
    ];
    for text in [EXT4, XFS, BTRFS] {
        for (more, fewer, earlier) in cases {
            let (guarantee, history) = (promising(text), format!("{KEPT}; {more}"));
            assert_eq!(broken(&guarantee, &history, 0, 0), None, "{history}");
            assert_eq!(broken(&guarantee, &history, 8, 0), fewer, "{history}");
            assert_eq!(broken(&guarantee, &history, 0, 1), earlier, "{history}");
        }
    }
    // Silence promises nothing.
    for text in [EXT4, POSIX] {
        let history = format!("{KEPT}; fsync a");
        assert_eq!(broken(&profile(text), &history, 8, 1), None);
    }
}

/// What a file system allocates of its own accord it may take back; what a change leaves, too.
#[test]
fn speculative_allocation_is_not_demanded() {
    let guarantee = promising(XFS);
    let (promise, mut noted, model) = run(&guarantee, &all_ops(&format!("{KEPT}; fsync a")));
    for account in noted.iter_mut().flat_map(BTreeMap::values_mut) {
        account.blocks_512 += 1000;
    }
    assert_eq!(promise.lost_account(&said(&model), &noted), None);
    // A file system that keeps small files in their inodes has fewer than the reference.
    for account in noted.iter_mut().flat_map(BTreeMap::values_mut) {
        account.blocks_512 = 0;
    }
    let mut inline = said(&model);
    inline.values_mut().for_each(|account| account.blocks_512 = 0);
    assert_eq!(promise.lost_account(&inline, &noted), None);
    // Nobody was asked.
    assert_eq!(promise.lost_account(&inline, &[]), None);
}

/// The known workloads that are about blocks and times notice when these are lost.
#[test]
fn known_workloads_notice_lost_blocks_and_times() {
    let about = [
        ("crashmonkey-8", Rule::Allocation),
        ("crashmonkey-9", Rule::Allocation),
        ("generic-468-fsync", Rule::Allocation),
        ("generic-468-fdatasync", Rule::Allocation),
        ("generic-392", Rule::ModificationTime),
    ];
    for (name, rule) in about {
        let workload = known::all().into_iter().find(|known| known.name == name).expect(name);
        for text in [EXT4, XFS, BTRFS] {
            let (promise, noted, model) = run(&promising(text), &workload.ops);
            let mut found = said(&model);
            assert_eq!(promise.lost_account(&found, &noted), None, "{name}");
            for account in found.values_mut() {
                match rule {
                    Rule::Allocation => account.blocks_512 -= 8,
                    _ => account.mtime.0 -= 1,
                }
            }
            let broken = promise.lost_account(&found, &noted).expect(name);
            assert_eq!(broken.rule, rule, "{name}");
            assert!(broken.lines[0].starts_with("foo "), "{:?}", broken.lines);
        }
    }
}
