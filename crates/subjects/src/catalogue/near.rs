//! "Did you mean …?"

/// The known names that look like `typed`, the nearest first, at most three.
pub fn near<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut candidates: Vec<(usize, &str)> = known
        .map(|name| (distance(typed, name), name))
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3) || name.contains(typed))
        .collect();
    candidates.sort();
    candidates.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The sentence to append to an error, or nothing.
pub fn did_you_mean<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> String {
    match near(typed, known).join(", ") {
        names if names.is_empty() => String::new(),
        names => format!("; did you mean {names}?"),
    }
}

/// Insertions, deletions and replacements between two texts (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first() {
        let known = ["rename-nlink", "rename-loses-target", "seek-hole-past-eof"];
        assert_eq!(near("rename-nlnk", known.into_iter()), ["rename-nlink"]);
        assert_eq!(near("zzz", known.into_iter()), Vec::<&str>::new());
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
