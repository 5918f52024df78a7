//! The log: records with their checksum, and the operations in them.

use super::super::guard::{Algorithm, Guard, Piece, Store};
use super::super::layout::Order;
use super::Walk;

const MAGIC: u64 = 0xfeed_babe;
const SECTOR: u64 = 512;
/// Bytes of the header of a record that are summed, and where the sum is in it.
const HEADER: u64 = 328;
const SUM: u64 = 32;
/// Records that are mapped: behind the last that was written the log is full of empty ones.
const RECORDS_MAX: u64 = 24;
/// Records that campaigns try, and operations of each.
const RECORDS_SAMPLED: u64 = 3;
const OPERATIONS_MAX: u64 = 4;

impl Walk<'_> {
    pub(super) fn log(&mut self) {
        let get = |field: &str| self.out.get("superblock", field, 0);
        let first = self.volume.place(get("sb_logstart"));
        let end = first + get("sb_logblocks") * self.volume.block_bytes;
        if get("sb_logstart") == 0 || end > self.out.end() {
            return;
        }
        let mut at = first;
        let mut index = 0;
        while at < end && index < RECORDS_MAX {
            let length = self.out.b32(at + 12);
            let is_record = self.out.b32(at) == MAGIC && at + SECTOR + length <= end;
            if !is_record {
                at += SECTOR;
                continue;
            }
            self.record(index, at, length);
            index += 1;
            at += SECTOR + length.next_multiple_of(SECTOR);
        }
        self.out.sampled = true;
    }

    fn record(&mut self, index: u64, at: u64, length: u64) {
        self.out.sampled = index < RECORDS_SAMPLED;
        let chosen = self.out.sampled;
        // Empty records have none; longer ones have further headers, whose sum is not followed.
        let summed = self.volume.five && length <= 32768 && self.out.u32(at + SUM) != 0;
        let guard = summed.then(|| {
            self.out.guard(Guard {
                algorithm: Algorithm::Crc32c,
                pieces: vec![
                    Piece::Range(at, SUM),
                    Piece::Zeros(4),
                    Piece::Range(at + SUM + 4, HEADER - SUM - 4),
                    Piece::Range(at + SECTOR, length),
                ],
                stores: vec![Store::whole(at + SUM, Order::Little)],
                next: None,
            })
        });
        let called = format!("log_record[{index}]");
        self.out.put("log_record", &called, at, guard);
        let mut place = at + SECTOR;
        for operation in 0..self.out.b32(at + 40).min(OPERATIONS_MAX) {
            self.out.sampled = chosen && operation < 2;
            let name = format!("{called}.operation[{operation}]");
            self.out.put("log_operation", &name, place, guard);
            place += 12 + self.out.b32(place + 4);
            if place >= at + SECTOR + length {
                break;
            }
        }
    }
}
