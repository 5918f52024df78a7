//! The places of the arguments of each system call in registers and memory, and what they say about
//! files.
//!
//! The kinds of arguments come from the table of `fathom-core`; added here is what only a tracer
//! needs: the offsets of fields in structures, and how a call resolves its paths.

use std::sync::LazyLock;

use fathom_core::partition::{Arg, ArgKind, Base, table};

use crate::sample::FastMap;

/// Arguments of one call that are kept: `setxattrat` has nine; even, so that samples end aligned.
pub const SLOTS_MAX: usize = 10;

/// The form in which an argument is kept. The numbers are those of `bpf/encode.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotKind {
    /// Nothing: the argument is not partitioned.
    Skip = 0,
    /// The low 32 bits as they are: flags, a value of a list.
    Bits = 1,
    /// An amount of 64 bits.
    Amount = 2,
    /// A signed amount of 64 bits.
    SignedAmount = 3,
    /// An amount of 32 bits.
    Amount32 = 4,
    /// A signed amount of 32 bits.
    SignedAmount32 = 5,
    /// Whether a descriptor is open.
    Fd = 6,
    /// Whether a descriptor is open, or is the current directory; the base of the path that
    /// follows.
    DirFd = 7,
    /// Class and length of a path, which is resolved.
    Path = 8,
    /// Class and length of a text.
    Text = 9,
    /// Namespace and length of the name of an extended attribute.
    XattrName = 10,
    /// Root, another user, or "leave as it is".
    Id = 11,
    /// Whether there is an address.
    Pointer = 12,
    /// An offset of 64 bits behind a pointer, if there is one.
    Offset = 13,
    /// Whether there is an address; the mapping there says which file is concerned.
    Mapping = 14,
    /// Whether a descriptor is open, of a file that is not concerned: a number to be taken.
    FdNumber = 15,
    /// 64 bits of which only the lower half has names.
    WideBits = 16,
    /// A path if it is absolute, else any text (the source of a mount).
    PathOrText = 17,
}

/// The place of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A register, counted from 0.
    Register(u8),
    /// A field of the structure to which a register points.
    Field {
        /// The register.
        register: u8,
        /// Bytes from the start of the structure.
        offset: u8,
        /// The size of the field: 4 or 8.
        bytes: u8,
    },
}

/// One kept argument.
#[derive(Debug)]
pub struct Slot {
    /// Its name in the table.
    pub name: &'static str,
    /// Its partitions.
    pub arg: &'static Arg,
    /// The form in which it is kept.
    pub kind: SlotKind,
    /// Its place.
    pub source: Source,
}

/// The treatment of the last component of the paths of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Whether a symbolic link there is followed.
    pub by_default: bool,
    /// A bit that inverts `by_default`: register and mask.
    pub toggle: Option<(u8, u32)>,
    /// Index of the first path whose last component is only a name in its directory (mkdir, unlink,
    /// rename, …).
    pub parent_from: u8,
}

/// A system call.
#[derive(Debug)]
pub struct Call {
    /// Its name.
    pub name: &'static str,
    /// The name of its family.
    pub base: &'static str,
    /// Its family.
    pub family: &'static Base,
    /// Its number on x86-64.
    pub nr: u32,
    /// The kept arguments.
    pub slots: Vec<Slot>,
    /// Arguments that it does not have, each with the value that it counts as.
    pub implied: Vec<(&'static str, &'static Arg, u64)>,
    /// The treatment of the last component of its paths.
    pub follow: Follow,
    /// Whether success returns a descriptor of the file concerned.
    pub opens: bool,
    /// Whether it has no operand and concerns every file system.
    pub global: bool,
    /// Whether it has no operand and concerns the working directory.
    pub here: bool,
}

/// Fields of structures: call, pointer, field, offset and bytes (from the kernel's uapi headers
/// `openat2.h`, `xattr.h`, `fs.h`, `mount.h`, `io_uring.h`).
const FIELDS: &[(&str, &str, &str, u8, u8)] = &[
    ("openat2", "how", "flags", 0, 8),
    ("openat2", "how", "mode", 8, 8),
    ("openat2", "how", "resolve", 16, 8),
    ("setxattrat", "xattr_args", "value", 0, 8),
    ("setxattrat", "xattr_args", "size", 8, 4),
    ("setxattrat", "xattr_args", "flags", 12, 4),
    ("getxattrat", "xattr_args", "value", 0, 8),
    ("getxattrat", "xattr_args", "size", 8, 4),
    ("file_setattr", "ufattr", "fa_xflags", 0, 8),
    ("mount_setattr", "attr", "attr_set", 0, 8),
    ("mount_setattr", "attr", "attr_clr", 8, 8),
    ("mount_setattr", "attr", "propagation", 16, 8),
    ("io_uring_setup", "params", "flags", 8, 4),
];

