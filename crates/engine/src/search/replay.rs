//! Replay: follows one given path, and judges every state on it like any other search.

use std::time::Instant;

use crate::search::visited::{Arrival, Sharded, Visited, shard_of};

use super::judge::{Judge, Tallies};
use super::key::scatter;
use super::path::Path;
use super::plan::Plan;
use super::report::{Report, Stop};
use super::system::System;

/// Follows a path.
pub(super) fn replay<S: System, V: Visited>(
    system: &S,
    plan: &Plan,
    path: &Path,
    visited: &Sharded<V>,
) -> Report {
    let started = Instant::now();
    let judge = Judge::new(system, plan.deadlock);
    let mut found: Tallies<usize> = judge.tallies();
    let mut states_by_depth = Vec::new();
    let mut visit = |state: &S::State, step: usize| {
        let key = scatter(system.key(state));
        let new = visited.shard(shard_of(key)).insert(key, 0) == Arrival::New;
        states_by_depth.push(u64::from(new));
        judge.state(state, step, &mut found) && plan.stop_at_first
    };
    let mut step = 0;
    let mut state = path.0.first().and_then(|&first| system.init().into_iter().nth(first as usize));
    let mut actions = Vec::new();
    let stop = loop {
        let Some(present) = &state else { break Stop::Diverged(step) };
        if visit(present, step) {
            break Stop::Violation;
        }
        actions.clear();
        system.actions(present, &mut actions);
        step += 1;
        let Some(&choice) = path.0.get(step) else { break Stop::Replayed };
        state = actions.get(choice as usize).and_then(|action| system.next(present, action));
    };
    let end = state.filter(|_| stop == Stop::Replayed);
    if let Some(end) = end
        && judge.is_deadlock(&end)
        && actions.iter().all(|action| system.next(&end, action).is_none())
    {
        judge.deadlock(step - 1, &mut found);
    }
    let states = states_by_depth.iter().sum();
    Report {
        stop,
        states,
        transitions: states_by_depth.len().saturating_sub(1) as u64,
        states_by_depth,
        states_open: 0,
        discoveries: judge.discoveries(&found, |step| Path(path.0[..=*step].to_vec())),
        never: judge.never(&found),
        omitted: visited.omitted(),
        visited_bytes: visited.bytes(),
        links_bytes: 0,
        elapsed: started.elapsed(),
    }
}
