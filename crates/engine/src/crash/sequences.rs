//! A check of given workloads: each is executed on a new file system, the power cut everywhere.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use fathom_block::DiskFileSystem;
use fathom_core::{HarnessFault, Op};
use serde::{Deserialize, Serialize};

use super::run::{CrashError, CrashPlan, CrashReport, Watcher, WorkloadCounts, conclude};
use super::system::CrashSystem;
use crate::search::{self, Observer, Progress, Stop};

/// Workloads after which a check is saved at the latest.
const SAVED_EVERY: u64 = 50;

/// What an interrupted check goes on from.
#[derive(Serialize, Deserialize)]
struct Saved {
    /// What must be the same: subject, configuration, source of the workloads.
    label: String,
    counts: WorkloadCounts,
    /// Crash states so far, equal ones included.
    enumerated: u64,
    ledger: Vec<u8>,
    prefixes: Vec<u8>,
}

/// Checks a subject with workloads. `source` names them: an interrupted check can only go on with the
/// same ones.
///
/// # Errors
/// If the plan cannot work or the harness fails.
pub fn crash_sequences(
    subject: &dyn DiskFileSystem,
    plan: &CrashPlan,
    source: &str,
    workloads: &mut dyn Iterator<Item = Vec<Op>>,
    observer: &mut dyn fathom_record::Observer,
) -> Result<CrashReport, CrashError> {
    plan.config.validate()?;
    let started = Instant::now();
    let system = CrashSystem::on(Box::new(subject), &plan.config)?.supervised(&plan.supervision);
    // Whoever goes on with a check has whole workloads behind it.
    let until = plan.time_max.filter(|_| plan.checkpoint.is_none()).map(|time| started + time);
    let system = system.until(until);
    let label = label(subject, plan, source);
    let mut counts = resume(&system, plan, &label)?;
    let mut watcher = Watcher::new(&system, subject, plan, observer);
    let run = Run { system: &system, plan, label, started };
    // What was done before the interruption is not done again.
    let rest = workloads.skip(counts.workloads as usize);
    let stop = run.all(rest, &mut counts, &mut watcher);
    // Whatever comes next: what was found is told.
    watcher.tell_new();
    let told = watcher.told;
    run.save(&counts)?;
    let report = search::Report {
        stop: stop?,
        states: counts.workloads,
        transitions: counts.ops,
        states_by_depth: Vec::new(),
        states_open: 0,
        discoveries: Vec::new(),
        never: Vec::new(),
        omitted: 0.0,
        visited_bytes: 0,
        links_bytes: 0,
        elapsed: run.started.elapsed(),
    };
    let report = conclude(&system, subject, plan, &told, report, observer)?;
    Ok(CrashReport { workloads: Some(counts), ..report })
}

/// Names a check: what an interrupted one must have in common with the one that goes on.
fn label(subject: &dyn DiskFileSystem, plan: &CrashPlan, source: &str) -> String {
    let config = serde_json::to_string(&plan.config).expect("plain data");
    format!("crash {} {} {source} {config}", subject.name(), subject.version())
}

/// Takes over what an interrupted check has left, if the plan says so.
fn resume(
    system: &CrashSystem<'_>,
    plan: &CrashPlan,
    label: &str,
) -> Result<WorkloadCounts, HarnessFault> {
    let Some((path, true)) = &plan.checkpoint else { return Ok(WorkloadCounts::default()) };
    let wrong = |what: &str| HarnessFault::new(format!("going on from {}", path.display()), what);
    let bytes = std::fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    let saved: Saved = postcard::from_bytes(&bytes)
        .map_err(|_| wrong("it is damaged, or of another version: start without --resume"))?;
    if saved.label != label {
        return Err(wrong("it belongs to another check: give the same arguments as for that one"));
    }
    if !system.ledger.load(&saved.ledger) || !system.prefixes.load(&saved.prefixes) {
        return Err(wrong("it is damaged: start without --resume"));
    }
    system.enumerated_before(saved.enumerated);
    Ok(saved.counts)
}

struct Run<'a> {
    system: &'a CrashSystem<'a>,
    plan: &'a CrashPlan,
    label: String,
    started: Instant,
}

impl Run<'_> {
    /// Executes the workloads one after the other; why it ended.
    fn all(
        &self,
        workloads: impl Iterator<Item = Vec<Op>>,
        counts: &mut WorkloadCounts,
        watcher: &mut Watcher<'_, '_>,
    ) -> Result<Stop, HarnessFault> {
        let mut saved_at = Instant::now();
        for ops in workloads {
            if let Some(stop) = self.stop(counts) {
                return Ok(stop);
            }
            let followed = self.system.follow(&ops);
            if let Some(fault) = self.system.fault() {
                return Err(fault);
            }
            counts.workloads += 1;
            let is_cut_short = self.system.is_cut_short();
            counts.not_followed += u64::from(!followed && !is_cut_short);
            counts.cut_short += u64::from(is_cut_short);
            counts.ops += ops.len() as u64;
            counts.left_out += self.system.take_left_out();
            let progress = Progress {
                states: counts.workloads,
                transitions: counts.ops,
                elapsed: self.started.elapsed(),
                ..Progress::default()
            };
            if watcher.progress(&progress) == ControlFlow::Break(()) {
                return Ok(Stop::Asked);
            }
            if is_cut_short {
                return Ok(Stop::Time);
            }
            // In a guest whose clock stands still while it computes, only the workloads tell the time.
            let many = counts.workloads.is_multiple_of(SAVED_EVERY);
            if many || saved_at.elapsed() >= self.plan.checkpoint_every {
                self.save(counts)?;
                saved_at = Instant::now();
            }
        }
        Ok(Stop::Exhausted)
    }

    fn stop(&self, counts: &WorkloadCounts) -> Option<Stop> {
        let late = self.plan.time_max.is_some_and(|max| self.started.elapsed() >= max);
        let many = self.plan.states_max.is_some_and(|max| counts.workloads >= max);
        if late { Some(Stop::Time) } else { many.then_some(Stop::States) }
    }

    /// Saves where the check is, if the plan says so.
    fn save(&self, counts: &WorkloadCounts) -> Result<(), HarnessFault> {
        let Some((path, _)) = &self.plan.checkpoint else { return Ok(()) };
        let saved = Saved {
            label: self.label.clone(),
            counts: *counts,
            enumerated: self.system.enumerated(),
            ledger: self.system.ledger.save(),
            prefixes: self.system.prefixes.save(),
        };
        let bytes = postcard::to_stdvec(&saved).expect("plain data");
        write(path, &bytes)
            .map_err(|error| HarnessFault::new(format!("writing {}", path.display()), error))
    }
}

/// Replaces a file by one that is complete.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let new = path.with_extension("new");
    std::fs::write(&new, bytes)?;
    std::fs::rename(new, path)
}
