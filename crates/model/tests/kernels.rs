//! Answers of file systems of Linux 6.12 that a campaign took for wrong before their profiles knew them: the
//! reference with the profile gives the same.

use fathom_core::flags::{FallocateMode, OpenFlags, Whence, XattrFlags};
use fathom_core::{Errno, Mode, Op, Pattern, Target};
use fathom_model::{Config, Model, Quirks};

const CREATE: OpenFlags = OpenFlags::O_RDWR.union(OpenFlags::O_CREAT);

fn model(profile: &str) -> Model {
    let quirks = Quirks::profile(profile).unwrap();
    Model::new(Config { root_mode: Mode(0o777), quirks, ..Config::default() }).unwrap()
}

#[track_caller]
fn check(profile: &str, table: &[(Op, Result<u64, Errno>)]) {
    let mut m = model(profile);
    for (op, expected) in table {
        assert_eq!(m.execute(op).result, *expected, "{profile}: {op}");
    }
}

fn open(path: &str) -> Op {
    Op::Open { slot: 0, path: path.into(), flags: CREATE, mode: Mode(0o666) }
}

fn seek(offset: i64) -> Op {
    Op::Lseek { slot: 0, offset, whence: Whence::Set }
}

fn symlink(target_bytes: usize) -> Op {
    let target = "t".repeat(target_bytes);
    Op::Symlink { target: target.as_str().into(), path: "link".into() }
}

#[test]
fn reiserfs_has_positions_up_to_two_to_the_41() {
    let last = (1 << 41) - 4096;
    let table = [
        (open("f"), Ok(0)),
        (seek(last), Ok(last as u64)),
        (seek(last + 1), Err(Errno::EINVAL)),
        (seek(1 << 41), Err(Errno::EINVAL)),
    ];
    check("reiserfs", &table);
}

fn open_directory(flags: OpenFlags) -> Op {
    Op::Open { slot: 0, path: "d".into(), flags, mode: Mode(0) }
}

fn mkdir() -> Op {
    Op::Mkdir { path: "d".into(), mode: Mode(0o755) }
}

#[test]
fn jfs_has_positions_in_directories_like_those_in_files() {
    let beyond = 1 << 53;
    let table = [
        (mkdir(), Ok(0)),
        (open_directory(OpenFlags::empty()), Ok(0)),
        (seek(beyond), Err(Errno::EINVAL)),
    ];
    check("jfs", &table);
}

#[test]
fn nilfs2_opens_directories_for_direct_transfers() {
    check("nilfs2", &[(mkdir(), Ok(0)), (open_directory(OpenFlags::O_DIRECT), Ok(0))]);
}

#[test]
fn ntfs3_has_positions_up_to_its_last_cluster() {
    let last: i64 = 0xffff_ffff << 12;
    check(
        "ntfs3",
        &[(open("f"), Ok(0)), (seek(last), Ok(last as u64)), (seek(1 << 44), Err(Errno::EINVAL))],
    );
}

#[test]
fn ntfs3_lists_trusted_attributes_for_everybody() {
    let target = Target::Path("f".into());
    let set = Op::Setxattr {
        target: target.clone(),
        name: "trusted.a".into(),
        value: Pattern { seed: 1, len: 1 },
        flags: XattrFlags::empty(),
    };
    let other = Op::Identity { uid: 1000, gid: 1000, groups: Vec::new() };
    let list = Op::Listxattr { target, len: 16 };
    check("ntfs3", &[(open("f"), Ok(0)), (set, Ok(0)), (other, Ok(0)), (list, Ok(10))]);
}

#[test]
fn ntfs3_may_keep_setgid_at_a_fallocate_that_fails() {
    let mut m = model("ntfs3");
    let write = Op::Write { slot: 0, data: Pattern { seed: 1, len: 10 } };
    let chmod = Op::Chmod { target: Target::Path("f".into()), mode: Mode(0o2777) };
    let other = Op::Identity { uid: 1000, gid: 1000, groups: Vec::new() };
    for op in [open("f"), write, chmod, other] {
        assert_eq!(m.execute(&op).result.err(), None, "{op}");
    }
    let mode = FallocateMode::FALLOC_FL_COLLAPSE_RANGE;
    let op = Op::Fallocate { slot: 0, mode, offset: 0, len: 1 };
    assert!(m.unspecified(&op).is_some());
}

#[test]
fn jffs2_has_symbolic_links_of_254_bytes() {
    check("jffs2", &[(symlink(255), Err(Errno::ENAMETOOLONG)), (symlink(254), Ok(0))]);
}
