//! The weights of inputs: how often each flag is set and each partition of an amount is drawn.
//!
//! The partitions are those that coverage counts ([`fathom_core::partition`]), so a distribution
//! that is asked for here can be seen in the coverage of the run.

use std::collections::BTreeMap;

use fathom_core::flags::{
    FallocateMode as F, OpenFlags as O, RenameFlags as R, Whence, XattrFlags,
};
use serde::{Deserialize, Serialize};

use super::config::ConfigError;

/// The distribution of the weights of flags, mode bits and amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Weights come from the tables of the configuration; amounts are mostly near powers of two.
    #[default]
    Usual,
    /// Every flag in half of the calls; every partition of an amount alike.
    Uniform,
    /// Flags by how often the sources of Linux name them, `decay` to the power of the rank. Of
    /// amounts the small partitions first.
    RankSize,
    /// The reverse of [`Distribution::RankSize`].
    InverseRankSize,
    /// Weights are `decay` to the power of the number of the partition or flag.
    Exponential,
    /// The reverse of [`Distribution::Exponential`].
    InverseExponential,
}

/// Section `[inputs]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "default.toml documents every field")]
pub struct Inputs {
    pub flags: Distribution,
    pub modes: Distribution,
    pub amounts: Distribution,
    pub decay: f64,
    pub boundaries: bool,
    pub open: BTreeMap<String, u32>,
    pub mode_bits: BTreeMap<String, u32>,
    pub fallocate: BTreeMap<String, u32>,
    pub whence: BTreeMap<String, u32>,
    pub rename: BTreeMap<String, u32>,
    pub xattr: BTreeMap<String, u32>,
}

/// The flags of `open` that are drawn one by one in the usual distribution. `O_CREAT`, the access
/// mode and `O_TMPFILE` are chosen with the path there.
const OPEN: [(&str, O); 14] = [
    ("O_EXCL", O::O_EXCL),
    ("O_NOCTTY", O::O_NOCTTY),
    ("O_TRUNC", O::O_TRUNC),
    ("O_APPEND", O::O_APPEND),
    ("O_NONBLOCK", O::O_NONBLOCK),
    ("O_DSYNC", O::O_DSYNC),
    ("O_SYNC", O::O_SYNC),
    ("O_DIRECT", O::O_DIRECT),
    ("O_LARGEFILE", O::O_LARGEFILE),
    ("O_DIRECTORY", O::O_DIRECTORY),
    ("O_NOFOLLOW", O::O_NOFOLLOW),
    ("O_NOATIME", O::O_NOATIME),
    ("O_CLOEXEC", O::O_CLOEXEC),
    ("O_PATH", O::O_PATH),
];

/// All flags of `open`, the one that the sources of Linux name most often first (the study behind
/// Metis).
const OPEN_BY_FREQUENCY: [O; 18] = [
    O::O_CREAT,
    O::O_DIRECT,
    O::O_WRONLY,
    O::O_TRUNC,
    O::O_NONBLOCK,
    O::O_RDWR,
    O::O_EXCL,
    O::O_LARGEFILE,
    O::O_APPEND,
    O::O_CLOEXEC,
    O::O_DSYNC,
    O::O_PATH,
    O::O_DIRECTORY,
    O::O_NOATIME,
    O::O_NOFOLLOW,
    O::O_SYNC,
    O::O_NOCTTY,
    O::O_TMPFILE,
];

/// Permission bits, the lowest first.
const MODE_BITS: [&str; 12] = [
    "S_IXOTH", "S_IWOTH", "S_IROTH", "S_IXGRP", "S_IWGRP", "S_IRGRP", "S_IXUSR", "S_IWUSR",
    "S_IRUSR", "S_ISVTX", "S_ISGID", "S_ISUID",
];

/// The modes of `fallocate` that some file system has, and combinations that none should accept.
const FALLOCATE: [(&str, F); 11] = [
    ("allocate", F::empty()),
    ("keep-size", F::FALLOC_FL_KEEP_SIZE),
    ("punch-hole", F::FALLOC_FL_PUNCH_HOLE.union(F::FALLOC_FL_KEEP_SIZE)),
    ("zero-range", F::FALLOC_FL_ZERO_RANGE),
    ("zero-range-keep-size", F::FALLOC_FL_ZERO_RANGE.union(F::FALLOC_FL_KEEP_SIZE)),
    ("collapse-range", F::FALLOC_FL_COLLAPSE_RANGE),
    ("insert-range", F::FALLOC_FL_INSERT_RANGE),
    ("unshare-range", F::FALLOC_FL_UNSHARE_RANGE),
    ("punch-without-keep-size", F::FALLOC_FL_PUNCH_HOLE),
    ("collapse-keep-size", F::FALLOC_FL_COLLAPSE_RANGE.union(F::FALLOC_FL_KEEP_SIZE)),
    ("insert-zero-range", F::FALLOC_FL_INSERT_RANGE.union(F::FALLOC_FL_ZERO_RANGE)),
];

const WHENCE: [(&str, Whence); 5] = [
    ("SEEK_SET", Whence::Set),
    ("SEEK_CUR", Whence::Cur),
    ("SEEK_END", Whence::End),
    ("SEEK_DATA", Whence::Data),
    ("SEEK_HOLE", Whence::Hole),
];

