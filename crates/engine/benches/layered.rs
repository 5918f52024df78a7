//! Checked calls per second with about 100 and with about 100,000 entries: every answer is compared, looking is
//! bounded.
//!
//! `cargo bench -p fathom-engine --bench layered`. The subject is the reference itself, so that nothing but the
//! checking is measured. The preset is `large`, with as many entries as said made first. Making them is measured
//! alone and taken off.

use std::time::Instant;

use fathom_engine::{Plan, Silent, Workload, check};
use fathom_generate::Config;
use fathom_generate::layered::Preset;
use fathom_model::ModelSubject;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Calls beyond those that make the entries.
const CALLS: u64 = 6_000;

const ROUNDS: usize = 3;

/// Seconds for so many calls from the start of one episode.
fn seconds(preset: &Preset, ops: u64) -> f64 {
    let config = fathom_model::Config { inodes: 4_000_000, ..fathom_model::Config::default() };
    let mut subject = ModelSubject::new(config.clone()).expect("the reference can be made");
    let mut plan = Plan::new(1, Config::default(), config);
    plan.workload = Workload::Layered(Box::new(preset.clone()));
    plan.ops_max = Some(ops);
    let start = Instant::now();
    let report = check(&mut subject, &plan, &mut Silent).expect("the harness works");
    assert!(report.findings.is_empty(), "the reference agrees with itself");
    assert_eq!(report.stats.ops, ops);
    start.elapsed().as_secs_f64()
}

fn calls_per_s(entries: u64) -> f64 {
    let large = Preset::named("large").expect("it is there");
    let preset = Preset { prefill: entries, length: 5_500, ..large };
    let before = entries.max(50) + 50;
    let best = |ops: u64| {
        let times = (0..ROUNDS).map(|_| seconds(&preset, ops));
        times.fold(f64::MAX, f64::min)
    };
    let (made, whole) = (best(before), best(before + CALLS));
    // A run takes much longer than these calls: a difference that is none says nothing.
    assert!(whole > made, "{whole} s with {CALLS} calls more, {made} s without: too noisy");
    CALLS as f64 / (whole - made)
}

fn main() {
    let (small, large) = (calls_per_s(100), calls_per_s(100_000));
    println!("{:>10} {:>12}", "entries", "calls/s");
    println!("{:>10} {small:>12.0}", 100);
    println!("{:>10} {large:>12.0}", 100_000);
    println!(
        "{{\"calls_per_s_small\":{small:.0},\"calls_per_s_large\":{large:.0},\"large_vs_small\":{:.2}}}",
        large / small
    );
}
