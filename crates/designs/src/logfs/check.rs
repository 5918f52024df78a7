//! The invariants of the metadata: the properties of the study (its equations 5.6 to 5.10).

use fathom_block::Recorder;

use super::Logfs;
use super::layout::{FOUR, Kind, MAIN, NODES, NONE, ROOT, UNWRITTEN, Written, main_block};
use super::memory::Memory;
use super::operation::{address, entries};
use crate::volume::Invariant;

/// Agreement of NAT and files, of NAT and SIT, of files and SIT.
pub(super) const INVARIANTS: &[Invariant<Logfs>] = &[
    Invariant { name: "every node belongs to exactly one file", check: nodes_belong },
    Invariant { name: "every node is where NAT says, and valid", check: nodes_are_valid },
    Invariant { name: "every valid block is used exactly once", check: blocks_are_used },
];

const _: () = assert!(MAIN <= 64, "a set of blocks fits a word");

/// The numbers that are named at least once, and at least twice.
#[derive(Default)]
struct Named {
    once: u64,
    twice: u64,
}

impl Named {
    /// Counts a naming. Numbers from 64 on name nothing.
    fn add(&mut self, number: u8) {
        if number < 64 {
            self.twice |= self.once & 1 << number;
            self.once |= 1 << number;
        }
    }

    /// The first number that is not named exactly as often as it should be: once if it is in a set,
    /// otherwise never; with whether it is in the set, and how often it is named.
    fn first_wrong(&self, expected: u64) -> Option<(u32, bool, u8)> {
        let wrong = (self.once ^ expected) | self.twice;
        let number = (wrong != 0).then_some(wrong.trailing_zeros())?;
        let is_in = |set: u64| set >> number & 1 != 0;
        Some((number, is_in(expected), u8::from(is_in(self.once)) + u8::from(is_in(self.twice))))
    }
}

/// Counts how often each node is named by a directory or another node; the root once.
fn named(memory: &Memory, disk: &Recorder) -> Result<Named, String> {
    let mut named = Named::default();
    named.add(ROOT);
    for nid in 1..NODES as u8 {
        let node = memory.node(nid);
        for child in node.children().iter().filter(|child| **child != NONE) {
            named.add(child % NODES as u8);
            let ino = memory.node(*child).ino;
            if ino != node.ino && memory.nat[usize::from(*child) % NODES] != NONE {
                return Err(format!("node {child} of inode {} says it is of {ino}", node.ino));
            }
        }
        if node.kind != Kind::Dir {
            continue;
        }
        for place in 0..node.len.into() {
            let Ok(entries) = entries(memory, disk, nid, place) else {
                let address = address(memory, nid, place);
                return Err(format!("block {address} of directory node {nid} holds no names"));
            };
            for (_, nid) in entries.iter().filter(|(name, _)| *name != 0) {
                named.add(nid % NODES as u8);
            }
        }
    }
    Ok(named)
}

fn nodes_belong(_: &Logfs, memory: &Memory, disk: &Recorder) -> Result<(), String> {
    let allocated = (1..NODES).filter(|nid| memory.nat[*nid] != NONE);
    let allocated = allocated.fold(0, |set, nid| set | 1 << nid);
    match named(memory, disk)?.first_wrong(allocated) {
        None => Ok(()),
        Some((nid, true, 0)) => Err(format!("node {nid} is allocated and of no file")),
        Some((nid, true, _)) => Err(format!("node {nid} is of two files")),
        Some((nid, false, _)) => Err(format!("node {nid} is of a file and not allocated")),
    }
}

fn nodes_are_valid(_: &Logfs, memory: &Memory, disk: &Recorder) -> Result<(), String> {
    for nid in 1..NODES {
        let address = memory.nat[nid];
        if address == NONE || address == UNWRITTEN {
            continue;
        }
        if usize::from(address) >= MAIN || !memory.is_valid(address) {
            return Err(format!("node {nid} is in block {address}, which SIT calls free"));
        }
        let there = Written::decode(&memory.read(disk, main_block(address)));
        if there.is_none_or(|written| usize::from(written.nid) != nid) {
            return Err(format!("block {address} should hold node {nid} and holds something else"));
        }
    }
    Ok(())
}

fn blocks_are_used(_: &Logfs, memory: &Memory, _: &Recorder) -> Result<(), String> {
    let mut used = Named::default();
    for (node, address) in memory.nodes.iter().zip(memory.nat).skip(1) {
        node.blocks().iter().chain([&address]).for_each(|block| used.add(*block));
    }
    let valid =
        memory.sit.iter().rev().fold(0, |valid, blocks| valid << FOUR | u64::from(*blocks & 0xf));
    match used.first_wrong(valid) {
        None => Ok(()),
        Some((block, true, 0)) => Err(format!("block {block} is valid and of no file")),
        Some((block, true, _)) => Err(format!("block {block} is used twice")),
        Some((block, false, _)) => Err(format!("block {block} is of a file and SIT calls it free")),
    }
}
