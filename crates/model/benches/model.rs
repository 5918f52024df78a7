//! `cargo xtask bench model`: what one step of a search costs.
//!
//! A step of an explicit-state search is: clone the state, apply one operation, take the digest. The
//! baseline does what a checker without copy-on-write and without an incremental digest has to do:
//! apply the operation, export the whole volume (a deep copy) and hash the whole tree.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fathom_core::flags::{OpenFlags, RenameFlags, XattrFlags};
use fathom_core::{Mode, Op, Pattern, Target};
use fathom_model::{Config, Model};

/// Long enough to be stable on a shared machine, short enough to be run often.
const MEASURE: Duration = Duration::from_secs(2);

fn main() {
    let base = ten_entries();
    let ops = workload();
    let rows: Vec<(&str, f64)> = vec![
        ("clone", rate(|| drop(black_box(base.clone())))),
        ("clone + operation + digest", steps(&ops, |op| step(&base, op))),
        ("baseline: operation + deep copy + full hash", steps(&ops, |op| baseline(&base, op))),
    ];
    println!("tree of 10 entries, {} operations in turn, one core\n", ops.len());
    println!("{:46} {:>14} {:>10}", "", "per second", "ns each");
    for (name, per_second) in &rows {
        println!("{name:46} {per_second:>14.0} {:>10.0}", 1e9 / per_second);
    }
    println!("\nby operation (clone + operation + digest)");
    for op in &ops {
        let per_second = rate(|| step(&base, op));
        println!("{:46} {per_second:>14.0} {:>10.0}", op.name(), 1e9 / per_second);
    }
    println!(
        "{{\"bench\":\"model\",\"ops_per_s\":{:.0},\"clone_ns\":{:.1},\"vs_deep_copy\":{:.2}}}",
        rows[1].1,
        1e9 / rows[0].1,
        rows[1].1 / rows[2].1
    );
}

fn step(base: &Model, op: &Op) {
    let mut state = base.clone();
    black_box(state.execute(op));
    black_box(state.digest());
}

fn baseline(base: &Model, op: &Op) {
    let mut state = base.clone();
    black_box(state.execute(op));
    black_box(state.volume().export());
    black_box(state.volume().tree(fathom_model::TreeOptions::default()).digest());
}

/// Calls per second of `step` over all operations in turn.
fn steps(ops: &[Op], step: impl Fn(&Op)) -> f64 {
    rate(|| ops.iter().for_each(&step)) * ops.len() as f64
}

/// Calls per second: the best of ten slices, since other work on the machine only slows us down.
fn rate(mut call: impl FnMut()) -> f64 {
    let slice = MEASURE / 10;
    let mut best: f64 = 0.0;
    for _ in 0..10 {
        let start = Instant::now();
        let mut calls = 0_u32;
        while !calls.is_multiple_of(64) || start.elapsed() < slice {
            call();
            calls += 1;
        }
        best = best.max(f64::from(calls) / start.elapsed().as_secs_f64());
    }
    best
}

/// Three directories, five files (one with two names), a symbolic link.
fn ten_entries() -> Model {
    let mut model = Model::new(Config::default()).expect("the default configuration is valid");
    let mut run = |op: Op| {
        let outcome = model.execute(&op);
        assert!(outcome.result.is_ok(), "{op:?}: {outcome}");
    };
    for path in ["d0", "d1", "d0/d2"] {
        run(Op::Mkdir { path: path.into(), mode: Mode(0o755) });
    }
    let create = OpenFlags::O_RDWR | OpenFlags::O_CREAT;
    for (slot, path) in ["f0", "f1", "d0/f2", "d1/f3", "d0/d2/f4"].into_iter().enumerate() {
        let slot = slot as u8;
        run(Op::Open { slot, path: path.into(), flags: create, mode: Mode(0o644) });
        run(Op::Write { slot, data: Pattern { seed: 1, len: 100 } });
        if slot > 0 {
            run(Op::Close { slot });
        }
    }
    run(Op::Link { from: "f1".into(), to: "d1/l0".into(), follow: false });
    run(Op::Symlink { target: "d0/f2".into(), path: "s0".into() });
    assert_eq!(model.volume().tree(Default::default()).entries.len(), 11, "ten and the root");
    model
}

/// One of each kind of change, and two reads.
fn workload() -> Vec<Op> {
    let data = Pattern { seed: 7, len: 64 };
    vec![
        Op::Pwrite { slot: 0, offset: 50, data },
        Op::Truncate { target: Target::Path("f1".into()), len: 10 },
        Op::Open {
            slot: 1,
            path: "d1/new".into(),
            flags: OpenFlags::O_RDWR | OpenFlags::O_CREAT | OpenFlags::O_EXCL,
            mode: Mode(0o600),
        },
        Op::Mkdir { path: "d1/d3".into(), mode: Mode(0o700) },
        Op::Unlink { path: "d1/f3".into() },
        Op::Rename { from: "f0".into(), to: "d0/f0".into(), flags: RenameFlags::empty() },
        Op::Link { from: "f0".into(), to: "d0/l1".into(), follow: false },
        Op::Symlink { target: "f0".into(), path: "s1".into() },
        Op::Chmod { target: Target::Path("d0/f2".into()), mode: Mode(0o600) },
        Op::Setxattr {
            target: Target::Path("f0".into()),
            name: "user.a".into(),
            value: Pattern { seed: 3, len: 8 },
            flags: XattrFlags::empty(),
        },
        Op::Stat { target: Target::Path("d0/d2/f4".into()) },
        Op::Pread { slot: 0, offset: 0, len: 100 },
    ]
}
