//! The contents of a block device, copy on write.
//!
//! A tree of fixed fan-out with small leaves: a snapshot shares the root, a write copies one leaf and
//! the path to it, an erased region is no subtree at all (so a large empty device costs nothing).
//! Every node remembers the digest of its bytes until it changes; the digest of an image
//! after a write therefore costs one leaf and one path.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};

use fathom_core::Digest;
use serde::{Deserialize, Serialize};

/// log₂ of the bytes in a leaf. Measured on images of 8 KiB, 64 KiB and 2 MiB with leaves of 512 to
/// 4096 bytes and 4 to 16 children: a reference count costs as much as copying 400 bytes (6 ns), so
/// smaller leaves lose on the path what they gain; larger ones lose on hashing.
const LEAF_BITS: u32 = 11;
/// log₂ of the children of an inner node: one level for 16 KiB, two for 128 KiB.
const FANOUT_BITS: u32 = 3;

const LEAF_BYTES: usize = 1 << LEAF_BITS;
const FANOUT: usize = 1 << FANOUT_BITS;

/// Seed 0: XXH3 has its secret ready. Nothing but images is compared with images.
const DOMAIN: u64 = 0;

/// What an erased byte reads as: the two kinds of device that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Erased {
    /// 0x00: a disk (a discarded or never written sector).
    Zeros,
    /// 0xff: flash.
    Ones,
}

impl Erased {
    /// The byte.
    pub fn byte(self) -> u8 {
        self.leaf()[0]
    }

    fn leaf(self) -> &'static [u8; LEAF_BYTES] {
        match self {
            Erased::Zeros => &[0x00; LEAF_BYTES],
            Erased::Ones => &[0xff; LEAF_BYTES],
        }
    }
}

struct Leaf {
    digest: OnceLock<Digest>,
    bytes: [u8; LEAF_BYTES],
}

struct Inner {
    digest: OnceLock<Digest>,
    children: [Node; FANOUT],
}

// Nodes are only ever cloned to be changed (`Arc::make_mut`): the copy needs no digest.
impl Clone for Leaf {
    fn clone(&self) -> Leaf {
        Leaf { digest: OnceLock::new(), bytes: self.bytes }
    }
}

impl Clone for Inner {
    fn clone(&self) -> Inner {
        Inner { digest: OnceLock::new(), children: self.children.clone() }
    }
}

/// A subtree of height 0 (a leaf) or more.
#[derive(Clone, Default)]
enum Node {
    /// Erased, at any height.
    #[default]
    Blank,
    Leaf(Arc<Leaf>),
    Inner(Arc<Inner>),
}

/// The bytes that a node of this height covers.
const fn span(height: u32) -> usize {
    LEAF_BYTES << (height * FANOUT_BITS)
}

/// Which child of a node of this height holds byte `at`.
const fn slot(height: u32, at: usize) -> usize {
    (at >> (LEAF_BITS + (height - 1) * FANOUT_BITS)) % FANOUT
}

impl Node {
    /// A subtree that reads as erased has digest 0, whether it was erased, written or never touched.
    fn digest(&self, erased: Erased) -> Digest {
        match self {
            Node::Blank => Digest::default(),
            Node::Leaf(leaf) => *leaf.digest.get_or_init(|| match &leaf.bytes == erased.leaf() {
                true => Digest::default(),
                false => Digest::of(DOMAIN, &leaf.bytes),
            }),
            Node::Inner(inner) => *inner.digest.get_or_init(|| {
                let digests = inner.children.each_ref().map(|child| child.digest(erased));
                if digests == [Digest::default(); FANOUT] {
                    return Digest::default();
                }
                let mut packed = [0; 16 * FANOUT];
                for (place, digest) in packed.chunks_exact_mut(16).zip(digests) {
                    place.copy_from_slice(&digest.0.to_le_bytes());
                }
                Digest::of(DOMAIN, &packed)
            }),
        }
    }

    /// An erased node of this height that can be written to.
    fn unfolded(height: u32, erased: Erased) -> Node {
        let digest = OnceLock::new();
        match height {
            0 => Node::Leaf(Arc::new(Leaf { digest, bytes: *erased.leaf() })),
            _ => Node::Inner(Arc::new(Inner { digest, children: Default::default() })),
        }
    }

