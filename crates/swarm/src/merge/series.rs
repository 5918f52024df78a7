//! The course of many runs together: how much was done so long after the start of each.
//!
//! Each run says how much it had done by when. What it did within an interval is added to that interval,
//! so that sums can be made in any order; an interval is a power of two of milliseconds, and as long as it
//! must be for all intervals to fit.

use fathom_record::run::{Run, Sample};

/// Intervals that are kept.
const INTERVALS_MAX: u64 = 512;

/// What was done in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    operations: u64,
    states: u64,
    crash_images: u64,
    findings: u64,
}

/// The course of many runs together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Series {
    /// An interval has 2^shift milliseconds.
    shift: u32,
    intervals: Vec<Done>,
}

/// Seconds as whole milliseconds; what is no time is none.
pub(super) fn milliseconds(seconds: f64) -> u64 {
    // The conversion saturates, and makes nothing of what is no number.
    (seconds * 1000.0) as u64 & (u64::MAX >> 8)
}

impl Series {
    /// Adds the course of a run.
    pub(super) fn add(&mut self, run: &Run) {
        let count = |name| run.count(name).unwrap_or(0);
        let end = Sample {
            seconds: run.seconds,
            states: count("states"),
            crash_images: count("crash_images"),
            findings: run.findings.len() as u64,
            coverage: 0,
            operations: count("operations"),
        };
        let mut before = Done::default();
        for sample in run.samples.iter().chain([&end]) {
            let at = milliseconds(sample.seconds);
            // Numbers never shrink in an honest run; in others they count as they stand.
            let grown = |now: u64, then: &mut u64| {
                let step = now.saturating_sub(*then);
                *then = now.max(*then);
                step
            };
            let done = Done {
                operations: grown(sample.operations, &mut before.operations),
                states: grown(sample.states, &mut before.states),
                crash_images: grown(sample.crash_images, &mut before.crash_images),
                findings: grown(sample.findings, &mut before.findings),
            };
            self.put(at, done);
        }
    }

    fn put(&mut self, at: u64, done: Done) {
        while at >> self.shift >= INTERVALS_MAX {
            self.coarsen();
        }
        let index = (at >> self.shift) as usize;
        if self.intervals.len() <= index {
            self.intervals.resize(index + 1, Done::default());
        }
        self.intervals[index].add(done);
    }

    /// Makes every interval twice as long.
    fn coarsen(&mut self) {
        self.shift += 1;
        let pairs = self.intervals.chunks(2).map(|pair| {
            let mut sum = Done::default();
            pair.iter().for_each(|done| sum.add(*done));
            sum
        });
        self.intervals = pairs.collect();
    }

    /// What all runs had done by when.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let mut sum = Done::default();
        let sample = |(index, done): (usize, &Done)| {
            sum.add(*done);
            Sample {
                seconds: ((index as u64 + 1) << self.shift) as f64 / 1000.0,
                states: sum.states,
                crash_images: sum.crash_images,
                findings: sum.findings,
                coverage: 0,
                operations: sum.operations,
            }
        };
        self.intervals.iter().enumerate().map(sample).collect()
    }
}

impl Done {
    fn add(&mut self, other: Done) {
        self.operations = self.operations.saturating_add(other.operations);
        self.states = self.states.saturating_add(other.states);
        self.crash_images = self.crash_images.saturating_add(other.crash_images);
        self.findings = self.findings.saturating_add(other.findings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_record::run::Kind;
    use proptest::prelude::*;

    fn run(points: &[(u32, u32)]) -> Run {
        let mut run = Run::start(Kind::Check, "fathom check model", "model");
        let (mut at, mut operations) = (0.0, 0);
        for (step, more) in points {
            at += f64::from(*step) / 100.0;
            operations += u64::from(*more);
            let sample = Sample {
                seconds: at,
                states: operations / 2,
                crash_images: 0,
                findings: 0,
                coverage: 0,
                operations,
            };
            run.samples.push(sample);
        }
        run.seconds = at;
        run
    }

    proptest! {
        #[test]
        fn the_order_does_not_matter_and_nothing_is_lost(
            runs in prop::collection::vec(prop::collection::vec((0_u32..100_000, 0_u32..50), 0..20), 1..6),
        ) {
            let runs: Vec<Run> = runs.iter().map(|points| run(points)).collect();
            let (mut forward, mut backward) = (Series::default(), Series::default());
            runs.iter().for_each(|run| forward.add(run));
            runs.iter().rev().for_each(|run| backward.add(run));
            prop_assert_eq!(forward.samples(), backward.samples());
            let all: u64 = runs.iter().filter_map(|run| run.samples.last()).map(|s| s.operations).sum();
            prop_assert_eq!(forward.samples().last().map_or(0, |s| s.operations), all);
            prop_assert!(forward.intervals.len() as u64 <= INTERVALS_MAX);
        }
    }

    #[test]
    fn what_is_no_time_does_no_harm() {
        let mut series = Series::default();
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            let mut strange = run(&[]);
            strange.seconds = seconds;
            series.add(&strange);
        }
        assert!(series.intervals.len() as u64 <= INTERVALS_MAX);
    }
}
