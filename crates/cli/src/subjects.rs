//! The wiring: from what was typed to something that executes operations.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use fathom_core::Testbed;
use fathom_model::{Config, ModelSubject, Mutant, Quirks};
use fathom_subjects::dir::Environment;
use fathom_subjects::fuse::ReffsSubject;
use fathom_subjects::kernel::Options;
use fathom_subjects::supervise::fault::DyingSubject;
use fathom_subjects::sys::View;
use fathom_subjects::{DirSubject, FuseSubject, KernelSubject, Recipe};

use crate::near::did_you_mean;

/// What was typed as SUBJECT. Shows itself as it can be typed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    /// `dir:PATH`
    Dir(PathBuf),
    /// `fuse:COMMAND`
    Fuse(String),
    /// `model`, `model:MUTANT`
    Model(Option<Mutant>),
    /// `reffs`, `reffs:MUTANT`
    Reffs(Option<Mutant>),
    /// A kernel file system.
    Kernel(Box<Kernel>),
    /// `test:DEATH-after-N`: see [`DyingSubject`]. Not listed: it exists to test the tester.
    Test(String),
}

/// A recipe, and what was asked for beyond it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    recipe: Recipe,
    options: Options,
    /// The user's file with the recipe.
    file: Option<PathBuf>,
}

/// What may follow the name of a kernel file system, as on the command line of `check`: so that the
/// name in a trace says everything.
const PROFILE: &str = " --profile=";
const SPACE: &str = " --space=";
const MKFS_OPTS: &str = " --mkfs-opts=";
const MOUNT_OPTS: &str = " --mount-opts=";

impl FromStr for Spec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Spec> {
        if let Some(kernel) = Kernel::parse(text)? {
            return Ok(Spec::Kernel(Box::new(kernel)));
        }
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        match (name, rest) {
            ("dir", Some(path)) if !path.is_empty() => Ok(Spec::Dir(PathBuf::from(path))),
            ("dir", _) => bail!("dir needs a directory: write dir:PATH"),
            ("fuse", Some(command)) if !command.trim().is_empty() => {
                Ok(Spec::Fuse(command.to_owned()))
            }
            ("fuse", _) => bail!("fuse needs a command: write 'fuse:COMMAND ARGS {{mnt}}'"),
            ("test", Some(name)) if DyingSubject::parse(name).is_some() => {
                Ok(Spec::Test(name.to_owned()))
            }
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
            Spec::Fuse(command) => write!(f, "fuse:{command}"),
            Spec::Model(None) => f.write_str("model"),
            Spec::Model(Some(mutant)) => write!(f, "model:{}", mutant.name()),
            Spec::Reffs(None) => f.write_str("reffs"),
            Spec::Reffs(Some(mutant)) => write!(f, "reffs:{}", mutant.name()),
            Spec::Kernel(kernel) => kernel.fmt(f),
            Spec::Test(name) => write!(f, "test:{name}"),
        }
    }
}

impl Kernel {
    /// `None` if it begins with no name of a recipe.
    fn parse(text: &str) -> Result<Option<Kernel>> {
        let (text, space) = split_off(text, SPACE);
        let (text, mount) = split_off(text, MOUNT_OPTS);
        let (text, mkfs) = split_off(text, MKFS_OPTS);
        let (name, file) = split_off(text, PROFILE);
        let Some(recipe) = Recipe::named(name) else { return Ok(None) };
        let plain = Kernel { recipe, options: Options::default(), file: None };
        let spec = Spec::Kernel(Box::new(plain));
        let spec = file.map_or(Ok(spec.clone()), |file| spec.with_profile(file))?;
        let space = space.map(|bytes| bytes.parse().context("a number of bytes")).transpose()?;
        match spec.with_options(mkfs, mount)?.with_space(space)? {
            Spec::Kernel(kernel) => Ok(Some(*kernel)),
            _ => unreachable!("options do not change the kind of a subject"),
        }
    }
}

