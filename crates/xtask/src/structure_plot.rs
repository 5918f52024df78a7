//! Draws how large the structures became over time, for every way of making workloads: one panel per measure.

use std::fmt::Write;

use serde_json::Value;

/// What is drawn, each in a panel of its own.
const MEASURES: [&str; 5] = ["depth", "fan_out", "links", "size", "opens"];

/// A colour for each way.
const COLOURS: [&str; 3] = ["#1f77b4", "#d62728", "#2ca02c"];

const WIDTH: f64 = 260.0;
const HEIGHT: f64 = 120.0;
const MARGIN: f64 = 40.0;

/// One line of the drawing: a name and its samples.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) samples: Vec<Value>,
}

/// The drawing as SVG. Values are on a scale of powers of two.
pub(crate) fn draw(title: &str, series: &[Series]) -> String {
    let number = |sample: &Value, field: &str| sample[field].as_f64().unwrap_or(0.0);
    let all = || series.iter().flat_map(|series| &series.samples);
    let seconds = all().map(|sample| number(sample, "seconds")).fold(1.0, f64::max);
    let full = MEASURES.len() as f64 * (WIDTH + MARGIN) + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{full}\" height=\"{}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<text x=\"{MARGIN}\" y=\"16\">{title}</text>\n",
        HEIGHT + 2.0 * MARGIN,
    );
    for (panel, measure) in MEASURES.iter().enumerate() {
        let left = MARGIN + panel as f64 * (WIDTH + MARGIN);
        let most = all().map(|sample| number(sample, measure)).fold(1.0, f64::max);
        let top = (most + 1.0).log2();
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{MARGIN}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" \
             stroke=\"#999\"/>\n<text x=\"{left}\" y=\"{}\">{measure}, at most {most}</text>",
            MARGIN - 6.0,
        );
        for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
            let point = |sample: &Value| {
                let x = left + WIDTH * number(sample, "seconds") / seconds;
                let y = MARGIN + HEIGHT * (1.0 - (number(sample, measure) + 1.0).log2() / top);
                format!("{x:.1},{y:.1}")
            };
            let points: Vec<String> = series.samples.iter().map(point).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>",
                points.join(" ")
            );
        }
    }
    for (at, (series, colour)) in series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let (x, y) = (MARGIN + at as f64 * 180.0, HEIGHT + 1.6 * MARGIN);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{}</text>", series.name);
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_way_has_a_line_in_every_panel() {
        let sample = |seconds, depth| json!({"seconds": seconds, "depth": depth, "size": 4096});
        let series = |name: &str| Series {
            name: name.to_owned(),
            samples: vec![sample(1.0, 2), sample(2.0, 9)],
        };
        let svg = draw("ext4", &[series("layered"), series("tour")]);
        assert_eq!(svg.matches("<polyline").count(), 2 * MEASURES.len());
        assert!(svg.contains("depth, at most 9") && svg.ends_with("</svg>\n"));
    }
}
