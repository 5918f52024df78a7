//! `cargo xtask bench testbed`: what looking and going back cost on each file system.
//!
//! Looking: an operation, then a glance at the paths that it touched (one to three). Going back: save,
//! change a little, restore, for each way. All on one processor, on a tree of 15 objects.

use std::time::{Duration, Instant};

use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::{FsPath, Mode, Op, Pattern, Subject, Target, Testbed};
use fathom_model::{Config, ModelSubject};
use fathom_subjects::fuse::ReffsSubject;
use fathom_subjects::sys::View;
use fathom_subjects::{KernelSubject, Recipe};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

/// How long each rate is measured.
const SPAN: Duration = Duration::from_secs(2);

/// Rounds of going back.
const ROUNDS: usize = 100;

const NAMES: [&str; 8] =
    ["tmpfs", "ext2", "ext4", "ext4-1k", "xfs", "btrfs", "overlay", "overlay:ext4"];

fn main() {
    let mut ext4_glances = 0.0;
    println!("{:14} {:>12} {:>14}", "per second", "glances", "op + glance");
    for name in NAMES {
        let Some(mut subject) = kernel(name) else { continue };
        let (glances, both) = looking(&mut subject);
        println!("{name:14} {glances:>12.0} {both:>14.0}");
        if name == "ext4" {
            ext4_glances = glances;
        }
    }
    println!("\n{:22} {:>10} {:>10} {:>10} {:>10}", "µs, median (p10)", "save", "", "restore", "");
    let mut model = ModelSubject::new(Config::default()).expect("the model");
    going_back("model", &mut model);
    if rustix::process::geteuid().is_root() {
        // Keeps this thread on one processor from here on, as it does in a campaign.
        let mut reffs = ReffsSubject::new(Config::default(), View::default()).expect("RefFS");
        going_back("reffs", &mut reffs);
    }
    for name in NAMES {
        let Some(mut subject) = kernel(name) else { continue };
        going_back(name, &mut subject);
    }
    println!("{{\"bench\":\"territory\",\"ext4_glances_per_s\":{ext4_glances:.0}}}");
}

fn kernel(name: &str) -> Option<KernelSubject> {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).expect("a processor that is in use");
    let recipe = Recipe::named(name).expect("a recipe");
    match KernelSubject::new(recipe, View::default()) {
        Ok(subject) => Some(subject),
        Err(why) => {
            println!("SKIP {name}: {why}");
            None
        }
    }
}

fn apply(subject: &mut dyn Subject, op: &Op) {
    let outcome = subject.apply(op).expect("the harness works");
    assert!(outcome.result.is_ok(), "{op:?}: {outcome}");
}

/// Three directories with three files and a link each, and some attributes.
fn small_tree(subject: &mut dyn Subject) {
    for dir in 0..3 {
        apply(subject, &Op::Mkdir { path: format!("d{dir}").as_str().into(), mode: Mode(0o755) });
        for file in 0..3 {
            let path: FsPath = format!("d{dir}/f{file}").as_str().into();
            let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT;
            apply(subject, &Op::Open { slot: 0, path, flags, mode: Mode(0o644) });
            apply(subject, &Op::Write { slot: 0, data: Pattern { seed: dir, len: 4000 * file } });
            apply(subject, &Op::Close { slot: 0 });
        }
        let path = format!("d{dir}/l").as_str().into();
        apply(subject, &Op::Symlink { target: "f1".into(), path });
    }
}

/// An operation and the paths that it touches.
type Step = (Op, Vec<FsPath>);

/// Together they change nothing.
fn script() -> Vec<Step> {
    let path = |text: &str| FsPath::from(text);
    let rename = |from: &str, to: &str| Op::Rename {
        from: path(from),
        to: path(to),
        flags: RenameFlags::empty(),
    };
    let chmod = |mode| Op::Chmod { target: Target::Path(path("d1/f1")), mode: Mode(mode) };
    vec![
        (chmod(0o600), vec![path("d1/f1")]),
        (rename("d0/f1", "d0/x"), vec![path("d0/f1"), path("d0/x"), path("d0")]),
        (Op::Mkdir { path: path("d2/new"), mode: Mode(0o755) }, vec![path("d2/new"), path("d2")]),
        (rename("d0/x", "d0/f1"), vec![path("d0/f1"), path("d0/x"), path("d0")]),
        (Op::Rmdir { path: path("d2/new") }, vec![path("d2/new"), path("d2")]),
        (chmod(0o644), vec![path("d1/f1")]),
    ]
}

fn looking(subject: &mut KernelSubject) -> (f64, f64) {
    small_tree(subject);
    let script = script();
    let rate = |work: &mut dyn FnMut(&Step)| {
        let (start, mut count) = (Instant::now(), 0u64);
        while start.elapsed() < SPAN {
            script.iter().for_each(&mut *work);
            count += script.len() as u64;
        }
        count as f64 / start.elapsed().as_secs_f64()
    };
    let glances = rate(&mut |(_, paths)| {
        subject.observe_paths(paths).expect("the harness works");
    });
    let both = rate(&mut |(op, paths)| {
        apply(subject, op);
        subject.observe_paths(paths).expect("the harness works");
    });
    (glances, both)
}

fn going_back(name: &str, subject: &mut dyn Testbed) {
    small_tree(subject);
    for way in subject.restore_methods() {
        let (mut saves, mut restores) = (Vec::new(), Vec::new());
        let tree = subject.observe().expect("a tree").digest();
        let first = subject.save(way).expect("saved");
        for round in 0..ROUNDS {
            change(subject, round as u64);
            let start = Instant::now();
            let saved = subject.save(way).expect("saved");
            saves.push(start.elapsed());
            subject.forget(saved);
            let start = Instant::now();
            subject.restore(first).expect("restored");
            restores.push(start.elapsed());
        }
        assert_eq!(subject.observe().expect("a tree").digest(), tree, "{name} by {way}");
        let label = format!("{name} by {way}");
        let (save, restore) = (micros(saves), micros(restores));
        println!("{label:22} {:>10} {:>10} {:>10} {:>10}", save.0, save.1, restore.0, restore.1);
    }
}

fn change(subject: &mut dyn Subject, seed: u64) {
    let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT;
    apply(subject, &Op::Open { slot: 0, path: "d1/new".into(), flags, mode: Mode(0o644) });
    apply(subject, &Op::Write { slot: 0, data: Pattern { seed, len: 5000 } });
    apply(subject, &Op::Close { slot: 0 });
}

/// Median and 10th percentile.
fn micros(mut times: Vec<Duration>) -> (String, String) {
    times.sort();
    let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
    (format!("{:.0}", at(50)), format!("({:.0})", at(10)))
}
