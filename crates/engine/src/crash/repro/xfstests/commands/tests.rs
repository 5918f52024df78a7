//! Every operation as a command, by example.

use fathom_core::flags::XattrFlags;
use fathom_generate::known;

use super::*;

const NEW: OpenFlags = OpenFlags::O_CREAT.union(OpenFlags::O_RDWR);

fn open(slot: Slot, path: &str, flags: OpenFlags) -> Op {
    Op::Open { slot, path: path.into(), flags, mode: Mode(0o644) }
}

fn data(seed: u64, len: u64) -> Pattern {
    Pattern { seed, len }
}

fn expressed(ops: &[Op]) -> Expressed<Commands> {
    Commands::of(&ops.iter().collect::<Vec<_>>())
}

/// A file `f` in slot 1, opened with more flags, a directory `d`; then the operations.
fn lines(flags: OpenFlags, ops: &[Op]) -> Vec<String> {
    let given =
        [Op::Mkdir { path: "d".into(), mode: Mode(0o755) }, open(0, "f", NEW), open(1, "f", flags)];
    let commands = expressed(&[&given, ops].concat()).unwrap_or_else(|why| panic!("{why}"));
    let lines: Vec<String> = commands.lines.lines().map(str::to_owned).collect();
    let first = ["run mkdir -m 755 d", "run $XFS_IO_PROG -f -m 0644 -c quit f"];
    assert_eq!(lines[..2], first);
    lines[2..].to_vec()
}

fn target(path: &str) -> Target {
    Target::Path(path.into())
}

/// Operations on names and attributes, and what they are in the shell.
fn on_names() -> Vec<(Op, &'static str)> {
    let rename =
        |from: &str, to: &str, flags| Op::Rename { from: from.into(), to: to.into(), flags };
    let none = XattrFlags::empty();
    let name = || fathom_core::FsBytes::from("user.a");
    let value = data(1, 2);
    let chown = |uid, gid| Op::Chown { target: Target::Link("f".into()), uid, gid };
    let at = TimeArg::At { sec: 5, nsec: 7 };
    vec![
        (rename("f", "g", RenameFlags::empty()), "run mv -fT f g"),
        (rename("f", "d", RenameFlags::RENAME_EXCHANGE), "run $here/src/renameat2 -x f d"),
        (rename("f", "g", RenameFlags::RENAME_NOREPLACE), "run $here/src/renameat2 -n f g"),
        (rename("f", "g", RenameFlags::RENAME_WHITEOUT), "run $here/src/renameat2 -w f g"),
        (Op::Rmdir { path: "d".into() }, "run rmdir d"),
        (Op::Link { from: "f".into(), to: "d/g".into(), follow: false }, "run ln -P -T f d/g"),
        (Op::LinkSlot { slot: 1, to: "g".into(), by_proc: true }, "run ln -P -T f g"),
        (Op::Symlink { target: "a b".into(), path: "-l".into() }, "run ln -sT $'a\\x20b' ./-l"),
        (
            Op::Mknod { path: "p".into(), mode: Mode(Mode::S_IFIFO | 0o666), dev: (0, 0) },
            "run mknod -m 644 p p",
        ),
        (
            Op::Mknod { path: "b".into(), mode: Mode(Mode::S_IFBLK | 0o600), dev: (7, 3) },
            "run mknod -m 600 b b 7 3",
        ),
        (Op::Chmod { target: target("f"), mode: Mode(0o4755) }, "run chmod 4755 f"),
        (chown(Some(5), Some(6)), "run chown -h 5:6 f"),
        (chown(None, Some(6)), "run chown -h :6 f"),
        (
            Op::Utimens { target: target("f"), atime: TimeArg::Now, mtime: TimeArg::Now },
            "run touch -c -am f",
        ),
        (
            Op::Utimens { target: target("f"), atime: TimeArg::Omit, mtime: at },
            "run touch -c -m -d @5.000000007 f",
        ),
        (
            Op::Setxattr { target: Target::Slot(1), name: name(), value, flags: none },
            "run setfattr -n user.a -v @VALUE@ f",
        ),
    ]
}

