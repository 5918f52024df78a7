//! A crash check leaves what it is executing where it outlives the process: library file systems run
//! in our process, and C code can end it. From that a finding is made.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use fathom_block::{CrashPoint, DiskFileSystem, Geometry};
use fathom_core::{Activity, Digest, Journal, Op, Supervision};
use serde::{Deserialize, Serialize};

use super::config::CrashConfig;
use super::finding::{CrashFinding, CrashRecord, KIND, finding_id};
use super::judge::{Cause, Class};
use super::run::CrashPlan;
use super::script::{Script, pack_power_cut};

/// The journal of a thread.
struct ThreadJournal {
    journal: Arc<dyn Journal>,
    /// Events of the script that was executed last.
    events: usize,
    /// A record; kept to be filled again.
    record: Vec<u8>,
}

impl ThreadJournal {
    fn append(&mut self, pack: impl FnOnce(&mut Vec<u8>)) {
        self.record.clear();
        pack(&mut self.record);
        self.journal.append(&self.record);
    }
}

thread_local! {
    /// The journal of this thread, once it has one.
    static JOURNAL: RefCell<Option<ThreadJournal>> = const { RefCell::new(None) };
}

/// Does something with the journal of this thread, if anybody reads along.
fn with_journal(supervision: &Supervision, work: impl FnOnce(&mut ThreadJournal)) {
    let Some(supervisor) = supervision else { return };
    JOURNAL.with_borrow_mut(|journal| {
        let new =
            || ThreadJournal { journal: supervisor.journal(0), events: 0, record: Vec::new() };
        work(journal.get_or_insert_with(new));
    });
}

/// A script is about to be executed.
pub(super) fn begin_script(supervision: &Supervision, script: impl FnOnce() -> Script) {
    with_journal(supervision, |this| {
        let script = script();
        this.journal.clear();
        script.0.iter().for_each(|event| this.append(|to| event.pack(to)));
        this.events = script.0.len();
        this.journal.begin(Activity::Operation);
    });
}

/// The image that a power failure leaves is about to be examined; the script is that of the last
/// [`begin_script`] of this thread.
pub(super) fn begin_image(supervision: &Supervision, point: &CrashPoint) {
    with_journal(supervision, |this| {
        this.journal.truncate(this.events);
        this.append(|to| pack_power_cut(point, to));
        this.journal.begin(Activity::Examining);
    });
}

/// Does something with a whole recorded script, in which the process may die.
pub fn with_script<T>(supervision: &Supervision, script: &Script, work: impl FnOnce() -> T) -> T {
    begin_script(supervision, || script.clone());
    with_journal(supervision, |this| this.journal.begin(Activity::Examining));
    let done = work();
    end(supervision);
    done
}

/// Notes that what began has ended.
pub(super) fn end(supervision: &Supervision) {
    with_journal(supervision, |this| this.journal.end());
}

/// The facts about a check that its findings repeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CrashSource {
    subject: String,
    version: String,
    geometry: Geometry,
    config: CrashConfig,
    labels: BTreeMap<String, String>,
}

impl CrashSource {
    /// The source of a check.
    pub fn new(
        subject: &dyn DiskFileSystem,
        config: &CrashConfig,
        plan: Option<&CrashPlan>,
    ) -> Self {
        CrashSource {
            subject: subject.name().to_owned(),
            version: subject.version().to_owned(),
            geometry: subject.geometry(),
            config: config.clone(),
            labels: plan.map(|plan| plan.labels.clone()).unwrap_or_default(),
        }
    }

    /// Makes a finding of a script whose execution ended the process; `how` says in which way.
    pub fn last_words(&self, script: Script, how: &str) -> CrashFinding {
        let op = script.ops().last().unwrap_or(&Op::Remount);
        let cause = Cause::new(Class::Died, op, how);
        let record = CrashRecord {
            kind: KIND.to_owned(),
            id: finding_id(&self.subject, self.geometry, &cause, &script),
            subject: self.subject.clone(),
            version: self.version.clone(),
            count: 1,
            levels: Vec::new(),
            ops: script.ops_len(),
            ops_found: script.ops_len(),
            runs: 0,
            runs_reproduced: 0,
            image: Digest::default(),
            what: format!("the process that executed it ended: {how}"),
            program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
            story: String::new(),
            cause,
            geometry: self.geometry,
            config: self.config.clone(),
            labels: self.labels.clone(),
            variants: Vec::new(),
            complete: false,
        };
        let mut finding = CrashFinding::new(record, script.clone(), script, None);
        finding.record.story = finding.to_string();
        finding
    }

    /// Completes a finding that was run again (`runs` times, of which `reproduced` showed it) and
    /// shrunk to `minimal`.
    pub fn confirmed(
        &self,
        first: &CrashFinding,
        minimal: Script,
        runs: usize,
        reproduced: usize,
    ) -> CrashFinding {
        let mut finding = self.last_words(minimal, &first.record.cause.place);
        finding.script = first.script.clone();
        finding.record.labels = first.record.labels.clone();
        finding.record.ops_found = first.record.ops;
        (finding.record.runs, finding.record.runs_reproduced) = (runs, reproduced);
        finding.record.complete = true;
        finding.record.story = finding.to_string();
        finding
    }
}
