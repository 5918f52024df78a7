//! Calls on paths as the kernel executes them: name by name (`link_path_walk`), and then on what was found
//! (`user_path_at` before `vfs_getattr`, `do_truncate`, `chmod_common`, `vfs_link`, …).
//!
//! Nothing is locked from one step to the next, so others may come in between. [`Model::execute`] does all steps
//! at once; who judges calls that overlap does them one by one.

use std::borrow::Cow;

use fathom_core::flags::OpenFlags;
use fathom_core::{Caller, Errno, FsPath, Kind, Op, OperandMut, Outcome, Target};

use super::Model;
use super::resolve::{Follow, Last};
use crate::volume::Ino;

/// Where a call has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// Not yet begun.
    Nothing,
    /// A directory on the way: what is left of the path starts here.
    Directory(Ino),
    /// What the path leads to: the call acts upon it, wherever it is by then.
    Node(Ino),
}

impl Reached {
    pub(super) fn ino(self) -> Option<Ino> {
        match self {
            Reached::Nothing => None,
            Reached::Directory(ino) | Reached::Node(ino) => Some(ino),
        }
    }
}

/// A name that goes: what it led to has lost it already, but who walks without a lock still finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    pub(super) dir: Ino,
    pub(super) name: Vec<u8>,
    /// Pinned.
    pub(super) ino: Ino,
}

/// The path of an operation that is walked in steps, and how its end is found before the operation acts: `None`
/// if that happens under the lock of the directory (whatever adds or removes a name).
fn walked(op: &Op) -> Option<(&FsPath, Option<Follow>)> {
    let target = |target: &'_ Target| match target {
        Target::Path(_) => Some(Follow::Yes),
        Target::Link(_) => Some(Follow::No),
        Target::Slot(_) => None,
    };
    match op {
        Op::Stat { target: at }
        | Op::Truncate { target: at, .. }
        | Op::Chmod { target: at, .. }
        | Op::Chown { target: at, .. }
        | Op::Utimens { target: at, .. }
        | Op::Setxattr { target: at, .. }
        | Op::Getxattr { target: at, .. }
        | Op::Listxattr { target: at, .. }
        | Op::Removexattr { target: at, .. }
        | Op::Access { target: at, .. } => match at {
            Target::Path(path) | Target::Link(path) => Some((path, target(at))),
            Target::Slot(_) => None,
        },
        Op::Link { from, follow, .. } => {
            Some((from, Some(if *follow { Follow::Yes } else { Follow::No })))
        }
        Op::Open { path, flags, .. } if !flags.contains(OpenFlags::O_TRUNC) => Some((path, None)),
        Op::Mkdir { path, .. }
        | Op::Rmdir { path }
        | Op::Unlink { path }
        | Op::Symlink { path, .. }
        | Op::Mknod { path, .. } => Some((path, None)),
        _ => None,
    }
}

/// The names of a path, if it has nothing else in it.
fn names(path: &FsPath) -> Option<Vec<&[u8]>> {
    let names: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
    let plain = names.iter().all(|name| !matches!(*name, b"" | b"." | b".."));
    plain.then_some(names)
}

/// What is left of a path behind its first names.
pub(super) fn rest(path: &FsPath, done: usize) -> FsPath {
    let names: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').skip(done).collect();
    FsPath::from(names.join(&b'/').as_slice())
}

impl Model {
    /// How many steps an operation takes before the one in which it does what it is for.
    pub fn steps_before(op: &Op) -> usize {
        let Some((path, finds)) = walked(op) else { return 0 };
        let above = names(path).map(|names| names.len() - 1);
        above.map_or(0, |above| above + usize::from(finds.is_some()))
    }

    /// Takes the next one of these steps, `done` of which are.
    ///
    /// # Errors
    /// What the call answers if it comes no further; it has ended then.
    pub fn advance(&mut self, caller: Caller, op: &Op, done: usize) -> Result<(), Errno> {
        self.as_caller(caller, |model| {
            let reached = model.next_reached(op, done);
            if let Ok(reached) = reached
                && let Some(ino) = reached.ino()
            {
                model.volume.pin(ino)?;
            }
            model.reach(reached.unwrap_or(Reached::Nothing));
            reached.map(|_| ())
        })
    }

