//! The dependency arrows: which crate may use which.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;

/// Crate → what it may use. The same table, with reasons, is in `ARCHITECTURE.md`. `engine` and
/// `subjects` must never see each other: they meet in `fathom` (the binary) through `core`.
const ALLOWED: &[(&str, &[&str])] = &[
    ("fathom-core", &[]),
    ("fathom-model", &["fathom-core"]),
    ("fathom-block", &["fathom-core"]),
    ("fathom-subjects", &["fathom-core", "fathom-model", "fathom-block"]),
    ("fathom-generate", &["fathom-core", "fathom-model"]),
    (
        "fathom-engine",
        &["fathom-core", "fathom-model", "fathom-block", "fathom-generate", "fathom-record"],
    ),
    ("fathom-designs", &["fathom-core", "fathom-block", "fathom-engine", "fathom-record"]),
    ("fathom-record", &["fathom-core"]),
    ("fathom-guest", &["fathom-core", "fathom-record"]),
    ("fathom-trace", &["fathom-core", "fathom-record"]),
    ("fathom-fsck", &["fathom-core", "fathom-block", "fathom-record"]),
    ("fathom-report", &["fathom-core", "fathom-record"]),
    ("fathom-swarm", &["fathom-core", "fathom-record"]),
    (
        "fathom",
        &[
            "fathom-core",
            "fathom-model",
            "fathom-block",
            "fathom-subjects",
            "fathom-generate",
            "fathom-engine",
            "fathom-designs",
            "fathom-fsck",
            "fathom-guest",
            "fathom-trace",
            "fathom-record",
            "fathom-report",
            "fathom-swarm",
        ],
    ),
    ("xtask", &[]),
];

/// Problems in the workspace as `cargo metadata` sees it.
pub(super) fn check() -> Result<Vec<String>> {
    let json = shell::output(shell::cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&json).context("cannot read cargo metadata")?;
    Ok(problems(&uses(&metadata)))
}

/// Crate → crates of ours that it uses (dev-dependencies do not ship and do not count).
fn uses(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ours: Vec<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let used = |package: &Value| {
        let dependencies =
            package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let shipped = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
        shipped
            .map(|dependency| text(&dependency["name"]))
            .filter(|name| ours.contains(name))
            .collect()
    };
    packages.iter().map(|package| (text(&package["name"]), used(package))).collect()
}

fn problems(uses: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut out = Vec::new();
    for (name, used) in uses {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            out.push(format!(
                "crate {name} is not in the table of crates/xtask/src/tidy/arrows.rs"
            ));
            continue;
        };
        for other in used.iter().filter(|other| !allowed.contains(&other.as_str())) {
            out.push(format!("crate {name} must not use {other}: they meet in the cli"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_arrow_and_an_unknown_crate_are_found() {
        let metadata = serde_json::json!({"packages": [
            {"name": "fathom-engine", "dependencies": [
                {"name": "fathom-core", "kind": null},
                {"name": "fathom-subjects", "kind": null},
                {"name": "serde", "kind": null},
            ]},
            {"name": "fathom-core", "dependencies": [{"name": "fathom-subjects", "kind": "dev"}]},
            {"name": "fathom-subjects", "dependencies": []},
            {"name": "newcomer", "dependencies": []},
        ]});
        let problems = problems(&uses(&metadata));
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("fathom-engine must not use fathom-subjects"));
        assert!(problems[1].contains("newcomer"));
    }
}
