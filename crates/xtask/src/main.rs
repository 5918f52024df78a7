//! Fathom's own chores: `cargo xtask setup | test | tidy | bench NAME | dist | campaign NAME`.

#![forbid(unsafe_code)]

mod ace2;
mod bench;
mod bpf;
mod campaign;
mod crash_ops;
mod dist;
mod diversity;
mod fsck;
mod guest_campaign;
mod guest_runs;
mod hunt;
mod isolation;
mod ledger;
mod long_workloads;
mod setup;
mod shell;
mod structure_plot;
mod suites;
mod test;
mod tidy;
mod workload_tables;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Fathom's own chores", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    chore: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the Debian packages that the tests use (root), or say which are missing
    Setup {
        /// What else to set up
        #[arg(value_enum)]
        what: Option<setup::Extra>,
    },
    /// Set up, tidy, format check, clippy, all tests; the skipped ones with their reasons
    Test,
    /// Check the rules of the code base that the compiler does not know
    Tidy {
        /// Lower the ratchet to what is measured now
        #[arg(long)]
        tighten: bool,
    },
    /// Measure against a named baseline in the same run; the last line is one JSON object
    Bench {
        /// Which one
        #[arg(value_enum)]
        name: bench::Name,
        /// Of `crash-kernel`: only these parts
        #[arg(long, value_name = "PART")]
        part: Vec<String>,
    },
    /// Compile the tracer of `fathom cover` (needs clang; the object is committed)
    Bpf,
    /// Make one archive to hand on: a static program, manual pages, completions, licences
    Dist,
    /// Long runs that do not belong into CI
    Campaign {
        /// Which one
        #[arg(value_enum)]
        name: campaign::Name,
        /// Of the campaigns that are measured by time
        #[arg(long, default_value = "60")]
        minutes: u64,
        /// Of `hunt`: seconds for each file system
        #[arg(long, default_value = "120")]
        seconds: u64,
        /// Of `hunt`: the kernel for what needs a guest
        #[arg(long, value_name = "KERNEL")]
        guest: Option<String>,
        /// Of `hunt`, `fsck`, `isolation`, `suites`, `layered`, `callers` and those in guests: only these rows
        #[arg(long, value_name = "ROW")]
        only: Vec<String>,
        /// Of those in guests, `layered` and `callers`: so many pieces at once
        #[arg(long, default_value = "1")]
        jobs: usize,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().chore {
        Task::Setup { what: None } => setup::run(),
        Task::Setup { what: Some(setup::Extra::Kubernetes) } => setup::kubernetes(),
        Task::Test => test::run(),
        Task::Tidy { tighten } => tidy::run(tighten),
        Task::Bench { name, part } => bench::run(name, &part),
        Task::Bpf => bpf::run(),
        Task::Dist => dist::run(),
        Task::Campaign { name: campaign::Name::Hunt, seconds, guest, only, .. } => {
            campaign::hunt(seconds, guest.as_deref(), &only)
        }
        Task::Campaign {
            name:
                name @ (campaign::Name::GuestFilesystems
                | campaign::Name::DebugKernel
                | campaign::Name::Nfs),
            minutes,
            only,
            jobs,
            ..
        } => campaign::guests(name, guest_campaign::Plan { minutes, only: &only, jobs }),
        Task::Campaign {
            name: name @ (campaign::Name::Layered | campaign::Name::Callers),
            minutes,
            only,
            jobs,
            ..
        } => campaign::long_workloads(name, guest_campaign::Plan { minutes, only: &only, jobs }),
        Task::Campaign { name: campaign::Name::Fsck, minutes, only, .. } => {
            campaign::built_program().and_then(|program| fsck::run(&program, minutes, &only))
        }
        Task::Campaign { name: campaign::Name::Suites, only, .. } => {
            campaign::built_program().and_then(|program| suites::run(&program, &only))
        }
        Task::Campaign { name: campaign::Name::CrashOps, minutes, only, .. } => {
            campaign::built_program().and_then(|program| crash_ops::run(&program, minutes, &only))
        }
        Task::Campaign { name: campaign::Name::Ace2, minutes, only, jobs, .. } => {
            let plan = guest_campaign::Plan { minutes, only: &only, jobs };
            campaign::built_program().and_then(|program| ace2::run(&program, plan))
        }
        Task::Campaign { name: campaign::Name::Isolation, only, .. } => campaign::isolation(&only),
        Task::Campaign { name, minutes, .. } => campaign::run(name, minutes),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
