//! Which workloads there are: operations, arguments, persistence points.

use fathom_core::flags::FallocateMode;

use super::AceWorkload;
use super::depend::Writer;
use super::jlang::{Name, Range};

/// An operation of ACE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are ACE's")]
pub enum AceOp {
    Creat,
    Mkdir,
    Falloc,
    Write,
    DirectWrite,
    MmapWrite,
    Link,
    Unlink,
    Remove,
    Rename,
    SetXattr,
    RemoveXattr,
    Truncate,
    Symlink,
    Mknod,
    Fdatasync,
    Rmdir,
}

/// Every operation, by the name that ACE gives it. The first 13 are those that it uses by default.
const OPS: [(&str, AceOp); 17] = [
    ("creat", AceOp::Creat),
    ("mkdir", AceOp::Mkdir),
    ("falloc", AceOp::Falloc),
    ("write", AceOp::Write),
    ("dwrite", AceOp::DirectWrite),
    ("mmapwrite", AceOp::MmapWrite),
    ("link", AceOp::Link),
    ("unlink", AceOp::Unlink),
    ("remove", AceOp::Remove),
    ("rename", AceOp::Rename),
    ("fsetxattr", AceOp::SetXattr),
    ("removexattr", AceOp::RemoveXattr),
    ("truncate", AceOp::Truncate),
    ("symlink", AceOp::Symlink),
    ("mknod", AceOp::Mknod),
    ("fdatasync", AceOp::Fdatasync),
    ("rmdir", AceOp::Rmdir),
];

/// Operations that ACE uses unless it is told otherwise.
const OPS_DEFAULT: usize = 13;

/// A name that is no operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ACE has no operation {0:?}: it has {known}", known = OPS.map(|(name, _)| name).join(", "))]
pub struct UnknownAceOp(String);

impl std::str::FromStr for AceOp {
    type Err = UnknownAceOp;

    fn from_str(text: &str) -> Result<AceOp, UnknownAceOp> {
        let found = OPS.iter().find(|(name, _)| *name == text);
        found.map(|(_, op)| *op).ok_or_else(|| UnknownAceOp(text.to_owned()))
    }
}

/// Which part of a file a call works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// 32 KiB at the end.
    Append,
    /// 5000 bytes from the beginning.
    Start,
    /// 5000 bytes from 2000 before the end on.
    Extend,
    /// 8 KiB from the beginning: for direct writes, which must be aligned.
    AlignedStart,
}

impl Extent {
    /// The bytes, in a file of a size.
    pub(super) fn range(self, size: i64) -> Range {
        match self {
            Extent::Append => Range { offset: size, len: 32768 },
            Extent::Start => Range { offset: 0, len: 5000 },
            Extent::Extend => Range { offset: size - 2000, len: 5000 },
            Extent::AlignedStart => Range { offset: 0, len: 8192 },
        }
    }

    fn token(self) -> &'static str {
        match self {
            Extent::Append => "append",
            Extent::Start => "overlap_unaligned_start",
            Extent::Extend => "overlap_extend",
            Extent::AlignedStart => "overlap_start",
        }
    }
}

/// An operation with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Creat(Name),
    Mknod(Name),
    Mkdir(Name),
    Rmdir(Name),
    Falloc(Name, FallocateMode, Extent),
    Write(Name, Extent),
    DirectWrite(Name, Extent),
    MmapWrite(Name, Extent),
    Truncate(Name, i64),
    Link(Name, Name),
    Symlink(Name, Name),
    Rename(Name, Name),
    Unlink(Name),
    Remove(Name),
    SetXattr(Name),
    RemoveXattr(Name),
    Fdatasync(Name),
}

impl Call {
    /// The files and directories that it names.
    fn names(&self) -> impl Iterator<Item = Name> + use<> {
        let (first, second) = match *self {
            Call::Link(from, to) | Call::Symlink(from, to) | Call::Rename(from, to) => {
                (from, Some(to))
            }
            Call::Creat(name)
            | Call::Mknod(name)
            | Call::Mkdir(name)
            | Call::Rmdir(name)
            | Call::Falloc(name, ..)
            | Call::Write(name, _)
            | Call::DirectWrite(name, _)
            | Call::MmapWrite(name, _)
            | Call::Truncate(name, _)
            | Call::Unlink(name)
            | Call::Remove(name)
            | Call::SetXattr(name)
            | Call::RemoveXattr(name)
            | Call::Fdatasync(name) => (name, None),
        };
        std::iter::once(first).chain(second)
    }

