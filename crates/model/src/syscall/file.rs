//! Open files and the slots that hold them.

use std::sync::Arc;

use fathom_core::flags::{Access, OpenFlags};
use fathom_core::{Errno, Kind, Slot, Target};

use super::Model;
use super::list_piece::Listing;
use super::resolve::Follow;
use crate::volume::Ino;

/// What a slot holds: an open file description.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenFile {
    pub(super) ino: Ino,
    pub(super) kind: Kind,
    pub(super) flags: OpenFlags,
    pub(super) position: i64,
}

impl OpenFile {
    /// `O_PATH`: names a file, but is not open for anything.
    pub(super) fn is_path(&self) -> bool {
        self.flags.contains(OpenFlags::O_PATH)
    }

    /// `FMODE_READ`
    pub(super) fn readable(&self) -> bool {
        !self.is_path() && matches!(self.flags.access(), Access::Read | Access::ReadWrite)
    }

    /// `FMODE_WRITE`
    pub(super) fn writable(&self) -> bool {
        !self.is_path() && matches!(self.flags.access(), Access::Write | Access::ReadWrite)
    }
}

/// All slots of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    slots: Vec<Option<OpenFile>>,
    /// The directories among them that are being read in pieces.
    listings: Vec<(Slot, Arc<Listing>)>,
}

impl Files {
    pub(super) fn get(&self, slot: Slot) -> Option<&OpenFile> {
        self.slots.get(usize::from(slot))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut OpenFile> {
        self.slots.get_mut(usize::from(slot))?.as_mut()
    }

    /// Puts a file into a slot; returns what was there.
    pub(super) fn set(&mut self, slot: Slot, file: Option<OpenFile>) -> Option<OpenFile> {
        self.set_listing(slot, None);
        let slots = &mut self.slots;
        let index = usize::from(slot);
        if index >= slots.len() {
            slots.resize(index + 1, None);
        }
        std::mem::replace(&mut slots[index], file)
    }

    /// The open files with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &OpenFile)> {
        self.slots.iter().enumerate().filter_map(|(slot, file)| Some((slot, file.as_ref()?)))
    }

    /// The listing of the directory in a slot that was begun and is not over.
    pub(super) fn listing(&self, slot: Slot) -> Option<&Arc<Listing>> {
        self.listings.iter().find(|(other, _)| *other == slot).map(|(_, listing)| listing)
    }

    pub(super) fn set_listing(&mut self, slot: Slot, listing: Option<Listing>) {
        self.listings.retain(|(other, _)| *other != slot);
        self.listings.extend(listing.map(|listing| (slot, Arc::new(listing))));
    }

    /// All listings.
    pub(super) fn listings(&self) -> &[(Slot, Arc<Listing>)] {
        &self.listings
    }

    /// All listings, to be changed.
    pub(super) fn listings_mut(&mut self) -> impl Iterator<Item = &mut Listing> {
        self.listings.iter_mut().map(|(_, listing)| Arc::make_mut(listing))
    }
}

impl Model {
    /// The file of a slot as most calls want it: `O_PATH` does not count (`fdget` in fs/file.c).
    pub(super) fn file(&self, slot: Slot) -> Result<OpenFile, Errno> {
        self.file_or_path(slot).and_then(|file| match file.is_path() {
            true => Err(Errno::EBADF),
            false => Ok(file),
        })
    }

    /// The file of a slot for the few calls that take `O_PATH` too: open(2) lists them (`fdget_raw`).
    pub(super) fn file_or_path(&self, slot: Slot) -> Result<OpenFile, Errno> {
        self.current.files.get(slot).copied().ok_or(Errno::EBADF)
    }

    /// Moves the position of an open file.
    pub(super) fn seek(&mut self, slot: Slot, position: i64) {
        if let Some(file) = self.current_mut().files.get_mut(slot) {
            file.position = position;
        }
    }

    /// What a target names, for calls that refuse `O_PATH` files.
    pub(super) fn target(&self, target: &Target) -> Result<Ino, Errno> {
        match target {
            Target::Path(path) => self.resolve(path, Follow::Yes),
            Target::Link(path) => self.resolve(path, Follow::No),
            Target::Slot(slot) => self.file(*slot).map(|file| file.ino),
        }
    }

    /// What a target names, for calls that accept `O_PATH` files.
    pub(super) fn target_or_path(&self, target: &Target) -> Result<Ino, Errno> {
        match target {
            Target::Slot(slot) => self.file_or_path(*slot).map(|file| file.ino),
            other => self.target(other),
        }
    }
}
