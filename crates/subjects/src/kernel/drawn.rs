//! Options of mkfs and mount that are drawn by a seed (`profiles/kernel/options.toml`), and what is learned of
//! combinations that are refused.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

const FILE: &str = include_str!("../../profiles/kernel/options.toml");

/// Most options of a combination.
const OPTIONS_MAX: u64 = 4;

/// Combinations that are drawn, known ones included, before it is given up.
const DRAWS_MAX: u64 = 200;

/// The options of one file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    mkfs: Vec<String>,
    mount: Vec<String>,
}

/// Where an option goes. A group has a name in front of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrawnOption {
    /// Words for the formatting program.
    Mkfs(String),
    /// A mount option.
    Mount(String),
}

/// Options that are tried together.
pub type Combination = BTreeSet<DrawnOption>;

/// What a combination is, as options of a command.
pub fn words(combination: &Combination) -> (String, String) {
    let (mut mkfs, mut mount) = (Vec::new(), Vec::new());
    for option in combination {
        match option {
            DrawnOption::Mkfs(words) => mkfs.push(words.as_str()),
            DrawnOption::Mount(option) => mount.push(option.as_str()),
        }
    }
    (mkfs.join(" "), mount.join(","))
}

/// What is known of combinations: those that were refused, each without an option that it could be without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// By file system.
    refused: BTreeMap<String, BTreeSet<Combination>>,
}

impl Learned {
    /// Whether it is known that a combination is refused: because of some of its options.
    pub fn knows(&self, base: &str, combination: &Combination) -> bool {
        let known = self.refused.get(base);
        known.is_some_and(|known| known.iter().any(|refused| refused.is_subset(combination)))
    }

    /// Notes a combination that is refused. Those of which it is a part need no note any more.
    fn note(&mut self, base: &str, combination: &Combination) {
        let known = self.refused.entry(base.to_owned()).or_default();
        known.retain(|refused| !combination.is_subset(refused));
        known.insert(combination.clone());
    }

    /// How many are noted.
    pub fn len(&self) -> usize {
        self.refused.values().map(BTreeSet::len).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What came out of drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The combination that is taken: the first one that is not refused.
    pub combination: Combination,
    /// How many were refused when they were tried.
    pub refused: u64,
    /// How many were left out, because it was known that they are refused.
    pub known: u64,
    /// What was refused, each with what was said.
    pub reasons: Vec<(Combination, String)>,
}

/// Nothing that was drawn works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NothingWorks {
    /// How many combinations were refused when they were tried.
    pub refused: u64,
    /// How many were known to be refused.
    pub known: u64,
}

/// Whether there are options to draw for a file system.
pub fn has_options(base: &str) -> bool {
    pools().contains_key(base)
}

fn pools() -> BTreeMap<String, Pool> {
    toml::from_str(FILE).expect("a test reads it")
}

/// Draws combinations of the options of `base` until one is not refused. `attempt` makes a file system of it:
/// `Ok(None)` if that works, the reason if it is refused.
///
/// # Errors
/// Those of `attempt`; within it, if nothing that was drawn works.
pub fn draw<E>(
    base: &str,
    seed: u64,
    learned: &mut Learned,
    mut attempt: impl FnMut(&Combination) -> Result<Option<String>, E>,
) -> Result<Result<Drawn, NothingWorks>, E> {
    let Some(pool) = pools().remove(base) else { return Ok(Err(NothingWorks::default())) };
    let (mut refused, mut known, mut reasons) = (0, 0, Vec::new());
    for number in 0..DRAWS_MAX {
        let combination = pool.combination(seed, number);
        if learned.knows(base, &combination) {
            known += 1;
            continue;
        }
        let Some(mut why) = attempt(&combination)? else {
            return Ok(Ok(Drawn { combination, refused, known, reasons }));
        };
        refused += 1;
        // Which of them is it? Without each of the others it is refused as well.
        let mut guilty = combination.clone();
        for option in &combination {
            let without: Combination =
                guilty.iter().filter(|one| *one != option).cloned().collect();
            if guilty.len() > 1
                && let Some(still) = attempt(&without)?
            {
                (guilty, why) = (without, still);
            }
        }
        learned.note(base, &guilty);
        reasons.push((guilty, why));
    }
    Ok(Err(NothingWorks { refused, known }))
}