    /// Whether it makes durable what it does.
    fn persists(&self) -> bool {
        matches!(self, Call::MmapWrite(..) | Call::Fdatasync(_))
    }

    /// What ACE compares to see whether two calls have something in common: the arguments; of a call
    /// with one argument, its letters.
    fn tokens(&self) -> Vec<&'static str> {
        match *self {
            Call::Link(from, to) | Call::Symlink(from, to) | Call::Rename(from, to) => {
                vec![token(from), token(to)]
            }
            Call::Falloc(name, mode, extent) => {
                vec![token(name), mode_token(mode), extent.token()]
            }
            Call::Write(name, extent)
            | Call::DirectWrite(name, extent)
            | Call::MmapWrite(name, extent) => vec![token(name), extent.token()],
            Call::Truncate(name, len) => {
                vec![token(name), if len == 0 { "aligned" } else { "unaligned" }]
            }
            _ => {
                let name = self.names().next().map_or("", token);
                name.char_indices().map(|(at, letter)| &name[at..at + letter.len_utf8()]).collect()
            }
        }
    }

    /// Whether it counts as having something in common with everything: its first argument, or the
    /// first letter of its only one, is a directory.
    fn is_about_directories(&self) -> bool {
        self.tokens().first().is_some_and(|first| matches!(*first, "A" | "B" | "AC"))
    }
}

fn token(name: Name) -> &'static str {
    match name {
        Name::AFoo => "A/foo",
        Name::ABar => "A/bar",
        Name::ACFoo => "AC/foo",
        Name::ACBar => "AC/bar",
        Name::BFoo => "B/foo",
        Name::BBar => "B/bar",
        name => name.text(),
    }
}

fn mode_token(mode: FallocateMode) -> &'static str {
    let index = MODES.iter().position(|known| *known == mode);
    ["ZERO", "ZERO|KEEP", "PUNCH", "KEEP", "0"][index.unwrap_or(4)]
}

/// The modes of `fallocate`, in ACE's order.
const MODES: [FallocateMode; 5] = [
    FallocateMode::FALLOC_FL_ZERO_RANGE,
    FallocateMode::FALLOC_FL_ZERO_RANGE.union(FallocateMode::FALLOC_FL_KEEP_SIZE),
    FallocateMode::FALLOC_FL_PUNCH_HOLE.union(FallocateMode::FALLOC_FL_KEEP_SIZE),
    FallocateMode::FALLOC_FL_KEEP_SIZE,
    FallocateMode::empty(),
];

/// Whether every later call has something in common with an earlier one: how ACE bounds sequences of
/// three.
pub(super) fn shares(calls: &[Call]) -> bool {
    let mut used: Vec<&str> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let tokens = call.tokens();
        let directories =
            used.len() == 2 && used.iter().all(|used| matches!(*used, "A" | "B" | "AC"));
        let common = call.is_about_directories()
            || directories
            || tokens.iter().any(|token| used.contains(token));
        if index > 0 && !common {
            return false;
        }
        let new: Vec<&str> = tokens.into_iter().filter(|token| !used.contains(token)).collect();
        for token in new {
            if !used.contains(&token) {
                used.push(token);
            }
        }
    }
    true
}

/// What follows an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persist {
    Fsync(Name),
    Sync,
    None,
}

/// A bounded set of workloads.
#[derive(Clone, Debug)]
pub struct Space {
    length: usize,
    demo: bool,
    files: Vec<Name>,
    second_files: Vec<Name>,
    second_dirs: Vec<Name>,
    modes: Vec<FallocateMode>,
    ops: Vec<AceOp>,
}

/// The longest sequences that ACE generates.
const LENGTH_MAX: usize = 3;

impl Space {
    /// Sequences of `length` operations; `None` if ACE has none of that length. `nested` adds a
    /// directory in a directory, `demo` takes two operations and two files.
    pub fn new(length: usize, nested: bool, demo: bool) -> Option<Space> {
        if !(1..=LENGTH_MAX).contains(&length) {
            return None;
        }
        let mut space = Space {
            length,
            demo,
            files: vec![Name::Foo, Name::AFoo],
            second_files: vec![Name::Bar, Name::ABar],
            second_dirs: vec![Name::B],
            modes: MODES.to_vec(),
            ops: OPS[..OPS_DEFAULT].iter().map(|(_, op)| *op).collect(),
        };
        if demo {
            space.ops = vec![AceOp::Link, AceOp::Falloc];
            space.modes = vec![MODES[1]];
            (space.files, space.second_files) = (vec![Name::Foo], vec![Name::ABar]);
        }
        if nested {
            space.files.push(Name::ACFoo);
            space.second_files.push(Name::ACBar);
            space.second_dirs.push(Name::AC);
        }
        Some(space)
    }

