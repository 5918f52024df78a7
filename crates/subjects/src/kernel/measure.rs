//! [`Measured`]: the limits of a file system as it was made, read from itself.
//!
//! A profile has the limits of one block size. What options of mkfs made of them is not guessed from
//! the options: the block size comes from statfs(2), what else ext2 to ext4 and XFS depend on from the
//! superblock of the disk (which is ours), the size of btrfs's nodes from an ioctl.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use fathom_core::flags::{FallocateMode, RenameFlags};
use fathom_model::{Config, Quirks};
use rustix::fs::{Mode, OFlags, SeekFrom, StatFs};

use super::{Disk, KernelSubject};
use crate::error::SubjectError;

/// From the kernel's `include/uapi/linux/magic.h`; the C library does not have it.
const EXFAT_SUPER_MAGIC: libc::__fsword_t = 0x2011_BAB0;

/// The largest block that the reference knows.
const BLOCK_BYTES_MAX: u32 = 4096;

/// The longest target that symlink(2) takes, whatever the file system.
const PATH_BYTES_MAX: u32 = 4095;

/// The modes of fallocate(2) that move data.
const MOVES: FallocateMode =
    FallocateMode::FALLOC_FL_COLLAPSE_RANGE.union(FallocateMode::FALLOC_FL_INSERT_RANGE);

/// What a file system says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The unit in which it allocates, as some calls show it (`FALLOC_FL_COLLAPSE_RANGE`).
    pub block_bytes: u32,
    format: Format,
}

/// What limits depend on beyond the block size.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Format {
    Ext(Ext),
    Btrfs {
        node_bytes: u32,
    },
    Xfs {
        /// Whether seconds have more than 32 bits (`bigtime`).
        big_times: bool,
    },
    /// A file is at most as large as the volume.
    Exfat {
        position_max: u64,
    },
    Other,
}

/// Fields of the superblock (fs/ext4/ext4.h `struct ext4_super_block`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ext {
    inode_bytes: u32,
    extents: bool,
    huge_files: bool,
    attribute_inodes: bool,
    /// Served by fs/ext2 and not by fs/ext4.
    own_driver: bool,
    /// An overlay lies on it.
    layered: bool,
    /// Blocks that are allocated together: a block without bigalloc.
    cluster_bytes: u32,
    /// Everything is encrypted (`test_dummy_encryption`).
    encrypted: bool,
}

impl KernelSubject {
    /// Asks the mounted file system, under its layer if it has one.
    ///
    /// # Errors
    /// If it does not answer, or contradicts itself.
    pub fn measure(&self) -> Result<Measured, SubjectError> {
        let base = self.backend.base.as_ref().expect("a mounted file system");
        let statfs = rustix::fs::fstatfs(base).map_err(|errno| failed(errno.into()))?;
        let block_bytes = block_bytes(&statfs)?;
        let format = match (statfs.f_type, &self.backend.disk) {
            (libc::EXT4_SUPER_MAGIC, Some(disk)) => {
                let superblock = superblock(disk, EXT_SUPERBLOCK_AT)?;
                let ext = Ext::read(&superblock, block_bytes)?;
                let encrypted = |option: &String| option.starts_with("test_dummy_encryption");
                let encrypted = self.recipe().options.iter().any(encrypted);
                let layered = self.recipe().layer.is_some();
                Format::Ext(Ext { own_driver: self.is_own_ext2(), layered, encrypted, ..ext })
            }
            (libc::XFS_SUPER_MAGIC, Some(disk)) => {
                Format::Xfs { big_times: has_big_times(&superblock(disk, 0)?)? }
            }
            _ => format_of(&statfs, base.as_fd())?,
        };
        Ok(Measured { block_bytes, format })
    }

    /// Whether fs/ext2 serves it: fs/ext4 has a directory in sysfs for every device.
    fn is_own_ext2(&self) -> bool {
        let name = self.device().and_then(Path::file_name);
        let ext4 = Path::new("/sys/fs/ext4");
        self.recipe().fs_type == "ext2"
            && Path::new("/sys/fs").is_dir()
            && name.is_some_and(|name| !ext4.join(name).exists())
    }
}

