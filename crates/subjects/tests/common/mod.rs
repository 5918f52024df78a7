//! One script for every subject: each operation at least once, with the outcome that Linux promises.
#![allow(dead_code, reason = "every test program uses a part")]

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use fathom_core::flags::{
    AccessMode, FallocateMode, MsyncFlags, OpenFlags, RenameFlags, SyncRangeFlags, Whence,
    XattrFlags,
};
use fathom_core::{
    Capability, Errno, FsBytes, Mode, Op, Outcome, Pattern, Payload, Slot, Stat, Subject, Target,
    TimeArg,
};

/// Says why a test did not run; the test driver counts these lines.
pub(crate) fn skip(test: &str, reason: impl std::fmt::Display) {
    println!("SKIP {test}: {reason}");
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within 20 seconds");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn path(name: &str) -> Target {
    Target::Path(name.into())
}

pub(crate) fn link_itself(name: &str) -> Target {
    Target::Link(name.into())
}

pub(crate) fn open(slot: Slot, path: &str, flags: OpenFlags) -> Op {
    Op::Open { slot, path: path.into(), flags, mode: Mode(0o666) }
}

pub(crate) fn create(slot: Slot, path: &str) -> Op {
    open(slot, path, OpenFlags::O_RDWR | OpenFlags::O_CREAT | OpenFlags::O_EXCL)
}

pub(crate) fn mkdir(path: &str, mode: u32) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode(mode) }
}

pub(crate) fn symlink(target: &str, path: &str) -> Op {
    Op::Symlink { target: target.into(), path: path.into() }
}

pub(crate) fn mknod(path: &str, mode: u32, dev: (u32, u32)) -> Op {
    Op::Mknod { path: path.into(), mode: Mode(mode), dev }
}

pub(crate) fn pwrite(slot: Slot, offset: i64, seed: u64, len: u64) -> Op {
    Op::Pwrite { slot, offset, data: Pattern { seed, len } }
}

pub(crate) fn bytes(seed: u64, len: u64) -> Vec<u8> {
    Pattern { seed, len }.to_vec()
}

pub(crate) fn ok(value: u64) -> Outcome {
    Outcome::ok(value)
}

pub(crate) fn err(errno: Errno) -> Outcome {
    Outcome::err(errno)
}

/// Executes and compares; the failure text names the operation.
#[track_caller]
pub(crate) fn expect(subject: &mut dyn Subject, op: Op, expected: Outcome) {
    let found = subject.apply(&op).unwrap();
    assert_eq!(found, expected, "{}: {op:?}", subject.name());
}

#[track_caller]
pub(crate) fn expect_all(subject: &mut dyn Subject, steps: Vec<(Op, Outcome)>) {
    for (op, expected) in steps {
        expect(subject, op, expected);
    }
}

fn stat(mode: u32, nlink: u32, size: u64) -> Outcome {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Outcome::with(Payload::Stat(Box::new(Stat {
        mode: Mode(mode),
        nlink,
        uid,
        gid,
        size,
        rdev: (0, 0),
    })))
}

fn names(names: &[&str]) -> Outcome {
    let names: BTreeSet<FsBytes> = names.iter().map(|&name| name.into()).collect();
    let count = names.iter().map(|name| name.as_bytes().len() as u64 + 1).sum();
    Outcome { result: Ok(count), payload: Payload::Names(names) }
}

fn entries(entries: &[(&str, char)]) -> Outcome {
    let entries: Vec<_> = entries.iter().map(|&(name, kind)| (FsBytes::from(name), kind)).collect();
    Outcome { result: Ok(entries.len() as u64), payload: Payload::Entries(entries) }
}

/// Every operation except identity, devices and remount. `fallocates`: ext2 and ext3 cannot.
pub(crate) fn every_operation(subject: &mut dyn Subject, fallocates: bool) {
    open_files(subject);
    data(subject);
    ranges(subject, fallocates);
    memory(subject);
    names_and_links(subject);
    attributes(subject);
    xattrs(subject);
    syncing(subject);
}