    /// The same with other operations.
    #[must_use]
    pub fn with_ops(mut self, ops: &[AceOp]) -> Space {
        self.ops = ops.to_vec();
        self
    }

    /// Operations of a workload.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The pairs of files that a call with two names takes.
    fn pairs(&self) -> Vec<(Name, Name)> {
        let firsts = self.files.iter().chain(&self.second_files);
        let all = firsts.flat_map(|from| self.second_files.iter().map(move |to| (*from, *to)));
        all.filter(|(from, to)| from != to).collect()
    }

    fn dir_pairs(&self) -> Vec<(Name, Name)> {
        let firsts = std::iter::once(&Name::A).chain(&self.second_dirs);
        let all = firsts.flat_map(|from| self.second_dirs.iter().map(move |to| (*from, *to)));
        all.filter(|(from, to)| from != to).collect()
    }

    /// Every choice of arguments of an operation.
    fn calls(&self, op: AceOp) -> Vec<Call> {
        let each = |make: fn(Name) -> Call| self.files.iter().map(|name| make(*name)).collect();
        let any = |make: fn(Name) -> Call| {
            self.files.iter().chain(&self.second_files).map(|name| make(*name)).collect()
        };
        let extents = |make: fn(Name, Extent) -> Call, extents: &[Extent]| {
            let of = |name: &Name| {
                let name = *name;
                extents.iter().map(move |extent| make(name, *extent)).collect::<Vec<_>>()
            };
            self.files.iter().flat_map(of).collect()
        };
        let buffered = [Extent::Append, Extent::Start, Extent::Extend];
        let aligned = [Extent::Append, Extent::AlignedStart];
        match op {
            AceOp::Creat => each(Call::Creat),
            AceOp::Mknod => each(Call::Mknod),
            AceOp::SetXattr => each(Call::SetXattr),
            AceOp::RemoveXattr => each(Call::RemoveXattr),
            AceOp::Fdatasync => each(Call::Fdatasync),
            AceOp::Mkdir => vec![Call::Mkdir(Name::A)],
            AceOp::Rmdir => vec![Call::Rmdir(Name::A)],
            AceOp::Unlink => any(Call::Unlink),
            AceOp::Remove => any(Call::Remove),
            AceOp::Write => extents(Call::Write, &buffered),
            AceOp::DirectWrite => extents(Call::DirectWrite, &aligned),
            AceOp::MmapWrite => extents(Call::MmapWrite, &aligned),
            AceOp::Truncate => {
                let lens = |name: &Name| [Call::Truncate(*name, 0), Call::Truncate(*name, 2500)];
                self.files.iter().flat_map(lens).collect()
            }
            AceOp::Falloc => {
                let mut calls = Vec::new();
                for name in &self.files {
                    for mode in &self.modes {
                        calls.extend(buffered.map(|extent| Call::Falloc(*name, *mode, extent)));
                    }
                }
                calls
            }
            AceOp::Link => self.pairs().into_iter().map(|(a, b)| Call::Link(a, b)).collect(),
            AceOp::Symlink => self.pairs().into_iter().map(|(a, b)| Call::Symlink(a, b)).collect(),
            AceOp::Rename => {
                let pairs = self.pairs().into_iter().chain(self.dir_pairs());
                pairs.map(|(a, b)| Call::Rename(a, b)).collect()
            }
        }
    }

    /// What may be synced in a workload of these calls: what they name, and for short workloads also
    /// what lies beside and above.
    fn synced(&self, calls: &[Call]) -> Vec<Name> {
        let mut names: Vec<Name> = Vec::new();
        let mut add = |name| {
            if !names.contains(&name) {
                names.push(name);
            }
        };
        let used = || calls.iter().flat_map(Call::names);
        used().for_each(&mut add);
        if self.length < LENGTH_MAX && !self.demo {
            used().for_each(|name| [name.sibling(), name.parent()].into_iter().for_each(&mut add));
        }
        names
    }

    /// How many workloads there are, without making them.
    pub(super) fn count(&self) -> u64 {
        let mut count = 0;
        let mut tuples = Tuples::new(self);
        while let Some(calls) = tuples.next() {
            let synced = self.synced(&calls).len() as u64;
            count += (synced + 2).pow(self.length as u32 - 1) * (synced + 1);
        }
        count
    }