fn split_off<'a>(text: &'a str, marker: &str) -> (&'a str, Option<&'a str>) {
    text.split_once(marker).map_or((text, None), |(before, after)| (before, Some(after)))
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.recipe.name)?;
        if let Some(file) = &self.file {
            write!(f, "{PROFILE}{}", file.display())?;
        }
        if !self.options.format.is_empty() {
            write!(f, "{MKFS_OPTS}{}", self.options.format.join(" "))?;
        }
        if !self.options.mount.is_empty() {
            write!(f, "{MOUNT_OPTS}{}", self.options.mount.join(","))?;
        }
        if let Some(bytes) = self.options.space_bytes {
            write!(f, "{SPACE}{bytes}")?;
        }
        Ok(())
    }
}

/// Every subject as it can be typed.
pub(crate) fn known_names() -> Vec<String> {
    let mut names = ["dir:PATH", "fuse:COMMAND", "model", "reffs"].map(str::to_owned).to_vec();
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

    /// The same subject with more options for mkfs (words) and mount (with commas between them).
    pub(crate) fn with_options(self, mkfs: Option<&str>, mount: Option<&str>) -> Result<Spec> {
        if mkfs.or(mount).is_none() {
            return Ok(self);
        }
        let Spec::Kernel(mut kernel) = self else {
            bail!(
                "{self} is neither formatted nor mounted: --mkfs-opts and --mount-opts are for kernel file systems"
            );
        };
        let mkfs = mkfs.unwrap_or_default().split_whitespace().map(str::to_owned);
        let mount = mount.unwrap_or_default().split(',').filter(|option| !option.is_empty());
        kernel.options.format.extend(mkfs);
        kernel.options.mount.extend(mount.map(str::to_owned));
        kernel.recipe.clone().with(&kernel.options)?;
        Ok(Spec::Kernel(kernel))
    }

    /// The same subject with so little space.
    pub(crate) fn with_space(self, bytes: Option<u64>) -> Result<Spec> {
        match (self, bytes) {
            (spec, None) => Ok(spec),
            (Spec::Kernel(mut kernel), bytes) => {
                kernel.options.space_bytes = bytes;
                Ok(Spec::Kernel(kernel))
            }
            (other, _) => {
                bail!(
                    "{other} has no disk that could be filled: --space is for kernel file systems"
                )
            }
        }
    }

    /// The same subject as `--profile` says: a file that is a recipe replaces that of the subject,
    /// any other profile is left to [`read_profile`].
    pub(crate) fn with_profile(self, profile: &str) -> Result<Spec> {
        let Some(mut recipe) = read_recipe(profile)? else { return Ok(self) };
        let Spec::Kernel(mut kernel) = self else {
            bail!("{profile} is the recipe of a kernel file system, and {self} is none");
        };
        recipe.name = kernel.recipe.name;
        kernel.recipe = recipe;
        kernel.file = Some(PathBuf::from(profile));
        Ok(Spec::Kernel(kernel))
    }

    /// The profile that fits the subject.
    pub(crate) fn profile(&self) -> Result<String> {
        Ok(match self {
            Spec::Dir(path) => fathom_subjects::dir::detect_profile(path)?.to_owned(),
            Spec::Fuse(command) => {
                let profile = |subject: &FuseSubject| Ok(subject.environment()?.profile);
                with_daemon(command, profile)?.to_owned()
            }
            Spec::Model(_) | Spec::Test(_) => "model".to_owned(),
            Spec::Reffs(_) => "reffs".to_owned(),
            Spec::Kernel(kernel) => match &kernel.file {
                Some(file) => file.display().to_string(),
                None => kernel.recipe.profile.clone(),
            },
        })
    }

    /// The reference as it must be set up to behave like the subject: who calls, the mode of the
    /// root, the settings of the machine.
    pub(crate) fn reference(&self, quirks: Quirks) -> Result<Config> {
        let mut config = Config { quirks, ..Config::default() };
        match self {
            Spec::Model(_) | Spec::Test(_) => {}
            Spec::Reffs(_) => read_protections(&mut config.quirks),
            Spec::Kernel(kernel) => {
                read_protections(&mut config.quirks);
                config.block_bytes = kernel.recipe.block_bytes;
                // The root of an overlay; a directory in one (`dir:`) is in the upper layer alone.
                config.quirks.root_nlink_one |= kernel.recipe.layer.is_some();
            }
            Spec::Dir(path) => {
                let subject = DirSubject::create(path, View::default())?;
                adapt(&mut config, &subject.environment()?);
            }
            Spec::Fuse(command) => {
                adapt(&mut config, &with_daemon(command, |subject| Ok(subject.environment()?))?);
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
    pub(crate) fn build(&self, reference: &Config, times: bool) -> Result<Box<dyn Testbed>> {
        let view = View { times, ..View::default() };
        let with = |mutant: &Option<Mutant>| Config { mutant: *mutant, ..reference.clone() };
        Ok(match self {
            Spec::Dir(path) => Box::new(DirSubject::create(path, view)?),
            Spec::Fuse(command) => Box::new(FuseSubject::new(command, view)?),
            Spec::Model(mutant) => Box::new(ModelSubject::new(with(mutant))?),
            Spec::Reffs(mutant) => Box::new(ReffsSubject::new(with(mutant), view)?),
            Spec::Kernel(kernel) => {
                let name = kernel.to_string();
                let recipe = kernel.recipe.clone().with(&kernel.options)?;
                Box::new(KernelSubject::new(Recipe { name, ..recipe }, view)?)
            }
            Spec::Test(name) => {
                let inner = ModelSubject::new(reference.clone())?;
                Box::new(DyingSubject::new(name, inner).expect("parsed before"))
            }
        })
    }
}

/// Starts the program of a `fuse:` subject only to ask something. On a thread of its own, which is
/// then taken over.
fn with_daemon<T: Send>(
    command: &str,
    ask: impl FnOnce(&FuseSubject) -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&FuseSubject::new(command, View::default())?));
        asked.join().unwrap_or_else(|_| bail!("the harness panicked: see above"))
    })
}

