//! [`Options`] of a mount, and the words that `-o` takes.

use std::time::Duration;

use rustix::mount::{MountAttrFlags, MountFlags};

use crate::catalogue::near::did_you_mean;

/// The rule by which reading updates access times (mount(8)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// `relatime`, the default of Linux: only if the access time is not later than the last change,
    /// or older than a day.
    #[default]
    Relative,
    /// `strictatime`: with every read that the server sees.
    Strict,
    /// `noatime`: never.
    Never,
}

/// Options of serving a mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of threads that answer requests. All take the same lock, so that more of them only
    /// help where the copying of large reads and writes dominates.
    pub threads: usize,
    /// Whether a mount that is there gets these options (`remount`): those of the kernel, such as `ro` and
    /// `nosuid`; its server goes on as it is.
    pub remount: bool,
    /// Whether nothing can be changed (`ro`).
    pub read_only: bool,
    /// The rule for access times (`noatime`, `relatime`, `strictatime`).
    pub access_times: AccessTimes,
    /// Whether reading a directory leaves its access time alone (`nodiratime`).
    pub keep_directory_times: bool,
    /// Whether a directory may be covered that has something in it (`nonempty`).
    pub over_files: bool,
    /// Whether other users may use the mount of an ordinary user (`allow_other`); that of root is
    /// open to all.
    pub allow_other: bool,
    /// Whether there are access control lists (`acl`). The kernel then asks for them at every
    /// check of permissions.
    pub acl: bool,
    /// For how long the kernel may believe what it was told of names and attributes (`remembered=`). It then
    /// keeps contents, too, and does not tell what is opened. For those who know that the reference is no
    /// mutant (the kernel's own idea of a link count would hide it) and that nobody removes what is open.
    pub remembered: Duration,
    /// The device in /proc/mounts (`fsname=`).
    pub source: String,
    /// What follows `fuse.` in the type of the mount (`subtype=`); nothing for programs that know `fuse` alone.
    pub subtype: String,
    /// Whether setuid bits have no effect (`nosuid`).
    pub nosuid: bool,
    /// Whether devices cannot be opened (`nodev`).
    pub nodev: bool,
    /// Whether programs cannot be executed (`noexec`).
    pub noexec: bool,
}

impl Default for Options {
    /// One thread: on two processors no other number was faster, for one client or for four.
    fn default() -> Self {
        Options {
            threads: 1,
            remount: false,
            read_only: false,
            access_times: AccessTimes::default(),
            keep_directory_times: false,
            over_files: false,
            allow_other: false,
            acl: false,
            remembered: Duration::ZERO,
            source: "fathom".to_owned(),
            subtype: "reffs".to_owned(),
            nosuid: false,
            nodev: false,
            noexec: false,
        }
    }
}

/// The words that [`Options::set`] knows, for suggestions.
const WORDS: [&str; 24] = [
    "remount",
    "ro",
    "rw",
    "noatime",
    "atime",
    "relatime",
    "strictatime",
    "nodiratime",
    "diratime",
    "nosuid",
    "suid",
    "nodev",
    "dev",
    "noexec",
    "exec",
    "acl",
    "noacl",
    "allow_other",
    "default_permissions",
    "nonempty",
    "fsname=NAME",
    "subtype=NAME",
    "threads=N",
    "remembered=SECONDS",
];

/// The words of fstab(5) that concern others than the file system: mount(8) and systemd. And what the kernel shows of a
/// mount, which mount(8) hands back when a directory alone is mounted again (`mount -o remount,ro DIR`).
const FOR_OTHERS: [&str; 20] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "group",
    "owner",
    "_netdev",
    "user_id",
    "group_id",
    "rootmode",
    "max_read",
    "blksize",
    "sync",
    "async",
    "dirsync",
    "lazytime",
    "default_permissions",
];

