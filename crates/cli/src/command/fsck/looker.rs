//! [`GuestLooker`]: disks that a checker left behind are mounted in guests, which may die of them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use fathom_fsck::{DiskLooker, Mounted, answer_batch, read_answers};
use fathom_guest::{GuestEnd, Job, Kernel, report, run_job};

use super::args::LookArgs;
use super::maker::kernel;
use crate::command::Ending;

/// The time of the host that a batch may take, and each disk in it.
const DEADLINE: Duration = Duration::from_secs(60);
const DEADLINE_EACH: Duration = Duration::from_secs(3);
const SEED: u64 = 1;

/// Looks at disks in guests.
pub(crate) struct GuestLooker {
    kernel: Kernel,
}

impl GuestLooker {
    /// With the kernel that FATHOM_GUEST_KERNEL names, or the best that is here.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn new() -> Result<GuestLooker> {
        let kernel = kernel().map_err(|why| anyhow::anyhow!("--mount needs a guest: {why}"))?;
        Ok(GuestLooker { kernel })
    }
}

impl DiskLooker for GuestLooker {
    fn look(
        &self,
        file_system: &str,
        directory: &Path,
        disks: usize,
    ) -> Result<Vec<Mounted>, String> {
        let mut answers: Vec<Mounted> = Vec::new();
        while answers.len() < disks {
            let from = answers.len();
            let mut words: Vec<_> = ["fsck", "look", file_system].map(Into::into).to_vec();
            words.extend([directory.into(), from.to_string().into()]);
            let mut job = Job::new(words, directory.to_owned());
            let left = u32::try_from(disks - from).unwrap_or(u32::MAX);
            job.deadline = DEADLINE + DEADLINE_EACH * left;
            let end = run_job(&self.kernel, SEED, &job).map_err(|error| error.to_string())?;
            answers = read_answers(directory, disks);
            if answers.len() >= disks {
                break;
            }
            let died = match (report::read(&end.console), &end.end) {
                (Some(report), _) => report.title,
                (None, None) => "no answer in time".to_owned(),
                (None, Some(GuestEnd::Died(_) | GuestEnd::Signal(_))) => "it was killed".to_owned(),
                (None, Some(_)) => return Err(end.stderr.trim().to_owned()),
            };
            let accused = Mounted::of_death(died);
            accused.write(directory, answers.len()).map_err(|error| error.to_string())?;
            answers.push(accused);
        }
        Ok(answers)
    }
}

/// Answers a batch; only in a guest, where a disk may do what it likes.
pub(super) fn answer(args: &LookArgs) -> Result<Ending> {
    if std::env::var_os("FATHOM_IN_GUEST").is_none() {
        bail!("this command mounts hostile disks in a guest: it is of no use here");
    }
    answer_batch(&args.file_system, &args.directory, args.from)?;
    Ok(Ending::Clean)
}
