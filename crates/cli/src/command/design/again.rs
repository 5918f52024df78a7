//! Recorded findings on designs: played again, shrunk further.

use std::path::Path;

use anyhow::{Context, Result, bail};
use fathom_designs::catalog::{Spec, Visitor};
use fathom_designs::finding::{Finding, Stored};
use fathom_designs::story::{ExplainedSystem, Story};
use fathom_record::RecordError;
use fathom_record::run::Kind;
use serde_json::json;

use super::with_hint;
use crate::args::{ReplayArgs, ShrinkArgs};
use crate::command::Ending;
use crate::command::again::AgainRun;
use crate::text::{bold, print, print_json};

/// The design of the finding, or another one that was asked for, of the same sizes: `--subject
/// journal` is without switches, `--subject journal:no-barrier` has one.
fn spec(stored: &Stored, subject: Option<&String>) -> Spec {
    let mut spec = stored.record.design.clone();
    if let Some(name) = subject {
        // A name alone is the design as it should be.
        let Spec { name, switches, .. } = Spec::named(name);
        spec = Spec { name, switches, ..spec };
    }
    spec
}

struct Play<'a> {
    stored: &'a Stored,
    full: bool,
}

impl Visitor for Play<'_> {
    type Out = Result<Option<Story>, RecordError>;

    fn visit<S: ExplainedSystem>(self, system: &S) -> Self::Out {
        self.stored.play(system, self.full)
    }
}

/// Plays a recorded finding: the same actions, every power failure of the last one.
pub(crate) fn replay(args: &ReplayArgs, dir: &Path, out: &Path, json: bool) -> Result<Ending> {
    let stored = Stored::read(dir)?;
    let spec = spec(&stored, args.subject.as_ref());
    let run = AgainRun::replay(args, &spec.to_string(), out);
    let story = spec
        .open(Play { stored: &stored, full: args.full })
        .map_err(with_hint)
        .context("the design of the finding cannot be made")??;
    let record = &stored.record;
    // What is wrong is part of what is recorded, of the minimal trace.
    let same = story.as_ref().is_some_and(|story| args.full || story.what == record.what);
    let verdict = match (&story, same) {
        (None, _) => "not reproduced",
        (Some(_), true) => "reproduced",
        (Some(_), false) => "different",
    };
    let steps = if args.full { stored.trace.len() } else { stored.minimal.len() };
    run.finish(steps, format!("{verdict}: {}", record.property));
    if json {
        print_json(&json!({
            "verdict": verdict.replace(' ', "_"),
            "design": spec,
            "property": record.property,
            "steps": steps,
            "what": story.as_ref().map(|story| &story.what),
            "recorded": record.what,
        }))?;
    } else {
        let told = match &story {
            Some(story) => format!("{story}\n{}", story.drawing()),
            None => format!("recorded: {}\n", record.what),
        };
        print(&format!("{told}\n{} on {spec}: {}\n", bold(verdict), record.property))?;
    }
    // 0 says that the record is true, so that scripts can `bisect run` on it.
    Ok(if same { Ending::Clean } else { Ending::Findings })
}

struct Shrink<'a> {
    stored: &'a Stored,
    budget: std::time::Duration,
}

impl Visitor for Shrink<'_> {
    type Out = Result<Option<Finding>, RecordError>;

    fn visit<S: ExplainedSystem>(self, system: &S) -> Self::Out {
        self.stored.shrink(system, self.budget)
    }
}

/// Looks longer for a shorter way.
pub(crate) fn shrink(args: &ShrinkArgs, dir: &Path, out: &Path, json: bool) -> Result<Ending> {
    let stored = Stored::read(dir)?;
    let spec = spec(&stored, args.subject.as_ref());
    let run = AgainRun::start(Kind::Shrink, &spec.to_string(), &args.what, out);
    let finding = spec
        .open(Shrink { stored: &stored, budget: args.budget })
        .map_err(with_hint)
        .context("the design of the finding cannot be made")??;
    let Some(finding) = finding else {
        run.finish(stored.record.steps, "the finding does not show now".to_owned());
        bail!("{spec} does not show the finding now: try `fathom replay {}`", args.what);
    };
    let dir = finding.write(out)?;
    let (steps, before) = (finding.record.steps, stored.record.steps);
    run.finish(steps, format!("from {before} to {steps} steps: {}", finding.record.id));
    if json {
        print_json(&json!({"id": finding.record.id, "ops": steps, "ops_before": before}))?;
    } else {
        print(&format!("{}files:  {}\n", finding.text(), crate::supervise::output::shown(&dir)))?;
    }
    Ok(Ending::Findings)
}
