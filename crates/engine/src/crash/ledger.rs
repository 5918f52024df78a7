//! What a crash check remembers: the images it has recovered, and what it has found.
//!
//! Everything that is added is added once however often it comes: a search that was interrupted
//! repeats some steps when it goes on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fathom_block::Level;
use fathom_block::disks::StoredRecording;
use fathom_core::{Digest, Op, Outcome};
use serde::{Deserialize, Serialize};

use super::judge::Cause;
use super::recovery::Recovered;
use super::script::Script;
use crate::coverage::{OpCoverage, Seen};

/// Locks for the images, so that threads seldom wait for each other.
const SHARDS: usize = 64;

/// Images recovered so far, by digest.
pub struct Images {
    shards: Vec<Mutex<HashMap<Digest, Recovered>>>,
}

impl Default for Images {
    fn default() -> Self {
        Images { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
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

    /// What became of the image; finds it out if nobody has.
    ///
    /// # Errors
    /// As `recover`.
    pub fn get<E>(
        &self,
        image: Digest,
        recover: impl FnOnce() -> Result<Recovered, E>,
    ) -> Result<Recovered, E> {
        if let Some(known) = self.shard(image).get(&image) {
            return Ok(known.clone());
        }
        // Two threads may do this at the same time: both come to the same result.
        let recovered = recover()?;
        self.shard(image).insert(image, recovered.clone());
        Ok(recovered)
    }

    /// Whether it is known what became of the image.
    pub fn contains(&self, image: Digest) -> bool {
        self.shard(image).contains_key(&image)
    }

    /// How many distinct images there are.
    pub fn len(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).len() as u64).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One way to see a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The whole run, the last power cut included; without one, the last operation shows it.
    pub script: Script,
    /// What was wrong, in words.
    pub what: String,
    /// What the disks of the run were told, if running it again may tell them something else.
    #[serde(skip)]
    pub recording: Option<Arc<StoredRecording>>,
}

/// How good a sighting is; the smallest is the best.
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
pub struct Group {
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
    pub fn is_better_than(&self, other: &Group) -> bool {
        self.rank < other.rank
    }

    /// The weakest power failure that shows it; none if it shows without one.
    pub fn level_needed(&self) -> Option<Level> {
        self.levels.first().copied()
    }
}

/// The findings so far, by cause.
#[derive(Default)]
pub struct Groups {
    groups: Mutex<BTreeMap<Cause, Group>>,
}

impl Groups {
    /// Adds a sighting. `recording` is asked for only if the sighting is the best so far.
    pub fn add(
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

    /// How many causes there are.
    pub fn len(&self) -> usize {
        lock(&self.groups).len()
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything found, by cause.
    pub fn snapshot(&self) -> BTreeMap<Cause, Group> {
        lock(&self.groups).clone()
    }
}

/// Both, and the counters, as they are saved.
#[derive(Serialize, Deserialize)]
struct Saved {
    images: Vec<(Digest, Recovered)>,
    /// As JSON: operations are tagged with their names, which only a format that describes itself
    /// can read back.
    groups: String,
    goals: Vec<String>,
    /// As JSON, for the same reason.
    coverage: String,
}

/// Everything that a crash check remembers.
#[derive(Default)]
pub struct Ledger {
    /// By digest.
    pub images: Images,
    /// By cause.
    pub groups: Groups,
    /// What was reached at least once.
    pub goals: Mutex<std::collections::BTreeSet<String>>,
    /// What the workloads have exercised; each step counts once, however often it was repeated.
    pub coverage: Mutex<OpCoverage>,
}

impl Ledger {
    /// Notes that something interesting was reached.
    pub fn reach(&self, goal: &str) {
        let mut goals = lock(&self.goals);
        if !goals.contains(goal) {
            goals.insert(goal.to_owned());
        }
    }

    /// What was reached.
    pub fn reached(&self) -> Vec<String> {
        lock(&self.goals).iter().cloned().collect()
    }

    /// Notes the operations of a step.
    pub fn record<'a>(&self, step: impl Iterator<Item = (&'a Op, &'a Outcome)>) {
        let mut coverage = lock(&self.coverage);
        step.for_each(|(op, outcome)| coverage.record(op, outcome));
    }

    /// What was recorded.
    pub fn recorded(&self) -> OpCoverage {
        lock(&self.coverage).clone()
    }

    /// All of it as bytes.
    pub fn save(&self) -> Vec<u8> {
        let mut images = Vec::new();
        for shard in &self.images.shards {
            images.extend(lock(shard).iter().map(|(image, known)| (*image, known.clone())));
        }
        let groups: Vec<(Cause, Group)> = self.groups.snapshot().into_iter().collect();
        let groups = serde_json::to_string(&groups).expect("plain data");
        let coverage = serde_json::to_string(self.recorded().seen()).expect("plain data");
        let saved = Saved { images, groups, goals: self.reached(), coverage };
        postcard::to_stdvec(&saved).expect("plain data")
    }

    /// Takes over what was saved; false if it is not that.
    pub fn load(&self, bytes: &[u8]) -> bool {
        let Ok(saved) = postcard::from_bytes::<Saved>(bytes) else { return false };
        let Ok(groups) = serde_json::from_str::<Vec<(Cause, Group)>>(&saved.groups) else {
            return false;
        };
        let Ok(coverage) = serde_json::from_str::<Vec<Seen>>(&saved.coverage) else {
            return false;
        };
        for (image, known) in saved.images {
            self.images.shard(image).insert(image, known);
        }
        lock(&self.groups.groups).extend(groups);
        lock(&self.goals).extend(saved.goals);
        lock(&self.coverage).merge(&coverage);
        true
    }
}
