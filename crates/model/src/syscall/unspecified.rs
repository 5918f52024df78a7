//! What a workload should leave out: calls that would not return, and calls whose result is decided
//! by something that is not part of a file system's state.

use fathom_core::flags::{OpenFlags, Whence};
use fathom_core::{Caller, Errno, FsBytes, Kind, Op, Pattern, Slot, Target};

use super::Model;
use super::file::OpenFile;
use super::getdents::END_OF_DIRECTORY;
use super::resolve::Follow;
use super::xattr::Namespace;
use crate::quirks::Quirks;

/// Where the last page of the largest possible file begins.
const LAST_PAGE: i64 = i64::MAX - 4095;

const COOKIES: &str = "positions in a directory are cookies";

impl Model {
    /// Whether the call would wait for a peer of a FIFO, for ever: it must not be executed on a real
    /// file system. Here it answers `EINTR`, as a call that a signal interrupts.
    pub fn would_block(&self, op: &Op) -> bool {
        // Only what is done with a FIFO can block, and most things are not: that is found out without
        // a copy.
        let is_fifo = match op {
            Op::Open { path, .. } => {
                let attr = self.resolve(path, Follow::Yes).and_then(|ino| self.volume.attr(ino));
                attr.is_ok_and(|attr| attr.kind == Kind::Fifo)
            }
            Op::Read { slot, .. } | Op::Write { slot, .. } => {
                self.file(*slot).is_ok_and(|file| file.kind == Kind::Fifo)
            }
            _ => false,
        };
        is_fifo && self.clone().execute(op).result == Err(Errno::EINTR)
    }

