//! A random graph that judges every step by itself, and remembers which it has judged.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fathom_engine::search::{Property, System};

use super::random::RandomGraph;
use crate::busy;

/// The graph with its records.
pub(crate) struct Recorder {
    pub(crate) graph: RandomGraph,
    /// How long it takes to judge a step.
    pub(crate) effort: Duration,
    /// What was judged (the node where a step ends), and of each the smallest step: node, tag, edge.
    pub(crate) records: Mutex<BTreeMap<u64, [u64; 3]>>,
    /// Steps judged by this object: not a record, since it counts steps taken twice.
    pub(crate) judged: AtomicU64,
    /// Steps only retraced by this object.
    pub(crate) retraced: AtomicU64,
}

impl Recorder {
    pub(crate) fn new(graph: RandomGraph) -> Recorder {
        Recorder {
            graph,
            effort: Duration::ZERO,
            records: Mutex::default(),
            judged: AtomicU64::new(0),
            retraced: AtomicU64::new(0),
        }
    }

    pub(crate) fn records(&self) -> BTreeMap<u64, [u64; 3]> {
        self.records.lock().expect("no panics").clone()
    }
}

impl System for Recorder {
    type State = (u64, u64);
    type Action = u64;

    fn init(&self) -> Vec<(u64, u64)> {
        self.graph.init()
    }

    fn actions(&self, state: &(u64, u64), actions: &mut Vec<u64>) {
        self.graph.actions(state, actions);
    }

    fn next(&self, state: &(u64, u64), edge: &u64) -> Option<(u64, u64)> {
        self.judged.fetch_add(1, Ordering::Relaxed);
        busy(self.effort);
        let next = self.graph.next(state, edge)?;
        let step = [state.0, state.1, *edge];
        let mut records = self.records.lock().expect("no panics");
        let witness = records.entry(next.0).or_insert(step);
        *witness = step.min(*witness);
        Some(next)
    }

    fn retrace(&self, state: &(u64, u64), edge: &u64) -> Option<(u64, u64)> {
        self.retraced.fetch_add(1, Ordering::Relaxed);
        self.graph.next(state, edge)
    }

    fn key(&self, state: &(u64, u64)) -> u128 {
        self.graph.key(state)
    }

    fn within_boundary(&self, state: &(u64, u64)) -> bool {
        self.graph.within_boundary(state)
    }

    /// Those of the graph: their searches differ by the records alone.
    fn properties(&self) -> Vec<Property<Recorder>> {
        vec![
            Property::<Self>::always("good", |recorder, state| {
                !state.0.is_multiple_of(recorder.graph.bad)
            }),
            Property::<Self>::sometimes("divisible by 1000", |_, state| {
                state.0.is_multiple_of(1000)
            }),
        ]
    }

    fn save(&self) -> Vec<u8> {
        let numbers = self.records().into_iter().flat_map(|(end, [a, b, c])| [end, a, b, c]);
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    fn load(&self, saved: &[u8]) -> bool {
        let (numbers, rest) = saved.as_chunks::<8>();
        let (records, odd) = numbers.as_chunks::<4>();
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let records = records.iter().map(|record| record.each_ref().map(number));
        *self.records.lock().expect("no panics") =
            records.map(|[end, a, b, c]| (end, [a, b, c])).collect();
        rest.is_empty() && odd.is_empty()
    }
}
