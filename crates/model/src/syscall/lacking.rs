//! What is left out on a file system that lacks something ([`Feature`]), has smaller limits, or keeps
//! times less exactly.

use fathom_core::flags::RenameFlags;
use fathom_core::{FsPath, Kind, Op, Target, TimeArg};

use super::Model;
use super::resolve::Follow;
use crate::feature::Feature;

impl Model {
    /// Why the answer says nothing where something is lacking.
    pub(super) fn unspecified_lacking(&self, op: &Op) -> Option<&'static str> {
        let quirks = self.quirks();
        if quirks.name_bytes_max < NAME_BYTES_MAX && !quirks.without_vfs {
            // What is too long for the kernel is refused by everybody.
            let too_long = quirks.name_bytes_max as usize + 1..=NAME_BYTES_MAX as usize;
            let long = |name: &[u8]| too_long.contains(&name.len());
            let names = |path: &FsPath| path.as_bytes().split(|byte| *byte == b'/').any(long);
            if paths(op).into_iter().any(names) {
                return Some("names are shorter here");
            }
        }
        if end_of(op).is_some_and(|end| end > quirks.offset_bytes_max) {
            return Some("files are smaller here");
        }
        let used = quirks.time_used_min..=quirks.time_used_max;
        if let Op::Utimens { atime, mtime, .. } = op
            && [atime, mtime]
                .iter()
                .any(|time| matches!(time, TimeArg::At { sec, .. } if !used.contains(sec)))
        {
            return Some("such times are not kept here");
        }
        if quirks.lacks.is_empty() {
            return None;
        }
        let feature = self.feature_of(op).find(|feature| quirks.lacks.contains(feature))?;
        Some(feature.consequence())
    }

    /// The features that a call needs.
    fn feature_of(&self, op: &Op) -> impl Iterator<Item = Feature> {
        let mut needs = Vec::new();
        match op {
            Op::Link { .. } | Op::LinkSlot { .. } => needs.push(Feature::HardLinks),
            Op::Symlink { .. } => needs.push(Feature::Symlinks),
            Op::Setxattr { .. }
            | Op::Getxattr { .. }
            | Op::Listxattr { .. }
            | Op::Removexattr { .. } => needs.push(Feature::Xattrs),
            Op::Chmod { .. } | Op::Access { .. } => needs.push(Feature::Modes),
            Op::Chown { .. } => needs.push(Feature::Owners),
            Op::Identity { .. } => needs.extend([Feature::Modes, Feature::Owners]),
            Op::Mknod { mode, .. } if !matches!(Kind::of_mode(mode.0), None | Some(Kind::File)) => {
                needs.push(Feature::SpecialFiles);
            }
            Op::MmapStore { .. } | Op::MmapLoad { .. } => needs.push(Feature::Mmap),
            Op::Unlink { path } if self.is_open(path) => needs.push(Feature::OpenUnlinked),
            Op::Rename { to, flags, .. } => {
                let flagged = [
                    (RenameFlags::RENAME_NOREPLACE, Feature::RenameNoreplace),
                    (RenameFlags::RENAME_EXCHANGE, Feature::RenameExchange),
                    (RenameFlags::RENAME_WHITEOUT, Feature::RenameWhiteout),
                    (RenameFlags::RENAME_WHITEOUT, Feature::SpecialFiles),
                ];
                needs.extend(flagged.iter().filter(|(flag, _)| flags.contains(*flag)).map(|f| f.1));
                if self.is_open(to) {
                    needs.push(Feature::OpenUnlinked);
                }
            }
            _ => {}
        }
        needs.into_iter()
    }

    fn is_open(&self, path: &FsPath) -> bool {
        let ino = self.resolve(path, Follow::No).ok();
        ino.is_some_and(|ino| self.open_files().any(|file| file.ino == ino))
    }
}

/// NAME_MAX of limits.h.
pub(super) const NAME_BYTES_MAX: u32 = 255;

/// The paths that an operation names.
fn paths(op: &Op) -> Vec<&FsPath> {
    let mut paths = Vec::new();
    op.operands(|operand| match operand {
        fathom_core::Operand::Path(path, ..) => paths.push(path),
        fathom_core::Operand::Target(Target::Path(path) | Target::Link(path), ..) => {
            paths.push(path);
        }
        _ => {}
    });
    paths
}

