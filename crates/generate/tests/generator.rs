//! The generator: the same for a seed for ever, never out of bounds, mostly sensible.

#[path = "../../core/tests/common/golden.rs"]
mod golden;

use std::collections::{BTreeMap, BTreeSet};

use fathom_core::flags::OpenFlags as O;
use fathom_core::{Capability, FsBytes, Kind, Mode, Op};
use fathom_generate::choice::Choices;
use fathom_generate::{Call, Config, Generator};
use fathom_model::Model;
use golden::assert_golden;

const ALL: [Capability; 3] = [Capability::Identity, Capability::Remount, Capability::Devices];

/// Runs the generator against the model alone.
fn generate(
    seed: u64,
    count: usize,
    capabilities: &[Capability],
    mut each: impl FnMut(&Op, bool, &Model),
) {
    let capabilities: BTreeSet<Capability> = capabilities.iter().copied().collect();
    let mut generator = Generator::new(Choices::new(seed), Config::default(), capabilities);
    let mut model = Model::new(fathom_model::Config::default()).unwrap();
    for _ in 0..count {
        let op = generator.next(&model);
        let outcome = model.execute(&op);
        generator.note(&op, &outcome, &model);
        each(&op, outcome.result.is_ok(), &model);
    }
}

#[test]
fn a_seed_gives_the_same_operations_for_ever() {
    for seed in [1, 2, 3] {
        let mut log = String::new();
        generate(seed, 200, &ALL, |op, _, _| {
            log.push_str(&serde_json::to_string(op).unwrap());
            log.push('\n');
        });
        assert_golden(&format!("seed-{seed}.jsonl"), &log);
    }
}

fn paths(op: &Op) -> Vec<FsBytes> {
    let value = serde_json::to_value(op).unwrap();
    let strings = ["path", "from", "to"].iter().filter_map(|key| value[key].as_str());
    let targets = ["path", "link"].iter().filter_map(|key| value["target"][key].as_str());
    strings.chain(targets).map(|text| text.parse().unwrap()).collect()
}

#[test]
fn nothing_leaves_the_root() {
    let mut symlinks = 0;
    for seed in 0..5 {
        generate(seed, 5000, &ALL, |op, _, _| {
            for path in paths(op) {
                assert!(!path.as_bytes().starts_with(b"/"), "{op}");
            }
            if let Op::Symlink { target, .. } = op {
                symlinks += 1;
                let mut parts = target.as_bytes().split(|&byte| byte == b'/');
                assert!(!target.as_bytes().starts_with(b"/") && !parts.any(|p| p == b".."), "{op}");
            }
        });
    }
    assert!(symlinks > 100);
}

#[test]
fn without_privileges_nothing_needs_them() {
    generate(4, 20_000, &[], |op, _, _| match op {
        Op::Identity { .. } | Op::Remount | Op::Server { .. } => panic!("{op}"),
        Op::Open { mode, .. } | Op::Mkdir { mode, .. } | Op::Chmod { mode, .. } => {
            assert_eq!(mode.0 & 0o700, 0o700, "{op}");
        }
        Op::Umask { mask } => assert_eq!(mask.0 & 0o700, 0, "{op}"),
        Op::Mknod { mode, .. } => {
            let kind = Kind::of_mode(mode.0 & Mode::S_IFMT);
            assert!(!matches!(kind, Some(Kind::Char | Kind::Block)), "{op}");
        }
        _ => {}
    });
}

#[test]
fn the_tree_stays_small() {
    let config = Config::default();
    generate(5, 20_000, &ALL, |_, _, model| {
        let tree = model.volume().tree(fathom_model::TreeOptions::default());
        assert!(tree.entries.len() <= 2 * config.names.entries_max, "{}", tree.entries.len());
    });
}

#[test]
fn most_operations_make_sense_and_every_call_succeeds_sometimes() {
    let mut succeeded: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    generate(6, 50_000, &ALL, |op, ok, _| {
        let (good, all) = succeeded.entry(op.name()).or_default();
        *good += u32::from(ok);
        *all += 1;
    });
    let wanted = Config::default().weights.into_values().filter(|weight| *weight > 0).count();
    assert_eq!(succeeded.len(), wanted, "every operation occurs");
    for (name, (good, all)) in &succeeded {
        assert!(good * 7 > *all, "{name}: only {good} of {all} succeed");
    }
    let good: u32 = succeeded.values().map(|(good, _)| good).sum();
    assert!((25_000..45_000).contains(&good), "{good} of 50000 operations succeed");
}

