//! A campaign on a checker, told as text, as JSON and as a page.

use fathom_fsck::Subject;
use fathom_fsck::campaign::{Cause, State};
use fathom_record::Run;
use fathom_record::run::Count;
use serde_json::{Value, json};

use super::FsckArgs;
use crate::text::{grouped, table};

/// Fields that are named of a cause.
const FIELDS_SHOWN: usize = 3;

/// Fills in what is known at the end.
pub(super) fn describe(run: &mut Run, state: &State, args: &FsckArgs) {
    run.complete = state.complete || args.budget.is_some() || args.cases.is_some();
    run.complete &= !crate::supervise::worker::is_interrupted();
    run.seconds = state.seconds;
    run.stop = match state.complete {
        true => "every case was tried".to_owned(),
        false => format!("{} of {} cases were tried", state.done, state.total),
    };
    let count = |name: &str, value: u64, about: &str| Count {
        name: name.to_owned(),
        value,
        about: about.to_owned(),
    };
    run.counts = vec![
        count("cases", state.done, "corruptions of one field"),
        count("violations", state.violations, "cases in which something is wrong"),
        count("causes", state.causes.len() as u64, "what the violations come from"),
        count("fields", state.fields, "fields that were corrupted"),
        count("runs", state.runs, "runs of the checker"),
        count(
            "runs_saved",
            state.runs_saved,
            "runs on a disk on which the checker was seen before",
        ),
    ];
}

/// The result for machines.
pub(super) fn json(subject: &Subject, state: &State) -> Value {
    let causes: Vec<Value> = sorted(state)
        .iter()
        .map(|(signature, cause)| {
            json!({
                "signature": signature,
                "class": cause.class,
                "what": cause.what,
                "cases": cause.cases,
                "case": cause.case.text(),
                "ends": cause.ends,
                "fields": cause.fields,
            })
        })
        .collect();
    json!({
        "checker": subject.checker.name,
        "version": subject.checker.version_line(),
        "disk": subject.disk.name,
        "cases": state.done,
        "cases_total": state.total,
        "fields": state.fields,
        "violations": state.violations,
        "by_class": state.by_class,
        "matrix": state.matrix,
        "runs": state.runs,
        "runs_saved": state.runs_saved,
        "seconds": state.seconds,
        "complete": state.complete,
        "causes": causes,
    })
}

/// Causes, the most serious and most frequent first.
fn sorted(state: &State) -> Vec<(&String, &Cause)> {
    let mut causes: Vec<(&String, &Cause)> = state.causes.iter().collect();
    causes.sort_by_key(|(_, cause)| (cause.class, std::cmp::Reverse(cause.cases)));
    causes
}

/// The result for people.
pub(super) fn text(subject: &Subject, state: &State) -> String {
    let mut rows =
        vec![["cases", "class", "what", "simplest case", "cause"].map(str::to_owned).to_vec()];
    for (_, cause) in sorted(state) {
        let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        rows.push(vec![
            cause.cases.to_string(),
            cause.class.name().to_owned(),
            cut(&cause.what, 40),
            cut(&cause.case.text(), 60),
            cut(&cause.cause, 60),
        ]);
    }
    let mut text = String::new();
    if rows.len() > 1 {
        text.push_str(&table(&rows));
    }
    let classes: Vec<String> =
        state.by_class.iter().map(|(class, cases)| format!("{class} {cases}")).collect();
    text.push_str(&format!(
        "\n{} on disk {}: {} of {} cases on {} fields, {} with a violation, {} causes ({}); {:.0} s, {} runs, {} answered from memory\n",
        subject.checker.version_line(),
        subject.disk.name,
        grouped(state.done),
        grouped(state.total),
        grouped(state.fields),
        grouped(state.violations),
        state.causes.len(),
        if classes.is_empty() { "none".to_owned() } else { classes.join(", ") },
        state.seconds,
        grouped(state.runs),
        grouped(state.runs_saved),
    ));
    text
}

/// The colours of outcomes on the page; the first that fits.
const COLOURS: &[(&str, &str)] = &[
    ("signal", "#7a0019"),
    ("hang", "#7a0019"),
    ("sanitizer", "#7a0019"),
    ("table", "#d1495b"),
    ("third_run", "#d1495b"),
    ("silent_repair", "#edae49"),
    ("check_disagrees", "#f2d479"),
    ("check_writes", "#d1495b"),
    ("loss", "#00798c"),
    ("unreadable", "#00798c"),
    ("", "#cfd8dc"),
];

/// The disk as a page: every field that was tried, coloured by its worst outcome; the matrix of first
/// and second run; the causes.
pub(super) fn page(subject: &Subject, state: &State) -> String {
    let mut html = String::from(
        "<!doctype html><meta charset=utf-8><title>fathom fsck</title><style>\
        body{font:14px sans-serif;margin:2em;max-width:70em}td,th{padding:.2em .6em;text-align:left;\
        vertical-align:top;border-bottom:1px solid #ddd}.f{display:inline-block;width:9px;height:9px;\
        margin:1px}h2{margin-top:2em}code{font-size:12px}</style>",
    );
    html.push_str(&format!(
        "<h1>{} on disk {}</h1><p>{}: {} of {} cases, {} with a violation, {} causes, {} runs.</p>",
        escape(&subject.checker.name),
        escape(&subject.disk.name),
        escape(&subject.checker.version_line()),
        grouped(state.done),
        grouped(state.total),
        grouped(state.violations),
        state.causes.len(),
        grouped(state.runs)
    ));
    html.push_str("<h2>The disk by outcome</h2><p>");
    for (class, colour) in COLOURS {
        let name = if class.is_empty() { "nothing wrong" } else { class };
        html.push_str(&format!("<span class=f style='background:{colour}'></span> {name} &nbsp; "));
    }
    html.push_str("</p>");
    let mut structure = String::new();
    for field in &subject.map.fields {
        let Some(outcome) = state.outcomes.get(&field.to_string()) else { continue };
        if *field.structure != *structure {
            structure = field.structure.to_string();
            html.push_str(&format!("<div><code>{}</code> ", escape(&structure)));
        }
        let colour =
            COLOURS.iter().find(|(class, _)| class == outcome).map_or("#888", |(_, colour)| colour);
        let title = format!("{} {outcome}", field.name);
        html.push_str(&format!(
            "<span class=f style='background:{colour}' title='{}'></span>",
            escape(&title)
        ));
    }
    html.push_str("<h2>First run → second run</h2><table><tr><th>ends<th>cases");
    for (ends, cases) in &state.matrix {
        html.push_str(&format!("<tr><td>{}<td>{}", escape(ends), grouped(*cases)));
    }
    html.push_str("</table><h2>Causes</h2><table><tr><th>cases<th>class<th>what<th>simplest case<th>cause<th>fields");
    for (_, cause) in sorted(state) {
        let fields: Vec<&str> =
            cause.fields.keys().map(String::as_str).take(FIELDS_SHOWN).collect();
        html.push_str(&format!(
            "<tr><td>{}<td>{}<td>{}<td><code>{}</code><td>{}<td><code>{}</code>",
            grouped(cause.cases),
            cause.class.name(),
            escape(&cause.what),
            escape(&cause.case.text()),
            escape(&cause.cause),
            escape(&fields.join(", "))
        ));
    }
    html.push_str("</table>\n");
    html
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}
