//! Recorded disks are what the kernel wrote. Need root.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use fathom_block::disks::{Checked, PruneCounts};
use fathom_block::{Event, Level};
use fathom_core::flags::OpenFlags;
use fathom_core::{FsPath, Mode, Pattern};

use super::*;

/// A file system, or why it cannot be had here.
fn disks(name: &str) -> Option<KernelDisks> {
    if !rustix::process::geteuid().is_root() {
        writeln!(std::io::stdout(), "SKIP {name}: needs root").unwrap();
        return None;
    }
    let profile = CrashProfile::of(name);
    let recipe = profile.adapt(Recipe::named(name).unwrap());
    Some(KernelDisks::new(name, recipe, profile, 2).unwrap())
}

fn file(slot: u8, path: &str, len: u64) -> Vec<Op> {
    let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT;
    vec![
        Op::Open { slot, path: FsPath::from(path), flags, mode: Mode(0o644) },
        Op::Pwrite { slot, offset: 0, data: Pattern { seed: len, len } },
        Op::Fsync { slot },
    ]
}

fn workload() -> Vec<Op> {
    let mut ops = file(0, "a", 5000);
    ops.push(Op::Mkdir { path: FsPath::from("d"), mode: Mode(0o755) });
    ops.extend(file(1, "d/b", 100_000));
    ops.push(Op::Unlink { path: FsPath::from("a") });
    ops.push(Op::Sync);
    ops
}

fn record(disks: &KernelDisks, ops: &[Op], end: End) -> Recording {
    let ops: Vec<&Op> = ops.iter().collect();
    let blank = disks.format().unwrap();
    disks.record(&blank, &Workload { ops: &ops, end, look: true }).unwrap().unwrap()
}

fn shows_what_it_recorded(name: &str) {
    let Some(disks) = disks(name) else { return };
    let blank = disks.format().unwrap();
    let recording = record(&disks, &workload(), End::Unmount);
    assert!(recording.outcomes.iter().all(|outcome| outcome.result.is_ok()), "{recording:?}");
    assert_eq!(recording.marks.len(), recording.outcomes.len() + 2);
    assert!(recording.marks.is_sorted());
    assert!(recording.log.events().any(|event| event == Event::Flush));
    // The log makes the disk that the server has.
    let exact = disks.recorders.each([recording.log.clone()], |place, log| {
        assert!(place.disk.is_unmerged());
        assert_ne!(place.disk.server().id(), std::process::id());
        Ok(place.disk.is_exact(&log))
    });
    assert_eq!(exact.unwrap(), [true]);
    // And mounted again it shows what was there; everything that was synced is on every disk after.
    let after = recording.disk_after(&blank);
    let questions = Questions {
        recheck: Some(fathom_block::disks::Recheck { torn: false }),
        usable: true,
        checker: true,
        ..Questions::TREE
    };
    let facts = disks.examine(&[after, blank.clone()], &questions).unwrap();
    let tree = |facts: &Facts| facts.view.as_ref().unwrap().tree.clone().unwrap();
    assert_eq!(*tree(&facts[0]), recording.tree.clone().unwrap());
    assert_eq!(tree(&facts[1]).entries.len(), 1);
    for facts in &facts {
        assert_eq!(facts.trouble, None);
        assert_eq!(facts.checker, fathom_block::disks::Checked::Content);
        assert_eq!(facts.kernel_lines, Vec::<String>::new());
    }
    // The power fails right after the last sync: all of it is there.
    let synced = record(&disks, &workload(), End::PowerOff);
    let end = *synced.marks.last().unwrap();
    let window = Window::new(&blank, &synced.log, 512).between(end, end);
    let mut images = Vec::new();
    let bounds = Bounds { subsets_max: 8, cuts_max: 1 };
    let _ = Level::Epoch.enumerator(&bounds).visit(&window, &mut |_, image| {
        images.push(image.clone());
        ControlFlow::Continue(())
    });
    for facts in disks.examine(&images, &questions).unwrap() {
        assert_eq!(*tree(&facts), synced.tree.clone().unwrap());
    }
}

#[test]
fn ext4_shows_what_it_recorded() {
    shows_what_it_recorded("ext4");
}

#[test]
fn xfs_shows_what_it_recorded() {
    shows_what_it_recorded("xfs");
}

#[test]
fn btrfs_shows_what_it_recorded() {
    shows_what_it_recorded("btrfs");
}

/// An examination tells what it read; what it did not read can be anything.
fn what_is_not_read_does_not_matter(name: &str) {
    let Some(disks) = disks(name) else { return };
    let disk = record(&disks, &workload(), End::PowerOff).disk_after(&disks.format().unwrap());
    for checker in [false, true] {
        let recheck = checker.then_some(fathom_block::disks::Recheck { torn: false });
        let questions = Questions { recheck, usable: checker, checker, ..Questions::TREE };
        let told = disks.examine_telling_reads(std::slice::from_ref(&disk), &questions).unwrap();
        let told = told.unwrap().remove(0);
        let plain = disks.examine(std::slice::from_ref(&disk), &questions).unwrap().remove(0);
        assert!(told.agree_with(&plain), "{told:?} {plain:?}");
        assert!(plain.read.unordered_units().is_none() && plain.read.units().is_none());
        let units: Vec<u32> = told.read.unordered_units().unwrap().collect();
        let all = disk.size() / told.read.unit_bytes();
        assert!(!units.is_empty() && units.len() < all / 2, "{} of {all}", units.len());
        let mut other = disk.clone();
        for unit in (0..all).filter(|unit| !units.contains(&(*unit as u32))) {
            other.write(unit * told.read.unit_bytes(), &[0xfa; 512]);
        }
        let other = disks.examine(&[other], &questions).unwrap().remove(0);
        assert!(other.agree_with(&told), "{name}, {questions:?}: {other:?}");
    }
}

