//! Just enough of Rust's lexical grammar to tell code from comments and literals.

/// The text with comments and the contents of string and character literals replaced by spaces.
/// Lines stay where they are.
pub(super) fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !continues_word(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => char_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).expect("only whole literals were blanked, with ASCII")
}

/// Whether the byte before `at` belongs to the same word (so that `r` is not a prefix).
fn continues_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
        // `br"…"` is a raw string all the same.
        && !(bytes[at - 1] == b'b' && (at < 2 || !bytes[at - 2].is_ascii_alphanumeric()))
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
}

/// Block comments nest.
fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() {
        match bytes[end] {
            b'\\' => end += 2,
            b'"' => return end + 1,
            _ => end += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&b| b == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = at + 2 + hashes;
    let length = bytes[body..].windows(close.len()).position(|window| window == close)?;
    Some(body + length + close.len())
}

/// A character literal; `None` for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes[at + 3..].iter().position(|&b| b == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let rest = std::str::from_utf8(bytes.get(at + 1..)?).ok()?;
    let width = rest.chars().next()?.len_utf8();
    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + width + 2)
}

#[cfg(test)]
mod tests {
    use super::blank;

    #[test]
    fn comments_and_literals_go_code_stays() {
        let text = "a(\"x // y\"); // b\nlet c = '{'; /* { /* } */ */ r#\"z\"# 'life";
        let code = blank(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.lines().count(), 2);
        for gone in ["x", "y", "b", "{", "}", "z"] {
            assert!(!code.contains(gone), "{gone} in {code}");
        }
        for kept in ["a(", "let c", "'life"] {
            assert!(code.contains(kept), "{kept} not in {code}");
        }
    }

    #[test]
    fn escapes_do_not_end_literals() {
        assert_eq!(blank(r#"f("\"x", '\'', '\u{7d}')"#).trim_end().replace(' ', ""), "f(,,)");
    }
}
