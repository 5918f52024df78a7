//! `KernelSubject`: every recipe, and that nothing is left of it.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use fathom_core::{Capability, Errno, Op, Subject};
use fathom_subjects::sys::View;
use fathom_subjects::{KernelSubject, Recipe, SubjectError};

/// The subject, or `None` after saying why not.
fn subject(test: &str, recipe: Recipe) -> Option<KernelSubject> {
    if !is_root() {
        skip(test, "needs root");
        return None;
    }
    match KernelSubject::new(recipe, View::default()) {
        Ok(subject) => Some(subject),
        Err(missing @ SubjectError::NoProgram { .. }) => {
            skip(test, missing);
            None
        }
        Err(error) => panic!("{error}"),
    }
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
    every_operation(&mut subject, !matches!(name, "ext2" | "ext3"));
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

macro_rules! lives {
    ($($test:ident: $recipe:literal),* $(,)?) => {
        $(#[test] fn $test() { life($recipe); })*

        #[test]
        fn every_recipe_has_a_test() {
            let recipes: Vec<String> = Recipe::all().into_iter().map(|recipe| recipe.name).collect();
            assert_eq!(recipes, [$($recipe),*]);
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
    let mut recipe = Recipe::named("ext4").unwrap();
    recipe.format.as_mut().unwrap().command[0] = "mkfs.missing".to_owned();
    let error = KernelSubject::new(recipe.clone(), View::default()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "mkfs.missing is not installed: it is in the Debian package e2fsprogs"
    );
    recipe.format.as_mut().unwrap().command = vec!["false".to_owned()];
    let error = KernelSubject::new(recipe.clone(), View::default()).err().unwrap();
    assert!(error.to_string().starts_with("false failed"), "{error}");
    recipe.format.as_mut().unwrap().command = vec!["true".to_owned()];
    let error = KernelSubject::new(recipe.clone(), View::default()).err().unwrap();
    assert!(error.to_string().starts_with("cannot mount ext4 (superblock): "), "{error}");
    recipe.fs_type = "ext5".to_owned();
    let error = KernelSubject::new(recipe, View::default()).err().unwrap();
    assert!(error.to_string().contains("is the file system in this kernel?"), "{error}");
    let mut recipe = Recipe::named("tmpfs").unwrap();
    recipe.options.push("nonsense=1".to_owned());
    let error = KernelSubject::new(recipe, View::default()).err().unwrap().to_string();
    assert!(error.contains("(nonsense=1)") && error.contains("Unknown parameter"), "{error}");
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
