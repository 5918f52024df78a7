//! The catalogue: every subject by its name, what it offers and what it needs.
//!
//! A [`Family`] is a way of typing subjects (`dir:PATH`, the kernel's file systems, …) and lists its
//! own; an [`Entry`] is one subject as it was typed, which shows itself as it can be typed again.
//! Commands ask an entry for what they need ([`Spec::demand`]) and get it, or a sentence that says what
//! is missing. Families can be added from outside: this crate does not know all of them.
//!
//! ```
//! use fathom_subjects::catalogue::{Catalogue, Purpose};
//!
//! let catalogue = Catalogue::new();
//! let ext4 = catalogue.parse("ext4 --mkfs-opts=-b 1024").unwrap();
//! assert_eq!(ext4.to_string(), "ext4 --mkfs-opts=-b 1024");
//! assert!(ext4.demand(Purpose::Check).is_ok());
//! let tmpfs = catalogue.parse("tmpfs").unwrap();
//! let error = tmpfs.demand(Purpose::Crash).unwrap_err().to_string();
//! assert!(error.starts_with("tmpfs is known, but `fathom crash` needs a disk"));
//! ```

mod directory;
mod dying;
mod error;
mod kernel;
mod library;
pub mod near;
mod need;
mod nfs;
mod offers;
mod profile;
mod program;
mod reference;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use fathom_block::{BlockBacked, DiskFileSystem, Geometry, InProcess};
use fathom_core::Testbed;
use fathom_model::{Config, Feature};

use crate::sys::View;
use near::did_you_mean;

pub use error::CatalogueError;
pub use library::with_crash_mutant;
pub use need::Need;
pub use offers::{Disk, Mutants, Offers, Operations, Purpose};
pub use reference::parse_mutant;

/// What may be asked of a subject beyond its name, as options of a command give it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// A bug to switch on.
    pub mutant: Option<&'a str>,
    /// A profile: a name, or a file with quirks or a recipe.
    pub profile: Option<&'a str>,
    /// A profile that belongs to the name of the subject: its disks are recorded and judged by it.
    pub quirks: Option<&'a str>,
    /// Words for the formatting program.
    pub mkfs: Option<&'a str>,
    /// Mount options, with commas between them.
    pub mount: Option<&'a str>,
    /// So much space is left.
    pub space_bytes: Option<u64>,
    /// The size of the disk.
    pub disk_bytes: Option<u64>,
    /// The shape of the device.
    pub geometry: Option<&'a str>,
    /// The promises that a kernel file system is held to: a name, or a file.
    pub promises: Option<&'a str>,
    /// The version of NFS.
    pub nfs: Option<&'a str>,
    /// The server of NFS.
    pub server: Option<&'a str>,
    /// The number of clients of NFS.
    pub clients: Option<usize>,
    /// Whether the network loses packets.
    pub lossy: bool,
}

