//! What a crash check explores, as data: the table `[crash]` of the configuration.

use fathom_block::{Bounds, Level};
use serde::{Deserialize, Serialize};

use super::workload::StepKind;

/// The rule by which states count as the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The same tree up to names and contents, and the same last steps: see [`super::shape`].
    Shape,
    /// The same tree.
    Tree,
    /// The same tree, and the same bytes on the device.
    Image,
}

/// Where in a workload the power fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Points {
    /// During and after every operation.
    #[default]
    All,
    /// After every operation that makes something durable, with all writes in order: where CrashMonkey
    /// looks.
    Persistence,
}

/// The configuration of a crash check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrashConfig {
    /// Steps of a workload.
    pub depth: u32,
    /// Power failures in one run: with 2, the checker goes on after every crash that was survived
    /// and cuts the power again.
    pub crashes: u32,
    /// Which states the power failure leaves; empty: what the subject claims to survive.
    pub levels: Vec<Level>,
    /// The points at which the power fails.
    #[serde(default)]
    pub points: Points,
    /// Whether workloads that begin alike are judged alike: see [`super::prefixes`].
    #[serde(default)]
    pub prefixes: bool,
    /// Most crash states of one given workload that are judged, or 0 for all: of more, points at which the power
    /// fails are left out evenly. A point is judged whole.
    #[serde(default)]
    pub workload_states_max: u64,
    /// The limits above which the enumeration of a level turns into sampling.
    pub bounds: Bounds,
    /// The rule by which states count as the same.
    pub identity: Identity,
    /// The number of last steps that are part of a shape.
    pub remember: usize,
    /// The steps that workloads are made of.
    pub steps: Vec<StepKind>,
    /// Names of files and directories, in the order of use.
    pub names: Vec<String>,
    /// Sizes of written data in bytes.
    pub sizes: Vec<u64>,
    /// Levels of directories below the root.
    pub dirs_deep_max: usize,
    /// Files that are open at the same time.
    pub open_max: u8,
    /// Whether every recovered image is also used: create, write, rename, delete, fill, free.
    pub probe: bool,
    /// Whether an independent checker is asked, where there is one (`e2fsck`).
    #[serde(alias = "second_opinion")]
    pub fsck: bool,
    /// Whether a recovered image is mounted again and shows the same, also after a recovery that was
    /// interrupted. Where mounting takes milliseconds this is half of the work of looking.
    #[serde(default = "yes")]
    pub recheck: bool,
}

/// What was written before there was a choice.
fn yes() -> bool {
    true
}

/// The defaults, commented: the only place where they are written.
pub const DEFAULT_TOML: &str = include_str!("default.toml");

impl Default for CrashConfig {
    fn default() -> Self {
        CrashConfig::parse(DEFAULT_TOML).expect("the defaults are tested")
    }
}

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nothing would be done.
    #[error("{what} is {value}: {advice}")]
    Nothing {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: &'static str,
        /// A value to give instead.
        advice: &'static str,
    },
    /// A string that is no name of a file.
    #[error("{0:?} cannot be the name of a file: use letters and digits")]
    Name(String),
}

impl CrashConfig {
    /// Reads a complete configuration.
    ///
    /// # Errors
    /// If it is not one: says what and where.
    fn parse(text: &str) -> Result<CrashConfig, toml::de::Error> {
        toml::from_str(text)
    }

    /// Reads the values that differ from the defaults.
    ///
    /// # Errors
    /// If one is unknown or impossible: says which.
    pub fn with(text: &str) -> Result<CrashConfig, toml::de::Error> {
        let mut table: toml::Table = toml::from_str(DEFAULT_TOML)?;
        table.extend(toml::from_str::<toml::Table>(text)?);
        table.try_into()
    }

    /// Whether something can be done with it.
    ///
    /// # Errors
    /// Names the setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let nothing = |what, value, advice| Err(ConfigError::Nothing { what, value, advice });
        if self.depth == 0 {
            return nothing("depth", "0", "no step would be taken; give at least 1");
        }
        if self.crashes == 0 {
            return nothing("crashes", "0", "the power would never fail; give 1 or 2");
        }
        if self.steps.is_empty() {
            return nothing("steps", "empty", "give at least one kind of step");
        }
        if self.sizes.is_empty() {
            return nothing("sizes", "empty", "give at least one size");
        }
        if self.bounds.subsets_max == 0 {
            return nothing("bounds.subsets_max", "0", "give at least 1");
        }
        if self.names.is_empty() {
            return nothing("names", "empty", "give at least one name");
        }
        let bad = |name: &&String| {
            name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        self.names.iter().find(bad).map_or(Ok(()), |name| Err(ConfigError::Name(name.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_given() {
        let config = CrashConfig::with("depth = 2\nsteps = [\"put\"]").unwrap();
        assert_eq!(
            config,
            CrashConfig { depth: 2, steps: vec![StepKind::Put], ..CrashConfig::default() }
        );
        for (text, complaint) in [
            ("deep = 2", "unknown field `deep`"),
            ("steps = [\"jump\"]", "unknown variant `jump`"),
            ("depth = \"x\"", "invalid type"),
        ] {
            let error = CrashConfig::with(text).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn what_would_do_nothing_is_refused() {
        assert_eq!(CrashConfig::default().validate(), Ok(()));
        for text in [
            "depth = 0",
            "crashes = 0",
            "steps = []",
            "sizes = []",
            "names = []",
            "names = [\"a/b\"]",
            "[bounds]\nsubsets_max = 0\ncuts_max = 1",
        ] {
            let error = CrashConfig::with(text).unwrap().validate().unwrap_err().to_string();
            assert!(
                error.contains(
                    text.split([' ', ']']).next().unwrap().trim_matches('[').trim_end_matches('s')
                ),
                "{text}: {error}"
            );
        }
    }
}
