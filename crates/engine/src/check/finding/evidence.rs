//! What a subject shows after the last operation of a finding, beside what it should show: trees,
//! and the claims with which an exported program ends.

use fathom_core::claim::{Field, Space, Time, ascii_name, entry_text, hex};
use fathom_core::{
    Claim, Difference, Entry, FsPath, HarnessFault, Op, Outcome, Payload, Probe, Stamp, Statfs,
    Target, Testbed, Tree, Violation,
};
use fathom_model::Quirks;

use crate::check::rerun::{Runner, Trees};
use crate::check::side_by_side::{Inspection, SideBySide};

/// More claims than this say nothing new.
const CLAIMS_MAX: usize = 16;
/// Bytes that a claim about contents is about.
const WINDOW_BYTES: usize = 16;
/// One read of a file in search of the first difference.
const CHUNK_BYTES: usize = 1 << 20;
/// The first difference is looked for up to here.
const SEARCH_BYTES_MAX: u64 = 64 << 20;

impl Runner<'_> {
    /// Runs the operations, looks at the trees around the last one, and says what `violation` is
    /// about in a form that a program can check. Differences of contents get their offset and bytes.
    ///
    /// # Errors
    /// If the harness fails.
    pub(super) fn evidence(
        &mut self,
        ops: &[Op],
        violation: &mut Violation,
    ) -> Result<(Trees, Vec<Claim>), HarnessFault> {
        let quirks = self.oracle.quirks().clone();
        let mut pair = self.start()?;
        let at_start = statfs(pair.subject())?.zip(Some(pair.model().volume().statfs()));
        let before = run_before_last(&mut pair, ops)?;
        let trees = Trees { before, expected: pair.expected_tree(), after: pair.subject_tree()? };
        let claims = match violation {
            Violation::Outcome { expected, found } => {
                let space = space_claims(&mut pair, at_start, expected, found, &quirks)?;
                if space.is_empty() { vec![answer(expected, found)] } else { space }
            }
            Violation::Tree { differences } | Violation::Stale { differences } => {
                let mut claims = Claims { pair: &mut pair, trees: &trees, out: Vec::new() };
                for difference in differences {
                    claims.add(difference)?;
                }
                claims.out
            }
            other => final_claims(other),
        };
        Ok((trees, claims))
    }
}

/// The claims of what shows neither in an answer nor in a tree.
pub(super) fn final_claims(violation: &Violation) -> Vec<Claim> {
    /// A program waits at least so long for a call that did not return.
    const SECONDS_MIN: u64 = 10;
    /// What comes and goes has so many chances to come.
    const TRIES: u32 = 20;
    let claim = |probe, expected: &str, found: String| {
        vec![Claim { probe, expected: expected.to_owned(), found }]
    };
    match violation {
        Violation::Checker { command, code, .. } => {
            let found =
                code.map_or("ended by a signal".to_owned(), |code| format!("exit code {code}"));
            claim(Probe::Checker { command: command.clone() }, "clean", found)
        }
        Violation::KernelLog { lines } => {
            claim(Probe::KernelLog, "nothing", lines.first().cloned().unwrap_or_default())
        }
        Violation::Hang { seconds } => {
            let seconds = (*seconds).max(SECONDS_MIN);
            claim(Probe::Returns { seconds }, "yes", "no".to_owned())
        }
        Violation::Died { .. }
        | Violation::ServerDied { .. }
        | Violation::Oops { .. }
        | Violation::KernelReport { .. }
        | Violation::OutOfMemory { .. } => {
            claim(Probe::Returns { seconds: SECONDS_MIN }, "yes", "no".to_owned())
        }
        Violation::NonDeterministic { first, second } => {
            let found = format!("{first}, then {second}");
            claim(Probe::Always { tries: TRIES }, "yes", found)
        }
        // A program without a server has nothing to lock against.
        Violation::Locks { .. }
        | Violation::Outcome { .. }
        | Violation::Tree { .. }
        | Violation::Stale { .. } => Vec::new(),
    }
}

