//! Where the operations of a crash check come from.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fathom_block::DiskFileSystem;
use fathom_core::Op;
use fathom_engine::crash::ace::{self, AceOp, AceWorkload, Part, Space, jlang};
use fathom_engine::crash::known;
use fathom_engine::crash::ops::OpWorkloads;
use fathom_engine::generate::layered::{LayeredWorkloads, Preset};
use fathom_model::{Config, Quirks};
use serde_json::json;

use super::Ending;
use crate::args::CrashArgs;
use crate::text::{grouped, print, print_json};

/// A source of workloads.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The search makes them step by step.
    Steps,
    /// Bounded sequences of ACE.
    Ace { space: Space, name: String, part: Part },
    /// Everything that `check` can generate.
    Ops { seed: u64, length: usize },
    /// Layered workloads.
    Layered { seed: u64, preset: Box<Preset> },
    /// The workloads that once showed a bug.
    Known,
    /// Files in ACE's language.
    Jlang(Vec<PathBuf>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Steps => f.write_str("steps"),
            Source::Ace { name, part, .. } => write!(f, "{name} part {part}"),
            Source::Ops { seed, length } => write!(f, "ops of {length} from seed {seed}"),
            Source::Layered { seed, preset } => {
                write!(f, "layered workloads of {} commands from seed {seed}", preset.length)
            }
            Source::Known => f.write_str("known"),
            Source::Jlang(files) => write!(f, "{} j-lang files", files.len()),
        }
    }
}

/// The preset of layered workloads for crashes.
const CRASH_PRESET: &str = "dogfood-b3";

/// The workload of a kernel file system if none was asked for.
const KERNEL_DEFAULT: &str = "ace:1";

impl Source {
    /// The source that was asked for.
    pub(super) fn of(args: &CrashArgs) -> Result<Source> {
        let asked = args.suite.as_deref().or(args.workload.as_deref());
        let is_kernel = fathom_subjects::Recipe::named(name_of(&args.subject)).is_some();
        let text = asked.unwrap_or(if is_kernel { KERNEL_DEFAULT } else { "steps" });
        let part = args.part.as_deref().map_or(Ok(Part::WHOLE), str::parse)?;
        if let Some(rest) = text.strip_prefix("ace:") {
            let space = ace_space(rest, &args.ace_ops)?;
            let ops = args.ace_ops.join(",");
            let name = format!("{text} {ops}").trim_end().to_owned();
            return Ok(Source::Ace { space, name, part });
        }
        if part != Part::WHOLE {
            bail!("--part divides the workloads of ace:N: give --workload ace:2, for example");
        }
        match text {
            "steps" => Ok(Source::Steps),
            "ops" if args.length == 0 => bail!("--length 0 does nothing: give at least 1"),
            "ops" => Ok(Source::Ops { seed: args.seed, length: args.length }),
            "known" => Ok(Source::Known),
            "layered" => Source::layered(args, CRASH_PRESET),
            text if text.starts_with("layered:") => {
                Source::layered(args, text.trim_start_matches("layered:"))
            }
            text => match text.strip_prefix("jlang:") {
                Some(path) => Ok(Source::Jlang(jlang_files(Path::new(path))?)),
                None => bail!(
                    "no workload is called {text:?}: there are steps, ops, layered, ace:1, ace:2, \
                     ace:3 (with ,nested or ,demo), known and jlang:PATH"
                ),
            },
        }
    }

    fn layered(args: &CrashArgs, preset: &str) -> Result<Source> {
        Ok(Source::Layered { seed: args.seed, preset: Box::new(Preset::named(preset)?) })
    }

    /// Refuses workloads with operations that the subject answers differently without any mistake.
    pub(super) fn must_fit(&self, subject: &dyn DiskFileSystem) -> Result<()> {
        // Kernel file systems alone write another log each time.
        let is_kernel = !subject.is_deterministic();
        if is_kernel || matches!(self, Source::Steps) {
            return Ok(());
        }
        bail!(
            "{self}: these workloads are for kernel file systems (they set modes, open directories, \
             make links, which {} does not have): give --workload steps",
            subject.name()
        )
    }

