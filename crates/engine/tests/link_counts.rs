//! Link counts that change one after the other while a call goes on (`rmdir-counts` and its like in
//! `relaxed.toml`): each history with one just outside of what the order of its file system explains.

use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::{Errno, Interval, Mode, Op, Outcome, Payload, Stat, Step, Target};
use fathom_engine::linear::{Effort, History, Judge, Judgement, Relaxations, judge};
use fathom_model::Config;

const DIR: u32 = 0o040755;
const FILE: u32 = 0o100644;

fn step(caller: u32, (from, to): (u64, u64), op: Op, outcome: Outcome) -> Step {
    Step { caller, interval: Interval::new(from, to), ..Step::new(0, op, outcome) }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode(0o755) }
}

fn rmdir(path: &str) -> Op {
    Op::Rmdir { path: path.into() }
}

fn file(path: &str) -> Op {
    let flags = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
    Op::Open { slot: 0, path: path.into(), flags, mode: Mode(0o644) }
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename { from: from.into(), to: to.into(), flags: RenameFlags::empty() }
}

/// A look at a path: the link count that it sees, or that nothing is there.
type Look = (&'static str, Option<u32>);

/// Whether a call beside which somebody looks, one look after the other, is explained: by the fast search and by
/// the one without its shortcuts, which must agree. `beside` looks are made before the call returns, the others
/// afterwards.
fn explained(
    profile: &str,
    before: &[Op],
    call: (&Op, Result<u64, Errno>),
    beside: &[Look],
    behind: &[Look],
) -> bool {
    let mut steps: Vec<Step> = Vec::new();
    for op in before {
        let at = 2 * steps.len() as u64;
        steps.push(step(0, (at, at + 1), op.clone(), Outcome::ok(0)));
    }
    let returned = 100;
    let answer = Outcome { result: call.1, payload: Payload::None };
    steps.push(step(0, (50, returned), call.0.clone(), answer));
    let mode = |path: &str| match path.starts_with('f') {
        true => FILE,
        false => DIR,
    };
    let looks = beside.iter().enumerate().map(|(n, look)| (51 + 2 * n as u64, look));
    let later = behind.iter().enumerate().map(|(n, look)| (returned + 1 + 2 * n as u64, look));
    for (at, (path, nlink)) in looks.chain(later) {
        let seen = nlink.map(|nlink| Stat {
            mode: Mode(mode(path)),
            nlink,
            uid: 0,
            gid: 0,
            size: 0,
            rdev: (0, 0),
        });
        let outcome = match seen {
            Some(stat) => Outcome::with(Payload::Stat(Box::new(stat))),
            None => Outcome::err(Errno::ENOENT),
        };
        let target = Target::Path((*path).into());
        steps.push(step(1, (at, at + 1), Op::Stat { target }, outcome));
    }
    let history = History { steps, last: None };
    let (reference, relaxations) = (Config::default(), Relaxations::of_profile(profile));
    let judged = |effort| {
        let by = Judge { reference: &reference, relaxations: &relaxations, effort };
        match judge(&history, &by).unwrap() {
            Judgement::Explained(_) => true,
            Judgement::NoOrder => false,
            Judgement::Unknown => panic!("the search gave up"),
        }
    };
    let fast = judged(Effort::FAST);
    assert_eq!(fast, judged(Effort { memo: true, ..Effort::PLAIN }), "{profile}: {history:#?}");
    fast
}

/// Seen on tmpfs: two calls of `stat`, one after the other, beside one `rmdir`, both with one link.
#[test]
fn a_directory_that_is_removed_has_one_link_for_a_while() {
    let before = [mkdir("d"), mkdir("d/e"), mkdir("d/x")];
    let call = rmdir("d/e");
    let seen = |profile: &str, beside: &[Look], behind: &[Look]| {
        explained(profile, &before, (&call, Ok(0)), beside, behind)
    };
    let e = |links| ("d/e", Some(links));
    let gone = ("d/e", None);
    for profile in ["tmpfs", "minix", "ext2", "xfs", "f2fs", "nilfs2"] {
        assert!(seen(profile, &[e(1), e(1)], &[]), "{profile}");
        assert!(seen(profile, &[e(2), e(1), e(1), e(0), gone], &[gone]), "{profile}");
        // From one link there is no way back, and none from nothing.
        assert!(!seen(profile, &[e(1), e(2)], &[]), "{profile}");
        assert!(!seen(profile, &[e(0), e(1)], &[]), "{profile}");
        assert!(!seen(profile, &[gone, e(1)], &[]), "{profile}");
        assert!(!seen(profile, &[e(3)], &[]), "{profile}");
        // Once the call has returned, and of what nobody removes.
        assert!(!seen(profile, &[], &[e(1)]), "{profile}");
        assert!(!seen(profile, &[e(1)], &[e(1)]), "{profile}");
        assert!(!seen(profile, &[("d/x", Some(1))], &[]), "{profile}");
    }
    // These drop all links at once (clear_nlink), or with the name.
    for profile in ["ext4", "btrfs", "jfs", "reffs", "model"] {
        assert!(!seen(profile, &[e(1)], &[]) && !seen(profile, &[e(1), e(1)], &[]), "{profile}");
        assert!(seen(profile, &[e(2), gone], &[gone]), "{profile}");
    }
}

#[test]
fn the_directory_above_counts_in_the_order_of_the_file_system() {
    let before = [mkdir("d"), mkdir("d/e"), mkdir("d/x")];
    let call = rmdir("d/e");
    let seen =
        |profile: &str, beside: &[Look]| explained(profile, &before, (&call, Ok(0)), beside, &[]);
    let (e, d) = (|links| ("d/e", Some(links)), |links| ("d", Some(links)));
    assert!(seen("tmpfs", &[e(1), d(4), d(3), e(1), e(0)]));
    assert!(!seen("tmpfs", &[d(3), e(2)]) && !seen("tmpfs", &[e(0), d(4)]));
    assert!(seen("ext2", &[e(0), d(4), d(3)]) && !seen("ext2", &[d(3), e(1)]));
    assert!(seen("xfs", &[d(3), e(2), e(1), e(0)]) && !seen("xfs", &[e(1), d(4)]));
    for profile in ["tmpfs", "ext2", "xfs"] {
        assert!(!seen(profile, &[d(3), d(4)]) && !seen(profile, &[d(2)]), "{profile}");
    }
}

#[test]
fn what_is_refused_drops_no_link() {
    let before = [mkdir("d"), mkdir("d/e"), mkdir("d/e/x")];
    let call = rmdir("d/e");
    let refused = |profile: &str, beside: &[Look]| {
        explained(profile, &before, (&call, Err(Errno::ENOTEMPTY)), beside, &[])
    };
    assert!(refused("tmpfs", &[("d/e", Some(3))]));
    assert!(!refused("tmpfs", &[("d/e", Some(2))]) && !refused("tmpfs", &[("d", Some(2))]));
}

#[test]
fn what_a_rename_replaces_loses_its_links_before_its_name() {
    let before = [mkdir("d"), mkdir("d/e"), mkdir("x"), mkdir("x/o"), file("f"), file("f2")];
    let seen = |profile: &str, call: &Op, beside: &[Look], behind: &[Look]| {
        explained(profile, &before, (call, Ok(0)), beside, behind)
    };
    let over = rename("d/e", "x/o");
    let o = |links| ("x/o", Some(links));
    assert!(seen("tmpfs", &over, &[o(2), o(1), o(1), o(0), o(0), o(2)], &[o(2)]));
    assert!(seen("tmpfs", &over, &[o(0), ("d", Some(3)), ("d", Some(2)), ("d/e", Some(2))], &[]));
    assert!(!seen("tmpfs", &over, &[o(1)], &[o(1)]) && !seen("tmpfs", &over, &[o(0), o(1)], &[]));
    assert!(!seen("tmpfs", &over, &[("d", Some(2)), o(1)], &[]));
    assert!(!seen("tmpfs", &over, &[("d/e", Some(1))], &[]), "what moves loses nothing");
    assert!(!seen("ext4", &over, &[o(1)], &[]) && !seen("model", &over, &[o(1)], &[]));
    // Both counts are those of afterwards before the name has moved, one after the other.
    let moved = rename("d/e", "x/n");
    let (d, x) = (|links| ("d", Some(links)), |links| ("x", Some(links)));
    assert!(seen("tmpfs", &moved, &[d(2), x(3), x(4), ("d/e", Some(2)), ("d/e", None)], &[]));
    assert!(!seen("tmpfs", &moved, &[x(4), d(3)], &[]) && !seen("tmpfs", &moved, &[d(1)], &[]));
    let within = rename("x/o", "x/n");
    assert!(seen("tmpfs", &within, &[x(3), x(2), x(3)], &[x(3)]));
    assert!(!seen("tmpfs", &within, &[x(2)], &[x(2)]) && !seen("ext4", &within, &[x(2)], &[]));
    let replaced = rename("f", "f2");
    let f2 = |links| ("f2", Some(links));
    assert!(seen("tmpfs", &replaced, &[f2(0), f2(0), f2(1), ("f", None)], &[f2(1)]));
    assert!(!seen("tmpfs", &replaced, &[f2(0)], &[f2(0)]));
    assert!(!seen("tmpfs", &replaced, &[("f", Some(0))], &[]));
    assert!(!seen("tmpfs", &replaced, &[("f", None), f2(0)], &[]));
}

#[test]
fn a_link_counts_before_it_has_its_name_and_a_directory_after() {
    let before = [file("f"), mkdir("d")];
    let linked = Op::Link { from: "f".into(), to: "f2".into(), follow: false };
    let seen = |profile: &str, call: &Op, beside: &[Look], behind: &[Look]| {
        explained(profile, &before, (call, Ok(0)), beside, behind)
    };
    let (f, none) = (|links| ("f", Some(links)), ("f2", None));
    for profile in ["tmpfs", "ext4", "xfs", "btrfs"] {
        assert!(seen(profile, &linked, &[f(1), f(2), none, ("f2", Some(2))], &[]), "{profile}");
        assert!(!seen(profile, &linked, &[f(2), f(1)], &[]), "{profile}");
        assert!(!seen(profile, &linked, &[("f2", Some(2)), f(1)], &[]), "{profile}");
        assert!(!seen(profile, &linked, &[f(2)], &[none]), "{profile}");
    }
    assert!(!seen("model", &linked, &[f(2), none], &[]));
    let made = mkdir("d/n");
    let (d, n) = (|links| ("d", Some(links)), ("d/n", Some(2)));
    assert!(seen("tmpfs", &made, &[n, d(2), d(3)], &[d(3)]));
    assert!(
        !seen("tmpfs", &made, &[d(3), ("d/n", None)], &[]) && !seen("tmpfs", &made, &[n], &[d(2)])
    );
    for profile in ["ext2", "ext4", "xfs", "f2fs", "jfs", "gfs2", "reiserfs", "overlay"] {
        assert!(seen(profile, &made, &[d(3), ("d/n", None), n], &[]), "{profile}");
        assert!(!seen(profile, &made, &[n, d(2)], &[]), "{profile}");
    }
    for profile in ["model", "reffs"] {
        assert!(!seen(profile, &made, &[n, d(2)], &[]), "{profile}");
        assert!(!seen(profile, &made, &[d(3), ("d/n", None)], &[]), "{profile}");
    }
}
