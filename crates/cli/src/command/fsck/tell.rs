//! A campaign on a checker, told as text and as JSON.

use fathom_fsck::Subject;
use fathom_fsck::campaign::{Cause, State};
use fathom_record::Run;
use fathom_record::run::Count;
use serde_json::{Value, json};

use super::FsckArgs;
use crate::text::{grouped, table};

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
        count(
            "behaviours",
            state.coverage.behaviours.len() as u64,
            "what the checker did: ends, messages, sorts of fields written",
        ),
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
        "behaviours": state.coverage.behaviours.len(),
        "branches": state.coverage.branches.len(),
        "causes": causes,
    })
}

/// Causes, the most serious and most frequent first.
pub(super) fn sorted(state: &State) -> Vec<(&String, &Cause)> {
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
        "\n{} on disk {}: {} of {} cases on {} fields, {} with a violation, {} causes ({}); {} behaviours{}; {:.0} s, {} runs, {} answered from memory\n",
        subject.checker.version_line(),
        subject.disk.name,
        grouped(state.done),
        grouped(state.total),
        grouped(state.fields),
        grouped(state.violations),
        state.causes.len(),
        if classes.is_empty() { "none".to_owned() } else { classes.join(", ") },
        grouped(state.coverage.behaviours.len() as u64),
        match state.coverage.branches.len() {
            0 => String::new(),
            branches => format!(", {} branches", grouped(branches as u64)),
        },
        state.seconds,
        grouped(state.runs),
        grouped(state.runs_saved),
    ));
    text
}
