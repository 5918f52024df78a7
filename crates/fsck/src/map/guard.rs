//! Checksums as data: what is summed, how, and where the sum is kept.
//!
//! A corruption that leaves a checksum wrong tests only the checksum. Every field therefore knows the
//! guard that covers it, and a guard knows the one that covers its own sum.

use super::layout::Order;

/// A piece of what is summed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes that are not on the disk: a number that the structure has by its place.
    Bytes(Vec<u8>),
    /// Bytes of the disk.
    Range(u64, u64),
    /// So many zeros, instead of the sum itself.
    Zeros(u64),
}

/// How a sum is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// CRC-32C, reflected, from this start value, without the final complement: what ext4 keeps.
    Crc32cRaw(u32),
    /// CRC-16 (ANSI), as `gdt_csum` of ext4 has it.
    Crc16,
    /// CRC-32C as it is published, with the final complement: xfs and btrfs.
    Crc32c,
    /// CRC-32 (Ethernet) from this start value, without the final complement: f2fs.
    Crc32Raw(u32),
    /// 16 bits, turned to the right by one before each byte is added: entry sets of exFAT.
    Turned16,
    /// The same with 32 bits: boot regions of exFAT.
    Turned32,
}

/// Where a part of the sum is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) at: u64,
    pub(crate) width: u8,
    /// By how many bits the sum is shifted down before it is stored.
    pub(crate) shift: u8,
    pub(crate) order: Order,
}

/// A checksum of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) algorithm: Algorithm,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) stores: Vec<Store>,
    /// The guard that covers the place of this sum.
    pub(crate) next: Option<usize>,
}

impl Guard {
    /// A CRC-32C of bytes of the disk that is kept among them, as xfs and btrfs have it.
    pub(crate) fn inside(at: u64, bytes: u64, kept: u64) -> Guard {
        let after = kept + 4;
        Guard {
            algorithm: Algorithm::Crc32c,
            pieces: vec![
                Piece::Range(at, kept - at),
                Piece::Zeros(4),
                Piece::Range(after, at + bytes - after),
            ],
            stores: vec![Store::whole(kept, Order::Little)],
            next: None,
        }
    }

    /// Sums up the bytes of a disk.
    pub(crate) fn sum(&self, disk: &[u8]) -> u32 {
        let mut state = Sum::start(self.algorithm);
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => state.add(bytes),
                Piece::Range(at, length) => {
                    let (at, length) = (*at as usize, *length as usize);
                    state.add(disk.get(at..at + length).unwrap_or_default());
                }
                Piece::Zeros(count) => (0..*count).for_each(|_| state.add(&[0])),
            }
        }
        state.end()
    }

    /// Whether the stored sum is right.
    pub(crate) fn holds(&self, disk: &[u8]) -> bool {
        let sum = self.sum(disk);
        self.stores.iter().all(|store| {
            let at = store.at as usize;
            disk.get(at..at + usize::from(store.width)) == Some(&store.bytes(sum)[..])
        })
    }

    /// Writes the right sum.
    pub(crate) fn fix(&self, disk: &mut [u8]) {
        let sum = self.sum(disk);
        for store in &self.stores {
            let at = store.at as usize;
            if let Some(place) = disk.get_mut(at..at + usize::from(store.width)) {
                place.copy_from_slice(&store.bytes(sum));
            }
        }
    }
}

impl Store {
    /// A sum of 32 bits in one place.
    pub(crate) fn whole(at: u64, order: Order) -> Store {
        Store { at, width: 4, shift: 0, order }
    }

    /// The lower half of a sum.
    pub(crate) fn low(at: u64) -> Store {
        Store { at, width: 2, shift: 0, order: Order::Little }
    }

    /// The upper half of a sum.
    pub(crate) fn high(at: u64) -> Store {
        Store { at, width: 2, shift: 16, order: Order::Little }
    }

