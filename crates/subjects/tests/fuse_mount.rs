//! Mounting RefFS: what goes wrong before, what programs see, what is left after.
#![allow(unsafe_code, reason = "a call that the standard library lacks")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use common::{is_root, skip, wait_until};
use fathom_model::Config;
use fathom_subjects::fuse::{AccessTimes, Mount, MountError, Options, serve};
use rustix::fs::{AtFlags, CWD, Dir, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use tempfile::TempDir;

/// A mount on a directory that goes away with it.
struct Mounted {
    mount: Option<Mount>,
    point: TempDir,
}

impl Mounted {
    /// `None` after saying why not.
    fn new(test: &str) -> Option<Mounted> {
        Mounted::with(test, Options::default())
    }

    fn with(test: &str, options: Options) -> Option<Mounted> {
        if !is_root() {
            skip(test, "needs root");
            return None;
        }
        let point = tempfile::tempdir().unwrap();
        let mount = Mount::start(point.path(), Config::default(), options).unwrap();
        Some(Mounted { mount: Some(mount), point })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            if !thread::panicking() {
                mount.with_volume(|volume| volume.check_invariants()).unwrap();
            }
            mount.unmount().unwrap();
        }
    }
}

fn mount_line(point: &Path) -> Option<String> {
    let point = point.canonicalize().unwrap_or_else(|_| point.to_owned());
    let field = format!(" {} ", point.display());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().find(|line| line.contains(&field)).map(str::to_owned)
}

#[test]
fn errors_before_mounting_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let start = |point: &Path, config| {
        Mount::start(point, config, Options::default()).err().map(|error| error.to_string())
    };
    let text = start(&dir.path().join("missing"), Config::default()).unwrap();
    assert!(text.contains("missing does not exist: make the directory first"), "{text}");
    for point in [file.clone(), file.join("below")] {
        let text = start(&point, Config::default()).unwrap();
        assert!(text.ends_with("is not a directory"), "{text}");
    }
    let none = Config { blocks: 0, ..Config::default() };
    let text = start(dir.path(), none).unwrap();
    assert!(text.contains("capacity of 0 blocks is too small"), "{text}");
}

#[test]
fn a_mount_point_can_be_used_once() {
    let Some(mounted) = Mounted::new("a_mount_point_can_be_used_once") else { return };
    let again = Mount::start(mounted.point.path(), Config::default(), Options::default());
    let error = again.unwrap_err();
    assert!(matches!(error, MountError::Busy { .. }), "{error}");
    assert!(error.to_string().contains("fusermount3 -u"), "{error}");
    let line = mount_line(mounted.point.path()).unwrap();
    assert!(line.contains(" fuse.reffs fathom "), "{line}");
    // A directory of the mount is as good as any.
    fs::create_dir(mounted.path("d")).unwrap();
    let plain = Options { subtype: String::new(), ..Options::default() };
    let inner = Mount::start(&mounted.path("d"), Config::default(), plain).unwrap();
    let line = mount_line(&mounted.path("d")).unwrap();
    assert!(line.contains(" fuse fathom "), "{line}");
    fs::write(mounted.path("d/f"), "inner").unwrap();
    drop(inner);
    assert!(!mounted.path("d/f").exists());
}

