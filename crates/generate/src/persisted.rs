//! Workloads of everything that `fathom check` can generate, with persistence operations between.
//!
//! Only operations that the reference executes successfully are kept: a crash check asks what becomes
//! of what was done.

use std::collections::BTreeSet;

use fathom_core::{Capability, Op};
use fathom_model::{Config as ModelConfig, Model};

use crate::choice::Choices;
use crate::{Call, Config, Generator};

/// Calls that only look, or whose effect ends with the process.
const LOOKING: [Call; 15] = [
    Call::Read,
    Call::Pread,
    Call::Lseek,
    Call::Readlink,
    Call::Getxattr,
    Call::Listxattr,
    Call::Stat,
    Call::Getdents,
    Call::Statfs,
    Call::Access,
    Call::MmapLoad,
    Call::Umask,
    Call::Identity,
    Call::SyncFileRange,
    Call::Utimens,
];

/// How often each call that makes something durable is drawn.
const PERSISTING: [(Call, u32); 4] =
    [(Call::Fsync, 60), (Call::Fdatasync, 20), (Call::Sync, 20), (Call::Syncfs, 6)];

/// Remounts are slow.
const REMOUNT_WEIGHT: u32 = 3;

/// Draws of one workload before it ends shorter than asked.
const DRAWS_PER_OP: usize = 20;

/// A seeded stream of workloads.
pub struct OpWorkloads {
    generator: Generator,
    reference: ModelConfig,
    seed: u64,
    number: u64,
    length: usize,
}

impl OpWorkloads {
    /// Workloads of `length` operations. `remounts`: among them unmounting and mounting again.
    pub fn new(seed: u64, length: usize, reference: ModelConfig, remounts: bool) -> OpWorkloads {
        let mut capabilities = BTreeSet::from([Capability::Devices]);
        if remounts {
            capabilities.insert(Capability::Remount);
        }
        let generator = Generator::new(Choices::new(seed), config(), capabilities);
        OpWorkloads { generator, reference, seed, number: 0, length }
    }

    /// The same for a file system that has only operations of these names.
    #[must_use]
    pub fn only(self, operations: &[&str]) -> OpWorkloads {
        let mut config = config();
        config.weights.retain(|call, _| operations.contains(&call.name()));
        let capabilities = BTreeSet::from([Capability::Remount]);
        let generator = Generator::new(Choices::new(self.seed), config, capabilities);
        OpWorkloads { generator, ..self }
    }
}

/// What is drawn, and how often.
fn config() -> Config {
    let mut config = Config::default();
    config.odd.percent = 0;
    config.data.huge_percent = 0;
    config.names.long_percent = 0;
    for call in LOOKING {
        config.weights.insert(call, 0);
    }
    config.weights.extend(PERSISTING);
    config.weights.insert(Call::Remount, REMOUNT_WEIGHT);
    config
}

impl Iterator for OpWorkloads {
    type Item = Vec<Op>;

    /// No workload depends on the ones before it, so those that are left out need not be made.
    fn nth(&mut self, count: usize) -> Option<Vec<Op>> {
        self.number += count as u64;
        self.next()
    }

    fn next(&mut self) -> Option<Vec<Op>> {
        self.generator.restart(Choices::of_episode(self.seed, self.number));
        self.number += 1;
        let mut model = Model::new(self.reference.clone()).ok()?;
        let mut ops = Vec::new();
        for _ in 0..self.length * DRAWS_PER_OP {
            if ops.len() >= self.length {
                break;
            }
            let op = self.generator.next(&model);
            let mut after = model.clone();
            let outcome = after.execute(&op);
            if outcome.result.is_err() {
                continue;
            }
            self.generator.note(&op, &outcome, &after);
            model = after;
            ops.push(op);
        }
        // Something must be durable at the end.
        ops.push(Op::Sync);
        Some(ops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(seed: u64) -> Vec<Vec<Op>> {
        OpWorkloads::new(seed, 12, ModelConfig::default(), true).take(50).collect()
    }

    #[test]
    fn workloads_are_seeded_and_have_everything() {
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
        let all: Vec<Op> = some(1).into_iter().flatten().collect();
        let names: BTreeSet<&str> = all.iter().map(Op::name).collect();
        for name in ["rename", "fsync", "setxattr", "fallocate", "symlink", "link", "remount"] {
            assert!(names.contains(name), "{name}: {names:?}");
        }
        assert!(!names.contains("read"));
    }

    #[test]
    fn a_workload_is_the_same_however_many_were_left_out_before_it() {
        let all = some(3);
        for number in [0, 1, 17, 49] {
            let mut stream = OpWorkloads::new(3, 12, ModelConfig::default(), true);
            assert_eq!(stream.nth(number).as_ref(), Some(&all[number]));
        }
    }

    #[test]
    fn a_file_system_with_few_operations_gets_those_alone() {
        let few = ["open", "close", "pwrite", "rename", "fsync", "sync", "mkdir", "remount"];
        let stream = OpWorkloads::new(1, 12, ModelConfig::default(), true).only(&few);
        let all: Vec<Op> = stream.take(50).flatten().collect();
        let names: BTreeSet<&str> = all.iter().map(Op::name).collect();
        assert_eq!(names, BTreeSet::from(few));
    }
}
