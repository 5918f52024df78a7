//! Shows the visible state as a [`Tree`], and checks that everything kept redundantly agrees.

use std::collections::{BTreeMap, HashMap};

use fathom_core::{DataSum, Digest, Entry, FsBytes, FsPath, Kind, PathState, Tree};

use super::inode::{Body, Inode};
use super::{Ino, ROOT, TreeOptions, Volume};

/// Number of symbolic links that a path may follow (path_resolution(7)).
const LINKS_MAX: u32 = 40;

impl Volume {
    /// Reads the whole visible state. A mutant that lists directories wrongly does so here too.
    pub fn tree(&self, options: TreeOptions) -> Tree {
        let mut entries = BTreeMap::new();
        let mut inos: Vec<(FsPath, Ino)> = Vec::new();
        let mut dirs = vec![(FsPath::from("."), ROOT)];
        inos.push(dirs[0].clone());
        while let Some((path, dir)) = dirs.pop() {
            for link in self.state.listed(dir, 0, usize::MAX).unwrap_or_default() {
                let child = (path.join(link.name.as_bytes()), link.ino);
                if self.state.dir(link.ino).is_ok() {
                    dirs.push(child.clone());
                }
                inos.push(child);
            }
        }
        inos.sort_unstable();
        let mut first: HashMap<Ino, FsPath> = HashMap::new();
        for (path, ino) in inos {
            let Some(inode) = self.state.table.get(ino) else { continue };
            let mut entry = entry_of(inode, options);
            let smallest = first.entry(ino).or_insert_with(|| path.clone());
            if *smallest != path {
                entry.same_as = Some(smallest.clone());
            }
            entries.insert(path, entry);
        }
        Tree { entries }
    }

    /// Computes what [`fathom_core::Testbed::observe_paths`] should show of a path.
    pub fn path_state(&self, path: &FsPath, options: TreeOptions) -> PathState {
        let inode = self.find(path, false).and_then(|ino| Some((ino, self.state.table.get(ino)?)));
        let names = inode.filter(|(_, inode)| inode.kind() == Kind::Dir).map(|(ino, _)| {
            let links = self.state.listed(ino, 0, usize::MAX).unwrap_or_default();
            let mut names: Vec<_> = links.iter().map(|link| link.name.to_fs_bytes()).collect();
            names.sort_unstable();
            names
        });
        let entry = inode.map(|(_, inode)| entry_of(inode, options));
        PathState { path: path.clone(), entry, names }
    }

    /// Finds the inode of a path, for somebody who may do anything; `follow` follows a link at the
    /// end.
    pub fn find(&self, path: &FsPath, follow: bool) -> Option<Ino> {
        self.descend(ROOT, path.as_bytes(), follow, &mut LINKS_MAX.clone())
    }

