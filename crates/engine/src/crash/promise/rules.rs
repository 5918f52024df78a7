//! The rules about single objects and names.
//!
//! A tree shows names; the rules speak of objects. Which object a name leads to after a crash is not
//! known where it led to several: the assignment that breaks the fewest rules counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fathom_core::{Entry, FsBytes, FsPath, Kind, Tree};
use fathom_model::{Ino, ROOT};

use super::contents::{Contents, FoundFile, Span};
use super::history::{History, Moment, Name};

/// A rule about what may be found, by its name in findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// An object that was durable by name is found under none of its names.
    LostObject,
    /// A renamed object is found under neither of its names.
    RenameNone,
    /// A renamed object is found under both of its names.
    RenameBoth,
    /// A name that was durable leads to nothing.
    LostName,
    /// A name whose removal was durable leads to something again.
    ReturnedName,
    /// A name that never was, or that leads to an object it never led to.
    ForeignName,
    /// A block holds zeros, or data that is older than what was durable.
    LostData,
    /// A block holds bytes that were not written to this file.
    ForeignData,
    /// The size is not one that the file had since it was durable.
    Size,
    /// A file took the name of another one without its data.
    RenameOver,
    /// Type, mode or owner are not those of a version since the durable one.
    Attributes,
    /// Extended attributes are not those of a version since the durable one.
    Xattrs,
    /// A symbolic link has a target that it never had.
    SymlinkTarget,
    /// The link count is not the number of names.
    LinkCount,
    /// Blocks that were allocated to the file are not any more.
    Allocation,
    /// The modification time is not the durable one.
    ModificationTime,
    /// Each object is in a legal version, but there was no moment at which these were there together.
    Order,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::LostObject => "lost object",
            Rule::RenameNone => "rename shows no name",
            Rule::RenameBoth => "rename shows both names",
            Rule::LostName => "lost name",
            Rule::ReturnedName => "returned name",
            Rule::ForeignName => "foreign name",
            Rule::LostData => "lost data",
            Rule::ForeignData => "foreign data",
            Rule::Size => "size",
            Rule::RenameOver => "rename over a file without data",
            Rule::Attributes => "attributes",
            Rule::Xattrs => "extended attributes",
            Rule::SymlinkTarget => "symlink target",
            Rule::LinkCount => "link count",
            Rule::Allocation => "allocated blocks",
            Rule::ModificationTime => "modification time",
            Rule::Order => "order",
        })
    }
}

/// A rule that is broken, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrokenRule {
    pub(super) rule: Rule,
    pub(super) path: FsPath,
    pub(super) what: String,
}

impl BrokenRule {
    fn new(rule: Rule, path: &FsPath, what: impl Into<String>) -> BrokenRule {
        BrokenRule { rule, path: path.clone(), what: what.into() }
    }
}

/// The moments from which objects and names may be taken.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// What was durable later is as it was then.
    pub(super) moments: Vec<usize>,
    /// The moments whose contents may be found.
    pub(super) contents: Span,
    /// Up to this moment a log may have taken the removal of a name that was in it, without anything else
    /// of that moment.
    pub(super) removals_until: usize,
}

impl View {
    /// The moments for something that has been durable since `durable`.
    fn since(&self, durable: usize) -> BTreeSet<usize> {
        self.moments.iter().map(|index| (*index).max(durable)).collect()
    }
}

/// Assignments that are tried before a tree is given the benefit of the doubt.
const ATTEMPTS_MAX: usize = 20_000;

/// Looks for the assignment of objects to the paths of a tree that breaks the fewest rules.
pub(super) struct Assignment<'a> {
    history: &'a History,
    view: &'a View,
    found: &'a Tree,
    contents: &'a mut dyn Contents,
    /// Every path but the root, parents first.
    paths: Vec<&'a FsPath>,
    chosen: BTreeMap<&'a FsPath, Ino>,
    broken: Vec<BrokenRule>,
    best: Option<Vec<BrokenRule>>,
    checked: BTreeMap<(&'a FsPath, Ino), Vec<BrokenRule>>,
    attempts: usize,
}

