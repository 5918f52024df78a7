//! Tells a path as people read it: the operation, the writes it issues, the power failure, the
//! result of recovery, the blocks involved.

use std::collections::BTreeSet;

use fathom_block::{CrashPoint, Event, Geometry, Image, Level, Window, WriteLog};
use fathom_engine::search::{Path as Steps, System, Trace};

use super::design::{Design, Volume};
use super::explorer::{Action, Explorer, State};
use crate::story::{Block, ExplainedSystem, Step, Story, Write};

impl<D: Design> ExplainedSystem for Explorer<D> {
    fn story(&self, trace: &Trace<Self>, _property: &str) -> Story {
        let mut story = Story::default();
        let mut before = &trace.start;
        for (number, (action, after)) in trace.steps.iter().enumerate() {
            let is_last = number + 1 == trace.steps.len();
            self.tell_action(before, action, is_last, &mut story);
            before = after;
        }
        story
    }

    fn is_possible(&self, state: &State<D::Memory>, action: &Action) -> bool {
        let (Action::Call(call) | Action::Crash(call, _)) = action;
        state.is_sound() && call.makes_sense(&self.design().menu(), state.tree())
    }

    fn simpler(&self, action: &Action) -> Vec<Action> {
        match action {
            Action::Call(call) => call.simpler().into_iter().map(Action::Call).collect(),
            Action::Crash(call, _) => vec![Action::Call(*call)],
        }
    }

    fn device(&self) -> Option<Geometry> {
        Some(self.design().geometry())
    }

    fn power_failures(&self) -> u64 {
        self.recoveries()
    }
}

/// Whether event number `index` of a log is there after a power failure.
fn has_arrived(log: &WriteLog, index: usize, point: &CrashPoint) -> bool {
    if index >= point.position() {
        return false;
    }
    match point {
        CrashPoint::Linear { .. } | CrashPoint::Torn { .. } | CrashPoint::Erase { .. } => true,
        CrashPoint::Lost { event, .. } => *event != index,
        CrashPoint::Epoch { position, lost } => {
            let start = log.epoch_start(*position);
            let volatile = (start..index).filter(|index| log.event(*index).is_volatile()).count();
            index < start || !log.event(index).is_volatile() || !lost.contains(volatile)
        }
    }
}

impl<D: Design> Explorer<D> {
    /// Tells a path, with the power failure of the last step that breaks something.
    pub fn tell(&self, path: &Steps) -> String {
        match path.trace(self) {
            Ok(trace) => self.story(&trace, "").to_string(),
            Err(step) => format!("the path cannot be followed at step {step}"),
        }
    }

    fn block_bytes(&self) -> usize {
        self.design().geometry().write_bytes
    }

    /// Lists the writes of a log from a position on.
    fn writes(&self, log: &WriteLog, from: usize, point: Option<&CrashPoint>) -> Vec<Write> {
        let arrived = |index| point.is_none_or(|point| has_arrived(log, index, point));
        let write = |(index, event)| match event {
            Event::Write { at, .. } => {
                Some(Write::Block { block: at / self.block_bytes(), arrived: arrived(index) })
            }
            Event::Flush => Some(Write::Flush),
            _ => None,
        };
        log.events().enumerate().skip(from).filter_map(write).collect()
    }

    fn tell_action(
        &self,
        before: &State<D::Memory>,
        action: &Action,
        is_last: bool,
        story: &mut Story,
    ) {
        let (Action::Call(call) | Action::Crash(call, _)) = action;
        let mut step = Step { what: call.to_string(), ..Step::default() };
        let Some(after) = self.execute(before, call) else { return story.steps.push(step) };
        let (log, from) = (after.disk().log(), before.disk().position());
        let violation = match action {
            // A fault without a power failure is in the state already.
            Action::Call(_) if is_last && after.is_sound() => self.judge(before, &after),
            _ => None,
        };
        let point = match action {
            Action::Crash(_, point) => Some(point),
            Action::Call(_) => violation.as_ref().map(|violation| &violation.point),
        };
        step.writes = self.writes(log, from, point);
        if let Some(point) = point {
            lose_earlier(&mut story.steps, log, from, point);
            step.crash = Some(when(&step.writes, point));
            self.tell_recovery(before, &after, point, &mut step, story);
        }
        if is_last {
            story.what = match &violation {
                Some(violation) => format!("then {}", violation.what.trim()),
                None => self.tell_answer(&after),
            };
        }
        story.steps.push(step);
    }

    /// Describes a violation that needs no power failure.
    fn tell_answer(&self, after: &State<D::Memory>) -> String {
        let volume = after.volume();
        if let Err(complaints) = self.design().fsck(volume) {
            let (property, what) = &complaints[0];
            return format!("without any power failure: {property}: {what}");
        }
        match self.design().tree(volume) {
            Ok(tree) if tree == *after.tree() => {
                "the answer is wrong, without any power failure".to_owned()
            }
            Ok(tree) => format!("without any power failure: {}", after.tree().difference(&tree)),
            Err(error) => format!("without any power failure the volume cannot be read: {error}"),
        }
    }

