//! A finding as text for people: what was done, what was expected, what happened.

use std::fmt::{self, Write};

use fathom_core::{Difference, Probe, Step, Violation};

use super::Finding;

/// A story is to be read, not scrolled: more operations than this are cut at the front.
const STEPS_SHOWN_MAX: usize = 40;
/// More differences than this are counted, not shown.
const DIFFERENCES_SHOWN_MAX: usize = 12;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = &self.minimal.steps;
        writeln!(
            f,
            "finding {}: {} on {}\n",
            self.id, self.signature, self.minimal.header.subject
        )?;
        write_steps(f, steps)?;
        f.write_char('\n')?;
        write_violation(f, &self.violation, steps)?;
        self.answer_details().iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        f.write_char('\n')?;
        if let Some(vote) = self.labels.get("vote") {
            writeln!(f, "vote: {vote}")?;
        }
        let (again, runs) = self.reproduced();
        let found_in = self.trace.steps.len();
        match again {
            _ if !self.complete => writeln!(f, "as it was first seen: not yet run again")?,
            0 if runs == 0 => writeln!(f, "not run again")?,
            0 => writeln!(f, "NOT REPRODUCED: {runs} more runs of the same operations were fine")?,
            _ => writeln!(f, "seen again in {again} of {runs} runs")?,
        }
        if steps.len() < found_in {
            writeln!(f, "shrunk from {found_in} operations to {}", steps.len())?;
        }
        // Who has just run the command may run it again.
        let runs_command = self.trace.header.subject.starts_with("fuse:");
        let trust = if runs_command { " --trust" } else { "" };
        writeln!(f, "replay: fathom replay {}{trust}", self.id)
    }
}

impl Finding {
    /// Which fields of an answer differ; of `statfs`, how they have changed since the start.
    pub(super) fn answer_details(&self) -> Vec<String> {
        let Violation::Outcome { expected, found } = &self.violation else { return Vec::new() };
        let claims = self.minimal.header.claims.iter();
        let changes: Vec<String> = claims
            .filter(|claim| claim.probe != Probe::Answer)
            .map(|claim| {
                format!("{}: expected {}, found {}", claim.probe, claim.expected, claim.found)
            })
            .collect();
        if changes.is_empty() { expected.differences(found) } else { changes }
    }
}

fn write_steps(f: &mut fmt::Formatter<'_>, steps: &[Step]) -> fmt::Result {
    let hidden = steps.len().saturating_sub(STEPS_SHOWN_MAX);
    if hidden > 0 {
        writeln!(f, "  … {hidden} operations before")?;
    }
    for step in &steps[hidden..] {
        writeln!(f, "  {:>3}  {} = {}", step.n + 1, step.op, step.outcome)?;
    }
    Ok(())
}

/// Writes what was said, with a line before it that says who said it.
fn write_lines(f: &mut fmt::Formatter<'_>, head: &str, lines: &[String]) -> fmt::Result {
    writeln!(f, "{head}")?;
    lines.iter().take(DIFFERENCES_SHOWN_MAX).try_for_each(|line| writeln!(f, "  {line}"))
}

