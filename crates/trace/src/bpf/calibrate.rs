//! Finds the hash table of dentries and the superblocks of the targets.
//!
//! Kernels without `CONFIG_KALLSYMS_ALL` do not say where the table is. But the first dentry of each
//! chain points back to its bucket: a bucket's address is table + 8 × (hash >> shift), so some dozen
//! opened files determine both unknowns, and the others confirm them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;

use super::object::{Calibration, Object};
use crate::error::{Result, TraceError};
use crate::target::Target;

/// The mode that asks for calibration, faccessat(fd, "", this + n): see `on_calibrate` of
/// `bpf/cover.bpf.c`.
const CALIBRATE: i32 = 0x7700;
const CALIBRATE_TARGET: i32 = 0x80;
const FILES_MAX: usize = 64;
/// Directories with many files on any machine.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/etc", "/usr/lib"];
/// Shifts of tables from 4 to 2²⁸ buckets: the hash has 32 bits.
const SHIFTS: std::ops::Range<u32> = 4..31;

/// Values of kernels before 6.15, where they are macros (include/linux/dcache.h).
const FLAG_MOUNTED: u32 = 0x1_0000;
const TYPE_MASK: u32 = 0x70_0000;
const TYPE_SYMLINK: u32 = 0x60_0000;

const OSRELEASE: &str = "/proc/sys/kernel/osrelease";

/// The flag of a file that stands behind one of another file system: `FMODE_BACKING`
/// (include/linux/fs.h). It is a macro, and moved in 6.14.
fn flag_backing(release: &str) -> u32 {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (6, 14) => 1 << 25,
        _ => 1 << 24,
    }
}

/// Finds the table of dentries and the superblocks of the targets, and configures the BPF programs.
pub(super) fn calibrate(object: &mut Object, targets: &[Target], walk: bool) -> Result<()> {
    let mut config = object.config()?;
    config.tracer = std::process::id();
    (config.flag_mounted, config.type_mask) = (FLAG_MOUNTED, TYPE_MASK);
    config.type_symlink = TYPE_SYMLINK;
    config.flag_backing = flag_backing(&fs::read_to_string(OSRELEASE).unwrap_or_default());
    config.targets_len = targets.len() as u32;
    object.configure(config)?;
    object.attach("on_calibrate", "sys_enter")?;
    let files = open_files();
    for (index, file) in files.iter().enumerate() {
        probe(file, index as i32);
    }
    for (index, target) in targets.iter().enumerate() {
        let open =
            |error| TraceError::Target { path: target.path.clone(), reason: format!("{error}") };
        probe(&File::open(&target.path).map_err(open)?, CALIBRATE_TARGET + index as i32);
    }
    object.detach("on_calibrate")?;
    let noted = object.calibrations(files.len() as u32)?;
    let (table, shift) = match solve(&noted) {
        Some(found) => found,
        None if !walk => (0, 0),
        None => {
            return Err(TraceError::Unproven(
                "the hash table of dentries was not found".to_owned(),
            ));
        }
    };
    let mut config = object.config()?;
    (config.table, config.shift) = (table, shift);
    if config.targets[..targets.len()].contains(&0) {
        return Err(TraceError::Bpf("the superblock was not found".to_owned()));
    }
    object.configure(config)
}

fn open_files() -> Vec<File> {
    let directories = DIRECTORIES.iter().filter_map(|path| fs::read_dir(path).ok());
    let entries = directories.flatten().flatten();
    let regular = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    regular.filter_map(|entry| File::open(entry.path()).ok()).take(FILES_MAX).collect()
}

fn probe(file: &File, number: i32) {
    // SAFETY: a path that ends with NUL, integers otherwise. The call fails by intention.
    unsafe {
        libc::syscall(libc::SYS_faccessat, file.as_raw_fd(), c"".as_ptr(), CALIBRATE + number);
    }
}

/// Finds the table and the shift on which most dentries agree. Those that are not first in their
/// chain do not.
fn solve(noted: &[Calibration]) -> Option<(u64, u32)> {
    let known: Vec<&Calibration> = noted.iter().filter(|one| one.pprev != 0).collect();
    let mut best: Option<(usize, u64, u32)> = None;
    for shift in SHIFTS {
        let mut votes: HashMap<u64, usize> = HashMap::new();
        for one in &known {
            let bucket = u64::from(one.hash_len as u32 >> shift);
            *votes.entry(one.pprev.wrapping_sub(8 * bucket)).or_default() += 1;
        }
        for (table, votes) in votes {
            if best.is_none_or(|(most, ..)| votes > most) {
                best = Some((votes, table, shift));
            }
        }
    }
    let (votes, table, shift) = best?;
    (votes >= 8 && votes * 2 > known.len()).then_some((table, shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_of_backing_files_moved() {
        assert_eq!(flag_backing("6.1.0-13-amd64"), 1 << 25);
        assert_eq!(flag_backing("6.14.0"), 1 << 24);
        assert_eq!(flag_backing("7.0-rc1"), 1 << 24);
    }

    #[test]
    fn the_table_is_found_although_some_dentries_are_not_first() {
        let (table, shift) = (0xffff_8881_0000_0000, 12);
        let noted = |n: u64| {
            let hash = (n * 0x9e37_79b9) as u32;
            let first = !n.is_multiple_of(7);
            let pprev = if first { table + 8 * u64::from(hash >> shift) } else { n * 4096 };
            Calibration { pprev, hash_len: u64::from(hash) | 5 << 32 }
        };
        let all: Vec<Calibration> = (1..60).map(noted).collect();
        assert_eq!(solve(&all), Some((table, shift)));
        assert_eq!(solve(&all[..5]), None);
        let scattered: Vec<Calibration> =
            (1..60).map(|n| Calibration { pprev: n * n * 4096, hash_len: n * 77 }).collect();
        assert_eq!(solve(&scattered), None);
    }
}
