//! What a volume does, in exact numbers.

mod common;

use common::{COLLAPSE, INSERT, KEEP, PUNCH, Story, ZERO};
use fathom_core::flags::{FallocateMode, RenameFlags, XattrFlags};
use fathom_core::{Digest, Errno, Kind, Mode, Stamp};
use fathom_model::{
    Config, ConfigError, Identity, NewNode, Quirks, ROOT, SetTime, TreeOptions, Volume,
};

const EXCHANGE: RenameFlags = RenameFlags::RENAME_EXCHANGE;
const NOREPLACE: RenameFlags = RenameFlags::RENAME_NOREPLACE;
const WHITEOUT: RenameFlags = RenameFlags::RENAME_WHITEOUT;

/// 20 inodes, and 100 blocks of 4096 bytes, of which the root directory has one.
fn story() -> Story {
    Story::with(None)
}

fn with_quirks(quirks: Quirks) -> Story {
    Story::new(Config { quirks, blocks: 100, inodes: 20, ..Config::default() })
}

#[test]
fn impossible_configurations_are_refused() {
    let no_blocks = Config { blocks: 0, ..Config::default() };
    let no_inodes = Config { inodes: 1, ..Config::default() };
    let odd_blocks = Config { block_bytes: 1000, ..Config::default() };
    assert_eq!(Volume::new(no_blocks).unwrap_err(), ConfigError::NoBlocks { blocks: 0 });
    assert_eq!(Volume::new(no_inodes).unwrap_err(), ConfigError::NoInodes { inodes: 1 });
    assert_eq!(Volume::new(odd_blocks).unwrap_err(), ConfigError::BlockBytes { block_bytes: 1000 });
}

#[test]
fn every_kind_takes_and_gives_back_what_it_should() {
    let mut s = story();
    assert_eq!(s.free(), (99, 19));
    s.file("f");
    assert_eq!(s.free(), (99, 18), "an empty file has no block");
    s.write("f", 8192, b"x").unwrap();
    assert_eq!(s.free(), (98, 18), "a hole has no block");
    assert_eq!(s.attr("f").blocks_512, 8);
    s.dir("d");
    assert_eq!(s.free(), (97, 17), "a directory is one block");
    s.symlink("short", &"x".repeat(59));
    assert_eq!(s.free(), (97, 16), "a short target fits into the inode");
    s.symlink("long", &"x".repeat(60));
    assert_eq!(s.free(), (96, 15));
    s.setxattr("d", &[1; 4090], XattrFlags::empty()).unwrap();
    assert_eq!(s.free(), (95, 15), "name and value together fill one block");
    s.setxattr("d", &[1; 4091], XattrFlags::empty()).unwrap();
    assert_eq!(s.free(), (94, 15), "one byte more");
    s.make("p", NewNode::Fifo, 0o600).unwrap();
    assert_eq!(s.free(), (94, 14));
    for name in ["f", "short", "long", "p"] {
        s.unlink(name).unwrap();
    }
    s.rmdir("d").unwrap();
    assert_eq!(s.free(), (99, 19));
    assert_eq!(s.volume.statfs().blocks_available, 99);
    assert_eq!(s.volume.statfs().name_bytes_max, 255);
}

#[test]
fn space_and_inodes_end() {
    let mut s = Story::new(Config { blocks: 3, inodes: 3, block_bytes: 512, ..Config::default() });
    s.file("f");
    assert_eq!(s.write("f", 0, &[1; 2000]), Ok(1024), "two blocks are free");
    assert_eq!(s.write("f", 1024, &[1]), Err(Errno::ENOSPC));
    assert_eq!(s.write("f", 1000, &[1; 100]), Ok(24), "up to the last block");
    assert_eq!(s.fallocate("f", KEEP, 1024, 1), Err(Errno::ENOSPC));
    assert_eq!(s.setxattr("f", b"v", XattrFlags::empty()), Err(Errno::ENOSPC));
    assert_eq!(s.make("d", NewNode::Dir, 0o755), Err(Errno::ENOSPC));
    s.file("g");
    assert_eq!(s.make("h", NewNode::File, 0o644), Err(Errno::ENOSPC), "no inode");
    assert_eq!(s.rename2("g", "h", WHITEOUT), Err(Errno::ENOSPC), "a whiteout is an inode");
    assert_eq!(s.free(), (0, 0));
    s.truncate("f", 512);
    assert_eq!(s.free(), (1, 0));
    assert_eq!(s.write("f", 512, &[1]), Ok(1));
}

