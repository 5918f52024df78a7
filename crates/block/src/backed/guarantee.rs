//! What a file system promises about power failures, as data.
//!
//! One TOML file per file system; every line cites where the file system says so (or that it is
//! silent, and what follows from that). Three things are said:
//!
//! * `order`: what may be found of changes that nothing made durable yet;
//! * `data`: how the contents of files relate to that;
//! * `[durable]`: what each call makes durable. A call that is not mentioned makes nothing durable;
//! * `blocks` and `mtime`: from which of these on the blocks that are allocated to a file, and its
//!   modification time, are durable too.
//!
//! Profiles of the format before this one (`names`, `data`, `order`) are still read: see [`old`].

mod old;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::crash::Level;

pub use old::Durable;

/// A promise and where it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim<T> {
    /// What is promised.
    pub is: T,
    /// The file system's own documentation.
    pub cite: String,
}

/// What may be found of changes that nothing made durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The state after some operation, contents included: earlier operations are there, later ones are
    /// not, none is half done.
    Prefix,
    /// Names, types, modes, owners, link counts, extended attributes and targets are those after some
    /// operation. The contents of files follow `data`.
    MetadataPrefix,
    /// The state after some operation since the last full commit, and on top of it what was fsynced
    /// later, each object at its own moment.
    TransactionLog,
    /// Each file and each name by itself is as it was at some moment since it was durable.
    Object,
    /// Anything, in what was touched; the rest is as it was.
    None,
}

impl Order {
    /// What it means, in words.
    pub fn meaning(self) -> &'static str {
        match self {
            Order::Prefix => "the state after some operation, nothing half done",
            Order::MetadataPrefix => "names and attributes as after some operation",
            Order::TransactionLog => {
                "the state after some operation, and on top of it what was fsynced later"
            }
            Order::Object => "each file and each name as at some moment since it was durable",
            Order::None => "anything in what was touched, the rest as it was",
        }
    }
}

/// How the contents of files relate to the order of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Written in place, new blocks before the metadata that shows them: contents may be ahead of the
    /// metadata or lag behind it, but are never bytes that were not written to this file.
    Ordered,
    /// In the journal with the metadata: contents are those of the same moment. One write may be half
    /// there, in whole blocks.
    Journal,
    /// Written in place at any time: where a file grew, its bytes may be what the disk held before.
    Writeback,
    /// Copied on write: contents are never ahead of the metadata that shows them.
    Cow,
    /// Held back until `fsync` or `close` of the file, then all of it at once.
    Held,
}

impl Data {
    /// What it means, in words.
    pub fn meaning(self) -> &'static str {
        match self {
            Data::Ordered => "in place, new blocks before the metadata that shows them",
            Data::Journal => "of the same moment as the metadata",
            Data::Writeback => "in place at any time; stale bytes where a file grew",
            Data::Cow => "copied on write, never ahead of the metadata that shows them",
            Data::Held => "held back until fsync or close, then all at once",
        }
    }
}

/// What a call makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Makes {
    /// Nothing.
    Nothing,
    /// The data of the file and the size that is needed to read them; no other attribute.
    Data,
    /// The data and all attributes of the file, extended ones too; none of its names.
    File,
    /// The entries of the directory: each leads to what it leads to, removed ones stay removed.
    Entries,
    /// As `file` or `entries`, and the names of the object itself: present ones are there, old ones
    /// are gone.
    Names,
    /// As `file` or `entries`, and all metadata changes up to the last one of this object.
    Log,
    /// As `file` or `entries`, and all metadata changes before the call.
    Metadata,
    /// Everything before the call, contents too.
    Everything,
}

impl fmt::Display for Makes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Makes::Nothing => "nothing",
            Makes::Data => "data",
            Makes::File => "file",
            Makes::Entries => "entries",
            Makes::Names => "names",
            Makes::Log => "log",
            Makes::Metadata => "metadata",
            Makes::Everything => "everything",
        })
    }
}

impl Makes {
    /// What it means, in words.
    pub fn meaning(self) -> &'static str {
        match self {
            Makes::Nothing => "nothing",
            Makes::Data => "the data of the file and the size that is needed to read them",
            Makes::File => "data and attributes of the file",
            Makes::Entries => "the entries of the directory",
            Makes::Names => "the object with its names",
            Makes::Log => "the object, and all metadata up to its last change",
            Makes::Metadata => "the object, and all metadata before",
            Makes::Everything => "everything before",
        }
    }
}

