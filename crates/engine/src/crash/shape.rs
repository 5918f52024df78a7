//! The shape of a state: its tree up to names and contents, and how it came about.
//!
//! The encoding of Aho, Hopcroft and Ullman for rooted trees, extended: a file is its size and
//! whether it is open, a directory is the sorted encodings of its children. Two trees with the same
//! encoding are isomorphic, and the workloads that follow are the same up to names: one of them is
//! enough.
//!
//! Almost. A file system remembers more than its tree: logs that are nearly full, blocks that were
//! freed, moves that are not cleaned up. States that look alike but came about differently behave
//! differently, so the kinds of the last `k` steps belong to the shape. With `k = 0` bugs are missed
//! (a test shows one); with every step remembered nothing is ever the same.

use std::collections::BTreeMap;

use fathom_core::{Digest, FsPath, Kind, Tree};

use super::workload::StepKind;

/// Domain of the digest of a shape.
const DOMAIN_SHAPE: u64 = 17;

/// The encoding of a tree. `open` says which paths are open.
pub(crate) fn encode(tree: &Tree, open: &dyn Fn(&FsPath) -> bool) -> Vec<u8> {
    let mut children: BTreeMap<FsPath, Vec<Vec<u8>>> = BTreeMap::new();
    // Paths are sorted, so children come after their parents: backwards every directory is complete
    // when it is met.
    for (path, entry) in tree.entries.iter().rev() {
        let mut code = Vec::new();
        if entry.kind == Kind::Dir {
            let mut inside = children.remove(path).unwrap_or_default();
            inside.sort_unstable();
            code.push(b'[');
            code.extend(inside.into_iter().flatten());
            code.push(b']');
        } else {
            code.push(if open(path) { b'*' } else { b'f' });
            code.extend(entry.size.to_be_bytes());
        }
        match path.parent() {
            Some(above) => children.entry(above).or_default().push(code),
            None => return code,
        }
    }
    Vec::new()
}

/// The identity of a shape that came about by these last steps.
pub(crate) fn key(encoding: &[u8], recent: &[StepKind]) -> Digest {
    let mut bytes = encoding.to_vec();
    bytes.extend(recent.iter().map(|kind| *kind as u8));
    bytes.push(recent.len() as u8);
    Digest::of(DOMAIN_SHAPE, &bytes)
}

#[cfg(test)]
mod tests {
    use fathom_core::PlainTree;

    use super::*;

    fn tree(dirs: &[&str], files: &[(&str, usize)]) -> Tree {
        let mut plain = PlainTree::new();
        for dir in dirs {
            plain.dir((*dir).into());
        }
        for (path, size) in files {
            plain.file((*path).into(), &vec![1; *size]);
        }
        plain.finish()
    }

    fn code(dirs: &[&str], files: &[(&str, usize)]) -> Vec<u8> {
        encode(&tree(dirs, files), &|_| false)
    }

    #[test]
    fn names_and_order_do_not_matter_but_structure_does() {
        let one = code(&["a", "b"], &[("a/x", 1), ("c", 2)]);
        assert_eq!(one, code(&["x", "y"], &[("y/a", 1), ("0", 2)]));
        assert_ne!(one, code(&["a", "b"], &[("a/x", 2), ("c", 1)]));
        assert_ne!(one, code(&["a", "a/b"], &[("a/x", 1), ("c", 2)]));
        assert_ne!(one, code(&["a", "b"], &[("a/x", 1), ("a/c", 2)]));
        // Names that sort between a directory and its children.
        assert_eq!(code(&["a"], &[("a/x", 1), ("a!", 2)]), code(&["b"], &[("b/x", 1), ("c", 2)]));
    }

    #[test]
    fn open_files_and_the_last_steps_matter() {
        let tree = tree(&[], &[("a", 1)]);
        let closed = encode(&tree, &|_| false);
        assert_ne!(closed, encode(&tree, &|path| path.as_bytes() == b"a"));
        assert_ne!(key(&closed, &[]), key(&closed, &[StepKind::Put]));
        assert_ne!(key(&closed, &[StepKind::Put]), key(&closed, &[StepKind::Put, StepKind::Put]));
    }
}
