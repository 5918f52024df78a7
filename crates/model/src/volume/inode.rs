//! One inode: attributes, body, names, and its term in the digest of the tree.

use fathom_core::tree::{NodeView, PathHash, entry_term, group_term, xattr_term};
use fathom_core::{DataSum, Digest, FsBytes, Kind, Mode, Stamp, Times};

use super::Ino;
use super::contents::Contents;
use super::directory::Directory;
use super::name::ShortName;

/// Longest target of a symbolic link that needs no block of its own: ext4 keeps it in the 60 bytes
/// of the inode where block numbers would be (`ext4_inode_is_fast_symlink`).
pub(super) const FAST_SYMLINK_BYTES_MAX: usize = 59;

/// The type of an inode, with the contents of that type.
#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Contents),
    Dir(Directory),
    Symlink(FsBytes),
    Fifo,
    Socket,
    Char(u32, u32),
    Block(u32, u32),
}

/// A name of an inode, seen from the inode.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) dir: Ino,
    pub(super) name: ShortName,
    /// Hash of the whole path.
    pub(super) path: PathHash,
}

/// All names of an inode. Nearly every inode has one: that needs no allocation.
#[derive(Clone, Debug)]
pub(super) enum Names {
    None,
    One(Name),
    /// Several names, sorted by directory and name.
    Many(Vec<Name>),
}

impl Names {
    pub(super) fn as_slice(&self) -> &[Name] {
        match self {
            Names::None => &[],
            Names::One(name) => std::slice::from_ref(name),
            Names::Many(names) => names,
        }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [Name] {
        match self {
            Names::None => &mut [],
            Names::One(name) => std::slice::from_mut(name),
            Names::Many(names) => names,
        }
    }

    fn find(&self, dir: Ino, name: &[u8]) -> Result<usize, usize> {
        self.as_slice().binary_search_by(|n| (n.dir, n.name.as_bytes()).cmp(&(dir, name)))
    }

    pub(super) fn add(&mut self, name: Name) {
        let Err(at) = self.find(name.dir, name.name.as_bytes()) else { return };
        match std::mem::replace(self, Names::None) {
            Names::None => *self = Names::One(name),
            Names::One(other) => {
                let names = if at == 0 { vec![name, other] } else { vec![other, name] };
                *self = Names::Many(names);
            }
            Names::Many(mut names) => {
                names.insert(at, name);
                *self = Names::Many(names);
            }
        }
    }

    pub(super) fn remove(&mut self, dir: Ino, name: &[u8]) {
        let Ok(at) = self.find(dir, name) else { return };
        match self {
            Names::Many(names) if names.len() > 2 => {
                names.remove(at);
            }
            Names::Many(names) => *self = Names::One(names.swap_remove(1 - at)),
            _ => *self = Names::None,
        }
    }

    /// Sets the path of the entry `name` of `dir`.
    pub(super) fn set_path(&mut self, dir: Ino, name: &[u8], path: PathHash) {
        if let Ok(at) = self.find(dir, name) {
            self.as_mut_slice()[at].path = path;
        }
    }
}

/// One extended attribute.
#[derive(Clone, Debug)]
pub(super) struct Xattr {
    pub(super) name: FsBytes,
    pub(super) value: FsBytes,
}

/// The extended attributes of an inode.
#[derive(Clone, Debug, Default)]
pub(super) struct Xattrs {
    /// The attributes, sorted by name.
    list: Vec<Xattr>,
    /// Number of bytes of all names and values.
    bytes: u64,
    digest: Digest,
}

impl Xattrs {
    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.list.binary_search_by(|xattr| xattr.name.as_bytes().cmp(name))
    }

