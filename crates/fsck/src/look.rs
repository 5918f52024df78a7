//! What a kernel says of repaired disks: whether it mounts them, what it reads there, what it complains about.
//!
//! Disks that a checker left behind are hostile: they are mounted in guests only. A batch is a directory with
//! the healthy disk and what differs from it on each disk ([`write_batch`]); the guest answers one after the
//! other, each into a file of its own ([`answer_batch`]), so that answers from before a death are there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::objects::{Object, Objects};
use crate::run::DiskDelta;

/// Objects that are looked at on one disk: directories that lead to themselves end here.
const OBJECTS_MAX: usize = 2000;
/// Of larger files only the beginning and the end are read.
const BEGINNING_BYTES: u64 = 2 << 20;
const END_BYTES: u64 = 64 << 10;
/// Lines of the kernel that are kept of one disk.
const LINES_MAX: usize = 20;
/// The healthy disk in the directory of a batch.
const BASE: &str = "base.img";

/// What a kernel found on one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Why it is not mounted.
    pub refused: Option<String>,
    /// What killed the kernel.
    pub died: Option<String>,
    /// What is on it.
    pub(crate) objects: Objects,
    /// Paths that cannot be read, with the error.
    pub unreadable: Vec<String>,
    /// Errors that the kernel reported.
    pub complaints: Vec<String>,
}

impl Mounted {
    /// The answer about a disk that a kernel died of.
    pub fn of_death(how: String) -> Mounted {
        Mounted { died: Some(how), ..Mounted::default() }
    }

    /// Puts an answer where [`read_answers`] finds it.
    ///
    /// # Errors
    /// If the directory cannot be written to.
    pub fn write(&self, directory: &Path, disk: usize) -> io::Result<()> {
        // Whole or not at all: the kernel may die of the next disk.
        let half = directory.join("half");
        fs::write(&half, serde_json::to_vec(self)?)?;
        fs::rename(&half, answer_file(directory, disk))
    }
}

/// Has disks mounted by a kernel that may die of them.
pub trait DiskLooker {
    /// Mounts the disks of a batch (see [`write_batch`]) one after the other.
    ///
    /// # Errors
    /// What is wrong with the harness; a kernel that dies is an answer.
    fn look(
        &self,
        file_system: &str,
        directory: &Path,
        disks: usize,
    ) -> Result<Vec<Mounted>, String>;
}

/// The file with what differs on a disk.
fn delta_file(directory: &Path, disk: usize) -> PathBuf {
    directory.join(format!("delta-{disk}"))
}

/// The file of the answer about a disk.
fn answer_file(directory: &Path, disk: usize) -> PathBuf {
    directory.join(format!("answer-{disk}"))
}

/// Writes a batch: the healthy disk, and each disk as what differs from it.
///
/// # Errors
/// If the directory cannot be written to.
pub(crate) fn write_batch(directory: &Path, base: &[u8], disks: &[DiskDelta]) -> io::Result<()> {
    write_sparse(&directory.join(BASE), base)?;
    for (index, disk) in disks.iter().enumerate() {
        fs::write(delta_file(directory, index), disk.to_bytes())?;
    }
    Ok(())
}

/// Writes a file without its zeros.
fn write_sparse(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = fs::File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (index, chunk) in bytes.chunks(4096).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            file.write_all_at(chunk, index as u64 * 4096)?;
        }
    }
    Ok(())
}

/// The answers of a batch that are there, in order.
pub fn read_answers(directory: &Path, disks: usize) -> Vec<Mounted> {
    let read = |disk| fs::read(answer_file(directory, disk)).ok();
    let parse = |bytes: Vec<u8>| serde_json::from_slice(&bytes).ok();
    (0..disks).map_while(|disk| read(disk).and_then(parse)).collect()
}

