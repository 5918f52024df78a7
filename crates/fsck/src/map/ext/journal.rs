//! The journal: superblock, and the descriptor, revoke and commit blocks in it.

use super::super::guard::{Algorithm, Guard, Piece, Store};
use super::super::layout::Order;
use super::super::{Field, Kind};
use super::Walk;
use crate::ext::{BlockKind, JOURNAL};

/// The magic number of every block of a journal that is no copy.
const MAGIC: u64 = 0xc03b_3998;
/// Features of the journal: 64-bit block numbers, checksums of version 2 and 3.
const WIDE: u64 = 2;
const SUMS_2: u64 = 8;
const SUMS_3: u64 = 16;
/// Flags of a tag: the uuid is that of the tag before, and it is the last tag.
const SAME_UUID: u64 = 2;
const LAST_TAG: u64 = 8;

/// The shape of one journal.
struct Journal {
    /// The disk block of each block of the journal.
    blocks: Vec<u64>,
    features: u64,
    /// The first byte of the journal's superblock.
    superblock: u64,
}

impl Walk<'_> {
    /// Maps the journal, if there is one inside.
    pub(super) fn journal(&mut self) {
        self.out.sampled = true;
        let Some(inode) = self.volume.inode(JOURNAL) else { return };
        let mut mapped = self.volume.blocks_of(&inode);
        mapped.retain(|block| block.kind == BlockKind::Data);
        mapped.sort_by_key(|block| block.logical);
        let blocks: Vec<u64> = mapped.iter().map(|block| block.physical).collect();
        let Some(first) = blocks.first() else { return };
        let superblock = first * self.volume.block_bytes;
        if self.out.b32(superblock) != MAGIC {
            self.out.note("the journal has no superblock".to_owned());
            return;
        }
        let features = self.out.b32(superblock + 0x28);
        let journal = Journal { blocks, features, superblock };
        let guard = self.journal_superblock_guard(&journal);
        self.out.put("journal_superblock", "journal", superblock, guard);
        for index in 1..journal.blocks.len() {
            let at = journal.blocks[index] * self.volume.block_bytes;
            if self.out.b32(at) != MAGIC {
                continue;
            }
            match self.out.b32(at + 4) {
                1 => self.descriptor(&journal, index, at),
                2 => self.commit(&journal, index, at),
                5 => self.revoke(&journal, index, at),
                _ => {}
            }
        }
    }

    fn journal_superblock_guard(&mut self, journal: &Journal) -> Option<usize> {
        let at = journal.superblock;
        (journal.features & (SUMS_2 | SUMS_3) != 0).then(|| {
            self.out.guard(Guard {
                algorithm: Algorithm::Crc32cRaw(u32::MAX),
                pieces: vec![
                    Piece::Range(at, 0xfc),
                    Piece::Zeros(4),
                    Piece::Range(at + 0x100, 0x300),
                ],
                stores: vec![Store::whole(at + 0xfc, Order::Big)],
                next: None,
            })
        })
    }

    /// The checksum of a block, kept at `store`.
    fn journal_guard(&mut self, journal: &Journal, at: u64, store: u64) -> Option<usize> {
        let after = store + 4;
        let end = at + self.volume.block_bytes;
        (journal.features & (SUMS_2 | SUMS_3) != 0).then(|| {
            self.out.guard(Guard {
                algorithm: Algorithm::Crc32cRaw(u32::MAX),
                pieces: vec![
                    Piece::Range(journal.superblock + 0x30, 16),
                    Piece::Range(at, store - at),
                    Piece::Zeros(4),
                    Piece::Range(after, end - after),
                ],
                stores: vec![Store::whole(store, Order::Big)],
                next: None,
            })
        })
    }

    fn descriptor(&mut self, journal: &Journal, index: usize, at: u64) {
        self.sample("journal descriptor");
        let called = format!("journal_descriptor[{index}]");
        let tail = at + self.volume.block_bytes - 4;
        let guard = self.journal_guard(journal, at, tail);
        self.out.put("journal_header", &called, at, guard);
        let three = journal.features & SUMS_3 != 0;
        let wide = journal.features & WIDE != 0;
        let tag_bytes = match (three, wide) {
            (true, _) => 16,
            (false, true) => 12,
            (false, false) => 8,
        };
        let mut place = at + 12;
        for tag in 0.. {
            if place + tag_bytes > tail {
                break;
            }
            let structure = if three { "journal_tag3" } else { "journal_tag" };
            self.out.put(structure, &format!("{called}.tag[{tag}]"), place, guard);
            let flags = if three { self.out.b32(place + 4) } else { self.out.b16(place + 6) };
            place += tag_bytes + if flags & SAME_UUID == 0 { 16 } else { 0 };
            if flags & LAST_TAG != 0 {
                break;
            }
        }
        if guard.is_some() {
            self.out.put("journal_tail", &called, tail, guard);
        }
    }

    fn commit(&mut self, journal: &Journal, index: usize, at: u64) {
        self.sample("journal commit");
        let called = format!("journal_commit[{index}]");
        let guard = self.journal_guard(journal, at, at + 16);
        self.out.put("journal_header", &called, at, guard);
        self.out.put("journal_commit", &called, at + 12, guard);
    }

    fn revoke(&mut self, journal: &Journal, index: usize, at: u64) {
        self.sample("journal revoke");
        let called = format!("journal_revoke[{index}]");
        let tail = at + self.volume.block_bytes - 4;
        let guard = self.journal_guard(journal, at, tail);
        self.out.put("journal_header", &called, at, guard);
        let count = self.out.b32(at + 12).min(self.volume.block_bytes - 4);
        self.out.put_where("journal_revoke", &called, at + 12, guard, |part| part.at < 4);
        let width: u8 = if journal.features & WIDE != 0 { 8 } else { 4 };
        let mut place = at + 16;
        for item in 0.. {
            if place + u64::from(width) > at + count {
                break;
            }
            let field = Field {
                structure: called.as_str().into(),
                name: format!("block[{item}]").into(),
                at: place,
                width,
                order: Order::Big,
                kind: Kind::Block,
                guard,
                sampled: self.out.sampled,
            };
            self.out.add(field);
            place += u64::from(width);
        }
        if guard.is_some() {
            self.out.put("journal_tail", &called, tail, guard);
        }
    }
}