    /// Shows where the leaves of this node are, which starts at `at`.
    fn visit(&self, height: u32, at: usize, show: &mut dyn FnMut(usize, usize)) {
        match self {
            Node::Blank => {}
            Node::Leaf(_) => show(at, LEAF_BYTES),
            Node::Inner(inner) => {
                for (index, child) in inner.children.iter().enumerate() {
                    child.visit(height - 1, at + index * span(height - 1), show);
                }
            }
        }
    }

    /// Shows where two nodes of the same height, which start at `at`, differ: leaf by leaf.
    fn visit_differences(
        &self,
        other: &Node,
        (erased, height, at): (Erased, u32, usize),
        show: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let is_same = match (self, other) {
            (Node::Leaf(one), Node::Leaf(other)) => Arc::ptr_eq(one, other),
            (Node::Inner(one), Node::Inner(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        if is_same || self.digest(erased) == other.digest(erased) {
            return ControlFlow::Continue(());
        }
        if height == 0 {
            return show(at);
        }
        for index in 0..FANOUT {
            let place = (erased, height - 1, at + index * span(height - 1));
            self.child(index).visit_differences(other.child(index), place, show)?;
        }
        ControlFlow::Continue(())
    }

    /// A child of an inner node; what is erased has erased children.
    fn child(&self, index: usize) -> &Node {
        static BLANK: Node = Node::Blank;
        match self {
            Node::Inner(inner) => &inner.children[index],
            Node::Blank | Node::Leaf(_) => &BLANK,
        }
    }

    /// Erases `from..to`, counted from the start of this node.
    fn erase(&mut self, erased: Erased, height: u32, from: usize, to: usize) {
        if from == 0 && to == span(height) {
            *self = Node::Blank;
        }
        match self {
            Node::Blank => {}
            Node::Leaf(leaf) => {
                let leaf = Arc::make_mut(leaf);
                leaf.digest.take();
                leaf.bytes[from..to].copy_from_slice(&erased.leaf()[from..to]);
            }
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                inner.digest.take();
                let child_span = span(height - 1);
                for index in from / child_span..to.div_ceil(child_span) {
                    let start = index * child_span;
                    let (from, to) = (from.max(start), to.min(start + child_span));
                    inner.children[index].erase(erased, height - 1, from - start, to - start);
                }
            }
        }
    }
}

/// The contents of a block device. Cloning is O(1).
///
/// Offsets outside the device panic like slice indexes do; [`crate::Recorder`] checks first.
#[derive(Clone)]
pub struct Image {
    root: Node,
    height: u32,
    size: usize,
    erased: Erased,
}

impl Image {
    /// An erased device.
    pub fn new(size: usize, erased: Erased) -> Image {
        let height = (0..).find(|&height| span(height) >= size).expect("spans grow");
        Image { root: Node::Blank, height, size, erased }
    }

    /// A device that holds `bytes`. Erased regions take no memory.
    pub fn from_bytes(bytes: &[u8], erased: Erased) -> Image {
        let mut image = Image::new(bytes.len(), erased);
        for (index, chunk) in bytes.chunks(LEAF_BYTES).enumerate() {
            if chunk != &erased.leaf()[..chunk.len()] {
                image.write(index * LEAF_BYTES, chunk);
            }
        }
        image
    }

    /// Bytes on the device.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What an erased byte reads as.
    pub fn erased(&self) -> Erased {
        self.erased
    }

    /// The bytes `at..at + len`, unless they are in different places of memory.
    #[inline]
    pub fn slice(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.check(at, len);
        let within = at % LEAF_BYTES;
        (within + len <= LEAF_BYTES).then(|| &self.leaf(at)[within..within + len])
    }

    /// Copies the bytes from `at` on into `buffer`.
    #[inline]
    pub fn read(&self, at: usize, buffer: &mut [u8]) {
        if let Some(bytes) = self.slice(at, buffer.len()) {
            return buffer.copy_from_slice(bytes);
        }
        let mut done = 0;
        for bytes in self.slices(at, buffer.len()) {
            buffer[done..done + bytes.len()].copy_from_slice(bytes);
            done += bytes.len();
        }
    }

    /// The bytes `at..at + len` as consecutive slices.
    pub fn slices(&self, at: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        self.check(at, len);
        let (mut at, end) = (at, at + len);
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let within = at % LEAF_BYTES;
                let take = (LEAF_BYTES - within).min(end - at);
                let bytes = &self.leaf(at)[within..within + take];
                at += take;
                bytes
            })
        })
    }

    /// Whether `at..at + len` reads as erased.
    pub fn is_erased(&self, at: usize, len: usize) -> bool {
        self.slices(at, len).all(|bytes| bytes == &self.erased.leaf()[..bytes.len()])
    }

    /// The parts that are not known to be erased, in order: everything else reads as erased.
    pub fn occupied(&self) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        self.root.visit(self.height, 0, &mut |at, len| {
            let end = (at + len).min(self.size);
            match parts.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => parts.push(at..end),
            }
        });
        parts
    }

    /// Shows the parts in which two images of the same shape differ, in order, and perhaps some bytes
    /// around; stops when `show` does. Takes as long as they differ: what they share is not looked at.
    pub(crate) fn visit_differences(
        &self,
        other: &Image,
        show: &mut dyn FnMut(Range<usize>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if (self.size, self.erased) != (other.size, other.erased) {
            return show(0..self.size.max(other.size));
        }
        let place = (self.erased, self.height, 0);
        self.root.visit_differences(&other.root, place, &mut |at| {
            show(at..(at + LEAF_BYTES).min(self.size))
        })
    }

    /// Overwrites the bytes from `at` on.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        self.check(at, data.len());
        let (mut at, mut data) = (at, data);
        while !data.is_empty() {
            let within = at % LEAF_BYTES;
            let (now, later) = data.split_at(data.len().min(LEAF_BYTES - within));
            self.leaf_mut(at)[within..within + now.len()].copy_from_slice(now);
            at += now.len();
            data = later;
        }
    }

    /// Sets `at..at + len` back to erased.
    pub fn erase(&mut self, at: usize, len: usize) {
        self.check(at, len);
        if len > 0 {
            self.root.erase(self.erased, self.height, at, at + len);
        }
    }

    /// Copies what this image shares with its clones and every new clone would share too. Nothing
    /// else changes.
    pub fn unshare(&mut self) {
        match &mut self.root {
            Node::Leaf(leaf) if Arc::strong_count(leaf) > 1 => {
                let Leaf { digest, bytes } = &**leaf;
                *leaf = Arc::new(Leaf { digest: digest.clone(), bytes: *bytes });
            }
            Node::Inner(inner) if Arc::strong_count(inner) > 1 => {
                let Inner { digest, children } = &**inner;
                *inner = Arc::new(Inner { digest: digest.clone(), children: children.clone() });
            }
            Node::Blank | Node::Leaf(_) | Node::Inner(_) => {}
        }
    }

    /// Identifies the contents among images of the same size and erased value.
    pub fn digest(&self) -> Digest {
        self.root.digest(self.erased)
    }

    /// All bytes in one vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size);
        self.slices(0, self.size).for_each(|slice| bytes.extend_from_slice(slice));
        bytes
    }

    #[inline]
    fn check(&self, at: usize, len: usize) {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.size);
        assert!(inside, "{len} bytes at {at} are outside an image of {} bytes", self.size);
    }

    #[inline]
    fn leaf(&self, at: usize) -> &[u8; LEAF_BYTES] {
        let mut node = &self.root;
        let mut height = self.height;
        loop {
            match node {
                Node::Blank => return self.erased.leaf(),
                Node::Leaf(leaf) => return &leaf.bytes,
                Node::Inner(inner) => node = &inner.children[slot(height, at)],
            }
            height -= 1;
        }
    }

    /// The leaf that holds byte `at`, owned by this image alone, its path no longer digested.
    fn leaf_mut(&mut self, at: usize) -> &mut [u8; LEAF_BYTES] {
        let mut height = self.height;
        let mut node = &mut self.root;
        loop {
            if matches!(node, Node::Blank) {
                *node = Node::unfolded(height, self.erased);
            }
            match node {
                Node::Blank => unreachable!("just unfolded"),
                Node::Leaf(leaf) => {
                    let leaf = Arc::make_mut(leaf);
                    leaf.digest.take();
                    return &mut leaf.bytes;
                }
                Node::Inner(inner) => {
                    let inner = Arc::make_mut(inner);
                    inner.digest.take();
                    node = &mut inner.children[slot(height, at)];
                }
            }
            height -= 1;
        }
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.size == other.size && self.slices(0, self.size).eq(other.slices(0, other.size))
    }
}

