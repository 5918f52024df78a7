//! Answers by what was read, as a tree of decisions.
//!
//! An examination that is deterministic reads the same unit first, whatever the disk; after the same
//! contents it reads the same unit next. So the examinations so far form a tree: a node says which
//! unit is read next, its branches what that unit holds, and a leaf has the answer. Runs of units
//! without a branch are one node. Finding an answer takes as many comparisons as the examination has
//! read units, and every unit that was read is compared: nothing is left to chance but the collision
//! of 128-bit digests, by which whole images are compared everywhere.

use std::collections::HashMap;

use fathom_core::Digest;

use crate::image::Image;

/// Domain of the digests of units: they are compared with nothing else.
const DOMAIN_UNIT: u64 = 0;

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
    run: Vec<(u32, Digest)>,
    then: Then<A>,
}

#[derive(Debug)]
enum Then<A> {
    Answer(A),
    /// The next unit, and the nodes by what it holds.
    Branch(u32, HashMap<Digest, usize>),
}

/// What a unit holds; the last one of a disk may be shorter than the others.
fn digest(image: &Image, unit_bytes: usize, unit: u32) -> Option<Digest> {
    let at = unit as usize * unit_bytes;
    let len = image.size().checked_sub(at)?.min(unit_bytes);
    let held = image.slice(at, len).map(|bytes| Digest::of(DOMAIN_UNIT, bytes));
    held.or_else(|| {
        let mut bytes = vec![0; len];
        image.read(at, &mut bytes);
        Some(Digest::of(DOMAIN_UNIT, &bytes))
    })
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
            for (unit, holds) in &node.run {
                if digest(image, self.unit_bytes, *unit)? != *holds {
                    return None;
                }
            }
            match &node.then {
                Then::Answer(answer) => return Some(answer),
                Then::Branch(unit, branches) => {
                    let next = branches.get(&digest(image, self.unit_bytes, *unit)?)?;
                    node = &self.nodes[*next];
                }
            }
        }
    }

    /// Adds the answer of an examination of `image` that read `units` in this order.
    ///
    /// # Errors
    /// If a known examination of the same contents read something else.
    pub(super) fn insert(
        &mut self,
        image: &Image,
        units: &[u32],
        answer: A,
    ) -> Result<(), NotDeterministic> {
        let holds = |unit: &u32| digest(image, self.unit_bytes, *unit).map(|held| (*unit, held));
        let mut read: &[(u32, Digest)] = &units.iter().filter_map(holds).collect::<Vec<_>>();
        if read.len() < units.len() {
            return Err(NotDeterministic);
        }
        if self.nodes.is_empty() {
            self.leaf(read, answer);
            return Ok(());
        }
        let mut at = 0;
        loop {
            let run = &self.nodes[at].run;
            let same = run.iter().zip(read).take_while(|(known, new)| known == new).count();
            if same < run.len() {
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
        read: &[(u32, Digest)],
        answer: A,
    ) -> Result<(), NotDeterministic> {
        let (unit, held) = self.nodes[at].run[same];
        let Some(((next, holds), rest)) = read.split_first() else { return Err(NotDeterministic) };
        if *next != unit {
            return Err(NotDeterministic);
        }
        let leaf = self.leaf(rest, answer);
        let (holds, below) = (*holds, self.nodes.len());
        let node = &mut self.nodes[at];
        let run = node.run.split_off(same + 1);
        node.run.pop();
        let branch = Then::Branch(unit, HashMap::from([(held, below), (holds, leaf)]));
        let then = std::mem::replace(&mut node.then, branch);
        self.nodes.push(Node { run, then });
        Ok(())
    }

    fn leaf(&mut self, read: &[(u32, Digest)], answer: A) -> usize {
        // The node itself, its branch and its answer count as much as two units.
        self.units += read.len() + 2;
        self.nodes.push(Node { run: read.to_vec(), then: Then::Answer(answer) });
        self.nodes.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Erased;

    const UNIT_BYTES: usize = 64;

    fn disk(units: &[u8]) -> Image {
        let bytes: Vec<u8> = units.iter().flat_map(|byte| [*byte; UNIT_BYTES]).collect();
        Image::from_bytes(&bytes, Erased::Zeros)
    }

    #[test]
    fn an_answer_is_found_by_what_was_read() {
        let mut trie = Trie::new(UNIT_BYTES);
        assert_eq!(trie.find(&disk(&[0; 4])), None);
        // Unit 0 says where to go on.
        trie.insert(&disk(&[1, 7, 0, 0]), &[0, 1], 'a').unwrap();
        trie.insert(&disk(&[2, 7, 8, 0]), &[0, 2], 'b').unwrap();
        trie.insert(&disk(&[2, 7, 9, 5]), &[0, 2, 3], 'c').unwrap();
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
        trie.insert(&image, &[0, 1, 2], 'a').unwrap();
        for units in [&[0, 2][..], &[0, 1], &[0, 1, 2, 3], &[0, 1, 9]] {
            assert_eq!(trie.insert(&image, units, 'b'), Err(NotDeterministic), "{units:?}");
        }
        trie.insert(&disk(&[1, 5, 3, 4]), &[0, 1, 3], 'c').unwrap();
        let other = disk(&[1, 6, 3, 4]);
        assert_eq!(trie.insert(&other, &[0, 3], 'd'), Err(NotDeterministic));
        assert_eq!(trie.insert(&image, &[0, 1, 2], 'a'), Ok(()));
        assert_eq!(trie.find(&image), Some(&'a'));
    }

    /// Every unit that was read decides: a disk that differs in any one of them has no answer, and one
    /// that differs in any other has it.
    #[test]
    fn every_unit_that_was_read_decides() {
        let units = [5, 0, 3, 6];
        let mut trie = Trie::new(UNIT_BYTES);
        trie.insert(&disk(&[9; 8]), &units, 'a').unwrap();
        for unit in 0..8 {
            let mut bytes = [9; 8];
            bytes[unit] = 8;
            let found = trie.find(&disk(&bytes));
            assert_eq!(found.is_none(), units.contains(&(unit as u32)), "unit {unit}");
        }
    }

    /// The last unit of a disk that is no multiple of a unit is shorter.
    #[test]
    fn a_short_last_unit_is_compared_too() {
        let mut image = Image::new(100, Erased::Ones);
        let mut trie = Trie::new(UNIT_BYTES);
        trie.insert(&image, &[1], 'a').unwrap();
        image.write(0, b"x");
        assert_eq!(trie.find(&image), Some(&'a'));
        image.write(99, b"x");
        assert_eq!(trie.find(&image), None);
    }
}
