//! `fathom fsck unpack`, `suite`, `coverage` and `CHECKER --suite`: images that come with a checker, and the
//! smallest set of images that keeps the coverage of a campaign.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use fathom_fsck::{
    Checker, Chosen, Subject, SubjectOptions, SuiteImage, choose, edges_of_cases, edges_of_image,
    images,
};
use serde_json::json;

use super::args::{BuildArgs, CoverageArgs, FsckArgs, SuiteArgs};
use super::{open_disk, options, test_subject};
use crate::command::Ending;
use crate::text::{print, print_json, say};

/// Unpacks the source of a checker.
pub(super) fn unpack(args: &BuildArgs, json: bool) -> Result<Ending> {
    let default = || PathBuf::from(format!("{}-source", args.package));
    let dir = std::path::absolute(args.dir.clone().unwrap_or_else(default))?;
    let tests = fathom_fsck::unpack(&args.package, &dir)?;
    let count = images(&tests).with_context(|| tests.display().to_string())?.len();
    match json {
        true => print_json(&json!({"tests": tests, "images": count}))?,
        false => print(&format!("{}: {count} images\n", tests.display()))?,
    }
    Ok(Ending::Clean)
}

/// A test image with the bytes that a repair changes as its fields; an error if there are none.
fn repairable(args: &FsckArgs, checker: &Checker, image: &SuiteImage) -> Result<Subject> {
    let subject = Subject::of_test_image(checker.clone(), image.open()?, &options(args))?;
    if subject.map.fields.is_empty() {
        bail!("a repair changes nothing");
    }
    Ok(subject)
}

/// Tests a checker on its own test images: what a repair changed is corrupted again.
pub(super) fn test(
    args: &FsckArgs,
    checker: &Checker,
    dir: &Path,
    out: &Path,
    json: bool,
) -> Result<Ending> {
    let all = images(dir).with_context(|| dir.display().to_string())?;
    if all.is_empty() {
        bail!(
            "{}: there are no images (image.gz, *.img.xz, *.raw.xz, *.raw) below it",
            dir.display()
        );
    }
    let start = Instant::now();
    let (mut values, mut left_out) = (Vec::new(), Vec::new());
    let mut worst = Ending::Clean;
    for (index, image) in all.iter().enumerate() {
        let subject = match repairable(args, checker, image) {
            Ok(subject) => subject,
            Err(error) => {
                let why = format!("{error:#}").lines().next().unwrap_or_default().to_owned();
                left_out.push(json!({"image": image.name, "why": why}));
                continue;
            }
        };
        // What is left of the time is shared by the images that are left.
        let mut args = args.clone();
        args.budget = args.budget.map(|budget| {
            budget.saturating_sub(start.elapsed()) / u32::try_from(all.len() - index).unwrap_or(1)
        });
        let (ending, value) = test_subject(&args, &subject, None, &out.join(&image.name), true)?;
        if !json {
            print(&format!(
                "{}: {} of {} cases, {} with a violation\n",
                image.name, value["cases"], value["cases_total"], value["violations"]
            ))?;
        }
        values.push(value);
        if ending == Ending::Findings {
            worst = Ending::Findings;
        }
    }
    let sum = |name: &str| values.iter().filter_map(|value| value[name].as_u64()).sum::<u64>();
    let total = json!({
        "images": values.len(),
        "left_out": left_out,
        "cases": sum("cases"),
        "violations": sum("violations"),
        "seconds": start.elapsed().as_secs_f64(),
        "campaigns": values,
    });
    if json {
        print_json(&total)?;
    } else {
        print(&format!(
            "{} images ({} left out): {} cases, {} with a violation\n",
            total["images"],
            left_out.len(),
            total["cases"],
            total["violations"]
        ))?;
    }
    Ok(worst)
}

fn instrumented(checker: Checker, program: &Path, disk: &str) -> Result<Subject> {
    let options = SubjectOptions { program: Some(program.to_owned()), ..SubjectOptions::default() };
    Ok(Subject::new(checker, open_disk(disk)?, &options)?)
}

