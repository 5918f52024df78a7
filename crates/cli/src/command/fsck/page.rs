//! A campaign on a checker as a page: the disk by outcome, the matrix of runs, coverage, causes.

use std::collections::BTreeSet;

use fathom_fsck::campaign::State;
use fathom_fsck::{Class, Subject};

use super::tell::sorted;
use crate::text::grouped;

/// Fields that are named of a cause.
const FIELDS_SHOWN: usize = 3;
/// What joins the ends of two runs in the state of a campaign.
const THEN: &str = " → ";
/// The size of a chart, in units of its own coordinates.
const CHART: (f64, f64) = (640.0, 160.0);

const STYLE: &str = "\
    body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;padding:1em;max-width:72em;color:#1d2327;\
    background:#fff}h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2em}\
    .wide{overflow-x:auto}table{border-collapse:collapse}\
    td,th{padding:.25em .7em;text-align:left;vertical-align:top;border-bottom:1px solid #ddd}\
    td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
    code{font-size:12px;overflow-wrap:anywhere}td code{overflow-wrap:normal}\
    .f{display:inline-block;width:10px;height:10px;margin:1px;vertical-align:middle}\
    .legend span.k{white-space:nowrap;margin-right:1em}.s{margin:.15em 0;line-height:1}\
    svg{width:100%;max-width:40em;height:auto}svg text{font-size:11px;fill:#555}\
    details summary{cursor:pointer}";

/// The colour of an outcome: the more serious, the darker.
fn colour(class: Option<Class>) -> &'static str {
    match class {
        None => "#d5dcdf",
        Some(Class::Signal | Class::Hang | Class::Sanitizer | Class::Memory | Class::Output) => {
            "#7a0019"
        }
        Some(Class::CheckWrites | Class::Table | Class::ThirdRun) => "#d1495b",
        Some(Class::SilentRepair) => "#e08e00",
        Some(Class::CheckDisagrees) => "#f2d479",
        Some(Class::KernelDies | Class::Unmountable | Class::KernelComplains) => "#4b2e83",
        Some(Class::Unreadable | Class::Loss) => "#00798c",
        Some(Class::UnknownExit | Class::Nondeterministic) => "#5a6872",
    }
}

fn class_named(name: &str) -> Option<Class> {
    Class::ALL.iter().copied().find(|class| class.name() == name)
}

/// The whole page.
pub(super) fn page(subject: &Subject, state: &State) -> String {
    let mut html = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport \
         content='width=device-width, initial-scale=1'><title>{0} on {1}: fathom fsck</title>\
         <style>{STYLE}</style><h1>{0} on disk {1}</h1><p>{2}: {3} of {4} cases, {5} with a violation, \
         {6} causes, {7} runs.</p>",
        escape(&subject.checker.name),
        escape(&subject.disk.name),
        escape(&subject.checker.version_line()),
        grouped(state.done),
        grouped(state.total),
        grouped(state.violations),
        state.causes.len(),
        grouped(state.runs)
    );
    html.push_str(&disk(subject, state));
    html.push_str(&matrix(state));
    html.push_str(&coverage(state));
    html.push_str(&causes(state));
    html.push_str("</html>\n");
    html
}

/// Every field that was tried, coloured by its worst outcome.
fn disk(subject: &Subject, state: &State) -> String {
    let seen: BTreeSet<Option<Class>> =
        state.outcomes.values().map(|outcome| class_named(outcome)).collect();
    let mut html = String::from("<h2>The disk by outcome</h2><p class=legend>");
    for class in &seen {
        let name = class.map_or("nothing wrong", Class::name);
        html.push_str(&format!(
            "<span class=k><span class=f style='background:{}'></span> {name}</span> ",
            colour(*class)
        ));
    }
    html.push_str("</p>");
    let mut structure = "";
    for field in &subject.map.fields {
        let Some(outcome) = state.outcomes.get(&field.to_string()) else { continue };
        if *field.structure != *structure {
            if !structure.is_empty() {
                html.push_str("</div>");
            }
            structure = &field.structure;
            html.push_str(&format!("<div class=s><code>{}</code> ", escape(structure)));
        }
        let title = match outcome.as_str() {
            "" => format!("{}: nothing wrong", field.name),
            outcome => format!("{}: {outcome}", field.name),
        };
        html.push_str(&format!(
            "<span class=f style='background:{}' title='{}'></span>",
            colour(class_named(outcome)),
            escape(&title)
        ));
    }
    if !structure.is_empty() {
        html.push_str("</div>");
    }
    html
}

