//! chdir(2): fs/open.c.
//!
//! No operation of a workload changes the working directory; whoever sets up callers does.

use fathom_core::{Caller, Errno, FsPath};

use super::Model;
use super::permission::Mask;
use super::resolve::Follow;
use crate::volume::ROOT;

impl Model {
    /// Moves a caller to another working directory, where its relative paths start from then on. The
    /// directory stays as long as the caller is in it, even without a name.
    ///
    /// # Errors
    /// What path resolution says; `ENOTDIR`; `EACCES` without search permission.
    pub fn chdir(&mut self, caller: Caller, path: &FsPath) -> Result<(), Errno> {
        self.as_caller(caller, |model| {
            let directory = model.resolve_dir(path, Follow::Yes)?;
            model.permission(directory, Mask::SEARCH)?;
            if directory != ROOT {
                model.volume.pin(directory)?;
            }
            let left = std::mem::replace(&mut model.current_mut().directory, directory);
            if left != ROOT {
                model.volume.unpin(left);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn relative_paths_start_in_the_working_directory() {
        let mut m = model();
        given(
            &mut m,
            &[mkdir("a", 0o755), mkdir("a/b", 0o755), file("f", 0o644), symlink("b", "a/l")],
        );
        given(&mut m, &[symlink("../f", "a/up"), symlink("/a", "abs")]);
        assert_eq!(m.chdir(0, &path("f")), Err(E::ENOTDIR));
        assert_eq!(m.chdir(0, &path("nope")), Err(E::ENOENT));
        assert_eq!(m.chdir(0, &path("a")), Ok(()));
        let table = [
            (stat("f"), Err(E::ENOENT)),
            (stat("../f"), Ok(0)),
            (stat("/f"), Ok(0)),
            (stat("b"), Ok(0)),
            (stat("l/"), Ok(0)),
            (stat("up"), Ok(0)),
            (stat("../abs/b"), Ok(0)),
            (mkdir("c", 0o755), Ok(0)),
            (stat("/a/c"), Ok(0)),
        ];
        check(&mut m, &table);
        assert_eq!(m.chdir(0, &path("l")), Ok(()));
        check(&mut m, &[(stat("../c"), Ok(0)), (rmdir("."), Err(E::EINVAL))]);
    }

    #[test]
    fn a_removed_working_directory_stays_and_takes_nothing() {
        let mut m = model();
        given(&mut m, &[mkdir("a", 0o755), file("f", 0o644)]);
        let before = m.volume().statfs();
        m.chdir(1, &path("a")).unwrap();
        given(&mut m, &[rmdir("a")]);
        let mut as_other = |op| m.execute_as(1, &op).result;
        assert_eq!(as_other(stat(".")), Ok(0));
        assert_eq!(as_other(stat("..")), Ok(0));
        assert_eq!(as_other(stat("../f")), Ok(0));
        assert_eq!(as_other(stat("f")), Err(E::ENOENT));
        assert_eq!(as_other(mkdir("d", 0o755)), Err(E::ENOENT));
        assert_eq!(as_other(file("new", 0o644)), Err(E::ENOENT));
        assert_eq!(m.volume().statfs(), before);
        m.chdir(1, &path("/")).unwrap();
        assert_ne!(m.volume().statfs(), before, "the inode went with the last who was in it");
        m.volume().check_invariants().unwrap();
    }

    #[test]
    fn search_permission_is_needed() {
        let mut m = model();
        given(&mut m, &[mkdir("a", 0o700), become_user(ALICE)]);
        assert_eq!(m.chdir(0, &path("a")), Err(E::EACCES));
        assert_eq!(m.chdir(1, &path("a")), Ok(()), "the other caller is still root");
    }
}
