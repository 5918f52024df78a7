//! Linearizability: the fast search against the plain one, against all permutations, and on histories with
//! known answers.

use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::{
    DataSum, Errno, Interval, Mode, Op, Outcome, Pattern, Payload, Stat, Step, Target,
};
use fathom_engine::linear::simulate::{Pace, simulate};
use fathom_engine::linear::{
    Effort, History, Judge, Judgement, Relaxations, explain, judge, possible_answers,
};
use fathom_generate::callers::{CallerGenerator, Theme};
use fathom_generate::choice::Choices;
use fathom_model::{Config, Model};

fn simulated(seed: u64, theme: Theme, callers: u32, calls: usize, idle_percent: u32) -> History {
    let mut generator = CallerGenerator::new(seed);
    let setup = generator.setup(callers);
    let scripts = generator.round(theme, callers, calls);
    let mut choices = Choices::new(seed + 1000);
    simulate(&Config::default(), &setup, &scripts, Pace { idle_percent }, &mut choices).unwrap()
}

fn judged(history: &History, effort: Effort) -> Judgement {
    let (reference, relaxations) = (Config::default(), Relaxations::none());
    judge(history, &Judge { reference: &reference, relaxations: &relaxations, effort }).unwrap()
}

fn is_explained(history: &History, effort: Effort) -> bool {
    match judged(history, effort) {
        Judgement::Explained(_) => true,
        Judgement::NoOrder => false,
        Judgement::Unknown => panic!("the search gave up"),
    }
}

/// Whether an order keeps who was before whom, and gives every answer.
fn is_right(history: &History, order: &[usize]) -> bool {
    let mut model = Model::new(Config::default()).unwrap();
    let at = |place: usize| history.steps[place].interval;
    let keeps = order.iter().enumerate().all(|(index, &one)| {
        order[index..].iter().all(|&later| match (at(later), at(one)) {
            (Some(later), Some(one)) => !later.is_before(one),
            (None, Some(_)) => false,
            _ => true,
        })
    });
    keeps
        && order.len() == history.steps.len()
        && order.iter().all(|&place| {
            let step = &history.steps[place];
            model.execute_as(step.caller, &step.op) == step.outcome
        })
}

#[test]
fn what_the_reference_did_is_explained_by_an_order_that_is_right() {
    for (number, theme) in Theme::ALL.into_iter().enumerate() {
        for seed in 0..6 {
            let history = simulated(seed * 10 + number as u64, theme, 4, 40, 50);
            assert!(history.overlaps() > 50, "{theme:?} {seed}");
            let Judgement::Explained(order) = judged(&history, Effort::FAST) else {
                panic!("{theme:?} {seed} has no order")
            };
            assert!(is_right(&history, &order), "{theme:?} {seed}");
        }
    }
}

/// Answers that a call could give, other than the one it gave.
fn flips(outcome: &Outcome) -> Vec<Outcome> {
    let mut flips = match &outcome.result {
        Ok(0) => vec![Outcome::err(Errno::ENOENT), Outcome::err(Errno::EEXIST)],
        Ok(n) => vec![Outcome { result: Ok(n - 1), payload: outcome.payload.clone() }],
        Err(Errno::ENOENT) => vec![Outcome::ok(0), Outcome::err(Errno::EEXIST)],
        Err(_) => vec![Outcome::ok(0), Outcome::err(Errno::ENOENT)],
    };
    match &outcome.payload {
        Payload::Data(_) => flips.push(Outcome {
            result: outcome.result,
            payload: Payload::Data(DataSum::of(b"something else")),
        }),
        Payload::Stat(stat) => {
            for (size, nlink) in [(1, 0), (0, 1)] {
                let mut stat = stat.clone();
                stat.size += size;
                stat.nlink += nlink;
                flips.push(Outcome { result: outcome.result, payload: Payload::Stat(stat) });
            }
        }
        _ => {}
    }
    flips
}

