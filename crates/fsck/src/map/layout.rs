//! Layouts: the structures of a file system as text, one field per line.
//!
//! ```text
//! [inode]
//! i_mode  u16     mode
//! i_block u32*15  block
//! skip 4
//! ```

use std::collections::BTreeMap;

use super::kind::Kind;

/// In which order the bytes of a number lie on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The lowest byte first.
    Little,
    /// The highest byte first.
    Big,
}

/// A field of a structure, relative to its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) at: u64,
    /// Bytes: 1, 2, 4 or 8.
    pub(crate) width: u8,
    pub(crate) order: Order,
    pub(crate) kind: Kind,
}

/// The structures of one file system.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    structures: BTreeMap<String, Vec<Part>>,
}

impl Layouts {
    /// Reads a layout file.
    ///
    /// # Errors
    /// The number of the line and what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Layouts, String> {
        let mut layouts = Layouts::default();
        let mut name = String::new();
        let mut at = 0;
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let wrong = |what: String| format!("line {}: {what}", number + 1);
            match words[..] {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                [head] if head.starts_with('[') && head.ends_with(']') => {
                    name = head[1..head.len() - 1].to_owned();
                    at = 0;
                    layouts.structures.insert(name.clone(), Vec::new());
                }
                ["skip", bytes] => {
                    let bytes: u64 = bytes.parse().map_err(|error| wrong(format!("{error}")))?;
                    at += bytes;
                }
                [field, kind_of_number, kind] => {
                    let parts = parts(field, kind_of_number, kind, &mut at).map_err(wrong)?;
                    let structure = layouts.structures.get_mut(&name);
                    structure
                        .ok_or_else(|| wrong("a field before any [structure]".into()))?
                        .extend(parts);
                }
                _ => return Err(wrong(format!("neither [NAME], nor NAME TYPE KIND: {line:?}"))),
            }
        }
        Ok(layouts)
    }

    /// The fields of a structure; empty if the layout has none of that name.
    pub(crate) fn parts(&self, structure: &str) -> &[Part] {
        self.structures.get(structure).map_or(&[], Vec::as_slice)
    }

    /// The bytes from the beginning of a structure to the end of its last field.
    #[cfg(test)]
    pub(crate) fn size(&self, structure: &str) -> u64 {
        self.parts(structure).last().map_or(0, |part| part.at + u64::from(part.width))
    }
}

/// The fields of one line: one, or the items of an array.
fn parts(name: &str, number: &str, kind: &str, at: &mut u64) -> Result<Vec<Part>, String> {
    let (number, items) = match number.split_once('*') {
        Some((number, items)) => {
            (number, Some(items.parse::<u64>().map_err(|error| format!("{error}: {items:?}"))?))
        }
        None => (number, None),
    };
    let (order, width) = match number {
        "u8" => (Order::Little, 1),
        "u16" => (Order::Little, 2),
        "u32" => (Order::Little, 4),
        "u64" => (Order::Little, 8),
        "b16" => (Order::Big, 2),
        "b32" => (Order::Big, 4),
        "b64" => (Order::Big, 8),
        _ => return Err(format!("there is no type {number:?}")),
    };
    let kind: Kind = kind.parse()?;
    let mut out = Vec::new();
    for index in 0..items.unwrap_or(1) {
        let name = match items {
            Some(_) => format!("{name}[{index}]"),
            None => name.to_owned(),
        };
        out.push(Part { name, at: *at, width, order, kind });
        *at += u64::from(width);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_from_the_order_of_the_lines() {
        let text = "# words\n[a]\nx u8 count\nskip 3\ny b32*2 block\n[b]\nz u64 time\n";
        let layouts = Layouts::parse(text).unwrap();
        let names: Vec<_> = layouts
            .parts("a")
            .iter()
            .map(|part| (part.name.as_str(), part.at, part.width))
            .collect();
        assert_eq!(names, [("x", 0, 1), ("y[0]", 4, 4), ("y[1]", 8, 4)]);
        assert_eq!((layouts.size("a"), layouts.size("b"), layouts.size("c")), (12, 8, 0));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, part) in [
            ("x u8 count", "line 1: a field before"),
            ("[a]\nx u9 count", "line 2: there is no type \"u9\""),
            ("[a]\nx u8 thing", "line 2: there is no kind of field \"thing\""),
            ("[a]\nx u8", "line 2: neither"),
            ("[a]\nskip x", "line 2: invalid digit"),
        ] {
            let error = Layouts::parse(text).unwrap_err();
            assert!(error.starts_with(part), "{error}");
        }
    }
}
