//! Subjects that lie in a known method: they test the tester.
#![allow(dead_code, reason = "every test file uses some of these")]

use std::collections::BTreeSet;

use fathom_core::pattern::word;
use fathom_core::{Capability, Errno, HarnessFault, Kind, Op, Outcome, Subject, Testbed, Tree};
use fathom_engine::{Plan, Strategy};
use fathom_generate::Config;
use fathom_model::Model;

/// A plan of so many operations.
pub(crate) fn plan(seed: u64, ops: u64) -> Plan {
    let mut config = Config::default();
    config.check.shrink_seconds = 5;
    config.check.findings_max = 1;
    config.check.tree_every = 1;
    let mut plan = Plan::new(seed, config, reference());
    plan.explore.strategy = Strategy::Walk;
    plan.ops_max = Some(ops);
    plan.labels.insert("kernel".to_owned(), "none".to_owned());
    plan
}

/// The reference of every test.
pub(crate) fn reference() -> fathom_model::Config {
    fathom_model::Config::default()
}

/// How a [`Liar`] lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Not at all.
    Honest,
    /// `rmdir` of a directory that is not empty says `EEXIST`.
    WrongErrno,
    /// That, and `unlink` of a directory says `EPERM` (as POSIX has it; Linux says `EISDIR`).
    TwoErrnos,
    /// Files with two names show one byte too many.
    WrongSize,
    /// `mkdir` says `EIO` at times that have nothing to do with the operations.
    Moody,
    /// The harness fails at the tenth operation.
    HarnessFails,
    /// The harness panics at the tenth operation.
    HarnessPanics,
}

/// The model with a lie on top.
pub(crate) struct Liar {
    lie: Lie,
    model: Model,
    /// Over all runs: what makes [`Lie::Moody`] moody.
    applied: u64,
    /// Since the last reset.
    applied_now: u64,
}

impl Liar {
    pub(crate) fn new(lie: Lie) -> Liar {
        let model = Model::new(reference()).expect("the default configuration works");
        Liar { lie, model, applied: 0, applied_now: 0 }
    }
}

impl Subject for Liar {
    fn name(&self) -> String {
        format!("liar:{:?}", self.lie)
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.model.capabilities()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        self.applied += 1;
        self.applied_now += 1;
        let outcome = self.model.execute(op);
        match (self.lie, op) {
            (Lie::WrongErrno | Lie::TwoErrnos, Op::Rmdir { .. })
                if outcome.result == Err(Errno::ENOTEMPTY) =>
            {
                Ok(Outcome::err(Errno::EEXIST))
            }
            (Lie::TwoErrnos, Op::Unlink { .. }) if outcome.result == Err(Errno::EISDIR) => {
                Ok(Outcome::err(Errno::EPERM))
            }
            (Lie::Moody, Op::Mkdir { .. }) if word(1, self.applied).leading_zeros() > 1 => {
                Ok(Outcome::err(Errno::EIO))
            }
            (Lie::HarnessFails, _) if self.applied_now == 10 => {
                Err(HarnessFault::new(op.name(), "the disk of the harness is full"))
            }
            (Lie::HarnessPanics, _) if self.applied_now == 10 => panic!("the harness has a bug"),
            _ => Ok(outcome),
        }
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        let mut tree = self.model.observe()?;
        if self.lie == Lie::WrongSize {
            for entry in tree.entries.values_mut() {
                if entry.kind == Kind::File && entry.nlink == 2 {
                    entry.size += 1;
                }
            }
        }
        Ok(tree)
    }
}

impl Testbed for Liar {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.applied_now = 0;
        self.model = Model::new(reference()).expect("the default configuration works");
        Ok(())
    }
}
