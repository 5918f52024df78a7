//! One operation on both sides: the reference first, then the subject, then the judge.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fathom_core::{Digest, HarnessFault, Op, Outcome, Subject, Tree, Verdict};
use fathom_model::{Config, Model};

use crate::oracle::Oracle;
use fathom_core::Territory;

/// A subject and the reference, having executed the same operations.
pub struct Duel<'a> {
    subject: &'a mut dyn Subject,
    model: Model,
    oracle: &'a Oracle,
}

/// What one operation gave.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The answer of the reference.
    pub expected: Outcome,
    /// The answer of the subject.
    pub found: Outcome,
    /// The digest of the subject's tree, if it was walked.
    pub tree: Option<Digest>,
    /// The judgement.
    pub verdict: Verdict,
}

impl<'a> Duel<'a> {
    /// Starts with an empty subject and an empty reference.
    ///
    /// # Errors
    /// If the subject cannot be reset or the reference cannot be made.
    pub fn start(
        subject: &'a mut dyn Territory,
        reference: &Config,
        oracle: &'a Oracle,
    ) -> Result<Duel<'a>, HarnessFault> {
        subject.reset()?;
        let model = Model::new(reference.clone())
            .map_err(|error| HarnessFault::new("making the reference", error))?;
        Ok(Duel { subject, model, oracle })
    }

    /// The reference as it is now.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Executes one operation on both and judges; `walk` compares the trees too. An operation that
    /// would block, or whose answer says nothing, is executed on neither.
    ///
    /// # Errors
    /// If the harness of the subject fails or panics.
    pub fn step(&mut self, op: &Op, walk: bool) -> Result<Judged, HarnessFault> {
        if let Some(why) = self.model.unspecified(op) {
            let nothing = Outcome::ok(0);
            let verdict = Verdict::Inconclusive(format!("{op}: {why}"));
            return Ok(Judged { expected: nothing.clone(), found: nothing, tree: None, verdict });
        }
        let before = matches!(op, Op::CopyFileRange { .. }).then(|| self.model.clone());
        let mut expected = self.model.execute(op);
        let found = guarded(op.name(), || self.subject.apply(op))?;
        if let Some((before, shorter)) = before.zip(self.oracle.short_copy(op, &expected, &found)) {
            self.model = before;
            expected = self.model.execute(&shorter);
        }
        let mut verdict = self.oracle.outcome(op, &expected, &found);
        let mut digest = None;
        if walk && verdict == Verdict::Ok {
            let tree = self.subject_tree()?;
            digest = Some(tree.digest());
            verdict = self.oracle.tree(&self.model, &tree);
        }
        Ok(Judged { expected, found, tree: digest, verdict })
    }

    /// The tree that the subject shows now.
    ///
    /// # Errors
    /// If the harness of the subject fails or panics.
    pub fn subject_tree(&mut self) -> Result<Tree, HarnessFault> {
        guarded("observing the tree", || self.subject.observe())
    }

    /// The tree that the subject should show now.
    pub fn expected_tree(&self) -> Tree {
        self.oracle.expected_tree(&self.model)
    }
}

/// A panic of the subject's harness is a fault of the harness.
fn guarded<T>(
    context: &str,
    work: impl FnOnce() -> Result<T, HarnessFault>,
) -> Result<T, HarnessFault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(HarnessFault::new(context, format!("the harness of the subject panicked: {message}")))
    })
}
