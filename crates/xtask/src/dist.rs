//! `cargo xtask dist`: one archive to hand on, with a program that needs no library, its manual pages
//! and completions, and the licences of everything in it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// The shells, each with the place where it looks for completions.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/fathom"),
    ("zsh", "share/zsh/site-functions/_fathom"),
    ("fish", "share/fish/vendor_completions.d/fathom.fish"),
];

/// The documents that go along.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Builds the archive and says where it is.
pub(crate) fn run() -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let program = build(&target)?;
    let metadata: Value = serde_json::from_str(&shell::output(shell::cargo().args([
        "metadata",
        "--format-version",
        "1",
        "--filter-platform",
        &target,
    ]))?)?;
    let version = version(&metadata)?;
    let name = format!("fathom-{version}-{}-linux", std::env::consts::ARCH);
    let dist = target_dir().join("dist");
    let root = dist.join(&name);
    let _ = fs::remove_dir_all(&root);
    place(&program, &root.join("bin/fathom"))?;
    shell::run(Command::new("strip").arg(root.join("bin/fathom")))?;
    manual(&root)?;
    // mount(8) finds the helper of a type of file systems by this name.
    fs::create_dir_all(root.join("sbin"))?;
    std::os::unix::fs::symlink("../bin/fathom", root.join("sbin/mount.fuse.reffs"))?;
    let documents = root.join("share/doc/fathom");
    for document in DOCUMENTS {
        place(&shell::root().join(document), &documents.join(document))?;
    }
    fs::write(documents.join("LICENCES.txt"), licences(&metadata)?)?;
    let archive = dist.join(format!("{name}.tar.gz"));
    shell::run(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf"])
            .arg(&archive)
            .arg("-C")
            .arg(&dist)
            .arg(&name),
    )?;
    let bytes = fs::metadata(&archive)?.len();
    println!("{} ({:.1} MB)", archive.display(), bytes as f64 / 1e6);
    println!("install it with: tar -xzf {name}.tar.gz --strip-components=1 -C /usr/local");
    Ok(())
}

/// Builds the program without a need for any library.
fn build(target: &str) -> Result<PathBuf> {
    let args = ["build", "--release", "--package", "fathom", "--target", target];
    shell::run(shell::cargo().args(args).env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    let program = target_dir().join(target).join("release/fathom");
    // The first bytes of a program that wants a loader name it.
    let bytes = fs::read(&program).with_context(|| format!("no {}", program.display()))?;
    let loader = b"/lib64/ld-linux";
    if bytes.windows(loader.len()).take(1 << 16).any(|window| window == loader) {
        bail!("{} wants a loader: it is not static", program.display());
    }
    Ok(program)
}

fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| shell::root().join("target"), PathBuf::from)
}

fn version(metadata: &Value) -> Result<String> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let fathom = packages.iter().find(|package| package["name"] == "fathom");
    let version = fathom.and_then(|package| package["version"].as_str());
    Ok(version.context("the package fathom is not there")?.to_owned())
}

fn place(from: &Path, to: &Path) -> Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// The program writes its own pages and completions.
fn manual(root: &Path) -> Result<()> {
    let program = root.join("bin/fathom");
    shell::run(Command::new(&program).arg("man").arg(root.join("share/man/man1")))?;
    for (name, file) in SHELLS {
        let script = shell::output(Command::new(&program).args(["completions", name]))?;
        let file = root.join(file);
        fs::create_dir_all(file.parent().context("it has one")?)?;
        fs::write(file, script)?;
    }
    Ok(())
}

/// Every crate in the program with its licence, and the texts that they bring.
fn licences(metadata: &Value) -> Result<String> {
    let used = used(metadata)?;
    let mut list =
        String::from("Fathom contains these crates, each under the licence named beside it.\n\n");
    let mut texts = String::new();
    for package in metadata["packages"].as_array().context("no packages")? {
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        if !used.contains(&text("id").to_owned()) || package["source"].is_null() {
            continue;
        }
        writeln!(list, "{} {}: {}", text("name"), text("version"), text("license"))?;
        let dir =
            Path::new(text("manifest_path")).parent().context("a manifest has a directory")?;
        let mut files: Vec<PathBuf> =
            fs::read_dir(dir)?.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.is_file() && is_licence(path));
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            writeln!(texts, "\n==== {} {}: {name} ====\n", text("name"), text("version"))?;
            texts.push_str(&String::from_utf8_lossy(&fs::read(&file)?));
        }
    }
    Ok(list + &texts)
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|start| name.starts_with(start))
}

/// The ids of the packages that the program is built from: dependencies that are no tests.
fn used(metadata: &Value) -> Result<Vec<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("no graph")?;
    let id_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().context("no packages")?;
    let start = packages.iter().find(|package| package["name"] == "fathom").context("no fathom")?;
    let mut found = vec![id_of(&start["id"])];
    let mut next = 0;
    while let Some(id) = found.get(next).cloned() {
        next += 1;
        let node = nodes.iter().find(|node| node["id"] == id.as_str());
        for dependency in node.and_then(|node| node["deps"].as_array()).into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array();
            let is_built =
                kinds.is_none_or(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()));
            let id = id_of(&dependency["pkg"]);
            if is_built && !found.contains(&id) {
                found.push(id);
            }
        }
    }
    Ok(found)
}
