//! One piece of a batch: takes a run of parents and makes runs of children.

use crate::search::visited::{Arrival, Sharded, View, Visited};

use super::arrivals::Arrivals;
use super::fold::Ancestors;
use super::judge::{Judge, Tallies};
use super::key::scatter;
use super::links::Segment;
use super::open::{Run, Span, run_states_max};
use super::plan::Plan;
use super::recent::Recent;
use super::report::Stop;
use super::system::System;

/// The system, the plan and the sets that all pieces use.
pub(super) struct Setting<'a, S: System, V> {
    pub(super) system: &'a S,
    pub(super) plan: &'a Plan,
    pub(super) visited: &'a Sharded<V>,
    pub(super) judge: &'a Judge<'a, S>,
}

/// A place in a piece where something was found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The parent with this index.
    Parent(u64),
    /// The child with this index among those kept.
    Child(u64),
}

/// The action that led to a child.
struct Origin {
    parent: u32,
    choice: u32,
}

/// Number of candidates that are looked up together.
const CANDIDATES_ENOUGH: usize = 48;

/// Greatest number of empty vectors that a piece keeps.
const SPARE_MAX: usize = 4;

/// A run of parents, then their children, then those that are kept. Neighbours are worked on by
/// different threads at the same time: they share no cache line.
#[repr(align(128))]
pub(super) struct Piece<S: System> {
    parents: Vec<S::State>,
    span: Span,
    /// The ancestors of the parents, if these are folded.
    ancestors: Ancestors,
    /// The last children, about which the visited set was not asked yet.
    candidates: Vec<(u128, Origin)>,
    pub(super) arrivals: Arrivals,
    /// The origin of each key in `arrivals`.
    origins: Vec<Origin>,
    children: Vec<S::State>,
    /// Number of steps out of all parents up to and including each.
    transitions: Vec<u64>,
    /// Parents that should have successors and have none.
    stuck: Vec<u32>,
    /// Empty vectors for the states of a run. Allocating these anew would make `malloc` tidy up its
    /// small blocks every time, which costs a search of small states half of its speed.
    spare: Vec<Vec<S::State>>,
    /// Number of children that may still be kept, by the bound on states.
    pub(super) room: u64,
    /// The thread that made the parents, then the children.
    home: usize,
    result: PieceResult<S::State>,
}

/// The result of a piece.
pub(super) struct PieceResult<T> {
    /// The children kept, unless they are too deep to be explored.
    pub(super) runs: Vec<Vec<T>>,
    /// The thread that made them.
    pub(super) home: usize,
    /// The links to them.
    pub(super) links: Segment,
    /// Number of new states among them.
    pub(super) states_new: u64,
    /// Former depths of the others, which were known to be deeper.
    pub(super) moved_from: Vec<u32>,
    /// Sum of their keys.
    pub(super) key_sum: u128,
    /// The finds among them.
    pub(super) tallies: Tallies<Place>,
    /// Parents explored completely.
    pub(super) parents_done: u64,
    /// Steps out of these.
    pub(super) transitions: u64,
    /// The reason why the search has to end here, if it has.
    pub(super) halt: Option<Stop>,
}

impl<S: System> Piece<S> {
    pub(super) fn new(judge: &Judge<'_, S>) -> Piece<S> {
        Piece {
            parents: Vec::new(),
            span: Span { depth: 0, first_node: 0, nodes: 0 },
            ancestors: Ancestors::default(),
            candidates: Vec::new(),
            arrivals: Arrivals::new(),
            origins: Vec::new(),
            children: Vec::new(),
            transitions: Vec::new(),
            stuck: Vec::new(),
            spare: Vec::new(),
            room: u64::MAX,
            home: 0,
            result: PieceResult::new(judge),
        }
    }

    /// Takes the parents.
    pub(super) fn load(&mut self, run: Run<S::State>) {
        self.span = run.span();
        self.parents = run.states;
        self.home = run.home;
    }

    /// Takes the numbers of folded parents, and their ancestors.
    pub(super) fn load_folded(&mut self, span: Span, ancestors: Ancestors) {
        (self.span, self.ancestors) = (span, ancestors);
    }

    /// Makes the parents, on this thread.
    pub(super) fn unfold(&mut self, system: &S, thread: usize) {
        self.parents = std::mem::take(&mut self.ancestors).make(system);
        self.home = thread;
    }

    /// Returns the parents, which were not explored.
    pub(super) fn unload(&mut self) -> Run<S::State> {
        let Span { depth, first_node, .. } = self.span;
        Run { depth, first_node, states: std::mem::take(&mut self.parents), home: self.home }
    }

    /// Takes the result.
    pub(super) fn take_result(&mut self, judge: &Judge<'_, S>) -> PieceResult<S::State> {
        std::mem::replace(&mut self.result, PieceResult::new(judge))
    }

    /// The numbers of the parents.
    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Depth of the children.
    pub(super) fn depth(&self) -> u32 {
        self.span.depth + 1
    }

    /// The thread that made what this piece holds.
    pub(super) fn home(&self) -> usize {
        self.home
    }

