//! [`KernelSubject`]: a real kernel file system on a device in memory. Needs root.
//!
//! Image, loop device and mount are reachable only through descriptors of this process: there is no
//! mount point, no name in any directory, and nothing is left when the process ends, however it
//! ends.
//!
//! # Going back
//!
//! The disk is ours, so a state is saved as the blocks in which it differs from the freshly made
//! disk: after unmounting ([`RestoreMethod::Remount`]), or while the file system is frozen ([`RestoreMethod::Freeze`]).
//! Restoring always unmounts: what the kernel remembers of a mounted file system cannot be told to
//! forget.

pub mod disks;
pub mod drawn;
mod filler;
mod flash;
mod freeze;
mod image;
mod layers;
pub mod log;
mod loop_device;
mod measure;
mod mount;
mod recipe;
mod snapshot_store;
mod spawn;
mod variant;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use fathom_core::schedule::DiskDelays;
use fathom_core::{
    Capability, CheckerReport, Digest, FsBytes, HarnessFault, RestoreMethod, Saved, Unblock,
};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::error::SubjectError;
use crate::host::{Backend, HostSubject, Reconfigure};
use crate::sys::{View, in_guest};
use filler::Filler;
use freeze::ThawGuard;
use image::{Image, RunningProgram};
use log::KernelLog;
use snapshot_store::SnapshotStore;

pub(crate) use disks::DISK_PROCESS_NAME;
pub use disks::KernelDisks;
use disks::SlowDisk;
use loop_device::LoopDevice;
pub use measure::Measured;
pub(crate) use mount::attach;
pub use recipe::{Checker, Layer, Options, Program, Recipe, version};
pub use variant::variants_of;

/// What saved states may take in memory before the oldest go to a file.
const SAVED_BYTES_MAX: u64 = 1 << 30;

/// The same in a guest, where each page of a process may be one of the mappings that its host allows.
const SAVED_BYTES_MAX_IN_GUEST: u64 = 64 << 20;

/// The mode of the reference's root.
const ROOT_MODE: u32 = 0o755;

/// A kernel file system as a subject; see the module documentation.
pub type KernelSubject = HostSubject<KernelBackend>;

/// A mounted kernel file system and the disk under it.
pub struct KernelBackend {
    recipe: Recipe,
    /// Takes space away, if that was asked for.
    filler: Option<Filler>,
    /// The mount under a layer, or the one that the executor holds; dropped next.
    base: Option<OwnedFd>,
    /// Of a file system that has a disk.
    disk: Option<Disk>,
    log: Result<KernelLog, HarnessFault>,
    /// The checker, while it runs.
    checker: RunningProgram,
}

struct Disk {
    /// None only while it is being exchanged. Detached first.
    device: Option<LoopDevice>,
    /// Between the device and the image, if requests can be delayed.
    slow: Option<SlowDisk>,
    /// Whether they are to be from the next reset on.
    wants_delays: bool,
    image: Image,
    store: SnapshotStore,
    /// Of a file system that can be frozen.
    guard: Option<ThawGuard>,
    /// The names of our devices since the kernel's log was last read.
    names: Vec<String>,
}

impl Disk {
    fn format(recipe: &Recipe, format: &Program) -> Result<Disk, SubjectError> {
        if recipe.flash_erase_bytes.is_some() {
            flash::prepare()?;
        }
        let image = Image::format(recipe, format)?;
        let guard = recipe.freezes.then(ThawGuard::start).transpose();
        let saved_bytes_max = if in_guest() { SAVED_BYTES_MAX_IN_GUEST } else { SAVED_BYTES_MAX };
        let mut disk = Disk {
            device: None,
            slow: None,
            wants_delays: false,
            image,
            store: SnapshotStore::new(saved_bytes_max),
            guard: guard.map_err(SubjectError::io("start", "a process that thaws"))?,
            names: Vec::new(),
        };
        disk.attach()?;
        Ok(disk)
    }

