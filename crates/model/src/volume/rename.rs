//! The operation `rename`, with the flags of `renameat2(2)`.

use fathom_core::flags::RenameFlags;
use fathom_core::{Errno, Mode, Stamp};

use super::inode::{Inode, Xattrs};
use super::name::ShortName;
use super::state::{State, check_name};
use super::{Identity, Ino, NewNode, Volume};
use crate::mutant::Mutant;

/// A rename whose names were looked up.
struct Rename {
    from_dir: Ino,
    from: ShortName,
    to_dir: Ino,
    to: ShortName,
    /// The inode that moves.
    source: Ino,
    /// The inode that has the new name so far.
    target: Option<Ino>,
    source_is_dir: bool,
    target_is_dir: bool,
    now: Stamp,
}

impl Volume {
    /// Gives the entry `from` of `from_dir` the name `to` in `to_dir`. Two names of one inode stay
    /// as they are. The checks are in the order of `do_renameat2` and `vfs_rename` (`fs/namei.c`).
    ///
    /// # Errors
    /// `EINVAL` (flags, or into its own subtree), `ENOENT`, `EEXIST`, `ENOTEMPTY`, `ENOTDIR`,
    /// `EISDIR`, `EMLINK`, `ENOSPC` (for a whiteout), `ENAMETOOLONG`.
    pub fn rename(
        &mut self,
        caller: &Identity,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        check_flags(flags)?;
        let state = &*self.state;
        state.check_rename_features(flags)?;
        let source = state.child(from_dir, from)?;
        check_name(to)?;
        let target = state.living_dir(to_dir)?.get(to).map(|link| link.ino);
        let mut exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        if target.is_some() && flags.contains(RenameFlags::RENAME_NOREPLACE) {
            return Err(Errno::EEXIST);
        }
        if target.is_none() && exchange {
            return Err(Errno::ENOENT);
        }
        let step = Rename {
            from_dir,
            from: from.into(),
            to_dir,
            to: to.into(),
            source,
            target,
            source_is_dir: state.get(source)?.is_dir(),
            target_is_dir: target.is_some_and(|ino| state.dir(ino).is_ok()),
            now: Stamp::Tick(state.clock + 1),
        };
        step.check_loops(state, exchange)?;
        if target == Some(source) {
            return Ok(());
        }
        exchange &= !state.mutant(Mutant::ExchangeOverwrites);
        if exchange {
            step.check_links(state, true)?;
            step.exchange(self.edit().0);
            return Ok(());
        }
        if let Err(errno) = step.check_target(state) {
            if state.mutant(Mutant::RenameLosesTarget) && errno == Errno::ENOTEMPTY {
                self.lose_a_file_in(target);
            }
            return Err(errno);
        }
        step.check_links(state, false)?;
        let mut whiteout = None;
        if flags.contains(RenameFlags::RENAME_WHITEOUT) {
            let target_owns = self.config().quirks.whiteout_group_of_target;
            let owner = if target_owns { to_dir } else { from_dir };
            whiteout = Some(self.prepare(caller, owner, NewNode::Char(0, 0), Mode(0))?);
        }
        let target_pinned = target.is_some_and(|ino| self.is_pinned(ino));
        step.replace(self.edit().0, whiteout, target_pinned);
        Ok(())
    }

    /// Loses a file, for [`Mutant::RenameLosesTarget`].
    fn lose_a_file_in(&mut self, dir: Option<Ino>) {
        let Some((dir, links)) = dir.and_then(|ino| Some((ino, self.state.dir(ino).ok()?.links())))
        else {
            return;
        };
        let names: Vec<ShortName> = links.map(|link| link.name.clone()).collect();
        let _ = names.iter().any(|name| self.unlink(dir, name.as_bytes()).is_ok());
    }
}

