//! Other arguments for given workloads: ACE makes every file with mode 0777 and writes 32768 or 5000
//! bytes; what a file system does wrong may depend on exactly that.
//!
//! [`Inputs::Iocov`] draws from the pools of CM-IOCov: modes, flags of `open`, sizes of 2^i and 2^i ± 1,
//! offsets that overlap what is there and extend it. [`Inputs::Driven`] draws several variants of each
//! operation and takes the one whose partitions (those of `fathom cover`) were hit least so far. The calls
//! and their order, and what is made durable when, stay as they are: only operations that the reference
//! executes as successfully as the original are changed.

use fathom_core::flags::{Mode, OpenFlags};
use fathom_core::partition::op::partitions_at;
use fathom_core::partition::{Coverage, Granularity};
use fathom_core::{Op, Outcome, Pattern, Slot, Target};
use fathom_model::{Config as ModelConfig, Model};

use crate::choice::Choices;

/// Where the arguments of given workloads come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// They are as they were given.
    Given,
    /// Seeded, from the pools of CM-IOCov.
    Iocov,
    /// From the same pools, what was hit least first.
    Driven,
}

/// Text that names no inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no inputs are called {0:?}: there are given, iocov and driven")]
pub struct UnknownInputs(String);

impl std::str::FromStr for Inputs {
    type Err = UnknownInputs;

    fn from_str(text: &str) -> Result<Inputs, UnknownInputs> {
        match text {
            "given" => Ok(Inputs::Given),
            "iocov" => Ok(Inputs::Iocov),
            "driven" => Ok(Inputs::Driven),
            other => Err(UnknownInputs(other.to_owned())),
        }
    }
}

/// The largest size that is drawn: a fraction of the smallest disk.
const SIZE_BITS_MAX: u64 = 18;

/// Direct I/O wants whole sectors; the largest that any disk here has.
const DIRECT_BYTES: u64 = 4096;

/// Variants of an operation among which the one that was hit least is chosen.
const VARIANTS: usize = 12;

/// Values of extended attributes that fit everywhere.
const XATTR_BYTES_MAX: u64 = 1024;

/// Flags that may be added to every open of a file.
const FLAGS: [OpenFlags; 8] = [
    OpenFlags::empty(),
    OpenFlags::O_APPEND,
    OpenFlags::O_DSYNC,
    OpenFlags::O_SYNC,
    OpenFlags::O_NOATIME,
    OpenFlags::O_NONBLOCK,
    OpenFlags::O_NOFOLLOW,
    OpenFlags::O_CLOEXEC,
];

/// Modes of files and directories that root can work with.
const MODES: [u32; 14] = [
    0o777, 0o755, 0o700, 0o666, 0o644, 0o600, 0o640, 0o444, 0o400, 0o000, 0o1777, 0o2755, 0o4755,
    0o711,
];

/// Workloads with other arguments.
pub struct VariedWorkloads<I> {
    inner: I,
    inputs: Inputs,
    seed: u64,
    number: u64,
    reference: ModelConfig,
    /// What was hit so far.
    coverage: Coverage,
}

impl<I: Iterator<Item = Vec<Op>>> VariedWorkloads<I> {
    /// Changes the arguments of workloads, which `reference` can execute.
    pub fn new(inner: I, inputs: Inputs, seed: u64, reference: ModelConfig) -> VariedWorkloads<I> {
        let coverage = Coverage::new(Granularity::default());
        VariedWorkloads { inner, inputs, seed, number: 0, reference, coverage }
    }

    /// The partitions that the workloads so far have hit.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The operation that is executed instead of `op`, and what it does to the reference.
    fn vary(&self, op: &Op, model: &Model, choices: &mut Choices) -> (Op, Model, Outcome) {
        let execute = |op: Op| {
            let mut after = model.clone();
            let outcome = after.execute(&op);
            (op, after, outcome)
        };
        let given = execute(op.clone());
        if self.inputs == Inputs::Given || given.2.result.is_err() {
            return given;
        }
        let draws = if self.inputs == Inputs::Driven { VARIANTS } else { 1 };
        let size = |slot: Slot| size_of(model, slot);
        let variants = (0..draws).filter_map(|_| variant(op, &size, choices)).map(execute);
        let legal = variants.filter(|(_, _, outcome)| outcome.result.is_ok());
        match self.inputs {
            Inputs::Driven => {
                let all = std::iter::once(given).chain(legal);
                all.max_by_key(|(op, _, outcome)| self.novelty(op, outcome)).expect("the given one")
            }
            _ => legal.last().unwrap_or(given),
        }
    }

    /// How little an operation's partitions were hit: the more, the newer.
    fn novelty(&self, op: &Op, outcome: &Outcome) -> u64 {
        let hits = partitions_at(op, outcome, self.coverage.granularity());
        hits.iter().map(|hit| (1 << 20) / (1 + self.coverage.count(hit))).sum()
    }
}

impl<I: Iterator<Item = Vec<Op>>> Iterator for VariedWorkloads<I> {
    type Item = Vec<Op>;

    fn next(&mut self) -> Option<Vec<Op>> {
        let given = self.inner.next()?;
        let mut choices = Choices::of_episode(self.seed, self.number);
        self.number += 1;
        let mut model = Model::new(self.reference.clone()).ok()?;
        let mut ops = Vec::with_capacity(given.len());
        for op in &given {
            let (op, after, outcome) = self.vary(op, &model, &mut choices);
            self.coverage.add(&op, &outcome);
            model = after;
            ops.push(op);
        }
        Some(ops)
    }
}

