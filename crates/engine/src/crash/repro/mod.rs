//! Reproducers that stand alone: without Fathom, with nothing but the file system itself.
//!
//! The program formats a device in memory, executes the operations, stops writing where the power
//! failed, mounts again and lists what is there. For littlefs: a cargo package for the port, a C
//! program for the original. Findings that need more than one power failure, or writes that arrive out
//! of order, have no such program; `fathom replay` shows them.

mod kernel;

use std::fmt::Write as _;

use fathom_block::crash::Part;
use fathom_block::{CrashPoint, Geometry};
use fathom_core::flags::{Access, OpenFlags};
use fathom_core::{FsPath, Op, Target};

use super::finding::CrashRecord;
use super::script::{Event, Script};

pub(super) use kernel::SCRIPT as KERNEL_SCRIPT;

/// Files to write beside a finding: path and contents.
pub(super) fn files(record: &CrashRecord, minimal: &Script) -> Vec<(&'static str, String)> {
    let Some((Event::PowerCut(point), before)) = minimal.0.split_last() else {
        return Vec::new();
    };
    let ops: Option<Vec<&Op>> = before
        .iter()
        .map(|event| match event {
            Event::Op(op) => Some(op),
            Event::PowerCut(_) => None,
        })
        .collect();
    let Some(ops) = ops else { return Vec::new() };
    let for_kernels = kernel::files(record, &ops);
    if !for_kernels.is_empty() {
        return for_kernels;
    }
    let Some(cut) = Cut::of(point, &record.geometry) else { return Vec::new() };
    match record.subject.as_str() {
        "littlefs" => {
            let main = rust(record, &ops, &cut);
            main.map_or_else(Vec::new, |main| {
                vec![("repro/Cargo.toml", CARGO_TOML.to_owned()), ("repro/src/main.rs", main)]
            })
        }
        "littlefs-c" => c(record, &ops, &cut).map_or_else(Vec::new, |text| vec![("repro.c", text)]),
        _ => Vec::new(),
    }
}

/// Where the device stops: after so many events, and with a part of the next write.
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

const CARGO_TOML: &str = "\
[package]
name = \"repro\"
version = \"0.0.0\"
edition = \"2021\"

[dependencies]
littlefs-rust = \"=0.1.0\"

[workspace]
";

/// The lines of one operation; `None` if it cannot be expressed.
fn rust_op(op: &Op) -> Option<String> {
    let quoted = |path: &FsPath| format!("{:?}", format!("/{path}"));
    Some(match op {
        Op::Open { path, flags, .. } => {
            let mut names = vec![match flags.access() {
                Access::Write => "WRITE",
                Access::ReadWrite => "READ | OpenFlags::WRITE",
                Access::Read | Access::Neither => "READ",
            }];
            for (flag, name) in [
                (OpenFlags::O_CREAT, "CREATE"),
                (OpenFlags::O_EXCL, "EXCL"),
                (OpenFlags::O_TRUNC, "TRUNC"),
            ] {
                if flags.contains(flag) {
                    names.push(name);
                }
            }
            let flags: Vec<String> =
                names.iter().map(|name| format!("OpenFlags::{name}")).collect();
            format!("let file = fs.open({}, {});", quoted(path), flags.join(" | "))
        }
        Op::Pwrite { offset, data, .. } => format!(
            "if let Ok(file) = &file {{ let _ = file.seek(SeekFrom::Start({offset})).and_then(|_| \
             file.write(&[{}; {}])); }}",
            data.seed as u8, data.len
        ),
        Op::Truncate { target: Target::Slot(_), len } => {
            format!("if let Ok(file) = &file {{ let _ = file.truncate({len}); }}")
        }
        Op::Fsync { .. } | Op::Fdatasync { .. } => {
            "if let Ok(file) = &file { let _ = file.sync(); }".to_owned()
        }
        Op::Close { .. } => "let _ = file.map(|file| file.close());".to_owned(),
        Op::Mkdir { path, .. } => format!("let _ = fs.mkdir({});", quoted(path)),
        Op::Rmdir { path } | Op::Unlink { path } => format!("let _ = fs.remove({});", quoted(path)),
        Op::Rename { from, to, .. } => {
            format!("let _ = fs.rename({}, {});", quoted(from), quoted(to))
        }
        Op::Sync => String::new(),
        _ => return None,
    })
}

