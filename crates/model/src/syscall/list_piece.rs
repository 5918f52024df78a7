//! getdents64(2) in pieces, with lseek(2) between them and names that come and go meanwhile.
//!
//! In which order entries are listed, and how many one call returns, is the file system's own business. So the
//! answer of a call is judged by what the calls before it have answered ([`Model::follow_piece`]): an entry that
//! is there all the time, from when the listing began at the first entry on, is listed exactly once until its
//! end; one that came, went or was replaced meanwhile may be listed, also with the type of what it named in the
//! beginning (overlayfs remembers the entries of merged directories); nothing else is (readdir(3p), seekdir(3p)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fathom_core::{
    Caller, Digest, Effect, Errno, FsBytes, Kind, Op, Operand, Outcome, Payload, Slot,
};

use super::Model;
use super::getdents::UNKNOWN_TYPE;
use crate::quirks::EntryTypes;
use crate::volume::{DirEntry, Ino};

/// More than this is not asked for in one call.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// The record of the longest name that a file system may have and a harness does not show
/// (`.fuse_hidden…`, `lost+found`): it may be next, and not fit.
const HIDDEN_RECORD_BYTES: u64 = 48;

/// The positions behind `.` and `..`; those of entries are greater.
const DOTS: [(&str, u64); 2] = [(".", 1), ("..", 2)];

/// Keeps these hashes apart from others.
const DOMAIN_LISTING: u64 = 41;

/// A directory that is being read in pieces.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    /// What was there when it began.
    start: Arc<BTreeMap<FsBytes, DirEntry>>,
    /// The names that calls made, replaced or removed since then, in whatever directory.
    touched: BTreeSet<FsBytes>,
    /// Those of them that were renamed: their entries may be others although they look the same.
    renamed: BTreeSet<FsBytes>,
    pieces: Vec<Piece>,
    /// Where the next one begins, in the order of the reference.
    next: u64,
}

/// One piece.
#[derive(Clone, Debug)]
struct Piece {
    /// Where it began, in the order of the reference.
    start: u64,
    names: Vec<FsBytes>,
}

impl Listing {
    fn has(&self, name: &FsBytes) -> bool {
        self.pieces.iter().any(|piece| piece.names.contains(name))
    }

    /// What decides how it goes on.
    pub(super) fn digest(&self, slot: usize, caller: Caller) -> Digest {
        let text = format!(
            "{slot} {caller} {:?} {:?} {:?} {:?}",
            self.start.keys().collect::<Vec<_>>(),
            self.touched,
            self.renamed,
            self.pieces.iter().map(|piece| &piece.names).collect::<Vec<_>>()
        );
        Digest::of(DOMAIN_LISTING, text.as_bytes())
    }
}

/// What may and what must be listed next.
struct Expected {
    /// The letters of what is there now, with `.` and `..`.
    letters: BTreeMap<FsBytes, char>,
    /// The letters that touched names had in the beginning.
    letters_before: BTreeMap<FsBytes, char>,
    /// What was there all the time and was not listed yet.
    missing: BTreeSet<FsBytes>,
    /// What was there all the time and was listed.
    done: BTreeSet<FsBytes>,
    /// What was there at some time.
    possible: BTreeSet<FsBytes>,
    /// It may begin again, since something went that was not listed ([`Quirks::listing_may_restart`]).
    ///
    /// [`Quirks::listing_may_restart`]: crate::Quirks::listing_may_restart
    restarts: bool,
}

impl Model {
    /// The next piece in the order of the reference: that in which entries were made.
    pub(super) fn list_piece(&mut self, slot: Slot, back: u32, len: u64) -> Result<Outcome, Errno> {
        let (dir, mut listing) = self.go_to_piece(slot, back)?;
        let after = listing.next;
        let (mut taken, mut left) = (Vec::new(), len.min(PIECE_BYTES_MAX));
        let dots = self.dots().filter(|dot| dot.cookie > after);
        let mut all = dots.chain(self.volume.entries(dir, after.max(DOTS[1].1))?).peekable();
        let is_end = all.peek().is_none();
        for entry in all {
            let Some(rest) = left.checked_sub(record_bytes(&entry.name)) else { break };
            (left, listing.next) = (rest, entry.cookie);
            taken.push(entry);
        }
        if taken.is_empty() && !is_end {
            self.keep_listing(slot, listing);
            return Err(Errno::EINVAL);
        }
        let names = taken.iter().map(|entry| entry.name.clone()).collect();
        listing.pieces.push(Piece { start: after, names });
        self.keep_listing(slot, listing);
        self.volume.note_access(dir);
        Ok(entries_outcome(taken.iter().map(|entry| self.letter(entry)).collect()))
    }

