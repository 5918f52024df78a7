//! Crash images judged per second on one core, for every library file system that is built in; and the
//! search beneath it against stateright. `cargo xtask bench crash-library`.

#[path = "../../engine/benches/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use fathom_block::InProcess;
use fathom_engine::Silent;
use fathom_engine::crash::{CrashConfig, CrashPlan, crash, quiet_panics};
use fathom_engine::search::Strategy;
use fathom_subjects::library;
use rustix::time::{ClockId, clock_gettime};
use support::{Summary, compare, measured_as_child};

/// Time for each subject and treatment.
const BUDGET: Duration = Duration::from_secs(5);

/// Distinct images judged on one core.
struct Speed {
    images_per_s: f64,
    /// By the processor's time: what the same machine would do if nobody else used the core.
    images_per_cpu_s: f64,
    /// The share of them that were answered from the memo.
    from_memo: f64,
}

/// The processor time of this process so far, in seconds.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn measure(known: &library::Known, probe: bool) -> Speed {
    let subject = known.open(None).expect("it is built in");
    let config = CrashConfig { depth: 8, probe, fsck: false, ..CrashConfig::default() };
    let plan = CrashPlan {
        config,
        strategy: Strategy::Bfs,
        threads: 1,
        time_max: Some(BUDGET),
        states_max: None,
        memory_max_bytes: None,
        stop_at_first: false,
        checkpoint: None,
        checkpoint_every: BUDGET,
        shrink_budget: Duration::from_millis(1),
        labels: BTreeMap::new(),
        group: false,
        supervision: None,
        states: Default::default(),
        order: Default::default(),
    };
    let before = cpu_seconds();
    let report = crash(&InProcess::new(&*subject), &plan, &mut Silent).expect("the check runs");
    let cpu_seconds = cpu_seconds() - before;
    assert_eq!(report.memo.refuted, 0, "the memo of {} was wrong", known.name);
    let images = report.crash_images as f64;
    Speed {
        images_per_s: images / report.search.elapsed.as_secs_f64(),
        images_per_cpu_s: images / cpu_seconds,
        from_memo: report.memo.answered as f64 / images,
    }
}

/// Whether a subject was asked for (`-- littlefs`); all of them if none was.
fn is_wanted(name: &str) -> bool {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
}

fn main() {
    if measured_as_child() {
        return;
    }
    quiet_panics();
    println!(
        "{:12} {:>19} {:>9} {:>10} {:>19} {:>9} {:>10}",
        "subject",
        "images/s, looked at",
        "by CPU s",
        "from memo",
        "images/s, also used",
        "by CPU s",
        "from memo"
    );
    let (mut littlefs, mut littlefs_from_memo) = (0.0, 0.0);
    for known in library::all().into_iter().filter(|known| is_wanted(known.name)) {
        if !known.is_built_in() {
            println!("{:12} not built in", known.name);
            continue;
        }
        let (looked_at, used) = (measure(&known, false), measure(&known, true));
        println!(
            "{:12} {:>19.0} {:>9.0} {:>9.1}% {:>19.0} {:>9.0} {:>9.1}%",
            known.name,
            looked_at.images_per_s,
            looked_at.images_per_cpu_s,
            100.0 * looked_at.from_memo,
            used.images_per_s,
            used.images_per_cpu_s,
            100.0 * used.from_memo
        );
        if known.name == "littlefs" {
            (littlefs, littlefs_from_memo) = (looked_at.images_per_s, looked_at.from_memo);
        }
    }
    println!();
    if !is_wanted("search") {
        return;
    }
    let Summary { vs_stateright_1t, vs_stateright_2t, bytes_per_state, stateright_bytes_per_state } =
        compare();
    println!(
        "{{\"littlefs_images_per_s\":{littlefs:.0},\
         \"littlefs_from_memo\":{littlefs_from_memo:.3},\"vs_stateright_1t\":{vs_stateright_1t:.2},\
         \"vs_stateright_2t\":{vs_stateright_2t:.2},\"bytes_per_state\":{bytes_per_state:.1},\
         \"stateright_bytes_per_state\":{stateright_bytes_per_state:.1}}}"
    );
}
