//! What was typed after `fathom swarm`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SwarmArgs {
    #[command(subcommand)]
    pub(crate) action: Option<SwarmAction>,

    /// The plan: a TOML file, see docs/SWARM.md
    #[arg(required = true)]
    pub(crate) plan: Option<PathBuf>,
    /// Where the tasks run
    #[arg(long, value_enum, default_value = "local")]
    pub(crate) on: On,
    /// Serve the page of the swarm while it runs, for example on 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Print the commands of all tasks and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write what Kubernetes needs to a directory and do nothing
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum On {
    /// This machine
    Local,
    /// A Slurm cluster that shares the directory of --out
    Slurm,
    /// A Kubernetes cluster (in builds with the feature `kubernetes`)
    Kubernetes,
}

impl On {
    pub(crate) fn name(self) -> &'static str {
        match self {
            On::Local => "local",
            On::Slurm => "slurm",
            On::Kubernetes => "kubernetes",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SwarmAction {
    /// Show how far the swarm in the directory of --out is
    Status,
    /// Print what a task has said
    Logs {
        /// Its number or id
        task: String,
        /// Which attempt [default: the last]
        #[arg(long, value_name = "N")]
        attempt: Option<u32>,
    },
    /// Stop the swarm: what runs is ended, its results are kept, `resume` goes on
    Stop {
        /// Also where no coordinator has made the directory
        #[arg(long, hide = true)]
        anyway: bool,
    },
    /// Go on with a swarm that was stopped, or whose coordinator is gone
    Resume {
        /// Serve the page of the swarm while it runs
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Add tasks of the same plan, also while the swarm runs
    Add {
        /// How many
        tasks: u64,
    },
    /// Unite the results in directories: of swarms, of runs, of copies of them
    Merge {
        /// Directories with a run.json, or with such directories below them
        #[arg(required = true, value_name = "DIR")]
        directories: Vec<PathBuf>,
    },
    /// Write an OCI image with this program, file-system tools and a guest kernel, without a container daemon
    Image(ImageArgs),
    /// Run one attempt of a task: what engines start on their machines
    #[command(hide = true)]
    RunTask {
        /// The name of the task
        name: String,
        /// The number of the attempt
        attempt: u32,
    },
    /// Wait until the results of an attempt were fetched: what engines start beside a task
    #[command(hide = true)]
    Keep {
        /// The name of the task
        name: String,
        /// The number of the attempt
        attempt: u32,
    },
    /// Write the results of an attempt to standard output, as an archive
    #[command(hide = true)]
    HandOver {
        /// The name of the task
        name: String,
        /// The number of the attempt
        attempt: u32,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// The archive
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// The program [default: this one]; a static one needs nothing else (`cargo xtask dist`)
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// A kernel for guests, as /usr/lib/fathom/kernel
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,
    /// A tool to put in with the libraries that it needs, for example mkfs.ext4; can be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Vec<String>,
    /// The name of the image
    #[arg(long, value_name = "NAME", default_value = "fathom:latest")]
    pub(crate) tag: String,
}
