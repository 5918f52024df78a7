//! What a file system promises about power failures, as data.
//!
//! One TOML file per file system; every line cites where the file system says so (or that it is
//! silent, and what follows from that).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::crash::Level;

/// A promise and where it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim<T> {
    /// What is promised.
    pub is: T,
    /// The file system's own documentation.
    pub cite: String,
}

/// The moment from which a change survives a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durable {
    /// When the operation that made it has returned.
    Operation,
    /// When `fsync` or `close` of the file has returned; all of it at once.
    Close,
    /// When `fsync` of the file or `sync` has returned.
    Sync,
}

/// What remains of changes that were not durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The state after some operation: earlier ones are there, later ones are not, none is half done.
    Prefix,
    /// Anything, in what was touched; the rest is as it was.
    None,
}

/// What a file system promises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantee {
    /// When names (create, mkdir, rename, unlink, rmdir) are durable.
    pub names: Claim<Durable>,
    /// When written data and sizes are durable.
    pub data: Claim<Durable>,
    /// What remains of the rest.
    pub order: Claim<Order>,
    /// The power failures that it claims to survive; the default levels of a run.
    pub survives: Claim<Vec<Level>>,
    /// Whether every image that a crash leaves must mount and be readable, and usable after that.
    pub recovers: Claim<bool>,
    /// How many bytes of capacity may be missing after a crash, compared with the same tree without
    /// one (blocks that are reclaimed only by a later scan, wear levelling, …).
    pub capacity_slack_bytes: Claim<u64>,
}

/// A text that promises nothing that could be checked.
#[derive(Debug, thiserror::Error)]
pub enum GuaranteeError {
    /// Not a profile.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// Claims that do not go together.
    #[error("names = \"{names}\" with data = \"{data}\" makes no sense: {why}")]
    Senseless {
        /// When names are durable.
        names: Durable,
        /// When data is durable.
        data: Durable,
        /// What contradicts what, and what to write instead.
        why: &'static str,
    },
}

impl fmt::Display for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durable::Operation => "operation",
            Durable::Close => "close",
            Durable::Sync => "sync",
        })
    }
}

impl Guarantee {
    /// Reads a profile.
    ///
    /// # Errors
    /// If it is not one, or its claims contradict each other: says what and where.
    pub fn parse(text: &str) -> Result<Guarantee, GuaranteeError> {
        let guarantee: Guarantee = toml::from_str(text)?;
        guarantee.validate()?;
        Ok(guarantee)
    }

    /// Only what a checker can hold a file system to.
    fn validate(&self) -> Result<(), GuaranteeError> {
        use Durable::{Close, Operation, Sync};
        let (names, data) = (self.names.is, self.data.is);
        let why = match (names, data, self.order.is) {
            (Operation, Operation | Close, Order::Prefix) | (Sync, Sync, _) => return Ok(()),
            (Operation, Operation | Close, Order::None) => {
                "without an order only a sync makes anything certain; say names and data = \"sync\""
            }
            (Close, _, _) => {
                "no close ends a change of names; say names = \"operation\" or \"sync\""
            }
            (Operation, Sync, _) => {
                "a file that is closed before the sync would be a name whose data nobody waits for; \
                 say data = \"close\", or names = \"sync\""
            }
            (Sync, Operation | Close, _) => {
                "data cannot be found without its name; say data = \"sync\", or names = \"operation\""
            }
        };
        Err(GuaranteeError::Senseless { names, data, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        names = { is = "operation", cite = "a" }
        data = { is = "close", cite = "b" }
        order = { is = "prefix", cite = "c" }
        survives = { is = ["linear", "torn"], cite = "d" }
        recovers = { is = true, cite = "e" }
        capacity_slack_bytes = { is = 0, cite = "f" }
    "#;

    #[test]
    fn a_claim_needs_its_citation() {
        let guarantee = Guarantee::parse(TEXT).unwrap();
        assert_eq!(guarantee.data.is, Durable::Close);
        assert_eq!(guarantee.survives.is, [Level::Linear, Level::Torn]);
        let error = Guarantee::parse(&TEXT.replace(", cite = \"b\"", "")).unwrap_err();
        assert!(error.to_string().contains("missing field `cite`"), "{error}");
    }

    #[test]
    fn claims_that_contradict_each_other_are_refused() {
        let parse = |names: &str, data: &str, order: &str| {
            let text = TEXT.replace("\"close\"", &format!("\"{data}\""));
            let text =
                text.replace("\"operation\", cite = \"a\"", &format!("\"{names}\", cite = \"a\""));
            Guarantee::parse(&text.replace("\"prefix\"", &format!("\"{order}\"")))
        };
        let mut sensible = Vec::new();
        for order in ["prefix", "none"] {
            for names in ["operation", "close", "sync"] {
                for data in ["operation", "close", "sync"] {
                    match parse(names, data, order) {
                        Ok(guarantee) => {
                            assert_eq!(guarantee.names.is.to_string(), names);
                            assert_eq!(guarantee.data.is.to_string(), data);
                            sensible.push((names, data, order));
                        }
                        Err(error) => assert!(error.to_string().contains("say "), "{error}"),
                    }
                }
            }
        }
        assert_eq!(
            sensible,
            [
                ("operation", "operation", "prefix"),
                ("operation", "close", "prefix"),
                ("sync", "sync", "prefix"),
                ("sync", "sync", "none")
            ]
        );
        assert_eq!(
            parse("operation", "sync", "prefix").unwrap_err().to_string(),
            "names = \"operation\" with data = \"sync\" makes no sense: a file that is closed before \
             the sync would be a name whose data nobody waits for; say data = \"close\", or names = \
             \"sync\""
        );
    }
}
