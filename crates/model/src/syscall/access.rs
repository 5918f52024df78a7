//! access(2), faccessat2(2): fs/open.c `do_faccessat`.

use fathom_core::flags::AccessMode;
use fathom_core::{Errno, Kind, Target};

use super::Model;
use super::permission::Mask;

impl Model {
    /// Real and effective ids of the caller are always the same, so `AT_EACCESS` changes nothing.
    pub(super) fn access(&self, target: &Target, mode: AccessMode) -> Result<u64, Errno> {
        if mode.bits() & !0o7 != 0 {
            return Err(Errno::EINVAL);
        }
        let ino = self.target_or_path(target)?;
        let executes = mode.contains(AccessMode::X_OK);
        if executes && self.quirks().noexec && self.volume.attr(ino)?.kind == Kind::File {
            return Err(Errno::EACCES);
        }
        self.permission(ino, Mask(mode.bits()))?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;
    use fathom_core::flags::OpenFlags;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn targets_and_modes() {
        let mut m = model();
        given(
            &mut m,
            &[
                file("f", 0o640),
                symlink("nope", "l"),
                open(0, "f", OpenFlags::O_PATH),
                become_user(ALICE),
            ],
        );
        let access = |target, mode| Op::Access {
            target,
            mode: AccessMode::from_bits_retain(mode),
            effective: true,
        };
        let table = [
            (access(at("nope"), 8), Err(E::EINVAL)),
            (access(at("nope"), 0), Err(E::ENOENT)),
            (access(at("f"), 0), Ok(0)),
            (access(at("f"), 4), Err(E::EACCES)),
            (access(at("l"), 0), Err(E::ENOENT)),
            (access(at_link("l"), 7), Ok(0)),
            (access(Target::Slot(0), 0), Ok(0)),
            (access(Target::Slot(0), 4), Err(E::EACCES)),
            (access(Target::Slot(9), 0), Err(E::EBADF)),
        ];
        check(&mut m, &table);
    }
}
