//! Brings every task of a swarm to its end.
//!
//! The coordinator holds nothing that is not in the directory: it can be killed at any moment, and started
//! again. Tasks go on meanwhile, and are found again by their locks (on this machine) or by their engine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fathom_record::swarm::{CoursePoint, SwarmStatus};

use crate::directory::{SwarmDirectory, SwarmState};
use crate::diversify::Tasks;
use crate::ended::{Ended, Reason};
use crate::engine::{Engine, Order, Seen};
use crate::plan::Plan;
use crate::{Merged, SwarmError, Task, merge, status};

/// Longest time between two looks at the tasks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Shortest time between two results; it grows with the time that uniting takes.
const UNITE_EVERY: Duration = Duration::from_secs(2);

/// Uniting may take this part of the time.
const UNITE_SHARE: u32 = 20;

/// Time between two questions to an engine about attempts that say nothing.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Time for what still runs when a swarm ends.
const GRACE: Duration = Duration::from_secs(25);

/// Longest time before a task that used up its memory is started again.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// An engine that does not answer for so long is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Receives what a coordinator does.
pub trait Watcher {
    /// Something happened that a person wants to know.
    fn event(&mut self, text: &str);

    /// The swarm at this moment.
    fn status(&mut self, status: &SwarmStatus, merged: &Merged);

    /// Whether the end is asked for.
    fn wants_the_end(&self) -> bool;
}

/// What a coordinator knows of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskState {
    pub(crate) task: Task,
    /// The last attempt, 0 if there was none.
    pub(crate) attempt: u32,
    pub(crate) phase: Phase,
    /// Attempts that failed.
    failures: u32,
    /// It is not started again before this.
    not_before: Option<Instant>,
}

/// Where a task is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    Waiting,
    Running,
    Over(Ended),
    GivenUp(Ended),
}

/// Works on a swarm until all tasks are over.
pub struct Coordinator<'a> {
    directory: &'a SwarmDirectory,
    plan: Plan,
    engine: Box<dyn Engine + 'a>,
    watcher: &'a mut dyn Watcher,
    tasks: BTreeMap<String, TaskState>,
    /// Tasks by state, so that nobody has to look at all of them.
    waiting: BTreeSet<String>,
    running: BTreeSet<String>,
    state: SwarmState,
    began: Instant,
    used_before: Duration,
    engine_answered: Instant,
    watched: Instant,
    course: Vec<CoursePoint>,
    /// What runs is being ended.
    ending: bool,
}