    fn attach(&mut self) -> Result<(), SubjectError> {
        self.device = None;
        let device = match &self.slow {
            Some(slow) => LoopDevice::attach_direct(slow.file())?,
            None => LoopDevice::attach(self.image.memory())?,
        };
        let name = device.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !self.names.contains(&name) {
            self.names.push(name);
        }
        self.device = Some(device);
        Ok(())
    }

    /// Puts a process that can delay requests between device and image, or takes it away.
    fn exchange_device(&mut self) -> Result<(), SubjectError> {
        if self.slow.is_some() == self.wants_delays {
            return Ok(());
        }
        self.device = None;
        self.slow = match self.wants_delays {
            true => Some(SlowDisk::new(self.image.memory(), self.image.bytes() as u64)?),
            false => None,
        };
        self.attach()
    }

    /// Keeps what the disk holds as a state. After an error the run ends.
    fn save(&mut self) -> io::Result<Saved> {
        let changes = self.image.changes(&mut self.store)?;
        Ok(self.store.put(changes))
    }

    /// Writes a state of the store, or the first one, to the unmounted disk.
    fn rewrite(&mut self, saved: Option<Saved>) -> Result<(), SubjectError> {
        let changes = saved.and_then(|saved| self.store.get(saved)).unwrap_or_default();
        self.image.become_changed(changes, &self.store).map_err(in_memory("restore"))?;
        // The device remembers what it has read.
        if self.device.as_ref().is_some_and(LoopDevice::forget_cache) {
            Ok(())
        } else {
            self.attach()
        }
    }
}

fn in_memory(what: &'static str) -> impl FnOnce(io::Error) -> SubjectError {
    SubjectError::io(what, "the disk in memory")
}

impl KernelSubject {
    /// Formats and mounts.
    ///
    /// # Errors
    /// Without root, without the formatting program, or if the kernel does not mount it.
    pub fn new(recipe: Recipe, view: View) -> Result<KernelSubject, SubjectError> {
        let mut view = view;
        view.hidden_xattrs
            .extend(recipe.hidden_xattrs.iter().map(|name| FsBytes::from(name.as_str())));
        let (backend, root) = KernelBackend::new(recipe)?;
        Ok(HostSubject::with_root(backend, root, view)?)
    }

    /// A new disk as the recipe makes it, mounted once, emptied and unmounted.
    pub(crate) fn new_disk(recipe: &Recipe) -> Result<fathom_block::Image, SubjectError> {
        if !rustix::process::geteuid().is_root() {
            return Err(SubjectError::NotRoot(recipe.name.clone()));
        }
        let Some(format) = &recipe.format else {
            return Err(SubjectError::NotFormatted(recipe.name.clone()));
        };
        let recipe = &Recipe { freezes: false, ..recipe.clone() };
        let mut disk = Disk::format(recipe, format)?;
        prepare(recipe, &mut disk)?;
        disk.image.now().map_err(in_memory("read"))
    }

    /// How it was made.
    pub fn recipe(&self) -> &Recipe {
        &self.backend.recipe
    }

    /// The device under the file system, if it has one.
    pub fn device(&self) -> Option<&Path> {
        Some(self.backend.disk.as_ref()?.device.as_ref()?.path())
    }

    /// Limits the memory for saved states; what is beyond it goes to a temporary file.
    pub fn set_saved_bytes_max(&mut self, bytes: u64) {
        if let Some(disk) = &mut self.backend.disk {
            disk.store.set_memory_bytes_max(bytes);
        }
    }
}

impl KernelBackend {
    /// Formats and mounts; returns the root, too.
    ///
    /// # Errors
    /// Without root, without the formatting program, or if the kernel does not mount it.
    pub(crate) fn new(recipe: Recipe) -> Result<(KernelBackend, OwnedFd), SubjectError> {
        if !rustix::process::geteuid().is_root() {
            return Err(SubjectError::NotRoot(recipe.name));
        }
        check_kernel(&recipe)?;
        // Before the file system is made, so that what the kernel says of that counts too.
        let log = KernelLog::open();
        let mut disk = match &recipe.format {
            Some(format) => Some(Disk::format(&recipe, format)?),
            None => None,
        };
        if let Some(disk) = &mut disk {
            prepare(&recipe, disk)?;
        }
        let (base, root) = mount_all(&recipe, disk.as_ref(), None)?;
        let filler = fill(&recipe, &base)?;
        let (base, checker) = (Some(base), RunningProgram::default());
        Ok((KernelBackend { recipe, filler, base, disk, log, checker }, root))
    }

