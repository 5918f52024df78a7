//! A disk of sectors as the stream of bytes that fatfs wants.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::rc::Rc;

use fathom_block::{DeviceError, Event, Recorder};
use fathom_core::Errno;

use crate::library::device::SharedDevice;

/// A stream over the device. It holds nothing back: each partial write changes its sector and writes it,
/// so the log shows every write that fatfs makes. The sector of the last call is remembered, since fatfs
/// reads a few bytes at a time.
#[derive(Clone)]
pub(super) struct Stream {
    device: SharedDevice,
    /// fatfs flushes the disk when any `File` is dropped, also one that was only read and each
    /// directory on the way to it. While somebody only looks, that must leave no trace.
    observing: Rc<Cell<bool>>,
    last: Rc<RefCell<Sector>>,
    at: u64,
}

/// A sector as it is on the device.
#[derive(Default)]
struct Sector {
    start: usize,
    /// Empty before the first call, and after one that failed.
    bytes: Vec<u8>,
}

fn io_error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0.into())
}

impl Stream {
    pub(super) fn new(device: SharedDevice) -> Stream {
        Stream { device, observing: Rc::default(), last: Rc::default(), at: 0 }
    }

    pub(super) fn observing(&self, observing: bool) {
        self.observing.set(observing);
    }

    /// Does something with the part of a sector that begins at the present position: gives the device,
    /// the number of the first byte of the sector, its bytes, and where in it the position is.
    fn with_sector(
        &mut self,
        len: usize,
        act: impl FnOnce(&mut Recorder, usize, &mut [u8], usize) -> Result<usize, DeviceError>,
    ) -> io::Result<usize> {
        let at = self.at as usize;
        let mut last = self.last.borrow_mut();
        let done = self.device.with(|device| {
            if len == 0 || at >= device.geometry().size_bytes {
                return Ok(0);
            }
            let sector_bytes = device.geometry().write_bytes;
            let start = at - at % sector_bytes;
            if !last.bytes.is_empty() && last.start == start {
                device.count_read()?;
            } else {
                last.start = start;
                last.bytes.resize(sector_bytes, 0);
                device.read(start, &mut last.bytes)?;
            }
            act(device, start, &mut last.bytes, at - start)
        });
        if done.is_err() {
            last.bytes.clear();
        }
        drop(last);
        let done = done.map_err(io_error)?;
        self.at += done as u64;
        Ok(done)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.with_sector(buffer.len(), |_, _, sector, within| {
            let take = buffer.len().min(sector.len() - within);
            buffer[..take].copy_from_slice(&sector[within..within + take]);
            Ok(take)
        })
    }
}

impl Write for Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.with_sector(data.len(), |device, start, sector, within| {
            let take = data.len().min(sector.len() - within);
            sector[within..within + take].copy_from_slice(&data[..take]);
            device.write(start, sector)?;
            Ok(take)
        })
    }

    /// A flush of a device that has nothing to flush changes nothing and is not logged: fatfs flushes
    /// several times in every operation below a directory.
    fn flush(&mut self) -> io::Result<()> {
        if self.observing.get() {
            return Ok(());
        }
        let flushed = self.device.with(|device| {
            let last = device.log().events().next_back();
            if last.is_some_and(|event| event != Event::Flush) {
                device.flush();
            }
            Ok(())
        });
        flushed.map_err(io_error)
    }
}

impl Seek for Stream {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => (self.device.size_bytes() as u64).checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_block::Geometry;

    #[test]
    fn partial_writes_become_sectors_and_idle_flushes_nothing() {
        let geometry = Geometry::disk(2048);
        let recorder = Recorder::new(geometry.blank_image(), geometry).unwrap();
        let device = SharedDevice::new(recorder);
        let mut stream = Stream::new(device.clone());
        stream.flush().unwrap();
        stream.seek(SeekFrom::Start(510)).unwrap();
        stream.write_all(b"abcd").unwrap();
        stream.observing(true);
        stream.flush().unwrap();
        stream.observing(false);
        stream.flush().unwrap();
        stream.flush().unwrap();
        stream.seek(SeekFrom::Current(-3)).unwrap();
        let mut seen = [0; 3];
        stream.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"bcd");
        // Another handle sees what was written.
        let mut other = stream.clone();
        other.seek(SeekFrom::Start(511)).unwrap();
        other.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"bcd");
        assert_eq!(stream.seek(SeekFrom::End(0)).unwrap(), 2048);
        assert_eq!(stream.read(&mut seen).unwrap(), 0);
        assert_eq!(
            format!("{:?}", device.power_off().log()),
            "[write 512 bytes at 0x0, write 512 bytes at 0x200, flush]"
        );
        stream.seek(SeekFrom::Start(0)).unwrap();
        assert!(stream.write(b"late").is_err());
        assert_eq!(device.position(), 0);
    }
}
