//! Generates weighted random operations, guided by the reference.
//!
//! The generator looks at the state of the reference, so that most operations make sense there: the
//! paths exist, the slots are open, the offsets are near the data. A configured share is odd on
//! purpose. Three things are never generated:
//!
//! * what would leave the root of the subject: absolute paths, symbolic links whose target is
//!   absolute or has `..`, `..` behind anything but a real directory below the root;
//! * what would not return, or whose answer says nothing about a file system
//!   ([`Model::unspecified`]);
//! * what the subject cannot do ([`Capability`]), and, where the harness is not privileged, modes
//!   that would lock the harness itself out.

mod args;
mod attributes;
mod config;
mod data;
mod held;
mod inputs;
mod listing;
mod meta;
mod names;
mod paths;
mod view;

use std::collections::{BTreeSet, VecDeque};

use fathom_core::flags::{Access, OpenFlags, ServerEvents};
use fathom_core::{Capability, FsPath, Kind, Op, Outcome, Payload, Slot, Target};
use fathom_model::Model;

pub use config::{Call, Config, ConfigError, DEFAULT_TOML};
use held::Held;
use inputs::Tables;
use view::View;

use crate::choice::Choices;

/// Number of operations in a row that cannot be used before the generator gives up on its
/// configuration.
const REFUSED_MAX: u32 = 10_000;

/// What may happen to a server: one thing at a time, or a restart while a client holds locks.
const SERVER_EVENTS: [ServerEvents; 6] = [
    ServerEvents::SERVER_STOP,
    ServerEvents::SERVER_KILL,
    ServerEvents::EXPORT_REMOVE,
    ServerEvents::CLIENT_EXPIRE,
    ServerEvents::LOCK_ROUND,
    ServerEvents::LOCK_ROUND.union(ServerEvents::SERVER_STOP),
];

/// How long nothing is called: less than any timer, longer than the commit interval of journals (5 s),
/// longer than dirty pages may stay in memory (30 s).
const WAITS_SECONDS: [u32; 3] = [1, 6, 31];

/// The generator's knowledge of an open file.
#[derive(Clone, Debug)]
struct OpenSlot {
    /// Its path when it was opened.
    path: FsPath,
    kind: Kind,
    readable: bool,
    writable: bool,
    /// It has no name yet: `O_TMPFILE` made it.
    nameless: bool,
    /// Its size, where that was looked at ([`Generator::note_sizes`]).
    size: u64,
}

/// Produces one operation after the other.
#[derive(Clone, Debug)]
pub struct Generator {
    choices: Choices,
    config: Config,
    capabilities: BTreeSet<Capability>,
    calls: Vec<(Call, u32)>,
    tables: Tables,
    view: View,
    slots: Vec<Option<OpenSlot>>,
    /// Number of patterns so far: every write has its own, so that a lost or misplaced one shows.
    patterns: u64,
    /// Whether the operation being made is one of the odd ones.
    odd: bool,
    /// What is held open over several meta-operations, if that is allowed.
    held: Held,
    /// What comes next in a random walk that is reading a directory in pieces.
    planned: VecDeque<Op>,
}

impl Generator {
    /// Makes a generator for an empty file system.
    pub fn new(choices: Choices, config: Config, capabilities: BTreeSet<Capability>) -> Generator {
        let possible = |call: &Call| match call {
            Call::Identity => capabilities.contains(&Capability::Identity),
            Call::Remount => capabilities.contains(&Capability::Remount),
            Call::Server => capabilities.contains(&Capability::Server),
            _ => true,
        };
        let calls = config
            .weights
            .iter()
            .filter(|(call, weight)| **weight > 0 && possible(call))
            .map(|(call, weight)| (*call, *weight))
            .collect();
        let tables = config.inputs.tables();
        let slots = vec![None; usize::from(config.slots.count)];
        Generator {
            choices,
            config,
            capabilities,
            calls,
            tables,
            view: View::default(),
            slots,
            patterns: 0,
            odd: false,
            held: Held::default(),
            planned: VecDeque::new(),
        }
    }

