//! The wiring: from what was typed to something that executes operations.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use fathom_core::HarnessFault;
use fathom_core::Territory;
use fathom_engine::Restart;
use fathom_model::{Config, Model, Mutant, Quirks};
use fathom_subjects::fuse::ReffsSubject;
use fathom_subjects::sys::View;
use fathom_subjects::{DirSubject, KernelSubject, Recipe};

use crate::near::did_you_mean;

/// What was typed as SUBJECT. Shows itself as it can be typed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    /// `dir:PATH`
    Dir(PathBuf),
    /// `model`, `model:MUTANT`
    Model(Option<Mutant>),
    /// `reffs`, `reffs:MUTANT`
    Reffs(Option<Mutant>),
    /// A kernel file system, by the name of its recipe.
    Kernel(Box<Recipe>),
}

impl FromStr for Spec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Spec> {
        if let Some(recipe) = Recipe::named(text) {
            return Ok(Spec::Kernel(Box::new(recipe)));
        }
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        match (name, rest) {
            ("dir", Some(path)) if !path.is_empty() => Ok(Spec::Dir(PathBuf::from(path))),
            ("dir", _) => bail!("dir needs a directory: write dir:PATH"),
            ("model", mutant) => Ok(Spec::Model(mutant.map(parse_mutant).transpose()?)),
            ("reffs", mutant) => Ok(Spec::Reffs(mutant.map(parse_mutant).transpose()?)),
            _ => bail!("unknown subject {text:?}: the known ones are {}", known_names().join(", ")),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Dir(path) => write!(f, "dir:{}", path.display()),
            Spec::Model(None) => f.write_str("model"),
            Spec::Model(Some(mutant)) => write!(f, "model:{}", mutant.name()),
            Spec::Reffs(None) => f.write_str("reffs"),
            Spec::Reffs(Some(mutant)) => write!(f, "reffs:{}", mutant.name()),
            Spec::Kernel(recipe) => f.write_str(&recipe.name),
        }
    }
}

/// Every subject as it can be typed.
pub(crate) fn known_names() -> Vec<String> {
    let mut names = ["dir:PATH", "model", "reffs"].map(str::to_owned).to_vec();
    names.extend(Recipe::all().into_iter().map(|recipe| recipe.name));
    names
}

/// The mutant of this name.
pub(crate) fn parse_mutant(name: &str) -> Result<Mutant> {
    let known = || Mutant::ALL.iter().map(|mutant| mutant.name());
    match Mutant::ALL.iter().find(|mutant| mutant.name() == name) {
        Some(mutant) => Ok(*mutant),
        None => bail!(
            "unknown mutant {name:?}{}; `fathom list mutants` shows all",
            did_you_mean(name, known())
        ),
    }
}

impl Spec {
    /// The same subject with a bug switched on.
    pub(crate) fn with_mutant(self, mutant: Mutant) -> Result<Spec> {
        match self {
            Spec::Model(_) => Ok(Spec::Model(Some(mutant))),
            Spec::Reffs(_) => Ok(Spec::Reffs(Some(mutant))),
            other => bail!("{other} has no mutants: only model and reffs have"),
        }
    }

    /// The profile that fits the subject.
    pub(crate) fn profile(&self) -> Result<String> {
        Ok(match self {
            Spec::Dir(path) => fathom_subjects::dir::detect_profile(path)?.to_owned(),
            Spec::Model(_) => "model".to_owned(),
            Spec::Reffs(_) => "reffs".to_owned(),
            Spec::Kernel(recipe) => recipe.profile.clone(),
        })
    }

    /// The reference as it must be set up to behave like the subject: who calls, the mode of the
    /// root, the settings of the machine.
    pub(crate) fn reference(&self, quirks: Quirks) -> Result<Config> {
        let mut config = Config { quirks, ..Config::default() };
        match self {
            Spec::Model(_) => {}
            Spec::Reffs(_) | Spec::Kernel(_) => read_protections(&mut config.quirks),
            Spec::Dir(path) => {
                let subject = DirSubject::create(path, View::default())?;
                let environment = subject.environment()?;
                config.uid = environment.identity.uid;
                config.gid = environment.root_gid;
                config.groups = environment.identity.groups.clone();
                config.root_mode = environment.root_mode;
                config.umask = environment.umask;
                config.quirks.nodev = environment.nodev;
                config.quirks.noexec = environment.noexec;
                read_protections(&mut config.quirks);
            }
        }
        Ok(config)
    }

    /// Refuses to run what another user recorded: owners and permissions would all be different.
    pub(crate) fn check_caller(&self, reference: &Config) -> Result<()> {
        if let Spec::Dir(path) = self {
            let now = self.reference(Quirks::default())?;
            if (now.uid, now.gid) != (reference.uid, reference.gid) {
                bail!(
                    "the trace was recorded as user {} group {}, in {} you are user {} group {}: \
                     run it as that user",
                    reference.uid,
                    reference.gid,
                    path.display(),
                    now.uid,
                    now.gid
                );
            }
        }
        Ok(())
    }

    /// Makes the subject; it stays on the thread that makes it. `reference` is how the model that it
    /// contains, if any, is set up.
    pub(crate) fn build(&self, reference: &Config, times: bool) -> Result<Box<dyn Territory>> {
        let view = View { times, ..View::default() };
        let name = self.to_string();
        Ok(match self {
            Spec::Dir(path) => {
                let subject = DirSubject::create(path, view)?;
                Box::new(Restart::new(name, subject, |subject| Ok(subject.reset()?)))
            }
            Spec::Kernel(recipe) => {
                let subject = KernelSubject::new((**recipe).clone(), view)?;
                Box::new(Restart::new(name, subject, |subject| Ok(subject.reset()?)))
            }
            Spec::Model(mutant) => {
                let config = Config { mutant: *mutant, ..reference.clone() };
                let model = Model::new(config.clone())?;
                Box::new(Restart::new(name, model, move |model| {
                    let fault = |error| HarnessFault::new("making the model", error);
                    *model = Model::new(config.clone()).map_err(fault)?;
                    Ok(())
                }))
            }
            Spec::Reffs(mutant) => {
                let config = Config { mutant: *mutant, ..reference.clone() };
                let subject = ReffsSubject::new(config, view)?;
                Box::new(Restart::new(name, subject, ReffsSubject::reset))
            }
        })
    }
}

/// What `/proc/sys/fs` says; a kernel without a setting protects nothing.
fn read_protections(quirks: &mut Quirks) {
    let protected = |what: &str| -> u8 {
        std::fs::read_to_string(format!("/proc/sys/fs/protected_{what}"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    };
    quirks.protected_hardlinks = protected("hardlinks") > 0;
    quirks.protected_symlinks = protected("symlinks") > 0;
    quirks.protected_fifos = protected("fifos");
    quirks.protected_regular = protected("regular");
}

/// The quirks of a profile: a name, or a file.
pub(crate) fn read_profile(name: &str) -> Result<Quirks> {
    if let Some(quirks) = Quirks::profile(name) {
        return Ok(quirks);
    }
    let path = std::path::Path::new(name);
    if !path.is_file() {
        bail!(
            "unknown profile {name:?}{}; `fathom list profiles` shows all, a file is fine too",
            did_you_mean(name, Quirks::profile_names())
        );
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    Quirks::parse(&text).map_err(|error| anyhow::anyhow!("{name}: {error}"))
}
