//! The directory of a run while the run goes on: everything so far is in it at every moment.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::file::replace_file;
use crate::known::Known;
use crate::run::{Count, FILE, FindingPage, KnownSeen, RunError, Sample};
use crate::states::{STATES_FILE, VisitedStates};
use crate::{Finding, Progress, RecordError, Run};

/// Time between two versions of `run.json` if nothing is found.
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// Samples of the course of a run; beyond this every second one is dropped.
const SAMPLES_MAX: usize = 2000;

/// What became of a finding.
#[derive(Debug)]
pub enum Kept {
    /// It is known: it was counted.
    Known,
    /// It is recorded here.
    Written(PathBuf),
    /// It could not be recorded: somebody should tell it.
    NotWritten(RecordError),
}

/// Keeps the findings and `run.json` of a run.
pub struct RunDirectory {
    /// Absolute: a subject may change the working directory.
    out: PathBuf,
    /// As the user typed it.
    shown: PathBuf,
    run: Run,
    known: Known,
    /// Indices of known entries that were seen.
    known_seen: BTreeSet<usize>,
    /// The states that were visited, and what kind of states they are.
    states: Option<(String, VisitedStates)>,
    written: Instant,
    /// Why the last `run.json` could not be written.
    problem: Option<RunError>,
}

impl RunDirectory {
    /// Makes the directory and writes a first `run.json`: it says what was started.
    ///
    /// # Errors
    /// If nothing can be written there. Nobody wants to hear that after the run.
    pub fn start(out: &Path, run: Run, known: Known) -> Result<RunDirectory, RunError> {
        let shown = out.to_owned();
        let out = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
        fs::create_dir_all(&out).map_err(|source| RunError::Io {
            path: out.clone(),
            what: "make the directory",
            source,
        })?;
        let run = Run { complete: false, ..run };
        run.write(&out.join(FILE))?;
        Ok(RunDirectory {
            out,
            shown,
            run,
            known,
            known_seen: BTreeSet::new(),
            states: None,
            written: Instant::now(),
            problem: None,
        })
    }

