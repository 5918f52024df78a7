//! What the commands use in the worker process. Without a supervisor all of it does nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use fathom_core::{Activity, Journal, Supervision, Supervisor};
use fathom_engine::check::finding::investigate::FindingSource;
use fathom_engine::crash::last_words::CrashSource;
use fathom_subjects::supervise::Worker;
use serde::{Deserialize, Serialize};

static WORKER: OnceLock<Arc<Worker>> = OnceLock::new();

static GUEST: OnceLock<InGuest> = OnceLock::new();

/// What the supervisor decides for a worker in a guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InGuest {
    /// The release of the guest's kernel.
    pub(crate) kernel: String,
    /// The seed of the guest's kernel.
    pub(crate) kernel_seed: u64,
    /// Seed of the campaign.
    pub(crate) seed: u64,
    /// Operations that earlier guests of this campaign have executed.
    pub(crate) ops_before: u64,
    /// Whether the guest has a clock of its own, which stands still while it computes.
    pub(crate) virtual_clock: bool,
}

/// What the supervisor must know of a campaign to make a finding of its end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct About {
    /// Of `check`, one per subject; of a replay, one.
    #[serde(default)]
    pub(crate) sources: Vec<FindingSource>,
    /// Of `crash`.
    #[serde(default)]
    pub(crate) crash: Option<CrashSource>,
    /// Of a replay: what the recorded run ended with.
    #[serde(default)]
    pub(crate) replayed: Option<String>,
    /// The directory with the `run.json` of this campaign, once there is one.
    #[serde(default)]
    pub(crate) run_in: Option<PathBuf>,
}

/// Takes over what the supervisor left under this number.
pub(crate) fn attach(number: i32) -> Result<()> {
    let worker = Worker::attach(number).context("--worker is for a supervisor to give")?;
    // It is called once, at the start of the program.
    let _ = WORKER.set(worker);
    Ok(())
}

/// Shares memory with the supervisor outside of this guest, and reads what it decided.
pub(crate) fn attach_in_guest() -> Result<()> {
    let messages = std::path::Path::new(fathom_guest::boot::MESSAGES);
    let text =
        std::fs::read(messages.join(CAMPAIGN)).context("--in-guest is for a supervisor to give")?;
    let worker = Worker::in_guest(&messages.join(BOARD)).context("sharing memory with the host")?;
    let decided: InGuest = serde_json::from_slice(&text)?;
    if decided.virtual_clock {
        // People wait outside, where the time goes on.
        fathom_record::pace::follow(|| {
            WORKER.get().and_then(|worker| worker.elapsed_outside()).unwrap_or_default()
        });
    }
    // Both are called once, at the start of the program.
    let _ = (WORKER.set(worker), GUEST.set(decided));
    Ok(())
}

/// Names of files in a guest's private directory: what the supervisor decided, and where the board is.
pub(crate) const CAMPAIGN: &str = "campaign.json";
pub(crate) const BOARD: &str = "board";

/// Whether nothing was executed before by guests of the same campaign that have died.
pub(crate) fn is_first_guest() -> bool {
    in_guest().is_none_or(|guest| guest.ops_before == 0)
}

/// What the supervisor decided, if this process runs in a guest.
pub(crate) fn in_guest() -> Option<&'static InGuest> {
    GUEST.get()
}

/// How long something took for people: a guest's own clock stands still while it computes.
pub(crate) fn elapsed(own: Duration) -> Duration {
    let virtual_clock = in_guest().is_some_and(|guest| guest.virtual_clock);
    let outside = WORKER.get().and_then(|worker| worker.elapsed_outside());
    outside.filter(|_| virtual_clock).unwrap_or(own)
}

/// Takes the budget of a campaign: with a clock that stands still only the host can keep it.
pub(crate) fn take_budget(budget: &mut Option<Duration>) {
    if in_guest().is_some_and(|guest| guest.virtual_clock)
        && let Some(worker) = WORKER.get()
    {
        worker.limit_outside(budget.take());
    }
}

/// Tells the host the budget of a command that keeps it itself: a guest in which something computes for ever
/// does not get to that.
pub(crate) fn share_budget(budget: Option<Duration>) {
    let mut shared = budget;
    take_budget(&mut shared);
}

/// Whoever supervises this process.
pub(crate) fn supervision() -> Supervision {
    WORKER.get().map(|worker| Arc::clone(worker) as Arc<dyn Supervisor>)
}

/// Whether the campaign was asked to end early.
pub(crate) fn is_interrupted() -> bool {
    WORKER.get().is_some_and(|worker| worker.is_interrupted())
}

/// Whether the campaign is to end, for whatever reason.
pub(crate) fn wants_the_end() -> bool {
    WORKER.get().is_some_and(|worker| worker.wants_the_end())
}

/// What was said last of the campaign.
static ABOUT: Mutex<Option<About>> = Mutex::new(None);

/// Says what the campaign is.
pub(crate) fn describe(about: About) {
    change(|said| *said = About { run_in: said.run_in.take(), ..about });
}

/// Says that the campaign has its own `run.json` from now on, in this directory.
pub(crate) fn run_started(dir: &Path) {
    change(|said| said.run_in = Some(dir.to_owned()));
}

fn change(change: impl FnOnce(&mut About)) {
    let mut said = ABOUT.lock().unwrap_or_else(PoisonError::into_inner);
    let about = said.get_or_insert_default();
    change(about);
    if let (Some(worker), Ok(text)) = (WORKER.get(), serde_json::to_vec(about)) {
        worker.describe(&text);
    }
}

/// Says how long one call of the subject may take, and how long the campaign may go on from now.
pub(crate) fn limit(deadline: Duration, end: Option<Duration>) {
    if let Some(worker) = WORKER.get() {
        worker.limit(deadline, end);
    }
}

/// A finding was written: the exit code will say so whatever happens.
pub(crate) fn found() {
    if let Some(worker) = WORKER.get() {
        worker.found();
    }
}

/// How many findings were written.
pub(crate) fn findings() -> u64 {
    WORKER.get().map_or(0, |worker| worker.findings())
}

/// The command has told its results.
pub(crate) fn told() {
    if let Some(worker) = WORKER.get() {
        worker.told();
    }
}

/// Does something on this thread that may not return.
pub(crate) fn watched<T>(activity: Activity, work: impl FnOnce() -> T) -> T {
    let Some(worker) = WORKER.get() else { return work() };
    let journal = worker.journal(0);
    journal.begin(activity);
    let done = work();
    Journal::end(&*journal);
    done
}