#[test]
fn unmounting_leaves_nothing_even_if_somebody_is_inside() {
    let Some(mut mounted) = Mounted::new("unmounting_leaves_nothing") else { return };
    let mut file = File::create_new(mounted.path("f")).unwrap();
    let point = mounted.point.path().to_owned();
    mounted.mount.take().unwrap().unmount().unwrap();
    assert_eq!(mount_line(&point), None);
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
    // The file is still there for whoever has it open.
    file.write_all(b"still here").unwrap();
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let Some(mounted) = Mounted::new("an_unlinked_file_lives") else { return };
    let mut file =
        OpenOptions::new().read(true).write(true).create_new(true).open(mounted.path("f")).unwrap();
    let other = File::create_new(mounted.path("other")).unwrap();
    fs::remove_file(mounted.path("f")).unwrap();
    fs::rename(mounted.path("other"), mounted.path("f")).unwrap();
    file.write_all(b"nameless").unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().size()), (0, 8));
    assert_eq!(other.metadata().unwrap().size(), 0);
    let used = || {
        let statfs = mounted.mount.as_ref().unwrap().with_volume(|volume| volume.statfs());
        statfs.files - statfs.files_free
    };
    assert_eq!(used(), 3);
    drop(file);
    // A process that another test is just starting may still have a copy of the descriptor, so that
    // the kernel's word that the file was closed comes a moment later.
    wait_until("the unlinked file is gone with its last descriptor", || used() == 2);

    // Descriptors that the server does not know of keep nothing, but can be asked.
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    let path_only =
        |path: &Path| OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).unwrap();
    let (dir_path, file_path) = (path_only(&dir), path_only(&mounted.path("f")));
    fs::remove_dir(&dir).unwrap();
    fs::remove_file(mounted.path("f")).unwrap();
    drop(other);
    assert!(!mounted.path("f").exists());
    wait_until("nothing keeps what has no name and no open descriptor", || used() == 1);
    for gone in [dir_path, file_path] {
        assert_eq!(gone.metadata().unwrap().nlink(), 0);
    }
    let fifo = mounted.path("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let held = OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    fs::remove_file(&fifo).unwrap();
    held.set_permissions(PermissionsExt::from_mode(0o640)).unwrap();
    std::os::unix::fs::fchown(&held, Some(7), None).unwrap();
    let meta = held.metadata().unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.nlink()), (0o640, 7, 0));
    assert_eq!(used(), 1);
}

#[test]
fn times_are_real_ordered_and_settable() {
    let Some(mounted) = Mounted::new("times_are_real") else { return };
    let before = SystemTime::now() - Duration::from_millis(50);
    let mut last = SystemTime::UNIX_EPOCH;
    for file in 0..200 {
        let path = mounted.path(&format!("f{file}"));
        fs::write(&path, "x").unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        assert!(modified > last && modified > before && modified <= SystemTime::now());
        last = modified;
    }
    thread::sleep(Duration::from_millis(30));
    let slept = SystemTime::now() - Duration::from_millis(15);
    fs::write(mounted.path("late"), "").unwrap();
    assert!(fs::metadata(mounted.path("late")).unwrap().modified().unwrap() >= slept);

    let set = |atime: (i64, i64), mtime: (i64, i64)| {
        let spec = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        rustix::fs::utimensat(CWD, mounted.path("f0"), &times, AtFlags::empty()).unwrap();
        let meta = fs::metadata(mounted.path("f0")).unwrap();
        ((meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec()), meta.ctime())
    };
    let (now, omit) = ((0, UTIME_NOW), (0, UTIME_OMIT));
    let exact = [(1_234_567_890, 987_654_321), (-5, 7), (-1, 999_999_999), (1 << 33, 0), (0, 0)];
    for time in exact {
        let (atime, mtime, ctime) = set(time, time);
        assert_eq!((atime, mtime), (time, time));
        assert!(ctime > 1_600_000_000);
    }
    // POSIX: O_TRUNC and ftruncate mark the times even of an empty file, truncate(2) does not.
    let f0 = mounted.path("f0");
    let marked = |change: &dyn Fn()| {
        fs::write(&f0, "").unwrap();
        set((5, 5), (5, 5));
        change();
        fs::metadata(&f0).unwrap().mtime() != 5
    };
    assert!(marked(&|| drop(File::create(&f0).unwrap())));
    assert!(marked(&|| OpenOptions::new().write(true).open(&f0).unwrap().set_len(0).unwrap()));
    let path = std::ffi::CString::new(f0.to_str().unwrap()).unwrap();
    // SAFETY: the path is NUL-terminated.
    assert!(!marked(&|| assert_eq!(unsafe { libc::truncate(path.as_ptr(), 0) }, 0)));
    set((0, 0), (0, 0));
    assert_eq!(set((5, 5), omit).1, (0, 0));
    let (atime, mtime, _) = set(omit, now);
    assert_eq!(atime, (5, 5));
    assert!(mtime.0 > 1_600_000_000);
}

