//! Ways in which a guest ends: each has its class and its trace, is run again and shrunk in fresh guests,
//! and the campaign goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::common::running::{is_root, signal};
use super::{common, debian, fathom, fathom_with, finding, scratch};

/// What takes longer on a busy machine has hung.
const PATIENCE: Duration = Duration::from_secs(180);

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Some(found) => return found,
            None if Instant::now() > deadline => panic!("{what}: not within {PATIENCE:?}"),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// A campaign that runs, ended with the test.
struct Campaign(Child);

impl Campaign {
    fn start(args: &[&str], dir: &Path) -> Campaign {
        let mut command = common::command(args, dir);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Campaign(command.spawn().expect("the program starts"))
    }

    /// The private directory of its guest, once operations are being executed in it.
    fn guest(&self) -> PathBuf {
        let parent = self.0.id().to_string();
        wait_for("a guest with a worker", || {
            let entries = fs::read_dir("/proc").ok()?.flatten();
            let is_keeper = |path: &PathBuf| {
                let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
                let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
                after.split(' ').nth(1) == Some(&parent)
            };
            let keeper = entries.map(|entry| entry.path()).find(is_keeper)?;
            let words = fs::read(keeper.join("cmdline")).ok()?;
            let mut words = words.split(|byte| *byte == 0).skip(1);
            let is_one = words.next()? == b"guest-keeper";
            let dir = PathBuf::from(String::from_utf8_lossy(words.next()?).into_owned());
            (is_one && dir.join("board").exists()).then_some(dir)
        })
    }

    /// Sends a signal to the kernel of its guest.
    fn signal_guest(&self, name: &str) {
        let dir = self.guest();
        // Some operations are to be executed before.
        std::thread::sleep(Duration::from_millis(500));
        let process = fs::read_to_string(dir.join("process")).expect("a kernel");
        signal(name, process.trim());
    }

