//! The kernel's file systems, each by the name of its recipe, with what was asked for beyond it:
//! `ext4 --mkfs-opts=-b 1024`, so that the name in a trace says everything.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use fathom_block::backed::Claim;
use fathom_block::{BlockBacked, DiskFileSystem, Geometry};
use fathom_core::{Capability, RestoreMethod, Testbed};
use fathom_model::{Config, Quirks};

use super::profile::{read_profile, read_protections, read_recipe};
use super::{
    Asked, CatalogueError, Disk, Entry, Family, Mutants, Need, Offers, Operations, Purpose, Row,
    split_off,
};
use crate::kernel::Options;
use crate::kernel::disks::{CrashProfile, KernelDisks, Lie, LyingDisks};
use crate::sys::View;
use crate::{KernelSubject, Recipe};

const PROFILE: &str = " --profile=";
const SPACE: &str = " --space=";
const MKFS_OPTS: &str = " --mkfs-opts=";
const MOUNT_OPTS: &str = " --mount-opts=";
const DISK: &str = " --disk=";
const PROMISES: &str = " --promises=";

/// The oldest kernel with detached mounts.
const DETACHED_MOUNTS: Need = Need::Kernel((5, 2), "fsmount");

/// The file systems of the recipes.
pub(super) struct KernelFileSystems;

/// A recipe, and what was asked for beyond it.
#[derive(Clone)]
struct Kernel {
    recipe: Recipe,
    options: Options,
    /// The user's file with the recipe.
    file: Option<PathBuf>,
    /// The profile of quirks that somebody named instead of the recipe's.
    quirks: Option<String>,
    /// What it is held to, if not to what it promises itself.
    promises: Option<String>,
    /// A lie of its disk.
    lie: Option<String>,
}

fn offers(recipe: &Recipe) -> Offers {
    let has_disk = recipe.format.is_some();
    let mut capabilities = BTreeSet::from([Capability::Devices, Capability::Identity]);
    if has_disk || recipe.layer.is_some() {
        capabilities.insert(Capability::Remount);
    }
    let mut restore_methods = Vec::new();
    restore_methods.extend((has_disk && recipe.freezes).then_some(RestoreMethod::Freeze));
    restore_methods.extend(has_disk.then_some(RestoreMethod::Remount));
    Offers {
        operations: Operations::All,
        restore_methods,
        capabilities,
        disk: match has_disk {
            true if recipe.layer.is_none() => Disk::Recorded,
            true => Disk::Unrecorded,
            false => Disk::None("it keeps everything in memory"),
        },
        checker: recipe.checker.as_ref().map(|checker| checker.program.text()),
        promises: has_disk,
        space: true,
        network: false,
        mutants: if has_disk { Mutants::Crash } else { Mutants::None },
    }
}

fn needs(recipe: &Recipe) -> Vec<Need> {
    let mut needs = vec![Need::Root, DETACHED_MOUNTS];
    needs.extend(recipe.fs_types().iter().map(|fs_type| Need::KernelType((*fs_type).to_owned())));
    let layer = recipe.layer.as_ref();
    let detached = "overlay on detached mounts";
    needs.extend(layer.map(|layer| Need::KernelOfHost(layer.kernel_min, detached)));
    needs.extend(recipe.format.as_ref().map(|format| Need::Program {
        program: format.command[0].clone(),
        package: format.package.clone(),
    }));
    needs
}

