//! Several file systems, each compared with the reference as its own profile sets it up, and a vote
//! on who is wrong.
//!
//! Two file systems may legitimately answer differently: that is in their profiles, hence in their
//! references. So nobody's answer is compared with another's; each either keeps what its own
//! reference promises or does not, and who does not is alone if the others do. If all of them agree
//! against the reference, it is the reference that is alone.

use std::sync::Arc;

use fathom_core::{HarnessFault, Op, Outcome, Territory, Verdict, Violation, Way};
use fathom_model::{Config, Model};

use super::explore::{Back, Exploration};
use crate::duel::{Bookmark, Duel, Look};
use crate::oracle::Oracle;
use crate::pulse::{LastWords, Pulse, Watch};

/// A file system that takes part.
pub struct Player<'a> {
    /// What is tested.
    pub subject: &'a mut dyn Territory,
    /// The reference, set up to behave like it.
    pub reference: Config,
}

/// Who is wrong, and how.
#[derive(Clone, Debug)]
pub(super) struct Blame {
    /// Which player.
    pub(super) player: usize,
    pub(super) violation: Violation,
    /// In words; only where several take part.
    pub(super) vote: Option<String>,
}

/// What one operation gave.
pub(super) struct Tried {
    /// The answer of the first player.
    pub(super) found: Outcome,
    /// What the first player should have answered.
    pub(super) expected: Outcome,
    pub(super) walked: bool,
    pub(super) blame: Option<Blame>,
    /// It was not executed.
    pub(super) skipped: bool,
}

/// All players in the same state.
pub(super) struct Panel<'a> {
    pub(super) duels: Vec<Duel<'a>>,
    names: Vec<String>,
    /// How each goes back.
    ways: Vec<Option<Way>>,
    _watches: Vec<Watch>,
}

/// A state to which all can return.
pub(super) struct Marks(Vec<Bookmark>);

impl<'a> Panel<'a> {
    /// All start empty.
    pub(super) fn start(
        players: Vec<Player<'a>>,
        times: bool,
        explore: &Exploration,
        last_words: &LastWords,
    ) -> Result<Panel<'a>, HarnessFault> {
        let mut panel =
            Panel { duels: Vec::new(), names: Vec::new(), ways: Vec::new(), _watches: Vec::new() };
        for Player { subject, reference } in players {
            panel.names.push(subject.name());
            panel.ways.push(way_of(subject, explore.back)?);
            let oracle = Oracle::new(&reference, times);
            let pulse = Pulse::new();
            let watched = Arc::clone(&pulse);
            panel._watches.push(Watch::start(watched, explore.deadline, Arc::clone(last_words)));
            panel.duels.push(Duel::start(subject, &reference, &oracle, Some(pulse))?);
        }
        Ok(panel)
    }

    /// The reference of the first player.
    pub(super) fn model(&self) -> &Model {
        self.duels[0].model()
    }

    /// How the first player goes back.
    pub(super) fn way(&self) -> Option<Way> {
        self.ways[0]
    }

    /// All start again.
    pub(super) fn restart(&mut self) -> Result<(), HarnessFault> {
        self.duels.iter_mut().try_for_each(Duel::restart)
    }

    /// Executes one operation on all and judges. What says nothing about one of them is executed on
    /// none.
    pub(super) fn step(&mut self, op: &Op, look: Look) -> Result<Tried, HarnessFault> {
        let silent = |duel: &Duel<'_>| duel.model().unspecified(op).is_some();
        if self.duels.iter().any(silent) {
            let nothing = Outcome::ok(0);
            return Ok(Tried {
                found: nothing.clone(),
                expected: nothing,
                walked: false,
                blame: None,
                skipped: true,
            });
        }
        let mut verdicts = Vec::with_capacity(self.duels.len());
        let mut first = None;
        for duel in &mut self.duels {
            let judged = duel.step(op, look)?;
            verdicts.push(judged.verdict);
            first.get_or_insert((judged.found, judged.expected, judged.walked));
        }
        let (found, expected, walked) = first.expect("there is always one player");
        Ok(Tried { found, expected, walked, blame: self.vote(verdicts), skipped: false })
    }

    /// Compares all trees now.
    pub(super) fn walk(&mut self) -> Result<Option<Blame>, HarnessFault> {
        let verdicts = self.duels.iter_mut().map(Duel::walk).collect::<Result<_, _>>()?;
        Ok(self.vote(verdicts))
    }

    /// Lets the checkers look; how many there are.
    pub(super) fn fsck(&mut self) -> Result<(u64, Option<Blame>), HarnessFault> {
        let mut verdicts = Vec::with_capacity(self.duels.len());
        let mut checkers = 0;
        for duel in &mut self.duels {
            let (there, verdict) = duel.fsck()?;
            checkers += u64::from(there);
            verdicts.push(verdict);
        }
        Ok((checkers, self.vote(verdicts)))
    }

    fn vote(&self, verdicts: Vec<Verdict>) -> Option<Blame> {
        let wrong: Vec<usize> = (0..verdicts.len())
            .filter(|&player| matches!(verdicts[player], Verdict::Violation(_)))
            .collect();
        let player = *wrong.first()?;
        let Verdict::Violation(violation) = verdicts.into_iter().nth(player)? else { return None };
        let vote = (self.names.len() > 1).then(|| self.words(&wrong));
        Some(Blame { player, violation, vote })
    }

    fn words(&self, wrong: &[usize]) -> String {
        let named = |players: Vec<usize>| {
            players.iter().map(|&player| self.names[player].as_str()).collect::<Vec<_>>().join(", ")
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
        let marks = self.duels.iter_mut().zip(&self.ways).map(|(duel, way)| duel.save(*way));
        Ok(Marks(marks.collect::<Result<_, _>>()?))
    }

    /// Goes back.
    pub(super) fn restore(&mut self, marks: &Marks) -> Result<(), HarnessFault> {
        self.duels.iter_mut().zip(&marks.0).try_for_each(|(duel, mark)| duel.restore(mark))
    }

    /// Not needed any more.
    pub(super) fn forget(&mut self, marks: &Marks) {
        for (duel, mark) in self.duels.iter_mut().zip(&marks.0) {
            duel.forget(mark);
        }
    }
}

fn way_of(subject: &dyn Territory, back: Back) -> Result<Option<Way>, HarnessFault> {
    let ways = subject.ways();
    match back {
        Back::Replay => Ok(None),
        Back::Cheapest => Ok(ways.first().copied()),
        Back::Way(way) if ways.contains(&way) => Ok(Some(way)),
        Back::Way(way) => {
            let mut known: Vec<&str> = ways.iter().map(|way| way.name()).collect();
            known.push("replay");
            Err(HarnessFault::new(
                format!("{} cannot go back by {way}", subject.name()),
                format!("give one of {}", known.join(", ")),
            ))
        }
    }
}
