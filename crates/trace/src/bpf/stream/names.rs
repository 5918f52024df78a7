//! Resolves paths as the events so far say: links that were made and removed, mounts. What no event
//! has touched is looked up on the machine.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::{Result, TraceError};
use crate::target::{self, Target};

/// A place without symbolic links: its names from the root of the machine on.
pub(super) type Place = Vec<Vec<u8>>;

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// Links that are followed before the kernel gives up (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// Flags of mount(2).
const MS_BIND: u64 = 4096;
const MS_MOVE: u64 = 8192;
const MS_REMOUNT: u64 = 32;
/// The propagation flags MS_UNBINDABLE, MS_PRIVATE, MS_SLAVE and MS_SHARED.
const MS_PROPAGATION: u64 = 0b1111 << 17;
/// Flag of renameat2(2).
const RENAME_EXCHANGE: u64 = 2;

/// The treatment of the last component of a path by a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    /// Whether a symbolic link there is followed.
    pub(super) follow: bool,
    /// Whether it is only a name in its directory.
    pub(super) parent: bool,
    /// Whether no link is followed anywhere.
    pub(super) no_links: bool,
    /// Whether the call said that something does not exist or is no directory.
    pub(super) missing: bool,
}

/// The end of a resolved path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The place whose file system the call concerns.
    pub(super) at: Place,
    /// A name there that is only a name, or that of a link that is not followed; else empty.
    last: Vec<u8>,
}

impl End {
    /// The whole place, with the last name.
    fn whole(&self) -> Place {
        let mut place = self.at.clone();
        if !self.last.is_empty() {
            place.push(self.last.clone());
        }
        place
    }
}

/// The mounts and symbolic links of the machine, as far as events have told of them.
pub(super) struct Names {
    /// Devices of the watched file systems.
    watched: Vec<String>,
    /// Devices by mount point; the last one is on top.
    mounts: BTreeMap<Place, Vec<String>>,
    /// For each name that an event touched: the text of the link that it is, or `None` if it is no
    /// link.
    links: BTreeMap<Place, Option<Vec<u8>>>,
}

impl Names {
    pub(super) fn new(targets: &[Target]) -> Result<Names> {
        let mounts = mounts_now().map_err(|source| TraceError::System {
            doing: format!("cannot read {MOUNTINFO}"),
            source,
        })?;
        let watched = targets.iter().map(|target| target.device.clone()).collect();
        Ok(Names { watched, mounts, links: BTreeMap::new() })
    }

    /// Reads the mounts as they are now.
    pub(super) fn look_at_mounts(&mut self) {
        if let Ok(mounts) = mounts_now() {
            self.mounts = mounts;
        }
    }

    /// Whether a place is on a watched file system.
    pub(super) fn is_inside(&self, place: &[Vec<u8>]) -> bool {
        self.device(place).is_some_and(|device| self.watched.contains(device))
    }

    fn device(&self, place: &[Vec<u8>]) -> Option<&String> {
        let above = (0..=place.len()).rev().map(|len| &place[..len]);
        above.filter_map(|point| self.mounts.get(point)?.last()).next()
    }

