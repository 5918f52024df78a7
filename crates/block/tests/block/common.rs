//! Logs and collected states for the tests.

use std::ops::ControlFlow;

use fathom_block::{CrashPoint, Enumerator, Erased, Event, Image, Window, WriteLog};
use proptest::prelude::*;

/// The device of these tests: small enough that writes overlap often.
pub(crate) const SIZE: usize = 96;
/// Its atomic unit.
pub(crate) const ATOMIC: usize = 8;

/// An event that owns its data.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Write { at: usize, data: Vec<u8>, fua: bool },
    Erase { at: usize, len: usize },
    Flush,
    Mark,
}

impl Happening {
    fn event(&self) -> Event<'_> {
        match self {
            Happening::Write { at, data, fua } => {
                Event::Write { at: *at, data, fua: *fua, metadata: false }
            }
            Happening::Erase { at, len } => Event::Erase { at: *at, len: *len },
            Happening::Flush => Event::Flush,
            Happening::Mark => Event::Mark(b"mark"),
        }
    }
}

pub(crate) fn log_of(happenings: &[Happening]) -> WriteLog {
    happenings.iter().map(Happening::event).collect()
}

fn happening() -> impl Strategy<Value = Happening> {
    let region = || (0..SIZE - 1).prop_flat_map(|at| (Just(at), 1..=(SIZE - at).min(40)));
    prop_oneof![
        6 => (region(), 1..255_u8, any::<bool>()).prop_map(|((at, len), byte, fua)| {
            Happening::Write { at, data: vec![byte; len], fua }
        }),
        2 => region().prop_map(|(at, len)| Happening::Erase { at, len }),
        2 => Just(Happening::Flush),
        1 => Just(Happening::Mark),
    ]
}

/// A log of up to `max` events with a window in it.
pub(crate) fn log_and_window(max: usize) -> impl Strategy<Value = (WriteLog, usize, usize)> {
    prop::collection::vec(happening(), 0..=max).prop_flat_map(|happenings| {
        let len = happenings.len();
        (0..=len, 0..=len).prop_map(move |(a, b)| (log_of(&happenings), a.min(b), a.max(b)))
    })
}

/// A device with something on it.
pub(crate) fn base() -> Image {
    let bytes: Vec<u8> = (0..SIZE).map(|index| (index * 37 % 251) as u8).collect();
    Image::from_bytes(&bytes, Erased::Ones)
}

/// Every state that an enumerator shows.
pub(crate) fn states(enumerator: &dyn Enumerator, window: &Window<'_>) -> Vec<(CrashPoint, Image)> {
    let mut found = Vec::new();
    let flow = enumerator.visit(window, &mut |point, image| {
        found.push((point.clone(), image.clone()));
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    found
}
