//! `cargo xtask campaign hunt`: forty file systems that people have, each for a short time with the
//! defaults, and a table of what came out.
//!
//! A row that is done is kept ([`Ledger`]), so that an interrupted campaign goes on where it was; its findings
//! stay in `target/hunt`.
//! Every finding must be explained here: a bug, with the place of its reproducer, or a known
//! difference, with its reason. What is not explained fails the campaign.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::ledger::{self, Ledger};
use crate::shell;

/// Where a row runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On this kernel, as root.
    Host,
    /// In a guest: this kernel lacks it, or it could be harmed.
    Guest,
}

/// One row: its name, the subject, further arguments, the program that it needs, and its place.
type Row = (&'static str, &'static str, &'static [&'static str], &'static str, Place);

use Place::{Guest, Host};

const ROWS: &[Row] = &[
    ("tmpfs", "tmpfs", &[], "", Host),
    ("ext2", "ext2", &[], "mkfs.ext2", Host),
    ("ext3", "ext3", &[], "mkfs.ext3", Host),
    ("ext4", "ext4", &[], "mkfs.ext4", Host),
    ("ext4-1k", "ext4-1k", &[], "mkfs.ext4", Host),
    ("ext4, full", "ext4", &["--space", "2M"], "mkfs.ext4", Host),
    ("xfs", "xfs", &[], "mkfs.xfs", Host),
    ("xfs, full", "xfs", &["--space", "2M"], "mkfs.xfs", Host),
    ("btrfs", "btrfs", &[], "mkfs.btrfs", Host),
    ("btrfs, full", "btrfs", &["--space", "2M"], "mkfs.btrfs", Host),
    ("overlay on tmpfs", "overlay", &[], "", Host),
    ("overlay on ext4", "overlay:ext4", &[], "mkfs.ext4", Host),
    ("overlay on xfs", "overlay:xfs", &[], "mkfs.xfs", Host),
    ("overlay on btrfs", "overlay:btrfs", &[], "mkfs.btrfs", Host),
    ("ext4-inline_data", "ext4-inline_data", &[], "mkfs.ext4", Guest),
    ("ext4-bigalloc", "ext4-bigalloc", &[], "mkfs.ext4", Guest),
    ("ext4-indirect", "ext4-indirect", &[], "mkfs.ext4", Guest),
    ("ext4-ea_inode", "ext4-ea_inode", &[], "mkfs.ext4", Guest),
    ("ext4-encrypt", "ext4-encrypt", &[], "mkfs.ext4", Guest),
    ("ext4-casefold", "ext4-casefold", &[], "mkfs.ext4", Guest),
    ("ext4-datajournal", "ext4-datajournal", &[], "mkfs.ext4", Guest),
    ("xfs-v4", "xfs-v4", &[], "mkfs.xfs", Guest),
    ("xfs-rmapbt", "xfs-rmapbt", &[], "mkfs.xfs", Guest),
    ("xfs-1k", "xfs-1k", &[], "mkfs.xfs", Guest),
    ("btrfs-holes", "btrfs-holes", &[], "mkfs.btrfs", Guest),
    ("btrfs-compress", "btrfs-compress", &[], "mkfs.btrfs", Guest),
    ("btrfs-nodatacow", "btrfs-nodatacow", &[], "mkfs.btrfs", Guest),
    ("f2fs", "f2fs", &[], "mkfs.f2fs", Guest),
    ("jfs", "jfs", &[], "mkfs.jfs", Guest),
    ("nilfs2", "nilfs2", &[], "mkfs.nilfs2", Guest),
    ("vfat", "vfat", &[], "mkfs.vfat", Guest),
    ("exfat", "exfat", &[], "mkfs.exfat", Guest),
    ("minix", "minix", &[], "mkfs.minix", Guest),
    ("bindfs", "fuse:bindfs {state} {mnt}", &[], "bindfs", Host),
    (
        "mergerfs",
        "fuse:mkdir -p {state}/a; mergerfs -o allow_other,use_ino {state}/a {mnt}",
        &[],
        "mergerfs",
        Host,
    ),
    (
        "unionfs-fuse",
        "fuse:mkdir -p {state}/a; unionfs -o allow_other,cow {state}/a=RW {mnt}",
        &[],
        "unionfs",
        Host,
    ),
    (
        "fuse-overlayfs",
        "fuse:mkdir -p {state}/l {state}/u {state}/w; fuse-overlayfs -o \
         lowerdir={state}/l,upperdir={state}/u,workdir={state}/w,allow_other {mnt}",
        &[],
        "fuse-overlayfs",
        Host,
    ),
    (
        "gocryptfs",
        "fuse:[ -e {state}/gocryptfs.conf ] || gocryptfs -q -init -extpass 'echo a' {state}; \
         gocryptfs -q -extpass 'echo a' {state} {mnt}",
        &["--start-within", "60s"],
        "gocryptfs",
        Host,
    ),
    (
        "fuse2fs",
        "fuse:[ -e {state}/disk ] || mkfs.ext4 -q {state}/disk 16m; fuse2fs -o allow_other \
         {state}/disk {mnt}",
        &[],
        "fuse2fs",
        Host,
    ),
    (
        "ntfs-3g",
        "fuse:[ -e {state}/d ] || { truncate -s 32M {state}/d; mkfs.ntfs -q -F {state}/d; }; \
         ntfs-3g -o permissions,acl,streams_interface=none {state}/d {mnt}",
        &[],
        "ntfs-3g",
        Host,
    ),
    ("disorderfs", "fuse:disorderfs {state} {mnt}", &[], "disorderfs", Host),
];

