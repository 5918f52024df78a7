//! This machine: one runner process per task, as many as fit.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::process::{Pid, Signal, kill_process};

use super::{Engine, Order, Seen};
use crate::directory::SwarmDirectory;
use crate::ended::Reason;
use crate::plan::Limits;
use crate::{SwarmError, ends};

/// Runs tasks on this machine.
pub struct Local {
    directory: SwarmDirectory,
    program: PathBuf,
    at_once: usize,
    /// The runners that this process has started.
    runners: BTreeMap<String, Child>,
    /// Those of them whose end has not been heard of.
    ends: BTreeMap<String, OwnedFd>,
}

impl Local {
    /// Takes as many tasks as have processors and memory here, or as many as the plan says.
    ///
    /// # Errors
    /// If not even one task fits.
    pub fn new(
        directory: &SwarmDirectory,
        program: PathBuf,
        limits: &Limits,
    ) -> Result<Local, SwarmError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let memory = memory_bytes();
        if limits.cpus > cores {
            let cpus = limits.cpus;
            return Err(SwarmError::Other(format!(
                "limits.cpus = {cpus}, but this machine has {cores}: give less, or another --on"
            )));
        }
        if limits.memory > memory {
            return Err(SwarmError::Other(format!(
                "limits.memory is {} MiB, but this machine has {} MiB: give less, or another --on",
                limits.memory >> 20,
                memory >> 20
            )));
        }
        let by_memory = (memory / limits.memory).max(1) as usize;
        let fits = ((cores / limits.cpus) as usize).clamp(1, by_memory);
        let at_once = limits.at_once.unwrap_or(fits);
        let directory = directory.clone();
        Ok(Local { directory, program, at_once, runners: BTreeMap::new(), ends: BTreeMap::new() })
    }
}

/// The memory of this machine.
fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

impl Engine for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn capacity(&self) -> usize {
        self.at_once
    }

    fn start(&mut self, orders: &[Order], _: &Limits) -> Result<(), SwarmError> {
        for order in orders {
            let name = order.task.name();
            let log = self.directory.attempt(&name, order.attempt).join("runner.log");
            let failed = |error| SwarmError::io(&log, "start a task", error);
            let log = fs::File::create(&log).map_err(failed)?;
            let mut command = Command::new(&self.program);
            command
                .args(["swarm", "run-task", &name, &order.attempt.to_string(), "--out"])
                .arg(self.directory.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                // What ends the coordinator does not end its tasks.
                .process_group(0);
            let child = command
                .spawn()
                .map_err(|error| SwarmError::io(&self.program, "start it", error))?;
            self.ends.extend(ends::of(&child).map(|end| (name.clone(), end)));
            self.runners.insert(name, child);
        }
        Ok(())
    }

    fn watch(&mut self, names: &[String]) -> Result<BTreeMap<String, Seen>, SwarmError> {
        let mut seen = BTreeMap::new();
        for name in names {
            let state = match self.runners.get_mut(name).map(Child::try_wait) {
                Some(Ok(None)) => Seen::Running,
                Some(Ok(Some(status))) => {
                    self.runners.remove(name);
                    let reason = match status.signal() {
                        Some(_) => Reason::Lost,
                        None => Reason::Failed,
                    };
                    Seen::Gone(reason, format!("its runner ended: {status}"))
                }
                Some(Err(error)) => Seen::Gone(Reason::Failed, error.to_string()),
                // Started by a coordinator that is gone.
                None if self.directory.is_running(name) => Seen::Running,
                None => Seen::Gone(Reason::Lost, "its runner is gone".to_owned()),
            };
            seen.insert(name.clone(), state);
        }
        Ok(seen)
    }

    fn wait(&mut self, at_most: Duration) {
        let ends: Vec<BorrowedFd<'_>> = self.ends.values().map(|end| end.as_fd()).collect();
        let mut over = ends::wait(&ends, at_most).into_iter();
        let runners = &mut self.runners;
        self.ends.retain(|name, _| {
            let is_over = over.next().unwrap_or(false);
            if let Some(runner) = runners.get_mut(name).filter(|_| is_over) {
                // Nothing is left of it in the list of processes; `watch` asks again, and is told the same.
                let _ = runner.try_wait();
            }
            !is_over
        });
    }

    fn stop(&mut self) -> Result<(), SwarmError> {
        for child in self.runners.values_mut() {
            // The number of one that has ended may be somebody else's by now.
            if let Ok(None) = child.try_wait() {
                let _ = kill_process(Pid::from_child(child), Signal::TERM);
            }
        }
        Ok(())
    }
}
