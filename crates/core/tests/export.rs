//! Exported programs: they compile without a warning, run, and notice what is different.

mod common;
#[path = "common/golden.rs"]
mod golden;

use std::path::Path;
use std::process::{Command, Output};

use common::{any_op, any_outcome, op_variants};
use fathom_core::claim::{Field, Space, Time};
use fathom_core::export::{Assert, ExportError, c, shell};
use fathom_core::flags::{
    AccessMode, FallocateMode, MsyncFlags, OpenFlags, RenameFlags, SyncRangeFlags, Whence,
    XattrFlags,
};
use fathom_core::{
    Claim, Errno, FsBytes, Header, Mode, Op, Outcome, Pattern, Payload, Probe, Stat, Step, Target,
    TimeArg, Trace,
};
use golden::assert_golden;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

fn trace_of(steps: Vec<(Op, Outcome)>) -> Trace {
    let step = |(n, (op, outcome))| Step::new(n as u64, op, outcome);
    let steps = steps.into_iter().enumerate().map(step).collect();
    Trace { header: Header::new("dir:/tmp", "model"), steps }
}

/// Compiles as strictly as the contract says, with and without optimisation.
fn compile(program: &str, dir: &Path) {
    std::fs::write(dir.join("repro.c"), program).unwrap();
    for level in ["-O0", "-O2"] {
        let output = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", level, "-o", "repro", "repro.c"])
            .current_dir(dir)
            .output()
            .expect("a C compiler named cc");
        assert!(output.status.success(), "{level}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn run(program: &str, work: &Path) -> Output {
    let build = tempfile::tempdir().unwrap();
    compile(program, build.path());
    Command::new(build.path().join("repro")).arg(work).output().unwrap()
}

fn run_script(script: &str, work: &Path) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let check = Command::new("bash").arg("-n").arg(file.path()).output().unwrap();
    assert!(check.status.success() && check.stderr.is_empty(), "{check:?}");
    Command::new("bash").arg(file.path()).arg(work).output().unwrap()
}

/// An empty directory with the mode that programs expect.
fn workplace() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn path(name: &str) -> Target {
    Target::Path(name.into())
}

fn link(name: &str) -> Target {
    Target::Link(name.into())
}

const OPEN: Target = Target::Slot(0);
const DATA: Pattern = Pattern { seed: 7, len: 5000 };
const VALUE: Pattern = Pattern { seed: u64::MAX, len: 13 };

fn open(slot: u8, path: &str, flags: OpenFlags) -> Op {
    Op::Open { slot, path: path.into(), flags, mode: Mode(0o644) }
}

fn stat(mode: u32, nlink: u32, size: u64) -> Outcome {
    let owner = if is_root() { 0 } else { process_owner() };
    let (uid, gid, rdev) = (owner, owner, (0, 0));
    Outcome::with(Payload::Stat(Box::new(Stat { mode: Mode(mode), nlink, uid, gid, size, rdev })))
}

fn process_owner() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid()
}

fn names(names: &[&str]) -> Outcome {
    let result = Ok(names.iter().map(|name| name.len() as u64 + 1).sum());
    let names = names.iter().map(|name| FsBytes::from(*name)).collect();
    Outcome { result, payload: Payload::Names(names) }
}

