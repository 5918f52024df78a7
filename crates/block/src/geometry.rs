//! The shape of a device: its size and the units in which it can be used.

use serde::{Deserialize, Serialize};

use crate::image::{Erased, Image};

/// Sizes of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Bytes of the whole device.
    pub size_bytes: usize,
    /// Unit of reads.
    pub read_bytes: usize,
    /// Unit of writes (flash: program operations).
    pub write_bytes: usize,
    /// Unit of erases (disk: discards).
    pub erase_bytes: usize,
    /// Unit that a power failure cannot split, aligned to its own size. Independent of
    /// `write_bytes`: a disk with 512-byte sectors may promise 4096, flash that programs 256 bytes
    /// may promise 1.
    pub atomic_bytes: usize,
    /// Value of an erased byte.
    pub erased: Erased,
    /// Whether a unit can be written again without an erase in between (disk: yes, flash: no).
    pub rewritable: bool,
}

/// A geometry that no device can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A unit has 0 bytes.
    #[error("{what} is 0: every unit has at least one byte")]
    Zero {
        /// The field of the unit.
        what: &'static str,
    },
    /// One unit must hold a whole number of another.
    #[error("{whole} ({whole_bytes}) is not a multiple of {part} ({part_bytes})")]
    NotMultiple {
        /// The larger unit.
        whole: &'static str,
        /// Its size.
        whole_bytes: usize,
        /// The smaller unit.
        part: &'static str,
        /// Its size.
        part_bytes: usize,
    },
    /// The image has another size.
    #[error("the image has {image_bytes} bytes, the geometry says {size_bytes}")]
    OtherSize {
        /// Bytes of the image.
        image_bytes: usize,
        /// Bytes that the geometry says.
        size_bytes: usize,
    },
}

impl Geometry {
    /// Makes a disk with 512-byte sectors, each of which is atomic.
    pub const fn disk(size_bytes: usize) -> Geometry {
        Geometry {
            size_bytes,
            read_bytes: 512,
            write_bytes: 512,
            erase_bytes: 512,
            atomic_bytes: 512,
            erased: Erased::Zeros,
            rewritable: true,
        }
    }

    /// Makes NOR flash: it reads and programs in units of `program_bytes`, each of which is atomic.
    pub const fn flash(size_bytes: usize, program_bytes: usize, erase_bytes: usize) -> Geometry {
        Geometry {
            size_bytes,
            read_bytes: program_bytes,
            write_bytes: program_bytes,
            erase_bytes,
            atomic_bytes: program_bytes,
            erased: Erased::Ones,
            rewritable: false,
        }
    }

    /// Checks that such a device can exist.
    ///
    /// # Errors
    /// Names the field that cannot work.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let units = [
            ("read_bytes", self.read_bytes),
            ("write_bytes", self.write_bytes),
            ("erase_bytes", self.erase_bytes),
        ];
        let all = units
            .into_iter()
            .chain([("atomic_bytes", self.atomic_bytes), ("size_bytes", self.size_bytes)]);
        if let Some((what, _)) = all.into_iter().find(|(_, bytes)| *bytes == 0) {
            return Err(GeometryError::Zero { what });
        }
        for whole in [("erase_bytes", self.erase_bytes), ("size_bytes", self.size_bytes)] {
            for part in units {
                if !is_multiple(whole.1, part.1) {
                    return Err(GeometryError::NotMultiple {
                        whole: whole.0,
                        whole_bytes: whole.1,
                        part: part.0,
                        part_bytes: part.1,
                    });
                }
            }
        }
        Ok(())
    }

    /// Makes an erased image of this size.
    pub fn blank_image(&self) -> Image {
        Image::new(self.size_bytes, self.erased)
    }
}

/// Whether `bytes` are whole units. Nearly all units are powers of two, and a division takes as long
/// as the rest of a read.
#[inline]
pub(crate) fn is_multiple(bytes: usize, unit_bytes: usize) -> bool {
    if unit_bytes.is_power_of_two() {
        return bytes & (unit_bytes - 1) == 0;
    }
    bytes.is_multiple_of(unit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_geometries_say_which_field() {
        let flash = Geometry::flash(64 * 1024, 16, 4096);
        assert_eq!(flash.validate(), Ok(()));
        assert_eq!(Geometry::disk(1 << 20).validate(), Ok(()));
        let message = |geometry: Geometry| geometry.validate().unwrap_err().to_string();
        assert_eq!(
            message(Geometry { write_bytes: 0, ..flash }),
            "write_bytes is 0: every unit has at least one byte"
        );
        assert_eq!(
            message(Geometry { size_bytes: 5000, ..flash }),
            "size_bytes (5000) is not a multiple of read_bytes (16)"
        );
        assert_eq!(
            message(Geometry { write_bytes: 24, ..flash }),
            "erase_bytes (4096) is not a multiple of write_bytes (24)"
        );
    }
}