impl Family for KernelFileSystems {
    fn rows(&self) -> Vec<Row> {
        let row = |recipe: Recipe| Row {
            about: match (recipe.image_bytes >> 20, &recipe.risk) {
                (_, Some(risk)) => format!("{}; in a guest or --on-host: {risk}", recipe.about),
                (0, None) => recipe.about.clone(),
                (mib, None) => format!("{}, {mib} MiB in memory", recipe.about),
            },
            offers: offers(&recipe),
            needs: needs(&recipe),
            name: recipe.name,
        };
        Recipe::all().into_iter().map(row).collect()
    }

    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError> {
        let (text, promises) = split_off(text, PROMISES);
        let (text, disk) = split_off(text, DISK);
        let (text, space) = split_off(text, SPACE);
        let (text, mount) = split_off(text, MOUNT_OPTS);
        let (text, mkfs) = split_off(text, MKFS_OPTS);
        let (name, profile) = split_off(text, PROFILE);
        let (name, mutant) = split_off(name, "+");
        let Some(recipe) = Recipe::named(name) else { return Ok(None) };
        let number = |bytes: &str| {
            let wrong = |_| CatalogueError::Refused(format!("{bytes:?} is no number of bytes"));
            bytes.parse::<u64>().map_err(wrong)
        };
        let space_bytes = space.map(number).transpose()?;
        let disk_bytes = disk.map(number).transpose()?;
        let options = Options::default();
        let plain = Kernel { recipe, options, file: None, quirks: None, promises: None, lie: None };
        let asked = Asked {
            profile,
            quirks: profile,
            mkfs,
            mount,
            space_bytes,
            disk_bytes,
            promises,
            mutant,
            ..Asked::default()
        };
        plain.with(&asked).map(Some)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.recipe.name)?;
        if let Some(lie) = &self.lie {
            write!(f, "+{lie}")?;
        }
        if let Some(profile) = self.named_profile() {
            write!(f, "{PROFILE}{profile}")?;
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
        if let Some(bytes) = self.options.disk_bytes {
            write!(f, "{DISK}{bytes}")?;
        }
        if let Some(promises) = &self.promises {
            write!(f, "{PROMISES}{promises}")?;
        }
        Ok(())
    }
}

impl Kernel {
    /// The profile that was asked for: a file with a recipe, or quirks.
    fn named_profile(&self) -> Option<String> {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        file.or_else(|| self.quirks.clone())
    }

    /// What it is held to after a power failure, and the recipe of the disk on which that is tested: a small
    /// one, unless the user says how it is made.
    fn crash_profile(&self) -> Result<(CrashProfile, Recipe), CatalogueError> {
        let mut profile = match &self.promises {
            Some(promises) => read_promises(promises)?,
            None => CrashProfile::of(&self.recipe.name),
        };
        let recipe = match (&self.file, &self.promises) {
            (None, _) => profile.adapt(self.recipe.clone()),
            (Some(_), None) => self.recipe.clone(),
            (Some(_), Some(_)) => profile.add_options(self.recipe.clone()),
        };
        if let Some(named) = self.named_profile() {
            profile.guarantee.reference =
                Some(Claim { is: reference_text(&named)?, cite: format!("--profile {named}") });
        }
        Ok((profile, recipe))
    }

    /// The recipe with everything that was asked for, under the name that says so.
    fn whole_recipe(&self) -> Result<Recipe, CatalogueError> {
        let recipe = self.recipe.clone().with(&self.options)?;
        Ok(Recipe { name: self.to_string(), ..recipe })
    }
}

impl Entry for Kernel {
    fn offers(&self) -> Offers {
        offers(&self.recipe)
    }

    /// A profile that is a file with a recipe replaces the recipe; any other is left to
    /// [`Entry::reference`].
    fn with(&self, asked: &Asked<'_>) -> Result<Arc<dyn Entry>, CatalogueError> {
        let mut kernel = self.clone();
        if let Some(profile) = asked.profile
            && let Some(recipe) = read_recipe(profile)?
        {
            kernel.recipe = Recipe { name: kernel.recipe.name, ..recipe };
            kernel.file = Some(PathBuf::from(profile));
        } else if let Some(quirks) = asked.quirks {
            read_profile(quirks)?;
            kernel.quirks = Some(quirks.to_owned());
        }
        let mkfs = asked.mkfs.unwrap_or_default().split_whitespace();
        let mount = asked.mount.unwrap_or_default().split(',').filter(|option| !option.is_empty());
        kernel.options.format.extend(mkfs.map(str::to_owned));
        kernel.options.mount.extend(mount.map(str::to_owned));
        if kernel.options.mount.iter().any(|option| option == "ro") {
            let text = "nothing could be changed, so there would be nothing to check: leave ro out";
            return Err(CatalogueError::Refused(text.to_owned()));
        }
        kernel.options.space_bytes = asked.space_bytes.or(kernel.options.space_bytes);
        kernel.options.disk_bytes = asked.disk_bytes.or(kernel.options.disk_bytes);
        if let Some(promises) = asked.promises {
            read_promises(promises)?;
            kernel.promises = Some(promises.to_owned());
        }
        if let Some(lie) = asked.mutant {
            find_lie(lie)?;
            kernel.lie = Some(lie.to_owned());
        }
        kernel.whole_recipe()?;
        Ok(Arc::new(kernel))
    }