impl<'a> Assignment<'a> {
    /// The rules that a tree breaks: none if it is legal.
    pub(super) fn check(
        history: &'a History,
        view: &'a View,
        found: &'a Tree,
        contents: &'a mut dyn Contents,
    ) -> Vec<BrokenRule> {
        let root = found.entries.get_key_value(&FsPath::from(".")).map(|(path, _)| path);
        let Some(root) = root else {
            let path = FsPath::from(".");
            return vec![BrokenRule::new(Rule::LostObject, &path, "there is no root directory")];
        };
        let paths = found.entries.keys().filter(|path| *path != root).collect();
        let mut assignment = Assignment {
            history,
            view,
            found,
            contents,
            paths,
            chosen: BTreeMap::from([(root, ROOT)]),
            broken: Vec::new(),
            best: None,
            checked: BTreeMap::new(),
            attempts: 0,
        };
        assignment.broken = assignment.entry_rules(root, ROOT);
        assignment.extend(0);
        if assignment.attempts >= ATTEMPTS_MAX {
            return Vec::new();
        }
        assignment.best.unwrap_or_default()
    }

    fn moment(&self, index: usize) -> &'a Moment {
        &self.history.moments[index]
    }

    /// Chooses an object for the path at `at` and all that follow.
    fn extend(&mut self, at: usize) {
        self.attempts += 1;
        let enough = self.best.as_ref().is_some_and(|best| best.len() <= self.broken.len());
        if enough || self.attempts >= ATTEMPTS_MAX {
            return;
        }
        let Some(path) = self.paths.get(at).copied() else {
            return self.finish();
        };
        let above = path.parent().and_then(|above| self.chosen.get(&above).copied());
        // What is inside of something that should not be there follows from that.
        let Some(dir) = above else { return self.extend(at + 1) };
        let name = (dir, FsBytes::from(path.file_name()));
        let targets = self.targets(&name);
        let candidates: BTreeSet<Ino> = targets.into_iter().flatten().collect();
        let before = self.broken.len();
        if candidates.is_empty() {
            self.broken.push(self.unexpected(path, &name));
            self.extend(at + 1);
            self.broken.truncate(before);
            return;
        }
        for ino in candidates.into_iter().rev() {
            let mut broken = self.entry_rules(path, ino);
            broken.extend(self.sharing(path, ino));
            self.broken.extend(broken);
            self.chosen.insert(path, ino);
            self.extend(at + 1);
            self.chosen.remove(path);
            self.broken.truncate(before);
        }
    }

    /// What a name may lead to.
    fn targets(&self, name: &Name) -> BTreeSet<Option<Ino>> {
        let since = self.view.since(self.history.name_durable(name)).into_iter();
        let target = |index: usize| self.moment(index).names.get(name).copied();
        let logged = self.history.name_logged(name).map(|at| at..=self.view.removals_until);
        let removed = logged.into_iter().flatten().map(target).filter(Option::is_none);
        // What has taken a name by RENAME_EXCHANGE need not be there itself.
        let vacated = self.history.is_vacated(name).then_some(None);
        since.map(target).chain(removed).chain(vacated).collect()
    }

    /// A name that should lead to nothing.
    fn unexpected(&self, path: &FsPath, name: &Name) -> BrokenRule {
        let led = |moment: &&std::sync::Arc<Moment>| moment.names.contains_key(name);
        match self.history.moments.iter().find(led) {
            Some(_) => BrokenRule::new(Rule::ReturnedName, path, "was removed, and is there again"),
            None => BrokenRule::new(Rule::ForeignName, path, "was never made"),
        }
    }

    /// The rules about one entry, as far as they do not depend on others.
    fn entry_rules(&mut self, path: &'a FsPath, ino: Ino) -> Vec<BrokenRule> {
        if let Some(known) = self.checked.get(&(path, ino)) {
            return known.clone();
        }
        let entry = &self.found.entries[path];
        let durable = self.history.durable(ino);
        let moments: Vec<&Moment> =
            self.view.since(durable.attributes).into_iter().map(|at| self.moment(at)).collect();
        let versions: Vec<&Entry> =
            moments.iter().filter_map(|moment| moment.objects.get(&ino)).collect();
        let mut broken = attribute_rules(path, entry, &versions);
        broken.extend(self.link_count(path, entry, &versions));
        if broken.is_empty() && entry.kind == Kind::File && entry.same_as.is_none() {
            let replaced_at = self.replaced_at(path, ino);
            let file = FoundFile { path, entry, ino, replaced_at };
            let wrong = self.history.check_contents(&file, self.view.contents, self.contents);
            broken.extend(wrong);
        }
        self.checked.insert((path, ino), broken.clone());
        broken
    }

    /// When an object took this name from another one, if that includes its data.
    fn replaced_at(&self, path: &FsPath, ino: Ino) -> usize {
        let dir = path.parent().and_then(|above| self.chosen.get(&above));
        let here = |name: &Name| Some(&name.0) == dir && name.1.as_bytes() == path.file_name();
        let all = self.history.replacements.iter();
        let mine = all.filter(|replacement| replacement.ino == ino && here(&replacement.name));
        mine.map(|replacement| replacement.at).max().unwrap_or(0)
    }

    fn link_count(&self, path: &FsPath, entry: &Entry, versions: &[&Entry]) -> Option<BrokenRule> {
        let inside = |other: &&FsPath| other.parent().as_ref() == Some(path);
        let count = if entry.kind != Kind::Dir {
            let first = entry.same_as.as_ref().unwrap_or(path);
            let names =
                self.found.entries.iter().filter(|(other, entry)| {
                    *other == first || entry.same_as.as_ref() == Some(first)
                });
            names.count()
        } else if versions.iter().all(|version| version.nlink == 1) {
            // A quirk of the reference: directories do not count what is in them.
            1
        } else {
            let dirs = self.found.entries.iter().filter(|(_, entry)| entry.kind == Kind::Dir);
            2 + dirs.map(|(other, _)| other).filter(inside).count()
        };
        if entry.nlink as usize == count {
            return None;
        }
        let what = format!("link count should be {count}, is {}", entry.nlink);
        Some(BrokenRule::new(Rule::LinkCount, path, what))
    }

    /// An object is found under names that it had together, and as one inode.
    fn sharing(&self, path: &FsPath, ino: Ino) -> Option<BrokenRule> {
        let first = |path: &FsPath| {
            self.found.entries[path].same_as.clone().unwrap_or_else(|| path.clone())
        };
        for (other, its) in &self.chosen {
            let same = first(path) == first(other);
            if same && *its != ino {
                let what = format!("is the same file as {other}");
                return Some(BrokenRule::new(Rule::ForeignName, path, what));
            }
            if *its != ino {
                continue;
            }
            let [mine, others] = [path, *other].map(|path| self.name_of(path));
            let together = |moment: &std::sync::Arc<Moment>| {
                let names = moment.names_of(ino);
                [&mine, &others].iter().all(|name| name.as_ref().is_some_and(|n| names.contains(n)))
            };
            if !same || !self.history.moments[self.history.commit..].iter().any(together) {
                let what = format!("and {other} are the same object, which never had both names");
                return Some(BrokenRule::new(Rule::RenameBoth, path, what));
            }
        }
        None
    }

    fn name_of(&self, path: &FsPath) -> Option<Name> {
        let dir = self.chosen.get(&path.parent()?)?;
        Some((*dir, FsBytes::from(path.file_name())))
    }

    /// The rules about what is not there; the end of one attempt.
    fn finish(&mut self) {
        let before = self.broken.len();
        let mut lost: BTreeSet<Ino> = BTreeSet::new();
        for (path, dir) in self.chosen.clone() {
            let known = self.history.moments.iter().flat_map(|moment| moment.names.keys());
            let known: BTreeSet<&Name> = known.filter(|name| name.0 == dir).collect();
            for name in known {
                let missing = path.join(name.1.as_bytes());
                let targets = self.targets(name);
                if !self.found.entries.contains_key(&missing) && !targets.contains(&None) {
                    lost.extend(targets.into_iter().flatten());
                    self.broken.push(BrokenRule::new(Rule::LostName, &missing, "is missing"));
                }
            }
        }
        let found: BTreeSet<Ino> = self.chosen.values().copied().collect();
        for (ino, since) in &self.history.existing {
            if !found.contains(ino) && !lost.contains(ino) {
                self.broken.extend(self.lost_object(*ino, *since));
            }
        }
        if self.best.as_ref().is_none_or(|best| self.broken.len() < best.len()) {
            self.best = Some(self.broken.clone());
        }
        self.broken.truncate(before);
    }

    /// An object that was durable by name and had one ever since.
    fn lost_object(&self, ino: Ino, since: usize) -> Option<BrokenRule> {
        let moments = &self.history.moments[since..];
        let path_of = |moment: &Moment| {
            let paths = moment.paths.iter().filter(|(_, at)| **at == ino);
            paths.map(|(path, _)| path.clone()).next()
        };
        let paths: Option<Vec<FsPath>> = moments.iter().map(|moment| path_of(moment)).collect();
        let paths = paths?;
        let path = paths.last()?;
        // What went with its directory is told by that.
        let names = |moment: &Moment| moment.names_of(ino).into_iter().cloned().collect::<Vec<_>>();
        let parents_gone = |moment: &std::sync::Arc<Moment>| {
            let found = |dir: &Ino| self.chosen.values().any(|ino| ino == dir);
            !names(moment).iter().any(|(dir, _)| found(dir))
        };
        if moments.iter().all(parents_gone) {
            return None;
        }
        // Another object has its old name.
        let is_displaced =
            paths.iter().any(|path| self.chosen.get(path).is_some_and(|found| *found != ino));
        if is_displaced && self.history.durable_by.displaced.is_some() {
            return None;
        }
        let renamed = moments.windows(2).any(|pair| {
            let [before, after] = [&pair[0], &pair[1]].map(|moment| moment.names_of(ino));
            before.difference(&after).next().is_some() && after.difference(&before).next().is_some()
        });
        let rule = if renamed { Rule::RenameNone } else { Rule::LostObject };
        let tried: BTreeSet<String> = paths.iter().map(ToString::to_string).collect();
        let tried: Vec<String> = tried.into_iter().collect();
        Some(BrokenRule::new(rule, path, format!("is not found as {}", tried.join(" or "))))
    }
}

