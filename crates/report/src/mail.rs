//! A finding as a mail to the maintainers of a file system: plain text of 72 columns with what they ask
//! for first.

use fathom_record::Finding;

use crate::words::{counted, spaced};

/// Columns of a line: what mail programs and archives show without breaking it.
const WIDTH: usize = 72;

/// Steps in shell longer than this are attached rather than shown.
const SCRIPT_LINES_MAX: usize = 60;

/// The files of a finding that a mail is made from; empty where there is none.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    /// `repro.sh`
    pub shell: String,
    /// `diff.txt`
    pub differences: String,
    /// The names of the files that show it again: `repro.c`, ….
    pub programs: Vec<String>,
}

/// The mail: a subject line, and the text.
pub fn mail(finding: &Finding, attached: &Attached) -> String {
    let subject = format!("Subject: {}: {}", finding.subject, headline(finding));
    let mut text = format!("{}\n\n", cut(&subject, WIDTH));
    text.push_str(&wrapped(&summary(finding, attached), "", ""));
    section(
        &mut text,
        "Consequence",
        &wrapped(&format!("{}.", consequence(&finding.class)), "  ", "  "),
    );
    section(&mut text, "Versions", &versions(finding));
    section(&mut text, "Steps", &steps(finding, attached));
    let differs: String =
        attached.differences.trim_end().lines().map(|line| wrapped(line, "  ", "      ")).collect();
    if !differs.is_empty() {
        section(&mut text, "Expected and found", &differs);
    }
    section(&mut text, "How often", &wrapped(&how_often(finding), "  ", "  "));
    let since = finding.labels.get("since").map_or_else(
        || "not known: earlier versions were not tried".to_owned(),
        |since| format!("since {since}"),
    );
    section(&mut text, "Since", &wrapped(&since, "  ", "  "));
    text.push_str(&format!("\n-- \nfound by {}, finding {}\n", finding.program, finding.id));
    text
}

fn section(text: &mut String, title: &str, body: &str) {
    text.push_str(&format!("\n{title}:\n{body}"));
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => {
            let end = text.char_indices().nth(width - 1).map_or(text.len(), |(at, _)| at);
            format!("{}…", &text[..end])
        }
    }
}

/// What is wrong, without the place, which is said beside it.
fn headline(finding: &Finding) -> String {
    let title = one_line(&finding.title);
    let place = format!(" on {}", finding.subject);
    title.strip_suffix(&place).unwrap_or(&title).to_owned()
}

/// The one line that says everything: where, what, and the first difference.
fn summary(finding: &Finding, attached: &Attached) -> String {
    let first = attached.differences.lines().map(str::trim).find(|line| !line.is_empty());
    let first = first.map_or(String::new(), |line| format!(" ({line})"));
    format!("On {}: {}{first}.", finding.subject, headline(finding))
}

/// What a user of the file system has from it.
fn consequence(class: &str) -> String {
    let words = match class {
        "outcome" => {
            "a system call answers otherwise than it should: programs that rely on it fail, or do the wrong thing"
        }
        "tree" => {
            "what can be seen afterwards is not what was written or set: files, attributes or contents are wrong"
        }
        "non_deterministic" => "the same calls on a fresh file system end differently",
        "checker" => "the file system's own checker finds damage after a clean unmount",
        "kernel_log" => "the kernel complains in its log",
        "locks" => "a lock is granted that excludes one which another client holds, or is lost",
        "hang" => "a system call does not return; the process cannot be ended",
        "oops" => "the kernel oopses: the machine may hang afterwards",
        "died" => "the process that serves the file system ends; everything mounted is gone",
        "lost_entry" => "after a power failure a name is missing that was promised to be there",
        "lost_data" => "after a power failure data is missing that was promised to be there",
        "unmountable" => "after a power failure the file system cannot be mounted",
        other => return format!("a violation of the class \"{}\"", spaced(other)),
    };
    words.to_owned()
}

fn versions(finding: &Finding) -> String {
    let mut text = wrapped(&format!("file system: {}", finding.subject), "  ", "    ");
    for (name, value) in finding.labels.iter().filter(|(name, _)| *name != "since") {
        text.push_str(&wrapped(&format!("{}: {value}", spaced(name)), "  ", "    "));
    }
    text
}

