//! Meta-operations: a few calls that leave nothing behind but the tree.
//!
//! Files that are opened are closed again, the caller and the mask are the first ones again. So the
//! tree alone says what a later meta-operation can do, and a state is a tree.

use fathom_core::flags::OpenFlags;
use fathom_core::{Capability, Kind, Mode, Op, Slot};
use fathom_model::Model;

use super::config::Call;
use super::{Generator, OpenSlot, REFUSED_MAX};
use crate::choice::Choices;

/// Number of times that an opening which does not give what is needed is drawn again.
const OPENINGS_MAX: usize = 4;

/// Greatest number of calls between the first opening and the last closing of a session.
const SESSION_OPS_MAX: u64 = 5;

/// Share of meta-operations that are not root's: that of the identities that a random walk draws.
const IDENTITY_PERCENT: u32 = 27;

/// The slot of the file that a meta-operation opens.
const SLOT: Slot = 0;

/// The open file that a call needs to be more than an `EBADF`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Nothing,
    Readable,
    Writable,
    Both,
    Dir,
    Nameless,
    Any,
}

impl Need {
    fn of(call: Call) -> Need {
        match call {
            Call::Read | Call::Pread | Call::MmapLoad => Need::Readable,
            Call::Write | Call::Pwrite | Call::Fallocate | Call::SyncFileRange => Need::Writable,
            Call::MmapStore | Call::CopyFileRange => Need::Both,
            Call::Getdents | Call::ListPiece => Need::Dir,
            Call::LinkSlot => Need::Nameless,
            Call::Lseek | Call::Fsync | Call::Fdatasync | Call::Syncfs => Need::Any,
            _ => Need::Nothing,
        }
    }

    fn is_met(self, open: &OpenSlot) -> bool {
        match self {
            Need::Nothing | Need::Any => true,
            Need::Readable => open.kind == Kind::File && open.readable,
            Need::Writable => open.kind == Kind::File && open.writable,
            Need::Both => open.kind == Kind::File && open.readable && open.writable,
            Need::Dir => open.kind == Kind::Dir,
            Need::Nameless => open.nameless,
        }
    }
}

impl Generator {
    /// Goes on with another stream of choices and no file open.
    pub fn begin(&mut self, choices: Choices) {
        self.choices = choices;
        self.forget_all_but_held();
    }

    /// The next meta-operation for the state that `model` is in, in which nothing is open.
    ///
    /// # Panics
    /// If nothing that the configuration allows can be used.
    pub fn meta(&mut self, model: &Model) -> Vec<Op> {
        let mut meta = Meta::new(model);
        if self.crowd(&mut meta) || self.browse(&mut meta) {
            self.tidy_up(model, &mut meta);
            return meta.ops;
        }
        self.begin_as_somebody(&mut meta);
        let session = self.choices.percent(self.config.slots.session_percent);
        let calls = if session { 2 + self.choices.below(SESSION_OPS_MAX - 1) } else { 1 };
        let calls = calls + meta.ops.len() as u64;
        for _ in 0..REFUSED_MAX {
            if meta.ops.len() as u64 >= calls {
                self.tidy_up(model, &mut meta);
                return meta.ops;
            }
            self.view.refresh(&meta.model);
            let call = match self.draw() {
                // Remounts are decided elsewhere, and closing is done at the end anyway.
                Call::Remount => continue,
                Call::Close => Call::Open,
                call => call,
            };
            let need = Need::of(call);
            if need != Need::Nothing && !self.odd && !self.has(need) {
                self.open_for(need, &mut meta);
            }
            if let Some(op) = self.usable(call, &meta.model) {
                self.play(op, &mut meta);
            }
        }
        panic!("{REFUSED_MAX} operations in a row cannot be used: give other weights");
    }

    /// Some meta-operations are those of another user, as many as in a random walk, in which an identity
    /// stays until the next one.
    fn begin_as_somebody(&mut self, meta: &mut Meta) {
        let possible = self.capabilities.contains(&Capability::Identity)
            && self.calls.iter().any(|(call, _)| *call == Call::Identity);
        if !possible || !self.choices.percent(IDENTITY_PERCENT) {
            return;
        }
        let op = self.identity_of_another();
        if meta.model.unspecified(&op).is_none() {
            self.play(op, meta);
        }
    }

    fn has(&self, need: Need) -> bool {
        self.slots.iter().flatten().any(|open| need.is_met(open))
    }

    pub(super) fn play(&mut self, op: Op, meta: &mut Meta) {
        let answer = meta.model.execute(&op);
        self.note(&op, &answer, &meta.model);
        meta.ops.push(op);
    }

    /// Opens a file that meets the need, with drawn flags if these do.
    fn open_for(&mut self, need: Need, meta: &mut Meta) {
        for _ in 0..OPENINGS_MAX {
            let Some(op) = self.usable(Call::Open, &meta.model) else { continue };
            let mut after = meta.model.clone();
            after.execute(&op);
            let Op::Open { slot, path, flags, .. } = &op else { continue };
            let open = super::open_slot(&after, *slot, path, *flags);
            if open.is_some_and(|open| need.is_met(&open)) {
                return self.play(op, meta);
            }
        }
        let (kind, flags) = match need {
            Need::Dir => (Kind::Dir, OpenFlags::O_DIRECTORY),
            Need::Nameless => (Kind::Dir, OpenFlags::O_TMPFILE | OpenFlags::O_RDWR),
            _ => (Kind::File, OpenFlags::O_RDWR | OpenFlags::O_CREAT),
        };
        let path = self.existing(&[kind]);
        self.play(Op::Open { slot: SLOT, path, flags, mode: Mode(0o644) }, meta);
        self.view.refresh(&meta.model);
    }

    /// Closes what is open and restores the identity and the mask.
    fn tidy_up(&mut self, start: &Model, meta: &mut Meta) {
        let config = start.volume().config();
        let (uid, gid, groups) = (config.uid, config.gid, config.groups.clone());
        if meta.ops.iter().any(|op| matches!(op, Op::Identity { .. })) {
            self.play(Op::Identity { uid, gid, groups }, meta);
        }
        if meta.ops.iter().any(|op| matches!(op, Op::Umask { .. })) {
            self.play(Op::Umask { mask: config.umask }, meta);
        }
        self.choose_held();
        let held = self.held.slot.map(|(slot, _)| slot);
        for slot in 0..self.slots.len() as Slot {
            if Some(slot) != held && self.slots[usize::from(slot)].is_some() {
                self.play(Op::Close { slot }, meta);
            }
        }
    }
}

/// A meta-operation in the making: its operations so far.
pub(super) struct Meta {
    /// The reference after the operations so far.
    pub(super) model: Model,
    pub(super) ops: Vec<Op>,
}

impl Meta {
    pub(super) fn new(model: &Model) -> Meta {
        Meta { model: model.clone(), ops: Vec::new() }
    }
}
