//! Field maps: every field of a disk by name, with its place, its type and its checksum.
//!
//! The structures are data (`maps/*.layout`); one module per family of file systems walks an image and
//! says where they lie. A field is called by structure and name, `inode[12 "/d/f1"].i_blocks_lo`; the
//! words in quotes are for people and may be left out.

mod btrfs;
mod builder;
mod exfat;
mod ext;
mod f2fs;
mod fat;
mod guard;
mod jfs;
mod kind;
mod layout;
mod minix;
mod reiserfs;
mod show;
mod xfs;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use builder::Builder;
pub(crate) use guard::Guard;
pub use kind::Kind;
pub use layout::Order;
pub use show::{parse_number, show};

/// A field of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The structure with its place, for example `inode[12 "/d/f1"]`.
    pub structure: Arc<str>,
    /// The name in the structure.
    pub name: Arc<str>,
    /// The first byte.
    pub at: u64,
    /// Bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// The order of the bytes.
    pub order: Order,
    /// What it is for.
    pub kind: Kind,
    /// The checksum that covers it, an index of the map's guards.
    pub(crate) guard: Option<usize>,
    /// Whether a campaign tries it: one structure of each sort is enough.
    pub sampled: bool,
}

/// Something that a pointer may point to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is there: "inode bitmap", "data of /f".
    pub what: String,
    /// [`Kind::Block`] or [`Kind::Inode`].
    pub kind: Kind,
    /// Its number.
    pub number: u64,
}

/// Every field of one image.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// The file system: `ext4`, `vfat`, ….
    pub file_system: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The fields, in the order in which the walk met them.
    pub fields: Vec<Field>,
    /// What pointers may point to, one of each sort.
    pub targets: Vec<Target>,
    pub(crate) guards: Vec<Guard>,
    /// Places without fields that have a name: the work space of a checker.
    pub(crate) areas: Vec<(String, Range<u64>)>,
    /// What a reader should know: structures that were not followed, checksums that are wrong.
    pub notes: Vec<String>,
}

/// Why an image has no map.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// No file system that we know is in it.
    #[error("no file system that fathom has a map for is in it (there are maps for {})", known.join(", "))]
    Unknown {
        /// The file systems that have maps.
        known: Vec<&'static str>,
    },
    /// Another one than was asked for.
    #[error("there is {found} in it, not {wanted}")]
    Other {
        /// What was asked for.
        wanted: String,
        /// What is there.
        found: &'static str,
    },
    /// The walk cannot go on.
    #[error("the map of {file_system} does not fit: {what}")]
    Misfit {
        /// The file system.
        file_system: &'static str,
        /// What does not fit, with its place.
        what: String,
    },
    /// No field has the name.
    #[error("no field is called {name:?}{}", near.as_ref().map_or(String::new(), |near| format!(": did you mean {near}?")))]
    NoField {
        /// What was typed.
        name: String,
        /// A field with a similar name.
        near: Option<String>,
    },
    /// The value does not fit into the field, or is no number.
    #[error("{field} has {width} bytes: {value:?} does not fit")]
    Value {
        /// The field.
        field: String,
        /// Its bytes.
        width: u8,
        /// What was typed.
        value: String,
    },
}

/// A file system with a map.
struct FileSystem {
    name: &'static str,
    /// Whether the image has its magic number.
    is_in: fn(&[u8]) -> bool,
    walk: fn(&[u8]) -> Result<Map, MapError>,
}

const FILE_SYSTEMS: &[FileSystem] = &[
    FileSystem { name: "ext", is_in: ext::is_in, walk: ext::walk },
    FileSystem { name: "xfs", is_in: xfs::is_in, walk: xfs::walk },
    FileSystem { name: "btrfs", is_in: btrfs::is_in, walk: btrfs::walk },
    FileSystem { name: "f2fs", is_in: f2fs::is_in, walk: f2fs::walk },
    FileSystem { name: "jfs", is_in: jfs::is_in, walk: jfs::walk },
    FileSystem { name: "reiserfs", is_in: reiserfs::is_in, walk: reiserfs::walk },
    FileSystem { name: "exfat", is_in: exfat::is_in, walk: exfat::walk },
    FileSystem { name: "vfat", is_in: fat::is_in, walk: fat::walk },
    // Its magic number is short and in the first blocks: the last to be asked.
    FileSystem { name: "minix", is_in: minix::is_in, walk: minix::walk },
];