/// Makes the reference behave like a directory with this environment.
fn adapt(config: &mut Config, environment: &Environment) {
    config.uid = environment.identity.uid;
    config.gid = environment.root_gid;
    config.groups = environment.identity.groups.clone();
    config.root_mode = environment.root_mode;
    config.umask = environment.umask;
    config.quirks.nodev = environment.nodev;
    config.quirks.noexec = environment.noexec;
    // Others use the same file system at the same time.
    config.quirks.statfs_slack_bytes = 0;
    read_protections(&mut config.quirks);
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
    let quirks = match read_recipe(name)? {
        None => read(name)?,
        Some(Recipe { quirks: Some(quirks), .. }) => quirks,
        Some(Recipe { profile, .. }) => return read_profile(&profile),
    };
    Quirks::parse(&quirks).map_err(|error| anyhow::anyhow!("{name}: {error}"))
}

fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))
}

/// The recipe in a file; `None` if it is no file, or one with quirks only.
fn read_recipe(file: &str) -> Result<Option<Recipe>> {
    if !std::path::Path::new(file).is_file() {
        return Ok(None);
    }
    let text = read(file)?;
    let is_recipe = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("fs_type"));
    let recipe = is_recipe.then(|| Recipe::parse(&text).with_context(|| file.to_owned()));
    recipe.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_typed_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mine.toml");
        let text = "name = \"x\"\nabout = \"mine\"\nfs_type = \"ext4\"\nimage_kib = 2048\n\
            [format]\ncommand = \"mkfs.ext4\"\npackage = \"e2fsprogs\"\n\
            [quirks]\n# because\nlink_max = 7\n";
        std::fs::write(&file, text).unwrap();
        let mine = format!("ext4 --profile={} --mkfs-opts=-b 1024", file.display());
        let names = [
            "model",
            "reffs:stale-hole",
            "dir:/tmp",
            "fuse:bindfs {state} {mnt} -o x=y:z",
            "ext4",
            "overlay:xfs",
            "ext4 --mkfs-opts=-O ^has_journal -b 1024 --mount-opts=data=journal,noatime",
            &mine,
        ];
        for name in names {
            assert_eq!(name.parse::<Spec>().unwrap().to_string(), name);
        }
        let spec: Spec = mine.parse().unwrap();
        let quirks = read_profile(&spec.profile().unwrap()).unwrap();
        assert_eq!(quirks.link_max, 7);
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        let refused = |spec: &str, mkfs, mount| {
            let spec: Spec = spec.parse().unwrap();
            spec.with_options(mkfs, mount).unwrap_err().to_string()
        };
        assert!(refused("tmpfs", Some("-q"), None).contains("not formatted"));
        assert!(refused("model", None, Some("x")).contains("neither formatted nor mounted"));
    }
}
