//! The trees of a finding, side by side: before, each legal one, found.

use std::collections::BTreeMap;

use crate::run::{FindingPage, TreeLine};

/// More legal trees beside each other nobody compares.
const LEGAL_MAX: usize = 2;

/// All trees of a finding over the union of their paths.
pub(crate) struct Comparison<'a> {
    /// Before, the other legal trees, found: at least these two.
    pub(crate) columns: Vec<Column>,
    /// One for each path that is in any tree; directories before what is in them.
    pub(crate) rows: Vec<Row<'a>>,
    /// The column of the legal tree that is most like the one found.
    pub(crate) nearest: Option<usize>,
    /// Whether there was a tree to look at.
    pub(crate) has_found: bool,
}

/// One tree.
pub(crate) struct Column {
    pub(crate) title: String,
    /// Whether the guarantee allows it.
    pub(crate) legal: bool,
}

/// One path in all trees.
pub(crate) struct Row<'a> {
    pub(crate) path: &'a str,
    /// What each tree has there; `None`: nothing.
    pub(crate) cells: Vec<Option<&'a str>>,
    /// What is wrong in the tree that was found.
    pub(crate) wrong: Option<Wrong>,
}

/// How a found entry differs from the nearest legal tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Missing,
    Unexpected,
    Differs,
}

impl Wrong {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Wrong::Missing => "missing",
            Wrong::Unexpected => "unexpected",
            Wrong::Differs => "differs",
        }
    }

    /// Colour is never the only difference.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Wrong::Missing => "−",
            Wrong::Unexpected => "+",
            Wrong::Differs => "≠",
        }
    }
}

impl Comparison<'_> {
    /// The columns to look at first: before, found, and between them the legal trees that are shown
    /// at once, the nearest always among them.
    pub(crate) fn main_columns(&self) -> Vec<usize> {
        let found = self.columns.len() - 1;
        let mut legal: Vec<usize> = (1..found).collect();
        legal.sort_by_key(|&column| self.nearest != Some(column));
        legal.truncate(LEGAL_MAX);
        legal.sort_unstable();
        std::iter::once(0).chain(legal).chain(std::iter::once(found)).collect()
    }

    /// The rows that have something in one of these columns; `differing`: in more than one way.
    pub(crate) fn rows_in(&self, columns: &[usize], differing: bool) -> Vec<&Row<'_>> {
        let there = |row: &&Row<'_>| columns.iter().any(|&column| row.cells[column].is_some());
        self.rows.iter().filter(there).filter(|row| !differing || !row.same_everywhere()).collect()
    }
}

impl Row<'_> {
    /// Whether all trees agree.
    pub(crate) fn same_everywhere(&self) -> bool {
        self.wrong.is_none() && self.cells.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// Puts the trees of a finding side by side; `None` if it has none.
pub(crate) fn compare(finding: &FindingPage) -> Option<Comparison<'_>> {
    let (before, found) = (&finding.before, &finding.found);
    let others: Vec<&Vec<TreeLine>> =
        finding.promised.iter().filter(|tree| *tree != before).collect();
    if before.is_empty() && others.is_empty() && found.is_empty() {
        return None;
    }
    // Where no power failed there is one answer, and nothing to promise.
    let word = if finding.cut.is_empty() { "Expected" } else { "Promised" };
    let numbered = others.len() > 1;
    let title = |n: usize| match numbered {
        true => format!("{word} {}", n + 1),
        false => word.to_owned(),
    };
    let mut columns =
        vec![Column { title: "Before".to_owned(), legal: finding.promised.contains(before) }];
    columns.extend((0..others.len()).map(|n| Column { title: title(n), legal: true }));
    columns.push(Column { title: "Found".to_owned(), legal: false });

    let trees: Vec<&Vec<TreeLine>> =
        std::iter::once(before).chain(others).chain(std::iter::once(found)).collect();
    let mut rows = rows(&trees);
    let has_found = !found.is_empty();
    let nearest = nearest(&columns, &rows).filter(|_| has_found);
    for row in &mut rows {
        row.wrong = nearest.and_then(|legal| wrong(row.cells[legal], *row.cells.last()?));
    }
    Some(Comparison { columns, rows, nearest, has_found })
}

fn rows<'a>(trees: &[&'a Vec<TreeLine>]) -> Vec<Row<'a>> {
    let mut by_path: BTreeMap<Vec<&str>, Row<'_>> = BTreeMap::new();
    for (column, tree) in trees.iter().enumerate() {
        for line in *tree {
            // By component: "a/b" belongs directly behind "a/", whatever sorts between as text.
            let key = line.path.split('/').filter(|part| *part != ".").collect();
            let empty = || Row { path: &line.path, cells: vec![None; trees.len()], wrong: None };
            by_path.entry(key).or_insert_with(empty).cells[column] = Some(&line.text);
        }
    }
    by_path.into_values().collect()
}

