//! Test the tester: checkers that lie in every way that we know of are caught, an honest one is not
//! accused, and none of them does any harm.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use fathom_fsck::campaign::{Plan, State, run};
use fathom_fsck::{Checker, Choice, Disk, NoGuests, Subject, SubjectOptions};
use fathom_record::Silent;

const LIAR: &str = env!("CARGO_BIN_EXE_fathom-liar");

/// A checker that does as `mode` says.
fn liar(mode: &str, dir: &Path, disk: &Disk) -> Checker {
    let healthy = dir.join("healthy.img");
    fs::write(&healthy, &*disk.bytes).unwrap();
    let description = dir.join(format!("{mode}.toml"));
    let target = dir.join("harm");
    let text = format!(
        "program = {LIAR:?}\npackage = \"none\"\nfile_systems = [\"ext2\"]\ndisks = [\"ext2\"]\n\
         check = [{mode:?}, \"check\", {healthy:?}, \"{{}}\"]\n\
         repair = [{mode:?}, \"repair\", {healthy:?}, \"{{}}\"]\nsum = true\nmemory_mib = 1300\n\
         env = {{ FATHOM_LIAR_TARGET = {target:?} }}\n\
         [exit]\n0 = \"clean\"\n1 = \"repaired\"\n4 = \"left\"\n8 = \"failed\"\n16 = \"usage\"\n"
    );
    fs::write(&description, text).unwrap();
    Checker::named(description.to_str().unwrap()).unwrap()
}

/// A short campaign.
fn campaign(mode: &str, cases: u64, dir: &Path) -> Option<State> {
    let disk = match Disk::named("ext2", &NoGuests) {
        Ok(disk) => disk,
        Err(error) => {
            println!("SKIP {mode}: {error}");
            return None;
        }
    };
    let checker = liar(mode, dir, &disk);
    // Who eats memory must get at a gigabyte before its time is over, also on a slow machine.
    let seconds = if mode == "eats-memory" { 30 } else { 1 };
    let options =
        SubjectOptions { time: Some(Duration::from_secs(seconds)), ..SubjectOptions::default() };
    let subject = Subject::new(checker, disk, &options).unwrap();
    let fields = vec!["s_free_blocks_count_lo".to_owned(), "\"/small\"].i_uid".to_owned()];
    let choice = Choice { fields, ..Choice::default() };
    let plan = Plan { choice, cases_max: Some(cases), jobs: 1, ..Plan::default() };
    Some(run(&subject, &plan, &mut Silent, |_| {}).unwrap())
}

fn classes(mode: &str, cases: u64) -> Option<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let state = campaign(mode, cases, dir.path())?;
    assert_eq!(state.done, cases, "{mode}");
    assert!(!dir.path().join("harm").exists(), "{mode} wrote outside");
    Some(state.by_class.into_keys().collect())
}

#[test]
fn an_honest_checker_is_not_accused() {
    let Some(found) = classes("honest", 40) else { return };
    assert_eq!(found, [""; 0]);
}

#[test]
fn every_liar_is_caught_by_the_oracle_that_is_for_it() {
    let expected = BTreeMap::from([
        ("repairs-nothing", "table"),
        ("silent", "silent_repair"),
        ("breaks-another", "loss"),
        ("check-writes", "check_writes"),
        ("aborts", "signal"),
        ("unknown-exit", "unknown_exit"),
    ]);
    for (mode, class) in expected {
        let Some(found) = classes(mode, 4) else { return };
        assert!(found.iter().any(|name| name == class), "{mode}: {found:?}");
    }
}

/// Two cases that make a checker die in the same place have one cause, which names the place.
#[test]
fn deaths_are_grouped_by_their_place_in_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let Some(state) = campaign("aborts", 4, dir.path()) else { return };
    let causes: Vec<_> = state.causes.values().collect();
    assert_eq!((causes.len(), causes[0].cases), (1, 4), "{:?}", state.causes.keys());
    if cfg!(target_arch = "x86_64") {
        assert!(causes[0].cause.starts_with("fathom-liar+0x"), "{}", causes[0].cause);
    }
}

#[test]
fn what_never_ends_is_ended() {
    for (mode, class) in [("hangs", "hang"), ("prints", "output"), ("eats-memory", "memory")] {
        let Some(found) = classes(mode, 1) else { return };
        assert!(found.iter().any(|name| name == class), "{mode}: {found:?}");
    }
    // It sleeps: the limit of the clock ends it.
    let Some(found) = classes("sleeps", 1) else { return };
    assert!(found.iter().any(|name| name == "hang"), "{found:?}");
}

#[test]
fn a_checker_reaches_nothing_but_its_disk() {
    // They try, fail, and are honest otherwise: nothing is found, and we are still here.
    for mode in ["writes-outside", "forks", "kills-parent", "grows"] {
        let Some(found) = classes(mode, 2) else { return };
        assert_eq!(found, [""; 0], "{mode}");
    }
}

/// Exits with 0 whatever it sees: SWIFT's table cannot know, only another reader can.
#[test]
fn a_blind_checker_is_caught_where_it_says_fine_and_the_tree_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let Ok(disk) = Disk::named("ext2", &NoGuests) else {
        println!("SKIP blind: no mke2fs");
        return;
    };
    let checker = liar("blind", dir.path(), &disk);
    let subject = Subject::new(checker, disk, &SubjectOptions::default()).unwrap();
    let fields = vec!["superblock.s_magic".to_owned(), "group[0].bg_inode_table_lo".to_owned()];
    let choice = Choice { fields, ..Choice::default() };
    let plan = Plan { choice, cases_max: Some(10), jobs: 1, ..Plan::default() };
    let state = run(&subject, &plan, &mut Silent, |_| {}).unwrap();
    let found: Vec<&String> = state.by_class.keys().collect();
    assert!(found.iter().any(|class| *class == "unreadable" || *class == "loss"), "{found:?}");
}
