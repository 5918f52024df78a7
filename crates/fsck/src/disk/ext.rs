//! Test disks of ext2, ext3 and ext4: a shell script of mke2fs and debugfs, without root.

use super::description::{Description, Sort, Thing};

/// A variant of the disk.
pub(super) struct Variant {
    /// The name of the disk.
    pub(super) name: &'static str,
    kibibytes: u64,
    mkfs: &'static str,
    /// Whether extents are switched on after the files that should have none.
    extents_later: bool,
    /// Whether the disk was not unmounted: an orphan, and a journal with something in it.
    dirty: bool,
}

/// Options that every variant has: nothing depends on the time, the host or chance.
const MKFS: &str = "mke2fs -q -F -b 1024 -I 256 -N 160 -L fathom \
    -U 01234567-89ab-cdef-0123-456789abcdef \
    -E hash_seed=00112233-4455-6677-8899-aabbccddeeff,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0";

/// A small group size gives the disk two groups.
const MIXED: &str =
    "-t ext4 -g 1536 -J size=1 -O ^extent,^metadata_csum,^64bit,^flex_bg,ea_inode,^resize_inode";

pub(super) const VARIANTS: &[Variant] = &[
    Variant { name: "ext4", kibibytes: 3072, mkfs: MIXED, extents_later: true, dirty: false },
    Variant {
        name: "ext4-csum",
        kibibytes: 9216,
        mkfs: "-t ext4 -J size=1 -O metadata_csum,64bit,ea_inode,quota,inline_data",
        extents_later: false,
        dirty: false,
    },
    Variant { name: "ext4-dirty", kibibytes: 3072, mkfs: MIXED, extents_later: true, dirty: true },
    Variant {
        name: "ext3",
        kibibytes: 3072,
        mkfs: "-t ext3 -g 1536 -J size=1 -O ^resize_inode",
        extents_later: false,
        dirty: false,
    },
    Variant {
        name: "ext2",
        kibibytes: 3072,
        mkfs: "-t ext2 -g 1536 -O ^resize_inode",
        extents_later: false,
        dirty: false,
    },
];

/// The head of the script: a function that writes blocks of a file, each with its number all over.
const HEAD: &str = r#"#!/bin/sh
# Makes the disk $1 (default: disk.img) with mke2fs and debugfs; no root.
set -e
export LC_ALL=C E2FSPROGS_FAKE_TIME=1700000000 E2FSCK_TIME=1700000000 DEBUGFS_PAGER=cat
PATH=$PATH:/usr/sbin:/sbin
image=$(realpath "${1:-disk.img}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# fill FILE FIRST COUNT STEP: blocks of 1024 bytes; what lies between them is a hole.
fill() {
  awk -v first="$2" -v count="$3" -v step="$4" 'BEGIN {
    for (i = 0; i < 128; i++) hole = hole "~~~~~~~~"
    for (i = 0; i < count; i++) {
      number = sprintf("%07d ", first + i * step); block = ""
      for (j = 0; j < 128; j++) block = block number
      printf "%s", block
      if (i < count - 1) for (j = 1; j < step; j++) printf "%s", hole
    }
  }' | tr '~' '\000' | dd of="$1" bs=1024 seek="$2" conv=notrunc status=none
}
"#;

/// The script that makes a disk.
pub(super) fn script(variant: &Variant, description: &Description) -> String {
    let mut text = HEAD.to_owned();
    text.push_str(&format!("\nrm -f \"$image\"\ntruncate -s {}K \"$image\"\n", variant.kibibytes));
    text.push_str(&format!("{MKFS} {} \"$image\"\n\n", variant.mkfs));
    text.push_str(": > empty\n");
    for thing in &description.objects {
        files(thing, &mut text);
    }
    text.push_str("\ndebugfs -w -f /dev/stdin \"$image\" > log 2>&1 <<'END'\n");
    let mut extents = !variant.extents_later;
    for thing in &description.objects {
        if thing.extents && !extents {
            extents = true;
            text.push_str("feature extents\n");
        }
        commands(thing, variant, &mut text);
    }
    text.push_str("END\n");
    // Indexes the large directory and puts right what debugfs leaves; then nothing may be wrong.
    text.push_str("e2fsck -fyD \"$image\" >> log 2>&1 || [ $? = 1 ]\n");
    text.push_str("e2fsck -fn \"$image\" >> log 2>&1 || { cat log; exit 1; }\n");
    if variant.dirty {
        text.push_str(DIRTY);
    }
    text
}

