//! [`Recipe`]: how a kernel file system is made and checked, as data.
//!
//! The recipes are the files in `profiles/kernel`; each value in them has its reason beside it. A
//! file of a user has the same form, and may have its own `[quirks]`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::SubjectError;

/// How to format, mount and check a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// How it is named on the command line.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Type as the kernel knows it.
    pub fs_type: String,
    /// Size of the device (of a `tmpfs`: the limit). Memory is used as far as it is written.
    pub image_bytes: u64,
    /// The unit in which it allocates, as some calls show it (`FALLOC_FL_COLLAPSE_RANGE`).
    pub block_bytes: u32,
    /// Makes the file system on a device; `None` for one that has no device.
    pub format: Option<Program>,
    /// Mount options: `key` or `key=value`.
    pub options: Vec<String>,
    /// Entries of a new file system that the reference does not have: they are removed.
    pub removed_entries: Vec<String>,
    /// Beginnings of names of extended attributes that are its own doing: they are not looked at.
    pub hidden_xattrs: Vec<String>,
    /// It lives on flash that is erased in pieces of so many bytes: its disk is made one.
    pub flash_erase_bytes: Option<u32>,
    /// It lies on a volume of UBI on that flash.
    pub flash_volume: bool,
    /// Whether the disk of a frozen file system is as good as that of an unmounted one.
    pub freezes: bool,
    /// Whether it must find nothing in the device's cache at a mount, as where nobody else holds the device.
    pub cache_forgotten: bool,
    /// Says whether the unmounted disk is sound.
    pub checker: Option<Checker>,
    /// Which set of known differences applies: a name for [`fathom_model::Quirks::profile`].
    pub profile: String,
    /// Known differences that the recipe itself gives, as TOML.
    pub quirks: Option<String>,
    /// Parts of what it logs while all is well: not taken for complaints.
    pub log_ignored: Vec<String>,
    /// What is mounted on top of it and then used.
    pub layer: Option<Layer>,
    /// So much is left of the space of the new file system; all of it by default.
    pub space_bytes: Option<u64>,
    /// Why it should not run on a machine that matters: it runs in a guest, or if somebody insists.
    pub risk: Option<String>,
}

/// A program that works on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments, to which the device is added.
    pub command: Vec<String>,
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// Debian package with the program.
    pub package: String,
    /// Whether it wants a block device with a path; else it gets the image itself.
    pub on_device: bool,
}

impl Program {
    /// As it can be typed.
    pub fn text(&self) -> String {
        self.command.join(" ")
    }
}

/// A program that judges a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checker {
    /// The program; it must only read.
    pub program: Program,
    /// Exit codes that say that all is well.
    pub clean: Vec<i32>,
    /// Exit codes that say that it did not do its work. All others are about the file system.
    pub failed: Vec<i32>,
}

/// A file system that is mounted over directories of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Type as the kernel knows it.
    pub fs_type: String,
    /// Mount options.
    pub options: Vec<String>,
    /// Oldest kernel that mounts it over a mount without a place: major and minor version. An older one
    /// of a guest gets a place to mount it at.
    pub kernel_min: (u32, u32),
    /// Whether the upper layer becomes the uppermost lower one at every second mount, under a new one: what was
    /// made before is then in lower layers (`layers.rs`).
    pub restacks: bool,
}

/// What was asked for beyond the recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Arguments for the formatting program, after those of the recipe.
    pub format: Vec<String>,
    /// Mount options, after those of the recipe; of an overlay: for the overlay.
    pub mount: Vec<String>,
    /// See [`Recipe::space_bytes`].
    pub space_bytes: Option<u64>,
    /// See [`Recipe::image_bytes`].
    pub disk_bytes: Option<u64>,
}

