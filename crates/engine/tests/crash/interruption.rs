//! Stop, die, go on: states, images and findings are those of a check that was never interrupted.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use fathom_block::backed::Durable;
use fathom_block::{InProcess, Level};
use fathom_engine::crash::{CrashConfig, CrashPlan, crash};
use fathom_engine::search::Stop;
use fathom_engine::{Observer, Silent};
use fathom_record::{Finding, Progress};

use super::bug::Bug;
use super::toy::Toy;
use super::{Result, THREADS, base, plan, run};

fn toy() -> Toy {
    Toy::new(Durable::Operation).with(Bug::ForgetsLast)
}

fn config() -> CrashConfig {
    let levels = vec![Level::Linear];
    CrashConfig { depth: 3, levels, fsck: false, ..base() }
}

fn saving(path: &Path, resume: bool) -> CrashPlan {
    CrashPlan { checkpoint: Some((path.to_owned(), resume)), threads: 2, ..plan(&config()) }
}

fn whole() -> Result {
    let whole = Result::from(&run(&toy(), &plan(&config())));
    assert_eq!((whole.states, whole.transitions, whole.findings.len()), (171, 264, 14));
    whole
}

#[test]
fn in_pieces() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    for step in [17, 60] {
        for (round, states_max) in (2..).step_by(step).enumerate() {
            let threads = THREADS[round % 3];
            let plan =
                CrashPlan { states_max: Some(states_max), threads, ..saving(&path, round > 0) };
            let report = run(&toy(), &plan);
            if report.search.stop == Stop::Depth {
                assert_eq!(Result::from(&report), whole());
                assert!(round > 1, "{round} interruptions");
                break;
            }
            assert_eq!((report.search.stop, report.search.states), (Stop::States, states_max));
        }
    }
}

/// Stops a check when it is asked for the n-th time, and keeps the checkpoint of that moment.
struct Restless {
    left: u32,
    checkpoint: PathBuf,
    copy: PathBuf,
    stop: bool,
}

impl Observer for Restless {
    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return ControlFlow::Continue(());
        }
        if !self.copy.exists() && self.checkpoint.exists() {
            fs::copy(&self.checkpoint, &self.copy).expect("a copy");
        }
        if self.stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn seen(&mut self, _: &Finding) -> bool {
        true
    }

    fn finding(&mut self, _: &Finding, _: Option<&str>) {}
}

#[test]
fn on_request() {
    let directory = tempfile::tempdir().expect("a directory");
    let checkpoint = directory.path().join("checkpoint");
    let config = CrashConfig { depth: 4, ..config() };
    let saving = |resume| CrashPlan { config: config.clone(), ..saving(&checkpoint, resume) };
    let whole = Result::from(&run(&toy(), &plan(&config)));
    for left in [1, 2] {
        let copy = directory.path().join("copy");
        let mut observer = Restless { left, checkpoint: checkpoint.clone(), copy, stop: true };
        let report =
            crash(&InProcess::new(&toy()), &saving(false), &mut observer).expect("a sound plan");
        // A fast machine may be done before it has told of its progress twice.
        if left == 1 || report.search.stop == Stop::Asked {
            assert_eq!(report.search.stop, Stop::Asked);
            // Asked in its last moment it may have come to all of them.
            assert!(report.search.states <= whole.states);
        }
        assert_eq!(Result::from(&run(&toy(), &saving(true))), whole);
    }
}

/// A process that is killed leaves an older checkpoint: what was judged since is judged again.
#[test]
fn from_an_older_checkpoint() {
    let directory = tempfile::tempdir().expect("a directory");
    let (checkpoint, copy) = (directory.path().join("now"), directory.path().join("then"));
    let config = CrashConfig { depth: 4, ..config() };
    let plan = |path: &Path, resume| CrashPlan { config: config.clone(), ..saving(path, resume) };
    let mut observer =
        Restless { left: 1, checkpoint: checkpoint.clone(), copy: copy.clone(), stop: false };
    let whole = crash(&InProcess::new(&toy()), &plan(&checkpoint, false), &mut observer)
        .expect("a sound plan");
    assert_eq!(whole.search.stop, Stop::Depth);
    assert!(fs::read(&copy).expect("a copy") != fs::read(&checkpoint).expect("the last one"));
    let resumed = run(&toy(), &plan(&copy, true));
    assert_eq!(Result::from(&resumed), Result::from(&whole));
}

#[test]
fn a_checkpoint_of_another_check_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("checkpoint");
    run(&toy(), &CrashPlan { states_max: Some(9), ..saving(&path, false) });
    let other = CrashConfig { remember: 1, ..config() };
    let refused = crash(
        &InProcess::new(&toy()),
        &CrashPlan { config: other, ..saving(&path, true) },
        &mut Silent,
    );
    let error = refused.map(|report| report.crash_images).expect_err("another search").to_string();
    assert!(error.contains("another"), "{error}");
}
