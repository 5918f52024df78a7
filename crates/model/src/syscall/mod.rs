//! What the VFS adds to a volume: paths, permissions, open files, and the order of errors.
//!
//! One file per system call. Each says its rules in the order in which Linux (6.18) applies them and
//! names the function of the kernel or the manual page that has them. The rules that several calls
//! share are in `resolve` (paths), `permission` and `file` (open files).
//!
//! Two things are outside of this specification, and [`Model`] tells which operations they concern:
//! calls that would not return ([`Model::would_block`]), and calls whose result depends on something
//! that is not part of a file system's state ([`Model::unspecified`]).

mod access;
mod callers;
mod chdir;
mod chmod;
mod chown;
mod close;
mod copy_file_range;
mod counts;
mod fallocate;
mod file;
mod fsync;
mod getdents;
mod lacking;
mod library;
mod link;
mod list_piece;
mod lseek;
mod mkdir;
mod mknod;
mod mmap;
mod network;
mod open;
mod permission;
mod process;
mod read;
mod readlink;
mod rename;
mod resolve;
mod rmdir;
mod small;
mod stat;
mod state;
mod statfs;
mod steps;
mod symlink;
#[cfg(test)]
mod testing;
mod truncate;
mod unlink;
mod unspecified;
mod utimens;
mod write;
mod xattr;

use std::collections::BTreeSet;
use std::sync::Arc;

use fathom_core::{
    Caller, Capability, Digest, Errno, HarnessFault, Op, Outcome, Slot, Subject, Tree,
};

use crate::config::{Config, ConfigError};
use crate::quirks::Quirks;
use crate::volume::{Ino, TreeOptions, Volume};
use callers::Others;
use process::Process;

pub use counts::Change;

/// A volume with the processes that use it: executes operations.
///
/// The root of the volume is the root of every process and its first working directory: a path that
/// starts with `/` starts there, and `..` does not lead out of it. There is one caller, number 0,
/// unless [`Model::execute_as`] names others; callers share the volume and nothing else.
#[derive(Clone, Debug)]
pub struct Model {
    volume: Volume,
    /// The process that executes: between operations caller 0.
    current: Arc<Process>,
    /// All other processes.
    others: Others,
    /// Open files that lost a name, where that shows.
    hidden: Vec<network::Hidden>,
    /// Directories that were moved to another one, where that shows.
    moved: Vec<Ino>,
}

impl Model {
    /// An empty file system and a process without open files.
    ///
    /// # Errors
    /// If the configuration cannot work.
    pub fn new(config: Config) -> Result<Model, ConfigError> {
        let current = Arc::new(Process::first(&config));
        let (others, hidden) = (Others::default(), Vec::new());
        Ok(Model { volume: Volume::new(config)?, current, others, hidden, moved: Vec::new() })
    }

    /// The file system.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Digest of the visible tree.
    pub fn digest(&self) -> Digest {
        self.volume.digest()
    }

    /// What a slot of caller 0 holds.
    pub fn slot_ino(&self, slot: Slot) -> Option<Ino> {
        self.current.files.get(slot).map(|file| file.ino)
    }

    /// Whether any slot of any caller holds something.
    pub fn has_open_files(&self) -> bool {
        self.open_files().next().is_some()
    }

    /// Executes one operation of caller 0.
    pub fn execute(&mut self, op: &Op) -> Outcome {
        let outcome = self.call(op);
        if outcome.result.is_ok() {
            self.note_names(op);
        }
        outcome
    }