/// Answers a batch from one disk on. To be called in a guest, as root.
///
/// # Errors
/// If the batch cannot be read or answered.
pub fn answer_batch(file_system: &str, directory: &Path, from: usize) -> io::Result<()> {
    let base = fs::read(directory.join(BASE))?;
    let place = tempfile::tempdir()?;
    let (image, root) = (place.path().join("disk.img"), place.path().join("root"));
    fs::create_dir(&root)?;
    let mut kernel = KernelLog::open();
    for disk in from.. {
        let Ok(delta) = fs::read(delta_file(directory, disk)) else { break };
        let mut bytes = base.clone();
        DiskDelta::from_bytes(&delta).apply(&mut bytes);
        write_sparse(&image, &bytes)?;
        drop(bytes);
        kernel.lines();
        let mut mounted = mount_and_look(file_system, &image, &root);
        mounted.complaints = kernel.lines();
        mounted.write(directory, disk)?;
    }
    Ok(())
}

fn mount_and_look(file_system: &str, image: &Path, root: &Path) -> Mounted {
    let options = if file_system == "reiserfs" { "loop,user_xattr" } else { "loop" };
    let output = Command::new("mount")
        .args(["-t", file_system, "-o", options])
        .args([image, root])
        .env("LC_ALL", "C")
        .output();
    let refused = match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    };
    if refused.is_some() {
        return Mounted { refused, ..Mounted::default() };
    }
    let (objects, unreadable) = objects(root);
    let output = Command::new("umount").arg(root).env("LC_ALL", "C").output();
    let mut mounted = Mounted { objects, unreadable, ..Mounted::default() };
    if !output.is_ok_and(|output| output.status.success()) {
        mounted.unreadable.push("/: it cannot be unmounted".to_owned());
    }
    mounted
}

/// Reads every object of a tree; what cannot be read comes with it.
fn objects(root: &Path) -> (Objects, Vec<String>) {
    let mut objects = BTreeMap::new();
    let mut unreadable = Vec::new();
    let mut todo = vec![(String::new(), root.to_owned())];
    while let Some((name, path)) = todo.pop() {
        let shown = if name.is_empty() { "/".to_owned() } else { name.clone() };
        let data = match fs::symlink_metadata(&path) {
            Ok(data) => data,
            Err(error) => {
                unreadable.push(format!("{shown}: {error}"));
                continue;
            }
        };
        if data.is_dir() {
            match fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
                Ok(entries) => todo.extend(entries.into_iter().map(|entry| {
                    let below = String::from_utf8_lossy(entry.file_name().as_bytes()).into_owned();
                    (format!("{name}/{below}"), entry.path())
                })),
                Err(error) => unreadable.push(format!("{shown}: {error}")),
            }
        }
        match object(&path, &data) {
            Ok((object, errors)) => {
                unreadable.extend(errors.iter().map(|error| format!("{shown}: {error}")));
                objects.insert(shown, object);
            }
            Err(error) => unreadable.push(format!("{shown}: {error}")),
        }
        if objects.len() + unreadable.len() > OBJECTS_MAX {
            unreadable.push("/: there is no end of objects".to_owned());
            break;
        }
    }
    (Objects { objects }, unreadable)
}

/// What a user sees of an object, and which of its attributes cannot be read.
fn object(path: &Path, data: &fs::Metadata) -> io::Result<(Object, Vec<String>)> {
    let kind = data.file_type();
    let (name, content) = if kind.is_dir() {
        ("directory", 0)
    } else if kind.is_symlink() {
        ("symlink", XxHash3_128::oneshot(fs::read_link(path)?.as_os_str().as_bytes()))
    } else if kind.is_file() {
        ("file", content(path, data.len())?)
    } else if kind.is_block_device() {
        ("block device", u128::from(data.rdev()))
    } else if kind.is_char_device() {
        ("character device", u128::from(data.rdev()))
    } else {
        (if kind.is_fifo() { "fifo" } else { "socket" }, 0)
    };
    // Size and links of a directory follow from what is in it.
    let plain = |value: u64| if kind.is_dir() { 0 } else { value };
    let (xattrs, errors) =
        if kind.is_symlink() { (Vec::new(), Vec::new()) } else { attributes(path) };
    let object = Object {
        kind: name.to_owned(),
        inode: data.ino(),
        permissions: (data.mode() & 0o7777) as u16,
        owner: (data.uid(), data.gid()),
        links: plain(data.nlink()) as u32,
        size: plain(data.len()),
        content,
        xattrs,
    };
    Ok((object, errors))
}

