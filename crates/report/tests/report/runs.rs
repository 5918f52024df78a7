//! Runs to report on. The story is that of littlefs (`docs/FOUND_BUGS.md`); the numbers are made up.

use fathom_report::Run;
use fathom_report::run::{
    BlockLine, Command, Count, FORMAT, FindingPage, Kind, Plot, Promise, Sample, Series, StepLine,
    TreeLine, WriteLine,
};

/// A crash run that found the rename bug of littlefs.
pub(crate) fn littlefs() -> Run {
    Run {
        format: FORMAT,
        kind: Kind::Crash,
        seed: None,
        complete: true,
        command: "fathom crash littlefs --depth 6".to_owned(),
        subject: "littlefs".to_owned(),
        version: "littlefs-rust 0.1.0 (port of littlefs v2.11)".to_owned(),
        geometry: "128 blocks of 512 bytes, programs of 16 bytes, NOR flash".to_owned(),
        guarantee: guarantee(),
        program: "fathom 0.1.0".to_owned(),
        seconds: 5.13,
        stop: "everything within 6 operations was explored".to_owned(),
        threads: 2,
        counts: counts(),
        by_depth: vec![1, 4, 25, 171, 1_146, 7_180, 39_699],
        samples: samples(120),
        goals_missed: vec!["a power failure while a full disk was being freed".to_owned()],
        notes: Vec::new(),
        findings: vec![rename_finding()],
        known: Vec::new(),
        no_longer_seen: Vec::new(),
        plots: Vec::new(),
    }
}

fn promise(what: &str, is: &str, cite: &str) -> Promise {
    Promise { what: what.to_owned(), is: is.to_owned(), cite: cite.to_owned() }
}

fn guarantee() -> Vec<Promise> {
    vec![
        promise(
            "names are durable",
            "when the operation has returned",
            "README.md: 'All POSIX operations, such as remove and rename, are atomic, even in event \
             of power-loss'",
        ),
        promise(
            "data is durable",
            "when close or fsync has returned",
            "README.md: 'file updates are not actually committed to the filesystem until sync or \
             close is called on the file'",
        ),
        promise(
            "what remains of the rest",
            "the state after some operation, none half done",
            "README.md, 'Power-loss resilience': the file system falls back to the last known good \
             state",
        ),
        promise(
            "survives",
            "linear, torn",
            "DESIGN.md: a commit that was only partly programmed fails its checksum",
        ),
    ]
}

fn counts() -> Vec<Count> {
    let count = |name: &str, value, about: &str| Count {
        name: name.to_owned(),
        value,
        about: about.to_owned(),
    };
    vec![
        count("crash_images", 248_926, "different disks that a power failure left, each judged"),
        count("states", 48_226, "different states of the file system that were reached"),
        count("transitions", 301_337, "operations executed"),
        count("crash_points", 1_204_411, "moments at which the power was cut"),
        count("recoveries", 497_852, "mounts of a disk after a power failure"),
    ]
}

/// A course of `n` samples: slow at first, then steady.
pub(crate) fn samples(n: usize) -> Vec<Sample> {
    let part = |index: usize| (index + 1) as f64 / n as f64;
    let sample = |part: f64| Sample {
        seconds: 5.13 * part,
        states: (48_226.0 * part.powf(1.3)) as u64,
        crash_images: (248_926.0 * part.powf(1.1)) as u64,
        findings: u64::from(part > 0.12),
        coverage: 0,
        operations: 0,
    };
    (0..n).map(part).map(sample).collect()
}

/// A tree of (path, text).
pub(crate) fn tree(entries: &[(&str, &str)]) -> Vec<TreeLine> {
    entries
        .iter()
        .map(|(path, text)| TreeLine { path: (*path).to_owned(), text: (*text).to_owned() })
        .collect()
}

