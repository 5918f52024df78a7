//! The versions of every object and every name since everything was durable, and what was made durable
//! in between.
//!
//! An *object* is an inode of the reference: identity, not name. A *moment* is the state after one
//! operation. What was made durable is an index of a moment: an object must be found in its version of
//! that moment or of a later one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fathom_block::Guarantee;
use fathom_block::backed::{Data, DurableBy, Makes, Order, promised};
use fathom_core::flags::{MsyncFlags, OpenFlags};
use fathom_core::{Digest, Entry, FsBytes, FsPath, Kind, Op, Slot, Tree};
use fathom_model::{Ino, Model, ROOT, TreeOptions};

use super::accounts::{AccountClaims, DurableAccount};
use super::contents::{changed_blocks, contents_of, size};
use crate::crash::judge::describe;

/// A name in a directory.
pub(super) type Name = (Ino, FsBytes);

/// The state after one operation.
#[derive(Debug)]
pub(super) struct Moment {
    /// How many operations came before this state.
    pub(super) number: usize,
    /// The operation, in words.
    pub(super) op: String,
    /// The operation without its operands, as causes are told.
    pub(super) call: String,
    /// Up to where the operation allocated, if it was `fallocate`: a size on the way to a later one.
    pub(super) allocated_to: Option<u64>,
    pub(super) model: Model,
    pub(super) tree: Tree,
    /// The digest of the tree without contents and sizes of files.
    pub(super) metadata: Digest,
    pub(super) objects: BTreeMap<Ino, Entry>,
    pub(super) names: BTreeMap<Name, Ino>,
    pub(super) paths: BTreeMap<FsPath, Ino>,
}

impl Moment {
    fn new(number: usize, op: Option<&Op>, model: &Model) -> Moment {
        let volume = model.volume();
        let tree = volume.tree(TreeOptions::default());
        let (mut objects, mut names) = (BTreeMap::new(), BTreeMap::new());
        let mut paths = BTreeMap::new();
        for (path, entry) in &tree.entries {
            let Some(ino) = volume.find(path, false) else { continue };
            objects.insert(ino, Entry { same_as: None, ..entry.clone() });
            paths.insert(path.clone(), ino);
            if let Some(dir) = path.parent().and_then(|above| volume.find(&above, false)) {
                names.insert((dir, FsBytes::from(path.file_name())), ino);
            }
        }
        let metadata = metadata_digest(&tree);
        let allocated_to = match op {
            Some(Op::Fallocate { offset, len, .. }) => u64::try_from(offset + len).ok(),
            _ => None,
        };
        Moment {
            number,
            op: op.map_or_else(|| "the start".to_owned(), Op::to_string),
            call: op.map_or_else(String::new, describe_change),
            allocated_to,
            model: model.clone(),
            tree,
            metadata,
            objects,
            names,
            paths,
        }
    }

    /// The names of an object.
    pub(super) fn names_of(&self, ino: Ino) -> BTreeSet<&Name> {
        self.names.iter().filter(|(_, to)| **to == ino).map(|(name, _)| name).collect()
    }

    /// What an object shows beside its contents: attributes, size, and the names that lead to it or are
    /// in it.
    fn inode(&self, ino: Ino) -> (Option<Entry>, BTreeSet<(&Name, Ino)>) {
        let without = |entry: &Entry| Entry { content: Digest::default(), ..entry.clone() };
        let names = self.names.iter().map(|(name, to)| (name, *to));
        let names = names.filter(|(name, to)| *to == ino || name.0 == ino);
        (self.objects.get(&ino).map(without), names.collect())
    }
}

/// The digest of a tree without what `fsync` of another file says nothing about: contents and sizes of
/// files.
pub(super) fn metadata_digest(tree: &Tree) -> Digest {
    let mut bare = tree.clone();
    for entry in bare.entries.values_mut() {
        (entry.size, entry.content) = (0, Digest::default());
    }
    bare.digest()
}

