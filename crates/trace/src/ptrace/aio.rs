//! Follows operations of io_submit(2): each control block is read as the system call that it stands
//! for, and counted when io_getevents(2) fetches its completion.

use std::collections::HashMap;

use super::tracee::Tracee;
use crate::layout::{SLOTS_MAX, index_of};
use crate::sample::Touch;

/// Blocks of one submission that are looked at, as in `bpf/aio.h`.
const BLOCKS_MAX: u64 = 4096;
/// Bytes of `struct iocb` and of `struct io_event` (linux/aio_abi.h).
const BLOCK_BYTES: usize = 64;
const EVENT_BYTES: usize = 32;
/// Offset of the magic number in the ring of a context, and the number.
const MAGIC_AT: u64 = 16;
const MAGIC: u32 = 0xa10a_10a1;

/// A submitted operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submitted {
    pub(super) call: u16,
    pub(super) slots: [u32; SLOTS_MAX],
    pub(super) touch: Touch,
}

/// Operations that have not completed, by process and address of the block.
#[derive(Debug, Default)]
pub(super) struct Pending {
    blocks: HashMap<(i32, u64), Submitted>,
    /// Operations whose completion no call has fetched.
    unfetched: u64,
}

impl Pending {
    pub(super) fn add(&mut self, process: i32, address: u64, submitted: Submitted) {
        let before = self.blocks.insert((process, address), submitted);
        self.unfetched += u64::from(before.is_some());
    }

    pub(super) fn take(&mut self, process: i32, address: u64) -> Option<Submitted> {
        self.blocks.remove(&(process, address))
    }

    pub(super) fn unfetched(&self) -> u64 {
        self.unfetched + self.blocks.len() as u64
    }
}

/// The call that a block stands for, with its arguments.
pub(super) fn block(tracee: Tracee, address: u64) -> Option<(u16, [u64; 6])> {
    let mut bytes = [0; BLOCK_BYTES];
    if tracee.read(address, &mut bytes) != BLOCK_BYTES {
        return None;
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let name = match u16::from_le_bytes([bytes[16], bytes[17]]) {
        0 => "pread64",
        1 => "pwrite64",
        2 => "fsync",
        3 => "fdatasync",
        7 => "preadv2",
        8 => "pwritev2",
        _ => return None,
    };
    let fd = half(20) as i32;
    Some((index_of(name)?, [fd as u64, word(24), word(32), word(40), 0, half(12).into()]))
}

/// The addresses of the blocks of io_submit (context, number, addresses).
pub(super) fn addresses(tracee: Tracee, args: &[u64; 6]) -> Vec<u64> {
    let number = if (args[1] as i64) < 0 { 0 } else { args[1].min(BLOCKS_MAX) };
    let word = |index: u64| {
        let mut bytes = [0; 8];
        let read = tracee.read(args[2].wrapping_add(8 * index), &mut bytes);
        (read == 8).then(|| u64::from_le_bytes(bytes))
    };
    (0..number).map_while(word).collect()
}

/// Whether the context of a call exists: otherwise an error is not that of a block.
pub(super) fn is_context(tracee: Tracee, address: u64) -> bool {
    let mut bytes = [0; 4];
    let read = tracee.read(address.wrapping_add(MAGIC_AT), &mut bytes);
    read == 4 && u32::from_le_bytes(bytes) == MAGIC
}

/// Reads block and result of each completion that io_getevents (context, least, most, completions)
/// fetched.
pub(super) fn completions(tracee: Tracee, args: &[u64; 6], number: i64) -> Vec<(u64, i64)> {
    let one = |index: i64| {
        let mut bytes = [0; EVENT_BYTES];
        let at = args[3].wrapping_add(index as u64 * EVENT_BYTES as u64);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let read = tracee.read(at, &mut bytes);
        (read == EVENT_BYTES).then(|| (word(&bytes[8..16]), word(&bytes[16..24]) as i64))
    };
    (0..number).map_while(one).collect()
}
