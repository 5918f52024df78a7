//! Which paths an operation can have changed, so that only these are looked at.
//!
//! What an operation does elsewhere (to the contents of a directory that was renamed, to a file it
//! did not name) shows in the next comparison of whole trees.

use fathom_core::flags::OpenFlags;
use fathom_core::{FsPath, Op, Slot, Target};
use fathom_model::Model;

/// The paths that `op`, just executed, named: what it worked on, and, if it `changed` the tree, the
/// directories whose names it can have changed. Without links and dots in them.
pub fn touched(op: &Op, model: &Model, changed: bool) -> Vec<FsPath> {
    let mut paths = Paths { model, changed, found: Vec::with_capacity(4) };
    match op {
        Op::Open { slot, path, flags, .. } => {
            if flags.contains(OpenFlags::O_CREAT) {
                paths.name(path);
            }
            paths.slot(*slot);
        }
        Op::Mkdir { path, .. }
        | Op::Rmdir { path }
        | Op::Unlink { path }
        | Op::Mknod { path, .. }
        | Op::Symlink { path, .. } => paths.name(path),
        Op::Rename { from, to, .. } => {
            paths.name(from);
            paths.name(to);
        }
        Op::Link { from, to, .. } => {
            paths.target(&Target::Path(from.clone()));
            paths.name(to);
        }
        Op::Write { slot, .. }
        | Op::Pwrite { slot, .. }
        | Op::Fallocate { slot, .. }
        | Op::MmapStore { slot, .. }
        | Op::CopyFileRange { to: slot, .. } => paths.slot(*slot),
        Op::Truncate { target, .. }
        | Op::Chmod { target, .. }
        | Op::Chown { target, .. }
        | Op::Utimens { target, .. }
        | Op::Setxattr { target, .. }
        | Op::Removexattr { target, .. } => paths.target(target),
        // These change nothing, and what they say has been compared.
        Op::Close { .. }
        | Op::Read { .. }
        | Op::Pread { .. }
        | Op::Lseek { .. }
        | Op::Readlink { .. }
        | Op::Getxattr { .. }
        | Op::Listxattr { .. }
        | Op::Stat { .. }
        | Op::Getdents { .. }
        | Op::Statfs { .. }
        | Op::Access { .. }
        | Op::Fsync { .. }
        | Op::Fdatasync { .. }
        | Op::Sync
        | Op::Syncfs { .. }
        | Op::SyncFileRange { .. }
        | Op::MmapLoad { .. }
        | Op::Umask { .. }
        | Op::Identity { .. }
        | Op::Remount => {}
    }
    paths.found
}

struct Paths<'a> {
    model: &'a Model,
    changed: bool,
    found: Vec<FsPath>,
}

impl Paths<'_> {
    fn add(&mut self, path: Option<FsPath>) {
        if let Some(path) = path.filter(|path| !self.found.contains(path)) {
            self.found.push(path);
        }
    }

    /// A name that can have come or gone, and the directory that has it.
    fn name(&mut self, path: &FsPath) {
        let volume = self.model.volume();
        let bytes = path.as_bytes();
        let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (parent, name) = (&bytes[..start], &bytes[start..end]);
        let parent = if parent.is_empty() { FsPath::from(".") } else { FsPath::from(parent) };
        let Some(dir) = volume.find(&parent, true).and_then(|ino| volume.path_of(ino)) else {
            return;
        };
        // A name that is too long is nowhere.
        if !matches!(name, b"" | b"." | b"..") && name.len() <= 255 {
            self.add(Some(dir.join(name)));
        }
        if self.changed {
            self.add(Some(dir));
        }
    }

    fn target(&mut self, target: &Target) {
        let volume = self.model.volume();
        let (path, follow) = match target {
            Target::Path(path) => (path, true),
            Target::Link(path) => (path, false),
            Target::Slot(slot) => return self.slot(*slot),
        };
        self.add(volume.find(path, follow).and_then(|ino| volume.path_of(ino)));
    }

    fn slot(&mut self, slot: Slot) {
        let volume = self.model.volume();
        self.add(self.model.slot_ino(slot).and_then(|ino| volume.path_of(ino)));
    }
}
