//! [`Cache`]: the kernels of this user, one directory each.
//!
//! ```text
//!  $XDG_CACHE_HOME/fathom/kernels/6.12-debug/linux   a finished kernel
//!                                           /log     what make printed
//!                                           /source, /build, *.deb   while it is unfinished
//!  $XDG_CACHE_HOME/fathom/kernels/trees/linux-0123456789abcdef/…     of a developer's tree
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FlockOperation;

use super::error::BuildError;
use crate::kernel::{Kernel, probe};
use crate::private::HeldLock;

/// The directory of the trees.
const TREES: &str = "trees";

/// The file that names the tree of a kernel.
const TREE_FILE: &str = "tree";

/// The user's directory of kernels.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// A kernel of the cache.
#[derive(Clone, Debug)]
pub struct Cached {
    /// How it is given to `--guest`: `6.12`, `6.12-debug`, or the path of a tree.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// What it can do; `None` while it is unfinished, or a text if the file is no kernel.
    pub kernel: Option<Result<Kernel, String>>,
    /// When it was finished, or last worked on.
    pub changed: SystemTime,
    /// What it takes on the disk, sources and objects included.
    pub disk_bytes: u64,
}

impl Cache {
    /// The cache of the calling user: `$XDG_CACHE_HOME/fathom/kernels`, or the same in `~/.cache`.
    ///
    /// # Errors
    /// If neither variable is set.
    pub fn of_user() -> Result<Cache, BuildError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let base = set("XDG_CACHE_HOME").map(PathBuf::from);
        let base = base.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")));
        Ok(Cache::at(base.ok_or(BuildError::NoHome)?.join("fathom/kernels")))
    }

    /// A cache in this directory.
    pub fn at(root: PathBuf) -> Cache {
        Cache { root }
    }

    /// The directory of a kernel of Debian: `6.12`, `6.12-debug`.
    pub(super) fn of_version(&self, version: &str, debug: bool) -> PathBuf {
        self.root.join(with_flavour(version, debug))
    }

    /// The directory of the kernel of a tree.
    pub(super) fn of_tree(&self, tree: &Path, debug: bool) -> PathBuf {
        let name = tree.file_name().unwrap_or_default().to_string_lossy();
        let hash = fnv(tree.as_os_str().as_encoded_bytes());
        self.root.join(TREES).join(with_flavour(&format!("{name}-{hash:016x}"), debug))
    }

    /// The file of a finished kernel: `6.12`, `6.12-debug`, or the directory of a tree, which may be
    /// followed by `-debug` too.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let (plain, debug) = match name.strip_suffix("-debug") {
            Some(plain) if !Path::new(name).is_dir() => (plain, true),
            _ => (name, false),
        };
        let dir = match is_version(plain) {
            true => self.of_version(plain, debug),
            false => self.of_tree(&Path::new(plain).canonicalize().ok()?, debug),
        };
        Some(dir.join("linux")).filter(|file| file.is_file())
    }

    /// Everything in the cache, finished or not, by name.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn kernels(&self) -> Result<Vec<Cached>, BuildError> {
        let mut found = Vec::new();
        for dir in directories(&self.root)?.into_iter().chain(directories(&self.root.join(TREES))?)
        {
            if dir.file_name().is_some_and(|name| name == TREES) {
                continue;
            }
            found.push(describe(dir));
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Removes a kernel, with what an unfinished build of it left; says how many bytes that were.
    ///
    /// # Errors
    /// If there is none, or somebody builds it.
    pub fn remove(&self, name: &str) -> Result<u64, BuildError> {
        let absolute = Path::new(name).canonicalize().ok().map(|path| path.display().to_string());
        let is_it = |one: &Cached| one.name == name || Some(&one.name) == absolute.as_ref();
        let found = self.kernels()?.into_iter().find(is_it);
        let Cached { dir, disk_bytes, name, .. } =
            found.ok_or_else(|| BuildError::NotBuilt { name: name.to_owned() })?;
        let _lock = lock(&dir, &name)?;
        fs::remove_dir_all(&dir)
            .map_err(BuildError::io(format!("cannot remove {}", dir.display())))?;
        Ok(disk_bytes)
    }
}

