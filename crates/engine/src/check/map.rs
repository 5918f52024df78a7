//! The map: every abstract state that was seen, what was tried in it, and where that led.

use std::collections::{BTreeSet, HashMap, VecDeque};

use fathom_core::Digest;
use serde::{Deserialize, Serialize};

/// Number of a state.
pub(super) type StateId = u32;

/// The empty file system.
pub(super) const START: StateId = 0;

/// A state that was looked for this often and not found where the map has it is given up: something
/// that the digest does not show leads elsewhere.
const MISSED_MAX: u8 = 3;

/// A route is looked for among so many states at most.
const LOOKED_AT_MAX: usize = 4096;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    digest: Digest,
    /// Moves from the start by the shortest way known when it was found.
    depth: u32,
    /// The state from which it was found, and the move.
    found_from: (StateId, u16),
    /// Moves 0 to this one were tried.
    tried: u16,
    missed: u8,
    /// The targets of moves that led to other states.
    edges: Vec<(u16, StateId)>,
}

/// The known states.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Map {
    states: Vec<State>,
    #[serde(skip)]
    ids: HashMap<Digest, StateId>,
    /// States with untried moves, the nearest to the start first.
    #[serde(skip)]
    open: BTreeSet<(u32, StateId)>,
    moves: u16,
    depth_max: u32,
    /// Of the breadth-first search: who has seen the state, in which search.
    #[serde(skip)]
    stamps: Vec<u32>,
    #[serde(skip)]
    searches: u32,
}

impl Map {
    /// A map with the start alone; `moves` are tried in every state nearer than `depth_max`.
    pub(super) fn new(start: Digest, moves: u16, depth_max: u32) -> Map {
        let mut map = Map {
            states: Vec::new(),
            ids: HashMap::new(),
            open: BTreeSet::new(),
            moves,
            depth_max,
            stamps: Vec::new(),
            searches: 0,
        };
        map.add(start, 0, (START, 0));
        map
    }

    /// After it was read: what is not stored is worked out.
    pub(super) fn complete(mut self) -> Map {
        for (id, state) in self.states.iter().enumerate() {
            self.ids.insert(state.digest, id as StateId);
            if state.tried < self.moves && state.depth < self.depth_max && state.missed < MISSED_MAX
            {
                self.open.insert((state.depth, id as StateId));
            }
        }
        self.stamps = vec![0; self.states.len()];
        self
    }

    /// Known states.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// States in which something is untried.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the digest that decides the moves of a state.
    pub(super) fn digest(&self, id: StateId) -> Digest {
        self.states[id as usize].digest
    }

    pub(super) fn depth(&self, id: StateId) -> u32 {
        self.states[id as usize].depth
    }

    /// The next untried move of a state, which is tried now.
    pub(super) fn next_move(&mut self, id: StateId) -> Option<u16> {
        let (moves, depth_max) = (self.moves, self.depth_max);
        let state = &mut self.states[id as usize];
        if state.tried >= moves || state.depth >= depth_max {
            return None;
        }
        state.tried += 1;
        if state.tried == moves {
            self.open.remove(&(state.depth, id));
        }
        Some(self.states[id as usize].tried - 1)
    }

    /// The state with this digest; whether it is new. It was reached from `from` by `by`.
    pub(super) fn arrive(&mut self, digest: Digest, from: StateId, by: u16) -> (StateId, bool) {
        let known = self.ids.get(&digest).copied();
        let id = known.unwrap_or_else(|| {
            let depth = self.states[from as usize].depth + 1;
            self.add(digest, depth, (from, by))
        });
        let edges = &mut self.states[from as usize].edges;
        if id != from && !edges.contains(&(by, id)) {
            edges.push((by, id));
        }
        (id, known.is_none())
    }

    fn add(&mut self, digest: Digest, depth: u32, found_from: (StateId, u16)) -> StateId {
        let id = self.states.len() as StateId;
        self.states.push(State {
            digest,
            depth,
            found_from,
            tried: 0,
            missed: 0,
            edges: Vec::new(),
        });
        self.stamps.push(0);
        self.ids.insert(digest, id);
        if depth < self.depth_max && self.moves > 0 {
            self.open.insert((depth, id));
        }
        id
    }

    /// The moves from `from` to the nearest state in which something is untried, at most `reach`.
    pub(super) fn route(&mut self, from: StateId, reach: usize) -> Option<Vec<u16>> {
        self.searches += 1;
        let mut queue = VecDeque::from([(from, 0usize)]);
        // Where each state of the search was reached from: place in `trail`, move.
        let mut trail: Vec<(usize, u16)> = vec![(0, 0)];
        let mut place = 0;
        self.stamps[from as usize] = self.searches;
        while let Some((id, steps)) = queue.pop_front() {
            let state = &self.states[id as usize];
            if self.open.contains(&(state.depth, id)) {
                return Some(moves_to(&trail, place));
            }
            if steps < reach && trail.len() < LOOKED_AT_MAX {
                for &(by, to) in &state.edges {
                    if self.stamps[to as usize] != self.searches {
                        self.stamps[to as usize] = self.searches;
                        queue.push_back((to, steps + 1));
                        trail.push((place, by));
                    }
                }
            }
            place += 1;
        }
        None
    }

