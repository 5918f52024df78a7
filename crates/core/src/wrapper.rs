//! Subjects around subjects.
//!
//! Many methods of [`Testbed`] have a default, so whoever forwards them by hand loses each new one
//! without a word. Here they are forwarded once, and a lint refuses an implementation that leaves one
//! out; a wrapper says only what it does differently.

use std::collections::BTreeSet;

use crate::bytes::{FsBytes, FsPath};
use crate::digest::Digest;
use crate::op::{Caller, Op};
use crate::outcome::Outcome;
use crate::schedule::Schedule;
use crate::subject::{Capability, HarnessFault, Subject};
use crate::testbed::{CheckerReport, PathState, RestoreMethod, Saved, Testbed, Unblock};
use crate::trace::Step;
use crate::tree::Tree;

/// A [`Testbed`] around another one, to which everything is passed on that is not said here.
pub trait Wrapper {
    /// The kind of subject inside.
    type Inner: Testbed + ?Sized;

    /// The subject inside.
    fn inner(&self) -> &Self::Inner;

    /// The subject inside, to be used.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// How the whole is named.
    fn wrapped_name(&self) -> String {
        self.inner().name()
    }

    /// Executes one operation of a caller; those of [`Subject::apply`] are caller 0's.
    ///
    /// # Errors
    /// As [`Subject::apply_as`].
    fn execute(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        self.inner_mut().apply_as(caller, op)
    }

    /// Lets several callers work at once.
    ///
    /// # Errors
    /// As [`Testbed::run_callers`].
    fn execute_at_once(&mut self, schedule: &Schedule) -> Result<Vec<Step>, HarnessFault> {
        self.inner_mut().run_callers(schedule)
    }

    /// Makes the file system empty.
    ///
    /// # Errors
    /// As [`Testbed::reset`].
    fn start_again(&mut self) -> Result<(), HarnessFault> {
        self.inner_mut().reset()
    }

    /// Gives the thread back, as [`Testbed::step_aside`] says.
    fn give_way(&mut self) {
        self.inner_mut().step_aside();
    }

