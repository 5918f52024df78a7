//! The coverage of many runs, added.

use std::collections::BTreeMap;

use fathom_record::coverage::{CallReport, Hole, PlaceReport, Report, Tally, VERSION};

/// Partitions that are kept: many times what all calls have.
const PARTITIONS_MAX: usize = 100_000;

/// The sum while it is made.
#[derive(Default)]
pub(super) struct Sum {
    report: Option<Report>,
    holes: BTreeMap<Vec<String>, Hole>,
}

impl Sum {
    /// Adds a report as it lies in a file.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut report: Report =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if report.fathom_cover != VERSION {
            return Err(format!("it is of version {}", report.fathom_cover));
        }
        let places = report.bases.values().flat_map(places);
        let partitions: usize = places.map(|place| place.partitions.len()).sum();
        if partitions > PARTITIONS_MAX {
            return Err(format!("it has {partitions} partitions"));
        }
        for hole in std::mem::take(&mut report.holes) {
            self.holes.insert(hole.partitions.clone(), hole);
        }
        if self.holes.len() > PARTITIONS_MAX {
            self.holes.pop_last();
        }
        match &mut self.report {
            None => self.report = Some(report),
            Some(sum) => add(sum, report),
        }
        Ok(())
    }

    /// The sum: what follows from the counts is made anew.
    pub(super) fn finish(self) -> Option<Report> {
        let mut report = self.report?;
        report.title = "the united runs".to_owned();
        (report.mounts, report.ended) = (Vec::new(), None);
        (report.partitions_hit, report.partitions_total) = (0, 0);
        (report.pairs_hit, report.pairs_total) = (0, 0);
        report.scopes.values_mut().for_each(|tally| *tally = Tally::default());
        for call in report.bases.values_mut() {
            let tally = tally_call(call);
            report.partitions_hit += tally.hit;
            report.partitions_total += tally.total;
            let scope = report.scopes.entry(call.scope.clone()).or_default();
            *scope = Tally { hit: scope.hit + tally.hit, total: scope.total + tally.total };
            for pairs in call.args.values().filter_map(|place| place.pairs.as_ref()) {
                report.pairs_hit += pairs.tally.hit;
                report.pairs_total += pairs.tally.total;
            }
        }
        let is_hole = |hole: &Hole| hole.partitions.iter().all(|id| report.count(id) == Some(0));
        let mut holes: Vec<Hole> = self.holes.into_values().filter(is_hole).collect();
        holes.sort_by_key(|hole| std::cmp::Reverse(hole.partitions.len()));
        report.holes = holes;
        Some(report)
    }
}

fn places(call: &CallReport) -> impl Iterator<Item = &PlaceReport> {
    call.args.values().chain([&call.output])
}

fn add(sum: &mut Report, other: Report) {
    sum.seconds = 0.0;
    for (mine, more) in [
        (&mut sum.calls, other.calls),
        (&mut sum.lost, other.lost),
        (&mut sum.unresolved, other.unresolved),
        (&mut sum.guessed, other.guessed),
    ] {
        *mine = mine.saturating_add(more);
    }
    for (base, call) in other.bases {
        match sum.bases.get_mut(&base) {
            Some(mine) => add_call(mine, call),
            None => drop(sum.bases.insert(base, call)),
        }
    }
    for (base, answers) in other.orphans {
        let mine = sum.orphans.entry(base).or_default();
        add_counts(mine, answers);
    }
}

fn add_counts(sum: &mut BTreeMap<String, u64>, other: BTreeMap<String, u64>) {
    for (name, count) in other {
        let mine = sum.entry(name).or_default();
        *mine = mine.saturating_add(count);
    }
}

fn add_call(sum: &mut CallReport, other: CallReport) {
    sum.calls = sum.calls.saturating_add(other.calls);
    add_counts(&mut sum.variants, other.variants);
    for (name, place) in other.args {
        match sum.args.get_mut(&name) {
            Some(mine) => add_place(mine, place),
            None => drop(sum.args.insert(name, place)),
        }
    }
    add_place(&mut sum.output, other.output);
}

fn add_place(sum: &mut PlaceReport, other: PlaceReport) {
    // Reports of one version have the same partitions in the same order; others are looked for.
    for (index, bucket) in other.partitions.into_iter().enumerate() {
        let same = sum.partitions.get(index).is_some_and(|mine| mine.name == bucket.name);
        let found = match same {
            true => Some(index),
            false => sum.partitions.iter().position(|mine| mine.name == bucket.name),
        };
        match found {
            Some(at) => {
                let mine = &mut sum.partitions[at];
                mine.count = mine.count.saturating_add(bucket.count);
            }
            None => sum.partitions.push(bucket),
        }
    }
    if let (Some(mine), Some(pairs)) = (&mut sum.pairs, other.pairs) {
        add_counts(&mut mine.counts, pairs.counts);
    }
}

/// Makes the tallies of a call anew; that of all its partitions.
fn tally_call(call: &mut CallReport) -> Tally {
    let mut all = Tally::default();
    for place in call.args.values_mut().chain([&mut call.output]) {
        let counted = || place.partitions.iter().filter(|bucket| bucket.counts());
        let hit = counted().filter(|bucket| bucket.count > 0).count();
        place.tally = Tally { hit, total: counted().count() };
        place.variation = variation(counted().map(|bucket| bucket.count as f64).collect());
        if let Some(pairs) = &mut place.pairs {
            pairs.tally.hit = pairs.counts.values().filter(|count| **count > 0).count();
        }
        all = Tally { hit: all.hit + place.tally.hit, total: all.total + place.tally.total };
    }
    (call.partitions_hit, call.partitions_total) = (all.hit, all.total);
    all
}

/// Coefficient of variation; none if nothing was exercised.
fn variation(counts: Vec<f64>) -> Option<f64> {
    let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
    let squares: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
    (mean > 0.0).then(|| (squares / counts.len() as f64).sqrt() / mean)
}
