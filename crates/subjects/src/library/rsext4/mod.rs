//! ext4 with its journal in Rust: the crate `rsext4`.
//!
//! Images come from `mkfs.ext4` of e2fsprogs rather than from the crate's own formatter, and
//! `e2fsck -fn` gives the second opinion: what is judged is the format of Linux, not an agreement of
//! the crate with itself.
//!
//! The crate works on inodes and leaves paths, open files and the reaping of unlinked ones to the VFS
//! above it (`Ext4` in its ext4/owned.rs): this driver is that VFS. Reading a file marks its access
//! time, as the crate does; the clock stands still, so the same value is written again.

mod device;
mod e2fsprogs;
mod mount;

use ::rsext4::{Ext4, MountOptions, MountServices, NoopObserver};
use fathom_block::{BlockBacked, Geometry, Guarantee, Image};
use fathom_core::{Errno, HarnessFault};

use device::{Disk, FixedClock};
use mount::Mount;

use super::device::SharedDevice;
use super::frame::{Driver, Library};

/// Blocks of an image: at 1 KiB, mkfs.ext4 gives a journal from 2048 blocks on.
const BLOCK_BYTES: usize = 1024;
const BLOCKS_MIN: usize = 2048;

const DEFAULT_GEOMETRY: Geometry = Geometry::disk(BLOCKS_MIN * BLOCK_BYTES);

/// The file system on a geometry.
///
/// # Errors
/// If ext4 with a journal cannot live there.
pub fn open(geometry: Option<Geometry>) -> Result<Box<dyn BlockBacked>, HarnessFault> {
    let geometry = geometry.unwrap_or(DEFAULT_GEOMETRY);
    let sectors = geometry.rewritable && geometry.write_bytes == 512 && geometry.read_bytes == 512;
    let why = if !sectors {
        "ext4 needs a disk of 512-byte sectors that can be rewritten".to_owned()
    } else if geometry.size_bytes < BLOCKS_MIN * BLOCK_BYTES {
        let size_bytes = geometry.size_bytes;
        format!("{size_bytes} bytes are too few for a journal: give 2 MiB or more")
    } else {
        return Ok(Library::<Rsext4>::boxed(geometry, guarantee()));
    };
    Err(HarnessFault::new("making an ext4 file system", why))
}

fn guarantee() -> Guarantee {
    Guarantee::parse(include_str!("../../../profiles/rsext4.toml")).expect("tested below")
}

/// The driver of the crate.
struct Rsext4;

impl Driver for Rsext4 {
    const NAME: &'static str = "rsext4";
    const VERSION: &'static str = "rsext4 0.9.2";
    const HAS_CHECKER: bool = true;
    const FILES_MAX: Option<u64> = Some(e2fsprogs::FILES_MAX);
    type Mount = Mount;

    fn format(geometry: Geometry) -> Result<Image, HarnessFault> {
        e2fsprogs::format(&geometry)
    }

    fn mount(device: &SharedDevice) -> Result<Mount, Errno> {
        let services = MountServices::new(FixedClock, (), NoopObserver);
        match Ext4::mount(Disk(device.clone()), services, MountOptions::read_write()) {
            Ok(fs) => Ok(Mount::new(fs, device.clone())),
            Err(error) => Err(mount::errno(error)),
        }
    }

    fn fsck(image: &Image) -> Result<Option<String>, HarnessFault> {
        e2fsprogs::check(image)
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
    fn a_disk_without_room_for_a_journal_is_refused() {
        let error = open(Some(Geometry::disk(1 << 20))).err().unwrap().to_string();
        assert!(error.ends_with("too few for a journal: give 2 MiB or more"), "{error}");
    }
}
