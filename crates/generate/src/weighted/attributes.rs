//! Generates operations on attributes: modes, owners, times, extended attributes, and the identity
//! of the caller.

use fathom_core::flags::AccessMode;
use fathom_core::{Capability, FsBytes, Kind, Mode, Op, Target, TimeArg};

use super::Generator;
use super::args::IDS;

impl Generator {
    pub(super) fn chmod(&mut self) -> Op {
        // The special bits of directories decide about what is made in them.
        if !self.odd && self.choices.percent(30) {
            let mode = Mode(*self.choices.pick(&[0o2777, 0o1777, 0o3775, 0o2755, 0o755]));
            return Op::Chmod { target: Target::Path(self.existing(&[Kind::Dir])), mode };
        }
        Op::Chmod { target: self.target(), mode: self.mode() }
    }

    pub(super) fn chown(&mut self) -> Op {
        let mut id = || self.choices.percent(75).then(|| *self.choices.pick(&IDS));
        let (uid, gid) = (id(), id());
        if !self.odd && self.choices.percent(30) {
            return Op::Chown { target: Target::Path(self.existing(&[Kind::Dir])), uid, gid };
        }
        Op::Chown { target: self.target(), uid, gid }
    }

    pub(super) fn utimens(&mut self) -> Op {
        let (atime, mtime) = (self.time(), self.time());
        Op::Utimens { target: self.target(), atime, mtime }
    }

    fn time(&mut self) -> TimeArg {
        match self.choices.below(10) {
            0..3 => TimeArg::Now,
            3..5 => TimeArg::Omit,
            _ => {
                let sec = self.seconds();
                let nsec =
                    if self.odd && self.choices.percent(20) { 1_000_000_000 } else { 999_999_999 };
                TimeArg::At { sec, nsec: *self.choices.pick(&[0, 1, nsec]) }
            }
        }
    }

    /// Draws seconds: mostly of our time, else around the borders of 31 and 32 bits, before 1970, and
    /// around the first and the last second that the file system has.
    fn seconds(&mut self) -> i64 {
        let usual = [0, 1, 1_000_000_000, 1_700_000_000, i32::MAX.into()];
        let borders =
            [-1, i32::MIN.into(), 1 << 31, u32::MAX.into(), 1 << 32, self.view.time_sec.0];
        match self.choices.below(4) {
            0 => *self.choices.pick(&borders),
            1 => {
                let (first, last) = self.view.time_sec;
                let beyond = [first.saturating_sub(1), last, last.saturating_add(1)];
                *self.choices.pick(&beyond)
            }
            _ => *self.choices.pick(&usual),
        }
    }

    pub(super) fn setxattr(&mut self) -> Op {
        let flags = self.flags(&self.tables.xattr.clone());
        let too_long = self.odd && self.choices.percent(5);
        let len = if too_long { 65537 } else { self.size(self.config.data.xattr_bytes_max) };
        let replace = self.choices.percent(30);
        let (target, name) =
            if replace { self.xattr() } else { (self.target(), self.xattr_name()) };
        Op::Setxattr { target, name, value: self.pattern(len), flags }
    }

    pub(super) fn getxattr(&mut self) -> Op {
        let (target, name) = self.xattr();
        Op::Getxattr { target, name, len: self.xattr_buffer() }
    }

    pub(super) fn listxattr(&mut self) -> Op {
        let len = self.xattr_buffer();
        Op::Listxattr { target: self.target(), len }
    }

    pub(super) fn removexattr(&mut self) -> Op {
        let (target, name) = self.xattr();
        Op::Removexattr { target, name }
    }

    /// Draws a target and the name of an extended attribute, mostly of one that exists.
    fn xattr(&mut self) -> (Target, FsBytes) {
        let nodes = self.view.select(|node| !node.xattrs.is_empty());
        if nodes.is_empty() || self.odd {
            return (self.target(), self.xattr_name());
        }
        let node = *self.choices.pick(&nodes);
        let name = self.choices.pick(&node.xattrs).clone();
        (Target::Link(node.path.clone()), name)
    }

    fn xattr_buffer(&mut self) -> u64 {
        *self.choices.pick(&[65536, 65536, 65536, 0, 1, 16])
    }

    fn xattr_name(&mut self) -> FsBytes {
        if self.odd && self.choices.percent(30) {
            let longer = [b"user.".as_slice(), &[b'y'; 251]].concat();
            let odd: [&[u8]; 4] = [b"user.", b"bogus.a", b"", &longer];
            return FsBytes::from(*self.choices.pick(&odd));
        }
        if self.capabilities.contains(&Capability::Identity) && self.choices.percent(10) {
            return FsBytes::from("trusted.a");
        }
        FsBytes::from(*self.choices.pick(&["user.a", "user.b", "user.c"]))
    }

    pub(super) fn access(&mut self) -> Op {
        let mode =
            self.flags(&[(AccessMode::R_OK, 50), (AccessMode::W_OK, 50), (AccessMode::X_OK, 50)]);
        Op::Access { target: self.target(), mode, effective: self.choices.percent(50) }
    }

    /// Draws an identity, mostly root, so that the workload goes on.
    pub(super) fn identity(&mut self) -> Op {
        let id = self.choices.weighted(&[(0, 8), (IDS[1], 2), (IDS[2], 1)]);
        self.identity_with(id)
    }

    /// Draws an identity that is not root's.
    pub(super) fn identity_of_another(&mut self) -> Op {
        let id = self.choices.weighted(&[(IDS[1], 2), (IDS[2], 1)]);
        self.identity_with(id)
    }

    fn identity_with(&mut self, id: u32) -> Op {
        let groups = if id != 0 && self.choices.percent(40) { vec![IDS[2]] } else { Vec::new() };
        Op::Identity { uid: id, gid: id, groups }
    }
}
