//! [`Recipe`]: how a kernel file system is made, as data.

/// How to format and mount a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// How it is named on the command line.
    pub name: String,
    /// Type as the kernel knows it.
    pub fs_type: String,
    /// Size of the device (of a `tmpfs`: the limit). Memory is used as far as it is written.
    pub image_bytes: u64,
    /// Formatting program and its arguments, to which the device is added; `None` needs none.
    pub format: Option<Format>,
    /// Mount options: `key` or `key=value`.
    pub options: Vec<String>,
    /// Which set of known differences applies: a name for [`fathom_model::Quirks::profile`].
    pub profile: String,
}

/// A formatting program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables.
    pub variables: Vec<(String, String)>,
    /// Debian package with the program.
    pub package: String,
}

const MIB: u64 = 1 << 20;

/// Fixed, so that the order of directory entries is the same in every run.
const EXT_SEED: &str = "hash_seed=2f6b9d1e-8c3a-4b57-9e40-6a1d2c3b4e5f";

impl Recipe {
    /// The recipes that come with Fathom.
    pub fn all() -> Vec<Recipe> {
        vec![
            tmpfs(),
            ext("ext2", "ext2", 1024, "ext2-1k"),
            // The format of ext2 with a journal.
            ext("ext3", "ext3", 1024, "ext2-1k"),
            ext("ext4", "ext4", 4096, "ext4"),
            ext("ext4-1k", "ext4", 1024, "ext4-1k"),
            xfs(),
            btrfs(),
        ]
    }

    /// The recipe of this name.
    pub fn named(name: &str) -> Option<Recipe> {
        Recipe::all().into_iter().find(|recipe| recipe.name == name)
    }
}

fn texts(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

fn tmpfs() -> Recipe {
    Recipe {
        name: "tmpfs".to_owned(),
        fs_type: "tmpfs".to_owned(),
        image_bytes: 64 * MIB,
        format: None,
        options: texts("mode=0755 size=64m nr_inodes=16384"),
        profile: "tmpfs".to_owned(),
    }
}

/// No blocks reserved for root (`-m 0`), so that everybody meets `ENOSPC` at the same point; nothing
/// left to a background thread (`lazy_…=0`), so that runs are alike.
fn ext(name: &str, fs_type: &str, block_bytes: u32, profile: &str) -> Recipe {
    let journal = if fs_type == "ext2" { "" } else { ",lazy_journal_init=0" };
    let command = format!(
        "mkfs.{fs_type} -q -F -b {block_bytes} -I 256 -m 0 -N 16384 \
         -E {EXT_SEED},nodiscard,lazy_itable_init=0{journal}"
    );
    Recipe {
        name: name.to_owned(),
        fs_type: fs_type.to_owned(),
        image_bytes: 64 * MIB,
        format: Some(Format {
            command: texts(&command),
            variables: Vec::new(),
            package: "e2fsprogs".to_owned(),
        }),
        options: Vec::new(),
        profile: profile.to_owned(),
    }
}

/// mkfs.xfs refuses less than 300 MiB, except to its own test suite, which is known by these
/// variables. `nouuid` lets several copies of an image be mounted at once.
fn xfs() -> Recipe {
    let test_suite = ["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"];
    Recipe {
        name: "xfs".to_owned(),
        fs_type: "xfs".to_owned(),
        image_bytes: 64 * MIB,
        format: Some(Format {
            command: texts("mkfs.xfs -q -f -K"),
            variables: test_suite.map(|name| (name.to_owned(), "1".to_owned())).into(),
            package: "xfsprogs".to_owned(),
        }),
        options: texts("nouuid"),
        profile: "xfs".to_owned(),
    }
}

fn btrfs() -> Recipe {
    Recipe {
        name: "btrfs".to_owned(),
        fs_type: "btrfs".to_owned(),
        image_bytes: 128 * MIB,
        format: Some(Format {
            command: texts("mkfs.btrfs -q -f -K -m single -d single"),
            variables: Vec::new(),
            package: "btrfs-progs".to_owned(),
        }),
        options: Vec::new(),
        profile: "btrfs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_found_by_their_names() {
        for recipe in Recipe::all() {
            assert_eq!(Recipe::named(&recipe.name), Some(recipe.clone()));
            assert_eq!(recipe.format.is_none(), recipe.fs_type == "tmpfs");
            assert!(fathom_model::Quirks::profile(&recipe.profile).is_some(), "{}", recipe.profile);
        }
        assert_eq!(Recipe::named("ext5"), None);
    }
}
