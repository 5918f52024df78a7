//! Where Linux file systems legitimately differ, as data.

use serde::{Deserialize, Serialize};

/// Named differences. The default is what most Linux file systems do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Quirks {}
