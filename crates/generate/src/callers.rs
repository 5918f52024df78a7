//! Operations of several callers that get into each other's way.
//!
//! Random operations of callers hardly meet. So each round has a theme (appending, renaming against
//! everything, removing a directory that others fill, …), few names, and only operations that touch what
//! the theme is about. Everything is drawn before anything is executed: nobody waits for an answer.

use fathom_core::flags::{OpenFlags, RenameFlags, XattrFlags};
use fathom_core::{Caller, FsPath, Mode, Op, Pattern, Slot, Target};

use crate::choice::Choices;

/// The slots that every caller has open: the file with `O_APPEND`, without it, and a directory.
const APPENDS: Slot = 0;
const WRITES: Slot = 1;
const LISTS: Slot = 2;
const OPENS: Slot = 3;

/// Longest write; more than a page, so that torn ones show.
const BYTES_MAX: u64 = 6000;

/// What a round is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Theme {
    /// Appending, writing, truncating and reading one file.
    Data,
    /// Renaming, linking and unlinking a few names in two directories.
    Names,
    /// Making and removing directories that others fill.
    Directories,
    /// One name that everybody wants to make first.
    Exclusive,
    /// Modes, owners and extended attributes of one file.
    Attributes,
    /// Listing a directory whose names move.
    Listing,
    /// Everything.
    Mixed,
}

impl Theme {
    /// Every theme.
    pub const ALL: [Theme; 7] = [
        Theme::Data,
        Theme::Names,
        Theme::Directories,
        Theme::Exclusive,
        Theme::Attributes,
        Theme::Listing,
        Theme::Mixed,
    ];

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Theme::Data => "data",
            Theme::Names => "names",
            Theme::Directories => "directories",
            Theme::Exclusive => "exclusive",
            Theme::Attributes => "attributes",
            Theme::Listing => "listing",
            Theme::Mixed => "mixed",
        }
    }
}

/// Draws the operations of several callers.
#[derive(Clone, Debug)]
pub struct CallerGenerator {
    choices: Choices,
    patterns: u64,
}

impl CallerGenerator {
    /// A generator of a seed.
    pub fn new(seed: u64) -> CallerGenerator {
        CallerGenerator { choices: Choices::new(seed), patterns: 0 }
    }

    /// Draws what a round is about.
    pub fn theme(&mut self) -> Theme {
        *self.choices.pick(&Theme::ALL)
    }

    /// What is there before the callers start, and the files that each has open.
    pub fn setup(&mut self, callers: u32) -> Vec<(Caller, Op)> {
        let file = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
        let mut ops = vec![
            (0, Op::Mkdir { path: "d0".into(), mode: Mode(0o755) }),
            (0, Op::Mkdir { path: "d1".into(), mode: Mode(0o755) }),
            (0, open(OPENS, "d0/a", file)),
            (0, open(OPENS, "d0/b", file)),
            (0, Op::Close { slot: OPENS }),
        ];
        for caller in 0..callers {
            ops.push((caller, open(APPENDS, "f", file | OpenFlags::O_APPEND)));
            ops.push((caller, open(WRITES, "f", file)));
            ops.push((caller, open(LISTS, "d0", OpenFlags::O_DIRECTORY)));
        }
        let first = self.data();
        ops.push((0, Op::Write { slot: WRITES, data: first }));
        ops
    }

    /// Draws the operations of each caller for one round.
    pub fn round(&mut self, theme: Theme, callers: u32, calls: usize) -> Vec<Vec<Op>> {
        let mut scripts = Vec::new();
        for _ in 0..callers {
            scripts.push((0..calls).map(|_| self.op(theme)).collect());
        }
        scripts
    }

    fn op(&mut self, theme: Theme) -> Op {
        match theme {
            Theme::Data => self.data_op(),
            Theme::Names => self.name_op(),
            Theme::Directories => self.directory_op(),
            Theme::Exclusive => self.exclusive_op(),
            Theme::Attributes => self.attribute_op(),
            Theme::Listing => self.listing_op(),
            Theme::Mixed => {
                let parts = &Theme::ALL[..Theme::ALL.len() - 1];
                let theme = *self.choices.pick(parts);
                self.op(theme)
            }
        }
    }

    fn data(&mut self) -> Pattern {
        self.patterns += 1;
        let len = match self.choices.below(4) {
            0 => 1 + self.choices.below(BYTES_MAX),
            _ => 1 + self.choices.below(100),
        };
        Pattern { seed: self.patterns, len }
    }

