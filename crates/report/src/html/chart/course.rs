//! Exploration over time: states, crash images, coverage, and when findings appeared.

use maud::{Markup, html};

use super::{SIZES, Scale, Size, bolt, px, svg, text_width, value_axis};
use crate::run::{Run, Sample};
use crate::words::{counted, grouped, short, time};

const HEIGHT: f64 = 260.0;
/// DaemonSandbox for the marks of findings, and below for the ticks of time.
const TOP: f64 = 26.0;
const BOTTOM: f64 = HEIGHT - 42.0;
const LEFT: f64 = 52.0;
/// Half of the last tick's text.
const RIGHT: f64 = 14.0;
/// More points than one per two pixels cannot be seen.
const POINT_PIXELS: f64 = 2.0;

/// The chart with its legend; nothing without samples.
pub(in crate::html) fn chart(run: &Run) -> Markup {
    chart_of(run, &LINES)
}

/// The same with other lines.
pub(in crate::html) fn chart_of(run: &Run, lines: &[Line]) -> Markup {
    let Some(last) = run.samples.last() else { return html! {} };
    let found = run.samples.iter().any(|sample| sample.findings > 0);
    html! {
        figure {
            figcaption class="legend" {
                @for line in lines {
                    @if (line.value)(last) > 0 {
                        span { (swatch(line.class)) (line.name) " " b { (grouped((line.value)(last))) } }
                    }
                }
                @if found {
                    span {
                        svg class="swatch" width="12" height="16" viewBox="0 0 12 16" aria-hidden="true" {
                            (bolt(1.0, 0.0, 16.0))
                        }
                        "findings so far"
                    }
                }
            }
            @for size in SIZES { (drawing(run, lines, size)) }
        }
    }
}

/// A line of the chart.
pub(in crate::html) struct Line {
    pub(in crate::html) name: &'static str,
    pub(in crate::html) class: &'static str,
    pub(in crate::html) value: fn(&Sample) -> u64,
}

const LINES: [Line; 3] = [
    Line { name: "crash images", class: "images", value: |sample| sample.crash_images },
    Line { name: "states", class: "states", value: |sample| sample.states },
    Line { name: "kinds of inputs and outputs", class: "kinds", value: |sample| sample.coverage },
];

fn swatch(class: &str) -> Markup {
    html! {
        svg class="swatch" width="26" height="12" viewBox="0 0 26 12" aria-hidden="true" {
            path class={"line " (class)} d="M1 6H25" {}
        }
    }
}

fn drawing(run: &Run, lines: &[Line], size: Size) -> Markup {
    let samples = &run.samples;
    let right = size.width - RIGHT;
    let values = samples.iter().flat_map(|sample| lines.iter().map(|line| (line.value)(sample)));
    let y = Scale::new(values.max().unwrap_or(0) as f64, 5, BOTTOM - TOP);
    let seconds = samples.iter().map(|sample| sample.seconds).fold(run.seconds, f64::max);
    let unit = TimeUnit::of(seconds);
    let x = Scale::exact((seconds / unit.seconds).max(1e-3), ticks_max(size), right - LEFT);
    let x_of = |sample: &Sample| LEFT + x.at(sample.seconds / unit.seconds);
    let points = thinned(samples, &x_of);
    let content = html! {
        (value_axis(&y, LEFT, right, BOTTOM))
        (time_axis(&x, &unit, right))
        (marks(samples, &x_of))
        @for line in lines {
            @let points: Vec<(f64, f64)> = points.iter()
                .map(|sample| (x_of(sample), BOTTOM - y.at((line.value)(sample) as f64))).collect();
            @if points.iter().any(|point| point.1 < BOTTOM) { (drawn(&points, line.class)) }
        }
    };
    svg(size, HEIGHT, &description(run, lines), &content)
}

fn description(run: &Run, lines: &[Line]) -> String {
    let last = run.samples.last();
    let amount = |line: &Line| {
        let value = last.map_or(0, |last| (line.value)(last));
        format!("{} {}", grouped(value), line.name)
    };
    let amounts = match lines {
        [line] => amount(line),
        _ => {
            let (states, images) = last.map_or((0, 0), |last| (last.states, last.crash_images));
            format!("{} and {}", counted(states, "state"), counted(images, "crash image"))
        }
    };
    format!("Exploration over time: {amounts} after {}", time(run.seconds))
}

/// A line, or a dot if there is one point only.
fn drawn(points: &[(f64, f64)], class: &str) -> Markup {
    html! {
        @if let [(x, y)] = points {
            circle class={"dot " (class)} cx=(px(*x)) cy=(px(*y)) r="4" {}
        } @else {
            polyline class={"line " (class)} points=(joined(points)) {}
        }
    }
}

