//! Times and sizes as people write them.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// `30s`, `5m`, `1h`, `500ms`.
pub fn time(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: Option<u64> = text[..end].parse().ok();
    let unit = match &text[end..] {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    match number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit)) {
        Some(0) | None => Err(format!("{text:?} is no time: write for example 30s, 5m or 1h")),
        Some(milliseconds) => Ok(Duration::from_millis(milliseconds)),
    }
}

/// `512K`, `2M`, `4G`.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let unit = match &text[digits.len()..] {
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        "T" => Some(1_u64 << 40),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("{text:?} is no size: write for example 512M or 2G"))
}

/// A size in the largest unit that says it exactly.
pub(crate) fn size_text(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let exact = units.iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    exact.map_or_else(|| format!("{bytes}"), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// For `serde(with)`: a time as text.
pub(crate) mod time_text {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(&format!("{}ms", time.unwrap_or_default().as_millis()))
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        time(&String::deserialize(from)?).map(Some).map_err(de::Error::custom)
    }
}

/// For `serde(with)`: a size as text.
pub(crate) mod bytes_text {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&size_text(*bytes))
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<u64, D::Error> {
        size(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_asked_for() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(size("3G"), Ok(3 << 30));
        assert_eq!(size_text(3 << 30), "3G");
        for wrong in ["", "5", "0s", "s", "-1s", "99999999999999999999h"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "5", "G", "1.5G", "99999999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
