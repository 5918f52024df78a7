//! Test disks of file systems that are filled by a kernel: a script that needs root and a kernel with the
//! file system, which is run in a guest. A guest with a clock of its own makes the same bytes every time.

use super::description::{Description, Sort, Thing};

/// A disk that a kernel fills.
pub(super) struct Variant {
    /// The name of the disk.
    pub(super) name: &'static str,
    /// The type for mount(8), and options.
    file_system: &'static str,
    options: &'static str,
    mebibytes: u64,
    /// The command that makes the file system, without the disk.
    mkfs: &'static str,
    /// Bytes of a block: the description counts blocks.
    block_bytes: u64,
    /// The command that must find nothing wrong, without the disk.
    check: &'static str,
    lacks: &'static [Lack],
    pub(super) needs: &'static [(&'static str, &'static str)],
}

/// Something that a file system cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// Links and special files.
    Special,
    Attributes,
    /// Attributes that do not fit beside others in a node of the tree.
    LargeAttributes,
    Preallocation,
    /// Files beyond what is written.
    Holes,
}

/// xfsprogs makes such small disks only for its own tests.
const XFS_ENV: &str = "env TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 mkfs.xfs -q -f -b size=1024 \
    -d agcount=2 -L fathom";

pub(super) const VARIANTS: &[Variant] = &[
    Variant {
        name: "minix",
        file_system: "minix",
        options: "loop",
        mebibytes: 2,
        mkfs: "mkfs.minix -3 -i 160",
        block_bytes: 1024,
        check: "fsck.minix -f",
        lacks: &[Lack::Attributes, Lack::Preallocation],
        needs: &[("mkfs.minix", "util-linux")],
    },
    Variant {
        name: "minix-v1",
        file_system: "minix",
        options: "loop",
        mebibytes: 2,
        mkfs: "mkfs.minix -1 -n 30 -i 160",
        block_bytes: 1024,
        check: "fsck.minix -f",
        lacks: &[Lack::Attributes, Lack::Preallocation],
        needs: &[("mkfs.minix", "util-linux")],
    },
    Variant {
        name: "exfat",
        file_system: "exfat",
        options: "loop",
        mebibytes: 2,
        mkfs: "mkfs.exfat -c 1K -b 1K -L fathom",
        block_bytes: 1024,
        check: "fsck.exfat -n",
        lacks: &[Lack::Special, Lack::Attributes, Lack::Preallocation, Lack::Holes],
        needs: &[("mkfs.exfat", "exfatprogs")],
    },
    Variant {
        name: "jfs",
        file_system: "jfs",
        options: "loop",
        mebibytes: 16,
        mkfs: "mkfs.jfs -q -L fathom",
        block_bytes: 4096,
        check: "jfs_fsck -n -f",
        lacks: &[Lack::Preallocation],
        needs: &[("mkfs.jfs", "jfsutils")],
    },
    Variant {
        name: "xfs",
        file_system: "xfs",
        options: "loop",
        mebibytes: 32,
        mkfs: "-m uuid=01234567-89ab-cdef-0123-456789abcdef,rmapbt=1,reflink=1",
        block_bytes: 1024,
        check: "xfs_repair -n -f",
        lacks: &[],
        needs: &[("mkfs.xfs", "xfsprogs")],
    },
    Variant {
        name: "xfs-v4",
        file_system: "xfs",
        options: "loop",
        mebibytes: 32,
        mkfs: "-m crc=0,uuid=01234567-89ab-cdef-0123-456789abcdef",
        block_bytes: 1024,
        check: "xfs_repair -n -f",
        lacks: &[],
        needs: &[("mkfs.xfs", "xfsprogs")],
    },
    Variant {
        name: "btrfs",
        file_system: "btrfs",
        options: "loop",
        mebibytes: 16,
        mkfs: "mkfs.btrfs -q -f --mixed -L fathom -U 01234567-89ab-cdef-0123-456789abcdef",
        block_bytes: 4096,
        check: "btrfs check",
        lacks: &[],
        needs: &[("mkfs.btrfs", "btrfs-progs")],
    },
    Variant {
        name: "f2fs",
        file_system: "f2fs",
        options: "loop",
        mebibytes: 52,
        mkfs: "mkfs.f2fs -q -f -l fathom -O extra_attr,inode_checksum,sb_checksum",
        block_bytes: 4096,
        check: "fsck.f2fs --dry-run",
        lacks: &[],
        needs: &[("mkfs.f2fs", "f2fs-tools")],
    },
    Variant {
        name: "reiserfs",
        file_system: "reiserfs",
        options: "loop,user_xattr",
        mebibytes: 12,
        mkfs: "mkreiserfs -q -f -f -b 4096 -s 513 -l fathom -u 01234567-89ab-cdef-0123-456789abcdef",
        block_bytes: 4096,
        check: "reiserfsck --check -f -y -q",
        lacks: &[Lack::Preallocation, Lack::LargeAttributes],
        needs: &[("mkreiserfs", "reiserfsprogs")],
    },
];

/// Variants that there is also a dirty disk of, with its name: the disk as it was while it was mounted, with a
/// journal to replay and an open file without a name. Not xfs: xfs_repair refuses a dirty log.
pub(super) const DIRTY: &[(&str, &str)] = &[
    ("jfs", "jfs-dirty"),
    ("btrfs", "btrfs-dirty"),
    ("f2fs", "f2fs-dirty"),
    ("reiserfs", "reiserfs-dirty"),
];

