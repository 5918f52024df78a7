//! `fathom check SUBJECT --callers N`: several callers at once, judged by linearizability; and the replay of
//! what they find.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fathom_engine::callers::again::{Repeated, repeat};
use fathom_engine::callers::finding::StoredRound;
use fathom_engine::callers::{CallersPlan, CallersReport, check_callers};
use fathom_engine::linear::Relaxations;
use fathom_record::run::Kind;
use fathom_record::{Observer, Run};
use fathom_subjects::catalogue::Need;
use serde_json::{Value, json};

use super::Ending;
use crate::args::{CheckArgs, ReplayArgs};
use crate::campaign::with_subject;
use crate::execution;
use crate::locate::demand_trust;
use crate::plan::CheckPlan;
use crate::progress::{RunObserver, started};
use crate::subjects::{Spec, catalogue};
use crate::supervise::output::shown;
use crate::supervise::worker::{self, About};
use crate::text::{bold, grouped, print, print_json};

/// File systems of the kernel that may be raced on a machine that others use: they have no disk, and what
/// they lose is theirs.
const HARMLESS: [&str; 1] = ["tmpfs"];

/// How often a recorded round is run again.
const REPLAYS: usize = 100;

/// The time for that.
const REPLAY_WITHIN: Duration = Duration::from_secs(20);

/// What setting up, looking and taking down may add to the budget.
const GRACE: Duration = Duration::from_secs(30);

pub(crate) fn run(
    args: &CheckArgs,
    callers: u32,
    checked: &CheckPlan,
    out: &Path,
    json: bool,
) -> Result<Ending> {
    if !checked.rivals.is_empty() {
        bail!("--callers compares with the reference alone: leave --against out");
    }
    check_place(&checked.spec, args.on_host)?;
    let plan = plan(args, callers, checked);
    if args.dry_run {
        print(&dry_run(checked, &plan, json)?)?;
        return Ok(Ending::Clean);
    }
    let mut run = started(Kind::Check, &checked.spec.to_string());
    run.seed = Some(plan.seed);
    let mut observer = RunObserver::start(out, run, &args.known, json)?;
    for note in &checked.notes {
        observer.note(note);
    }
    describe(checked, &plan, args.deadline);
    let report = with_subject(&checked.spec, &plan.reference, |subject| {
        Ok(check_callers(subject, &plan, &mut observer)?)
    });
    let mut report = match report {
        Ok(report) => report,
        Err(error) => return observer.fail(error),
    };
    report.elapsed = worker::elapsed(report.elapsed);
    let ending = observer.finish(|run| finish(run, &report))?;
    if report.calls == 0 && ending == Ending::Clean && worker::is_first_guest() {
        bail!("nothing was executed: this run says nothing about {}", checked.spec);
    }
    let execution = execution::take().map(|execution| execution.summary());
    if json {
        let mut value = report_json(checked, &plan, &report, observer.run());
        value["guest"] = serde_json::to_value(&execution)?;
        print_json(&value)?;
    } else {
        print(&summary(checked, &plan, &report, observer.run(), out))?;
        if let Some(execution) = &execution {
            print(&super::check::execution_text(execution))?;
        }
    }
    Ok(ending)
}

/// Races are for guests: a file system of the kernel that they break may take the machine with it.
fn check_place(spec: &Spec, on_host: bool) -> Result<()> {
    let name = base_name(spec);
    if is_kernels(spec) && !HARMLESS.contains(&&*name) && !on_host && worker::in_guest().is_none() {
        bail!(
            "several callers at once on {name} can hang or break the kernel: run them in a guest \
             (--guest KERNEL), or with --on-host if nothing here matters"
        );
    }
    Ok(())
}

/// The name of a subject without what was asked for beyond it.
fn base_name(spec: &Spec) -> String {
    spec.to_string().split([' ', ':']).next().unwrap_or_default().to_owned()
}

/// Whether the kernel serves it by itself.
fn is_kernels(spec: &Spec) -> bool {
    let name = base_name(spec);
    let rows = catalogue().rows();
    let row = rows.iter().find(|row| row.name == name);
    let in_kernel = |need: &Need| matches!(need, Need::KernelType(_));
    row.is_some_and(|row| row.needs.iter().any(in_kernel))
}

