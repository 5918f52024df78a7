//! File systems with a seeded crash bug: a correct one inside, a fault around it.
//!
//! The file system inside runs on a device of its own, on which nothing goes wrong. After each
//! operation, what it wrote is repeated on the device outside, which is the one that the crash checker
//! sees, with the fault applied: a flush is not passed on, a write comes late, … ([`device`]). Other
//! faults sit above and change what is asked of it: a rename in two steps, a truncation that is
//! synced too early ([`mount`]). So one implementation serves every subject.
//!
//! Every crash checker must find every mutant, and must not accuse [`CORRECT`].

mod device;
mod mount;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use fathom_block::{
    BlockBacked, Geometry, Guarantee, Image, Level, MountFailure, Mounted, Recorder,
};
use fathom_core::{Digest, HarnessFault};

use device::Outside;
use mount::Mount;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    DropFlush,
    ReorderFlush,
    SkipErase,
    TearCommit,
    LateWrite,
    LostWrite,
    EarlyAck,
    LazyUnlink,
    WideRewrite,
    SuperblockWindow,
    RenameInTwoSteps,
    ReplaceInTwoSteps,
    TruncateFirst,
    Leak,
    RecoveryRemoves,
    RecoveryRewrites,
    Nondeterministic,
    ReadOnlyAfterCrash,
    ReadErrorAfterCrash,
}

/// A seeded bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is wrong, in one line.
    pub about: &'static str,
    /// The class of violation that it shows, as crash findings write it.
    pub class: &'static str,
    /// The level of power failures that shows it.
    pub level: Level,
    fault: Fault,
}

/// No bug: the wrapper alone.
pub const CORRECT: Mutant = Mutant {
    name: "correct",
    about: "nothing is wrong",
    class: "",
    level: Level::Linear,
    fault: Fault::Nothing,
};

const fn mutant(
    name: &'static str,
    fault: Fault,
    class: &'static str,
    about: &'static str,
) -> Mutant {
    Mutant { name, about, class, level: Level::Linear, fault }
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        level: Level::Lost,
        ..mutant(
            "drop-flush",
            Fault::DropFlush,
            "lost_entry",
            "flushes do not reach the device: what returned as durable can still be lost",
        )
    },
    mutant(
        "reorder-flush",
        Fault::ReorderFlush,
        "unreadable",
        "the last write before a flush comes after those that follow the flush",
    ),
    mutant(
        "skip-erase",
        Fault::SkipErase,
        "lost_entry",
        "blocks are not erased: old and new bits mix where a block is used again",
    ),
    mutant(
        "tear-commit",
        Fault::TearCommit,
        "lost_entry",
        "the second half of an operation's last write comes with the next operation",
    ),
    mutant(
        "late-write",
        Fault::LateWrite,
        "lost_entry",
        "an operation's last write comes with the next operation",
    ),
    mutant("lost-write", Fault::LostWrite, "lost_entry", "every third write is never written"),
    mutant(
        "early-ack",
        Fault::EarlyAck,
        "wrong_content",
        "close and fsync return before anything is written: that comes with the next operation",
    ),
    mutant(
        "lazy-unlink",
        Fault::LazyUnlink,
        "resurrected_entry",
        "unlink returns before anything is written: that comes with the next operation",
    ),
    mutant(
        "wide-rewrite",
        Fault::WideRewrite,
        "unmountable",
        "each write erases the two blocks around it and writes them back, as cheap flash cards do",
    ),
    mutant(
        "superblock-window",
        Fault::SuperblockWindow,
        "unmountable",
        "each change begins by erasing the start of the device and writing it again",
    ),
    mutant(
        "rename-in-two-steps",
        Fault::RenameInTwoSteps,
        "lost_entry",
        "rename goes by way of a third name",
    ),
    mutant(
        "replace-in-two-steps",
        Fault::ReplaceInTwoSteps,
        "lost_entry",
        "rename over a file unlinks that file first",
    ),
    mutant(
        "truncate-first",
        Fault::TruncateFirst,
        "wrong_content",
        "O_TRUNC is synced at once: the old contents are gone before the new ones are there",
    ),
    mutant(
        "leak",
        Fault::Leak,
        "leak",
        "the scratch file of an operation is not collected after a power failure",
    ),
    mutant(
        "recovery-removes",
        Fault::RecoveryRemoves,
        "not_idempotent",
        "recovery removes a file each time",
    ),
    mutant(
        "recovery-rewrites",
        Fault::RecoveryRewrites,
        "not_idempotent",
        "recovery erases the start of the device and writes it again: it must not be interrupted",
    ),
    mutant(
        "nondeterministic",
        Fault::Nondeterministic,
        "non_deterministic",
        "an image that is mounted twice in a row lacks an entry the second time",
    ),
    mutant(
        "read-only-after-crash",
        Fault::ReadOnlyAfterCrash,
        "not_usable",
        "what was not unmounted cannot be written to any more",
    ),
    mutant(
        "read-error-after-crash",
        Fault::ReadErrorAfterCrash,
        "unreadable",
        "what was not unmounted has a file that cannot be read",
    ),
];

/// All seeded bugs.
pub fn all() -> &'static [Mutant] {
    MUTANTS
}

/// Puts a fault around a file system.
pub fn wrap(inside: Box<dyn BlockBacked>, mutant: &Mutant) -> Box<dyn BlockBacked> {
    let name = format!("{}+{}", inside.name(), mutant.name);
    Box::new(Faulty { inside, name, fault: mutant.fault, mounted_last: Mutex::default() })
}

/// A file system with a fault around it.
struct Faulty {
    inside: Box<dyn BlockBacked>,
    name: String,
    fault: Fault,
    /// The image that each thread mounted last.
    mounted_last: Mutex<HashMap<ThreadId, Digest>>,
}

impl Faulty {
    /// Whether this thread has mounted the same image just before.
    fn is_mounted_again(&self, image: &Image) -> bool {
        let mut mounted_last = self.mounted_last.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = image.digest();
        mounted_last.insert(thread::current().id(), digest) == Some(digest)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl BlockBacked for Faulty {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        self.inside.version()
    }

    fn geometry(&self) -> Geometry {
        self.inside.geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.inside.guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.inside.format()
    }

    fn mount(&self, device: Recorder) -> Result<Box<dyn Mounted>, Box<MountFailure>> {
        let image = device.image().clone();
        let hides = self.fault == Fault::Nondeterministic && self.is_mounted_again(&image);
        let own =
            Recorder::new(image, self.inside.geometry()).expect("the device has this geometry");
        let mut outside = Outside::new(device, self.fault);
        match self.inside.mount(own) {
            Ok(inside) => Ok(Box::new(Mount::new(inside, outside, self.fault, hides))),
            Err(mut failure) => {
                outside.repeat(None, failure.device.log(), 0);
                failure.device = outside.into_device();
                Err(failure)
            }
        }
    }

    fn files_max(&self) -> Option<u64> {
        self.inside.files_max()
    }

    fn has_checker(&self) -> bool {
        self.inside.has_checker()
    }

    fn fsck(&self, image: &Image) -> Result<Option<String>, HarnessFault> {
        self.inside.fsck(image)
    }
}