/// Contents: every operation on an open file, with outcomes that are the same on every Linux.
fn contents() -> Vec<(Op, Outcome)> {
    use OpenFlags as O;
    let bytes = DATA.to_vec();
    let ok = Outcome::ok;
    vec![
        (open(0, "f", O::O_RDWR | O::O_CREAT), ok(0)),
        (Op::Write { slot: 0, data: DATA }, ok(5000)),
        (Op::Pwrite { slot: 0, offset: -1, data: DATA }, Outcome::err(Errno::EINVAL)),
        (Op::Pwrite { slot: 0, offset: 5000, data: DATA }, ok(5000)),
        (Op::Lseek { slot: 0, offset: 1, whence: Whence::Set }, ok(1)),
        (Op::Read { slot: 0, len: 10 }, Outcome::data(&bytes[1..11])),
        (Op::Read { slot: 0, len: 0 }, Outcome::data(b"")),
        (Op::Pread { slot: 0, offset: 4990, len: u64::MAX }, {
            Outcome::data(&[&bytes[4990..], &bytes[..]].concat())
        }),
        (Op::Truncate { target: OPEN, len: 5000 }, ok(0)),
        (Op::Truncate { target: path("f"), len: -1 }, Outcome::err(Errno::EINVAL)),
        (Op::Fallocate { slot: 0, mode: FallocateMode::empty(), offset: 5000, len: 1000 }, ok(0)),
        (Op::Lseek { slot: 0, offset: 0, whence: Whence::End }, ok(6000)),
        (Op::Stat { target: OPEN }, stat(0o100644, 1, 6000)),
        (Op::MmapStore { slot: 0, offset: 5990, data: VALUE, sync: MsyncFlags::MS_SYNC }, ok(10)),
        (Op::MmapLoad { slot: 0, offset: 5990, len: 100 }, Outcome::data(&VALUE.to_vec()[..10])),
        (Op::MmapLoad { slot: 0, offset: 7000, len: 100 }, Outcome::data(b"")),
        (Op::LinkSlot { slot: 0, to: "linked".into(), by_proc: true }, ok(0)),
        (Op::LinkSlot { slot: 0, to: "f".into(), by_proc: true }, Outcome::err(Errno::EEXIST)),
        (Op::LinkSlot { slot: 9, to: "x".into(), by_proc: true }, Outcome::err(Errno::ENOENT)),
        (Op::Unlink { path: "linked".into() }, ok(0)),
        (open(1, "g", O::O_WRONLY | O::O_CREAT | O::O_APPEND), ok(0)),
        (Op::Write { slot: 1, data: VALUE }, ok(13)),
        (open(1, "g", O::O_RDWR), ok(0)),
        (
            Op::CopyFileRange {
                from: 0,
                from_offset: Some(4000),
                to: 1,
                to_offset: None,
                len: 10,
                flags: 0,
            },
            ok(10),
        ),
        (Op::Pread { slot: 1, offset: 0, len: 13 }, {
            Outcome::data(&[&bytes[4000..4010], &VALUE.to_vec()[10..]].concat())
        }),
        (Op::Fsync { slot: 0 }, ok(0)),
        (Op::Fdatasync { slot: 1 }, ok(0)),
        (Op::Syncfs { slot: 0 }, ok(0)),
        (Op::Sync, ok(0)),
        (
            Op::SyncFileRange {
                slot: 0,
                offset: 0,
                len: 0,
                flags: SyncRangeFlags::SYNC_FILE_RANGE_WRITE,
            },
            ok(0),
        ),
        (Op::Close { slot: 1 }, ok(0)),
        (Op::Close { slot: 1 }, Outcome::err(Errno::EBADF)),
        (Op::Fsync { slot: 200 }, Outcome::err(Errno::EBADF)),
    ]
}

