//! Designs from outside: a sound one, the same with a flaw, and one whose author made a mistake.

use fathom_block::{Geometry, Level, Recorder};
use fathom_core::Errno;
use fathom_designs::volume::{
    Design, Explorer, ExplorerError, Invariant, Limits, Menu, Path, Promise, Tree, Volume,
};
use fathom_engine::search::{Plan, Report, Strategy, Unobserved, search};
use two_copies::TwoCopies;

#[allow(dead_code, reason = "the example has a main function")]
#[path = "../examples/two_copies.rs"]
mod two_copies;

fn explore(checksum: bool, limits: Limits) -> (Explorer<TwoCopies>, Report) {
    let explorer = Explorer::new(TwoCopies { checksum }, limits).expect("a sound design");
    let plan = Plan { depth_max: Some(4), ..Plan::default() };
    let report = search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
    (explorer, report)
}

#[test]
fn the_example_is_clean_and_without_its_checksum_it_is_not() {
    assert_eq!(explore(true, Limits::default()).1.violations().count(), 0);
    let (explorer, report) = explore(false, Limits::default());
    let found = report.violations().next().expect("a half-written copy counts");
    assert_eq!(found.path.steps(), 2, "{}", explorer.tell(&found.path));
}

#[test]
fn a_volume_that_was_recovered_is_used_and_interrupted_again() {
    let (once, _) = explore(true, Limits::default());
    let (twice, report) = explore(true, Limits { crashes: 2, ..Limits::default() });
    if let Some(found) = report.violations().next() {
        panic!("{}:\n{}", found.property, twice.tell(&found.path));
    }
    let (once, twice) = (once.recoveries(), twice.recoveries());
    assert!(twice > once, "{twice} power failures against {once}");
}

/// A design with a device of this size and invariants that never hold.
struct Mistaken {
    size_bytes: usize,
}

const NEVER: &[Invariant<Mistaken>] =
    &[Invariant { name: "the sky is green", check: |_, (), _| Err("it is blue".to_owned()) }];

impl Design for Mistaken {
    type Memory = ();

    fn name(&self) -> &'static str {
        "mistaken"
    }
    fn geometry(&self) -> Geometry {
        Geometry::disk(self.size_bytes)
    }
    fn promise(&self) -> Promise {
        Promise { level: Level::Linear, fsync_is_sync: true }
    }
    fn menu(&self) -> Menu {
        Menu { entries_max: 1, dirs_deep_max: 0, write_blocks: 1, overwrite: false }
    }
    fn invariants(&self) -> &'static [Invariant<Mistaken>] {
        NEVER
    }
    fn mkfs(&self, _: &mut Recorder) {}
    fn mount(&self, _: &mut Recorder) -> Result<(), Errno> {
        Ok(())
    }
    fn tree(&self, _: &Volume<()>) -> Result<Tree, Errno> {
        Ok(Tree::default())
    }
    fn create(&self, _: &mut Volume<()>, _: Path) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn mkdir(&self, _: &mut Volume<()>, _: Path) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn write(&self, _: &mut Volume<()>, _: Path, _: u8, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn truncate(&self, _: &mut Volume<()>, _: Path, _: u8) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn remove(&self, _: &mut Volume<()>, _: Path) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn rename(&self, _: &mut Volume<()>, _: Path, _: Path) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn sync(&self, _: &mut Volume<()>) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
}

#[test]
fn mistakes_of_the_author_are_told_before_the_search() {
    let refusal = |size_bytes| {
        let refused = Explorer::new(Mistaken { size_bytes }, Limits::default());
        refused.map(|_| ()).expect_err("a mistake")
    };
    assert_eq!(
        refusal(512).to_string(),
        "mistaken: the sky is green does not hold after mkfs already: it is blue; this is a mistake \
         in the design itself"
    );
    assert!(matches!(refusal(100), ExplorerError::Geometry("mistaken", _)));
}
