//! Kernels that are older than the processor.
//!
//! User-Mode Linux before 6.13 keeps the registers of a task in 2,696 bytes and gives them back to the
//! host by `PTRACE_SETREGSET` with that length. The host takes them only whole, and where the processor
//! has AMX that is 11,008 bytes: such a guest panics before its first process ("ptrace set fp regs
//! failed, errno = 14"). Linux 6.13 asks for the size. For an older kernel this one length is changed in a
//! copy of its file: the host then reads beyond the registers, and ignores what it reads there, since
//! their header says which of them are in use, and those of AMX are not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{GuestError, Result};

/// The room that kernels before 6.13 have.
const ROOM_BYTES: u32 = 2696;

/// What our patch of Debian's sources adds to a release (`patches/whole-vector-state.patch`).
const PATCHED: &str = "-xstate";

/// The request that gives registers back.
const PTRACE_SETREGSET: u32 = 0x4205;

/// The length and the request are so close to each other in the one place where both are.
const NEAR: usize = 64;

/// The kernel's file, or a copy in `dir` that fits this processor.
pub(crate) fn fitting(kernel: &Path, release: &str, dir: &Path) -> Result<PathBuf> {
    let bytes = state_bytes();
    if bytes <= ROOM_BYTES || asks_for_the_size(release) || release.contains(PATCHED) {
        return Ok(kernel.to_owned());
    }
    let what = || format!("making a copy of {}", kernel.display());
    let mut image = fs::read(kernel).map_err(GuestError::io(what()))?;
    let Some(at) = length_at(&image) else {
        return Err(GuestError::Narrow { kernel: kernel.to_owned(), bytes });
    };
    image[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
    let copy = dir.join("linux");
    fs::write(&copy, image).map_err(GuestError::io(what()))?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700))
        .map_err(GuestError::io(what()))?;
    Ok(copy)
}

/// Whether a kernel finds out the size by itself.
fn asks_for_the_size(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse::<u32>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 13),
        _ => false,
    }
}

/// Where the length is in the kernel's file: `movq $2696, N(%rbp)` or `N(%rsp)`, followed by the request.
/// `None` if that is not in exactly one place.
fn length_at(image: &[u8]) -> Option<usize> {
    let length = ROOM_BYTES.to_le_bytes();
    let request = PTRACE_SETREGSET.to_le_bytes();
    let is_store = |at: usize| {
        image.get(at.wrapping_sub(4)..at).is_some_and(|code| code.starts_with(&[0x48, 0xc7, 0x45]))
            || image
                .get(at.wrapping_sub(5)..at)
                .is_some_and(|code| code.starts_with(&[0x48, 0xc7, 0x44, 0x24]))
    };
    let is_followed = |at: usize| {
        let after = &image[at..image.len().min(at + NEAR)];
        after.windows(4).any(|word| word == request)
    };
    let mut places = memory_of(image, &length).filter(|at| is_store(*at) && is_followed(*at));
    let first = places.next()?;
    places.next().is_none().then_some(first)
}

/// Every place of some bytes.
fn memory_of<'a>(image: &'a [u8], wanted: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let places = image.windows(wanted.len()).enumerate();
    places.filter(move |(_, part)| *part == wanted).map(|(at, _)| at)
}

/// How many bytes the processor's registers take.
#[cfg(target_arch = "x86_64")]
fn state_bytes() -> u32 {
    let highest = std::arch::x86_64::__cpuid(0).eax;
    if highest < 0xd { 0 } else { std::arch::x86_64::__cpuid_count(0xd, 0).ebx }
}

#[cfg(not(target_arch = "x86_64"))]
fn state_bytes() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `movq $2696, -8(%rbp)`, `mov $0x4205, %edi`.
    const STORE: [u8; 13] = [0x48, 0xc7, 0x45, 0xf8, 0x88, 0x0a, 0, 0, 0xbf, 0x05, 0x42, 0, 0];

    #[test]
    fn the_length_is_changed_only_where_registers_are_given_back() {
        let mut image = vec![0x90; 100];
        image.extend(STORE);
        // The same length where registers are read.
        image.extend([0x48, 0xc7, 0x45, 0xf8, 0x88, 0x0a, 0, 0, 0xbf, 0x04, 0x42, 0, 0]);
        image.extend([0x90; 100]);
        assert_eq!(length_at(&image), Some(104));
        image.extend(STORE);
        assert_eq!(length_at(&image), None, "two places");
        assert_eq!(length_at(b"nothing"), None);
    }

    #[test]
    fn new_kernels_ask() {
        assert!(asks_for_the_size("6.13.0") && asks_for_the_size("7.0"));
        assert!(!asks_for_the_size("6.12.115-fathom") && !asks_for_the_size("unknown"));
    }
}
