//! NFS in guests: the kernel's server and Ganesha are never accused, mutants behind a server and a proxy that
//! lies are found, and what cannot work is refused with the next step.

mod common;

use common::{ask, json, scratch};

/// A kernel with NFS, or the reason why a test is skipped.
fn kernel(test: &str) -> Option<String> {
    let named = std::env::var("FATHOM_GUEST_KERNEL").ok();
    if named.is_none() {
        println!("SKIP {test}: no kernel with NFS: set FATHOM_GUEST_KERNEL");
    }
    named
}

#[track_caller]
fn clean(kernel: &str, words: &str) {
    let dir = scratch();
    let words: Vec<&str> = words.split(' ').collect();
    let args = [&["check"], &words[..], &["--guest", kernel, "--json"]].concat();
    let (code, value) = json(&args, dir.path());
    assert_eq!(code, 0, "{words:?}: {value:#}");
}

/// Checks until something is found, which must replay: the finding, what its `diff.txt` says, and what is left of its
/// operations.
#[track_caller]
fn found(kernel: &str, words: &str, dir: &std::path::Path) -> (serde_json::Value, String, String) {
    let words: Vec<&str> = words.split(' ').collect();
    let args = [&["check"], &words[..], &["--first", "--guest", kernel, "--json"]].concat();
    let (code, value) = json(&args, dir);
    assert_eq!(code, 1, "{words:?}: {value:#}");
    let finding = value["findings"][0].clone();
    let id = &finding["id"].as_str().unwrap_or_default().to_owned();
    let read = |file: &str| {
        let file = dir.join("fathom-out").join(id).join(file);
        std::fs::read_to_string(file).unwrap_or_default()
    };
    let (code, value) = json(&["replay", id, "--guest", kernel, "--json"], dir);
    assert_eq!(code, 0, "{words:?}, replayed: {value:#}");
    (finding, read("diff.txt"), read("minimal.jsonl"))
}

/// A script of a shell, in a guest with `$F` as the program: its exit code and all that it said.
fn in_guest(kernel: &str, script: &str) -> (i32, String) {
    let dir = scratch();
    let script = format!("F={}; cd /dev/shm; {script}", env!("CARGO_BIN_EXE_fathom"));
    let answer = ask(&["guest", "run", kernel, "--", "/bin/sh", "-c", &script], dir.path());
    (answer.code, answer.out + &answer.err)
}

/// A configuration in which some operations come more often than usually.
fn often(dir: &std::path::Path, weights: &str) -> String {
    let file = dir.join("often.toml");
    std::fs::write(&file, format!("[weights]\n{weights}\n")).unwrap();
    format!("--config {}", file.display())
}

fn has_ganesha(test: &str) -> bool {
    let there = ["vfs", "mem"].map(|library| {
        let file = format!("/usr/lib/x86_64-linux-gnu/ganesha/libfsal{library}.so");
        std::path::Path::new(&file).exists()
    });
    let there = there == [true; 2];
    if !there {
        println!("SKIP {test}: install nfs-ganesha-vfs and nfs-ganesha-mem");
    }
    there
}

#[test]
fn the_kernels_server_is_not_accused() {
    let Some(kernel) = kernel("the_kernels_server_is_not_accused") else { return };
    clean(&kernel, "nfs:reffs --seed 1 --ops 600");
    clean(&kernel, "nfs:ext4 --nfs 4.0 --seed 2 --ops 300");
    clean(&kernel, "nfs:tmpfs --nfs 3 --seed 3 --ops 300");
    clean(&kernel, "nfs:xfs --nfs 4.1 --seed 4 --ops 300");
    // Seed 1 opens with O_APPEND and O_DIRECT, which the client refuses.
    clean(&kernel, "nfs:btrfs --nfs 3 --seed 1 --ops 700");
}

/// Both were reported by earlier checkers of NFS: `statfs` tells 1 MB of a smaller device, and a removed file
/// that is open is there under another name.
#[test]
fn small_devices_of_1_mb_and_names_of_removed_open_files_are_not_reported() {
    let test = "small_devices_of_1_mb_and_names_of_removed_open_files_are_not_reported";
    let Some(kernel) = kernel(test) else { return };
    let dir = scratch();
    let often = often(dir.path(), "statfs = 60\nunlink = 60\nrename = 60");
    clean(&kernel, &format!("nfs:reffs --space 512K --seed 1 --ops 500 {often}"));
}

