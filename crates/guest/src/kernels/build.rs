//! [`build`]: sources, configuration, make, and the finished kernel.
//!
//! Every step can be interrupted: a build that is started again goes on with what is there. One process
//! builds a kernel at a time.

#![allow(
    unsafe_code,
    reason = "starts programs that end with this one; the block says why it is sound"
)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cache::{self, Cache};
use super::error::BuildError;
use super::{configuration, debian, tools};
use crate::kernel::{Kernel, probe};

/// Files that are compiled for a kernel, about: 6.12 with all our file systems.
const FILES_ABOUT: u64 = 2000;

/// Space for sources (1.6 GiB) and objects.
const SPACE_MIB: u64 = 3072;
/// Space for the objects of a tree.
const TREE_SPACE_MIB: u64 = 1024;

/// Where the sources come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Debian's package `linux-source-N`.
    Debian(String),
    /// The tree of somebody who changes it.
    Tree(PathBuf),
}

/// A kernel to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Where the sources come from.
    pub source: Source,
    /// With everything by which a kernel watches itself.
    pub debug: bool,
    /// The file systems to build; all if there are none.
    pub only: Vec<String>,
    /// Processes of make.
    pub jobs: usize,
}

/// How far a build is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// What begins now.
    Step(String),
    /// Files that are compiled, also by earlier attempts, and about how many there are in all; the
    /// second is unknown for a tree.
    Compiled(u64, Option<u64>),
}

/// Builds a kernel into the cache; one of Debian that is there already, with all the file systems that are
/// asked for, is only looked at.
///
/// # Errors
/// Says what is missing or wrong; what is done so far is kept for the next attempt.
pub fn build(
    cache: &Cache,
    order: &Order,
    tell: &mut dyn FnMut(Progress),
) -> Result<Kernel, BuildError> {
    let (dir, name) = match &order.source {
        Source::Debian(version) => {
            let dir = cache.of_version(version, order.debug);
            if dir.join("linux").is_file() && has_parts(&dir, &order.only) {
                return Ok(probe(&dir.join("linux"))?);
            }
            (dir, version.clone())
        }
        Source::Tree(tree) => {
            let tree = real_tree(tree)?;
            (cache.of_tree(&tree, order.debug), tree.display().to_string())
        }
    };
    if let Some((part, known)) = configuration::unknown_part(&order.only) {
        return Err(BuildError::NoPart { part: part.to_owned(), known: known.join(", ") });
    }
    tools::demand(&tools::COMPILE)?;
    if let Source::Debian(version) = &order.source {
        debian::demand_version(&dir, version)?;
    }
    fs::create_dir_all(&dir).map_err(BuildError::io(format!("cannot make {}", dir.display())))?;
    let _lock = cache::lock(&dir, &name)?;
    let mut log = Log::create(&dir)?;
    let objects = dir.join("build");
    let source = match &order.source {
        Source::Debian(version) => {
            demand_space(&dir, if objects.exists() { TREE_SPACE_MIB } else { SPACE_MIB })?;
            debian::unpack(&dir, version, &mut log, &mut |step| {
                tell(Progress::Step(step.to_owned()));
            })?
        }
        Source::Tree(tree) => {
            demand_space(&dir, TREE_SPACE_MIB)?;
            let tree = real_tree(tree)?;
            cache::note_tree(&dir, &tree)?;
            tree
        }
    };
    tell(Progress::Step("configuring".to_owned()));
    let make = Make { source: &source, objects: &objects, jobs: order.jobs };
    configure(&make, order, &name, &mut log)?;
    tell(Progress::Step("compiling".to_owned()));
    let is_whole = matches!(order.source, Source::Debian(_)) && order.only.is_empty();
    let about = is_whole.then_some(FILES_ABOUT);
    compile(&make, about, &mut log, tell)?;
    let kernel = install(&objects.join("linux"), &dir)?;
    note_parts(&dir, &order.only)?;
    if matches!(order.source, Source::Debian(_)) {
        // Nobody will change them; a kernel alone takes a hundredth of this.
        for part in ["source", "build"] {
            debian::remove(&dir.join(part))?;
        }
        let debs = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
        for deb in debs.filter(|path| path.extension().is_some_and(|kind| kind == "deb")) {
            fs::remove_file(&deb).map_err(BuildError::io(deb.display().to_string()))?;
        }
    }
    Ok(kernel)
}

/// The file that names the file systems with which a kernel was built.
const PARTS_FILE: &str = "parts";

/// Whether a finished kernel has all the file systems that are asked for; without a note it has all there
/// are.
fn has_parts(dir: &Path, wanted: &[String]) -> bool {
    match fs::read_to_string(dir.join(PARTS_FILE)) {
        Ok(noted) => {
            let noted: Vec<&str> = noted.split_whitespace().collect();
            !wanted.is_empty() && wanted.iter().all(|part| noted.contains(&part.as_str()))
        }
        Err(_) => true,
    }
}

