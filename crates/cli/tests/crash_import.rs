//! `fathom crash import`: logs of the kernel's own dm-log-writes, made in a guest (FATHOM_GUEST_KERNEL), and
//! our own exports.

mod common;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use common::{ask, json, scratch};
use fathom_block::{Event, dm_log_writes};
use fathom_guest::{Boot, Guest, GuestEnd};

/// ext4 on a RAM disk under dm-log-writes: two files and a rename, with marks where all is durable.
const RECORD: &str = r#"
set -e
mkfs.ext4 -q -F -b 4096 -N 64 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/ram0
cat /dev/ram0 > base.img
echo "0 $(blockdev --getsz /dev/ram0) log-writes /dev/ram0 /dev/ram1" | dmsetup create --noudevsync lw
mount -t ext4 $OPTIONS /dev/dm-0 /mnt
echo hello > /mnt/a
sync -f /mnt
dmsetup message lw 0 mark first
mkdir /mnt/d
mv /mnt/a /mnt/d/b
echo more > /mnt/c
sync -f /mnt
dmsetup message lw 0 mark second
umount /mnt
dmsetup remove --noudevsync lw
cat /dev/ram1 > log.bin
"#;

/// Freezes the file system, so that nothing reaches the disk between the mark and its copy. The copies do not
/// come from the page cache of the disk: it knows nothing of what is written through dm-log-writes.
const COPY_AT_MARKS: &str = r#"
set -e
mkfs.ext4 -q -F -b 4096 -N 64 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/ram0
cat /dev/ram0 > base.img
echo "0 $(blockdev --getsz /dev/ram0) log-writes /dev/ram0 /dev/ram1" | dmsetup create --noudevsync lw
mount -t ext4 $OPTIONS /dev/dm-0 /mnt
for mark in first second; do
    echo $mark > /mnt/$mark
    mkdir /mnt/d-$mark
    fsfreeze -f /mnt
    dmsetup message lw 0 mark $mark
    dd if=/dev/ram0 of=$mark.img bs=1M iflag=direct status=none
    fsfreeze -u /mnt
done
umount /mnt
dmsetup remove --noudevsync lw
dd if=/dev/ram0 of=end.img bs=1M iflag=direct status=none
cat /dev/ram1 > log.bin
"#;

/// Records in a guest; false if there is none here.
fn record(test: &str, options: &str, dir: &Path) -> bool {
    record_with(test, &format!("OPTIONS='{options}'\n{RECORD}"), dir)
}

/// Runs a script in a guest; false if there is none here.
fn record_with(test: &str, script: &str, dir: &Path) -> bool {
    let Ok(name) = std::env::var("FATHOM_GUEST_KERNEL") else {
        println!("SKIP {test}: set FATHOM_GUEST_KERNEL to a kernel with dm-log-writes");
        return false;
    };
    let kernel = fathom_guest::resolve(&name).expect("FATHOM_GUEST_KERNEL is a kernel");
    let command = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
    let mut boot = Boot::new(&kernel, 1, command).expect("a guest");
    boot.program = env!("CARGO_BIN_EXE_fathom").into();
    boot.directory = dir.to_owned();
    boot.writable.push(dir.to_owned());
    let mut guest = Guest::start(&boot).expect("a guest");
    let end = guest.wait(Duration::from_secs(120)).expect("an end");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    guest.pass_on(&mut out, &mut err).expect("its output");
    let err = String::from_utf8_lossy(&err);
    assert_eq!(end, Some(GuestEnd::Code(0)), "{err}{}", guest.console());
    true
}

/// Whether file systems can be mounted here; says so if not.
fn is_root(test: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        println!("SKIP {test}: needs root");
    }
    root
}

const IMPORT: [&str; 7] = ["crash", "import", "log.bin", "--base", "base.img", "--fs", "ext4"];

#[test]
fn a_log_of_the_kernel_is_judged() {
    let test = "a_log_of_the_kernel_is_judged";
    let dir = scratch();
    if !is_root(test) || !record(test, "", dir.path()) {
        return;
    }
    let more = ["--durable-at-marks", "--no-checker", "--no-probe", "--json"];
    let (code, report) = json(&[&IMPORT[..], &more].concat(), dir.path());
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["marks"], 2, "{report}");
    assert!(report["crash_images"].as_u64() > Some(20), "{report}");
    let (code, whole) = json(&[&IMPORT[..], &["--level", "linear", "--json"]].concat(), dir.path());
    assert_eq!(code, 0, "{whole}");
}

