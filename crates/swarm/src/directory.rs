//! The directory of a swarm: everything that a coordinator must know when it is started again.
//!
//! ```text
//! plan.toml            the plan
//! swarm.json           engine, start, time used
//! tasks.jsonl          the tasks, one per line
//! stop                 present while the swarm is asked to stop
//! tasks/NAME/          a task: `task.json`, `lock`
//! tasks/NAME/attempt-1/  a run directory like any other, with `runner.json`, `output.log` and, once it is
//!                      over, `ended.json`
//! united/              the result
//! index.html           the page
//! ```
//!
//! Whether a task is over is decided by one file that appears once (`ended.json`), and who may make it by
//! one lock: whoever runs a task holds it, and so does whoever declares an attempt lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ended::Ended;
use crate::merge::replace;
use crate::plan::{Limits, Plan};
use crate::{SwarmError, Task};

/// The directory of a swarm.
#[derive(Clone, Debug)]
pub struct SwarmDirectory {
    path: PathBuf,
}

/// What is known of a swarm besides its plan and its tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwarmState {
    /// The version of the format.
    pub format: u32,
    /// The engine.
    pub engine: String,
    /// Its start, in milliseconds since 1970.
    pub started_ms: u64,
    /// Time during which a coordinator worked on it, in milliseconds.
    pub used_ms: u64,
    /// The program that started it.
    pub program: String,
}

/// What a task needs to know to be run anywhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskFile {
    pub(crate) task: Task,
    pub(crate) limits: Limits,
}

/// Who runs an attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runner {
    /// The machine.
    pub(crate) node: String,
    /// Its start, in milliseconds since 1970.
    pub(crate) started_ms: u64,
}

/// A lock that its holder keeps until it is dropped or ends. It is given back explicitly: a process that
/// another thread is just starting has the file open, too, until it executes its program.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The end of the process gives it back in any case.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Why there is no second coordinator.
const BUSY: &str = "a coordinator works on it already: see `fathom swarm status`";

