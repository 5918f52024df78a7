//! What was typed after `fathom fsck`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::args::{duration, jobs};
use crate::progress::KnownArgs;

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct FsckArgs {
    #[command(subcommand)]
    pub(crate) action: Option<FsckAction>,

    /// e2fsck, xfs_repair, btrfs, …: see `fathom list checkers`; or a TOML file that describes one
    #[arg(required = true)]
    pub(crate) checker: Option<String>,
    /// A disk of ours [default: the first that the checker is for]; `all` for each of them
    #[arg(long, value_name = "NAME", conflicts_with = "image")]
    pub(crate) disk: Option<String>,
    /// A healthy disk of your own
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Option<PathBuf>,
    /// The checker's own test images below this directory (see `fathom fsck unpack`): what a repair changed
    /// in them is corrupted again
    #[arg(long, value_name = "DIR", conflicts_with_all = ["image", "disk", "resume", "against"])]
    pub(crate) suite: Option<PathBuf>,
    /// Disks that power failures leave: one write lost or torn, during so many workloads that a kernel executes in
    /// a guest (FATHOM_GUEST_KERNEL)
    #[arg(long, value_name = "WORKLOADS", num_args = 0..=1, default_missing_value = "8",
        conflicts_with_all = ["image", "disk", "suite", "field", "pairs", "exhaustive"])]
    pub(crate) crashes: Option<usize>,
    /// Another program than the one that is installed
    #[arg(long, value_name = "PATH")]
    pub(crate) program: Option<PathBuf>,
    /// Another version: what it does differently on what is found is told
    #[arg(long, value_name = "PATH")]
    pub(crate) against: Option<PathBuf>,
    /// Only fields whose name contains this; can be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) field: Vec<String>,
    /// Only this corruption, with everything that the runs print; can be given several times
    #[arg(long, value_name = "FIELD=VALUE", conflicts_with_all = ["suite", "resume", "against", "mount"])]
    pub(crate) case: Vec<String>,
    /// All values of fields of 16 bits
    #[arg(long)]
    pub(crate) exhaustive: bool,
    /// Two neighbouring fields of a structure at once, a few values of each
    #[arg(long, conflicts_with = "exhaustive")]
    pub(crate) pairs: bool,
    /// Every structure of the disk, not one of each sort
    #[arg(long)]
    pub(crate) everything: bool,
    /// A run of the checker that takes longer hangs [default: 10s, more for slow checkers]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) deadline: Option<Duration>,
    /// Have a kernel mount disks that are said to be fine, in guests (FATHOM_GUEST_KERNEL): it must mount
    /// them, read everything, report nothing, and find what was not hit
    #[arg(long)]
    pub(crate) mount: bool,
    /// Make every run, also on disks on which the checker was seen before
    #[arg(long)]
    pub(crate) no_memo: bool,
    /// Stop after so many cases
    #[arg(long, value_name = "N")]
    pub(crate) cases: Option<u64>,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) budget: Option<Duration>,
    /// Go on with the campaign in the directory of --out
    #[arg(long)]
    pub(crate) resume: bool,
    /// Checkers at the same time [default: one per core]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = jobs)]
    pub(crate) jobs: usize,
    #[command(flatten)]
    pub(crate) known: KnownArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FsckAction {
    /// Show a disk field by field
    Map(MapArgs),
    /// Write one corruption of a disk
    Set(SetArgs),
    /// Make a test disk
    Disk(DiskArgs),
    /// Build a checker from Debian's source with the compiler's hooks for branches and comparisons
    Build(BuildArgs),
    /// Unpack Debian's source of a checker with its test images: e2fsprogs, btrfs-progs
    Unpack(BuildArgs),
    /// Write the smallest set of images that takes every branch that a campaign takes
    Suite(SuiteArgs),
    /// Compare the branches that a checker's own test images take with those that our cases take
    Coverage(CoverageArgs),
    /// Corrupt what several file systems have in common, and show what each checker leaves of the tree
    Compare(CompareArgs),
    /// Mount the disks of a batch, in a guest
    #[command(hide = true)]
    Look(LookArgs),
    /// Find the values of a field that make an instrumented checker take another path
    Explore(ExploreArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SuiteArgs {
    /// The instrumented e2fsck (see `fathom fsck build`)
    #[arg(long, value_name = "PATH")]
    pub(crate) program: PathBuf,
    /// The disk
    #[arg(long, value_name = "NAME", default_value = "ext4")]
    pub(crate) disk: String,
    /// So many cases of a campaign are tried
    #[arg(long, value_name = "N", default_value = "5000")]
    pub(crate) cases: usize,
    /// Where the tests are written, one directory each, as e2fsprogs has them
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CoverageArgs {
    /// The instrumented e2fsck (see `fathom fsck build`)
    #[arg(long, value_name = "PATH")]
    pub(crate) program: PathBuf,
    /// The directory of its tests (see `fathom fsck unpack`)
    #[arg(long, value_name = "DIR")]
    pub(crate) suite: PathBuf,
    /// So many cases of each of our disks are tried
    #[arg(long, value_name = "N", default_value = "3000")]
    pub(crate) cases: usize,
    /// So many cases that begin at each image of the suite
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) cases_each: usize,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    /// The disks, which a kernel mounts in guests (FATHOM_GUEST_KERNEL)
    #[arg(default_values = ["ext4", "reiserfs", "ext2", "minix-v1"], value_name = "DISK")]
    pub(crate) disks: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LookArgs {
    /// The file system
    pub(crate) file_system: String,
    /// The directory of the batch
    pub(crate) directory: PathBuf,
    /// The first disk that is looked at
    pub(crate) from: usize,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct MapArgs {
    /// The image, or the name of a disk of ours
    pub(crate) image: String,
    /// Only fields whose name contains this
    pub(crate) filter: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SetArgs {
    /// The image, or the name of a disk of ours
    pub(crate) image: String,
    /// What to write: 'inode[12].i_size_lo=0'; can be given several times
    #[arg(required = true, value_name = "FIELD=VALUE")]
    pub(crate) what: Vec<String>,
    /// Where the corrupted disk is written
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Leave the checksums as they are
    #[arg(long)]
    pub(crate) wrong_checksum: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DiskArgs {
    /// The name: see `fathom list disks`
    pub(crate) name: String,
    /// Where it is written; without it the script that makes it is printed
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct BuildArgs {
    /// The source package: e2fsprogs
    pub(crate) package: String,
    /// Where it is built or unpacked [default: PACKAGE-instrumented, PACKAGE-source]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ExploreArgs {
    /// The instrumented e2fsck
    #[arg(long, value_name = "PATH")]
    pub(crate) program: PathBuf,
    /// The disk
    #[arg(long, value_name = "NAME", default_value = "ext4")]
    pub(crate) disk: String,
    /// Time for one field
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60s")]
    pub(crate) budget: Duration,
    /// The fields
    #[arg(required = true)]
    pub(crate) fields: Vec<String>,
}
