//! What a subject offers, and what commands need.

use std::collections::BTreeSet;

use fathom_core::{Capability, RestoreMethod};

/// A command that uses subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Comparing answers and trees with the reference.
    Check,
    /// Cutting the power at every write.
    Crash,
    /// Corrupting the disk, and asking the checker.
    Fsck,
}

impl Purpose {
    /// Every command that uses subjects.
    pub const ALL: [Purpose; 3] = [Purpose::Check, Purpose::Crash, Purpose::Fsck];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Check => "check",
            Purpose::Crash => "crash",
            Purpose::Fsck => "fsck",
        }
    }
}

/// Which operations a subject has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// All of them, as system calls.
    All,
    /// These, by the names of operations.
    Only(&'static [&'static str]),
    /// None that the reference knows, for this reason.
    None(&'static str),
}

impl Operations {
    /// Whether an operation of this name is offered.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Operations::All => true,
            Operations::Only(names) => names.contains(&name),
            Operations::None(_) => false,
        }
    }
}

/// What lies under a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Nothing that could be written to a disk, or nothing that we could reach: for this reason.
    None(&'static str),
    /// A disk of ours; what is written to it is not recorded yet.
    Unrecorded,
    /// A disk of ours that records every write and flush.
    Recorded,
}

/// Which bugs can be switched on in a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutants {
    /// None.
    None,
    /// Those of the reference: `fathom list mutants`.
    Reference,
    /// Those around a disk: `fathom list crash-mutants`.
    Crash,
}

/// What a subject offers. What depends on the machine (whether this user may make device nodes) is
/// asked of the subject itself when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers {
    /// Operations that the reference has too.
    pub operations: Operations,
    /// Ways of going back, the cheapest first.
    pub restore_methods: Vec<RestoreMethod>,
    /// What it can do beyond the operations that every file system has, as far as it is known.
    pub capabilities: BTreeSet<Capability>,
    /// What lies under it.
    pub disk: Disk,
    /// The program or function that judges its disk.
    pub checker: Option<String>,
    /// Whether its promises about power failures are written down.
    pub promises: bool,
    /// Whether its space can be limited.
    pub space: bool,
    /// Whether it is served over a network.
    pub network: bool,
    /// Bugs that can be switched on.
    pub mutants: Mutants,
}

impl Offers {
    /// What a command needs and the subject does not offer.
    pub fn lacks(&self, purpose: Purpose) -> Option<String> {
        match purpose {
            Purpose::Check => match self.operations {
                Operations::None(why) => Some(format!("operations of a file system: {why}")),
                _ => None,
            },
            Purpose::Crash => match self.disk {
                Disk::None(why) => Some(format!("a disk whose writes are recorded: {why}")),
                Disk::Unrecorded => Some(
                    "a disk of its own: the power of a layer is that of the file system below, \
                     which can be checked itself"
                        .to_owned(),
                ),
                Disk::Recorded if !self.promises => Some(
                    "to know what it promises about power failures, which is not written down"
                        .to_owned(),
                ),
                Disk::Recorded => None,
            },
            Purpose::Fsck => match (self.disk, &self.checker) {
                (Disk::None(why), _) => Some(format!("a disk that can be corrupted: {why}")),
                (_, None) => Some("a checker, of which none is known".to_owned()),
                (_, Some(_)) => None,
            },
        }
    }
}
