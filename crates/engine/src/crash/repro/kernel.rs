//! Reproducers of findings on kernel file systems, for a developer's machine: a script that mounts the
//! recorded disk. The case for xfstests is made by [`super::xfstests`].

use super::{Case, comment, xfstests};
use crate::crash::judge::Class;

/// The name of the script that judges the recorded disk.
pub(in crate::crash) const SCRIPT: &str = "repro.sh";

/// The script that judges the recorded disk.
const JUDGE: &str = include_str!("judge.sh.in");

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
    let mut files = vec![(SCRIPT, judge)];
    files.extend(xfstests::files(case, &kernel));
    files
}

/// What tells the state that was found from the legal one that it resembles most: lines that are
/// there, and lines that are not.
pub(super) fn differences(case: &Case<'_>) -> (Vec<String>, Vec<String>) {
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
pub(super) struct Kernel {
    fs_type: &'static str,
    /// Mount options of the subject, each after a comma.
    pub(super) options: String,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_are_those_of_the_subject() {
        let kernel = Kernel::of("ext4+drop-flush --mount-opts=barrier=0 --promises=ext4").unwrap();
        assert_eq!((kernel.fs_type, kernel.options.as_str()), ("ext4", ",barrier=0"));
        assert!(Kernel::of("littlefs").is_none());
    }
}