/// What is not the file system's business, so the reference leaves it out: data in a FIFO, and
/// attributes that belong to the system. Comes after [`every_operation`].
pub(crate) fn beyond_the_reference(subject: &mut dyn Subject) {
    expect_all(
        subject,
        vec![
            (open(3, "d/f", OpenFlags::O_RDWR), ok(0)),
            (Op::Write { slot: 3, data: Pattern { seed: 1, len: 5 } }, ok(5)),
            (Op::Read { slot: 3, len: 10 }, Outcome::data(&bytes(1, 5))),
            (Op::Close { slot: 3 }, ok(0)),
        ],
    );
    if is_root() {
        let (target, name, value) = (path("mapped"), "security.x", Pattern { seed: 8, len: 30 });
        let flags = XattrFlags::empty();
        expect(subject, Op::Setxattr { target, name: name.into(), value, flags }, ok(0));
        let list = |len| Op::Listxattr { target: path("mapped"), len };
        expect(subject, list(0), ok(10));
        expect(subject, list(10), names(&["user.keep"]));
        expect(subject, list(9), err(Errno::ERANGE));
    }
}

fn open_files(subject: &mut dyn Subject) {
    let (rd, dir) = (OpenFlags::empty(), OpenFlags::O_DIRECTORY);
    expect_all(
        subject,
        vec![
            (Op::Umask { mask: Mode(0o027) }, ok(0o022)),
            (create(0, "a"), ok(0)),
            (create(1, "a"), err(Errno::EEXIST)),
            (open(1, "missing", rd), err(Errno::ENOENT)),
            (open(1, "a", dir), err(Errno::ENOTDIR)),
            (open(1, "a/b", rd), err(Errno::ENOTDIR)),
            (open(1, ".", OpenFlags::O_WRONLY), err(Errno::EISDIR)),
            (open(1, ".", OpenFlags::O_TMPFILE | OpenFlags::O_RDWR), ok(0)),
            (open(2, "a", OpenFlags::O_PATH), ok(0)),
            (Op::Read { slot: 2, len: 1 }, err(Errno::EBADF)),
            (Op::Stat { target: Target::Slot(2) }, stat(0o100640, 1, 0)),
            (Op::Stat { target: Target::Slot(1) }, stat(0o100640, 0, 0)),
            (Op::Close { slot: 1 }, ok(0)),
            (Op::Close { slot: 1 }, err(Errno::EBADF)),
            (Op::Close { slot: 2 }, ok(0)),
            (Op::Close { slot: 0 }, ok(0)),
            (Op::Umask { mask: Mode(0o022) }, ok(0o027)),
        ],
    );
}

fn data(subject: &mut dyn Subject) {
    let whole = [bytes(1, 10), vec![0; 90], bytes(2, 5)].concat();
    expect_all(
        subject,
        vec![
            (open(0, "a", OpenFlags::O_RDWR), ok(0)),
            (Op::Write { slot: 0, data: Pattern { seed: 1, len: 10 } }, ok(10)),
            (pwrite(0, 100, 2, 5), ok(5)),
            (Op::Lseek { slot: 0, offset: 0, whence: Whence::Cur }, ok(10)),
            (Op::Lseek { slot: 0, offset: -105, whence: Whence::End }, ok(0)),
            (Op::Lseek { slot: 0, offset: -1, whence: Whence::Set }, err(Errno::EINVAL)),
            (Op::Read { slot: 0, len: 1 << 40 }, Outcome::data(&whole)),
            (Op::Read { slot: 0, len: 7 }, Outcome::data(b"")),
            (Op::Pread { slot: 0, offset: 95, len: 7 }, Outcome::data(&whole[95..102])),
            (Op::Pread { slot: 0, offset: -1, len: 7 }, err(Errno::EINVAL)),
            (pwrite(0, -1, 2, 5), err(Errno::EINVAL)),
            (pwrite(9, 0, 2, 5), err(Errno::EBADF)),
            (Op::Truncate { target: path("a"), len: 4 }, ok(0)),
            (Op::Truncate { target: Target::Slot(0), len: 12 }, ok(0)),
            (Op::Truncate { target: Target::Slot(0), len: -1 }, err(Errno::EINVAL)),
            (Op::Truncate { target: path("."), len: 0 }, err(Errno::EISDIR)),
            (
                Op::Pread { slot: 0, offset: 0, len: 100 },
                Outcome::data(&[bytes(1, 4), vec![0; 8]].concat()),
            ),
        ],
    );
}

