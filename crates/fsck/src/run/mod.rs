//! Runs of a checker on a disk in memory: with limits, without any reach beyond the disk, as fast as the
//! checker itself.

#![allow(unsafe_code, reason = "system calls")]

mod image;
mod memo;
mod place;
mod sandbox;
mod spawn;

pub(crate) use image::{DiskDelta, DiskFile, shared_text};
pub(crate) use memo::Memo;
pub(crate) use place::place_of_death;
pub(crate) use sandbox::Sandbox;
pub(crate) use spawn::{Command, spawn};

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a checker may use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Time of the processor; a few times as much on the clock.
    pub time: Duration,
    /// Bytes of address space.
    pub memory_bytes: u64,
    /// The largest place in a file that may be written.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        // xfs_repair fails below 2 GiB of file size; the disk itself cannot grow whatever this says.
        Limits { time: Duration::from_secs(10), memory_bytes: 2 << 30, file_bytes: 1 << 44 }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Not within the limit of time.
    Hang,
}

/// One run of a checker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// What it printed, up to the limit.
    pub(crate) output: Vec<u8>,
    /// Whether it printed more than the limit.
    pub(crate) output_full: bool,
    pub(crate) time: Duration,
    /// The most memory that it used at once.
    pub(crate) resident_bytes: u64,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Code(code) => write!(f, "{code}"),
            End::Signal(signal) => write!(f, "signal {signal}"),
            End::Hang => write!(f, "hang"),
        }
    }
}

/// Why a checker could not be run: a fault of ours, never a finding.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct RunError {
    /// What was tried.
    pub what: String,
    /// Why it failed.
    pub source: std::io::Error,
}

impl RunError {
    /// The error of the last system call.
    pub(crate) fn last(what: impl Into<String>) -> RunError {
        RunError { what: what.into(), source: std::io::Error::last_os_error() }
    }
}
