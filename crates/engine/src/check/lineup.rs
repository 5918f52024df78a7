//! Several file systems, each compared with the reference as its own profile sets it up, and a vote
//! on who is wrong.
//!
//! Two file systems may legitimately answer differently: that is in their profiles, hence in their
//! references. So nobody's answer is compared with another's; each either keeps what its own
//! reference promises or does not, and who does not is alone if the others do. If all of them agree
//! against the reference, it is the reference that is alone.

use std::sync::Arc;

use fathom_core::{
    HarnessFault, Op, Outcome, RestoreMethod, Supervision, Testbed, Verdict, Violation,
};
use fathom_model::{Config, Model};

use super::explore::{Exploration, RestorePolicy};
use crate::check::call_monitor::{CallMonitor, HangWatchdog, OnStuck};
use crate::check::oracle::Oracle;
use crate::check::side_by_side::{Bookmark, Inspection, SideBySide};

/// A file system that takes part.
pub struct Participant<'a> {
    /// The subject under test.
    pub subject: &'a mut dyn Testbed,
    /// The reference, set up to behave like it.
    pub reference: Config,
}

/// An accusation: a participant and what it did wrong.
#[derive(Clone, Debug)]
pub(super) struct Accusation {
    /// The index of the participant.
    pub(super) participant: usize,
    pub(super) violation: Violation,
    /// The vote in words; only where several take part.
    pub(super) vote: Option<String>,
}

/// The judgement of one operation.
pub(super) struct LineupStep {
    /// The answer of the first participant.
    pub(super) found: Outcome,
    /// The answer that the first participant should have given.
    pub(super) expected: Outcome,
    pub(super) tree_compared: bool,
    pub(super) accusation: Option<Accusation>,
    /// It was not executed.
    pub(super) skipped: bool,
}

/// All participants in the same state.
pub(super) struct Lineup<'a> {
    pub(super) pairs: Vec<SideBySide<'a>>,
    names: Vec<String>,
    /// The way back of each participant.
    methods: Vec<Option<RestoreMethod>>,
    _watchdogs: Vec<HangWatchdog>,
}

/// A state to which all can return.
pub(super) struct Marks(Vec<Bookmark>);

