//! Named bugs that can be switched on: the reference file system as a liar, to test the tester.
//!
//! Each is modelled on a bug that a file system had, or on a class of bugs that tests look for. All of
//! them sit in the volume layer and in what the kernel passes on to a FUSE server, so they show in
//! process as well as through a mount. Switched off they cost a comparison of one byte.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! mutants {
    ($($variant:ident $name:literal $describe:literal $inspired_by:literal;)*) => {
        /// One bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Mutant {
            $(#[doc = $describe] #[serde(rename = $name)] $variant,)*
        }

        impl Mutant {
            /// Every mutant.
            pub const ALL: &[Mutant] = &[$(Mutant::$variant,)*];

            /// How it is called on the command line and in traces.
            pub fn name(self) -> &'static str {
                match self { $(Mutant::$variant => $name,)* }
            }

            /// What it does wrong.
            pub fn describe(self) -> &'static str {
                match self { $(Mutant::$variant => $describe,)* }
            }

            /// The bug, or class of bugs, that it is modelled on.
            pub fn inspired_by(self) -> &'static str {
                match self { $(Mutant::$variant => $inspired_by,)* }
            }
        }
    };
}

mutants! {
    RenameNlink "rename-nlink"
        "Renaming over a hard link leaves the other name with one link too many."
        "RefFS, found by Metis: create f1, link f1 l1, create f2, rename f2 l1 leaves f1 with nlink 2";
    StaleHole "stale-hole"
        "Bytes that a shrink cut off come back when the file grows again."
        "JFFS2 up to Linux 6.2, found by Metis: stale bytes in a hole after truncate and a write beyond it";
    ExtendSize "extend-size"
        "Growing by truncate rounds the size up to whole blocks."
        "JFS and NOVA, found by Metis: wrong file size compared with ext4";
    ShrinkSize "shrink-size"
        "Shrinking by truncate rounds the size up to whole blocks."
        "NOVA, found by Metis: inconsistent file size";
    UnlinkNeighbour "unlink-neighbour"
        "Unlinking a name empties the file that follows it in the directory."
        "F2FS, found by Metis: unlink d-00/f-01 makes f-02 show size 0";
    RemovedDirReturns "removed-dir-returns"
        "A removed directory is back, empty, after a remount."
        "btrfs up to 3.13 (xfstests generic/106, /107): a removed name is back after recovery";
    OrphanReturns "orphan-returns"
        "A file that was unlinked while it was open is back after a remount."
        "what the orphan list of ext4 is there to prevent (Documentation/filesystems/ext4/orphan.rst)";
    RenameSourceReturns "rename-source-returns"
        "After a remount a renamed file has its old name too."
        "btrfs, found by CrashMonkey: a renamed file is in both directories";
    LinkSplits "link-splits"
        "After a remount every name of a hard-linked file is a file of its own."
        "overlayfs without index=on: copying a file up breaks its hard links";
    XattrLostOnRemount "xattr-lost-on-remount"
        "All extended attributes are gone after a remount."
        "btrfs up to 3.13 (xfstests generic/066): extended attributes wrong after recovery";
    SymlinkEmptyOnRemount "symlink-empty-on-remount"
        "Symbolic links have an empty target after a remount."
        "btrfs up to 4.4 (xfstests generic/348): empty symbolic link after recovery";
    ShrinkLostOnRemount "shrink-lost-on-remount"
        "A file that was shrunk has its old size and bytes again after a remount."
        "btrfs without no-holes, Linux 6.18: the size of a file is that of an earlier time after a clean unmount";
    PunchLostOnRemount "punch-lost-on-remount"
        "A hole that was punched has its old bytes again after a remount."
        "class: a block that a punch leaves behind on the disk, hidden by the page cache";
    ReservationLeak "reservation-leak"
        "Space reserved behind the end of a file is missing after the file is gone and a remount."
        "class: preallocated blocks that are freed in memory only";
    XattrLostOnRename "xattr-lost-on-rename"
        "Renaming a file drops its extended attributes."
        "class: a rename made of copy and remove that forgets attributes";
    XattrReplaceCreates "xattr-replace-creates"
        "setxattr with XATTR_REPLACE creates an attribute that does not exist."
        "class: the flags of setxattr(2) are not passed on";
    XattrTail "xattr-tail"
        "Replacing an extended attribute by a shorter value leaves the tail of the old one."
        "class: a value replaced in place keeps its old length";
    TruncateThroughLink "truncate-through-link"
        "Truncating a file with several names to zero does nothing."
        "class: O_TRUNC through a hard link, where attributes are kept per name and not per inode";
    BlockLeak "block-leak"
        "Removing an inode does not give its blocks back."
        "NILFS2, found by Metis: stuck at 100 % full after everything was deleted";
    InodeLeak "inode-leak"
        "Removing an inode does not give its inode number back."
        "class: counters that drift, which e2fsck reports as a wrong free inodes count";
    KeepSizeIgnored "keep-size-ignored"
        "fallocate with FALLOC_FL_KEEP_SIZE changes the size."
        "ext4 and F2FS (xfstests generic/468): blocks beyond the end of a file treated wrongly";
    ZeroRangeExtends "zero-range-extends"
        "FALLOC_FL_ZERO_RANGE with FALLOC_FL_KEEP_SIZE changes the size."
        "F2FS, found by CrashMonkey: size 8192 instead of 4096 after ZERO_RANGE|KEEP_SIZE";
    PunchPartialBlock "punch-partial-block"
        "Punching a hole does not zero the blocks it covers in part."
        "btrfs up to 3.13 (xfstests generic/059): a small punch does nothing";
    FallocateZeroes "fallocate-zeroes"
        "fallocate over existing data zeroes it."
        "class: an extent that holds data is marked as unwritten";
    WriteSplit "write-split"
        "Of a write across a page boundary only the part before it arrives; the rest is zeros."
        "class: a write is split at a page boundary, and a short copy counts as complete";
    AppendAtPage "append-at-page"
        "A write at the end of a file that fills its last page goes to the start of that page."
        "class: the place of the end of a file computed from its last block, which is full";
    IndirectBlockLost "indirect-block-lost"
        "Data after the twelfth block of a file reads as zeros."
        "class: the step from direct to indirect blocks in formats like that of ext2";
    CopyRangeShort "copy-range-short"
        "copy_file_range reports everything and leaves out what does not fill a block."
        "class: whole blocks cloned for a range that does not end at one, see xfstests generic/430 to /434";
    SeekHolePastEnd "seek-hole-past-end"
        "SEEK_HOLE in the last block answers with an offset after the end of the file."
        "class: SEEK_HOLE in whole blocks, what xfstests generic/285 looks for";
    SeekDataBlind "seek-data-blind"
        "SEEK_DATA does not find data after the twelfth block of a file."
        "ext4 with block-mapped files, Linux 6.12 to 6.18: ENXIO for data that is not written back yet";
    OrphanLosesData "orphan-loses-data"
        "Unlinking the last name of an open file empties it."
        "class: file servers that do not know open files, for which NFS invented the silly rename";
    RenameLosesTarget "rename-loses-target"
        "A rename that fails with ENOTEMPTY has already removed a file of the target."
        "btrfs, found by CrashMonkey: neither the old nor the new file is there after a rename";
    RmdirErrno "rmdir-errno"
        "Removing a directory that is not empty fails with EEXIST."
        "class: POSIX allows EEXIST and ENOTEMPTY, programs for Linux expect the latter";
    SetgidGroup "setgid-group"
        "A new file in a setgid directory gets the group of the caller."
        "XFS, CVE-2021-4037, and the VFS, CVE-2018-13405: setgid directories handled wrongly";
    SetgidMkdir "setgid-mkdir"
        "A new directory in a setgid directory is not setgid."
        "class: servers that apply the mode of the call and nothing else";
    ChmodDropsSetuid "chmod-drops-setuid"
        "chmod cannot set the setuid bit."
        "class: servers that mask modes with 0777";
    SetuidSurvives "setuid-survives"
        "Nothing can take the setuid bit of a file away, not even a write."
        "class: setuid kept after a change by somebody else, what xfstests generic/673 and /683 to /687 look for";
    ChgrpChangesOwner "chgrp-changes-owner"
        "Changing only the group sets the owner to the same number."
        "class: a setattr that does not ask which of its fields are valid";
    SymlinkTruncated "symlink-truncated"
        "The target of a symbolic link ends after 59 bytes."
        "class: fast symbolic links of ext2 and its heirs, kept in the 60 bytes of the block map";
    LinkCountStuck "link-count-stuck"
        "A new hard link does not raise the link count."
        "btrfs, found by CrashMonkey: nlink 1 instead of 2 after link and recovery";
    MkdirNlink "mkdir-nlink"
        "Making a directory does not raise the link count of its parent."
        "JFS, found by Metis: nlink of the root directory differs from ext4";
    RmdirNlink "rmdir-nlink"
        "Removing a directory does not lower the link count of its parent."
        "JFS, found by Metis: nlink of the root directory differs from ext4";
    RenameDirNlink "rename-dir-nlink"
        "Moving a directory does not raise the link count of its new parent."
        "class: link counts of both parents when a directory moves";
    ExchangeOverwrites "exchange-overwrites"
        "RENAME_EXCHANGE is an ordinary rename: the target is lost."
        "class: the flags of renameat2(2) are not passed on";
    WhiteoutMissing "whiteout-missing"
        "RENAME_WHITEOUT leaves nothing behind."
        "class: RENAME_WHITEOUT accepted and forgotten, what xfstests generic/078 looks for";
    MappedTailShows "mapped-tail-shows"
        "Bytes stored through a mapping behind the end of a file show when it grows."
        "tmpfs up to Linux 6.18, ext2, jfs, minix and FAT: the rest of the last page is not zeroed";
    TmpfileLinkEmpties "tmpfile-link-empties"
        "A file without a name loses its contents when it gets one."
        "class: a file of O_TMPFILE on the list of orphans, truncated although linkat named it";
    ReaddirDuplicate "readdir-duplicate"
        "A renamed entry is listed twice."
        "class: directories read in the order of hashes, where a rename moves an entry past the reader";
    ReaddirSkips "readdir-skips"
        "After an unlink the entry that followed is not listed until a remount."
        "class: directory offsets that are positions, so that an entry is skipped when its neighbour goes";
    ListingSkips "listing-skips"
        "A listing that goes on behind an entry that was removed meanwhile skips the next one."
        "class: the place in an open directory is the number of an entry, which another one has afterwards";
    ListingRestarts "listing-restarts"
        "A listing that goes on behind an entry that was removed meanwhile begins again."
        "class: the place in an open directory is looked up by an entry, and lost with it";
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no mutant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mutant {0:?}: `fathom list mutants` shows all of them")]
pub struct UnknownMutant(String);

impl FromStr for Mutant {
    type Err = UnknownMutant;

    fn from_str(text: &str) -> Result<Self, UnknownMutant> {
        let found = Mutant::ALL.iter().find(|mutant| mutant.name() == text);
        found.copied().ok_or_else(|| UnknownMutant(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_kebab_case_and_round_trip() {
        for mutant in Mutant::ALL {
            let name = mutant.name();
            assert!(name.bytes().all(|b| b == b'-' || b.is_ascii_lowercase()), "{name}");
            assert_eq!(name.parse(), Ok(*mutant));
            assert!(mutant.describe().ends_with('.') && !mutant.inspired_by().is_empty());
        }
        assert!(Mutant::ALL.len() >= 34);
        assert!("no-such-bug".parse::<Mutant>().unwrap_err().to_string().contains("list mutants"));
    }
}
