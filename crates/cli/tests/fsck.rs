//! `fathom fsck`: maps, corruptions, campaigns, and what is told to whoever types something wrong.

mod common;

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use common::{ask, command, json, scratch};

/// Whether the programs that make the ext disks are here; says why not.
fn has_ext(test: &str) -> bool {
    let here = ["/usr/sbin/mke2fs", "/sbin/mke2fs"].iter().any(|path| fs::metadata(path).is_ok());
    if !here {
        println!("SKIP {test}: mke2fs is not installed (e2fsprogs)");
    }
    here
}

#[test]
fn a_field_is_shown_by_name_and_set_by_name_with_its_checksum() {
    if !has_ext("fsck map") {
        return;
    }
    let dir = scratch();
    let shown = ask(&["fsck", "map", "ext4-csum", "superblock.s_magic"], dir.path());
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.out.contains("s_magic") && shown.out.contains("0xef53"), "{}", shown.out);
    let set = ["fsck", "set", "ext4-csum", "inode[2].i_uid=7", "-o", "out.img"];
    let answer = ask(&set, dir.path());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let (_, map) = json(&["--json", "fsck", "map", "out.img", "inode[2 \"/\"].i_uid"], dir.path());
    assert_eq!(map["fields"][0]["value"], 7);
    assert_eq!(map["notes"].as_array().unwrap().len(), 0, "the checksum is right: {map}");
    let wrong =
        ["fsck", "set", "ext4-csum", "inode[2].i_uid=7", "--wrong-checksum", "-o", "wrong.img"];
    assert_eq!(ask(&wrong, dir.path()).code, 0);
    let (_, map) =
        json(&["--json", "fsck", "map", "wrong.img", "inode[2 \"/\"].i_uid"], dir.path());
    assert!(map["notes"][0].as_str().unwrap().contains("1 checksums are wrong"), "{map}");
}

#[test]
fn what_is_wrong_with_the_arguments_is_told_with_exit_code_2() {
    if !has_ext("fsck bad input") {
        return;
    }
    let dir = scratch();
    fs::write(dir.path().join("text.img"), "not a file system").unwrap();
    fs::write(dir.path().join("empty.img"), "").unwrap();
    for (args, part) in [
        (&["fsck", "e3fsck"][..], "there is no checker \"e3fsck\""),
        (&["fsck", "e2fsck", "--image", "none.img"], "none.img"),
        (&["fsck", "e2fsck", "--image", "text.img"], "no file system that fathom has a map for"),
        (&["fsck", "e2fsck", "--image", "empty.img"], "no file system that fathom has a map for"),
        (&["fsck", "fsck.fat", "--disk", "ext2"], "there is ext in it, not vfat"),
        (&["fsck", "e2fsck", "--disk", "ext9"], "there is no disk \"ext9\""),
        (&["fsck", "e2fsck", "--program", "/none/e2fsck"], "/none/e2fsck is not installed"),
        (&["fsck", "map", "text.img"], "no file system that fathom has a map for"),
        (&["fsck", "set", "ext2", "inode[2].i_udi=7", "-o", "x"], "did you mean"),
        (&["fsck", "set", "ext2", "inode[2].i_uid=70000", "-o", "x"], "does not fit"),
        (&["fsck", "set", "ext2", "inode[2].i_uid", "-o", "x"], "does not fit"),
        (
            &["fsck", "e2fsck", "--disk", "ext2", "--field", "nothing"],
            "no field of ext2 is called so",
        ),
        (&["fsck", "e2fsck", "--disk", "ext2", "--resume"], "nothing to go on from"),
        (
            &["fsck", "explore", "--program", "/usr/sbin/e2fsck", "superblock.s_state"],
            "is not instrumented",
        ),
    ] {
        let answer = ask(args, dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(part), "{args:?}: {}", answer.err);
    }
}

#[test]
fn a_lie_of_e2fsck_is_found_recorded_and_replayed() {
    if !has_ext("fsck e2fsck") {
        return;
    }
    let dir = scratch();
    // Class E of our notes: a flag without its feature is cleared, and the exit code says clean.
    let run = [
        "--json",
        "--out",
        "o",
        "fsck",
        "e2fsck",
        "--disk",
        "ext4",
        "--field",
        "group[0].bg_flags",
    ];
    let (code, value) = json(&run, dir.path());
    assert_eq!(code, 1, "{value}");
    assert!(value["violations"].as_u64().unwrap() > 0 && value["complete"] == true, "{value}");
    assert!(value["by_class"]["check_disagrees"].as_u64().unwrap() > 0, "{value}");
    let run = fathom_record::Run::read(&dir.path().join("o")).unwrap();
    let finding = run.findings.first().expect("a finding");
    let script =
        fs::read_to_string(dir.path().join("o").join(&finding.id).join("repro.sh")).unwrap();
    assert!(script.contains("mke2fs") && script.contains("dd of="), "{script}");
    let replay = ask(&["--out", "o", "replay", &finding.id], dir.path());
    assert_eq!(replay.code, 0, "{}{}", replay.out, replay.err);
    assert!(replay.out.contains("reproduced"), "{}", replay.out);
}

