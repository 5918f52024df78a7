//! One mount of a file system with a fault around it, and the faults above it.

use fathom_block::{Mounted, Recorder};
use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::plain::FILE_MODE;
use fathom_core::{Entry, Errno, FsPath, Kind, Op, Outcome, Pattern, Slot, Tree};

use super::Fault;
use super::device::Outside;

/// A slot that no workload uses.
const OWN_SLOT: Slot = Slot::MAX;

/// Files of the fault itself begin with this, in the root directory; nobody sees them.
const HIDDEN: &str = "fathom-hidden-";

/// There from mount to unmount: whoever finds it was not unmounted.
const DIRTY: &str = "fathom-hidden-dirty";

/// The size of the file that is there while an operation of [`Fault::Leak`] runs.
const SCRATCH_BLOCKS: usize = 8;

/// One mount.
pub(super) struct Mount {
    inside: Box<dyn Mounted>,
    outside: Outside,
    fault: Fault,
    /// How much of the inner log has been repeated outside.
    repeated: usize,
    /// Whether an entry is hidden: this is the second mount of the same image.
    hides: bool,
    /// Whether the power had failed before this mount, as far as [`DIRTY`] tells.
    crashed: bool,
}

impl Mount {
    pub(super) fn new(
        inside: Box<dyn Mounted>,
        outside: Outside,
        fault: Fault,
        hides: bool,
    ) -> Mount {
        let mut mount = Mount { inside, outside, fault, repeated: 0, hides, crashed: false };
        mount.repeat(None);
        if matches!(fault, Fault::ReadOnlyAfterCrash | Fault::ReadErrorAfterCrash) {
            mount.crashed = mount.exists(&DIRTY.into());
            mount.create(&DIRTY.into(), 0);
            mount.repeat(None);
        }
        mount
    }

    /// Repeats outside what has happened inside.
    fn repeat(&mut self, op: Option<&Op>) {
        let mut seen = None;
        let (outside, repeated) = (&mut self.outside, self.repeated);
        self.inside.look_at_device(&mut |device| {
            outside.repeat(op, device.log(), repeated);
            seen = Some(device.position());
        });
        self.repeated = seen.expect("only file systems that show their device can be wrapped");
    }

    fn exists(&mut self, path: &FsPath) -> bool {
        self.inside.observe().entries.contains_key(path)
    }

    fn free_hidden_name(&mut self) -> FsPath {
        let tree = self.inside.observe();
        let mut names = (0..).map(|number| FsPath::from(format!("{HIDDEN}{number}").as_str()));
        names.find(|name| !tree.entries.contains_key(name)).expect("numbers do not end")
    }

    fn create(&mut self, path: &FsPath, bytes: usize) {
        let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT;
        self.inside.apply(&Op::Open { slot: OWN_SLOT, path: path.clone(), flags, mode: FILE_MODE });
        if bytes > 0 {
            let data = Pattern { seed: 0, len: bytes as u64 };
            self.inside.apply(&Op::Pwrite { slot: OWN_SLOT, offset: 0, data });
        }
        self.inside.apply(&Op::Close { slot: OWN_SLOT });
    }

    fn rename(&mut self, from: &FsPath, to: &FsPath) -> Outcome {
        let flags = RenameFlags::empty();
        self.inside.apply(&Op::Rename { from: from.clone(), to: to.clone(), flags })
    }

