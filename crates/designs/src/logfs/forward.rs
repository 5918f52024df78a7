//! Rolls forward to what was fsynced since the checkpoint.
//!
//! Nodes written since the checkpoint are a chain in the log of nodes. As in F2FS, a node counts if
//! its file has an inode with the mark of an fsync there or later: an fsync is done as a whole or not
//! at all, and what was written after it is forgotten. If nothing counts, no checkpoint is needed: the
//! log goes on where the checkpoint says, and what is left of the old chain can only lie behind the
//! new one, without a mark.

use fathom_block::Recorder;

use super::Logfs;
use super::layout::{MAIN, NODES, NONE, Node, Written, main_block};
use super::memory::{ITSELF, Memory, Set, members};

/// A version of a node that is newer than the checkpoint's.
#[derive(Clone, Copy)]
struct NewerNode {
    node: Node,
    address: u8,
}

impl Logfs {
    /// Takes over what was fsynced since the checkpoint; returns whether anything was.
    pub(super) fn roll_forward(&self, memory: &mut Memory, disk: &Recorder) -> bool {
        // The last node of each file that carries the mark, by its place in the chain.
        let (mut marked, mut fsynced): ([u8; NODES], Set) = ([0; NODES], 0);
        for (place, (_, written)) in (1..).zip(chain(memory, disk)) {
            if written.fsync && memory.nat[usize::from(written.nid)] != NONE {
                marked[usize::from(written.node.ino)] = place;
                fsynced |= 1 << written.node.ino;
            }
        }
        for inode in members(fsynced) {
            let mut newer = [None; NODES];
            let until = chain(memory, disk).take(marked[usize::from(inode)].into());
            for (address, Written { nid, node, .. }) in until.filter(|(_, w)| w.node.ino == inode) {
                newer[usize::from(nid)] = Some(NewerNode { node, address });
            }
            self.take_over(memory, inode, &newer);
        }
        fsynced != 0
    }

    /// Replaces a file by its newer version.
    fn take_over(&self, memory: &mut Memory, inode: u8, newer: &[Option<NewerNode>; NODES]) {
        let before = memory.nodes_of(inode);
        members(before).for_each(|nid| self.invalidate_all(memory, nid));
        // Only nodes that the new inode leads to: others of the chain may be of other files by now.
        let mut after: Set = 0;
        let mut reached: Set = 1 << inode;
        while let Some(nid) = members(reached & !after).next() {
            after |= 1 << nid;
            if let Some(NewerNode { node, address }) = newer[usize::from(nid)] {
                memory.nodes[usize::from(nid)] = node;
                memory.nat[usize::from(nid)] = address;
                memory.nat_dirty |= 1 << nid;
            }
            let children = memory.node(nid).children().iter();
            reached |= children.filter(|c| usize::from(**c) < NODES).fold(0, |set, c| set | 1 << c);
        }
        for nid in members(before & !after) {
            memory.nat[usize::from(nid)] = NONE;
            memory.nat_dirty |= 1 << nid;
            memory.nodes[usize::from(nid)] = Node::FREE;
        }
        members(after).for_each(|nid| memory.validate_all(nid));
    }

    /// Marks the blocks of a node, and its own, as not needed any more.
    fn invalidate_all(&self, memory: &mut Memory, nid: u8) {
        let (node, address) = (*memory.node(nid), memory.nat[usize::from(nid)]);
        node.blocks().iter().chain([&address]).for_each(|block| self.invalidate(memory, *block));
    }
}

/// Reads the nodes written since the checkpoint, with their blocks.
fn chain(memory: &Memory, disk: &Recorder) -> impl Iterator<Item = (u8, Written)> {
    let (mut next, version) = (memory.heads[0].address(), memory.version);
    let follow = move || {
        let written = Written::decode(&memory.read(disk, main_block(next)))?;
        let address = std::mem::replace(&mut next, written.next);
        (written.version == version).then_some((address, written))
    };
    std::iter::from_fn(follow).take(MAIN)
}

impl Memory {
    /// Marks the blocks of a node, and its own, as valid.
    fn validate_all(&mut self, nid: u8) {
        let (node, address) = (*self.node(nid), self.nat[usize::from(nid)]);
        for block in node.blocks().iter().chain([&address]) {
            self.validate(*block);
        }
    }

    /// Finds the owners of all blocks from the nodes, as F2FS does when SSA is out of date.
    pub(super) fn find_owners(&mut self) {
        for nid in 0..NODES {
            let node = self.nodes[nid];
            if let Some(owner) = self.owner.get_mut(usize::from(self.nat[nid])) {
                *owner = (nid as u8, ITSELF);
            }
            for (entry, block) in node.blocks().iter().enumerate() {
                if let Some(owner) = self.owner.get_mut(usize::from(*block)) {
                    *owner = (nid as u8, entry as u8);
                }
            }
        }
    }
}
