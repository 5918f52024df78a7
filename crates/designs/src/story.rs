//! A counterexample that a person can follow: each operation, the writes it issues, the power
//! failure, what recovery did, which property broke, and the blocks involved.

use std::fmt::{self, Write as _};

use fathom_engine::search::{System, Trace};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A system whose counterexamples can be told, recorded and played again.
pub trait ExplainedSystem:
    System<Action: Clone + PartialEq + Serialize + DeserializeOwned>
{
    /// Tells a trace whose last state violates a property.
    fn story(&self, trace: &Trace<Self>, property: &str) -> Story
    where
        Self: Sized;

    /// Whether an action makes sense in a state. Wider than [`System::actions`] where the search
    /// leaves out what would only be the same again: a shrunk trace may have other names.
    fn is_possible(&self, state: &Self::State, action: &Self::Action) -> bool {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.contains(action)
    }

    /// Smaller actions that may show the same, the smallest first.
    fn simpler(&self, _action: &Self::Action) -> Vec<Self::Action> {
        Vec::new()
    }

    /// Whether a violation matters; otherwise the design repairs it, and it is only worth a remark.
    fn is_critical(&self, _property: &str) -> bool {
        true
    }

    /// Whether a state without successors is a violation.
    fn has_deadlocks(&self) -> bool {
        false
    }

    /// The shape of the device, if there is one.
    fn device(&self) -> Option<fathom_block::Geometry> {
        None
    }

    /// Number of power failures judged inside steps so far.
    fn power_failures(&self) -> u64 {
        0
    }
}

/// A counterexample in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The violation in words.
    pub what: String,
    /// The blocks involved, by number.
    pub blocks: Vec<Block>,
}

/// One step of a counterexample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The operation; empty if there is nothing but the power failure.
    pub what: String,
    /// The commands to the device, in order.
    pub writes: Vec<Write>,
    /// The power failure in words, if there was one.
    pub crash: Option<String>,
    /// The blocks that recovery wrote.
    pub recovery: Vec<Write>,
    /// The result of recovery.
    pub recovered: String,
}

/// A command to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// A write of one block.
    Block {
        /// The number of the block.
        block: usize,
        /// Whether it is there after the power failure of the story.
        arrived: bool,
    },
    /// A flush: makes everything before it durable.
    Flush,
}

/// A block of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub number: usize,
    /// Its purpose.
    pub label: String,
    /// Its contents before the last step.
    pub before: String,
    /// Its contents after the power failure.
    pub left: String,
    /// Its contents after recovery.
    pub after: String,
}

impl Story {
    /// Draws the blocks: a row for each block, a column for each step, then its contents.
    pub fn drawing(&self) -> String {
        let label = |block: &Block| format!("{} {}", block.number, block.label);
        let width = self.blocks.iter().map(|block| label(block).chars().count()).max().unwrap_or(0);
        let mut out = String::new();
        if self.blocks.is_empty() {
            return out;
        }
        let _ = write!(out, "  {:width$} ", "step");
        for number in 1..=self.steps.len() {
            let _ = write!(out, "{number:>3}");
        }
        let recovers = self.steps.iter().any(|step| !step.recovery.is_empty());
        let _ = writeln!(out, "{}", if recovers { " rec" } else { "" });
        for block in &self.blocks {
            let mut line = format!("  {:width$} ", label(block));
            for step in &self.steps {
                let _ = write!(line, "{:>3}", sign(&step.writes, block.number));
            }
            let last = self.steps.last().map_or(&[][..], |step| &step.recovery);
            let _ = write!(line, "{:>4}", sign(last, block.number));
            let _ = writeln!(out, "{}", line.trim_end());
            let mut held = vec![("before", &block.before)];
            held.extend((block.left != block.before).then_some(("left", &block.left)));
            held.extend((block.after != block.left).then_some(("recovered", &block.after)));
            for (when, what) in held {
                let _ = writeln!(out, "  {:width$}   {when}: {what}", "");
            }
        }
        out.push_str("  ■ written, ✗ written and lost in the power failure\n");
        out
    }
}

/// The sign of a block in the column of a step.
fn sign(writes: &[Write], number: usize) -> &'static str {
    let of_block = |write: &&Write| matches!(write, Write::Block { block, .. } if *block == number);
    match writes.iter().rfind(of_block) {
        Some(Write::Block { arrived: true, .. }) => "■",
        Some(_) => "✗",
        None => "",
    }
}

/// Lists the numbers in the order of the writes; lost ones are struck out.
pub fn list(writes: &[Write]) -> String {
    let text = |write: &Write| match write {
        Write::Block { block, arrived: true } => block.to_string(),
        Write::Block { block, arrived: false } => format!("{block}✗"),
        Write::Flush => "FLUSH".to_owned(),
    };
    writes.iter().map(text).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            let mut margin = format!("{:>3}. ", number + 1);
            if !step.what.is_empty() {
                write!(f, "{margin}{}", step.what)?;
                match step.writes.is_empty() {
                    true => writeln!(f)?,
                    false => writeln!(f, ": writes {}", list(&step.writes))?,
                }
                margin = " ".repeat(5);
            }
            if let Some(crash) = &step.crash {
                writeln!(f, "{margin}POWER FAILURE {crash}")?;
                let recovery = match step.recovery.is_empty() {
                    true => "nothing".to_owned(),
                    false => list(&step.recovery),
                };
                writeln!(f, "     recovery writes {recovery}; {}", step.recovered)?;
            }
        }
        if !self.what.is_empty() {
            writeln!(f, "     {}", self.what)?;
        }
        Ok(())
    }
}