#[test]
fn big_directories_are_listed_completely_while_they_change() {
    let Some(mounted) = Mounted::new("big_directories") else { return };
    for file in 0..3_000 {
        fs::write(mounted.path(&format!("file number {file}")), "").unwrap();
    }
    assert_eq!(fs::read_dir(mounted.point.path()).unwrap().count(), 3_000);
    let mut listing = fs::read_dir(mounted.point.path()).unwrap();
    let mut seen: Vec<_> = listing.by_ref().take(10).map(|e| e.unwrap().file_name()).collect();
    for name in &seen {
        fs::remove_file(mounted.point.path().join(name)).unwrap();
    }
    seen.extend(listing.map(|entry| entry.unwrap().file_name()));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3_000, "neither lost nor doubled");
}

/// The next name but `.` and `..` that a listing has.
fn next_name(listing: &mut Dir) -> Option<String> {
    let name = |entry: rustix::fs::DirEntry| entry.file_name().to_str().unwrap().to_owned();
    listing.map(|entry| name(entry.unwrap())).find(|name| !name.starts_with('.'))
}

/// generic/736 of xfstests: every name that is listed is renamed, so that it goes to the end. Who begins again
/// is told of what came.
#[test]
fn a_directory_whose_names_change_is_not_listed_for_ever() {
    let Some(mounted) = Mounted::new("names_change") else { return };
    const FILES: usize = 2_000;
    for file in 0..FILES {
        fs::write(mounted.path(&format!("old {file}")), "").unwrap();
    }
    let mut listing = Dir::read_from(File::open(mounted.point.path()).unwrap()).unwrap();
    let mut listed = Vec::new();
    while let Some(name) = next_name(&mut listing) {
        assert!(listed.len() < FILES, "{name} is the name of something that came meanwhile");
        fs::rename(mounted.path(&name), mounted.path(&format!("new {}", listed.len()))).unwrap();
        listed.push(name);
    }
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), FILES, "neither lost nor doubled");
    listing.rewind();
    let mut again = 0;
    while let Some(name) = next_name(&mut listing) {
        assert!(name.starts_with("new "), "{name}");
        again += 1;
    }
    assert_eq!(again, FILES);
}

#[test]
fn special_files_are_what_they_say() {
    let Some(mounted) = Mounted::new("special_files") else { return };
    let fifo = mounted.path("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    let writer = thread::spawn({
        let fifo = fifo.clone();
        move || fs::write(fifo, "through the pipe").unwrap()
    });
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "through the pipe");
    writer.join().unwrap();

    let null = mounted.path("null");
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, &null, rustix::fs::FileType::CharacterDevice, 0o666.into(), device)
        .unwrap();
    assert_eq!(fs::metadata(&null).unwrap().rdev(), device);
    assert_eq!(fs::read(&null).unwrap(), b"");
    fs::write(&null, "gone").unwrap();

    let socket = std::os::unix::net::UnixListener::bind(mounted.path("socket")).unwrap();
    let client = std::os::unix::net::UnixStream::connect(mounted.path("socket")).unwrap();
    socket.accept().unwrap();
    drop(client);
    assert!(fs::metadata(mounted.path("socket")).unwrap().file_type().is_socket());
}

