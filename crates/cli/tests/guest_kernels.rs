//! `fathom guest list | build | remove` and `fathom list --guest`, as people and machines use them.

mod common;

use std::path::Path;

use common::{Answer, command, scratch};
use serde_json::Value;

/// The program with a cache of its own.
fn ask(args: &[&str], dir: &Path) -> Answer {
    let output = command(args, dir).env("XDG_CACHE_HOME", dir.join("cache")).output().unwrap();
    Answer {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn every_mistake_has_a_clear_error_and_exit_code_2() {
    let dir = scratch();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["guest", "build", "--source", "empty"], "is no source tree of Linux"),
        (&["guest", "build", "--source", "nowhere"], "nowhere"),
        (&["guest", "build", "empty"], "--source empty"),
        (&["guest", "build", "6.12", "--only", "ext5"], "there is no ext5 to build"),
        (&["guest", "remove", "6.12"], "no kernel 6.12 was built"),
        (&["list", "--guest", "/bin/true"], "is no User-Mode Linux kernel"),
        (&["list", "--guest", "6.12"], "no kernel is called \"6.12\""),
        (&["list", "--guest", "empty"], "guest build --source empty"),
    ];
    for (args, text) in cases {
        let answer = ask(args, dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(text), "{args:?}: {}", answer.err);
    }
    if Path::new("/usr/bin/apt-cache").exists() {
        let answer = ask(&["guest", "build", "1.0"], dir.path());
        assert_eq!(answer.code, 2, "{}", answer.out);
        assert!(answer.err.contains("linux-source-1.0"), "{}", answer.err);
    }
}

#[test]
fn the_list_of_an_empty_cache_says_what_to_do() {
    let dir = scratch();
    let answer = ask(&["guest", "list"], dir.path());
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.starts_with("KERNEL") && answer.out.contains("guest build 6.12"));
    let answer = ask(&["guest", "list", "--json"], dir.path());
    let rows: Value = serde_json::from_str(answer.out.trim()).unwrap();
    let built = rows.as_array().unwrap().iter().filter(|row| row["name"] != "debian").count();
    assert_eq!(built, 0);
}

#[test]
fn what_a_kernel_has_is_listed_with_reasons() {
    if !Path::new("/usr/bin/linux.uml").exists() {
        println!("SKIP what_a_kernel_has_is_listed_with_reasons: no user-mode-linux");
        return;
    }
    let dir = scratch();
    let answer = ask(&["list", "--guest", "debian", "--json"], dir.path());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let rows: Value = serde_json::from_str(answer.out.trim()).unwrap();
    let missing = |name: &str| {
        let rows = rows.as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        row["missing"].as_array().unwrap().iter().map(|why| why.to_string()).collect::<Vec<_>>()
    };
    // Root is not missing: the guest has its own.
    assert_eq!(missing("ext4"), Vec::<String>::new());
    assert!(missing("bcachefs").iter().any(|why| why.contains("no bcachefs in the kernel")));
}
