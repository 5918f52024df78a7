//! Test disks: made once from one description, kept in a cache, or a user's own.
//!
//! A disk of ours is made by a shell script that stands alone. Where no privilege is needed, the reproducer
//! of a finding begins with the same script. Other disks are filled by a kernel, in a guest that a
//! [`DiskMaker`] boots.

mod description;
mod ext;
mod fat;
mod mounted;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use twox_hash::XxHash3_128;

use crate::checker::find_program;
use description::Description;

/// A disk larger than this is refused: it is held in memory.
const BYTES_MAX: u64 = 1 << 30;

/// A healthy disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The name of a disk of ours, or the path of a user's.
    pub name: String,
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// The script that makes it; none for a user's own.
    pub script: Option<String>,
    /// Whether the script needs no privilege, and makes these bytes wherever it is run.
    pub anywhere: bool,
    /// Whether it was copied while it was mounted: a checker may say that it has repaired something.
    pub(crate) dirty: bool,
}

/// Runs scripts as root, in a kernel that has many file systems.
pub trait DiskMaker {
    /// Runs `sh SCRIPT IMAGE`, which makes the image in a directory of its own.
    ///
    /// # Errors
    /// What went wrong, for people.
    fn make(&self, script: &Path, image: &Path) -> Result<(), String>;
}

/// Why there is no disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// There is none of that name.
    #[error("there is no disk {name:?}: there are {}", known.join(", "))]
    Unknown {
        /// What was typed.
        name: String,
        /// The disks.
        known: Vec<String>,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be a disk.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// A program that makes the disk is not installed.
    #[error("{program} is not installed, it makes the disk: it is in the Debian package {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// The package.
        package: &'static str,
    },
    /// The disk is made in a guest, and there is none.
    #[error("the disk {name} is filled by a kernel, in a guest: {why}")]
    NoGuest {
        /// The disk.
        name: String,
        /// Why there is no guest, and what to do.
        why: String,
    },
    /// The script failed.
    #[error("the disk {name} cannot be made: {output}")]
    Script {
        /// The disk.
        name: String,
        /// What the script printed.
        output: String,
    },
}

/// A disk that we can make.
struct Recipe {
    name: &'static str,
    script: String,
    /// Programs that it needs, with their packages.
    needs: &'static [(&'static str, &'static str)],
    /// Whether a kernel fills it.
    in_guest: bool,
}

fn recipes() -> Vec<Recipe> {
    let rich = Description::rich();
    let needs: &[_] = &[("mke2fs", "e2fsprogs"), ("debugfs", "e2fsprogs")];
    let ext = ext::VARIANTS.iter();
    let mut recipes: Vec<Recipe> = ext
        .map(|variant| Recipe {
            name: variant.name,
            script: ext::script(variant, &rich),
            needs,
            in_guest: false,
        })
        .collect();
    let needs = &[("mkfs.fat", "dosfstools"), ("mcopy", "mtools")];
    recipes.push(Recipe { name: "vfat", script: fat::script(&rich), needs, in_guest: false });
    recipes.extend(mounted::VARIANTS.iter().map(|variant| Recipe {
        name: variant.name,
        script: mounted::script(variant, &rich, false),
        needs: variant.needs,
        in_guest: true,
    }));
    for (clean, name) in mounted::DIRTY {
        let variant = mounted::VARIANTS.iter().find(|variant| variant.name == *clean);
        recipes.extend(variant.map(|variant| Recipe {
            name,
            script: mounted::script(variant, &rich, true),
            needs: variant.needs,
            in_guest: true,
        }));
    }
    recipes
}

impl Disk {
    /// The names of our disks.
    pub fn names() -> Vec<String> {
        recipes().iter().map(|recipe| recipe.name.to_owned()).collect()
    }

    /// A disk of ours: from the cache, or made now.
    ///
    /// # Errors
    /// If there is none of that name, or it cannot be made here.
    pub fn named(name: &str, maker: &dyn DiskMaker) -> Result<Disk, DiskError> {
        let recipe = recipes().into_iter().find(|recipe| recipe.name == name);
        let Some(recipe) = recipe else {
            return Err(DiskError::Unknown { name: name.to_owned(), known: Disk::names() });
        };
        for (program, package) in recipe.needs {
            if find_program(program).is_none() {
                return Err(DiskError::Missing { program, package });
            }
        }
        let path = cached(&recipe);
        let bytes = match fs::read(&path) {
            Ok(bytes) if !bytes.is_empty() => bytes,
            _ => make(&recipe, &path, maker)?,
        };
        let (script, anywhere) = (Some(recipe.script), !recipe.in_guest);
        let dirty = mounted::DIRTY.iter().any(|(_, dirty)| *dirty == name);
        Ok(Disk { name: name.to_owned(), bytes: Arc::new(bytes), script, anywhere, dirty })
    }