impl Measured {
    /// Asks the file system of a directory; `None` if it is not one that is known. What only its
    /// superblock says is taken from its profile.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) fn of_directory(dir: &Path) -> Result<Option<Measured>, SubjectError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::openat(rustix::fs::CWD, dir, flags, Mode::empty());
        let open = open.map_err(|errno| SubjectError::io("open", dir)(errno.into()))?;
        let statfs = rustix::fs::fstatfs(&open)
            .map_err(|errno| SubjectError::io("look at", dir)(errno.into()))?;
        let known = [
            libc::EXT4_SUPER_MAGIC,
            libc::XFS_SUPER_MAGIC,
            libc::BTRFS_SUPER_MAGIC,
            libc::TMPFS_MAGIC,
        ];
        if !known.contains(&statfs.f_type) {
            return Ok(None);
        }
        let format = format_of(&statfs, open.as_fd())?;
        Ok(Some(Measured { block_bytes: block_bytes(&statfs)?, format }))
    }

    /// Gives the reference these limits, in the place of those of its profile.
    pub fn apply(&self, config: &mut Config) {
        let quirks = &mut config.quirks;
        // What is moved in units of blocks has its own unit; else a smaller one does not show.
        config.block_bytes = self.block_bytes.min(BLOCK_BYTES_MAX);
        quirks.move_align_bytes = match self.block_bytes {
            bytes if bytes > BLOCK_BYTES_MAX => bytes,
            _ => 0,
        };
        match &self.format {
            Format::Ext(ext) => ext.limit(self.block_bytes, quirks),
            Format::Btrfs { node_bytes } => {
                quirks.xattr_bytes_max = node_bytes - LEAF_OVERHEAD;
                // btrfs_symlink(): the target is data inside a leaf.
                quirks.symlink_bytes_max = (node_bytes - INLINE_OVERHEAD).min(PATH_BYTES_MAX);
            }
            Format::Xfs { big_times: true } => {}
            Format::Xfs { big_times: false } => quirks.time_sec_max = i64::from(i32::MAX),
            Format::Exfat { position_max } => {
                quirks.file_bytes_max = *position_max;
                quirks.vfs_file_bytes_max = *position_max;
            }
            Format::Other => {}
        }
    }
}

fn failed(error: io::Error) -> SubjectError {
    SubjectError::io("measure", "the new file system")(error)
}

fn block_bytes(statfs: &StatFs) -> Result<u32, SubjectError> {
    let bytes = u32::try_from(statfs.f_bsize).ok().filter(|bytes| bytes.is_power_of_two());
    let text = || io::Error::other(format!("statfs tells blocks of {} bytes", statfs.f_bsize));
    bytes.ok_or_else(|| failed(text()))
}

fn format_of(statfs: &StatFs, root: BorrowedFd<'_>) -> Result<Format, SubjectError> {
    match statfs.f_type {
        libc::BTRFS_SUPER_MAGIC => {
            Ok(Format::Btrfs { node_bytes: btrfs_node_bytes(root).map_err(failed)? })
        }
        EXFAT_SUPER_MAGIC => {
            Ok(Format::Exfat { position_max: position_max(root).map_err(failed)? })
        }
        _ => Ok(Format::Other),
    }
}

/// The largest position that the directory can be read from, which is the file system's limit of a file where
/// its directories have that too.
fn position_max(root: BorrowedFd<'_>) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    let accepts = |at| rustix::fs::seek(&directory, SeekFrom::Start(at)).is_ok();
    let (mut accepted, mut refused) = (0, i64::MAX as u64);
    if accepts(refused) {
        return Ok(refused);
    }
    while refused - accepted > 1 {
        let middle = accepted + (refused - accepted) / 2;
        *(if accepts(middle) { &mut accepted } else { &mut refused }) = middle;
    }
    Ok(accepted)
}

/// Where the superblock of ext2 to ext4 is, whatever the block size; that of XFS is at the beginning.
const EXT_SUPERBLOCK_AT: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 1024;

fn superblock(disk: &Disk, at: u64) -> Result<[u8; SUPERBLOCK_BYTES], SubjectError> {
    let mut superblock = [0; SUPERBLOCK_BYTES];
    rustix::io::pread(disk.image.memory(), &mut superblock, at)
        .map_err(|errno| failed(errno.into()))?;
    Ok(superblock)
}

/// fs/xfs/libxfs/xfs_format.h, `struct xfs_dsb`: version 5 with `XFS_SB_FEAT_INCOMPAT_BIGTIME`. Numbers are
/// big-endian.
fn has_big_times(superblock: &[u8; SUPERBLOCK_BYTES]) -> Result<bool, SubjectError> {
    if !superblock.starts_with(b"XFSB") {
        return Err(failed(io::Error::other("it has no superblock of XFS")));
    }
    let version = superblock[101] & 0xf;
    let incompat = u32::from_be_bytes(superblock[216..220].try_into().expect("four bytes"));
    Ok(version == 5 && incompat & 0x8 != 0)
}