/// What was made durable of one object: indices of moments.
#[derive(Clone, Debug, Default)]
pub(super) struct DurableObject {
    /// Mode, owner, extended attributes.
    pub(super) attributes: usize,
    pub(super) size: usize,
    pub(super) data: usize,
    /// Blocks that were made durable by themselves.
    pub(super) blocks: BTreeMap<u64, usize>,
}

/// A file that took the name of another one.
#[derive(Clone, Debug)]
pub(super) struct Replacement {
    pub(super) name: Name,
    pub(super) ino: Ino,
    pub(super) at: usize,
}

/// The versions since everything was durable, and what was made durable since.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) order: Order,
    pub(super) data: Data,
    pub(super) durable_by: Arc<DurableBy>,
    /// The first is durable as a whole; the last is what would be there without a failure.
    pub(super) moments: Vec<Arc<Moment>>,
    /// All metadata of this moment is durable.
    pub(super) commit: usize,
    /// The first moment at which all that is durable of the metadata was there.
    pub(super) metadata_floor: usize,
    /// The first moment at which all that is durable was there, contents included.
    whole_floor: usize,
    objects: BTreeMap<Ino, DurableObject>,
    names: BTreeMap<Name, usize>,
    /// Names of which it is durable only that they do not lead any more to what they led to.
    vacated: BTreeSet<Name>,
    /// Objects that have been durable by name, and since when.
    pub(super) existing: BTreeMap<Ino, usize>,
    /// Moments at which one object was made durable on its own.
    pub(super) logged: BTreeSet<usize>,
    pub(super) replacements: Vec<Replacement>,
    flags: BTreeMap<Slot, OpenFlags>,
    pub(super) account_claims: Arc<AccountClaims>,
    /// What is durable of files beside what trees show.
    pub(super) accounts: BTreeMap<Ino, DurableAccount>,
    /// Operations since the mount.
    pub(super) ops_mounted: usize,
}

impl History {
    /// Everything is durable.
    pub(super) fn new(guarantee: &Guarantee, model: &Model) -> History {
        let start = Arc::new(Moment::new(0, None, model));
        let mut history = History {
            order: guarantee.order.is,
            data: guarantee.data.is,
            durable_by: Arc::new(guarantee.durable.clone()),
            moments: Vec::new(),
            commit: 0,
            metadata_floor: 0,
            whole_floor: 0,
            objects: BTreeMap::new(),
            names: BTreeMap::new(),
            vacated: BTreeSet::new(),
            existing: BTreeMap::new(),
            logged: BTreeSet::new(),
            replacements: Vec::new(),
            flags: BTreeMap::new(),
            account_claims: Arc::new(AccountClaims {
                blocks: guarantee.blocks.clone(),
                mtime: guarantee.mtime.clone(),
            }),
            accounts: BTreeMap::new(),
            ops_mounted: 0,
        };
        history.begin_at(start);
        history
    }

    /// Forgets everything before a state that is durable as a whole.
    fn begin_at(&mut self, moment: Arc<Moment>) {
        (self.commit, self.metadata_floor, self.whole_floor) = (0, 0, 0);
        self.objects.clear();
        self.names.clear();
        self.vacated.clear();
        self.logged.clear();
        self.replacements.clear();
        self.accounts.clear();
        self.existing = moment.objects.keys().map(|ino| (*ino, 0)).collect();
        self.moments = vec![moment];
    }

    /// Whether something was made durable on its own at a moment.
    pub(super) fn logs(&self, moment: usize) -> bool {
        self.logged.contains(&moment)
    }

    /// At the newest moment something may have been made durable on its own.
    pub(super) fn log_newest(&mut self) {
        self.logged.insert(self.last());
    }

    /// The index of the newest moment.
    pub(super) fn last(&self) -> usize {
        self.moments.len() - 1
    }

    fn newest(&self) -> &Moment {
        &self.moments[self.last()]
    }

    /// The states that are legal as they are, oldest first; of equal ones the newest.
    pub(super) fn whole(&self) -> impl Iterator<Item = &Model> {
        let moments = &self.moments[self.whole_floor..];
        let is_last = |(index, moment): &(usize, &Arc<Moment>)| {
            let digest = moment.model.digest();
            !moments[index + 1..].iter().any(|later| later.model.digest() == digest)
        };
        moments.iter().enumerate().filter(is_last).map(|(_, moment)| &moment.model)
    }