impl Asked<'_> {
    /// Refuses what `subject` has no use for.
    ///
    /// # Errors
    /// Names the option, and who has a use for it.
    pub fn only(self, subject: &dyn fmt::Display, offers: &Offers) -> Result<(), CatalogueError> {
        let refused = |text: String| Err(CatalogueError::Refused(text));
        if self.mutant.is_some() && offers.mutants == Mutants::None {
            return refused(format!(
                "{subject} has no mutants: model, reffs and library file systems have, and kernel \
                 file systems under `fathom crash`"
            ));
        }
        if self.geometry.is_some() && (offers.disk != Disk::Recorded || offers.space) {
            return refused(format!(
                "{subject} has no device whose shape could be given: --geometry is for library file \
                 systems"
            ));
        }
        if !offers.network
            && (self.lossy || self.clients.is_some() || self.nfs.or(self.server).is_some())
        {
            return refused(format!(
                "{subject} is not served over a network: --nfs, --server, --clients and --lossy are for \
                 nfs:BACKEND"
            ));
        }
        let kernels_disk = offers.space && !offers.network;
        if self.disk_bytes.is_some() && !kernels_disk {
            return refused(format!(
                "{subject} has no disk of its own: --disk is for kernel file systems"
            ));
        }
        if offers.disk == Disk::Unrecorded || offers.space {
            return Ok(());
        }
        if self.promises.is_some() {
            return refused(format!(
                "{subject} says itself what it promises: --promises is for kernel file systems"
            ));
        }
        if self.quirks.is_some() {
            return refused(format!(
                "{subject} is held to a profile of its own after power failures: --profile is for kernel \
                 file systems there"
            ));
        }
        if self.mkfs.or(self.mount).is_some() {
            return refused(format!(
                "{subject} is neither formatted nor mounted: --mkfs-opts and --mount-opts are for \
                 kernel file systems"
            ));
        }
        if self.space_bytes.is_some() {
            return refused(format!(
                "{subject} has no disk that could be filled: --space is for kernel file systems"
            ));
        }
        match self.profile.filter(|profile| profile::is_recipe(profile)) {
            Some(profile) => refused(format!(
                "{profile} is the recipe of a kernel file system, and {subject} is none"
            )),
            None => Ok(()),
        }
    }
}

/// A line of a list.
#[derive(Clone, Debug)]
pub struct Row {
    /// How it is typed; what is free is in capitals.
    pub name: String,
    /// What it is.
    pub about: String,
    /// What it offers.
    pub offers: Offers,
    /// What it needs.
    pub needs: Vec<Need>,
}

/// Subjects that are typed alike.
pub trait Family: Send + Sync {
    /// Its subjects.
    fn rows(&self) -> Vec<Row>;

    /// Reads what was typed; `None` if that is of another family.
    ///
    /// # Errors
    /// If the name is one of the family and the rest of the text is wrong.
    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError>;
}

/// A subject as it was typed. What it does not offer need not be implemented.
pub trait Entry: fmt::Display + Send + Sync {
    /// What it offers.
    fn offers(&self) -> Offers;

    /// The same subject with what was asked for.
    ///
    /// # Errors
    /// If that means nothing to it.
    fn with(&self, asked: &Asked<'_>) -> Result<Arc<dyn Entry>, CatalogueError>;

    /// The profile that fits it.
    ///
    /// # Errors
    /// If it cannot be found out.
    fn profile(&self) -> Result<String, CatalogueError>;

    /// The reference as it must be set up to behave like the subject with this profile: who calls, the
    /// mode of the root, the settings of the machine, the limits of what was made.
    ///
    /// # Errors
    /// If there is no such profile, or the subject cannot be asked.
    fn reference(&self, profile: &str) -> Result<Config, CatalogueError>;

    /// The same as far as it is known before anything is made, for a plan that is only shown.
    ///
    /// # Errors
    /// If there is no such profile.
    fn planned_reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        self.reference(profile)
    }

    /// Finds out by trying what the subject lacks, and changes its reference accordingly. Returns what a
    /// user should know. Where everything is known, nothing is tried.
    ///
    /// # Errors
    /// If nothing can be tried.
    fn probe(
        &self,
        _reference: &mut Config,
        _required: &[Feature],
    ) -> Result<Vec<String>, CatalogueError> {
        Ok(Vec::new())
    }

    /// Why it should not run on a machine that matters, if so.
    fn risk(&self) -> Option<String> {
        None
    }

    /// The user's directory in which the subject lives: no place for anything else that is written.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Refuses to run what another user recorded: owners and permissions would all be different.
    ///
    /// # Errors
    /// If the caller is another one.
    fn check_caller(&self, _reference: &Config) -> Result<(), CatalogueError> {
        Ok(())
    }

    /// Makes the subject, for [`Purpose::Check`]; it stays on the thread that makes it. `reference` is
    /// how the model that it contains, if any, is set up.
    ///
    /// # Errors
    /// If it cannot be made.
    fn testbed(&self, reference: &Config, view: View) -> Result<Box<dyn Testbed>, CatalogueError>;

