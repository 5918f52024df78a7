//! Suites of images: those that come with the checkers, and the smallest one that keeps the coverage of a
//! campaign.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::case::{Case, Cases, Choice};
use crate::cover::Record;
use crate::disk::Disk;
use crate::run::{DiskDelta, RunError};
use crate::runner::CaseRunner;
use crate::subject::{CHECK, REPAIR, Subject};

/// Images that are larger are left out: they are held in memory.
const BYTES_MAX: u64 = 64 << 20;

/// An image of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuiteImage {
    /// The test that it belongs to.
    pub name: String,
    /// The file.
    pub path: PathBuf,
}

/// The images below a directory of tests, in order.
///
/// # Errors
/// If a directory cannot be read.
pub fn images(dir: &Path) -> io::Result<Vec<SuiteImage>> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                todo.push(path);
            } else if name == "image.gz"
                || [".img.xz", ".raw.xz", ".raw"].iter().any(|end| name.ends_with(end))
            {
                let test = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let stem = name.split('.').next().unwrap_or_default();
                let name = if stem == "image" { test } else { format!("{test}-{stem}") };
                out.push(SuiteImage { name, path });
            }
        }
    }
    out.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(out)
}

impl SuiteImage {
    /// Unpacks the image.
    ///
    /// # Errors
    /// If it cannot be read, or is too large.
    pub fn open(&self) -> io::Result<Disk> {
        let program = match self.path.extension().and_then(|end| end.to_str()) {
            Some("gz") => "gzip",
            Some("xz") => "xz",
            _ => "cat",
        };
        let mut command = Command::new(program);
        if program != "cat" {
            command.arg("-dc");
        }
        let mut child =
            command.arg(&self.path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut bytes = Vec::new();
        let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        output.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        // A packer that nobody reads any more ends by itself.
        let ended = child.wait()?.success();
        if bytes.len() as u64 > BYTES_MAX {
            return Err(io::Error::other(format!("larger than {} MiB", BYTES_MAX >> 20)));
        }
        if !ended || bytes.is_empty() {
            return Err(io::Error::other("it cannot be unpacked"));
        }
        let bytes = Arc::new(bytes);
        Ok(Disk { name: self.name.clone(), bytes, script: None, anywhere: false, dirty: false })
    }
}

/// The branches that the two runs of a checker on an image take, as e2fsprogs' own tests run it. The subject
/// only says which program is run, and how.
///
/// # Errors
/// If the harness fails.
pub fn edges_of_image(subject: &Subject, image: &Disk) -> Result<BTreeSet<u32>, RunError> {
    let mut runner = CaseRunner::on(subject, image.bytes.clone())?;
    let nothing = DiskDelta::default();
    let mut edges = BTreeSet::new();
    let (_, record, after) = runner.record_and_look(REPAIR, &nothing)?;
    edges.extend(record.unwrap_or_default().edges);
    let (_, record, _) = runner.record_and_look(REPAIR, &after)?;
    edges.extend(record.unwrap_or_default().edges);
    Ok(edges)
}

/// A case that a smallest suite keeps.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The corruption.
    pub case: Case,
    /// The branches that only it takes among those that were chosen before.
    pub adds: usize,
    /// How the first and the second repair ended, and what they printed.
    pub runs: Vec<(String, String)>,
}

/// The branches of one case: looking and repairing twice.
fn edges_of_case(runner: &mut CaseRunner<'_>, corrupt: &DiskDelta) -> Result<Seen, RunError> {
    let mut edges = BTreeSet::new();
    let mut add = |record: Option<Record>| edges.extend(record.unwrap_or_default().edges);
    let (_, record, _) = runner.record_and_look(CHECK, corrupt)?;
    add(record);
    let (first, record, after) = runner.record_and_look(REPAIR, corrupt)?;
    add(record);
    let (second, record, _) = runner.record_and_look(REPAIR, &after)?;
    add(record);
    let told = |outcome: &crate::run::Outcome| {
        (outcome.end.to_string(), String::from_utf8_lossy(&outcome.output).into_owned())
    };
    Ok(Seen { edges, runs: vec![told(&first), told(&second)] })
}

struct Seen {
    edges: BTreeSet<u32>,
    runs: Vec<(String, String)>,
}

/// The branches that the first cases of a campaign take together.
///
/// # Errors
/// If the harness fails.
pub fn edges_of_cases(
    subject: &Subject,
    choice: &Choice,
    cases_max: usize,
) -> Result<BTreeSet<u32>, RunError> {
    let mut runner = CaseRunner::new(subject)?;
    let mut edges = BTreeSet::new();
    for what in Cases::new(&subject.map, subject.base(), choice).take(cases_max) {
        let case = runner.case(&what);
        let corrupt = DiskDelta::written(subject.base(), &case.writes);
        edges.extend(edges_of_case(&mut runner, &corrupt)?.edges);
    }
    Ok(edges)
}

/// Chooses few cases that take every branch that the first cases of a campaign take: each time the one that
/// adds most. The branches of the healthy disk need no case.
///
/// # Errors
/// If the harness fails.
pub fn choose(
    subject: &Subject,
    choice: &Choice,
    cases_max: usize,
) -> Result<(Vec<Chosen>, usize), RunError> {
    let mut runner = CaseRunner::new(subject)?;
    let mut reached = edges_of_case(&mut runner, &DiskDelta::default())?.edges;
    let mut candidates: Vec<(Case, BTreeSet<u32>)> = Vec::new();
    let mut all = reached.clone();
    for what in Cases::new(&subject.map, subject.base(), choice).take(cases_max) {
        let case = runner.case(&what);
        let corrupt = DiskDelta::written(subject.base(), &case.writes);
        let seen = edges_of_case(&mut runner, &corrupt)?;
        // A case that adds nothing to those before it can be left out of any choice.
        if seen.edges.iter().any(|edge| !all.contains(edge)) {
            all.extend(&seen.edges);
            candidates.push((case, seen.edges));
        }
    }
    let mut chosen = Vec::new();
    while reached.len() < all.len() {
        let adds = |edges: &BTreeSet<u32>| edges.difference(&reached).count();
        let best = (0..candidates.len()).max_by_key(|index| adds(&candidates[*index].1));
        let Some(best) = best.filter(|index| adds(&candidates[*index].1) > 0) else { break };
        let (case, edges) = candidates.swap_remove(best);
        let adds = adds(&edges);
        reached.extend(edges);
        let corrupt = DiskDelta::written(subject.base(), &case.writes);
        let runs = edges_of_case(&mut runner, &corrupt)?.runs;
        chosen.push(Chosen { case, adds, runs });
    }
    Ok((chosen, all.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_a_suite_are_found_and_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        for test in ["f_one", "f_two"] {
            let place = dir.path().join(test);
            fs::create_dir(&place).unwrap();
            fs::write(place.join("image"), [7; 5000]).unwrap();
            let packed = Command::new("gzip").arg(place.join("image")).status().unwrap();
            assert!(packed.success());
            fs::write(place.join("expect.1"), "words").unwrap();
        }
        let found = images(dir.path()).unwrap();
        let names: Vec<&str> = found.iter().map(|image| image.name.as_str()).collect();
        assert_eq!(names, ["f_one", "f_two"]);
        let disk = found[0].open().unwrap();
        assert_eq!((disk.name.as_str(), disk.bytes.len(), disk.bytes[0]), ("f_one", 5000, 7));
        fs::write(dir.path().join("f_one/image.gz"), "no gzip").unwrap();
        assert!(found[0].open().is_err());
    }
}
