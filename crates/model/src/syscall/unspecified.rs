//! What a workload should leave out: calls that would not return, and calls whose result is decided
//! by something that is not part of a file system's state.

use fathom_core::flags::{OpenFlags, Whence};
use fathom_core::{Errno, FsBytes, Kind, Op, Pattern, Slot, Target};

use super::Model;
use super::file::OpenFile;
use super::xattr::Namespace;
use crate::quirks::Quirks;

impl Model {
    /// Whether the call would wait for a peer of a FIFO, for ever: it must not be executed on a real
    /// file system. Here it answers `EINTR`, as a call that a signal interrupts.
    pub fn would_block(&self, op: &Op) -> bool {
        matches!(op, Op::Open { .. } | Op::Read { .. } | Op::Write { .. })
            && self.clone().execute(op).result == Err(Errno::EINTR)
    }

    /// Why the result of a call says nothing about a file system, if so. The model does have an
    /// answer, but another one is not wrong.
    pub fn unspecified(&self, op: &Op) -> Option<&'static str> {
        match op {
            _ if self.would_block(op) => Some("the call would wait for a peer of the FIFO"),
            Op::Open { .. } if self.reaches_driver(op) => {
                Some("opening a device reaches its driver, not the file system")
            }
            Op::Read { slot, len } => self.unspecified_transfer(*slot, None, *len),
            Op::Pread { slot, offset, len } => {
                self.unspecified_transfer(*slot, Some(*offset), *len)
            }
            Op::Write { slot, data } if self.writes_fifo(*slot) && data.len > 0 => {
                Some("what fits into a pipe is not the file system's business")
            }
            Op::Write { slot, data } => self.unspecified_transfer(*slot, None, data.len),
            Op::Pwrite { slot, offset, data } => {
                self.unspecified_transfer(*slot, Some(*offset), data.len)
            }
            Op::Lseek { slot, whence, .. } => self.unspecified_seek(*slot, *whence),
            Op::Setxattr { target, name, value, .. } => {
                self.unspecified_setxattr(target, name, *value)
            }
            Op::Getxattr { name, .. } | Op::Removexattr { name, .. } => unspecified_name(name),
            _ => None,
        }
    }

    fn regular(&self, slot: Slot) -> Option<OpenFile> {
        self.file(slot).ok().filter(|file| file.kind == Kind::File)
    }

    fn writes_fifo(&self, slot: Slot) -> bool {
        self.file(slot).is_ok_and(|file| file.kind == Kind::Fifo && file.writable())
    }

    /// Only a device has `ENXIO` for an answer without `O_NONBLOCK`, which is what FIFOs need for it.
    fn reaches_driver(&self, op: &Op) -> bool {
        let Op::Open { path, flags, .. } = op else { return false };
        let device =
            [super::resolve::Follow::Yes, super::resolve::Follow::No].iter().any(|follow| {
                let kind = self.resolve(path, *follow).and_then(|ino| self.volume.attr(ino));
                kind.is_ok_and(|attr| matches!(attr.kind, Kind::Char | Kind::Block))
            });
        device && !flags.contains(OpenFlags::O_PATH)
    }

    /// open(2): the alignment that `O_DIRECT` needs "varies by file system and kernel version and
    /// might be absent entirely".
    fn unspecified_transfer(
        &self,
        slot: Slot,
        offset: Option<i64>,
        len: u64,
    ) -> Option<&'static str> {
        let file = self.regular(slot)?;
        let offset = match offset {
            Some(offset) => offset,
            None if file.flags.contains(OpenFlags::O_APPEND) => {
                self.volume.attr(file.ino).ok()?.size as i64
            }
            None => file.position,
        };
        let direct = file.flags.contains(OpenFlags::O_DIRECT);
        (direct && !self.is_direct_aligned(offset, len))
            .then_some("the alignment of direct transfers varies")
    }

    fn unspecified_seek(&self, slot: Slot, whence: Whence) -> Option<&'static str> {
        let segment = matches!(whence, Whence::Data | Whence::Hole);
        match self.file(slot).ok()?.kind {
            Kind::Dir if whence != Whence::Set => Some("positions in a directory are cookies"),
            Kind::File if segment && !self.quirks().segments_comparable => {
                Some("how the file system allocates is not known")
            }
            _ => None,
        }
    }

    fn unspecified_setxattr(
        &self,
        target: &Target,
        name: &FsBytes,
        value: Pattern,
    ) -> Option<&'static str> {
        if let Some(reason) = unspecified_name(name) {
            return Some(reason);
        }
        let ino = self.target(target).ok()?;
        let cost = self.xattr_cost_after(ino, name, value.len).ok()?;
        let Quirks { xattr_total_bytes_sure: sure, xattr_total_bytes_max: max, .. } = self.quirks();
        (cost > u64::from(*sure) && cost <= u64::from(*max))
            .then_some("whether it fits depends on the order in which attributes were set")
    }
}

fn unspecified_name(name: &FsBytes) -> Option<&'static str> {
    match Namespace::of(name) {
        Namespace::Security | Namespace::System => {
            Some("the attribute belongs to security modules or access control lists")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Mode;
    use fathom_core::flags::XattrFlags;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn ordinary_operations_are_specified() {
        let mut m = model();
        given(&mut m, &[open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR)]);
        let ops = [
            write(0, 1, 5),
            Op::Lseek { slot: 0, offset: 0, whence: Whence::End },
            close(0),
            mkdir("d", 0o755),
        ];
        assert!(ops.iter().all(|op| m.unspecified(op).is_none()));
    }

    #[test]
    fn what_depends_on_something_else_is_not() {
        let mut m = model_with(Quirks::profile("ext4").unwrap());
        let device =
            Op::Mknod { path: path("c"), mode: Mode(Mode::S_IFCHR | 0o666), dev: (240, 1) };
        let direct = OpenFlags::O_CREAT | OpenFlags::O_RDWR | OpenFlags::O_DIRECT;
        given(
            &mut m,
            &[
                device,
                mknod("p", Mode::S_IFIFO | 0o666),
                open(0, "f", direct),
                open(1, ".", OpenFlags::empty()),
            ],
        );
        given(&mut m, &[open(2, "p", OpenFlags::O_RDWR | OpenFlags::O_NONBLOCK)]);
        let set = |name: &str, len| Op::Setxattr {
            target: at("f"),
            name: FsBytes::from(name),
            value: Pattern { seed: 1, len },
            flags: XattrFlags::empty(),
        };
        let table = [
            (open(3, "c", OpenFlags::empty()), true),
            (open(3, "c", OpenFlags::O_PATH), false),
            (open(3, "p", OpenFlags::O_WRONLY), false),
            (write(0, 1, 512), false),
            (write(0, 1, 511), true),
            (write(2, 1, 1), true),
            (Op::Lseek { slot: 1, offset: 0, whence: Whence::Set }, false),
            (Op::Lseek { slot: 1, offset: 0, whence: Whence::Cur }, true),
            (set("user.a", 4040), false),
            (set("user.a", 4041), true),
            (set("user.a", 4128), true),
            (set("user.a", 4129), false),
            (set("security.a", 1), true),
        ];
        for (row, (op, expected)) in table.iter().enumerate() {
            assert_eq!(m.unspecified(op).is_some(), *expected, "row {row}: {op:?}");
        }
    }
}
