//! Guests are booted, confined, deterministic, and leave nothing. The test program is the keeper and the
//! first process of its own guests, so that nothing else has to be built.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fathom_guest::{Boot, Guest, GuestEnd, Job, Kernel, resolve, run_job};

/// How long one guest of these tests may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    if let Some(code) = fathom_guest::take_over() {
        std::process::exit(code);
    }
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [_, "answer", dir] => answer(Path::new(dir)),
        [_, "hold", seed] => hold(seed.parse().expect("a number")),
        [_, filters @ ..] => tests(filters),
        [] => {}
    }
}

/// What a job does in the guest: reads its question and answers it.
fn answer(dir: &Path) {
    let question = std::fs::read_to_string(dir.join("question")).unwrap();
    std::fs::write(dir.join("answer"), format!("{question} in {}", release())).unwrap();
    println!("answered");
}

/// Boots a guest that runs for ever, says where, and waits to be killed.
fn hold(seed: u64) {
    let own = std::env::var("FATHOM_GUEST_KERNEL").unwrap_or_else(|_| "debian".to_owned());
    let kernel = resolve(&own).expect("a kernel");
    let guest = Guest::start(&script(&kernel, seed, FOR_EVER).expect("a script")).expect("a guest");
    println!("{}", guest.directory().display());
    loop {
        std::thread::park();
    }
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned()
}

/// A test and its name.
type Test = (&'static str, fn(&Kernels) -> Result<(), String>);

const TESTS: [Test; 6] = [
    ("a_command_runs_and_its_outputs_and_its_code_come_back", runs),
    ("a_job_is_answered", answers),
    ("root_in_a_guest_changes_nothing_outside", confined),
    ("modules_are_loaded_when_they_are_needed", loads_modules),
    ("a_guest_is_a_function_of_its_seed", deterministic),
    ("killed_guests_leave_nothing", leaves_nothing),
];

/// The kernels that this machine has.
struct Kernels {
    debian: Option<Kernel>,
    own: Option<Kernel>,
}

impl Kernels {
    fn all(&self) -> impl Iterator<Item = &Kernel> {
        self.own.iter().chain(&self.debian)
    }
}

fn tests(filters: &[&str]) {
    let wanted: Vec<&&str> = filters.iter().filter(|word| !word.starts_with('-')).collect();
    let own = std::env::var("FATHOM_GUEST_KERNEL").ok();
    let kernels = Kernels {
        debian: resolve("debian").ok(),
        own: own.map(|path| resolve(&path).expect("FATHOM_GUEST_KERNEL is a kernel")),
    };
    let mut failed = 0;
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(**word)) {
            continue;
        }
        let began = Instant::now();
        match test(&kernels) {
            Ok(()) => println!("test {name} ... ok ({:.1} s)", began.elapsed().as_secs_f64()),
            Err(error) => {
                failed += 1;
                println!("test {name} ... FAILED: {error}");
            }
        }
    }
    std::process::exit(i32::from(failed > 0));
}

fn skip(name: &str, reason: &str) -> Result<(), String> {
    println!("SKIP {name}: {reason}");
    Ok(())
}

/// A guest that runs a shell script.
fn script(kernel: &Kernel, seed: u64, text: &str) -> Result<Boot, String> {
    let command = ["/bin/sh", "-c", text].map(OsString::from).to_vec();
    Boot::new(kernel, seed, command).map_err(|error| error.to_string())
}

/// How a guest ended, what it printed, and what its kernel said.
fn finish(boot: &Boot) -> Result<(GuestEnd, String, String), String> {
    let mut guest = Guest::start(boot).map_err(|error| error.to_string())?;
    let end = guest.wait(PATIENCE).map_err(|error| format!("{error}: {}", guest.console()))?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    guest.pass_on(&mut out, &mut err).map_err(|error| error.to_string())?;
    let end = end.ok_or_else(|| format!("no end: {}", guest.console()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let GuestEnd::Died(status) = &end {
        return Err(format!("died: {status:?}: {}", guest.console()));
    }
    Ok((end, text(&out), text(&err)))
}

fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("expected {expected:?}, found {found:?}")),
    }
}

fn runs(kernels: &Kernels) -> Result<(), String> {
    if kernels.all().next().is_none() {
        return skip("runs", "no kernel: apt-get install user-mode-linux");
    }
    for kernel in kernels.all() {
        let began = Instant::now();
        let boot = script(kernel, 1, "uname -r; echo problem >&2; test -t 1 || exit 7")?;
        let (end, out, err) = finish(&boot)?;
        expect(end, GuestEnd::Code(7))?;
        expect(out.trim(), kernel.release.as_str())?;
        expect(err.trim(), "problem")?;
        println!("  {}: boot and halt in {:.2} s", kernel.release, began.elapsed().as_secs_f64());
        let (end, ..) = finish(&script(kernel, 1, "kill -SEGV $$")?)?;
        expect(end, GuestEnd::Signal(libc::SIGSEGV))?;
    }
    Ok(())
}

