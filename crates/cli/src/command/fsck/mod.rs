//! `fathom fsck`: tests a file-system checker, field by field.

pub(crate) mod again;
mod args;
mod compare;
mod crashes;
mod disks;
mod explore;
mod looker;
mod maker;
mod page;
mod suites;
mod tell;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use fathom_fsck::campaign::{self, Plan, State};
use fathom_fsck::{Case, Checker, Choice, Disk, Subject, SubjectOptions};
use fathom_record::run::Kind;

use super::Ending;
use crate::progress::{RunObserver, started};
use crate::text::{print, print_json, say};
pub(crate) use args::{FsckAction, FsckArgs};
use maker::GuestMaker;

/// The file with the state of a campaign, in the directory of the run.
const STATE: &str = "fsck.json";

pub(crate) fn run(args: &FsckArgs, out: &Path, json: bool) -> Result<Ending> {
    match &args.action {
        Some(FsckAction::Map(args)) => disks::map(args, json),
        Some(FsckAction::Set(args)) => disks::set(args, json),
        Some(FsckAction::Disk(args)) => disks::disk(args, json),
        Some(FsckAction::Build(args)) => explore::build(args, json),
        Some(FsckAction::Unpack(args)) => suites::unpack(args, json),
        Some(FsckAction::Suite(args)) => suites::write(args, json),
        Some(FsckAction::Coverage(args)) => suites::coverage(args, json),
        Some(FsckAction::Compare(args)) => compare::run(args, json),
        Some(FsckAction::Look(args)) => looker::answer(args),
        Some(FsckAction::Explore(args)) => explore::explore(args, json),
        None => test(args, out, json),
    }
}

/// A disk by its name, or a file.
fn open_disk(text: &str) -> Result<Disk> {
    let path = Path::new(text);
    if path.exists() {
        return Ok(Disk::file(path)?);
    }
    if text.contains('/') || text.contains('.') {
        bail!("{text}: there is no such file");
    }
    Ok(Disk::named(text, &GuestMaker)?)
}

fn options(args: &FsckArgs) -> SubjectOptions {
    SubjectOptions { program: args.program.clone(), time: args.deadline, no_memo: args.no_memo }
}

/// The disks of a campaign.
fn disks(args: &FsckArgs, checker: &Checker) -> Result<Vec<Disk>> {
    if let Some(image) = &args.image {
        return Ok(vec![Disk::file(image)?]);
    }
    let first = || checker.disks.first().cloned().unwrap_or_default();
    match args.disk.as_deref() {
        Some("all") => {
            checker.disks.iter().map(|name| Ok(Disk::named(name, &GuestMaker)?)).collect()
        }
        Some(name) => Ok(vec![Disk::named(name, &GuestMaker)?]),
        None => Ok(vec![Disk::named(&first(), &GuestMaker)?]),
    }
}

fn test(args: &FsckArgs, out: &Path, json: bool) -> Result<Ending> {
    let name = args.checker.as_deref().unwrap_or_default();
    let checker = Checker::named(name)?;
    if let Some(dir) = &args.suite {
        return suites::test(args, &checker, dir, out, json);
    }
    if let Some(workloads) = args.crashes {
        let (disk, cases) = crashes::cases(&checker, workloads, out)?;
        let subject = Subject::new(checker, disk, &options(args))?;
        let (ending, value) = test_subject(args, &subject, Some(cases), out, json)?;
        if json {
            print_json(&value)?;
        }
        return Ok(ending);
    }
    let disks = disks(args, &checker)?;
    let several = disks.len() > 1;
    let mut worst = Ending::Clean;
    let mut values = Vec::new();
    for disk in disks {
        let out = if several { out.join(&disk.name) } else { out.to_owned() };
        let (ending, value) = test_one(args, checker.clone(), disk, &out, json)?;
        values.push(value);
        worst = match (worst, ending) {
            (Ending::Findings, _) | (_, Ending::Findings) => Ending::Findings,
            (Ending::Incomplete, _) | (_, Ending::Incomplete) => Ending::Incomplete,
            _ => Ending::Clean,
        };
    }
    if json {
        match values.len() {
            1 => print_json(&values[0])?,
            _ => print_json(&values)?,
        }
    }
    Ok(worst)
}