impl<'a> Lineup<'a> {
    /// All start empty.
    pub(super) fn start(
        participants: Vec<Participant<'a>>,
        times: bool,
        explore: &Exploration,
        on_stuck: &OnStuck,
        supervision: &Supervision,
    ) -> Result<Lineup<'a>, HarnessFault> {
        let mut lineup = Lineup {
            pairs: Vec::new(),
            names: Vec::new(),
            methods: Vec::new(),
            _watchdogs: Vec::new(),
        };
        for Participant { subject, reference } in participants {
            lineup.names.push(subject.name());
            lineup.methods.push(restore_method_of(subject, explore.back)?);
            let oracle = Oracle::new(&reference, times);
            let number = lineup.pairs.len();
            let monitor =
                CallMonitor::new(supervision.as_ref().map(|supervisor| supervisor.journal(number)));
            let watched = Arc::clone(&monitor);
            lineup._watchdogs.push(HangWatchdog::start(
                watched,
                explore.deadline,
                Arc::clone(on_stuck),
            ));
            let pair = SideBySide::start(subject, &reference, &oracle, Some(monitor))?;
            lineup.pairs.push(pair.patient());
        }
        Ok(lineup)
    }

    /// The reference of the first participant.
    pub(super) fn model(&self) -> &Model {
        self.pairs[0].model()
    }

    /// Returns the way back of the first participant.
    pub(super) fn restore_method(&self) -> Option<RestoreMethod> {
        self.methods[0]
    }

    /// All start again.
    pub(super) fn restart(&mut self) -> Result<(), HarnessFault> {
        self.pairs.iter_mut().try_for_each(SideBySide::restart)
    }

    /// Executes one operation on all and judges. What says nothing about one of them is executed on
    /// none.
    pub(super) fn step(&mut self, op: &Op, look: Inspection) -> Result<LineupStep, HarnessFault> {
        let silent = |pair: &SideBySide<'_>| pair.model().unspecified(op).is_some();
        if self.pairs.iter().any(silent) {
            let nothing = Outcome::ok(0);
            return Ok(LineupStep {
                found: nothing.clone(),
                expected: nothing,
                tree_compared: false,
                accusation: None,
                skipped: true,
            });
        }
        let mut verdicts = Vec::with_capacity(self.pairs.len());
        let mut first = None;
        for pair in &mut self.pairs {
            let judged = pair.step_specified(op, look)?;
            verdicts.push(judged.verdict);
            first.get_or_insert((judged.found, judged.expected, judged.tree_compared));
        }
        let (found, expected, tree_compared) = first.expect("there is always one participant");
        Ok(LineupStep {
            found,
            expected,
            tree_compared,
            accusation: self.vote(verdicts),
            skipped: false,
        })
    }

    /// Compares all trees now.
    pub(super) fn walk(&mut self) -> Result<Option<Accusation>, HarnessFault> {
        let verdicts = self.pairs.iter_mut().map(SideBySide::walk).collect::<Result<_, _>>()?;
        Ok(self.vote(verdicts))
    }

    /// Somebody whose server has ended since the last operation.
    pub(super) fn without_server(&mut self) -> Option<Accusation> {
        let verdicts = self.pairs.iter_mut().map(SideBySide::look_for_server).collect();
        self.vote(verdicts)
    }

    /// Lets the checkers look; how many there are.
    pub(super) fn fsck(&mut self) -> Result<(u64, Option<Accusation>), HarnessFault> {
        let mut verdicts = Vec::with_capacity(self.pairs.len());
        let mut checkers = 0;
        for pair in &mut self.pairs {
            let (there, verdict) = pair.fsck()?;
            checkers += u64::from(there);
            verdicts.push(verdict);
        }
        Ok((checkers, self.vote(verdicts)))
    }

    fn vote(&self, verdicts: Vec<Verdict>) -> Option<Accusation> {
        let wrong: Vec<usize> = (0..verdicts.len())
            .filter(|&participant| matches!(verdicts[participant], Verdict::Violation(_)))
            .collect();
        let participant = *wrong.first()?;
        let Verdict::Violation(violation) = verdicts.into_iter().nth(participant)? else {
            return None;
        };
        let vote = (self.names.len() > 1).then(|| self.words(&wrong));
        Some(Accusation { participant, violation, vote })
    }

    fn words(&self, wrong: &[usize]) -> String {
        let named = |participants: Vec<usize>| {
            participants
                .iter()
                .map(|&participant| self.names[participant].as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let right: Vec<usize> = (0..self.names.len()).filter(|p| !wrong.contains(p)).collect();
        match (wrong.len(), right.len()) {
            (_, 0) => format!("the model is alone against {}", named(wrong.to_vec())),
            (1, _) => {
                format!("{} is alone; as expected: {}, model", named(wrong.to_vec()), named(right))
            }
            (bad, good) if bad <= good => {
                format!(
                    "{} are in the minority; as expected: {}, model",
                    named(wrong.to_vec()),
                    named(right)
                )
            }
            _ => format!(
                "{} and the model are in the minority against {}",
                named(right),
                named(wrong.to_vec())
            ),
        }
    }

    /// Remembers the present state.
    pub(super) fn save(&mut self) -> Result<Marks, HarnessFault> {
        let marks =
            self.pairs.iter_mut().zip(&self.methods).map(|(pair, method)| pair.save(*method));
        Ok(Marks(marks.collect::<Result<_, _>>()?))
    }

    /// Goes back.
    pub(super) fn restore(&mut self, marks: &Marks) -> Result<(), HarnessFault> {
        self.pairs.iter_mut().zip(&marks.0).try_for_each(|(pair, mark)| pair.restore(mark))
    }

    /// Forgets saved states that are not needed any more.
    pub(super) fn forget(&mut self, marks: &Marks) {
        for (pair, mark) in self.pairs.iter_mut().zip(&marks.0) {
            pair.forget(mark);
        }
    }
}

fn restore_method_of(
    subject: &dyn Testbed,
    back: RestorePolicy,
) -> Result<Option<RestoreMethod>, HarnessFault> {
    let methods = subject.restore_methods();
    match back {
        RestorePolicy::Replay => Ok(None),
        RestorePolicy::Cheapest => Ok(methods.first().copied()),
        RestorePolicy::By(method) if methods.contains(&method) => Ok(Some(method)),
        RestorePolicy::By(method) => {
            let mut known: Vec<&str> = methods.iter().map(|method| method.name()).collect();
            known.push("replay");
            Err(HarnessFault::new(
                format!("{} cannot go back by {method}", subject.name()),
                format!("give one of {}", known.join(", ")),
            ))
        }
    }
}
