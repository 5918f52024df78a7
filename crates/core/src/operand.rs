//! The one table of what every operation is made of.
//!
//! Each row has the name under which an operation is stored, the call that a tracer of system calls
//! would see, and the operands in the order in which people write them: slots, paths, amounts, data,
//! flags, with what the operation does to them and the names of the arguments in
//! `data/syscalls.json`. Whoever wants to know something about operations in general asks the table,
//! and does not list operations: how they are shown ([`std::fmt::Display`]), their partitions
//! ([`crate::partition::op`]), the classes that coverage counts, smaller arguments, what was touched, the packed form.
//! A new operation is a row here; a new kind of operand makes the compiler list who must know it.

use crate::bytes::{FsBytes, FsPath};
use crate::flags::{
    AccessMode, FallocateMode, Mode, MsyncFlags, OpenFlags, RenameFlags, ServerEvents,
    SyncRangeFlags, Whence, XattrFlags,
};
use crate::op::{Op, Slot, Target, TimeArg};
use crate::packed::Packed;
use crate::pattern::Pattern;

use Effect::{Binds, Changes, Reads};
use Naming::{DirOrEmpty, DirOrFd, DirOrNull, Plain};
use Traced::{Call, Listing, Mapping, Nothing, Piece};

/// The name of an argument in `data/syscalls.json`.
pub type Arg = &'static str;

/// What an operation does with what an operand names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Looks at it.
    Reads,
    /// Changes the file.
    Changes,
    /// Makes, replaces or removes the name; fills the slot.
    Binds,
}

/// How a [`Target`] is handed to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As `path`; a slot as `fd`.
    Plain,
    /// As `dirfd` and `path`; a slot as `fd`.
    DirOrFd,
    /// As `dirfd` and `path`; a slot as `dirfd` and no path.
    DirOrNull,
    /// As `dirfd` and `path`; a slot as `dirfd` and an empty path.
    DirOrEmpty,
}

/// What a tracer of system calls sees of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// No call on a file system.
    Nothing,
    /// One call.
    Call(&'static str),
    /// `getdents`, until everything is listed.
    Listing,
    /// `getdents`, once.
    Piece,
    /// `mmap`, and `msync` if there is something to store.
    Mapping {
        /// The protection of the mapping.
        prot: u64,
    },
}

/// `AT_…` flags that follow from how a target is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtFlags {
    /// Their bits.
    pub bits: u64,
    /// Whether the call has an argument `flags` for them.
    pub counted: bool,
    /// Whether people write them; if not, the name of the call says it (`lstat`).
    pub shown: bool,
}

/// A set of flags of one of the types in [`crate::flags`].
pub trait FlagSet {
    /// Its bits.
    fn get(&self) -> u32;
    /// Replaces its bits.
    fn set(&mut self, bits: u32);
    /// As `strace` shows them; empty where nothing is written.
    fn text(&self) -> String;
}

macro_rules! flag_sets {
    ($($name:ident => $text:expr;)*) => {$(
        impl FlagSet for $name {
            fn get(&self) -> u32 {
                self.bits()
            }

            fn set(&mut self, bits: u32) {
                *self = $name::from_bits_retain(bits);
            }

            fn text(&self) -> String {
                let text: fn($name) -> String = $text;
                text(*self)
            }
        }
    )*};
}

flag_sets! {
    OpenFlags => |flags| flags.names().join("|");
    RenameFlags => |flags| if flags.is_empty() { String::new() } else { compact(&flags) };
    AccessMode => |mode| if mode.is_empty() { "F_OK".to_owned() } else { compact(&mode) };
    FallocateMode => |mode| compact(&mode);
    XattrFlags => |flags| compact(&flags);
    MsyncFlags => |flags| compact(&flags);
    ServerEvents => |events| compact(&events);
    SyncRangeFlags => |flags| compact(&flags);
}

fn compact(flags: &impl ToString) -> String {
    flags.to_string().replace(" | ", "|")
}

