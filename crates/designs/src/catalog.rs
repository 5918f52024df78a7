//! The designs by name, with their switches and sizes as data: read from a command line, and
//! recorded in a finding.

use std::fmt;

use fathom_block::BlockBacked;
use serde::{Deserialize, Serialize};

use crate::classic::{ManagersError, Philosophers, SeatsError, TwoPhase};
use crate::journal::{self, Journal};
use crate::logfs::{self, Logfs};
use crate::mapping::{self, GeometryError, Kind, Layout, Mapping};
use crate::story::ExplainedSystem;
use crate::volume::{Backed, Design, Explorer, ExplorerError, Limits, OperationSet, Variant};

/// The name and a description of each design.
pub const DESIGNS: [(&str, &str); 6] = [
    ("link", "file mapping by chains, as FAT"),
    ("index", "file mapping by tables, as ext2"),
    ("journal", "a journal in ordered mode, as ext4"),
    ("log", "log-structured with checkpoints, as F2FS"),
    ("philosophers", "the Dining Philosophers"),
    ("two-phase", "two-phase commit"),
];

/// A choice of a design, its switches and its sizes. Settings that a design does not know must not
/// be given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// One of [`DESIGNS`].
    pub name: String,
    /// Precautions that are left out, and variants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<String>,
    /// Greatest number of files (journal, log: and directories).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<usize>,
    /// Number of data blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<usize>,
    /// Threads that use the design at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Whether the device has a volatile cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cache: bool,
    /// The order in which an operation writes what it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<mapping::Order>,
    /// Philosophers, or resource managers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Number of power failures in one run.
    pub crashes: u8,
    /// Number of last operations that belong to the identity of a state.
    pub remember: u32,
    /// Whether states that differ only in names are different.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub names_count: bool,
}