/// Executes all operations; returns the tree before the last one.
fn run_before_last(pair: &mut SideBySide<'_>, ops: &[Op]) -> Result<Tree, HarnessFault> {
    let mut before = Tree::default();
    for (index, op) in ops.iter().enumerate() {
        if index + 1 == ops.len() {
            before = pair.subject_tree()?;
        }
        pair.step(op, Inspection::Answer)?;
    }
    Ok(before)
}

fn answer(expected: &Outcome, found: &Outcome) -> Claim {
    Claim { probe: Probe::Answer, expected: expected.to_string(), found: found.to_string() }
}

fn statfs(subject: &mut dyn Testbed) -> Result<Option<Statfs>, HarnessFault> {
    let answer = subject.apply(&Op::Statfs { target: Target::Path(".".into()) })?;
    Ok(match answer.payload {
        Payload::Statfs(counts) => Some(counts),
        _ => None,
    })
}

/// Which counts of `statfs` have not changed since the start as those of the reference have.
fn space_claims(
    pair: &mut SideBySide<'_>,
    at_start: Option<(Statfs, Statfs)>,
    expected: &Outcome,
    found: &Outcome,
    quirks: &Quirks,
) -> Result<Vec<Claim>, HarnessFault> {
    let (Payload::Statfs(_), Payload::Statfs(_), Some((subject, model))) =
        (&expected.payload, &found.payload, at_start)
    else {
        return Ok(Vec::new());
    };
    let want = pair.model().volume().statfs();
    let Some(have) = statfs(pair.subject())? else { return Ok(Vec::new()) };
    let bytes = |then: &Statfs, now: &Statfs| {
        (then.blocks_free as i64 - now.blocks_free as i64) * then.block_bytes as i64
    };
    let files = |then: &Statfs, now: &Statfs| then.files_free as i64 - now.files_free as i64;
    let slack = quirks.statfs_slack_bytes;
    let names = (want.name_bytes_max as i64, have.name_bytes_max as i64);
    // As the oracle does: not every file system counts its inodes.
    let counts_files =
        quirks.statfs_comparable || quirks.statfs_counts_files && !pair.model().has_open_files();
    let mut claims = Vec::new();
    for (field, slack, (expected, found)) in [
        (Space::BytesFree, slack, (bytes(&model, &want), bytes(&subject, &have))),
        (Space::FilesFree, 0, (files(&model, &want), files(&subject, &have))),
        (Space::NameBytesMax, 0, names),
    ] {
        let compared = field != Space::FilesFree || counts_files;
        if compared && expected.abs_diff(found) > slack {
            let (expected, found) = (expected.to_string(), found.to_string());
            claims.push(Claim { probe: Probe::Space { field, slack }, expected, found });
        }
    }
    if claims.is_empty() {
        let probe = Probe::Space { field: Space::Consistent, slack: 0 };
        claims.push(Claim { probe, expected: "yes".to_owned(), found: "no".to_owned() });
    }
    Ok(claims)
}

/// Turns differences between trees into claims.
struct Claims<'a, 'b> {
    pair: &'a mut SideBySide<'b>,
    trees: &'a Trees,
    out: Vec<Claim>,
}

impl Claims<'_, '_> {
    fn add(&mut self, difference: &mut Difference) -> Result<(), HarnessFault> {
        let path = difference.path.clone();
        match difference.what.as_str() {
            "entry" => self.entry(&path, difference),
            "content" => self.content(&path, difference)?,
            "xattrs" => self.xattrs(&path)?,
            "same_as" => self.same_file(&path),
            "names" => self.names(&path),
            "mtime" => self.time(&path, Time::Mtime, difference),
            "ctime" => self.time(&path, Time::Ctime, difference),
            what => {
                if let (Some(field), Some(entry)) = (Field::of_name(what), self.expected(&path)) {
                    let expected = field.text(entry);
                    let found = self.after(&path).map(|entry| field.text(entry));
                    self.push(Probe::Attribute { path, field }, expected, found);
                }
            }
        }
        Ok(())
    }

    fn expected(&self, path: &FsPath) -> Option<&Entry> {
        self.trees.expected.entries.get(path)
    }

    fn after(&self, path: &FsPath) -> Option<&Entry> {
        self.trees.after.entries.get(path)
    }

