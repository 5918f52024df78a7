//! Histories without a file system: callers on the reference, whose calls overlap as the seed says, each
//! with its effect at some moment between its invocation and its return.

use fathom_core::{Interval, Op, Step};
use fathom_model::{Config, ConfigError, Model, TreeOptions};

use super::History;
use fathom_generate::choice::Choices;

/// How callers are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Out of a hundred moments of a caller between two calls, so many are idle.
    pub idle_percent: u32,
}

/// Where a caller is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Outside,
    Invoked(u64),
    Done(u64),
}

/// Lets callers execute their operations on the reference, after `setup`, which is done by those whom it
/// names one after the other.
///
/// # Errors
/// If the reference cannot be made.
pub fn simulate(
    reference: &Config,
    setup: &[(u32, Op)],
    scripts: &[Vec<Op>],
    pace: Pace,
    choices: &mut Choices,
) -> Result<History, ConfigError> {
    let mut model = Model::new(reference.clone())?;
    let mut steps = Vec::new();
    for (caller, op) in setup {
        let outcome = model.execute_as(*caller, op);
        steps.push(Step { caller: *caller, ..Step::new(steps.len() as u64, op.clone(), outcome) });
    }
    let mut clock = 0;
    let mut next = vec![0; scripts.len()];
    let mut phases = vec![Phase::Outside; scripts.len()];
    let mut answers = vec![None; scripts.len()];
    loop {
        let busy: Vec<usize> =
            (0..scripts.len()).filter(|c| next[*c] < scripts[*c].len()).collect();
        if busy.is_empty() {
            break;
        }
        let caller = *choices.pick(&busy);
        let op = &scripts[caller][next[caller]];
        match phases[caller] {
            Phase::Outside if choices.percent(pace.idle_percent) => continue,
            Phase::Outside => phases[caller] = Phase::Invoked(clock),
            Phase::Invoked(at) => {
                answers[caller] = Some(model.execute_as(caller as u32, op));
                phases[caller] = Phase::Done(at);
                continue;
            }
            Phase::Done(at) => {
                let Some(outcome) = answers[caller].take() else { continue };
                let step = Step::new(steps.len() as u64, op.clone(), outcome);
                let interval = Interval::new(at, clock);
                steps.push(Step { caller: caller as u32, interval, ..step });
                phases[caller] = Phase::Outside;
                next[caller] += 1;
            }
        }
        clock += 1;
    }
    let last = Some(model.volume().tree(TreeOptions::default()));
    Ok(History { steps, last })
}
