//! Random walks: independent paths, each from its own stream of choices.
//!
//! Walk number i of a seed is the same whoever walks it. Walks are made in rounds of a fixed size,
//! and everything is counted at the end of a round, in the order of the walks; a search that ends at
//! a violation tells the one of the lowest walk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::search::visited::{Arrival, SHARDS, Sharded, Visited};
use fathom_generate::choice::Choices;

use super::arrivals::Arrivals;
use super::judge::{Judge, Tallies};
use super::key::scatter;
use super::path::Path;
use super::plan::Plan;
use super::progress::{Clock, Observer, Progress};
use super::report::{Report, Stop};
use super::system::System;
use super::workers::{Task, Workers};

/// Number of steps of a walk if the plan has no bound.
const STEPS_MAX: u32 = 1000;

/// Number of walks of one group: a thread makes them in one go.
const GROUP_WALKS: u64 = 4;

/// Number of groups of a round.
const ROUND_GROUPS: usize = 64;

/// The parallel steps of a round: walk (by group), insert (by shard).
#[derive(Clone, Copy)]
enum Phase {
    Walk,
    Insert,
}

/// A walk and a step of it.
#[derive(Clone, Copy, Debug)]
struct Place {
    walk: u64,
    step: u32,
}

/// The keys and finds of the walks of one group.
struct Group {
    arrivals: Arrivals,
    /// The step at which each key arrived.
    steps: Vec<u32>,
    transitions: u64,
    found: Tallies<Place>,
}

/// Makes `walks` walks.
pub(super) fn walk<S: System, V: Visited>(
    system: &S,
    plan: &Plan,
    seed: u64,
    walks: u64,
    visited: &Sharded<V>,
    observer: &mut dyn Observer,
) -> Report {
    let judge = Judge::new(system, plan.deadlock);
    let walker = Walker { system, plan, seed, judge: &judge };
    let groups: Vec<Mutex<Group>> =
        (0..ROUND_GROUPS).map(|_| Mutex::new(Group::new(&judge))).collect();
    let done = AtomicU64::new(0);
    let work = |Task { phase, item, .. }: Task<Phase>| match phase {
        Phase::Walk => {
            let first = done.load(Ordering::Relaxed) + item as u64 * GROUP_WALKS;
            let mut group = lock(&groups[item]);
            (first..walks.min(first + GROUP_WALKS)).for_each(|n| walker.walk(n, &mut group));
        }
        Phase::Insert => {
            let mut shard = visited.shard(item);
            groups.iter().for_each(|group| lock(group).arrivals.insert(item, &mut *shard, 0));
        }
    };
    let mut total = Total { found: judge.tallies(), transitions: 0, states_by_depth: Vec::new() };
    let mut clock = Clock::start();
    let stop = Workers::gather(plan.threads(), &work, |workers| {
        loop {
            let start = done.load(Ordering::Relaxed);
            let bytes = || visited.bytes();
            if let Some(stop) =
                clock.check(plan, observer, || total.progress(walks - start, bytes()))
            {
                return stop;
            }
            if start == walks {
                return Stop::Walked;
            }
            workers.run(Phase::Walk, ROUND_GROUPS, None, false);
            workers.run(Phase::Insert, SHARDS, None, false);
            for group in &groups {
                let news = total.add(&mut lock(group), &judge);
                walker.announce(&total, &news, observer);
            }
            done.store(walks.min(start + GROUP_WALKS * ROUND_GROUPS as u64), Ordering::Relaxed);
            if plan.stop_at_first && judge.any_violation(&total.found) {
                return Stop::Violation;
            }
            if plan.states_max.is_some_and(|max| total.states() >= max) {
                return Stop::States;
            }
        }
    });
    Report {
        stop,
        states: total.states(),
        transitions: total.transitions,
        states_open: 0,
        discoveries: judge.discoveries(&total.found, |place| walker.path(*place)),
        never: judge.never(&total.found),
        states_by_depth: total.states_by_depth,
        omitted: visited.omitted(),
        visited_bytes: visited.bytes(),
        links_bytes: 0,
        elapsed: clock.started.elapsed(),
    }
}

impl Group {
    fn new<S: System>(judge: &Judge<'_, S>) -> Group {
        Group {
            arrivals: Arrivals::new(),
            steps: Vec::new(),
            transitions: 0,
            found: judge.tallies(),
        }
    }
}

/// The sum over all walks.
struct Total {
    found: Tallies<Place>,
    transitions: u64,
    /// New states by the step at which they were first met, in the order of the walks.
    states_by_depth: Vec<u64>,
}

