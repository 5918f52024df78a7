//! `test:DEATH-after-N`: the reference in a process that dies. Not listed: it exists to test what
//! becomes of a campaign whose process dies.

use std::fmt;
use std::sync::Arc;

use fathom_block::BlockBacked;
use fathom_core::Testbed;
use fathom_model::{Config, ModelSubject};

use super::profile::read_profile;
use super::reference::offers_of_the_model;
use super::{Asked, CatalogueError, Entry, Family, Offers, Purpose, Row};
use crate::supervise::fault::DyingSubject;
use crate::sys::View;

/// Every `test:` subject.
pub(super) struct DyingReferences;

/// One of them: the name without `test:`.
#[derive(Clone)]
struct DyingReference(String);

impl Family for DyingReferences {
    fn rows(&self) -> Vec<Row> {
        Vec::new()
    }

    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError> {
        let name = text.strip_prefix("test:").filter(|name| DyingSubject::parse(name).is_some());
        Ok(name.map(|name| Arc::new(DyingReference(name.to_owned())) as Arc<dyn Entry>))
    }
}

impl fmt::Display for DyingReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "test:{}", self.0)
    }
}

impl Entry for DyingReference {
    fn offers(&self) -> Offers {
        offers_of_the_model()
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
        Ok(Box::new(DyingSubject::new(&self.0, inner).expect("the name was parsed before")))
    }

    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        Err(super::not_offered(self, Purpose::Crash))
    }
}