/// What each call makes durable once it has returned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DurableBy {
    /// Every operation: `everything`, or not mentioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Claim<Makes>>,
    /// `close` of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close: Option<Claim<Makes>>,
    /// `fsync` of anything but a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<Claim<Makes>>,
    /// `fdatasync` of anything but a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fdatasync: Option<Claim<Makes>>,
    /// `fsync` and `fdatasync` of a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync_dir: Option<Claim<Makes>>,
    /// `sync`, `syncfs` and a clean unmount: everything, always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<Claim<Makes>>,
    /// A write to a file that is open with `O_SYNC`; of the data, what was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub o_sync: Option<Claim<Makes>>,
    /// A write to a file that is open with `O_DSYNC`; of the data, what was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub o_dsync: Option<Claim<Makes>>,
    /// `msync` with `MS_SYNC`; of the data, the range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msync: Option<Claim<Makes>>,
    /// `sync_file_range` that writes and waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_file_range: Option<Claim<Makes>>,
    /// A rename over a file: with `data`, the name never leads to the new file without the data that
    /// it had when it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rename_over: Option<Claim<Makes>>,
    /// An `fsync` of an object that has taken the old name of another one: with `nothing`, that other
    /// one may be lost, unless its new name was made durable by itself. Not mentioned: it is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub displaced: Option<Claim<Makes>>,
    /// The removal of a name that is in the log of an order with one: with `log`, the next `fsync` of
    /// anything may make it durable by itself, without what has the name since. Not mentioned: the name
    /// leads to what it led to at one of the moments of that order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<Claim<Makes>>,
}

impl DurableBy {
    /// The calls that are mentioned, by their keys.
    pub fn mentioned(&self) -> impl Iterator<Item = (&'static str, &Claim<Makes>)> {
        [
            ("operation", &self.operation),
            ("close", &self.close),
            ("fsync", &self.fsync),
            ("fdatasync", &self.fdatasync),
            ("fsync_dir", &self.fsync_dir),
            ("sync", &self.sync),
            ("o_sync", &self.o_sync),
            ("o_dsync", &self.o_dsync),
            ("msync", &self.msync),
            ("sync_file_range", &self.sync_file_range),
            ("rename_over", &self.rename_over),
            ("displaced", &self.displaced),
            ("removed", &self.removed),
        ]
        .into_iter()
        .filter_map(|(call, claim)| Some((call, claim.as_ref()?)))
    }
}

/// What a claim that may be left out promises.
pub fn promised(claim: &Option<Claim<Makes>>) -> Makes {
    claim.as_ref().map_or(Makes::Nothing, |claim| claim.is)
}

/// What a file system promises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantee {
    /// What may be found of changes that nothing made durable.
    pub order: Claim<Order>,
    /// How contents relate to that.
    pub data: Claim<Data>,
    /// The power failures that it claims to survive; the default levels of a run.
    pub survives: Claim<Vec<Level>>,
    /// Whether every image that a crash leaves must mount and be readable, and usable after that.
    pub recovers: Claim<bool>,
    /// How many bytes of capacity may be missing after a crash, compared with the same tree without
    /// one (blocks that are reclaimed only by a later scan, wear levelling, …).
    pub capacity_slack_bytes: Claim<u64>,
    /// What a call must make durable of a file so that the blocks which are allocated to it are durable
    /// too: `data`, or more. Not mentioned: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Claim<Makes>>,
    /// The same of its modification time: `file`, or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Claim<Makes>>,
    /// The profile of quirks with which the reference file system runs, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Claim<String>>,
    /// What each call makes durable.
    #[serde(default)]
    pub durable: DurableBy,
}

/// How trees are judged under a guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judging {
    /// Everything that returned is durable; with `held`, written data only after `fsync` or `close`.
    Operations {
        /// Whether data is held back: see [`Data::Held`].
        held: bool,
    },
    /// Any state since the last `fsync` or `sync`.
    Syncs,
    /// Anything in what was touched since the last `sync`.
    Touched,
    /// Each object and each name by its own versions.
    Objects,
}

/// A text that promises nothing that could be checked.
#[derive(Debug, thiserror::Error)]
pub enum GuaranteeError {
    /// Not a profile.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// Claims of the old format that do not go together.
    #[error("names = \"{names}\" with data = \"{data}\" makes no sense: {why}")]
    Senseless {
        /// When names are durable.
        names: Durable,
        /// When data is durable.
        data: Durable,
        /// What contradicts what, and what to write instead.
        why: &'static str,
    },
    /// Keys of both formats.
    #[error(
        "`names` belongs to the old format and `{key}` to the new one: leave out `names` and say in \
         [durable] what each call makes durable, for example fsync = {{ is = \"file\", cite = … }}"
    )]
    Mixed {
        /// The key of the new format.
        key: &'static str,
    },
    /// A claim that does not go together with the others, or says nothing.
    #[error("{key} = \"{is}\" makes no sense: {why}")]
    Contradiction {
        /// Where it stands.
        key: &'static str,
        /// What it says.
        is: String,
        /// What contradicts what, and what to write instead.
        why: &'static str,
    },
    /// A cite without words.
    #[error("{key} does not say where that is promised: fill its cite")]
    Uncited {
        /// The claim.
        key: &'static str,
    },
}

impl Guarantee {
    /// Reads a profile.
    ///
    /// # Errors
    /// If it is not one, or its claims contradict each other: says what and where.
    pub fn parse(text: &str) -> Result<Guarantee, GuaranteeError> {
        let table: toml::Table = toml::from_str(text)?;
        let guarantee = if table.contains_key("names") {
            for key in ["durable", "reference"] {
                if table.contains_key(key) {
                    return Err(GuaranteeError::Mixed { key });
                }
            }
            old::parse(text)?
        } else {
            toml::from_str(text)?
        };
        guarantee.validate()?;
        Ok(guarantee)
    }

