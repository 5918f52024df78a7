//! Runs the engine on a thread of its own: a subject may change the working directory, the mask and
//! the identity of the thread it lives on.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use fathom_core::{Activity, Testbed};
use fathom_engine::check::call_monitor::OnStuck;
use fathom_engine::check::finding::investigate::{FindingSource, hang};
use fathom_engine::{Participant, Report, check_all};
use fathom_record::{Kept, Known};

use crate::execution::RecordedSubject;
use crate::plan::CheckPlan;
use crate::progress::{KnownArgs, RunObserver};
use crate::subjects::Spec;
use crate::supervise::death::keep_last;
use crate::supervise::output::shown;
use crate::supervise::worker::{self, About};
use crate::text::say;

/// What setting up, looking and taking down may add to the budget of a campaign.
const GRACE: Duration = Duration::from_secs(5);

/// Does `work` with a subject, on a thread of its own.
pub(crate) fn with_subject<T: Send>(
    spec: &Spec,
    reference: &fathom_model::Config,
    work: impl FnOnce(&mut dyn Testbed) -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let handle = scope.spawn(|| {
            let mut subject = worker::watched(Activity::SettingUp, || spec.build(reference))?;
            if !worker::in_guest().is_some_and(|guest| guest.virtual_clock) {
                let done = work(subject.as_mut());
                worker::watched(Activity::Closing, || drop(subject));
                return done;
            }
            let mut recorded = RecordedSubject::new(subject);
            let done = work(&mut recorded);
            worker::watched(Activity::Closing, || recorded.finish());
            done
        });
        handle.join().unwrap_or_else(|_| Err(anyhow!("the harness panicked: see above")))
    })
}

/// Runs a check to its end. Findings are also written to `out` when a call that never returns ends
/// the program.
pub(crate) fn run_check(
    checked: &CheckPlan,
    out: &Path,
    known: &KnownArgs,
    observer: &mut RunObserver,
) -> Result<Report> {
    let CheckPlan { spec, rivals, plan, .. } = checked;
    let mut plan = plan.clone();
    plan.on_stuck = on_stuck(checked, out, known);
    plan.supervision = worker::supervision();
    describe(checked);
    with_subject(spec, &plan.reference, |subject| {
        let mut others = Vec::new();
        for (spec, reference) in rivals {
            let rival = worker::watched(Activity::SettingUp, || spec.build(reference))?;
            others.push((rival, reference.clone()));
        }
        let mut players = vec![Participant { subject, reference: plan.reference.clone() }];
        players.extend(others.iter_mut().map(|(subject, reference)| Participant {
            subject: subject.as_mut(),
            reference: reference.clone(),
        }));
        Ok(check_all(players, &plan, observer)?)
    })
}

/// Tells the supervisor what a finding must know, and how long the campaign may take.
fn describe(checked: &CheckPlan) {
    let plan = &checked.plan;
    let source = |spec: &Spec, reference: &fathom_model::Config| FindingSource {
        subject: spec.to_string(),
        seed: plan.seed,
        reference: reference.clone(),
        times: plan.config.check.times,
        labels: plan.labels.clone(),
    };
    let rivals = checked.rivals.iter().map(|(spec, reference)| source(spec, reference));
    let sources = [source(&checked.spec, &plan.reference)].into_iter().chain(rivals).collect();
    worker::describe(About { sources, ..About::default() });
    let shrink = Duration::from_secs(plan.config.check.shrink_seconds);
    let grace = shrink + plan.explore.deadline * 2 + GRACE;
    worker::limit(plan.explore.deadline, plan.budget.map(|budget| budget + grace));
}

/// A thread that waits in the kernel cannot be ended: the finding is recorded, and the program is left
/// with it. For a process without a supervisor.
fn on_stuck(checked: &CheckPlan, out: &Path, known: &KnownArgs) -> OnStuck {
    let (subject, plan, out) = (checked.spec.to_string(), checked.plan.clone(), out.to_owned());
    let known = known.path();
    Arc::new(move |ops, late| {
        let finding = hang(&subject, &plan, ops, late);
        let known = Known::read(&known).unwrap_or_default();
        let what = "a call never returned";
        let told = match keep_last(Some(&out), &out, known, what, Some(&finding.record())) {
            None | Some(Kept::Known) => "known: counted, not reported\n".to_owned(),
            Some(Kept::Written(dir)) => format!("{finding}files:  {}\n", shown(&dir)),
            Some(Kept::NotWritten(error)) => format!("{finding}cannot write it: {error}\n"),
        };
        say!("{told}");
        std::process::exit(1);
    })
}
