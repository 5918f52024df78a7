//! `test:DEATH-after-N`, `test:DEATH-on-OPERATION`: the reference (or littlefs, if the power is to fail)
//! in a process that dies. Not listed: it exists to test what becomes of a campaign whose process dies.

use std::fmt;
use std::sync::Arc;

use fathom_block::BlockBacked;
use fathom_core::Testbed;
use fathom_model::{Config, ModelSubject};

use super::profile::read_profile;
use super::reference::offers_of_the_model;
use super::{Asked, CatalogueError, Disk, Entry, Family, Offers, Purpose, Row};
use crate::library;
use crate::supervise::fault::{DyingLibrary, DyingSubject, Fate};
use crate::sys::View;

/// Every `test:` subject.
pub(super) struct DyingReferences;

/// One of them, as it was typed.
#[derive(Clone)]
struct DyingReference {
    name: String,
    fate: Fate,
}

impl Family for DyingReferences {
    fn rows(&self) -> Vec<Row> {
        Vec::new()
    }

    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError> {
        let fate = text.strip_prefix("test:").and_then(Fate::parse);
        let name = text.to_owned();
        Ok(fate.map(|fate| Arc::new(DyingReference { name, fate }) as Arc<dyn Entry>))
    }
}

impl fmt::Display for DyingReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Entry for DyingReference {
    fn offers(&self) -> Offers {
        Offers { disk: Disk::Recorded, promises: true, ..offers_of_the_model() }
    }

    fn with(&self, _asked: &Asked<'_>) -> Result<Arc<dyn Entry>, CatalogueError> {
        Ok(Arc::new(self.clone()))
    }

    fn profile(&self) -> Result<String, CatalogueError> {
        Ok("model".to_owned())
    }

    fn reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        Ok(Config { quirks: read_profile(profile)?, ..Config::default() })
    }

    fn testbed(&self, reference: &Config, _view: View) -> Result<Box<dyn Testbed>, CatalogueError> {
        let inner = ModelSubject::new(reference.clone())?;
        Ok(Box::new(DyingSubject::new(self.name.clone(), self.fate.clone(), inner)))
    }

    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        let library = library::all().into_iter().find(|known| known.name == "littlefs");
        let library = library.ok_or_else(|| super::not_offered(self, Purpose::Crash))?;
        let (name, fate) = (self.name.clone(), self.fate.clone());
        Ok(Box::new(DyingLibrary::new(name, fate, library.open(None)?)))
    }
}