#[test]
fn with_every_single_answer_flipped_fast_and_plain_agree() {
    let mut counts = [0, 0];
    for (number, theme) in Theme::ALL.into_iter().enumerate() {
        for seed in 0..4 {
            // Few calls: without its memory the plain search tries every order.
            let history = simulated(seed * 10 + number as u64, theme, 3, 4, 60);
            for place in 0..history.steps.len() {
                for flipped in flips(&history.steps[place].outcome) {
                    let mut other = history.clone();
                    other.steps[place].outcome = flipped;
                    let fast = is_explained(&other, Effort::FAST);
                    let plain = is_explained(&other, Effort::PLAIN);
                    assert_eq!(fast, plain, "{theme:?} {seed} step {place}: {other:#?}");
                    counts[usize::from(fast)] += 1;
                }
            }
        }
    }
    let [refused, explained] = counts;
    assert!(refused > 1000 && explained > 0, "refused {refused}, explained {explained}");
}

/// Where Linux does calls in steps there are more orders; the shortcuts find them all.
#[test]
fn fast_and_plain_agree_on_calls_in_steps_too() {
    for profile in ["ext4", "tmpfs"] {
        let [refused, only_in_steps, plain] = agreed_in_steps(profile);
        let counts = format!("{refused} refused, {only_in_steps} only in steps, {plain} plain");
        assert!(refused > 300 && only_in_steps > 0 && plain > 300, "{profile}: {counts}");
    }
}

/// How many histories both refuse, how many only have an order in steps, and how many were judged plainly.
fn agreed_in_steps(profile: &str) -> [usize; 3] {
    let (reference, relaxations) = (Config::default(), Relaxations::of_profile(profile));
    let judged = |history: &History, effort| {
        let by = Judge { reference: &reference, relaxations: &relaxations, effort };
        judge(history, &by).unwrap()
    };
    let is_explained_in_steps = |history: &History, effort| match judged(history, effort) {
        Judgement::Explained(_) => true,
        Judgement::NoOrder => false,
        Judgement::Unknown => panic!("the search gave up"),
    };
    // Every order of every step is too much in some histories: the plain search may give up on these.
    let plain = Effort { calls_max: 20_000, ..Effort::PLAIN };
    let remembering = Effort { memo: true, ..Effort::PLAIN };
    let (mut refused, mut only_in_steps, mut tried_plainly) = (0, 0, 0);
    for (number, theme) in [Theme::Names, Theme::Directories, Theme::Mixed].into_iter().enumerate()
    {
        for seed in 0..5 {
            let history = simulated(seed * 10 + number as u64, theme, 2, 4, 30);
            for place in 0..history.steps.len() {
                for flipped in flips(&history.steps[place].outcome) {
                    let mut other = history.clone();
                    other.steps[place].outcome = flipped;
                    let fast = is_explained_in_steps(&other, Effort::FAST);
                    let slow = is_explained_in_steps(&other, remembering);
                    assert_eq!(fast, slow, "{theme:?} {seed} step {place}: {other:#?}");
                    match judged(&other, plain) {
                        Judgement::Unknown => {}
                        judgement => {
                            tried_plainly += 1;
                            assert_eq!(fast, judgement != Judgement::NoOrder, "{other:#?}");
                        }
                    }
                    refused += usize::from(!fast);
                    only_in_steps += usize::from(fast && !is_explained(&other, Effort::FAST));
                }
            }
        }
    }
    [refused, only_in_steps, tried_plainly]
}

