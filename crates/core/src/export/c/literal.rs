//! Values as C writes them.

use crate::flags::OpenFlags;

/// A string literal: octal escapes, since a hexadecimal one swallows the digits after it.
pub(super) fn string(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            // `?` alone would be fine; two of them start a trigraph.
            b'"' | b'\\' | b'?' => text.extend(['\\', byte as char]),
            b' '..=b'~' => text.push(byte as char),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text + "\""
}

/// A signed number; the smallest one has no literal of its own.
pub(super) fn signed(value: i64) -> String {
    match value {
        i64::MIN => "INT64_MIN".to_owned(),
        value if i32::try_from(value).is_ok() => value.to_string(),
        value => format!("INT64_C({value})"),
    }
}

/// An unsigned number.
pub(super) fn unsigned(value: u64) -> String {
    if i32::try_from(value).is_ok() { value.to_string() } else { format!("UINT64_C({value})") }
}

/// A mode, octal.
pub(super) fn octal(mode: u32) -> String {
    format!("0{mode:03o}")
}

/// Flags by the names that the C headers have for them; bits without a name in hexadecimal.
pub(super) fn flags(flags: impl std::fmt::Display) -> String {
    flags.to_string().split(" | ").map(c_name).collect::<Vec<_>>().join(" | ")
}

/// `open(2)` flags.
pub(super) fn open_flags(flags: OpenFlags) -> String {
    flags.names().iter().map(|name| c_name(name)).collect::<Vec<_>>().join(" | ")
}

/// The C expression of a flag; the headers have no name for a half of `O_SYNC` or `O_TMPFILE`.
fn c_name(name: &str) -> String {
    match name {
        "O_SYNC_BIT" => "(O_SYNC & ~O_DSYNC)".to_owned(),
        "O_TMPFILE_BIT" => "(O_TMPFILE & ~O_DIRECTORY)".to_owned(),
        hexadecimal if hexadecimal.starts_with("0x") => format!("(int){hexadecimal}"),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::RenameFlags;

    #[test]
    fn strings_survive_every_byte() {
        assert_eq!(string(b"a\"b\\c?\n1\xff"), r#""a\"b\\c\?\0121\377""#);
    }

    #[test]
    fn flags_have_the_names_of_the_headers() {
        let sync = OpenFlags::O_SYNC | OpenFlags::O_CREAT;
        assert_eq!(open_flags(sync), "O_RDONLY | O_SYNC | O_CREAT");
        let bit = OpenFlags::O_SYNC_BIT | OpenFlags::O_RDWR | OpenFlags::from_bits_retain(1 << 31);
        assert_eq!(open_flags(bit), "O_RDWR | (O_SYNC & ~O_DSYNC) | (int)0x80000000");
        assert_eq!(open_flags(OpenFlags::empty()), "O_RDONLY");
        assert_eq!(flags(RenameFlags::empty()), "0");
    }

    #[test]
    fn numbers_have_a_type_that_holds_them() {
        assert_eq!(signed(i64::MIN), "INT64_MIN");
        assert_eq!(signed(-5), "-5");
        assert_eq!(unsigned(u64::MAX), "UINT64_C(18446744073709551615)");
    }
}
