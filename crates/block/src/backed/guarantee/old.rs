//! The format before promises per object: when names are durable, when data is, and in which order.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Claim, Data, DurableBy, Guarantee, GuaranteeError, Makes, Order};
use crate::crash::Level;

/// The moment from which a change survives a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durable {
    /// When the operation that made it has returned.
    Operation,
    /// When `fsync` or `close` of the file has returned; all of it at once.
    Close,
    /// When `fsync` of the file or `sync` has returned.
    Sync,
}

impl fmt::Display for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durable::Operation => "operation",
            Durable::Close => "close",
            Durable::Sync => "sync",
        })
    }
}

/// The orders that the old format knows, under their present names.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OldOrder {
    Prefix,
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldGuarantee {
    names: Claim<Durable>,
    data: Claim<Durable>,
    order: Claim<OldOrder>,
    survives: Claim<Vec<Level>>,
    recovers: Claim<bool>,
    capacity_slack_bytes: Claim<u64>,
}

/// Reads a profile of the old format.
pub(super) fn parse(text: &str) -> Result<Guarantee, GuaranteeError> {
    let old: OldGuarantee = toml::from_str(text)?;
    let (names, data, order) = (old.names, old.data, old.order);
    let refuse = |why| Err(GuaranteeError::Senseless { names: names.is, data: data.is, why });
    let says = |is, claim: &Claim<Durable>| Some(Claim { is, cite: claim.cite.clone() });
    let sync = says(Makes::Everything, &names);
    let (contents, durable) = match (names.is, data.is, order.is) {
        (Durable::Operation, Durable::Operation, OldOrder::Prefix) => {
            let operation = says(Makes::Everything, &names);
            (Data::Cow, DurableBy { operation, ..DurableBy::default() })
        }
        (Durable::Operation, Durable::Close, OldOrder::Prefix) => {
            let (operation, file) = (says(Makes::Everything, &names), says(Makes::File, &data));
            let (close, fsync) = (file.clone(), file);
            (Data::Held, DurableBy { operation, close, fsync, ..DurableBy::default() })
        }
        (Durable::Sync, Durable::Sync, OldOrder::Prefix) => {
            let fsync = says(Makes::Everything, &data);
            let fdatasync = fsync.clone();
            (Data::Journal, DurableBy { fsync, fdatasync, sync, ..DurableBy::default() })
        }
        (Durable::Sync, Durable::Sync, OldOrder::None) => {
            (Data::Writeback, DurableBy { sync, ..DurableBy::default() })
        }
        (Durable::Operation, Durable::Operation | Durable::Close, OldOrder::None) => {
            return refuse(
                "without an order only a sync makes anything certain; say names and data = \"sync\"",
            );
        }
        (Durable::Close, _, _) => {
            return refuse(
                "no close ends a change of names; say names = \"operation\" or \"sync\"",
            );
        }
        (Durable::Operation, Durable::Sync, _) => {
            return refuse(
                "a file that is closed before the sync would be a name whose data nobody waits for; \
                 say data = \"close\", or names = \"sync\"",
            );
        }
        (Durable::Sync, Durable::Operation | Durable::Close, _) => {
            return refuse(
                "data cannot be found without its name; say data = \"sync\", or names = \"operation\"",
            );
        }
    };
    let is = match order.is {
        OldOrder::Prefix => Order::Prefix,
        OldOrder::None => Order::None,
    };
    Ok(Guarantee {
        order: Claim { is, cite: order.cite },
        data: Claim { is: contents, cite: data.cite },
        survives: old.survives,
        recovers: old.recovers,
        capacity_slack_bytes: old.capacity_slack_bytes,
        blocks: None,
        mtime: None,
        reference: None,
        durable,
    })
}