/// Names, in the tree that [`contents`] leaves.
fn names_and_links() -> Vec<(Op, Outcome)> {
    let (ok, error) = (Outcome::ok, Outcome::err);
    let odd = FsBytes::from(&b"na\"me\xff\n?\x3f/\\"[..9]);
    let entries = |all: &[(&[u8], char)]| Outcome {
        result: Ok(all.len() as u64),
        payload: Payload::Entries(all.iter().map(|(n, k)| (FsBytes::from(*n), *k)).collect()),
    };
    let listed: [(&[u8], char); 6] =
        [(b".", 'd'), (b"..", 'd'), (b"g", '-'), (b"h", '-'), (odd.as_bytes(), 'l'), (b"p", 'p')];
    let piece = |back| Op::ListPiece { slot: 2, back, len: 1 << 16 };
    vec![
        (Op::Umask { mask: Mode(0o027) }, ok(0o022)),
        (Op::Mkdir { path: "d".into(), mode: Mode(0o777) }, ok(0)),
        (Op::Stat { target: path("d") }, stat(0o040750, 2, 0)),
        (Op::Umask { mask: Mode(0o022) }, ok(0o027)),
        (Op::Mkdir { path: "d".into(), mode: Mode(0o777) }, error(Errno::EEXIST)),
        (Op::Rename { from: "g".into(), to: "d/g".into(), flags: RenameFlags::empty() }, ok(0)),
        (
            Op::Rename { from: "f".into(), to: "d/g".into(), flags: RenameFlags::RENAME_NOREPLACE },
            error(Errno::EEXIST),
        ),
        (Op::Link { from: "f".into(), to: "d/h".into(), follow: false }, ok(0)),
        (Op::Symlink { target: "d/h".into(), path: "s".into() }, ok(0)),
        (Op::Readlink { path: "s".into(), len: 2 }, Outcome::data(b"d/")),
        (Op::Link { from: "s".into(), to: "i".into(), follow: true }, ok(0)),
        (Op::Stat { target: path("i") }, stat(0o100644, 3, 6000)),
        (Op::Stat { target: link("s") }, stat(0o120777, 1, 3)),
        (Op::Mknod { path: "d/p".into(), mode: Mode(0o010644), dev: (0, 0) }, ok(0)),
        (Op::Symlink { target: "x".into(), path: FsBytes::from("d").join(odd.as_bytes()) }, ok(0)),
        (open(2, "d", OpenFlags::O_DIRECTORY), ok(0)),
        (Op::Getdents { slot: 2 }, entries(&listed)),
        (piece(0), entries(&listed)),
        (piece(0), entries(&[])),
        (piece(1), entries(&[])),
        (piece(2), entries(&listed)),
        (Op::Getdents { slot: 0 }, error(Errno::ENOTDIR)),
        (Op::Unlink { path: "d".into() }, error(Errno::EISDIR)),
        (Op::Unlink { path: "d/h".into() }, ok(0)),
        (Op::Stat { target: path("s") }, error(Errno::ENOENT)),
        (Op::Rmdir { path: "d".into() }, error(Errno::ENOTEMPTY)),
        (Op::Mkdir { path: "e".into(), mode: Mode(0o700) }, ok(0)),
        (Op::Rmdir { path: "e".into() }, ok(0)),
    ]
}

/// Attributes, in the tree that [`names_and_links`] leaves.
fn attributes() -> Vec<(Op, Outcome)> {
    let (ok, error) = (Outcome::ok, Outcome::err);
    vec![
        (Op::Chmod { target: path("f"), mode: Mode(0o6600) }, ok(0)),
        (Op::Chmod { target: OPEN, mode: Mode(0o604) }, ok(0)),
        (Op::Chmod { target: link("s"), mode: Mode(0o604) }, error(Errno::EOPNOTSUPP)),
        (Op::Chown { target: path("f"), uid: None, gid: None }, ok(0)),
        (
            Op::Utimens {
                target: path("f"),
                atime: TimeArg::Now,
                mtime: TimeArg::At { sec: 5, nsec: 999_999_999 },
            },
            ok(0),
        ),
        (
            Op::Utimens {
                target: OPEN,
                atime: TimeArg::Omit,
                mtime: TimeArg::At { sec: i64::MIN, nsec: 2_000_000_000 },
            },
            error(Errno::EINVAL),
        ),
        (
            Op::Access {
                target: path("f"),
                mode: AccessMode::R_OK | AccessMode::W_OK,
                effective: true,
            },
            ok(0),
        ),
        (
            Op::Access { target: OPEN, mode: AccessMode::X_OK, effective: false },
            error(Errno::EACCES),
        ),
        (Op::Access { target: link("s"), mode: AccessMode::empty(), effective: false }, ok(0)),
        (Op::Statfs { target: path("zz") }, error(Errno::ENOENT)),
    ]
}

