//! Field maps of file systems that a kernel fills: known fields have the values that the file system's own
//! tool prints, every checksum is right, and the disk is the same every time. The disks are made in guests.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{ask, json, scratch};

/// A tool that shows a disk, and what it prints before the value of a field.
struct Tool {
    disk: &'static str,
    program: &'static str,
    /// Words in front of the image.
    words: &'static [&'static str],
    input: &'static str,
    fields: &'static [(&'static str, &'static str)],
    /// At least so many fields are mapped.
    fields_min: usize,
    /// A field under a checksum, if there are any.
    guarded: Option<&'static str>,
}

const TOOLS: &[Tool] = &[
    Tool {
        disk: "minix",
        program: "fsck.minix",
        words: &["-fs"],
        input: "",
        fields: &[
            ("disk.img.\n", "superblock.s_ninodes"),
            ("inodes\n", "superblock.s_zones"),
            ("Firstdatazone=", "superblock.s_firstdatazone"),
            ("Maxsize=", "superblock.s_max_size"),
        ],
        fields_min: 1000,
        guarded: None,
    },
    Tool {
        disk: "minix-v1",
        program: "fsck.minix",
        words: &["-fs"],
        input: "",
        fields: &[
            ("disk.img.\n", "superblock.s_ninodes"),
            ("inodes\n", "superblock.s_nzones"),
            ("Firstdatazone=", "superblock.s_firstdatazone"),
        ],
        fields_min: 1000,
        guarded: None,
    },
    Tool {
        disk: "exfat",
        program: "dump.exfat",
        words: &[],
        input: "",
        fields: &[
            ("Volume Length(sectors):", "boot.volume_length"),
            ("FAT Offset(sector offset):", "boot.fat_offset"),
            ("Cluster Count:", "boot.cluster_count"),
            ("Root Cluster (cluster offset):", "boot.first_cluster_of_root"),
            ("Volume Serial:", "boot.volume_serial_number"),
            ("Bitmap start cluster:", "bitmap_entry.first_cluster"),
            ("Upcase table size:", "upcase_entry.data_length"),
        ],
        fields_min: 1500,
        guarded: Some("boot.fat_length"),
    },
    Tool {
        disk: "f2fs",
        program: "dump.f2fs",
        words: &["-d", "1", "-i", "3"],
        input: "",
        fields: &[
            ("segment_count_main [0x", "superblock.segment_count_main"),
            ("main_blkaddr [0x", "superblock.main_blkaddr"),
            ("checkpoint_ver [0x", "checkpoint.checkpoint_ver"),
            ("valid_block_count [0x", "checkpoint.valid_block_count"),
            ("cur_node_blkoff[1] [0x", "checkpoint.cur_node_blkoff[1]"),
            ("i_mode [0x", "inode[3].i_mode"),
            ("i_links [0x", "inode[3].i_links"),
            ("i_inode_checksum [0x", "inode[3].i_inode_checksum"),
        ],
        fields_min: 3000,
        guarded: Some("inode[3].i_links"),
    },
    Tool {
        disk: "xfs",
        program: "xfs_db",
        words: &[
            "-r",
            "-c",
            "sb 0",
            "-c",
            "p rootino icount",
            "-c",
            "agf 0",
            "-c",
            "p bnoroot freeblks longest",
            "-c",
            "agi 0",
            "-c",
            "p root freecount",
            "-c",
            "inode 64",
            "-c",
            "p core.nlinkv2 core.gen v3.crc",
        ],
        input: "",
        fields: &[
            ("rootino =", "superblock.sb_rootino"),
            ("icount =", "superblock.sb_icount"),
            ("bnoroot =", "agf[0].agf_bno_root"),
            ("freeblks =", "agf[0].agf_freeblks"),
            ("longest =", "agf[0].agf_longest"),
            ("\nroot =", "agi[0].agi_root"),
            ("freecount =", "agi[0].agi_freecount"),
            ("core.nlinkv2 =", "inode[64].di_nlink"),
            ("core.gen =", "inode[64].di_gen"),
        ],
        fields_min: 3000,
        guarded: Some("inode[64].di_nlink"),
    },
    Tool {
        disk: "xfs-v4",
        program: "xfs_db",
        words: &[
            "-r",
            "-c",
            "sb 0",
            "-c",
            "p rootino fdblocks",
            "-c",
            "inode 64",
            "-c",
            "p core.nlinkv2",
        ],
        input: "",
        fields: &[
            ("rootino =", "superblock.sb_rootino"),
            ("fdblocks =", "superblock.sb_fdblocks"),
            ("core.nlinkv2 =", "inode[64].di_nlink"),
        ],
        fields_min: 2500,
        guarded: None,
    },
    Tool {
        disk: "btrfs",
        program: "btrfs",
        words: &["inspect-internal", "dump-super"],
        input: "",
        fields: &[
            ("\ngeneration ", "superblock.generation"),
            ("\nroot ", "superblock.root"),
            ("\nchunk_root ", "superblock.chunk_root"),
            ("\nbytes_used ", "superblock.bytes_used"),
            ("dev_item.bytes_used", "superblock.dev_bytes_used"),
        ],
        fields_min: 5000,
        guarded: Some("fs.item[256 INODE_ITEM 0].nlink"),
    },
    Tool {
        disk: "jfs",
        program: "jfs_debugfs",
        words: &[],
        input: "superblock\nx\ni 2\nx\nquit\n",
        fields: &[
            ("s_size:", "superblock.s_size"),
            ("s_agsize:", "superblock.s_agsize"),
            ("s_logpxd.addr2:", "superblock.s_logpxd_addr"),
            ("di_nlink:", "inode[2].di_nlink"),
            ("di_mode:", "inode[2].di_mode"),
            ("di_next_index:", "inode[2].di_next_index"),
        ],
        fields_min: 3000,
        guarded: None,
    },
    Tool {
        disk: "reiserfs",
        program: "debugreiserfs",
        words: &[],
        input: "",
        fields: &[
            ("Count of blocks on the device:", "superblock.s_block_count"),
            ("reserved] blocks):", "superblock.s_free_blocks"),
            ("Root block:", "superblock.s_root_block"),
            ("Tree height:", "superblock.s_tree_height"),
            ("Magic [", "superblock.jp_journal_magic"),
            ("Max batch size", "superblock.jp_journal_max_batch"),
        ],
        fields_min: 3000,
        guarded: None,
    },
];

