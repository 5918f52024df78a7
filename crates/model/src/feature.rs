//! What a file system may lack altogether: a name for each, used by profiles (`lacks = ["hard-links"]`),
//! by what is found out by trying, and by `--require`.
//!
//! What is lacking is not used ([`crate::Model::unspecified`]) and what depends on it is not compared.
//! A reference that is *served* without a feature refuses it as such file systems do: the counterpart
//! that shows that a lack is noticed, and that nothing beyond it is excused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! features {
    ($($variant:ident $name:literal $lack:literal;)*) => {
        /// One thing that most file systems have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Feature {
            $(#[doc = concat!("Without it: ", $lack, ".")] #[serde(rename = $name)] $variant,)*
        }

        impl Feature {
            /// Every feature.
            pub const ALL: &[Feature] = &[$(Feature::$variant,)*];

            /// How it is called in profiles and on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Feature::$variant => $name,)* }
            }

            /// What follows if it is lacking, as the end of a sentence.
            pub fn consequence(self) -> &'static str {
                match self { $(Feature::$variant => $lack,)* }
            }
        }
    };
}

features! {
    HardLinks "hard-links" "link is not used";
    Symlinks "symlinks" "symlink is not used";
    Xattrs "xattrs" "the calls on extended attributes are not used";
    Modes "modes" "chmod, access and other users are not used, modes are not compared";
    Owners "owners" "chown and other users are not used, owners are not compared";
    SpecialFiles "special-files" "FIFOs, sockets and devices are not made";
    RenameNoreplace "rename-noreplace" "RENAME_NOREPLACE is not used";
    RenameExchange "rename-exchange" "RENAME_EXCHANGE is not used";
    RenameWhiteout "rename-whiteout" "RENAME_WHITEOUT is not used";
    DirNlink "dir-nlink" "link counts of directories are not compared";
    InodeNumbers "inode-numbers" "which names are the same file is not compared";
    OpenUnlinked "open-unlinked" "open files keep their names";
    Mmap "mmap" "shared mappings are not used";
    LinkSize "link-size" "sizes of symbolic links are not compared";
    Holes "holes" "SEEK_DATA and SEEK_HOLE show none, of large files only a part is read";
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no feature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown feature {text:?}: use {}", known())]
pub struct UnknownFeature {
    text: String,
}

fn known() -> String {
    Feature::ALL.iter().map(|feature| feature.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Feature {
    type Err = UnknownFeature;

    /// The name; without its hyphens too (`hardlinks`).
    fn from_str(text: &str) -> Result<Self, UnknownFeature> {
        let plain = |name: &str| name.replace('-', "");
        let found = Feature::ALL.iter().find(|feature| plain(feature.name()) == plain(text));
        found.copied().ok_or_else(|| UnknownFeature { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_with_and_without_hyphens() {
        for feature in Feature::ALL {
            assert_eq!(feature.name().parse(), Ok(*feature));
            assert!(!feature.consequence().ends_with('.'));
        }
        assert_eq!("hardlinks".parse(), Ok(Feature::HardLinks));
        let error = "wings".parse::<Feature>().unwrap_err().to_string();
        assert!(error.contains("\"wings\"") && error.contains("hard-links"), "{error}");
    }
}
