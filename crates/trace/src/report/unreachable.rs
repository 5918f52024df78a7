//! Partitions that no test can be blamed for missing, with the reason.

use serde::Deserialize;

use crate::error::{Result, TraceError};

/// Patterns with reasons.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Unreachable {
    #[serde(rename = "unreachable", default)]
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    partition: String,
    reason: String,
}

impl Unreachable {
    /// The rules that hold on every machine.
    pub fn standard() -> Unreachable {
        Unreachable::parse(include_str!("../../data/unreachable.toml"))
            .expect("a test parses this very file")
    }

    /// Reads the rules of a file.
    pub fn parse(text: &str) -> Result<Unreachable> {
        toml::from_str(text).map_err(|error| TraceError::Data(error.to_string()))
    }

    /// Adds the rules of another file.
    pub fn extend(&mut self, other: Unreachable) {
        self.rules.extend(other.rules);
    }

    /// The reason why a partition (`CALL.ARGUMENT.NAME`) cannot be reached, if it cannot.
    pub fn reason(&self, partition: &str) -> Option<&str> {
        let rule = |rule: &&Rule| matches(rule.partition.as_bytes(), partition.as_bytes());
        self.rules.iter().find(rule).map(|rule| rule.reason.as_str())
    }
}

/// Whether a pattern matches: `*` is any text; `[a-b]` with single characters is a range. Any other
/// `[` is itself: intervals have it in their names.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        ([b'*', rest @ ..], _) => {
            matches(rest, text) || (!text.is_empty() && matches(pattern, &text[1..]))
        }
        ([b'[', from, b'-', to, b']', rest @ ..], [byte, tail @ ..]) => {
            (from..=to).contains(&byte) && matches(rest, tail)
        }
        ([first, rest @ ..], [byte, tail @ ..]) => first == byte && matches(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_core::partition::{Granularity, coverage::all_hits, table};

    #[test]
    fn every_rule_has_a_partition_and_not_every_partition_a_rule() {
        let standard = Unreachable::standard();
        let all: Vec<String> = table()
            .bases
            .keys()
            .flat_map(|base| all_hits(base, Granularity::Powers))
            .map(|hit| super::super::partition_id(&hit))
            .collect();
        for rule in &standard.rules {
            let found = all.iter().any(|id| matches(rule.partition.as_bytes(), id.as_bytes()));
            assert!(found, "{} is the name of no partition", rule.partition);
        }
        let unreachable = all.iter().filter(|id| standard.reason(id).is_some()).count();
        assert!(unreachable * 10 < all.len(), "{unreachable} of {}", all.len());
    }

    #[test]
    fn patterns() {
        assert!(matches(b"*.output.EIO", b"open.output.EIO"));
        assert!(!matches(b"*.output.EIO", b"open.output.EIO2"));
        assert!(matches(b"a.[2^1[2-4]*", b"a.[2^13,2^14)"));
        assert!(!matches(b"a.[2^1[2-4]*", b"a.[2^15,2^16)"));
    }
}