#[test]
fn what_happens_to_a_server_and_its_network_is_no_bug() {
    let Some(kernel) = kernel("what_happens_to_a_server_and_its_network_is_no_bug") else { return };
    let dir = scratch();
    let eventful = often(dir.path(), "server = 100");
    for version in ["4.0", "4.2"] {
        clean(&kernel, &format!("nfs:ext4 --nfs {version} --seed 1 --ops 60 {eventful}"));
    }
    clean(&kernel, &format!("nfs:reffs --seed 1 --ops 200 {eventful}"));
}

/// What a killed server had acknowledged as stable is missed, although the one client that there is remembers it.
/// The last operation before the kill is lost, nothing else.
#[test]
fn what_a_killed_server_has_lost_is_found() {
    let Some(kernel) = kernel("what_a_killed_server_has_lost_is_found") else { return };
    let dir = scratch();
    let eventful = often(dir.path(), "server = 100\nmkdir = 300\nmknod = 300");
    clean(&kernel, &format!("nfs:reffs --seed 1 --ops 200 {eventful}"));
    let words = format!("nfs:reffs --mutant forget-stable --seed 1 --ops 200 {eventful}");
    let (finding, told, minimal) = found(&kernel, &words, dir.path());
    assert_eq!(finding["class"], "tree", "{finding:#}\n{told}");
    assert!(minimal.contains("SERVER_KILL"), "{minimal}");
}

/// The answer to a question that comes while nothing is exported.
#[test]
fn an_export_that_is_served_although_it_was_removed_is_found() {
    let test = "an_export_that_is_served_although_it_was_removed_is_found";
    let Some(kernel) = kernel(test) else { return };
    for version in ["3", "4.2"] {
        let dir = scratch();
        let eventful = often(dir.path(), "server = 1000");
        let words =
            format!("nfs:tmpfs --nfs {version} --mutant keep-export --seed 1 --ops 200 {eventful}");
        let (finding, told, minimal) = found(&kernel, &words, dir.path());
        assert_eq!(finding["class"], "outcome", "{finding:#}\n{told}");
        assert!(minimal.contains("EXPORT_REMOVE"), "{minimal}");
    }
}

/// That nothing is found where packets are lost says something only if some were.
#[test]
fn a_lossy_network_loses_packets_and_one_that_does_not_is_refused() {
    let test = "a_lossy_network_loses_packets_and_one_that_does_not_is_refused";
    let Some(kernel) = kernel(test) else { return };
    let check = "$F check nfs:ext4 --lossy --seed 1 --ops 200 --json";
    let statistics = "/usr/sbin/tc -s qdisc show dev lo";
    let before = "$F check nfs:ext4 --lossy --seed 1 --ops 1 >first || exit 9";
    let script =
        format!("{before}; {statistics}; {check} >second || exit 9; {statistics}; cat second");
    let (code, said) = in_guest(&kernel, &script);
    assert_eq!(code, 0, "{said}");
    let dropped: Vec<u64> = said
        .split("(dropped ")
        .skip(1)
        .filter_map(|rest| rest.split(',').next()?.parse().ok())
        .collect();
    assert!(matches!(dropped[..], [first, second] if 0 < first && first < second), "{said}");
    // A program that does what it is asked, but for the loss.
    let honest = "cp /usr/sbin/tc tc; printf '#!/bin/sh\nexec /dev/shm/tc $(echo \"$@\" | sed s/2%%/0%%/)' >no-loss";
    let hidden = "chmod +x no-loss; mount --bind no-loss /usr/sbin/tc || exit 9";
    let (code, said) = in_guest(&kernel, &format!("{honest}; {hidden}; {check}"));
    assert!(code == 2 && said.contains("no packet is lost"), "{code}: {said}");
}

/// A call that is never answered does not keep a run for ever.
#[test]
fn a_call_that_a_proxy_swallows_is_a_hang() {
    let Some(kernel) = kernel("a_call_that_a_proxy_swallows_is_a_hang") else { return };
    let dir = scratch();
    let often = often(dir.path(), "mkdir = 3000");
    let words =
        "check nfs:ext4 --nfs 3 --mutant silent --seed 1 --ops 100 --deadline 1s --first --json";
    let words = format!("{words} {often} --guest {kernel}");
    let (code, value) = json(&words.split(' ').collect::<Vec<_>>(), dir.path());
    assert_eq!(code, 1, "{value:#}");
    assert_eq!(value["findings"][0]["class"], "hang", "{value:#}");
}

