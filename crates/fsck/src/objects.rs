//! What a repaired disk still holds: the objects of two disks compared.
//!
//! SWIFT's completeness, per object: a checker may change what the corruption hit; everything else
//! must still be there, under its name, as it was.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// All that a user would see of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    pub(crate) kind: String,
    pub(crate) inode: u64,
    pub(crate) permissions: u16,
    pub(crate) owner: (u32, u32),
    pub(crate) links: u32,
    pub(crate) size: u64,
    /// A sum of the contents, the target or the device number.
    pub(crate) content: u128,
    pub(crate) xattrs: Vec<(String, u128)>,
}

impl Object {
    /// A name that leads nowhere.
    pub(crate) fn broken(why: &str) -> Object {
        Object {
            kind: why.to_owned(),
            inode: 0,
            permissions: 0,
            owner: (0, 0),
            links: 0,
            size: 0,
            content: 0,
            xattrs: Vec::new(),
        }
    }

    /// Whether the data is the same, whatever the attributes say.
    fn same_data(&self, other: &Object) -> bool {
        (&self.kind, self.size, self.content) == (&other.kind, other.size, other.content)
    }
}

/// Every path of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Objects {
    pub(crate) objects: BTreeMap<String, Object>,
}

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    /// Its data is nowhere on the disk.
    Lost,
    /// It has another name now, in `lost+found` or elsewhere.
    Moved(String),
    /// It is where it was, and what it holds is not the same.
    Data,
    /// It is where it was, with other attributes.
    Attributes(&'static str),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Lost => write!(f, "lost"),
            Loss::Moved(to) => write!(f, "moved to {to}"),
            Loss::Data => write!(f, "its contents changed"),
            Loss::Attributes(which) => write!(f, "its {which} changed"),
        }
    }
}

impl Objects {
    /// Reads every object of a disk.
    ///
    /// # Errors
    /// If there is no tree to read, or no reader for the file system.
    pub(crate) fn of(disk: &[u8], file_system: &str) -> Result<Objects, String> {
        match file_system {
            "ext2" | "ext3" | "ext4" => crate::ext::tree::objects(disk),
            _ => Err(format!("there is no reader of {file_system}")),
        }
    }

    /// What of this disk is not on another one as it was, in order of path.
    pub(crate) fn losses(&self, after: &Objects) -> Vec<(String, Loss)> {
        let mut out = Vec::new();
        for (path, object) in &self.objects {
            match after.objects.get(path) {
                Some(same) if same == object => {}
                Some(other) => {
                    out.extend(difference(object, other).map(|loss| (path.clone(), loss)))
                }
                None => out.push((path.clone(), after.rescued(object))),
            }
        }
        out
    }

    /// Where an object that lost its name is now: under another one, with the same inode and data.
    fn rescued(&self, object: &Object) -> Loss {
        let same = |found: &Object| found.inode == object.inode && found.same_data(object);
        let moved = self.objects.iter().find(|(_, found)| same(found));
        moved.map_or(Loss::Lost, |(place, _)| Loss::Moved(place.clone()))
    }
}

fn difference(before: &Object, after: &Object) -> Option<Loss> {
    if !before.same_data(after) {
        return Some(Loss::Data);
    }
    if before.permissions != after.permissions {
        return Some(Loss::Attributes("permissions"));
    }
    if before.owner != after.owner {
        return Some(Loss::Attributes("owner"));
    }
    if before.xattrs != after.xattrs {
        return Some(Loss::Attributes("extended attributes"));
    }
    (before.links != after.links).then_some(Loss::Attributes("link count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64, content: u128) -> Object {
        Object { kind: "file".into(), inode, content, links: 1, ..Object::broken("") }
    }

    fn disk(objects: &[(&str, Object)]) -> Objects {
        Objects {
            objects: objects
                .iter()
                .map(|(path, object)| ((*path).to_owned(), object.clone()))
                .collect(),
        }
    }

    #[test]
    fn each_loss_has_its_name() {
        let before = disk(&[
            ("/a", file(12, 1)),
            ("/d/b", file(13, 2)),
            ("/c", file(14, 3)),
            ("/e", file(15, 4)),
        ]);
        assert_eq!(before.losses(&before), []);
        let mut renamed = file(15, 4);
        renamed.links = 2;
        let after = disk(&[
            ("/lost+found/#12", file(12, 1)),
            ("/lost+found/#11/b", file(13, 2)),
            ("/c", file(14, 9)),
            ("/e", renamed),
        ]);
        let told: Vec<String> =
            before.losses(&after).iter().map(|(path, loss)| format!("{path} {loss}")).collect();
        assert_eq!(
            told,
            [
                "/a moved to /lost+found/#12",
                "/c its contents changed",
                "/d/b moved to /lost+found/#11/b",
                "/e its link count changed",
            ]
        );
        assert_eq!(before.losses(&disk(&[])).len(), 4);
    }
}