#[test]
fn setuid_and_setgid_go_when_others_change_the_file() {
    let Some(mounted) = Mounted::new("setuid_and_setgid_go") else { return };
    let file = mounted.path("f");
    fs::write(&file, "some text").unwrap();
    fs::set_permissions(mounted.point.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let mode_after = |mode: u32, script: &str, user: &[&str]| {
        fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(user).args(["sh", "-c", script]).current_dir(mounted.point.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        fs::metadata(&file).unwrap().mode() & 0o7777
    };
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let member = ["--reuid=65534", "--regid=65534", "--groups=0"];
    let root = ["--reuid=0"];
    let write = "printf x >>f";
    let truncate = "truncate -s 3 f";
    let allocate = "fallocate -l 100000 f";
    for change in [write, truncate, allocate, "printf y 1<>f", ": >f"] {
        assert_eq!(mode_after(0o6777, change, &root), 0o6777, "{change} by root");
        assert_eq!(mode_after(0o6777, change, &nobody), 0o0777, "{change} by nobody");
        // Without execution by the group setgid stays, but only for somebody of the group.
        assert_eq!(mode_after(0o6766, change, &member), 0o2766, "{change} by a member");
        assert_eq!(mode_after(0o6766, change, &nobody), 0o0766, "{change} by nobody");
    }
    assert_eq!(mode_after(0o6777, "chown 7 f", &root), 0o0777);
    assert_eq!(mode_after(0o6777, "chmod 6755 f", &root), 0o6755);
}

#[test]
fn parallel_clients_keep_the_volume_whole() {
    for threads in [1, 4] {
        if let Some(mounted) =
            Mounted::with("parallel_clients", Options { threads, ..Options::default() })
        {
            let_loose(&mounted);
        }
    }
}

fn let_loose(mounted: &Mounted) {
    const ROUNDS: usize = 400;
    let shared = mounted.path("shared");
    fs::create_dir(&shared).unwrap();
    thread::scope(|scope| {
        for client in 0..4 {
            let shared = &shared;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mine = shared.join(format!("c{client}r{round}"));
                    let contested = shared.join(format!("name{}", round % 7));
                    fs::write(&mine, format!("{client} {round}")).unwrap();
                    assert_eq!(fs::read_to_string(&mine).unwrap(), format!("{client} {round}"));
                    // Somebody else may be faster: that is no failure.
                    match round % 5 {
                        0 => fs::rename(&mine, &contested).unwrap(),
                        1 => drop(fs::hard_link(&mine, &contested)),
                        2 => drop(fs::remove_file(&contested)),
                        3 => drop(fs::create_dir(shared.join(format!("d{}", round % 3)))),
                        _ => drop(fs::remove_dir(shared.join(format!("d{}", round % 3)))),
                    }
                    let listed = fs::read_dir(shared).unwrap().count();
                    assert!(listed <= 4 * ROUNDS + 10);
                }
            });
        }
    });
    let of_client = |entry: &fs::DirEntry| entry.file_name().to_str().unwrap().starts_with('c');
    let left = fs::read_dir(&shared).unwrap().map(Result::unwrap).filter(of_client).count();
    assert_eq!(left, 4 * ROUNDS * 4 / 5, "only the renamed files are gone");
}

