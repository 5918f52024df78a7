//! Counts, properties and the exchange format, through the public interface.

mod common;
mod counts;
mod dm_log_writes;
mod properties;
