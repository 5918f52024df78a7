//! What decides how the processes and their file system go on, as one digest.

use fathom_core::{Caller, Digest};

use super::Model;
use super::process::Process;
use super::steps::Reached;
use crate::volume::{Identity, Ino, ROOT};

/// Keeps these hashes apart from those of trees and traces.
const DOMAIN_SLOT: u64 = 7;
const DOMAIN_PROCESS: u64 = 8;
const DOMAIN_DIRECTORY: u64 = 9;
const DOMAIN_REACHED: u64 = 40;
const DOMAIN_LEAVING: u64 = 44;
const DOMAIN_COUNTING: u64 = 45;

impl Model {
    /// Digest of the visible tree and of every process (open files, identity, mask, working
    /// directory): two models with the same digest answer every operation alike, apart from times and
    /// from what depends on allocated blocks (`SEEK_HOLE`, `statfs`, a full disk).
    ///
    /// Inode numbers do not count: an open file is known by its names, and one without a name by its
    /// contents. A caller that is as in the beginning does not count either, except caller 0.
    pub fn state_digest(&self) -> Digest {
        let mut sum = self.volume.digest();
        self.add_process(0, &self.current, &mut sum);
        let first = Process::first(self.volume.config());
        for (caller, process) in self.others.iter().filter(|(_, process)| !process.is(&first)) {
            self.add_process(caller, process, &mut sum);
        }
        sum
    }

    fn add_process(&self, caller: Caller, process: &Process, sum: &mut Digest) {
        // A model with one caller has the digests it had before there were others.
        let caller_bytes = caller.to_le_bytes();
        let caller_bytes = if caller == 0 { &[][..] } else { &caller_bytes[..] };
        for (slot, file) in process.files.iter() {
            let shared_with = self.open_files().position(|other| other.ino == file.ino);
            let mut packed = Vec::with_capacity(64);
            packed.extend_from_slice(&slot.to_le_bytes());
            packed.extend_from_slice(&file.flags.bits().to_le_bytes());
            packed.extend_from_slice(&file.position.to_le_bytes());
            self.pack_inode(file.ino, &mut packed);
            packed.extend_from_slice(&shared_with.unwrap_or(slot).to_le_bytes());
            packed.extend_from_slice(caller_bytes);
            *sum += Digest::of(DOMAIN_SLOT, &packed);
        }
        for (slot, listing) in process.files.listings() {
            *sum += listing.digest(usize::from(*slot), caller);
        }
        let Identity { uid, gid, groups } = &process.identity;
        let ids = [process.umask.0, *uid, *gid];
        let mut packed: Vec<u8> =
            ids.iter().chain(groups.iter()).flat_map(|id| id.to_le_bytes()).collect();
        packed.extend_from_slice(caller_bytes);
        *sum += Digest::of(DOMAIN_PROCESS, &packed);
        if process.directory != ROOT {
            packed.clear();
            self.pack_inode(process.directory, &mut packed);
            packed.extend_from_slice(caller_bytes);
            *sum += Digest::of(DOMAIN_DIRECTORY, &packed);
        }
        if let Some(ino) = process.reached.ino() {
            packed.clear();
            self.pack_inode(ino, &mut packed);
            // Two without a name are told apart only by who else has them.
            let shared_with = self.open_files().position(|file| file.ino == ino);
            let reached_by = self.processes().position(|other| other.reached.ino() == Some(ino));
            packed
                .extend([shared_with, reached_by].map(|place| place.map_or(u8::MAX, |n| n as u8)));
            packed.push(u8::from(matches!(process.reached, Reached::Node(_))));
            packed.extend_from_slice(caller_bytes);
            *sum += Digest::of(DOMAIN_REACHED, &packed);
        }
        if let Some(leaving) = &process.leaving {
            packed.clear();
            self.pack_inode(leaving.dir, &mut packed);
            self.pack_inode(leaving.ino, &mut packed);
            packed.extend_from_slice(&leaving.name);
            packed.push(0);
            packed.extend_from_slice(caller_bytes);
            *sum += Digest::of(DOMAIN_LEAVING, &packed);
        }
        for (ino, change) in &process.counting.seen {
            packed.clear();
            self.pack_inode(*ino, &mut packed);
            packed.extend_from_slice(&change.to_le_bytes());
            packed.push(u8::from(process.counting.named));
            packed.extend_from_slice(caller_bytes);
            *sum += Digest::of(DOMAIN_COUNTING, &packed);
        }
    }

    /// What an inode is known by.
    fn pack_inode(&self, ino: Ino, packed: &mut Vec<u8>) {
        let node = self.volume.node_digest(ino).unwrap_or_default();
        let names = self.volume.names_digest(ino).unwrap_or_default();
        packed.extend_from_slice(&node.0.to_le_bytes());
        packed.extend_from_slice(&names.0.to_le_bytes());
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
