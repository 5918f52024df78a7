//! What the server knows: the volume, what the kernel remembers of it, and the saved states.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fathom_core::flags::RenameFlags;
use fathom_core::{Errno, Mode};
use fathom_model::{Caller, Ino, NewNode, Volume, VolumeImage};
use fuser::FileAttr;

use super::clock::Clock;
use super::convert::file_attr;

/// The volume and the kernel's view of it.
#[derive(Debug)]
pub(super) struct State {
    volume: Volume,
    clock: Clock,
    /// How many references the kernel holds (`nlookup` of the protocol): one for every entry it was
    /// told of, until it forgets them. The root needs none.
    known: HashMap<Ino, u64>,
    /// Inodes that lost their last name while the kernel knew them (open, mapped, somebody's working
    /// directory): pinned in the volume until the kernel forgets them. Pinning these and no others
    /// keeps saving a state free of copying.
    orphans: BTreeSet<Ino>,
    /// Open files by inode: who may have pages in the kernel's cache or mapped.
    open_files: HashMap<Ino, u32>,
    /// Saved states. No two inodes of any of them have the same number, so what the kernel knows
    /// means the same inode in all states that have it, and none in the others.
    pool: BTreeMap<u64, Volume>,
}

impl State {
    pub(super) fn new(volume: Volume) -> State {
        State {
            clock: Clock::starting_at(volume.clock() + 1),
            volume,
            known: HashMap::new(),
            orphans: BTreeSet::new(),
            open_files: HashMap::new(),
            pool: BTreeMap::new(),
        }
    }

    /// The volume, for looking at it.
    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The volume, for changing it now.
    pub(super) fn volume_mut(&mut self) -> &mut Volume {
        self.clock.advance_to(self.volume.clock() + 1);
        &mut self.volume
    }

    pub(super) fn attr(&self, ino: Ino) -> Result<FileAttr, Errno> {
        let attr = self.volume.attr(ino)?;
        Ok(file_attr(&attr, &self.clock, self.volume.config().block_bytes))
    }

    pub(super) fn lookup(&mut self, dir: Ino, name: &[u8]) -> Result<FileAttr, Errno> {
        let ino = self.volume.lookup(dir, name)?;
        self.tell(ino)
    }

    /// The attributes for the kernel, which from now on knows the inode.
    fn tell(&mut self, ino: Ino) -> Result<FileAttr, Errno> {
        let attr = self.attr(ino)?;
        *self.known.entry(ino).or_default() += 1;
        Ok(attr)
    }

    pub(super) fn make(
        &mut self,
        caller: &Caller,
        dir: Ino,
        name: &[u8],
        node: NewNode,
        mode: Mode,
    ) -> Result<FileAttr, Errno> {
        let volume = self.volume_mut();
        // The kernel, which knows all groups of the caller, has already taken setgid from a program
        // of a foreign group (vfs_prepare_mode, fs/namei.c): not once more.
        let caller = Caller { groups: Arc::from([volume.attr(dir)?.gid]), ..caller.clone() };
        let ino = volume.make(&caller, dir, name, node, mode)?;
        self.tell(ino)
    }

    pub(super) fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<FileAttr, Errno> {
        self.volume_mut().link(ino, dir, name)?;
        self.tell(ino)
    }

    pub(super) fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.removing(dir, name, |volume| volume.unlink(dir, name))
    }

    pub(super) fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.removing(dir, name, |volume| volume.rmdir(dir, name))
    }

    pub(super) fn rename(
        &mut self,
        caller: &Caller,
        (from_dir, from): (Ino, &[u8]),
        (to_dir, to): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.removing(to_dir, to, |volume| volume.rename(caller, from_dir, from, to_dir, to, flags))
    }

    /// Does what may take the last name from the inode that `dir/name` names, and keeps the inode
    /// if the kernel knows it.
    fn removing(
        &mut self,
        dir: Ino,
        name: &[u8],
        act: impl FnOnce(&mut Volume) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let volume = self.volume_mut();
        let Ok(victim) = volume.lookup(dir, name) else { return act(volume) };
        if !self.known.contains_key(&victim) {
            return act(&mut self.volume);
        }
        self.volume.pin(victim)?;
        let result = act(&mut self.volume);
        let nameless = self.volume.attr(victim).is_ok_and(|attr| attr.nlink == 0);
        // It can be an orphan already: of a state that was left.
        if !nameless || !self.orphans.insert(victim) {
            self.volume.unpin(victim);
        }
        result
    }

    /// The kernel gives `count` references back.
    pub(super) fn forget(&mut self, ino: Ino, count: u64) {
        let Some(known) = self.known.get_mut(&ino) else { return };
        *known = known.saturating_sub(count);
        if *known == 0 {
            self.known.remove(&ino);
            if self.orphans.remove(&ino) {
                self.volume.unpin(ino);
            }
        }
    }

    pub(super) fn open_file(&mut self, ino: Ino) -> Result<(), Errno> {
        self.attr(ino)?;
        *self.open_files.entry(ino).or_default() += 1;
        Ok(())
    }

    pub(super) fn release_file(&mut self, ino: Ino) {
        if let Some(count) = self.open_files.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.open_files.remove(&ino);
            }
        }
    }

    /// The inodes whose contents the kernel may hold.
    pub(super) fn open_inodes(&self) -> Vec<Ino> {
        self.open_files.keys().copied().collect()
    }

    /// What an unmount does: the kernel forgets everything without saying so.
    pub(super) fn unmounted(&mut self) {
        self.known.clear();
        self.open_files.clear();
        self.orphans.clear();
        self.volume.remount();
    }
}

/// Saved states.
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
        // The volume has dropped the pins of inodes that the restored state does not have.
        let volume = &self.volume;
        self.orphans.retain(|ino| volume.attr(*ino).is_ok());
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

    /// Saved states: that of `key`, or all of them.
    pub(super) fn snapshots(&self, key: Option<u64>) -> Result<Vec<(u64, Volume)>, Errno> {
        let wanted = key.map_or(0..=u64::MAX, |key| key..=key);
        let found: Vec<_> =
            self.pool.range(wanted).map(|(key, volume)| (*key, volume.clone())).collect();
        if key.is_some() && found.is_empty() { Err(Errno::ENOENT) } else { Ok(found) }
    }

    /// A saved state in a form that can be stored, with times instead of ticks.
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
