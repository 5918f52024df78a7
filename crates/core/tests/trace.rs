//! Traces: what is written is read back; anything else is refused, with the line.

mod common;

use std::collections::BTreeSet;

use common::{any_op, any_outcome, op_variants};
use fathom_core::{
    Digest, Errno, FsBytes, Header, Interval, Mode, Op, Outcome, Payload, Step, Trace, TraceError,
    TraceReader,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Variants of [`Op`].
const OP_VARIANTS: usize = 43;

fn bytes_of(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    bytes
}

fn small_trace() -> Trace {
    let entries = vec![(FsBytes::from("."), 'd'), (FsBytes::from(&b"\xff\\"[..]), '-')];
    let mut header = Header::new("dir:/tmp", "model");
    header.seed = Some(u64::MAX);
    header.config = serde_json::json!({ "umask": "0022" });
    Trace {
        header,
        steps: vec![
            Step::new(0, Op::Mkdir { path: "d".into(), mode: Mode(0o755) }, Outcome::ok(0)),
            Step {
                expected: Some(Outcome::err(Errno::ENOENT)),
                tree: Some(Digest(0xabc)),
                ..Step::new(1, Op::Getdents { slot: 0 }, Outcome::with(Payload::Entries(entries)))
            },
        ],
    }
}

proptest! {
    #[test]
    fn packed_operations_come_back(op in any_op()) {
        let mut bytes = Vec::new();
        op.pack(&mut bytes);
        prop_assert_eq!(Op::unpack(&bytes), Some(op));
        bytes.pop();
        prop_assert_eq!(Op::unpack(&bytes), None);
    }

    #[test]
    fn what_is_written_is_read_back(
        steps in vec((any_op(), any_outcome(), option::of(any_outcome()), option::of(any::<u128>())), 0..6),
        callers in option::of(vec((any::<u32>(), option::of((0..99_u64, 99..u64::MAX))), 6)),
        seed in option::of(any::<u64>()),
    ) {
        let steps = steps.into_iter().enumerate().map(|(n, (op, outcome, expected, tree))| {
            let (caller, interval) = callers.as_ref().map_or((0, None), |callers| callers[n]);
            let interval = interval.and_then(|(invoked, returned)| Interval::new(invoked, returned));
            let tree = tree.map(Digest);
            Step { caller, interval, expected, tree, ..Step::new(n as u64, op, outcome) }
        });
        let header = Header { seed, ..Header::new("dir:/tmp", "model") };
        let header = if callers.is_some() { header.with_callers() } else { header };
        let trace = Trace { header, steps: steps.collect() };
        let bytes = bytes_of(&trace);
        prop_assert_eq!(Trace::read(&bytes[..]).unwrap(), trace.clone());
        let reader = TraceReader::new(&bytes[..]).unwrap();
        prop_assert_eq!(reader.header(), &trace.header);
        prop_assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), trace.steps);
    }

    #[test]
    fn random_bytes_are_never_a_trace_and_never_a_panic(bytes in vec(any::<u8>(), 0..400)) {
        prop_assert!(Trace::read(&bytes[..]).is_err());
    }
}

#[test]
fn the_strategy_knows_every_operation() {
    let mut runner = TestRunner::deterministic();
    let ops: Vec<Op> =
        op_variants().iter().map(|one| one.new_tree(&mut runner).unwrap().current()).collect();
    let names: BTreeSet<&str> = ops.iter().map(Op::name).collect();
    assert_eq!((names.len(), ops.len()), (OP_VARIANTS, OP_VARIANTS));
    for op in ops {
        // The stored name is the name of the operation, and the text for people begins with a call.
        let stored = serde_json::to_value(&op).unwrap();
        assert_eq!(stored["op"], op.name());
        assert!(op.to_string().starts_with(&format!("{}(", op.call())));
    }
}

