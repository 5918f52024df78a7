//! What a file system that is a library leaves to whoever uses it: no kernel lies above it, so what
//! the kernel decides says nothing about it.

use fathom_core::flags::{Access, OpenFlags};
use fathom_core::{Errno, FsPath, Kind, Op, Slot, Target};

use super::Model;
use super::resolve::Follow;
use crate::volume::Ino;

/// The flags of open that a library knows, or that mean nothing to it.
const FLAGS: OpenFlags = OpenFlags::O_WRONLY
    .union(OpenFlags::O_RDWR)
    .union(OpenFlags::O_CREAT)
    .union(OpenFlags::O_EXCL)
    .union(OpenFlags::O_TRUNC)
    .union(OpenFlags::O_APPEND)
    .union(OpenFlags::O_CLOEXEC)
    .union(OpenFlags::O_NOCTTY)
    .union(OpenFlags::O_LARGEFILE);

/// The errors that are about the tree. All others are found by the VFS, or are about the size of a
/// disk.
const ERRORS: [Errno; 5] =
    [Errno::ENOENT, Errno::EEXIST, Errno::ENOTDIR, Errno::EISDIR, Errno::ENOTEMPTY];

/// The paths that an operation names.
fn paths(op: &Op) -> Vec<&FsPath> {
    match op {
        Op::Open { path, .. }
        | Op::Mkdir { path, .. }
        | Op::Rmdir { path }
        | Op::Unlink { path } => vec![path],
        Op::Rename { from, to, .. } => vec![from, to],
        _ => Vec::new(),
    }
}

/// Names with one slash between them.
fn is_plain(path: &FsPath, name_bytes_max: u32) -> bool {
    path.as_bytes()
        .split(|byte| *byte == b'/')
        .all(|name| !matches!(name, b"" | b"." | b"..") && name.len() <= name_bytes_max as usize)
}

/// Whether the first path is that of a directory on the way to the second.
fn is_above(dir: &FsPath, path: &FsPath) -> bool {
    let rest = path.as_bytes().strip_prefix(dir.as_bytes());
    rest.is_some_and(|rest| rest.starts_with(b"/"))
}

