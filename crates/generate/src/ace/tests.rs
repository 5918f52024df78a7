//! ACE's counts, its text, and what comes of it.

use super::*;

fn space(length: usize, nested: bool) -> Space {
    Space::new(length, nested, false).unwrap()
}

/// The counts that were measured of the published generator with the one bug mended that its counts
/// depend on.
#[test]
fn counts_of_one_and_nested() {
    let counts = |workloads, unique, merged| AceCounts {
        workloads,
        unique: Some(unique),
        unique_merged: Some(merged),
    };
    assert_eq!(count(&space(1, false)), counts(328, 316, 300));
    assert_eq!(count(&space(1, true)), counts(587, 569, 545));
    assert_eq!(space(2, true).count(), 909_362);
}

#[test]
fn counts_of_two() {
    let counts = count(&space(2, false));
    assert_eq!(counts.workloads, 241_720);
    assert_eq!((counts.unique, counts.unique_merged), (Some(221_402), Some(198_722)));
}

#[test]
fn counts_of_three() {
    assert_eq!(count(&space(3, false)).workloads, 7_478_858);
}

#[test]
fn the_formula_counts_what_streams_by() {
    for (length, nested) in [(1, false), (1, true)] {
        let space = space(length, nested);
        assert_eq!(space.workloads().count() as u64, space.count());
    }
    let demo = Space::new(2, false, true).unwrap();
    assert_eq!(demo.workloads().count() as u64, demo.count());
    let renames = space(3, false).with_ops(&[AceOp::Rename, AceOp::Mkdir]);
    assert_eq!(renames.workloads().count() as u64, renames.count());
}

#[test]
fn the_parts_of_a_list_are_complete_and_disjoint() {
    for (count, parts) in [(46, 5), (46, 1), (3, 7), (64, 16)] {
        let mut taken: Vec<u32> = Vec::new();
        for number in 1..=parts {
            let part: Part = format!("{number}/{parts}").parse().unwrap();
            taken.extend(part.of(0..count));
        }
        taken.sort_unstable();
        assert_eq!(taken, (0..count).collect::<Vec<u32>>(), "{parts} parts of {count}");
    }
    let third: Part = "3/16".parse().unwrap();
    assert_eq!(third.of(0..).take(3).collect::<Vec<u32>>(), [2, 18, 34]);
}

#[test]
fn the_parts_are_the_whole() {
    let space = space(1, false);
    let mut sizes = Vec::new();
    let mut all: Vec<Digest> = Vec::new();
    for part in ["1/3", "2/3", "3/3"] {
        let of = unique(&space, part.parse().unwrap());
        let digests: Vec<Digest> = of.map(|workload| workload.digest(false)).collect();
        sizes.push(digests.len());
        all.extend(digests);
    }
    assert!(sizes.iter().all(|size| *size > 50), "{sizes:?}");
    let mut whole: Vec<Digest> =
        unique(&space, Part::WHOLE).map(|workload| workload.digest(false)).collect();
    all.sort_unstable();
    whole.sort_unstable();
    assert_eq!(all, whole);
    for wrong in ["0/3", "4/3", "3", "a/b", "1/0", "-1/3"] {
        assert!(wrong.parse::<Part>().is_err(), "{wrong}");
    }
}

#[test]
fn a_workload_as_ace_writes_it() {
    let text = |workload: &AceWorkload| {
        let mut text = String::new();
        workload.lines.iter().for_each(|line| line.push_to(&mut text));
        text
    };
    let all: Vec<AceWorkload> = space(1, false).workloads().collect();
    let first = "open foo O_RDWR|O_CREAT 0777\nfsync foo\ncheckpoint 1\nclose foo\n";
    assert_eq!(text(&all[0]), first);
    let rename = all.iter().map(text).find(|text| text.contains("rename A B\nopendir B"));
    let expected = "mkdir A 0777\nopendir A 0777\nclose A\nrename A B\nopendir B 0777\nfsync B\n\
                    checkpoint 1\nclose B\n";
    assert_eq!(rename.unwrap(), expected);
    let mmap = all.iter().map(text).find(|text| text.contains("mmapwrite foo 32768"));
    let expected = "open foo O_RDWR|O_CREAT 0777\nwrite foo 0 32768\nmmapwrite foo 32768 32768\n\
                    checkpoint 1\nclose foo\n";
    assert_eq!(mmap.unwrap(), expected);
}

#[test]
fn jlang_is_read_as_it_is_written() {
    let symlinks = space(1, true).with_ops(&[AceOp::Symlink, AceOp::Mknod, AceOp::Rmdir]);
    for workload in space(1, true).workloads().chain(symlinks.workloads()) {
        let text = jlang::write(&workload.lines);
        assert_eq!(jlang::read(&text).unwrap(), workload.lines, "{text}");
    }
    let wrong = |text: &str| jlang::read(text).unwrap_err().to_string();
    assert!(wrong("# define\nfoo\n").contains("# run"));
    let error = wrong("# run\nopen foo O_RDWR 0777\nwrite qux 0 1\n");
    assert!(error.starts_with("line 3") && error.contains("qux"), "{error}");
    assert!(wrong("# run\nwrite foo 0\n").contains("needs 3 arguments"));
    assert!(wrong("# run\nleap foo\n").contains("no call \"leap\""));
    assert!(wrong("# run\nopen foo O_ODD 0777\n").contains("O_ODD"));
}

#[test]
fn operations_execute_on_the_reference() {
    use fathom_core::Subject;
    use fathom_model::{Config, Model};
    let mut failed = 0;
    for workload in space(1, true).workloads() {
        let mut model = Model::new(Config::default()).unwrap();
        for op in workload.ops() {
            let outcome = model.apply(&op).unwrap();
            failed += usize::from(outcome.result.is_err());
        }
    }
    // A directory cannot be renamed into itself; the second close of a direct write has nothing left.
    assert!(failed < 60, "{failed}");
}
