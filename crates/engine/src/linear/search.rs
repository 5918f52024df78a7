//! The search for an order, after Wing and Gong.
//!
//! Calls are one step each in a first search. If that finds no order, and Linux does some of the calls in steps (it
//! walks a path name by name and acts upon what it found), a second search does these steps one by one.

use std::collections::HashSet;

use fathom_core::{Outcome, Tree, Verdict};
use fathom_model::Model;
use twox_hash::XxHash3_128;

use super::history::{Call, History, HistoryError, Prepared};
use super::{Effort, Judge, Judgement};
use crate::check::oracle::Oracle;

/// What must be explained.
pub(super) struct Goal<'h> {
    /// Every call that returned until then; calls that are under way may have had their effect or not.
    pub(super) until: u64,
    /// What the file system showed in the end.
    pub(super) last: Option<&'h Tree>,
    /// A call of which any answer is taken.
    pub(super) open: Option<usize>,
}

impl<'h> Goal<'h> {
    /// All of a history.
    pub(super) fn whole(history: &'h History) -> Goal<'h> {
        Goal { until: u64::MAX, last: history.last.as_ref(), open: None }
    }

    /// Its beginning.
    pub(super) fn until(until: u64) -> Goal<'h> {
        Goal { until, last: None, open: None }
    }
}

/// A state of the search: how far each caller is, and the reference there.
#[derive(Clone)]
struct Node {
    at: Vec<u32>,
    /// How far the next call of each caller is.
    begun: Vec<Begun>,
    model: Model,
    /// What the call of [`Goal::open`] answered, once it is placed.
    open: Option<Outcome>,
}

/// How far a call is that is looked at in steps.
#[derive(Clone, Default)]
struct Begun {
    steps: usize,
    /// What it would have answered in the last step before its answer.
    glimpse: Option<Outcome>,
}

/// What can come next of a lane.
#[derive(Clone, Copy)]
enum Move {
    /// All that is left of its next call.
    Rest(usize),
    /// One step of it.
    Step(usize),
}

/// A state with several moves that could come next, and those of them that were not tried yet.
struct Frame {
    node: Node,
    /// The next one to be tried last.
    untried: Vec<Move>,
    placed: usize,
}

/// A search on one history.
pub(super) struct Search<'a, 'h> {
    prepared: &'a Prepared<'h>,
    oracle: &'a Oracle,
    effort: Effort,
    empty: Model,
    tried: HashSet<u128>,
    stack: Vec<Frame>,
    order: Vec<usize>,
    executed: u64,
    /// Calls are looked at in steps.
    in_steps: bool,
}

/// What comes next in a state.
enum Next {
    /// Everything is placed.
    Done,
    /// Only the call of this lane needs to be tried.
    Only(usize),
    /// One of these.
    OneOf(Vec<Move>),
    /// This state was tried before, or nothing can be placed.
    Nothing,
}

impl<'a, 'h> Search<'a, 'h> {
    pub(super) fn new(
        prepared: &'a Prepared<'h>,
        by: &Judge<'_>,
        oracle: &'a Oracle,
    ) -> Result<Search<'a, 'h>, HistoryError> {
        Ok(Search {
            prepared,
            oracle,
            effort: by.effort,
            empty: Model::new(by.reference.clone())?,
            tried: HashSet::new(),
            stack: Vec::new(),
            order: Vec::new(),
            executed: 0,
            in_steps: false,
        })
    }

    /// How many calls the reference has executed.
    pub(super) fn executed(&self) -> u64 {
        self.executed
    }

    /// Looks for an order.
    pub(super) fn run(&mut self, goal: &Goal<'_>) -> Judgement {
        self.in_steps = false;
        let judgement = self.run_once(goal);
        if judgement != Judgement::NoOrder || !self.prepared.has_steps() {
            return judgement;
        }
        self.in_steps = true;
        self.run_once(goal)
    }

    fn run_once(&mut self, goal: &Goal<'_>) -> Judgement {
        let mut explained = false;
        let complete = self.explore(goal, |_| {
            explained = true;
            true
        });
        match (explained, complete) {
            (true, _) => Judgement::Explained(std::mem::take(&mut self.order)),
            (false, true) => Judgement::NoOrder,
            (false, false) => Judgement::Unknown,
        }
    }

    /// The answers that the call of a step could have given.
    pub(super) fn answers(&mut self, step: usize, max: usize) -> Vec<Outcome> {
        let call = self.prepared.lanes.iter().flatten().find(|call| call.place == step);
        let Some(call) = call else { return Vec::new() };
        let goal = Goal { until: call.returned, last: None, open: Some(step) };
        let mut answers: Vec<Outcome> = Vec::new();
        self.in_steps = self.prepared.has_steps();
        self.explore(&goal, |node| {
            if let Some(answer) = node.open.as_ref().filter(|answer| !answers.contains(answer)) {
                answers.push(answer.clone());
            }
            answers.len() >= max
        });
        answers
    }