/// What findings are: the row (`*` for all of a FUSE daemon), what the words of the signature begin with (`*`
/// for any), and the explanation. Bugs are in docs/FOUND_BUGS.md.
const EXPLAINED: &[(&str, &str, &str)] = &[
    (
        "*",
        "stale ",
        "known difference: the kernel keeps attributes for a second (libfuse's default)",
    ),
    (
        "*",
        "tree mmap_store",
        "bug: stores through a mapping of an O_APPEND descriptor are appended",
    ),
    ("*", "tree open mode", "bug: setuid, setgid or sticky is lost on creation"),
    ("*", "tree mkdir mode", "bug: setuid, setgid or sticky is lost on creation"),
    ("*", "tree mknod mode", "bug: setuid, setgid or sticky is lost on creation"),
    (
        "*",
        "outcome * ENAMETOOLONG/ENOENT",
        "known difference: FUSE hands names of up to 1,024 bytes to the daemon, which says that it is missing",
    ),
    (
        "*",
        "outcome * ENAMETOOLONG/EACCES",
        "known difference: the same, and the daemon looks at permissions first",
    ),
    (
        "mergerfs",
        "outcome mmap_store success/ENOENT",
        "bug: fstat of an open file asks for its path, as the caller",
    ),
    (
        "mergerfs",
        "outcome listxattr ERANGE/success",
        "known difference: it acts as its caller, who does not see `trusted.*`",
    ),
    (
        "unionfs-fuse",
        "tree rename entry",
        "bug: renaming a file to its other hard link leaves a whiteout, and .unionfs-fuse shows",
    ),
    (
        "fuse-overlayfs",
        "tree rename entry",
        "known difference: as overlayfs, it takes devices 0:0 for whiteouts",
    ),
    (
        "fuse-overlayfs",
        "outcome mknod success/ENOENT",
        "known difference: as overlayfs, it takes devices 0:0 for whiteouts",
    ),
    ("fuse-overlayfs", "outcome getdents", "bug: a listing of the root has no `..`"),
    (
        "mergerfs",
        "outcome rename ENOTEMPTY/EXDEV",
        "known difference: its rename policy says EXDEV",
    ),
    ("fuse-overlayfs", "outcome listxattr", "bug: as overlayfs, it counts names that it hides"),
    ("fuse2fs", "outcome removexattr ENODATA", "bug: removing a missing attribute succeeds"),
    ("fuse2fs", "outcome setxattr ENODATA", "bug: XATTR_REPLACE of a missing attribute succeeds"),
    ("fuse2fs", "outcome fallocate success/EINVAL", "bug: ZERO_RANGE with KEEP_SIZE is EINVAL"),
    ("fuse2fs", "outcome setxattr EOPNOTSUPP", "bug: attributes of unknown namespaces are taken"),
    ("fuse2fs", "outcome * EACCES/ENO", "bug: search permission is not asked for by a lookup"),
    ("fuse2fs", "outcome utimens EPERM/EACCES", "known difference: it checks permissions itself"),
    (
        "fuse2fs",
        "tree fallocate content",
        "bug: what is changed through one name of a file is not seen through its other one",
    ),
    (
        "fuse2fs",
        "outcome getdents",
        "known difference: it does not say the types of entries (DT_UNKNOWN)",
    ),
    ("fuse2fs", "outcome link EPERM/EACCES", "known difference: it checks permissions itself"),
    ("fuse2fs", "outcome setxattr EACCES/EPERM", "known difference: it checks permissions itself"),
    (
        "disorderfs",
        "outcome getdents",
        "known difference: it does not say the types of entries (DT_UNKNOWN)",
    ),
    ("ntfs-3g", "tree open entry", "bug: llistxattr says EACCES to root"),
    ("ntfs-3g", "tree truncate entry", "bug: llistxattr says EACCES to root"),
    ("ntfs-3g", "tree chown entry", "bug: llistxattr says EPERM to root"),
    ("exfat", "tree pwrite size", "bug: a write that appends makes the file too long"),
    ("exfat", "tree write size", "bug: a write that appends makes the file too long"),
    (
        "exfat",
        "tree rename nlink",
        "bug: a directory that replaces another one leaves a link too many",
    ),
    (
        "exfat",
        "tree remount content",
        "bug: a file that was extended and appended to shows what a deleted one held",
    ),
    (
        "vfat",
        "outcome getdents entries",
        "bug: a listing tells the wrong type after RENAME_EXCHANGE",
    ),
    (
        "vfat",
        "tree rename nlink",
        "bug: a directory that replaces another one leaves a link too many",
    ),
    ("ext4-inline_data", "kernel_oops", "bug: truncate(2) of a file with inline data oopses"),
    ("ext4-inline_data", "outcome lseek", "bug: SEEK_HOLE fails with ENOENT"),
    ("ext4-indirect", "outcome lseek", "bug: SEEK_DATA skips data that is not written back"),
    (
        "btrfs-holes",
        "outcome lseek success/ENXIO",
        "known difference: SEEK_DATA from a negative offset finds data until it is written back",
    ),
    ("btrfs-holes", "tree remount", "bug: appended data is lost in spite of fsync"),
];

