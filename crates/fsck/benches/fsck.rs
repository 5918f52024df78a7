//! Cases per second and core, against the bare checker in a loop of fork and exec.
//!
//! Both are measured in alternating rounds, so that a busy machine slows both. The last line is JSON.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fathom_fsck::campaign::{Plan, State, run};
use fathom_fsck::{Checker, Disk, Subject, SubjectOptions};
use fathom_record::Silent;

/// Rounds of each side.
const ROUNDS: u64 = 5;
/// Cases of one round.
const CASES: u64 = 60;

/// Runs of the bare checker per second: the corrupted disk is there already, nothing is judged.
fn bare(subject: &Subject, file: &Path, runs: u64) -> f64 {
    let start = Instant::now();
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
    runs as f64 / start.elapsed().as_secs_f64()
}

/// A part of a campaign on one thread, from the case with this number on.
fn part(subject: &Subject, from: u64) -> (State, Duration) {
    let resume = Some(State { done: from, ..State::default() });
    let plan = Plan { jobs: 1, cases_max: Some(CASES), resume, ..Plan::default() };
    let start = Instant::now();
    let state = run(subject, &plan, &mut Silent, |_| {}).expect("the campaign runs");
    (state, start.elapsed())
}

fn main() {
    let checker = Checker::named("e2fsck").expect("it is built in");
    let disk = Disk::named("ext4").expect("mke2fs and debugfs make it");
    let file = Path::new("/dev/shm").join(format!("fathom-bench-{}.img", std::process::id()));
    std::fs::write(&file, &*disk.bytes).expect("a disk for the bare checker");
    let every_run = SubjectOptions { no_memo: true, ..SubjectOptions::default() };
    let whole = Subject::new(checker.clone(), disk.clone(), &every_run).expect("a healthy disk");
    let remembering =
        Subject::new(checker, disk, &SubjectOptions::default()).expect("a healthy disk");
    let (mut bare_rate, mut our_rate, mut cases_rate) = (0.0_f64, 0.0_f64, 0.0_f64);
    for round in 0..ROUNDS {
        let (state, time) = part(&whole, 4000 + round * CASES);
        our_rate = our_rate.max(state.runs as f64 / time.as_secs_f64());
        bare_rate = bare_rate.max(bare(&whole, &file, state.runs));
        let (_, time) = part(&remembering, 4000 + round * CASES);
        cases_rate = cases_rate.max(CASES as f64 / time.as_secs_f64());
    }
    // It may have gone already.
    let _ = std::fs::remove_file(&file);
    println!("bare checker in a loop     {bare_rate:8.1} runs/s");
    println!("restored, corrupted, judged {our_rate:7.1} runs/s");
    println!("cases                      {cases_rate:8.1} /s and core");
    println!(
        "{{\"runs_vs_bare\": {:.3}, \"cases_per_s\": {cases_rate:.1}, \"bare_per_s\": {bare_rate:.1}}}",
        our_rate / bare_rate
    );
}
