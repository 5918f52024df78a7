//! File mapping: which blocks belong to a file, and which are free.
//!
//! The model of Yuan's study of crash consistency (SPIN models of FAT and ext2): a device of 16
//! blocks of 4 bytes, 4 files, no directories. Files are created, extended by one block, and deleted;
//! every write of an operation is a step, another thread may run between any two of them, and the
//! power may fail anywhere. After a power failure an offline checker looks for
//!
//! | property | what is wrong | severity |
//! |---|---|---|
//! | [`Fault::Dead`] | allocated, but of no file | harmless: the checker frees it |
//! | [`Fault::Lost`] | of a file, but not allocated | critical |
//! | [`Fault::Double`] | of more than one file | critical |
//! | [`Fault::Content`] | a file does not hold what was written | critical |
//!
//! and an online checker compares every idle file with what was written to it after every step.
//!
//! | order | what an operation does |
//! |---|---|
//! | [`Order::Naive`] | changes all tables in memory, then writes the changed blocks in the order of their place (deleting: backwards, allocation before inode) |
//! | [`Order::Safe`] | changes and writes one block at a time: a block is allocated before it is filled, filled before something points to it, and pointed to by nothing before it is freed |
//!
//! With a cache, writes stay volatile until the operation ends with a FLUSH, which makes everything
//! durable at once, the half-done work of the other thread included.

mod check;
mod layout;
mod operation;
mod symmetry;
mod tell;

use std::fmt;

use fathom_core::Digest;
use fathom_engine::search::{Property, System};
use serde::{Deserialize, Serialize};

pub use check::{Fault, Faults};
pub use layout::{Disk, GeometryError, Kind, Layout};
pub use operation::Operation;
use operation::Thread;

/// The order in which an operation writes what it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Blocks are written by place.
    Naive,
    /// A block is written before what points to it.
    Safe,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Naive => "naive",
            Order::Safe => "safe",
        })
    }
}

/// Greatest number of files: the fixed place of inodes in a state allows no more.
pub const FILES_MAX: usize = 4;
/// Greatest number of threads.
pub const THREADS_MAX: usize = 2;
/// Domain of the hash of states. Seed 0: XXH3 has its secret ready. Nothing but these states is
/// compared with them.
const DOMAIN_STATE: u64 = 0;
/// The expected length of a file that does not exist.
const ABSENT: u8 = 0xff;

/// A file mapping design and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The places of things on the device.
    pub layout: Layout,
    /// Number of threads that use it at the same time: 1 or 2.
    pub threads: usize,
    /// Whether the device has a volatile cache and operations end with a FLUSH.
    pub cache: bool,
    /// The order of writes.
    pub order: Order,
    /// Whether the power can fail.
    pub crashes: bool,
    /// Whether states that differ only in which file is which are the same.
    pub symmetry: bool,
}

/// The whole state: tables in memory, device, threads, and the expected files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The tables as the file system holds them in memory; data blocks as last written.
    memory: Disk,
    /// The contents of the device as a read would return them.
    cache: Disk,
    /// The contents that survive a power failure. Without a cache the same.
    media: Disk,
    threads: [Thread; THREADS_MAX],
    /// Expected number of blocks of each file, as of the last completed operation.
    expected: [u8; FILES_MAX],
    /// Faults that the last step brought to light.
    faults: Faults,
}

impl State {
    /// Faults that were found in this state.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// The contents of the device that a power failure now would leave.
    pub fn media(&self) -> &Disk {
        &self.media
    }
}

/// One step of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A thread begins an operation, with its first step.
    Begin {
        /// The index of the thread.
        thread: usize,
        /// The operation.
        operation: Operation,
        /// The file.
        file: u8,
    },
    /// A thread goes on by one step.
    Continue {
        /// The index of the thread.
        thread: usize,
    },
    /// The power fails; the offline checker runs, and the file system is mounted again.
    Crash,
}

impl Mapping {
    /// Makes a design with the seed's geometry: 16 blocks, 4 files, one thread, no cache, naive
    /// order.
    ///
    /// # Errors
    /// Never with the sizes of the seed; see [`Layout::new`].
    pub fn new(kind: Kind) -> Result<Mapping, GeometryError> {
        Ok(Mapping {
            layout: Layout::new(kind, FILES_MAX, layout::DATA_BLOCKS_DEFAULT)?,
            threads: 1,
            cache: false,
            order: Order::Naive,
            crashes: true,
            symmetry: true,
        })
    }

