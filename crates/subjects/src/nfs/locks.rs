//! Locks across clients: a round in which two sides lock bytes of one file against each other.
//!
//! The sides are two clients, or two open files of one client. The cases are all combinations of who owns a
//! lock (a process, an open file), of shared and exclusive, of ranges that overlap and that only touch, and of
//! unlocking and closing. Every answer follows from fcntl(2): a lock is refused if, and only if, the other side
//! holds one that overlaps and one of the two is exclusive.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::SubjectError;

/// The file that is locked. It is in every store, and no part of the state: its name begins as hidden ones do.
pub(super) const LOCKED_FILE: &str = ".nfs-fathom-locks";

/// How long a side waits for a lock before the other one gives it up: long enough to have been refused once.
const HELD_WHILE_AWAITED: Duration = Duration::from_secs(1);

/// How long the last copy of a closed descriptor may live: a process that another thread is just starting has
/// copies of all of them until it executes its program, and locks of an open file stay as long.
const COPIES_LIVE: Duration = Duration::from_secs(2);
/// How often a lock is asked for meanwhile.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// The bytes that the first side locks.
const HELD: Range = Range { start: 0, bytes: 10 };
/// What the second side tries: some of the same bytes, or those right behind them.
const TRIED: [Range; 2] = [Range { start: 5, bytes: 10 }, Range { start: 10, bytes: 10 }];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: i64,
    bytes: i64,
}

impl Range {
    fn overlaps(self, other: Range) -> bool {
        self.start < other.start + other.bytes && other.start < self.start + self.bytes
    }
}

/// Who owns a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The process: `F_SETLK`.
    Process,
    /// The open file: `F_OFD_SETLK`.
    OpenFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Shared,
    Exclusive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Unlock,
    Close,
}

/// One combination.
#[derive(Clone, Copy, Debug)]
struct Case {
    held: (Owner, Kind),
    tried: (Owner, Kind),
    range: Range,
    release: Release,
}

impl Case {
    fn conflicts(&self) -> bool {
        let is_exclusive = [self.held.1, self.tried.1].contains(&Kind::Exclusive);
        is_exclusive && HELD.overlaps(self.range)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = |(owner, kind): (Owner, Kind), range: Range| {
            let call = if owner == Owner::Process { "F_SETLK" } else { "F_OFD_SETLK" };
            let kind = if kind == Kind::Shared { "F_RDLCK" } else { "F_WRLCK" };
            format!("{call} {kind} of bytes {} to {}", range.start, range.start + range.bytes - 1)
        };
        write!(
            f,
            "one side holds {}, the other tries {}",
            lock(self.held, HELD),
            lock(self.tried, self.range)
        )
    }
}

/// All combinations. Two open files of one client belong to the same process, so that only those locks are of
/// two owners that open files own.
fn cases(same_client: bool) -> Vec<Case> {
    let owners: &[Owner] =
        if same_client { &[Owner::OpenFile] } else { &[Owner::Process, Owner::OpenFile] };
    let kinds = [Kind::Shared, Kind::Exclusive];
    let mut cases = Vec::new();
    for (held, tried) in
        owners.iter().flat_map(|held| owners.iter().map(move |tried| (held, tried)))
    {
        for (first, second) in
            kinds.iter().flat_map(|first| kinds.iter().map(move |second| (first, second)))
        {
            for (range, release) in TRIED.into_iter().zip([Release::Unlock, Release::Close]) {
                let (held, tried) = ((*held, *first), (*tried, *second));
                cases.push(Case { held, tried, range, release });
                if range.overlaps(HELD) {
                    cases.push(Case { held, tried, range, release: Release::Close });
                }
            }
        }
    }
    cases
}

/// Two sides, as the roots through which they open the file.
pub(super) struct Sides<'a> {
    pub(super) first: BorrowedFd<'a>,
    pub(super) second: BorrowedFd<'a>,
    /// Whether both are the same client.
    pub(super) same_client: bool,
}