/// Declares the kinds of operands, with references to read and to change them.
macro_rules! kinds {
    ($(#[$meta:meta])* $name:ident $(<$mutable:tt>)?) => {
        $(#[$meta])*
        pub enum $name<'a> {
            /// An open file; `open` itself has no argument for it.
            Slot(&'a $($mutable)? Slot, Option<Arg>, Effect),
            /// A path, after the directory that it is relative to, if the call has one.
            Path(&'a $($mutable)? FsPath, Option<Arg>, Arg, Effect),
            /// A path or an open file.
            Target(&'a $($mutable)? Target, Naming, Effect),
            /// The text in a symbolic link.
            Text(&'a $($mutable)? FsBytes, Arg),
            /// The name of an extended attribute.
            XattrName(&'a $($mutable)? FsBytes, Arg),
            /// Where in a file.
            Offset(&'a $($mutable)? i64, Arg),
            /// Where in a file, or where the file is at.
            Position(&'a $($mutable)? Option<i64>, Arg),
            /// How far from a [`Whence`].
            Distance(&'a $($mutable)? i64, Arg),
            /// Bytes.
            Length(&'a $($mutable)? u64, Arg),
            /// Bytes, of which the call looks at the lower 32 bits.
            IntLength(&'a $($mutable)? u64, Arg),
            /// Bytes, possibly a wrong number of them.
            SignedLength(&'a $($mutable)? i64, Arg),
            /// Bytes to be written: the arguments for the address and the number of them.
            Data(&'a $($mutable)? Pattern, Arg, Arg),
            /// Named flags.
            Flags(&'a $($mutable)? dyn FlagSet, Arg),
            /// Flags without names.
            Number(&'a $($mutable)? u32, Arg),
            /// How many pieces of a listing to go back.
            Back(&'a $($mutable)? u32),
            /// Where a [`Operand::Distance`] starts.
            Whence(&'a $($mutable)? Whence, Arg),
            /// Permissions, possibly with a type; without an argument the call ignores them.
            Mode(&'a $($mutable)? Mode, Option<Arg>),
            /// Permissions that are taken away.
            Mask(&'a $($mutable)? Mode, Arg),
            /// Major and minor number of a device.
            Device(&'a $($mutable)? (u32, u32)),
            /// An owner or a group to be set.
            Owner(&'a $($mutable)? Option<u32>, Arg),
            /// A user or a group to become.
            Id(&'a $($mutable)? u32, &'static str),
            /// Supplementary groups to have.
            Groups(&'a $($mutable)? Vec<u32>),
            /// A time to be set.
            Time(&'a $($mutable)? TimeArg),
            /// Flags that follow from the other operands.
            At(AtFlags),
            /// Memory that the call reads or fills.
            Buffer(Arg),
            /// An argument that is always the same.
            Fixed(Arg, u64),
        }
    };
}

kinds! {
    /// One operand of an operation.
    #[derive(Clone, Copy)]
    Operand
}

kinds! {
    /// One operand of an operation, to be changed.
    OperandMut<mut>
}

/// `AT_SYMLINK_NOFOLLOW`
pub(crate) const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
/// `AT_EACCESS`
pub(crate) const AT_EACCESS: u64 = 0x200;
/// `AT_SYMLINK_FOLLOW`
pub(crate) const AT_SYMLINK_FOLLOW: u64 = 0x400;
const AT_EMPTY_PATH: u64 = 0x1000;

/// Without one of them open(2) ignores the mode.
const OPEN_CREATES: OpenFlags = OpenFlags::O_CREAT.union(OpenFlags::O_TMPFILE_BIT);
const STATX_BASIC_STATS: u64 = 0x7ff;
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;

/// Makes the functions that read the table. `@` binds what several operands need.
macro_rules! table {
    ($($variant:ident { $($field:ident),* } $name:literal, $traced:expr $(, $call:expr)?;
        $(@ $bound:ident = $value:expr;)*
        [$($kind:ident($($part:expr),*)),*])*
    ) => {
        /// The numbers of the operations in packed form: their places in the table.
        #[repr(u8)]
        enum Number {
            $($variant),*
        }

        impl Op {
            /// The name under which the operation is stored in traces and counted in coverage.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Op::$variant { .. } => $name,)*
                }
            }

            /// The system call by which the operation is executed (`fchmod` where a slot is the
            /// target).
            #[allow(unused_variables, reason = "most calls have one name")]
            pub fn call(&self) -> &'static str {
                match self {
                    $(Op::$variant { $($field),* } => [$($call,)? $name][0],)*
                }
            }

            /// What a tracer of system calls sees of it.
            pub fn traced(&self) -> Traced {
                match self {
                    $(Op::$variant { .. } => $traced,)*
                }
            }

            /// Visits the operands in the order in which people write them.
            #[inline]
            pub fn operands<'a>(&'a self, mut visit: impl FnMut(Operand<'a>)) {
                match self {
                    $(Op::$variant { $($field),* } => {
                        $(let $bound = $value;)*
                        $(visit(Operand::$kind($($part),*));)*
                    })*
                }
            }

            /// Appends the operation to `to` in the form of [`crate::packed`].
            pub fn pack(&self, to: &mut Vec<u8>) {
                match self {
                    $(Op::$variant { $($field),* } => {
                        to.push(Number::$variant as u8);
                        $($field.pack(to);)*
                    })*
                }
            }

            /// Reads a packed operation; `None` if `bytes` are anything else.
            pub fn unpack(bytes: &[u8]) -> Option<Op> {
                let (number, mut rest) = bytes.split_first()?;
                $(if *number == Number::$variant as u8 {
                    let op = Op::$variant { $($field: Packed::unpack(&mut rest)?),* };
                    return rest.is_empty().then_some(op);
                })*
                None
            }

            /// Visits the operands to change them.
            pub fn operands_mut<'a>(&'a mut self, mut visit: impl FnMut(OperandMut<'a>)) {
                match self {
                    $(Op::$variant { $($field),* } => {
                        $(let $bound = $value;)*
                        $(visit(OperandMut::$kind($($part),*));)*
                    })*
                }
            }
        }
    };
}

table! {
    Open { slot, path, flags, mode } "open", Call("open");
        @effect = if flags.contains(OpenFlags::O_CREAT) { Binds } else { Reads };
        @mode_arg = flags.intersects(OPEN_CREATES).then_some("mode");
        [Slot(slot, None, Binds), Path(path, Some("dirfd"), "path", effect), Flags(flags, "flags"),
            Mode(mode, mode_arg)]
    Close { slot } "close", Call("close");
        [Slot(slot, Some("fd"), Reads)]
    Read { slot, len } "read", Call("read");
        [Slot(slot, Some("fd"), Reads), Buffer("buf"), Length(len, "count")]
    Pread { slot, offset, len } "pread", Call("read");
        [Slot(slot, Some("fd"), Reads), Buffer("buf"), Length(len, "count"),
            Offset(offset, "offset")]
    Write { slot, data } "write", Call("write");
        [Slot(slot, Some("fd"), Changes), Data(data, "buf", "count")]
    Pwrite { slot, offset, data } "pwrite", Call("write");
        [Slot(slot, Some("fd"), Changes), Data(data, "buf", "count"), Offset(offset, "offset")]
    Lseek { slot, offset, whence } "lseek", Call("lseek");
        [Slot(slot, Some("fd"), Reads), Distance(offset, "offset"), Whence(whence, "whence")]
    Truncate { target, len } "truncate", Call("truncate"),
        by(target, ["truncate", "truncate", "ftruncate"]);
        [Target(target, Plain, Changes), SignedLength(len, "length")]
    Fallocate { slot, mode, offset, len } "fallocate", Call("fallocate");
        [Slot(slot, Some("fd"), Changes), Flags(mode, "mode"), Offset(offset, "offset"),
            SignedLength(len, "len")]
    Mkdir { path, mode } "mkdir", Call("mkdir");
        [Path(path, Some("dirfd"), "path", Binds), Mode(mode, Some("mode"))]
    Rmdir { path } "rmdir", Call("rmdir");
        [Path(path, None, "path", Binds)]
    Unlink { path } "unlink", Call("unlink");
        [Path(path, Some("dirfd"), "path", Binds), Fixed("flags", 0)]
    Rename { from, to, flags } "rename", Call("rename"),
        if flags.is_empty() { "rename" } else { "renameat2" };
        [Path(from, Some("olddirfd"), "oldpath", Binds),
            Path(to, Some("newdirfd"), "newpath", Binds), Flags(flags, "flags")]
    Link { from, to, follow } "link", Call("link");
        @bits = if *follow { AT_SYMLINK_FOLLOW } else { 0 };
        [Path(from, Some("olddirfd"), "oldpath", Changes),
            Path(to, Some("newdirfd"), "newpath", Binds),
            At(AtFlags { bits, counted: true, shown: true })]
    Symlink { target, path } "symlink", Call("symlink");
        [Text(target, "target"), Path(path, Some("newdirfd"), "linkpath", Binds)]
    Readlink { path, len } "readlink", Call("readlink");
        [Path(path, Some("dirfd"), "path", Reads), Buffer("buf"), IntLength(len, "bufsiz")]
    Mknod { path, mode, dev } "mknod", Call("mknod");
        [Path(path, Some("dirfd"), "path", Binds), Mode(mode, Some("mode")), Device(dev)]
    Chmod { target, mode } "chmod", Call("chmod"), by(target, ["chmod", "fchmodat2", "fchmod"]);
        @bits = no_follow(target);
        [Target(target, Plain, Changes), Mode(mode, Some("mode")),
            At(AtFlags { bits, counted: bits != 0, shown: true })]
    Chown { target, uid, gid } "chown", Call("chown"), by(target, ["chown", "lchown", "fchown"]);
        @at = AtFlags { bits: no_follow(target), counted: !is_slot(target), shown: false };
        [Target(target, DirOrFd, Changes), Owner(uid, "owner"), Owner(gid, "group"), At(at)]
    Utimens { target, atime, mtime } "utimens", Call("utime"),
        by(target, ["utimensat", "utimensat", "futimens"]);
        @bits = no_follow(target);
        [Target(target, DirOrNull, Changes), Time(atime), Time(mtime), Buffer("times"),
            At(AtFlags { bits, counted: true, shown: true })]
    Setxattr { target, name, value, flags } "setxattr", Call("setxattr"),
        by(target, ["setxattr", "lsetxattr", "fsetxattr"]);
        [Target(target, Plain, Changes), XattrName(name, "name"), Data(value, "value", "size"),
            Flags(flags, "flags")]
    Getxattr { target, name, len } "getxattr", Call("getxattr"),
        by(target, ["getxattr", "lgetxattr", "fgetxattr"]);
        [Target(target, Plain, Reads), XattrName(name, "name"), Buffer("value"),
            Length(len, "size")]
    Listxattr { target, len } "listxattr", Call("listxattr"),
        by(target, ["listxattr", "llistxattr", "flistxattr"]);
        [Target(target, Plain, Reads), Buffer("list"), Length(len, "size")]
    Removexattr { target, name } "removexattr", Call("removexattr"),
        by(target, ["removexattr", "lremovexattr", "fremovexattr"]);
        [Target(target, Plain, Changes), XattrName(name, "name")]
    Stat { target } "stat", Call("stat"), by(target, ["stat", "lstat", "fstat"]);
        @bits = no_follow(target) | empty_path(target);
        [Target(target, DirOrEmpty, Reads), At(AtFlags { bits, counted: true, shown: false }),
            Fixed("mask", STATX_BASIC_STATS), Buffer("statxbuf")]
    Getdents { slot } "getdents", Listing;
        [Slot(slot, Some("fd"), Reads), Buffer("dirp")]
    Statfs { target } "statfs", Call("statfs"), by(target, ["statfs", "statfs", "fstatfs"]);
        [Target(target, Plain, Reads), Buffer("buf")]
    Access { target, mode, effective } "access", Call("access"), "faccessat2";
        @extra = if *effective { AT_EACCESS } else { 0 };
        @bits = no_follow(target) | empty_path(target) | extra;
        [Target(target, DirOrEmpty, Reads), Flags(mode, "mode"),
            At(AtFlags { bits, counted: true, shown: true })]
    Fsync { slot } "fsync", Call("fsync");
        [Slot(slot, Some("fd"), Reads)]
    Fdatasync { slot } "fdatasync", Call("fsync");
        [Slot(slot, Some("fd"), Reads)]
    Sync {} "sync", Call("sync");
        []
    Syncfs { slot } "syncfs", Call("sync");
        [Slot(slot, Some("fd"), Reads)]
    SyncFileRange { slot, offset, len, flags } "sync_file_range", Call("sync_file_range");
        [Slot(slot, Some("fd"), Reads), Offset(offset, "offset"), SignedLength(len, "nbytes"),
            Flags(flags, "flags")]
    MmapStore { slot, offset, data, sync } "mmap_store", Mapping { prot: PROT_READ | PROT_WRITE };
        [Slot(slot, Some("fd"), Changes), Data(data, "addr", "length"), Offset(offset, "offset"),
            Flags(sync, "flags")]
    MmapLoad { slot, offset, len } "mmap_load", Mapping { prot: PROT_READ };
        [Slot(slot, Some("fd"), Reads), Length(len, "length"), Offset(offset, "offset")]
    CopyFileRange { from, from_offset, to, to_offset, len, flags }
        "copy_file_range", Call("copy_file_range");
        [Slot(from, Some("fd_in"), Reads), Position(from_offset, "off_in"),
            Slot(to, Some("fd_out"), Changes), Position(to_offset, "off_out"),
            Length(len, "size"), Number(flags, "flags")]
    Umask { mask } "umask", Call("umask");
        [Mask(mask, "mask")]
    Identity { uid, gid, groups } "identity", Nothing;
        [Id(uid, "uid"), Id(gid, "gid"), Groups(groups)]
    Remount {} "remount", Nothing;
        []
    Wait { seconds } "wait", Nothing;
        [Number(seconds, "seconds")]
    Server { events } "server", Nothing;
        [Flags(events, "events")]
    LinkSlot { slot, to, by_proc } "link_slot", Call("link"), "linkat";
        @bits = if *by_proc { AT_SYMLINK_FOLLOW } else { AT_EMPTY_PATH };
        [Slot(slot, Some("olddirfd"), Changes), Path(to, Some("newdirfd"), "newpath", Binds),
            At(AtFlags { bits, counted: true, shown: true })]
    ListPiece { slot, back, len } "list_piece", Piece, "getdents64";
        [Slot(slot, Some("fd"), Reads), Back(back), Buffer("dirp"), Length(len, "count")]
}

/// The call for a path, for a link itself, for a slot.
fn by(target: &Target, [path, link, slot]: [&'static str; 3]) -> &'static str {
    match target {
        Target::Path(_) => path,
        Target::Link(_) => link,
        Target::Slot(_) => slot,
    }
}

fn is_slot(target: &Target) -> bool {
    matches!(target, Target::Slot(_))
}

fn no_follow(target: &Target) -> u64 {
    if matches!(target, Target::Link(_)) { AT_SYMLINK_NOFOLLOW } else { 0 }
}

fn empty_path(target: &Target) -> u64 {
    if is_slot(target) { AT_EMPTY_PATH } else { 0 }
}