fn write_violation(
    f: &mut fmt::Formatter<'_>,
    violation: &Violation,
    steps: &[Step],
) -> fmt::Result {
    let number = steps.len();
    let doing = match number {
        0 => "setting up".to_owned(),
        number => format!("operation {number}"),
    };
    match violation {
        Violation::Outcome { expected, found } => {
            writeln!(f, "operation {number} gave another answer than the reference:")?;
            writeln!(f, "  expected  {expected}")?;
            writeln!(f, "  found     {found}")
        }
        Violation::NonDeterministic { first, second } => {
            writeln!(f, "operation {number} gave two answers in two runs from the same start:")?;
            writeln!(f, "  first     {first}")?;
            writeln!(f, "  then      {second}")
        }
        Violation::Checker { command, code, output } => {
            let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
            let when = format!("after operation {number} the unmounted disk is damaged");
            writeln!(f, "{when}: `{command}` ended\nwith {code} and said:")?;
            let lines = telling_lines(output);
            lines.iter().take(DIFFERENCES_SHOWN_MAX).try_for_each(|line| writeln!(f, "  {line}"))
        }
        Violation::KernelLog { lines } => {
            write_lines(f, &format!("during operation {number} the kernel logged:"), lines)
        }
        Violation::Locks { lines } => {
            write_lines(f, &format!("during operation {number} a file was locked:"), lines)
        }
        Violation::Hang { seconds } => {
            writeln!(f, "operation {number} did not return within {seconds} s")
        }
        Violation::Died { how } => {
            writeln!(f, "the process that executed {doing} died of it: {how}")
        }
        Violation::ServerDied { last_words } => {
            writeln!(f, "the program that serves the file system did not survive {doing}:")?;
            last_words.lines().try_for_each(|line| writeln!(f, "  {line}"))
        }
        Violation::Oops { lines } if lines.is_empty() => {
            writeln!(f, "the kernel ended the thread that executed {doing}")
        }
        Violation::Oops { lines } => {
            writeln!(f, "the kernel did not survive {doing}; it logged:")?;
            lines.iter().take(DIFFERENCES_SHOWN_MAX).try_for_each(|line| writeln!(f, "  {line}"))
        }
        Violation::KernelReport { title, stack, .. } => {
            writeln!(f, "the guest's kernel did not survive {doing}:")?;
            writeln!(f, "  {title}")?;
            let calls = stack.iter().take(DIFFERENCES_SHOWN_MAX);
            calls.into_iter().try_for_each(|function| writeln!(f, "    {function}"))
        }
        Violation::OutOfMemory { mib } => {
            writeln!(f, "{doing} used up the memory that there was: {mib} MiB")
        }
        Violation::Tree { differences } => {
            writeln!(f, "after operation {number} the tree is not that of the reference:")?;
            write_differences(f, differences)
        }
        Violation::Stale { differences } => {
            writeln!(f, "after operation {number} something old is shown for a while:")?;
            write_differences(f, differences)
        }
    }
}

fn write_differences(f: &mut fmt::Formatter<'_>, differences: &[Difference]) -> fmt::Result {
    for difference in differences.iter().take(DIFFERENCES_SHOWN_MAX) {
        writeln!(f, "  {difference}")?;
    }
    match differences.len().saturating_sub(DIFFERENCES_SHOWN_MAX) {
        0 => Ok(()),
        more => writeln!(f, "  … and {more} more"),
    }
}

/// What checkers print before, between and after what they have to say: e2fsck, xfs_repair, btrfs check,
/// fsck.f2fs, fsck.jfs.
const PROCEEDINGS: [&str; 14] = [
    "Pass ",
    "Phase ",
    "Opening filesystem",
    "Checking filesystem",
    "UUID:",
    "Info:",
    "e2fsck ",
    "fsck.",
    "processing started",
    "The current device is",
    "Block size in bytes",
    "Filesystem size in blocks",
    "found ",
    "total ",
];

/// The lines of a checker's output that say what is wrong; all lines if none stands out.
fn telling_lines(output: &str) -> Vec<&str> {
    let is_step = |line: &str| line.starts_with('[') && line.contains("] checking");
    let telling = |line: &&str| {
        let text = line.trim();
        !text.is_empty()
            && !is_step(text)
            && !text.starts_with('-')
            && !PROCEEDINGS.iter().any(|start| text.starts_with(start))
    };
    let lines: Vec<&str> = output.lines().filter(telling).collect();
    if lines.is_empty() { output.lines().collect() } else { lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkers_proceedings_are_left_out() {
        let output = "e2fsck 1.47.0 (5-Feb-2023)\nPass 1: Checking inodes, blocks, and sizes\n\
                      Inode 12, i_blocks is 16, should be 8.  Fix? no\n\nPass 2: Checking directory\n";
        assert_eq!(telling_lines(output), ["Inode 12, i_blocks is 16, should be 8.  Fix? no"]);
        let btrfs = "Opening filesystem to check...\n[1/7] checking root items\nroot 5 inode 257 errors 400\n";
        assert_eq!(telling_lines(btrfs), ["root 5 inode 257 errors 400"]);
        assert_eq!(telling_lines("Phase 1\n"), ["Phase 1"], "something must be shown");
    }
}
