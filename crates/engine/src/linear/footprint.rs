//! What a call looks at and changes, so that calls that have nothing to do with each other need not be
//! tried in both orders.
//!
//! It must hold whatever state the call is executed in, so it is taken from the names alone, and coarse:
//! a name is known by its last component, wherever it is, since a directory on the way may be renamed
//! meanwhile. Names that can come to mean the same file (by `link`, `rename`, `symlink`) are one. A slot is
//! the name by which its caller opened it. Anything unusual in a path concerns everything.

use std::collections::{BTreeMap, HashMap};

use fathom_core::{Effect, FsPath, Op, Operand, Slot, Target};
use twox_hash::XxHash64;

/// Sets of things, one bit each. Two things may share a bit: then calls on them are thought to conflict.
type Things = u128;

const EVERYTHING: Things = Things::MAX;

/// What one call looks at and changes. Of two calls that only add to a directory (a name each, which are
/// things of their own), none sees the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    looks: Things,
    adds: Things,
    changes: Things,
}

impl Footprint {
    const ALL: Footprint = Footprint { looks: EVERYTHING, adds: 0, changes: EVERYTHING };

    /// Whether the order of the two may matter.
    pub(super) fn conflicts(&self, other: &Footprint) -> bool {
        let one_way = |a: &Footprint, b: &Footprint| {
            a.changes & (b.looks | b.adds | b.changes) | a.adds & b.looks
        };
        one_way(self, other) | one_way(other, self) != 0
    }
}

/// The names of a history, those that can mean the same file as one.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// A name with the same meaning, until it is its own.
    same: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Something makes names mean anything.
    unusual: bool,
}

/// The last component, if the path has nothing but names in it.
fn last_name(path: &[u8]) -> Option<&[u8]> {
    let mut names = path.split(|byte| *byte == b'/');
    let plain = names.clone().all(|name| !matches!(name, b"" | b"." | b".."));
    if plain { names.next_back() } else { None }
}

impl Names {
    /// The names of all operations of a history.
    pub(super) fn of<'a>(ops: impl Iterator<Item = &'a Op>) -> Names {
        let mut names = Names::default();
        for op in ops {
            match op {
                Op::Rename { from, to, .. } | Op::Link { from, to, .. } => names.join(from, to),
                Op::Symlink { target, path } => names.join(target, path),
                // No operation brings back what was hidden by a mount, but it closes everybody's files.
                Op::Remount => names.unusual = true,
                _ => {}
            }
        }
        names
    }

    fn join(&mut self, one: &FsPath, other: &FsPath) {
        let (Some(one), Some(other)) = (last_name(one.as_bytes()), last_name(other.as_bytes()))
        else {
            self.unusual = true;
            return;
        };
        let (one, other) = (self.root(one).to_vec(), self.root(other).to_vec());
        if one != other {
            self.same.insert(one, other);
        }
    }

    fn root<'n>(&'n self, mut name: &'n [u8]) -> &'n [u8] {
        while let Some(next) = self.same.get(name) {
            name = next;
        }
        name
    }

    fn bit(&self, facet: u64, name: &[u8]) -> Things {
        1 << (XxHash64::oneshot(facet, self.root(name)) % u64::from(Things::BITS))
    }

    /// A file, its names and attributes.
    fn node(&self, name: &[u8]) -> Things {
        self.bit(1, name)
    }

    /// What is in a directory.
    fn list(&self, name: &[u8]) -> Things {
        self.bit(2, name)
    }

    /// For the calls of one caller, from its first.
    pub(super) fn slots(&self) -> Slots<'_> {
        Slots { names: self, paths: HashMap::new() }
    }
}

/// The names under which a caller has opened its slots.
pub(super) struct Slots<'n> {
    names: &'n Names,
    paths: HashMap<Slot, FsPath>,
}

impl Slots<'_> {
    /// The footprint of the next call of the caller.
    pub(super) fn footprint(&mut self, op: &Op) -> Footprint {
        let mut print = self.named(op);
        if let Op::Open { slot, path, .. } = op {
            self.paths.insert(*slot, path.clone());
        }
        if matches!(op, Op::Remount | Op::Statfs { .. }) || self.names.unusual {
            print = Footprint::ALL;
        }
        print
    }

    fn named(&self, op: &Op) -> Footprint {
        let mut print = Footprint::default();
        op.operands(|operand| match operand {
            Operand::Path(path, _, _, effect) => self.path(path, effect, &mut print),
            Operand::Target(Target::Path(path) | Target::Link(path), _, effect) => {
                self.path(path, effect, &mut print);
            }
            Operand::Target(Target::Slot(slot), _, effect) | Operand::Slot(slot, _, effect) => {
                self.slot(*slot, op, effect, &mut print);
            }
            _ => {}
        });
        // Truncating is changing, whatever the table says of opening.
        if let Op::Open { path, flags, .. } = op
            && flags.intersects(fathom_core::flags::OpenFlags::O_TRUNC)
        {
            self.path(path, Effect::Changes, &mut print);
        }
        print
    }

    fn slot(&self, slot: Slot, op: &Op, effect: Effect, print: &mut Footprint) {
        let is_open = matches!(op, Op::Open { .. });
        let Some(path) = self.paths.get(&slot).filter(|_| !is_open) else { return };
        match last_name(path.as_bytes()) {
            Some(name) => self.file(name, effect, print),
            None if path.as_bytes() == b"." => self.file(b".", effect, print),
            None => *print = Footprint::ALL,
        }
    }

    fn path(&self, path: &FsPath, effect: Effect, print: &mut Footprint) {
        if path.as_bytes() == b"." {
            return self.file(b".", effect, print);
        }
        let Some(name) = last_name(path.as_bytes()) else {
            *print = Footprint::ALL;
            return;
        };
        print.looks |= self.names.node(b".");
        let above = path.as_bytes().split(|byte| *byte == b'/');
        let depth = above.clone().count();
        for above in above.take(depth - 1) {
            print.looks |= self.names.node(above);
        }
        self.file(name, effect, print);
        if effect == Effect::Binds {
            print.adds |= self.names.list(parent_name(path.as_bytes()));
            // What is replaced or removed must be empty.
            print.looks |= self.names.list(name);
        }
    }

    fn file(&self, name: &[u8], effect: Effect, print: &mut Footprint) {
        match effect {
            Effect::Reads => print.looks |= self.names.node(name) | self.names.list(name),
            Effect::Changes | Effect::Binds => print.changes |= self.names.node(name),
        }
    }
}

