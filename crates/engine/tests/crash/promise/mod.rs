//! Promises per object on toy histories: every rule broken by itself, and every rule at its limit.

mod accounts;
mod profiles;
mod script;
mod system;

use fathom_block::Guarantee;
use fathom_engine::crash::promise::Rule;

use profiles::{
    BTRFS, EXT4, F2FS, JFS, NILFS2, NILFS2_STRICT, POSIX, XFS, ext4_journal, ext4_noauto_da_alloc,
    ext4_writeback, profile,
};
use script::{allows, broken, broken_by, promise};

/// A history, what is found after a power failure at its end, and the rule that this breaks.
type Case = (&'static str, &'static str, Option<Rule>);

fn judge(guarantee: &Guarantee, cases: &[Case]) {
    for (history, found, rule) in cases {
        let broken = broken(guarantee, history, found);
        let lines = broken.as_ref().map(|broken| broken.lines.join("\n")).unwrap_or_default();
        assert_eq!(broken.map(|broken| broken.rule), *rule, "{history}\nfound {found}\n{lines}");
    }
}

/// The state of many histories: a file with one block.
macro_rules! a {
    ($($rest:literal)?) => { concat!("creat a; write a 1 0 512; sync;" $(, $rest)?) };
}

#[test]
fn a_rename_is_exactly_one_of_old_and_new() {
    let history = a!("rename a b");
    for guarantee in [POSIX, EXT4, XFS, BTRFS, F2FS, JFS, NILFS2] {
        judge(
            &profile(guarantee),
            &[
                (history, "creat a; write a 1 0 512", None),
                (history, "creat b; write b 1 0 512", None),
                (history, "", Some(Rule::RenameNone)),
                (history, "creat a; write a 1 0 512; link a b", Some(Rule::RenameBoth)),
                (
                    history,
                    "creat a; write a 1 0 512; creat b; write b 1 0 512",
                    Some(Rule::RenameBoth),
                ),
            ],
        );
    }
    // A link and an unlink may show both, by POSIX in any order, but never none.
    judge(
        &profile(POSIX),
        &[
            (a!("link a b; unlink a"), "creat a; write a 1 0 512; link a b", None),
            (a!("link a b; unlink a"), "creat b; write b 1 0 512", None),
            (a!("link a b; unlink a"), "creat a; write a 1 0 512", None),
            (a!("link a b; unlink a"), "", Some(Rule::LostObject)),
        ],
    );
}

/// ext4 allocates at once what the delayed write of a larger file has not yet: after the commit the file
/// ends there.
#[test]
fn a_size_may_be_on_its_way() {
    let grown = "creat a; sync; write a 1 0 32768; fsync .";
    let allocated = "creat a; sync; write a 1 0 32768; falloc a 0 5000; fsync .";
    judge(
        &profile(EXT4),
        &[
            (allocated, "creat a; trunc a 5000", None),
            (grown, "creat a; trunc a 5000", Some(Rule::Size)),
            (allocated, "creat a; trunc a 5001", Some(Rule::Size)),
            (grown, "creat a; trunc a 5120", None),
        ],
    );
    let broken = broken(&profile(EXT4), grown, "creat a; trunc a 5000").expect("a violation");
    assert_eq!(broken.changed_by.as_deref(), Some("pwrite"));
}

#[test]
fn names() {
    judge(
        &profile(POSIX),
        &[
            // What was removed and made durable stays removed.
            (a!("unlink a; fsync ."), "creat a; write a 1 0 512", Some(Rule::ReturnedName)),
            (a!("unlink a"), "creat a; write a 1 0 512", None),
            (a!("~unlink a"), "creat a; write a 1 0 512", None),
            (a!("unlink a; ~fsync ."), "creat a; write a 1 0 512", None),
            (a!("unlink a; fsync ."), "", None),
            // fsync(2): the entry in the directory is not implied by an fsync of the file.
            ("creat a; fsync a", "", None),
            ("creat a; fsync a; fsync .", "", Some(Rule::LostName)),
            ("creat a; fsync .", "", Some(Rule::LostName)),
            (a!("chmod a 600"), "", Some(Rule::LostName)),
            (a!(), "creat a; write a 1 0 512; creat b", Some(Rule::ForeignName)),
            // Another directory is not meant.
            ("mkdir d; sync; creat d/a; fsync .", "mkdir d", None),
            ("mkdir d; sync; creat d/a; fsync d", "mkdir d", Some(Rule::LostName)),
            // A clean unmount and syncfs are syncs.
            ("creat a; remount", "", Some(Rule::LostName)),
            ("creat a; syncfs", "", Some(Rule::LostName)),
            ("creat a; ~remount", "", None),
        ],
    );
}

