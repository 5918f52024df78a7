//! Charts as inline SVG: no library, no script.
//!
//! Text in an SVG shrinks with it, so each chart is drawn twice, for a desk and for a phone
//! ([`SIZES`]), and the style sheet shows one of them.

pub(super) mod blocks;
pub(super) mod course;
pub(super) mod depth;
pub(super) mod plot;
pub(super) mod strip;

use maud::{Markup, html};

use crate::words::compact;

/// A width to draw for, in CSS pixels, and the class that shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) class: &'static str,
    pub(super) width: f64,
}

/// The content of the page is 984 pixels wide on a desk and 311 on a phone of 375 (`style.css`).
pub(super) const SIZES: [Size; 2] =
    [Size { class: "wide", width: 984.0 }, Size { class: "narrow", width: 311.0 }];

/// A linear scale from 0, with round ticks.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    step: f64,
    max: f64,
    length: f64,
}

impl Scale {
    /// Covers 0 to at least `max`, with at most `ticks_max` steps, on `length` pixels.
    pub(super) fn new(max: f64, ticks_max: usize, length: f64) -> Scale {
        let step = round_up(max / ticks_max as f64);
        Scale { step, max: (max / step).ceil().max(1.0) * step, length }
    }

    /// The same, but ends at `max` exactly: for time, which nobody rounds.
    pub(super) fn exact(max: f64, ticks_max: usize, length: f64) -> Scale {
        Scale { max, step: round_up(max / ticks_max as f64), length }
    }

    /// Pixels from the origin.
    pub(super) fn at(&self, value: f64) -> f64 {
        (value / self.max).clamp(0.0, 1.0) * self.length
    }

    /// The values of the ticks.
    pub(super) fn ticks(&self) -> Vec<f64> {
        // A whole number of steps is lost to rounding otherwise.
        let steps = (self.max / self.step + 1e-9).floor() as usize;
        (0..=steps).map(|n| n as f64 * self.step).collect()
    }
}

/// The next 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= value * (1.0 - 1e-9));
    digit.unwrap_or(10.0) * power
}

/// A coordinate: a tenth of a pixel is exact enough.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// How wide a text will be: digits of a sans-serif font at 12 pixels are about 7 wide.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.0
}

/// An SVG that is read out as `title`.
pub(super) fn svg(size: Size, height: f64, title: &str, content: &Markup) -> Markup {
    html! {
        svg class=(size.class) role="img" aria-label=(title)
            viewBox=(format!("0 0 {} {}", px(size.width), px(height)))
            width=(px(size.width)) height=(px(height)) {
            title { (title) }
            (content)
        }
    }
}

/// A lightning mark, `height` pixels high, its top left corner at (x, y).
pub(super) fn bolt(x: f64, y: f64, height: f64) -> Markup {
    // Drawn on a field of 10 by 16.
    let scale = height / 16.0;
    html! {
        path class="bolt" d="M6 0 0 9h4l-1.5 7L10 6H5.5L8 0z"
            transform=(format!("translate({} {}) scale({scale:.2})", px(x), px(y))) {}
    }
}

/// Horizontal lines with their values, for a chart whose field is (left, top) to (right, bottom).
fn value_axis(scale: &Scale, left: f64, right: f64, bottom: f64) -> Markup {
    html! {
        @for tick in scale.ticks() {
            @let y = bottom - scale.at(tick);
            line class=(if tick == 0.0 { "axis" } else { "grid" })
                x1=(px(left)) x2=(px(right)) y1=(px(y)) y2=(px(y)) {}
            text class="tick end" x=(px(left - 8.0)) y=(px(y + 4.0)) { (compact(tick)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let ticks = |max, n| Scale::new(max, n, 100.0).ticks();
        assert_eq!(ticks(248_926.0, 5), [0.0, 5e4, 1e5, 1.5e5, 2e5, 2.5e5]);
        assert_eq!(ticks(1.0, 4), [0.0, 0.5, 1.0]);
        assert_eq!(ticks(0.0, 4), [0.0, 1.0]);
        for max in [1.0, 3.0, 7.0, 10.0, 99.0, 1e6, 123_456.0, u64::MAX as f64] {
            let ticks = ticks(max, 5);
            assert!(ticks.len() <= 6 && *ticks.last().unwrap() >= max, "{max}: {ticks:?}");
        }
    }

    #[test]
    fn values_stay_inside() {
        let scale = Scale::exact(5.13, 6, 200.0);
        assert_eq!(scale.ticks(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(scale.at(5.13), 200.0);
        assert_eq!(scale.at(-1.0), 0.0);
        assert_eq!(scale.at(9.0), 200.0);
    }
}
