//! The commands, one file each.

pub(crate) mod again;
pub(crate) mod callers;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod cover;
pub(crate) mod crash;
pub(crate) mod demo;
pub(crate) mod design;
pub(crate) mod export;
pub(crate) mod fsck;
pub(crate) mod guest;
pub(crate) mod known;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod mount;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod shrink;
pub(crate) mod snapshot;
pub(crate) mod swarm;

/// How a command that worked ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Exit code 0: nothing was found, or only what is known.
    Clean,
    /// Exit code 1: something was found, or is not as it was asked for.
    Findings,
    /// Exit code 2: nothing was found, but the run did not come to its end.
    Incomplete,
}
