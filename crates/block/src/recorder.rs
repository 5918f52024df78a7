//! The device that subjects run on: an image that writes its own log.

use std::ops::Range;

use crate::geometry::{Geometry, GeometryError, is_multiple};
use crate::image::Image;
use crate::log::{Event, WriteLog};
use crate::reads::Reads;

/// An access that the device refuses: a bug of the subject or of its adapter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Beyond the end.
    #[error("{access} of {len} bytes at {at} goes beyond the device ({size_bytes} bytes)")]
    OutOfRange {
        /// What was tried.
        access: &'static str,
        /// Where.
        at: usize,
        /// How many bytes.
        len: usize,
        /// What there is.
        size_bytes: usize,
    },
    /// Not in units of the device.
    #[error("{access} of {len} bytes at {at} is not in units of {unit_bytes} bytes")]
    Misaligned {
        /// What was tried.
        access: &'static str,
        /// Where.
        at: usize,
        /// How many bytes.
        len: usize,
        /// The unit.
        unit_bytes: usize,
    },
    /// More reads than a sane caller needs: it goes round in circles.
    #[error("more than {READS_MAX} reads: the caller does not come to an end")]
    Endless,
    /// Flash was programmed twice without an erase.
    #[error("write of {len} bytes at {at}, which is not erased")]
    NotErased {
        /// Where.
        at: usize,
        /// How many bytes.
        len: usize,
    },
}

/// Reads after which a device fails instead of letting a broken file system read for ever. Our
/// images have at most a few thousand blocks; the largest count of a whole healthy session that was
/// seen is below a tenth of this.
const READS_MAX: u64 = 4_000_000;

/// A device in memory that logs every change. What the geometry forbids is refused, not logged.
///
/// On request it also notes what is read ([`Recorder::noting`]). Whoever gets at the contents in
/// another way than by [`Recorder::read`] has read everything: there is no way to look without
/// telling.
#[derive(Debug)]
pub struct Recorder {
    image: Image,
    log: WriteLog,
    geometry: Geometry,
    reads: u64,
    overprograms: bool,
    noted: Option<Box<Reads>>,
    keeps_log: bool,
}

/// What is read from the copy cannot be known to the original: all of it may be.
impl Clone for Recorder {
    fn clone(&self) -> Recorder {
        self.note_all();
        let Recorder { image, log, geometry, reads, overprograms, noted, keeps_log } = self;
        Recorder {
            image: image.clone(),
            log: log.clone(),
            geometry: *geometry,
            reads: *reads,
            overprograms: *overprograms,
            noted: noted.clone(),
            keeps_log: *keeps_log,
        }
    }
}

impl Recorder {
    /// A device that holds `image`.
    ///
    /// # Errors
    /// If the geometry is impossible or not that of the image.
    pub fn new(image: Image, geometry: Geometry) -> Result<Recorder, GeometryError> {
        geometry.validate()?;
        let (image_bytes, size_bytes) = (image.size(), geometry.size_bytes);
        if image_bytes != size_bytes {
            return Err(GeometryError::OtherSize { image_bytes, size_bytes });
        }
        Ok(Recorder {
            image,
            log: WriteLog::new(),
            geometry,
            reads: 0,
            overprograms: false,
            noted: None,
            keeps_log: true,
        })
    }

    /// Flash that is programmed twice does what NOR flash does instead of refusing: a bit that is 0
    /// stays 0. After a power failure a file system may meet programmed bytes where it expects none,
    /// and has to notice.
    #[must_use]
    pub(crate) fn overprogramming(self) -> Recorder {
        Recorder { overprograms: true, ..self }
    }

    /// Notes from now on what is read.
    #[must_use]
    pub fn noting(self, reads: Reads) -> Recorder {
        Recorder { noted: Some(Box::new(reads)), ..self }
    }

    /// What was noted; `None` if nothing was noted, or not on this device.
    pub fn take_noted(&mut self) -> Option<Reads> {
        self.noted.take().map(|reads| *reads)
    }

    #[inline]
    fn note_all(&self) {
        if let Some(reads) = &self.noted {
            reads.note_all();
        }
    }

    /// A device for a long session whose history nobody asks for: it keeps no log, and reads are
    /// counted since the last change only.
    #[must_use]
    pub fn without_log(self) -> Recorder {
        Recorder { keeps_log: false, ..self }
    }

    /// Reads from `at` on.
    ///
    /// # Errors
    /// If the device cannot do this.
    pub fn read(&mut self, at: usize, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check("read", at, buffer.len(), self.geometry.read_bytes)?;
        self.count_read()?;
        if let Some(reads) = &mut self.noted {
            reads.note_read(at, buffer.len());
        }
        self.image.read(at, buffer);
        Ok(())
    }

