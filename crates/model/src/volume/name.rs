//! Entry names, which are compared and copied without a call or a reference count if they are short.

use std::cmp::Ordering;

use fathom_core::FsBytes;

/// Longest name that is kept in place: makes a [`ShortName`] as large as a `Vec`.
const INLINE_BYTES_MAX: usize = 22;

/// A name. A change after a clone copies a directory with all its names, so that copy must be cheap.
#[derive(Clone, Debug)]
pub(super) enum ShortName {
    /// A short name: its length, and its bytes with zeros behind them.
    Inline(u8, [u8; INLINE_BYTES_MAX]),
    Shared(FsBytes),
}

impl ShortName {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            ShortName::Inline(len, bytes) => &bytes[..usize::from(*len)],
            ShortName::Shared(name) => name.as_bytes(),
        }
    }

    pub(super) fn to_fs_bytes(&self) -> FsBytes {
        match self {
            ShortName::Inline(..) => FsBytes::from(self.as_bytes()),
            ShortName::Shared(name) => name.clone(),
        }
    }
}

impl From<&[u8]> for ShortName {
    fn from(name: &[u8]) -> Self {
        if name.len() > INLINE_BYTES_MAX {
            return ShortName::Shared(FsBytes::from(name));
        }
        let mut bytes = [0; INLINE_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        ShortName::Inline(name.len() as u8, bytes)
    }
}

/// Computes three numbers that are ordered as the bytes are. The last two overlap, which does not
/// matter: where they do, the second has already decided.
fn order_key(bytes: &[u8; INLINE_BYTES_MAX]) -> [u64; 3] {
    [0, 8, 14].map(|at| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

impl Ord for ShortName {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // Zeros behind the name do not disturb the order: no name contains one.
            (ShortName::Inline(_, a), ShortName::Inline(_, b)) => order_key(a).cmp(&order_key(b)),
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

impl PartialOrd for ShortName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ShortName {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ShortName {}

impl std::fmt::Display for ShortName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_fs_bytes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_are_ordered_as_their_bytes(
            a in prop::collection::vec(1u8..4, 0..30),
            b in prop::collection::vec(1u8..4, 0..30),
            same in 0usize..30,
        ) {
            let b = [&a[..same.min(a.len())], &b].concat();
            let (short_a, short_b) = (ShortName::from(&a[..]), ShortName::from(&b[..]));
            prop_assert_eq!(short_a.cmp(&short_b), a.cmp(&b));
            prop_assert_eq!(short_a.as_bytes(), &a[..]);
            prop_assert_eq!(short_a.to_fs_bytes(), FsBytes::from(&a[..]));
        }
    }
}
