//! An OCI image, written without a container daemon.
//!
//! One layer, uncompressed, with everything that a task needs; sorted, without times and owners, so that the
//! same files give the same bytes. The archive is an OCI layout (`oci-layout`, `index.json`, `blobs/`) that
//! also has the `manifest.json` of older daemons, which name the same files.

mod sha256;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::SwarmError;
use crate::merge::replace;
use crate::tar::{Entry, archive};
use sha256::hex_digest;

/// An image that is to be written.
#[derive(Clone, Debug)]
pub struct Image {
    /// The program.
    pub program: PathBuf,
    /// A kernel for guests.
    pub kernel: Option<PathBuf>,
    /// Programs that the tasks run.
    pub tools: Vec<Tool>,
    /// The name of the image.
    pub tag: String,
}

/// A program of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool(PathBuf);

/// Where programs are.
const FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

impl Tool {
    /// Looks for a program by its name.
    ///
    /// # Errors
    /// If this machine has none.
    pub fn find(name: &str) -> Result<Tool, SwarmError> {
        let found = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
        let found = found.into_iter().find(|path| path.is_file());
        found.map(Tool).ok_or_else(|| {
            SwarmError::Other(format!(
                "{name} is not installed: leave it out, or install its package"
            ))
        })
    }
}

impl Image {
    /// Writes the archive; the digest that names the image.
    ///
    /// # Errors
    /// If a file cannot be read or the archive cannot be written.
    pub fn write(&self, path: &Path) -> Result<String, SwarmError> {
        let layer = archive(self.entries()?);
        let layer_digest = hex_digest(&layer);
        let config = serde_json::to_vec(&config(&layer_digest)).unwrap_or_default();
        let config_digest = hex_digest(&config);
        let blob = |kind: &str, digest: &str, size: usize| {
            let kind = format!("application/vnd.oci.image.{kind}");
            json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size})
        };
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("config.v1+json", &config_digest, config.len()),
            "layers": [blob("layer.v1.tar", &layer_digest, layer.len())],
        });
        let manifest = serde_json::to_vec(&manifest).unwrap_or_default();
        let manifest_digest = hex_digest(&manifest);
        let mut described = blob("manifest.v1+json", &manifest_digest, manifest.len());
        let (name, version) = self.tag.rsplit_once(':').unwrap_or((&self.tag, "latest"));
        described["annotations"] = json!({
            "io.containerd.image.name": format!("docker.io/library/{name}:{version}"),
            "org.opencontainers.image.ref.name": version,
        });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [described],
        });
        let old = json!([{
            "Config": format!("blobs/sha256/{config_digest}"),
            "RepoTags": [format!("{name}:{version}")],
            "Layers": [format!("blobs/sha256/{layer_digest}")],
        }]);
        let text = |value: &Value| serde_json::to_vec(value).unwrap_or_default();
        let mut entries = BTreeMap::new();
        let mut put =
            |name: String, bytes: Vec<u8>| entries.insert(name, Entry::file(0o644, bytes));
        put("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
        put("index.json".to_owned(), text(&index));
        put("manifest.json".to_owned(), text(&old));
        put(format!("blobs/sha256/{config_digest}"), config);
        put(format!("blobs/sha256/{layer_digest}"), layer);
        put(format!("blobs/sha256/{manifest_digest}"), manifest);
        replace(path, &archive(with_folders(entries)))
            .map_err(|error| SwarmError::io(path, "write it", error))?;
        Ok(format!("sha256:{manifest_digest}"))
    }

    /// Everything in the image, by its path.
    fn entries(&self) -> Result<BTreeMap<String, Entry>, SwarmError> {
        let mut entries = BTreeMap::new();
        put_program(&mut entries, &self.program, "usr/bin/fathom")?;
        for Tool(path) in &self.tools {
            let place = path.display().to_string();
            put_program(&mut entries, path, place.trim_start_matches('/'))?;
        }
        if let Some(kernel) = &self.kernel {
            let entry = Entry::file(0o755, read(kernel)?);
            entries.insert("usr/lib/fathom/kernel".to_owned(), entry);
        }
        let passwd =
            "root:x:0:0:root:/:/usr/bin/fathom\nfathom:x:1000:1000::/tmp:/usr/bin/fathom\n";
        entries.insert("etc/passwd".to_owned(), Entry::file(0o644, passwd.into()));
        let group = "root:x:0:\nfathom:x:1000:\n";
        entries.insert("etc/group".to_owned(), Entry::file(0o644, group.into()));
        for (folder, mode) in
            [("tmp", 0o1777), ("results", 0o1777), ("proc", 0o755), ("dev", 0o755)]
        {
            entries.insert(folder.to_owned(), Entry::folder(mode));
        }
        Ok(with_folders(entries))
    }
}

