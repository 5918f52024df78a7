//! The helpers of the C program: C files, of which a program gets those that it needs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::errno::Errno;
use crate::op::Slot;

/// The helpers in the order in which they must stand, each with what it is called in C.
const HELPERS: &[(Helper, &str)] = &[
    (Helper::Slots, include_str!("runtime/slots.c")),
    (Helper::Open, include_str!("runtime/open.c")),
    (Helper::Close, include_str!("runtime/close.c")),
    (Helper::Buffer, include_str!("runtime/buffer.c")),
    (Helper::Pattern, include_str!("runtime/pattern.c")),
    (Helper::Xxh64, include_str!("runtime/xxh64.c")),
    (Helper::Data, include_str!("runtime/data.c")),
    (Helper::Name, include_str!("runtime/name.c")),
    (Helper::Attributes, include_str!("runtime/stat.c")),
    (Helper::Space, include_str!("runtime/statfs.c")),
    (Helper::EntryList, include_str!("runtime/entry_list.c")),
    (Helper::Entries, include_str!("runtime/getdents.c")),
    (Helper::ListPiece, include_str!("runtime/list_piece.c")),
    (Helper::Names, include_str!("runtime/listxattr.c")),
    (Helper::Window, include_str!("runtime/mmap.c")),
    (Helper::MmapStore, include_str!("runtime/mmap_store.c")),
    (Helper::FdPath, include_str!("runtime/fd_path.c")),
    (Helper::MmapLoad, include_str!("runtime/mmap_load.c")),
    (Helper::Become, include_str!("runtime/identity.c")),
    (Helper::Remount, include_str!("runtime/remount.c")),
    (Helper::Opaque, include_str!("runtime/opaque.c")),
    (Helper::Claims, include_str!("runtime/claims.c")),
    (Helper::Claim, include_str!("runtime/claim.c")),
    (Helper::AnswerClaim, include_str!("runtime/answer.c")),
    (Helper::Hex, include_str!("runtime/hex.c")),
    (Helper::ProbeEntry, include_str!("runtime/probe_entry.c")),
    (Helper::ProbeAttribute, include_str!("runtime/probe_attribute.c")),
    (Helper::ProbeTarget, include_str!("runtime/probe_target.c")),
    (Helper::ProbeNames, include_str!("runtime/probe_names.c")),
    (Helper::ProbeContent, include_str!("runtime/probe_content.c")),
    (Helper::ProbeXattr, include_str!("runtime/probe_xattr.c")),
    (Helper::ProbeSame, include_str!("runtime/probe_same.c")),
    (Helper::TimeOf, include_str!("runtime/time_of.c")),
    (Helper::ProbeTime, include_str!("runtime/probe_time.c")),
    (Helper::ProbeOrder, include_str!("runtime/probe_order.c")),
    (Helper::ProbeSpace, include_str!("runtime/probe_space.c")),
    (Helper::ProbeChecker, include_str!("runtime/probe_checker.c")),
    (Helper::ProbeLog, include_str!("runtime/probe_log.c")),
    (Helper::Watch, include_str!("runtime/watch.c")),
    (Helper::Try, include_str!("runtime/try.c")),
];

const REPORT: &str = include_str!("runtime/report.c");

/// A piece of C that some operations need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Helper {
    Slots,
    Open,
    Close,
    Buffer,
    Pattern,
    Xxh64,
    Data,
    Name,
    Attributes,
    Space,
    EntryList,
    Entries,
    ListPiece,
    Names,
    Window,
    MmapStore,
    MmapLoad,
    FdPath,
    Become,
    Remount,
    Opaque,
    Claims,
    Claim,
    AnswerClaim,
    Hex,
    ProbeEntry,
    ProbeAttribute,
    ProbeTarget,
    ProbeNames,
    ProbeContent,
    ProbeXattr,
    ProbeSame,
    TimeOf,
    ProbeTime,
    ProbeOrder,
    ProbeSpace,
    ProbeChecker,
    ProbeLog,
    Watch,
    Try,
}