fn ranges(subject: &mut dyn Subject, fallocates: bool) {
    let allocated = if fallocates { ok(0) } else { err(Errno::EOPNOTSUPP) };
    let keep = FallocateMode::FALLOC_FL_KEEP_SIZE;
    let copy = |from_offset, to_offset, len| Op::CopyFileRange {
        from: 0,
        from_offset,
        to: 1,
        to_offset,
        len,
        flags: 0,
    };
    expect_all(
        subject,
        vec![
            (create(0, "sparse"), ok(0)),
            (pwrite(0, 65536, 3, 4096), ok(4096)),
            (Op::Lseek { slot: 0, offset: 0, whence: Whence::Data }, ok(65536)),
            (Op::Lseek { slot: 0, offset: 65536, whence: Whence::Hole }, ok(69632)),
            (Op::Lseek { slot: 0, offset: 69632, whence: Whence::Data }, err(Errno::ENXIO)),
            (
                Op::Fallocate { slot: 0, mode: FallocateMode::empty(), offset: 0, len: 0 },
                err(Errno::EINVAL),
            ),
            (Op::Fallocate { slot: 0, mode: keep, offset: 0, len: 8192 }, allocated),
            (Op::Lseek { slot: 0, offset: 0, whence: Whence::Set }, ok(0)),
            (pwrite(0, 0, 4, 100), ok(100)),
            (create(1, "copy"), ok(0)),
            (copy(Some(10), Some(1), 20), ok(20)),
            (copy(None, None, 50), ok(50)),
            (Op::Lseek { slot: 0, offset: 0, whence: Whence::Cur }, ok(50)),
            (Op::Lseek { slot: 1, offset: 0, whence: Whence::Cur }, ok(50)),
            (Op::Pread { slot: 1, offset: 0, len: 100 }, Outcome::data(&bytes(4, 50))),
        ],
    );
}

fn memory(subject: &mut dyn Subject) {
    let (data, sync) = (Pattern { seed: 5, len: 100 }, MsyncFlags::MS_SYNC);
    let store = |slot, offset| Op::MmapStore { slot, offset, data, sync };
    let load = |slot, offset, len| Op::MmapLoad { slot, offset, len };
    let both = MsyncFlags::MS_SYNC | MsyncFlags::MS_ASYNC;
    expect_all(
        subject,
        vec![
            (create(0, "mapped"), ok(0)),
            (Op::Truncate { target: Target::Slot(0), len: 5000 }, ok(0)),
            (store(0, 4090), ok(100)),
            (store(0, 4950), ok(50)),
            (store(0, 5000), ok(0)),
            (store(0, 1 << 20), ok(0)),
            (load(0, 4085, 20), Outcome::data(&[vec![0; 5], bytes(5, 15)].concat())),
            (load(0, 4940, 1000), Outcome::data(&[vec![0; 10], bytes(5, 50)].concat())),
            (load(0, 9000, 10), Outcome::data(b"")),
            (Op::Pread { slot: 0, offset: 4950, len: 100 }, Outcome::data(&bytes(5, 50))),
            (store(9, 0), err(Errno::EBADF)),
            (load(0, 0, 0), err(Errno::EINVAL)),
            (load(0, 1, u64::MAX), err(Errno::ENOMEM)),
            (load(0, -4096, 10), err(Errno::EOVERFLOW)),
            (Op::MmapStore { slot: 0, offset: 0, data, sync: both }, err(Errno::EINVAL)),
            (open(1, "mapped", OpenFlags::empty()), ok(0)),
            (store(1, 0), err(Errno::EACCES)),
            (load(1, 4950, 50), Outcome::data(&bytes(5, 50))),
            (open(1, ".", OpenFlags::empty()), ok(0)),
            (load(1, 0, 1), err(Errno::ENODEV)),
        ],
    );
}

