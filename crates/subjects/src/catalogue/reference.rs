//! `model`, `model:MUTANT`: the reference itself. `reffs`, `reffs:MUTANT`: the same through FUSE.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fathom_block::BlockBacked;
use fathom_core::{Capability, RestoreMethod, Testbed};
use fathom_model::{Config, ModelSubject, Mutant, Race};

use super::near::did_you_mean;
use super::profile::{read_profile, read_protections};
use super::{
    Asked, CatalogueError, Disk, Entry, Family, Mutants, Need, Offers, Operations, Purpose, Row,
};
use crate::fuse::ReffsSubject;
use crate::sys::{Identity, View};

/// `model` and `reffs`.
pub(super) struct References;

/// Where the reference is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Process,
    Fuse,
}

#[derive(Clone)]
struct Reference {
    place: Place,
    mutant: Option<Mutant>,
    /// A bug that only overlapping calls show.
    race: Option<Race>,
}

/// The mutant of the reference with this name.
///
/// # Errors
/// If there is none; names those that look like it.
pub fn parse_mutant(name: &str) -> Result<Mutant, CatalogueError> {
    let known = || Mutant::ALL.iter().map(|mutant| mutant.name());
    Mutant::ALL.iter().find(|mutant| mutant.name() == name).copied().ok_or_else(|| {
        let hint = did_you_mean(name, known());
        CatalogueError::Refused(format!(
            "unknown mutant {name:?}{hint}; `fathom list mutants` shows all"
        ))
    })
}

impl Place {
    const ALL: [Place; 2] = [Place::Process, Place::Fuse];

    fn name(self) -> &'static str {
        match self {
            Place::Process => "model",
            Place::Fuse => "reffs",
        }
    }

    fn offers(self) -> Offers {
        Offers {
            operations: Operations::All,
            restore_methods: match self {
                Place::Process => vec![RestoreMethod::Clone],
                Place::Fuse => vec![RestoreMethod::Ioctl],
            },
            capabilities: BTreeSet::from([Capability::Identity, Capability::Remount]),
            disk: Disk::None("the reference keeps everything in memory"),
            checker: None,
            promises: false,
            space: false,
            network: false,
            mutants: Mutants::Reference,
        }
    }
}

/// Offers of the reference in this process.
pub(super) fn offers_of_the_model() -> Offers {
    Place::Process.offers()
}

impl Family for References {
    fn rows(&self) -> Vec<Row> {
        let about = |place| match place {
            Place::Process => "the reference itself (with --mutant: a liar)",
            Place::Fuse => "the reference served through FUSE",
        };
        let row = |place: Place| Row {
            name: place.name().to_owned(),
            about: about(place).to_owned(),
            offers: place.offers(),
            needs: if place == Place::Fuse { vec![Need::Fuse] } else { Vec::new() },
        };
        Place::ALL.into_iter().map(row).collect()
    }

    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError> {
        let (name, mutant) = super::split_off(text, ":");
        let Some(place) = Place::ALL.into_iter().find(|place| place.name() == name) else {
            return Ok(None);
        };
        let plain = Reference { place, mutant: None, race: None };
        Ok(Some(Arc::new(plain.with_bug(mutant)?)))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.place.name())?;
        self.mutant.map_or(Ok(()), |mutant| write!(f, ":{}", mutant.name()))?;
        self.race.map_or(Ok(()), |race| write!(f, ":{}", race.name()))
    }
}

impl Reference {
    /// The same with a bug, if one is named.
    fn with_bug(self, name: Option<&str>) -> Result<Reference, CatalogueError> {
        let Some(name) = name else { return Ok(self) };
        let race = Race::ALL.iter().find(|race| race.name() == name).copied();
        match race {
            Some(race) if self.place == Place::Fuse && !SERVED.contains(&race) => {
                Err(CatalogueError::Refused(format!(
                    "{name} does not show through FUSE, whose kernel side takes that lock itself: \
                     use model:{name}"
                )))
            }
            Some(race) => Ok(Reference { mutant: None, race: Some(race), ..self }),
            None => Ok(Reference { mutant: Some(parse_mutant(name)?), race: None, ..self }),
        }
    }
}

/// The races that a FUSE server can have: for the others the kernel holds the lock of the file or of the
/// directory while it asks the server.
const SERVED: [Race; 1] = [Race::Xattr];

impl Entry for Reference {
    fn offers(&self) -> Offers {
        self.place.offers()
    }

    fn with(&self, asked: &Asked<'_>) -> Result<Arc<dyn Entry>, CatalogueError> {
        Ok(Arc::new(self.clone().with_bug(asked.mutant)?))
    }

    fn profile(&self) -> Result<String, CatalogueError> {
        Ok(self.place.name().to_owned())
    }

    fn reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        let mut config = Config { quirks: read_profile(profile)?, ..Config::default() };
        if self.place == Place::Fuse {
            read_protections(&mut config.quirks);
            // Its root belongs to who mounts it. Root, who may be anybody, starts without groups.
            let identity = Identity::of_process()?;
            if identity.uid != 0 {
                (config.uid, config.gid) = (identity.uid, identity.gid);
                config.groups = identity.groups;
                config.quirks.nodev = true; // fusermount3 sees to it
            }
        }
        Ok(config)
    }

    fn check_caller(&self, reference: &Config) -> Result<(), CatalogueError> {
        let now = Identity::of_process()?;
        if self.place == Place::Process || (now.uid, now.gid) == (reference.uid, reference.gid) {
            return Ok(());
        }
        Err(CatalogueError::Refused(format!(
            "the trace was recorded as user {} group {}, you are user {} group {}: run it as that \
             user, or on the model with `--subject model`",
            reference.uid, reference.gid, now.uid, now.gid
        )))
    }

    fn testbed(&self, reference: &Config, view: View) -> Result<Box<dyn Testbed>, CatalogueError> {
        let config = Config { mutant: self.mutant, race: self.race, ..reference.clone() };
        Ok(match self.place {
            Place::Process => Box::new(ModelSubject::new(config)?),
            Place::Fuse => Box::new(ReffsSubject::new(config, view)?),
        })
    }

    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        Err(super::not_offered(self, Purpose::Crash))
    }
}
