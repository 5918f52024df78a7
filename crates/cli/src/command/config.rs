//! `fathom config`: the commented defaults.

use anyhow::Result;
use fathom_engine::crash::{self, CrashConfig};
use fathom_generate::Config;
use fathom_generate::DEFAULT_TOML;

use super::Ending;
use crate::args::ConfigOf;
use crate::text::{print, print_json};

pub(crate) fn run(of: ConfigOf, json: bool) -> Result<Ending> {
    match (of, json) {
        (ConfigOf::Check, false) => print(DEFAULT_TOML)?,
        (ConfigOf::Check, true) => print_json(&Config::default())?,
        (ConfigOf::Crash, false) => print(crash::config::DEFAULT_TOML)?,
        (ConfigOf::Crash, true) => print_json(&CrashConfig::default())?,
    }
    Ok(Ending::Clean)
}
