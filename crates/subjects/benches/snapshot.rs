//! `cargo xtask bench snapshot`: what going back to a saved state costs.
//!
//! RESTORE of a mounted RefFS by ioctl, against the way back that a kernel file system has: unmount
//! and mount again (copying the old image over the disk in between is not even counted). Both file
//! systems hold the same small tree and are changed by the same operations before each time. The
//! first rows say what calls on a RefFS cost at all.
//!
//! All threads of the program share one processor: a FUSE server and its one client never work at
//! the same time, and waking each other on different processors costs more than the work.

use std::time::{Duration, Instant};

use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::{Mode, Op, Pattern, RestoreMethod, Subject, Target, Testbed};
use fathom_model::Config;
use fathom_subjects::fuse::ReffsSubject;
use fathom_subjects::sys::View;
use fathom_subjects::{KernelSubject, Recipe};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

/// Rounds of each measurement, interleaved, so that a busy machine is busy for both sides.
const ROUNDS: usize = 300;

fn main() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP snapshot: needs root to mount");
        return;
    }
    stay_here();
    let mut reffs = ReffsSubject::new(Config::default(), View::default()).expect("RefFS");
    let ext4 = Recipe::named("ext4").expect("a recipe for ext4");
    let mut ext4 = KernelSubject::new(ext4, View::default()).expect("ext4");
    for subject in [&mut reffs as &mut dyn Subject, &mut ext4] {
        small_tree(subject);
    }
    let saved = reffs.save(RestoreMethod::Ioctl).expect("SAVE");
    let before = reffs.observe().expect("a tree");

    let mut times = Times::default();
    for _ in 0..ROUNDS {
        change(&mut reffs);
        times.save.push(time(|| {
            reffs.save(RestoreMethod::Ioctl).expect("SAVE");
        }));
        times.restore.push(time(|| reffs.restore(saved).expect("RESTORE")));
        times.stat.push(time(|| apply(&mut reffs, &stat())));
        times.create.push(time(|| apply(&mut reffs, &create())));
        change(&mut ext4);
        times.remount.push(time(|| apply(&mut ext4, &Op::Remount)));
        undo_change(&mut ext4);
    }
    reffs.restore(saved).expect("RESTORE");
    assert_eq!(before.differences(&reffs.observe().expect("a tree")), []);
    times.print();
}

/// Binds this thread, and those that it will start, to the processor it is on.
fn stay_here() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).expect("a processor that is in use");
}

#[derive(Default)]
struct Times {
    stat: Vec<Duration>,
    create: Vec<Duration>,
    save: Vec<Duration>,
    restore: Vec<Duration>,
    remount: Vec<Duration>,
}

impl Times {
    fn print(&self) {
        let row = |name: &str, times: &[Duration]| {
            println!("{name:34} {:>10.1} {:>10.1}", micros(times, 50), micros(times, 10));
        };
        println!("{:34} {:>10} {:>10}", "µs", "median", "p10");
        row("RefFS: stat", &self.stat);
        row("RefFS: open, create, close", &self.create);
        row("RefFS: SAVE", &self.save);
        row("RefFS: RESTORE", &self.restore);
        row("baseline: ext4, umount and mount", &self.remount);
        println!(
            "{{\"bench\":\"snapshot\",\"restore_us\":{:.1},\"remount_us\":{:.1},\
             \"restore_vs_remount\":{:.1}}}",
            micros(&self.restore, 50),
            micros(&self.remount, 50),
            micros(&self.remount, 50) / micros(&self.restore, 50),
        );
    }
}

/// The given percentile in microseconds.
fn micros(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() * percent / 100].as_secs_f64() * 1e6
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn apply(subject: &mut dyn Subject, op: &Op) {
    let outcome = subject.apply(op).expect("the harness works");
    assert!(outcome.result.is_ok(), "{op:?}: {outcome}");
}

fn create_at(path: &str) -> Op {
    let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
    Op::Open { slot: 0, path: path.into(), flags, mode: Mode(0o644) }
}

fn create() -> Op {
    create_at("created")
}

fn stat() -> Op {
    Op::Stat { target: Target::Path("d0/f".into()) }
}

fn small_tree(subject: &mut dyn Subject) {
    for dir in 0..4 {
        apply(subject, &Op::Mkdir { path: format!("d{dir}").as_str().into(), mode: Mode(0o755) });
        apply(subject, &create_at(&format!("d{dir}/f")));
        apply(subject, &Op::Write { slot: 0, data: Pattern { seed: dir, len: 10_000 } });
    }
    apply(subject, &Op::Close { slot: 0 });
}

fn change(subject: &mut dyn Subject) {
    apply(subject, &create_at("d1/new"));
    apply(subject, &Op::Write { slot: 0, data: Pattern { seed: 9, len: 5_000 } });
    apply(subject, &Op::Close { slot: 0 });
    let (from, to) = ("d2/f".into(), "d3/moved".into());
    apply(subject, &Op::Rename { from, to, flags: RenameFlags::empty() });
}

fn undo_change(subject: &mut dyn Subject) {
    apply(subject, &Op::Unlink { path: "d1/new".into() });
    let (from, to) = ("d3/moved".into(), "d2/f".into());
    apply(subject, &Op::Rename { from, to, flags: RenameFlags::empty() });
}
