//! [`Trail`]: what the store was before the last operation. A server that lies goes back to it when it is killed.

use std::collections::HashMap;

use fathom_core::HarnessFault;

use super::store::{START, Store};

/// States of the store that nobody else keeps. What it goes back to follows from the operations alone, whether they
/// were executed one after the other or a saved state lies between them: so a finding can be run again.
pub(super) struct Trail {
    /// Before the last operation.
    before: u64,
    /// After it.
    now: u64,
    /// What was before the last operation when a state was saved.
    saved: HashMap<u64, u64>,
}

impl Trail {
    /// Of an empty store.
    pub(super) fn new() -> Trail {
        Trail { before: START, now: START, saved: HashMap::new() }
    }

    /// The state to go back to.
    pub(super) fn before(&self) -> u64 {
        self.before
    }

    /// An operation has been executed, after which the store is saved under `key`.
    pub(super) fn advance(&mut self, store: &mut Store, key: u64) -> Result<(), HarnessFault> {
        store.save(key)?;
        self.move_to(store, self.now, key);
        Ok(())
    }

    /// The store went back to what it was before the last operation.
    pub(super) fn went_back(&mut self, store: &mut Store) {
        self.move_to(store, self.before, self.before);
    }

    /// The store is empty again.
    pub(super) fn begin_again(&mut self, store: &mut Store) {
        self.move_to(store, START, START);
    }

    /// The present state has been saved under `key`.
    pub(super) fn note_saved(&mut self, key: u64) {
        self.saved.insert(key, self.before);
    }

    /// The store is again what was saved under `key`.
    pub(super) fn note_restored(&mut self, store: &mut Store, key: u64) {
        let before = self.saved.get(&key).copied().unwrap_or(START);
        self.move_to(store, before, key);
    }

    /// What was saved under `key` is not asked for any more.
    pub(super) fn forget(&mut self, store: &mut Store, key: u64) {
        let before = self.saved.remove(&key);
        for key in [Some(key), before].into_iter().flatten() {
            self.release(store, key);
        }
    }

    fn move_to(&mut self, store: &mut Store, before: u64, now: u64) {
        let left = [self.before, self.now];
        (self.before, self.now) = (before, now);
        for key in left {
            self.release(store, key);
        }
    }

    /// Lets the store forget a state, unless it is still needed.
    fn release(&self, store: &mut Store, key: u64) {
        let is_saved = self.saved.iter().any(|(saved, before)| [*saved, *before].contains(&key));
        if key != START && ![self.before, self.now].contains(&key) && !is_saved {
            store.forget(key);
        }
    }
}
