//! A volume that lacks something refuses it as such file systems do.

use fathom_core::flags::RenameFlags;
use fathom_core::plain::{DIR_MODE, FILE_MODE};
use fathom_core::{Errno, Mode};

use super::NewNode;
use super::state::State;
use crate::feature::Feature;

impl State {
    pub(super) fn lacks(&self, feature: Feature) -> bool {
        !self.config.quirks.has(feature)
    }

    /// The mode that a new inode gets.
    ///
    /// # Errors
    /// `EPERM` for what cannot be made (symlink(2), mknod(2)).
    pub(super) fn kept_mode(&self, node: &NewNode, mode: Mode) -> Result<Mode, Errno> {
        let (feature, plain) = match node {
            NewNode::File => (None, FILE_MODE),
            NewNode::Dir => (None, DIR_MODE),
            NewNode::Symlink(_) => (Some(Feature::Symlinks), mode),
            _ => (Some(Feature::SpecialFiles), FILE_MODE),
        };
        if feature.is_some_and(|feature| self.lacks(feature)) {
            return Err(Errno::EPERM);
        }
        Ok(if self.lacks(Feature::Modes) { plain } else { mode })
    }

    /// # Errors
    /// `EOPNOTSUPP` (xattr(7)).
    pub(super) fn check_xattrs(&self) -> Result<(), Errno> {
        if self.lacks(Feature::Xattrs) { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    /// # Errors
    /// `EINVAL` (rename(2): "the file system does not support one of the flags").
    pub(super) fn check_rename_features(&self, flags: RenameFlags) -> Result<(), Errno> {
        let lacking = [
            (RenameFlags::RENAME_NOREPLACE, Feature::RenameNoreplace),
            (RenameFlags::RENAME_EXCHANGE, Feature::RenameExchange),
            (RenameFlags::RENAME_WHITEOUT, Feature::RenameWhiteout),
        ];
        match lacking.iter().any(|(flag, feature)| flags.contains(*flag) && self.lacks(*feature)) {
            true => Err(Errno::EINVAL),
            false => Ok(()),
        }
    }
}
