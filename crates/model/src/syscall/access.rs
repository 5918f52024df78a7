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
        let kind = self.volume.attr(ino)?.kind;
        let is_special = !matches!(kind, Kind::File | Kind::Dir | Kind::Symlink);
        if executes
            && (self.quirks().noexec && kind == Kind::File
                || self.quirks().special_files_never_executable && is_special)
        {
            return Err(Errno::EACCES);
        }
        self.permission(ino, Mask(mode.bits()))?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Mode, Op};

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    #[test]
    fn special_files_may_never_be_executable() {
        let access = |path, mode| Op::Access {
            target: at(path),
            mode: AccessMode::from_bits_retain(mode),
            effective: true,
        };
        let ops = [file("f", 0o755), mknod("p", Mode::S_IFIFO | 0o755)];
        let mut m = model();
        given(&mut m, &ops);
        check(&mut m, &[(access("p", 1), Ok(0)), (access("f", 1), Ok(0))]);
        let quirks = Quirks { special_files_never_executable: true, ..Quirks::default() };
        let mut m = model_with(quirks);
        given(&mut m, &ops);
        let table = [
            (access("p", 1), Err(E::EACCES)),
            (access("p", 6), Ok(0)),
            (access("f", 1), Ok(0)),
            (access(".", 1), Ok(0)),
        ];
        check(&mut m, &table);
    }

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
