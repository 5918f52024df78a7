//! The disk and the clock that rsext4 wants.

use ::rsext4::{
    BlockIo, Clock, DeviceCapabilities, DeviceGeometry, Ext4Error, Ext4Result, Ext4Timestamp,
    SectorId, WriteFlags,
};

use crate::library::device::SharedDevice;

/// Sectors of the disk.
const SECTOR_BYTES: usize = 512;

/// Always the same moment, so that equal histories make equal images. The second that mkfs.ext4 is told.
pub(super) const NOW_SECONDS: i64 = 1_000_000_000;

/// A clock that stands still.
pub(super) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Ext4Result<Ext4Timestamp> {
        Ok(Ext4Timestamp::new(NOW_SECONDS, 0))
    }
}

/// The device, with flushes and forced unit access.
pub(super) struct Disk(pub(super) SharedDevice);

fn byte(sector: SectorId) -> Ext4Result<usize> {
    sector.as_usize()?.checked_mul(SECTOR_BYTES).ok_or_else(Ext4Error::overflow)
}

impl BlockIo for Disk {
    fn read(&mut self, buffer: &mut [u8], sector: SectorId, _count: u32) -> Ext4Result<()> {
        let at = byte(sector)?;
        self.0.with(|device| device.read(at, buffer)).map_err(|_| Ext4Error::io())
    }

    fn write(&mut self, buffer: &[u8], sector: SectorId, _count: u32) -> Ext4Result<()> {
        let at = byte(sector)?;
        self.0.with(|device| device.write(at, buffer)).map_err(|_| Ext4Error::io())
    }

    fn write_with_flags(
        &mut self,
        buffer: &[u8],
        sector: SectorId,
        count: u32,
        flags: WriteFlags,
    ) -> Ext4Result<()> {
        if !flags.contains(WriteFlags::FUA) {
            return self.write(buffer, sector, count);
        }
        let at = byte(sector)?;
        self.0.with(|device| device.write_fua(at, buffer)).map_err(|_| Ext4Error::io())
    }

    fn geometry(&self) -> DeviceGeometry {
        DeviceGeometry::new(SECTOR_BYTES as u32, (self.0.size_bytes() / SECTOR_BYTES) as u64)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities { flush: true, fua: true, ..DeviceCapabilities::default() }
    }

    fn flush(&mut self) -> Ext4Result<()> {
        let flushed = self.0.with(|device| {
            device.flush();
            Ok(())
        });
        flushed.map_err(|_| Ext4Error::io())
    }
}