    pub(super) fn list(&self) -> &[Xattr] {
        &self.list
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&FsBytes> {
        self.find(name).ok().map(|at| &self.list[at].value)
    }

    pub(super) fn set(&mut self, name: &[u8], value: &[u8]) {
        self.remove(name);
        let Err(at) = self.find(name) else { return };
        self.list.insert(at, Xattr { name: name.into(), value: value.into() });
        self.bytes += (name.len() + value.len()) as u64;
        self.digest += xattr_term(name, DataSum::of(value));
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Ok(at) = self.find(name) {
            let Xattr { name, value } = self.list.remove(at);
            self.bytes -= (name.as_bytes().len() + value.as_bytes().len()) as u64;
            self.digest -= xattr_term(name.as_bytes(), DataSum::of(value.as_bytes()));
        }
    }
}

/// An inode.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    /// The high half of its [`Ino`].
    pub(super) generation: u32,
    pub(super) mode: Mode,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    /// Whether it was made by `O_TMPFILE` and may get a first name (the kernel's `I_LINKABLE`).
    pub(super) linkable: bool,
    pub(super) times: Times,
    pub(super) names: Names,
    pub(super) body: Body,
    pub(super) xattrs: Xattrs,
    /// The present term of the inode in the digest of the tree.
    pub(super) term: Digest,
}

impl Inode {
    pub(super) fn new(body: Body, mode: Mode, uid: u32, gid: u32, now: Stamp) -> Inode {
        Inode {
            generation: 0,
            mode,
            uid,
            gid,
            nlink: 0,
            linkable: false,
            times: Times { atime: now, mtime: now, ctime: now },
            names: Names::None,
            body,
            xattrs: Xattrs::default(),
            term: Digest::default(),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.body {
            Body::File(_) => Kind::File,
            Body::Dir(_) => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Fifo => Kind::Fifo,
            Body::Socket => Kind::Socket,
            Body::Char(..) => Kind::Char,
            Body::Block(..) => Kind::Block,
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    pub(super) fn as_dir(&self) -> Option<&Directory> {
        match &self.body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    pub(super) fn as_file(&self) -> Option<&Contents> {
        match &self.body {
            Body::File(contents) => Some(contents),
            _ => None,
        }
    }

    /// Its size in bytes, 0 for directories.
    pub(super) fn size(&self) -> u64 {
        match &self.body {
            Body::File(contents) => contents.size(),
            Body::Symlink(target) => target.as_bytes().len() as u64,
            _ => 0,
        }
    }

    pub(super) fn rdev(&self) -> (u32, u32) {
        match self.body {
            Body::Char(major, minor) | Body::Block(major, minor) => (major, minor),
            _ => (0, 0),
        }
    }

    /// Number of blocks that the inode takes up: those of a file that are written or reserved; one
    /// of a directory, whatever its number of entries; enough for a symbolic link that does not fit
    /// into the inode; and enough for the bytes of names and values of all extended attributes.
    pub(super) fn blocks(&self, block_bytes: u32) -> u64 {
        let block_bytes = u64::from(block_bytes);
        let body = match &self.body {
            Body::File(contents) => contents.blocks(),
            Body::Dir(_) => 1,
            Body::Symlink(target) if target.as_bytes().len() > FAST_SYMLINK_BYTES_MAX => {
                (target.as_bytes().len() as u64).div_ceil(block_bytes)
            }
            _ => 0,
        };
        body + self.xattrs.bytes.div_ceil(block_bytes)
    }

    /// Hash of the path of a directory, which has one name; zero for the root.
    pub(super) fn dir_path(&self) -> PathHash {
        self.names.as_slice().first().map_or(PathHash::ROOT, |name| name.path)
    }

    /// Computes the digest of the inode alone.
    pub(super) fn node_digest(&self) -> Digest {
        let content = self.as_file().map_or(Digest::default(), Contents::digest);
        let target = match &self.body {
            Body::Symlink(target) => target.as_bytes(),
            _ => &[],
        };
        let view = NodeView {
            kind: self.kind(),
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size(),
            content,
            target,
            rdev: self.rdev(),
            xattrs: self.xattrs.digest,
        };
        view.digest()
    }

    /// Computes the term that the inode should have in the digest of the tree.
    pub(super) fn term_now(&self, is_root: bool) -> Digest {
        let names = self.names.as_slice();
        if names.is_empty() && !is_root {
            return Digest::default();
        }
        let node = self.node_digest();
        if is_root {
            return entry_term(PathHash::ROOT, node);
        }
        let (mut term, mut paths) = (Digest::default(), Digest::default());
        for name in names {
            term += entry_term(name.path, node);
            paths += name.path.0;
        }
        if names.len() > 1 {
            term += group_term(paths);
        }
        term
    }
}