    /// Executes an operation, with the faults above.
    fn execute(&mut self, op: &Op) -> Outcome {
        match (self.fault, op) {
            (Fault::RenameInTwoSteps, Op::Rename { from, to, .. }) => {
                self.rename_in_two_steps(from, to)
            }
            (Fault::ReplaceInTwoSteps, Op::Rename { from, to, .. }) if from != to => {
                if self.exists(from) {
                    // Whatever cannot be unlinked is left to the rename.
                    self.inside.apply(&Op::Unlink { path: to.clone() });
                }
                self.inside.apply(op)
            }
            (Fault::TruncateFirst, Op::Open { slot, flags, .. })
                if flags.contains(OpenFlags::O_TRUNC) =>
            {
                let outcome = self.inside.apply(op);
                self.inside.apply(&Op::Fsync { slot: *slot });
                outcome
            }
            (Fault::Leak, Op::Mkdir { .. } | Op::Rename { .. } | Op::Unlink { .. }) => {
                let scratch = self.free_hidden_name();
                self.create(&scratch, SCRATCH_BLOCKS * self.outside.block_bytes());
                let outcome = self.inside.apply(op);
                self.inside.apply(&Op::Unlink { path: scratch });
                outcome
            }
            (Fault::ReadOnlyAfterCrash, op) if self.crashed && changes(op) => {
                Outcome::err(Errno::EROFS)
            }
            _ => self.inside.apply(op),
        }
    }

    fn rename_in_two_steps(&mut self, from: &FsPath, to: &FsPath) -> Outcome {
        let between = from.parent().unwrap_or_else(|| ".".into()).join(b"fathom-moving");
        let outcome = self.rename(from, &between);
        if outcome.result.is_err() {
            return outcome;
        }
        let outcome = self.rename(&between, to);
        if outcome.result.is_err() {
            self.rename(&between, from);
        }
        outcome
    }
}

fn is_hidden(path: &FsPath) -> bool {
    path.as_bytes().starts_with(HIDDEN.as_bytes())
}

/// Whether an operation needs a writable file system.
fn changes(op: &Op) -> bool {
    match op {
        Op::Open { flags, .. } => {
            flags.intersects(OpenFlags::O_WRONLY | OpenFlags::O_RDWR | OpenFlags::O_CREAT)
        }
        other => !matches!(other, Op::Close { .. } | Op::Pread { .. } | Op::Sync),
    }
}

/// The last file of a tree.
fn last_file(tree: &Tree) -> Option<FsPath> {
    let mut files = tree.entries.iter().filter(|(_, entry)| entry.kind == Kind::File);
    files.next_back().map(|(path, _)| path.clone())
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl Mounted for Mount {
    fn apply(&mut self, op: &Op) -> Outcome {
        // Only a mount that nobody has touched shows another tree: what operations do is right.
        self.hides = false;
        let outcome = self.execute(op);
        self.repeat(Some(op));
        outcome
    }

    fn recover(&mut self) -> Result<(), Errno> {
        let result = self.inside.recover();
        if self.fault == Fault::RecoveryRemoves
            && let Some(path) = last_file(&self.inside.observe())
        {
            self.inside.apply(&Op::Unlink { path });
        }
        self.repeat(None);
        if self.fault == Fault::RecoveryRewrites {
            self.outside.rewrite_start();
        }
        result
    }

    fn observe(&mut self) -> Tree {
        let mut tree = self.inside.observe();
        tree.entries.retain(|path, _| !is_hidden(path));
        if let Some(path) = last_file(&tree) {
            if self.hides {
                tree.entries.remove(&path);
            } else if self.crashed && self.fault == Fault::ReadErrorAfterCrash {
                tree.entries.insert(path, Entry::broken("read", Errno::EIO));
            }
        }
        tree
    }

    fn position(&self) -> usize {
        self.outside.position()
    }

    fn look_at_device(&self, look: &mut dyn FnMut(&Recorder)) {
        look(self.outside.device());
    }

    fn unmount(mut self: Box<Self>) -> (Outcome, Recorder) {
        let keeps_dirty = self.fault == Fault::ReadOnlyAfterCrash && self.crashed;
        if self.exists(&DIRTY.into()) && !keeps_dirty {
            self.inside.apply(&Op::Unlink { path: DIRTY.into() });
        }
        let Mount { inside, mut outside, repeated, .. } = *self;
        let (outcome, device) = inside.unmount();
        outside.repeat(None, device.log(), repeated);
        outside.settle();
        (outcome, outside.into_device())
    }

    fn power_off(self: Box<Self>) -> Recorder {
        self.outside.into_device()
    }
}
