//! Partitions: exact classes for exact values, and no value outside of its argument's classes.

mod common;

use std::collections::BTreeSet;

use common::{any_op, any_outcome};
use fathom_core::flags::{FallocateMode, OpenFlags, RenameFlags, Whence};
use fathom_core::partition::coverage::all_hits;
use fathom_core::partition::op::partitions_at;
use fathom_core::partition::{
    Coverage, Granularity, Hit, Partition, Place, Tally, Value, partitions_of, table,
};
use fathom_core::{Errno, FsBytes, Mode, Op, Outcome, Pattern, Payload};
use proptest::prelude::*;

fn of(base: &str, arg: &str, value: Value<'_>) -> Vec<String> {
    at(base, arg, value, Granularity::Powers)
}

fn at(base: &str, arg: &str, value: Value<'_>, how: Granularity) -> Vec<String> {
    let arg = &table().bases[base].args[arg];
    arg.partitions(value, how).iter().map(Partition::to_string).collect()
}

fn hits(op: &Op, outcome: &Outcome) -> Vec<String> {
    partitions_of(op, outcome).iter().map(Hit::to_string).collect()
}

#[test]
fn amounts_are_partitioned_by_powers_of_two() {
    let count = |n: u64| of("write", "count", Value::Number(n)).join(" ");
    assert_eq!(count(0), "0");
    assert_eq!(count(1), "[2^0,2^1)");
    assert_eq!(count(4095), "[2^11,2^12)");
    assert_eq!(count(4096), "[2^12,2^13)");
    assert_eq!(count(u64::MAX), "[2^63,2^64)");
    let offset = |n: i64| of("lseek", "offset", Value::Number(n as u64)).join(" ");
    assert_eq!(offset(-1), "<0");
    assert_eq!(offset(i64::MIN), "<0");
    assert_eq!(offset(i64::MAX), "[2^62,2^63)");
    // 65536 is the longest value of an extended attribute.
    let size = |n: u64| of("setxattr", "size", Value::Number(n)).join(" ");
    assert_eq!((size(65536), size(65537)), ("[2^16,2^17)".into(), "above the maximum".into()));
    // The width of an int: what is above it in the register does not count.
    assert_eq!(of("readlink", "bufsiz", Value::Number(0xffff_ffff)), ["<0"]);
}

#[test]
fn boundaries_are_the_neighbours_of_powers() {
    let count = |n: u64| at("write", "count", Value::Number(n), Granularity::Boundaries).join(" ");
    assert_eq!(count(4095), "[2^11,2^12) 2^12-1");
    assert_eq!(count(4096), "[2^12,2^13) 2^12");
    assert_eq!(count(4097), "[2^12,2^13) 2^12+1");
    assert_eq!(count(4098), "[2^12,2^13)");
    assert_eq!(count(3), "[2^1,2^2) 2^2-1");
    assert_eq!(
        (count(0), count(1), count(2)),
        ("0".into(), "[2^0,2^1)".into(), "[2^1,2^2)".into())
    );
    assert_eq!(count(u64::MAX), "[2^63,2^64) 2^64-1");
}

#[test]
fn flags_are_partitioned_by_bit_and_field() {
    let flags = |bits: u32| of("open", "flags", Value::Number(bits.into()));
    let read_write = OpenFlags::O_RDWR | OpenFlags::O_CREAT;
    assert_eq!(flags(read_write.bits()), ["O_RDWR", "O_CREAT"]);
    // Unlike its predecessors we do not count an O_RDWR open as O_RDONLY too.
    assert_eq!(flags(0), ["O_RDONLY"]);
    assert_eq!(flags(3), ["other O_ACCMODE"]);
    assert_eq!(flags(OpenFlags::O_SYNC.bits()), ["O_RDONLY", "O_DSYNC", "__O_SYNC"]);
    assert_eq!(flags(1 << 30 | 1), ["O_WRONLY", "unknown bits"]);
    assert_eq!(of("fallocate", "mode", Value::Number(0)), ["FALLOC_FL_ALLOCATE_RANGE"]);
    assert_eq!(of("access", "mode", Value::Number(0)), ["F_OK"]);
    assert_eq!(of("mkdir", "mode", Value::Number(0)), ["0"]);
    assert_eq!(of("mknod", "mode", Value::Number(0o010004)), ["S_IFIFO", "S_IROTH"]);
    assert_eq!(of("mknod", "mode", Value::Number(0)), ["0"]);
    assert_eq!(of("copy_file_range", "flags", Value::Number(8)), ["unknown bits"]);
}

#[test]
fn lists_references_and_pointers_have_their_classes() {
    assert_eq!(of("lseek", "whence", Value::Number(3)), ["SEEK_DATA"]);
    assert_eq!(of("lseek", "whence", Value::Number(99)), ["other"]);
    assert_eq!(of("quotactl", "cmd", Value::Number(0x80000700)), ["Q_GETQUOTA"]);
    assert_eq!(of("open", "path", Value::Text(Some(b""))), ["empty"]);
    assert_eq!(of("open", "path", Value::Text(Some(b"/ab"))), ["absolute", "[2^1,2^2)"]);
    let long = vec![b'x'; 4096];
    assert_eq!(of("open", "path", Value::Text(Some(&long))), ["relative", "above the maximum"]);
    assert_eq!(of("open", "path", Value::Text(None)), ["NULL"]);
    assert_eq!(of("open", "dirfd", Value::CurrentDir), ["AT_FDCWD"]);
    assert_eq!(of("close", "fd", Value::Fd { valid: false }), ["bad"]);
    assert_eq!(of("chown", "owner", Value::Number(0xffff_ffff)), ["unchanged"]);
    assert_eq!(of("setxattr", "name", Value::Text(Some(b"user.a"))), ["user.", "[2^2,2^3)"]);
    assert_eq!(of("copy_file_range", "off_in", Value::Null), ["NULL"]);
    assert_eq!(of("copy_file_range", "off_in", Value::Number(u64::MAX)), ["<0"]);
    assert_eq!(of("read", "pos_h", Value::Number(1)), Vec::<String>::new());
}

