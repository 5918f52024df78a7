//! What executes operations: directories of the host, file systems of its kernel, the FUSE server
//! of the reference.
//!
//! * [`catalogue`]: all of them by name, what each offers and what it needs.
//! * [`daemon`]: any file system that a program serves through FUSE.
//! * [`dir`]: any directory, without root.
//! * [`fuse`]: RefFS, the reference file system served through FUSE.
//! * [`host`]: the frame of all subjects in the host's kernel.
//! * [`kernel`]: real kernel file systems on memory-backed loop devices, detached from every
//!   mount point.
//! * [`library`]: file systems as libraries on devices in memory, without root and without a kernel.
//! * [`nfs`]: any of these behind NFS, with server and client in one guest.
//! * [`supervise`]: a worker process and the memory that it shares with its supervisor.
//! * [`sys`]: what these share: operations as system calls, and the walk that observes a tree.
//!
//! With `trace` the only crate with `unsafe`, and the only one that may need root.

pub mod catalogue;
pub mod daemon;
pub mod dir;
pub mod error;
pub mod fuse;
pub mod host;
pub mod kernel;
pub mod library;
pub mod nfs;
mod probe;
pub mod supervise;
pub mod sys;

pub use daemon::FuseSubject;
pub use dir::DirSubject;
pub use error::SubjectError;
pub use kernel::{KernelSubject, Recipe};
pub use nfs::NfsSubject;
