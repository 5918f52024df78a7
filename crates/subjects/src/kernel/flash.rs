//! Flash made of a disk: the kernel's block2mtd shows a block device as memory that is erased in pieces.
//!
//! So a file system of flash has a disk that is ours like any other, and going back works as for the rest.
//! What block2mtd has taken it keeps until the kernel ends: only guests do that. UBIFS lies on a volume of
//! UBI, which remembers what it has read of the flash: it is attached for each mount, and detached after it.
#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::SubjectError;

/// Devices are handed over here: `DEVICE,ERASE_BYTES` (drivers/mtd/devices/block2mtd.c).
const PARAMETER: &str = "/sys/module/block2mtd/parameters/block2mtd";

/// What there is of flash.
const CLASS: &str = "/sys/class/mtd";

/// A directory without entries: mkfs.jffs2 makes an empty flash of it.
const EMPTY: &str = "/dev/shm/fathom-empty";

/// What ubinize(8) makes: one volume, which UBI gives all the space when it first sees it.
const VOLUME: &str = "/dev/shm/fathom-ubi.ini";
const VOLUME_TEXT: &str = "[fathom]\nmode=ubi\nvol_id=0\nvol_type=dynamic\nvol_name=fathom\n\
                           vol_size=1MiB\nvol_flags=autoresize\n";

/// Where UBI is asked, and where it tells what it has.
const UBI_CONTROL: &str = "/dev/ubi_ctrl";
const UBI_CLASS: &str = "/sys/class/ubi";

/// From the kernel's `include/uapi/mtd/ubi-user.h`.
const UBI_IOCATT: libc::Ioctl = 0x4018_6f40;
const UBI_IOCDET: libc::Ioctl = 0x4004_6f41;
const UBI_DEV_NUM_AUTO: i32 = -1;

/// The last close of a mount may be that of another process, a moment later.
const DETACHED_WITHIN: Duration = Duration::from_secs(60);

/// `struct ubi_attach_req`
#[repr(C)]
struct AttachRequest {
    ubi: i32,
    mtd: i32,
    header_offset: i32,
    rest: [u8; 12],
}

/// Makes what formatting needs.
pub(super) fn prepare() -> Result<(), SubjectError> {
    fs::create_dir_all(EMPTY).map_err(SubjectError::io("make", EMPTY))?;
    fs::write(VOLUME, VOLUME_TEXT).map_err(SubjectError::io("write", VOLUME))
}

/// The flash that shows a device, as it is named in a mount: `mtd0`. It is made if there is none.
pub(super) fn of_device(device: &Path, erase_bytes: u32) -> Result<String, SubjectError> {
    if let Some(name) = find(device) {
        return Ok(name);
    }
    fs::write(PARAMETER, format!("{},{erase_bytes}", device.display()))
        .map_err(SubjectError::io("make flash with", PARAMETER))?;
    find(device).ok_or_else(|| {
        let none = std::io::Error::other("the kernel's log has the reason");
        SubjectError::io("make flash of", device.display().to_string())(none)
    })
}

/// The flash that has the name of a device.
fn find(device: &Path) -> Option<String> {
    let wanted = format!("block2mtd: {}", device.display());
    let entries = fs::read_dir(CLASS).ok()?.flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| {
        let told = fs::read_to_string(Path::new(CLASS).join(name).join("name"));
        // Each has a second entry for reading alone.
        !name.ends_with("ro") && told.is_ok_and(|told| told.trim_end() == wanted)
    })
}

/// The number in `mtd0`.
fn number_of(flash: &str) -> Option<i32> {
    flash.strip_prefix("mtd")?.parse().ok()
}

/// The volume on a flash, as it is named in a mount: `ubi0_0`. UBI is attached to the flash for it.
pub(super) fn volume_on(flash: &str) -> Result<String, SubjectError> {
    let mtd = number_of(flash)
        .ok_or_else(|| SubjectError::io("find", flash)(io::ErrorKind::InvalidInput.into()))?;
    if attached_to(mtd).is_none() {
        let mut request =
            AttachRequest { ubi: UBI_DEV_NUM_AUTO, mtd, header_offset: 0, rest: [0; 12] };
        control(|number| {
            // SAFETY: the kernel reads the structure and writes a number to its beginning.
            unsafe { libc::ioctl(number, UBI_IOCATT, &raw mut request) }
        })
        .map_err(SubjectError::io("attach UBI to", flash))?;
    }
    let ubi = attached_to(mtd).ok_or_else(|| {
        SubjectError::io("attach UBI to", flash)(io::Error::other(
            "the kernel's log has the reason",
        ))
    })?;
    Ok(format!("ubi{ubi}_0"))
}

/// Detaches UBI from the flash of a device, when nobody holds the mount any more.
pub(super) fn detach_volume(device: &Path) -> Result<(), SubjectError> {
    let mtd = find(device).and_then(|flash| number_of(&flash));
    let Some(ubi) = mtd.and_then(attached_to) else { return Ok(()) };
    let deadline = Instant::now() + DETACHED_WITHIN;
    loop {
        let done = control(|number| {
            // SAFETY: the kernel reads one number.
            unsafe { libc::ioctl(number, UBI_IOCDET, &raw const ubi) }
        });
        match done {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_micros(200));
            }
            done => return done.map_err(SubjectError::io("detach UBI from", flash_name(device))),
        }
    }
}

fn flash_name(device: &Path) -> String {
    format!("the flash of {}", device.display())
}

/// The number of the UBI device that has a flash.
fn attached_to(mtd: i32) -> Option<i32> {
    let entries = fs::read_dir(UBI_CLASS).ok()?.flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find_map(|name| {
        let number = name.strip_prefix("ubi")?.parse().ok()?;
        let told = fs::read_to_string(Path::new(UBI_CLASS).join(&name).join("mtd_num")).ok()?;
        (told.trim() == mtd.to_string()).then_some(number)
    })
}

/// Asks UBI for something.
fn control(ask: impl FnOnce(i32) -> i32) -> io::Result<()> {
    let file = File::open(UBI_CONTROL)?;
    match ask(file.as_raw_fd()) {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
