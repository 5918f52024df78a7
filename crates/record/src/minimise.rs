//! The one minimiser: delta debugging with a deadline.

use std::time::Instant;

/// Lists up to this length are searched at every position: two items that only go together may lie
/// across the border of two chunks. Longer ones are searched chunk by chunk, since every attempt may
/// take a mount.
const EVERY_POSITION_MAX: usize = 32;

/// Leaves out what is not needed: chunks of items, from halves down to single ones.
///
/// `still_shows` is asked for a candidate; it answers with the items that are needed at most (the
/// candidate itself, or less of it), or with nothing if the candidate does not show what it should.
/// After the deadline nothing is asked any more: the result is the best so far.
///
/// # Errors
/// As `still_shows`.
pub fn minimise<T: Clone, E>(
    mut items: Vec<T>,
    deadline: Instant,
    mut still_shows: impl FnMut(&[T]) -> Result<Option<Vec<T>>, E>,
) -> Result<Vec<T>, E> {
    let mut chunk = items.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < items.len() {
            let every_position = items.len() <= EVERY_POSITION_MAX;
            if every_position && at > 0 && at + chunk > items.len() {
                break;
            }
            if Instant::now() >= deadline {
                return Ok(items);
            }
            let end = (at + chunk).min(items.len());
            let candidate = [&items[..at], &items[end..]].concat();
            match still_shows(&candidate)? {
                Some(shorter) => items = shorter,
                None => at += if every_position { 1 } else { chunk },
            }
        }
        chunk /= 2;
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::thread;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// What is left of `0..len` if all of `needed` are, and how often that was asked.
    fn run(len: u32, needed: &[u32]) -> (Vec<u32>, usize) {
        let mut attempts = 0;
        let left = minimise((0..len).collect(), late(), |items: &[u32]| {
            attempts += 1;
            let shows = needed.iter().all(|item| items.contains(item));
            Ok::<_, Infallible>(shows.then(|| items.to_vec()))
        });
        (left.unwrap(), attempts)
    }

    #[test]
    fn the_attempts_are_as_few_as_they_should_be() {
        assert_eq!(run(0, &[]), (vec![], 0));
        assert_eq!(run(1, &[0]), (vec![0], 1));
        // Halves: two attempts; the list is empty then.
        assert_eq!(run(8, &[]), (vec![], 2));
        // Nothing can go: 5 positions of 4, 7 of 2, 8 of 1.
        assert_eq!(run(8, &(0..8).collect::<Vec<_>>()), ((0..8).collect(), 5 + 7 + 8));
        // Of long lists only whole chunks: 2 + 4 + 8 + 16 + 32 + 64.
        let all: Vec<u32> = (0..64).collect();
        assert_eq!(run(64, &all), (all, 2 + 4 + 8 + 16 + 32 + 64));
        // The first half; the second and third quarter; the second; single ones.
        assert_eq!(run(8, &[7]).0, [7]);
    }

    #[test]
    fn a_pair_across_chunks_goes_together() {
        let left = minimise(vec![0, 1, 2, 3], late(), |items: &[i32]| {
            let pair = items.contains(&1) == items.contains(&2);
            let shows = pair && items.contains(&0) && items.contains(&3);
            Ok::<_, Infallible>(shows.then(|| items.to_vec()))
        });
        assert_eq!(left.unwrap(), [0, 3]);
    }

    #[test]
    fn nothing_is_asked_after_the_deadline_also_if_an_attempt_is_slow() {
        let mut attempts = 0;
        let deadline = Instant::now() + Duration::from_millis(20);
        let left = minimise((0..8).collect(), deadline, |items: &[i32]| {
            attempts += 1;
            thread::sleep(Duration::from_millis(30));
            Ok::<_, Infallible>(Some(items.to_vec()))
        });
        assert_eq!((left.unwrap(), attempts), (vec![4, 5, 6, 7], 1));
        let never = minimise(vec![1, 2], Instant::now(), |_: &[i32]| -> Result<_, Infallible> {
            panic!("it is too late")
        });
        assert_eq!(never.unwrap(), [1, 2]);
    }

    #[test]
    fn faults_end_it() {
        let fault = minimise(vec![1, 2, 3], late(), |_: &[i32]| Err("broken"));
        assert_eq!(fault, Err("broken"));
    }

    proptest! {
        /// What is needed, and nothing else, is left: also if the answer is shorter than asked.
        #[test]
        fn only_what_is_needed_is_left(
            len in 0u32..100,
            needed in proptest::collection::btree_set(0u32..100, 0..6),
        ) {
            let needed: Vec<u32> = needed.into_iter().filter(|item| *item < len).collect();
            prop_assert_eq!(&run(len, &needed).0, &needed);
            let cut = minimise((0..len).collect(), late(), |items: &[u32]| {
                let shows = needed.iter().all(|item| items.contains(item));
                let end = items.iter().rposition(|item| needed.contains(item)).map_or(0, |at| at + 1);
                Ok::<_, Infallible>(shows.then(|| items[..end].to_vec()))
            });
            prop_assert_eq!(cut.unwrap(), needed);
        }
    }
}
