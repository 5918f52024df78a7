//! The tracer in the kernel: BPF programs at the tracepoints of system calls.
//!
//! They decide there which file system a call concerns and count it by the classes of its arguments
//! (`bpf/cover.bpf.c`). Needs CAP_BPF and CAP_PERFMON, and a kernel with type information.

mod calibrate;
mod object;
mod record;
mod selftest;
mod stream;
mod uring;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Result, TraceError};
use crate::run::{Plan, Who};
use crate::signals::SignalGuard;
use crate::spawn::{Orphans, Started, spawn};
use crate::traced::Traced;
use object::{Counter, MOUNT_PATH_BYTES, Object, TARGETS_MAX};
use record::Recorder;
use stream::Stream;

/// Interval at which the ring of events is emptied: at most 300,000 events per second of 400 bytes
/// fill a tenth of its 16 MiB meanwhile.
const RECORD_EVERY: Duration = Duration::from_millis(10);
/// Interval at which the tracer looks for a signal or the end of the time.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Values of `enum scope` of `bpf/cover.bpf.c`.
const SCOPE_CGROUP: u32 = 1;
const SCOPE_ALL: u32 = 2;

/// The tracer, attached and tested, before anything is watched.
pub struct Tracer {
    object: Object,
    limits: Vec<String>,
    /// Resolves what the walk through the kernel's directory cache leaves.
    stream: Stream,
    walks: bool,
}

/// The limit that a report names whenever paths were streamed, beside the reason for streaming
/// them.
const STREAM_LIMIT: &str = "paths are resolved in user space, a moment after the call: names that unwatched processes change \
     in between, other mount namespaces and remounts are not followed";

/// Loads, attaches and tests the tracer; `walk` says whether it finds the file systems of paths in the
/// kernel, by walking the directory cache, or streams paths to user space.
pub fn prepare(plan: &Plan, walk: bool) -> Result<Tracer> {
    if plan.targets.len() > TARGETS_MAX {
        return Err(TraceError::Bpf(format!("at most {TARGETS_MAX} mounts can be watched")));
    }
    let mut object = Object::load()?;
    calibrate::calibrate(&mut object, &plan.targets, walk)?;
    let mut limits = object.attach_all()?;
    let mut stream = Stream::new(object.take_stream()?, &plan.targets, !walk)?;
    let mut config = object.config()?;
    config.stream = (!walk).into();
    object.configure(config)?;
    selftest::check(&mut object, &plan.targets, &mut stream)?;
    if walk && plan.distrust {
        return Err(TraceError::Unproven("the self-test counts as failed".to_owned()));
    }
    if !walk {
        limits.push(STREAM_LIMIT.to_owned());
    }
    for (index, target) in plan.targets.iter().enumerate() {
        let path = target.path.as_os_str().as_bytes();
        if !target.is_mount_point || !walk {
            continue;
        }
        if path.len() >= MOUNT_PATH_BYTES {
            limits.push(format!(
                "remounts of {} are not followed: its path is too long",
                target.path.display()
            ));
            continue;
        }
        object.set_mount_path(index, path)?;
    }
    let mut config = object.config()?;
    match &plan.who {
        Who::Command(_) | Who::Process(_) => {}
        Who::Everybody => config.scope = SCOPE_ALL,
        Who::Cgroup(dir) => {
            config.scope = SCOPE_CGROUP;
            (config.cgroup, config.cgroup_level) = cgroup(dir)?;
        }
    }
    config.record = plan.record.is_some().into();
    object.configure(config)?;
    Ok(Tracer { object, limits, stream, walks: walk })
}

/// Finds the identifier (its inode) and the depth of a control group.
fn cgroup(dir: &Path) -> Result<(u64, u32)> {
    let wrong = |reason: String| TraceError::Target { path: dir.to_owned(), reason };
    let dir = dir.canonicalize().map_err(|error| wrong(error.to_string()))?;
    let meta = dir.metadata().map_err(|error| wrong(error.to_string()))?;
    // Every group has this file; the top of cgroup2 does not have cgroup.type.
    if !dir.join("cgroup.procs").exists() {
        return Err(wrong("it is not a control group".to_owned()));
    }
    let level =
        dir.ancestors().skip(1).take_while(|above| above.join("cgroup.procs").exists()).count();
    Ok((meta.ino(), level as u32))
}

impl Tracer {
    /// Remembers why paths are streamed instead of resolved in the kernel.
    pub fn because(mut self, reason: &TraceError) -> Tracer {
        self.limits.push(format!("paths are streamed to user space: {reason}"));
        self
    }

    /// Watches until the command ends, the time is over or we are interrupted.
    pub fn run(mut self, plan: &Plan) -> Result<Traced> {
        let mut recorder = match &plan.record {
            Some(path) => Some(Recorder::new(self.object.take_events()?, path)?),
            None => None,
        };
        let caught = SignalGuard::new();
        let mut started = match &plan.who {
            Who::Command(argv) => Some(self.start(argv)?),
            Who::Process(pid) => {
                self.watch_tree(*pid)?;
                None
            }
            Who::Cgroup(_) | Who::Everybody => None,
        };
        let watched = match (&plan.who, &started) {
            (Who::Process(pid), _) => Some(*pid),
            (_, started) => started.as_ref().map(|started| started.pid),
        };
        let rings = Rings { recorder: recorder.as_mut(), stream: &mut self.stream };
        watch(watched, started.is_some(), plan.budget, &caught, rings)?;
        let ended = started.as_ref().map(Started::wait).transpose()?;
        if let Some(failure) = started.as_mut().and_then(Started::failure) {
            return Err(failure);
        }
        if let Some(recorder) = recorder {
            recorder.finish()?;
        }
        let mut traced = self.counts()?;
        traced.ended = ended;
        if plan.record.is_some() {
            traced.tracer = "bpf, with a record".to_owned();
        }
        Ok(traced)
    }

