//! Path resolution: path_resolution(7), fs/namei.c.

use std::borrow::Cow;

use fathom_core::{Errno, FsPath, Kind, Mode};

use super::Model;
use super::permission::Mask;
use super::steps::Reached;
use crate::volume::{Ino, ROOT};

/// A path of this length and more is `ENAMETOOLONG` (`PATH_MAX`, with its terminating NUL).
pub(super) const PATH_BYTES_MAX: usize = 4096;
/// A longer component is `ENAMETOOLONG`.
const NAME_BYTES_MAX: usize = 255;
/// One symbolic link more is `ELOOP` (`MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    Yes,
    No,
}

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Last<'p> {
    Name(Cow<'p, [u8]>),
    Dot,
    DotDot,
    /// The path has no component: `/`.
    Root,
}

/// A path up to its last component (what `filename_parentat` returns).
#[derive(Clone, Debug)]
pub(super) struct Place<'p> {
    /// The directory of the last component.
    pub(super) dir: Ino,
    pub(super) last: Last<'p>,
    /// Slashes follow the last component.
    pub(super) slash: bool,
}

/// Where a resolution is (the kernel's `struct nameidata`).
pub(super) struct PathWalk<'p> {
    at: Ino,
    /// What is left of the path, from `rest_start` on.
    rest: Cow<'p, [u8]>,
    rest_start: usize,
    links_followed: u32,
}

impl<'p> PathWalk<'p> {
    /// Starts at the beginning of a path, which is relative to `directory`; the checks are those of
    /// `getname`.
    fn new(directory: Ino, path: &'p FsPath) -> Result<PathWalk<'p>, Errno> {
        let path = path.as_bytes();
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        Ok(PathWalk { at: directory, rest: Cow::Borrowed(path), rest_start: 0, links_followed: 0 })
    }

    /// The next component: where it starts and ends, and where what follows its slashes starts.
    fn component(&self) -> (usize, usize, usize) {
        let skip = |byte_is: fn(u8) -> bool, from: usize| {
            self.rest[from..]
                .iter()
                .position(|&byte| !byte_is(byte))
                .map_or(self.rest.len(), |n| from + n)
        };
        let start = skip(|byte| byte == b'/', self.rest_start);
        let end = skip(|byte| byte != b'/', start);
        (start, end, skip(|byte| byte == b'/', end))
    }
}

impl Model {
    /// The inode that a path names (`filename_lookup`).
    pub(super) fn resolve(&self, path: &FsPath, follow: Follow) -> Result<Ino, Errno> {
        if let Reached::Node(found) = self.current.reached {
            return Ok(found);
        }
        self.resolve_last(self.begin_walk(path)?, follow, false)
    }

    /// The inode that a path names, if it is a directory, else `ENOTDIR` (`LOOKUP_DIRECTORY`).
    pub(super) fn resolve_dir(&self, path: &FsPath, follow: Follow) -> Result<Ino, Errno> {
        self.resolve_last(self.begin_walk(path)?, follow, true)
    }

