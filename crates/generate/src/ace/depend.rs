//! What an operation depends on is done before it: ACE's fourth phase.
//!
//! The generator follows what is open and what has data by the names of the flat set, not by what a
//! file system would do: after `rename A B` it still takes `A/foo` for open. That is kept, since the
//! workloads are to be the same; the reference file system executes what comes of it.

use super::jlang::{Line, MODE, Name, OPEN_FLAGS, Range};
use super::space::{Call, Extent, Persist};

/// What ACE writes to a file that has to have something in it.
const APPEND_BYTES: i64 = 32768;

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Closed,
    Open,
}

/// Names in the order in which they became known.
#[derive(Default)]
struct Names(Vec<(Name, Known)>);

impl Names {
    fn get(&self, name: Name) -> Option<Known> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, state)| *state)
    }

    fn set(&mut self, name: Name, state: Known) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = state,
            None => self.0.push((name, state)),
        }
    }

    fn remove(&mut self, name: Name) {
        self.0.retain(|(known, _)| *known != name);
    }
}

/// Writes the lines of a workload.
#[derive(Default)]
pub(super) struct Writer {
    lines: Vec<Line>,
    files: Names,
    dirs: Names,
    /// Bytes of each file that has been written to, as ACE reckons.
    sizes: Vec<(Name, i64)>,
}

impl Writer {
    /// Starts with the root alone.
    pub(super) fn new() -> Writer {
        let mut writer = Writer { lines: Vec::with_capacity(16), ..Writer::default() };
        writer.dirs.set(Name::Test, Known::Closed);
        writer
    }

    /// Closes everything that is open: first files, then directories.
    pub(super) fn finish(mut self) -> Vec<Line> {
        let Writer { lines, files, dirs, .. } = &mut self;
        for (name, state) in files.0.iter().chain(&dirs.0) {
            if *state == Known::Open {
                lines.push(Line::Close(*name));
            }
        }
        self.lines
    }

    fn names(&mut self, name: Name) -> &mut Names {
        if name.is_dir() { &mut self.dirs } else { &mut self.files }
    }

    fn close(&mut self, name: Name) {
        self.names(name).set(name, Known::Closed);
        self.lines.push(Line::Close(name));
    }

    fn unlink(&mut self, name: Name) {
        self.files.remove(name);
        self.lines.push(Line::Unlink(name));
    }

    fn rmdir(&mut self, name: Name) {
        self.dirs.remove(name);
        self.lines.push(Line::Rmdir(name));
    }

    fn mkdir(&mut self, name: Name) {
        self.dirs.set(name, Known::Closed);
        self.lines.push(Line::Mkdir(name, MODE));
    }

    /// The directories above exist.
    fn need_parent(&mut self, name: Name) {
        let parent = name.parent();
        if self.dirs.get(parent).is_some() {
            return;
        }
        if parent == Name::AC && self.dirs.get(Name::A).is_none() {
            self.mkdir(Name::A);
        }
        self.mkdir(parent);
    }

    /// It exists and is open.
    fn need_open(&mut self, name: Name) {
        if name.is_dir() && self.dirs.get(name).is_none() {
            self.mkdir(name);
        }
        if self.names(name).get(name) == Some(Known::Open) {
            return;
        }
        self.names(name).set(name, Known::Open);
        self.lines.push(match name.is_dir() {
            true => Line::OpenDir(name, MODE),
            false => Line::Open(name, OPEN_FLAGS, MODE),
        });
    }

    fn need_closed(&mut self, name: Name) {
        if self.names(name).get(name) == Some(Known::Open) {
            self.close(name);
        }
    }

    /// The file has something in it.
    fn need_data(&mut self, name: Name) {
        if self.size(name).is_none() {
            self.lines.push(Line::Write(name, Range { offset: 0, len: APPEND_BYTES }));
            self.set_size(name, APPEND_BYTES);
        }
    }

    fn size(&self, name: Name) -> Option<i64> {
        self.sizes.iter().find(|(known, _)| *known == name).map(|(_, size)| *size)
    }

