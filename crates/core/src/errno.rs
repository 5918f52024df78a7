//! Error numbers by name (x86-64 Linux values, from `data/syscalls.json`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An error number as Linux returns it. Shown and stored by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub u16);

macro_rules! errnos {
    ($($name:ident = $value:literal),* $(,)?) => {
        /// The error numbers that file-system calls can return.
        #[allow(missing_docs, reason = "errno(3) documents each")]
        impl Errno {
            $(pub const $name: Errno = Errno($value);)*
        }
        const NAMES: &[(&str, u16)] = &[$((stringify!($name), $value)),*];
    };
}

errnos! {
    EPERM = 1, ENOENT = 2, ESRCH = 3, EINTR = 4, EIO = 5, ENXIO = 6, E2BIG = 7, ENOEXEC = 8,
    EBADF = 9, EAGAIN = 11, ENOMEM = 12, EACCES = 13, EFAULT = 14, ENOTBLK = 15, EBUSY = 16,
    EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20, EISDIR = 21, EINVAL = 22, ENFILE = 23,
    EMFILE = 24, ENOTTY = 25, ETXTBSY = 26, EFBIG = 27, ENOSPC = 28, ESPIPE = 29, EROFS = 30,
    EMLINK = 31, EPIPE = 32, ERANGE = 34, EDEADLK = 35, ENAMETOOLONG = 36, ENOLCK = 37,
    ENOSYS = 38, ENOTEMPTY = 39, ELOOP = 40, EBADR = 53, ENODATA = 61, ETIME = 62, EBADMSG = 74,
    EOVERFLOW = 75, EBADFD = 77, ELIBBAD = 80, EUSERS = 87, EDESTADDRREQ = 89, ECONNABORTED = 103, ENOTCONN = 107,
    EOPNOTSUPP = 95, ESTALE = 116, EUCLEAN = 117, EDQUOT = 122, EOWNERDEAD = 130,
}

/// The other error numbers of Linux (include/uapi/asm-generic/errno.h): a file system should not return
/// them, a FUSE daemon may.
#[rustfmt::skip]
const OTHER_NAMES: &[(&str, u16)] = &[
    ("ECHILD", 10), ("EDOM", 33), ("ENOMSG", 42), ("EIDRM", 43), ("ECHRNG", 44), ("EL2NSYNC", 45),
    ("EL3HLT", 46), ("EL3RST", 47), ("ELNRNG", 48), ("EUNATCH", 49), ("ENOCSI", 50),
    ("EL2HLT", 51), ("EBADE", 52), ("EXFULL", 54), ("ENOANO", 55), ("EBADRQC", 56),
    ("EBADSLT", 57), ("EBFONT", 59), ("ENOSTR", 60), ("ENOSR", 63), ("ENONET", 64),
    ("ENOPKG", 65), ("EREMOTE", 66), ("ENOLINK", 67), ("EADV", 68), ("ESRMNT", 69), ("ECOMM", 70),
    ("EPROTO", 71), ("EMULTIHOP", 72), ("EDOTDOT", 73), ("ENOTUNIQ", 76), ("EREMCHG", 78),
    ("ELIBACC", 79), ("ELIBSCN", 81), ("ELIBMAX", 82), ("ELIBEXEC", 83), ("EILSEQ", 84),
    ("ERESTART", 85), ("ESTRPIPE", 86), ("ENOTSOCK", 88), ("EMSGSIZE", 90), ("EPROTOTYPE", 91),
    ("ENOPROTOOPT", 92), ("EPROTONOSUPPORT", 93), ("ESOCKTNOSUPPORT", 94), ("EPFNOSUPPORT", 96),
    ("EAFNOSUPPORT", 97), ("EADDRINUSE", 98), ("EADDRNOTAVAIL", 99), ("ENETDOWN", 100),
    ("ENETUNREACH", 101), ("ENETRESET", 102), ("ECONNABORTED", 103), ("ECONNRESET", 104),
    ("ENOBUFS", 105), ("EISCONN", 106), ("ESHUTDOWN", 108), ("ETOOMANYREFS", 109),
    ("ETIMEDOUT", 110), ("ECONNREFUSED", 111), ("EHOSTDOWN", 112), ("EHOSTUNREACH", 113),
    ("EALREADY", 114), ("EINPROGRESS", 115), ("ENOTNAM", 118), ("ENAVAIL", 119), ("EISNAM", 120),
    ("EREMOTEIO", 121), ("ENOMEDIUM", 123), ("EMEDIUMTYPE", 124), ("ECANCELED", 125),
    ("ENOKEY", 126), ("EKEYEXPIRED", 127), ("EKEYREVOKED", 128), ("EKEYREJECTED", 129),
    ("ENOTRECOVERABLE", 131), ("ERFKILL", 132), ("EHWPOISON", 133),
];

impl Errno {
    /// The symbolic name, if this is a known number.
    pub fn name(self) -> Option<&'static str> {
        let mut names = NAMES.iter().chain(OTHER_NAMES);
        names.find(|(_, value)| *value == self.0).map(|(name, _)| *name)
    }

    /// Lists every error that a file-system call can return, with its name.
    pub fn all() -> impl Iterator<Item = (&'static str, Errno)> {
        NAMES.iter().map(|(name, value)| (*name, Errno(*value)))
    }

    /// The errno of an error of the standard library, if it came from the operating system.
    pub fn from_io(error: &std::io::Error) -> Option<Errno> {
        error.raw_os_error().and_then(|raw| u16::try_from(raw).ok()).map(Errno)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "E#{}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no error number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown errno {0:?}: use a name such as ENOENT, or E#NUMBER")]
pub struct UnknownErrno(String);

impl FromStr for Errno {
    type Err = UnknownErrno;

    fn from_str(text: &str) -> Result<Self, UnknownErrno> {
        let mut names = NAMES.iter().chain(OTHER_NAMES);
        let known = names.find(|(name, _)| *name == text).map(|(_, value)| *value);
        known
            .or_else(|| text.strip_prefix("E#").and_then(|number| number.parse().ok()))
            .map(Errno)
            .ok_or_else(|| UnknownErrno(text.to_owned()))
    }
}

impl Serialize for Errno {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Errno {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_numbers_survive() {
        for (name, value) in NAMES.iter().chain(OTHER_NAMES) {
            assert_eq!(name.parse(), Ok(Errno(*value)));
            assert_eq!(Errno(*value).to_string(), *name);
        }
        assert_eq!(Errno(103).to_string(), "ECONNABORTED");
        assert_eq!("E#250".parse(), Ok(Errno(250)));
        assert!("ENOPE".parse::<Errno>().is_err());
    }
}