/// What only root may do, and what needs a file system with `user.` attributes.
fn as_root() -> Vec<(Op, Outcome)> {
    let ok = Outcome::ok;
    let value = VALUE.to_vec();
    let user = |name: &str| FsBytes::from(format!("user.{name}").as_str());
    let set =
        |target, name: &str, flags| Op::Setxattr { target, name: user(name), value: VALUE, flags };
    vec![
        (set(path("f"), "b", XattrFlags::empty()), ok(0)),
        (set(OPEN, "a", XattrFlags::empty()), ok(0)),
        (set(path("f"), "a", XattrFlags::XATTR_CREATE), Outcome::err(Errno::EEXIST)),
        (set(link("s"), "a", XattrFlags::empty()), Outcome::err(Errno::EPERM)),
        (Op::Getxattr { target: path("f"), name: user("a"), len: 0 }, ok(13)),
        (Op::Getxattr { target: OPEN, name: user("a"), len: 100 }, Outcome::data(&value)),
        (Op::Getxattr { target: OPEN, name: user("a"), len: 5 }, Outcome::err(Errno::ERANGE)),
        (Op::Listxattr { target: path("f"), len: 0 }, ok(14)),
        (Op::Listxattr { target: OPEN, len: 1 << 40 }, names(&["user.a", "user.b"])),
        (Op::Removexattr { target: path("f"), name: user("b") }, ok(0)),
        (Op::Removexattr { target: path("f"), name: user("b") }, Outcome::err(Errno::ENODATA)),
        (Op::Chown { target: link("s"), uid: Some(1000), gid: Some(1000) }, ok(0)),
        (Op::Mknod { path: "c".into(), mode: Mode(0o020600), dev: (240, 77) }, ok(0)),
        (Op::Chmod { target: path("f"), mode: Mode(0o600) }, ok(0)),
        (Op::Identity { uid: 1000, gid: 1000, groups: vec![4, 5] }, ok(0)),
        (open(3, "f", OpenFlags::empty()), Outcome::err(Errno::EACCES)),
        (Op::Mkdir { path: "mine".into(), mode: Mode(0o700) }, Outcome::err(Errno::EACCES)),
        (Op::Identity { uid: 0, gid: 0, groups: vec![] }, ok(0)),
        (open(3, "f", OpenFlags::O_SYNC | OpenFlags::O_NOATIME), ok(0)),
    ]
}

/// Compares what the program said with what it should have said.
fn assert_all_alike(output: &Output, steps: usize) {
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.ends_with(&format!("0 of {steps} steps are DIFFERENT\n")), "{said}");
}

#[test]
fn the_c_program_repeats_every_operation() {
    let mut steps = contents();
    steps.extend(names_and_links());
    steps.extend(attributes());
    if is_root() {
        steps.extend(as_root());
    } else {
        println!("SKIP part of the_c_program_repeats_every_operation: identities need root");
    }
    let count = steps.len();
    let program = c::program(&trace_of(steps), Assert::Recorded).unwrap();
    let places = [workplace(), workplace_in_memory()];
    for place in &places {
        assert_all_alike(&run(&program, place.path()), count);
    }
}

/// On Linux /dev/shm is a tmpfs.
fn workplace_in_memory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn a_different_outcome_is_shown_and_is_exit_code_1() {
    let mkdir = || Op::Mkdir { path: "d".into(), mode: Mode(0o755) };
    let mut trace = trace_of(vec![
        (mkdir(), Outcome::ok(0)),
        (mkdir(), Outcome::ok(0)),
        (Op::Stat { target: path("d") }, stat(0o040700, 2, 0)),
    ]);
    trace.steps[1].expected = Some(Outcome::err(Errno::EEXIST));
    let program = c::program(&trace, Assert::Recorded).unwrap();
    assert!(program.contains(
        "    // The subject answered:   0.\n    // The reference expected: EEXIST.\n    begin(1,"
    ));
    let place = workplace();
    let output = run(&program, place.path());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("1 mkdir(\"d\", 0755) = EEXIST\n  DIFFERENT: expected 0\n"), "{said}");
    assert!(said.contains("  DIFFERENT: expected 0 mode 040700 nlink 2"), "{said}");
    assert!(said.ends_with("2 of 3 steps are DIFFERENT\n"), "{said}");

    // Asserting what the reference says, the second step is right on this file system.
    trace.steps.pop();
    let program = c::program(&trace, Assert::Expected).unwrap();
    assert_all_alike(&run(&program, workplace().path()), 2);
}

