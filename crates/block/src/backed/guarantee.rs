//! What a file system promises about power failures, as data.
//!
//! One TOML file per file system; every line cites where the file system says so (or that it is
//! silent, and what follows from that).

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

impl Guarantee {
    /// Reads a profile.
    ///
    /// # Errors
    /// If it is not one: says what and where.
    pub fn parse(text: &str) -> Result<Guarantee, toml::de::Error> {
        toml::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_its_citation() {
        let text = r#"
            names = { is = "operation", cite = "a" }
            data = { is = "close", cite = "b" }
            order = { is = "prefix", cite = "c" }
            survives = { is = ["linear", "torn"], cite = "d" }
            recovers = { is = true, cite = "e" }
            capacity_slack_bytes = { is = 0, cite = "f" }
        "#;
        let guarantee = Guarantee::parse(text).unwrap();
        assert_eq!(guarantee.data.is, Durable::Close);
        assert_eq!(guarantee.survives.is, [Level::Linear, Level::Torn]);
        let error = Guarantee::parse(&text.replace(", cite = \"b\"", "")).unwrap_err();
        assert!(error.to_string().contains("missing field `cite`"), "{error}");
    }
}