/// The steps in shell if they are short and fit; otherwise as they are told, with the programs beside.
fn steps(finding: &Finding, attached: &Attached) -> String {
    let lines: Vec<&str> = attached.shell.lines().collect();
    let fits = |line: &&str| line.chars().count() + 2 <= WIDTH;
    let mut text = if !lines.is_empty() && lines.len() <= SCRIPT_LINES_MAX && lines.iter().all(fits)
    {
        lines.iter().map(|line| format!("  {line}").trim_end().to_owned() + "\n").collect()
    } else {
        story(&finding.story)
    };
    if !attached.programs.is_empty() {
        let programs = attached.programs.join(", ");
        let about = format!(
            "Attached: {programs}, which stand alone: exit code 1 where the bug is, 0 where it is not."
        );
        text.push_str(&wrapped(&about, "  ", "  "));
    }
    text
}

/// The numbered steps of a story, without what is said elsewhere in the mail.
fn story(story: &str) -> String {
    let is_about_files =
        |line: &&str| !line.starts_with("replay:") && !line.starts_with("finding ");
    let lines: Vec<&str> = story.lines().filter(is_about_files).collect();
    let first = lines.iter().position(|line| !line.trim().is_empty()).unwrap_or(0);
    let mut text = String::new();
    for line in &lines[first..] {
        let indent = line.len() - line.trim_start().len();
        let margin = " ".repeat(2 + indent.min(8));
        text.push_str(&wrapped(line.trim(), &margin, &format!("{margin}    ")));
    }
    format!("{}\n", text.trim_end())
}

fn how_often(finding: &Finding) -> String {
    let seen = format!("seen {}", counted(finding.sightings, "time"));
    match (finding.runs, finding.runs_reproduced) {
        (0, _) => format!("{seen}; not run again"),
        (runs, again) if again == runs => {
            format!("{seen}; every one of {} shows it again", counted(runs as u64, "further run"))
        }
        (runs, again) => {
            format!("{seen}; {again} of {} show it again", counted(runs as u64, "further run"))
        }
    }
}

/// Breaks a text into lines that fit; a word that is too long for a line is broken too.
fn wrapped(text: &str, first: &str, rest: &str) -> String {
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        let columns = |text: &str| text.chars().count();
        if !is_empty && columns(&line) + 1 + columns(&word) > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = rest.to_owned();
            is_empty = true;
        }
        while is_empty && columns(&line) + columns(&word) > WIDTH {
            let room = WIDTH - columns(&line);
            let at = word.char_indices().nth(room).map_or(word.len(), |(at, _)| at);
            lines.push_str(&format!("{line}{}\n", &word[..at]));
            word = word[at..].to_owned();
            line = rest.to_owned();
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    lines.push_str(line.trim_end());
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_at_most_72_columns() {
        let mut finding = Finding::new("check", "abc123", "tree ftruncate size");
        finding.title = format!("size differs after ftruncate on {}", "x".repeat(90));
        finding.class = "tree".to_owned();
        finding.subject = "ext4".to_owned();
        finding.story = format!(
            "finding abc123: x\n\n    1   open(#0, {:?}, O_RDWR)\n    2   close(#0)\nreplay: fathom replay abc123\n",
            "y".repeat(100)
        );
        finding.labels.insert("kernel".to_owned(), "6.18.44".to_owned());
        (finding.runs, finding.runs_reproduced) = (2, 2);
        let attached = Attached {
            shell: String::new(),
            differences: format!("{} is missing\n", "z".repeat(80)),
            programs: vec!["repro.c".to_owned()],
        };
        let mail = mail(&finding, &attached);
        for line in mail.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for part in
            ["Subject: ext4: size", "Consequence:", "kernel: 6.18.44", "2 close(#0)", "Since:"]
        {
            assert!(mail.contains(part), "{part}:\n{mail}");
        }
        assert!(!mail.contains("fathom replay"), "{mail}");
    }

    #[test]
    fn short_scripts_are_shown_whole() {
        let finding = Finding::new("check", "abc123", "tree");
        let attached = Attached { shell: "set -e\n\ntouch a\n".to_owned(), ..Attached::default() };
        assert!(mail(&finding, &attached).contains("  set -e\n\n  touch a\n"));
    }
}
