//! The bounded workloads of ACE (CrashMonkey, OSDI 2018): every sequence of one, two or three
//! operations on a few files, with every choice of persistence operations between.
//!
//! The rules are those of the published generator, so that runs can be compared:
//!
//! 1. every tuple of operations ([`Space`]; three times `write` is left out);
//! 2. every tuple of their arguments; of three operations each later one must have something in common
//!    with an earlier one ([`space::shares`]);
//! 3. after every operation nothing, `sync`, or `fsync` of a file that has to do with the workload;
//!    after the last one not nothing. `mmapwrite` and `fdatasync` persist by themselves;
//! 4. what an operation depends on is done before it ([`depend`]): parents are made, files opened,
//!    filled, closed, removed.
//!
//! The generator's bug is not repeated that put nested files into flat workloads. Its counts are
//! those of these rules (see the tests); workloads with equal text are executed once. Text is j-lang
//! ([`jlang`]), the language in which ACE writes its workloads. Everything here is pure and streams:
//! nothing is kept of a workload that has gone by.

mod depend;
pub mod jlang;
mod lower;
mod space;

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use fathom_core::{Digest, Op};

pub use jlang::{JlangError, Line, Name};
pub use space::{AceOp, Space};

/// Domain of the digest that tells workloads apart.
const DOMAIN_WORKLOAD: u64 = 23;

/// One workload: the lines of its `run` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AceWorkload {
    /// The lines, in order.
    pub lines: Vec<Line>,
}

impl AceWorkload {
    /// What tells it apart from others: its text. With `merged`, `remove` is the same as `unlink`.
    pub fn digest(&self, merged: bool) -> Digest {
        let mut text = String::new();
        for line in &self.lines {
            let merge = |name: &Name| Line::Unlink(*name);
            match line {
                Line::Remove(name) if merged => merge(name).push_to(&mut text),
                line => line.push_to(&mut text),
            }
        }
        Digest::of(DOMAIN_WORKLOAD, text.as_bytes())
    }

    /// The operations. Every write has data of its own.
    pub fn ops(&self) -> Vec<Op> {
        lower::lower(&self.lines)
    }
}

/// How many workloads a space has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AceCounts {
    /// All, as ACE counts them.
    pub workloads: u64,
    /// Those with different text; `None` where that would take minutes.
    pub unique: Option<u64>,
    /// Those that differ if `remove` and `unlink` are the same.
    pub unique_merged: Option<u64>,
}

/// Longest sequences whose texts are compared to count them.
const UNIQUE_LENGTH_MAX: usize = 2;

/// Counts the workloads of a space.
pub fn count(space: &Space) -> AceCounts {
    let workloads = space.count();
    if space.length() > UNIQUE_LENGTH_MAX {
        return AceCounts { workloads, unique: None, unique_merged: None };
    }
    let (mut unique, mut merged) = (DigestSet::default(), DigestSet::default());
    for workload in space.workloads() {
        if unique.insert(workload.digest(false).0) {
            merged.insert(workload.digest(true).0);
        }
    }
    let len = |set: DigestSet| Some(set.len() as u64);
    AceCounts { workloads, unique: len(unique), unique_merged: len(merged) }
}

/// Digests are random already: they need no hashing.
type DigestSet = HashSet<u128, BuildHasherDefault<Identity>>;

/// Takes the low half of a digest for its hash.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
}

/// A share of a run that several machines divide among themselves: `3/16` is the third of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    number: u64,
    parts: u64,
}

/// Text that is no share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no part of a run: give NUMBER/PARTS, for example 3/16, with a number from 1 to PARTS"
)]
pub struct PartSyntax(String);

impl Part {
    /// All of it.
    pub const WHOLE: Part = Part { number: 1, parts: 1 };

    /// The share of a list, or of a stream without end, by index: 3/16 is the third of each 16.
    pub fn of<I: Iterator>(self, all: I) -> impl Iterator<Item = I::Item> {
        all.skip((self.number - 1) as usize).step_by(self.parts as usize)
    }

    /// Whether something with this digest belongs to the share.
    pub fn has(&self, digest: Digest) -> bool {
        // The high half: the low one chooses the place in hash tables.
        (digest.0 >> 64) as u64 % self.parts == self.number - 1
    }
}

impl std::str::FromStr for Part {
    type Err = PartSyntax;

    fn from_str(text: &str) -> Result<Part, PartSyntax> {
        let wrong = || PartSyntax(text.to_owned());
        let (number, parts) = text.split_once('/').ok_or_else(wrong)?;
        let (number, parts) =
            (number.parse().map_err(|_| wrong())?, parts.parse().map_err(|_| wrong())?);
        if number == 0 || number > parts { Err(wrong()) } else { Ok(Part { number, parts }) }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.parts)
    }
}

/// The workloads of a space that differ, in order; of each only the first, and only those of a part.
pub fn unique(space: &Space, part: Part) -> impl Iterator<Item = AceWorkload> {
    let mut seen = DigestSet::default();
    space.workloads().filter(move |workload| {
        let digest = workload.digest(false);
        part.has(digest) && seen.insert(digest.0)
    })
}

#[cfg(test)]
mod tests;
