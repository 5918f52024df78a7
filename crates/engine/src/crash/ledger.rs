//! What a crash check remembers: the images it has recovered, and what it has found.
//!
//! Everything that is added is added once however often it comes: a search that was interrupted
//! repeats some steps when it goes on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fathom_block::disks::{Accounts, StoredRecording};
use fathom_block::{Level, WriteLog};
use fathom_core::{Digest, Op, Outcome};
use serde::{Deserialize, Serialize};

use super::flushes::{FlushPlace, Flushes, Issued};
use super::judge::{Cause, Unflushed};
use super::recovery::Recovered;
use super::script::Script;
use crate::coverage::{OpCoverage, Seen};

/// Locks for the images, so that threads seldom wait for each other.
const SHARDS: usize = 64;

/// Images recovered so far, by digest.
pub(crate) struct Images {
    shards: Vec<Mutex<HashMap<Digest, Recovered>>>,
    /// What was said of files, once for all images of which it was.
    accounts: Mutex<HashSet<Arc<Accounts>>>,
}

impl Default for Images {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Images { shards, accounts: Mutex::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoned only by a panic that is on its way to the caller.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Images {
    fn shard(&self, image: Digest) -> MutexGuard<'_, HashMap<Digest, Recovered>> {
        lock(&self.shards[image.0 as usize % SHARDS])
    }

    /// Returns what became of the image, and finds it out if nobody has.
    ///
    /// # Errors
    /// As `recover`.
    pub(crate) fn get<E>(
        &self,
        image: Digest,
        recover: impl FnOnce() -> Result<Recovered, E>,
    ) -> Result<Recovered, E> {
        if let Some(known) = self.shard(image).get(&image) {
            return Ok(known.clone());
        }
        // Two threads may do this at the same time: both come to the same result.
        let mut recovered = recover()?;
        let mut accounts = lock(&self.accounts);
        match accounts.get(&recovered.accounts) {
            Some(known) => recovered.accounts = Arc::clone(known),
            None => drop(accounts.insert(Arc::clone(&recovered.accounts))),
        }
        drop(accounts);
        self.shard(image).insert(image, recovered.clone());
        Ok(recovered)
    }

    /// Whether it is known what became of the image.
    pub(crate) fn contains(&self, image: Digest) -> bool {
        self.shard(image).contains_key(&image)
    }

    /// Returns the number of distinct images.
    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).len() as u64).sum()
    }
}

/// One way to see a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sighting {
    /// The whole run, the last power cut included; without one, the last operation shows it.
    pub script: Script,
    /// The violation in words.
    pub what: String,
    /// What the disks of the run were told, if running it again may tell them something else.
    #[serde(skip)]
    pub recording: Option<Arc<StoredRecording>>,
}

/// The quality of a sighting; the smallest is the best.
type Rank = (usize, usize, String);

impl Sighting {
    /// Fewer power failures are better, then fewer operations, and of equally short ones there is one
    /// best: the same whichever thread comes first.
    fn rank(&self) -> Rank {
        let text = self.script.0.iter().map(|event| format!("{event}\n")).collect();
        (self.script.0.len() - self.script.ops_len(), self.script.0.len(), text)
    }
}

/// All sightings of one cause.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    /// The best one.
    pub best: Sighting,
    rank: Rank,
    /// The images that show it.
    pub images: HashSet<Digest>,
    /// The levels at which it shows.
    pub levels: Vec<Level>,
}

impl Group {
    /// Whether its best sighting is a better one than that of the other.
    pub(crate) fn is_better_than(&self, other: &Group) -> bool {
        self.rank < other.rank
    }

    /// The weakest power failure that shows it; none if it shows without one.
    pub(crate) fn level_needed(&self) -> Option<Level> {
        self.levels.first().copied()
    }
}

/// The findings so far, by cause.
#[derive(Default)]
pub(crate) struct Groups {
    groups: Mutex<BTreeMap<Cause, Group>>,
}

impl Groups {
    /// Adds a sighting. `recording` is asked for only if the sighting is the best so far.
    pub(crate) fn add(
        &self,
        cause: Cause,
        image: Digest,
        level: Option<Level>,
        mut sighting: Sighting,
        recording: &dyn Fn() -> Option<StoredRecording>,
    ) {
        let rank = sighting.rank();
        let mut groups = lock(&self.groups);
        let is_best = groups.get(&cause).is_none_or(|group| rank < group.rank);
        if is_best {
            sighting.recording = recording().map(Arc::new);
        }
        let group = groups.entry(cause).or_insert_with(|| Group {
            best: sighting.clone(),
            rank: rank.clone(),
            images: HashSet::new(),
            levels: Vec::new(),
        });
        group.images.insert(image);
        if let Some(level) = level.filter(|level| !group.levels.contains(level)) {
            group.levels.push(level);
            group.levels.sort_unstable();
        }
        if rank < group.rank {
            (group.best, group.rank) = (sighting, rank);
        }
    }

    /// Returns the number of causes.
    pub(crate) fn len(&self) -> usize {
        lock(&self.groups).len()
    }

    /// Everything found, by cause.
    pub(crate) fn snapshot(&self) -> BTreeMap<Cause, Group> {
        lock(&self.groups).clone()
    }
}