    /// What is durable of an object.
    pub(super) fn durable(&self, ino: Ino) -> DurableObject {
        let known = self.objects.get(&ino).cloned().unwrap_or_default();
        DurableObject { attributes: known.attributes.max(self.commit), ..known }
    }

    /// Since when a name is durable.
    pub(super) fn name_durable(&self, name: &Name) -> usize {
        self.names.get(name).copied().unwrap_or(0).max(self.commit)
    }

    /// Since when a name is in the log, if it was made durable by itself since everything was.
    pub(super) fn name_logged(&self, name: &Name) -> Option<usize> {
        self.names.get(name).copied().filter(|at| *at > self.commit)
    }

    /// Whether all that is durable of a name is that another object has left it.
    pub(super) fn is_vacated(&self, name: &Name) -> bool {
        self.vacated.contains(name) && self.name_logged(name).is_some()
    }

    /// Notes the state after an operation; nothing becomes durable by that.
    pub(super) fn push(&mut self, op: &Op, visible: &Model) {
        let number = self.newest().number + 1;
        self.moments.push(Arc::new(Moment::new(number, Some(op), visible)));
        self.ops_mounted += 1;
    }

    /// The operation that changed last what has, or had, this path, since everything was durable.
    pub(super) fn changed_by(&self, path: &FsPath) -> Option<&str> {
        let ino = self.moments.iter().rev().find_map(|moment| moment.paths.get(path).copied())?;
        let version =
            |at: usize| (self.moments[at].inode(ino), contents_of(&self.moments[at], ino));
        let changed = (1..self.moments.len()).rev().find(|at| version(*at) != version(at - 1))?;
        Some(&self.moments[changed].call)
    }

    /// Notes what the newest operation has made durable by returning.
    pub(super) fn returned(&mut self, op: &Op) {
        let by = self.durable_by.clone();
        match op {
            Op::Open { slot, flags, .. } => drop(self.flags.insert(*slot, *flags)),
            Op::Close { slot } => {
                self.flags.remove(slot);
                self.make_slot(*slot, promised(&by.close));
            }
            Op::Fsync { slot } if self.is_dir(*slot) => {
                self.make_slot(*slot, promised(&by.fsync_dir));
            }
            Op::Fdatasync { slot } if self.is_dir(*slot) => {
                self.make_slot(*slot, promised(&by.fsync_dir));
            }
            Op::Fsync { slot } => self.make_file(op, *slot, promised(&by.fsync)),
            Op::Fdatasync { slot } => self.make_file(op, *slot, promised(&by.fdatasync)),
            Op::Sync | Op::Remount => self.make_all(op),
            Op::Syncfs { slot } if self.slot_ino(*slot).is_some() => self.make_all(op),
            // A call that writes nothing syncs nothing: generic_write_sync() comes after written bytes.
            Op::Write { slot, data } | Op::Pwrite { slot, data, .. } if data.len > 0 => {
                self.make_written(*slot, self.by_flags(&by, *slot));
            }
            // How much was copied is not known here.
            Op::CopyFileRange { to, .. } if self.has_changed(*to) => {
                self.make_written(*to, self.by_flags(&by, *to));
            }
            Op::MmapStore { slot, sync, .. } if sync.contains(MsyncFlags::MS_SYNC) => {
                self.make_written(*slot, promised(&by.msync));
            }
            Op::SyncFileRange { slot, .. } => {
                self.make_slot(*slot, promised(&by.sync_file_range));
            }
            Op::Rename { .. } if promised(&by.rename_over) == Makes::Data => self.note_replaced(),
            _ => {}
        }
    }

    /// What a write to this slot makes durable.
    fn by_flags(&self, by: &DurableBy, slot: Slot) -> Makes {
        let flags = self.flags.get(&slot).copied().unwrap_or_default();
        if flags.contains(OpenFlags::O_SYNC) {
            promised(&by.o_sync)
        } else if flags.contains(OpenFlags::O_DSYNC) {
            promised(&by.o_dsync)
        } else {
            Makes::Nothing
        }
    }

