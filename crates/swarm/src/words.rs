//! Command lines as words, and words as command lines that a shell takes.

/// Splits a command line as a shell does: blanks separate, quotes and backslashes keep together. Nothing
/// is expanded.
///
/// # Errors
/// If a quote is not closed.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        None => return Err(format!("a quote is not closed in {line:?}")),
                        Some(end) if end == character => break,
                        Some('\\') if character == '"' => word.extend(characters.next()),
                        Some(inside) => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            blank if blank.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// The words as one line that a shell splits into the same words.
pub fn quoted<S: AsRef<str>>(words: &[S]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+%@".contains(c);
    let quote = |word: &str| match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotes_keep_together() {
        let words = split(r#"check 'fuse:a b' --mkfs-opts "-O ^x \"y\"" a\ b ''"#).unwrap();
        assert_eq!(words, ["check", "fuse:a b", "--mkfs-opts", "-O ^x \"y\"", "a b", ""]);
        assert!(split("check 'ext4").is_err());
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_split_again(words in prop::collection::vec("\\PC{0,12}", 0..6)) {
            prop_assert_eq!(split(&quoted(&words)).unwrap(), words);
        }
    }
}