/// Calls whose last component is only a name in its directory.
const PARENT: &[&str] = &[
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "rmdir",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "symlink",
    "symlinkat",
];

/// Value of [`Follow::parent_from`] if no path of a call is only a name.
pub const NO_PARENT: u8 = 2;

/// Calls that do not follow a last symbolic link, whatever their flags.
const NO_FOLLOW: &[&str] = &[
    "lstat",
    "lchown",
    "readlink",
    "readlinkat",
    "lsetxattr",
    "lgetxattr",
    "llistxattr",
    "lremovexattr",
    "link",
];

/// Calls with a flag that decides whether a last symbolic link is followed: the argument, the bit,
/// and whether links are followed without it.
const TOGGLES: &[(&str, &str, u32, bool)] = &[
    ("open", "flags", 0o400_000, true),
    ("openat", "flags", 0o400_000, true),
    ("newfstatat", "flags", 0x100, true),
    ("statx", "flags", 0x100, true),
    ("utimensat", "flags", 0x100, true),
    ("fchownat", "flags", 0x100, true),
    ("faccessat2", "flags", 0x100, true),
    ("fchmodat2", "flags", 0x100, true),
    ("setxattrat", "at_flags", 0x100, true),
    ("getxattrat", "at_flags", 0x100, true),
    ("listxattrat", "at_flags", 0x100, true),
    ("removexattrat", "at_flags", 0x100, true),
    ("file_getattr", "at_flags", 0x100, true),
    ("file_setattr", "at_flags", 0x100, true),
    ("execveat", "flags", 0x100, true),
    ("open_tree", "flags", 0x100, true),
    ("open_tree_attr", "flags", 0x100, true),
    ("mount_setattr", "flags", 0x100, true),
    ("name_to_handle_at", "flags", 0x400, false),
    ("linkat", "flags", 0x400, false),
    ("inotify_add_watch", "mask", 0x0200_0000, true),
    ("umount2", "flags", 8, true),
    ("fspick", "flags", 2, true),
    ("fanotify_mark", "flags", 4, true),
    ("move_mount", "flags", 1, false),
];

/// Every call, in the order of the numbers.
pub fn calls() -> &'static [Call] {
    static CALLS: LazyLock<Vec<Call>> = LazyLock::new(|| {
        let mut calls: Vec<Call> = table()
            .bases
            .iter()
            .flat_map(|(base, family)| {
                family.syscalls.keys().map(move |name| Call::new(base, family, name))
            })
            .collect();
        calls.sort_by_key(|call| call.nr);
        calls
    });
    &CALLS
}

/// The index of a call in [`calls`] by its name.
pub fn index_of(name: &str) -> Option<u16> {
    static INDEX: LazyLock<FastMap<&'static str, u16>> = LazyLock::new(|| {
        calls().iter().enumerate().map(|(index, call)| (call.name, index as u16)).collect()
    });
    INDEX.get(name).copied()
}

/// The index of a call in [`calls`] by its number.
pub fn index_of_nr(nr: u64) -> Option<u16> {
    let found = calls().binary_search_by_key(&nr, |call| call.nr.into());
    found.ok().map(|index| index as u16)
}