/// Close-to-open is a promise to a client about what another one closed: one client that is lied to about its own
/// files would not show that we look. The lie is told to the second client alone.
#[test]
fn a_second_client_that_does_not_see_what_the_first_closed_is_found() {
    let test = "a_second_client_that_does_not_see_what_the_first_closed_is_found";
    let Some(kernel) = kernel(test) else { return };
    clean(&kernel, "nfs:ext4 --nfs 3 --clients 2 --mutant honest-proxy --seed 1 --ops 500");
    clean(&kernel, "nfs:ext4 --nfs 3 --mutant freeze-second --seed 1 --ops 300");
    let dir = scratch();
    let words = "nfs:ext4 --nfs 3 --clients 2 --mutant freeze-second --seed 1 --ops 300";
    let (finding, told, _) = found(&kernel, words, dir.path());
    assert_eq!(finding["class"], "tree", "{finding:#}\n{told}");
    assert!(told.contains("size") || told.contains("mtime"), "{told}");
}

#[test]
fn two_clients_see_what_is_closed_and_respect_locks() {
    let Some(kernel) = kernel("two_clients_see_what_is_closed_and_respect_locks") else { return };
    // A client that remembered names would open a file that the other one has replaced.
    clean(&kernel, "nfs:ext4 --clients 2 --seed 4 --ops 700");
    let dir = scratch();
    let eventful = often(dir.path(), "server = 100");
    for version in ["4.0", "4.1", "4.2"] {
        let words = format!("nfs:tmpfs --nfs {version} --clients 2 --seed 1 --ops 60 {eventful}");
        clean(&kernel, &words);
    }
    // Two open files of one client: their locks go through the lock manager, too.
    clean(&kernel, &format!("nfs:tmpfs --nfs 3 --seed 1 --ops 60 {eventful}"));
}

/// A server that forgets locks is found. With NFS 3 the kernel's lock manager has a bug of its own
/// (docs/FOUND_BUGS.md): asked with F_GETLK, it takes every lock for a shared one.
#[test]
fn locks_that_a_server_forgets_are_missed() {
    let Some(kernel) = kernel("locks_that_a_server_forgets_are_missed") else { return };
    for version in ["3", "4.0", "4.2"] {
        let dir = scratch();
        let eventful = often(dir.path(), "server = 100");
        let words = format!("check nfs:tmpfs --nfs {version} --clients 2 --mutant forget-locks");
        let words = format!("{words} --seed 1 --ops 300 {eventful} --first --json --guest");
        let words: Vec<&str> = words.split(' ').chain([kernel.as_str()]).collect();
        let (code, value) = json(&words, dir.path());
        assert_eq!(code, 1, "NFS {version}: {value:#}");
        let finding = &value["findings"][0];
        assert_eq!(finding["class"], "locks", "NFS {version}: {value:#}");
        let id = finding["id"].as_str().unwrap_or_default();
        let told = std::fs::read_to_string(dir.path().join("fathom-out").join(id).join("diff.txt"));
        let told = told.unwrap();
        assert!(told.contains("after something happened to the server"), "NFS {version}: {told}");
    }
}

/// Ganesha cannot remove sockets and devices that were made before it was started again (docs/FOUND_BUGS.md), which
/// is found. Going back to an empty export must do without it: such runs ended with "cannot empty the export".
#[test]
fn what_ganesha_cannot_remove_does_not_end_a_run() {
    let test = "what_ganesha_cannot_remove_does_not_end_a_run";
    let Some(kernel) = kernel(test) else { return };
    if !has_ganesha(test) {
        return;
    }
    let dir = scratch();
    let often = often(dir.path(), "server = 1500\nmknod = 3000");
    let words = "check nfs:tmpfs --nfs 4.0 --server ganesha --seed 6 --ops 30 --json";
    let words = format!("{words} {often} --guest {kernel}");
    let (code, value) = json(&words.split(' ').collect::<Vec<_>>(), dir.path());
    assert_eq!((code, value["ops"].as_u64()), (1, Some(30)), "{value:#}");
    assert!(value["error"].is_null(), "{value:#}");
}