/// The recipes that come with Fathom, in the order in which they are listed.
const FILES: [&str; 23] = [
    include_str!("../../profiles/kernel/tmpfs.toml"),
    include_str!("../../profiles/kernel/ext2.toml"),
    include_str!("../../profiles/kernel/ext3.toml"),
    include_str!("../../profiles/kernel/ext4.toml"),
    include_str!("../../profiles/kernel/ext4-1k.toml"),
    include_str!("../../profiles/kernel/xfs.toml"),
    include_str!("../../profiles/kernel/btrfs.toml"),
    include_str!("../../profiles/kernel/f2fs.toml"),
    include_str!("../../profiles/kernel/jfs.toml"),
    include_str!("../../profiles/kernel/nilfs2.toml"),
    include_str!("../../profiles/kernel/reiserfs.toml"),
    include_str!("../../profiles/kernel/gfs2.toml"),
    include_str!("../../profiles/kernel/ocfs2.toml"),
    include_str!("../../profiles/kernel/bcachefs.toml"),
    include_str!("../../profiles/kernel/vfat.toml"),
    include_str!("../../profiles/kernel/exfat.toml"),
    include_str!("../../profiles/kernel/ntfs3.toml"),
    include_str!("../../profiles/kernel/minix.toml"),
    include_str!("../../profiles/kernel/hfsplus.toml"),
    include_str!("../../profiles/kernel/udf.toml"),
    include_str!("../../profiles/kernel/jffs2.toml"),
    include_str!("../../profiles/kernel/ubifs.toml"),
    include_str!("../../profiles/kernel/overlay.toml"),
];

/// What an overlay without a further word lies on.
const OVERLAY_ON: &str = "tmpfs";

const OVERLAY: &str = "overlay";

/// What the size of a disk is a multiple of.
const DISK_UNIT_BYTES: u64 = 4096;

/// Of a recipe that does not say it.
const BLOCK_BYTES: u32 = 4096;