/// Compares the branches of a suite with those of our cases.
pub(super) fn coverage(args: &CoverageArgs, json: bool) -> Result<Ending> {
    let mut own = BTreeSet::new();
    let choice = fathom_fsck::Choice::default();
    let mut subjects = Vec::new();
    let checker = Checker::named("e2fsck")?;
    for disk in &checker.disks {
        let subject = instrumented(checker.clone(), &args.program, disk)?;
        own.extend(edges_of_cases(&subject, &choice, args.cases)?);
        subjects.push(subject);
    }
    let Some(first) = subjects.first() else { bail!("e2fsck has no disks") };
    if own.is_empty() {
        bail!(
            "{} is not instrumented: build one with `fathom fsck build e2fsprogs`",
            args.program.display()
        );
    }
    let (mut suite, mut from_suite) = (BTreeSet::new(), BTreeSet::new());
    let (mut count, mut left_out) = (0, 0);
    let options =
        SubjectOptions { program: Some(args.program.clone()), ..SubjectOptions::default() };
    for image in images(&args.suite).with_context(|| args.suite.display().to_string())? {
        let Ok(disk) = image.open() else {
            left_out += 1;
            continue;
        };
        count += 1;
        suite.extend(edges_of_image(first, &disk)?);
        if let Ok(subject) = Subject::of_test_image(first.checker.clone(), disk, &options) {
            from_suite.extend(edges_of_cases(&subject, &choice, args.cases_each)?);
        }
    }
    let with = suite.union(&from_suite).count();
    let all: BTreeSet<u32> = suite.iter().chain(&from_suite).chain(&own).copied().collect();
    let value = json!({
        "images": count,
        "images_left_out": left_out,
        "edges_of_suite": suite.len(),
        "edges_from_suite": with,
        "edges_of_our_disks": own.len(),
        "edges_of_our_disks_only": own.difference(&suite).count(),
        "edges_of_all": all.len(),
    });
    match json {
        true => print_json(&value)?,
        false => print(&format!(
            "{count} images ({left_out} left out): {} branches; with our cases from there {with}; our disks \
             alone {} ({} that the images do not take); all together {}\n",
            suite.len(),
            own.len(),
            own.difference(&suite).count(),
            all.len()
        ))?,
    }
    Ok(Ending::Clean)
}

/// Writes the smallest suite.
pub(super) fn write(args: &SuiteArgs, json: bool) -> Result<Ending> {
    // As e2fsprogs' own tests call it: what it prints names the image as they do.
    let checker = Checker::named("e2fsck")?;
    let checker = checker.repairing_with(&["-yf", "-N", "test_filesys", "{}"]);
    let subject = instrumented(checker, &args.program, &args.disk)?;
    let (chosen, edges) = choose(&subject, &fathom_fsck::Choice::default(), args.cases)?;
    if edges == 0 {
        bail!(
            "{} is not instrumented: build one with `fathom fsck build e2fsprogs`",
            args.program.display()
        );
    }
    for (index, chosen) in chosen.iter().enumerate() {
        let dir = args.output.join(format!("f_fathom_{:03}", index + 1));
        write_test(&dir, &subject, chosen).with_context(|| dir.display().to_string())?;
    }
    let value = json!({"cases": args.cases, "tests": chosen.len(), "edges": edges});
    match json {
        true => print_json(&value)?,
        false => print(&format!(
            "{} tests in {} take the {edges} branches of {} cases\n",
            chosen.len(),
            args.output.display(),
            args.cases
        ))?,
    }
    if chosen.is_empty() {
        say!("fathom: no case takes a branch that the healthy disk does not take");
    }
    Ok(Ending::Clean)
}

/// The name under which a checker finds its disk.
const DISK_PATH: &str = "/proc/self/fd/100";