    /// Starts again with an empty file system and another stream of choices.
    pub fn restart(&mut self, choices: Choices) {
        self.held.slot = None;
        self.planned.clear();
        self.begin(choices);
        self.patterns = 0;
        self.view = View::default();
    }

    /// The kinds of operation that this generator can produce.
    pub fn calls(&self) -> impl Iterator<Item = Call> {
        self.calls.iter().map(|(call, _)| *call)
    }

    /// Draws the next operation for the state that `model` is in.
    ///
    /// # Panics
    /// If nothing that the configuration allows can be used.
    pub fn next(&mut self, model: &Model) -> Op {
        if let Some(op) = self.planned.pop_front() {
            return op;
        }
        self.view.refresh(model);
        if let Some(op) = self.browse_in_walk(model) {
            return op;
        }
        for _ in 0..REFUSED_MAX {
            let call = self.draw();
            if let Some(op) = self.usable(call, model) {
                return op;
            }
        }
        panic!("{REFUSED_MAX} operations in a row cannot be used: give other weights");
    }

    /// Draws the kind of the next operation, and whether it is an odd one.
    fn draw(&mut self) -> Call {
        self.odd = self.choices.percent(self.config.odd.percent);
        let call = self.choices.weighted(&self.calls);
        self.limit_entries(call)
    }

    /// Makes an operation of this kind, unless it would not return or its answer says nothing.
    fn usable(&mut self, call: Call, model: &Model) -> Option<Op> {
        if call == Call::MmapStore {
            self.note_sizes(model);
        }
        let op = without_waiting(self.make(call), model);
        model.unspecified(&op).is_none().then_some(op)
    }

    /// Takes the answer of the reference, so that the generator knows its open files.
    pub fn note(&mut self, op: &Op, answer: &Outcome, model: &Model) {
        match op {
            // Opening closes what the slot held, even if it fails then.
            Op::Open { slot, path, flags, .. } => {
                self.set_slot(*slot, open_slot(model, *slot, path, *flags));
            }
            Op::Close { slot } if answer.result.is_ok() => self.set_slot(*slot, None),
            Op::Remount => {
                self.slots.fill(None);
                self.held.slot = None;
            }
            _ => {}
        }
    }

    /// Looks at how long the open files are.
    fn note_sizes(&mut self, model: &Model) {
        for (slot, open) in self.slots.iter_mut().enumerate() {
            let ino = model.slot_ino(slot as Slot);
            let attr = ino.and_then(|ino| model.volume().attr(ino).ok());
            if let (Some(open), Some(attr)) = (open, attr) {
                open.size = attr.size;
            }
        }
    }

