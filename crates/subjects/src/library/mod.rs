//! File systems as libraries on a device in memory, one cargo feature each.
//!
//! They need no root, no kernel and no mount point, and a mount takes microseconds: so their states
//! can be searched exhaustively, with the power cut at every write.

#[cfg(any(
    feature = "fatfs",
    feature = "littlefs",
    feature = "littlefs-c",
    feature = "redoxfs",
    feature = "rsext4"
))]
mod calls;
#[cfg(any(feature = "fatfs", feature = "redoxfs", feature = "rsext4"))]
mod device;
#[cfg(feature = "fatfs")]
pub mod fatfs;
pub mod faulty;
#[cfg(any(feature = "fatfs", feature = "redoxfs", feature = "rsext4"))]
mod frame;
#[cfg(any(feature = "littlefs", feature = "littlefs-c"))]
pub mod littlefs;
#[cfg(feature = "redoxfs")]
pub mod redoxfs;
#[cfg(feature = "rsext4")]
pub mod rsext4;
mod testbed;

use fathom_block::{BlockBacked, Geometry};
use fathom_core::HarnessFault;

pub(crate) use testbed::{LibrarySubject, OPERATIONS};

/// A library file system that this program knows, built in or not.
pub struct Known {
    /// Its name on the command line.
    pub name: &'static str,
    /// The cargo feature that brings it.
    pub feature: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What the build needs beyond cargo.
    pub needs: &'static str,
    /// The program that formats it and its Debian package, if the library cannot.
    pub format: Option<(&'static str, &'static str)>,
    /// The checker that judges its disks.
    pub checker: Option<&'static str>,
    /// Which set of known differences applies: a name for [`fathom_model::Quirks::profile`].
    pub profile: &'static str,
    /// A device on which a long session has room. That of a crash check is as small as possible.
    pub check_geometry: Geometry,
    /// Makes it; `None` if the feature is not built in.
    make: Option<Make>,
}

/// Makes a file system on a given geometry, or on its default one.
type Make = fn(Option<Geometry>) -> Result<Box<dyn BlockBacked>, HarnessFault>;

impl Known {
    /// Whether it is built in.
    pub fn is_built_in(&self) -> bool {
        self.make.is_some()
    }

    /// Makes it, on the given geometry or on its default one.
    ///
    /// # Errors
    /// If it is not built in (the text says how to build it), or the geometry is impossible for it.
    pub fn open(&self, geometry: Option<Geometry>) -> Result<Box<dyn BlockBacked>, HarnessFault> {
        let Some(make) = self.make else {
            return Err(HarnessFault::new(
                format!("opening {}", self.name),
                format!(
                    "not built in: build with `cargo build --release --features {}`{}",
                    self.feature,
                    if self.needs.is_empty() {
                        String::new()
                    } else {
                        format!(" (needs {})", self.needs)
                    }
                ),
            ));
        };
        if let Some(geometry) = &geometry {
            geometry
                .validate()
                .map_err(|error| HarnessFault::new(format!("opening {}", self.name), error))?;
        }
        make(geometry)
    }
}

/// Gives `Some` only if the feature is on.
macro_rules! built_in {
    ($feature:literal, $make:expr) => {{
        #[cfg(feature = $feature)]
        let make: Option<Make> = Some($make);
        #[cfg(not(feature = $feature))]
        let make: Option<Make> = None;
        make
    }};
}

/// 4 MiB of flash: twice what the checker of space takes for full.
const CHECK_FLASH: Geometry = Geometry::flash(1024 * 4096, 16, 4096);

/// 8 MiB of disk.
const CHECK_DISK: Geometry = Geometry::disk(8 << 20);

/// All library file systems.
pub fn all() -> Vec<Known> {
    vec![
        Known {
            name: "littlefs",
            feature: "littlefs",
            about: "littlefs in Rust (littlefs-rust-core), a function-by-function port of the C code",
            needs: "",
            format: None,
            checker: None,
            profile: "littlefs",
            check_geometry: CHECK_FLASH,
            make: built_in!("littlefs", littlefs::port),
        },
        Known {
            name: "littlefs-c",
            feature: "littlefs-c",
            about: "littlefs in C (littlefs2-sys)",
            needs: "libclang",
            format: None,
            checker: None,
            profile: "littlefs",
            check_geometry: CHECK_FLASH,
            make: built_in!("littlefs-c", littlefs::original),
        },
        Known {
            name: "fatfs",
            feature: "fatfs",
            about: "FAT in Rust (fatfs): FAT12 on a small disk",
            needs: "",
            format: None,
            checker: None,
            profile: "fatfs",
            check_geometry: CHECK_DISK,
            make: built_in!("fatfs", fatfs::open),
        },
        Known {
            name: "rsext4",
            feature: "rsext4",
            about: "ext4 with its journal in Rust (rsext4), on images of mkfs.ext4",
            needs: "",
            format: Some(("mkfs.ext4", "e2fsprogs")),
            checker: Some("e2fsck -fn"),
            profile: "rsext4",
            check_geometry: CHECK_DISK,
            make: built_in!("rsext4", rsext4::open),
        },
        Known {
            name: "redoxfs",
            feature: "redoxfs",
            about: "the file system of Redox (redoxfs): copy on write, checksums",
            needs: "",
            format: None,
            checker: None,
            profile: "redoxfs",
            check_geometry: CHECK_DISK,
            make: built_in!("redoxfs", redoxfs::open),
        },
    ]
}