    /// The directory and the last component of a path, which need not exist.
    pub(super) fn resolve_parent<'p>(&self, path: &'p FsPath) -> Result<Place<'p>, Errno> {
        self.walk_to_last(&mut self.begin_walk(path)?)
    }

    /// A resolution that starts in the working directory of the caller (`path_init`), or where a call that is
    /// done in steps has come to.
    pub(super) fn begin_walk<'p>(&self, path: &'p FsPath) -> Result<PathWalk<'p>, Errno> {
        let start = match self.current.reached {
            Reached::Directory(directory) => directory,
            Reached::Nothing | Reached::Node(_) => self.current.directory,
        };
        PathWalk::new(start, path)
    }

    /// `path_lookupat`, `lookup_last`
    fn resolve_last(
        &self,
        mut walk: PathWalk<'_>,
        mut follow: Follow,
        mut directory: bool,
    ) -> Result<Ino, Errno> {
        loop {
            let place = self.walk_to_last(&mut walk)?;
            if place.slash && matches!(place.last, Last::Name(_)) {
                // "dir/" and "link/" mean the directory.
                (follow, directory) = (Follow::Yes, true);
            }
            let ino = self.lookup_last(&place)?;
            let kind = self.volume.attr(ino)?.kind;
            if kind == Kind::Symlink && follow == Follow::Yes {
                self.follow_last(&mut walk, place.dir, ino)?;
                continue;
            }
            if directory && kind != Kind::Dir {
                return Err(Errno::ENOTDIR);
            }
            return Ok(ino);
        }
    }

    /// Goes through all components but the last (`link_path_walk`).
    pub(super) fn walk_to_last<'p>(&self, walk: &mut PathWalk<'p>) -> Result<Place<'p>, Errno> {
        loop {
            let (start, end, next) = walk.component();
            if walk.rest_start == 0 && start > 0 {
                walk.at = ROOT;
            }
            if start == end {
                return Ok(Place { dir: walk.at, last: Last::Root, slash: false });
            }
            self.permission(walk.at, Mask::SEARCH)?;
            if next == walk.rest.len() {
                let name = match &walk.rest {
                    Cow::Borrowed(path) => Cow::Borrowed(&path[start..end]),
                    Cow::Owned(path) => Cow::Owned(path[start..end].to_vec()),
                };
                walk.rest_start = next;
                return Ok(Place { dir: walk.at, last: last(name), slash: next > end });
            }
            let ino = self.lookup(walk.at, &walk.rest[start..end])?;
            walk.rest_start = next;
            match self.volume.attr(ino)?.kind {
                Kind::Dir => walk.at = ino,
                Kind::Symlink => self.follow(walk, ino)?,
                _ => return Err(Errno::ENOTDIR),
            }
        }
    }

    /// The inode of the last component.
    pub(super) fn lookup_last(&self, place: &Place<'_>) -> Result<Ino, Errno> {
        match &place.last {
            Last::Name(name) => self.lookup(place.dir, name),
            Last::Dot | Last::Root => Ok(place.dir),
            Last::DotDot => self.volume.parent(place.dir),
        }
    }

    /// One component in one directory. Every file system checks the length before it looks.
    pub(super) fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino, Errno> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.volume.lookup(dir, name)
    }

    /// Follows a symbolic link at the end of a path. Only there `fs.protected_symlinks` counts: in a
    /// sticky directory that everybody can write, the link must belong to the caller or to the
    /// directory's owner (`may_follow_link`).
    pub(super) fn follow_last(
        &self,
        walk: &mut PathWalk<'_>,
        dir: Ino,
        link: Ino,
    ) -> Result<(), Errno> {
        self.follow(walk, link)?;
        if !self.quirks().protected_symlinks {
            return Ok(());
        }
        let (dir, link) = (self.volume.attr(dir)?, self.volume.attr(link)?);
        let sticky_writable = Mode::S_ISVTX | 0o002;
        let trusted = self.current.identity.uid == link.uid || dir.uid == link.uid;
        if !trusted && dir.mode.0 & sticky_writable == sticky_writable {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// Puts the target of a symbolic link before what is left of the path (`pick_link`).
    fn follow(&self, walk: &mut PathWalk<'_>, link: Ino) -> Result<(), Errno> {
        if walk.links_followed == LINKS_MAX {
            return Err(Errno::ELOOP);
        }
        walk.links_followed += 1;
        let mut path = self.volume.readlink(link)?.as_bytes().to_vec();
        if walk.rest_start < walk.rest.len() {
            path.push(b'/');
            path.extend_from_slice(&walk.rest[walk.rest_start..]);
        }
        walk.rest = Cow::Owned(path);
        walk.rest_start = 0;
        Ok(())
    }
}

fn last(name: Cow<'_, [u8]>) -> Last<'_> {
    match &*name {
        b"." => Last::Dot,
        b".." => Last::DotDot,
        _ => Last::Name(name),
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;

    use super::super::testing::*;
    use crate::quirks::Quirks;

    #[test]
    fn components_are_looked_up_in_order() {
        let mut m = model();
        given(
            &mut m,
            &[mkdir("d", 0o755), file("f", 0o644), symlink("f", "l"), symlink("d", "ld")],
        );
        let long = "n".repeat(256);
        let deep = format!("{}x", "x/".repeat(2047));
        let table = [
            ("", Err(E::ENOENT)),
            (".", Ok(0)),
            ("..", Ok(0)),
            ("../../d", Ok(0)),
            ("d/.", Ok(0)),
            ("d/..", Ok(0)),
            ("d//", Ok(0)),
            ("ld/", Ok(0)),
            ("ld/..", Ok(0)),
            ("nope", Err(E::ENOENT)),
            ("nope/x", Err(E::ENOENT)),
            ("f/", Err(E::ENOTDIR)),
            ("f/x", Err(E::ENOTDIR)),
            ("f/.", Err(E::ENOTDIR)),
            ("f/..", Err(E::ENOTDIR)),
            ("l/", Err(E::ENOTDIR)),
            ("l/x", Err(E::ENOTDIR)),
            (long.as_str(), Err(E::ENAMETOOLONG)),
            (deep.as_str(), Err(E::ENOENT)),
        ];
        check(&mut m, &table.map(|(name, expected)| (stat(name), expected)));
    }

    #[test]
    fn a_path_has_at_most_4095_bytes_and_a_name_255() {
        let mut m = model();
        let longest = format!("{}x", "./".repeat(2047));
        let longer = format!("{}xx", "./".repeat(2047));
        assert_eq!((longest.len(), longer.len()), (4095, 4096));
        let table = [
            (mkdir(&longest, 0o755), Ok(0)),
            (rmdir(&longest), Ok(0)),
            (mkdir(&longer, 0o755), Err(E::ENAMETOOLONG)),
            (mkdir(&"n".repeat(255), 0o755), Ok(0)),
            (mkdir(&"n".repeat(256), 0o755), Err(E::ENAMETOOLONG)),
            (mkdir(&format!("nope/{}", "n".repeat(256)), 0o755), Err(E::ENOENT)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn forty_links_are_followed_and_no_more() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644), symlink("f", "l1"), symlink("loop", "loop")]);
        for n in 2..=41 {
            given(&mut m, &[symlink(&format!("l{}", n - 1), &format!("l{n}"))]);
        }
        let table = [
            (stat("l40"), Ok(0)),
            (stat("l41"), Err(E::ELOOP)),
            (stat("loop"), Err(E::ELOOP)),
            (stat("loop/x"), Err(E::ELOOP)),
            (unlink("loop/"), Err(E::ENOTDIR)),
            (mkdir("loop/", 0o755), Err(E::EEXIST)),
            (open(0, "loop", OpenFlags::O_CREAT), Err(E::ELOOP)),
            (open(0, "loop", OpenFlags::O_CREAT | OpenFlags::O_EXCL), Err(E::EEXIST)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn every_directory_needs_search_permission() {
        let mut m = model();
        given(&mut m, &[mkdir("a", 0o755), mkdir("a/b", 0o755), file("a/b/f", 0o644)]);
        given(&mut m, &[chmod("a", 0o600), symlink("a/b/f", "l"), become_user(ALICE)]);
        let table = [
            (stat("a"), Ok(0)),
            (stat("a/b"), Err(E::EACCES)),
            (stat("a/."), Err(E::EACCES)),
            (stat("a/.."), Err(E::EACCES)),
            (stat("a/nope/x"), Err(E::EACCES)),
            (stat("a/"), Ok(0)),
            (stat("l"), Err(E::EACCES)),
        ];
        check(&mut m, &table);
        given(&mut m, &[become_user(0), stat("a/b/f")]);
    }

    #[test]
    fn protected_symlinks_guards_the_last_link_only() {
        let mut m = model_with(Quirks { protected_symlinks: true, ..Quirks::default() });
        given(&mut m, &[mkdir("tmp", 0o1777), mkdir("d", 0o755), file("d/f", 0o644)]);
        given(&mut m, &[become_user(BOB), symlink("../d", "tmp/l"), become_user(ALICE)]);
        check(&mut m, &[(stat("tmp/l"), Err(E::EACCES)), (stat("tmp/l/f"), Ok(0))]);
        given(&mut m, &[become_user(BOB), stat("tmp/l"), become_user(0)]);
        check(&mut m, &[(stat("tmp/l"), Err(E::EACCES))]);
        given(&mut m, &[chmod("tmp", 0o777), stat("tmp/l")]);
    }
}
