//! Chooses paths: names that exist, names that could, and names that should not work.

use fathom_core::{FsBytes, FsPath, Kind, Target};

use super::Generator;
use super::view::depth;

/// Longest name, NAME_MAX of limits.h.
const NAME_BYTES_MAX: usize = 255;
/// Longest path with the terminating NUL, PATH_MAX of limits.h.
const PATH_BYTES_MAX: usize = 4096;

/// Ways to write a path that is not the plain name of something.
#[derive(Clone, Copy)]
enum Oddity {
    Missing,
    MissingParent,
    BelowFile,
    TrailingSlash,
    Dot,
    DotDot,
    DoubleSlash,
    ThroughSymlink,
    NameTooLong,
    PathTooLong,
    Empty,
    AnyKind,
}

const ODDITIES: &[(Oddity, u32)] = &[
    (Oddity::Missing, 6),
    (Oddity::MissingParent, 3),
    (Oddity::BelowFile, 4),
    (Oddity::TrailingSlash, 6),
    (Oddity::Dot, 3),
    (Oddity::DotDot, 4),
    (Oddity::DoubleSlash, 1),
    (Oddity::ThroughSymlink, 6),
    (Oddity::NameTooLong, 2),
    (Oddity::PathTooLong, 1),
    (Oddity::Empty, 1),
    (Oddity::AnyKind, 10),
];

impl Generator {
    /// Draws the path of something of one of the kinds that exists, or a name it could have.
    pub(super) fn existing(&mut self, kinds: &[Kind]) -> FsPath {
        if self.odd && self.choices.percent(60) {
            return self.odd_path();
        }
        let fitting = self.view.select(|node| node.depth > 0 && kinds.contains(&node.kind));
        if fitting.is_empty() {
            return self.fresh(kinds[0]);
        }
        self.choices.pick(&fitting).path.clone()
    }

    /// Draws any name that exists, the root included.
    pub(super) fn anything(&mut self) -> FsPath {
        if self.odd && self.choices.percent(60) {
            return self.odd_path();
        }
        self.choices.pick(self.view.nodes()).path.clone()
    }

    /// Draws a path for something new of this kind; the name may be taken.
    pub(super) fn fresh(&mut self, kind: Kind) -> FsPath {
        if self.odd && self.choices.percent(60) {
            return self.odd_path();
        }
        let depth_max = self.config.names.depth_max;
        // A directory at the greatest depth would only hold what is too deep.
        let levels = if kind == Kind::Dir { depth_max } else { depth_max + 1 };
        let parents = self.view.select(|node| node.kind == Kind::Dir && node.depth < levels);
        let parent = self.choices.pick(&parents).path.clone();
        // A second try makes taken names rarer without excluding them.
        let path = parent.join(&self.name(kind));
        if self.view.contains(&path) { parent.join(&self.name(kind)) } else { path }
    }

    /// Draws a destination for `from`, where its contents do not get too deep: mostly new,
    /// sometimes a name that exists.
    pub(super) fn destination(&mut self, from: &FsPath, kind: Kind) -> FsPath {
        let to = match self.choices.below(10) {
            0..5 => self.fresh(kind),
            5..8 => self.existing(&[kind]),
            _ => self.anything(),
        };
        if kind == Kind::Dir && !self.fits(&to, self.view.height(from)) {
            let parent = from.parent().unwrap_or_else(|| FsPath::from("."));
            return parent.join(&self.name(kind));
        }
        to
    }

    /// Whether a directory with `height` levels below it may be at `path`.
    pub(super) fn fits(&self, path: &FsPath, height: usize) -> bool {
        let depth_max = self.config.names.depth_max;
        depth(path) <= depth_max && depth(path) + height <= depth_max + 1
    }

    /// The kind of a name that exists; a file for others.
    pub(super) fn kind_of(&self, path: &FsPath) -> Kind {
        let found = self.view.nodes().iter().find(|node| node.path == *path);
        found.map_or(Kind::File, |node| node.kind)
    }

    /// Draws a path or an open file.
    pub(super) fn target(&mut self) -> Target {
        match self.choices.below(10) {
            0..5 => Target::Path(self.anything()),
            5..7 => Target::Link(self.anything()),
            _ => Target::Slot(self.slot(|_| true)),
        }
    }