    /// Visits the ends of all orders, until `enough`. Returns whether everything was tried.
    fn explore(&mut self, goal: &Goal<'_>, mut enough: impl FnMut(&Node) -> bool) -> bool {
        self.tried.clear();
        self.stack.clear();
        self.order.clear();
        let lanes = self.prepared.lanes.len();
        let begun = vec![Begun::default(); lanes];
        let first = Node { at: vec![0; lanes], begun, model: self.empty.clone(), open: None };
        let mut here = Some(first);
        loop {
            let Some(mut node) = here.take().or_else(|| self.another(goal)) else { return true };
            if self.executed > self.effort.calls_max {
                return false;
            }
            match self.next(&mut node, goal) {
                Next::Nothing => {}
                Next::Done => {
                    if self.ends_well(&node, goal) && enough(&node) {
                        return true;
                    }
                }
                Next::Only(lane) => here = self.place(node, lane, goal),
                Next::OneOf(untried) => {
                    self.stack.push(Frame { node, untried, placed: self.order.len() });
                }
            }
        }
    }

    /// The next alternative that was not tried, after it was.
    fn another(&mut self, goal: &Goal<'_>) -> Option<Node> {
        loop {
            let frame = self.stack.last_mut()?;
            self.order.truncate(frame.placed);
            let Some(next) = frame.untried.pop() else {
                self.stack.pop();
                continue;
            };
            let node = match frame.untried.is_empty() {
                true => self.stack.pop()?.node,
                false => frame.node.clone(),
            };
            let after = match next {
                Move::Rest(lane) => self.place(node, lane, goal),
                Move::Step(lane) => self.step(node, lane, goal),
            };
            if after.is_some() {
                return after;
            }
        }
    }

    fn call(&self, node: &Node, lane: usize) -> Option<&'a Call<'h>> {
        let prepared: &'a Prepared<'h> = self.prepared;
        prepared.lanes[lane].get(node.at[lane] as usize)
    }

    /// Decides what is tried in a state. Calls that only look are placed here, where they fit.
    fn next(&mut self, node: &mut Node, goal: &Goal<'_>) -> Next {
        loop {
            let Some(mut ready) = self.ready(node, goal) else { return Next::Done };
            if let [only] = ready[..] {
                return Next::Only(only);
            }
            if !self.effort.reduce {
                return self.unless_tried(node, &ready);
            }
            if let Some(lane) = self.commuting(node, &ready) {
                return Next::Only(lane);
            }
            let mut placed = false;
            ready.retain(|&lane| {
                let looks = self.call(node, lane).is_some_and(|call| {
                    call.only_looks && call.relaxed.is_none() && Some(call.place) != goal.open
                });
                let fitting = if looks { self.place(node.clone(), lane, goal) } else { None };
                let fits = fitting.is_some();
                if let Some(after) = fitting {
                    *node = after;
                    placed = true;
                }
                !looks || !fits && self.has_step(node, lane)
            });
            if placed {
                continue;
            }
            // What only looks and does not fit here can only come after something else.
            return match ready[..] {
                [] => Next::Nothing,
                [only] if !self.has_step(node, only) => Next::Only(only),
                _ => self.unless_tried(node, &ready),
            };
        }
    }

    /// Whether the next call of a lane has a step before its answer.
    fn has_step(&self, node: &Node, lane: usize) -> bool {
        let steps = self.call(node, lane).map_or(0, Call::steps);
        self.in_steps && node.begun[lane].steps < steps
    }

    /// The lanes whose next call no other one precedes, the one that returned first last. `None` if all
    /// that must be explained is.
    fn ready(&self, node: &Node, goal: &Goal<'_>) -> Option<Vec<usize>> {
        let lanes = 0..self.prepared.lanes.len();
        let pending = |lane: &usize| self.call(node, *lane);
        let returns = lanes.clone().filter_map(|lane| pending(&lane)).map(|call| call.returned);
        let first = returns.min().filter(|first| *first <= goal.until)?;
        let mut ready: Vec<usize> =
            lanes.filter(|lane| pending(lane).is_some_and(|call| call.invoked < first)).collect();
        ready.sort_by_key(|lane| std::cmp::Reverse(pending(lane).map(|call| call.returned)));
        Some(ready)
    }

    /// A lane whose next call commutes with everything that could come before it.
    fn commuting(&self, node: &Node, ready: &[usize]) -> Option<usize> {
        if !self.prepared.commutes {
            return None;
        }
        let alone = |lane: usize| {
            let Some(call) = self.call(node, lane) else { return false };
            let others = self.prepared.lanes.iter().enumerate().filter(|(other, _)| *other != lane);
            let mut before = others.flat_map(|(other, calls)| {
                let first = node.at[other] as usize;
                calls[first..].iter().take_while(|other| other.invoked < call.returned)
            });
            call.relaxed.is_none()
                && !before.any(|other| other.footprint.conflicts(&call.footprint))
        };
        ready.iter().rev().copied().find(|&lane| alone(lane))
    }

