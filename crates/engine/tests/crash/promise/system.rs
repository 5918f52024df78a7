//! Promises per object in a whole run, on the toy file system.

use fathom_block::backed::Durable;
use fathom_engine::crash::Class;

use super::profiles::{EXT4, POSIX, profile};
use crate::bug::Bug;
use crate::toy::Toy;
use crate::{base, check, find};

#[test]
fn a_correct_file_system_is_clean_and_a_bug_is_named_by_its_rule() {
    let mut config = base();
    config.depth = 3;
    for text in [POSIX, EXT4] {
        let report = check(&Toy::new(Durable::Sync).promising(profile(text)), &config);
        let causes: Vec<String> =
            report.findings.iter().map(|finding| finding.record.cause.to_string()).collect();
        assert!(causes.is_empty(), "{causes:?}");
        let toy = Toy::new(Durable::Sync).with(Bug::RenameInTwoSteps).promising(profile(text));
        let report = check(&toy, &config);
        let finding = find(&report, Class::ResurrectedEntry, "rename");
        assert_eq!(finding.record.cause.place, "rename shows both names after rename");
    }
}
