//! Finds and installs the Debian packages that tests and benches need.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// The one need that is no program: a library, with the headers that belong to it.
const LIBCLANG: &str = "libclang";

/// Back ends of NFS-Ganesha, which are libraries of packages of their own.
const GANESHA_VFS: &str = "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so";
const GANESHA_MEM: &str = "/usr/lib/x86_64-linux-gnu/ganesha/libfsalmem.so";

/// A program, the package that brings it, and the consequence of its absence.
pub(crate) type Package = (&'static str, &'static str, &'static str);

const PACKAGES: &[Package] = &[
    ("cc", "gcc", "exported C programs are not compiled"),
    ("mkfs.ext4", "e2fsprogs", "ext2, ext3 and ext4 are not checked"),
    ("e2fsck.static", "e2fsck-static", "checking ext2, ext3 and ext4 takes longer in guests"),
    ("mkfs.xfs", "xfsprogs", "xfs is not checked"),
    ("mkfs.btrfs", "btrfs-progs", "btrfs is not checked"),
    ("mkfs.f2fs", "f2fs-tools", "f2fs is not checked in guests"),
    ("mkfs.jfs", "jfsutils", "jfs is not checked in guests"),
    ("linux.uml", "user-mode-linux", "nothing is tested in guests"),
    ("mkfs.vfat", "dosfstools", "vfat is not checked in guests"),
    ("dump.exfat", "exfatprogs", "the map of exFAT is not compared with what its tools say"),
    (
        "debugreiserfs",
        "reiserfsprogs",
        "the map of reiserfs is not compared with what its tools say",
    ),
    (GANESHA_VFS, "nfs-ganesha-vfs", "NFS-Ganesha is not checked in guests"),
    (GANESHA_MEM, "nfs-ganesha-mem", "nfs:memory is not checked in guests"),
    ("tc", "iproute2", "NFS is not checked with packets that are lost"),
    ("flex", "flex", "kernels for guests are not built"),
    ("bison", "bison", "kernels for guests are not built"),
    ("fsck.fat", "dosfstools", "fsck.fat is not tested"),
    ("mcopy", "mtools", "the test disk of FAT is not made"),
    ("bindfs", "bindfs", "fuse:COMMAND is not tested with it"),
    ("fuse2fs", "fuse2fs", "fuse:COMMAND is not tested with it"),
    ("fusermount3", "fuse3", "FUSE mounts as an ordinary user are not tested"),
    ("setfacl", "acl", "access control lists of the FUSE mount are not tested"),
    ("setfattr", "attr", "exported shell scripts with extended attributes are not run"),
    ("git", "git", "git is not run on the FUSE mount"),
    ("sqlite3", "sqlite3", "sqlite3 is not run on the FUSE mount"),
    ("fio", "fio", "fio is not run on the FUSE mount"),
    ("slurmctld", "slurmctld", "swarms on Slurm are not tested"),
    ("slurmd", "slurmd", "swarms on Slurm are not tested"),
    ("sbatch", "slurm-client", "swarms on Slurm are not tested"),
    ("munged", "munge", "swarms on Slurm are not tested"),
    ("chromium", "chromium", "the page of a swarm is not looked at in a browser"),
    (LIBCLANG, "libclang-dev", "littlefs in C is not built and not tested"),
];

/// What is set up only if it is asked for.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Extra {
    /// The programs of a Kubernetes cluster, built from Debian's source (about 12 processor-minutes)
    Kubernetes,
}

const KUBERNETES: &[Package] = &[
    ("go", "golang-go", "Kubernetes is not built"),
    ("rsync", "rsync", "Kubernetes is not built"),
    ("dpkg-source", "dpkg-dev", "Kubernetes is not built"),
    ("make", "make", "Kubernetes is not built"),
    ("curl", "curl", "no cluster is started"),
    ("openssl", "openssl", "no cluster is started"),
    ("ip", "iproute2", "no cluster is started"),
    ("kubectl", "kubernetes-client", "printed manifests are not applied"),
    ("etcd", "etcd-server", "no cluster is started"),
    ("containerd", "containerd", "no cluster is started"),
    ("runc", "runc", "no cluster is started"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins", "no cluster is started"),
];

/// Builds the programs of a cluster where the tests look for them; what is there is not built again.
pub(crate) fn kubernetes() -> Result<()> {
    need(KUBERNETES)?;
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    let cache = PathBuf::from(home).join(".cache/fathom");
    let programs = match std::env::var_os("FATHOM_KUBERNETES") {
        Some(programs) => PathBuf::from(programs),
        None => cache.join("kubernetes"),
    };
    if let Err(error) = validator(&cache.join("kubernetes-validate")) {
        println!("setup: manifests are not validated: {error:#}");
    }
    let script = shell::root().join("crates/swarm/kubernetes/build.sh");
    shell::run(Command::new(script).arg(&programs)).context("while building Kubernetes")?;
    println!("setup: the programs of Kubernetes are in {}", programs.display());
    Ok(())
}

/// Installs the program that validates manifests against the schemas of many versions. Debian has none; a Python
/// package brings it, which gets an environment of its own.
fn validator(place: &std::path::Path) -> Result<()> {
    if place.join("bin/kubernetes-validate").exists() {
        return Ok(());
    }
    shell::run(Command::new("python3").args(["-m", "venv"]).arg(place))?;
    shell::run(Command::new(place.join("bin/pip")).args(["install", "-q", "kubernetes-validate"]))
}

/// Lists the packages whose program is missing.
fn missing(wanted: &[Package]) -> Vec<&Package> {
    wanted.iter().filter(|(program, ..)| !is_here(program)).collect()
}

fn is_here(program: &str) -> bool {
    if program == LIBCLANG { has_libclang() } else { shell::has_program(program) }
}

/// Whether bindgen will find libclang, where clang-sys looks for it. Debian has `libclang.so` (without a
/// number) only together with the headers that bindgen needs as well.
pub(crate) fn has_libclang() -> bool {
    let llvm = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm = llvm.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"llvm-"));
    let told = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    llvm.map(|entry| entry.path().join("lib"))
        .chain(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from))
        .chain(told)
        .any(|dir| dir.join("libclang.so").exists())
}

/// Installs or names the packages that the tests need.
pub(crate) fn run() -> Result<()> {
    if missing(PACKAGES).is_empty() {
        println!("setup: all {} programs are here", PACKAGES.len());
    }
    need(PACKAGES)
}

/// Installs what is missing if we are root and the system is Debian; says what remains.
pub(crate) fn need(wanted: &[Package]) -> Result<()> {
    let packages: Vec<&str> = missing(wanted).iter().map(|(_, package, _)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    if shell::is_root() && shell::has_program("apt-get") {
        println!("setup: installing {}", packages.join(" "));
        shell::run(apt().arg("update").arg("-qq")).context("while installing packages")?;
        let install = ["install", "-y", "-qq", "--no-install-recommends"];
        shell::run(apt().args(install).args(&packages)).context("while installing packages")?;
    }
    for (program, package, consequence) in missing(wanted) {
        println!("setup: {program} is missing (Debian package {package}): {consequence}");
    }
    Ok(())
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
