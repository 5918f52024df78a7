//! Completeness between checkers: the same semantic corruption on the same tree in several file systems, and
//! what each checker leaves of the tree (SWIFT, section 4.3 and table 10).
//!
//! Which fields mean the same is data (`compare.toml`). A kernel reads what is left. Unlike in a campaign the
//! object that was hit counts too: the question is who keeps more of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::checker::Says;
use crate::judge::{Loss, says};
use crate::kernel::Kernel;
use crate::look::{DiskLooker, Mounted};
use crate::map::{Field, Kind, Map};
use crate::objects::Objects;
use crate::run::{DiskDelta, RunError};
use crate::runner::CaseRunner;
use crate::subject::{REPAIR, Subject};

/// Repairs of one disk at most: what the third leaves is what there is.
const REPAIRS_MAX: usize = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    #[serde(rename = "field")]
    fields: Vec<SharedField>,
}

/// A field that several file systems have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SharedField {
    about: String,
    changes: Vec<String>,
    ext: Option<String>,
    reiserfs: Option<String>,
    minix: Option<String>,
}

impl SharedField {
    /// The name of the field on a file system, with `*` for what differs from disk to disk.
    fn pattern(&self, file_system: &str) -> Option<&str> {
        let name = match file_system {
            "ext2" | "ext3" | "ext4" => &self.ext,
            "reiserfs" => &self.reiserfs,
            "minix" => &self.minix,
            _ => &None,
        };
        name.as_deref()
    }
}

/// What a checker left of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The corruption, by field and value.
    pub case: String,
    /// How the repairs ended, one after the other.
    pub ends: Vec<String>,
    /// Whether the last repair said that the disk is fine.
    pub is_fine: bool,
    /// Why there is no tree: the kernel did not mount the disk, or died of it.
    pub unmounted: Option<String>,
    /// Objects that are gone, have another name, other contents, other attributes.
    pub lost: usize,
    /// Objects under another name.
    pub moved: usize,
    /// Objects with other contents.
    pub contents: usize,
    /// Objects with other attributes.
    pub attributes: usize,
    /// Each of them in words.
    pub losses: Vec<String>,
}

/// One corruption in every file system.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What the field means.
    pub about: String,
    /// What was done to it.
    pub change: String,
    /// What each checker left, in the order of the subjects; nothing where there is no such field.
    pub kept: Vec<Option<Kept>>,
}

/// Compares checkers field by field. `told` is given the name of each disk before its turn.
///
/// # Errors
/// If the harness fails, or a kernel does not mount a healthy disk.
pub fn compare(
    subjects: &[Subject],
    looker: &Arc<dyn DiskLooker>,
    mut told: impl FnMut(&str),
) -> Result<Vec<Compared>, RunError> {
    let shared = shared();
    let mut rows: Vec<Compared> = Vec::new();
    for field in &shared.fields {
        rows.extend(field.changes.iter().map(|change| Compared {
            about: field.about.clone(),
            change: change.clone(),
            kept: Vec::new(),
        }));
    }
    for subject in subjects {
        told(&subject.disk.name);
        let column = column(subject, &shared, looker)?;
        for (row, kept) in rows.iter_mut().zip(column) {
            row.kept.push(kept);
        }
    }
    rows.retain(|row| row.kept.iter().any(Option::is_some));
    Ok(rows)
}

/// The fields in common. The file is a part of the program, and a test reads it.
fn shared() -> Shared {
    toml::from_str(include_str!("../compare.toml"))
        .unwrap_or_else(|_| Shared { fields: Vec::new() })
}

/// What one checker leaves after each corruption.
fn column(
    subject: &Subject,
    shared: &Shared,
    looker: &Arc<dyn DiskLooker>,
) -> Result<Vec<Option<Kept>>, RunError> {
    let mut runner = CaseRunner::new(subject)?;
    let mut left: Vec<Option<(Kept, DiskDelta)>> = Vec::new();
    for field in &shared.fields {
        for change in &field.changes {
            let case = case(subject, field, change);
            left.push(case.map(|case| repaired(subject, &mut runner, &case)).transpose()?);
        }
    }
    let mut kernel = Kernel::new(subject, looker.clone())?;
    let disks: Vec<&DiskDelta> = left.iter().flatten().map(|(_, disk)| disk).collect();
    kernel.look_at(subject, &disks)?;
    let count = |(kept, disk): (Kept, DiskDelta)| counted(kept, kernel.answer(&disk), &kernel);
    Ok(left.into_iter().map(|left| left.map(count)).collect())
}

/// The corruption of a field on a disk; nothing if the disk has no such field or the value is there already.
fn case(subject: &Subject, shared: &SharedField, change: &str) -> Option<Case> {
    let pattern = shared.pattern(&subject.map.file_system)?;
    let field = subject.map.fields.iter().find(|field| fits(pattern, &field.to_string()))?;
    let value = changed(&subject.map, &subject.disk.bytes, field, change)?;
    let mut scratch = (*subject.disk.bytes).clone();
    Some(Case::new(&subject.map, &mut scratch, field, value, true))
}

/// Whether a name is that of a pattern in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == name };
    let Some(left) = name.strip_prefix(head) else { return false };
    // A star stays within its pair of brackets.
    let ends = left.char_indices().map(|(at, _)| at).chain([left.len()]);
    ends.take_while(|end| !left[..*end].contains("].")).any(|end| fits(tail, &left[end..]))
}

