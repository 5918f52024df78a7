//! What mutants remember, to be wrong later: at a remount, or when a directory is listed.

use std::sync::Arc;

use fathom_core::{Errno, FsBytes, Stamp};

use super::contents::Contents;
use super::directory::{COOKIE_FIRST, Directory, Link};
use super::inode::{Body, Inode, Name, Names, Xattrs};
use super::name::ShortName;
use super::state::State;
use super::{Ino, ROOT};
use crate::mutant::Mutant;

/// Memory of a mutant; no other volume has any.
#[derive(Clone, Debug, Default)]
pub(super) struct MutantMemory {
    /// Inodes that were removed, and where they were.
    gone: Vec<(Ino, ShortName, Arc<Inode>)>,
    /// Names that were given up, and what they meant.
    given_up: Vec<(Ino, ShortName, Ino)>,
    /// Entries that are listed twice.
    twice: Vec<(Ino, ShortName)>,
    /// Entries that are not listed.
    hidden: Vec<(Ino, ShortName)>,
    /// What files had before they were shrunk or punched, and their size since.
    contents: Vec<(Ino, Contents, u64)>,
    /// Blocks that were reserved behind the end of files that are gone.
    reserved_blocks: u64,
}

impl State {
    fn mutant_memory_mut(&mut self) -> &mut MutantMemory {
        Arc::make_mut(self.mutant_memory.get_or_insert_default())
    }

    /// `name` in `dir` is about to be unlinked.
    pub(super) fn remember_unlink(&mut self, dir: Ino, name: &[u8], ino: Ino, pinned: bool) {
        let Ok(inode) = self.get(ino) else { return };
        let open_and_last = pinned && inode.names.as_slice().len() == 1;
        if self.mutant(Mutant::OrphanReturns) && open_and_last {
            let gone = (dir, ShortName::from(name), Arc::new(inode.clone()));
            self.mutant_memory_mut().gone.push(gone);
        }
        if self.mutant(Mutant::OrphanLosesData) && open_and_last {
            self.empty_file(ino);
        }
        if self.mutant(Mutant::ReaddirSkips)
            && let Some(link) = self.neighbour(dir, name, |link| link.cookie)
        {
            self.mutant_memory_mut().hidden.push((dir, link.name));
        }
        if self.mutant(Mutant::UnlinkNeighbour)
            && let Some(link) = self.neighbour(dir, name, |link| link.name.clone())
        {
            self.empty_file(link.ino);
        }
    }

    /// A file is about to be shrunk to `size`, or punched and keep it.
    pub(super) fn remember_contents(&mut self, ino: Ino, size: u64, by: Mutant) {
        if self.mutant(by)
            && let Ok(contents) = self.file(ino).cloned()
        {
            self.mutant_memory_mut().contents.push((ino, contents, size));
        }
    }

    /// An inode is about to go.
    pub(super) fn remember_reservation(&mut self, inode: &Inode) {
        if self.mutant(Mutant::ReservationLeak)
            && let Body::File(contents) = &inode.body
        {
            let end = contents.size().div_ceil(u64::from(self.config.block_bytes));
            let blocks = contents.reserved().overlap(end, u64::MAX);
            self.mutant_memory_mut().reserved_blocks += blocks;
        }
    }

    /// `name` in `dir` is about to be removed.
    pub(super) fn remember_rmdir(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        if self.mutant(Mutant::RemovedDirReturns)
            && let Ok(inode) = self.get(ino)
        {
            let gone = (dir, ShortName::from(name), Arc::new(inode.clone()));
            self.mutant_memory_mut().gone.push(gone);
        }
    }

    /// `from` in `from_dir` is about to become `to` in `to_dir`.
    pub(super) fn remember_rename(
        &mut self,
        from: &ShortName,
        from_dir: Ino,
        to: &ShortName,
        to_dir: Ino,
        ino: Ino,
    ) {
        if self.mutant(Mutant::RenameSourceReturns) {
            self.mutant_memory_mut().given_up.push((from_dir, from.clone(), ino));
        }
        if self.mutant(Mutant::ReaddirDuplicate) {
            self.mutant_memory_mut().twice.push((to_dir, to.clone()));
        }
    }

    /// The entry after `name` in the order of `key`.
    fn neighbour<K: Ord>(&self, dir: Ino, name: &[u8], key: impl Fn(&Link) -> K) -> Option<Link> {
        let dir = self.dir(dir).ok()?;
        let after = key(dir.get(name)?);
        dir.links().filter(|link| key(link) > after).min_by_key(|link| key(link)).cloned()
    }

    fn empty_file(&mut self, ino: Ino) {
        if self.file(ino).is_ok() {
            let block_bytes = self.config.block_bytes;
            self.update(ino, |inode| inode.body = Body::File(Contents::new(block_bytes)));
        }
    }

