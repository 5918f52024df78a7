//! File systems that lack something: said, not used, and nothing beyond it excused.

mod common;

use std::path::Path;

use common::{ask, scratch};

/// What a daemon of ours can be told to lack.
const LACKS: &str = "hard-links,symlinks,xattrs,modes,owners,special-files,rename-noreplace,\
                     rename-exchange,rename-whiteout,dir-nlink,open-unlinked,holes";

/// Prints the reason if this machine cannot mount FUSE.
fn can_mount(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt;
        meta.uid() == 0
    });
    let can = root && Path::new("/dev/fuse").exists();
    if !can {
        println!("SKIP {test}: needs root and /dev/fuse");
    }
    can
}

/// A daemon that serves the reference with these options.
fn daemon(options: &str) -> String {
    format!("fuse:{} mount {{mnt}} {options}", env!("CARGO_BIN_EXE_fathom"))
}

#[test]
fn a_daemon_that_lacks_everything_is_not_accused() {
    if !can_mount("a_daemon_that_lacks_everything_is_not_accused") {
        return;
    }
    let dir = scratch();
    let subject = daemon(&format!("--lacks {LACKS}"));
    let answer = ask(&["check", &subject, "--ops", "1500", "--seed", "1"], dir.path());
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    for feature in LACKS.split(',') {
        assert!(answer.err.contains(&format!("note: no {feature} (")), "{feature}: {}", answer.err);
    }
}

#[test]
fn what_is_required_and_lacking_is_a_finding() {
    if !can_mount("what_is_required_and_lacking_is_a_finding") {
        return;
    }
    let dir = scratch();
    let subject = daemon("--lacks hard-links,xattrs");
    let args = ["check", &subject, "--require", "hardlinks", "--first", "--seed", "1"];
    let answer = ask(&[&args[..], &["--ops", "3000"]].concat(), dir.path());
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    // By a path or by a descriptor, whichever comes first.
    let told = ["outcome link success/EPERM", "outcome link_slot success/EPERM"];
    assert!(told.iter().any(|words| answer.out.contains(words)), "{}", answer.out);
    assert!(answer.err.contains("note: no xattrs (EOPNOTSUPP)"), "{}", answer.err);
    let unknown = ask(&["check", "model", "--require", "wings"], dir.path());
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("unknown feature \"wings\": use hard-links"), "{}", unknown.err);
}

#[test]
fn a_bug_beside_a_lack_is_found() {
    if !can_mount("a_bug_beside_a_lack_is_found") {
        return;
    }
    // Each looks like a lack for who looks only once: a mode bit, a count, an attribute.
    for (lacks, mutant, signature) in [
        ("owners", "chmod-drops-setuid", "tree chmod mode"),
        ("modes", "mkdir-nlink", "tree mkdir nlink"),
        ("hard-links", "xattr-replace-creates", "outcome setxattr ENODATA/success"),
    ] {
        let dir = scratch();
        let subject = daemon(&format!("--lacks {lacks} --mutant {mutant}"));
        let args = ["check", &subject, "--first", "--seed", "1", "--ops", "4000"];
        let answer = ask(&args, dir.path());
        assert_eq!(answer.code, 1, "{mutant}: {}{}", answer.out, answer.err);
        assert!(answer.out.contains(signature), "{mutant}: {}", answer.out);
    }
}

/// bindfs, mergerfs, unionfs and ntfs-3g say of a file of a tebibyte that all of it is data.
#[test]
fn large_files_without_holes_end_no_run_and_hide_no_bug() {
    let test = "large_files_without_holes_end_no_run_and_hide_no_bug";
    if !can_mount(test) {
        return;
    }
    let dir = scratch();
    let args = ["--seed", "2", "--ops", "4000"];
    let correct = daemon("--lacks holes");
    let answer = ask(&[&["check", &correct][..], &args].concat(), dir.path());
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("note: no holes (it has no effect)"), "{}", answer.err);
    let wrong = daemon("--lacks holes --mutant stale-hole");
    let answer = ask(&[&["check", &wrong, "--first"][..], &args].concat(), dir.path());
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    assert!(answer.out.contains("content"), "{}", answer.out);
}

#[test]
fn variants_are_refused_with_their_risk() {
    let dir = scratch();
    let refused = ask(&["check", "ext4-inline_data"], dir.path());
    assert_eq!(refused.code, 2);
    for part in ["ext4-inline_data may harm this machine", "oopses", "--on-host"] {
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    let random = ask(&["check", "btrfs", "--options", "random", "--seed", "3"], dir.path());
    assert_eq!(random.code, 2);
    assert!(random.err.contains("btrfs with unusual options may harm"), "{}", random.err);
    let none = ask(&["check", "tmpfs", "--options", "random"], dir.path());
    assert!(
        none.code == 2 && none.err.contains("tmpfs has no variants and no options"),
        "{}",
        none.err
    );
}
