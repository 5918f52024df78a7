//! What was typed. What it means is decided in [`crate::plan`] and the commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use fathom_engine::{Remounts, RestorePolicy, Strategy, Workload};
use fathom_generate::callers::Theme;
use fathom_generate::layered::Preset;

use crate::cover::args::CoverArgs;
use crate::progress::KnownArgs;

/// Finds bugs in file systems.
#[derive(Debug, Parser)]
#[command(
    version,
    about = "Finds bugs in file systems",
    after_help = "Exit codes: 0 nothing new found, 1 something found, 2 arguments or harness failed. Alone: `fathom crash`.",
    after_long_help = "Exit codes: 0 nothing found or only known findings, 1 something found, 2 the arguments or the\n\
                       harness failed, or it was interrupted with nothing found.\n\
                       Without a command: `fathom crash littlefs`, told for people; no root, nothing installed.",
    args_conflicts_with_subcommands = false,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Results for machines: one JSON value as the last line of the output
    // `cover` has one of its own that can name a file; clap wants the same type of both.
    #[arg(long, global = true, num_args = 0, default_missing_value = "-")]
    pub(crate) json: Option<String>,

    /// Where findings are recorded and looked up
    #[arg(long, global = true, value_name = "DIR", default_value = "fathom-out")]
    pub(crate) out: PathBuf,

    /// Stop a campaign that uses more memory, for example 4G [default: 80 % of what is available]
    #[arg(long, global = true, value_name = "SIZE", value_parser = memory, hide_short_help = true)]
    pub(crate) memory_max: Option<u64>,

    /// Run the command in a kernel of its own: debian, a built version, a source tree, a kernel's path;
    /// words NAME=VALUE behind it are parameters for its command line
    #[arg(long, global = true, value_name = "KERNEL", hide_short_help = true)]
    pub(crate) guest: Option<String>,

    /// Seed of the guest's kernel [default: that of the command]
    #[arg(long, global = true, value_name = "S", requires = "guest", hide_short_help = true)]
    pub(crate) guest_seed: Option<u64>,

    /// Run the same command under so many seeds of the guest's kernel, one after the other
    #[arg(long, global = true, value_name = "N", requires = "guest", hide_short_help = true,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) guest_seeds: Option<u64>,

    /// This process runs in a guest
    #[arg(long, global = true, hide = true)]
    pub(crate) in_guest: bool,

    /// The descriptor under which a supervisor left what it shares with its worker
    #[arg(long, value_name = "FD", hide = true)]
    pub(crate) worker: Option<i32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare a file system with the reference, operation by operation
    Check(Box<CheckArgs>),
    /// Cut the power of a library or kernel file system at every write of many workloads
    Crash(Box<CrashArgs>),
    /// Explore a model of an on-disk design completely, with every power failure
    Design(Box<crate::command::design::DesignArgs>),
    /// Corrupt a disk field by field and test how a file-system checker repairs it
    Fsck(Box<crate::command::fsck::FsckArgs>),
    /// Repeat a finding or a trace: exit 0 if it goes the same way, 1 if not
    Replay(ReplayArgs),
    /// Look longer for a shorter way to a finding
    Shrink(ShrinkArgs),
    /// Turn a trace into a program that stands alone
    Export(ExportArgs),
    /// Which inputs and outputs of system calls a test tool exercises, and which never
    Cover(Box<CoverArgs>),
    /// Serve the reference file system through FUSE until it is interrupted
    Mount(MountArgs),
    /// Save and restore the whole state of a served reference file system
    Snapshot(SnapshotArgs),
    /// Findings that are known: counted, not reported
    Known(KnownCommand),
    /// Show a run that was made earlier: as text, as an HTML page, as JSON
    Report(ReportArgs),
    /// Kernels of our own, as ordinary processes: build, list, remove, bisect
    Guest(crate::command::guest::GuestArgs),
    /// Run a campaign as many diverse tasks, here or on Slurm, and unite their results
    Swarm(Box<crate::command::swarm::SwarmArgs>),
    /// What there is to check and to check with, and what this machine has of it
    List(ListArgs),
    /// Print the configuration of `check` or `crash`: commented TOML with every default
    Config(ConfigArgs),
    /// Print the completions for a shell: bash, zsh, fish and others
    Completions(CompletionsArgs),
    /// Write the manual pages into a directory, for example /usr/local/share/man/man1
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where to; without it the page of `fathom` itself is printed
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CheckArgs {
    /// dir:PATH, fuse:COMMAND, model, reffs, or a kernel file system: see `fathom list subjects`
    pub(crate) subject: String,
    /// What to compare with: `model`, and further subjects that vote on who is wrong
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "model")]
    pub(crate) against: Vec<String>,
    /// Which state comes next: tour, dfs, walk
    #[arg(long, value_name = "NAME", default_value = "tour")]
    pub(crate) strategy: Strategy,
    /// Where operations come from: ops, layered, layered:PRESET (default, dogfood, dogfood-b3, wide, large), printed
    /// (the three workloads that the paper of layered workloads prints, once)
    #[arg(long, value_name = "SOURCE", default_value = "ops", value_parser = workload)]
    pub(crate) workload: Workload,
    /// Let so many callers work at once, and look for an order of their calls that explains every answer
    #[arg(long, value_name = "N", value_parser = callers)]
    pub(crate) callers: Option<u32>,
    /// Calls of each caller in one round of --callers [default: 12]
    #[arg(long, value_name = "N", requires = "callers", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) calls: Option<u16>,
    /// What every round of --callers is about: data, names, directories, exclusive, attributes, listing, mixed
    #[arg(long, value_name = "NAME", requires = "callers", value_parser = theme)]
    pub(crate) theme: Option<Theme>,
    /// Run the operations of each round of --callers under so many schedules, each with delays of its own [default: 3]
    #[arg(long, value_name = "K", requires = "callers", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) schedules: Option<u16>,
    /// Let every request to the disk take up to so many microseconds, as the seed says: free where the clock
    /// of a guest is virtual
    #[arg(long, value_name = "MICROSECONDS", requires = "callers")]
    pub(crate) disk_delay: Option<u32>,
    /// Meta-operations from the empty file system to the farthest states [default: 10000]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// Meta-operations tried in every state [default: 12]
    #[arg(long, value_name = "N")]
    pub(crate) moves: Option<u16>,
    /// Stop when so many states are known
    #[arg(long, value_name = "N")]
    pub(crate) states: Option<usize>,
    /// How to go back: cheapest, clone, ioctl, freeze, remount, replay
    #[arg(long, value_name = "WAY", default_value = "cheapest")]
    pub(crate) back: RestorePolicy,
    /// Unmount and mount: never, every N, every-op, p=0.01
    #[arg(long, value_name = "WHEN")]
    pub(crate) remount: Option<Remounts>,
    /// Let the file system's checker look at the unmounted disk: every N operations
    #[arg(long, value_name = "N", value_parser = every)]
    pub(crate) fsck: Option<u64>,
    /// Compare the whole tree after every operation
    #[arg(long, alias = "full-walk", conflicts_with = "tree_every")]
    pub(crate) every_tree: bool,
    /// A call that takes longer is a finding
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) deadline: Duration,
    /// Leave only so much of every disk, so that it is soon full: for example 512K, 2M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) space: Option<u64>,
    /// Keep so many of the last disks for a finding
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) images: usize,
    /// Keep the map of a tour in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,
    /// Go on with the map of --map
    #[arg(long, requires = "map")]
    pub(crate) resume: bool,
    /// Stop after so many operations
    #[arg(long, value_name = "N", conflicts_with = "budget")]
    pub(crate) ops: Option<u64>,
    /// Stop after this time [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) budget: Option<Duration>,
    /// Seed of all random choices [default: from the clock]
    #[arg(long, value_name = "S", value_parser = seed, allow_hyphen_values = true)]
    pub(crate) seed: Option<u64>,
    /// Compare the whole tree after every N operations
    #[arg(long, alias = "walk-every", value_name = "N")]
    pub(crate) tree_every: Option<u64>,
    /// Compare the order of timestamps too
    #[arg(long)]
    pub(crate) times: bool,
    /// Known harmless differences: a name of `fathom list profiles`, a TOML file with some, or one
    /// that says how a kernel file system is made and checked
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<String>,
    /// `random`: mkfs and mount options that the seed draws; what mkfs or the kernel refuses is learned and
    /// counted. Where there are none to draw, a variant of the file system
    #[arg(long, value_name = "random")]
    pub(crate) options: Option<String>,
    /// Run also what may harm this machine (see `fathom list`): unusual formats and mount options
    #[arg(long)]
    pub(crate) on_host: bool,
    /// Features that must be there (hard-links,xattrs,…): where one is lacking, that is a finding
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) require: Vec<fathom_model::Feature>,
    /// How long a FUSE daemon may take to mount
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "20s")]
    pub(crate) start_within: Duration,
    /// How long a FUSE daemon may take to end after it was unmounted
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "20s")]
    pub(crate) stop_within: Duration,
    /// More options for the program that formats a kernel file system
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) mkfs_opts: Option<String>,
    /// More mount options for a kernel file system: a,b=c
    #[arg(long, value_name = "OPTIONS")]
    pub(crate) mount_opts: Option<String>,
    /// The size of the disk of a kernel file system, with as many inodes as blocks, for example 1G [default: small]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) disk: Option<u64>,
    /// Values that differ from `fathom config`
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How often each call is made: default, or random (drawn by the seed; many calls rarely or never)
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) inputs: Distribution,
    /// The version of NFS for nfs:BACKEND: 3, 4.0, 4.1, 4.2 [default: 4.2]
    #[arg(long, value_name = "VERSION")]
    pub(crate) nfs: Option<String>,
    /// Who serves nfs:BACKEND: kernel, ganesha [default: kernel]
    #[arg(long, value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// How many clients of nfs:BACKEND take turns [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<usize>,
    /// Lose and delay packets between client and server of nfs:BACKEND
    #[arg(long)]
    pub(crate) lossy: bool,
    /// A bug to switch on in model or reffs: see `fathom list mutants`
    #[arg(long, value_name = "NAME")]
    pub(crate) mutant: Option<String>,
    /// Write the coverage of inputs and outputs here too: see `fathom cover report`
    #[arg(long, value_name = "FILE")]
    pub(crate) coverage: Option<PathBuf>,
    /// Stop at the first finding
    #[arg(long)]
    pub(crate) first: bool,
    #[command(flatten)]
    pub(crate) known: KnownArgs,
    /// Print the plan and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// As `fathom config` says
    Default,
    /// Drawn by the seed
    Random,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CrashArgs {
    #[command(subcommand)]
    pub(crate) command: Option<CrashCommand>,
    /// A library or kernel file system: see `fathom list`
    #[arg(default_value = "littlefs")]
    pub(crate) subject: String,
    /// Where operations come from: steps, ops, ace:1, ace:2, ace:3 (and ace:2,nested or ace:2,demo),
    /// layered, layered:PRESET, known, jlang:PATH [default: ace:1; libraries have steps alone]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) workload: Option<String>,
    /// A suite of workloads by name: known
    #[arg(long, value_name = "NAME", conflicts_with = "workload")]
    pub(crate) suite: Option<String>,
    /// Arguments of given workloads: given (as they are), iocov (the pools of CM-IOCov), driven (what was
    /// hit least first)
    #[arg(long, value_name = "INPUTS", default_value = "given")]
    pub(crate) inputs: String,
    /// Wait so many seconds at the end of each given workload, so that what the kernel writes by itself is
    /// crashed too; free in a guest with a clock of its own
    #[arg(long, value_name = "SECONDS")]
    pub(crate) wait: Option<u32>,
    /// Operations of ACE, for example creat,rename,fsetxattr
    #[arg(long, value_name = "OP", value_delimiter = ',')]
    pub(crate) ace_ops: Vec<String>,
    /// Operations of a workload of --workload ops
    #[arg(long, value_name = "N", default_value = "12")]
    pub(crate) length: usize,
    /// One part of the workloads, for example 3/16
    #[arg(long, value_name = "PART")]
    pub(crate) part: Option<String>,
    /// Count the workloads and do nothing
    #[arg(long)]
    pub(crate) count: bool,
    /// Write the workloads as j-lang files to a directory and do nothing
    #[arg(long, value_name = "DIR")]
    pub(crate) export_jlang: Option<PathBuf>,
    /// More options for the program that formats a kernel file system
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) mkfs_opts: Option<String>,
    /// More mount options for a kernel file system: a,b=c
    #[arg(long, value_name = "OPTIONS")]
    pub(crate) mount_opts: Option<String>,
    /// What a kernel file system is held to: a name such as ext4-journal, or a file
    #[arg(long, value_name = "PROMISES")]
    pub(crate) promises: Option<String>,
    /// The campaign runs here, and guests with this kernel record and examine its disks: no root needed
    #[arg(long, value_name = "KERNEL", conflicts_with = "guest")]
    pub(crate) worker_guest: Option<String>,
    /// Steps of a workload
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// Power failures in one run: after each that is survived, go on
    #[arg(long, value_name = "N")]
    pub(crate) crashes: Option<u32>,
    /// linear, epoch, lost, torn, erase [default: what the file system claims to survive]
    #[arg(long, value_name = "LEVEL", value_delimiter = ',')]
    pub(crate) level: Vec<String>,
    /// Where in given workloads the power fails
    #[arg(long, value_enum, value_name = "WHERE")]
    pub(crate) points: Option<Points>,
    /// Kinds of steps, for example put,mkdir,move
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) steps: Vec<String>,
    /// Sizes of written data
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub(crate) sizes: Vec<u64>,
    /// BLOCKSxBYTES/UNIT, for example 32x256/16
    #[arg(long, value_name = "SHAPE")]
    pub(crate) geometry: Option<String>,
    /// Which states are the same
    #[arg(long, value_enum)]
    pub(crate) identity: Option<Same>,
    /// How many of the last steps belong to the shape of a state
    #[arg(long, value_name = "K")]
    pub(crate) remember: Option<usize>,
    /// Which workload comes next
    #[arg(long, value_enum, default_value = "bfs")]
    pub(crate) strategy: Search,
    /// In which order the steps of a state are tried: forward, reverse, or a number that draws one
    #[arg(long, value_name = "ORDER", default_value = "forward")]
    pub(crate) action_order: fathom_engine::search::ActionOrder,
    /// Seed of random walks
    #[arg(long, value_name = "S", default_value = "1", value_parser = seed, allow_hyphen_values = true)]
    pub(crate) seed: u64,
    /// Number of random walks
    #[arg(long, value_name = "N", default_value = "1000")]
    pub(crate) walks: u64,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = jobs)]
    pub(crate) jobs: usize,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) budget: Option<Duration>,
    /// Stop before visiting more states
    #[arg(long, value_name = "N")]
    pub(crate) states: Option<u64>,
    /// Stop when so much memory is used
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_mib: Option<u64>,
    /// Stop at the first finding
    #[arg(long)]
    pub(crate) first: bool,
    /// Save the search now and then, so that --resume can go on with it
    #[arg(long)]
    pub(crate) checkpoint: bool,
    /// Time between two checkpoints
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) checkpoint_every: Duration,
    /// Go on where an earlier run with --checkpoint was interrupted
    #[arg(long)]
    pub(crate) resume: bool,
    /// Only look at recovered file systems, do not use them
    #[arg(long)]
    pub(crate) no_probe: bool,
    /// Do not ask an independent checker (e2fsck)
    #[arg(long)]
    pub(crate) no_checker: bool,
    /// A crash bug to switch on: see `fathom list crash-mutants`
    #[arg(long, value_name = "NAME")]
    pub(crate) mutant: Option<String>,
    /// Values that differ from `fathom config crash`
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Write the coverage of inputs and outputs here too: see `fathom cover report`
    #[arg(long, value_name = "FILE")]
    pub(crate) coverage: Option<PathBuf>,
    /// Verify and shrink every variant of a finding, not only the shortest one
    #[arg(long)]
    pub(crate) every_variant: bool,
    #[command(flatten)]
    pub(crate) known: KnownArgs,
    /// Print the plan and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CrashCommand {
    /// Judge a log that dm-log-writes has recorded
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The log, as the kernel's dm-log-writes writes it
    #[arg(value_name = "LOG")]
    pub(crate) log: PathBuf,
    /// The disk as it was before the log
    #[arg(long, value_name = "IMAGE")]
    pub(crate) base: PathBuf,
    /// The kernel file system on it
    #[arg(long, value_name = "NAME")]
    pub(crate) fs: String,
    /// The power fails only after this mark of the log
    #[arg(long, value_name = "MARK")]
    pub(crate) from: Option<String>,
    /// At every mark of the log everything was durable
    #[arg(long)]
    pub(crate) durable_at_marks: bool,
    /// What the file system is held to: a name such as ext4-journal, or a file
    #[arg(long, value_name = "PROMISES")]
    pub(crate) promises: Option<String>,
    /// linear, epoch, lost, torn, erase [default: what the file system claims to survive]
    #[arg(long, value_name = "LEVEL", value_delimiter = ',')]
    pub(crate) level: Vec<String>,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = jobs)]
    pub(crate) jobs: usize,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) budget: Option<Duration>,
    /// Only look at recovered file systems, do not use them
    #[arg(long)]
    pub(crate) no_probe: bool,
    /// Do not ask an independent checker (e2fsck)
    #[arg(long)]
    pub(crate) no_checker: bool,
    #[command(flatten)]
    pub(crate) known: KnownArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Search {
    /// Shortest workloads first
    Bfs,
    /// Deep ones first
    Dfs,
    /// Random ones
    Walk,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Points {
    /// During and after every operation
    All,
    /// After every operation that makes something durable, all writes in order
    Persistence,
}

impl From<Points> for fathom_engine::crash::config::Points {
    fn from(points: Points) -> Self {
        match points {
            Points::All => Self::All,
            Points::Persistence => Self::Persistence,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Same {
    /// The same tree up to names, and the same last steps
    Shape,
    /// The same tree
    Tree,
    /// The same bytes on the device
    Image,
}

impl From<Same> for fathom_engine::crash::config::Identity {
    fn from(same: Same) -> Self {
        match same {
            Same::Shape => Self::Shape,
            Same::Tree => Self::Tree,
            Same::Image => Self::Image,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A finding (its id or directory) or a trace file
    #[arg(value_name = "ID|DIR|TRACE")]
    pub(crate) what: String,
    /// Run it on another subject than the recorded one
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) subject: Option<String>,
    /// Run the whole recorded trace of a finding instead of the minimal one
    #[arg(long)]
    pub(crate) full: bool,
    /// Run the command of a finding on `fuse:COMMAND` that somebody else has recorded
    #[arg(long)]
    pub(crate) trust: bool,
    /// Run it also if the subject may harm this machine
    #[arg(long)]
    pub(crate) on_host: bool,
    /// A call that takes longer hangs
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) deadline: Duration,
    /// Of a guest's finding: repeat the whole execution that found it, not only its operations, and compare
    #[arg(long, requires = "guest", conflicts_with = "bisect")]
    pub(crate) execution: bool,
    /// For `git bisect run`: builds a tree given with --guest; exit 0 if it is not shown, 1 if it is, 125 if
    /// that cannot be found out
    #[arg(long, requires = "guest")]
    pub(crate) bisect: bool,
    /// Leave no run.json: the finding is thrown away
    #[arg(long, hide = true)]
    pub(crate) scratch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShrinkArgs {
    /// A finding: its id or directory
    #[arg(value_name = "ID|DIR")]
    pub(crate) what: String,
    /// Run it on another subject than the recorded one
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) subject: Option<String>,
    /// Run the command of a finding on `fuse:COMMAND` that somebody else has recorded
    #[arg(long)]
    pub(crate) trust: bool,
    /// Run it also if the subject may harm this machine
    #[arg(long)]
    pub(crate) on_host: bool,
    /// Time to look
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60s")]
    pub(crate) budget: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A finding (its id or directory) or a trace file
    #[arg(value_name = "ID|DIR|TRACE")]
    pub(crate) what: String,
    #[command(flatten)]
    pub(crate) language: Language,
    /// Compare every answer with what the subject answered: succeeds where the same happens again
    ///
    /// Without this the program of a finding succeeds where the bug is not, and its exit code is 1
    /// where it is.
    #[arg(long)]
    pub(crate) recorded: bool,
    /// Write here instead of the standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Language {
    /// A C program: the same system calls, every answer compared
    #[arg(long)]
    pub(crate) c: bool,
    /// A shell script: for reading, with common tools and, where those cannot, python3
    #[arg(long)]
    pub(crate) shell: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The mount point: an empty directory
    pub(crate) dir: PathBuf,
    /// Mount options: ro, noatime, relatime, strictatime, nosuid, nodev, noexec, remount, acl, allow_other,
    /// nonempty, fsname=NAME, subtype=NAME, threads=N, remembered=SECONDS, and the options below as
    /// state=FILE, mutant=NAME, …
    #[arg(short, long = "options", value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) options: Vec<String>,
    /// Return when it is mounted and serve it in the background, until it is unmounted
    #[arg(short, long)]
    pub(crate) background: bool,
    /// Capacity in blocks [default: half of the memory that is available, at most 32 GiB]
    #[arg(long, value_name = "BLOCKS")]
    pub(crate) capacity: Option<u64>,
    /// Capacity in inodes
    #[arg(long, value_name = "N")]
    pub(crate) inodes: Option<u64>,
    /// Bytes of a block: 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES")]
    pub(crate) block_bytes: Option<u32>,
    /// A bug to switch on: see `fathom list mutants`
    #[arg(long, value_name = "NAME")]
    pub(crate) mutant: Option<String>,
    /// Serve a file system without these features: hard-links, symlinks, xattrs, …
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) lacks: Vec<fathom_model::Feature>,
    /// Keep the file system in this file: read at the start if it is there, written at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    pub(crate) action: SnapshotAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotAction {
    /// Keep the present state under a key
    Save(SnapshotKey),
    /// Go back to a saved state
    Restore {
        #[command(flatten)]
        at: SnapshotKey,
        /// Forget the saved state afterwards
        #[arg(long)]
        discard: bool,
    },
    /// Forget a saved state
    Drop(SnapshotKey),
    /// The keys of all saved states
    List {
        /// Any directory of the mount
        dir: PathBuf,
    },
    /// Write one saved state, or all, to a file
    Pickle {
        /// Any directory of the mount
        dir: PathBuf,
        /// The file
        file: PathBuf,
        /// Only this one
        #[arg(long)]
        key: Option<u64>,
    },
    /// Read saved states from a file
    Load {
        /// Any directory of the mount
        dir: PathBuf,
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotKey {
    /// Any directory of the mount
    pub(crate) dir: PathBuf,
    /// A number of your choice
    pub(crate) key: u64,
}

#[derive(Debug, Args)]
pub(crate) struct KnownCommand {
    #[command(subcommand)]
    pub(crate) action: KnownAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KnownAction {
    /// Add the signature of a finding, and those of its variants
    Add {
        /// A finding: its id or directory
        #[arg(value_name = "ID|DIR")]
        what: String,
        /// Why it need not be reported
        #[arg(long, value_name = "REASON")]
        because: String,
        #[command(flatten)]
        known: KnownArgs,
    },
    /// Print the list, with the numbers that `remove` takes
    List {
        #[command(flatten)]
        known: KnownArgs,
    },
    /// Take an entry away
    Remove {
        /// Its number in the list
        number: usize,
        #[command(flatten)]
        known: KnownArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A run: its directory or its run.json [default: the directory of --out]; with --mail a finding
    #[arg(value_name = "RUN|ID")]
    pub(crate) path: Option<PathBuf>,
    /// Print a finding as a mail to the maintainers: plain text of 72 columns
    #[arg(long, conflicts_with = "html", requires = "path")]
    pub(crate) mail: bool,
    /// Write one HTML page that needs nothing else instead of text
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Of which command
    #[arg(value_enum, default_value = "check")]
    pub(crate) of: ConfigOf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ConfigOf {
    /// Weights, limits and pools of operations
    Check,
    /// Workloads, power failures and what is done after them
    Crash,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// What to list
    #[arg(value_enum, default_value = "subjects")]
    pub(crate) what: ListWhat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ListWhat {
    /// What can be checked, what it needs, and whether this machine has it
    Subjects,
    /// Bugs that can be switched on in the reference
    Mutants,
    /// Crash bugs that can be switched on around a library file system
    CrashMutants,
    /// Models of on-disk designs
    Designs,
    /// Known harmless differences between file systems
    Profiles,
    /// Operations that a workload can contain
    Ops,
    /// File-system checkers that can be tested
    Checkers,
    /// Disks that checkers are tested on
    Disks,
}

/// A seed: any number that fits into 64 bits.
fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "{text:?} is no seed: give a whole number from 0 to {}, as a run prints it",
            u64::MAX
        )
    })
}

/// `4096`, `512K`, `2M`, `4G`.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => Some(1),
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .ok_or_else(|| format!("{text:?} is no size: write for example 512K or 2M"))
}

/// A size that the program itself fits into.
fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes < MEMORY_MIN => {
            Err(format!("{text} is less than the program needs: give at least 64M"))
        }
        bytes => Ok(bytes),
    }
}

/// What a campaign needs in any case.
const MEMORY_MIN: u64 = 64 << 20;

/// A number of threads that a machine can have.
pub(crate) fn jobs(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= JOBS_MAX);
    number.ok_or_else(|| format!("{text:?} is no number of threads: give at most {JOBS_MAX}"))
}

/// `ops`, `layered`, `layered:PRESET` or `printed`.
fn workload(text: &str) -> Result<Workload, String> {
    let preset = match text.split_once(':') {
        None if text == "ops" => return Ok(Workload::Ops),
        None if text == "printed" => return Ok(Workload::Printed),
        None if text == "layered" => "default",
        Some(("layered", preset)) => preset,
        _ => {
            return Err(format!(
                "{text:?} is no source of operations: give ops, layered or printed"
            ));
        }
    };
    let preset = Preset::named(preset).map_err(|error| error.to_string())?;
    Ok(Workload::Layered(Box::new(preset)))
}

/// A number of callers that can meet.
fn callers(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=CALLERS_MAX).contains(number));
    number.ok_or_else(|| {
        format!("{text:?} is no number of callers: give at least 1 and at most {CALLERS_MAX}")
    })
}

