//! The batches of an exhaustive search; see the [module](super) for why they are deterministic.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use fathom_record::pace::Moment;

use crate::search::visited::{Arrival, SHARDS, Sharded, Visited, shard_of};

use super::SearchError;
use super::checkpoint::{Identity, Saver};
use super::fold::Ancestors;
use super::judge::{Judge, Tallies};
use super::key::scatter;
use super::ledger::Ledger;
use super::links::Segment;
use super::open::{BATCH_RUNS_MAX, Open, Run, Span, cut, run_states_max, waiting_max_default};
use super::piece::{Piece, Setting};
use super::plan::Plan;
use super::progress::{Clock, Observer, PROGRESS_EVERY, Progress};
use super::rebuild::rebuild;
use super::recent::Recent;
use super::report::{Report, Stop};
use super::system::System;
use super::workers::{Task, Workers};

/// Number of pieces into which a batch of few runs is cut, if it is worth waking the workers.
const PIECES_WANTED: usize = 64;

/// Number of runs from which on a batch is not cut.
const PIECES_ENOUGH: usize = 16;

/// Longest time for a piece of a batch that can be cut freely, whatever one state takes: the clock
/// is looked at between pieces.
const PIECE_TIME: Duration = Duration::from_millis(20);

/// Time below which a batch is not interrupted to look at the clock. What was explored of it need
/// not be its beginning, so that threads can begin with what they made themselves.
const BATCH_TIME: Duration = Duration::from_millis(100);

/// Time of work below which one thread does it alone: waking the others takes some ten
/// microseconds.
const ALONE_BELOW: Duration = Duration::from_micros(100);

/// Number of shards that one thread serves together: every piece is locked once for all of them.
const SHARDS_TOGETHER: usize = 4;

/// The parallel steps of a batch. Items are pieces, except that `Insert` has groups of shards.
#[derive(Clone, Copy)]
enum Phase {
    Unfold,
    Expand,
    Insert,
    Collect,
}

/// Explores everything, in the order of `O`.
pub(super) fn explore<S: System, V: Visited, O: Open<S::State>>(
    system: &S,
    plan: &Plan,
    visited: &Sharded<V>,
    observer: &mut dyn Observer,
) -> Result<Report, SearchError> {
    let judge = &Judge::new(system, plan.deadlock);
    let setting = &Setting { system, plan, visited, judge };
    // Cutting n runs into pieces of a 64th of all states gives at most 64 pieces more.
    let pieces: Vec<RwLock<Piece<S>>> =
        (0..BATCH_RUNS_MAX + PIECES_WANTED).map(|_| RwLock::new(Piece::new(judge))).collect();
    let pieces_expanded = AtomicUsize::new(0);
    let recents: Vec<RwLock<Recent>> =
        (0..plan.threads()).map(|_| RwLock::new(Recent::new())).collect();
    let work = |Task { phase, item, thread }: Task<Phase>| match phase {
        Phase::Unfold => write(&pieces[item]).unfold(system, thread),
        Phase::Expand => {
            let mut recent = write(&recents[thread]);
            recent.begin_piece(item);
            write(&pieces[item]).expand(setting, &mut recent, thread);
        }
        Phase::Insert => {
            let shards = item * SHARDS_TOGETHER..(item + 1) * SHARDS_TOGETHER;
            let mut sets: Vec<_> = shards.map(|shard| (shard, visited.shard(shard))).collect();
            let expanded = pieces_expanded.load(Ordering::Relaxed);
            for piece in pieces[..expanded].iter().map(read) {
                for (shard, set) in &mut sets {
                    piece.arrivals.insert(*shard, &mut **set, piece.depth());
                }
            }
        }
        Phase::Collect => write(&pieces[item]).collect(setting),
    };
    Workers::gather(plan.threads(), &work, |workers| {
        let mut explorer = Explorer {
            setting,
            pieces: &pieces,
            recents: &recents,
            pieces_expanded: &pieces_expanded,
            workers,
            observer,
            clock: Clock::start(),
            cost: Duration::MAX,
            open: O::new(plan.waiting_max.unwrap_or_else(waiting_max_default::<S::State>)),
            ledger: Ledger::new(judge),
            stop: None,
        };
        explorer.run()
    })
}