impl Map {
    /// Finds out what is in an image and maps it.
    ///
    /// # Errors
    /// If it is no file system with a map, or so damaged that the walk cannot begin.
    pub fn of(disk: &[u8]) -> Result<Map, MapError> {
        match FILE_SYSTEMS.iter().find(|system| (system.is_in)(disk)) {
            Some(system) => {
                let mut map = (system.walk)(disk)?;
                let wrong = map.wrong_sums(disk);
                if let Some(first) = wrong.first() {
                    let note = format!("{} checksums are wrong, the first is {first}", wrong.len());
                    map.notes.push(note);
                }
                Ok(map)
            }
            None => Err(MapError::Unknown {
                known: FILE_SYSTEMS.iter().map(|system| system.name).collect(),
            }),
        }
    }

    /// Maps an image that should have one of these file systems.
    ///
    /// # Errors
    /// As [`Map::of`], and if another file system is in it.
    pub fn of_one(disk: &[u8], wanted: &[String]) -> Result<Map, MapError> {
        let map = Map::of(disk)?;
        if wanted.contains(&map.file_system) {
            return Ok(map);
        }
        let found = FILE_SYSTEMS.iter().find(|system| (system.is_in)(disk));
        Err(MapError::Other {
            wanted: wanted.join(" or "),
            found: found.map_or("another file system", |system| system.name),
        })
    }

    /// Keeps the fields that have one of these bytes, all of them to be tried; a byte of no field becomes one.
    pub(crate) fn keep(&mut self, bytes: &[u64]) {
        let hit = |field: &Field| {
            let from = bytes.partition_point(|at| *at < field.at);
            bytes.get(from).is_some_and(|at| field.bytes().contains(at))
        };
        self.fields.retain(hit);
        self.fields.iter_mut().for_each(|field| field.sampled = true);
        let mut covered: Vec<Range<u64>> = self.fields.iter().map(Field::bytes).collect();
        covered.sort_by_key(|range| range.start);
        for at in bytes {
            let before = covered.partition_point(|range| range.start <= *at);
            if before > 0 && covered[before - 1].contains(at) {
                continue;
            }
            self.fields.push(Field {
                structure: Arc::from("byte"),
                name: Arc::from(at.to_string()),
                at: *at,
                width: 1,
                order: Order::Little,
                // Single bits, all and none: as many values as a byte of a bitmap has.
                kind: Kind::Bitmap,
                guard: None,
                sampled: true,
            });
        }
    }

    /// Finds a field by name; the words in quotes may be left out.
    ///
    /// # Errors
    /// If there is none: with the nearest name.
    pub fn find(&self, name: &str) -> Result<&Field, MapError> {
        let wanted = plain(name);
        let found = self.fields.iter().find(|field| plain(&field.to_string()) == wanted);
        found.ok_or_else(|| MapError::NoField { name: name.to_owned(), near: self.near(&wanted) })
    }

    /// The name that shares most with what was typed.
    fn near(&self, wanted: &str) -> Option<String> {
        let (structure, field) = wanted.rsplit_once('.')?;
        let score = |candidate: &Field| {
            let same =
                |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            same(&plain(&candidate.structure), structure) * 2 + same(&candidate.name, field)
        };
        let best = self.fields.iter().max_by_key(|candidate| score(candidate))?;
        (score(best) > 3).then(|| best.to_string())
    }

