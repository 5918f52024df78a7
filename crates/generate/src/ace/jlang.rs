//! j-lang: the text in which ACE writes workloads, read and written.
//!
//! A file has sections: `# define` lists names, `# run` has one call per line. Names are paths without
//! slashes (`Afoo` is `A/foo`), and `test` is the root.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use fathom_core::FsPath;
use fathom_core::flags::{FallocateMode, Mode, OpenFlags};

/// A file or directory that workloads use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the paths")]
pub enum Name {
    Test,
    A,
    AC,
    B,
    Foo,
    Bar,
    AFoo,
    ABar,
    BFoo,
    BBar,
    ACFoo,
    ACBar,
}

/// Every name, as j-lang writes it and as a path.
const NAMES: [(Name, &str, &str); 12] = [
    (Name::Test, "test", "."),
    (Name::A, "A", "A"),
    (Name::AC, "AC", "A/C"),
    (Name::B, "B", "B"),
    (Name::Foo, "foo", "foo"),
    (Name::Bar, "bar", "bar"),
    (Name::AFoo, "Afoo", "A/foo"),
    (Name::ABar, "Abar", "A/bar"),
    (Name::BFoo, "Bfoo", "B/foo"),
    (Name::BBar, "Bbar", "B/bar"),
    (Name::ACFoo, "ACfoo", "A/C/foo"),
    (Name::ACBar, "ACbar", "A/C/bar"),
];

impl Name {
    /// As j-lang writes it.
    pub(super) fn text(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Where it is.
    pub(super) fn path(self) -> FsPath {
        FsPath::from(NAMES[self as usize].2)
    }

    /// Whether it is a directory.
    pub(super) fn is_dir(self) -> bool {
        matches!(self, Name::Test | Name::A | Name::AC | Name::B)
    }

    /// The directory that it lies in.
    pub(super) fn parent(self) -> Name {
        match self {
            Name::Test | Name::A | Name::B | Name::Foo | Name::Bar => Name::Test,
            Name::AC | Name::AFoo | Name::ABar => Name::A,
            Name::BFoo | Name::BBar => Name::B,
            Name::ACFoo | Name::ACBar => Name::AC,
        }
    }

    /// The other one of the two beside which it lies; itself if it is alone.
    pub(super) fn sibling(self) -> Name {
        match self {
            Name::Test => Name::Test,
            Name::AC => Name::AC,
            Name::A => Name::B,
            Name::B => Name::A,
            Name::Foo => Name::Bar,
            Name::Bar => Name::Foo,
            Name::AFoo => Name::ABar,
            Name::ABar => Name::AFoo,
            Name::BFoo => Name::BBar,
            Name::BBar => Name::BFoo,
            Name::ACFoo => Name::ACBar,
            Name::ACBar => Name::ACFoo,
        }
    }
}

/// Where a call writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub offset: i64,
    /// How many.
    pub len: i64,
}

/// One call of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the words of the language")]
pub enum Line {
    Open(Name, OpenFlags, Mode),
    OpenDir(Name, Mode),
    Close(Name),
    Mkdir(Name, Mode),
    Rmdir(Name),
    Mknod(Name),
    Falloc(Name, FallocateMode, Range),
    Write(Name, Range),
    DirectWrite(Name, Range),
    MmapWrite(Name, Range),
    Truncate(Name, i64),
    Link(Name, Name),
    Symlink(Name, Name),
    Rename(Name, Name),
    Unlink(Name),
    Remove(Name),
    SetXattr(Name),
    RemoveXattr(Name),
    Fsync(Name),
    Fdatasync(Name),
    Sync,
    None,
    /// Here the power may fail; the last one says `true`.
    Checkpoint(bool),
}

/// The modes of `fallocate` that ACE uses, as it writes them.
const FALLOCATE: [(&str, FallocateMode); 5] = [
    ("FALLOC_FL_ZERO_RANGE", FallocateMode::FALLOC_FL_ZERO_RANGE),
    (
        "FALLOC_FL_ZERO_RANGE|FALLOC_FL_KEEP_SIZE",
        FallocateMode::FALLOC_FL_ZERO_RANGE.union(FallocateMode::FALLOC_FL_KEEP_SIZE),
    ),
    (
        "FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE",
        FallocateMode::FALLOC_FL_PUNCH_HOLE.union(FallocateMode::FALLOC_FL_KEEP_SIZE),
    ),
    ("FALLOC_FL_KEEP_SIZE", FallocateMode::FALLOC_FL_KEEP_SIZE),
    ("0", FallocateMode::empty()),
];

