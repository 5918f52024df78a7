//! A supervisor and a worker: the campaign runs in a child process, so that whatever ends it is an
//! event that is recorded, and nothing that was found is lost: see docs/adr/0011-a-supervisor-and-a-worker.md.
//!
//! * [`watch`]: one worker from its start to its end: signals, deadlines, memory.
//! * [`death`]: what an end of the worker means, and the finding that is made of it.
//! * [`guest`]: the same for a campaign in a kernel of its own.
//! * [`confirm`]: runs what a worker died of again, and shrinks it.
//! * [`worker`]: what the commands use in the worker: the journal, the limits, the stop flag.
//! * [`output`]: the output directory: absolute, writable, not on the subject.

pub(crate) mod confirm;
pub(crate) mod death;
pub(crate) mod guest;
pub(crate) mod output;
pub(crate) mod watch;
pub(crate) mod worker;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use fathom_subjects::supervise::{Output, SignalSource};

use crate::args::{Cli, Command};
use confirm::{CONFIRM_WITHIN, Confirmation, InWorkers};
use death::Teller;
use watch::{Limits, WorkerEnd, name_left, watch};

/// Runs the command in a worker and tells how it ended, if it cannot do so itself.
///
/// # Errors
/// If there cannot be a worker.
pub(crate) fn run(cli: &Cli, out: &Path, signals: &SignalSource) -> io::Result<ExitCode> {
    let limits = Limits::of(cli);
    let arguments = std::env::args_os().skip(1).collect();
    let ended = watch(arguments, Output::Inherited, limits, signals)?;
    let code = match &ended.how {
        WorkerEnd::Code(code) => ExitCode::from(*code),
        WorkerEnd::Death(death) => {
            let deadline = ended.board.deadline().unwrap_or(limits.deadline);
            let workers = InWorkers { limits: Limits { deadline, ..limits }, signals };
            let confirmation = Confirmation { deadline, within: CONFIRM_WITHIN, place: &workers };
            let (board, held) = (&ended.board, &ended.held);
            Teller { cli, out, board, held, confirmation: Some(confirmation) }.tell(death)
        }
    };
    name_left(&ended.held);
    Ok(code)
}

/// Whether the command runs a campaign, and so in a worker.
pub(crate) fn is_campaign(cli: &Cli) -> bool {
    match &cli.command {
        None | Some(Command::Replay(_) | Command::Shrink(_)) => true,
        Some(Command::Check(args)) => !args.dry_run,
        Some(Command::Crash(args)) => !args.dry_run,
        Some(Command::Design(_)) => true,
        Some(Command::Fsck(args)) => args.action.is_none(),
        _ => false,
    }
}
