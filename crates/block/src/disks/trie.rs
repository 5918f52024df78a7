//! Answers by what was read, as a tree of decisions.
//!
//! An examination that is deterministic reads the same unit first, whatever the disk; after the same
//! contents it reads the same unit next. So the examinations so far form a tree: a node says which
//! unit is read next, its branches what that unit holds, and a leaf has the answer. Runs of units
//! without a branch are one node. Finding an answer takes as many comparisons as the examination has
//! read stretches of the disk, and every unit that was read is compared: units of [`CELL_BYTES`] byte
//! by byte; of larger ones nothing is left to chance but the collision of 128-bit digests, by which
//! whole images are compared everywhere.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use fathom_core::Digest;

use crate::image::Image;

/// Domain of the digests of units: they are compared with nothing else.
const DOMAIN_UNIT: u64 = 0;

/// Bytes that stand for what a unit holds: its own bytes if it has so few, otherwise their digest.
const CELL_BYTES: usize = 16;

type Cell = [u8; CELL_BYTES];

/// Answers of one kind of examination.
#[derive(Debug)]
pub(super) struct Trie<A> {
    nodes: Vec<Node<A>>,
    unit_bytes: usize,
    /// Units that all nodes hold.
    units: usize,
}

/// An examination that read something else although everything before was the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotDeterministic;

#[derive(Debug)]
struct Node<A> {
    /// What is read first here, with what it must hold.
    run: Run,
    then: Then<A>,
}

#[derive(Debug)]
enum Then<A> {
    Answer(A),
    /// The next unit, and the nodes by what it holds.
    Branch(u32, HashMap<Cell, usize, BuildHasherDefault<CellHasher>>),
}

/// Units that are read one after the other, with what they hold.
#[derive(Debug, Default)]
struct Run {
    /// Neighbouring units: the first one, and how many.
    stretches: Vec<(u32, u32)>,
    /// What they hold.
    cells: Vec<Cell>,
}

impl Run {
    /// These units, in no more memory than they need: most of a memo are runs.
    fn of(units: &[(u32, Cell)]) -> Run {
        Run::with_room(units.len(), units.iter().copied())
    }

    /// At most so many units.
    fn with_room(count: usize, units: impl Iterator<Item = (u32, Cell)>) -> Run {
        let mut run = Run { stretches: Vec::new(), cells: Vec::with_capacity(count) };
        units.for_each(|(unit, cell)| run.push(unit, cell));
        run
    }

    fn push(&mut self, unit: u32, cell: Cell) {
        match self.stretches.last_mut() {
            Some((first, count)) if *first + *count == unit => *count += 1,
            _ => self.stretches.push((unit, 1)),
        }
        self.cells.push(cell);
    }

    /// The stretches with what they hold.
    fn stretches(&self) -> impl Iterator<Item = (u32, &[Cell])> {
        let mut cells = self.cells.as_slice();
        self.stretches.iter().map(move |(first, count)| {
            let (now, later) = cells.split_at(*count as usize);
            cells = later;
            (*first, now)
        })
    }

    fn units(&self) -> impl Iterator<Item = (u32, Cell)> {
        self.stretches().flat_map(|(first, cells)| (first..).zip(cells.iter().copied()))
    }
}

/// Mixes the bytes of one cell; the map compares the cells themselves.
#[derive(Default)]
struct CellHasher(u64);

impl Hasher for CellHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            // 2⁶⁴ divided by the golden ratio; the map looks at both ends of the product.
            let product = u128::from(self.0 ^ u64::from_le_bytes(word)) * 0x9e37_79b9_7f4a_7c15;
            self.0 = (product >> 64) as u64 ^ product as u64;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What a unit holds; the last one of a disk may be shorter than the others.
fn cell(image: &Image, unit_bytes: usize, unit: u32) -> Option<Cell> {
    let at = unit as usize * unit_bytes;
    let len = image.size().checked_sub(at)?.min(unit_bytes);
    if len <= CELL_BYTES {
        let mut bytes = [0; CELL_BYTES];
        image.read(at, &mut bytes[..len]);
        return Some(bytes);
    }
    let held = image.slice(at, len).map(|bytes| Digest::of(DOMAIN_UNIT, bytes));
    let held = held.unwrap_or_else(|| {
        let mut bytes = vec![0; len];
        image.read(at, &mut bytes);
        Digest::of(DOMAIN_UNIT, &bytes)
    });
    Some(held.0.to_le_bytes())
}

impl<A> Trie<A> {
    /// No answers, in units of so many bytes.
    pub(super) fn new(unit_bytes: usize) -> Trie<A> {
        Trie { nodes: Vec::new(), unit_bytes, units: 0 }
    }