impl SwarmDirectory {
    /// A directory that may not be there yet.
    pub fn new(path: &Path) -> SwarmDirectory {
        SwarmDirectory { path: path.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a swarm in it.
    pub fn exists(&self) -> bool {
        self.path.join("swarm.json").exists()
    }

    /// Makes the directory of a new swarm with its first tasks. If that fails half way, nothing of it is left.
    ///
    /// # Errors
    /// If there is one already, or nothing can be written.
    pub fn create(&self, plan: &Plan, engine: &str, tasks: &[Task]) -> Result<(), SwarmError> {
        if self.exists() {
            return Err(SwarmError::Other(format!(
                "{}: there is a swarm already: `fathom swarm resume --out {0}` goes on with it, or give \
                 another --out",
                self.path.display()
            )));
        }
        let was_there = self.path.exists();
        let made = self.make(plan, engine, tasks);
        if made.is_err() {
            // What cannot be removed is no swarm either: what makes it one is written last.
            let _ = match was_there {
                true => {
                    let files = ["tasks.jsonl", "plan.toml", "swarm.json"];
                    files.into_iter().for_each(|name| drop(fs::remove_file(self.path.join(name))));
                    fs::remove_dir(self.path.join("tasks"))
                }
                false => fs::remove_dir_all(&self.path),
            };
        }
        made
    }

    fn make(&self, plan: &Plan, engine: &str, tasks: &[Task]) -> Result<(), SwarmError> {
        fs::create_dir_all(self.path.join("tasks")).map_err(|e| self.failed("make it", e))?;
        self.write("tasks.jsonl", lines(tasks.iter()).as_bytes())?;
        self.write("plan.toml", plan.to_toml().as_bytes())?;
        self.write_state(&SwarmState {
            format: 1,
            engine: engine.to_owned(),
            started_ms: now_ms(),
            used_ms: 0,
            program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
        })
    }

    /// The plan.
    ///
    /// # Errors
    /// If there is none.
    pub fn plan(&self) -> Result<Plan, SwarmError> {
        let path = self.path.join("plan.toml");
        let text = fs::read_to_string(&path).map_err(|_| self.missing())?;
        Ok(Plan::parse(&text)?)
    }

    /// The state.
    ///
    /// # Errors
    /// If there is none.
    pub fn state(&self) -> Result<SwarmState, SwarmError> {
        read_json(&self.path.join("swarm.json")).ok_or_else(|| self.missing())
    }

    pub(crate) fn write_state(&self, state: &SwarmState) -> Result<(), SwarmError> {
        self.write("swarm.json", &serde_json::to_vec(state).unwrap_or_default())
    }

    fn missing(&self) -> SwarmError {
        let path = self.path.display();
        SwarmError::Other(format!(
            "{path}: there is no swarm: give the --out of `fathom swarm PLAN`"
        ))
    }

    fn failed(&self, what: &'static str, error: io::Error) -> SwarmError {
        SwarmError::io(&self.path, what, error)
    }

    /// Writes a file of it.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), SwarmError> {
        let path = self.path.join(name);
        replace(&path, bytes).map_err(|error| SwarmError::io(&path, "write it", error))
    }

    /// Makes this process the coordinator.
    ///
    /// # Errors
    /// If another one is.
    pub fn coordinate(&self) -> Result<Lock, SwarmError> {
        let lock = patient_lock(&self.path.join("lock")).map_err(|e| self.failed("lock it", e))?;
        lock.ok_or_else(|| SwarmError::Other(format!("{}: {BUSY}", self.path.display())))
    }

    /// Whether a coordinator works on it.
    pub fn is_coordinated(&self) -> bool {
        matches!(try_lock(&self.path.join("lock")), Ok(None))
    }

    /// All tasks. A line that was cut off by the end of its writer is not there.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn tasks(&self) -> Result<Vec<Task>, SwarmError> {
        let file = File::open(self.path.join("tasks.jsonl")).map_err(|_| self.missing())?;
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        Ok(lines.filter_map(|line| serde_json::from_str(&line).ok()).collect())
    }

