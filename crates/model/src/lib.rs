//! The reference file system: what Linux promises, as pure code on copy-on-write data.
//!
//! Two layers, as in the kernel:
//!
//! * [`volume`]: the file system proper. Inodes, directory entries, contents, extended attributes,
//!   capacity. It knows no paths and checks no permissions. The FUSE server serves this layer.
//! * [`syscall`]: what the VFS adds. Path resolution, permissions, open files, errno precedence: one
//!   file per system call, the rules in the order in which Linux applies them.
//!
//! [`Model`] is both together and executes [`fathom_core::Op`]s. A clone shares everything and costs
//! tens of nanoseconds; the digest of the visible tree is maintained incrementally.

#![forbid(unsafe_code)]

pub mod config;
pub mod feature;
pub mod mutant;
mod profile;
pub mod quirks;
mod race;
mod subject;
pub mod syscall;
mod virtual_time;
pub mod volume;

pub use config::{Config, ConfigError};
pub use feature::Feature;
pub use mutant::Mutant;
pub use quirks::{Quirks, XattrOrder};
pub use race::Race;
pub use subject::ModelSubject;
pub use syscall::{Change, Model};
pub use volume::{
    Attr, DirEntry, Identity, Ino, InodeNumbers, NewNode, ROOT, SetTime, TreeOptions, Volume,
    VolumeImage,
};