impl Model {
    /// Why a library need not answer as the reference does, if the subject is one.
    pub(super) fn unspecified_for_library(&self, op: &Op) -> Option<&'static str> {
        if !self.quirks().without_vfs {
            return None;
        }
        self.unspecified_call(op)
            .or_else(|| self.unspecified_while_open(op))
            .or_else(|| self.unspecified_space(op))
            .or_else(|| self.unspecified_error(op))
    }

    fn unspecified_call(&self, op: &Op) -> Option<&'static str> {
        let quirks = self.quirks();
        if !paths(op).into_iter().all(|path| is_plain(path, quirks.name_bytes_max)) {
            return Some("taking a path apart is the business of the VFS");
        }
        match op {
            Op::Open { path, flags, .. } => {
                let writes = matches!(flags.access(), Access::Write | Access::ReadWrite);
                let plain = FLAGS.contains(*flags)
                    && flags.access() != Access::Neither
                    && (writes || !flags.contains(OpenFlags::O_TRUNC))
                    && (flags.contains(OpenFlags::O_CREAT) || !flags.contains(OpenFlags::O_EXCL));
                (!plain || self.kind_at(path) == Some(Kind::Dir))
                    .then_some("a library opens files, with few flags")
            }
            Op::Truncate { target: Target::Path(_) | Target::Link(_), .. } => {
                Some("a library truncates open files only")
            }
            Op::Rename { flags, .. } if !flags.is_empty() => Some("a library knows no such flags"),
            Op::Rename { from, to, .. } if is_above(to, from) => {
                Some("the VFS refuses a rename over a directory above")
            }
            Op::Rename { from, to, .. } if quirks.rename_never_replaces => {
                (from != to && self.kind_at(to).is_some()).then_some("it does not replace a name")
            }
            _ => None,
        }
    }

    fn unspecified_while_open(&self, op: &Op) -> Option<&'static str> {
        if !self.quirks().open_files_alone {
            return None;
        }
        let busy = match op {
            Op::Open { slot, path, .. } => self.is_open_elsewhere(path, Some(*slot)),
            Op::Unlink { path } => self.is_open_elsewhere(path, None),
            Op::Rename { from, to, .. } => {
                let moves_dir = self.kind_at(from) == Some(Kind::Dir);
                (moves_dir && self.current.files.iter().next().is_some())
                    || self.is_open_elsewhere(from, None)
                    || self.is_open_elsewhere(to, None)
            }
            _ => false,
        };
        busy.then_some("a file that is open must be left alone")
    }

    /// What would not fit, or would not be where the reference puts it.
    fn unspecified_space(&self, op: &Op) -> Option<&'static str> {
        let (slot, end) = match op {
            Op::Pread { slot, offset, .. } | Op::Pwrite { slot, offset, .. } => (*slot, *offset),
            Op::Truncate { target: Target::Slot(slot), len } => (*slot, *len),
            _ => return None,
        };
        let file = self.file(slot).ok()?;
        let size = self.volume.attr(file.ino).ok()?.size;
        let hole_bytes = u64::try_from(end).unwrap_or(0).saturating_sub(size);
        if hole_bytes > self.quirks().hole_bytes_max {
            return Some("offsets have fewer bits, and so many zeros may not fit");
        }
        let empty = matches!(op, Op::Pwrite { data, .. } if data.len == 0);
        if empty && hole_bytes > 0 && self.quirks().empty_write_extends {
            return Some("a write of nothing behind the end makes the file longer");
        }
        let appends = matches!(op, Op::Pwrite { .. }) && file.flags.contains(OpenFlags::O_APPEND);
        (appends && hole_bytes > 0 && self.quirks().append_behind_end_stays)
            .then_some("a write behind the end is not moved to the end")
    }

    fn unspecified_error(&self, op: &Op) -> Option<&'static str> {
        match self.clone().execute(op).result {
            Err(errno)
                if errno != Errno::ENOENT
                    && matches!(op, Op::Rename { from, .. } if self.at(from).is_none()) =>
            {
                Some("which of two errors is found first is the business of the VFS")
            }
            Err(errno) if !ERRORS.contains(&errno) => Some("the VFS finds this error"),
            _ => None,
        }
    }

    fn at(&self, path: &FsPath) -> Option<Ino> {
        self.resolve(path, Follow::No).ok()
    }

    fn kind_at(&self, path: &FsPath) -> Option<Kind> {
        self.volume.attr(self.at(path)?).ok().map(|attr| attr.kind)
    }

    fn is_open_elsewhere(&self, path: &FsPath, here: Option<Slot>) -> bool {
        let Some(ino) = self.at(path) else { return false };
        let mut open = self.current.files.iter();
        open.any(|(slot, file)| file.ino == ino && Some(slot) != here.map(usize::from))
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Pattern;

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    const NEW: OpenFlags = OpenFlags::O_CREAT.union(OpenFlags::O_RDWR);

    fn rename(from: &str, to: &str) -> Op {
        Op::Rename {
            from: path(from),
            to: path(to),
            flags: fathom_core::flags::RenameFlags::empty(),
        }
    }

    fn truncate(slot: Slot, len: i64) -> Op {
        Op::Truncate { target: Target::Slot(slot), len }
    }

    #[test]
    fn a_library_is_asked_only_what_it_decides_itself() {
        let mut m = model_with(Quirks::profile("littlefs").unwrap());
        given(&mut m, &[mkdir("d", 0o700), open(0, "f", NEW), open(1, "d/g", NEW)]);
        assert_eq!(m.volume().tree(Default::default()).entries[&path("d")].mode.0, 0o755);
        let table = [
            (mkdir("e", 0o755), false),
            (mkdir("d", 0o755), false),
            (mkdir("e/", 0o755), true),
            (mkdir("./e", 0o755), true),
            (mkdir("missing/e", 0o755), false),
            (mkdir(&"e".repeat(256), 0o755), true),
            (open(2, "d", OpenFlags::empty()), true),
            (open(2, "d", OpenFlags::O_RDWR), true),
            (open(2, "h", NEW | OpenFlags::O_DIRECT), true),
            (open(2, "h", NEW | OpenFlags::O_APPEND), false),
            (open(2, "f", OpenFlags::empty()), true),
            (open(0, "f", OpenFlags::empty()), false),
            (write(0, 1, 5), false),
            (close(3), true),
            (close(0), false),
            (Op::Unlink { path: path("f") }, true),
            (Op::Unlink { path: path("d") }, false),
            (Op::Rmdir { path: path("d") }, false),
            (rename("f", "h"), true),
            (rename("d/x", "d"), true),
            (rename("x", "f/y"), true),
            (rename("x", "d/y"), false),
            (rename("d", "e"), true),
            (Op::Pwrite { slot: 0, offset: 1, data: Pattern { seed: 1, len: 0 } }, true),
            (Op::Pwrite { slot: 0, offset: 0, data: Pattern { seed: 1, len: 0 } }, false),
            (truncate(0, 4096), false),
            (truncate(0, -1), true),
            (truncate(0, 1 << 40), true),
            (Op::Truncate { target: at("f"), len: 0 }, true),
        ];
        for (row, (op, expected)) in table.iter().enumerate() {
            assert_eq!(m.unspecified(op).is_some(), *expected, "row {row}: {op}");
        }
        given(&mut m, &[close(0), close(1), open(0, "f", OpenFlags::O_WRONLY)]);
        assert_eq!(m.unspecified(&rename("d/g", "h")), None, "only what is open is left alone");
        assert!(m.unspecified(&Op::Pread { slot: 0, offset: 0, len: 1 }).is_some(), "EBADF");
    }

    #[test]
    fn fat_does_not_replace() {
        let mut m = model_with(Quirks::profile("fatfs").unwrap());
        given(&mut m, &[mkdir("d", 0o755), mkdir("e", 0o755)]);
        assert!(m.unspecified(&rename("d", "e")).is_some());
        assert_eq!(m.unspecified(&rename("d", "x")), None);
        assert_eq!(m.unspecified(&rename("d", "d")), None);
    }
}
