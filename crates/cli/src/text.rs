//! Printing for people and machines.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;

pub(crate) use fathom_report::words::{grouped, table};
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

/// `text` in bold, where the standard output is a terminal that wants it (<https://no-color.org>).
pub(crate) fn bold(text: &str) -> String {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if colour && io::stdout().is_terminal() {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}
