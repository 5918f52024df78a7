//! [`Tree`]: the abstract state of a file system, as a user can see it.
//!
//! Two file systems that show the same tree are in the same abstract state. What may legitimately
//! differ is not in it: inode numbers (only *which* names share an inode), directory sizes, the order
//! of entries, allocated blocks, time values (only their order, and only on request).
//!
//! # The digest
//!
//! A tree's [`Digest`] is a sum (mod 2¹²⁸) of independent terms, so that a model can maintain it
//! without looking at the whole tree, and a walk of a real file system arrives at the same value:
//!
//! * for every path: [`entry_term`] of its [`PathHash`] and its [`NodeView::digest`];
//! * for every inode with two or more names: [`group_term`] of the sum of their path hashes.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bytes::{FsBytes, FsPath};
use crate::claim::hex;
use crate::digest::{DataSum, Digest};
use crate::errno::Errno;
use crate::flags::Mode;
use crate::testbed::PathState;

/// Domains keep the hashes of different things apart.
mod domain {
    pub(super) const PATH: u64 = 1;
    pub(super) const NODE: u64 = 2;
    pub(super) const ENTRY: u64 = 3;
    pub(super) const GROUP: u64 = 4;
    pub(super) const XATTR: u64 = 5;
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the seven types of inode(7)")]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Fifo,
    Socket,
    Char,
    Block,
}

impl Kind {
    /// The kind that the type bits of a mode name; `None` for bits that name no type.
    pub fn of_mode(mode: u32) -> Option<Kind> {
        Some(match mode & Mode::S_IFMT {
            Mode::S_IFREG => Kind::File,
            Mode::S_IFDIR => Kind::Dir,
            Mode::S_IFLNK => Kind::Symlink,
            Mode::S_IFIFO => Kind::Fifo,
            Mode::S_IFSOCK => Kind::Socket,
            Mode::S_IFCHR => Kind::Char,
            Mode::S_IFBLK => Kind::Block,
            _ => return None,
        })
    }

    /// The type bits.
    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::File => Mode::S_IFREG,
            Kind::Dir => Mode::S_IFDIR,
            Kind::Symlink => Mode::S_IFLNK,
            Kind::Fifo => Mode::S_IFIFO,
            Kind::Socket => Mode::S_IFSOCK,
            Kind::Char => Mode::S_IFCHR,
            Kind::Block => Mode::S_IFBLK,
        }
    }

    /// The letter that `ls -l` shows.
    pub fn letter(self) -> char {
        match self {
            Kind::File => '-',
            Kind::Dir => 'd',
            Kind::Symlink => 'l',
            Kind::Fifo => 'p',
            Kind::Socket => 's',
            Kind::Char => 'c',
            Kind::Block => 'b',
        }
    }
}

/// A point in time: a position on the model's logical clock, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stamp {
    /// "Now" at this tick of the logical clock: only its order relative to other ticks means
    /// something.
    Tick(u64),
    /// A value: what a real file system reports, or what `utimensat` set.
    At {
        /// Seconds since the epoch.
        sec: i64,
        /// Nanoseconds.
        nsec: u32,
    },
}

/// The three timestamps of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "inode(7) documents each")]
pub struct Times {
    pub atime: Stamp,
    pub mtime: Stamp,
    pub ctime: Stamp,
}

/// A call that failed while the tree was being observed, for example an entry that `getdents`
/// lists and `stat` denies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// The call.
    pub call: String,
    /// Its error.
    pub errno: Errno,
}

/// What one path of the tree shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// File type.
    pub kind: Kind,
    /// Permission bits with setuid, setgid, sticky.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count as reported.
    pub nlink: u32,
    /// Size in bytes; 0 for directories.
    pub size: u64,
    /// [`crate::digest::content_digest`] of a file's bytes; zero for anything else.
    pub content: Digest,
    /// Target of a symbolic link, else empty.
    #[serde(default = "no_bytes", skip_serializing_if = "is_empty")]
    pub target: FsBytes,
    /// (major, minor) of a device.
    #[serde(default, skip_serializing_if = "is_no_device")]
    pub rdev: (u32, u32),
    /// Extended attributes: name → checksum of the value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<FsBytes, DataSum>,
    /// The smallest path with the same inode, if that is another one than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<FsPath>,
    /// Data segments `[start, end)` as SEEK_DATA and SEEK_HOLE show them, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<(u64, u64)>>,
    /// Timestamps, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// What could not be observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
}