    /// [`Model::unspecified`] for one of several callers.
    pub fn unspecified_as(&self, caller: Caller, op: &Op) -> Option<&'static str> {
        self.clone().as_caller(caller, |model| model.unspecified(op))
    }

    /// Why the result of a call says nothing about a file system, if so. The model does have an
    /// answer, but another one is not wrong.
    pub fn unspecified(&self, op: &Op) -> Option<&'static str> {
        let small = self.unspecified_on_small(op);
        let small = small.or_else(|| self.unspecified_on_network(op));
        let library = self.unspecified_for_library(op).or(small);
        if let Some(why) = library.or_else(|| self.unspecified_lacking(op)) {
            return Some(why);
        }
        match op {
            _ if self.would_block(op) => Some("the call would wait for a peer of the FIFO"),
            Op::Open { .. } if self.reaches_driver(op) => {
                Some("opening a device reaches its driver, not the file system")
            }
            Op::Read { slot, len } if *len > 0 && self.is_listed(*slot) => Some(COOKIES),
            Op::Read { slot, len } => self.unspecified_read(*slot, None, *len),
            Op::Pread { slot, offset, len } => self.unspecified_read(*slot, Some(*offset), *len),
            Op::Write { slot, data } if self.writes_fifo(*slot) && data.len > 0 => {
                Some("what fits into a pipe is not the file system's business")
            }
            Op::Write { slot, data } => self.unspecified_write(*slot, None, data.len),
            Op::Pwrite { slot, offset, data } => {
                self.unspecified_write(*slot, Some(*offset), data.len)
            }
            Op::MmapStore { slot, offset, data, .. } => {
                self.unspecified_store(*slot, *offset, data.len)
            }
            Op::MmapLoad { slot, .. }
                if self.quirks().mapped_reads_may_be_old
                    && self.regular(*slot).is_some_and(|file| !file.writable()) =>
            {
                Some("the file may have been copied up since it was opened")
            }
            Op::LinkSlot { slot, by_proc, .. } => self.unspecified_link(*slot, *by_proc),
            Op::Lseek { slot, offset, whence } => self.unspecified_seek(*slot, *offset, *whence),
            Op::Fallocate { slot, .. } => self.unspecified_fallocate(*slot),
            Op::CopyFileRange { from, to, .. } if self.is_direct(*from) || self.is_direct(*to) => {
                Some(
                    "the pieces in which the kernel copies need not have the alignment of O_DIRECT",
                )
            }
            Op::CopyFileRange { from, from_offset, to, to_offset, len, .. } => self
                .unspecified_read(*from, *from_offset, *len)
                .or_else(|| self.unspecified_write(*to, *to_offset, *len)),
            Op::Setxattr { target, name, value, .. } => {
                self.unspecified_setxattr(target, name, *value)
            }
            Op::Getxattr { name, .. } | Op::Removexattr { name, .. } => unspecified_name(name),
            Op::Statfs { .. } if self.holds_secretly() => Some(
                "a FUSE server does not hear of O_PATH and open FIFOs, which keep their inodes",
            ),
            _ => None,
        }
    }

    fn holds_secretly(&self) -> bool {
        let secret = |file: &OpenFile| {
            let is_told = !file.is_path() && matches!(file.kind, Kind::File | Kind::Dir);
            !is_told && self.volume.attr(file.ino).is_ok_and(|attr| attr.nlink == 0)
        };
        self.quirks().statfs_comparable && self.open_files().any(secret)
    }

    fn regular(&self, slot: Slot) -> Option<OpenFile> {
        self.file(slot).ok().filter(|file| file.kind == Kind::File)
    }

    fn is_direct(&self, slot: Slot) -> bool {
        self.quirks().direct_align_bytes > 1
            && self.regular(slot).is_some_and(|file| file.flags.contains(OpenFlags::O_DIRECT))
    }

    fn writes_fifo(&self, slot: Slot) -> bool {
        self.file(slot).is_ok_and(|file| file.kind == Kind::Fifo && file.writable())
    }

    fn is_listed(&self, slot: Slot) -> bool {
        let in_pieces = self.current.files.listing(slot).is_some();
        self.file(slot).is_ok_and(|file| {
            file.kind == Kind::Dir && (in_pieces || file.position == END_OF_DIRECTORY)
        })
    }

    fn reaches_driver(&self, op: &Op) -> bool {
        let Op::Open { path, flags, .. } = op else { return false };
        let names_device = |follow| {
            let attr = self.resolve(path, follow).and_then(|ino| self.volume.attr(ino));
            attr.is_ok_and(|attr| matches!(attr.kind, Kind::Char | Kind::Block))
        };
        !flags.contains(OpenFlags::O_PATH)
            && (names_device(Follow::Yes) || names_device(Follow::No))
    }

    fn unspecified_read(&self, slot: Slot, offset: Option<i64>, len: u64) -> Option<&'static str> {
        let file = self.regular(slot)?;
        self.unspecified_transfer(&file, offset.unwrap_or(file.position), len)
    }

    /// With `O_APPEND` the offset does not count, but xfs looks at its alignment all the same.
    fn unspecified_write(&self, slot: Slot, offset: Option<i64>, len: u64) -> Option<&'static str> {
        let file = self.regular(slot)?;
        let end = match file.flags.contains(OpenFlags::O_APPEND) {
            true => self.volume.attr(file.ino).ok()?.size as i64,
            false => 0,
        };
        let start = offset.unwrap_or(file.position);
        if self.quirks().last_page_not_found
            && start.max(end).saturating_add_unsigned(len) > LAST_PAGE
        {
            return Some("what is in the last page below 2^63 is not found");
        }
        self.unspecified_transfer(&file, start, len)
            .or_else(|| self.unspecified_transfer(&file, end, len))
    }

    fn unspecified_store(&self, slot: Slot, offset: i64, len: u64) -> Option<&'static str> {
        let quirks = self.quirks();
        let why = match (quirks.mapped_tail_shows, quirks.mapped_tail_allocates) {
            (true, _) => Some("what is stored behind the end of a file shows when it grows"),
            (false, true) => {
                Some("a store behind the end of a file may need a block in front of it")
            }
            (false, false) => None,
        };
        let stores_behind =
            || self.regular(slot).is_some_and(|file| self.tail(&file, offset, len).is_some());
        if why.is_some() && stores_behind() {
            return why;
        }
        if quirks.last_page_not_found {
            return self.unspecified_write(slot, Some(offset), len);
        }
        None
    }

    /// linkat(2) with `AT_EMPTY_PATH` "requires CAP_DAC_READ_SEARCH", since Linux 6.10 not if the very
    /// credentials of the caller have opened the file (fs/namei.c `path_init`, `LOOKUP_LINKAT_EMPTY`).
    fn unspecified_link(&self, slot: Slot, by_proc: bool) -> Option<&'static str> {
        let file = self.file_or_path(slot).ok()?;
        if !by_proc && !self.current.identity.is_privileged() {
            return Some("whether a descriptor is its caller's depends on the kernel");
        }
        let nameless = self.volume.attr(file.ino).is_ok_and(|attr| attr.nlink == 0);
        (nameless && self.quirks().silly_renames)
            .then_some("whether the file has a hidden name depends on the client")
    }

    /// open(2): the alignment that `O_DIRECT` needs "varies by file system and kernel version and
    /// might be absent entirely".
    fn unspecified_transfer(&self, file: &OpenFile, start: i64, len: u64) -> Option<&'static str> {
        let direct = file.flags.contains(OpenFlags::O_DIRECT);
        (direct && !self.is_direct_aligned(start, len))
            .then_some("the alignment of direct transfers varies")
    }

    fn unspecified_seek(&self, slot: Slot, offset: i64, whence: Whence) -> Option<&'static str> {
        let file = self.file(slot).ok()?;
        let size = self.volume.attr(file.ino).ok()?.size as i64;
        let segment = matches!(whence, Whence::Data | Whence::Hole) && offset < size;
        let quirks = self.quirks();
        let last_page = size > LAST_PAGE && quirks.last_page_not_found;
        match file.kind {
            Kind::Dir if whence != Whence::Set => Some(COOKIES),
            Kind::File if whence == Whence::Data && offset < 0 && quirks.seek_negative_is_zero => {
                Some("a negative offset finds data only until it is written back")
            }
            Kind::File if segment && last_page => {
                Some("the end of the last page below 2^63 is no offset")
            }
            _ => None,
        }
    }

    fn unspecified_fallocate(&self, slot: Slot) -> Option<&'static str> {
        let attr = self.volume.attr(self.regular(slot)?.ino).ok()?;
        let kills = !self.current.identity.is_privileged() && self.has_privileges_to_kill(&attr);
        (kills && self.quirks().fallocate_privileges_vary)
            .then_some("whether setuid and setgid go depends on the layout")
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
    fn mapped_reads_may_be_old_where_files_are_copied_up() {
        let mut m = model_with(Quirks::profile("overlay-populated").unwrap());
        given(&mut m, &[open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR), write(0, 1, 5)]);
        given(&mut m, &[open(1, "f", OpenFlags::empty())]);
        let load = |slot| Op::MmapLoad { slot, offset: 0, len: 5 };
        assert!(m.unspecified(&load(1)).is_some());
        assert_eq!(m.unspecified(&load(0)), None);
        assert_eq!(m.unspecified(&Op::Pread { slot: 1, offset: 0, len: 5 }), None);
    }

    /// On btrfs `check btrfs-holes --seed 1` accused SEEK_DATA: with data that is written back it fails.
    #[test]
    fn negative_offsets_of_data_are_not_specified_where_they_are_taken() {
        for (name, unspecified) in [("btrfs", true), ("ext4", false)] {
            let mut m = model_with(Quirks::profile(name).unwrap());
            given(&mut m, &[open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR), write(0, 1, 5)]);
            let seek = |offset, whence| Op::Lseek { slot: 0, offset, whence };
            assert_eq!(m.unspecified(&seek(-1, Whence::Data)).is_some(), unspecified, "{name}");
            assert_eq!(m.unspecified(&seek(-1, Whence::Hole)), None, "{name}");
            assert_eq!(m.unspecified(&seek(0, Whence::Data)), None, "{name}");
        }
    }

    #[test]
    fn copies_to_and_from_direct_files_are_not_specified() {
        let mut m = model_with(Quirks::profile("ext4").unwrap());
        let file = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
        given(&mut m, &[open(0, "f", file), write(0, 1, 1)]);
        given(&mut m, &[open(1, "g", file | OpenFlags::O_DIRECT), open(2, "h", file)]);
        let copy = |from, to| Op::CopyFileRange {
            from,
            from_offset: Some(0),
            to,
            to_offset: Some(0),
            len: 512,
            flags: 0,
        };
        assert!(m.unspecified(&copy(0, 1)).is_some());
        assert!(m.unspecified(&copy(1, 0)).is_some());
        assert_eq!(m.unspecified(&copy(0, 2)), None);
    }

    #[test]
    fn space_is_not_specified_while_a_path_descriptor_has_no_name() {
        let mut m = model_with(Quirks { statfs_comparable: true, ..Quirks::default() });
        let statfs = Op::Statfs { target: at(".") };
        given(&mut m, &[open(0, "f", OpenFlags::O_CREAT), open(1, "f", OpenFlags::O_PATH)]);
        assert_eq!(m.unspecified(&statfs), None);
        given(&mut m, &[Op::Unlink { path: path("f") }]);
        assert!(m.unspecified(&statfs).is_some());
        given(&mut m, &[close(1)]);
        assert_eq!(m.unspecified(&statfs), None);
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