/// One test, as e2fsprogs lays them out: what it is about, a packed image, a script, what two runs say.
fn write_test(dir: &Path, subject: &Subject, chosen: &Chosen) -> Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("name"), format!("{}\n", chosen.case.text()))?;
    let mut bytes = (*subject.disk.bytes).clone();
    chosen.case.apply(&mut bytes);
    let mut child = Command::new("gzip")
        .arg("-9cn")
        .stdin(Stdio::piped())
        .stdout(fs::File::create(dir.join("image.gz"))?)
        .spawn()
        .context("gzip packs images")?;
    let mut input = child.stdin.take().context("gzip has no input")?;
    input.write_all(&bytes)?;
    drop(input);
    if !child.wait()?.success() {
        bail!("gzip failed");
    }
    fs::write(dir.join("script"), script(&subject.checker))?;
    let program = subject.program.display().to_string();
    for (index, (end, output)) in chosen.runs.iter().enumerate() {
        let text = expected(output, &program);
        let text = format!("{text}Exit status is {end}\n");
        fs::write(dir.join(format!("expect.{}", index + 1)), text)?;
    }
    Ok(())
}

/// The script of a test: that of all their tests, at the time of our runs.
fn script(checker: &Checker) -> String {
    let times = checker.environment().filter(|(name, _)| name.ends_with("TIME"));
    let times: Vec<(&str, &str)> = times.collect();
    let mut text = String::new();
    for (name, value) in &times {
        text.push_str(&format!("{name}={value}\nexport {name}\n"));
    }
    // A few messages name the file of the image, which is another one each time.
    text.push_str("AFTER_CMD='sed -i -e \"s;$TMPFILE;test_filesys;\" $OUT1 $OUT2'\n");
    text.push_str("\n. $cmd_dir/run_e2fsck\n\n");
    for (name, _) in &times {
        text.push_str(&format!("unset {name}\n"));
    }
    text
}

/// What a run prints as e2fsprogs' tests see it: its name and that of the image are theirs, and their filter
/// (`tests/filter.sed`) has taken out and renamed what differs from one machine to another.
fn expected(output: &str, program: &str) -> String {
    let gone = ["e2fsck 1.", "Suggestion:", "JFS DEBUG:", "Checksum:", "  Checksum "];
    let mut text = String::new();
    for line in output.lines() {
        let has = |words: &str| line.contains(words);
        if gone.iter().any(|head| line.starts_with(head))
            || has("automatically checked")
            || has("whichever comes first")
        {
            continue;
        }
        let line = line.replace(program, "../e2fsck/e2fsck");
        let line = renamed_after(&line, "while trying to open ");
        let line = renamed_after(&line, "he filesystem on ");
        text.push_str(&line.replace(DISK_PATH, "test_filesys"));
        text.push('\n');
    }
    text
}

/// A line in which the word behind some others is the name that their filter gives to an image.
fn renamed_after(line: &str, head: &str) -> String {
    let Some(at) = line.find(head) else { return line.to_owned() };
    let (before, after) = line.split_at(at + head.len());
    let rest = after.find(' ').map_or("", |end| &after[end..]);
    format!("{before}test.img{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_as_e2fsprogs_tests_expect_them() {
        let output = "e2fsck 1.47.0 (5-Feb-2023)\n/x/e2fsck: Bad magic number in super-block while trying to open \
                      /proc/self/fd/100\n/proc/self/fd/100: ***** FILE SYSTEM WAS MODIFIED *****\n";
        assert_eq!(
            expected(output, "/x/e2fsck"),
            "../e2fsck/e2fsck: Bad magic number in super-block while trying to open test.img\n\
             test_filesys: ***** FILE SYSTEM WAS MODIFIED *****\n"
        );
    }

    #[test]
    fn a_test_runs_at_the_time_of_our_runs() {
        let text = script(&Checker::named("e2fsck").unwrap());
        assert!(text.contains("E2FSCK_TIME=1700000000\nexport E2FSCK_TIME"), "{text}");
        assert!(text.contains(". $cmd_dir/run_e2fsck") && !text.contains("LC_ALL"), "{text}");
    }
}
