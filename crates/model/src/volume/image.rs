//! Exports a volume in a form that can be stored, and imports it without trust in what comes back.

use std::collections::{BTreeSet, HashMap};

use fathom_core::{FsBytes, Mode, Stamp, Times};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::contents::Contents;
use super::directory::{Directory, Link};
use super::inode::{Body, Inode, Name, Names, Xattrs};
use super::state::{State, check_name};
use super::{Ino, ROOT, Volume, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use crate::config::Config;

/// A volume in a form that can be stored: everything but pins, files that only pins keep, and
/// what a [`crate::Mutant`] remembers. Inodes are known by their place in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeImage {
    config: Config,
    clock: u64,
    /// The inodes, the root directory first.
    inodes: Vec<InodeImage>,
}

/// The numbers that the inodes of an image had in their volume, which an image does not tell: who keeps file handles
/// needs them to be the same when it is imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeNumbers {
    /// The last generation that was given out.
    generation: u32,
    /// In the order of the image.
    inos: Vec<Ino>,
}

/// No inode of a file that is imported has a slot above: a table has a place for each slot below its last one, and a
/// damaged file must not take all memory.
const SLOTS_MAX: u64 = 1 << 26;

impl InodeNumbers {
    /// New ones for so many inodes, when generations up to `generation` are taken.
    fn after(generation: u32, count: u64) -> InodeNumbers {
        let generation_at = |place: u64| u64::from(generation.wrapping_add(place as u32));
        let ino =
            |place: u64| if place == 0 { ROOT } else { (place + 1) | generation_at(place) << 32 };
        let inos = (0..count).map(ino).collect();
        InodeNumbers { generation: generation_at(count - 1) as u32, inos }
    }

    /// Whether these can be the numbers of so many inodes.
    fn check(&self, count: u64, slots_max: u64) -> Result<(), String> {
        let slots: BTreeSet<u64> = self.inos.iter().map(|ino| ino & u64::from(u32::MAX)).collect();
        let is_one_each = self.inos.len() as u64 == count && slots.len() as u64 == count;
        let fits = slots.iter().all(|slot| (1..=slots_max).contains(slot));
        // Generations begin again after 2³² inodes, so that any of them can be there.
        if is_one_each && fits && self.inos.first() == Some(&ROOT) {
            return Ok(());
        }
        Err("the numbers of the inodes cannot be".to_owned())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InodeImage {
    mode: Mode,
    uid: u32,
    gid: u32,
    nlink: u32,
    times: Times,
    xattrs: Vec<(FsBytes, Bytes)>,
    body: BodyImage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BodyImage {
    File {
        size: u64,
        pages: Vec<(u64, u8, Bytes)>,
        reserved: Vec<(u64, u64)>,
    },
    /// A directory. Entries are name, place of the inode in the list, cookie.
    Dir {
        entries: Vec<(FsBytes, u64, u64)>,
        cookie_next: u64,
    },
    Symlink(FsBytes),
    Fifo,
    Socket,
    Char(u32, u32),
    Block(u32, u32),
}

/// Bytes of a file: hexadecimal in text formats, as they are in binary ones.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_bytes(&self.0);
        }
        let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
        let text: String = self.0.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Vec::deserialize(deserializer).map(Bytes);
        }
        let text = String::deserialize(deserializer)?;
        let byte = |pair: &[u8]| {
            let [high, low] = pair else { return None };
            let digit = |c: u8| char::from(c).to_digit(16);
            Some((digit(*high)? << 4 | digit(*low)?) as u8)
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.map(Bytes).ok_or_else(|| serde::de::Error::custom("not pairs of hexadecimal digits"))
    }
}

impl VolumeImage {
    /// Replaces ticks of the logical clock by the times (seconds, nanoseconds) that they stand for:
    /// in another volume the same ticks mean other times.
    pub fn fix_times(&mut self, time_of: impl Fn(u64) -> (i64, u32)) {
        for inode in &mut self.inodes {
            let Times { atime, mtime, ctime } = &mut inode.times;
            for stamp in [atime, mtime, ctime] {
                if let Stamp::Tick(tick) = *stamp {
                    let (sec, nsec) = time_of(tick);
                    *stamp = Stamp::At { sec, nsec };
                }
            }
        }
    }
}

impl Volume {
    /// Converts the volume to a form that can be stored.
    pub fn export(&self) -> VolumeImage {
        let state = &*self.state;
        let (order, places) = self.order();
        let inodes = order.iter().filter_map(|ino| state.table.get(*ino));
        let inodes = inodes.map(|inode| inode_image(inode, |ino| places[&ino])).collect();
        VolumeImage { config: Config::clone(&state.config), clock: state.clock, inodes }
    }