#[test]
fn attributes() {
    judge(
        &profile(POSIX),
        &[
            (a!("chmod a 600; fsync a"), "creat a; write a 1 0 512", Some(Rule::Attributes)),
            (a!("chmod a 600"), "creat a; write a 1 0 512", None),
            (
                a!("chmod a 600; chmod a 640; fsync a; chmod a 400"),
                "creat a; write a 1 0 512; chmod a 640",
                None,
            ),
            (
                a!("chmod a 600; chmod a 640; fsync a; chmod a 400"),
                "creat a; write a 1 0 512; chmod a 600",
                Some(Rule::Attributes),
            ),
            // A mode that it never had.
            (a!("chmod a 600"), "creat a; write a 1 0 512; chmod a 640", Some(Rule::Attributes)),
            (a!("chown a 7; fsync a"), "creat a; write a 1 0 512", Some(Rule::Attributes)),
            // fdatasync(2): "does not flush modified metadata unless that metadata is needed".
            (a!("chmod a 600; write a 2 0 512; fdatasync a"), "creat a; write a 2 0 512", None),
            (
                a!("chmod a 600; write a 2 0 512; fdatasync a"),
                "creat a; write a 2 0 512; chmod a 600",
                None,
            ),
            (a!("setxattr a user.x 3; fsync a"), "creat a; write a 1 0 512", Some(Rule::Xattrs)),
            (a!("setxattr a user.x 3"), "creat a; write a 1 0 512", None),
            (a!("setxattr a user.x 3; fdatasync a"), "creat a; write a 1 0 512", None),
            (a!("setxattr a user.x 3; ~fsync a"), "creat a; write a 1 0 512", None),
            ("symlink t l; sync", "symlink u l", Some(Rule::SymlinkTarget)),
            ("symlink t l; sync", "symlink t l", None),
            ("symlink t l; fsync .", "symlink u l", Some(Rule::SymlinkTarget)),
            (
                "creat a; link a b; sync",
                "creat a; link a b; nlink a 3; nlink b 3",
                Some(Rule::LinkCount),
            ),
            ("creat a; sync; link a b", "creat a", None),
            ("creat a; sync; link a b", "creat a; nlink a 2", Some(Rule::LinkCount)),
            ("mkdir d; sync", "mkdir d; nlink . 2", Some(Rule::LinkCount)),
        ],
    );
    // Directories of btrfs have one link: the reference has that quirk too.
    judge(
        &profile(BTRFS),
        &[
            ("mkdir d; sync; chmod d 700", "mkdir d", None),
            ("mkdir d; sync; chmod d 700", "mkdir d; nlink d 2", Some(Rule::LinkCount)),
        ],
    );
}

