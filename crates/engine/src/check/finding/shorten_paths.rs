//! Workloads with fewer directories: `d0/d1/f0` as `d1/f0`, in every operation at once.

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
}
