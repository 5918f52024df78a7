//! A round again: how often it shows something wrong, and less of it that still does.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use fathom_core::schedule::DiskDelays;
use fathom_core::{HarnessFault, Schedule, Testbed};
use fathom_record::minimise;

use super::CallersPlan;
use super::finding::{CallersFinding, StoredRound, Wrong};
use super::round::{Round, Seems, Seen};
use crate::check::call_monitor::CallMonitor;
use crate::linear::Relaxations;

/// How often a round is run again to say how often it shows.
const RUNS: usize = 20;

/// A smaller round may show it less often; it is tried at most so many times.
const TRIES_MAX: usize = 60;

/// How often it must show in these tries.
const SHOWN_MIN: usize = 3;

/// Runs rounds again.
pub(super) struct Again<'a> {
    subject: &'a mut dyn Testbed,
    monitor: &'a CallMonitor,
    plan: &'a CallersPlan,
}

impl<'a> Again<'a> {
    pub(super) fn new(
        subject: &'a mut dyn Testbed,
        monitor: &'a CallMonitor,
        plan: &'a CallersPlan,
    ) -> Again<'a> {
        Again { subject, monitor, plan }
    }

    fn once(&mut self, round: &Round) -> Result<Option<(Seen, Wrong)>, HarnessFault> {
        let seen = round.run(self.subject, self.monitor)?;
        Ok(match seen.judge(self.plan)? {
            Seems::Wrong(wrong) => Some((seen, wrong)),
            _ => None,
        })
    }

    /// Runs the round again and counts. Half of the time for a finding is for that.
    pub(super) fn verify(&mut self, finding: &mut CallersFinding) -> Result<(), HarnessFault> {
        let deadline = Instant::now() + self.plan.shrink / 2;
        for _ in 0..RUNS {
            let shown = self.once(&finding.round)?;
            finding.runs += 1;
            finding.runs_reproduced += usize::from(shown.is_some());
            if Instant::now() >= deadline {
                break;
            }
        }
        finding.complete = true;
        Ok(())
    }

    /// Leaves calls out as long as the rest still shows something of the same class.
    pub(super) fn shrink(&mut self, finding: &mut CallersFinding) -> Result<(), HarnessFault> {
        if finding.runs_reproduced == 0 || !matches!(finding.wrong, Wrong::NoOrder(_)) {
            return Ok(());
        }
        let deadline = Instant::now() + self.plan.shrink / 2;
        let often = finding.runs.div_ceil(finding.runs_reproduced);
        let tries = (often * 4 * SHOWN_MIN).min(TRIES_MAX);
        let mut best: Option<(Round, Seen, Wrong)> = None;
        let mut fault = None;
        let mut whole = finding.round.clone();
        let class = finding.wrong.class();
        let mut still_shows = |again: &mut Self, round: Round| {
            // What shows once by chance may never show again.
            let mut shown = 0;
            for _ in 0..tries {
                if fault.is_some() || Instant::now() >= deadline {
                    break;
                }
                match again.once(&round) {
                    Ok(Some((seen, wrong))) if wrong.class() == class => {
                        shown += 1;
                        if shown == SHOWN_MIN {
                            best = Some((round, seen, wrong));
                            return true;
                        }
                    }
                    Ok(_) => {}
                    Err(error) => fault = Some(error),
                }
            }
            false
        };
        // Without what happens beside the calls, or with less of it; then without calls.
        for schedule in calmer(&whole.schedule) {
            let round = Round { schedule, ..whole.clone() };
            if still_shows(self, round.clone()) {
                whole = round;
                break;
            }
        }
        let places: Vec<(usize, usize)> = places(&whole.schedule);
        let shrunk = minimise(places, deadline, |kept: &[(usize, usize)]| {
            let round = Round { schedule: part(&whole.schedule, kept), ..whole.clone() };
            let shows = still_shows(self, round);
            Ok::<_, Infallible>(shows.then(|| kept.to_vec()))
        });
        drop(shrunk);
        if let Some((round, seen, wrong)) = best {
            finding.signature = wrong.signature(&seen.history);
            (finding.round, finding.seen, finding.wrong) = (round, seen, wrong);
        }
        fault.map_or(Ok(()), Err)
    }
}

