//! utimensat(2), futimens(3): fs/utimes.c, fs/attr.c.

use fathom_core::{Errno, Target, TimeArg};

use super::Model;
use super::permission::Mask;
use crate::volume::SetTime;

/// The special values of `tv_nsec`.
const UTIME_NOW: u32 = 0x3fff_ffff;
const UTIME_OMIT: u32 = 0x3fff_fffe;

impl Model {
    pub(super) fn utimens(
        &mut self,
        target: &Target,
        atime: TimeArg,
        mtime: TimeArg,
    ) -> Result<u64, Errno> {
        let (atime, mtime) = (normal(atime), normal(mtime));
        if (atime, mtime) == (TimeArg::Omit, TimeArg::Omit) {
            // "We must not even check the path."
            return Ok(0);
        }
        let ino = self.target(target)?;
        for time in [atime, mtime] {
            if matches!(time, TimeArg::At { nsec, .. } if nsec >= 1_000_000_000) {
                return Err(Errno::EINVAL);
            }
        }
        if !self.owns(&self.volume.attr(ino)?) {
            match (atime, mtime) {
                // Who can write can also touch.
                (TimeArg::Now, TimeArg::Now) => self.permission(ino, Mask::WRITE)?,
                (TimeArg::Now, TimeArg::Omit) | (TimeArg::Omit, TimeArg::Now)
                    if self.quirks().writers_touch_one_time =>
                {
                    self.permission(ino, Mask::WRITE)?;
                }
                _ => return Err(Errno::EPERM),
            }
        }
        let (atime, mtime) = (self.set_time(atime), self.set_time(mtime));
        self.volume.set_times(ino, atime, mtime)?;
        Ok(0)
    }

    /// A time that the file system cannot store becomes the nearest it can (fs/inode.c
    /// `timestamp_truncate`).
    fn set_time(&self, time: TimeArg) -> Option<SetTime> {
        let (min, max) = (self.quirks().time_sec_min, self.quirks().time_sec_max);
        match time {
            TimeArg::Omit => None,
            TimeArg::Now => Some(SetTime::Now),
            // At both ends of the range there are no fractions of a second.
            TimeArg::At { sec, .. } if sec <= min => Some(SetTime::At { sec: min, nsec: 0 }),
            TimeArg::At { sec, .. } if sec >= max => Some(SetTime::At { sec: max, nsec: 0 }),
            TimeArg::At { sec, nsec } => Some(SetTime::At { sec, nsec }),
        }
    }
}

