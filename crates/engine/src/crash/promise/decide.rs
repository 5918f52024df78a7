//! Decides about a tree by the order that the file system promises, and tells what is wrong with it.
//!
//! An order says from which moments the versions of different objects may be taken together. With one
//! order of all metadata that is a look-up: the digest of the tree without contents is that of some
//! moment, or of none. Only if it is, contents are compared.

use fathom_block::backed::{Data, Makes, Order, promised};
use fathom_core::{Difference, FsPath, Tree};

use super::contents::{Contents, Span};
use super::history::{History, Moment, metadata_digest};
use super::rules::{Assignment, BrokenRule, Rule, View};

/// A promise that a tree breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenPromise {
    /// The rule.
    pub rule: Rule,
    /// Where it is broken.
    pub path: FsPath,
    /// The operation that changed last what is there, if one did since everything was durable.
    pub changed_by: Option<String>,
    /// What is wrong, then how the tree differs from the state that it resembles most.
    pub lines: Vec<String>,
}

impl History {
    /// What is wrong with a tree that is not legal as a whole.
    pub(super) fn violation(
        &self,
        found: &Tree,
        contents: &mut dyn Contents,
    ) -> Option<BrokenPromise> {
        let wrong = match self.order {
            Order::Prefix => Some(None),
            Order::MetadataPrefix => self.check_prefix(found, contents),
            Order::TransactionLog => self.check_log(found, contents),
            Order::Object | Order::None => Some(None),
        };
        // Somebody who breaks the order may break a simpler rule.
        let mut simple = || {
            let broken = Assignment::check(self, &self.any_moment(), found, contents);
            broken.into_iter().min_by_key(|broken| broken.rule)
        };
        let broken = match wrong? {
            Some(broken) => broken,
            None => match simple() {
                Some(broken) => broken,
                None if self.order == Order::Object => return None,
                None => self.out_of_order(found),
            },
        };
        Some(self.tell(broken, self.nearest(found)))
    }

    /// A broken rule with what is known about it; `more` follows in the story.
    pub(super) fn tell(&self, broken: BrokenRule, more: Vec<String>) -> BrokenPromise {
        let BrokenRule { rule, path, what } = broken;
        let mut lines = vec![format!("{path} {what} ({rule})")];
        lines.extend(more);
        let changed_by = self.changed_by(&path).map(str::to_owned);
        BrokenPromise { rule, path, changed_by, lines }
    }

    /// Every object at a moment of its own.
    fn any_moment(&self) -> View {
        let contents = Span { first: 0, last: self.last() };
        let moments = (self.commit..=self.last()).collect();
        View { moments, contents, removals_until: 0 }
    }

    /// The contents that may be found with metadata of the moments that end with `metadata`.
    fn span(&self, metadata: usize) -> Span {
        match (self.data, self.order) {
            (Data::Journal, Order::MetadataPrefix) => {
                // One write may be half there.
                Span { first: metadata, last: (metadata + 1).min(self.last()) }
            }
            (Data::Cow | Data::Journal, _) => Span { first: 0, last: metadata },
            (Data::Ordered | Data::Writeback | Data::Held, _) => {
                Span { first: 0, last: self.last() }
            }
        }
    }

    /// All metadata is that of one moment. `None` if the tree is legal; `Some(None)` if there is no such
    /// moment.
    fn check_prefix(
        &self,
        found: &Tree,
        contents: &mut dyn Contents,
    ) -> Option<Option<BrokenRule>> {
        let digest = metadata_digest(found);
        let mut wrong = None;
        for moment in (self.metadata_floor..=self.last()).rev() {
            if self.moments[moment].metadata != digest {
                continue;
            }
            let span = self.span(moment);
            let view = View { moments: vec![moment], contents: span, removals_until: 0 };
            let broken = Assignment::check(self, &view, found, contents);
            let first = broken.into_iter().min_by_key(|broken| broken.rule)?;
            wrong.get_or_insert(first);
        }
        Some(wrong)
    }

    /// One moment for all, and later ones for what was made durable by itself after it.
    ///
    /// Where the profile says so (`removed`), a name that was in the log and was removed may be gone although
    /// what has it since is not there yet. A rename that replaces a file removes no name: there is no moment
    /// without it.
    fn check_log(&self, found: &Tree, contents: &mut dyn Contents) -> Option<Option<BrokenRule>> {
        for commit in (self.commit..=self.last()).rev() {
            let later = self.logged.range(commit + 1..).copied();
            let moments: Vec<usize> = std::iter::once(commit).chain(later).collect();
            let newest = moments.iter().copied().fold(commit, usize::max);
            let view = View {
                moments,
                contents: self.span(newest),
                removals_until: self.removals_logged(),
            };
            if Assignment::check(self, &view, found, contents).is_empty() {
                return None;
            }
        }
        Some(None)
    }

    /// The newest moment whose removals the log may have.
    fn removals_logged(&self) -> usize {
        match promised(&self.durable_by.removed) {
            Makes::Nothing => 0,
            _ => self.logged.last().copied().unwrap_or(0),
        }
    }

    /// The moment that a tree resembles most, and what differs.
    fn resembled(&self, found: &Tree) -> (&Moment, Vec<Difference>) {
        let differences = |moment: &Moment| {
            let mut all = moment.tree.differences(found);
            if matches!(self.order, Order::MetadataPrefix | Order::TransactionLog) {
                all.retain(|difference| !matches!(difference.what.as_str(), "size" | "content"));
            }
            all
        };
        let moments = self.moments[self.metadata_floor..].iter().rev();
        let all = moments.map(|moment| (&**moment, differences(moment)));
        all.min_by_key(|(_, differences)| differences.len()).unwrap_or_else(|| {
            let newest = &self.moments[self.last()];
            (newest, differences(newest))
        })
    }

    /// Versions that were never there together.
    fn out_of_order(&self, found: &Tree) -> BrokenRule {
        let (nearest, differences) = self.resembled(found);
        let number = nearest.number;
        let first = differences.first();
        let path = first.map_or_else(|| FsPath::from("."), |difference| difference.path.clone());
        let field = first.map_or("contents", |difference| difference.what.as_str());
        let what =
            format!("has {field} of another moment than the rest, which is of operation {number}");
        BrokenRule { rule: Rule::Order, path, what }
    }

    /// How a tree differs from the state that it resembles most.
    fn nearest(&self, found: &Tree) -> Vec<String> {
        let (nearest, differences) = self.resembled(found);
        let Moment { number, op, .. } = nearest;
        let mut lines = vec![format!("most is as after operation {number}, {op}; but:")];
        for difference in &differences {
            let Difference { path, what, expected, found: seen } = difference;
            let is = |moment: &&std::sync::Arc<Moment>| {
                let (Some(then), Some(now)) =
                    (moment.tree.entries.get(path), found.entries.get(path))
                else {
                    return !moment.tree.entries.contains_key(path)
                        && !found.entries.contains_key(path);
                };
                let differs =
                    |difference: &Difference| difference.path == *path && difference.what == *what;
                let only = |entry: &fathom_core::Entry| Tree {
                    entries: [(path.clone(), entry.clone())].into(),
                };
                !only(then).differences(&only(now)).iter().any(differs)
            };
            let of = self.moments.iter().rev().find(is);
            let of =
                of.map_or_else(String::new, |of| format!(" (that of operation {})", of.number));
            lines.push(format!("{path}: {what} should be {expected}, is {seen}{of}"));
        }
        if differences.is_empty() {
            lines.pop();
        }
        lines
    }
}
