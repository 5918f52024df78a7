//! Where the operations of a crash check come from.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fathom_block::DiskFileSystem;
use fathom_core::Op;
use fathom_generate::ace::{self, AceOp, AceWorkload, Part, Space, jlang};
use fathom_generate::fitted::FittedWorkloads;
use fathom_generate::known;
use fathom_generate::layered::{LayeredWorkloads, Preset};
use fathom_generate::persisted::OpWorkloads;
use fathom_generate::varied::{Inputs, VariedWorkloads};
use fathom_model::{Config, Quirks};
use serde_json::json;

use super::Ending;
use super::library::{self, LeftOut};
use crate::args::CrashArgs;
use crate::text::{grouped, print, print_json};

/// Workloads as a stream.
type Workloads<'a> = Box<dyn Iterator<Item = Vec<Op>> + 'a>;

/// A source of workloads, and where their arguments come from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    kind: SourceKind,
    /// The share of them.
    part: Part,
    inputs: Inputs,
    seed: u64,
    /// Seconds to wait at the end of each workload.
    wait: Option<u32>,
}

#[derive(Clone, Debug)]
enum SourceKind {
    /// The search makes them step by step.
    Steps,
    /// Bounded sequences of ACE.
    Ace { space: Space, name: String },
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
        match &self.kind {
            SourceKind::Steps => f.write_str("steps")?,
            SourceKind::Ace { name, .. } => f.write_str(name)?,
            SourceKind::Ops { seed, length } => write!(f, "ops of {length} from seed {seed}")?,
            SourceKind::Layered { seed, preset } => {
                write!(f, "layered workloads of {} commands from seed {seed}", preset.length)?;
            }
            SourceKind::Known => f.write_str("known")?,
            SourceKind::Jlang(files) => write!(f, "{} j-lang files", files.len())?,
        }
        if !matches!(self.kind, SourceKind::Steps) {
            write!(f, " part {}", self.part)?;
        }
        if self.inputs != Inputs::Given {
            write!(f, " with inputs {:?} from seed {}", self.inputs, self.seed)?;
        }
        self.wait.map_or(Ok(()), |seconds| write!(f, " and {seconds} s"))
    }
}

/// The preset of layered workloads for crashes.
const CRASH_PRESET: &str = "dogfood-b3";

/// The workload of a kernel file system if none was asked for.
const KERNEL_DEFAULT: &str = "ace:1";

impl Source {
    /// The search makes them step by step.
    pub(crate) const STEPS: Source = Source {
        kind: SourceKind::Steps,
        part: Part::WHOLE,
        inputs: Inputs::Given,
        seed: 1,
        wait: None,
    };

    /// The source that was asked for.
    pub(super) fn of(args: &CrashArgs) -> Result<Source> {
        let (kind, inputs) = (SourceKind::of(args)?, args.inputs.parse()?);
        let part = args.part.as_deref().map_or(Ok(Part::WHOLE), str::parse)?;
        if inputs != Inputs::Given && matches!(kind, SourceKind::Steps | SourceKind::Ops { .. }) {
            bail!(
                "--inputs is for workloads that are given: ace:N, known or jlang:PATH, for example \
                 --workload ace:1"
            );
        }
        if args.wait.is_some() && matches!(kind, SourceKind::Steps) {
            bail!("--wait is for workloads that are given: --workload ace:1, for example");
        }
        kind.must_obey(args)?;
        Ok(Source { kind, part, inputs, seed: args.seed, wait: args.wait })
    }
}

impl SourceKind {
    /// Refuses options that would say nothing about these workloads.
    fn must_obey(&self, args: &CrashArgs) -> Result<()> {
        match (self, args.strategy) {
            (SourceKind::Steps, _) if args.part.is_some() => bail!(
                "--part divides workloads that are given, and steps are searched: give --workload ops \
                 or ace:2, for example"
            ),
            (SourceKind::Steps, _) | (_, None) => Ok(()),
            (_, Some(_)) => bail!(
                "--strategy orders the search of --workload steps; workloads that are given are \
                 executed one after the other: leave it out"
            ),
        }
    }

    fn layered(args: &CrashArgs, preset: &str) -> Result<SourceKind> {
        Ok(SourceKind::Layered { seed: args.seed, preset: Box::new(Preset::named(preset)?) })
    }

