//! Bugs that one power failure does not show.

use std::ops::ControlFlow;
use std::time::Duration;

use fathom_block::Level;
use fathom_block::backed::Durable;
use fathom_engine::crash::shrink::shrink;
use fathom_engine::crash::workload::StepKind;
use fathom_engine::crash::{Class, CrashConfig, CrashSystem, Event, Script};

use super::bug::Bug;
use super::toy::Toy;
use super::{base, check, find};

fn config(crashes: u32) -> CrashConfig {
    CrashConfig {
        crashes,
        depth: 3,
        steps: vec![StepKind::Mkdir, StepKind::Create, StepKind::Rename],
        levels: vec![Level::Linear],
        fsck: false,
        ..base()
    }
}

fn cuts(script: &Script) -> usize {
    script.0.iter().filter(|event| matches!(event, Event::PowerCut(_))).count()
}

#[test]
fn a_second_power_failure_is_needed() {
    let toy = Toy::new(Durable::Operation).with(Bug::SecondRecoveryForgets);
    let once = check(&toy, &config(1));
    assert!(once.findings.is_empty(), "{}", once.findings[0]);
    let twice = check(&toy, &config(2));
    let finding = find(&twice, Class::LostEntry, "mkdir");
    assert_eq!((cuts(&finding.script), cuts(&finding.minimal)), (2, 2), "{finding}");
    assert_eq!((finding.record.runs_reproduced, finding.record.ops), (2, 3), "{finding}");
    assert!(finding.to_string().contains("recovery\n"), "{finding}");
}

#[test]
fn shrinking_keeps_both_power_failures() {
    let toy = Toy::new(Durable::Operation).with(Bug::SecondRecoveryForgets);
    let config = config(2);
    let twice = check(&toy, &config);
    let finding = find(&twice, Class::LostEntry, "mkdir");
    let cause = &finding.record.cause;
    // The same with something superfluous at its beginning and at its end.
    let system = CrashSystem::new(&toy, &config).expect("it can be formatted");
    let mut longer = finding.minimal.0.clone();
    let Some(Event::PowerCut(_)) = longer.pop() else { panic!("{finding}") };
    let last = longer.pop().expect("an operation");
    let sync = Event::Op(fathom_core::Op::Sync);
    longer.extend([sync.clone(), sync, last]);
    let mut cut = None;
    system
        .cuts(&Script(longer.clone()), cause, &mut |point| {
            cut = Some(point);
            ControlFlow::Break(())
        })
        .expect("no fault");
    longer.push(Event::PowerCut(cut.expect("it still shows")));
    let short = shrink(&system, &Script(longer), cause, Duration::from_secs(10)).expect("no fault");
    assert_eq!(short, finding.minimal);
}