fn check_flags(flags: RenameFlags) -> Result<(), Errno> {
    let known =
        RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_WHITEOUT;
    let alone = RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_WHITEOUT;
    let both = flags.contains(RenameFlags::RENAME_EXCHANGE) && flags.intersects(alone);
    if flags.bits() & !known.bits() != 0 || both { Err(Errno::EINVAL) } else { Ok(()) }
}

impl Rename {
    /// Checks that no directory comes to lie inside itself.
    fn check_loops(&self, state: &State, exchange: bool) -> Result<(), Errno> {
        if self.source_is_dir && state.is_inside(self.to_dir, self.source) {
            return Err(Errno::EINVAL);
        }
        match self.target {
            Some(target) if self.target_is_dir && state.is_inside(self.from_dir, target) => {
                Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the target can be replaced by the source.
    fn check_target(&self, state: &State) -> Result<(), Errno> {
        let Some(target) = self.target else { return Ok(()) };
        match (self.source_is_dir, self.target_is_dir) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            (true, true) if !state.dir(target)?.is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Checks that the directories can take the links of moved subdirectories.
    fn check_links(&self, state: &State, exchange: bool) -> Result<(), Errno> {
        if self.from_dir == self.to_dir || state.config.quirks.dir_nlink_one {
            return Ok(());
        }
        let full = |dir: Ino| Ok(state.get(dir)?.nlink >= state.config.quirks.link_max);
        let to_gains = self.source_is_dir && !self.target_is_dir;
        let from_gains = exchange && self.target_is_dir && !self.source_is_dir;
        if to_gains && full(self.to_dir)? || from_gains && full(self.from_dir)? {
            return Err(Errno::EMLINK);
        }
        Ok(())
    }

    fn replace(self, state: &mut State, whiteout: Option<Inode>, target_pinned: bool) {
        let now = self.now;
        state.remember_rename(&self.from, self.from_dir, &self.to, self.to_dir, self.source);
        if let Some(target) = self.target {
            let nlink = state.get(target).map_or(0, |inode| inode.nlink);
            state.lose_name(target, self.to_dir, self.to.as_bytes(), now, target_pinned);
            // A count that was wrong before does not keep the inode alive: its last name may be gone.
            let lives = nlink > 1 && !self.target_is_dir && state.get(target).is_ok();
            if state.mutant(Mutant::RenameNlink) && lives {
                state.update(target, |inode| inode.nlink = nlink);
            }
        }
        state.remove_link(self.from_dir, self.from.as_bytes(), now);
        state.set_link(self.to_dir, &self.to, self.source, now);
        if self.source_is_dir {
            state.add_subdirs(self.from_dir, -1);
            if !state.mutant(Mutant::RenameDirNlink) || self.from_dir == self.to_dir {
                state.add_subdirs(self.to_dir, 1);
            }
        }
        if self.target_is_dir {
            state.add_subdirs(self.to_dir, -1);
        }
        let from = (self.from_dir, self.from.as_bytes());
        state.move_name(self.source, from, (self.to_dir, &self.to), now);
        if state.mutant(Mutant::XattrLostOnRename) {
            state.update(self.source, |inode| inode.xattrs = Xattrs::default());
        }
        if let Some(whiteout) = whiteout
            && !state.mutant(Mutant::WhiteoutMissing)
        {
            state.graft(whiteout, self.from_dir, self.from, now);
        }
    }

    fn exchange(self, state: &mut State) {
        let target = self.target.expect("an exchange has a target");
        state.set_link(self.from_dir, &self.from, target, self.now);
        state.set_link(self.to_dir, &self.to, self.source, self.now);
        if self.from_dir != self.to_dir {
            let gained = i32::from(self.source_is_dir) - i32::from(self.target_is_dir);
            state.add_subdirs(self.to_dir, gained);
            state.add_subdirs(self.from_dir, -gained);
        }
        let (from, to) = ((self.from_dir, &self.from), (self.to_dir, &self.to));
        state.move_name(self.source, (from.0, from.1.as_bytes()), to, self.now);
        state.move_name(target, (to.0, to.1.as_bytes()), from, self.now);
    }
}