#[test]
fn contents() {
    let two = "creat a; write a 1 0 512; creat b; write b 2 0 512; sync; write a 3 0 512";
    judge(
        &profile(POSIX),
        &[
            (a!("write a 2 0 512; fsync a"), "creat a; write a 1 0 512", Some(Rule::LostData)),
            (a!("write a 2 0 512"), "creat a; write a 1 0 512", None),
            (a!("write a 2 0 512"), "creat a; write a 2 0 512", None),
            (a!("write a 2 0 512; ~fsync a"), "creat a; write a 1 0 512", None),
            // Zeros where data was durable, and where the file grew.
            (a!("chmod a 600"), "creat a; trunc a 512", Some(Rule::LostData)),
            (a!("write a 2 512 512"), "creat a; write a 1 0 512; trunc a 1024", None),
            (
                a!("write a 2 512 512"),
                "creat a; trunc a 512; write a 2 512 512",
                Some(Rule::LostData),
            ),
            (
                a!("write a 2 512 512; fsync a"),
                "creat a; write a 1 0 512; trunc a 1024",
                Some(Rule::LostData),
            ),
            (a!("trunc a 0; write a 2 0 512"), "creat a; trunc a 512", None),
            // Another file's block, and nobody's.
            (two, "creat a; write a 2 0 512; creat b; write b 2 0 512", Some(Rule::ForeignData)),
            (two, "creat a; write a 9 0 512; creat b; write b 2 0 512", Some(Rule::ForeignData)),
            (two, "creat a; write a 1 0 512; creat b; write b 2 0 512", None),
            (two, "creat a; write a 3 0 512; creat b; write b 2 0 512", None),
            // Blocks of different versions in any mixture, none older than the durable one.
            (
                a!("write a 2 0 1024; write a 3 0 1024"),
                "creat a; write a 3 0 1024; write a 2 0 512",
                None,
            ),
            // fdatasync(2): "a change to the file size would require a metadata flush".
            (a!("write a 2 512 512; fdatasync a"), "creat a; write a 1 0 512", Some(Rule::Size)),
            (a!("write a 2 512 512"), "creat a; write a 1 0 512", None),
            (a!("write a 2 512 512"), "creat a; write a 1 0 512; trunc a 700", Some(Rule::Size)),
            // A large write arrives in blocks.
            (a!("write a 1 0 2048"), "creat a; write a 1 0 1024", None),
            (a!("trunc a 0"), "creat a; write a 1 0 256", Some(Rule::Size)),
        ],
    );
}

#[test]
fn writes_that_are_durable_by_themselves() {
    let old = "creat a; write a 1 0 1024";
    let one = "creat a; write a 1 0 1024; sync; osync a 2 0 512";
    let both = "creat a; write a 1 0 1024; sync; write a 3 512 512; osync a 2 0 512";
    let mode = "creat a; write a 1 0 512; chmod a 600; sync; chmod a 640;";
    let posix = profile(POSIX);
    judge(
        &posix,
        &[
            (one, old, Some(Rule::LostData)),
            (one, "creat a; write a 1 0 1024; write a 2 0 512", None),
            ("creat a; sync; osync a 2 0 512", "creat a", Some(Rule::Size)),
            ("creat a; sync; odsync a 2 0 512", "creat a", Some(Rule::Size)),
            ("creat a; sync; ~osync a 2 0 512", "creat a", None),
            ("creat a; sync; write a 2 0 512", "creat a", None),
            // Only what was written is meant.
            (both, "creat a; write a 1 0 1024; write a 2 0 512", None),
            (both, "creat a; write a 1 0 1024; write a 3 512 512", Some(Rule::LostData)),
            // sync_file_range(2) promises nothing.
            (a!("write a 2 0 512; range a"), "creat a; write a 1 0 512", None),
            // fstests generic/325: msync of one range and then of another one.
            (a!("msync a 2 0 512"), "creat a; write a 1 0 512", Some(Rule::LostData)),
            (a!("msync a 2 0 512"), "creat a; write a 2 0 512", None),
        ],
    );
    // O_SYNC includes the mode, O_DSYNC does not.
    for (call, rule) in [("osync", Some(Rule::Attributes)), ("odsync", None)] {
        let history = format!("{mode} {call} a 2 0 512");
        let found = "creat a; write a 2 0 512; chmod a 600";
        let broken = broken(&posix, &history, found);
        assert_eq!(broken.map(|broken| broken.rule), rule, "{call}");
    }
}

