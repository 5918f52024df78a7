//! Directories that are read in pieces while their names change.

use fathom_core::flags::OpenFlags;
use fathom_core::{FsPath, Kind, Mode, Op, Slot};
use fathom_model::Model;

use super::meta::Meta;
use super::{Call, Generator};

/// Room for one short name, for two or three, for a handful, for a block, for as much as the C library asks for.
const PIECES_BYTES: [u64; 8] = [48, 48, 72, 72, 144, 280, 4096, 32768];

/// Enough room for the entries of a small directory.
const WHOLE_BYTES: u64 = 32768;

/// Share of pieces before which the listing goes back to where an earlier one began.
const BACK_PERCENT: u32 = 15;

/// Farthest that it goes back.
const BACK_MAX: u64 = 4;

/// Share of pieces before which the listing begins again.
const REWIND_PERCENT: u32 = 3;

/// One meta-operation in so many reads a directory in pieces.
const BROWSE_ONE_IN: u64 = 40;

/// And one operation in so many of a random walk begins to.
const WALK_BROWSE_ONE_IN: u64 = 200;

/// Most pieces of one that is read so.
const BROWSE_PIECES_MAX: u64 = 8;

/// What changes names.
const CHANGES: [Call; 6] =
    [Call::Unlink, Call::Rename, Call::Mknod, Call::Link, Call::Mkdir, Call::Rmdir];

impl Generator {
    pub(super) fn list_piece(&mut self) -> Op {
        let slot = self.slot(|open| open.kind == Kind::Dir);
        self.piece_of(slot)
    }

    pub(super) fn piece_of(&mut self, slot: Slot) -> Op {
        let len = *self.choices.pick(&PIECES_BYTES);
        let back = if self.choices.percent(REWIND_PERCENT) {
            u32::MAX
        } else if self.choices.percent(BACK_PERCENT) {
            1 + self.choices.below(BACK_MAX) as u32
        } else {
            0
        };
        Op::ListPiece { slot, back, len }
    }

    /// Now and then, reads a directory in pieces to its end, with changes of names in between.
    pub(super) fn browse(&mut self, meta: &mut Meta) -> bool {
        self.can_browse() && self.choices.below(BROWSE_ONE_IN) == 0 && self.browse_now(meta)
    }

    /// The same in a random walk: the first operation, the others come next.
    pub(super) fn browse_in_walk(&mut self, model: &Model) -> Option<Op> {
        if !self.can_browse() || self.choices.below(WALK_BROWSE_ONE_IN) != 0 {
            return None;
        }
        let mut meta = Meta::new(model);
        self.browse_now(&mut meta);
        self.planned = meta.ops.into();
        self.planned.pop_front()
    }

    fn can_browse(&self) -> bool {
        let offered = |call| self.calls.iter().any(|(offered, _)| *offered == call);
        offered(Call::Open) && offered(Call::ListPiece)
    }

    fn browse_now(&mut self, meta: &mut Meta) -> bool {
        let offered = |call| self.calls.iter().any(|(offered, _)| *offered == call);
        let slot = (self.slots.len() - 1) as Slot;
        if self.held.slot.is_some_and(|(held, _)| held == slot) {
            return false;
        }
        let changes: Vec<Call> = CHANGES.into_iter().filter(|call| offered(*call)).collect();
        self.view.refresh(&meta.model);
        let dir = self.crowded_dir();
        let flags = OpenFlags::O_DIRECTORY;
        self.play(Op::Open { slot, path: dir.clone(), flags, mode: Mode(0o755) }, meta);
        for _ in 0..2 + self.choices.below(BROWSE_PIECES_MAX) {
            let piece = self.piece_of(slot);
            self.play(piece, meta);
            self.change_name(&dir, &changes, meta);
        }
        // Whoever answers with less than fits has a second and a third call to come to the end.
        for _ in 0..3 {
            self.play(Op::ListPiece { slot, back: 0, len: WHOLE_BYTES }, meta);
        }
        true
    }

    /// The one of two directories that has more entries.
    fn crowded_dir(&mut self) -> FsPath {
        let dirs = self.view.select(|node| node.kind == Kind::Dir);
        let drawn = [0; 2].map(|_: u8| self.choices.pick(&dirs).path.clone());
        let size = |dir: &FsPath| self.view.children(dir).count();
        let [one, other] = drawn;
        if size(&one) >= size(&other) { one } else { other }
    }

    /// Changes a name, mostly one of the directory that is being read.
    fn change_name(&mut self, dir: &FsPath, changes: &[Call], meta: &mut Meta) {
        self.view.refresh(&meta.model);
        let children: Vec<(FsPath, Kind)> =
            self.view.children(dir).map(|node| (node.path.clone(), node.kind)).collect();
        if !children.is_empty() && changes.contains(&Call::Unlink) && self.choices.percent(30) {
            let (path, kind) = self.choices.pick(&children).clone();
            let op = if kind == Kind::Dir { Op::Rmdir { path } } else { Op::Unlink { path } };
            if meta.model.unspecified(&op).is_none() {
                self.play(op, meta);
            }
        } else if !changes.is_empty() && self.choices.percent(70) {
            let call = *self.choices.pick(changes);
            if let Some(op) = self.usable(call, &meta.model) {
                self.play(op, meta);
            }
        }
    }
}