    fn risk(&self) -> Option<String> {
        self.recipe.risk.clone()
    }

    fn profile(&self) -> Result<String, CatalogueError> {
        Ok(self.named_profile().unwrap_or_else(|| self.recipe.profile.clone()))
    }

    /// Without the limits that only the file system itself can tell.
    fn planned_reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        let mut config = Config { quirks: read_profile(profile)?, ..Config::default() };
        read_protections(&mut config.quirks);
        let recipe = self.whole_recipe()?;
        let options = recipe.layer.as_ref().map_or(&recipe.options, |layer| &layer.options);
        config.quirks.nodev |= options.iter().any(|option| option == "nodev");
        config.quirks.noexec |= options.iter().any(|option| option == "noexec");
        // The root of an overlay; a directory in one (`dir:`) is in the upper layer alone.
        config.quirks.root_nlink_one |= recipe.layer.is_some();
        Ok(config)
    }

    /// The file system is made once to be measured: what options did to it is not guessed.
    fn reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        let mut config = self.planned_reference(profile)?;
        let recipe = self.whole_recipe()?;
        let measured =
            super::on_own_thread(|| Ok(KernelSubject::new(recipe, View::default())?.measure()?))?;
        // Limits that a user wrote down are those that he wants.
        match Quirks::profile(profile).is_some() {
            true => measured.apply(&mut config),
            false => config.block_bytes = measured.block_bytes,
        }
        Ok(config)
    }

    fn testbed(&self, _reference: &Config, view: View) -> Result<Box<dyn Testbed>, CatalogueError> {
        if let Some(lie) = &self.lie {
            return Err(CatalogueError::Refused(format!(
                "{lie} is a lie of a disk, which only `fathom crash` notices"
            )));
        }
        Ok(Box::new(KernelSubject::new(self.whole_recipe()?, view)?))
    }

    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        Err(super::not_offered(self, Purpose::Crash))
    }

    fn disks(
        &self,
        geometry: Option<Geometry>,
        threads: usize,
    ) -> Result<Box<dyn DiskFileSystem>, CatalogueError> {
        let (profile, recipe) = self.crash_profile()?;
        let own = Kernel { recipe, ..self.clone() };
        let (name, mut recipe) = (self.to_string(), own.whole_recipe()?);
        if let Some(geometry) = geometry {
            recipe.image_bytes = geometry.size_bytes as u64;
        }
        let disks = KernelDisks::new(&name, recipe, profile, threads)?;
        Ok(match &self.lie {
            Some(lie) => Box::new(LyingDisks::new(&name, disks, find_lie(lie)?)),
            None => Box::new(disks),
        })
    }
}

/// A profile of quirks as a guarantee names it: by its name, or as its text if it is a file.
fn reference_text(named: &str) -> Result<String, CatalogueError> {
    if Quirks::profile(named).is_some() {
        return Ok(named.to_owned());
    }
    let quirks = read_profile(named)?;
    toml::to_string(&quirks).map_err(|error| CatalogueError::Refused(format!("{named}: {error}")))
}

/// Promises by their name, or in a file.
fn read_promises(text: &str) -> Result<CrashProfile, CatalogueError> {
    let refused = |error: String| CatalogueError::Refused(error);
    if !text.ends_with(".toml") {
        return CrashProfile::named(text).map_err(|error| refused(error.to_string()));
    }
    let read = std::fs::read_to_string(text)
        .map_err(|error| refused(format!("cannot read the promises in {text}: {error}")))?;
    CrashProfile::parse(text, &read).map_err(|error| refused(error.to_string()))
}

fn find_lie(name: &str) -> Result<Lie, CatalogueError> {
    Lie::named(name).ok_or_else(|| {
        let known: Vec<&str> = Lie::all().map(|(name, _)| name).collect();
        let known = known.join(", ");
        CatalogueError::Refused(format!("no lie of a disk is called {name:?}: there are {known}"))
    })
}