#[test]
fn a_log_without_barriers_is_found() {
    let test = "a_log_without_barriers_is_found";
    let dir = scratch();
    if !is_root(test) || !record(test, "-o barrier=0", dir.path()) {
        return;
    }
    let more = ["--durable-at-marks", "--no-checker", "--no-probe", "--level", "linear,lost,epoch"];
    let (code, report) = json(&[&IMPORT[..], &more, &["--json"]].concat(), dir.path());
    assert_eq!(code, 1, "{report}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let test = "what_does_not_fit_is_refused";
    let dir = scratch();
    let wrong = |args: &[&str], word: &str| {
        let answer = ask(args, dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}", answer.out);
        assert!(answer.err.contains(word), "{args:?}: {}", answer.err);
    };
    wrong(&IMPORT, "log.bin");
    std::fs::write(dir.path().join("log.bin"), "no log").expect("a file");
    wrong(&IMPORT, "not a dm-log-writes log");
    if !is_root(test) || !record(test, "", dir.path()) {
        return;
    }
    wrong(&[&IMPORT[..], &["--from", "third"]].concat(), "it has first, second");
    let log = std::fs::read(dir.path().join("log.bin")).expect("the log");
    std::fs::write(dir.path().join("log.bin"), &log[..5000]).expect("a file");
    wrong(&IMPORT, "the log ends in");
    std::fs::write(dir.path().join("log.bin"), &log).expect("a file");
    let base = std::fs::read(dir.path().join("base.img")).expect("the image");
    std::fs::write(dir.path().join("base.img"), &base[..1 << 20]).expect("a file");
    wrong(&IMPORT, "");
    std::fs::write(dir.path().join("base.img"), vec![0; base.len()]).expect("a file");
    wrong(&IMPORT, "does not mount");
}

/// A number of a log.
fn number(log: &[u8], at: usize) -> usize {
    u64::from_le_bytes(log[at..at + 8].try_into().expect("eight bytes")) as usize
}

/// What `replay-log --end-mark` of xfstests does, from the description of the format alone: the writes of a
/// log up to a mark, or all of them, on a disk.
fn replay_log(base: &[u8], log: &[u8], end: Option<&str>) -> Vec<u8> {
    const DISCARD: usize = 4;
    const MARK: usize = 8;
    let mut disk = base.to_vec();
    let (entries, sector) = (number(log, 16), number(log, 24) & 0xffff_ffff);
    let mut at = sector;
    for _ in 0..entries {
        let (to, len) = (number(log, at) * sector, number(log, at + 8) * sector);
        let (flags, mark) = (number(log, at + 16), number(log, at + 24));
        let name = &log[at + 32..at + 32 + if flags & MARK == 0 { 0 } else { mark }];
        if flags & MARK != 0 && end.is_some_and(|end| name == end.as_bytes()) {
            return disk;
        }
        at += sector;
        if flags & DISCARD != 0 {
            disk[to..to + len].fill(0);
        } else {
            disk[to..to + len].copy_from_slice(&log[at..at + len]);
            at += len;
        }
    }
    assert_eq!(end, None, "the log has no such mark");
    disk
}

/// Our export of what the kernel has logged says the same: the same events, and up to each mark the disk that
/// the kernel itself had there.
#[test]
fn an_export_is_the_log_of_the_kernel() {
    let test = "an_export_is_the_log_of_the_kernel";
    let dir = scratch();
    if !record_with(test, COPY_AT_MARKS, dir.path()) {
        return;
    }
    let file = |name: &str| std::fs::read(dir.path().join(name)).expect("the guest wrote it");
    let kernels = file("log.bin");
    let imported = dm_log_writes::read(&kernels[..]).expect("the kernel's log");
    let mut exported = Vec::new();
    dm_log_writes::write(&imported.log, imported.sector_bytes, &mut exported).expect("written");
    let again = dm_log_writes::read(&exported[..]).expect("our log");
    assert_eq!(again, imported, "the same events");
    assert!(imported.log.len() > 50, "{} events", imported.log.len());
    let base = file("base.img");
    for (mark, image) in
        [(Some("first"), "first.img"), (Some("second"), "second.img"), (None, "end.img")]
    {
        let truth = file(image);
        for (whose, log) in [("the kernel's", &kernels), ("ours", &exported)] {
            let disk = replay_log(&base, log, mark);
            let differs = disk.iter().zip(&truth).position(|(one, other)| one != other);
            assert_eq!((disk.len(), differs), (truth.len(), None), "{whose} to {mark:?}");
        }
    }
    let marks = imported.log.events().filter(|event| matches!(event, Event::Mark(_))).count();
    // The kernel adds one when the target is removed.
    assert_eq!(marks, 3);
}