/// The state of a search, on the thread that leads the workers.
struct Explorer<'a, S: System, V, O> {
    setting: &'a Setting<'a, S, V>,
    pieces: &'a [RwLock<Piece<S>>],
    recents: &'a [RwLock<Recent>],
    pieces_expanded: &'a AtomicUsize,
    workers: &'a Workers<'a, Phase>,
    observer: &'a mut dyn Observer,
    clock: Clock,
    /// Time that one state took in the last batch.
    cost: Duration,
    open: O,
    ledger: Ledger,
    stop: Option<Stop>,
}

impl<S: System, V: Visited, O: Open<S::State>> Explorer<'_, S, V, O> {
    fn run(&mut self) -> Result<Report, SearchError> {
        let mut saver = self.setting.plan.checkpoints.as_ref().map(|checkpoints| {
            let identity = Identity::new(&checkpoints.label, O::NAME, self.setting);
            Saver::new(checkpoints, identity)
        });
        match &saver {
            Some(saver) if saver.resumes() => self.resume(saver)?,
            _ => self.start(),
        }
        // Re-creating states must not use up the time for exploring: it would never get further.
        self.clock = Clock::start();
        let stop = loop {
            if let Some(stop) = self.stop.take().or_else(|| self.check_bounds()) {
                break stop;
            }
            let mut batch = self.open.take();
            if batch.is_empty() {
                batch = self.unfold();
            }
            if batch.is_empty() {
                break if self.states_at_bound() == 0 { Stop::Exhausted } else { Stop::Depth };
            }
            self.explore_batch(batch);
            if let Some(saver) = saver.as_mut().filter(|saver| saver.is_due()) {
                saver.save(self.setting.system, &self.ledger, self.open.spans())?;
            }
        };
        if let Some(saver) = &mut saver {
            saver.save(self.setting.system, &self.ledger, self.open.spans())?;
        }
        Ok(self.report(stop))
    }

    /// Begins with the initial states.
    fn start(&mut self) {
        let Setting { system, plan, visited, judge } = *self.setting;
        let mut links = Segment::default();
        let mut found: Tallies<u64> = judge.tallies();
        let mut states = Vec::new();
        for (choice, state) in system.init().into_iter().enumerate() {
            let key = scatter(system.key(&state));
            if !system.within_boundary(&state)
                || visited.shard(shard_of(key)).insert(key, 0) != Arrival::New
            {
                continue;
            }
            self.ledger.key_sum = self.ledger.key_sum.wrapping_add(key);
            links.push(0, choice as u32);
            let violated = judge.state(&state, links.nodes, &mut found);
            states.push(state);
            if violated && plan.stop_at_first {
                self.stop = Some(Stop::Violation);
                break;
            }
        }
        self.ledger.count(0, links.nodes);
        self.ledger.links.append(links);
        let mut news = Vec::new();
        judge.merge(&mut self.ledger.found, found, |index| news.push(index), |node| node);
        self.announce(&news);
        let first = Run { depth: 0, first_node: 1, states, home: 0 };
        if plan.depth_max == Some(0) {
            first.span().append(&mut self.ledger.beyond);
        } else {
            for run in cut(vec![first], run_states_max::<S::State>()) {
                self.open.push(run);
            }
        }
    }

    /// Begins where a checkpoint ended.
    fn resume(&mut self, saver: &Saver<'_>) -> Result<(), SearchError> {
        let Setting { system, plan, visited, judge } = *self.setting;
        let (ledger, waiting) = saver.load(system, judge)?;
        self.ledger = ledger;
        let depth_max = plan.depth_max.unwrap_or(u32::MAX);
        if self.ledger.depth() > depth_max as usize {
            return Err(SearchError::Plan("the checkpoint is already deeper than the depth bound"));
        }
        let unfinished = std::mem::take(&mut self.ledger.unfinished);
        let beyond = std::mem::take(&mut self.ledger.beyond);
        let (open, beyond) = unfinished
            .into_iter()
            .chain(waiting)
            .chain(beyond)
            .partition::<Vec<Span>, _>(|span| span.depth < depth_max);
        beyond.into_iter().for_each(|span| span.append(&mut self.ledger.beyond));
        let runs = rebuild(system, plan.threads(), visited, &self.ledger, &open);
        for run in runs.ok_or_else(|| saver.changed())? {
            self.open.push(run);
        }
        if plan.stop_at_first && judge.any_violation(&self.ledger.found) {
            self.stop = Some(Stop::Violation);
        }
        Ok(())
    }

    fn check_bounds(&mut self) -> Option<Stop> {
        let (ledger, visited, open) = (&self.ledger, self.setting.visited, &self.open);
        self.clock.check(self.setting.plan, self.observer, || Progress {
            states: ledger.states,
            transitions: ledger.transitions,
            depth: ledger.depth(),
            open: open.spans().map(|span| span.nodes).sum(),
            bytes: visited.bytes() + ledger.links.bytes(),
            elapsed: Duration::ZERO,
        })
    }

    /// Takes a batch of folded states and makes them again.
    fn unfold(&mut self) -> Vec<Run<S::State>> {
        let spans = self.open.take_folded();
        for (piece, &span) in self.pieces.iter().zip(&spans) {
            write(piece).load_folded(span, Ancestors::new(&self.ledger.links, span));
        }
        self.workers.run(Phase::Unfold, spans.len(), None, false);
        self.pieces[..spans.len()].iter().map(|piece| write(piece).unload()).collect()
    }

    /// Explores a batch: expands, inserts, collects.
    fn explore_batch(&mut self, mut batch: Vec<Run<S::State>>) {
        let started = Moment::now();
        let size_max = self.piece_states_max();
        self.open.give_back(batch.split_off(self.runs_in_pieces(&batch, size_max)));
        let states: usize = batch.iter().map(|run| run.states.len()).sum();
        let work = self.cost.saturating_mul(states as u32);
        let alone = work < ALONE_BELOW;
        let whole = batch.len() >= PIECES_ENOUGH || (alone && O::CUT_FREELY);
        let size = if whole { size_max } else { states.div_ceil(PIECES_WANTED) };
        let runs = cut(batch, size.min(size_max));
        let loaded = runs.len();
        assert!(loaded <= self.pieces.len(), "a piece for each of {loaded} runs");
        for (piece, run) in self.pieces.iter().zip(runs) {
            write(piece).load(run);
        }
        self.recents.iter().for_each(|recent| write(recent).begin_batch());
        let expanded = self.expand(loaded, started, work);
        let rest = self.pieces[expanded..loaded].iter().map(|piece| write(piece).unload());
        self.open.give_back(rest.collect());
        self.pieces_expanded.store(expanded, Ordering::Relaxed);
        self.workers.run(Phase::Insert, SHARDS / SHARDS_TOGETHER, None, alone);
        self.divide_room(expanded);
        if alone {
            self.workers.run(Phase::Collect, expanded, None, true);
        } else {
            let homes = self.pieces[..expanded].iter().map(|piece| read(piece).home());
            self.workers.run_pinned(Phase::Collect, homes);
        }
        let mut explored = 0;
        for piece in &self.pieces[..expanded] {
            let mut piece = write(piece);
            explored += piece.span().nodes;
            self.merge(&mut piece);
        }
        self.cost = started.elapsed() / (explored as u32).max(1);
    }

    /// Makes the children of so many pieces; returns the number of pieces done when it was time to
    /// look at the bounds again. A batch that does not take long is not interrupted.
    fn expand(&self, pieces: usize, started: Moment, work: Duration) -> usize {
        if work < ALONE_BELOW || work >= BATCH_TIME {
            let deadline = O::CUT_FREELY.then(|| self.deadline(started));
            return self.workers.run(Phase::Expand, pieces, deadline, work < ALONE_BELOW);
        }
        let homes = self.pieces[..pieces].iter().map(|piece| read(piece).home());
        self.workers.run_pinned(Phase::Expand, homes);
        pieces
    }

    /// Greatest number of states of one piece. Not fewer than two: then there are enough pieces for
    /// any run.
    fn piece_states_max(&self) -> usize {
        let run_states = run_states_max::<S::State>();
        if !O::CUT_FREELY {
            return run_states;
        }
        let in_time = PIECE_TIME.as_nanos() / self.cost.as_nanos().max(1);
        usize::try_from(in_time).unwrap_or(run_states).clamp(2, run_states)
    }

    /// Number of runs of a batch for which there are pieces of `size` states each.
    fn runs_in_pieces(&self, batch: &[Run<S::State>], size: usize) -> usize {
        let mut pieces = 0;
        let has_pieces = |run: &&Run<S::State>| {
            pieces += run.states.len().div_ceil(size);
            pieces <= self.pieces.len()
        };
        batch.iter().take_while(has_pieces).count()
    }

    /// The time at which to look at the bounds again.
    fn deadline(&self, now: Moment) -> Moment {
        let soon = now + PROGRESS_EVERY;
        self.setting.plan.time_max.map_or(soon, |max| soon.min(self.clock.started + max))
    }

    /// Tells each piece how many new states it may keep: the bound on states, in order.
    fn divide_room(&self, pieces: usize) {
        let Some(max) = self.setting.plan.states_max else { return };
        let mut room = max.saturating_sub(self.ledger.states);
        for piece in &self.pieces[..pieces] {
            let mut piece = write(piece);
            piece.room = room;
            room = room.saturating_sub(piece.arrivals.count_new());
        }
    }

    /// Takes over the result of a piece. Pieces come in order; after one that halted, the search is
    /// over and the parents of the others are not explored.
    fn merge(&mut self, piece: &mut Piece<S>) {
        let (span, result) = (piece.span(), piece.take_result(self.setting.judge));
        if self.stop.is_some() {
            span.append(&mut self.ledger.unfinished);
            return;
        }
        let mut news = Vec::new();
        let (runs, halt) =
            self.ledger.add(span, result, self.setting.judge, |index| news.push(index));
        for run in runs {
            if let Some(spare) = self.open.push(run) {
                piece.recycle(spare);
            }
        }
        self.announce(&news);
        self.stop = halt;
    }

    /// Tells the observer of properties that have something found for the first time.
    fn announce(&mut self, news: &[usize]) {
        for &index in news {
            let tally = &self.ledger.found.0[index];
            let Some(node) = tally.first else { continue };
            let path = self.ledger.links.path(node);
            self.observer.discovery(&self.setting.judge.discovery(index, path, tally.count));
        }
    }

    /// Number of states that are not explored because they are too deep. (Not `beyond`: a
    /// depth-first search may have met some of those again, closer.)
    fn states_at_bound(&self) -> u64 {
        let at_bound =
            self.setting.plan.depth_max.map(|max| self.ledger.states_by_depth.get(max as usize));
        at_bound.flatten().copied().unwrap_or(0)
    }

    fn report(&self, stop: Stop) -> Report {
        let Setting { visited, judge, .. } = *self.setting;
        let ledger = &self.ledger;
        let waiting = self.open.spans().map(|span| span.nodes);
        let unfinished = ledger.unfinished.iter().map(|span| span.nodes);
        Report {
            stop,
            states: ledger.states,
            transitions: ledger.transitions,
            states_by_depth: ledger.states_by_depth.clone(),
            states_open: waiting.chain(unfinished).sum::<u64>() + self.states_at_bound(),
            discoveries: judge.discoveries(&ledger.found, |node| ledger.links.path(*node)),
            never: judge.never(&ledger.found),
            omitted: visited.omitted(),
            visited_bytes: visited.bytes(),
            links_bytes: ledger.links.bytes(),
            elapsed: self.clock.started.elapsed(),
        }
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    // Poisoned only by a panic of the system, which is on its way to the caller.
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
