//! The entries of a directory.

use std::sync::Arc;

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
#[derive(Clone, Debug)]
pub(super) struct Directory {
    /// The directory that `..` means; of the root, itself.
    pub(super) parent: Ino,
    links: Links,
    cookie_next: u64,
}

/// Entries, sorted by name. A small directory is one list, which is the fastest to copy; a large one is many, of
/// which a change copies one.
#[derive(Debug)]
enum Links {
    Few(Vec<Link>),
    /// None of them is empty.
    Many(Vec<Arc<Vec<Link>>>),
}

/// The first cookie: `.` and `..` come before.
pub(super) const COOKIE_FIRST: u64 = 3;

/// Entries of one list. Two hundred are copied in about a microsecond.
const LIST_MAX: usize = 200;

impl Clone for Links {
    fn clone(&self) -> Links {
        match self {
            Links::Few(links) => Links::Few(with_room(links)),
            Links::Many(lists) => Links::Many(lists.clone()),
        }
    }
}

/// Copies a list. That mostly happens to add another entry: leaves room for it.
fn with_room(links: &[Link]) -> Vec<Link> {
    let mut copy = Vec::with_capacity(links.len() + 1);
    copy.extend_from_slice(links);
    copy
}

/// The list in which a name is, or would be; there is at least one.
fn list_of(lists: &[Arc<Vec<Link>>], name: &ShortName) -> usize {
    let ends_before = |list: &Arc<Vec<Link>>| list.last().is_some_and(|last| last.name < *name);
    lists.partition_point(ends_before).min(lists.len() - 1)
}

fn find(links: &[Link], name: &ShortName) -> Result<usize, usize> {
    links.binary_search_by(|link| link.name.cmp(name))
}

/// The list itself, if nobody else has it, or a copy of it.
fn own(list: &mut Arc<Vec<Link>>) -> &mut Vec<Link> {
    if Arc::get_mut(list).is_none() {
        *list = Arc::new(with_room(list));
    }
    Arc::get_mut(list).expect("nobody else has it now")
}

impl Links {
    fn new(links: Vec<Link>) -> Links {
        if links.len() <= LIST_MAX {
            return Links::Few(links);
        }
        let half = LIST_MAX / 2;
        Links::Many(links.chunks(half).map(|list| Arc::new(list.to_vec())).collect())
    }

    fn lists(&self) -> impl Iterator<Item = &[Link]> {
        let (few, many) = match self {
            Links::Few(links) => (Some(links.as_slice()), &[][..]),
            Links::Many(lists) => (None, lists.as_slice()),
        };
        few.into_iter().chain(many.iter().map(|list| list.as_slice()))
    }

    fn get(&self, name: &ShortName) -> Option<&Link> {
        let list = match self {
            Links::Few(links) => links,
            Links::Many(lists) => lists.get(list_of(lists, name))?,
        };
        find(list, name).ok().map(|at| &list[at])
    }

    /// Changes the inode of an entry, or adds one with the cookie. Returns whether it was added.
    fn set(&mut self, name: &ShortName, ino: Ino, cookie: u64) -> bool {
        let new = || Link { name: name.clone(), ino, cookie };
        let (links, list) = match self {
            Links::Few(links) => (links, 0),
            Links::Many(lists) => {
                let list = list_of(lists, name);
                (own(&mut lists[list]), list)
            }
        };
        match find(links, name) {
            Ok(at) => {
                links[at].ino = ino;
                return false;
            }
            Err(at) => links.insert(at, new()),
        }
        if links.len() > LIST_MAX {
            let upper = links.split_off(LIST_MAX / 2);
            match self {
                Links::Few(lower) => {
                    *self = Links::Many(vec![Arc::new(std::mem::take(lower)), Arc::new(upper)]);
                }
                Links::Many(lists) => lists.insert(list + 1, Arc::new(upper)),
            }
        }
        true
    }

    fn remove(&mut self, name: &ShortName) {
        match self {
            Links::Few(links) => {
                if let Ok(at) = find(links, name) {
                    links.remove(at);
                }
            }
            Links::Many(lists) => {
                let list = list_of(lists, name);
                let Ok(at) = find(&lists[list], name) else { return };
                own(&mut lists[list]).remove(at);
                if lists[list].is_empty() {
                    lists.remove(list);
                }
                if lists.is_empty() {
                    *self = Links::Few(Vec::new());
                }
            }
        }
    }
}