/// Whether there is a guest kernel and the tool; says what is missing.
fn is_here(tool: &Tool) -> bool {
    let dirs = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let has = dirs.iter().any(|dir| Path::new(dir).join(tool.program).exists());
    let kernel = std::env::var_os("FATHOM_GUEST_KERNEL").is_some();
    if !has || !kernel {
        println!("SKIP map of {}: {} or FATHOM_GUEST_KERNEL is missing", tool.disk, tool.program);
    }
    has && kernel
}

/// What the tool prints, with one space where it has several.
fn shown(tool: &Tool, image: &Path) -> String {
    let mut child = Command::new(tool.program)
        .args(tool.words)
        .arg(image)
        .env("LC_ALL", "C")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(tool.input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// The number behind a label: `0x1f`, `31`, or `1f : 31]` behind `[0x`.
fn number(text: &str, label: &str) -> Option<u64> {
    let rest = &text[text.find(label)? + label.len()..];
    if label.ends_with("[0x") {
        let decimal = rest.split(':').nth(1)?;
        return decimal.trim().split(']').next()?.parse().ok();
    }
    let word: String = rest.trim_start().chars().take_while(char::is_ascii_alphanumeric).collect();
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn check(disk: &str) {
    let tool = TOOLS.iter().find(|tool| tool.disk == disk).unwrap();
    if !is_here(tool) {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("disk.img");
    let made = ask(&["fsck", "disk", disk, "-o", "disk.img"], dir.path());
    assert_eq!(made.code, 0, "{}", made.err);
    let (_, map) = json(&["--json", "fsck", "map", "disk.img"], dir.path());
    assert_eq!(map["notes"].as_array().unwrap().len(), 0, "{}", map["notes"]);
    let fields = map["fields"].as_array().unwrap();
    assert!(fields.len() >= tool.fields_min, "{disk} has {} fields", fields.len());
    let text = shown(tool, &image);
    for (label, name) in tool.fields {
        let plain =
            |field: &str| field.split('"').step_by(2).collect::<String>().replace(" ]", "]");
        let field = fields.iter().find(|field| plain(field["field"].as_str().unwrap()) == *name);
        let field = field.unwrap_or_else(|| panic!("{disk} has no field {name}"));
        let expected = number(&text, label).unwrap_or_else(|| panic!("no {label:?} in\n{text}"));
        assert_eq!(field["value"].as_u64(), Some(expected), "{disk} {name}\n{text}");
    }
    if let Some(field) = tool.guarded {
        checksums_follow(dir.path(), field);
    }
}

/// A corruption with its checksum put right leaves no wrong one; without, there is one.
fn checksums_follow(dir: &Path, field: &str) {
    let what = format!("{field}=7");
    for (words, wrong) in [(vec![], 0), (vec!["--wrong-checksum"], 1)] {
        let mut args = vec!["fsck", "set", "disk.img", &what, "-o", "set.img"];
        args.extend(words);
        let set = ask(&args, dir);
        assert_eq!(set.code, 0, "{}", set.err);
        let (_, map) = json(&["--json", "fsck", "map", "set.img", "superblock"], dir);
        assert_eq!(map["notes"].as_array().unwrap().len(), wrong, "{field}: {}", map["notes"]);
    }
    fs::remove_file(dir.join("set.img")).unwrap();
}

#[test]
fn the_maps_of_minix_and_exfat_say_what_their_tools_say() {
    ["minix", "minix-v1", "exfat"].into_iter().for_each(check);
}

#[test]
fn the_maps_of_xfs_say_what_xfs_db_says() {
    ["xfs", "xfs-v4"].into_iter().for_each(check);
}

#[test]
fn the_maps_of_btrfs_and_f2fs_say_what_their_tools_say() {
    ["btrfs", "f2fs"].into_iter().for_each(check);
}

#[test]
fn the_maps_of_jfs_and_reiserfs_say_what_their_tools_say() {
    ["jfs", "reiserfs"].into_iter().for_each(check);
}
