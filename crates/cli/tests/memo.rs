//! What the memo of a crash check answers is what an examination finds: on littlefs a sample of the
//! answers is examined after all, and the whole check is compared with one without a memo.

use fathom_block::disks::{Memo, MemoCounts};
use fathom_engine::crash::{CrashConfig, CrashSystem};
use fathom_engine::search::{Discovery, Observer, Plan, Progress, Strategy, search};
use fathom_subjects::library;

struct Nobody;

impl Observer for Nobody {
    fn progress(&mut self, _: &Progress) -> std::ops::ControlFlow<()> {
        std::ops::ControlFlow::Continue(())
    }

    fn discovery(&mut self, _: &Discovery) {}
}

/// States, images, what was found, and how the memo was used.
fn check(config: &CrashConfig, memo: Memo) -> (u64, u64, Vec<String>, MemoCounts) {
    let known = library::all().into_iter().find(|known| known.name == "littlefs");
    let subject = known.expect("it is known").open(None).expect("it is built in");
    let mut system = CrashSystem::new(&*subject, config).expect("it can be formatted");
    system.memo = memo;
    let plan = Plan { threads: 1, depth_max: Some(config.depth), ..Plan::default() };
    let report = search(&system, &Strategy::Bfs, &plan, &mut Nobody).expect("it runs");
    let found = system.found().into_iter();
    let found =
        found.map(|(cause, images, script)| format!("{cause}: {images} images, {script:?}"));
    (report.states, system.images(), found.collect(), system.memo.counts())
}

#[test]
fn a_sample_of_the_answers_is_examined_again_and_all_of_them_are_right() {
    for (depth, probe, every) in [(3, false, 1), (3, true, 16)] {
        let config = CrashConfig { depth, probe, fsck: false, ..CrashConfig::default() };
        let with = check(&config, Memo::default().verified_every(every));
        let without = check(&config, Memo::default().disabled());
        assert_eq!((with.0, with.1, &with.2), (without.0, without.1, &without.2));
        let MemoCounts { examined, answered, verified, refuted } = with.3;
        assert_eq!((examined + answered, refuted), (with.1, 0));
        // Of the looks at interrupted recoveries some are verified, too.
        assert!(answered > examined && verified > answered / every, "{:?}", with.3);
    }
}
