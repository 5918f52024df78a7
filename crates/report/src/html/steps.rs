//! A counterexample of a design: each operation with its writes, the power failure, what recovery
//! did, and the blocks involved.

use maud::{Markup, html};

use super::chart;
use crate::run::{BlockLine, Command, FindingPage, StepLine};

/// The steps and their blocks; nothing if the finding has none.
pub(super) fn steps(finding: &FindingPage) -> Markup {
    html! {
        @if !finding.steps.is_empty() {
            h3 { "What happens" }
            ol class="steps" { @for step in &finding.steps { (one(step)) } }
        }
        @if !finding.blocks.is_empty() {
            h3 { "The blocks" }
            (chart::blocks::chart(finding))
            (contents(&finding.blocks))
        }
    }
}

fn one(step: &StepLine) -> Markup {
    html! {
        li class=(if step.crash.is_empty() { "" } else { "flight" }) {
            @if !step.what.is_empty() { code { (step.what) } }
            (commands("writes", &step.writes))
            @if !step.crash.is_empty() {
                span class="cut-text" {
                    svg class="swatch" width="11" height="16" viewBox="0 0 11 16" role="img" aria-label="power failure" {
                        (chart::bolt(0.0, 0.0, 16.0))
                    }
                    "the power fails " (step.crash)
                }
                (commands("recovery writes", &step.recovery))
                span class="recovered" { "after recovery: " (step.recovered) }
            }
        }
    }
}

fn commands(verb: &str, commands: &[Command]) -> Markup {
    html! {
        @if !commands.is_empty() {
            span class="commands" {
                (verb)
                @for command in commands {
                    " "
                    @match command {
                        Command::Written(block) => { span class="chip" { (block) } }
                        Command::Lost(block) => { span class="chip lost" title="lost" { (block) } }
                        Command::Flush => { span class="chip flush" { "FLUSH" } }
                    }
                }
            }
        }
    }
}

/// What each block holds, where that changes.
fn contents(blocks: &[BlockLine]) -> Markup {
    let cell = |text: &str, before: &str| {
        html! { td class=(if text == before { "same" } else { "changed" }) { (text) } }
    };
    html! {
        table class="promises contents" {
            thead { tr {
                th scope="col" { "block" } th scope="col" { "before the last step" }
                th scope="col" { "after the power failure" } th scope="col" { "after recovery" }
            } }
            tbody {
                @for block in blocks {
                    tr {
                        th scope="row" { (block.number) " " span class="quiet" { (block.label) } }
                        td { (block.before) }
                        (cell(&block.left, &block.before))
                        (cell(&block.after, &block.left))
                    }
                }
            }
        }
    }
}