impl Eq for Image {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes, {})", self.size, self.digest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_keeps_its_bytes() {
        let mut image = Image::new(100_000, Erased::Ones);
        let empty = image.clone();
        image.write(60_000, b"fathom");
        let snapshot = image.clone();
        image.write(60_003, b"???");
        let mut seen = [0; 6];
        snapshot.read(60_000, &mut seen);
        assert_eq!(&seen, b"fathom");
        image.read(60_000, &mut seen);
        assert_eq!(&seen, b"fat???");
        assert_eq!(image.slice(60_000, 6), Some(&b"fat???"[..]));
        assert_eq!(image.slice(3 * LEAF_BYTES - 1, 2), None);
        image.erase(60_000, 6);
        assert_eq!(image, empty);
        assert_eq!(image.digest(), empty.digest());
    }

    #[test]
    fn differences_are_found_leaf_by_leaf() {
        let mut one = Image::new(100_000, Erased::Zeros);
        one.write(50_000, b"fathom");
        let mut other = one.clone();
        let differences = |one: &Image, other: &Image| {
            let mut found = Vec::new();
            let _ = one.visit_differences(other, &mut |part| {
                found.push(part.start / LEAF_BYTES);
                ControlFlow::Continue(())
            });
            found
        };
        assert_eq!(differences(&one, &other), Vec::<usize>::new());
        other.write(99_999, b"x");
        other.write(3, b"x");
        assert_eq!(differences(&one, &other), [0, 99_999 / LEAF_BYTES]);
        assert_eq!(differences(&other, &one), [0, 99_999 / LEAF_BYTES]);
        other.erase(0, 100_000);
        assert_eq!(differences(&one, &other), [50_000 / LEAF_BYTES]);
        assert_eq!(differences(&one, &Image::new(10, Erased::Zeros)), [0], "another shape");
        let mut shown = 0;
        other.write(0, &[1; 3 * LEAF_BYTES]);
        let flow = one.visit_differences(&other, &mut |_| {
            shown += 1;
            ControlFlow::Break(())
        });
        assert!(flow.is_break() && shown == 1);
    }

    #[test]
    fn an_unshared_image_is_the_same_and_on_its_own() {
        for size in [100, LEAF_BYTES, 100_000] {
            let mut image = Image::new(size, Erased::Ones);
            image.unshare();
            assert!(image.is_erased(0, size));
            image.write(size - 9, b"fathom");
            let (clone, digest) = (image.clone(), image.digest());
            image.unshare();
            assert_eq!((&image, image.digest()), (&clone, digest));
            image.write(size - 6, b"???");
            assert_eq!(clone.digest(), digest);
            assert_ne!(image.digest(), digest);
            assert_eq!(clone.slice(size - 9, 6), Some(&b"fathom"[..]));
        }
    }

    #[test]
    fn what_was_written_is_occupied_and_nothing_else() {
        let mut image = Image::new(10 * LEAF_BYTES - 5, Erased::Zeros);
        assert_eq!(image.occupied(), []);
        image.write(3 * LEAF_BYTES - 1, b"ab");
        image.write(10 * LEAF_BYTES - 6, b"c");
        let parts = [2 * LEAF_BYTES..4 * LEAF_BYTES, 9 * LEAF_BYTES..10 * LEAF_BYTES - 5];
        assert_eq!(image.occupied(), parts);
        image.erase(2 * LEAF_BYTES, 2 * LEAF_BYTES);
        assert_eq!(image.occupied(), parts[1..]);
    }

    #[test]
    fn a_large_empty_device_costs_no_memory() {
        let mut image = Image::new(1 << 40, Erased::Zeros);
        image.write(1 << 39, b"x");
        assert!(image.is_erased(0, 4096) && !image.is_erased(1 << 39, 1));
        image.erase(0, 1 << 40);
        assert_eq!(image.digest(), Image::new(1 << 40, Erased::Zeros).digest());
    }

    #[test]
    #[should_panic(expected = "4 bytes at 6 are outside an image of 8 bytes")]
    fn a_write_beyond_the_end_panics() {
        Image::new(8, Erased::Zeros).write(6, b"abcd");
    }
}
