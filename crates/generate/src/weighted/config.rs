//! The configuration of a run besides the seed. The defaults, with their comments, are
//! `default.toml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::inputs::Inputs;

/// The commented defaults.
pub const DEFAULT_TOML: &str = include_str!("default.toml");

macro_rules! calls {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// One kind of operation; named as [`fathom_core::Op::name`] names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "each is the variant of `Op` with the same name")]
        pub enum Call {
            $(#[serde(rename = $name)] $variant,)*
        }

        impl Call {
            /// Every kind.
            pub const ALL: &[Call] = &[$(Call::$variant),*];

            /// The name of the operation in traces.
            pub fn name(self) -> &'static str {
                match self {
                    $(Call::$variant => $name,)*
                }
            }
        }
    };
}

calls! {
    Open = "open",
    Close = "close",
    Read = "read",
    Pread = "pread",
    Write = "write",
    Pwrite = "pwrite",
    Lseek = "lseek",
    Truncate = "truncate",
    Fallocate = "fallocate",
    Mkdir = "mkdir",
    Rmdir = "rmdir",
    Unlink = "unlink",
    Rename = "rename",
    Link = "link",
    Symlink = "symlink",
    Readlink = "readlink",
    Mknod = "mknod",
    Chmod = "chmod",
    Chown = "chown",
    Utimens = "utimens",
    Setxattr = "setxattr",
    Getxattr = "getxattr",
    Listxattr = "listxattr",
    Removexattr = "removexattr",
    Stat = "stat",
    Getdents = "getdents",
    Statfs = "statfs",
    Access = "access",
    Fsync = "fsync",
    Fdatasync = "fdatasync",
    Sync = "sync",
    Syncfs = "syncfs",
    SyncFileRange = "sync_file_range",
    MmapStore = "mmap_store",
    MmapLoad = "mmap_load",
    CopyFileRange = "copy_file_range",
    Umask = "umask",
    Identity = "identity",
    Remount = "remount",
    Wait = "wait",
    Server = "server",
    LinkSlot = "link_slot",
    ListPiece = "list_piece",
}

/// The whole configuration; `default.toml` explains every field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "default.toml documents every field")]
pub struct Config {
    pub check: CheckConfig,
    pub names: Names,
    pub data: Data,
    pub slots: Slots,
    pub odd: Odd,
    pub inputs: Inputs,
    pub weights: BTreeMap<Call, u32>,
}

/// Section `[check]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "default.toml documents every field")]
pub struct CheckConfig {
    pub tree_every: u64,
    pub episode_ops: u64,
    pub times: bool,
    pub findings_max: u64,
    pub shrink_seconds: u64,
    pub disk_every: u64,
}

/// Section `[names]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "default.toml documents every field")]
pub struct Names {
    pub files: u64,
    pub dirs: u64,
    pub symlinks: u64,
    pub nodes: u64,
    pub depth_max: usize,
    pub entries_max: usize,
    pub long_percent: u32,
}

/// Section `[data]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "default.toml documents every field")]
pub struct Data {
    pub io_bytes_max: u64,
    pub offset_bytes_max: u64,
    pub xattr_bytes_max: u64,
    pub huge_percent: u32,
    pub patterns: u64,
}

/// Section `[slots]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "default.toml documents every field")]
pub struct Slots {
    pub count: u8,
    pub session_percent: u32,
}

/// Section `[odd]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "default.toml documents every field")]
pub struct Odd {
    pub percent: u32,
}

/// The reason why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is not TOML, or has an unknown field, or a value of the wrong type.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A value cannot work.
    #[error("{field} cannot be {value}: {hint}")]
    Value {
        /// The field of the value.
        field: &'static str,
        /// The value that was given.
        value: String,
        /// The values that would work.
        hint: &'static str,
    },
}

impl Default for Config {
    fn default() -> Self {
        toml::from_str(DEFAULT_TOML).expect("default.toml is complete: a test reads it")
    }
}

impl Config {
    /// The defaults with the values of `text` over them.
    ///
    /// # Errors
    /// Names the line or the value that cannot work.
    pub fn from_toml(text: &str) -> Result<Config, ConfigError> {
        let mut merged: toml::Table = toml::from_str(DEFAULT_TOML)?;
        merge(&mut merged, toml::from_str(text)?);
        let config: Config = merged.try_into()?;
        config.validate()?;
        Ok(config)
    }

