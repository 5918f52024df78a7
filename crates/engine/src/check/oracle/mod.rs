//! Judges an answer and a tree against the reference.
//!
//! What two correct file systems may answer differently is left out of the comparison here and
//! nowhere else. It is data: the quirks of the profile in use.

mod signature;
pub(crate) mod space;
mod touched;

use fathom_core::flags::Whence;
use fathom_core::{
    Difference, Entry, Errno, FsBytes, FsPath, Kind, Mode, Op, Outcome, PathState, Payload, Stamp,
    Tree, Verdict, Violation,
};
use fathom_model::{Config, Feature, Model, Quirks, TreeOptions};

pub use signature::Signature;
use space::Instead;
pub(crate) use touched::touched;

/// The letter of `DT_UNKNOWN`.
const UNKNOWN_TYPE: char = '?';

/// NAME_MAX of limits.h.
const NAME_BYTES_MAX: u32 = 255;

/// Compares a subject with the reference.
#[derive(Clone, Debug)]
pub struct Oracle {
    quirks: Quirks,
    /// Whether the order of timestamps is compared.
    times: bool,
}

impl Oracle {
    /// A judge for subjects with the quirks of `reference`; `times` compares the order of
    /// timestamps too.
    pub fn new(reference: &Config, times: bool) -> Oracle {
        Oracle { quirks: reference.quirks.clone(), times }
    }

    /// The known harmless differences.
    pub(crate) fn quirks(&self) -> &Quirks {
        &self.quirks
    }

    /// Judges an answer. What [`Model::segment_is_allowed`] says of it has been asked before.
    pub fn outcome(&self, op: &Op, expected: &Outcome, found: &Outcome) -> Verdict {
        if expected == found || !is_segment(op) && self.same_answer(op, expected, found) {
            return Verdict::Ok;
        }
        Verdict::Violation(Violation::Outcome { expected: expected.clone(), found: found.clone() })
    }

    /// Whether two answers to the same question, at different times, mean the same.
    pub(crate) fn same_answer(&self, op: &Op, expected: &Outcome, found: &Outcome) -> bool {
        if expected == found {
            return true;
        }
        let may_not = [Errno::EACCES, Errno::EPERM];
        if let (true, Err(want), Err(have)) =
            (self.quirks.refusals_vary, &expected.result, &found.result)
            && (may_not.contains(want) || may_not.contains(have))
        {
            return true;
        }
        match op {
            Op::Lseek { whence: Whence::Data | Whence::Hole, .. } => {
                !self.quirks.segments_comparable
            }
            Op::Listxattr { len, .. } if self.quirks.listxattr_counts_hidden => {
                match (&expected.result, &found.result) {
                    (Ok(_), Err(Errno::ERANGE)) => *len > 0,
                    (Ok(want), Ok(have)) => *len == 0 && have >= want,
                    _ => false,
                }
            }
            Op::Getdents { .. } | Op::ListPiece { .. }
                if self.quirks.entry_types_may_be_unknown =>
            {
                same_entries(expected, found)
            }
            Op::Stat { .. } => self.same_stat(expected, found),
            Op::Statfs { .. } if !self.quirks.statfs_comparable => {
                same_statfs(expected, found) || self.quirks.name_bytes_max < NAME_BYTES_MAX
            }
            _ => false,
        }
    }

    /// lseek(2) allows several answers about holes. Where the subject has given another one than the
    /// reference, this is what the reference has to do to have the same position.
    pub(crate) fn other_segment(&self, op: &Op, model: &Model, found: &Outcome) -> Option<Instead> {
        let Op::Lseek { slot, .. } = *op else { return None };
        let comparable = self.quirks.segments_comparable && self.quirks.has(Feature::Holes);
        let allowed = !comparable && model.segment_is_allowed(op, found).unwrap_or_default();
        allowed.then_some(match found.result {
            Ok(at) => Instead::Less(Op::Lseek { slot, offset: at as i64, whence: Whence::Set }),
            Err(_) => Instead::Nothing,
        })
    }

    /// copy_file_range(2) may copy less than it was asked for. Where the profile allows that and the
    /// subject did so, this is what the reference has to do to stay in step.
    pub(crate) fn short_copy(&self, op: &Op, expected: &Outcome, found: &Outcome) -> Option<Op> {
        let (
            &Op::CopyFileRange { from, from_offset, to, to_offset, flags, .. },
            Ok(want),
            Ok(have),
        ) = (op, &expected.result, &found.result)
        else {
            return None;
        };
        let short = self.quirks.copy_may_be_short && 0 < *have && have < want;
        short.then_some(Op::CopyFileRange { from, from_offset, to, to_offset, len: *have, flags })
    }

