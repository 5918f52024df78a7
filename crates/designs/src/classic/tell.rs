//! Tells counterexamples of the classics in words.

use fathom_engine::search::Trace;

use super::philosophers::Philosophers;
use super::two_phase::{Action, TwoPhase};
use crate::story::{ExplainedSystem, Step, Story};

fn steps(texts: impl Iterator<Item = String>, what: &str) -> Story {
    let steps = texts.map(|what| Step { what, ..Step::default() }).collect();
    Story { steps, what: what.to_owned(), blocks: Vec::new() }
}

impl ExplainedSystem for Philosophers {
    fn story(&self, trace: &Trace<Philosophers>, _: &str) -> Story {
        let mut before = &trace.start;
        let text = trace.steps.iter().map(|(action, after)| {
            let text = self.tell_move(*before, *action);
            before = after;
            text
        });
        steps(text, "everybody waits for a fork, and nobody will put one down")
    }

    fn has_deadlocks(&self) -> bool {
        true
    }
}

impl ExplainedSystem for TwoPhase {
    fn story(&self, trace: &Trace<TwoPhase>, property: &str) -> Story {
        let text = |action: &Action| match *action {
            Action::Hear(n) => format!("the transaction manager hears that {n} is prepared"),
            Action::DecideCommit => "the transaction manager decides to commit".to_owned(),
            Action::DecideAbort => "the transaction manager decides to abort".to_owned(),
            Action::Fail => "the transaction manager fails for ever".to_owned(),
            Action::Prepare(n) => format!("resource manager {n} prepares"),
            Action::ChooseAbort(n) => format!("resource manager {n} aborts by itself"),
            Action::HearCommit(n) => format!("resource manager {n} hears of the commit"),
            Action::HearAbort(n) => format!("resource manager {n} hears of the abort"),
        };
        let what = match property {
            "deadlock" => "those who are prepared wait for a decision that never comes",
            _ => property,
        };
        steps(trace.actions().map(text), what)
    }

    fn has_deadlocks(&self) -> bool {
        true
    }
}
