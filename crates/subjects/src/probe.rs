//! What a file system that nobody described lacks, found out by trying.
//!
//! Every trial works on names of its own in an empty directory, and removes them. What does not work
//! becomes a line for the user and a change of the reference: a [`Feature`] that is lacking, or a
//! smaller limit. A kernel file system with a recipe and a profile that somebody named are never tried:
//! there, what does not work is a finding. So it is for what `--require` names.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use fathom_core::flags::FallocateMode;
use fathom_model::{Feature, Quirks};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Uid, XattrFlags,
};
use rustix::fs::{Timespec, Timestamps};
use rustix::io::Errno;

/// Names that are tried; nothing else in the directory is touched.
const A: &str = "fathom-trial-a";
const B: &str = "fathom-trial-b";

/// The longest name of Linux.
const NAME_BYTES_MAX: u32 = 255;

/// Ends of files that are tried, the largest first: those of 64 bits (less the largest that Fathom
/// uses, 2⁴⁰), of 32 bits of blocks, of 32 bits, of 31 bits.
const FILE_ENDS: [u64; 4] = [(1 << 40) + (1 << 30), 1 << 40, u32::MAX as u64, i32::MAX as u64];

/// The year 2446, the last that ext4 has room for.
const MANY_YEARS: i64 = 15_032_385_535;

/// How file systems refuse what they do not have: mknod(2), link(2), symlink(2), xattr(7), rename(2),
/// mmap(2), and unlink(2) of open files.
const REFUSALS: [Errno; 7] = [
    Errno::PERM,
    Errno::OPNOTSUPP,
    Errno::NOSYS,
    Errno::INVAL,
    Errno::NODEV,
    Errno::MLINK,
    Errno::BUSY,
];

/// Where the first byte of a file is written to see whether there is a hole before it: no file system has
/// blocks that large.
const HOLE_BYTES: u64 = 8 << 20;

/// A directory in which things are tried.
pub(crate) struct Trial {
    dir: OwnedFd,
    required: Vec<Feature>,
    notes: Vec<String>,
}

type Tried<T> = Result<T, Errno>;

/// Tries everything in the empty directory `root`, and changes `quirks` to what was found. Returns what
/// a user should know.
///
/// # Errors
/// If the directory cannot be opened, or no file can be made in it.
pub(crate) fn probe(
    root: &OwnedFd,
    quirks: &mut Quirks,
    required: &[Feature],
) -> io::Result<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    let mut trial = Trial { dir, required: required.to_vec(), notes: Vec::new() };
    trial.remove();
    drop(trial.create(A)?);
    trial.features(quirks);
    trial.limits(quirks);
    trial.allocation(quirks);
    trial.names(quirks);
    trial.remove();
    Ok(trial.notes)
}

