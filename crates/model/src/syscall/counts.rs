//! Link counts that change one by one while a call goes on.
//!
//! A call that changes names holds the locks of their directories until it is done; what `stat` shows of the inodes
//! it reads without them. So it sees the links of a directory that is removed go one after the other (`shmem_rmdir`:
//! `drop_nlink` twice), before the name is gone (`d_delete_notify`), and the other way round those of a directory
//! that gets a new one after the name is there (`shmem_mkdir`). [`Model::execute`] does all of this at once; who
//! judges calls that overlap does it step by step ([`Model::count`]).

use fathom_core::flags::RenameFlags;
use fathom_core::{Caller, FsPath, Kind, Op};
use serde::Deserialize;

use super::Model;
use super::resolve::{Follow, Last};
use super::steps::{Reached, rest};
use crate::volume::Ino;

/// What a call changes on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A link of what loses the name (`rmdir`, `rename` over it) or gets one (`link`).
    Itself,
    /// The link that a directory has from a subdirectory: of the one in which a name is made, removed or renamed.
    Above,
    /// The same of the directory that a renamed one moves to.
    Into,
    /// The names, and whatever else the call does.
    Name,
}

/// Link counts that others see of a call that is not done: how many more an inode seems to have, or fewer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counting {
    pub(super) seen: Vec<(Ino, i32)>,
    /// The names have changed already.
    pub(super) named: bool,
}

impl Counting {
    fn is_begun(&self) -> bool {
        self.named || !self.seen.is_empty()
    }
}

/// The inodes whose links an operation changes.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// With the number of links and the direction of each.
    itself: Option<(Ino, usize, i32)>,
    above: Option<(Ino, i32)>,
    into: Option<(Ino, i32)>,
}

impl Model {
    /// Does the next change of a call that does them in this order; `done` steps of its path are done. Returns
    /// whether there is one before its last: that is [`Model::finish`], or [`Model::take_away`].
    pub fn count(&mut self, caller: Caller, op: &Op, done: usize, order: &[Change]) -> bool {
        let changes = self.changes(caller, op, done, order);
        let at = self.as_caller(caller, |model| model.current.counting.seen.len());
        match (order.first(), changes.get(at)) {
            (Some(Change::Name), Some(_)) => {
                if self.finish(caller, op, done).result.is_err() {
                    return false;
                }
                let seen = changes.iter().map(|(ino, change)| (*ino, -change)).collect();
                let counting = Counting { seen, named: true };
                self.as_caller(caller, |model| model.current_mut().counting = counting);
                true
            }
            (_, Some(change)) => {
                self.as_caller(caller, |model| model.current_mut().counting.seen.push(*change));
                true
            }
            (_, None) => false,
        }
    }

    /// Whether what a call has changed on its way is what it changes: nobody else has put something else in its
    /// place, and it will not be refused.
    pub fn counts_hold(&mut self, caller: Caller, op: &Op, done: usize, order: &[Change]) -> bool {
        let counting = self.as_caller(caller, |model| model.current.counting.clone());
        !counting.is_begun()
            || counting.named
            || self.changes(caller, op, done, order).starts_with(&counting.seen)
    }

    /// Lets the link counts be what they are. Returns whether the call was done but for them.
    pub(super) fn end_counting(&mut self, caller: Caller) -> bool {
        self.as_caller(caller, |model| {
            let begun = model.current.counting.is_begun();
            begun && std::mem::take(&mut model.current_mut().counting).named
        })
    }

    /// How many links more than it has an inode seems to have, while calls go on.
    pub(super) fn links_seen(&self, ino: Ino) -> i32 {
        let seen = self.processes().flat_map(|process| &process.counting.seen);
        seen.filter(|(of, _)| *of == ino).map(|(_, change)| change).sum()
    }

