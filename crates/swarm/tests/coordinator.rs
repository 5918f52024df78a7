//! A coordinator with an engine that only pretends to run tasks: what is started when.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fathom_record::swarm::SwarmStatus;
use fathom_swarm::engine::{Engine, Order, Seen};
use fathom_swarm::plan::Limits;
use fathom_swarm::{
    Coordinator, Ended, Merged, Plan, Reason, SwarmDirectory, SwarmError, Tasks, Watcher,
};

/// Task and time of every start.
type Starts = Rc<RefCell<Vec<(u64, Instant)>>>;

/// Every attempt is over at once: those of the first task because the memory was used up.
struct Pretended {
    directory: SwarmDirectory,
    starts: Starts,
}

impl Engine for Pretended {
    fn name(&self) -> &'static str {
        "pretended"
    }

    fn capacity(&self) -> usize {
        1
    }

    fn start(&mut self, orders: &[Order], _: &Limits) -> Result<(), SwarmError> {
        for Order { task, attempt } in orders {
            self.starts.borrow_mut().push((task.number, Instant::now()));
            let ended = Ended {
                reason: if task.number == 1 { Reason::Memory } else { Reason::Done },
                code: None,
                told: String::new(),
                seconds: 0.1,
                memory_bytes: None,
                node: "here".to_owned(),
                kept_by: String::new(),
            };
            let path = self.directory.attempt(&task.name(), *attempt).join("ended.json");
            fs::write(path, serde_json::to_vec(&ended).unwrap()).unwrap();
        }
        Ok(())
    }

    fn watch(&mut self, _: &[String]) -> Result<BTreeMap<String, Seen>, SwarmError> {
        Ok(BTreeMap::new())
    }

    fn stop(&mut self) -> Result<(), SwarmError> {
        Ok(())
    }
}

struct Nobody;

impl Watcher for Nobody {
    fn event(&mut self, _: &str) {}

    fn status(&mut self, _: &SwarmStatus, _: &Merged) {}

    fn wants_the_end(&self) -> bool {
        false
    }
}

#[test]
fn a_task_without_memory_is_started_again_later_and_the_others_do_not_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = "tasks = 3\n[limits]\nretries = 2\n[[campaign]]\ncommand = \"check model\"\n";
    let plan = Plan::parse(text).unwrap();
    let directory = SwarmDirectory::new(&dir.path().join("swarm"));
    let tasks: Vec<_> = Tasks::new(&plan).unwrap().collect();
    directory.create(&plan, "pretended", &tasks).unwrap();
    let starts = Starts::default();
    let engine = Pretended { directory: directory.clone(), starts: Rc::clone(&starts) };
    Coordinator::new(&directory, Box::new(engine), &mut Nobody).unwrap().run().unwrap();

    let starts = starts.borrow();
    let order: Vec<u64> = starts.iter().map(|(task, _)| *task).collect();
    assert_eq!(
        order,
        [1, 2, 3, 1, 1],
        "the others are first, and it is given up after two retries"
    );
    let between = |from: usize, to: usize| starts[to].1 - starts[from].1;
    assert!(between(0, 3) >= Duration::from_secs(1), "{:?}", between(0, 3));
    assert!(between(3, 4) >= Duration::from_secs(2), "{:?}", between(3, 4));
}
