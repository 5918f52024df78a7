//! Why a history has no order: the shortest beginning without one, and the calls that it needs.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use fathom_core::{Op, Operand, Outcome, Slot, Target};
use fathom_record::minimise;

use super::history::Prepared;
use super::search::{Goal, Search};
use super::{Effort, History, HistoryError, Judge, Judgement, judge, possible_answers};
use crate::check::oracle::Oracle;

/// Time for leaving calls out of a conflict.
const MINIMISE_SECONDS: u64 = 5;

/// Executed calls of one question about a part of a history.
const CALLS_MAX: u64 = 200_000;

/// Answers that are told.
const ANSWERS_MAX: usize = 8;

/// Why there is no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The call whose return ends the shortest beginning without an order; `None` if every answer has one
    /// and only the last tree does not.
    pub step: Option<usize>,
    /// What that call could have answered, all others being as they are.
    pub possible: Vec<Outcome>,
    /// The calls that contradict each other, by their places: without those that only look and are not
    /// needed, and without those that have nothing to do with the others.
    pub needed: Vec<usize>,
}

/// Explains why a history has no order; `None` if it has one, or if that was not found out.
///
/// # Errors
/// As [`judge`].
pub fn explain(history: &History, by: &Judge<'_>) -> Result<Option<Conflict>, HistoryError> {
    if judge(history, by)? != Judgement::NoOrder {
        return Ok(None);
    }
    let moments = history.moments();
    let mut returns: Vec<(u64, usize)> =
        moments.iter().enumerate().map(|(place, moment)| (moment.1, place)).collect();
    returns.sort_unstable();
    let contradicts = |until: u64| -> Result<bool, HistoryError> {
        let prepared = Prepared::new(history, by.relaxations)?;
        let oracle = Oracle::new(by.reference, false);
        let mut search = Search::new(&prepared, by, &oracle)?;
        Ok(search.run(&Goal::until(until)) == Judgement::NoOrder)
    };
    let (mut low, mut high) = (0, returns.len());
    while low < high {
        let middle = (low + high) / 2;
        match contradicts(returns[middle].0)? {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    let all: Vec<usize> = (0..history.steps.len()).collect();
    let Some((until, step)) = returns.get(low).copied() else {
        return Ok(Some(Conflict { step: None, possible: Vec::new(), needed: all }));
    };
    let mut begun: Vec<usize> = all.into_iter().filter(|place| moments[*place].0 < until).collect();
    begun.sort_by_key(|place| moments[*place]);
    let asked = Judge { effort: Effort { calls_max: CALLS_MAX, ..by.effort }, ..by.clone() };
    Ok(Some(Conflict {
        step: Some(step),
        possible: possible_answers(history, step, &asked, ANSWERS_MAX)?,
        needed: needed(history, begun, step, until, &asked)?,
    }))
}

/// Leaves out what the conflict does not need. Calls that are still under way when the guilty one returns
/// stay, as they may have had their effect.
fn needed(
    history: &History,
    begun: Vec<usize>,
    step: usize,
    until: u64,
    by: &Judge<'_>,
) -> Result<Vec<usize>, HistoryError> {
    let related = related(history, begun, step)?;
    // With relaxations a call that is left out may have been what relaxed another one.
    if !by.relaxations.is_empty() && related.len() > CAREFUL_MAX {
        return Ok(related);
    }
    let deadline = Instant::now() + Duration::from_secs(MINIMISE_SECONDS);
    let removable: Vec<usize> = related
        .iter()
        .copied()
        .filter(|&place| place != step && can_go(&history.steps[place]))
        .collect();
    let stays: Vec<usize> =
        related.iter().copied().filter(|place| !removable.contains(place)).collect();
    let contradicts = |kept: &[usize]| {
        let mut places = [&stays[..], kept].concat();
        places.sort_unstable();
        let part = history.of(&places);
        let search = |prepared: &Prepared<'_>| {
            let oracle = Oracle::new(by.reference, false);
            let mut search = Search::new(prepared, by, &oracle)?;
            Ok::<_, HistoryError>(search.run(&Goal::until(until)) == Judgement::NoOrder)
        };
        Prepared::new(&part, by.relaxations).and_then(|prepared| search(&prepared)).unwrap_or(false)
    };
    let kept = minimise(removable, deadline, |kept: &[usize]| {
        Ok::<_, Infallible>(contradicts(kept).then(|| kept.to_vec()))
    });
    let moments = history.moments();
    let mut places = [&stays[..], &kept.unwrap_or_default()].concat();
    places.sort_by_key(|place| moments[*place]);
    Ok(places)
}

/// Longer conflicts are not looked at call by call where relaxations hold.
const CAREFUL_MAX: usize = 400;

/// Whether a history without this call is explained by every order that explains it with the call.
fn can_go(step: &fathom_core::Step) -> bool {
    let changes_caller = matches!(
        step.op,
        Op::Open { .. }
            | Op::Close { .. }
            | Op::Read { .. }
            | Op::Lseek { .. }
            | Op::Umask { .. }
            | Op::Identity { .. }
            | Op::Remount
    );
    let looks = matches!(
        step.op,
        Op::Stat { .. }
            | Op::Pread { .. }
            | Op::Getdents { .. }
            | Op::ListPiece { .. }
            | Op::Readlink { .. }
            | Op::Getxattr { .. }
            | Op::Listxattr { .. }
            | Op::Access { .. }
            | Op::Statfs { .. }
            | Op::Fsync { .. }
            | Op::Fdatasync { .. }
            | Op::Sync
            | Op::Syncfs { .. }
    );
    looks || step.outcome.result.is_err() && !changes_caller
}

/// Leaves out calls that have nothing to do with the guilty one, not even through others: they commute with all
/// that are left. The openings of slots that are used stay, and what changes a caller.
fn related(history: &History, places: Vec<usize>, step: usize) -> Result<Vec<usize>, HistoryError> {
    let prepared = Prepared::new(history, &super::Relaxations::none())?;
    if !prepared.commutes {
        return Ok(places);
    }
    let mut prints = vec![Default::default(); history.steps.len()];
    for call in prepared.lanes.iter().flatten() {
        prints[call.place] = call.footprint;
    }
    let mut kept = vec![step];
    let mut at = 0;
    while at < kept.len() {
        let here = kept[at];
        let near = places.iter().copied().filter(|&other| {
            prints[other].conflicts(&prints[here]) || prepares(history, other, here)
        });
        let new: Vec<usize> = near.filter(|other| !kept.contains(other)).collect();
        kept.extend(new);
        at += 1;
    }
    Ok(places.into_iter().filter(|place| kept.contains(place)).collect())
}

/// Whether a call opens or moves what a later call of the same caller uses, or changes its caller.
fn prepares(history: &History, earlier: usize, later: usize) -> bool {
    let (one, other) = (&history.steps[earlier], &history.steps[later]);
    let same_slot = || slots_of(&one.op).any(|slot| slots_of(&other.op).any(|used| used == slot));
    let changes_caller = matches!(one.op, Op::Umask { .. } | Op::Identity { .. });
    let moves = matches!(
        one.op,
        Op::Open { .. } | Op::Close { .. } | Op::Read { .. } | Op::Write { .. } | Op::Lseek { .. }
    );
    one.caller == other.caller && (changes_caller || moves && same_slot())
}

/// The slots that an operation uses.
fn slots_of(op: &Op) -> impl Iterator<Item = Slot> {
    let mut slots = Vec::new();
    op.operands(|operand| match operand {
        Operand::Slot(slot, ..) | Operand::Target(Target::Slot(slot), ..) => slots.push(*slot),
        _ => {}
    });
    slots.into_iter()
}
