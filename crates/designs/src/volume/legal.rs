//! The trees that are legal after a power failure.

use std::sync::Arc;

use super::shadow::Tree;

/// The trees from what is durable to what is visible. A state shares the older ones with the state
/// before it: an operation adds one tree, whatever came before.
#[derive(Clone, Debug)]
pub(super) struct Legal {
    newest: Arc<Link>,
    trees: usize,
}

#[derive(Debug)]
struct Link {
    tree: Tree,
    older: Option<Arc<Link>>,
}

impl Legal {
    /// Makes the list of one tree: everything is durable.
    pub(super) fn only(tree: Tree) -> Legal {
        Legal { newest: Arc::new(Link { tree, older: None }), trees: 1 }
    }

    /// Adds a newer tree.
    pub(super) fn and(&self, tree: Tree) -> Legal {
        let older = Some(Arc::clone(&self.newest));
        Legal { newest: Arc::new(Link { tree, older }), trees: self.trees + 1 }
    }

    /// Copies what every clone shares.
    pub(super) fn unshare(&mut self) {
        if Arc::strong_count(&self.newest) > 1 {
            let Link { tree, older } = &*self.newest;
            self.newest = Arc::new(Link { tree: *tree, older: older.clone() });
        }
    }

    /// Changes each tree, and leaves out those that cannot be changed. The newest always can.
    pub(super) fn filter_map(&self, mut change: impl FnMut(&mut Tree) -> bool) -> Legal {
        let mut trees: Vec<Tree> = self.iter().copied().collect();
        trees.retain_mut(&mut change);
        let oldest = trees.pop().expect("the newest can be changed");
        trees.into_iter().rev().fold(Legal::only(oldest), |legal, tree| legal.and(tree))
    }

    /// Number of trees.
    pub(super) fn len(&self) -> usize {
        self.trees
    }

    /// Iterates over the trees, the newest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Tree> {
        let links = std::iter::successors(Some(&*self.newest), |link| link.older.as_deref());
        links.map(|link| &link.tree)
    }

    /// The oldest tree, which is durable.
    pub(super) fn durable(&self) -> &Tree {
        self.iter().last().expect("there is always one")
    }
}

#[cfg(test)]
mod tests {
    use super::super::shadow::Path;
    use super::*;

    fn tree(name: u8) -> Tree {
        let mut tree = Tree::default();
        assert!(tree.add(Path::ROOT.join(name).expect("not deep"), None));
        tree
    }

    #[test]
    fn a_list_that_grew_leaves_the_older_one_as_it_was() {
        let one = Legal::only(tree(b'a'));
        let three = one.and(tree(b'b')).and(tree(b'c'));
        assert_eq!((one.len(), three.len()), (1, 3));
        assert!(three.iter().eq(&[tree(b'c'), tree(b'b'), tree(b'a')]));
        let emptied = three.filter_map(|tree| {
            let is_new = *tree != one.newest.tree;
            *tree = Tree::default();
            is_new
        });
        assert!(emptied.iter().eq(&[Tree::default(); 2]));
        assert_eq!((three.durable(), one.durable()), (&tree(b'a'), &tree(b'a')));
    }
}
