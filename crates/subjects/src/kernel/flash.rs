//! Flash made of a disk: the kernel's block2mtd shows a block device as memory that is erased in pieces.
//!
//! So a file system of flash has a disk that is ours like any other, and going back works as for the rest.
//! What block2mtd has taken it keeps until the kernel ends: only guests do that.

use std::fs;
use std::path::Path;

use crate::error::SubjectError;

/// Devices are handed over here: `DEVICE,ERASE_BYTES` (drivers/mtd/devices/block2mtd.c).
const PARAMETER: &str = "/sys/module/block2mtd/parameters/block2mtd";

/// What there is of flash.
const CLASS: &str = "/sys/class/mtd";

/// A directory without entries: mkfs.jffs2 makes an empty flash of it.
const EMPTY: &str = "/dev/shm/fathom-empty";

/// Makes what formatting needs.
pub(super) fn prepare() -> Result<(), SubjectError> {
    fs::create_dir_all(EMPTY).map_err(SubjectError::io("make", EMPTY))
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
