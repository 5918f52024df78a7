//! `cargo bench -p fathom-block`: what images and crash states cost, against plain vectors.
//!
//! The baseline does what a checker without copy-on-write and without an incremental digest has to do:
//! copy the whole device for a snapshot and hash all of it to know whether it is new. Both run in
//! turn in the same process; times are the best of many short slices, since other work on the machine
//! only slows us down.

use std::collections::HashSet;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use fathom_block::{
    Bounds, Distinct, Enumerator, Erased, Event, Geometry, Image, Level, Recorder, Window, WriteLog,
};
use fathom_core::{Digest, Pattern};

const SLICE: Duration = Duration::from_micros(500);
const SLICES: u32 = 400;
/// A program operation of a small flash file system.
const WRITE_BYTES: usize = 64;

fn main() {
    println!("snapshot + write of {WRITE_BYTES} bytes + digest, ns\n");
    println!(
        "{:>10} {:>10} {:>12} {:>10} {:>8}",
        "image KiB", "image", "in place", "vector", "ratio"
    );
    let rows: Vec<Row> = [8, 64, 1024, 16 * 1024].map(Row::measure).into();
    for row in &rows {
        let ratio = row.vector_ns / row.image_ns;
        println!(
            "{:>10} {:>10.0} {:>12.0} {:>10.0} {ratio:>8.1}",
            row.kib, row.image_ns, row.in_place_ns, row.vector_ns
        );
    }
    let read_ns = read_ns();
    let geometry = Geometry::flash(64 * 1024, 16, 4096);
    let base = geometry.blank_image();
    let log = workload(geometry);
    let (states, images) = enumerate(&base, &log, geometry.atomic_bytes);
    let ours = states as f64 * 1e9
        / best_ns(|_| {
            black_box(enumerate(&base, &log, geometry.atomic_bytes));
        });
    let bytes = base.to_vec();
    let theirs = states as f64 * 1e9
        / best_ns(|_| {
            black_box(enumerate_vectors(&bytes, &log));
        });
    assert_eq!(
        enumerate_vectors(&bytes, &log),
        (states, images),
        "the baseline does the same work"
    );
    println!("\nread of {WRITE_BYTES} bytes from 64 KiB: {read_ns:.1} ns");
    println!(
        "\ncrash states of {} events on 64 KiB flash (linear and torn), told apart",
        log.len()
    );
    println!("{states} states, {images} distinct: {ours:.0} per second, with vectors {theirs:.0}");
    println!(
        "{{\"bench\":\"block\",\"snapshot_write_digest_ns_8k\":{:.0},\"snapshot_write_digest_ns_64k\":{:.0},\
         \"vs_vector_8k\":{:.2},\"vs_vector_64k\":{:.2},\"crash_states_per_s\":{ours:.0},\
         \"crash_states_vs_vector\":{:.2}}}",
        rows[0].image_ns,
        rows[1].image_ns,
        rows[0].vector_ns / rows[0].image_ns,
        rows[1].vector_ns / rows[1].image_ns,
        ours / theirs
    );
}

/// Nanoseconds per call; the argument is a running number.
fn best_ns(mut call: impl FnMut(usize)) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..SLICES {
        let start = Instant::now();
        let mut calls = 0;
        while start.elapsed() < SLICE {
            (0..8).for_each(|step| call(calls + step));
            calls += 8;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / calls as f64);
    }
    best
}

struct Row {
    kib: usize,
    image_ns: f64,
    in_place_ns: f64,
    vector_ns: f64,
}

impl Row {
    /// A device that is full of data: the worst case for the image, indifferent to the vector.
    fn measure(kib: usize) -> Row {
        let size = kib * 1024;
        let bytes = Pattern { seed: 1, len: size as u64 }.to_vec();
        let data = [7; WRITE_BYTES];
        let place = |number: usize| number * 7 * WRITE_BYTES % size;
        let image = Image::from_bytes(&bytes, Erased::Ones);
        image.digest();
        let image_ns = best_ns(|number| {
            let mut snapshot = image.clone();
            snapshot.write(place(number), &data);
            black_box(snapshot.digest());
        });
        let mut own = image.clone();
        let in_place_ns = best_ns(|number| {
            own.write(place(number), &data);
            black_box(own.digest());
        });
        let vector_ns = best_ns(|number| {
            let mut copy = bytes.clone();
            copy[place(number)..][..WRITE_BYTES].copy_from_slice(&data);
            black_box(Digest::of(0, &copy));
        });
        Row { kib, image_ns, in_place_ns, vector_ns }
    }
}

fn read_ns() -> f64 {
    let image = Image::from_bytes(&Pattern { seed: 1, len: 64 * 1024 }.to_vec(), Erased::Ones);
    let mut buffer = [0; WRITE_BYTES];
    best_ns(|number| {
        image.read(number * 7 * WRITE_BYTES % image.size(), &mut buffer);
        black_box(&buffer);
    })
}

/// What a log-structured file system does: it programs a block bit by bit, then erases the next one.
fn workload(geometry: Geometry) -> WriteLog {
    let mut device = Recorder::new(geometry.blank_image(), geometry).expect("a valid geometry");
    for block in 0..4 {
        let start = block * geometry.erase_bytes;
        device.erase(start, geometry.erase_bytes).expect("a whole block");
        for write in 0..8 {
            let data = Pattern { seed: (block * 8 + write) as u64, len: 64 }.to_vec();
            device.write(start + write * 64, &data).expect("an erased place");
        }
        device.flush();
    }
    device.into_parts().1
}

/// States and distinct images.
fn enumerate(base: &Image, log: &WriteLog, atomic_bytes: usize) -> (u64, usize) {
    let window = Window::new(base, log, atomic_bytes);
    let mut distinct = Distinct::default();
    let mut states = 0;
    for level in [Level::Linear, Level::Torn] {
        let enumerator: Box<dyn Enumerator> = level.enumerator(&Bounds::default());
        let _ = enumerator.visit(&window, &mut |_, image| {
            distinct.insert(image);
            states += 1;
            ControlFlow::Continue(())
        });
    }
    (states, distinct.len())
}

/// The same states with a vector for each.
fn enumerate_vectors(base: &[u8], log: &WriteLog) -> (u64, usize) {
    let mut seen = HashSet::new();
    let mut states = 0;
    let mut see = |bytes: &[u8]| {
        seen.insert(Digest::of(0, bytes));
        states += 1;
    };
    let mut bytes = base.to_vec();
    see(&bytes);
    for event in log.events() {
        match event {
            Event::Write { at, data, .. } => {
                for cut in (16..data.len()).step_by(16) {
                    let mut head = bytes.clone();
                    head[at..at + cut].copy_from_slice(&data[..cut]);
                    see(&head);
                    let mut tail = bytes.clone();
                    tail[at + cut..at + data.len()].copy_from_slice(&data[cut..]);
                    see(&tail);
                }
                bytes[at..at + data.len()].copy_from_slice(data);
            }
            Event::Erase { at, len } => bytes[at..at + len].fill(0xff),
            Event::Flush | Event::Mark(_) => continue,
        }
        see(&bytes);
    }
    (states, seen.len())
}
