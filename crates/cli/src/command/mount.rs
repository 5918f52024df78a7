//! `fathom mount`: serves the reference through FUSE until it is interrupted.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Error, Result, bail};
use fathom_model::{Config, Feature, Mutant};
use fathom_subjects::fuse::{self, Ended, Options};
use fathom_subjects::supervise::remains;
use serde_json::json;

use super::Ending;
use crate::args::MountArgs;
use crate::subjects::parse_mutant;
use crate::text::{print, print_json, say};

pub(crate) fn run(args: &MountArgs, json: bool) -> Result<Ending> {
    let MountPlan { config, options, state } = plan(args)?;
    if options.remount {
        fuse::remount(&args.dir, &options)?;
        return Ok(Ending::Clean);
    }
    if args.background {
        return in_background(args, json);
    }
    let mutant = config.mutant.map(Mutant::name);
    let dir = args.dir.display();
    let ready = || {
        let told = if json {
            print_json(&json!({"mounted": args.dir, "mutant": mutant}))
        } else {
            let with = mutant.map_or(String::new(), |name| format!(" with the bug {name}"));
            print(&format!("serving the reference{with} on {dir}; interrupt to unmount\n"))
                .map_err(Into::into)
        };
        // Who mounts in the background may have closed the output.
        drop(told);
    };
    let ended = fuse::serve(&args.dir, config, options, state.as_deref(), ready)?;
    match ended {
        Ended::Unmounted if !json => print(&format!("{dir} was unmounted\n"))?,
        Ended::InUse => say!(
            "fathom: {dir} is free, but something still uses the file system: an open file, or a copy \
             of the mount in another namespace; its calls fail from now on"
        ),
        _ => {}
    }
    Ok(Ending::Clean)
}

/// Runs the same command in a process of its own, and returns when that has mounted, or failed.
fn in_background(args: &MountArgs, json: bool) -> Result<Ending> {
    let mut words: Vec<OsString> = vec!["mount".into(), "--json".into()];
    for option in &args.options {
        words.extend(["-o".into(), option.into()]);
    }
    let numbers = [
        ("--capacity", args.capacity),
        ("--inodes", args.inodes),
        ("--block-bytes", args.block_bytes.map(u64::from)),
    ];
    for (name, value) in numbers {
        words.extend(value.into_iter().flat_map(|value| [name.into(), value.to_string().into()]));
    }
    if let Some(mutant) = &args.mutant {
        words.extend(["--mutant".into(), mutant.into()]);
    }
    for feature in &args.lacks {
        words.extend(["--lacks".into(), feature.name().into()]);
    }
    if let Some(state) = &args.state {
        words.extend(["--state".into(), state.into()]);
    }
    words.extend(["--".into(), args.dir.clone().into()]);
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut server = Command::new(program)
        .args(words)
        .process_group(0) // an interrupt at the terminal is not for it
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the server")?;
    let mut line = String::new();
    if let Some(output) = server.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.contains("\"mounted\"") {
        if json {
            print(&line)?;
        }
        return Ok(Ending::Clean);
    }
    let mut message = String::new();
    if let Some(mut errors) = server.stderr.take() {
        errors.read_to_string(&mut message)?;
    }
    server.wait()?;
    bail!("{}", message.trim().trim_start_matches("fathom: "))
}

/// What the options mean.
struct MountPlan {
    config: Config,
    options: Options,
    state: Option<PathBuf>,
}

/// Options that may also be written as `-o NAME=VALUE`, as in fstab(5).
const OWN: [&str; 5] = ["capacity", "inodes", "block_bytes", "mutant", "state"];

/// The defaults with what was typed over them.
fn plan(args: &MountArgs) -> Result<MountPlan> {
    let mut options = Options::default();
    let mut own: Vec<(&str, &str)> = Vec::new();
    for word in args.options.iter().filter(|word| !word.is_empty()) {
        match word.split_once('=').filter(|(name, _)| OWN.contains(name)) {
            Some(pair) => own.push(pair),
            None => options.set(word).map_err(Error::msg)?,
        }
    }
    let typed = |name: &str| own.iter().rev().find(|(known, _)| *known == name).map(|(_, v)| *v);
    let number = |name: &str| {
        let parse =
            |text: &str| text.parse().with_context(|| format!("-o {name}={text}: no number"));
        typed(name).map(parse).transpose()
    };
    let block_bytes = match args.block_bytes {
        None => number("block_bytes")?.map(|bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX)),
        typed => typed,
    };
    let mut config = Config::default();
    config.block_bytes = block_bytes.unwrap_or(config.block_bytes);
    config.blocks =
        match args.capacity.map_or_else(|| number("capacity"), |blocks| Ok(Some(blocks)))? {
            Some(blocks) => blocks,
            None => config.blocks.min(blocks_that_fit(config.block_bytes)),
        };
    if let Some(inodes) = args.inodes.map_or_else(|| number("inodes"), |inodes| Ok(Some(inodes)))? {
        config.inodes = inodes;
    }
    config.mutant = args.mutant.as_deref().or(typed("mutant")).map(parse_mutant).transpose()?;
    config.quirks.lacks = args.lacks.clone();
    config.quirks.dir_nlink_one = args.lacks.contains(&Feature::DirNlink);
    config.validate()?;
    let state = args.state.clone().or_else(|| typed("state").map(PathBuf::from));
    Ok(MountPlan { config, options, state })
}

/// The blocks that half of the available memory holds: everything is kept there.
fn blocks_that_fit(block_bytes: u32) -> u64 {
    let available = remains::available_bytes().unwrap_or(u64::MAX);
    (available / 2 / u64::from(block_bytes.max(1))).max(1)
}

/// The arguments of `fathom mount` for a call as mount(8) makes it of a helper for a type of file
/// systems: `mount.fuse.reffs SOURCE DIR [-sfnv] [-o OPTIONS] [-t TYPE] [-N NAMESPACE]`; `None` for any
/// other name of the program.
pub(crate) fn as_mount_helper(args: &[OsString]) -> Option<Vec<OsString>> {
    let program = PathBuf::from(args.first()?);
    let name = program.file_name()?.to_str()?;
    if !["mount.fuse.reffs", "mount.reffs", "reffs"].contains(&name) {
        return None;
    }
    let mut words: Vec<OsString> = ["fathom", "mount", "--background"].map(Into::into).to_vec();
    let mut places: Vec<&OsString> = Vec::new();
    let mut rest = args[1..].iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-o") => words.extend([word.clone(), rest.next()?.clone()]),
            Some("-t" | "-N") => drop(rest.next()),
            Some(flags) if flags.starts_with('-') && flags.len() > 1 => {}
            _ => places.push(word),
        }
    }
    let [source, dir] = places[..] else { return Some(vec!["fathom".into(), "mount".into()]) };
    let mut fsname = OsString::from("fsname=");
    fsname.push(source);
    // A comma in it would end the option; who has one there sees the usual name.
    if !fsname.to_string_lossy().contains(',') {
        words.splice(3..3, ["-o".into(), fsname]);
    }
    words.extend(["--".into(), dir.clone()]);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_8_is_understood() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(as_mount_helper(&words("/usr/bin/fathom mount d")), None);
        assert_eq!(
            as_mount_helper(&words(
                "/sbin/mount.fuse.reffs none /mnt -v -o rw,state=/s -t fuse.reffs"
            )),
            Some(words("fathom mount --background -o fsname=none -o rw,state=/s -- /mnt"))
        );
        assert_eq!(as_mount_helper(&words("mount.fuse.reffs")), Some(words("fathom mount")));
    }
}