#[test]
fn failures_of_the_program_itself_are_exit_code_2() {
    let program =
        c::program(&trace_of(vec![(Op::Remount, Outcome::ok(0))]), Assert::Recorded).unwrap();
    let output = run(&program, workplace().path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("set REMOUNT to a command"), "{output:?}");
    let program =
        c::program(&trace_of(vec![(Op::Sync, Outcome::ok(0))]), Assert::Recorded).unwrap();
    let output = run(&program, Path::new("/nonexistent"));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/nonexistent: No such file"), "{output:?}");
}

#[test]
fn a_remount_runs_the_given_command_with_all_files_closed() {
    let trace = trace_of(vec![
        (open(0, "f", OpenFlags::O_RDWR | OpenFlags::O_CREAT), Outcome::ok(0)),
        (Op::Remount, Outcome::ok(0)),
        (Op::Fsync { slot: 0 }, Outcome::err(Errno::EBADF)),
        (Op::Stat { target: path("f") }, stat(0o100644, 1, 0)),
    ]);
    let (build, place) = (tempfile::tempdir().unwrap(), workplace());
    compile(&c::program(&trace, Assert::Recorded).unwrap(), build.path());
    let mark = build.path().join("mark");
    let output = Command::new(build.path().join("repro"))
        .arg(place.path())
        .env("REMOUNT", format!("pwd > {}", mark.display()))
        .output()
        .unwrap();
    assert_all_alike(&output, 4);
    assert_eq!(std::fs::read_to_string(mark).unwrap(), "/\n");
}

#[test]
fn every_operation_alone_compiles_without_a_warning() {
    // Alone, so that a helper that is part of the program without need is noticed.
    let mut runner = TestRunner::deterministic();
    let build = tempfile::tempdir().unwrap();
    for variant in op_variants() {
        let op = variant.new_tree(&mut runner).unwrap().current();
        let trace = trace_of(vec![(op, Outcome::ok(0))]);
        let file = build.path().join("repro.c");
        std::fs::write(&file, c::program(&trace, Assert::Recorded).unwrap()).unwrap();
        let output = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{:?}: {}", trace.steps[0].op, text(&output.stderr));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]
    #[test]
    fn any_trace_compiles_without_a_warning(
        steps in prop::collection::vec((any_op(), any_outcome(), any_outcome()), 150)
    ) {
        let mut trace = trace_of(steps.iter().map(|(op, o, _)| (op.clone(), o.clone())).collect());
        for (step, (_, _, expected)) in trace.steps.iter_mut().zip(steps) {
            step.expected = Some(expected);
        }
        let build = tempfile::tempdir().unwrap();
        compile(&c::program(&trace, Assert::Expected).unwrap(), build.path());
        let script = shell::script(&trace, Assert::Recorded).unwrap();
        std::fs::write(build.path().join("repro.sh"), script).unwrap();
        let check = Command::new("bash").arg("-n").arg(build.path().join("repro.sh")).output().unwrap();
        prop_assert!(check.status.success(), "{}", text(&check.stderr));
    }
}

#[test]
fn a_name_that_no_program_can_say_is_refused() {
    let op = Op::Unlink { path: FsBytes::from(&b"a\0b"[..]) };
    let trace = trace_of(vec![(Op::Sync, Outcome::ok(0)), (op, Outcome::err(Errno::ENOENT))]);
    let error = ExportError::Nul { step: 1, op: "unlink" };
    assert_eq!(c::program(&trace, Assert::Recorded), Err(error.clone()));
    assert_eq!(shell::script(&trace, Assert::Recorded), Err(error));
}

#[test]
fn the_script_repeats_every_operation() {
    let mut steps = contents();
    steps.extend(names_and_links());
    steps.extend(attributes());
    if is_root() && Command::new("setfattr").arg("--version").output().is_ok() {
        steps.extend(as_root());
    } else {
        println!("SKIP part of the_script_repeats_every_operation: needs root and setfattr");
    }
    let trace = trace_of(steps);
    let script = shell::script(&trace, Assert::Recorded).unwrap();
    let output = run_script(&script, workplace().path());
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let told = said.lines().filter(|line| line.contains(" = ")).count();
    assert_eq!(told, trace.steps.len(), "{said}");
}

#[test]
fn the_script_writes_the_bytes_of_the_pattern() {
    use OpenFlags as O;
    let steps = vec![
        (open(0, "f", O::O_RDWR | O::O_CREAT), Outcome::ok(0)),
        (Op::Write { slot: 0, data: DATA }, Outcome::ok(5000)),
        (Op::Pwrite { slot: 0, offset: 5003, data: VALUE }, Outcome::ok(13)),
        (Op::Truncate { target: OPEN, len: 5010 }, Outcome::ok(0)),
        (Op::Write { slot: 0, data: Pattern { seed: 1, len: 2 } }, Outcome::ok(2)),
        (Op::Getdents { slot: 0 }, Outcome::err(Errno::ENOTDIR)),
        (Op::Fsync { slot: 0 }, Outcome::ok(0)),
        (open(0, "missing", O::O_RDWR), Outcome::err(Errno::ENOENT)),
        (open(0, "f", O::O_WRONLY | O::O_CREAT | O::O_APPEND), Outcome::ok(0)),
        (Op::Write { slot: 0, data: Pattern { seed: 2, len: 1 } }, Outcome::ok(1)),
    ];
    let place = workplace();
    let script = shell::script(&trace_of(steps), Assert::Recorded).unwrap();
    let output = run_script(&script, place.path());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let mut expected = DATA.to_vec();
    expected.extend(Pattern { seed: 1, len: 2 }.to_vec());
    expected.push(0);
    expected.extend(&VALUE.to_vec()[..7]);
    expected.extend(Pattern { seed: 2, len: 1 }.to_vec());
    assert_eq!(std::fs::read(place.path().join("f")).unwrap(), expected);
}

#[test]
fn the_script_says_what_is_different() {
    let trace = trace_of(vec![
        (Op::Rmdir { path: "missing".into() }, Outcome::ok(0)),
        (Op::Lseek { slot: 0, offset: 0, whence: Whence::Cur }, Outcome::err(Errno::EINVAL)),
    ]);
    let script = shell::script(&trace, Assert::Recorded).unwrap();
    let output = run_script(&script, workplace().path());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("0 rmdir(\"missing\") = failed\n  DIFFERENT: expected ok rmdir: failed"),
        "{said}"
    );
    let lseek = "1 lseek(#0, 0, SEEK_CUR) = EBADF\n  DIFFERENT: expected EINVAL\n";
    assert!(said.contains(lseek), "{said}");
}

