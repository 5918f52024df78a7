//! Histories of 4 callers × 250 calls, judged on one core: the fast search against the plain one of Wing and
//! Gong, on the same histories.
//!
//! `cargo bench -p fathom-engine --bench linear`. The overlap is that of [`simulate`]: each caller is idle
//! for half of the moments between two calls. The plain search may try the same states again and again, so it
//! is cut off after as many calls of the reference as `PLAIN_CALLS_MAX` says; a ratio of a cut-off search is
//! a lower bound.

use std::time::{Duration, Instant};

use fathom_engine::linear::simulate::{Pace, simulate};
use fathom_engine::linear::{Effort, History, Judge, Judgement, Relaxations, judge_counted};
use fathom_generate::callers::{CallerGenerator, Theme};
use fathom_generate::choice::Choices;
use fathom_model::Config;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CALLERS: u32 = 4;
const CALLS: usize = 250;
const HISTORIES_PER_THEME: u64 = 3;
const ROUNDS: usize = 5;
const PLAIN_CALLS_MAX: u64 = 200_000;

fn history(theme: Theme, seed: u64) -> History {
    let mut generator = CallerGenerator::new(seed);
    let setup = generator.setup(CALLERS);
    let scripts = generator.round(theme, CALLERS, CALLS);
    let pace = Pace { idle_percent: 50 };
    simulate(&Config::default(), &setup, &scripts, pace, &mut Choices::new(seed))
        .expect("the default reference can be made")
}

/// The time of one judgement, whether it came to an end, and the calls that the reference executed.
fn measured(history: &History, effort: Effort) -> (Duration, bool, u64) {
    let (reference, relaxations) = (Config::default(), Relaxations::none());
    let by = Judge { reference: &reference, relaxations: &relaxations, effort };
    let start = Instant::now();
    let (judgement, executed) = judge_counted(history, &by).expect("the history is one");
    let elapsed = start.elapsed();
    assert_ne!(judgement, Judgement::NoOrder, "the reference did it");
    (elapsed, judgement != Judgement::Unknown, executed)
}

fn main() {
    let plain = Effort { calls_max: PLAIN_CALLS_MAX, ..Effort::PLAIN };
    println!(
        "{:12} {:>8} {:>9} {:>12} {:>9} {:>12} {:>9}",
        "theme", "calls", "overlaps", "fast calls/s", "executed", "plain calls/s", "cut off"
    );
    let (mut calls_all, mut fast_all, mut plain_all) = (0.0, 0.0, 0.0);
    for theme in Theme::ALL {
        let histories: Vec<History> =
            (0..HISTORIES_PER_THEME).map(|seed| history(theme, seed)).collect();
        let calls: usize = histories.iter().map(|history| history.steps.len()).sum();
        let overlaps: usize = histories.iter().map(History::overlaps).sum();
        let (mut fast, mut slow, mut executed, mut cut) = (f64::MAX, 0.0, 0, 0);
        for _ in 0..ROUNDS {
            let mut round = 0.0;
            executed = 0;
            for history in &histories {
                let (elapsed, _, done) = measured(history, Effort::FAST);
                round += elapsed.as_secs_f64();
                executed += done;
            }
            fast = fast.min(round);
        }
        for history in &histories {
            let (elapsed, ended, _) = measured(history, plain);
            slow += elapsed.as_secs_f64();
            cut += u32::from(!ended);
        }
        println!(
            "{:12} {calls:>8} {overlaps:>9} {:>12.0} {executed:>9} {:>12.0} {cut:>9}",
            theme.name(),
            calls as f64 / fast,
            calls as f64 / slow,
        );
        calls_all += calls as f64;
        fast_all += fast;
        plain_all += slow;
    }
    println!(
        "{{\"calls_per_s\":{:.0},\"vs_plain\":{:.1}}}",
        calls_all / fast_all,
        plain_all / fast_all
    );
}