    /// Bytes of a unit.
    pub(super) fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Units that are kept: a measure of the memory.
    pub(super) fn units(&self) -> usize {
        self.units
    }

    /// The answer for a disk, if it is known.
    pub(super) fn find(&self, image: &Image) -> Option<&A> {
        let mut node = self.nodes.first()?;
        loop {
            if !node.run.stretches().all(|(first, cells)| self.holds(image, first, cells)) {
                return None;
            }
            match &node.then {
                Then::Answer(answer) => return Some(answer),
                Then::Branch(unit, branches) => {
                    let next = branches.get(&cell(image, self.unit_bytes, *unit)?)?;
                    node = &self.nodes[*next];
                }
            }
        }
    }

    /// Whether neighbouring units hold this.
    fn holds(&self, image: &Image, first: u32, cells: &[Cell]) -> bool {
        let (at, len) = (first as usize * self.unit_bytes, size_of_val(cells));
        if self.unit_bytes == CELL_BYTES && at + len <= image.size() {
            let mut wanted = cells.as_flattened();
            return image.slices(at, len).all(|bytes| {
                let (now, later) = wanted.split_at(bytes.len());
                wanted = later;
                now == bytes
            });
        }
        let mut units = (first..).zip(cells);
        units.all(|(unit, holds)| cell(image, self.unit_bytes, unit).as_ref() == Some(holds))
    }

    /// Adds the answer of an examination of `image` that read `units` in this order.
    ///
    /// # Errors
    /// If a known examination of the same contents read something else.
    pub(super) fn insert(
        &mut self,
        image: &Image,
        units: impl IntoIterator<Item = u32>,
        answer: A,
    ) -> Result<(), NotDeterministic> {
        let holds = |unit| cell(image, self.unit_bytes, unit).map(|held| (unit, held));
        let read: Option<Vec<(u32, Cell)>> = units.into_iter().map(holds).collect();
        let read = read.ok_or(NotDeterministic)?;
        let mut read = read.as_slice();
        if self.nodes.is_empty() {
            self.leaf(read, answer);
            return Ok(());
        }
        let mut at = 0;
        loop {
            let run = &self.nodes[at].run;
            let same = run.units().zip(read).take_while(|(known, new)| known == *new).count();
            if same < run.cells.len() {
                return self.split(at, same, &read[same..], answer);
            }
            read = &read[same..];
            match (&mut self.nodes[at].then, read.split_first()) {
                // Somebody else has found it out at the same time.
                (Then::Answer(_), None) => return Ok(()),
                (Then::Branch(unit, branches), Some(((next, holds), rest))) if unit == next => {
                    if let Some(node) = branches.get(holds) {
                        (at, read) = (*node, rest);
                        continue;
                    }
                    let leaf = self.leaf(rest, answer);
                    if let Then::Branch(_, branches) = &mut self.nodes[at].then {
                        branches.insert(*holds, leaf);
                    }
                    return Ok(());
                }
                _ => return Err(NotDeterministic),
            }
        }
    }

    /// Makes a branch inside the run of node `at`, after `same` units: what was there, and `read`.
    fn split(
        &mut self,
        at: usize,
        same: usize,
        read: &[(u32, Cell)],
        answer: A,
    ) -> Result<(), NotDeterministic> {
        let whole = &self.nodes[at].run;
        let mut after = whole.units().skip(same);
        let (Some((unit, held)), Some(((next, holds), rest))) = (after.next(), read.split_first())
        else {
            return Err(NotDeterministic);
        };
        if *next != unit {
            return Err(NotDeterministic);
        }
        let run = Run::with_room(whole.cells.len() - same - 1, after);
        let before = Run::with_room(same, whole.units().take(same));
        let leaf = self.leaf(rest, answer);
        let (holds, below) = (*holds, self.nodes.len());
        let node = &mut self.nodes[at];
        node.run = before;
        let branch = Then::Branch(unit, HashMap::from_iter([(held, below), (holds, leaf)]));
        let then = std::mem::replace(&mut node.then, branch);
        self.nodes.push(Node { run, then });
        Ok(())
    }