impl Trial {
    fn create(&self, name: &str) -> Tried<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, name, flags, Mode::from_raw_mode(0o644))
    }

    fn stat(&self, name: &str) -> Tried<rustix::fs::Stat> {
        rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Removes what trials may have left.
    fn remove(&self) {
        for name in [A, B] {
            // What is not there need not be removed.
            let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
            let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::REMOVEDIR);
        }
    }

    /// An empty file `A` and no `B`.
    fn begin(&self) -> Tried<OwnedFd> {
        self.remove();
        self.create(A)
    }

    fn lacks(&mut self, quirks: &mut Quirks, feature: Feature, why: &str) {
        if self.required.contains(&feature) {
            return;
        }
        if !quirks.lacks.contains(&feature) {
            quirks.lacks.push(feature);
        }
        self.notes.push(format!("no {feature} ({why}): {}", feature.consequence()));
    }

    /// Notes a feature that is refused as something that is not supported is, or that is accepted and
    /// has no effect at all. Anything else is not a lack, but for the campaign to find.
    fn feature(&mut self, quirks: &mut Quirks, feature: Feature, tried: Tried<bool>) {
        match tried {
            Ok(true) => {}
            Ok(false) => self.lacks(quirks, feature, "it has no effect"),
            Err(errno) if !REFUSALS.contains(&errno) => {}
            Err(errno) => {
                let errno = fathom_core::Errno(errno.raw_os_error() as u16).to_string();
                self.lacks(quirks, feature, &errno);
            }
        }
    }

    fn features(&mut self, quirks: &mut Quirks) {
        let linked = self.hard_links();
        self.feature(quirks, Feature::HardLinks, linked.map(|(works, _)| works));
        if let Ok((true, same)) = linked {
            self.feature(quirks, Feature::InodeNumbers, Ok(same));
        }
        let symlink = self.symlinks();
        self.feature(quirks, Feature::Symlinks, symlink.map(|(works, _)| works));
        if let Ok((true, sized)) = symlink {
            self.feature(quirks, Feature::LinkSize, Ok(sized));
        }
        let xattrs = self.xattrs();
        self.feature(quirks, Feature::Xattrs, xattrs);
        let modes = self.modes();
        self.feature(quirks, Feature::Modes, modes);
        // Only root may give files away, and knows by that whether they stay.
        if rustix::process::geteuid().is_root() {
            let owners = self.owners();
            self.feature(quirks, Feature::Owners, owners);
        }
        let special = self.special_files();
        self.feature(quirks, Feature::SpecialFiles, special);
        for (flag, feature) in [
            (RenameFlags::NOREPLACE, Feature::RenameNoreplace),
            (RenameFlags::EXCHANGE, Feature::RenameExchange),
            (RenameFlags::WHITEOUT, Feature::RenameWhiteout),
        ] {
            let renamed = self.renamed_with(flag);
            self.feature(quirks, feature, renamed);
        }
        let dir_nlink = self.dir_nlink();
        self.feature(quirks, Feature::DirNlink, dir_nlink);
        let unlinked = self.open_unlinked();
        self.feature(quirks, Feature::OpenUnlinked, unlinked);
        let mapped = self.begin().and_then(|file| maps(&file));
        self.feature(quirks, Feature::Mmap, mapped);
        let holes = self.begin().and_then(|file| shows_holes(&file));
        self.feature(quirks, Feature::Holes, holes);
    }

    /// Whether links can be made, and whether both names show the same file.
    fn hard_links(&self) -> Tried<(bool, bool)> {
        self.begin()?;
        rustix::fs::linkat(&self.dir, A, &self.dir, B, AtFlags::empty())?;
        let (one, other) = (self.stat(A)?, self.stat(B)?);
        Ok((true, one.st_ino == other.st_ino))
    }

    /// Whether symbolic links work, and whether their size is that of their target.
    fn symlinks(&self) -> Tried<(bool, bool)> {
        self.remove();
        rustix::fs::symlinkat("target", &self.dir, A)?;
        let target = rustix::fs::readlinkat(&self.dir, A, Vec::new())?;
        Ok((target.as_bytes() == b"target", self.stat(A)?.st_size != 0))
    }

    fn xattrs(&self) -> Tried<bool> {
        let file = self.begin()?;
        rustix::fs::fsetxattr(&file, "user.trial", b"value", XattrFlags::empty())?;
        let mut value = [0; 16];
        Ok(rustix::fs::fgetxattr(&file, "user.trial", &mut value)? == 5)
    }

    /// Whether any change of the mode shows: one that loses a bit has modes, and a bug.
    fn modes(&self) -> Tried<bool> {
        let file = self.begin()?;
        let mut shown = Vec::new();
        for mode in [0o600, 0o751, 0o444] {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            shown.push(self.stat(A)?.st_mode);
        }
        Ok(shown.iter().any(|mode| *mode != shown[0]))
    }

    fn owners(&self) -> Tried<bool> {
        let file = self.begin()?;
        let before = self.stat(A)?;
        let (uid, gid) = (Uid::from_raw(1000), Gid::from_raw(1001));
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
        let after = self.stat(A)?;
        Ok((after.st_uid, after.st_gid) != (before.st_uid, before.st_gid))
    }

    fn special_files(&self) -> Tried<bool> {
        self.remove();
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(&self.dir, A, FileType::Fifo, mode, 0)?;
        rustix::fs::mknodat(&self.dir, B, FileType::Socket, mode, 0)?;
        let is =
            |name, kind| self.stat(name).map(|stat| FileType::from_raw_mode(stat.st_mode) == kind);
        Ok(is(A, FileType::Fifo)? && is(B, FileType::Socket)?)
    }

    fn renamed_with(&self, flag: RenameFlags) -> Tried<bool> {
        self.begin()?;
        if flag == RenameFlags::EXCHANGE {
            drop(self.create(B)?);
        }
        rustix::fs::renameat_with(&self.dir, A, &self.dir, B, flag)?;
        Ok(true)
    }

    fn dir_nlink(&self) -> Tried<bool> {
        self.remove();
        rustix::fs::mkdirat(&self.dir, A, Mode::RWXU)?;
        // One that does not count says 1, or 0; one that counts wrongly has a bug.
        Ok(self.stat(A)?.st_nlink > 1)
    }

    /// Whether nothing is seen of an open file that has lost its name (`.fuse_hidden…`, `.ghost…`,
    /// `.nfs…`).
    fn open_unlinked(&self) -> Tried<bool> {
        let _file = self.begin()?;
        rustix::fs::unlinkat(&self.dir, A, AtFlags::empty())?;
        self.is_empty()
    }

    fn is_empty(&self) -> Tried<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.dir, ".", flags, Mode::empty())?;
        let mut entries = rustix::fs::Dir::new(dir)?;
        while let Some(entry) = entries.read() {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn limits(&mut self, quirks: &mut Quirks) {
        let name_bytes = self.name_bytes_max();
        if name_bytes < NAME_BYTES_MAX {
            quirks.name_bytes_max = name_bytes;
            self.notes
                .push(format!("names have at most {name_bytes} bytes: longer ones are not used"));
        }
        let grows_to = |end: u64| {
            let grown = self.begin().and_then(|file| {
                rustix::fs::ftruncate(&file, end)?;
                rustix::fs::fstat(&file).map(|stat| stat.st_size as u64 == end)
            });
            grown.unwrap_or(false)
        };
        if !grows_to(FILE_ENDS[0]) {
            let end = FILE_ENDS.into_iter().find(|end| grows_to(*end)).unwrap_or(1 << 20);
            quirks.offset_bytes_max = end;
            self.notes.push(format!("files do not grow to 2^40 bytes: {end} is the largest used"));
        }
        if !self.keeps_all_times() {
            (quirks.time_used_min, quirks.time_used_max) = (0, i64::from(i32::MAX));
            self.notes.push("times before 1970 or after 2038 are not kept: not used".to_owned());
        }
        if let Ok(grain) = self.time_grain()
            && grain > 1
        {
            quirks.time_grain_nsec = grain;
            self.notes.push(format!("times are kept in steps of {grain} ns"));
        }
    }

    /// The longest name, between 1 and 255, that can be made and is listed as it was given.
    fn name_bytes_max(&self) -> u32 {
        let works = |len: u32| {
            let name = "n".repeat(len as usize);
            let made = self.create(&name).is_ok();
            let found = made && self.stat(&name).is_ok();
            let _ = rustix::fs::unlinkat(&self.dir, &name, AtFlags::empty());
            found
        };
        if works(NAME_BYTES_MAX) {
            return NAME_BYTES_MAX;
        }
        let (mut good, mut bad) = (1, NAME_BYTES_MAX);
        while bad - good > 1 {
            let middle = (good + bad) / 2;
            if works(middle) { good = middle } else { bad = middle }
        }
        good
    }

    fn keeps_all_times(&self) -> bool {
        let keeps = |sec: i64| {
            let file = self.begin()?;
            let at = Timespec { tv_sec: sec, tv_nsec: 0 };
            rustix::fs::futimens(&file, &Timestamps { last_access: at, last_modification: at })?;
            Ok::<bool, Errno>(self.stat(A)?.st_mtime == sec)
        };
        let ends = [i64::from(i32::MIN), 1 << 31, 1 << 32, MANY_YEARS];
        ends.into_iter().all(|sec| keeps(sec).unwrap_or(false))
    }

    /// The steps in which a set time is kept.
    fn time_grain(&self) -> Tried<u64> {
        let file = self.begin()?;
        let at = Timespec { tv_sec: 1_000_000_001, tv_nsec: 123_456_789 };
        rustix::fs::futimens(&file, &Timestamps { last_access: at, last_modification: at })?;
        let stat = self.stat(A)?;
        Ok(match (stat.st_mtime, stat.st_mtime_nsec) {
            (1_000_000_001, 123_456_789) => 1,
            (1_000_000_001, 123_456_700) => 100,
            (1_000_000_001, 123_456_000) => 1_000,
            (1_000_000_001, 123_000_000) => 1_000_000,
            (1_000_000_001, 120_000_000) => 10_000_000,
            (1_000_000_001, _) => 1_000_000_000,
            _ => 2_000_000_000,
        })
    }

    fn allocation(&mut self, quirks: &mut Quirks) {
        let supported = |trial: &Trial, flags: FallocateFlags| {
            let tried = trial.begin().and_then(|file| {
                rustix::io::pwrite(&file, &[1; 16384], 0)?;
                rustix::fs::fallocate(&file, flags, 4096, 4096)
            });
            !matches!(tried, Err(Errno::OPNOTSUPP | Errno::NOSYS))
        };
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let mut missing = Vec::new();
        if !supported(self, FallocateFlags::empty()) {
            quirks.fallocate_allocate = false;
            missing.push("allocating");
        }
        for (flags, mode, name) in [
            (punch, FallocateMode::FALLOC_FL_PUNCH_HOLE, "punching holes"),
            (FallocateFlags::ZERO_RANGE, FallocateMode::FALLOC_FL_ZERO_RANGE, "zeroing"),
            (FallocateFlags::COLLAPSE_RANGE, FallocateMode::FALLOC_FL_COLLAPSE_RANGE, "collapsing"),
            (FallocateFlags::INSERT_RANGE, FallocateMode::FALLOC_FL_INSERT_RANGE, "inserting"),
            (FallocateFlags::UNSHARE_RANGE, FallocateMode::FALLOC_FL_UNSHARE_RANGE, "unsharing"),
        ] {
            if quirks.fallocate_modes.contains(mode) && !supported(self, flags) {
                quirks.fallocate_modes -= mode;
                missing.push(name);
            }
        }
        if !missing.is_empty() {
            let missing = missing.join(", ");
            self.notes
                .push(format!("fallocate does not support {missing}: EOPNOTSUPP is expected"));
        }
        self.opening(quirks);
    }

    fn opening(&mut self, quirks: &mut Quirks) {
        let tmpfile = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let tried = rustix::fs::openat(&self.dir, ".", tmpfile, Mode::RWXU);
        if quirks.tmpfile && tried.is_err() {
            quirks.tmpfile = false;
            self.notes.push("O_TMPFILE does not work: EOPNOTSUPP is expected".to_owned());
        }
        let direct = || {
            drop(self.begin()?);
            let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
            rustix::fs::openat(&self.dir, A, flags, Mode::empty())
        };
        if quirks.direct && direct().is_err() {
            quirks.direct = false;
            self.notes.push("O_DIRECT does not work: EINVAL is expected".to_owned());
        }
    }

    /// Says what names mean; the names that Fathom uses differ in more than their case.
    fn names(&mut self, _quirks: &mut Quirks) {
        let folds =
            self.create("fathom-trial-case").is_ok() && self.stat("FATHOM-trial-case").is_ok();
        let _ = rustix::fs::unlinkat(&self.dir, "fathom-trial-case", AtFlags::empty());
        if folds {
            self.notes.push("upper and lower case are the same in names".to_owned());
        }
    }
}

/// Whether what was never written before a byte is called a hole.
fn shows_holes(file: &OwnedFd) -> Tried<bool> {
    rustix::io::pwrite(file, b"x", HOLE_BYTES)?;
    Ok(rustix::fs::seek(file, SeekFrom::Hole(0))? < HOLE_BYTES)
}

/// Whether a file can be mapped, shared and writable.
#[allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]
fn maps(file: &OwnedFd) -> Tried<bool> {
    rustix::io::pwrite(file, b"x", 0)?;
    let (fd, protection): (RawFd, i32) = (file.as_raw_fd(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping at an address that the kernel chooses, which nobody touches and which is
    // unmapped at once.
    let mapped = unsafe {
        let start = libc::mmap(std::ptr::null_mut(), 1, protection, libc::MAP_SHARED, fd, 0);
        start != libc::MAP_FAILED && libc::munmap(start, 1) == 0
    };
    match mapped {
        true => Ok(true),
        false => {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENODEV);
            Err(Errno::from_raw_os_error(errno))
        }
    }
}
