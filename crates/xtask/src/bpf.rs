//! `cargo xtask bpf`: compiles the tracer of `fathom cover` from its sources.
//!
//! The object is committed, so users need no compiler for it. It carries a digest of its sources; a
//! test of `fathom-trace` compares the two.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// Compilers, of which the first that is installed is used; any of them makes an object that works.
const COMPILERS: [&str; 3] = ["clang-16", "clang-19", "clang"];

pub(crate) fn run() -> Result<()> {
    let Some(compiler) = COMPILERS.iter().find(|name| shell::has_program(name)) else {
        bail!("no clang (Debian packages clang-16 and libbpf-dev)");
    };
    let dir = shell::root().join("crates/trace/bpf");
    let entries =
        std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut sources: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|end| end == "h" || end == "c"));
    sources.sort();
    let mut text = Vec::new();
    for path in &sources {
        text.extend(
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        );
    }
    let digest = twox_hash::XxHash3_128::oneshot(&text);
    let digest = format!("-DFATHOM_SOURCE_DIGEST=\"fathom-bpf-source:{digest:032x}\"");
    let flags = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"];
    let mut compile = Command::new(compiler);
    // No path of the machine in the object.
    compile.current_dir(&dir).args(flags).arg("-fdebug-compilation-dir=.").arg(digest);
    shell::run(compile.args(["-c", "cover.bpf.c", "-o", "cover.bpf.o"]))?;
    // Debugging information goes, type information (.BTF) stays.
    let strip = compiler.replace("clang", "llvm-strip");
    shell::run(Command::new(strip).current_dir(&dir).args(["-g", "cover.bpf.o"]))
}