/// link(2) finds a file, and gives it another name afterwards (seen on tmpfs): each with the answer just outside
/// of what that explains.
#[test]
fn a_link_is_made_to_what_was_found_before() {
    let file = |path: &str| Op::Open {
        slot: 0,
        path: path.into(),
        flags: OpenFlags::O_CREAT | OpenFlags::O_RDWR,
        mode: Mode(0o644),
    };
    let rename = |from: &str, to: &str| Op::Rename {
        from: from.into(),
        to: to.into(),
        flags: RenameFlags::empty(),
    };
    let link = |from: &str, to: &str| Op::Link { from: from.into(), to: to.into(), follow: false };
    let judged = |moved: &Op, linked: &Op, answer: Outcome, at: (u64, u64), profile: &str| {
        let steps = vec![
            step(0, (0, 1), file("a"), Outcome::ok(0)),
            step(0, (2, 3), file("b"), Outcome::ok(0)),
            step(0, (4, 7), moved.clone(), Outcome::ok(0)),
            step(1, at, linked.clone(), answer),
        ];
        let (reference, relaxations) = (Config::default(), Relaxations::of_profile(profile));
        let by = Judge { reference: &reference, relaxations: &relaxations, effort: Effort::FAST };
        matches!(judge(&history(steps), &by).unwrap(), Judgement::Explained(_))
    };
    let (beside, behind) = ((5, 8), (8, 9));
    let (missing, exists) = (Outcome::err(Errno::ENOENT), Outcome::err(Errno::EEXIST));
    // The file that was found has lost its last name meanwhile.
    let replaced = rename("a", "b");
    assert!(judged(&replaced, &link("b", "c"), missing.clone(), beside, "tmpfs"));
    assert!(!judged(&replaced, &link("b", "c"), missing.clone(), beside, "model"));
    assert!(!judged(&replaced, &link("b", "c"), missing.clone(), behind, "tmpfs"));
    let elsewhere = rename("a", "x");
    assert!(!judged(&elsewhere, &link("b", "c"), missing, beside, "tmpfs"));
    // It was found under its old name, and has the new one already.
    let moved = rename("a", "c");
    assert!(judged(&moved, &link("a", "c"), exists.clone(), beside, "tmpfs"));
    assert!(!judged(&moved, &link("a", "c"), exists.clone(), beside, "model"));
    assert!(!judged(&moved, &link("a", "c"), exists.clone(), behind, "tmpfs"));
    assert!(!judged(&moved, &link("a", "d"), exists, beside, "tmpfs"));
}

fn is_explained_on(profile: &str, steps: &[Step]) -> bool {
    let (reference, relaxations) = (Config::default(), Relaxations::of_profile(profile));
    let by = Judge { reference: &reference, relaxations: &relaxations, effort: Effort::FAST };
    matches!(judge(&history(steps.to_vec()), &by).unwrap(), Judgement::Explained(_))
}

/// A directory that is being removed has lost its links before its name (seen on tmpfs: the first `stat` beside
/// the `rmdir` sees one link, the second one none). Each with the answer just outside of what that explains.
#[test]
fn a_name_goes_after_the_links_of_what_it_led_to() {
    let stat_of = |path: &str, nlink: u32, at: (u64, u64)| {
        let stat = Stat { mode: Mode(0o040755), nlink, uid: 0, gid: 0, size: 0, rdev: (0, 0) };
        let target = Target::Path(path.into());
        step(1, at, Op::Stat { target }, Outcome::with(Payload::Stat(Box::new(stat))))
    };
    let mkdir = |path: &str| Op::Mkdir { path: path.into(), mode: Mode(0o755) };
    let missing =
        |at| step(1, at, Op::Stat { target: Target::Path("d/e".into()) }, missing_answer());
    let seen = |profile: &str, looks: &[Step]| {
        let removed = step(0, (6, 20), Op::Rmdir { path: "d/e".into() }, Outcome::ok(0));
        let mut steps = vec![
            step(0, (0, 1), mkdir("d"), Outcome::ok(0)),
            step(0, (2, 3), mkdir("d/e"), Outcome::ok(0)),
            step(0, (4, 5), mkdir("d/x"), Outcome::ok(0)),
            removed,
        ];
        steps.extend_from_slice(looks);
        is_explained_on(profile, &steps)
    };
    let (begun, half) = (stat_of("d/e", 1, (7, 8)), stat_of("d/e", 0, (9, 10)));
    assert!(seen("tmpfs", &[begun.clone(), half.clone()]));
    assert!(seen("tmpfs", &[begun.clone(), half.clone(), missing((11, 12))]));
    // Through FUSE, and on the reference, links and name go at once.
    assert!(!seen("reffs", &[begun.clone(), half.clone()]));
    assert!(!seen("model", &[begun.clone(), half.clone()]));
    // In what has lost its links nothing is made, and its name is there for a while yet.
    let inside = step(1, (9, 10), mkdir("d/e/x"), missing_answer());
    assert!(seen("tmpfs", &[begun.clone(), inside.clone(), stat_of("d/e", 0, (11, 12))]));
    assert!(!seen("tmpfs", &[begun.clone(), inside, stat_of("d/e", 1, (11, 12))]));
    // A name that is gone stays gone, links that are gone too.
    assert!(!seen("tmpfs", &[missing((7, 8)), half.clone()]));
    assert!(!seen("tmpfs", &[half.clone(), stat_of("d/e", 2, (11, 12))]));
    // After the removal has returned nothing is found, and beside it only what is removed.
    assert!(!seen("tmpfs", &[begun, stat_of("d/e", 0, (21, 22))]));
    assert!(!seen("tmpfs", &[stat_of("d/x", 0, (7, 8))]));
    // Who takes the lock of the directory waits until the name is gone.
    let again = step(1, (11, 12), Op::Rmdir { path: "d/e".into() }, Outcome::ok(0));
    assert!(!seen("tmpfs", &[half, again]));
}