    /// The numbers of the inodes of [`Volume::export`].
    pub fn numbers(&self) -> InodeNumbers {
        InodeNumbers { generation: self.state.generation, inos: self.order().0 }
    }

    /// The inodes of the tree and the place of each, breadth first from the root: the order depends on nothing but
    /// the tree.
    fn order(&self) -> (Vec<Ino>, HashMap<Ino, u64>) {
        let state = &*self.state;
        let mut order = vec![ROOT];
        let mut places = HashMap::from([(ROOT, 0)]);
        let mut at = 0;
        while let Some(ino) = order.get(at) {
            for link in state.dir(*ino).into_iter().flat_map(Directory::links) {
                places.entry(link.ino).or_insert_with(|| {
                    order.push(link.ino);
                    order.len() as u64 - 1
                });
            }
            at += 1;
        }
        (order, places)
    }

    /// Rebuilds a volume and checks every invariant.
    ///
    /// # Errors
    /// Says what is wrong with the image.
    pub fn import(image: VolumeImage) -> Result<Volume, String> {
        image.config.validate().map_err(|error| error.to_string())?;
        import_after(image, 0)
    }

    /// The same with the numbers that its inodes had.
    ///
    /// # Errors
    /// Says what is wrong with the image or the numbers.
    pub fn import_numbered(image: VolumeImage, numbers: &InodeNumbers) -> Result<Volume, String> {
        image.config.validate().map_err(|error| error.to_string())?;
        // Files that were open when they were removed had slots, too.
        let slots_max = image.config.inodes.saturating_mul(2).min(SLOTS_MAX);
        numbers.check(image.inodes.len() as u64, slots_max)?;
        import(image, numbers)
    }

    /// Rebuilds a volume as a snapshot that this volume can be restored to: no inode of it has a
    /// number that this volume has ever given out, nor will this one give out theirs.
    ///
    /// # Errors
    /// Says what is wrong with the image.
    pub fn adopt(&mut self, image: VolumeImage) -> Result<Volume, String> {
        image.config.validate().map_err(|error| error.to_string())?;
        let volume = import_after(image, self.state.generation)?;
        std::sync::Arc::make_mut(&mut self.state).generation = volume.state.generation;
        Ok(volume)
    }
}

fn inode_image(inode: &Inode, place: impl Fn(Ino) -> u64) -> InodeImage {
    let body = match &inode.body {
        Body::File(contents) => {
            let pages = contents.visible_pages();
            BodyImage::File {
                size: contents.size(),
                pages: pages.map(|(n, mask, bytes)| (n, mask, Bytes(bytes.to_vec()))).collect(),
                reserved: contents.reserved().ranges().to_vec(),
            }
        }
        Body::Dir(dir) => {
            let links = dir.links();
            BodyImage::Dir {
                entries: links.map(|l| (l.name.to_fs_bytes(), place(l.ino), l.cookie)).collect(),
                cookie_next: dir.cookie_next(),
            }
        }
        Body::Symlink(target) => BodyImage::Symlink(target.clone()),
        Body::Fifo => BodyImage::Fifo,
        Body::Socket => BodyImage::Socket,
        Body::Char(major, minor) => BodyImage::Char(*major, *minor),
        Body::Block(major, minor) => BodyImage::Block(*major, *minor),
    };
    let xattrs = inode.xattrs.list().iter();
    InodeImage {
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink,
        times: inode.times,
        xattrs: xattrs.map(|x| (x.name.clone(), Bytes(x.value.as_bytes().to_vec()))).collect(),
        body,
    }
}

/// Gives the inodes new numbers when generations up to `generation` are taken.
fn import_after(image: VolumeImage, generation: u32) -> Result<Volume, String> {
    let (count, most) = (image.inodes.len() as u64, image.config.inodes);
    if count == 0 || count > most || count >= u64::from(u32::MAX) {
        return Err(format!("{count} inodes: there must be one, and at most {most}"));
    }
    import(image, &InodeNumbers::after(generation, count))
}

fn import(image: VolumeImage, numbers: &InodeNumbers) -> Result<Volume, String> {
    let mutated = image.config.mutant.is_some();
    let mut state = State::empty(image.config);
    (state.clock, state.generation) = (image.clock, numbers.generation);
    let inos = &numbers.inos;
    let mut inodes = Vec::with_capacity(image.inodes.len());
    for (place, inode) in image.inodes.into_iter().enumerate() {
        let inode =
            inode_of(inode, &state, inos).map_err(|what| format!("inode {place}: {what}"))?;
        inodes.push(inode);
    }
    name_all(&mut inodes, inos)?;
    for (ino, inode) in inos.iter().zip(inodes) {
        state.install_at(*ino, inode);
    }
    state.rehash_subtree(ROOT);
    let volume = Volume { state: state.into(), pins: Default::default() };
    match volume.check_invariants() {
        // Wrong link counts and the like are what a mutant is for.
        Err(what) if !mutated => Err(what),
        _ => Ok(volume),
    }
}