impl Call {
    fn new(base: &'static str, family: &'static Base, name: &'static str) -> Call {
        let syscall = &family.syscalls[name];
        let register = |param: &str| {
            syscall.params.iter().position(|other| other == param).map(|index| index as u8)
        };
        let slot = |name: &str, source| {
            let (name, arg) = family.args.get_key_value(name).expect("a test of core checks it");
            Slot { name, arg, kind: kind_of(arg, name, base), source }
        };
        let mut slots: Vec<Slot> = Vec::new();
        for (index, param) in syscall.params.iter().enumerate() {
            slots.push(slot(param, Source::Register(index as u8)));
        }
        for (call, pointer, field, offset, bytes) in FIELDS {
            if *call == name {
                let register = register(pointer).expect("the structure is an argument");
                let source = Source::Field { register, offset: *offset, bytes: *bytes };
                slots.push(slot(field, source));
            }
        }
        let implied = syscall.implied.iter().map(|(arg, value)| {
            let (arg, details) = family.args.get_key_value(arg).expect("a test of core checks it");
            (arg.as_str(), details, *value)
        });
        let toggle = TOGGLES.iter().find(|(call, ..)| *call == name);
        Call {
            name,
            base,
            family,
            nr: syscall.nr,
            slots,
            implied: implied.collect(),
            follow: Follow {
                by_default: toggle.map_or(!NO_FOLLOW.contains(&name), |toggle| toggle.3),
                toggle: toggle.and_then(|(_, arg, mask, _)| Some((register(arg)?, *mask))),
                parent_from: match name {
                    "link" | "linkat" => 1,
                    _ if PARENT.contains(&name) => 0,
                    _ => NO_PARENT,
                },
            },
            opens: matches!(base, "open" | "open_by_handle_at" | "open_tree"),
            global: matches!(name, "sync" | "umask"),
            here: name == "getcwd",
        }
    }
}

fn kind_of(arg: &'static Arg, name: &str, base: &str) -> SlotKind {
    match &arg.kind {
        _ if arg.ignored => SlotKind::Skip,
        ArgKind::Bitmask(mask) if mask.width == 64 => SlotKind::WideBits,
        ArgKind::Bitmask(_) | ArgKind::Categorical(_) => SlotKind::Bits,
        ArgKind::Numeric(numeric) => match (numeric.width, numeric.signed) {
            (32, false) => SlotKind::Amount32,
            (32, true) => SlotKind::SignedAmount32,
            (_, false) => SlotKind::Amount,
            (_, true) => SlotKind::SignedAmount,
        },
        ArgKind::Identifier(identifier) => match identifier.refers_to.as_str() {
            "fd" if matches!(name, "newfd" | "first" | "last") => SlotKind::FdNumber,
            "fd" => SlotKind::Fd,
            "dirfd" => SlotKind::DirFd,
            "path" => SlotKind::Path,
            "string_or_path" => SlotKind::PathOrText,
            // The target of a new symbolic link; names of file systems and keys.
            "string" => SlotKind::Text,
            "xattr_name" => SlotKind::XattrName,
            "uid" | "gid" => SlotKind::Id,
            _ => SlotKind::Skip,
        },
        ArgKind::Pointer(pointer) if pointer.deref.is_some() => SlotKind::Offset,
        ArgKind::Pointer(_) if name == "addr" && matches!(base, "munmap" | "msync" | "madvise") => {
            SlotKind::Mapping
        }
        ArgKind::Pointer(_) => SlotKind::Pointer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_fits_and_every_name_of_the_tables_exists() {
        assert_eq!(calls().len(), 144);
        assert!(calls().iter().all(|call| call.slots.len() <= SLOTS_MAX));
        assert!(calls().windows(2).all(|pair| pair[0].nr < pair[1].nr));
        for name in PARENT.iter().chain(NO_FOLLOW) {
            assert!(index_of(name).is_some(), "{name}");
        }
        for (name, ..) in TOGGLES {
            let call = &calls()[usize::from(index_of(name).expect(name))];
            assert!(call.follow.toggle.is_some(), "{name}");
        }
        for (name, pointer, ..) in FIELDS {
            let call = &calls()[usize::from(index_of(name).expect(name))];
            assert!(call.slots.iter().any(|slot| slot.name == *pointer), "{name}.{pointer}");
        }
    }

    #[test]
    fn the_names_of_a_link_are_a_path_and_its_contents_are_not() {
        let kinds = |name| {
            let call = &calls()[usize::from(index_of(name).expect("it exists"))];
            call.slots.iter().map(|slot| slot.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds("symlinkat"), [SlotKind::Text, SlotKind::DirFd, SlotKind::Path]);
        assert_eq!(kinds("munmap"), [SlotKind::Mapping, SlotKind::Amount]);
        assert_eq!(kinds("pread64").last(), Some(&SlotKind::SignedAmount));
        assert_eq!(kinds("openat2").len(), 7);
    }
}
