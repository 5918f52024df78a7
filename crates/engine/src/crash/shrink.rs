//! The shortest run that still shows the same.
//!
//! Delta debugging over the operations (what is left without its definition goes with it), then over
//! the arguments, then over the crash point. Every candidate is played from a fresh format.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use fathom_block::{CrashPoint, Level};
use fathom_core::{HarnessFault, Op, Pattern};
use fathom_model::{Config, Model};
use fathom_record::minimise;

use super::judge::Cause;
use super::script::{Event, Script};
use super::system::CrashSystem;

/// Shrinks `script`, which shows `cause`, within a time.
///
/// # Errors
/// If the harness fails.
pub fn shrink(
    system: &CrashSystem<'_>,
    script: &Script,
    cause: &Cause,
    budget: Duration,
) -> Result<Script, HarnessFault> {
    let mut shrinker =
        Shrinker { system, cause, best: script.clone(), until: Instant::now() + budget };
    loop {
        let before = shrinker.best.clone();
        shrinker.fewer()?;
        shrinker.smaller()?;
        if shrinker.best == before || shrinker.is_late() {
            break;
        }
    }
    shrinker.simpler_cut()?;
    Ok(shrinker.best)
}

struct Shrinker<'a> {
    system: &'a CrashSystem<'a>,
    cause: &'a Cause,
    best: Script,
    until: Instant,
}

impl Shrinker<'_> {
    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// The events without the last power cut.
    fn body(&self) -> Vec<Event> {
        let mut events = self.best.0.clone();
        if matches!(events.last(), Some(Event::PowerCut(_))) {
            events.pop();
        }
        events
    }

    /// Removes events, many at a time first; the last one is what the power cut interrupts.
    fn fewer(&mut self) -> Result<(), HarnessFault> {
        let mut events = self.body();
        let Some(last) = events.pop() else { return Ok(()) };
        minimise(events, self.until, |events| {
            let candidate = events.iter().chain([&last]).cloned().collect();
            Ok(self.accept(candidate)?.then(|| {
                let mut kept = self.body();
                kept.pop();
                kept
            }))
        })?;
        Ok(())
    }

    /// Makes written data smaller.
    fn smaller(&mut self) -> Result<(), HarnessFault> {
        for index in 0..self.body().len() {
            for smaller in [1, 16, 64, 128, 256] {
                if self.is_late() {
                    return Ok(());
                }
                let mut events = self.body();
                match events.get_mut(index) {
                    Some(Event::Op(Op::Pwrite { data: Pattern { len, .. }, .. }))
                        if smaller < *len =>
                    {
                        *len = smaller;
                    }
                    _ => break,
                }
                if self.accept(events)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The earliest cut of the simplest level.
    fn simpler_cut(&mut self) -> Result<(), HarnessFault> {
        let Some(Event::PowerCut(mut best)) = self.best.0.last().cloned() else { return Ok(()) };
        let body = Script(self.body());
        self.system.cuts(&body, self.cause, &mut |point| {
            if rank(&point) < rank(&best) {
                best = point;
            }
            ControlFlow::Continue(())
        })?;
        self.best = Script(self.body().into_iter().chain([Event::PowerCut(best)]).collect());
        Ok(())
    }

    /// Takes over events that still show the cause.
    fn accept(&mut self, events: Vec<Event>) -> Result<bool, HarnessFault> {
        let Some(script) = closed(events) else { return Ok(false) };
        let (was, is) = (OpenFiles::of(&self.body()), OpenFiles::of(&script.0));
        if is.at_end > was.at_end || is.replaced > was.replaced {
            return Ok(false);
        }
        if script.0.len() >= self.best.0.len() && script.0 == self.body() {
            return Ok(false);
        }
        let played = self.system.play(&script)?;
        let wrong = played.and_then(|played| played.wrong);
        if wrong.is_some_and(|(cause, _)| cause.is_same(self.cause)) {
            self.best = script;
            return Ok(true);
        }
        if !matches!(self.best.0.last(), Some(Event::PowerCut(_))) {
            return Ok(false);
        }
        let mut cut = None;
        self.system.cuts(&script, self.cause, &mut |point| {
            cut = Some(point);
            ControlFlow::Break(())
        })?;
        let Some(cut) = cut else { return Ok(false) };
        self.best = Script(script.0.into_iter().chain([Event::PowerCut(cut)]).collect());
        Ok(true)
    }
}

/// Leaves out what cannot succeed any more; `None` if that is the last operation. What a power cut
/// interrupts has happened or not: both are followed.
fn closed(events: Vec<Event>) -> Option<Script> {
    let mut now = vec![Model::new(Config::default()).expect("the default works")];
    let mut before = Vec::new();
    let mut kept = Vec::new();
    let mut last_kept = false;
    for event in events {
        match &event {
            Event::Op(op) => {
                let mut after = now.clone();
                after.retain_mut(|model| model.execute(op).result.is_ok());
                last_kept = !after.is_empty();
                if last_kept {
                    before = std::mem::replace(&mut now, after);
                }
            }
            Event::PowerCut(_) => {
                last_kept = true;
                now.append(&mut before);
                for model in &mut now {
                    model.execute(&Op::Remount);
                }
            }
        }
        if last_kept {
            kept.push(event);
        }
    }
    last_kept.then_some(Script(kept))
}

/// What a run does with slots. A run with fewer operations is not simpler if it leaves more files open, nor
/// if it opens a file in a slot that is not free: the close that happens then by itself is an operation of
/// its own, which may make something durable.
struct OpenFiles {
    at_end: usize,
    replaced: usize,
}

impl OpenFiles {
    fn of(events: &[Event]) -> OpenFiles {
        let (mut open, mut replaced) = (BTreeSet::new(), 0);
        for event in events {
            match event {
                Event::Op(Op::Open { slot, .. }) => replaced += usize::from(!open.insert(*slot)),
                Event::Op(Op::Close { slot }) => drop(open.remove(slot)),
                Event::Op(Op::Remount) | Event::PowerCut(_) => open.clear(),
                Event::Op(_) => {}
            }
        }
        OpenFiles { at_end: open.len(), replaced }
    }
}

fn rank(point: &CrashPoint) -> (Level, usize, String) {
    (point.level(), point.position(), point.to_string())
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::{Mode, OpenFlags};

    use super::*;

    #[test]
    fn a_slot_that_is_not_free_counts() {
        let open = |slot| {
            let (path, flags) = ("/f".parse().unwrap(), OpenFlags::O_RDWR);
            Event::Op(Op::Open { slot, path, flags, mode: Mode(0o600) })
        };
        let close = |slot| Event::Op(Op::Close { slot });
        let of = |events: &[Event]| {
            let files = OpenFiles::of(events);
            (files.at_end, files.replaced)
        };
        assert_eq!(of(&[open(0), close(0), open(0)]), (1, 0));
        assert_eq!(of(&[open(0), open(0), open(1)]), (2, 1));
        assert_eq!(of(&[open(0), Event::Op(Op::Remount), open(0), close(0)]), (0, 0));
    }
}
