//! Findings that are known already: they are counted, and not reported again.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Finding;
use crate::file::replace_file;

/// The name of the file, in the current directory unless another is given.
pub const KNOWN_FILE: &str = "fathom-known.toml";

const HEAD: &str = "\
# Findings that are known: counted, not reported. `fathom known add ID --because \"…\"` adds one,
# `fathom known remove NUMBER` takes it away. One that a run could have shown and did not is said.

";

/// The list of known findings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The entries, in the order in which they were added.
    #[serde(default, rename = "known", skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<KnownEntry>,
}

/// A known finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownEntry {
    /// The command that finds it.
    pub command: String,
    /// The subject that shows it.
    pub subject: String,
    /// Class, operation and what differed.
    pub signature: String,
    /// Why it need not be reported.
    pub because: String,
}

/// Why the list cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no list of known findings.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl Known {
    /// Reads the list; a file that does not exist is an empty one.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub fn read(path: &Path) -> Result<Known, KnownError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Known::default());
            }
            Err(source) => return Err(KnownError::Io { path: path.to_owned(), source }),
        };
        toml::from_str(&text).map_err(|error| KnownError::Damaged {
            path: path.to_owned(),
            reason: error.to_string(),
        })
    }

    /// Writes the list.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KnownError> {
        let text = toml::to_string(self).expect("a list of entries is plain data");
        replace_file(path, format!("{HEAD}{text}").as_bytes())
            .map_err(|source| KnownError::Io { path: path.to_owned(), source })
    }

    /// Adds a finding and the variants of it; how many entries that are which were not there.
    pub fn add(&mut self, finding: &Finding, because: &str) -> usize {
        let before = self.entries.len();
        let variants = finding.variants.iter().map(|variant| &variant.signature);
        for signature in [&finding.signature].into_iter().chain(variants) {
            let entry = KnownEntry {
                command: finding.kind.clone(),
                subject: finding.subject.clone(),
                signature: signature.clone(),
                because: because.to_owned(),
            };
            let same =
                |known: &&mut KnownEntry| known.is(&entry.command, &entry.subject, signature);
            match self.entries.iter_mut().find(same) {
                Some(known) => known.because = because.to_owned(),
                None => self.entries.push(entry),
            }
        }
        self.entries.len() - before
    }

    /// The index of the entry that covers a finding: its signature and those of all its variants
    /// must be known.
    pub fn covers(&self, finding: &Finding) -> Option<usize> {
        let all = finding.variants.iter().all(|v| self.index_of(finding, &v.signature).is_some());
        self.index_of(finding, &finding.signature).filter(|_| all)
    }

    /// The indices of all entries that a finding or one of its variants shows.
    pub(crate) fn seen_in(&self, finding: &Finding) -> Vec<usize> {
        let variants = finding.variants.iter().map(|variant| &variant.signature);
        let signatures = [&finding.signature].into_iter().chain(variants);
        signatures.filter_map(|signature| self.index_of(finding, signature)).collect()
    }

    fn index_of(&self, finding: &Finding, signature: &str) -> Option<usize> {
        let is_it = |entry: &KnownEntry| entry.is(&finding.kind, &finding.subject, signature);
        self.entries.iter().position(is_it)
    }

    /// The entries that a run of `command` on `subject` could show.
    pub fn of(&self, command: &str, subject: &str) -> impl Iterator<Item = (usize, &KnownEntry)> {
        let could = move |entry: &KnownEntry| entry.command == command && entry.subject == subject;
        self.entries.iter().enumerate().filter(move |(_, entry)| could(entry))
    }
}

impl KnownEntry {
    fn is(&self, command: &str, subject: &str, signature: &str) -> bool {
        self.command == command && self.subject == subject && self.signature == signature
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Variant;

    fn finding(signature: &str) -> Finding {
        let mut finding = Finding::new("check", "0123456789ab", signature);
        finding.subject = "ext4".to_owned();
        finding
    }

    #[test]
    fn entries_are_added_once_found_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(KNOWN_FILE);
        let mut known = Known::read(&path).unwrap();
        assert_eq!(known, Known::default());
        assert_eq!(known.add(&finding("tree link size"), "a quirk"), 1);
        assert_eq!(known.add(&finding("tree link size"), "a documented quirk"), 0);
        known.write(&path).unwrap();
        let known = Known::read(&path).unwrap();
        assert_eq!(known.entries.len(), 1);
        assert_eq!(known.entries[0].because, "a documented quirk");
        assert_eq!(known.covers(&finding("tree link size")), Some(0));
        assert_eq!(known.covers(&finding("tree link nlink")), None);
        let other = Finding { subject: "xfs".to_owned(), ..finding("tree link size") };
        assert_eq!(known.covers(&other), None, "another subject");
        let other = Finding { kind: "crash".to_owned(), ..finding("tree link size") };
        assert_eq!(known.covers(&other), None, "another command");
        assert_eq!((known.of("check", "ext4").count(), known.of("check", "xfs").count()), (1, 0));
    }

    #[test]
    fn a_new_variant_of_a_known_cause_is_not_known() {
        let variant = |text: &str| Variant {
            signature: text.to_owned(),
            class: String::new(),
            sightings: 1,
            run: String::new(),
        };
        let mut grouped = finding("lost_entry mkdir");
        grouped.variants.push(variant("lost_entry rmdir"));
        let mut known = Known::default();
        assert_eq!(known.add(&grouped, "no barrier"), 2);
        assert_eq!(known.covers(&grouped), Some(0));
        assert_eq!(known.covers(&finding("lost_entry rmdir")), Some(1));
        grouped.variants.push(variant("unmountable rename"));
        assert_eq!(known.covers(&grouped), None);
    }

    #[test]
    fn a_damaged_list_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.toml");
        fs::write(&path, "[[known]]\nsignature = \"x\"\n").unwrap();
        let error = Known::read(&path).unwrap_err().to_string();
        assert!(error.contains("list.toml") && error.contains("missing field"), "{error}");
        assert!(Known::default().write(Path::new("/proc/none/x")).is_err());
    }
}
