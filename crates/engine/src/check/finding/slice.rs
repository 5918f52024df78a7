//! The part of a history that has to do with some paths: what named their files, and what made the
//! directories above them.
//!
//! A violation that shows only after a remount has its cause anywhere in thousands of operations, and
//! leaving out a chunk at a time takes longer than there is. But most of them are about other files.

use std::collections::BTreeSet;

use fathom_core::{FsPath, Op, Operand, Target};
use fathom_model::{Config, Ino, Model};

/// The paths and slots that one operation named.
struct Named {
    inos: BTreeSet<Ino>,
    /// The directories above the names.
    above: BTreeSet<Ino>,
    paths: Vec<FsPath>,
}

/// The operations of `ops` that have to do with `paths`, and the last one. Remounts stay.
pub(super) fn slice(reference: &Config, ops: &[Op], paths: &[FsPath]) -> Option<Vec<Op>> {
    let mut model = Model::new(Config { mutant: None, ..reference.clone() }).ok()?;
    let mut wanted = BTreeSet::new();
    let mut named = Vec::with_capacity(ops.len());
    for op in ops {
        let mut one = named_by(op, &model);
        model.execute(op);
        let after = named_by(op, &model);
        one.inos.extend(after.inos);
        one.above.extend(after.above);
        named.push(one);
        // Whatever was ever there: what should be gone may have come back.
        wanted.extend(paths.iter().filter_map(|path| model.volume().find(path, false)));
    }
    let mut kept: Vec<bool> = ops
        .iter()
        .zip(&named)
        .map(|(op, one)| {
            matches!(op, Op::Remount | Op::Wait { .. } | Op::Server { .. })
                || one.inos.intersection(&wanted).next().is_some()
                || one.paths.iter().any(|path| paths.contains(path))
        })
        .collect();
    *kept.last_mut()? = true;
    keep_directories(ops, &named, &mut kept);
    let kept = ops.iter().zip(kept).filter(|(_, kept)| *kept);
    Some(kept.map(|(op, _)| op.clone()).collect())
}

/// Also keeps what made or moved the directories above what is kept.
fn keep_directories(ops: &[Op], named: &[Named], kept: &mut [bool]) {
    loop {
        let above: BTreeSet<Ino> = named
            .iter()
            .zip(&*kept)
            .filter(|(_, kept)| **kept)
            .flat_map(|(one, _)| one.above.iter().copied())
            .collect();
        let mut grown = false;
        for (index, op) in ops.iter().enumerate() {
            let makes = matches!(op, Op::Mkdir { .. } | Op::Rename { .. });
            if !kept[index] && makes && named[index].inos.intersection(&above).next().is_some() {
                kept[index] = true;
                grown = true;
            }
        }
        if !grown {
            return;
        }
    }
}

fn named_by(op: &Op, model: &Model) -> Named {
    let volume = model.volume();
    let mut one = Named { inos: BTreeSet::new(), above: BTreeSet::new(), paths: Vec::new() };
    let mut path = |path: &FsPath| {
        let mut above = path.parent();
        while let Some(dir) = above {
            one.above.extend(volume.find(&dir, true));
            above = dir.parent();
        }
        one.inos.extend([false, true].iter().filter_map(|follow| volume.find(path, *follow)));
        one.paths.push(path.clone());
    };
    let mut slots = Vec::new();
    op.operands(|operand| match operand {
        Operand::Path(one, ..) => path(one),
        Operand::Target(Target::Path(one) | Target::Link(one), ..) => path(one),
        Operand::Target(Target::Slot(slot), ..) | Operand::Slot(slot, ..) => slots.push(*slot),
        _ => {}
    });
    one.inos.extend(slots.into_iter().filter_map(|slot| model.slot_ino(slot)));
    // The root is above everything.
    one.inos.remove(&fathom_model::ROOT);
    one.above.remove(&fathom_model::ROOT);
    one
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::{OpenFlags, RenameFlags};
    use fathom_core::{Mode, Pattern};

    use super::*;

    #[test]
    fn what_is_about_other_files_goes() {
        let mkdir = |path: &str| Op::Mkdir { path: path.into(), mode: Mode(0o755) };
        let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT;
        let open =
            |slot, path: &str| Op::Open { slot, path: path.into(), flags, mode: Mode(0o644) };
        let write = |slot| Op::Write { slot, data: Pattern { seed: 1, len: 9 } };
        let rename = Op::Rename { from: "e".into(), to: "d".into(), flags: RenameFlags::empty() };
        let ops = [
            mkdir("e"),
            mkdir("other"),
            rename.clone(),
            open(0, "d/f"),
            open(1, "other/g"),
            write(0),
            write(1),
            Op::Close { slot: 0 },
            Op::Remount,
        ];
        let expected =
            [mkdir("e"), rename, open(0, "d/f"), write(0), Op::Close { slot: 0 }, Op::Remount];
        assert_eq!(slice(&Config::default(), &ops, &["d/f".into()]).unwrap(), expected);
    }
}