    /// Judges the tree of the subject; `model` is the reference after the same operations.
    pub fn tree(&self, model: &Model, found: &Tree) -> Verdict {
        let mut differences = Vec::new();
        if model.digest() != found.digest() {
            differences = self.compared(model, self.expected_tree(model).differences(found));
        }
        if self.times && differences.is_empty() {
            differences = self.expected_tree(model).time_differences(found);
        }
        if differences.is_empty() {
            return Verdict::Ok;
        }
        Verdict::Violation(Violation::Tree { differences })
    }

    /// Judges some paths of the subject; `model` is the reference after the same operations. Times
    /// are left to the comparison of whole trees.
    pub fn path_states(&self, model: &Model, found: &[PathState]) -> Verdict {
        let mut differences = Vec::new();
        for path_state in found {
            let options = TreeOptions::default();
            differences.extend(
                model.volume().path_state(&path_state.path, options).differences(path_state),
            );
        }
        let differences = self.compared(model, differences);
        if differences.is_empty() {
            return Verdict::Ok;
        }
        Verdict::Violation(Violation::Tree { differences })
    }

    /// Those differences that count: not what the file system lacks, nor what differed when it was
    /// empty.
    fn compared(&self, model: &Model, mut differences: Vec<Difference>) -> Vec<Difference> {
        let not_compared = &self.quirks.not_compared;
        let kind = |path: &FsPath| {
            let volume = model.volume();
            volume.find(path, false).and_then(|ino| volume.attr(ino).ok()).map(|attr| attr.kind)
        };
        let has_size = |path: &FsPath| {
            self.quirks.device_sizes && matches!(kind(path), Some(Kind::Char | Kind::Block))
        };
        let hidden = |path: &FsPath| {
            model.volume().find(path, false).is_some_and(|ino| model.may_have_hidden_name(ino))
        };
        differences.retain(|Difference { path, what, .. }| {
            if what == "nlink" && self.quirks.silly_renames && hidden(path) {
                return false;
            }
            let feature = match what.as_str() {
                "mode" => Some(Feature::Modes),
                "uid" | "gid" => Some(Feature::Owners),
                "same_as" => Some(Feature::InodeNumbers),
                "nlink" if kind(path) == Some(Kind::Dir) => Some(Feature::DirNlink),
                "size" if kind(path) == Some(Kind::Symlink) => Some(Feature::LinkSize),
                _ => None,
            };
            let excused = match what.as_str() {
                "size" => has_size(path),
                "rdev" => self.quirks.device_numbers_lost,
                _ => false,
            };
            feature.is_none_or(|feature| self.quirks.has(feature))
                && !excused
                && !not_compared.iter().any(|other| other.0 == *path && other.1 == *what)
        });
        differences
    }

    /// Whether two answers of `stat` differ only in what the file system lacks.
    fn same_stat(&self, expected: &Outcome, found: &Outcome) -> bool {
        let (Payload::Stat(want), Payload::Stat(have)) = (&expected.payload, &found.payload) else {
            return false;
        };
        let mut masked = have.clone();
        let type_bits = Mode::S_IFMT;
        if !self.quirks.has(Feature::Modes) && (want.mode.0 ^ have.mode.0) & type_bits == 0 {
            masked.mode = want.mode;
        }
        if !self.quirks.has(Feature::Owners) {
            (masked.uid, masked.gid) = (want.uid, want.gid);
        }
        let kind = Kind::of_mode(want.mode.0);
        let root_nlink =
            |(path, what): &(FsPath, String)| path.as_bytes() == b"." && what == "nlink";
        if kind == Some(Kind::Dir)
            && (!self.quirks.has(Feature::DirNlink)
                || self.quirks.not_compared.iter().any(root_nlink))
        {
            masked.nlink = want.nlink;
        }
        if kind == Some(Kind::Symlink) && !self.quirks.has(Feature::LinkSize) {
            masked.size = want.size;
        }
        if matches!(kind, Some(Kind::Char | Kind::Block)) && self.quirks.device_sizes {
            masked.size = want.size;
        }
        if self.quirks.device_numbers_lost {
            masked.rdev = want.rdev;
        }
        expected.result == found.result && masked == *want
    }

    /// From now on, these are not compared.
    pub(crate) fn leave_out(&mut self, differences: &[Difference]) {
        let named = differences.iter().map(|one| (one.path.clone(), one.what.clone()));
        self.quirks.not_compared.extend(named);
    }