    /// The workloads, in order.
    pub(super) fn workloads(&self) -> Workloads {
        let space = self.clone();
        let tuples = Tuples::new(&space);
        Workloads { space, tuples, current: None }
    }
}

/// Enumerates tuples of calls: phases 1 and 2.
#[derive(Clone, Debug)]
struct Tuples {
    /// The calls of each operation, operation by operation.
    by_op: Vec<(AceOp, Vec<Call>)>,
    length: usize,
    skeleton: Odometer,
    arguments: Option<Odometer>,
}

impl Tuples {
    fn new(space: &Space) -> Tuples {
        let by_op: Vec<_> = space.ops.iter().map(|op| (*op, space.calls(*op))).collect();
        let skeleton = Odometer::new(vec![by_op.len(); space.length]);
        Tuples { by_op, length: space.length, skeleton, arguments: None }
    }

    fn next(&mut self) -> Option<Vec<Call>> {
        loop {
            if self.arguments.is_none() {
                let ops = self.skeleton.current()?;
                let sizes = ops.iter().map(|op| self.by_op[*op].1.len()).collect();
                let only_writes = ops.iter().all(|op| self.by_op[*op].0 == AceOp::Write);
                // Left to a generator for writes alone.
                if self.length == LENGTH_MAX && only_writes {
                    self.skeleton.advance();
                    continue;
                }
                self.arguments = Some(Odometer::new(sizes));
            }
            let ops = self.skeleton.current()?;
            let arguments = self.arguments.as_mut()?;
            let Some(chosen) = arguments.current() else {
                self.arguments = None;
                self.skeleton.advance();
                continue;
            };
            let call = |(op, index): (&usize, &usize)| self.by_op[*op].1[*index];
            let calls: Vec<Call> = ops.iter().zip(chosen).map(call).collect();
            arguments.advance();
            if self.length < LENGTH_MAX || shares(&calls) {
                return Some(calls);
            }
        }
    }
}

/// Counts through all tuples of numbers below given sizes, the last position fastest.
#[derive(Clone, Debug)]
struct Odometer {
    sizes: Vec<usize>,
    at: Vec<usize>,
    done: bool,
}

impl Odometer {
    fn new(sizes: Vec<usize>) -> Odometer {
        let done = sizes.contains(&0);
        Odometer { at: vec![0; sizes.len()], sizes, done }
    }

    fn current(&self) -> Option<&[usize]> {
        (!self.done).then_some(&self.at)
    }

    fn advance(&mut self) {
        for position in (0..self.at.len()).rev() {
            self.at[position] += 1;
            if self.at[position] < self.sizes[position] {
                return;
            }
            self.at[position] = 0;
        }
        self.done = true;
    }
}

/// The workloads of a space, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Workloads {
    space: Space,
    tuples: Tuples,
    /// The calls, what can be synced, and which choice of that comes next.
    current: Option<(Vec<Call>, Vec<Name>, Odometer)>,
}

impl Iterator for Workloads {
    type Item = AceWorkload;

    fn next(&mut self) -> Option<AceWorkload> {
        loop {
            if self.current.is_none() {
                let calls = self.tuples.next()?;
                let synced = self.space.synced(&calls);
                let mut sizes = vec![synced.len() + 2; self.space.length];
                // Something must follow the last one, or it is a shorter workload.
                sizes[self.space.length - 1] -= 1;
                self.current = Some((calls, synced, Odometer::new(sizes)));
            }
            let (calls, synced, choices) = self.current.as_mut()?;
            let Some(choice) = choices.current() else {
                self.current = None;
                continue;
            };
            let persist = |index: &usize| match synced.get(*index) {
                Some(name) => Persist::Fsync(*name),
                None if *index == synced.len() => Persist::Sync,
                None => Persist::None,
            };
            let persists: Vec<Persist> = choice.iter().map(persist).collect();
            let workload = build(calls, &persists);
            choices.advance();
            return Some(workload);
        }
    }
}

/// A workload with everything that it depends on.
fn build(calls: &[Call], persists: &[Persist]) -> AceWorkload {
    let mut writer = Writer::new();
    let last = calls.len() - 1;
    for (index, (call, persist)) in calls.iter().zip(persists).enumerate() {
        writer.call(call);
        if call.persists() {
            writer.checkpoint(index == last);
        } else {
            writer.persist(*persist, index == last);
        }
    }
    AceWorkload { lines: writer.finish() }
}
