//! Space: a disk may be full, and what is said to be free must follow what is stored.
//!
//! How much a file takes is the file system's own business; that removing everything gives back what
//! there was in the beginning is not. So the counts of `statfs` are compared as changes since the
//! file system was empty, within the slack of the profile. And where the reference, which is large,
//! still has room, `ENOSPC` is believed if the file system says in other words too that it is full.

use fathom_core::{Errno, HarnessFault, Op, Outcome, Pattern, Payload, Statfs, Subject, Target};
use fathom_model::{Model, Quirks};

/// A file system that still has more than this, and what was asked for, is not full. Generous:
/// there are reserves, and blocks that are promised to dirty pages.
const FULL_BYTES: u64 = 2 << 20;

/// The space that both sides told when they were empty.
#[derive(Clone, Debug)]
pub(crate) struct Baseline {
    subject: Statfs,
    model: Statfs,
}

/// Asks a subject for its space.
fn ask(subject: &mut dyn Subject) -> Result<Option<Statfs>, HarnessFault> {
    let answer = subject.apply(&Op::Statfs { target: Target::Path(".".into()) })?;
    Ok(match answer.payload {
        Payload::Statfs(statfs) => Some(statfs),
        _ => None,
    })
}

impl Baseline {
    /// Of two empty file systems, if the profile has a slack.
    pub(crate) fn of(
        subject: &mut dyn Subject,
        model: &Model,
        quirks: &Quirks,
    ) -> Result<Option<Baseline>, HarnessFault> {
        if quirks.statfs_slack_bytes == 0 {
            return Ok(None);
        }
        let model = model.volume().statfs();
        Ok(ask(subject)?.map(|subject| Baseline { subject, model }))
    }

    /// Whether `found` has changed as the reference has.
    pub(crate) fn is_followed(&self, model: &Model, found: &Statfs, quirks: &Quirks) -> bool {
        let expected = model.volume().statfs();
        let used = |then: &Statfs, now: &Statfs| {
            (then.blocks_free as i64 - now.blocks_free as i64) * then.block_bytes as i64
        };
        let apart = used(&self.subject, found) - used(&self.model, &expected);
        let files = |then: &Statfs, now: &Statfs| then.files_free as i64 - now.files_free as i64;
        let sane = found.block_bytes == self.subject.block_bytes
            && found.blocks_free <= found.blocks
            && found.blocks_available <= found.blocks_free
            && found.files_free <= found.files
            && found.name_bytes_max == expected.name_bytes_max;
        let made = files(&self.model, &expected).unsigned_abs() * expected.block_bytes;
        let slack = quirks.statfs_slack_bytes + if quirks.statfs_slack_by_entry { made } else { 0 };
        sane && apart.unsigned_abs() <= slack
            && (!quirks.statfs_counts_files
                // An open file whose name is gone keeps the directory that had it, gone as well.
                || model.has_open_files()
                || files(&self.subject, found) == files(&self.model, &expected))
    }
}

/// Whether an operation can need space.
pub(crate) fn takes_space(op: &Op) -> bool {
    bytes_of(op).is_some()
}

/// The bytes that an operation may need; `None` if it needs none.
fn bytes_of(op: &Op) -> Option<u64> {
    match op {
        Op::Write { data, .. } | Op::Pwrite { data, .. } | Op::MmapStore { data, .. } => {
            Some(data.len)
        }
        Op::Fallocate { len, .. } => Some(u64::try_from(*len).unwrap_or(0)),
        Op::CopyFileRange { len, .. } => Some(*len),
        Op::Setxattr { value, .. } => Some(value.len),
        Op::Open { .. }
        | Op::Mkdir { .. }
        | Op::Mknod { .. }
        | Op::Symlink { .. }
        | Op::Link { .. }
        | Op::LinkSlot { .. }
        | Op::Rename { .. }
        | Op::Truncate { .. } => Some(0),
        _ => None,
    }
}

