//! [`KernelSubject`]: a real kernel file system on a device in memory. Needs root.
//!
//! Image, loop device and mount are reachable only through descriptors of this process: there is no
//! mount point, no name in any directory, and nothing is left when the process ends, however it
//! ends.

mod image;
mod loop_device;
mod mount;
mod recipe;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

use fathom_core::{Capability, HarnessFault, Op, Outcome, Subject, Tree};
use rustix::fs::AtFlags;

use crate::error::SubjectError;
use crate::sys::{Executor, View};
use image::Image;

pub use loop_device::LoopDevice;
pub use recipe::{Format, Recipe};

/// See the module documentation. Takes over its thread: see [`crate::sys`].
pub struct KernelSubject {
    recipe: Recipe,
    /// Holds the mount; dropped first.
    executor: Executor,
    /// Of a file system that has a disk.
    disk: Option<Disk>,
}

struct Disk {
    /// Detached first.
    device: LoopDevice,
    image: Image,
}

impl KernelSubject {
    /// Formats and mounts.
    ///
    /// # Errors
    /// Without root, without the formatting program, or if the kernel does not mount it.
    pub fn new(recipe: Recipe, view: View) -> Result<KernelSubject, SubjectError> {
        if !rustix::process::geteuid().is_root() {
            return Err(SubjectError::NotRoot(recipe.name));
        }
        let disk = match &recipe.format {
            Some(format) => {
                let image = Image::format(&recipe, format)?;
                Some(Disk { device: LoopDevice::attach(image.memory())?, image })
            }
            None => None,
        };
        let root = mount_fresh(&recipe, disk.as_ref())?;
        let executor = Executor::new(root, view)?;
        Ok(KernelSubject { recipe, executor, disk })
    }

    /// Starts again: the file system as it was formatted, no open slots, the first mask and
    /// identity.
    ///
    /// # Errors
    /// If it cannot be mounted again.
    pub fn reset(&mut self) -> Result<(), SubjectError> {
        self.executor.release();
        if let Some(Disk { device, mut image }) = self.disk.take() {
            drop(device);
            image.revert()?;
            self.disk = Some(Disk { device: LoopDevice::attach(image.memory())?, image });
        }
        self.executor.restart(mount_fresh(&self.recipe, self.disk.as_ref())?)?;
        Ok(())
    }

    /// How it was made.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The device under the file system, if it has one.
    pub fn device(&self) -> Option<&Path> {
        self.disk.as_ref().map(|disk| disk.device.path())
    }

    fn remount(&mut self) -> Result<Outcome, HarnessFault> {
        let Some(disk) = &self.disk else {
            return Err(HarnessFault::new("remount", "without a disk nothing would be left"));
        };
        self.executor.release();
        let root = mount::mount(&self.recipe, Some(disk.device.path()))?;
        self.executor.resume(root)?;
        Ok(Outcome::ok(0))
    }
}

/// The first mount of an image: without `lost+found`, which the reference does not have.
fn mount_fresh(recipe: &Recipe, disk: Option<&Disk>) -> Result<OwnedFd, SubjectError> {
    let root = mount::mount(recipe, disk.map(|disk| disk.device.path()))?;
    match rustix::fs::unlinkat(&root, "lost+found", AtFlags::REMOVEDIR) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(root),
        Err(errno) => Err(SubjectError::io("remove", "lost+found")(errno.into())),
    }
}

impl Subject for KernelSubject {
    fn name(&self) -> String {
        format!("kernel:{}", self.recipe.name)
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut capabilities = BTreeSet::from([Capability::Devices]);
        if self.executor.can_switch_identity() {
            capabilities.insert(Capability::Identity);
        }
        if self.disk.is_some() {
            capabilities.insert(Capability::Remount);
        }
        capabilities
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        match op {
            Op::Remount => self.remount(),
            op => self.executor.apply(op),
        }
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.executor.observe()
    }
}
