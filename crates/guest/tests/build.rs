//! Builds a toy tree: a Makefile with the targets of Linux and a program that answers what a kernel
//! answers before it boots. What is tested is the builder; real kernels take minutes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fathom_guest::kernels::{BuildError, Cache, Order, Progress, Source, build};

const MAKEFILE: &str = "\
defconfig:\n\t@mkdir -p $(O); echo 'CONFIG_UML=y' > $(O)/.config\n\
olddefconfig:\n\t@true\n\
linux: $(O)/one.o $(O)/two.o\n\t@$(CC) -o $(O)/linux $^\n\
$(O)/%.o: %.c\n\t@echo '  CC      $*.o'; $(CC) -c -o $@ $<\n";

/// The answers of a kernel; its release is in another file, so that there are two to compile.
const ANSWERS: &str = r#"
#include <stdio.h>
#include <string.h>
extern const char *release;
int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "--version")) puts(release);
    if (count > 1 && !strcmp(words[1], "--showconfig"))
        puts("CONFIG_UML=y\nCONFIG_HOSTFS=y\nCONFIG_DEVTMPFS=y\nCONFIG_TMPFS=y\nCONFIG_PROC_FS=y\n"
             "CONFIG_SSL=y\nCONFIG_PROC_PAGE_MONITOR=y");
    return 0;
}
"#;

fn release(text: &str) -> String {
    format!("const char *release = \"{text}\";\n")
}

struct Toy {
    _dir: tempfile::TempDir,
    tree: PathBuf,
    cache: Cache,
}

impl Toy {
    fn new() -> Toy {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("linux");
        fs::create_dir_all(tree.join("arch/um")).unwrap();
        for (name, text) in [
            ("Kbuild", ""),
            ("arch/um/Makefile", ""),
            ("Makefile", MAKEFILE),
            ("one.c", ANSWERS),
            ("two.c", &release("6.99.1-toy")),
        ] {
            fs::write(tree.join(name), text).unwrap();
        }
        let cache = Cache::at(dir.path().join("cache"));
        Toy { _dir: dir, tree, cache }
    }

    /// Writes a file with a time that is later than that of every object, whatever the grain of times.
    fn edit(&self, name: &str, text: &str) {
        let path = self.tree.join(name);
        fs::write(&path, text).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(2)).unwrap();
    }

    /// The release of what was built, and how many files were compiled for it.
    fn build(&self) -> Result<(String, u64), BuildError> {
        let source = Source::Tree(self.tree.clone());
        let order = Order { source, debug: false, only: Vec::new(), jobs: 2 };
        let mut compiled = 0;
        let kernel = build(&self.cache, &order, &mut |progress| {
            if let Progress::Compiled(done, _) = progress {
                compiled = done;
            }
        })?;
        Ok((kernel.release, compiled))
    }

    /// The release of the kernel that is found for the tree.
    fn found(&self) -> Option<String> {
        let file = self.cache.find(self.tree.to_str().unwrap())?;
        Some(fathom_guest::kernel::probe(&file).unwrap().release)
    }
}

/// Whether the machine can build a kernel; says so if not.
fn can_build(test: &str) -> bool {
    let tools = ["make", "gcc", "ld", "flex", "bison", "bc"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &&str| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file());
    let missing: Vec<&str> = tools.into_iter().filter(|tool| !is_there(tool)).collect();
    if !missing.is_empty() {
        println!("SKIP {test}: no {}", missing.join(", no "));
    }
    missing.is_empty()
}

fn log_of(error: &BuildError) -> Option<&Path> {
    match error {
        BuildError::Failed { log, .. } => Some(log),
        _ => None,
    }
}

#[test]
fn a_tree_is_built_again_only_where_it_changed() {
    if !can_build("a_tree_is_built_again_only_where_it_changed") {
        return;
    }
    let toy = Toy::new();
    assert_eq!(toy.found(), None);
    assert_eq!(toy.build().unwrap(), ("6.99.1-toy".to_owned(), 2));
    assert_eq!(toy.build().unwrap(), ("6.99.1-toy".to_owned(), 0));
    toy.edit("two.c", &release("6.99.2-toy"));
    assert_eq!(toy.build().unwrap(), ("6.99.2-toy".to_owned(), 1));
    assert_eq!(toy.found().unwrap(), "6.99.2-toy");
    let listed = toy.cache.kernels().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, toy.tree.canonicalize().unwrap().display().to_string());
    assert!(toy.cache.remove(&listed[0].name).unwrap() > 0);
    assert_eq!(toy.found(), None);
}

#[test]
fn a_kernel_that_is_still_being_written_is_waited_for() {
    if !can_build("a_kernel_that_is_still_being_written_is_waited_for") {
        return;
    }
    let toy = Toy::new();
    toy.build().unwrap();
    let file = toy.cache.find(toy.tree.to_str().unwrap()).unwrap();
    let writing = fs::File::options().append(true).open(&file).unwrap();
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(writing);
    });
    assert_eq!(toy.found().unwrap(), "6.99.1-toy");
    writer.join().unwrap();
}

#[test]
fn a_tree_that_does_not_compile_shows_the_error_and_keeps_the_kernel() {
    if !can_build("a_tree_that_does_not_compile_shows_the_error_and_keeps_the_kernel") {
        return;
    }
    let toy = Toy::new();
    toy.build().unwrap();
    toy.edit("two.c", "int broken(void) { return nowhere; }\n");
    let error = toy.build().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("two.c:1:") && text.contains("nowhere"), "{text}");
    assert!(text.lines().count() < 10, "{text}");
    assert!(fs::read_to_string(log_of(&error).unwrap()).unwrap().contains("nowhere"));
    assert_eq!(toy.found().unwrap(), "6.99.1-toy");
}
