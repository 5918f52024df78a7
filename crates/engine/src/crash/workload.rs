//! The steps that make sense in a state, in a canonical order.
//!
//! A step is one or a few operations that belong together: `put` is open, write and close, and the
//! power may fail in each of them. New objects take the first free name, written data comes from a
//! seed that no earlier write of the workload had, and only what can succeed is tried: so isomorphic
//! states have isomorphic steps.

use std::collections::BTreeMap;
use std::fmt;

use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::plain::{DIR_MODE, FILE_MODE};
use fathom_core::{FsPath, Kind, Op, Pattern, Slot, Target, Tree};
use serde::{Deserialize, Serialize};

use super::config::CrashConfig;

/// The kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum StepKind {
    /// A new empty file: open, close.
    Create,
    /// A new file with data: open, write, close.
    Put,
    /// New contents for a file: open with `O_TRUNC`, write, close.
    Rewrite,
    /// More data at the end of a file: open, write, close.
    Append,
    /// Half of a file: open, truncate, close.
    Shorten,
    /// A new directory.
    Mkdir,
    /// Another name in the same directory.
    Rename,
    /// Rename over another file or an empty directory, in the same directory.
    Replace,
    /// Another directory.
    Move,
    /// Rename over another file or an empty directory, in another directory.
    MoveOver,
    /// Remove a file.
    Unlink,
    /// Remove an empty directory.
    Rmdir,
    /// Open a file, to keep it open.
    Open,
    /// Write to an open file: at its beginning, and at its end.
    Write,
    /// `fsync` of an open file.
    Fsync,
    /// Close an open file.
    Close,
    /// `sync`
    Sync,
    /// Unmount, mount.
    Remount,
    /// The power failed and the file system recovered (only in the memory of a state).
    #[serde(skip)]
    Crash,
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        for (index, letter) in name.char_indices() {
            if letter.is_uppercase() && index > 0 {
                f.write_str("_")?;
            }
            write!(f, "{}", letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

/// Operations that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The kind of step.
    pub kind: StepKind,
    /// The operations that are executed.
    pub ops: Vec<Op>,
}

/// A slot that steps use for themselves; those that stay open count from 1.
const OWN_SLOT: Slot = 0;

/// The state from which the next steps are made.
pub struct View<'a> {
    /// The settings.
    pub config: &'a CrashConfig,
    /// The present tree.
    pub tree: &'a Tree,
    /// The open files, by slot.
    pub open: &'a BTreeMap<Slot, FsPath>,
    /// No write of the workload so far has used this seed or a larger one.
    pub seed: u64,
}

