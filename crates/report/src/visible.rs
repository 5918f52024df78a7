//! Names of files are chosen by the file system under test, and by whoever attacks it: nothing in
//! them may move the cursor of a terminal or turn the direction of a line.

use fathom_record::swarm::SwarmStatus;

use crate::run::{
    BlockLine, ClaimLine, Count, FindingPage, KnownSeen, Plot, Promise, Run, Series, StepLine,
    TreeLine, WriteLine,
};

/// The run with every invisible character written out.
pub(crate) fn run(run: &Run) -> Run {
    let mut run = run.clone();
    // Taken apart field by field, so that a new field cannot be forgotten here.
    let Run {
        format: _,
        kind: _,
        command,
        seed: _,
        complete: _,
        subject,
        version,
        geometry,
        guarantee,
        program,
        seconds: _,
        stop,
        threads: _,
        counts,
        by_depth: _,
        samples: _,
        goals_missed,
        notes,
        findings,
        known,
        no_longer_seen,
        plots,
    } = &mut run;
    for text in [command, subject, version, geometry, program, stop] {
        show(text);
    }
    for Promise { what, is, cite } in guarantee {
        [what, is, cite].into_iter().for_each(show);
    }
    for Count { name, value: _, about } in counts {
        [name, about].into_iter().for_each(show);
    }
    goals_missed.iter_mut().chain(notes).chain(no_longer_seen).for_each(show);
    for KnownSeen { signature, because, sightings: _ } in known {
        [signature, because].into_iter().for_each(show);
    }
    findings.iter_mut().for_each(show_finding);
    for Plot { title, about, x, y, logarithmic: _, series } in plots {
        [title, about, x, y].into_iter().for_each(show);
        series.iter_mut().for_each(|Series { name, points: _ }| show(name));
    }
    run
}

/// The finding with every invisible character written out.
pub(crate) fn finding(finding: &FindingPage) -> FindingPage {
    let mut finding = finding.clone();
    show_finding(&mut finding);
    finding
}

fn show_finding(finding: &mut FindingPage) {
    let FindingPage {
        id,
        class,
        title,
        count: _,
        complete: _,
        variants,
        levels,
        ops,
        in_flight: _,
        cut,
        writes,
        before,
        promised,
        found,
        repaired,
        differences,
        claims,
        replay,
        directory,
        story,
        steps,
        blocks,
    } = finding;
    for text in [id, class, title, cut, replay, directory] {
        show(text);
    }
    levels.iter_mut().chain(variants).chain(ops).chain(differences).for_each(show);
    for WriteLine { index: _, text, arrived: _ } in writes {
        show(text);
    }
    for ClaimLine { what, expected, found } in claims {
        [what, expected, found].into_iter().for_each(show);
    }
    let trees = promised.iter_mut().flatten().chain(before).chain(found).chain(repaired);
    for TreeLine { path, text } in trees {
        [path, text].into_iter().for_each(show);
    }
    for StepLine { what, writes: _, crash, recovery: _, recovered } in steps {
        [what, crash, recovered].into_iter().for_each(show);
    }
    for BlockLine { number: _, label, before, left, after } in blocks {
        [label, before, left, after].into_iter().for_each(show);
    }
    // Only a story has lines.
    *story = story.split('\n').map(shown).collect::<Vec<_>>().join("\n");
}

/// A swarm whose texts can be seen: some come from machines that nobody vouches for.
pub(crate) fn swarm(status: &SwarmStatus) -> SwarmStatus {
    let mut status = SwarmStatus { run: run(&status.run), ..status.clone() };
    for task in &mut status.tasks {
        [&mut task.command, &mut task.node, &mut task.remark].into_iter().for_each(show);
    }
    status
}

fn show(text: &mut String) {
    if text.contains(invisible) {
        *text = shown(text);
    }
}

fn shown(text: &str) -> String {
    let show = |c: char| if invisible(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(show).collect()
}

/// Control characters, line separators, and the marks that change the direction of text
/// (Unicode Standard Annex 9, section 2).
fn invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{61c}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_invisible_remains_and_nothing_else_changes() {
        assert_eq!(shown("a\x1b[2Jb\nc\u{202e}d\0"), "a\\u{1b}[2Jb\\nc\\u{202e}d\\u{0}");
        let readable = "src/ä 文 <script> 'x' \\";
        assert_eq!(shown(readable), readable);
    }
}