fn joined(points: &[(f64, f64)]) -> String {
    let points = points.iter().map(|(x, y)| format!("{},{}", px(*x), px(*y)));
    points.collect::<Vec<_>>().join(" ")
}

/// The last sample of each pair of pixels: the counts only grow, so nothing is hidden.
fn thinned<'a>(samples: &'a [Sample], x_of: &impl Fn(&Sample) -> f64) -> Vec<&'a Sample> {
    let column = |sample: &Sample| (x_of(sample) / POINT_PIXELS) as u64;
    let mut kept: Vec<&Sample> = Vec::new();
    for sample in samples {
        match kept.last_mut() {
            // The first stays where it is: the line begins there.
            Some(last) if column(last) == column(sample) && !std::ptr::eq(*last, &samples[0]) => {
                *last = sample;
            }
            _ => kept.push(sample),
        }
    }
    kept
}

/// Where findings appeared: a lightning mark with their number. Marks that would touch are one.
fn marks(samples: &[Sample], x_of: &impl Fn(&Sample) -> f64) -> Markup {
    let mut before = 0;
    let mut marks: Vec<(f64, u64)> = Vec::new();
    for sample in samples.iter().filter(|sample| sample.findings > 0) {
        if sample.findings <= before {
            continue;
        }
        before = sample.findings;
        let x = x_of(sample);
        match marks.last_mut() {
            Some((known, number)) if x - *known < 30.0 + text_width(&number.to_string()) => {
                *number = before;
            }
            _ => marks.push((x, before)),
        }
    }
    html! {
        @for (x, number) in marks {
            g {
                title { (counted(number, "finding")) }
                line class="mark" x1=(px(x)) x2=(px(x)) y1=(px(TOP - 4.0)) y2=(px(BOTTOM)) {}
                (bolt(x - 5.0, TOP - 22.0, 16.0))
                text class="found" x=(px(x + 8.0)) y=(px(TOP - 9.0)) { (number) }
            }
        }
    }
}

struct TimeUnit {
    name: &'static str,
    seconds: f64,
}

impl TimeUnit {
    fn of(seconds: f64) -> TimeUnit {
        match seconds {
            s if s < 0.5 => TimeUnit { name: "milliseconds", seconds: 1e-3 },
            s if s < 180.0 => TimeUnit { name: "seconds", seconds: 1.0 },
            s if s < 10_800.0 => TimeUnit { name: "minutes", seconds: 60.0 },
            _ => TimeUnit { name: "hours", seconds: 3600.0 },
        }
    }
}

/// Ticks that keep their distance.
fn ticks_max(size: Size) -> usize {
    ((size.width - LEFT) / 50.0).min(12.0) as usize
}

fn time_axis(x: &Scale, unit: &TimeUnit, right: f64) -> Markup {
    html! {
        @for tick in x.ticks() {
            @let at = LEFT + x.at(tick);
            line class="axis" x1=(px(at)) x2=(px(at)) y1=(px(BOTTOM)) y2=(px(BOTTOM + 4.0)) {}
            text class="tick middle" x=(px(at)) y=(px(BOTTOM + 18.0)) { (short(tick)) }
        }
        text class="name end" x=(px(right)) y=(px(BOTTOM + 36.0)) { "time in " (unit.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_samples_become_one_per_two_pixels() {
        let sample = |n: u64| Sample {
            seconds: n as f64,
            states: n,
            crash_images: n,
            findings: 0,
            coverage: 0,
            operations: 0,
        };
        let samples: Vec<Sample> = (0..10_000).map(sample).collect();
        let kept = thinned(&samples, &|sample| sample.seconds / 10.0);
        assert!((500..=501).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept[0].states, 0);
        assert_eq!(kept.last().unwrap().states, 9_999, "the end is exact");
    }

    #[test]
    fn marks_do_not_touch() {
        let sample = |n: u64| Sample {
            seconds: n as f64,
            states: n,
            crash_images: n,
            findings: n / 2,
            coverage: 0,
            operations: 0,
        };
        let samples: Vec<Sample> = (0..100).map(sample).collect();
        let drawn = marks(&samples, &|sample| sample.seconds * 3.0).into_string();
        let positions: Vec<f64> = drawn
            .split("x1=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!(positions.len() > 5, "{drawn}");
        assert!(positions.windows(2).all(|pair| pair[1] - pair[0] >= 30.0), "{positions:?}");
        assert!(drawn.contains(">49</text>"), "the last mark counts all: {drawn}");
    }
}
