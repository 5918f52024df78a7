//! Asks a mounted file system what it says of files beside their contents, without changing anything:
//! nothing is opened, so that no access time moves.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use fathom_block::disks::{Account, Accounts};
use fathom_core::flags::RenameFlags;
use fathom_core::{FsPath, Op, Tree};
use rustix::fs::{AtFlags, FileType, StatxFlags, statx};

/// What is asked for.
const WANTED: StatxFlags = StatxFlags::TYPE.union(StatxFlags::BLOCKS).union(StatxFlags::MTIME);

/// The accounts of those paths that lead to regular files.
pub(super) fn of_paths<'a>(
    root: &OwnedFd,
    paths: impl IntoIterator<Item = &'a FsPath>,
) -> Accounts {
    let account = |path: &FsPath| {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        // What cannot be looked at is told by the tree.
        let stat = statx(root, path.as_bytes(), flags, WANTED).ok()?;
        let is_file = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
        let mtime = (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
        is_file.then_some(Account { blocks_512: stat.stx_blocks, mtime })
    };
    paths.into_iter().filter_map(|path| Some((path.clone(), account(path)?))).collect()
}

/// The accounts of all files of a tree.
pub(super) fn of_tree(root: &OwnedFd, tree: &Tree) -> Accounts {
    of_paths(root, tree.entries.keys())
}

/// The paths that operations may have given to regular files.
#[derive(Debug, Default)]
pub(super) struct NamedPaths(BTreeSet<FsPath>);

impl NamedPaths {
    /// Notes what an operation names. A name too many does no harm.
    pub(super) fn note(&mut self, op: &Op) {
        match op {
            Op::Open { path, .. } | Op::Link { to: path, .. } => drop(self.0.insert(path.clone())),
            Op::Rename { from, to, flags } => {
                self.follow(from, to);
                if flags.contains(RenameFlags::RENAME_EXCHANGE) {
                    self.follow(to, from);
                }
            }
            _ => {}
        }
    }

    /// What had a name below `from` has one below `to`.
    fn follow(&mut self, from: &FsPath, to: &FsPath) {
        let moved = |path: &FsPath| match path.as_bytes().strip_prefix(from.as_bytes())? {
            [] => Some(to.clone()),
            [b'/', rest @ ..] => Some(to.join(rest)),
            _ => None,
        };
        let moved: Vec<FsPath> = self.0.iter().filter_map(moved).collect();
        self.0.extend(moved);
    }

    /// The accounts after an operation, if it makes something durable of files.
    pub(super) fn accounts_after(&self, op: &Op, root: &OwnedFd) -> Accounts {
        match op {
            Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Sync | Op::Syncfs { .. } => {
                of_paths(root, &self.0)
            }
            _ => Accounts::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Mode;
    use fathom_core::flags::OpenFlags;

    use super::*;

    #[test]
    fn names_follow_their_directories() {
        let mut named = NamedPaths::default();
        let mode = Mode(0o644);
        named.note(&Op::Open { slot: 0, path: "a/b".into(), flags: OpenFlags::O_CREAT, mode });
        let (from, to) = ("a".into(), "c".into());
        named.note(&Op::Rename { from, to, flags: RenameFlags::empty() });
        named.note(&Op::Link { from: "c/b".into(), to: "ab".into(), follow: false });
        let paths: Vec<String> = named.0.iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["a/b", "ab", "c/b"]);
    }
}
