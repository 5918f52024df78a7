//! Proves on the running kernel that calls are attributed to the right file system.
//!
//! A child looks at known paths; each look has a number of its own in an argument, so each verdict of
//! the tracer is compared with what `statx` says. One wrong verdict, and the tracer is not used.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::object::Object;
use super::stream::Stream;
use crate::error::{Result, TraceError};
use crate::layout::index_of;
use crate::sample::Touch;
use crate::spawn::{Orphans, spawn};
use crate::target::{self, Target};

/// The first access mode of a look. access(2) refuses such modes, so no other program uses them.
const FIRST_MODE: u32 = 0x0100_0000;

/// One path to look at: from which directory, and whether it leads into a target.
struct Look {
    from: Option<CString>,
    path: CString,
    inside: bool,
}

/// Checks the attribution. The tracer must be attached.
pub(super) fn check(object: &mut Object, targets: &[Target], stream: &mut Stream) -> Result<()> {
    let links = Links::new(targets);
    let looks = looks(targets, &links);
    let child = spawn(&["self-test".into()], Orphans::Traced, || {
        look(&looks);
        Err(io::Error::from_raw_os_error(libc::ECANCELED))
    })?;
    object.watch_thread(child.pid, true)?;
    child.go()?.wait()?;
    let access = index_of("access").expect("it is in the table");
    let mut samples = object.samples()?;
    object.clear()?;
    samples.merge(&stream.take());
    for (index, look) in looks.iter().enumerate() {
        let mode = FIRST_MODE + index as u32;
        let here =
            samples.iter().filter(|(sample, _)| sample.call == access && sample.slots[1] == mode);
        let verdicts: Vec<Touch> = here.map(|(sample, _)| sample.touch()).collect();
        let expected: &[Touch] = if look.inside { &[Touch::Inside] } else { &[] };
        if verdicts != expected {
            let from = look
                .from
                .as_ref()
                .map_or(String::new(), |dir| format!(" in {}", dir.to_string_lossy()));
            return Err(TraceError::Unproven(format!(
                "the self-test failed: {}{from} was taken as {verdicts:?} instead of {expected:?}",
                look.path.to_string_lossy()
            )));
        }
    }
    Ok(())
}

/// Looks at every path, in the child: system calls only.
fn look(looks: &[Look]) {
    for (index, look) in looks.iter().enumerate() {
        // SAFETY: paths that end with NUL, integers otherwise.
        unsafe {
            if let Some(dir) = &look.from {
                libc::chdir(dir.as_ptr());
            }
            let mode = FIRST_MODE + index as u32;
            libc::syscall(libc::SYS_access, look.path.as_ptr(), mode);
        }
    }
}

fn looks(targets: &[Target], links: &Links) -> Vec<Look> {
    let mut looks = Vec::new();
    let mut add = |from: Option<&Path>, path: PathBuf| {
        let whole = from.map_or_else(|| path.clone(), |dir| dir.join(&path));
        let Some(inside) = is_inside(&whole, targets) else { return };
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).ok();
        let (Some(path), from) = (text(&path), from.and_then(text)) else { return };
        looks.push(Look { from, path, inside });
    };
    let missing = "fathom-self-test-no-such-name";
    for target in targets {
        let root = target.path.as_path();
        for tail in ["", ".", "..", "../..", missing, ".//./..//."] {
            add(None, root.join(tail));
            add(Some(root), PathBuf::from(if tail.is_empty() { "." } else { tail }));
        }
        if let Ok(relative) = root.strip_prefix("/") {
            add(Some(Path::new("/")), relative.to_owned());
        }
    }
    for link in &links.paths {
        for tail in ["", missing, "..", "../.."] {
            add(None, link.join(tail));
        }
    }
    for path in ["/", "/proc", "/dev/null", "/etc/passwd", "/proc/1/status", "/usr/bin/env"] {
        add(None, path.into());
    }
    looks
}

/// Whether a path leads into a target, by what the kernel says of its mount; the directory decides
/// for a name that does not exist.
fn is_inside(path: &Path, targets: &[Target]) -> Option<bool> {
    let id = target::mount_id(path).or_else(|| target::mount_id(path.parent()?))?;
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    let mount = target::mounts(&text).into_iter().find(|mount| mount.id == id)?;
    Some(targets.iter().any(|target| target.device == mount.device))
}

/// Symbolic links into the targets, where there is a directory for them.
struct Links {
    dir: PathBuf,
    paths: Vec<PathBuf>,
}

impl Links {
    fn new(targets: &[Target]) -> Links {
        let dir = std::env::temp_dir().join(format!("fathom-self-test-{}", std::process::id()));
        let mut paths = Vec::new();
        if std::fs::create_dir(&dir).is_ok() {
            for (index, target) in targets.iter().enumerate() {
                let (first, second) =
                    (dir.join(format!("to-{index}")), dir.join(format!("by-{index}")));
                let relative = format!(
                    "../{}/to-{index}",
                    dir.file_name().unwrap_or_default().to_string_lossy()
                );
                if symlink(&target.path, &first).is_ok() && symlink(relative, &second).is_ok() {
                    paths.extend([first, second]);
                }
            }
        }
        Links { dir, paths }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // The directory may not be ours to remove; then it is not there either.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