impl<'a> Coordinator<'a> {
    /// Reads everything that is known of a swarm.
    ///
    /// # Errors
    /// If something is missing.
    pub fn new(
        directory: &'a SwarmDirectory,
        engine: Box<dyn Engine + 'a>,
        watcher: &'a mut dyn Watcher,
    ) -> Result<Coordinator<'a>, SwarmError> {
        let (plan, state) = (directory.plan()?, directory.state()?);
        let used_before = Duration::from_millis(state.used_ms);
        let mut coordinator = Coordinator {
            directory,
            plan,
            engine,
            watcher,
            tasks: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
            state,
            began: Instant::now(),
            used_before,
            engine_answered: Instant::now(),
            watched: Instant::now(),
            course: directory.course(),
            ending: false,
        };
        coordinator.take_tasks()?;
        Ok(coordinator)
    }

    /// Takes over tasks that it does not know yet.
    fn take_tasks(&mut self) -> Result<(), SwarmError> {
        for task in self.directory.tasks()? {
            let name = task.name();
            if !self.tasks.contains_key(&name) {
                let state = found(self.directory, task, self.plan.limits.retries);
                self.set(&name, state);
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &str, state: TaskState) {
        self.waiting.remove(name);
        self.running.remove(name);
        match state.phase {
            Phase::Waiting => drop(self.waiting.insert(name.to_owned())),
            Phase::Running => drop(self.running.insert(name.to_owned())),
            Phase::Over(_) | Phase::GivenUp(_) => {}
        }
        self.tasks.insert(name.to_owned(), state);
    }

    fn used(&self) -> Duration {
        self.used_before + self.began.elapsed()
    }

    /// Works until all tasks are over, the budget is used or the end is asked for. Whether everything is
    /// over.
    ///
    /// # Errors
    /// If the engine or the directory fails for good. What runs goes on, and can be found again.
    pub fn run(mut self) -> Result<Merged, SwarmError> {
        let (mut united, mut pause) = (None::<Instant>, UNITE_EVERY);
        let mut size = 0;
        let end = loop {
            if self.directory.is_stopping() || self.watcher.wants_the_end() {
                break Some(Reason::Stopped);
            }
            if self.plan.budget.is_some_and(|budget| self.used() > budget) {
                break Some(Reason::Budget);
            }
            let length = std::fs::metadata(self.directory.path().join("tasks.jsonl"));
            let length = length.map_or(0, |meta| meta.len());
            if length != size {
                size = length;
                self.take_tasks()?;
            }
            self.look()?;
            self.start()?;
            if united.is_none_or(|at| at.elapsed() >= pause) {
                let began = Instant::now();
                self.unite()?;
                pause = UNITE_EVERY.max(began.elapsed() * UNITE_SHARE);
                united = Some(Instant::now());
            }
            if self.waiting.is_empty()
                && self.running.is_empty()
                && self.plan.tasks_number().is_some()
            {
                break None;
            }
            self.engine.wait(LOOK_EVERY);
        };
        if let Some(reason) = end {
            self.end(reason)?;
        }
        self.unite()
    }

    /// Looks which tasks have ended.
    fn look(&mut self) -> Result<(), SwarmError> {
        let running: Vec<String> = self.running.iter().cloned().collect();
        let mut silent = Vec::new();
        for name in running {
            let attempt = self.tasks[&name].attempt;
            match self.directory.ended(&name, attempt) {
                Some(ended) => self.over(&name, ended),
                None => silent.push(name),
            }
        }
        if silent.is_empty() || self.watched.elapsed() < WATCH_EVERY {
            return Ok(());
        }
        self.watched = Instant::now();
        match self.engine.watch(&silent) {
            Ok(seen) => {
                self.engine_answered = Instant::now();
                for (name, seen) in seen {
                    if let Seen::Gone(reason, told) = seen {
                        self.lost(&name, reason, told)?;
                    }
                }
                Ok(())
            }
            Err(error @ SwarmError::Hopeless(_)) => {
                // Nothing is left half started; that it cannot be ended is the smaller news.
                let _ = self.engine.stop();
                Err(error)
            }
            Err(error) if self.engine_answered.elapsed() > PATIENCE => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// An attempt is gone without a word: says so in its place, unless it speaks after all.
    fn lost(&mut self, name: &str, reason: Reason, told: String) -> Result<(), SwarmError> {
        let failed = |error| SwarmError::io(&self.directory.task(name), "lock it", error);
        let Some(_lock) = self.directory.lock_task(name).map_err(failed)? else { return Ok(()) };
        let attempt = self.tasks[name].attempt;
        let ended = self.directory.ended(name, attempt).unwrap_or_else(|| {
            let runner = self.directory.runner(name, attempt);
            let reason = match reason {
                _ if self.ending => Reason::Stopped,
                // Whoever was to start it is gone: that is nobody's failure.
                Reason::Lost if runner.is_none() => Reason::Stopped,
                reason => reason,
            };
            let started = runner.as_ref().map_or(0, |runner| runner.started_ms);
            let now = crate::directory::now_ms();
            let seconds = if started == 0 { 0.0 } else { now.saturating_sub(started) as f64 / 1e3 };
            let node = runner.map(|runner| runner.node).unwrap_or_default();
            let kept_by = String::new();
            Ended { reason, code: None, told, seconds, memory_bytes: None, node, kept_by }
        });
        self.directory.end(name, attempt, &ended)?;
        self.over(name, ended);
        Ok(())
    }

    /// Takes note of an end.
    fn over(&mut self, name: &str, ended: Ended) {
        let Some(state) = self.tasks.get(name) else { return };
        let mut next = after(state, ended.clone(), self.plan.limits.retries);
        if ended.reason == Reason::Memory {
            next.not_before = Some(Instant::now() + pause(next.failures));
        }
        if !ended.reason.is_final() && !ended.reason.is_wanted() {
            let then = match next.phase {
                Phase::Waiting => "it is started again",
                _ => "it is given up",
            };
            let told =
                if ended.told.is_empty() { String::new() } else { format!(" ({})", ended.told) };
            self.watcher.event(&format!(
                "task {} {}{told} on {} after {:.1} s, attempt {}: {then}",
                state.task.number, ended.reason, ended.node, ended.seconds, state.attempt
            ));
        }
        self.set(name, next);
    }

    /// Starts what waits, as far as there is room.
    fn start(&mut self) -> Result<(), SwarmError> {
        let room = self.engine.capacity().saturating_sub(self.running.len());
        let due = self.due(room);
        if due.len() < room && self.plan.tasks_number().is_none() {
            self.make_tasks(room - due.len())?;
        }
        let names = self.due(room);
        let mut orders = Vec::new();
        for name in &names {
            let state = &self.tasks[name];
            let order = Order { task: state.task.clone(), attempt: state.attempt + 1 };
            self.directory.prepare(&order.task, &self.plan.limits, order.attempt)?;
            orders.push(order);
        }
        if orders.is_empty() {
            return Ok(());
        }
        self.engine.start(&orders, &self.plan.limits)?;
        for (name, order) in names.iter().zip(orders) {
            let state = self.tasks[name].clone();
            self.set(name, TaskState { attempt: order.attempt, phase: Phase::Running, ..state });
        }
        Ok(())
    }

    /// Tasks that wait and may be started now, so many at most.
    fn due(&self, room: usize) -> Vec<String> {
        let now = Instant::now();
        let is_due = |name: &&String| self.tasks[*name].not_before.is_none_or(|at| at <= now);
        self.waiting.iter().filter(is_due).take(room).cloned().collect()
    }

    /// Makes more tasks of a plan that only the budget limits.
    fn make_tasks(&mut self, count: usize) -> Result<(), SwarmError> {
        let plan = self.plan.clone();
        self.directory.add_tasks(|tasks| {
            let all = Tasks::new(&plan).ok().into_iter().flatten();
            all.skip(tasks.len()).take(count).collect()
        })?;
        self.take_tasks()
    }

    /// Ends what runs, and waits for what it still says.
    fn end(&mut self, reason: Reason) -> Result<(), SwarmError> {
        self.ending = true;
        // The runners on all machines see it.
        self.directory.ask_to_stop(true)?;
        self.watcher.event(match reason {
            Reason::Budget => "the budget is used: what runs is ended",
            _ => "stopping: what runs is ended, its results are kept",
        });
        self.engine.stop()?;
        let began = Instant::now();
        while !self.running.is_empty() && began.elapsed() < GRACE {
            self.look()?;
            self.engine.wait(LOOK_EVERY);
        }
        if reason == Reason::Budget {
            self.directory.ask_to_stop(false)?;
        }
        Ok(())
    }

    /// Unites the results so far, keeps them, and shows them.
    fn unite(&mut self) -> Result<Merged, SwarmError> {
        let merged = merge(&[self.directory.path().join("tasks")]);
        let used = self.used();
        let tally = status::tally(&self.tasks);
        let point = CoursePoint {
            seconds: used.as_secs_f64(),
            running: tally.running,
            over: tally.done + tally.found + tally.failed,
            operations: merged.count("operations"),
            states: merged.states_total().states,
            coverage: merged.coverage.as_ref().map_or(0, |report| report.partitions_hit as u64),
            findings: merged.findings.len() as u64,
        };
        self.directory.log(&point);
        self.course.push(point);
        let status = status::of(
            self.directory,
            &self.state.engine,
            used,
            &self.tasks,
            &self.course,
            &merged,
        );
        merged.write(&status.run, &self.directory.path().join("united"))?;
        self.watcher.status(&status, &merged);
        self.state.used_ms = used.as_millis() as u64;
        self.directory.write_state(&self.state)?;
        Ok(merged)
    }
}

/// Time before a task that used up its memory is started again: 1, 2, 4 … s. It will do the same, and while it fills
/// its memory and the kernel empties it again, its neighbours have less of the machine.
fn pause(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.saturating_sub(1).min(8)).min(PAUSE_MAX)
}

/// What the directory says of a task.
pub(crate) fn found(directory: &SwarmDirectory, task: Task, retries: u32) -> TaskState {
    let name = task.name();
    let fresh =
        TaskState { task, attempt: 0, phase: Phase::Waiting, failures: 0, not_before: None };
    let Some((last, ended)) = directory.last_attempt(&name) else { return fresh };
    let mut state = fresh;
    for attempt in 1..last {
        if let Some(ended) = directory.ended(&name, attempt) {
            state = after(&TaskState { attempt, ..state }, ended, retries);
        }
    }
    state.attempt = last;
    match ended {
        Some(ended) => after(&state, ended, retries),
        None => TaskState { phase: Phase::Running, ..state },
    }
}

/// What an end means for a task.
fn after(state: &TaskState, ended: Ended, retries: u32) -> TaskState {
    let failed = !ended.reason.is_final() && !ended.reason.is_wanted();
    let failures = state.failures + u32::from(failed);
    let phase = match ended.reason {
        reason if reason.is_final() => Phase::Over(ended),
        reason if reason.is_wanted() => Phase::Waiting,
        _ if failures <= retries => Phase::Waiting,
        _ => Phase::GivenUp(ended),
    };
    TaskState { phase, failures, ..state.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_without_memory_waits_longer_each_time() {
        let seconds: Vec<u64> = (1..8).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pause(u32::MAX), PAUSE_MAX);
    }
}