    /// Lets go of the mount; the disk then holds all that was written.
    fn unmount(&mut self) -> Result<(), SubjectError> {
        self.filler = None;
        self.base = None;
        unmounted(&self.recipe, self.disk.as_ref())
    }

    fn mount(&mut self) -> Result<OwnedFd, SubjectError> {
        let (base, root) = mount_all(&self.recipe, self.disk.as_ref(), self.base.take())?;
        if self.filler.is_none() {
            self.filler = fill(&self.recipe, &base)?;
        }
        self.base = Some(base);
        Ok(root)
    }

    fn the_disk(&mut self) -> Result<&mut Disk, HarnessFault> {
        let name = &self.recipe.name;
        let none = || HarnessFault::new("going back", format!("{name} has no disk"));
        self.disk.as_mut().ok_or_else(none)
    }

    fn save_frozen(&mut self) -> Result<Saved, HarnessFault> {
        let failed = |error: io::Error| HarnessFault::new("saving a frozen file system", error);
        let base = self.base.as_ref().expect("a mounted file system");
        let disk = self.disk.as_mut().expect("asked only if there is one");
        let Disk { guard: Some(guard), image, store, .. } = disk else {
            return Err(failed(io::Error::other(format!("{} cannot be", self.recipe.name))));
        };
        let changes = guard.frozen(base, || image.changes(store)).map_err(failed)?;
        Ok(store.put(changes))
    }
}

/// Waits until the disk holds all that was written, when nobody holds the mount any more.
fn unmounted(recipe: &Recipe, disk: Option<&Disk>) -> Result<(), SubjectError> {
    if recipe.layer.is_some() {
        layers::leave_place();
    }
    let Some(device) = disk.and_then(|disk| disk.device.as_ref()) else { return Ok(()) };
    if recipe.flash_volume {
        flash::detach_volume(device.path())?;
    }
    if recipe.cache_forgotten {
        device.wait_until_free()?;
        // We hold the device open, so that the kernel does not do it. What it does not forget may be found
        // again, which is no worse than before.
        device.forget_cache();
        return Ok(());
    }
    // Flash claims its device for ever, so that it does not say whether something is mounted; what was
    // written to it may still be in the device's cache.
    if recipe.flash_erase_bytes.is_some() { device.write_back() } else { device.wait_until_free() }
}

/// Takes the space away that the recipe does not leave.
fn fill(recipe: &Recipe, base: &OwnedFd) -> Result<Option<Filler>, SubjectError> {
    let made = recipe.space_bytes.map(|bytes| Filler::new(base, bytes)).transpose();
    made.map_err(SubjectError::io("fill", "the new file system"))
}

/// Refuses what this kernel is too old for.
fn check_kernel(recipe: &Recipe) -> Result<(), SubjectError> {
    let Some(layer) = &recipe.layer else { return Ok(()) };
    let uname = rustix::system::uname();
    let running = uname.release().to_string_lossy().into_owned();
    match version(&running) {
        Some(have) if have < layer.kernel_min && !in_guest() => Err(SubjectError::KernelTooOld {
            name: recipe.name.clone(),
            needs: format!("{}.{}", layer.kernel_min.0, layer.kernel_min.1),
            running,
        }),
        _ => Ok(()),
    }
}

/// Mounts a new disk once, removes what the reference does not have, and makes this the first state.
fn prepare(recipe: &Recipe, disk: &mut Disk) -> Result<(), SubjectError> {
    let (base, root) = mount_all(recipe, Some(disk), None)?;
    for name in &recipe.removed_entries {
        let removed = match rustix::fs::unlinkat(&base, name, AtFlags::REMOVEDIR) {
            Err(rustix::io::Errno::NOTDIR) => rustix::fs::unlinkat(&base, name, AtFlags::empty()),
            removed => removed,
        };
        match removed {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(SubjectError::io("remove", name)(errno.into())),
        }
    }
    set_root_mode(recipe, &base)?;
    drop((root, base));
    unmounted(recipe, Some(disk))?;
    disk.image.settle().map_err(in_memory("read"))
}

