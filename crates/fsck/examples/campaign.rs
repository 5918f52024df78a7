//! Tests a checker on one of our disks: `campaign e2fsck ext4 1000` tries a thousand cases.

use std::error::Error;

use fathom_fsck::campaign::{Plan, run};
use fathom_fsck::{Checker, Disk, NoGuests, Subject, SubjectOptions};
use fathom_record::Silent;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let checker = Checker::named(&words.next().unwrap_or_else(|| "e2fsck".to_owned()))?;
    let disk = Disk::named(&words.next().unwrap_or_else(|| checker.disks[0].clone()), &NoGuests)?;
    let cases_max = words.next().map(|word| word.parse()).transpose()?;
    let subject = Subject::new(checker, disk, &SubjectOptions::default())?;
    let plan = Plan { cases_max, ..Plan::default() };
    let state = run(&subject, &plan, &mut Silent, |_| {})?;
    if let Some(path) = words.next() {
        std::fs::write(path, serde_json::to_string(&state)?)?;
    }
    println!(
        "{} of {} cases, {} with a violation, {:.1} s",
        state.done, state.total, state.violations, state.seconds
    );
    println!("{} runs made, {} answered from memory", state.runs, state.runs_saved);
    for (signature, cause) in &state.causes {
        println!("{:5} {signature}\n      {}", cause.cases, cause.case.text());
    }
    Ok(())
}
