//! Byte strings of the file-system interface: path names, entry names, xattr names and values.
//!
//! Linux names are bytes, not text. In JSON they are strings with one lossless escape, so that a
//! trace stays readable and a name that is not UTF-8 still survives: a backslash is `\\`, and every
//! byte that is not printable UTF-8 is `\xNN`.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An immutable byte string that is cheap to clone: a path, a name or an xattr value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsBytes(Arc<[u8]>);

/// A path relative to the root of the subject: `a/b`; the root itself is `.`.
pub type FsPath = FsBytes;

impl FsBytes {
    /// The empty byte string, which takes no memory.
    pub fn empty() -> FsBytes {
        FsBytes(Arc::default())
    }

    /// The bytes as they go to the kernel, without a terminating NUL.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Joins two paths: `dir/name`, or just `name` if `dir` is the root `.`.
    pub fn join(&self, name: &[u8]) -> FsPath {
        if self.as_bytes() == b"." {
            return FsBytes::from(name);
        }
        let mut path = Vec::with_capacity(self.0.len() + 1 + name.len());
        path.extend_from_slice(&self.0);
        path.push(b'/');
        path.extend_from_slice(name);
        FsBytes::from(path)
    }

    /// The containing directory of a plain relative path, `.` for a top-level name, `None` for `.`.
    pub fn parent(&self) -> Option<FsPath> {
        if self.as_bytes() == b"." {
            return None;
        }
        match self.0.iter().rposition(|&b| b == b'/') {
            Some(at) => Some(FsBytes::from(&self.0[..at])),
            None => Some(FsBytes::from(".")),
        }
    }

    /// The last component of a plain relative path.
    pub fn file_name(&self) -> &[u8] {
        match self.0.iter().rposition(|&b| b == b'/') {
            Some(at) => &self.0[at + 1..],
            None => &self.0,
        }
    }
}

impl From<&[u8]> for FsBytes {
    fn from(bytes: &[u8]) -> Self {
        FsBytes(Arc::from(bytes))
    }
}

impl From<Vec<u8>> for FsBytes {
    fn from(bytes: Vec<u8>) -> Self {
        FsBytes(Arc::from(bytes))
    }
}

impl From<&str> for FsBytes {
    /// Takes the text as it is, without interpreting escapes (use `parse` for those).
    fn from(text: &str) -> Self {
        FsBytes(Arc::from(text.as_bytes()))
    }
}

impl Borrow<[u8]> for FsBytes {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for FsBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_control() => {
                        let mut buffer = [0; 4];
                        for byte in c.encode_utf8(&mut buffer).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    c => write!(f, "{c}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FsBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A text that is not a valid escaped byte string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad escape at byte {at} of {text:?}: write \\\\ for a backslash and \\xNN for a raw byte")]
pub struct BadEscape {
    text: String,
    at: usize,
}

impl FromStr for FsBytes {
    type Err = BadEscape;

    fn from_str(text: &str) -> Result<Self, BadEscape> {
        let raw = text.as_bytes();
        let mut bytes = Vec::with_capacity(raw.len());
        let mut at = 0;
        while at < raw.len() {
            if raw[at] != b'\\' {
                bytes.push(raw[at]);
                at += 1;
                continue;
            }
            let hex = raw.get(at + 2..at + 4).and_then(|h| std::str::from_utf8(h).ok());
            match (raw.get(at + 1), hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
                (Some(b'\\'), _) => {
                    bytes.push(b'\\');
                    at += 2;
                }
                (Some(b'x'), Some(byte)) => {
                    bytes.push(byte);
                    at += 4;
                }
                _ => return Err(BadEscape { text: text.to_owned(), at }),
            }
        }
        Ok(FsBytes::from(bytes))
    }
}

impl Serialize for FsBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FsBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_round_trip_for_every_byte() {
        let all: Vec<u8> = (0..=255).collect();
        let bytes = FsBytes::from(all);
        let text = bytes.to_string();
        assert_eq!(text.parse::<FsBytes>().unwrap(), bytes);
        assert!(text.contains("\\xff") && text.contains("\\\\") && text.contains("\\x00"));
    }

    #[test]
    fn bad_escapes_name_their_place() {
        let error = "ab\\q".parse::<FsBytes>().unwrap_err();
        assert_eq!(error.at, 2);
        assert!("\\x4".parse::<FsBytes>().is_err());
        assert!("\\xéa".parse::<FsBytes>().is_err());
    }

    #[test]
    fn join_and_parent_are_inverse() {
        let root = FsPath::from(".");
        let a = root.join(b"a");
        let b = a.join(b"b");
        assert_eq!((a.to_string(), b.to_string()), ("a".into(), "a/b".into()));
        assert_eq!((b.parent(), a.parent(), root.parent()), (Some(a), Some(root), None));
        assert_eq!(b.file_name(), b"b");
    }
}