#[test]
fn data_of_all_sizes_survives() {
    let Some(mounted) = Mounted::new("data_of_all_sizes") else { return };
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(mounted.path("f")).unwrap();
    let pattern: Vec<u8> =
        (0..5_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (offset, len) in [(0, 1), (4095, 2), (131_071, 131_074), (1 << 20, 3 << 20)] {
        file.write_all_at(&pattern[offset..offset + len], offset as u64).unwrap();
        let mut read = vec![0; len];
        // By another descriptor, which drops the pages, so the server is asked.
        File::open(mounted.path("f")).unwrap().read_exact_at(&mut read, offset as u64).unwrap();
        assert!(read == pattern[offset..offset + len], "{len} bytes at {offset}");
    }
    let direct =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(mounted.path("f")).unwrap();
    let mut read = vec![0; 4096];
    direct.read_exact_at(&mut read, 1 << 20).unwrap();
    assert!(read == pattern[1 << 20..(1 << 20) + 4096]);
    rustix::fs::syncfs(file.as_fd()).unwrap();
}

/// Runs in a process of its own, made by [`start_server`]: serves, or serves and uses the mount too.
#[test]
#[ignore = "only as a process that other tests start"]
fn server_process() {
    let point = PathBuf::from(std::env::var_os("FATHOM_TEST_POINT").unwrap());
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let config = Config { uid, gid, ..Config::default() };
    if std::env::var_os("FATHOM_TEST_LOAD").is_some() {
        let _mount = Mount::start(&point, config, Options::default()).unwrap();
        println!("\nREADY");
        load(&point);
    }
    let ended = serve(&point, config, Options::default(), None, || println!("\nREADY"));
    match ended {
        Ok(ended) => println!("\nENDED {ended:?}"),
        Err(error) => println!("\nERROR {error}"),
    }
}

/// Clients in the same process as the server, without end.
fn load(point: &Path) -> ! {
    thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                for round in 0.. {
                    let file = point.join(format!("{client}"));
                    // The mount disappears under our feet: that is what is being tested.
                    let _ = fs::write(&file, vec![client; 100_000]);
                    let _ = fs::read(&file);
                    let _ = fs::rename(&file, point.join(format!("{client}-{}", round % 10)));
                }
            });
        }
    });
    unreachable!()
}

/// Starts [`server_process`] and waits until it serves.
fn start_server(mut command: Command, point: &Path, with_load: bool) -> (Child, String) {
    command.env("FATHOM_TEST_POINT", point);
    if with_load {
        command.env("FATHOM_TEST_LOAD", "1");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut lines = stdout.lines().map(Result::unwrap);
    let first = lines.find(|line| line == "READY" || line.starts_with("ERROR"));
    // The rest of the output is of no interest, but the pipe must stay open.
    thread::spawn(move || lines.for_each(drop));
    (child, first.unwrap_or_default())
}

/// This program as [`server_process`].
fn this_program() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "server_process", "--ignored", "--nocapture"]);
    command
}

#[test]
fn a_signal_ends_serving_cleanly() {
    if !is_root() {
        return skip("a_signal_ends_serving_cleanly", "needs root");
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let point = tempfile::tempdir().unwrap();
        let (mut child, ready) = start_server(this_program(), point.path(), false);
        assert_eq!(ready, "READY");
        fs::write(point.path().join("f"), "x").unwrap();
        send(&child, signal);
        assert!(child.wait().unwrap().success());
        assert_eq!(mount_line(point.path()), None);
    }
    let point = tempfile::tempdir().unwrap();
    let (mut child, _) = start_server(this_program(), point.path(), false);
    assert!(Command::new("umount").arg(point.path()).status().unwrap().success());
    assert!(child.wait().unwrap().success(), "ends when somebody else unmounts");
}

fn send(child: &Child, signal: libc::c_int) {
    let pid = rustix::process::Pid::from_child(child);
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The mount is gone and the directory can be used again.
#[track_caller]
fn expect_free(point: &Path) {
    wait_until("the mount is gone", || mount_line(point).is_none());
    assert_eq!(fs::read_dir(point).unwrap().count(), 0);
}

#[test]
fn a_killed_server_leaves_no_mount() {
    if !is_root() {
        return skip("a_killed_server_leaves_no_mount", "needs root");
    }
    let point = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let (mut child, ready) = start_server(this_program(), point.path(), false);
        assert_eq!(ready, "READY");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let client = || {
                let held = File::create(point.path().join("held")).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    for name in ["a", "b", "c"] {
                        let _ = fs::write(point.path().join(name), vec![7; 50_000]);
                    }
                }
                held
            };
            let clients = [scope.spawn(client), scope.spawn(client)];
            thread::sleep(Duration::from_millis(50 + 30 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            wait_until("the mount is gone", || mount_line(point.path()).is_none());
            stop.store(true, Ordering::Relaxed);
            for client in clients {
                let error = client.join().unwrap().metadata().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
            }
        });
        for left in fs::read_dir(point.path()).unwrap() {
            fs::remove_file(left.unwrap().path()).unwrap(); // written after the mount was gone
        }
        expect_free(point.path());
    }
}

