//! A disk of sectors as the stream of bytes that fatfs wants.

use std::cell::RefCell;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::rc::Rc;

use fathom_block::{DeviceError, Event, Recorder};

/// What the streams of one mount share.
pub(super) struct Shared {
    /// `None`: the power is off.
    recorder: Option<Recorder>,
    /// fatfs flushes the disk when any `File` is dropped, also one that was only read and each
    /// directory on the way to it. While somebody only looks, that must leave no trace.
    observing: bool,
}

/// A stream over the device. It keeps no data: each partial write reads its sector, changes it and
/// writes it back, so the log shows every write that fatfs makes.
#[derive(Clone)]
pub(super) struct Stream {
    shared: Rc<RefCell<Shared>>,
    at: u64,
}

impl Stream {
    pub(super) fn new(recorder: Recorder) -> Stream {
        let shared = Shared { recorder: Some(recorder), observing: false };
        Stream { shared: Rc::new(RefCell::new(shared)), at: 0 }
    }

    /// Takes the device away; whatever is written afterwards fails.
    pub(super) fn power_off(&self) -> Recorder {
        self.shared.borrow_mut().recorder.take().expect("the power is cut once")
    }

    pub(super) fn observing(&self, observing: bool) {
        self.shared.borrow_mut().observing = observing;
    }

    pub(super) fn position(&self) -> usize {
        self.shared.borrow().recorder.as_ref().map_or(0, Recorder::position)
    }

    /// Bytes on the device.
    pub(super) fn size(&self) -> u64 {
        let shared = self.shared.borrow();
        shared.recorder.as_ref().map_or(0, |device| device.geometry().size_bytes as u64)
    }

    /// Does something with the part of a sector that begins at the present position: gives the device,
    /// the number of the first byte of the sector, its bytes, and where in it the position is.
    fn with_sector(
        &mut self,
        len: usize,
        act: impl FnOnce(&mut Recorder, usize, &mut [u8], usize) -> Result<usize, DeviceError>,
    ) -> io::Result<usize> {
        let mut shared = self.shared.borrow_mut();
        let device =
            shared.recorder.as_mut().ok_or_else(|| io::Error::other("the power is off"))?;
        let (sector_bytes, size) = (device.geometry().write_bytes, device.geometry().size_bytes);
        let at = self.at as usize;
        if len == 0 || at >= size {
            return Ok(0);
        }
        let start = at - at % sector_bytes;
        let mut sector = vec![0; sector_bytes];
        device.read(start, &mut sector).map_err(io::Error::other)?;
        let done = act(device, start, &mut sector, at - start).map_err(io::Error::other)?;
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
        let mut shared = self.shared.borrow_mut();
        if shared.observing {
            return Ok(());
        }
        let is_busy = |device: &Recorder| {
            device.log().events().next_back().is_some_and(|event| event != Event::Flush)
        };
        match &mut shared.recorder {
            Some(device) if is_busy(device) => device.flush(),
            _ => {}
        }
        Ok(())
    }
}

impl Seek for Stream {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.size().checked_add_signed(by),
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
        let mut stream = Stream::new(recorder);
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
        assert_eq!(stream.seek(SeekFrom::End(0)).unwrap(), 2048);
        assert_eq!(stream.read(&mut seen).unwrap(), 0);
        let device = stream.power_off();
        assert_eq!(
            format!("{:?}", device.log()),
            "[write 512 bytes at 0x0, write 512 bytes at 0x200, flush]"
        );
        assert!(stream.write(b"late").is_err());
        assert_eq!(stream.position(), 0);
    }
}
