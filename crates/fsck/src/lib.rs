//! Tests file-system checkers: corrupts a disk field by field, runs the checker, and finds the cases in
//! which it lies.
//!
//! The flow is that of the modules: a healthy [`Disk`] → its [`map`] → cases (field × value) → runs of the
//! [`Checker`] → verdicts → causes → findings. A [`Subject`] is a checker on a disk; [`campaign`] tries
//! all cases of it.

pub mod campaign;
pub mod map;

mod behaviour;
mod case;
mod cause;
mod checker;
mod compare;
mod cover;
mod disk;
mod explore;
mod ext;
mod finding;
mod judge;
mod kernel;
mod look;
mod objects;
mod run;
mod runner;
mod subject;
mod suite;
mod values;

pub use behaviour::{Coverage, Growth};
pub use case::{Case, Choice};
pub use checker::{Checker, CheckerError, Says};
pub use compare::{Compared, Kept, compare};
pub use cover::{BuildError, build, unpack};
pub use disk::{Disk, DiskError, DiskMaker, NoGuests};
pub use explore::{ExploreError, Explored, explore};
pub use finding::{Details, KIND};
pub use judge::Class;
pub use look::{DiskLooker, Mounted, answer_batch, read_answers};
pub use run::{End, Limits, RunError};
pub use subject::{Subject, SubjectError, SubjectOptions};
pub use suite::{Chosen, SuiteImage, choose, edges_of_cases, edges_of_image, images};