fn answers(kernels: &Kernels) -> Result<(), String> {
    let Some(kernel) = kernels.all().next() else { return skip("answers", "no kernel") };
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    std::fs::write(dir.path().join("question"), "life").map_err(|error| error.to_string())?;
    let mut job = Job::new(vec!["answer".into(), dir.path().into()], dir.path().to_owned());
    job.deadline = PATIENCE;
    let end = run_job(kernel, 1, &job).map_err(|error| error.to_string())?;
    if !end.is_done() {
        return Err(format!("{end:?}"));
    }
    expect(end.stdout.trim(), "answered")?;
    let answer = std::fs::read_to_string(dir.path().join("answer"));
    expect(answer.map_err(|error| error.to_string())?, format!("life in {}", kernel.release))
}

fn confined(kernels: &Kernels) -> Result<(), String> {
    let Some(kernel) = kernels.all().next() else { return skip("confined", "no kernel") };
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (inside, outside) = (place.path().join("in"), place.path().join("out"));
    for dir in [&inside, &outside] {
        std::fs::create_dir(dir).map_err(|error| error.to_string())?;
    }
    let victim = outside.join("victim");
    std::fs::write(&victim, "mine").map_err(|error| error.to_string())?;
    let before = std::fs::metadata(&victim).map_err(|error| error.to_string())?;
    let text = format!(
        "v={v}; o={o}; i={i}; mount -o remount,rw / 2>/dev/null
         for try in 'echo x > $v' 'echo x >> $v' 'rm $v' 'mv $v $o/w' 'ln $v $i/l && echo x > $i/l' \
           'chmod 777 $v' 'touch -d 2001-01-01 $v' 'mkdir $o/d' 'ln -s x $o/s' 'mkfifo $o/f' \
           'truncate -s 0 $v' 'mknod $i/b b 7 0' 'mknod $i/c c 1 1' 'chmod 777 $i/../out/victim' \
           'ln -s $v $i/t && chmod 777 $i/t' 'echo x > /dev/fathom/../../../../$v' \
           'mkdir /dev/shm/h && mount -t hostfs -o $o none /dev/shm/h && echo x > /dev/shm/h/victim'
         do if eval \"$try\" 2>/dev/null; then echo \"possible: $try\"; fi; done
         echo ok > $i/file && chmod 640 $i/file && touch -d 2001-01-01 $i/file && mkdir $i/dir && echo done",
        v = victim.display(),
        o = outside.display(),
        i = inside.display()
    );
    let mut boot = script(kernel, 1, &text)?;
    boot.writable.push(inside.clone());
    let (_, out, err) = finish(&boot)?;
    expect((out.trim(), err.trim()), ("done", ""))?;
    let after = std::fs::metadata(&victim).map_err(|error| error.to_string())?;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    expect(std::fs::read_to_string(&victim).unwrap_or_default(), "mine".to_owned())?;
    expect((after.mode(), after.mtime(), after.nlink()), (before.mode(), before.mtime(), 1))?;
    expect(std::fs::read_dir(&outside).map_or(0, Iterator::count), 1)?;
    let file = std::fs::metadata(inside.join("file")).map_err(|error| error.to_string())?;
    expect((file.permissions().mode() & 0o777, file.mtime()), (0o640, 978_307_200))
}

fn loads_modules(kernels: &Kernels) -> Result<(), String> {
    let Some(kernel) = &kernels.debian else {
        return skip("loads_modules", "apt-get install user-mode-linux");
    };
    if kernel.file_system("f2fs") != Some(fathom_guest::kernel::Offer::Module) {
        return Err("f2fs is a module of Debian's kernel".to_owned());
    }
    let text = "mkdir /dev/shm/m; mount -t f2fs none /dev/shm/m 2>/dev/null; grep -c f2fs /proc/filesystems";
    let (_, out, _) = finish(&script(kernel, 1, text)?)?;
    expect(out.trim(), "1")
}

/// A disk of ext4 after some work, the clock and some random bytes.
const WORK: &str =
    "cd /dev/shm; truncate -s 16M disk; mkfs.ext4 -q disk; mkdir m; mount -o loop disk m
    for i in 1 2 3 4 5 6 7 8 9; do mkdir m/d$i; echo hello > m/d$i/f; mv m/d$i/f m/f$i; done
    sleep 40; umount m; md5sum disk; date +%s.%N; head -c 16 /dev/urandom | md5sum";

