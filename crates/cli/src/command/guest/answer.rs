//! The hidden command that answers a batch of questions about disks inside of a guest: see
//! [`crate::worker_guest`], which asks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use fathom_block::disks::read_questions;

use crate::command::Ending;
use crate::subjects::Spec;

/// The file with the questions, in the directory of a batch.
pub(crate) const QUESTIONS: &str = "questions";

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// The file system, with its options
    subject: String,
    /// The directory of the batch
    directory: PathBuf,
}

/// The file of one answer.
pub(crate) fn answer_file(directory: &Path, nth: usize) -> PathBuf {
    directory.join(format!("answer-{nth}"))
}

pub(crate) fn run(args: &AnswerArgs) -> Result<Ending> {
    if std::env::var_os("FATHOM_IN_GUEST").is_none() {
        bail!("this command answers for a campaign outside of its guest: it is of no use here");
    }
    let file = args.directory.join(QUESTIONS);
    let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
    let questions = read_questions(&bytes)?;
    let subject = args.subject.parse::<Spec>()?.disks(None, 1)?;
    for (nth, question) in questions.iter().enumerate() {
        let bytes = question.ask(&*subject).to_bytes(question)?;
        let place = answer_file(&args.directory, nth);
        // Whole or not at all: the kernel may die of the next question.
        let half = place.with_extension("half");
        fs::write(&half, bytes)
            .and_then(|()| fs::rename(&half, &place))
            .with_context(|| place.display().to_string())?;
    }
    Ok(Ending::Clean)
}