    /// Makes the children that the visited set does not know yet, on this thread.
    pub(super) fn expand<V: Visited>(
        &mut self,
        setting: &Setting<'_, S, V>,
        recent: &mut Recent,
        thread: usize,
    ) {
        self.home = thread;
        let Setting { system, plan, visited, judge } = setting;
        let mut view = visited.view();
        // A key that arrives again may be closer.
        let once = !view.keeps_depths();
        let (mut actions, mut transitions) = (Vec::new(), 0);
        let mut parents = std::mem::take(&mut self.parents);
        let shares = plan.threads() > 1;
        for (index, mut parent) in parents.drain(..).enumerate() {
            if shares {
                system.unshare(&mut parent);
            }
            let mut stuck = true;
            actions.clear();
            system.actions(&parent, &mut actions);
            for choice in plan.order.places(actions.len()) {
                let Some(child) = system.next(&parent, &actions[choice]) else { continue };
                stuck = false;
                if !system.within_boundary(&child) {
                    continue;
                }
                transitions += 1;
                let key = scatter(system.key(&child));
                if !(once && recent.meet(key)) {
                    let origin = Origin { parent: index as u32, choice: choice as u32 };
                    self.candidates.push((key, origin));
                    self.children.push(child);
                }
            }
            if self.candidates.len() >= CANDIDATES_ENOUGH {
                self.sift(&mut view);
            }
            self.transitions.push(transitions);
            if stuck && judge.is_deadlock(&parent) {
                self.stuck.push(index as u32);
                if plan.stop_at_first {
                    break;
                }
            }
        }
        self.sift(&mut view);
        self.recycle(parents);
    }

    /// Keeps the candidates that the visited set does not know yet. Looking up one after the other
    /// would mean waiting for the memory each time; many at once are waited for together.
    fn sift<V: Visited>(&mut self, view: &mut View<'_, V>) {
        let depth = self.depth();
        let touched = self.candidates.iter().fold(0, |sum, (key, ..)| sum ^ view.touch(*key));
        std::hint::black_box(touched);
        // In place: states may be large.
        let mut kept = self.children.len() - self.candidates.len();
        for (at, (key, origin)) in (kept..).zip(self.candidates.drain(..)) {
            if !view.knows(key, depth) {
                self.arrivals.push(key);
                self.origins.push(origin);
                if kept != at {
                    self.children.swap(kept, at);
                }
                kept += 1;
            }
        }
        self.children.truncate(kept);
    }

    /// Keeps the children that are new, and judges them.
    pub(super) fn collect<V>(&mut self, setting: &Setting<'_, S, V>) {
        let Setting { plan, judge, .. } = setting;
        let explored = plan.depth_max.is_none_or(|max| self.depth() < max);
        let mut parents_done = self.transitions.len();
        let result = &mut self.result;
        result.home = self.home;
        let arrivals = self.arrivals.iter().zip(&self.origins);
        for (((key, arrival), origin), child) in arrivals.zip(self.children.drain(..)) {
            match arrival {
                Arrival::Known => continue,
                Arrival::New if result.states_new == self.room => {
                    result.halt = Some(Stop::States);
                    parents_done = origin.parent as usize;
                    break;
                }
                Arrival::New => result.states_new += 1,
                Arrival::Closer(was) => result.moved_from.push(was),
            }
            let place = Place::Child(result.links.nodes);
            result.links.push(self.span.first_node + u64::from(origin.parent), origin.choice);
            result.key_sum = result.key_sum.wrapping_add(key);
            let violated =
                arrival == Arrival::New && judge.state(&child, place, &mut result.tallies);
            if explored {
                result.keep(child, &mut self.spare);
            }
            if violated && plan.stop_at_first {
                result.halt = Some(Stop::Violation);
                parents_done = origin.parent as usize;
                break;
            }
        }
        for &parent in self.stuck.iter().filter(|parent| (**parent as usize) < parents_done) {
            judge.deadlock(Place::Parent(u64::from(parent)), &mut result.tallies);
            if plan.stop_at_first {
                result.halt = Some(Stop::Violation);
            }
        }
        result.parents_done = parents_done as u64;
        result.transitions = parents_done.checked_sub(1).map_or(0, |last| self.transitions[last]);
        self.clear();
    }

    /// Keeps an empty vector for later.
    pub(super) fn recycle(&mut self, vector: Vec<S::State>) {
        if vector.capacity() >= run_states_max::<S::State>() && self.spare.len() < SPARE_MAX {
            self.spare.push(vector);
        }
    }

    fn clear(&mut self) {
        self.arrivals.clear();
        self.origins.clear();
        self.transitions.clear();
        self.stuck.clear();
    }
}

impl<T> PieceResult<T> {
    fn new<S: System>(judge: &Judge<'_, S>) -> PieceResult<T> {
        PieceResult {
            runs: Vec::new(),
            home: 0,
            links: Segment::default(),
            states_new: 0,
            moved_from: Vec::new(),
            key_sum: 0,
            tallies: judge.tallies(),
            parents_done: 0,
            transitions: 0,
            halt: None,
        }
    }

    /// Keeps a child, in a new vector if the last one is full.
    fn keep(&mut self, child: T, spare: &mut Vec<Vec<T>>) {
        match self.runs.last_mut() {
            Some(run) if run.len() < run_states_max::<T>() => run.push(child),
            _ => {
                let mut run =
                    spare.pop().unwrap_or_else(|| Vec::with_capacity(run_states_max::<T>()));
                run.push(child);
                self.runs.push(run);
            }
        }
    }
}
