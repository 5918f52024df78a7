//! What an examination says about a disk after the power came back, in the words of the judge.
//!
//! Nothing here depends on what should be there: one disk is examined once, however many workloads
//! lead to it.

use fathom_block::Level;
use std::sync::Arc;

use fathom_block::disks::{
    Accounts, Checked, Facts, Interrupted, Questions, Recheck, SubjectFailure, Trouble, View,
};
use fathom_core::Digest;
use serde::{Deserialize, Serialize};

use super::config::CrashConfig;
use super::judge::Class;

/// Something that no crash may cause, whatever was promised about the contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    /// The class of the defect.
    pub class: Class,
    /// The defect in words.
    pub what: String,
}

impl Defect {
    /// The same image looks different every time.
    pub(super) fn two_trees() -> Defect {
        Defect::new(Class::NonDeterministic, "the same image mounted twice shows two trees")
    }

    fn new(class: Class, what: impl Into<String>) -> Defect {
        Defect { class, what: what.into() }
    }
}

/// Facts about a crash image, as the judge needs them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The digest of the tree that is visible after mounting.
    pub tree: Digest,
    /// What was said of the regular files then. Not saved: what was judged before an interruption is.
    #[serde(skip)]
    pub accounts: Arc<Accounts>,
    /// Bytes that one file could take before the disk was full; `None` if that was not tried.
    pub capacity_bytes: Option<u64>,
    /// Whether recovery wrote to the device.
    pub wrote: bool,
    /// The first thing that went wrong.
    pub defect: Option<Defect>,
}

/// What is asked about every crash image, with the power failures of a run; `tree`: also the whole
/// tree, where examining an image again would take longer than keeping that.
pub fn questions(config: &CrashConfig, levels: &[Level], tree: bool) -> Questions {
    let (usable, checker) = (config.probe, config.fsck);
    let recheck = config.recheck.then(|| Recheck { torn: levels.contains(&Level::Torn) });
    Questions { tree, repaired: false, recheck, usable, checker }
}

impl From<&Facts> for Recovered {
    fn from(facts: &Facts) -> Recovered {
        Recovered {
            tree: facts.view.as_ref().map_or_else(|_| Digest::default(), |view| view.digest),
            accounts: Arc::clone(&facts.accounts),
            capacity_bytes: facts.capacity_bytes,
            wrote: facts.wrote,
            defect: defect(facts),
        }
    }
}

fn defect(facts: &Facts) -> Option<Defect> {
    match &facts.view {
        Err(failure) => return Some(unmountable(failure)),
        Ok(view) => {
            if let Some(defect) = unreadable(view) {
                return Some(defect);
            }
        }
    }
    if let Some(trouble) = &facts.trouble {
        return Some(troubled(trouble));
    }
    if let Checked::Complains(complaint) = &facts.checker {
        return Some(Defect::new(Class::Rejected, complaint));
    }
    facts.kernel_lines.first().map(|line| Defect::new(Class::KernelComplains, line))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn unmountable(failure: &SubjectFailure) -> Defect {
    let what = match failure {
        SubjectFailure::Mount(errno) => format!("mount fails with {errno}"),
        SubjectFailure::Panic(message) => format!("panics: {}", first_line(message)),
    };
    Defect::new(Class::Unmountable, what)
}

/// The first entry that cannot be looked at.
fn unreadable(view: &View) -> Option<Defect> {
    let (path, entry) = view.broken.as_ref()?;
    let broken = entry.broken.as_ref()?;
    let what = format!("{}({path:?}) fails with {}", broken.call, broken.errno);
    Some(Defect::new(Class::Unreadable, what))
}

fn troubled(trouble: &Trouble) -> Defect {
    let (class, what) = match trouble {
        Trouble::TwoTrees => return Defect::two_trees(),
        Trouble::Recovery(errno) => (Class::NotUsable, format!("recovery fails with {errno}")),
        Trouble::RecoveryChanges => {
            (Class::NotIdempotent, "recovery changes the visible tree".to_owned())
        }
        Trouble::Unmount(errno) => (Class::NotUsable, format!("unmount fails with {errno}")),
        Trouble::Interrupted(Interrupted::OtherTree) => {
            let what = "recovery, interrupted and repeated, gives another tree";
            (Class::NotIdempotent, what.to_owned())
        }
        Trouble::Interrupted(Interrupted::Unmountable) => {
            let what = "recovery, interrupted, leaves what cannot be mounted";
            (Class::NotIdempotent, what.to_owned())
        }
        Trouble::InterruptedAt(_, what) => (Class::NotIdempotent, what.clone()),
        Trouble::MountsOnce(errno) => {
            (Class::NotIdempotent, format!("mounts once, then fails with {errno}"))
        }
        Trouble::RemountChanges => {
            let what = "after recovery and a clean remount another tree is visible";
            (Class::NotIdempotent, what.to_owned())
        }
        Trouble::Unusable(what) => (Class::NotUsable, what.clone()),
        Trouble::FreedSpaceGone { first_bytes, again_bytes } => {
            let what = format!(
                "{first_bytes} bytes fit, then not even {again_bytes}: freed space is gone"
            );
            (Class::Leak, what)
        }
        Trouble::LeavesTraces(what) => {
            (Class::NotUsable, format!("files made and removed again leave another tree: {what}"))
        }
        Trouble::Panic(message) => {
            (Class::NotUsable, format!("panics when used: {}", first_line(message)))
        }
    };
    Defect::new(class, what)
}
