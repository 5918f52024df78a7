//! For every mutant a short story that ends differently with it, and how.

mod common;

use common::{KEEP, PUNCH, Story, ZERO};
use fathom_core::flags::{FallocateMode, MsyncFlags, OpenFlags, RenameFlags, XattrFlags};
use fathom_core::{Errno, Mode, Op, Outcome, Pattern, Target};
use fathom_model::{Model, Mutant, NewNode, ROOT};

struct Case {
    mutant: Mutant,
    story: fn(&mut Story) -> String,
    /// How the story ends as it should.
    right: &'static str,
    /// How it ends with the mutant.
    wrong: &'static str,
}

fn show(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

/// A result without its value.
fn ended<T>(result: Result<T, Errno>) -> String {
    result.map_or_else(|errno| errno.to_string(), |_| "ok".to_owned())
}

const NONE: XattrFlags = XattrFlags::empty();

const NAMES_AND_LINKS: &[Case] = &[
    Case {
        mutant: Mutant::RenameNlink,
        story: |s| {
            s.file("f1");
            s.link("f1", "l1").unwrap();
            s.file("f2");
            s.rename("f2", "l1").unwrap();
            show(s.nlink("f1"))
        },
        right: "1",
        wrong: "2",
    },
    Case {
        mutant: Mutant::LinkCountStuck,
        story: |s| {
            s.file("f");
            s.link("f", "l").unwrap();
            show(s.nlink("f"))
        },
        right: "2",
        wrong: "1",
    },
    Case {
        mutant: Mutant::MkdirNlink,
        story: |s| {
            s.dir("d");
            show(s.nlink(""))
        },
        right: "3",
        wrong: "2",
    },
    Case {
        mutant: Mutant::RmdirNlink,
        story: |s| {
            s.dir("d");
            s.rmdir("d").unwrap();
            show(s.nlink(""))
        },
        right: "2",
        wrong: "3",
    },
    Case {
        mutant: Mutant::RenameDirNlink,
        story: |s| {
            s.dir("d");
            s.dir("e");
            s.rename("e", "d/e").unwrap();
            show((s.nlink(""), s.nlink("d")))
        },
        right: "(3, 3)",
        wrong: "(3, 2)",
    },
    Case {
        mutant: Mutant::RenameLosesTarget,
        story: |s| {
            s.dir("d");
            s.dir("e");
            s.file("e/f");
            let result = ended(s.rename("d", "e"));
            result + " " + &s.list("e")
        },
        right: "ENOTEMPTY f",
        wrong: "ENOTEMPTY ",
    },
    Case {
        mutant: Mutant::RmdirErrno,
        story: |s| {
            s.dir("d");
            s.file("d/f");
            ended(s.rmdir("d"))
        },
        right: "ENOTEMPTY",
        wrong: "EEXIST",
    },
    Case {
        mutant: Mutant::ExchangeOverwrites,
        story: |s| {
            s.file("a");
            s.file("b");
            s.rename2("a", "b", RenameFlags::RENAME_EXCHANGE).unwrap();
            s.list("")
        },
        right: "a b",
        wrong: "b",
    },
    Case {
        mutant: Mutant::WhiteoutMissing,
        story: |s| {
            s.file("a");
            s.rename2("a", "b", RenameFlags::RENAME_WHITEOUT).unwrap();
            s.list("")
        },
        right: "b a",
        wrong: "b",
    },
    Case {
        mutant: Mutant::TmpfileLinkEmpties,
        story: |s| {
            let caller = s.caller.clone();
            let ino = s.volume.make_tmpfile(&caller, ROOT, Mode(0o600)).unwrap();
            s.volume.write(ino, 0, b"words").unwrap();
            s.volume.link(ino, ROOT, b"f").unwrap();
            show(s.read("f").len())
        },
        right: "5",
        wrong: "0",
    },
    Case {
        mutant: Mutant::ReaddirDuplicate,
        story: |s| {
            s.file("a");
            s.rename("a", "b").unwrap();
            s.list("")
        },
        right: "b",
        wrong: "b b",
    },
    Case {
        mutant: Mutant::ReaddirSkips,
        story: |s| {
            s.file("a");
            s.file("b");
            s.unlink("a").unwrap();
            s.list("")
        },
        right: "b",
        wrong: "",
    },
    Case {
        mutant: Mutant::ListingSkips,
        story: |s| {
            s.files(&["a", "b", "c"]);
            s.list_behind_removed("a")
        },
        right: "b c",
        wrong: "c",
    },
    Case {
        mutant: Mutant::ListingRestarts,
        story: |s| {
            s.files(&["a", "b", "c"]);
            s.list_behind_removed("b")
        },
        right: "c",
        wrong: "a c",
    },
    Case {
        mutant: Mutant::SymlinkTruncated,
        story: |s| {
            s.symlink("l", &"x".repeat(60));
            show(s.size("l"))
        },
        right: "60",
        wrong: "59",
    },
];

const CONTENTS: &[Case] = &[
    Case {
        mutant: Mutant::MappedTailShows,
        story: |s| {
            let mut model = Model::new(s.volume.config().clone()).unwrap();
            let (slot, data) = (0, Pattern { seed: 1, len: 8 });
            let flags = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
            let truncate = |len| Op::Truncate { target: Target::Slot(slot), len };
            for op in [
                Op::Open { slot, path: "f".into(), flags, mode: Mode(0o644) },
                truncate(2),
                Op::MmapStore { slot, offset: 2, data, sync: MsyncFlags::MS_SYNC },
                truncate(10),
            ] {
                model.execute(&op).result.unwrap();
            }
            let found = model.execute(&Op::Pread { slot, offset: 2, len: 8 });
            let zeros = found == Outcome::data(&[0; 8]);
            show((zeros, found == Outcome::data(&data.to_vec())))
        },
        right: "(true, false)",
        wrong: "(false, true)",
    },
    Case {
        mutant: Mutant::StaleHole,
        story: |s| {
            // The JFFS2 bug that Metis found.
            s.file("f");
            s.write("f", 0, &[1; 16]).unwrap();
            s.truncate("f", 8);
            s.write("f", 20, &[2; 4]).unwrap();
            show(&s.read("f")[6..22])
        },
        right: "[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2]",
        wrong: "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 2]",
    },
    Case {
        mutant: Mutant::ExtendSize,
        story: |s| {
            s.file("f");
            s.truncate("f", 5);
            show(s.size("f"))
        },
        right: "5",
        wrong: "4096",
    },
    Case {
        mutant: Mutant::ShrinkSize,
        story: |s| {
            s.file("f");
            s.truncate("f", 9000);
            s.truncate("f", 5);
            show(s.size("f"))
        },
        right: "5",
        wrong: "4096",
    },
    Case {
        mutant: Mutant::UnlinkNeighbour,
        story: |s| {
            s.file("a");
            s.file("b");
            s.write("b", 0, b"data").unwrap();
            s.unlink("a").unwrap();
            show(s.size("b"))
        },
        right: "4",
        wrong: "0",
    },
    Case {
        mutant: Mutant::TruncateThroughLink,
        story: |s| {
            s.file("f");
            s.write("f", 0, b"data").unwrap();
            s.link("f", "l").unwrap();
            s.truncate("l", 0);
            show(s.size("f"))
        },
        right: "0",
        wrong: "4",
    },
    Case {
        mutant: Mutant::BlockLeak,
        story: |s| {
            s.file("f");
            s.write("f", 0, &[1; 5000]).unwrap();
            s.unlink("f").unwrap();
            show(s.free())
        },
        right: "(99, 19)",
        wrong: "(97, 19)",
    },
    Case {
        mutant: Mutant::InodeLeak,
        story: |s| {
            s.file("f");
            s.unlink("f").unwrap();
            show(s.free())
        },
        right: "(99, 19)",
        wrong: "(99, 18)",
    },
    Case {
        mutant: Mutant::WriteSplit,
        story: |s| {
            s.file("f");
            s.write("f", 4094, &[7; 4]).unwrap();
            show(&s.read("f")[4094..])
        },
        right: "[7, 7, 7, 7]",
        wrong: "[7, 7, 0, 0]",
    },
    Case {
        mutant: Mutant::AppendAtPage,
        story: |s| {
            s.file("f");
            s.write("f", 0, &[1; 4096]).unwrap();
            s.write("f", 4096, &[2]).unwrap();
            show((s.size("f"), s.read("f")[0]))
        },
        right: "(4097, 1)",
        wrong: "(4096, 2)",
    },
    Case {
        mutant: Mutant::IndirectBlockLost,
        story: |s| {
            s.file("f");
            s.write("f", 12 * 4096, &[7]).unwrap();
            show(s.read("f").last())
        },
        right: "Some(7)",
        wrong: "Some(0)",
    },
    Case {
        mutant: Mutant::CopyRangeShort,
        story: |s| {
            let (from, to) = (s.file("f"), s.file("t"));
            s.write("f", 0, b"data").unwrap();
            let copied = s.volume.copy_range(from, 0, to, 0, 4);
            show((copied, s.size("t")))
        },
        right: "(Ok(4), 4)",
        wrong: "(Ok(4), 0)",
    },
    Case {
        mutant: Mutant::SeekHolePastEnd,
        story: |s| {
            let file = s.file("f");
            s.write("f", 0, b"data").unwrap();
            show(s.volume.seek_hole(file, 0))
        },
        right: "Ok(4)",
        wrong: "Ok(4096)",
    },
    Case {
        mutant: Mutant::SeekDataBlind,
        story: |s| {
            let file = s.file("f");
            s.write("f", 65536, b"data").unwrap();
            show(s.volume.seek_data(file, 0))
        },
        right: "Ok(65536)",
        wrong: "Err(ENXIO)",
    },
    Case {
        mutant: Mutant::OrphanLosesData,
        story: |s| {
            let file = s.file("f");
            s.write("f", 0, b"data").unwrap();
            s.volume.pin(file).unwrap();
            s.unlink("f").unwrap();
            show(s.read_ino(file))
        },
        right: "[100, 97, 116, 97]",
        wrong: "[]",
    },
];

const ALLOCATION: &[Case] = &[
    Case {
        mutant: Mutant::KeepSizeIgnored,
        story: |s| {
            s.file("f");
            s.fallocate("f", KEEP, 0, 100).unwrap();
            show(s.size("f"))
        },
        right: "0",
        wrong: "100",
    },
    Case {
        mutant: Mutant::ZeroRangeExtends,
        story: |s| {
            s.file("f");
            s.fallocate("f", ZERO | KEEP, 0, 100).unwrap();
            show(s.size("f"))
        },
        right: "0",
        wrong: "100",
    },
    Case {
        mutant: Mutant::PunchPartialBlock,
        story: |s| {
            s.file("f");
            s.write("f", 0, &[1; 5]).unwrap();
            s.fallocate("f", PUNCH, 1, 2).unwrap();
            show(s.read("f"))
        },
        right: "[1, 0, 0, 1, 1]",
        wrong: "[1, 1, 1, 1, 1]",
    },
    Case {
        mutant: Mutant::FallocateZeroes,
        story: |s| {
            s.file("f");
            s.write("f", 0, &[1; 3]).unwrap();
            s.fallocate("f", FallocateMode::empty(), 0, 2).unwrap();
            show(s.read("f"))
        },
        right: "[1, 1, 1]",
        wrong: "[0, 0, 1]",
    },
];

const ATTRIBUTES: &[Case] = &[
    Case {
        mutant: Mutant::SetgidGroup,
        story: |s| {
            let dir = s.make("d", NewNode::Dir, 0o2755).unwrap();
            s.volume.chown(dir, None, Some(5)).unwrap();
            s.file("d/f");
            show(s.attr("d/f").gid)
        },
        right: "5",
        wrong: "0",
    },
    Case {
        mutant: Mutant::SetgidMkdir,
        story: |s| {
            s.make("d", NewNode::Dir, 0o2755).unwrap();
            s.dir("d/e");
            show(s.attr("d/e").mode)
        },
        right: "02755",
        wrong: "0755",
    },
    Case {
        mutant: Mutant::ChmodDropsSetuid,
        story: |s| {
            let file = s.file("f");
            s.volume.chmod(file, Mode(0o4755)).unwrap();
            show(s.attr("f").mode)
        },
        right: "04755",
        wrong: "0755",
    },
    Case {
        mutant: Mutant::SetuidSurvives,
        story: |s| {
            let file = s.make("f", NewNode::File, 0o4755).unwrap();
            s.volume.kill_privileges(file).unwrap();
            show(s.attr("f").mode)
        },
        right: "0755",
        wrong: "04755",
    },
    Case {
        mutant: Mutant::ChgrpChangesOwner,
        story: |s| {
            let file = s.file("f");
            s.volume.chown(file, None, Some(5)).unwrap();
            show(s.attr("f").uid)
        },
        right: "0",
        wrong: "5",
    },
    Case {
        mutant: Mutant::XattrReplaceCreates,
        story: |s| {
            s.file("f");
            ended(s.setxattr("f", b"v", XattrFlags::XATTR_REPLACE))
        },
        right: "ENODATA",
        wrong: "ok",
    },
    Case {
        mutant: Mutant::XattrTail,
        story: |s| {
            let file = s.file("f");
            s.setxattr("f", b"long", NONE).unwrap();
            s.setxattr("f", b"it", NONE).unwrap();
            show(s.volume.getxattr(file, b"user.x").unwrap())
        },
        right: "\"it\"",
        wrong: "\"itng\"",
    },
    Case {
        mutant: Mutant::XattrLostOnRename,
        story: |s| {
            s.file("f");
            s.setxattr("f", b"v", NONE).unwrap();
            s.rename("f", "g").unwrap();
            show(s.volume.listxattr(s.ino("g")).unwrap())
        },
        right: "[\"user.x\"]",
        wrong: "[]",
    },
];

const REMOUNTS: &[Case] = &[
    Case {
        mutant: Mutant::RemovedDirReturns,
        story: |s| {
            s.dir("d");
            s.rmdir("d").unwrap();
            let before = s.list("");
            s.volume.remount();
            before + "|" + &s.list("")
        },
        right: "|",
        wrong: "|d",
    },
    Case {
        mutant: Mutant::OrphanReturns,
        story: |s| {
            let file = s.file("f");
            s.volume.pin(file).unwrap();
            s.unlink("f").unwrap();
            s.volume.unpin(file);
            let before = s.list("");
            s.volume.remount();
            before + "|" + &s.list("")
        },
        right: "|",
        wrong: "|f",
    },
    Case {
        mutant: Mutant::RenameSourceReturns,
        story: |s| {
            s.file("a");
            s.rename("a", "b").unwrap();
            let before = s.list("");
            s.volume.remount();
            before + "|" + &s.list("")
        },
        right: "b|b",
        wrong: "b|b a",
    },
    Case {
        mutant: Mutant::LinkSplits,
        story: |s| {
            s.file("a");
            s.link("a", "b").unwrap();
            let before = s.nlink("a");
            s.volume.remount();
            show((before, s.nlink("a"), s.ino("a") == s.ino("b")))
        },
        right: "(2, 2, true)",
        wrong: "(2, 1, false)",
    },
    Case {
        mutant: Mutant::ShrinkLostOnRemount,
        story: |s| {
            let file = s.file("f");
            s.write("f", 0, b"data").unwrap();
            s.volume.truncate(file, 1).unwrap();
            let before = s.size("f");
            s.volume.remount();
            show((before, s.size("f")))
        },
        right: "(1, 1)",
        wrong: "(1, 4)",
    },
    Case {
        mutant: Mutant::PunchLostOnRemount,
        story: |s| {
            let file = s.file("f");
            s.write("f", 0, b"data").unwrap();
            let punch = FallocateMode::FALLOC_FL_PUNCH_HOLE | FallocateMode::FALLOC_FL_KEEP_SIZE;
            s.volume.fallocate(file, punch, 0, 2).unwrap();
            s.volume.remount();
            show(s.read_ino(s.ino("f")))
        },
        right: "[0, 0, 116, 97]",
        wrong: "[100, 97, 116, 97]",
    },
    Case {
        mutant: Mutant::ReservationLeak,
        story: |s| {
            let free = s.volume.statfs().blocks_free;
            let file = s.file("f");
            s.volume.fallocate(file, FallocateMode::FALLOC_FL_KEEP_SIZE, 0, 8192).unwrap();
            s.unlink("f").unwrap();
            let before = s.volume.statfs().blocks_free;
            s.volume.remount();
            show((free - before, free - s.volume.statfs().blocks_free))
        },
        right: "(0, 0)",
        wrong: "(0, 2)",
    },
    Case {
        mutant: Mutant::XattrLostOnRemount,
        story: |s| {
            s.file("f");
            s.setxattr("f", b"v", NONE).unwrap();
            s.volume.remount();
            show(s.volume.listxattr(s.ino("f")).unwrap())
        },
        right: "[\"user.x\"]",
        wrong: "[]",
    },
    Case {
        mutant: Mutant::SymlinkEmptyOnRemount,
        story: |s| {
            s.symlink("l", "target");
            s.volume.remount();
            show(s.volume.readlink(s.ino("l")).unwrap())
        },
        right: "\"target\"",
        wrong: "\"\"",
    },
];

fn all_cases() -> impl Iterator<Item = &'static Case> {
    [NAMES_AND_LINKS, CONTENTS, ALLOCATION, ATTRIBUTES, REMOUNTS].into_iter().flatten()
}

#[test]
fn every_mutant_ends_its_story_wrongly() {
    for case in all_cases() {
        let right = (case.story)(&mut Story::with(None));
        let wrong = (case.story)(&mut Story::with(Some(case.mutant)));
        assert_eq!(right, case.right, "{} switched off", case.mutant);
        assert_eq!(wrong, case.wrong, "{} switched on", case.mutant);
    }
}

#[test]
fn every_mutant_has_one_story() {
    let mut told: Vec<Mutant> = all_cases().map(|case| case.mutant).collect();
    told.sort();
    assert_eq!(told, Mutant::ALL, "`ALL` is in the order of the definitions");
}

#[test]
fn without_a_mutant_all_stories_leave_a_sound_volume() {
    for case in all_cases() {
        let mut story = Story::with(None);
        (case.story)(&mut story);
        story.volume.check_invariants().unwrap_or_else(|what| panic!("{}: {what}", case.mutant));
    }
}
