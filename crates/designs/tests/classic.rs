//! Classics: their state counts are known.

use fathom_designs::classic::{Philosophers, TwoPhase};
use fathom_engine::search::{
    Discovery, Memory, Plan, Report, Stop, Strategy, System, Unobserved, search,
};

fn explore<S: System>(system: &S) -> Report {
    let plan = Plan { deadlock: true, stop_at_first: false, ..Plan::default() };
    let report = search(system, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
    assert_eq!(report.stop, Stop::Exhausted);
    report
}

#[test]
fn philosophers_are_counted_by_the_formula_and_starve_in_one_state() {
    for (seats, states) in [(2, 6), (3, 14), (5, 82), (10, 6726), (12, 39202)] {
        let table = Philosophers::new(seats, false).expect("enough seats");
        let report = explore(&table);
        assert_eq!((report.states, table.states()), (states, states), "{seats} seats");
        let deadlock = report.discovery(Discovery::DEADLOCK).expect("the well-known one");
        assert_eq!((deadlock.count, deadlock.path.steps()), (1, seats as usize));
    }
}

#[test]
fn one_polite_philosopher_removes_the_deadlock() {
    for seats in [2, 5, 10] {
        let report = explore(&Philosophers::new(seats, true).expect("enough seats"));
        assert!(report.discoveries.is_empty(), "{seats} seats: {:?}", report.discoveries);
    }
}

#[test]
fn two_phase_commit_has_the_published_number_of_states() {
    for (managers, states) in [(3, 288), (5, 8832)] {
        let report = explore(&TwoPhase::new(managers, false).expect("some managers"));
        assert_eq!(report.states, states);
        assert_eq!((report.violations().count(), report.never.len()), (0, 0));
    }
}

#[test]
fn a_transaction_manager_that_fails_leaves_the_others_waiting() {
    let report = explore(&TwoPhase::new(3, true).expect("some managers"));
    let deadlock = report.discovery(Discovery::DEADLOCK).expect("the well-known flaw");
    // One prepares, two abort by themselves, and the transaction manager fails.
    assert_eq!(deadlock.path.steps(), 4);
    assert_eq!(report.violations().count(), 1);
}

#[test]
fn a_bitstate_search_knows_how_much_it_misses() {
    let table = Philosophers::new(12, false).expect("enough seats");
    let memory = Memory::Bitstate { bytes: 32 << 10, hashes: 3, seed: 1 };
    let plan = Plan { memory, ..Plan::default() };
    let report = search(&table, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
    let seen = report.states as f64 / table.states() as f64;
    // An upper estimate: states behind the missed ones are missed too, if there is no other way.
    assert!((0.9..0.99).contains(&seen), "{seen}");
    assert!((report.coverage() - seen).abs() < 0.03, "{seen} seen, {} said", report.coverage());
}

#[test]
fn tables_without_seats_are_refused() {
    let error = Philosophers::new(1, false).unwrap_err().to_string();
    assert_eq!(error, "1 philosophers: there are 2 to 32 seats");
    let error = TwoPhase::new(0, false).unwrap_err().to_string();
    assert_eq!(error, "0 resource managers: there are 1 to 20");
}

#[test]
fn every_order_visits_the_same_states_and_names_the_same_paths() {
    let table = Philosophers::new(10, false).expect("enough seats");
    let mut paths = std::collections::BTreeSet::new();
    for order in ["forward", "reverse", "1", "2", "3", "4"] {
        for strategy in [Strategy::Bfs, Strategy::Dfs] {
            let order = order.parse().expect("an order");
            let plan = Plan { deadlock: true, stop_at_first: false, order, ..Plan::default() };
            let report = search(&table, &strategy, &plan, &mut Unobserved).expect("a sound plan");
            assert_eq!(report.states, table.states());
            let estimate = plan.states.sketch().estimate();
            let off = (estimate.states as f64 / report.states as f64 - 1.0).abs();
            assert!(off < 5.0 * estimate.error, "{estimate:?} of {}", report.states);
            // The path is one of the system, whatever the order of the search.
            let path = &report.discovery(Discovery::DEADLOCK).expect("the well-known one").path;
            path.trace(&table).expect("a path of the system");
            paths.insert(path.to_string());
        }
    }
    assert!(paths.len() > 1, "the orders lead to the deadlock in different ways");
}

#[test]
fn searches_with_other_hash_functions_miss_other_states() {
    let table = Philosophers::new(10, false).expect("enough seats");
    let mut united = fathom_record::Sketch::default();
    let mut single = 0;
    for seed in 1..=8 {
        let memory = Memory::Bitstate { bytes: 4 << 10, hashes: 2, seed };
        let plan = Plan { memory, stop_at_first: false, ..Plan::default() };
        let report = search(&table, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
        single = single.max(report.states);
        united.unite(&plan.states.sketch());
    }
    assert!(united.estimate().states > single, "{:?} {single}", united.estimate());
}
