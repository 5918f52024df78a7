//! [`LibrarySubject`]: a library file system that a campaign can walk on, in this process.
//!
//! The kernel's part is not played here. What a library leaves to its caller (paths that are no plain
//! names, slots that are open for something else, …) is not asked of it: the profile of the library
//! makes it unspecified.
//!
//! A state is an image, which is cloned in O(1). It is taken while the file system is unmounted, so that
//! nothing that only a mount remembers belongs to it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fathom_block::{BlockBacked, Image, Mounted, Recorder};
use fathom_core::{
    Capability, CheckerReport, Entry, Errno, FsPath, HarnessFault, Kind, Op, Outcome, Payload,
    PlainTree, RestoreMethod, Saved, Slot, Statfs, Subject, Testbed, Tree,
};

/// What every library file system has, by the names of operations.
pub(crate) const OPERATIONS: &[&str] = &[
    "open",
    "close",
    "pread",
    "pwrite",
    "truncate",
    "mkdir",
    "rmdir",
    "unlink",
    "rename",
    "fsync",
    "fdatasync",
    "sync",
    "remount",
];

/// The unit in which space is told.
const BLOCK_BYTES: u64 = 512;

/// What file systems on disks give out at once, at most: blocks of ext4, clusters of FAT.
const UNIT_BYTES: u64 = 4096;

/// See the module documentation.
pub(crate) struct LibrarySubject {
    name: String,
    backed: Box<dyn BlockBacked>,
    /// Whether what an open file holds back is written out before the tree is looked at.
    syncs_before_looking: bool,
    empty: Image,
    state: State,
    open: BTreeSet<Slot>,
    saved: BTreeMap<Saved, Image>,
    saved_next: u64,
    complaints: Vec<String>,
}

enum State {
    Mounted(Box<dyn Mounted>),
    /// It could not be mounted, or panicked; the last disk that is known.
    Refused(Errno, Image),
}

impl LibrarySubject {
    /// Formats and mounts. `name` is how it was typed; a library whose open files hold their data back
    /// (`open_files_alone` of the profile) is synced before it is looked at.
    ///
    /// # Errors
    /// If it cannot be made on its geometry.
    pub(crate) fn new(
        name: String,
        backed: Box<dyn BlockBacked>,
        syncs_before_looking: bool,
    ) -> Result<LibrarySubject, HarnessFault> {
        let empty = backed.format()?;
        let mut subject = LibrarySubject {
            name,
            backed,
            syncs_before_looking,
            state: State::Refused(Errno::EIO, empty.clone()),
            empty,
            open: BTreeSet::new(),
            saved: BTreeMap::new(),
            saved_next: 0,
            complaints: Vec::new(),
        };
        subject.reset()?;
        Ok(subject)
    }

    /// Mounts an image in the place of whatever is there.
    fn mount(&mut self, image: Image) -> Result<(), HarnessFault> {
        self.open.clear();
        let geometry = self.backed.geometry();
        let device = Recorder::new(image.clone(), geometry);
        let device = device.map_err(|error| HarnessFault::new("mounting a library", error))?;
        let mounted = catch_unwind(AssertUnwindSafe(|| self.backed.mount(device.without_log())));
        self.state = match mounted {
            Ok(Ok(mounted)) => State::Mounted(mounted),
            Ok(Err(failure)) => State::Refused(failure.errno, image),
            Err(panic) => {
                self.complain("mount", panic.as_ref());
                State::Refused(Errno::ENOTCONN, image)
            }
        };
        Ok(())
    }

    /// Unmounts; returns the answer and the disk.
    fn unmount(&mut self) -> (Outcome, Image) {
        let state = State::Refused(Errno::EIO, self.empty.clone());
        match std::mem::replace(&mut self.state, state) {
            State::Refused(errno, image) => (Outcome::err(errno), image),
            State::Mounted(mounted) => match catch_unwind(AssertUnwindSafe(|| mounted.unmount())) {
                Ok((outcome, device)) => (outcome, device.into_parts().0),
                Err(panic) => {
                    self.complain("unmount", panic.as_ref());
                    (Outcome::err(Errno::ENOTCONN), self.empty.clone())
                }
            },
        }
    }

    /// Unmounts and mounts; an error of either is the answer.
    fn remount(&mut self) -> Result<Outcome, HarnessFault> {
        let (outcome, image) = self.unmount();
        self.mount(image)?;
        Ok(match (&outcome.result, &self.state) {
            (Ok(_), State::Mounted(_)) => Outcome::ok(0),
            (Ok(_), State::Refused(errno, _)) => Outcome::err(*errno),
            (Err(_), _) => outcome,
        })
    }

