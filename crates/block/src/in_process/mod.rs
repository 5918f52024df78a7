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
use std::sync::Arc;

use fathom_core::HarnessFault;

use crate::backed::{BlockBacked, Guarantee};
use crate::disks::{
    DiskFileSystem, Examine, Facts, Memo, Questions, Record, Recording, SubjectFailure, Workload,
};
use crate::geometry::Geometry;
use crate::image::Image;
use crate::recorder::Recorder;

/// A library file system that is recorded and examined in this process.
#[derive(Clone, Copy)]
pub struct InProcess<'a>(pub &'a dyn BlockBacked);

impl DiskFileSystem for InProcess<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn version(&self) -> &str {
        self.0.version()
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.0.guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.0.format()
    }
}

/// A library file system that is recorded and examined in this process, with the library itself.
pub struct OwnedInProcess(pub Box<dyn BlockBacked>);

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl Record for OwnedInProcess {
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        InProcess(&*self.0).record(base, workload)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl Examine for OwnedInProcess {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        InProcess(&*self.0).examine(disks, questions)
    }

    fn examine_knowing(
        &self,
        disks: &[Image],
        questions: &Questions,
        memo: &Memo,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        InProcess(&*self.0).examine_knowing(disks, questions, memo)
    }

    fn examine_telling_reads(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Option<Result<Vec<Arc<Facts>>, HarnessFault>> {
        InProcess(&*self.0).examine_telling_reads(disks, questions)
    }

    fn batch_disks(&self) -> usize {
        InProcess(&*self.0).batch_disks()
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl DiskFileSystem for OwnedInProcess {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn version(&self) -> &str {
        self.0.version()
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.0.guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.0.format()
    }

    fn is_deterministic(&self) -> bool {
        InProcess(&*self.0).is_deterministic()
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
