//! `fathom config`: the commented defaults.

use anyhow::Result;
use fathom_engine::Config;
use fathom_engine::generate::DEFAULT_TOML;

use super::Ending;
use crate::text::{print, print_json};

pub(crate) fn run(json: bool) -> Result<Ending> {
    if json {
        print_json(&Config::default())?;
    } else {
        print(DEFAULT_TOML)?;
    }
    Ok(Ending::Clean)
}
