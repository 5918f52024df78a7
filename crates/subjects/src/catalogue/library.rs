//! Library file systems: `littlefs`, `littlefs+MUTANT`, `littlefs --geometry=1024x4096/16`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fathom_block::{BlockBacked, Geometry};
use fathom_core::{Capability, RestoreMethod, Testbed};
use fathom_model::Config;

use super::near::did_you_mean;
use super::profile::read_profile;
use super::{
    Asked, CatalogueError, Disk, Entry, Family, Mutants, Need, Offers, Operations, Row, split_off,
};
use crate::library::{self, Known, LibrarySubject, OPERATIONS, faulty};
use crate::supervise::remains::available_bytes;
use crate::sys::View;

const GEOMETRY: &str = " --geometry=";

/// Before the name of a mutant.
const MUTANT: char = '+';

/// The library file systems, built in or not.
pub(super) struct Libraries;

#[derive(Clone)]
struct Library {
    name: String,
    mutant: Option<String>,
    /// As it was typed.
    geometry: Option<String>,
}

fn offers(known: &Known) -> Offers {
    Offers {
        operations: Operations::Only(OPERATIONS),
        restore_methods: vec![RestoreMethod::Clone],
        capabilities: BTreeSet::from([Capability::Remount]),
        disk: Disk::Recorded,
        checker: known.checker.map(str::to_owned),
        promises: true,
        space: false,
        network: false,
        mutants: Mutants::Crash,
    }
}

fn needs(known: &Known) -> Vec<Need> {
    let (name, built_in) = (known.feature, known.is_built_in());
    let mut needs = vec![Need::Feature { name, built_in, needs: known.needs }];
    needs.extend(known.format.map(|(program, package)| Need::Program {
        program: program.to_owned(),
        package: package.to_owned(),
    }));
    needs
}

impl Family for Libraries {
    fn rows(&self) -> Vec<Row> {
        let row = |known: Known| Row {
            name: known.name.to_owned(),
            about: known.about.to_owned(),
            offers: offers(&known),
            needs: needs(&known),
        };
        library::all().into_iter().map(row).collect()
    }

    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError> {
        let (text, geometry) = split_off(text, GEOMETRY);
        let (name, mutant) = match text.split_once(MUTANT) {
            Some((name, mutant)) => (name, Some(mutant)),
            None => (text, None),
        };
        if !library::all().iter().any(|known| known.name == name) {
            return Ok(None);
        }
        let plain = Library { name: name.to_owned(), mutant: None, geometry: None };
        plain.with(&Asked { mutant, geometry, ..Asked::default() }).map(Some)
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(mutant) = &self.mutant {
            write!(f, "{MUTANT}{mutant}")?;
        }
        self.geometry.as_ref().map_or(Ok(()), |geometry| write!(f, "{GEOMETRY}{geometry}"))
    }
}

impl Library {
    fn known(&self) -> Known {
        let mut all = library::all().into_iter();
        all.find(|known| known.name == self.name).expect("parsing looked for it")
    }

    /// On the given geometry, or else on `default`.
    fn open(&self, default: Option<Geometry>) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        let known = self.known();
        let geometry = match &self.geometry {
            None => default,
            Some(text) => Some(parse_geometry(text, known.open(None)?.geometry())?),
        };
        let opened = known.open(geometry)?;
        match &self.mutant {
            None => Ok(opened),
            Some(mutant) => with_crash_mutant(opened, mutant),
        }
    }
}

impl Entry for Library {
    fn offers(&self) -> Offers {
        offers(&self.known())
    }

    fn with(&self, asked: &Asked<'_>) -> Result<Arc<dyn Entry>, CatalogueError> {
        asked.mutant.map(crash_mutant).transpose()?;
        Ok(Arc::new(Library {
            name: self.name.clone(),
            mutant: asked.mutant.map(str::to_owned).or_else(|| self.mutant.clone()),
            geometry: asked.geometry.map(str::to_owned).or_else(|| self.geometry.clone()),
        }))
    }

    fn profile(&self) -> Result<String, CatalogueError> {
        Ok(self.known().profile.to_owned())
    }

    fn reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        Ok(Config { quirks: read_profile(profile)?, ..Config::default() })
    }

    fn testbed(&self, reference: &Config, _view: View) -> Result<Box<dyn Testbed>, CatalogueError> {
        let backed = self.open(Some(self.known().check_geometry))?;
        let alone = reference.quirks.open_files_alone;
        Ok(Box::new(LibrarySubject::new(self.to_string(), backed, alone)?))
    }

    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        self.open(None)
    }

    fn block_backed_on(&self, geometry: Geometry) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        self.open(Some(geometry))
    }
}

fn crash_mutant(name: &str) -> Result<&'static faulty::Mutant, CatalogueError> {
    let mut known = faulty::all().iter().chain([&faulty::CORRECT]);
    known.find(|known| known.name == name).ok_or_else(|| {
        let hint = did_you_mean(name, faulty::all().iter().map(|mutant| mutant.name));
        CatalogueError::Refused(format!(
            "no crash mutant is called {name:?}: see `fathom list crash-mutants`{hint}"
        ))
    })
}

/// A file system with the crash mutant of this name around it.
///
/// # Errors
/// If no mutant is called like that.
pub fn with_crash_mutant(
    subject: Box<dyn BlockBacked>,
    mutant: &str,
) -> Result<Box<dyn BlockBacked>, CatalogueError> {
    Ok(faulty::wrap(subject, crash_mutant(mutant)?))
}

/// Reads `BLOCKSxBYTES` or `BLOCKSxBYTES/UNIT`; everything else is as in `default`.
///
/// # Errors
/// If it is something else, or impossible.
fn parse_geometry(text: &str, default: Geometry) -> Result<Geometry, CatalogueError> {
    let parse = || -> Option<Geometry> {
        let (blocks, rest) = text.split_once('x')?;
        let (bytes, unit) = match rest.split_once('/') {
            Some((bytes, unit)) => (bytes, Some(unit.parse().ok()?)),
            None => (rest, None),
        };
        let (blocks, bytes): (usize, usize) = (blocks.parse().ok()?, bytes.parse().ok()?);
        let unit = unit.unwrap_or(default.write_bytes);
        let size_bytes = blocks.checked_mul(bytes)?;
        let units = Geometry { read_bytes: unit, write_bytes: unit, atomic_bytes: unit, ..default };
        Some(Geometry { size_bytes, erase_bytes: bytes, ..units })
    };
    let refused = CatalogueError::Refused;
    let geometry = parse().ok_or_else(|| {
        refused(format!(
            "{text:?} is no geometry: write BLOCKSxBYTES or BLOCKSxBYTES/UNIT, for example 32x256/16"
        ))
    })?;
    let valid = geometry.validate();
    valid.map_err(|error| refused(format!("the geometry {text} is impossible: {error}")))?;
    // A device and its changed copy are in memory.
    let bytes = 2 * geometry.size_bytes as u64;
    if let Some(available) = available_bytes().filter(|available| bytes > *available) {
        return Err(refused(format!(
            "the geometry {text} needs {} MiB of memory, {} MiB are available",
            bytes >> 20,
            available >> 20
        )));
    }
    Ok(geometry)
}
