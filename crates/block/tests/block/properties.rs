//! What must hold for every log, and a check that a wrong enumerator does not pass.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use crate::common::{ATOMIC, SIZE, base, log_and_window, states};
use fathom_block::crash::{Epoch, Linear, Lost, Subset, Visitor};
use fathom_block::{Bounds, CrashPoint, Enumerator, Erased, Event, Image, Level, Window, WriteLog};
use proptest::prelude::*;

/// The fault model again, as directly as it can be said: at each position choose, for each earlier
/// effect, whether it arrived; keep the choices that lose nothing durable. The bytes of all images,
/// by position.
fn allowed(log: &WriteLog, from: usize, to: usize) -> BTreeMap<usize, BTreeSet<Vec<u8>>> {
    let mut allowed = BTreeMap::new();
    for position in from..=to {
        let images: &mut BTreeSet<_> = allowed.entry(position).or_default();
        for arrived in 0_u32..1 << position {
            let legal = (0..position).all(|index| {
                let flushed = (index..position).any(|later| log.event(later) == Event::Flush);
                let fua = matches!(log.event(index), Event::Write { fua: true, .. });
                arrived >> index & 1 == 1 || !(flushed || fua)
            });
            if legal {
                let mut bytes = base().to_vec();
                let chosen = (0..position).filter(|index| arrived >> index & 1 == 1);
                chosen.for_each(|index| apply(log.event(index), &mut bytes));
                images.insert(bytes);
            }
        }
    }
    allowed
}

fn apply(event: Event<'_>, bytes: &mut [u8]) {
    match event {
        Event::Write { at, data, .. } => bytes[at..at + data.len()].copy_from_slice(data),
        Event::Erase { at, len } => bytes[at..at + len].fill(0xff),
        Event::Flush | Event::Mark(_) => {}
    }
}

/// What is wrong with an enumerator of the epoch level: nothing, or a reason.
fn audit(
    enumerator: &dyn Enumerator,
    log: &WriteLog,
    from: usize,
    to: usize,
) -> Result<(), String> {
    let base = base();
    let window = Window::new(&base, log, ATOMIC).between(from, to);
    let found = states(enumerator, &window);
    let points: BTreeSet<&CrashPoint> = found.iter().map(|(point, _)| point).collect();
    let images: BTreeSet<Vec<u8>> = found.iter().map(|(_, image)| image.to_vec()).collect();
    let allowed = allowed(log, from, to);
    if found.len() as u128 != enumerator.count(&window) {
        return Err(format!("{} states, formula {}", found.len(), enumerator.count(&window)));
    }
    if points.len() != found.len() {
        return Err("a state is shown twice".to_owned());
    }
    for (point, image) in &found {
        if !allowed[&point.position()].contains(&image.to_vec()) {
            return Err(format!("{point} is impossible"));
        }
    }
    match allowed.values().flatten().find(|image| !images.contains(*image)) {
        Some(image) => Err(format!("an image is missing: {image:?}")),
        None => Ok(()),
    }
}

const ALL_SUBSETS: Epoch = Epoch { subsets_max: u64::MAX };

/// An enumerator that takes every log for another one.
struct Misreads(fn(Event<'_>) -> Event<'_>);

impl Misreads {
    fn misread(&self, window: &Window<'_>) -> WriteLog {
        window.log().events().map(self.0).collect()
    }
}

/// The same window of another log.
fn again<'a>(window: &Window<'a>, log: &'a WriteLog) -> Window<'a> {
    Window::new(window.base(), log, ATOMIC).between(window.from(), window.to())
}

impl Enumerator for Misreads {
    fn level(&self) -> Level {
        Level::Epoch
    }

    fn count(&self, window: &Window<'_>) -> u128 {
        let log = self.misread(window);
        ALL_SUBSETS.count(&again(window, &log))
    }

    fn visit(&self, window: &Window<'_>, visitor: &mut Visitor<'_>) -> ControlFlow<()> {
        let log = self.misread(window);
        ALL_SUBSETS.visit(&again(window, &log), visitor)
    }
}

/// An enumerator that does not show the states in which this many events are missing.
struct Skips(usize);

impl Enumerator for Skips {
    fn level(&self) -> Level {
        Level::Epoch
    }

    fn count(&self, window: &Window<'_>) -> u128 {
        states(self, window).len() as u128
    }

    fn visit(&self, window: &Window<'_>, visitor: &mut Visitor<'_>) -> ControlFlow<()> {
        ALL_SUBSETS.visit(window, &mut |point, image| match point {
            CrashPoint::Epoch { lost, .. } if lost.len() == self.0 => ControlFlow::Continue(()),
            _ => visitor(point, image),
        })
    }
}

fn ignores_fua(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Write { at, data, metadata, .. } => Event::Write { at, data, metadata, fua: false },
        other => other,
    }
}

