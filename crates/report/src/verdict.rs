//! The run in one sentence.

use crate::run::{Kind, Run};
use crate::words::{counted, grouped};

/// What came out, in one sentence. A number and its noun stay on one line.
pub(crate) fn sentence(run: &Run) -> String {
    let subject = &run.subject;
    let findings = counted(run.findings.len() as u64, "finding").replace(' ', "\u{a0}");
    if run.kind == Kind::Design && unit(run).is_none() {
        return format!("Measured: {subject}.");
    }
    if !run.complete && run.findings.is_empty() && run.kind != Kind::Cover {
        return format!("Not complete: nothing was found on {subject} in {}.", tried(run, ""));
    }
    match (run.kind, run.findings.is_empty()) {
        (Kind::Crash, true) => format!("{subject} kept its promises in {}.", tried(run, "all ")),
        (Kind::Crash, false) => {
            format!("{subject} broke its promises: {findings} in {}.", tried(run, ""))
        }
        (Kind::Design, true) => {
            format!("Nothing is wrong with {subject} in {}.", tried(run, "all "))
        }
        (Kind::Design, false) => {
            format!("The design {subject} is broken: {findings} in {}.", tried(run, ""))
        }
        (Kind::Check, true) => {
            format!("{subject} answered like the reference in {}.", tried(run, "all "))
        }
        (Kind::Check, false) => {
            format!("{subject} differs from the reference: {findings} in {}.", tried(run, ""))
        }
        (Kind::Fsck, true) => format!("{subject} told the truth in {}.", tried(run, "all ")),
        (Kind::Fsck, false) => {
            format!("{subject} does not always tell the truth: {findings} in {}.", tried(run, ""))
        }
        (Kind::Cover, _) => format!("Measured: {subject}."),
        (Kind::Replay, _) => format!("Repeated on {subject}: {}.", run.stop),
        (Kind::Shrink, _) => format!("Shrunk on {subject}: {}.", run.stop),
        (Kind::Swarm, true) => format!("Nothing was found by {subject} in {}.", tried(run, "all ")),
        (Kind::Swarm, false) => format!("{findings} by {subject} in {}.", tried(run, "")),
    }
}

/// How much and how fast: "248,926 crash images in 5.1 s with 2 threads, 48,810 per second".
pub(crate) fn effort(run: &Run) -> String {
    let time = crate::words::time(run.seconds);
    let threads = counted(run.threads as u64, "thread");
    match unit(run) {
        Some((value, _)) if run.seconds > 0.0 && value > 0 => {
            let rate = grouped((value as f64 / run.seconds) as u64);
            format!("{} in {time} with {threads}, {rate} per second", tried(run, ""))
        }
        _ => format!("{time} with {threads}"),
    }
}

fn tried(run: &Run, all: &str) -> String {
    match unit(run) {
        Some((value, noun)) => format!("{all}{}", counted(value, noun)),
        None => "this run".to_owned(),
    }
}

/// What a run of this kind is measured in.
fn unit(run: &Run) -> Option<(u64, &'static str)> {
    let names: &[(&str, &str)] = match run.kind {
        Kind::Crash => &[("crash_images", "crash image"), ("crash_points", "crash point")],
        Kind::Design => &[("operations", "operation")],
        Kind::Check | Kind::Replay | Kind::Shrink | Kind::Swarm => {
            &[("operations", "operation"), ("transitions", "transition")]
        }
        Kind::Cover => &[("calls", "system call")],
        Kind::Fsck => &[("cases", "case")],
    };
    names.iter().find_map(|(name, noun)| Some((run.count(name)?, *noun)))
}
