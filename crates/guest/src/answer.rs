//! Answers the calls that the filter of a guest hands to its keeper: random bytes from the seed, and
//! changes of attributes inside of the directories that the guest may change.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A generator of a guest's random bytes: SplitMix64, whose numbers are fixed by its definition.
#[derive(Clone, Debug)]
pub(crate) struct RandomBytes(u64);

impl RandomBytes {
    pub(crate) fn new(seed: u64) -> RandomBytes {
        RandomBytes(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.next().to_le_bytes());
        words.take(count.div_ceil(8)).flatten().take(count).collect()
    }
}

/// The longest answer to one call; getrandom(2) may always answer less.
const BYTES_MAX: usize = 1 << 16;

/// The longest path.
const PATH_MAX: usize = 4096;

/// Answers for one guest.
pub(crate) struct Answers {
    pub(crate) listener: OwnedFd,
    pub(crate) random: RandomBytes,
    /// How many bytes each call for randomness wanted.
    pub(crate) wanted: Vec<u64>,
    /// Directories in which attributes may be changed, without links.
    pub(crate) writable: Vec<PathBuf>,
}

impl Answers {
    /// Answers one question; the descriptor says when there is one.
    pub(crate) fn one(&mut self) -> io::Result<()> {
        // SAFETY: plain memory; the kernel wants it zeroed.
        let mut question: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        let number = self.listener.as_raw_fd();
        // SAFETY: the structure is as large as the request says.
        if unsafe { libc::ioctl(number, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut question) } != 0 {
            let error = io::Error::last_os_error();
            // The caller has ended meanwhile.
            return if error.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(error) };
        }
        let before = self.random.clone();
        let call = i64::from(question.data.nr);
        let result = match call {
            libc::SYS_getrandom => self.randomness(&question),
            _ => self.attribute(&question),
        };
        // SAFETY: plain memory.
        let mut answer: libc::seccomp_notif_resp = unsafe { std::mem::zeroed() };
        answer.id = question.id;
        match result {
            Ok(value) => answer.val = value,
            Err(error) => answer.error = -error.raw_os_error().unwrap_or(libc::EPERM),
        }
        // SAFETY: as above.
        let sent = unsafe { libc::ioctl(number, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
        match (sent, call) {
            (0, libc::SYS_getrandom) => self.wanted.push(question.data.args[1]),
            // It was interrupted, and will be asked again.
            (_, libc::SYS_getrandom) => self.random = before,
            _ => {}
        }
        Ok(())
    }

    fn randomness(&mut self, question: &libc::seccomp_notif) -> io::Result<i64> {
        let [at, count, ..] = question.data.args;
        let bytes = self.random.bytes((count as usize).min(BYTES_MAX));
        write_memory(question.pid, at, &bytes)?;
        Ok(bytes.len() as i64)
    }

    /// Does what the guest asked for, if it is where the guest may.
    fn attribute(&self, question: &libc::seccomp_notif) -> io::Result<i64> {
        let pid = question.pid;
        let a = question.data.args;
        let call = i64::from(question.data.nr);
        let by_number = |number: u64| fs::read_link(format!("/proc/{pid}/fd/{}", number as i32));
        let path = match call {
            libc::SYS_fchmod | libc::SYS_fchown => by_number(a[0])?,
            libc::SYS_utimensat if a[1] == 0 => by_number(a[0])?,
            libc::SYS_fchmodat | libc::SYS_fchownat | libc::SYS_utimensat => read_path(pid, a[1])?,
            _ => read_path(pid, a[0])?,
        };
        let path = CString::new(self.inside(pid, &path)?.as_os_str().as_bytes())?;
        let path = path.as_ptr();
        // SAFETY: the path lives until the end of the function; the times are read into locals.
        let done = unsafe {
            match call {
                libc::SYS_chmod | libc::SYS_fchmod => libc::chmod(path, a[1] as libc::mode_t),
                libc::SYS_fchmodat => libc::chmod(path, a[2] as libc::mode_t),
                libc::SYS_chown | libc::SYS_fchown | libc::SYS_lchown => {
                    libc::lchown(path, a[1] as libc::uid_t, a[2] as libc::gid_t)
                }
                libc::SYS_fchownat => libc::lchown(path, a[2] as libc::uid_t, a[3] as libc::gid_t),
                libc::SYS_utimensat | libc::SYS_utimes => {
                    let nanoseconds = call == libc::SYS_utimensat;
                    let at = if nanoseconds { a[2] } else { a[1] };
                    let times = read_times(pid, at, nanoseconds)?;
                    let times = times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr());
                    libc::utimensat(libc::AT_FDCWD, path, times, libc::AT_SYMLINK_NOFOLLOW)
                }
                _ => return Err(io::Error::from_raw_os_error(libc::EPERM)),
            }
        };
        match done {
            0 => Ok(0),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The path without links, if it is in a directory that the guest may change. The guest cannot
    /// change links meanwhile: its only processor waits for us.
    fn inside(&self, pid: u32, path: &Path) -> io::Result<PathBuf> {
        // The guest sees its private directory as the one in which its kernel was started.
        let real = match path.strip_prefix("/proc/self") {
            Ok(rest) => Path::new(&format!("/proc/{pid}")).join(rest).canonicalize()?,
            Err(_) => path.canonicalize()?,
        };
        match self.writable.iter().any(|place| real.starts_with(place)) {
            true => Ok(real),
            false => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }
}

/// Two times of another process; `None` if it gave none, which means now.
fn read_times(pid: u32, at: u64, nanoseconds: bool) -> io::Result<Option<[libc::timespec; 2]>> {
    if at == 0 {
        return Ok(None);
    }
    let bytes = read_memory(pid, at, 32)?;
    let word = |index: usize| {
        let part = bytes.get(index * 8..index * 8 + 8).and_then(|part| part.try_into().ok());
        part.map(i64::from_ne_bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))
    };
    let scale = if nanoseconds { 1 } else { 1000 };
    let time = |index: usize| {
        Ok::<_, io::Error>(libc::timespec {
            tv_sec: word(index)?,
            tv_nsec: word(index + 1)? * scale,
        })
    };
    Ok(Some([time(0)?, time(2)?]))
}

fn read_path(pid: u32, at: u64) -> io::Result<PathBuf> {
    let mut bytes = Vec::new();
    // In pieces that do not go beyond a page: the next one may not be there.
    while bytes.len() < PATH_MAX {
        let from = at + bytes.len() as u64;
        let count = 4096 - (from % 4096) as usize;
        let piece = read_memory(pid, from, count)?;
        match piece.iter().position(|byte| *byte == 0) {
            Some(end) => {
                bytes.extend_from_slice(&piece[..end]);
                return Ok(PathBuf::from(OsString::from_vec(bytes)));
            }
            None => bytes.extend(piece),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}

/// Reads what is there, at most `count` bytes. Through /proc: some memory of a kernel is mapped for
/// writing alone, which process_vm_readv(2) does not read.
fn read_memory(pid: u32, at: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; count];
    let read = File::open(format!("/proc/{pid}/mem"))?.read_at(&mut bytes, at)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn write_memory(pid: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
    File::options().write(true).open(format!("/proc/{pid}/mem"))?.write_all_at(bytes, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_those_of_the_definition() {
        // The first numbers of SplitMix64 with seed 1234567, as published with it.
        let mut random = RandomBytes::new(1_234_567);
        assert_eq!(
            [random.next(), random.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
        let mut again = RandomBytes::new(1_234_567);
        assert_eq!(again.bytes(3), 6_457_827_717_110_365_317u64.to_le_bytes()[..3]);
        assert_eq!(again.bytes(8), 3_203_168_211_198_807_973u64.to_le_bytes());
    }

    #[test]
    fn times_of_this_process_are_read() {
        let times = [1u64, 2, 3, 4];
        let (pid, at) = (std::process::id(), times.as_ptr() as u64);
        let read = |nanoseconds| {
            let [one, two] = read_times(pid, at, nanoseconds).unwrap().unwrap();
            (one.tv_sec, one.tv_nsec, two.tv_sec, two.tv_nsec)
        };
        assert_eq!((read(true), read(false)), ((1, 2, 3, 4), (1, 2000, 3, 4000)));
        assert!(read_times(pid, 0, true).unwrap().is_none());
    }

    #[test]
    fn memory_of_this_process_is_read_and_written() {
        let text = CString::new("/a/path").unwrap();
        let mut place = [0u8; 4];
        let pid = std::process::id();
        assert_eq!(read_path(pid, text.as_ptr() as u64).unwrap(), Path::new("/a/path"));
        write_memory(pid, place.as_mut_ptr() as u64, &[1, 2, 3, 4]).unwrap();
        assert_eq!(place, [1, 2, 3, 4]);
    }
}
