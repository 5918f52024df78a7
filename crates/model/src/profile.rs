//! Profiles: the quirks of file systems as text, each the values in which it differs from another one.

use serde::Deserialize;

use crate::quirks::Quirks;

macro_rules! profiles {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),*]
    };
}

/// Name and text of every profile.
const PROFILES: &[(&str, &str)] = profiles![
    "generic",
    "model",
    "tmpfs",
    "ext2",
    "ext2-1k",
    "ext4",
    "ext4-1k",
    "xfs",
    "btrfs",
    "f2fs",
    "jfs",
    "nilfs2",
    "reiserfs",
    "gfs2",
    "ocfs2",
    "minix",
    "udf",
    "jffs2",
    "ubifs",
    "vfat",
    "exfat",
    "ntfs3",
    "overlay",
    "overlay-ext2-1k",
    "overlay-ext4",
    "overlay-ext4-1k",
    "overlay-xfs",
    "overlay-btrfs",
    "overlay-f2fs",
    "overlay-generic",
    "overlay-populated",
    "fuse",
    "reffs",
    "nfs",
    "nfs-3",
    "nfs-4.0",
    "nfs-4.1",
    "nfs-4.2",
    "nfs-over-fuse",
    "nfs-ganesha",
    "nfs-memory",
    "nfs-two-clients",
    "littlefs",
    "fatfs",
    "rsext4",
    "redoxfs"
];

/// A profile as it is written: the values that differ from the profile it inherits, or from the
/// default.
#[derive(Deserialize)]
struct Profile {
    inherits: Option<String>,
    /// What else differs on older kernels.
    #[serde(default)]
    older: Vec<Older>,
    #[serde(flatten)]
    values: toml::Table,
}

/// Values that hold before a version of Linux.
#[derive(Deserialize)]
struct Older {
    before: String,
    #[serde(flatten)]
    values: toml::Table,
}

impl Older {
    /// The first version for which they do not hold.
    fn until(&self) -> Result<(u32, u32), String> {
        let parts = self.before.split_once('.');
        let version = parts.and_then(|(major, minor)| major.parse().ok().zip(minor.parse().ok()));
        version.ok_or(format!("before = {:?} is no version of Linux such as \"6.12\"", self.before))
    }
}

/// Newer than every kernel.
const NEWEST: (u32, u32) = (u32::MAX, 0);

impl Quirks {
    /// The profile with this name.
    pub fn profile(name: &str) -> Option<Quirks> {
        Quirks::profile_on(name, NEWEST)
    }

    /// The profile with this name, as it is on a version of Linux.
    pub fn profile_on(name: &str, kernel: (u32, u32)) -> Option<Quirks> {
        let (_, text) = PROFILES.iter().find(|(known, _)| *known == name)?;
        Some(Quirks::parse_on(text, kernel).expect("the built-in profiles are under test"))
    }

    /// The profile of a file system with this block size: `ext4` with 1024 is `ext4-1k`.
    pub fn profile_for(name: &str, block_bytes: u32) -> Option<Quirks> {
        Quirks::profile(&format!("{name}-{}k", block_bytes / 1024))
            .or_else(|| Quirks::profile(name))
    }

    /// These quirks with what a layer above the file system changes: a profile whose values, and those of
    /// the ones that it inherits, replace these.
    pub fn with_layer(&self, name: &str, kernel: (u32, u32)) -> Option<Quirks> {
        let (_, text) = PROFILES.iter().find(|(known, _)| *known == name)?;
        let layered = Quirks::read(text, kernel, |below| match below {
            None => Some(self.clone()),
            Some(below) => self.with_layer(below, kernel),
        });
        Some(layered.expect("the built-in profiles are under test"))
    }

    /// The profile with this name, or with this text.
    ///
    /// # Errors
    /// If it is neither.
    pub fn named_or_text(profile: &str) -> Result<Quirks, String> {
        let is_text = profile.contains('=');
        match Quirks::profile(profile) {
            Some(quirks) => Ok(quirks),
            None if is_text => Quirks::parse(profile),
            None => {
                let known: Vec<&str> = Quirks::profile_names().collect();
                Err(format!("no profile {profile:?}; there are {}", known.join(", ")))
            }
        }
    }

