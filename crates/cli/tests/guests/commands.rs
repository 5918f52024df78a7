//! Commands in guests: any command, `crash`, `fsck`, `design`, workers that answer, seeds, waits, ends.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::common::running::signal;
use super::{common, debian, fathom, own, scratch};

/// The kernel for what any kernel can do: the faster one.
fn any(test: &str) -> Option<String> {
    std::env::var("FATHOM_GUEST_KERNEL").ok().or_else(|| debian(test).map(str::to_owned))
}

#[test]
fn any_command_runs_in_a_guest_and_can_change_nothing() {
    let Some(kernel) = any("any_command_runs_in_a_guest") else { return };
    let dir = scratch();
    fs::create_dir(dir.path().join("mine")).unwrap();
    let script = "id -u; echo problem >&2; echo x > mine/file; echo x > other; exit 7";
    let run = ["guest", "run", &kernel, "--writable", "mine", "--", "/bin/sh", "-c", script];
    let answer = fathom(&run, dir.path());
    assert_eq!((answer.code, answer.out.as_str()), (Some(7), "0\n"), "{}", answer.err);
    assert!(answer.err.starts_with("problem\n") && answer.err.contains("other"), "{}", answer.err);
    assert_eq!(fs::read_to_string(dir.path().join("mine/file")).unwrap(), "x\n");
    assert!(!dir.path().join("other").exists());
    let run = ["guest", "run", "--json", &kernel, "--", "uname", "-r"];
    let value = fathom(&run, dir.path()).json();
    assert_eq!(value["stdout"].as_str().map(str::trim), value["kernel"].as_str(), "{value}");
    let killed = ["guest", "run", &kernel, "--", "/bin/sh", "-c", "kill -TERM $$"];
    assert_eq!(fathom(&killed, dir.path()).code, Some(128 + 15));
    let panics = ["guest", "run", &kernel, "--", "/bin/sh", "-c", "echo c > /proc/sysrq-trigger"];
    let answer = fathom(&panics, dir.path());
    assert_eq!(answer.code, Some(125), "{}", answer.err);
    assert!(answer.err.contains("the guest died: panic: sysrq triggered crash"), "{}", answer.err);
    let nothing = fathom(&["guest", "run", &kernel, "--", "no-such-program"], dir.path());
    assert_eq!(nothing.code, Some(2), "{}", nothing.err);
    assert!(nothing.err.contains("no-such-program"), "{}", nothing.err);
    let late =
        ["guest", "run", &kernel, "--deadline", "3s", "--", "/bin/sh", "-c", "while :; do :; done"];
    assert_eq!(fathom(&late, dir.path()).code, Some(125));
}

/// An upper layer that became a lower one without its index showed link counts that were one too large, and what
/// files had been before they were changed through another name. Each of these three seeds found it.
#[test]
fn overlays_whose_layers_are_turned_keep_their_hard_links() {
    let Some(kernel) = own("overlays_whose_layers_are_turned_keep_their_hard_links") else {
        return;
    };
    let dir = scratch();
    for (subject, seed) in
        [("overlay-index", "1"), ("overlay-metacopy", "2"), ("overlay-volatile", "3")]
    {
        let walk = ["--strategy", "walk", "--remount", "40", "--ops", "3000", "--first"];
        let args = [&["check", subject, "--guest", &kernel, "--seed", seed][..], &walk].concat();
        let answer = fathom(&args, dir.path());
        assert_eq!(answer.code, Some(0), "{subject}: {}{}", answer.out, answer.err);
    }
}

#[test]
fn other_commands_run_in_guests() {
    let Some(kernel) = any("other_commands_run_in_guests") else { return };
    let dir = scratch();
    let guest = ["--guest", &kernel, "--json"];
    let ask = |args: &[&str]| fathom(&[args, &guest[..]].concat(), dir.path());
    let design = ask(&["design", "journal", "--depth", "3"]);
    assert_eq!(design.code, Some(0), "{}{}", design.out, design.err);
    assert!(design.json()["states"].as_u64() > Some(0), "{}", design.out);
    let crash = ask(&["crash", "littlefs", "--depth", "3", "--first"]);
    assert_eq!(crash.code, Some(1), "{}{}", crash.out, crash.err);
    let id = crash.json()["findings"][0]["id"].as_str().unwrap().to_owned();
    let replay = ask(&["replay", &id]);
    assert_eq!((replay.code, replay.json()["verdict"].as_str()), (Some(0), Some("reproduced")));
    let fsck = ask(&["fsck", "e2fsck", "--cases", "3"]);
    assert!(matches!(fsck.code, Some(0 | 1)), "{}{}", fsck.out, fsck.err);
    let check = ask(&["check", "model:rename-nlink", "--ops", "20000", "--seed", "1", "--first"]);
    assert_eq!(check.code, Some(1), "{}{}", check.out, check.err);
    let id = check.json()["findings"][0]["id"].as_str().unwrap().to_owned();
    let shrink = ask(&["shrink", &id, "--budget", "2s"]);
    assert_eq!(shrink.code, Some(1), "{}{}", shrink.out, shrink.err);
    assert!(shrink.json()["ops"].as_u64() <= shrink.json()["ops_before"].as_u64());
}

#[test]
fn the_power_of_a_kernel_file_system_fails_in_a_guest() {
    let Some(kernel) = own("the_power_of_a_kernel_file_system_fails") else { return };
    let dir = scratch();
    let args = ["crash", "ext4", "--workload", "ace:1", "--part", "1/300", "--level", "linear"];
    let args = [&args[..], &["--no-probe", "--no-checker", "--json"]].concat();
    let inside = fathom(&[&args[..], &["--guest", &kernel]].concat(), dir.path());
    assert_eq!(inside.code, Some(0), "{}{}", inside.out, inside.err);
    assert!(inside.json()["crash_images"].as_u64() > Some(0), "{}", inside.out);
    // The same campaign outside, with guests that answer.
    let worker = fathom(&[&args[..], &["--worker-guest", &kernel]].concat(), dir.path());
    assert_eq!(worker.code, Some(0), "{}{}", worker.out, worker.err);
    assert_eq!(worker.json()["workloads"], inside.json()["workloads"], "{}", worker.out);
}