    fn next_reached(&self, op: &Op, done: usize) -> Result<Reached, Errno> {
        let Some((path, finds)) = walked(op) else { return Ok(self.current.reached) };
        let left = rest(path, done);
        let mut ahead = left.as_bytes().splitn(2, |byte| *byte == b'/');
        let next = FsPath::from(ahead.next().unwrap_or_default());
        match (ahead.next(), finds) {
            (Some(_), _) => {
                let found = self.resolve_dir(&next, Follow::Yes);
                self.or_leaving(found, &next, |kind| kind == Kind::Dir).map(Reached::Directory)
            }
            (None, Some(follow)) => {
                let found = self.resolve(&next, follow);
                let ends = |kind: Kind| follow == Follow::No || kind != Kind::Symlink;
                self.or_leaving(found, &next, ends).map(Reached::Node)
            }
            (None, None) => Ok(self.current.reached),
        }
    }

    /// What a name led to that somebody is removing, if it was not found otherwise.
    fn or_leaving(
        &self,
        found: Result<Ino, Errno>,
        name: &FsPath,
        fits: impl Fn(Kind) -> bool,
    ) -> Result<Ino, Errno> {
        if found != Err(Errno::ENOENT) {
            return found;
        }
        let dir = match self.current.reached {
            Reached::Directory(dir) => dir,
            Reached::Nothing | Reached::Node(_) => self.current.directory,
        };
        let leaving = self.processes().filter_map(|process| process.leaving.as_ref());
        let mut same = leaving.filter(|one| one.dir == dir && one.name == name.as_bytes());
        let it = same.find(|one| self.volume.attr(one.ino).is_ok_and(|attr| fits(attr.kind)));
        it.map_or(found, |one| Ok(one.ino))
    }

    /// Removes a name (`rmdir`, `unlink`), of whose path `done` steps are done, but for one thing: until
    /// [`Model::finish`] walks that are done in steps still find by it what has lost it. `vfs_rmdir` and
    /// `vfs_unlink` let the file system drop the links and call `d_delete_notify` afterwards.
    pub fn take_away(&mut self, caller: Caller, op: &Op, done: usize) -> Outcome {
        let leaving = self.as_caller(caller, |model| model.named_by(op, done));
        let pinned = leaving.as_ref().is_some_and(|one| self.volume.pin(one.ino).is_ok());
        let outcome = self.finish(caller, op, done);
        match leaving.filter(|_| pinned) {
            Some(one) if outcome.result.is_err() => self.volume.unpin(one.ino),
            leaving => self.as_caller(caller, |model| model.current_mut().leaving = leaving),
        }
        outcome
    }

    /// The name that a removal takes away, and what it leads to.
    fn named_by(&self, op: &Op, done: usize) -> Option<Leaving> {
        let (Op::Rmdir { path } | Op::Unlink { path }) = op else { return None };
        let left = rest(path, done);
        let place = self.resolve_parent(&left).ok()?;
        let Last::Name(name) = &place.last else { return None };
        let ino = self.lookup(place.dir, name).ok()?;
        Some(Leaving { dir: place.dir, name: name.to_vec(), ino })
    }

    /// Ends a call that was refused: it had no effect, but for the slot that `open` lets go of first.
    pub fn refuse(&mut self, caller: Caller, op: &Op) {
        self.as_caller(caller, |model| {
            model.reach(Reached::Nothing);
            if let Op::Open { slot, .. } = op {
                model.execute(&Op::Close { slot: *slot });
            }
        });
    }

    /// Does what is left of an operation, of which `done` steps are done.
    pub fn finish(&mut self, caller: Caller, op: &Op, done: usize) -> Outcome {
        if self.end_counting(caller) {
            return Outcome::ok(0);
        }
        let leaving = self.as_caller(caller, |model| match model.current.leaving {
            Some(_) => model.current_mut().leaving.take(),
            None => None,
        });
        if let Some(left) = leaving {
            self.volume.unpin(left.ino);
            return Outcome::ok(0);
        }
        let finds = walked(op).is_some_and(|(_, finds)| finds.is_some());
        // Who takes no lock at the end of its path finds what is being removed, also at one go.
        let finds_what_leaves = finds && self.processes().any(|process| process.leaving.is_some());
        if done == 0 && !finds_what_leaves {
            return self.execute_as(caller, op);
        }
        if finds {
            // The other path of a link starts elsewhere, so what is left of the first one comes before it.
            for step in done..Model::steps_before(op) {
                if let Err(errno) = self.advance(caller, op, step) {
                    return Outcome::err(errno);
                }
            }
        }
        self.as_caller(caller, |model| {
            let outcome = match model.current.reached {
                Reached::Directory(_) => model.execute(&left_of(op, done)),
                Reached::Node(_) | Reached::Nothing => model.execute(op),
            };
            model.reach(Reached::Nothing);
            outcome
        })
    }

