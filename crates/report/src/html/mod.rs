//! A run as one HTML page that needs nothing else: no script to read it, no file beside it, no
//! network. Light or dark as the reader's system is, for a phone and for a desk.
//!
//! Everything that comes from the run passes through maud, which escapes it, after
//! [`crate::visible`] has written out what cannot be seen.

mod chart;
mod finding;
mod steps;
pub mod swarm;
mod trees;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::run::{Kind, Plot, Run};
use crate::words::{counted, grouped, spaced};
use crate::{verdict, visible};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("copy.js");

/// The page.
pub fn page(run: &Run) -> String {
    let run = &visible::run(run);
    let verdict = verdict::sentence(run);
    let main = html! {
        (numbers(run))
        (finding_list(run))
        @for (index, found) in run.findings.iter().enumerate() {
            (finding::section(found, index + 1, is_open(index, run.findings.len())))
        }
        @for plot in &run.plots { (plot_card(plot)) }
        (course(run))
        (depths(run))
        (guarantee(run))
    };
    let end = html! {
        (footer(run))
        script { (PreEscaped(SCRIPT)) }
    };
    whole_page(&run.subject, &header(run, &verdict), &main, &end)
}

/// Puts a page together; everything that it needs is in it.
pub(crate) fn whole_page(title: &str, header: &Markup, main: &Markup, end: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – Fathom" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (header)
                main { (main) }
                (end)
            }
        }
    };
    page.into_string()
}

/// A few findings are read one after the other; of many, one is chosen from the list.
fn is_open(index: usize, findings: usize) -> bool {
    findings <= 5 || index == 0
}

fn header(run: &Run, verdict: &str) -> Markup {
    let state = if run.findings.is_empty() { "clean" } else { "broken" };
    let question = match run.kind {
        Kind::Crash => "power failures",
        Kind::Check => "comparison with the reference",
        Kind::Design => "a design, explored",
        Kind::Cover => "what a test tool exercises",
        Kind::Fsck => "a checker on corrupted disks",
        Kind::Replay => "a finding, repeated",
        Kind::Shrink => "a finding, shrunk",
        Kind::Swarm => "a swarm, united",
    };
    html! {
        header class=(state) {
            div class="inner" {
                p class="kicker" { "Fathom · " (question) }
                h1 { (verdict) }
                p class="lead" { (verdict::effort(run)) "; " (run.stop) "." }
                dl class="facts" {
                    dt { "tested" } dd { (run.version) }
                    @if !run.geometry.is_empty() { dt { "device" } dd { (run.geometry) } }
                    dt { "command" } dd { code { (run.command) } }
                    @if let Some(seed) = run.seed { dt { "seed" } dd { code { (seed) } } }
                    @if !run.complete { dt { "complete" } dd { "no: what follows is what it has so far" } }
                }
            }
        }
    }
}

fn numbers(run: &Run) -> Markup {
    html! {
        @if !run.counts.is_empty() {
            ul class="tiles" aria-label="The numbers" {
                @for count in &run.counts {
                    li {
                        span class="tile-name" { (spaced(&count.name)) }
                        span class="tile-value" { (grouped(count.value)) }
                        span class="tile-about" { (count.about) }
                    }
                }
            }
        }
        @if !run.known.is_empty() || !run.no_longer_seen.is_empty() {
            aside class="missed" {
                b { "What is known already" }
                ul {
                    @for known in &run.known {
                        li { (known.signature) " (" (counted(known.sightings, "time")) "): " (known.because) }
                    }
                    @for gone in &run.no_longer_seen { li { b { "no longer seen: " } (gone) } }
                }
            }
        }
        @if !run.goals_missed.is_empty() {
            aside class="missed" {
                b { "What this run never reached" }
                ul { @for goal in &run.goals_missed { li { (goal) } } }
            }
        }
    }
}

/// The way to each finding, if there are several.
fn finding_list(run: &Run) -> Markup {
    html! {
        @if run.findings.len() > 1 {
            section class="card" {
                h2 { (counted(run.findings.len() as u64, "finding")) }
                ol class="index" {
                    @for (index, finding) in run.findings.iter().enumerate() {
                        li {
                            a href={"#finding-" (index + 1)} { (finding.title) }
                            " " span class="badge" { (spaced(&finding.class)) }
                            " " span class="quiet" { (counted(finding.count, "time")) }
                        }
                    }
                }
            }
        }
    }
}

fn plot_card(plot: &Plot) -> Markup {
    html! {
        section class="card" {
            h2 { (plot.title) }
            p class="quiet" { (plot.about) }
            (chart::plot::chart(plot))
        }
    }
}

fn course(run: &Run) -> Markup {
    html! {
        @if !run.samples.is_empty() {
            section class="card" {
                h2 { "Exploration over time" }
                (chart::course::chart(run))
            }
        }
    }
}

fn depths(run: &Run) -> Markup {
    html! {
        @if run.by_depth.iter().any(|&states| states > 0) {
            section class="card" {
                h2 { "States by depth" }
                p class="quiet" { "How many states were first reached with so many operations." }
                (chart::depth::chart(&run.by_depth))
            }
        }
    }
}

fn guarantee(run: &Run) -> Markup {
    html! {
        @if !run.guarantee.is_empty() {
            section class="card" {
                h2 { "What " (run.subject) " promises" }
                p class="quiet" { "It is judged by its own documentation." }
                table class="promises" {
                    thead { tr { th scope="col" { "what" } th scope="col" { "promised" } th scope="col" { "where it says so" } } }
                    tbody {
                        @for promise in &run.guarantee {
                            tr {
                                th scope="row" { (promise.what) }
                                td { (promise.is) }
                                td class="cite" { (promise.cite) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn footer(run: &Run) -> Markup {
    html! {
        footer { p { "Made by " (run.program) " from " code { (crate::run::FILE) } "; nothing was run for it." } }
    }
}
