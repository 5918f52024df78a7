//! Designs from outside: a sound one, the same with a flaw, and one whose author made a mistake.

use fathom_block::{Geometry, Level, Recorder};
use fathom_core::Errno;
use fathom_designs::volume::{
    Design, Explorer, ExplorerError, Invariant, Limits, OperationSet, Path, Promise, Tree, Volume,
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
    fn menu(&self) -> OperationSet {
        OperationSet {
            entries_max: 1,
            dirs_deep_max: 0,
            write_blocks: 1,
            overwrite: false,
            opens: false,
        }
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

/// Every function of the interface once, on a volume of three files and directories.
fn use_all_of_it<D: Design>(design: &D) {
    let name = design.name();
    let path =
        |text: &str| text.bytes().fold(Path::ROOT, |path, name| path.join(name).expect("not deep"));
    let geometry = design.geometry();
    let mut disk = Recorder::new(geometry.blank_image(), geometry).expect("its geometry");
    design.mkfs(&mut disk);
    let memory = design.mount(&mut disk).expect("a new volume mounts");
    let mut on = Volume { disk, memory };
    assert_eq!(design.fsck(&on), Ok(()), "{name}");
    design.mkdir(&mut on, path("A")).expect("room");
    design.create(&mut on, path("Aa")).expect("room");
    design.write(&mut on, path("Aa"), 0, &[7, 8, 9]).expect("room");
    design.truncate(&mut on, path("Aa"), 2).expect("it is a file");
    design.write(&mut on, path("Aa"), 2, &[5]).expect("room");
    assert_eq!(design.open(&mut on, path("Aa")), Ok(3), "{name}");
    assert_eq!(design.open(&mut on, path("b")), Err(Errno::ENOENT), "{name}");
    assert_eq!(design.open(&mut on, path("A")), Err(Errno::EISDIR), "{name}");
    design.close(&mut on, path("Aa")).expect("room");
    assert_eq!(design.read(&on, path("Aa"), 1, 8), Ok(vec![8, 5]), "{name}");
    design.fsync(&mut on, path("Aa")).expect("room");
    design.rename(&mut on, path("Aa"), path("b")).expect("it is there");
    design.rmdir(&mut on, path("A")).expect("it is empty");
    design.sync(&mut on).expect("room");
    let copy = on.clone();
    design.remove(&mut on, path("b")).expect("it is there");
    assert_eq!(design.tree(&on), Ok(Tree::default()), "{name}");
    // The copy knows nothing of that, and a power failure forgets what was not synced.
    assert_eq!(design.tree(&copy).expect("readable").to_string(), "/b [7, 8, 5]", "{name}");
    let again = design.reset(copy.disk.image()).expect("it mounts");
    assert_eq!(design.tree(&again), design.tree(&copy), "{name}");
    assert_eq!(design.fsck(&again), Ok(()), "{name}");
    // An unmount keeps everything.
    design.unmount(&mut on).expect("room");
    let again = design.reset(on.disk.image()).expect("it mounts");
    assert_eq!(design.tree(&again), Ok(Tree::default()), "{name}");
    let other = Geometry::disk(512 * 3).blank_image();
    assert!(design.reset(&other).is_err(), "{name}: a device of another size");
}

#[test]
fn the_interface_is_the_same_for_all_designs() {
    use_all_of_it(&TwoCopies { checksum: true });
    use_all_of_it(&fathom_designs::journal::Journal::default());
    use_all_of_it(&fathom_designs::logfs::Logfs::default());
}

#[test]
fn the_example_prints_what_it_found() {
    let sound = fathom_designs::volume::explore(TwoCopies { checksum: true }, 4);
    let sound = sound.expect("a sound design").to_string();
    assert_eq!(sound.lines().count(), 1, "{sound}");
    let flawed = fathom_designs::volume::explore(TwoCopies { checksum: false }, 2);
    let flawed = flawed.expect("a sound design").to_string();
    let expected = "\
keeps what it promised is violated:
  1. create(/a)
  2. fsync(/a): writes 0 1✗ FLUSH
     POWER FAILURE with 1 of its 2 writes done, in any order (epoch:1:0)
     recovery writes nothing; there is / []
";
    assert!(flawed.contains(expected), "{flawed}");
}
