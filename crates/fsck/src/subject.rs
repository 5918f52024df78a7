//! What a campaign is about: one checker, one healthy disk, its map.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::behaviour::FieldSorts;
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
    /// Bytes that looking writes on a healthy disk: a log of its own.
    pub(crate) written_by_looking: Vec<Range<u64>>,
    /// The sorts of fields by place.
    pub(crate) sorts: FieldSorts,
    /// Whether the checker tells which branches it takes.
    pub(crate) is_instrumented: bool,
    /// The healthy disk, packed for findings that cannot make it.
    packed: OnceLock<Vec<u8>>,
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
        limits.file_bytes = if checker.any_file_size { u64::MAX } else { limits.file_bytes };
        limits.time = checker.seconds_max.map_or(limits.time, Duration::from_secs);
        limits.time = options.time.unwrap_or(limits.time);
        limits.memory_bytes = checker.memory_mib.map_or(limits.memory_bytes, |mib| mib << 20);
        let commands = commands(&checker, &program, &[])?;
        let logged = match checker.problem_log {
            true => Some(commands_with_log(&checker, &program)?),
            false => None,
        };
        let written_by_looking = places(&checker.check_writes, &map);
        let written_anyway = places(&checker.writes_anyway, &map);
        let mut subject = Subject {
            program,
            limits,
            commands,
            logged,
            memo: (!options.no_memo).then(Memo::default),
            objects: None,
            control: Control { check_is_clean: true, journal_to_replay: false },
            written_anyway,
            written_by_looking,
            sorts: FieldSorts::of(&map),
            is_instrumented: false,
            packed: OnceLock::new(),
            map,
            checker,
            disk,
        };
        subject.control()?;
        Ok(subject)
    }

    /// A checker on one of its own test images: the image after it was repaired, and of its fields those
    /// that the repair changed. SWIFT's second corruption model.
    ///
    /// # Errors
    /// As [`Subject::new`]; an image that three repairs do not make clean is not healthy.
    pub fn of_test_image(
        checker: Checker,
        image: Disk,
        options: &SubjectOptions,
    ) -> Result<Subject, SubjectError> {
        let repaired = repaired(&checker, &image, options)?;
        let changed: Vec<u64> = (0..repaired.len() as u64)
            .filter(|at| repaired[*at as usize] != image.bytes[*at as usize])
            .collect();
        let disk = Disk { bytes: Arc::new(repaired), ..image };
        let mut subject = Subject::new(checker, disk, options)?;
        subject.map.keep(&changed);
        Ok(subject)
    }

    /// Runs the checker on the healthy disk: it must not find anything, and what it writes then it
    /// may always write.
    fn control(&mut self) -> Result<(), SubjectError> {
        let nothing = DiskDelta::default();
        let mut runner = CaseRunner::new(self)?;
        let (looked, after_looking, _) = runner.run(CHECK, &nothing)?;
        let (repaired, after, _) = runner.run(REPAIR, &nothing)?;
        let is_instrumented = runner.record(CHECK, &nothing)?.1.is_some();
        drop(runner);
        self.is_instrumented = is_instrumented;
        let says = |outcome: &crate::run::Outcome, repairing| match outcome.end {
            End::Code(code) => Some(self.checker.says(code, repairing)),
            _ => None,
        };
        let said = says(&repaired, true);
        // Some checkers call it a repair that they replayed a journal.
        self.control.journal_to_replay = self.disk.dirty && said != Some(Says::Clean);
        let replayed = self.disk.dirty && said == Some(Says::Repaired);
        if !replayed && !matches!(said, Some(Says::Clean | Says::CleanOrRepaired)) {
            return Err(SubjectError::NotHealthy {
                disk: self.disk.name.clone(),
                checker: self.checker.name.clone(),
                end: repaired.end,
                output: String::from_utf8_lossy(&repaired.output).trim().to_owned(),
            });
        }
        self.control.check_is_clean = says(&looked, false) == Some(Says::Clean);
        let mut written = self.fields_at(&nothing.changes(&self.disk.bytes, &after));
        self.written_anyway.append(&mut written);
        let by_looking = nothing.changes(&self.disk.bytes, &after_looking);
        if !by_looking.is_empty() {
            self.written_by_looking.extend(self.written_anyway.clone());
            self.written_by_looking.extend(self.fields_at(&by_looking));
        }
        let mut healthy = (*self.disk.bytes).clone();
        after.apply(&mut healthy);
        self.objects = Objects::of(&healthy, &self.map.file_system).ok();
        Ok(())
    }

    /// The fields that bytes belong to, each once; a byte of no field is one of its own.
    fn fields_at(&self, bytes: &[(u64, u8, u8)]) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        for (at, _, _) in bytes {
            if out.last().is_some_and(|range| range.contains(at)) {
                continue;
            }
            let whole = self.map.fields.iter().find(|field| field.bytes().contains(at));
            out.push(whole.map_or(*at..at + 1, |field| field.bytes()));
        }
        out
    }

    /// Whether checkers are kept from every file but their disk: the kernel has Landlock.
    pub fn is_confined(&self) -> bool {
        crate::run::Sandbox::new().is_complete()
    }

    /// The healthy disk as gzip packs it; nothing if there is no gzip.
    pub(crate) fn packed(&self) -> &[u8] {
        self.packed.get_or_init(|| gzip(&self.disk.bytes).unwrap_or_default())
    }

    /// The healthy bytes.
    pub(crate) fn base(&self) -> &Arc<Vec<u8>> {
        &self.disk.bytes
    }
}

/// The bytes of an image after so many repairs that the checker finds nothing any more.
fn repaired(
    checker: &Checker,
    image: &Disk,
    options: &SubjectOptions,
) -> Result<Vec<u8>, SubjectError> {
    let mut checker = checker.clone();
    if let Some(program) = &options.program {
        checker.program = program.display().to_string();
    }
    let program = checker.path()?;
    let repair = &commands(&checker, &program, &[])?[usize::from(REPAIR)];
    let mut file = crate::run::DiskFile::new(image.bytes.clone())?;
    file.answer_with(&checker.input)?;
    let sandbox = crate::run::Sandbox::new();
    let mut limits = Limits::default();
    limits.file_bytes = if checker.any_file_size { u64::MAX } else { limits.file_bytes };
    limits.memory_bytes = checker.memory_mib.map_or(limits.memory_bytes, |mib| mib << 20);
    let mut delta = DiskDelta::default();
    for _ in 0..3 {
        file.set(&delta)?;
        crate::run::spawn(repair, &file, &limits, &sandbox)?;
        delta = file.look()?;
    }
    let mut bytes = (*image.bytes).clone();
    delta.apply(&mut bytes);
    Ok(bytes)
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::{Seek, Write};
    let mut input = tempfile::tempfile()?;
    input.write_all(bytes)?;
    input.rewind()?;
    // Without a name and a time the same disk packs to the same bytes.
    let output = std::process::Command::new("gzip").arg("-cn").stdin(input).output()?;
    Ok(output.stdout)
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

/// The places of fields and areas by name; `*` at the end stands for any end.
fn places(names: &[String], map: &Map) -> Vec<Range<u64>> {
    let matches = |name: &str| {
        names.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(head) => name.starts_with(head),
            None => name == wanted,
        })
    };
    let fields = map.fields.iter().filter(|field| matches(&field.to_string()));
    let areas = map.areas.iter().filter(|(name, _)| matches(name));
    let areas = areas.map(|(_, range)| range.clone());
    fields.map(|field| field.bytes()).chain(areas).collect()
}