fn names_and_links(subject: &mut dyn Subject) {
    let rename =
        |from: &str, to: &str, flags| Op::Rename { from: from.into(), to: to.into(), flags };
    let link = |from: &str, to: &str, follow| Op::Link { from: from.into(), to: to.into(), follow };
    let piece = |slot, back, len| Op::ListPiece { slot, back, len };
    let link_slot = |slot, to: &str| Op::LinkSlot { slot, to: to.into(), by_proc: true };
    let readlink = |len| Op::Readlink { path: "d/s".into(), len };
    let with_one_subdirectory = parent_stat(subject);
    let listing =
        [(".", 'd'), ("..", 'd'), ("f", 'p'), ("h", '-'), ("s", 'l'), ("sock", 's'), ("sub", 'd')];
    expect_all(
        subject,
        vec![
            (mkdir("d", 0o777), ok(0)),
            (mkdir("d", 0o777), err(Errno::EEXIST)),
            (mkdir("d/sub", 0o700), ok(0)),
            (Op::Rmdir { path: "d".into() }, err(Errno::ENOTEMPTY)),
            (Op::Unlink { path: "d".into() }, err(Errno::EISDIR)),
            (symlink("sub", "d/s"), ok(0)),
            (readlink(100), Outcome::data(b"sub")),
            (readlink(2), Outcome::data(b"su")),
            (readlink(1 << 30), Outcome::data(b"sub")),
            (readlink(1 << 31), err(Errno::EINVAL)),
            (readlink(0), err(Errno::EINVAL)),
            (link("a", "d/h", false), ok(0)),
            (link("d/s", "d/s2", false), ok(0)),
            (link("d/s", "d/s3", true), err(Errno::EPERM)),
            (Op::Unlink { path: "d/s2".into() }, ok(0)),
            (mknod("d/f", 0o010600, (0, 0)), ok(0)),
            (mknod("d/sock", 0o140600, (0, 0)), ok(0)),
            (open(3, "d", OpenFlags::O_DIRECTORY), ok(0)),
            (Op::Getdents { slot: 3 }, entries(&listing)),
            (Op::Getdents { slot: 3 }, entries(&listing)),
            (Op::Getdents { slot: 0 }, err(Errno::ENOTDIR)),
            (Op::Getdents { slot: 99 }, err(Errno::EBADF)),
            (piece(3, 0, 0), err(Errno::EINVAL)),
            (piece(3, 0, 1 << 16), entries(&listing)),
            (piece(3, 0, 1 << 16), entries(&[])),
            (piece(3, 2, 1 << 16), entries(&listing)),
            (piece(0, 0, 100), err(Errno::ENOTDIR)),
            (piece(99, 0, 100), err(Errno::EBADF)),
            (rename("d/h", "d/sub/h", RenameFlags::empty()), ok(0)),
            (rename("d", "d/sub/x", RenameFlags::empty()), err(Errno::EINVAL)),
            (rename("a", "d/sub/h", RenameFlags::RENAME_NOREPLACE), err(Errno::EEXIST)),
            (rename("copy", "d/sub/h", RenameFlags::RENAME_EXCHANGE), ok(0)),
            (Op::Stat { target: path("copy") }, stat(0o100640, 2, 12)),
            (Op::Stat { target: path("d") }, with_one_subdirectory),
            (open(3, "copy", OpenFlags::O_PATH), ok(0)),
            (link_slot(3, "d/by-proc"), ok(0)),
            (link_slot(3, "d/by-proc"), err(Errno::EEXIST)),
            (link_slot(99, "d/x"), err(Errno::ENOENT)),
            (Op::Stat { target: path("copy") }, stat(0o100640, 3, 12)),
            (Op::Unlink { path: "d/by-proc".into() }, ok(0)),
            (open(3, "d/f", OpenFlags::O_NONBLOCK), ok(0)),
            (Op::Read { slot: 3, len: 10 }, Outcome::data(b"")),
            (open(3, "d/sock", OpenFlags::O_RDWR), err(Errno::ENXIO)),
            (Op::Close { slot: 3 }, err(Errno::EBADF)),
        ],
    );
}

/// What stat shall say of a directory with one subdirectory: whether subdirectories count as links is
/// the file system's own business (btrfs: always 1), and an empty directory tells.
fn parent_stat(subject: &mut dyn Subject) -> Outcome {
    expect(subject, mkdir("empty", 0o777), ok(0));
    let outcome = subject.apply(&Op::Stat { target: path("empty") }).unwrap();
    expect(subject, Op::Rmdir { path: "empty".into() }, ok(0));
    let Payload::Stat(empty) = outcome.payload else { panic!("{outcome}") };
    stat(0o040755, if empty.nlink == 2 { 3 } else { 1 }, 0)
}