    /// Goes on with the `run.json` of a process that has ended, to add what it could not say any more:
    /// also a finding that it had written when it ended, before it could name it in `run.json`.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn resume(out: &Path, known: Known) -> Result<RunDirectory, RunError> {
        let run = Run { complete: false, ..Run::read(&out.join(FILE))? };
        let mut directory = RunDirectory {
            out: out.to_owned(),
            shown: out.to_owned(),
            run,
            known,
            known_seen: BTreeSet::new(),
            states: None,
            written: Instant::now(),
            problem: None,
        };
        for finding in directory.not_yet_named() {
            let page = directory.page(&finding);
            directory.run.findings.push(page);
        }
        Ok(directory)
    }

    /// Findings that were written after the last `run.json`. Those of earlier runs in the same directory
    /// are older than it, since a run begins with writing one.
    fn not_yet_named(&self) -> Vec<Finding> {
        let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let last = modified(&self.out.join(FILE));
        let entries = fs::read_dir(&self.out).into_iter().flatten().flatten();
        let new = entries.map(|entry| entry.path()).filter(|path| modified(path) >= last);
        let findings = new.filter_map(|path| Finding::read(&path).ok());
        let is_named = |id: &str| self.run.findings.iter().any(|page| page.id == id);
        findings.filter(|finding| !is_named(&finding.id)).collect()
    }

    /// Adds findings that are known to this run alone, because a run without a seeded bug shows them
    /// too. That one of them is not seen says nothing.
    pub fn subtract(&mut self, known: Known) {
        let first = self.known.entries.len();
        self.known.entries.extend(known.entries);
        self.known_seen.extend(first..self.known.entries.len());
    }

    /// Keeps the visited states beside `run.json`. States of the same `space` can be united with those of
    /// other runs: they are identified in the same way.
    pub fn keep_states(&mut self, space: &str, states: &VisitedStates) {
        self.states = Some((space.to_owned(), states.clone()));
    }

    /// The run so far.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Whether the list of known findings has any on this subject.
    pub fn has_known(&self) -> bool {
        self.known.of(self.run.kind.name(), &self.run.subject).next().is_some()
    }

    /// Takes over the counts, and writes them every few seconds.
    pub fn progress(&mut self, progress: &Progress) {
        self.run.seconds = progress.elapsed.as_secs_f64();
        for (name, value) in &progress.counts {
            self.run.set_count(name, *value);
        }
        let sample = Sample {
            seconds: self.run.seconds,
            states: progress.count("states"),
            crash_images: progress.count("crash_images"),
            findings: progress.findings,
            coverage: progress.count("inputs_and_outputs"),
            operations: progress.count("operations"),
        };
        if self.run.samples.len() >= SAMPLES_MAX {
            let mut index = 0;
            self.run.samples.retain(|_| {
                index += 1;
                index % 2 == 0
            });
        }
        self.run.samples.push(sample);
        if self.written.elapsed() >= WRITE_EVERY {
            self.write();
        }
    }

    /// Records a finding at once, and `run.json` with it. `seen_as` is the id under which it was
    /// recorded before it was shrunk: that directory goes away once the new one is there.
    pub fn keep(&mut self, finding: &Finding, seen_as: Option<&str>) -> Kept {
        let was = seen_as.filter(|was| *was != finding.id);
        self.known_seen.extend(self.known.seen_in(finding));
        if let Some(index) = self.known.covers(finding) {
            // It may have been recorded before it was known what it is.
            self.forget(seen_as);
            self.count_known(index, finding);
            self.write();
            return Kept::Known;
        }
        let written = finding.write(&self.out);
        if written.is_ok() {
            self.forget(was);
        }
        let page = self.page(finding);
        self.run.findings.retain(|known| Some(known.id.as_str()) != was);
        match self.run.findings.iter_mut().find(|known| known.id == page.id) {
            Some(known) => *known = page,
            None => self.run.findings.push(page),
        }
        self.write();
        match written {
            Ok(_) => Kept::Written(self.shown.join(&finding.id)),
            Err(error) => Kept::NotWritten(error),
        }
    }

    fn page(&self, finding: &Finding) -> FindingPage {
        FindingPage {
            id: finding.id.clone(),
            class: finding.class.clone(),
            title: finding.title.clone(),
            count: finding.sightings,
            complete: finding.complete,
            variants: finding
                .variants
                .iter()
                .map(|variant| format!("{} ({})", variant.signature, variant.sightings))
                .collect(),
            replay: match finding.subject.starts_with("fuse:") {
                true => format!("fathom replay {} --trust", finding.id),
                false => format!("fathom replay {}", finding.id),
            },
            directory: self.shown.join(&finding.id).display().to_string(),
            ..finding.page.clone()
        }
    }

    /// Removes the record of a finding that goes by another name now.
    fn forget(&mut self, id: Option<&str>) {
        let Some(id) = id else { return };
        self.run.findings.retain(|page| page.id != id);
        // It is recorded elsewhere, or known: that this one stays is no loss.
        let _ = fs::remove_dir_all(self.out.join(id));
    }

    fn count_known(&mut self, index: usize, finding: &Finding) {
        let entry = &self.known.entries[index];
        let seen = KnownSeen {
            signature: entry.signature.clone(),
            because: entry.because.clone(),
            sightings: finding.sightings,
        };
        match self.run.known.iter_mut().find(|known| known.signature == seen.signature) {
            Some(known) => *known = seen,
            None => self.run.known.push(seen),
        }
    }

    /// Ends the run: `change` fills in what is known only now. Entries of the list of known
    /// findings that a complete run could have shown and did not are in `no_longer_seen`.
    pub fn finish(&mut self, change: impl FnOnce(&mut Run)) -> &Run {
        self.run.complete = true;
        change(&mut self.run);
        let mut gone = Vec::new();
        for (index, entry) in self.known.of(self.run.kind.name(), &self.run.subject) {
            if self.run.complete && !self.known_seen.contains(&index) {
                gone.push(format!("{} ({})", entry.signature, entry.because));
            }
        }
        self.run.no_longer_seen = gone;
        self.write();
        &self.run
    }

    /// Writes `run.json`. A disk that is full must not end the run: see [`RunDirectory::problem`].
    fn write(&mut self) {
        self.written = Instant::now();
        self.problem = self.run.write(&self.out.join(FILE)).err();
        if let Some((space, states)) = &self.states {
            let bytes = states.sketch().encode(space);
            // The run matters more: that nobody can unite its states is no reason to complain twice.
            let _ = replace_file(&self.out.join(STATES_FILE), &bytes);
        }
    }

    /// Why `run.json` is not up to date, if it is not.
    pub fn problem(&self) -> Option<&RunError> {
        self.problem.as_ref()
    }
}

