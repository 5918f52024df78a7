//! Loads modules in a guest: what modprobe(8) does, without it. A guest sees the host's files, and few
//! hosts have a modprobe that finds a guest's modules.

#![allow(unsafe_code, reason = "loads modules; the block says why it is sound")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::boot::{InitPlan, MESSAGES};
use crate::init::say;
use crate::keeper::file;

/// Loads the module that the guest's kernel asks for: the program was started by it under the name
/// [`crate::boot::MODPROBE`].
pub(crate) fn modprobe(wanted: &str) -> i32 {
    let plan = fs::read(Path::new(MESSAGES).join(file::INIT_PLAN)).ok();
    let plan = plan.and_then(|text| serde_json::from_slice::<InitPlan>(&text).ok());
    let Some(dir) = plan.and_then(|plan| plan.modules) else { return 1 };
    match load(&dir, wanted) {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("fathom: module {wanted}: {error}"));
            1
        }
    }
}

/// Loads a module by its name or one of its aliases, after what it depends on.
pub(crate) fn load(dir: &Path, wanted: &str) -> io::Result<()> {
    let table = Dependencies::read(dir)?;
    let names = match table.paths.contains_key(&canonical(wanted)) {
        true => vec![canonical(wanted)],
        false => aliases(dir, wanted)?,
    };
    if names.is_empty() {
        return Err(io::Error::other("there is none"));
    }
    for name in names {
        for path in table.in_order(&name) {
            insert(&dir.join(path))?;
        }
    }
    Ok(())
}

/// `-` and `_` are the same in names of modules.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// The names of modules that have an alias.
fn aliases(dir: &Path, wanted: &str) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(dir.join("modules.alias"))?;
    let name = |line: &str| {
        let mut words = line.strip_prefix("alias ")?.split(' ');
        let (pattern, name) = (words.next()?, words.next()?);
        matches(pattern.as_bytes(), wanted.as_bytes()).then(|| canonical(name))
    };
    Ok(text.lines().filter_map(name).collect())
}

/// Patterns of modules.alias: `*` is any text.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=text.len()).any(|at| matches(rest, &text[at..])),
        (Some((b'?', rest)), Some((_, tail))) => matches(rest, tail),
        (Some((a, rest)), Some((b, tail))) if a == b => matches(rest, tail),
        _ => false,
    }
}

/// modules.dep: the file of each module, and the files that it needs.
struct Dependencies {
    /// Name → file, and what it needs in the order of the file.
    paths: BTreeMap<String, (PathBuf, Vec<PathBuf>)>,
}

impl Dependencies {
    fn read(dir: &Path) -> io::Result<Dependencies> {
        let text = fs::read_to_string(dir.join("modules.dep"))?;
        Ok(Dependencies::parse(&text))
    }

    fn parse(text: &str) -> Dependencies {
        let line = |line: &str| {
            let (path, needs) = line.split_once(':')?;
            let name = Path::new(path).file_name()?.to_str()?.split('.').next()?;
            let needs = needs.split_whitespace().map(PathBuf::from).collect();
            Some((canonical(name), (PathBuf::from(path), needs)))
        };
        Dependencies { paths: text.lines().filter_map(line).collect() }
    }

    /// What to load: what others need comes last in each line of the file, and is loaded first.
    fn in_order(&self, name: &str) -> Vec<&Path> {
        let Some((path, needs)) = self.paths.get(name) else { return Vec::new() };
        needs.iter().rev().chain([path]).map(PathBuf::as_path).collect()
    }
}

fn insert(path: &Path) -> io::Result<()> {
    let module = File::open(path)?;
    // SAFETY: the descriptor is open and the parameters are an empty text with its zero.
    let done =
        unsafe { libc::syscall(libc::SYS_finit_module, module.as_raw_fd(), c"".as_ptr(), 0) };
    let error = io::Error::last_os_error();
    match (done, error.raw_os_error()) {
        (0, _) | (_, Some(libc::EEXIST)) => Ok(()),
        _ => Err(io::Error::other(format!("{}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_loaded_first() {
        let table = Dependencies::parse(
            "kernel/fs/f2fs/f2fs.ko: kernel/lib/crc32.ko kernel/lib/base.ko\nkernel/lib/crc32.ko: kernel/lib/base.ko\n",
        );
        let order: Vec<&str> =
            table.in_order("f2fs").iter().filter_map(|path| path.to_str()).collect();
        assert_eq!(order, ["kernel/lib/base.ko", "kernel/lib/crc32.ko", "kernel/fs/f2fs/f2fs.ko"]);
        assert!(table.in_order("nothing").is_empty());
    }

    #[test]
    fn aliases_are_patterns() {
        assert!(matches(b"fs-f2fs", b"fs-f2fs"));
        assert!(matches(b"crypto-*32c", b"crypto-crc32c"));
        assert!(!matches(b"fs-f2fs", b"fs-ext4"));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("modules.alias"), "# text\nalias fs-f2fs f2fs\n").unwrap();
        assert_eq!(aliases(dir.path(), "fs-f2fs").unwrap(), ["f2fs"]);
    }
}