fn no_bytes() -> FsBytes {
    FsBytes::from("")
}

fn is_empty(bytes: &FsBytes) -> bool {
    bytes.as_bytes().is_empty()
}

fn is_no_device(rdev: &(u32, u32)) -> bool {
    *rdev == (0, 0)
}

/// The hash of a path: a chain over its components, starting at [`PathHash::ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathHash(pub Digest);

impl PathHash {
    /// The root directory.
    pub const ROOT: PathHash = PathHash(Digest(0));

    /// The entry `name` in the directory with this hash.
    pub fn child(self, name: &[u8]) -> PathHash {
        // Names are at most 255 bytes; the buffer keeps this free of allocation.
        let mut buffer = [0; 16 + 256];
        buffer[..16].copy_from_slice(&self.0.0.to_le_bytes());
        let len = name.len().min(256);
        buffer[16..16 + len].copy_from_slice(&name[..len]);
        PathHash(Digest::of(domain::PATH, &buffer[..16 + len]))
    }

    /// The hash of a plain relative path (`a/b`, or `.`).
    pub fn of(path: &FsPath) -> PathHash {
        if path.as_bytes() == b"." {
            return PathHash::ROOT;
        }
        path.as_bytes().split(|&b| b == b'/').fold(PathHash::ROOT, PathHash::child)
    }
}

/// What the digest knows of an inode.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields of Entry")]
pub struct NodeView<'a> {
    pub kind: Kind,
    pub mode: Mode,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub size: u64,
    pub content: Digest,
    pub target: &'a [u8],
    pub rdev: (u32, u32),
    /// Sum of the [`xattr_term`]s.
    pub xattrs: Digest,
}

impl NodeView<'_> {
    /// The digest of the inode alone, without any of its names.
    pub fn digest(&self) -> Digest {
        let mut packed = [0; 80];
        packed[0] = self.kind as u8;
        packed[1..5].copy_from_slice(&self.mode.perm().to_le_bytes());
        packed[5..9].copy_from_slice(&self.uid.to_le_bytes());
        packed[9..13].copy_from_slice(&self.gid.to_le_bytes());
        packed[13..17].copy_from_slice(&self.nlink.to_le_bytes());
        packed[17..25].copy_from_slice(&self.size.to_le_bytes());
        packed[25..41].copy_from_slice(&self.content.0.to_le_bytes());
        packed[41..45].copy_from_slice(&self.rdev.0.to_le_bytes());
        packed[45..49].copy_from_slice(&self.rdev.1.to_le_bytes());
        packed[49..65].copy_from_slice(&self.xattrs.0.to_le_bytes());
        if !self.target.is_empty() {
            let target = Digest::of(domain::NODE, self.target).0 as u64;
            packed[65..73].copy_from_slice(&target.to_le_bytes());
        }
        Digest::of(domain::NODE, &packed)
    }
}

/// The term of one path.
pub fn entry_term(path: PathHash, node: Digest) -> Digest {
    let mut packed = [0; 32];
    packed[..16].copy_from_slice(&path.0.0.to_le_bytes());
    packed[16..].copy_from_slice(&node.0.to_le_bytes());
    Digest::of(domain::ENTRY, &packed)
}

/// The term of an inode with two or more names, from the sum of their path hashes.
pub fn group_term(path_hash_sum: Digest) -> Digest {
    Digest::of(domain::GROUP, &path_hash_sum.0.to_le_bytes())
}

/// The term of one extended attribute.
pub fn xattr_term(name: &[u8], value: DataSum) -> Digest {
    let mut packed = Vec::with_capacity(8 + name.len());
    packed.extend_from_slice(&value.0.to_le_bytes());
    packed.extend_from_slice(name);
    Digest::of(domain::XATTR, &packed)
}