#[test]
fn a_killed_process_does_not_hang_on_its_own_mount() {
    if !is_root() {
        return skip("a_killed_process_does_not_hang_on_its_own_mount", "needs root");
    }
    for round in 0..3 {
        let point = tempfile::tempdir().unwrap();
        let (mut child, ready) = start_server(this_program(), point.path(), true);
        assert_eq!(ready, "READY");
        thread::sleep(Duration::from_millis(50 + 70 * round));
        child.kill().unwrap();
        wait_until("the process ends", || child.try_wait().unwrap().is_some());
        wait_until("the mount is gone", || mount_line(point.path()).is_none());
    }
}

/// In a mount namespace of its own, in which everybody may open /dev/fuse, as nobody.
fn as_nobody(test: &str) -> Option<Command> {
    if !is_root() {
        skip(test, "needs root to become somebody else");
        return None;
    }
    let tools = ["setpriv", "unshare", "fusermount3"];
    if let Some(tool) =
        tools.iter().find(|tool| Command::new(tool).arg("--version").output().is_err())
    {
        skip(test, format!("{tool} is missing"));
        return None;
    }
    let program = std::env::current_exe().unwrap();
    let reachable = program.ancestors().skip(1).all(|dir| {
        dir.as_os_str().is_empty() || fs::metadata(dir).unwrap().mode() & 0o005 == 0o005
    });
    if !reachable {
        skip(test, "this test program is in a directory that others cannot enter");
        return None;
    }
    let script = "mknod -m 666 $1/fuse c 10 229 && mount --bind $1/fuse /dev/fuse || exit 9; shift
        exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]);
    Some(command)
}

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    let test = "an_ordinary_user_mounts_through_fusermount3";
    let Some(mut command) = as_nobody(test) else { return };
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let point = scratch.path().join("point");
    fs::create_dir(&point).unwrap();
    std::os::unix::fs::chown(&point, Some(65534), Some(65534)).unwrap();
    let program = std::env::current_exe().unwrap();
    command.arg(scratch.path()).arg(program);
    command.args(["--exact", "user_process", "--ignored", "--nocapture"]);
    let output = command.env("FATHOM_TEST_POINT", &point).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{failure}");
    assert!(text.contains("USED AND UNMOUNTED"), "{text}\n{failure}");
    assert_eq!(mount_line(&point), None);
}

/// Runs as an ordinary user, made by the test above.
#[test]
#[ignore = "only as a process that other tests start"]
fn user_process() {
    let point = PathBuf::from(std::env::var_os("FATHOM_TEST_POINT").unwrap());
    let uid = rustix::process::geteuid().as_raw();
    assert_ne!(uid, 0);
    let config = Config { uid, gid: uid, ..Config::default() };
    let mount = Mount::start(&point, config.clone(), Options::default()).unwrap();
    fs::write(point.join("f"), "mine").unwrap();
    assert_eq!(fs::metadata(point.join("f")).unwrap().uid(), uid);
    let line = mount_line(&point).unwrap();
    assert!(line.contains("fuse.reffs fathom") && !line.contains("allow_other"), "{line}");
    let snapshots = fathom_subjects::fuse::Snapshots::open(&point).unwrap();
    snapshots.save(1).unwrap();
    fs::remove_file(point.join("f")).unwrap();
    snapshots.restore(1, true).unwrap();
    assert_eq!(fs::read_to_string(point.join("f")).unwrap(), "mine");
    drop(snapshots);
    mount.unmount().unwrap();
    assert_eq!(mount_line(&point), None);

    // And when it is killed.
    let (mut child, ready) = start_server(this_program(), &point, true);
    assert_eq!(ready, "READY");
    thread::sleep(Duration::from_millis(50));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the mount is gone", || mount_line(&point).is_none());

    println!("USED AND UNMOUNTED");
}

