//! What people see: the text, and that the page is well-formed, self-contained and safe.

use fathom_report::{Run, html, text};

use crate::checker::check_page;
use crate::golden::assert_golden;
use crate::runs::{clean, design, extreme, littlefs, samples};

#[test]
fn the_text_of_a_run_with_a_finding() {
    assert_golden("littlefs.txt", &text::run(&littlefs()));
}

#[test]
fn the_text_of_a_clean_run() {
    assert_golden("clean.txt", &text::run(&clean()));
}

#[test]
fn the_text_of_a_counterexample_and_a_curve() {
    assert_golden("design.txt", &text::run(&design()));
}

#[test]
fn a_counterexample_can_be_followed_on_the_page() {
    let (run, page) = (design(), html::page(&design()));
    let finding = &run.findings[0];
    for step in &finding.steps {
        for text in [&step.what, &step.crash, &step.recovered] {
            assert!(page.contains(text), "{text}");
        }
    }
    for block in &finding.blocks {
        for text in [&block.label, &block.before, &block.left, &block.after] {
            assert!(page.contains(text), "{text}");
        }
    }
    // One list of chips and a drawing for a desk and for a phone: of five commands one is a flush.
    assert_eq!(page.matches("class=\"chip lost\"").count(), 2);
    assert_eq!(page.matches("class=\"chip flush\"").count(), 2);
    // Blocks 1 (written), 2 (lost) and 42 (recovery); 3 and 4 are not among the blocks shown.
    assert_eq!(page.matches("<g class=\"arrived\">").count(), 4);
    assert_eq!(page.matches("<g class=\"lost\">").count(), 2);
    assert_eq!(page.matches("<polyline class=\"line images\"").count(), 2);
}

#[test]
fn the_text_keeps_to_its_width_and_shows_what_is_invisible() {
    let text = text::run(&extreme());
    assert!(!text.contains(['\x1b', '\u{202e}']), "control characters reach the terminal");
    assert!(text.contains("\\u{1b}[2J"));
    // The replay line is there to be copied, so it is never broken.
    let wide = |line: &&str| line.chars().count() > 80 && !line.contains("fathom-out/");
    assert_eq!(text.lines().find(wide), None);
}

#[test]
fn pages_are_well_formed_and_self_contained() {
    for run in [littlefs(), clean(), extreme(), design()] {
        let page = html::page(&run);
        check_page(&page).unwrap_or_else(|problem| panic!("{problem}"));
    }
}

#[test]
fn what_a_file_system_names_its_files_is_never_markup() {
    let page = html::page(&extreme());
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;"));
    assert_eq!(page.matches("<script>").count(), 1, "only the copy buttons have one");
    assert!(!page.contains("alert(1)</script>"));
    assert!(!page.contains(['\x1b', '\u{202e}']));
}

#[test]
fn everything_of_a_finding_is_on_the_page() {
    let (run, page) = (littlefs(), html::page(&littlefs()));
    let finding = &run.findings[0];
    let texts = [&finding.title, &finding.cut, &finding.replay, &finding.directory, &run.version];
    for text in texts.into_iter().chain(&finding.ops).chain(&finding.differences) {
        assert!(page.contains(text), "{text}");
    }
    for cite in run.guarantee.iter().map(|promise| &promise.cite) {
        assert!(page.contains(cite), "{cite}");
    }
    assert_eq!(page.matches("class=\"entry bad gone\"").count(), 1, "one entry is missing");
}

#[test]
fn a_clean_run_accuses_nobody() {
    let page = html::page(&clean());
    assert!(page.contains("kept its promises in all 248,926 crash images"));
    for sign in ["class=\"bolt\"", "badge bad", "class=\"card finding\""] {
        assert!(!page.contains(sign), "{sign}");
    }
}

#[test]
fn charts_are_drawn_for_one_sample_and_bounded_for_many() {
    let page = |n: usize| html::page(&Run { samples: samples(n), ..littlefs() });
    assert!(page(1).contains("<circle class=\"dot images\""));
    assert!(page(0).contains("States by depth") && !page(0).contains("Exploration over time"));
    let (few, many) = (page(1_000).len(), page(100_000).len());
    assert!(
        many < few + 2_000,
        "{few} bytes for a thousand samples, {many} for a hundred thousand"
    );
}
