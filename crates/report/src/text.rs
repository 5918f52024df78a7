//! A run for a terminal of 80 columns, without colour: the findings as stories.

use crate::compare::{Comparison, Row, compare};
use crate::run::{Command, FindingPage, Run};
use crate::words::{counted, grouped, middle_cut, spaced, wrapped};
use crate::{verdict, visible};

/// Columns of a terminal that nobody has widened.
const WIDTH: usize = 80;
/// Longer lists are counted, not shown: the HTML page and the finding's directory have all of them.
const LINES_MAX: usize = 40;
/// More findings than this are named, not told.
const STORIES_MAX: usize = 10;
/// The longest bar of a chart.
const BAR_WIDTH: usize = 40;

/// The whole run.
pub fn run(run: &Run) -> String {
    let run = &visible::run(run);
    let mut page = Page::default();
    page.paragraph(0, &verdict::sentence(run));
    page.empty();
    about(&mut page, run);
    counts(&mut page, run);
    by_depth(&mut page, run);
    plots(&mut page, run);
    for goal in &run.goals_missed {
        page.hanging("  never reached: ", goal);
    }
    for known in &run.known {
        let times = counted(known.sightings, "time");
        let text = format!("{} (seen {times}): {}", known.signature, known.because);
        page.hanging("  known: ", &text);
    }
    for gone in &run.no_longer_seen {
        page.hanging("  NO LONGER SEEN, although it is known: ", gone);
    }
    let (told, named) = run.findings.split_at(run.findings.len().min(STORIES_MAX));
    for (index, finding) in told.iter().enumerate() {
        page.rule(&format!("finding {} of {}", index + 1, run.findings.len()));
        tell(&mut page, finding);
    }
    if !named.is_empty() {
        page.rule("and, told by --html");
    }
    for finding in named {
        let title = format!("{} ({})", finding.title, finding.id);
        page.hanging(&format!("  {}: ", spaced(&finding.class)), &title);
    }
    page.finish()
}

/// One finding.
pub fn finding(finding: &FindingPage) -> String {
    let mut page = Page::default();
    tell(&mut page, &visible::finding(finding));
    page.finish()
}

fn about(page: &mut Page, run: &Run) {
    page.hanging("  tested   ", &run.version);
    if !run.geometry.is_empty() {
        page.hanging("  device   ", &run.geometry);
    }
    page.hanging("  command  ", &run.command);
    page.hanging("  effort   ", &verdict::effort(run));
    if let Some(seed) = run.seed {
        page.hanging("  seed     ", &seed.to_string());
    }
    page.hanging("  ended    ", &run.stop);
    if !run.complete {
        page.hanging("  complete ", "no: what follows is what it has so far");
    }
    page.hanging("  program  ", &run.program);
}

fn counts(page: &mut Page, run: &Run) {
    if run.counts.is_empty() {
        return;
    }
    page.empty();
    let names = run.counts.iter().map(|count| count.name.chars().count()).max().unwrap_or(0);
    let values = run.counts.iter().map(|count| grouped(count.value).len()).max().unwrap_or(0);
    for count in &run.counts {
        let (name, value) = (spaced(&count.name), grouped(count.value));
        page.hanging(&format!("  {name:names$}  {value:>values$}  "), &count.about);
    }
}

fn by_depth(page: &mut Page, run: &Run) {
    let max = run.by_depth.iter().copied().max().unwrap_or(0);
    if max == 0 {
        return;
    }
    page.empty();
    page.line("  states by number of operations");
    let digits = grouped(max).len();
    for (depth, &states) in run.by_depth.iter().enumerate().take(LINES_MAX) {
        let bar = "█".repeat((states as f64 / max as f64 * BAR_WIDTH as f64).round() as usize);
        let tip = if bar.is_empty() && states > 0 { "▏" } else { "" };
        page.line(&format!("  {depth:>4}  {:>digits$}  {bar}{tip}", grouped(states)));
    }
    page.more(run.by_depth.len().saturating_sub(LINES_MAX));
}

fn tell(page: &mut Page, finding: &FindingPage) {
    page.paragraph(0, &finding.title);
    page.empty();
    let levels = match finding.levels.as_slice() {
        [] => String::new(),
        levels => format!(" · {}", levels.join(", ")),
    };
    let times = counted(finding.count, "time");
    page.paragraph(2, &format!("{} · seen {times}{levels}", spaced(&finding.class)));
    if !finding.complete {
        page.paragraph(2, "as it was first seen: not yet run again, not shrunk");
    }
    for variant in &finding.variants {
        page.hanging("  also as: ", variant);
    }
    for paragraph in finding.story.split("\n\n").filter(|text| !text.trim().is_empty()) {
        page.empty();
        page.paragraph(2, paragraph);
    }
    workload(page, finding);
    steps(page, finding);
    writes(page, finding);
    trees(page, finding);
    differences(page, finding);
    page.empty();
    page.line("  replay");
    // Not wrapped: it is there to be copied.
    page.line(&format!("    {}", finding.replay));
    if !finding.directory.is_empty() {
        page.line(&format!("  recorded in {}", finding.directory));
    }
}