#[test]
fn every_operation_on_names_has_its_command() {
    let value: String = data(1, 2).to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
    for (op, line) in on_names() {
        let line = line.replace("@VALUE@", &format!("0x{value}"));
        assert_eq!(lines(OpenFlags::O_RDWR, std::slice::from_ref(&op)), [line], "{op}");
    }
    let gone = [
        Op::Setxattr {
            target: target("f"),
            name: "user.a".into(),
            value: data(1, 1),
            flags: XattrFlags::empty(),
        },
        Op::Removexattr { target: target("f"), name: "user.a".into() },
    ];
    assert_eq!(lines(OpenFlags::O_RDWR, &gone)[1], "run setfattr -x user.a f");
}

#[test]
fn every_operation_on_data_has_its_command() {
    let write = Op::Pwrite { slot: 1, offset: 4096, data: data(9, 8192) };
    let io = |options: &str, command: &str| format!("run $XFS_IO_PROG{options} -c \"{command}\" f");
    let plain = "pwrite -q -b 8192 -S 0x61 4096 8192";
    let flags = [
        (OpenFlags::O_RDWR, io("", plain)),
        (OpenFlags::O_RDWR.union(OpenFlags::O_SYNC), io(" -s", plain)),
        (
            OpenFlags::O_RDWR.union(OpenFlags::O_DSYNC),
            io("", "pwrite -q -D -b 8192 -S 0x61 4096 8192"),
        ),
        (OpenFlags::O_RDWR.union(OpenFlags::O_DIRECT), io(" -d", plain)),
        (OpenFlags::O_RDWR.union(OpenFlags::O_APPEND), io(" -a", plain)),
    ];
    for (flags, line) in flags {
        assert_eq!(lines(flags, std::slice::from_ref(&write)), [line], "{flags:?}");
    }
    let truncating = lines(OpenFlags::O_RDWR.union(OpenFlags::O_TRUNC), &[]);
    assert_eq!(truncating, ["run $XFS_IO_PROG -t -c quit f"]);
    let allocate = |mode| Op::Fallocate { slot: 1, mode, offset: 0, len: 4096 };
    let punch = FallocateMode::FALLOC_FL_PUNCH_HOLE.union(FallocateMode::FALLOC_FL_KEEP_SIZE);
    let store =
        Op::MmapStore { slot: 1, offset: 4096, data: data(9, 100), sync: MsyncFlags::MS_SYNC };
    let copy = Op::CopyFileRange {
        from: 1,
        from_offset: Some(4096),
        to: 0,
        to_offset: Some(0),
        len: 4096,
        flags: 0,
    };
    let table = [
        (Op::Write { slot: 1, data: data(8, 3) }, io("", "pwrite -q -b 3 -S 0x62 0 3")),
        (Op::Fsync { slot: 1 }, io("", "fsync")),
        (Op::Fdatasync { slot: 1 }, io("", "fdatasync")),
        (Op::Syncfs { slot: 1 }, io("", "syncfs")),
        (Op::Sync, "run sync".to_owned()),
        (Op::Truncate { target: Target::Slot(1), len: 5 }, io("", "truncate 5")),
        (Op::Truncate { target: target("f"), len: 6 }, io("", "truncate 6")),
        (allocate(FallocateMode::FALLOC_FL_KEEP_SIZE), io("", "falloc -k 0 4096")),
        (allocate(punch), io("", "fpunch 0 4096")),
        (allocate(FallocateMode::FALLOC_FL_ZERO_RANGE), io("", "fzero 0 4096")),
        (allocate(FallocateMode::FALLOC_FL_COLLAPSE_RANGE), io("", "fcollapse 0 4096")),
        (allocate(FallocateMode::FALLOC_FL_INSERT_RANGE), io("", "finsert 0 4096")),
        (
            Op::SyncFileRange {
                slot: 1,
                offset: 0,
                len: 4096,
                flags: SyncRangeFlags::SYNC_FILE_RANGE_WRITE,
            },
            io("", "sync_range -w 0 4096"),
        ),
        (
            store,
            "run $XFS_IO_PROG -c \"mmap -rw 0 4196\" -c \"mwrite -S 0x61 4096 100\" \
             -c \"msync -s 0 4196\" f"
                .to_owned(),
        ),
        (copy, io("", "copy_range -s 4096 -d 0 -l 4096 f")),
        (Op::Wait { seconds: 3 }, "run sleep 3".to_owned()),
    ];
    for (op, line) in table {
        assert_eq!(lines(OpenFlags::O_RDWR, &[write.clone(), op.clone()])[1..], [line], "{op}");
    }
}

