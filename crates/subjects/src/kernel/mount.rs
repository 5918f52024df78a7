//! Detached mounts: a mounted file system that is in no directory tree.
//!
//! `fsopen`, `fsconfig` and `fsmount` (fsmount(2), Linux 5.2) give a descriptor of a mount that was
//! never attached. Nobody else sees it, and it is gone when the last descriptor is closed, also
//! after a `SIGKILL`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::recipe::Recipe;
use crate::error::SubjectError;

/// Mounts `device` (none for a file system without one) as the recipe says.
pub(super) fn mount(recipe: &Recipe, device: Option<&Path>) -> Result<OwnedFd, SubjectError> {
    let context =
        fsopen(recipe.fs_type.as_str(), FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| {
            failed(recipe, "is the file system in this kernel?", None)(errno.into())
        })?;
    let configured = || -> Result<(), (&str, rustix::io::Errno)> {
        if let Some(device) = device {
            fsconfig_set_string(&context, "source", device).map_err(|e| ("its device", e))?;
        }
        for option in &recipe.options {
            match option.split_once('=') {
                Some((key, value)) => fsconfig_set_string(&context, key, value),
                None => fsconfig_set_flag(&context, option.as_str()),
            }
            .map_err(|errno| (option.as_str(), errno))?;
        }
        fsconfig_create(&context).map_err(|errno| ("superblock", errno))
    };
    configured().map_err(|(what, errno)| failed(recipe, what, Some(&context))(errno.into()))?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        .map_err(|errno| failed(recipe, "fsmount", Some(&context))(errno.into()))
}

fn failed(
    recipe: &Recipe,
    what: &str,
    context: Option<&OwnedFd>,
) -> impl FnOnce(io::Error) -> SubjectError {
    let (fs_type, what) = (recipe.fs_type.clone(), what.to_owned());
    let log = context.map(kernel_log).unwrap_or_default();
    move |source| SubjectError::Mount { fs_type, what, source, log }
}

/// Messages can be read from the context, one per read, each with a letter for its severity.
fn kernel_log(context: &OwnedFd) -> String {
    let mut log = String::new();
    let mut line = [0; 1024];
    while let Ok(count) = rustix::io::read(context, &mut line) {
        log.push_str("; ");
        log.push_str(String::from_utf8_lossy(&line[..count]).trim_end());
    }
    log
}
