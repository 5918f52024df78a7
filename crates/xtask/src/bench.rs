//! `cargo xtask bench NAME`: each bench is a `[[bench]]` target of the crate that it measures.
//!
//! A bench compares with its named baseline in the same run, prints a table, and its last line is one
//! JSON object with the ratios.

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::setup::{self, Package};
use crate::shell;

/// The benches.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Name {
    /// The reference file system: clone + operation + digest, against copying and hashing everything
    Model,
    /// Block images: snapshot + write + digest, against copying and hashing a vector
    Block,
    /// The search on designs: philosophers and link against SPIN, the log-structured design
    Designs,
    /// RESTORE of the FUSE server by ioctl, against unmounting and mounting a small ext4 (root)
    Snapshot,
    /// Looking at touched paths, saving and restoring on each kernel file system (root)
    Testbed,
    /// Crash images judged per second for every library file system; the search against stateright
    CrashLibrary,
    /// Crash states of ext4 judged per second natively and in a guest, against mounting and walking alone;
    /// ACE's sequences of two in guests (root, FATHOM_GUEST_KERNEL)
    CrashKernel,
    /// Exploring ext4 by a tour, against depth first with a remount around every operation (root)
    Check,
    /// Corrupted disks judged per second, against the bare e2fsck in a loop
    Fsck,
    /// Boot, checked operations and remounts in a guest, against the host (root, FATHOM_GUEST_KERNEL)
    Guest,
    /// Checked operations and states with the reference behind the kernel's NFS server
    /// (FATHOM_GUEST_KERNEL)
    Nfs,
    /// Histories of overlapping calls judged per second, against the plain search of Wing and Gong
    Linear,
    /// Checked calls per second of layered workloads with 100,000 entries, against 100
    Layered,
    /// 18 tasks through an engine against the same by hand; uniting results (SLURM_CONF: also on Slurm)
    Swarm,
    /// Uniting 10,000 to 100,000 runs; a coordinator with 10,000 running tasks
    SwarmScale,
    /// What `fathom cover` costs the traced program, against strace and bpftrace (root)
    Cover,
}

/// Programs that `bench cover` compares with. Only here: CI does not measure.
const COVER: &[Package] = &[
    ("mkfs.ext4", "e2fsprogs", "nothing is measured"),
    ("strace", "strace", "its column is empty"),
    ("bpftrace", "bpftrace", "its column is empty"),
];

/// Programs that `bench designs` compares with.
const DESIGNS: &[Package] = &[
    ("spin", "spin", "nothing is compared with SPIN"),
    ("gcc", "gcc", "nothing is compared with SPIN"),
];

/// Builds and runs one bench, or parts of it.
pub(crate) fn run(name: Name, parts: &[String]) -> Result<()> {
    if !parts.is_empty() && !matches!(name, Name::CrashKernel) {
        bail!("only crash-kernel has parts");
    }
    if matches!(name, Name::Fsck) {
        return crate::fsck::bench(&crate::campaign::built_program()?);
    }
    let (package, bench) = match name {
        Name::Model => ("fathom-model", "model"),
        Name::Block => ("fathom-block", "block"),
        Name::Designs => ("fathom-designs", "designs"),
        Name::Snapshot => ("fathom-subjects", "snapshot"),
        Name::Testbed => ("fathom-subjects", "testbed"),
        Name::CrashLibrary => ("fathom", "crash_library"),
        Name::CrashKernel => ("fathom", "crash_kernel"),
        Name::Check => ("fathom", "check"),
        Name::Guest => ("fathom", "guest"),
        Name::Nfs => ("fathom", "nfs"),
        Name::Swarm => ("fathom", "swarm"),
        Name::SwarmScale => ("fathom-swarm", "scale"),
        Name::Cover => ("fathom-trace", "cover"),
        Name::Fsck => ("fathom-fsck", "fsck"),
        Name::Linear => ("fathom-engine", "linear"),
        Name::Layered => ("fathom-engine", "layered"),
    };
    match name {
        Name::Cover => setup::need(COVER)?,
        Name::Designs => setup::need(DESIGNS)?,
        _ => {}
    }
    let mut cargo = shell::cargo();
    cargo.args(["bench", "--quiet", "--package", package, "--bench", bench]);
    if matches!(name, Name::CrashLibrary) {
        cargo.args(["--features", "fatfs,redoxfs,rsext4"]);
    }
    if !parts.is_empty() {
        cargo.arg("--").args(parts);
    }
    shell::run(&mut cargo)
}