    /// The workloads; `None` if the search makes them.
    pub(super) fn workloads(
        &self,
        subject: &dyn DiskFileSystem,
    ) -> Result<Option<Box<dyn Iterator<Item = Vec<Op>> + '_>>> {
        Ok(match self {
            Source::Steps => None,
            Source::Ace { space, part, .. } => {
                let all = ace::unique(space, *part).map(|workload| workload.ops());
                Some(Box::new(all))
            }
            Source::Ops { seed, length } => {
                Some(Box::new(OpWorkloads::new(*seed, *length, reference_of(subject), true)))
            }
            Source::Layered { seed, preset } => {
                let preset = Preset::clone(preset);
                Some(Box::new(LayeredWorkloads::new(*seed, preset, reference_of(subject))))
            }
            Source::Known => Some(Box::new(known::all().into_iter().map(|known| known.ops))),
            Source::Jlang(files) => {
                let read = |file: &PathBuf| {
                    let text = fs::read_to_string(file)
                        .with_context(|| format!("cannot read {}", file.display()))?;
                    let lines = jlang::read(&text).with_context(|| file.display().to_string())?;
                    Ok(AceWorkload { lines }.ops())
                };
                let all: Vec<Vec<Op>> = files.iter().map(read).collect::<Result<_>>()?;
                Some(Box::new(all.into_iter()))
            }
        })
    }
}

/// The reference with the quirks of the subject.
fn reference_of(subject: &dyn DiskFileSystem) -> Config {
    let profile = subject.guarantee().reference.as_ref().map(|claim| claim.is.as_str());
    let quirks = profile.and_then(Quirks::profile).unwrap_or_default();
    Config { quirks, ..Config::default() }
}

/// The name of a subject without what was asked for beyond it.
fn name_of(subject: &str) -> &str {
    subject.split([' ', '+']).next().unwrap_or(subject)
}

/// `2`, `2,nested`, `1,demo`.
fn ace_space(text: &str, ops: &[String]) -> Result<Space> {
    let mut words = text.split(',');
    let length = words.next().unwrap_or_default();
    let (mut nested, mut demo) = (false, false);
    for word in words {
        match word {
            "nested" => nested = true,
            "demo" => demo = true,
            word => bail!("ace:N can be {word:?}: give nested or demo"),
        }
    }
    let space = length.parse().ok().and_then(|length| Space::new(length, nested, demo));
    let Some(space) = space else {
        bail!(
            "ACE has sequences of 1, 2 or 3 operations, not of {length:?}: give ace:2, for example"
        );
    };
    if ops.is_empty() {
        return Ok(space);
    }
    let ops: Vec<AceOp> = ops.iter().map(|op| op.parse()).collect::<Result<_, _>>()?;
    Ok(space.with_ops(&ops))
}

/// A file, or the files of a directory by their names.
fn jlang_files(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let dir = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut files = Vec::new();
    for entry in dir {
        let file = entry?.path();
        if file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("there are no files in {}", path.display());
    }
    Ok(files)
}

/// Counts the workloads, or writes them down.
pub(super) fn only_list(source: &Source, args: &CrashArgs, json: bool) -> Result<Ending> {
    let Source::Ace { space, part, name } = source else {
        bail!(
            "--count and --export-jlang are for ACE's workloads: give --workload ace:2, for example"
        );
    };
    if let Some(dir) = &args.export_jlang {
        let count = export(space, *part, dir)?;
        print(&format!("{count} files in {}\n", dir.display()))?;
        return Ok(Ending::Clean);
    }
    let counts = ace::count(space);
    if json {
        print_json(&json!({
            "workloads": counts.workloads,
            "unique": counts.unique,
            "unique_merged": counts.unique_merged,
        }))?;
    } else {
        let mut text = format!("{name}: {} workloads", grouped(counts.workloads));
        if let (Some(unique), Some(merged)) = (counts.unique, counts.unique_merged) {
            text.push_str(&format!(
                ", {} with different text, {} if remove is unlink",
                grouped(unique),
                grouped(merged)
            ));
        }
        print(&format!("{text}\n"))?;
    }
    Ok(Ending::Clean)
}

/// Writes every workload that differs from the others to a file of its own.
fn export(space: &Space, part: Part, dir: &Path) -> Result<u64> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut count = 0;
    for workload in ace::unique(space, part) {
        count += 1;
        let file = dir.join(format!("j-lang{count}"));
        fs::write(&file, jlang::write(&workload.lines))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(count)
}
