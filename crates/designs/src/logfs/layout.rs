//! The areas of the device, and the formats of blocks.

use fathom_block::Recorder;

use crate::volume::hex;

pub(super) const BLOCK_BYTES: usize = 16;
/// The size of nearly everything: blocks of a segment; entries of a NAT or SIT block, of a node, of
/// a directory block, of a journal.
pub(super) const FOUR: usize = 4;
/// Entries of an inode that name blocks. The next one names an index node, the last one an indirect
/// node, which names index nodes.
pub(super) const DIRECT: usize = 2;
pub(super) const INDEX: usize = 2;
pub(super) const INDIRECT: usize = 3;
/// Greatest number of blocks of a file or a directory.
pub(super) const PLACES: usize = DIRECT + FOUR + FOUR * FOUR;
pub(super) const SEGMENTS: usize = 16;
pub(super) const MAIN: usize = SEGMENTS * FOUR;
pub(super) const NODES: usize = 16;
/// The node of the root directory; number 0 is no node.
pub(super) const ROOT: u8 = 1;
/// The number that stands for no block and no node.
pub(super) const NONE: u8 = 0xff;
/// The block number of a node that was never written.
pub(super) const UNWRITTEN: u8 = 0xfe;

const CHECKPOINT_BLOCKS: usize = 4;
const NAT_START: usize = 2 * CHECKPOINT_BLOCKS;
const SIT_START: usize = NAT_START + 2 * NODES / FOUR;
const SSA_START: usize = SIT_START + 2 * SEGMENTS / FOUR;
const MAIN_START: usize = SSA_START + SEGMENTS;
pub(super) const BLOCKS: usize = MAIN_START + MAIN;

pub(super) type Block = [u8; BLOCK_BYTES];

/// First bytes of the kinds of blocks.
const VERSION: u8 = b'V';
const NODE: u8 = b'N';
const DATA: u8 = b'F';
const DENTRIES: u8 = b'D';

pub(super) fn write(disk: &mut Recorder, block: usize, bytes: &Block) {
    disk.write(block * BLOCK_BYTES, bytes).expect("a block of the device");
}

/// The block number of part `part` of checkpoint `pack`.
pub(super) fn checkpoint_block(pack: usize, part: usize) -> usize {
    pack * CHECKPOINT_BLOCKS + part
}

pub(super) fn nat_block(copy: usize, block: usize) -> usize {
    NAT_START + copy * NODES / FOUR + block
}

pub(super) fn sit_block(copy: usize, block: usize) -> usize {
    SIT_START + copy * SEGMENTS / FOUR + block
}

pub(super) fn ssa_block(segment: usize) -> usize {
    SSA_START + segment
}

/// The block number of an address in the main area.
pub(super) fn main_block(address: u8) -> usize {
    MAIN_START + usize::from(address) % MAIN
}

/// Makes a block that begins with these bytes.
pub(super) fn block(bytes: &[u8]) -> Block {
    let mut block = [0; BLOCK_BYTES];
    block[..bytes.len()].copy_from_slice(bytes);
    block
}

pub(super) fn version_block(version: u8) -> Block {
    block(&[VERSION, version])
}

pub(super) fn version_of(block: &Block) -> Option<u8> {
    (block[0] == VERSION).then_some(block[1])
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    #[default]
    Free,
    File,
    Dir,
    Index,
    Indirect,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// Number of blocks of a file or a directory.
    pub(super) len: u8,
    /// The inode that it belongs to; an inode belongs to itself.
    pub(super) ino: u8,
    /// Addresses of blocks, or numbers of nodes.
    pub(super) entries: [u8; FOUR],
}

impl Node {
    pub(super) const FREE: Node = Node::new(Kind::Free, NONE);

    pub(super) const fn new(kind: Kind, ino: u8) -> Node {
        Node { kind, len: 0, ino, entries: [NONE; FOUR] }
    }

    /// Number of its entries that are blocks; these come first.
    pub(super) fn blocks_count(&self) -> usize {
        match self.kind {
            Kind::File | Kind::Dir => DIRECT,
            Kind::Index => FOUR,
            Kind::Free | Kind::Indirect => 0,
        }
    }

    /// The entries that are blocks.
    pub(super) fn blocks(&self) -> &[u8] {
        &self.entries[..self.blocks_count()]
    }