/// What FUSE refuses beside calls that take names away (both seen on RefFS), and what it does not.
#[test]
fn fuse_refuses_an_open_twice_too_late_and_a_link_of_what_lost_a_name() {
    let file = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
    let open =
        |slot, path: &str, flags| Op::Open { slot, path: path.into(), flags, mode: Mode(0o644) };
    let rename =
        |from: &str, to: &str, flags| Op::Rename { from: from.into(), to: to.into(), flags };
    let none = RenameFlags::empty();
    let link = |from: &str, to: &str| Op::Link { from: from.into(), to: to.into(), follow: false };
    let made = |steps: &[(u64, Op)]| -> Vec<Step> {
        let made = steps.iter().map(|(at, op)| step(0, (*at, at + 1), op.clone(), Outcome::ok(0)));
        made.collect()
    };
    let opened = |profile: &str, moves: &[Op], answer: Outcome, at: (u64, u64)| {
        let files = ["a", "b", "f"].iter().enumerate();
        let mut steps =
            made(&files.map(|(n, path)| (2 * n as u64, open(0, path, file))).collect::<Vec<_>>());
        let moves = moves.iter().enumerate().map(|(n, op)| {
            let at = 11 + 2 * n as u64;
            step(0, (at, at + 1), op.clone(), Outcome::ok(0))
        });
        steps.extend(moves);
        steps.push(step(1, at, open(0, "f", OpenFlags::O_RDWR), answer.clone()));
        // Refused, it has let go of what the slot had.
        let held = if answer.result.is_ok() { Outcome::ok(0) } else { Outcome::err(Errno::EBADF) };
        steps.push(step(1, (30, 31), Op::Close { slot: 0 }, held));
        is_explained_on(profile, &steps)
    };
    let stale = Outcome::err(Errno::ESTALE);
    let twice = [rename("a", "f", none), rename("b", "f", none)];
    assert!(opened("reffs", &twice, stale.clone(), (10, 20)));
    assert!(opened("reffs", &twice, Outcome::ok(0), (10, 20)));
    assert!(!opened("reffs", &twice[..1], stale.clone(), (10, 20)));
    assert!(!opened("reffs", &twice, stale.clone(), (21, 22)));
    assert!(!opened("reffs", &twice, Outcome::err(Errno::EIO), (10, 20)));
    assert!(!opened("tmpfs", &twice, stale.clone(), (10, 20)));
    let kept = [twice[0].clone(), rename("b", "f", RenameFlags::RENAME_EXCHANGE)];
    assert!(!opened("reffs", &kept, stale, (10, 20)));

    let linked = |profile: &str, moved: &Op, at: (u64, u64)| {
        let files = [(0, open(0, "a", file)), (2, open(1, "f", file)), (4, link("f", "g"))];
        let mut steps = made(&files);
        steps.push(step(0, (11, 15), moved.clone(), Outcome::ok(0)));
        steps.push(step(1, at, link("g", "h"), missing_answer()));
        let target = Target::Path("h".into());
        steps.push(step(1, (30, 31), Op::Stat { target }, missing_answer()));
        is_explained_on(profile, &steps)
    };
    let replaces = rename("a", "f", none);
    assert!(linked("reffs", &replaces, (12, 20)));
    assert!(linked("reffs", &Op::Unlink { path: "f".into() }, (12, 20)));
    assert!(!linked("reffs", &replaces, (21, 22)));
    assert!(!linked("tmpfs", &replaces, (12, 20)));
    assert!(!linked("reffs", &rename("a", "f", RenameFlags::RENAME_EXCHANGE), (12, 20)));
    assert!(!linked("reffs", &Op::Unlink { path: "a".into() }, (12, 20)));
}

