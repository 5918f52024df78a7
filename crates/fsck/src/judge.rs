//! The oracles: what is wrong with how a checker treated one corrupted disk.

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::checker::{Checker, Says, allowed};
use crate::look::Mounted;
pub(crate) use crate::objects::Loss;
use crate::objects::Objects;
use crate::run::{End, Outcome};

/// More memory than this is more than a small disk can need.
const RESIDENT_BYTES_MAX: u64 = 1 << 30;

/// The sort of a violation, the most serious first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A run was ended by a signal.
    Signal,
    /// A run did not end in time.
    Hang,
    /// A sanitizer reported something.
    Sanitizer,
    /// A run used more memory than there is reason to.
    Memory,
    /// A run printed without end.
    Output,
    /// A run that should only look changed the disk.
    CheckWrites,
    /// What the runs said one after the other is not in SWIFT's table.
    Table,
    /// The third run does not agree with the second.
    ThirdRun,
    /// It said that nothing was wrong, and changed the disk.
    SilentRepair,
    /// Looking and repairing do not agree on whether something is wrong.
    CheckDisagrees,
    /// The disk is said to be fine, and a kernel dies of it.
    KernelDies,
    /// The disk is said to be fine, and the kernel does not mount it.
    Unmountable,
    /// The disk is said to be fine, and cannot be read.
    Unreadable,
    /// The disk is said to be fine, and the kernel reports errors.
    KernelComplains,
    /// Something that the corruption did not hit is gone or changed.
    Loss,
    /// The exit code is not documented.
    UnknownExit,
    /// The same run on the same disk went another way.
    Nondeterministic,
}

impl Class {
    /// Every class, the most serious first.
    pub const ALL: &[Class] = &[
        Class::Signal,
        Class::Hang,
        Class::Sanitizer,
        Class::Memory,
        Class::Output,
        Class::CheckWrites,
        Class::Table,
        Class::ThirdRun,
        Class::SilentRepair,
        Class::CheckDisagrees,
        Class::KernelDies,
        Class::Unmountable,
        Class::Unreadable,
        Class::KernelComplains,
        Class::Loss,
        Class::UnknownExit,
        Class::Nondeterministic,
    ];

    /// The class of a name.
    pub(crate) fn named(name: &str) -> Option<Class> {
        Class::ALL.iter().copied().find(|class| class.name() == name)
    }

    /// Its name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::Signal => "signal",
            Class::Hang => "hang",
            Class::Sanitizer => "sanitizer",
            Class::Memory => "memory",
            Class::Output => "output",
            Class::CheckWrites => "check_writes",
            Class::Table => "table",
            Class::ThirdRun => "third_run",
            Class::SilentRepair => "silent_repair",
            Class::CheckDisagrees => "check_disagrees",
            Class::KernelDies => "kernel_dies",
            Class::Unmountable => "unmountable",
            Class::Unreadable => "unreadable",
            Class::KernelComplains => "kernel_complains",
            Class::Loss => "loss",
            Class::UnknownExit => "unknown_exit",
            Class::Nondeterministic => "nondeterministic",
        }
    }

    /// What it means, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Class::Signal => "the checker was ended by a signal",
            Class::Hang => "the checker did not end",
            Class::Sanitizer => "a sanitizer reported something",
            Class::Memory => "the checker used too much memory",
            Class::Output => "the checker printed without end",
            Class::CheckWrites => "a run that should only look changed the disk",
            Class::Table => "the second run contradicts the first",
            Class::ThirdRun => "the third run contradicts the second",
            Class::SilentRepair => "it said that nothing was wrong, and changed the disk",
            Class::CheckDisagrees => "looking and repairing disagree on whether something is wrong",
            Class::KernelDies => "the disk is said to be fine, and the kernel dies of it",
            Class::Unmountable => "the disk is said to be fine, and the kernel does not mount it",
            Class::Unreadable => "the disk is said to be fine, and has no readable tree",
            Class::KernelComplains => "the disk is said to be fine, and the kernel reports errors",
            Class::Loss => "something that was not hit is gone or changed",
            Class::UnknownExit => "the exit code is not documented",
            Class::Nondeterministic => "the same run on the same disk went another way",
        }
    }
}