/// A design that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no such design.
    #[error("no design is called {name:?}: the known ones are {}", names().join(", "))]
    Name {
        /// The name that was asked for.
        name: String,
    },
    /// The design has no such switch.
    #[error(
        "{design} has no switch {switch:?}: {}",
        if known.is_empty() { "it has none".to_owned() } else { known.join(", ") }
    )]
    Switch {
        /// The design.
        design: String,
        /// The switch that was asked for.
        switch: String,
        /// The switches that the design has.
        known: Vec<&'static str>,
    },
    /// The setting belongs to another design.
    #[error("{design} has no {setting}: that is for {others}")]
    Setting {
        /// The design.
        design: String,
        /// The setting that was given.
        setting: &'static str,
        /// The designs that have the setting.
        others: &'static str,
    },
    /// A size is too small or too large.
    #[error("{what} {value}: {why}")]
    Size {
        /// The thing that is counted.
        what: &'static str,
        /// The number that was given.
        value: usize,
        /// The numbers that are possible.
        why: String,
    },
    /// The design is not a file system.
    #[error("{name} has no directories and operations to check: journal and log have")]
    NoVolume {
        /// The design.
        name: String,
    },
    /// A mapping design does not fit its device.
    #[error(transparent)]
    Mapping(#[from] GeometryError),
    /// The design has a mistake of its author.
    #[error(transparent)]
    Volume(#[from] ExplorerError),
    /// A table of philosophers cannot be laid.
    #[error(transparent)]
    Seats(#[from] SeatsError),
    /// A transaction cannot be made.
    #[error(transparent)]
    Managers(#[from] ManagersError),
}

/// A computation on a design of any type.
pub trait Visitor {
    /// The result of the computation.
    type Out;

    /// Computes the result for a design.
    fn visit<S: ExplainedSystem>(self, system: &S) -> Self::Out;
}

/// Lists the names of all designs.
pub fn names() -> [&'static str; DESIGNS.len()] {
    DESIGNS.map(|(name, _)| name)
}

/// The switches of a design; none if there is no such design.
pub fn switches(design: &str) -> Option<Vec<&'static str>> {
    fn all<V: Variant>() -> Vec<&'static str> {
        V::ALL.iter().map(|variant| variant.name()).collect()
    }
    Some(match design {
        "link" | "index" => Vec::new(),
        "journal" => all::<journal::Switch>(),
        "log" => all::<logfs::Switch>(),
        "philosophers" => vec!["polite"],
        "two-phase" => vec!["fallible"],
        _ => return None,
    })
}

impl Spec {
    /// Makes a description with the default settings.
    pub fn new(name: &str) -> Spec {
        let Limits { remember, names_count, crashes } = Limits::default();
        Spec {
            name: name.to_owned(),
            switches: Vec::new(),
            files: None,
            blocks: None,
            threads: None,
            cache: false,
            order: None,
            size: None,
            crashes,
            remember,
            names_count,
        }
    }

    /// Makes the design and gives it to a visitor.
    ///
    /// # Errors
    /// If there is no such design: says what is wrong, and what there is.
    pub fn open<V: Visitor>(&self, visitor: V) -> Result<V::Out, SpecError> {
        self.validate()?;
        Ok(match self.name.as_str() {
            "link" => visitor.visit(&self.mapping(Kind::Link)?),
            "index" => visitor.visit(&self.mapping(Kind::Index)?),
            "journal" => visitor.visit(&self.explorer(self.journal()?)?),
            "log" => visitor.visit(&self.explorer(self.logfs()?)?),
            "philosophers" => visitor.visit(&Philosophers::new(
                self.size.unwrap_or(PHILOSOPHERS_DEFAULT),
                self.has("polite"),
            )?),
            _ => visitor.visit(&TwoPhase::new(
                self.size.unwrap_or(MANAGERS_DEFAULT),
                self.has("fallible"),
            )?),
        })
    }

    /// Reads a description: `journal` or `journal:no-barrier,no-revoke`.
    pub fn named(text: &str) -> Spec {
        let (name, switches) = text.split_once(':').unwrap_or((text, ""));
        let switches = switches.split(',').filter(|switch| !switch.is_empty());
        Spec { switches: switches.map(str::to_owned).collect(), ..Spec::new(name) }
    }

    /// Makes the design a subject of the crash checker, under a name.
    ///
    /// # Errors
    /// If there is no such design, or it is no file system.
    pub fn backed(&self, name: &str) -> Result<Box<dyn BlockBacked>, SpecError> {
        self.validate()?;
        match self.name.as_str() {
            "journal" => {
                Ok(Box::new(Backed::new(self.explorer(self.journal()?)?.into_design(), name)))
            }
            "log" => Ok(Box::new(Backed::new(self.explorer(self.logfs()?)?.into_design(), name))),
            other => Err(SpecError::NoVolume { name: other.to_owned() }),
        }
    }

    fn has(&self, switch: &str) -> bool {
        self.switches.iter().any(|given| given == switch)
    }

    fn validate(&self) -> Result<(), SpecError> {
        let Some(known) = switches(&self.name) else {
            return Err(SpecError::Name { name: self.name.clone() });
        };
        let design = || self.name.clone();
        if let Some(switch) = self.switches.iter().find(|given| !known.contains(&given.as_str())) {
            return Err(SpecError::Switch { design: design(), switch: switch.clone(), known });
        }
        let is_mapping = matches!(self.name.as_str(), "link" | "index");
        let is_classic = matches!(self.name.as_str(), "philosophers" | "two-phase");
        let given = [
            (self.threads.is_some() && !is_mapping, "threads", "link and index"),
            (self.cache && !is_mapping, "cache", "link and index"),
            (self.order.is_some() && !is_mapping, "order", "link and index"),
            (self.blocks.is_some() && !is_mapping, "blocks", "link and index"),
            (self.files.is_some() && is_classic, "files", "link, index, journal and log"),
            (self.size.is_some() && !is_classic, "size", "philosophers and two-phase"),
        ];
        match given.into_iter().find(|(wrong, ..)| *wrong) {
            Some((_, setting, others)) => {
                Err(SpecError::Setting { design: design(), setting, others })
            }
            None => Ok(()),
        }
    }

    /// The mapping design that this describes.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn mapping(&self, kind: Kind) -> Result<Mapping, SpecError> {
        let seed = Mapping::new(kind)?;
        let files = self.files.unwrap_or(seed.layout.files());
        let layout = Layout::new(kind, files, self.blocks.unwrap_or(seed.layout.data_blocks()))?;
        let threads = self.threads.unwrap_or(seed.threads);
        if !(1..=mapping::THREADS_MAX).contains(&threads) {
            let why = "the model has 1 or 2 threads; the search has its own".to_owned();
            return Err(SpecError::Size { what: "threads", value: threads, why });
        }
        Ok(Mapping {
            layout,
            threads,
            cache: self.cache,
            order: self.order.unwrap_or(seed.order),
            crashes: self.crashes > 0,
            symmetry: !self.names_count,
        })
    }

    /// The journaling design that this describes.
    ///
    /// # Errors
    /// If its files do not fit.
    pub fn journal(&self) -> Result<Journal, SpecError> {
        let default = Journal::default();
        let menu = self.menu(default.menu, journal::ENTRIES_MAX)?;
        Ok(Journal { without: self.variants(), menu })
    }

    /// The log-structured design that this describes.
    ///
    /// # Errors
    /// If its files do not fit.
    pub fn logfs(&self) -> Result<Logfs, SpecError> {
        let default = Logfs::default();
        let menu = self.menu(default.menu, LOG_ENTRIES_MAX)?;
        Ok(Logfs { switches: self.variants(), menu })
    }

    fn variants<V: Variant>(&self) -> Vec<V> {
        self.switches.iter().filter_map(|name| V::named(name)).collect()
    }

    fn menu(&self, default: OperationSet, entries_max: usize) -> Result<OperationSet, SpecError> {
        let files = self.files.unwrap_or(default.entries_max);
        if !(1..=entries_max).contains(&files) {
            let why =
                format!("{} has room for 1 to {entries_max} files and directories", self.name);
            return Err(SpecError::Size { what: "files", value: files, why });
        }
        Ok(OperationSet { entries_max: files, ..default })
    }

    fn explorer<D: Design>(&self, design: D) -> Result<Explorer<D>, SpecError> {
        let Spec { remember, names_count, crashes, .. } = *self;
        Ok(Explorer::new(design, Limits { remember, names_count, crashes })?)
    }
}

/// Default number of philosophers.
const PHILOSOPHERS_DEFAULT: u32 = 10;
/// Default number of resource managers.
const MANAGERS_DEFAULT: u32 = 5;
/// Greatest number of entries that the nodes of the log-structured design allow (and the shadow
/// tree).
const LOG_ENTRIES_MAX: usize = 12;

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let mut with: Vec<String> = self.switches.clone();
        with.extend(self.threads.filter(|threads| *threads > 1).map(|n| format!("{n} threads")));
        with.extend(self.cache.then(|| "cache".to_owned()));
        with.extend(self.order.map(|order| format!("{order} order")));
        with.extend(self.files.map(|files| format!("{files} files")));
        with.extend(self.blocks.map(|blocks| format!("{blocks} blocks")));
        with.extend(self.size.map(|size| format!("size {size}")));
        if with.is_empty() { Ok(()) } else { write!(f, " ({})", with.join(", ")) }
    }
}