    fn push(&mut self, probe: Probe, expected: impl Into<String>, found: Option<String>) {
        if self.out.len() < CLAIMS_MAX && self.out.iter().all(|claim| claim.probe != probe) {
            let found = found.unwrap_or_else(|| "missing".to_owned());
            self.out.push(Claim { probe, expected: expected.into(), found });
        }
    }

    /// A path that should be there and is not, or the other way round, or cannot be looked at.
    fn entry(&mut self, path: &FsPath, difference: &Difference) {
        let (want, have) = (self.expected(path).is_some(), self.after(path));
        let broken = have.and_then(|entry| entry.broken.clone()).filter(|_| want);
        let (there, found) = (have.is_some(), difference.found.clone());
        match broken.as_ref().map(|broken| broken.call.as_str()) {
            None | Some("statx") => {
                let probe = Probe::Entry { path: path.clone() };
                let found = if broken.is_some() { found } else { entry_text(there).to_owned() };
                self.push(probe, entry_text(want), Some(found));
            }
            Some("readlink") => self.field(path, Field::Target, found),
            Some("getdents64") => self.names(path),
            Some(_) => {
                self.field(path, Field::Kind, found.clone());
                self.field(path, Field::Size, found.clone());
                self.first_bytes(path, found);
            }
        }
    }

    fn field(&mut self, path: &FsPath, field: Field, found: String) {
        if let Some(entry) = self.expected(path) {
            let expected = field.text(entry);
            self.push(Probe::Attribute { path: path.clone(), field }, expected, Some(found));
        }
    }

    fn first_bytes(&mut self, path: &FsPath, found: String) {
        let expected = self.model_bytes(path, 0, WINDOW_BYTES);
        let probe = Probe::Content { path: path.clone(), offset: 0, len: WINDOW_BYTES as u64 };
        self.push(probe, hex(&expected), Some(found));
    }

    fn model_bytes(&self, path: &FsPath, offset: u64, len: usize) -> Vec<u8> {
        let volume = self.pair.model().volume();
        let mut bytes = Vec::new();
        if let Some(ino) = volume.find(path, false) {
            // What cannot be read has no bytes.
            let _ = volume.read(ino, offset, len, &mut bytes);
        }
        bytes
    }

    /// Looks for the first byte that differs.
    fn content(&mut self, path: &FsPath, difference: &mut Difference) -> Result<(), HarnessFault> {
        let mut offset = 0;
        while offset < SEARCH_BYTES_MAX {
            let want = self.model_bytes(path, offset, CHUNK_BYTES);
            let Some(have) = self.pair.subject().read_contents(path, offset, CHUNK_BYTES)? else {
                return Ok(());
            };
            if want != have {
                let shown = difference.show_bytes(offset, &want, &have, WINDOW_BYTES);
                let probe = Probe::Content {
                    path: path.clone(),
                    offset: offset + shown as u64,
                    len: WINDOW_BYTES as u64,
                };
                let window = |bytes: &[u8]| {
                    let start = shown.min(bytes.len());
                    hex(&bytes[start..bytes.len().min(shown + WINDOW_BYTES)])
                };
                self.push(probe, window(&want), Some(window(&have)));
                return Ok(());
            }
            if want.len() < CHUNK_BYTES {
                return Ok(());
            }
            offset += CHUNK_BYTES as u64;
        }
        Ok(())
    }

