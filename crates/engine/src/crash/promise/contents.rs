//! The contents of files, block by block: each block is one that the file had since it was durable.
//!
//! Blocks are compared by their checksums. A version that was shorter has zeros there, which is why
//! zeros are legal where a file grew since it was durable and nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use fathom_block::backed::Data;
use fathom_block::disks::{End, Workload};
use fathom_block::{DiskFileSystem, Image};
use fathom_core::flags::OpenFlags;
use fathom_core::{DataSum, Digest, Entry, FsPath, Mode, Op, Payload, Slot, Tree};
use fathom_model::{Ino, Model};

use super::history::{History, Moment};
use super::rules::{BrokenRule, Rule};

/// What a disk writes as a whole: the unit in which contents may be mixed.
const BLOCK_BYTES: u64 = 512;

/// Shows the contents of files that were found.
pub trait Contents {
    /// The checksum of `len` bytes at `offset`, all of which lie inside the file; `None` if they cannot
    /// be read.
    fn sum(&mut self, path: &FsPath, offset: u64, len: u64) -> Option<DataSum>;
}

/// Sums of parts of contents: by digest of the whole, offset and length.
pub(in crate::crash) type Sums = HashMap<(Digest, u64, u64), Option<DataSum>>;

/// Shows the contents of files on a disk, each by mounting it and reading.
pub(in crate::crash) struct DiskContents<'a> {
    /// The file system that is on the disk.
    pub(in crate::crash) subject: &'a dyn DiskFileSystem,
    /// The disk.
    pub(in crate::crash) image: &'a Image,
    /// What it shows.
    pub(in crate::crash) tree: &'a Tree,
    /// Sums that are known already, by the digest of the whole contents.
    pub(in crate::crash) sums: Option<&'a Mutex<Sums>>,
}

/// A slot that no workload uses.
const SLOT: Slot = Slot::MAX;

impl Contents for DiskContents<'_> {
    fn sum(&mut self, path: &FsPath, offset: u64, len: u64) -> Option<DataSum> {
        let (Some(sums), Some(entry)) = (self.sums, self.tree.entries.get(path)) else {
            return self.read(path, offset, len);
        };
        let key = (entry.content, offset, len);
        let lock = || sums.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return *known;
        }
        let sum = self.read(path, offset, len);
        lock().insert(key, sum);
        sum
    }
}

impl DiskContents<'_> {
    fn read(&self, path: &FsPath, offset: u64, len: u64) -> Option<DataSum> {
        let (path, flags, mode) = (path.clone(), OpenFlags::empty(), Mode(0));
        let ops = [
            Op::Open { slot: SLOT, path, flags, mode },
            Op::Pread { slot: SLOT, offset: offset as i64, len },
        ];
        let ops: Vec<&Op> = ops.iter().collect();
        let workload = Workload { ops: &ops, end: End::PowerOff, look: false };
        let recording = self.subject.record(self.image, &workload).ok()?.ok()?;
        let read = recording.outcomes.into_iter().nth(1)?;
        match (read.result, read.payload) {
            (Ok(count), Payload::Data(sum)) if count == len => Some(sum),
            _ => None,
        }
    }
}

/// The bytes of an object, with zeros behind its end; `None` if it does not exist.
fn bytes(model: &Model, ino: Ino, offset: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    model.volume().read(ino, offset, len as usize, &mut bytes).ok()?;
    bytes.resize(len as usize, 0);
    Some(bytes)
}

/// The size of an object; `None` if it does not exist.
pub(super) fn size(model: &Model, ino: Ino) -> Option<u64> {
    model.volume().attr(ino).ok().map(|attr| attr.size)
}

/// Size and contents of an object that has a name.
pub(super) fn contents_of(moment: &Moment, ino: Ino) -> Option<(u64, Digest)> {
    moment.objects.get(&ino).map(|entry| (entry.size, entry.content))
}

/// The blocks in which two states of an object differ.
pub(super) fn changed_blocks(before: &Model, after: &Model, ino: Ino) -> BTreeSet<u64> {
    let end = size(after, ino).unwrap_or(0);
    let differs = |block: &u64| {
        let at = |model| bytes(model, ino, block * BLOCK_BYTES, BLOCK_BYTES);
        at(before) != at(after)
    };
    (0..end.div_ceil(BLOCK_BYTES)).filter(differs).collect()
}

/// The moments whose contents may be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Span {
    /// The moments for something that has been durable since `durable`: at least that one.
    fn since(self, durable: usize) -> Span {
        let first = self.first.max(durable);
        Span { first, last: self.last.max(first) }
    }

    fn indices(self) -> std::ops::RangeInclusive<usize> {
        self.first..=self.last
    }
}

/// A file that was found, and the object that it is said to be.
pub(super) struct FoundFile<'a> {
    pub(super) path: &'a FsPath,
    pub(super) entry: &'a Entry,
    pub(super) ino: Ino,
    /// Contents before this moment are not legal here, for a reason of its own.
    pub(super) replaced_at: usize,
}

impl History {
    /// What is wrong with the contents of a file. `span` limits the moments beyond what is durable.
    pub(super) fn check_contents(
        &self,
        file: &FoundFile<'_>,
        span: Span,
        contents: &mut dyn Contents,
    ) -> Option<BrokenRule> {
        let wrong = self.check_since(file, file.replaced_at, span, contents)?;
        let without = file.replaced_at > 0 && self.check_since(file, 0, span, contents).is_none();
        if !without {
            return Some(wrong);
        }
        let what = "took the name of another file without its data".to_owned();
        Some(BrokenRule { rule: Rule::RenameOver, path: file.path.clone(), what })
    }