fn note_parts(dir: &Path, only: &[String]) -> Result<(), BuildError> {
    let file = dir.join(PARTS_FILE);
    let done = match only.is_empty() {
        true => fs::remove_file(&file).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }),
        false => fs::write(&file, only.join(" ")),
    };
    done.map_err(BuildError::io(file.display().to_string()))
}

/// The directory of a tree, if it is one.
fn real_tree(dir: &Path) -> Result<PathBuf, BuildError> {
    let dir = dir.canonicalize().map_err(BuildError::io(dir.display().to_string()))?;
    for missing in ["Kbuild", "arch/um/Makefile"] {
        if !dir.join(missing).is_file() {
            return Err(BuildError::NotATree { dir, missing });
        }
    }
    if dir.join(".config").exists() || dir.join("include/config").exists() {
        return Err(BuildError::BuiltInPlace { dir });
    }
    Ok(dir)
}

fn demand_space(dir: &Path, needed_mib: u64) -> Result<(), BuildError> {
    let stat = rustix::fs::statvfs(dir)
        .map_err(|errno| BuildError::io(dir.display().to_string())(errno.into()))?;
    let free_mib = (stat.f_bavail * stat.f_frsize) >> 20;
    if free_mib < needed_mib {
        return Err(BuildError::Space { dir: dir.to_owned(), free_mib, needed_mib });
    }
    Ok(())
}

/// How make is called.
struct Make<'a> {
    source: &'a Path,
    objects: &'a Path,
    jobs: usize,
}

impl Make<'_> {
    fn command(&self, target: &str) -> Command {
        let mut make = Command::new("make");
        make.arg("-C").arg(self.source).arg(format!("O={}", self.objects.display()));
        make.args(["ARCH=um", &format!("-j{}", self.jobs), target]);
        // The compiler of the user, if he has his own (`CC="ccache gcc"`).
        if let Ok(compiler) = std::env::var("CC") {
            make.arg(format!("CC={compiler}"));
        }
        // The same sources give the same kernel.
        make.envs([
            ("KBUILD_BUILD_TIMESTAMP", "1970-01-01"),
            ("KBUILD_BUILD_USER", "fathom"),
            ("KBUILD_BUILD_HOST", "fathom"),
            ("KBUILD_BUILD_VERSION", "1"),
            ("LC_ALL", "C"),
        ]);
        make.env_remove("MAKEFLAGS").env_remove("KBUILD_OUTPUT");
        make
    }
}

/// Makes `.config`. The same fragments give the same file, so that nothing is compiled again for it.
fn configure(make: &Make<'_>, order: &Order, name: &str, log: &mut Log) -> Result<(), BuildError> {
    let file = make.objects.join(".config");
    let noted = make.objects.join("fragments");
    let fragments = configuration::fragments(order.debug, &order.only);
    fs::create_dir_all(make.objects)
        .map_err(BuildError::io(format!("cannot make {}", make.objects.display())))?;
    let is_noted = fs::read_to_string(&noted).is_ok_and(|noted| noted == fragments);
    if !is_noted || !file.is_file() {
        log.run("make defconfig", &mut make.command("defconfig"))?;
        let append = |text: &str| {
            let mut config = File::options().append(true).open(&file)?;
            config.write_all(text.as_bytes())
        };
        append(&fragments).map_err(BuildError::io(file.display().to_string()))?;
    }
    log.run("make olddefconfig", &mut make.command("olddefconfig"))?;
    fs::write(&noted, &fragments).map_err(BuildError::io(noted.display().to_string()))?;
    let config = fs::read_to_string(&file).map_err(BuildError::io(file.display().to_string()))?;
    match configuration::lost(&config) {
        None => Ok(()),
        Some(option) => {
            Err(BuildError::Configuration { name: name.to_owned(), option: option.to_owned() })
        }
    }
}

/// Compiles and links, and counts.
fn compile(
    make: &Make<'_>,
    about: Option<u64>,
    log: &mut Log,
    tell: &mut dyn FnMut(Progress),
) -> Result<(), BuildError> {
    let mut done = about.map_or(0, |_| compiled(make.objects));
    tell(Progress::Compiled(done, about));
    log.follow("make", &mut make.command("linux"), &mut |line| {
        if line.trim_start().starts_with("CC ") {
            done += 1;
            tell(Progress::Compiled(done, about));
        }
    })
}

/// Objects that earlier attempts left.
fn compiled(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let counts = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => compiled(&entry.path()),
        _ => u64::from(entry.path().extension().is_some_and(|kind| kind == "o")),
    });
    counts.sum()
}

