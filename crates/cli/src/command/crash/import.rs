//! `fathom crash import LOG --base IMAGE --fs ext4`: judges a log that `dm-log-writes` has recorded.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, bail};
use fathom_block::{DiskFileSystem, Erased, Geometry, Image, Level, dm_log_writes};
use fathom_engine::crash::CrashConfig;
use fathom_engine::crash::imported::{ImportCounts, ImportedLog, judge_log};
use fathom_record::run::{Count, Kind};
use fathom_subjects::catalogue::Asked;
use serde_json::json;

use super::{DEADLINE, Ending, GRACE, tell};
use crate::args::ImportArgs;
use crate::progress::{RunObserver, started};
use crate::subjects::Spec;
use crate::supervise::worker::{self, About};
use crate::text::{bold, grouped, print, print_json};

/// Subsets of the writes in flight, per position.
const SUBSETS_MAX: u64 = 256;

pub(super) fn run(args: &ImportArgs, out: &Path, json: bool) -> Result<Ending> {
    let log = File::open(&args.log)
        .with_context(|| format!("cannot read the log {}", args.log.display()))?;
    let log = dm_log_writes::read(BufReader::new(log))
        .with_context(|| format!("in the log {}", args.log.display()))?;
    let bytes = fs::read(&args.base)
        .with_context(|| format!("cannot read the image {}", args.base.display()))?;
    if bytes.is_empty() {
        bail!("the image {} is empty: give the disk before the log", args.base.display());
    }
    let imported = ImportedLog {
        base: Image::from_bytes(&bytes, Erased::Zeros),
        log: log.log,
        from_mark: args.from.clone(),
        durable_at_marks: args.durable_at_marks,
        time_max: args.budget,
    };
    let asked = Asked { promises: args.promises.as_deref(), ..Asked::default() };
    let spec = args.fs.parse::<Spec>()?.with(&asked)?;
    let geometry = Geometry::disk(bytes.len());
    let subject = spec.disks(Some(geometry), tell::threads(args.jobs))?;
    if subject.geometry().size_bytes != bytes.len() {
        bail!(
            "{} cannot be put on a disk of {} bytes: only kernel file systems can be imported",
            args.fs,
            bytes.len()
        );
    }
    let config = config(args)?;
    worker::describe(About::default());
    worker::limit(DEADLINE, args.budget.map(|time| time + GRACE));
    let mut run = started(Kind::Crash, subject.name());
    run.version = subject.version().to_owned();
    let mut observer = RunObserver::start(out, run, &args.known, json)?;
    let counts = match judge_log(&*subject, &config, &imported, &mut observer) {
        Ok(counts) => counts,
        Err(error) => return observer.fail(error.into()),
    };
    let ending = observer.finish(|run| {
        let count = |name: &str, value, about: &str| Count {
            name: name.to_owned(),
            value,
            about: about.to_owned(),
        };
        run.complete = !counts.stopped;
        run.counts = vec![
            count("crash_images", counts.disks, "different disks that a power failure left"),
            count("crash_states", counts.states, "crash states, equal ones included"),
        ];
    })?;
    tell_end(&*subject, &counts, observer.run().findings.len(), json)?;
    Ok(ending)
}

fn config(args: &ImportArgs) -> Result<CrashConfig> {
    let mut config = CrashConfig::default();
    config.bounds.subsets_max = SUBSETS_MAX;
    config.probe &= !args.no_probe;
    config.fsck &= !args.no_checker;
    config.recheck &= !(args.no_probe && args.no_checker);
    config.levels =
        args.level.iter().map(|name| name.parse::<Level>()).collect::<Result<_, _>>()?;
    Ok(config)
}

fn tell_end(
    subject: &dyn DiskFileSystem,
    counts: &ImportCounts,
    findings: usize,
    json: bool,
) -> Result<()> {
    if json {
        return print_json(&json!({
            "subject": subject.name(),
            "version": subject.version(),
            "crash_states": counts.states,
            "crash_images": counts.disks,
            "marks": counts.marks,
            "complete": !counts.stopped,
            "findings": findings,
        }));
    }
    let found = match findings {
        0 => "nothing found".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    print(&format!(
        "{}: {found} ({})\n{} crash states, {} distinct disks, {} marks at which all was durable{}\n",
        bold(subject.name()),
        subject.version(),
        grouped(counts.states),
        grouped(counts.disks),
        grouped(counts.marks),
        if counts.stopped { "; the time was over before the end" } else { "" },
    ))?;
    Ok(())
}