    /// Whether the newest operation has changed size or contents of the file that a slot holds.
    fn has_changed(&self, slot: Slot) -> bool {
        let (Some(ino), Some(before)) = (self.slot_ino(slot), self.last().checked_sub(1)) else {
            return false;
        };
        contents_of(&self.moments[before], ino) != contents_of(self.newest(), ino)
    }

    /// What a slot holds or, if the newest operation closed it, held.
    fn slot_ino(&self, slot: Slot) -> Option<Ino> {
        let before = || self.moments.get(self.last().checked_sub(1)?)?.model.slot_ino(slot);
        self.newest().model.slot_ino(slot).or_else(before)
    }

    fn is_dir(&self, slot: Slot) -> bool {
        let kind = |ino| self.newest().objects.get(&ino).map(|entry| entry.kind);
        self.slot_ino(slot).and_then(kind) == Some(Kind::Dir)
    }

    fn make_all(&mut self, op: &Op) {
        let newest = self.moments[self.last()].clone();
        self.begin_at(newest);
        self.note_accounts(op, None, Makes::Everything);
        if matches!(op, Op::Remount) {
            self.flags.clear();
        }
    }

    /// What `fsync` and `fdatasync` of a file make durable: also what trees do not show of it.
    fn make_file(&mut self, op: &Op, slot: Slot, makes: Makes) {
        self.make_slot(slot, makes);
        if let Some(ino) = self.slot_ino(slot) {
            self.note_accounts(op, Some(ino), makes);
        }
    }

    fn make_slot(&mut self, slot: Slot, makes: Makes) {
        let Some(ino) = self.slot_ino(slot) else { return };
        let last = self.last();
        if makes >= Makes::Data {
            let durable = self.objects.entry(ino).or_default();
            (durable.data, durable.size) = (last, last);
            durable.blocks.clear();
            self.raise_whole(|moment| contents_of(moment, ino));
        }
        self.make_metadata(ino, makes);
    }

    /// Of the data only what the newest operation changed.
    fn make_written(&mut self, slot: Slot, makes: Makes) {
        let Some(ino) = self.slot_ino(slot) else { return };
        let last = self.last();
        if makes >= Makes::Data && last > 0 {
            let (before, after) = (&self.moments[last - 1], &self.moments[last]);
            let changed = changed_blocks(&before.model, &after.model, ino);
            // A size that other writes made is theirs.
            let grew = size(&before.model, ino) < size(&after.model, ino);
            let durable = self.objects.entry(ino).or_default();
            if grew {
                durable.size = last;
            }
            durable.blocks.extend(changed.into_iter().map(|block| (block, last)));
            self.raise_whole(|moment| contents_of(moment, ino));
        }
        self.make_metadata(ino, makes);
    }

    fn make_metadata(&mut self, ino: Ino, makes: Makes) {
        let last = self.last();
        if makes >= Makes::File {
            self.objects.entry(ino).or_default().attributes = last;
            self.raise_metadata(|moment| moment.objects.get(&ino).cloned().map(without_contents));
        }
        match makes {
            Makes::Nothing => return,
            Makes::Data => {
                // More may be durable than was promised: the object with its names.
                self.log_newest();
                return;
            }
            Makes::File | Makes::Entries | Makes::Names => {}
            Makes::Log => self.make_commit(self.last_change(last, |moment| moment.inode(ino))),
            Makes::Metadata => self.make_commit(last),
            Makes::Everything => {
                let newest = self.moments[last].clone();
                return self.begin_at(newest);
            }
        }
        if makes == Makes::Names {
            self.make_names(|_, to| to == ino);
            self.make_existing(ino);
        }
        if self.newest().objects.get(&ino).is_some_and(|entry| entry.kind == Kind::Dir) {
            self.make_names(|name, _| name.0 == ino);
            let inside = self.newest().names.iter().filter(|((dir, _), _)| *dir == ino);
            let inside: Vec<Ino> = inside.map(|(_, to)| *to).collect();
            self.existing.extend(inside.into_iter().map(|child| (child, last)));
        }
        self.logged.insert(last);
    }

