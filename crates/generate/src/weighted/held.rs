//! What meta-operations leave open for each other, and directories with many names.
//!
//! A state is a tree, and a file that is open is not part of it. So what is held open is an addition: a
//! move of a state may then do something else than the map expects, which costs a detour, and reaches
//! what files and directories that stay open over removals, renames and remounts of names reach.

use fathom_core::{FsPath, Kind, Mode, Op, Slot};

use super::meta::Meta;
use super::{Call, Generator};

/// Share of meta-operations that leave something open.
const HOLD_PERCENT: u32 = 4;

/// Longest time for which something is held, in meta-operations.
const METAS_MAX: u64 = 8;

/// One meta-operation in so many fills a directory and empties it again.
const CROWD_ONE_IN: u64 = 3000;

/// Most names of a crowd: more than one level of the directory indexes of ext4, XFS and btrfs with names
/// of this length.
const CROWD_MAX: u64 = 1200;

/// While a crowd goes, a piece of the directory is read after so many names.
const CROWD_PIECE_EVERY: u64 = 12;

/// Bytes of a name of a crowd.
const CROWD_NAME_BYTES: usize = 60;

/// What is held open.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// Whether anything may be: only where a state need not be saved.
    allowed: bool,
    /// The slot, and for how many meta-operations more.
    pub(super) slot: Option<(Slot, u64)>,
}

impl Generator {
    /// From now on, meta-operations may leave a file or a directory open for those that follow.
    pub fn hold_files(&mut self) {
        self.held.allowed = true;
    }

    /// Nothing is open any more.
    pub fn forget_held(&mut self) {
        self.held.slot = None;
        self.planned.clear();
        self.slots.fill(None);
    }

    /// Forgets all open files but what is held.
    pub(super) fn forget_all_but_held(&mut self) {
        let held = self.held.slot.map(|(slot, _)| usize::from(slot));
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if Some(index) != held {
                *slot = None;
            }
        }
    }

    /// Decides what stays open after a meta-operation.
    pub(super) fn choose_held(&mut self) {
        self.held.slot = match self.held.slot {
            Some((slot, left)) if left > 1 && self.slots[usize::from(slot)].is_some() => {
                Some((slot, left - 1))
            }
            Some(_) => None,
            None if self.held.allowed && self.choices.percent(HOLD_PERCENT) => {
                // The first slot is for what a single call needs.
                let open = (1..self.slots.len()).find(|index| {
                    let open = self.slots[*index].as_ref();
                    open.is_some_and(|open| matches!(open.kind, Kind::File | Kind::Dir))
                });
                open.map(|slot| (slot as Slot, 1 + self.choices.below(METAS_MAX)))
            }
            None => None,
        };
    }

    /// Whether every call that a crowd consists of is offered by the subject and asked for.
    fn can_crowd(&self) -> bool {
        let offered = |call| self.calls.iter().any(|(offered, _)| *offered == call);
        [Call::Open, Call::Mknod, Call::Getdents, Call::Unlink].into_iter().all(offered)
    }

    /// Now and then, fills a directory with names and removes them again, in another order and with
    /// listings in between. Nothing is left of it.
    pub(super) fn crowd(&mut self, meta: &mut Meta) -> bool {
        if !self.held.allowed || !self.can_crowd() || self.choices.below(CROWD_ONE_IN) != 0 {
            return false;
        }
        self.view.refresh(&meta.model);
        let dirs = self.view.select(|node| node.kind == Kind::Dir);
        let dir = self.choices.pick(&dirs).path.clone();
        let count = 100 + self.choices.below(CROWD_MAX - 100);
        let slot = (self.slots.len() - 1) as Slot;
        if self.held.slot.is_some_and(|(held, _)| held == slot) {
            return false;
        }
        let flags = fathom_core::flags::OpenFlags::O_DIRECTORY;
        self.play(Op::Open { slot, path: dir.clone(), flags, mode: Mode(0) }, meta);
        for number in 0..count {
            let mode = Mode(Mode::S_IFREG | 0o644);
            self.play(Op::Mknod { path: crowd_name(&dir, number), mode, dev: (0, 0) }, meta);
        }
        self.play(Op::Getdents { slot }, meta);
        let pieces = self.calls.iter().any(|(offered, _)| *offered == Call::ListPiece);
        // A step that has no divisor in common with the number of names visits each once.
        let step = (count / 2..count).rev().find(|step| gcd(*step, count) == 1).unwrap_or(1);
        for turn in 0..count {
            let number = turn * step % count;
            self.play(Op::Unlink { path: crowd_name(&dir, number) }, meta);
            if turn % (count / 3) == 0 {
                self.play(Op::Getdents { slot }, meta);
            }
            if pieces && turn % CROWD_PIECE_EVERY == 0 {
                let piece = self.piece_of(slot);
                self.play(piece, meta);
            }
        }
        true
    }
}

fn crowd_name(dir: &FsPath, number: u64) -> FsPath {
    let mut name = format!("crowd-{number:05}-").into_bytes();
    name.resize(CROWD_NAME_BYTES, b'c');
    dir.join(&name)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fathom_core::Operand;
    use fathom_model::Model;

    use super::super::Config;
    use super::*;
    use crate::choice::Choices;

    /// How many crowds there are among many meta-operations.
    fn crowds(config: Config) -> usize {
        let mut generator = Generator::new(Choices::new(1), config, BTreeSet::new());
        generator.hold_files();
        let model = Model::new(Default::default()).unwrap();
        let mut count = 0;
        for seed in 0..4 * CROWD_ONE_IN {
            generator.restart(Choices::new(seed));
            let mut in_crowd = false;
            for op in generator.meta(&model) {
                op.operands(|operand| {
                    in_crowd |= matches!(operand, Operand::Path(path, ..)
                        if path.as_bytes().windows(6).any(|part| part == b"crowd-"));
                });
            }
            count += usize::from(in_crowd);
        }
        count
    }

    #[test]
    fn a_crowd_consists_of_calls_that_are_offered() {
        assert!(crowds(Config::default()) > 0);
        for call in [Call::Mknod, Call::Getdents] {
            let mut config = Config::default();
            config.weights.remove(&call);
            assert_eq!(crowds(config), 0, "{call:?}");
        }
    }
}