/// What happens on a dirty disk after everything else is durable; then the disk is copied as it is.
const LATE: &str = r#"sync
exec 3> orphan
head -c 9000 /dev/zero >&3
rm orphan
mkdir late
i=1
while [ $i -le 10 ]; do echo $i > late/f$i; i=$((i + 1)); done
dd if=/dev/zero of=late/durable bs=4096 count=2 conv=fsync status=none
cp --sparse=always ../disk "$image"
exec 3>&-
cd ..
umount mnt
"#;

/// The head of the script: a function that writes blocks of a file, each with its number all over.
const HEAD: &str = r#"#!/bin/sh
# Makes the disk $1 (default: disk.img). It is mounted on a loop device, so this is for root, best in a guest:
# fathom guest run KERNEL --writable . -- sh script.sh disk.img
set -e
export LC_ALL=C TZ=UTC
PATH=$PATH:/usr/sbin:/sbin
image=$(realpath "${1:-disk.img}")
dir=$(mktemp -d)
trap 'cd /; umount "$dir/mnt" 2> /dev/null || :; rm -rf "$dir"' EXIT
cd "$dir"
mkdir mnt

# fill FILE FIRST COUNT STEP: blocks, each with its number; what lies between them is a hole.
fill() {
  awk -v first="$2" -v count="$3" -v step="$4" -v size="$block" 'BEGIN {
    for (i = 0; i < size / 8; i++) hole = hole "~~~~~~~~"
    for (i = 0; i < count; i++) {
      number = sprintf("%07d ", first + i * step); block = ""
      for (j = 0; j < size / 8; j++) block = block number
      printf "%s", block
      if (i < count - 1) for (j = 1; j < step; j++) printf "%s", hole
    }
  }' | tr '~' '\000' | dd of="$1" bs="$block" seek="$2" iflag=fullblock conv=notrunc,sparse status=none
}
"#;

impl Variant {
    fn can(&self, lack: Lack) -> bool {
        !self.lacks.contains(&lack)
    }
}

/// The script that makes a disk: what the file system can hold of the description; copied while it is mounted
/// if it is to be dirty.
pub(super) fn script(variant: &Variant, description: &Description, dirty: bool) -> String {
    let mkfs = match variant.file_system {
        "xfs" => format!("{XFS_ENV} {}", variant.mkfs),
        _ => variant.mkfs.to_owned(),
    };
    let mut text = format!("{HEAD}\nblock={}\n", variant.block_bytes);
    text.push_str(&format!(
        "truncate -s {}M disk\n{mkfs} disk > log 2>&1 || {{ cat log; exit 1; }}\n",
        variant.mebibytes
    ));
    let (file_system, options) = (variant.file_system, variant.options);
    text.push_str(&format!("mount -t {file_system} -o {options} disk mnt\ncd mnt\n"));
    for thing in &description.objects {
        object(thing, variant, &mut text);
    }
    if dirty {
        text.push_str(LATE);
        return text;
    }
    text.push_str("cd ..\numount mnt\n");
    // A checker of 0 finds nothing; whatever else it says is the reader's to see.
    text.push_str(&format!("{} disk > log 2>&1 || {{ cat log; exit 1; }}\n", variant.check));
    text.push_str("cp --sparse=always disk \"$image\"\n");
    text
}

/// The commands that make an object.
fn object(thing: &Thing, variant: &Variant, text: &mut String) {
    let path = thing.path.trim_start_matches('/');
    let mut line = |words: String| text.push_str(&format!("{words}\n"));
    let special = variant.can(Lack::Special);
    match thing.kind {
        Sort::Directory => line(format!("mkdir {path}")),
        Sort::File => {
            for run in thing.runs() {
                // Without holes everything before a far block would have to be written.
                if variant.can(Lack::Holes) || run.first < 1000 {
                    line(format!("fill {path} {} {} {}", run.first, run.count, run.step));
                }
            }
            if !thing.text.is_empty() {
                line(format!("printf %s '{}' > {path}", thing.text));
            }
            if thing.preallocated > 0 && variant.can(Lack::Preallocation) {
                let bytes = thing.preallocated * variant.block_bytes;
                line(format!("fallocate -l {bytes} {path}"));
            }
        }
        Sort::Symlink if special => line(format!("ln -s {} {path}", thing.text)),
        Sort::BlockDevice if special => {
            line(format!("mknod {path} b {} {}", thing.device.0, thing.device.1));
        }
        Sort::CharacterDevice if special => {
            line(format!("mknod {path} c {} {}", thing.device.0, thing.device.1));
        }
        Sort::Fifo if special => line(format!("mkfifo {path}")),
        Sort::Link if special => {
            line(format!("ln {} {path}", thing.text.trim_start_matches('/')));
        }
        Sort::Many => line(format!(
            "i=1; while [ $i -le {} ]; do : > {path}$i; i=$((i + 1)); done",
            thing.count
        )),
        _ => {}
    }
    for (attribute, bytes) in &thing.attributes {
        let fits = *bytes < 1000 || variant.can(Lack::LargeAttributes);
        if variant.can(Lack::Attributes) && fits {
            line(format!(
                "setfattr -n {attribute} -v \"$(head -c {bytes} /dev/zero | tr '\\000' v)\" {path}"
            ));
        }
    }
}
