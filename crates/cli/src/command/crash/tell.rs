//! A run in words, as JSON, and as reports want it.

use fathom_block::{DiskFileSystem, Geometry};
use fathom_engine::crash::{CrashFinding, CrashPlan, CrashReport, WorkloadCounts};
use fathom_engine::search::{Stop, Strategy};
use fathom_record::Run;
use fathom_record::run::{Count, Kind, Promise};
use serde_json::{Value, json};

use crate::progress::started;
use crate::supervise::worker;
use crate::text::{bold, grouped};

/// A device in words.
pub(crate) fn geometry_text(geometry: &Geometry) -> String {
    format!(
        "{} blocks of {} bytes, written in units of {}",
        geometry.size_bytes / geometry.erase_bytes,
        geometry.erase_bytes,
        geometry.write_bytes
    )
}

/// What was done, for people; the findings have been told.
pub(crate) fn summary(subject: &dyn DiskFileSystem, report: &CrashReport, run: &Run) -> String {
    let search = &report.search;
    let found = match run.findings.len() {
        0 if !run.known.is_empty() => "only known findings".to_owned(),
        0 => "every crash left what was promised".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    let seconds = worker::elapsed(search.elapsed).as_secs_f64();
    let levels: Vec<&str> = report.levels.iter().map(|level| level.name()).collect();
    let mut text = format!(
        "{}: {} ({})\n{} states, {} steps, {} distinct crash images ({}) in {seconds:.1} s ({}/s); {}\n",
        bold(subject.name()),
        found,
        subject.version(),
        grouped(search.states),
        grouped(search.transitions),
        grouped(report.crash_images),
        levels.join(", "),
        grouped((report.crash_images as f64 / seconds.max(1e-9)) as u64),
        search.stop,
    );
    if let Some(counts) = report.workloads {
        text.push_str(&workloads(report, counts));
    }
    let from_memo = grouped(report.memo.answered);
    text.push_str(&format!("{from_memo} of them known from what other examinations read\n"));
    if report.memo.refuted + report.pruned.refuted + report.rests.refuted > 0 {
        text.push_str(
            "the memo was wrong and was switched off: the file system is not deterministic, or reads \
             what it does not tell\n",
        );
    }
    if !report.goals_missed.is_empty() {
        text.push_str(&format!("never reached: {}\n", report.goals_missed.join("; ")));
    }
    text
}

/// How many workloads there were, and what became of their crash states.
fn workloads(report: &CrashReport, counts: WorkloadCounts) -> String {
    let mut text = format!(
        "{} workloads, {} of which it could not follow; {} crash states: {} of beginnings that \
         were judged before, {} distinct disks, {} pruned (equal to an examined one wherever that \
         was read), {} examined, {} of them only at a first look (recovery left them equal to \
         another one wherever that was read)\n",
        grouped(counts.workloads),
        grouped(counts.not_followed),
        grouped(report.enumerated),
        grouped(report.prefixes.answered),
        grouped(report.crash_images),
        grouped(report.pruned.pruned),
        grouped(report.memo.examined),
        grouped(report.rests.pruned - report.rests.verified),
    );
    if counts.cut_short > 0 {
        text.push_str(
            "the time was over in the middle of the last workload: the power failed only in its \
             beginning\n",
        );
    }
    if counts.left_out > 0 {
        text.push_str(&format!(
            "{} further crash states were left out: one workload has only so many (workload_states_max)\n",
            grouped(counts.left_out),
        ));
    }
    if counts.ops_left_out > 0 {
        text.push_str(&format!(
            "{} operations were left out of the workloads, since it does not have them or answers them \
             in its own way\n",
            grouped(counts.ops_left_out),
        ));
    }
    if report.prefixes.refuted > 0 {
        text.push_str(&format!(
            "{} of {} operations of known beginnings showed something else when they were \
             judged again: the kernel is not deterministic\n",
            grouped(report.prefixes.refuted),
            grouped(report.prefixes.rejudged),
        ));
    }
    text
}

/// A run for machines.
pub(crate) fn report_json(subject: &dyn DiskFileSystem, report: &CrashReport, run: &Run) -> Value {
    let reported =
        |finding: &&CrashFinding| run.findings.iter().any(|page| page.id == finding.record.id);
    let finding = |finding: &CrashFinding| {
        let record = &finding.record;
        json!({
            "id": record.id,
            "class": record.cause.class,
            "cause": record.cause.to_string(),
            "count": record.count,
            "variants": record.variants,
            "levels": record.levels,
            "ops": finding.minimal.ops().map(ToString::to_string).collect::<Vec<_>>(),
            "cut": finding.cut(),
            "reproduced": record.runs_reproduced == record.runs,
        })
    };
    json!({
        "subject": subject.name(),
        "version": subject.version(),
        "states": report.search.states,
        "transitions": report.search.transitions,
        "states_by_depth": report.search.states_by_depth,
        "crash_images": report.crash_images,
        "crash_states": report.enumerated,
        "workloads": report.workloads,
        "crash_states_of_known_beginnings": report.prefixes.answered,
        "beginnings_judged_again": report.prefixes.rejudged,
        "beginnings_refuted": report.prefixes.refuted,
        "crash_images_examined": report.memo.examined,
        "crash_images_from_memo": report.memo.answered,
        "memo_refuted": report.memo.refuted,
        "crash_images_pruned": report.pruned.pruned,
        "examinations_that_told_reads": report.pruned.told,
        "pruned_judged_again": report.pruned.verified,
        "pruned_refuted": report.pruned.refuted,
        "rests_known": report.rests.pruned,
        "rests_judged_again": report.rests.verified,
        "rests_refuted": report.rests.refuted,
        "levels": report.levels,
        "seconds": worker::elapsed(report.search.elapsed).as_secs_f64(),
        "stop": report.search.stop.to_string(),
        "goals_missed": report.goals_missed,
        "complete": run.complete,
        "findings": report.findings.iter().filter(reported).map(finding).collect::<Vec<_>>(),
        "known": run.known,
        "no_longer_seen": run.no_longer_seen,
    })
}

/// A run that has just been started. No threads means one per core.
pub(crate) fn run_of(subject: &dyn DiskFileSystem, plan: &CrashPlan) -> Run {
    let mut run = started(Kind::Crash, subject.name());
    run.version = subject.version().to_owned();
    run.geometry = geometry_text(&subject.geometry());
    run.guarantee = promises(subject);
    run.threads = threads(plan.threads);
    if let Strategy::Walk { seed, .. } = plan.strategy {
        run.seed = Some(seed);
    }
    run
}

/// How many threads work: without a number, one per core.
pub(crate) fn threads(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// What is known of a run at its end.
pub(crate) fn describe(run: &mut Run, report: &CrashReport, plan: &CrashPlan) {
    let search = &report.search;
    let count = |name: &str, value, about: &str| Count {
        name: name.to_owned(),
        value,
        about: about.to_owned(),
    };
    run.seconds = worker::elapsed(search.elapsed).as_secs_f64();
    run.complete = search.stop != Stop::Asked || plan.stop_at_first;
    run.stop = search.stop.to_string();
    run.counts = vec![
        count("crash_images", report.crash_images, "distinct images that a power failure left"),
        count("states", search.states, "different states of the file system"),
        count("transitions", search.transitions, "steps of workloads"),
    ];
    run.by_depth = search.states_by_depth.clone();
    run.goals_missed = report.goals_missed.iter().map(ToString::to_string).collect();
}

fn promises(subject: &dyn DiskFileSystem) -> Vec<Promise> {
    let guarantee = subject.guarantee();
    let claim = |what: &str, is: &str, cite: &str| Promise {
        what: what.to_owned(),
        is: is.to_owned(),
        cite: cite.to_owned(),
    };
    let levels: Vec<&str> = guarantee.survives.is.iter().map(|level| level.name()).collect();
    let recovers = if guarantee.recovers.is { "always" } else { "not promised" };
    let slack = &guarantee.capacity_slack_bytes;
    let calls = guarantee.durable.mentioned().map(|(call, makes)| {
        let what = format!("durable after {}", call.replace('_', " "));
        claim(&what, makes.is.meaning(), &makes.cite)
    });
    let rest = [
        claim("what else survives", guarantee.order.is.meaning(), &guarantee.order.cite),
        claim("contents of files", guarantee.data.is.meaning(), &guarantee.data.cite),
        claim("power failures survived", &levels.join(", "), &guarantee.survives.cite),
        claim("mounts and works afterwards", recovers, &guarantee.recovers.cite),
        claim("capacity that may be missing", &format!("{} bytes", slack.is), &slack.cite),
    ];
    calls.chain(rest).collect()
}
