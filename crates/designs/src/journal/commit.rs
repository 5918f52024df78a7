//! Transactions: commit, checkpoint, replay.

use fathom_block::Recorder;
use fathom_core::{DataSum, Errno};

use super::{BLOCK_BYTES, Blocks, HOME, JOURNAL, Journal, Memory, Switch};

/// First bytes of the blocks of the journal.
const SUPERBLOCK: u8 = b'J';
pub(super) const DESCRIPTOR: u8 = b'D';
pub(super) const REVOKE: u8 = b'R';
pub(super) const COMMIT: u8 = b'C';
/// Blocks of the largest transaction: bitmap, four inode blocks, six directories, and three more.
/// When less is left, the journal is emptied.
const TRANSACTION_MAX: usize = 14;

type Block = [u8; BLOCK_BYTES];

fn place_of_journal(index: usize) -> usize {
    (1 + index) * BLOCK_BYTES
}

fn place_of_home(block: usize) -> usize {
    (1 + JOURNAL + block) * BLOCK_BYTES
}

fn read(disk: &Recorder, at: usize) -> Block {
    let mut block = [0; BLOCK_BYTES];
    disk.image().read(at, &mut block);
    block
}

fn write(disk: &mut Recorder, at: usize, block: &Block) {
    disk.write(at, block).expect("a block of the device");
}

pub(super) fn write_superblock(disk: &mut Recorder, sequence: u8) {
    let mut block = [0; BLOCK_BYTES];
    (block[0], block[1]) = (SUPERBLOCK, sequence);
    write(disk, 0, &block);
    disk.flush();
}

/// The numbers in a set.
pub(super) fn members(blocks: Blocks) -> impl Iterator<Item = usize> {
    (0..HOME).filter(move |block| blocks & (1 << block) != 0)
}

/// Makes a descriptor or a revoke record: kind, sequence number, number of blocks, the blocks.
fn list(kind: u8, sequence: u8, blocks: Blocks) -> Block {
    let mut block = [0; BLOCK_BYTES];
    (block[0], block[1], block[2]) = (kind, sequence, blocks.count_ones() as u8);
    for (entry, number) in block[3..].iter_mut().zip(members(blocks)) {
        *entry = number as u8;
    }
    block
}

fn listed(block: &Block) -> Blocks {
    let count = usize::from(block[2]).min(BLOCK_BYTES - 3);
    block[3..3 + count].iter().filter(|n| usize::from(**n) < HOME).fold(0, |set, n| set | 1 << n)
}

fn commit_block(sequence: u8, transaction: &[Block]) -> Block {
    let mut block = [0; BLOCK_BYTES];
    (block[0], block[1]) = (COMMIT, sequence);
    block[8..].copy_from_slice(&DataSum::of(transaction.as_flattened()).0.to_le_bytes());
    block
}

/// A transaction found in the journal.
struct Found {
    sequence: u8,
    revoked: Blocks,
    copies: Vec<(usize, Block)>,
    /// The place of the next transaction.
    end: usize,
}

impl Memory {
    pub(super) fn write_home(&self, disk: &mut Recorder, block: usize) {
        write(disk, place_of_home(block), &self.home[block]);
    }

    /// Writes committed metadata to its place and empties the journal.
    fn checkpoint(&mut self, disk: &mut Recorder) {
        for block in members(self.journaled) {
            self.write_home(disk, block);
        }
        disk.flush();
        write_superblock(disk, self.sequence);
        (self.journaled, self.head) = (0, 0);
    }
}

impl Journal {
    /// Makes the running transaction durable.
    pub(super) fn commit(&self, memory: &mut Memory, disk: &mut Recorder) {
        if memory.dirty | memory.data == 0 {
            return;
        }
        for block in members(memory.data) {
            memory.write_home(disk, block);
        }
        if self.has(Switch::NoBarrier) {
            disk.flush();
        }
        let mut transaction = vec![list(DESCRIPTOR, memory.sequence, memory.dirty)];
        if memory.revoked != 0 && self.has(Switch::NoRevoke) {
            transaction.push(list(REVOKE, memory.sequence, memory.revoked));
        }
        transaction.extend(members(memory.dirty).map(|block| memory.home[block]));
        transaction.push(commit_block(memory.sequence, &transaction));
        for block in &transaction {
            write(disk, place_of_journal(memory.head), block);
            memory.head += 1;
        }
        disk.flush();
        memory.sequence += 1;
        memory.journaled = (memory.journaled | memory.dirty) & !memory.revoked;
        (memory.dirty, memory.data, memory.freed, memory.revoked) = (0, 0, 0, 0);
        if JOURNAL - memory.head < TRANSACTION_MAX {
            memory.checkpoint(disk);
        }
    }

    /// Finds the complete transaction that begins at a place of the journal.
    fn find(&self, disk: &Recorder, from: usize, sequence: u8) -> Option<Found> {
        let at = |index: usize| (index < JOURNAL).then(|| read(disk, place_of_journal(index)));
        let descriptor = at(from).filter(|block| (block[0], block[1]) == (DESCRIPTOR, sequence))?;
        let (mut end, mut revoked) = (from + 1, 0);
        let mut transaction = vec![descriptor];
        if let Some(block) = at(end).filter(|block| (block[0], block[1]) == (REVOKE, sequence)) {
            revoked = listed(&block);
            transaction.push(block);
            end += 1;
        }
        let mut copies = Vec::new();
        for home in members(listed(&descriptor)) {
            let copy = at(end)?;
            copies.push((home, copy));
            transaction.push(copy);
            end += 1;
        }
        let commit = at(end).filter(|block| (block[0], block[1]) == (COMMIT, sequence))?;
        let whole = commit == commit_block(sequence, &transaction);
        (whole || !self.has(Switch::NoChecksum)).then_some(Found {
            sequence,
            revoked,
            copies,
            end: end + 1,
        })
    }

    /// Replays the journal and loads the volume.
    pub(super) fn recover(&self, disk: &mut Recorder) -> Result<Memory, Errno> {
        let superblock = read(disk, 0);
        if superblock[0] != SUPERBLOCK {
            return Err(Errno::EUCLEAN);
        }
        let (mut found, mut from, mut sequence) = (Vec::new(), 0, superblock[1]);
        while let Some(transaction) = self.find(disk, from, sequence) {
            from = transaction.end;
            sequence += 1;
            found.push(transaction);
        }
        let revoked_after = |block: usize, sequence: u8| {
            found.iter().any(|later| later.sequence > sequence && later.revoked & (1 << block) != 0)
        };
        for transaction in &found {
            for (block, copy) in &transaction.copies {
                if !revoked_after(*block, transaction.sequence) {
                    write(disk, place_of_home(*block), copy);
                }
            }
        }
        if !found.is_empty() {
            disk.flush();
            write_superblock(disk, sequence);
        }
        let mut memory = Memory::blank();
        memory.sequence = sequence;
        for block in 0..HOME {
            memory.home[block] = read(disk, place_of_home(block));
        }
        Ok(memory)
    }
}
