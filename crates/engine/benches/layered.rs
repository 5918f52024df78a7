//! Checked calls per second with about 100 and with about 100,000 entries: every answer is compared, looking is
//! bounded.
//!
//! `cargo bench -p fathom-engine --bench layered`. The subject is the reference itself, so that nothing but the
//! checking is measured. The preset is `large`, with as many entries as said made first. The clock runs from the
//! first call behind those that make the entries to the last one: growing a workload takes seconds, and is over
//! before its first call.

use std::time::Instant;

use fathom_core::{Caller, HarnessFault, Op, Outcome, Subject, Wrapper};
use fathom_engine::{Plan, Silent, Workload, check};
use fathom_generate::Config;
use fathom_generate::layered::Preset;
use fathom_model::ModelSubject;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Calls beyond those that make the entries.
const CALLS: u64 = 6_000;

/// The median of so many runs counts.
const ROUNDS: usize = 5;

/// The reference, with the time of one of its calls and of its last one.
struct Timed {
    inner: ModelSubject,
    /// Calls before the clock starts.
    before: u64,
    calls: u64,
    started: Option<Instant>,
    last: Instant,
}

impl Wrapper for Timed {
    type Inner = ModelSubject;

    fn inner(&self) -> &ModelSubject {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut ModelSubject {
        &mut self.inner
    }

    fn execute(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        self.calls += 1;
        self.last = Instant::now();
        if self.calls > self.before {
            self.started.get_or_insert(self.last);
        }
        self.inner.apply_as(caller, op)
    }
}

/// Calls per second behind the first `before` of one episode.
fn measure(preset: &Preset, before: u64) -> f64 {
    let config = fathom_model::Config { inodes: 4_000_000, ..fathom_model::Config::default() };
    let inner = ModelSubject::new(config.clone()).expect("the reference can be made");
    let mut subject = Timed { inner, before, calls: 0, started: None, last: Instant::now() };
    let mut plan = Plan::new(1, Config::default(), config);
    plan.workload = Workload::Layered(Box::new(preset.clone()));
    plan.ops_max = Some(before + CALLS);
    let report = check(&mut subject, &plan, &mut Silent).expect("the harness works");
    assert!(report.findings.is_empty(), "the reference agrees with itself");
    assert_eq!(report.stats.ops, before + CALLS);
    assert_eq!(subject.calls, before + CALLS, "every call reaches the subject once");
    let started = subject.started.expect("there are calls behind those that make the entries");
    (CALLS - 1) as f64 / (subject.last - started).as_secs_f64()
}

fn calls_per_s(entries: u64) -> f64 {
    let large = Preset::named("large").expect("it is there");
    let preset = Preset { prefill: entries, length: 5_500, ..large };
    let before = entries.max(50) + 50;
    let mut rates: Vec<f64> = (0..ROUNDS).map(|_| measure(&preset, before)).collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
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
