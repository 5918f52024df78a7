//! Several callers at once: every race of the reference is found, the reference itself is never accused.

use std::time::Duration;

use fathom_engine::Silent;
use fathom_engine::callers::again::repeat;
use fathom_engine::callers::finding::{StoredRound, Wrong};
use fathom_engine::callers::{CallersPlan, check_callers};
use fathom_model::{Config, ModelSubject, Race};

fn plan(seed: u64, seconds: u64) -> CallersPlan {
    let mut plan = CallersPlan::new(seed, 4, Config::default());
    plan.budget = Some(Duration::from_secs(seconds));
    plan.shrink = Duration::from_secs(4);
    plan
}

#[test]
fn the_reference_is_never_accused() {
    let mut subject = ModelSubject::new(Config::default()).unwrap();
    let mut plan = plan(1, 600);
    plan.calls_max = Some(6_000);
    let report = check_callers(&mut subject, &plan, &mut Silent).unwrap();
    let stories: Vec<String> = report.findings.iter().map(|finding| finding.story()).collect();
    assert!(stories.is_empty(), "{}", stories.join("\n"));
    assert_eq!(report.unknown, 0);
    assert!(report.rounds > 20 && report.overlaps > 0, "{report:?}");
}

#[test]
fn every_race_is_found_drawn_and_shown_again() {
    for race in Race::ALL {
        let config = Config { race: Some(*race), ..Config::default() };
        let mut subject = ModelSubject::new(config).unwrap();
        let mut plan = plan(1, 60);
        plan.findings_max = 1;
        let report = check_callers(&mut subject, &plan, &mut Silent).unwrap();
        let [finding] = &report.findings[..] else { panic!("{} was not found", race.name()) };
        assert!(matches!(finding.wrong, Wrong::NoOrder(_)), "{}", finding.story());
        assert!(finding.complete && finding.runs > 0);
        assert!(finding.round.schedule.len() <= finding.calls_first);
        let story = finding.story();
        assert!(story.contains("caller ") && story.contains("┌"), "{story}");
        let out = tempfile::tempdir().unwrap();
        let dir = finding.record().write(out.path()).unwrap();
        let stored = StoredRound::read(&dir).unwrap();
        assert!(StoredRound::is_in(&dir) && stored.round == finding.round);
        let again = repeat(&mut subject, &stored, 400, Duration::from_secs(10)).unwrap();
        assert!(again.shown > 0, "{} was not shown again in {} runs", race.name(), again.runs);
    }
}