#[test]
fn directories_count_their_subdirectories() {
    let mut s = story();
    s.dir("a");
    s.dir("b");
    s.dir("a/c");
    assert_eq!((s.nlink(""), s.nlink("a"), s.nlink("b"), s.nlink("a/c")), (4, 3, 2, 2));
    s.rename("a/c", "b/c").unwrap();
    assert_eq!((s.nlink("a"), s.nlink("b")), (2, 3));
    assert_eq!(s.ino("b/c/.."), s.ino("b"));
    s.file("f");
    s.rename2("f", "b/c", EXCHANGE).unwrap();
    assert_eq!((s.nlink(""), s.nlink("b"), s.nlink("f")), (5, 2, 2));
    assert_eq!(s.ino("f/.."), ROOT);
    s.rename("a", "f").unwrap();
    assert_eq!(s.nlink(""), 4, "an empty directory was replaced");
    assert_eq!(s.ino(".."), ROOT);
}

#[test]
fn on_some_file_systems_a_directory_has_one_link() {
    let mut s = with_quirks(Quirks { dir_nlink_one: true, ..Quirks::default() });
    s.dir("a");
    s.dir("a/b");
    s.rename("a/b", "b").unwrap();
    assert_eq!((s.nlink(""), s.nlink("a"), s.nlink("b")), (1, 1, 1));
    s.volume.check_invariants().unwrap();
}

#[test]
fn links_have_a_limit() {
    let mut s = with_quirks(Quirks { link_max: 3, ..Quirks::default() });
    s.file("f");
    s.link("f", "l1").unwrap();
    s.link("f", "l2").unwrap();
    assert_eq!(s.link("f", "l3"), Err(Errno::EMLINK));
    s.dir("a");
    assert_eq!(s.make("b", NewNode::Dir, 0o755), Err(Errno::EMLINK), "the root has 3 links");
    s.dir("a/b");
    s.dir("a/b/c");
    assert_eq!(s.rename("a/b", "d"), Err(Errno::EMLINK));
    assert_eq!(s.rename2("a/b", "f", EXCHANGE), Err(Errno::EMLINK));
    s.rename("a", "z").unwrap();
}

#[test]
fn names_have_rules() {
    let mut s = story();
    let long = "n".repeat(255);
    s.file(&long);
    let too_long = "n".repeat(256);
    assert_eq!(s.make(&too_long, NewNode::File, 0), Err(Errno::ENAMETOOLONG));
    assert_eq!(s.try_ino(&too_long), Err(Errno::ENAMETOOLONG));
    assert_eq!(s.rename(&long, &too_long), Err(Errno::ENAMETOOLONG));
    for name in [".", "..", "a\0b"] {
        assert_eq!(s.make(name, NewNode::File, 0), Err(Errno::EINVAL), "{name:?}");
    }
    let file = s.ino(&long);
    assert_eq!(
        s.volume.make(&Identity::root(), file, b"x", NewNode::File, Mode(0)),
        Err(Errno::ENOTDIR)
    );
    assert_eq!(s.volume.lookup(file, b"."), Err(Errno::ENOTDIR));
    assert_eq!(s.make(&long, NewNode::Dir, 0), Err(Errno::EEXIST));
    assert_eq!(s.link(&long, &long), Err(Errno::EEXIST));
    s.dir("d");
    assert_eq!(s.link("d", "e"), Err(Errno::EPERM));
    assert_eq!(s.unlink("d"), Err(Errno::EISDIR));
    assert_eq!(s.rmdir(&long), Err(Errno::ENOTDIR));
    assert_eq!(s.unlink("none"), Err(Errno::ENOENT));
}