impl Entry {
    /// An entry about which only a failure is known.
    pub fn broken(call: &str, errno: Errno) -> Entry {
        Entry {
            kind: Kind::File,
            mode: Mode(0),
            uid: 0,
            gid: 0,
            nlink: 0,
            size: 0,
            content: Digest::default(),
            target: no_bytes(),
            rdev: (0, 0),
            xattrs: BTreeMap::new(),
            same_as: None,
            segments: None,
            times: None,
            broken: Some(Broken { call: call.to_owned(), errno }),
        }
    }

    fn node_digest(&self) -> Digest {
        let mut xattrs = Digest::default();
        for (name, value) in &self.xattrs {
            xattrs += xattr_term(name.as_bytes(), *value);
        }
        let view = NodeView {
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size,
            content: self.content,
            target: self.target.as_bytes(),
            rdev: self.rdev,
            xattrs,
        };
        let mut digest = view.digest();
        if let Some(broken) = &self.broken {
            digest +=
                Digest::of(domain::NODE, format!("{}:{}", broken.call, broken.errno).as_bytes());
        }
        digest
    }
}

/// The whole visible state: every path with what it shows. The root is `.`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Sorted by path.
    pub entries: BTreeMap<FsPath, Entry>,
}

impl Tree {
    /// The digest as the module documentation defines it. Segments and times are not part of it.
    pub fn digest(&self) -> Digest {
        let mut sum = Digest::default();
        let mut groups: BTreeMap<&FsPath, Digest> = BTreeMap::new();
        for (path, entry) in &self.entries {
            let hash = PathHash::of(path);
            sum += entry_term(hash, entry.node_digest());
            if let Some(first) = &entry.same_as {
                *groups.entry(first).or_insert_with(|| PathHash::of(first).0) += hash.0;
            }
        }
        for total in groups.into_values() {
            sum += group_term(total);
        }
        sum
    }

    /// What [`crate::Testbed::observe_paths`] shows of one path.
    pub fn path_state(&self, path: &FsPath) -> PathState {
        let entry = self.entries.get(path).map(|entry| Entry { same_as: None, ..entry.clone() });
        let names = entry.as_ref().filter(|entry| entry.kind == Kind::Dir).map(|_| {
            let below = self.entries.keys().filter(|other| other.parent().as_ref() == Some(path));
            below.map(|child| FsBytes::from(child.file_name())).collect()
        });
        PathState { path: path.clone(), entry, names }
    }

    /// What differs from `self` (expected) in `found`, path by path. Times are compared separately:
    /// see [`Tree::time_differences`].
    pub fn differences(&self, found: &Tree) -> Vec<Difference> {
        let mut out = Vec::new();
        for (path, expected) in &self.entries {
            match found.entries.get(path) {
                None => out.push(Difference::new(path, "entry", summary(expected), "missing")),
                Some(entry) => entry_differences(path, expected, entry, &mut out),
            }
        }
        for (path, entry) in &found.entries {
            if !self.entries.contains_key(path) {
                out.push(Difference::new(path, "entry", "missing", summary(entry)));
            }
        }
        out
    }

    /// Where the timestamps of `found` contradict `self`: a value that was set must be there
    /// exactly; stamps of the logical clock must appear in the same order (equal is allowed, since
    /// kernel clocks are coarse). Access times are left out: `relatime` makes them advisory.
    pub fn time_differences(&self, found: &Tree) -> Vec<Difference> {
        let mut out = Vec::new();
        let mut ticks: Vec<(u64, (i64, u32), &FsPath, &str)> = Vec::new();
        for (path, expected) in &self.entries {
            let Some((want, have)) =
                expected.times.zip(found.entries.get(path).and_then(|entry| entry.times))
            else {
                continue;
            };
            for (what, want, have) in
                [("mtime", want.mtime, have.mtime), ("ctime", want.ctime, have.ctime)]
            {
                match (want, have) {
                    (Stamp::Tick(tick), Stamp::At { sec, nsec }) => {
                        ticks.push((tick, (sec, nsec), path, what));
                    }
                    (want, have) if want != have => {
                        out.push(Difference::new(
                            path,
                            what,
                            format!("{want:?}"),
                            format!("{have:?}"),
                        ));
                    }
                    _ => {}
                }
            }
        }
        // By time within a tick, so that neighbours show the latest of one and the earliest of the next.
        ticks.sort_by_key(|(tick, at, ..)| (*tick, *at));
        for pair in ticks.windows(2) {
            let ((_, before, earlier, earlier_what), (_, after, path, what)) = (&pair[0], &pair[1]);
            if pair[0].0 < pair[1].0 && before > after {
                let wanted = format!("not before {earlier_what} of {earlier} ({before:?})");
                out.push(Difference::new(path, what, wanted, format!("{after:?}")));
            }
        }
        out
    }
}