fn test_one(
    args: &FsckArgs,
    checker: Checker,
    disk: Disk,
    out: &Path,
    json: bool,
) -> Result<(Ending, serde_json::Value)> {
    let subject = Subject::new(checker, disk, &options(args))?;
    if !args.case.is_empty() {
        return again::cases(&subject, &args.case, json);
    }
    test_subject(args, &subject, None, out, json)
}

/// Runs one campaign and tells what came of it.
fn test_subject(
    args: &FsckArgs,
    subject: &Subject,
    given: Option<Vec<Case>>,
    out: &Path,
    json: bool,
) -> Result<(Ending, serde_json::Value)> {
    if !subject.is_confined() {
        say!(
            "fathom: this kernel has no Landlock: the checker could write to other files than its disk"
        );
    }
    let choice = Choice {
        exhaustive: args.exhaustive,
        everything: args.everything,
        fields: args.field.clone(),
        pairs: args.pairs,
    };
    crate::supervise::worker::share_budget(args.budget);
    let plan = Plan {
        resume: resume(args, subject, &choice, out)?,
        choice,
        given: given.map(Arc::new),
        jobs: args.jobs,
        budget: args.budget,
        cases_max: args.cases,
        looker: match args.mount {
            true => Some(Arc::new(looker::GuestLooker::new()?)),
            false => None,
        },
    };
    let mut run = started(Kind::Fsck, &subject.checker.name);
    run.version = subject.checker.version_line();
    run.geometry = format!("disk {} of {} bytes", subject.disk.name, subject.disk.bytes.len());
    run.threads = args.jobs;
    let mut observer = RunObserver::start(out, run, &args.known, json)?;
    let path = out.join(STATE);
    let result = campaign::run(subject, &plan, &mut observer, |state| save(&path, state));
    let state = match result {
        Ok(state) => state,
        Err(error) => return Ok((observer.fail(error.into())?, serde_json::Value::Null)),
    };
    if state.fields == 0 {
        bail!(
            "no field of {} is called so: see `fathom fsck map {}`",
            subject.disk.name,
            subject.disk.name
        );
    }
    let ending = observer.finish(|run| tell::describe(run, &state, args))?;
    fs::write(out.join("disk.html"), page::page(subject, &state))
        .with_context(|| format!("cannot write to {}", out.display()))?;
    let mut value = tell::json(subject, &state);
    if !json {
        print(&tell::text(subject, &state))?;
    }
    if let Some(other) = &args.against {
        let (text, against) = again::against(subject, other, &options(args), &state)?;
        value["against"] = against;
        if !json {
            print(&text)?;
        }
    }
    Ok((ending, value))
}

/// The state to go on from, if that was asked for and fits.
fn resume(
    args: &FsckArgs,
    subject: &Subject,
    choice: &Choice,
    out: &Path,
) -> Result<Option<State>> {
    if !args.resume {
        return Ok(None);
    }
    let path = out.join(STATE);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("there is nothing to go on from in {}", path.display()))?;
    let state: State =
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
    if state.identity != campaign::identity(subject, choice) {
        bail!("{} is of another campaign: other checker, disk or fields", path.display());
    }
    Ok(Some(state))
}

/// Writes the state: whoever reads meanwhile sees the old one or the new one.
fn save(path: &Path, state: &State) {
    let new: PathBuf = path.with_extension("new");
    let text = serde_json::to_string(state).unwrap_or_default();
    if let Err(error) = fs::write(&new, text).and_then(|()| fs::rename(&new, path)) {
        say!("fathom: {}: {error}: this campaign cannot be resumed", path.display());
    }
}
