//! Numbers and lines as people read them.

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number for an axis: `0`, `950`, `1.5k`, `20M`.
pub(crate) fn compact(number: f64) -> String {
    let (value, unit) = match number {
        n if n >= 1e12 => (n / 1e12, "T"),
        n if n >= 1e9 => (n / 1e9, "G"),
        n if n >= 1e6 => (n / 1e6, "M"),
        n if n >= 1e3 => (n / 1e3, "k"),
        n => (n, ""),
    };
    format!("{}{unit}", short(value))
}

/// At most three decimals, none that say nothing.
pub(crate) fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A time: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`.
pub(crate) fn time(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        _ if seconds < 9.95 => format!("{:.1} s", seconds.max(0.0)),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// `1 finding`, `2 findings`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// The name of a count or class as words: `crash_images` as `crash images`.
pub(crate) fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// `text` in at most `width` characters, its middle left out: both ends of a path tell something.
pub(crate) fn middle_cut(text: &str, width: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let head: String = chars[..kept / 2].iter().collect();
    let tail: String = chars[chars.len() - (kept - kept / 2)..].iter().collect();
    format!("{head}…{tail}")
}

/// Breaks a text into lines of at most `width` characters; longer words are cut.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace().flat_map(|word| pieces(word, width)) {
        let used = line.chars().count();
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

fn pieces(word: &str, width: usize) -> Vec<String> {
    let chars: Vec<char> = word.chars().collect();
    chars.chunks(width).map(|piece| piece.iter().collect()).collect()
}

/// A table: every column as wide as its widest cell, the last one free.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(
            ["0", "950", "1.5k", "20M", "0.25"].map(str::to_owned),
            [compact(0.0), compact(950.0), compact(1500.0), compact(2e7), compact(0.25)]
        );
        assert_eq!(counted(1, "finding"), "1 finding");
        assert_eq!(counted(0, "finding"), "0 findings");
    }

    #[test]
    fn times_have_two_units_at_most() {
        let times = [0.04, 9.94, 12.4, 185.0, 7800.0].map(time);
        assert_eq!(times, ["0.0 s", "9.9 s", "12 s", "3 min 5 s", "2 h 10 min"]);
    }

    #[test]
    fn lines_keep_their_width() {
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped(" \n ", 4), Vec::<String>::new());
        assert_eq!(middle_cut("abcdefghij", 5), "ab…ij");
        assert_eq!(middle_cut("abcde", 5), "abcde");
    }
}