impl Helper {
    /// What its C code calls.
    fn needs(self) -> &'static [Helper] {
        match self {
            Helper::Open | Helper::Close | Helper::Remount => &[Helper::Slots],
            Helper::Pattern => &[Helper::Buffer],
            Helper::Data => &[Helper::Buffer, Helper::Xxh64],
            Helper::EntryList => &[Helper::Name],
            Helper::Entries => &[Helper::EntryList],
            Helper::ListPiece => &[Helper::Slots, Helper::EntryList],
            Helper::Names => &[Helper::Buffer, Helper::Name],
            Helper::MmapStore => &[Helper::Window, Helper::Pattern],
            Helper::MmapLoad => &[Helper::Window, Helper::Data],
            Helper::Claim | Helper::AnswerClaim => &[Helper::Claims],
            Helper::Hex
            | Helper::ProbeEntry
            | Helper::ProbeAttribute
            | Helper::ProbeSame
            | Helper::ProbeSpace
            | Helper::ProbeLog => &[Helper::Claim],
            Helper::ProbeChecker => &[Helper::Claim, Helper::Slots],
            Helper::Watch => &[Helper::Claims],
            Helper::Try => &[Helper::Watch],
            Helper::ProbeTarget | Helper::ProbeNames => &[Helper::Claim, Helper::Name],
            Helper::ProbeContent | Helper::ProbeXattr => &[Helper::Claim, Helper::Hex],
            Helper::ProbeTime | Helper::ProbeOrder => &[Helper::Claim, Helper::TimeOf],
            _ => &[],
        }
    }
}

/// What the steps of a program need.
#[derive(Default)]
pub(super) struct Runtime {
    helpers: BTreeSet<Helper>,
    slots: usize,
    steps: usize,
    /// The slots whose directories are being read in pieces.
    listed: BTreeSet<Slot>,
}

impl Runtime {
    /// One more step.
    pub(super) fn count_step(&mut self) {
        self.steps += 1;
    }

    /// Takes in a helper and what it needs itself.
    pub(super) fn need(&mut self, helper: Helper) {
        self.helpers.insert(helper);
        helper.needs().iter().for_each(|needed| self.need(*needed));
    }

    /// A slot as an expression: its descriptor.
    pub(super) fn slot(&mut self, slot: Slot) -> String {
        format!("slot[{}]", self.slot_number(slot))
    }

    /// A slot as a number.
    pub(super) fn slot_number(&mut self, slot: Slot) -> Slot {
        self.need(Helper::Slots);
        self.slots = self.slots.max(usize::from(slot) + 1);
        slot
    }

    /// Notes that a piece of a directory is read; says whether it is the first one.
    pub(super) fn begin_listing(&mut self, slot: Slot) -> bool {
        self.listed.insert(slot)
    }

    /// The next piece of the directory in a slot is a first one.
    pub(super) fn end_listing(&mut self, slot: Slot) {
        self.listed.remove(&slot);
    }

    /// Whether a helper is part of the program.
    pub(super) fn has(&self, helper: Helper) -> bool {
        self.helpers.contains(&helper)
    }

    /// How many steps there are.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// The C code.
    pub(super) fn text(&self) -> String {
        let mut cases = String::new();
        for (name, _) in Errno::all() {
            let _ = writeln!(cases, "    case {name}: return \"{name}\";");
        }
        let mut text =
            "\nstatic char *directory; /* where the steps are executed */\n\n".to_owned();
        text.push_str(&REPORT.replace("/*ERRNO_CASES*/\n", &cases));
        if self.has(Helper::Slots) {
            let _ = write!(text, "\n#define SLOTS {}\n", self.slots.max(1));
        }
        for (helper, code) in HELPERS {
            if self.helpers.contains(helper) {
                text.push('\n');
                text.push_str(code);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_helper_stands_after_what_it_needs() {
        for (at, (helper, _)) in HELPERS.iter().enumerate() {
            for needed in helper.needs() {
                let position = HELPERS.iter().position(|(other, _)| other == needed);
                assert!(position < Some(at), "{helper:?} needs {needed:?}");
            }
        }
    }
}
