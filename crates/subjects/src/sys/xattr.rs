//! Executes operations on extended attributes.

use std::collections::BTreeSet;
use std::ffi::CStr;

use fathom_core::flags::XattrFlags;
use fathom_core::{Errno, FsBytes, Outcome, Pattern, Payload, Target};

use super::call::{self, Answer};
use super::path::CPath;
use super::{Applied, Executor, Place, buffer_len};

/// Greatest length of a buffer. Neither a value nor a list of names is longer (XATTR_SIZE_MAX and
/// XATTR_LIST_MAX of the kernel's `limits.h`), and the kernel treats a longer buffer as one of this
/// length (`fs/xattr.c`).
pub(super) const XATTR_BYTES_MAX: usize = 65536;

impl Executor {
    pub(super) fn setxattr(
        &mut self,
        target: &Target,
        name: &FsBytes,
        value: Pattern,
        flags: XattrFlags,
    ) -> Applied {
        let (place, name) = (self.place(target)?, CPath::new(name)?);
        buffer_len(value.len)?;
        let (name, value, flags) = (name.c(), self.buffer.pattern(value), flags.bits());
        Ok(match place {
            Place::Path(path) => call::setxattr(path.c(), name, value, flags),
            Place::Link(path) => call::lsetxattr(path.c(), name, value, flags),
            Place::Slot(fd) => call::fsetxattr(fd, name, value, flags),
        }
        .into())
    }

    pub(super) fn getxattr(&mut self, target: &Target, name: &FsBytes, len: u64) -> Applied {
        let (place, name) = (self.place(target)?, CPath::new(name)?);
        let to = self.buffer.slice(len.min(XATTR_BYTES_MAX as u64) as usize);
        let answer = match place {
            Place::Path(path) => call::getxattr(path.c(), name.c(), to),
            Place::Link(path) => call::lgetxattr(path.c(), name.c(), to),
            Place::Slot(fd) => call::fgetxattr(fd, name.c(), to),
        };
        Ok(match answer {
            Ok(count) if len > 0 => Outcome::data(&to[..count as usize]),
            size_or_error => size_or_error.into(),
        })
    }

    /// Lists the names of attributes. Names that the view hides are not there, as if the list had
    /// been made without them.
    ///
    /// It is one system call if that says all: beside other callers a second one would show another moment.
    pub(super) fn listxattr(&mut self, target: &Target, len: u64) -> Applied {
        let place = self.place(target)?;
        let to = self.buffer.slice(len.min(XATTR_BYTES_MAX as u64) as usize);
        let asked = list(&place, to);
        let (to, count) = match asked {
            Ok(count) if len > 0 => (&*to, count),
            Ok(_) | Err(Errno::ERANGE) => {
                let to = self.buffer.slice(XATTR_BYTES_MAX);
                match list(&place, to) {
                    Ok(count) => (&*to, count),
                    Err(_) => return Ok(asked.into()),
                }
            }
            Err(_) => return Ok(asked.into()),
        };
        let all = names(&to[..count as usize]);
        let shown: BTreeSet<FsBytes> =
            all.filter(|name| !self.view.hides_xattr(name)).map(FsBytes::from).collect();
        let shown_bytes = shown.iter().map(|name| name.as_bytes().len() as u64 + 1).sum();
        let result = if shown_bytes == count {
            asked
        } else if (1..shown_bytes).contains(&len) {
            Err(Errno::ERANGE)
        } else {
            Ok(shown_bytes)
        };
        let payload = if result.is_ok() && len > 0 { Payload::Names(shown) } else { Payload::None };
        Ok(Outcome { result, payload })
    }

    pub(super) fn removexattr(&mut self, target: &Target, name: &FsBytes) -> Applied {
        let (place, name) = (self.place(target)?, CPath::new(name)?);
        Ok(match place {
            Place::Path(path) => call::removexattr(path.c(), name.c()),
            Place::Link(path) => call::lremovexattr(path.c(), name.c()),
            Place::Slot(fd) => call::fremovexattr(fd, name.c()),
        }
        .into())
    }
}

fn list(place: &Place, to: &mut [u8]) -> Answer {
    match place {
        Place::Path(path) => call::listxattr(path.c(), to),
        Place::Link(path) => call::llistxattr(path.c(), to),
        Place::Slot(fd) => call::flistxattr(*fd, to),
    }
}

/// Splits a list as listxattr(2) returns it: each name has a NUL at its end.
fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    c_names(list).map(CStr::to_bytes)
}

/// Splits a list into C strings, ready for the next call.
pub(super) fn c_names(list: &[u8]) -> impl Iterator<Item = &CStr> {
    list.split_inclusive(|&byte| byte == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok())
}