impl View<'_> {
    /// All steps, in the order of the configuration and of the paths.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for &kind in &self.config.steps {
            let before = steps.len();
            self.of_kind(kind, &mut steps);
            debug_assert!(steps[before..].iter().all(|step| step.kind == kind));
        }
        steps
    }

    fn of_kind(&self, kind: StepKind, steps: &mut Vec<Step>) {
        let mut push = |ops: Vec<Op>| steps.push(Step { kind, ops });
        match kind {
            StepKind::Create => {
                self.free_names(|path| push(vec![open(path, create()), close()]));
            }
            StepKind::Put => self.free_names(|path| {
                for &len in &self.config.sizes {
                    push(vec![open(path.clone(), create()), self.write(0, len), close()]);
                }
            }),
            StepKind::Rewrite => self.files(|path, _| {
                let flags = OpenFlags::O_WRONLY | OpenFlags::O_TRUNC;
                for &len in &self.config.sizes {
                    push(vec![open(path.clone(), flags), self.write(0, len), close()]);
                }
            }),
            StepKind::Append => self.files(|path, size| {
                for &len in &self.config.sizes {
                    let write = self.write(size, len);
                    push(vec![open(path.clone(), OpenFlags::O_WRONLY), write, close()]);
                }
            }),
            StepKind::Shorten => self.files(|path, size| {
                if size > 1 {
                    let target = Target::Slot(OWN_SLOT);
                    let truncate = Op::Truncate { target, len: (size / 2) as i64 };
                    push(vec![open(path.clone(), OpenFlags::O_WRONLY), truncate, close()]);
                }
            }),
            StepKind::Mkdir => self.free_names(|path| {
                if depth(&path) <= self.config.dirs_deep_max {
                    push(vec![Op::Mkdir { path, mode: DIR_MODE }]);
                }
            }),
            StepKind::Unlink => self.files(|path, _| push(vec![Op::Unlink { path }])),
            StepKind::Rmdir => self.empty_dirs(|path| push(vec![Op::Rmdir { path }])),
            StepKind::Rename | StepKind::Replace | StepKind::Move | StepKind::MoveOver => {
                self.renames(kind, push);
            }
            StepKind::Open => self.opens(push),
            StepKind::Write => self.open_files(|slot, size| {
                for &len in &self.config.sizes {
                    push(vec![self.write_slot(slot, 0, len)]);
                    if size > 0 {
                        push(vec![self.write_slot(slot, size, len)]);
                    }
                }
            }),
            StepKind::Fsync => self.open_files(|slot, _| push(vec![Op::Fsync { slot }])),
            StepKind::Close => self.open_files(|slot, _| push(vec![Op::Close { slot }])),
            StepKind::Sync => push(vec![Op::Sync]),
            StepKind::Remount => push(vec![Op::Remount]),
            StepKind::Crash => {}
        }
    }

    fn write(&self, offset: u64, len: u64) -> Op {
        self.write_slot(OWN_SLOT, offset, len)
    }

    fn write_slot(&self, slot: Slot, offset: u64, len: u64) -> Op {
        Op::Pwrite { slot, offset: offset as i64, data: Pattern { seed: self.seed, len } }
    }

    fn is_open(&self, path: &FsPath) -> bool {
        self.open.values().any(|open| open == path)
    }

    /// Nothing inside is open.
    fn is_quiet(&self, dir: &FsPath) -> bool {
        !self.open.values().any(|open| is_inside(open, dir))
    }

    fn dirs(&self) -> impl Iterator<Item = &FsPath> {
        let entries = self.tree.entries.iter();
        entries.filter(|(_, entry)| entry.kind == Kind::Dir).map(|(path, _)| path)
    }

    /// The first name that is free in a directory.
    fn free_name(&self, dir: &FsPath) -> Option<FsPath> {
        let names = self.config.names.iter().map(|name| dir.join(name.as_bytes()));
        names.into_iter().find(|path| !self.tree.entries.contains_key(path))
    }

    /// A new path in every directory.
    fn free_names(&self, mut found: impl FnMut(FsPath)) {
        self.dirs().filter_map(|dir| self.free_name(dir)).for_each(&mut found);
    }

    /// Files that are not open, with their sizes.
    fn files(&self, mut found: impl FnMut(FsPath, u64)) {
        for (path, entry) in &self.tree.entries {
            if entry.kind == Kind::File && !self.is_open(path) {
                found(path.clone(), entry.size);
            }
        }
    }

    fn is_empty(&self, dir: &FsPath) -> bool {
        dir.parent().is_some() && !self.tree.entries.keys().any(|path| is_inside(path, dir))
    }

    fn empty_dirs(&self, mut found: impl FnMut(FsPath)) {
        for dir in self.dirs().filter(|dir| self.is_empty(dir)) {
            found(dir.clone());
        }
    }

    fn opens(&self, mut push: impl FnMut(Vec<Op>)) {
        let free = (1..=self.config.open_max).find(|slot| !self.open.contains_key(slot));
        let Some(slot) = free else { return };
        self.files(|path, _| {
            push(vec![Op::Open { slot, path, flags: OpenFlags::O_RDWR, mode: FILE_MODE }]);
        });
    }

    fn open_files(&self, mut found: impl FnMut(Slot, u64)) {
        for (&slot, path) in self.open {
            found(slot, self.tree.entries.get(path).map_or(0, |entry| entry.size));
        }
    }

    /// Renames of one kind, of everything that is not open.
    fn renames(&self, kind: StepKind, mut push: impl FnMut(Vec<Op>)) {
        let aside = matches!(kind, StepKind::Move | StepKind::MoveOver);
        let over = matches!(kind, StepKind::Replace | StepKind::MoveOver);
        let mut rename = |from: &FsPath, to: FsPath| {
            push(vec![Op::Rename { from: from.clone(), to, flags: RenameFlags::empty() }]);
        };
        for (from, entry) in &self.tree.entries {
            let Some(home) = from.parent() else { continue };
            let is_dir = entry.kind == Kind::Dir;
            if self.is_open(from) || (is_dir && !self.is_quiet(from)) {
                continue;
            }
            for dir in self.dirs().filter(|dir| (**dir == home) != aside) {
                if is_inside(dir, from) || dir == from || !self.fits(from, is_dir, dir) {
                    continue;
                }
                if over {
                    self.victims(from, entry.kind, dir).for_each(|to| rename(from, to.clone()));
                } else if let Some(to) = self.free_name(dir) {
                    rename(from, to);
                }
            }
        }
    }

    /// Whether a directory may go there without becoming too deep.
    fn fits(&self, from: &FsPath, is_dir: bool, dir: &FsPath) -> bool {
        if !is_dir {
            return true;
        }
        let below = self.dirs().filter(|path| is_inside(path, from));
        let height = below.map(|path| depth(path) - depth(from)).max().unwrap_or(0);
        depth(dir) + 1 + height <= self.config.dirs_deep_max
    }

    /// Lists what a rename of `from` could replace in `dir`.
    fn victims(&self, from: &FsPath, kind: Kind, dir: &FsPath) -> impl Iterator<Item = &FsPath> {
        self.tree.entries.iter().filter_map(move |(path, entry)| {
            let fit = path.parent().as_ref() == Some(dir) && path != from && entry.kind == kind;
            let free = !self.is_open(path) && (kind != Kind::Dir || self.is_empty(path));
            (fit && free).then_some(path)
        })
    }
}