    /// Copies a block from memory to the device.
    fn write(&self, state: &mut State, block: usize) {
        *state.cache.block_mut(block) = *state.memory.block(block);
        if !self.cache {
            *state.media.block_mut(block) = *state.memory.block(block);
        }
    }

    /// Fills blocks that no table mentions with a fixed value: what they held no longer matters.
    fn forget_free_blocks(&self, state: &mut State) {
        let layout = &self.layout;
        let mut mentioned = layout.allocated(&state.memory)
            | layout.referenced(&state.cache)
            | layout.allocated(&state.cache);
        if self.cache {
            mentioned |= layout.referenced(&state.media) | layout.allocated(&state.media);
        }
        for data in (0..layout.data_blocks()).filter(|data| mentioned & (1 << data) == 0) {
            let block = layout.data_block(data as u8);
            for disk in [&mut state.memory, &mut state.cache, &mut state.media] {
                *disk.block_mut(block) = layout::ERASED;
            }
        }
    }

    /// Cuts the power: the device keeps its media, the offline checker looks at it, and the file
    /// system is mounted again.
    fn crash(&self, state: &mut State) {
        state.faults = check::offline(self, state);
        self.layout.free_dead_blocks(&mut state.media);
        state.memory = state.media;
        state.cache = state.media;
        for file in 0..self.layout.files() {
            state.expected[file] = match self.layout.exists(&state.media, file) {
                true => self.layout.len(&state.media, file),
                false => ABSENT,
            };
        }
        state.threads = [Thread::default(); THREADS_MAX];
        self.forget_free_blocks(state);
    }

    /// Hashes a state, packed into few bytes. Without a cache the media is what the device answers.
    fn hash(&self, state: &State) -> u128 {
        const DISK: usize = size_of::<Disk>();
        let mut bytes = [0; 3 * DISK + 24];
        for (place, thread) in bytes.chunks_exact_mut(8).zip(&state.threads) {
            place.copy_from_slice(&thread.bytes());
        }
        bytes[16..20].copy_from_slice(&state.expected);
        bytes[20] = state.faults.bits();
        let disks = bytes[24..].chunks_exact_mut(DISK);
        for (place, disk) in disks.zip([&state.memory, &state.cache, &state.media]) {
            place.copy_from_slice(disk.bytes());
        }
        let len = if self.cache { bytes.len() } else { bytes.len() - DISK };
        Digest::of(DOMAIN_STATE, &bytes[..len]).0
    }

    fn busy(&self, state: &State, file: u8) -> bool {
        state.threads.iter().any(|thread| thread.operates_on(file))
    }
}

impl System for Mapping {
    type State = State;
    type Action = Action;

    fn init(&self) -> Vec<State> {
        let disk = self.layout.mkfs();
        vec![State {
            memory: disk,
            cache: disk,
            media: disk,
            threads: [Thread::default(); THREADS_MAX],
            expected: [ABSENT; FILES_MAX],
            faults: Faults::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.faults.end_everything() {
            return;
        }
        for thread in 0..self.threads {
            if !state.threads[thread].is_idle() {
                actions.push(Action::Continue { thread });
                continue;
            }
            for operation in Operation::ALL {
                for file in 0..self.layout.files() as u8 {
                    if !self.busy(state, file) && operation.is_possible(self, state, file) {
                        actions.push(Action::Begin { thread, operation, file });
                    }
                }
            }
        }
        if self.crashes {
            actions.push(Action::Crash);
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = State { faults: Faults::default(), ..*state };
        match *action {
            Action::Begin { thread, operation, file } => {
                next.threads[thread] = Thread::begin(operation, file);
                operation::step(self, &mut next, thread);
            }
            Action::Continue { thread } => operation::step(self, &mut next, thread),
            Action::Crash => self.crash(&mut next),
        }
        next.faults |= check::online(self, &next);
        Some(next)
    }

    fn key(&self, state: &State) -> u128 {
        match self.symmetry {
            true => self.hash(&symmetry::canonical(self, state)),
            false => self.hash(state),
        }
    }

    fn properties(&self) -> Vec<Property<Mapping>> {
        vec![
            Property::always(Fault::Dead.name(), |_, state: &State| !state.faults.has(Fault::Dead)),
            Property::always(Fault::Lost.name(), |_, state: &State| !state.faults.has(Fault::Lost)),
            Property::always(Fault::Double.name(), |_, state: &State| {
                !state.faults.has(Fault::Double)
            }),
            Property::always(Fault::Content.name(), |_, state: &State| {
                !state.faults.has(Fault::Content)
            }),
        ]
    }
}
