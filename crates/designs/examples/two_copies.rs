//! A design from outside: the whole volume twice, the newer complete copy counts.
//!
//! `cargo run --example two_copies` explores it, and then the same without its checksum.

use fathom_block::{Geometry, Level, Recorder};
use fathom_core::{DataSum, Errno};
use fathom_designs::volume::{Design, Explorer, Invariant, Limits, Menu, Path, Promise, Tree};
use fathom_engine::search::{Plan, Strategy, Unobserved, search};

const BLOCK: usize = 16;
/// Files and directories of a volume: one block each.
const ENTRIES: usize = 3;
/// A copy: a header (version, number of entries, checksum) and the entries.
const COPY: usize = (1 + ENTRIES) * BLOCK;

pub(crate) struct TwoCopies {
    pub(crate) checksum: bool,
}

/// A file (its contents) or a directory.
type Entry = (Path, Option<Vec<u8>>);

#[derive(Clone)]
pub(crate) struct Memory {
    version: u8,
    entries: Vec<Entry>,
}

fn encode((path, contents): &Entry) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..path.depth()].copy_from_slice(path.names());
    block[4] = contents.as_ref().map_or(0xff, |contents| contents.len() as u8);
    let contents = contents.as_deref().unwrap_or_default();
    block[5..5 + contents.len()].copy_from_slice(contents);
    block
}

fn decode(block: &[u8]) -> Option<Entry> {
    let names = block[..4].iter().take_while(|name| **name != 0);
    let path = names.into_iter().try_fold(Path::ROOT, |path, name| path.join(*name))?;
    match block[4] {
        0xff => Some((path, None)),
        len => Some((path, Some(block[5..].get(..usize::from(len))?.to_vec()))),
    }
}

impl TwoCopies {
    fn load(&self, disk: &Recorder, copy: usize) -> Option<Memory> {
        let mut bytes = [0; COPY];
        disk.image().read(copy * COPY, &mut bytes);
        let (header, entries) = bytes.split_at(BLOCK);
        let used = entries.get(..usize::from(header[1]) * BLOCK)?;
        let whole = header[8..] == DataSum::of(used).0.to_le_bytes();
        let entries = used.chunks(BLOCK).map(decode).collect::<Option<_>>()?;
        (whole || !self.checksum).then_some(Memory { version: header[0], entries })
    }

    fn store(&self, memory: &mut Memory, disk: &mut Recorder) {
        memory.version += 1;
        let at = usize::from(memory.version % 2) * COPY;
        let bytes: Vec<u8> = memory.entries.iter().flat_map(encode).collect();
        for (place, block) in bytes.chunks(BLOCK).enumerate() {
            disk.write(at + (1 + place) * BLOCK, block).expect("a block of the device");
        }
        let mut header = [0; BLOCK];
        (header[0], header[1]) = (memory.version, memory.entries.len() as u8);
        header[8..].copy_from_slice(&DataSum::of(&bytes).0.to_le_bytes());
        disk.write(at, &header).expect("a block of the device");
        disk.flush();
    }
}

fn contents(memory: &mut Memory, path: Path) -> Result<&mut Vec<u8>, Errno> {
    let entry = memory.entries.iter_mut().find(|entry| entry.0 == path);
    entry.and_then(|entry| entry.1.as_mut()).ok_or(Errno::ENOENT)
}

const INVARIANTS: &[Invariant<TwoCopies>] = &[Invariant {
    name: "no name twice",
    check: |_, memory, _| {
        let mut paths: Vec<Path> = memory.entries.iter().map(|entry| entry.0).collect();
        paths.sort();
        match paths.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(format!("{} is there twice", pair[0])),
        }
    },
}];

impl Design for TwoCopies {
    type Memory = Memory;

    fn name(&self) -> &'static str {
        "two-copies"
    }
    fn geometry(&self) -> Geometry {
        let (write_bytes, atomic_bytes, erase_bytes) = (BLOCK, BLOCK, BLOCK);
        let disk = Geometry::disk(2 * COPY);
        Geometry { read_bytes: BLOCK, write_bytes, atomic_bytes, erase_bytes, ..disk }
    }
    fn promise(&self) -> Promise {
        Promise { level: Level::Epoch, fsync_is_sync: true }
    }
    fn menu(&self) -> Menu {
        Menu { entries_max: ENTRIES, dirs_deep_max: 1, write_blocks: 1, overwrite: true }
    }
    fn invariants(&self) -> &'static [Invariant<TwoCopies>] {
        INVARIANTS
    }
    fn mkfs(&self, disk: &mut Recorder) {
        self.store(&mut Memory { version: 0, entries: Vec::new() }, disk);
    }
    fn mount(&self, disk: &mut Recorder) -> Result<Memory, Errno> {
        let copies = [self.load(disk, 0), self.load(disk, 1)];
        copies.into_iter().flatten().max_by_key(|copy| copy.version).ok_or(Errno::EUCLEAN)
    }
    fn read(&self, memory: &Memory, _: &Recorder) -> Result<Tree, Errno> {
        let mut tree = Tree::default();
        for (path, contents) in &memory.entries {
            tree.add(*path, contents.as_deref());
        }
        Ok(tree)
    }
    fn create(
        &self,
        memory: &mut Memory,
        _: &mut Recorder,
        path: Path,
        is_dir: bool,
    ) -> Result<(), Errno> {
        memory.entries.push((path, (!is_dir).then(Vec::new)));
        Ok(())
    }
    fn write(
        &self,
        memory: &mut Memory,
        _: &mut Recorder,
        path: Path,
        place: u8,
        new: &[u8],
    ) -> Result<(), Errno> {
        let (file, start) = (contents(memory, path)?, usize::from(place));
        file.resize(file.len().max(start + new.len()), 0);
        file[start..start + new.len()].copy_from_slice(new);
        Ok(())
    }
    fn truncate(&self, memory: &mut Memory, _: &mut Recorder, path: Path) -> Result<(), Errno> {
        contents(memory, path).map(Vec::clear)
    }
    fn remove(&self, memory: &mut Memory, _: &mut Recorder, path: Path) -> Result<(), Errno> {
        memory.entries.retain(|entry| entry.0 != path);
        Ok(())
    }
    fn rename(
        &self,
        memory: &mut Memory,
        _: &mut Recorder,
        from: Path,
        to: Path,
    ) -> Result<(), Errno> {
        for (path, _) in &mut memory.entries {
            if *path == from || path.is_below(&from) {
                let rest = path.names()[from.depth()..].iter();
                *path = rest.fold(to, |path, name| path.join(*name).expect("as deep as before"));
            }
        }
        Ok(())
    }
    fn fsync(&self, memory: &mut Memory, disk: &mut Recorder, _: Path) -> Result<(), Errno> {
        self.sync(memory, disk)
    }
    fn sync(&self, memory: &mut Memory, disk: &mut Recorder) -> Result<(), Errno> {
        self.store(memory, disk);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for checksum in [true, false] {
        let explorer = Explorer::new(TwoCopies { checksum }, Limits::default())?;
        let plan = Plan { depth_max: Some(6), ..Plan::default() };
        let report = search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved)?;
        let (states, failures) = (report.states, explorer.recoveries());
        println!(
            "checksum {checksum}: {states} states, {failures} power failures: {}",
            report.stop
        );
        for violation in report.violations() {
            println!("{}:\n{}", violation.property, explorer.tell(&violation.path));
        }
    }
    Ok(())
}