fn normal(time: TimeArg) -> TimeArg {
    match time {
        TimeArg::At { nsec: UTIME_NOW, .. } => TimeArg::Now,
        TimeArg::At { nsec: UTIME_OMIT, .. } => TimeArg::Omit,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Op, Stamp};

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    const NOW: TimeArg = TimeArg::Now;
    const OMIT: TimeArg = TimeArg::Omit;
    const PAST: TimeArg = TimeArg::At { sec: 5, nsec: 6 };
    const BAD: TimeArg = TimeArg::At { sec: 5, nsec: 1_000_000_000 };

    fn utimens(target: Target, atime: TimeArg, mtime: TimeArg) -> Op {
        Op::Utimens { target, atime, mtime }
    }

    #[test]
    fn who_may() {
        let mut m = model();
        given(
            &mut m,
            &[
                file("rw", 0o666),
                file("ro", 0o644),
                open(0, "ro", OpenFlags::O_PATH),
                become_user(ALICE),
            ],
        );
        let table = [
            (utimens(at("nope"), OMIT, OMIT), Ok(0)),
            (utimens(Target::Slot(9), OMIT, OMIT), Ok(0)),
            (utimens(Target::Slot(9), NOW, NOW), Err(E::EBADF)),
            (utimens(Target::Slot(0), NOW, NOW), Err(E::EBADF)),
            (utimens(at("nope"), BAD, NOW), Err(E::ENOENT)),
            (utimens(at("ro"), BAD, NOW), Err(E::EINVAL)),
            (utimens(at("ro"), NOW, NOW), Err(E::EACCES)),
            (utimens(at("rw"), NOW, NOW), Ok(0)),
            (utimens(at("rw"), NOW, OMIT), Err(E::EPERM)),
            (utimens(at("rw"), PAST, PAST), Err(E::EPERM)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn times_keep_to_the_first_second_and_the_grain() {
        let quirks =
            Quirks { time_sec_min: 10, time_grain_nsec: 2_000_000_000, ..Quirks::default() };
        let mut m = model_with(quirks);
        let set = |sec, nsec| utimens(at("f"), OMIT, TimeArg::At { sec, nsec });
        given(&mut m, &[file("f", 0o644)]);
        for (given_time, kept) in [((9, 7), 10), ((10, 7), 10), ((11, 7), 10), ((12, 7), 12)] {
            given(&mut m, &[set(given_time.0, given_time.1)]);
            assert_eq!(attr(&m, "f").times.mtime, Stamp::At { sec: kept, nsec: 0 });
        }
        let mut plain = model();
        given(&mut plain, &[file("f", 0o644), set(9, 7)]);
        assert_eq!(attr(&plain, "f").times.mtime, Stamp::At { sec: 9, nsec: 7 });
    }

    #[test]
    fn links_that_keep_no_times_are_links() {
        let mut m = model_with(Quirks { link_times_kept: false, ..Quirks::default() });
        let now = |m: &Model, name: &str| matches!(attr(m, name).times.mtime, Stamp::Tick(_));
        given(&mut m, &[symlink("f", "l"), file("f", 0o644)]);
        given(&mut m, &[utimens(Target::Link(path("l")), PAST, PAST)]);
        given(&mut m, &[utimens(at("f"), PAST, PAST)]);
        assert!(now(&m, "l") && !now(&m, "f"));
        let mut plain = model();
        given(&mut plain, &[symlink("f", "l"), utimens(Target::Link(path("l")), PAST, PAST)]);
        assert!(!now(&plain, "l"));
    }

    #[test]
    fn values_are_kept_and_clamped() {
        let mut m = model_with(Quirks { time_sec_max: 100, ..Quirks::default() });
        given(
            &mut m,
            &[file("f", 0o644), utimens(at("f"), PAST, TimeArg::At { sec: 101, nsec: 7 })],
        );
        let times = attr(&m, "f").times;
        assert_eq!(
            (times.atime, times.mtime),
            (Stamp::At { sec: 5, nsec: 6 }, Stamp::At { sec: 100, nsec: 0 })
        );
        given(&mut m, &[utimens(at("f"), OMIT, TimeArg::At { sec: 0, nsec: UTIME_NOW })]);
        let times = attr(&m, "f").times;
        assert!(matches!((times.atime, times.mtime), (Stamp::At { sec: 5, .. }, Stamp::Tick(_))));
    }

    /// Found with ext4 behind NFS 3: the client had cut 0.999999999 to 0.
    #[test]
    fn the_first_and_the_last_second_of_nfs_3_have_no_fractions() {
        let mut m =
            model_with(Quirks::profile("ext4").unwrap().with_layer("nfs-3", (6, 12)).unwrap());
        let first = TimeArg::At { sec: 0, nsec: 999_999_999 };
        let last = TimeArg::At { sec: u32::MAX.into(), nsec: 1 };
        given(&mut m, &[file("f", 0o644), utimens(at("f"), first, last)]);
        let times = attr(&m, "f").times;
        assert_eq!(times.atime, Stamp::At { sec: 0, nsec: 0 });
        assert_eq!(times.mtime, Stamp::At { sec: u32::MAX.into(), nsec: 0 });
    }

    /// Found with the reference behind the kernel's server, all versions: success, not `EPERM`.
    #[test]
    fn over_nfs_who_may_write_can_touch_one_of_two_times() {
        let mut m = model_with(Quirks::default().with_layer("nfs-3", (6, 12)).unwrap());
        given(&mut m, &[file("rw", 0o666), file("ro", 0o644), become_user(ALICE)]);
        let table = [
            (utimens(at("rw"), OMIT, NOW), Ok(0)),
            (utimens(at("rw"), NOW, OMIT), Ok(0)),
            (utimens(at("ro"), OMIT, NOW), Err(E::EACCES)),
            (utimens(at("rw"), OMIT, PAST), Err(E::EPERM)),
            (utimens(at("rw"), NOW, PAST), Err(E::EPERM)),
        ];
        check(&mut m, &table);
    }

    /// Found with ext4 behind NFS 4.0 of Ganesha.
    #[test]
    fn links_behind_ganesha_keep_no_times() {
        let kept = |quirks: Quirks| {
            let mut m = model_with(quirks);
            let link = Op::Symlink { target: "x".into(), path: path("s") };
            given(&mut m, &[link, utimens(Target::Link(path("s")), PAST, PAST)]);
            matches!(attr(&m, "s").times.mtime, Stamp::At { .. })
        };
        assert!(kept(Quirks::default()));
        assert!(!kept(Quirks::default().with_layer("nfs-ganesha", (6, 12)).unwrap()));
    }

    #[test]
    fn a_root_without_an_entry_keeps_no_times() {
        let set = |quirks: Quirks, name: &str| {
            let mut m = model_with(quirks);
            given(&mut m, &[mkdir("d", 0o755), utimens(at(name), PAST, PAST)]);
            matches!(attr(&m, name).times.mtime, Stamp::At { .. })
        };
        let fat = || Quirks { root_times_kept: false, ..Quirks::default() };
        assert!(set(Quirks::default(), ".") && set(fat(), "d"));
        assert!(!set(fat(), ".") && !set(fat(), "d/.."));
    }
}
