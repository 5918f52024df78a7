//! Reads and writes the log format of the kernel's `dm-log-writes` target, for exchange with
//! `replay-log` of xfstests.
//!
//! The format (drivers/md/dm-log-writes.c; all numbers little endian):
//!
//! | sector | contents |
//! |---|---|
//! | first | super block: magic `0x6a736677736872` (8 bytes), version 1 (8), number of entries (8), bytes per sector (4) |
//! | each entry | sector (8 bytes), number of sectors (8), flags (8), length of the mark (8), the mark |
//! | after it | the data, unless the entry is a discard |
//!
//! Flags: flush 1, FUA 2, discard 4, mark 8, metadata 16. An entry with both a flush and data is a
//! flush before the data (`REQ_PREFLUSH`), and becomes two events.
//!
//! The kernel logs a write when it has *completed* and, unless it is FUA, only when a flush covers it:
//! a write that a file system did not wait for before its flush appears after it. Writes that no flush
//! covered come last, when the target is removed.

use std::io::{Read, Write};

use crate::log::{Event, WriteLog};

const MAGIC: u64 = 0x6a_7366_7773_6872;
const VERSION: u64 = 1;
const ENTRY_BYTES: usize = 32;

const FLUSH: u64 = 1;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;
const METADATA: u64 = 1 << 4;
const KNOWN: u64 = FLUSH | FUA | DISCARD | MARK | METADATA;

/// A log that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DmLogError {
    /// The file cannot be read or written.
    #[error("cannot {access} the log: {source}")]
    Io {
        /// The failed access: "read" or "write".
        access: &'static str,
        /// The reason from the operating system.
        source: std::io::Error,
    },
    /// The file is not such a log at all.
    #[error("this is not a dm-log-writes log: {0}")]
    NotALog(String),
    /// The log ends too early.
    #[error("the log ends in {part} of entry {entry} of {entries}")]
    Truncated {
        /// The part of the entry that is missing.
        part: &'static str,
        /// The number of the entry, counted from 0.
        entry: u64,
        /// The number of entries that the super block promises.
        entries: u64,
    },
    /// An entry makes no sense.
    #[error("entry {entry} of the log is damaged: {why}")]
    Damaged {
        /// The number of the entry, counted from 0.
        entry: u64,
        /// The reason why it makes no sense.
        why: String,
    },
    /// The format cannot express an event.
    #[error(
        "event {index} ({event}) cannot be written with sectors of {sector_bytes} bytes: {why}"
    )]
    Inexpressible {
        /// The index of the event in the log.
        index: usize,
        /// The event in words.
        event: String,
        /// The sector size that was asked for.
        sector_bytes: usize,
        /// The part of the event that does not fit.
        why: &'static str,
    },
    /// The number is not a possible sector size.
    #[error("a sector of {0} bytes is not possible: use a power of two from 512 to 65536")]
    SectorBytes(usize),
}

/// A log that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The events.
    pub log: WriteLog,
    /// The sector size of the device.
    pub sector_bytes: usize,
}

