//! The trees of a finding as panels side by side: before, legal, found.
//!
//! The panels share their rows (CSS subgrid), so a path is at the same height in all of them; on a
//! phone they stand one below the other.

use maud::{Markup, html};

use crate::compare::{Column, Comparison, Row, compare};
use crate::run::FindingPage;
use crate::words::counted;

/// With more rows, only those that differ are shown at once.
const ROWS_MAX: usize = 30;

/// The trees; nothing if the finding has none.
pub(super) fn panels(finding: &FindingPage) -> Markup {
    let Some(comparison) = compare(finding) else { return html! {} };
    let columns = comparison.main_columns();
    let every: Vec<usize> = (0..comparison.columns.len()).collect();
    let all = comparison.rows_in(&every, false);
    let folded_rows = all.len() > ROWS_MAX;
    let rows = comparison.rows_in(&columns, folded_rows);
    let same = all.iter().filter(|row| row.same_everywhere()).count();
    let is_answer = finding.cut.is_empty();
    html! {
        h3 { (if finding.cut.is_empty() { "Before, expected, found" } else { "What was promised, what is there" }) }
        (grid(&comparison, &columns, &rows, (folded_rows, is_answer)))
        @if folded_rows || columns.len() < every.len() {
            details class="more" {
                summary {
                    (counted(all.len() as u64, "path")) " in " (every.len()) " trees"
                    @if same > 0 { ", " (same) " of them the same everywhere" }
                }
                (grid(&comparison, &every, &all, (false, is_answer)))
            }
        }
        @if !is_answer { (legend(&comparison)) }
        (repaired(finding))
    }
}

/// The tree once the file system has repaired itself, with what is still wrong in it.
fn repaired(finding: &FindingPage) -> Markup {
    let later = FindingPage { found: finding.repaired.clone(), ..finding.clone() };
    let comparison = (!finding.repaired.is_empty()).then(|| compare(&later)).flatten();
    let Some(comparison) = comparison else { return html! {} };
    let found = comparison.columns.len() - 1;
    let rows = comparison.rows_in(&[found], false);
    let is_legal = comparison.rows.iter().all(|row| row.wrong.is_none());
    html! {
        h3 { "Once it has repaired itself" }
        div class="trees" style={"--panels:1;--rows:" (rows.len() + 1)} {
            div class="panel" {
                p class="panel-title" {
                    b { "Later" } " "
                    @if is_legal {
                        span class="badge good" { "✓ legal" }
                    } @else {
                        span class="badge bad" { "✗ not legal" }
                    }
                }
                @for row in &rows { (found_entry(row, false)) }
            }
        }
        @if is_legal {
            p class="quiet" { "Only until then something is wrong: until the file system writes something." }
        }
    }
}

fn grid(
    comparison: &Comparison<'_>,
    columns: &[usize],
    rows: &[&Row<'_>],
    (full_path, is_answer): (bool, bool),
) -> Markup {
    let found = comparison.columns.len() - 1;
    html! {
        div class="trees" style={"--panels:" (columns.len()) ";--rows:" (rows.len() + 1)} {
            @for &index in columns {
                @let column = &comparison.columns[index];
                div class={"panel" (if index == found { " found" } else { "" })} {
                    p class="panel-title" { b { (column.title) } " " (panel_note(column, index == found, is_answer)) }
                    @for row in rows {
                        @if index < found {
                            (known_entry(row, index, full_path))
                        } @else if comparison.has_found {
                            (found_entry(row, full_path))
                        }
                    }
                    @if index == found && !comparison.has_found {
                        p class="entry bad" { "There was no tree to look at." }
                    }
                }
            }
        }
    }
}

/// What a tree is worth. Where no power failed, the reference has one answer and nothing is legal.
fn panel_note(column: &Column, found: bool, is_answer: bool) -> Markup {
    html! {
        @if is_answer {
            @if found {
                span class="badge bad" { "✗ differs" }
            } @else if column.legal {
                span class="badge good" { "✓ the reference" }
            }
        } @else if found {
            span class="badge bad" { "✗ not legal" }
        } @else if column.legal {
            span class="badge good" { "✓ legal" }
        } @else {
            span class="badge" { "no longer legal" }
        }
    }
}

/// An entry of the tree before or of a legal one, which shows what the operation may change.
fn known_entry(row: &Row<'_>, column: usize, full_path: bool) -> Markup {
    let (before, here) = (row.cells[0], row.cells[column]);
    match (before, here) {
        (Some(text), None) => entry(row, full_path, "gone", "−", text),
        (None, Some(text)) => entry(row, full_path, "new", "+", text),
        (Some(old), Some(text)) if old != text => entry(row, full_path, "new", "~", text),
        (_, Some(text)) => entry(row, full_path, "", "", text),
        (None, None) => html! { p class="entry ghost" {} },
    }
}

/// An entry of the tree that was found, compared with the nearest legal tree.
fn found_entry(row: &Row<'_>, full_path: bool) -> Markup {
    let here = row.cells.last().copied().flatten();
    match (row.wrong, here) {
        (Some(wrong), None) => entry(row, full_path, "bad gone", wrong.symbol(), wrong.word()),
        (Some(wrong), Some(text)) => {
            let text = format!("{}: {text}", wrong.word());
            entry(row, full_path, "bad", wrong.symbol(), &text)
        }
        (None, Some(text)) => entry(row, full_path, "", "", text),
        (None, None) => html! { p class="entry ghost" {} },
    }
}

fn entry(row: &Row<'_>, full_path: bool, class: &str, symbol: &str, text: &str) -> Markup {
    let (depth, name) = if full_path { (0, row.path) } else { place(row.path) };
    html! {
        p class={"entry " (class)} {
            span class="symbol" { (symbol) }
            span class="name" style={"--depth:" (depth.min(8))} { (name) }
            span class="what" { (text) }
        }
    }
}

/// How deep a path is, and its last name.
fn place(path: &str) -> (usize, &str) {
    let inner = path.strip_suffix('/').unwrap_or(path);
    match inner.rsplit_once('/') {
        _ if path == "." => (0, "/"),
        Some((above, _)) => (above.split('/').count() + 1, &path[above.len() + 1..]),
        None => (1, path),
    }
}

fn legend(comparison: &Comparison<'_>) -> Markup {
    html! {
        @if let Some(nearest) = comparison.nearest {
            p class="quiet" {
                "Marks in “Found” compare it with “" (comparison.columns[nearest].title)
                "”, the legal tree that it is most like."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_below_their_directory() {
        assert_eq!(place("."), (0, "/"));
        assert_eq!(place("src/"), (1, "src/"));
        assert_eq!(place("src/a"), (2, "a"));
        assert_eq!(place("src/deep/er/"), (3, "er/"));
    }
}