/// Puts the kernel where it is found, whole or not at all.
fn install(built: &Path, dir: &Path) -> Result<Kernel, BuildError> {
    let (new, place) = (dir.join("linux.new"), dir.join("linux"));
    fs::copy(built, &new).map_err(BuildError::io(format!("cannot copy {}", built.display())))?;
    // Refuses what is no kernel before it replaces one.
    probe(&new)?;
    fs::rename(&new, &place).map_err(BuildError::io(place.display().to_string()))?;
    Ok(probe(&place)?)
}

/// Lets a program end when this one does, however that happens: the next attempt must not meet it.
fn ends_with_us(command: &mut Command) {
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: between fork and exec only system calls on a copied value.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            match libc::getppid() == parent {
                true => Ok(()),
                false => Err(std::io::Error::other("nobody waits for it")),
            }
        });
    }
}

/// The file with everything that the programs print.
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub(super) fn create(dir: &Path) -> Result<Log, BuildError> {
        let path = dir.join("log");
        let file = File::create(&path).map_err(BuildError::io(path.display().to_string()))?;
        Ok(Log { path, file })
    }

    /// Runs a program to its end.
    pub(super) fn run(&mut self, step: &str, command: &mut Command) -> Result<(), BuildError> {
        self.follow(step, command, &mut |_| {})
    }

    /// Runs a program and hands on every line that it prints.
    fn follow(
        &mut self,
        step: &str,
        command: &mut Command,
        line_seen: &mut dyn FnMut(&str),
    ) -> Result<(), BuildError> {
        let failed = |error| BuildError::io(format!("cannot run {step}"))(error);
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let both = writer.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(writer).stderr(both);
        ends_with_us(command);
        let mut child = command.spawn().map_err(failed)?;
        // The command holds the other ends of the pipe; without them the reader sees the end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let output = self.keep(reader, line_seen).map_err(failed)?;
        let status = child.wait().map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        let errors = tools::errors(&output);
        Err(BuildError::Failed { step: step.to_owned(), errors, log: self.path.clone() })
    }

    /// Copies to the file, line by line; what was printed is returned too.
    fn keep(
        &mut self,
        from: impl Read,
        line_seen: &mut dyn FnMut(&str),
    ) -> std::io::Result<String> {
        let mut output = String::new();
        for line in BufReader::new(from).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            writeln!(self.file, "{line}")?;
            line_seen(&line);
            output.push_str(&line);
            output.push('\n');
        }
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_no_tree_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache"));
        let source = Source::Tree(dir.path().to_owned());
        let order = Order { source, debug: false, only: Vec::new(), jobs: 1 };
        let error = build(&cache, &order, &mut |_| {}).unwrap_err();
        assert!(matches!(error, BuildError::NotATree { missing: "Kbuild", .. }), "{error}");
        fs::write(dir.path().join("Kbuild"), "").unwrap();
        fs::create_dir_all(dir.path().join("arch/um")).unwrap();
        fs::write(dir.path().join("arch/um/Makefile"), "").unwrap();
        fs::write(dir.path().join(".config"), "").unwrap();
        let error = build(&cache, &order, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("mrproper"), "{error}");
        fs::remove_file(dir.path().join(".config")).unwrap();
        let order = Order { only: vec!["ext5".to_owned()], ..order };
        let error = build(&cache, &order, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("ext5") && error.contains("ext4"), "{error}");
    }

    #[test]
    fn what_a_program_prints_is_kept_and_its_failure_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path()).unwrap();
        let mut lines = Vec::new();
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo 'a.c:1: error: two' >&2; exit 3"]);
        let error = log.follow("make", &mut shell, &mut |line| lines.push(line.to_owned()));
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("make failed:\na.c:1: error: two\n"), "{error}");
        lines.sort();
        assert_eq!(lines, ["a.c:1: error: two", "one"]);
        assert!(fs::read_to_string(dir.path().join("log")).unwrap().contains("one\n"));
        assert!(log.run("true", &mut Command::new("true")).is_ok());
    }

    #[test]
    fn a_kernel_with_less_than_is_asked_for_is_built_again() {
        let dir = tempfile::tempdir().unwrap();
        let list = |parts: &[&str]| parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>();
        assert!(has_parts(dir.path(), &[]) && has_parts(dir.path(), &list(&["xfs"])));
        note_parts(dir.path(), &list(&["ext4", "btrfs"])).unwrap();
        assert!(has_parts(dir.path(), &list(&["ext4"])));
        assert!(!has_parts(dir.path(), &list(&["ext4", "xfs"])) && !has_parts(dir.path(), &[]));
        note_parts(dir.path(), &[]).unwrap();
        note_parts(dir.path(), &[]).unwrap();
        assert!(has_parts(dir.path(), &[]));
    }

    #[test]
    fn no_space_is_said_before_anything_begins() {
        let dir = tempfile::tempdir().unwrap();
        let error = demand_space(dir.path(), u64::MAX >> 20).unwrap_err().to_string();
        assert!(error.contains("XDG_CACHE_HOME"), "{error}");
        assert!(demand_space(dir.path(), 0).is_ok());
    }
}
