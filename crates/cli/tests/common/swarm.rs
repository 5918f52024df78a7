//! What a swarm leaves, as tests look at it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Writes a plan and returns its path.
pub(crate) fn plan(dir: &Path, text: &str) -> String {
    let path = dir.join("plan.toml");
    fs::write(&path, text).expect("a plan");
    path.display().to_string()
}

/// The files of this name in all attempts, in the order of tasks and attempts.
pub(crate) fn files(dir: &Path, name: &str) -> Vec<PathBuf> {
    let tasks = fs::read_dir(dir.join("tasks")).into_iter().flatten().flatten();
    let attempts = tasks.flat_map(|task| fs::read_dir(task.path()).into_iter().flatten().flatten());
    let files = attempts.map(|attempt| attempt.path().join(name));
    let mut files: Vec<PathBuf> = files.filter(|path| path.exists()).collect();
    files.sort();
    files
}

/// A file of JSON.
pub(crate) fn value(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// Why the attempts ended.
pub(crate) fn reasons(dir: &Path) -> Vec<String> {
    let ends = files(dir, "ended.json");
    ends.iter().map(|path| value(path)["reason"].as_str().expect("a reason").to_owned()).collect()
}