#[test]
fn metadata_in_one_order() {
    let two = "creat a; creat b; sync; chmod a 600; chmod b 600";
    for guarantee in [EXT4, XFS, JFS, NILFS2, BTRFS, F2FS] {
        judge(
            &profile(guarantee),
            &[
                (two, "creat a; creat b; chmod b 600", Some(Rule::Order)),
                (two, "creat a; creat b; chmod a 600", None),
                (two, "creat a; creat b", None),
            ],
        );
    }
    judge(&profile(POSIX), &[(two, "creat a; creat b; chmod b 600", None)]);
    let fsync_b = "creat a; creat b; sync; chmod a 600; chmod b 600; fsync b";
    let fsync_a = "creat a; creat b; sync; chmod a 600; chmod b 600; fsync a";
    let only_a = "creat a; creat b; chmod a 600";
    let only_b = "creat a; creat b; chmod b 600";
    // The log is forced, or a transaction committed, up to the last change of the file.
    for guarantee in [EXT4, XFS, JFS, NILFS2] {
        judge(
            &profile(guarantee),
            &[(fsync_b, only_b, Some(Rule::Attributes)), (fsync_a, only_a, None)],
        );
    }
    // ext4 commits what is running for a directory, xfs forces the log up to its last change.
    let fsync_root = "creat a; creat b; sync; chmod a 600; chmod b 600; fsync .";
    judge(&profile(EXT4), &[(fsync_root, only_a, Some(Rule::Attributes))]);
    judge(&profile(XFS), &[(fsync_root, only_a, None)]);
    // Only the file itself is logged.
    judge(&profile(BTRFS), &[(fsync_b, only_b, None), (fsync_a, only_a, None)]);
    judge(&profile(BTRFS), &[(fsync_b, "creat a; creat b; chmod a 600", Some(Rule::Attributes))]);
}

#[test]
fn contents_and_metadata() {
    let ahead = (a!("chmod a 600; write a 2 0 512"), "creat a; write a 2 0 512");
    let grown = (a!("write a 2 512 512"), "creat a; write a 1 0 512; write a 9 512 512");
    let half = (
        "creat a; write a 1 0 1024; sync; write a 2 0 1024",
        "creat a; write a 1 0 1024; write a 2 0 512",
    );
    let second = (
        "creat a; write a 1 0 1024; sync; write a 2 0 512; write a 3 512 512",
        "creat a; write a 1 0 512; write a 3 512 512",
    );
    let check = |guarantee: Guarantee, rules: [Option<Rule>; 4]| {
        let cases = [ahead, grown, half, second].into_iter().zip(rules);
        let cases: Vec<Case> =
            cases.map(|((history, found), rule)| (history, found, rule)).collect();
        judge(&guarantee, &cases);
    };
    let (order, foreign) = (Some(Rule::Order), Some(Rule::ForeignData));
    // Overwritten in place, contents may be ahead of the mode; never bytes from elsewhere.
    check(profile(EXT4), [None, foreign, None, None]);
    check(profile(XFS), [None, foreign, None, None]);
    // Stale bytes, where the file grew.
    check(ext4_writeback(), [None, None, None, None]);
    check(profile(JFS), [None, None, None, None]);
    // In the same order as the metadata; one write may be half there.
    check(ext4_journal(), [order, foreign, None, order]);
    // Never ahead of the transaction that shows them.
    check(profile(BTRFS), [order, foreign, None, None]);
    check(profile(F2FS), [None, foreign, None, None]);
    // Everything in one order, and every write whole.
    check(profile(NILFS2_STRICT), [order, foreign, order, order]);
}

