//! Coverage for a terminal.

use fathom_record::coverage::{CallReport, PlaceReport, Report, ratio};

use crate::words::{grouped, table};

/// Heights of a bar; the first is for what was never exercised.
const SPARKS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What people read.
pub fn report(report: &Report, full: bool) -> String {
    let mut text = head(report);
    let mut rows = vec![
        ["call.argument", "times", "hit", "of", "%", "cv", "partitions in order, log scale"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut made: Vec<(&String, &CallReport)> =
        report.bases.iter().filter(|(_, call)| call.calls > 0).collect();
    made.sort_by(|a, b| b.1.calls.cmp(&a.1.calls).then_with(|| a.0.cmp(b.0)));
    for (base, call) in &made {
        rows.push(vec![
            (*base).clone(),
            grouped(call.calls),
            call.partitions_hit.to_string(),
            call.partitions_total.to_string(),
            share(call.partitions_hit, call.partitions_total),
        ]);
        let places = call.args.iter().map(|(arg, place)| (arg.as_str(), place));
        let interesting = |kind: &str| full || !matches!(kind, "identifier" | "pointer");
        for (arg, place) in places.filter(|(_, place)| interesting(&place.kind)) {
            rows.push(place_row(arg, place));
        }
        if report.has_outputs {
            rows.push(place_row("output", &call.output));
        }
    }
    text.push_str(&table(&rows));
    if full {
        text.push_str(&every_partition(&made));
    }
    text.push_str(&never(report));
    text.push_str(&foot(report));
    text
}

fn head(report: &Report) -> String {
    let watched: Vec<String> =
        report.mounts.iter().map(|mount| format!("{} ({})", mount.path, mount.kind)).collect();
    let mut text = format!("{}\n", report.title);
    if !watched.is_empty() {
        text.push_str(&format!("watched by {}: {}\n", report.tracer, watched.join(", ")));
    }
    text.push_str(&format!(
        "{} calls, {} of {} partitions ({}), {} of {} pairs of flags ({})\n",
        grouped(report.calls),
        grouped(report.partitions_hit as u64),
        grouped(report.partitions_total as u64),
        share(report.partitions_hit, report.partitions_total),
        grouped(report.pairs_hit as u64),
        grouped(report.pairs_total as u64),
        share(report.pairs_hit, report.pairs_total),
    ));
    let scopes: Vec<String> = report
        .scopes
        .iter()
        .map(|(scope, tally)| format!("{scope} {}", share(tally.hit, tally.total)))
        .collect();
    text.push_str(&format!("by kind of call: {}\n", scopes.join(", ")));
    for (number, what) in [
        (report.lost, "could not be counted"),
        (report.unresolved, "belong to a file system that was not found out"),
        (report.guessed, "were attributed to the last directory that was known"),
    ] {
        if number > 0 {
            text.push_str(&format!("{} calls {what}\n", grouped(number)));
        }
    }
    text.push('\n');
    text
}

fn place_row(name: &str, place: &PlaceReport) -> Vec<String> {
    vec![
        format!("  .{name}"),
        String::new(),
        place.tally.hit.to_string(),
        place.tally.total.to_string(),
        share(place.tally.hit, place.tally.total),
        place.variation.map_or(String::new(), |variation| format!("{variation:.1}")),
        sparkline(place),
    ]
}

/// One character per partition.
fn sparkline(place: &PlaceReport) -> String {
    let most = place.partitions.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let line: String = place
        .partitions
        .iter()
        .filter(|bucket| bucket.counts())
        .map(|bucket| SPARKS[level(bucket.count, most)])
        .collect();
    let end = line.rfind(|c| c != SPARKS[0]).map_or(0, |at| at + 3);
    let rest = line[end..].chars().count();
    // A long tail of nothing says as much in a number.
    if rest > 8 { format!("{}{}×{rest}", &line[..end], SPARKS[0]) } else { line }
}

/// 0 for never, 1 to 8 on a logarithmic scale.
fn level(count: u64, most: u64) -> usize {
    match count {
        0 => 0,
        _ if most <= 1 => 8,
        _ => 1 + (7.0 * (count as f64).ln() / (most as f64).ln()).round() as usize,
    }
}

fn every_partition(made: &[(&String, &CallReport)]) -> String {
    let mut rows = Vec::new();
    for (base, call) in made {
        let places = call.args.iter().map(|(arg, place)| (arg.as_str(), place));
        for (arg, place) in places.chain([("output", &call.output)]) {
            for bucket in &place.partitions {
                let note = match (&bucket.unreachable, bucket.undocumented) {
                    (Some(reason), _) => format!("unreachable: {reason}"),
                    (None, true) => "in no manual page".to_owned(),
                    (None, false) => String::new(),
                };
                let name = format!("{base}.{arg}.{}", bucket.name);
                rows.push(vec![name, grouped(bucket.count), note]);
            }
        }
    }
    format!("\n{}", table(&rows))
}

fn never(report: &Report) -> String {
    let core = report.bases.iter().filter(|(_, call)| call.scope == "core" && call.calls == 0);
    let names: Vec<&str> = core.map(|(base, _)| base.as_str()).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("\nnever called: {}\n", names.join(", "))
}

fn foot(report: &Report) -> String {
    let mut text = String::new();
    if !report.orphans.is_empty() {
        text.push_str("\ncalls that belong to no file system (bad descriptors, bad addresses):\n");
        for (call, ends) in &report.orphans {
            let ends: Vec<String> =
                ends.iter().map(|(how, count)| format!("{how} {}", grouped(*count))).collect();
            text.push_str(&format!("  {call}: {}\n", ends.join(", ")));
        }
    }
    if !report.holes.is_empty() {
        text.push_str("\nwhat a tester would add first\n");
        for (index, hole) in report.holes.iter().enumerate() {
            text.push_str(&format!("{:3}. {}\n     add: {}\n", index + 1, hole.words, hole.add));
        }
    }
    if !report.limits.is_empty() {
        text.push_str("\nwhat this tracer does not see:\n");
        for limit in &report.limits {
            text.push_str(&format!("  {limit}\n"));
        }
    }
    text
}

/// A share as people write it.
pub fn share(hit: usize, total: usize) -> String {
    format!("{:.1}%", 100.0 * ratio(hit, total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_record::coverage::{Bucket, Tally};

    #[test]
    fn bars_grow_with_the_logarithm() {
        assert_eq!(level(0, 1000), 0);
        assert_eq!(level(1, 1000), 1);
        assert_eq!(level(1000, 1000), 8);
        assert_eq!(level(1, 1), 8);
        assert!(level(30, 1000) > level(3, 1000));
    }

    #[test]
    fn a_long_tail_of_nothing_is_a_number() {
        let bucket =
            |count| Bucket { name: String::new(), count, unreachable: None, undocumented: false };
        let place = |counts: &[u64]| PlaceReport {
            kind: "numeric".to_owned(),
            tally: Tally::default(),
            variation: None,
            partitions: counts.iter().map(|count| bucket(*count)).collect(),
            pairs: None,
        };
        assert_eq!(sparkline(&place(&[1, 0, 100])), "▁·█");
        assert_eq!(sparkline(&place(&[[1].as_slice(), &[0; 20]].concat())), "█·×20");
        assert_eq!(sparkline(&place(&[0, 0])), "··");
    }
}
