//! `dir:PATH`: any directory.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fathom_block::BlockBacked;
use fathom_core::Testbed;
use fathom_model::{Config, Feature, Quirks};

use super::profile::{adapt, read_profile};
use super::{
    Asked, CatalogueError, Disk, Entry, Family, Mutants, Offers, Operations, Purpose, Row,
};
use crate::DirSubject;
use crate::dir::{Environment, detect_profile};
use crate::kernel::Measured;
use crate::sys::View;

const PREFIX: &str = "dir:";

/// `dir:PATH`
pub(super) struct Directories;

#[derive(Clone)]
struct Directory(PathBuf);

fn offers() -> Offers {
    Offers {
        operations: Operations::All,
        restore_methods: Vec::new(),
        capabilities: BTreeSet::new(),
        disk: Disk::None("what lies under a directory belongs to somebody else"),
        checker: None,
        promises: false,
        space: false,
        network: false,
        mutants: Mutants::None,
    }
}

impl Family for Directories {
    fn rows(&self) -> Vec<Row> {
        let (name, about) = ("dir:PATH".to_owned(), "any directory".to_owned());
        vec![Row { name, about, offers: offers(), needs: Vec::new() }]
    }

    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError> {
        match text.strip_prefix(PREFIX) {
            Some("") => {
                Err(CatalogueError::Refused("dir needs a directory: write dir:PATH".to_owned()))
            }
            Some(path) => Ok(Some(Arc::new(Directory(PathBuf::from(path))))),
            None if text == "dir" => self.parse(PREFIX),
            None => Ok(None),
        }
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0.display())
    }
}

impl Directory {
    fn environment(&self) -> Result<Environment, CatalogueError> {
        super::on_own_thread(|| Ok(DirSubject::create(&self.0, View::default())?.environment()?))
    }
}

impl Entry for Directory {
    fn offers(&self) -> Offers {
        offers()
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.0)
    }

    fn with(&self, _asked: &Asked<'_>) -> Result<Arc<dyn Entry>, CatalogueError> {
        Ok(Arc::new(self.clone()))
    }

    fn profile(&self) -> Result<String, CatalogueError> {
        Ok(detect_profile(&self.0)?.to_owned())
    }

    fn planned_reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        Ok(Config { quirks: read_profile(profile)?, ..Config::default() })
    }

    fn reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        let mut config = self.planned_reference(profile)?;
        let environment = self.environment()?;
        if Quirks::profile(profile).is_some()
            && let Some(measured) = Measured::of_directory(&self.0)?
        {
            measured.apply(&mut config);
        }
        adapt(&mut config, &environment);
        Ok(config)
    }

    /// A directory of a file system that has a profile of its own lacks nothing.
    fn probe(
        &self,
        reference: &mut Config,
        required: &[Feature],
    ) -> Result<Vec<String>, CatalogueError> {
        if !matches!(detect_profile(&self.0)?, "generic" | "fuse") {
            return Ok(Vec::new());
        }
        let quirks = &mut reference.quirks;
        super::on_own_thread(|| {
            Ok(DirSubject::create(&self.0, View::default())?.probe(quirks, required)?)
        })
    }

    fn check_caller(&self, reference: &Config) -> Result<(), CatalogueError> {
        let mut now = Config::default();
        adapt(&mut now, &self.environment()?);
        if (now.uid, now.gid) == (reference.uid, reference.gid) {
            return Ok(());
        }
        Err(CatalogueError::Refused(format!(
            "the trace was recorded as user {} group {}, in {} you are user {} group {}: run it as \
             that user",
            reference.uid,
            reference.gid,
            self.0.display(),
            now.uid,
            now.gid
        )))
    }

    fn testbed(&self, _reference: &Config, view: View) -> Result<Box<dyn Testbed>, CatalogueError> {
        Ok(Box::new(DirSubject::create(&self.0, view)?))
    }

    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        Err(super::not_offered(self, Purpose::Crash))
    }
}