#[test]
fn a_user_who_may_not_open_the_device_is_told_so() {
    let test = "a_user_who_may_not_open_the_device_is_told_so";
    if as_nobody(test).is_none() {
        return;
    }
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0 {
        return skip(test, "everybody may open /dev/fuse here");
    }
    let point = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(point.path(), Some(65534), Some(65534)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "server_process", "--ignored", "--nocapture"]);
    let (mut child, said) = start_server(command, point.path(), false);
    child.wait().unwrap();
    assert!(said.starts_with("ERROR this user may not open /dev/fuse"), "{said}");
}

/// The access time of a file after an hour has been set and the file has been read.
fn read_after_an_hour(mounted: &Mounted, name: &str, flags: i32) -> SystemTime {
    let path = mounted.path(name);
    let hour = SystemTime::now() - Duration::from_secs(3600);
    let times =
        std::fs::FileTimes::new().set_accessed(hour).set_modified(hour - Duration::from_secs(3600));
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.set_times(times).unwrap();
    drop(file);
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
    file.read_to_end(&mut Vec::new()).unwrap();
    drop(file);
    fs::metadata(&path).unwrap().accessed().unwrap()
}

#[test]
fn access_times_follow_the_rules() {
    const O_NOATIME: i32 = 0o1_000_000;
    let is_now = |time: SystemTime| time.elapsed().unwrap_or_default() < Duration::from_secs(600);
    // The change of times is itself a change: relatime updates after it, and not once more.
    let cases = [
        (AccessTimes::Strict, 0, true),
        (AccessTimes::Strict, O_NOATIME, false),
        (AccessTimes::Relative, 0, true),
        (AccessTimes::Never, 0, false),
    ];
    for (access_times, flags, updated) in cases {
        let options = Options { access_times, ..Options::default() };
        let Some(mounted) = Mounted::with("access_times_follow_the_rules", options) else { return };
        fs::write(mounted.path("f"), "x").unwrap();
        let accessed = read_after_an_hour(&mounted, "f", flags);
        assert_eq!(is_now(accessed), updated, "{access_times:?} {flags:o}");
        if access_times == AccessTimes::Relative {
            thread::sleep(Duration::from_millis(5));
            fs::read(mounted.path("f")).unwrap();
            let again = fs::metadata(mounted.path("f")).unwrap().accessed().unwrap();
            assert_eq!(again, accessed, "relatime updates once");
        }
    }
}

/// What `name_to_handle_at(2)` fills in.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

#[test]
fn file_handles_outlive_the_inode_cache() {
    let Some(mut mounted) = Mounted::new("file_handles_outlive_the_inode_cache") else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), "hello").unwrap();
    fs::write(mounted.path("gone"), "").unwrap();
    let handle = |path: PathBuf| {
        let name = std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
        let mut mount_id = 0;
        // SAFETY: a terminated path, a handle with as much room as it says, an integer.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                name.as_ptr(),
                &raw mut handle,
                &raw mut mount_id,
                0,
            )
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        handle
    };
    let handles = [mounted.path("d/f"), mounted.path("d"), mounted.path("gone")].map(handle);
    fs::remove_file(mounted.path("gone")).unwrap();
    // A new mount of the same volume: the kernel has forgotten everything.
    mounted.mount = Some(mounted.mount.take().unwrap().remount().unwrap());
    let root = File::open(mounted.point.path()).unwrap();
    let open = |handle: &Handle| {
        // SAFETY: a handle that the kernel has filled in, an open directory.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                std::os::fd::AsRawFd::as_raw_fd(&root),
                std::ptr::from_ref(handle),
                libc::O_RDONLY,
            )
        };
        match fd {
            -1 => Err(std::io::Error::last_os_error().raw_os_error()),
            // SAFETY: a new descriptor that nobody else owns.
            fd => Ok(unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(fd as i32) }),
        }
    };
    let mut text = String::new();
    open(&handles[0]).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    assert!(open(&handles[1]).unwrap().metadata().unwrap().is_dir());
    assert_eq!(open(&handles[2]).unwrap_err(), Some(libc::ESTALE));
    drop(root);
}

