//! Kernels of our own: a User-Mode Linux kernel is an ordinary process, so that a file system that
//! hangs, oopses or panics ends that process and nothing else.
//!
//! ```text
//!  a name ──► kernel ──► boot ──► what the guest's init runs ──► an end, as data
//!  (resolve)  (probe)    confined, with a seed and a clock of its own
//! ```
//!
//! * [`kernel`]: what a kernel file is and what it can do; [`resolve`]: from a name to a kernel.
//! * [`boot`]: what a guest is given; [`guest`]: one that runs; [`job`]: one that answers a batch.
//! * [`keeper`]: the process between us and the guest, with [`confine`] (what the guest may do on the
//!   host), `answer` (what it is told instead) and `processor` (where it runs).
//! * [`report`]: what a kernel says about its end.
//! * [`kernels`]: builds kernels, and keeps them in the user's cache.
//! * [`init`]: the first process in a guest; [`modules`]: how it loads modules.

mod answer;
pub mod boot;
pub mod confine;
pub mod error;
pub mod guest;
pub mod init;
pub mod job;
pub mod keeper;
pub mod kernel;
pub mod kernels;
pub mod modules;
mod private;
mod processor;
pub mod report;
mod widen;

pub use boot::Boot;
pub use error::{GuestError, Result};
pub use guest::{Guest, GuestEnd};
pub use job::{Job, JobEnd, run_job};
pub use kernel::Kernel;

use std::ffi::OsString;
use std::path::Path;

/// Does what a process of a guest has to do, if this one was started as such: as its keeper, as its first
/// process, or to load a module. To be called before anything else by every program that starts guests,
/// which is to end with the code if there is one.
pub fn take_over() -> Option<i32> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let name = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if name.ends_with(boot::MODPROBE) {
        let wanted = words.last().map(|word| word.to_string_lossy().into_owned());
        return Some(modules::modprobe(&wanted.unwrap_or_default()));
    }
    if let [_, role, dir] = words.as_slice()
        && role == boot::KEEPER
    {
        return Some(keeper::keep(Path::new(dir)));
    }
    // A kernel adds words of its own.
    if std::process::id() == 1 && words.iter().any(|word| word == boot::INIT) {
        init::init();
    }
    None
}

/// The kernel of Debian's package `user-mode-linux`.
const DEBIAN: &str = "/usr/bin/linux.uml";

/// Finds the kernel that a name means: `debian`, the path of a kernel file, a version that was built
/// (`6.12`, `6.12-debug`), or the tree that one was built from. Words of the form `NAME=VALUE` behind it
/// are parameters for its command line: `"6.12 slub_debug=FZ"`.
///
/// # Errors
/// If there is no such kernel, or it is none, or a parameter is one of those that a guest depends on.
pub fn resolve(name: &str) -> Result<Kernel> {
    let (name, parameters) = with_parameters(name);
    let taken = |word: &&&str| {
        let key = word.split('=').next().unwrap_or_default();
        OURS.contains(&key)
    };
    if let Some(word) = parameters.iter().find(taken) {
        return Err(GuestError::Parameter { word: (*word).to_owned() });
    }
    let mut kernel = named(name)?;
    kernel.parameters = parameters.into_iter().map(str::to_owned).collect();
    Ok(kernel)
}

/// Parameters without which a guest is none, or not the one that was asked for.
const OURS: [&str; 12] = [
    "mem",
    "root",
    "rootfstype",
    "rootflags",
    "init",
    "con",
    "con0",
    "ssl",
    "ssl0",
    "ssl1",
    "umid",
    "time-travel",
];

/// The name of a kernel and the words `NAME=VALUE` behind it. A path may have spaces, and a file whose
/// whole name is given is that file.
pub fn with_parameters(text: &str) -> (&str, Vec<&str>) {
    let mut name = text;
    let mut words = Vec::new();
    while !Path::new(name).exists()
        && let Some((before, word)) = name.rsplit_once(' ')
        && word.contains('=')
    {
        words.insert(0, word);
        name = before.trim_end();
    }
    (name, words)
}

/// The kernel of a name alone.
fn named(name: &str) -> Result<Kernel> {
    if name == "debian" {
        let path = Path::new(DEBIAN);
        if !path.exists() {
            return Err(GuestError::NoDebianKernel);
        }
        return kernel::probe(path);
    }
    let path = Path::new(name);
    if path.is_file() {
        return kernel::probe(path);
    }
    if let Some(path) = kernels::Cache::of_user().ok().and_then(|cache| cache.find(name)) {
        return kernel::probe(&path);
    }
    if path.is_dir() {
        return Err(GuestError::NotBuilt { tree: path.to_owned() });
    }
    Err(GuestError::UnknownKernel { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_stand_behind_the_name_of_a_kernel() {
        assert_eq!(with_parameters("6.12"), ("6.12", vec![]));
        assert_eq!(with_parameters("6.12 a=b c=d=e"), ("6.12", vec!["a=b", "c=d=e"]));
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("my tree x=y");
        std::fs::create_dir(&odd).unwrap();
        let odd = odd.to_str().unwrap();
        assert_eq!(with_parameters(odd), (odd, vec![]));
        let given = format!("{odd} fathom_bug=1");
        assert_eq!(with_parameters(&given), (odd, vec!["fathom_bug=1"]));
    }

    #[test]
    fn parameters_that_a_guest_depends_on_are_refused() {
        let error = resolve("6.12 init=/bin/sh").unwrap_err().to_string();
        assert!(error.contains("init=/bin/sh"), "{error}");
        let error = resolve("no-such-kernel a=b").unwrap_err().to_string();
        assert!(error.contains("\"no-such-kernel\""), "{error}");
    }
}
