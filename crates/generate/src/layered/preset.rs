//! [`Preset`]: the parameters of layered workloads, by name (`presets.toml`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::core::{Kind, Name};

const PRESETS: &str = include_str!("presets.toml");

/// Parameters of layered workloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// In words.
    pub about: String,
    /// Commands of a workload.
    pub length: usize,
    /// Of each segment, so many commands take any inode.
    pub random: usize,
    /// And so many one of each cluster.
    pub similar: usize,
    /// Clusters of inodes.
    pub clusters: usize,
    /// How often the longest workload is gone on with, rather than any.
    pub longest_percent: u32,
    /// Greatest number of entries that `enlarge` makes.
    pub enlarge_max: u64,
    /// Greatest number of levels that `deepen` makes.
    pub deepen_max: u64,
    /// Greatest number of blocks of a read or a write.
    pub blocks_max: u64,
    /// Letters of a name, beside its number.
    pub letters_max: u64,
    /// Letters of the names of the levels that `deepen` makes.
    #[serde(default = "one")]
    pub level_letters: u64,
    /// Names that are given; the others have random letters and their number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<Name, String>,
    /// Levels of the graph.
    pub depth_max: usize,
    /// How often a parameter is not the usual one.
    pub other_percent: u32,
    /// How often each flag of `open` is set.
    pub flag_percent: u32,
    /// Entries that are there before, in directories of the root.
    #[serde(default)]
    pub prefill: u64,
    /// How often each kind of command is considered.
    pub percent: BTreeMap<Kind, u32>,
}

fn one() -> u64 {
    1
}

/// A text that names no preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset {name:?} of layered workloads: give one of {known}")]
pub struct PresetError {
    name: String,
    known: String,
}

impl Preset {
    /// Every preset by its name.
    pub fn all() -> BTreeMap<String, Preset> {
        toml::from_str(PRESETS).expect("presets.toml is right: a test reads it")
    }

    /// The preset of a name.
    ///
    /// # Errors
    /// If there is none; says which there are.
    pub fn named(name: &str) -> Result<Preset, PresetError> {
        let mut all = Preset::all();
        all.remove(name).ok_or_else(|| PresetError {
            name: name.to_owned(),
            known: all.into_keys().collect::<Vec<_>>().join(", "),
        })
    }

    /// The same with these kinds of commands alone, all equally likely.
    pub fn only(&self, kinds: &[Kind]) -> Preset {
        let percent = kinds.iter().map(|kind| (*kind, 100)).collect();
        Preset { percent, ..self.clone() }
    }

    pub(super) fn percent(&self, kind: Kind) -> u32 {
        self.percent.get(&kind).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_numbers_of_the_tool() {
        let dogfood = Preset::named("dogfood").unwrap();
        assert_eq!((dogfood.length, dogfood.random, dogfood.similar), (1000, 50, 50));
        assert_eq!((dogfood.clusters, dogfood.enlarge_max, dogfood.blocks_max), (3, 8192, 20));
        assert_eq!(dogfood.percent(Kind::Remove), 7);
        assert_eq!(dogfood.percent(Kind::WriteXattr), 0);
        let error = Preset::named("dogfod").unwrap_err().to_string();
        assert!(error.contains("default, dogfood, dogfood-b3, large, wide"), "{error}");
    }
}
