//! Kernels of our own: a User-Mode Linux kernel is an ordinary process, so that a file system that
//! hangs, oopses or panics ends that process and nothing else.
//!
//! ```text
//!  a name ──► kernel ──► boot ──► what the guest's init runs ──► an end, as data
//!  (resolve)  (probe)    confined, with a seed and a clock of its own
//! ```
//!
//! * [`kernel`]: what a kernel file is and what it can do.
//! * [`resolve`]: from a name on the command line to a kernel.

pub mod error;
pub mod kernel;

pub use error::{GuestError, Result};
pub use kernel::Kernel;

use std::path::Path;

/// The kernel of Debian's package `user-mode-linux`.
const DEBIAN: &str = "/usr/bin/linux.uml";

/// Finds the kernel that a name means: `debian`, or the path of a kernel file.
///
/// # Errors
/// If there is no such kernel, or it is none.
pub fn resolve(name: &str) -> Result<Kernel> {
    if name == "debian" {
        let path = Path::new(DEBIAN);
        if !path.exists() {
            return Err(GuestError::NoDebianKernel);
        }
        return kernel::probe(path);
    }
    let path = Path::new(name);
    if path.is_file() {
        return kernel::probe(path);
    }
    Err(GuestError::UnknownKernel { name: name.to_owned() })
}
