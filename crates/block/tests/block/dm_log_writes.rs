//! The exchange format: bytes as the kernel writes them, round trips, damage.

use crate::common::log_and_window;
use fathom_block::dm_log_writes::{read, write};
use fathom_block::{Event, WriteLog};
use proptest::prelude::*;

const SECTOR: usize = 512;

fn put(log: &WriteLog) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(log, SECTOR, &mut bytes).unwrap();
    bytes
}

/// A sector that starts with these bytes.
fn sector(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = parts.concat();
    bytes.resize(SECTOR, 0);
    bytes
}

fn entry(sector_number: u64, sectors: u64, flags: u64, mark: &[u8]) -> Vec<u8> {
    let numbers = [sector_number, sectors, flags, mark.len() as u64].map(u64::to_le_bytes);
    sector(&[&numbers.concat(), mark])
}

fn super_block(entries: u64) -> Vec<u8> {
    // Not built with the crate's own constants: the kernel's value, spelt out.
    let magic = *b"rhswfsj\0";
    sector(&[&magic, &1_u64.to_le_bytes(), &entries.to_le_bytes(), &512_u32.to_le_bytes()])
}

fn sample() -> WriteLog {
    let write = |at, data, fua, metadata| Event::Write { at, data, fua, metadata };
    [
        Event::Mark(b"mkfs"),
        write(1024, &[7; 1024], false, true),
        Event::Erase { at: 4096, len: 8192 },
        Event::Flush,
        write(0, &[9; 512], true, false),
    ]
    .into_iter()
    .collect()
}

#[test]
fn the_bytes_are_those_of_the_kernel() {
    let expected = [
        super_block(5),
        entry(0, 0, 8, b"mkfs"),
        entry(2, 2, 16, b""),
        vec![7; 1024],
        entry(8, 16, 4, b""),
        entry(0, 0, 1, b""),
        entry(0, 1, 2, b""),
        vec![9; 512],
    ]
    .concat();
    assert_eq!(put(&sample()), expected);
    let imported = read(&expected[..]).unwrap();
    assert_eq!((imported.log, imported.sector_bytes), (sample(), SECTOR));
}

#[test]
fn a_flush_with_data_flushes_first() {
    let bytes = [super_block(1), entry(3, 1, 1 | 2, b""), vec![5; 512]].concat();
    let events =
        [Event::Flush, Event::Write { at: 1536, data: &[5; 512], fua: true, metadata: false }];
    assert!(read(&bytes[..]).unwrap().log.events().eq(events));
}

#[test]
fn every_truncation_is_noticed() {
    let bytes = put(&sample());
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
    let error = |len: usize| read(&bytes[..len]).unwrap_err().to_string();
    assert_eq!(error(10), "this is not a dm-log-writes log: it has 10 bytes");
    assert_eq!(error(100), "this is not a dm-log-writes log: it ends in the super block");
    assert_eq!(error(3 * SECTOR - 1), "the log ends in the head of entry 1 of 5");
    assert_eq!(error(4 * SECTOR), "the log ends in the data of entry 1 of 5");
}

#[test]
fn damage_is_named() {
    let error = |parts: &[Vec<u8>]| read(&parts.concat()[..]).unwrap_err().to_string();
    let with = |damaged: Vec<u8>| error(&[super_block(2), entry(0, 0, 1, b""), damaged]);
    assert_eq!(with(entry(0, 0, 0, b"")), "entry 1 of the log is damaged: it is empty");
    assert_eq!(with(entry(0, 1, 32, b"")), "entry 1 of the log is damaged: unknown flags 0x20");
    assert!(with(entry(0, 0, 8 | 1, b"x")).ends_with("a mark that is also something else"));
    assert!(with(entry(u64::MAX, 1, 0, b"")).ends_with("is beyond any device"));
    assert!(
        with(entry(0, u64::MAX / 512, 0, b""))
            .ends_with("the log ends in the data of entry 1 of 2")
    );
    let mut long_mark = entry(0, 0, 8, b"");
    long_mark[24..32].copy_from_slice(&481_u64.to_le_bytes());
    assert!(with(long_mark).ends_with("a mark of 481 bytes, room for 480"));

    let mut head = super_block(0);
    head[0] = b'R';
    assert!(error(&[head]).contains("its magic number is 0x6a736677736852, not 0x6a736677736872"));
    let mut head = super_block(0);
    head[8] = 2;
    assert!(error(&[head]).ends_with("its version is 2, not 1"));
    let mut head = super_block(0);
    head[24..28].copy_from_slice(&500_u32.to_le_bytes());
    assert!(error(&[head]).starts_with("a sector of 500 bytes is not possible"));
}

#[test]
fn what_the_format_cannot_express_is_refused() {
    let error = |event| {
        let log: WriteLog = [event].into_iter().collect();
        write(&log, SECTOR, std::io::sink()).unwrap_err().to_string()
    };
    assert_eq!(
        error(Event::Write { at: 512, data: &[1; 16], fua: false, metadata: false }),
        "event 0 (write 16 bytes at 0x200) cannot be written with sectors of 512 bytes: it is not in \
         whole sectors"
    );
    assert!(error(Event::Mark(&[b'x'; 481])).ends_with("the mark is too long"));
    assert!(write(&WriteLog::new(), 1000, std::io::sink()).is_err());
}

/// The same log on a device that is a sector for every byte.
fn in_sectors(log: &WriteLog) -> WriteLog {
    let mut scaled = WriteLog::new();
    for event in log.events() {
        match event {
            Event::Write { at, data, fua, metadata } => {
                let data: Vec<u8> = data.iter().flat_map(|&byte| [byte; SECTOR]).collect();
                scaled.push(Event::Write { at: at * SECTOR, data: &data, fua, metadata });
            }
            Event::Erase { at, len } => {
                scaled.push(Event::Erase { at: at * SECTOR, len: len * SECTOR });
            }
            other => scaled.push(other),
        }
    }
    scaled
}

proptest! {
    #[test]
    fn logs_survive_a_round_trip((log, _, _) in log_and_window(12)) {
        let log = in_sectors(&log);
        prop_assert_eq!(read(&put(&log)[..]).unwrap().log, log);
    }

    #[test]
    fn a_flipped_bit_never_panics(byte in 0..6 * SECTOR, bit in 0..8_u32) {
        let mut bytes = put(&sample());
        bytes[byte] ^= 1 << bit;
        let _ = read(&bytes[..]);
    }
}