/// Rows that a kernel cannot run: the row, what its error says, and why.
const UNAVAILABLE: &[(&str, &str, &str)] = &[(
    "ext4-encrypt",
    "test_dummy_encryption): No such file",
    "the kernel has no AES in XTS mode (CONFIG_CRYPTO_XTS, CONFIG_CRYPTO_CTS)",
)];

/// Runs the rows that are not done yet, and prints the table of all.
pub(crate) fn run(
    program: &Path,
    seconds: u64,
    guest: Option<&str>,
    only: &[String],
) -> Result<()> {
    let mut ledger = Ledger::open("hunt")?;
    let mut unexplained = Vec::new();
    let mut table = String::from("| subject | operations | states | result |\n|---|---|---|---|\n");
    let rows: Vec<&Row> =
        ROWS.iter().filter(|row| only.is_empty() || only.iter().any(|one| one == row.0)).collect();
    for row in &rows {
        if !ledger.has(row.0, 1) {
            let result = one(program, row, seconds, guest)?;
            if result["ops"].as_u64().is_none_or(|ops| ops == 0) {
                table.push_str(&line(row.0, &result, &mut unexplained));
                continue;
            }
            ledger.add(row.0, 1, &result)?;
        }
        for result in ledger.of(row.0) {
            table.push_str(&line(row.0, result, &mut unexplained));
        }
    }
    println!("{table}");
    ledger.tell_time(rows.len() as u64 * seconds / 60);
    if !unexplained.is_empty() {
        bail!("not explained:\n  {}", unexplained.join("\n  "));
    }
    Ok(())
}

