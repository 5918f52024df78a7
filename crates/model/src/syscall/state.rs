//! What decides how a process and its file system go on, as one digest.

use fathom_core::Digest;

use super::Model;

/// Keeps these hashes apart from those of trees and traces.
const DOMAIN_SLOT: u64 = 7;
const DOMAIN_PROCESS: u64 = 8;

impl Model {
    /// Digest of the visible tree, the open files, the caller and the umask: two models with the same
    /// digest answer every operation alike, apart from times and from what depends on allocated
    /// blocks (`SEEK_HOLE`, `statfs`, a full disk).
    ///
    /// Inode numbers do not count: an open file is known by its names, and one without a name by its
    /// contents.
    pub fn state_digest(&self) -> Digest {
        let mut sum = self.volume.digest();
        for (slot, file) in self.files.iter() {
            let node = self.volume.node_digest(file.ino).unwrap_or_default();
            let names = self.volume.names_digest(file.ino).unwrap_or_default();
            let shared_with = self.files.iter().position(|(_, other)| other.ino == file.ino);
            let mut packed = Vec::with_capacity(64);
            packed.extend_from_slice(&slot.to_le_bytes());
            packed.extend_from_slice(&file.flags.bits().to_le_bytes());
            packed.extend_from_slice(&file.position.to_le_bytes());
            packed.extend_from_slice(&node.0.to_le_bytes());
            packed.extend_from_slice(&names.0.to_le_bytes());
            packed.extend_from_slice(&shared_with.unwrap_or(slot).to_le_bytes());
            sum += Digest::of(DOMAIN_SLOT, &packed);
        }
        let ids = [self.umask.0, self.caller.uid, self.caller.gid];
        let process: Vec<u8> =
            ids.iter().chain(self.caller.groups.iter()).flat_map(|id| id.to_le_bytes()).collect();
        sum += Digest::of(DOMAIN_PROCESS, &process);
        sum
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::{OpenFlags, Whence};
    use fathom_core::{Mode, Op};

    use super::super::testing::*;

    const RW: OpenFlags = OpenFlags::O_RDWR;

    #[test]
    fn everything_that_decides_the_future_counts() {
        let mut base = model();
        given(&mut base, &[file("a", 0o666), file("b", 0o666), open(0, "a", RW)]);
        let variants: [&[Op]; 8] = [
            &[],
            &[close(0)],
            &[open(0, "b", RW)],
            &[open(0, "a", OpenFlags::empty())],
            &[open(1, "a", RW)],
            &[Op::Lseek { slot: 0, offset: 1, whence: Whence::Set }],
            &[Op::Umask { mask: Mode(1) }],
            &[become_user(ALICE)],
        ];
        let digests = variants.map(|ops| {
            let mut m = base.clone();
            given(&mut m, ops);
            m.state_digest()
        });
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(digest), "variant {i}");
        }
    }

    #[test]
    fn inode_numbers_and_detours_do_not_count() {
        let (mut straight, mut detour) = (model(), model());
        given(&mut straight, &[file("a", 0o666), open(0, "a", RW)]);
        given(
            &mut detour,
            &[
                file("x", 0o666),
                file("a", 0o666),
                unlink("x"),
                open(3, "a", RW),
                close(3),
                open(0, "a", RW),
            ],
        );
        assert_eq!(straight.state_digest(), detour.state_digest());
    }

    #[test]
    fn orphans_count_by_contents_and_sharing() {
        let orphan = |ops: &[Op]| {
            let mut m = model();
            given(&mut m, &[file("a", 0o666), file("b", 0o666), open(0, "a", RW)]);
            given(&mut m, ops);
            given(&mut m, &[unlink("a"), unlink("b")]);
            m.state_digest()
        };
        let same = orphan(&[open(1, "a", RW)]);
        let equal = orphan(&[open(1, "b", RW)]);
        let written = orphan(&[open(1, "b", RW), Op::Truncate { target: at("b"), len: 1 }]);
        assert!(same != equal && equal != written);
    }
}