    /// Resolves a path to its end, or to where the kernel stopped.
    pub(super) fn resolve(
        &self,
        root: &Place,
        base: Option<&Place>,
        path: &[u8],
        last: Last,
        (pid, tid): (u32, u32),
    ) -> Option<End> {
        let end = |at: Place, last: Vec<u8>| Some(End { at, last });
        let mut at = if path.starts_with(b"/") { root.clone() } else { base?.clone() };
        let mut rest: VecDeque<Vec<u8>> = components(path);
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            let is_last = rest.iter().all(Vec::is_empty);
            if name.is_empty() {
                continue;
            }
            if last.parent && is_last {
                return end(at, name);
            }
            match name.as_slice() {
                b"." => continue,
                b".." => {
                    if last.missing && !exists(&at) {
                        at.pop();
                        return end(at, Vec::new());
                    }
                    if at != *root {
                        at.pop();
                    }
                    continue;
                }
                _ => at.push(name),
            }
            let Some(text) = self.link(&at, (pid, tid)) else { continue };
            let name = at.pop().unwrap_or_default();
            // With a slash behind it, it is followed.
            let stays = is_last && rest.is_empty() && !last.follow;
            links += 1;
            if stays || last.no_links || links > LINKS_MAX {
                return end(at, name);
            }
            if text.starts_with(b"/") {
                at.clone_from(root);
            }
            for name in components(&text).into_iter().rev() {
                rest.push_front(name);
            }
        }
        end(at, Vec::new())
    }

    /// Reads the text of a symbolic link.
    fn link(&self, place: &Place, (pid, tid): (u32, u32)) -> Option<Vec<u8>> {
        let proc = |name: &[u8]| matches!(place.as_slice(), [a, b] if a == b"proc" && b == name);
        if proc(b"self") {
            return Some(pid.to_string().into_bytes());
        }
        if proc(b"thread-self") {
            return Some(format!("{pid}/task/{tid}").into_bytes());
        }
        match self.links.get(place) {
            Some(known) => known.clone(),
            None => {
                fs::read_link(path_of(place)).ok().map(|text| text.as_os_str().as_bytes().to_vec())
            }
        }
    }

    /// Notes what later paths must know of a call that succeeded. `text` is what a new link says.
    pub(super) fn learn(&mut self, call: &str, ends: &[Option<End>; 2], text: &[u8], flags: u64) {
        match (call, ends) {
            ("symlink" | "symlinkat", [Some(link), _]) => {
                self.links.insert(link.whole(), Some(text.to_vec()));
            }
            ("unlink" | "unlinkat" | "rmdir", [Some(gone), _]) => {
                self.links.insert(gone.whole(), None);
            }
            ("rename" | "renameat" | "renameat2", [Some(from), Some(to)]) => {
                let (from, to) = (from.whole(), to.whole());
                let there = self.take_below(&to);
                let moved = self.take_below(&from);
                self.put_below(&to, moved);
                if flags & RENAME_EXCHANGE != 0 {
                    self.put_below(&from, there);
                } else {
                    self.links.insert(from, None);
                }
            }
            ("link" | "linkat", [Some(from), Some(to)]) => {
                let known = self.links.get(&from.whole()).cloned();
                self.links.insert(to.whole(), known.flatten());
            }
            ("mount", [source, Some(point)]) => self.mounted(source.as_ref(), point, flags),
            ("umount2", [Some(point), _]) => drop(self.take_mount(&point.whole())),
            _ => {}
        }
    }

    /// Removes and returns what is known of a name and of everything below it.
    fn take_below(&mut self, place: &Place) -> Vec<(Place, Option<Vec<u8>>)> {
        let below = |known: &&Place| known.starts_with(place);
        let all: Vec<Place> = self.links.keys().filter(below).cloned().collect();
        let take = |known: Place| {
            let link = self.links.remove(&known)?;
            Some((known[place.len()..].to_vec(), link))
        };
        all.into_iter().filter_map(take).collect()
    }

    fn put_below(&mut self, place: &Place, all: Vec<(Place, Option<Vec<u8>>)>) {
        for (below, link) in all {
            self.links.insert([place.clone(), below].concat(), link);
        }
    }

    fn mounted(&mut self, source: Option<&End>, point: &End, flags: u64) {
        let point = point.whole();
        let device = match source {
            _ if flags & (MS_REMOUNT | MS_PROPAGATION) != 0 => return,
            Some(source) if flags & MS_MOVE != 0 => self.take_mount(&source.whole()),
            Some(source) if flags & MS_BIND != 0 => self.device(&source.whole()).cloned(),
            _ => mounts_now().ok().and_then(|mut now| now.remove(&point)?.pop()),
        };
        self.mounts.entry(point).or_default().push(device.unwrap_or_default());
    }

    fn take_mount(&mut self, point: &Place) -> Option<String> {
        let here = self.mounts.get_mut(point)?;
        let device = here.pop();
        if here.is_empty() {
            self.mounts.remove(point);
        }
        device
    }
}

/// Devices by mount point, in the order of the mounts.
fn mounts_now() -> io::Result<BTreeMap<Place, Vec<String>>> {
    let mut mounts: BTreeMap<Place, Vec<String>> = BTreeMap::new();
    for mount in target::mounts(&fs::read(MOUNTINFO)?) {
        mounts.entry(names_of(&mount.point)).or_default().push(mount.device);
    }
    Ok(mounts)
}

