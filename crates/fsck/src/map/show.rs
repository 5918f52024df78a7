//! A map for people, and numbers as people type them.

use super::{Field, Kind, Map};

/// The fields of an image as text: one line each, a heading per structure.
pub fn show(map: &Map, disk: &[u8], wanted: impl Fn(&Field) -> bool) -> String {
    let mut text = String::new();
    let mut structure = "";
    for field in map.fields.iter().filter(|field| wanted(field)) {
        if &*field.structure != structure {
            structure = &field.structure;
            text.push_str(&format!("{structure}  at byte {}\n", field.at));
        }
        text.push_str(&line(field, disk));
    }
    text
}

fn line(field: &Field, disk: &[u8]) -> String {
    let value = field.read(disk);
    let hexadecimal = format!("{value:#0width$x}", width = 2 + 2 * usize::from(field.width));
    let plain = match field.kind {
        Kind::Mode => format!("{value:o} (octal)"),
        Kind::Name => format!("{:?}", value as u8 as char),
        Kind::Magic | Kind::Checksum | Kind::Hash | Kind::Flags | Kind::Bitmap => String::new(),
        _ => value.to_string(),
    };
    let text = format!(
        "{:>10}  {:<26} {:<9} {hexadecimal:<18}  {plain}",
        field.at, field.name, field.kind
    );
    format!("{}\n", text.trim_end())
}

/// Reads a number as people type it: 12, 0x1f, 0b101, 0o755, -1 (of the width of the field).
pub fn parse_number(text: &str, width: u8) -> Option<u64> {
    let max = u64::MAX >> (64 - 8 * u32::from(width));
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let clean = digits.replace('_', "");
    let value = match clean.get(..2) {
        Some("0x") => u64::from_str_radix(&clean[2..], 16),
        Some("0b") => u64::from_str_radix(&clean[2..], 2),
        Some("0o") => u64::from_str_radix(&clean[2..], 8),
        _ => clean.parse(),
    };
    let value = value.ok()?;
    match negative {
        true => (value <= max / 2 + 1).then(|| value.wrapping_neg() & max),
        false => (value <= max).then_some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_number;

    #[test]
    fn numbers_are_read_as_typed() {
        for (text, width, value) in [
            ("12", 1, Some(12)),
            ("0xff", 1, Some(255)),
            ("0x1ff", 1, None),
            ("-1", 2, Some(0xffff)),
            ("-129", 1, None),
            ("0b101", 1, Some(5)),
            ("0o755", 2, Some(0o755)),
            ("1_000", 2, Some(1000)),
            ("x", 4, None),
            ("18446744073709551615", 8, Some(u64::MAX)),
        ] {
            assert_eq!(parse_number(text, width), value, "{text}");
        }
    }
}
