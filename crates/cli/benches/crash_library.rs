//! Crash images judged per second on one core, for every library file system that is built in; and the
//! search beneath it against stateright. `cargo xtask bench crash-library`.

#[path = "../../engine/benches/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use fathom_engine::Silent;
use fathom_engine::crash::{CrashConfig, CrashPlan, crash, quiet_panics};
use fathom_engine::search::Strategy;
use fathom_subjects::library;
use support::{Summary, compare, measured_as_child};

/// Time for each subject and treatment.
const BUDGET: Duration = Duration::from_secs(5);

/// Distinct images per second on one core.
fn images_per_second(known: &library::Known, probe: bool) -> f64 {
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
    };
    let report = crash(&*subject, &plan, &mut Silent).expect("the check runs");
    report.crash_images as f64 / report.search.elapsed.as_secs_f64()
}

fn main() {
    if measured_as_child() {
        return;
    }
    quiet_panics();
    println!("{:12} {:>22} {:>22}", "subject", "images/s, looked at", "images/s, also used");
    let mut littlefs = 0.0;
    for known in library::all() {
        if !known.is_built_in() {
            println!("{:12} not built in", known.name);
            continue;
        }
        let (looked_at, used) = (images_per_second(&known, false), images_per_second(&known, true));
        println!("{:12} {looked_at:>22.0} {used:>22.0}", known.name);
        if known.name == "littlefs" {
            littlefs = looked_at;
        }
    }
    println!();
    let Summary { vs_stateright_1t, vs_stateright_2t, bytes_per_state, stateright_bytes_per_state } =
        compare();
    println!(
        "{{\"littlefs_images_per_s\":{littlefs:.0},\"vs_stateright_1t\":{vs_stateright_1t:.2},\
         \"vs_stateright_2t\":{vs_stateright_2t:.2},\"bytes_per_state\":{bytes_per_state:.1},\
         \"stateright_bytes_per_state\":{stateright_bytes_per_state:.1}}}"
    );
}
