//! `fathom check`: compares a subject with the reference.

use std::path::Path;

use anyhow::{Result, bail};
use fathom_core::Activity;
use fathom_engine::check::finding::investigate::FindingSource;
use fathom_engine::{Report, Strategy};
use fathom_record::run::Kind;
use fathom_record::{Observer, Run};
use serde_json::{Value, json};

use super::Ending;
use crate::args::CheckArgs;
use crate::campaign::run_check;
use crate::cover::own::{self, Files, LiveCoverage};
use crate::execution::{self, Execution};
use crate::plan::{self, CheckPlan};
use crate::progress::{RunObserver, started};
use crate::supervise::output::shown;
use crate::supervise::worker::{self, About, watched};
use crate::text::{bold, grouped, print, print_json};

pub(crate) fn run(args: &CheckArgs, out: &Path, json: bool) -> Result<Ending> {
    let mut args = args.clone();
    args.seed.get_or_insert_with(plan::clock_seed);
    let args = &args;
    announce(args);
    fathom_subjects::daemon::set_limits(args.start_within, args.stop_within);
    let checked = watched(Activity::SettingUp, || plan::of_check(args, out))?;
    if let Some(callers) = args.callers {
        return super::callers::run(args, callers, &checked, out, json);
    }
    if args.dry_run {
        print(&plan_text(&checked, out, json)?)?;
        return Ok(Ending::Clean);
    }
    let files = Files::new(out, args.coverage.as_ref())?;
    let mut run = started(Kind::Check, &checked.spec.to_string());
    run.seed = Some(checked.plan.seed);
    run.version = version(&checked);
    let mut observer = RunObserver::start(out, run, &args.known, json)?;
    observer.keep_states("trees", &checked.plan.states);
    let title = format!("fathom check {} (seed {})", checked.spec, checked.plan.seed);
    observer.keep_coverage(LiveCoverage::start(out, title.clone()));
    for note in &checked.notes {
        observer.note(note);
    }
    let mut report = match run_check(&checked, out, &args.known, &mut observer) {
        Ok(report) => report,
        Err(error) => return observer.fail(error),
    };
    report.stats.elapsed = worker::elapsed(report.stats.elapsed);
    report.stopped &= worker::is_interrupted();
    let coverage = own::final_report(&report.coverage, &title, report.stats.elapsed.as_secs_f64());
    files.write_or_say(&coverage);
    let ending = observer.finish(|run| describe(run, &report))?;
    if report.stats.ops == 0 && ending == Ending::Clean && worker::is_first_guest() {
        bail!("nothing was executed: this run says nothing about {}", checked.spec);
    }
    let execution = execution::take().map(|execution| execution.summary());
    if json {
        let mut value = report_json(&checked, &report, observer.run());
        value["guest"] = serde_json::to_value(&execution)?;
        value.as_object_mut().expect("it is one").extend(own::json(&coverage));
        print_json(&value)?;
    } else {
        let coverage = own::line(&coverage, &files);
        print(&summary(&checked, &report, observer.run(), &coverage, out))?;
        if let Some(execution) = &execution {
            print(&execution_text(execution))?;
        }
    }
    Ok(ending)
}

/// Says what a finding can say before there is a plan: planning asks the subject for its limits.
pub(crate) fn announce(args: &CheckArgs) {
    let source = FindingSource {
        subject: args.subject.clone(),
        seed: args.seed.unwrap_or_default(),
        reference: Default::default(),
        times: false,
        labels: Default::default(),
    };
    worker::describe(About { sources: vec![source], ..About::default() });
    worker::limit(args.deadline, None);
}

/// What exactly was tested, as far as it is known.
fn version(checked: &CheckPlan) -> String {
    let labels = checked.plan.labels.iter().map(|(key, value)| format!("{key} {value}"));
    let labels: Vec<String> = labels.collect();
    format!("{} ({})", checked.spec, labels.join(", "))
}

/// What is known of a run at its end.
fn describe(run: &mut Run, report: &Report) {
    run.seconds = report.stats.elapsed.as_secs_f64();
    run.complete = !report.stopped;
    run.stop = match (report.stopped, report.stats.complete) {
        (true, _) => "it was interrupted",
        (_, true) => "every meta-operation of every state within the bounds was tried",
        _ => "its limit of time, operations, states or findings was reached",
    }
    .to_owned();
    run.goals_missed = report.never.clone();
    for count in &mut run.counts {
        let about = match count.name.as_str() {
            "operations" => "executed on the subject and on the reference, and compared",
            "states" => "different trees",
            "trees_compared" => "whole trees compared",
            "remounts" => "times it was unmounted and mounted again",
            "fscks" => "times its checker looked at the disk",
            "inputs_and_outputs" => "kinds of arguments and answers of calls that occurred",
            _ => "",
        };
        count.about = about.to_owned();
    }
}

fn plan_text(checked: &CheckPlan, out: &Path, json: bool) -> Result<String> {
    let plan = &checked.plan;
    let value = json!({
        "subject": checked.spec.to_string(),
        "against": against(checked),
        "strategy": plan.explore.strategy.to_string(),
        "depth_max": plan.explore.depth_max,
        "moves": plan.explore.moves,
        "back": plan.explore.back.to_string(),
        "remount": plan.explore.remounts.map(|remounts| remounts.to_string()),
        "fsck_every": plan.explore.fsck_every,
        "seed": plan.seed,
        "ops_max": plan.ops_max,
        "budget_seconds": plan.budget.map(|budget| budget.as_secs_f64()),
        "out": shown(out),
        "labels": plan.labels,
        "config": plan.config,
        "reference": plan.reference,
    });
    if json {
        return Ok(format!("{value}\n"));
    }
    Ok(format!(
        "# The plan; nothing was executed, limits of the file system were not measured.\n{}",
        toml::to_string(&without_null(value))?
    ))
}