/// A read may be torn beside a write of its file, not beside a write of another one.
#[test]
fn a_read_is_torn_by_writes_of_its_file_alone() {
    let open = |path: &str, slot| Op::Open {
        slot,
        path: path.into(),
        flags: OpenFlags::O_CREAT | OpenFlags::O_RDWR,
        mode: Mode(0o644),
    };
    let judged = |written: &str| {
        let write = Op::Write { slot: 0, data: Pattern { seed: 1, len: 9 } };
        let steps = vec![
            step(0, (0, 1), open(written, 0), Outcome::ok(0)),
            step(1, (2, 3), open("f", 0), Outcome::ok(0)),
            step(0, (4, 7), write, Outcome::ok(9)),
            step(1, (5, 6), Op::Pread { slot: 0, offset: 0, len: 9 }, Outcome::data(b"torn")),
        ];
        let (reference, relaxations) = (Config::default(), Relaxations::of_profile("ext4"));
        let by = Judge { reference: &reference, relaxations: &relaxations, effort: Effort::FAST };
        matches!(judge(&history(steps), &by).unwrap(), Judgement::Explained(_))
    };
    assert!(judged("f") && !judged("g"));
}

/// An answer that nothing overlaps has one value, unless calls before it left two states behind: then the
/// other value is possible, and is one that the search lists.
#[test]
fn a_flip_of_a_call_that_overlaps_no_other_is_refused() {
    let (reference, relaxations) = (Config::default(), Relaxations::none());
    let by = Judge { reference: &reference, relaxations: &relaxations, effort: Effort::FAST };
    let (mut alone, mut ambiguous) = (0, 0);
    for (number, theme) in Theme::ALL.into_iter().enumerate() {
        let history = simulated(number as u64, theme, 4, 25, 90);
        let overlaps = |place: usize| {
            let here = history.steps[place].interval;
            history.steps.iter().enumerate().any(|(other, step)| {
                other != place
                    && matches!((step.interval, here), (Some(a), Some(b))
                        if !a.is_before(b) && !b.is_before(a))
            })
        };
        for place in (0..history.steps.len()).filter(|&place| !overlaps(place)) {
            let mut other = history.clone();
            other.steps[place].outcome = Outcome::err(Errno::EIO);
            assert!(!is_explained(&other, Effort::FAST), "{theme:?} step {place}");
            for flipped in flips(&history.steps[place].outcome) {
                other.steps[place].outcome = flipped.clone();
                alone += 1;
                if is_explained(&other, Effort::FAST) {
                    ambiguous += 1;
                    let possible = possible_answers(&history, place, &by, 99).unwrap();
                    assert!(possible.contains(&flipped), "{theme:?} step {place}: {flipped}");
                }
            }
        }
    }
    assert!(alone > 300 && ambiguous * 20 < alone, "{ambiguous} of {alone} are possible");
}

fn step(caller: u32, (from, to): (u64, u64), op: Op, outcome: Outcome) -> Step {
    Step { caller, interval: Interval::new(from, to), ..Step::new(0, op, outcome) }
}

fn missing_answer() -> Outcome {
    Outcome::err(Errno::ENOENT)
}

fn history(steps: Vec<Step>) -> History {
    History { steps, last: None }
}

