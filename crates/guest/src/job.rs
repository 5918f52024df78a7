//! [`run_job`]: a guest as a worker that answers one batch.
//!
//! The caller puts its questions as files into a directory, names the hidden command of this program
//! that answers them, and finds the answers as files in the same directory. The guest is booted with
//! all of it and halts when the command ends: boot and halt take half a second, so a batch should be
//! work for some seconds. Nothing is versioned: it is the same build of the same program on both sides.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::boot::Boot;
use crate::error::{GuestError, Result};
use crate::guest::{Guest, GuestEnd};
use crate::kernel::Kernel;

/// One batch of work for a guest.
#[derive(Clone, Debug)]
pub struct Job {
    /// Arguments of this program: a command and what it needs. Paths are the same as on the host.
    pub arguments: Vec<OsString>,
    /// The directory with questions, in which the command may write its answers.
    pub directory: PathBuf,
    /// The longest time on the host's clock; the guest is ended then.
    pub deadline: Duration,
    /// The guest's memory; its default if there is none.
    pub memory_mib: Option<u32>,
    /// The environment that the command sees, in addition to the fixed one.
    pub environment: Vec<(String, String)>,
}

impl Job {
    /// A job with a deadline of a minute.
    pub fn new(arguments: Vec<OsString>, directory: PathBuf) -> Job {
        let deadline = Duration::from_secs(60);
        Job { arguments, directory, deadline, memory_mib: None, environment: Vec::new() }
    }
}

/// What became of a job. Answers that were written before a death are there.
#[derive(Clone, Debug)]
pub struct JobEnd {
    /// How the guest ended; `None` if it was ended at its deadline.
    pub end: Option<GuestEnd>,
    /// What the kernel said since the command began.
    pub console: String,
    /// What the command printed.
    pub stdout: String,
    /// What the command printed to its standard error.
    pub stderr: String,
    /// Time on the host's clock.
    pub elapsed: Duration,
}

impl JobEnd {
    /// Whether the command came to its end and was content.
    pub fn is_done(&self) -> bool {
        self.end == Some(GuestEnd::Code(0))
    }
}

/// Boots a guest, runs one job in it, and waits for its end. A guest that dies is an answer; an error is
/// a fault of the harness.
///
/// # Errors
/// If the guest cannot be booted.
pub fn run_job(kernel: &Kernel, seed: u64, job: &Job) -> Result<JobEnd> {
    let mut boot = Boot::new(kernel, seed, Vec::new())?;
    boot.command.push(boot.program.clone().into());
    boot.command.extend(job.arguments.iter().cloned());
    boot.directory.clone_from(&job.directory);
    boot.writable.push(job.directory.clone());
    boot.environment.clone_from(&job.environment);
    boot.memory_mib = job.memory_mib.unwrap_or(boot.memory_mib);
    let began = Instant::now();
    let mut guest = Guest::start(&boot)?;
    let end = guest.wait(job.deadline)?;
    if end.is_none() {
        guest.kill();
    }
    if let Some(GuestEnd::Refused(reason)) = &end {
        return Err(GuestError::Refused { reason: reason.clone() });
    }
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    guest.pass_on(&mut stdout, &mut stderr).map_err(GuestError::io("reading a guest's output"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(JobEnd {
        end,
        console: guest.console_since_boot(),
        stdout: text(stdout),
        stderr: text(stderr),
        elapsed: began.elapsed(),
    })
}
