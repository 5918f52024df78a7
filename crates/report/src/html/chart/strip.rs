//! The device's log of the operation in flight, as a strip of cells, with the cut.

use maud::{Markup, html};

use super::{SIZES, Size, bolt, px, svg};
use crate::run::WriteLine;
use crate::words::counted;

/// Above this, cells have no numbers.
const NUMBERED_MAX: usize = 40;
/// Above this, the rest is counted: a strip is one look.
const CELLS_MAX: usize = 600;

/// How cells are laid out.
struct Cell {
    width: f64,
    height: f64,
    /// From the left edge of one to that of the next.
    pitch: f64,
    numbered: bool,
}

const LARGE: Cell = Cell { width: 38.0, height: 30.0, pitch: 44.0, numbered: true };
const SMALL: Cell = Cell { width: 9.0, height: 18.0, pitch: 12.0, numbered: false };

/// The chart; nothing without writes.
pub(in crate::html) fn chart(writes: &[WriteLine]) -> Markup {
    if writes.is_empty() {
        return html! {};
    }
    html! { figure class="strip" { @for size in SIZES { (drawing(writes, size)) } } }
}

fn drawing(writes: &[WriteLine], size: Size) -> Markup {
    let cell = if writes.len() <= NUMBERED_MAX { LARGE } else { SMALL };
    let shown = &writes[..writes.len().min(CELLS_MAX)];
    // The power fails behind the last write that arrived; the mark takes the place of one or two cells.
    let cut = writes.iter().rposition(|write| write.arrived).map_or(0, |last| last + 1);
    let cut_slots = (22.0 / cell.pitch).ceil() as usize;
    let per_row = (size.width / cell.pitch).floor().max(1.0) as usize;
    let row_height = cell.height + 14.0;
    let place = |slot: usize| {
        let (row, column) = (slot / per_row, slot % per_row);
        (column as f64 * cell.pitch + 1.0, row as f64 * row_height + 7.0)
    };
    let slot_of = |index: usize| if index < cut { index } else { index + cut_slots };
    let rows = slot_of(shown.len()).div_ceil(per_row);
    let cells = html! {
        @for (index, write) in shown.iter().enumerate() {
            @let (x, y) = place(slot_of(index));
            g class=(if write.arrived { "arrived" } else { "lost" }) {
                title { (index + 1) ". " (write.text) (if write.arrived { "" } else { " (lost)" }) }
                rect x=(px(x)) y=(px(y)) width=(px(cell.width)) height=(px(cell.height)) rx="3" {}
                @if cell.numbered {
                    text class="middle" x=(px(x + cell.width / 2.0)) y=(px(y + 20.0)) { (index + 1) }
                }
            }
        }
    };
    let content = html! {
        @if cell.numbered { (cells) } @else { g class="small" { (cells) } }
        @if cut <= shown.len() { (cut_mark(place(cut), cell.height, cell.pitch * cut_slots as f64)) }
    };
    svg(size, rows as f64 * row_height, &description(writes), &content)
}

fn cut_mark((x, y): (f64, f64), height: f64, room: f64) -> Markup {
    let middle = x + (room - 6.0) / 2.0;
    html! {
        g {
            title { "the power fails here" }
            line class="cut" x1=(px(middle)) x2=(px(middle)) y1=(px(y - 6.0)) y2=(px(y + height + 6.0)) {}
            (bolt(middle - 7.0, y + height / 2.0 - 11.0, 22.0))
        }
    }
}

fn description(writes: &[WriteLine]) -> String {
    let arrived = writes.iter().filter(|write| write.arrived).count();
    format!("{} of {} reached the device", arrived, counted(writes.len() as u64, "write"))
}