/// The entry behind a renamed one is invisible.
pub(crate) fn rename_finding() -> FindingPage {
    let (dir, file) = ("directory", "file, 8 bytes, contents 5bf0a1c4");
    let before = tree(&[
        (".", dir),
        ("dst/", dir),
        ("src/", dir),
        ("src/a", file),
        ("src/b", file),
        ("src/c", file),
    ]);
    let after = tree(&[
        (".", dir),
        ("dst/", dir),
        ("dst/a", file),
        ("src/", dir),
        ("src/b", file),
        ("src/c", file),
    ]);
    let found = tree(&[(".", dir), ("dst/", dir), ("dst/a", file), ("src/", dir), ("src/c", file)]);
    let write = |index, text: &str, arrived| WriteLine { index, text: text.to_owned(), arrived };
    FindingPage {
        id: "littlefs-128x512-3f9c1ab2".to_owned(),
        class: "lost_entry".to_owned(),
        title: "The file next to a renamed one disappears".to_owned(),
        count: 1_284,
        complete: true,
        variants: Vec::new(),
        levels: vec!["linear".to_owned(), "torn".to_owned()],
        ops: [
            "mkdir src",
            "mkdir dst",
            "create src/a, src/b, src/c, 8 bytes each",
            "rename src/a to dst/a",
        ]
        .map(str::to_owned)
        .to_vec(),
        in_flight: 3,
        cut: "after 2 of its 5 writes".to_owned(),
        writes: vec![
            write(41, "program block 9, 64 bytes at 112: the entry a in dst", true),
            write(
                42,
                "program block 1, 32 bytes at 224: the move is noted in the global state",
                true,
            ),
            write(43, "program block 5, 48 bytes at 176: the entry a leaves src", false),
            write(44, "program block 1, 32 bytes at 256: the note is removed", false),
            write(45, "sync", false),
        ],
        promised: vec![before.clone(), after],
        before,
        found,
        repaired: Vec::new(),
        claims: Vec::new(),
        differences: vec!["src/b is missing; it was not touched by the operation".to_owned()],
        replay: "fathom replay littlefs-128x512-3f9c1ab2".to_owned(),
        directory: "fathom-out/littlefs-128x512-3f9c1ab2".to_owned(),
        story:
            "A rename between two directories takes two commits: the entry appears in dst, then \
                it leaves src. The power fails between them.\n\nAfter the next mount src/a is \
                hidden, as it should be, since dst/a is there. But src/b, which nobody touched, is \
                hidden with it: stat, readdir and open do not find it until something is written."
                .to_owned(),
        steps: Vec::new(),
        blocks: Vec::new(),
    }
}

fn design_steps() -> Vec<StepLine> {
    let text = str::to_owned;
    vec![
        StepLine {
            what: text("create(/a)"),
            writes: Vec::new(),
            crash: String::new(),
            recovery: Vec::new(),
            recovered: String::new(),
        },
        StepLine {
            what: text("fsync(/a)"),
            writes: vec![
                Command::Written(1),
                Command::Lost(2),
                Command::Lost(3),
                Command::Written(4),
                Command::Flush,
            ],
            crash: text("with 2 of its 4 writes done, in any order (epoch:4:6)"),
            recovery: vec![Command::Written(42), Command::Flush],
            recovered: text("it mounts and cannot be read: EUCLEAN"),
        },
    ]
}

fn design_finding() -> FindingPage {
    let text = str::to_owned;
    let block = |number, label: &str, [before, left, after]: [&str; 3]| BlockLine {
        number,
        label: text(label),
        before: text(before),
        left: text(left),
        after: text(after),
    };
    FindingPage {
        id: text("0123456789ab"),
        class: text("keeps what it promised"),
        title: text("keeps what it promised is violated"),
        complete: true,
        variants: Vec::new(),
        levels: Vec::new(),
        ops: Vec::new(),
        cut: String::new(),
        writes: Vec::new(),
        before: Vec::new(),
        promised: Vec::new(),
        found: Vec::new(),
        differences: vec![text("then the volume cannot be read: EUCLEAN")],
        replay: text("fathom replay 0123456789ab"),
        directory: text("fathom-out/0123456789ab"),
        story: String::new(),
        steps: design_steps(),
        blocks: vec![
            block(1, "journal 0", ["zeros", "descriptor of 1", "descriptor of 1"]),
            block(2, "journal 1", ["zeros", "zeros", "zeros"]),
            block(42, "inodes 0-1", ["0 directory", "0 directory", "zeros"]),
        ],
        ..rename_finding()
    }
}

