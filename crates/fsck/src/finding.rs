//! Findings: a cause with its simplest case, as a directory that shows it again.

use fathom_record::{Evidence, Finding};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::campaign::Cause;
use crate::case::Case;
use crate::judge::Class;
use crate::runner::Found;
use crate::subject::Subject;

/// The kind of such findings in `finding.toml`.
pub const KIND: &str = "fsck";

/// What only findings on checkers have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// The checker.
    pub checker: String,
    /// The program that was run.
    pub checker_program: String,
    /// The disk: a name of ours, or a path.
    pub disk: String,
    /// The corruption.
    pub case: Case,
    /// What violations of the same cause have in common.
    pub cause: String,
    /// How the runs ended.
    pub ends: [String; 3],
}

/// What violations of the same cause share.
pub(crate) fn signature(checker: &str, found: &Found) -> String {
    // How often something is said is not part of its cause; numbers are gone already.
    let what = match found.class {
        Class::Table | Class::ThirdRun | Class::CheckDisagrees | Class::Loss => found.what.as_str(),
        Class::Signal => found.what.as_str(),
        _ => "",
    };
    format!("{checker} {} {what}: {}", found.class.name(), found.cause)
}

/// Tells a cause.
pub(crate) fn finding(subject: &Subject, signature: &str, cause: &Cause) -> Finding {
    let about = format!("{signature} {}", subject.disk.name);
    let id = format!("{:012x}", XxHash3_128::oneshot(about.as_bytes()) >> 80);
    let mut finding = Finding::new(KIND, &id, signature);
    finding.class = cause.class.name().to_owned();
    finding.subject = subject.checker.name.clone();
    finding.title =
        format!("{}: {} ({})", subject.checker.name, cause.class.about(), cause.case.text());
    finding.complete = true;
    finding.sightings = cause.cases;
    let details = Details {
        checker: subject.checker.name.clone(),
        checker_program: subject.program.display().to_string(),
        disk: subject.disk.name.clone(),
        case: cause.case.clone(),
        cause: cause.cause.clone(),
        ends: cause.ends.clone(),
    };
    finding.details = Finding::details_of(&details);
    finding.labels.insert("disk".to_owned(), subject.disk.name.clone());
    finding.story = story(subject, &id, cause);
    finding.evidence = evidence(subject, cause);
    finding.page.ops = vec![cause.case.text()];
    finding.page.in_flight = 1;
    finding.page.differences = cause.losses.clone();
    finding.page.replay = format!("fathom replay {id}");
    finding.page.story = prose(subject, cause);
    finding
}

fn prose(subject: &Subject, cause: &Cause) -> String {
    let [check, first, second] = &cause.ends;
    let fields: Vec<String> =
        cause.fields.iter().map(|(field, cases)| format!("{field} ({cases})")).take(8).collect();
    format!(
        "{}: {}.\n\n{} cases have this cause ({}). The simplest: {}. Looking ended with {check}, the \
         first repair with {first}, the second with {second}.\n\nFields: {}{}",
        cause.class.about(),
        cause.what,
        cause.cases,
        if cause.cause.is_empty() { "no message" } else { &cause.cause },
        cause.case.text(),
        fields.join(", "),
        if cause.fields.len() > 8 { ", …" } else { "" },
    ) + &format!("\n\nDisk: {}. Program: {}.", subject.disk.name, subject.program.display())
}

fn story(subject: &Subject, id: &str, cause: &Cause) -> String {
    let mut text = format!("{} {id}: {}\n", cause.class.name(), prose(subject, cause));
    for loss in cause.losses.iter().take(10) {
        text.push_str(&format!("  {loss}\n"));
    }
    if cause.losses.len() > 10 {
        text.push_str(&format!("  … and {} more\n", cause.losses.len() - 10));
    }
    text.push_str(&format!("replay: fathom replay {id}\n"));
    text
}