#[test]
fn a_killed_campaign_leaves_nothing_and_goes_on() {
    if !has_ext("fsck resume") {
        return;
    }
    let dir = scratch();
    let args =
        ["--json", "--out", "o", "fsck", "e2fsck", "--disk", "ext2", "--field", "superblock.s_m"];
    let mut child =
        command(&args, dir.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let state = dir.path().join("o/fsck.json");
    for _ in 0..600 {
        if state.exists() {
            break;
        }
        sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let resumed: Vec<&str> = args.iter().copied().chain(["--resume"]).collect();
    let (_, value) = json(&resumed, dir.path());
    assert_eq!(value["complete"], true, "{value}");
    assert_eq!(value["cases"], value["cases_total"], "{value}");
}

/// The classes A and C to I of our notes on e2fsck 1.47.0 (B is a hang of 1.47.4), by field and value.
#[test]
fn the_known_lies_of_e2fsck_are_found() {
    if !has_ext("fsck known lies") {
        return;
    }
    let dir = scratch();
    let version = std::process::Command::new("/usr/sbin/e2fsck").arg("-V").output();
    if !version.is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("1.47.0")) {
        println!("SKIP fsck known lies: /usr/sbin/e2fsck is not 1.47.0");
        return;
    }
    for (case, lie) in [
        ("inode[8].i_block[0]=1", "table repaired → failed"),
        ("inode[8].i_block[14]=2", "hang"),
        ("double_indirect[1339 of 15].block[1]=0xc00", "silent_repair"),
        ("group[0].bg_flags=1", "silent_repair"),
        ("inode[15].i_block[12]=0x26", "table repaired → repaired → clean"),
        ("dirent[2].entry[25612].rec_len=0", "table errors left → repaired → clean"),
        ("extent_block[1376 of 23].extents[0].ee_len=5", "table repaired → repaired → clean"),
        ("superblock.s_last_orphan=101", "silent_repair"),
    ] {
        let args =
            ["--json", "fsck", "e2fsck", "--disk", "ext4", "--deadline", "3s", "--case", case];
        let (code, value) = json(&args, dir.path());
        let signatures = value["cases"][0]["signatures"].as_array().unwrap();
        let found = signatures.iter().any(|found| found.as_str().unwrap().contains(lie));
        assert!(code == 1 && found, "{case}: {value}");
    }
    let healthy = ["--json", "fsck", "e2fsck", "--disk", "ext4", "--case", "inode[17].i_atime=1"];
    let (code, value) = json(&healthy, dir.path());
    assert_eq!(
        (code, value["cases"][0]["signatures"].as_array().unwrap().len()),
        (0, 0),
        "{value}"
    );
}

/// Many subjects in one process: none of their descriptors may be one that a checker finds its files under.
#[test]
fn a_suite_of_many_images_does_not_run_out_of_descriptors() {
    if !has_ext("fsck suite of many") {
        return;
    }
    let dir = scratch();
    let disk = ask(
        &["fsck", "set", "ext2", "superblock.s_free_blocks_count_lo=1", "-o", "bad.img"],
        dir.path(),
    );
    assert_eq!(disk.code, 0, "{}", disk.err);
    for number in 0..110 {
        let place = dir.path().join(format!("tests/f_{number:03}"));
        fs::create_dir_all(&place).unwrap();
        std::os::unix::fs::symlink(dir.path().join("bad.img"), place.join("image.raw")).unwrap();
    }
    let args = [
        "--json", "--out", "o", "fsck", "e2fsck", "--suite", "tests", "--cases", "1", "--jobs", "1",
    ];
    let (code, value) = json(&args, dir.path());
    assert!(code == 0 || code == 1, "{value}");
    assert_eq!(
        (&value["images"], value["left_out"].as_array().unwrap().len()),
        (&110.into(), 0),
        "{value}"
    );
}