fn deterministic(kernels: &Kernels) -> Result<(), String> {
    let Some(kernel) = kernels.all().find(|kernel| kernel.has_time_travel) else {
        return skip("deterministic", "no kernel with time travel: set FATHOM_GUEST_KERNEL");
    };
    let began = Instant::now();
    let (_, first, _) = finish(&script(kernel, 7, WORK)?)?;
    if began.elapsed() > Duration::from_secs(35) {
        return Err("40 seconds of sleep took their time".to_owned());
    }
    let (_, again, _) = finish(&script(kernel, 7, WORK)?)?;
    expect(&again, &first)?;
    random_calls(kernel)?;
    expect(first.lines().count(), 3)?;
    let (_, other, _) = finish(&script(kernel, 8, WORK)?)?;
    for (one, two) in first.lines().zip(other.lines()).filter(|(one, _)| !one.contains('.')) {
        if one == two {
            return Err(format!("another seed and the same {one}"));
        }
    }
    Ok(())
}

/// Every boot asks for random bytes as often, and each time for as many: what it does with them is the same.
fn random_calls(kernel: &Kernel) -> Result<(), String> {
    let calls = || -> Result<Vec<u64>, String> {
        let boot = script(kernel, 7, "true")?;
        let mut guest = Guest::start(&boot).map_err(|error| error.to_string())?;
        let end = guest.wait(PATIENCE).map_err(|error| error.to_string())?;
        expect(end, Some(GuestEnd::Code(0)))?;
        Ok(guest.random_calls())
    };
    let first = calls()?;
    println!("calls for random bytes: {first:?}");
    expect(first.is_empty(), false)?;
    expect(calls()?, first)
}

/// Processes that were started in a directory, or that have a file of it open or mapped: the memory of a
/// guest is such a file, although it has no name any more.
fn processes_of(dir: &Path) -> Vec<PathBuf> {
    let name = dir.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let uses = |process: &PathBuf| {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut links = files.map(|file| file.path()).chain([process.join("cwd")]);
        let mapped = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
        mapped.contains(&name)
            || links.any(|link| std::fs::read_link(link).is_ok_and(|to| to.starts_with(dir)))
    };
    entries.map(|entry| entry.path()).filter(uses).collect()
}

fn kill(pid: u32) -> Result<(), String> {
    let pid = rustix::process::Pid::from_raw(pid as i32).ok_or("no process")?;
    let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    killed.map_err(|error| error.to_string())
}

/// Waits until nobody uses a directory and it is gone. What is killed takes a moment to be so.
fn is_gone(dir: &Path) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let left = processes_of(dir);
        if left.is_empty() && !dir.exists() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{} is there: {}; used by {left:?}", dir.display(), dir.exists()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command that computes, waits and prints.
const FOR_EVER: &str = "while :; do sleep 1; done & while :; do echo x; done";

fn leaves_nothing(kernels: &Kernels) -> Result<(), String> {
    let Some(kernel) = kernels.all().next() else { return skip("leaves_nothing", "no kernel") };
    let count: u64 = std::env::var("FATHOM_GUEST_KILLS").map_or(15, |text| text.parse().unwrap());
    for round in 0..count {
        // From before the kernel is there until after it has started its command.
        let moment = Duration::from_millis(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1500);
        let dir = match round % 5 {
            4 => killed_owner(round, moment)?,
            way => killed(kernel, round, moment, way)?,
        };
        is_gone(&dir).map_err(|left| format!("round {round}: {left}"))?;
    }
    println!("{count} guests were killed");
    Ok(())
}

/// Boots a guest and ends it in one of several ways; returns its directory.
fn killed(kernel: &Kernel, seed: u64, moment: Duration, way: u64) -> Result<PathBuf, String> {
    let boot = script(kernel, seed, FOR_EVER)?;
    let mut guest = Guest::start(&boot).map_err(|error| error.to_string())?;
    let dir = guest.directory().to_owned();
    std::thread::sleep(moment);
    match way {
        0 => {}
        1 => {
            // The kernel alone is killed, as the host's memory killer would.
            if let Some(pid) = guest.kernel_process() {
                kill(pid)?;
                let end = guest.wait(PATIENCE).map_err(|error| error.to_string())?;
                if !matches!(&end, Some(GuestEnd::Died(status)) if status.signal == Some(9)) {
                    return Err(format!("{end:?}"));
                }
            }
        }
        // Who keeps the guest is killed: the kernel ends with it.
        2 => kill(guest.id())?,
        _ => guest.kill(),
    }
    drop(guest);
    Ok(dir)
}

/// Kills the program that booted a guest; returns the guest's directory.
fn killed_owner(seed: u64, moment: Duration) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut owner = std::process::Command::new(program)
        .args(["hold", &seed.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut line = String::new();
    let said = owner.stdout.take().map(std::io::BufReader::new);
    let read = said.map(|mut said| std::io::BufRead::read_line(&mut said, &mut line));
    std::thread::sleep(moment);
    let killed = kill(owner.id());
    let _ = owner.wait();
    killed?;
    match read {
        Some(Ok(1..)) => Ok(PathBuf::from(line.trim_end())),
        _ => Err("the owner did not say where its guest is".to_owned()),
    }
}