fn nearest(columns: &[Column], rows: &[Row<'_>]) -> Option<usize> {
    let found = columns.len() - 1;
    let distance =
        |column: usize| rows.iter().filter(|row| row.cells[column] != row.cells[found]).count();
    (0..found).filter(|&column| columns[column].legal).min_by_key(|&column| distance(column))
}

fn wrong(legal: Option<&str>, found: Option<&str>) -> Option<Wrong> {
    match (legal, found) {
        (Some(_), None) => Some(Wrong::Missing),
        (None, Some(_)) => Some(Wrong::Unexpected),
        (Some(legal), Some(found)) if legal != found => Some(Wrong::Differs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, &str)]) -> Vec<TreeLine> {
        let line = |(path, text): &(&str, &str)| TreeLine {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        entries.iter().map(line).collect()
    }

    fn finding(
        before: &[(&str, &str)],
        after: &[(&str, &str)],
        found: &[(&str, &str)],
    ) -> FindingPage {
        let text = r#"{"id":"", "class":"", "title":"", "count":1, "levels":[], "ops":[],
            "in_flight":0, "cut":"", "writes":[], "before":[], "promised":[], "found":[],
            "differences":[], "replay":"", "directory":"", "story":""}"#;
        let mut finding: FindingPage = serde_json::from_str(text).expect("a finding");
        finding.before = tree(before);
        finding.promised = vec![tree(before), tree(after)];
        finding.found = tree(found);
        finding
    }

    #[test]
    fn the_nearest_legal_tree_tells_what_is_wrong() {
        let before = [("a", "1"), ("b", "1")];
        let after = [("b", "1"), ("c", "1")];
        let finding = finding(&before, &after, &[("c", "1"), ("d", "2")]);
        let comparison = compare(&finding).expect("trees");
        assert_eq!(comparison.columns.len(), 3, "one legal tree is the one before");
        assert!(comparison.columns[0].legal);
        assert_eq!(comparison.nearest, Some(1));
        let wrong: Vec<_> = comparison.rows.iter().map(|row| (row.path, row.wrong)).collect();
        let expected =
            [("a", None), ("b", Some(Wrong::Missing)), ("c", None), ("d", Some(Wrong::Unexpected))];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn a_mixture_of_two_legal_trees_is_wrong_somewhere() {
        let finding = finding(&[("a", "1")], &[("b", "1")], &[("a", "1"), ("b", "1")]);
        let comparison = compare(&finding).expect("trees");
        assert_eq!(comparison.rows.iter().filter(|row| row.wrong.is_some()).count(), 1);
    }

    #[test]
    fn a_legal_tree_is_not_accused() {
        let finding = finding(&[("a", "1")], &[("b", "1")], &[("b", "1")]);
        let comparison = compare(&finding).expect("trees");
        assert!(comparison.rows.iter().all(|row| row.wrong.is_none()));
    }

    #[test]
    fn of_many_legal_trees_the_nearest_is_shown() {
        let mut finding = finding(&[("a", "1")], &[("b", "1")], &[("e", "1"), ("f", "1")]);
        finding.promised.extend(["c", "d", "e"].map(|name| tree(&[(name, "1")])));
        let comparison = compare(&finding).expect("trees");
        assert_eq!(comparison.nearest, Some(4));
        let columns = comparison.main_columns();
        assert_eq!(columns, [0, 1, 4, 5]);
        let paths: Vec<_> =
            comparison.rows_in(&columns, false).iter().map(|row| row.path).collect();
        assert_eq!(paths, ["a", "b", "e", "f"], "what no shown tree has is left out");
    }

    #[test]
    fn without_a_found_tree_nothing_is_called_missing() {
        let finding = finding(&[("a", "1")], &[("b", "1")], &[]);
        let comparison = compare(&finding).expect("trees");
        assert!(!comparison.has_found);
        assert!(comparison.rows.iter().all(|row| row.wrong.is_none()));
    }

    #[test]
    fn what_is_in_a_directory_follows_it() {
        let finding = finding(&[("a/", "d"), ("a-", "1"), ("a/x", "1")], &[], &[]);
        let comparison = compare(&finding).expect("trees");
        let paths: Vec<_> = comparison.rows.iter().map(|row| row.path).collect();
        assert_eq!(paths, ["a/", "a/x", "a-"]);
    }
}