    /// Counts a read that a buffer above the device answers: who reads the same for ever is still noticed.
    ///
    /// # Errors
    /// If there are too many.
    pub fn count_read(&mut self) -> Result<(), DeviceError> {
        self.reads += 1;
        if self.reads > READS_MAX {
            return Err(DeviceError::Endless);
        }
        Ok(())
    }

    /// Writes (flash: programs) `data` at `at`; durable after the next flush.
    ///
    /// # Errors
    /// If the device cannot do this.
    pub fn write(&mut self, at: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.write_event(at, data, false)
    }

    /// Writes with forced unit access: durable at once, without a flush of other writes.
    ///
    /// # Errors
    /// If the device cannot do this.
    pub fn write_fua(&mut self, at: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.write_event(at, data, true)
    }

    fn write_event(&mut self, at: usize, data: &[u8], fua: bool) -> Result<(), DeviceError> {
        let len = data.len();
        self.check("write", at, len, self.geometry.write_bytes)?;
        if let Some(reads) = self.noted.as_mut().filter(|_| !self.geometry.rewritable) {
            // What becomes of the write depends on what is there.
            reads.note_read(at, len);
        }
        if !self.geometry.rewritable && !self.image.is_erased(at, len) {
            if !self.overprograms {
                return Err(DeviceError::NotErased { at, len });
            }
            let mut mixed = vec![0; len];
            self.image.read(at, &mut mixed);
            mixed.iter_mut().zip(data).for_each(|(old, new)| *old &= new);
            self.record(Event::Write { at, data: &mixed, fua, metadata: false });
            return Ok(());
        }
        self.record(Event::Write { at, data, fua, metadata: false });
        Ok(())
    }

    /// Erases (disk: discards) a region; durable after the next flush.
    ///
    /// # Errors
    /// If the device cannot do this.
    pub fn erase(&mut self, at: usize, len: usize) -> Result<(), DeviceError> {
        self.check("erase", at, len, self.geometry.erase_bytes)?;
        self.record(Event::Erase { at, len });
        Ok(())
    }

    /// Makes everything so far durable.
    pub fn flush(&mut self) {
        self.record(Event::Flush);
    }

    /// Names the present position.
    pub fn mark(&mut self, name: &[u8]) {
        self.record(Event::Mark(name));
    }

    #[inline]
    fn record(&mut self, event: Event<'_>) {
        if let Some(reads) = &mut self.noted
            && let Some(region) = event.region()
        {
            reads.note_written(region.start, region.len());
        }
        event.apply(&mut self.image);
        if self.keeps_log {
            self.log.push(event);
        } else {
            self.reads = 0;
        }
    }

    #[inline]
    fn check(
        &self,
        access: &'static str,
        at: usize,
        len: usize,
        unit_bytes: usize,
    ) -> Result<(), DeviceError> {
        let size_bytes = self.geometry.size_bytes;
        if at.checked_add(len).is_none_or(|end| end > size_bytes) {
            return Err(DeviceError::OutOfRange { access, at, len, size_bytes });
        }
        if !is_multiple(at, unit_bytes) || !is_multiple(len, unit_bytes) {
            return Err(DeviceError::Misaligned { access, at, len, unit_bytes });
        }
        Ok(())
    }

    /// How many events have been logged: note it before and after an operation to get the range in
    /// which this operation can be interrupted.
    pub fn position(&self) -> usize {
        self.log.len()
    }

    /// The positions at which a power failure hits what happened since `position`.
    pub fn since(&self, position: usize) -> Range<usize> {
        position..self.position()
    }

    /// Makes the contents its own: [`Image::unshare`].
    pub fn unshare(&mut self) {
        self.image.unshare();
    }

    /// What the device holds now. Counts as reading everything.
    #[inline]
    pub fn image(&self) -> &Image {
        self.note_all();
        &self.image
    }

    /// What happened.
    pub fn log(&self) -> &WriteLog {
        &self.log
    }

    /// The shape of the device.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Starts again from `image` with an empty log, keeping the memory of the old one.
    ///
    /// # Errors
    /// If the image has another size.
    pub fn restart(&mut self, image: Image) -> Result<(), GeometryError> {
        let (image_bytes, size_bytes) = (image.size(), self.geometry.size_bytes);
        if image_bytes != size_bytes {
            return Err(GeometryError::OtherSize { image_bytes, size_bytes });
        }
        self.image = image;
        self.log.clear();
        self.reads = 0;
        self.noted = None;
        Ok(())
    }