fn rust(record: &CrashRecord, ops: &[&Op], cut: &Cut) -> Option<String> {
    let geometry = &record.geometry;
    let mut body = String::new();
    for op in ops {
        writeln!(body, "        // {op}\n        {}", rust_op(op)?).expect("into a string");
    }
    let (part_bytes, part_first) = cut.part.unwrap_or((0, true));
    Some(
        RUST.replace("@STORY@", &comment("// ", &record.story))
            .replace("@BLOCK@", &geometry.erase_bytes.to_string())
            .replace("@BLOCKS@", &(geometry.size_bytes / geometry.erase_bytes).to_string())
            .replace("@UNIT@", &geometry.write_bytes.to_string())
            .replace("@CACHE@", &cache_bytes(geometry).to_string())
            .replace("@EVENTS@", &cut.events.to_string())
            .replace("@PART@", &part_bytes.to_string())
            .replace("@FIRST@", &part_first.to_string())
            .replace("@BODY@", &body),
    )
}

/// As the subject configures littlefs.
fn cache_bytes(geometry: &Geometry) -> usize {
    (4 * geometry.write_bytes.max(geometry.read_bytes)).min(geometry.erase_bytes)
}

fn comment(mark: &str, text: &str) -> String {
    text.lines().map(|line| format!("{mark}{line}").trim_end().to_owned() + "\n").collect()
}

const RUST: &str = r#"@STORY@
#![allow(unused)]

use littlefs_rust::{Config, Error, FileType, Filesystem, OpenFlags, SeekFrom, Storage};

const BLOCK: usize = @BLOCK@;
const BLOCKS: usize = @BLOCKS@;
/// The power fails after so many writes, erases and syncs since the mount …
const EVENTS: usize = @EVENTS@;
/// … and of the next write so many bytes still arrive; or, not FIRST, all but so many.
const PART: usize = @PART@;
const FIRST: bool = @FIRST@;

struct Flash {
    bytes: Vec<u8>,
    events: usize,
    limit: usize,
}

impl Flash {
    /// Whether the power is still on; counts the event.
    fn alive(&mut self) -> bool {
        self.events += 1;
        self.events <= self.limit
    }
}

impl Storage for Flash {
    fn read(&mut self, block: u32, offset: u32, buf: &mut [u8]) -> Result<(), Error> {
        let at = block as usize * BLOCK + offset as usize;
        buf.copy_from_slice(&self.bytes[at..at + buf.len()]);
        Ok(())
    }

    fn write(&mut self, block: u32, offset: u32, data: &[u8]) -> Result<(), Error> {
        let at = block as usize * BLOCK + offset as usize;
        if self.alive() {
            self.bytes[at..at + data.len()].copy_from_slice(data);
        } else if self.events == self.limit + 1 {
            let part = PART.min(data.len());
            let range = if FIRST { 0..part } else { part..data.len() };
            self.bytes[at + range.start..at + range.end].copy_from_slice(&data[range]);
        }
        Ok(())
    }

