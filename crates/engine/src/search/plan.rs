//! The strategy, the bounds and the options of a search.

use std::path::PathBuf;
use std::time::Duration;

use fathom_record::VisitedStates;

use super::order::ActionOrder;
use super::path::Path;

/// The order in which states are explored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Explores the nearest states first: counterexamples are as short as possible.
    Bfs,
    /// Explores the newest states first: few wait, deep ones come early.
    Dfs,
    /// Follows independent random paths of at most [`Plan::depth_max`] steps (1000 without that
    /// bound).
    Walk {
        /// The seed of every choice.
        seed: u64,
        /// Number of paths.
        walks: u64,
    },
    /// One given path.
    Replay(Path),
}

/// The memory of visited states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All 128 bits of every key.
    Exact,
    /// A fixed number of bytes in all; some states are missed, see [`crate::search::visited::Bitstate`].
    Bitstate {
        /// Bytes of memory for the bits.
        bytes: usize,
        /// Bits per state; 3 is a good choice.
        hashes: u32,
        /// Seed of the hashes: different seeds miss different states.
        seed: u64,
    },
}

impl Memory {
    /// Identifies what a checkpoint was made with.
    pub(super) fn name(&self) -> String {
        match self {
            Memory::Exact => "exact".to_owned(),
            Memory::Bitstate { bytes, hashes, seed } => {
                format!("bitstate of {bytes} bytes, {hashes} bits per state, seed {seed}")
            }
        }
    }
}

/// The file and the interval at which the search is saved, so that it can go on after any
/// interruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    /// The file; replaced atomically.
    pub path: PathBuf,
    /// Names the system and its parameters; a checkpoint of another label is refused.
    pub label: String,
    /// Interval between two checkpoints; it grows if writing takes more than a tenth of the time.
    /// The end of a search is always saved.
    pub every: Duration,
    /// Whether to go on from the file instead of starting.
    pub resume: bool,
}

/// The bounds and the options of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of threads; 0 means one per core.
    pub threads: usize,
    /// Greatest number of steps to a state that is visited.
    pub depth_max: Option<u32>,
    /// Stops before visiting more states; all initial states are visited in any case.
    pub states_max: Option<u64>,
    /// Approximate limit of states that wait in memory to be explored (breadth first only); the
    /// others are made again by [`System::retrace`](super::System::retrace). None: as many as take
    /// 128 MiB, not counting what they have on the heap.
    pub waiting_max: Option<usize>,
    /// Stops when the process occupies this much memory.
    pub memory_max_bytes: Option<u64>,
    /// Stops after this time.
    pub time_max: Option<Duration>,
    /// Stops at the first state that breaks an `always` property, or the first deadlock; otherwise
    /// all are counted and the first of each is reported.
    pub stop_at_first: bool,
    /// Makes a state without successors a violation, unless
    /// [`System::may_end`](super::System::may_end). States at the depth bound are not asked.
    pub deadlock: bool,
    /// The memory of visited states.
    pub memory: Memory,
    /// The file to which the search is saved, if it is.
    pub checkpoints: Option<Checkpoints>,
    /// The order in which the actions of a state are taken (not by walks, which draw them).
    pub order: ActionOrder,
    /// Receives every state that is visited.
    pub states: VisitedStates,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            threads: 0,
            depth_max: None,
            states_max: None,
            waiting_max: None,
            memory_max_bytes: None,
            time_max: None,
            stop_at_first: true,
            deadlock: false,
            memory: Memory::Exact,
            checkpoints: None,
            order: ActionOrder::Forward,
            states: VisitedStates::default(),
        }
    }
}

impl Plan {
    /// The number of threads, at least one.
    pub(super) fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }
}