/// The value of a field after a change; nothing if that is no change.
fn changed(map: &Map, disk: &[u8], field: &Field, change: &str) -> Option<u64> {
    const TYPES: &[(&str, u64)] = &[
        ("type fifo", 0x1000),
        ("type character device", 0x2000),
        ("type directory", 0x4000),
        ("type symbolic link", 0xa000),
        ("type socket", 0xc000),
    ];
    let (present, max) = (field.read(disk), field.max());
    let target = || {
        let is_file = |what: &str| ["data of a file", "data", "file"].contains(&what);
        map.targets.iter().find(|target| target.kind == Kind::Block && is_file(&target.what))
    };
    let value = match change {
        "0" => 0,
        "max" => max,
        "+1" => present.wrapping_add(1) & max,
        "-1" => present.wrapping_sub(1) & max,
        "*2" => present.wrapping_mul(2) & max,
        "/2" => present / 2,
        "outside" => disk.len() as u64 / map.block_bytes.max(1) + 10,
        "another file" => target()?.number,
        _ => present & 0xfff | TYPES.iter().find(|(name, _)| *name == change)?.1,
    };
    (value != present).then_some(value)
}

/// Repairs a corrupted disk until the checker is content, three times at most.
fn repaired(
    subject: &Subject,
    runner: &mut CaseRunner<'_>,
    case: &Case,
) -> Result<(Kept, DiskDelta), RunError> {
    let mut disk = DiskDelta::written(&subject.disk.bytes, &case.writes);
    let mut kept = Kept { case: case.text(), ..Kept::default() };
    for _ in 0..REPAIRS_MAX {
        let (outcome, after, _) = runner.run(REPAIR, &disk)?;
        let changed = after != disk;
        let said = says(&subject.checker, &outcome, true, changed);
        disk = after;
        kept.ends.push(outcome.end.to_string());
        kept.is_fine = matches!(said, Some(Says::Clean | Says::Repaired | Says::CleanOrRepaired));
        let is_last = said == Some(Says::Clean) || !changed;
        if is_last || said.is_none() {
            break;
        }
    }
    Ok((kept, disk))
}

/// Counts what is not as it was.
fn counted(mut kept: Kept, mounted: Option<&Mounted>, kernel: &Kernel) -> Kept {
    let Some(mounted) = mounted else {
        kept.unmounted = Some("no answer".to_owned());
        return kept;
    };
    if let Some(why) = mounted.died.as_ref().or(mounted.refused.as_ref()) {
        kept.unmounted = Some(why.clone());
        return kept;
    }
    count(&mut kept, kernel.healthy(), &mounted.objects);
    kept
}

fn count(kept: &mut Kept, healthy: &Objects, now: &Objects) {
    for (path, loss) in healthy.losses(now) {
        let sort = match &loss {
            Loss::Lost => &mut kept.lost,
            Loss::Moved(_) => &mut kept.moved,
            Loss::Data => &mut kept.contents,
            Loss::Attributes(_) => &mut kept.attributes,
        };
        *sort += 1;
        kept.losses.push(format!("{path}: {loss}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, NoGuests};

    #[test]
    fn every_field_in_common_is_on_the_disks() {
        let shared = shared();
        assert!(shared.fields.len() >= 18, "{}", shared.fields.len());
        for name in ["ext4", "ext2"] {
            let Ok(disk) = Disk::named(name, &NoGuests) else {
                println!("SKIP {name}: mke2fs is not installed (e2fsprogs)");
                return;
            };
            let map = Map::of(&disk.bytes).unwrap();
            for field in &shared.fields {
                let pattern = field.pattern("ext4").unwrap();
                let found = map.fields.iter().find(|field| fits(pattern, &field.to_string()));
                let found = found.unwrap_or_else(|| panic!("{name} has no {pattern}"));
                let values: Vec<u64> = field
                    .changes
                    .iter()
                    .filter_map(|change| changed(&map, &disk.bytes, found, change))
                    .collect();
                assert!(!values.is_empty(), "{}: nothing changes", field.about);
            }
        }
    }

    #[test]
    fn a_star_stays_within_its_brackets() {
        assert!(fits("inode[*\"/a\"].i_mode", "inode[12 \"/a\"].i_mode"));
        assert!(!fits("inode[*\"/a\"].i_mode", "inode[12 \"/b\"].i_mode"));
        assert!(!fits("node[*].block", "node[1].child[2].block"));
        assert!(fits("node[*].child[0].block", "node[533].child[0].block"));
        assert!(fits("leaf[*].item[*\"/a\"].pointer[0]", "leaf[5].item[3 \"/a\"].pointer[0]"));
        assert!(fits("superblock.s_magic", "superblock.s_magic"));
    }

    #[test]
    fn losses_are_counted_by_their_sort() {
        use crate::objects::Object;
        let file = |inode, content| Object { inode, content, ..Object::broken("file") };
        let disk = |objects: &[(&str, Object)]| Objects {
            objects: objects
                .iter()
                .map(|(path, object)| ((*path).into(), object.clone()))
                .collect(),
        };
        let healthy = disk(&[("/a", file(1, 1)), ("/b", file(2, 2)), ("/c", file(3, 3))]);
        let mut kept = Kept::default();
        count(&mut kept, &healthy, &healthy);
        assert_eq!((kept.lost, kept.moved, kept.contents), (0, 0, 0));
        let now = disk(&[("/a", file(1, 9)), ("/lost+found/#2", file(2, 2))]);
        count(&mut kept, &healthy, &now);
        assert_eq!((kept.lost, kept.moved, kept.contents, kept.attributes), (1, 1, 1, 0));
    }
}