fn takes_every_write_for_fua(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Write { at, data, metadata, .. } => Event::Write { at, data, metadata, fua: true },
        other => other,
    }
}

fn ignores_flush(event: Event<'_>) -> Event<'_> {
    if event == Event::Flush { Event::Mark(b"") } else { event }
}

fn takes_marks_for_flushes(event: Event<'_>) -> Event<'_> {
    if matches!(event, Event::Mark(_)) { Event::Flush } else { event }
}

#[test]
fn a_wrong_enumerator_does_not_pass_the_audit() {
    let write = |at, fua| Event::Write { at, data: b"12345678", fua, metadata: false };
    let log: WriteLog = [
        write(0, false),
        Event::Mark(b"operation"),
        write(8, true),
        // Without an effect after it, the loss of a FUA write looks like a crash before it.
        write(16, false),
        Event::Flush,
        write(4, false),
        Event::Erase { at: 0, len: 8 },
        write(2, true),
    ]
    .into_iter()
    .collect();
    assert_eq!(audit(&ALL_SUBSETS, &log, 0, log.len()), Ok(()));
    let mutants: [(&str, &dyn Enumerator); 7] = [
        ("ignores FUA", &Misreads(ignores_fua)),
        ("takes every write for FUA", &Misreads(takes_every_write_for_fua)),
        ("ignores flushes", &Misreads(ignores_flush)),
        ("takes marks for flushes", &Misreads(takes_marks_for_flushes)),
        ("skips the prefixes", &Skips(0)),
        ("skips single losses", &Skips(1)),
        ("samples", &Epoch { subsets_max: 2 }),
    ];
    for (name, mutant) in mutants {
        assert!(audit(mutant, &log, 0, log.len()).is_err(), "{name}");
    }
}

#[test]
fn a_visitor_can_stop() {
    let base = base();
    let log: WriteLog = std::iter::repeat_n(Event::Erase { at: 0, len: 32 }, 4).collect();
    let window = Window::new(&base, &log, ATOMIC);
    for level in Level::ALL {
        let mut seen = 0;
        let flow = level.enumerator(&Bounds::default()).visit(&window, &mut |_, _| {
            seen += 1;
            if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let expected = if level == Level::Torn { 0 } else { 2 };
        assert_eq!((seen, flow.is_break()), (expected, expected == 2), "{level}");
    }
}

#[test]
fn crash_points_of_another_log_are_refused() {
    let base = base();
    let log: WriteLog = [
        Event::Write { at: 0, data: &[1; 16], fua: false, metadata: false },
        Event::Flush,
        Event::Erase { at: 0, len: 8 },
    ]
    .into_iter()
    .collect();
    let window = Window::new(&base, &log, ATOMIC);
    for (point, why) in [
        ("linear:4", "the log ends before this position"),
        ("epoch:3:2", "fewer volatile events were in flight"),
        ("lost:3:0", "the missing event was not a volatile one in flight"),
        ("lost:3:1", "the missing event was not a volatile one in flight"),
        ("torn:0:head2", "the event has fewer atomic units"),
        ("torn:0:noise", "the event has fewer atomic units"),
        ("torn:2:head1", "another kind of event is at this position"),
        ("erase:3:noise", "another kind of event is at this position"),
    ] {
        let error = window.rebuild(&point.parse().unwrap()).unwrap_err();
        let text = format!("crash point {point} does not fit a log of 3 events: {why}");
        assert_eq!(error.to_string(), text);
    }
    assert!(window.rebuild(&"lost:3:2".parse().unwrap()).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_allowed_image_is_found_and_no_other((log, from, to) in log_and_window(9)) {
        prop_assert_eq!(audit(&ALL_SUBSETS, &log, from, to), Ok(()));
    }

    #[test]
    fn a_crash_point_rebuilds_its_image((log, from, to) in log_and_window(12), subsets_max in 1..40_u64) {
        let base = base();
        let window = Window::new(&base, &log, ATOMIC).between(from, to);
        for level in Level::ALL {
            let bounds = Bounds { subsets_max, cuts_max: 3 };
            let enumerator = level.enumerator(&bounds);
            let found = states(&*enumerator, &window);
            prop_assert_eq!(found.len() as u128, enumerator.count(&window));
            for (point, image) in &found {
                let copied: CrashPoint = point.to_string().parse().unwrap();
                prop_assert_eq!(&copied, point);
                prop_assert_eq!(&window.rebuild(&copied).unwrap(), image, "{}", point);
            }
        }
    }

    #[test]
    fn samples_repeat_and_hold_the_prefixes((log, from, to) in log_and_window(30)) {
        let base = base();
        let window = Window::new(&base, &log, ATOMIC).between(from, to);
        let sampled = states(&Epoch { subsets_max: 5 }, &window);
        prop_assert_eq!(&sampled, &states(&Epoch { subsets_max: 5 }, &window));
        let lost_nothing = sampled.iter().filter(|(point, _)| {
            matches!(point, CrashPoint::Epoch { lost, .. } if *lost == Subset::default())
        });
        let prefixes = states(&Linear, &window);
        prop_assert!(lost_nothing.map(|(_, image)| image).eq(prefixes.iter().map(|(_, image)| image)));
    }

    #[test]
    fn a_single_loss_is_an_epoch_state((log, from, to) in log_and_window(10)) {
        let base = base();
        let window = Window::new(&base, &log, ATOMIC).between(from, to);
        let singles = states(&ALL_SUBSETS, &window).into_iter().filter_map(|(point, image)| {
            let CrashPoint::Epoch { position, lost } = point else { return None };
            (lost.len() == 1).then_some((position, image.to_vec()))
        });
        let found = states(&Lost, &window);
        let found = found.iter().map(|(point, image)| (point.position(), image.to_vec()));
        prop_assert_eq!(found.collect::<BTreeSet<_>>(), singles.collect::<BTreeSet<_>>());
    }

    #[test]
    fn an_image_is_a_vector_of_bytes(
        size in 1..70_000_usize,
        steps in prop::collection::vec((any::<u32>(), any::<u16>(), prop::option::of(any::<u8>())), 0..20),
    ) {
        let mut image = Image::new(size, Erased::Ones);
        let mut bytes = vec![0xff_u8; size];
        for (at, len, value) in steps {
            let at = at as usize % size;
            let len = (len as usize).min(size - at);
            match value {
                Some(value) => image.write(at, &vec![value; len]),
                None => image.erase(at, len),
            }
            bytes[at..at + len].fill(value.unwrap_or(0xff));
            let mut read = vec![0; len];
            image.read(at, &mut read);
            prop_assert_eq!(&read, &bytes[at..at + len]);
            prop_assert_eq!(image.is_erased(at, len), read.iter().all(|&byte| byte == 0xff));
            // However it came to be, the digest is that of its bytes.
            prop_assert_eq!(image.digest(), Image::from_bytes(&bytes, Erased::Ones).digest());
        }
        prop_assert_eq!(image.to_vec(), bytes);
    }

    #[test]
    fn one_changed_byte_changes_the_digest(at in 0..SIZE, value in any::<u8>()) {
        let mut image = base();
        let mut old = [0];
        image.read(at, &mut old);
        image.write(at, &[value]);
        prop_assert_eq!(image.digest() == base().digest(), old[0] == value);
        prop_assert_eq!(image == base(), old[0] == value);
    }
}
