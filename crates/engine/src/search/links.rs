//! Stores how every state was reached, in two or three bytes each.
//!
//! Nodes are numbered 1, 2, … in the order in which they were found; a node is reached from its
//! parent (a smaller number) by a choice (the index of the action). Node 0 is where all begins: its
//! choices are the initial states. Nodes are found in the order of their parents, so a link is
//! written as the difference to the previous node's parent and the choice, both as variable-length
//! integers. This is also what a checkpoint stores.

use super::path::Path;

/// Bytes after which a block is closed. Looking up one node decodes one block.
const BLOCK_BYTES: usize = 4096;

/// Links of consecutive nodes. The parent of the first is kept apart, so that pieces of a search can
/// encode theirs in parallel and join them in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first_parent: u64,
    last_parent: u64,
    pub(super) nodes: u64,
    pub(super) bytes: Vec<u8>,
}

impl Segment {
    /// Appends a node.
    pub(super) fn push(&mut self, parent: u64, choice: u32) {
        if self.nodes == 0 {
            self.first_parent = parent;
        } else {
            put(&mut self.bytes, zigzag(parent, self.last_parent));
        }
        put(&mut self.bytes, u64::from(choice));
        self.last_parent = parent;
        self.nodes += 1;
    }

    /// Appends the nodes of another segment.
    fn join(&mut self, other: &Segment) {
        put(&mut self.bytes, zigzag(other.first_parent, self.last_parent));
        self.bytes.extend_from_slice(&other.bytes);
        self.last_parent = other.last_parent;
        self.nodes += other.nodes;
    }

    /// Reads the links; stops at the first that is damaged.
    fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let mut bytes = self.bytes.as_slice();
        let mut parent = self.first_parent;
        (0..self.nodes).map_while(move |n| {
            if n > 0 {
                parent = unzigzag(take(&mut bytes)?, parent);
            }
            Some((parent, u32::try_from(take(&mut bytes)?).ok()?))
        })
    }

    /// Makes a segment from its parts, if they are one.
    pub(super) fn decode(first_parent: u64, nodes: u64, bytes: Vec<u8>) -> Option<Segment> {
        let mut segment = Segment { first_parent, last_parent: first_parent, nodes, bytes };
        let (count, last) = segment.iter().fold((0, None), |(n, _), (p, _)| (n + 1, Some(p)));
        segment.last_parent = last?;
        (count == nodes).then_some(segment)
    }
}

/// All links of a search.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    /// The segments, each with the number of its first node.
    blocks: Vec<(u64, Segment)>,
    nodes: u64,
}

impl Links {
    /// Number of the last node.
    pub(super) fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Appends the next nodes.
    pub(super) fn append(&mut self, segment: Segment) {
        let nodes = segment.nodes;
        match self.blocks.last_mut() {
            _ if nodes == 0 => return,
            Some((_, last)) if last.bytes.len() + segment.bytes.len() < BLOCK_BYTES => {
                last.join(&segment);
            }
            last => {
                if let Some((_, last)) = last {
                    last.bytes.shrink_to_fit();
                }
                self.blocks.push((self.nodes + 1, segment));
            }
        }
        self.nodes += nodes;
    }

    /// Reads parent and choice of a node.
    fn get(&self, node: u64) -> (u64, u32) {
        let block = self.blocks.partition_point(|(first, _)| *first <= node) - 1;
        let (first, segment) = &self.blocks[block];
        segment.iter().nth((node - first) as usize).expect("a block has all its nodes")
    }

    /// Iterates over parent and choice of a node and those after it.
    pub(super) fn iter_from(&self, node: u64) -> impl Iterator<Item = (u64, u32)> {
        let block = self.blocks.partition_point(|(first, _)| *first <= node).saturating_sub(1);
        let skipped = self.blocks.get(block).map_or(0, |(first, _)| node - first);
        let links = self.blocks[block..].iter().flat_map(|(_, segment)| segment.iter());
        links.skip(skipped as usize)
    }

    /// The path by which a node was reached.
    pub(super) fn path(&self, mut node: u64) -> Path {
        let mut choices = Vec::new();
        while node > 0 {
            let (parent, choice) = self.get(node);
            choices.push(choice);
            node = parent;
        }
        choices.reverse();
        Path(choices)
    }

    /// Iterates over parent and choice of all nodes, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.blocks.iter().flat_map(|(_, segment)| segment.iter())
    }

    /// The segments, in order.
    pub(super) fn segments(&self) -> impl ExactSizeIterator<Item = &Segment> {
        self.blocks.iter().map(|(_, segment)| segment)
    }

    /// Bytes of heap memory in use.
    pub(super) fn bytes(&self) -> usize {
        let blocks: usize = self.segments().map(|segment| segment.bytes.capacity()).sum();
        blocks + self.blocks.capacity() * size_of::<(u64, Segment)>()
    }
}

/// Encodes a difference of either sign such that small differences are small numbers.
fn zigzag(value: u64, previous: u64) -> u64 {
    let difference = value.wrapping_sub(previous) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn unzigzag(coded: u64, previous: u64) -> u64 {
    previous.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg())
}

/// Appends a number as LEB128.
pub(super) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Takes a number as LEB128; none if the bytes end early or the number is too large.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if (part << shift) >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_generate::choice::Choices;

    #[test]
    fn integers_round_trip() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(take(&mut bytes.as_slice()), Some(value));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
            assert_eq!(unzigzag(zigzag(value, 200), 200), value);
        }
        assert_eq!(take(&mut [0xff; 9].as_slice()), None);
        let too_large = [[0xff; 9].as_slice(), &[2]].concat();
        assert_eq!(take(&mut too_large.as_slice()), None);
    }

    #[test]
    fn links_are_found_again() {
        let mut choices = Choices::new(1);
        let (mut links, mut expected) = (Links::default(), Vec::new());
        while expected.len() < 30_000 {
            let mut segment = Segment::default();
            for _ in 0..choices.below(200) {
                let link = (choices.below(expected.len() as u64 + 1), choices.below(300) as u32);
                segment.push(link.0, link.1);
                expected.push(link);
            }
            links.append(segment);
        }
        assert_eq!(links.iter().collect::<Vec<_>>(), expected);
        assert!(links.segments().len() > 10);
        for node in [1, 2, 4_999, expected.len() as u64] {
            assert!(links.iter_from(node).eq(expected[node as usize - 1..].iter().copied()));
        }
        for node in (1..=expected.len() as u64).step_by(97) {
            let (mut at, mut path) = (node, Vec::new());
            while at > 0 {
                let (parent, choice) = expected[at as usize - 1];
                path.insert(0, choice);
                at = parent;
            }
            assert_eq!(links.path(node), Path(path));
        }
    }
}
