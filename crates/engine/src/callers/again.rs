//! A round again: how often it shows something wrong, and less of it that still does.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use fathom_core::schedule::DiskDelays;
use fathom_core::{HarnessFault, Schedule, Testbed};
use fathom_record::minimise;

use super::CallersPlan;
use super::finding::{CallersFinding, StoredRound, Wrong};
use super::round::{Round, Seems, Seen, check_disk};
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
    /// Whether the checker looks at the disk after each run.
    checks: bool,
}

impl<'a> Again<'a> {
    pub(super) fn new(
        subject: &'a mut dyn Testbed,
        monitor: &'a CallMonitor,
        plan: &'a CallersPlan,
        class: &str,
    ) -> Again<'a> {
        Again { subject, monitor, plan, checks: class == Wrong::CHECKER }
    }

    fn once(&mut self, round: &Round) -> Result<Option<(Seen, Wrong)>, HarnessFault> {
        let seen = round.run(self.subject, self.monitor)?;
        let wrong = self.wrong(&seen)?;
        Ok(wrong.map(|wrong| (seen, wrong)))
    }

    /// What is wrong with a run that has just been made.
    fn wrong(&mut self, seen: &Seen) -> Result<Option<Wrong>, HarnessFault> {
        match seen.judge(self.plan)? {
            Seems::Wrong(wrong) => Ok(Some(wrong)),
            _ if self.checks => Ok(check_disk(self.subject, self.monitor)?.flatten()),
            _ => Ok(None),
        }
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

    /// Leaves out what the rest shows the same without: what happens beside the calls, calls, delays; then makes
    /// the delays that are left shorter.
    pub(super) fn shrink(&mut self, finding: &mut CallersFinding) -> Result<(), HarnessFault> {
        if finding.runs_reproduced == 0 {
            return Ok(());
        }
        let often = finding.runs.div_ceil(finding.runs_reproduced);
        let mut shrinking = Shrinking {
            tries: (often * 4 * SHOWN_MIN).min(TRIES_MAX),
            deadline: Instant::now() + self.plan.shrink / 2,
            wanted: finding.wrong.sameness(&finding.signature),
            best: None,
            fault: None,
            again: self,
        };
        shrinking.all(&finding.round);
        let Shrinking { best, fault, .. } = shrinking;
        if let Some((round, seen, wrong)) = best {
            finding.signature = wrong.signature(&seen.history);
            (finding.round, finding.seen, finding.wrong) = (round, seen, wrong);
        }
        fault.map_or(Ok(()), Err)
    }
}

/// A round that becomes smaller.
struct Shrinking<'a, 'b> {
    again: &'a mut Again<'b>,
    /// How often a smaller one is run.
    tries: usize,
    deadline: Instant,
    /// What it has to show.
    wanted: String,
    /// The smallest one that shows it.
    best: Option<(Round, Seen, Wrong)>,
    fault: Option<HarnessFault>,
}

impl Shrinking<'_, '_> {
    fn all(&mut self, found: &Round) {
        let mut round = found.clone();
        // Without what happens beside the calls, or with less of it; then without calls; then without delays.
        for schedule in calmer(&found.schedule) {
            if self.shows(&Round { schedule, ..round.clone() }) {
                break;
            }
        }
        round = self.smallest(round);
        let whole = round.schedule.clone();
        self.fewest(places(&whole), &round, |kept| part(&whole, kept));
        round = self.smallest(round);
        let whole = round.schedule.clone();
        self.fewest(delays(&whole), &round, |kept| with_delays(&whole, kept));
        round = self.smallest(round);
        self.shorter_delays(round);
    }

    /// The smallest round so far, or the one that was found.
    fn smallest(&self, found: Round) -> Round {
        self.best.as_ref().map_or(found, |(round, ..)| round.clone())
    }

    /// Leaves out places of a schedule.
    fn fewest(&mut self, places: Vec<Place>, round: &Round, with: impl Fn(&[Place]) -> Schedule) {
        let kept = minimise(places, self.deadline, |kept: &[Place]| {
            let shows = self.shows(&Round { schedule: with(kept), ..round.clone() });
            Ok::<_, Infallible>(shows.then(|| kept.to_vec()))
        });
        drop(kept);
    }

