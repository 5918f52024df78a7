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
