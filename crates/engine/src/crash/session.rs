//! One mount of the subject: operations on a device that remembers everything.
//!
//! Whatever the subject does wrong is data here, panics included.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fathom_block::{BlockBacked, Image, Mounted, Recorder, WriteLog};
use fathom_core::{Errno, Op, Outcome, Tree};

/// A subject that did not even come to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectFailure {
    /// It refused to mount.
    Mount(Errno),
    /// It panicked; the message.
    Panic(String),
}

/// What happened during a mount.
#[derive(Debug)]
pub struct Session {
    /// Everything that was written, from the beginning of the mount on.
    pub log: WriteLog,
    /// The position after mounting, and after each operation.
    pub positions: Vec<usize>,
    /// What the operations answered.
    pub outcomes: Vec<Outcome>,
    /// What is visible at the end; with [`End::Unmount`] before unmounting.
    pub tree: Tree,
    /// What the device holds at the end, if it was unmounted, and the answer to that.
    pub unmounted: Option<(Outcome, Image)>,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The power is cut; where exactly is decided later.
    PowerOff,
    /// Cleanly: one more position is noted.
    Unmount,
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

/// Runs what may panic.
pub(super) fn guarded<T>(
    run: impl FnOnce() -> Result<T, SubjectFailure>,
) -> Result<T, SubjectFailure> {
    let before = EXPECTED.with(|expected| expected.replace(true));
    // Nothing of ours is left half done: the subject and its device are dropped.
    let result = catch_unwind(AssertUnwindSafe(run));
    EXPECTED.with(|expected| expected.set(before));
    result.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Err(SubjectFailure::Panic(text.unwrap_or_else(|| "without a message".to_owned())))
    })
}

/// Mounts an image.
pub(super) fn mount(
    subject: &dyn BlockBacked,
    image: &Image,
) -> Result<Box<dyn Mounted>, SubjectFailure> {
    let device = Recorder::new(image.clone(), subject.geometry()).expect("an image of its own");
    // A power failure may leave programmed bytes where nothing should be: no device refuses them.
    subject.mount(device.overprogramming()).map_err(|failure| SubjectFailure::Mount(failure.errno))
}

/// Mounts `base`, executes the operations, and ends.
///
/// # Errors
/// If the subject cannot be mounted or panics.
pub fn session<'a>(
    subject: &dyn BlockBacked,
    base: &Image,
    ops: impl IntoIterator<Item = &'a Op>,
    end: End,
) -> Result<Session, SubjectFailure> {
    guarded(|| {
        let mut mounted = mount(subject, base)?;
        let mut positions = vec![mounted.position()];
        let mut outcomes = Vec::new();
        for op in ops {
            outcomes.push(mounted.apply(op));
            positions.push(mounted.position());
        }
        let tree = mounted.observe();
        let (device, unmounted) = match end {
            End::PowerOff => (mounted.power_off(), None),
            End::Unmount => {
                let (outcome, device) = mounted.unmount();
                positions.push(device.position());
                let image = device.image().clone();
                (device, Some((outcome, image)))
            }
        };
        let (_, log) = device.into_parts();
        Ok(Session { log, positions, outcomes, tree, unmounted })
    })
}
