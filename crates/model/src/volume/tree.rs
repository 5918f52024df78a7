//! The visible state as a [`Tree`], and the check that everything kept redundantly agrees.

use std::collections::{BTreeMap, HashMap};

use fathom_core::{DataSum, Digest, Entry, FsBytes, FsPath, Tree};

use super::inode::{Body, Inode};
use super::{Ino, ROOT, TreeOptions, Volume};

impl Volume {
    /// The whole visible state. A mutant that lists directories wrongly does so here too.
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

    /// Recomputes everything that is kept redundantly (digest, names, link counts, space) and says
    /// what does not agree. A mutant may fail it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_invariants(&self) -> Result<(), String> {
        let state = &*self.state;
        let (mut inodes, mut blocks, mut links, mut names) = (0, 0, 0, 0);
        for (ino, inode) in state.table.iter() {
            inodes += 1;
            blocks += inode.blocks(state.config.block_bytes);
            links += inode.as_dir().map_or(0, |dir| dir.links().len());
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
            Body::Dir(_) if state.config.quirks.dir_nlink_one => 1,
            Body::Dir(dir) => {
                let is_dir = |ino: Ino| state.dir(ino).is_ok();
                2 + dir.links().iter().filter(|link| is_dir(link.ino)).count()
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