/// Runs a row; what could not run says why, and is tried again next time.
fn one(program: &Path, row: &Row, seconds: u64, guest: Option<&str>) -> Result<Value> {
    let (name, subject, args, needs, place) = row;
    if !needs.is_empty() && !shell::has_program(needs) {
        return Ok(json!({ "skipped": format!("{needs} is not installed") }));
    }
    let budget = format!("{seconds}s");
    let out = shell::root().join("target/hunt").join(name.replace([' ', ','], "-"));
    let mut command = Command::new(program);
    command.args(["check", subject, "--budget", &budget, "--seed", "1", "--json"]).args(*args);
    command.arg("--out").arg(out);
    let kernel = match (place, guest) {
        (Host, _) => String::new(),
        (Guest, Some(kernel)) => {
            command.args(["--guest", kernel]);
            ledger::kernel_name(kernel)
        }
        (Guest, None) => {
            return Ok(json!({ "skipped": "needs a guest: give --guest KERNEL" }));
        }
    };
    eprintln!("{name}: {}", shell::show(&command));
    let output =
        command.output().with_context(|| format!("cannot start {}", shell::show(&command)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr);
    let Ok(report) = serde_json::from_str::<Value>(last) else {
        return Ok(json!({ "code": output.status.code(), "failed": errors.trim() }));
    };
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    let named = |finding: &Value| {
        let signature = finding["signature"].as_str().or(finding["title"].as_str());
        json!({ "id": finding["id"], "signature": signature })
    };
    Ok(json!({
        "kernel": kernel,
        "code": output.status.code(),
        "seconds": report["seconds"],
        "ops": report["ops"],
        "states": report["states"],
        "failed": report["error"],
        "findings": findings.iter().map(named).collect::<Vec<_>>(),
    }))
}

/// The line of the table; findings that nobody has explained are added to `unexplained`.
fn line(name: &str, result: &Value, unexplained: &mut Vec<String>) -> String {
    if let Some(why) = result["skipped"].as_str() {
        return format!("| {name} | | | not run: {why} |\n");
    }
    if let Some(why) = result["failed"].as_str() {
        let lack = UNAVAILABLE.iter().find(|(row, text, _)| *row == name && why.contains(text));
        if let Some((_, _, lack)) = lack {
            return format!("| {name} | | | not run: {lack} |\n");
        }
        unexplained.push(format!("{name}: {why}"));
        return format!("| {name} | | | harness: {why} |\n");
    }
    let number = |field: &str| result[field].as_u64().unwrap_or(0);
    let findings = result["findings"].as_array().cloned().unwrap_or_default();
    let mut words: Vec<String> = Vec::new();
    for finding in &findings {
        let signature = finding["signature"].as_str().unwrap_or("?");
        let explained = EXPLAINED
            .iter()
            .find(|(row, start, _)| (*row == name || *row == "*") && begins(signature, start));
        match explained {
            Some((_, _, text)) => words.push(format!("`{signature}`: {text}")),
            None => {
                unexplained.push(format!("{name}: {signature} ({})", finding["id"]));
                words.push(format!("`{signature}`: NOT EXPLAINED"));
            }
        }
    }
    if words.is_empty() && result["code"] != 0 {
        let ended = format!("ended with {} and no finding", result["code"]);
        unexplained.push(format!("{name}: {ended}"));
        words.push(format!("NOT EXPLAINED: {ended}"));
    }
    let words = if words.is_empty() { "clean".to_owned() } else { words.join("; ") };
    format!("| {name} | {} | {} | {words} |\n", number("ops"), number("states"))
}

/// Whether the words of a signature begin with those of an explanation, of which `*` stands for any.
fn begins(signature: &str, start: &str) -> bool {
    let mut words = signature.split(' ');
    start
        .split_whitespace()
        .all(|start| words.next().is_some_and(|word| start == "*" || word.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_covers_what_begins_like_it() {
        let long = "outcome * ENAMETOOLONG/ENOENT";
        assert!(begins("outcome unlink ENAMETOOLONG/ENOENT", long));
        assert!(!begins("outcome unlink ENAMETOOLONG/success", long));
        assert!(!begins("outcome unlink", long));
        assert!(begins("stale link nlink", "stale ") && !begins("tree link nlink", "stale "));
    }

    #[test]
    fn there_are_forty_rows_with_names_of_their_own() {
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.0).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
        assert!(ROWS.len() >= 40, "{}", ROWS.len());
        for (row, ..) in EXPLAINED {
            assert!(*row == "*" || names.contains(row), "{row} is no row");
        }
    }

    #[test]
    fn what_nobody_explained_is_said() {
        let finding = json!({ "id": "x", "signature": "outcome fly EPERM/success" });
        let result = json!({ "code": 1, "ops": 7, "states": 3, "findings": [finding] });
        let mut unexplained = Vec::new();
        let told = line("ext4", &result, &mut unexplained);
        assert_eq!(unexplained.len(), 1);
        assert!(told.contains("NOT EXPLAINED"), "{told}");
        for (code, clean) in [(0, true), (1, false)] {
            let result = json!({ "code": code, "ops": 7, "states": 3, "findings": [] });
            assert_eq!(line("ext4", &result, &mut unexplained).contains("clean"), clean);
        }
        assert_eq!(unexplained.len(), 2, "a row that ended with 1 is not clean");
    }
}
