//! Library file systems behind the seams of [`crate::disks`]: mounted in this process, on a
//! [`Recorder`].
//!
//! This is the only place that mounts a [`BlockBacked`] to record or to examine it. A panic of the
//! library is caught here and becomes a [`SubjectFailure`](crate::disks::SubjectFailure).

mod examine;
mod record;
mod usable;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fathom_core::HarnessFault;

use crate::backed::{BlockBacked, Guarantee};
use crate::disks::DiskFileSystem;
use crate::geometry::Geometry;
use crate::image::Image;
use crate::recorder::Recorder;

/// A library file system that is recorded and examined in this process.
pub struct InProcess<'a>(Library<'a>);

/// The library, borrowed or kept.
enum Library<'a> {
    Borrowed(&'a dyn BlockBacked),
    Kept(Box<dyn BlockBacked>),
}

impl<'a> InProcess<'a> {
    /// Records and examines with a library that somebody else keeps.
    pub fn new(library: &'a dyn BlockBacked) -> InProcess<'a> {
        InProcess(Library::Borrowed(library))
    }

    /// Records and examines with this library.
    pub fn keeping(library: Box<dyn BlockBacked>) -> InProcess<'static> {
        InProcess(Library::Kept(library))
    }

    fn library(&self) -> &dyn BlockBacked {
        match &self.0 {
            Library::Borrowed(library) => *library,
            Library::Kept(library) => &**library,
        }
    }
}

impl DiskFileSystem for InProcess<'_> {
    fn name(&self) -> &str {
        self.library().name()
    }

    fn version(&self) -> &str {
        self.library().version()
    }

    fn geometry(&self) -> Geometry {
        self.library().geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.library().guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.library().format()
    }
}

thread_local! {
    /// Whether a panic of this thread is the subject's and will be data.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics of subjects off the standard error. Call it once at the start of a program.
pub fn quiet_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !EXPECTED.with(Cell::get) {
            before(info);
        }
    }));
}

/// Runs what may panic; the error is the message.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let before = EXPECTED.with(|expected| expected.replace(true));
    // Nothing of ours is left half done: the subject and its device are dropped.
    let result = catch_unwind(AssertUnwindSafe(run));
    EXPECTED.with(|expected| expected.set(before));
    result.map_err(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned());
        text.unwrap_or_else(|| "without a message".to_owned())
    })
}

/// A device with a copy of a disk. A power failure may leave programmed bytes where nothing should be:
/// no device refuses them.
fn device(subject: &dyn BlockBacked, disk: &Image) -> Result<Recorder, HarnessFault> {
    let device = Recorder::new(disk.clone(), subject.geometry());
    let fault = |error| HarnessFault::new(format!("a device for {}", subject.name()), error);
    device.map(Recorder::overprogramming).map_err(fault)
}