#[test]
fn rename_refuses_what_cannot_be() {
    let mut s = story();
    s.dir("d");
    s.dir("d/e");
    s.dir("full");
    s.file("full/x");
    s.file("f");
    assert_eq!(s.rename("none", "f"), Err(Errno::ENOENT));
    assert_eq!(s.rename("d", "d/e/g"), Err(Errno::EINVAL), "into its own subtree");
    assert_eq!(s.rename("d", "d/g"), Err(Errno::EINVAL));
    assert_eq!(s.rename2("d", "d/e", EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(s.rename2("d/e", "d", EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(s.rename("d/e", "d"), Err(Errno::ENOTEMPTY), "onto its own parent");
    assert_eq!(s.rename("d", "full"), Err(Errno::ENOTEMPTY));
    assert_eq!(s.rename("f", "d"), Err(Errno::EISDIR));
    assert_eq!(s.rename("d", "f"), Err(Errno::ENOTDIR));
    assert_eq!(s.rename2("f", "d", NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(s.rename2("f", "f", NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(s.rename2("f", "none", EXCHANGE), Err(Errno::ENOENT));
    for flags in [EXCHANGE | NOREPLACE, EXCHANGE | WHITEOUT, RenameFlags::from_bits_retain(8)] {
        assert_eq!(s.rename2("f", "g", flags), Err(Errno::EINVAL), "{flags}");
    }
    assert_eq!(s.list(""), "d full f");
    s.volume.check_invariants().unwrap();
}

#[test]
fn rename_onto_the_same_inode_does_nothing() {
    let mut s = story();
    s.file("f");
    s.link("f", "l").unwrap();
    let before = s.volume.tree(TreeOptions { times: true, segments: false });
    s.rename("f", "f").unwrap();
    s.rename("f", "l").unwrap();
    s.rename2("f", "l", EXCHANGE).unwrap();
    s.rename2("f", "l", WHITEOUT).unwrap();
    assert_eq!(s.volume.tree(TreeOptions { times: true, segments: false }), before);
}

#[test]
fn rename_moves_whole_trees() {
    let mut s = story();
    s.dir("d");
    s.dir("d/e");
    s.file("d/e/f");
    s.link("d/e/f", "l").unwrap();
    s.file("g");
    s.rename2("d", "g", EXCHANGE).unwrap();
    assert_eq!(s.ino("g/e/f"), s.ino("l"));
    assert_eq!(s.attr("d").kind, Kind::File);
    s.rename2("g", "h", WHITEOUT).unwrap();
    let whiteout = s.attr("g");
    assert_eq!((whiteout.kind, whiteout.rdev, whiteout.mode), (Kind::Char, (0, 0), Mode(0)));
    assert_eq!(s.ino("h/e/f"), s.ino("l"));
    s.volume.check_invariants().unwrap();
}

#[test]
fn pinned_inodes_live_on_without_a_name() {
    let mut s = story();
    let file = s.file("f");
    let dir = s.dir("d");
    s.write("f", 0, b"data").unwrap();
    s.volume.pin(file).unwrap();
    s.volume.pin(file).unwrap();
    s.volume.pin(dir).unwrap();
    s.unlink("f").unwrap();
    s.rmdir("d").unwrap();
    assert_eq!(s.volume.write(file, 4, b" and more"), Ok(9));
    assert_eq!(s.read_ino(file), b"data and more");
    assert_eq!(s.volume.attr(file).unwrap().nlink, 0);
    assert_eq!(s.volume.link(file, ROOT, b"again"), Err(Errno::ENOENT));
    assert_eq!(s.volume.attr(dir).unwrap().nlink, 0);
    assert_eq!(s.volume.lookup(dir, b".."), Ok(ROOT));
    assert_eq!(
        s.volume.make(&Identity::root(), dir, b"x", NewNode::File, Mode(0)),
        Err(Errno::ENOENT)
    );
    assert_eq!(s.volume.tree(TreeOptions::default()).entries.len(), 1, "invisible");
    s.volume.check_invariants().unwrap();
    s.volume.unpin(file);
    assert_eq!(s.free(), (97, 17));
    s.volume.unpin(file);
    assert_eq!(s.volume.attr(file), Err(Errno::ESTALE));
    s.volume.remount();
    assert_eq!(s.volume.attr(dir), Err(Errno::ESTALE));
    assert_eq!(s.free(), (99, 19));
}

#[test]
fn a_tmpfile_can_get_its_first_name() {
    let mut s = story();
    let caller = Identity::root();
    let (linked, exclusive) = (
        s.volume.make_tmpfile(&caller, ROOT, Mode(0o600)).unwrap(),
        s.volume.make_tmpfile(&caller, ROOT, Mode(0o600)).unwrap(),
    );
    s.volume.forbid_link(exclusive).unwrap();
    assert_eq!(s.volume.attr(linked).unwrap().nlink, 0);
    s.volume.link(linked, ROOT, b"f").unwrap();
    assert_eq!(s.volume.link(exclusive, ROOT, b"g"), Err(Errno::ENOENT));
    s.volume.unpin(linked);
    s.volume.unpin(exclusive);
    assert_eq!((s.nlink("f"), s.free()), (1, (99, 18)));
    s.volume.check_invariants().unwrap();
}

#[test]
fn inode_numbers_are_never_given_out_twice() {
    let mut s = story();
    let snapshot = s.volume.clone();
    let first = s.file("f");
    s.volume.pin(first).unwrap();
    s.volume.restore(&snapshot);
    assert_eq!(s.volume.attr(first), Err(Errno::ESTALE));
    let second = s.file("f");
    assert_eq!(first & 0xffff_ffff, second & 0xffff_ffff, "the slot is used again");
    assert_ne!(first, second);
    s.volume.unpin(first);
    assert_eq!(s.ino("f"), second);
}

#[test]
fn restore_keeps_the_pins_of_the_present() {
    let mut s = story();
    let (kept, dropped) = (s.file("kept"), s.file("dropped"));
    s.volume.pin(kept).unwrap();
    s.volume.pin(dropped).unwrap();
    s.unlink("kept").unwrap();
    s.unlink("dropped").unwrap();
    let snapshot = s.volume.clone();
    s.volume.unpin(dropped);
    s.volume.restore(&snapshot);
    assert!(s.volume.attr(kept).is_ok());
    assert_eq!(s.volume.attr(dropped), Err(Errno::ESTALE));
    assert!(snapshot.attr(dropped).is_ok());
    s.volume.check_invariants().unwrap();
}

#[test]
fn holes_and_data_are_found_block_by_block() {
    let mut s = story();
    let file = s.file("f");
    s.write("f", 4096, &[1; 10]).unwrap();
    s.write("f", 20_000, &[1; 10]).unwrap();
    s.truncate("f", 50_000);
    assert_eq!(s.segments("f"), [(4096, 8192), (16_384, 20_480)]);
    let v = &s.volume;
    assert_eq!((v.seek_data(file, 0), v.seek_data(file, 5000)), (Ok(4096), Ok(5000)));
    assert_eq!((v.seek_hole(file, 0), v.seek_hole(file, 5000)), (Ok(0), Ok(8192)));
    assert_eq!(
        (v.seek_data(file, 20_480), v.seek_hole(file, 49_999)),
        (Err(Errno::ENXIO), Ok(49_999))
    );
    assert_eq!(
        (v.seek_data(file, 50_000), v.seek_hole(file, 50_000)),
        (Err(Errno::ENXIO), Err(Errno::ENXIO))
    );
    s.truncate("f", 20_005);
    assert_eq!(s.segments("f"), [(4096, 8192), (16_384, 20_005)]);
}

#[test]
fn fallocate_reserves_blocks_that_read_as_zeros() {
    let mut s = story();
    s.file("f");
    s.fallocate("f", KEEP, 0, 10_000).unwrap();
    assert_eq!((s.size("f"), s.free().0, s.attr("f").blocks_512), (0, 96, 24));
    s.write("f", 5000, b"x").unwrap();
    assert_eq!((s.size("f"), s.free().0), (5001, 96), "the block was there");
    assert_eq!(s.segments("f"), [(4096, 5001)]);
    s.fallocate("f", FallocateMode::empty(), 0, 20_000).unwrap();
    assert_eq!((s.size("f"), s.free().0), (20_000, 94));
    s.truncate("f", 4096);
    assert_eq!(s.free().0, 98);
    s.fallocate("f", FallocateMode::FALLOC_FL_UNSHARE_RANGE, 0, 8192).unwrap();
    assert_eq!((s.size("f"), s.free().0), (8192, 97));
    assert_eq!(s.fallocate("f", KEEP, 0, 1 << 40), Err(Errno::ENOSPC));
    assert_eq!(s.free().0, 97, "all or nothing");
}

#[test]
fn fallocate_punches_zeroes_collapses_and_inserts() {
    let mut s = story();
    s.file("f");
    s.write("f", 0, &[1; 16_384]).unwrap();
    s.fallocate("f", PUNCH, 4000, 5000).unwrap();
    assert_eq!(s.segments("f"), [(0, 4096), (8192, 16_384)]);
    assert_eq!(s.read("f")[3999..4001], [1, 0]);
    assert_eq!(s.read("f")[8999..9001], [0, 1]);
    s.fallocate("f", ZERO, 8192, 4096).unwrap();
    assert_eq!(s.segments("f"), [(0, 4096), (12_288, 16_384)]);
    assert_eq!(s.free().0, 96, "zeroed blocks stay");
    s.fallocate("f", COLLAPSE, 4096, 8192).unwrap();
    assert_eq!((s.size("f"), s.segments("f")), (8192, vec![(0, 8192)]));
    s.fallocate("f", INSERT, 0, 4096).unwrap();
    assert_eq!((s.size("f"), s.segments("f")), (12_288, vec![(4096, 12_288)]));
    assert_eq!(s.fallocate("f", COLLAPSE, 0, 100), Err(Errno::EINVAL));
    assert_eq!(s.fallocate("f", COLLAPSE, 8192, 4096), Err(Errno::EINVAL), "up to the end");
    assert_eq!(s.fallocate("f", INSERT, 12_288, 4096), Err(Errno::EINVAL), "at the end");
    assert_eq!(s.fallocate("f", INSERT | KEEP, 0, 4096), Err(Errno::EOPNOTSUPP));
    assert_eq!(s.fallocate("f", FallocateMode::FALLOC_FL_PUNCH_HOLE, 0, 1), Err(Errno::EOPNOTSUPP));
    assert_eq!(
        s.fallocate("f", FallocateMode::FALLOC_FL_WRITE_ZEROES, 0, 1),
        Err(Errno::EOPNOTSUPP)
    );
    assert_eq!(s.fallocate("f", KEEP, 0, 0), Err(Errno::EINVAL));
    assert_eq!(s.fallocate("f", KEEP, 1, u64::MAX), Err(Errno::EFBIG));
    s.volume.check_invariants().unwrap();
}

#[test]
fn files_have_a_largest_size() {
    let mut s = with_quirks(Quirks { file_bytes_max: 10_000, ..Quirks::default() });
    let file = s.file("f");
    assert_eq!(s.write("f", 9_998, b"four"), Ok(2));
    assert_eq!(s.write("f", 10_000, b"x"), Err(Errno::EFBIG));
    assert_eq!(s.volume.truncate(file, 10_001), Err(Errno::EFBIG));
    assert_eq!(s.fallocate("f", FallocateMode::empty(), 0, 10_001), Err(Errno::EFBIG));
    let mut huge = story();
    let file = huge.file("f");
    let end = i64::MAX as u64;
    assert_eq!(huge.write("f", end - 1, b"xy"), Ok(1));
    assert_eq!((huge.size("f"), huge.volume.seek_data(file, 0)), (end, Ok(end - end % 4096)));
    huge.volume.check_invariants().unwrap();
}

#[test]
fn xattrs_follow_their_flags_and_limits() {
    let mut s = with_quirks(Quirks { xattr_total_bytes_max: 1000, ..Quirks::default() });
    let file = s.file("f");
    let (create, replace) = (XattrFlags::XATTR_CREATE, XattrFlags::XATTR_REPLACE);
    assert_eq!(s.setxattr("f", b"v", replace), Err(Errno::ENODATA));
    s.setxattr("f", b"v", create).unwrap();
    assert_eq!(s.setxattr("f", b"w", create), Err(Errno::EEXIST));
    s.setxattr("f", b"", replace).unwrap();
    assert_eq!(s.volume.getxattr(file, b"user.x").unwrap().as_bytes(), b"");
    assert_eq!(s.setxattr("f", &[0; 1001], replace), Err(Errno::ENOSPC));
    assert_eq!(s.setxattr("f", &[0; 65_537], replace), Err(Errno::E2BIG));
    assert_eq!(s.volume.setxattr(file, &[b'n'; 256], b"", create), Err(Errno::ERANGE));
    assert_eq!(s.volume.setxattr(file, b"", b"", create), Err(Errno::ERANGE));
    assert_eq!(s.setxattr("f", b"", XattrFlags::from_bits_retain(4)), Err(Errno::EINVAL));
    assert_eq!(s.volume.getxattr(file, b"user.y"), Err(Errno::ENODATA));
    s.volume.removexattr(file, b"user.x").unwrap();
    assert_eq!(s.volume.removexattr(file, b"user.x"), Err(Errno::ENODATA));
    assert_eq!((s.volume.listxattr(file).unwrap().len(), s.free().0), (0, 99));
}

#[test]
fn setgid_directories_hand_down_their_group() {
    let mut s = story();
    let dir = s.make("d", NewNode::Dir, 0o2777).unwrap();
    s.volume.chown(dir, None, Some(50)).unwrap();
    s.caller = Identity { uid: 7, gid: 8, groups: [9].into() };
    s.make("d/f", NewNode::File, 0o2755).unwrap();
    s.make("d/e", NewNode::Dir, 0o755).unwrap();
    let (file, dir) = (s.attr("d/f"), s.attr("d/e"));
    assert_eq!((file.uid, file.gid, file.mode), (7, 50, Mode(0o755)), "not a member of the group");
    assert_eq!((dir.gid, dir.mode), (50, Mode(0o2755)));
    s.caller.groups = [50].into();
    s.make("d/g", NewNode::File, 0o2755).unwrap();
    assert_eq!(s.attr("d/g").mode, Mode(0o2755));
    s.make("plain", NewNode::File, 0o2755).unwrap();
    assert_eq!((s.attr("plain").gid, s.attr("plain").mode), (8, Mode(0o2755)));
    s.symlink("d/l", "x");
    assert_eq!((s.attr("d/l").gid, s.attr("d/l").mode), (50, Mode(0o777)));
}

#[test]
fn privileges_go_but_mandatory_locking_marks_stay() {
    let mut s = story();
    let program = s.make("p", NewNode::File, 0o6755).unwrap();
    let locked = s.make("l", NewNode::File, 0o6745).unwrap();
    s.volume.kill_privileges(program).unwrap();
    s.volume.kill_privileges(locked).unwrap();
    assert_eq!((s.attr("p").mode, s.attr("l").mode), (Mode(0o755), Mode(0o2745)));
}

#[test]
fn the_clock_ticks_once_per_change_and_touches_the_right_times() {
    let mut s = story();
    let tick = |n| Stamp::Tick(n);
    let times = |s: &Story, path: &str| {
        let times = s.attr(path).times;
        [times.atime, times.mtime, times.ctime]
    };
    let file = s.file("f");
    assert_eq!(times(&s, "f"), [tick(1); 3]);
    assert_eq!(times(&s, ""), [tick(0), tick(1), tick(1)]);
    s.write("f", 0, b"x").unwrap();
    assert_eq!(times(&s, "f"), [tick(1), tick(2), tick(2)]);
    s.volume.chmod(file, Mode(0o600)).unwrap();
    assert_eq!(times(&s, "f"), [tick(1), tick(2), tick(3)]);
    s.rename("f", "g").unwrap();
    assert_eq!(times(&s, "g"), [tick(1), tick(2), tick(4)]);
    assert_eq!(times(&s, ""), [tick(0), tick(4), tick(4)]);
    s.link("g", "h").unwrap();
    s.unlink("g").unwrap();
    assert_eq!(times(&s, "h"), [tick(1), tick(2), tick(6)]);
    s.volume.set_times(file, Some(SetTime::At { sec: -5, nsec: 9 }), Some(SetTime::Now)).unwrap();
    assert_eq!(times(&s, "h"), [Stamp::At { sec: -5, nsec: 9 }, tick(7), tick(7)]);
    s.truncate("h", 1);
    assert_eq!(times(&s, "h")[1], tick(7), "the size is the same");
    s.volume.note_access(file);
    assert_eq!(times(&s, "h")[0], tick(9));
}

#[test]
fn cookies_are_stable_and_grow() {
    let mut s = story();
    for name in ["c", "a", "b"] {
        s.file(name);
    }
    let cookies: Vec<u64> = s.volume.entries(ROOT, 0).unwrap().iter().map(|e| e.cookie).collect();
    assert_eq!((s.list(""), cookies), ("c a b".to_owned(), vec![3, 4, 5]));
    s.unlink("a").unwrap();
    s.file("a");
    assert_eq!(s.list(""), "c b a");
    let rest = s.volume.entries(ROOT, 3).unwrap();
    assert_eq!(rest.iter().map(|e| e.cookie).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(s.volume.entries_up_to(ROOT, 3, 1).unwrap(), rest[..1]);
}

#[test]
fn the_digest_comes_back_with_the_tree() {
    let mut s = story();
    let empty = s.volume.digest();
    assert_ne!(empty, Digest::default());
    s.dir("d");
    s.file("d/f");
    let with_file = s.volume.digest();
    s.rename("d/f", "f").unwrap();
    assert_ne!(s.volume.digest(), with_file);
    s.rename("f", "d/f").unwrap();
    assert_eq!(s.volume.digest(), with_file);
    s.unlink("d/f").unwrap();
    s.rmdir("d").unwrap();
    assert_eq!(s.volume.digest(), empty);
}

#[test]
fn many_inodes_and_entries_work() {
    let mut s = Story::new(Config::default());
    let before = s.free();
    for n in 0..5000 {
        s.file(&format!("{n}"));
    }
    let snapshot = s.volume.clone();
    for n in (0..5000).rev() {
        s.unlink(&format!("{n}")).unwrap();
    }
    assert_eq!(s.free(), before);
    assert_eq!(snapshot.entries(ROOT, 0).unwrap().len(), 5000);
    snapshot.check_invariants().unwrap();
    for n in 0..300 {
        s.file(&format!("again {n}"));
    }
    s.volume.check_invariants().unwrap();
}