#[test]
fn what_ext4_does_not_read_does_not_matter() {
    what_is_not_read_does_not_matter("ext4");
}

#[test]
fn what_btrfs_does_not_read_does_not_matter() {
    what_is_not_read_does_not_matter("btrfs");
}

/// The disks of one `fsync` are few once the journal is replayed: the rest of their examinations is known from
/// each other, and one that the checker rejects is not taken for one that it does not.
#[test]
fn what_recovery_leaves_alike_is_used_once() {
    let Some(disks) = disks("ext4") else { return };
    let blank = disks.format().unwrap();
    let recording = record(&disks, &file(0, "a", 5000), End::PowerOff);
    let (from, to) = (recording.marks[0], *recording.marks.last().unwrap());
    let window = Window::new(&blank, &recording.log, 4096).between(from, to);
    let mut images = Vec::new();
    let bounds = Bounds { subsets_max: 24, cuts_max: 1 };
    let _ = Level::Epoch.enumerator(&bounds).visit(&window, &mut |_, image| {
        images.push(image.clone());
        ControlFlow::Continue(())
    });
    assert!(images.len() > 24, "{} disks", images.len());
    let questions = Questions {
        recheck: Some(fathom_block::disks::Recheck { torn: false }),
        usable: true,
        checker: true,
        ..Questions::TREE
    };
    let (mut rests, began) = (Vec::new(), Instant::now());
    for facts in disks.examine(&images, &questions).unwrap() {
        assert_eq!((&facts.trouble, &facts.checker), (&None, &Checked::Content));
        rests.push(facts.rest);
    }
    assert!(rests.iter().all(|rest| rest.refuted == 0), "{rests:?}");
    // The seconds of the clock are in the disk: on a machine that takes long for each, none is like another.
    if began.elapsed() < Duration::from_millis(200) * images.len() as u32 {
        let known = rests.iter().map(|rest| rest.pruned).sum::<u64>();
        let verified = rests.iter().map(|rest| rest.verified).sum::<u64>();
        assert!(known > verified && verified > 0, "{rests:?}");
    } else {
        writeln!(std::io::stdout(), "SKIP a part: {rests:?} on a busy machine").unwrap();
    }
    // Inode 9 is nobody's: only the checker looks at it. (On a disk without a journal to replay.)
    let mut wrong = record(&disks, &file(0, "a", 5000), End::Unmount).disk_after(&blank);
    let mut table = [0; 4];
    wrong.read(4096 + 8, &mut table);
    let inode = u32::from_le_bytes(table) as usize * 4096 + 8 * 256;
    wrong.write(inode, &0o100_644_u16.to_le_bytes());
    wrong.write(inode + 26, &1_u16.to_le_bytes());
    for facts in disks.examine(&[wrong.clone(), wrong], &questions).unwrap() {
        assert!(matches!(facts.checker, Checked::Complains(_)), "{facts:?}");
        assert_eq!(facts.rest, PruneCounts::default());
    }
}

/// A server that dies takes nothing with it: the file system gets errors, and is unmounted.
#[test]
fn the_death_of_the_server_is_a_fault_and_leaves_nothing() {
    let Some(disks) = disks("ext4") else { return };
    let blank = disks.format().unwrap();
    let op = Op::Sync;
    let mut last = None;
    // Several times: for a moment a process that was killed is neither there nor dead.
    for _ in 0..10 {
        let path = disks.recorders.each([()], |place, ()| {
            place.disk.server().kill();
            Ok(place.disk.device().path().to_owned())
        });
        last = path.unwrap().pop();
        let workload = Workload { ops: &[&op], end: End::PowerOff, look: false };
        let failed = disks.record(&blank, &workload);
        assert!(failed.is_err(), "the file system is not to blame: {failed:?}");
        // The next one has a new disk.
        let again = record(&disks, &workload_of_one(), End::PowerOff);
        assert_eq!(again.outcomes.len(), 1);
    }
    let path = last.unwrap();
    drop(disks);
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let backing = format!("/sys/block/{name}/loop/backing_file");
    // Another test may have got the device in the meantime; what is left behind stays for ever.
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::fs::read_to_string(&backing).is_ok_and(|file| file.contains("/disk")) {
        assert!(Instant::now() < deadline, "{name} is still attached");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn workload_of_one() -> Vec<Op> {
    vec![Op::Mkdir { path: FsPath::from("d"), mode: Mode(0o755) }]
}

/// A device that somebody else claims for a moment, as a program that is being started does with its copies of our
/// descriptors, is no fault of the disk on it.
#[test]
fn a_claimed_device_is_waited_for() {
    let Some(disks) = disks("ext4") else { return };
    let blank = disks.format().unwrap();
    let path = disks.recorders.each([()], |place, ()| Ok(place.disk.device().path().to_owned()));
    let path = path.unwrap().pop().unwrap();
    let claimed =
        std::fs::File::options().read(true).custom_flags(libc::O_EXCL).open(path).unwrap();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(claimed);
    });
    let workload = Workload { ops: &[], end: End::PowerOff, look: true };
    let started = Instant::now();
    let recording = disks.record(&blank, &workload).unwrap().unwrap();
    assert_eq!(recording.tree.unwrap().entries.len(), 1);
    assert!(started.elapsed() >= Duration::from_millis(200), "it did not wait");
    release.join().unwrap();
}
