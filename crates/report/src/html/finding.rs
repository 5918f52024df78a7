//! A finding: its story, the workload, what the device saw, the trees, how to see it again.

use maud::{Markup, html};

use super::{chart, steps, trees};
use crate::run::FindingPage;
use crate::words::{counted, spaced};

/// Longer lists are folded.
const SHOWN_MAX: usize = 12;

/// The section of finding `number`.
pub(super) fn section(finding: &FindingPage, number: usize, open: bool) -> Markup {
    html! {
        details class="card finding" open[open] {
            summary id={"finding-" (number)} {
                span class="number" { "Finding " (number) }
                h2 { (finding.title) }
                p class="badges" {
                    span class="badge bad" { (spaced(&finding.class)) }
                    span class="badge" { (counted(finding.count, "time")) }
                    @for level in &finding.levels { span class="badge" { (level) } }
                    @if !finding.complete { span class="badge" { "as first seen" } }
                }
            }
            @if !finding.variants.is_empty() {
                p { "The same cause shows as:" }
                ul { @for variant in &finding.variants { li { (variant) } } }
            }
            div class="story" {
                @for paragraph in finding.story.split("\n\n").filter(|text| !text.trim().is_empty()) {
                    p { (paragraph) }
                }
            }
            (workload(finding))
            (steps::steps(finding))
            (writes(finding))
            (claims(finding))
            (trees::panels(finding))
            (differences(finding))
            (again(finding))
        }
    }
}

fn workload(finding: &FindingPage) -> Markup {
    let ops = &finding.ops;
    // The end is what matters: the power fails there.
    let folded = ops.len().saturating_sub(SHOWN_MAX);
    html! {
        @if !ops.is_empty() || !finding.cut.is_empty() {
            h3 { "The workload" }
            @if folded > 0 {
                details class="more" {
                    summary { (counted(folded as u64, "operation")) " before" }
                    ol class="ops" { @for op in &ops[..folded] { li { code { (op) } } } }
                }
            }
            ol class="ops" start=(folded + 1) {
                @for (index, op) in ops.iter().enumerate().skip(folded) {
                    @if index == finding.in_flight {
                        li class="flight" { code { (op) } (cut(finding)) }
                    } @else {
                        li { code { (op) } }
                    }
                }
            }
            @if finding.in_flight >= ops.len() { (cut(finding)) }
        }
    }
}

fn cut(finding: &FindingPage) -> Markup {
    html! {
        @if !finding.cut.is_empty() {
            span class="cut-text" {
                svg class="swatch" width="11" height="16" viewBox="0 0 11 16" role="img" aria-label="power failure" {
                    (chart::bolt(0.0, 0.0, 16.0))
                }
                "the power fails " (finding.cut)
            }
        }
    }
}

fn writes(finding: &FindingPage) -> Markup {
    let all = finding.writes.len();
    let list = html! {
        ol class="writes" {
            @for write in &finding.writes {
                li class=(if write.arrived { "arrived" } else { "lost" }) {
                    span class="state" { (if write.arrived { "✓" } else { "✗ lost" }) }
                    " " (write.text)
                }
            }
        }
    };
    html! {
        @if all > 0 {
            h3 { "What the device saw" }
            (chart::strip::chart(&finding.writes))
            @if all <= SHOWN_MAX {
                (list)
            } @else {
                details class="more" { summary { "all " (counted(all as u64, "write")) } (list) }
            }
        }
    }
}

/// What was asked in the end: the two answers side by side, bytes with the difference marked.
fn claims(finding: &FindingPage) -> Markup {
    html! {
        @if !finding.claims.is_empty() {
            h3 { "Expected and found" }
            dl class="claims" {
                @for claim in &finding.claims {
                    dt { (claim.what) }
                    dd { span class="badge good" { "expected" } " " code { (marked(&claim.expected, &claim.found)) } }
                    dd { span class="badge bad" { "found" } " " code { (marked(&claim.found, &claim.expected)) } }
                }
            }
        }
    }
}

/// An answer; if both are bytes in hexadecimal, those that differ are marked.
fn marked(text: &str, other: &str) -> Markup {
    let bytes = |text: &str| -> Option<Vec<String>> {
        let text: String = text.split(' ').collect();
        let is_hex = text.len() >= 2
            && text.len().is_multiple_of(2)
            && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex.then(|| {
            text.as_bytes().chunks(2).map(|b| String::from_utf8_lossy(b).into_owned()).collect()
        })
    };
    let (Some(these), Some(those)) = (bytes(text), bytes(other)) else { return html! { (text) } };
    html! {
        @for (index, byte) in these.iter().enumerate() {
            @if those.get(index) == Some(byte) { (byte) } @else { mark { (byte) } }
            " "
        }
    }
}

fn differences(finding: &FindingPage) -> Markup {
    let (shown, folded) = finding.differences.split_at(finding.differences.len().min(SHOWN_MAX));
    html! {
        @if !shown.is_empty() {
            ul class="differences" { @for difference in shown { li { (difference) } } }
        }
        @if !folded.is_empty() {
            details class="more" {
                summary { (counted(folded.len() as u64, "more difference")) }
                ul class="differences" { @for difference in folded { li { (difference) } } }
            }
        }
    }
}

fn again(finding: &FindingPage) -> Markup {
    html! {
        h3 { "See it again" }
        div class="copy" {
            code { (finding.replay) }
            // Shown by the script, which is the only use of it.
            button type="button" hidden { "Copy" }
        }
        @if !finding.directory.is_empty() {
            p class="quiet" { "Recorded in " code { (finding.directory) } }
        }
    }
}
