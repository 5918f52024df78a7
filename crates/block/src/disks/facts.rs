//! What can be asked about a disk, and the answers.

use std::sync::Arc;
use std::time::Duration;

use fathom_core::{Digest, Entry, Errno, FsPath, Tree};
use serde::{Deserialize, Serialize};

use super::account::Accounts;
use super::neighbours::PruneCounts;
use crate::reads::ReadSet;

/// What is asked about each disk of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Questions {
    /// The whole tree, rather than only its digest.
    pub tree: bool,
    /// The whole tree after the part of recovery that the file system postpones.
    pub repaired: bool,
    /// Whether mounting and recovering again changes anything.
    pub recheck: Option<Recheck>,
    /// Whether the file system can be used, and how much fits. Only with `recheck`.
    pub usable: bool,
    /// What the checker says after a clean unmount. Only with `recheck`.
    pub checker: bool,
}

impl Questions {
    /// The digest of the tree and nothing else.
    pub const VIEW: Questions =
        Questions { tree: false, repaired: false, recheck: None, usable: false, checker: false };

    /// The tree and nothing else.
    pub const TREE: Questions =
        Questions { tree: true, repaired: false, recheck: None, usable: false, checker: false };
}

/// How recovery is interrupted to see whether it can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recheck {
    /// The writes of recovery are torn too, rather than only stopped between.
    pub torn: bool,
}

/// A file system that did not even come to an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubjectFailure {
    /// It refused to mount.
    Mount(Errno),
    /// It panicked; the message.
    Panic(String),
}

/// What a mounted disk shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Digest of the tree.
    pub digest: Digest,
    /// The first entry that is listed and cannot be looked at.
    pub broken: Option<(FsPath, Entry)>,
    /// The tree, if it was asked for.
    pub tree: Option<Arc<Tree>>,
}

impl View {
    /// Describes a tree; `keep` says whether the view keeps it.
    pub fn new(tree: &Arc<Tree>, keep: bool) -> View {
        let broken = tree.entries.iter().find(|(_, entry)| entry.broken.is_some());
        View {
            digest: tree.digest(),
            broken: broken.map(|(path, entry)| (path.clone(), entry.clone())),
            tree: keep.then(|| Arc::clone(tree)),
        }
    }
}

/// The first thing that went wrong while a disk that mounts was mounted again and used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// The same disk, mounted twice, shows two trees.
    TwoTrees,
    /// Recovery was refused.
    Recovery(Errno),
    /// Recovery changes the visible tree.
    RecoveryChanges,
    /// Unmounting failed.
    Unmount(Errno),
    /// Recovery was interrupted and repeated, with another result.
    Interrupted(Interrupted),
    /// As before; where it was interrupted, and what became of it.
    InterruptedAt(Interrupted, String),
    /// It mounted once and then not again.
    MountsOnce(Errno),
    /// After recovery and a clean remount another tree is visible.
    RemountChanges,
    /// An ordinary operation failed; which, and how.
    Unusable(String),
    /// Space that was freed cannot be used again.
    FreedSpaceGone {
        /// Bytes that fitted at first.
        first_bytes: u64,
        /// Bytes that should have fitted again.
        again_bytes: u64,
    },
    /// Files that were made and removed again leave another tree; the first difference.
    LeavesTraces(String),
    /// It panicked after the first look; the message.
    Panic(String),
}

/// What an interrupted and repeated recovery came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interrupted {
    /// Another tree.
    OtherTree,
    /// A disk that does not mount.
    Unmountable,
}

/// What the checker said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Checked {
    /// It was not asked, or there is none.
    #[default]
    NotAsked,
    /// It has nothing to complain of.
    Content,
    /// It complains.
    Complains(String),
}

/// Facts that an examination established about one disk. Questions after the first trouble are not
/// asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// What mounting shows, or why it shows nothing.
    pub view: Result<View, SubjectFailure>,
    /// What is said of the regular files at the first look.
    #[serde(default)]
    pub accounts: Arc<Accounts>,
    /// Visible once the file system has repaired itself, if that was asked.
    pub repaired: Option<Result<Arc<Tree>, SubjectFailure>>,
    /// Whether recovery wrote to the device.
    pub wrote: bool,
    /// Bytes that one file could take before the disk was full, if that was tried.
    pub capacity_bytes: Option<u64>,
    /// The first trouble when it was mounted again and used.
    pub trouble: Option<Trouble>,
    /// What the checker said.
    pub checker: Checked,
    /// Whether what comes after the first look (the checker, the second mount, the use) was known from a disk
    /// that recovery left equal to this one wherever that was read then; as counts of this one disk. If an
    /// examination showed something else, it is what that showed.
    pub rest: PruneCounts,
    /// What the kernel said meanwhile, line by line.
    pub kernel_lines: Vec<String>,
    /// How long the examination took.
    pub took: Duration,
    /// What the examination read of the disk as it was given.
    pub read: ReadSet,
}

impl Facts {
    /// Facts of a disk about which nothing but this is known.
    pub fn new(view: Result<View, SubjectFailure>) -> Facts {
        Facts {
            view,
            accounts: Arc::default(),
            repaired: None,
            wrote: false,
            capacity_bytes: None,
            trouble: None,
            checker: Checked::NotAsked,
            rest: PruneCounts::default(),
            kernel_lines: Vec::new(),
            took: Duration::ZERO,
            read: ReadSet::everything(),
        }
    }

    /// Whether two examinations came to the same. What they read and how long they took does not
    /// count, nor what the kernel said (it tells times and addresses).
    pub fn agree_with(&self, other: &Facts) -> bool {
        let Facts { view, repaired, wrote, capacity_bytes, trouble, checker, .. } = self;
        *view == other.view
            && *repaired == other.repaired
            && (*wrote, *capacity_bytes) == (other.wrote, other.capacity_bytes)
            && (trouble, checker) == (&other.trouble, &other.checker)
    }
}