#[test]
fn immutable_and_append_only_files_stay_as_they_are() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Some(mounted) = Mounted::new("immutable_and_append_only_files") else { return };
    let path = mounted.path("f");
    fs::write(&path, "x").unwrap();
    let file = File::open(&path).unwrap();
    let opened_before = OpenOptions::new().write(true).open(&path).unwrap();
    ioctl_setflags(&file, IFlags::IMMUTABLE).unwrap();
    assert_eq!(ioctl_getflags(&file).unwrap(), IFlags::IMMUTABLE);
    let denied = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPERM));
    };
    denied(OpenOptions::new().append(true).open(&path).map(drop));
    // xfstests' generic/553.
    let copied = rustix::fs::copy_file_range(&file, None, &opened_before, Some(&mut 1), 1);
    denied(copied.map(drop).map_err(Into::into));
    denied(fs::remove_file(&path));
    denied(fs::rename(&path, mounted.path("g")));
    denied(fs::hard_link(&path, mounted.path("g")));
    denied(fs::set_permissions(&path, fs::Permissions::from_mode(0o600)));
    ioctl_setflags(&file, IFlags::APPEND).unwrap();
    denied(OpenOptions::new().write(true).open(&path).map(drop));
    denied(fs::write(&path, "y"));
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"y").unwrap();
    ioctl_setflags(&file, IFlags::empty()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "xy");
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let options = Options { read_only: true, ..Options::default() };
    let Some(mounted) = Mounted::with("a_read_only_mount_changes_nothing", options) else { return };
    let before = fs::metadata(mounted.point.path()).unwrap().accessed().unwrap();
    let error = fs::write(mounted.path("f"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    thread::sleep(Duration::from_millis(5));
    assert_eq!(fs::read_dir(mounted.point.path()).unwrap().count(), 0);
    assert_eq!(fs::metadata(mounted.point.path()).unwrap().accessed().unwrap(), before);
}

#[test]
fn access_control_lists_are_kept_obeyed_and_inherited() {
    let test = "access_control_lists_are_kept_obeyed_and_inherited";
    if Command::new("setfacl").arg("--version").output().is_err() {
        return skip(test, "setfacl is missing: install the package acl");
    }
    let options = Options { acl: true, ..Options::default() };
    let Some(mounted) = Mounted::with(test, options) else { return };
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(mounted.point.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{program} {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mode = |name: &str| fs::metadata(mounted.path(name)).unwrap().permissions().mode() & 0o7777;
    fs::write(mounted.path("f"), "secret").unwrap();
    fs::set_permissions(mounted.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
    run("setfacl", &["-m", "u:65534:rw", "f"]);
    assert_eq!(mode("f"), 0o660, "the group shows the mask");
    assert!(run("getfacl", &["-n", "f"]).contains("user:65534:rw-"), "the list is kept");
    run("chmod", &["600", "f"]);
    let list = run("getfacl", &["-n", "f"]);
    assert!(list.contains("user:65534:rw-") && list.contains("mask::---"), "{list}");
    // What is made below a default list inherits it, whatever the mask of the process.
    fs::create_dir(mounted.path("d")).unwrap();
    run("setfacl", &["-d", "-m", "u:65534:rx,g::rwx,o::-", "d"]);
    fs::create_dir(mounted.path("d/e")).unwrap();
    fs::write(mounted.path("d/e/f"), "").unwrap();
    let list = run("getfacl", &["-n", "d/e/f"]);
    assert!(list.contains("user:65534:r-x") && list.contains("other::---"), "{list}");
    assert_eq!(mode("d/e/f"), 0o660);
    run("setfacl", &["-b", "f"]);
    assert!(!run("getfacl", &["-n", "f"]).contains("65534"));
}
