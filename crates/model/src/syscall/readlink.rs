//! readlink(2): fs/stat.c `do_readlinkat`.

use fathom_core::{Errno, FsPath, Kind};

use super::Model;
use super::resolve::Follow;

impl Model {
    /// A longer target is cut without an error.
    pub(super) fn readlink(&mut self, path: &FsPath, len: u64) -> Result<Vec<u8>, Errno> {
        // The kernel's type of the length is int.
        if len as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        let ino = self.resolve(path, Follow::No)?;
        if self.volume.attr(ino)?.kind != Kind::Symlink {
            return Err(Errno::EINVAL);
        }
        self.volume.note_access(ino);
        let target = self.volume.readlink(ino)?;
        let target = target.as_bytes();
        Ok(target[..target.len().min(len as usize)].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;

    use super::super::testing::*;

    #[test]
    fn targets() {
        let mut m = model();
        let readlink = |name: &str, len| Op::Readlink { path: path(name), len };
        given(
            &mut m,
            &[symlink("target", "l"), mkdir("d", 0o755), symlink("d", "ld"), symlink("l", "ll")],
        );
        let table = [
            (readlink("nope", 0), Err(E::EINVAL)),
            (readlink("nope", 1 << 31), Err(E::EINVAL)),
            (readlink("nope", 1), Err(E::ENOENT)),
            (readlink("", 1), Err(E::ENOENT)),
            (readlink("d", 1), Err(E::EINVAL)),
            (readlink("ld/", 1), Err(E::EINVAL)),
            (readlink("l/", 1), Err(E::ENOENT)),
        ];
        check(&mut m, &table);
        data_of(m.execute(&readlink("l", 100)), b"target");
        data_of(m.execute(&readlink("l", 3)), b"tar");
        data_of(m.execute(&readlink("ll", 3)), b"l");
    }
}