impl Total {
    fn states(&self) -> u64 {
        self.states_by_depth.iter().sum()
    }

    fn progress(&self, open: u64, bytes: usize) -> Progress {
        let (states, transitions) = (self.states(), self.transitions);
        let depth = self.states_by_depth.len().saturating_sub(1);
        Progress { states, transitions, depth, open, bytes, ..Progress::default() }
    }

    /// Adds a group and empties it; returns the properties that have something found for the first
    /// time.
    fn add<S: System>(&mut self, group: &mut Group, judge: &Judge<'_, S>) -> Vec<usize> {
        for ((_, arrival), &step) in group.arrivals.iter().zip(&group.steps) {
            if arrival == Arrival::New {
                let step = step as usize;
                if self.states_by_depth.len() <= step {
                    self.states_by_depth.resize(step + 1, 0);
                }
                self.states_by_depth[step] += 1;
            }
        }
        self.transitions += std::mem::take(&mut group.transitions);
        group.arrivals.clear();
        group.steps.clear();
        let mut news = Vec::new();
        let found = std::mem::replace(&mut group.found, judge.tallies());
        judge.merge(&mut self.found, found, |index| news.push(index), |place| place);
        news
    }
}

/// The function by which a walk takes a step: [`System::next`], or [`System::retrace`] to look at
/// it again.
type Step<S> =
    fn(&S, &<S as System>::State, &<S as System>::Action) -> Option<<S as System>::State>;

/// Makes walks.
struct Walker<'a, S: System> {
    system: &'a S,
    plan: &'a Plan,
    seed: u64,
    judge: &'a Judge<'a, S>,
}

impl<S: System> Walker<'_, S> {
    /// Makes one walk for a group.
    fn walk(&self, walk: u64, group: &mut Group) {
        let Group { arrivals, steps, transitions, found } = group;
        let mut step = 0;
        let end = self.follow(walk, S::next, |state, _| {
            arrivals.push(scatter(self.system.key(state)));
            steps.push(step);
            *transitions += u64::from(step > 0);
            let violated = self.judge.state(state, Place { walk, step }, found);
            step += 1;
            !(violated && self.plan.stop_at_first)
        });
        if end.is_some_and(|end| self.judge.is_deadlock(&end)) {
            self.judge.deadlock(Place { walk, step: step - 1 }, found);
        }
    }

    /// Calls `visit` with each state of a walk and the choice that led there, while it returns true;
    /// returns the last state if it has no successor.
    fn follow(
        &self,
        walk: u64,
        step: Step<S>,
        mut visit: impl FnMut(&S::State, u32) -> bool,
    ) -> Option<S::State> {
        let system = self.system;
        let mut choices = Choices::of_episode(self.seed, walk);
        let mut init = system.init();
        if init.is_empty() {
            return None;
        }
        let first = choices.index(init.len());
        let mut state = init.swap_remove(first);
        if !system.within_boundary(&state) || !visit(&state, first as u32) {
            return None;
        }
        let mut actions = Vec::new();
        let mut untried = Vec::new();
        for _ in 0..self.plan.depth_max.unwrap_or(STEPS_MAX) {
            actions.clear();
            system.actions(&state, &mut actions);
            untried.clear();
            untried.extend(0..actions.len());
            let mut stuck = true;
            let taken = loop {
                if untried.is_empty() {
                    break None;
                }
                let choice = untried.swap_remove(choices.index(untried.len()));
                let next = step(system, &state, &actions[choice]);
                stuck &= next.is_none();
                if let Some(next) = next.filter(|next| system.within_boundary(next)) {
                    break Some((choice, next));
                }
            };
            match taken {
                None => return stuck.then_some(state),
                Some((choice, next)) => {
                    state = next;
                    if !visit(&state, choice as u32) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Walks again to find the choices of a walk up to a step.
    fn path(&self, place: Place) -> Path {
        let mut path = Path::default();
        self.follow(place.walk, S::retrace, |_, choice| {
            path.0.push(choice);
            path.steps() < place.step as usize
        });
        path
    }

    fn announce(&self, total: &Total, news: &[usize], observer: &mut dyn Observer) {
        for &index in news {
            let tally = &total.found.0[index];
            if let Some(place) = tally.first {
                observer.discovery(&self.judge.discovery(index, self.path(place), tally.count));
            }
        }
    }
}

fn lock(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    // Poisoned only by a panic of the system, which is on its way to the caller.
    group.lock().unwrap_or_else(PoisonError::into_inner)
}
