//! The invariants of the metadata.

use fathom_block::Recorder;

use super::{DATA, INODES, Journal, Memory};
use crate::volume::Invariant;

/// The properties of file mapping, for this design.
pub(super) const INVARIANTS: &[Invariant<Journal>] = &[
    Invariant { name: "no dead block", check: no_dead_block },
    Invariant { name: "no lost block", check: no_lost_block },
    Invariant { name: "no double pointer", check: no_double_pointer },
];

/// Counts how often each data block is named.
fn named(memory: &Memory) -> [u8; DATA] {
    let mut named = [0; DATA];
    for inode in (0..INODES).filter_map(|number| memory.inode(number)) {
        for data in inode.blocks() {
            if let Some(count) = named.get_mut(usize::from(*data)) {
                *count += 1;
            }
        }
    }
    named
}

fn none(what: &str, mut found: impl Iterator<Item = usize>) -> Result<(), String> {
    found.next().map_or(Ok(()), |data| Err(format!("data block {data} {what}")))
}

fn no_dead_block(_: &Journal, memory: &Memory, _: &Recorder) -> Result<(), String> {
    let (named, bitmap) = (named(memory), memory.bitmap());
    let dead = |data: &usize| named[*data] == 0 && bitmap & (1 << data) != 0;
    none("is allocated and of no file", (0..DATA).filter(dead))
}

fn no_lost_block(_: &Journal, memory: &Memory, _: &Recorder) -> Result<(), String> {
    let (named, bitmap) = (named(memory), memory.bitmap());
    let lost = |data: &usize| named[*data] > 0 && bitmap & (1 << data) == 0;
    none("is of a file and free", (0..DATA).filter(lost))
}

fn no_double_pointer(_: &Journal, memory: &Memory, _: &Recorder) -> Result<(), String> {
    let named = named(memory);
    none("is of two files", (0..DATA).filter(|data| named[*data] > 1))
}
