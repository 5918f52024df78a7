//! `--options random`: combinations of options of mkfs and mount, drawn by the seed until one is not refused.
//!
//! What is refused is learned: it lies in the directory of the findings, so that all runs with the same one (a
//! campaign) try it once.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use fathom_subjects::SubjectError;
use fathom_subjects::catalogue::{Asked, CatalogueError};
use fathom_subjects::kernel::drawn::{self, Combination, Drawn, Learned, NothingWorks};

use crate::subjects::Spec;

/// The file with what was learned.
const FILE: &str = "refused-options.json";

/// The subject with options, and what is to be told of how they were found.
pub(crate) struct WithOptions {
    pub(crate) spec: Spec,
    pub(crate) drawn: Drawn,
}

impl WithOptions {
    /// In a line.
    pub(crate) fn note(&self) -> String {
        let Drawn { refused, known, reasons, .. } = &self.drawn;
        let mut note = format!(
            "random options: {}; {refused} combinations were refused, {known} were known to be",
            self.spec
        );
        for (combination, why) in reasons {
            let first = why.lines().next().unwrap_or_default();
            note.push_str(&format!("\n  refused: {}: {first}", text(combination)));
        }
        note
    }
}

/// As it can be typed.
fn text(combination: &Combination) -> String {
    let (mkfs, mount) = drawn::words(combination);
    let mut parts = Vec::new();
    if !mkfs.is_empty() {
        parts.push(format!("--mkfs-opts=\"{mkfs}\""));
    }
    if !mount.is_empty() {
        parts.push(format!("--mount-opts={mount}"));
    }
    parts.join(" ")
}

/// Draws options for a kernel file system; nothing is made of those of a plan that is only shown.
pub(crate) fn draw(spec: &Spec, seed: u64, out: &Path, dry_run: bool) -> Result<WithOptions> {
    let name = spec.to_string();
    let base = name.split(' ').next().unwrap_or(&name);
    let file = out.join(FILE);
    let read = fs::read_to_string(&file).ok();
    let mut learned: Learned =
        read.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let before = learned.len();
    let drawn = drawn::draw(base, seed, &mut learned, |combination| {
        if dry_run { Ok(None) } else { refusal(&with(spec, combination)?) }
    })?;
    if learned.len() > before {
        let text = serde_json::to_string_pretty(&learned)?;
        // Without it they are tried again: no reason to give up.
        let _ = fs::create_dir_all(out).and_then(|()| fs::write(&file, text));
    }
    let drawn = match drawn {
        Ok(drawn) => drawn,
        Err(NothingWorks { refused, known }) => bail!(
            "{base}: no combination of options works: {refused} that were tried are refused, {known} more were \
             known to be: try plain {base}"
        ),
    };
    Ok(WithOptions { spec: with(spec, &drawn.combination)?, drawn })
}

fn with(spec: &Spec, combination: &Combination) -> Result<Spec> {
    let (mkfs, mount) = drawn::words(combination);
    let part = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (mkfs, mount) = (part(&mkfs), part(&mount));
    spec.with(&Asked { mkfs: mkfs.as_deref(), mount: mount.as_deref(), ..Asked::default() })
}

/// Why the formatting program or the kernel refuses what was asked for, if they do.
fn refusal(spec: &Spec) -> Result<Option<String>> {
    let made = spec.reference(&spec.profile()?);
    let error = match made {
        Ok(_) => return Ok(None),
        Err(error) => error,
    };
    let refuses = matches!(
        &error,
        CatalogueError::Subject(SubjectError::Format { .. } | SubjectError::Mount { .. })
    );
    if refuses { Ok(Some(error.to_string())) } else { Err(error.into()) }
}
