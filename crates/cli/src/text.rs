//! Printing for people and machines.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;

/// `EIO` of errno(3).
const EIO: i32 = 5;

/// Prints to the standard output. A reader that has gone (`fathom … | head`) is fine.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        // The terminal was closed (termios(3): writing to one that hung up).
        Err(error) if error.raw_os_error() == Some(EIO) && io::stdout().is_terminal() => Ok(()),
        result => result,
    }
}

/// Says something on the standard error. A terminal that has gone is fine: `eprintln!` would panic.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        // There is nobody else to tell.
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}
pub(crate) use say;

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(&format!("{}\n", serde_json::to_string(value)?))?)
}

/// Whether a file can be written: to be asked before a long run, not after it. Leaves nothing behind.
pub(crate) fn writable(path: &Path) -> io::Result<()> {
    let is_new = !path.exists();
    OpenOptions::new().append(true).create(true).open(path)?;
    if is_new { fs::remove_file(path) } else { Ok(()) }
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
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

/// `text` in bold, where the standard output is a terminal that wants it (<https://no-color.org>).
pub(crate) fn bold(text: &str) -> String {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if colour && io::stdout().is_terminal() {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// A table: every column as wide as its widest cell, the last one free.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
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
    fn numbers_are_grouped_and_tables_aligned() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        let rows = [["a", "bb", "c"], ["aaa", "b", "c"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "a    bb  c\naaa  b   c\n");
    }
}
