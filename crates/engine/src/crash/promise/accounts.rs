//! Allocated blocks and modification times, where the profile says that they are durable.
//!
//! The reference allocates nothing and has a clock of its own: what was durable is what the file system
//! itself said of the file when the call had returned ([`Accounts`]). It is demanded as long as nothing
//! has touched the file since; what a later change leaves of it is not said.

use std::collections::BTreeSet;
use std::sync::Arc;

use fathom_block::backed::{Claim, Makes, promised};
use fathom_block::disks::{Account, Accounts};
use fathom_core::{FsPath, Kind, Op, Stamp};
use fathom_model::Ino;

use super::history::{History, Moment};
use super::rules::{BrokenRule, Rule};

/// What a call must make durable so that blocks and times are, as the profile says it.
#[derive(Clone, Debug)]
pub(super) struct AccountClaims {
    pub(super) blocks: Option<Claim<Makes>>,
    pub(super) mtime: Option<Claim<Makes>>,
}

/// The call that has made something of a file durable last.
#[derive(Clone, Copy, Debug)]
struct Noted {
    /// The number of operations before it since the mount.
    op: usize,
    /// The moment after it.
    moment: usize,
}

/// What is durable of the accounts of one file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DurableAccount {
    blocks: Option<Noted>,
    mtime: Option<Noted>,
}

impl History {
    /// Notes that the newest operation has made accounts durable: of one file, or of all.
    pub(super) fn note_accounts(&mut self, op: &Op, ino: Option<Ino>, makes: Makes) {
        if matches!(op, Op::Remount) {
            // What was said before is in the recording of another mount.
            self.accounts.clear();
            self.ops_mounted = 0;
            return;
        }
        let includes = |claim: &Option<Claim<Makes>>| {
            let least = promised(claim);
            least != Makes::Nothing && makes >= least
        };
        let (blocks, mtime) =
            (includes(&self.account_claims.blocks), includes(&self.account_claims.mtime));
        let noted = Noted { op: self.ops_mounted - 1, moment: self.last() };
        let newest = Arc::clone(&self.moments[self.last()]);
        let files = newest.objects.iter().filter(|(_, entry)| entry.kind == Kind::File);
        for (file, _) in files.filter(|(file, _)| ino.is_none_or(|ino| ino == **file)) {
            let account = self.accounts.entry(*file).or_default();
            account.blocks = if blocks { Some(noted) } else { account.blocks };
            account.mtime = if mtime { Some(noted) } else { account.mtime };
        }
    }

    /// A file of which something was lost that the trees do not show. `noted` is what was said of files
    /// after each operation since the mount, `found` what is said of them after the power failure.
    pub(super) fn lost_account(&self, found: &Accounts, noted: &[Accounts]) -> Option<BrokenRule> {
        found.iter().find_map(|(path, account)| {
            let ino = self.only_object(path)?;
            let durable = self.accounts.get(&ino)?;
            let said = |noted_at: &Noted| {
                let moment = &self.moments[noted_at.moment];
                let mut paths = moment.paths.iter().filter(|(_, at)| **at == ino);
                paths.find_map(|(path, _)| noted.get(noted_at.op)?.get(path)).copied()
            };
            let blocks = durable.blocks.as_ref().and_then(|at| {
                let wanted = self.blocks_demanded(ino, at.moment, said(at)?)?;
                (account.blocks_512 < wanted).then(|| {
                    let found = account.blocks_512;
                    let what = format!("{wanted} blocks of 512 bytes were allocated, {found} are");
                    BrokenRule { rule: Rule::Allocation, path: path.clone(), what }
                })
            });
            let mtime = || {
                let at = durable.mtime.as_ref()?;
                let (wanted, found) = (said(at)?.mtime, account.mtime);
                let is_same = wanted == found || self.is_modified(ino, at.moment);
                (!is_same).then(|| {
                    let tell = |(sec, nsec): (i64, u32)| format!("{sec}.{nsec:09}");
                    let what = format!("was modified at {}, shows {}", tell(wanted), tell(found));
                    BrokenRule { rule: Rule::ModificationTime, path: path.clone(), what }
                })
            };
            blocks.or_else(mtime)
        })
    }

    /// The object that a path leads to, if it has not led to another one since everything was durable.
    fn only_object(&self, path: &FsPath) -> Option<Ino> {
        let all = self.moments.iter().filter_map(|moment| moment.paths.get(path).copied());
        let all: BTreeSet<Ino> = all.collect();
        all.first().copied().filter(|_| all.len() == 1)
    }

    /// The blocks that a file must have: those that it had, but no more than what was asked for (what a
    /// file system adds of its own it may take back). `None` if they may have changed since.
    fn blocks_demanded(&self, ino: Ino, moment: usize, said: Account) -> Option<u64> {
        // Extended attributes take blocks too.
        let xattrs = |moment: &Moment| moment.objects.get(&ino).map(|entry| entry.xattrs.clone());
        let then = xattrs(&self.moments[moment]);
        let is_touched = self.moments[moment..].iter().any(|later| xattrs(later) != then)
            || self.is_modified(ino, moment);
        let asked_for = self.moments[moment].model.volume().attr(ino).ok()?.blocks_512;
        (!is_touched).then(|| said.blocks_512.min(asked_for))
    }

    /// Whether anything has set the modification time of a file since a moment; what writes, cuts,
    /// allocates or punches does.
    fn is_modified(&self, ino: Ino, since: usize) -> bool {
        let mtime = |moment: &Moment| -> Option<Stamp> {
            Some(moment.model.volume().attr(ino).ok()?.times.mtime)
        };
        let then = mtime(&self.moments[since]);
        self.moments[since..].iter().any(|later| mtime(later) != then)
    }
}