fn exists(place: &Place) -> bool {
    fs::symlink_metadata(path_of(place)).is_ok()
}

fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect()
}

fn names_of(path: &[u8]) -> Place {
    components(path).into_iter().filter(|name| !name.is_empty()).collect()
}

fn path_of(place: &Place) -> PathBuf {
    let mut path = PathBuf::from("/");
    path.extend(place.iter().map(|name| OsStr::from_bytes(name)));
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLLOW: Last = Last { follow: true, parent: false, no_links: false, missing: false };

    fn names() -> Names {
        let mounts = [("/", "0:1"), ("/m", "0:2"), ("/proc", "0:3")];
        let mounts =
            mounts.map(|(point, device)| (names_of(point.as_bytes()), vec![device.into()]));
        Names { watched: vec!["0:2".to_owned()], mounts: mounts.into(), links: BTreeMap::new() }
    }

    fn end(names: &Names, root: &str, base: &str, path: &str, last: Last) -> (String, bool) {
        let (root, base) = (names_of(root.as_bytes()), names_of(base.as_bytes()));
        let end =
            names.resolve(&root, Some(&base), path.as_bytes(), last, (7, 8)).expect("a place");
        (path_of(&end.at).display().to_string(), names.is_inside(&end.at))
    }

    fn parent(names: &Names, path: &str) -> Option<End> {
        let last = Last { parent: true, ..FOLLOW };
        names.resolve(&Vec::new(), None, path.as_bytes(), last, (7, 8))
    }

    #[test]
    fn paths_lead_where_the_kernel_would_go() {
        let names = names();
        let to = |path: &str| end(&names, "/", "/m/a", path, FOLLOW);
        assert_eq!(to("b"), ("/m/a/b".into(), true));
        assert_eq!(to("../../x"), ("/x".into(), false));
        assert_eq!(to("/mm/x"), ("/mm/x".into(), false));
        assert_eq!(to("//.//m//x/"), ("/m/x".into(), true));
        // The root of the task is not left.
        assert_eq!(end(&names, "/m/r", "/m/r", "../../x", FOLLOW), ("/m/r/x".into(), true));
        assert_eq!(end(&names, "/m/r", "/", "/../x", FOLLOW), ("/m/r/x".into(), true));
        // A name that is only a name belongs to its directory.
        assert_eq!(parent(&names, "/m").map(|end| names.is_inside(&end.at)), Some(false));
        // Nothing beyond a directory that does not exist.
        let missing = Last { missing: true, ..FOLLOW };
        assert_eq!(end(&names, "/", "/", "/m/none/../../x", missing), ("/m".into(), true));
        assert!(end(&names, "/", "/", "/proc/self/fd", FOLLOW).0.ends_with("/7/fd"));
    }

    #[test]
    fn links_and_mounts_are_known_from_the_calls_that_made_them() {
        let mut names = names();
        let at = |names: &Names, path: &str, follow: bool| {
            end(names, "/", "/", path, Last { follow, ..FOLLOW }).1
        };
        let link = parent(&names, "/o/l");
        names.learn("symlink", &[link.clone(), None], b"/m/d", 0);
        assert!(at(&names, "/o/l/f", true) && at(&names, "/o/l", true));
        assert!(!at(&names, "/o/l", false) && at(&names, "/o/l/", false));
        let moved = parent(&names, "/o/k");
        names.learn("rename", &[link.clone(), moved.clone()], b"", 0);
        assert!(at(&names, "/o/k", true) && !at(&names, "/o/l", true));
        names.learn("unlink", &[moved, None], b"", 0);
        assert!(!at(&names, "/o/k/f", true));
        let loops = parent(&names, "/o/loop");
        names.learn("symlink", &[loops, None], b"loop", 0);
        assert!(!at(&names, "/o/loop/x", true));
        let place = |path: &str| {
            names_of(path.as_bytes())
                .split_last()
                .map(|(last, at)| End { at: at.to_vec(), last: last.clone() })
        };
        names.learn("mount", &[place("/m/d"), place("/o/b")], b"", MS_BIND);
        assert!(at(&names, "/o/b/f", true));
        names.learn("umount2", &[place("/o/b"), None], b"", 0);
        assert!(!at(&names, "/o/b/f", true));
    }
}
