//! The tasks of a plan, each of which this program would accept.

use anyhow::{Context, Result, bail};
use clap::Parser;
use fathom_subjects::catalogue::Need;
use fathom_swarm::{Plan, Task, Tasks};

use crate::args::{Cli, Command};
use crate::subjects::catalogue;

/// Tasks of an endless plan that are shown and checked.
const ENDLESS_SHOWN: usize = 20;

/// Tasks whose commands were understood.
pub(super) struct Checked {
    pub(super) tasks: Vec<Task>,
    /// Whether one of them needs the rights of the superuser.
    pub(super) privileged: bool,
}

/// Makes the tasks, and refuses the plan if a command is not understood or needs rights that the plan does
/// not give.
pub(super) fn checked(plan: &Plan) -> Result<Checked> {
    let tasks = Tasks::new(plan)?;
    let tasks: Vec<Task> = match plan.tasks_number() {
        Some(_) => tasks.collect(),
        None => tasks.take(ENDLESS_SHOWN).collect(),
    };
    let mut privileged = false;
    let mut shapes = std::collections::BTreeSet::new();
    for task in &tasks {
        // Thousands of tasks differ in numbers only.
        let shape: Vec<String> = task.words.iter().map(|word| shape(word)).collect();
        if !shapes.insert(shape) {
            continue;
        }
        let words = ["fathom"].into_iter().chain(task.words.iter().map(String::as_str));
        let cli = Cli::try_parse_from(words).map_err(|refused| {
            let text = refused.render().to_string();
            let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
            anyhow::anyhow!("{}", lines.join(" ").trim_start_matches("error: ").to_owned())
        });
        let cli = cli.with_context(|| format!("task {}: {}", task.number, task.command_line()))?;
        if needs_root(&cli) && !task.is_in_guest() {
            privileged = true;
            if !plan.privileged {
                bail!(
                    "task {} uses the kernel of its machine and so the rights of the superuser: {}: give \
                     kernels (each task in a kernel of its own), or privileged = true",
                    task.number,
                    task.command_line()
                );
            }
        }
    }
    Ok(Checked { tasks, privileged })
}

/// A word without its numbers.
fn shape(word: &str) -> String {
    match word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'/') {
        true => "0".to_owned(),
        false => word.to_owned(),
    }
}

/// Whether the subject of a command needs the rights of the superuser.
fn needs_root(cli: &Cli) -> bool {
    let subject = match &cli.command {
        Some(Command::Check(args)) => &args.subject,
        Some(Command::Crash(args)) => &args.subject,
        _ => return false,
    };
    let name = subject.split([':', '+']).next().unwrap_or(subject);
    let rows = catalogue().rows();
    let is_it = |row: &&fathom_subjects::catalogue::Row| {
        row.name == *subject || row.name.split([':', '+']).next() == Some(name)
    };
    rows.iter().find(is_it).is_some_and(|row| row.needs.contains(&Need::Root))
}