    /// Lets go of where the call was before.
    fn reach(&mut self, reached: Reached) {
        let left = std::mem::replace(&mut self.current_mut().reached, reached);
        if let Some(ino) = left.ino() {
            self.volume.unpin(ino);
        }
    }
}

/// The operation with what is left of the path that it walks.
fn left_of(op: &Op, done: usize) -> Cow<'_, Op> {
    let Some((path, _)) = walked(op) else { return Cow::Borrowed(op) };
    let left = rest(path, done);
    let mut op = op.clone();
    let mut first = true;
    op.operands_mut(|operand| {
        let path = match operand {
            OperandMut::Path(path, ..) => path,
            OperandMut::Target(Target::Path(path) | Target::Link(path), ..) => path,
            _ => return,
        };
        if std::mem::take(&mut first) {
            *path = left.clone();
        }
    });
    Cow::Owned(op)
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::RenameFlags;

    use super::super::testing::*;
    use super::*;

    fn rename(from: &str, to: &str) -> Op {
        Op::Rename { from: path(from), to: path(to), flags: RenameFlags::empty() }
    }

    /// A model after the first steps of a call of caller 1.
    fn begun(given_ops: &[Op], op: &Op, steps: usize) -> Model {
        let mut m = model();
        given(&mut m, given_ops);
        for done in 0..steps {
            m.advance(1, op, done).unwrap();
        }
        m
    }

    #[test]
    fn names_above_are_steps_and_so_is_finding() {
        let open_new = open(0, "a/b/c", OpenFlags::O_CREAT | OpenFlags::O_RDWR);
        let table = [
            (stat("a/b/c"), 3),
            (stat("a"), 1),
            (mkdir("a/b", 0o755), 1),
            (mkdir("a", 0o755), 0),
            (open_new, 2),
            (link("a/b", "c/d"), 2),
            (rename("a/b", "c"), 0),
            (stat("a/../b"), 0),
            (close(0), 0),
        ];
        for (op, steps) in table {
            assert_eq!(Model::steps_before(&op), steps, "{op}");
        }
    }

    #[test]
    fn all_steps_without_a_break_are_the_call() {
        let before = [mkdir("d", 0o755), mkdir("d/e", 0o755), file("d/e/f", 0o644)];
        let ops = [
            stat("d/e/f"),
            stat("d/e"),
            chmod("d/e/f", 0o600),
            mkdir("d/e/g", 0o700),
            unlink("d/e/f"),
            rmdir("d/e"),
            link("d/e/f", "d/g"),
            link("d/e/f", "d/e"),
            stat("d/x"),
        ];
        for op in ops {
            let mut whole = begun(&before, &op, 0);
            let expected = whole.execute_as(1, &op);
            for steps in 0..=Model::steps_before(&op) {
                let mut m = begun(&before, &op, 0);
                let stopped = (0..steps).find_map(|done| m.advance(1, &op, done).err());
                let outcome = match stopped {
                    Some(errno) => Outcome::err(errno),
                    None => m.finish(1, &op, steps),
                };
                assert_eq!(outcome, expected, "{op} after {steps} steps");
                assert_eq!(m.state_digest(), whole.state_digest(), "{op} after {steps} steps");
                m.volume().check_invariants().unwrap();
            }
        }
    }

    #[test]
    fn what_was_found_is_acted_upon_wherever_it_is() {
        let before = [mkdir("d", 0o755), file("f", 0o644), file("g", 0o644)];
        let linked = link("f", "new");
        let mut m = begun(&before, &linked, 1);
        given(&mut m, &[rename("f", "d/f")]);
        assert_eq!(m.finish(1, &linked, 1), Outcome::ok(0));
        assert_eq!(attr(&m, "d/f").nlink, 2);
        // What has lost its last name is not linked again (vfs_link).
        let mut m = begun(&before, &linked, 1);
        given(&mut m, &[rename("g", "f")]);
        assert_eq!(m.finish(1, &linked, 1), Outcome::err(E::ENOENT));
        // The name it gets is looked up last.
        let mut m = begun(&before, &linked, 1);
        given(&mut m, &[rename("f", "new")]);
        assert_eq!(m.finish(1, &linked, 1), Outcome::err(E::EEXIST));
        m.volume().check_invariants().unwrap();
    }

    #[test]
    fn a_directory_on_the_way_is_where_it_is_now() {
        let before = [mkdir("d", 0o755), mkdir("d/e", 0o755)];
        let make = mkdir("d/e/x", 0o755);
        let mut m = begun(&before, &make, 2);
        given(&mut m, &[rename("d/e", "moved")]);
        assert_eq!(m.finish(1, &make, 2), Outcome::ok(0));
        assert_eq!(m.execute(&stat("moved/x")).result, Ok(0));
        // In one that was removed nothing is made.
        let mut m = begun(&before, &make, 2);
        given(&mut m, &[rmdir("d/e"), mkdir("d/e", 0o755)]);
        assert_eq!(m.finish(1, &make, 2), Outcome::err(E::ENOENT));
        m.volume().check_invariants().unwrap();
    }

    #[test]
    fn a_name_that_is_being_removed_still_leads_to_what_has_lost_it() {
        let before = [mkdir("d", 0o755), mkdir("d/e", 0o755), file("f", 0o644), link("f", "g")];
        let walk = |m: &mut Model, op: &Op| {
            let steps = Model::steps_before(op);
            match (0..steps).find_map(|done| m.advance(1, op, done).err()) {
                Some(errno) => Outcome::err(errno),
                None => m.finish(1, op, steps),
            }
        };
        let nlink = |outcome: &Outcome| match &outcome.payload {
            fathom_core::Payload::Stat(stat) => Some(stat.nlink),
            _ => None,
        };
        for (removal, path, links) in [(rmdir("d/e"), "d/e", 0), (unlink("f"), "f", 1)] {
            let mut m = begun(&before, &removal, 0);
            let whole = m.state_digest();
            assert_eq!(m.take_away(2, &removal, 0), Outcome::ok(0));
            let half = m.state_digest();
            assert_eq!(nlink(&walk(&mut m, &stat(path))), Some(links), "{path}");
            assert_eq!(nlink(&m.finish(1, &stat(path), 0)), Some(links), "{path}");
            // Who takes the lock of the directory finds the name gone.
            assert_eq!(m.execute_as(1, &removal), Outcome::err(E::ENOENT));
            assert_eq!(m.finish(2, &removal, 0), Outcome::ok(0));
            assert_eq!(walk(&mut m, &stat(path)), Outcome::err(E::ENOENT));
            let mut other = begun(&before, &removal, 0);
            other.execute(&removal);
            let gone = other.state_digest();
            assert!(half != whole && half != gone && m.state_digest() == gone);
            m.volume().check_invariants().unwrap();
        }
        // What cannot be removed leaves nothing.
        let mut m = begun(&before, &rmdir("d"), 0);
        let whole = m.state_digest();
        assert_eq!(m.take_away(0, &rmdir("d"), 0), Outcome::err(E::ENOTEMPTY));
        assert_eq!(m.state_digest(), whole);
    }

    #[test]
    fn a_refused_open_leaves_its_slot_empty() {
        let again = open(0, "f", OpenFlags::O_RDWR);
        let mut m = begun(&[file("f", 0o644)], &again, 0);
        assert_eq!(m.execute_as(1, &again), Outcome::ok(0));
        m.refuse(1, &again);
        assert_eq!(m.execute_as(1, &close(0)), Outcome::err(E::EBADF));
    }

    #[test]
    fn where_a_call_has_come_to_is_part_of_the_state() {
        let before = [mkdir("d", 0o755), file("d/f", 0o644), file("d/g", 0o644)];
        let digest = |op: Op, steps| begun(&before, &op, steps).state_digest();
        let at_file = digest(stat("d/f"), 2);
        assert_ne!(at_file, digest(stat("d/f"), 1));
        assert_ne!(at_file, digest(stat("d/g"), 2));
        assert_ne!(digest(stat("d/f"), 1), digest(stat("d/f"), 0));
        assert_eq!(digest(stat("d/f"), 1), digest(stat("d/g"), 1));
    }
}
