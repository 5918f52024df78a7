//! statfs(2), fstatfs(2): fs/statfs.c.

use fathom_core::{Errno, Outcome, Payload, Statfs, Target};

use super::Model;
use super::resolve::Follow;

impl Model {
    pub(super) fn statfs(&self, target: &Target) -> Result<Outcome, Errno> {
        match target {
            Target::Path(path) | Target::Link(path) => self.resolve(path, Follow::Yes)?,
            Target::Slot(slot) => self.file_or_path(*slot)?.ino,
        };
        let name_bytes_max = u64::from(self.quirks().statfs_name_bytes);
        Ok(Outcome::with(Payload::Statfs(Statfs { name_bytes_max, ..self.volume.statfs() })))
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;
    use fathom_core::flags::OpenFlags;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn any_existing_file_will_do() {
        let mut m = model();
        given(&mut m, &[file("f", 0), symlink("nope", "l"), open(0, "f", OpenFlags::O_PATH)]);
        let table = [
            (Op::Statfs { target: at("f") }, Ok(0)),
            (Op::Statfs { target: at_link("l") }, Err(E::ENOENT)),
            (Op::Statfs { target: Target::Slot(0) }, Ok(0)),
            (Op::Statfs { target: Target::Slot(1) }, Err(E::EBADF)),
        ];
        check(&mut m, &table);
    }
}
