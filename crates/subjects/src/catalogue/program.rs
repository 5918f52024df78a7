//! `fuse:COMMAND`: what a program serves through FUSE.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fathom_block::BlockBacked;
use fathom_core::Testbed;
use fathom_model::{Config, Feature};

use super::profile::{adapt, read_profile};
use super::{
    Asked, CatalogueError, Disk, Entry, Family, Mutants, Need, Offers, Operations, Purpose, Row,
};
use crate::FuseSubject;
use crate::dir::Environment;
use crate::sys::View;

const PREFIX: &str = "fuse:";

/// `fuse:COMMAND`
pub(super) struct Programs;

#[derive(Clone)]
struct Program(String);

fn offers() -> Offers {
    Offers {
        operations: Operations::All,
        restore_methods: Vec::new(),
        capabilities: BTreeSet::new(),
        disk: Disk::None("where the program keeps its data is its own business"),
        checker: None,
        promises: false,
        space: false,
        network: false,
        mutants: Mutants::None,
    }
}

impl Family for Programs {
    fn rows(&self) -> Vec<Row> {
        vec![Row {
            name: "fuse:COMMAND".to_owned(),
            about: "what a program serves on {mnt}".to_owned(),
            offers: offers(),
            needs: vec![Need::Root, Need::Fuse],
        }]
    }

    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError> {
        match text.strip_prefix(PREFIX) {
            Some(command) if command.trim().is_empty() => Err(CatalogueError::Refused(
                "fuse needs a command: write 'fuse:COMMAND ARGS {mnt}'".to_owned(),
            )),
            Some(command) => Ok(Some(Arc::new(Program(command.to_owned())))),
            None if text == "fuse" => self.parse(PREFIX),
            None => Ok(None),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

impl Program {
    /// Starts the program only to ask.
    fn environment(&self) -> Result<Environment, CatalogueError> {
        super::on_own_thread(|| Ok(FuseSubject::new(&self.0, View::default())?.environment()?))
    }
}

impl Entry for Program {
    fn offers(&self) -> Offers {
        offers()
    }

    fn with(&self, _asked: &Asked<'_>) -> Result<Arc<dyn Entry>, CatalogueError> {
        Ok(Arc::new(self.clone()))
    }

    fn profile(&self) -> Result<String, CatalogueError> {
        Ok(self.environment()?.profile.to_owned())
    }

    fn reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        let mut config = Config { quirks: read_profile(profile)?, ..Config::default() };
        adapt(&mut config, &self.environment()?);
        // The daemon lives in a process namespace of its own, in which it cannot look its callers up.
        config.quirks.other_groups_unknown = true;
        Ok(config)
    }

    fn probe(
        &self,
        reference: &mut Config,
        required: &[Feature],
    ) -> Result<Vec<String>, CatalogueError> {
        let quirks = &mut reference.quirks;
        super::on_own_thread(|| {
            Ok(FuseSubject::new(&self.0, View::default())?.probe(quirks, required)?)
        })
    }

    fn testbed(&self, _reference: &Config, view: View) -> Result<Box<dyn Testbed>, CatalogueError> {
        Ok(Box::new(FuseSubject::new(&self.0, view)?))
    }

    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        Err(super::not_offered(self, Purpose::Crash))
    }
}
