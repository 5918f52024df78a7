//! The blocks of a counterexample: a row for each, a column for each step, the power failure, and
//! recovery.

use maud::{Markup, html};

use super::{SIZES, Size, bolt, px, svg, text_width};
use crate::run::{Command, FindingPage};
use crate::words::counted;

const ROW: f64 = 26.0;
const TOP: f64 = 30.0;
/// Columns are at most so wide.
const COLUMN_MAX: f64 = 64.0;

/// The chart; nothing without blocks.
pub(in crate::html) fn chart(finding: &FindingPage) -> Markup {
    html! { figure class="blocks" { @for size in SIZES { (drawing(finding, size)) } } }
}

/// What happened to a block in a step: the numbers of the writes to it, and whether the last arrived.
fn mark(commands: &[Command], block: usize) -> Option<(String, bool)> {
    let mut number = 0;
    let mut found: Option<(String, bool)> = None;
    for command in commands {
        let (written, arrived) = match command {
            Command::Written(block) => (*block, true),
            Command::Lost(block) => (*block, false),
            Command::Flush => continue,
        };
        number += 1;
        if written == block {
            let earlier = found.map_or(String::new(), |(text, _)| text + " ");
            found = Some((format!("{earlier}{number}"), arrived));
        }
    }
    found
}

fn drawing(finding: &FindingPage, size: Size) -> Markup {
    let label = |number: usize, label: &str| format!("{number} {label}");
    let labels: Vec<String> =
        finding.blocks.iter().map(|block| label(block.number, &block.label)).collect();
    let left = labels.iter().map(|text| text_width(text)).fold(40.0, f64::max) + 12.0;
    let left = left.min(size.width * 0.45);
    let columns = finding.steps.len() + 1;
    let column = ((size.width - left) / columns as f64).min(COLUMN_MAX);
    let bottom = TOP + finding.blocks.len() as f64 * ROW;
    let crash = finding.steps.iter().rposition(|step| !step.crash.is_empty());
    let x = |index: usize| left + index as f64 * column;
    let content = html! {
        @for (index, step) in finding.steps.iter().enumerate() {
            text class="tick middle" x=(px(x(index) + column / 2.0)) y="16" {
                title { (step.what) } (index + 1)
            }
        }
        @if crash.is_some() {
            text class="tick middle" x=(px(x(columns - 1) + column / 2.0)) y="16" { "rec." }
        }
        @for (row, (block, text)) in finding.blocks.iter().zip(&labels).enumerate() {
            @let y = TOP + row as f64 * ROW;
            line class="grid" x1="0" x2=(px(x(columns))) y1=(px(y)) y2=(px(y)) {}
            text x="0" y=(px(y + 18.0)) { (text) }
            @for (index, step) in finding.steps.iter().enumerate() {
                (cell(mark(&step.writes, block.number), x(index), y, column))
                @if !step.crash.is_empty() {
                    (cell(mark(&step.recovery, block.number), x(index + 1), y, column))
                }
            }
        }
        @if let Some(crash) = crash {
            @let at = x(crash + 1);
            line class="cut" x1=(px(at)) x2=(px(at)) y1="4" y2=(px(bottom)) {}
            (bolt(at - 6.0, 2.0, 18.0))
        }
    };
    let title = format!(
        "{} in {}: numbers are the order of the writes of a step, dashed ones are lost",
        counted(finding.blocks.len() as u64, "block"),
        counted(finding.steps.len() as u64, "step")
    );
    svg(size, bottom + 4.0, &title, &content)
}

fn cell(mark: Option<(String, bool)>, x: f64, y: f64, column: f64) -> Markup {
    html! {
        @if let Some((numbers, arrived)) = mark {
            g class=(if arrived { "arrived" } else { "lost" }) {
                title { "write " (numbers) (if arrived { "" } else { ": lost" }) }
                rect x=(px(x + 3.0)) y=(px(y + 3.0)) width=(px(column - 6.0)) height=(px(ROW - 6.0)) rx="3" {}
                @if text_width(&numbers) < column - 6.0 {
                    text class="middle" x=(px(x + column / 2.0)) y=(px(y + 17.0)) { (numbers) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_shows_the_order_of_its_writes_and_whether_the_last_arrived() {
        let commands = [Command::Written(4), Command::Flush, Command::Written(7), Command::Lost(4)];
        assert_eq!(mark(&commands, 4), Some(("1 3".to_owned(), false)));
        assert_eq!(mark(&commands, 7), Some(("2".to_owned(), true)));
        assert_eq!(mark(&commands, 5), None);
    }
}
