//! Named bugs that can be switched on: the reference file system as a liar, to test the tester.
//!
//! Each is modelled on a bug that file systems really had. All of them sit in the volume layer, so
//! they show in process as well as through a mount, except the few that [`Mutant::shows_through_fuse`]
//! names. Switched off they cost a comparison of one byte.

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

            /// The real bug behind it.
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
        "btrfs up to 4.4 (xfstests generic/335, /336): removed entries come back";
    OrphanReturns "orphan-returns"
        "A file that was unlinked while it was open is back after a remount."
        "ext3 and ext4 orphan list not processed (xfstests generic/388)";
    RenameSourceReturns "rename-source-returns"
        "After a remount a renamed file has its old name too."
        "btrfs, found by CrashMonkey: a renamed file is in both directories";
    LinkSplits "link-splits"
        "After a remount every name of a hard-linked file is a file of its own."
        "FAT-like and overlay copy-up behaviour: overlayfs without index=on breaks hard links";
    XattrLostOnRemount "xattr-lost-on-remount"
        "All extended attributes are gone after a remount."
        "btrfs up to 3.13 (xfstests generic/066): attributes wrong after log replay";
    SymlinkEmptyOnRemount "symlink-empty-on-remount"
        "Symbolic links have an empty target after a remount."
        "btrfs up to 4.4 (xfstests generic/348): empty symbolic link";
    XattrLostOnRename "xattr-lost-on-rename"
        "Renaming a file drops its extended attributes."
        "FUSE and overlay file systems that copy and unlink instead of renaming";
    XattrReplaceCreates "xattr-replace-creates"
        "setxattr with XATTR_REPLACE creates an attribute that does not exist."
        "flags of setxattr ignored (xfstests generic/097, CVE-free but common in FUSE file systems)";
    XattrTail "xattr-tail"
        "Replacing an extended attribute by a shorter value leaves the tail of the old one."
        "ext4 in-inode attributes: value size not updated on replacement in place";
    TruncateThroughLink "truncate-through-link"
        "Truncating a file with several names to zero does nothing."
        "O_TRUNC ignored through a hard link: attribute cache per name, as in early VeriFS";
    BlockLeak "block-leak"
        "Removing an inode does not give its blocks back."
        "NILFS2, found by Metis: stuck at 100 % full after everything was deleted";
    InodeLeak "inode-leak"
        "Removing an inode does not give its inode number back."
        "ext4 fast commit and XFS inode counters drifting from the real number (xfstests xfs/030)";
    KeepSizeIgnored "keep-size-ignored"
        "fallocate with FALLOC_FL_KEEP_SIZE changes the size."
        "btrfs and F2FS after a crash, found by CrashMonkey (xfstests generic/468)";
    ZeroRangeExtends "zero-range-extends"
        "FALLOC_FL_ZERO_RANGE with FALLOC_FL_KEEP_SIZE changes the size."
        "F2FS, found by CrashMonkey: size 8192 instead of 4096 after ZERO_RANGE|KEEP_SIZE";
    PunchPartialBlock "punch-partial-block"
        "Punching a hole does not zero the blocks it covers in part."
        "btrfs up to 3.13 (xfstests generic/059): a small punch does nothing";
    FallocateZeroes "fallocate-zeroes"
        "fallocate over existing data zeroes it."
        "ext4: unwritten conversion of an extent that holds data (xfstests ext4/307, generic/567)";
    CollapseLosesBlock "collapse-loses-block"
        "FALLOC_FL_COLLAPSE_RANGE loses the first block after the range."
        "ext4 collapse range off by one block (xfstests generic/021)";
    InsertKeepsTail "insert-keeps-tail"
        "FALLOC_FL_INSERT_RANGE makes the file longer and moves nothing."
        "XFS insert range with a failed extent shift (xfstests generic/485)";
    WriteSplit "write-split"
        "Of a write across a page boundary only the part before it arrives; the rest is zeros."
        "iomap and FUSE short copies: a short copy_from_user counted as complete";
    AppendAtPage "append-at-page"
        "A write at the end of a file that fills its last page goes to the start of that page."
        "O_APPEND with a stale size at a block boundary (NFS and FUSE write-back)";
    IndirectBlockLost "indirect-block-lost"
        "Data after the twelfth block of a file reads as zeros."
        "ext2-like indirect blocks lost: the first block behind the direct ones (xfstests generic/299)";
    CopyRangeShort "copy-range-short"
        "copy_file_range reports everything and leaves out what does not fill a block."
        "btrfs and XFS reflink with an unaligned end (xfstests generic/430, /431)";
    SeekHolePastEnd "seek-hole-past-end"
        "SEEK_HOLE in the last block answers with an offset after the end of the file."
        "ext4 and NFS: SEEK_HOLE rounded to blocks (xfstests generic/285)";
    OrphanLosesData "orphan-loses-data"
        "Unlinking the last name of an open file empties it."
        "open-unlinked files on file systems without an orphan list (early FUSE and SMB servers)";
    RenameLosesTarget "rename-loses-target"
        "A rename that fails with ENOTEMPTY has already removed a file of the target."
        "btrfs, found by CrashMonkey: neither the old nor the new file is there after a rename";
    RmdirErrno "rmdir-errno"
        "Removing a directory that is not empty fails with EEXIST."
        "POSIX allows both, Linux programs expect ENOTEMPTY: a classic of ported file systems";
    SetgidGroup "setgid-group"
        "A new file in a setgid directory gets the group of the caller."
        "XFS and overlayfs setgid inheritance (xfstests generic/633, CVE-2018-13405 and its fixes)";
    SetgidMkdir "setgid-mkdir"
        "A new directory in a setgid directory is not setgid."
        "CIFS, NFS and FUSE servers that apply the mode of the call only";
    ChmodDropsSetuid "chmod-drops-setuid"
        "chmod cannot set the setuid bit."
        "9p and FUSE servers that mask the mode with 0777";
    SetuidSurvives "setuid-survives"
        "Nothing can take the setuid bit of a file away, not even a write."
        "setuid kept after a write or fallocate by another user (xfstests generic/673, /683 to /687)";
    ChgrpChangesOwner "chgrp-changes-owner"
        "Changing only the group sets the owner to the same number."
        "setattr that ignores which fields are valid: a classic of FUSE servers";
    SymlinkTruncated "symlink-truncated"
        "The target of a symbolic link ends after 59 bytes."
        "ext2-like fast symbolic links: the target kept in the inode although it does not fit";
    LinkCountStuck "link-count-stuck"
        "A new hard link does not raise the link count."
        "btrfs, found by CrashMonkey: nlink 1 instead of 2 (xfstests generic/107)";
    MkdirNlink "mkdir-nlink"
        "Making a directory does not raise the link count of its parent."
        "JFS, found by Metis: nlink of the root directory differs from ext4";
    RmdirNlink "rmdir-nlink"
        "Removing a directory does not lower the link count of its parent."
        "JFS, found by Metis: nlink of the root directory differs from ext4";
    RenameDirNlink "rename-dir-nlink"
        "Moving a directory does not raise the link count of its new parent."
        "UDF and exFAT cross-directory rename of directories";
    RenameDotdot "rename-dotdot"
        "After a directory has moved, its `..` is still the old parent."
        "F2FS and UDF: `..` not updated by a cross-directory rename";
    ExchangeOverwrites "exchange-overwrites"
        "RENAME_EXCHANGE is an ordinary rename: the target is lost."
        "FUSE and network file systems that ignore the flags of renameat2";
    WhiteoutMissing "whiteout-missing"
        "RENAME_WHITEOUT leaves nothing behind."
        "XFS and ext4 whiteouts lost (xfstests generic/078, overlay/006)";
    ReaddirDuplicate "readdir-duplicate"
        "A renamed entry is listed twice."
        "directories indexed by hash: a rename moves an entry past the cursor (ext3 htree, NFS cookies)";
    ReaddirSkips "readdir-skips"
        "After an unlink the entry that followed is not listed until a remount."
        "littlefs and tmpfs offsets: an entry is skipped when its neighbour goes (tmpfs, Linux 6.6)";
}

impl Mutant {
    /// Whether the bug shows through a FUSE mount too. The kernel keeps `..` itself, and it does not
    /// pass `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE` on (`fuse_file_fallocate`).
    pub fn shows_through_fuse(self) -> bool {
        !matches!(
            self,
            Mutant::RenameDotdot | Mutant::CollapseLosesBlock | Mutant::InsertKeepsTail
        )
    }
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
