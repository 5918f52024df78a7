//! The file of a run: written, read, refused.

use crate::golden::assert_golden;
use crate::runs::littlefs;
use fathom_report::Run;
use fathom_report::run::FILE;

#[test]
fn a_run_comes_back_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = littlefs();
    run.write(dir.path()).expect("written");
    assert_eq!(Run::read(dir.path()).expect("read as a directory"), run);
    assert_eq!(Run::read(&dir.path().join(FILE)).expect("read as a file"), run);
    let names: Vec<_> = std::fs::read_dir(dir.path())
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, [FILE], "nothing else is left");
}

/// Old files must stay readable: a change here needs a new format number.
#[test]
fn the_format_does_not_change_silently() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut run = littlefs();
    run.samples.truncate(2);
    run.write(dir.path()).expect("written");
    let text = std::fs::read_to_string(dir.path().join(FILE)).expect("read");
    assert_golden("run.json", &text);
}

#[test]
fn a_run_of_the_first_format_is_read_and_was_complete() {
    let dir = tempfile::tempdir().expect("a directory");
    littlefs().write(dir.path()).expect("written");
    let text = std::fs::read_to_string(dir.path().join(FILE)).expect("read");
    let lines = text.lines().filter(|line| line.trim() != "\"complete\": true,");
    let old = lines.collect::<Vec<_>>().join("\n").replacen("\"format\": 4", "\"format\": 1", 1);
    assert!(!old.contains("complete\":"));
    std::fs::write(dir.path().join(FILE), old).expect("written");
    let read = Run::read(dir.path()).expect("still readable");
    assert_eq!(Run { format: 4, ..read }, littlefs());
}

#[test]
fn what_is_no_run_is_refused_with_its_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join(FILE);
    let refused = || Run::read(dir.path()).expect_err("refused").to_string();
    assert!(refused().ends_with("run.json: there is no run"), "{}", refused());

    littlefs().write(dir.path()).expect("written");
    let good = std::fs::read_to_string(&file).expect("read");
    let cases = [
        ("not json".to_owned(), "is no run or is damaged: expected ident at line 1"),
        (good[..good.len() / 2].to_owned(), "is no run or is damaged: EOF"),
        ("{}".to_owned(), "missing field `format`"),
        (
            good.replacen("\"format\": 4", "\"format\": 7", 1),
            "has format 7, this program reads up to format 4",
        ),
        (good.replacen("\"threads\"", "\"treads\"", 1), "unknown field `treads`"),
        (good.replacen("\"crash\"", "\"crush\"", 1), "unknown variant `crush`"),
    ];
    for (text, reason) in cases {
        std::fs::write(&file, text).expect("written");
        assert!(refused().contains(reason), "{reason}: {}", refused());
    }
    std::fs::write(&file, [0xff, 0xfe]).expect("written");
    assert!(refused().contains("it is not text"), "{}", refused());
}

#[test]
fn a_run_that_cannot_be_written_says_where() {
    let dir = tempfile::tempdir().expect("a directory");
    let nowhere = dir.path().join("missing").join(FILE);
    let error = littlefs().write(&nowhere).expect_err("no such directory").to_string();
    assert!(error.contains("missing/run.json: cannot write it"), "{error}");
}