    /// The entries that are nodes.
    pub(super) fn children(&self) -> &[u8] {
        if self.kind == Kind::Free { &[] } else { &self.entries[self.blocks_count()..] }
    }
}

/// A node as it is written, with what roll-forward needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) nid: u8,
    pub(super) node: Node,
    /// Whether an fsync ended with it.
    pub(super) fsync: bool,
    /// The checkpoint after which it was written.
    pub(super) version: u8,
    /// The address of the next node in the log.
    pub(super) next: u8,
}

impl Written {
    pub(super) fn encode(&self) -> Block {
        let Node { kind, len, ino, entries: [a, b, c, d] } = self.node;
        let fsync = u8::from(self.fsync);
        block(&[NODE, self.nid, kind as u8, len, ino, a, b, c, d, fsync, self.version, self.next])
    }

    pub(super) fn decode(block: &Block) -> Option<Written> {
        let [tag, nid, kind, len, ino, a, b, c, d, fsync, version, next, ..] = *block;
        let kind = match kind {
            1 => Kind::File,
            2 => Kind::Dir,
            3 => Kind::Index,
            4 => Kind::Indirect,
            _ => return None,
        };
        let known = |nid: u8| usize::from(nid) < NODES;
        let sound = tag == NODE && known(nid) && known(ino) && usize::from(len) <= PLACES;
        let node = Node { kind, len, ino, entries: [a, b, c, d] };
        sound.then_some(Written { nid, node, fsync: fsync != 0, version, next })
    }
}

pub(super) fn data_block(content: u8) -> Block {
    block(&[DATA, content])
}

/// The contents of a data block; 0 if it is none.
pub(super) fn content_of(block: &Block) -> u8 {
    if block[0] == DATA { block[1] } else { 0 }
}

/// Names and nodes of a directory block.
pub(super) type Dentries = [(u8, u8); FOUR];

pub(super) fn dentry_block(entries: &Dentries) -> Block {
    let mut bytes = [0; BLOCK_BYTES];
    bytes[0] = DENTRIES;
    for (place, (name, nid)) in bytes[1..].chunks_exact_mut(2).zip(entries) {
        (place[0], place[1]) = (*name, *nid);
    }
    bytes
}

/// Reads a directory block; none if the block is not one.
pub(super) fn dentries_of(block: &Block) -> Option<Dentries> {
    (block[0] == DENTRIES).then(|| std::array::from_fn(|i| (block[1 + 2 * i], block[2 + 2 * i])))
}

/// Names the purpose of a block of the device.
pub(super) fn label(block: usize) -> String {
    let table = |name: &str, start: usize, count: usize| {
        let (copy, first) = ((block - start) / (count / FOUR), (block - start) * FOUR % count);
        format!("{name} copy {copy}, {first}-{}", first + FOUR - 1)
    };
    match block {
        _ if block < NAT_START => {
            let (pack, part) = (block / CHECKPOINT_BLOCKS, block % CHECKPOINT_BLOCKS);
            format!("checkpoint {pack}, part {part}")
        }
        _ if block < SIT_START => table("NAT", NAT_START, NODES),
        _ if block < SSA_START => table("SIT", SIT_START, SEGMENTS),
        _ if block < MAIN_START => format!("SSA {}", block - SSA_START),
        _ => format!("main {}", block - MAIN_START),
    }
}

/// Describes the contents of a block of the device.
pub(super) fn holds(block: usize, bytes: &[u8]) -> String {
    let Some(bytes) = bytes.first_chunk::<BLOCK_BYTES>() else { return hex(bytes) };
    if let Some(version) = version_of(bytes).filter(|_| block < NAT_START) {
        return format!("version {version}");
    }
    if block < MAIN_START {
        return hex(bytes);
    }
    if let Some(written) = Written::decode(bytes) {
        let kind = format!("{:?}", written.node.kind).to_lowercase();
        let mark = if written.fsync { ", fsync" } else { "" };
        return format!("node {} ({kind}, {} blocks{mark})", written.nid, written.node.len);
    }
    if let Some(entries) = dentries_of(bytes) {
        let used = entries.iter().filter(|(name, _)| *name != 0);
        let names: Vec<String> =
            used.map(|(name, nid)| format!("{}=node {nid}", char::from(*name))).collect();
        return format!("names {}", if names.is_empty() { "none".into() } else { names.join(" ") });
    }
    match bytes[0] {
        DATA => format!("file data {}", bytes[1]),
        _ => hex(bytes),
    }
}
