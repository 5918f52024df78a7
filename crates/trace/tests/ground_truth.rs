//! The tracers against a program that knows which calls it makes (`ground_truth.c`): every call, every
//! error and every class of every argument must be counted, and nothing else.

#![allow(unsafe_code, reason = "reads a log of plain integers and asks who runs it")]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use fathom_trace::layout::{SLOTS_MAX, SlotKind, Source, calls, index_of_nr};
use fathom_trace::run::{self, Plan, Tracer, Who};
use fathom_trace::sample::{AT_FDCWD, Raw, Sample, Touch, encode};
use fathom_trace::{Target, TraceError, Traced};

const HEAD: usize = 32;

/// `struct entry` of the program.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    nr: i32,
    place: i32,
    result: i64,
    args: [u64; 6],
    open_fd: [u8; 6],
    readable: [u8; 6],
    length: [u32; 6],
    head: [[u8; HEAD]; 6],
}

const OUT: i32 = 0;
const IN: i32 = 1;

type Counts = BTreeMap<Sample, u64>;

fn entries(log: &Path) -> Vec<Entry> {
    let bytes = std::fs::read(log).expect("the program has written its log");
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let size = size_of::<Entry>();
    bytes[64..64 + number * size]
        .chunks_exact(size)
        // SAFETY: an entry is integers only, of any value.
        .map(|chunk| unsafe { std::ptr::read_unaligned(chunk.as_ptr().cast()) })
        .collect()
}

/// What should be counted, coded by the Rust side from what the program knew.
fn expected(log: &Path) -> Counts {
    let mut counts = Counts::new();
    for entry in entries(log).iter().filter(|entry| entry.place != OUT) {
        let call = index_of_nr(entry.nr as u64).expect("the program makes known calls only");
        let mut slots = [0; SLOTS_MAX];
        for (slot, code) in calls()[usize::from(call)].slots.iter().zip(&mut slots) {
            *code = expected_code(entry, slot.kind, slot.source);
        }
        let touch = if entry.place == IN { Touch::Inside } else { Touch::Nothing };
        *counts.entry(Sample::new(call, touch, slots, entry.result)).or_default() += 1;
    }
    counts
}

fn expected_code(entry: &Entry, kind: SlotKind, source: Source) -> u32 {
    let (index, field) = match source {
        Source::Register(register) => (usize::from(register), None),
        Source::Field { register, offset, bytes } => (usize::from(register), Some((offset, bytes))),
    };
    let head = &entry.head[index];
    let readable = entry.readable[index] != 0;
    let value = match field {
        None => entry.args[index],
        Some(_) if !readable => return encode(kind, Raw::Unknown),
        Some((offset, bytes)) => {
            let mut word = [0; 8];
            let (offset, bytes) = (usize::from(offset), usize::from(bytes));
            word[..bytes].copy_from_slice(&head[offset..offset + bytes]);
            u64::from_le_bytes(word)
        }
    };
    let text = || {
        let length = entry.length[index] as usize;
        let mut text = head[..length.min(HEAD)].to_vec();
        text.resize(length, b'x');
        text
    };
    match kind {
        SlotKind::DirFd if value as i32 == AT_FDCWD => encode(kind, Raw::Number(value)),
        SlotKind::Fd | SlotKind::FdNumber | SlotKind::DirFd => {
            encode(kind, Raw::Fd(entry.open_fd[index] != 0))
        }
        SlotKind::Path | SlotKind::PathOrText | SlotKind::Text | SlotKind::XattrName => {
            match (value, readable) {
                (0, _) => encode(kind, Raw::Text(None)),
                (_, false) => encode(kind, Raw::Unreadable),
                (_, true) => encode(kind, Raw::Text(Some(&text()))),
            }
        }
        SlotKind::Offset if value != 0 => {
            let word = head[..8].try_into().expect("eight bytes");
            encode(kind, Raw::Offset(i64::from_le_bytes(word)))
        }
        _ => encode(kind, Raw::Number(value)),
    }
}

/// What was counted, without the strays of the C library and the loader.
fn counted(traced: &Traced, expected: &Counts) -> Counts {
    let strays: Vec<u16> = expected
        .keys()
        .filter(|sample| sample.touch() == Touch::Nothing)
        .map(|sample| sample.call)
        .collect();
    let ours = |sample: &Sample| match sample.touch() {
        Touch::Inside => true,
        Touch::Nothing => strays.contains(&sample.call),
        Touch::Outside | Touch::Unresolved => true,
    };
    traced.samples.iter().filter(|(sample, _)| ours(sample)).map(|(s, n)| (*s, n)).collect()
}

