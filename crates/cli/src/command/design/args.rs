//! What was typed.

use std::time::Duration;

use clap::{Args, ValueEnum};
use fathom_designs::mapping;

use crate::args::{duration, jobs};
use crate::progress::KnownArgs;

#[derive(Debug, Args)]
pub(crate) struct DesignArgs {
    /// link, index, journal, log, philosophers or two-phase
    #[arg(required_unless_present = "paper_tables")]
    pub(crate) design: Option<String>,
    /// Precautions to leave out, and variants: see `fathom list designs`
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) switch: Vec<String>,
    /// link, index: threads that use the design at the same time [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// link, index: the device has a volatile cache, operations end with a FLUSH
    #[arg(long)]
    pub(crate) cache: bool,
    /// link, index: the order of writes [default: naive]
    #[arg(long, value_enum)]
    pub(crate) order: Option<Order>,
    /// Files (journal, log: and directories) at most
    #[arg(long, value_name = "N")]
    pub(crate) files: Option<usize>,
    /// link, index: data blocks
    #[arg(long, value_name = "N")]
    pub(crate) blocks: Option<usize>,
    /// Philosophers, or resource managers
    #[arg(long, value_name = "N")]
    pub(crate) size: Option<u32>,
    /// Steps; journal, log: operations of a workload [default: 6]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// journal, log: how many of the last operations belong to the identity of a state
    #[arg(long, value_name = "K", default_value = "3")]
    pub(crate) remember: u32,
    /// Power failures in one run; 0: none
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) crashes: u8,
    /// States that differ only in names are different
    #[arg(long)]
    pub(crate) no_symmetry: bool,
    /// Stop at the first violation
    #[arg(long)]
    pub(crate) first: bool,
    /// Deepest states first
    #[arg(long)]
    pub(crate) dfs: bool,
    /// Remember visited states in so much memory, and miss some
    #[arg(long, value_name = "MIB")]
    pub(crate) bitstate_mib: Option<usize>,
    /// Bits that each state sets in that memory
    #[arg(long, value_name = "N", default_value = "3", requires = "bitstate_mib",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) bitstate_hashes: u32,
    /// Seed of the hash functions: other seeds miss other states
    #[arg(long, value_name = "S", default_value = "1", requires = "bitstate_mib")]
    pub(crate) bitstate_seed: u64,
    /// In which order the steps of a state are tried: forward, reverse, or a number that draws one
    #[arg(long, value_name = "ORDER", default_value = "forward")]
    pub(crate) action_order: fathom_engine::search::ActionOrder,
    /// Stop before visiting more states
    #[arg(long, value_name = "N")]
    pub(crate) states: Option<u64>,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) budget: Option<Duration>,
    /// Stop when so much memory is used
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_mib: Option<u64>,
    /// Threads of the search [default: one per core]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, value_parser = jobs)]
    pub(crate) jobs: usize,
    #[command(flatten)]
    pub(crate) known: KnownArgs,
    /// Make the result tables of the study that the mapping and log designs come from
    #[arg(long)]
    pub(crate) paper_tables: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Order {
    /// Blocks by their place
    Naive,
    /// What is pointed to before what points to it
    Safe,
}

impl From<Order> for mapping::Order {
    fn from(order: Order) -> mapping::Order {
        match order {
            Order::Naive => mapping::Order::Naive,
            Order::Safe => mapping::Order::Safe,
        }
    }
}
