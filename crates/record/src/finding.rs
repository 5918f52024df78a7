//! A finding: what is wrong, how to see it again, and everything that proves it.
//!
//! On disk it is a directory `out/ID`: `finding.toml` has what every finding has and, under
//! `[details]`, what only its kind has; the evidence is beside it, one file each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::file::{Durability, make_scratch_directory, replace_directory};
use crate::run::FindingPage;

/// The version of `finding.toml`. Version 1 had no number, and the fields of each kind at the top.
const FORMAT: u32 = 2;

/// The name of the file in the directory of a finding.
const FILE: &str = "finding.toml";

/// The kind of findings of version 1 that name none.
const KIND_DEFAULT: &str = "check";

/// Everything known of one finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The version of the file.
    pub format: u32,
    /// Which command finds such things: `check`, `crash`, `design`.
    pub kind: String,
    /// Names it: digits of a digest of what it is about.
    pub id: String,
    /// The class of the violation: `tree`, `lost_entry`, ….
    pub class: String,
    /// Class, operation and what differed, without names, sizes and ids: findings with the same
    /// signature are the same.
    pub signature: String,
    /// One line that says what is wrong.
    pub title: String,
    /// The subject, as the user typed it.
    pub subject: String,
    /// The program that found it, with its version.
    pub program: String,
    /// Whether it was run again and shrunk. Otherwise it is as it was first seen.
    pub complete: bool,
    /// How often it was seen.
    pub sightings: u64,
    /// Further runs of the same operations.
    pub runs: usize,
    /// How many of them showed the same.
    pub runs_reproduced: usize,
    /// What people read.
    pub story: String,
    /// Other signatures that have the same cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// What else a reader wants to know: kernel version, profile, seed, ….
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What only this kind of finding has.
    #[serde(default)]
    pub details: toml::Table,
    /// The files beside `finding.toml`.
    #[serde(skip)]
    pub evidence: Vec<Evidence>,
    /// What reports show of it. What every finding has is filled in by
    /// [`RunDirectory`](crate::RunDirectory).
    #[serde(skip)]
    pub page: FindingPage,
}

/// Another way in which the cause of a finding was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Its signature.
    pub signature: String,
    /// The class of its violation.
    pub class: String,
    /// How often it was seen.
    pub sightings: u64,
    /// The shortest run that was seen, one operation per line.
    pub run: String,
}

/// A file of a finding: a trace, a tree, an image, a program that shows it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Its name in the directory; may have a directory of its own in front.
    pub name: String,
    /// Its contents.
    pub(crate) contents: Contents,
}

/// The contents of a file of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// All bytes.
    Bytes(Vec<u8>),
    /// A file that is mostly zeros, such as a disk: it is neither kept nor written whole.
    Sparse {
        /// The length of the file in bytes.
        len: u64,
        /// The parts that are not zeros, by their offsets.
        parts: Vec<(u64, Vec<u8>)>,
    },
}

/// Why a finding cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is damaged.
    #[error("{}: {message}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// The finding was written by a newer program.
    #[error("{}: has format {found}, this program reads up to format {FORMAT}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
}

impl Evidence {
    /// A file with text in it.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Evidence {
        Evidence::bytes(name, text.into().into_bytes())
    }

    /// A file with bytes in it.
    pub fn bytes(name: impl Into<String>, bytes: Vec<u8>) -> Evidence {
        Evidence { name: name.into(), contents: Contents::Bytes(bytes) }
    }

    /// A file of `len` bytes that are zeros but for some parts, given by their offsets.
    pub fn sparse(name: impl Into<String>, len: u64, parts: Vec<(u64, Vec<u8>)>) -> Evidence {
        Evidence { name: name.into(), contents: Contents::Sparse { len, parts } }
    }

    /// A file with one value per line, as JSON.
    pub fn lines<T: Serialize>(name: impl Into<String>, values: &[T]) -> Evidence {
        let mut text = String::new();
        for value in values {
            text.push_str(&serde_json::to_string(value).expect("evidence is plain data"));
            text.push('\n');
        }
        Evidence::text(name, text)
    }
}

impl Finding {
    /// A finding of which nothing but kind, id and signature is known.
    pub fn new(kind: &str, id: &str, signature: &str) -> Finding {
        Finding {
            format: FORMAT,
            kind: kind.to_owned(),
            id: id.to_owned(),
            class: String::new(),
            signature: signature.to_owned(),
            title: signature.to_owned(),
            subject: String::new(),
            program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
            complete: false,
            sightings: 1,
            runs: 0,
            runs_reproduced: 0,
            story: String::new(),
            variants: Vec::new(),
            labels: BTreeMap::new(),
            details: toml::Table::new(),
            evidence: Vec::new(),
            page: FindingPage::default(),
        }
    }