impl Pool {
    /// A combination of one to four options, by the seed and its number.
    fn combination(&self, seed: u64, number: u64) -> Combination {
        let word = |place: u64| {
            let of_number = fathom_core::pattern::word(seed, number);
            fathom_core::pattern::word(of_number, place)
        };
        let mkfs = self.mkfs.iter().cloned().map(DrawnOption::Mkfs);
        let mount = self.mount.iter().cloned().map(DrawnOption::Mount);
        let mut all: Vec<DrawnOption> = mkfs.chain(mount).collect();
        let mut chosen = Combination::new();
        let mut has_group = [false; 2];
        for place in 1..=1 + word(0) % OPTIONS_MAX {
            let option = all.swap_remove((word(place) % all.len() as u64) as usize);
            let (kind, text, make): (usize, String, fn(String) -> DrawnOption) = match option {
                DrawnOption::Mkfs(text) => (0, text, DrawnOption::Mkfs),
                DrawnOption::Mount(text) => (1, text, DrawnOption::Mount),
            };
            match text.strip_prefix('@') {
                Some(_) if has_group[kind] => {}
                Some(text) => {
                    has_group[kind] = true;
                    chosen.insert(make(text.to_owned()));
                }
                None => _ = chosen.insert(make(text)),
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn mount(text: &str) -> DrawnOption {
        DrawnOption::Mount(text.to_owned())
    }

    #[test]
    fn every_pool_belongs_to_a_recipe_and_is_large_enough() {
        for (name, pool) in pools() {
            assert!(crate::Recipe::named(&name).is_some(), "{name}");
            assert!(pool.mkfs.len() + pool.mount.len() >= 8, "{name}");
        }
        assert!(has_options("ext4") && !has_options("tmpfs"));
    }

    #[test]
    fn a_seed_draws_the_same_again_and_another_one_others() {
        let pool = pools().remove("ext4").unwrap();
        let of = |seed| (0..50).map(|n| pool.combination(seed, n)).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let all = of(3);
        assert!(all.iter().all(|one| (1..=4).contains(&one.len())));
        let groups = |one: &Combination| {
            let (mkfs, _) = words(one);
            mkfs.split(' ').filter(|word| *word == "-b").count()
        };
        assert!(all.iter().all(|one| groups(one) <= 1));
    }

    /// Every combination with one option is refused: that is learned once, and left out from then on.
    #[test]
    fn what_is_refused_is_learned_and_counted() {
        let bad = mount("commit=1");
        let mut learned = Learned::default();
        let mut tried = 0;
        let mut refused = 0;
        for seed in 0..300 {
            let drawn = draw("ext4", seed, &mut learned, |one| {
                tried += 1;
                Ok::<_, Infallible>(one.contains(&bad).then(|| "no".to_owned()))
            });
            let drawn = drawn.unwrap().unwrap();
            assert!(!drawn.combination.contains(&bad));
            refused += drawn.refused;
            let reasons = vec![(Combination::from([bad.clone()]), "no".to_owned())];
            assert!(drawn.reasons.is_empty() || drawn.reasons == reasons);
        }
        assert_eq!((refused, learned.len()), (1, 1));
        assert!(learned.knows("ext4", &[bad.clone(), mount("nodelalloc")].into()));
        assert!(!learned.knows("xfs", &[bad].into()));
        assert!((301..310).contains(&tried), "{tried}");
    }

    #[test]
    fn two_that_do_not_go_together_are_learned_as_two() {
        let pair = Combination::from([mount("nodelalloc"), mount("dioread_nolock")]);
        let mut learned = Learned::default();
        for seed in 0..3000 {
            let refuse =
                |one: &Combination| Ok::<_, Infallible>(pair.is_subset(one).then(String::new));
            draw("ext4", seed, &mut learned, refuse).unwrap().unwrap();
        }
        assert_eq!(learned.refused["ext4"], [pair].into());
    }

    #[test]
    fn if_nothing_works_that_is_said() {
        let mut learned = Learned::default();
        let none = draw("jfs", 1, &mut learned, |_| Ok::<_, Infallible>(Some("no".to_owned())));
        let NothingWorks { refused, known } = none.unwrap().unwrap_err();
        assert_eq!((refused, refused + known), (learned.len() as u64, DRAWS_MAX));
        // The last ones are hardly ever drawn without one that is known.
        assert!((4..=8).contains(&learned.len()), "{learned:?}");
    }
}
