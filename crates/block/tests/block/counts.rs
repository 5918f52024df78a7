//! Exact numbers of crash states, against the closed formulas of the `crash` module.

use crate::common::{ATOMIC, Happening, base, log_of, states};
use fathom_block::crash::{Epoch, Erase, Linear, Lost, Torn};
use fathom_block::{Bounds, Distinct, Enumerator, Event, Level, Window, WriteLog};

/// `epochs` epochs of `writes` writes to different places, each with its own value.
fn epochs(epochs: usize, writes: usize) -> WriteLog {
    let mut log = WriteLog::new();
    for epoch in 0..epochs {
        for write in 0..writes {
            let data = [1 + (epoch * writes + write) as u8; ATOMIC];
            log.push(Event::Write { at: write * ATOMIC, data: &data, fua: false, metadata: false });
        }
        log.push(Event::Flush);
    }
    log
}

/// The number of states and of distinct images; both ways of counting must agree.
fn count(enumerator: &dyn Enumerator, window: &Window<'_>) -> (u128, usize) {
    let found = states(enumerator, window);
    assert_eq!(found.len() as u128, enumerator.count(window), "{window:?}");
    let mut distinct = Distinct::default();
    for (_, image) in &found {
        distinct.insert(image);
    }
    (found.len() as u128, distinct.len())
}

const ALL_SUBSETS: Epoch = Epoch { subsets_max: u64::MAX };

#[test]
fn epochs_of_k_writes() {
    let base = base();
    for (m, k) in [(0, 0), (1, 1), (1, 5), (3, 4), (2, 10)] {
        let log = epochs(m, k);
        let window = Window::new(&base, &log, ATOMIC);
        let linear = 1 + m * k;
        assert_eq!(count(&Linear, &window), (linear as u128, linear));
        let epoch = 1 + m * ((1 << k) - 1);
        assert_eq!(count(&ALL_SUBSETS, &window), (epoch as u128, epoch));
        let lost = m * k * k.saturating_sub(1) / 2;
        assert_eq!(count(&Lost, &window), (lost as u128, lost));
    }
}

#[test]
fn a_bound_limits_each_position() {
    let base = base();
    let log = epochs(2, 10);
    let window = Window::new(&base, &log, ATOMIC);
    // 1, then per epoch 1 + 2 + 4 + 8 + 16 + 5 × 20.
    assert_eq!(count(&Epoch { subsets_max: 20 }, &window).0, 1 + 2 * (31 + 5 * 20));
    // With one state per position only the prefixes are left.
    let prefixes: Vec<_> = states(&Epoch { subsets_max: 1 }, &window);
    let linear = states(&Linear, &window);
    assert!(prefixes.iter().map(|(_, image)| image).eq(linear.iter().map(|(_, image)| image)));
}

#[test]
fn fua_doubles_what_is_in_flight_and_pins_itself() {
    let write = |at, fua| Happening::Write { at, data: vec![at as u8 + 1; ATOMIC], fua };
    let log = log_of(&[write(0, false), write(8, false), write(16, true), write(24, false)]);
    let base = base();
    let window = Window::new(&base, &log, ATOMIC);
    // v = 0, 0, 1, 2, 2: the FUA write is not volatile.
    assert_eq!(count(&ALL_SUBSETS, &window), (1 + 1 + 2 + 4 + 4, 12));
    assert_eq!(count(&Lost, &window), (1 + 2 + 2, 5));
}

#[test]
fn torn_writes_and_half_done_erases() {
    let write = |at, len| Happening::Write { at, data: vec![7; len], fua: false };
    let erase = |at, len| Happening::Erase { at, len };
    let log = log_of(&[write(0, 8), write(8, 32), erase(48, 48), write(44, 8), erase(0, 4)]);
    let base = base();
    let window = Window::new(&base, &log, ATOMIC);
    // Inner boundaries: 0, 3, 5, 1 (not aligned), 0.
    assert_eq!(count(&Torn { cuts_max: 9 }, &window), (2 * (3 + 1), 8));
    assert_eq!(count(&Torn { cuts_max: 2 }, &window).0, 2 * (2 + 1));
    assert_eq!(count(&Erase { cuts_max: 9 }, &window), (2 * 5 + 1 + 1, 12));
    assert_eq!(count(&Erase { cuts_max: 0 }, &window), (2, 2));
}

#[test]
fn a_window_restricts_to_the_operation_in_flight() {
    let base = base();
    let log = epochs(3, 4);
    // The operation is the last two writes of the second epoch, its flush, and the next write.
    let window = Window::new(&base, &log, ATOMIC).between(7, 11);
    assert_eq!(count(&Linear, &window).0, 1 + 3);
    // Two writes were in flight before: 4; then 4 and 8, the flush adds nothing, then 1.
    assert_eq!(count(&ALL_SUBSETS, &window), (4 + 4 + 8 + 1, 17));
    assert_eq!(count(&Lost, &window).0, 2 + 2 + 3);
    let nothing = Window::new(&base, &log, ATOMIC).between(7, 7);
    assert_eq!(count(&ALL_SUBSETS, &nothing).0, 4);
    assert_eq!(count(&Torn { cuts_max: 9 }, &nothing).0, 0);
}

#[test]
fn counting_needs_no_enumeration() {
    let log = epochs(1, 12);
    let long: WriteLog = std::iter::repeat_n(log.event(0), 5000).collect();
    let base = base();
    let window = Window::new(&base, &long, ATOMIC);
    assert_eq!(ALL_SUBSETS.count(&window), {
        let exact: u128 = (0..64).map(|v| 1_u128 << v).sum();
        1 + exact + (5000 - 64) * u128::from(u64::MAX)
    });
    for level in Level::ALL {
        level.enumerator(&Bounds::default()).count(&window);
    }
}
