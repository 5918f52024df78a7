//! Workloads with fewer directories (`d0/d1/f0` as `d1/f0`) and with short names, in every operation at
//! once.

use std::collections::BTreeSet;

use fathom_core::{FsPath, Op, OperandMut, Target};

/// Versions of `ops` in which one directory is left out of every path that goes through it.
pub(super) fn shorten_paths(ops: &[Op]) -> Vec<Vec<Op>> {
    let mut parents = BTreeSet::new();
    for op in ops {
        for path in paths(&mut op.clone()) {
            parents.extend(path.parent().filter(|parent| parent.as_bytes() != b"."));
        }
    }
    parents.iter().map(|parent| without(ops, parent)).collect()
}

fn without(ops: &[Op], dir: &FsPath) -> Vec<Op> {
    let prefix = [dir.as_bytes(), b"/"].concat();
    let above = dir.parent().unwrap_or_else(|| FsPath::from("."));
    let mut ops = ops.to_vec();
    for path in ops.iter_mut().flat_map(paths) {
        if let Some(rest) = path.as_bytes().strip_prefix(prefix.as_slice()) {
            *path = above.join(rest);
        }
    }
    ops
}

/// Names up to this length are left as they are.
const SHORT: usize = 8;

/// Versions of `ops` in which one long name is a short one that nothing else has.
///
/// Texts that are no path arguments (the target of a symbolic link) keep the long name, so a version may
/// do something else; whoever asks runs it.
pub(super) fn shorten_names(ops: &[Op]) -> Vec<Vec<Op>> {
    let mut names = BTreeSet::new();
    for op in ops {
        for path in paths(&mut op.clone()) {
            names.extend(path.as_bytes().split(|byte| *byte == b'/').map(<[u8]>::to_vec));
        }
    }
    let Some(free) = (b'a'..=b'z').find(|letter| !names.contains(&vec![*letter])) else {
        return Vec::new();
    };
    let long = names.iter().filter(|name| name.len() > SHORT);
    long.map(|name| renamed(ops, name, &[free])).collect()
}

fn renamed(ops: &[Op], from: &[u8], to: &[u8]) -> Vec<Op> {
    let mut ops = ops.to_vec();
    for path in ops.iter_mut().flat_map(paths) {
        let parts = path.as_bytes().split(|byte| *byte == b'/');
        let parts: Vec<&[u8]> = parts.map(|part| if part == from { to } else { part }).collect();
        *path = parts.join(&b'/').into();
    }
    ops
}

/// Every path argument.
fn paths(op: &mut Op) -> Vec<&mut FsPath> {
    let mut paths = Vec::new();
    op.operands_mut(|operand| {
        if let OperandMut::Path(path, ..)
        | OperandMut::Target(Target::Path(path) | Target::Link(path), ..) = operand
        {
            paths.push(path);
        }
    });
    paths
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::RenameFlags;

    use super::*;

    #[test]
    fn a_directory_is_left_out_everywhere() {
        let link =
            |from: &str, to: &str| Op::Link { from: from.into(), to: to.into(), follow: false };
        let ops = [Op::Rmdir { path: "a/b/c".into() }, link("a/b/x", "a/y")];
        let versions = shorten_paths(&ops);
        assert_eq!(versions.len(), 2);
        assert_eq!(versions[0], [Op::Rmdir { path: "b/c".into() }, link("b/x", "y")]);
        assert_eq!(versions[1], [Op::Rmdir { path: "a/c".into() }, link("a/x", "a/y")]);
    }

    #[test]
    fn a_long_name_becomes_a_free_letter_everywhere() {
        let long = "x".repeat(255);
        let rename = |from: &str, to: &str| Op::Rename {
            from: from.into(),
            to: to.into(),
            flags: RenameFlags::empty(),
        };
        let ops = [
            Op::Rmdir { path: format!("a/{long}").as_str().into() },
            rename(long.as_str(), "short"),
        ];
        let versions = shorten_names(&ops);
        assert_eq!(versions, [[Op::Rmdir { path: "a/b".into() }, rename("b", "short")]]);
        assert!(shorten_names(&versions[0]).is_empty());
    }
}
