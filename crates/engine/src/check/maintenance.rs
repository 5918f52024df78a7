//! What is done between operations: unmounting and mounting, the file system's checker.

use super::explore::{Exploration, REMOUNT_EVERY, Remounts, Strategy};
use fathom_generate::choice::Choices;

/// Maintenance to do before the next operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Maintenance {
    /// Unmount and mount.
    pub(super) remount: bool,
    /// And let the checker look in between.
    pub(super) fsck: bool,
}

/// Schedules remounts and runs of the checker between operations.
#[derive(Clone, Debug)]
pub(super) struct MaintenanceSchedule {
    remounts: Remounts,
    /// Whether somebody asked for these remounts.
    asked: bool,
    fsck_every: Option<u64>,
    choices: Choices,
    since_remount: u64,
    since_fsck: u64,
}

impl MaintenanceSchedule {
    /// `possible`: every participant can be remounted.
    pub(super) fn new(explore: &Exploration, possible: bool, seed: u64) -> MaintenanceSchedule {
        let default = match explore.strategy {
            Strategy::Walk => Remounts::Never,
            Strategy::Tour | Strategy::Dfs => Remounts::Every(REMOUNT_EVERY),
        };
        let remounts = explore.remounts.unwrap_or(default);
        MaintenanceSchedule {
            remounts: if possible { remounts } else { Remounts::Never },
            asked: explore.remounts.is_some(),
            fsck_every: explore.fsck_every.filter(|_| possible),
            choices: Choices::new(seed),
            since_remount: 0,
            since_fsck: 0,
        }
    }

    /// Returns the maintenance that is due after `ops` more operations, which complete a meta-operation. A remount
    /// compares the whole tree, so those that nobody asked for are at least `apart` operations apart.
    pub(super) fn after(&mut self, ops: u64, apart: u64) -> Maintenance {
        self.since_remount += ops;
        self.since_fsck += ops;
        let fsck = self.fsck_every.is_some_and(|every| self.since_fsck >= every);
        let remount = fsck
            || match self.remounts {
                Remounts::Never => false,
                Remounts::Every(every) => {
                    let apart = if self.asked { 0 } else { apart };
                    self.since_remount >= every.max(apart)
                }
                Remounts::EveryOp => true,
                Remounts::Chance(chance) => {
                    (self.choices.below(1 << 32) as f64) < chance * 2f64.powi(32)
                }
            };
        if fsck {
            self.since_fsck = 0;
        }
        if remount {
            self.since_remount = 0;
        }
        Maintenance { remount, fsck }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(remounts: Remounts, fsck_every: Option<u64>, possible: bool) -> (u32, u32) {
        let explore =
            Exploration { remounts: Some(remounts), fsck_every, ..Exploration::default() };
        let mut maintenance = MaintenanceSchedule::new(&explore, possible, 1);
        let mut counts = (0, 0);
        for _ in 0..1000 {
            let due = maintenance.after(2, 0);
            counts.0 += u32::from(due.remount);
            counts.1 += u32::from(due.fsck);
        }
        counts
    }

    #[test]
    fn remounts_and_checks_come_when_they_should() {
        assert_eq!(count(Remounts::Never, None, true), (0, 0));
        assert_eq!(count(Remounts::EveryOp, None, true), (1000, 0));
        assert_eq!(count(Remounts::Every(10), None, true), (200, 0));
        assert_eq!(count(Remounts::Never, Some(100), true), (20, 20));
        assert_eq!(count(Remounts::EveryOp, Some(1), false), (0, 0), "where it is not possible");
        let (by_chance, _) = count(Remounts::Chance(0.1), None, true);
        assert!((70..130).contains(&by_chance), "{by_chance}");
    }

    #[test]
    fn remounts_that_nobody_asked_for_are_rare_where_trees_are_large() {
        let remounts = |asked: Option<Remounts>, apart: u64| {
            let explore = Exploration { remounts: asked, ..Exploration::default() };
            let mut maintenance = MaintenanceSchedule::new(&explore, true, 1);
            (0..100).filter(|_| maintenance.after(REMOUNT_EVERY, apart).remount).count()
        };
        assert_eq!(remounts(None, 0), 100);
        assert_eq!(remounts(None, 20 * REMOUNT_EVERY), 5);
        let asked = Some(Remounts::Every(REMOUNT_EVERY));
        assert_eq!(remounts(asked, 20 * REMOUNT_EVERY), 100);
    }
}
