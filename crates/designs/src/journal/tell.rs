//! Describes the blocks and their contents in words.

use super::operation::{DIR, FILE, FREE, WRITTEN};
use super::{DATA, FIRST_DATA, JOURNAL, commit};

/// Names the purpose of a block.
pub(super) fn label(block: usize) -> String {
    match block {
        0 => "superblock".to_owned(),
        block if block <= JOURNAL => format!("journal {}", block - 1),
        block => match block - 1 - JOURNAL {
            0 => "bitmap".to_owned(),
            home if home < FIRST_DATA => format!("inodes {}-{}", 2 * home - 2, 2 * home - 1),
            home => format!("data {}", home - FIRST_DATA),
        },
    }
}

/// Describes the contents of a block.
pub(super) fn holds(block: usize, bytes: &[u8]) -> String {
    match block {
        0 => format!("journal from transaction {} on", bytes[1]),
        block if block <= JOURNAL => in_journal(bytes),
        block => match block - 1 - JOURNAL {
            0 => format!("in use: {}", listed(used(bytes))),
            home if home < FIRST_DATA => {
                let first = 2 * home - 2;
                [inode(first, &bytes[..8]), inode(first + 1, &bytes[8..])].join("; ")
            }
            _ => data(bytes),
        },
    }
}

fn in_journal(bytes: &[u8]) -> String {
    let list = || listed(bytes[3..].iter().take(bytes[2].into()).map(|home| usize::from(*home)));
    match bytes[0] {
        commit::DESCRIPTOR => {
            format!("descriptor of {}: home blocks {}", bytes[1], list())
        }
        commit::REVOKE => format!("revoke of {}: home blocks {}", bytes[1], list()),
        commit::COMMIT => format!("commit of {}", bytes[1]),
        _ if bytes.iter().all(|byte| *byte == 0) => "zeros".to_owned(),
        _ => "copy of a block".to_owned(),
    }
}

fn used(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
    (0..DATA).filter(move |data| bits & (1 << data) != 0)
}

fn listed(numbers: impl Iterator<Item = usize>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    if numbers.is_empty() { "none".to_owned() } else { numbers.join(" ") }
}

fn inode(number: usize, bytes: &[u8]) -> String {
    let blocks = listed(bytes[2..].iter().take(bytes[1].into()).map(|data| usize::from(*data)));
    match bytes[0] {
        FREE => format!("{number} free"),
        FILE if bytes[1] == 0 => format!("{number} empty file"),
        FILE => format!("{number} file, data {blocks}"),
        DIR => format!("{number} directory, data {}", bytes[2]),
        _ => format!("{number} broken"),
    }
}

/// Describes a data block. It is of a file or of a directory; only its inode knows.
fn data(bytes: &[u8]) -> String {
    let entry = |entry: &[u8]| format!("{}={}", char::from(entry[0]), entry[1]);
    let names: Vec<String> =
        bytes.chunks(2).filter(|entry| entry[0].is_ascii_alphabetic()).map(entry).collect();
    match bytes {
        bytes if bytes.iter().all(|byte| *byte == 0) => "zeros".to_owned(),
        [WRITTEN, content, rest @ ..] if rest.iter().all(|byte| *byte == 0) => {
            format!("file data {content}")
        }
        _ => format!("names {}", names.join(" ")),
    }
}