    /// Makes the file system, for [`Purpose::Crash`].
    ///
    /// # Errors
    /// If it cannot be made.
    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError>;

    /// Makes the file system on a geometry that was recorded. One that has a single geometry ignores
    /// it.
    ///
    /// # Errors
    /// If it cannot be made.
    fn block_backed_on(&self, _: Geometry) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        self.block_backed()
    }

    /// Makes what can be recorded and examined, for [`Purpose::Crash`], perhaps on a geometry that was
    /// recorded; up to `threads` disks are examined at the same time, where that is up to the subject.
    ///
    /// # Errors
    /// If it cannot be made.
    fn disks(
        &self,
        geometry: Option<Geometry>,
        _threads: usize,
    ) -> Result<Box<dyn DiskFileSystem>, CatalogueError> {
        let library = match geometry {
            Some(geometry) => self.block_backed_on(geometry)?,
            None => self.block_backed()?,
        };
        Ok(Box::new(InProcess::keeping(library)))
    }
}

/// An entry, shared.
#[derive(Clone)]
pub struct Spec(Arc<dyn Entry>);

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spec({self})")
    }
}

impl Spec {
    /// See [`Entry::directory`].
    pub fn directory(&self) -> Option<&Path> {
        self.0.directory()
    }

    /// Refuses what may harm this machine, unless it is a guest or the user insists.
    ///
    /// # Errors
    /// Says what the risk is, and where it can run.
    pub fn check_risk(&self, on_host: bool) -> Result<(), CatalogueError> {
        match self.0.risk() {
            Some(risk) if !on_host && !is_guest() => Err(CatalogueError::Refused(format!(
                "{self} may harm this machine ({risk}): run it in a guest (--guest KERNEL), or with \
                 --on-host if nothing here matters"
            ))),
            _ => Ok(()),
        }
    }

    /// What it offers.
    pub fn offers(&self) -> Offers {
        self.0.offers()
    }

    /// Whether it can be used so.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn demand(&self, purpose: Purpose) -> Result<(), CatalogueError> {
        match self.0.offers().lacks(purpose) {
            None => Ok(()),
            Some(_) => Err(not_offered(&*self.0, purpose)),
        }
    }

    /// See [`Entry::with`].
    ///
    /// # Errors
    /// If that means nothing to it.
    pub fn with(&self, asked: &Asked<'_>) -> Result<Spec, CatalogueError> {
        asked.only(self, &self.0.offers())?;
        self.0.with(asked).map(Spec)
    }

    /// See [`Entry::profile`].
    ///
    /// # Errors
    /// If it cannot be found out.
    pub fn profile(&self) -> Result<String, CatalogueError> {
        self.demand(Purpose::Check)?;
        self.0.profile()
    }

    /// See [`Entry::reference`].
    ///
    /// # Errors
    /// If there is no such profile, or the subject cannot be asked.
    pub fn reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        self.demand(Purpose::Check)?;
        self.0.reference(profile)
    }

    /// See [`Entry::planned_reference`].
    ///
    /// # Errors
    /// If there is no such profile.
    pub fn planned_reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        self.demand(Purpose::Check)?;
        self.0.planned_reference(profile)
    }

    /// See [`Entry::probe`].
    ///
    /// # Errors
    /// If nothing can be tried.
    pub fn probe(
        &self,
        reference: &mut Config,
        required: &[Feature],
    ) -> Result<Vec<String>, CatalogueError> {
        self.0.probe(reference, required)
    }

    /// See [`Entry::check_caller`].
    ///
    /// # Errors
    /// If the caller is another one.
    pub fn check_caller(&self, reference: &Config) -> Result<(), CatalogueError> {
        self.0.check_caller(reference)
    }

    /// See [`Entry::testbed`].
    ///
    /// # Errors
    /// If it is not offered, or cannot be made.
    pub fn testbed(
        &self,
        reference: &Config,
        view: View,
    ) -> Result<Box<dyn Testbed>, CatalogueError> {
        self.demand(Purpose::Check)?;
        self.0.testbed(reference, view)
    }

    /// See [`Entry::block_backed`].
    ///
    /// # Errors
    /// If it is not offered, or cannot be made.
    pub fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        self.demand(Purpose::Crash)?;
        self.0.block_backed()
    }

    /// See [`Entry::disks`].
    ///
    /// # Errors
    /// If it is not offered, or cannot be made.
    pub fn disks(
        &self,
        geometry: Option<Geometry>,
        threads: usize,
    ) -> Result<Box<dyn DiskFileSystem>, CatalogueError> {
        self.demand(Purpose::Crash)?;
        self.0.disks(geometry, threads)
    }

    /// See [`Entry::block_backed_on`].
    ///
    /// # Errors
    /// If it is not offered, or cannot be made.
    pub fn block_backed_on(
        &self,
        geometry: Geometry,
    ) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        self.demand(Purpose::Crash)?;
        self.0.block_backed_on(geometry)
    }
}