#[test]
fn a_rename_over_a_file() {
    let history = a!("creat t; write t 2 0 512; rename t a");
    let data = (history, "creat a; write a 2 0 512", None);
    let before = (history, "creat a; write a 1 0 512; creat t; write t 2 0 512", None);
    // Delayed allocation before the rename: the new file may be empty under its old name.
    let empty_before = (history, "creat a; write a 1 0 512; creat t", None);
    let neither = (history, "creat t; write t 2 0 512", Some(Rule::LostName));
    let empty = |rule| (history, "creat a", rule);
    let with = Some(Rule::RenameOver);
    judge(&profile(EXT4), &[data, before, empty_before, neither, empty(with)]);
    judge(&profile(BTRFS), &[data, before, neither, empty(None)]);
    judge(&ext4_noauto_da_alloc(), &[data, before, empty_before, neither, empty(None)]);
    judge(&profile(POSIX), &[data, before, neither, empty(None)]);
    // With the fsync that a careful program does, nobody may lose it.
    let careful = a!("creat t; write t 2 0 512; fsync t; rename t a");
    for guarantee in [POSIX, EXT4, XFS, BTRFS] {
        judge(&profile(guarantee), &[(careful, "creat a", Some(Rule::Size))]);
    }
}

/// fstests generic/342: another file takes the name of a renamed one and is synced.
#[test]
fn what_is_displaced_may_be_lost_only_where_that_is_said() {
    let history = a!("rename a b; creat a; fsync a");
    let (kept, lost) = ("creat b; write b 1 0 512; creat a", "creat a");
    judge(&profile(F2FS), &[(history, kept, None), (history, lost, None)]);
    judge(&profile(BTRFS), &[(history, kept, None), (history, lost, Some(Rule::RenameNone))]);
    // The other name is there: it was not displaced.
    let (history, lost) = (a!("rename a b; creat c; fsync c"), "creat c");
    judge(&profile(F2FS), &[(history, lost, Some(Rule::RenameNone))]);
}

/// Sequences of fstests (tests/generic/NNN), shortened, with what they require and what they do not.
#[test]
fn what_maintainers_assert() {
    let f106 = "mkdir d; creat d/foo; link d/foo d/bar; sync; unlink d/bar; fsync d/foo";
    let f321 = "creat foo; mkdir bar; fsync foo; rename foo bar/foo; fsync bar; fsync bar/foo";
    let f335 = "mkdir a; mkdir c; creat a/foo; sync; rename a/foo c/foo; creat a/bar; fsync a";
    let f341 = "mkdir a; mkdir a/x; creat a/x/foo; sync; rename a/x a/y; mkdir a/x; fsync a/x";
    let f342 = "creat foo; write foo 1 0 512; sync; rename foo bar; creat foo; \
                write foo 2 0 512; fsync foo";
    let f348 = "mkdir d; sync; symlink t d/l; fsync d";
    // What went to another directory is durable where all metadata is, and else somewhere.
    for (guarantee, gone) in
        [(EXT4, Rule::LostName), (XFS, Rule::LostName), (BTRFS, Rule::RenameNone)]
    {
        judge(
            &profile(guarantee),
            &[
                (f106, "mkdir d; creat d/foo", None),
                (f106, "mkdir d; creat d/foo; link d/foo d/bar", Some(Rule::ReturnedName)),
                ("mkdir bar; fsync bar", "", Some(Rule::LostName)),
                (f321, "mkdir bar; creat bar/foo", None),
                (f321, "mkdir bar; creat bar/foo; creat foo", Some(Rule::ReturnedName)),
                (f335, "mkdir a; mkdir c; creat c/foo; creat a/bar", None),
                (f335, "mkdir a; mkdir c; creat a/bar", Some(gone)),
                (f341, "mkdir a; mkdir a/x; mkdir a/y; creat a/y/foo", None),
                (f341, "mkdir a; mkdir a/x", Some(gone)),
                (f342, "creat bar; write bar 1 0 512; creat foo; write foo 2 0 512", None),
                (f342, "creat foo; write foo 2 0 512", Some(gone)),
                (f348, "mkdir d; symlink t d/l", None),
                (f348, "mkdir d", Some(Rule::LostName)),
            ],
        );
    }
    // POSIX requires none of the names.
    judge(
        &profile(POSIX),
        &[
            (f106, "mkdir d; creat d/foo; link d/foo d/bar", None),
            ("mkdir bar; fsync bar", "", None),
            (f348, "mkdir d", Some(Rule::LostName)),
        ],
    );
}