/// Every call of a schedule: which caller's, and which one.
fn places(schedule: &Schedule) -> Vec<(usize, usize)> {
    let lanes = schedule.lanes.iter().enumerate();
    lanes.flat_map(|(lane, calls)| (0..calls.len()).map(move |call| (lane, call))).collect()
}

/// The schedule with these calls only.
fn part(schedule: &Schedule, kept: &[(usize, usize)]) -> Schedule {
    let lanes = schedule.lanes.iter().enumerate().map(|(lane, calls)| {
        let kept = kept.iter().filter(|(of, _)| *of == lane);
        kept.map(|(_, call)| calls[*call].clone()).collect()
    });
    Schedule { lanes: lanes.collect(), ..schedule.clone() }
}

/// The schedules with less beside the calls, the least first: without what happens to the file system, and with
/// a disk that is less late.
fn calmer(schedule: &Schedule) -> Vec<Schedule> {
    let Schedule { lanes, remounts, disk } = schedule;
    let disks = [None, disk.map(|disk| DiskDelays { max_ns: disk.max_ns / 8, ..disk }), *disk];
    let remounts = [&[][..], &remounts[..1.min(remounts.len())], &remounts[..]];
    let mut all: Vec<Schedule> = Vec::new();
    for (disk, remounts) in disks.into_iter().flat_map(|disk| remounts.map(|it| (disk, it))) {
        let one = Schedule { lanes: lanes.clone(), remounts: remounts.to_vec(), disk };
        if one != *schedule && !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// How often a recorded round shows something wrong.
#[derive(Clone, Debug)]
pub struct Repeated {
    /// How often it was run.
    pub runs: usize,
    /// How often something was wrong.
    pub shown: usize,
    /// How often that had the recorded signature.
    pub same: usize,
    /// What was seen first.
    pub first: Option<String>,
    /// Whether every run had the same order of invocations and returns, and the same answers.
    pub same_every_time: bool,
}

/// Runs a recorded round again and again.
///
/// # Errors
/// If the harness fails.
pub fn repeat(
    subject: &mut dyn Testbed,
    stored: &StoredRound,
    runs: usize,
    budget: Duration,
) -> Result<Repeated, HarnessFault> {
    let mut plan = CallersPlan::new(0, 1, stored.reference.clone());
    if !stored.profile.is_empty() {
        plan.relaxations = Relaxations::of_profile(&stored.profile);
    }
    let monitor = CallMonitor::new(None);
    let deadline = Instant::now() + budget;
    let again = Again::new(subject, &monitor, &plan);
    let mut repeated = Repeated { runs: 0, shown: 0, same: 0, first: None, same_every_time: true };
    let mut before = None;
    while repeated.runs < runs && (repeated.runs == 0 || Instant::now() < deadline) {
        let seen = stored.round.run(again.subject, &monitor)?;
        repeated.runs += 1;
        repeated.same_every_time &=
            before.as_ref().is_none_or(|steps| *steps == seen.history.steps);
        before = Some(seen.history.steps.clone());
        if let Seems::Wrong(wrong) = seen.judge(again.plan)? {
            repeated.shown += 1;
            repeated.same += usize::from(wrong.signature(&seen.history) == stored.signature);
            let finding = CallersFinding::new(&stored.subject, &plan, &stored.round, seen, wrong);
            repeated.first.get_or_insert_with(|| finding.story());
        }
    }
    again.subject.step_aside();
    Ok(repeated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_the_calls_is_left_out_first() {
        let disk = Some(DiskDelays { seed: 1, max_ns: 800 });
        let schedule = |remounts: &[u64], disk| Schedule {
            remounts: remounts.to_vec(),
            disk,
            ..Schedule::default()
        };
        let all = calmer(&schedule(&[3, 4], disk));
        let less = Some(DiskDelays { seed: 1, max_ns: 100 });
        assert_eq!(all.len(), 8);
        assert_eq!(all[..2], [schedule(&[], None), schedule(&[3], None)]);
        assert!(all.contains(&schedule(&[3], less)) && !all.contains(&schedule(&[3, 4], disk)));
        assert_eq!(calmer(&Schedule::default()), []);
    }
}