fn workload(page: &mut Page, finding: &FindingPage) {
    if finding.ops.is_empty() {
        return;
    }
    page.empty();
    page.line("  workload");
    // The end matters: the power fails there, or the answer is wrong.
    let hidden = finding.ops.len().saturating_sub(LINES_MAX);
    if hidden > 0 {
        page.line(&format!("       … {} before", counted(hidden as u64, "operation")));
    }
    for (index, op) in finding.ops.iter().enumerate().skip(hidden) {
        // The marks are two columns wide.
        let mark = match index == finding.in_flight {
            true if finding.cut.is_empty() => "✗ ",
            true => "⚡",
            false => "  ",
        };
        page.hanging(&format!("  {mark}{:>3}  ", index + 1), op);
        if index == finding.in_flight && !finding.cut.is_empty() {
            page.hanging("         the power fails ", &finding.cut);
        }
    }
    if finding.in_flight >= finding.ops.len() && !finding.cut.is_empty() {
        page.hanging("  ⚡     the power fails ", &finding.cut);
    }
}

fn steps(page: &mut Page, finding: &FindingPage) {
    if finding.steps.is_empty() {
        return;
    }
    page.empty();
    page.line("  what happens");
    for (index, step) in finding.steps.iter().enumerate() {
        let what = if step.what.is_empty() { "⚡" } else { &step.what };
        page.hanging(&format!("  {:>3}. ", index + 1), what);
        if !step.writes.is_empty() {
            page.hanging("       writes ", &commands(&step.writes));
        }
        if !step.crash.is_empty() {
            page.hanging("       ⚡ the power fails ", &step.crash);
            if !step.recovery.is_empty() {
                page.hanging("       recovery writes ", &commands(&step.recovery));
            }
            page.hanging("       after recovery: ", &step.recovered);
        }
    }
    if !finding.blocks.is_empty() {
        page.empty();
        page.line("  the blocks");
    }
    for block in finding.blocks.iter().take(LINES_MAX) {
        page.hanging(&format!("  {:>5}  ", block.number), &block.label);
        page.hanging("         before     ", &block.before);
        if block.left != block.before {
            page.hanging("         left       ", &block.left);
        }
        if block.after != block.left {
            page.hanging("         recovered  ", &block.after);
        }
    }
    page.more(finding.blocks.len().saturating_sub(LINES_MAX));
}

/// The numbers of the blocks; what is lost is marked.
fn commands(commands: &[Command]) -> String {
    let text = |command: &Command| match command {
        Command::Written(block) => block.to_string(),
        Command::Lost(block) => format!("{block}✗"),
        Command::Flush => "FLUSH".to_owned(),
    };
    commands.iter().map(text).collect::<Vec<_>>().join(" ")
}

fn plots(page: &mut Page, run: &Run) {
    for plot in &run.plots {
        page.empty();
        page.hanging("  ", &format!("{}: {}", plot.title, plot.about));
        let values = plot.series.iter().flat_map(|series| &series.points).map(|(_, value)| *value);
        let max = values.max().unwrap_or(0).max(1);
        for series in &plot.series {
            page.line(&format!("  {} by {}", series.name, plot.x));
            for (x, value) in &series.points {
                let share = match plot.logarithmic {
                    true => ((*value).max(1) as f64).log10() / (max as f64).log10().max(1e-9),
                    false => *value as f64 / max as f64,
                };
                let bar = "█".repeat((share * BAR_WIDTH as f64).round() as usize);
                let digits = grouped(max).len();
                page.line(&format!("  {x:>4}  {:>digits$}  {bar}", grouped(*value)));
            }
        }
    }
}

fn writes(page: &mut Page, finding: &FindingPage) {
    if finding.writes.is_empty() {
        return;
    }
    page.empty();
    page.line("  what the device saw of it");
    let all = finding.writes.len();
    let cut = finding.writes.iter().rposition(|write| write.arrived).map_or(0, |last| last + 1);
    // Of many, those around the cut.
    let first = cut.saturating_sub(LINES_MAX / 2).min(all.saturating_sub(LINES_MAX));
    let end = (first + LINES_MAX).min(all);
    if first > 0 {
        page.line(&format!("       … {} before", counted(first as u64, "write")));
    }
    for index in first..=end {
        if index == cut {
            page.line("  ⚡ ── the power fails");
        }
        if let Some(write) = finding.writes.get(index).filter(|_| index < end) {
            let mark = if write.arrived { "✓" } else { "✗" };
            page.hanging(&format!("  {mark} {:>3}  ", index + 1), &write.text);
        }
    }
    page.more(all - end);
}