fn evidence(subject: &Subject, cause: &Cause) -> Vec<Evidence> {
    let mut out = vec![
        Evidence::text("repro.sh", script(subject, cause)),
        Evidence::text("runs.txt", cause.story.clone()),
        Evidence::text("delta.txt", delta(&cause.case, subject.base())),
    ];
    if subject.disk.script.is_some() && !subject.disk.anywhere {
        let bytes = subject.packed().to_vec();
        out.push(Evidence::bytes("disk.img.gz", bytes));
    }
    if !cause.losses.is_empty() {
        out.push(Evidence::text("losses.txt", cause.losses.join("\n") + "\n"));
    }
    out
}

/// The difference to the healthy disk: place, bytes before, bytes after.
fn delta(case: &Case, base: &[u8]) -> String {
    let mut text = String::new();
    for (at, bytes) in &case.writes {
        let before = base.get(*at as usize..*at as usize + bytes.len()).unwrap_or_default();
        text.push_str(&format!("{at}: {} -> {}\n", hexadecimal(before), hexadecimal(bytes)));
    }
    text
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A script that shows the finding with the programs of the file system alone.
fn script(subject: &Subject, cause: &Cause) -> String {
    let mut text = String::new();
    match &subject.disk.script {
        Some(_) if !subject.disk.anywhere => {
            text.push_str(&format!("#!/bin/sh\n# {}\n", cause.case.text().replace('\n', " ")));
            text.push_str(&format!("# The disk is that of `fathom fsck disk {}`.\n", subject.disk.name));
            text.push_str("disk=${1:-disk.img}\ngunzip -c \"$(dirname \"$0\")/disk.img.gz\" > \"$disk\"\n");
        }
        Some(script) => {
            text.push_str("#!/bin/sh\n# ");
            text.push_str(&format!("{}\n", cause.case.text().replace('\n', " ")));
            text.push_str("disk=${1:-disk.img}\n(\n");
            text.push_str(&script.replace("image=$(realpath \"${1:-disk.img}\")", "image=$(realpath \"$disk\")"));
            text.push_str(")\n");
        }
        None => text.push_str(&format!(
            "#!/bin/sh\n# {}\n# $1 is a copy of {}: it is changed.\ndisk=${{1:?give a copy of the image}}\n",
            cause.case.text(),
            subject.disk.name
        )),
    }
    text.push_str("\nPATH=$PATH:/usr/sbin:/sbin\n");
    for (name, value) in &subject.checker.env {
        text.push_str(&format!("export {name}={value}\n"));
    }
    for (at, bytes) in &cause.case.writes {
        let octal: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
        text.push_str(&format!(
            "printf '{octal}' | dd of=\"$disk\" bs=1 seek={at} conv=notrunc status=none\n"
        ));
    }
    let command = |args: &[String]| {
        let args: Vec<String> = args.iter().map(|word| word.replace("{}", "\"$disk\"")).collect();
        // Some checkers ask before they repair, whatever their arguments say.
        let answer = match subject.checker.input.trim_end() {
            "" => String::new(),
            answer => format!("echo '{answer}' | "),
        };
        format!(
            "{answer}timeout {} {} {}",
            subject.limits.time.as_secs().max(1),
            subject.checker.program,
            args.join(" ")
        )
    };
    let [check, first, second] = &cause.ends;
    text.push_str(&format!(
        "cp \"$disk\" \"$disk.copy\"\n{}\n",
        command(&subject.checker.check).replace("$disk", "$disk.copy")
    ));
    text.push_str(&format!("echo \"looking: exit code $?, seen was {check}\"\n"));
    for (name, seen) in [("first", first), ("second", second)] {
        if !seen.is_empty() {
            text.push_str(&format!("{}\n", command(&subject.checker.repair)));
            text.push_str(&format!("echo \"{name} repair: exit code $?, seen was {seen}\"\n"));
        }
    }
    text
}