impl Options {
    /// Sets one option as `-o` takes it.
    ///
    /// # Errors
    /// Says what is wrong with the word, and which one was perhaps meant.
    pub fn set(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("remount", None) => self.remount = true,
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("noatime", None) => self.access_times = AccessTimes::Never,
            ("relatime" | "atime", None) => self.access_times = AccessTimes::Relative,
            ("strictatime", None) => self.access_times = AccessTimes::Strict,
            ("nodiratime", None) => self.keep_directory_times = true,
            ("diratime", None) => self.keep_directory_times = false,
            ("nosuid", None) => self.nosuid = true,
            ("suid", None) => self.nosuid = false,
            ("nodev", None) => self.nodev = true,
            ("dev", None) => self.nodev = false,
            ("noexec", None) => self.noexec = true,
            ("exec", None) => self.noexec = false,
            ("acl", None) => self.acl = true,
            ("noacl", None) => self.acl = false,
            ("allow_other", None) => self.allow_other = true,
            ("nonempty", None) => self.over_files = true,
            ("fsname", Some(name)) => self.source = name.to_owned(),
            ("subtype", Some(name)) => self.subtype = name.to_owned(),
            ("threads", Some(number)) => {
                let threads = number.parse().ok().filter(|number| (1..=64).contains(number));
                self.threads = threads.ok_or("threads= takes a number from 1 to 64")?;
            }
            ("remembered", Some(seconds)) => {
                let seconds =
                    seconds.parse().map_err(|_| "remembered= takes a number of seconds")?;
                self.remembered = Duration::from_secs(seconds);
            }
            // A comment of fstab: systemd's x-systemd.automount, say.
            (name, _) if FOR_OTHERS.contains(&name) || name.starts_with("x-") => {}
            _ => {
                let hint = did_you_mean(word, WORDS.into_iter());
                return Err(format!("unknown mount option {word:?}{hint}"));
            }
        }
        Ok(())
    }

    /// The flags of the mount in the kernel.
    pub(super) fn mount_flags(&self) -> MountAttrFlags {
        let mut flags = MountAttrFlags::empty();
        flags.set(MountAttrFlags::MOUNT_ATTR_NOSUID, self.nosuid);
        flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, self.nodev);
        flags.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, self.noexec);
        flags.set(MountAttrFlags::MOUNT_ATTR_RDONLY, self.read_only);
        flags.set(MountAttrFlags::MOUNT_ATTR_NODIRATIME, self.keep_directory_times);
        match self.access_times {
            AccessTimes::Relative => {}
            AccessTimes::Strict => flags.insert(MountAttrFlags::MOUNT_ATTR_STRICTATIME),
            AccessTimes::Never => flags.insert(MountAttrFlags::MOUNT_ATTR_NOATIME),
        }
        flags
    }

    /// The same for a mount that is there. Without a rule for access times it keeps the one that it has.
    pub(super) fn remount_flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::NOSUID, self.nosuid);
        flags.set(MountFlags::NODEV, self.nodev);
        flags.set(MountFlags::NOEXEC, self.noexec);
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NODIRATIME, self.keep_directory_times);
        flags.set(MountFlags::STRICTATIME, self.access_times == AccessTimes::Strict);
        flags.set(MountFlags::NOATIME, self.access_times == AccessTimes::Never);
        flags
    }

    /// The same for fusermount3.
    pub(super) fn helper_words(&self) -> String {
        // A comma or a backslash in a name would end it (libfuse's lib/mount_util.c escapes alike).
        let escaped = |name: &str| name.replace('\\', "\\\\").replace(',', "\\,");
        let mut words = format!("default_permissions,fsname={}", escaped(&self.source));
        if !self.subtype.is_empty() {
            words.push_str(&format!(",subtype={}", escaped(&self.subtype)));
        }
        let optional = [
            (self.read_only, "ro"),
            (self.access_times == AccessTimes::Never, "noatime"),
            (self.noexec, "noexec"),
            (self.allow_other, "allow_other"),
        ];
        for (_, word) in optional.into_iter().filter(|(wanted, _)| *wanted) {
            words.push(',');
            words.push_str(word);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_explained() {
        let mut options = Options::default();
        for word in ["ro", "noatime", "nosuid", "fsname=a,b", "nofail", "x-systemd.automount"] {
            options.set(word).unwrap();
        }
        assert!(options.read_only && options.access_times == AccessTimes::Never);
        let flags = options.mount_flags();
        assert!(flags.contains(MountAttrFlags::MOUNT_ATTR_NOSUID));
        assert!(flags.contains(MountAttrFlags::MOUNT_ATTR_RDONLY));
        assert_eq!(
            options.helper_words(),
            "default_permissions,fsname=a\\,b,subtype=reffs,ro,noatime"
        );
        options.set("subtype=").unwrap();
        assert_eq!(options.helper_words(), "default_permissions,fsname=a\\,b,ro,noatime");
        let error = options.set("noatme").unwrap_err();
        assert!(error.contains("did you mean noatime?"), "{error}");
        assert!(options.set("threads=0").is_err());
    }
}
