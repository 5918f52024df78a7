//! Debian's sources of Linux: the package `linux-source-N`, unpacked as an ordinary user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::Log;
use super::error::BuildError;
use super::tools;

/// Changes that every kernel of ours needs, and the text in a file of the tree that says that it does.
const PATCHES: [(&str, &str, &str, &str); 1] = [(
    "whole-vector-state.patch",
    include_str!("../../patches/whole-vector-state.patch"),
    "arch/x86/um/user-offsets.c",
    "2696",
)];

/// Refuses a version of which there are neither sources nor a package, before anything is left of the
/// attempt.
pub(super) fn demand_version(dir: &Path, version: &str) -> Result<(), BuildError> {
    if dir.is_dir() || installed(version).is_file() {
        return Ok(());
    }
    tools::demand(&APT)?;
    let known = known_versions();
    match known.iter().any(|one| one == version) {
        true => Ok(()),
        false => Err(BuildError::NoSource { version: version.to_owned(), known }),
    }
}

/// Where the package puts the sources if it is installed.
fn installed(version: &str) -> PathBuf {
    PathBuf::from(format!("/usr/src/linux-source-{version}.tar.xz"))
}

/// What fetches a package.
const APT: [(&str, &str); 2] = [("apt-get", "apt"), ("apt-cache", "apt")];

/// Brings the sources of `version` into `dir/source`, unless they are there. What was begun before is
/// begun again.
pub(super) fn unpack(
    dir: &Path,
    version: &str,
    log: &mut Log,
    tell: &mut dyn FnMut(&str),
) -> Result<PathBuf, BuildError> {
    let source = dir.join("source");
    if source.is_dir() {
        return Ok(source);
    }
    tools::demand(&tools::UNPACK)?;
    let part = dir.join("source.part");
    let package = dir.join("package");
    for old in [&part, &package] {
        remove(old)?;
    }
    let installed = installed(version);
    let archive = match installed.is_file() {
        true => installed,
        false => {
            tell("downloading Debian's sources");
            let deb = download(dir, version, log)?;
            tell("unpacking");
            let unpacked = log.run(
                "unpacking the package",
                Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&package),
            );
            // A half package is fetched again the next time.
            unpacked.inspect_err(|_| drop(fs::remove_file(&deb)))?;
            package.join(format!("usr/src/linux-source-{version}.tar.xz"))
        }
    };
    tell("unpacking");
    make_dir(&part)?;
    let mut tar = Command::new("tar");
    tar.arg("-xJf").arg(&archive).arg("-C").arg(&part).arg("--strip-components=1");
    log.run("unpacking the sources", &mut tar)?;
    apply_patches(&part, log)?;
    fs::rename(&part, &source).map_err(BuildError::io("cannot name the sources"))?;
    remove(&package)?;
    Ok(source)
}

/// Fetches the package with apt, which needs no rights for that.
fn download(dir: &Path, version: &str, log: &mut Log) -> Result<PathBuf, BuildError> {
    let prefix = format!("linux-source-{version}_");
    let found = || {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.into_iter().find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&prefix) && name.ends_with(".deb")
        })
    };
    if let Some(deb) = found() {
        return Ok(deb);
    }
    tools::demand(&APT)?;
    let none = || BuildError::NoSource { version: version.to_owned(), known: known_versions() };
    let mut apt = Command::new("apt-get");
    // Root's apt would become another user, who cannot write here.
    apt.args(["-q", "-o", "APT::Sandbox::User=root", "download"]);
    log.run("apt-get download", apt.arg(format!("linux-source-{version}")).current_dir(dir))?;
    found().ok_or_else(none)
}

/// The versions whose sources apt knows.
fn known_versions() -> Vec<String> {
    const PREFIX: &str = "linux-source-";
    let output = Command::new("apt-cache").args(["pkgnames", PREFIX]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let mut versions: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix(PREFIX))
        .filter(|version| super::cache::is_version(version))
        .map(str::to_owned)
        .collect();
    versions.sort();
    versions
}

/// Applies the patches that the tree needs.
fn apply_patches(tree: &Path, log: &mut Log) -> Result<(), BuildError> {
    for (name, text, file, says) in PATCHES {
        let needed = fs::read_to_string(tree.join(file)).is_ok_and(|file| file.contains(says));
        if !needed {
            continue;
        }
        let patch = tree.join(name);
        fs::write(&patch, text).map_err(BuildError::io(patch.display().to_string()))?;
        let mut command = Command::new("patch");
        command.args(["-p1", "--batch", "-i", name]).current_dir(tree);
        log.run(&format!("applying {name}"), &mut command)?;
    }
    Ok(())
}

fn make_dir(dir: &Path) -> Result<(), BuildError> {
    fs::create_dir_all(dir).map_err(BuildError::io(format!("cannot make {}", dir.display())))
}

pub(super) fn remove(dir: &Path) -> Result<(), BuildError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BuildError::io(format!("cannot remove {}", dir.display()))(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_is_refused_with_those_that_apt_knows() {
        if Command::new("apt-cache").arg("--version").output().is_err() {
            println!("SKIP an_unknown_version_is_refused: no apt-cache");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("1.0");
        let error = demand_version(&place, "1.0").unwrap_err();
        assert!(error.to_string().starts_with("apt knows no package linux-source-1.0"), "{error}");
        assert!(!place.exists());
    }

    #[test]
    fn patches_are_applied_where_they_are_needed() {
        if tools::demand(&tools::UNPACK).is_err() {
            println!("SKIP patches_are_applied_where_they_are_needed: no patch");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path()).unwrap();
        apply_patches(dir.path(), &mut log).unwrap();
        let um = dir.path().join("arch/x86/um");
        fs::create_dir_all(um.join("os-Linux")).unwrap();
        fs::write(um.join("user-offsets.c"), "DEFINE_LONGS(HOST_FP_SIZE, 2696);").unwrap();
        let error = apply_patches(dir.path(), &mut log).unwrap_err().to_string();
        assert!(error.contains("whole-vector-state.patch"), "{error}");
    }
}