/// The images, the groups and the counters as they are saved.
#[derive(Serialize, Deserialize)]
struct Saved {
    images: Vec<(Digest, Recovered)>,
    /// As JSON: operations are tagged with their names, which only a format that describes itself
    /// can read back.
    groups: String,
    /// What the disks were told, for each group that keeps it.
    recordings: Vec<Option<Vec<u8>>>,
    goals: Vec<String>,
    /// As JSON, for the same reason.
    coverage: String,
    flushes: Flushes,
}

/// Everything that a crash check remembers.
#[derive(Default)]
pub(crate) struct Ledger {
    /// The images that were recovered, by digest.
    pub images: Images,
    /// The sightings, by cause.
    pub groups: Groups,
    /// The goals that were reached at least once.
    pub goals: Mutex<std::collections::BTreeSet<String>>,
    /// The places where the subject flushes.
    flushes: Mutex<Flushes>,
    /// What the workloads have exercised; each step counts once, however often it was repeated.
    pub coverage: Mutex<OpCoverage>,
}

impl Ledger {
    /// Notes that something interesting was reached.
    pub(crate) fn reach(&self, goal: &str) {
        let mut goals = lock(&self.goals);
        if !goals.contains(goal) {
            goals.insert(goal.to_owned());
        }
    }

    /// Returns the goals that were reached.
    pub(crate) fn reached(&self) -> Vec<String> {
        lock(&self.goals).iter().cloned().collect()
    }

    /// Notes where the operations of a step flush.
    pub(super) fn note_flushes(&self, issued: &Issued<'_>, log: &WriteLog) {
        lock(&self.flushes).note(issued, log);
    }

    /// The place of a missing flush: one for all operations, if none of them flushes there.
    pub(super) fn place_of(&self, unflushed: &Unflushed) -> FlushPlace {
        lock(&self.flushes).place_of(unflushed)
    }

    /// Notes the operations of a step.
    pub(crate) fn record<'a>(&self, step: impl Iterator<Item = (&'a Op, &'a Outcome)>) {
        let mut coverage = lock(&self.coverage);
        step.for_each(|(op, outcome)| coverage.record(op, outcome));
    }

    /// Returns what the workloads exercised.
    pub(crate) fn recorded(&self) -> OpCoverage {
        lock(&self.coverage).clone()
    }

    /// All of it as bytes.
    pub(crate) fn save(&self) -> Vec<u8> {
        let mut images = Vec::new();
        for shard in &self.images.shards {
            images.extend(lock(shard).iter().map(|(image, known)| (*image, known.clone())));
        }
        let groups: Vec<(Cause, Group)> = self.groups.snapshot().into_iter().collect();
        let recorded = |(_, group): &(Cause, Group)| {
            group.best.recording.as_ref().map(|recording| recording.to_bytes())
        };
        let recordings = groups.iter().map(recorded).collect();
        let groups = serde_json::to_string(&groups).expect("plain data");
        let coverage = serde_json::to_string(self.recorded().seen()).expect("plain data");
        let flushes = lock(&self.flushes).clone();
        let goals = self.reached();
        let saved = Saved { images, groups, recordings, goals, coverage, flushes };
        postcard::to_stdvec(&saved).expect("plain data")
    }

    /// Takes over what was saved; false if it is not that.
    pub(crate) fn load(&self, bytes: &[u8]) -> bool {
        let Ok(saved) = postcard::from_bytes::<Saved>(bytes) else { return false };
        let Ok(mut groups) = serde_json::from_str::<Vec<(Cause, Group)>>(&saved.groups) else {
            return false;
        };
        for ((_, group), bytes) in groups.iter_mut().zip(saved.recordings) {
            let recording = bytes.map(|bytes| StoredRecording::from_bytes(&bytes)).transpose();
            let Ok(recording) = recording else { return false };
            group.best.recording = recording.map(Arc::new);
        }
        let Ok(coverage) = serde_json::from_str::<Vec<Seen>>(&saved.coverage) else {
            return false;
        };
        for (image, known) in saved.images {
            self.images.shard(image).insert(image, known);
        }
        lock(&self.groups.groups).extend(groups);
        lock(&self.goals).extend(saved.goals);
        lock(&self.flushes).merge(saved.flushes);
        lock(&self.coverage).merge(&coverage);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::judge::Class;

    /// Who goes on has what the disks were told: running it again would tell them something else.
    #[test]
    fn recordings_are_saved_with_their_findings() {
        let ledger = Ledger::default();
        for (class, recording) in
            [(Class::LostEntry, Some(StoredRecording::default())), (Class::Leak, None)]
        {
            let cause = Cause::new(class, &Op::Sync, String::new());
            let sighting =
                Sighting { script: Script::default(), what: "gone".to_owned(), recording: None };
            ledger.groups.add(cause, Digest::default(), None, sighting, &|| recording.clone());
        }
        let again = Ledger::default();
        assert!(again.load(&ledger.save()));
        let recordings = |ledger: &Ledger| -> Vec<_> {
            let groups = ledger.groups.snapshot().into_iter();
            groups.map(|(cause, group)| (cause, group.best.recording)).collect()
        };
        assert_eq!(recordings(&again), recordings(&ledger));
        assert_eq!(recordings(&again).iter().filter(|(_, kept)| kept.is_some()).count(), 1);
        assert!(!again.load(b"something else"));
    }
}
