//! Finds shorter and simpler ways to the same violation, by trying.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use fathom_engine::search::{Discovery, Expectation, Trace};
use fathom_record::minimise;

use crate::story::ExplainedSystem;

/// Takes the actions, if each makes sense where it is taken; returns the trace, if the property is
/// violated in its last state.
pub fn play<S: ExplainedSystem>(
    system: &S,
    property: &str,
    actions: &[S::Action],
) -> Option<Trace<S>> {
    let trace = follow(system, actions)?;
    violates(system, property, trace.end()).then_some(trace)
}

/// Takes the actions, if each makes sense where it is taken; returns the trace.
pub fn follow<S: ExplainedSystem>(system: &S, actions: &[S::Action]) -> Option<Trace<S>> {
    let start = system.init().into_iter().next()?;
    let mut trace = Trace { start, steps: Vec::with_capacity(actions.len()) };
    for action in actions {
        if !system.is_possible(trace.end(), action) {
            return None;
        }
        let next = system.next(trace.end(), action)?;
        trace.steps.push((action.clone(), next));
    }
    Some(trace)
}

fn violates<S: ExplainedSystem>(system: &S, property: &str, state: &S::State) -> bool {
    if property == Discovery::DEADLOCK {
        let mut actions = Vec::new();
        system.actions(state, &mut actions);
        let stuck = actions.iter().all(|action| system.next(state, action).is_none());
        return system.has_deadlocks() && stuck && !system.may_end(state);
    }
    let always = |known: &&fathom_engine::search::Property<S>| {
        known.name == property && known.expectation == Expectation::Always
    };
    system.properties().iter().find(always).is_some_and(|known| !(known.holds)(system, state))
}

/// A shortest sequence that can be reached by leaving out runs of actions and by making single ones
/// simpler. Stops when the time is over, with what it has.
pub fn shrink<S: ExplainedSystem>(
    system: &S,
    property: &str,
    actions: &[S::Action],
    budget: Duration,
) -> Vec<S::Action> {
    let end = Instant::now() + budget;
    let mut best = actions.to_vec();
    let shows = |candidate: &[S::Action]| play(system, property, candidate).is_some();
    loop {
        let shorter = minimise(best, end, |candidate| {
            let shorter = !candidate.is_empty() && shows(candidate);
            Ok::<_, Infallible>(shorter.then(|| candidate.to_vec()))
        });
        best = match shorter {
            Ok(shorter) => shorter,
        };
        let simpler = |index: usize| {
            system.simpler(&best[index]).into_iter().find_map(|action| {
                let mut candidate = best.clone();
                candidate[index] = action;
                (Instant::now() < end && shows(&candidate)).then_some(candidate)
            })
        };
        match (0..best.len()).find_map(simpler) {
            Some(simpler) => best = simpler,
            None => return best,
        }
    }
}
