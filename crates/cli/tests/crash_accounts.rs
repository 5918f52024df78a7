//! Allocated blocks and modification times that `fsync` has made durable, on file systems of the kernel:
//! what loses them is found, what keeps them is not accused. Needs root.

mod common;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use fathom_block::disks::{
    Account, Examine, Facts, Questions, Recording, SubjectFailure, Workload,
};
use fathom_block::{DiskFileSystem, Geometry, Guarantee, Image, Level, Record};
use fathom_core::HarnessFault;
use fathom_engine::crash::sequences::crash_sequences;
use fathom_engine::crash::{CrashConfig, CrashPlan, CrashReport};
use fathom_engine::search::Strategy;
use fathom_generate::known;
use fathom_record::Silent;
use fathom_subjects::Recipe;
use fathom_subjects::kernel::KernelDisks;
use fathom_subjects::kernel::disks::CrashProfile;

/// The known workloads that are about blocks, and about times.
const BLOCKS: [&str; 4] =
    ["crashmonkey-8", "crashmonkey-9", "generic-468-fsync", "generic-468-fdatasync"];
const TIMES: [&str; 1] = ["generic-392"];

/// A file system that forgets something of each file when the power fails: the disk is the same, what is
/// said of it is not.
struct Forgetful {
    disks: KernelDisks,
    forget: fn(&mut Account, u64),
}

impl Forgetful {
    fn spoil(&self, facts: Vec<Arc<Facts>>) -> Vec<Arc<Facts>> {
        let spoil = |facts: Arc<Facts>| {
            let mut facts = Facts::clone(&facts);
            let Ok(view) = &facts.view else { return Arc::new(facts) };
            let tree = view.tree.clone().unwrap_or_default();
            for (path, account) in Arc::make_mut(&mut facts.accounts) {
                (self.forget)(account, tree.entries[path].size);
            }
            Arc::new(facts)
        };
        facts.into_iter().map(spoil).collect()
    }
}

impl Record for Forgetful {
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        self.disks.record(base, workload)
    }
}

impl Examine for Forgetful {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        Ok(self.spoil(self.disks.examine(disks, questions)?))
    }

    fn batch_disks(&self) -> usize {
        self.disks.batch_disks()
    }
}

impl DiskFileSystem for Forgetful {
    fn name(&self) -> &str {
        self.disks.name()
    }

    fn version(&self) -> &str {
        self.disks.version()
    }

    fn geometry(&self) -> Geometry {
        self.disks.geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.disks.guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.disks.format()
    }

    fn is_deterministic(&self) -> bool {
        false
    }
}

fn disks(fs: &str) -> KernelDisks {
    let profile = CrashProfile::of(fs);
    let recipe = profile.adapt(Recipe::named(fs).expect("a recipe"));
    KernelDisks::new(fs, recipe, profile, 2).expect("root, and the file system")
}

fn run(disks: &dyn DiskFileSystem, name: &str) -> CrashReport {
    let config = CrashConfig {
        probe: false,
        fsck: false,
        recheck: false,
        levels: vec![Level::Linear],
        ..CrashConfig::default()
    };
    let plan = CrashPlan {
        config,
        strategy: Strategy::Bfs,
        threads: 0,
        time_max: None,
        states_max: None,
        memory_max_bytes: None,
        stop_at_first: false,
        checkpoint: None,
        checkpoint_every: Duration::from_secs(60),
        shrink_budget: Duration::ZERO,
        labels: Default::default(),
        group: true,
        supervision: None,
        states: Default::default(),
        order: Default::default(),
    };
    let known = known::all().into_iter().find(|known| known.name == name).expect(name);
    let mut workloads = std::iter::once(known.ops);
    crash_sequences(disks, &plan, name, &mut workloads, &mut Silent).expect("a report")
}

/// Whether file systems can be mounted here. The files of a process belong to its effective user (proc(5)).
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The places of what was found.
fn found(report: &CrashReport) -> Vec<String> {
    report.findings.iter().map(|finding| finding.record.cause.place.clone()).collect()
}

fn is_kept_and_missed(fs: &str) {
    if !is_root() {
        println!("SKIP {fs}: needs root");
        return;
    }
    let honest = disks(fs);
    for name in BLOCKS.iter().chain(&TIMES) {
        assert_eq!(found(&run(&honest, name)), Vec::<String>::new(), "{fs}, {name}");
    }
    // What lies behind the end of a file.
    let end = |account: &mut Account, size: u64| {
        account.blocks_512 = account.blocks_512.min(size.next_multiple_of(4096) / 512);
    };
    let forgetful = Forgetful { disks: honest, forget: end };
    for name in BLOCKS {
        let found = found(&run(&forgetful, name));
        assert!(found.iter().any(|what| what.starts_with("allocated blocks")), "{name}: {found:?}");
    }
    let later = |account: &mut Account, _: u64| account.mtime.0 += 1;
    let forgetful = Forgetful { forget: later, ..forgetful };
    for name in TIMES {
        let found = found(&run(&forgetful, name));
        assert!(found.iter().any(|what| what.starts_with("modification time")), "{found:?}");
    }
}

#[test]
fn blocks_and_times_are_kept_by_ext4_and_missed() {
    is_kept_and_missed("ext4");
}

#[test]
fn blocks_and_times_are_kept_by_xfs_and_missed() {
    is_kept_and_missed("xfs");
}

#[test]
fn blocks_and_times_are_kept_by_btrfs_and_missed() {
    is_kept_and_missed("btrfs");
}

/// The times are made durable by fsync alone, not by fdatasync.
#[test]
fn an_fsync_of_data_alone_is_found() {
    let dir = common::scratch();
    let run = |more: &[&str]| {
        let args = ["crash", "ext4", "--suite", "known", "--level", "linear"];
        let less = ["--no-probe", "--no-checker", "--json"];
        common::json(&[&args[..], &less, more].concat(), dir.path())
    };
    if !is_root() {
        println!("SKIP an_fsync_of_data_alone_is_found: needs root");
        return;
    }
    let (code, report) = run(&["--mutant", "fsync-of-data"]);
    assert_eq!(code, 1, "{report}");
    let findings = report["findings"].as_array().expect("findings");
    let is_about_time =
        |finding: &serde_json::Value| finding.to_string().contains("modification time");
    assert!(findings.iter().any(is_about_time), "{report}");
}
