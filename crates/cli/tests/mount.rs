//! `fathom mount` as people use it: as an ordinary user, in the background, by mount(8), interrupted.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Answer, ask, command, copy_program, scratch};

/// A user without any right: `nobody` of Debian.
const NOBODY: &str = "65534";

/// Says why a test cannot run here.
fn can_run(test: &str, programs: &[&str]) -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    if !is_root || !Path::new("/dev/fuse").exists() {
        println!("SKIP {test}: needs root and /dev/fuse");
        return false;
    }
    for program in programs {
        let found = ["/usr/bin", "/bin", "/usr/sbin"]
            .iter()
            .any(|dir| Path::new(dir).join(program).exists());
        if !found {
            println!("SKIP {test}: {program} is missing");
            return false;
        }
    }
    true
}

/// Waits until something is true.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_mounted(dir: &Path) -> bool {
    let dir = format!(" {} ", dir.display());
    fs::read_to_string("/proc/self/mounts").is_ok_and(|mounts| mounts.contains(&dir))
}

fn umount(dir: &Path) {
    assert!(Command::new("umount").arg(dir).status().unwrap().success());
}

/// Ends a child in the way that a terminal does.
fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
}

/// Goes on as nobody in a mount namespace in which everybody may open /dev/fuse: a machine without udev has it
/// for root alone.
const AS_NOBODY: &str = "mknod -m 666 fuse c 10 229 && mount --bind fuse /dev/fuse || exit 9
    exec setpriv --reuid \"$1\" --regid \"$1\" --clear-groups sh -c \"$2\"";

