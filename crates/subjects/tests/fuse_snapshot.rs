//! Saving and restoring the state of a mount, and what programs with open files see of it.
#![allow(unsafe_code, reason = "mappings; every block says why it is sound")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{is_root, skip};
use fathom_core::{Errno, Tree};
use fathom_model::{Config, TreeOptions};
use fathom_subjects::fuse::{Mount, Options, SnapshotError, Snapshots};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use tempfile::TempDir;

struct Mounted {
    snapshots: Option<Snapshots>,
    mount: Option<Mount>,
    point: TempDir,
}

impl Mounted {
    /// `None` after saying why not.
    fn new(test: &str) -> Option<Mounted> {
        Mounted::with(test, Options::default())
    }

    fn with(test: &str, options: Options) -> Option<Mounted> {
        if !is_root() {
            skip(test, "needs root");
            return None;
        }
        let point = tempfile::tempdir().unwrap();
        let mount = Mount::start(point.path(), Config::default(), options).unwrap();
        let snapshots = Some(Snapshots::open(point.path()).unwrap());
        Some(Mounted { snapshots, mount: Some(mount), point })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    fn snapshots(&self) -> &Snapshots {
        self.snapshots.as_ref().unwrap()
    }

    fn tree(&self) -> Tree {
        let options = TreeOptions { segments: true, times: false };
        self.mount.as_ref().unwrap().with_volume(|volume| {
            volume.check_invariants().unwrap();
            volume.tree(options)
        })
    }

    fn inodes_used(&self) -> u64 {
        let statfs = self.mount.as_ref().unwrap().with_volume(|volume| volume.statfs());
        statfs.files - statfs.files_free
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.snapshots = None;
        self.mount.take().unwrap().unmount().unwrap();
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io(error).unwrap()
}

/// A shared mapping of the first page of a file.
struct Mapping(*mut u8);

impl Mapping {
    fn new(file: &File) -> Mapping {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, prot, flags, file.as_fd(), 0) };
        Mapping(address.unwrap().cast())
    }

    fn get(&self, at: usize) -> u8 {
        assert!(at < 4096);
        // SAFETY: inside the mapping, whose page the file has; others change it only by system call.
        unsafe { self.0.add(at).read_volatile() }
    }

    fn set(&self, at: usize, value: u8) {
        assert!(at < 4096);
        // SAFETY: as above.
        unsafe { self.0.add(at).write_volatile(value) }
    }