    fn xattrs(&mut self, path: &FsPath) -> Result<(), HarnessFault> {
        let (Some(want), Some(have)) = (self.expected(path).cloned(), self.after(path).cloned())
        else {
            return Ok(());
        };
        let names: std::collections::BTreeSet<_> =
            want.xattrs.keys().chain(have.xattrs.keys()).cloned().collect();
        for name in names {
            if want.xattrs.get(&name) == have.xattrs.get(&name) {
                continue;
            }
            let volume = self.pair.model().volume();
            let ino = volume.find(path, false);
            let expected = ino.and_then(|ino| volume.getxattr(ino, name.as_bytes()).ok());
            let expected = expected.map(|value| value.as_bytes().to_vec());
            let found = match have.xattrs.contains_key(&name) {
                true => self.pair.subject().read_xattr(path, &name)?,
                false => None,
            };
            let differs = |(a, b): (&Vec<u8>, &Vec<u8>)| {
                a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()))
            };
            let offset = expected.as_ref().zip(found.as_ref()).map_or(0, differs);
            let text = |value: &Option<Vec<u8>>| match value {
                None => "ENODATA".to_owned(),
                Some(value) => {
                    let end = value.len().min(offset + WINDOW_BYTES);
                    format!("{} in all: {}", value.len(), hex(&value[offset.min(end)..end]))
                }
            };
            let probe = Probe::Xattr {
                path: path.clone(),
                name,
                offset: offset as u64,
                len: WINDOW_BYTES as u64,
            };
            self.push(probe, text(&expected), Some(text(&found)));
        }
        Ok(())
    }

    /// Two names that should be one file, or should not.
    fn same_file(&mut self, path: &FsPath) {
        let first = |tree: &Tree, path: &FsPath| {
            let entry = tree.entries.get(path);
            entry.map(|entry| entry.same_as.clone().unwrap_or_else(|| path.clone()))
        };
        let others = [&self.trees.expected, &self.trees.after]
            .map(|tree| tree.entries.get(path).and_then(|entry| entry.same_as.clone()));
        for other in others.into_iter().flatten() {
            let same = |tree: &Tree| {
                let (one, two) = (first(tree, path), first(tree, &other));
                one.zip(two).map(|(one, two)| if one == two { "yes" } else { "no" }.to_owned())
            };
            let (expected, found) = (same(&self.trees.expected), same(&self.trees.after));
            if let (Some(expected), true) = (expected.clone(), expected != found) {
                self.push(Probe::SameFile { path: path.clone(), other }, expected, found);
            }
        }
    }

    fn names(&mut self, path: &FsPath) {
        let names = |tree: &Tree| {
            let names = tree.path_state(path).names.unwrap_or_default();
            let names: Vec<String> = names.iter().map(|name| ascii_name(name.as_bytes())).collect();
            if names.is_empty() { "nothing".to_owned() } else { names.join(" ") }
        };
        let (expected, found) = (names(&self.trees.expected), names(&self.trees.after));
        self.push(Probe::Names { path: path.clone() }, expected, Some(found));
    }

    /// A time that was set, or one that comes before another that should not be later.
    fn time(&mut self, path: &FsPath, time: Time, difference: &Difference) {
        let (Some(want), Some(have)) =
            (stamp(&self.trees.expected, path, time), stamp(&self.trees.after, path, time))
        else {
            return;
        };
        let tick = match want {
            Stamp::At { sec, nsec } => {
                let expected = format!("{sec}.{nsec:09}");
                let probe = Probe::Time { path: path.clone(), time };
                return self.push(probe, expected, Some(difference.found.clone()));
            }
            Stamp::Tick(tick) => tick,
        };
        let mut earlier = Vec::new();
        for other in self.trees.expected.entries.keys() {
            for other_time in [Time::Mtime, Time::Ctime] {
                let stamps = stamp(&self.trees.expected, other, other_time).zip(stamp(
                    &self.trees.after,
                    other,
                    other_time,
                ));
                if let Some((Stamp::Tick(before), found)) = stamps
                    && before < tick
                    && moment(found) > moment(have)
                {
                    earlier.push((other.clone(), other_time));
                }
            }
        }
        for (other, other_time) in earlier {
            let probe = Probe::Order {
                earlier: other,
                earlier_time: other_time,
                later: path.clone(),
                later_time: time,
            };
            self.push(probe, "yes", Some("no".to_owned()));
        }
    }
}

fn stamp(tree: &Tree, path: &FsPath, time: Time) -> Option<Stamp> {
    let times = tree.entries.get(path)?.times?;
    Some(match time {
        Time::Mtime => times.mtime,
        Time::Ctime => times.ctime,
    })
}

fn moment(stamp: Stamp) -> (i64, u64) {
    match stamp {
        Stamp::Tick(tick) => (0, tick),
        Stamp::At { sec, nsec } => (sec, u64::from(nsec)),
    }
}
