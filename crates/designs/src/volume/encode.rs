//! The identity of a state: its tree up to names and contents, and its last operations.
//!
//! The AHU encoding of unordered trees (Aho, Hopcroft and Ullman, 1974), extended as the study of
//! MC³ does: directories and files are told apart, files have their length and may be open. The code of a
//! directory is made of the sorted codes of its entries, so it depends neither on names nor on their
//! order.
//! Codes are 64-bit hashes instead of strings: a node costs one multiplication, not a concatenation.

use super::shadow::{Path, Tree};

/// Spreads bits; the constants are those of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Computes the code of a tree.
pub(super) fn shape(tree: &Tree) -> u64 {
    directory(tree, Path::ROOT)
}

/// Computes the code of a directory. A sum does not depend on the order of its terms: no need to
/// sort.
fn directory(tree: &Tree, path: Path) -> u64 {
    let mut sum = 0x9e37_79b9_7f4a_7c15_u64;
    for entry in tree.children(path) {
        let code = match entry.len {
            Some(len) => mix(2 * u64::from(len) + 1 + u64::from(entry.open)),
            None => directory(tree, entry.path),
        };
        sum = sum.wrapping_add(code);
    }
    mix(sum ^ 0x5bd1_e995)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, Option<usize>)]) -> Tree {
        let mut tree = Tree::default();
        for (path, len) in entries {
            let path = path.bytes().try_fold(Path::ROOT, |path, name| path.join(name)).unwrap();
            assert!(tree.add(path, len.map(|len| &[7; 8][..len])));
        }
        tree
    }

    #[test]
    fn names_and_their_order_do_not_count() {
        let one = tree(&[("A", None), ("Aa", Some(1)), ("B", None), ("c", Some(2))]);
        let two = tree(&[("C", None), ("D", None), ("Dz", Some(1)), ("b", Some(2))]);
        assert_eq!(shape(&one), shape(&two));
    }

    #[test]
    fn structure_kind_and_length_count() {
        let trees = [
            tree(&[]),
            tree(&[("A", None)]),
            tree(&[("a", Some(0))]),
            tree(&[("a", Some(1))]),
            tree(&[("A", None), ("B", None)]),
            tree(&[("A", None), ("AB", None)]),
            tree(&[("A", None), ("AB", None), ("a", Some(1))]),
            tree(&[("A", None), ("AB", None), ("Aa", Some(1))]),
            tree(&[("A", None), ("AB", None), ("ABa", Some(1))]),
        ];
        let mut codes: Vec<u64> = trees.iter().map(shape).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), trees.len());
    }
}
