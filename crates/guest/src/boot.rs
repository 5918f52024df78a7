//! [`Boot`]: what a guest is given, and the command line that its kernel gets.
//!
//! Everything is handed over at boot, through files in a private directory: a guest with a clock of its
//! own that waited for input would jump to its next timer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{GuestError, Result};
use crate::kernel::Kernel;

/// The hidden argument that makes the program the keeper of a guest.
pub const KEEPER: &str = "guest-keeper";
/// The hidden argument that makes the program the first process of a guest.
pub const INIT: &str = "guest-init";
/// The name under which the program loads modules in a guest.
pub const MODPROBE: &str = "fathom-modprobe";

/// Where a guest sees its private directory.
pub const MESSAGES: &str = "/dev/fathom";

/// The memory of a guest, unless it is said otherwise.
pub const MEMORY_MIB: u32 = 512;

/// When a guest's own clock starts: 2025-01-01, in nanoseconds.
const CLOCK_START: u64 = 1_735_689_600_000_000_000;

/// Under these numbers the kernel finds what the outputs of its command go to.
pub(crate) const STDOUT: i32 = 100;
pub(crate) const STDERR: i32 = 101;

/// Everything that determines a guest.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The kernel.
    pub kernel: Kernel,
    /// Where its random bytes come from.
    pub seed: u64,
    /// Its memory.
    pub memory_mib: u32,
    /// The program that keeps the guest and is its first process: this one, unless it is a test.
    pub program: PathBuf,
    /// What runs in it: a program and its arguments.
    pub command: Vec<OsString>,
    /// Where it starts.
    pub directory: PathBuf,
    /// The environment that it sees, in addition to the fixed one.
    pub environment: Vec<(String, String)>,
    /// Directories of the host that it may change.
    pub writable: Vec<PathBuf>,
    /// The size of the terminal that standard output and standard error are, if they are one.
    pub terminals: [Option<(u16, u16)>; 2],
    /// Further words for the kernel's command line.
    pub kernel_arguments: Vec<String>,
}

impl Boot {
    /// A guest that runs a command, as it is by default.
    ///
    /// # Errors
    /// If this program does not know where it is.
    pub fn new(kernel: &Kernel, seed: u64, command: Vec<OsString>) -> Result<Boot> {
        let program = std::env::current_exe().map_err(GuestError::io("where is this program?"))?;
        let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Ok(Boot {
            kernel: kernel.clone(),
            seed,
            memory_mib: if kernel.has_kasan { 2 * MEMORY_MIB } else { MEMORY_MIB },
            program,
            command,
            directory,
            environment: Vec::new(),
            writable: Vec::new(),
            terminals: [None, None],
            kernel_arguments: kernel.parameters.clone(),
        })
    }

    /// What the keeper has to know.
    pub(crate) fn keeper_plan(&self, private: &Path) -> Result<KeeperPlan> {
        let mut writable = vec![private.to_owned()];
        for place in &self.writable {
            let what = || format!("the guest is to write to {}", place.display());
            writable.push(place.canonicalize().map_err(GuestError::io(what()))?);
        }
        Ok(KeeperPlan {
            kernel: self.kernel.path.clone(),
            arguments: self.arguments()?,
            writable,
            seed: self.kernel.has_time_travel.then_some(self.seed),
            release: self.kernel.release.clone(),
        })
    }

    /// What the first process of the guest has to know.
    pub(crate) fn init_plan(&self) -> InitPlan {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        InitPlan {
            command: self.command.iter().map(text).collect(),
            directory: self.directory.clone(),
            environment: self.environment.clone(),
            terminals: self.terminals,
            modules: self.kernel.modules.clone(),
            build_id: build_id(&self.program),
            program: self.program.clone(),
        }
    }

    /// The same in every guest of one kernel and one program: a kernel makes its random numbers of its
    /// command line, too. So the private directory is not named: it is where the kernel was started.
    fn arguments(&self) -> Result<Vec<String>> {
        let program = self.program.to_string_lossy();
        if program.contains(['"', '\n']) {
            return Err(GuestError::Path { path: self.program.clone() });
        }
        let mut words = vec![
            format!("mem={}M", self.memory_mib),
            "rootfstype=hostfs".to_owned(),
            "rootflags=/".to_owned(),
            "rw".to_owned(),
            format!("init=\"{program}\""),
            "con=null".to_owned(),
            "con0=null,fd:1".to_owned(),
            "ssl=null".to_owned(),
            format!("ssl0=null,fd:{STDOUT}"),
            format!("ssl1=null,fd:{STDERR}"),
            "umid=uml".to_owned(),
            // Warnings and errors; what file systems say at every mount is below that.
            "loglevel=6".to_owned(),
            "oops=panic".to_owned(),
        ];
        if self.kernel.has_time_travel {
            words.push("time-travel=inf-cpu".to_owned());
            words.push(format!("time-travel-start={CLOCK_START}"));
        }
        words.extend(self.kernel_arguments.iter().cloned());
        words.extend(["--", INIT].map(str::to_owned));
        Ok(words)
    }
}

/// What a keeper reads from the private directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeeperPlan {
    pub(crate) kernel: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Directories that the guest may change, without links.
    pub(crate) writable: Vec<PathBuf>,
    /// Where its random bytes come from; the host's if there is none.
    pub(crate) seed: Option<u64>,
    pub(crate) release: String,
}

/// What the first process of a guest reads from the private directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InitPlan {
    pub(crate) command: Vec<String>,
    pub(crate) directory: PathBuf,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) terminals: [Option<(u16, u16)>; 2],
    pub(crate) modules: Option<PathBuf>,
    pub(crate) build_id: String,
    pub(crate) program: PathBuf,
}

/// What distinguishes one build of the program from another: the linker's build id, or else its size
/// and its time.
pub fn build_id(program: &Path) -> String {
    let noted = std::fs::read(program).ok().and_then(|bytes| noted_build_id(&bytes));
    noted.unwrap_or_else(|| {
        let meta = std::fs::metadata(program).ok();
        let time = meta.as_ref().and_then(|meta| meta.modified().ok());
        let time = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        format!("{}-{}", meta.map_or(0, |meta| meta.len()), time.unwrap_or_default().as_secs())
    })
}

/// The build id in the notes of a 64-bit ELF file (elf(5)).
fn noted_build_id(elf: &[u8]) -> Option<String> {
    const NOTE: u32 = 4;
    const BUILD_ID: u32 = 3;
    let half = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(elf.get(at..at + 8)?.try_into().ok()?) as usize);
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (headers, size, count) = (long(32)?, usize::from(half(54)?), usize::from(half(56)?));
    for header in (0..count).map(|index| headers + index * size) {
        if word(header)? != NOTE {
            continue;
        }
        let (mut at, end) = (long(header + 8)?, long(header + 8)? + long(header + 32)?);
        while at + 12 <= end {
            let (name, data) = (word(at)? as usize, word(at + 4)? as usize);
            let data_at = at + 12 + name.next_multiple_of(4);
            if word(at + 8)? == BUILD_ID && elf.get(at + 12..at + 16)? == b"GNU\0" {
                let bytes = elf.get(data_at..data_at + data)?;
                return Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
            }
            at = data_at + data.next_multiple_of(4);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_a_build_id() {
        let exe = std::env::current_exe().unwrap();
        assert_eq!(build_id(&exe), build_id(&exe));
        assert!(build_id(&exe).len() >= 8, "{}", build_id(&exe));
        assert_ne!(build_id(&exe), build_id(Path::new("/bin/true")));
        assert_eq!(noted_build_id(b"no executable"), None);
    }
}