/// The rules about the attributes of one entry.
fn attribute_rules(path: &FsPath, entry: &Entry, versions: &[&Entry]) -> Vec<BrokenRule> {
    let mut broken = Vec::new();
    if let Some(cause) = &entry.broken {
        let what = format!("{} fails with {}", cause.call, cause.errno);
        broken.push(BrokenRule::new(Rule::Attributes, path, what));
        return broken;
    }
    let owner = |entry: &Entry| (entry.kind, entry.mode.perm(), entry.uid, entry.gid, entry.rdev);
    if !versions.iter().any(|version| owner(version) == owner(entry)) {
        let tell = |entry: &Entry| {
            format!("{}{} {}:{}", entry.kind.letter(), entry.mode, entry.uid, entry.gid)
        };
        let known: BTreeSet<String> = versions.iter().map(|version| tell(version)).collect();
        let known: Vec<String> = known.into_iter().collect();
        let what = format!("attributes should be {}, are {}", known.join(" or "), tell(entry));
        broken.push(BrokenRule::new(Rule::Attributes, path, what));
    }
    if !versions.iter().any(|version| version.xattrs == entry.xattrs) {
        let names = |entry: &Entry| {
            let names = entry.xattrs.keys().map(ToString::to_string);
            names.collect::<Vec<_>>().join(", ")
        };
        let newest = versions.last().map(|version| names(version)).unwrap_or_default();
        let what = format!("extended attributes should be [{newest}], are [{}]", names(entry));
        broken.push(BrokenRule::new(Rule::Xattrs, path, what));
    }
    if !versions.iter().any(|version| version.target == entry.target) {
        let newest = versions.last().map(|version| version.target.to_string());
        let newest = newest.unwrap_or_default();
        let what = format!("target should be {newest:?}, is {:?}", entry.target.to_string());
        broken.push(BrokenRule::new(Rule::SymlinkTarget, path, what));
    }
    broken
}