    fn data_op(&mut self) -> Op {
        let f = || Target::Path("f".into());
        match self.choices.below(16) {
            0..6 => Op::Write { slot: APPENDS, data: self.data() },
            6 | 7 => {
                let offset = self.choices.below(200) as i64;
                Op::Pwrite { slot: WRITES, offset, data: self.data() }
            }
            8 => Op::Truncate { target: f(), len: self.choices.below(300) as i64 },
            9..12 => Op::Pread { slot: WRITES, offset: 0, len: 16384 },
            12 => Op::Pread { slot: WRITES, offset: self.choices.below(300) as i64, len: 64 },
            13 => Op::Stat { target: Target::Slot(WRITES) },
            14 => Op::Stat { target: f() },
            _ => Op::Fsync { slot: WRITES },
        }
    }

    /// One of a few paths of files.
    fn name(&mut self) -> FsPath {
        (*self.choices.pick(&["d0/a", "d0/b", "d1/a", "d1/b", "f", "g"])).into()
    }

    fn name_op(&mut self) -> Op {
        let (one, other) = (self.name(), self.name());
        match self.choices.below(16) {
            0..5 => Op::Rename { from: one, to: other, flags: RenameFlags::empty() },
            5 => Op::Rename { from: one, to: other, flags: RenameFlags::RENAME_NOREPLACE },
            6 => Op::Rename { from: one, to: other, flags: RenameFlags::RENAME_EXCHANGE },
            7 | 8 => Op::Link { from: one, to: other, follow: false },
            9 => Op::Unlink { path: one },
            10 => open(OPENS, one, OpenFlags::O_CREAT | OpenFlags::O_RDWR),
            11 => open(OPENS, one, OpenFlags::empty()),
            12 => Op::Stat { target: Target::Slot(OPENS) },
            _ => Op::Stat { target: Target::Link(one) },
        }
    }

    fn directory_op(&mut self) -> Op {
        let dir = || -> FsPath { "d1/e".into() };
        let inside: FsPath = (*self.choices.pick(&["d1/e/x", "d1/e/y"])).into();
        match self.choices.below(12) {
            0..2 => Op::Mkdir { path: dir(), mode: Mode(0o755) },
            2..4 => Op::Rmdir { path: dir() },
            4 | 5 => open(OPENS, inside, OpenFlags::O_CREAT | OpenFlags::O_RDWR),
            6 => Op::Mkdir { path: inside, mode: Mode(0o755) },
            7 => Op::Unlink { path: inside },
            8 => Op::Rmdir { path: inside },
            9 => Op::Rename { from: "d1/e".into(), to: "d0/e".into(), flags: RenameFlags::empty() },
            10 => Op::Stat { target: Target::Path(dir()) },
            _ => Op::Stat { target: Target::Path(inside) },
        }
    }

    fn exclusive_op(&mut self) -> Op {
        let excl = OpenFlags::O_CREAT | OpenFlags::O_EXCL | OpenFlags::O_RDWR;
        let path: FsPath = (*self.choices.pick(&["x", "d0/x"])).into();
        match self.choices.below(8) {
            0..3 => open(OPENS, path, excl),
            3 => Op::Mkdir { path, mode: Mode(0o700) },
            4 => Op::Symlink { target: "f".into(), path },
            5 => Op::Rmdir { path },
            _ => Op::Unlink { path },
        }
    }

    fn attribute_op(&mut self) -> Op {
        let f = || Target::Path("f".into());
        let name = *self.choices.pick(&["user.a", "user.b"]);
        match self.choices.below(10) {
            0 => Op::Chmod { target: f(), mode: Mode(0o600 | self.choices.below(0o100) as u32) },
            1 => Op::Chmod { target: Target::Slot(WRITES), mode: Mode(0o644) },
            2 | 3 => Op::Setxattr {
                target: f(),
                name: name.into(),
                value: Pattern { seed: self.choices.below(9), len: 1 + self.choices.below(60) },
                flags: *self.choices.pick(&[
                    XattrFlags::empty(),
                    XattrFlags::XATTR_CREATE,
                    XattrFlags::XATTR_REPLACE,
                ]),
            },
            4 => Op::Removexattr { target: f(), name: name.into() },
            5 | 6 => Op::Getxattr { target: f(), name: name.into(), len: 256 },
            7 => Op::Listxattr { target: f(), len: 256 },
            _ => Op::Stat { target: f() },
        }
    }

    fn listing_op(&mut self) -> Op {
        let names = ["d0/a", "d0/b", "d0/c", "d0/a-name-that-is-longer"];
        let one: FsPath = (*self.choices.pick(&names)).into();
        let other: FsPath = (*self.choices.pick(&names)).into();
        match self.choices.below(8) {
            0..3 => Op::Getdents { slot: LISTS },
            3 => open(OPENS, one, OpenFlags::O_CREAT | OpenFlags::O_RDWR),
            4 => Op::Unlink { path: one },
            _ => Op::Rename { from: one, to: other, flags: RenameFlags::empty() },
        }
    }
}

fn open(slot: Slot, path: impl Into<FsPath>, flags: OpenFlags) -> Op {
    Op::Open { slot, path: path.into(), flags, mode: Mode(0o644) }
}
