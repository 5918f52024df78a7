//! From a plan to tasks that differ.
//!
//! A campaign has *axes*: file systems, kernels, options, seeds. If there are at least as many tasks as
//! combinations, every combination occurs, and all equally often. Otherwise each value of an axis occurs
//! equally often (the counts differ by one at most), and among the values that are due the one is taken
//! that meets the most values of the other axes for the first time: pairs are covered early. Everything
//! follows from the plan: the n-th task of a plan is always the same.
//!
//! A campaign with parts is an enumerable space: every combination of values with every part, each once.

use std::collections::BTreeSet;

use twox_hash::XxHash64;

use crate::plan::{Campaign, Plan, PlanError, Seeds, Value};
use crate::task::Task;

/// Combinations above this number are not enumerated: there are never as many tasks.
const COMBINATIONS_MAX: u64 = 1_000_000;

/// Where the values of an axis go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Instead of `{fs}`.
    FileSystem,
    /// An option at the end: its name.
    Option(String),
}

/// A way in which tasks differ.
struct Axis {
    place: Place,
    values: Vec<Value>,
    /// How often each value was used.
    used: Vec<u64>,
}

/// The tasks of a plan, one after the other; endless if only the budget limits them.
pub struct Tasks {
    series: Vec<Series>,
    /// Tasks left that are not parts of a space.
    left: Option<u64>,
    number: u64,
    seed: u64,
}

/// The tasks of one campaign.
struct Series {
    words: Vec<String>,
    axes: Vec<Axis>,
    combinations: Option<u64>,
    /// Rounds from which on combinations are taken one after the other.
    counts_from: u64,
    parts: Option<u64>,
    share: u64,
    made: u64,
    /// Pairs of values that have met: axis and value of each.
    met: BTreeSet<(usize, usize, usize, usize)>,
    seed: u64,
}

impl Tasks {
    /// The tasks of a plan.
    ///
    /// # Errors
    /// If the plan is not one that [`Plan::parse`] accepts.
    pub fn new(plan: &Plan) -> Result<Tasks, PlanError> {
        let free = plan.campaigns.iter().filter(|campaign| campaign.parts.is_none());
        let shares: u64 = free.map(|campaign| campaign.share).sum();
        let expected = |campaign: &Campaign| {
            plan.tasks_number().map(|tasks| tasks.saturating_mul(campaign.share) / shares.max(1))
        };
        let series = plan.campaigns.iter().zip(0..);
        let series = series.map(|(campaign, index)| {
            Series::new(campaign, plan.seed ^ index << 32, expected(campaign))
        });
        let series = series.collect::<Result<Vec<_>, _>>().map_err(PlanError)?;
        Ok(Tasks { series, left: plan.tasks_number(), number: 0, seed: plan.seed })
    }

    /// Makes the number of tasks larger.
    pub fn extend(&mut self, more: u64) {
        self.left = self.left.map(|left| left.saturating_add(more));
    }

    /// The campaign that is furthest behind its share, one with parts first.
    fn due(&self) -> Option<usize> {
        let with_parts = |series: &&Series| series.total().is_some_and(|total| series.made < total);
        let index = |wanted: &Series| self.series.iter().position(|s| std::ptr::eq(s, wanted));
        if let Some(series) = self.series.iter().find(with_parts) {
            return index(series);
        }
        let free = self.series.iter().filter(|series| series.parts.is_none());
        let behind = |series: &&Series| (series.made * 1_000_000 / series.share, index(series));
        free.min_by_key(behind).filter(|_| self.left != Some(0)).and_then(index)
    }
}

impl Iterator for Tasks {
    type Item = Task;

    fn next(&mut self) -> Option<Task> {
        let index = self.due()?;
        self.number += 1;
        // No two tasks of a plan have the same seed, and plans with other seeds have others.
        let own = self.seed.wrapping_mul(1_000_003).wrapping_add(self.number) % 1_000_000_000_000;
        let series = &mut self.series[index];
        if series.parts.is_none() {
            self.left = self.left.map(|left| left - 1);
        }
        Some(Task::new(self.number, series.next(own)))
    }
}

impl Series {
    fn new(campaign: &Campaign, seed: u64, expected: Option<u64>) -> Result<Series, String> {
        let mut words = campaign.words()?;
        let axes = axes(campaign, &mut words);
        let product =
            axes.iter().try_fold(1_u64, |n, axis| n.checked_mul(axis.values.len() as u64));
        let combinations = product.filter(|product| *product <= COMBINATIONS_MAX);
        if combinations.is_none() && campaign.parts.is_some() {
            return Err("there are too many combinations for every part".to_owned());
        }
        let (parts, share) = (campaign.parts, campaign.share);
        let enough = expected.is_some_and(|tasks| combinations.is_some_and(|all| tasks >= all));
        Ok(Series {
            counts_from: if parts.is_some() || enough {
                0
            } else {
                combinations.unwrap_or(u64::MAX)
            },
            words,
            axes,
            combinations,
            parts,
            share,
            made: 0,
            met: BTreeSet::new(),
            seed,
        })
    }