fn with_flavour(name: &str, debug: bool) -> String {
    if debug { format!("{name}-debug") } else { name.to_owned() }
}

/// `6.12`, not a path.
pub(super) fn is_version(text: &str) -> bool {
    !text.is_empty()
        && text
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A directory name for a path; trees of the same name must not meet (FNV-1a, 64 bits).
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn directories(root: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(BuildError::io(root.display().to_string()))?,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_dir()).collect())
}

fn describe(dir: PathBuf) -> Cached {
    let file = dir.join("linux");
    let tree = fs::read_to_string(dir.join(TREE_FILE)).ok();
    let of_dir = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let debug = tree.is_some() && of_dir.ends_with("-debug");
    let name = tree.map_or(of_dir, |tree| with_flavour(tree.trim_end(), debug));
    let newest = if file.is_file() { &file } else { &dir };
    let changed = fs::metadata(newest).and_then(|metadata| metadata.modified());
    Cached {
        name,
        kernel: file.is_file().then(|| probe(&file).map_err(|error| error.to_string())),
        changed: changed.unwrap_or(SystemTime::UNIX_EPOCH),
        disk_bytes: disk_bytes(&dir),
        dir,
    }
}

/// What a directory takes, as far as it can be read.
fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

/// Notes which tree a directory of the cache belongs to.
pub(super) fn note_tree(dir: &Path, tree: &Path) -> Result<(), BuildError> {
    let file = dir.join(TREE_FILE);
    fs::write(&file, format!("{}\n", tree.display()))
        .map_err(BuildError::io(format!("cannot write {}", file.display())))
}

/// Takes the lock of a kernel's directory; it is free again when it is dropped, and however the process ends.
pub(super) fn lock(dir: &Path, name: &str) -> Result<HeldLock, BuildError> {
    let path = dir.join("lock");
    let file = File::create(&path).map_err(BuildError::io(path.display().to_string()))?;
    match HeldLock::take(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(held) => Ok(held),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(BuildError::Locked { name: name.to_owned() }),
        Err(errno) => Err(BuildError::io(path.display().to_string())(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_version_and_by_tree() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path().join("kernels"));
        assert!(cache.kernels().unwrap().is_empty());
        assert_eq!(cache.find("6.12"), None);
        let tree = home.path().join("my-linux");
        fs::create_dir_all(&tree).unwrap();
        for dir in [cache.of_version("6.12", true), cache.of_tree(&tree, false)] {
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("linux"), "no kernel").unwrap();
        }
        note_tree(&cache.of_tree(&tree, false), &tree).unwrap();
        assert_eq!(cache.find("6.12"), None);
        assert_eq!(cache.find("6.12-debug"), Some(cache.of_version("6.12", true).join("linux")));
        let text = tree.to_str().unwrap();
        assert_eq!(cache.find(text), Some(cache.of_tree(&tree, false).join("linux")));
        assert_eq!(cache.find(&format!("{text}-debug")), None);
        let names: Vec<String> = cache.kernels().unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, [text, "6.12-debug"]);
        let not_a_kernel = cache.kernels().unwrap()[1].kernel.clone().unwrap().unwrap_err();
        assert!(not_a_kernel.contains("no ELF executable"), "{not_a_kernel}");

        assert!(cache.remove("6.12-debug").unwrap() > 0);
        assert!(matches!(cache.remove("6.12-debug"), Err(BuildError::NotBuilt { .. })));
        let held = lock(&cache.of_tree(&tree, false), "it").unwrap();
        assert!(matches!(cache.remove(text), Err(BuildError::Locked { .. })));
        drop(held);
        cache.remove(text).unwrap();
        assert!(cache.kernels().unwrap().is_empty());
    }

    #[test]
    fn versions_are_told_from_paths() {
        assert!(is_version("6.12") && is_version("7"));
        assert!(!is_version("linux") && !is_version("6.12-rc1") && !is_version("./6.12"));
        assert!(!is_version("") && !is_version("6."));
    }
}