/// Flags of `open` that workloads use.
const OPEN: [(&str, OpenFlags); 6] = [
    ("O_RDWR", OpenFlags::O_RDWR),
    ("O_WRONLY", OpenFlags::O_WRONLY),
    ("O_CREAT", OpenFlags::O_CREAT),
    ("O_TRUNC", OpenFlags::O_TRUNC),
    ("O_APPEND", OpenFlags::O_APPEND),
    ("O_DIRECTORY", OpenFlags::O_DIRECTORY),
];

/// How ACE opens files.
pub(super) const OPEN_FLAGS: OpenFlags = OpenFlags::O_RDWR.union(OpenFlags::O_CREAT);

/// The mode that ACE gives to everything.
pub(super) const MODE: Mode = Mode(0o777);

impl Line {
    /// Appends the line to a text.
    pub(super) fn push_to(&self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{self}");
    }
}

fn flags_text(flags: OpenFlags) -> String {
    let names = OPEN.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join("|")
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, call: &str, name: &Name| {
            write!(f, "{call} {}", name.text())
        };
        let two = |f: &mut fmt::Formatter<'_>, call: &str, from: &Name, to: &Name| {
            write!(f, "{call} {} {}", from.text(), to.text())
        };
        let range = |f: &mut fmt::Formatter<'_>, call: &str, name: &Name, range: &Range| {
            write!(f, "{call} {} {} {}", name.text(), range.offset, range.len)
        };
        match self {
            Line::Open(name, flags, mode) if *flags == OPEN_FLAGS => {
                write!(f, "open {} O_RDWR|O_CREAT {:04o}", name.text(), mode.0)
            }
            Line::Open(name, flags, mode) => {
                write!(f, "open {} {} {:04o}", name.text(), flags_text(*flags), mode.0)
            }
            Line::OpenDir(name, mode) => write!(f, "opendir {} {:04o}", name.text(), mode.0),
            Line::Mkdir(name, mode) => write!(f, "mkdir {} {:04o}", name.text(), mode.0),
            Line::Mknod(name) => {
                write!(f, "mknod {} TEST_FILE_PERMS|S_IFCHR|S_IFBLK 0", name.text())
            }
            Line::Falloc(name, mode, Range { offset, len }) => {
                let known = FALLOCATE.iter().find(|(_, value)| value == mode);
                let mode = known.map_or("0", |(text, _)| text);
                write!(f, "falloc {} {mode} {offset} {len}", name.text())
            }
            Line::Write(name, at) => range(f, "write", name, at),
            Line::DirectWrite(name, at) => range(f, "dwrite", name, at),
            Line::MmapWrite(name, at) => range(f, "mmapwrite", name, at),
            Line::Truncate(name, len) => write!(f, "truncate {} {len}", name.text()),
            Line::Link(from, to) => two(f, "link", from, to),
            Line::Symlink(from, to) => two(f, "symlink", from, to),
            Line::Rename(from, to) => two(f, "rename", from, to),
            Line::Close(name) => one(f, "close", name),
            Line::Rmdir(name) => one(f, "rmdir", name),
            Line::Unlink(name) => one(f, "unlink", name),
            Line::Remove(name) => one(f, "remove", name),
            Line::SetXattr(name) => one(f, "fsetxattr", name),
            Line::RemoveXattr(name) => one(f, "removexattr", name),
            Line::Fsync(name) => one(f, "fsync", name),
            Line::Fdatasync(name) => one(f, "fdatasync", name),
            Line::Sync => f.write_str("sync"),
            Line::None => f.write_str("none"),
            Line::Checkpoint(last) => write!(f, "checkpoint {}", u8::from(*last)),
        }
    }
}

