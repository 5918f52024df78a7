//! Calls on paths as the kernel executes them: name by name (`link_path_walk`), and then on what was found
//! (`user_path_at` before `vfs_getattr`, `do_truncate`, `chmod_common`, `vfs_link`, …).
//!
//! Nothing is locked from one step to the next, so others may come in between. [`Model::execute`] does all steps
//! at once; who judges calls that overlap does them one by one.

use std::borrow::Cow;

use fathom_core::flags::OpenFlags;
use fathom_core::{Caller, Errno, FsPath, Op, OperandMut, Outcome, Target};

use super::Model;
use super::resolve::Follow;
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
fn rest(path: &FsPath, done: usize) -> FsPath {
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
            (Some(_), _) => self.resolve_dir(&next, Follow::Yes).map(Reached::Directory),
            (None, Some(follow)) => self.resolve(&next, follow).map(Reached::Node),
            (None, None) => Ok(self.current.reached),
        }
    }

    /// Does what is left of an operation, of which `done` steps are done.
    pub fn finish(&mut self, caller: Caller, op: &Op, done: usize) -> Outcome {
        if done == 0 {
            return self.execute_as(caller, op);
        }
        if walked(op).is_some_and(|(_, finds)| finds.is_some()) {
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
