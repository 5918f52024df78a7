//! Reproducers for littlefs: a cargo package for the port, a C program for the original. Both have the
//! same functions, so the operations are written once.

use std::fmt::Write as _;

use fathom_block::crash::Part;
use fathom_block::{CrashPoint, Geometry};
use fathom_core::flags::{Access, OpenFlags};
use fathom_core::{FsPath, Op, Target};

use super::{Case, comment};
use crate::crash::judge::Class;

const PORT: &str = include_str!("port.rs.in");
const ORIGINAL: &str = include_str!("original.c.in");

/// C wraps where the port overflows: with checks it panics while formatting.
const CARGO_TOML: &str = "\
[package]
name = \"repro\"
version = \"0.0.0\"
edition = \"2021\"

[dependencies]
littlefs-rust-core = \"=0.1.0\"

[profile.dev]
overflow-checks = false
[profile.dev.package.\"*\"]
overflow-checks = false

[workspace]
";

/// Where the device stops: after so many events, and with a part of the next write.
#[derive(Default)]
struct Cut {
    events: usize,
    /// A number of bytes of the next write, and whether these arrive or all but these.
    part: Option<(usize, bool)>,
}

impl Cut {
    fn of(point: &CrashPoint, geometry: &Geometry) -> Option<Cut> {
        match point {
            CrashPoint::Linear { position } => Some(Cut { events: *position, part: None }),
            CrashPoint::Torn { position, arrived } => {
                let part = match arrived {
                    Part::Head(units) => (units * geometry.atomic_bytes, true),
                    Part::Tail(units) => (units * geometry.atomic_bytes, false),
                    Part::Noise => return None,
                };
                Some(Cut { events: *position, part: Some(part) })
            }
            _ => None,
        }
    }
}

/// Whether a program of ours can see what is wrong: it looks at the whole, changes something and
/// mounts again. A fault that is put around the library is in the disk it leaves, or nowhere.
fn is_visible(case: &Case<'_>, has_fault: bool) -> bool {
    let cause = &case.record.cause;
    match cause.class {
        Class::LostEntry | Class::ResurrectedEntry | Class::WrongContent | Class::Unmountable => {
            true
        }
        Class::Unreadable => !has_fault,
        Class::NotUsable | Class::NotIdempotent => {
            !has_fault && !cause.place.contains("interrupted")
        }
        _ => false,
    }
}

/// Files for a finding on littlefs, with or without a fault put around it.
pub(super) fn files(case: &Case<'_>) -> Vec<(&'static str, String)> {
    let (library, fault) = match case.record.subject.split_once('+') {
        Some((library, fault)) => (library, Some(fault)),
        None => (case.record.subject.as_str(), None),
    };
    if case.legal.is_empty() || !is_visible(case, fault.is_some()) {
        return Vec::new();
    }
    match library {
        "littlefs" => program(case, PORT, "fs.", fault.is_some()).map_or_else(Vec::new, |main| {
            vec![("repro/Cargo.toml", CARGO_TOML.to_owned()), ("repro/src/main.rs", main)]
        }),
        "littlefs-c" => program(case, ORIGINAL, "fs_", fault.is_some())
            .map_or_else(Vec::new, |text| vec![("repro.c", text)]),
        _ => Vec::new(),
    }
}

/// The program; `fs` is what the names of its functions begin with. If the fault is not littlefs's
/// own, the disk must be given to it.
fn program(case: &Case<'_>, template: &str, fs: &str, needs_disk: bool) -> Option<String> {
    let geometry = &case.record.geometry;
    let is_c = fs == "fs_";
    let (cut, body) = match needs_disk {
        true => (Cut::default(), needs_disk_text(is_c)),
        false => (Cut::of(case.point, geometry)?, body(case.ops, fs, is_c)?),
    };
    let mark = if is_c { " * " } else { "// " };
    let (part_bytes, part_first) = cut.part.unwrap_or((0, true));
    let first = if is_c { u8::from(part_first).to_string() } else { part_first.to_string() };
    Some(
        template
            .replace("@STORY@", &comment(mark, &case.record.story))
            .replace("@BLOCK@", &geometry.erase_bytes.to_string())
            .replace("@BLOCKS@", &(geometry.size_bytes / geometry.erase_bytes).to_string())
            .replace("@UNIT@", &geometry.write_bytes.to_string())
            .replace("@CACHE@", &cache_bytes(geometry).to_string())
            .replace("@EVENTS@", &cut.events.to_string())
            .replace("@PART@", &part_bytes.to_string())
            .replace("@FIRST@", &first)
            .replace("@PROMISED@", &promised(case.legal, is_c))
            .replace("@BODY@", &body),
    )
}

fn needs_disk_text(is_c: bool) -> String {
    let why = "the fault is not in littlefs: give the disk, crash.img";
    match is_c {
        true => format!("    printf(\"{why}\\n\");\n    return 2;\n"),
        false => {
            format!("    println!(\"{why}\");\n    exit(2);\n    #[allow(unreachable_code)]\n")
        }
    }
}

/// The legal states, as the program compares them.
fn promised(legal: &[Vec<String>], is_c: bool) -> String {
    let mut text = String::new();
    for state in legal {
        let lines = state.iter().map(|line| match is_c {
            true => format!("{:?}\n        ", format!("{line}\n")),
            false => format!("{line:?}, "),
        });
        let lines: String = lines.collect();
        let _ = match is_c {
            true => writeln!(text, "        {lines}\"\","),
            false => writeln!(text, "    &[{}],", lines.trim_end_matches(", ")),
        };
    }
    text
}

/// The statements between formatting and the power failure, which is after the last mount.
fn body(ops: &[&Op], fs: &str, is_c: bool) -> Option<String> {
    let end = if is_c { "-1UL" } else { "usize::MAX" };
    let mounts_left = |at: usize| ops[at..].iter().any(|op| matches!(op, Op::Remount));
    let mount = |at: usize| {
        let limit = if mounts_left(at) { end } else { "EVENTS" };
        match is_c {
            true => format!("if ({fs}mount({limit})) return 2;"),
            false => format!("assert_eq!({fs}mount({limit}), 0, \"it mounts\");"),
        }
    };
    let mut text = format!("    {}\n", mount(0));
    for (index, op) in ops.iter().enumerate() {
        let statement = match op {
            Op::Remount => format!("{fs}unmount();\n    {}", mount(index + 1)),
            op => statement(op, fs)?,
        };
        let (open, close) = if is_c { ("/* ", " */") } else { ("// ", "") };
        // Writing to a string does not fail.
        let _ = writeln!(text, "    {open}{op}{close}\n    {statement}");
    }
    Some(text)
}

/// One operation; `None` if it cannot be expressed.
fn statement(op: &Op, fs: &str) -> Option<String> {
    let quoted = |path: &FsPath| format!("{:?}", format!("/{path}"));
    Some(match op {
        Op::Open { slot, path, flags, .. } => {
            format!("{fs}open({slot}, {}, {:#x});", quoted(path), open_flags(*flags))
        }
        Op::Pwrite { slot, offset, data } => {
            format!("{fs}write({slot}, {offset}, {:#x}, {});", data.seed, data.len)
        }
        Op::Truncate { target: Target::Slot(slot), len } => format!("{fs}truncate({slot}, {len});"),
        Op::Fsync { slot } | Op::Fdatasync { slot } => format!("{fs}sync({slot});"),
        Op::Close { slot } => format!("{fs}close({slot});"),
        Op::Mkdir { path, .. } => format!("{fs}mkdir({});", quoted(path)),
        Op::Rmdir { path } | Op::Unlink { path } => format!("{fs}remove({});", quoted(path)),
        Op::Rename { from, to, .. } => format!("{fs}rename({}, {});", quoted(from), quoted(to)),
        Op::Sync => format!("{fs}sync_all();"),
        _ => return None,
    })
}

/// `enum lfs_open_flags` of lfs.h.
fn open_flags(flags: OpenFlags) -> i32 {
    let access = match flags.access() {
        Access::Write => 2,
        Access::ReadWrite => 3,
        Access::Read | Access::Neither => 1,
    };
    let bits = [
        (OpenFlags::O_CREAT, 0x100),
        (OpenFlags::O_EXCL, 0x200),
        (OpenFlags::O_TRUNC, 0x400),
        (OpenFlags::O_APPEND, 0x800),
    ];
    bits.iter().filter(|(flag, _)| flags.contains(*flag)).fold(access, |all, (_, bit)| all | bit)
}

/// As the subject configures littlefs.
fn cache_bytes(geometry: &Geometry) -> usize {
    (4 * geometry.write_bytes.max(geometry.read_bytes)).min(geometry.erase_bytes)
}