/// Runs a shell script as nobody, in a directory that belongs to nobody; `$FATHOM` is the program.
fn as_nobody(dir: &Path, script: &str) -> Answer {
    // The program may be where nobody can go.
    let program = dir.join("fathom");
    copy_program(env!("CARGO_BIN_EXE_fathom").as_ref(), &program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Command::new("chown").arg(NOBODY).arg(dir).status().unwrap().success());
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", AS_NOBODY, "sh", NOBODY, script])
        .env("FATHOM", &program)
        .current_dir(dir)
        .output()
        .unwrap();
    Answer {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A directory that everybody can walk to.
fn public() -> tempfile::TempDir {
    let dir = scratch();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn the_root_belongs_to_who_mounts() {
    if !can_run("the_root_belongs_to_who_mounts", &["setpriv", "fusermount3", "unshare"]) {
        return;
    }
    let dir = public();
    let script = "mkdir m && $FATHOM mount --background m && echo x > m/y && cat m/y && \
                  stat -c %u m && fusermount3 -u m";
    let answer = as_nobody(dir.path(), script);
    assert_eq!((answer.code, answer.out.as_str()), (0, "x\n65534\n"), "{}", answer.err);
}

#[test]
fn an_ordinary_user_checks_the_served_reference() {
    if !can_run(
        "an_ordinary_user_checks_the_served_reference",
        &["setpriv", "fusermount3", "unshare"],
    ) {
        return;
    }
    let dir = public();
    let answer = as_nobody(dir.path(), "$FATHOM check reffs --ops 1500 --seed 3 --out out");
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
}

#[test]
fn mount_8_mounts_it_with_its_options_and_state() {
    if !can_run("mount_8_mounts_it_with_its_options_and_state", &["umount"]) {
        return;
    }
    let dir = scratch();
    let (helper, point, state) =
        (dir.path().join("mount.fuse.reffs"), dir.path().join("m"), dir.path().join("state"));
    fs::create_dir(&point).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fathom"), &helper).unwrap();
    let mount = |options: &str| {
        let options = format!("{options},state={}", state.display());
        let mut mount = Command::new(&helper);
        mount.arg("somewhere").arg(&point).args(["-o", &options]);
        let output = mount.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    mount("rw,noatime,capacity=1000");
    let line = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = line.lines().find(|line| line.contains(point.to_str().unwrap())).unwrap().to_owned();
    assert!(line.starts_with("somewhere ") && line.contains("fuse.reffs"), "{line}");
    assert!(line.contains("noatime"), "{line}");
    mount("remount,ro");
    assert_eq!(fs::write(point.join("kept"), "").unwrap_err().raw_os_error(), Some(30), "EROFS");
    mount("remount,rw");
    fs::write(point.join("before"), "").unwrap();
    fs::write(point.join("kept"), "yes").unwrap();
    fs::remove_file(point.join("before")).unwrap();
    let number = || fs::metadata(point.join("kept")).unwrap().ino();
    let before = number();
    umount(&point);
    // At once: the second waits until the first has written its state.
    mount("ro");
    assert_eq!(fs::read_to_string(point.join("kept")).unwrap(), "yes");
    assert_eq!(number(), before, "file handles name it by this");
    assert_eq!(fs::write(point.join("new"), "").unwrap_err().raw_os_error(), Some(30), "EROFS");
    mount("remount,rw");
    fs::write(point.join("new"), "").unwrap();
    umount(&point);
}

/// As chmod(2) does (xfstests' generic/375).
#[test]
fn a_list_that_a_stranger_to_the_group_sets_takes_setgid_away() {
    let test = "a_list_that_a_stranger_to_the_group_sets_takes_setgid_away";
    if !can_run(test, &["umount", "setpriv", "setfacl"]) {
        return;
    }
    let dir = public();
    let point = dir.path().join("m");
    fs::create_dir(&point).unwrap();
    let answer = ask(&["mount", "m", "--background", "-o", "acl"], dir.path());
    assert_eq!(answer.code, 0, "{}", answer.err);
    let file = point.join("f");
    for (group, expected) in [("100", 0o2777), ("101", 0o777)] {
        fs::write(&file, "").unwrap();
        let script = "chown 65534:100 $0 && chmod 2755 $0 && exec setpriv --reuid 65534 --regid $1 \
                      --clear-groups setfacl -m u::rwx,g::rwx,o::rwx $0";
        let run = Command::new("sh").args(["-c", script]).arg(&file).arg(group).status().unwrap();
        assert!(run.success());
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, expected, "{mode:o} with group {group}");
        fs::remove_file(&file).unwrap();
    }
    umount(&point);
}

#[test]
fn an_interrupt_ends_it_while_another_namespace_holds_the_mount() {
    if !can_run("an_interrupt_ends_it_while_another_namespace_holds_the_mount", &["unshare"]) {
        return;
    }
    let dir = scratch();
    let (point, state) = (dir.path().join("m"), dir.path().join("state"));
    fs::create_dir(&point).unwrap();
    let args = ["mount", "m", "--state", "state"];
    let start = || command(&args, dir.path()).stdout(Stdio::null()).spawn().unwrap();
    let mut server = start();
    until("it is not mounted", || is_mounted(&point));
    fs::write(point.join("f"), "precious").unwrap();
    let mut holder = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sleep", "60"])
        .spawn()
        .unwrap();
    // The copy is there as soon as it sleeps in a namespace of its own.
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    until("no namespace", || namespace(&holder.id().to_string()) != namespace("self"));
    interrupt(&server);
    until("the server goes on", || server.try_wait().unwrap().is_some());
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!is_mounted(&point) && fs::metadata(&state).unwrap().len() > 0);
    holder.kill().unwrap();
    holder.wait().unwrap();
    let mut server = start();
    until("it is not mounted again", || is_mounted(&point));
    assert_eq!(fs::read_to_string(point.join("f")).unwrap(), "precious");
    interrupt(&server);
    server.wait().unwrap();
}

#[test]
fn a_directory_with_something_in_it_is_not_covered() {
    if !can_run("a_directory_with_something_in_it_is_not_covered", &["umount"]) {
        return;
    }
    let dir = scratch();
    fs::create_dir_all(dir.path().join("m/inside")).unwrap();
    let answer = ask(&["mount", "m"], dir.path());
    assert_eq!(answer.code, 2, "{}", answer.out);
    assert!(answer.err.contains("is not empty"), "{}", answer.err);
    let answer = ask(&["mount", "--background", "m"], dir.path());
    assert!(answer.code == 2 && answer.err.contains("is not empty"), "{}", answer.err);
    let answer = ask(&["mount", "--background", "-o", "nonempty", "m"], dir.path());
    assert_eq!(answer.code, 0, "{}", answer.err);
    umount(&dir.path().join("m"));
}
