//! The `run.json` of `fathom replay` and `fathom shrink`. It lies with the finding that they are about:
//! the one above it belongs to the campaign that found it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fathom_record::run::{Count, Kind};
use fathom_record::{Known, RunDirectory};

use crate::args::ReplayArgs;
use crate::locate::finding_dir;
use crate::progress::started;
use crate::supervise::worker;
use crate::text::say;

/// The run of a command that goes back to something recorded.
pub(crate) struct AgainRun {
    directory: Option<RunDirectory>,
    began: Instant,
}

impl AgainRun {
    /// Begins a replay; of one whose finding is thrown away nothing is kept.
    pub(crate) fn replay(args: &ReplayArgs, subject: &str, out: &Path) -> AgainRun {
        match args.scratch {
            true => AgainRun { directory: None, began: Instant::now() },
            false => AgainRun::start(Kind::Replay, subject, &args.what, out),
        }
    }

    /// Begins the run. Where nothing can be written the command does its work all the same.
    pub(crate) fn start(kind: Kind, subject: &str, what: &str, out: &Path) -> AgainRun {
        let dir = place(kind, what, out);
        let directory = match RunDirectory::start(&dir, started(kind, subject), Known::default()) {
            Ok(directory) => {
                worker::run_started(&dir);
                Some(directory)
            }
            Err(error) => {
                say!("fathom: no run.json: {:#}", anyhow::Error::from(error));
                None
            }
        };
        AgainRun { directory, began: Instant::now() }
    }

    /// Ends the run: so many operations, and what came out.
    pub(crate) fn finish(mut self, operations: usize, stop: String) {
        let Some(directory) = &mut self.directory else { return };
        let seconds = self.began.elapsed().as_secs_f64();
        directory.finish(|run| {
            (run.seconds, run.stop) = (seconds, stop);
            run.counts = vec![Count {
                name: "operations".to_owned(),
                value: operations as u64,
                about: "of the shortest run that is known".to_owned(),
            }];
        });
        if let Some(problem) = directory.problem() {
            say!("fathom: run.json is not up to date: {problem}");
        }
    }
}

/// The directory of the finding; of a trace that is no finding, one of its own.
fn place(kind: Kind, what: &str, out: &Path) -> PathBuf {
    match Path::new(what).is_file() {
        true => out.join(kind.name()),
        false => finding_dir(what, out).unwrap_or_else(|_| out.join(kind.name())),
    }
}
