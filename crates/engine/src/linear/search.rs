//! The search for an order, after Wing and Gong.

use std::collections::HashSet;

use fathom_core::{Outcome, Tree, Verdict};
use fathom_model::Model;
use twox_hash::XxHash3_128;

use super::history::{Call, History, HistoryError, Prepared};
use super::relaxed::Accepted;
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
    model: Model,
    /// What the call of [`Goal::open`] answered, once it is placed.
    open: Option<Outcome>,
}

/// A state with several calls that could come next, and those of them that were not tried yet.
struct Frame {
    node: Node,
    /// Lanes, the next one to be tried last.
    untried: Vec<usize>,
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
}

/// What comes next in a state.
enum Next {
    /// Everything is placed.
    Done,
    /// Only the call of this lane needs to be tried.
    Only(usize),
    /// One of the calls of these lanes.
    OneOf(Vec<usize>),
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
        })
    }

    /// How many calls the reference has executed.
    pub(super) fn executed(&self) -> u64 {
        self.executed
    }

    /// Looks for an order.
    pub(super) fn run(&mut self, goal: &Goal<'_>) -> Judgement {
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
        let first = Node { at: vec![0; lanes], model: self.empty.clone(), open: None };
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
                Next::OneOf(lanes) => {
                    self.stack.push(Frame { node, untried: lanes, placed: self.order.len() });
                }
            }
        }
    }

    /// The next alternative that was not tried, after it was.
    fn another(&mut self, goal: &Goal<'_>) -> Option<Node> {
        loop {
            let frame = self.stack.last_mut()?;
            self.order.truncate(frame.placed);
            let Some(lane) = frame.untried.pop() else {
                self.stack.pop();
                continue;
            };
            let node = match frame.untried.is_empty() {
                true => self.stack.pop()?.node,
                false => frame.node.clone(),
            };
            if let Some(node) = self.place(node, lane, goal) {
                return Some(node);
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
                return self.unless_tried(node, ready);
            }
            if let Some(lane) = self.commuting(node, &ready) {
                return Next::Only(lane);
            }
            let mut placed = false;
            ready.retain(|&lane| {
                let looks = self.call(node, lane).is_some_and(|call| {
                    call.only_looks && call.relaxed.is_none() && Some(call.place) != goal.open
                });
                if looks && let Some(after) = self.place(node.clone(), lane, goal) {
                    *node = after;
                    placed = true;
                }
                !looks
            });
            if placed {
                continue;
            }
            // What only looks and does not fit here can only come after something else.
            return match ready[..] {
                [] => Next::Nothing,
                [only] => Next::Only(only),
                _ => self.unless_tried(node, ready),
            };
        }
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

    fn unless_tried(&mut self, node: &Node, ready: Vec<usize>) -> Next {
        if self.effort.memo && !self.tried.insert(key(node)) {
            return Next::Nothing;
        }
        Next::OneOf(ready)
    }

    /// The state after the next call of a lane, if its answer fits.
    fn place(&mut self, mut node: Node, lane: usize, goal: &Goal<'_>) -> Option<Node> {
        let call = self.call(&node, lane)?;
        self.executed += 1;
        let before = call.relaxed.as_ref().map(|_| node.model.clone());
        let expected = node.model.execute_as(call.caller, call.op);
        if Some(call.place) == goal.open {
            node.open = Some(expected);
        } else if !self.fits(call, &expected) {
            let relaxed = call.relaxed.as_ref()?;
            match relaxed.accepts(&expected, call.outcome) {
                Accepted::No => return None,
                Accepted::AsExecuted => {}
                Accepted::WithoutEffect => node.model = before?,
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
    for at in &node.at {
        hash.write(&at.to_le_bytes());
    }
    if let Some(open) = &node.open {
        hash.write(open.to_string().as_bytes());
    }
    hash.finish_128()
}