fn attributes(subject: &mut dyn Subject) {
    let at = |sec| TimeArg::At { sec, nsec: 5 };
    let bad = TimeArg::At { sec: 0, nsec: 1_000_000_000 };
    let utimens = |target, atime, mtime| Op::Utimens { target, atime, mtime };
    let chmod = |target, mode| Op::Chmod { target, mode: Mode(mode) };
    let access = |target, mode| Op::Access { target, mode, effective: true };
    let uid = rustix::process::geteuid().as_raw();
    expect_all(
        subject,
        vec![
            (chmod(path("mapped"), 0o4711), ok(0)),
            (Op::Stat { target: path("mapped") }, stat(0o104711, 1, 5000)),
            (chmod(Target::Slot(0), 0o600), ok(0)),
            (chmod(link_itself("d/s"), 0o600), err(Errno::EOPNOTSUPP)),
            (chmod(Target::Slot(9), 0o600), err(Errno::EBADF)),
            (Op::Chown { target: path("mapped"), uid: Some(uid), gid: None }, ok(0)),
            (Op::Chown { target: link_itself("d/s"), uid: None, gid: None }, ok(0)),
            (Op::Chown { target: Target::Slot(0), uid: None, gid: None }, ok(0)),
            (utimens(path("mapped"), at(1), at(-2)), ok(0)),
            (utimens(link_itself("d/s"), TimeArg::Now, TimeArg::Omit), ok(0)),
            (utimens(Target::Slot(0), TimeArg::Omit, at(7)), ok(0)),
            (utimens(path("mapped"), bad, at(1)), err(Errno::EINVAL)),
            (access(path("mapped"), AccessMode::R_OK | AccessMode::W_OK), ok(0)),
            (access(path("mapped"), AccessMode::X_OK), err(Errno::EACCES)),
            (access(link_itself("d/s"), AccessMode::empty()), ok(0)),
            (access(Target::Slot(0), AccessMode::R_OK), ok(0)),
            (access(path("missing"), AccessMode::empty()), err(Errno::ENOENT)),
            (Op::Access { target: path("d"), mode: AccessMode::X_OK, effective: false }, ok(0)),
        ],
    );
    for target in [path("."), Target::Slot(0)] {
        let outcome = subject.apply(&Op::Statfs { target }).unwrap();
        let Payload::Statfs(statfs) = outcome.payload else { panic!("{outcome}") };
        assert!(statfs.blocks_free <= statfs.blocks && statfs.name_bytes_max == 255, "{statfs:?}");
    }
}

fn xattrs(subject: &mut dyn Subject) {
    let set = |target, name: &str, flags| Op::Setxattr {
        target,
        name: name.into(),
        value: Pattern { seed: 8, len: 30 },
        flags,
    };
    let get = |name: &str, len| Op::Getxattr { target: path("mapped"), name: name.into(), len };
    let list = |len| Op::Listxattr { target: path("mapped"), len };
    let file = || path("mapped");
    expect_all(
        subject,
        vec![
            (list(0), ok(0)),
            (list(100), names(&[])),
            (set(file(), "user.a", XattrFlags::XATTR_REPLACE), err(Errno::ENODATA)),
            (set(file(), "user.a", XattrFlags::XATTR_CREATE), ok(0)),
            (set(file(), "user.a", XattrFlags::XATTR_CREATE), err(Errno::EEXIST)),
            (set(Target::Slot(0), "user.bb", XattrFlags::empty()), ok(0)),
            (set(link_itself("d/s"), "user.a", XattrFlags::empty()), err(Errno::EPERM)),
            (set(file(), "none.a", XattrFlags::empty()), err(Errno::EOPNOTSUPP)),
            (get("user.a", 100), Outcome::data(&bytes(8, 30))),
            (get("user.a", 0), ok(30)),
            (get("user.a", 29), err(Errno::ERANGE)),
            (get("user.c", 29), err(Errno::ENODATA)),
            (list(0), ok(15)),
            (list(14), err(Errno::ERANGE)),
            (list(15), names(&["user.a", "user.bb"])),
            (
                Op::Listxattr { target: Target::Slot(0), len: 1 << 30 },
                names(&["user.a", "user.bb"]),
            ),
            (Op::Listxattr { target: Target::Slot(9), len: 0 }, err(Errno::EBADF)),
            (Op::Removexattr { target: file(), name: "user.a".into() }, ok(0)),
            (
                Op::Removexattr { target: Target::Slot(0), name: "user.a".into() },
                err(Errno::ENODATA),
            ),
            (Op::Removexattr { target: link_itself("mapped"), name: "user.bb".into() }, ok(0)),
            (set(link_itself("mapped"), "user.keep", XattrFlags::empty()), ok(0)),
        ],
    );
}