    /// What a call of [`Op::ListPiece`] that was answered with `found` may have answered: `found` itself, or
    /// what comes nearest to it. The listing goes on from `found`. `None` if it is another operation.
    pub fn follow_piece(&mut self, op: &Op, found: &Outcome) -> Option<Outcome> {
        let Op::ListPiece { slot, back, len } = op else { return None };
        let (dir, mut listing) = match self.go_to_piece(*slot, *back) {
            Ok(place) => place,
            Err(errno) => return Some(Outcome::err(errno)),
        };
        let expected = self.expected_entries(dir, &listing);
        let (outcome, names) = match (&found.result, &found.payload) {
            (Ok(_), Payload::Entries(entries)) => expected.nearest(entries),
            (Err(Errno::EINVAL), _) if expected.may_not_fit(*len) => (found.clone(), None),
            _ => (expected.rest(), None),
        };
        if let Some(names) = names {
            listing.pieces.push(Piece { start: listing.next, names });
        }
        self.keep_listing(*slot, listing);
        self.volume.note_access(dir);
        Some(outcome)
    }

    /// The directory of a slot and its listing, at the place where the next piece begins.
    fn go_to_piece(&mut self, slot: Slot, back: u32) -> Result<(Ino, Listing), Errno> {
        let file = self.file(slot)?;
        if file.kind != Kind::Dir {
            return Err(Errno::ENOTDIR);
        }
        let begun = self.current.files.listing(slot);
        let pieces = begun.map_or(0, |listing| listing.pieces.len());
        let back = back as usize;
        let going = begun.filter(|_| pieces > 0 && back < pieces);
        let listing = match going.map(|listing| Listing::clone(listing)) {
            Some(mut listing) => {
                if back > 0 {
                    listing.next = listing.pieces[pieces - back].start;
                    listing.pieces.truncate(pieces - back);
                }
                listing
            }
            None => Listing {
                start: Arc::new(self.entries_by_name(file.ino)?),
                touched: BTreeSet::new(),
                renamed: BTreeSet::new(),
                pieces: Vec::new(),
                next: 0,
            },
        };
        if self.volume.attr(file.ino)?.nlink == 0 {
            // The directory was removed: not even `.` is left (IS_DEADDIR).
            self.keep_listing(slot, listing);
            return Err(Errno::ENOENT);
        }
        Ok((file.ino, listing))
    }

    fn keep_listing(&mut self, slot: Slot, listing: Listing) {
        self.seek(slot, listing.next as i64);
        self.current_mut().files.set_listing(slot, Some(listing));
    }

    /// The next piece of the directory in a slot is a first one.
    pub(super) fn end_listing(&mut self, slot: Slot) {
        if self.current.files.listing(slot).is_some() {
            self.current_mut().files.set_listing(slot, None);
        }
    }

    /// Directories that are being read in pieces may change by this operation, which succeeded.
    pub(super) fn note_names(&mut self, op: &Op) {
        if self.processes().all(|process| process.files.listings().is_empty()) {
            return;
        }
        let mut names = Vec::new();
        op.operands(|operand| {
            if let Operand::Path(path, _, _, Effect::Binds) = operand {
                names.push(FsBytes::from(path.file_name()));
            }
        });
        let renames = matches!(op, Op::Rename { .. });
        if names.is_empty() {
            return;
        }
        let note = |listing: &mut Listing| {
            listing.touched.extend(names.iter().cloned());
            if renames {
                listing.renamed.extend(names.iter().cloned());
            }
        };
        self.current_mut().files.listings_mut().for_each(note);
        self.others.for_each(|process| process.files.listings_mut().for_each(note));
    }

    fn entries_by_name(&self, dir: Ino) -> Result<BTreeMap<FsBytes, DirEntry>, Errno> {
        let entries = self.volume.entries(dir, 0)?.into_iter();
        Ok(entries.map(|entry| (entry.name.clone(), entry)).collect())
    }

    fn dots(&self) -> impl Iterator<Item = DirEntry> + use<> {
        DOTS.into_iter().map(|(name, cookie)| DirEntry {
            name: FsBytes::from(name),
            ino: 0,
            kind: Kind::Dir,
            cookie,
        })
    }

