//! [`Kernel`]: what a User-Mode Linux kernel is and can do, as it says itself.
//!
//! `linux --version` prints the release, `linux --showconfig` the configuration with which it was
//! built: both before anything is booted, so that a kernel that lacks something is refused with its
//! reason instead of a panic.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::error::{GuestError, Result};

/// A file that is still open for writing after this time is being written by somebody else.
const BUSY_FOR_AT_MOST: Duration = Duration::from_secs(20);

/// A kernel file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The file.
    pub path: PathBuf,
    /// What `uname -r` says in it.
    pub release: String,
    /// Whether it has a clock of its own (`CONFIG_UML_TIME_TRAVEL_SUPPORT`): only then is a guest a
    /// function of its seed.
    pub has_time_travel: bool,
    /// Whether it finds memory errors (`CONFIG_KASAN`).
    pub has_kasan: bool,
    /// Whether it proves locking (`CONFIG_PROVE_LOCKING`).
    pub has_lockdep: bool,
    /// Whether it reports tasks that wait for ever (`CONFIG_DETECT_HUNG_TASK`).
    pub has_hung_task: bool,
    /// Where its modules are, if it has some.
    pub modules: Option<PathBuf>,
    /// Further words for its command line, as they were given with its name.
    pub parameters: Vec<String>,
    /// Every option that is set, without `CONFIG_`, with its value.
    config: BTreeSet<(String, String)>,
}

impl Kernel {
    /// The value of an option without its `CONFIG_`: `y`, `m`, or a text; `None` if it is not set.
    pub fn option(&self, name: &str) -> Option<&str> {
        let from = (name.to_owned(), String::new());
        let (found, value) = self.config.range(from..).next()?;
        (found == name).then_some(value.as_str())
    }

    /// Whether an option is built in.
    pub fn is_built_in(&self, name: &str) -> bool {
        self.option(name) == Some("y")
    }
}

/// What no guest can do without.
const NEEDED: [(&str, &str); 6] = [
    ("HOSTFS", "hostfs, through which it sees the files of the host"),
    ("DEVTMPFS", "devtmpfs"),
    ("TMPFS", "tmpfs"),
    ("PROC_FS", "proc"),
    ("SSL", "serial lines, through which a command answers"),
    ("PROC_PAGE_MONITOR", "/proc/PID/pagemap, through which it shares memory with its supervisor"),
];

/// Where the modules of a kernel are: beside it, or where Debian's package puts them.
fn modules(kernel: &Path, release: &str) -> Option<PathBuf> {
    let beside = kernel.parent().map(|dir| dir.join("lib/modules").join(release));
    let debian = Path::new("/usr/lib/uml/modules").join(release);
    let places = beside.into_iter().chain([debian]);
    places.into_iter().find(|dir| dir.join("modules.dep").is_file())
}

/// What a kernel offers of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is part of the kernel.
    BuiltIn,
    /// It is a module that can be loaded.
    Module,
}

impl Kernel {
    /// Whether and how the kernel has a file system of this name.
    pub fn file_system(&self, name: &str) -> Option<Offer> {
        let upper = name.to_uppercase();
        let option = match name {
            "ext3" => "EXT4_FS".to_owned(),
            "ext2" if self.option("EXT2_FS").is_none() => "EXT4_USE_FOR_EXT2".to_owned(),
            _ if self.option(&upper).is_some() => upper,
            _ => format!("{upper}_FS"),
        };
        match self.option(&option)? {
            "y" => Some(Offer::BuiltIn),
            "m" if self.modules.is_some() => Some(Offer::Module),
            _ => None,
        }
    }
}