    /// The changes of link counts that a call makes, in order: none if it would be refused.
    fn changes(
        &mut self,
        caller: Caller,
        op: &Op,
        done: usize,
        order: &[Change],
    ) -> Vec<(Ino, i32)> {
        let counted = self.as_caller(caller, |model| model.counted(op, done)).unwrap_or_default();
        let mut trial = self.clone();
        if trial.finish(caller, op, done).result.is_err() {
            return Vec::new();
        }
        let mut links_left = counted.itself.map_or(0, |(_, links, _)| links);
        let change = |change: &Change| match change {
            Change::Itself if links_left > 0 => {
                links_left -= 1;
                counted.itself.map(|(ino, _, by)| (ino, by))
            }
            Change::Above => counted.above,
            Change::Into => counted.into,
            Change::Itself | Change::Name => None,
        };
        order.iter().filter_map(change).collect()
    }

    fn counted(&self, op: &Op, done: usize) -> Option<Counted> {
        let none = Counted::default();
        // Where directories have one link whatever is in them, none comes from a subdirectory.
        let counts_dirs = !self.volume.config().quirks.dir_nlink_one;
        let of_dir = if counts_dirs { 2 } else { 1 };
        let from_dir = |dir, change| counts_dirs.then_some((dir, change));
        match op {
            Op::Mkdir { path, .. } => {
                let dir = self.resolve_parent(&rest(path, done)).ok()?.dir;
                Some(Counted { above: from_dir(dir, 1), ..none })
            }
            Op::Rmdir { path } => {
                let (dir, ino) = self.named(&rest(path, done))?;
                Some(Counted { itself: Some((ino?, of_dir, -1)), above: from_dir(dir, -1), ..none })
            }
            Op::Link { from, follow, .. } => {
                let follow = if *follow { Follow::Yes } else { Follow::No };
                let ino = match self.current.reached {
                    Reached::Node(ino) => ino,
                    _ => self.resolve(&rest(from, done), follow).ok()?,
                };
                Some(Counted { itself: Some((ino, 1, 1)), ..none })
            }
            Op::Rename { from, to, flags } if !flags.contains(RenameFlags::RENAME_EXCHANGE) => {
                let (old_dir, source) = self.named(from)?;
                let (new_dir, target) = self.named(to)?;
                let is_dir = |ino| self.volume.attr(ino).is_ok_and(|attr| attr.kind == Kind::Dir);
                let moves_a_dir = is_dir(source?);
                let links = if moves_a_dir { of_dir } else { 1 };
                Some(Counted {
                    itself: target.filter(|_| target != source).map(|ino| (ino, links, -1)),
                    above: from_dir(old_dir, -1).filter(|_| moves_a_dir),
                    into: from_dir(new_dir, 1).filter(|_| moves_a_dir && target.is_none()),
                })
            }
            _ => None,
        }
    }