/// What a server has noted of its clients does not outlive the operations that made it so: a finding that needs
/// two events keeps both, and shows in a guest that has done nothing else (docs/FOUND_BUGS.md, "a client that comes
/// in the grace period"). It was shrunk to the last event in the guest that had found it, and did not replay.
#[test]
fn what_happened_to_a_server_before_is_part_of_a_finding() {
    let test = "what_happened_to_a_server_before_is_part_of_a_finding";
    let Some(kernel) = kernel(test) else { return };
    let records = "zgrep -q ^CONFIG_NFSD_LEGACY_CLIENT_TRACKING=y /proc/config.gz";
    if in_guest(&kernel, records).0 != 0 {
        println!("SKIP {test}: the server of this kernel has its records elsewhere");
        return;
    }
    let dir = scratch();
    let eventful = often(dir.path(), "server = 60");
    let words = "check nfs:xfs --nfs 4.2 --clients 2 --seed 27 --ops 800 --first --json";
    let words = format!("{words} {eventful} --guest {kernel}");
    let (code, value) = json(&words.split(' ').collect::<Vec<_>>(), dir.path());
    let finding = &value["findings"][0];
    assert_eq!((code, &finding["class"]), (1, &"locks".into()), "{value:#}");
    let id = finding["id"].as_str().unwrap_or_default();
    let minimal = dir.path().join("fathom-out").join(id).join("minimal.jsonl");
    let minimal = std::fs::read_to_string(minimal).unwrap();
    assert_eq!(minimal.matches("\"op\":\"server\"").count(), 2, "{minimal}");
    let (code, value) = json(&["replay", id, "--guest", &kernel, "--json"], dir.path());
    assert_eq!(code, 0, "{value:#}");
}

#[test]
fn mutants_behind_the_server_and_lies_of_a_proxy_are_found_and_replay() {
    let test = "mutants_behind_the_server_and_lies_of_a_proxy_are_found_and_replay";
    let Some(kernel) = kernel(test) else { return };
    clean(&kernel, "nfs:ext4 --nfs 3 --mutant honest-proxy --seed 1 --ops 500");
    let lies = ["drop-write", "stale-attributes", "swap-names"];
    let lies = lies.map(|lie| format!("nfs:ext4 --nfs 3 --mutant {lie}"));
    let mutants = ["mkdir-nlink", "unlink-neighbour", "extend-size", "rmdir-errno"]
        .map(|mutant| format!("nfs:reffs --mutant {mutant}"));
    for words in lies.iter().chain(&mutants) {
        let dir = scratch();
        let words: Vec<&str> = words.split(' ').chain("--seed 1 --ops 4000".split(' ')).collect();
        let (code, value) = json(
            &[&["check"], &words[..], &["--first", "--guest", &kernel, "--json"]].concat(),
            dir.path(),
        );
        assert_eq!(code, 1, "{words:?}: {value:#}");
        let id = value["findings"][0]["id"].as_str().unwrap_or_default().to_owned();
        let replay = ["replay", &id, "--guest", &kernel, "--json"];
        let (code, value) = json(&replay, dir.path());
        assert_eq!(code, 0, "{words:?}: {value:#}");
        let (code, value) = json(&[&replay[..], &["--execution"]].concat(), dir.path());
        assert_eq!(code, 0, "{words:?} again: {value:#}");
    }
}

#[test]
fn ganesha_is_not_accused() {
    let test = "ganesha_is_not_accused";
    let Some(kernel) = kernel(test) else { return };
    if !has_ganesha(test) {
        return;
    }
    clean(&kernel, "nfs:ext4 --server ganesha --nfs 3 --seed 1 --ops 200");
    clean(&kernel, "nfs:tmpfs --server ganesha --nfs 4.0 --seed 1 --ops 60");
    clean(&kernel, "nfs:tmpfs --server ganesha --nfs 4.1 --seed 2 --ops 100");
    // A server that was started again was in its own export, and waited for itself when it ended.
    clean(&kernel, "nfs:tmpfs --server ganesha --nfs 4.1 --seed 1 --ops 100");
}

/// Ganesha's back end in memory has bugs (docs/FOUND_BUGS.md: changes of directories are not told to clients, and
/// everybody may create), so with every operation a difference is more likely: with twelve operations two of three
/// seeds show one. This is one that does not.
#[test]
fn what_works_of_ganeshas_back_end_in_memory_is_not_accused() {
    let test = "what_works_of_ganeshas_back_end_in_memory_is_not_accused";
    let Some(kernel) = kernel(test) else { return };
    if !has_ganesha(test) {
        return;
    }
    clean(&kernel, "nfs:memory --nfs 4.1 --seed 1 --ops 12");
}