fn differences(expected: &Counts, counted: &Counts) -> Vec<String> {
    let count = |counts: &Counts, sample| counts.get(sample).copied().unwrap_or(0);
    let mut keys: Vec<&Sample> = expected.keys().chain(counted.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter()
        .filter(|sample| count(expected, sample) != count(counted, sample))
        .map(|sample| {
            format!(
                "{} {:?} errno {} amount {:#x} {:x?}: {} instead of {}",
                sample.call().name,
                sample.touch(),
                sample.errno,
                sample.amount,
                sample.slots,
                count(counted, sample),
                count(expected, sample)
            )
        })
        .collect()
}

/// A file system for the test; unmounted at the end.
struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    fn new(kind: &str) -> Result<Mounted, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (point, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        for path in [&point, &outside] {
            std::fs::create_dir(path).map_err(|error| error.to_string())?;
        }
        if kind == "tmpfs" {
            run_tool("mount", &["-t", "tmpfs", "none", &point.to_string_lossy()])?;
            return Ok(Mounted { dir });
        }
        if kind == "overlay" {
            let layers = dir.path().join("layers");
            std::fs::create_dir(&layers).map_err(|error| error.to_string())?;
            let text = layers.to_string_lossy();
            run_tool("mount", &["-t", "tmpfs", "none", &text])?;
            let mounted = Mounted { dir };
            for name in ["lower", "upper", "work"] {
                std::fs::create_dir(layers.join(name)).map_err(|error| error.to_string())?;
            }
            let options =
                format!("lowerdir={text}/lower,upperdir={text}/upper,workdir={text}/work");
            let point = point.to_string_lossy();
            run_tool("mount", &["-t", "overlay", "none", "-o", &options, &point])?;
            return Ok(mounted);
        }
        let image = dir.path().join("image");
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(320 << 20).map_err(|error| error.to_string())?;
        let image = image.to_string_lossy();
        run_tool(&format!("mkfs.{kind}"), &["-q", &image])?;
        run_tool("mount", &["-o", "loop", &image, &point.to_string_lossy()])?;
        Ok(Mounted { dir })
    }

    fn point(&self) -> PathBuf {
        self.dir.path().join("inside")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for mounted in [self.point(), self.dir.path().join("layers")] {
            if mounted.exists() {
                let _ = Command::new("umount").arg(mounted).status();
            }
        }
    }
}

fn run_tool(program: &str, args: &[&str]) -> Result<(), String> {
    let output =
        Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn compiled(dir: &Path) -> Result<PathBuf, String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground_truth.c");
    let program = dir.join("ground_truth");
    run_tool("cc", &["-O1", "-pthread", "-o", &program.to_string_lossy(), source])?;
    Ok(program)
}

