//! close(2)

use fathom_core::{Errno, Slot};

use super::Model;

impl Model {
    /// The inode goes with its last open file if it has no name any more.
    pub(super) fn close(&mut self, slot: Slot) -> Result<u64, Errno> {
        self.file_or_path(slot)?;
        if let Some(file) = self.current_mut().files.set(slot, None) {
            self.volume.unpin(file.ino);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;

    use super::super::testing::*;

    #[test]
    fn a_slot_closes_once() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644), open(3, "f", OpenFlags::O_PATH)]);
        check(&mut m, &[(close(3), Ok(0)), (close(3), Err(E::EBADF)), (close(255), Err(E::EBADF))]);
    }

    #[test]
    fn an_unlinked_file_lives_until_it_is_closed() {
        let mut m = model();
        let free = m.volume().statfs();
        given(&mut m, &[open(0, "f", OpenFlags::O_RDWR | OpenFlags::O_CREAT), write(0, 1, 10)]);
        given(&mut m, &[open(1, "f", OpenFlags::O_PATH), unlink("f")]);
        check(&mut m, &[(write(0, 1, 10), Ok(10)), (close(0), Ok(0))]);
        assert_ne!(m.volume().statfs(), free);
        given(&mut m, &[close(1)]);
        assert_eq!(m.volume().statfs(), free);
    }
}
