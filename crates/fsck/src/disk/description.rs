//! What a test disk holds: one description for every file system.

use serde::Deserialize;

/// The objects of a disk, in the order in which they are made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    #[serde(rename = "object")]
    pub(crate) objects: Vec<Thing>,
}

/// The sort of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sort {
    Directory,
    File,
    Symlink,
    BlockDevice,
    CharacterDevice,
    Fifo,
    /// A further name of a file.
    Link,
    /// So many empty files, the number behind the path.
    Many,
}

/// An object of a disk.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Thing {
    pub(crate) path: String,
    pub(crate) kind: Sort,
    /// Ranges of blocks with data, the rest is a hole.
    #[serde(default)]
    pub(crate) blocks: Vec<String>,
    /// The contents, the target, or the first name.
    #[serde(default)]
    pub(crate) text: String,
    /// Name and length of extended attributes.
    #[serde(default)]
    pub(crate) attributes: Vec<(String, usize)>,
    #[serde(default)]
    pub(crate) device: (u32, u32),
    /// Whether it is made after extents were switched on.
    #[serde(default)]
    pub(crate) extents: bool,
    /// Blocks that are allocated without being written.
    #[serde(default)]
    pub(crate) preallocated: u64,
    #[serde(default)]
    pub(crate) count: u64,
}

/// A run of blocks: the first, how many, and from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) step: u64,
}

impl Description {
    /// The rich test disk.
    pub(crate) fn rich() -> Description {
        toml::from_str(include_str!("../../disks/rich.toml")).expect("the description is tested")
    }
}

impl Thing {
    /// The runs of blocks with data.
    pub(crate) fn runs(&self) -> Vec<Blocks> {
        self.blocks.iter().filter_map(|text| run(text)).collect()
    }
}

fn run(text: &str) -> Option<Blocks> {
    let (range, step) = text.split_once('/').unwrap_or((text, "1"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last, step): (u64, u64, u64) =
        (first.parse().ok()?, last.parse().ok()?, step.parse().ok()?);
    Some(Blocks { first, count: (last.checked_sub(first)?) / step.max(1) + 1, step: step.max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rich_disk_is_described() {
        let rich = Description::rich();
        assert!(rich.objects.len() > 12);
        for thing in &rich.objects {
            assert_eq!(thing.runs().len(), thing.blocks.len(), "{}", thing.path);
        }
        assert_eq!(run("0-10/2"), Some(Blocks { first: 0, count: 6, step: 2 }));
        assert_eq!(run("7"), Some(Blocks { first: 7, count: 1, step: 1 }));
        assert_eq!(run("x"), None);
    }
}