    fn check_since(
        &self,
        file: &FoundFile<'_>,
        since: usize,
        span: Span,
        contents: &mut dyn Contents,
    ) -> Option<BrokenRule> {
        let durable = self.durable(file.ino);
        let (size, data) = (durable.size.max(since), durable.data.max(since));
        let newest = durable.blocks.values().copied().fold(data.max(size), usize::max);
        let whole = |index: usize| {
            let version = contents_of(&self.moments[index], file.ino);
            version == Some((file.entry.size, file.entry.content))
        };
        if span.since(newest).indices().any(whole) {
            return None;
        }
        if let Some(wrong) = self.check_size(file, size, span) {
            return Some(wrong);
        }
        let needed = self.needed_bytes(file.ino, &durable.blocks);
        if file.entry.size < needed {
            let what = format!("size should be at least {needed}, is {}", file.entry.size);
            return Some(BrokenRule { rule: Rule::Size, path: file.path.clone(), what });
        }
        let blocks = file.entry.size.div_ceil(BLOCK_BYTES);
        (0..blocks).find_map(|block| {
            let durable = durable.blocks.get(&block).map_or(data, |at| data.max(*at));
            self.check_block(file, block, durable, span, contents)
        })
    }

    /// The size without which blocks that were made durable by themselves could not be read.
    fn needed_bytes(&self, ino: Ino, blocks: &BTreeMap<u64, usize>) -> u64 {
        let of_block = |(block, since): (&u64, &usize)| {
            let sizes = self.moments[*since..].iter().map(|moment| size(&moment.model, ino));
            // What was cut off later need not be there.
            let smallest = sizes.map(|size| size.unwrap_or(0)).min().unwrap_or(0);
            ((block + 1) * BLOCK_BYTES).min(smallest)
        };
        blocks.iter().map(of_block).max().unwrap_or(0)
    }

    /// The size is that of a version, or on the way from one to the next: the end of a block, since a
    /// write may arrive in pieces, or of what was allocated before the data arrived.
    fn check_size(&self, file: &FoundFile<'_>, durable: usize, span: Span) -> Option<BrokenRule> {
        let found = file.entry.size;
        let sizes = |span: Span| {
            let sizes = span.indices().filter_map(|at| size(&self.moments[at].model, file.ino));
            sizes.collect::<Vec<u64>>()
        };
        let allocated = |at: usize| self.moments[at].allocated_to == Some(found);
        let is_step =
            found.is_multiple_of(BLOCK_BYTES) || span.since(durable).indices().any(allocated);
        let between = |pair: &[u64]| pair[0] < found && found < pair[1] && is_step;
        let legal = sizes(span.since(durable));
        if legal.contains(&found) || legal.windows(2).any(between) {
            return None;
        }
        let since = sizes(Span { first: durable, last: self.last() });
        let rule = if since.contains(&found) { Rule::Order } else { Rule::Size };
        let known: BTreeSet<u64> = legal.into_iter().collect();
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        let what = format!("size should be {}, is {found}", known.join(" or "));
        Some(BrokenRule { rule, path: file.path.clone(), what })
    }

    fn check_block(
        &self,
        file: &FoundFile<'_>,
        block: u64,
        durable: usize,
        span: Span,
        contents: &mut dyn Contents,
    ) -> Option<BrokenRule> {
        let offset = block * BLOCK_BYTES;
        let len = BLOCK_BYTES.min(file.entry.size - offset);
        let broken = |rule, what: &str| {
            let what = format!("{len} bytes at {offset} {what}");
            Some(BrokenRule { rule, path: file.path.clone(), what })
        };
        let Some(found) = contents.sum(file.path, offset, len) else {
            return broken(Rule::ForeignData, "cannot be read");
        };
        let shows = |ino, offset, index: usize| {
            let version = bytes(&self.moments[index].model, ino, offset, len);
            version.is_some_and(|version| DataSum::of(&version) == found)
        };
        let legal = span.since(durable);
        if legal.indices().any(|index| shows(file.ino, offset, index)) {
            return None;
        }
        let grew = |index: usize| {
            size(&self.moments[index].model, file.ino).is_some_and(|size| size < offset + len)
        };
        if self.data == Data::Writeback && legal.indices().any(grew) {
            return None;
        }
        if (durable..=self.last()).any(|index| shows(file.ino, offset, index)) {
            return broken(Rule::Order, "are of another moment than the metadata that shows them");
        }
        if found == DataSum::of(&vec![0; len as usize]) {
            return broken(Rule::LostData, "are zeros where data was durable");
        }
        if let Some(old) = (0..durable).rev().find(|old| shows(file.ino, offset, *old)) {
            let number = self.moments[old].number;
            return broken(
                Rule::LostData,
                &format!("are older than promised: of operation {number}"),
            );
        }
        match self.owner(file.ino, found, len) {
            Some(other) => broken(Rule::ForeignData, &format!("belong to {other}")),
            None => broken(Rule::ForeignData, "were never written to this file"),
        }
    }

    /// The path of another file that has, or had, a block like this.
    fn owner(&self, not: Ino, sum: DataSum, len: u64) -> Option<&FsPath> {
        let has = |moment: &Moment, ino: Ino| {
            let blocks = size(&moment.model, ino).unwrap_or(0).div_ceil(BLOCK_BYTES);
            (0..blocks).any(|block| {
                let block = bytes(&moment.model, ino, block * BLOCK_BYTES, len);
                block.is_some_and(|block| DataSum::of(&block) == sum)
            })
        };
        self.moments.iter().rev().find_map(|moment| {
            let mut others = moment.paths.iter().filter(|(_, ino)| **ino != not);
            others.find(|(_, ino)| has(moment, **ino)).map(|(path, _)| path)
        })
    }
}
