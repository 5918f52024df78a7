//! The generator: the same for a seed for ever, never out of bounds, mostly sensible.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{assert_golden, reference};
use fathom_core::{Capability, FsBytes, Kind, Mode, Op};
use fathom_engine::choice::Choices;
use fathom_engine::{Config, Generator};
use fathom_model::Model;

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
    let mut model = Model::new(reference()).unwrap();
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
        Op::Identity { .. } | Op::Remount => panic!("{op}"),
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
    assert_eq!(succeeded.len(), Config::default().weights.len(), "every operation occurs");
    for (name, (good, all)) in &succeeded {
        assert!(good * 7 > *all, "{name}: only {good} of {all} succeed");
    }
    let good: u32 = succeeded.values().map(|(good, _)| good).sum();
    assert!((25_000..45_000).contains(&good), "{good} of 50000 operations succeed");
}