/// The end of the range that an operation names.
fn end_of(op: &Op) -> Option<u64> {
    let (offset, len) = match op {
        Op::Pread { offset, len, .. } | Op::MmapLoad { offset, len, .. } => (*offset, *len),
        Op::Pwrite { offset, data, .. } | Op::MmapStore { offset, data, .. } => (*offset, data.len),
        Op::Lseek { offset, .. } => (offset.saturating_abs(), 0),
        Op::Truncate { len, .. } => (*len, 0),
        Op::Fallocate { offset, len, .. } | Op::SyncFileRange { offset, len, .. } => {
            (*offset, u64::try_from(*len).unwrap_or(0))
        }
        Op::CopyFileRange { from_offset, to_offset, len, .. } => {
            (from_offset.unwrap_or(0).max(to_offset.unwrap_or(0)), *len)
        }
        _ => return None,
    };
    Some(u64::try_from(offset).unwrap_or(0).saturating_add(len))
}

#[cfg(test)]
mod tests {
    use fathom_core::Mode;
    use fathom_core::flags::OpenFlags;

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    fn lacking(lacks: &[Feature]) -> Model {
        let mut m = model_with(Quirks { lacks: lacks.to_vec(), ..Quirks::default() });
        given(&mut m, &[file("f", 0o644), open(0, "f", OpenFlags::O_RDWR), file("g", 0o644)]);
        m
    }

    #[test]
    fn only_what_is_lacking_is_left_out() {
        let rename = |flags| Op::Rename { from: path("g"), to: path("h"), flags };
        let over_open = Op::Rename { from: path("g"), to: path("f"), flags: RenameFlags::empty() };
        let cases = [
            (Feature::HardLinks, link("f", "new")),
            (Feature::Symlinks, symlink("f", "new")),
            (Feature::Xattrs, Op::Listxattr { target: at("f"), len: 0 }),
            (Feature::Modes, Op::Chmod { target: at("f"), mode: Mode(0) }),
            (Feature::Owners, Op::Chown { target: at("f"), uid: Some(1), gid: None }),
            (Feature::SpecialFiles, mknod("p", Mode::S_IFIFO | 0o666)),
            (Feature::RenameNoreplace, rename(RenameFlags::RENAME_NOREPLACE)),
            (Feature::RenameExchange, rename(RenameFlags::RENAME_EXCHANGE)),
            (Feature::RenameWhiteout, rename(RenameFlags::RENAME_WHITEOUT)),
            (Feature::OpenUnlinked, Op::Unlink { path: path("f") }),
            (Feature::OpenUnlinked, over_open),
            (Feature::Mmap, Op::MmapLoad { slot: 0, offset: 0, len: 1 }),
        ];
        for (feature, op) in &cases {
            assert_eq!(lacking(&[]).unspecified(op), None, "{op}");
            assert!(lacking(&[*feature]).unspecified(op).is_some(), "{feature}: {op}");
            let others: Vec<Feature> =
                Feature::ALL.iter().copied().filter(|other| other != feature).collect();
            if *feature != Feature::RenameWhiteout {
                assert_eq!(lacking(&others).unspecified(op), None, "{feature}: {op}");
            }
        }
        // Neighbours of what is lacking.
        let m = lacking(&[Feature::HardLinks, Feature::OpenUnlinked, Feature::SpecialFiles]);
        for op in [rename(RenameFlags::empty()), Op::Unlink { path: path("g") }, mknod("r", 0o644)]
        {
            assert_eq!(m.unspecified(&op), None, "{op}");
        }
    }

    #[test]
    fn limits_leave_out_what_is_beyond_them() {
        let quirks = Quirks { name_bytes_max: 100, offset_bytes_max: 1 << 32, ..Quirks::default() };
        let mut m = model_with(quirks);
        given(&mut m, &[open(0, "f", OpenFlags::O_RDWR | OpenFlags::O_CREAT)]);
        let long = |len: usize| mkdir(&"x".repeat(len), 0o755);
        let truncate = |len| Op::Truncate { target: Target::Slot(0), len };
        assert!(m.unspecified(&long(101)).is_some() && m.unspecified(&long(100)).is_none());
        assert!(m.unspecified(&truncate((1 << 32) + 1)).is_some());
        assert_eq!(m.unspecified(&truncate(1 << 32)), None);
    }
}
