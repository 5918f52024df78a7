//! Runs the engine on a thread of its own: a subject may change the working directory, the mask and
//! the identity of the thread it lives on.

use std::thread;

use anyhow::{Result, anyhow};
use fathom_core::Territory;
use fathom_engine::{Report, check};

use crate::plan::Checked;
use crate::progress::Bar;
use crate::subjects::Spec;

/// Does `work` with a subject, on a thread of its own.
pub(crate) fn with_subject<T: Send>(
    spec: &Spec,
    reference: &fathom_model::Config,
    times: bool,
    work: impl FnOnce(&mut dyn Territory) -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let handle = scope.spawn(|| {
            let mut subject = spec.build(reference, times)?;
            work(subject.as_mut())
        });
        handle.join().unwrap_or_else(|_| Err(anyhow!("the harness panicked: see above")))
    })
}

/// Runs a check to its end; `quiet` shows no progress.
pub(crate) fn run_check(checked: &Checked, quiet: bool) -> Result<Report> {
    let plan = &checked.plan;
    with_subject(&checked.spec, &plan.reference, plan.config.check.times, |subject| {
        let mut bar = Bar::new(plan, quiet);
        Ok(check(subject, plan, &mut bar)?)
    })
}
