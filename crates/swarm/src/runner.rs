//! Runs one attempt of one task, wherever an engine has put it: starts the ordinary command, keeps it within
//! its limits, and says how it ended.
//!
//! Everything that it needs lies in the directory of the swarm, and everything that it leaves too. It ends
//! the command when it is asked to, and the command ends with it.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fd::AsFd as _;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::directory::{Runner, SwarmDirectory, TaskFile, now_ms, read_json};
use crate::ended::{Ended, Reason};
use crate::limits::{self, Groups};
use crate::plan::Limits;
use crate::{SwarmError, Task, ends};

/// Longest time between two looks at a task.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Looks between two at the disk, and at the memory where no group bounds it.
const LOOKS_PER_MEASURE: u64 = 10;

/// Time for a command that is asked to end: it writes what it has.
const GRACE: Duration = Duration::from_secs(15);

/// The variable that says whose end is also the end of the command.
const PARENT: &str = "FATHOM_SWARM_PARENT";

/// The variable with the memory that the command may use, so that it can end before the kernel ends it. What a
/// control group says, it reads itself; there may be none.
const MEMORY_MAX: &str = "FATHOM_MEMORY_MAX_BYTES";

/// The variable with a task, for runners that no coordinator has prepared a directory for.
pub(crate) const TASK: &str = "FATHOM_SWARM_TASK";

/// How a task is run.
pub struct RunTask<'a> {
    /// The directory of the swarm.
    pub directory: &'a SwarmDirectory,
    /// The name of the task.
    pub name: &'a str,
    /// The number of the attempt; 0: the next one that is needed.
    pub attempt: u32,
    /// The program.
    pub program: PathBuf,
    /// The name of this machine.
    pub node: String,
    /// Whether the end is asked for: a signal came.
    pub is_asked: &'a dyn Fn() -> bool,
}

impl RunTask<'_> {
    /// Runs the attempt to its end, unless it has one or somebody else runs the task.
    ///
    /// # Errors
    /// If the task is not there, or nothing can be written.
    pub fn run(&self) -> Result<Option<Ended>, SwarmError> {
        let Some(attempt) = self.number()? else { return Ok(None) };
        let out = self.directory.attempt(self.name, attempt);
        let failed = |error: io::Error| SwarmError::io(&out, "run a task there", error);
        let lock = self.directory.lock_task(self.name).map_err(failed)?;
        let Some(_lock) = lock else { return Ok(None) };
        if self.directory.ended(self.name, attempt).is_some() {
            return Ok(None);
        }
        let file: Option<TaskFile> = read_json(&self.directory.task(self.name).join("task.json"));
        let TaskFile { task, limits } =
            file.ok_or_else(|| SwarmError::Other(format!("{}: there is no task", self.name)))?;
        put_aside(&out).map_err(failed)?;
        let runner = Runner { node: self.node.clone(), started_ms: now_ms() };
        let text = serde_json::to_vec(&runner).unwrap_or_default();
        fs::write(out.join("runner.json"), text).map_err(failed)?;
        let ended = self.attempt(&task, &limits, &out).unwrap_or_else(|error| Ended {
            reason: Reason::Failed,
            code: None,
            told: format!("it could not be started: {error}"),
            seconds: 0.0,
            memory_bytes: None,
            node: self.node.clone(),
            kept_by: String::new(),
        });
        self.directory.end(self.name, attempt, &ended)?;
        Ok(Some(ended))
    }

    /// The number of the attempt; 0 asks for the next one that is needed, where no coordinator counts them.
    fn number(&self) -> Result<Option<u32>, SwarmError> {
        let Ok(text) = std::env::var(TASK) else { return Ok(Some(self.attempt)) };
        let file: TaskFile = serde_json::from_str(&text)
            .map_err(|error| SwarmError::Other(format!("{TASK}: {error}")))?;
        if !crate::merge::is_plain_name(self.name) || file.task.name() != self.name {
            return Err(SwarmError::Other(format!("{TASK} is not that of {}", self.name)));
        }
        let next = match self.directory.last_attempt(self.name) {
            _ if self.attempt > 0 => self.attempt,
            None => 1,
            Some((last, None)) => last,
            Some((_, Some(ended))) if ended.reason.is_final() => return Ok(None),
            Some((last, Some(_))) => last + 1,
        };
        self.directory.prepare(&file.task, &file.limits, next)?;
        Ok(Some(next))
    }

    fn attempt(&self, task: &Task, limits: &Limits, out: &Path) -> io::Result<Ended> {
        let started = Instant::now();
        let kills_before = limits::kills_in_container();
        let groups = Groups::make(&format!("fathom-{}-{}", task.id, std::process::id()), limits);
        let (mut child, groups) = self.start(task, limits, groups, out)?;
        let pid = Pid::from_child(&child);
        if !groups.bound_cpus() {
            limits::bound_cores(pid, limits.cpus, task.number);
        }
        let watch = Watch { limits, groups: &groups, out, started, is_asked: self.is_asked };
        let (status, broken) = watch.until_the_end(&mut child, self.directory)?;
        let code = status.code();
        let reason = match (broken, code) {
            (Some(reason), _) => reason,
            (None, _) if groups.ran_out_of_memory() => Reason::Memory,
            (None, _) if limits::kills_in_container() > kills_before => Reason::Memory,
            (None, Some(0)) => Reason::Done,
            (None, Some(1)) => Reason::Found,
            (None, Some(_)) => Reason::Failed,
            (None, None) => Reason::Killed,
        };
        Ok(Ended {
            reason,
            code,
            told: told(reason, status, limits, out),
            seconds: started.elapsed().as_secs_f64(),
            memory_bytes: groups.memory_peak(),
            node: self.node.clone(),
            kept_by: groups.describe().to_owned(),
        })
    }

    /// Starts the command as a member of the groups; if that cannot be, without them.
    fn start(
        &self,
        task: &Task,
        limits: &Limits,
        groups: Groups,
        out: &Path,
    ) -> io::Result<(Child, Groups)> {
        let log = File::create(out.join("output.log"))?;
        let mut command = Command::new(&self.program);
        command
            .args(&task.words)
            .arg("--out")
            .arg(out)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .env(PARENT, std::process::id().to_string())
            .env(MEMORY_MAX, limits.memory.to_string())
            .env("NO_COLOR", "1")
            .process_group(0);
        let groups = if groups.enter() { groups } else { Groups::default() };
        let child = command.spawn();
        groups.leave();
        Ok((child?, groups))
    }
}

