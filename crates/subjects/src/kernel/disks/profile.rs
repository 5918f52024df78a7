//! What a kernel file system promises about power failures, and the disk on which that is tested.

use fathom_block::{Geometry, Guarantee};
use serde::Deserialize;

use crate::error::SubjectError;
use crate::kernel::recipe::{Program, Recipe};

/// The profiles that come with Fathom, by their names.
const FILES: [(&str, &str); 14] = [
    ("ext2", include_str!("../../../profiles/crash/ext2.toml")),
    ("ext3", include_str!("../../../profiles/crash/ext3.toml")),
    ("ext4", include_str!("../../../profiles/crash/ext4.toml")),
    ("ext4-1k", include_str!("../../../profiles/crash/ext4-1k.toml")),
    ("ext4-journal", include_str!("../../../profiles/crash/ext4-journal.toml")),
    ("ext4-writeback", include_str!("../../../profiles/crash/ext4-writeback.toml")),
    ("ext4-fast-commit", include_str!("../../../profiles/crash/ext4-fast-commit.toml")),
    ("xfs", include_str!("../../../profiles/crash/xfs.toml")),
    ("btrfs", include_str!("../../../profiles/crash/btrfs.toml")),
    ("f2fs", include_str!("../../../profiles/crash/f2fs.toml")),
    ("f2fs-strict", include_str!("../../../profiles/crash/f2fs-strict.toml")),
    ("jfs", include_str!("../../../profiles/crash/jfs.toml")),
    ("nilfs2", include_str!("../../../profiles/crash/nilfs2.toml")),
    ("posix", include_str!("../../../profiles/crash/posix.toml")),
];

/// What is assumed of a file system without a profile.
const ASSUMED: &str = "posix";

/// A name without a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no promises are called {name:?}: there are {known}")]
pub struct UnknownCrashProfile {
    name: String,
    known: String,
}

/// The disk of a profile: smaller than that of `check`, since every disk is mounted thousands of
/// times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SmallDisk {
    image_kib: Option<u64>,
    format: Option<String>,
    check: Option<String>,
    /// What must be run on a disk after a power failure before it can be mounted.
    repair: Option<String>,
    atomic_bytes: Option<usize>,
    #[serde(default)]
    mount_options: Vec<String>,
}

/// The promises of a file system, and the disk on which they are tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashProfile {
    /// How it is called.
    pub name: String,
    /// Whether it was made for the file system, rather than assumed.
    pub is_own: bool,
    /// What is promised.
    pub guarantee: Guarantee,
    disk: SmallDisk,
}

impl CrashProfile {
    /// The names of all profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    /// The profile of this name.
    ///
    /// # Errors
    /// If there is none: names the others.
    pub fn named(name: &str) -> Result<CrashProfile, UnknownCrashProfile> {
        let unknown = || UnknownCrashProfile {
            name: name.to_owned(),
            known: CrashProfile::names().collect::<Vec<_>>().join(", "),
        };
        let (name, text) = FILES.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        let read = CrashProfile::parse(name, text);
        Ok(read.expect("the profiles that come with Fathom are tested"))
    }

    /// The profile for a file system; what POSIX promises if it has none of its own.
    pub fn of(name: &str) -> CrashProfile {
        let assumed = || {
            let posix = CrashProfile::named(ASSUMED).expect("it comes with Fathom");
            CrashProfile { is_own: false, ..posix }
        };
        CrashProfile::named(name).unwrap_or_else(|_| assumed())
    }

    /// Reads a profile: promises, and perhaps a table `[disk]`.
    ///
    /// # Errors
    /// If it is none; says where.
    pub fn parse(name: &str, text: &str) -> Result<CrashProfile, SubjectError> {
        let wrong = |error: String| SubjectError::Recipe(format!("promises {name}: {error}"));
        let mut table: toml::Table =
            toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let disk = match table.remove("disk") {
            Some(disk) => {
                disk.try_into().map_err(|error: toml::de::Error| wrong(error.to_string()))?
            }
            None => SmallDisk::default(),
        };
        let guarantee =
            Guarantee::parse(&table.to_string()).map_err(|error| wrong(error.to_string()))?;
        Ok(CrashProfile { name: name.to_owned(), is_own: true, guarantee, disk })
    }

    /// What the disk writes as a whole: a sector, if the profile says nothing.
    pub fn geometry(&self, size_bytes: usize) -> Geometry {
        let disk = Geometry::disk(size_bytes);
        Geometry { atomic_bytes: self.disk.atomic_bytes.unwrap_or(disk.atomic_bytes), ..disk }
    }

    /// The recipe with the disk of the profile.
    pub fn adapt(&self, mut recipe: Recipe) -> Recipe {
        if let Some(kib) = self.disk.image_kib {
            recipe.image_bytes = kib << 10;
        }
        if let (Some(command), Some(format)) = (&self.disk.format, &mut recipe.format) {
            format.command = command.split_whitespace().map(str::to_owned).collect();
        }
        if let (Some(command), Some(checker)) = (&self.disk.check, &mut recipe.checker) {
            checker.program.command = command.split_whitespace().map(str::to_owned).collect();
        }
        self.add_options(recipe)
    }

    /// The recipe with the mount options alone.
    pub(crate) fn add_options(&self, mut recipe: Recipe) -> Recipe {
        recipe.options.extend(self.disk.mount_options.iter().cloned());
        recipe
    }

    /// The program that must be run on a disk after a power failure before it can be mounted: it is in
    /// the package of the checker.
    pub(super) fn repair(&self, recipe: &Recipe) -> Option<Program> {
        let (command, checker) = (self.disk.repair.as_ref()?, recipe.checker.as_ref()?);
        let command = command.split_whitespace().map(str::to_owned).collect();
        Some(Program { command, ..checker.program.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_read_and_has_a_reference_that_exists() {
        for name in CrashProfile::names() {
            let profile = CrashProfile::named(name).unwrap();
            let reference = profile.guarantee.reference.as_ref().map(|claim| claim.is.as_str());
            if let Some(reference) = reference {
                assert!(fathom_model::Quirks::profile(reference).is_some(), "{name}: {reference}");
            }
            assert_ne!(profile.guarantee.survives.is, [], "{name}");
        }
        assert!(!CrashProfile::of("minix").is_own);
        let error = CrashProfile::named("ext5").unwrap_err().to_string();
        assert!(error.contains("ext4-journal"), "{error}");
        let wrong = CrashProfile::parse("mine", "[disk]\nimage_mib = 3").unwrap_err().to_string();
        assert!(wrong.contains("image_mib"), "{wrong}");
    }
}