    /// A disk as a kernel had it before the power failed: a checker may find something to repair, such as a
    /// `lost+found` that nobody has made.
    ///
    /// # Errors
    /// If the file cannot be read or is too large.
    pub fn before_crash(path: &Path) -> Result<Disk, DiskError> {
        Ok(Disk { dirty: true, ..Disk::file(path)? })
    }

    /// A user's disk.
    ///
    /// # Errors
    /// If the file cannot be read or is too large.
    pub fn file(path: &Path) -> Result<Disk, DiskError> {
        let io = |source| DiskError::Io { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(io)?;
        let unfit = |what: String| Err(DiskError::Unfit { path: path.to_owned(), what });
        if !metadata.is_file() {
            return unfit("it is no plain file: copy the device into one".to_owned());
        }
        if metadata.len() > BYTES_MAX {
            return unfit(format!(
                "it has {} bytes, more than {BYTES_MAX}: make a smaller one",
                metadata.len()
            ));
        }
        let bytes = fs::read(path).map_err(io)?;
        Ok(Disk {
            name: path.display().to_string(),
            bytes: Arc::new(bytes),
            script: None,
            anywhere: false,
            dirty: false,
        })
    }
}

/// Makes no disk: for programs that have no guests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGuests;

impl DiskMaker for NoGuests {
    fn make(&self, _: &Path, _: &Path) -> Result<(), String> {
        Err("this program has none; `fathom fsck disk NAME -o FILE` makes it".to_owned())
    }
}

/// Where a disk is kept: by its script and the version of the program that makes it.
fn cached(recipe: &Recipe) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let dir =
        cache.filter(|dir| dir.is_absolute()).or_else(home).unwrap_or_else(std::env::temp_dir);
    let mut text = recipe.script.clone();
    for (program, _) in recipe.needs {
        let size =
            find_program(program).and_then(|path| fs::metadata(path).ok()).map(|data| data.len());
        text.push_str(&format!("{size:?}"));
    }
    let digest = XxHash3_128::oneshot(text.as_bytes());
    dir.join("fathom/disks").join(format!("{}-{:012x}.img", recipe.name, digest >> 80))
}

/// Runs the script; the result appears in the cache whole or not at all.
fn make(recipe: &Recipe, path: &Path, maker: &dyn DiskMaker) -> Result<Vec<u8>, DiskError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| DiskError::Io { path, source }
    };
    let dir = tempfile::tempdir().map_err(io(&std::env::temp_dir()))?;
    let image = dir.path().join("disk.img");
    if recipe.in_guest {
        let script = dir.path().join("script.sh");
        fs::write(&script, &recipe.script).map_err(io(&script))?;
        let name = recipe.name.to_owned();
        maker.make(&script, &image).map_err(|why| DiskError::NoGuest { name, why })?;
        let bytes = fs::read(&image).map_err(io(&image))?;
        let _ = keep(&bytes, path);
        return Ok(bytes);
    }
    let output = Command::new("sh")
        .args(["-s", "--"])
        .arg(&image)
        .stdin(Stdio::from(spooled(&recipe.script).map_err(io(&image))?))
        .output()
        .map_err(io(Path::new("sh")))?;
    if !output.status.success() {
        let output = [output.stdout, output.stderr].concat();
        let output = String::from_utf8_lossy(&output).trim().to_owned();
        return Err(DiskError::Script { name: recipe.name.to_owned(), output });
    }
    let bytes = fs::read(&image).map_err(io(&image))?;
    // Without a cache it is made again next time.
    let _ = keep(&bytes, path);
    Ok(bytes)
}

fn spooled(text: &str) -> io::Result<fs::File> {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

fn keep(bytes: &[u8], path: &Path) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    io::Write::write_all(&mut file, bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Map;

    #[test]
    fn disks_are_the_same_every_time_and_their_maps_are_right() {
        for recipe in recipes().into_iter().filter(|recipe| !recipe.in_guest) {
            if let Some((program, package)) =
                recipe.needs.iter().find(|(program, _)| find_program(program).is_none())
            {
                println!("SKIP disk {}: {program} is not installed ({package})", recipe.name);
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let (one, two) = (dir.path().join("1"), dir.path().join("2"));
            let first = make(&recipe, &one, &NoGuests).unwrap_or_else(|error| panic!("{error}"));
            let second = make(&recipe, &two, &NoGuests).unwrap();
            assert!(first == second, "{} differs from time to time", recipe.name);
            let map = Map::of(&first).unwrap();
            assert!(
                recipe.name.starts_with(&map.file_system),
                "{} is {}",
                recipe.name,
                map.file_system
            );
            assert_eq!(map.notes, [""; 0], "{}", recipe.name);
            assert!(map.fields.len() > 500, "{} has {} fields", recipe.name, map.fields.len());
        }
    }
}
