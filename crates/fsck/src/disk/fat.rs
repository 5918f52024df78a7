//! The test disk of FAT: mkfs.fat and mtools, without root.

use super::description::{Description, Sort};

/// The head of the script; the time of everything is fixed.
const HEAD: &str = r#"#!/bin/sh
# Makes the disk $1 (default: disk.img) with mkfs.fat and mtools; no root.
set -e
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH=1700000000 MTOOLS_SKIP_CHECK=1
PATH=$PATH:/usr/sbin:/sbin
image=$(realpath "${1:-disk.img}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

rm -f "$image"
truncate -s 512K "$image"
# fill COUNT: blocks of 1024 bytes, each with its number all over.
fill() {
  awk -v count="$1" 'BEGIN {
    for (i = 0; i < count; i++) for (j = 0; j < 128; j++) printf "%07d ", i
  }'
}
mkfs.fat -F 12 -s 2 -r 64 -i 12345678 -n FATHOM --invariant "$image" > log
"#;

/// Blocks of the longest file. A checker that takes such a file for a directory finds 32 entries of the same
/// name in each of its blocks: the work grows with the cube of their number.
const BLOCKS_MAX: u64 = 100;

/// The script that makes the disk: what FAT can hold of the description.
pub(super) fn script(description: &Description) -> String {
    let mut text = HEAD.to_owned();
    for thing in &description.objects {
        let path = &thing.path;
        match thing.kind {
            Sort::Directory => text.push_str(&format!("mmd -i \"$image\" ::{path}\n")),
            Sort::File => {
                // Files are as long as their first runs of blocks; FAT has no holes.
                let blocks = thing.runs().iter().map(|run| run.count).sum::<u64>().min(BLOCKS_MAX);
                text.push_str(&match blocks {
                    0 => format!("printf %s '{}' > file\n", thing.text),
                    _ => format!("fill {blocks} > file\n"),
                });
                text.push_str("touch -d @1700000000 file\n");
                text.push_str(&format!("mcopy -m -i \"$image\" file ::{path}\n"));
            }
            Sort::Many => {
                text.push_str(": > file\ntouch -d @1700000000 file\n");
                text.push_str(&format!(
                    "for i in $(seq 1 {}); do mcopy -m -i \"$image\" file ::{path}$i; done\n",
                    thing.count
                ));
            }
            // FAT has neither links nor devices.
            _ => {}
        }
    }
    text.push_str("mcopy -m -i \"$image\" file '::/a rather long name.text'\n");
    text.push_str("fsck.fat -n \"$image\" >> log || { cat log; exit 1; }\n");
    text
}
