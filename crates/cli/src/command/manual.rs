//! `fathom man` and `fathom completions`: made from the one definition of the command line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use serde_json::json;

use super::Ending;
use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::text::{print, print_json};

/// Prints the completions.
pub(crate) fn completions(args: &CompletionsArgs, json: bool) -> Result<Ending> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fathom", &mut script);
    let script = String::from_utf8(script)?;
    match json {
        true => print_json(&json!({"shell": args.shell.to_string(), "script": script}))?,
        false => print(&script)?,
    }
    Ok(Ending::Clean)
}

/// Writes the manual pages, one per command, or prints the first.
pub(crate) fn pages(args: &ManArgs, json: bool) -> Result<Ending> {
    let Some(dir) = &args.dir else {
        let text = String::from_utf8(page(Cli::command())?)?;
        match json {
            true => print_json(&json!({"page": text}))?,
            false => print(&text)?,
        }
        return Ok(Ending::Clean);
    };
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    // The options that all commands have belong to each page.
    let mut root = Cli::command();
    root.build();
    let mut files = Vec::new();
    write_all(&root, "fathom", dir, &mut files)?;
    match json {
        true => print_json(&json!({"files": files}))?,
        false => print(&format!("{} pages in {}\n", files.len(), dir.display()))?,
    }
    Ok(Ending::Clean)
}

fn write_all(
    command: &clap::Command,
    name: &str,
    dir: &Path,
    files: &mut Vec<String>,
) -> Result<()> {
    let file = format!("{name}.1");
    let path = dir.join(&file);
    // Kept for the lifetime of the program, which ends here: clap wants names that live that long.
    let title: &'static str = name.to_owned().leak();
    fs::write(&path, page(command.clone().name(title))?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    files.push(file);
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_all(sub, &format!("{name}-{}", sub.get_name()), dir, files)?;
    }
    Ok(())
}

fn page(command: clap::Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(text)
}
