//! A task: an ordinary command that anybody can run alone.

use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;

use crate::words::quoted;

/// One task of a swarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its place in the swarm, from 1.
    pub number: u64,
    /// Names it: digits of a digest of the command.
    pub id: String,
    /// The words of the command, without the program and without its directory.
    pub words: Vec<String>,
}

impl Task {
    pub(crate) fn new(number: u64, words: Vec<String>) -> Task {
        let digest = XxHash64::oneshot(0, words.join("\0").as_bytes());
        Task { number, id: format!("{:012x}", digest >> 16), words }
    }

    /// The name of its directory.
    pub fn name(&self) -> String {
        format!("{:06}-{}", self.number, self.id)
    }

    /// Whether its name or number is this one.
    pub fn is_called(&self, text: &str) -> bool {
        text.parse() == Ok(self.number) || text == self.id || text == self.name()
    }

    /// The command as it can be typed, results in a directory of the user's choice.
    pub fn command_line(&self) -> String {
        format!("fathom {}", quoted(&self.words))
    }

    /// Whether it runs in a kernel of its own.
    pub fn is_in_guest(&self) -> bool {
        self.words.iter().any(|word| word == "--guest")
    }
}