    /// Makes names durable that are, or were since the last commit, among those that are meant.
    fn make_names(&mut self, meant: impl Fn(&Name, Ino) -> bool) {
        let last = self.last();
        let moments = &self.moments[self.commit..];
        let all = moments.iter().flat_map(|moment| &moment.names);
        let names: Vec<Name> =
            all.filter(|(name, to)| meant(name, **to)).map(|(name, _)| name.clone()).collect();
        self.raise_metadata(|moment| {
            names.iter().map(|name| moment.names.get(name).copied()).collect::<Vec<_>>()
        });
        // A name that is not meant any more leads elsewhere since then; to what, is not said.
        let since = |name: &Name| {
            let is_meant = |index: &usize| {
                self.moments[*index].names.get(name).is_some_and(|to| meant(name, *to))
            };
            let newest = (self.commit..=last).rev().find(is_meant);
            newest.map_or(last, |index| (index + 1).min(last))
        };
        let durable: Vec<(Name, usize)> =
            names.into_iter().map(|name| (name.clone(), since(&name))).collect();
        let is_left =
            |name: &Name| !self.newest().names.get(name).is_some_and(|to| meant(name, *to));
        let (left, kept): (Vec<Name>, Vec<Name>) =
            durable.iter().map(|(name, _)| name.clone()).partition(is_left);
        self.vacated.retain(|name| !kept.contains(name));
        self.vacated.extend(left);
        self.names.extend(durable);
    }

    /// An object that can be found exists, and so do the directories that lead to it.
    fn make_existing(&mut self, ino: Ino) {
        let last = self.last();
        let mut waiting = vec![ino];
        while let Some(ino) = waiting.pop() {
            let dirs: Vec<Ino> = self.newest().names_of(ino).iter().map(|(dir, _)| *dir).collect();
            if self.existing.insert(ino, last) != Some(last) && ino != ROOT {
                waiting.extend(dirs);
            }
        }
    }

    fn make_commit(&mut self, at: usize) {
        if at <= self.commit {
            return;
        }
        self.commit = at;
        self.metadata_floor = self.metadata_floor.max(at);
        self.whole_floor = self.whole_floor.max(at);
        self.existing.extend(self.moments[at].objects.keys().map(|ino| (*ino, at)));
    }

    /// The first of the moments up to `at` since which what `view` shows has not changed.
    fn last_change<'a, T: PartialEq>(&'a self, at: usize, view: impl Fn(&'a Moment) -> T) -> usize {
        let now = view(&self.moments[at]);
        let before = (0..at).rev().find(|index| view(&self.moments[*index]) != now);
        before.map_or(0, |index| index + 1)
    }

    fn raise_whole<T: PartialEq>(&mut self, view: impl Fn(&Moment) -> T) {
        let since = self.last_change(self.last(), view);
        self.whole_floor = self.whole_floor.max(since);
    }

    fn raise_metadata<T: PartialEq>(&mut self, view: impl Fn(&Moment) -> T) {
        let since = self.last_change(self.last(), view);
        self.metadata_floor = self.metadata_floor.max(since);
        self.whole_floor = self.whole_floor.max(since);
    }

    /// Notes that a file took the name of another one.
    fn note_replaced(&mut self) {
        let at = self.last();
        let Some(before) = at.checked_sub(1).map(|index| &self.moments[index]) else { return };
        let over = self.newest().names.iter().filter(|(name, to)| {
            before.names.get(*name).is_some_and(|other| other != *to)
                && before.objects.contains_key(to)
        });
        let over = over.map(|(name, to)| Replacement { name: name.clone(), ino: *to, at });
        let over: Vec<Replacement> = over.collect();
        self.replacements.extend(over);
    }
}

/// An operation as it is told who has changed something: with what decides about its effect.
fn describe_change(op: &Op) -> String {
    match op {
        Op::Fallocate { mode, .. } => format!("{} {mode}", op.name()),
        other => describe(other),
    }
}

fn without_contents(entry: Entry) -> Entry {
    Entry { content: Digest::default(), size: 0, ..entry }
}