    fn call(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Open { slot, path, flags, mode } => self.open(*slot, path, *flags, *mode).into(),
            Op::Close { slot } => self.close(*slot).into(),
            Op::Read { slot, len } => data(self.read(*slot, *len)),
            Op::Pread { slot, offset, len } => data(self.pread(*slot, *offset, *len)),
            Op::Write { slot, data } => self.write(*slot, *data).into(),
            Op::Pwrite { slot, offset, data } => self.pwrite(*slot, *offset, *data).into(),
            Op::Lseek { slot, offset, whence } => self.lseek(*slot, *offset, *whence).into(),
            Op::Truncate { target, len } => self.truncate(target, *len).into(),
            Op::Fallocate { slot, mode, offset, len } => {
                self.fallocate(*slot, *mode, *offset, *len).into()
            }
            Op::Mkdir { path, mode } => self.mkdir(path, *mode).into(),
            Op::Rmdir { path } => self.rmdir(path).into(),
            Op::Unlink { path } => self.unlink(path).into(),
            Op::Rename { from, to, flags } => self.rename(from, to, *flags).into(),
            Op::Link { from, to, follow } => self.link(from, to, *follow).into(),
            Op::LinkSlot { slot, to, by_proc } => self.link_slot(*slot, to, *by_proc).into(),
            Op::Symlink { target, path } => self.symlink(target, path).into(),
            Op::Readlink { path, len } => data(self.readlink(path, *len)),
            Op::Mknod { path, mode, dev } => self.mknod(path, *mode, *dev).into(),
            Op::Chmod { target, mode } => self.chmod(target, *mode).into(),
            Op::Chown { target, uid, gid } => self.chown(target, *uid, *gid).into(),
            Op::Utimens { target, atime, mtime } => self.utimens(target, *atime, *mtime).into(),
            Op::Setxattr { target, name, value, flags } => {
                self.setxattr(target, name, *value, *flags).into()
            }
            Op::Getxattr { target, name, len } => outcome(self.getxattr(target, name, *len)),
            Op::Listxattr { target, len } => outcome(self.listxattr(target, *len)),
            Op::Removexattr { target, name } => self.removexattr(target, name).into(),
            Op::Stat { target } => outcome(self.stat(target)),
            Op::Getdents { slot } => outcome(self.getdents(*slot)),
            Op::ListPiece { slot, back, len } => outcome(self.list_piece(*slot, *back, *len)),
            Op::Statfs { target } => outcome(self.statfs(target)),
            Op::Access { target, mode, .. } => self.access(target, *mode).into(),
            Op::Fsync { slot } | Op::Fdatasync { slot } => self.fsync(*slot).into(),
            Op::Sync | Op::Wait { .. } | Op::Server { .. } => Outcome::ok(0),
            Op::Syncfs { slot } => self.syncfs(*slot).into(),
            Op::SyncFileRange { slot, offset, len, flags } => {
                self.sync_file_range(*slot, *offset, *len, *flags).into()
            }
            Op::MmapStore { slot, offset, data, sync } => {
                self.mmap_store(*slot, *offset, *data, *sync).into()
            }
            Op::MmapLoad { slot, offset, len } => data(self.mmap_load(*slot, *offset, *len)),
            Op::CopyFileRange { from, from_offset, to, to_offset, len, flags } => {
                self.copy_file_range((*from, *from_offset), (*to, *to_offset), *len, *flags).into()
            }
            Op::Umask { mask } => Outcome::ok(self.set_umask(*mask)),
            Op::Identity { uid, gid, groups } => Outcome::ok(self.identity(*uid, *gid, groups)),
            Op::Remount => Outcome::ok(self.remount()),
        }
    }

    fn quirks(&self) -> &Quirks {
        &self.volume.config().quirks
    }
}

/// The outcome of a call that returns bytes.
fn data(result: Result<Vec<u8>, Errno>) -> Outcome {
    outcome(result.map(|bytes| Outcome::data(&bytes)))
}

/// The outcome of a call that returns more than a number.
fn outcome(result: Result<Outcome, Errno>) -> Outcome {
    result.unwrap_or_else(Outcome::err)
}

impl Subject for Model {
    fn name(&self) -> String {
        let config = self.volume.config();
        match (config.mutant, config.race) {
            (Some(mutant), _) => format!("model:{}", mutant.name()),
            (None, Some(race)) => format!("model:{}", race.name()),
            (None, None) => "model".to_owned(),
        }
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::from([Capability::Identity, Capability::Remount, Capability::Devices])
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        Ok(self.execute(op))
    }

    fn apply_as(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        Ok(self.execute_as(caller, op))
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        Ok(self.volume.tree(TreeOptions { segments: true, times: true }))
    }
}