    /// How trees are judged.
    pub fn judging(&self) -> Judging {
        let [operation, fsync, fdatasync] =
            [&self.durable.operation, &self.durable.fsync, &self.durable.fdatasync].map(promised);
        match self.order.is {
            Order::None => Judging::Touched,
            Order::Prefix if operation == Makes::Everything => {
                Judging::Operations { held: self.data.is == Data::Held }
            }
            Order::Prefix if fsync == Makes::Everything && fdatasync == Makes::Everything => {
                Judging::Syncs
            }
            _ => Judging::Objects,
        }
    }

    /// Accepts only what a checker can hold a file system to.
    fn validate(&self) -> Result<(), GuaranteeError> {
        self.validate_cites()?;
        self.validate_accounts()?;
        for (key, claim) in self.durable.mentioned() {
            let is = claim.is;
            if let Some(why) = self.why_not(key, is) {
                return Err(GuaranteeError::Contradiction { key, is: is.to_string(), why });
            }
        }
        let operation = promised(&self.durable.operation);
        let held = self.data.is == Data::Held;
        let closes = promised(&self.durable.close) >= Makes::File;
        if held && !(operation == Makes::Everything && closes) {
            let why = "who holds data back says from when names and data are durable; say operation \
                       = \"everything\" and close = \"file\" in [durable]";
            return Err(GuaranteeError::Contradiction { key: "data", is: "held".to_owned(), why });
        }
        if promised(&self.durable.fdatasync) > promised(&self.durable.fsync) {
            let is = promised(&self.durable.fdatasync).to_string();
            let why = "fsync promises at least what fdatasync does; say the same for fsync";
            return Err(GuaranteeError::Contradiction { key: "fdatasync", is, why });
        }
        Ok(())
    }

    /// Refuses blocks and times that are durable with less than what shows them.
    fn validate_accounts(&self) -> Result<(), GuaranteeError> {
        let of_files = [Makes::Data, Makes::File, Makes::Names, Makes::Log, Makes::Everything];
        let claims = [("blocks", &self.blocks, Makes::Data), ("mtime", &self.mtime, Makes::File)];
        for (key, claim, least) in claims {
            let is = promised(claim);
            if claim.is_some() && (is < least || !of_files.contains(&is)) {
                let why = "blocks come with \"data\" and the modification time with \"file\", or with more; \
                           leave it out if no call makes it durable";
                return Err(GuaranteeError::Contradiction { key, is: is.to_string(), why });
            }
        }
        Ok(())
    }

    /// Refuses claims without a source.
    fn validate_cites(&self) -> Result<(), GuaranteeError> {
        let fixed = [
            ("order", &self.order.cite),
            ("data", &self.data.cite),
            ("survives", &self.survives.cite),
            ("recovers", &self.recovers.cite),
            ("capacity_slack_bytes", &self.capacity_slack_bytes.cite),
        ];
        let reference = self.reference.iter().map(|claim| ("reference", &claim.cite));
        let accounts = [("blocks", &self.blocks), ("mtime", &self.mtime)];
        let accounts =
            accounts.into_iter().filter_map(|(key, claim)| Some((key, &claim.as_ref()?.cite)));
        let calls = self.durable.mentioned().map(|(key, claim)| (key, &claim.cite));
        match fixed
            .into_iter()
            .chain(reference)
            .chain(accounts)
            .chain(calls)
            .find(|(_, cite)| cite.is_empty())
        {
            Some((key, _)) => Err(GuaranteeError::Uncited { key }),
            None => Ok(()),
        }
    }

    /// Why a call cannot make that durable, and what to write instead.
    fn why_not(&self, call: &str, is: Makes) -> Option<&'static str> {
        use Makes::{Data, Entries, Everything, File, Log, Metadata, Names, Nothing};
        let order = self.order.is;
        match (call, is) {
            (_, Nothing) if call != "sync" => None,
            ("sync", Everything) => None,
            ("sync", _) => Some("sync(2) makes everything durable; say \"everything\""),
            _ if order == Order::None => Some(
                "without an order only a sync makes anything certain; leave this out, or say another \
                 order",
            ),
            ("operation", Everything) if order == Order::Prefix => None,
            ("operation", _) => Some(
                "what every operation makes durable is everything, in order; say \"everything\" with \
                 order = \"prefix\", or leave it out",
            ),
            ("displaced", _) => {
                Some("what was displaced is kept if this is left out, or nothing is")
            }
            ("removed", Log) if order == Order::TransactionLog => None,
            ("removed", _) => Some(
                "only a log takes a removal by itself; say \"log\" with order = \"transaction_log\", or \
                 leave it out",
            ),
            ("rename_over", Data) => None,
            ("rename_over", _) => Some("a rename can only wait for data; say \"data\""),
            ("fsync_dir", Data | File) => Some("a directory has entries; say \"entries\""),
            ("fsync_dir", Entries | Names | Log | Metadata | Everything) => None,
            (_, Entries) => Some("only a directory has entries; say \"file\" or \"names\""),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