    /// Adds tasks that follow those that there are. Only one process does that at a time.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add_tasks(
        &self,
        make: impl FnOnce(&[Task]) -> Vec<Task>,
    ) -> Result<Vec<Task>, SwarmError> {
        let path = self.path.join("tasks.jsonl");
        let failed = |error| SwarmError::io(&path, "add tasks", error);
        let _lock = wait_lock(&self.path.join("tasks.lock")).map_err(failed)?;
        let tasks = self.tasks()?;
        let made = make(&tasks);
        // Whole anew: a line that was cut off would swallow the next one.
        self.write("tasks.jsonl", lines(tasks.iter().chain(&made)).as_bytes())?;
        Ok(made)
    }

    /// Asks for the end, or takes that back.
    ///
    /// # Errors
    /// If the file cannot be made or removed.
    pub fn ask_to_stop(&self, stop: bool) -> Result<(), SwarmError> {
        let path = self.path.join("stop");
        match stop {
            true => self.write("stop", b""),
            false => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(SwarmError::io(&path, "remove it", error))
                }
                _ => Ok(()),
            },
        }
    }

    /// Whether the end is asked for.
    pub fn is_stopping(&self) -> bool {
        self.path.join("stop").exists()
    }

    /// The directory of a task.
    pub fn task(&self, name: &str) -> PathBuf {
        self.path.join("tasks").join(name)
    }

    /// The directory of an attempt.
    pub fn attempt(&self, name: &str, attempt: u32) -> PathBuf {
        self.task(name).join(format!("attempt-{attempt}"))
    }

    /// Prepares an attempt: whoever runs it finds everything there.
    pub(crate) fn prepare(
        &self,
        task: &Task,
        limits: &Limits,
        attempt: u32,
    ) -> Result<(), SwarmError> {
        let (directory, name) = (self.attempt(&task.name(), attempt), task.name());
        let failed = |error| SwarmError::io(&directory, "make it", error);
        fs::create_dir_all(&directory).map_err(failed)?;
        let file = TaskFile { task: task.clone(), limits: limits.clone() };
        let path = self.task(&name).join("task.json");
        let text = serde_json::to_vec(&file).unwrap_or_default();
        replace(&path, &text).map_err(|error| SwarmError::io(&path, "write it", error))
    }

    /// The number of the last attempt, and its end if it has one.
    pub fn last_attempt(&self, name: &str) -> Option<(u32, Option<Ended>)> {
        let entries = fs::read_dir(self.task(name)).ok()?.flatten();
        let numbers = entries.filter_map(|entry| {
            entry.file_name().to_str()?.strip_prefix("attempt-")?.parse::<u32>().ok()
        });
        let last = numbers.max()?;
        Some((last, self.ended(name, last)))
    }

    /// The end of an attempt, if it is over.
    pub fn ended(&self, name: &str, attempt: u32) -> Option<Ended> {
        read_json(&self.attempt(name, attempt).join("ended.json"))
    }

    pub(crate) fn runner(&self, name: &str, attempt: u32) -> Option<Runner> {
        read_json(&self.attempt(name, attempt).join("runner.json"))
    }

    /// Whether somebody on this machine runs the task.
    pub(crate) fn is_running(&self, name: &str) -> bool {
        matches!(try_lock(&self.task(name).join("lock")), Ok(None))
    }

    /// Takes the right to run a task, or to say that it is over.
    pub(crate) fn lock_task(&self, name: &str) -> io::Result<Option<Lock>> {
        patient_lock(&self.task(name).join("lock"))
    }

    /// Says that an attempt is over, unless its runner has done so.
    pub(crate) fn end(&self, name: &str, attempt: u32, ended: &Ended) -> Result<(), SwarmError> {
        let path = self.attempt(name, attempt).join("ended.json");
        if path.exists() {
            return Ok(());
        }
        let text = serde_json::to_vec(ended).unwrap_or_default();
        replace(&path, &text).map_err(|error| SwarmError::io(&path, "write it", error))
    }

    /// Adds a line to the course of the swarm. That it is missing is no reason to stop.
    pub(crate) fn log(&self, line: &impl Serialize) {
        let file =
            OpenOptions::new().append(true).create(true).open(self.path.join("course.jsonl"));
        if let (Ok(mut file), Ok(text)) = (file, serde_json::to_string(line)) {
            let _ = writeln!(file, "{text}");
        }
    }

    /// The lines of the course.
    pub(crate) fn course<T: DeserializeOwned>(&self) -> Vec<T> {
        let Ok(file) = File::open(self.path.join("course.jsonl")) else { return Vec::new() };
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
    }
}

/// Tasks as they are written, one per line.
fn lines<'a>(tasks: impl Iterator<Item = &'a Task>) -> String {
    tasks.map(|task| serde_json::to_string(task).unwrap_or_default() + "\n").collect()
}

/// Now, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_millis() as u64
}

/// A small file as a value; none if it is not there or makes no sense.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = crate::merge::read_small(path, 1 << 20).ok()??;
    serde_json::from_slice(&bytes).ok()
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

fn try_lock(path: &Path) -> io::Result<Option<Lock>> {
    let file = open_lock(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { file })),
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Tries for a moment: somebody may only be asking whether it is taken.
fn patient_lock(path: &Path) -> io::Result<Option<Lock>> {
    for _ in 0..10 {
        match try_lock(path)? {
            None => std::thread::sleep(Duration::from_millis(50)),
            lock => return Ok(lock),
        }
    }
    Ok(None)
}

fn wait_lock(path: &Path) -> io::Result<Lock> {
    let file = open_lock(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(Lock { file })
}