/// Every subject.
pub struct Catalogue {
    families: Vec<Box<dyn Family>>,
}

impl Default for Catalogue {
    fn default() -> Self {
        Catalogue::new()
    }
}

impl Catalogue {
    /// The subjects of this crate.
    pub fn new() -> Catalogue {
        let families: Vec<Box<dyn Family>> = vec![
            Box::new(directory::Directories),
            Box::new(program::Programs),
            Box::new(reference::References),
            Box::new(kernel::KernelFileSystems),
            Box::new(nfs::NetworkFileSystems),
            Box::new(library::Libraries),
            Box::new(dying::DyingReferences),
        ];
        Catalogue { families }
    }

    /// With another family, after those that are there.
    #[must_use]
    pub fn with(mut self, family: impl Family + 'static) -> Catalogue {
        self.families.push(Box::new(family));
        self
    }

    /// All of it.
    pub fn rows(&self) -> Vec<Row> {
        self.families.iter().flat_map(|family| family.rows()).collect()
    }

    /// Reads what was typed.
    ///
    /// # Errors
    /// If nothing is called like that, or what follows the name is wrong.
    pub fn parse(&self, text: &str) -> Result<Spec, CatalogueError> {
        for family in &self.families {
            if let Some(entry) = family.parse(text)? {
                return Ok(Spec(entry));
            }
        }
        let known: Vec<String> = self.rows().into_iter().map(|row| row.name).collect();
        let typed = text.split([' ', '+']).next().unwrap_or(text);
        let hint = did_you_mean(typed, known.iter().map(String::as_str));
        Err(CatalogueError::Unknown { text: text.to_owned(), hint })
    }
}

/// Whether this kernel is a guest of its own (User-Mode Linux), which may die.
fn is_guest() -> bool {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpu.contains("User Mode Linux")
}

/// What an entry says that was asked although nobody should have.
fn not_offered(entry: &dyn Entry, purpose: Purpose) -> CatalogueError {
    let needs = entry.offers().lacks(purpose).unwrap_or_default();
    CatalogueError::NotOffered { subject: entry.to_string(), command: purpose.name(), needs }
}

/// Asks a subject on a thread of its own, which it takes over.
fn on_own_thread<T: Send>(
    ask: impl FnOnce() -> Result<T, CatalogueError> + Send,
) -> Result<T, CatalogueError> {
    std::thread::scope(|scope| {
        let panicked = |_| Err(CatalogueError::Refused("the harness panicked: see above".into()));
        scope.spawn(ask).join().unwrap_or_else(panicked)
    })
}

/// Cuts `marker` and what follows off a text.
fn split_off<'a>(text: &'a str, marker: &str) -> (&'a str, Option<&'a str>) {
    text.split_once(marker).map_or((text, None), |(before, after)| (before, Some(after)))
}

#[cfg(test)]
mod tests;