/// A meta-operation leaves nothing behind but the tree: the state is then known by its digest.
#[test]
fn meta_operations_close_what_they_open() {
    let mut config = Config::default();
    config.slots.session_percent = 50;
    let mut generator = Generator::new(Choices::new(1), config, ALL.into());
    let mut model = Model::new(fathom_model::Config::default()).unwrap();
    let (mut longest, mut calls) = (0, BTreeSet::new());
    for seed in 0..20_000 {
        generator.begin(Choices::new(seed));
        let ops = generator.meta(&model);
        assert!(!ops.is_empty() && !ops.contains(&Op::Remount));
        longest = longest.max(ops.len());
        for op in &ops {
            model.execute(op);
            calls.insert(op.name());
        }
        // Slots, caller and mask are in the one, but not in the other.
        let mut fresh = model.clone();
        fresh.execute(&Op::Remount);
        assert_eq!(model.state_digest(), fresh.state_digest(), "{ops:?}");
    }
    assert!(longest > 5, "sessions hold files open over several calls");
    let all: BTreeSet<&str> = Call::ALL.iter().map(|call| call.name()).collect();
    // Time passes only where that costs nothing.
    assert_eq!(all.difference(&calls).copied().collect::<Vec<_>>(), ["remount", "server", "wait"]);
}

/// Draws 40,000 writes and openings; counts sizes by partition and flags by name.
fn drawn(text: &str) -> (Vec<f64>, BTreeMap<String, f64>) {
    let only = "[odd]\npercent = 0\n[data]\nio_bytes_max = 65536\n[slots]\nsession_percent = 0\n";
    let mut config = Config::from_toml(&format!("{only}{text}")).unwrap();
    for (call, weight) in &mut config.weights {
        *weight = u32::from(matches!(call, Call::Open | Call::Write));
    }
    let mut generator = Generator::new(Choices::new(1), config, ALL.into());
    let mut model = Model::new(fathom_model::Config::default()).unwrap();
    model.execute(&Op::Open { slot: 0, path: "f0".into(), flags: O::O_CREAT, mode: Mode(0o644) });
    model.execute(&Op::Close { slot: 0 });
    let (mut sizes, mut flags) = (vec![0.0; 18], BTreeMap::<String, f64>::new());
    let (mut writes, mut opens) = (0.0, 0.0);
    for seed in 0..40_000 {
        generator.begin(Choices::new(seed));
        // The last call that is not a close is the one that was drawn.
        match generator.meta(&model).iter().rfind(|op| !matches!(op, Op::Close { .. })) {
            Some(Op::Write { data, .. }) => {
                sizes[data.len.checked_ilog2().map_or(0, |power| power as usize + 1)] += 1.0;
                writes += 1.0;
            }
            Some(Op::Open { flags: set, .. }) => {
                for name in set.names() {
                    *flags.entry(name.to_owned()).or_default() += 1.0;
                }
                opens += 1.0;
            }
            other => unreachable!("{other:?} was not asked for"),
        }
    }
    sizes.iter_mut().for_each(|count| *count /= writes);
    flags.values_mut().for_each(|count| *count /= opens);
    (sizes, flags)
}

fn assert_near(what: &str, found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 0.015, "{what}: {found:.3} instead of {wanted:.3}");
}

#[test]
fn amounts_follow_the_distribution_that_is_asked_for() {
    // 0, then [1], [2,3], … [32768, 65535] and 65536 alone.
    for (name, base) in
        [("uniform", 1.0f64), ("exponential", 0.9), ("inverse-exponential", 1.0 / 0.9)]
    {
        let (sizes, _) = drawn(&format!("[inputs]\namounts = \"{name}\"\n"));
        let total: f64 = (0..18).map(|index| base.powi(index)).sum();
        for (index, share) in sizes.iter().enumerate() {
            assert_near(&format!("{name} {index}"), *share, base.powi(index as i32) / total);
        }
    }
}

#[test]
fn flags_follow_the_distribution_that_is_asked_for() {
    let (_, uniform) = drawn("[inputs]\nflags = \"uniform\"\n");
    assert_near("uniform O_APPEND", uniform["O_APPEND"], 0.5);
    let (_, ranked) = drawn("[inputs]\nflags = \"rank-size\"\n");
    assert_near("the most frequent", ranked["O_CREAT"], 0.90);
    assert_near("the 9th", ranked["O_APPEND"], 0.39);
    let (_, inverse) = drawn("[inputs]\nflags = \"inverse-rank-size\"\n");
    assert_near("the most frequent, inverse", inverse["O_CREAT"], 0.15);
    let (_, own) = drawn("[inputs.open]\nO_APPEND = 80\nO_TRUNC = 0\n");
    assert_near("O_APPEND", own["O_APPEND"], 0.8);
    assert!(!own.contains_key("O_TRUNC"));
}
