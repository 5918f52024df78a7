//! Strategies: every operation and every outcome that can be written down.

use fathom_core::flags::{
    AccessMode, FallocateMode, MsyncFlags, OpenFlags, RenameFlags, ServerEvents, SyncRangeFlags,
    Whence, XattrFlags,
};
use fathom_core::{
    DataSum, Errno, FsBytes, Mode, Op, Outcome, Pattern, Payload, Stat, Statfs, Target, TimeArg,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Union;

fn name() -> impl Strategy<Value = FsBytes> {
    // No NUL: it ends a name on its way to the kernel.
    prop_oneof![
        "[a-z]{1,3}(/[a-z ]{1,3})?".prop_map(|text| FsBytes::from(text.as_str())),
        vec(1..=255u8, 0..12).prop_map(FsBytes::from),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        name().prop_map(Target::Path),
        name().prop_map(Target::Link),
        any::<u8>().prop_map(Target::Slot)
    ]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (any::<u64>(), any::<u64>()).prop_map(|(seed, len)| Pattern { seed, len })
}

fn mode() -> impl Strategy<Value = Mode> {
    any::<u32>().prop_map(Mode)
}

fn time() -> impl Strategy<Value = TimeArg> {
    prop_oneof![
        Just(TimeArg::Now),
        Just(TimeArg::Omit),
        (any::<i64>(), any::<u32>()).prop_map(|(sec, nsec)| TimeArg::At { sec, nsec })
    ]
}

fn whence() -> impl Strategy<Value = Whence> {
    prop::sample::select(vec![Whence::Set, Whence::Cur, Whence::End, Whence::Data, Whence::Hole])
}

macro_rules! flags {
    ($name:ident) => {
        any::<u32>().prop_map($name::from_bits_retain)
    };
}

/// A strategy for one variant: its fields drawn independently.
macro_rules! op {
    ($variant:ident { $($field:ident: $strategy:expr),* }) => {
        ($($strategy,)*).prop_map(|($($field,)*)| Op::$variant { $($field),* }).boxed()
    };
}

fn slot_ops() -> Vec<BoxedStrategy<Op>> {
    let slot = any::<u8>;
    let offset = any::<i64>;
    vec![
        op!(Open { slot: slot(), path: name(), flags: flags!(OpenFlags), mode: mode() }),
        op!(Close { slot: slot() }),
        op!(Read { slot: slot(), len: any::<u64>() }),
        op!(Pread { slot: slot(), offset: offset(), len: any::<u64>() }),
        op!(Write { slot: slot(), data: pattern() }),
        op!(Pwrite { slot: slot(), offset: offset(), data: pattern() }),
        op!(Lseek { slot: slot(), offset: offset(), whence: whence() }),
        op!(Fallocate {
            slot: slot(),
            mode: flags!(FallocateMode),
            offset: offset(),
            len: offset()
        }),
        op!(Getdents { slot: slot() }),
        op!(ListPiece { slot: slot(), back: any::<u32>(), len: any::<u64>() }),
        op!(Fsync { slot: slot() }),
        op!(Fdatasync { slot: slot() }),
        op!(Syncfs { slot: slot() }),
        op!(SyncFileRange {
            slot: slot(),
            offset: offset(),
            len: offset(),
            flags: flags!(SyncRangeFlags)
        }),
        op!(MmapStore {
            slot: slot(),
            offset: offset(),
            data: pattern(),
            sync: flags!(MsyncFlags)
        }),
        op!(LinkSlot { slot: slot(), to: name(), by_proc: any::<bool>() }),
        op!(MmapLoad { slot: slot(), offset: offset(), len: any::<u64>() }),
        op!(CopyFileRange {
            from: slot(),
            from_offset: option::of(offset()),
            to: slot(),
            to_offset: option::of(offset()),
            len: any::<u64>(),
            flags: any::<u32>()
        }),
    ]
}

fn path_ops() -> Vec<BoxedStrategy<Op>> {
    let id = || option::of(any::<u32>());
    vec![
        op!(Truncate { target: target(), len: any::<i64>() }),
        op!(Mkdir { path: name(), mode: mode() }),
        op!(Rmdir { path: name() }),
        op!(Unlink { path: name() }),
        op!(Rename { from: name(), to: name(), flags: flags!(RenameFlags) }),
        op!(Link { from: name(), to: name(), follow: any::<bool>() }),
        op!(Symlink { target: name(), path: name() }),
        op!(Readlink { path: name(), len: any::<u64>() }),
        op!(Mknod { path: name(), mode: mode(), dev: any::<(u32, u32)>() }),
        op!(Chmod { target: target(), mode: mode() }),
        op!(Chown { target: target(), uid: id(), gid: id() }),
        op!(Utimens { target: target(), atime: time(), mtime: time() }),
        op!(Setxattr {
            target: target(),
            name: name(),
            value: pattern(),
            flags: flags!(XattrFlags)
        }),
        op!(Getxattr { target: target(), name: name(), len: any::<u64>() }),
        op!(Listxattr { target: target(), len: any::<u64>() }),
        op!(Removexattr { target: target(), name: name() }),
        op!(Stat { target: target() }),
        op!(Statfs { target: target() }),
        op!(Access { target: target(), mode: flags!(AccessMode), effective: any::<bool>() }),
    ]
}

/// Every variant of [`Op`], one strategy each; a new variant must be added here.
pub(crate) fn op_variants() -> Vec<BoxedStrategy<Op>> {
    let mut variants = slot_ops();
    variants.extend(path_ops());
    variants.extend([
        Just(Op::Sync).boxed(),
        op!(Umask { mask: mode() }),
        op!(Identity { uid: any::<u32>(), gid: any::<u32>(), groups: vec(any::<u32>(), 0..3) }),
        Just(Op::Remount).boxed(),
        op!(Wait { seconds: any::<u32>() }),
        op!(Server { events: flags!(ServerEvents) }),
    ]);
    variants
}

/// Any operation.
pub(crate) fn any_op() -> impl Strategy<Value = Op> {
    Union::new(op_variants())
}

fn stat() -> impl Strategy<Value = Stat> {
    (mode(), any::<[u32; 3]>(), any::<u64>(), any::<(u32, u32)>()).prop_map(
        |(mode, [nlink, uid, gid], size, rdev)| Stat { mode, nlink, uid, gid, size, rdev },
    )
}

fn statfs() -> impl Strategy<Value = Statfs> {
    any::<[u64; 7]>().prop_map(|n| Statfs {
        block_bytes: n[0],
        blocks: n[1],
        blocks_free: n[2],
        blocks_available: n[3],
        files: n[4],
        files_free: n[5],
        name_bytes_max: n[6],
    })
}

/// Any outcome.
pub(crate) fn any_outcome() -> impl Strategy<Value = Outcome> {
    let letter = prop::sample::select("-dlpscb?".chars().collect::<Vec<_>>());
    let payload = prop_oneof![
        Just(Payload::None),
        any::<u64>().prop_map(|sum| Payload::Data(DataSum(sum))),
        stat().prop_map(|stat| Payload::Stat(Box::new(stat))),
        vec((name(), letter), 0..4).prop_map(Payload::Entries),
        prop::collection::btree_set(name(), 0..3).prop_map(Payload::Names),
        statfs().prop_map(Payload::Statfs),
    ];
    let result =
        prop_oneof![any::<u64>().prop_map(Ok), (1..200u16).prop_map(|number| Err(Errno(number)))];
    (result, payload).prop_map(|(result, payload)| Outcome { result, payload })
}
