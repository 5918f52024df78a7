//! The transition tour: the reference is the map, the file system is walked along it.
//!
//! From wherever it is, the tour tries what is untried there. Where nothing is, it walks along known
//! edges to the nearest state where something is. If there is none near, it starts again: by removing
//! everything, which are ordinary operations and checked like all others, or by restoring the
//! formatted disk, whichever is cheaper for this kind of subject.
//!
//! The map is only a plan. Whatever the file system does is judged against the reference that did
//! the same; a state that is not where the map has it costs a detour, never a wrong verdict.

use std::fs;
use std::path::Path;

use fathom_core::{Digest, FsPath, HarnessFault, Kind, Op, RestoreMethod, Target, pattern};
use fathom_model::{Model, TreeOptions};

use super::map::{Map, START, StateId};
use super::{Campaign, StepResult};
use fathom_generate::choice::Choices;

/// Nearest states are looked for at most so far away.
const REACH_MAX: usize = 64;

/// How often further moves are tried at the start if none has led away from it.
const OFFERS_AT_START: u32 = 32;

/// What starting again costs, in operations. Measured costs would make the tour depend on the clock, and
/// a seed would not mean the same run twice; the order of magnitude is all that matters here: a clone
/// (the model) and an ioctl (RefFS) take as long as some dozen operations, since both sides start again
/// and are looked at, unmounting and mounting a disk (ext4) as long as hundreds.
fn restart_ops(methods: &[RestoreMethod]) -> usize {
    match methods.first() {
        Some(RestoreMethod::Clone | RestoreMethod::Ioctl) => 32,
        Some(RestoreMethod::Freeze | RestoreMethod::Remount) => 1024,
        // A directory is emptied, a program started again.
        None => 64,
    }
}

impl Campaign<'_, '_> {
    pub(super) fn tour(&mut self) -> Result<(), HarnessFault> {
        if self.plan.explore.hold_files {
            self.generator.hold_files();
        }
        self.restart()?;
        let pairs = self.lineup.pairs.iter_mut();
        let costs = pairs.map(|pair| restart_ops(&pair.subject().restore_methods()));
        let restart_ops = costs.max().unwrap_or(1);
        let mut map = self.open_map()?;
        let mut at = START;
        let mut misses = 0;
        let (mut without_space, mut offered) = (0, 0);
        while !self.is_over() && self.plan.explore.states_max.is_none_or(|max| map.len() < max) {
            if let Some(by) = map.next_move(at) {
                at = self.go(&mut map, at, by)?;
            } else if misses < 2
                && let Some(route) = map.route(at, restart_ops.min(REACH_MAX))
            {
                self.stats.routes += 1;
                at = self.follow(&mut map, at, &route)?;
                misses = if map.route(at, 0).is_some() { 0 } else { misses + 1 };
            } else if let Some((goal, moves)) = map.nearest_to_start() {
                self.start_again(restart_ops)?;
                misses = 0;
                at = self.follow(&mut map, START, &moves)?;
                if at != goal {
                    map.missed(goal);
                }
                continue;
            } else if self.without_space() > without_space && map.offer(self.plan.explore.moves) {
                // What had no space was not really tried, and may have it another time: how much there is, is
                // not part of a state. On btrfs with 2 MiB the tour ended after 32 operations, at the start.
                without_space = self.without_space();
                continue;
            } else if map.len() == 1
                && offered < OFFERS_AT_START
                && map.offer(self.plan.explore.moves)
            {
                // By chance nothing has led away from the start: one seed of many thousands ended there, after
                // 26 operations, as if everything had been tried.
                offered += 1;
                continue;
            } else {
                self.stats.complete = true;
                break;
            }
            if self.lineup.pairs[0].steps().len() as u64 >= self.config.check.episode_ops {
                self.restore_start()?;
                at = START;
            }
        }
        // Nothing comes after it, whatever it says.
        let _ = self.last_look()?;
        self.stats.known = map.len() as u64;
        self.stats.open = map.open() as u64;
        self.stats.given_up = map.given_up() as u64;
        self.close_map(&map)
    }

    /// Number of operations so far that a subject had no space for.
    fn without_space(&self) -> u64 {
        self.lineup.pairs.iter().map(|pair| pair.without_space()).sum()
    }

    /// Takes one move; where it led.
    fn go(&mut self, map: &mut Map, from: StateId, by: u16) -> Result<StateId, HarnessFault> {
        let ops = self.meta_of(map.digest(from), by);
        match self.perform(&ops)? {
            StepResult::AsExpected => {}
            StepResult::OutOfOps => return Ok(from),
            StepResult::Diverged => {
                self.restart()?;
                return Ok(START);
            }
        }
        let (to, _) = map.arrive(self.lineup.model().digest(), from, by);
        self.stats.depth = self.stats.depth.max(map.depth(to));
        if self.maintain(ops.len())? == StepResult::Diverged {
            self.restart()?;
            return Ok(START);
        }
        Ok(to)
    }

