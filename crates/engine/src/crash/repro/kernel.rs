//! Reproducers of findings on kernel file systems, for a developer's machine: a script that mounts the
//! recorded disk, and a case for xfstests that cuts the power with dm-flakey.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fathom_core::flags::{FallocateMode, OpenFlags};
use fathom_core::{FsPath, Op, Slot, Target};

use super::{Case, comment};
use crate::crash::judge::Class;

/// The name of the script that judges the recorded disk.
pub(in crate::crash) const SCRIPT: &str = "repro.sh";

/// The script that judges the recorded disk.
const JUDGE: &str = include_str!("judge.sh.in");

/// A test for xfstests.
const FLAKEY: &str = r#"#! /bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The power fails after a persistence operation; what it made durable must be there.
#
@STORY@
. ./common/preamble
_begin_fstest auto quick log

_cleanup()
{
	_cleanup_flakey
	cd /
	rm -r -f $tmp.*
}

. ./common/filter
. ./common/dmflakey

_require_scratch
_require_dm_target flakey
_require_metadata_journaling $SCRATCH_DEV

_scratch_mkfs >> $seqres.full 2>&1
_init_flakey
_mount_flakey
cd $SCRATCH_MNT
@OPS@cd /

echo "before the power failure:"
(cd $SCRATCH_MNT && find . ! -name lost+found -type f -exec md5sum {} + | sort -k2)
_flakey_drop_and_remount
echo "after it:"
(cd $SCRATCH_MNT && find . ! -name lost+found -type f -exec md5sum {} + | sort -k2)

_unmount_flakey
status=0
exit
"#;

/// Files for a finding on the file system of that name.
pub(super) fn files(case: &Case<'_>) -> Vec<(&'static str, String)> {
    let Some(kernel) = Kernel::of(&case.record.subject) else { return Vec::new() };
    let story = comment("# ", &case.record.story);
    let class = case.record.cause.class;
    let checker = if class == Class::Rejected { kernel.check } else { "" };
    let (shown, missing) = differences(case);
    let judge = JUDGE
        .replace("@STORY@", &story)
        .replace("@TYPE@", kernel.fs_type)
        .replace("@OPTIONS@", &kernel.options)
        .replace("@MOUNTABLE@", if class == Class::Unmountable { "0" } else { "" })
        .replace("@CHECK@", checker)
        .replace("@SHOWN@", &python_list(&shown))
        .replace("@MISSING@", &python_list(&missing));
    let flakey = FLAKEY.replace("@STORY@", &story).replace("@OPS@", &commands(case.ops));
    vec![(SCRIPT, judge), ("xfstests.sh", flakey)]
}

/// What tells the state that was found from the legal one that it resembles most: lines that are
/// there, and lines that are not.
fn differences(case: &Case<'_>) -> (Vec<String>, Vec<String>) {
    let Some(found) = case.found else { return (Vec::new(), Vec::new()) };
    let without = |lines: &[String], others: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !others.contains(line)).cloned().collect()
    };
    let compare = |legal: &Vec<String>| (without(found, legal), without(legal, found));
    let nearest = case.legal.iter().map(compare);
    nearest.min_by_key(|(shown, missing)| shown.len() + missing.len()).unwrap_or_default()
}

fn python_list(lines: &[String]) -> String {
    let quoted: Vec<String> = lines.iter().map(|line| format!("{line:?}")).collect();
    format!("[{}]", quoted.join(", "))
}

/// What a script must know of a file system.
struct Kernel {
    fs_type: &'static str,
    options: String,
    check: &'static str,
}

impl Kernel {
    /// The file system of a subject, as it was typed; `None` for one that is not the kernel's.
    fn of(subject: &str) -> Option<Kernel> {
        let name = subject.split([' ', '+']).next()?;
        let (fs_type, check) = match name {
            "ext2" => ("ext2", "e2fsck -fn \"$work/disk\""),
            "ext3" => ("ext3", "e2fsck -fn \"$work/disk\""),
            "ext4" | "ext4-1k" => ("ext4", "e2fsck -fn \"$work/disk\""),
            "xfs" => ("xfs", "xfs_repair -n -f -o force_geometry \"$work/disk\""),
            "btrfs" => ("btrfs", "btrfs check --readonly \"$work/disk\""),
            "f2fs" => ("f2fs", "fsck.f2fs --dry-run \"$work/disk\""),
            "jfs" => ("jfs", "fsck.jfs -n \"$work/disk\""),
            "nilfs2" => ("nilfs2", ""),
            _ => return None,
        };
        let asked = subject.split_once(" --mount-opts=").map(|(_, rest)| rest);
        let asked = asked.and_then(|rest| rest.split(" --").next()).unwrap_or_default();
        let options = if asked.is_empty() { String::new() } else { format!(",{asked}") };
        Some(Kernel { fs_type, options, check })
    }
}

/// The operations as commands, one per line.
fn commands(ops: &[&Op]) -> String {
    let mut open: BTreeMap<Slot, FsPath> = BTreeMap::new();
    let mut text = String::new();
    for op in ops {
        // Writing to a string does not fail.
        let _ = match command(op, &mut open) {
            Some(command) if command.is_empty() => continue,
            Some(command) => writeln!(text, "{command}"),
            None => writeln!(text, "# {op}: no tool does this"),
        };
    }
    text
}