    fn descend(&self, start: Ino, path: &[u8], follow: bool, links: &mut u32) -> Option<Ino> {
        let mut at = if path.starts_with(b"/") { ROOT } else { start };
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let child = self.lookup(at, name).ok()?;
            let last = names.peek().is_none() && !follow;
            at = match &self.state.table.get(child)?.body {
                Body::Symlink(target) if !last => {
                    *links = links.checked_sub(1)?;
                    self.descend(at, target.as_bytes(), true, links)?
                }
                _ => child,
            };
        }
        Some(at)
    }

    /// Finds a path of an inode without links and dots in it, if it has a name: of several the
    /// first.
    pub fn path_of(&self, ino: Ino) -> Option<FsPath> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let name = self.state.table.get(at)?.names.as_slice().first()?;
            names.push(name.name.as_bytes());
            at = name.dir;
        }
        if names.is_empty() {
            return Some(FsPath::from("."));
        }
        names.reverse();
        Some(FsPath::from(names.join(&b'/')))
    }

    /// Recomputes everything that is kept redundantly (digest, names, link counts, space) and says
    /// what does not agree. A mutant may fail it.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn check_invariants(&self) -> Result<(), String> {
        let state = &*self.state;
        let (mut inodes, mut blocks, mut links, mut names) = (0, 0, 0, 0);
        for (ino, inode) in state.table.iter() {
            inodes += 1;
            blocks += inode.blocks(state.config.block_bytes);
            links += inode.as_dir().map_or(0, |dir| dir.len());
            names += inode.names.as_slice().len();
            self.check_inode(ino, inode).map_err(|what| format!("inode {ino:#x}: {what}"))?;
        }
        if links != names {
            return Err(format!("{links} directory entries, but inodes have {names} names"));
        }
        if (inodes, blocks) != (state.inodes_used, state.blocks_used) {
            let (inodes_used, blocks_used) = (state.inodes_used, state.blocks_used);
            return Err(format!(
                "{inodes} inodes with {blocks} blocks, counted {inodes_used} with {blocks_used}"
            ));
        }
        if blocks > state.config.blocks || inodes > state.config.inodes {
            return Err(format!("{inodes} inodes with {blocks} blocks are more than the capacity"));
        }
        let reachable = self.tree(TreeOptions::default());
        if reachable.entries.len() != names + 1 {
            return Err(format!(
                "{names} names, {} of them reachable",
                reachable.entries.len() - 1
            ));
        }
        if reachable.digest() != self.digest() {
            return Err("the digest is not that of the tree".to_owned());
        }
        Ok(())
    }

    fn check_inode(&self, ino: Ino, inode: &Inode) -> Result<(), String> {
        let state = &*self.state;
        let names = inode.names.as_slice();
        for name in names {
            let parent = state.get(name.dir).map_err(|_| "its directory is gone".to_owned())?;
            let link = parent.as_dir().and_then(|dir| dir.get(name.name.as_bytes()));
            if link.is_none_or(|link| link.ino != ino) {
                return Err(format!("{} does not mean it", name.name));
            }
            if name.path != parent.dir_path().child(name.name.as_bytes()) {
                return Err(format!("the path of {} is wrong", name.name));
            }
        }
        let orphan = names.is_empty() && ino != ROOT;
        if orphan != state.orphans.contains(&ino) || orphan && !self.is_pinned(ino) {
            return Err("it has no name and nothing keeps it".to_owned());
        }
        let nlink = match &inode.body {
            Body::Dir(_) if orphan => 0,
            Body::Dir(_) if !state.counts_subdirs(ino) => 1,
            Body::Dir(dir) => {
                let is_dir = |ino: Ino| state.dir(ino).is_ok();
                2 + dir.links().filter(|link| is_dir(link.ino)).count()
            }
            _ => names.len(),
        };
        if inode.nlink as usize != nlink {
            return Err(format!("nlink is {}, should be {nlink}", inode.nlink));
        }
        if let Body::Dir(dir) = &inode.body
            && let Some(parent) = names.first().map(|name| name.dir)
            && (dir.parent != parent || names.len() != 1)
        {
            return Err("the directory is not in its parent alone".to_owned());
        }
        inode.as_file().map_or(Ok(()), |contents| contents.check())
    }
}

fn entry_of(inode: &Inode, options: TreeOptions) -> Entry {
    let file = inode.as_file();
    let xattrs = inode.xattrs.list().iter();
    Entry {
        kind: inode.kind(),
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink,
        size: inode.size(),
        content: file.map_or(Digest::default(), |contents| contents.digest()),
        target: match &inode.body {
            Body::Symlink(target) => target.clone(),
            _ => FsBytes::from(""),
        },
        rdev: inode.rdev(),
        xattrs: xattrs.map(|x| (x.name.clone(), DataSum::of(x.value.as_bytes()))).collect(),
        same_as: None,
        segments: file.filter(|_| options.segments).map(|contents| contents.segments()),
        times: options.times.then_some(inode.times),
        broken: None,
    }
}
