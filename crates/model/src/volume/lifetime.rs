//! Operations of a mount: pins, remounting, and going back to a snapshot.

use std::sync::Arc;

use fathom_core::Errno;

use super::{Ino, Volume};
use crate::mutant::Mutant;

impl Volume {
    /// Pins an inode: an open file or a kernel reference keeps it although its last name goes. Pins
    /// belong to the volume that is in use and not to its state: see [`Volume::restore`].
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn pin(&mut self, ino: Ino) -> Result<(), Errno> {
        self.state.get(ino)?;
        *Arc::make_mut(&mut self.pins).entry(ino).or_insert(0) += 1;
        Ok(())
    }

    /// Takes one pin away; the inode goes if it has neither a name nor a pin left. A number that has
    /// no pin is ignored.
    pub fn unpin(&mut self, ino: Ino) {
        if !self.is_pinned(ino) {
            return;
        }
        let pins = Arc::make_mut(&mut self.pins);
        let count = pins.get_mut(&ino).expect("it is pinned");
        *count -= 1;
        if *count == 0 {
            pins.remove(&ino);
            self.drop_orphans();
        }
    }

    pub(super) fn is_pinned(&self, ino: Ino) -> bool {
        self.pins.contains_key(&ino)
    }

    /// Removes inodes that have neither a name nor a pin.
    fn drop_orphans(&mut self) {
        let unpinned = |ino: &Ino| !self.pins.contains_key(ino);
        if !self.state.orphans.iter().any(unpinned) {
            return;
        }
        let pins = &self.pins;
        let state = Arc::make_mut(&mut self.state);
        let (kept, dropped) =
            std::mem::take(&mut state.orphans).into_iter().partition(|ino| pins.contains_key(ino));
        state.orphans = kept;
        let dropped: Vec<Ino> = dropped;
        dropped.into_iter().for_each(|ino| state.release(ino));
    }

    /// The last tick of the logical clock: nothing has a later [`fathom_core::Stamp::Tick`].
    pub fn clock(&self) -> u64 {
        self.state.clock
    }

    /// Unmounts and mounts again: every pin goes, and the inodes that only pins kept.
    pub fn remount(&mut self) {
        self.pins = Arc::default();
        self.drop_orphans();
        if self.state.config.mutant.is_some() {
            let (state, now) = self.edit();
            state.break_at_remount(now);
            let in_inodes =
                [Mutant::XattrLostOnRemount, Mutant::SymlinkEmptyOnRemount, Mutant::LinkSplits];
            if in_inodes.iter().any(|mutant| state.mutant(*mutant)) {
                state.break_inodes_at_remount(now);
            }
        }
    }

    /// Takes the state of `snapshot`. Pins stay those of this volume: an inode that the snapshot does
    /// not have is stale from now on, and one that only a pin of the snapshot kept goes. Inode
    /// generations and the clock go on, so no [`Ino`] is ever given out twice and no tick is used
    /// twice.
    pub fn restore(&mut self, snapshot: &Volume) {
        let generation = self.state.generation.max(snapshot.state.generation);
        let clock = self.state.clock.max(snapshot.state.clock);
        self.state = snapshot.state.clone();
        if (self.state.generation, self.state.clock) != (generation, clock) {
            let state = Arc::make_mut(&mut self.state);
            (state.generation, state.clock) = (generation, clock);
        }
        if self.pins.keys().any(|ino| self.state.get(*ino).is_err()) {
            let state = &self.state;
            Arc::make_mut(&mut self.pins).retain(|ino, _| state.get(*ino).is_ok());
        }
        self.drop_orphans();
    }
}