    /// Writes a value into a field. With `fix`, the checksums that cover it are put right.
    pub fn set(&self, disk: &mut [u8], field: &Field, value: u64, fix: bool) {
        field.write(disk, value);
        if fix {
            self.fix(disk, field);
        }
    }

    /// Writes a value and says which bytes that changed: place, bytes.
    pub(crate) fn writes(
        &self,
        disk: &mut [u8],
        field: &Field,
        value: u64,
        fix: bool,
    ) -> Vec<(u64, Vec<u8>)> {
        self.set(disk, field, value, fix);
        let mut places = vec![(field.at, u64::from(field.width))];
        if fix {
            for guard in self.guards_of(field) {
                places.extend(guard.stores.iter().map(|store| (store.at, u64::from(store.width))));
            }
        }
        let bytes = |at: u64, length: u64| {
            disk.get(at as usize..(at + length) as usize).map(<[u8]>::to_vec)
        };
        places.into_iter().filter_map(|(at, length)| Some((at, bytes(at, length)?))).collect()
    }

    /// Puts the checksums right that cover a field.
    pub(crate) fn fix(&self, disk: &mut [u8], field: &Field) {
        for guard in self.guards_of(field) {
            guard.fix(disk);
        }
    }

    /// The checksums that cover a field, the innermost first.
    fn guards_of(&self, field: &Field) -> Vec<&Guard> {
        let mut out = Vec::new();
        let mut next = field.guard;
        // A field that is a sum itself stays as it was set; the sums over it are put right.
        if field.kind == Kind::Checksum {
            let own = next
                .and_then(|index| self.guards.get(index))
                .filter(|guard| guard.stores.iter().any(|store| field.bytes().contains(&store.at)));
            if let Some(guard) = own {
                next = guard.next;
            }
        }
        // Sums of sums end at the superblock; the bound is for maps with a mistake in them.
        for _ in 0..8 {
            let Some(guard) = next.and_then(|index| self.guards.get(index)) else { break };
            out.push(guard);
            next = guard.next;
        }
        out
    }

    /// Whether a checksum covers a field.
    pub(crate) fn is_guarded(&self, field: &Field) -> bool {
        !self.guards_of(field).is_empty()
    }

    /// The checksums of the image that are wrong, by the name of a field that keeps them.
    pub fn wrong_sums(&self, disk: &[u8]) -> Vec<String> {
        let wrong = self.guards.iter().filter(|guard| !guard.holds(disk));
        let name = |guard: &Guard| {
            let at = guard.stores.first().map_or(0, |store| store.at);
            let field = self.fields.iter().find(|field| field.at == at);
            field.map_or_else(|| format!("the sum at byte {at}"), ToString::to_string)
        };
        wrong.map(name).collect()
    }
}

/// A name without the words in quotes.
fn plain(name: &str) -> String {
    let outside = name.split('"').step_by(2).collect::<String>();
    outside.replace(" ]", "]")
}

impl Field {
    /// The bytes of the field.
    pub fn bytes(&self) -> Range<u64> {
        self.at..self.at + u64::from(self.width)
    }

    /// The value in an image; 0 if the image is too short.
    pub fn read(&self, disk: &[u8]) -> u64 {
        let at = self.at as usize;
        let bytes = disk.get(at..at + usize::from(self.width)).unwrap_or_default();
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match self.order {
            Order::Little => bytes.iter().rev().fold(0, add),
            Order::Big => bytes.iter().fold(0, add),
        }
    }

    /// The bytes of a value.
    pub fn encode(&self, value: u64) -> Vec<u8> {
        let mut bytes = value.to_le_bytes()[..usize::from(self.width)].to_vec();
        if self.order == Order::Big {
            bytes.reverse();
        }
        bytes
    }

    /// The largest value.
    pub fn max(&self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.width))
    }

    fn write(&self, disk: &mut [u8], value: u64) {
        let at = self.at as usize;
        if let Some(place) = disk.get_mut(at..at + usize::from(self.width)) {
            place.copy_from_slice(&self.encode(value));
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.structure, self.name)
    }
}