    /// The number of its tasks, if the space decides it.
    fn total(&self) -> Option<u64> {
        self.parts.map(|parts| parts * self.combinations.unwrap_or(1))
    }

    /// The words of the next task.
    fn next(&mut self, own_seed: u64) -> Vec<String> {
        let part = self.parts.map(|parts| format!("{}/{parts}", self.made % parts + 1));
        let turn = self.made / self.parts.unwrap_or(1);
        let values = match self.combinations {
            Some(all) if turn >= self.counts_from => self.counted(turn % all),
            _ => self.balanced(),
        };
        self.made += 1;
        let own = own_seed.to_string();
        let filled = |text: &str| text.replace("{seed}", &own);
        let mut words: Vec<String> = self.words.iter().map(|word| filled(word)).collect();
        for (axis, value) in self.axes.iter().zip(values) {
            let value = &axis.values[value];
            match (&axis.place, value) {
                (Place::FileSystem, value) => {
                    words.iter_mut().for_each(|w| *w = w.replace("{fs}", &value.text()));
                }
                (Place::Option(_), Value::Flag(false)) => {}
                (Place::Option(name), Value::Flag(true)) => words.push(name.clone()),
                (Place::Option(_), Value::Text(text)) if text.is_empty() => {}
                (Place::Option(name), value) => {
                    let text = filled(&value.text());
                    // A value that begins like an option must not be taken for one.
                    match text.starts_with('-') {
                        true => words.push(format!("{name}={text}")),
                        false => words.extend([name.clone(), text]),
                    }
                }
            }
        }
        words.extend(part.into_iter().flat_map(|part| ["--part".to_owned(), part]));
        words
    }

    /// The combination with this number.
    fn counted(&mut self, number: u64) -> Vec<usize> {
        let mut rest = number;
        let mut values = Vec::new();
        for axis in &mut self.axes {
            let count = axis.values.len() as u64;
            let value = (rest % count) as usize;
            axis.used[value] += 1;
            values.push(value);
            rest /= count;
        }
        values
    }

    /// A combination of values that were used least, and that have met as few of each other as possible.
    fn balanced(&mut self) -> Vec<usize> {
        let mut values: Vec<usize> = Vec::new();
        for (index, axis) in self.axes.iter().enumerate() {
            let new_pairs = |value: usize| {
                let met = |(other, with): (usize, &usize)| {
                    self.met.contains(&(other, *with, index, value))
                };
                values.iter().enumerate().filter(|pair| !met(*pair)).count()
            };
            let drawn = |value: usize| {
                let text = format!("{} {index} {value} {}", self.seed, axis.used[value]);
                XxHash64::oneshot(self.made, text.as_bytes())
            };
            let rank =
                |value: &usize| (axis.used[*value], usize::MAX - new_pairs(*value), drawn(*value));
            let best = (0..axis.values.len()).min_by_key(rank).unwrap_or(0);
            values.push(best);
        }
        for (index, &value) in values.iter().enumerate() {
            self.axes[index].used[value] += 1;
            for (other, &with) in values[..index].iter().enumerate() {
                self.met.insert((other, with, index, value));
            }
        }
        values
    }
}

/// The axes of a campaign; a seed of its own for each task is put into the words.
fn axes(campaign: &Campaign, words: &mut Vec<String>) -> Vec<Axis> {
    let texts = |list: &[String]| list.iter().cloned().map(Value::Text).collect::<Vec<_>>();
    let mut axes = Vec::new();
    let mut add = |place, values: Vec<Value>| {
        if !values.is_empty() {
            let used = vec![0; values.len()];
            axes.push(Axis { place, values, used });
        }
    };
    let option = |name: &str| Place::Option(format!("--{}", name.trim_start_matches('-')));
    add(Place::FileSystem, texts(&campaign.file_systems));
    add(option("guest"), texts(&campaign.kernels));
    for (name, values) in &campaign.vary {
        add(option(name), values.clone());
    }
    let has_seed = campaign.vary.contains_key("seed")
        || words.iter().any(|word| word == "--seed" || word.starts_with("--seed="));
    match &campaign.seeds {
        Some(Seeds::List(seeds)) => {
            add(option("seed"), seeds.iter().map(|seed| Value::Text(seed.to_string())).collect());
        }
        Some(Seeds::Own(true)) => words.extend(["--seed".to_owned(), "{seed}".to_owned()]),
        None if words[0] == "check" && !has_seed => {
            words.extend(["--seed".to_owned(), "{seed}".to_owned()]);
        }
        _ => {}
    }
    axes
}