#[test]
fn the_story_names_the_moment() {
    let history = "creat a; creat b; sync; chmod a 600; chmod b 600; rename a c";
    let found = "creat c; creat b; chmod c 600";
    let broken = broken(&profile(EXT4), history, found).expect("out of order");
    assert_eq!(
        broken.lines,
        [
            "b has mode of another moment than the rest, which is of operation 8 (order)",
            "most is as after operation 8, rename(\"a\", \"c\"); but:",
            "b: mode should be 0600, is 0644 (that of operation 6)",
        ]
    );
}

/// Who promises more allows less: all histories, and all that may be found after any of them.
#[test]
fn who_promises_more_allows_less() {
    let scripts = [
        "creat a; write a 1 0 512; sync; rename a b; chmod b 600",
        "creat a; write a 1 0 512; sync; write a 2 0 1024; fsync a; chmod a 600",
        "creat a; write a 1 0 512; creat b; write b 2 0 512; sync; rename b a",
        "creat a; write a 1 0 512; creat b; sync; chmod a 600; write b 2 0 512; fsync b",
        "creat a; link a b; sync; unlink a; chmod b 600; fdatasync b; creat a",
        "creat a; sync; setxattr a user.x 3; write a 1 0 512; fsync .; unlink a",
        "creat b; sync; creat a; write a 1 0 512; rename a b; trunc b 1024",
    ];
    // Every state on the way of any history may be found after any other.
    let mut found = std::collections::BTreeSet::new();
    for script in scripts {
        let commands: Vec<&str> = script.split("; ").collect();
        found.extend((0..=commands.len()).map(|len| commands[..len].join("; ")));
    }
    for a in ["", "creat a", "creat a; write a 1 0 512", "creat a; write a 2 0 1024"] {
        for more in ["", "trunc a 1024", "write a 9 512 512", "chmod a 600"] {
            for b in ["", "creat b", "creat b; write b 2 0 512", "creat b; chmod b 600"] {
                if !a.is_empty() || more.is_empty() {
                    found.insert(format!("{a}; {more}; {b}"));
                }
            }
        }
    }
    let stronger: Vec<(&str, Guarantee, Guarantee)> = vec![
        ("a journal of all metadata", profile(EXT4), profile(POSIX)),
        ("ordered data", profile(EXT4), ext4_writeback()),
        ("journalled data", ext4_journal(), profile(EXT4)),
        ("a log of metadata", profile(XFS), profile(POSIX)),
        ("a segment of all", profile(NILFS2), profile(POSIX)),
        ("everything in one order", profile(NILFS2_STRICT), profile(POSIX)),
    ];
    let states: Vec<(&String, _)> =
        found.iter().map(|script| (script, script::found(&profile(POSIX), script))).collect();
    let mut counts = Vec::new();
    for (what, more, less) in &stronger {
        let mut legal = (0, 0);
        for history in scripts {
            let [more, less] = [more, less].map(|guarantee| promise(guarantee, history));
            for (script, state) in &states {
                let (strict, lax) = (broken_by(&more, state), broken_by(&less, state));
                legal.0 += u32::from(strict.is_none());
                legal.1 += u32::from(lax.is_none());
                assert!(
                    strict.is_some() || lax.is_none(),
                    "{what}: {history}\nfound {script}\n{}",
                    lax.map(|broken| broken.lines.join("\n")).unwrap_or_default()
                );
            }
        }
        counts.push((*what, legal.0, legal.1));
    }
    assert_eq!(found.len(), 86);
    // Of all 7 × 86 pairs, so many are legal under the stronger and under the weaker promise.
    assert_eq!(
        counts,
        [
            ("a journal of all metadata", 51, 63),
            ("ordered data", 51, 57),
            ("journalled data", 48, 51),
            ("a log of metadata", 57, 63),
            ("a segment of all", 57, 63),
            ("everything in one order", 52, 63),
        ]
    );
}