    /// The first entries of a directory as they are listed, in the order of their cookies.
    pub(super) fn listed(
        &self,
        dir: Ino,
        after: u64,
        count_max: usize,
    ) -> Result<Vec<&Link>, Errno> {
        let mut links: Vec<&Link> = self.dir(dir)?.links().collect();
        let after = self.position_behind(&links, after);
        links.retain(|link| link.cookie > after);
        if let Some(mutant_memory) = &self.mutant_memory {
            let marked = |list: &[(Ino, ShortName)], link: &Link| {
                list.iter().any(|(ino, name)| *ino == dir && *name == link.name)
            };
            links.retain(|link| !marked(&mutant_memory.hidden, link));
            let twice: Vec<&Link> =
                links.iter().copied().filter(|link| marked(&mutant_memory.twice, link)).collect();
            links.extend(twice);
        }
        if links.len() > count_max {
            links.select_nth_unstable_by_key(count_max, |link| link.cookie);
            links.truncate(count_max);
        }
        links.sort_by_key(|link| link.cookie);
        Ok(links)
    }

    /// Where a listing goes on behind an entry; mutants lose the place when that entry is gone.
    fn position_behind(&self, links: &[&Link], after: u64) -> u64 {
        let (skips, restarts) =
            (self.mutant(Mutant::ListingSkips), self.mutant(Mutant::ListingRestarts));
        let is_there = |link: &&Link| link.cookie == after;
        if !(skips || restarts) || after < COOKIE_FIRST || links.iter().any(is_there) {
            return after;
        }
        let next = links.iter().map(|link| link.cookie).filter(|cookie| *cookie > after).min();
        if restarts { 0 } else { next.unwrap_or(after) }
    }

    /// What mutants get wrong when the volume is mounted again.
    pub(super) fn break_at_remount(&mut self, now: Stamp) {
        let Some(mutant_memory) = self.mutant_memory.take() else { return };
        for (dir, name, ghost) in &mutant_memory.gone {
            let body = match &ghost.body {
                Body::Dir(_) => Body::Dir(Directory::new(*dir)),
                body => body.clone(),
            };
            let fits = self.inodes_free() > 0
                && ghost.blocks(self.config.block_bytes) <= self.blocks_free();
            if fits && self.is_free(*dir, name) {
                let inode = Inode { body, names: Names::None, ..Inode::clone(ghost) };
                self.graft(inode, *dir, name.clone(), now);
            }
        }
        for (ino, old, size) in &mutant_memory.contents {
            if self.file(*ino).is_ok_and(|now| now.size() == *size) {
                self.update(*ino, |inode| inode.body = Body::File(old.clone()));
            }
        }
        self.blocks_used += mutant_memory.reserved_blocks.min(self.blocks_free());
        for (dir, name, ino) in &mutant_memory.given_up {
            let is_file = self.get(*ino).is_ok_and(|inode| !inode.is_dir());
            if is_file && self.is_free(*dir, name) {
                self.graft_link(*dir, name, *ino, now);
            }
        }
    }

    /// What mutants get wrong in every inode when the volume is mounted again.
    pub(super) fn break_inodes_at_remount(&mut self, now: Stamp) {
        let all: Vec<Ino> = self.table.iter().map(|(ino, _)| ino).collect();
        for ino in all {
            if self.mutant(Mutant::XattrLostOnRemount) {
                self.update(ino, |inode| inode.xattrs = Xattrs::default());
            }
            if self.mutant(Mutant::SymlinkEmptyOnRemount) {
                self.update(ino, |inode| {
                    if let Body::Symlink(target) = &mut inode.body {
                        *target = FsBytes::from("");
                    }
                });
            }
            if self.mutant(Mutant::LinkSplits) {
                self.split_links(ino, now);
            }
        }
    }

    /// Makes every name but the first a file of its own.
    fn split_links(&mut self, ino: Ino, now: Stamp) {
        let Ok(inode) = self.get(ino).cloned() else { return };
        for Name { dir, name, .. } in inode.names.as_slice().iter().skip(1) {
            if self.inodes_free() == 0 || inode.blocks(self.config.block_bytes) > self.blocks_free()
            {
                return;
            }
            self.remove_link(*dir, name.as_bytes(), now);
            self.lose_name(ino, *dir, name.as_bytes(), now, false);
            self.graft(inode.clone(), *dir, name.clone(), now);
        }
    }

    fn is_free(&self, dir: Ino, name: &ShortName) -> bool {
        self.living_dir(dir).is_ok_and(|body| body.get(name.as_bytes()).is_none())
    }

    fn graft_link(&mut self, dir: Ino, name: &ShortName, ino: Ino, now: Stamp) {
        let Ok(parent) = self.get(dir) else { return };
        debug_assert!(dir == ROOT || !parent.names.as_slice().is_empty());
        let path = parent.dir_path().child(name.as_bytes());
        self.set_link(dir, name, ino, now);
        self.update(ino, |inode| {
            inode.names.add(Name { dir, name: name.clone(), path });
            inode.nlink += 1;
        });
    }
}