impl Sides<'_> {
    /// Runs all cases, and tells what was answered otherwise than fcntl(2) says.
    ///
    /// # Errors
    /// If the file cannot be opened or a call fails for a reason that has nothing to do with locks.
    pub(super) fn round(&self) -> Result<Vec<String>, SubjectError> {
        let mut wrong = Vec::new();
        for case in cases(self.same_client) {
            wrong.extend(self.try_case(case).map_err(failed)?);
        }
        wrong.extend(self.wait_for_lock().map_err(failed)?);
        Ok(wrong)
    }

    /// Lets something happen to the server while the first side holds a lock, which it must keep.
    ///
    /// # Errors
    /// As [`Sides::round`], or if what happens fails.
    pub(super) fn round_around(
        &self,
        happen: impl FnOnce() -> Result<(), SubjectError>,
    ) -> Result<Vec<String>, SubjectError> {
        let lock = (Owner::OpenFile, Kind::Exclusive);
        let case = Case { held: lock, tried: lock, range: TRIED[0], release: Release::Unlock };
        let (first, second) =
            (open(self.first).map_err(failed)?, open(self.second).map_err(failed)?);
        let mut wrong = Vec::new();
        if !set(&first, lock, HELD).map_err(failed)? {
            wrong.push("a lock is refused although nobody holds one".to_owned());
        }
        happen()?;
        // The holder hears of it, and reclaims what it holds, when it asks for something.
        match holder(&first, lock, Range { start: 100, bytes: 1 }) {
            // The client knows that it could not reclaim what it held.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                wrong.push(format!("{case}, after something happened to the server: lost"));
                return Ok(wrong);
            }
            told => told.map_err(failed)?,
        };
        if set(&second, lock, case.range).map_err(failed)? {
            wrong.push(format!("{case}, after something happened to the server: granted"));
        }
        give_back(&second, lock.0, case.range);
        give_back(&first, lock.0, HELD);
        Ok(wrong)
    }

    fn try_case(&self, case: Case) -> io::Result<Vec<String>> {
        let (first, second) = (open(self.first)?, open(self.second)?);
        let mut wrong = Vec::new();
        let mut expect = |what: &str, expected: bool, found: bool| {
            if expected != found {
                let told = if found { "granted" } else { "refused" };
                wrong.push(format!("{case}{what}: {told}"));
            }
        };
        expect(", and the first is asked", true, set(&first, case.held, HELD)?);
        let told = holder(&second, case.tried, case.range)?;
        expect(" with F_GETLK", !case.conflicts(), told.is_none());
        expect("", !case.conflicts(), set(&second, case.tried, case.range)?);
        let again = match case.release {
            Release::Unlock => {
                unlock(&first, case.held.0, HELD)?;
                set(&second, case.tried, case.range)?
            }
            Release::Close => {
                drop(first);
                set_in_time(&second, case.tried, case.range)?
            }
        };
        expect(" after the first has given it up", true, again);
        give_back(&second, case.tried.0, case.range);
        Ok(wrong)
    }

    /// A side that waits gets the lock once the other has given it up. If it does not, the operation hangs, which
    /// is for others to notice.
    fn wait_for_lock(&self) -> io::Result<Vec<String>> {
        let lock = (Owner::OpenFile, Kind::Exclusive);
        let (first, second) = (open(self.first)?, open(self.second)?);
        set(&first, lock, HELD)?;
        let got = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| control(&second, libc::F_OFD_SETLKW, lock.1, HELD));
            std::thread::sleep(HELD_WHILE_AWAITED);
            let early = waiting.is_finished();
            unlock(&first, lock.0, HELD)?;
            let ended = waiting.join().map_err(|_| io::Error::other("a thread ended"))?;
            ended.map(|_| early)
        })?;
        give_back(&second, lock.0, HELD);
        let wrong =
            got.then(|| "F_OFD_SETLKW does not wait for a lock that the other holds".to_owned());
        Ok(wrong.into_iter().collect())
    }
}

fn failed(error: io::Error) -> SubjectError {
    SubjectError::io("lock", LOCKED_FILE)(error)
}

fn open(root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(root, LOCKED_FILE, flags, Mode::empty())?)
}