    fn erase(&mut self, block: u32) -> Result<(), Error> {
        let at = block as usize * BLOCK;
        if self.alive() {
            self.bytes[at..at + BLOCK].fill(0xff);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.alive();
        Ok(())
    }
}

fn config() -> Config {
    let mut config = Config::new(BLOCK as u32, BLOCKS as u32);
    config.read_size = @UNIT@;
    config.prog_size = @UNIT@;
    config.cache_size = @CACHE@;
    config.lookahead_size = 8;
    config.block_cycles = 500;
    config
}

fn list(fs: &Filesystem<Flash>, dir: &str) {
    for entry in fs.list_dir(dir).expect("the directory can be read") {
        let path = format!("{}/{}", dir.trim_end_matches('/'), entry.name);
        println!("  {path} ({} bytes)", entry.size);
        if entry.file_type == FileType::Dir {
            list(fs, &path);
        }
    }
}

fn main() {
    let mut flash = Flash { bytes: vec![0xff; BLOCK * BLOCKS], events: 0, limit: usize::MAX };
    Filesystem::format(&mut flash, &config()).expect("it can be formatted");
    flash.events = 0;
    flash.limit = EVENTS;
    let fs = match Filesystem::mount(flash, config()) {
        Ok(fs) => fs,
        Err((error, _)) => panic!("{error}"),
    };
    {
@BODY@    }
    let mut flash = fs.unmount().expect("the device comes back");
    flash.limit = usize::MAX;
    let fs = match Filesystem::mount(flash, config()) {
        Ok(fs) => fs,
        Err((error, _)) => return println!("does not mount: {error}"),
    };
    println!("after the power failure:");
    list(&fs, "/");
    // Any write makes littlefs repair itself first.
    let _ = fs.write_file("/zz", b"").and_then(|()| fs.remove("/zz"));
    println!("after the first write:");
    list(&fs, "/");
}
"#;

/// One operation in C.
fn c_op(op: &Op) -> Option<String> {
    let quoted = |path: &FsPath| format!("{:?}", format!("/{path}"));
    Some(match op {
        Op::Open { path, flags, .. } => {
            let mut names = vec![match flags.access() {
                Access::Write => "LFS_O_WRONLY",
                Access::ReadWrite => "LFS_O_RDWR",
                Access::Read | Access::Neither => "LFS_O_RDONLY",
            }];
            for (flag, name) in [
                (OpenFlags::O_CREAT, "LFS_O_CREAT"),
                (OpenFlags::O_EXCL, "LFS_O_EXCL"),
                (OpenFlags::O_TRUNC, "LFS_O_TRUNC"),
            ] {
                if flags.contains(flag) {
                    names.push(name);
                }
            }
            let (path, flags) = (quoted(path), names.join(" | "));
            format!("lfs_file_opencfg(&lfs, &file, {path}, {flags}, &file_config);")
        }
        Op::Pwrite { offset, data, .. } => format!(
            "memset(data, {}, sizeof data); lfs_file_seek(&lfs, &file, {offset}, LFS_SEEK_SET); \
             lfs_file_write(&lfs, &file, data, {});",
            data.seed as u8, data.len
        ),
        Op::Truncate { target: Target::Slot(_), len } => {
            format!("lfs_file_truncate(&lfs, &file, {len});")
        }
        Op::Fsync { .. } | Op::Fdatasync { .. } => "lfs_file_sync(&lfs, &file);".to_owned(),
        Op::Close { .. } => "lfs_file_close(&lfs, &file);".to_owned(),
        Op::Mkdir { path, .. } => format!("lfs_mkdir(&lfs, {});", quoted(path)),
        Op::Rmdir { path } | Op::Unlink { path } => format!("lfs_remove(&lfs, {});", quoted(path)),
        Op::Rename { from, to, .. } => {
            format!("lfs_rename(&lfs, {}, {});", quoted(from), quoted(to))
        }
        Op::Sync => String::new(),
        _ => return None,
    })
}

fn c(record: &CrashRecord, ops: &[&Op], cut: &Cut) -> Option<String> {
    let geometry = &record.geometry;
    let mut body = String::new();
    let mut data_bytes = 1;
    for op in ops {
        if let Op::Pwrite { data, .. } = op {
            data_bytes = data_bytes.max(data.len);
        }
        writeln!(body, "    /* {op} */\n    {}", c_op(op)?).expect("into a string");
    }
    let (part_bytes, part_first) = cut.part.unwrap_or((0, true));
    Some(
        C.replace("@STORY@", &comment(" * ", &record.story))
            .replace("@BLOCK@", &geometry.erase_bytes.to_string())
            .replace("@BLOCKS@", &(geometry.size_bytes / geometry.erase_bytes).to_string())
            .replace("@UNIT@", &geometry.write_bytes.to_string())
            .replace("@CACHE@", &cache_bytes(geometry).to_string())
            .replace("@DATA@", &data_bytes.to_string())
            .replace("@EVENTS@", &cut.events.to_string())
            .replace("@PART@", &part_bytes.to_string())
            .replace("@FIRST@", if part_first { "1" } else { "0" })
            .replace("@BODY@", &body),
    )
}

const C: &str = r#"/*
@STORY@ *
 * Build beside lfs.c, lfs_util.c and their headers:  cc -o repro repro.c lfs.c lfs_util.c
 */
#include <stdio.h>
#include <string.h>
#include "lfs.h"

#define BLOCK @BLOCK@
#define BLOCKS @BLOCKS@

static unsigned char flash[BLOCK * BLOCKS];
/* The power fails after `limit` writes, erases and syncs since the mount; of the next write the first
 * PART bytes still arrive, or, not FIRST, all but these. */
static unsigned long events, limit = -1UL;
enum { EVENTS = @EVENTS@, PART = @PART@, FIRST = @FIRST@ };

static int bd_read(const struct lfs_config *c, lfs_block_t b, lfs_off_t o, void *p, lfs_size_t n) {
    (void)c;
    memcpy(p, flash + b * BLOCK + o, n);
    return 0;
}

static int bd_prog(const struct lfs_config *c, lfs_block_t b, lfs_off_t o, const void *p, lfs_size_t n) {
    (void)c;
    unsigned char *at = flash + b * BLOCK + o;
    if (events++ < limit) {
        memcpy(at, p, n);
    } else if (events == limit + 1) {
        lfs_size_t part = PART < n ? PART : n, skip = FIRST ? 0 : part;
        memcpy(at + skip, (const char *)p + skip, FIRST ? part : n - part);
    }
    return 0;
}

static int bd_erase(const struct lfs_config *c, lfs_block_t b) {
    (void)c;
    if (events++ < limit) memset(flash + b * BLOCK, 0xff, BLOCK);
    return 0;
}

static int bd_sync(const struct lfs_config *c) {
    (void)c;
    events++;
    return 0;
}

static unsigned char read_buffer[@CACHE@], prog_buffer[@CACHE@], file_buffer[@CACHE@], data[@DATA@];
static unsigned lookahead[2];
static const struct lfs_config config = {
    .read = bd_read, .prog = bd_prog, .erase = bd_erase, .sync = bd_sync,
    .read_size = @UNIT@, .prog_size = @UNIT@, .block_size = BLOCK, .block_count = BLOCKS,
    .block_cycles = 500, .cache_size = @CACHE@, .lookahead_size = sizeof lookahead,
    .read_buffer = read_buffer, .prog_buffer = prog_buffer, .lookahead_buffer = lookahead,
};
static const struct lfs_file_config file_config = {.buffer = file_buffer};
static lfs_t lfs;

static void list(const char *path) {
    lfs_dir_t dir;
    struct lfs_info info;
    char below[512];
    if (lfs_dir_open(&lfs, &dir, path)) { printf("  %s cannot be opened\n", path); return; }
    while (lfs_dir_read(&lfs, &dir, &info) > 0) {
        if (!strcmp(info.name, ".") || !strcmp(info.name, "..")) continue;
        snprintf(below, sizeof below, "%s/%s", strcmp(path, "/") ? path : "", info.name);
        printf("  %s (%u bytes)\n", below, (unsigned)info.size);
        if (info.type == LFS_TYPE_DIR) list(below);
    }
    lfs_dir_close(&lfs, &dir);
}

int main(void) {
    lfs_file_t file;
    (void)file; (void)data;
    memset(flash, 0xff, sizeof flash);
    if (lfs_format(&lfs, &config)) return 2;
    events = 0;
    limit = EVENTS;
    if (lfs_mount(&lfs, &config)) return 2;
@BODY@    limit = -1UL;
    if (lfs_mount(&lfs, &config)) { printf("does not mount\n"); return 1; }
    printf("after the power failure:\n");
    list("/");
    lfs_mkdir(&lfs, "/zz");
    lfs_remove(&lfs, "/zz");
    printf("after the first write:\n");
    list("/");
    return 0;
}
"#;