/// One run, and what it changed.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) outcome: Outcome,
    /// What the exit code says; nothing if there was none.
    pub(crate) says: Option<Says>,
    /// Bytes that the run changed, without those that every run may change.
    pub(crate) changed: Vec<(u64, u8, u8)>,
    /// Whether it says that it has replayed a journal, which its manual allows to a run that only looks.
    pub(crate) replayed: bool,
}

impl Seen {
    /// How the run ended, in words.
    pub(crate) fn end(&self) -> String {
        match self.says {
            Some(says) => format!("{} ({says})", self.outcome.end),
            None => self.outcome.end.to_string(),
        }
    }
}

/// Everything seen of one case.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// The run that only looks.
    pub(crate) check: Seen,
    /// The runs that repair, one after the other.
    pub(crate) repairs: Vec<Seen>,
    /// What of the healthy disk is not on the repaired one and was not hit; or why it cannot be read.
    pub(crate) losses: Option<Result<Vec<(String, Loss)>, String>>,
    /// Whether a repeated run went another way.
    pub(crate) nondeterministic: bool,
}

/// A violation, without its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) class: Class,
    /// What was seen: "repaired → repaired → clean".
    pub(crate) what: String,
    /// The run that shows it: 0 looks, 1 to 3 repair.
    pub(crate) run: usize,
}

/// What the control run on the healthy disk was like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    /// Whether looking at the healthy disk says clean: not so for a disk with a journal to replay.
    pub(crate) check_is_clean: bool,
    /// Whether a power failure left the disk as it is.
    pub(crate) journal_to_replay: bool,
}

/// Judges a case.
pub(crate) fn judge(seen: &Observation, control: Control) -> Vec<Violation> {
    let mut out = Vec::new();
    let runs = std::iter::once(&seen.check).chain(&seen.repairs);
    for (number, run) in runs.enumerate() {
        deaths(run, number, &mut out);
    }
    if !seen.check.changed.is_empty() && !seen.check.replayed {
        let what = format!("looking changed {} bytes", seen.check.changed.len());
        out.push(Violation { class: Class::CheckWrites, what, run: 0 });
    }
    table(seen, &mut out);
    // Whoever replays a journal writes, and whoever only looks may not.
    if let Some(first) = seen.repairs.first().filter(|_| !control.journal_to_replay) {
        silent(first, &mut out);
        disagreement(seen, first, control, &mut out);
    }
    losses(seen, &mut out);
    if seen.nondeterministic {
        let what = "the same run went another way".to_owned();
        out.push(Violation { class: Class::Nondeterministic, what, run: 1 });
    }
    out
}

/// What ended a run that should have ended by itself.
fn deaths(run: &Seen, number: usize, out: &mut Vec<Violation>) {
    let outcome = &run.outcome;
    let mut put = |class, what: String| out.push(Violation { class, what, run: number });
    match outcome.end {
        End::Signal(signal) => put(Class::Signal, format!("signal {signal}")),
        End::Hang => put(Class::Hang, format!("no end after {:.0} s", outcome.time.as_secs_f64())),
        End::Code(_) => {}
    }
    if outcome.output_full {
        put(Class::Output, "it printed without end".to_owned());
    }
    if outcome.resident_bytes > RESIDENT_BYTES_MAX {
        put(Class::Memory, format!("{} MiB of memory", outcome.resident_bytes >> 20));
    }
    if let Some(report) = sanitizer(&outcome.output) {
        put(Class::Sanitizer, report);
    }
    if let Some(Says::Unknown(code)) = run.says {
        put(Class::UnknownExit, format!("exit code {code}"));
    }
}

fn sanitizer(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().find(|line| {
        line.contains("ERROR: AddressSanitizer") || line.contains(": runtime error: ")
    })?;
    let end = line.find(" on ").unwrap_or(line.len());
    Some(line[..end].to_owned())
}