/// A recipe as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    about: String,
    fs_type: String,
    image_kib: Option<u64>,
    block_bytes: Option<u32>,
    profile: Option<String>,
    #[serde(default)]
    mount_options: Vec<String>,
    #[serde(default)]
    removed_entries: Vec<String>,
    #[serde(default)]
    hidden_xattrs: Vec<String>,
    flash_erase_kib: Option<u32>,
    #[serde(default)]
    flash_volume: bool,
    risk: Option<String>,
    #[serde(default)]
    freezes: bool,
    #[serde(default)]
    cache_forgotten: bool,
    #[serde(default)]
    log_ignored: Vec<String>,
    #[serde(default)]
    can_be_upper: bool,
    format: Option<WrittenProgram>,
    check: Option<WrittenProgram>,
    layer: Option<WrittenLayer>,
    quirks: Option<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProgram {
    command: String,
    package: String,
    #[serde(default)]
    on_device: bool,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    #[serde(default)]
    clean: Vec<i32>,
    #[serde(default)]
    failed: Vec<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLayer {
    kernel_min: String,
}

impl Recipe {
    /// The recipes that come with Fathom; `overlay` stands for all of `overlay:NAME`.
    pub fn all() -> Vec<Recipe> {
        let all = FILES.iter().map(|text| Written::read(text));
        let (layers, bases): (Vec<_>, Vec<_>) = all.partition(|one| one.layer.is_some());
        let uppers = bases.iter().map(|base| base.can_be_upper).collect::<Vec<_>>();
        let bases: Vec<Recipe> = bases.into_iter().map(Written::into_recipe).collect();
        let mut recipes = bases.clone();
        for layer in layers {
            let uppers = bases.iter().zip(&uppers).filter(|(_, can)| **can);
            recipes.extend(uppers.map(|(base, _)| layer.over(base)));
        }
        let base = |name: &str| recipes.iter().find(|recipe| recipe.name == name).cloned();
        let variants = super::variant::recipes(base);
        recipes.extend(variants);
        recipes
    }

    /// The recipe of this name.
    pub fn named(name: &str) -> Option<Recipe> {
        let name = if name == format!("{OVERLAY}:{OVERLAY_ON}") { OVERLAY } else { name };
        Recipe::all().into_iter().find(|recipe| recipe.name == name)
    }

    /// Reads a recipe that a user wrote.
    ///
    /// # Errors
    /// If it is none; says where.
    pub fn parse(text: &str) -> Result<Recipe, SubjectError> {
        let written: Written =
            toml::from_str(text).map_err(|error| SubjectError::Recipe(error.to_string()))?;
        if written.layer.is_some() {
            let only = "a layer cannot be a recipe of its own: use overlay:NAME";
            return Err(SubjectError::Recipe(only.to_owned()));
        }
        written.check()?;
        Ok(written.into_recipe())
    }

    /// The recipe with what was asked for beyond it.
    ///
    /// # Errors
    /// If there is no formatting program to give an argument to, or no disk can have that size.
    pub fn with(mut self, options: &Options) -> Result<Recipe, SubjectError> {
        if !options.format.is_empty() {
            let Some(format) = &mut self.format else {
                return Err(SubjectError::NotFormatted(self.name));
            };
            format.command.extend(options.format.iter().cloned());
        }
        if let Some(bytes) = options.disk_bytes {
            self.resize(bytes)?;
        }
        let mount = match &mut self.layer {
            Some(layer) => &mut layer.options,
            None => &mut self.options,
        };
        mount.extend(options.mount.iter().cloned());
        self.space_bytes = options.space_bytes.or(self.space_bytes);
        Ok(self)
    }

    /// Gives it a disk of another size, with as many inodes as blocks where the recipe has few.
    fn resize(&mut self, bytes: u64) -> Result<(), SubjectError> {
        if bytes == 0 || !bytes.is_multiple_of(DISK_UNIT_BYTES) {
            let unit = DISK_UNIT_BYTES >> 10;
            let message = format!("a disk of {bytes} bytes: give a multiple of {unit} KiB");
            return Err(SubjectError::Recipe(message));
        }
        let inodes = bytes / u64::from(self.block_bytes);
        match &mut self.format {
            None => self.options.extend([format!("size={bytes}"), format!("nr_inodes={inodes}")]),
            Some(format) => {
                self.image_bytes = bytes;
                let mut words = format.command.iter_mut();
                if words.any(|word| word == "-N")
                    && let Some(count) = words.next()
                {
                    *count = inodes.to_string();
                }
            }
        }
        Ok(())
    }

    /// Every type that the kernel must know.
    pub fn fs_types(&self) -> Vec<&str> {
        let layer = self.layer.as_ref().map(|layer| layer.fs_type.as_str());
        std::iter::once(self.fs_type.as_str()).chain(layer).collect()
    }
}

impl Written {
    /// Of a file that comes with Fathom; a test reads them all.
    fn read(text: &str) -> Written {
        toml::from_str(text).expect("the recipes that come with Fathom are tested")
    }

    fn check(&self) -> Result<(), SubjectError> {
        let wrong = |what: &str| Err(SubjectError::Recipe(what.to_owned()));
        match (&self.format, self.image_kib) {
            (Some(_), None) => return wrong("[format] needs a device: give image_kib"),
            (Some(_), Some(kib)) if kib == 0 || kib % 4 != 0 => {
                return wrong("image_kib must be a multiple of 4");
            }
            _ => {}
        }
        let commands = self.format.iter().chain(&self.check);
        if commands.into_iter().any(|program| program.command.trim().is_empty()) {
            return wrong("a command is empty: give a program and its arguments");
        }
        Ok(())
    }

    fn into_recipe(self) -> Recipe {
        let checker = self.check.map(|check| {
            let (clean, failed) = (check.clean.clone(), check.failed.clone());
            Checker { program: check.into_program(), clean, failed }
        });
        Recipe {
            profile: self.profile.unwrap_or_else(|| "generic".to_owned()),
            quirks: self.quirks.map(|quirks| quirks.to_string()),
            name: self.name,
            about: self.about,
            fs_type: self.fs_type,
            image_bytes: self.image_kib.unwrap_or(0) << 10,
            block_bytes: self.block_bytes.unwrap_or(BLOCK_BYTES),
            format: self.format.map(WrittenProgram::into_program),
            options: self.mount_options,
            removed_entries: self.removed_entries,
            hidden_xattrs: self.hidden_xattrs,
            flash_erase_bytes: self.flash_erase_kib.map(|kib| kib << 10),
            flash_volume: self.flash_volume,
            freezes: self.freezes,
            cache_forgotten: self.cache_forgotten,
            log_ignored: self.log_ignored,
            checker,
            layer: None,
            space_bytes: None,
            risk: self.risk,
        }
    }

    /// This layer on a base: a disk of the base with something more to mount.
    fn over(&self, base: &Recipe) -> Recipe {
        let written = self.layer.as_ref().expect("asked only of layers");
        let kernel_min = version(&written.kernel_min).expect("a test reads it");
        let (name, profile) = match base.name.as_str() {
            OVERLAY_ON => (self.name.clone(), self.name.clone()),
            other => (format!("{}:{other}", self.name), format!("{}-{}", self.name, base.profile)),
        };
        let layer = Layer {
            fs_type: self.fs_type.clone(),
            options: self.mount_options.clone(),
            kernel_min,
            restacks: false,
        };
        let about = format!("{} on {}", self.about, base.name);
        Recipe { name, about, profile, layer: Some(layer), ..base.clone() }
    }
}

impl WrittenProgram {
    fn into_program(self) -> Program {
        let command = self.command.split_whitespace().map(str::to_owned).collect();
        let WrittenProgram { variables, package, on_device, .. } = self;
        Program { command, variables, package, on_device }
    }
}

/// `6.15` and what begins like it (`6.15.3-arch1`).
pub fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_found_by_their_names() {
        for recipe in Recipe::all() {
            assert_eq!(Recipe::named(&recipe.name), Some(recipe.clone()));
            assert_eq!(recipe.format.is_none(), recipe.fs_type == "tmpfs");
            assert!(fathom_model::Quirks::profile(&recipe.profile).is_some(), "{}", recipe.profile);
            assert_eq!(recipe.image_bytes % 4096, 0);
            if let Some(checker) = &recipe.checker {
                assert!(checker.clean.contains(&0), "{}", recipe.name);
            }
        }
        assert_eq!(Recipe::named("overlay"), Recipe::named("overlay:tmpfs"));
        assert_eq!(Recipe::named("overlay:ext4").unwrap().fs_types(), ["ext4", "overlay"]);
        assert_eq!(Recipe::named("ext5"), None);
        assert_eq!(Recipe::named("overlay:overlay"), None);
    }

    #[test]
    fn a_file_of_a_user_is_read_or_refused_with_the_place() {
        let mine = include_str!("../../profiles/kernel/ext4.toml").replace("\"ext4\"", "\"mine\"");
        let mine = format!("{mine}\n[quirks]\ninherits = \"ext4\"\nlink_max = 3\n");
        let recipe = Recipe::parse(&mine).unwrap();
        let quirks = fathom_model::Quirks::parse(recipe.quirks.as_ref().unwrap()).unwrap();
        assert_eq!(quirks.link_max, 3);
        let wrong = |text: String| Recipe::parse(&text).unwrap_err().to_string();
        assert!(wrong(mine.replace("freezes", "freezs")).contains("freezs"));
        assert!(wrong(mine.replace("image_kib = 65536", "")).contains("image_kib"));
        assert!(wrong(mine.replace("65536", "65537")).contains("multiple of 4"));
        let layer = include_str!("../../profiles/kernel/overlay.toml");
        assert!(wrong(layer.to_owned()).contains("overlay:NAME"));
    }

    #[test]
    fn what_was_asked_for_comes_after_the_recipe() {
        let words = |text: &str| vec![text.to_owned()];
        let options = Options { format: words("-x"), mount: words("y=1"), ..Options::default() };
        let ext4 = Recipe::named("ext4").unwrap().with(&options).unwrap();
        assert_eq!(ext4.format.unwrap().command.last().unwrap(), "-x");
        assert_eq!(ext4.options, ["y=1"]);
        let overlay = Recipe::named("overlay:ext4").unwrap().with(&options).unwrap();
        assert_eq!(overlay.layer.unwrap().options.last().unwrap(), "y=1");
        let large = Options { disk_bytes: Some(1 << 30), ..Options::default() };
        let ext4 = Recipe::named("ext4").unwrap().with(&large).unwrap();
        let command = ext4.format.unwrap().command;
        assert_eq!(ext4.image_bytes, 1 << 30);
        assert!(command.windows(2).any(|pair| pair == ["-N", "262144"]), "{command:?}");
        let tmpfs = Recipe::named("tmpfs").unwrap().with(&large).unwrap();
        assert_eq!(tmpfs.options[3..], ["size=1073741824", "nr_inodes=262144"]);
        let odd = Options { disk_bytes: Some(1000), ..Options::default() };
        let error = Recipe::named("xfs").unwrap().with(&odd).unwrap_err().to_string();
        assert!(error.contains("a multiple of 4 KiB"), "{error}");
        let error = Recipe::named("tmpfs").unwrap().with(&options).unwrap_err().to_string();
        assert_eq!(error, "tmpfs is not formatted: there is no program to give options to");
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(version("6.15"), Some((6, 15)));
        assert_eq!(version("6.1.0-17-amd64"), Some((6, 1)));
        assert_eq!(version("linux"), None);
    }
}