    /// The name of an entry and what a listing says of its type.
    fn letter(&self, entry: &DirEntry) -> (FsBytes, char) {
        let is_dot = entry.cookie <= DOTS[1].1;
        let told = match self.quirks().entry_types {
            EntryTypes::All => true,
            EntryTypes::Dots => is_dot,
            EntryTypes::None => false,
        };
        (entry.name.clone(), if told { entry.kind.letter() } else { UNKNOWN_TYPE })
    }

    fn expected_entries(&self, dir: Ino, listing: &Listing) -> Expected {
        let now = self.volume.entries(dir, 0).unwrap_or_default();
        let stays = |entry: &&DirEntry| {
            let began = listing.start.get(&entry.name);
            began.is_some_and(|began| (began.ino, began.cookie) == (entry.ino, entry.cookie))
                && !listing.renamed.contains(&entry.name)
        };
        let dots = DOTS.iter().map(|(name, _)| FsBytes::from(*name));
        let always = now.iter().filter(stays).map(|entry| entry.name.clone()).chain(dots.clone());
        let (done, missing) = always.partition(|name| listing.has(name));
        let at_some_time = listing.start.keys().chain(&listing.touched).cloned();
        let letters = self.dots().chain(now).map(|entry| self.letter(&entry));
        let letters: BTreeMap<FsBytes, char> = letters.collect();
        let was_touched = |entry: &&DirEntry| listing.touched.contains(&entry.name);
        let before = listing.start.values().filter(was_touched).map(|entry| self.letter(entry));
        let letters_before = before.collect();
        let possible = at_some_time.chain(letters.keys().cloned()).collect();
        let names = || listing.start.keys().chain(&listing.touched);
        let went = |name: &FsBytes| {
            let is_there = letters.contains_key(name) && !listing.renamed.contains(name);
            !is_there && !listing.has(name)
        };
        let restarts = self.quirks().listing_may_restart && names().any(went);
        // Who begins again in the wrong place also ends too early.
        let missing = if restarts { BTreeSet::new() } else { missing };
        Expected { letters, letters_before, missing, done, possible, restarts }
    }
}

impl Expected {
    /// The answer nearest to the one with these entries, and the names that are listed by then.
    fn nearest(&self, found: &[(FsBytes, char)]) -> (Outcome, Option<Vec<FsBytes>>) {
        let (mut seen, mut entries) = (BTreeSet::new(), Vec::new());
        for (name, letter) in found {
            let again = self.done.contains(name) && !self.restarts;
            let twice = again || (self.is_constant(name) && seen.contains(name));
            if self.possible.contains(name) && !twice {
                let is_old = self.letters_before.get(name) == Some(letter);
                let now = self.letters.get(name).filter(|_| !is_old);
                entries.push((name.clone(), *now.unwrap_or(letter)));
            }
            seen.insert(name.clone());
        }
        let outcome = if found.is_empty() { self.rest() } else { entries_outcome(entries) };
        (outcome, Some(seen.into_iter().collect()))
    }

    /// Whether it was there all the time.
    fn is_constant(&self, name: &FsBytes) -> bool {
        self.done.contains(name) || self.missing.contains(name)
    }

    /// An answer with all that must be listed still.
    fn rest(&self) -> Outcome {
        let letter = |name: &FsBytes| self.letters.get(name).copied().unwrap_or(UNKNOWN_TYPE);
        entries_outcome(self.missing.iter().map(|name| (name.clone(), letter(name))).collect())
    }

    /// Whether there may be no room for the entry that comes next.
    fn may_not_fit(&self, len: u64) -> bool {
        // What was listed comes again only if it was made again behind that.
        let comes = |name: &FsBytes| self.restarts || !self.done.contains(name);
        let too_long = |name: &FsBytes| record_bytes(name) > len && comes(name);
        len < HIDDEN_RECORD_BYTES || self.possible.iter().any(too_long)
    }
}

/// The size of a `struct linux_dirent64` (getdents(2)): a header of 19 bytes, the name with its NUL, aligned to 8.
fn record_bytes(name: &FsBytes) -> u64 {
    (19 + name.as_bytes().len() as u64 + 1).next_multiple_of(8)
}