/// Text that is no workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JlangError {
    /// A line that says nothing.
    #[error("line {line}: {text:?}: {what}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// No operations.
    #[error("it has no `# run` section with calls: is it a j-lang file?")]
    Empty,
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Line, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let call = *words.first().ok_or("there is no call")?;
        let word = |index: usize| {
            words.get(index).copied().ok_or_else(|| format!("{call} needs {index} arguments"))
        };
        let name = |index| word(index).and_then(read_name);
        let number = |index| {
            let word = word(index)?;
            word.parse::<i64>().map_err(|_| format!("{word:?} is no number"))
        };
        let range =
            |first| Ok::<_, String>(Range { offset: number(first)?, len: number(first + 1)? });
        let mode = |index| word(index).and_then(read_mode);
        Ok(match call {
            "open" => Line::Open(name(1)?, read_flags(word(2)?)?, mode(3)?),
            "creat" => Line::Open(name(1)?, OPEN_FLAGS, MODE),
            "opendir" => Line::OpenDir(name(1)?, mode(2)?),
            "mkdir" => Line::Mkdir(name(1)?, mode(2)?),
            "close" => Line::Close(name(1)?),
            "rmdir" => Line::Rmdir(name(1)?),
            "mknod" => Line::Mknod(name(1)?),
            "falloc" => Line::Falloc(name(1)?, read_fallocate(word(2)?)?, range(3)?),
            "write" => Line::Write(name(1)?, range(2)?),
            "dwrite" => Line::DirectWrite(name(1)?, range(2)?),
            "mmapwrite" => Line::MmapWrite(name(1)?, range(2)?),
            "truncate" => Line::Truncate(name(1)?, number(2)?),
            "link" => Line::Link(name(1)?, name(2)?),
            "symlink" => Line::Symlink(name(1)?, name(2)?),
            "rename" => Line::Rename(name(1)?, name(2)?),
            "unlink" => Line::Unlink(name(1)?),
            "remove" => Line::Remove(name(1)?),
            "fsetxattr" => Line::SetXattr(name(1)?),
            "removexattr" => Line::RemoveXattr(name(1)?),
            "fsync" => Line::Fsync(name(1)?),
            "fdatasync" => Line::Fdatasync(name(1)?),
            "sync" => Line::Sync,
            "none" => Line::None,
            "checkpoint" => Line::Checkpoint(number(1)? != 0),
            other => return Err(format!("there is no call {other:?} in j-lang")),
        })
    }
}

fn read_name(text: &str) -> Result<Name, String> {
    let is = |(_, short, path): &&(Name, &str, &str)| *short == text || *path == text;
    let found = NAMES.iter().find(is).map(|(name, ..)| *name);
    found.ok_or_else(|| {
        let known: Vec<&str> = NAMES.iter().map(|(_, short, _)| *short).collect();
        format!("{text:?} is none of the names {}", known.join(", "))
    })
}

fn read_mode(text: &str) -> Result<Mode, String> {
    u32::from_str_radix(text, 8).map(Mode).map_err(|_| format!("{text:?} is no mode in octal"))
}

fn read_fallocate(text: &str) -> Result<FallocateMode, String> {
    let mut mode = FallocateMode::empty();
    for word in text.split('|') {
        mode |= match word {
            "FALLOC_FL_ZERO_RANGE" => FallocateMode::FALLOC_FL_ZERO_RANGE,
            "FALLOC_FL_KEEP_SIZE" => FallocateMode::FALLOC_FL_KEEP_SIZE,
            "FALLOC_FL_PUNCH_HOLE" => FallocateMode::FALLOC_FL_PUNCH_HOLE,
            "0" => FallocateMode::empty(),
            other => return Err(format!("{other:?} is no mode of fallocate")),
        };
    }
    Ok(mode)
}

fn read_flags(text: &str) -> Result<OpenFlags, String> {
    let mut flags = OpenFlags::empty();
    for word in text.split('|') {
        let known = OPEN.iter().find(|(name, _)| *name == word);
        flags |= known.ok_or_else(|| format!("{word:?} is no flag of open"))?.1;
    }
    Ok(flags)
}

/// The names that a workload may use, as ACE lists them.
const HEADER: &str = "# define\ntest\nA\nA/C\nB\nfoo\nbar\nA/foo\nA/bar\nB/foo\nB/bar\nA/C/foo\n\
                      A/C/bar\n\n# declare\nlocal_checkpoint\n\n# setup\n\n\n# run\n";

/// A whole file.
pub fn write(lines: &[Line]) -> String {
    let mut text = HEADER.to_owned();
    lines.iter().for_each(|line| line.push_to(&mut text));
    text
}

/// Reads the `run` section of a file.
///
/// # Errors
/// Names the line that makes no sense.
pub fn read(text: &str) -> Result<Vec<Line>, JlangError> {
    let mut lines = Vec::new();
    let mut runs = false;
    for (index, text) in text.lines().enumerate() {
        let text = text.trim();
        if let Some(section) = text.strip_prefix('#') {
            runs = section.trim() == "run";
        } else if runs && !text.is_empty() {
            let what = |what| JlangError::Line { line: index + 1, text: text.to_owned(), what };
            lines.push(text.parse().map_err(what)?);
        }
    }
    if lines.is_empty() { Err(JlangError::Empty) } else { Ok(lines) }
}
