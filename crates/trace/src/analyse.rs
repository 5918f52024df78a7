//! Turns counted samples into counts of partitions.

use fathom_core::partition::{Arg, Coverage, Granularity, Hit, Place, Value};

use crate::layout::Call;
use crate::sample::{Sample, Samples, Touch, representative};

/// `O_CREAT` and `__O_TMPFILE`: without them open(2) ignores the mode.
const OPEN_CREATES: u64 = 0o100 | 0o20_000_000;

/// The partitions of one sample.
pub fn hits(sample: &Sample, how: Granularity) -> Vec<Hit> {
    let call = sample.call();
    let mut hits = Vec::new();
    let mut add = |name: &'static str, arg: &'static Arg, value| {
        let partitions = arg.partitions(value, how).into_iter();
        let hit = |partition| Hit { base: call.base, place: Place::Arg(name), partition };
        hits.extend(partitions.map(hit));
    };
    let mode_matters = call.base != "open" || creates(call, sample);
    for (slot, code) in call.slots.iter().zip(sample.slots) {
        if slot.name == "mode" && !mode_matters {
            continue;
        }
        if let Some(value) = representative(slot.kind, code) {
            add(slot.name, slot.arg, value);
        }
    }
    for (name, arg, value) in &call.implied {
        add(name, arg, Value::Number(*value));
    }
    let partition = call.family.returns.partition(sample.result());
    hits.push(Hit { base: call.base, place: Place::Output, partition });
    hits
}

fn creates(call: &Call, sample: &Sample) -> bool {
    let implied = call.implied.iter().find(|(name, ..)| *name == "flags").map(|found| found.2);
    let index = call.slots.iter().position(|slot| slot.name == "flags");
    let given = index.map(|index| sample.slots[index].into());
    given.or(implied).is_some_and(|flags: u64| flags & OPEN_CREATES != 0)
}

/// Counts the partitions of the calls whose samples have this [`Touch`].
pub fn coverage(samples: &Samples, touch: Touch, how: Granularity) -> Coverage {
    let mut coverage = Coverage::new(how);
    for (sample, times) in samples.iter().filter(|(sample, _)| sample.touch() == touch) {
        coverage.add_call(&hits(sample, how), times);
    }
    coverage
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{SLOTS_MAX, index_of};
    use fathom_core::partition::Partition;

    fn names(call: &str, slots: &[u32]) -> Vec<String> {
        let mut all = [0; SLOTS_MAX];
        all[..slots.len()].copy_from_slice(slots);
        let sample = Sample::new(index_of(call).unwrap(), Touch::Inside, all, 0);
        hits(&sample, Granularity::Powers).iter().map(Hit::to_string).collect()
    }

    #[test]
    fn creat_implies_flags_and_so_its_mode_counts() {
        let found = names("creat", &[crate::sample::text::EMPTY, 0o600]);
        assert!(found.contains(&"open.flags O_CREAT".to_owned()), "{found:?}");
        assert!(found.contains(&"open.mode S_IRUSR".to_owned()), "{found:?}");
        let found = names("open", &[crate::sample::text::EMPTY, 0, 0o600]);
        assert!(!found.iter().any(|name| name.starts_with("open.mode")), "{found:?}");
    }

    #[test]
    fn what_is_outside_does_not_count() {
        let mut samples = Samples::default();
        let close = index_of("close").unwrap();
        samples.add(Sample::new(close, Touch::Outside, [0; SLOTS_MAX], 0), 3);
        samples.add(Sample::new(close, Touch::Inside, [0; SLOTS_MAX], -5), 4);
        let coverage = coverage(&samples, Touch::Inside, Granularity::Powers);
        let counts: Vec<_> = coverage.hits().map(|(hit, count)| (hit.partition, count)).collect();
        let eio = Partition::Error(fathom_core::Errno::EIO);
        assert_eq!(counts, [(Partition::Named("valid"), 4), (eio, 4)]);
    }
}