/// Every caller is a thread with a table of slots; more of them only wait for each other.
const CALLERS_MAX: u32 = 64;

fn theme(text: &str) -> Result<Theme, String> {
    let found = Theme::ALL.into_iter().find(|theme| theme.name() == text);
    found.ok_or_else(|| {
        let names = Theme::ALL.map(Theme::name).join(", ");
        format!("{text:?} is no theme: give one of {names}")
    })
}

/// More threads than any machine has cores.
const JOBS_MAX: usize = 1024;

/// `1000` or `every 1000`.
fn every(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("every ").unwrap_or(text).trim().parse().ok();
    number
        .filter(|&number| number > 0)
        .ok_or_else(|| format!("{text:?} is no number of operations: write for example 1000"))
}

/// `30s`, `5m`, `1h`, `500ms`; a number alone is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let wrong = || format!("{text:?} is no time: write for example 30s, 5m, 1h or 500ms");
    let number: u64 = text[..digits_end].parse().map_err(|_| wrong())?;
    let milliseconds = match &text[digits_end..] {
        "ms" => Some(number),
        "s" | "" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    match milliseconds.ok_or_else(wrong)? {
        0 => Err("no time is left to do anything: give at least 1ms".to_owned()),
        milliseconds => Ok(Duration::from_millis(milliseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        for wrong in ["0", "0s", "", "s", "3d", "-1s", "1.5s", "99999999999999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
