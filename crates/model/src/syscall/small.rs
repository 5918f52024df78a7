//! What a workload leaves out on file systems that keep less than POSIX asks for: FAT and its kin have no
//! modes and few names, and where there are no sparse files a hole costs as much as data.

use fathom_core::flags::OpenFlags;
use fathom_core::{Op, Operand, Slot, Target};

use super::Model;
use super::lacking::NAME_BYTES_MAX;
use super::resolve::Follow;

impl Model {
    /// Why a kernel's file system need not answer as the reference does, if it is a small one.
    pub(super) fn unspecified_on_small(&self, op: &Op) -> Option<&'static str> {
        let quirks = self.quirks();
        if quirks.without_vfs {
            return None;
        }
        if quirks.modes_not_kept && changes_rights(op) {
            return Some("modes and owners are not kept");
        }
        let takes_all = quirks.name_bytes_max >= NAME_BYTES_MAX && !quirks.names_portable;
        if !takes_all && !names(op).all(|name| self.takes_name(name)) {
            return Some("the file system takes fewer names");
        }
        (self.hole_bytes_after(op) > quirks.hole_bytes_max)
            .then_some("a hole is stored as zeros, and so many may not fit")
    }

    fn takes_name(&self, name: &[u8]) -> bool {
        let quirks = self.quirks();
        // What is longer than every file system takes is refused by all alike, but by those that count
        // characters only when an entry is made (FAT: `xlate_to_uni`).
        let fits = name.len() <= quirks.name_bytes_max as usize
            || (name.len() > NAME_BYTES_MAX as usize && !quirks.names_portable);
        fits && (!quirks.names_portable || is_portable(name))
    }

    /// How far behind the end of its file an operation writes.
    fn hole_bytes_after(&self, op: &Op) -> u64 {
        if self.quirks().hole_bytes_max == i64::MAX as u64 {
            return 0;
        }
        let Some((size, start)) = self.size_and_start(op) else { return 0 };
        start.saturating_sub(size)
    }

    /// The size of the file that an operation writes to, and where it begins; for one that sets the size, that.
    pub(super) fn size_and_start(&self, op: &Op) -> Option<(u64, u64)> {
        let (size, start) = match op {
            Op::Pwrite { slot, offset, .. } | Op::MmapStore { slot, offset, .. } => {
                (self.size_of(*slot), *offset)
            }
            Op::Write { slot, .. } => (self.size_of(*slot), self.position(*slot)),
            Op::Truncate { target, len } => (self.size_at(target), *len),
            Op::Fallocate { slot, offset, len, .. } => {
                (self.size_of(*slot), offset.saturating_add(*len))
            }
            Op::CopyFileRange { to, to_offset, .. } => {
                (self.size_of(*to), to_offset.unwrap_or_else(|| self.position(*to)))
            }
            _ => return None,
        };
        Some((size.unwrap_or(0), u64::try_from(start).unwrap_or(0)))
    }

    fn size_of(&self, slot: Slot) -> Option<u64> {
        let file = self.file(slot).ok()?;
        Some(self.volume.attr(file.ino).ok()?.size)
    }

    fn size_at(&self, target: &Target) -> Option<u64> {
        match target {
            Target::Slot(slot) => self.size_of(*slot),
            Target::Path(path) | Target::Link(path) => {
                let ino = self.resolve(path, Follow::Yes).ok()?;
                Some(self.volume.attr(ino).ok()?.size)
            }
        }
    }

    /// Where a write would begin.
    fn position(&self, slot: Slot) -> i64 {
        let Ok(file) = self.file(slot) else { return 0 };
        match file.flags.contains(OpenFlags::O_APPEND) {
            true => 0,
            false => file.position,
        }
    }
}

/// Whether it changes or uses what such a file system does not keep.
fn changes_rights(op: &Op) -> bool {
    matches!(op, Op::Chmod { .. } | Op::Chown { .. } | Op::Identity { .. } | Op::Umask { .. })
}

/// Every name in every path of an operation.
fn names(op: &Op) -> impl Iterator<Item = &[u8]> {
    let mut paths: Vec<&[u8]> = Vec::new();
    op.operands(|operand| match operand {
        Operand::Path(path, ..) | Operand::Target(Target::Path(path) | Target::Link(path), ..) => {
            paths.push(path.as_bytes());
        }
        // Whoever follows a symbolic link looks its names up.
        Operand::Text(target, ..) => paths.push(target.as_bytes()),
        _ => {}
    });
    paths.into_iter().flat_map(|path| path.split(|byte| *byte == b'/'))
}

/// Lower-case letters, digits, `-`, `_`, and a dot that is not the last character.
fn is_portable(name: &[u8]) -> bool {
    let allowed = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    matches!(name, b"." | b"..") || name.iter().all(allowed) && name.last() != Some(&b'.')
}

#[cfg(test)]
mod tests {
    use fathom_core::{Mode, Pattern};

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    #[test]
    fn names_and_rights_of_fat() {
        let quirks = Quirks { names_portable: true, modes_not_kept: true, ..Quirks::default() };
        let m = model_with(quirks);
        let left_out = |op: Op| m.unspecified(&op).is_some();
        for (name, out) in
            [("a.b-c_1", false), ("A", true), ("a:b", true), ("a.", true), ("..", false)]
        {
            assert_eq!(left_out(mkdir(name, 0o755)), out, "{name}");
            let rename = Op::Rename { from: path("a"), to: path(name), flags: Default::default() };
            assert_eq!(left_out(rename), out, "{name}");
        }
        assert!(left_out(Op::Chmod { target: at("a"), mode: Mode(0o600) }));
        assert!(left_out(become_user(ALICE)));
        let plain = model();
        assert!(plain.unspecified(&mkdir("A", 0o755)).is_none());
        assert!(plain.unspecified(&become_user(ALICE)).is_none());
    }

    #[test]
    fn short_names_and_large_holes() {
        let quirks = Quirks { name_bytes_max: 4, hole_bytes_max: 10, ..Quirks::default() };
        let mut m = model_with(quirks);
        given(&mut m, &[open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR)]);
        let left_out = |op: Op| m.unspecified(&op).is_some();
        assert!(left_out(mkdir("12345", 0o755)) && !left_out(mkdir("1234", 0o755)));
        assert!(!left_out(mkdir(&"n".repeat(256), 0o755)), "refused by everybody");
        assert!(left_out(symlink("a/12345", "l")) && !left_out(symlink("a/1234", "l")));
        let data = Pattern { seed: 1, len: 1 };
        assert!(left_out(Op::Pwrite { slot: 0, offset: 11, data }));
        assert!(!left_out(Op::Pwrite { slot: 0, offset: 10, data }));
        assert!(left_out(Op::Truncate { target: at("f"), len: 11 }));
        assert!(!left_out(Op::Truncate { target: at("f"), len: -1 }));
    }
}