fn entries_outcome(mut entries: Vec<(FsBytes, char)>) -> Outcome {
    entries.sort();
    Outcome { result: Ok(entries.len() as u64), payload: Payload::Entries(entries) }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::{OpenFlags, RenameFlags};

    use super::super::testing::*;
    use super::*;
    use crate::mutant::Mutant;
    use crate::{Config, Quirks};

    fn piece(back: u32, len: u64) -> Op {
        Op::ListPiece { slot: 0, back, len }
    }

    fn rename(from: &str, to: &str) -> Op {
        Op::Rename { from: path(from), to: path(to), flags: RenameFlags::empty() }
    }

    /// A model with files in an open directory.
    fn listed(names: &[&str]) -> Model {
        let mut m = model();
        given(&mut m, &names.iter().map(|name| file(name, 0o644)).collect::<Vec<_>>());
        given(&mut m, &[open(0, ".", OpenFlags::empty())]);
        m
    }

    fn names(outcome: &Outcome) -> String {
        let Payload::Entries(entries) = &outcome.payload else { return outcome.to_string() };
        entries.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" ")
    }

    fn answer(listed: &[&str]) -> Outcome {
        let letter = |name: &str| if name.starts_with('.') { 'd' } else { '-' };
        entries_outcome(listed.iter().map(|name| (FsBytes::from(*name), letter(name))).collect())
    }

    /// What the reference would have answered where another file system has listed these.
    fn judged(m: &mut Model, back: u32, found: &[&str]) -> String {
        names(&m.follow_piece(&piece(back, 4096), &answer(found)).unwrap())
    }

    #[test]
    fn pieces_go_on_go_back_and_start_again() {
        let mut m = listed(&["a", "b", "c", "a-name-of-thirty-bytes-in-all-"]);
        let mut next = |back, len| names(&m.execute(&piece(back, len)));
        assert_eq!(next(0, 48), ". ..");
        assert_eq!(next(0, 24), "a");
        assert_eq!(next(0, 71), "b c");
        assert_eq!(next(0, 24), "EINVAL");
        assert_eq!(next(1, 24), "b", "the third piece again, with less room");
        assert_eq!(next(0, 4096), "a-name-of-thirty-bytes-in-all- c");
        assert_eq!(next(0, 4096), "");
        assert_eq!(next(0, 0), "", "the end takes no room");
        assert_eq!(next(5, 24), "a", "the second of six pieces again");
        assert_eq!(next(9, 24), ".", "there are not so many");
        assert_eq!(m.execute(&Op::Getdents { slot: 0 }).result, Ok(6));
        assert_eq!(names(&m.execute(&piece(0, 24))), ".", "a whole listing ends one in pieces");
    }

    #[test]
    fn what_has_no_pieces() {
        let mut m = listed(&["f"]);
        given(&mut m, &[mkdir("d", 0o755), open(1, "f", OpenFlags::empty())]);
        given(&mut m, &[open(2, "d", OpenFlags::O_PATH), open(3, "d", OpenFlags::empty())]);
        given(&mut m, &[rmdir("d")]);
        let list = |slot| Op::ListPiece { slot, back: 0, len: 100 };
        let table = [
            (list(1), Err(E::ENOTDIR)),
            (list(2), Err(E::EBADF)),
            (list(3), Err(E::ENOENT)),
            (list(4), Err(E::EBADF)),
            (Op::ListPiece { slot: 0, back: 0, len: 0 }, Err(E::EINVAL)),
        ];
        check(&mut m, &table);
        for (op, expected) in &table[..4] {
            let found = answer(&["f"]);
            assert_eq!(m.follow_piece(op, &found).unwrap().result, *expected, "{op}");
        }
        assert_eq!(m.follow_piece(&mkdir("x", 0), &Outcome::ok(0)), None);
    }

    #[test]
    fn any_order_in_any_pieces_is_right_as_long_as_each_is_listed_once() {
        let mut m = listed(&["a", "b", "c"]);
        let table: [(&[&str], &str); 5] = [
            (&["c", "."], ". c"),
            (&["a"], "a"),
            (&["b", "c"], "b"),
            (&["a", "x"], ""),
            (&[], ".."),
        ];
        for (found, expected) in table {
            assert_eq!(judged(&mut m, 0, found), expected, "{found:?}");
        }
        assert_eq!(judged(&mut m, 0, &[".."]), "..");
        assert_eq!(judged(&mut m, 0, &[]), "");
    }

    #[test]
    fn what_is_replaced_may_be_listed_with_the_type_that_it_had() {
        let mut m = listed(&["a", "b"]);
        given(&mut m, &[mkdir("d", 0o755)]);
        assert_eq!(judged(&mut m, 0, &[".", ".."]), ". ..");
        let exchange = RenameFlags::RENAME_EXCHANGE;
        given(&mut m, &[Op::Rename { from: path("a"), to: path("d"), flags: exchange }]);
        let listed_as = |m: &mut Model, letters: [char; 3]| {
            let names = ["a", "b", "d"].map(FsBytes::from);
            let found = entries_outcome(names.into_iter().zip(letters).collect());
            m.follow_piece(&piece(0, 4096), &found).unwrap() == found
        };
        assert!(listed_as(&mut m.clone(), ['d', '-', '-']), "as it is");
        assert!(listed_as(&mut m.clone(), ['-', '-', 'd']), "as it was");
        assert!(!listed_as(&mut m.clone(), ['l', '-', '-']), "as it never was");
        assert!(!listed_as(&mut m, ['d', 'd', '-']), "not touched");
    }

    #[test]
    fn what_comes_and_goes_may_be_listed_and_what_stays_must() {
        let mut m = listed(&["a", "b", "c", "d"]);
        assert_eq!(judged(&mut m, 0, &[".", "..", "b"]), ". .. b");
        given(&mut m, &[unlink("a"), file("new", 0o644), file("short", 0o644), unlink("short")]);
        given(&mut m, &[unlink("c"), file("c", 0o644)]);
        let end = m.clone();
        assert_eq!(judged(&mut end.clone(), 0, &[]), "d", "a and c went, d is missing");
        let mut all = end.clone();
        assert_eq!(judged(&mut all, 0, &["a", "c", "d", "new", "short"]), "a c d new short");
        assert_eq!(judged(&mut all, 0, &[]), "");
        assert_eq!(judged(&mut end.clone(), 0, &["b", "d"]), "d", "b was listed before");
        assert_eq!(judged(&mut end.clone(), 0, &["d", "d"]), "d", "nothing is listed twice");
        // Who starts again is told what is there then.
        let mut again = end.clone();
        assert_eq!(judged(&mut again, 7, &[".", "..", "b", "c", "d", "a"]), ". .. b c d");
        assert_eq!(judged(&mut again, 0, &[]), "new");
    }

    #[test]
    fn an_entry_that_was_replaced_is_another_one() {
        let mut m = listed(&["a", "b", "c"]);
        given(&mut m, &[link("b", "y")]);
        assert_eq!(judged(&mut m, 0, &["."]), ".");
        // b is what it was, but its entry need not be.
        given(&mut m, &[rename("a", "b"), rename("y", "b")]);
        assert_eq!(judged(&mut m, 0, &[]), ".. c");
        // Another name in another directory is none of it, nor one that was not made.
        given(&mut m, &[mkdir("d", 0o755), file("d/x", 0o644)]);
        assert_eq!(m.execute(&file("c", 0o644)).result, Err(E::EEXIST));
        assert_eq!(judged(&mut m, 0, &["..", "c", "z"]), ".. c");
    }

    #[test]
    fn going_back_makes_what_came_after_open_again() {
        let mut m = listed(&["a", "b", "c"]);
        for found in [&[".", ".."][..], &["a"], &["b"]] {
            judged(&mut m, 0, found);
        }
        assert_eq!(judged(&mut m.clone(), 0, &[]), "c");
        assert_eq!(judged(&mut m.clone(), 2, &[]), "a b c");
        assert_eq!(judged(&mut m, 1, &["b"]), "b");
        assert_eq!(judged(&mut m, 1, &["a"]), "", "a comes before that place");
    }

    #[test]
    fn there_may_be_no_room_for_what_may_be_next() {
        let mut m = listed(&["a", "a-name-of-thirty-bytes-in-all-"]);
        let refused = Outcome::err(Errno::EINVAL);
        let fits =
            |m: &mut Model, len| m.follow_piece(&piece(0, len), &refused).unwrap() != refused;
        assert!(!fits(&mut m, 47) && !fits(&mut m, 48) && fits(&mut m, 56));
        judged(&mut m, 0, &["a-name-of-thirty-bytes-in-all-"]);
        assert!(fits(&mut m, 48) && !fits(&mut m, 47), "a name that is not shown may be next");
        let error = Outcome::err(Errno::EIO);
        let expected = m.follow_piece(&piece(0, 4096), &error).unwrap();
        assert_eq!(names(&expected), ". .. a");
        // A name that was listed may be next again once it was made again.
        given(&mut m, &[rename("a-name-of-thirty-bytes-in-all-", "b")]);
        given(&mut m, &[rename("b", "a-name-of-thirty-bytes-in-all-")]);
        assert!(!fits(&mut m, 48) && fits(&mut m, 56));
    }

    #[test]
    fn listings_end_with_their_slots() {
        let mut m = listed(&["a"]);
        let first = |m: &mut Model| names(&m.execute(&piece(0, 24)));
        assert_eq!((first(&mut m), first(&mut m)), (".".to_owned(), "..".to_owned()));
        given(&mut m, &[open(0, ".", OpenFlags::empty())]);
        assert_eq!(first(&mut m), ".");
        let seek = Op::Lseek { slot: 0, offset: 5, whence: fathom_core::flags::Whence::Set };
        given(&mut m, &[seek]);
        assert_eq!(first(&mut m), ".");
        assert_ne!(m.state_digest(), listed(&["a"]).state_digest());
        given(&mut m, &[Op::Remount]);
        assert_eq!(m.execute(&piece(0, 24)).result, Err(E::EBADF));
    }

    #[test]
    fn where_a_listing_may_begin_again_or_end_something_went_before_it_was_listed() {
        let listed = |listing_may_restart, went: &str| {
            let mut m = model_with(Quirks { listing_may_restart, ..Quirks::default() });
            given(&mut m, &[file("a", 0o644), file("b", 0o644), file("c", 0o644)]);
            given(&mut m, &[open(0, ".", OpenFlags::empty())]);
            assert_eq!(judged(&mut m, 0, &[".", "..", "b"]), ". .. b");
            given(&mut m, &[unlink(went)]);
            m
        };
        let mut m = listed(true, "c");
        assert_eq!(judged(&mut m, 0, &["b", "b"]), "b", "twice in a piece is once too often");
        assert_eq!(judged(&mut m, 0, &["x"]), "", "nobody made x");
        assert_eq!(judged(&mut m, 0, &[]), "", "it may end without a");
        assert_eq!(judged(&mut listed(true, "b"), 0, &[]), "a c", "b had been listed when it went");
        assert_eq!(judged(&mut listed(false, "c"), 0, &[]), "a");
        assert_eq!(judged(&mut listed(true, "b"), 0, &["."]), "", "b had been listed when it went");
        assert_eq!(judged(&mut listed(false, "c"), 0, &["b"]), "");
    }

    #[test]
    fn types_are_told_as_in_whole_listings() {
        let quirks = Quirks { entry_types: EntryTypes::Dots, ..Quirks::default() };
        let mut m = model_with(quirks);
        given(&mut m, &[file("f", 0o644), open(0, ".", OpenFlags::empty())]);
        let Payload::Entries(entries) = m.execute(&piece(0, 4096)).payload else { panic!() };
        assert_eq!(entries.iter().map(|entry| entry.1).collect::<String>(), "dd?");
        let mut m = listed(&["f"]);
        let wrong = entries_outcome(vec![(FsBytes::from("f"), 'd')]);
        assert_eq!(m.follow_piece(&piece(0, 4096), &wrong), Some(answer(&["f"])));
    }

    /// A walk through the pieces of a mutant is not what the reference allows.
    fn is_caught(mutant: Option<Mutant>, back: u32) -> bool {
        let config = Config { mutant, blocks: 4096, ..Config::default() };
        let mut wrong = Model::new(config).unwrap();
        let mut m = listed(&[]);
        let made: Vec<Op> = ["a", "b", "c", "d"].iter().map(|name| file(name, 0o644)).collect();
        let mut ops = made;
        ops.extend([open(0, ".", OpenFlags::empty()), piece(0, 48), piece(0, 48), unlink("b")]);
        ops.extend([piece(back, 24), piece(0, 4096), piece(0, 4096)]);
        ops.iter().any(|op| {
            let found = wrong.execute(op);
            let expected = m.follow_piece(op, &found).unwrap_or_else(|| m.execute(op));
            expected != found
        })
    }

    #[test]
    fn mutants_are_caught_and_the_reference_is_not() {
        for back in 0..3 {
            assert!(!is_caught(None, back), "{back}");
        }
        assert!(is_caught(Some(Mutant::ListingSkips), 0));
        assert!(is_caught(Some(Mutant::ListingRestarts), 0));
    }
}