    fn follow(
        &mut self,
        map: &mut Map,
        mut at: StateId,
        moves: &[u16],
    ) -> Result<StateId, HarnessFault> {
        for by in moves {
            if self.over {
                break;
            }
            at = self.go(map, at, *by)?;
        }
        Ok(at)
    }

    /// Move number `by` of a state: always the same for the same seed.
    pub(super) fn meta_of(&mut self, state: Digest, by: u16) -> Vec<Op> {
        let (low, high) = (state.0 as u64, (state.0 >> 64) as u64);
        let seed = pattern::word(pattern::word(self.plan.seed, low) ^ high, u64::from(by));
        self.generator.begin(Choices::new(seed));
        self.generator.meta(self.lineup.model())
    }

    /// Back to the empty file system, by the cheaper way.
    fn start_again(&mut self, restart_ops: usize) -> Result<(), HarnessFault> {
        let empty = Model::new(self.plan.reference.clone())
            .map_err(|error| HarnessFault::new("making the reference", error))?;
        let sweep = sweep(self.lineup.model(), &empty);
        if sweep.len() < restart_ops {
            self.stats.sweeps += 1;
            match self.perform(&sweep)? {
                StepResult::AsExpected if self.lineup.model().digest() == empty.digest() => {
                    return Ok(());
                }
                // There is nothing left to look at.
                StepResult::Diverged => return self.restart_counted(),
                StepResult::AsExpected | StepResult::OutOfOps => {}
            }
        }
        self.restore_start()
    }

    fn restore_start(&mut self) -> Result<(), HarnessFault> {
        if self.last_look()? == StepResult::Diverged && self.over {
            return Ok(());
        }
        self.restart_counted()
    }

    fn restart_counted(&mut self) -> Result<(), HarnessFault> {
        self.stats.restores += 1;
        self.restart()
    }

    fn open_map(&self) -> Result<Map, HarnessFault> {
        let explore = &self.plan.explore;
        if let Some((path, true)) = &self.plan.map {
            let fault = |error: &dyn std::fmt::Display| {
                HarnessFault::new(format!("going on with the map {}", path.display()), error)
            };
            let bytes = fs::read(path).map_err(|error| fault(&error))?;
            let (seed, map): (u64, Map) =
                postcard::from_bytes(&bytes).map_err(|error| fault(&error))?;
            if seed != self.plan.seed {
                return Err(fault(&format!("it was made with --seed {seed}: give that one")));
            }
            return Ok(map.complete());
        }
        Ok(Map::new(self.lineup.model().digest(), explore.moves, explore.depth_max))
    }

    fn close_map(&self, map: &Map) -> Result<(), HarnessFault> {
        let Some((path, _)) = &self.plan.map else { return Ok(()) };
        write_map(path, self.plan.seed, map)
            .map_err(|error| HarnessFault::new(format!("writing {}", path.display()), error))
    }
}

/// Writes the map atomically.
fn write_map(path: &Path, seed: u64, map: &Map) -> std::io::Result<()> {
    let bytes = postcard::to_stdvec(&(seed, map)).map_err(std::io::Error::other)?;
    let part = path.with_extension("part");
    fs::write(&part, bytes)?;
    fs::rename(part, path)
}

/// Makes the operations that remove everything and restore the root.
fn sweep(model: &Model, empty: &Model) -> Vec<Op> {
    let tree = model.volume().tree(TreeOptions::default());
    let start = empty.volume().tree(TreeOptions::default());
    let mut ops = Vec::new();
    for (path, entry) in tree.entries.iter().rev() {
        let path = path.clone();
        match entry.kind {
            _ if path.as_bytes() == b"." => {}
            Kind::Dir => ops.push(Op::Rmdir { path }),
            _ => ops.push(Op::Unlink { path }),
        }
    }
    let root = FsPath::from(".");
    let target = || Target::Path(root.clone());
    if let (Some(now), Some(then)) = (tree.entries.get(&root), start.entries.get(&root)) {
        for name in now.xattrs.keys().filter(|name| !then.xattrs.contains_key(*name)) {
            ops.push(Op::Removexattr { target: target(), name: name.clone() });
        }
        if (now.uid, now.gid) != (then.uid, then.gid) {
            ops.push(Op::Chown { target: target(), uid: Some(then.uid), gid: Some(then.gid) });
        }
        if now.mode != then.mode {
            ops.push(Op::Chmod { target: target(), mode: then.mode });
        }
    }
    ops
}