    fn wait(mut self) -> Option<i32> {
        let status = wait_for("an end", || self.0.try_wait().expect("our child"));
        status.code()
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_panic_is_run_again_and_shrunk_in_fresh_guests() {
    let Some(kernel) = debian("a_panic_is_run_again_and_shrunk") else { return };
    let dir = scratch();
    let args = ["check", "test:crashes-the-kernel-on-rename", "--guest", kernel, "--ops", "2000"];
    let more = ["--seed", "3", "--first", "--strategy", "walk"];
    let answer = fathom(&[&args[..], &more[..]].concat(), dir.path());
    assert_eq!(answer.code, Some(1), "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("running it again in fresh guests"), "{}", answer.err);
    let (id, table) = finding(dir.path(), "kernel_panic");
    assert_eq!(table["runs_reproduced"].as_integer(), Some(1), "{table}");
    assert_eq!(table["complete"].as_bool(), Some(true), "{table}");
    let place = dir.path().join("fathom-out").join(&id);
    let steps = |name: &str| {
        let text = fs::read_to_string(place.join(name)).unwrap();
        text.lines().filter(|line| line.contains("\"op\"")).count()
    };
    assert_eq!(steps("minimal.jsonl"), 1, "of {}", steps("trace.jsonl"));
    assert!(place.join("console.txt").exists());
    let replay = fathom(&["replay", &id, "--guest", kernel, "--json"], dir.path());
    assert_eq!(replay.json()["verdict"], "reproduced", "{}", replay.err);
    let shrunk = fathom(&["shrink", &id, "--guest", kernel, "--budget", "1s"], dir.path());
    assert_eq!(shrunk.code, Some(1), "{}{}", shrunk.out, shrunk.err);
    finding(dir.path(), "kernel_panic");
}

#[test]
fn memory_that_runs_out_and_calls_that_never_return_have_their_classes() {
    let Some(kernel) = debian("memory_that_runs_out") else { return };
    let dir = scratch();
    // With little time for shrinking: there is nothing shorter.
    let args = ["--guest", kernel, "--budget", "10s", "--seed", "3", "--first"];
    let check = |subject, more: &[&str]| {
        fathom(&[&["check", subject], &args[..], more].concat(), dir.path())
    };
    let memory = check("test:eats-memory-after-20", &[]);
    assert_eq!(memory.code, Some(1), "{}{}", memory.out, memory.err);
    finding(dir.path(), "out_of_memory");
    let began = Instant::now();
    let hang = check("test:hangs-after-20", &["--deadline", "1s"]);
    assert_eq!(hang.code, Some(1), "{}{}", hang.out, hang.err);
    assert!(began.elapsed() < PATIENCE);
    finding(dir.path(), "hang");
    let dead = check("test:dies-by-segv-after-20", &[]);
    assert_eq!(dead.code, Some(1), "{}{}", dead.out, dead.err);
    finding(dir.path(), "died");
}

#[test]
fn a_guest_that_is_killed_is_a_finding_and_the_next_goes_on() {
    let Some(kernel) = debian("a_guest_that_is_killed") else { return };
    let dir = scratch();
    let args = ["check", "model", "--guest", kernel, "--seed", "3", "--budget", "20s"];
    let campaign = Campaign::start(&args, dir.path());
    campaign.signal_guest("KILL");
    assert_eq!(campaign.wait(), Some(1));
    let (id, table) = finding(dir.path(), "died");
    assert!(table["signature"].as_str().unwrap().contains("SIGKILL"), "{table}");
    // Nobody kills the guest in which it is run again.
    assert_eq!(table["runs_reproduced"].as_integer(), Some(0), "{table}");
    let trace = dir.path().join("fathom-out").join(id).join("trace.jsonl");
    assert!(fs::read_to_string(trace).unwrap().contains("\"op\""));
    let run = fs::read_to_string(dir.path().join("fathom-out/run.json")).unwrap();
    let run: serde_json::Value = serde_json::from_str(&run).unwrap();
    assert_eq!(run["complete"], true, "the next guest came to the end of the time: {run}");
}

#[test]
fn a_guest_that_stops_answering_is_a_hang() {
    let Some(kernel) = debian("a_guest_that_stops_answering") else { return };
    let dir = scratch();
    let args = ["check", "model", "--guest", kernel, "--seed", "3", "--budget", "30s"];
    let campaign = Campaign::start(&[&args[..], &["--deadline", "3s"]].concat(), dir.path());
    campaign.signal_guest("STOP");
    assert_eq!(campaign.wait(), Some(1));
    finding(dir.path(), "hang");
}

/// A copy of Debian's kernel that does not find its root, and so does not boot.
fn unbootable(dir: &Path) -> PathBuf {
    let mut kernel = fs::read("/usr/bin/linux.uml").unwrap();
    let name = b"\0hostfs\0";
    let places: Vec<usize> =
        (0..kernel.len() - name.len()).filter(|at| &kernel[*at..at + name.len()] == name).collect();
    assert!(!places.is_empty(), "the kernel names its file systems");
    for at in places {
        kernel[at + 1..at + 7].copy_from_slice(b"gostfs");
    }
    let path = dir.join("linux-without-root");
    fs::write(&path, kernel).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_kernel_that_does_not_boot_is_an_error_with_its_last_words() {
    if debian("a_kernel_that_does_not_boot").is_none() {
        return;
    }
    let dir = scratch();
    let kernel = unbootable(dir.path());
    let args = ["check", "model", "--ops", "10", "--guest", kernel.to_str().unwrap()];
    let answer = fathom(&args, dir.path());
    assert_eq!(answer.code, Some(2), "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("does not boot"), "{}", answer.err);
    assert!(answer.err.contains("Unable to mount root"), "{}", answer.err);
}

/// A small file system of its own, unmounted at the end.
struct Tmpfs(PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn no_space_where_the_memory_lives_is_said() {
    let Some(kernel) = debian("no_space_where_the_memory_lives") else { return };
    if !is_root() {
        return println!("SKIP no_space_where_the_memory_lives: needs root to mount a small tmpfs");
    }
    let dir = scratch();
    let place = dir.path().join("memory");
    fs::create_dir(&place).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=600m,exec", "fathom-test"])
        .arg(&place)
        .status();
    assert!(mounted.unwrap().success());
    let tmpfs = Tmpfs(place);
    let memory = [("FATHOM_GUEST_MEMORY_DIR", tmpfs.0.to_str().unwrap())];
    let args = ["check", "test:eats-memory-after-20", "--guest", kernel, "--ops", "40"];
    // There is room when it starts, and then somebody takes it.
    let filled = tmpfs.0.join("filled");
    let filler = std::thread::spawn(move || {
        let has_guest = |path: &Path| {
            let mut entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.any(|entry| entry.path().join("process").exists())
        };
        wait_for("a guest", || has_guest(filled.parent().unwrap()).then_some(()));
        // As much as fits.
        let _ = fs::write(&filled, vec![1; 600 << 20]);
    });
    let answer = fathom_with(&[&args[..], &["--seed", "3"]].concat(), dir.path(), &memory);
    filler.join().unwrap();
    assert_eq!(answer.code, Some(2), "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("FATHOM_GUEST_MEMORY_DIR"), "{}", answer.err);
}

#[test]
fn mappings_that_the_host_refuses_are_no_finding() {
    let Some(kernel) = debian("mappings_that_the_host_refuses") else { return };
    let limit = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    if limit.trim() != "65530" {
        return println!("SKIP mappings_that_the_host_refuses: vm.max_map_count is {limit}");
    }
    let dir = scratch();
    let args = ["check", "test:scatters-memory-after-20", "--guest", kernel, "--ops", "40"];
    let answer = fathom(&[&args[..], &["--seed", "3"]].concat(), dir.path());
    assert_eq!(answer.code, Some(2), "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("sysctl -w vm.max_map_count"), "{}", answer.err);
}