#[test]
fn what_no_command_does_is_said() {
    let refused = |ops: &[Op], word: &str| {
        let why = expressed(ops).err().unwrap_or_else(|| panic!("{ops:?} has commands"));
        assert!(why.contains(word), "{why}");
    };
    refused(&[open(0, ".", OpenFlags::O_TMPFILE.union(OpenFlags::O_RDWR))], "without a name");
    refused(&[Op::Umask { mask: Mode(0) }], "one umask");
    refused(&[Op::Mkdir { path: "d".into(), mode: Mode(0o1777) }], "mkdir(1)");
    let socket = Mode(Mode::S_IFSOCK | 0o644);
    refused(&[Op::Mknod { path: "s".into(), mode: socket, dev: (0, 0) }], "mknod(1)");
    let orphan = [open(0, "f", NEW), Op::Unlink { path: "f".into() }, Op::Fsync { slot: 0 }];
    refused(&orphan, "fsync");
    // What fails does nothing.
    assert_eq!(expressed(&[Op::Rmdir { path: "none".into() }]).unwrap().lines, "");
}

#[test]
fn open_files_follow_their_names() {
    let moved = [
        Op::Rename { from: "d".into(), to: "e".into(), flags: RenameFlags::empty() },
        Op::Rename { from: "f".into(), to: "e/f".into(), flags: RenameFlags::empty() },
        Op::Fsync { slot: 1 },
    ];
    assert_eq!(lines(OpenFlags::O_RDWR, &moved)[2], "run $XFS_IO_PROG -c \"fsync\" e/f");
    let two = [open(2, "g", NEW), open(3, "h", NEW)];
    let swap = Op::Rename { from: "g".into(), to: "h".into(), flags: RenameFlags::RENAME_EXCHANGE };
    let swapped = [&two[..], &[swap, Op::Fsync { slot: 2 }]].concat();
    assert_eq!(lines(OpenFlags::O_RDWR, &swapped)[3], "run $XFS_IO_PROG -c \"fsync\" h");
}

/// What is unlinked and open when the power fails is an orphan: the shell keeps it until nothing reaches
/// the disk any more.
#[test]
fn orphans_are_kept_until_the_power_fails() {
    let orphan = [open(0, "f", NEW), Op::Sync, Op::Unlink { path: "f".into() }, Op::Sync];
    let commands = expressed(&orphan).unwrap();
    assert!(commands.lines.contains("exec {held1}< f\nrun unlink f\n"), "{}", commands.lines);
    let released = "_load_flakey_table $FLAKEY_DROP_WRITES\nexec {held1}<&-\n";
    assert_eq!(commands.released(), released);
    let closed = [&orphan[..], &[Op::Close { slot: 0 }]].concat();
    let commands = expressed(&closed).unwrap();
    assert!(commands.lines.ends_with("exec {held1}<&-\n") && commands.released().is_empty());
}

#[test]
fn known_workloads_have_commands() {
    let expressed = |known: &known::KnownWorkload| {
        Commands::of(&known.ops.iter().collect::<Vec<_>>()).map(|commands| commands.lines)
    };
    let all = known::all();
    let refused: Vec<(&str, String)> =
        all.iter().filter_map(|known| Some((known.name, expressed(known).err()?))).collect();
    assert!(refused.len() <= 2, "{refused:?}");
    let known = all.iter().find(|known| known.name == "generic-059").unwrap();
    assert!(expressed(known).unwrap().contains("$XFS_IO_PROG -c \"fpunch 8000 4096\" foo"));
}
