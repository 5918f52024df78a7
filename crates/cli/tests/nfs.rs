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

#[track_caller]
fn found(kernel: &str, words: &str) {
    let dir = scratch();
    let words: Vec<&str> = words.split(' ').collect();
    let args = [&["check"], &words[..], &["--first", "--guest", kernel, "--json"]].concat();
    let (code, value) = json(&args, dir.path());
    assert_eq!(code, 1, "{words:?}: {value:#}");
}

#[test]
fn the_kernels_server_is_not_accused() {
    let Some(kernel) = kernel("the_kernels_server_is_not_accused") else { return };
    clean(&kernel, "nfs:reffs --seed 1 --ops 600");
    clean(&kernel, "nfs:ext4 --nfs 4.0 --seed 2 --ops 300");
    clean(&kernel, "nfs:tmpfs --nfs 3 --seed 3 --ops 300");
}

#[test]
fn mutants_behind_the_server_are_found() {
    let Some(kernel) = kernel("mutants_behind_the_server_are_found") else { return };
    found(&kernel, "nfs:reffs --mutant mkdir-nlink --seed 1 --ops 4000");
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
    refused("ext4 --nfs 4.2", "for nfs:BACKEND");
}
