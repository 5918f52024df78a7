//! `KernelSubject`: every recipe, and that nothing is left of it.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use fathom_core::{Capability, Errno, FsPath, Op, RestoreMethod, Subject, Testbed};
use fathom_subjects::kernel::Options;
use fathom_subjects::sys::View;
use fathom_subjects::{KernelSubject, Recipe, SubjectError};

/// The subject, or `None` after saying why not.
fn subject(test: &str, recipe: Recipe) -> Option<KernelSubject> {
    if !is_root() {
        skip(test, "needs root");
        return None;
    }
    if let Some(fs_type) = recipe.fs_types().iter().find(|fs_type| !kernel_has(fs_type)) {
        skip(test, format!("no {fs_type} in the kernel"));
        return None;
    }
    match KernelSubject::new(recipe, View::default()) {
        Ok(subject) => Some(subject),
        Err(missing @ (SubjectError::NoProgram { .. } | SubjectError::KernelTooOld { .. })) => {
            skip(test, missing);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn kernel_has(fs_type: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap();
    known.lines().any(|line| line.split_whitespace().last() == Some(fs_type))
}

fn named(test: &str, name: &str) -> Option<KernelSubject> {
    subject(test, Recipe::named(name).unwrap())
}

fn is_attached(device: &Path) -> bool {
    let name = device.file_name().unwrap();
    Path::new("/sys/block").join(name).join("loop/backing_file").exists()
}

/// The last close may be the kernel's own, a moment later.
#[track_caller]
fn expect_detached(device: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_attached(device) {
        assert!(Instant::now() < deadline, "{} is still attached", device.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap()
}

/// The whole life of one file system.
fn life(name: &str) {
    let Some(mut subject) = subject(name, Recipe::named(name).unwrap()) else { return };
    let device = subject.device().map(Path::to_owned);
    assert_eq!(subject.observe().unwrap().entries.len(), 1, "a new file system is empty");
    every_operation(&mut subject, !name.contains("ext2") && !name.contains("ext3"));
    beyond_the_reference(&mut subject);
    identities(&mut subject);
    devices(&mut subject);
    let before = subject.observe().unwrap();
    assert!(before.entries.values().all(|entry| entry.broken.is_none()), "{before}");
    if subject.capabilities().contains(&Capability::Remount) {
        expect(&mut subject, create(20, "orphan"), ok(0));
        expect(&mut subject, Op::Unlink { path: "orphan".into() }, ok(0));
        expect(&mut subject, Op::Remount, ok(0));
        expect(&mut subject, Op::Close { slot: 20 }, err(Errno::EBADF));
        let after = subject.observe().unwrap();
        assert_eq!(before.differences(&after), [], "{name}");
        assert_eq!(before.digest(), after.digest());
    } else {
        assert!(subject.apply(&Op::Remount).is_err());
    }
    subject.reset().unwrap();
    assert_eq!(subject.observe().unwrap().entries.len(), 1, "reset goes back to the beginning");
    let device_after_reset = subject.device().map(Path::to_owned);
    drop(subject);
    for device in [device, device_after_reset].into_iter().flatten() {
        expect_detached(&device);
    }
}

/// Recipes with unusual options, which may hit bugs of the kernel: they live in guests.
const VARIANTS: [&str; 19] = [
    "ext4-inline_data",
    "ext4-bigalloc",
    "ext4-indirect",
    "ext4-ea_inode",
    "ext4-encrypt",
    "ext4-casefold",
    "ext4-datajournal",
    "xfs-v4",
    "xfs-rmapbt",
    "xfs-1k",
    "btrfs-holes",
    "btrfs-compress",
    "btrfs-nodatacow",
    "overlay-redirect_dir",
    "overlay-metacopy",
    "overlay-index",
    "overlay-nfs_export",
    "overlay-xino",
    "overlay-volatile",
];

macro_rules! lives {
    ($($test:ident: $recipe:literal),* $(,)?) => {
        $(#[test] fn $test() { life($recipe); })*

        #[test]
        fn every_recipe_has_a_test() {
            let recipes: Vec<String> = Recipe::all().into_iter().map(|recipe| recipe.name).collect();
            let (variants, recipes): (Vec<_>, Vec<_>) =
                recipes.into_iter().partition(|name| VARIANTS.contains(&name.as_str()));
            assert_eq!(recipes, [$($recipe),*]);
            assert_eq!(variants, VARIANTS);
        }
    };
}

lives! {
    tmpfs: "tmpfs",
    ext2: "ext2",
    ext3: "ext3",
    ext4: "ext4",
    ext4_1k: "ext4-1k",
    xfs: "xfs",
    btrfs: "btrfs",
    f2fs: "f2fs",
    jfs: "jfs",
    nilfs2: "nilfs2",
    reiserfs: "reiserfs",
    gfs2: "gfs2",
    ocfs2: "ocfs2",
    bcachefs: "bcachefs",
    vfat: "vfat",
    exfat: "exfat",
    ntfs3: "ntfs3",
    minix: "minix",
    hfsplus: "hfsplus",
    udf: "udf",
    jffs2: "jffs2",
    ubifs: "ubifs",
    overlay: "overlay",
    overlay_ext2: "overlay:ext2",
    overlay_ext3: "overlay:ext3",
    overlay_ext4: "overlay:ext4",
    overlay_ext4_1k: "overlay:ext4-1k",
    overlay_xfs: "overlay:xfs",
    overlay_btrfs: "overlay:btrfs",
    overlay_f2fs: "overlay:f2fs",
}

#[test]
fn no_mount_is_visible_to_anybody() {
    let before = mounts();
    let Some(subject) = subject("no_mount_is_visible_to_anybody", Recipe::named("tmpfs").unwrap())
    else {
        return;
    };
    assert_eq!(mounts(), before);
    drop(subject);
    assert_eq!(mounts(), before);
}

#[test]
fn remounting_many_times_works() {
    let Some(mut subject) = subject("remounting_many_times_works", Recipe::named("ext4").unwrap())
    else {
        return;
    };
    for round in 0..50 {
        expect(&mut subject, create(0, &format!("f{round}")), ok(0));
        expect(&mut subject, pwrite(0, 0, round, 1000), ok(1000));
        expect(&mut subject, Op::Remount, ok(0));
    }
    assert_eq!(subject.observe().unwrap().entries.len(), 51);
}

/// A full disk under a mapped hole raises `SIGBUS` in an ordinary program; here it is an outcome.
#[test]
fn storing_into_a_hole_of_a_full_disk_is_survived() {
    let mut recipe = Recipe::named("ext2").unwrap();
    recipe.image_bytes = 1 << 20;
    recipe.format.as_mut().unwrap().command =
        ["mkfs.ext2", "-q", "-F", "-b", "1024", "-m", "0", "-N", "32"].map(str::to_owned).into();
    let Some(mut subject) = subject("storing_into_a_hole_of_a_full_disk_is_survived", recipe)
    else {
        return;
    };
    expect(&mut subject, create(0, "hole"), ok(0));
    expect(&mut subject, pwrite(0, 1 << 16, 1, 1), ok(1));
    expect(&mut subject, create(1, "filler"), ok(0));
    let full = (0..1024).find_map(|block| {
        let written = subject.apply(&pwrite(1, block * 1024, 2, 1024)).unwrap();
        written.result.err()
    });
    assert_eq!(full, Some(Errno::ENOSPC));
    let data = fathom_core::Pattern { seed: 3, len: 8192 };
    let store = Op::MmapStore { slot: 0, offset: 4096, data, sync: Default::default() };
    expect(&mut subject, store, err(Errno::EFAULT));
}

#[test]
fn errors_say_what_to_do() {
    if !is_root() {
        let error =
            KernelSubject::new(Recipe::named("ext4").unwrap(), View::default()).err().unwrap();
        assert!(error.to_string().starts_with("ext4 needs root"), "{error}");
        return;
    }
    let refused =
        |recipe: Recipe| KernelSubject::new(recipe, View::default()).err().unwrap().to_string();
    let with_command = |command: &[&str]| {
        let mut recipe = Recipe::named("ext4").unwrap();
        let command = command.iter().map(|&word| word.to_owned());
        recipe.format.as_mut().unwrap().command = command.collect();
        recipe
    };
    assert_eq!(
        refused(with_command(&["mkfs.missing"])),
        "mkfs.missing is not installed: it is in the Debian package e2fsprogs"
    );
    let error = refused(with_command(&["false"]));
    assert_eq!(error, "`false` failed on a device of 65536 KiB: ");
    let unformatted = with_command(&["true"]);
    let error = refused(unformatted.clone());
    assert!(error.starts_with("cannot mount ext4 (superblock): "), "{error}");
    let error = refused(Recipe { fs_type: "ext5".to_owned(), ..unformatted });
    assert!(error.contains("is the file system in this kernel?"), "{error}");

    let with_options = |name: &str, format: &[&str], mount: &[&str]| {
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect();
        let options = Options { format: words(format), mount: words(mount), ..Options::default() };
        Recipe::named(name).unwrap().with(&options).unwrap()
    };
    for name in ["tmpfs", "ext4", "overlay:ext4"] {
        let error = refused(with_options(name, &[], &["nonsense=1"]));
        assert!(error.contains("(nonsense=1)"), "{error}");
    }
    let error = refused(with_options("tmpfs", &[], &["nonsense=1"]));
    assert!(error.contains("Unknown parameter"), "what the kernel said: {error}");
    let error = refused(with_options("ext4", &["--nonsense"], &[]));
    assert!(error.contains("nonsense") && error.contains("mkfs.ext4"), "{error}");
    let small = Recipe { image_bytes: 64 << 10, ..Recipe::named("ext4").unwrap() };
    let error = refused(small);
    assert!(error.contains("on a device of 64 KiB: "), "{error}");
    let mut old = Recipe::named("overlay").unwrap();
    old.layer.as_mut().unwrap().kernel_min = (99, 1);
    assert!(refused(old).starts_with("overlay needs Linux 99.1 or newer, this is "));
}

/// Many objects of all kinds; different ones for different seeds.
fn populate(subject: &mut dyn Subject, seed: u64) {
    for dir in 0..3 {
        expect(subject, mkdir(&format!("d{dir}-{seed}"), 0o755), ok(0));
        for file in 0..3 {
            let path = format!("d{dir}-{seed}/f{file}");
            expect(subject, create(0, &path), ok(0));
            let len = 3000 * file + 100 * seed;
            expect(subject, pwrite(0, 0, seed, len), ok(len));
            expect(subject, Op::Close { slot: 0 }, ok(0));
        }
        expect(subject, symlink("f1", &format!("d{dir}-{seed}/l")), ok(0));
    }
}

/// Saves, changes, restores, for each way, there and back again.
fn going_back(name: &str) {
    let Some(mut subject) = named(&format!("going_back_{name}"), name) else { return };
    subject.set_saved_bytes_max(32 << 10);
    let ways = subject.restore_methods();
    assert_eq!(ways.last(), Some(&RestoreMethod::Remount));
    for (way, seed) in ways.into_iter().zip(1..) {
        populate(&mut subject, seed);
        let first = (subject.save(way).unwrap(), subject.observe().unwrap());
        populate(&mut subject, seed + 10);
        let stale = format!("d1-{seed}/f2");
        expect(&mut subject, Op::Unlink { path: stale.as_str().into() }, ok(0));
        let second = (subject.save(way).unwrap(), subject.observe().unwrap());
        assert_ne!(first.1.digest(), second.1.digest());
        expect(&mut subject, mkdir("later", 0o755), ok(0));
        for (saved, tree) in [&first, &second, &first, &first, &second] {
            expect(&mut subject, create(0, "open"), ok(0));
            subject.restore(*saved).unwrap();
            let found = subject.observe().unwrap();
            assert_eq!(tree.differences(&found), [], "{name} by {way}");
            assert_eq!(tree.digest(), found.digest(), "{name} by {way}");
            expect(&mut subject, Op::Close { slot: 0 }, err(Errno::EBADF));
        }
        // Through an image, as it is stored with a finding.
        let image = subject.image(first.0).unwrap().unwrap();
        subject.forget(first.0);
        assert!(subject.restore(first.0).is_err(), "it was forgotten");
        let adopted = subject.adopt(&image).unwrap();
        subject.restore(adopted).unwrap();
        assert_eq!(first.1.differences(&subject.observe().unwrap()), [], "{name} by {way}");
        let refused = subject.adopt(&image[1..]).unwrap_err().to_string();
        assert!(refused.contains(&format!("{} bytes", image.len() - 1)), "{refused}");
        let checked = subject.fsck().unwrap().unwrap();
        assert!(checked.clean, "{checked:?}");
        expect(&mut subject, create(0, "open"), ok(0));
        assert!(subject.save(way).unwrap_err().to_string().contains("a slot is open"));
        subject.reset().unwrap();
        assert_eq!(subject.observe().unwrap().entries.len(), 1);
    }
    assert!(subject.save(RestoreMethod::Clone).is_err());
    assert_eq!(subject.complaints().unwrap(), Vec::<String>::new());
}

macro_rules! going_back {
    ($($test:ident: $recipe:literal),* $(,)?) => {
        $(#[test] fn $test() { going_back($recipe); })*
    };
}

going_back! {
    going_back_on_ext2: "ext2",
    going_back_on_ext4: "ext4",
    going_back_on_ext4_1k: "ext4-1k",
    going_back_on_xfs: "xfs",
    going_back_on_btrfs: "btrfs",
    going_back_on_overlay_ext4: "overlay:ext4",
}

#[test]
fn without_a_disk_there_is_no_way_back() {
    for name in ["tmpfs", "overlay"] {
        let Some(mut subject) = named("without_a_disk_there_is_no_way_back", name) else { return };
        assert_eq!(subject.restore_methods(), []);
        assert!(subject.save(RestoreMethod::Remount).is_err());
        assert!(subject.adopt(&[]).is_err());
        assert_eq!(subject.fsck().unwrap(), None);
    }
}

#[test]
fn observing_paths_shows_what_observing_the_tree_shows() {
    for name in ["tmpfs", "ext4", "xfs", "btrfs", "overlay"] {
        let Some(mut subject) = named("observing_paths_shows_what_observing_the_tree_shows", name)
        else {
            return;
        };
        every_operation(&mut subject, true);
        devices(&mut subject);
        let tree = subject.observe().unwrap();
        let mut paths: Vec<FsPath> = tree.entries.keys().cloned().collect();
        assert!(paths.len() > 10);
        paths.extend(["missing", "missing/x", "a/not a directory"].map(FsPath::from));
        for (path, seen) in paths.iter().zip(subject.observe_paths(&paths).unwrap()) {
            assert_eq!(seen, tree.path_state(path), "{name}: {path}");
        }
    }
}

/// Damages the unmounted disk of a saved state, so that the damage is there after restoring it.
fn damaged(
    subject: &mut KernelSubject,
    damage: impl FnOnce(&mut [u8]),
) -> Result<(), fathom_core::HarnessFault> {
    let saved = subject.save(RestoreMethod::Remount).unwrap();
    let mut image = subject.image(saved).unwrap().unwrap();
    damage(&mut image);
    let adopted = subject.adopt(&image).unwrap();
    subject.restore(adopted)
}

#[test]
fn the_checker_sees_damage_and_nothing_else() {
    for name in ["ext2", "ext3", "ext4", "ext4-1k", "xfs", "btrfs"] {
        let Some(mut subject) = named("the_checker_sees_damage", name) else { continue };
        populate(&mut subject, 1);
        let before = subject.observe().unwrap();
        let checked = subject.fsck().unwrap().unwrap();
        assert!(checked.clean && checked.code == Some(0), "{name}: {checked:?}");
        assert_eq!(before.differences(&subject.observe().unwrap()), []);
    }
    let Some(mut subject) = named("the_checker_sees_damage", "ext2") else { return };
    populate(&mut subject, 1);
    // A block bitmap that says that all is free: the one of the first group, whose number is the
    // first of the group descriptor in the block after the superblock.
    damaged(&mut subject, |image| {
        let bitmap = u32::from_le_bytes(image[2048..2052].try_into().unwrap()) as usize;
        image[bitmap * 1024..][..512].fill(0);
    })
    .unwrap();
    let checked = subject.fsck().unwrap().unwrap();
    assert!(!checked.clean && checked.code == Some(4), "{checked:?}");
    assert!(checked.output.contains("Block bitmap differences"), "{checked:?}");
    assert_eq!(checked.command, "e2fsck -fn IMAGE");
}

#[test]
fn the_kernel_is_heard_when_it_complains_of_our_device_only() {
    let test = "the_kernel_is_heard";
    let Some(mut ours) = named(test, "ext4") else { return };
    let Some(mut other) = named(test, "ext4") else { return };
    for subject in [&mut ours, &mut other] {
        populate(subject, 1);
        expect(subject, Op::Remount, ok(0));
        subject.observe().unwrap();
        assert_eq!(subject.complaints().unwrap(), Vec::<String>::new());
    }
    // The name of an entry in a directory block: its checksum is then wrong.
    damaged(&mut ours, |image| {
        let block = image.chunks_mut(4096).rposition(|block| {
            block.windows(3).any(|name| name == b"f0\0") && block.windows(3).any(|n| n == b"f1\0")
        });
        let block = &mut image[block.unwrap() * 4096..][..4096];
        let at = block.windows(3).position(|name| name == b"f1\0").unwrap();
        block[at] = b'g';
    })
    .unwrap();
    let tree = ours.observe().unwrap();
    assert!(tree.entries.values().any(|entry| entry.broken.is_some()), "{tree}");
    let complaints = ours.complaints().unwrap();
    let device = ours.device().unwrap().file_name().unwrap().to_str().unwrap();
    assert!(
        complaints.iter().any(|line| line.contains("EXT4-fs error") && line.contains(device)),
        "{complaints:?}"
    );
    assert_eq!(ours.complaints().unwrap(), Vec::<String>::new(), "each is told once");
    assert_eq!(other.complaints().unwrap(), Vec::<String>::new(), "not ours");
}

const HOLD: &str = "FATHOM_TEST_HOLD";

/// Not a test of its own: what the next one kills.
#[test]
fn holder() {
    let Ok(name) = std::env::var(HOLD) else { return };
    let mut subject = KernelSubject::new(Recipe::named(&name).unwrap(), View::default()).unwrap();
    expect(&mut subject, create(0, "f"), ok(0));
    expect(&mut subject, pwrite(0, 0, 1, 100_000), ok(100_000));
    println!("\nholding {}", subject.device().unwrap().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    if !is_root() {
        return skip("a_killed_process_leaves_nothing_behind", "needs root");
    }
    let before = mounts();
    for name in ["ext4", "xfs", "btrfs"] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "holder", "--nocapture"])
            .env(HOLD, name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let device = lines.find_map(|line| line.strip_prefix("holding ").map(PathBuf::from));
        child.kill().unwrap();
        child.wait().unwrap();
        let Some(device) = device else {
            skip("a_killed_process_leaves_nothing_behind", format!("{name} cannot be made"));
            continue;
        };
        expect_detached(&device);
    }
    assert_eq!(mounts(), before);
}

/// A recipe that leaves little space makes `ENOSPC` come soon, shows nothing of how it does that, and
/// does it again after a remount and from the start.
#[test]
fn little_space_is_left_where_that_is_asked_for() {
    if !is_root() {
        return skip("little_space_is_left_where_that_is_asked_for", "needs root");
    }
    for name in ["ext4", "ext2", "xfs", "tmpfs"] {
        let options = Options { space_bytes: Some(200_000), ..Options::default() };
        let recipe = Recipe::named(name).unwrap().with(&options).unwrap();
        let Ok(mut subject) = KernelSubject::new(recipe, View::default()) else {
            skip("little_space_is_left_where_that_is_asked_for", format!("{name} cannot be made"));
            continue;
        };
        for round in 0..2 {
            assert_eq!(subject.observe().unwrap().entries.len(), 1, "{name}: only the root");
            expect(&mut subject, create(0, "f"), ok(0));
            expect(&mut subject, pwrite(0, 0, 1, 100_000), ok(100_000));
            let mut wrote = 100_000;
            let full = loop {
                let answer = subject.apply(&pwrite(0, wrote, 1, 4_096)).unwrap();
                match answer.result {
                    Ok(4_096) => wrote += 4_096,
                    other => break other,
                }
                assert!(wrote < 1_000_000, "{name}: {wrote} bytes in what should be 200,000");
            };
            assert!(full == Err(Errno::ENOSPC) || full.is_ok(), "{name}: {full:?}");
            if round == 0 {
                subject.reset().unwrap();
            }
        }
    }
}