/// How often the first and the second repair ended so.
fn matrix(state: &State) -> String {
    let pairs =
        || state.matrix.iter().filter_map(|(ends, cases)| Some((ends.split_once(THEN)?, cases)));
    let firsts: BTreeSet<&str> = pairs().map(|((first, _), _)| first).collect();
    let seconds: BTreeSet<&str> = pairs().map(|((_, second), _)| second).collect();
    let name = |end: &str| if end.is_empty() { "not run".to_owned() } else { escape(end) };
    let mut html = String::from(
        "<h2>First repair × second repair</h2><p>Rows: how the first ended; columns: how the second \
         ended. Numbers are exit codes.</p><div class=wide><table><tr><th>",
    );
    for second in &seconds {
        html.push_str(&format!("<th class=n>{}", name(second)));
    }
    for first in &firsts {
        html.push_str(&format!("<tr><th>{}", name(first)));
        for second in &seconds {
            let cases =
                pairs().find(|(ends, _)| *ends == (*first, *second)).map(|(_, cases)| *cases);
            html.push_str(&format!("<td class=n>{}", cases.map_or_else(String::new, grouped)));
        }
    }
    html.push_str("</table></div>");
    html
}

/// How what was seen grew with the cases.
fn coverage(state: &State) -> String {
    let mut growth = state.coverage.growth.clone();
    growth.push(state.coverage.now(state.done));
    let line = |what: &dyn Fn(usize) -> u64| {
        let points: Vec<(u64, u64)> =
            (0..growth.len()).map(|at| (growth[at].cases, what(at))).collect();
        chart(&points)
    };
    let mut html = format!(
        "<h2>Coverage by case</h2><p>{} different behaviours of the checker: how the runs end, what they \
         print, which sorts of fields are written.</p>{}",
        grouped(state.coverage.behaviours.len() as u64),
        line(&|at| growth[at].behaviours)
    );
    if state.coverage.branches.is_empty() {
        html.push_str("<p>The checker is not instrumented: its branches are not known.</p>");
    } else {
        html.push_str(&format!(
            "<p>{} branches of the checker.</p>{}",
            grouped(state.coverage.branches.len() as u64),
            line(&|at| growth[at].branches)
        ));
    }
    html
}

/// A line over the number of cases.
fn chart(points: &[(u64, u64)]) -> String {
    let (width, height) = CHART;
    let cases_max = points.iter().map(|(cases, _)| *cases).max().unwrap_or(0).max(1);
    let value_max = points.iter().map(|(_, value)| *value).max().unwrap_or(0).max(1);
    let places: Vec<String> = points
        .iter()
        .map(|(cases, value)| {
            let x = *cases as f64 / cases_max as f64 * width;
            let y = height - *value as f64 / value_max as f64 * height;
            format!("{x:.1},{y:.1}")
        })
        .collect();
    format!(
        "<svg viewBox='-4 -14 {} {}' role=img aria-label='{value_max} after {cases_max} cases'>\
         <polyline points='{}' fill=none stroke='#00798c' stroke-width=2 />\
         <line x1=0 y1={height} x2={width} y2={height} stroke='#999' />\
         <text x=0 y=-3>{}</text><text x={width} y={} text-anchor=end>{} cases</text></svg>",
        width + 8.0,
        height + 32.0,
        places.join(" "),
        grouped(value_max),
        height + 14.0,
        grouped(cases_max)
    )
}

fn causes(state: &State) -> String {
    let mut html = String::from(
        "<h2>Causes</h2><div class=wide><table><tr><th class=n>cases<th>class<th>what<th>simplest case\
         <th>cause<th>fields",
    );
    for (_, cause) in sorted(state) {
        let fields: Vec<&str> =
            cause.fields.keys().map(String::as_str).take(FIELDS_SHOWN).collect();
        html.push_str(&format!(
            "<tr><td class=n>{}<td><span class=f style='background:{}'></span> {}<td>{}<td><code>{}</code>\
             <td>{}<td><code>{}</code>",
            grouped(cause.cases),
            colour(Some(cause.class)),
            cause.class.name(),
            escape(&cause.what),
            escape(&cause.case.text()),
            escape(&cause.cause),
            escape(&fields.join(", "))
        ));
    }
    html.push_str("</table></div>");
    html
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}
