//! Generates operations on names: making, removing, moving.

use fathom_core::flags::RenameFlags as R;
use fathom_core::{Capability, FsPath, Kind, Mode, Op};

use super::Generator;

impl Generator {
    pub(super) fn mkdir(&mut self) -> Op {
        Op::Mkdir { path: self.fresh(Kind::Dir), mode: self.mode() }
    }

    pub(super) fn rmdir(&mut self) -> Op {
        Op::Rmdir { path: self.existing(&[Kind::Dir]) }
    }

    pub(super) fn unlink(&mut self) -> Op {
        let kinds = [Kind::File, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::Char, Kind::Block];
        // An open file lives on without a name.
        let open: Vec<FsPath> = self.slots.iter().flatten().map(|open| open.path.clone()).collect();
        if !open.is_empty() && self.choices.percent(20) {
            return Op::Unlink { path: self.choices.pick(&open).clone() };
        }
        Op::Unlink { path: self.existing(&kinds) }
    }

    pub(super) fn rename(&mut self) -> Op {
        let from = self.existing(&[Kind::File, Kind::Dir, Kind::Symlink, Kind::Fifo]);
        let kind = self.kind_of(&from);
        let mut flags = self.choices.weighted(&self.tables.rename);
        // A whiteout is a device node (renameat2(2)).
        if self.capabilities.contains(&Capability::Devices) && self.choices.percent(8) {
            flags |= R::RENAME_WHITEOUT;
        }
        if self.odd {
            flags |= self.flags(&[(R::RENAME_NOREPLACE, 5), (R::RENAME_EXCHANGE, 5)]);
        }
        let to = self.destination(&from, kind);
        // Exchanged, a directory at `to` goes where `from` was.
        let comes_back = flags.contains(R::RENAME_EXCHANGE) && self.kind_of(&to) == Kind::Dir;
        if comes_back && !self.fits(&from, self.view.height(&to)) {
            flags -= R::RENAME_EXCHANGE;
        }
        Op::Rename { from, to, flags }
    }

    pub(super) fn link(&mut self) -> Op {
        let from = self.existing(&[Kind::File, Kind::File, Kind::Symlink, Kind::Fifo]);
        let kind = self.kind_of(&from);
        Op::Link { to: self.fresh(kind), from, follow: self.choices.percent(15) }
    }

    pub(super) fn link_slot(&mut self) -> Op {
        let slot = self.slot(|open| open.nameless);
        Op::LinkSlot { slot, to: self.fresh(Kind::File), by_proc: self.choices.percent(50) }
    }

    pub(super) fn symlink(&mut self) -> Op {
        Op::Symlink { target: self.symlink_target(), path: self.fresh(Kind::Symlink) }
    }

    pub(super) fn readlink(&mut self) -> Op {
        let len = *self.choices.pick(&[4096, 4096, 255, 60, 1, 0]);
        Op::Readlink { path: self.existing(&[Kind::Symlink]), len }
    }

    pub(super) fn mknod(&mut self) -> Op {
        let mut kinds = vec![(Kind::Fifo, 5), (Kind::Socket, 3), (Kind::File, 2)];
        if self.capabilities.contains(&Capability::Devices) {
            kinds.extend([(Kind::Char, 3), (Kind::Block, 3)]);
        }
        let kind = self.choices.weighted(&kinds);
        let mut mode = self.mode().0 | kind.mode_bits();
        if self.odd && self.choices.percent(20) {
            let odd_types = [0, Mode::S_IFDIR, Mode::S_IFLNK, 0o030000];
            mode = (mode & 0o7777) | *self.choices.pick(&odd_types);
        }
        let is_device = matches!(Kind::of_mode(mode), Some(Kind::Char | Kind::Block));
        let dev = if is_device { self.device() } else { (0, 0) };
        let path = self.fresh(kind);
        Op::Mknod { path, mode: Mode(mode), dev }
    }

    /// Draws a device number. Major 0 is never given out, 240 to 254 are for local use
    /// (Documentation/admin-guide/devices.txt), and no device is ever opened
    /// ([`Model::unspecified`](fathom_model::Model::unspecified)). The last one is the largest that
    /// XFS takes (`xfs_generic_create`).
    fn device(&mut self) -> (u32, u32) {
        *self.choices.pick(&[(0, 0), (240, 0), (254, 255), (511, 262_143)])
    }
}
