//! The one processor of the host on which a guest runs.
//!
//! A guest computes in one process at a time: in its kernel, or in the process of the task that its kernel
//! lets run, which stops for every system call and page fault (ptrace(2)). A host with idle processors wakes
//! the other one there, and each such change costs three times as much as one on the same processor
//! (docs/PERFORMANCE.md). So all processes of a guest share one. Which one is the choice of the host's
//! scheduler: that on which the keeper was started, and another one as soon as the guest has to wait for it.

#![allow(unsafe_code, reason = "sets affinities; every block says why it is sound")]

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// How often a guest that waits for its processor may get another one.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A guest that waited for this part of the time, or more, shares its processor with somebody.
const WAITED_PART: u32 = 4;

/// For so long the scheduler may choose: many times what one wake-up takes.
const CHOICE: Duration = Duration::from_millis(1);

/// The place of a guest's processes.
pub(crate) struct Processor {
    kernel: libc::pid_t,
    /// Processors that the keeper may use, and so the guest.
    allowed: libc::cpu_set_t,
    looked: Instant,
    /// How long the kernel had waited for its processor then.
    waited: Duration,
}

impl Processor {
    /// Follows a kernel that was started on one processor.
    pub(crate) fn of(kernel: libc::pid_t) -> io::Result<Processor> {
        let waited = waited(kernel).unwrap_or_default();
        Ok(Processor { kernel, allowed: allowed()?, looked: Instant::now(), waited })
    }

    /// Lets the scheduler choose again if the guest had to wait. That this fails is no reason to end a
    /// guest: it is slower, at most.
    pub(crate) fn look(&mut self) {
        let (now, waited) = (Instant::now(), waited(self.kernel).unwrap_or_default());
        let (passed, lost) = (now - self.looked, waited.saturating_sub(self.waited));
        if passed < LOOK_EVERY {
            return;
        }
        (self.looked, self.waited) = (now, waited);
        if lost >= passed / WAITED_PART {
            let _ = self.choose_again();
        }
    }

    fn choose_again(&self) -> io::Result<()> {
        set(self.kernel, &self.allowed)?;
        std::thread::sleep(CHOICE);
        let chosen = only(last_processor(self.kernel).ok_or_else(io::Error::last_os_error)?);
        // What the kernel starts from now on is where the kernel is.
        set(self.kernel, &chosen)?;
        for child in children(self.kernel) {
            // It may have ended.
            let _ = set(child, &chosen);
        }
        Ok(())
    }
}

/// Keeps the calling process on the processor on which it is: only system calls, for between fork and exec.
pub(crate) fn stay() -> io::Result<()> {
    // SAFETY: takes nothing.
    match unsafe { libc::sched_getcpu() } {
        -1 => Err(io::Error::last_os_error()),
        number => set(0, &only(number as usize)),
    }
}

fn only(number: usize) -> libc::cpu_set_t {
    // SAFETY: a set is plain memory, and all zero is the empty one; numbers beyond it are ignored.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(number, &mut set);
        set
    }
}

/// Processors that this process may use.
fn allowed() -> io::Result<libc::cpu_set_t> {
    // SAFETY: the set lives during the call and its size is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) {
            0 => Ok(set),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn set(pid: libc::pid_t, processors: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the set lives during the call and its size is given.
    match unsafe { libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), processors) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How long a process could have run and did not: the second number of its `schedstat`, which a host
/// without CONFIG_SCHED_INFO does not have.
fn waited(pid: libc::pid_t) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().nth(1)?.parse().ok()?))
}

/// Where a process ran last: field 39 of its `stat`, of which two are before the last bracket.
fn last_processor(pid: libc::pid_t) -> Option<usize> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(39 - 3)?.parse().ok()
}

/// Children of a process.
pub(crate) fn children(parent: libc::pid_t) -> Vec<libc::pid_t> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = parent.to_string();
    let is_child = |pid: &libc::pid_t| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').nth(1));
        fields.flatten() == Some(parent.as_str())
    };
    numbers.filter(is_child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::Command;

    /// The processors of a process, as /proc says.
    fn processors(pid: libc::pid_t) -> String {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = text.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    }

    #[test]
    fn a_process_and_its_children_get_one_processor() {
        let shell = Command::new("/bin/sh").args(["-c", "sleep 60 & wait"]).spawn();
        let mut shell = shell.unwrap();
        let pid = shell.id() as libc::pid_t;
        let child = loop {
            if let [child] = children(pid).as_slice() {
                break *child;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let processor = Processor::of(pid).unwrap();
        processor.choose_again().unwrap();
        let chosen = last_processor(pid).unwrap().to_string();
        let seen = [processors(pid), processors(child)];
        // SAFETY: processes that this test started and has not waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert_eq!(seen, [chosen.clone(), chosen]);
    }

    #[test]
    fn who_stays_is_on_one_processor() {
        std::thread::spawn(|| {
            stay().unwrap();
            // SAFETY: takes nothing.
            let me = unsafe { libc::gettid() };
            assert!(processors(me).parse::<usize>().is_ok(), "{}", processors(me));
        })
        .join()
        .unwrap();
    }
}
