//! A design from outside: the whole volume twice, the newer complete copy counts.
//!
//! `cargo run --example two_copies` explores it, and then the same without its checksum.

use fathom_block::{Geometry, Level, Recorder};
use fathom_core::{DataSum, Errno};
use fathom_designs::volume::{
    Design, Invariant, OperationSet, Path, Promise, Tree, Volume, device, explore,
};

const BLOCK: usize = 16;
/// Files and directories of a volume: one block each.
const ENTRIES: usize = 3;
/// A copy: a header (version, number of entries, checksum) and the entries.
const COPY: usize = (1 + ENTRIES) * BLOCK;
/// Where an entry has its number of blocks (after its path); their contents follow.
const LEN: usize = 4;
const DIRECTORY: u8 = 0xff;

pub(crate) struct TwoCopies {
    pub(crate) checksum: bool,
}

#[derive(Clone)]
pub(crate) struct Memory {
    version: u8,
    entries: Vec<[u8; BLOCK]>,
}

impl Memory {
    fn add(&mut self, path: Path, len: u8) -> Result<(), Errno> {
        let mut entry = [0; BLOCK];
        entry[..LEN].copy_from_slice(&path.bytes());
        entry[LEN] = len;
        let room = self.entries.len() < ENTRIES;
        room.then(|| self.entries.push(entry)).ok_or(Errno::ENOSPC)
    }

    fn find(&mut self, path: Path) -> Result<&mut [u8; BLOCK], Errno> {
        self.entries.iter_mut().find(|entry| entry[..LEN] == path.bytes()).ok_or(Errno::ENOENT)
    }
}

impl TwoCopies {
    fn load(&self, disk: &Recorder, copy: usize) -> Option<Memory> {
        let mut bytes = [0; COPY];
        disk.image().read(copy * COPY, &mut bytes);
        let (header, entries) = bytes.split_at(BLOCK);
        let used = entries.get(..usize::from(header[1]) * BLOCK)?;
        let whole = header[8..] == DataSum::of(used).0.to_le_bytes();
        let entries = used.as_chunks().0.to_vec();
        (whole || !self.checksum).then_some(Memory { version: header[0], entries })
    }

    fn store(&self, memory: &mut Memory, disk: &mut Recorder) -> Result<(), Errno> {
        memory.version += 1;
        let bytes = memory.entries.as_flattened();
        let mut header = [0; BLOCK];
        (header[0], header[1]) = (memory.version, memory.entries.len() as u8);
        header[8..].copy_from_slice(&DataSum::of(bytes).0.to_le_bytes());
        let at = usize::from(memory.version % 2) * COPY;
        for (place, block) in [header].iter().chain(&memory.entries).enumerate() {
            disk.write(at + place * BLOCK, block).map_err(|_| Errno::EIO)?;
        }
        disk.flush();
        Ok(())
    }
}

const INVARIANTS: &[Invariant<TwoCopies>] = &[Invariant {
    name: "no name twice",
    check: |_, memory, _| {
        let mut paths: Vec<&[u8]> = memory.entries.iter().map(|entry| &entry[..LEN]).collect();
        paths.sort_unstable();
        let twice = paths.windows(2).any(|pair| pair[0] == pair[1]);
        if twice { Err(format!("a name is twice in {paths:?}")) } else { Ok(()) }
    },
}];

impl Design for TwoCopies {
    type Memory = Memory;

    fn name(&self) -> &'static str {
        "two-copies"
    }
    fn geometry(&self) -> Geometry {
        device(2 * (1 + ENTRIES), BLOCK)
    }
    fn promise(&self) -> Promise {
        Promise { level: Level::Epoch, fsync_is_sync: true }
    }
    fn menu(&self) -> OperationSet {
        OperationSet { entries_max: ENTRIES, ..OperationSet::default() }
    }
    fn invariants(&self) -> &'static [Invariant<TwoCopies>] {
        INVARIANTS
    }
    fn mkfs(&self, disk: &mut Recorder) {
        let blank = &mut Memory { version: 0, entries: Vec::new() };
        self.store(blank, disk).expect("the device is large enough");
    }
    fn mount(&self, disk: &mut Recorder) -> Result<Memory, Errno> {
        let copies = [self.load(disk, 0), self.load(disk, 1)];
        copies.into_iter().flatten().max_by_key(|copy| copy.version).ok_or(Errno::EUCLEAN)
    }
    fn tree(&self, on: &Volume<Memory>) -> Result<Tree, Errno> {
        let mut tree = Tree::default();
        for [a, b, c, d, len, contents @ ..] in &on.memory.entries {
            let held = if *len == DIRECTORY { None } else { contents.get(..usize::from(*len)) };
            tree.add(Path::of([*a, *b, *c, *d]), held);
        }
        Ok(tree)
    }
    fn create(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        on.memory.add(path, 0)
    }
    fn mkdir(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        on.memory.add(path, DIRECTORY)
    }
    fn write(&self, on: &mut Volume<Memory>, path: Path, at: u8, new: &[u8]) -> Result<(), Errno> {
        let entry = on.memory.find(path)?;
        let (from, end) = (LEN + 1 + usize::from(at), at + new.len() as u8);
        entry.get_mut(from..from + new.len()).ok_or(Errno::ENOSPC)?.copy_from_slice(new);
        entry[LEN] = entry[LEN].max(end);
        Ok(())
    }
    fn truncate(&self, on: &mut Volume<Memory>, path: Path, blocks: u8) -> Result<(), Errno> {
        on.memory.find(path).map(|entry| entry[LEN] = entry[LEN].min(blocks))
    }
    fn remove(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        on.memory.entries.retain(|entry| entry[..LEN] != path.bytes());
        Ok(())
    }
    fn rename(&self, on: &mut Volume<Memory>, from: Path, to: Path) -> Result<(), Errno> {
        for [a, b, c, d, ..] in &mut on.memory.entries {
            let path = Path::of([*a, *b, *c, *d]).moved(&from, &to).ok_or(Errno::ENAMETOOLONG)?;
            [*a, *b, *c, *d] = path.bytes();
        }
        Ok(())
    }
    fn sync(&self, on: &mut Volume<Memory>) -> Result<(), Errno> {
        self.store(&mut on.memory, &mut on.disk)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("with its checksum: {}", explore(TwoCopies { checksum: true }, 6)?);
    println!("without: {}", explore(TwoCopies { checksum: false }, 6)?);
    Ok(())
}
