//! A random walk of single calls, from an empty file system again and again.

use fathom_core::HarnessFault;

use super::{Campaign, StepResult};
use fathom_generate::choice::Choices;

impl Campaign<'_, '_> {
    pub(super) fn walk(&mut self) -> Result<(), HarnessFault> {
        while !self.over {
            self.episode()?;
        }
        Ok(())
    }

    /// Runs from an empty file system to the first violation or the end of the episode. Its stream
    /// of choices is its own, so that it can be repeated alone. The next one starts with empty file
    /// systems, whatever state this one leaves behind.
    fn episode(&mut self) -> Result<(), HarnessFault> {
        self.generator.restart(Choices::of_episode(self.plan.seed, self.stats.episodes));
        self.restart()?;
        for _ in 0..self.config.check.episode_ops {
            if self.is_over() {
                break;
            }
            let op = self.generator.next(self.lineup.model());
            if let Some(accusation) = self.act(&op)? {
                let _ = self.look_closer(accusation)?;
                return Ok(());
            }
            if self.maintain(1)? == StepResult::Diverged {
                return Ok(());
            }
        }
        let _ = self.last_look()?;
        Ok(())
    }
}
