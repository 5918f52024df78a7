//! [`Library`]: the one frame of library file systems that own their device.
//!
//! What a library does in its own way is a [`Driver`] (formatting, mounting, its checker) and its
//! [`Mount`] (the calls, unmounting).

use std::marker::PhantomData;

use fathom_block::{BlockBacked, Geometry, Guarantee, Image, MountFailure, Mounted, Recorder};
use fathom_core::{Errno, HarnessFault, Op, Outcome, Tree};

use super::calls::{self, Calls};
use super::device::SharedDevice;

/// What a library does in its own way.
pub(super) trait Driver: Send + Sync + 'static {
    /// The name on the command line.
    const NAME: &'static str;
    /// The crate with its version.
    const VERSION: &'static str;
    /// Whether there is an independent checker.
    const HAS_CHECKER: bool = false;
    /// How many files and directories fit, if that is fixed.
    const FILES_MAX: Option<u64> = None;
    /// One mount.
    type Mount: Mount + 'static;

    /// Makes an empty file system.
    fn format(geometry: Geometry) -> Result<Image, HarnessFault>;

    /// Mounts what is on the device.
    fn mount(device: &SharedDevice) -> Result<Self::Mount, Errno>;

    /// See [`BlockBacked::fsck`].
    fn fsck(_image: &Image) -> Result<Option<String>, HarnessFault> {
        Ok(None)
    }
}

/// One mount of a library: its calls, and its end.
pub(super) trait Mount: Calls {
    /// The device under the mount.
    fn device(&self) -> &SharedDevice;

    /// Is told when the walk of the tree begins and when it has ended.
    fn observing(&mut self, _begins: bool) {}

    /// Closes all files and unmounts.
    fn unmount(self) -> Result<u64, Errno>;
}

/// A library on a geometry, with what it promises.
pub(super) struct Library<D> {
    geometry: Geometry,
    guarantee: Guarantee,
    driver: PhantomData<D>,
}

impl<D: Driver> Library<D> {
    pub(super) fn boxed(geometry: Geometry, guarantee: Guarantee) -> Box<dyn BlockBacked> {
        Box::new(Library::<D> { geometry, guarantee, driver: PhantomData })
    }
}

impl<D: Driver> BlockBacked for Library<D> {
    fn name(&self) -> &str {
        D::NAME
    }

    fn version(&self) -> &str {
        D::VERSION
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantee(&self) -> &Guarantee {
        &self.guarantee
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        D::format(self.geometry)
    }

    fn mount(&self, device: Recorder) -> Result<Box<dyn Mounted>, Box<MountFailure>> {
        let device = SharedDevice::new(device);
        match D::mount(&device) {
            Ok(mount) => Ok(Box::new(MountedLibrary(mount))),
            Err(errno) => Err(Box::new(MountFailure { errno, device: device.power_off() })),
        }
    }

    fn files_max(&self) -> Option<u64> {
        D::FILES_MAX
    }

    fn has_checker(&self) -> bool {
        D::HAS_CHECKER
    }

    fn fsck(&self, image: &Image) -> Result<Option<String>, HarnessFault> {
        D::fsck(image)
    }
}

/// The mount of a library as whoever drives it sees it.
struct MountedLibrary<M>(M);

impl<M: Mount> Mounted for MountedLibrary<M> {
    fn apply(&mut self, op: &Op) -> Outcome {
        calls::apply(&mut self.0, op)
    }

    fn observe(&mut self) -> Tree {
        self.0.observing(true);
        let tree = calls::observe(&mut self.0);
        self.0.observing(false);
        tree
    }

    fn position(&self) -> usize {
        self.0.device().position()
    }

    fn look_at_device(&self, look: &mut dyn FnMut(&Recorder)) {
        self.0.device().look(look);
    }

    fn unmount(self: Box<Self>) -> (Outcome, Recorder) {
        let device = self.0.device().clone();
        let result = self.0.unmount();
        (result.map_or_else(Outcome::err, Outcome::ok), device.power_off())
    }

    /// What the library writes when it is dropped afterwards goes nowhere.
    fn power_off(self: Box<Self>) -> Recorder {
        self.0.device().power_off()
    }
}
