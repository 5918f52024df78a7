//! Coverage as one page that needs nothing else, in the style of the pages of runs.

use fathom_record::coverage::{Report, ratio};
use maud::{Markup, PreEscaped, html};

use super::chart::{bars, legend};
use super::export::{partition_names, place};
use super::text::share;
use crate::html::whole_page;
use crate::words::grouped;

/// Colours that stay apart for colour-blind readers (Okabe and Ito).
pub(super) const COLOURS: [&str; 7] =
    ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#555555"];

/// Charts that are shown unfolded: the figures of the IOCov paper and their like.
const SHOWN: &[(&str, &str, &str)] = &[
    ("open", "flags", "Flags of open"),
    ("write", "count", "Bytes given to write"),
    ("write", "offset", "Offsets of write"),
    ("read", "count", "Bytes asked of read"),
    ("truncate", "length", "Sizes of truncate"),
    ("open", "output", "How open ended"),
    ("write", "output", "How write ended"),
];

/// Longer commands stand below the heading only.
const TITLE_MAX: usize = 50;

/// A page of one report or of several side by side.
pub fn page(reports: &[(String, Report)]) -> String {
    let title = match reports {
        [(_, report)] if report.title.chars().count() <= TITLE_MAX => {
            format!("Coverage of {}", report.title)
        }
        [_] => "Coverage of a test tool".to_owned(),
        _ => "Coverage side by side".to_owned(),
    };
    let lead = match reports {
        [(_, report)] => format!(
            "{} calls; {} of the reachable partitions were exercised.",
            grouped(report.calls),
            share(report.partitions_hit, report.partitions_total)
        ),
        _ => format!("{} runs, partition by partition.", reports.len()),
    };
    let header = html! {
        header class="clean" {
            div class="inner" {
                p class="kicker" { "Fathom · what a test tool exercises" }
                h1 { (title) }
                p class="lead" { (lead) }
                dl class="facts" {
                    @for (_, report) in reports { dt { "command" } dd { code { (report.title) } } }
                }
            }
        }
    };
    let footer = html! {
        footer { p { "Made from the report of " code { "fathom cover" } "; nothing was run for it." } }
    };
    let main = html! {
        @for (name, report) in reports { (holes(name, report, reports.len() > 1)) }
        section class="card" {
            h2 { "Runs" }
            (summary(reports))
            @if reports.len() > 1 { (PreEscaped(legend(&names(reports)))) }
        }
        @for (base, arg, title) in SHOWN {
            section class="card" { h2 { (title) } (chart(reports, base, arg)) }
        }
        section class="card" { h2 { "All calls" } (all_calls(reports)) }
        (limits(reports))
    };
    whole_page(&title, &header, &main, &footer)
}

fn names(reports: &[(String, Report)]) -> Vec<&str> {
    reports.iter().map(|(name, _)| name.as_str()).collect()
}

fn summary(reports: &[(String, Report)]) -> Markup {
    let watched = |report: &Report| {
        let mounts = report.mounts.iter().map(|mount| format!("{} on {}", mount.kind, mount.path));
        mounts.collect::<Vec<_>>().join(", ")
    };
    html! {
        div class="wide" {
            table class="promises runs" {
                thead { tr {
                    th scope="col" { "run" } th scope="col" { "calls" } th scope="col" { "partitions" }
                    th scope="col" { "hit" } th scope="col" { "pairs of flags" } th scope="col" { "watched by" }
                } }
                tbody {
                    @for (name, report) in reports {
                        tr {
                            th scope="row" { (name) }
                            td { (grouped(report.calls)) }
                            td { (report.partitions_hit) " of " (report.partitions_total) }
                            td { (share(report.partitions_hit, report.partitions_total)) }
                            td { (share(report.pairs_hit, report.pairs_total)) }
                            td { (report.tracer) " " (watched(report)) }
                        }
                    }
                }
            }
        }
    }
}

fn chart(reports: &[(String, Report)], base: &str, arg: &str) -> Markup {
    let names = partition_names(reports, base, arg);
    let rows: Vec<(String, Vec<u64>)> = names
        .into_iter()
        .map(|name| {
            let id = format!("{base}.{arg}.{name}");
            let counts = reports.iter().map(|(_, report)| report.count(&id).unwrap_or(0));
            (name, counts.collect())
        })
        .collect();
    PreEscaped(bars(&rows))
}

fn holes(name: &str, report: &Report, named: bool) -> Markup {
    html! {
        @if !report.holes.is_empty() {
            section class="card" {
                h2 { "What a tester would add first" @if named { " to " (name) } }
                p class="quiet" { "Errors and flags of the common calls, calls that were never made, then the rest." }
                ol class="holes" {
                    @for hole in &report.holes {
                        li {
                            (hole.words)
                            span class="add" { span class="badge" { "add" } " " code { (hole.add) } }
                        }
                    }
                }
            }
        }
    }
}

fn all_calls(reports: &[(String, Report)]) -> Markup {
    let Some((_, first)) = reports.first() else {
        return html! {};
    };
    let made = |base: &&String| {
        let mut calls = reports.iter().filter_map(|(_, report)| report.bases.get(*base));
        calls.any(|call| call.calls > 0)
    };
    html! {
        @for base in first.bases.keys().filter(made) {
            details {
                summary { (base) " " span class="quiet" { (shares(reports, base)) } }
                @let args = first.bases[base].args.keys().map(String::as_str).chain(["output"]);
                @for arg in args.filter(|arg| reports.iter().any(|(_, r)| place(r, base, arg).is_some())) {
                    h3 { (base) "." (arg) }
                    (chart(reports, base, arg))
                }
            }
        }
    }
}

fn shares(reports: &[(String, Report)], base: &str) -> String {
    let calls = reports.iter().filter_map(|(_, report)| report.bases.get(base));
    let shares = calls.map(|call| {
        let share = 100.0 * ratio(call.partitions_hit, call.partitions_total);
        format!("{} calls, {share:.0}%", grouped(call.calls))
    });
    shares.collect::<Vec<_>>().join(" · ")
}

fn limits(reports: &[(String, Report)]) -> Markup {
    html! {
        section class="card" {
            h2 { "What was not seen" }
            ul class="index" {
                @for (name, report) in reports {
                    li {
                        (name) ": " (grouped(report.lost)) " calls lost, "
                        (grouped(report.unresolved)) " of an unknown file system"
                    }
                    @for limit in &report.limits { li { (name) ": " (limit) } }
                }
            }
        }
    }
}

/// Text as HTML, for the charts, which are written by hand.
pub(super) fn escaped(text: &str) -> String {
    html! { (text) }.into_string()
}
