//! A swarm as one page: how far it is, what it found, its tasks, and its course. The same page serves while
//! the swarm runs, when a few lines of script exchange its contents, and afterwards as a file.

use std::collections::BTreeMap;

use fathom_record::swarm::{CoursePoint, SwarmStatus, TaskLine, TaskPhase};
use maud::{Markup, PreEscaped, html};

use super::chart::course::{Line, chart_of};
use super::{SCRIPT, finding, finding_list, is_open, numbers, whole_page};
use crate::run::{Run, Sample};
use crate::visible;
use crate::words::{counted, grouped, time};

/// Asks for the page again while somebody serves it.
const LIVE: &str = include_str!("live.js");

const OPERATIONS: [Line; 1] =
    [Line { name: "operations", class: "images", value: |sample| sample.operations }];
const STATES: [Line; 1] =
    [Line { name: "different states", class: "states", value: |sample| sample.states }];
const COVERAGE: [Line; 1] =
    [Line { name: "inputs and outputs", class: "kinds", value: |sample| sample.coverage }];

/// The page. `live`: it is served, and asks for itself again.
pub fn page(status: &SwarmStatus, live: bool) -> String {
    let status = &visible::swarm(status);
    let run = &status.run;
    let main = html! {
        (bar(status))
        (numbers(run))
        (finding_list(run))
        @for (index, found) in run.findings.iter().enumerate() {
            (finding::section(found, index + 1, is_open(index, run.findings.len())))
        }
        (course(status))
        (nodes(status))
        (tasks(status))
        (refused(run))
    };
    let end = html! {
        footer { p { "Made by " (run.program) (if live { "; it is renewed every two seconds." } else { "." }) } }
        script { (PreEscaped(SCRIPT)) }
        @if live { script { (PreEscaped(LIVE)) } }
    };
    whole_page(&run.subject, &header(status), &main, &end)
}

fn header(status: &SwarmStatus) -> Markup {
    let run = &status.run;
    let tally = &status.tally;
    let found = match run.findings.len() as u64 {
        0 => "nothing found".to_owned(),
        findings => counted(findings, "finding"),
    };
    let over = tally.done + tally.found;
    let open = tally.running + tally.waiting;
    let state = match (run.findings.is_empty(), tally.failed) {
        (true, 0) => "clean",
        _ => "broken",
    };
    let how = match (status.active, open) {
        (true, _) => "running",
        (false, 0) => "over",
        (false, _) => "stopped",
    };
    html! {
        header class=(state) {
            div class="inner" {
                p class="kicker" { "Fathom · swarm · " (how) }
                h1 { (grouped(over)) " of " (counted(tally.total(), "task")) " over, " (found) "." }
                p class="lead" {
                    (time(status.seconds)) " on " (status.engine) ", "
                    (time(run.seconds)) " of all runs together; " (rate(status)) " operations per second"
                }
                dl class="facts" {
                    dt { "tested" } dd { (run.version) }
                    @if tally.retries > 0 { dt { "started again" } dd { (counted(tally.retries, "time")) } }
                    @if tally.failed > 0 { dt { "given up" } dd { (counted(tally.failed, "task")) } }
                }
            }
        }
    }
}

/// Operations per second lately.
fn rate(status: &SwarmStatus) -> String {
    let Some(last) = status.course.last() else { return "0".to_owned() };
    let since = last.seconds - 10.0;
    let from = status.course.iter().find(|point| point.seconds >= since).unwrap_or(last);
    let (from, seconds) = match status.active && from.seconds < last.seconds {
        true => (from.operations, last.seconds - from.seconds),
        false => (0, last.seconds),
    };
    grouped((last.operations.saturating_sub(from) as f64 / seconds.max(0.1)) as u64)
}

/// The tasks by state, as one bar.
fn bar(status: &SwarmStatus) -> Markup {
    let tally = &status.tally;
    let parts = [
        ("done", tally.done),
        ("found something", tally.found),
        ("given up", tally.failed),
        ("running", tally.running),
        ("waiting", tally.waiting),
    ];
    let total = tally.total().max(1) as f64;
    html! {
        section class="card" {
            h2 { (counted(tally.total(), "task")) }
            div class="bar" role="img" aria-label="tasks by state" {
                @for (index, (name, count)) in parts.iter().enumerate() {
                    @if *count > 0 {
                        span class={"part-" (index)} title=(format!("{name}: {count}"))
                            style=(format!("width:{:.2}%", *count as f64 / total * 100.0)) {}
                    }
                }
            }
            p class="legend" {
                @for (index, (name, count)) in parts.iter().enumerate() {
                    @if *count > 0 { span { i class={"key part-" (index)} {} (name) " " b { (grouped(*count)) } } }
                }
            }
        }
    }
}

/// Operations, states and coverage over time.
fn course(status: &SwarmStatus) -> Markup {
    let sample = |point: &CoursePoint| Sample {
        seconds: point.seconds,
        states: point.states,
        crash_images: 0,
        findings: point.findings,
        coverage: point.coverage,
        operations: point.operations,
    };
    let samples: Vec<Sample> = status.course.iter().map(sample).collect();
    let run = Run { samples, seconds: status.seconds, ..Run::start(status.run.kind, "", "") };
    let has = |line: &Line| run.samples.iter().any(|sample| (line.value)(sample) > 0);
    html! {
        @for (title, lines) in [("Operations", &OPERATIONS), ("States", &STATES), ("Coverage", &COVERAGE)] {
            @if lines.iter().any(has) {
                section class="card" { h2 { (title) " over time" } (chart_of(&run, lines)) }
            }
        }
    }
}

