//! [`Image`]: a formatted disk in memory that can go back to how it was formatted.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, SeekFrom, ftruncate, memfd_create, seek};

use super::recipe::{Format, Recipe};
use crate::error::SubjectError;

/// Root's programs, which the PATH of a plain `su` does not have.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// A memfd, and what it held after formatting.
pub(super) struct Image {
    memory: OwnedFd,
    bytes: u64,
    /// What is not zero, by offset.
    pristine: Vec<(u64, Vec<u8>)>,
}

impl Image {
    /// Formats a new disk.
    pub(super) fn format(recipe: &Recipe, format: &Format) -> Result<Image, SubjectError> {
        let failed = |error: io::Error| SubjectError::io("make an image in", "memory")(error);
        let make = || -> io::Result<OwnedFd> {
            let memory = memfd_create("fathom-image", MemfdFlags::CLOEXEC)?;
            ftruncate(&memory, recipe.image_bytes)?;
            Ok(memory)
        };
        let memory = make().map_err(failed)?;
        run(format, &memory)?;
        let pristine = data(&memory, recipe.image_bytes).map_err(failed)?;
        Ok(Image { memory, bytes: recipe.image_bytes, pristine })
    }

    /// The memory.
    pub(super) fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// Undoes everything since formatting. Nothing may be attached to it: the cache of a device
    /// would not notice.
    pub(super) fn revert(&mut self) -> Result<(), SubjectError> {
        let revert = || -> io::Result<()> {
            ftruncate(&self.memory, 0)?;
            ftruncate(&self.memory, self.bytes)?;
            for (start, bytes) in &self.pristine {
                let mut done = 0;
                while done < bytes.len() {
                    done += rustix::io::pwrite(&self.memory, &bytes[done..], start + done as u64)?;
                }
            }
            Ok(())
        };
        revert().map_err(SubjectError::io("revert the image in", "memory"))
    }
}

/// The image is the program's standard input, so no path of ours has to be visible to it.
fn run(format: &Format, memory: &OwnedFd) -> Result<(), SubjectError> {
    let [program, arguments @ ..] = format.command.as_slice() else {
        return Err(SubjectError::Format {
            program: String::new(),
            output: "no command".to_owned(),
        });
    };
    let stdin = memory.as_fd().try_clone_to_owned().map_err(SubjectError::io("share", "memory"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(find(program, &format!("{path}:{SBIN}")))
        .args(arguments)
        .arg("/proc/self/fd/0")
        .envs(format.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(stdin))
        .output();
    let program = program.clone();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Err(SubjectError::Format {
                program,
                output: String::from_utf8_lossy(&text).trim().to_owned(),
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(SubjectError::NoProgram { program, package: format.package.clone() })
        }
        Err(error) => Err(SubjectError::io("run", program)(error)),
    }
}

/// Where a program is; its bare name if it is nowhere.
fn find(program: &str, path: &str) -> PathBuf {
    let candidates = path.split(':').map(|dir| PathBuf::from(dir).join(program));
    candidates.into_iter().find(|file| file.is_file()).unwrap_or_else(|| program.into())
}

/// What the memory holds, without its holes.
fn data(memory: &OwnedFd, size: u64) -> io::Result<Vec<(u64, Vec<u8>)>> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(memory, SeekFrom::Data(at)) {
            Err(rustix::io::Errno::NXIO) => break,
            start => start?,
        };
        let end = seek(memory, SeekFrom::Hole(start))?;
        let mut bytes = vec![0; (end - start) as usize];
        let mut done = 0;
        while done < bytes.len() {
            done += rustix::io::pread(memory, &mut bytes[done..], start + done as u64)?;
        }
        segments.push((start, bytes));
        at = end;
    }
    Ok(segments)
}
