//! What must be true of the metadata: the properties of the study (its equations 5.6 to 5.10).

use fathom_block::Recorder;

use super::Logfs;
use super::layout::{FOUR, Kind, MAIN, NODES, NONE, ROOT, UNWRITTEN, Written, main_block, read};
use super::memory::Memory;
use super::operation::entries;
use crate::volume::Invariant;

/// NAT and files, NAT and SIT, files and SIT.
pub(super) const INVARIANTS: &[Invariant<Logfs>] = &[
    Invariant { name: "every node belongs to exactly one file", check: nodes_belong },
    Invariant { name: "every node is where NAT says, and valid", check: nodes_are_valid },
    Invariant { name: "every valid block is used exactly once", check: blocks_are_used },
];

/// How often each node is named by a directory or an inode; the root once.
fn named(memory: &Memory, disk: &Recorder) -> Result<[u8; NODES], String> {
    let mut named = [0_u8; NODES];
    named[usize::from(ROOT)] = 1;
    for nid in 1..NODES as u8 {
        let node = memory.node(nid);
        if node.child != 0 {
            named[usize::from(node.child) % NODES] += 1;
        }
        if node.kind != Kind::Dir {
            continue;
        }
        for place in 0..FOUR {
            let Ok(entries) = entries(memory, disk, nid, place) else {
                let address = node.blocks[place];
                return Err(format!("block {address} of directory node {nid} holds no names"));
            };
            for (_, nid) in entries.iter().filter(|(name, _)| *name != 0) {
                named[usize::from(*nid) % NODES] += 1;
            }
        }
    }
    Ok(named)
}

fn nodes_belong(_: &Logfs, memory: &Memory, disk: &Recorder) -> Result<(), String> {
    let named = named(memory, disk)?;
    for (nid, (named, address)) in named.into_iter().zip(memory.nat).enumerate().skip(1) {
        match (address != NONE, named) {
            (true, 1) | (false, 0) => {}
            (true, 0) => return Err(format!("node {nid} is allocated and of no file")),
            (false, _) => return Err(format!("node {nid} is of a file and not allocated")),
            (true, _) => return Err(format!("node {nid} is of two files")),
        }
    }
    Ok(())
}

fn is_valid(memory: &Memory, address: u8) -> bool {
    memory.sit[usize::from(address) / FOUR] & (1 << (usize::from(address) % FOUR)) != 0
}

fn nodes_are_valid(_: &Logfs, memory: &Memory, disk: &Recorder) -> Result<(), String> {
    for nid in 1..NODES {
        let address = memory.nat[nid];
        if address == NONE || address == UNWRITTEN {
            continue;
        }
        if usize::from(address) >= MAIN || !is_valid(memory, address) {
            return Err(format!("node {nid} is in block {address}, which SIT calls free"));
        }
        let there = Written::decode(&read(disk, main_block(address)));
        if there.is_none_or(|written| usize::from(written.nid) != nid) {
            return Err(format!("block {address} should hold node {nid} and holds something else"));
        }
    }
    Ok(())
}

fn blocks_are_used(_: &Logfs, memory: &Memory, _: &Recorder) -> Result<(), String> {
    let mut used = [0_u8; MAIN];
    for nid in 1..NODES {
        let itself = (memory.nat[nid] != UNWRITTEN).then_some(memory.nat[nid]);
        for address in memory.nodes[nid].blocks.into_iter().chain(itself) {
            if let Some(count) = used.get_mut(usize::from(address)) {
                *count += 1;
            }
        }
    }
    for (address, count) in used.into_iter().enumerate() {
        match (is_valid(memory, address as u8), count) {
            (true, 1) | (false, 0) => {}
            (true, 0) => return Err(format!("block {address} is valid and of no file")),
            (false, _) => {
                return Err(format!("block {address} is of a file and SIT calls it free"));
            }
            (true, _) => return Err(format!("block {address} is used twice")),
        }
    }
    Ok(())
}
