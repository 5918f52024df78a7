//! Which paths an operation can have changed, so that only these are looked at.
//!
//! What an operation does elsewhere (to the contents of a directory that was renamed, to a file it
//! did not name) shows in the next comparison of whole trees.

use fathom_core::{Effect, FsPath, Op, Operand, Slot, Target};
use fathom_model::Model;

/// The paths that `op`, just executed, named: what it worked on, and, if it `changed` the tree, the
/// directories whose names it can have changed. Without links and dots in them.
pub(crate) fn touched(op: &Op, model: &Model, changed: bool) -> Vec<FsPath> {
    let mut paths = Paths { model, changed, found: Vec::with_capacity(4) };
    let mut opened = None;
    op.operands(|operand| match operand {
        Operand::Path(path, _, _, Effect::Binds) => paths.name(path),
        Operand::Path(path, _, _, Effect::Changes) => paths.existing(path, true),
        Operand::Target(target, _, Effect::Changes | Effect::Binds) => paths.target(target),
        Operand::Slot(slot, _, Effect::Changes) => paths.slot(*slot),
        Operand::Slot(slot, _, Effect::Binds) => opened = Some(*slot),
        // What is only read has been compared.
        Operand::Path(_, _, _, Effect::Reads)
        | Operand::Target(_, _, Effect::Reads)
        | Operand::Slot(_, _, Effect::Reads) => {}
        Operand::Text(..)
        | Operand::XattrName(..)
        | Operand::Offset(..)
        | Operand::Position(..)
        | Operand::Distance(..)
        | Operand::Length(..)
        | Operand::IntLength(..)
        | Operand::SignedLength(..)
        | Operand::Data(..)
        | Operand::Flags(..)
        | Operand::Number(..)
        | Operand::Back(_)
        | Operand::Whence(..)
        | Operand::Mode(..)
        | Operand::Mask(..)
        | Operand::Device(_)
        | Operand::Owner(..)
        | Operand::Id(..)
        | Operand::Groups(_)
        | Operand::Time(_)
        | Operand::At(_)
        | Operand::Buffer(_)
        | Operand::Fixed(..) => {}
    });
    // What was opened comes after the name by which it was.
    if let Some(slot) = opened {
        paths.slot(slot);
    }
    paths.found
}

struct Paths<'a> {
    model: &'a Model,
    changed: bool,
    found: Vec<FsPath>,
}

impl Paths<'_> {
    fn add(&mut self, path: Option<FsPath>) {
        if let Some(path) = path.filter(|path| !self.found.contains(path)) {
            self.found.push(path);
        }
    }

    /// A name that can have come or gone, and the directory that has it.
    fn name(&mut self, path: &FsPath) {
        let volume = self.model.volume();
        let bytes = path.as_bytes();
        let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (parent, name) = (&bytes[..start], &bytes[start..end]);
        let parent = if parent.is_empty() { FsPath::from(".") } else { FsPath::from(parent) };
        let Some(dir) = volume.find(&parent, true).and_then(|ino| volume.path_of(ino)) else {
            return;
        };
        // A name that is too long is nowhere.
        if !matches!(name, b"" | b"." | b"..") && name.len() <= 255 {
            self.add(Some(dir.join(name)));
        }
        if self.changed {
            self.add(Some(dir));
        }
    }

    fn target(&mut self, target: &Target) {
        match target {
            Target::Path(path) => self.existing(path, true),
            Target::Link(path) => self.existing(path, false),
            Target::Slot(slot) => self.slot(*slot),
        }
    }

    fn existing(&mut self, path: &FsPath, follow: bool) {
        let volume = self.model.volume();
        self.add(volume.find(path, follow).and_then(|ino| volume.path_of(ino)));
    }

    fn slot(&mut self, slot: Slot) {
        let volume = self.model.volume();
        self.add(self.model.slot_ino(slot).and_then(|ino| volume.path_of(ino)));
    }
}