/// What the runs say one after the other.
fn table(seen: &Observation, out: &mut Vec<Violation>) {
    let says: Vec<Says> = seen.repairs.iter().map_while(|run| run.says).collect();
    let story = || says.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ");
    if let [first, second, ..] = says[..] {
        let known = |says: Says| !matches!(says, Says::Unknown(_));
        if known(first) && known(second) && !allowed(first, second) {
            out.push(Violation { class: Class::Table, what: story(), run: 2 });
        } else if let Some(third) = says.get(2)
            && known(*third)
            && !allowed(second, *third)
        {
            out.push(Violation { class: Class::ThirdRun, what: story(), run: 3 });
        }
    }
}

fn silent(first: &Seen, out: &mut Vec<Violation>) {
    if first.says == Some(Says::Clean) && !first.changed.is_empty() {
        let what = format!("clean, and {} bytes changed", first.changed.len());
        out.push(Violation { class: Class::SilentRepair, what, run: 1 });
    }
}

fn disagreement(seen: &Observation, first: &Seen, control: Control, out: &mut Vec<Violation>) {
    if !control.check_is_clean {
        return;
    }
    let disagree = matches!(
        (seen.check.says, first.says),
        (
            Some(Says::Clean),
            Some(Says::Repaired | Says::Left | Says::RepairedAndLeft | Says::RepairedOrLeft)
        ) | (Some(Says::Left | Says::Repaired), Some(Says::Clean))
    );
    if disagree {
        let what = format!("looking says {}, repairing says {}", seen.check.end(), first.end());
        out.push(Violation { class: Class::CheckDisagrees, what, run: 0 });
    }
}

fn losses(seen: &Observation, out: &mut Vec<Violation>) {
    match &seen.losses {
        Some(Ok(losses)) if !losses.is_empty() => {
            out.push(Violation { class: Class::Loss, what: kinds(losses), run: 1 });
        }
        Some(Err(why)) => {
            out.push(Violation { class: Class::Unreadable, what: why.clone(), run: 1 })
        }
        _ => {}
    }
}

/// Structures of trees that hold many objects: what they cost cannot be told from their name.
const SHARED: &[&str] = &[
    "leaf[",
    "node[",
    ".pointer[",
    ".child[",
    ".key[",
    "dtree",
    "inner_entry",
    "indirect[",
    "block[",
    "hash",
    "free_by",
    "iag",
    "fat",
    "nat",
    "sit",
    "item[",
    "xtree",
    "tree",
    "data_summary",
];

/// Whether a corruption of the field may cost objects that its name does not tell.
pub(crate) fn is_shared(field: &str) -> bool {
    !field.contains('"') && SHARED.iter().any(|part| field.contains(part))
        || ["block[", "indirect[", "node[", "dtree"].iter().any(|head| field.starts_with(head))
}

/// What is wrong with a disk that a checker says is fine, by what a kernel found on it.
pub(crate) fn judge_mounted(
    case: &Case,
    healthy: &Objects,
    mounted: &Mounted,
) -> Vec<(Violation, Vec<String>)> {
    let put = |class, what: String| (Violation { class, what, run: 1 }, Vec::new());
    if let Some(died) = &mounted.died {
        return vec![put(Class::KernelDies, died.clone())];
    }
    if let Some(why) = &mounted.refused {
        let why = mounted.complaints.first().unwrap_or(why);
        return vec![put(Class::Unmountable, why.clone())];
    }
    let mut out = Vec::new();
    if let Some(first) = mounted.unreadable.first() {
        let error = first.rsplit(": ").next().unwrap_or(first).to_owned();
        out.push((
            Violation { class: Class::Unreadable, what: error, run: 1 },
            mounted.unreadable.clone(),
        ));
    }
    if let Some(first) = mounted.complaints.first() {
        out.push(put(Class::KernelComplains, first.clone()));
    }
    if !case.fields().any(is_shared) {
        let losses = healthy.losses(&mounted.objects);
        let losses = case.fields().fold(losses, |left, field| not_hit(field, healthy, left));
        if !losses.is_empty() {
            let told = losses.iter().map(|(path, loss)| format!("{path}: {loss}")).collect();
            out.push((Violation { class: Class::Loss, what: kinds(&losses), run: 1 }, told));
        }
    }
    out
}

/// The sorts of losses, each once.
fn kinds(losses: &[(String, Loss)]) -> String {
    let mut kinds: Vec<&str> = losses
        .iter()
        .map(|(_, loss)| match loss {
            Loss::Lost => "lost",
            Loss::Moved(_) => "moved",
            Loss::Data => "contents changed",
            Loss::Attributes(which) => which,
        })
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.join(", ")
}