/// A run on a design: a counterexample step by step, and curves.
pub(crate) fn design() -> Run {
    let text = str::to_owned;
    let plot = Plot {
        title: text("Errors found by operations kept in a state"),
        about: text("With none of them errors are missed."),
        x: text("operations kept (k)"),
        y: text("properties violated"),
        logarithmic: false,
        series: vec![Series {
            name: text("properties violated"),
            points: vec![(0, 0), (1, 0), (2, 2), (3, 2)],
        }],
    };
    Run {
        kind: Kind::Design,
        subject: text("journal (no-checksum)"),
        version: text("journal (no-checksum), a model"),
        seed: None,
        complete: true,
        command: text("fathom design journal --switch no-checksum"),
        geometry: text("62 blocks of 16 bytes, written in units of 16"),
        guarantee: Vec::new(),
        goals_missed: Vec::new(),
        samples: Vec::new(),
        counts: vec![Count {
            name: text("operations"),
            value: 1_234,
            about: text("steps taken and power failures judged"),
        }],
        findings: vec![design_finding()],
        known: Vec::new(),
        no_longer_seen: Vec::new(),
        plots: vec![plot],
        ..littlefs()
    }
}

/// A run with everything that is long, large, many or hostile.
pub(crate) fn extreme() -> Run {
    let mut run = littlefs();
    let hostile = "<script>alert(1)</script>&\"'\x1b[2J\u{202e}";
    run.subject = hostile.to_owned();
    run.command = format!("fathom crash {hostile}");
    run.goals_missed.push(hostile.to_owned());
    run.guarantee.push(promise(hostile, hostile, hostile));
    run.by_depth = (0..500).map(|depth| depth * depth).collect();
    run.samples = samples(10_000);
    for (index, sample) in run.samples.iter_mut().enumerate() {
        sample.findings = (index / 200) as u64;
    }
    let mut finding = rename_finding();
    finding.title = hostile.to_owned();
    finding.story = hostile.to_owned();
    finding.ops = (0..120).map(|n| format!("unlink {hostile}{n}")).collect();
    finding.in_flight = 119;
    let long = "directory-with-a-very-long-name/".repeat(8);
    for index in 0..200 {
        let path = format!("{long}{index:03}{hostile}");
        let entry = TreeLine { path, text: "file, 0 bytes".to_owned() };
        finding.before.push(entry.clone());
        finding.promised.iter_mut().for_each(|tree| tree.push(entry.clone()));
        if index != 77 {
            finding.found.push(entry);
        }
    }
    finding.steps = design().findings[0].steps.clone();
    finding.steps.iter_mut().for_each(|step| step.what.push_str(hostile));
    finding.blocks = design().findings[0].blocks.clone();
    finding.blocks.iter_mut().for_each(|block| block.left.push_str(hostile));
    run.plots = design().plots;
    run.plots[0].title.push_str(hostile);
    let write = WriteLine { index: 0, text: hostile.to_owned(), arrived: false };
    finding.writes = (0..300)
        .map(|index| WriteLine { index, arrived: index % 7 < 5 && index < 211, ..write.clone() })
        .collect();
    run.findings = (0..50)
        .map(|index| FindingPage { id: format!("{index}-{hostile}"), ..finding.clone() })
        .collect();
    run
}

/// A run that found nothing and has nothing to draw.
pub(crate) fn clean() -> Run {
    let mut run = littlefs();
    run.findings.clear();
    run.goals_missed.clear();
    run.samples = samples(1);
    run.samples[0].findings = 0;
    run
}
