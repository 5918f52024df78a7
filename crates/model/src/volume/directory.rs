//! The entries of a directory.

use super::Ino;
use super::name::ShortName;

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) name: ShortName,
    pub(super) ino: Ino,
    /// Its stable position in the directory: [`super::DirEntry::cookie`].
    pub(super) cookie: u64,
}

/// The contents of a directory inode.
#[derive(Debug)]
pub(super) struct Directory {
    /// The directory that `..` means; of the root, itself.
    pub(super) parent: Ino,
    /// The entries, sorted by name.
    links: Vec<Link>,
    cookie_next: u64,
}

/// The first cookie: `.` and `..` come before.
const COOKIE_FIRST: u64 = 3;

impl Clone for Directory {
    /// Copies a directory. That mostly happens to add another entry: leaves room for it.
    fn clone(&self) -> Directory {
        let mut links = Vec::with_capacity(self.links.len() + 1);
        links.extend_from_slice(&self.links);
        Directory { links, ..*self }
    }
}

impl Directory {
    pub(super) fn new(parent: Ino) -> Directory {
        Directory { parent, links: Vec::new(), cookie_next: COOKIE_FIRST }
    }

    /// Makes a directory with given entries; the error says what cannot be.
    pub(super) fn from_parts(
        parent: Ino,
        links: Vec<Link>,
        cookie_next: u64,
    ) -> Result<Directory, String> {
        if !links.is_sorted_by(|a, b| a.name < b.name) {
            return Err(
                "directory entries are not sorted by name, or one is there twice".to_owned()
            );
        }
        let mut cookies: Vec<u64> = links.iter().map(|link| link.cookie).collect();
        cookies.sort_unstable();
        let in_bounds = cookies.iter().all(|cookie| (COOKIE_FIRST..cookie_next).contains(cookie));
        // Half of the range is more than any directory will ever use up.
        if !in_bounds || !cookies.is_sorted_by(|a, b| a < b) || cookie_next > u64::MAX / 2 {
            return Err("directory entries have wrong cookies".to_owned());
        }
        Ok(Directory { parent, links, cookie_next: cookie_next.max(COOKIE_FIRST) })
    }

    pub(super) fn links(&self) -> &[Link] {
        &self.links
    }

    pub(super) fn cookie_next(&self) -> u64 {
        self.cookie_next
    }

    fn find(&self, name: &ShortName) -> Result<usize, usize> {
        self.links.binary_search_by(|link| link.name.cmp(name))
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Link> {
        self.find(&name.into()).ok().map(|at| &self.links[at])
    }

    /// Makes `name` mean `ino`. A new entry comes last in the order of cookies; one that is there
    /// keeps its place.
    pub(super) fn set(&mut self, name: &ShortName, ino: Ino) {
        match self.find(name) {
            Ok(at) => self.links[at].ino = ino,
            Err(at) => {
                let cookie = self.cookie_next;
                self.cookie_next += 1;
                self.links.insert(at, Link { name: name.clone(), ino, cookie });
            }
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Ok(at) = self.find(&name.into()) {
            self.links.remove(at);
        }
    }
}