fn plan(args: &CheckArgs, callers: u32, checked: &CheckPlan) -> CallersPlan {
    let mut plan = CallersPlan::new(checked.plan.seed, callers, checked.plan.reference.clone());
    if let Some(calls) = args.calls {
        plan.calls = usize::from(calls);
    }
    if let Some(schedules) = args.schedules {
        plan.schedules = u64::from(schedules);
    }
    plan.theme = args.theme;
    plan.remounts = is_kernels(&checked.spec);
    plan.disk_delay_ns_max = args.disk_delay.map(|micros| u64::from(micros) * 1000);
    plan.relaxations = Relaxations::of_profile(&profile(checked));
    plan.calls_max = checked.plan.ops_max;
    plan.budget = checked.plan.budget;
    plan.findings_max = checked.plan.config.check.findings_max;
    plan.fsck_every = args.fsck.map(|ops| (ops / (plan.calls as u64 * u64::from(callers))).max(1));
    plan.shrink = Duration::from_secs(checked.plan.config.check.shrink_seconds);
    plan.labels = checked.plan.labels.clone();
    plan.labels.insert("callers".to_owned(), callers.to_string());
    plan.supervision = worker::supervision();
    plan
}

fn profile(checked: &CheckPlan) -> String {
    checked.plan.labels.get("profile").cloned().unwrap_or_default()
}

/// Tells the supervisor what a finding must know, and how long the campaign may take.
fn describe(checked: &CheckPlan, plan: &CallersPlan, deadline: Duration) {
    let source = fathom_engine::check::finding::investigate::FindingSource {
        subject: checked.spec.to_string(),
        seed: plan.seed,
        reference: plan.reference.clone(),
        times: false,
        labels: plan.labels.clone(),
    };
    worker::describe(About { sources: vec![source], ..About::default() });
    let grace = plan.shrink * 2 + deadline * 2 + GRACE;
    worker::limit(deadline, plan.budget.map(|budget| budget + grace));
}

fn finish(run: &mut Run, report: &CallersReport) {
    run.seconds = report.elapsed.as_secs_f64();
    run.complete = !(report.stopped && worker::is_interrupted());
    run.stop = match run.complete {
        true => "its limit of time, calls or findings was reached",
        false => "it was interrupted",
    }
    .to_owned();
    for count in &mut run.counts {
        let about = match count.name.as_str() {
            "operations" => "calls of several callers at once",
            "rounds" => "histories that were judged",
            "different" => {
                "histories of which no other schedule of the same operations had shown the same"
            }
            "overlaps" => "pairs of calls that overlapped",
            "remounts" => "times that the file system was synced and remounted beside the calls",
            "unknown" => "histories on which the search gave up",
            "fscks" => "times its checker looked at the disk",
            _ => "",
        };
        count.about = about.to_owned();
    }
}

fn relaxed(plan: &CallersPlan) -> Vec<String> {
    plan.relaxations.iter().map(|(name, _)| name.to_owned()).collect()
}

fn dry_run(checked: &CheckPlan, plan: &CallersPlan, json: bool) -> Result<String> {
    let value = json!({
        "subject": checked.spec.to_string(),
        "callers": plan.callers,
        "calls": plan.calls,
        "schedules": plan.schedules,
        "theme": plan.theme.map_or("any", |theme| theme.name()),
        "disk_delay_ns": plan.disk_delay_ns_max.unwrap_or(0),
        "seed": plan.seed,
        "relaxed": relaxed(plan),
    });
    if json {
        return Ok(format!("{value}\n"));
    }
    let mut text = format!("# The plan; nothing was executed.\n{}", toml::to_string(&value)?);
    for (name, relaxation) in plan.relaxations.iter() {
        text.push_str(&format!("# {name}: {}; {}\n", relaxation.about, relaxation.source));
    }
    Ok(text)
}

