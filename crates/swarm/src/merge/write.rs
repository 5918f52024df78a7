//! The united result as a directory like that of any run.

use std::fs;
use std::io;
use std::path::Path;

use fathom_record::run::{Count, Kind, Run};

use super::input::{is_plain_name, read_small};
use super::{COVERAGE_FILE, Merged, MergedFinding};
use crate::SwarmError;

/// The file that says that a directory is a united result, and no run.
pub(super) const MARK: &str = "united.json";

/// Evidence that is copied with a finding, in bytes.
const EVIDENCE_BYTES_MAX: u64 = 64 << 20;

/// Files that are copied with a finding.
const EVIDENCE_FILES_MAX: usize = 200;

impl Merged {
    /// The result as a run, for the reports.
    pub fn run(&self, command: &str, subject: &str) -> Run {
        let mut run = Run::start(Kind::Swarm, command, subject);
        let subjects: Vec<&str> = self.subjects.iter().map(String::as_str).collect();
        run.version = subjects.join(", ");
        run.complete = self.runs == self.complete;
        run.seconds = self.run_milliseconds as f64 / 1000.0;
        run.stop = format!("{} of {} runs came to their end", self.complete, self.runs);
        run.counts = self.run_counts();
        run.samples = self.series.samples();
        run.findings = self.findings.iter().map(MergedFinding::to_page).collect();
        run.notes = self.refused.iter().map(|refused| refused.to_string()).collect();
        if self.refused_total > 0 {
            run.goals_missed.push(format!("{} entries were refused", self.refused_total));
        }
        run
    }

    fn run_counts(&self) -> Vec<Count> {
        let count =
            |name: &str, value, about: String| Count { name: name.to_owned(), value, about };
        let states = self.states_total();
        let about = match states.error {
            0.0 => "different ones, counted".to_owned(),
            error => format!("different ones, estimated; standard error {:.1} %", error * 100.0),
        };
        let mut counts = vec![
            count("operations", self.count("operations"), "of all runs".to_owned()),
            count("states", states.states, about),
            count("runs", self.runs, format!("{} came to their end", self.complete)),
        ];
        if let Some(coverage) = &self.coverage {
            let about = format!("partitions of {} that can be", coverage.partitions_total);
            counts.push(count("inputs_and_outputs", coverage.partitions_hit as u64, about));
        }
        let told =
            ["operations", "states", "inputs_and_outputs", "bytes_per_state", "depth", "waiting"];
        for (name, value) in self.counts.iter().filter(|(name, _)| !told.contains(&name.as_str())) {
            counts.push(count(name, *value, "of all runs".to_owned()));
        }
        counts
    }

    /// Writes the result: `run.json`, the coverage, and the best record of each finding. `out` may hold
    /// an earlier result.
    ///
    /// # Errors
    /// If something cannot be written: it is named.
    pub fn write(&self, run: &Run, out: &Path) -> Result<(), SwarmError> {
        let failed = |path: &Path, error| SwarmError::io(path, "write it", error);
        fs::create_dir_all(out).map_err(|error| failed(out, error))?;
        let mark = out.join(MARK);
        if out.join(fathom_record::run::FILE).exists() && !mark.exists() {
            let out = out.display();
            return Err(SwarmError::Other(format!("{out} holds a run: give another --out")));
        }
        if mark.exists() {
            self.remove_others(out);
        }
        let states: serde_json::Map<String, serde_json::Value> = self
            .states
            .iter()
            .map(|(space, sketch)| {
                let estimate = sketch.estimate();
                let value = serde_json::json!({"states": estimate.states, "error": estimate.error});
                (space.clone(), value)
            })
            .collect();
        let refused: Vec<String> = self.refused.iter().map(ToString::to_string).collect();
        let text = serde_json::json!({
            "runs": self.runs, "complete": self.complete, "states": states,
            "programs": self.programs, "subjects": self.subjects,
            "refused": refused, "refused_total": self.refused_total,
        });
        replace(&mark, format!("{text}\n").as_bytes()).map_err(|error| failed(&mark, error))?;
        if let Some(coverage) = &self.coverage {
            let path = out.join(COVERAGE_FILE);
            let text = serde_json::to_string(coverage).unwrap_or_default();
            replace(&path, text.as_bytes()).map_err(|error| failed(&path, error))?;
        }
        for finding in &self.findings {
            let to = out.join(&finding.page.id);
            copy_record(&finding.directory, &to).map_err(|error| failed(&to, error))?;
        }
        run.write(out).map_err(|error| SwarmError::Other(error.to_string()))
    }
}

impl Merged {
    /// Removes records of an earlier result that go by another name now.
    fn remove_others(&self, out: &Path) {
        for entry in fs::read_dir(out).into_iter().flatten().flatten() {
            let is_current =
                |finding: &MergedFinding| entry.file_name() == finding.page.id.as_str();
            let is_record = entry.path().join("finding.toml").exists();
            if is_record && !self.findings.iter().any(is_current) {
                // It is recorded where it was found.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl MergedFinding {
    fn to_page(&self) -> fathom_record::run::FindingPage {
        let mut page = self.page.clone();
        page.directory = self.directory.display().to_string();
        page.levels.push(self.subject.clone());
        page.levels.push(match self.runs {
            1 => "1 run".to_owned(),
            runs => format!("{runs} runs"),
        });
        page
    }
}

impl std::fmt::Display for super::Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

/// Copies the files of a record and of the directories directly in it: as much as a finding can have.
/// Links and what is named strangely stay behind.
fn copy_record(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        return Ok(());
    }
    let new = to.with_file_name(format!(".{}", to.file_name().unwrap_or_default().display()));
    let _ = fs::remove_dir_all(&new);
    let (mut bytes, mut files) = (EVIDENCE_BYTES_MAX, EVIDENCE_FILES_MAX);
    let copied = copy_files(from, &new, &mut bytes, &mut files, true);
    if !from.exists() {
        // A run that goes on has replaced it by a shorter one, which the next result names.
        return fs::remove_dir_all(&new);
    }
    copied?;
    fs::rename(&new, to)
}

fn copy_files(
    from: &Path,
    to: &Path,
    bytes: &mut u64,
    files: &mut usize,
    deeper: bool,
) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_plain_name(&name.replace('.', "_"))) else {
            continue;
        };
        let kind = entry.file_type()?;
        if kind.is_dir() && deeper {
            copy_files(&entry.path(), &to.join(name), bytes, files, false)?;
        } else if kind.is_file() && *files > 0 {
            // What does not fit or cannot be read stays where it is.
            let Ok(Some(contents)) = read_small(&entry.path(), *bytes) else { continue };
            fs::write(to.join(name), &contents)?;
            *bytes -= contents.len() as u64;
            *files -= 1;
        }
    }
    Ok(())
}

/// Writes a file; whoever reads meanwhile sees the old one or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_file_name(format!(".{}", path.file_name().unwrap_or_default().display()));
    fs::write(&new, bytes).and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        // What was cut off is of no use to anybody, and takes room where there is none.
        let _ = fs::remove_file(&new);
    })
}