    /// The directory of a path, and what is there by its last name.
    fn named(&self, path: &FsPath) -> Option<(Ino, Option<Ino>)> {
        let place = self.resolve_parent(path).ok()?;
        let Last::Name(name) = &place.last else { return None };
        Some((place.dir, self.lookup(place.dir, name).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn rename(from: &str, to: &str) -> Op {
        Op::Rename { from: path(from), to: path(to), flags: RenameFlags::empty() }
    }

    fn made() -> Model {
        let mut m = model();
        given(&mut m, &[mkdir("a", 0o755), mkdir("a/d", 0o755), mkdir("b", 0o755)]);
        given(&mut m, &[mkdir("b/e", 0o755), file("f", 0o644), file("g", 0o644)]);
        m
    }

    /// The link counts of some paths as `stat` sees them, in every step of a call.
    fn seen(op: &Op, order: &[Change], paths: &[&str]) -> Vec<Vec<Option<u32>>> {
        let mut m = made();
        let look = |m: &mut Model| {
            let links = paths.iter().map(|path| match m.execute(&stat(path)).payload {
                fathom_core::Payload::Stat(stat) => Some(stat.nlink),
                _ => None,
            });
            links.collect()
        };
        let mut all: Vec<Vec<Option<u32>>> = vec![look(&mut m)];
        let mut digests = vec![m.state_digest()];
        while m.count(1, op, 0, order) {
            assert!(m.counts_hold(1, op, 0, order));
            all.push(look(&mut m));
            assert!(!digests.contains(&m.state_digest()), "{op}");
            digests.push(m.state_digest());
            if order[0] == Change::Name {
                break;
            }
        }
        assert_eq!(m.finish(1, op, 0).result, Ok(0));
        all.push(look(&mut m));
        let mut whole = made();
        whole.execute_as(1, op);
        assert_eq!(m.state_digest(), whole.state_digest(), "{op}");
        m.volume().check_invariants().unwrap();
        all
    }

    #[test]
    fn links_go_one_by_one_in_the_order_of_the_file_system() {
        use Change::{Above, Into, Itself, Name};
        let removed = rmdir("a/d");
        let shmem = seen(&removed, &[Itself, Above, Itself, Name], &["a/d", "a"]);
        let (some, gone) = (Some, None);
        let steps =
            [[some(2), some(3)], [some(1), some(3)], [some(1), some(2)], [some(0), some(2)]];
        assert_eq!(
            (&shmem[..4], &shmem[4..]),
            (&steps.map(Vec::from)[..], &[vec![gone, some(2)]][..])
        );
        let xfs = seen(&removed, &[Above, Itself, Itself, Name], &["a/d", "a"]);
        assert_eq!(
            xfs[1..4],
            [vec![some(2), some(2)], vec![some(1), some(2)], vec![some(0), some(2)]]
        );

        let order = [Itself, Itself, Above, Into, Name];
        let over = seen(&rename("a/d", "b/e"), &order, &["b/e", "a", "b"]);
        let counts: Vec<Vec<u32>> =
            over.iter().map(|step| step.iter().flatten().copied().collect()).collect();
        assert_eq!(
            counts,
            [vec![2, 3, 3], vec![1, 3, 3], vec![0, 3, 3], vec![0, 2, 3], vec![2, 2, 3]]
        );
        let moved = seen(&rename("a/d", "b/x"), &order, &["a", "b"]);
        let counts: Vec<Vec<u32>> =
            moved.iter().map(|step| step.iter().flatten().copied().collect()).collect();
        assert_eq!(counts, [vec![3, 3], vec![2, 3], vec![2, 4], vec![2, 4]]);
        let file = seen(&rename("f", "g"), &order, &["g", "f"]);
        assert_eq!(file, [vec![some(1), some(1)], vec![some(0), some(1)], vec![some(1), gone]]);

        let linked = Op::Link { from: path("f"), to: path("h"), follow: false };
        let link = seen(&linked, &[Itself, Name], &["f", "h"]);
        assert_eq!(link, [vec![some(1), gone], vec![some(2), gone], vec![some(2), some(2)]]);
        let made = mkdir("a/d/x", 0o755);
        let mkdir = seen(&made, &[Name, Above], &["a/d/x", "a/d"]);
        assert_eq!(mkdir, [vec![gone, some(2)], vec![some(2), some(2)], vec![some(2), some(3)]]);
        let mkdir = seen(&made, &[Above, Name], &["a/d/x", "a/d"]);
        assert_eq!(mkdir, [vec![gone, some(2)], vec![gone, some(3)], vec![some(2), some(3)]]);
    }

    #[test]
    fn what_is_refused_changes_no_count_and_neither_does_what_others_have_replaced() {
        use Change::{Above, Itself, Name};
        let order = [Itself, Above, Itself, Name];
        let mut m = made();
        assert!(!m.count(1, &rmdir("a"), 0, &order) && !m.count(1, &rmdir("nope"), 0, &order));
        assert!(m.counts_hold(1, &rmdir("a"), 0, &order));
        let removed = rmdir("a/d");
        assert!(m.count(1, &removed, 0, &order));
        given(&mut m, &[file("a/d/x", 0o644)]);
        assert!(!m.counts_hold(1, &removed, 0, &order), "it would be refused");
        given(&mut m, &[unlink("a/d/x")]);
        assert!(m.counts_hold(1, &removed, 0, &order));
        given(&mut m, &[rename("b/e", "a/d")]);
        assert!(!m.counts_hold(1, &removed, 0, &order), "it is another directory");
    }
}
