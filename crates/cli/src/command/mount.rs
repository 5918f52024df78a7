//! `fathom mount`: serves the reference through FUSE until it is interrupted.

use anyhow::Result;
use fathom_model::{Config, Mutant};
use fathom_subjects::fuse::{self, Ended, Options};
use serde_json::json;

use super::Ending;
use crate::args::MountArgs;
use crate::subjects::parse_mutant;
use crate::text::{print, print_json};

pub(crate) fn run(args: &MountArgs, json: bool) -> Result<Ending> {
    let config = config(args)?;
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
    let ended = fuse::serve(&args.dir, config, Options::default(), args.state.as_deref(), ready)?;
    if ended == Ended::Unmounted && !json {
        print(&format!("{dir} was unmounted\n"))?;
    }
    Ok(Ending::Clean)
}

/// The defaults with what was typed over them.
fn config(args: &MountArgs) -> Result<Config> {
    let mut config = Config::default();
    if let Some(blocks) = args.capacity {
        config.blocks = blocks;
    }
    if let Some(inodes) = args.inodes {
        config.inodes = inodes;
    }
    if let Some(block_bytes) = args.block_bytes {
        config.block_bytes = block_bytes;
    }
    config.mutant = args.mutant.as_deref().map(parse_mutant).transpose()?;
    config.validate()?;
    Ok(config)
}
