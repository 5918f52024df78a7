//! getdents64(2): fs/readdir.c `iterate_dir`.

use fathom_core::{Errno, FsBytes, Kind, Outcome, Payload, Slot};

use super::Model;
use crate::quirks::EntryTypes;

/// The position of a directory of which everything was listed. Another number elsewhere: see
/// [`Model::unspecified`].
pub(super) const END_OF_DIRECTORY: i64 = i64::MAX;

/// The letter of an entry whose type the listing does not tell (`DT_UNKNOWN`).
pub(super) const UNKNOWN_TYPE: char = '?';

impl Model {
    /// All entries with `.` and `..`, from the first on; the return value is their number.
    pub(super) fn getdents(&mut self, slot: Slot) -> Result<Outcome, Errno> {
        let file = self.file(slot)?;
        if file.kind != Kind::Dir {
            return Err(Errno::ENOTDIR);
        }
        self.end_listing(slot);
        self.seek(slot, 0);
        if self.volume.attr(file.ino)?.nlink == 0 {
            // The directory was removed: not even `.` is left (IS_DEADDIR).
            return Err(Errno::ENOENT);
        }
        self.seek(slot, END_OF_DIRECTORY);
        let listed = self.volume.entries(file.ino, 0)?;
        self.volume.note_access(file.ino);
        let (named, dots) = match self.quirks().entry_types {
            EntryTypes::All => (true, true),
            EntryTypes::Dots => (false, true),
            EntryTypes::None => (false, false),
        };
        let letter = |kind: Kind, told: bool| if told { kind.letter() } else { UNKNOWN_TYPE };
        let mut entries: Vec<(FsBytes, char)> =
            listed.into_iter().map(|entry| (entry.name, letter(entry.kind, named))).collect();
        entries.push((FsBytes::from("."), letter(Kind::Dir, dots)));
        entries.push((FsBytes::from(".."), letter(Kind::Dir, dots)));
        entries.sort();
        Ok(Outcome { result: Ok(entries.len() as u64), payload: Payload::Entries(entries) })
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;
    use fathom_core::flags::OpenFlags;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn entries_are_sorted_and_have_letters() {
        let mut m = model();
        given(
            &mut m,
            &[
                file("-", 0o644),
                mkdir("d", 0o755),
                symlink("x", "l"),
                open(0, ".", OpenFlags::empty()),
            ],
        );
        let outcome = m.execute(&Op::Getdents { slot: 0 });
        let expected = [("-", '-'), (".", 'd'), ("..", 'd'), ("d", 'd'), ("l", 'l')];
        let expected = expected.map(|(name, letter)| (FsBytes::from(name), letter)).to_vec();
        assert_eq!(outcome, Outcome { result: Ok(5), payload: Payload::Entries(expected) });
    }

    #[test]
    fn types_that_are_not_told() {
        for (entry_types, dot, named) in [
            (EntryTypes::Dots, 'd', '?'),
            (EntryTypes::None, '?', '?'),
            (EntryTypes::All, 'd', '-'),
        ] {
            let mut m = model_with(crate::Quirks { entry_types, ..crate::Quirks::default() });
            given(&mut m, &[file("f", 0o644), open(0, ".", OpenFlags::empty())]);
            let outcome = m.execute(&Op::Getdents { slot: 0 });
            let expected = [(".", dot), ("..", dot), ("f", named)];
            let expected = expected.map(|(name, letter)| (FsBytes::from(name), letter)).to_vec();
            assert_eq!(outcome.payload, Payload::Entries(expected));
        }
    }

    #[test]
    fn what_has_no_entries() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644), mkdir("d", 0o755), open(0, "f", OpenFlags::empty())]);
        given(
            &mut m,
            &[open(1, "d", OpenFlags::O_PATH), open(2, "d", OpenFlags::empty()), rmdir("d")],
        );
        let table = [
            (Op::Getdents { slot: 0 }, Err(E::ENOTDIR)),
            (Op::Getdents { slot: 1 }, Err(E::EBADF)),
            (Op::Getdents { slot: 2 }, Err(E::ENOENT)),
            (Op::Getdents { slot: 3 }, Err(E::EBADF)),
        ];
        check(&mut m, &table);
    }
}