    /// Draws a name from the pool of a kind.
    fn name(&mut self, kind: Kind) -> Vec<u8> {
        let names = &self.config.names;
        let (letter, count) = match kind {
            Kind::File => ('f', names.files),
            Kind::Dir => ('d', names.dirs),
            Kind::Symlink => ('s', names.symlinks),
            Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => ('n', names.nodes),
        };
        if self.choices.percent(self.config.names.long_percent) {
            return vec![letter as u8; NAME_BYTES_MAX];
        }
        format!("{letter}{}", self.choices.below(count)).into_bytes()
    }

    /// Draws the target of a new symbolic link: relative, without `..`, so that it cannot leave the
    /// root wherever the link is moved.
    pub(super) fn symlink_target(&mut self) -> FsBytes {
        if self.odd && self.choices.percent(40) {
            let len = *self.choices.pick(&[0, 255, 1023, 1024, 4095]);
            return FsBytes::from(vec![b't'; len]);
        }
        match self.choices.below(10) {
            0..4 => FsBytes::from(self.name(Kind::File)),
            4..6 => FsBytes::from(self.name(Kind::Dir)),
            6 => FsBytes::from(self.name(Kind::Symlink)),
            // 60 bytes are the most that ext4 keeps in the inode.
            7 => FsBytes::from(vec![b't'; 59 + self.choices.index(3)]),
            8 => FsBytes::from("."),
            _ => self.choices.pick(self.view.nodes()).path.clone(),
        }
    }

    fn odd_path(&mut self) -> FsPath {
        let some = self.choices.pick(self.view.nodes()).path.clone();
        let dirs = self.view.select(|node| node.kind == Kind::Dir);
        let dir = self.choices.pick(&dirs).path.clone();
        match self.choices.weighted(ODDITIES) {
            Oddity::Missing => dir.join(b"missing"),
            Oddity::MissingParent => dir.join(b"missing/f0"),
            Oddity::BelowFile => self.below_file(),
            Oddity::TrailingSlash => append(&some, "/"),
            Oddity::Dot => {
                let tail = *self.choices.pick(&["/.", "/./f0"]);
                append(&dir, tail)
            }
            Oddity::DotDot => self.dot_dot(),
            Oddity::DoubleSlash => append(&dir, "//f0"),
            Oddity::ThroughSymlink => {
                let name = self.name(Kind::File);
                self.one_of(Kind::Symlink).join(&name)
            }
            Oddity::NameTooLong => dir.join(&[b'x'; NAME_BYTES_MAX + 1]),
            Oddity::PathTooLong => self.longest_path(),
            Oddity::Empty => FsPath::from(""),
            Oddity::AnyKind => some,
        }
    }

    fn below_file(&mut self) -> FsPath {
        let name = self.name(Kind::File);
        self.one_of(Kind::File).join(&name)
    }

    /// Makes a path with `..` behind a real directory below the root: anything else could leave the
    /// root.
    fn dot_dot(&mut self) -> FsPath {
        let dirs = self.view.select(|node| node.kind == Kind::Dir && node.depth > 0);
        if dirs.is_empty() {
            return FsPath::from(".");
        }
        let dir = self.choices.pick(&dirs).path.clone();
        let tail = *self.choices.pick(&["/..", "/../f0", "/../d0"]);
        append(&dir, tail)
    }

    /// Makes a path as long as a path can be, or one byte longer.
    fn longest_path(&mut self) -> FsPath {
        let len = PATH_BYTES_MAX - 1 + self.choices.index(2);
        let mut path = b"./".repeat(PATH_BYTES_MAX / 2);
        path.truncate(len - 2);
        if path.ends_with(b".") {
            path.pop();
            path.push(b'/');
        }
        path.extend_from_slice(b"f0");
        FsPath::from(path)
    }

    /// Draws a name of this kind that exists, or could.
    fn one_of(&mut self, kind: Kind) -> FsPath {
        let fitting = self.view.select(|node| node.kind == kind);
        if fitting.is_empty() {
            return FsPath::from(self.name(kind));
        }
        self.choices.pick(&fitting).path.clone()
    }
}

fn append(path: &FsPath, tail: &str) -> FsPath {
    FsPath::from([path.as_bytes(), tail.as_bytes()].concat())
}