    fn set_slot(&mut self, slot: Slot, open: Option<OpenSlot>) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            *place = open;
        }
    }

    /// Replaces a call that makes an entry by one that removes one, where there are too many.
    fn limit_entries(&self, call: Call) -> Call {
        if self.view.nodes().len() <= self.config.names.entries_max {
            return call;
        }
        match call {
            Call::Mkdir => Call::Rmdir,
            Call::Link | Call::LinkSlot | Call::Symlink | Call::Mknod => Call::Unlink,
            other => other,
        }
    }

    fn make(&mut self, call: Call) -> Op {
        match call {
            Call::Open => self.open(),
            Call::Close => Op::Close { slot: self.slot(|_| true) },
            Call::Read => self.read(),
            Call::Pread => self.pread(),
            Call::Write => self.write(),
            Call::Pwrite => self.pwrite(),
            Call::Lseek => self.lseek(),
            Call::Truncate => self.truncate(),
            Call::Fallocate => self.fallocate(),
            Call::Mkdir => self.mkdir(),
            Call::Rmdir => self.rmdir(),
            Call::Unlink => self.unlink(),
            Call::Rename => self.rename(),
            Call::Link => self.link(),
            Call::LinkSlot => self.link_slot(),
            Call::Symlink => self.symlink(),
            Call::Readlink => self.readlink(),
            Call::Mknod => self.mknod(),
            Call::Chmod => self.chmod(),
            Call::Chown => self.chown(),
            Call::Utimens => self.utimens(),
            Call::Setxattr => self.setxattr(),
            Call::Getxattr => self.getxattr(),
            Call::Listxattr => self.listxattr(),
            Call::Removexattr => self.removexattr(),
            Call::Stat => Op::Stat { target: self.target() },
            Call::Getdents => Op::Getdents { slot: self.slot(|open| open.kind == Kind::Dir) },
            Call::ListPiece => self.list_piece(),
            Call::Statfs => Op::Statfs { target: self.target() },
            Call::Access => self.access(),
            Call::Fsync => Op::Fsync { slot: self.slot(|_| true) },
            Call::Fdatasync => Op::Fdatasync { slot: self.slot(|_| true) },
            Call::Sync => Op::Sync,
            Call::Syncfs => Op::Syncfs { slot: self.slot(|_| true) },
            Call::SyncFileRange => self.sync_file_range(),
            Call::MmapStore => self.mmap_store(),
            Call::MmapLoad => self.mmap_load(),
            Call::CopyFileRange => self.copy_file_range(),
            Call::Umask => self.umask(),
            Call::Identity => self.identity(),
            Call::Remount => Op::Remount,
            Call::Wait => Op::Wait { seconds: *self.choices.pick(&WAITS_SECONDS) },
            Call::Server => Op::Server { events: *self.choices.pick(&SERVER_EVENTS) },
        }
    }

    /// Draws an open slot that `wanted` accepts if there is one; an odd operation may get any slot,
    /// also one that was never opened.
    fn slot(&mut self, wanted: impl Fn(&OpenSlot) -> bool) -> Slot {
        if self.odd && self.choices.percent(50) {
            return self.choices.below(self.slots.len() as u64 + 1) as Slot;
        }
        let open = |wanted: &dyn Fn(&OpenSlot) -> bool| -> Vec<usize> {
            (0..self.slots.len())
                .filter(|&index| self.slots[index].as_ref().is_some_and(wanted))
                .collect()
        };
        let mut fitting = open(&wanted);
        if fitting.is_empty() {
            fitting = open(&|_| true);
        }
        if fitting.is_empty() {
            fitting.push(0);
        }
        *self.choices.pick(&fitting) as Slot
    }

    /// Draws a slot with a file whose contents can be read.
    fn readable_slot(&mut self) -> Slot {
        self.slot(|open| open.kind == Kind::File && open.readable)
    }

    /// Draws a slot with a file whose contents can be changed.
    fn writable_slot(&mut self) -> Slot {
        self.slot(|open| open.kind == Kind::File && open.writable)
    }
}

/// Adds `O_NONBLOCK` to the opening of a FIFO: even where another error comes first, a harness that
/// sees a FIFO and no such flag is right to refuse.
fn without_waiting(mut op: Op, model: &Model) -> Op {
    if let Op::Open { path, flags, .. } = &mut op {
        let stat = model.clone().execute(&Op::Stat { target: Target::Path(path.clone()) });
        let kind = match stat.payload {
            Payload::Stat(stat) => Kind::of_mode(stat.mode.0),
            _ => None,
        };
        if kind == Some(Kind::Fifo) {
            *flags |= OpenFlags::O_NONBLOCK;
        }
    }
    op
}

/// Describes the file that the reference holds open in `slot`, opened as `path` with `flags`.
fn open_slot(model: &Model, slot: Slot, path: &FsPath, flags: OpenFlags) -> Option<OpenSlot> {
    let stat = model.clone().execute(&Op::Stat { target: Target::Slot(slot) });
    let Payload::Stat(stat) = stat.payload else { return None };
    let usable = !flags.contains(OpenFlags::O_PATH);
    let access = flags.access();
    Some(OpenSlot {
        path: path.clone(),
        kind: Kind::of_mode(stat.mode.0)?,
        readable: usable && matches!(access, Access::Read | Access::ReadWrite),
        writable: usable && matches!(access, Access::Write | Access::ReadWrite),
        nameless: flags.contains(OpenFlags::O_TMPFILE_BIT) && stat.nlink == 0,
        size: stat.size,
    })
}
