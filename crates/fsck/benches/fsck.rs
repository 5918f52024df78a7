//! Cases per second and core, against the bare checker in a loop of fork and exec.
//!
//! Both are measured in alternating rounds and in time of the processor (our own and that of the children),
//! so that a busy machine does not matter. The last line is JSON.

use std::path::Path;
use std::process::{Command, Stdio};

use fathom_fsck::campaign::{Plan, State, run};
use fathom_fsck::{Checker, Disk, NoGuests, Subject, SubjectOptions};
use fathom_record::Silent;

/// Rounds of each side.
const ROUNDS: u64 = 5;
/// Cases of one round.
const CASES: u64 = 60;

/// Seconds of the processor, user and system: our own, and those of the children that have ended.
fn processor_seconds() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").expect("our own entry");
    let after = text.rsplit(')').next().unwrap_or_default();
    let words = after.split_whitespace().skip(11).take(4);
    // Ticks of 10 ms.
    let ticks: Vec<f64> =
        words.filter_map(|word| word.parse().ok()).map(|ticks: f64| ticks / 100.0).collect();
    (ticks[0] + ticks[1], ticks[2] + ticks[3])
}

/// What was used since then.
fn since(start: (f64, f64)) -> (f64, f64) {
    let now = processor_seconds();
    (now.0 - start.0, now.1 - start.1)
}

/// Seconds that the bare checker takes: the disk is there already, nothing is judged.
fn bare(subject: &Subject, file: &Path, runs: u64) -> (f64, f64) {
    let start = processor_seconds();
    for _ in 0..runs {
        let status = Command::new(&subject.program)
            .args(["-fy", &file.display().to_string()])
            .env_clear()
            .env("E2FSCK_TIME", "1700000000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.expect("the checker starts");
    }
    since(start)
}

/// A part of a campaign on one thread, from the case with this number on.
fn part(subject: &Subject, from: u64) -> (State, (f64, f64)) {
    let resume = Some(State { done: from, ..State::default() });
    let plan = Plan { jobs: 1, cases_max: Some(CASES), resume, ..Plan::default() };
    let start = processor_seconds();
    let state = run(subject, &plan, &mut Silent, |_| {}).expect("the campaign runs");
    (state, since(start))
}

fn main() {
    let checker = Checker::named("e2fsck").expect("it is built in");
    let disk = Disk::named("ext4", &NoGuests).expect("mke2fs and debugfs make it");
    let file = Path::new("/dev/shm").join(format!("fathom-bench-{}.img", std::process::id()));
    std::fs::write(&file, &*disk.bytes).expect("a disk for the bare checker");
    let every_run = SubjectOptions { no_memo: true, ..SubjectOptions::default() };
    let whole = Subject::new(checker.clone(), disk.clone(), &every_run).expect("a healthy disk");
    let remembering =
        Subject::new(checker, disk, &SubjectOptions::default()).expect("a healthy disk");
    let (mut bare_own, mut ours, mut checker, mut memo, mut runs) = (0.0, 0.0, 0.0, 0.0, 0);
    let mut healthy = 0.0;
    for round in 0..ROUNDS {
        let (state, (own, children)) = part(&whole, 4000 + round * CASES);
        runs += state.runs;
        (ours, checker) = (ours + own + children, checker + children);
        let (own, children) = bare(&whole, &file, state.runs);
        (bare_own, healthy) = (bare_own + own, healthy + own + children);
        let (own, children) = part(&remembering, 4000 + round * CASES).1;
        memo += own + children;
    }
    // The bare loop on the same corrupted disks: what the checker itself took, and what starting it costs.
    let (bare_rate, our_rate) = (runs as f64 / (checker + bare_own), runs as f64 / ours);
    let cases_rate = (ROUNDS * CASES) as f64 / memo;
    println!(
        "bare checker, healthy disk {:8.1} runs per second of the processor",
        runs as f64 / healthy
    );
    // It may have gone already.
    let _ = std::fs::remove_file(&file);
    println!("bare checker, same disks   {bare_rate:8.1}");
    println!("restored, corrupted, judged {our_rate:7.1}");
    println!("cases                      {cases_rate:8.1}");
    println!(
        "{{\"runs_vs_bare\": {:.3}, \"cases_per_s\": {cases_rate:.1}, \"bare_per_s\": {bare_rate:.1}}}",
        our_rate / bare_rate
    );
}
