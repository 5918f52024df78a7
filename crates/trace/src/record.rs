//! The line format of recorded calls.

use serde::{Deserialize, Serialize};

use crate::layout::{SLOTS_MAX, index_of};
use crate::sample::{Sample, Touch};

/// One call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Time of its return, on the monotonic clock.
    pub time_ns: u64,
    /// Identifier of the process.
    pub pid: u32,
    /// Identifier of the thread.
    pub tid: u32,
    /// Name of the system call.
    pub call: String,
    /// The six registers; zeroes for operations of io_uring.
    pub args: [u64; 6],
    /// The first path, up to 255 bytes.
    pub path: String,
    /// The result.
    pub result: i64,
    /// Its [`Touch`](crate::sample::Touch) as a number: 1 inside, 8 no file system, 16 not found
    /// out.
    pub touch: u8,
    /// The codes of the arguments ([`crate::sample`]).
    pub slots: [u32; SLOTS_MAX],
}

impl Line {
    /// The call as it was counted; `None` if the table does not have it.
    pub fn sample(&self) -> Option<Sample> {
        let touch = match self.touch {
            1 => Touch::Inside,
            16 => Touch::Unresolved,
            _ => Touch::Nothing,
        };
        Some(Sample::new(index_of(&self.call)?, touch, self.slots, self.result))
    }
}
