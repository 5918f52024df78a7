//! From a name to a library file system.

use anyhow::{Context, Result, bail};
use fathom_block::{BlockBacked, Geometry};
use fathom_designs::catalog::Spec;
use fathom_subjects::library::{self, Known, faulty};

use crate::command::design::with_hint;
use crate::near::did_you_mean;
use crate::sizes;

/// What the names of designs begin with.
const DESIGN: &str = "design:";

/// Whether the subject is a design.
pub(crate) fn is_design(name: &str) -> bool {
    name.starts_with(DESIGN)
}

/// The library file system of that name, perhaps with a bug switched on.
pub(crate) fn open(
    name: &str,
    geometry: Option<&str>,
    mutant: Option<&str>,
) -> Result<Box<dyn BlockBacked>> {
    if geometry.is_some() && is_design(name) {
        bail!("{name} has a geometry of its own: leave --geometry out");
    }
    open_on(name, mutant, |known| match geometry {
        None => Ok(None),
        Some(text) => Ok(Some(parse_geometry(text, known.open(None)?.geometry())?)),
    })
}

fn open_on(
    name: &str,
    mutant: Option<&str>,
    geometry: impl FnOnce(&Known) -> Result<Option<Geometry>>,
) -> Result<Box<dyn BlockBacked>> {
    // A recorded name carries its mutant.
    let (name, mutant) = match name.split_once('+') {
        Some((name, mutant)) => (name, Some(mutant)),
        None => (name, mutant),
    };
    if let Some(design) = name.strip_prefix(DESIGN) {
        return with_mutant(open_design(name, design)?, mutant);
    }
    let all = library::all();
    let Some(known) = all.iter().find(|known| known.name == name) else {
        let names: Vec<&str> = all.iter().map(|known| known.name).collect();
        let hint = did_you_mean(name, names.iter().copied());
        bail!(
            "no library file system is called {name:?}: there are {}, and designs as design:journal{hint}",
            names.join(", ")
        );
    };
    with_mutant(known.open(geometry(known)?)?, mutant)
}

/// A design of `fathom design`: `design:journal`, `design:journal:no-barrier`.
fn open_design(name: &str, design: &str) -> Result<Box<dyn BlockBacked>> {
    Spec::named(design).backed(name).map_err(with_hint)
}

fn with_mutant(
    subject: Box<dyn BlockBacked>,
    mutant: Option<&str>,
) -> Result<Box<dyn BlockBacked>> {
    let Some(mutant) = mutant else { return Ok(subject) };
    let mut known = faulty::all().iter().chain([&faulty::CORRECT]);
    match known.find(|known| known.name == mutant) {
        Some(mutant) => Ok(faulty::wrap(subject, mutant)),
        None => {
            let hint = did_you_mean(mutant, faulty::all().iter().map(|mutant| mutant.name));
            bail!("no crash mutant is called {mutant:?}: see `fathom list crash-mutants`{hint}")
        }
    }
}

/// The library file system of a recorded finding, on its recorded geometry.
pub(super) fn reopen(name: &str, geometry: Geometry) -> Result<Box<dyn BlockBacked>> {
    open_on(name, None, |_| Ok(Some(geometry)))
}

/// `BLOCKSxBYTES` or `BLOCKSxBYTES/UNIT`.
fn parse_geometry(text: &str, default: Geometry) -> Result<Geometry> {
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
    let Some(geometry) = parse() else {
        bail!(
            "{text:?} is no geometry: write BLOCKSxBYTES or BLOCKSxBYTES/UNIT, for example 32x256/16"
        );
    };
    geometry.validate().with_context(|| format!("the geometry {text} is impossible"))?;
    // A device and its changed copy.
    sizes::must_fit(&format!("the geometry {text}"), 2 * geometry.size_bytes as u64)?;
    Ok(geometry)
}