/// Finds out what a kernel file is.
///
/// # Errors
/// If it is no User-Mode Linux kernel, or one without hostfs.
pub fn probe(path: &Path) -> Result<Kernel> {
    let path = path.canonicalize().map_err(GuestError::io(path.display().to_string()))?;
    let release = ask(&path, "--version")?.trim().to_owned();
    let looks_like_one = release.chars().next().is_some_and(|first| first.is_ascii_digit())
        && !release.contains(char::is_whitespace);
    if !looks_like_one {
        return Err(not_a_kernel(&path, "--version does not print a release of Linux"));
    }
    let text = ask(&path, "--showconfig")?;
    let config = parse(&text);
    let mut kernel = Kernel { path, release, config, ..Kernel::empty() };
    if !kernel.is_built_in("UML") {
        return Err(not_a_kernel(&kernel.path, "--showconfig does not say CONFIG_UML=y"));
    }
    kernel.modules = modules(&kernel.path, &kernel.release);
    for (option, what) in NEEDED {
        if !kernel.is_built_in(option) {
            let path = kernel.path;
            return Err(GuestError::Lacks { path, what, option });
        }
    }
    kernel.has_time_travel = kernel.is_built_in("UML_TIME_TRAVEL_SUPPORT");
    kernel.has_kasan = kernel.is_built_in("KASAN");
    kernel.has_lockdep = kernel.is_built_in("PROVE_LOCKING");
    kernel.has_hung_task = kernel.is_built_in("DETECT_HUNG_TASK");
    Ok(kernel)
}

impl Kernel {
    fn empty() -> Kernel {
        Kernel {
            path: PathBuf::new(),
            release: String::new(),
            has_time_travel: false,
            has_kasan: false,
            has_lockdep: false,
            has_hung_task: false,
            modules: None,
            parameters: Vec::new(),
            config: BTreeSet::new(),
        }
    }
}

fn not_a_kernel(path: &Path, reason: &str) -> GuestError {
    GuestError::NotAKernel { path: path.to_owned(), reason: reason.to_owned() }
}

/// What the file prints when it is executed with one argument. Only a program whose first bytes are
/// those of an executable that names User-Mode Linux's own arguments is executed at all.
fn ask(path: &Path, argument: &str) -> Result<String> {
    refuse_others(path)?;
    let output = execute(path, argument).map_err(|error| not_a_kernel(path, &error.to_string()))?;
    if !output.status.success() {
        return Err(not_a_kernel(path, &format!("{argument} ends with {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Executes the file with one argument. A file that was just written is busy for a moment if another
/// thread started a process while it was open for writing: that process has it open until it executes
/// its own program.
fn execute(path: &Path, argument: &str) -> io::Result<Output> {
    let started = Instant::now();
    loop {
        let mut command = Command::new(path);
        let output = command.arg(argument).stdin(Stdio::null()).stderr(Stdio::null()).output();
        match output {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && started.elapsed() < BUSY_FOR_AT_MOST =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            output => return output,
        }
    }
}

/// Refuses what should not be executed: a file that is no ELF executable, or one that has nothing of
/// User-Mode Linux in it.
fn refuse_others(path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).map_err(GuestError::io(path.display().to_string()))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Err(not_a_kernel(path, "it is no ELF executable"));
    }
    let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    if !has(b"--showconfig") {
        return Err(not_a_kernel(path, "it does not know --showconfig"));
    }
    Ok(())
}

/// The options that are set.
fn parse(text: &str) -> BTreeSet<(String, String)> {
    let line = |line: &str| {
        let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
        Some((name.to_owned(), value.trim_matches('"').to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_as_it_is_printed() {
        let kernel = Kernel {
            config: parse(
                "# comment\nCONFIG_A=y\nCONFIG_A_B=m\n# CONFIG_C is not set\nCONFIG_D=\"x\"\n",
            ),
            ..Kernel::empty()
        };
        assert_eq!(
            [kernel.option("A"), kernel.option("A_B"), kernel.option("C"), kernel.option("D")],
            [Some("y"), Some("m"), None, Some("x")]
        );
        assert!(kernel.is_built_in("A") && !kernel.is_built_in("A_B"));
    }

    #[test]
    fn what_is_no_kernel_is_refused_before_it_is_executed() {
        let error = probe(Path::new("/bin/true")).unwrap_err().to_string();
        assert!(error.contains("does not know --showconfig"), "{error}");
        let error = probe(Path::new("/etc/passwd")).unwrap_err().to_string();
        assert!(error.contains("no ELF executable"), "{error}");
        let error = probe(Path::new("/nowhere/linux")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/linux"), "{error}");
    }
}
