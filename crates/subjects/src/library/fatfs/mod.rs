//! FAT in Rust: the crate `fatfs`.
//!
//! Open files are `File`s of the crate, kept open as a user of the library would: data goes to the disk
//! when it is written, the size in the directory entry when the file is flushed or closed. The crate
//! demands that a file which is open is not opened again, removed or renamed (it "can cause a filesystem
//! corruption", documentation of `Dir::remove` and `Dir::rename`): that answers `EBUSY` here.
//!
//! FAT has no sparse files: a write or truncation beyond the end fills the gap with zeros. It has no
//! replacing rename either: `EOPNOTSUPP`.

mod device;
mod mount;

use ::fatfs::{Date, DateTime, FileSystem, FormatVolumeOptions, FsOptions, Time, TimeProvider};
use fathom_block::{BlockBacked, Geometry, Guarantee, Image, Recorder};
use fathom_core::{Errno, HarnessFault};

use device::Stream;
use mount::Mount;

use super::device::SharedDevice;
use super::frame::{Driver, Library};

/// 64 sectors: the boot sector, two tables of one sector each, a root directory of four and 57 clusters.
const DEFAULT_GEOMETRY: Geometry = Geometry::disk(64 * 512);

/// Entries of the root directory of a small disk; a name takes two or more (long and short).
const ROOT_ENTRIES: u16 = 64;

/// Entries of the root directory of a disk of a MiB or more, as formatting programs make them: a
/// session of many files must not run out of names long before it runs out of space.
const ROOT_ENTRIES_LARGE: u16 = 512;

/// The file system on a geometry.
///
/// # Errors
/// If FAT cannot live there.
pub fn open(geometry: Option<Geometry>) -> Result<Box<dyn BlockBacked>, HarnessFault> {
    let geometry = geometry.unwrap_or(DEFAULT_GEOMETRY);
    if !geometry.rewritable || geometry.write_bytes != 512 || geometry.read_bytes != 512 {
        let why = "FAT needs a disk of 512-byte sectors that can be rewritten";
        return Err(HarnessFault::new("making a FAT file system", why));
    }
    Ok(Library::<Fat>::boxed(geometry, guarantee()))
}

fn guarantee() -> Guarantee {
    Guarantee::parse(include_str!("../../../profiles/fatfs.toml")).expect("tested below")
}

/// The driver of the crate.
struct Fat;

impl Driver for Fat {
    const NAME: &'static str = "fatfs";
    const VERSION: &'static str = "fatfs 0.3.6";
    type Mount = Mount;

    fn format(geometry: Geometry) -> Result<Image, HarnessFault> {
        let fault = |error: &dyn std::fmt::Display| {
            let sectors = geometry.size_bytes / geometry.write_bytes;
            HarnessFault::new("formatting fatfs", format!("{error} ({sectors} sectors)"))
        };
        let device =
            Recorder::new(geometry.blank_image(), geometry).map_err(|error| fault(&error))?;
        let device = SharedDevice::new(device);
        let entries = if geometry.size_bytes < 1 << 20 { ROOT_ENTRIES } else { ROOT_ENTRIES_LARGE };
        let options =
            FormatVolumeOptions::new().bytes_per_cluster(512).max_root_dir_entries(entries);
        ::fatfs::format_volume(Stream::new(device.clone()), options)
            .map_err(|error| fault(&error))?;
        Ok(device.power_off().into_parts().0)
    }

    fn mount(device: &SharedDevice) -> Result<Mount, Errno> {
        let stream = Stream::new(device.clone());
        let options = FsOptions::new().time_provider(&FixedClock);
        match FileSystem::new(stream.clone(), options) {
            Ok(fs) => Ok(Mount::new(fs, stream, device.clone())),
            Err(error) => Err(errno(&error)),
        }
    }
}

/// Always the same moment: times are no part of the tree, and an image must not depend on the clock.
#[derive(Debug)]
struct FixedClock;

impl TimeProvider for FixedClock {
    fn get_current_date(&self) -> Date {
        Date { year: 2000, month: 1, day: 1 }
    }

    fn get_current_date_time(&self) -> DateTime {
        let time = Time { hour: 0, min: 0, sec: 0, millis: 0 };
        DateTime { date: self.get_current_date(), time }
    }
}

/// fatfs tells most of its errors apart only by their text (`Error::new` in its dir.rs and table.rs).
fn errno(error: &std::io::Error) -> Errno {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => return Errno::ENOENT,
        ErrorKind::AlreadyExists => return Errno::EEXIST,
        ErrorKind::InvalidInput => return Errno::EINVAL,
        // The root directory of FAT12 cannot grow.
        ErrorKind::WriteZero => return Errno::ENOSPC,
        _ => {}
    }
    match error.to_string().as_str() {
        "No space left on device" => Errno::ENOSPC,
        "Directory not empty" => Errno::ENOTEMPTY,
        "Is a directory" => Errno::EISDIR,
        "Not a directory" => Errno::ENOTDIR,
        "File name too long" => Errno::ENAMETOOLONG,
        "File name is empty" | "File name contains unsupported characters" => Errno::EINVAL,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_valid() {
        guarantee();
    }

    #[test]
    fn a_disk_that_is_too_small_says_so() {
        let error = open(Some(Geometry::disk(8 * 512))).unwrap().format().unwrap_err().to_string();
        assert!(error.ends_with("unfortunate disk size (8 sectors)"), "{error}");
        assert!(open(Some(Geometry::flash(64 * 512, 512, 512))).is_err());
    }
}
