//! What a campaign is about: one checker, one healthy disk, its map.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::checker::{Checker, CheckerError, Says};
use crate::disk::{Disk, DiskError};
use crate::judge::Control;
use crate::map::{Map, MapError};
use crate::objects::Objects;
use crate::run::{Command, DiskDelta, End, Limits, Memo, RunError};
use crate::runner::CaseRunner;

/// Looks at the disk.
pub(crate) const CHECK: u8 = 0;
/// Repairs the disk.
pub(crate) const REPAIR: u8 = 1;

/// Why a checker cannot be tested on a disk.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// The checker.
    #[error(transparent)]
    Checker(#[from] CheckerError),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The map of the disk.
    #[error("{disk}: {source}")]
    Map {
        /// The disk.
        disk: String,
        /// Why it has no map.
        source: MapError,
    },
    /// A run of the checker.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The healthy disk is not healthy.
    #[error("{disk} is not healthy, {checker} ends with {end}: repair it first\n{output}")]
    NotHealthy {
        /// The disk.
        disk: String,
        /// The checker.
        checker: String,
        /// How it ended.
        end: End,
        /// What it printed.
        output: String,
    },
}

/// A checker and a disk, ready to be corrupted.
pub struct Subject {
    /// The checker.
    pub checker: Checker,
    /// The program that is run.
    pub program: PathBuf,
    /// The healthy disk.
    pub disk: Disk,
    /// Its fields.
    pub map: Map,
    /// The limits of every run.
    pub limits: Limits,
    pub(crate) commands: [Command; 2],
    /// The same with a log of problem codes.
    pub(crate) logged: Option<[Command; 2]>,
    pub(crate) memo: Option<Memo>,
    /// What is on the healthy disk after the checker has seen it; nothing if we cannot read it.
    pub(crate) objects: Option<Objects>,
    pub(crate) control: Control,
    /// Bytes that a run may write although nothing was wrong.
    pub(crate) written_anyway: Vec<Range<u64>>,
}

/// How a subject is made.
#[derive(Clone, Debug, Default)]
pub struct SubjectOptions {
    /// Another program than the one of the search path.
    pub program: Option<PathBuf>,
    /// Time of one run.
    pub time: Option<Duration>,
    /// Run everything: nothing is answered from memory.
    pub no_memo: bool,
}

impl Subject {
    /// Checks the healthy disk with the checker, and prepares everything.
    ///
    /// # Errors
    /// If the checker is not installed, the disk is of another file system, or not healthy.
    pub fn new(
        mut checker: Checker,
        disk: Disk,
        options: &SubjectOptions,
    ) -> Result<Subject, SubjectError> {
        if let Some(program) = &options.program {
            checker.program = program.display().to_string();
        }
        let program = checker.path()?;
        let map = Map::of_one(&disk.bytes, &checker.file_systems)
            .map_err(|source| SubjectError::Map { disk: disk.name.clone(), source })?;
        let mut limits = Limits::default();
        limits.time = checker.seconds_max.map_or(limits.time, Duration::from_secs);
        limits.time = options.time.unwrap_or(limits.time);
        limits.memory_bytes = checker.memory_mib.map_or(limits.memory_bytes, |mib| mib << 20);
        let commands = commands(&checker, &program, &[])?;
        let logged = match checker.problem_log {
            true => Some(commands_with_log(&checker, &program)?),
            false => None,
        };
        let written_anyway = written_anyway(&checker, &map);
        let mut subject = Subject {
            program,
            map,
            limits,
            commands,
            logged,
            memo: (!options.no_memo).then(Memo::default),
            objects: None,
            control: Control { check_is_clean: true },
            written_anyway,
            checker,
            disk,
        };
        subject.control()?;
        Ok(subject)
    }

    /// Runs the checker on the healthy disk: it must not find anything, and what it writes then it
    /// may always write.
    fn control(&mut self) -> Result<(), SubjectError> {
        let nothing = DiskDelta::default();
        let mut runner = CaseRunner::new(self)?;
        let (looked, _, _) = runner.run(CHECK, &nothing)?;
        let (repaired, after, _) = runner.run(REPAIR, &nothing)?;
        drop(runner);
        let says = |outcome: &crate::run::Outcome, repairing| match outcome.end {
            End::Code(code) => Some(self.checker.says(code, repairing)),
            _ => None,
        };
        if !matches!(says(&repaired, true), Some(Says::Clean | Says::CleanOrRepaired)) {
            return Err(SubjectError::NotHealthy {
                disk: self.disk.name.clone(),
                checker: self.checker.name.clone(),
                end: repaired.end,
                output: String::from_utf8_lossy(&repaired.output).trim().to_owned(),
            });
        }
        self.control = Control { check_is_clean: says(&looked, false) == Some(Says::Clean) };
        for (at, _, _) in nothing.changes(&self.disk.bytes, &after) {
            let whole = self.map.fields.iter().find(|field| field.bytes().contains(&at));
            self.written_anyway.push(whole.map_or(at..at + 1, |field| field.bytes()));
        }
        self.written_anyway.sort_by_key(|range| range.start);
        self.written_anyway.dedup();
        let mut healthy = (*self.disk.bytes).clone();
        after.apply(&mut healthy);
        self.objects = Objects::of(&healthy, &self.map.file_system).ok();
        Ok(())
    }

    /// Whether checkers are kept from every file but their disk: the kernel has Landlock.
    pub fn is_confined(&self) -> bool {
        crate::run::Sandbox::new().is_complete()
    }

    /// The healthy bytes.
    pub(crate) fn base(&self) -> &Arc<Vec<u8>> {
        &self.disk.bytes
    }
}

fn commands(
    checker: &Checker,
    program: &std::path::Path,
    more: &[(String, String)],
) -> Result<[Command; 2], RunError> {
    let env: Vec<(String, String)> = checker
        .env
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .chain(more.to_vec())
        .collect();
    let program = program.display().to_string();
    Ok([
        Command::new(&program, &checker.check, &env)?,
        Command::new(&program, &checker.repair, &env)?,
    ])
}

/// e2fsck reads the name of its log from a configuration file; ours is in memory, under a number that
/// stays open as long as the program runs.
fn commands_with_log(
    checker: &Checker,
    program: &std::path::Path,
) -> Result<[Command; 2], RunError> {
    let text = "[options]\nproblem_log_filename = /proc/self/fd/101\n";
    let path = crate::run::shared_text(text)?;
    commands(checker, program, &[("E2FSCK_CONFIG".to_owned(), path)])
}

fn written_anyway(checker: &Checker, map: &Map) -> Vec<Range<u64>> {
    let matches = |name: &str| {
        checker.writes_anyway.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(head) => name.starts_with(head),
            None => name == wanted,
        })
    };
    map.fields
        .iter()
        .filter(|field| matches(&field.to_string()))
        .map(|field| field.bytes())
        .collect()
}