/// A run after which every kind of claim can be made.
fn with_claims(claims: Vec<Claim>) -> Trace {
    use OpenFlags as O;
    let ok = Outcome::ok;
    let mut trace = trace_of(vec![
        (Op::Mkdir { path: "d".into(), mode: Mode(0o755) }, ok(0)),
        (open(0, "d/f", O::O_RDWR | O::O_CREAT), ok(0)),
        (Op::Pwrite { slot: 0, offset: 3, data: Pattern { seed: 1, len: 2 } }, ok(2)),
        (Op::Link { from: "d/f".into(), to: "g".into(), follow: false }, ok(0)),
        (Op::Symlink { target: "d/f".into(), path: "l".into() }, ok(0)),
        (
            Op::Utimens {
                target: path("d/f"),
                atime: TimeArg::Omit,
                mtime: TimeArg::At { sec: 5, nsec: 7 },
            },
            ok(0),
        ),
    ]);
    trace.header.claims = claims;
    trace
}

/// Probes of [`with_claims`], with what a correct file system shows.
fn right_claims() -> Vec<Claim> {
    let attribute = |path: &str, field| Probe::Attribute { path: path.into(), field };
    let probes = [
        (Probe::Entry { path: "d/f".into() }, "there, listed 1 times"),
        (Probe::Entry { path: "d/x".into() }, "missing, listed 0 times"),
        (attribute("d/f", Field::Kind), "-"),
        (attribute("d", Field::Mode), "0755"),
        (attribute("g", Field::Nlink), "2"),
        (attribute("g", Field::Size), "5"),
        (attribute("g", Field::Rdev), "0:0"),
        (attribute("l", Field::Target), "d/f"),
        (Probe::Names { path: "d".into() }, "f"),
        (Probe::Content { path: "d/f".into(), offset: 2, len: 16 }, "00 e5 05"),
        (Probe::Content { path: "d/f".into(), offset: 5, len: 16 }, "nothing"),
        (Probe::Xattr { path: "d/f".into(), name: "user.a".into(), offset: 0, len: 16 }, "ENODATA"),
        (Probe::SameFile { path: "d/f".into(), other: "g".into() }, "yes"),
        (Probe::Time { path: "g".into(), time: Time::Mtime }, "5.000000007"),
        (
            Probe::Order {
                earlier: "d/f".into(),
                earlier_time: Time::Mtime,
                later: "l".into(),
                later_time: Time::Mtime,
            },
            "yes",
        ),
        (Probe::Space { field: Space::NameBytesMax, slack: 0 }, "255"),
        (Probe::Space { field: Space::Consistent, slack: 0 }, "yes"),
    ];
    let claim = |(probe, expected): (Probe, &str)| Claim {
        probe,
        expected: expected.to_owned(),
        found: "something else".to_owned(),
    };
    probes.map(claim).to_vec()
}

