//! Logs that somebody else has recorded: clean ones are not accused, faulty ones are, and what does not
//! belong together is refused.

use std::ops::ControlFlow;

use fathom_block::backed::Durable;
use fathom_block::disks::{End, Workload, borrow_all};
use fathom_block::{DiskFileSystem, InProcess, Record};
use fathom_core::Op;
use fathom_core::plain::DIR_MODE;
use fathom_engine::crash::imported::{ImportCounts, ImportError, ImportedLog, judge_log};
use fathom_record::{Finding, Observer, Progress};

use super::base;
use super::bug::Bug;
use super::toy::Toy;

#[derive(Default)]
struct Classes(Vec<String>);

impl Observer for Classes {
    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn seen(&mut self, finding: &Finding) -> bool {
        self.0.push(finding.class.clone());
        true
    }

    fn finding(&mut self, _: &Finding, _: Option<&str>) {}
}

/// Three directories, recorded on a new disk.
fn recorded(toy: &Toy) -> ImportedLog {
    let subject = InProcess::new(toy);
    let base = subject.format().expect("a disk");
    let ops: Vec<Op> =
        ["a", "b", "c"].map(|path| Op::Mkdir { path: path.into(), mode: DIR_MODE }).into();
    let workload = Workload { ops: &borrow_all(&ops), end: End::PowerOff, look: false };
    let recorded = subject.record(&base, &workload).expect("a recording").expect("it mounts");
    let log = recorded.log;
    ImportedLog { base, log, from_mark: None, durable_at_marks: false, time_max: None }
}

fn judge(toy: &Toy, log: &ImportedLog) -> Result<(ImportCounts, Vec<String>), ImportError> {
    let mut classes = Classes::default();
    let counts = judge_log(&InProcess::new(toy), &base(), log, &mut classes)?;
    Ok((counts, classes.0))
}

#[test]
fn a_sound_log_is_not_accused_and_a_faulty_one_is() {
    let sound = Toy::new(Durable::Operation);
    let (counts, classes) = judge(&sound, &recorded(&sound)).expect("a log");
    assert_eq!(classes, Vec::<String>::new());
    assert!(counts.states > counts.disks && counts.disks > 5, "{counts:?}");
    let faulty = Toy::new(Durable::Operation).with(Bug::InPlace);
    let (_, classes) = judge(&faulty, &recorded(&faulty)).expect("a log");
    assert_ne!(classes, Vec::<String>::new());
}

#[test]
fn what_is_durable_at_a_mark_is_there() {
    let lies = Toy::new(Durable::Operation).with(Bug::NoFlushAfter);
    for (toy, found) in [(Toy::new(Durable::Operation), false), (lies, true)] {
        let mut log = recorded(&toy);
        log.durable_at_marks = true;
        log.log.push(fathom_block::Event::Mark(b"end"));
        let (counts, classes) = judge(&toy, &log).expect("a log");
        assert_eq!(counts.marks, 1);
        assert_eq!(classes.contains(&"lost_entry".to_owned()), found, "{classes:?}");
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let toy = Toy::new(Durable::Operation);
    let sound = recorded(&toy);
    let error = |log: &ImportedLog| judge(&toy, log).expect_err("a mistake").to_string();
    let small = fathom_block::Image::new(512, sound.base.erased());
    let short = ImportedLog { base: small, ..sound.clone() };
    assert!(error(&short).contains("belongs to another image"), "{}", error(&short));
    let blank = fathom_block::Image::new(sound.base.size(), sound.base.erased());
    let other = ImportedLog { base: blank, ..sound.clone() };
    assert!(error(&other).contains("before the log the image does not mount"), "{}", error(&other));
    let mark = ImportedLog { from_mark: Some("mkfs".to_owned()), ..sound };
    assert!(error(&mark).contains("no mark \"mkfs\": it has none"), "{}", error(&mark));
}