    /// The open state nearest to the start, and the moves that lead to it from there.
    pub(super) fn nearest_to_start(&self) -> Option<(StateId, Vec<u16>)> {
        let (_, goal) = *self.open.first()?;
        let mut moves = Vec::new();
        let mut at = goal;
        while at != START {
            let (from, by) = self.states[at as usize].found_from;
            moves.push(by);
            at = from;
        }
        moves.reverse();
        Some((goal, moves))
    }

    /// The way to `goal` led elsewhere.
    pub(super) fn missed(&mut self, goal: StateId) {
        let state = &mut self.states[goal as usize];
        state.missed += 1;
        if state.missed == MISSED_MAX {
            self.open.remove(&(state.depth, goal));
        }
    }

    /// So many further moves are to be tried in every state; whether there are any.
    pub(super) fn offer(&mut self, further: u16) -> bool {
        let Some(moves) = self.moves.checked_add(further).filter(|_| further > 0) else {
            return false;
        };
        self.moves = moves;
        for (id, state) in self.states.iter().enumerate() {
            if state.depth < self.depth_max && state.missed < MISSED_MAX {
                self.open.insert((state.depth, id as StateId));
            }
        }
        !self.open.is_empty()
    }

    /// States that were given up.
    pub(super) fn given_up(&self) -> usize {
        self.states.iter().filter(|state| state.missed >= MISSED_MAX).count()
    }
}

/// From the trail of a breadth-first search to the moves that lead to a place of it.
fn moves_to(trail: &[(usize, u16)], mut place: usize) -> Vec<u16> {
    let mut moves = Vec::new();
    while place != 0 {
        let (before, by) = trail[place];
        moves.push(by);
        place = before;
    }
    moves.reverse();
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u128) -> Digest {
        Digest(n)
    }

    /// 0 → 1 → 2 → 0, and 0 → 3; only 3 has an untried move.
    fn ring() -> Map {
        let mut map = Map::new(digest(0), 2, 10);
        for (from, by, to) in [(0, 0, 1), (1, 0, 2), (2, 0, 0), (0, 1, 3), (1, 1, 1), (2, 1, 2)] {
            assert_eq!(map.next_move(from), Some(by));
            map.arrive(digest(to), from, by);
        }
        map
    }

    #[test]
    fn the_nearest_untried_state_is_found_along_known_edges() {
        let mut map = ring();
        assert_eq!((map.len(), map.open()), (4, 1));
        assert_eq!(map.route(1, 3), Some(vec![0, 0, 1]));
        assert_eq!(map.route(1, 2), None, "it is three moves away");
        assert_eq!(map.nearest_to_start(), Some((3, vec![1])));
        assert_eq!(map.next_move(3), Some(0));
        assert_eq!(map.route(3, 9), Some(Vec::new()));
        assert_eq!(map.next_move(3), Some(1));
        assert_eq!((map.next_move(3), map.open(), map.nearest_to_start()), (None, 0, None));
    }

    #[test]
    fn further_moves_open_every_state_again() {
        let mut map = Map::new(digest(0), 1, 10);
        assert_eq!((map.next_move(START), map.next_move(START), map.open()), (Some(0), None, 0));
        assert!(map.offer(2));
        assert_eq!((map.open(), map.next_move(START), map.next_move(START)), (1, Some(1), Some(2)));
        assert_eq!((map.next_move(START), map.open()), (None, 0));
        assert!(!map.offer(u16::MAX) && !map.offer(0), "there are no more numbers");
    }

    #[test]
    fn beyond_the_depth_nothing_is_tried() {
        let mut map = Map::new(digest(0), 1, 1);
        map.next_move(START);
        assert_eq!(map.arrive(digest(1), START, 0), (1, true));
        assert_eq!((map.depth(1), map.next_move(1), map.open()), (1, None, 0));
        assert_eq!(map.arrive(digest(1), START, 0), (1, false));
    }

    #[test]
    fn a_state_that_is_never_where_it_should_be_is_given_up() {
        let mut map = ring();
        for _ in 0..3 {
            map.missed(3);
        }
        assert_eq!((map.open(), map.given_up()), (0, 1));
    }

    #[test]
    fn a_stored_map_goes_on() {
        let map = ring();
        let bytes = postcard::to_stdvec(&map).unwrap();
        let mut again = postcard::from_bytes::<Map>(&bytes).unwrap().complete();
        assert_eq!((again.len(), again.open()), (map.len(), map.open()));
        assert_eq!(again.route(1, 3), Some(vec![0, 0, 1]));
        assert_eq!(again.arrive(digest(2), START, 0), (2, false));
    }
}