impl Run {
    /// Changes a count, or adds it.
    fn set_count(&mut self, name: &str, value: u64) {
        match self.counts.iter_mut().find(|count| count.name == name) {
            Some(count) => count.value = value,
            None => {
                self.counts.push(Count { name: name.to_owned(), value, about: String::new() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Kind;

    fn finding(id: &str, signature: &str) -> Finding {
        let mut finding = Finding::new("check", id, signature);
        finding.subject = "ext4".to_owned();
        finding
    }

    fn known(signature: &str) -> Known {
        let mut known = Known::default();
        known.add(&finding("0", signature), "a quirk");
        known
    }

    fn start(out: &Path, known: Known) -> RunDirectory {
        let run = Run::start(Kind::Check, "fathom check ext4", "ext4");
        RunDirectory::start(out, run, known).unwrap()
    }

    #[test]
    fn a_finding_whose_process_died_before_it_was_named_is_named() {
        let out = tempfile::tempdir().unwrap();
        finding("old", "tree link size").write(out.path()).unwrap();
        // Clocks of file systems are coarse.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let mut first = start(out.path(), Known::default());
        first.keep(&finding("aaa", "tree link mode"), None);
        finding("bbb", "tree link uid").write(out.path()).unwrap();
        drop(first);
        let mut resumed = RunDirectory::resume(out.path(), Known::default()).unwrap();
        resumed.finish(|run| run.complete = false);
        let named: Vec<String> =
            Run::read(out.path()).unwrap().findings.into_iter().map(|page| page.id).collect();
        assert_eq!(named, ["aaa", "bbb"]);
    }

    #[test]
    fn everything_so_far_is_on_disk_at_every_moment() {
        let out = tempfile::tempdir().unwrap();
        let read = || Run::read(out.path()).unwrap();
        let mut directory = start(out.path(), Known::default());
        assert!(!read().complete && read().findings.is_empty());
        assert_eq!(read().command, "fathom check ext4");
        let first = finding("aaa", "tree link size");
        assert!(matches!(directory.keep(&first, None), Kept::Written(_)));
        assert_eq!(read().findings.len(), 1);
        assert!(!read().findings[0].complete && Finding::read(&out.path().join("aaa")).is_ok());
        // Shrunk, it has another name; it is still one finding.
        let shrunk = Finding { complete: true, sightings: 5, ..finding("bbb", "tree link size") };
        directory.keep(&shrunk, Some("aaa"));
        let pages = read().findings;
        assert_eq!((pages.len(), pages[0].id.as_str(), pages[0].count), (1, "bbb", 5));
        assert!(!out.path().join("aaa").exists() && out.path().join("bbb").exists());
        directory.finish(|run| run.stop = "done".to_owned());
        assert!(read().complete && read().stop == "done");
    }

    #[test]
    fn known_findings_are_counted_and_those_that_are_gone_are_said() {
        let out = tempfile::tempdir().unwrap();
        let mut directory = start(out.path(), known("tree link size"));
        let again = finding("aaa", "tree link size");
        assert!(matches!(directory.keep(&again, None), Kept::Known));
        let run = directory.finish(|_| {});
        assert_eq!((run.findings.len(), run.known.len()), (0, 1));
        assert_eq!(run.no_longer_seen, Vec::<String>::new());
        assert!(!out.path().join("aaa").exists());

        let mut directory = start(out.path(), known("tree link size"));
        assert_eq!(directory.finish(|_| {}).no_longer_seen, ["tree link size (a quirk)"]);
        // Whoever was interrupted cannot say that.
        let mut directory = start(out.path(), known("tree link size"));
        assert!(directory.finish(|run| run.complete = false).no_longer_seen.is_empty());
    }

    /// What was first seen as something unknown may turn out to be known.
    #[test]
    fn a_record_of_what_turns_out_to_be_known_goes_away() {
        let out = tempfile::tempdir().unwrap();
        let mut directory = start(out.path(), known("tree link size"));
        directory.keep(&finding("aaa", "tree stat size"), None);
        let shrunk = finding("bbb", "tree link size");
        assert!(matches!(directory.keep(&shrunk, Some("aaa")), Kept::Known));
        assert!(directory.run().findings.is_empty() && !out.path().join("aaa").exists());
    }

    #[test]
    fn visited_states_lie_beside_the_run() {
        let out = tempfile::tempdir().unwrap();
        let mut directory = start(out.path(), Known::default());
        let states = VisitedStates::default();
        directory.keep_states("trees", &states);
        (0..5).for_each(|state| states.add(state));
        directory.finish(|_| {});
        let bytes = fs::read(out.path().join(STATES_FILE)).unwrap();
        let (space, sketch) = crate::Sketch::decode(&bytes).unwrap();
        assert_eq!((space.as_str(), sketch.estimate().states), ("trees", 5));
    }

    /// A directory in which nothing can be written stands for a disk that is full.
    #[test]
    fn what_cannot_be_recorded_is_said_and_the_run_goes_on() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("out");
        let mut directory = start(&out, Known::default());
        fs::remove_dir_all(&out).unwrap();
        fs::write(&out, "a file is in the way").unwrap();
        let kept = directory.keep(&finding("aaa", "tree link size"), None);
        assert!(matches!(kept, Kept::NotWritten(_)), "{kept:?}");
        assert_eq!(directory.finish(|_| {}).findings.len(), 1);
        assert!(directory.problem().is_some());
    }
}