fn check_sector_bytes(sector_bytes: usize) -> Result<(), DmLogError> {
    match sector_bytes.is_power_of_two() && (512..=65536).contains(&sector_bytes) {
        true => Ok(()),
        false => Err(DmLogError::SectorBytes(sector_bytes)),
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Fills `buffer` as far as there is input; returns whether it was enough.
fn fill(mut input: impl Read, len: u64, buffer: &mut Vec<u8>) -> Result<bool, DmLogError> {
    buffer.clear();
    // `take` before `read_to_end`: a damaged length costs no more memory than the input has.
    let read = input.by_ref().take(len).read_to_end(buffer);
    read.map_err(|source| DmLogError::Io { access: "read", source })?;
    Ok(buffer.len() as u64 == len)
}

/// Reads a log in the kernel's format.
///
/// # Errors
/// If it is not one, or damaged: the message says where.
pub fn read(mut input: impl Read) -> Result<Imported, DmLogError> {
    let (sector_bytes, entries) = read_super(&mut input)?;
    let mut log = WriteLog::new();
    let mut sector = Vec::new();
    let mut data = Vec::new();
    for entry in 0..entries {
        let truncated = |part| DmLogError::Truncated { part, entry, entries };
        if !fill(&mut input, sector_bytes as u64, &mut sector)? {
            return Err(truncated("the head"));
        }
        let head = Entry::parse(&sector, sector_bytes)
            .map_err(|why| DmLogError::Damaged { entry, why })?;
        if !fill(&mut input, head.data_bytes(), &mut data)? {
            return Err(truncated("the data"));
        }
        log.extend(head.events(&sector, &data));
    }
    Ok(Imported { log, sector_bytes })
}

fn read_super(input: &mut impl Read) -> Result<(usize, u64), DmLogError> {
    let not = |why: String| DmLogError::NotALog(why);
    let mut head = Vec::new();
    if !fill(&mut *input, 28, &mut head)? {
        return Err(not(format!("it has {} bytes", head.len())));
    }
    let (magic, version, entries) = (number(&head, 0), number(&head, 8), number(&head, 16));
    if magic != MAGIC {
        return Err(not(format!("its magic number is {magic:#x}, not {MAGIC:#x}")));
    }
    if version != VERSION {
        return Err(not(format!("its version is {version}, not {VERSION}")));
    }
    let sector_bytes = u32::from_le_bytes(head[24..28].try_into().expect("four bytes")) as usize;
    check_sector_bytes(sector_bytes)?;
    if !fill(input, sector_bytes as u64 - 28, &mut head)? {
        return Err(not("it ends in the super block".to_owned()));
    }
    Ok((sector_bytes, entries))
}

/// The head of an entry, checked.
struct Entry {
    at: usize,
    len: usize,
    flags: u64,
    mark_len: usize,
}

impl Entry {
    fn parse(sector: &[u8], sector_bytes: usize) -> Result<Entry, String> {
        let bytes = |at: usize, what: &str| {
            let sectors = number(sector, at);
            let bytes = usize::try_from(sectors).ok().and_then(|n| n.checked_mul(sector_bytes));
            bytes.ok_or_else(|| format!("{what} {sectors} is beyond any device"))
        };
        let (at, len) = (bytes(0, "sector")?, bytes(8, "length")?);
        let (flags, data_len) = (number(sector, 16), number(sector, 24));
        if at.checked_add(len).is_none() {
            return Err(format!("{len} bytes at {at} are beyond any device"));
        }
        if flags & !KNOWN != 0 {
            return Err(format!("unknown flags {:#x}", flags & !KNOWN));
        }
        if flags == 0 && len == 0 {
            return Err("it is empty".to_owned());
        }
        if flags & MARK == 0 {
            return Ok(Entry { at, len, flags, mark_len: 0 });
        }
        let room = sector_bytes - ENTRY_BYTES;
        let fits = usize::try_from(data_len).ok().filter(|mark_len| *mark_len <= room);
        let mark_len =
            fits.ok_or_else(|| format!("a mark of {data_len} bytes, room for {room}"))?;
        if flags != MARK || len != 0 {
            return Err("a mark that is also something else".to_owned());
        }
        Ok(Entry { at, len, flags, mark_len })
    }

    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    fn data_bytes(&self) -> u64 {
        if self.has(DISCARD) { 0 } else { self.len as u64 }
    }

    fn events<'a>(&self, sector: &'a [u8], data: &'a [u8]) -> impl Iterator<Item = Event<'a>> {
        let (at, len) = (self.at, self.len);
        let flush = self.has(FLUSH).then_some(Event::Flush);
        let change = if self.has(MARK) {
            Some(Event::Mark(&sector[ENTRY_BYTES..ENTRY_BYTES + self.mark_len]))
        } else if len == 0 {
            None
        } else if self.has(DISCARD) {
            Some(Event::Erase { at, len })
        } else {
            Some(Event::Write { at, data, fua: self.has(FUA), metadata: self.has(METADATA) })
        };
        flush.into_iter().chain(change)
    }
}

/// Writes a log in the kernel's format. Events without an effect (an erase or write of no bytes)
/// are left out.
///
/// # Errors
/// If an event is not in whole sectors, a mark is longer than a sector holds, or the output fails.
pub fn write(
    log: &WriteLog,
    sector_bytes: usize,
    mut output: impl Write,
) -> Result<(), DmLogError> {
    check_sector_bytes(sector_bytes)?;
    let shown = |event: &Event<'_>| event.region().is_none_or(|region| !region.is_empty());
    let mut put = |bytes: &[u8]| {
        output.write_all(bytes).map_err(|source| DmLogError::Io { access: "write", source })
    };
    let entries = log.events().filter(shown).count() as u64;
    let mut head = vec![0; sector_bytes];
    let size = (sector_bytes as u32).to_le_bytes();
    let fields: [&[u8]; 4] =
        [&MAGIC.to_le_bytes(), &VERSION.to_le_bytes(), &entries.to_le_bytes(), &size];
    head[..28].copy_from_slice(&fields.concat());
    put(&head)?;
    for (index, event) in log.events().enumerate().filter(|(_, event)| shown(event)) {
        let inexpressible = |why| {
            let event = event.to_string();
            DmLogError::Inexpressible { index, event, sector_bytes, why }
        };
        put(&entry_head(event, sector_bytes).map_err(inexpressible)?)?;
        if let Event::Write { data, .. } = event {
            put(data)?;
        }
    }
    Ok(())
}

fn entry_head(event: Event<'_>, sector_bytes: usize) -> Result<Vec<u8>, &'static str> {
    let region = event.region().unwrap_or_default();
    let sectors = |bytes: usize| match bytes.is_multiple_of(sector_bytes) {
        true => Ok((bytes / sector_bytes) as u64),
        false => Err("it is not in whole sectors"),
    };
    let (flags, mark): (u64, &[u8]) = match event {
        Event::Write { fua, metadata, .. } => {
            ((u64::from(fua) * FUA) | (u64::from(metadata) * METADATA), &[])
        }
        Event::Erase { .. } => (DISCARD, &[]),
        Event::Flush => (FLUSH, &[]),
        Event::Mark(name) => (MARK, name),
    };
    if mark.len() > sector_bytes - ENTRY_BYTES {
        return Err("the mark is too long");
    }
    let numbers = [sectors(region.start)?, sectors(region.len())?, flags, mark.len() as u64];
    let mut head: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
    head.extend_from_slice(mark);
    head.resize(sector_bytes, 0);
    Ok(head)
}