/// A sum of what a file holds.
fn content(path: &Path, bytes: u64) -> io::Result<u128> {
    let mut file = fs::File::open(path)?;
    let mut held = Vec::new();
    (&mut file).take(BEGINNING_BYTES).read_to_end(&mut held)?;
    if bytes > BEGINNING_BYTES + END_BYTES {
        file.seek(SeekFrom::Start(bytes - END_BYTES))?;
        (&mut file).take(END_BYTES).read_to_end(&mut held)?;
    }
    Ok(XxHash3_128::oneshot(&held))
}

/// The attributes of an object that a user may set, and errors of those that cannot be read.
fn attributes(path: &Path) -> (Vec<(String, u128)>, Vec<String>) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let mut names = vec![0; 65536];
    let bytes = match rustix::fs::llistxattr(path, &mut names) {
        Ok(bytes) => bytes,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => {
            errors.push(format!("its attributes: {error}"));
            0
        }
    };
    for name in names[..bytes].split(|byte| *byte == 0) {
        let name = String::from_utf8_lossy(name).into_owned();
        if !name.starts_with("user.") {
            continue;
        }
        let mut value = vec![0; 65536];
        match rustix::fs::lgetxattr(path, name.as_str(), &mut value) {
            Ok(read) => out.push((name, XxHash3_128::oneshot(&value[..read]))),
            Err(error) => errors.push(format!("attribute {name}: {error}")),
        }
    }
    out.sort();
    (out, errors)
}

/// What the kernel reports, since it was last asked.
struct KernelLog {
    file: Option<fs::File>,
}

impl KernelLog {
    fn open() -> KernelLog {
        use std::os::unix::fs::OpenOptionsExt;
        let file =
            fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        KernelLog { file: file.ok() }
    }

    /// The errors since the last time; warnings and less are none.
    fn lines(&mut self) -> Vec<String> {
        const ERROR: u64 = 3;
        let mut out = Vec::new();
        let Some(file) = &mut self.file else { return out };
        let mut record = vec![0; 8192];
        loop {
            let read = match file.read(&mut record) {
                Ok(0) => break,
                Ok(read) => read,
                // Records were lost, which the next call goes on behind.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => continue,
                Err(_) => break,
            };
            let text = String::from_utf8_lossy(&record[..read]).into_owned();
            let (head, line) = text.split_once(';').unwrap_or(("", &text));
            let level = head.split(',').next().and_then(|word| word.parse::<u64>().ok());
            if level.is_some_and(|level| level & 7 <= ERROR) && out.len() < LINES_MAX {
                out.push(line.lines().next().unwrap_or_default().to_owned());
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_with_what_a_user_sees() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/f"), "hello").unwrap();
        fs::hard_link(root.join("d/f"), root.join("g")).unwrap();
        std::os::unix::fs::symlink("/d", root.join("s")).unwrap();
        let (before, unreadable) = objects(root);
        assert_eq!(unreadable, [""; 0]);
        let paths: Vec<&str> = before.objects.keys().map(String::as_str).collect();
        assert_eq!(paths, ["/", "/d", "/d/f", "/g", "/s"]);
        assert_eq!(before.objects["/g"].links, 2);
        assert_eq!(before.losses(&before), []);
        fs::write(root.join("d/f"), "hellO").unwrap();
        fs::rename(root.join("s"), root.join("t")).unwrap();
        let (after, _) = objects(root);
        let told: Vec<String> =
            before.losses(&after).iter().map(|(path, loss)| format!("{path} {loss}")).collect();
        assert_eq!(
            told,
            ["/d/f its contents changed", "/g its contents changed", "/s moved to /t"]
        );
    }

    #[test]
    fn a_batch_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let base = vec![0; 3 * 4096];
        let disk = DiskDelta::written(&base, &[(4097, vec![1, 2]), (9000, vec![3])]);
        write_batch(dir.path(), &base, &[DiskDelta::default(), disk.clone()]).unwrap();
        let read = fs::read(delta_file(dir.path(), 1)).unwrap();
        assert_eq!(DiskDelta::from_bytes(&read), disk);
        assert_eq!(fs::read(dir.path().join(BASE)).unwrap(), base);
        assert_eq!(read_answers(dir.path(), 2), []);
    }
}
