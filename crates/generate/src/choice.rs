//! The one choice stream: every random decision of a run comes from here, so a seed reproduces it.
//!
//! The algorithm is pinned (xoshiro256++): a seed means the same next year.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded stream of random choices.
#[derive(Clone, Debug)]
pub struct Choices {
    rng: Xoshiro256PlusPlus,
}

impl Choices {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Choices {
        Choices { rng: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// The stream of episode number `episode` of a run: independent of what earlier episodes drew,
    /// so that an episode can be repeated alone.
    pub fn of_episode(seed: u64, episode: u64) -> Choices {
        Choices::new(fathom_core::pattern::word(seed, episode))
    }

    /// Draws a number, uniform in `0..n`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a choice needs at least one alternative");
        // Multiply-shift; its bias is below n / 2⁶⁴.
        ((u128::from(self.rng.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Draws an index into a list of `len` items.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// Draws one of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// Draws one of the items, each with its weight.
    ///
    /// # Panics
    /// If all weights are 0.
    pub(crate) fn weighted<T: Copy>(&mut self, items: &[(T, u32)]) -> T {
        let total = items.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut at = self.below(total);
        for (item, weight) in items {
            match at.checked_sub(u64::from(*weight)) {
                None => return *item,
                Some(rest) => at = rest,
            }
        }
        unreachable!("`at` is below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        let mut choices = Choices::new(1);
        let drawn: Vec<u64> = (0..6).map(|_| choices.below(100)).collect();
        assert_eq!(drawn, [81, 74, 10, 74, 18, 59]);
        assert_ne!(
            Choices::of_episode(1, 0).below(u64::MAX),
            Choices::of_episode(1, 1).below(u64::MAX)
        );
    }

    #[test]
    fn weights_are_respected() {
        let mut choices = Choices::new(7);
        let mut counts = [0u32; 3];
        for _ in 0..6000 {
            counts[choices.weighted(&[(0, 1), (1, 0), (2, 2)])] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((1800..2200).contains(&counts[0]), "{counts:?}");
    }
}