impl Ext {
    fn read(superblock: &[u8], block_bytes: u32) -> Result<Ext, SubjectError> {
        let word = |at: usize| {
            let bytes = superblock[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        let half = |at: usize| u16::from_le_bytes([superblock[at], superblock[at + 1]]);
        // s_magic, s_log_block_size: what statfs said of the same disk.
        let said = 1024_u32.checked_shl(word(0x18));
        if half(0x38) != libc::EXT4_SUPER_MAGIC as u16 || said != Some(block_bytes) {
            let text = format!("its superblock says {said:?}, statfs {block_bytes} bytes a block");
            return Err(failed(io::Error::other(text)));
        }
        let (incompat, ro_compat) = (word(0x60), word(0x64));
        Ok(Ext {
            inode_bytes: u32::from(half(0x58)),
            extents: incompat & 0x40 != 0,
            huge_files: ro_compat & 0x8 != 0,
            attribute_inodes: incompat & 0x400 != 0,
            own_driver: false,
            layered: false,
            // s_log_cluster_size counts like s_log_block_size, and means something with bigalloc.
            cluster_bytes: match ro_compat & 0x200 {
                0 => block_bytes,
                _ => 1024_u32.checked_shl(word(0x1c)).unwrap_or(block_bytes),
            },
            encrypted: false,
        })
    }

    fn limit(&self, block_bytes: u32, quirks: &mut Quirks) {
        // A symbolic link is one block with a zero byte at its end, and two bytes for the length of
        // the ciphertext (`fscrypt_prepare_symlink`); a path has at most 4095 bytes.
        let own = if self.encrypted { 3 } else { 1 };
        quirks.symlink_bytes_max = (block_bytes - own).min(PATH_BYTES_MAX);
        if self.cluster_bytes > block_bytes {
            quirks.move_align_bytes = self.cluster_bytes;
        }
        if self.encrypted {
            // ext4_fallocate(): blocks are encrypted with their number, and cannot move.
            quirks.fallocate_modes -= MOVES;
        }
        quirks.vfs_file_bytes_max = self.extent_bytes_max(block_bytes);
        quirks.file_bytes_max = if self.extents {
            quirks.vfs_file_bytes_max
        } else {
            self.mapped_bytes_max(block_bytes).min(quirks.vfs_file_bytes_max)
        };
        if !self.extents {
            quirks.fallocate_allocate = false;
            quirks.fallocate_modes &= FallocateMode::FALLOC_FL_PUNCH_HOLE;
            quirks.fallocate_privileges_vary = true;
        }
        // A block less its header of 32 bytes and the 4 zero bytes at its end; and what is left in an
        // inode behind the 160 bytes that are in use, less a magic number and an end.
        quirks.xattr_total_bytes_sure = block_bytes - 36;
        let in_inode = self.inode_bytes.saturating_sub(168);
        quirks.xattr_total_bytes_max = match self.attribute_inodes {
            // Large values have inodes of their own: how much fits depends on each.
            true => u32::MAX,
            false => quirks.xattr_total_bytes_sure + in_inode,
        };
        if self.own_driver {
            // ext2_rename() knows one flag, ext2_file_operations has no fallocate(), ext2_max_size() is
            // also the limit of the VFS (of positions in directories too), and times have 32 bits of seconds.
            quirks.rename_flags = RenameFlags::RENAME_NOREPLACE;
            quirks.fallocate_modes = FallocateMode::empty();
            // An overlay drops setuid and setgid before it asks.
            quirks.fallocate_privileges_vary = self.layered;
            quirks.vfs_file_bytes_max = quirks.file_bytes_max;
            quirks.directory_seek_limited = true;
            quirks.time_sec_max = i64::from(i32::MAX);
            quirks.time_grain_nsec = 1_000_000_000;
            // It has no SEEK_HOLE: what lies in a large hole would have to be read to be compared.
            quirks.hole_bytes_max = 64 << 20;
            // Neither ext2_setsize() nor a write zeroes what is in the page behind the old end, as fs/ext4 does. See
            // docs/FOUND_BUGS.md.
            quirks.mapped_tail_shows = true;
        }
        if self.inode_bytes <= 128 {
            quirks.time_sec_max = i64::from(i32::MAX);
        }
    }

    /// Blocks of a file as far as its count of sectors goes (`i_blocks`).
    fn counted_blocks_max(&self, block_bytes: u32) -> u64 {
        let sectors = if self.huge_files { (1 << 48) - 1 } else { u64::from(u32::MAX) };
        match self.huge_files {
            true => sectors,
            false => sectors / u64::from(block_bytes / 512),
        }
    }

    /// `ext4_max_size` of fs/ext4/super.c: extents count blocks with 32 bits.
    fn extent_bytes_max(&self, block_bytes: u32) -> u64 {
        let blocks = u64::from(u32::MAX).min(match self.extents {
            true => self.counted_blocks_max(block_bytes),
            false => u64::MAX,
        });
        blocks * u64::from(block_bytes)
    }

    /// `ext4_max_bitmap_size` of fs/ext4/super.c: 12 blocks, and three levels of maps; map blocks are
    /// counted too.
    fn mapped_bytes_max(&self, block_bytes: u32) -> u64 {
        let per_block = u64::from(block_bytes / 4);
        let counted = self.counted_blocks_max(block_bytes);
        let mapped = 12 + per_block + per_block.pow(2) + per_block.pow(3);
        let maps = 1 + (1 + per_block) + (1 + per_block + per_block.pow(2));
        if mapped + maps <= counted {
            return mapped * u64::from(block_bytes);
        }
        let rest = counted - 12 - per_block;
        let maps = if rest < per_block.pow(2) {
            2 + rest.div_ceil(per_block)
        } else {
            let rest = rest - per_block.pow(2);
            3 + per_block + rest.div_ceil(per_block) + rest.div_ceil(per_block.pow(2))
        };
        (counted - maps) * u64::from(block_bytes)
    }
}

/// What an attribute needs in a leaf of btrfs beside its name and value: the header of the leaf (101
/// bytes), of its item (25) and of the attribute (30); `BTRFS_MAX_XATTR_SIZE` of fs/btrfs/fs.h.
const LEAF_OVERHEAD: u32 = 101 + 25 + 30;

/// What data inside a leaf needs beside itself: the header of the leaf, of its item, and of a file
/// extent (21 bytes); `BTRFS_MAX_INLINE_DATA_SIZE` of fs/btrfs/fs.h.
const INLINE_OVERHEAD: u32 = 101 + 25 + 21;

/// `BTRFS_IOC_FS_INFO` of include/uapi/linux/btrfs.h: `_IOR(0x94, 31, struct btrfs_ioctl_fs_info_args)`,
/// which has 1024 bytes.
const BTRFS_IOC_FS_INFO: libc::Ioctl = 0x8400_941f_u32 as libc::Ioctl;

/// Where `nodesize` is in that structure: behind max_id, num_devices and the identity.
const NODE_BYTES_AT: usize = 8 + 8 + 16;

#[allow(unsafe_code, reason = "an ioctl")]
fn btrfs_node_bytes(root: BorrowedFd<'_>) -> io::Result<u32> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    let mut info = [0_u8; 1024];
    // SAFETY: a descriptor of ours, and room for the whole structure.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), BTRFS_IOC_FS_INFO, info.as_mut_ptr()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = info[NODE_BYTES_AT..NODE_BYTES_AT + 4].try_into().expect("four bytes");
    match u32::from_le_bytes(bytes) {
        bytes @ 4096..=65536 => Ok(bytes),
        bytes => Err(io::Error::other(format!("btrfs tells nodes of {bytes} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(profile: &str, block_bytes: u32, format: Format) -> Quirks {
        let quirks = Quirks::profile(profile).unwrap();
        let mut config = Config { quirks, ..Config::default() };
        Measured { block_bytes, format }.apply(&mut config);
        assert_eq!(config.block_bytes, block_bytes);
        config.quirks
    }

    fn ext(extents: bool) -> Ext {
        Ext {
            inode_bytes: 256,
            extents,
            huge_files: extents,
            attribute_inodes: false,
            own_driver: false,
            layered: false,
            cluster_bytes: 1024,
            encrypted: false,
        }
    }

    #[test]
    fn the_formulas_give_what_the_profiles_say() {
        let profiles = [
            ("ext4", 4096, true),
            ("ext4-1k", 1024, true),
            ("ext2", 4096, false),
            ("ext2-1k", 1024, false),
        ];
        for (profile, block_bytes, extents) in profiles {
            let expected = Quirks::profile(profile).unwrap();
            assert_eq!(limited(profile, block_bytes, Format::Ext(ext(extents))), expected);
            // Whatever profile one begins with.
            let base = if extents { "ext4" } else { "ext2" };
            assert_eq!(limited(base, block_bytes, Format::Ext(ext(extents))), expected);
        }
        let btrfs = Quirks::profile("btrfs").unwrap();
        assert_eq!(limited("btrfs", 4096, Format::Btrfs { node_bytes: 16384 }), btrfs);
        let small = limited("btrfs", 4096, Format::Btrfs { node_bytes: 4096 });
        assert_eq!((small.xattr_bytes_max, small.symlink_bytes_max), (3940, 3949));
    }

    #[test]
    fn block_sizes_between_have_their_own_limits() {
        let quirks = limited("ext4", 2048, Format::Ext(ext(true)));
        assert_eq!(quirks.symlink_bytes_max, 2047);
        assert_eq!(quirks.file_bytes_max, 8_796_093_020_160);
        assert_eq!((quirks.xattr_total_bytes_sure, quirks.xattr_total_bytes_max), (2012, 2100));
        let old = Ext { inode_bytes: 128, ..ext(true) };
        let quirks = limited("ext4", 4096, Format::Ext(old));
        assert_eq!((quirks.xattr_total_bytes_sure, quirks.xattr_total_bytes_max), (4060, 4060));
        assert_eq!(quirks.time_sec_max, 2_147_483_647);
        let own = limited("ext2-1k", 1024, Format::Ext(Ext { own_driver: true, ..ext(false) }));
        assert!(!own.fallocate_privileges_vary && own.mapped_tail_shows);
        // Served by fs/ext4, it zeroes the rest of the last page.
        assert!(!limited("ext2-1k", 1024, Format::Ext(ext(false))).mapped_tail_shows);
        let under = Ext { own_driver: true, layered: true, ..ext(false) };
        assert!(limited("ext2-1k", 1024, Format::Ext(under)).fallocate_privileges_vary);
        assert_eq!(own.vfs_file_bytes_max, 17_247_252_480);
        assert_eq!(own.rename_flags, RenameFlags::RENAME_NOREPLACE);
        let mapped = Ext { extents: false, ..ext(true) };
        assert!(!limited("ext4", 4096, Format::Ext(mapped)).fallocate_allocate);
    }

    #[test]
    fn a_superblock_that_contradicts_is_refused() {
        let mut superblock = [0; SUPERBLOCK_BYTES];
        assert!(Ext::read(&superblock, 1024).is_err(), "no magic number");
        superblock[0x38..0x3a].copy_from_slice(&0xef53_u16.to_le_bytes());
        superblock[0x58] = 128;
        assert_eq!(Ext::read(&superblock, 1024).unwrap().inode_bytes, 128);
        let error = Ext::read(&superblock, 4096).unwrap_err().to_string();
        assert!(error.contains("statfs 4096"), "{error}");
    }

    #[test]
    fn clusters_and_large_blocks_are_units_of_moving() {
        let bigalloc = Ext { cluster_bytes: 65536, ..ext(true) };
        assert_eq!(limited("ext4", 4096, Format::Ext(bigalloc)).move_align_bytes, 65536);
        let mut config = Config::default();
        Measured { block_bytes: 16384, format: Format::Other }.apply(&mut config);
        assert_eq!((config.block_bytes, config.move_bytes()), (4096, 16384));
        let mut superblock = [0; SUPERBLOCK_BYTES];
        superblock[0x38..0x3a].copy_from_slice(&0xef53_u16.to_le_bytes());
        superblock[0x18] = 2;
        superblock[0x1c] = 6;
        assert_eq!(Ext::read(&superblock, 4096).unwrap().cluster_bytes, 4096, "no bigalloc");
        superblock[0x65] = 0x02;
        assert_eq!(Ext::read(&superblock, 4096).unwrap().cluster_bytes, 65536);
    }

    #[test]
    fn times_of_xfs_depend_on_its_format() {
        let mut superblock = [0; SUPERBLOCK_BYTES];
        assert!(has_big_times(&superblock).is_err());
        superblock[..4].copy_from_slice(b"XFSB");
        // sb_versionnum and sb_features_incompat as mkfs.xfs 6.1 writes them: with the defaults, with
        // bigtime=0, with crc=0.
        let formats =
            [([0xb4, 0xa5], 0xbu32, true), ([0xb4, 0xa5], 0x3, false), ([0xb4, 0xa4], 0, false)];
        for (version, incompat, big_times) in formats {
            superblock[100..102].copy_from_slice(&version);
            superblock[216..220].copy_from_slice(&incompat.to_be_bytes());
            assert_eq!(has_big_times(&superblock).unwrap(), big_times);
        }
    }

    #[test]
    fn encrypted_links_are_shorter_and_encrypted_blocks_stay() {
        let quirks = limited("ext4", 4096, Format::Ext(Ext { encrypted: true, ..ext(true) }));
        assert_eq!(quirks.symlink_bytes_max, 4093);
        assert!(!quirks.fallocate_modes.intersects(MOVES));
    }
}