    /// Draws how often each call is made: a quarter of the calls never, a quarter rarely, some often (swarm
    /// testing: Groce and others, 2012). What makes files and directories stays, or nothing would happen.
    pub fn draw_weights(&mut self, seed: u64) {
        const KEPT: [Call; 4] = [Call::Open, Call::Close, Call::Write, Call::Mkdir];
        let mut choices = crate::choice::Choices::new(seed ^ 0x5757_6172_6d00);
        for (call, weight) in &mut self.weights {
            let drawn = match choices.below(8) {
                0 | 1 if !KEPT.contains(call) => 0,
                2 | 3 => weight.div_ceil(4),
                4 => weight.saturating_mul(4),
                _ => *weight,
            };
            *weight = drawn;
        }
    }

    /// Checks that the values can work.
    ///
    /// # Errors
    /// Names the value that cannot.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let positive = [
            ("check.tree_every", self.check.tree_every),
            ("check.episode_ops", self.check.episode_ops),
            ("check.findings_max", self.check.findings_max),
            ("check.disk_every", self.check.disk_every),
            ("names.files", self.names.files),
            ("names.dirs", self.names.dirs),
            ("names.symlinks", self.names.symlinks),
            ("names.nodes", self.names.nodes),
            ("data.io_bytes_max", self.data.io_bytes_max),
            ("data.offset_bytes_max", self.data.offset_bytes_max),
            ("data.xattr_bytes_max", self.data.xattr_bytes_max),
            ("slots.count", u64::from(self.slots.count)),
            ("weights", self.weights.values().map(|&weight| u64::from(weight)).sum()),
        ];
        for (field, value) in positive {
            if value == 0 {
                return Err(refused(field, 0, "give at least 1"));
            }
        }
        if self.data.io_bytes_max > 1 << 30 {
            return Err(refused("data.io_bytes_max", self.data.io_bytes_max, "give at most 2^30"));
        }
        if self.slots.count > 64 {
            return Err(refused("slots.count", self.slots.count, "give at most 64"));
        }
        for (field, percent) in [
            ("odd.percent", self.odd.percent),
            ("names.long_percent", self.names.long_percent),
            ("slots.session_percent", self.slots.session_percent),
            ("data.huge_percent", self.data.huge_percent),
        ] {
            if percent > 100 {
                return Err(refused(field, percent, "give a share from 0 to 100"));
            }
        }
        self.inputs.validate()
    }
}

/// Replaces what is there by what `values` has, table by table.
fn merge(into: &mut toml::Table, values: toml::Table) {
    for (key, value) in values {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(there)), toml::Value::Table(values)) => merge(there, values),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

fn refused(field: &'static str, value: impl ToString, hint: &'static str) -> ConfigError {
    ConfigError::Value { field, value: value.to_string(), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_complete_and_valid() {
        let config = Config::default();
        config.validate().unwrap();
        assert_eq!(Config::from_toml("").unwrap(), config);
        assert_eq!(config.weights.len(), Call::ALL.len(), "every call has a weight");
    }

    #[test]
    fn a_file_needs_only_what_differs() {
        let config = Config::from_toml("[odd]\npercent = 0\n[weights]\nopen = 1\n").unwrap();
        assert_eq!((config.odd.percent, config.weights[&Call::Open]), (0, 1));
        assert_eq!(config.names, Config::default().names);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("[odd]\npercnt = 1", "percnt"),
            ("[weights]\nopne = 1", "opne"),
            ("[od]\npercent = 1", "od"),
            ("[odd]\npercent = 101", "odd.percent cannot be 101"),
            ("[check]\ntree_every = 0", "check.tree_every cannot be 0"),
            ("[inputs]\nflags = \"often\"", "often"),
            ("[inputs]\ndecay = 1.0", "inputs.decay cannot be 1"),
            ("[inputs.open]\nO_EXLC = 1", "inputs.open cannot be O_EXLC"),
            ("[inputs.open]\nO_EXCL = 101", "inputs.open cannot be above 100"),
            ("[odd", "TOML"),
        ] {
            let error = Config::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?} gave {error:?}");
        }
    }
}