    fn unless_tried(&mut self, node: &Node, ready: &[usize]) -> Next {
        if self.effort.memo && !self.tried.insert(key(node)) {
            return Next::Nothing;
        }
        // A call as a whole first: there are more ways in steps.
        let steps = ready.iter().filter(|&&lane| self.has_step(node, lane));
        let steps = steps.map(|&lane| Move::Step(lane));
        Next::OneOf(steps.chain(ready.iter().map(|&lane| Move::Rest(lane))).collect())
    }

    /// The state after one step of the next call of a lane. A call whose path ends in the middle has ended.
    fn step(&mut self, mut node: Node, lane: usize, goal: &Goal<'_>) -> Option<Node> {
        let call = self.call(&node, lane)?;
        self.executed += 1;
        let done = node.begun[lane].steps;
        if done < call.walks {
            if let Err(errno) = node.model.advance(call.caller, call.op, done) {
                return self.answered(node, lane, call, Outcome::err(errno), goal);
            }
        } else if done < call.walks + call.counts()
            && node.model.count(call.caller, call.op, call.walks, &call.order)
        {
            // Others see it now.
        } else if call.leaves {
            if !self.counts_hold(&mut node, lane, call) {
                return None;
            }
            node.begun[lane].steps = call.walks + call.counts();
            let outcome = node.model.take_away(call.caller, call.op, call.walks);
            if outcome.result.is_err() {
                return self.answered(node, lane, call, outcome, goal);
            }
        } else if done < call.walks + call.counts() {
            return None;
        } else {
            let glimpse = node.model.clone().finish(call.caller, call.op, call.walks);
            node.begun[lane].glimpse = Some(glimpse);
        }
        node.begun[lane].steps += 1;
        Some(node)
    }

    /// The state after the next call of a lane, if its answer fits.
    fn place(&mut self, mut node: Node, lane: usize, goal: &Goal<'_>) -> Option<Node> {
        let call = self.call(&node, lane)?;
        self.executed += 1;
        if !self.counts_hold(&mut node, lane, call) {
            return None;
        }
        let done = node.begun[lane].steps.min(call.walks);
        if !call.is_refused() || Some(call.place) == goal.open {
            let expected = node.model.finish(call.caller, call.op, done);
            return self.answered(node, lane, call, expected, goal);
        }
        let mut refused = node.clone();
        let expected = node.model.finish(call.caller, call.op, done);
        if self.fits(call, &expected) {
            return self.answered(node, lane, call, expected, goal);
        }
        refused.model.refuse(call.caller, call.op);
        self.answered(refused, lane, call, call.outcome.clone(), goal)
    }

    /// Whether the link counts that others have seen of a call that is not done are those that it leaves behind.
    fn counts_hold(&self, node: &mut Node, lane: usize, call: &Call<'_>) -> bool {
        let counts = node.begun[lane].steps > call.walks && !call.order.is_empty();
        !counts || node.model.counts_hold(call.caller, call.op, call.walks, &call.order)
    }

    fn answered(
        &mut self,
        mut node: Node,
        lane: usize,
        call: &Call<'h>,
        expected: Outcome,
        goal: &Goal<'_>,
    ) -> Option<Node> {
        let begun = std::mem::take(&mut node.begun[lane]);
        if Some(call.place) == goal.open {
            node.open = Some(expected);
        } else if !self.fits(call, &expected) {
            let relaxed = call.relaxed.as_ref()?;
            let glimpse = begun.glimpse.as_ref().unwrap_or(&expected);
            if !relaxed.accepts(glimpse, &expected, call.outcome, |one| self.fits(call, one)) {
                return None;
            }
        }
        node.at[lane] += 1;
        self.order.push(call.place);
        Some(node)
    }

    fn fits(&self, call: &Call<'_>, expected: &Outcome) -> bool {
        expected == call.outcome
            || self.oracle.outcome(call.op, expected, call.outcome) == Verdict::Ok
    }

    fn ends_well(&self, node: &Node, goal: &Goal<'_>) -> bool {
        goal.last.is_none_or(|last| self.oracle.tree(&node.model, last) == Verdict::Ok)
    }
}

/// What decides how the search goes on from a state.
fn key(node: &Node) -> u128 {
    let mut hash = XxHash3_128::with_seed(0);
    hash.write(&node.model.state_digest().0.to_le_bytes());
    for (at, begun) in node.at.iter().zip(&node.begun) {
        hash.write(&at.to_le_bytes());
        hash.write(&[begun.steps as u8]);
        if let Some(glimpse) = &begun.glimpse {
            hash.write(glimpse.to_string().as_bytes());
        }
    }
    if let Some(open) = &node.open {
        hash.write(open.to_string().as_bytes());
    }
    hash.finish_128()
}