fn quoted(path: &FsPath) -> String {
    format!("'{}'", path.to_string().replace('\'', "'\\''"))
}

/// The command of an operation, empty if nothing has to be done; `None` if there is none.
fn command(op: &Op, open: &mut BTreeMap<Slot, FsPath>) -> Option<String> {
    let xfs_io =
        |path: &FsPath, what: String| format!("$XFS_IO_PROG -c \"{what}\" {}", quoted(path));
    let of = |slot: &Slot, open: &BTreeMap<Slot, FsPath>| open.get(slot).cloned();
    Some(match op {
        Op::Open { slot, path, flags, .. } => {
            open.insert(*slot, path.clone());
            match flags.contains(OpenFlags::O_CREAT) {
                true => format!("touch {}", quoted(path)),
                false => String::new(),
            }
        }
        Op::Close { slot } => {
            open.remove(slot);
            String::new()
        }
        Op::Pwrite { slot, offset, data } => {
            let byte = data.seed as u8 | 1;
            xfs_io(&of(slot, open)?, format!("pwrite -S {byte} {offset} {}", data.len))
        }
        Op::MmapStore { slot, offset, data, .. } => {
            let (path, end) = (of(slot, open)?, *offset + data.len as i64);
            let byte = data.seed as u8 | 1;
            format!(
                "$XFS_IO_PROG -c \"mmap -rw 0 {end}\" -c \"mwrite -S {byte} {offset} {}\" \
                 -c \"msync -s\" {}",
                data.len,
                quoted(&path)
            )
        }
        Op::Fsync { slot } => xfs_io(&of(slot, open)?, "fsync".to_owned()),
        Op::Fdatasync { slot } => xfs_io(&of(slot, open)?, "fdatasync".to_owned()),
        Op::Sync => "sync".to_owned(),
        Op::Fallocate { slot, mode, offset, len } => {
            let keep = if mode.contains(FallocateMode::FALLOC_FL_KEEP_SIZE) { "-k " } else { "" };
            let what = if mode.contains(FallocateMode::FALLOC_FL_PUNCH_HOLE) {
                format!("fpunch {offset} {len}")
            } else if mode.contains(FallocateMode::FALLOC_FL_ZERO_RANGE) {
                format!("fzero {keep}{offset} {len}")
            } else {
                format!("falloc {keep}{offset} {len}")
            };
            xfs_io(&of(slot, open)?, what)
        }
        Op::Truncate { target: Target::Path(path), len } => xfs_io(path, format!("truncate {len}")),
        Op::Truncate { target: Target::Slot(slot), len } => {
            xfs_io(&of(slot, open)?, format!("truncate {len}"))
        }
        Op::Mkdir { path, .. } => format!("mkdir {}", quoted(path)),
        Op::Rmdir { path } => format!("rmdir {}", quoted(path)),
        Op::Unlink { path } => format!("rm {}", quoted(path)),
        Op::Rename { from, to, .. } => format!("mv -T {} {}", quoted(from), quoted(to)),
        Op::Link { from, to, .. } => format!("ln {} {}", quoted(from), quoted(to)),
        Op::Symlink { target, path } => format!("ln -s '{target}' {}", quoted(path)),
        Op::Setxattr { target, name, .. } => {
            format!("setfattr -n {name} -v val1 {}", quoted(&path_of(target, open)?))
        }
        Op::Removexattr { target, name } => {
            format!("setfattr -x {name} {}", quoted(&path_of(target, open)?))
        }
        Op::Chmod { target, mode } => {
            format!("chmod {:o} {}", mode.0, quoted(&path_of(target, open)?))
        }
        _ => return None,
    })
}

fn path_of(target: &Target, open: &BTreeMap<Slot, FsPath>) -> Option<FsPath> {
    match target {
        Target::Path(path) | Target::Link(path) => Some(path.clone()),
        Target::Slot(slot) => open.get(slot).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_generate::known;

    #[test]
    fn every_known_workload_has_commands() {
        for known in known::all() {
            let ops: Vec<&Op> = known.ops.iter().collect();
            let text = commands(&ops);
            let missing = text.lines().filter(|line| line.starts_with('#')).count();
            assert!(missing <= 1, "{}: {text}", known.name);
        }
        let known = known::all().into_iter().find(|known| known.name == "generic-059").unwrap();
        let ops: Vec<&Op> = known.ops.iter().collect();
        assert!(commands(&ops).contains("$XFS_IO_PROG -c \"fpunch 8000 4096\" 'foo'"));
    }

    #[test]
    fn mount_options_are_those_of_the_subject() {
        let kernel = Kernel::of("ext4+drop-flush --mount-opts=barrier=0 --promises=ext4").unwrap();
        assert_eq!((kernel.fs_type, kernel.options.as_str()), ("ext4", ",barrier=0"));
        assert!(Kernel::of("littlefs").is_none());
    }
}
