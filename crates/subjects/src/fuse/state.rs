//! The state of the server: the volume, the kernel's references to it, and the saved states.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fathom_core::flags::RenameFlags;
use fathom_core::{Errno, FsBytes, Mode, Stamp};
use fathom_model::{Attr, Identity, Ino, NewNode, ROOT, Volume, VolumeImage};
use fuser::FileAttr;

use super::clock::Clock;
use super::convert::file_attr;
use super::listing::Listings;
use super::node_flags::{self, NodeFlags, Wish};
use super::options::AccessTimes;

/// The volume and the kernel's view of it.
#[derive(Debug)]
pub(super) struct State {
    volume: Volume,
    clock: Clock,
    /// Number of references that the kernel holds (`nlookup` of the protocol): one for every entry
    /// it was told of, until it forgets them. The root needs none.
    known: HashMap<Ino, u64>,
    /// Inodes that somebody has open or mapped; pinned in the volume, so that they stay without a
    /// name.
    open: HashMap<Ino, Open>,
    /// Inodes that went while the kernel still knew them, as they last were. It forgets most of them
    /// a moment later; but an `O_PATH` descriptor, a working directory or an open FIFO, of which the
    /// server hears nothing, may ask for the attributes. The volume does not wait for that: space is
    /// free as soon as the last name and the last open file are gone.
    removed: HashMap<Ino, Attr>,
    /// The directories that somebody has open.
    pub(super) listings: Listings,
    /// Saved states. No two inodes of any of them have the same number, so what the kernel knows
    /// means the same inode in all states that have it, and none in the others.
    pool: BTreeMap<u64, Volume>,
}

/// What the kernel may remember of the present state.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) inodes: Vec<Ino>,
    /// Names, each with its directory.
    pub(super) names: Vec<(Ino, FsBytes)>,
}

/// The open handles of an inode.
#[derive(Debug)]
struct Open {
    count: u32,
    /// Whether the kernel may hold pages of it: it is a file.
    has_pages: bool,
    /// Whether it is pinned: false if the present state does not have the inode.
    pinned: bool,
}

impl State {
    pub(super) fn new(volume: Volume) -> State {
        State {
            clock: Clock::starting_at(volume.clock() + 1),
            volume,
            known: HashMap::new(),
            open: HashMap::new(),
            removed: HashMap::new(),
            listings: Listings::default(),
            pool: BTreeMap::new(),
        }
    }

    /// Gives read access to the volume.
    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Gives access to the volume for a change that happens now.
    pub(super) fn volume_mut(&mut self) -> &mut Volume {
        self.clock.advance_to(self.volume.clock() + 1);
        &mut self.volume
    }

    pub(super) fn attr(&self, ino: Ino) -> Result<FileAttr, Errno> {
        let removed = |errno| self.removed.get(&ino).cloned().ok_or(errno);
        let attr = self.volume.attr(ino).or_else(removed)?;
        Ok(file_attr(&attr, &self.clock, self.volume.config().block_bytes))
    }

    /// Looks a name up. The kernel asks for `.` and `..` where it has only a file handle
    /// (open_by_handle_at(2)) and has forgotten the inode (fuse_get_dentry, fs/fuse/inode.c).
    pub(super) fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<FileAttr, Errno> {
        let ino = match name {
            b"." => dir,
            b".." => self.volume.parent(dir)?,
            name => self.volume.lookup(dir, name)?,
        };
        self.tell(ino)
    }

    /// Updates the access time of an inode that was read, if the rule says so.
    pub(super) fn note_access(&mut self, ino: Ino, rule: AccessTimes) {
        let is_due = match rule {
            AccessTimes::Strict => true,
            AccessTimes::Relative => self.is_access_time_old(ino),
            AccessTimes::Never => false,
        };
        if is_due && !node_flags::of(&self.volume, ino).contains(NodeFlags::NOATIME) {
            self.volume_mut().note_access(ino);
        }
    }

    /// Whether the access time is not later than the last change or older than a day
    /// (relatime_need_update, fs/inode.c).
    fn is_access_time_old(&self, ino: Ino) -> bool {
        let Ok(attr) = self.volume.attr(ino) else { return false };
        let time = |stamp| match stamp {
            Stamp::Tick(tick) => self.clock.time_of(tick),
            Stamp::At { sec, nsec } => (sec, nsec),
        };
        let accessed = time(attr.times.atime);
        let (now, _) = self.clock.now();
        accessed <= time(attr.times.mtime)
            || accessed <= time(attr.times.ctime)
            || now - accessed.0 >= 24 * 60 * 60
    }