fn syncing(subject: &mut dyn Subject) {
    let range = |offset, flags| Op::SyncFileRange { slot: 0, offset, len: 4096, flags };
    expect_all(
        subject,
        vec![
            (Op::Fsync { slot: 0 }, ok(0)),
            (Op::Fdatasync { slot: 0 }, ok(0)),
            (Op::Syncfs { slot: 0 }, ok(0)),
            (Op::Fsync { slot: 9 }, err(Errno::EBADF)),
            (range(0, SyncRangeFlags::SYNC_FILE_RANGE_WRITE), ok(0)),
            (range(-1, SyncRangeFlags::SYNC_FILE_RANGE_WRITE), err(Errno::EINVAL)),
            (range(0, SyncRangeFlags::from_bits_retain(64)), err(Errno::EINVAL)),
            (Op::Sync, ok(0)),
        ],
    );
}

/// Operations as somebody else. Leaves the subject as root.
pub(crate) fn identities(subject: &mut dyn Subject) {
    assert!(subject.capabilities().contains(&Capability::Identity));
    let become_user = |uid, gid, groups: &[u32]| Op::Identity { uid, gid, groups: groups.to_vec() };
    let secret = || open(10, "id/secret", OpenFlags::empty());
    let chown = |gid| Op::Chown { target: path("id/secret"), uid: Some(1000), gid: Some(gid) };
    expect_all(
        subject,
        vec![
            (mkdir("id", 0o755), ok(0)),
            (create(10, "id/secret"), ok(0)),
            (Op::Chmod { target: path("id/secret"), mode: Mode(0o640) }, ok(0)),
            (chown(2000), ok(0)),
            (become_user(1001, 1001, &[]), ok(0)),
            (secret(), err(Errno::EACCES)),
            (mkdir("id/mine", 0o755), err(Errno::EACCES)),
            (chown(1001), err(Errno::EPERM)),
            (become_user(1001, 1001, &[7, 2000]), ok(0)),
            (secret(), ok(0)),
            (open(10, "id/secret", OpenFlags::O_WRONLY), err(Errno::EACCES)),
            (become_user(1000, 1000, &[]), ok(0)),
            (open(10, "id/secret", OpenFlags::O_WRONLY), ok(0)),
            (
                Op::Access { target: path("id"), mode: AccessMode::W_OK, effective: false },
                err(Errno::EACCES),
            ),
        ],
    );
    // Looking is done as root and leaves the identity alone.
    let tree = subject.observe().unwrap();
    assert!(tree.entries.values().all(|entry| entry.broken.is_none()), "{tree}");
    expect(subject, chown(0), err(Errno::EPERM));
    expect(subject, become_user(0, 0, &[]), ok(0));
    expect(subject, chown(0), ok(0));
}

/// Device nodes: made, seen, and opened only if no driver listens.
pub(crate) fn devices(subject: &mut dyn Subject) {
    assert!(subject.capabilities().contains(&Capability::Devices));
    expect(subject, mknod("null", 0o020666, (1, 3)), ok(0));
    expect(subject, mknod("spare", 0o060600, (60, 300)), ok(0));
    let tree = subject.observe().unwrap();
    assert_eq!(tree.entries[&FsBytes::from("null")].rdev, (1, 3));
    assert_eq!(tree.entries[&FsBytes::from("spare")].rdev, (60, 300));
    let fault = subject.apply(&open(0, "null", OpenFlags::O_RDWR)).unwrap_err();
    assert!(fault.to_string().contains("the device 1:3"), "{fault}");
    expect(subject, open(0, "null", OpenFlags::O_PATH), ok(0));
    expect(subject, open(0, "spare", OpenFlags::O_RDWR), err(Errno::ENXIO));
}
