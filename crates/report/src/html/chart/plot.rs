//! Curves over whole numbers, with every value written at its point.

use maud::{Markup, html};

use super::{SIZES, Scale, Size, px, svg, text_width, value_axis};
use crate::run::{Plot, Series};
use crate::words::{compact, grouped};

const HEIGHT: f64 = 260.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 46.0;
/// The looks of curves, in order; more than these are not told apart.
const CLASSES: [&str; 2] = ["images", "states"];

/// The chart; nothing without points.
pub(in crate::html) fn chart(plot: &Plot) -> Markup {
    if plot.series.iter().all(|series| series.points.is_empty()) {
        return html! {};
    }
    html! {
        figure {
            @if plot.series.len() > 1 { (legend(&plot.series)) }
            @for size in SIZES { (drawing(plot, size)) }
        }
    }
}

fn class(index: usize) -> &'static str {
    CLASSES[index % CLASSES.len()]
}

fn legend(series: &[Series]) -> Markup {
    html! {
        p class="legend" {
            @for (index, series) in series.iter().enumerate() {
                span {
                    svg class="swatch" width="26" height="10" viewBox="0 0 26 10" aria-hidden="true" {
                        line class={"line " (class(index))} x1="1" x2="25" y1="5" y2="5" {}
                    }
                    " " (series.name)
                }
            }
        }
    }
}

/// Where values are: linear from 0, or by powers of ten from 1.
enum Axis {
    Linear(Scale),
    Powers { scale: Scale },
}

impl Axis {
    fn new(plot: &Plot, max: u64, length: f64) -> Axis {
        match plot.logarithmic {
            // Whole numbers: no line between two of them.
            false => Axis::Linear(Scale::new(max as f64, max.clamp(1, 5) as usize, length)),
            true => {
                let powers = (max.max(2) as f64).log10().ceil();
                Axis::Powers { scale: Scale::exact(powers, powers as usize, length) }
            }
        }
    }

    fn at(&self, value: u64) -> f64 {
        match self {
            Axis::Linear(scale) => scale.at(value as f64),
            Axis::Powers { scale } => scale.at((value.max(1) as f64).log10()),
        }
    }

    fn draw(&self, left: f64, right: f64, bottom: f64) -> Markup {
        match self {
            Axis::Linear(scale) => value_axis(scale, left, right, bottom),
            Axis::Powers { scale } => html! {
                @for tick in scale.ticks() {
                    @let y = bottom - scale.at(tick);
                    line class=(if tick == 0.0 { "axis" } else { "grid" })
                        x1=(px(left)) x2=(px(right)) y1=(px(y)) y2=(px(y)) {}
                    text class="tick end" x=(px(left - 8.0)) y=(px(y + 4.0)) {
                        (compact(10f64.powf(tick)))
                    }
                }
            },
        }
    }
}

fn drawing(plot: &Plot, size: Size) -> Markup {
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let max = points().map(|(_, y)| *y).max().unwrap_or(0);
    let (x_min, x_max) =
        points().fold((u64::MAX, 0), |(min, max), (x, _)| (min.min(*x), max.max(*x)));
    let (left, right, bottom) = (48.0, size.width - 30.0, HEIGHT - BOTTOM);
    let axis = Axis::new(plot, max, bottom - TOP);
    let step = (right - left - 24.0) / (x_max - x_min).max(1) as f64;
    let x = |value: u64| left + 12.0 + (value - x_min) as f64 * step;
    let content = html! {
        (axis.draw(left, right, bottom))
        @for value in x_min..=x_max {
            text class="tick middle" x=(px(x(value))) y=(px(bottom + 18.0)) { (value) }
        }
        text class="name middle" x=(px((left + right) / 2.0)) y=(px(HEIGHT - 8.0)) { (plot.x) }
        text class="name" x="0" y="12" { (plot.y) }
        @for (index, series) in plot.series.iter().enumerate() {
            @let line: Vec<String> = series.points.iter()
                .map(|(at, value)| format!("{} {}", px(x(*at)), px(bottom - axis.at(*value)))).collect();
            polyline class={"line " (class(index))} points=(line.join(" ")) {}
            @for (at, value) in &series.points {
                @let (cx, cy) = (x(*at), bottom - axis.at(*value));
                circle class={"dot " (class(index))} cx=(px(cx)) cy=(px(cy)) r="4.5" {
                    title { (series.name) ", " (plot.x) " " (at) ": " (grouped(*value)) }
                }
                @if text_width(&grouped(*value)) < step {
                    // The second curve has its values below, where the first one is not.
                    @let y = if index == 0 { cy - 9.0 } else { cy + 19.0 };
                    text class="value middle" x=(px(cx)) y=(px(y)) { (grouped(*value)) }
                }
            }
        }
    };
    svg(size, HEIGHT, &format!("{}: {} by {}", plot.title, plot.y, plot.x), &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_are_evenly_spaced() {
        let plot = Plot {
            title: String::new(),
            about: String::new(),
            x: String::new(),
            y: String::new(),
            logarithmic: true,
            series: Vec::new(),
        };
        let axis = Axis::new(&plot, 1000, 300.0);
        assert_eq!(
            [1, 10, 100, 1000].map(|value| axis.at(value).round()),
            [0.0, 100.0, 200.0, 300.0]
        );
        let linear = Axis::new(&Plot { logarithmic: false, ..plot }, 4, 200.0);
        assert_eq!([0, 2, 4].map(|value| linear.at(value)), [0.0, 100.0, 200.0]);
    }
}
