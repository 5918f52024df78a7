//! Progress on the standard error, for people.

use std::ops::ControlFlow;
use std::time::Duration;

use fathom_engine::crash::Cause;
use fathom_engine::crash::run::{CrashObserver, Sample};
use indicatif::{ProgressBar, ProgressStyle};

use crate::text::grouped;

/// A line that tells where the check is.
pub(super) struct Bar {
    bar: ProgressBar,
    time_max: Option<Duration>,
}

impl Bar {
    pub(super) fn new(time_max: Option<Duration>, quiet: bool) -> Bar {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("constant"));
        Bar { bar, time_max }
    }
}

impl CrashObserver for Bar {
    fn progress(&mut self, sample: &Sample) -> ControlFlow<()> {
        let seconds = sample.elapsed.as_secs_f64().max(1e-3);
        let left = self.time_max.map_or_else(String::new, |max| {
            format!(", {:.0} s left", max.saturating_sub(sample.elapsed).as_secs_f64())
        });
        self.bar.set_message(format!(
            "workloads of {} steps: {} states, {} waiting, {} crash images ({}/s), {} causes{left}",
            sample.depth,
            grouped(sample.states),
            grouped(sample.open),
            grouped(sample.crash_images),
            grouped((sample.crash_images as f64 / seconds) as u64),
            sample.findings,
        ));
        self.bar.tick();
        ControlFlow::Continue(())
    }

    fn investigating(&mut self, cause: &Cause) {
        self.bar.set_message(format!("{cause}: playing it again, then shrinking"));
        self.bar.tick();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