    /// Returns the attributes for the kernel, which from now on knows the inode.
    fn tell(&mut self, ino: Ino) -> Result<FileAttr, Errno> {
        let attr = self.attr(ino)?;
        *self.known.entry(ino).or_default() += 1;
        Ok(attr)
    }

    pub(super) fn make(
        &mut self,
        caller: &Identity,
        dir: Ino,
        name: &[u8],
        node: NewNode,
        mode: Mode,
    ) -> Result<FileAttr, Errno> {
        let volume = self.volume_mut();
        node_flags::check(volume, dir, Wish::Add)?;
        // The kernel, which knows all groups of the caller, has already taken setgid from a program
        // of a foreign group (vfs_prepare_mode, fs/namei.c): not once more.
        let caller = Identity { groups: Arc::from([volume.attr(dir)?.gid]), ..caller.clone() };
        let ino = volume.make(&caller, dir, name, node, mode)?;
        self.tell(ino)
    }

    pub(super) fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<FileAttr, Errno> {
        node_flags::check(&self.volume, ino, Wish::Change)?;
        node_flags::check(&self.volume, dir, Wish::Add)?;
        self.volume_mut().link(ino, dir, name)?;
        self.tell(ino)
    }

    pub(super) fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.check_removal(dir, name)?;
        self.removing(dir, name, |volume| volume.unlink(dir, name))
    }

    pub(super) fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.check_removal(dir, name)?;
        self.removing(dir, name, |volume| volume.rmdir(dir, name))
    }

    pub(super) fn rename(
        &mut self,
        caller: &Identity,
        (from_dir, from): (Ino, &[u8]),
        (to_dir, to): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.check_removal(from_dir, from)?;
        match self.volume.lookup(to_dir, to) {
            Ok(_) => self.check_removal(to_dir, to)?,
            Err(_) => node_flags::check(&self.volume, to_dir, Wish::Add)?,
        }
        self.removing(to_dir, to, |volume| volume.rename(caller, from_dir, from, to_dir, to, flags))
    }

    /// Refuses to take a name away that flags protect: its own or those of the directory (may_delete,
    /// fs/namei.c).
    fn check_removal(&self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let Ok(victim) = self.volume.lookup(dir, name) else { return Ok(()) };
        node_flags::check(&self.volume, dir, Wish::Change)?;
        node_flags::check(&self.volume, victim, Wish::Change)
    }

    /// Runs `act`, which may take the last name from the inode that `dir/name` names.
    fn removing(
        &mut self,
        dir: Ino,
        name: &[u8],
        act: impl FnOnce(&mut Volume) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let volume = self.volume_mut();
        let victim = volume.lookup(dir, name).and_then(|ino| volume.attr(ino));
        let result = act(volume);
        if let Ok(attr) = victim {
            self.remember(attr);
        }
        result
    }

    /// Keeps the last attributes of an inode, if it is gone and the kernel knows it.
    fn remember(&mut self, mut attr: Attr) {
        if self.known.contains_key(&attr.ino) && self.volume.attr(attr.ino).is_err() {
            attr.nlink = 0;
            attr.times.ctime = Stamp::Tick(self.volume.clock());
            self.removed.insert(attr.ino, attr);
        }
    }

    /// Gives access to the attributes of an inode that is gone, for a change that happens now.
    pub(super) fn removed_mut(&mut self, ino: Ino) -> Option<(&mut Attr, Stamp)> {
        let now = Stamp::Tick(self.volume.clock());
        self.removed.get_mut(&ino).map(|attr| (attr, now))
    }

    /// Takes `count` references back from the kernel.
    pub(super) fn forget(&mut self, ino: Ino, count: u64) {
        let Some(known) = self.known.get_mut(&ino) else { return };
        *known = known.saturating_sub(count);
        if *known == 0 {
            self.known.remove(&ino);
            self.removed.remove(&ino);
        }
    }

    /// Notes that somebody opens a file (which may have pages) or a directory.
    pub(super) fn open(&mut self, ino: Ino, has_pages: bool) -> Result<(), Errno> {
        match self.open.get_mut(&ino) {
            Some(open) => {
                self.volume.attr(ino)?;
                open.count += 1;
            }
            None => {
                self.volume.pin(ino)?;
                self.open.insert(ino, Open { count: 1, has_pages, pinned: true });
            }
        }
        Ok(())
    }

    /// Notes that somebody closes it, and has unmapped it.
    pub(super) fn release(&mut self, ino: Ino) {
        let Some(open) = self.open.get_mut(&ino) else { return };
        open.count -= 1;
        if open.count > 0 {
            return;
        }
        let pinned = open.pinned;
        self.open.remove(&ino);
        if pinned && let Ok(attr) = self.volume.attr(ino) {
            self.volume.unpin(ino);
            self.remember(attr);
        }
    }

    /// Lists the inodes whose contents the kernel may hold.
    pub(super) fn inodes_with_pages(&self) -> Vec<Ino> {
        self.open.iter().filter(|(_, open)| open.has_pages).map(|(ino, _)| *ino).collect()
    }

    /// Lists what the kernel was told and has not forgotten. Names that are gone it took away itself.
    pub(super) fn told(&self) -> Told {
        let inodes: Vec<Ino> = self.known.keys().copied().chain([ROOT]).collect();
        let mut names = Vec::new();
        for dir in &inodes {
            // What is no directory has no names in it.
            let entries = self.volume.entries(*dir, 0).unwrap_or_default();
            let known = entries.into_iter().filter(|entry| self.known.contains_key(&entry.ino));
            names.extend(known.map(|entry| (*dir, entry.name)));
        }
        Told { inodes, names }
    }

    /// Forgets what an unmount makes the kernel forget without saying so.
    pub(super) fn unmounted(&mut self) {
        self.known.clear();
        self.open.clear();
        self.removed.clear();
        self.listings = Listings::default();
        self.volume.remount();
    }
}

