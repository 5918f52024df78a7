//! What a designer implements.

use fathom_block::{Geometry, Level, Recorder};
use fathom_core::Errno;

use super::call::Menu;
use super::shadow::{Path, Tree};

/// A condition on the metadata of a mounted volume.
#[derive(Debug)]
pub struct Invariant<D: Design> {
    /// What people call it.
    pub name: &'static str,
    /// Whether it holds; otherwise what is wrong, with the blocks involved.
    pub check: fn(&D, &D::Memory, &Recorder) -> Result<(), String>,
}

/// What a design promises of a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The power failures it claims to survive.
    pub level: Level,
    /// Whether `fsync` makes everything durable, or only the contents of the file (which must have
    /// been durable by name before).
    pub fsync_is_sync: bool,
}

/// An on-disk design: a value that knows how to make, mount and use volumes. What a mounted volume
/// holds in memory is its [`Memory`](Design::Memory), which is cloned with every state: no pointers,
/// no sharing. The device records every write.
///
/// Paths come from a workload that makes sense: what is created does not exist, what is removed does,
/// a directory that is removed is empty. A call that finds no room answers `ENOSPC` and must have
/// changed nothing; any other error is a violation.
pub trait Design: Sync + Sized + 'static {
    /// What a mounted volume holds in memory.
    type Memory: Clone + Send + Sync;

    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// The shape of the device.
    fn geometry(&self) -> Geometry;

    /// What it promises.
    fn promise(&self) -> Promise;

    /// What can be done with it.
    fn menu(&self) -> Menu;

    /// What must be true of a mounted volume.
    fn invariants(&self) -> &'static [Invariant<Self>];

    /// Makes an empty volume.
    fn mkfs(&self, disk: &mut Recorder);

    /// Mounts, with whatever recovery is needed.
    ///
    /// # Errors
    /// If there is no volume that could be mounted.
    fn mount(&self, disk: &mut Recorder) -> Result<Self::Memory, Errno>;

    /// Unmounts: by default, makes everything durable.
    ///
    /// # Errors
    /// As [`sync`](Design::sync).
    fn unmount(&self, memory: &mut Self::Memory, disk: &mut Recorder) -> Result<(), Errno> {
        self.sync(memory, disk)
    }

    /// Reads everything.
    ///
    /// # Errors
    /// If something cannot be read.
    fn read(&self, memory: &Self::Memory, disk: &Recorder) -> Result<Tree, Errno>;

    /// Makes a file, or a directory.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room.
    fn create(
        &self,
        memory: &mut Self::Memory,
        disk: &mut Recorder,
        path: Path,
        is_dir: bool,
    ) -> Result<(), Errno>;

    /// Writes consecutive blocks of a file.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room.
    fn write(
        &self,
        memory: &mut Self::Memory,
        disk: &mut Recorder,
        path: Path,
        place: u8,
        contents: &[u8],
    ) -> Result<(), Errno>;

    /// Cuts a file to length 0.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for the change itself.
    fn truncate(
        &self,
        memory: &mut Self::Memory,
        disk: &mut Recorder,
        path: Path,
    ) -> Result<(), Errno>;

    /// Removes a file or an empty directory.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for the change itself.
    fn remove(
        &self,
        memory: &mut Self::Memory,
        disk: &mut Recorder,
        path: Path,
    ) -> Result<(), Errno>;

    /// Renames.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for the change itself.
    fn rename(
        &self,
        memory: &mut Self::Memory,
        disk: &mut Recorder,
        from: Path,
        to: Path,
    ) -> Result<(), Errno>;

    /// Makes a file durable.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for that.
    fn fsync(
        &self,
        memory: &mut Self::Memory,
        disk: &mut Recorder,
        path: Path,
    ) -> Result<(), Errno>;

    /// Makes everything durable.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for that.
    fn sync(&self, memory: &mut Self::Memory, disk: &mut Recorder) -> Result<(), Errno>;
}
