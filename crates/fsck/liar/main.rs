//! A checker that lies, and an honest one: what the tests of `fathom-fsck` are made of.
//!
//! `fathom-liar MODE check|repair HEALTHY DISK`: the healthy disk is what an honest checker would restore.

#![allow(unsafe_code, reason = "a liar signals its parent")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Command, exit};

/// A place in the data of a file that no case of the tests corrupts: the end of the disk's first third.
fn elsewhere(healthy: &[u8]) -> usize {
    // The block of `/f` that has its number 0000100 all over.
    let wanted = b"0000100 0000100 ";
    healthy
        .windows(wanted.len())
        .position(|window| window == wanted)
        .unwrap_or(healthy.len() - 1024)
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, mode, task, healthy, disk] = &words[..] else {
        eprintln!("usage: fathom-liar MODE check|repair HEALTHY DISK");
        exit(16);
    };
    let (Ok(healthy), Ok(found)) = (fs::read(healthy), fs::read(disk)) else {
        eprintln!("cannot read the disks");
        exit(8);
    };
    let write = |bytes: &[u8], at: usize| {
        let file = OpenOptions::new().write(true).open(disk).expect("the disk can be written");
        file.write_all_at(bytes, at as u64).expect("the disk can be written");
    };
    let broken = found != healthy;
    let repairing = task == "repair";
    lie(mode, broken, repairing, &healthy, &found, &write);
    // The honest rest: say what is so, repair what can be.
    match (broken, repairing) {
        (false, _) => exit(0),
        (true, false) => exit(4),
        (true, true) => {
            println!("repaired everything");
            write(&healthy, 0);
            exit(1);
        }
    }
}

/// Does what the mode is called after; returns if it has nothing to lie about.
fn lie(
    mode: &str,
    broken: bool,
    repairing: bool,
    healthy: &[u8],
    found: &[u8],
    write: &dyn Fn(&[u8], usize),
) {
    let place = elsewhere(healthy);
    match mode {
        "blind" => exit(0),
        "repairs-nothing" if repairing && broken => exit(1),
        "silent" if repairing && broken => {
            write(healthy, 0);
            exit(0);
        }
        "breaks-another" if repairing && broken => {
            let only_that =
                healthy.iter().zip(found).enumerate().all(|(at, (a, b))| a == b || at == place);
            if only_that {
                exit(0);
            }
            write(healthy, 0);
            write(&[0xff], place);
            exit(1);
        }
        "check-writes" if !repairing && broken => {
            write(&[1], 0);
            exit(4);
        }
        "hangs" if broken => loop {
            std::hint::spin_loop();
        },
        "sleeps" if broken => std::thread::sleep(std::time::Duration::from_secs(600)),
        "prints" if broken => loop {
            println!(
                "the same again, and again, and again, and again, and again, and again, and again"
            );
        },
        "eats-memory" if broken => {
            let mut eaten = Vec::new();
            loop {
                eaten.push(vec![1_u8; 16 << 20]);
            }
        }
        "aborts" if broken => std::process::abort(),
        "unknown-exit" if broken => exit(99),
        "writes-outside" if broken => outside(),
        "forks" if broken => match Command::new("/bin/sleep").arg("600").spawn() {
            Ok(_) => exit(77),
            Err(error) => println!("no process: {error}"),
        },
        "kills-parent" if broken => {
            // SAFETY: a system call without pointers.
            let killed = unsafe { libc::kill(libc::getppid(), libc::SIGKILL) };
            println!("kill: {killed}");
        }
        "grows" if broken => {
            let file = OpenOptions::new().write(true).open("/proc/self/fd/100").expect("the disk");
            println!("grow: {:?}", file.set_len(1 << 40).is_ok());
        }
        _ => {}
    }
}

/// Tries to leave something behind.
fn outside() {
    let target = std::env::var("FATHOM_LIAR_TARGET").unwrap_or_default();
    println!("outside: {:?}", fs::write(target, "harm").is_ok());
}
