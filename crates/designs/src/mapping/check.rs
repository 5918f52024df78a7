//! The offline and the online checker.

use std::fmt;
use std::ops::BitOrAssign;

use super::layout::{Extent, NONE};
use super::{ABSENT, Disk, Layout, Mapping, Operation, State};

/// A way in which metadata or contents can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A block is allocated but belongs to no file.
    Dead,
    /// A block belongs to a file but is not allocated.
    Lost,
    /// A block belongs to more than one file, or twice to one.
    Double,
    /// A file does not hold what was written to it.
    Content,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 4] = [Fault::Dead, Fault::Lost, Fault::Double, Fault::Content];

    /// The name of the property that it violates.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::Dead => "no dead block",
            Fault::Lost => "no lost block",
            Fault::Double => "no double pointer",
            Fault::Content => "no content error",
        }
    }

    /// Whether data is in danger. A dead block is not: the offline checker frees it.
    pub const fn is_critical(self) -> bool {
        !matches!(self, Fault::Dead)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults(u8);

impl Faults {
    /// Whether one of them is in the set.
    pub fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u8) != 0
    }

    pub(super) fn bits(self) -> u8 {
        self.0
    }

    fn add(&mut self, fault: Fault, found: bool) {
        self.0 |= u8::from(found) << fault as u8;
    }

    /// Whether the search ends at these faults. A lost block alone does not end it: what it leads
    /// to is the question.
    pub(super) fn end_everything(self) -> bool {
        self.has(Fault::Double) || self.has(Fault::Content)
    }
}

impl BitOrAssign for Faults {
    fn bitor_assign(&mut self, more: Faults) {
        self.0 |= more.0;
    }
}

/// Checks what a power failure leaves.
pub(super) fn offline(mapping: &Mapping, state: &State) -> Faults {
    let (layout, disk) = (&mapping.layout, &state.media);
    let (mut seen, mut twice) = (0_u16, false);
    let mut faults = Faults::default();
    for file in 0..layout.files() {
        let extent = layout.extent(disk, file);
        let indirect = Some(extent.indirect).filter(|data| *data != NONE);
        for data in extent.blocks().iter().copied().chain(indirect) {
            twice |= seen & (1 << data) != 0;
            seen |= 1 << data;
        }
        twice |= extent.circular;
        faults.add(Fault::Content, !survived(mapping, state, file, &extent));
    }
    let allocated = layout.allocated(disk);
    faults.add(Fault::Dead, allocated & !seen != 0);
    faults.add(Fault::Lost, seen & !allocated != 0);
    faults.add(Fault::Double, twice);
    faults
}

/// Whether a file is as it was before, or as it would be after, the operation on it.
fn survived(mapping: &Mapping, state: &State, file: usize, extent: &Extent) -> bool {
    let (layout, disk) = (&mapping.layout, &state.media);
    let before = state.expected[file];
    let operation =
        state.threads.iter().find(|t| t.operates_on(file as u8)).and_then(|t| t.operation());
    let after = match operation {
        None => before,
        Some(Operation::Create) => 0,
        Some(Operation::Append) => before + 1,
        Some(Operation::Delete) => ABSENT,
    };
    let now = if layout.exists(disk, file) { layout.len(disk, file) } else { ABSENT };
    (now == before || now == after) && (now == ABSENT || contains(layout, extent, disk, file, now))
}

/// Whether the first `len` blocks of a file hold what was written to them.
fn contains(layout: &Layout, extent: &Extent, device: &Disk, file: usize, len: u8) -> bool {
    (0..len).all(|place| {
        let data = extent.at(place);
        data != NONE && *device.block(layout.data_block(data)) == Layout::content(file as u8, place)
    })
}

/// Checks every file that no thread works on: its length, its contents, its allocation.
pub(super) fn online(mapping: &Mapping, state: &State) -> Faults {
    let layout = &mapping.layout;
    let allocated = layout.allocated(&state.memory);
    let mut faults = Faults::default();
    for file in 0..layout.files() {
        let expected = state.expected[file];
        if expected == ABSENT || mapping.busy(state, file as u8) {
            continue;
        }
        let extent = layout.extent(&state.memory, file);
        let same_len = layout.len(&state.memory, file) == expected;
        let same = same_len && contains(layout, &extent, &state.cache, file, expected);
        faults.add(Fault::Content, !same);
        faults.add(Fault::Lost, extent.mask() & !allocated != 0);
    }
    faults
}