fn report_json(
    checked: &CheckPlan,
    plan: &CallersPlan,
    report: &CallersReport,
    run: &Run,
) -> Value {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .filter(|finding| run.findings.iter().any(|page| page.id == finding.id))
        .map(|finding| {
            json!({
                "id": finding.id,
                "class": finding.wrong.class(),
                "signature": finding.signature,
                "calls": finding.round.schedule.len(),
                "calls_before_shrinking": finding.calls_first,
                "delays": finding.round.schedule.delays(),
                "delays_before_shrinking": finding.delays_first,
                "at_ops": finding.seen_first.ops,
                "at_seconds": finding.seen_first.seconds,
                "sightings": finding.sightings,
                "runs": finding.runs,
                "runs_reproduced": finding.runs_reproduced,
            })
        })
        .collect();
    json!({
        "subject": checked.spec.to_string(),
        "callers": plan.callers,
        "ops": report.calls,
        "rounds": report.rounds,
        "schedules": plan.schedules,
        "different": report.different,
        "overlaps": report.overlaps,
        "remounts": report.remounts,
        "unknown": report.unknown,
        "fscks": report.fscks,
        "histories": report.histories.to_string(),
        "relaxed": relaxed(plan),
        "findings": findings,
        "known": run.known,
        "seconds": report.elapsed.as_secs_f64(),
        "seed": plan.seed,
    })
}

/// The last lines, for people.
fn summary(
    checked: &CheckPlan,
    plan: &CallersPlan,
    report: &CallersReport,
    run: &Run,
    out: &Path,
) -> String {
    let verdict = match run.findings.len() {
        0 if !run.known.is_empty() => "only known findings".to_owned(),
        0 => "an order explains every round".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    let seconds = report.elapsed.as_secs_f64();
    let mut text = format!(
        "{}: {} (seed {})\n{} callers, {} rounds ({} different), {} calls in {seconds:.1} s ({}/s), {} pairs overlapped\n",
        bold(&checked.spec.to_string()),
        bold(&verdict),
        plan.seed,
        plan.callers,
        grouped(report.rounds),
        grouped(report.different),
        grouped(report.calls),
        grouped((report.calls as f64 / seconds.max(1e-3)) as u64),
        grouped(report.overlaps),
    );
    if report.overlaps == 0 {
        text.push_str("NO CALLS OVERLAPPED: this run says nothing about concurrency\n");
    }
    if report.unknown > 0 {
        text.push_str(&format!("the search gave up on {} histories\n", grouped(report.unknown)));
    }
    let relaxed = relaxed(plan);
    if !relaxed.is_empty() {
        text.push_str(&format!("not promised to be one step here: {}\n", relaxed.join(", ")));
    }
    text.push_str(&format!("report: fathom report {0}; as a page: --html FILE\n", shown(out)));
    text
}

/// Runs a recorded round until it has shown itself often enough, and says how often of how many.
pub(crate) fn replay(args: &ReplayArgs, dir: &Path, json: bool) -> Result<Ending> {
    let stored = StoredRound::read(dir)?;
    demand_trust(&stored.subject, args.subject.as_deref(), args.trust)?;
    let name = args.subject.as_ref().unwrap_or(&stored.subject);
    let spec: Spec = name.parse().context("give another one with --subject")?;
    spec.check_caller(&stored.reference)?;
    check_place(&spec, args.on_host)?;
    worker::limit(args.deadline, None);
    let repeated = with_subject(&spec, &stored.reference, |subject| {
        Ok(repeat(subject, &stored, REPLAYS, REPLAY_WITHIN)?)
    })?;
    let Repeated { runs, shown, same, first, same_every_time } = &repeated;
    if json {
        print_json(&json!({
            "verdict": if *shown > 0 { "reproduced" } else { "not_reproduced" },
            "subject": spec.to_string(),
            "signature": stored.signature,
            "runs": runs,
            "shown": shown,
            "same": same,
            "same_every_time": same_every_time,
            "guest": execution::take().map(|execution| execution.summary()),
        }))?;
    } else {
        if let Some(first) = first {
            print(&format!("{first}\n"))?;
        }
        let verdict = if *shown > 0 { "reproduced" } else { "not reproduced" };
        let order = if *same_every_time { "; every run went the same way" } else { "" };
        print(&format!(
            "{} on {spec}: {shown} of {runs} runs, {same} of them as recorded ({}){order}\n",
            bold(verdict),
            stored.signature
        ))?;
    }
    Ok(if *shown > 0 { Ending::Clean } else { Ending::Findings })
}