    fn start(&mut self, argv: &[OsString]) -> Result<Started> {
        let waiting = spawn(argv, Orphans::Guarded, || Ok(()))?;
        self.object.watch_thread(waiting.pid, true)?;
        waiting.go()
    }

    /// Watches all threads of a process and of its descendants: looks again until no new ones
    /// appear. Whatever they start later is watched anyway.
    fn watch_tree(&mut self, root: i32) -> Result<()> {
        let mut watched: Vec<i32> = Vec::new();
        loop {
            let processes = descendants(root);
            if processes.is_empty() {
                return Err(TraceError::Data(format!("there is no process {root}")));
            }
            let threads: Vec<(i32, bool)> =
                processes.iter().flat_map(|pid| threads(*pid)).collect();
            let new: Vec<_> =
                threads.into_iter().filter(|(tid, _)| !watched.contains(tid)).collect();
            if new.is_empty() {
                return Ok(());
            }
            for (tid, is_leader) in new {
                // It may have ended meanwhile; the next round will tell.
                if self.object.watch_thread(tid, is_leader).is_ok() || tid != root {
                    watched.push(tid);
                } else {
                    return Err(TraceError::last(format!("cannot watch process {root}")));
                }
            }
        }
    }

    fn counts(&mut self) -> Result<Traced> {
        self.object.detach_all();
        let mut limits = std::mem::take(&mut self.limits);
        let foreign = self.object.counter(Counter::Foreign)?;
        if foreign > 0 {
            limits.push(format!("{foreign} calls of 32-bit programs were seen and not counted"));
        }
        let restarted = self.object.counter(Counter::Restarted)?;
        if restarted > 0 {
            limits.push(format!("{restarted} calls were interrupted and made again: counted once"));
        }
        let unfetched = self.object.counter(Counter::Unfetched)? + self.object.blocks()?;
        if unfetched > 0 {
            limits.push(format!(
                "{unfetched} operations of io_submit are not counted: no call fetched their completion"
            ));
        }
        let record_lost = self.object.counter(Counter::RecordLost)?;
        if record_lost > 0 {
            limits.push(format!("{record_lost} calls were counted but are missing in the record"));
        }
        let mut samples = self.object.samples()?;
        samples.merge(&self.stream.take());
        Ok(Traced {
            samples,
            tracer: if self.walks { "bpf" } else { "stream" }.to_owned(),
            limits,
            ended: None,
            lost: self.object.counter(Counter::Lost)?
                + self.object.counter(Counter::LostRequests)?,
            guessed: self.object.counter(Counter::Guessed)?,
        })
    }
}

/// The rings that must be emptied while the tracer waits.
struct Rings<'a> {
    recorder: Option<&'a mut Recorder>,
    stream: &'a mut Stream,
}

impl Rings<'_> {
    fn drain(&mut self) -> Result<()> {
        self.stream.drain();
        self.recorder.as_deref_mut().map_or(Ok(()), Recorder::drain)
    }
}

/// Waits until the process has ended, the time is over or a signal came. A command of ours is asked
/// to end.
fn watch(
    pid: Option<i32>,
    is_ours: bool,
    budget: Option<Duration>,
    caught: &SignalGuard,
    mut rings: Rings<'_>,
) -> Result<()> {
    let mut deadline = budget.map(|budget| Instant::now() + budget);
    let every = if rings.recorder.is_some() { RECORD_EVERY } else { LOOK_EVERY };
    // SAFETY: integers only.
    let pidfd = pid.map_or(-1, |pid| unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32 });
    loop {
        let poll_in = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut poll = [poll_in(pidfd), poll_in(rings.stream.fd())];
        let left = deadline.map_or(every, |end| end.saturating_duration_since(Instant::now()));
        let timeout = left.min(every).as_millis() as i32;
        // SAFETY: two entries; a negative descriptor only waits.
        unsafe { libc::poll(poll.as_mut_ptr(), 2, timeout) };
        rings.drain()?;
        if poll[0].revents != 0 {
            break;
        }
        let signal = caught.take();
        let over = deadline.is_some_and(|end| Instant::now() >= end);
        if signal.is_none() && !over {
            continue;
        }
        match pid {
            Some(pid) if is_ours => {
                // An interrupt from the terminal has reached it already.
                if signal != Some(libc::SIGINT) {
                    // SAFETY: integers only; the process is ours and has not been waited for.
                    unsafe { libc::kill(pid, libc::SIGTERM) };
                }
                deadline = None;
            }
            _ => break,
        }
    }
    if pidfd >= 0 {
        // SAFETY: opened above.
        unsafe { libc::close(pidfd) };
    }
    Ok(())
}

/// A process and all processes below it.
fn descendants(root: i32) -> Vec<i32> {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parents: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found: Vec<i32> =
        parents.iter().map(|(pid, _)| *pid).filter(|pid| *pid == root).collect();
    let mut at = 0;
    while at < found.len() {
        let above = found[at];
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

/// Reads the parent of a process: the fourth field of proc_pid_stat(5); the second is in
/// parentheses and can contain anything.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Lists the threads of a process, and says which is the first.
fn threads(pid: i32) -> Vec<(i32, bool)> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let tids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.map(|tid| (tid, tid == pid)).collect()
}
