//! What cannot be a guest, or not the one that was asked for: exit code 2, the thing and the next step.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{debian, fathom, fathom_with, scratch};

/// The program refuses these arguments with these words.
#[track_caller]
fn refused(args: &[&str], dir: &Path, environment: &[(&str, &str)], words: &[&str]) {
    let answer = fathom_with(args, dir, environment);
    assert_eq!(answer.code, Some(2), "{args:?}: {}{}", answer.out, answer.err);
    for word in words {
        assert!(answer.err.contains(word), "{args:?}: no {word:?} in {}", answer.err);
    }
    assert!(answer.err.lines().count() < 30, "{}", answer.err);
}

#[test]
fn what_is_no_kernel_is_refused() {
    let dir = scratch();
    let check = |kernel: &str, words: &[&str]| {
        let args = ["check", "tmpfs", "--guest", kernel, "--ops", "10"];
        refused(&args, dir.path(), &[], words);
    };
    check("nothing-like-that", &["no kernel is called", "fathom guest list"]);
    check("/bin/true", &["is no User-Mode Linux kernel", "fathom guest build"]);
    check("/etc/passwd", &["no ELF executable"]);
}

/// A copy of Debian's kernel that says of itself that it was built without an option.
fn without(option: &str, dir: &Path) -> PathBuf {
    let mut kernel = fs::read("/usr/bin/linux.uml").unwrap();
    let text = format!("CONFIG_{option}=y\n");
    let at = kernel.windows(text.len()).position(|part| part == text.as_bytes());
    let at = at.unwrap_or_else(|| panic!("Debian's kernel has {text}"));
    kernel[at + text.len() - 2] = b'n';
    let path = dir.join(format!("linux-without-{option}"));
    fs::write(&path, kernel).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_kernel_that_lacks_hostfs_or_the_file_system_is_refused_before_it_boots() {
    if debian("a_kernel_that_lacks_hostfs").is_none() {
        return;
    }
    let dir = scratch();
    let kernel = without("HOSTFS", dir.path());
    let kernel = kernel.to_str().unwrap();
    let hostfs = ["has no hostfs", "CONFIG_HOSTFS=y", kernel];
    refused(&["check", "tmpfs", "--guest", kernel], dir.path(), &[], &hostfs);
    refused(&["guest", "run", kernel, "--", "true"], dir.path(), &[], &hostfs);
    let kernel = without("XFS_FS", dir.path());
    let kernel = kernel.to_str().unwrap();
    let words = ["xfs cannot be had", "no xfs in the kernel", "fathom list --guest"];
    for command in ["check", "crash"] {
        refused(&[command, "xfs", "--guest", kernel], dir.path(), &[], &words);
    }
    let value = fathom(&["check", "xfs", "--guest", kernel, "--json"], dir.path()).json();
    assert!(value["error"].as_str().is_some_and(|text| text.contains("no xfs")), "{value}");
}

#[test]
fn missing_programs_are_named_with_their_packages() {
    let dir = scratch();
    let tree = broken_tree(dir.path());
    // A PATH without a compiler.
    let environment = [("PATH", "/nowhere"), ("XDG_CACHE_HOME", dir.path().to_str().unwrap())];
    let words = ["building a kernel needs make, gcc", "apt-get install make gcc"];
    refused(&["guest", "build", "--source", &tree], dir.path(), &environment, &words);
    let Some(kernel) = debian("missing_programs_are_named") else { return };
    if Path::new("/usr/sbin/mkfs.hfsplus").exists() {
        return println!("SKIP missing_programs_are_named: mkfs.hfsplus is here");
    }
    let words = ["no mkfs.hfsplus (package hfsprogs)"];
    refused(&["check", "hfsplus", "--guest", kernel], dir.path(), &[], &words);
}

#[test]
fn no_memory_for_a_guest_is_said() {
    let Some(kernel) = debian("no_memory_for_a_guest") else { return };
    let dir = scratch();
    let run = ["guest", "run", kernel, "--memory", "4000000000", "--", "true"];
    let words = ["no place for the memory", "MiB are free, 4000000000 are needed"];
    refused(&run, dir.path(), &[], &words);
    let check = ["check", "tmpfs", "--guest", kernel, "--ops", "10"];
    let words = ["no place for the memory", "FATHOM_GUEST_MEMORY_DIR"];
    refused(&check, dir.path(), &[("FATHOM_GUEST_MEMORY_DIR", "/proc")], &words);
}

/// A Makefile with the targets of Linux, and a file that does not compile.
const MAKEFILE: &str = "\
defconfig:\n\t@mkdir -p $(O); echo 'CONFIG_UML=y' > $(O)/.config\n\
olddefconfig:\n\t@true\n\
linux: $(O)/inode.o\n\t@$(CC) -o $(O)/linux $^\n\
$(O)/%.o: %.c\n\t@for i in 1 2 3 4 5 6 7 8 9; do echo \"  CC      a$$i.o\"; done; $(CC) -c -o $@ $<\n";

fn broken_tree(dir: &Path) -> String {
    let tree = dir.join("linux");
    fs::create_dir_all(tree.join("arch/um")).unwrap();
    let broken = "int myfs_rename(void)\n{\n\treturn nowhere;\n}\n";
    let files =
        [("Kbuild", ""), ("arch/um/Makefile", ""), ("Makefile", MAKEFILE), ("inode.c", broken)];
    for (name, text) in files {
        fs::write(tree.join(name), text).unwrap();
    }
    tree.to_str().unwrap().to_owned()
}

#[test]
fn a_tree_that_does_not_compile_shows_its_error() {
    let tools = ["make", "gcc", "ld", "flex", "bison", "bc"];
    if let Some(tool) = tools.iter().find(|tool| !Path::new("/usr/bin").join(tool).exists()) {
        return println!("SKIP a_tree_that_does_not_compile_shows_its_error: no {tool}");
    }
    let dir = scratch();
    let tree = broken_tree(dir.path());
    let cache = [("XDG_CACHE_HOME", dir.path().to_str().unwrap())];
    let words = ["inode.c:3:", "nowhere", "everything it printed"];
    refused(&["guest", "build", "--source", &tree], dir.path(), &cache, &words);
    let args = ["check", "tmpfs", "--guest", &tree];
    refused(&args, dir.path(), &cache, &["no kernel was built from", "guest build --source"]);
}
