//! A short way to the state in which a violation happened: made from the tree, without its history.
//!
//! Most violations depend on where the file system is, not on how it came there. A few dozen
//! operations that build the same names, kinds, owners and modes often lead to the same violation as
//! thousands of random ones, and are quickly shrunk. File contents are made up: a tree only has
//! their digest. If the violation does not appear, nothing is lost but one run.

use fathom_core::flags::{OpenFlags, XattrFlags};
use fathom_core::{Entry, FsPath, Kind, Mode, Op, Pattern, Slot, Target};
use fathom_model::{Config, Model, TreeOptions};

/// The slot for writing contents; whatever it holds in the original run is opened later.
const SCRATCH_SLOT: Slot = 0;
/// Larger files only get their size.
const CONTENT_BYTES_MAX: u64 = 1 << 20;

/// Operations that build the tree before the last of `ops`, open what was open, and end with it.
pub(super) fn rebuilt(reference: &Config, ops: &[Op]) -> Option<Vec<Op>> {
    let (last, history) = ops.split_last()?;
    let mut model = Model::new(Config { mutant: None, ..reference.clone() }).ok()?;
    for op in history {
        model.execute(op);
    }
    let mut out = vec![Op::Umask { mask: Mode(0) }];
    let tree = model.volume().tree(TreeOptions::default());
    for (path, entry) in &tree.entries {
        out.extend(make(path, entry));
    }
    // Modes and owners last, the deepest first: nothing is in the way of making the rest.
    for (path, entry) in tree.entries.iter().rev().filter(|(_, entry)| entry.same_as.is_none()) {
        out.extend(attribute_ops(path, entry));
    }
    let is_umask = |op: &&Op| matches!(op, Op::Umask { .. });
    let umask = history.iter().rev().find(is_umask).cloned();
    out.push(umask.unwrap_or(Op::Umask { mask: reference.umask }));
    out.extend(opened(history));
    out.extend(history.iter().rev().find(|op| matches!(op, Op::Identity { .. })).cloned());
    out.push(last.clone());
    Some(out)
}

/// The history since the last remount but one, before which everything was as it should be; what was
/// there then is made anew. A violation that a remount shows has its cause after the one before.
pub(super) fn since_last_remount(reference: &Config, ops: &[Op]) -> Option<Vec<Op>> {
    let before_last = &ops[..ops.len().checked_sub(1)?];
    let remount = before_last.iter().rposition(|op| *op == Op::Remount)?;
    let mut out = rebuilt(reference, &ops[..=remount])?;
    out.extend_from_slice(&ops[remount + 1..]);
    Some(out)
}

fn make(path: &FsPath, entry: &Entry) -> Vec<Op> {
    let path = path.clone();
    if path.as_bytes() == b"." {
        return Vec::new();
    }
    if let Some(first) = &entry.same_as {
        return vec![Op::Link { from: first.clone(), to: path, follow: false }];
    }
    match entry.kind {
        Kind::Dir => vec![Op::Mkdir { path, mode: Mode(0o755) }],
        Kind::Symlink => vec![Op::Symlink { target: entry.target.clone(), path }],
        Kind::File => make_file(path, entry.size),
        kind => {
            let mode = Mode(kind.mode_bits() | 0o644);
            vec![Op::Mknod { path, mode, dev: entry.rdev }]
        }
    }
}

fn make_file(path: FsPath, size: u64) -> Vec<Op> {
    let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT;
    let open = Op::Open { slot: SCRATCH_SLOT, path: path.clone(), flags, mode: Mode(0o644) };
    let fill = match size {
        0 => None,
        size if size <= CONTENT_BYTES_MAX => {
            let data = Pattern { seed: 1, len: size };
            Some(Op::Write { slot: SCRATCH_SLOT, data })
        }
        size => Some(Op::Truncate { target: Target::Path(path), len: size as i64 }),
    };
    [Some(open), fill, Some(Op::Close { slot: SCRATCH_SLOT })].into_iter().flatten().collect()
}

/// Attributes, owner and mode, in this order: each may be lost by the one before.
fn attribute_ops(path: &FsPath, entry: &Entry) -> Vec<Op> {
    let link = || Target::Link(path.clone());
    let value = Pattern { seed: 1, len: 1 };
    let flags = XattrFlags::empty();
    let xattrs = entry.xattrs.keys();
    let mut out: Vec<Op> = xattrs
        .map(|name| Op::Setxattr { target: link(), name: name.clone(), value, flags })
        .collect();
    if (entry.uid, entry.gid) != (0, 0) {
        out.push(Op::Chown { target: link(), uid: Some(entry.uid), gid: Some(entry.gid) });
    }
    if entry.kind != Kind::Symlink {
        out.push(Op::Chmod { target: Target::Path(path.clone()), mode: entry.mode });
    }
    out
}

/// The last opening of every slot since the last remount.
fn opened(history: &[Op]) -> Vec<Op> {
    let start = history.iter().rposition(|op| *op == Op::Remount).map_or(0, |at| at + 1);
    let mut opens: Vec<&Op> = Vec::new();
    for op in &history[start..] {
        if let Op::Open { slot, .. } | Op::Close { slot } = op {
            opens.retain(|open| !matches!(open, Op::Open { slot: other, .. } if other == slot));
        }
        if let Op::Open { .. } = op {
            opens.push(op);
        }
    }
    opens.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rebuilt_tree_has_the_same_names_kinds_owners_and_modes() {
        let reference = Config::default();
        let file = |path: &str, slot| Op::Open {
            slot,
            path: path.into(),
            flags: OpenFlags::O_WRONLY | OpenFlags::O_CREAT,
            mode: Mode(0o600),
        };
        let ops = [
            Op::Umask { mask: Mode(0o077) },
            Op::Mkdir { path: "d".into(), mode: Mode(0o2775) },
            Op::Chown { target: Target::Path("d".into()), uid: Some(5), gid: Some(6) },
            Op::Chmod { target: Target::Path("d".into()), mode: Mode(0o2500) },
            file("d/f", 1),
            Op::Pwrite { slot: 1, offset: 10, data: Pattern { seed: 9, len: 10 } },
            Op::Link { from: "d/f".into(), to: "g".into(), follow: false },
            Op::Symlink { target: "d".into(), path: "s".into() },
            Op::Sync,
        ];
        let tree = |ops: &[Op]| {
            let mut model = Model::new(reference.clone()).unwrap();
            for op in ops {
                model.execute(op);
            }
            let mut tree = model.volume().tree(TreeOptions::default());
            tree.entries.values_mut().for_each(|entry| entry.content = Default::default());
            tree
        };
        let rebuilt = rebuilt(&reference, &ops).unwrap();
        assert_eq!(tree(&rebuilt), tree(&ops));
        assert_eq!(rebuilt.last(), Some(&Op::Sync));
        assert!(rebuilt.contains(&file("d/f", 1)) && rebuilt.contains(&ops[0]));
    }
}
