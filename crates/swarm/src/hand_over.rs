//! Results that come back as an archive, from machines that share no directory with the coordinator.
//!
//! On such a machine the runner writes to a directory of its own, and a *keeper* beside it lives until the
//! results were fetched. Whoever fetches them executes `fathom swarm hand-over` there, which writes an archive
//! of the attempt to its standard output. What arrives is untrusted: names, sizes and kinds are checked before
//! anything is written, and it replaces nothing but the attempt that was asked for.

use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use crate::directory::SwarmDirectory;
use crate::{SwarmError, tar};

/// Entries of one attempt: a run with thousands of findings has fewer.
const ENTRIES_MAX: usize = 200_000;

/// The file that says that somebody has fetched everything.
const FETCHED: &str = "fetched";

/// Time between two looks of a keeper.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a keeper that is asked to end waits for the end of the task and for somebody to fetch it. The grace
/// of a pod is longer.
const LAST_WAIT: Duration = Duration::from_secs(20);

/// Writes an archive of an attempt.
///
/// # Errors
/// If something cannot be read, or nobody reads the archive.
pub fn hand_over(
    directory: &SwarmDirectory,
    name: &str,
    attempt: u32,
    to: &mut impl Write,
) -> Result<(), SwarmError> {
    let root = directory.task(name);
    let failed = |error: io::Error| SwarmError::io(&root, "hand it over", error);
    // What is written after this look is part of the next archive.
    let was_over = directory.ended(name, attempt).is_some();
    let mut folders = vec![PathBuf::from(format!("attempt-{attempt}"))];
    while let Some(folder) = folders.pop() {
        let Some(path) = folder.to_str() else { continue };
        tar::append(to, path, 0o755, None).map_err(failed)?;
        let mut entries: Vec<fs::DirEntry> = match fs::read_dir(root.join(&folder)) {
            Ok(entries) => entries.flatten().collect(),
            // Nothing was written yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let below = folder.join(entry.file_name());
            let (Ok(kind), Some(path)) = (entry.file_type(), below.to_str()) else { continue };
            // The end is the last entry: an archive that has it has everything.
            if kind.is_dir() {
                folders.push(below);
            } else if kind.is_file() && !path.ends_with("/ended.json") {
                // A file that was replaced meanwhile is in the next archive.
                let Ok(bytes) = fs::read(entry.path()) else { continue };
                tar::append(to, path, 0o644, Some(&bytes)).map_err(failed)?;
            }
        }
    }
    if was_over {
        let path = format!("attempt-{attempt}/ended.json");
        let bytes = fs::read(root.join(&path)).map_err(failed)?;
        tar::append(to, &path, 0o644, Some(&bytes)).map_err(failed)?;
    }
    tar::finish(to).map_err(failed)?;
    to.flush().map_err(failed)?;
    if was_over {
        // A keeper that does not hear of it waits a little longer.
        let _ = fs::write(directory.path().join(FETCHED), b"");
    }
    Ok(())
}

/// Waits until the end is asked for; then until the attempt is over and was fetched, but not for long.
pub fn keep(directory: &SwarmDirectory, name: &str, attempt: u32, is_asked: &dyn Fn() -> bool) {
    while !is_asked() {
        std::thread::sleep(LOOK_EVERY);
    }
    let asked = Instant::now();
    let is_fetched =
        || directory.ended(name, attempt).is_some() && directory.path().join(FETCHED).exists();
    while !is_fetched() && asked.elapsed() < LAST_WAIT {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Puts an attempt that came as an archive into its place.
///
/// # Errors
/// If the archive is damaged or holds something that no attempt has; then nothing is changed.
#[cfg_attr(
    not(feature = "kubernetes"),
    allow(dead_code, reason = "only the engine of that feature has results to fetch")
)]
pub(crate) fn take_over(
    directory: &SwarmDirectory,
    name: &str,
    attempt: u32,
    archive: &[u8],
) -> Result<(), SwarmError> {
    let place = directory.attempt(name, attempt);
    let arriving = directory.task(name).join("arriving");
    let failed = |error: io::Error| SwarmError::io(&arriving, "take results over", error);
    clear(&arriving).map_err(failed)?;
    fs::create_dir_all(&arriving).map_err(failed)?;
    let mut entries = 0;
    let taken = tar::read(archive, &mut |path, bytes| {
        entries += 1;
        if entries > ENTRIES_MAX {
            return Err("it has too many entries".to_owned());
        }
        let path = below(attempt, path).ok_or_else(|| format!("{path:?} leads elsewhere"))?;
        let target = arriving.join(path);
        let told = |error: io::Error| format!("{}: {error}", target.display());
        match bytes {
            None => fs::create_dir_all(&target).map_err(told),
            Some(bytes) => {
                fs::create_dir_all(target.parent().unwrap_or(&arriving)).map_err(told)?;
                fs::write(&target, bytes).map_err(told)
            }
        }
    });
    if let Err(reason) = taken {
        clear(&arriving).map_err(failed)?;
        return Err(SwarmError::Other(format!("task {name}: its results are refused: {reason}")));
    }
    // The last step is one rename, so that whoever looks sees all of it or what was there before.
    let before = directory.task(name).join("before");
    clear(&before).map_err(failed)?;
    match fs::rename(&place, &before) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    fs::rename(&arriving, &place).map_err(failed)?;
    clear(&before).map_err(failed)
}

