//! The order in which the actions of a state are taken.
//!
//! A search that ends before it has seen everything has seen what lies near its first choices. Searches
//! in different orders see different parts; paths say the same in all of them, since a choice is named by
//! its place in the order of the system.

use std::str::FromStr;

use fathom_core::pattern::word;

/// The order of actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActionOrder {
    /// As the system lists them.
    #[default]
    Forward,
    /// The last one first.
    Reverse,
    /// In an order that follows from the seed and the number of actions.
    Seeded(u64),
}

impl ActionOrder {
    /// The places of `count` actions, each once.
    #[inline]
    pub(super) fn places(self, count: usize) -> impl Iterator<Item = usize> {
        // place = first + n · step, modulo count, with a step that has no divisor in common with it.
        let (first, step) = match self {
            ActionOrder::Forward => (0, 1),
            ActionOrder::Reverse => (count.saturating_sub(1), count.saturating_sub(1)),
            ActionOrder::Seeded(_) if count < 2 => (0, 1),
            ActionOrder::Seeded(seed) => {
                // Every byte of a word is odd, for a reason that does not matter here.
                let drawn = word(seed, count as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
                let step = (drawn >> 29) as usize % count;
                let step = (step..).find(|step| common_divisor(*step, count) == 1).unwrap_or(1);
                (drawn as u32 as usize % count, step % count)
            }
        };
        (0..count).scan(first, move |place, _| {
            let this = *place;
            *place = (this + step) % count;
            Some(this)
        })
    }
}

impl FromStr for ActionOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<ActionOrder, String> {
        match text {
            "forward" => Ok(ActionOrder::Forward),
            "reverse" => Ok(ActionOrder::Reverse),
            seed => seed.parse().map(ActionOrder::Seeded).map_err(|_| {
                format!("{text:?} is no order: give forward, reverse, or a number that draws one")
            }),
        }
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_takes_every_action_once() {
        let orders = (0..40).map(ActionOrder::Seeded);
        for order in orders.chain([ActionOrder::Forward, ActionOrder::Reverse]) {
            for count in 0..50 {
                let mut places: Vec<usize> = order.places(count).collect();
                places.sort_unstable();
                assert_eq!(places, (0..count).collect::<Vec<_>>(), "{order:?} of {count}");
            }
        }
        assert_eq!(ActionOrder::Reverse.places(4).collect::<Vec<_>>(), [3, 2, 1, 0]);
    }

    #[test]
    fn seeds_differ() {
        let orders: std::collections::BTreeSet<Vec<usize>> =
            (0..30).map(|seed| ActionOrder::Seeded(seed).places(12).collect()).collect();
        assert!(orders.len() > 15, "{}", orders.len());
    }
}