fn trees(page: &mut Page, finding: &FindingPage) {
    let Some(comparison) = compare(finding) else { return };
    page.empty();
    let columns = comparison.main_columns();
    let folded = comparison.rows.len() > LINES_MAX;
    let shown = comparison.rows_in(&columns, folded);
    // What the columns and the longest mark leave.
    let room = WIDTH - 2 - columns.len() * 12 - "  ◄ unexpected".chars().count();
    let paths = shown.iter().map(|row| row.path.chars().count()).max().unwrap_or(0).clamp(4, room);
    let mut head = format!("  {:paths$}", "path");
    for &column in &columns {
        head.push_str(&format!("  {:>10}", comparison.columns[column].title.to_lowercase()));
    }
    page.line(&head);
    for row in shown.iter().take(LINES_MAX) {
        page.line(&tree_row(row, paths, &columns, &comparison));
    }
    page.more(shown.len().saturating_sub(LINES_MAX));
    if folded {
        let same = comparison.rows.iter().filter(|row| row.same_everywhere()).count();
        page.line(&format!("  … {same} entries are the same in all trees"));
    }
    page.hanging("  ", &legend(&comparison, &columns));
    for row in shown.iter().take(LINES_MAX) {
        let versions = versions(row);
        for (letter, text) in versions.iter().filter(|_| versions.len() > 1) {
            page.hanging(&format!("  {} {letter}: ", middle_cut(row.path, paths)), text);
        }
    }
}

fn tree_row(row: &Row<'_>, paths: usize, columns: &[usize], comparison: &Comparison<'_>) -> String {
    let versions = versions(row);
    let letter =
        |text: &str| versions.iter().find(|(_, known)| *known == text).map(|(sign, _)| *sign);
    let mut line = format!("  {:paths$}", middle_cut(row.path, paths));
    let found = row.cells.len() - 1;
    for &column in columns {
        let sign = match row.cells[column] {
            _ if column == found && !comparison.has_found => '?',
            None => '·',
            Some(_) if versions.len() == 1 => '●',
            // More versions than letters have never been seen.
            Some(text) => letter(text).unwrap_or('*'),
        };
        line.push_str(&format!("  {sign:>10}"));
    }
    if let Some(wrong) = row.wrong {
        line.push_str(&format!("  ◄ {}", wrong.word()));
    }
    line
}

/// The different things at one path, named by letters.
fn versions<'a>(row: &Row<'a>) -> Vec<(char, &'a str)> {
    let mut texts: Vec<&str> = Vec::new();
    for text in row.cells.iter().flatten() {
        if !texts.contains(text) {
            texts.push(text);
        }
    }
    ('A'..='Z').zip(texts).collect()
}

fn legend(comparison: &Comparison<'_>, columns: &[usize]) -> String {
    let mut text = "● there, · not there".to_owned();
    if !comparison.has_found {
        text.push_str(", ? could not be looked at");
    }
    if let Some(nearest) = comparison.nearest {
        let title = comparison.columns[nearest].title.to_lowercase();
        text.push_str(&format!("; ◄ compared with {title:?}"));
    }
    if comparison.columns[0].legal {
        text.push_str("; \"before\" is legal too");
    }
    match comparison.columns.len() - columns.len() {
        0 => {}
        more => text.push_str(&format!("; {} not shown", counted(more as u64, "more legal tree"))),
    }
    text
}

fn differences(page: &mut Page, finding: &FindingPage) {
    if finding.differences.is_empty() {
        return;
    }
    page.empty();
    for difference in finding.differences.iter().take(LINES_MAX) {
        page.hanging("  - ", difference);
    }
    page.more(finding.differences.len().saturating_sub(LINES_MAX));
}

/// Lines of text.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn empty(&mut self) {
        self.line("");
    }

    fn paragraph(&mut self, indent: usize, text: &str) {
        self.hanging(&" ".repeat(indent), text);
    }

    /// A text behind a label; its further lines begin below its first.
    fn hanging(&mut self, label: &str, text: &str) {
        let indent = label.chars().count();
        let lines = wrapped(text, WIDTH.saturating_sub(indent).max(20));
        for (index, line) in lines.iter().enumerate() {
            match index {
                0 => self.line(&format!("{label}{line}")),
                _ => self.line(&format!("{:indent$}{line}", "")),
            }
        }
        if lines.is_empty() {
            self.line(label);
        }
    }

    /// Says how much of a list was left out.
    fn more(&mut self, number: usize) {
        if number > 0 {
            self.line(&format!("       … and {} more", grouped(number as u64)));
        }
    }

    fn rule(&mut self, title: &str) {
        self.empty();
        let dashes = WIDTH.saturating_sub(title.chars().count() + 4);
        self.line(&format!("── {title} {}", "─".repeat(dashes)));
        self.empty();
    }

    fn finish(self) -> String {
        self.text
    }
}
