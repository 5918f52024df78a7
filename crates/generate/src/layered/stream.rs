//! [`LayeredWorkloads`]: one layered workload after the other, as calls.

use fathom_core::Op;
use fathom_model::{Config, Model};

use super::grow::Grower;
use super::preset::Preset;
use super::syntax::Refiner;

/// A seeded stream of workloads. Only calls that the reference executes successfully are kept, and none that
/// only look: a crash check asks what becomes of what was done.
pub struct LayeredWorkloads {
    preset: Preset,
    reference: Config,
    seed: u64,
    number: u64,
}

impl LayeredWorkloads {
    /// The workloads of a seed.
    pub fn new(seed: u64, preset: Preset, reference: Config) -> LayeredWorkloads {
        LayeredWorkloads { preset, reference, seed, number: 0 }
    }
}

impl Iterator for LayeredWorkloads {
    type Item = Vec<Op>;

    /// Each has a seed of its own: those that are left out need not be made.
    fn nth(&mut self, count: usize) -> Option<Vec<Op>> {
        self.number += count as u64;
        self.next()
    }

    fn next(&mut self) -> Option<Vec<Op>> {
        let seed = fathom_core::pattern::word(self.seed, self.number);
        self.number += 1;
        let calls = Grower::new(seed, &self.preset, false).workload();
        let mut model = Model::new(self.reference.clone()).ok()?;
        let mut ops = Refiner::ops(&self.preset, true, &calls);
        ops.retain(|op| {
            let looks = matches!(op, Op::Read { .. } | Op::Getxattr { .. } | Op::Statfs { .. });
            !looks && model.unspecified(op).is_none() && model.execute(op).result.is_ok()
        });
        Some(ops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_the_same_however_many_were_left_out_before_it() {
        let stream = || {
            let preset = Preset::named("dogfood-b3").unwrap();
            LayeredWorkloads::new(1, preset, Config::default())
        };
        let all: Vec<Vec<Op>> = stream().take(3).collect();
        assert_ne!(all[1], all[2]);
        assert_eq!(stream().nth(2).as_ref(), Some(&all[2]));
    }
}