/// Makes the file that is locked.
pub(super) fn make_file(root: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::openat(root, LOCKED_FILE, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(())
}

/// Tries to lock: whether it was granted.
fn set(file: &OwnedFd, (owner, kind): (Owner, Kind), range: Range) -> io::Result<bool> {
    let command = if owner == Owner::Process { libc::F_SETLK } else { libc::F_OFD_SETLK };
    match control(file, command, kind, range) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Tries to lock what somebody else had until it was closed, for as long as copies of it may live.
fn set_in_time(file: &OwnedFd, lock: (Owner, Kind), range: Range) -> io::Result<bool> {
    let mut waited = Duration::ZERO;
    loop {
        if set(file, lock, range)? {
            return Ok(true);
        }
        if waited >= COPIES_LIVE {
            return Ok(false);
        }
        std::thread::sleep(ASKED_AGAIN_AFTER);
        waited += ASKED_AGAIN_AFTER;
    }
}

/// The kind of the lock that stands in the way.
fn holder(file: &OwnedFd, (owner, kind): (Owner, Kind), range: Range) -> io::Result<Option<Kind>> {
    let command = if owner == Owner::Process { libc::F_GETLK } else { libc::F_OFD_GETLK };
    let found = control(file, command, kind, range)?;
    Ok(match i32::from(found.l_type) {
        libc::F_RDLCK => Some(Kind::Shared),
        libc::F_WRLCK => Some(Kind::Exclusive),
        _ => None,
    })
}

fn unlock(file: &OwnedFd, owner: Owner, range: Range) -> io::Result<()> {
    let command = if owner == Owner::Process { libc::F_SETLK } else { libc::F_OFD_SETLK };
    call(file, command, libc::F_UNLCK, range).map(drop)
}

/// Unlocks before the file is closed, because closing need not do it at once ([`COPIES_LIVE`]). What was lost
/// cannot be given back, and has been told.
fn give_back(file: &OwnedFd, owner: Owner, range: Range) {
    let _ = unlock(file, owner, range);
}

fn control(file: &OwnedFd, command: i32, kind: Kind, range: Range) -> io::Result<libc::flock> {
    let kind = if kind == Kind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
    call(file, command, kind, range)
}

fn call(file: &OwnedFd, command: i32, kind: i32, range: Range) -> io::Result<libc::flock> {
    // SAFETY: all bytes 0 are a value of this structure of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (range.start, range.bytes);
    // SAFETY: the descriptor is open as long as `file`, and the structure outlives the call.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &mut lock) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides<'a>(first: &'a OwnedFd, second: &'a OwnedFd) -> Sides<'a> {
        Sides { first: first.as_fd(), second: second.as_fd(), same_client: true }
    }

    fn root(dir: &std::path::Path) -> OwnedFd {
        let root = OwnedFd::from(std::fs::File::open(dir).unwrap());
        make_file(root.as_fd()).unwrap();
        root
    }

    #[test]
    fn a_file_system_that_locks_is_not_accused() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(dir.path());
        assert_eq!(sides(&root, &root).round().unwrap(), Vec::<String>::new());
        assert_eq!(sides(&root, &root).round_around(|| Ok(())).unwrap(), Vec::<String>::new());
    }

    /// What clients that keep their locks to themselves look like: each has a file of its own.
    #[test]
    fn sides_that_do_not_see_the_locks_of_each_other_are_accused() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (root(one.path()), root(other.path()));
        let wrong = sides(&one, &other).round().unwrap();
        let conflicts = cases(true).iter().filter(|case| case.conflicts()).count();
        // Each conflict is denied by F_GETLK and by F_SETLK, and nobody waits.
        assert_eq!(wrong.len(), 2 * conflicts + 1, "{wrong:?}");
        assert_eq!(sides(&one, &other).round_around(|| Ok(())).unwrap().len(), 1);
    }

    #[test]
    fn only_locks_that_overlap_exclude_each_other_and_only_if_one_is_exclusive() {
        assert_eq!(cases(true).len(), 12);
        assert_eq!(cases(false).len(), 48);
        // Three of four pairs of kinds, given up in two ways.
        assert_eq!(cases(true).iter().filter(|case| case.conflicts()).count(), 6);
    }
}