/// The size of an open file.
fn size_of(model: &Model, slot: Slot) -> u64 {
    let ino = model.slot_ino(slot);
    ino.and_then(|ino| model.volume().attr(ino).ok()).map_or(0, |attr| attr.size)
}

/// A size from the pool: 0, 2^i, 2^i - 1 or 2^i + 1.
fn size(choices: &mut Choices) -> u64 {
    let power = 1 << choices.below(SIZE_BITS_MAX);
    match choices.below(3) {
        0 => power,
        1 => power - 1,
        _ => power + 1,
    }
}

/// An offset that overlaps what is there, begins at its end, or leaves a hole.
fn offset(choices: &mut Choices, end: u64) -> u64 {
    match choices.below(5) {
        0 => 0,
        1 => end,
        2 => end / 2,
        3 => end.saturating_sub(size(choices)),
        _ => end + size(choices),
    }
}

/// Another variant of an operation; `None` if it has nothing to vary.
fn variant(op: &Op, end: &dyn Fn(Slot) -> u64, choices: &mut Choices) -> Option<Op> {
    let small = |choices: &mut Choices| 1 + size(choices).min((1 << SIZE_BITS_MAX) - 1);
    Some(match op {
        Op::Open { slot, path, flags, mode } if !flags.contains(OpenFlags::O_DIRECTORY) => {
            let direct = flags.contains(OpenFlags::O_DIRECT);
            let more = if direct { OpenFlags::empty() } else { *choices.pick(&FLAGS) };
            let creates = flags.contains(OpenFlags::O_CREAT);
            let mode = if creates { Mode(*choices.pick(&MODES)) } else { *mode };
            Op::Open { slot: *slot, path: path.clone(), flags: *flags | more, mode }
        }
        Op::Mkdir { path, .. } => {
            Op::Mkdir { path: path.clone(), mode: Mode(*choices.pick(&MODES)) }
        }
        Op::Pwrite { slot, offset: at, data } => {
            let aligned =
                (*at as u64).is_multiple_of(DIRECT_BYTES) && data.len.is_multiple_of(DIRECT_BYTES);
            // Writes that may be direct stay whole sectors.
            let whole =
                |value: u64| if aligned { value / DIRECT_BYTES * DIRECT_BYTES } else { value };
            let len = whole(small(choices)).max(if aligned { DIRECT_BYTES } else { 1 });
            let at = whole(offset(choices, end(*slot)));
            Op::Pwrite { slot: *slot, offset: at as i64, data: Pattern { seed: data.seed, len } }
        }
        Op::Fallocate { slot, mode, .. } => {
            let (at, len) = (offset(choices, end(*slot)) as i64, small(choices) as i64);
            Op::Fallocate { slot: *slot, mode: *mode, offset: at, len }
        }
        Op::MmapStore { slot, data, sync, .. } => {
            let end = end(*slot);
            let len = small(choices).min(end.max(1));
            let at = offset(choices, end).min(end.saturating_sub(len)) as i64;
            let data = Pattern { seed: data.seed, len };
            Op::MmapStore { slot: *slot, offset: at, data, sync: *sync }
        }
        Op::Truncate { target, .. } => {
            let end = if let Target::Slot(slot) = target { end(*slot) } else { 0 };
            let len = if choices.percent(50) { size(choices) } else { offset(choices, end) };
            Op::Truncate { target: target.clone(), len: len as i64 }
        }
        Op::Setxattr { target, name, value, flags } => {
            let len = size(choices).min(XATTR_BYTES_MAX);
            let value = Pattern { seed: value.seed, len };
            Op::Setxattr { target: target.clone(), name: name.clone(), value, flags: *flags }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ace::{self, Part, Space};

    fn workloads() -> impl Iterator<Item = Vec<Op>> {
        let space = Space::new(1, false, false).unwrap();
        let all: Vec<Vec<Op>> =
            ace::unique(&space, Part::WHOLE).map(|workload| workload.ops()).collect();
        all.into_iter()
    }

    fn varied(inputs: Inputs) -> (Vec<Vec<Op>>, usize) {
        let mut varied = VariedWorkloads::new(workloads(), inputs, 1, ModelConfig::default());
        let all: Vec<Vec<Op>> = varied.by_ref().collect();
        (all, varied.coverage().hits().count())
    }

    /// The table of docs/CRASH.md.
    #[test]
    fn pools_hit_more_partitions_and_driven_ones_more_still() {
        let (given, partitions_given) = varied(Inputs::Given);
        let (iocov, partitions_iocov) = varied(Inputs::Iocov);
        let (driven, partitions_driven) = varied(Inputs::Driven);
        println!("partitions: {partitions_given} {partitions_iocov} {partitions_driven}");
        assert_eq!(given, workloads().collect::<Vec<_>>());
        assert_eq!(iocov, varied(Inputs::Iocov).0);
        assert!(partitions_given * 3 / 2 < partitions_iocov, "{partitions_iocov}");
        assert!(partitions_iocov < partitions_driven, "{partitions_driven}");
        // The same calls in the same order.
        for all in [&iocov, &driven] {
            for (ops, given) in all.iter().zip(&given) {
                assert!(ops.iter().map(Op::name).eq(given.iter().map(Op::name)));
            }
        }
        // Nothing fails that did not.
        for ops in &driven {
            let mut model = Model::new(ModelConfig::default()).unwrap();
            for op in ops {
                let outcome = model.execute(op);
                assert!(outcome.result.is_ok(), "{op}: {outcome}");
            }
        }
    }
}
