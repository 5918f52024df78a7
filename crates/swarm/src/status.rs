//! A swarm at one moment, for people.

use std::collections::BTreeMap;
use std::time::Duration;

use fathom_record::swarm::{CoursePoint, SwarmStatus, TaskLine, TaskPhase, TaskTally};

use crate::coordinator::{Phase, TaskState, found};
use crate::directory::{SwarmDirectory, now_ms};
use crate::ended::Reason;
use crate::merge::read_run;
use crate::{Merged, SwarmError, merge};

/// Tasks that are shown one by one.
const LINES_MAX: usize = 200;

/// Points of the course that are shown.
const POINTS_MAX: usize = 600;

/// A task that says nothing for so long may hang.
const SILENT: Duration = Duration::from_secs(60);

pub(crate) fn tally(tasks: &BTreeMap<String, TaskState>) -> TaskTally {
    let mut tally = TaskTally::default();
    for state in tasks.values() {
        *match phase(state) {
            TaskPhase::Waiting => &mut tally.waiting,
            TaskPhase::Running => &mut tally.running,
            TaskPhase::Found => &mut tally.found,
            TaskPhase::Done => &mut tally.done,
            TaskPhase::Failed => &mut tally.failed,
        } += 1;
        tally.retries += u64::from(state.attempt.saturating_sub(1));
    }
    tally
}

fn phase(state: &TaskState) -> TaskPhase {
    match &state.phase {
        Phase::Waiting => TaskPhase::Waiting,
        Phase::Running => TaskPhase::Running,
        Phase::GivenUp(_) => TaskPhase::Failed,
        Phase::Over(ended) if ended.reason == Reason::Found => TaskPhase::Found,
        Phase::Over(_) => TaskPhase::Done,
    }
}

pub(crate) fn of(
    directory: &SwarmDirectory,
    engine: &str,
    used: Duration,
    tasks: &BTreeMap<String, TaskState>,
    course: &[CoursePoint],
    merged: &Merged,
) -> SwarmStatus {
    let mut shown: Vec<&TaskState> = tasks.values().collect();
    shown.sort_by_key(|state| (phase(state), state.task.number));
    shown.truncate(LINES_MAX);
    let every = course.len().div_ceil(POINTS_MAX).max(1);
    // The last point is always among them.
    let course = course.iter().rev().step_by(every).rev().copied().collect();
    let name = format!("a swarm of {}", count(tasks.len(), "task"));
    let mut run = merged.run(&format!("fathom swarm --on {engine}"), &name);
    let tally = tally(tasks);
    run.complete = tally.waiting + tally.running + tally.failed == 0;
    run.stop = format!("{} of {} tasks are over", tally.done + tally.found, tally.total());
    SwarmStatus {
        engine: engine.to_owned(),
        active: directory.is_coordinated(),
        seconds: used.as_secs_f64(),
        tally,
        tasks: shown.into_iter().map(|state| line(directory, state)).collect(),
        course,
        run,
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn line(directory: &SwarmDirectory, state: &TaskState) -> TaskLine {
    let name = state.task.name();
    let out = directory.attempt(&name, state.attempt);
    let run = read_run(&out).ok().map(|(run, _)| run);
    let runner = directory.runner(&name, state.attempt);
    let started = runner.as_ref().map_or(0, |runner| runner.started_ms);
    let node = runner.map(|runner| runner.node).unwrap_or_default();
    let (seconds, remark) = match &state.phase {
        Phase::Waiting => (0.0, String::new()),
        Phase::Running if started == 0 => (0.0, "waits for its turn".to_owned()),
        Phase::Running => (now_ms().saturating_sub(started) as f64 / 1e3, silence(&out)),
        Phase::Over(ended) | Phase::GivenUp(ended) => {
            let told = if ended.told.is_empty() { "" } else { ": " };
            (ended.seconds, format!("{}{told}{}", ended.reason, ended.told))
        }
    };
    TaskLine {
        number: state.task.number,
        command: state.task.command_line(),
        phase: phase(state),
        attempt: state.attempt,
        node,
        seconds,
        operations: run.as_ref().and_then(|run| run.count("operations")).unwrap_or(0),
        findings: run.as_ref().map_or(0, |run| run.findings.len() as u64),
        remark,
    }
}

/// Says so if a task that runs has written nothing for long.
fn silence(out: &std::path::Path) -> String {
    let written = std::fs::metadata(out.join(fathom_record::run::FILE)).and_then(|m| m.modified());
    match written.ok().and_then(|at| at.elapsed().ok()) {
        Some(since) if since > SILENT => format!("silent for {} s", since.as_secs()),
        _ => String::new(),
    }
}

impl SwarmDirectory {
    /// The swarm in this directory, whether a coordinator works on it or not, with its united result.
    ///
    /// # Errors
    /// If there is none.
    pub fn status(&self) -> Result<(SwarmStatus, Merged), SwarmError> {
        let (plan, state) = (self.plan()?, self.state()?);
        let tasks = self.tasks()?.into_iter();
        let tasks = tasks.map(|task| (task.name(), found(self, task, plan.limits.retries)));
        let tasks: BTreeMap<String, TaskState> = tasks.collect();
        let merged = merge(&[self.path().join("tasks")]);
        let used = Duration::from_millis(state.used_ms);
        let status = of(self, &state.engine, used, &tasks, &self.course::<CoursePoint>(), &merged);
        Ok((status, merged))
    }
}