    /// Asks the mounted file system; a panic is the last that is heard of it.
    fn ask<T>(&mut self, what: &str, ask: impl FnOnce(&mut dyn Mounted) -> T) -> Result<T, Errno> {
        let State::Mounted(mounted) = &mut self.state else {
            let State::Refused(errno, _) = &self.state else { unreachable!("one of two") };
            return Err(*errno);
        };
        match catch_unwind(AssertUnwindSafe(|| ask(mounted.as_mut()))) {
            Ok(answer) => Ok(answer),
            Err(panic) => {
                self.complain(what, panic.as_ref());
                let state = State::Refused(Errno::ENOTCONN, self.empty.clone());
                // What it would do when it is dropped is anybody's guess: it is left alone.
                std::mem::forget(std::mem::replace(&mut self.state, state));
                Err(Errno::ENOTCONN)
            }
        }
    }

    fn complain(&mut self, what: &str, panic: &(dyn std::any::Any + Send)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        self.complaints.push(format!("{what}: the library panicked: {text}"));
    }

    /// How much of the device is not taken by what is visible: the library is not asked, so that it
    /// cannot excuse itself. Everything takes whole units, a file one more than its contents and a
    /// directory two, as on littlefs: who fills a disk with directories has filled it.
    fn statfs(&mut self) -> Result<Outcome, HarnessFault> {
        let tree = self.observe()?;
        let geometry = self.backed.geometry();
        let unit_bytes = match geometry.rewritable {
            true => UNIT_BYTES,
            false => geometry.erase_bytes as u64,
        };
        let units = |entry: &Entry| match entry.kind {
            Kind::Dir => 2,
            _ => entry.size.div_ceil(unit_bytes) + 1,
        };
        let used_bytes = tree.entries.values().map(units).sum::<u64>() * unit_bytes;
        let files = self.backed.files_max().unwrap_or(0);
        let visible = tree.entries.len().saturating_sub(1) as u64;
        let blocks = geometry.size_bytes as u64 / BLOCK_BYTES;
        let blocks_free = blocks.saturating_sub(used_bytes.div_ceil(BLOCK_BYTES));
        let statfs = Statfs {
            block_bytes: BLOCK_BYTES,
            blocks,
            blocks_free,
            blocks_available: blocks_free,
            files,
            files_free: files.saturating_sub(visible),
            name_bytes_max: 255,
        };
        Ok(Outcome { payload: Payload::Statfs(statfs), ..Outcome::ok(0) })
    }

    fn sync_open_files(&mut self) {
        if self.syncs_before_looking {
            for slot in self.open.clone() {
                // If it fails, the tree shows it.
                let _ = self.ask("fsync", |mounted| mounted.apply(&Op::Fsync { slot }));
            }
        }
    }

    fn keep(&mut self, image: Image) -> Saved {
        let saved = Saved(self.saved_next);
        self.saved_next += 1;
        self.saved.insert(saved, image);
        saved
    }

    fn saved_image(&self, saved: Saved) -> Result<Image, HarnessFault> {
        let none = || HarnessFault::new("restoring", format!("{saved:?} was not saved"));
        self.saved.get(&saved).cloned().ok_or_else(none)
    }
}

impl Subject for LibrarySubject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::from([Capability::Remount])
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        match op {
            Op::Remount => return self.remount(),
            Op::Statfs { .. } => return self.statfs(),
            _ => {}
        }
        let answer = self.ask(op.name(), |mounted| mounted.apply(op));
        let outcome = answer.unwrap_or_else(Outcome::err);
        match op {
            // Opening closes what the slot held, even if it fails then.
            Op::Open { slot, .. } if outcome.result.is_ok() => drop(self.open.insert(*slot)),
            Op::Open { slot, .. } | Op::Close { slot } => drop(self.open.remove(slot)),
            _ => {}
        }
        Ok(outcome)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.sync_open_files();
        let tree = self.ask("observe", |mounted| mounted.observe());
        Ok(tree.unwrap_or_else(|errno| {
            let mut tree = PlainTree::new();
            tree.broken(FsPath::from("."), "mount", errno);
            tree.finish()
        }))
    }
}

