//! Runs the engine on a thread of its own: a subject may change the working directory, the mask and
//! the identity of the thread it lives on.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Result, anyhow};
use fathom_core::Testbed;
use fathom_engine::check::call_monitor::OnStuck;
use fathom_engine::check::finding::investigate::hang;
use fathom_engine::{Participant, Report, check_all};

use crate::plan::CheckPlan;
use crate::progress::RunObserver;
use crate::subjects::Spec;

/// Does `work` with a subject, on a thread of its own.
pub(crate) fn with_subject<T: Send>(
    spec: &Spec,
    reference: &fathom_model::Config,
    times: bool,
    work: impl FnOnce(&mut dyn Testbed) -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let handle = scope.spawn(|| {
            let mut subject = spec.build(reference, times)?;
            work(subject.as_mut())
        });
        handle.join().unwrap_or_else(|_| Err(anyhow!("the harness panicked: see above")))
    })
}

/// Runs a check to its end. Findings are also written to `out` when a call that never returns ends
/// the program.
pub(crate) fn run_check(
    checked: &CheckPlan,
    out: &Path,
    observer: &mut RunObserver,
) -> Result<Report> {
    let CheckPlan { spec, rivals, plan } = checked;
    let mut plan = plan.clone();
    plan.on_stuck = on_stuck(checked, out);
    let times = plan.config.check.times;
    with_subject(spec, &plan.reference, times, |subject| {
        let mut others = Vec::new();
        for (spec, reference) in rivals {
            others.push((spec.build(reference, times)?, reference.clone()));
        }
        let mut players = vec![Participant { subject, reference: plan.reference.clone() }];
        players.extend(others.iter_mut().map(|(subject, reference)| Participant {
            subject: subject.as_mut(),
            reference: reference.clone(),
        }));
        Ok(check_all(players, &plan, observer)?)
    })
}

/// A thread that waits in the kernel cannot be ended: the finding is written, and the program is
/// left with it.
fn on_stuck(checked: &CheckPlan, out: &Path) -> OnStuck {
    let (subject, plan, out) = (checked.spec.to_string(), checked.plan.clone(), out.to_owned());
    Arc::new(move |ops, late| {
        let finding = hang(&subject, &plan, ops, late);
        let told = match finding.write(&out) {
            Ok(dir) => format!("{finding}files:  {}\n", dir.display()),
            Err(error) => format!("{finding}cannot write it: {error}\n"),
        };
        eprintln!("{told}");
        std::process::exit(1);
    })
}
