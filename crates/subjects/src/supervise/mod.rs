//! The system calls of supervision: memory that two processes share, a worker process that ends with
//! its parent, and what `/proc` says of a process that does not end.
//!
//! * [`board`]: the shared memory. The worker writes, the supervisor reads, also after the worker's
//!   death.
//! * [`worker`]: the side of the process that runs the campaign.
//! * [`process`]: starting it, watching it, ending it.
//! * `fault`: subjects that end their process, to test all this.
//! * [`remains`]: what the kernel does not let go of.

pub mod board;
pub(crate) mod fault;
pub mod process;
pub mod remains;
pub mod worker;

pub use board::{Board, LaneState};
pub use process::{Ended, Output, SignalSource, WorkerProcess};
pub use worker::Worker;