/// Gives every inode its names; each must be reachable from the root, a directory in one way only.
fn name_all(inodes: &mut [Inode], inos: &[Ino]) -> Result<(), String> {
    if !inodes[0].is_dir() {
        return Err("the first inode is not a directory".to_owned());
    }
    let places: HashMap<Ino, usize> = inos.iter().copied().zip(0..).collect();
    let mut reached = BTreeSet::from([0]);
    let mut dirs = vec![0];
    while let Some(place) = dirs.pop() {
        let dir = inos[place];
        let body = inodes[place].as_dir();
        let links: Vec<_> = body.into_iter().flat_map(|body| body.links().cloned()).collect();
        for link in links {
            let child = places[&link.ino];
            let inode = &mut inodes[child];
            let first_time = reached.insert(child);
            if let Body::Dir(body) = &mut inode.body {
                if !first_time {
                    return Err(format!("directory {} has two names", link.name));
                }
                body.parent = dir;
                dirs.push(child);
            }
            let path = fathom_core::tree::PathHash::ROOT;
            inode.names.add(Name { dir, name: link.name, path });
        }
    }
    if reached.len() == inodes.len() {
        return Ok(());
    }
    Err(format!("only {} of {} inodes are in the tree", reached.len(), inodes.len()))
}

fn inode_of(image: InodeImage, state: &State, inos: &[Ino]) -> Result<Inode, String> {
    let config = &*state.config;
    let body = match image.body {
        BodyImage::File { size, pages, reserved } => {
            if size > config.quirks.file_bytes_max.min(i64::MAX as u64) {
                return Err(format!("a size of {size} is too large"));
            }
            let pages =
                pages.into_iter().map(|(n, written, bytes)| (n, written, bytes.0)).collect();
            Body::File(Contents::from_parts(config.block_bytes, size, pages, &reserved)?)
        }
        BodyImage::Dir { entries, cookie_next } => {
            let link = |(name, place, cookie): (FsBytes, u64, u64)| {
                check_name(name.as_bytes()).map_err(|_| format!("{name} cannot be a name"))?;
                let ino = inos.get(place as usize).copied().filter(|ino| *ino != ROOT);
                let ino = ino.ok_or_else(|| format!("{name} means inode {place}: not there"))?;
                Ok(Link { name: name.as_bytes().into(), ino, cookie })
            };
            let links: Result<Vec<Link>, String> = entries.into_iter().map(link).collect();
            Body::Dir(Directory::from_parts(ROOT, links?, cookie_next)?)
        }
        BodyImage::Symlink(target) => {
            if target.as_bytes().len() > config.quirks.symlink_bytes_max as usize {
                return Err("the target of the symbolic link is too long".to_owned());
            }
            Body::Symlink(target)
        }
        BodyImage::Fifo => Body::Fifo,
        BodyImage::Socket => Body::Socket,
        BodyImage::Char(major, minor) => Body::Char(major, minor),
        BodyImage::Block(major, minor) => Body::Block(major, minor),
    };
    let times = [image.times.atime, image.times.mtime, image.times.ctime];
    if times.iter().any(|time| matches!(time, Stamp::Tick(tick) if *tick > state.clock)) {
        return Err("a time is in the future".to_owned());
    }
    let mut inode = Inode::new(body, Mode(image.mode.perm()), image.uid, image.gid, Stamp::Tick(0));
    inode.nlink = image.nlink;
    inode.times = image.times;
    inode.names = Names::None;
    inode.xattrs = xattrs_of(image.xattrs)?;
    Ok(inode)
}

fn xattrs_of(list: Vec<(FsBytes, Bytes)>) -> Result<Xattrs, String> {
    let mut xattrs = Xattrs::default();
    for (name, value) in list {
        let name_fits = (1..=XATTR_NAME_BYTES_MAX).contains(&name.as_bytes().len());
        if !name_fits
            || value.0.len() > XATTR_VALUE_BYTES_MAX
            || xattrs.get(name.as_bytes()).is_some()
        {
            return Err(format!("extended attribute {name} cannot be"));
        }
        xattrs.set(name.as_bytes(), &value.0);
    }
    Ok(xattrs)
}