    fn leaf(&mut self, read: &[(u32, Cell)], answer: A) -> usize {
        // The node itself, its branch and its answer count as much as eight units.
        self.units += read.len() + 8;
        self.nodes.push(Node { run: Run::of(read), then: Then::Answer(answer) });
        self.nodes.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Erased;

    const UNIT_BYTES: usize = 64;

    fn disk(units: &[u8]) -> Image {
        disk_of(units, UNIT_BYTES)
    }

    fn disk_of(units: &[u8], unit_bytes: usize) -> Image {
        let bytes: Vec<u8> = units.iter().flat_map(|byte| vec![*byte; unit_bytes]).collect();
        Image::from_bytes(&bytes, Erased::Zeros)
    }

    #[test]
    fn an_answer_is_found_by_what_was_read() {
        let mut trie = Trie::new(UNIT_BYTES);
        assert_eq!(trie.find(&disk(&[0; 4])), None);
        // Unit 0 says where to go on.
        trie.insert(&disk(&[1, 7, 0, 0]), [0, 1], 'a').unwrap();
        trie.insert(&disk(&[2, 7, 8, 0]), [0, 2], 'b').unwrap();
        trie.insert(&disk(&[2, 7, 9, 5]), [0, 2, 3], 'c').unwrap();
        assert_eq!(trie.find(&disk(&[1, 7, 3, 3])), Some(&'a'));
        assert_eq!(trie.find(&disk(&[2, 0, 8, 1])), Some(&'b'));
        assert_eq!(trie.find(&disk(&[2, 1, 9, 5])), Some(&'c'));
        for other in [[1, 8, 0, 0], [2, 0, 7, 0], [2, 0, 9, 6], [3, 7, 0, 0]] {
            assert_eq!(trie.find(&disk(&other)), None, "{other:?}");
        }
    }

    #[test]
    fn what_reads_something_else_after_the_same_is_refused() {
        let mut trie = Trie::new(UNIT_BYTES);
        let image = disk(&[1, 2, 3, 4]);
        trie.insert(&image, [0, 1, 2], 'a').unwrap();
        for units in [&[0, 2][..], &[0, 1], &[0, 1, 2, 3], &[0, 1, 9]] {
            assert_eq!(
                trie.insert(&image, units.to_vec(), 'b'),
                Err(NotDeterministic),
                "{units:?}"
            );
        }
        trie.insert(&disk(&[1, 5, 3, 4]), [0, 1, 3], 'c').unwrap();
        let other = disk(&[1, 6, 3, 4]);
        assert_eq!(trie.insert(&other, [0, 3], 'd'), Err(NotDeterministic));
        assert_eq!(trie.insert(&image, [0, 1, 2], 'a'), Ok(()));
        assert_eq!(trie.find(&image), Some(&'a'));
    }

    /// Every unit that was read decides: a disk that differs in any one of them has no answer, and one
    /// that differs in any other has it.
    #[test]
    fn every_unit_that_was_read_decides() {
        let units = [5, 0, 2, 3, 4];
        for unit_bytes in [CELL_BYTES, UNIT_BYTES] {
            let mut trie = Trie::new(unit_bytes);
            trie.insert(&disk_of(&[9; 8], unit_bytes), units, 'a').unwrap();
            // The same after the run has been split inside a stretch.
            trie.insert(&disk_of(&[9, 9, 9, 7, 9, 9, 9, 9], unit_bytes), units, 'b').unwrap();
            for unit in 0..8 {
                let mut bytes = [9; 8];
                bytes[unit] = 8;
                let found = trie.find(&disk_of(&bytes, unit_bytes));
                assert_eq!(found.is_none(), units.contains(&(unit as u32)), "unit {unit}");
                bytes[3] = 7;
                let found = trie.find(&disk_of(&bytes, unit_bytes));
                let other = unit != 3 && units.contains(&(unit as u32));
                assert_eq!(found, if other { None } else { Some(&'b') }, "unit {unit}");
            }
        }
    }

    /// Stretches of units may lie in several leaves of an image.
    #[test]
    fn long_stretches_are_compared_to_their_end() {
        let units: Vec<u32> = (0..1000).collect();
        let mut image = Image::new(1000 * CELL_BYTES, Erased::Ones);
        let mut trie = Trie::new(CELL_BYTES);
        trie.insert(&image, units.clone(), 'a').unwrap();
        assert_eq!(trie.find(&image), Some(&'a'));
        image.write(1000 * CELL_BYTES - 1, b"x");
        assert_eq!(trie.find(&image), None);
    }

    /// The last unit of a disk that is no multiple of a unit is shorter.
    #[test]
    fn a_short_last_unit_is_compared_too() {
        for (unit_bytes, last) in [(UNIT_BYTES, 1), (CELL_BYTES, 6)] {
            let mut image = Image::new(100, Erased::Ones);
            let mut trie = Trie::new(unit_bytes);
            trie.insert(&image, [last], 'a').unwrap();
            image.write(0, b"x");
            assert_eq!(trie.find(&image), Some(&'a'));
            image.write(99, b"x");
            assert_eq!(trie.find(&image), None);
        }
    }
}