/// The promises that judged trees before say the same through the rules about objects, where both can
/// be asked: everything in one order.
#[test]
fn one_order_of_everything_is_judged_alike() {
    let objects = profile(NILFS2_STRICT);
    let mut whole = objects.clone();
    for call in [&mut whole.durable.fsync, &mut whole.durable.fdatasync] {
        let claim = call.as_mut().expect("it is mentioned");
        claim.is = fathom_block::backed::Makes::Everything;
    }
    let history = "creat a; write a 1 0 512; sync; chmod a 600; write a 2 0 512; rename a b";
    let mut legal = 0;
    for name in ["a", "b"] {
        for seed in [1, 2] {
            for mode in ["644", "600"] {
                let found = format!("creat {name}; write {name} {seed} 0 512; chmod {name} {mode}");
                let allowed = allows(&whole, history, &found);
                assert_eq!(allowed, broken(&objects, history, &found).is_none(), "{found}");
                legal += u32::from(allowed);
            }
        }
    }
    assert_eq!(legal, 4);
}

/// A log from which names are taken at once may have lost one whose new owner is not there yet; a name that
/// changed its owner by `rename` was never free. Found in `ace:2` on btrfs.
#[test]
fn a_removal_may_be_in_the_log_without_what_came_after_it() {
    let linked = "mkdir A; creat A/bar; fsync A/bar; creat A/foo; unlink A/bar; link A/foo A/bar; creat bar; \
                  fsync bar";
    let again =
        "mkdir A; creat A/foo; creat foo; fsync foo; unlink foo; creat foo; creat bar; fsync bar";
    let only = "creat foo; fsync foo; unlink foo; creat foo; creat bar";
    let replaced = "creat foo; creat bar; fsync bar; rename foo bar; creat foo; fsync foo";
    judge(
        &profile(BTRFS),
        &[
            (linked, "mkdir A; creat bar", None),
            (again, "creat bar", None),
            // Nobody has written the log since.
            (only, "creat bar", Some(Rule::Order)),
            (replaced, "creat foo", Some(Rule::LostName)),
        ],
    );
    // Where nothing is taken out of the log, names are those of one moment.
    let strict = BTRFS.replace("removed", "# removed");
    judge(&profile(&strict), &[(linked, "mkdir A; creat bar", Some(Rule::Order))]);
}

/// The fsync of a file that has changed places with another one says that its old name leads elsewhere, not
/// that the other one, which nobody has ever synced, is there. Found in `ops` on btrfs.
#[test]
fn what_changed_places_with_an_fsynced_file_need_not_be_there() {
    let never = "creat a; write a 1 0 512; creat b; exchange a b; fsync a";
    let before = "creat a; write a 1 0 512; creat b; sync; exchange a b; fsync a";
    let both = "creat a; write a 1 0 512; creat b; exchange a b; fsync a; fsync b";
    judge(
        &profile(BTRFS),
        &[
            (never, "creat a", None),
            (never, "", Some(Rule::LostName)),
            (before, "creat a", Some(Rule::RenameNone)),
            (both, "creat a", Some(Rule::LostName)),
        ],
    );
}

/// A write of no bytes syncs nothing, whatever the file was opened with. Found in `ops` on xfs.
#[test]
fn a_synchronous_write_of_nothing_makes_nothing_durable() {
    let nothing = "mkdir d; sync; creat a; creat d/f; osync d/f 1 0 0";
    let something = "mkdir d; sync; creat a; creat d/f; osync d/f 1 0 1";
    judge(
        &profile(EXT4),
        &[(nothing, "mkdir d", None), (something, "mkdir d", Some(Rule::LostName))],
    );
}

/// What was stored through a mapping and synced is in the log of f2fs, without the files beside it. Found in
/// `ops` on f2fs.
#[test]
fn a_log_may_have_what_msync_wrote_without_the_rest() {
    let stored = "creat a; creat b; write b 1 0 512; msync b 2 0 512";
    let found = "creat b; write b 2 0 512";
    judge(&profile(F2FS), &[(stored, found, None)]);
    let silent = F2FS.replace("msync", "# msync");
    judge(&profile(&silent), &[(stored, found, Some(Rule::Order))]);
}
