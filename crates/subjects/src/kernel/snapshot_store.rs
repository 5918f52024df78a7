//! [`SnapshotStore`]: saved states of a disk, each block kept once.
//!
//! A state is the list of blocks that differ from the first one. The blocks of all states are shared
//! by content: most states of a campaign have most of their blocks in common. Beyond a limit the
//! oldest blocks go, compressed, to a temporary file that has no name.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fathom_core::{Digest, Saved};

use super::image::{BLOCK_BYTES, Changes, Page, Pages};

/// The quickest that compresses: most blocks are nearly empty.
const COMPRESSION_LEVEL: i32 = 1;

pub(super) struct SnapshotStore {
    states: BTreeMap<Saved, Changes>,
    saved_next: u64,
    blocks: HashMap<Digest, StoredBlock>,
    /// Blocks in memory, the oldest first; some may be gone meanwhile.
    ages: VecDeque<Digest>,
    memory_bytes: u64,
    memory_bytes_max: u64,
    spill: Option<SpillFile>,
}

struct StoredBlock {
    /// How many places in states mean it.
    users: u64,
    place: Place,
}

enum Place {
    Memory(Arc<Page>),
    File { at: u64, len: usize },
}

/// The file; its space is used again when it holds nothing any more.
struct SpillFile {
    file: File,
    end: u64,
    blocks: u64,
}

impl SnapshotStore {
    /// Keeps at most so much in memory.
    pub(super) fn new(memory_bytes_max: u64) -> SnapshotStore {
        SnapshotStore {
            states: BTreeMap::new(),
            saved_next: 0,
            blocks: HashMap::new(),
            ages: VecDeque::new(),
            memory_bytes: 0,
            memory_bytes_max,
            spill: None,
        }
    }

    /// Keeps at most so much in memory, from the next state on.
    pub(super) fn set_memory_bytes_max(&mut self, bytes: u64) {
        self.memory_bytes_max = bytes;
    }

    /// Keeps a state, whose pages are held already.
    pub(super) fn put(&mut self, changes: Changes) -> Saved {
        let saved = Saved(self.saved_next);
        self.saved_next += 1;
        self.states.insert(saved, changes);
        saved
    }

    /// What was put, if it was not forgotten.
    pub(super) fn get(&self, saved: Saved) -> Option<&[(u32, Option<Digest>)]> {
        self.states.get(&saved).map(Vec::as_slice)
    }

    pub(super) fn forget(&mut self, saved: Saved) {
        let Some(blocks) = self.states.remove(&saved) else { return };
        for digest in blocks.into_iter().filter_map(|(_, digest)| digest) {
            self.release(digest);
        }
    }

    fn release(&mut self, digest: Digest) {
        let held = self.blocks.get_mut(&digest).expect("a state holds its blocks");
        held.users -= 1;
        if held.users > 0 {
            return;
        }
        match self.blocks.remove(&digest).expect("it was there").place {
            Place::Memory(_) => self.memory_bytes -= BLOCK_BYTES as u64,
            Place::File { .. } => {
                let spill = self.spill.as_mut().expect("a block in the file has a file");
                spill.blocks -= 1;
                if spill.blocks == 0 {
                    spill.end = 0;
                }
            }
        }
        // Names of blocks that are gone do not pile up.
        if self.ages.len() > 64 + 2 * self.blocks.len() {
            let blocks = &self.blocks;
            self.ages.retain(|digest| blocks.contains_key(digest));
        }
    }

    /// Moves the oldest blocks to the file until the limit is kept.
    fn spill(&mut self) -> io::Result<()> {
        while self.memory_bytes > self.memory_bytes_max {
            let Some(digest) = self.ages.pop_front() else { break };
            let Some(held) = self.blocks.get_mut(&digest) else { continue };
            let Place::Memory(page) = &held.place else { continue };
            let packed = zstd::bulk::compress(page.bytes(), COMPRESSION_LEVEL)?;
            let spill = match &mut self.spill {
                Some(spill) => spill,
                none => none.insert(SpillFile { file: tempfile::tempfile()?, end: 0, blocks: 0 }),
            };
            spill.file.write_all_at(&packed, spill.end)?;
            held.place = Place::File { at: spill.end, len: packed.len() };
            spill.end += packed.len() as u64;
            spill.blocks += 1;
            self.memory_bytes -= BLOCK_BYTES as u64;
        }
        Ok(())
    }
}

