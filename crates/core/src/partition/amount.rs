//! Codes amounts in sixteen bits: the power of two, and whether the amount is next to one.
//!
//! Whoever counts many calls counts them by the classes of their arguments, not by their values. The
//! code keeps what every partition of an amount needs, so that [`representative`] gives a number of
//! exactly the same partitions. `encode_amount` in the BPF programs of the crate `trace` is the same
//! function in C.

/// The code of every amount below zero.
pub const NEGATIVE: u16 = 0x8000;

/// Mark of an amount that is exactly 2ᵏ.
const AT: u16 = 1 << 8;
/// Mark of an amount that is 2ᵏ + 1.
const AFTER: u16 = 2 << 8;
/// Mark of an amount that is 2ᵏ⁺¹ − 1.
const BEFORE: u16 = 3 << 8;

/// Codes an amount: 0 for 0, else k + 1 for [2ᵏ, 2ᵏ⁺¹) and how it lies there.
pub fn encode(value: u64) -> u16 {
    if value == 0 {
        return 0;
    }
    let power = value.ilog2() as u16;
    let offset = value - (1 << power);
    let near = match power {
        // Neighbours of 1 and 2 are powers themselves.
        0 => 0,
        _ if offset == (1 << power) - 1 => BEFORE,
        1 => 0,
        _ if offset == 0 => AT,
        _ if offset == 1 => AFTER,
        _ => 0,
    };
    near | (power + 1)
}

/// Codes an amount that can be negative.
pub fn encode_signed(value: i64) -> u16 {
    u64::try_from(value).map_or(NEGATIVE, encode)
}

/// A value with the partitions of all values of this code.
pub fn representative(code: u16) -> u64 {
    if code == NEGATIVE {
        return u64::MAX;
    }
    let Some(power) = (code & 0xff).checked_sub(1) else {
        return 0;
    };
    let base = 1u64 << (power & 63);
    match code & 0x300 {
        AT => base,
        AFTER => base + 1,
        BEFORE => base | (base - 1),
        _ if power < 2 => base,
        _ => base + 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{Granularity, table::Numeric};

    #[test]
    fn the_representative_has_the_partitions_of_the_value() {
        let edges = (0..64).flat_map(|power| {
            let base = 1u64 << power;
            (-3i64..=3).map(move |delta| base.wrapping_add_signed(delta))
        });
        let values: Vec<u64> = (0..5000).chain(edges).chain([u64::MAX, u64::MAX - 1]).collect();
        for (width, signed, max) in [
            (64, false, None),
            (64, true, None),
            (32, false, None),
            (64, false, Some(1024)),
            (64, false, Some(65536)),
            (64, false, Some(4095)),
            (64, false, Some(255)),
        ] {
            let numeric = Numeric { width, signed, max };
            for value in values.iter().copied().filter(|v| width == 64 || *v >> width == 0) {
                let code = if signed { encode_signed(value as i64) } else { encode(value) };
                let back = representative(code);
                let how = Granularity::Boundaries;
                let (is, was) = (numeric.partitions(back, how), numeric.partitions(value, how));
                assert_eq!(is, was, "{value} as {code:#x} and {back}, {numeric:?}");
            }
        }
    }
}
