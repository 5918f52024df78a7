//! Depth first, going back after everything that leads to a known state: how Metis explores, and
//! what a tour is measured against.

use fathom_core::{HarnessFault, RestoreMethod};

use super::explore::Remounts;
use super::lineup::Marks;
use super::map::{Map, StateId};
use super::{Campaign, StepResult};

/// A state on the way to the present one.
struct Frame {
    state: StateId,
    marks: Marks,
}

impl Campaign<'_, '_> {
    pub(super) fn dfs(&mut self) -> Result<(), HarnessFault> {
        self.restart()?;
        let explore = &self.plan.explore;
        let start = self.lineup.model().digest();
        let mut map = Map::new(start, explore.moves, explore.depth_max);
        let marks = self.lineup.save()?;
        let mut stack = vec![Frame { state: super::map::START, marks }];
        while let Some(frame) = stack.last() {
            if self.is_over() || self.plan.explore.states_max.is_some_and(|max| map.len() >= max) {
                break;
            }
            let Some(by) = map.next_move(frame.state) else {
                self.lineup.forget(&frame.marks);
                stack.pop();
                self.go_back_to(&stack)?;
                continue;
            };
            let from = frame.state;
            let ops = self.meta_of(map.digest(from), by);
            let went = self.perform(&ops)?;
            let (to, new) = match went {
                StepResult::AsExpected => map.arrive(self.lineup.model().digest(), from, by),
                StepResult::Diverged => (from, false),
                StepResult::OutOfOps => break,
            };
            self.stats.depth = self.stats.depth.max(map.depth(to));
            if new && map.depth(to) < self.plan.explore.depth_max {
                let marks = self.lineup.save()?;
                // What was saved while it was unmounted has been mounted again.
                let looked = if self.lineup.restore_method() == Some(RestoreMethod::Remount) {
                    self.stats.remounts += 1;
                    self.since_tree += 1;
                    self.last_look()?
                } else {
                    self.maintain(ops.len())?
                };
                if looked == StepResult::Diverged {
                    // What was saved may be wrong already: nothing is explored from there.
                    self.lineup.forget(&marks);
                    self.go_back_to(&stack)?;
                } else {
                    stack.push(Frame { state: to, marks });
                }
            } else if went == StepResult::Diverged
                || to != from
                || self.remounts_every_op()
                || self.maintain(ops.len())? == StepResult::Diverged
            {
                self.go_back_to(&stack)?;
            }
        }
        self.stats.known = map.len() as u64;
        self.stats.open = map.open() as u64;
        self.stats.complete = stack.is_empty();
        while let Some(frame) = stack.pop() {
            self.lineup.forget(&frame.marks);
        }
        Ok(())
    }

    /// Goes back to the last state on the way, if there is one.
    fn go_back_to(&mut self, stack: &[Frame]) -> Result<(), HarnessFault> {
        let Some(frame) = stack.last() else { return Ok(()) };
        if let Some(accusation) = self.lineup.without_server() {
            // What it had saved has ended with it.
            let _ = self.look_closer(accusation)?;
            self.over = true;
            return Ok(());
        }
        self.stats.restores += 1;
        self.since_tree = 0;
        self.lineup.restore(&frame.marks)
    }

    fn remounts_every_op(&self) -> bool {
        self.plan.explore.remounts == Some(Remounts::EveryOp)
    }
}