/// A run that was begun before (a machine that was lost, and a scheduler that starts the same again) is kept
/// beside the new one: what it found is found.
fn put_aside(out: &Path) -> io::Result<()> {
    if !out.join(fathom_record::run::FILE).exists() {
        return Ok(());
    }
    let name = out.file_name().unwrap_or_default().display().to_string();
    let free = (1..).map(|n| out.with_file_name(format!("{name}-before-{n}")));
    let free = free.into_iter().find(|path| !path.exists()).unwrap_or_else(|| out.to_owned());
    fs::rename(out, free)?;
    fs::create_dir_all(out)
}

/// Looks at a command while it runs.
struct Watch<'a> {
    limits: &'a Limits,
    groups: &'a Groups,
    out: &'a Path,
    started: Instant,
    is_asked: &'a dyn Fn() -> bool,
}

impl Watch<'_> {
    /// Waits for the end; if a limit is broken or the end is asked for, brings it about.
    fn until_the_end(
        &self,
        child: &mut Child,
        swarm: &SwarmDirectory,
    ) -> io::Result<(ExitStatus, Option<Reason>)> {
        let end = ends::of(child);
        for look in 0_u64.. {
            if let Some(status) = child.try_wait()? {
                self.groups.kill();
                return Ok((status, None));
            }
            let reason = match () {
                () if (self.is_asked)() || swarm.is_stopping() => Some(Reason::Stopped),
                () if self.limits.time.is_some_and(|max| self.started.elapsed() > max) => {
                    Some(Reason::Time)
                }
                () if look % LOOKS_PER_MEASURE == 0 => self.measure(child.id()),
                () => None,
            };
            if let Some(reason) = reason {
                return Ok((self.end(child)?, Some(reason)));
            }
            ends::wait(end.as_ref().map(|end| end.as_fd()).as_slice(), LOOK_EVERY);
        }
        unreachable!("the numbers do not end")
    }

    fn measure(&self, pid: u32) -> Option<Reason> {
        if limits::bytes_below(self.out) > self.limits.disk {
            return Some(Reason::Disk);
        }
        let watched = !self.groups.bound_memory();
        (watched && limits::resident_bytes(pid) > self.limits.memory).then_some(Reason::Memory)
    }

    /// Asks the command to end, waits, and ends it.
    fn end(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let group = Pid::from_child(child);
        let asked = Instant::now();
        // It may just have ended by itself: then there is nobody to tell.
        let _ = kill_process_group(group, Signal::TERM);
        while asked.elapsed() < GRACE {
            if let Some(status) = child.try_wait()? {
                self.groups.kill();
                return Ok(status);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = kill_process_group(group, Signal::KILL);
        self.groups.kill();
        child.wait()
    }
}

/// The end in words; of a command that failed, what it said last.
fn told(reason: Reason, status: ExitStatus, limits: &Limits, out: &Path) -> String {
    match reason {
        Reason::Memory => format!("it used more than {} bytes of memory", limits.memory),
        Reason::Disk => format!("it wrote more than {} bytes", limits.disk),
        Reason::Time => {
            format!("it took longer than {} s", limits.time.unwrap_or_default().as_secs_f64())
        }
        Reason::Killed => format!("signal {}", status.signal().unwrap_or(0)),
        Reason::Failed => last_line(&out.join("output.log")),
        _ => String::new(),
    }
}

fn last_line(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4096)..]).into_owned();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}

/// Ends this process with the runner that started it, if one has.
pub fn end_with_runner() {
    use rustix::process::{getppid, set_parent_process_death_signal};
    let runner = std::env::var(PARENT).ok().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    if runner.is_some() && runner == getppid() {
        // Without it a killed runner leaves its command behind; its groups and its lock tell of it.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}
