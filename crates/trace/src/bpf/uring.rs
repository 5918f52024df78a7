//! Maps operations of io_uring to the system calls that they stand for.
//!
//! The place of each argument in the submission entry comes from the `io_…_prep` functions of the
//! kernel's `io_uring/` directory and from io_uring_enter(2).

use crate::layout::{calls, index_of};

/// The place of an argument in a submission entry; the numbers are those of `bpf/cover.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Place {
    Nothing = 0,
    Fd = 1,
    Off = 2,
    Addr = 3,
    Len = 4,
    Flags = 5,
    Addr3 = 6,
    SpliceFd = 7,
}

use Place::{Addr, Addr3, Fd, Flags, Len, Nothing, Off, SpliceFd};

/// The operations: opcode, the call that it stands for, the places of its arguments.
const OPERATIONS: &[(u8, &str, &[Place])] = &[
    (1, "preadv2", &[Fd, Addr, Len, Off, Nothing, Flags]),
    (2, "pwritev2", &[Fd, Addr, Len, Off, Nothing, Flags]),
    (3, "fsync", &[Fd]),
    (4, "pread64", &[Fd, Addr, Len, Off]),
    (5, "pwrite64", &[Fd, Addr, Len, Off]),
    (8, "sync_file_range", &[Fd, Off, Len, Flags]),
    (17, "fallocate", &[Fd, Len, Off, Addr]),
    (18, "openat", &[Fd, Addr, Flags, Len]),
    (19, "close", &[Fd]),
    (21, "statx", &[Fd, Addr, Flags, Len, Off]),
    (22, "pread64", &[Fd, Addr, Len, Off]),
    (23, "pwrite64", &[Fd, Addr, Len, Off]),
    (24, "fadvise64", &[Fd, Off, Len, Flags]),
    (25, "madvise", &[Addr, Len, Flags]),
    (28, "openat2", &[Fd, Addr, Off, Len]),
    (30, "splice", &[SpliceFd, Nothing, Fd, Nothing, Len, Flags]),
    (33, "tee", &[SpliceFd, Fd, Len, Flags]),
    (35, "renameat2", &[Fd, Addr, Len, Off, Flags]),
    (36, "unlinkat", &[Fd, Addr, Flags]),
    (37, "mkdirat", &[Fd, Addr, Len]),
    (38, "symlinkat", &[Addr, Fd, Off]),
    (39, "linkat", &[Fd, Addr, Len, Off, Flags]),
    (41, "fsetxattr", &[Fd, Addr, Off, Len, Flags]),
    (42, "setxattr", &[Addr3, Addr, Off, Len, Flags]),
    (43, "fgetxattr", &[Fd, Addr, Off, Len]),
    (44, "getxattr", &[Addr3, Addr, Off, Len]),
    (49, "pread64", &[Fd, Addr, Len, Off]),
    (55, "ftruncate", &[Fd, Off]),
    (60, "preadv2", &[Fd, Addr, Len, Off, Nothing, Flags]),
    (61, "pwritev2", &[Fd, Addr, Len, Off, Nothing, Flags]),
];

/// One operation as the BPF programs know it: `struct operation` of `bpf/cover.bpf.c`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Operation {
    /// The number of the call plus one; 0 is none.
    nr: u16,
    source: [u8; 6],
}

// SAFETY: integers without padding.
unsafe impl aya::Pod for Operation {}

/// Lists opcodes and operations, for the map.
pub(super) fn operations() -> impl Iterator<Item = (u32, Operation)> {
    OPERATIONS.iter().filter_map(|(opcode, name, from)| {
        let nr = calls()[usize::from(index_of(name)?)].nr as u16;
        let mut source = [0; 6];
        for (place, from) in source.iter_mut().zip(*from) {
            *place = *from as u8;
        }
        Some((u32::from(*opcode), Operation { nr: nr + 1, source }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_a_known_call_with_its_arguments() {
        assert_eq!(operations().count(), OPERATIONS.len());
        for (opcode, name, from) in OPERATIONS {
            let call = &calls()[usize::from(index_of(name).expect(name))];
            let registers = call
                .slots
                .iter()
                .filter(|slot| matches!(slot.source, crate::layout::Source::Register(_)));
            assert!(from.len() <= registers.count(), "{opcode} {name}");
        }
    }
}