/// The name of the directory that has a name.
fn parent_name(path: &[u8]) -> &[u8] {
    let mut names = path.rsplit(|byte| *byte == b'/');
    names.next();
    names.next().unwrap_or(b".")
}

#[cfg(test)]
mod tests {
    use fathom_core::Mode;
    use fathom_core::flags::{OpenFlags, RenameFlags};

    use super::*;

    fn prints(ops: &[Op]) -> Vec<Footprint> {
        let names = Names::of(ops.iter());
        let mut slots = names.slots();
        ops.iter().map(|op| slots.footprint(op)).collect()
    }

    fn conflict(one: Op, other: Op) -> bool {
        let prints = prints(&[one, other]);
        prints[0].conflicts(&prints[1])
    }

    fn mkdir(path: &str) -> Op {
        Op::Mkdir { path: path.into(), mode: Mode(0o755) }
    }

    fn stat(path: &str) -> Op {
        Op::Stat { target: Target::Path(path.into()) }
    }

    fn rename(from: &str, to: &str) -> Op {
        Op::Rename { from: from.into(), to: to.into(), flags: RenameFlags::empty() }
    }

    #[test]
    fn names_of_their_own_commute_in_one_directory() {
        assert!(!conflict(mkdir("a"), mkdir("b")));
        assert!(!conflict(mkdir("d/a"), Op::Unlink { path: "d/b".into() }));
        assert!(!conflict(stat("a"), stat("a")));
        assert!(!conflict(stat("a"), mkdir("b")));
    }

    #[test]
    fn the_same_name_the_directory_above_and_its_list_do_not() {
        assert!(conflict(mkdir("a"), mkdir("a")));
        assert!(conflict(mkdir("a"), stat("a")));
        assert!(conflict(mkdir("d/a"), Op::Rmdir { path: "d".into() }));
        assert!(conflict(mkdir("d/a"), stat("d")), "the link count of a directory");
        assert!(conflict(mkdir("d/a"), rename("d", "e")));
        assert!(conflict(mkdir("a"), stat(".")));
        assert!(conflict(mkdir("d/e/a"), rename("d", "x")), "a directory on the way");
    }

    #[test]
    fn names_that_can_mean_the_same_are_one() {
        let ops = [
            Op::Link { from: "f".into(), to: "g".into(), follow: false },
            Op::Truncate { target: Target::Path("f".into()), len: 0 },
            stat("g"),
            stat("h"),
        ];
        let prints = prints(&ops);
        assert!(prints[1].conflicts(&prints[2]) && !prints[1].conflicts(&prints[3]));
        // The same last name may be below a directory that was renamed.
        assert!(conflict(mkdir("d/x"), stat("e/x")));
    }

    #[test]
    fn a_slot_is_the_name_by_which_it_was_opened() {
        let open = |slot, path: &str, flags| Op::Open {
            slot,
            path: path.into(),
            flags,
            mode: Mode(0o644),
        };
        let write = Op::Write { slot: 0, data: fathom_core::Pattern { seed: 1, len: 1 } };
        let ops = [open(0, "f", OpenFlags::O_RDWR), write.clone(), stat("f"), stat("g")];
        let prints = prints(&ops);
        assert!(prints[1].conflicts(&prints[2]) && !prints[1].conflicts(&prints[3]));
        assert!(conflict(open(0, "f", OpenFlags::O_TRUNC | OpenFlags::O_RDWR), stat("f")));
        assert!(!conflict(open(0, "f", OpenFlags::O_RDWR), stat("f")));
    }

    #[test]
    fn what_is_unusual_concerns_everything() {
        assert!(conflict(stat("d/../a"), mkdir("b")));
        assert!(conflict(Op::Remount, stat("a")));
        assert!(conflict(Op::Statfs { target: Target::Path(".".into()) }, mkdir("b")));
    }
}