impl Value {
    fn text(&self) -> String {
        match self {
            Value::Flag(flag) => flag.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn tasks(text: &str) -> Vec<Task> {
        Tasks::new(&Plan::parse(text).unwrap()).unwrap().collect()
    }

    fn lines(text: &str) -> Vec<String> {
        tasks(text).iter().map(Task::command_line).collect()
    }

    #[test]
    fn tasks_are_ordinary_commands_and_always_the_same() {
        let plan = "tasks = 3\nseed = 2\n[[campaign]]\ncommand = \"check {fs} --ops 9\"\n\
            file_systems = [\"ext4\", \"xfs\"]\nvary = { mkfs-opts = [\"\", \"-O ^x\"], times = [true] }\n";
        assert_eq!(lines(plan), lines(plan));
        let lines = lines(plan);
        assert!(lines.iter().all(|line| line.starts_with("fathom check ")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("'--mkfs-opts=-O ^x'")), "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("--seed ")), "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("--times")), "{lines:?}");
    }

    #[test]
    fn parts_of_a_space_are_complete_and_disjoint() {
        let plan = "[[campaign]]\ncommand = \"crash {fs} --workload ace:2\"\nparts = 64\n\
            file_systems = [\"ext4\", \"btrfs\"]\n";
        let lines = lines(plan);
        assert_eq!(lines.len(), 128);
        for part in 1..=64 {
            for fs in ["ext4", "btrfs"] {
                let line = format!("fathom crash {fs} --workload ace:2 --part {part}/64");
                assert_eq!(lines.iter().filter(|other| **other == line).count(), 1, "{line}");
            }
        }
    }

    #[test]
    fn seeds_are_all_different_or_as_the_plan_says() {
        let own = tasks("tasks = 500\n[[campaign]]\ncommand = \"check model\"\n");
        let ids: BTreeSet<&String> = own.iter().map(|task| &task.id).collect();
        assert_eq!(ids.len(), 500);
        let same = tasks("tasks = 8\n[[campaign]]\ncommand = \"check model\"\nseeds = [7]\n");
        assert!(same.iter().all(|task| task.words.ends_with(&["--seed".into(), "7".into()])));
        let design = "tasks = 2\n[[campaign]]\ncommand = \"design philosophers\"\n\
            vary = { action-order = [\"{seed}\"] }\n";
        let design = tasks(design);
        assert_ne!(design[0].words, design[1].words);
        assert!(!design[0].words.iter().any(|word| word == "--seed"));
    }

    #[test]
    fn shares_are_kept_and_tasks_without_number_never_end() {
        let plan = "tasks = \"until the budget is used\"\nbudget = \"1h\"\n\
            [[campaign]]\ncommand = \"check a\"\nshare = 3\n[[campaign]]\ncommand = \"check b\"\n";
        let tasks = Tasks::new(&Plan::parse(plan).unwrap()).unwrap();
        let of_a = tasks.take(400).filter(|task| task.words[1] == "a").count();
        assert_eq!(of_a, 300);
    }

    proptest! {
        /// With fewer tasks than combinations every value is used equally often, and with as many tasks
        /// as combinations of two axes most pairs have met.
        #[test]
        fn values_are_balanced(sizes in prop::collection::vec(1_usize..6, 1..5), count in 1_u64..60) {
            let vary: Vec<String> = sizes.iter().enumerate()
                .map(|(axis, size)| format!("a{axis} = {:?}", (1..=*size).collect::<Vec<_>>()))
                .collect();
            let plan = format!(
                "tasks = {count}\n[[campaign]]\ncommand = \"check model\"\nvary = {{ {} }}\n",
                vary.join(", ")
            );
            let tasks = tasks(&plan);
            prop_assert_eq!(tasks.len() as u64, count);
            let combinations: usize = sizes.iter().product();
            for (axis, size) in sizes.iter().enumerate() {
                let mut used = BTreeMap::new();
                for task in &tasks {
                    let at = task.words.iter().position(|w| *w == format!("--a{axis}")).unwrap();
                    *used.entry(task.words[at + 1].clone()).or_insert(0_u64) += 1;
                }
                if (count as usize) < combinations {
                    let (least, most) = (used.values().min().unwrap(), used.values().max().unwrap());
                    let all = used.len() == *size || count < *size as u64;
                    prop_assert!(most - least <= 1 && all, "{used:?}");
                }
            }
        }
    }
}
