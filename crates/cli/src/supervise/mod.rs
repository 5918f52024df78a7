//! A supervisor and a worker: the campaign runs in a child process, so that whatever ends it is an
//! event that is recorded, and nothing that was found is lost: see docs/adr/0011-a-supervisor-and-a-worker.md.
//!
//! * [`watch`]: the parent. It starts the worker, passes signals on, watches deadlines and memory.
//! * [`death`]: what an end of the worker means, and the finding that is made of it.
//! * [`guest`]: the same for a campaign in a kernel of its own.
//! * [`worker`]: what the commands use in the worker: the journal, the limits, the stop flag.
//! * [`output`]: the output directory: absolute, writable, not on the subject.
//!

pub(crate) mod death;
pub(crate) mod guest;
pub(crate) mod output;
pub(crate) mod watch;
pub(crate) mod worker;

use crate::args::{Cli, Command};

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