    /// Halves every delay as often as that shows the same.
    fn shorter_delays(&mut self, mut round: Round) {
        for (lane, call) in delays(&round.schedule) {
            loop {
                let mut shorter = round.clone();
                let delay_ns = &mut shorter.schedule.lanes[lane][call].delay_ns;
                *delay_ns /= 2;
                if *delay_ns == 0 || !self.shows(&shorter) {
                    break;
                }
                round = shorter;
            }
        }
    }

    /// Whether a round shows it often enough. What shows once by chance may never show again.
    fn shows(&mut self, round: &Round) -> bool {
        let mut shown = 0;
        for _ in 0..self.tries {
            if self.fault.is_some() || Instant::now() >= self.deadline {
                break;
            }
            match self.again.once(round) {
                Ok(Some((seen, wrong)))
                    if wrong.sameness(&wrong.signature(&seen.history)) == self.wanted =>
                {
                    shown += 1;
                    if shown == SHOWN_MIN {
                        self.best = Some((round.clone(), seen, wrong));
                        return true;
                    }
                }
                Ok(_) => {}
                Err(error) => self.fault = Some(error),
            }
        }
        false
    }
}

/// A call of a schedule: whose, and which one.
type Place = (usize, usize);

/// Every call of a schedule.
fn places(schedule: &Schedule) -> Vec<Place> {
    let lanes = schedule.lanes.iter().enumerate();
    lanes.flat_map(|(lane, calls)| (0..calls.len()).map(move |call| (lane, call))).collect()
}

/// The schedule with these calls only.
fn part(schedule: &Schedule, kept: &[Place]) -> Schedule {
    let lanes = schedule.lanes.iter().enumerate().map(|(lane, calls)| {
        let kept = kept.iter().filter(|(of, _)| *of == lane);
        kept.map(|(_, call)| calls[*call].clone()).collect()
    });
    Schedule { lanes: lanes.collect(), ..schedule.clone() }
}

/// The calls that something is waited for before.
fn delays(schedule: &Schedule) -> Vec<Place> {
    let waits = |place: &Place| schedule.lanes[place.0][place.1].delay_ns > 0;
    places(schedule).into_iter().filter(waits).collect()
}

/// The schedule with the delays of these calls only.
fn with_delays(schedule: &Schedule, kept: &[Place]) -> Schedule {
    let mut schedule = schedule.clone();
    for (lane, call) in delays(&schedule) {
        if !kept.contains(&(lane, call)) {
            schedule.lanes[lane][call].delay_ns = 0;
        }
    }
    schedule
}

/// The schedules with less beside the calls, the least first: without what happens to the file system, and with
/// a disk that is less late.
fn calmer(schedule: &Schedule) -> Vec<Schedule> {
    let Schedule { remounts, disk, .. } = schedule;
    let disks = [None, disk.map(|disk| DiskDelays { max_ns: disk.max_ns / 8, ..disk }), *disk];
    let remounts = [&[][..], &remounts[..1.min(remounts.len())], &remounts[..]];
    let mut all: Vec<Schedule> = Vec::new();
    for (disk, remounts) in disks.into_iter().flat_map(|disk| remounts.map(|it| (disk, it))) {
        let one = Schedule { remounts: remounts.to_vec(), disk, ..schedule.clone() };
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
    let class = stored.signature.split(' ').next().unwrap_or_default();
    let mut again = Again::new(subject, &monitor, &plan, class);
    let mut repeated = Repeated { runs: 0, shown: 0, same: 0, first: None, same_every_time: true };
    let mut before = None;
    while repeated.runs < runs && (repeated.runs == 0 || Instant::now() < deadline) {
        let seen = stored.round.run(again.subject, &monitor)?;
        repeated.runs += 1;
        repeated.same_every_time &=
            before.as_ref().is_none_or(|steps| *steps == seen.history.steps);
        before = Some(seen.history.steps.clone());
        if let Some(wrong) = again.wrong(&seen)? {
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
    use fathom_core::Op;
    use fathom_core::schedule::Planned;

    use super::*;

    #[test]
    fn delays_are_left_out_and_calls_stay() {
        let call = |delay_ns| Planned { delay_ns, op: Op::Sync };
        let lanes = vec![vec![call(5), call(0)], vec![call(7)]];
        let schedule = Schedule { lanes, ..Schedule::default() };
        assert_eq!(delays(&schedule), [(0, 0), (1, 0)]);
        let less = with_delays(&schedule, &[(1, 0)]);
        assert_eq!((delays(&less), less.len()), (vec![(1, 0)], 3));
        assert_eq!(with_delays(&schedule, &delays(&schedule)), schedule);
    }

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