/// Links that no watched process has made, too long for an inode: to a file inside and to one outside.
fn make_links(mounted: &Mounted) -> Result<(), String> {
    let outside = mounted.dir.path().join("outside");
    for (name, to) in [("made-before-in", &mounted.point()), ("made-before-out", &outside)] {
        let text = format!("{}{}/f1", "/".repeat(100), to.display());
        std::os::unix::fs::symlink(text, mounted.point().join(name)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Traces the program; counts and what they should be.
fn traced(kind: &str, tracer: Tracer, rounds: &str) -> Result<(Counts, Traced), String> {
    traced_with(kind, tracer, rounds, false)
}

/// Only what the machine lacks is a reason to skip; any other error is a failure.
fn traced_with(
    kind: &str,
    tracer: Tracer,
    rounds: &str,
    distrust: bool,
) -> Result<(Counts, Traced), String> {
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        return Err("needs root for mounts".to_owned());
    }
    let mounted = Mounted::new(kind)?;
    make_links(&mounted)?;
    let program = compiled(mounted.dir.path())?;
    let log = mounted.dir.path().join("log");
    let path = |path: &Path| path.as_os_str().to_owned();
    let argv = vec![
        path(&program),
        path(&mounted.point()),
        path(&mounted.dir.path().join("outside")),
        path(&log),
        rounds.into(),
    ];
    let target = Target::new(&mounted.point()).map_err(|error| error.to_string())?;
    let (who, targets) = (Who::Command(argv), vec![target]);
    let plan = Plan { who, targets, tracer, record: None, budget: None, distrust };
    let traced = run::run(&plan).map_err(|error| match &error {
        TraceError::Bpf(_) | TraceError::Unproven(_) => error.to_string(),
        TraceError::System { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            error.to_string()
        }
        _ => panic!("{error}"),
    })?;
    assert_eq!(traced.ended, Some(fathom_trace::Ended::Exit(0)), "the program itself failed");
    Ok((expected(&log), traced))
}

fn exact(kind: &str) {
    match traced(kind, Tracer::Bpf, "5") {
        Ok((expected, traced)) => assert_exact(kind, &expected, &traced),
        Err(reason) => println!("SKIP ground truth on {kind}: {reason}"),
    }
}

fn assert_exact(kind: &str, expected: &Counts, traced: &Traced) {
    let differences = differences(expected, &counted(traced, expected));
    let calls: u64 = expected.values().sum();
    println!("{kind}: {calls} calls of {} kinds, {} miscounted", expected.len(), differences.len());
    assert!(calls > 1500, "{calls}");
    assert_eq!(traced.lost, 0);
    assert!(differences.is_empty(), "{kind}:\n{}", differences.join("\n"));
}

/// The judge itself: one call too many, one in another class, one on another file system.
#[test]
fn a_miscounted_call_is_found() {
    let write = fathom_trace::layout::index_of("write").expect("it is in the table");
    let sample = |touch, count| {
        let mut slots = [0; SLOTS_MAX];
        slots[2] = encode(SlotKind::Amount, Raw::Number(count));
        Sample::new(write, touch, slots, count as i64)
    };
    let right = Counts::from([(sample(Touch::Inside, 4096), 5)]);
    assert_eq!(differences(&right, &right), Vec::<String>::new());
    for wrong in [
        Counts::from([(sample(Touch::Inside, 4096), 6)]),
        Counts::from([(sample(Touch::Inside, 4096), 4), (sample(Touch::Inside, 4095), 1)]),
        Counts::from([(sample(Touch::Inside, 4096), 4), (sample(Touch::Unresolved, 4096), 1)]),
        Counts::new(),
    ] {
        assert!(!differences(&right, &wrong).is_empty(), "{wrong:?}");
    }
}

#[test]
fn every_call_is_counted_on_tmpfs() {
    exact("tmpfs");
}

#[test]
fn every_call_is_counted_on_ext4() {
    exact("ext4");
}

#[test]
fn every_call_is_counted_on_xfs() {
    exact("xfs");
}

#[test]
fn every_call_is_counted_on_btrfs() {
    exact("btrfs");
}

/// What is mapped there are files of the layer below.
#[test]
fn every_call_is_counted_on_overlay() {
    exact("overlay");
}

/// Where the walk through the directory cache fails its self-test, paths are resolved in user space:
/// the report says so, and everything is counted all the same.
#[test]
fn a_failed_self_test_falls_to_a_stream_that_counts_everything() {
    for kind in ["tmpfs", "ext4"] {
        let (expected, traced) = match traced_with(kind, Tracer::Auto, "5", true) {
            Ok(done) => done,
            Err(reason) => return println!("SKIP ground truth in a stream: {reason}"),
        };
        if traced.tracer == "ptrace" {
            return println!("SKIP ground truth in a stream: {}", traced.limits.join("; "));
        }
        assert_eq!(traced.tracer, "stream");
        let said =
            traced.limits.iter().any(|limit| limit.contains("the self-test counts as failed"));
        assert!(said, "{:?}", traced.limits);
        assert_exact(kind, &expected, &traced);
    }
}

/// Without privilege operations of io_uring are refused; everything else is exact.
#[test]
fn ptrace_counts_everything_but_io_uring() {
    let (expected, traced) = match traced("tmpfs", Tracer::Ptrace, "1") {
        Ok(done) => done,
        Err(reason) => return println!("SKIP ground truth with ptrace: {reason}"),
    };
    let mut counted = counted(&traced, &expected);
    counted.retain(|sample, _| sample.touch() != Touch::Unresolved);
    let differences = differences(&expected, &counted);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
