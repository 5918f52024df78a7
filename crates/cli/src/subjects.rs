//! The catalogue of subjects with the designs in it, and what commands use of an entry.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Error, Result};
use fathom_block::BlockBacked;
use fathom_core::Testbed;
use fathom_designs::catalog::{self, Spec as Design};
use fathom_model::Config;
use fathom_subjects::catalogue::{
    self, Asked, Catalogue, CatalogueError, Disk, Entry, Family, Mutants, Offers, Operations,
    Purpose, Row,
};
use fathom_subjects::sys::View;

use crate::command::design::with_hint;

pub(crate) use fathom_subjects::catalogue::parse_mutant;

/// Every subject that this program knows.
pub(crate) fn catalogue() -> Catalogue {
    Catalogue::new().with(Designs)
}

/// An entry of the catalogue, as it was typed.
#[derive(Clone, Debug)]
pub(crate) struct Spec(catalogue::Spec);

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Spec> {
        Ok(Spec(catalogue().parse(text)?))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Deref for Spec {
    type Target = catalogue::Spec;

    fn deref(&self) -> &catalogue::Spec {
        &self.0
    }
}

impl Spec {
    /// The same subject with what options ask of it.
    pub(crate) fn with(&self, asked: &Asked<'_>) -> Result<Spec> {
        Ok(Spec(self.0.with(asked)?))
    }

    /// Makes the subject; it stays on the thread that makes it.
    pub(crate) fn build(&self, reference: &Config) -> Result<Box<dyn Testbed>> {
        Ok(self.0.testbed(reference, View { times: true, ..View::default() })?)
    }
}

/// What the names of designs begin with.
const PREFIX: &str = "design:";

/// `design:journal`, `design:journal:no-barrier`, `design:journal+MUTANT`: the designs that are file
/// systems, on a disk. Their crate does not know the subjects, so they join the catalogue here.
struct Designs;

#[derive(Clone)]
struct DesignEntry {
    /// With its switches.
    name: String,
    mutant: Option<String>,
}

fn offers() -> Offers {
    Offers {
        operations: Operations::None(
            "a byte of a design's file stands for a block, so the reference counts otherwise; \
             `fathom design` explores its states",
        ),
        restore_methods: Vec::new(),
        capabilities: Default::default(),
        disk: Disk::Recorded,
        checker: None,
        promises: true,
        space: false,
        network: false,
        mutants: Mutants::Crash,
    }
}

impl Family for Designs {
    fn rows(&self) -> Vec<Row> {
        let designs = catalog::DESIGNS.iter();
        let volumes = designs.filter(|(name, _)| Design::named(name).backed(name).is_ok());
        let row = |(name, about): &(&str, &str)| Row {
            name: format!("{PREFIX}{name}"),
            about: format!("a design: {about}"),
            offers: offers(),
            needs: Vec::new(),
        };
        volumes.map(row).collect()
    }

    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError> {
        let Some(text) = text.strip_prefix(PREFIX) else { return Ok(None) };
        let (name, mutant) = match text.split_once('+') {
            Some((name, mutant)) => (name, Some(mutant.to_owned())),
            None => (text, None),
        };
        let entry = DesignEntry { name: name.to_owned(), mutant };
        entry.block_backed()?;
        Ok(Some(Arc::new(entry)))
    }
}

impl fmt::Display for DesignEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.name)?;
        self.mutant.as_ref().map_or(Ok(()), |mutant| write!(f, "+{mutant}"))
    }
}

impl DesignEntry {
    fn not_offered(&self) -> CatalogueError {
        CatalogueError::NotOffered {
            subject: self.to_string(),
            command: Purpose::Check.name(),
            needs: offers().lacks(Purpose::Check).unwrap_or_default(),
        }
    }
}

impl Entry for DesignEntry {
    fn offers(&self) -> Offers {
        offers()
    }

    fn with(&self, asked: &Asked<'_>) -> Result<Arc<dyn Entry>, CatalogueError> {
        if asked.geometry.is_some() {
            return Err(CatalogueError::Refused(format!(
                "{self} has a geometry of its own: leave --geometry out"
            )));
        }
        let mutant = asked.mutant.map(str::to_owned).or_else(|| self.mutant.clone());
        Ok(Arc::new(DesignEntry { mutant, ..self.clone() }))
    }

    fn profile(&self) -> Result<String, CatalogueError> {
        Err(self.not_offered())
    }

    fn reference(&self, _profile: &str) -> Result<Config, CatalogueError> {
        Err(self.not_offered())
    }

    fn testbed(
        &self,
        _reference: &Config,
        _view: View,
    ) -> Result<Box<dyn Testbed>, CatalogueError> {
        Err(self.not_offered())
    }

    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        let refused = |error| CatalogueError::Refused(with_hint(error).to_string());
        let full_name = format!("{PREFIX}{}", self.name);
        let backed = Design::named(&self.name).backed(&full_name).map_err(refused)?;
        match &self.mutant {
            None => Ok(backed),
            Some(mutant) => catalogue::with_crash_mutant(backed, mutant),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designs_are_in_the_catalogue() {
        let names: Vec<String> = catalogue().rows().into_iter().map(|row| row.name).collect();
        assert!(names.contains(&"design:journal".to_owned()), "{names:?}");
        assert!(!names.contains(&"design:philosophers".to_owned()), "not a file system");
        for name in ["design:journal", "design:log", "design:journal+drop-flush"] {
            let spec: Spec = name.parse().unwrap();
            assert_eq!(spec.to_string(), name);
            assert_eq!(spec.block_backed().unwrap().name(), name);
            let error = spec.profile().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} is known, but `fathom check`")), "{error}");
        }
        let geometry = Asked { geometry: Some("32x256"), ..Asked::default() };
        let refused = "design:log".parse::<Spec>().unwrap().with(&geometry).unwrap_err();
        assert!(refused.to_string().contains("leave --geometry out"));
        let wrong = "design:jurnal".parse::<Spec>().unwrap_err().to_string();
        assert!(wrong.contains("did you mean journal?"), "{wrong}");
    }
}
