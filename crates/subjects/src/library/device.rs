//! A device that can be taken away from a library that owns it and never gives it back.

use std::cell::RefCell;
use std::rc::Rc;

use fathom_block::{DeviceError, Recorder};
use fathom_core::Errno;

/// A handle on a device; all clones are the same device.
#[derive(Clone)]
pub(super) struct SharedDevice(Rc<RefCell<Option<Recorder>>>);

impl SharedDevice {
    pub(super) fn new(recorder: Recorder) -> SharedDevice {
        SharedDevice(Rc::new(RefCell::new(Some(recorder))))
    }

    /// Does something with the device. What it refuses, and everything after the power is off, is
    /// an I/O error.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&mut Recorder) -> Result<T, DeviceError>,
    ) -> Result<T, Errno> {
        let mut device = self.0.borrow_mut();
        act(device.as_mut().ok_or(Errno::EIO)?).map_err(|_| Errno::EIO)
    }

    /// Takes the device away; whatever is tried afterwards fails.
    pub(super) fn power_off(&self) -> Recorder {
        self.0.borrow_mut().take().expect("the power is cut once")
    }

    /// Shows the device, if the power is on.
    pub(super) fn look(&self, look: &mut dyn FnMut(&Recorder)) {
        if let Some(device) = self.0.borrow().as_ref() {
            look(device);
        }
    }

    pub(super) fn position(&self) -> usize {
        self.0.borrow().as_ref().map_or(0, Recorder::position)
    }

    /// Bytes on the device.
    pub(super) fn size_bytes(&self) -> usize {
        self.0.borrow().as_ref().map_or(0, |device| device.geometry().size_bytes)
    }
}