    fn sync(&self) {
        // SAFETY: the whole mapping.
        unsafe { rustix::mm::msync(self.0.cast(), 4096, MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, and nobody uses it afterwards.
        unsafe { rustix::mm::munmap(self.0.cast(), 4096) }.unwrap();
    }
}

#[test]
fn restore_brings_back_everything_at_once() {
    let Some(mounted) = Mounted::new("restore_brings_back_everything") else { return };
    everything_comes_back(&mounted);
}

#[test]
fn restore_makes_the_kernel_forget_what_it_may_remember() {
    let test = "restore_makes_the_kernel_forget_what_it_may_remember";
    let options = Options { remembered: Duration::from_secs(1000), ..Options::default() };
    let Some(mounted) = Mounted::with(test, options) else { return };
    everything_comes_back(&mounted);
}

fn everything_comes_back(mounted: &Mounted) {
    let snapshots = mounted.snapshots();
    fs::create_dir_all(mounted.path("a/b")).unwrap();
    fs::write(mounted.path("a/b/f"), "first").unwrap();
    fs::hard_link(mounted.path("a/b/f"), mounted.path("link")).unwrap();
    std::os::unix::fs::symlink("a/b", mounted.path("symlink")).unwrap();
    snapshots.save(1).unwrap();
    let (tree, statfs) = (mounted.tree(), rustix::fs::statfs(mounted.point.path()).unwrap());

    fs::write(mounted.path("link"), "second, longer").unwrap();
    fs::set_permissions(mounted.path("a"), PermissionsExt::from_mode(0o700)).unwrap();
    fs::rename(mounted.path("a/b"), mounted.path("c")).unwrap();
    fs::remove_file(mounted.path("symlink")).unwrap();
    fs::write(mounted.path("new"), "x").unwrap();
    assert!(!mounted.path("nothing").exists(), "and the kernel might remember that");
    snapshots.save(2).unwrap();
    let later = mounted.tree();

    snapshots.restore(1, false).unwrap();
    assert_eq!(tree.differences(&mounted.tree()), []);
    assert_eq!(rustix::fs::statfs(mounted.point.path()).unwrap().f_bfree, statfs.f_bfree);
    assert_eq!(read(&mounted.path("a/b/f")), "first");
    assert_eq!(read(&mounted.path("symlink/f")), "first");
    assert_eq!(fs::metadata(mounted.path("link")).unwrap().size(), 5);
    assert_eq!(fs::metadata(mounted.path("a")).unwrap().mode() & 0o777, 0o755);
    assert!(!mounted.path("new").exists() && !mounted.path("c").exists());
    assert_eq!(fs::read_dir(mounted.point.path()).unwrap().count(), 3);

    snapshots.restore(2, true).unwrap();
    assert_eq!(later.differences(&mounted.tree()), []);
    assert_eq!(read(&mounted.path("c/f")), "second, longer");
    assert!(!mounted.path("a/b").exists());
    assert!(matches!(snapshots.restore(2, false), Err(SnapshotError::NoSuchKey { key: 2 })));
    assert_eq!(snapshots.list().unwrap(), [1]);
}

#[test]
fn keys_are_kept_apart_and_errors_are_clear() {
    let Some(mounted) = Mounted::new("keys_are_kept_apart") else { return };
    let snapshots = mounted.snapshots();
    assert!(snapshots.list().unwrap().is_empty());
    // More than one answer to LIST can hold, and the extremes.
    let keys: Vec<u64> = (0..1200).chain([u64::MAX - 1, u64::MAX]).collect();
    for &key in &keys {
        snapshots.save(key).unwrap();
    }
    assert_eq!(snapshots.list().unwrap(), keys);
    assert!(matches!(snapshots.save(7), Err(SnapshotError::KeyExists { key: 7 })));
    snapshots.drop(7).unwrap();
    assert!(matches!(snapshots.drop(7), Err(SnapshotError::NoSuchKey { key: 7 })));
    let error = snapshots.restore(7, false).unwrap_err().to_string();
    assert_eq!(error, "there is no snapshot 7: see `fathom snapshot list`");
    assert_eq!(snapshots.list().unwrap().len(), keys.len() - 1);

    let elsewhere = tempfile::tempdir().unwrap();
    let error = Snapshots::open(elsewhere.path()).unwrap().save(1).unwrap_err();
    assert!(matches!(error, SnapshotError::NotMounted), "{error}");
    let error = Snapshots::open(&elsewhere.path().join("x")).unwrap_err().to_string();
    assert!(error.contains("cannot open"), "{error}");
    // Any directory of the mount will do.
    fs::create_dir_all(mounted.path("a/b")).unwrap();
    Snapshots::open(&mounted.path("a/b")).unwrap().restore(8, false).unwrap();
    assert!(!mounted.path("a").exists());
}

#[test]
fn others_may_not_save_or_restore() {
    let test = "others_may_not_save_or_restore";
    let Some(mounted) = Mounted::new(test) else { return };
    // A request carries the file-system ids of the thread that makes it.
    let snapshots = mounted.snapshots();
    let denied = thread::scope(|scope| {
        let as_nobody = scope.spawn(|| {
            // SAFETY: changes the file-system user of this thread only, which ends with the scope.
            unsafe { libc::setfsuid(65534) };
            [
                snapshots.save(1),
                snapshots.restore(1, false),
                snapshots.load(Path::new("/x")).map(drop),
            ]
        });
        as_nobody.join().unwrap()
    });
    for result in denied {
        assert!(matches!(result, Err(SnapshotError::Denied)), "{result:?}");
    }
    assert!(snapshots.list().unwrap().is_empty());
}

#[test]
fn open_files_go_on_or_become_stale() {
    let Some(mounted) = Mounted::new("open_files_go_on_or_become_stale") else { return };
    let snapshots = mounted.snapshots();
    let rw = || OpenOptions::new().read(true).write(true).clone();
    snapshots.save(0).unwrap();
    fs::write(mounted.path("old"), "old state").unwrap();
    let old = rw().open(mounted.path("old")).unwrap();
    let orphan = rw().create_new(true).open(mounted.path("orphan")).unwrap();
    fs::remove_file(mounted.path("orphan")).unwrap();
    orphan.write_all_at(b"nameless", 0).unwrap();
    snapshots.save(1).unwrap();

    old.write_all_at(b"NEW", 0).unwrap();
    orphan.write_all_at(b"changed!", 0).unwrap();
    fs::rename(mounted.path("old"), mounted.path("moved")).unwrap();
    let new = rw().create_new(true).open(mounted.path("new")).unwrap();
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    let dir = File::open(dir).unwrap();

    snapshots.restore(1, false).unwrap();
    let mut text = [0; 9];
    old.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"old state");
    old.write_all_at(b"through the handle", 0).unwrap();
    assert_eq!(read(&mounted.path("old")), "through the handle");
    orphan.read_exact_at(&mut text[..8], 0).unwrap();
    assert_eq!(&text[..8], b"nameless");
    for stale in [&new, &dir] {
        assert_eq!(errno(&stale.metadata().unwrap_err()), Errno::ESTALE);
    }
    assert_eq!(errno(&new.write_at(b"x", 0).unwrap_err()), Errno::ESTALE);
    assert_eq!(errno(&new.read_at(&mut text, 0).unwrap_err()), Errno::ESTALE);
    let missing = rustix::fs::openat(&dir, "x", rustix::fs::OFlags::RDONLY, 0.into());
    assert_eq!(missing.unwrap_err(), rustix::io::Errno::STALE);
    assert_eq!(mounted.inodes_used(), 3);

    // A state in which none of them exists.
    snapshots.restore(0, false).unwrap();
    for stale in [&old, &orphan, &new] {
        assert_eq!(errno(&stale.metadata().unwrap_err()), Errno::ESTALE);
    }
    drop((old, orphan, new, dir));
    fs::write(mounted.path("x"), "").unwrap();
    // A process that another test is just starting may have copies of the descriptors for a moment.
    common::wait_until("closed files are gone", || mounted.inodes_used() == 2);
    mounted.tree();
}

#[test]
fn mapped_pages_agree_with_calls_and_with_restored_states() {
    let Some(mounted) = Mounted::new("mapped_pages") else { return };
    let snapshots = mounted.snapshots();
    let path = mounted.path("f");
    fs::write(&path, vec![b'a'; 4096]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mapping = Mapping::new(&file);
    snapshots.save(1).unwrap();

    file.write_all_at(b"w", 10).unwrap();
    assert_eq!(mapping.get(10), b'w', "a write shows in the mapping");
    mapping.set(20, b'm');
    let mut byte = [0];
    file.read_exact_at(&mut byte, 20).unwrap();
    assert_eq!(&byte, b"m", "a store shows in a read");
    mapping.sync();
    assert_eq!(fs::read(&path).unwrap()[20], b'm', "and through another handle");
    mapping.set(30, b'u'); // not synced: belongs to the state that is being left
    snapshots.save(2).unwrap();

    snapshots.restore(1, false).unwrap();
    assert_eq!([10, 20, 30].map(|at| mapping.get(at)), *b"aaa", "the mapping shows the old state");
    assert_eq!(fs::read(&path).unwrap(), vec![b'a'; 4096]);
    let reopened = File::open(&path).unwrap();
    drop(reopened);
    mapping.set(40, b'n');
    mapping.sync();
    assert_eq!(fs::read(&path).unwrap()[40], b'n', "and works");

    snapshots.restore(2, false).unwrap();
    assert_eq!([10, 20, 40].map(|at| mapping.get(at)), *b"wma");
    // A mapping does not keep a restore from ending, nor does one of a file that goes.
    snapshots.drop(1).unwrap();
    fs::remove_file(&path).unwrap();
    snapshots.restore(2, false).unwrap();
    assert_eq!(mapping.get(10), b'w');
}

/// A shell with its working directory in the mount and a file open.
fn shell_inside(dir: &Path) -> Child {
    let script = "exec 3>>held; while :; do echo x >&3; ls >/dev/null 2>&1; done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(dir).stdin(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn restoring_under_load_does_not_hang() {
    let Some(mounted) = Mounted::new("restoring_under_load") else { return };
    let snapshots = mounted.snapshots();
    fs::create_dir(mounted.path("d")).unwrap();
    snapshots.save(1).unwrap();
    let mut shell = shell_inside(&mounted.path("d"));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..3 {
            let (stop, mounted) = (&stop, &mounted);
            scope.spawn(move || {
                let name = mounted.path(&format!("client {client}"));
                while !stop.load(Ordering::Relaxed) {
                    // Everything may be gone at any moment.
                    let open = OpenOptions::new().read(true).write(true).create(true).clone();
                    let Ok(file) = open.open(&name) else { continue };
                    if file.set_len(4096).is_err() {
                        continue;
                    }
                    let _ = file.write_all_at(&[client; 4096], 0);
                    let _ = fs::rename(&name, mounted.path("d/shared"));
                    let _ = fs::read_dir(mounted.point.path()).map(Iterator::count);
                }
            });
        }
        for round in 0..200 {
            snapshots.restore(1, false).unwrap();
            if round % 10 == 0 {
                snapshots.save(100 + round).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    shell.kill().unwrap();
    shell.wait().unwrap();
    snapshots.restore(1, false).unwrap();
    assert_eq!(mounted.tree().entries.len(), 2);
}

#[test]
fn pickles_survive_a_remount() {
    let Some(mut mounted) = Mounted::new("pickles_survive_a_remount") else { return };
    let outside = tempfile::tempdir().unwrap();
    let (one, all) = (outside.path().join("one"), outside.path().join("all"));
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), vec![7; 100_000]).unwrap();
    fs::hard_link(mounted.path("d/f"), mounted.path("g")).unwrap();
    let times = fs::metadata(mounted.path("g")).unwrap();
    let snapshots = mounted.snapshots();
    snapshots.save(1).unwrap();
    let first = mounted.tree();
    fs::remove_file(mounted.path("g")).unwrap();
    snapshots.save(2).unwrap();
    let second = mounted.tree();
    assert_eq!(snapshots.pickle(Some(1), &one).unwrap(), 1);
    assert_eq!(snapshots.pickle(None, &all).unwrap(), 2);
    assert!(matches!(snapshots.pickle(Some(9), &one), Err(SnapshotError::NoSuchKey { key: 9 })));
    let error = snapshots.pickle(None, &outside.path().join("no/file")).unwrap_err().to_string();
    assert!(error.contains("no/file") && error.contains("No such file"), "{error}");
    assert!(fs::metadata(&all).unwrap().size() < 10_000, "compressed");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 2, "nothing half-written is left");

    // In the mount itself: the server is its own client.
    assert_eq!(snapshots.pickle(None, &mounted.path("inside")).unwrap(), 2);
    assert_eq!(fs::read(mounted.path("inside")).unwrap(), fs::read(&all).unwrap());
    let error = snapshots.load(&mounted.path("inside")).unwrap_err().to_string();
    assert!(error.contains("snapshot 1 exists already"), "{error}");

    drop(mounted.snapshots.take());
    mounted.mount.take().unwrap().unmount().unwrap();
    let mount = Mount::start(mounted.point.path(), Config::default(), Options::default()).unwrap();
    mounted.mount = Some(mount);
    mounted.snapshots = Some(Snapshots::open(mounted.point.path()).unwrap());
    let snapshots = mounted.snapshots();
    fs::write(mounted.path("of the new mount"), "").unwrap();
    let held = File::open(mounted.path("of the new mount")).unwrap();
    assert_eq!(snapshots.load(&all).unwrap(), 2);
    assert_eq!(snapshots.list().unwrap(), [1, 2]);
    snapshots.restore(2, false).unwrap();
    assert_eq!(second.differences(&mounted.tree()), []);
    assert_eq!(errno(&held.metadata().unwrap_err()), Errno::ESTALE, "another history");
    snapshots.restore(1, false).unwrap();
    assert_eq!(first.differences(&mounted.tree()), []);
    assert_eq!(fs::read(mounted.path("g")).unwrap(), vec![7; 100_000]);
    let after = fs::metadata(mounted.path("g")).unwrap();
    let mtime = |meta: &fs::Metadata| (meta.mtime(), meta.mtime_nsec());
    assert_eq!(mtime(&after), mtime(&times), "times are stored as times");
    fs::write(mounted.path("after"), "").unwrap();
    let now = fs::metadata(mounted.path("after")).unwrap();
    assert!(mtime(&now) > mtime(&after));
}

#[test]
fn a_damaged_pickle_changes_nothing() {
    let Some(mounted) = Mounted::new("a_damaged_pickle_changes_nothing") else { return };
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("pickle");
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), "some text that is to be kept").unwrap();
    let snapshots = mounted.snapshots();
    snapshots.save(1).unwrap();
    snapshots.pickle(None, &file).unwrap();
    let sound = fs::read(&file).unwrap();
    snapshots.drop(1).unwrap();
    let tree = mounted.tree();

    let refused = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let error = snapshots.load(&file).unwrap_err().to_string();
        assert!(error.contains("pickle"), "names the file: {error}");
        assert!(snapshots.list().unwrap().is_empty());
        assert_eq!(tree.differences(&mounted.tree()), []);
        error
    };
    for at in 0..sound.len() {
        for bit in [0x01, 0x80] {
            let mut flipped = sound.clone();
            flipped[at] ^= bit;
            refused(&flipped);
        }
    }
    for len in 0..sound.len() {
        refused(&sound[..len]);
    }
    let longer = [&sound[..], b"x"].concat();
    assert!(refused(&longer).contains("appended"));
    assert!(refused(&sound[..sound.len() - 1]).contains("cut short"));
    assert!(refused(b"hello").contains("does not contain snapshots"));
    let mut newer = sound.clone();
    newer[8] = 2;
    let error = refused(&newer);
    assert!(error.contains("version 2") && error.contains("newer fathom"), "{error}");
    let error = snapshots.load(&outside.path().join("missing")).unwrap_err().to_string();
    assert!(error.contains("missing: No such file"), "{error}");

    fs::write(&file, &sound).unwrap();
    assert_eq!(snapshots.load(&file).unwrap(), 1);
    snapshots.restore(1, true).unwrap();
    assert_eq!(tree.differences(&mounted.tree()), []);
}
