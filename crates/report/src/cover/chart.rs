//! Bar charts as SVG: one row per partition, one bar per report, on a logarithmic scale.
//!
//! Rows rather than columns: names stay readable, and a phone scrolls downwards.

use super::html::{COLOURS, escaped};
use crate::words::grouped;

const WIDTH: f64 = 520.0;
const NAME_WIDTH: f64 = 120.0;
const COUNT_WIDTH: f64 = 62.0;
const BAR_HEIGHT: f64 = 11.0;
const ROW_GAP: f64 = 5.0;
const AXIS_HEIGHT: f64 = 16.0;
/// Rows that a chart keeps after the last one with a count: the rest is said in a line.
const EMPTY_TAIL: usize = 3;

/// The chart. A partition that no report has counts for is drawn as a gap with a dash.
pub(super) fn bars(rows: &[(String, Vec<u64>)]) -> String {
    let last = rows.iter().rposition(|(_, counts)| counts.iter().any(|count| *count > 0));
    let Some(last) = last else {
        return "<p class=\"quiet\">never exercised</p>\n".to_owned();
    };
    let shown = &rows[..rows.len().min(last + 1 + EMPTY_TAIL)];
    let series = shown[0].1.len();
    let most = shown.iter().flat_map(|(_, counts)| counts).copied().max().unwrap_or(1);
    let decades = (most as f64).log10().ceil().max(1.0);
    let row_height = series as f64 * BAR_HEIGHT + ROW_GAP;
    let height = AXIS_HEIGHT + shown.len() as f64 * row_height;
    let mut body = axis(decades, height);
    for (index, (name, counts)) in shown.iter().enumerate() {
        let top = AXIS_HEIGHT + index as f64 * row_height;
        body.push_str(&row(name, counts, top, decades));
    }
    let rest = rows.len() - shown.len();
    let tail = match rest {
        0 => String::new(),
        _ => {
            format!("<p class=\"quiet\">and {rest} more partitions that were never exercised</p>\n")
        }
    };
    format!(
        "<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"counts per partition\">\n\
         {body}</svg>\n{tail}"
    )
}

fn axis(decades: f64, height: f64) -> String {
    let mut text = String::new();
    for decade in 0..=decades as u32 {
        let x = NAME_WIDTH + scaled(10f64.powi(decade as i32), decades);
        let label = grouped(10u64.saturating_pow(decade));
        text.push_str(&format!(
            "<line x1=\"{x:.1}\" y1=\"{AXIS_HEIGHT}\" x2=\"{x:.1}\" y2=\"{height}\" \
             stroke=\"currentColor\" stroke-opacity=\".15\"/>\
             <text x=\"{x:.1}\" y=\"11\" text-anchor=\"middle\" opacity=\".6\">{label}</text>\n"
        ));
    }
    text
}

fn row(name: &str, counts: &[u64], top: f64, decades: f64) -> String {
    let middle = top + counts.len() as f64 * BAR_HEIGHT / 2.0 + 4.0;
    let mut text = format!(
        "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
        NAME_WIDTH - 6.0,
        escaped(name)
    );
    for (index, count) in counts.iter().enumerate() {
        let y = top + index as f64 * BAR_HEIGHT;
        // One call is a visible bar, none is not.
        let width = if *count == 0 { 0.0 } else { scaled(*count as f64, decades).max(2.0) };
        let colour = COLOURS[index % COLOURS.len()];
        let label = if *count == 0 { "–".to_owned() } else { grouped(*count) };
        text.push_str(&format!(
            "<rect x=\"{NAME_WIDTH}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" \
             fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\" opacity=\".7\">{label}</text>",
            BAR_HEIGHT - 1.0,
            NAME_WIDTH + width + 4.0,
            y + BAR_HEIGHT - 1.0,
        ));
    }
    text + "\n"
}

/// Length of a bar: a decade is the same everywhere, and one call is a little more than none.
fn scaled(count: f64, decades: f64) -> f64 {
    let room = WIDTH - NAME_WIDTH - COUNT_WIDTH;
    room * (count.log10() + 0.15) / (decades + 0.15)
}

/// Which colour is which report.
pub(super) fn legend(names: &[&str]) -> String {
    let items: String = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let colour = COLOURS[index % COLOURS.len()];
            format!("<span style=\"color:{colour}\">■</span> {} &nbsp; ", escaped(name))
        })
        .collect();
    format!("<p>{items}</p>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_count_fits_and_none_has_no_bar() {
        let rows = [("a<b".to_owned(), vec![1000, 0]), ("c".to_owned(), vec![0, 1])];
        let svg = bars(&rows);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"), "{svg}");
        assert_eq!(svg.matches("width=\"0.0\"").count(), 2, "{svg}");
        assert!(scaled(1000.0, 3.0) <= WIDTH - NAME_WIDTH - COUNT_WIDTH + 0.001);
        assert!(scaled(1.0, 3.0) > 2.0);
    }

    #[test]
    fn what_was_never_exercised_has_no_chart() {
        assert!(bars(&[("a".to_owned(), vec![0])]).contains("never exercised"));
        let mut rows = vec![("a".to_owned(), vec![1])];
        rows.extend((0..10).map(|i| (i.to_string(), vec![0])));
        assert!(bars(&rows).contains("and 7 more partitions"));
    }
}