/// An orphan, and a transaction that writes a block again and revokes another.
const DIRTY: &str = r#"
inode=$(debugfs -R 'ffi' "$image" 2>/dev/null | sed -n 's/.*found: //p')
block=$(debugfs -R 'blocks small' "$image" 2>/dev/null | tr -d ' ')
dd if="$image" of=block bs=1024 skip="$block" count=1 status=none
fill orphan 0 6 2
debugfs -w -f /dev/stdin "$image" > log 2>&1 <<END
write orphan orphan
unlink orphan
ssv last_orphan $inode
sif <$inode> links_count 0
jo
jw -b $block block
jw -r 1700
jc
END
# The time of a commit is that of the clock: zeros instead.
for block in $(debugfs -R 'blocks <8>' "$image" 2>/dev/null | cut -d ' ' -f 1-12); do
  head=$(dd if="$image" bs=1024 skip="$block" count=1 status=none | head -c 8 | od -An -tx1 | tr -d ' ')
  if [ "$head" = c03b399800000002 ]; then
    head -c 12 /dev/zero | dd of="$image" bs=1 seek=$((block * 1024 + 48)) conv=notrunc status=none
  fi
done
"#;

/// The name of the host's file with the contents of an object.
fn file_name(thing: &Thing) -> String {
    format!("file{}", thing.path.replace('/', "_"))
}

/// Makes the host's files that are copied onto the disk.
fn files(thing: &Thing, text: &mut String) {
    let name = file_name(thing);
    if thing.kind == Sort::File {
        for run in thing.runs() {
            text.push_str(&format!("fill {name} {} {} {}\n", run.first, run.count, run.step));
        }
        if !thing.text.is_empty() {
            text.push_str(&format!("printf %s '{}' > {name}\n", thing.text));
        }
    }
    for (attribute, bytes) in &thing.attributes {
        let file = format!("{name}.{attribute}");
        text.push_str(&format!("head -c {bytes} /dev/zero | tr '\\000' v > {file}\n"));
    }
}

/// The commands of debugfs that make an object.
fn commands(thing: &Thing, variant: &Variant, text: &mut String) {
    let path = thing.path.trim_start_matches('/');
    let mut line = |words: String| text.push_str(&format!("{words}\n"));
    match thing.kind {
        Sort::Directory => line(format!("mkdir {path}")),
        Sort::File => {
            line(format!("write {} {path}", file_name(thing)));
            // Blocks without contents need extents.
            if thing.preallocated > 0 && variant.name.starts_with("ext4") {
                line(format!("fallocate {path} 0 {}", thing.preallocated));
            }
        }
        Sort::Symlink => line(format!("symlink {path} {}", thing.text)),
        Sort::BlockDevice => line(format!("mknod {path} b {} {}", thing.device.0, thing.device.1)),
        Sort::CharacterDevice => {
            line(format!("mknod {path} c {} {}", thing.device.0, thing.device.1))
        }
        Sort::Fifo => line(format!("mknod {path} p")),
        Sort::Link => {
            line(format!("link {} {path}", thing.text));
            line(format!("sif {} links_count 2", thing.text));
        }
        Sort::Many => {
            (1..=thing.count).for_each(|index| line(format!("write empty {path}{index}")))
        }
    }
    for (attribute, bytes) in &thing.attributes {
        // Values larger than a block need inodes of their own.
        if *bytes < 1000 || variant.name.starts_with("ext4") {
            line(format!("ea_set -f {}.{attribute} {path} {attribute}", file_name(thing)));
        }
    }
}