/// Tasks by machine.
fn nodes(status: &SwarmStatus) -> Markup {
    let mut nodes: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for task in status.tasks.iter().filter(|task| !task.node.is_empty()) {
        let (running, over, operations) = nodes.entry(&task.node).or_default();
        *running += u64::from(task.phase == TaskPhase::Running);
        *over += u64::from(matches!(task.phase, TaskPhase::Done | TaskPhase::Found));
        *operations += task.operations;
    }
    html! {
        @if !nodes.is_empty() {
            section class="card" {
                h2 { "Machines" }
                div class="scroll" { table class="rows" {
                    thead { tr { th { "machine" } th class="number" { "running" } th class="number" { "over" } th class="number" { "operations" } } }
                    tbody {
                        @for (node, (running, over, operations)) in nodes {
                            tr { td { (node) } td class="number" { (running) } td class="number" { (over) } td class="number" { (grouped(operations)) } }
                        }
                    }
                } }
                @if (status.tasks.len() as u64) < status.tally.total() {
                    p class="quiet" { "Of the " (status.tasks.len()) " tasks below." }
                }
            }
        }
    }
}

fn tasks(status: &SwarmStatus) -> Markup {
    let hidden = status.tally.total().saturating_sub(status.tasks.len() as u64);
    html! {
        section class="card" {
            h2 { "Tasks" }
            div class="scroll" { table class="rows" {
                thead { tr {
                    th class="number" { "task" } th { "state" } th { "machine" } th class="number" { "time" }
                    th class="number" { "operations" } th class="number" { "findings" } th { "command" }
                } }
                tbody { @for task in &status.tasks { (row(task)) } }
            } }
            @if hidden > 0 { p class="quiet" { "and " (counted(hidden, "more task")) } }
        }
    }
}

fn row(task: &TaskLine) -> Markup {
    let (badge, name) = match task.phase {
        TaskPhase::Running => ("badge new", "running"),
        TaskPhase::Failed => ("badge bad", "given up"),
        TaskPhase::Found => ("badge bad", "found"),
        TaskPhase::Waiting => ("badge", "waiting"),
        TaskPhase::Done => ("badge good", "done"),
    };
    let again = match task.attempt {
        0 | 1 => String::new(),
        attempt => format!("attempt {attempt}"),
    };
    html! {
        tr {
            td class="number" { (task.number) }
            td { span class=(badge) { (name) } " " span class="quiet" { (again) " " (task.remark) } }
            td { (task.node) }
            td class="number" { (time(task.seconds)) }
            td class="number" { (grouped(task.operations)) }
            td class="number" { (grouped(task.findings)) }
            td { code { (task.command) } }
        }
    }
}

fn refused(run: &Run) -> Markup {
    html! {
        @if !run.notes.is_empty() {
            section class="card" {
                h2 { "Refused" }
                p class="quiet" { "Damaged, or not what it should be: not part of the result." }
                ul { @for note in run.notes.iter().take(50) { li { (note) } } }
                @if run.notes.len() > 50 { p class="quiet" { "and " (run.notes.len() - 50) " more" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fathom_record::run::Kind;
    use fathom_record::swarm::TaskTally;

    use super::*;

    fn status() -> SwarmStatus {
        let point = |n: u64| CoursePoint {
            seconds: n as f64,
            running: 2,
            over: n,
            operations: n * 1000,
            states: n * 300,
            coverage: n * 7,
            findings: n / 3,
        };
        let task = |number: u64, phase| TaskLine {
            number,
            command: "fathom check model --seed 7".to_owned(),
            phase,
            attempt: 2,
            node: "<script>\u{202e}".to_owned(),
            seconds: 4.0,
            operations: 12_345,
            findings: 0,
            remark: String::new(),
        };
        SwarmStatus {
            engine: "local".to_owned(),
            active: true,
            seconds: 9.0,
            tally: TaskTally { waiting: 3, running: 1, done: 1, ..TaskTally::default() },
            tasks: vec![task(1, TaskPhase::Running), task(2, TaskPhase::Done)],
            course: (0..9).map(point).collect(),
            run: Run::start(Kind::Swarm, "fathom swarm", "a swarm of 5 tasks"),
        }
    }

    #[test]
    fn the_page_says_how_far_it_is_and_nothing_from_a_machine_is_markup() {
        let page = page(&status(), false);
        for text in ["1 of 5 tasks over", "Operations over time", "12,345", "attempt 2"] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("<script>\\u"), "escaped");
        assert!(page.contains("&lt;script&gt;\\u{202e}"), "written out");
        assert!(!page.contains("fetch("), "a file asks nobody");
    }

    #[test]
    fn the_served_page_asks_for_itself_again() {
        assert!(page(&status(), true).contains("fetch("));
    }
}