    /// The fields of a kind's own record that are not in every finding.
    ///
    /// # Panics
    /// If `record` is not plain data.
    pub fn details_of<T: Serialize>(record: &T) -> toml::Table {
        let mut table = toml::Table::try_from(record).expect("a record is plain data");
        let common = toml::Table::try_from(Finding::new("", "", "")).expect("plain data");
        table.retain(|key, _| !common.contains_key(key) && key != "variants");
        table
    }

    /// Writes the directory `out/ID` and returns its path. It appears whole or not at all; one that
    /// exists is replaced, since the same id is the same finding.
    ///
    /// # Errors
    /// If a file cannot be written: it is named.
    pub fn write(&self, out: &Path) -> Result<PathBuf, RecordError> {
        self.write_for(Durability::OnDisk, out)
    }

    /// Writes the directory `out/ID` for somebody who reads it once: nothing waits until it is on the disk, and
    /// an earlier one is not replaced as a whole.
    ///
    /// # Errors
    /// If a file cannot be written: it is named.
    pub fn write_scratch(&self, out: &Path) -> Result<PathBuf, RecordError> {
        self.write_for(Durability::Scratch, out)
    }

    fn write_for(&self, durability: Durability, out: &Path) -> Result<PathBuf, RecordError> {
        let dir = out.join(&self.id);
        let io = |(path, source)| RecordError::Io { path, source };
        fs::create_dir_all(out).map_err(|error| io((out.to_owned(), error)))?;
        let toml = toml::to_string(self).map_err(|error| RecordError::Damaged {
            path: dir.join(FILE),
            message: error.to_string(),
        })?;
        let toml = Contents::Bytes(toml.into_bytes());
        let mut files = vec![(FILE, &toml)];
        files.extend(self.evidence.iter().map(|file| (file.name.as_str(), &file.contents)));
        let made = match durability {
            Durability::OnDisk => replace_directory(&dir, &files),
            Durability::Scratch => make_scratch_directory(&dir, &files),
        };
        made.map_err(io)?;
        Ok(dir)
    }

    /// Reads `finding.toml` of a directory, of this version or of version 1. The evidence stays on
    /// disk.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or was written by a newer program.
    pub fn read(dir: &Path) -> Result<Finding, RecordError> {
        let path = dir.join(FILE);
        let text = fs::read_to_string(&path)
            .map_err(|source| RecordError::Io { path: path.clone(), source })?;
        let damaged = |message: String| RecordError::Damaged { path: path.clone(), message };
        let table: toml::Table =
            toml::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        match table.get("format").map(toml::Value::as_integer) {
            None => Ok(Finding::of_version_1(table)),
            Some(Some(found)) if found != i64::from(FORMAT) => {
                Err(RecordError::Version { path, found })
            }
            _ => table.try_into().map_err(|error| damaged(error.to_string())),
        }
    }

    /// Reads the text of a `finding.toml`, of this version or of version 1.
    ///
    /// # Errors
    /// In words, if it is damaged or was written by a newer program.
    pub fn parse(text: &str) -> Result<Finding, String> {
        let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        match table.get("format").map(toml::Value::as_integer) {
            None => Ok(Finding::of_version_1(table)),
            Some(Some(found)) if found != i64::from(FORMAT) => {
                Err(format!("has format {found}, this program reads up to format {FORMAT}"))
            }
            _ => table.try_into().map_err(|error: toml::de::Error| error.to_string()),
        }
    }

    /// Everything that version 1 wrote is in the details: its kinds shared little.
    fn of_version_1(table: toml::Table) -> Finding {
        let text = |key: &str| table.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        let number = |key: &str| table.get(key).and_then(toml::Value::as_integer).unwrap_or(0);
        let kind = table.get("kind").and_then(toml::Value::as_str).unwrap_or(KIND_DEFAULT);
        let signature = match text("signature") {
            "" => text("property"),
            signature => signature,
        };
        let mut finding = Finding::new(kind, text("id"), signature);
        finding.format = 1;
        finding.class = text("class").to_owned();
        finding.subject = text("subject").to_owned();
        finding.program = text("program").to_owned();
        finding.story = text("story").to_owned();
        finding.complete = true;
        finding.sightings = number("count").max(1) as u64;
        finding.runs = number("runs") as usize;
        finding.runs_reproduced = number("runs_reproduced") as usize;
        finding.details = table;
        finding
    }

