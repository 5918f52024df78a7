//! Chooses numbers, modes and flags by partition: zero, powers of two and their neighbours.

use bitflags::Flags;
use fathom_core::{Capability, Mode, Pattern};

use super::Generator;

/// User and group ids that operations use; nobody else on the machine has files in the subject.
pub(super) const IDS: [u32; 3] = [0, 1000, 1001];

impl Generator {
    /// Draws a number from 0 to `max`: 0, a power of two or a neighbour of one, or any.
    pub(super) fn size(&mut self, max: u64) -> u64 {
        if let Some(base) = self.tables.amounts {
            return self.partitioned(max, base);
        }
        match self.choices.below(10) {
            0 => 0,
            1 | 2 => self.choices.below(max + 1),
            _ => {
                let bits = u64::from(max.ilog2()) + 1;
                let power = 1u64 << self.choices.below(bits);
                let near = power + self.choices.below(3) - 1;
                near.min(max)
            }
        }
    }

    /// Draws a number from 0 to `max` by its partition: 0, then those of the powers of two, the
    /// next one `base` times as often as the one before.
    fn partitioned(&mut self, max: u64, base: f64) -> u64 {
        let partitions = max.checked_ilog2().map_or(1, |power| power as usize + 2);
        let weight = |index: usize| base.powi(index as i32);
        let total: f64 = (0..partitions).map(weight).sum();
        let mut at = self.choices.below(1 << 53) as f64 / (1u64 << 53) as f64 * total;
        let chosen = (0..partitions)
            .find(|index| {
                at -= weight(*index);
                at < 0.0
            })
            .unwrap_or(partitions - 1);
        let Some(power) = chosen.checked_sub(1) else { return 0 };
        let start = 1u64 << power;
        if self.tables.boundaries {
            return (start + self.choices.below(3) - 1).min(max);
        }
        (start + self.choices.below(start)).min(max)
    }

    /// Draws the length of a read or a write in bytes.
    pub(super) fn len(&mut self) -> u64 {
        self.size(self.config.data.io_bytes_max)
    }

    /// Draws an offset in a file or a size for it.
    pub(super) fn offset(&mut self) -> i64 {
        if self.odd && self.choices.percent(20) {
            return *self.choices.pick(&[-1, i64::MIN, i64::MAX]);
        }
        if self.choices.percent(self.config.data.huge_percent) {
            return (1 << 40) + self.choices.below(3) as i64 - 1;
        }
        self.size(self.config.data.offset_bytes_max) as i64
    }

    /// Draws an offset that is a multiple of 4096, or of what the file system moves as a whole: some
    /// calls refuse all others.
    pub(super) fn aligned_offset(&mut self) -> i64 {
        let unit = self.view.move_bytes.max(4096);
        let blocks = (self.config.data.offset_bytes_max / unit).max(1);
        (self.choices.below(blocks) * unit) as i64
    }

    /// Makes the pattern of a write.
    pub(super) fn pattern(&mut self, len: u64) -> Pattern {
        let seed = match self.config.data.patterns {
            0 => {
                self.patterns += 1;
                self.patterns
            }
            patterns => 1 + self.choices.below(patterns),
        };
        Pattern { seed, len }
    }

    /// Draws permission bits, usable by the owner if nobody else could help the harness out.
    pub(super) fn mode(&mut self) -> Mode {
        if let Some(bits) = self.tables.mode_bits.clone() {
            let mut mode = 0;
            for (bit, percent) in bits {
                mode |= if self.choices.percent(percent) { bit } else { 0 };
            }
            return self.usable_mode(mode);
        }
        let usual = [0o644, 0o755, 0o600, 0o700, 0o777, 0o666];
        let mode = match self.choices.below(10) {
            0..6 => *self.choices.pick(&usual),
            6 => self.choices.below(0o10000) as u32,
            7 | 8 => *self.choices.pick(&[0o4755, 0o2755, 0o6711, 0o2775, 0o1777, 0o2644]),
            _ => 0,
        };
        self.usable_mode(mode)
    }

    fn usable_mode(&self, mode: u32) -> Mode {
        let privileged = self.capabilities.contains(&Capability::Identity);
        Mode(if privileged { mode } else { mode | 0o700 })
    }

    /// Draws each flag with its percentage; an odd operation may get a bit that has no name.
    pub(super) fn flags<F: Flags<Bits = u32> + Copy>(&mut self, percents: &[(F, u32)]) -> F {
        let mut flags = F::empty();
        for (flag, percent) in percents {
            if self.choices.percent(*percent) {
                flags.insert(*flag);
            }
        }
        if self.odd && self.choices.percent(5) {
            flags.insert(F::from_bits_retain(1 << self.choices.below(32)));
        }
        flags
    }
}