fn both(trace: &Trace, place: impl Fn() -> tempfile::TempDir) -> [Output; 2] {
    let program = c::program(trace, Assert::Expected).unwrap();
    let script = shell::script(trace, Assert::Expected).unwrap();
    [run(&program, place().path()), run_script(&script, place().path())]
}

#[test]
fn claims_that_are_true_are_exit_code_0() {
    let claims = right_claims();
    for output in both(&with_claims(claims.clone()), workplace) {
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
        let all = format!("0 of {} claims are WRONG: the bug is not there\n", claims.len());
        assert!(said.ends_with(&all), "{said}");
    }
}

#[test]
fn a_claim_that_is_false_is_told_and_exit_code_1() {
    for mut claim in right_claims() {
        let expected = match claim.probe {
            Probe::Space { .. } => "7",
            _ => "other",
        };
        let right = std::mem::replace(&mut claim.expected, expected.to_owned());
        let sentence = format!("{}: expected {expected}, found {right}: WRONG\n", claim.probe);
        for output in both(&with_claims(vec![claim.clone()]), workplace) {
            let said = text(&output.stdout);
            assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stderr));
            assert!(said.contains(&sentence), "{said}");
            assert!(said.ends_with("1 of 1 claims are WRONG: the bug is there\n"), "{said}");
        }
    }
}

#[test]
fn another_way_to_the_end_is_exit_code_2() {
    let mut trace = with_claims(right_claims());
    trace.steps[0].outcome = Outcome::err(Errno::EEXIST);
    for output in both(&trace, workplace) {
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{said}{}", text(&output.stderr));
        assert!(said.ends_with("another one: nothing is proved.\n"), "{said}");
    }
}

#[test]
fn an_answer_can_be_the_claim() {
    let mkdir = || Op::Mkdir { path: "d".into(), mode: Mode(0o755) };
    let mut trace = trace_of(vec![(mkdir(), Outcome::ok(0)), (mkdir(), Outcome::ok(0))]);
    let (expected, found) = ("EEXIST".to_owned(), "0".to_owned());
    trace.header.claims = vec![Claim { probe: Probe::Answer, expected, found }];
    for (right, code) in [(Errno::EEXIST, 0), (Errno::ENOTEMPTY, 1)] {
        trace.steps[1].expected = Some(Outcome::err(right));
        for output in both(&trace, workplace) {
            let said = text(&output.stdout);
            assert_eq!(output.status.code(), Some(code), "{said}{}", text(&output.stderr));
            assert!(code == 0 || said.contains("expected ENOTEMPTY"), "{said}");
        }
    }
}

#[test]
fn the_endings_are_short_and_readable() {
    let trace = with_claims(right_claims());
    let program = c::program(&trace, Assert::Expected).unwrap();
    let start = program.find("static void check_the_end").unwrap();
    assert_golden("ending.c", &program[start..]);
    let script = shell::script(&trace, Assert::Expected).unwrap();
    let start = script.find("# ---- The end.").unwrap();
    assert_golden("ending.sh", &script[start..]);
    let head: String = script
        .lines()
        .take_while(|line| line.starts_with('#'))
        .fold(String::new(), |text, line| text + line + "\n");
    assert_golden("head.sh", &head);
}