    fn set_size(&mut self, name: Name, size: i64) {
        match self.sizes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = size,
            None => self.sizes.push((name, size)),
        }
    }

    /// A directory is emptied, closed files and open ones, and removed.
    fn need_no_dir(&mut self, name: Name) {
        if self.dirs.get(name).is_none() {
            return;
        }
        match name {
            Name::A => {
                self.need_no_files([Name::AFoo, Name::ABar]);
                if self.dirs.get(Name::AC).is_some() {
                    self.need_closed(Name::AC);
                    self.need_no_files([Name::ACFoo, Name::ACBar]);
                    self.rmdir(Name::AC);
                }
            }
            Name::AC => self.need_no_files([Name::ACFoo, Name::ACBar]),
            _ => self.need_no_files([Name::BFoo, Name::BBar]),
        }
        self.rmdir(name);
    }

    fn need_no_files(&mut self, names: [Name; 2]) {
        for name in names {
            if self.files.get(name).is_some() {
                self.need_closed(name);
                self.unlink(name);
            }
        }
    }

    /// An operation, with what it depends on before it.
    pub(super) fn call(&mut self, call: &Call) {
        match *call {
            Call::Creat(name) => {
                self.make(name);
                self.lines.push(Line::Open(name, OPEN_FLAGS, MODE));
            }
            Call::Mknod(name) => {
                self.make(name);
                self.lines.push(Line::Mknod(name));
            }
            Call::Mkdir(name) => {
                self.need_no_dir(name);
                self.mkdir(name);
            }
            Call::Rmdir(name) => {
                if self.dirs.get(name).is_none() {
                    self.mkdir(name);
                }
                self.rmdir(name);
            }
            Call::Falloc(name, mode, extent) => {
                self.need_file(name);
                self.need_data(name);
                let range = self.falloc_range(name, extent);
                self.lines.push(Line::Falloc(name, mode, range));
            }
            Call::Write(name, extent) => {
                let range = self.written(name, extent);
                self.lines.push(Line::Write(name, range));
            }
            Call::DirectWrite(name, extent) => {
                let range = self.written(name, extent);
                self.lines.push(Line::DirectWrite(name, range));
                // It opens the file itself, and closes it.
                self.files.set(name, Known::Closed);
            }
            Call::MmapWrite(name, extent) => {
                self.need_file(name);
                // Only what is in a file can be mapped.
                self.need_data(name);
                let range = self.written(name, extent);
                self.lines.push(Line::MmapWrite(name, range));
            }
            Call::Truncate(name, len) => {
                self.need_file(name);
                self.need_data(name);
                self.lines.push(Line::Truncate(name, len));
                if len == 0 {
                    self.set_size(name, 0);
                }
            }
            Call::SetXattr(name) => {
                self.need_file(name);
                self.lines.push(Line::SetXattr(name));
            }
            Call::RemoveXattr(name) => {
                self.need_file(name);
                self.lines.extend([Line::SetXattr(name), Line::RemoveXattr(name)]);
            }
            Call::Fdatasync(name) => {
                self.need_file(name);
                self.lines.push(Line::Fdatasync(name));
            }
            Call::Unlink(name) | Call::Remove(name) => self.delete(call, name),
            Call::Link(from, to) => self.link(from, to),
            Call::Symlink(from, to) => self.symlink(from, to),
            Call::Rename(from, to) => self.rename(from, to),
        }
    }

    fn need_file(&mut self, name: Name) {
        self.need_parent(name);
        self.need_open(name);
    }

    /// The name is free, and counts as an open file.
    fn make(&mut self, name: Name) {
        self.need_parent(name);
        if self.files.get(name).is_some() {
            self.unlink(name);
        }
        self.files.set(name, Known::Open);
    }

    fn delete(&mut self, call: &Call, name: Name) {
        self.need_file(name);
        self.need_closed(name);
        self.files.remove(name);
        let removes = matches!(call, Call::Remove(_));
        self.lines.push(if removes { Line::Remove(name) } else { Line::Unlink(name) });
    }

    fn symlink(&mut self, from: Name, to: Name) {
        self.need_parent(from);
        self.need_parent(to);
        self.lines.push(Line::Symlink(from, to));
    }

    fn link(&mut self, from: Name, to: Name) {
        self.need_parent(from);
        self.need_parent(to);
        self.need_open(from);
        self.need_closed(to);
        if self.files.get(to).is_some() {
            self.unlink(to);
        }
        self.files.set(to, Known::Closed);
        self.lines.push(Line::Link(from, to));
    }

    fn rename(&mut self, from: Name, to: Name) {
        self.need_parent(from);
        self.need_parent(to);
        self.need_open(from);
        self.need_closed(from);
        if !to.is_dir() {
            self.need_closed(to);
        }
        self.names(from).remove(from);
        self.names(from).set(to, Known::Closed);
        self.lines.push(Line::Rename(from, to));
    }

    /// The range of a write, after what it needs.
    fn written(&mut self, name: Name, extent: Extent) -> Range {
        self.need_file(name);
        if extent != Extent::Append {
            self.need_data(name);
        }
        let size = self.size(name).unwrap_or(0);
        if extent == Extent::Append {
            self.set_size(name, size + APPEND_BYTES);
        }
        extent.range(size)
    }

    fn falloc_range(&mut self, name: Name, extent: Extent) -> Range {
        let size = self.size(name).unwrap_or(0);
        let range = extent.range(size);
        // Also with FALLOC_FL_KEEP_SIZE: ACE reckons so.
        if extent != Extent::Start {
            self.set_size(name, range.offset + range.len);
        }
        range
    }

    /// A persistence operation, with what it depends on before it.
    pub(super) fn persist(&mut self, persist: Persist, last: bool) {
        match persist {
            Persist::None => return self.lines.push(Line::None),
            Persist::Sync => self.lines.push(Line::Sync),
            Persist::Fsync(name) => {
                self.need_parent(name);
                self.need_open(name);
                self.lines.push(Line::Fsync(name));
            }
        }
        self.checkpoint(last);
    }

    /// A point at which the power may fail.
    pub(super) fn checkpoint(&mut self, last: bool) {
        self.lines.push(Line::Checkpoint(last));
    }
}
