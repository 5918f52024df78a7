//! States by depth: one bar for each number of operations.

use maud::{Markup, html};

use super::{SIZES, Scale, Size, px, svg, text_width};
use crate::words::{compact, grouped};

/// More bars than this are put together: a chart is one look.
const BARS_MAX: usize = 25;
const ROW: f64 = 24.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 44.0;

/// The chart; nothing without states.
pub(in crate::html) fn chart(by_depth: &[u64]) -> Markup {
    if by_depth.iter().all(|&states| states == 0) {
        return html! {};
    }
    let bars = bars(by_depth);
    html! { figure { @for size in SIZES { (drawing(&bars, size)) } } }
}

struct Bar {
    label: String,
    states: u64,
}

/// One bar for each depth, or for each run of depths if there are many.
fn bars(by_depth: &[u64]) -> Vec<Bar> {
    let group = by_depth.len().div_ceil(BARS_MAX);
    let label = |first: usize, last: usize| match last - first {
        0 => first.to_string(),
        _ => format!("{first}–{last}"),
    };
    let bar = |(index, depths): (usize, &[u64])| Bar {
        label: label(index * group, index * group + depths.len() - 1),
        states: depths.iter().sum(),
    };
    by_depth.chunks(group).enumerate().map(bar).collect()
}

fn drawing(bars: &[Bar], size: Size) -> Markup {
    let values: Vec<String> = bars.iter().map(|bar| grouped(bar.states)).collect();
    let room = values.iter().map(|value| text_width(value)).fold(0.0, f64::max) + 10.0;
    let max = bars.iter().map(|bar| bar.states).max().unwrap_or(0) as f64;
    let ticks_max = ((size.width - LEFT - room) / 50.0).clamp(2.0, 10.0) as usize;
    let x = Scale::new(max, ticks_max, size.width - LEFT - room);
    let bottom = 4.0 + bars.len() as f64 * ROW;
    let content = html! {
        @for tick in x.ticks() {
            @let at = LEFT + x.at(tick);
            line class=(if tick == 0.0 { "axis" } else { "grid" })
                x1=(px(at)) x2=(px(at)) y1="0" y2=(px(bottom + 4.0)) {}
            text class="tick middle" x=(px(at)) y=(px(bottom + 18.0)) { (compact(tick)) }
        }
        @for (index, (bar, value)) in bars.iter().zip(&values).enumerate() {
            @let y = 4.0 + index as f64 * ROW;
            // What is there is seen, however small.
            @let width = if bar.states == 0 { 0.0 } else { x.at(bar.states as f64).max(2.0) };
            text class="tick end" x=(px(LEFT - 8.0)) y=(px(y + 16.0)) { (bar.label) }
            rect class="bar" x=(px(LEFT)) y=(px(y + 3.0)) width=(px(width)) height=(px(ROW - 6.0)) rx="2" {}
            text class="value" x=(px(LEFT + width + 6.0)) y=(px(y + 16.0)) { (value) }
        }
        text class="name" x="0" y=(px(bottom + 38.0)) { "operations" }
        text class="name end" x=(px(size.width - room)) y=(px(bottom + 38.0)) { "states" }
    };
    let title = format!("States by number of operations, at most {}", grouped(max as u64));
    svg(size, bottom + BOTTOM, &title, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_depths_are_put_together_and_none_is_lost() {
        let few = bars(&[1, 2, 3]);
        assert_eq!(few.iter().map(|bar| bar.label.as_str()).collect::<Vec<_>>(), ["0", "1", "2"]);
        let many = bars(&[1; 510]);
        assert!(many.len() <= BARS_MAX);
        assert_eq!(many.iter().map(|bar| bar.states).sum::<u64>(), 510);
        assert_eq!(many.last().unwrap().label, "504–509");
    }
}
