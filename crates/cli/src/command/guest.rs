//! `fathom guest`: builds kernels, lists and removes them, and finds the first that shows a finding.

pub(crate) mod answer;
pub(crate) mod repeat;
pub(crate) mod run;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use fathom_guest::Kernel;
use fathom_guest::kernels::{BuildError, Cache, Cached, Order, Progress, Source, build};
use serde_json::{Value, json};

use super::Ending;
use crate::text::{bold, grouped, print, print_json, say, table};

#[derive(Debug, Args)]
pub(crate) struct GuestArgs {
    #[command(subcommand)]
    pub(crate) action: GuestAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuestAction {
    /// The kernels that there are, and what they can do
    List,
    /// Build a kernel from Debian's sources or from a tree; goes on where it was interrupted
    Build(BuildArgs),
    /// Run any command in a guest: its output and its exit code are passed on
    Run(run::RunArgs),
    /// Answer a batch of questions about disks
    #[command(hide = true)]
    Answer(answer::AnswerArgs),
    /// Remove kernels from the cache
    Remove {
        /// As `fathom guest list` names them
        #[arg(required = true, value_name = "KERNEL")]
        kernels: Vec<String>,
    },
    /// Replay a finding on one kernel after the other and name the first that shows it
    Bisect {
        /// A finding: its id or directory
        #[arg(value_name = "ID|DIR")]
        what: String,
        /// Kernels as `--guest` takes them, the oldest first
        #[arg(required = true, value_name = "KERNEL")]
        kernels: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// A version of which Debian has the sources: 6.12, 6.1
    #[arg(required_unless_present = "source", conflicts_with = "source")]
    version: Option<String>,
    /// The tree of somebody who changes it; only what changed is compiled again
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// With KASAN, lockdep, UBSAN and the assertions of the file systems
    #[arg(long)]
    debug: bool,
    /// Only these file systems: a shorter build
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Processes of make [default: one per core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

pub(crate) fn run(action: &GuestAction, out: &Path, json: bool) -> Result<Ending> {
    match action {
        GuestAction::List => list(json),
        // Its exit code is that of the command: see `supervised`.
        GuestAction::Run(_) => Ok(Ending::Clean),
        GuestAction::Answer(args) => answer::run(args),
        GuestAction::Build(args) => build_one(args, json),
        GuestAction::Remove { kernels } => remove(kernels, json),
        GuestAction::Bisect { what, kernels } => bisect(what, kernels, out, json),
    }
}

/// Debian's own kernel, as a row of the list.
const DEBIAN: &str = "debian";

fn list(json: bool) -> Result<Ending> {
    let cached = Cache::of_user()?.kernels()?;
    let debian = fathom_guest::resolve(DEBIAN);
    if json {
        let rows = cached.iter().map(cached_json);
        let debian = debian.iter().map(|kernel| kernel_json(DEBIAN, kernel));
        print_json(&debian.chain(rows).collect::<Vec<_>>())?;
        return Ok(Ending::Clean);
    }
    let mut lines =
        vec![["KERNEL", "RELEASE", "FEATURES", "SIZE", "BUILT"].map(str::to_owned).to_vec()];
    lines.push(match &debian {
        Ok(kernel) => vec![
            DEBIAN.to_owned(),
            kernel.release.clone(),
            features(kernel),
            mib(file_bytes(&kernel.path)),
            "by Debian".to_owned(),
        ],
        Err(error) => vec![DEBIAN.to_owned(), "-".to_owned(), format!("{error}")],
    });
    lines.extend(cached.iter().map(cached_cells));
    print(&table(&lines))?;
    if cached.is_empty() {
        print("No kernel was built yet: `fathom guest build 6.12` takes about 16 CPU-minutes.\n")?;
    }
    Ok(Ending::Clean)
}

/// In a few words.
fn features(kernel: &Kernel) -> String {
    let is_static = kernel.is_built_in("STATIC_LINK");
    let words = [
        (kernel.has_time_travel, "time travel"),
        (kernel.has_kasan || kernel.has_lockdep, "debug"),
        (is_static, "static"),
    ];
    let words: Vec<&str> =
        words.into_iter().filter(|(has, _)| *has).map(|(_, word)| word).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

fn cached_cells(cached: &Cached) -> Vec<String> {
    let (release, features) = match &cached.kernel {
        None => ("-".to_owned(), "unfinished: build it again to go on".to_owned()),
        Some(Err(error)) => ("-".to_owned(), error.clone()),
        Some(Ok(kernel)) => (kernel.release.clone(), features(kernel)),
    };
    vec![cached.name.clone(), release, features, mib(cached.disk_bytes), ago(cached.changed)]
}

fn kernel_json(name: &str, kernel: &Kernel) -> Value {
    json!({
        "name": name,
        "path": kernel.path,
        "release": kernel.release,
        "time_travel": kernel.has_time_travel,
        "kasan": kernel.has_kasan,
        "lockdep": kernel.has_lockdep,
        "static": kernel.is_built_in("STATIC_LINK"),
    })
}

fn cached_json(cached: &Cached) -> Value {
    let mut row = match &cached.kernel {
        Some(Ok(kernel)) => kernel_json(&cached.name, kernel),
        Some(Err(error)) => json!({"name": cached.name, "error": error}),
        None => json!({"name": cached.name, "error": "unfinished"}),
    };
    row["disk_bytes"] = cached.disk_bytes.into();
    let built = cached.changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    row["built"] = built.as_secs().into();
    row
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", grouped(bytes >> 20))
}

fn ago(then: SystemTime) -> String {
    let seconds = then.elapsed().unwrap_or_default().as_secs();
    let (number, unit) = match seconds {
        0..=119 => return "just now".to_owned(),
        120..=7199 => (seconds / 60, "minutes"),
        7200..=172_799 => (seconds / 3600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{number} {unit} ago")
}

fn build_one(args: &BuildArgs, json: bool) -> Result<Ending> {
    let source = match (&args.version, &args.source) {
        (_, Some(tree)) => Source::Tree(tree.clone()),
        (Some(version), None) if Path::new(version).is_dir() => {
            bail!("{version} is a directory: give it with --source {version}")
        }
        (Some(version), None) => Source::Debian(version.clone()),
        (None, None) => bail!("give a version or --source DIR"),
    };
    let begun = Instant::now();
    let kernel = build_told(source, args)?;
    if json {
        let mut value = kernel_json(&kernel.path.display().to_string(), &kernel);
        value["seconds"] = begun.elapsed().as_secs_f64().into();
        print_json(&value)?;
    } else {
        print(&format!(
            "{}: Linux {} ({}), {}, in {:.0} s\n",
            bold(&kernel.path.display().to_string()),
            kernel.release,
            features(&kernel),
            mib(file_bytes(&kernel.path)),
            begun.elapsed().as_secs_f64()
        ))?;
    }
    Ok(Ending::Clean)
}

fn build_told(source: Source, args: &BuildArgs) -> Result<Kernel, BuildError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = args.jobs.unwrap_or(cores).max(1);
    let order = Order { source, debug: args.debug, only: args.only.clone(), jobs };
    let mut teller = Teller::default();
    let built = build(&Cache::of_user()?, &order, &mut |progress| teller.tell(&progress));
    teller.end();
    built
}

/// Time between two lines of progress where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Says how far a build is: on a terminal in one line that changes, elsewhere a line now and then.
#[derive(Default)]
struct Teller {
    last: Option<Instant>,
    line_open: bool,
}

impl Teller {
    fn tell(&mut self, progress: &Progress) {
        let (text, is_step) = match progress {
            Progress::Step(step) => (step.clone(), true),
            Progress::Compiled(done, None) => (format!("compiled {}", grouped(*done)), false),
            Progress::Compiled(done, Some(about)) => {
                let about = grouped(*(about.max(done)));
                (format!("compiled {} of about {about}", grouped(*done)), false)
            }
        };
        if std::io::stderr().is_terminal() {
            // Nobody else is there to be told of an error.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
            self.line_open = true;
        } else if is_step || self.last.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
            say!("{text}");
            self.last = (!is_step).then(Instant::now);
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.line_open) {
            say!();
        }
    }
}

fn remove(kernels: &[String], json: bool) -> Result<Ending> {
    let cache = Cache::of_user()?;
    let mut removed = Vec::new();
    for name in kernels {
        let bytes = cache.remove(name)?;
        removed.push(json!({"name": name, "bytes": bytes}));
        if !json {
            print(&format!("removed {name}: {}\n", mib(bytes)))?;
        }
    }
    if json {
        print_json(&removed)?;
    }
    Ok(Ending::Clean)
}

/// What a replay on one kernel said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    Yes,
    No,
    /// It could not be found out.
    Unknown(String),
}

impl Shown {
    fn text(&self) -> String {
        match self {
            Shown::Yes => "shows it".to_owned(),
            Shown::No => "does not show it".to_owned(),
            Shown::Unknown(why) => format!("not known: {why}"),
        }
    }
}

fn bisect(what: &str, kernels: &[String], out: &Path, json: bool) -> Result<Ending> {
    // What is wrong with an argument is said before anything is booted.
    for kernel in kernels {
        fathom_guest::resolve(kernel)?;
    }
    crate::locate::finding_dir(what, out)?;
    let mut all = Vec::new();
    for name in kernels {
        let release = fathom_guest::resolve(name)?.release;
        let shown = replay_in(what, name, out)?;
        if !json {
            print(&format!("{name} ({release}): {}\n", shown.text()))?;
        }
        all.push((name.clone(), release, shown));
    }
    let first = all.iter().find(|(.., shown)| *shown == Shown::Yes);
    if json {
        let rows = all.iter().map(|(name, release, shown)| {
            json!({"kernel": name, "release": release, "shown": match shown {
                Shown::Yes => Value::Bool(true),
                Shown::No => Value::Bool(false),
                Shown::Unknown(_) => Value::Null,
            }, "reason": match shown {
                Shown::Unknown(why) => Some(why),
                _ => None,
            }})
        });
        let first = first.map(|(name, ..)| name);
        print_json(&json!({"first": first, "kernels": rows.collect::<Vec<_>>()}))?;
    } else {
        print(&match first {
            Some((name, release, _)) => {
                format!("first that shows it: {} ({release})\n", bold(name))
            }
            None => "none of them shows it\n".to_owned(),
        })?;
    }
    let unknown = all.iter().any(|(.., shown)| matches!(shown, Shown::Unknown(_)));
    Ok(if unknown { Ending::Incomplete } else { Ending::Clean })
}

/// Replays in a process of its own: whatever the kernel does, we go on. Its exit code says whether it
/// went as recorded.
fn replay_in(what: &str, kernel: &str, out: &Path) -> Result<Shown> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let output = Command::new(program)
        .args(["replay", what, "--guest", kernel, "--out"])
        .arg(out)
        .stdin(Stdio::null())
        .output()
        .context("cannot start the replay")?;
    Ok(match output.status.code() {
        Some(0) => Shown::Yes,
        Some(1) => Shown::No,
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = errors.lines().rev().find(|line| !line.trim().is_empty());
            Shown::Unknown(last.unwrap_or("it ended without a word").to_owned())
        }
    })
}

/// The exit code by which `git bisect run` leaves a commit out.
const UNTESTABLE: u8 = 125;

/// `fathom replay ID --guest KERNEL --bisect`, for `git bisect run`: builds a tree, replays, and says 0
/// if it is not shown, 1 if it is, 125 if that cannot be found out.
pub(crate) fn bisect_step(what: &str, kernel: &str, out: &Path, json: bool) -> Result<ExitCode> {
    let tree = Path::new(fathom_guest::with_parameters(kernel).0);
    if tree.is_dir() {
        let args = BuildArgs {
            version: None,
            source: Some(tree.to_owned()),
            debug: false,
            only: Vec::new(),
            jobs: None,
        };
        if let Err(error) = build_told(Source::Tree(tree.to_owned()), &args) {
            say!("fathom: {error}");
            return Ok(ExitCode::from(UNTESTABLE));
        }
    }
    let shown = match fathom_guest::resolve(kernel) {
        Ok(_) => replay_in(what, kernel, out)?,
        Err(error) => Shown::Unknown(error.to_string()),
    };
    if json {
        print_json(&json!({"kernel": kernel, "shown": shown == Shown::Yes, "said": shown.text()}))?;
    } else {
        print(&format!("{kernel}: {}\n", shown.text()))?;
    }
    Ok(match shown {
        Shown::Yes => ExitCode::from(1),
        Shown::No => ExitCode::SUCCESS,
        Shown::Unknown(_) => ExitCode::from(UNTESTABLE),
    })
}