const RENAME: [(&str, R); 3] = [
    ("plain", R::empty()),
    ("RENAME_NOREPLACE", R::RENAME_NOREPLACE),
    ("RENAME_EXCHANGE", R::RENAME_EXCHANGE),
];

const XATTR: [(&str, XattrFlags); 2] =
    [("XATTR_CREATE", XattrFlags::XATTR_CREATE), ("XATTR_REPLACE", XattrFlags::XATTR_REPLACE)];

/// The weights, ready to draw from.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// Each flag of `open` with its percentage.
    pub(super) open: Vec<(O, u32)>,
    /// Whether these are all flags, or access mode and creation are chosen with the path.
    pub(super) open_is_whole: bool,
    /// Each bit with its percentage; `None` for the usual modes.
    pub(super) mode_bits: Option<Vec<(u32, u32)>>,
    /// The base of the weights of amounts by partition; `None` for the usual amounts.
    pub(super) amounts: Option<f64>,
    pub(super) boundaries: bool,
    pub(super) fallocate: Vec<(F, u32)>,
    pub(super) whence: Vec<(Whence, u32)>,
    pub(super) rename: Vec<(R, u32)>,
    pub(super) xattr: Vec<(XattrFlags, u32)>,
}

impl Inputs {
    pub(super) fn tables(&self) -> Tables {
        let open_is_whole = self.flags != Distribution::Usual;
        let frequent = OPEN_BY_FREQUENCY.len();
        let open = match open_is_whole {
            false => named(&OPEN, &self.open),
            true => {
                let percent =
                    |(rank, flag): (usize, &O)| (*flag, self.percent(self.flags, rank, frequent));
                OPEN_BY_FREQUENCY.iter().enumerate().map(percent).collect()
            }
        };
        let bits = MODE_BITS.len();
        let mode_bits =
            (self.modes != Distribution::Usual || !self.mode_bits.is_empty()).then(|| {
                let percent = |(bit, name): (usize, &&str)| {
                    let own = self.mode_bits.get(*name).copied().unwrap_or(50);
                    let usual = self.modes == Distribution::Usual;
                    (1 << bit, if usual { own } else { self.percent(self.modes, bit, bits) })
                };
                MODE_BITS.iter().enumerate().map(percent).collect()
            });
        let amounts = match self.amounts {
            Distribution::Usual => None,
            Distribution::Uniform => Some(1.0),
            Distribution::RankSize | Distribution::Exponential => Some(self.decay),
            Distribution::InverseRankSize | Distribution::InverseExponential => {
                Some(1.0 / self.decay)
            }
        };
        Tables {
            open,
            open_is_whole,
            mode_bits,
            amounts,
            boundaries: self.boundaries,
            fallocate: named(&FALLOCATE, &self.fallocate),
            whence: named(&WHENCE, &self.whence),
            rename: named(&RENAME, &self.rename),
            xattr: named(&XATTR, &self.xattr),
        }
    }

    /// The percentage of number `rank` of `count`.
    fn percent(&self, distribution: Distribution, rank: usize, count: usize) -> u32 {
        let power = match distribution {
            Distribution::Usual | Distribution::Uniform => return 50,
            Distribution::RankSize | Distribution::Exponential => rank + 1,
            Distribution::InverseRankSize | Distribution::InverseExponential => count - rank,
        };
        (100.0 * self.decay.powi(power as i32)).round() as u32
    }

    /// Checks that the values can work.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let refused = |field, value: String, hint| Err(ConfigError::Value { field, value, hint });
        if !(self.decay > 0.0 && self.decay < 1.0) {
            return refused(
                "inputs.decay",
                self.decay.to_string(),
                "give a number between 0 and 1",
            );
        }
        let known = [
            ("inputs.open", &self.open, names(&OPEN), true),
            ("inputs.mode_bits", &self.mode_bits, MODE_BITS.to_vec(), true),
            ("inputs.fallocate", &self.fallocate, names(&FALLOCATE), false),
            ("inputs.whence", &self.whence, names(&WHENCE), false),
            ("inputs.rename", &self.rename, names(&RENAME), false),
            ("inputs.xattr", &self.xattr, names(&XATTR), true),
        ];
        for (field, table, known, percents) in known {
            if let Some(name) = table.keys().find(|name| !known.contains(&name.as_str())) {
                return refused(field, name.clone(), "`fathom config` shows the names");
            }
            if percents && table.values().any(|percent| *percent > 100) {
                return refused(field, "above 100".to_owned(), "give percentages from 0 to 100");
            }
            if !percents && table.values().sum::<u32>() == 0 {
                return refused(field, "0".to_owned(), "give at least one a weight");
            }
        }
        Ok(())
    }
}

fn names<T>(known: &[(&'static str, T)]) -> Vec<&'static str> {
    known.iter().map(|(name, _)| *name).collect()
}

/// Pairs values with their weights, in the order of the code: a seed means the same however a file
/// is sorted.
fn named<T: Copy>(known: &[(&'static str, T)], weights: &BTreeMap<String, u32>) -> Vec<(T, u32)> {
    known.iter().map(|(name, value)| (*value, weights.get(*name).copied().unwrap_or(0))).collect()
}
