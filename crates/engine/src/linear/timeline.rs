//! Draws a history: a column per caller, a line per invocation or return.
//!
//! ```text
//!      caller 0                        caller 1
//!   1  ┌ write(0, 3 bytes)
//!   2  │                               ┌ write(0, 4 bytes)
//!   3  └ 3                             │
//!   4                                  └ 4
//!   5  ┌ fstat(0)
//!   6  └ size 4                        <- has no place
//! ```

use std::fmt::Write;

use fathom_core::Caller;

use super::History;

/// Narrower columns say nothing.
const COLUMN_MIN: usize = 24;

/// Longer texts are cut.
const COLUMN_MAX: usize = 56;

/// One line of the drawing.
struct Event {
    at: u64,
    caller: Caller,
    begins: bool,
    text: String,
    marked: bool,
}

/// Draws a history; `mark` is a call that has no place in any order.
pub fn draw(history: &History, mark: Option<usize>) -> String {
    let mut callers: Vec<Caller> = history.steps.iter().map(|step| step.caller).collect();
    callers.sort_unstable();
    callers.dedup();
    let mut events = Vec::new();
    for (place, (step, moment)) in history.steps.iter().zip(history.moments()).enumerate() {
        let (caller, marked) = (step.caller, mark == Some(place));
        let call = shortened(&step.op.to_string());
        let answer = shortened(&step.outcome.to_string());
        events.push(Event { at: moment.0, caller, begins: true, text: call, marked: false });
        events.push(Event { at: moment.1, caller, begins: false, text: answer, marked });
    }
    events.sort_by_key(|event| event.at);
    lines(&callers, &events)
}

fn lines(callers: &[Caller], events: &[Event]) -> String {
    let widest = events.iter().map(|event| event.text.chars().count() + 4).max().unwrap_or(0);
    let width = widest.clamp(COLUMN_MIN, COLUMN_MAX + 4);
    let mut inside = vec![false; callers.len()];
    let mut out = String::from("     ");
    for caller in callers {
        let _ = write!(out, "{:width$}", format!("caller {caller}"));
    }
    out = out.trim_end().to_owned() + "\n";
    for (number, event) in events.iter().enumerate() {
        let mut line = format!("{:>4} ", number + 1);
        for (column, caller) in callers.iter().enumerate() {
            let cell = match (*caller == event.caller, event.begins, inside[column]) {
                (true, true, _) => format!("┌ {}", event.text),
                (true, false, _) => format!("└ {}", event.text),
                (false, _, true) => "│".to_owned(),
                (false, _, false) => String::new(),
            };
            let _ = write!(line, "{cell:width$}");
        }
        if let Some(column) = callers.iter().position(|caller| *caller == event.caller) {
            inside[column] = event.begins;
        }
        let mark = if event.marked { "  <- has no place" } else { "" };
        let _ = writeln!(out, "{}{mark}", line.trim_end());
    }
    out
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(COLUMN_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::{Interval, Op, Outcome, Step};

    use super::*;

    #[test]
    fn who_overlaps_with_whom_is_seen() {
        let step = |caller, from, to, path: &str, answer| Step {
            caller,
            interval: Interval::new(from, to),
            ..Step::new(0, Op::Rmdir { path: path.into() }, Outcome::ok(answer))
        };
        let steps = vec![step(0, 0, 2, "a", 0), step(1, 1, 3, "b", 7)];
        let history = History { steps, last: None };
        let drawn = draw(&history, Some(1));
        let expected = "     caller 0                caller 1\n   \
                        1 ┌ rmdir(\"a\")\n   \
                        2 │                       ┌ rmdir(\"b\")\n   \
                        3 └ 0                     │\n   \
                        4                         └ 7  <- has no place\n";
        assert_eq!(drawn, expected, "\n{drawn}\n{expected}");
    }
}