/// Which paths a corruption may cost something, by the name of its field.
pub(crate) fn not_hit(
    field: &str,
    healthy: &Objects,
    losses: Vec<(String, Loss)>,
) -> Vec<(String, Loss)> {
    let quoted: Vec<&str> = field.split('"').skip(1).step_by(2).collect();
    let path = quoted.first().and_then(|words| words.find('/').map(|at| &words[at..]));
    let Some(path) = path else { return losses };
    let in_directory =
        ["dirent[", "htree[", "directory["].iter().any(|head| field.starts_with(head));
    let entry = quoted.get(1).filter(|_| in_directory);
    let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
    let inode = healthy.objects.get(path).map(|object| object.inode);
    let entry_inode = entry
        .and_then(|name| healthy.objects.get(&format!("{prefix}{name}")))
        .map(|object| object.inode);
    let allowed = |place: &str, loss: &Loss| {
        let own = healthy.objects.get(place).map(|object| object.inode);
        if place == path || own.is_some() && own == inode {
            return true;
        }
        // Who lost its name may be found under another, and a name more or less changes a count.
        let renamed = matches!(loss, Loss::Moved(_) | Loss::Attributes("link count"));
        place.starts_with(&prefix) && renamed
            || in_directory
                && (*loss == Loss::Attributes("link count") || own.is_some() && own == entry_inode)
    };
    losses.into_iter().filter(|(place, loss)| !allowed(place, loss)).collect()
}

/// What a run says by its exit code. Where the code leaves open whether errors were repaired, a run that wrote
/// nothing has repaired nothing. A run that printed without end ran into a limit of ours, and what it made of
/// that is not held against it.
pub(crate) fn says(
    checker: &Checker,
    outcome: &Outcome,
    repairing: bool,
    wrote: bool,
) -> Option<Says> {
    let End::Code(code) = outcome.end else { return None };
    if outcome.output_full {
        return None;
    }
    match checker.says(code, repairing) {
        Says::RepairedOrLeft if !wrote => Some(Says::Left),
        says => Some(says),
    }
}