/// One thing that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Where.
    pub path: FsPath,
    /// Which property.
    pub what: String,
    /// What the reference has.
    pub expected: String,
    /// What the subject has.
    pub found: String,
}

impl Difference {
    pub(crate) fn new(
        path: &FsPath,
        what: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Difference {
        Difference {
            path: path.clone(),
            what: what.to_owned(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Says where contents differ first, for how many bytes, and which bytes are there, in place of
    /// two digests: `want` and `have` are what begins at `offset` in the two files. Returns the
    /// position of the first difference in them.
    pub fn show_bytes(&mut self, offset: u64, want: &[u8], have: &[u8], shown: usize) -> usize {
        let common = want.len().min(have.len());
        let same = |at: &usize| want[*at] == have[*at];
        let first = (0..common).find(|at| !same(at)).unwrap_or(common);
        let end = (first..common).find(same).unwrap_or(want.len().max(have.len()));
        let place = format!("{} bytes from offset {}", end - first, offset + first as u64);
        let window = |bytes: &[u8]| {
            let bytes = &bytes[first.min(bytes.len())..bytes.len().min(first + shown)];
            let letter = |byte: &u8| if (b' '..=b'~').contains(byte) { *byte as char } else { '.' };
            let text: String = bytes.iter().map(letter).collect();
            format!("{} |{text}|", hex(bytes))
        };
        self.expected = format!("{place}: {}", window(want));
        self.found = window(have);
        first
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: expected {}, found {}", self.path, self.what, self.expected, self.found)
    }
}

pub(crate) fn entry_differences(
    path: &FsPath,
    want: &Entry,
    have: &Entry,
    out: &mut Vec<Difference>,
) {
    if let Some(broken) = &have.broken {
        let found = format!("{} failed with {}", broken.call, broken.errno);
        out.push(Difference::new(path, "entry", summary(want), found));
        return;
    }
    macro_rules! compare {
        ($($name:ident),*) => {$(
            if want.$name != have.$name {
                let (want, have) = (format!("{:?}", want.$name), format!("{:?}", have.$name));
                out.push(Difference::new(path, stringify!($name), want, have));
            }
        )*};
    }
    compare!(kind, mode, uid, gid, nlink, size, content, target, rdev, xattrs, same_as);
    if want.segments.is_some() && have.segments.is_some() {
        compare!(segments);
    }
}

fn summary(entry: &Entry) -> String {
    let mut text = format!(
        "{}{} nlink {} uid {} gid {} size {}",
        entry.kind.letter(),
        entry.mode,
        entry.nlink,
        entry.uid,
        entry.gid,
        entry.size
    );
    if entry.kind == Kind::File && entry.size > 0 {
        text.push_str(&format!(" content {}", &entry.content.to_string()[..12]));
    }
    if entry.kind == Kind::Symlink {
        text.push_str(&format!(" -> {}", entry.target));
    }
    if entry.rdev != (0, 0) {
        text.push_str(&format!(" rdev {}:{}", entry.rdev.0, entry.rdev.1));
    }
    for (name, value) in &entry.xattrs {
        text.push_str(&format!(" {name}={value}"));
    }
    if let Some(same_as) = &entry.same_as {
        text.push_str(&format!(" same inode as {same_as}"));
    }
    if let Some(broken) = &entry.broken {
        text.push_str(&format!(" BROKEN: {} gave {}", broken.call, broken.errno));
    }
    text
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, entry) in &self.entries {
            writeln!(f, "{path}  {}", summary(entry))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64) -> Entry {
        Entry { nlink: 1, size, mode: Mode(0o644), broken: None, ..Entry::broken("", Errno::EIO) }
    }

    fn tree(entries: &[(&str, Entry)]) -> Tree {
        let entries = entries.iter().map(|(p, e)| (FsPath::from(*p), e.clone())).collect();
        Tree { entries }
    }

    #[test]
    fn digest_sees_paths_attributes_and_shared_inodes() {
        let base = tree(&[("a", file(1)), ("b", file(1))]);
        let moved = tree(&[("a", file(1)), ("c", file(1))]);
        let bigger = tree(&[("a", file(1)), ("b", file(2))]);
        let linked = tree(&[("a", file(1)), ("b", Entry { same_as: Some("a".into()), ..file(1) })]);
        let digests = [&base, &moved, &bigger, &linked].map(Tree::digest);
        for (i, a) in digests.iter().enumerate() {
            for b in &digests[i + 1..] {
                assert_ne!(a, b);
            }
        }
        assert_eq!(base.digest(), base.clone().digest());
        assert_ne!(PathHash::of(&"a/b".into()), PathHash::of(&"ab".into()));
    }

    #[test]
    fn differences_name_the_path_and_the_field() {
        let want = tree(&[("a", file(1)), ("b", file(1))]);
        let have = tree(&[("a", file(2)), ("c", Entry::broken("statx", Errno::EIO))]);
        let text: Vec<String> = want.differences(&have).iter().map(|d| d.to_string()).collect();
        assert_eq!(
            text,
            [
                "a: size: expected 1, found 2",
                "b: entry: expected -0644 nlink 1 uid 0 gid 0 size 1 content 000000000000, found missing",
                "c: entry: expected missing, found -0000 nlink 0 uid 0 gid 0 size 0 BROKEN: statx gave EIO",
            ]
        );
        assert!(want.differences(&want).is_empty());
    }

    #[test]
    fn contents_differ_at_an_offset_by_bytes() {
        let mut difference = Difference::new(&"f".into(), "content", "1", "2");
        assert_eq!(difference.show_bytes(4096, b"same abc.", b"same xyz.", 4), 5);
        assert_eq!(
            difference.to_string(),
            "f: content: expected 3 bytes from offset 4101: 61 62 63 2e |abc.|, found 78 79 7a 2e |xyz.|"
        );
        assert_eq!(difference.show_bytes(0, b"a", b"abc", 4), 1);
        assert_eq!(
            difference.to_string(),
            "f: content: expected 2 bytes from offset 1: nothing ||, found 62 63 |bc|"
        );
    }

    #[test]
    fn times_are_compared_by_order_and_set_values_exactly() {
        let at = |sec| Stamp::At { sec, nsec: 0 };
        let times = |t| Some(Times { atime: t, mtime: t, ctime: t });
        let want = tree(&[
            ("a", Entry { times: times(Stamp::Tick(1)), ..file(0) }),
            ("b", Entry { times: times(Stamp::Tick(2)), ..file(0) }),
            ("c", Entry { times: times(at(77)), ..file(0) }),
        ]);
        let found = |a, b, c| {
            tree(&[
                ("a", Entry { times: times(at(a)), ..file(0) }),
                ("b", Entry { times: times(at(b)), ..file(0) }),
                ("c", Entry { times: times(at(c)), ..file(0) }),
            ])
        };
        assert!(want.time_differences(&found(5, 5, 77)).is_empty());
        assert!(want.time_differences(&found(5, 6, 77)).is_empty());
        assert!(!want.time_differences(&found(6, 5, 77)).is_empty());
        // Whichever of two stamps of one tick is the late one.
        for (mtime, ctime) in [(6, 4), (4, 6)] {
            let mut late = found(4, 5, 77);
            let split = Times { atime: at(4), mtime: at(mtime), ctime: at(ctime) };
            late.entries.get_mut(&FsPath::from("a")).unwrap().times = Some(split);
            assert!(!want.time_differences(&late).is_empty());
        }
        assert_eq!(want.time_differences(&found(5, 6, 78)).len(), 2);
    }
}