impl Testbed for LibrarySubject {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.complaints.clear();
        self.mount(self.empty.clone())
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        vec![RestoreMethod::Clone]
    }

    fn save(&mut self, method: RestoreMethod) -> Result<Saved, HarnessFault> {
        if method != RestoreMethod::Clone {
            let message = format!("{} cannot save by {method}", self.name);
            return Err(HarnessFault::new("saving", message));
        }
        if !self.open.is_empty() {
            return Err(HarnessFault::new("saving", "a slot is open: close it first"));
        }
        // An error shows when the disk is looked at.
        let (_, image) = self.unmount();
        self.mount(image.clone())?;
        Ok(self.keep(image))
    }

    fn restore(&mut self, saved: Saved) -> Result<(), HarnessFault> {
        let image = self.saved_image(saved)?;
        self.mount(image)
    }

    fn forget(&mut self, saved: Saved) {
        self.saved.remove(&saved);
    }

    fn image(&mut self, saved: Saved) -> Result<Option<Vec<u8>>, HarnessFault> {
        let image = self.saved_image(saved)?;
        Ok(Some(image.to_vec()))
    }

    fn adopt(&mut self, bytes: &[u8]) -> Result<Saved, HarnessFault> {
        let geometry = self.backed.geometry();
        if bytes.len() != geometry.size_bytes {
            let message =
                format!("it has {} bytes, the device {}", bytes.len(), geometry.size_bytes);
            return Err(HarnessFault::new("taking over an image", message));
        }
        let image = Image::from_bytes(bytes, geometry.erased);
        Ok(self.keep(image))
    }

    fn fsck(&mut self) -> Result<Option<CheckerReport>, HarnessFault> {
        let (outcome, image) = self.unmount();
        let said = self.backed.fsck(&image)?;
        self.mount(image)?;
        let output = match (outcome.result, said) {
            (Err(errno), _) => format!("unmounting failed: {errno}"),
            (Ok(_), Some(said)) => said,
            (Ok(_), None) => return Ok(None),
        };
        let command = format!("the checker of {}", self.backed.name());
        Ok(Some(CheckerReport { command, clean: false, code: None, output }))
    }

    /// What the library panicked with.
    fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        Ok(std::mem::take(&mut self.complaints))
    }
}

#[cfg(all(test, feature = "littlefs"))]
mod tests {
    use fathom_block::Geometry;
    use fathom_core::Target;
    use fathom_core::plain::DIR_MODE;

    use super::*;

    /// Space that directories take is taken: an `ENOSPC` then is no lie.
    #[test]
    fn a_disk_that_is_full_of_directories_is_full() {
        let geometry = Geometry::flash(64 * 4096, 16, 4096);
        let backed = crate::library::littlefs::port(Some(geometry)).expect("it is built in");
        let mut subject = LibrarySubject::new("littlefs".to_owned(), backed, true).expect("made");
        let free_bytes = |subject: &mut LibrarySubject| {
            let answer =
                subject.apply(&Op::Statfs { target: Target::Path(".".into()) }).expect("no fault");
            let Payload::Statfs(statfs) = answer.payload else { panic!("{answer}") };
            statfs.blocks_available * statfs.block_bytes
        };
        let empty_bytes = free_bytes(&mut subject);
        assert!(empty_bytes > 200 * 1024, "{empty_bytes} bytes are free at first");
        let made = (0..).take_while(|number| {
            let op = Op::Mkdir { path: format!("d{number}").as_str().into(), mode: DIR_MODE };
            let result = subject.apply(&op).expect("no fault").result;
            assert!(matches!(result, Ok(_) | Err(Errno::ENOSPC)), "{result:?}");
            result.is_ok()
        });
        assert!(made.count() > 20);
        let full_bytes = free_bytes(&mut subject);
        assert!(full_bytes < 32 * 1024, "{full_bytes} bytes are free in the end");
    }

    /// Of several reasons to refuse the answer is the one that Linux gives.
    #[cfg(feature = "fatfs")]
    #[test]
    fn fatfs_gives_the_reason_that_linux_gives() {
        use fathom_core::flags::{OpenFlags, RenameFlags};

        let backed = crate::library::fatfs::open(None).expect("it is built in");
        let mut subject = LibrarySubject::new("fatfs".to_owned(), backed, true).expect("made");
        let mut answer = |op: Op| subject.apply(&op).expect("no fault").result;
        let open = Op::Open {
            slot: 0,
            path: "d/f".into(),
            flags: OpenFlags::O_CREAT | OpenFlags::O_RDWR,
            mode: fathom_core::plain::FILE_MODE,
        };
        let rename =
            Op::Rename { from: "d".into(), to: "d/f/g".into(), flags: RenameFlags::empty() };
        assert_eq!(answer(Op::Mkdir { path: "d".into(), mode: DIR_MODE }), Ok(0));
        assert_eq!(answer(open), Ok(0));
        assert_eq!(answer(Op::Rmdir { path: "d".into() }), Err(Errno::ENOTEMPTY));
        assert_eq!(answer(Op::Close { slot: 0 }), Ok(0));
        assert_eq!(answer(rename), Err(Errno::ENOTDIR));
    }
}