    /// Judges the modification times of paths whose times have just been set.
    pub(crate) fn set_times(&self, model: &Model, found: &[PathState]) -> Verdict {
        let options = TreeOptions { times: true, ..TreeOptions::default() };
        let mtime = |entry: &Option<Entry>| entry.as_ref()?.times.map(|times| times.mtime);
        let wrong = found.iter().filter_map(|path_state| {
            let want = mtime(&model.volume().path_state(&path_state.path, options).entry)?;
            let have = mtime(&path_state.entry)?;
            let set = matches!(want, Stamp::At { .. });
            (set && want != have).then(|| mtime_difference(&path_state.path, want, have))
        });
        let differences = self.compared(model, wrong.collect());
        match differences.is_empty() {
            true => Verdict::Ok,
            false => Verdict::Violation(Violation::Tree { differences }),
        }
    }

    /// Judges the modification times after a remount: those that were set are the ones that were there
    /// before. Of others nobody knows when they were written.
    pub(crate) fn kept_times(&self, model: &Model, before: &Tree, after: &Tree) -> Verdict {
        let expected = model.volume().tree(TreeOptions { segments: false, times: true });
        let mut differences = Vec::new();
        for (path, entry) in &expected.entries {
            let mtime = |entry: &Entry| entry.times.map(|times| times.mtime);
            let was_set = matches!(mtime(entry), Some(Stamp::At { .. }));
            let of = |tree: &Tree| tree.entries.get(path).and_then(mtime);
            if let (true, Some(want), Some(have)) = (was_set, of(before), of(after))
                && want != have
            {
                differences.push(mtime_difference(path, want, have));
            }
        }
        let differences = self.compared(model, differences);
        match differences.is_empty() {
            true => Verdict::Ok,
            false => Verdict::Violation(Violation::Tree { differences }),
        }
    }

    /// The tree that the subject should show.
    pub(crate) fn expected_tree(&self, model: &Model) -> Tree {
        model.volume().tree(TreeOptions { segments: false, times: self.times })
    }
}

fn mtime_difference(path: &FsPath, want: Stamp, have: Stamp) -> Difference {
    let what = "mtime".to_owned();
    let (expected, found) = (format!("{want:?}"), format!("{have:?}"));
    Difference { path: path.clone(), what, expected, found }
}

/// Whether an operation asks for data or a hole.
pub(crate) fn is_segment(op: &Op) -> bool {
    matches!(op, Op::Lseek { whence: Whence::Data | Whence::Hole, .. })
}

/// Whether an operation reads a piece of a directory.
pub(crate) fn is_piece(op: &Op) -> bool {
    matches!(op, Op::ListPiece { .. })
}

/// Whether two listings have the same names, and the same types where the second has one.
fn same_entries(expected: &Outcome, found: &Outcome) -> bool {
    let (Payload::Entries(want), Payload::Entries(have)) = (&expected.payload, &found.payload)
    else {
        return false;
    };
    let same = |(want, have): (&(FsBytes, char), &(FsBytes, char))| {
        want.0 == have.0 && (want.1 == have.1 || have.1 == UNKNOWN_TYPE)
    };
    want.len() == have.len() && want.iter().zip(have).all(same)
}

/// Counts of blocks and inodes are the file system's own business; the limit of names is not.
fn same_statfs(expected: &Outcome, found: &Outcome) -> bool {
    match (&expected.payload, &found.payload) {
        (Payload::Statfs(want), Payload::Statfs(have)) => {
            want.name_bytes_max == have.name_bytes_max
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_may_stop_early_but_not_tell_more_than_it_did() {
        let copy = |len| Op::CopyFileRange {
            from: 0,
            from_offset: None,
            to: 1,
            to_offset: Some(7),
            len,
            flags: 0,
        };
        let instead = |copy_may_be_short, found: Outcome| {
            let quirks = Quirks { copy_may_be_short, ..Quirks::default() };
            let oracle = Oracle::new(&Config { quirks, ..Config::default() }, false);
            oracle.short_copy(&copy(9), &Outcome::ok(9), &found)
        };
        assert_eq!(instead(true, Outcome::ok(8)), Some(copy(8)));
        assert_eq!(instead(false, Outcome::ok(8)), None);
        for outside in [Outcome::ok(0), Outcome::ok(10), Outcome::err(Errno::EIO)] {
            assert_eq!(instead(true, outside), None);
        }
    }
}