/// Gives the root the mode of the reference's, where it has another one (ntfs3: 0777). On flash always: the
/// root of a new JFFS2 is not on the flash at all, and an attribute of such a root is the end of the kernel at
/// the unmount (docs/FOUND_BUGS.md).
fn set_root_mode(recipe: &Recipe, base: &OwnedFd) -> Result<(), SubjectError> {
    let failed =
        |errno: rustix::io::Errno| SubjectError::io("look at", "the new root")(errno.into());
    let mode = rustix::fs::fstat(base).map_err(failed)?.st_mode & 0o7777;
    if mode == ROOT_MODE && recipe.flash_erase_bytes.is_none() {
        return Ok(());
    }
    // A mount is held by a descriptor that only names it: it has to be opened.
    let open = rustix::fs::openat(base, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    let changed = open.and_then(|root| rustix::fs::fchmod(root, Mode::from_raw_mode(ROOT_MODE)));
    changed.map_err(failed)
}

/// Mounts the file system, unless `base` is there already, and its layer; returns both, which are
/// the same without a layer.
fn mount_all(
    recipe: &Recipe,
    disk: Option<&Disk>,
    base: Option<OwnedFd>,
) -> Result<(OwnedFd, OwnedFd), SubjectError> {
    let base = match base {
        Some(base) => base,
        None => {
            let device = disk.and_then(|disk| disk.device.as_ref()).map(LoopDevice::path);
            mount::mount(recipe, device)?
        }
    };
    let root = match &recipe.layer {
        Some(layer) => layers::mount_layer(layer, &base)?,
        None => base.try_clone().map_err(SubjectError::io("share", "a mount"))?,
    };
    Ok((base, root))
}

impl Backend for KernelBackend {
    fn name(&self) -> String {
        self.recipe.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::from([Capability::Devices])
    }

    /// The file system as it was made.
    fn reset(&mut self) -> Result<OwnedFd, HarnessFault> {
        self.unmount()?;
        if let Some(disk) = &mut self.disk {
            disk.exchange_device()?;
            disk.rewrite(None)?;
        }
        Ok(self.mount()?)
    }

    fn want_delays(&mut self, wanted: bool) {
        if let Some(disk) = &mut self.disk {
            disk.wants_delays = wanted;
        }
    }

    fn delay_requests(&mut self, delays: Option<DiskDelays>) {
        if let Some(slow) = self.disk.as_ref().and_then(|disk| disk.slow.as_ref()) {
            slow.delay(delays);
        }
    }

    fn reconfigurer(&self) -> Result<Option<Reconfigure>, HarnessFault> {
        // Of an overlay that is the file system under it.
        let Some(base) = &self.base else { return Ok(None) };
        let failed = |error| HarnessFault::new("sharing the mount with who remounts", error);
        let (base, options) = (base.try_clone().map_err(failed)?, self.recipe.options.clone());
        Ok(Some(Box::new(move || mount::reconfigure(&base, &options))))
    }

    fn why_no_remount(&self) -> Option<&'static str> {
        let stays = self.disk.is_some() || self.recipe.layer.is_some();
        (!stays).then_some("without a disk nothing would be left")
    }

    /// Of a layer without a disk only the layer is unmounted; what it lies on stays.
    fn remount(&mut self) -> Result<OwnedFd, HarnessFault> {
        if self.disk.is_some() {
            self.unmount()?;
        }
        Ok(self.mount()?)
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        match &self.disk {
            Some(disk) if disk.guard.is_some() => {
                vec![RestoreMethod::Freeze, RestoreMethod::Remount]
            }
            Some(_) => vec![RestoreMethod::Remount],
            None => Vec::new(),
        }
    }

    fn save_mounted(&mut self) -> Result<Saved, HarnessFault> {
        self.save_frozen()
    }

    fn save_unmounted(&mut self) -> Result<(Saved, OwnedFd), HarnessFault> {
        self.unmount()?;
        let saved = self.the_disk()?.save().map_err(in_memory("read"))?;
        Ok((saved, self.mount()?))
    }

    fn restore(&mut self, saved: Saved) -> Result<Option<OwnedFd>, HarnessFault> {
        self.the_disk()?.saved(saved)?;
        self.unmount()?;
        self.the_disk()?.rewrite(Some(saved))?;
        Ok(Some(self.mount()?))
    }

    fn forget(&mut self, saved: Saved) {
        if let Some(disk) = &mut self.disk {
            disk.store.forget(saved);
        }
    }

    fn image(&mut self, saved: Saved) -> Result<Option<Vec<u8>>, HarnessFault> {
        let Some(disk) = &self.disk else { return Ok(None) };
        let changes = disk.saved(saved)?;
        Ok(Some(disk.image.whole(changes, &disk.store).map_err(unreadable)?))
    }

    fn image_digest(&mut self, saved: Saved) -> Result<Option<Digest>, HarnessFault> {
        let Some(disk) = &self.disk else { return Ok(None) };
        let changes = disk.saved(saved)?;
        Ok(Some(disk.image.digest(changes, &disk.store).map_err(unreadable)?))
    }

    fn adopt(&mut self, image: &[u8]) -> Result<Saved, HarnessFault> {
        let disk = self.the_disk()?;
        if image.len() != disk.image.bytes() {
            let message = format!("it has {} bytes, the disk {}", image.len(), disk.image.bytes());
            return Err(HarnessFault::new("taking over an image", message));
        }
        let changes = disk.image.changes_of(image, &mut disk.store);
        let changes = changes.map_err(|error| HarnessFault::new("keeping a saved state", error))?;
        Ok(disk.store.put(changes))
    }

    fn has_checker(&self) -> bool {
        self.recipe.checker.is_some()
    }

    fn fsck(&mut self) -> Result<(CheckerReport, OwnedFd), HarnessFault> {
        let Some(checker) = self.recipe.checker.clone() else {
            return Err(HarnessFault::new("running the checker", "the recipe names none"));
        };
        self.unmount()?;
        let running = self.checker.clone();
        let output = self.the_disk()?.image.check(&checker.program, &running)?;
        let root = self.mount()?;
        Ok((judge(&checker, &output)?, root))
    }

    fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        let log = match &mut self.log {
            Ok(log) => log,
            Err(fault) => return Err(HarnessFault::new(&*fault.context, &fault.message)),
        };
        let names = self.disk.as_ref().map_or(&[][..], |disk| &disk.names);
        let is_usual = |line: &String| {
            self.recipe.log_ignored.iter().any(|usual| line.contains(usual.as_str()))
        };
        let mut complaints = log.complaints(names)?;
        complaints.retain(|line| !is_usual(line));
        if let Some(disk) = &mut self.disk {
            let last = disk.names.len().saturating_sub(1);
            disk.names.drain(..last);
        }
        Ok(complaints)
    }

    /// Ends the checker. A call that waits in the kernel cannot be ended.
    fn unblock(&self) -> Option<Unblock> {
        let checker = self.checker.clone();
        Some(Box::new(move || checker.kill()))
    }
}

impl Disk {
    fn saved(&self, saved: Saved) -> Result<&[(u32, Option<Digest>)], HarnessFault> {
        let unknown = || HarnessFault::new("restoring", format!("{saved:?} was not saved"));
        self.store.get(saved).ok_or_else(unknown)
    }
}

fn unreadable(error: io::Error) -> HarnessFault {
    HarnessFault::new("reading a saved state", error)
}

/// What a checker's end means.
fn judge(checker: &Checker, output: &std::process::Output) -> Result<CheckerReport, HarnessFault> {
    let (command, code) = (checker.program.text(), output.status.code());
    let output = image::text(output);
    if code.is_some_and(|code| checker.failed.contains(&code)) {
        return Err(HarnessFault::new(format!("running {command}"), output));
    }
    let clean = code.is_some_and(|code| checker.clean.contains(&code));
    Ok(CheckerReport { command: format!("{command} IMAGE"), clean, code, output })
}