fn exclusive(path: &str) -> Op {
    let flags = OpenFlags::O_CREAT | OpenFlags::O_EXCL | OpenFlags::O_RDWR;
    Op::Open { slot: 0, path: path.into(), flags, mode: Mode(0o644) }
}

#[test]
fn of_overlapping_exclusive_creations_exactly_one_wins() {
    for callers in 2..7u32 {
        let round = |winners: &[u32]| {
            let made = |caller| match winners.contains(&caller) {
                true => Outcome::ok(0),
                false => Outcome::err(Errno::EEXIST),
            };
            let call = |caller: u32| {
                let at = (u64::from(caller), u64::from(callers + caller));
                step(caller, at, exclusive("x"), made(caller))
            };
            history((0..callers).map(call).collect())
        };
        for winner in 0..callers {
            assert!(is_explained(&round(&[winner]), Effort::FAST));
            assert!(!is_explained(&round(&[winner, (winner + 1) % callers]), Effort::FAST));
        }
        assert!(!is_explained(&round(&[]), Effort::FAST));
    }
}

/// Of two reads one after the other, beside a write, the second cannot be older than the first (Herlihy and
/// Wing, 1990, figure 1).
#[test]
fn what_was_read_as_new_is_not_old_again() {
    let file = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
    let open = |slot| Op::Open { slot, path: "f".into(), flags: file, mode: Mode(0o644) };
    let read = Op::Pread { slot: 0, offset: 0, len: 9 };
    let old = Outcome::data(b"");
    let new = Outcome::data(&Pattern { seed: 1, len: 9 }.to_vec());
    let round = |first: &Outcome, second: &Outcome| {
        let write = Op::Write { slot: 0, data: Pattern { seed: 1, len: 9 } };
        history(vec![
            step(0, (0, 1), open(0), Outcome::ok(0)),
            step(1, (2, 3), open(0), Outcome::ok(0)),
            step(0, (4, 9), write, Outcome::ok(9)),
            step(1, (5, 6), read.clone(), first.clone()),
            step(1, (7, 8), read.clone(), second.clone()),
        ])
    };
    assert!(is_explained(&round(&old, &new), Effort::FAST));
    assert!(is_explained(&round(&old, &old), Effort::FAST));
    assert!(is_explained(&round(&new, &new), Effort::FAST));
    let inverted = round(&new, &old);
    assert!(!is_explained(&inverted, Effort::FAST) && !is_explained(&inverted, Effort::PLAIN));
    let (reference, relaxations) = (Config::default(), Relaxations::none());
    let by = Judge { reference: &reference, relaxations: &relaxations, effort: Effort::FAST };
    let conflict = explain(&inverted, &by).unwrap().unwrap();
    assert_eq!(conflict.step, Some(4));
    assert_eq!(conflict.possible, std::slice::from_ref(&new));
    assert_eq!(conflict.needed, [0, 1, 2, 3, 4]);
    // Where a read beside a write may be torn, nothing is wrong with it.
    let torn = Relaxations::of_profile("ext4");
    let by = Judge { relaxations: &torn, ..by };
    assert!(matches!(judge(&inverted, &by).unwrap(), Judgement::Explained(_)));
    assert_eq!(explain(&inverted, &by).unwrap(), None);
}

#[test]
fn the_last_tree_must_be_explained_too() {
    let mut history = simulated(3, Theme::Names, 3, 20, 50);
    assert!(is_explained(&history, Effort::FAST));
    let tree = history.last.as_mut().unwrap();
    let name = tree.entries.keys().next_back().unwrap().clone();
    tree.entries.remove(&name);
    assert!(!is_explained(&history, Effort::FAST));
    let (reference, relaxations) = (Config::default(), Relaxations::none());
    let by = Judge { reference: &reference, relaxations: &relaxations, effort: Effort::FAST };
    assert_eq!(explain(&history, &by).unwrap().unwrap().step, None);
}

