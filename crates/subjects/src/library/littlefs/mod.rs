//! littlefs, twice: the Rust port and the C original. Both have the same functions and structures, so
//! one driver serves both.

#[cfg(feature = "littlefs-c")]
mod original;
#[cfg(feature = "littlefs")]
mod port;

use fathom_block::{Geometry, Guarantee};
use fathom_core::HarnessFault;

#[cfg(feature = "littlefs-c")]
pub use original::open as original;
#[cfg(feature = "littlefs")]
pub use port::open as port;

/// 32 blocks of 256 bytes: enough for a few directories with files, and small enough that a mount
/// that reads everything takes microseconds.
const DEFAULT_GEOMETRY: Geometry = Geometry::flash(32 * 256, 16, 256);

/// littlefs needs at least two blocks (the superblock is a pair), and blocks of at least 128 bytes
/// (`lfs_init` in lfs.c: pointers of the CTZ skip-list must fit).
fn check(geometry: &Geometry) -> Result<(), HarnessFault> {
    let blocks = geometry.size_bytes / geometry.erase_bytes;
    let why = if geometry.erase_bytes < 128 {
        format!("blocks have {} bytes, littlefs needs at least 128", geometry.erase_bytes)
    } else if blocks < 2 {
        format!("there is {blocks} block, littlefs needs at least 2")
    } else if geometry.erased != fathom_block::Erased::Ones {
        "littlefs expects erased flash to read as ones".to_owned()
    } else {
        return Ok(());
    };
    Err(HarnessFault::new("making a littlefs", why))
}

fn guarantee() -> Guarantee {
    Guarantee::parse(include_str!("../../../profiles/littlefs.toml")).expect("tested below")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_valid() {
        guarantee();
    }
}
