//! Several processes on one volume.
//!
//! As in the kernel there is a current process, whose open files, identity, mask and working
//! directory a call uses. Between operations that is caller 0, so that a model with one caller pays
//! nothing for the others; an operation of another caller trades places with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fathom_core::flags::OpenFlags;
use fathom_core::{Caller, Errno, Op, Outcome, Pattern, Slot};

use super::Model;
use super::file::OpenFile;
use super::process::Process;

/// The processes that do not execute at the moment. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Others(Option<Arc<BTreeMap<Caller, Arc<Process>>>>);

impl Others {
    /// The process of a caller, made by `first` if it has not called before.
    fn entry(&mut self, caller: Caller, first: impl FnOnce() -> Process) -> &mut Arc<Process> {
        let all = Arc::make_mut(self.0.get_or_insert_default());
        all.entry(caller).or_insert_with(|| Arc::new(first()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Caller, &Process)> {
        self.0.iter().flat_map(|all| all.iter().map(|(caller, process)| (*caller, &**process)))
    }

    pub(super) fn for_each(&mut self, mut change: impl FnMut(&mut Process)) {
        if let Some(all) = &mut self.0 {
            Arc::make_mut(all).values_mut().for_each(|process| change(Arc::make_mut(process)));
        }
    }
}

impl Model {
    /// Executes one operation of a caller. One who has not called before is a new process with the
    /// first identity, mask and working directory, and without open files.
    pub fn execute_as(&mut self, caller: Caller, op: &Op) -> Outcome {
        self.as_caller(caller, |model| model.execute(op))
    }

    /// The size of the file in a slot that appends, for [`crate::Race::Append`].
    pub(crate) fn append_size(&mut self, caller: Caller, slot: Slot) -> Option<u64> {
        self.as_caller(caller, |model| {
            let file = model.file(slot).ok()?;
            let appends = file.writable() && file.flags.contains(OpenFlags::O_APPEND);
            model.volume.attr(file.ino).ok().filter(|_| appends).map(|attr| attr.size)
        })
    }

    /// Writes to an offset, whatever the flags of the file say.
    pub(crate) fn write_to(
        &mut self,
        caller: Caller,
        slot: Slot,
        offset: u64,
        data: Pattern,
    ) -> Result<u64, Errno> {
        self.as_caller(caller, |model| {
            let file = model.file(slot)?;
            let written = model.volume.write(file.ino, offset, &data.to_vec())? as u64;
            model.seek(slot, (offset + written) as i64);
            Ok(written)
        })
    }

    /// Bytes of the file in a slot that can be read, as many as there are.
    pub(crate) fn bytes_of(
        &mut self,
        caller: Caller,
        slot: Slot,
        offset: u64,
        len: usize,
    ) -> Option<Vec<u8>> {
        self.as_caller(caller, |model| {
            let file = model.file(slot).ok().filter(|file| file.readable())?;
            let mut bytes = Vec::new();
            let size = model.volume.attr(file.ino).ok()?.size;
            if offset < size {
                model.volume.read(file.ino, offset, len, &mut bytes).ok()?;
            }
            Some(bytes)
        })
    }

    /// The process that executes, to be changed.
    pub(super) fn current_mut(&mut self) -> &mut Process {
        Arc::make_mut(&mut self.current)
    }

    /// Does something while `caller` is the current process.
    pub(super) fn as_caller<T>(&mut self, caller: Caller, act: impl FnOnce(&mut Model) -> T) -> T {
        self.trade_places(caller);
        let result = act(self);
        self.trade_places(caller);
        result
    }

    /// Caller 0 waits in the place of the other meanwhile: all processes are the current one and the
    /// others at any time.
    fn trade_places(&mut self, caller: Caller) {
        if caller != 0 {
            let config = self.volume.config();
            let other = self.others.entry(caller, || Process::first(config));
            std::mem::swap(&mut self.current, other);
        }
    }

    /// Every process.
    pub(super) fn processes(&self) -> impl Iterator<Item = &Process> {
        let others = self.others.iter().map(|(_, process)| process);
        std::iter::once(&*self.current).chain(others)
    }

    /// The open files of every process.
    pub(super) fn open_files(&self) -> impl Iterator<Item = &OpenFile> {
        self.processes().flat_map(|process| process.files.iter()).map(|(_, file)| file)
    }
}
