//! Whether the answers of overlapping calls can be explained by one order.
//!
//! A [`History`] has every call of several callers with the moments of its invocation and its return. It
//! is *linearizable* if the calls can be put into one order that keeps every "returned before it was
//! invoked", such that the reference, executing them in that order, gives every answer and the last tree.
//!
//! [`judge`] looks for such an order (`search`): after Wing and Gong, one call after the other that no
//! unfinished call precedes, on clones of the reference. Three things make that fast, and none of them
//! changes the judgement (the tests compare it with the search that has none of them):
//!
//! * what was tried is remembered as (how far each caller is, digest of the reference), after Lowe;
//! * a call that only looks, and whose answer fits now, is placed now;
//! * a call that commutes with everything that could come before it is placed now (`footprint`).
//!
//! What Linux does not promise to be one step is data with its source (`relaxed`). If there is no order,
//! [`explain`] finds the shortest beginning without one, what the call could have answered, and the calls
//! that are needed for the contradiction; `timeline` draws them.
//!
//! All of this is pure: histories come from subjects, from files, or from [`simulate`].

pub mod explain;
mod footprint;
pub mod history;
pub mod relaxed;
mod search;
pub mod simulate;
pub mod timeline;

pub use explain::{Conflict, explain};
pub use history::{History, HistoryError};
pub use relaxed::Relaxations;

use fathom_core::Outcome;

use crate::check::oracle::Oracle;
use history::Prepared;
use search::{Goal, Search};

/// How the search goes about it. Everything but [`Effort::FAST`] is for tests and benches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Remembers what was tried.
    pub memo: bool,
    /// Places calls that commute, or only look, without trying other places.
    pub reduce: bool,
    /// Gives up after so many executed calls.
    pub calls_max: u64,
}

impl Effort {
    /// As fast as it goes; gives up on what would take minutes.
    pub const FAST: Effort = Effort { memo: true, reduce: true, calls_max: 20_000_000 };

    /// The search of Wing and Gong as it is.
    pub const PLAIN: Effort = Effort { memo: false, reduce: false, calls_max: 20_000_000 };
}

/// What the search says of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// There is an order: the steps of the history by their places in it.
    Explained(Vec<usize>),
    /// There is none.
    NoOrder,
    /// It was not found out: the search gave up.
    Unknown,
}

/// A history, what it is judged by, and how.
#[derive(Clone, Debug)]
pub struct Judge<'a> {
    /// The reference as it is set up for the subject.
    pub reference: &'a fathom_model::Config,
    /// What is not one step.
    pub relaxations: &'a Relaxations,
    /// How the search goes about it.
    pub effort: Effort,
}

/// Judges a history.
///
/// # Errors
/// If the history contradicts itself, or the reference cannot be made.
pub fn judge(history: &History, by: &Judge<'_>) -> Result<Judgement, HistoryError> {
    judge_counted(history, by).map(|(judgement, _)| judgement)
}

/// Judges a history, and says how many calls the reference executed for that.
///
/// # Errors
/// As [`judge`].
pub fn judge_counted(history: &History, by: &Judge<'_>) -> Result<(Judgement, u64), HistoryError> {
    let prepared = Prepared::new(history, by.relaxations)?;
    let oracle = Oracle::new(by.reference, false);
    let mut search = Search::new(&prepared, by, &oracle)?;
    let judgement = search.run(&Goal::whole(history));
    Ok((judgement, search.executed()))
}

/// Every answer that a call could have given (at most `max`), if all other calls until its return answered
/// what they did.
///
/// # Errors
/// As [`judge`].
pub fn possible_answers(
    history: &History,
    step: usize,
    by: &Judge<'_>,
    max: usize,
) -> Result<Vec<Outcome>, HistoryError> {
    let prepared = Prepared::new(history, by.relaxations)?;
    let oracle = Oracle::new(by.reference, false);
    let mut search = Search::new(&prepared, by, &oracle)?;
    Ok(search.answers(step, max))
}
