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