    /// The ways back that the whole has: those of the subject inside, if what the wrapper keeps goes
    /// back with it.
    fn ways_back(&self) -> Vec<RestoreMethod> {
        self.inner().restore_methods()
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl<W: Wrapper> Subject for W {
    fn name(&self) -> String {
        self.wrapped_name()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.inner().capabilities()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        self.execute(0, op)
    }

    fn apply_as(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        self.execute(caller, op)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.inner_mut().observe()
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl<W: Wrapper> Testbed for W {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.start_again()
    }

    fn expect_callers(&mut self, schedule: &Schedule) {
        self.inner_mut().expect_callers(schedule);
    }

    fn run_callers(&mut self, schedule: &Schedule) -> Result<Vec<Step>, HarnessFault> {
        self.execute_at_once(schedule)
    }

    fn observe_paths(&mut self, paths: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
        self.inner_mut().observe_paths(paths)
    }

    fn read_contents(
        &mut self,
        path: &FsPath,
        offset: u64,
        len: usize,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.inner_mut().read_contents(path, offset, len)
    }

    fn read_xattr(
        &mut self,
        path: &FsPath,
        name: &FsBytes,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.inner_mut().read_xattr(path, name)
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        self.ways_back()
    }

    fn save(&mut self, method: RestoreMethod) -> Result<Saved, HarnessFault> {
        self.inner_mut().save(method)
    }

    fn restore(&mut self, saved: Saved) -> Result<(), HarnessFault> {
        self.inner_mut().restore(saved)
    }

    fn forget(&mut self, saved: Saved) {
        self.inner_mut().forget(saved);
    }

    fn image_digest(&mut self, saved: Saved) -> Result<Option<Digest>, HarnessFault> {
        self.inner_mut().image_digest(saved)
    }

    fn image(&mut self, saved: Saved) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.inner_mut().image(saved)
    }

    fn adopt(&mut self, image: &[u8]) -> Result<Saved, HarnessFault> {
        self.inner_mut().adopt(image)
    }

    fn fsck(&mut self) -> Result<Option<CheckerReport>, HarnessFault> {
        self.inner_mut().fsck()
    }

    fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        self.inner_mut().complaints()
    }

    fn wrong_locks(&mut self) -> Vec<String> {
        self.inner_mut().wrong_locks()
    }

    fn has_ended(&mut self) -> bool {
        self.inner_mut().has_ended()
    }

    fn last_words(&mut self) -> Option<String> {
        self.inner_mut().last_words()
    }

    fn step_aside(&mut self) {
        self.give_way();
    }

    fn ask_past_caches(&mut self, ask: bool) {
        self.inner_mut().ask_past_caches(ask);
    }

    fn unblock(&self) -> Option<Unblock> {
        self.inner().unblock()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Notes which methods it is asked.
    #[derive(Default)]
    struct Spy(RefCell<BTreeSet<&'static str>>);

    impl Spy {
        fn note(&self, method: &'static str) {
            self.0.borrow_mut().insert(method);
        }
    }

    #[deny(clippy::missing_trait_methods)]
    impl Subject for Spy {
        fn name(&self) -> String {
            self.note("name");
            String::new()
        }

        fn capabilities(&self) -> BTreeSet<Capability> {
            self.note("capabilities");
            BTreeSet::new()
        }

        fn apply(&mut self, _: &Op) -> Result<Outcome, HarnessFault> {
            self.note("apply");
            Ok(Outcome::ok(0))
        }

        fn apply_as(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
            self.note("apply_as");
            if caller == 0 { self.apply(op) } else { Ok(Outcome::ok(caller.into())) }
        }

        fn observe(&mut self) -> Result<Tree, HarnessFault> {
            self.note("observe");
            Ok(Tree::default())
        }
    }

    #[deny(clippy::missing_trait_methods)]
    impl Testbed for Spy {
        fn reset(&mut self) -> Result<(), HarnessFault> {
            self.note("reset");
            Ok(())
        }

        fn expect_callers(&mut self, _: &Schedule) {
            self.note("expect_callers");
        }

        fn run_callers(&mut self, _: &Schedule) -> Result<Vec<Step>, HarnessFault> {
            self.note("run_callers");
            Ok(Vec::new())
        }

        fn observe_paths(&mut self, _: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
            self.note("observe_paths");
            Ok(Vec::new())
        }

        fn read_contents(
            &mut self,
            _: &FsPath,
            _: u64,
            _: usize,
        ) -> Result<Option<Vec<u8>>, HarnessFault> {
            self.note("read_contents");
            Ok(None)
        }

        fn read_xattr(&mut self, _: &FsPath, _: &FsBytes) -> Result<Option<Vec<u8>>, HarnessFault> {
            self.note("read_xattr");
            Ok(None)
        }

        fn restore_methods(&self) -> Vec<RestoreMethod> {
            self.note("restore_methods");
            Vec::new()
        }

        fn save(&mut self, _: RestoreMethod) -> Result<Saved, HarnessFault> {
            self.note("save");
            Ok(Saved(7))
        }

        fn restore(&mut self, _: Saved) -> Result<(), HarnessFault> {
            self.note("restore");
            Ok(())
        }

        fn forget(&mut self, _: Saved) {
            self.note("forget");
        }

        fn image_digest(&mut self, _: Saved) -> Result<Option<Digest>, HarnessFault> {
            self.note("image_digest");
            Ok(None)
        }

        fn image(&mut self, _: Saved) -> Result<Option<Vec<u8>>, HarnessFault> {
            self.note("image");
            Ok(None)
        }

        fn adopt(&mut self, _: &[u8]) -> Result<Saved, HarnessFault> {
            self.note("adopt");
            Ok(Saved(7))
        }

        fn fsck(&mut self) -> Result<Option<CheckerReport>, HarnessFault> {
            self.note("fsck");
            Ok(None)
        }

        fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
            self.note("complaints");
            Ok(Vec::new())
        }

        fn wrong_locks(&mut self) -> Vec<String> {
            self.note("wrong_locks");
            Vec::new()
        }

        fn has_ended(&mut self) -> bool {
            self.note("has_ended");
            false
        }

        fn last_words(&mut self) -> Option<String> {
            self.note("last_words");
            None
        }

        fn step_aside(&mut self) {
            self.note("step_aside");
        }

        fn ask_past_caches(&mut self, _: bool) {
            self.note("ask_past_caches");
        }

        fn unblock(&self) -> Option<Unblock> {
            self.note("unblock");
            None
        }
    }

    /// Changes nothing.
    struct Plain(Box<Spy>);

    impl Wrapper for Plain {
        type Inner = Spy;

        fn inner(&self) -> &Spy {
            &self.0
        }

        fn inner_mut(&mut self) -> &mut Spy {
            &mut self.0
        }
    }

    /// The methods of a trait, from its source.
    fn methods_of(source: &'static str, declaration: &str) -> BTreeSet<&'static str> {
        let (_, after) = source.split_once(declaration).expect("the trait is declared");
        let (body, _) = after.split_once("\n}\n").expect("the trait ends");
        let names = body.lines().filter_map(|line| line.strip_prefix("    fn "));
        names.map(|line| line.split_once('(').expect("it has parameters").0).collect()
    }

    #[test]
    fn every_method_reaches_the_subject_inside() {
        let mut plain = Plain(Box::default());
        let path = FsPath::from("f");
        let _ = (plain.name(), plain.capabilities(), plain.observe(), plain.apply(&Op::Sync));
        assert_eq!(plain.apply_as(3, &Op::Sync).unwrap(), Outcome::ok(3));
        let _ = (plain.reset(), plain.observe_paths(&[]), plain.read_contents(&path, 0, 1));
        let _ = (plain.read_xattr(&path, &FsBytes::from("user.a")), plain.restore_methods());
        assert_eq!(plain.save(RestoreMethod::Clone).unwrap(), Saved(7));
        let _ = (plain.restore(Saved(7)), plain.image(Saved(7)), plain.adopt(&[]), plain.fsck());
        let _ = (plain.complaints(), plain.has_ended(), plain.last_words(), plain.unblock());
        let _ = (plain.image_digest(Saved(7)), plain.wrong_locks());
        assert_eq!(plain.run_callers(&Schedule::default()).unwrap(), Vec::new());
        plain.expect_callers(&Schedule::default());
        plain.forget(Saved(7));
        plain.step_aside();
        plain.ask_past_caches(true);
        let mut wanted = methods_of(include_str!("subject.rs"), "pub trait Subject {");
        wanted.extend(methods_of(include_str!("testbed.rs"), "pub trait Testbed: Subject {"));
        assert_eq!(*plain.0.0.borrow(), wanted);
        assert!(wanted.len() > 20, "{wanted:?}");
    }
}
