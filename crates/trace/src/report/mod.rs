//! The report: what was exercised, how evenly, and what never.
//!
//! It is plain data with names as text, so that reports of different runs, tools and versions can be
//! read back and compared.

mod hole;
mod unreachable;

use std::collections::BTreeMap;

use fathom_core::partition::{
    ArgKind, Base, Coverage, Granularity, Hit, Place, all_pairs, coverage::all_hits, table,
};

use crate::analyse;
use crate::sample::{Samples, Touch};
use crate::traced::Traced;
pub use fathom_record::coverage::{
    Bucket, CallReport, Hole, Pairs, PlaceReport, Report, Tally, VERSION, Watched, ratio,
};
pub use hole::holes;
pub use unreachable::Unreachable;

/// Names a partition as on the command line: `CALL.ARGUMENT.NAME`, `CALL.output.NAME`.
pub(crate) fn partition_id(hit: &Hit) -> String {
    match hit.place {
        Place::Arg(arg) => format!("{}.{arg}.{}", hit.base, hit.partition),
        Place::Output => format!("{}.output.{}", hit.base, hit.partition),
    }
}

/// The report of traced calls.
pub fn of_traced(
    traced: &Traced,
    title: &str,
    how: Granularity,
    unreachable: &Unreachable,
) -> Report {
    let coverage = analyse::coverage(&traced.samples, Touch::Inside, how);
    let mut report = of_coverage(&coverage, title, unreachable);
    report.tracer = traced.tracer.clone();
    report.limits = traced.limits.clone();
    report.ended = traced.ended;
    report.lost = traced.lost;
    report.guessed = traced.guessed;
    add_variants(&mut report, &traced.samples);
    report
}

/// The report of partitions that were counted elsewhere, for example of executed operations.
pub fn of_coverage(coverage: &Coverage, title: &str, unreachable: &Unreachable) -> Report {
    let mut bases = BTreeMap::new();
    for (name, base) in &table().bases {
        bases.insert(name.clone(), call_report(name, base, coverage, unreachable));
    }
    let amounts = match coverage.granularity() {
        Granularity::Powers => "powers",
        Granularity::Boundaries => "boundaries",
    };
    let mut report = Report {
        fathom_cover: VERSION,
        title: title.to_owned(),
        tracer: String::new(),
        limits: Vec::new(),
        mounts: Vec::new(),
        ended: None,
        seconds: 0.0,
        amounts: amounts.to_owned(),
        has_outputs: true,
        calls: 0,
        lost: 0,
        unresolved: 0,
        guessed: 0,
        partitions_hit: 0,
        partitions_total: 0,
        partitions_unreachable: 0,
        pairs_hit: 0,
        pairs_total: 0,
        scopes: BTreeMap::new(),
        bases,
        orphans: BTreeMap::new(),
        holes: Vec::new(),
    };
    sum_up(&mut report);
    report
}

/// Leaves results out: the log did not have them.
pub fn without_outputs(mut report: Report) -> Report {
    report.has_outputs = false;
    for call in report.bases.values_mut() {
        call.output.partitions.clear();
        call.output.tally = Tally::default();
        call.output.variation = None;
    }
    sum_up(&mut report);
    report
}

fn sum_up(report: &mut Report) {
    (report.partitions_hit, report.partitions_total, report.partitions_unreachable) = (0, 0, 0);
    (report.pairs_hit, report.pairs_total, report.calls) = (0, 0, 0);
    report.scopes.clear();
    for call in report.bases.values_mut() {
        let places = call.args.values().chain([&call.output]);
        let tally = places.clone().fold(Tally::default(), |sum, place| Tally {
            hit: sum.hit + place.tally.hit,
            total: sum.total + place.tally.total,
        });
        (call.partitions_hit, call.partitions_total) = (tally.hit, tally.total);
        report.partitions_hit += tally.hit;
        report.partitions_total += tally.total;
        for place in places {
            let left_out = place.partitions.iter().filter(|b| !b.counts() && !b.undocumented);
            report.partitions_unreachable += left_out.count();
            if let Some(pairs) = &place.pairs {
                report.pairs_hit += pairs.tally.hit;
                report.pairs_total += pairs.tally.total;
            }
        }
        let scope = report.scopes.entry(call.scope.clone()).or_default();
        scope.hit += tally.hit;
        scope.total += tally.total;
        report.calls += call.calls;
    }
    report.holes = holes(report);
}

