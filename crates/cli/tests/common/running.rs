//! A program that runs while a test does something to it: its processes, its worker, its end.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A mark in the environment that every process of a run inherits, however far away it is started.
#[derive(Clone)]
pub(crate) struct Mark(String);

impl Mark {
    const VARIABLE: &str = "FATHOM_TEST_RUN";

    pub(crate) fn new() -> Mark {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        Mark(format!("{}-{next}", std::process::id()))
    }

    /// Marks what the command will start.
    pub(crate) fn put(&self, command: &mut Command) {
        command.env(Mark::VARIABLE, &self.0);
    }

    /// Every process with the mark that is there now.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = format!("{}={}", Mark::VARIABLE, self.0);
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("proc(5)").flatten() {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
                found.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
            }
        }
        found
    }
}

/// What takes longer on a busy machine has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Looks until nothing is left, and returns what is left after all: what ends a moment later is not left
/// behind.
pub(crate) fn wait_for_nothing(look: impl Fn() -> Vec<String>) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = look();
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The program without arguments, with pipes for what it says.
pub(crate) fn piped() -> Command {
    let mut command = super::command(&[], Path::new("."));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running program, killed if the test ends before it.
pub(crate) struct Running {
    child: Option<Child>,
    pub(crate) mark: Mark,
}

impl Running {
    pub(crate) fn start(args: &[&str], dir: &Path) -> Running {
        let (mark, mut command) = (Mark::new(), piped());
        mark.put(&mut command);
        let child = command.args(args).current_dir(dir).process_group(0).spawn();
        Running { child: Some(child.expect("the program starts")), mark }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("it is running").id()
    }

    /// The process that runs the campaign, once it executes operations.
    pub(crate) fn worker(&self) -> u32 {
        let is_worker = |process: &u32| {
            let parent = format!("/proc/{process}/stat");
            let stat = fs::read_to_string(parent).unwrap_or_default();
            let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            after.split(' ').nth(1) == Some(&self.id().to_string())
                && String::from_utf8_lossy(&line).contains("--worker=")
        };
        let found = wait_for(|| self.mark.processes().into_iter().find(is_worker));
        found.expect("there is a worker")
    }

    pub(crate) fn wait(mut self) -> Output {
        let mut child = self.child.take().expect("it is running");
        // The pipes are read by threads, so that a full one does not stop the program.
        let read = |stream: Box<dyn std::io::Read + Send>| {
            std::thread::spawn(move || {
                let (mut stream, mut bytes) = (stream, Vec::new());
                let _ = stream.read_to_end(&mut bytes);
                bytes
            })
        };
        let stdout = read(Box::new(child.stdout.take().expect("piped")));
        let stderr = read(Box::new(child.stderr.take().expect("piped")));
        let ended = wait_for(|| child.try_wait().expect("our child"));
        let Some(status) = ended else {
            let _ = child.kill();
            panic!("it did not end within {PATIENCE:?}");
        };
        let (stdout, stderr) = (stdout.join().expect("no panic"), stderr.join().expect("no panic"));
        Output { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Some(found) => return Some(found),
            None if Instant::now() > deadline => return None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub(crate) fn signal(name: &str, process: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), "--", process]).status();
    assert!(sent.expect("kill(1)").success(), "{name} to {process}");
}

pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
