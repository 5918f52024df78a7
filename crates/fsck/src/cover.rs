//! What an instrumented checker tells of a run: the branches that it took, and what it compared.
//!
//! `cover/runtime.c` writes the record into a file in memory that the checker inherits; the layout here
//! and there is the same.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::checker::find_program;

/// Branches that the record has room for.
const EDGES_MAX: usize = 1 << 17;
/// Comparisons that the record has room for.
const COMPARISONS_MAX: usize = 1 << 16;
/// The four numbers at the beginning of the record.
const HEAD: usize = 32;
/// Bytes of one comparison: where, and what with what.
const COMPARISON: usize = 24;

/// The size of the record.
pub(crate) const RECORD_BYTES: usize = HEAD + EDGES_MAX + COMPARISONS_MAX * COMPARISON;

/// A comparison that a run made; the operands differed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Comparison {
    /// Where in the program.
    pub(crate) site: u64,
    pub(crate) one: u64,
    pub(crate) other: u64,
}

/// The record of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// A hash of the sequence of branches.
    pub(crate) path: u64,
    /// Branches that were taken, by number.
    pub(crate) edges: BTreeSet<u32>,
    /// Branches that the program has.
    pub(crate) edges_total: u64,
    pub(crate) comparisons: Vec<Comparison>,
}

impl Record {
    /// Reads the record of a run; nothing if the program is not instrumented.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Record> {
        let number = |at: usize| {
            let bytes: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let (path, branches, edges_total) = (number(0)?, number(8)?, number(16)?);
        if branches == 0 {
            return None;
        }
        let taken = bytes.get(HEAD..HEAD + EDGES_MAX)?;
        let edges =
            taken.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at as u32);
        let count = (number(24)? as usize).min(COMPARISONS_MAX);
        let mut comparisons = Vec::with_capacity(count);
        for index in 0..count {
            let at = HEAD + EDGES_MAX + index * COMPARISON;
            comparisons.push(Comparison {
                site: number(at)?,
                one: number(at + 8)?,
                other: number(at + 16)?,
            });
        }
        Some(Record { path, edges: edges.collect(), edges_total, comparisons })
    }
}

/// Why an instrumented checker cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no script for it.
    #[error("there is no way to build {name:?}: there is e2fsprogs")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A program is missing.
    #[error("{program} is not installed: it is in the Debian package {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// The package.
        package: &'static str,
    },
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The build failed.
    #[error("the build failed, see {}: {last}", dir.display())]
    Failed {
        /// The directory with the logs.
        dir: PathBuf,
        /// The last line that it printed.
        last: String,
    },
}

/// Builds a checker with the compiler's hooks from Debian's source, in a directory. Returns the program.
///
/// # Errors
/// If something is missing, or the build fails.
pub fn build(name: &str, dir: &Path) -> Result<PathBuf, BuildError> {
    if name != "e2fsprogs" {
        return Err(BuildError::Unknown { name: name.to_owned() });
    }
    let needs =
        [("clang", "clang"), ("make", "make"), ("apt-get", "apt"), ("dpkg-source", "dpkg-dev")];
    require(&needs)?;
    let runtime = write(dir, "runtime.c", include_str!("../cover/runtime.c"))?;
    write(dir, "fetch-source.sh", include_str!("../cover/fetch-source.sh"))?;
    let script = write(dir, "build.sh", include_str!("../cover/build-e2fsprogs.sh"))?;
    run_script(&script, &[runtime.as_os_str(), dir.as_os_str()], dir)?;
    Ok(dir.join("e2fsck"))
}

/// Unpacks Debian's source of a package with a suite of images, in a directory. Returns the directory of its
/// tests.
///
/// # Errors
/// If something is missing, or there is no such package.
pub fn unpack(package: &str, dir: &Path) -> Result<PathBuf, BuildError> {
    require(&[("apt-get", "apt"), ("dpkg-source", "dpkg-dev")])?;
    let script = write(dir, "fetch-source.sh", include_str!("../cover/fetch-source.sh"))?;
    run_script(&script, &[package.as_ref(), dir.as_os_str()], dir)?;
    Ok(dir.join("source/tests"))
}

fn require(needs: &[(&'static str, &'static str)]) -> Result<(), BuildError> {
    match needs.iter().find(|(program, _)| find_program(program).is_none()) {
        Some((program, package)) => Err(BuildError::Missing { program, package }),
        None => Ok(()),
    }
}

fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf, BuildError> {
    let path = dir.join(name);
    let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, text));
    written.map(|()| path.clone()).map_err(|source| BuildError::Io { path, source })
}

fn run_script(script: &Path, words: &[&OsStr], dir: &Path) -> Result<(), BuildError> {
    let output = Command::new("sh")
        .arg(script)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BuildError::Io { path: script.to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = text.lines().last().unwrap_or("no message").to_owned();
    Err(BuildError::Failed { dir: dir.to_owned(), last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_the_runtime_writes_it() {
        let mut bytes = vec![0; RECORD_BYTES];
        assert_eq!(Record::parse(&bytes), None);
        bytes[0] = 5;
        bytes[8] = 1;
        bytes[16] = 9;
        bytes[24] = 1;
        bytes[HEAD + 3] = 1;
        let at = HEAD + EDGES_MAX;
        (bytes[at], bytes[at + 8], bytes[at + 16]) = (1, 2, 3);
        let record = Record::parse(&bytes).unwrap();
        assert_eq!((record.path, record.edges_total), (5, 9));
        assert_eq!(record.edges, BTreeSet::from([3]));
        assert_eq!(record.comparisons, [Comparison { site: 1, one: 2, other: 3 }]);
    }
}
