//! A path as people read it: the operation, the writes it issues, the power failure, what recovery
//! made of it.

use std::fmt::Write as _;

use fathom_block::Event;
use fathom_engine::search::{Path as Steps, System};

use super::design::Design;
use super::explorer::{Action, Explorer, State};

impl<D: Design> Explorer<D> {
    /// Tells a path; the last step with the power failure that breaks something.
    pub fn tell(&self, path: &Steps) -> String {
        let mut out = String::new();
        let Ok(trace) = path.trace(self) else { return "the path cannot be followed".to_owned() };
        let mut before = &trace.start;
        for (number, (action, after)) in trace.steps.iter().enumerate() {
            let _ = write!(out, "{:>3}. {}", number + 1, self.tell_action(before, action));
            before = after;
        }
        let last = trace.steps.len().checked_sub(2).map_or(&trace.start, |i| &trace.steps[i].1);
        if let Some((Action::Call(call), _)) = trace.steps.last()
            && let Some(after) = self.execute(last, call)
        {
            match self.judge(last, &after) {
                Some(violation) => {
                    let point = &violation.point;
                    let _ = writeln!(out, "     POWER FAILURE at {point}; then {}", violation.what);
                }
                None => out.push_str("     and the answer is wrong, without any power failure\n"),
            }
        }
        out
    }

    fn tell_action(&self, before: &State<D::Memory>, action: &Action) -> String {
        let (call, crash) = match action {
            Action::Call(call) => (call, None),
            Action::Crash(call, point) => (call, Some(point)),
        };
        let mut line = format!("{call}");
        if let Some(after) = self.execute(before, call) {
            let block_bytes = self.geometry_block_bytes();
            let events = after.disk().log().events().skip(before.disk().position());
            let told: Vec<String> = events
                .filter_map(|event| match event {
                    Event::Write { at, .. } => Some((at / block_bytes).to_string()),
                    Event::Flush => Some("FLUSH".to_owned()),
                    _ => None,
                })
                .collect();
            if !told.is_empty() {
                let _ = write!(line, ": writes {}", told.join(" "));
            }
        }
        if let Some(point) = crash {
            let _ = write!(line, "; POWER FAILURE at {point}, mounts again");
        }
        line.push('\n');
        line
    }

    fn geometry_block_bytes(&self) -> usize {
        self.design().geometry().write_bytes
    }

    /// The names of all properties, in their order.
    pub fn property_names(&self) -> Vec<&'static str> {
        self.properties().iter().map(|property| property.name).collect()
    }
}
