//! Flash made of a disk: the kernel's block2mtd shows a block device as memory that is erased in pieces.
//!
//! So a file system of flash has a disk that is ours like any other, and going back works as for the rest.
//! What block2mtd has taken it keeps until the kernel ends: only guests do that. UBI, which spreads the
//! wear under UBIFS, has a memory of its own; it is attached for a mount and detached with it.
#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::recipe::Flash;
use crate::error::SubjectError;

/// Devices are handed over here: `DEVICE,ERASE_BYTES` (drivers/mtd/devices/block2mtd.c).
const PARAMETER: &str = "/sys/module/block2mtd/parameters/block2mtd";

/// What there is of flash, and of UBI on it.
const MTD: &str = "/sys/class/mtd";
const UBI: &str = "/sys/class/ubi";
const UBI_CONTROL: &str = "/dev/ubi_ctrl";

/// The volume of UBIFS.
const VOLUME: &[u8] = b"fathom";
/// It takes all but what UBI needs for itself: so many pieces less.
const SPARE_BLOCKS: u64 = 32;

/// From the kernel's `include/uapi/mtd/ubi-user.h`.
const UBI_IOCATT: libc::Ioctl = 0x4018_6F40;
const UBI_IOCDET: libc::Ioctl = 0x4004_6F41;
const UBI_IOCMKVOL: libc::Ioctl = 0x4098_6F00;
const UBI_DEV_NUM_AUTO: i32 = -1;
const UBI_VOL_NUM_AUTO: i32 = -1;
const UBI_DYNAMIC_VOLUME: i8 = 3;

/// `struct ubi_attach_req`
#[repr(C)]
struct Attach {
    ubi: i32,
    mtd: i32,
    header_offset: i32,
    bad_blocks_max: i16,
    rest: [u8; 10],
}

/// `struct ubi_mkvol_req`
#[repr(C)]
struct MakeVolume {
    volume: i32,
    alignment: i32,
    bytes: i64,
    kind: i8,
    flags: u8,
    name_len: i16,
    padding: [u8; 4],
    name: [u8; 128],
}

/// A directory without entries: mkfs.jffs2 makes an empty flash of it.
const EMPTY: &str = "/dev/shm/fathom-empty";

/// Makes what formatting needs.
pub(super) fn prepare() -> Result<(), SubjectError> {
    fs::create_dir_all(EMPTY).map_err(SubjectError::io("make", EMPTY))
}

/// What is mounted from a device that is to be flash: `mtd0`, or `ubi0:fathom`. It is made if it is not
/// there.
pub(super) fn of_device(device: &Path, flash: Flash) -> Result<String, SubjectError> {
    let mtd = mtd_of(device, flash.erase_bytes)?;
    if !flash.ubi {
        return Ok(mtd);
    }
    let failed = |error| SubjectError::io("make UBI of", mtd.clone())(error);
    let number = mtd.trim_start_matches("mtd").parse().map_err(io::Error::other);
    let ubi =
        number.and_then(attach).and_then(|ubi| with_volume(ubi, flash.erase_bytes).map(|()| ubi));
    Ok(format!("ubi{}:{}", ubi.map_err(failed)?, String::from_utf8_lossy(VOLUME)))
}

/// Lets go of what remembers a device whose contents are about to change.
pub(super) fn release(device: &Path) -> Result<(), SubjectError> {
    let Some(mtd) = find(device) else { return Ok(()) };
    let Some(ubi) = ubi_on(&mtd) else { return Ok(()) };
    let detached = control(UBI_IOCDET, ubi);
    detached.map_err(SubjectError::io("detach UBI from", mtd))
}

fn mtd_of(device: &Path, erase_bytes: u32) -> Result<String, SubjectError> {
    if let Some(name) = find(device) {
        return Ok(name);
    }
    fs::write(PARAMETER, format!("{},{erase_bytes}", device.display()))
        .map_err(SubjectError::io("make flash with", PARAMETER))?;
    find(device).ok_or_else(|| {
        let none = io::Error::other("the kernel's log has the reason");
        SubjectError::io("make flash of", device.display().to_string())(none)
    })
}

/// The flash that has the name of a device.
fn find(device: &Path) -> Option<String> {
    let wanted = format!("block2mtd: {}", device.display());
    // Each has a second entry for reading alone.
    entry(MTD, |name, dir| !name.ends_with("ro") && told(&dir.join("name")) == wanted)
}

/// The number of the UBI on a flash.
fn ubi_on(mtd: &str) -> Option<i32> {
    let number = mtd.trim_start_matches("mtd");
    let ubi = entry(UBI, |_, dir| told(&dir.join("mtd_num")) == number)?;
    ubi.trim_start_matches("ubi").parse().ok()
}

fn entry(class: &str, is_it: impl Fn(&str, &Path) -> bool) -> Option<String> {
    let entries = fs::read_dir(class).ok()?.flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| is_it(name, &Path::new(class).join(name)))
}

/// What a file of sysfs says; nothing if it is not there.
fn told(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default().trim_end().to_owned()
}

fn attach(mtd: i32) -> io::Result<i32> {
    if let Some(ubi) = ubi_on(&format!("mtd{mtd}")) {
        return Ok(ubi);
    }
    let (ubi, header_offset, bad_blocks_max) = (UBI_DEV_NUM_AUTO, 0, 0);
    control(UBI_IOCATT, Attach { ubi, mtd, header_offset, bad_blocks_max, rest: [0; 10] })?;
    ubi_on(&format!("mtd{mtd}")).ok_or_else(|| io::Error::other("it is attached nowhere"))
}

/// Makes the volume of a UBI that has none.
fn with_volume(ubi: i32, erase_bytes: u32) -> io::Result<()> {
    let dir = Path::new(UBI).join(format!("ubi{ubi}"));
    if told(&dir.join("volumes_count")) != "0" {
        return Ok(());
    }
    let free: u64 = told(&dir.join("avail_eraseblocks")).parse().map_err(io::Error::other)?;
    let blocks = free.saturating_sub(SPARE_BLOCKS);
    // Two headers of a piece are UBI's own: what is asked for is rounded up to whole pieces.
    let bytes = (blocks * u64::from(erase_bytes - 8192)) as i64;
    let mut name = [0; 128];
    name[..VOLUME.len()].copy_from_slice(VOLUME);
    let request = MakeVolume {
        volume: UBI_VOL_NUM_AUTO,
        alignment: 1,
        bytes,
        kind: UBI_DYNAMIC_VOLUME,
        flags: 0,
        name_len: VOLUME.len() as i16,
        padding: [0; 4],
        name,
    };
    ask(&format!("/dev/ubi{ubi}"), UBI_IOCMKVOL, request)
}

fn control<T>(request: libc::Ioctl, argument: T) -> io::Result<()> {
    ask(UBI_CONTROL, request, argument)
}

fn ask<T>(node: &str, request: libc::Ioctl, mut argument: T) -> io::Result<()> {
    let open = File::options().read(true).write(true).open(node)?;
    // SAFETY: the requests above read one structure of the type that they are given with here, and answer
    // at most into its first number.
    let done = unsafe { libc::ioctl(open.as_raw_fd(), request, &raw mut argument) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