/// What the reference has to do instead to stay in step, because there was no room for all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Nothing.
    Nothing,
    /// Less.
    Less(Op),
}

/// Whether the subject did less than the reference for want of space.
pub(crate) fn ran_out(
    subject: &mut dyn Subject,
    op: &Op,
    expected: &Outcome,
    found: &Outcome,
) -> Result<Option<Instead>, HarnessFault> {
    let Some(bytes) = bytes_of(op) else { return Ok(None) };
    let instead = match (&expected.result, &found.result) {
        (Ok(_), Err(Errno::ENOSPC)) => Instead::Nothing,
        // A page that cannot be had: without the harness's care the store would be a SIGBUS.
        (Ok(_), Err(Errno::EFAULT)) if matches!(op, Op::MmapStore { .. }) => Instead::Nothing,
        (Ok(want), Ok(have)) if have < want => match op {
            Op::Write { slot, data } => {
                Instead::Less(Op::Write { slot: *slot, data: Pattern { len: *have, ..*data } })
            }
            Op::Pwrite { slot, offset, data } => Instead::Less(Op::Pwrite {
                slot: *slot,
                offset: *offset,
                data: Pattern { len: *have, ..*data },
            }),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let full = ask(subject)?.is_some_and(|statfs| {
        statfs.blocks_available * statfs.block_bytes < bytes.saturating_add(FULL_BYTES)
            || (statfs.files > 0 && statfs.files_free == 0)
    });
    Ok(full.then_some(instead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_model::Config;

    fn statfs(blocks_free: u64, files_free: u64) -> Statfs {
        Statfs {
            block_bytes: 1024,
            blocks: 1000,
            blocks_free,
            blocks_available: blocks_free,
            files: 100,
            files_free,
            name_bytes_max: 255,
        }
    }

    #[test]
    fn counts_follow_within_the_slack() {
        let mut model = Model::new(Config::default()).unwrap();
        let baseline = Baseline { subject: statfs(900, 89), model: model.volume().statfs() };
        let quirks =
            Quirks { statfs_slack_bytes: 4096, statfs_counts_files: true, ..Quirks::default() };
        let follows = |model: &Model, found: &Statfs| baseline.is_followed(model, found, &quirks);
        assert!(follows(&model, &statfs(900, 89)));
        assert!(follows(&model, &statfs(896, 89)) && !follows(&model, &statfs(895, 89)));
        assert!(!follows(&model, &statfs(900, 88)), "an inode is missing");
        assert!(!follows(&model, &Statfs { blocks_available: 901, ..statfs(900, 89) }));
        model.execute(&Op::Mkdir { path: "d".into(), mode: fathom_core::Mode(0o755) });
        assert!(!follows(&model, &statfs(900, 89)), "a directory takes an inode");
        assert!(follows(&model, &statfs(899, 88)));
    }

    /// Where entries take no blocks, they may be missing by as many as were made, and not by one more.
    #[test]
    fn entries_that_take_no_blocks() {
        let mut model = Model::new(Config::default()).unwrap();
        let baseline = Baseline { subject: statfs(900, 89), model: model.volume().statfs() };
        let plain = Quirks { statfs_slack_bytes: 4096, ..Quirks::default() };
        let none = Quirks { statfs_slack_by_entry: true, ..plain.clone() };
        for number in 0..3 {
            let path = format!("d{number}");
            model
                .execute(&Op::Mkdir { path: path.as_str().into(), mode: fathom_core::Mode(0o755) });
        }
        // The reference has used three blocks of 4 KiB, and 16 KiB may be missing or too many.
        assert!(!baseline.is_followed(&model, &statfs(900, 86), &plain));
        assert!(baseline.is_followed(&model, &statfs(900, 86), &none));
        assert!(baseline.is_followed(&model, &statfs(872, 86), &none));
        assert!(!baseline.is_followed(&model, &statfs(871, 86), &none), "28 KiB are gone");
    }
}