    fn bytes(&self, sum: u32) -> Vec<u8> {
        let bytes = (sum >> self.shift).to_le_bytes();
        let mut bytes = bytes[..usize::from(self.width)].to_vec();
        if self.order == Order::Big {
            bytes.reverse();
        }
        bytes
    }
}

/// A sum in the making.
struct Sum {
    algorithm: Algorithm,
    value: u32,
}

/// The reflected polynomial of CRC-32C.
const CASTAGNOLI: [u32; 256] = table(0x82f6_3b78);
/// The reflected polynomial of CRC-32 (Ethernet).
const ETHERNET: [u32; 256] = table(0xedb8_8320);
/// The reflected polynomial of CRC-16 (ANSI).
const ANSI: [u32; 256] = table(0xa001);

const fn table(polynomial: u32) -> [u32; 256] {
    let mut out = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        out[index] = value;
        index += 1;
    }
    out
}

impl Sum {
    fn start(algorithm: Algorithm) -> Sum {
        let value = match algorithm {
            Algorithm::Crc32cRaw(start) | Algorithm::Crc32Raw(start) => start,
            Algorithm::Crc32c => u32::MAX,
            Algorithm::Crc16 => 0xffff,
            Algorithm::Turned16 | Algorithm::Turned32 => 0,
        };
        Sum { algorithm, value }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let byte = u32::from(*byte);
            let index = ((self.value ^ byte) & 0xff) as usize;
            self.value = match self.algorithm {
                Algorithm::Crc32cRaw(_) | Algorithm::Crc32c => {
                    (self.value >> 8) ^ CASTAGNOLI[index]
                }
                Algorithm::Crc32Raw(_) => (self.value >> 8) ^ ETHERNET[index],
                Algorithm::Crc16 => (self.value >> 8) ^ ANSI[index],
                Algorithm::Turned16 => {
                    let turned = (self.value as u16).rotate_right(1);
                    u32::from(turned.wrapping_add(byte as u16))
                }
                Algorithm::Turned32 => self.value.rotate_right(1).wrapping_add(byte),
            };
        }
    }

    fn end(self) -> u32 {
        if self.algorithm == Algorithm::Crc32c { !self.value } else { self.value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(algorithm: Algorithm, bytes: &[u8]) -> u32 {
        let mut sum = Sum::start(algorithm);
        sum.add(bytes);
        sum.end()
    }

    #[test]
    fn the_sums_have_their_published_check_values() {
        // The "check" column of the catalogue of CRC algorithms: the sum of "123456789".
        assert_eq!(sum(Algorithm::Crc32cRaw(u32::MAX), b"123456789"), !0xe306_9283);
        assert_eq!(sum(Algorithm::Crc16, b"123456789"), 0x4b37);
        assert_eq!(sum(Algorithm::Crc32c, b"123456789"), 0xe306_9283);
        assert_eq!(sum(Algorithm::Crc32Raw(u32::MAX), b"123456789"), !0xcbf4_3926);
        // By hand: 1, then half of it (the lowest bit becomes the highest) and 2.
        assert_eq!(sum(Algorithm::Turned16, &[1, 2]), 0x8002);
        assert_eq!(sum(Algorithm::Turned32, &[1, 2]), 0x8000_0002);
    }

    #[test]
    fn a_sum_is_fixed_where_it_is_kept() {
        let guard = Guard {
            algorithm: Algorithm::Crc32cRaw(7),
            pieces: vec![Piece::Bytes(vec![7]), Piece::Range(0, 4), Piece::Zeros(4)],
            stores: vec![Store::low(4), Store::high(6)],
            next: None,
        };
        let mut disk = vec![1, 2, 3, 4, 0, 0, 0, 0];
        assert!(!guard.holds(&disk));
        guard.fix(&mut disk);
        assert!(guard.holds(&disk));
        disk[0] = 9;
        assert!(!guard.holds(&disk));
    }
}