/// What has nothing to do with a contradiction is not part of its explanation.
#[test]
fn an_explanation_is_short() {
    let mut history = simulated(5, Theme::Mixed, 4, 60, 50);
    let last = history.steps.iter().map(|step| step.interval.map_or(0, |at| at.returned())).max();
    let at = last.unwrap();
    let mkdir = Op::Mkdir { path: "new".into(), mode: Mode(0o755) };
    let stat = Op::Stat { target: Target::Path("new".into()) };
    history.steps.push(step(0, (at + 1, at + 4), mkdir, Outcome::ok(0)));
    history.steps.push(step(1, (at + 2, at + 3), Op::Sync, Outcome::ok(0)));
    history.steps.push(step(1, (at + 5, at + 6), stat, Outcome::err(Errno::ENOENT)));
    history.last = None;
    let (reference, relaxations) = (Config::default(), Relaxations::none());
    let by = Judge { reference: &reference, relaxations: &relaxations, effort: Effort::FAST };
    let conflict = explain(&history, &by).unwrap().unwrap();
    let places = history.steps.len();
    assert_eq!(conflict.step, Some(places - 1));
    assert_eq!(conflict.needed, [places - 3, places - 1]);
    assert_eq!(conflict.possible.len(), 1);
}

/// All ways in which two callers with two calls each can overlap.
fn overlappings() -> Vec<[[(u64, u64); 2]; 2]> {
    let mut all = Vec::new();
    for chosen in 0u32..256 {
        if chosen.count_ones() != 4 {
            continue;
        }
        let moments = |wanted: bool| -> Vec<u64> {
            (0..8).filter(|bit| (chosen >> bit & 1 == 1) == wanted).collect()
        };
        let pairs = |m: Vec<u64>| [(m[0], m[1]), (m[2], m[3])];
        all.push([pairs(moments(true)), pairs(moments(false))]);
    }
    all
}

/// Whether some permutation explains the history.
fn by_permutation(history: &History) -> bool {
    let places: Vec<usize> = (0..history.steps.len()).collect();
    permutations(&places).iter().any(|order| is_right(history, order))
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let rest = [&items[..index], &items[index + 1..]].concat();
        for mut order in permutations(&rest) {
            order.insert(0, *item);
            all.push(order);
        }
    }
    all
}

/// Two callers with two calls each on two names, in every overlapping, with answers of some order that need
/// not be one that the overlapping allows.
#[test]
fn small_histories_are_judged_as_all_permutations_judge_them() {
    let rename = |from: &str, to: &str| Op::Rename {
        from: from.into(),
        to: to.into(),
        flags: RenameFlags::empty(),
    };
    let ops = [
        Op::Mkdir { path: "a".into(), mode: Mode(0o755) },
        Op::Rmdir { path: "a".into() },
        rename("a", "b"),
        rename("b", "a"),
        Op::Stat { target: Target::Path("a".into()) },
        exclusive("b"),
    ];
    let overlappings = overlappings();
    assert_eq!(overlappings.len(), 70);
    let orders = permutations(&[0, 1, 2, 3]);
    let mut choices = Choices::new(1);
    let mut counts = [0, 0];
    for number in 0..6usize.pow(4) {
        let chosen = [number % 6, number / 6 % 6, number / 36 % 6, number / 216];
        for _ in 0..3 {
            let at = choices.pick(&overlappings);
            let intervals = [at[0][0], at[0][1], at[1][0], at[1][1]];
            let order = choices.pick(&orders);
            let mut model = Model::new(Config::default()).unwrap();
            let mut answers: Vec<Outcome> = vec![Outcome::ok(0); 4];
            for &place in order {
                answers[place] = model.execute_as(place as u32 / 2, &ops[chosen[place]]);
            }
            let steps = (0..4).map(|place| {
                let op = ops[chosen[place]].clone();
                step(place as u32 / 2, intervals[place], op, answers[place].clone())
            });
            let history = history(steps.collect());
            let expected = by_permutation(&history);
            assert_eq!(is_explained(&history, Effort::FAST), expected, "{history:#?}");
            assert_eq!(is_explained(&history, Effort::PLAIN), expected, "{history:#?}");
            counts[usize::from(expected)] += 1;
        }
    }
    assert!(counts[0] > 300 && counts[1] > 1000, "{counts:?}");
}