#[test]
fn operations_exercise_arguments_and_results() {
    let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT;
    let open = |flags| Op::Open { slot: 0, path: "f0".into(), flags, mode: Mode(0o600) };
    assert_eq!(
        hits(&open(flags), &Outcome::ok(0)),
        [
            "open.dirfd AT_FDCWD",
            "open.path relative",
            "open.path [2^1,2^2)",
            "open.flags O_RDWR",
            "open.flags O_CREAT",
            "open.mode S_IRUSR",
            "open.mode S_IWUSR",
            "open = success",
        ]
    );
    // Without O_CREAT the mode has no meaning.
    let read = hits(&open(OpenFlags::empty()), &Outcome::err(Errno::ENOENT));
    assert_eq!(read[3..], ["open.flags O_RDONLY", "open = ENOENT"]);
    let write = Op::Write { slot: 9, data: Pattern { seed: 1, len: 4096 } };
    assert_eq!(
        hits(&write, &Outcome::ok(100)),
        ["write.fd valid", "write.buf not NULL", "write.count [2^12,2^13)", "write = [2^6,2^7)"]
    );
    assert_eq!(hits(&write, &Outcome::err(Errno::EBADF))[0], "write.fd bad");
    let entries = [".", ".."].map(|name| (FsBytes::from(name), 'd')).to_vec();
    let outcome = Outcome { result: Ok(2), payload: Payload::Entries(entries) };
    assert_eq!(
        hits(&Op::Getdents { slot: 0 }, &outcome)[2..],
        ["getdents = [2^5,2^6)", "getdents = 0"]
    );
    assert!(hits(&Op::Remount, &Outcome::ok(0)).is_empty());
}

proptest! {
    /// Whatever an operation exercises is in the list of what can be exercised; only errors can be
    /// undocumented.
    #[test]
    fn every_hit_is_a_known_partition(op in any_op(), outcome in any_outcome()) {
        for how in [Granularity::Powers, Granularity::Boundaries] {
            for hit in partitions_at(&op, &outcome, how) {
                let known = all_hits(hit.base, how).contains(&hit);
                // A generated outcome returns amounts that no call can.
                prop_assert!(known || hit.place == Place::Output, "{hit}");
            }
        }
    }
}

#[test]
fn totals_are_those_of_the_data() {
    let total = |base| Coverage::default().tally(base).total;
    // rmdir: a path (NULL, empty, relative, absolute, 12 lengths, too long), success, 12 errors.
    assert_eq!(table().bases["rmdir"].errnos.len(), 12);
    assert_eq!(total("rmdir"), 5 + 12 + 1 + 1 + 12);
    // lseek: a descriptor, a signed amount (negative, 0, 63 powers), 5 whences and another, an
    // offset (0, 63 powers), 5 errors.
    assert_eq!(table().bases["lseek"].errnos.len(), 5);
    assert_eq!(total("lseek"), 2 + 65 + 6 + 64 + 5);
    assert_eq!(total("no such call"), 0);
    for base in table().bases.keys() {
        for how in [Granularity::Powers, Granularity::Boundaries] {
            let all = all_hits(base, how);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{base} counts twice");
        }
    }
}

#[test]
fn coverage_counts_merges_and_names_holes() {
    let seek = |whence| Op::Lseek { slot: 0, offset: 5, whence };
    let mut one = Coverage::default();
    one.add(&seek(Whence::Set), &Outcome::ok(5));
    assert_eq!(one.tally("lseek"), Tally { hit: 4, total: 142 });
    assert_eq!(one.holes("lseek").len(), 138);
    let mut two = Coverage::default();
    two.add(&seek(Whence::Hole), &Outcome::err(Errno::EIO));
    two.add(&seek(Whence::Set), &Outcome::ok(5));
    one.merge(&two);
    // A new whence; EIO is not in the manual page, so it is no hole that was filled.
    assert_eq!(one.tally("lseek"), Tally { hit: 5, total: 142 });
    let set =
        Hit { base: "lseek", place: Place::Arg("whence"), partition: Partition::Named("SEEK_SET") };
    assert_eq!((one.count(&set), two.count(&set)), (2, 1));
    assert!(!one.holes("lseek").contains(&set));
    let undocumented: Vec<String> = one.undocumented().map(|(hit, _)| hit.to_string()).collect();
    assert_eq!(undocumented, ["lseek = EIO"]);
    assert_eq!(one.tally("rename").hit, 0);
    one.add(
        &Op::Rename { from: "a".into(), to: "b".into(), flags: RenameFlags::RENAME_EXCHANGE },
        &Outcome::ok(0),
    );
    one.add(
        &Op::Fallocate { slot: 0, mode: FallocateMode::FALLOC_FL_KEEP_SIZE, offset: -1, len: 0 },
        &Outcome::err(Errno::EINVAL),
    );
    assert_eq!((one.tally("rename").hit, one.tally("fallocate").hit), (8, 5));
}
