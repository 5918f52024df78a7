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
mkfs.fat -F 12 -s 2 -r 64 -i 12345678 -n FATHOM --invariant "$image" > log
"#;

/// The script that makes the disk: what FAT can hold of the description.
pub(super) fn script(description: &Description) -> String {
    let mut text = HEAD.to_owned();
    for thing in &description.objects {
        let path = &thing.path;
        match thing.kind {
            Sort::Directory => text.push_str(&format!("mmd -i \"$image\" ::{path}\n")),
            Sort::File => {
                // Files are as long as their first runs of blocks; FAT has no holes.
                let blocks: u64 = thing.runs().iter().map(|run| run.count).sum::<u64>().min(40);
                let text_bytes = thing.text.len() as u64;
                let bytes = if blocks > 0 { blocks * 1024 } else { text_bytes };
                text.push_str(&format!("head -c {bytes} /dev/zero | tr '\\000' x > file\n"));
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