/// Operations on the saved states.
impl State {
    /// Saves the present state; a key is never overwritten.
    pub(super) fn save(&mut self, key: u64) -> Result<(), Errno> {
        if self.pool.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        self.pool.insert(key, self.volume.clone());
        Ok(())
    }

    /// Goes back to a saved state.
    pub(super) fn restore(&mut self, key: u64, discard: bool) -> Result<(), Errno> {
        self.volume.restore(self.pool.get(&key).ok_or(Errno::ENOENT)?);
        self.removed.clear();
        self.listings.forget_ends();
        for (ino, open) in &mut self.open {
            // The volume has dropped the pins of inodes that the restored state does not have.
            open.pinned = match open.pinned {
                true => self.volume.attr(*ino).is_ok(),
                false => self.volume.pin(*ino).is_ok(),
            };
        }
        if discard {
            self.pool.remove(&key);
        }
        Ok(())
    }

    pub(super) fn drop_snapshot(&mut self, key: u64) -> Result<(), Errno> {
        self.pool.remove(&key).map(drop).ok_or(Errno::ENOENT)
    }

    /// The keys from `start` on, in order.
    pub(super) fn keys_from(&self, start: u64) -> impl Iterator<Item = u64> {
        self.pool.range(start..).map(|(key, _)| *key)
    }

    /// Clones saved states: that of `key`, or all of them.
    pub(super) fn snapshots(&self, key: Option<u64>) -> Result<Vec<(u64, Volume)>, Errno> {
        let wanted = key.map_or(0..=u64::MAX, |key| key..=key);
        let found: Vec<_> =
            self.pool.range(wanted).map(|(key, volume)| (*key, volume.clone())).collect();
        if key.is_some() && found.is_empty() { Err(Errno::ENOENT) } else { Ok(found) }
    }

    /// Converts a saved state to a form that can be stored, with times instead of ticks.
    pub(super) fn image(&self, volume: &Volume) -> VolumeImage {
        let mut image = volume.export();
        image.fix_times(|tick| self.clock.time_of(tick));
        image
    }

    /// Takes stored states into the pool: all of them, or none.
    pub(super) fn add_snapshots(&mut self, images: Vec<(u64, VolumeImage)>) -> Result<(), String> {
        let mut loaded = BTreeMap::new();
        for (key, image) in images {
            let volume =
                self.volume.adopt(image).map_err(|what| format!("snapshot {key}: {what}"))?;
            if self.pool.contains_key(&key) || loaded.insert(key, volume).is_some() {
                return Err(format!("snapshot {key} exists already: drop it first"));
            }
        }
        self.pool.append(&mut loaded);
        Ok(())
    }
}