/// The folders that the paths are in, before them.
fn with_folders(mut entries: BTreeMap<String, Entry>) -> BTreeMap<String, Entry> {
    let paths: Vec<String> = entries.keys().cloned().collect();
    for path in paths {
        for (at, _) in path.match_indices('/') {
            entries.entry(path[..at].to_owned()).or_insert_with(|| Entry::folder(0o755));
        }
    }
    entries
}

/// Puts a program in, with the libraries that it needs, which `ldd` names.
fn put_program(
    entries: &mut BTreeMap<String, Entry>,
    path: &Path,
    place: &str,
) -> Result<(), SwarmError> {
    entries.insert(place.to_owned(), Entry::file(0o755, read(path)?));
    let output = Command::new("ldd").arg(path).output();
    // A static program has none, and says so in its own way.
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    for line in text.unwrap_or_default().lines() {
        if line.contains("not found") {
            return Err(SwarmError::Other(format!("{}: {}", path.display(), line.trim())));
        }
        let words = line.split_whitespace().find(|word| word.starts_with('/'));
        if let Some(library) = words.filter(|library| !entries.contains_key(&library[1..])) {
            let entry = Entry::file(0o755, read(Path::new(library))?);
            entries.insert(library.trim_start_matches('/').to_owned(), entry);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, SwarmError> {
    fs::read(path).map_err(|error| SwarmError::io(path, "read it", error))
}

/// The configuration of the image. Nothing in it depends on when or where it was made.
fn config(layer_digest: &str) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/fathom"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp"],
            "WorkingDir": "/tmp",
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "fathom swarm image"}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(dir: &Path) -> Image {
        let program = dir.join("program");
        fs::write(&program, "#!/bin/sh\necho a program\n").unwrap();
        Image { program, kernel: None, tools: Vec::new(), tag: "fathom:test".to_owned() }
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one.tar"), dir.path().join("two.tar"));
        let digest = image(dir.path()).write(&one).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(image(dir.path()).write(&two).unwrap(), digest);
        assert_eq!(fs::read(one).unwrap(), fs::read(two).unwrap());
    }

    #[test]
    fn blobs_are_named_by_their_digest_and_everything_that_is_named_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.tar");
        image(dir.path()).write(&path).unwrap();
        let unpacked = Command::new("tar").arg("xf").arg(&path).current_dir(dir.path()).status();
        assert!(unpacked.unwrap().success());
        let value = |name: &str| -> Value {
            serde_json::from_slice(&fs::read(dir.path().join(name)).unwrap()).unwrap()
        };
        let blob = |described: &Value| {
            let digest = described["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = fs::read(dir.path().join("blobs/sha256").join(digest)).unwrap();
            assert_eq!(hex_digest(&bytes), digest);
            assert_eq!(described["size"].as_u64(), Some(bytes.len() as u64));
            bytes
        };
        let manifest = blob(&value("index.json")["manifests"][0]);
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let listed = dir.path().join("layer.tar");
        fs::write(&listed, layer).unwrap();
        let listed = Command::new("tar").arg("tvf").arg(&listed).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("-rwxr-xr-x") && listed.contains("usr/bin/fathom"), "{listed}");
        let old = value("manifest.json");
        let layer = old[0]["Layers"][0].as_str().unwrap();
        assert!(dir.path().join(layer).exists());
        assert_eq!(old[0]["RepoTags"][0], "fathom:test");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(Tool::find("no-such-tool").unwrap_err().to_string().contains("no-such-tool"));
        let dir = tempfile::tempdir().unwrap();
        let bad = Image { program: "/none".into(), ..image(dir.path()) };
        assert!(bad.write(&dir.path().join("x")).unwrap_err().to_string().contains("/none"));
    }
}