impl Pages for SnapshotStore {
    /// At the limit the oldest pages go to the file at once: a state may be larger than all that fits.
    fn hold(&mut self, page: &Arc<Page>) -> io::Result<()> {
        let digest = page.digest();
        if let Some(held) = self.blocks.get_mut(&digest) {
            held.users += 1;
            return Ok(());
        }
        let place = Place::Memory(Arc::clone(page));
        self.blocks.insert(digest, StoredBlock { users: 1, place });
        self.ages.push_back(digest);
        self.memory_bytes += BLOCK_BYTES as u64;
        self.spill()
    }

    fn load(&self, digest: &Digest) -> io::Result<Arc<Page>> {
        match &self.blocks[digest].place {
            Place::Memory(page) => Ok(Arc::clone(page)),
            Place::File { at, len } => {
                let mut packed = vec![0; *len];
                let spill = self.spill.as_ref().expect("a block in the file has a file");
                spill.file.read_exact_at(&mut packed, *at)?;
                let block = zstd::bulk::decompress(&packed, BLOCK_BYTES)?;
                match block.len() {
                    BLOCK_BYTES => Ok(Arc::new(Page::new(&block))),
                    _ => Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
    }

    fn in_memory(&self, digest: &Digest) -> Option<Arc<Page>> {
        match &self.blocks[digest].place {
            Place::Memory(page) => Some(Arc::clone(page)),
            Place::File { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has the store hold the pages of a state.
    fn state(store: &mut SnapshotStore, seeds: std::ops::Range<u64>) -> Saved {
        let mut changes = Changes::new();
        for seed in seeds {
            let page = Arc::new(page(seed));
            store.hold(&page).unwrap();
            changes.push((seed as u32 * 2, Some(page.digest())));
        }
        changes.push((1_000_000, None));
        store.put(changes)
    }

    fn page(seed: u64) -> Page {
        Page::new(&fathom_core::Pattern { seed, len: BLOCK_BYTES as u64 }.to_vec())
    }

    fn has(store: &SnapshotStore, saved: Saved, mut seeds: std::ops::Range<u64>) -> bool {
        let Some([changes @ .., (1_000_000, None)]) = store.get(saved) else { return false };
        let expected = seeds.clone().count() == changes.len();
        let mut loaded = changes.iter().map(|(index, digest)| {
            let page = store.load(&digest.unwrap()).unwrap();
            (*index, page)
        });
        let is_same = loaded.all(|(index, found)| {
            seeds.next().is_some_and(|seed| index == seed as u32 * 2 && *found == page(seed))
        });
        expected && is_same
    }

    #[test]
    fn blocks_are_kept_once_and_go_with_their_last_state() {
        let mut store = SnapshotStore::new(u64::MAX);
        let first = state(&mut store, 0..10);
        let second = state(&mut store, 5..15);
        assert_eq!(store.memory_bytes, 15 * BLOCK_BYTES as u64);
        assert!(has(&store, first, 0..10) && has(&store, second, 5..15));
        store.forget(first);
        assert!(store.get(first).is_none() && has(&store, second, 5..15));
        assert_eq!(store.memory_bytes, 10 * BLOCK_BYTES as u64);
        store.forget(second);
        store.forget(second);
        assert_eq!((store.memory_bytes, store.blocks.len()), (0, 0));
    }

    #[test]
    fn beyond_the_limit_blocks_go_to_a_file_and_come_back() {
        let mut store = SnapshotStore::new(4 * BLOCK_BYTES as u64);
        let saved: Vec<Saved> = (0..20).map(|n| state(&mut store, n * 3..n * 3 + 6)).collect();
        assert_eq!(store.memory_bytes, 4 * BLOCK_BYTES as u64);
        assert_eq!(store.spill.as_ref().unwrap().blocks, 63 - 4);
        for (n, saved) in (0..).zip(&saved) {
            assert!(has(&store, *saved, n * 3..n * 3 + 6));
        }
        for saved in saved {
            store.forget(saved);
        }
        let spill = store.spill.as_ref().unwrap();
        assert_eq!((store.memory_bytes, spill.blocks, spill.end), (0, 0, 0));
    }

    #[test]
    fn a_state_that_is_larger_than_the_limit_is_never_in_memory_as_a_whole() {
        let mut store = SnapshotStore::new(4 * BLOCK_BYTES as u64);
        for seed in 0..100 {
            store.hold(&Arc::new(page(seed))).unwrap();
            assert!(store.memory_bytes <= 4 * BLOCK_BYTES as u64);
        }
    }
}
