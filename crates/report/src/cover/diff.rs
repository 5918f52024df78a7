//! Reports side by side.

use fathom_record::coverage::Report;
use serde_json::{Value, json};

use super::export::partition_names;
use super::text::share;
use crate::words::{grouped, table};

/// The figures 4.5 and 4.6 of the IOCov paper as text, then what only some of the runs exercise.
pub fn text(reports: &[(String, Report)]) -> String {
    let mut text = String::new();
    let mut rows = vec![head("", reports)];
    rows.push(line("calls", reports, |report| grouped(report.calls)));
    rows.push(line("partitions", reports, |report| report.partitions_hit.to_string()));
    let completeness = |report: &Report| share(report.partitions_hit, report.partitions_total);
    rows.push(line("completeness", reports, completeness));
    rows.push(line("pairs of flags", reports, |report| report.pairs_hit.to_string()));
    text.push_str(&table(&rows));
    for (base, arg) in [("open", "flags"), ("write", "count")] {
        text.push_str(&format!("\n{base}.{arg}\n"));
        text.push_str(&chart(reports, base, arg));
    }
    text.push_str("\ncalls by partitions hit\n");
    text.push_str(&calls(reports));
    text.push_str(&only(reports));
    text
}

fn head(first: &str, reports: &[(String, Report)]) -> Vec<String> {
    let names = reports.iter().map(|(name, _)| name.clone());
    std::iter::once(first.to_owned()).chain(names).collect()
}

fn line(name: &str, reports: &[(String, Report)], of: impl Fn(&Report) -> String) -> Vec<String> {
    let cells = reports.iter().map(|(_, report)| of(report));
    std::iter::once(name.to_owned()).chain(cells).collect()
}

/// Cells of a bar.
const BAR_CELLS: usize = 12;

/// A bar per partition and report, on a logarithmic scale, with the count.
fn chart(reports: &[(String, Report)], base: &str, arg: &str) -> String {
    let names = partition_names(reports, base, arg);
    let count =
        |report: &Report, name: &str| report.count(&format!("{base}.{arg}.{name}")).unwrap_or(0);
    let all = names.iter().flat_map(|name| reports.iter().map(move |(_, r)| count(r, name)));
    let most = all.max().unwrap_or(0).max(2);
    let hit = |name: &String| reports.iter().any(|(_, report)| count(report, name) > 0);
    let last = names.iter().rposition(hit).map_or(0, |last| last + 1);
    let mut rows = vec![head("", reports)];
    for name in &names[..last] {
        rows.push(line(name, reports, |report| bar(count(report, name), most)));
    }
    let mut text = table(&rows);
    if last < names.len() {
        text.push_str(&format!("and {} more that no run exercises\n", names.len() - last));
    }
    text
}

fn bar(count: u64, most: u64) -> String {
    if count == 0 {
        return "·".to_owned();
    }
    let share = (1.0 + (count as f64).ln()) / (1.0 + (most as f64).ln());
    let cells = ((share * BAR_CELLS as f64).round() as usize).clamp(1, BAR_CELLS);
    format!("{} {}", "█".repeat(cells), grouped(count))
}

fn calls(reports: &[(String, Report)]) -> String {
    let mut rows = vec![head("", reports)];
    let Some((_, first)) = reports.first() else {
        return String::new();
    };
    for base in first.bases.keys() {
        let called = |report: &Report| report.bases.get(base).is_some_and(|call| call.calls > 0);
        if reports.iter().any(|(_, report)| called(report)) {
            rows.push(line(base, reports, |report| match report.bases.get(base) {
                Some(call) if call.calls > 0 => {
                    format!("{} of {}", call.partitions_hit, call.partitions_total)
                }
                _ => "·".to_owned(),
            }));
        }
    }
    table(&rows)
}

/// Partitions that exactly one of the runs exercises: as many as fit on a line each.
fn only(reports: &[(String, Report)]) -> String {
    const TOLD_MAX: usize = 12;
    let mut text = String::new();
    for (name, ids) in only_in(reports) {
        let told = ids.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = match ids.len().saturating_sub(TOLD_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text.push_str(&format!("\nonly {name}: {told}{more}\n"));
    }
    text
}

/// Report → the partitions that only it exercises.
fn only_in(reports: &[(String, Report)]) -> Vec<(String, Vec<String>)> {
    let mut out: Vec<(String, Vec<String>)> =
        reports.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
    let Some((_, first)) = reports.first() else {
        return out;
    };
    for (base, call) in &first.bases {
        for arg in call.args.keys().map(String::as_str).chain(["output"]) {
            for name in partition_names(reports, base, arg) {
                let id = format!("{base}.{arg}.{name}");
                let hit = |(_, report): &(String, Report)| report.count(&id).unwrap_or(0) > 0;
                let who: Vec<usize> = (0..reports.len()).filter(|i| hit(&reports[*i])).collect();
                if let [one] = who[..] {
                    out[one].1.push(id);
                }
            }
        }
    }
    out
}

/// For machines.
pub fn json(reports: &[(String, Report)]) -> Value {
    let runs: Vec<Value> = reports
        .iter()
        .zip(only_in(reports))
        .map(|((name, report), (_, only))| {
            json!({
                "name": name,
                "calls": report.calls,
                "partitions_hit": report.partitions_hit,
                "partitions_total": report.partitions_total,
                "pairs_hit": report.pairs_hit,
                "only_here": only,
            })
        })
        .collect();
    json!({ "runs": runs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_never_empty_for_something() {
        assert_eq!(bar(0, 100), "·");
        assert!(bar(1, 1_000_000).starts_with('█'));
        assert_eq!(bar(100, 100).matches('█').count(), BAR_CELLS);
    }
}