    fn of(args: &CrashArgs) -> Result<SourceKind> {
        let asked = args.suite.as_deref().or(args.workload.as_deref());
        let is_kernel = fathom_subjects::Recipe::named(name_of(&args.subject)).is_some();
        let text = asked.unwrap_or(if is_kernel { KERNEL_DEFAULT } else { "steps" });
        if let Some(rest) = text.strip_prefix("ace:") {
            let space = ace_space(rest, &args.ace_ops)?;
            let ops = args.ace_ops.join(",");
            let name = format!("{text} {ops}").trim_end().to_owned();
            return Ok(SourceKind::Ace { space, name });
        }
        match text {
            "steps" => Ok(SourceKind::Steps),
            "ops" if args.length == 0 => bail!("--length 0 does nothing: give at least 1"),
            "ops" => Ok(SourceKind::Ops { seed: args.seed, length: args.length }),
            "known" => Ok(SourceKind::Known),
            "layered" => SourceKind::layered(args, CRASH_PRESET),
            text if text.starts_with("layered:") => {
                SourceKind::layered(args, text.trim_start_matches("layered:"))
            }
            text => match text.strip_prefix("jlang:") {
                Some(path) => Ok(SourceKind::Jlang(jlang_files(Path::new(path))?)),
                None => bail!(
                    "no workload is called {text:?}: there are steps, ops, layered, ace:1, ace:2, \
                     ace:3 (with ,nested or ,demo), known and jlang:PATH"
                ),
            },
        }
    }
}

impl Source {
    /// Whether the workloads are given, rather than made step by step by the search.
    pub(super) fn is_given(&self) -> bool {
        !matches!(self.kind, SourceKind::Steps)
    }

    /// Whether there are always more workloads.
    pub(super) fn is_endless(&self) -> bool {
        matches!(self.kind, SourceKind::Ops { .. } | SourceKind::Layered { .. })
    }

    /// The workloads as far as the subject has what they are made of; `None` if the search makes them. Counts
    /// what is left out.
    pub(super) fn workloads(
        &self,
        subject: &dyn DiskFileSystem,
        left_out: &LeftOut,
    ) -> Result<Option<Workloads<'_>>> {
        if !self.is_given() {
            return Ok(None);
        }
        let limits = library::limits(subject)?;
        let mut reference = reference_of(subject);
        if let Some(limits) = &limits {
            reference.quirks = limits.reference.quirks.clone();
        }
        let given = self.given(&reference, limits.as_ref().map(|limits| limits.operations))?;
        let varied: Workloads<'_> = match self.inputs {
            Inputs::Given => given,
            inputs => Box::new(VariedWorkloads::new(given, inputs, self.seed, reference)),
        };
        let fitted: Workloads<'_> = match limits {
            None => varied,
            Some(limits) => Box::new(FittedWorkloads::new(varied, limits, left_out.clone())),
        };
        Ok(Some(match self.wait {
            None => fitted,
            Some(seconds) => Box::new(fitted.map(move |mut ops| {
                ops.push(Op::Wait { seconds });
                ops
            })),
        }))
    }

    /// The share of the workloads, as they are given; those that are made of chosen operations have only
    /// these, if not all are there.
    fn given(&self, reference: &Config, operations: Option<&[&str]>) -> Result<Workloads<'_>> {
        let part = self.part;
        Ok(match &self.kind {
            SourceKind::Steps => Box::new(std::iter::empty()),
            // Whatever else is generated, a workload of ACE belongs to the part that its text says.
            SourceKind::Ace { space, .. } => {
                Box::new(ace::unique(space, part).map(|workload| workload.ops()))
            }
            SourceKind::Ops { seed, length } => {
                let all = OpWorkloads::new(*seed, *length, reference.clone(), true);
                match operations {
                    None => Box::new(part.of(all)),
                    Some(operations) => Box::new(part.of(all.only(operations))),
                }
            }
            SourceKind::Layered { seed, preset } => {
                let preset = Preset::clone(preset);
                Box::new(part.of(LayeredWorkloads::new(*seed, preset, reference.clone())))
            }
            SourceKind::Known => Box::new(part.of(known::all().into_iter().map(|known| known.ops))),
            SourceKind::Jlang(files) => {
                let read = |file: &PathBuf| {
                    let text = fs::read_to_string(file)
                        .with_context(|| format!("cannot read {}", file.display()))?;
                    let lines = jlang::read(&text).with_context(|| file.display().to_string())?;
                    Ok(AceWorkload { lines }.ops())
                };
                let all: Vec<Vec<Op>> = part.of(files.iter()).map(read).collect::<Result<_>>()?;
                Box::new(all.into_iter())
            }
        })
    }
}

/// The reference with the quirks of the subject.
fn reference_of(subject: &dyn DiskFileSystem) -> Config {
    let profile = subject.guarantee().reference.as_ref().map(|claim| claim.is.as_str());
    let quirks =
        profile.and_then(|profile| Quirks::named_or_text(profile).ok()).unwrap_or_default();
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
    let SourceKind::Ace { space, name } = &source.kind else {
        bail!(
            "--count and --export-jlang are for ACE's workloads: give --workload ace:2, for example"
        );
    };
    if let Some(dir) = &args.export_jlang {
        let count = export(space, source.part, dir)?;
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
