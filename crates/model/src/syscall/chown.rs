//! chown(2), lchown(2), fchown(2): fs/open.c `chown_common`, fs/attr.c `setattr_prepare`.

use fathom_core::{Errno, Kind, Target};

use super::Model;
use crate::volume::Attr;

impl Model {
    /// Anything but a directory loses setuid and setgid, even if nothing else changes and root asks.
    pub(super) fn chown(
        &mut self,
        target: &Target,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<u64, Errno> {
        // -1 also means "leave as it is".
        let (uid, gid) = (uid.filter(|&id| id != u32::MAX), gid.filter(|&id| id != u32::MAX));
        let ino = self.target(target)?;
        if uid.is_none() && gid.is_none() && self.quirks().chown_nothing_ignored {
            return Ok(0);
        }
        let attr = self.volume.attr(ino)?;
        if !self.may_chown(&attr, uid) || !self.may_chgrp(&attr, gid) {
            return Err(Errno::EPERM);
        }
        let kills = attr.kind != Kind::Dir && self.has_privileges_to_kill(&attr);
        // Losing them changes the mode, which is up to the owner.
        if kills && !self.owns(&attr) {
            return Err(Errno::EPERM);
        }
        if kills {
            self.kill_privileges(ino)?;
        }
        self.volume.chown(ino, uid, gid)?;
        Ok(0)
    }

    /// `chown_ok`: without CAP_CHOWN the owner can only stay what he is.
    fn may_chown(&self, attr: &Attr, uid: Option<u32>) -> bool {
        let stays = self.current.identity.uid == attr.uid && uid == Some(attr.uid);
        uid.is_none() || stays || self.current.identity.is_privileged()
    }

    /// `chgrp_ok`: the owner can give a file to a group that he is in.
    fn may_chgrp(&self, attr: &Attr, gid: Option<u32>) -> bool {
        let Some(gid) = gid else { return true };
        let own = self.current.identity.uid == attr.uid
            && (gid == attr.gid || self.current.identity.in_group(gid));
        own || self.current.identity.is_privileged()
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;

    use super::super::testing::*;
    use crate::quirks::Quirks;

    fn change(name: &str, uid: Option<u32>, gid: Option<u32>) -> Op {
        Op::Chown { target: at(name), uid, gid }
    }

    #[test]
    fn who_may() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644), chown("f", ALICE, ALICE)]);
        given(&mut m, &[Op::Identity { uid: ALICE, gid: ALICE, groups: vec![77] }]);
        let table = [
            (change("f", Some(BOB), None), Err(E::EPERM)),
            (change("f", Some(ALICE), None), Ok(0)),
            (change("f", None, Some(BOB)), Err(E::EPERM)),
            (change("f", None, Some(77)), Ok(0)),
            (change("f", None, None), Ok(0)),
            (change("f", Some(u32::MAX), Some(u32::MAX)), Ok(0)),
            (change("nope", None, None), Err(E::ENOENT)),
        ];
        check(&mut m, &table);
        assert_eq!((attr(&m, "f").uid, attr(&m, "f").gid), (ALICE, 77));
        given(&mut m, &[become_user(BOB)]);
        let table = [
            (change("f", None, None), Ok(0)),
            (change("f", Some(ALICE), None), Err(E::EPERM)),
            (change("f", None, Some(77)), Err(E::EPERM)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn setuid_and_setgid_go_even_for_root() {
        let mut m = model();
        given(&mut m, &[file("f", 0o6755), change("f", None, None)]);
        assert_eq!(mode_of(&m, "f"), 0o755);
        // Setgid without group execution was mandatory locking, and stays.
        given(&mut m, &[chmod("f", 0o6745), change("f", Some(ALICE), None)]);
        assert_eq!(mode_of(&m, "f"), 0o2745);
        given(
            &mut m,
            &[mkdir("d", 0o755), chmod("d", 0o6755), change("d", Some(ALICE), Some(ALICE))],
        );
        assert_eq!(mode_of(&m, "d"), 0o6755);
    }

    #[test]
    fn changing_nothing_may_do_nothing() {
        let mut m = model_with(Quirks { chown_nothing_ignored: true, ..Quirks::default() });
        given(&mut m, &[file("f", 0o6755), become_user(ALICE), change("f", None, None)]);
        assert_eq!(mode_of(&m, "f"), 0o6755);
    }

    #[test]
    fn a_stranger_cannot_make_them_go() {
        let mut m = model();
        given(&mut m, &[file("f", 0o4755), become_user(ALICE)]);
        check(&mut m, &[(change("f", None, None), Err(E::EPERM))]);
    }

    #[test]
    fn a_link_is_its_own_target() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644), symlink("f", "l"), chown("l", ALICE, ALICE)]);
        assert_eq!((attr(&m, "l").uid, attr(&m, "f").uid), (ALICE, 0));
    }
}