/// Who votes, as it can be typed.
fn against(checked: &CheckPlan) -> String {
    let rivals = checked.rivals.iter().map(|(spec, _)| spec.to_string());
    ["model".to_owned()].into_iter().chain(rivals).collect::<Vec<_>>().join(",")
}

/// TOML has no null: what is not limited is not there.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_null(value)))
            .collect(),
        other => other,
    }
}

/// What `--json` prints.
fn report_json(checked: &CheckPlan, report: &Report, run: &Run) -> Value {
    let stats = &report.stats;
    let seen_first = report.findings.iter().zip(&report.seen_first);
    let findings: Vec<Value> = seen_first
        .filter(|(finding, _)| run.findings.iter().any(|page| page.id == finding.id))
        .map(|(finding, seen_first)| {
            let recorded = finding.recorded();
            json!({
                "id": recorded.id,
                "class": recorded.class,
                "signature": recorded.signature,
                "ops": recorded.ops_minimal,
                "ops_before_shrinking": recorded.ops,
                "at_ops": seen_first.ops,
                "at_seconds": seen_first.seconds,
                "sightings": recorded.sightings,
                "runs": recorded.runs,
                "runs_reproduced": recorded.runs_reproduced,
                "vote": recorded.labels.get("vote"),
            })
        })
        .collect();
    json!({
        "subject": checked.spec.to_string(),
        "against": against(checked),
        "strategy": checked.plan.explore.strategy.to_string(),
        "ops": stats.ops,
        "meta_ops": stats.metas,
        "states": stats.states(),
        "states_known": stats.known,
        "states_open": stats.open,
        "depth": stats.depth,
        "complete": stats.complete,
        "restores": stats.restores,
        "sweeps": stats.sweeps,
        "routes": stats.routes,
        "fscks": stats.fscks,
        "trees_compared": stats.trees_compared,
        "remounts": stats.remounts,
        "episodes": stats.episodes,
        "findings": findings,
        "known": run.known,
        "no_longer_seen": run.no_longer_seen,
        "never": report.never,
        "goals": report.goals,
        "answers": stats.answers(),
        "structure": report.structure,
        "seconds": stats.elapsed.as_secs_f64(),
        "seed": checked.plan.seed,
        "reference": checked.plan.reference,
    })
}

/// What names the execution of a guest.
pub(crate) fn execution_text(execution: &Execution) -> String {
    let disk = execution.disk.map(|disk| format!(", disk {disk:016x}")).unwrap_or_default();
    let kernel = worker::in_guest().map_or("", |guest| &guest.kernel);
    let (seconds, digest) = (execution.clock_ns as f64 / 1e9, execution.digest);
    format!("guest {kernel}: execution {digest:016x}{disk}, its clock at {seconds:.6}\n")
}

/// The last lines, for people: verdict, amount, map, coverage, and where the rest is.
fn summary(checked: &CheckPlan, report: &Report, run: &Run, coverage: &str, out: &Path) -> String {
    let stats = &report.stats;
    let verdict = match run.findings.len() {
        0 if !run.known.is_empty() => "only known findings".to_owned(),
        0 => "every answer and every tree as expected".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    let (spec, seed) = (bold(&checked.spec.to_string()), checked.plan.seed);
    let mut text = format!("{spec}: {} (seed {seed})\n", bold(&verdict));
    text.push_str(&format!(
        "{} operations in {:.1} s ({}/s), {} trees compared, {} remounts, {} looks of the checker\n",
        grouped(stats.ops),
        stats.elapsed.as_secs_f64(),
        grouped(stats.rate() as u64),
        grouped(stats.trees_compared),
        grouped(stats.remounts),
        grouped(stats.fscks),
    ));
    let trees = grouped(stats.states() as u64);
    let states = match checked.plan.explore.strategy {
        Strategy::Walk => format!("{trees} different trees"),
        _ if stats.complete => {
            format!("{trees} different trees; everything within the bounds was tried")
        }
        _ => format!(
            "{trees} different trees, {} of them on the map ({} with something untried), depth {}",
            grouped(stats.known),
            grouped(stats.open),
            stats.depth
        ),
    };
    let never = match &report.never[..] {
        [] => "every goal was reached".to_owned(),
        never => format!("never reached: {}", shortened(never)),
    };
    text.push_str(&format!("{states}; {never}\n{coverage}"));
    text.push_str(&format!("report: fathom report {0}; as a page: --html FILE\n", shown(out)));
    // A clock that stands still but for waits has nothing to say about it.
    let has_own_clock = worker::in_guest().is_some_and(|guest| guest.virtual_clock);
    if !stats.investigating.is_zero() && !has_own_clock {
        let seconds = stats.investigating.as_secs_f64();
        text.push_str(&format!("running findings again and shrinking them took {seconds:.1} s\n"));
    }
    text
}

/// The first few of a list, and how many more there are.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 4;
    match names.len() {
        0..=SHOWN => names.join(", "),
        all => format!("{} and {} more", names[..SHOWN].join(", "), all - SHOWN),
    }
}