fn add_variants(report: &mut Report, samples: &Samples) {
    for (sample, times) in samples.iter() {
        let call = sample.call();
        match sample.touch() {
            Touch::Inside => {
                if let Some(base) = report.bases.get_mut(call.base) {
                    *base.variants.entry(call.name.to_owned()).or_default() += times;
                }
            }
            Touch::Nothing => {
                let how = match sample.result() {
                    Ok(_) => "success".to_owned(),
                    Err(errno) => errno.to_string(),
                };
                let orphan = report.orphans.entry(call.name.to_owned()).or_default();
                *orphan.entry(how).or_default() += times;
            }
            Touch::Unresolved => report.unresolved += times,
            Touch::Outside => {}
        }
    }
}

fn call_report(
    name: &'static str,
    base: &'static Base,
    coverage: &Coverage,
    unreachable: &Unreachable,
) -> CallReport {
    let all = all_hits(name, coverage.granularity());
    let undocumented: Vec<Hit> =
        coverage.undocumented().map(|(hit, _)| *hit).filter(|hit| hit.base == name).collect();
    let buckets = |place: Place| {
        let bucket = |hit: &Hit, undocumented| Bucket {
            name: hit.partition.to_string(),
            count: coverage.count(hit),
            unreachable: unreachable.reason(&partition_id(hit)).map(str::to_owned),
            undocumented,
        };
        let known = all.iter().map(|hit| (hit, false));
        let others = undocumented.iter().map(|hit| (hit, true));
        let here = known.chain(others).filter(|(hit, _)| hit.place == place);
        here.map(|(hit, undocumented)| bucket(hit, undocumented)).collect::<Vec<_>>()
    };
    let mut args = BTreeMap::new();
    for (arg, details) in &base.args {
        let buckets = buckets(Place::Arg(arg));
        if !buckets.is_empty() {
            let mut report = place_report(kind_name(&details.kind), buckets);
            report.pairs = pairs_report(name, arg, coverage);
            args.insert(arg.clone(), report);
        }
    }
    let ended = coverage.hits().filter(|(hit, _)| hit.base == name && hit.place == Place::Output);
    CallReport {
        scope: base.scope.clone(),
        calls: ended.map(|(_, count)| count).sum(),
        variants: BTreeMap::new(),
        partitions_hit: 0,
        partitions_total: 0,
        args,
        output: place_report("output", buckets(Place::Output)),
    }
}

fn place_report(kind: &str, partitions: Vec<Bucket>) -> PlaceReport {
    let counted: Vec<u64> =
        partitions.iter().filter(|b| b.counts()).map(|bucket| bucket.count).collect();
    let hit = counted.iter().filter(|count| **count > 0).count();
    let tally = Tally { hit, total: counted.len() };
    PlaceReport {
        kind: kind.to_owned(),
        tally,
        variation: variation(&counted),
        partitions,
        pairs: None,
    }
}

/// Computes the standard deviation over the mean; `None` if nothing was counted.
fn variation(counts: &[u64]) -> Option<f64> {
    let n = counts.len() as f64;
    let mean = counts.iter().sum::<u64>() as f64 / n;
    if counts.is_empty() || mean == 0.0 {
        return None;
    }
    let squares: f64 = counts.iter().map(|count| (*count as f64 - mean).powi(2)).sum();
    Some((squares / n).sqrt() / mean)
}

