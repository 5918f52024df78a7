//! `ReffsSubject`: every operation through FUSE, remounting, going back, and agreement with the
//! volume behind it.

mod common;

use std::collections::BTreeSet;

use common::*;
use fathom_core::flags::OpenFlags;
use fathom_core::{
    Capability, Errno, HarnessFault, Mode, Op, Outcome, Pattern, RestoreMethod, Subject, Target,
    Testbed, Tree,
};
use fathom_model::{Config, TreeOptions};
use fathom_subjects::fuse::ReffsSubject;
use fathom_subjects::sys::View;

/// The subject, or `None` after saying why not.
fn subject(test: &str) -> Option<ReffsSubject> {
    subject_with(test, Config::default(), View::default())
}

fn subject_with(test: &str, config: Config, view: View) -> Option<ReffsSubject> {
    if !is_root() {
        skip(test, "needs root");
        return None;
    }
    Some(ReffsSubject::new(config, view).unwrap())
}

/// fuser has no FUSE_TMPFILE. For the script that all subjects share, makes a file without a name in
/// the old way, after seeing that the new way fails as documented.
struct WithTmpfile(ReffsSubject);

impl Subject for WithTmpfile {
    fn name(&self) -> String {
        self.0.name()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.0.capabilities()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        match op {
            Op::Open { slot, flags, mode, .. } if flags.contains(OpenFlags::O_TMPFILE) => {
                assert_eq!(self.0.apply(op)?, err(Errno::EOPNOTSUPP));
                let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
                let path = || "nameless".into();
                let made =
                    self.0.apply(&Op::Open { slot: *slot, path: path(), flags, mode: *mode })?;
                self.0.apply(&Op::Unlink { path: path() })?;
                Ok(made)
            }
            op => self.0.apply(op),
        }
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.0.observe()
    }
}

/// What the volume itself says, without the kernel in between.
fn volume_tree(subject: &ReffsSubject, options: TreeOptions) -> Tree {
    subject.mount().unwrap().with_volume(|volume| {
        volume.check_invariants().unwrap();
        volume.tree(options)
    })
}

#[test]
fn every_operation_works_and_the_kernel_shows_what_the_volume_has() {
    let Some(subject) = subject("every_operation_works") else { return };
    let mut subject = WithTmpfile(subject);
    assert_eq!(subject.observe().unwrap().entries.len(), 1, "a new file system is empty");
    every_operation(&mut subject, true);
    identities(&mut subject);
    devices(&mut subject);
    let mut subject = subject.0;
    let seen = subject.observe().unwrap();
    let mut inside = volume_tree(&subject, TreeOptions::default());
    for entry in inside.entries.values_mut() {
        entry.xattrs.retain(|name, _| !name.as_bytes().starts_with(b"security."));
    }
    assert_eq!(inside.differences(&seen), []);

    expect(&mut subject, create(20, "orphan"), ok(0));
    expect(&mut subject, Op::Unlink { path: "orphan".into() }, ok(0));
    expect(&mut subject, Op::Remount, ok(0));
    expect(&mut subject, Op::Close { slot: 20 }, err(Errno::EBADF));
    assert_eq!(seen.differences(&subject.observe().unwrap()), []);
    volume_tree(&subject, TreeOptions::default());

    subject.reset().unwrap();
    assert_eq!(subject.observe().unwrap().entries.len(), 1, "reset goes back to the beginning");
}

#[test]
fn remounting_many_times_works() {
    let Some(mut subject) = subject("remounting_many_times_works") else { return };
    for round in 0..50 {
        expect(&mut subject, mkdir(&format!("d{round}"), 0o755), ok(0));
        expect(&mut subject, create(0, "orphan"), ok(0));
        expect(&mut subject, Op::Unlink { path: "orphan".into() }, ok(0));
        expect(&mut subject, Op::Remount, ok(0));
    }
    assert_eq!(subject.observe().unwrap().entries.len(), 51);
    let statfs = subject.mount().unwrap().with_volume(|volume| volume.statfs());
    assert_eq!(statfs.files - statfs.files_free, 51, "orphans are gone after an unmount");
}

#[test]
fn no_mount_is_visible_to_anybody() {
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let Some(subject) = subject("no_mount_is_visible_to_anybody") else { return };
    assert_eq!(mounts(), before);
    drop(subject);
    assert_eq!(mounts(), before);
}

#[test]
fn checkpoints_bring_back_the_whole_state() {
    let view = View { segments: true, times: true, ..View::default() };
    let Some(mut subject) = subject_with("checkpoints", Config::default(), view) else { return };
    expect(&mut subject, mkdir("d", 0o755), ok(0));
    expect(&mut subject, create(0, "d/f"), ok(0));
    expect(&mut subject, pwrite(0, 10_000, 1, 5_000), ok(5_000));
    let (first, tree) = (subject.save(RestoreMethod::Ioctl).unwrap(), subject.observe().unwrap());

    expect(&mut subject, Op::Truncate { target: Target::Slot(0), len: 3 }, ok(0));
    expect(
        &mut subject,
        Op::Rename { from: "d".into(), to: "e".into(), flags: Default::default() },
        ok(0),
    );
    expect(&mut subject, Op::Chmod { target: path("e/f"), mode: Mode(0) }, ok(0));
    let (second, other) = (subject.save(RestoreMethod::Ioctl).unwrap(), subject.observe().unwrap());

    for _ in 0..3 {
        subject.restore(first).unwrap();
        expect(&mut subject, Op::Close { slot: 0 }, err(Errno::EBADF));
        assert_eq!(tree.differences(&subject.observe().unwrap()), []);
        expect(&mut subject, open(0, "d/f", OpenFlags::empty()), ok(0));
        let data = Outcome::data(&[vec![0; 10], bytes(1, 90)].concat());
        expect(&mut subject, Op::Pread { slot: 0, offset: 9_990, len: 100 }, data);
        subject.restore(second).unwrap();
        assert_eq!(other.differences(&subject.observe().unwrap()), []);
    }
    subject.forget(first);
    assert!(subject.restore(first).is_err());
    assert!(subject.save(RestoreMethod::Remount).is_err());
}

#[test]
fn capacity_is_what_was_asked_for_and_comes_back() {
    let config = Config { blocks: 64, inodes: 16, ..Config::default() };
    let Some(mut subject) = subject_with("capacity", config, View::default()) else { return };
    let statfs = |subject: &mut ReffsSubject| {
        subject.apply(&Op::Statfs { target: path(".") }).unwrap().payload
    };
    let empty = statfs(&mut subject);
    expect(&mut subject, create(0, "big"), ok(0));
    let data = Pattern { seed: 1, len: 1 << 20 };
    let written = subject.apply(&Op::Write { slot: 0, data }).unwrap().result.unwrap();
    assert!((61 * 4096..=64 * 4096).contains(&written), "{written}");
    expect(&mut subject, Op::Write { slot: 0, data }, err(Errno::ENOSPC));
    for file in 0..14 {
        expect(&mut subject, create(1, &format!("f{file}")), ok(0));
    }
    expect(&mut subject, create(1, "one too many"), err(Errno::ENOSPC));
    assert_ne!(statfs(&mut subject), empty);
    for file in 0..14 {
        expect(&mut subject, Op::Unlink { path: format!("f{file}").as_str().into() }, ok(0));
    }
    expect(&mut subject, Op::Unlink { path: "big".into() }, ok(0));
    expect(&mut subject, Op::Close { slot: 0 }, ok(0));
    expect(&mut subject, Op::Close { slot: 1 }, err(Errno::EBADF));
    assert_eq!(statfs(&mut subject), empty, "space is free at once");
}