/// The path of an entry below its attempt; none if it would be anywhere else.
fn below(attempt: u32, path: &str) -> Option<PathBuf> {
    let mut parts = Path::new(path).components();
    let first = parts.next()?.as_os_str().to_str()?;
    if first != format!("attempt-{attempt}") {
        return None;
    }
    let mut below = PathBuf::new();
    for part in parts {
        match part {
            Component::Normal(name) => below.push(name),
            _ => return None,
        }
    }
    Some(below)
}

fn clear(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ended, Reason};

    const NAME: &str = "000001-abc";

    fn ended() -> Ended {
        Ended {
            reason: Reason::Found,
            code: Some(1),
            told: String::new(),
            seconds: 1.0,
            memory_bytes: None,
            node: "n1".to_owned(),
            kept_by: String::new(),
        }
    }

    fn swarm() -> (tempfile::TempDir, SwarmDirectory) {
        let temp = tempfile::tempdir().unwrap();
        let directory = SwarmDirectory::new(temp.path());
        fs::create_dir_all(directory.attempt(NAME, 1)).unwrap();
        (temp, directory)
    }

    fn archive_of(directory: &SwarmDirectory) -> Vec<u8> {
        let mut bytes = Vec::new();
        hand_over(directory, NAME, 1, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn an_attempt_arrives_as_it_was() {
        let ((_a, there), (_b, here)) = (swarm(), swarm());
        let attempt = there.attempt(NAME, 1);
        let long = format!("findings/{}/evidence", "f".repeat(60));
        fs::create_dir_all(attempt.join(&long)).unwrap();
        fs::write(attempt.join("run.json"), "{}").unwrap();
        let disk: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        fs::write(attempt.join(&long).join("disk.img"), &disk).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", attempt.join("link")).unwrap();
        take_over(&here, NAME, 1, &archive_of(&there)).unwrap();
        let place = here.attempt(NAME, 1);
        assert_eq!(fs::read(place.join(&long).join("disk.img")).unwrap(), disk);
        assert!(fs::symlink_metadata(place.join("link")).is_err());
        assert_eq!(here.ended(NAME, 1), None);
        assert!(!there.path().join(FETCHED).exists());

        // What was fetched before the end does not stay: the next archive replaces it.
        fs::remove_file(attempt.join("run.json")).unwrap();
        there.end(NAME, 1, &ended()).unwrap();
        take_over(&here, NAME, 1, &archive_of(&there)).unwrap();
        assert_eq!(here.ended(NAME, 1), Some(ended()));
        assert!(!place.join("run.json").exists());
        assert!(there.path().join(FETCHED).exists());
    }

    #[test]
    fn hostile_and_damaged_archives_change_nothing() {
        let (_temp, here) = swarm();
        let kept = here.attempt(NAME, 1).join("kept");
        fs::write(&kept, "kept").unwrap();
        let made = |path: &str| {
            let mut bytes = Vec::new();
            tar::append(&mut bytes, path, 0o644, Some(b"hostile")).unwrap();
            tar::finish(&mut bytes).unwrap();
            bytes
        };
        let good = made("attempt-1/run.json");
        let mut link = good.clone();
        link[156] = b'2';
        let sum: u32 = link[..148].iter().chain(&link[156..512]).map(|b| u32::from(*b)).sum();
        link[148..156].copy_from_slice(format!("{:06o}\0 ", sum + 8 * 32).as_bytes());
        let mut damaged = good.clone();
        damaged[3] ^= 1;
        let hostile = [
            made("../../escaped"),
            made("/etc/fathom-escaped"),
            made("attempt-1/../../escaped"),
            made("attempt-2/run.json"),
            made("task.json"),
            link,
            damaged,
            good[..600].to_vec(),
            good[..512].to_vec(),
            Vec::new(),
        ];
        for (number, archive) in hostile.iter().enumerate() {
            let refused = take_over(&here, NAME, 1, archive);
            assert!(refused.is_err(), "archive {number} was taken");
            assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
            assert!(!here.path().join("escaped").exists());
        }
        take_over(&here, NAME, 1, &good).unwrap();
        assert!(!kept.exists());
    }

    #[test]
    fn a_keeper_ends_once_its_results_were_fetched() {
        let (_temp, there) = swarm();
        there.end(NAME, 1, &ended()).unwrap();
        archive_of(&there);
        let began = Instant::now();
        keep(&there, NAME, 1, &|| true);
        assert!(began.elapsed() < LAST_WAIT);
    }
}