/// Whether the disk that the first repair left is said to be fine: by that run, or, where its code leaves that
/// open, by the next one, which finds and changes nothing.
pub(crate) fn is_said_to_be_fine(repairs: &[Seen]) -> bool {
    let says = |run: &Seen| run.says;
    match repairs.first().and_then(says) {
        Some(Says::Clean | Says::Repaired | Says::CleanOrRepaired) => true,
        Some(Says::RepairedOrLeft) => repairs
            .get(1)
            .is_some_and(|next| next.says == Some(Says::Clean) && next.changed.is_empty()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(code: i32, says: Says, changed: usize) -> Seen {
        let outcome = Outcome {
            end: End::Code(code),
            output: Vec::new(),
            output_full: false,
            time: Duration::ZERO,
            resident_bytes: 0,
        };
        Seen { outcome, says: Some(says), changed: vec![(0, 0, 1); changed], replayed: false }
    }

    fn classes(check: Seen, repairs: Vec<Seen>) -> Vec<Class> {
        let seen = Observation { check, repairs, losses: None, nondeterministic: false };
        let control = Control { check_is_clean: true, journal_to_replay: false };
        judge(&seen, control).into_iter().map(|violation| violation.class).collect()
    }

    #[test]
    fn an_honest_checker_is_not_accused() {
        let clean = || run(0, Says::Clean, 0);
        assert_eq!(classes(clean(), vec![clean(), clean()]), []);
        let repaired = vec![run(1, Says::Repaired, 5), clean()];
        assert_eq!(classes(run(4, Says::Left, 0), repaired), []);
        let left = vec![run(4, Says::Left, 0), run(4, Says::Left, 0)];
        assert_eq!(classes(run(4, Says::Left, 0), left), []);
    }

    #[test]
    fn a_code_that_leaves_open_whether_errors_were_repaired_is_judged_by_what_was_written() {
        let fat = Checker::named("fsck.fat").unwrap();
        let found = |wrote| says(&fat, &run(1, Says::Clean, 0).outcome, true, wrote).unwrap();
        assert_eq!((found(false), found(true)), (Says::Left, Says::RepairedOrLeft));
        let left = || run(1, Says::Left, 0);
        let written = || run(1, Says::RepairedOrLeft, 3);
        let clean = || run(0, Says::Clean, 0);
        // It cannot work, or can repair only a part of it: no contradiction.
        assert_eq!(classes(left(), vec![left(), left()]), []);
        assert_eq!(classes(left(), vec![written(), left()]), []);
        assert_eq!(classes(left(), vec![written(), clean()]), []);
        // What it repairs again was not repaired.
        assert_eq!(classes(left(), vec![written(), written(), clean()]), [Class::Table]);
        assert_eq!(classes(clean(), vec![written(), clean()]), [Class::CheckDisagrees]);
        assert!(is_said_to_be_fine(&[written(), clean()]));
        assert!(!is_said_to_be_fine(&[written(), left()]));
        assert!(!is_said_to_be_fine(&[left(), left()]));
    }

    #[test]
    fn the_exit_code_of_a_run_that_met_our_limit_of_output_is_not_judged() {
        let minix = Checker::named("fsck.minix").unwrap();
        let mut full = run(1, Says::Clean, 0);
        full.outcome.output_full = true;
        full.says = says(&minix, &full.outcome, true, false);
        assert_eq!(full.says, None);
        assert_eq!(classes(run(4, Says::Left, 0), vec![full]), [Class::Output]);
    }

    #[test]
    fn a_checker_that_asks_to_be_run_again_may_find_anything_then() {
        let left = || run(1, Says::Left, 0);
        let again = || run(1, Says::RunAgain, 0);
        assert_eq!(
            classes(left(), vec![again(), run(4, Says::Repaired, 9), run(0, Says::Clean, 0)]),
            []
        );
        assert_eq!(classes(left(), vec![again(), again(), again()]), []);
        let never = vec![again(), run(4, Says::Repaired, 9), run(4, Says::Repaired, 9)];
        assert_eq!(classes(left(), never), [Class::ThirdRun]);
    }

    #[test]
    fn looking_may_replay_a_journal_only_if_it_says_so() {
        let clean = || run(0, Says::Clean, 0);
        let mut look = run(0, Says::Clean, 5);
        assert_eq!(classes(look.clone(), vec![clean(), clean()]), [Class::CheckWrites]);
        look.replayed = true;
        assert_eq!(classes(look, vec![clean(), clean()]), []);
    }

    #[test]
    fn each_lie_has_its_class() {
        let left = || run(4, Says::Left, 0);
        let clean = || run(0, Says::Clean, 0);
        let repaired = || run(1, Says::Repaired, 3);
        assert_eq!(classes(left(), vec![repaired(), repaired(), clean()]), [Class::Table]);
        assert_eq!(classes(left(), vec![clean(), clean()]), [Class::CheckDisagrees]);
        assert_eq!(classes(clean(), vec![run(0, Says::Clean, 2), clean()]), [Class::SilentRepair]);
        assert_eq!(classes(clean(), vec![repaired(), clean()]), [Class::CheckDisagrees]);
        assert_eq!(classes(run(4, Says::Left, 1), vec![repaired(), clean()]), [Class::CheckWrites]);
        assert_eq!(classes(left(), vec![repaired(), clean(), repaired()]), [Class::ThirdRun]);
        let mut killed = clean();
        (killed.outcome.end, killed.says) = (End::Signal(11), None);
        assert_eq!(classes(left(), vec![killed]), [Class::Signal]);
        let mut endless = clean();
        (endless.outcome.end, endless.outcome.output_full, endless.says) = (End::Hang, true, None);
        assert_eq!(classes(left(), vec![endless]), [Class::Hang, Class::Output]);
        assert_eq!(
            classes(left(), vec![run(99, Says::Unknown(99), 0), clean()]),
            [Class::UnknownExit]
        );
        let mut reported = repaired();
        reported.outcome.output =
            b"==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x1".to_vec();
        assert_eq!(classes(left(), vec![reported, clean()]), [Class::Sanitizer]);
    }
}
