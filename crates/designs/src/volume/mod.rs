//! File-system designs: a volume with directories and files on a block device.
//!
//! A designer implements [`Design`]: how a volume is made, mounted (recovery included) and used, and
//! which [`Invariant`]s its metadata has. [`Explorer`] does the rest: it tries every sequence of
//! operations up to a length, cuts the power at every write of each, mounts what is left, and
//! compares with what was promised.
//!
//! Sizes are those of a model: names are one byte, files have a few blocks, contents are one number
//! per block (a file system does not look at contents, so two numbers that differ stand for all).

mod backed;
mod call;
mod design;
mod encode;
mod explore;
mod explorer;
mod legal;
mod shadow;
mod tally;
mod tell;

pub use backed::Backed;
pub use call::{Call, OperationSet};
pub use design::{Design, Invariant, Promise, Variant, Volume, device, hex};
pub use explore::{Explored, explore};
pub use explorer::{Action, Explorer, ExplorerError, Limits, State};
pub use shadow::{Entry, FILE_BLOCKS_MAX, Path, Tree};
