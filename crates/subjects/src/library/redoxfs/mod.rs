//! The file system of Redox: the crate `redoxfs`.
//!
//! Every call is a transaction of the crate, committed before it returns, as in its own FUSE and Redox
//! servers; `fsync` and `sync` therefore have nothing to do. Its `Disk` has no flush: what the order of
//! writes does not protect, nothing does, and the profile claims no more.
//!
//! Paths, open files and the checks before a rename are the work of those servers; here, of this driver.

#![allow(unsafe_code, reason = "the crate's `Disk` has unsafe methods \"to discourage use\"")]

mod mount;

use ::redoxfs::{BLOCK_SIZE, Disk, FileSystem, HEADER_RING, Header};
use fathom_block::{BlockBacked, Geometry, Guarantee, Image, Recorder};
use fathom_core::{Errno, HarnessFault};
use syscall::error::{EIO, Error, Result as DiskResult};

use mount::Mount;

use super::device::SharedDevice;
use super::frame::{Driver, Library};

const BLOCK_BYTES: usize = BLOCK_SIZE as usize;

/// The ring of headers takes 256 blocks; 64 remain for trees and files.
const DEFAULT_GEOMETRY: Geometry = Geometry::disk((HEADER_RING as usize + 64) * BLOCK_BYTES);

/// `FileSystem::create` takes a random one.
const UUID: [u8; 16] = *b"fathom image id.";

/// The second in which everything happens.
const NOW: u64 = 1_000_000_000;

/// The file system on a geometry.
///
/// # Errors
/// If redoxfs cannot live there.
pub fn open(geometry: Option<Geometry>) -> Result<Box<dyn BlockBacked>, HarnessFault> {
    let geometry = geometry.unwrap_or(DEFAULT_GEOMETRY);
    let blocks = geometry.rewritable
        && BLOCK_BYTES.is_multiple_of(geometry.write_bytes)
        && BLOCK_BYTES.is_multiple_of(geometry.read_bytes);
    if !blocks {
        let why = "redoxfs needs a rewritable disk whose sectors divide 4096 bytes";
        return Err(HarnessFault::new("making a redoxfs", why));
    }
    Ok(Library::<Redox>::boxed(geometry, guarantee()))
}

fn guarantee() -> Guarantee {
    Guarantee::parse(include_str!("../../../profiles/redoxfs.toml")).expect("tested below")
}

/// The device as redoxfs wants it.
struct BlockDisk(SharedDevice);

impl BlockDisk {
    fn at(block: u64) -> DiskResult<usize> {
        let at = usize::try_from(block).ok().and_then(|block| block.checked_mul(BLOCK_BYTES));
        at.ok_or(Error::new(EIO))
    }
}

impl Disk for BlockDisk {
    unsafe fn read_at(&mut self, block: u64, buffer: &mut [u8]) -> DiskResult<usize> {
        let at = BlockDisk::at(block)?;
        let read = self.0.with(|device| device.read(at, buffer));
        read.map(|()| buffer.len()).map_err(|_| Error::new(EIO))
    }

    unsafe fn write_at(&mut self, block: u64, buffer: &[u8]) -> DiskResult<usize> {
        let at = BlockDisk::at(block)?;
        let written = self.0.with(|device| device.write(at, buffer));
        written.map(|()| buffer.len()).map_err(|_| Error::new(EIO))
    }

    fn size(&mut self) -> DiskResult<u64> {
        Ok(self.0.size_bytes() as u64)
    }
}

/// redoxfs uses the error numbers of Linux.
fn errno(error: Error) -> Errno {
    Errno(error.errno as u16)
}

/// The driver of the crate.
struct Redox;

impl Driver for Redox {
    const NAME: &'static str = "redoxfs";
    const VERSION: &'static str = "redoxfs 0.9.1";
    type Mount = Mount;

    fn format(geometry: Geometry) -> Result<Image, HarnessFault> {
        let fault = |error: String| HarnessFault::new("formatting redoxfs", error);
        let device = Recorder::new(geometry.blank_image(), geometry)
            .map_err(|error| fault(error.to_string()))?;
        let device = SharedDevice::new(device);
        FileSystem::create(BlockDisk(device.clone()), None, NOW, 0).map_err(|error| {
            let blocks = geometry.size_bytes / BLOCK_BYTES;
            fault(format!("{} on {blocks} blocks of {BLOCK_BYTES} bytes", errno(error)))
        })?;
        Ok(with_fixed_id(device.power_off().into_parts().0))
    }

    fn mount(device: &SharedDevice) -> Result<Mount, Errno> {
        // With the clean-up that the crate's own servers ask for.
        match FileSystem::open(BlockDisk(device.clone()), None, None, true) {
            Ok(fs) => Ok(Mount::new(fs, device.clone())),
            Err(error) => Err(errno(error)),
        }
    }
}

/// Gives all headers of the ring the same id instead of a random one.
fn with_fixed_id(mut image: Image) -> Image {
    for block in 0..HEADER_RING as usize {
        let mut header = Header::default();
        image.read(block * BLOCK_BYTES, &mut header);
        match header.generation().checked_sub(1) {
            // `update` counts the generation up again while it renews the checksums.
            Some(before) if header.valid() => {
                header.uuid = UUID;
                header.generation = before.into();
                header.update(None);
                image.write(block * BLOCK_BYTES, &header);
            }
            // Generation 0 is the beginning of `create`, before there was a tree.
            _ => image.erase(block * BLOCK_BYTES, BLOCK_BYTES),
        }
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_valid() {
        guarantee();
    }

    #[test]
    fn images_are_the_same_each_time() {
        let subject = open(None).unwrap();
        assert_eq!(subject.format().unwrap(), subject.format().unwrap());
    }

    #[test]
    fn a_disk_that_is_too_small_says_so() {
        let small = open(Some(Geometry::disk(1 << 20))).unwrap();
        let error = small.format().unwrap_err().to_string();
        assert!(error.ends_with("ENOSPC on 256 blocks of 4096 bytes"), "{error}");
    }
}
