//! Profiles: the known differences of a subject, by name or from a file, and what the machine adds.

use std::path::Path;

use fathom_model::{Config, Quirks, XattrOrder};

use super::CatalogueError;
use super::near::did_you_mean;
use crate::Recipe;
use crate::dir::Environment;
use crate::kernel::version;

/// The quirks of a profile: a name, or a file.
///
/// # Errors
/// If there is no such profile, or the file is wrong.
pub(super) fn read_profile(name: &str) -> Result<Quirks, CatalogueError> {
    let kernel = running_kernel();
    if let Some(quirks) = Quirks::profile_on(name, kernel) {
        return Ok(quirks);
    }
    if !Path::new(name).is_file() {
        let hint = did_you_mean(name, Quirks::profile_names());
        return Err(CatalogueError::UnknownProfile { name: name.to_owned(), hint });
    }
    let quirks = match read_recipe(name)? {
        None => read(name)?,
        Some(Recipe { quirks: Some(quirks), .. }) => quirks,
        Some(Recipe { profile, .. }) => return read_profile(&profile),
    };
    Quirks::parse_on(&quirks, kernel).map_err(|message| in_file(name, message))
}

/// The version of the kernel that runs; a very new one if it does not say.
pub(super) fn running_kernel() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    version(&release).unwrap_or((u32::MAX, 0))
}

/// Whether it is a file with a recipe.
pub(super) fn is_recipe(profile: &str) -> bool {
    read_recipe(profile).is_ok_and(|recipe| recipe.is_some())
}

/// The recipe in a file; `None` if it is no file, or one with quirks only.
pub(super) fn read_recipe(file: &str) -> Result<Option<Recipe>, CatalogueError> {
    if !Path::new(file).is_file() {
        return Ok(None);
    }
    let text = read(file)?;
    let is_recipe = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("fs_type"));
    let parse = || Recipe::parse(&text).map_err(|error| in_file(file, error.to_string()));
    is_recipe.then(parse).transpose()
}

fn read(file: &str) -> Result<String, CatalogueError> {
    std::fs::read_to_string(file).map_err(|error| in_file(file, format!("cannot be read: {error}")))
}

fn in_file(file: &str, message: String) -> CatalogueError {
    CatalogueError::File { file: file.into(), message }
}

/// Makes the reference behave like a directory with this environment.
pub(super) fn adapt(config: &mut Config, environment: &Environment) {
    config.uid = environment.identity.uid;
    config.gid = environment.root_gid;
    config.groups = environment.identity.groups.clone();
    config.root_mode = environment.root_mode;
    config.umask = environment.umask;
    config.quirks.nodev = environment.nodev;
    config.quirks.noexec = environment.noexec;
    // Others use the same file system at the same time.
    config.quirks.statfs_slack_bytes = 0;
    config.quirks.statfs_comparable = false;
    read_protections(&mut config.quirks);
}

/// The first kernel whose calls on extended attributes look at their arguments before the file.
const XATTR_ARGUMENTS_FIRST: (u32, u32) = (6, 13);
/// The first kernel known to do so where an attribute of a path is changed.
const XATTR_ARGUMENTS_BEFORE_PATH: (u32, u32) = (6, 12);

/// The first kernel that calls all modes of fallocate that cannot be combined unsupported.
const FALLOCATE_CONFLICT_UNSUPPORTED: (u32, u32) = (6, 12);

/// The first kernel that has `FALLOC_FL_WRITE_ZEROES`.
const FALLOCATE_WRITES_ZEROES: (u32, u32) = (6, 17);

/// Fills in what the running kernel decides: its version, and what `/proc/sys/fs` says.
pub(super) fn read_protections(quirks: &mut Quirks) {
    use crate::dir::protected;
    let kernel = running_kernel();
    quirks.xattr_order = match kernel {
        have if have < XATTR_ARGUMENTS_BEFORE_PATH => XattrOrder::FileFirst,
        have if have < XATTR_ARGUMENTS_FIRST => XattrOrder::PathLast,
        _ => XattrOrder::ArgumentsFirst,
    };
    quirks.fallocate_conflict_invalid = kernel < FALLOCATE_CONFLICT_UNSUPPORTED;
    quirks.fallocate_write_zeroes_known = kernel >= FALLOCATE_WRITES_ZEROES;
    quirks.protected_hardlinks = protected("hardlinks") > 0;
    quirks.protected_symlinks = protected("symlinks") > 0;
    quirks.protected_fifos = protected("fifos");
    quirks.protected_regular = protected("regular");
}