fn pairs_report(base: &str, arg: &str, coverage: &Coverage) -> Option<Pairs> {
    let all = all_pairs(base, arg);
    let count = |pair| match coverage.pair_count(pair) {
        0 => None,
        count => Some((format!("{}|{}", pair.first, pair.second), count)),
    };
    let counts: BTreeMap<String, u64> = all.iter().filter_map(count).collect();
    let tally = Tally { hit: counts.len(), total: all.len() };
    (!all.is_empty()).then_some(Pairs { tally, counts })
}

fn kind_name(kind: &ArgKind) -> &'static str {
    match kind {
        ArgKind::Bitmask(_) => "bitmask",
        ArgKind::Numeric(_) => "numeric",
        ArgKind::Categorical(_) => "categorical",
        ArgKind::Identifier(_) => "identifier",
        ArgKind::Pointer(_) => "pointer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{self, SLOTS_MAX, index_of};
    use crate::sample::{Raw, Sample, encode};

    /// A run of ten writes of 4096 bytes, of which one fails, and one bad close.
    fn traced() -> Traced {
        let mut traced = Traced { tracer: "test".to_owned(), ..Traced::default() };
        let write = index_of("write").unwrap();
        let mut slots = [0; SLOTS_MAX];
        for (slot, code) in layout::calls()[usize::from(write)].slots.iter().zip(&mut slots) {
            *code = encode(slot.kind, Raw::Number(4096));
        }
        slots[0] = crate::sample::fd::VALID;
        let sample = |result| Sample::new(write, Touch::Inside, slots, result);
        traced.samples.add(sample(4096), 9);
        traced.samples.add(sample(-28), 1);
        let close = index_of("close").unwrap();
        traced.samples.add(Sample::new(close, Touch::Nothing, [1; SLOTS_MAX], -9), 1);
        traced
    }

    #[test]
    fn counts_totals_and_orphans() {
        let none = Unreachable::default();
        let report = of_traced(&traced(), "t", Granularity::Powers, &none);
        assert_eq!(report.calls, 10);
        assert_eq!(report.count("write.count.[2^12,2^13)"), Some(10));
        assert_eq!(report.count("write.output.ENOSPC"), Some(1));
        assert_eq!(report.count("write.output.[2^12,2^13)"), Some(9));
        assert_eq!(report.count("write.output.EIO"), Some(0));
        assert_eq!(report.count("write.output.nonsense"), None);
        assert_eq!(report.bases["write"].variants["write"], 10);
        assert_eq!(report.orphans["close"]["EBADF"], 1);
        assert_eq!(report.bases["close"].calls, 0);
        // fd, buf, count, two results.
        assert_eq!((report.bases["write"].partitions_hit, report.partitions_hit), (5, 5));
        let sum: usize = report.bases.values().map(|call| call.partitions_total).sum();
        assert_eq!(report.partitions_total, sum);
    }

    #[test]
    fn what_is_unreachable_leaves_the_total_unless_it_was_reached() {
        let none = of_traced(&traced(), "t", Granularity::Powers, &Unreachable::default());
        let rules = "[[unreachable]]\npartition = 'write.output.E*'\nreason = 'r'\n";
        let rules = Unreachable::parse(rules).unwrap();
        let some = of_traced(&traced(), "t", Granularity::Powers, &rules);
        let errors = none.bases["write"].output.partitions.iter();
        let errors = errors.filter(|bucket| bucket.name.starts_with('E')).count();
        assert_eq!(some.partitions_unreachable, errors - 1);
        assert_eq!(some.partitions_total, none.partitions_total - (errors - 1));
        assert_eq!(some.partitions_hit, none.partitions_hit);
    }

    #[test]
    fn variation_is_that_of_the_textbook() {
        assert_eq!(variation(&[3, 3, 3]), Some(0.0));
        assert_eq!(variation(&[0, 0]), None);
        assert_eq!(variation(&[]), None);
        // Mean 5, deviations 3, 1, 1, 1, 0, 0, 2, 4: the textbook's standard deviation of 2.
        assert_eq!(variation(&[2, 4, 4, 4, 5, 5, 7, 9]), Some(0.4));
    }
}