impl Directory {
    pub(super) fn new(parent: Ino) -> Directory {
        Directory { parent, links: Links::Few(Vec::new()), cookie_next: COOKIE_FIRST }
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
        let links = Links::new(links);
        Ok(Directory { parent, links, cookie_next: cookie_next.max(COOKIE_FIRST) })
    }

    /// The entries, sorted by name.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.lists().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.links.lists().map(<[Link]>::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.links.lists().all(<[Link]>::is_empty)
    }

    pub(super) fn cookie_next(&self) -> u64 {
        self.cookie_next
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Link> {
        self.links.get(&name.into())
    }

    /// Makes `name` mean `ino`. A new entry comes last in the order of cookies; one that is there
    /// keeps its place.
    pub(super) fn set(&mut self, name: &ShortName, ino: Ino) {
        self.cookie_next += u64::from(self.links.set(name, ino, self.cookie_next));
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        self.links.remove(&name.into());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Numbers in an order that looks like none (a full-period generator modulo 2^32).
    fn scattered(count: usize) -> impl Iterator<Item = u32> {
        let next = |last: &u32| Some(last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        std::iter::successors(Some(7), next).take(count)
    }

    fn seen(dir: &Directory) -> Vec<(Vec<u8>, Ino, u64)> {
        dir.links().map(|link| (link.name.as_bytes().to_vec(), link.ino, link.cookie)).collect()
    }

    #[test]
    fn a_directory_of_any_size_is_a_sorted_map_with_stable_cookies() {
        let mut dir = Directory::new(1);
        let mut expected: BTreeMap<Vec<u8>, (Ino, u64)> = BTreeMap::new();
        let mut cookie_next = COOKIE_FIRST;
        for (at, number) in scattered(20_000).enumerate() {
            let name = format!("n{}", number % 3000).into_bytes();
            // It grows to thousands, is emptied, and grows again.
            let grows = !(8_000..14_000).contains(&at);
            if grows && number % 5 != 0 {
                dir.set(&name.as_slice().into(), u64::from(number));
                let (ino, _) = expected.entry(name).or_insert_with(|| {
                    cookie_next += 1;
                    (0, cookie_next - 1)
                });
                *ino = u64::from(number);
            } else {
                dir.remove(&name);
                expected.remove(&name);
            }
            assert_eq!(dir.len(), expected.len());
            assert_eq!(dir.is_empty(), expected.is_empty());
        }
        let all: Vec<_> = expected.iter().map(|(name, of)| (name.clone(), of.0, of.1)).collect();
        assert!(all.len() > 2 * LIST_MAX && matches!(dir.links, Links::Many(_)), "{}", all.len());
        assert_eq!(seen(&dir), all);
        assert!(all.iter().all(|(name, ..)| dir.get(name).is_some()) && dir.get(b"x").is_none());
        let again = Directory::from_parts(1, dir.links().cloned().collect(), cookie_next).unwrap();
        assert_eq!(seen(&again), all);
        all.iter().for_each(|(name, ..)| dir.remove(name));
        assert!(dir.is_empty() && matches!(dir.links, Links::Few(_)));
    }

    #[test]
    fn a_copy_of_a_large_directory_shares_all_but_what_is_changed() {
        let mut dir = Directory::new(1);
        for number in scattered(10 * LIST_MAX) {
            dir.set(&number.to_string().as_bytes().into(), 5);
        }
        let before = seen(&dir);
        let mut copy = dir.clone();
        copy.set(&b"5-is-new"[..].into(), 9);
        assert_eq!(seen(&dir), before);
        assert_eq!(copy.len(), dir.len() + 1);
        let (Links::Many(lists), Links::Many(copied)) = (&dir.links, &copy.links) else {
            panic!("two thousand entries are not few")
        };
        let is_shared = |list: &&Arc<Vec<Link>>| copied.iter().any(|one| Arc::ptr_eq(list, one));
        assert_eq!(lists.iter().filter(is_shared).count(), lists.len() - 1);
    }
}