#[test]
fn waits_are_chosen_where_they_cost_nothing() {
    let Some(kernel) = own("waits_are_chosen") else { return };
    let dir = scratch();
    let args = ["check", "ext4", "--strategy", "walk", "--ops", "3000", "--seed", "6", "--json"];
    let answer = fathom(&[&args[..], &["--guest", &kernel]].concat(), dir.path());
    assert!(matches!(answer.code, Some(0 | 1)), "{}{}", answer.out, answer.err);
    let waited = answer.json()["guest"]["clock_ns"].as_u64().unwrap() / 1_000_000_000;
    assert!(waited > 1_735_689_600 + 30, "{waited}: half a minute has passed in the guest");
}

#[test]
fn a_race_shows_again_in_the_repeated_execution() {
    let Some(kernel) = own("a_race_shows_again") else { return };
    let dir = scratch();
    let args = ["check", "test:loses-a-race-on-rename", "--strategy", "walk", "--ops", "300"];
    let more = ["--seed", "5", "--first", "--guest", &kernel, "--json", "--guest-seed"];
    let shown = (1..100).find_map(|seed: u32| {
        // An execution begins with an empty directory.
        let _ = fs::remove_dir_all(dir.path().join("fathom-out"));
        let answer = fathom(&[&args[..], &more[..], &[&seed.to_string()]].concat(), dir.path());
        let id = answer.json()["findings"][0]["id"].as_str().map(str::to_owned);
        id.filter(|_| answer.code == Some(1))
    });
    let id = shown.expect("a seed that shows it");
    for _ in 0..3 {
        let again = fathom(&["replay", &id, "--guest", &kernel, "--execution"], dir.path());
        assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
        assert!(again.out.starts_with("the same execution"), "{}", again.out);
    }
}

#[test]
fn several_seeds_of_the_kernel_are_several_executions() {
    let Some(kernel) = own("several_seeds_of_the_kernel") else { return };
    let dir = scratch();
    let args = ["check", "ext4", "--ops", "200", "--seed", "5", "--guest", &kernel];
    let answer = fathom(&[&args[..], &["--guest-seeds", "2"]].concat(), dir.path());
    assert!(matches!(answer.code, Some(0 | 1)), "{}{}", answer.out, answer.err);
    let lines: Vec<&str> =
        answer.out.lines().filter(|line| line.contains(": execution ")).collect();
    assert_eq!(lines.len(), 2, "{}", answer.out);
    assert_ne!(lines[0], lines[1], "{}", answer.out);
}

#[test]
fn a_campaign_in_a_guest_ends_in_time_and_when_it_is_asked_to() {
    let Some(kernel) = any("a_campaign_in_a_guest_ends") else { return };
    let dir = scratch();
    let began = Instant::now();
    let args = ["check", "model", "--guest", &kernel, "--seed", "1", "--json"];
    // The boot is part of it.
    let answer = fathom(&[&args[..], &["--budget", "15s"]].concat(), dir.path());
    assert_eq!(answer.code, Some(0), "{}{}", answer.out, answer.err);
    assert!(began.elapsed() < Duration::from_secs(90), "{:?}", began.elapsed());
    assert_eq!(interrupted(&[&args[..], &["--budget", "120s"]].concat(), dir.path()), Some(2));
    let run = fs::read_to_string(dir.path().join("fathom-out/run.json")).unwrap();
    let run: serde_json::Value = serde_json::from_str(&run).unwrap();
    assert_eq!(run["complete"], false, "{run}");
}

#[test]
fn a_search_in_a_guest_tells_what_it_finds_and_ends_when_it_is_asked_to() {
    let Some(kernel) = own("a_search_in_a_guest_tells_what_it_finds") else { return };
    let dir = scratch();
    let args = ["crash", "littlefs", "--depth", "9", "--guest", &kernel];
    let mut command = common::command(&args, dir.path());
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The guest's clock stands still, and yet what was found is there while the search goes on.
    let has_finding = || {
        let entries = fs::read_dir(dir.path().join("fathom-out")).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.path().join("finding.toml").exists())
    };
    wait(&mut child, "a finding", |_| has_finding().then_some(()));
    signal("INT", &child.id().to_string());
    let code = wait(&mut child, "an end", |child| child.try_wait().unwrap()).code();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(code, Some(1), "{said}");
    // It ended by itself, and was not ended with its guest.
    assert!(!said.contains("guests died"), "{said}");
}

/// Waits for something that a program does, and ends the program if it does not come.
fn wait<T>(child: &mut Child, what: &str, mut look: impl FnMut(&mut Child) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        if let Some(found) = look(child) {
            return found;
        }
        if Instant::now() > deadline {
            let _ = (child.kill(), child.wait());
            panic!("{what} does not come");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The exit code of a campaign that is interrupted once it is under way.
fn interrupted(args: &[&str], dir: &Path) -> Option<i32> {
    let _ = fs::remove_dir_all(dir.join("fathom-out"));
    let mut command = common::command(args, dir);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let run = dir.join("fathom-out/run.json");
    wait(&mut child, "a campaign", |_| run.exists().then_some(()));
    signal("INT", &child.id().to_string());
    wait(&mut child, "an end", |child| child.try_wait().unwrap()).code()
}