fn create() -> OpenFlags {
    OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_EXCL
}

fn open(path: FsPath, flags: OpenFlags) -> Op {
    Op::Open { slot: OWN_SLOT, path, flags, mode: FILE_MODE }
}

fn close() -> Op {
    Op::Close { slot: OWN_SLOT }
}

/// Whether `path` lies below `dir` (which is not the root's own name).
fn is_inside(path: &FsPath, dir: &FsPath) -> bool {
    path.as_bytes().strip_prefix(dir.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Returns how many levels below the root a path is.
fn depth(path: &FsPath) -> usize {
    match path.as_bytes() {
        b"." => 0,
        bytes => 1 + bytes.iter().filter(|byte| **byte == b'/').count(),
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::PlainTree;

    use super::*;

    fn steps(kinds: &[StepKind], tree: &Tree) -> Vec<String> {
        let config = CrashConfig { steps: kinds.to_vec(), ..CrashConfig::default() };
        let view = View { config: &config, tree, open: &BTreeMap::new(), seed: 7 };
        let text =
            |step: Step| step.ops.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        view.steps().into_iter().map(text).collect()
    }

    #[test]
    fn only_what_makes_sense_and_in_order() {
        let mut plain = PlainTree::new();
        plain.dir("a".into());
        plain.file("b".into(), b"xx");
        let tree = plain.finish();
        assert_eq!(
            steps(&[StepKind::Move, StepKind::Rename, StepKind::Unlink, StepKind::Rmdir], &tree),
            [
                r#"rename("b", "a/a")"#,
                r#"rename("a", "c")"#,
                r#"rename("b", "c")"#,
                r#"unlink("b")"#,
                r#"rmdir("a")"#
            ]
        );
        assert_eq!(steps(&[StepKind::Mkdir], &tree), [r#"mkdir("c", 0755)"#]);
        let mut open = BTreeMap::new();
        open.insert(1, FsPath::from("b"));
        let config = CrashConfig {
            steps: vec![StepKind::Unlink, StepKind::Open, StepKind::Close, StepKind::Fsync],
            ..CrashConfig::default()
        };
        let view = View { config: &config, tree: &tree, open: &open, seed: 7 };
        let ops: Vec<Op> = view.steps().into_iter().flat_map(|step| step.ops).collect();
        assert_eq!(ops, [Op::Close { slot: 1 }, Op::Fsync { slot: 1 }]);
    }

    #[test]
    fn kinds_print_as_they_are_configured() {
        for kind in [StepKind::Put, StepKind::MoveOver] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
        }
    }
}