    /// A kind's own record, read back: its details, and what it shares with every finding.
    ///
    /// # Errors
    /// If something is missing or of another type.
    pub fn record<T: DeserializeOwned>(&self, dir: &Path) -> Result<T, RecordError> {
        let mut table = self.details.clone();
        if self.format > 1 {
            let bare = Finding { details: toml::Table::new(), ..self.clone() };
            table.extend(toml::Table::try_from(bare).expect("a finding is plain data"));
        }
        table.try_into().map_err(|error: toml::de::Error| RecordError::Damaged {
            path: dir.join(FILE),
            message: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        let mut finding = Finding::new("check", "0123456789ab", "tree link size");
        finding.details.insert("seed".to_owned(), 7.into());
        finding.labels.insert("kernel".to_owned(), "6.1".to_owned());
        finding.variants.push(Variant {
            signature: "tree rename size".to_owned(),
            class: "tree".to_owned(),
            sightings: 3,
            run: "rename(a, b)".to_owned(),
        });
        finding.evidence = vec![
            Evidence::text("trace.jsonl", "{}\n"),
            Evidence::bytes("disks/before-1.img", vec![0, 255]),
            Evidence::sparse("crash.img", 9, vec![(2, vec![7, 8]), (5, vec![9])]),
        ];
        finding
    }

    #[test]
    fn a_finding_is_read_back_as_it_was_written() {
        let out = tempfile::tempdir().unwrap();
        let dir = finding().write(&out.path().join("deep/er")).unwrap();
        assert_eq!(fs::read(dir.join("disks/before-1.img")).unwrap(), [0, 255]);
        assert_eq!(fs::read(dir.join("crash.img")).unwrap(), [0, 0, 7, 8, 0, 9, 0, 0, 0]);
        let bare = Finding { evidence: Vec::new(), ..finding() };
        assert_eq!(Finding::read(&dir).unwrap(), bare);
        assert!(Finding::read(out.path()).is_err());
    }

    /// The same files, whether they are to last or not.
    #[test]
    fn a_scratch_record_has_the_same_files() {
        let out = tempfile::tempdir().unwrap();
        let lasting = finding().write(&out.path().join("lasting")).unwrap();
        let scratch = finding().write_scratch(&out.path().join("scratch")).unwrap();
        for name in [FILE, "trace.jsonl", "disks/before-1.img", "crash.img"] {
            let read = |dir: &Path| fs::read(dir.join(name)).unwrap();
            assert_eq!(read(&lasting), read(&scratch), "{name}");
        }
    }

    #[test]
    fn writing_again_replaces_and_leaves_nothing_unfinished() {
        let out = tempfile::tempdir().unwrap();
        finding().write(out.path()).unwrap();
        let dir = Finding { evidence: Vec::new(), ..finding() }.write(out.path()).unwrap();
        let names = |dir: &Path| {
            let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
            names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(&dir), ["finding.toml"]);
        assert_eq!(names(out.path()), ["0123456789ab"]);
    }

    #[test]
    fn what_cannot_be_written_is_named_and_leaves_nothing_behind() {
        let out = tempfile::tempdir().unwrap();
        let mut finding = finding();
        // A file where a directory is needed.
        finding.evidence.push(Evidence::text("trace.jsonl/x", ""));
        let error = finding.write(out.path()).unwrap_err().to_string();
        assert!(error.contains("trace.jsonl/x"), "{error}");
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
        let error = finding.write(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(error.contains("/dev/null"), "{error}");
    }

    #[test]
    fn other_versions_are_read_or_refused_by_their_number() {
        let out = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            fs::write(out.path().join("finding.toml"), text).unwrap();
            Finding::read(out.path())
        };
        let old = read("id = \"a\"\nsignature = \"tree link size\"\nseed = 7\n").unwrap();
        assert_eq!((old.kind.as_str(), old.format, old.complete), ("check", 1, true));
        assert_eq!(old.details["seed"].as_integer(), Some(7));
        let crash = read("kind = \"crash\"\nid = \"b\"\ncount = 61\nversion = \"2.9\"\n").unwrap();
        assert_eq!((crash.kind.as_str(), crash.sightings), ("crash", 61));
        let newer = read("format = 3\nid = \"c\"\n").unwrap_err().to_string();
        assert!(newer.contains("has format 3"), "{newer}");
        let damaged = read("format = 2\nid = \"c\"\n").unwrap_err().to_string();
        assert!(damaged.contains("finding.toml"), "{damaged}");
    }

    #[test]
    fn a_record_of_a_kind_has_its_own_fields_and_the_common_ones() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Own {
            id: String,
            #[serde(rename = "sightings", alias = "count")]
            count: u64,
            seed: u64,
        }
        let own = Own { id: "0123456789ab".to_owned(), count: 1, seed: 7 };
        assert_eq!(Finding::details_of(&own).keys().collect::<Vec<_>>(), ["seed"]);
        assert_eq!(finding().record::<Own>(Path::new("")).unwrap(), own);
    }
}