    /// Describes what recovery makes of the power failure, and the blocks involved.
    fn tell_recovery(
        &self,
        before: &State<D::Memory>,
        after: &State<D::Memory>,
        point: &CrashPoint,
        step: &mut Step,
        story: &mut Story,
    ) {
        let atomic_bytes = self.design().geometry().atomic_bytes;
        let window = Window::new(before.base(), after.disk().log(), atomic_bytes);
        let Ok(left) = window.rebuild(point) else { return };
        let mut disk = self.device_with(&left);
        let mounted = self.design().mount(&mut disk);
        step.recovery = self.writes(disk.log(), 0, None);
        let held = disk.image().clone();
        step.recovered = match mounted {
            Err(error) => format!("the mount fails: {error}"),
            Ok(memory) => match self.design().tree(&Volume { disk, memory }) {
                Ok(tree) => format!("there is {tree}"),
                Err(error) => format!("it mounts and cannot be read: {error}"),
            },
        };
        let images = [before.disk().image(), &left, &held];
        story.blocks = self.blocks(images, &story.steps, step);
    }

    /// Describes the blocks that the last step, its recovery or a lost write of an earlier step
    /// touch.
    fn blocks(&self, images: [&Image; 3], earlier: &[Step], last: &Step) -> Vec<Block> {
        let lost = earlier.iter().flat_map(|step| &step.writes);
        let lost = lost.filter(|write| matches!(write, Write::Block { arrived: false, .. }));
        let touched = last.writes.iter().chain(&last.recovery).chain(lost);
        let numbers: BTreeSet<usize> = touched
            .filter_map(|write| match write {
                Write::Block { block, .. } => Some(*block),
                Write::Flush => None,
            })
            .collect();
        let block_bytes = self.block_bytes();
        let block = |number: usize| {
            let [before, left, after] = images.map(|image| {
                let mut bytes = vec![0; block_bytes];
                image.read(number * block_bytes, &mut bytes);
                self.design().holds(number, &bytes)
            });
            Block { number, label: self.design().label(number), before, left, after }
        };
        numbers.into_iter().map(block).collect()
    }

    /// The names of all properties, in their order.
    pub fn property_names(&self) -> Vec<&'static str> {
        self.properties().iter().map(|property| property.name).collect()
    }
}

/// Marks the writes of earlier steps that the power failure undid: the events before `from` are
/// their last ones.
fn lose_earlier(steps: &mut [Step], log: &WriteLog, from: usize, point: &CrashPoint) {
    let blocks = steps.iter_mut().flat_map(|step| &mut step.writes);
    let mut blocks: Vec<&mut Write> =
        blocks.filter(|write| matches!(write, Write::Block { .. })).collect();
    for (write, index) in blocks.iter_mut().rev().zip((0..from).rev()) {
        if let Write::Block { arrived, .. } = write {
            *arrived = has_arrived(log, index, point);
        }
    }
}

/// Describes the moment of the power failure.
fn when(writes: &[Write], point: &CrashPoint) -> String {
    let of = |wanted: bool| {
        let same =
            |write: &&Write| matches!(write, Write::Block { arrived, .. } if *arrived == wanted);
        writes.iter().filter(same).count()
    };
    let (arrived, all) = (of(true), of(true) + of(false));
    match (point.level(), all) {
        (_, 0) => format!("right after it ({point})"),
        (_, all) if arrived == all => {
            format!("right after it, with all {all} writes done ({point})")
        }
        (Level::Linear, all) => format!("after {arrived} of its {all} writes ({point})"),
        (_, all) => format!("with {arrived} of its {all} writes done, in any order ({point})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(events: &[Option<usize>]) -> WriteLog {
        let mut log = WriteLog::new();
        for event in events {
            log.push(match event {
                Some(at) => Event::Write { at: *at, data: &[1], fua: false, metadata: false },
                None => Event::Flush,
            });
        }
        log
    }

    fn step(blocks: &[usize]) -> Step {
        let write = |block: &usize| Write::Block { block: *block, arrived: true };
        Step { writes: blocks.iter().map(write).collect(), ..Step::default() }
    }

    #[test]
    fn what_arrives_depends_on_the_last_flush_and_on_what_is_lost() {
        let log = log(&[Some(0), None, Some(1), Some(2), Some(3)]);
        let arrived = |point: &str| {
            let point = point.parse().expect("a crash point");
            [0, 2, 3, 4].map(|index| has_arrived(&log, index, &point))
        };
        assert_eq!(arrived("linear:4"), [true, true, true, false]);
        // Bits count the volatile writes since the flush: the first and the third are lost.
        assert_eq!(arrived("epoch:5:5"), [true, false, true, false]);
        assert_eq!(arrived("epoch:4:2"), [true, true, false, false]);
        assert_eq!(arrived("lost:5:3"), [true, true, false, true]);
    }

    #[test]
    fn a_power_failure_undoes_what_earlier_steps_left_in_flight() {
        // Since the last flush: 7 of the second step, 8 and 9 of the third, 5 of the one in flight.
        let log = log(&[Some(7), Some(8), Some(9), Some(5)]);
        let mut steps = [step(&[1, 2]), step(&[6, 7]), step(&[8, 9])];
        steps[1].writes.insert(1, Write::Flush);
        lose_earlier(&mut steps, &log, 3, &"epoch:4:5".parse().expect("a crash point"));
        let told = steps.map(|step| crate::story::list(&step.writes));
        assert_eq!(told, ["1 2", "6 FLUSH 7✗", "8 9✗"]);
    }
}