#[test]
fn a_trace_cut_anywhere_is_refused() {
    let bytes = bytes_of(&small_trace());
    for len in 0..bytes.len() {
        let lines_whole = bytes[..len].iter().filter(|&&b| b == b'\n').count();
        match Trace::read(&bytes[..len]) {
            Err(TraceError::Truncated { line }) => assert_eq!(line, lines_whole + 1),
            other => panic!("cut at byte {len}: {other:?}"),
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let bytes = bytes_of(&small_trace());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(Trace::read(&damaged[..]).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn lines_that_are_lost_doubled_swapped_or_added_are_refused() {
    let bytes = bytes_of(&small_trace());
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
    let read = |order: &[usize]| {
        let text: Vec<u8> = order.iter().flat_map(|&line| lines[line].to_vec()).collect();
        Trace::read(&text[..]).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(read(&[0, 1, 2, 3]), Ok(()));
    let checksum = |line, steps| {
        Err(format!(
            "line {line}: the trace is damaged: the checksum does not match the {steps} steps before it"
        ))
    };
    assert_eq!(read(&[0, 1, 3]), checksum(3, 1));
    assert_eq!(read(&[0, 1, 1, 2, 3]), checksum(5, 3));
    assert_eq!(read(&[0, 2, 1, 3]), checksum(4, 2));
    assert_eq!(
        read(&[0, 1, 2, 3, 3]),
        Err("line 5 of the trace is damaged: something follows the checksum".to_owned())
    );
}

#[test]
fn what_is_not_a_trace_is_named() {
    let message = |bytes: &[u8]| Trace::read(bytes).unwrap_err().to_string();
    assert_eq!(message(b""), "the trace is truncated: it ends at line 1 without the checksum");
    assert_eq!(message(b"{}\n"), "line 1 of the trace is damaged: not a fathom trace");
    assert!(message(b"\x7fELF\n").starts_with("line 1 of the trace is damaged: expected value"));
    let newer = b"{\"fathom_trace\":3,\"a_field\":\"of the future\"}\n";
    assert_eq!(
        message(newer),
        "line 1: the trace has version 3, this program reads up to version 2: use a newer fathom"
    );
    let text = String::from_utf8(bytes_of(&small_trace())).unwrap();
    let unknown = text.replace("\"op\":\"mkdir\"", "\"op\":\"mkfoo\"");
    assert!(
        message(unknown.as_bytes()).starts_with("line 2 of the trace is damaged: unknown variant")
    );
}

#[test]
fn callers_and_intervals_are_of_version_2() {
    let mut trace = small_trace();
    let sequential = bytes_of(&trace);
    assert!(sequential.starts_with(b"{\"fathom_trace\":1,"));
    trace.header = trace.header.with_callers();
    trace.steps[1].caller = 7;
    trace.steps[1].interval = Interval::new(3, 6);
    let text = String::from_utf8(bytes_of(&trace)).unwrap();
    assert!(text.starts_with("{\"fathom_trace\":2,"), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let before = String::from_utf8(sequential).unwrap();
    assert_eq!(before.lines().nth(1), Some(lines[1]), "a step of caller 0 says nothing of it");
    assert!(
        lines[2].starts_with("{\"n\":1,\"caller\":7,\"interval\":[3,6],\"op\":"),
        "{}",
        lines[2]
    );
    assert_eq!(Trace::read(text.as_bytes()).unwrap(), trace);
    // As version 1, such a step is neither written nor read.
    let refused =
        "line 3: the step has a caller or an interval, which a trace of version 1 does not have";
    trace.header.fathom_trace = 1;
    assert_eq!(trace.write(Vec::new()).unwrap_err().to_string(), refused);
    let old = text.replacen("\"fathom_trace\":2", "\"fathom_trace\":1", 1);
    assert_eq!(Trace::read(old.as_bytes()).unwrap_err().to_string(), refused);
    let backwards = text.replace("[3,6]", "[6,3]");
    assert_eq!(
        Trace::read(backwards.as_bytes()).unwrap_err().to_string().split(" at line").next(),
        Some("line 3 of the trace is damaged: the call of 6 returns at 3")
    );
}

#[test]
fn intervals_are_ordered_if_they_do_not_overlap() {
    let interval = |invoked, returned| Interval::new(invoked, returned).unwrap();
    assert!(interval(0, 1).is_before(interval(2, 3)));
    assert!(!interval(2, 3).is_before(interval(0, 1)));
    assert!(!interval(0, 2).is_before(interval(1, 3)));
    assert_eq!(Interval::new(1, 1), None);
}

#[test]
fn a_line_without_end_does_not_fill_the_memory() {
    let endless = std::io::BufReader::new(std::io::repeat(b' '));
    let message = Trace::read(endless).unwrap_err().to_string();
    assert_eq!(message, "line 1 of the trace is damaged: the line is too long");
}

#[test]
fn a_full_disk_is_reported_with_the_line() {
    /// Room for a few bytes, as a device that is full.
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let trace = small_trace();
    let lengths: Vec<usize> =
        bytes_of(&trace).split_inclusive(|&b| b == b'\n').map(<[u8]>::len).collect();
    let mut room = 0;
    for (before, len) in lengths.iter().enumerate() {
        match trace.write(Full(room)) {
            Err(TraceError::Io { line, .. }) => assert_eq!(line, before + 1),
            other => panic!("{other:?}"),
        }
        room += len;
    }
    trace.write(Full(room)).unwrap();
}