    /// The names of all profiles.
    pub fn profile_names() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|(name, _)| *name)
    }

    /// Reads the text of a profile.
    ///
    /// # Errors
    /// Says what is wrong with the text, and where.
    pub fn parse(text: &str) -> Result<Quirks, String> {
        Quirks::parse_on(text, NEWEST)
    }

    /// Reads the text of a profile as it is on a version of Linux.
    ///
    /// # Errors
    /// As for [`Quirks::parse`].
    pub fn parse_on(text: &str, kernel: (u32, u32)) -> Result<Quirks, String> {
        Quirks::read(text, kernel, |below| match below {
            None => Some(Quirks::default()),
            Some(below) => Quirks::profile_on(below, kernel),
        })
    }

    /// Reads the text of a profile; `base` has what it inherits.
    fn read(
        text: &str,
        kernel: (u32, u32),
        base: impl FnOnce(Option<&str>) -> Option<Quirks>,
    ) -> Result<Quirks, String> {
        let profile: Profile = toml::from_str(text).map_err(|error| error.to_string())?;
        let inherits = profile.inherits.as_deref();
        let unknown = || format!("inherits the unknown profile {:?}", inherits.unwrap_or_default());
        let base = base(inherits).ok_or_else(unknown)?;
        let mut table = toml::Table::try_from(base).map_err(|error| error.to_string())?;
        table.extend(profile.values);
        for older in profile.older {
            if kernel < older.until()? {
                table.extend(older.values);
            }
        }
        table.try_into().map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_can_be_read_and_explains_every_value() {
        for (name, text) in PROFILES {
            let quirks = Quirks::profile(name).expect("it is there");
            assert_eq!(Quirks::parse(text), Ok(quirks));
            let mut lines = text.lines().peekable();
            assert!(lines.next().is_some_and(|line| line.starts_with("# ")), "{name}: no title");
            let mut explained = false;
            for line in lines {
                let is_value = !line.starts_with('#') && !line.is_empty();
                assert!(
                    explained || !is_value || line.starts_with("inherits"),
                    "{name}: why {line}"
                );
                explained =
                    if line.is_empty() { false } else { explained || line.starts_with('#') };
            }
        }
    }

    #[test]
    fn a_profile_changes_only_what_it_names() {
        let ext4 = Quirks::profile("ext4").unwrap();
        assert_eq!(Quirks { file_bytes_max: 17_592_186_040_320, ..ext4.clone() }, ext4);
        assert_eq!(Quirks::profile("ext2-1k").unwrap().link_max, ext4.link_max);
        assert_eq!(Quirks::profile_for("ext4", 1024), Quirks::profile("ext4-1k"));
        assert_eq!(Quirks::profile_for("ext4", 4096), Some(ext4));
        assert_eq!(Quirks::profile("nope"), None);
        assert_eq!(Quirks::profile_names().count(), PROFILES.len());
    }

    #[test]
    fn a_layer_changes_what_is_below_it() {
        let ext4 = Quirks::profile("ext4").unwrap();
        let layered = ext4.with_layer("nfs-4.2", NEWEST).unwrap();
        assert_eq!(layered.link_max, ext4.link_max);
        assert!(layered.silly_renames && !layered.tmpfile && layered.user_xattrs);
        assert!(!ext4.with_layer("nfs-4.1", NEWEST).unwrap().user_xattrs);
        assert_eq!(ext4.with_layer("nfs-5", NEWEST), None);
    }

    #[test]
    fn older_kernels_differ_where_the_profile_says_so() {
        let xfs = |kernel| Quirks::profile_on("xfs", kernel).unwrap().xattr_create_wins;
        assert_eq!([xfs((6, 1)), xfs((6, 12)), xfs((7, 0))], [false, true, true]);
        assert_eq!(Quirks::profile("xfs"), Quirks::profile_on("xfs", (6, 18)));
        let text = "link_max = 3\n[[older]]\nbefore = \"6.2\"\nlink_max = 2\n";
        assert_eq!(Quirks::parse_on(text, (6, 1)).unwrap().link_max, 2);
        assert_eq!(Quirks::parse(text).unwrap().link_max, 3);
        let wrong = "[[older]]\nbefore = \"six\"\nlink_max = 2\n";
        assert!(Quirks::parse(wrong).unwrap_err().contains("no version"));
    }

    #[test]
    fn a_bad_profile_says_why() {
        assert!(Quirks::parse("link_maximum = 3").unwrap_err().contains("link_maximum"));
        assert!(Quirks::parse("inherits = \"zfs\"").unwrap_err().contains("zfs"));
        assert!(Quirks::parse("link_max = ").is_err());
    }
}