    /// The device and its history.
    pub fn into_parts(self) -> (Image, WriteLog) {
        (self.image, self.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flash() -> Recorder {
        let geometry = Geometry::flash(4096, 16, 512);
        Recorder::new(geometry.blank_image(), geometry).unwrap()
    }

    #[test]
    fn the_log_rebuilds_the_image() {
        let mut device = flash();
        device.mark(b"start");
        device.write(16, &[1; 32]).unwrap();
        device.write_fua(512, &[2; 16]).unwrap();
        device.flush();
        device.erase(0, 512).unwrap();
        assert_eq!((device.position(), device.since(3)), (5, 3..5));
        let mut rebuilt = device.geometry().blank_image();
        let (image, log) = device.into_parts();
        log.apply(0..log.len(), &mut rebuilt);
        assert_eq!(rebuilt, image);
        assert_eq!(
            log.event(2),
            Event::Write { at: 512, data: &[2; 16], fua: true, metadata: false }
        );
    }

    #[test]
    fn what_the_device_cannot_do_is_refused_and_not_logged() {
        let mut device = flash();
        let messages = [
            device.write(4090, &[0; 16]).unwrap_err(),
            device.write(8, &[0; 16]).unwrap_err(),
            device.erase(0, 256).unwrap_err(),
            device.read(usize::MAX, &mut [0; 16]).unwrap_err(),
        ]
        .map(|error| error.to_string());
        assert_eq!(messages[0], "write of 16 bytes at 4090 goes beyond the device (4096 bytes)");
        assert_eq!(messages[1], "write of 16 bytes at 8 is not in units of 16 bytes");
        assert_eq!(messages[2], "erase of 256 bytes at 0 is not in units of 512 bytes");
        assert!(messages[3].contains("goes beyond"));
        assert!(device.log().is_empty());
        device.write(0, &[0; 16]).unwrap();
        let error = device.write(0, &[0; 16]).unwrap_err();
        assert_eq!(error.to_string(), "write of 16 bytes at 0, which is not erased");
        assert_eq!(device.position(), 1);
    }

    #[test]
    fn an_image_of_another_size_is_refused() {
        let geometry = Geometry::disk(4096);
        let other = Geometry::disk(8192).blank_image();
        let error = Recorder::new(other.clone(), geometry).unwrap_err();
        assert_eq!(error.to_string(), "the image has 8192 bytes, the geometry says 4096");
        let mut device = Recorder::new(geometry.blank_image(), geometry).unwrap();
        assert!(device.restart(other).is_err());
        device.write(0, &[1; 512]).unwrap();
        device.restart(geometry.blank_image()).unwrap();
        assert!(device.log().is_empty() && device.image().is_erased(0, 4096));
    }

    fn noted(device: &mut Recorder) -> Option<Vec<u32>> {
        let reads = device.take_noted().expect("it notes");
        reads.into_set().units().map(Iterator::collect)
    }

    fn noting() -> Recorder {
        let device = flash();
        let reads = Reads::new(device.geometry());
        device.noting(reads)
    }

    #[test]
    fn what_is_read_is_noted() {
        let mut device = noting();
        device.read(128, &mut [0; 16]).unwrap();
        // What flash does with a write depends on what is there.
        device.write(1024, &[1; 16]).unwrap();
        device.erase(0, 512).unwrap();
        device.write(0, &[1; 64]).unwrap();
        device.read(0, &mut [0; 512]).unwrap();
        assert_eq!(noted(&mut device), Some(vec![8, 64]));
        assert!(device.take_noted().is_none());
        // A disk takes a write whatever is there.
        let geometry = Geometry::disk(4096);
        let disk = Recorder::new(geometry.blank_image(), geometry).unwrap();
        let mut disk = disk.noting(Reads::new(&geometry));
        disk.write(512, &[1; 512]).unwrap();
        disk.read(0, &mut [0; 1024]).unwrap();
        assert_eq!(noted(&mut disk), Some(vec![0]));
    }

    #[test]
    fn looking_in_any_other_way_is_reading_everything() {
        let mut device = noting();
        device.image();
        assert_eq!(noted(&mut device), None);
        let mut device = noting();
        let mut copy = device.clone();
        assert_eq!((noted(&mut device), noted(&mut copy)), (None, None));
        let mut device = noting();
        device.restart(device.geometry().blank_image()).unwrap();
        assert!(device.take_noted().is_none());
    }

    #[test]
    fn programming_twice_is_refused_or_mixes_bits() {
        let mut strict = flash();
        strict.write(0, &[0b1100; 16]).unwrap();
        let again = strict.write(0, &[0b1010; 16]);
        assert_eq!(again, Err(DeviceError::NotErased { at: 0, len: 16 }));
        let mut device = strict.overprogramming();
        device.write(0, &[0b1010; 16]).unwrap();
        let mut bytes = [0; 16];
        device.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0b1000; 16]);
        // What is logged is what the device holds.
        let mut rebuilt = device.geometry().blank_image();
        device.log().apply(0..device.position(), &mut rebuilt);
        assert_eq!(&rebuilt, device.image());
    }
}