/// The kernel's server can be told not to speak a version, which outlives whoever told it.
#[test]
fn a_version_that_the_server_does_not_speak_is_named_with_the_next_step() {
    let test = "a_version_that_the_server_does_not_speak_is_named_with_the_next_step";
    let Some(kernel) = kernel(test) else { return };
    let without = "mkdir n; mount -t nfsd nfsd n && echo -4.2 >n/versions && umount n || exit 9";
    let check = |version: &str| format!("{without}; $F check nfs:tmpfs --nfs {version} --ops 5");
    let (code, said) = in_guest(&kernel, &check("4.2"));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("does not speak NFS 4.2: give another version"), "{said}");
    let (code, said) = in_guest(&kernel, &check("4.1"));
    assert_eq!(code, 0, "{said}");
}

/// Debian's kernel has its server as a module, which is hidden.
#[test]
fn a_kernel_without_a_server_is_named_with_the_next_step() {
    let test = "a_kernel_without_a_server_is_named_with_the_next_step";
    let modules = std::fs::read_dir("/usr/lib/uml/modules").into_iter().flatten().flatten();
    let mut modules = modules.map(|dir| dir.path().join("kernel/fs/nfsd/nfsd.ko"));
    let Some(module) = modules.find(|file| file.exists()) else {
        println!("SKIP {test}: install user-mode-linux");
        return;
    };
    let dir = scratch();
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", "mount --bind /dev/null $0 || exit 99; exec \"$@\""]);
    command.arg(&module).arg(env!("CARGO_BIN_EXE_fathom"));
    command.args(["check", "nfs:tmpfs", "--guest", "debian", "--ops", "10"]);
    let output = command.current_dir(dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("unshare failed") || output.status.code() == Some(99) {
        println!("SKIP {test}: needs root");
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("take one with CONFIG_NFSD"), "{text}");
}

/// In a mount namespace in which the directory of its libraries is empty, or as it is.
#[test]
fn ganesha_that_is_not_installed_is_named_with_its_packages() {
    let Some(kernel) = kernel("ganesha_that_is_not_installed_is_named_with_its_packages") else {
        return;
    };
    let dir = scratch();
    let hide = "test ! -e $0 || mount -t tmpfs tmpfs $0 || exit 99; exec \"$@\"";
    let libraries = "/usr/lib/x86_64-linux-gnu/ganesha";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", hide, libraries, env!("CARGO_BIN_EXE_fathom")]);
    command.args(["check", "nfs:tmpfs", "--server", "ganesha", "--guest", &kernel]);
    let output = command.current_dir(dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("unshare failed") || output.status.code() == Some(99) {
        println!("SKIP ganesha_that_is_not_installed_is_named_with_its_packages: needs root");
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("Debian packages nfs-ganesha, nfs-ganesha-vfs"), "{text}");
}

#[test]
fn a_version_or_a_server_that_is_not_there_is_refused() {
    let dir = scratch();
    let refused = |words: &str, text: &str| {
        let args: Vec<&str> = ["check"].into_iter().chain(words.split(' ')).collect();
        let answer = ask(&args, dir.path());
        assert_eq!(answer.code, 2, "{words}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(text), "{words}: {}", answer.err);
    };
    refused("nfs:ext4", "add --guest KERNEL");
    refused("nfs:ext4 --nfs 2", "use 3, 4.0, 4.1 or 4.2");
    refused("nfs:ext4 --server samba", "use kernel or ganesha");
    refused("nfs:zfs", "cannot be behind NFS");
    refused("nfs:ext4 --clients 3", "give 1 or 2");
    refused("nfs:ext4 --mutant drop-write", "add --nfs 3");
    refused("nfs:ext4 --mutant forget-locks", "--clients 2");
    refused("nfs:ext4 --server ganesha --clients 2 --mutant forget-locks", "--server kernel");
    refused("nfs:ext4 --mutant forget-stable", "nfs:reffs alone");
    refused("nfs:reffs --server ganesha --mutant forget-stable", "--server kernel");
    refused("nfs:tmpfs --server ganesha --mutant keep-export", "--server kernel");
    refused("nfs:ext4 --clients 2 --mutant freeze-second", "add --nfs 3");
    refused("nfs:ext4 --nfs 4.1 --mutant silent", "add --nfs 3");
    refused("ext4 --nfs 4.2", "for nfs:BACKEND");
}
