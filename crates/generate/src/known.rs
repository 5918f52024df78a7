//! Workloads that once showed a crash-consistency bug in a file system of Linux, by name: a suite.
//!
//! The sequences are those of CrashMonkey's list of new bugs, of fstests (the tests that cut the power
//! with dm-flakey) and of Hydra, written anew in a language of one line each.

use fathom_core::flags::{FallocateMode, Mode, MsyncFlags, OpenFlags, RenameFlags, XattrFlags};
use fathom_core::{FsBytes, FsPath, Op, Pattern, Slot, Target, TimeArg};

/// A workload with the name of the bug.
#[derive(Clone, Debug)]
pub struct KnownWorkload {
    /// Where it is described.
    pub name: &'static str,
    /// The operations.
    pub ops: Vec<Op>,
}

/// Every workload: name, and the calls separated by semicolons. `wr F OFFSET LEN`, `falloc F MODE
/// OFFSET LEN` with z, k and p for zero range, keep size and punch hole; the rest is as it is called.
const KNOWN: [(&str, &str); 46] = [
    (
        "crashmonkey-1",
        "mkdir A; creat A/bar; fsync A/bar; mkdir B; creat B/bar; rename B/bar A/bar; creat A/foo; fsync A/foo; fsync A",
    ),
    (
        "crashmonkey-2",
        "mkdir A; mkdir A/C; rename A/C B; creat B/bar; fsync B/bar; rename B/bar A/bar; rename A B; fsync B/bar",
    ),
    (
        "crashmonkey-3",
        "mkdir A; mkdir B; mkdir A/C; creat B/foo; fsync B/foo; creat B/bar; fsync B/bar; link B/foo A/C/foo; fsync A",
    ),
    (
        "crashmonkey-4",
        "mkdir A; sync; rename A B; creat B/foo; fsync B/foo; mkdir A; creat A/foo; fsync B",
    ),
    (
        "crashmonkey-5",
        "mkdir A; mkdir B; creat A/foo; link A/foo B/foo; fsync A/foo; creat A/bar; fsync B/foo",
    ),
    ("crashmonkey-6", "mkdir A; creat foo; creat A/foo; fsync A/foo; creat A/bar; fsync ."),
    ("crashmonkey-7", "creat foo; mkdir A; link foo A/bar; fsync foo"),
    ("crashmonkey-8", "wr foo 0 4096; falloc foo k 4096 4096; fsync foo"),
    ("crashmonkey-9", "wr foo 0 4096; falloc foo zk 4096 4096; fsync foo; fdatasync foo"),
    ("crashmonkey-10", "mkdir A; sync; rename A B; creat B/foo; fsync B/foo"),
    ("ext4-direct-write", "creat f; sync; wr f 16384 4096; dwr f 0 4096"),
    (
        "generic-480",
        "mkdir A; creat A/foo; link A/foo A/bar; sync; unlink A/bar; creat A/bar; fsync A/bar",
    ),
    (
        "generic-479",
        "mkdir A; mkfifo A/foo; sync; creat A/dummy; fsync A/dummy; rename A/foo A/bar; link A/bar A/foo; unlink A/dummy; fsync A",
    ),
    ("generic-481", "mkdir A; sync; creat A/foo; fsync A/foo"),
    ("generic-034", "mkdir D; creat D/foo; sync; creat D/bar; fsync D; fsync D/bar"),
    (
        "generic-039",
        "mkdir a; mkdir a/b; wr a/b/foo 0 4096; link a/b/foo a/b/bar; sync; unlink a/b/bar; fsync a/b/foo",
    ),
    ("generic-056", "wr foo 0 4096; fsync foo; link foo foo2; creat bar; fsync bar"),
    (
        "generic-057",
        "wr foo 0 8192; sync; wr foo 8192 4096; fsync foo; link foo foo2; creat bar; fsync bar",
    ),
    (
        "generic-059",
        "wr foo 0 16384; fsync foo; sync; falloc foo pk 8000 4096; falloc foo pk 15000 100; fsync foo",
    ),
    (
        "generic-065",
        "wr foo 0 4096; mkdir D; sync; link foo D/foo2; link foo D/foo3; wr hello 0 4096; link hello D/hello2; mkdir D/x; link foo D/x/foo; creat D/x/q; fsync D; fsync hello",
    ),
    (
        "generic-066",
        "creat foo; setxattr foo user.a1; setxattr foo user.a2; setxattr foo user.a3; sync; removexattr foo user.a2; fsync foo; removexattr foo user.a1; link foo foo2; creat q; fsync q",
    ),
    (
        "generic-073",
        "wr foo 0 8192; fsync foo; mkdir D1; mkdir D2; creat D1/bar; sync; wr foo 8192 8192; rename D1/bar D2/bar; fsync D1; fsync foo",
    ),
    (
        "generic-090",
        "wr foo 0 32768; fsync foo; sync; link foo bar; sync; wr foo 32768 32768; fsync foo",
    ),
    (
        "generic-101",
        "wr foo 0 128000; wr bar 0 128000; sync; truncate foo 65536; truncate foo 128000; fsync foo; truncate bar 0; truncate bar 259072; fsync bar",
    ),
    (
        "generic-104",
        "mkdir D; creat D/foo; creat D/bar; sync; link D/bar D/bar2; link D/foo D/foo2; fsync D/bar",
    ),
    ("generic-106", "mkdir D; creat D/foo; link D/foo D/bar; sync; unlink D/bar; fsync D/foo"),
    (
        "generic-107",
        "mkdir D; creat foo; link foo D/foo2; link foo D/foo3; sync; unlink D/foo3; fsync foo",
    ),
    (
        "generic-177",
        "wr foo 0 131072; fsync foo; falloc foo pk 98304 32768; falloc foo pk 65536 131072; falloc foo pk 32768 98304; fsync foo",
    ),
    ("generic-321-a", "mkdir bar; fsync bar"),
    (
        "generic-321-b",
        "creat foo; mkdir bar; fsync foo; rename foo bar/foo; fsync bar; fsync bar/foo",
    ),
    (
        "generic-321-c",
        "creat foo; mkdir bar; fsync foo; setxattr foo user.a; rename foo bar/foo; fsync bar; fsync bar/foo",
    ),
    ("generic-322", "wr foo 0 102400; fsync foo; rename foo bar; fsync bar"),
    ("generic-325", "wr foo 0 262144; sync; mmap foo 0 4096; mmap foo 258048 4096"),
    (
        "generic-335",
        "mkdir a; mkdir a/b; mkdir c; creat a/b/foo; sync; rename a/b/foo c/foo; creat a/bar; fsync a; fsync c/foo",
    ),
    (
        "generic-336",
        "mkdir a; mkdir b; mkdir c; creat a/foo; link a/foo b/foolink; creat b/bar; sync; unlink b/foolink; rename b/bar c/bar; fsync a/foo",
    ),
    (
        "generic-341",
        "mkdir a; mkdir a/x; wr a/x/foo 0 32768; wr a/x/bar 0 32768; sync; rename a/x a/y; mkdir a/x; fsync a/x",
    ),
    (
        "generic-342",
        "mkdir a; wr a/foo 0 16384; sync; rename a/foo a/bar; wr a/foo 0 16384; fsync a/foo",
    ),
    (
        "generic-343",
        "mkdir x; mkdir y; creat x/foo; mkdir y/z; creat y/foo2; sync; link x/foo x/bar; rename y/z x/z; rename y/foo2 x/foo2; fsync x/bar",
    ),
    (
        "generic-348",
        "mkdir D1; sync; symlink foo D1/bar1; fsync D1; mkdir D2; symlink foo D2/bar2; fsync D2",
    ),
    ("generic-376", "mkdir D; creat D/foo; sync; rename D/foo D/bar; creat D/foo; fsync D/bar"),
    ("generic-468-fsync", "wr foo 0 65536; sync; falloc foo k 65536 32768; fsync foo"),
    ("generic-468-fdatasync", "wr foo 0 65536; sync; falloc foo k 65536 32768; fdatasync foo"),
    (
        "generic-392",
        "wr foo 0 4096; sync; chmod foo 600; chown foo 1; wr foo 4096 4096; fdatasync foo; fsync foo; utime foo 1000; fsync foo",
    ),
    ("hydra-160605", "mkdir A; sync; creat foo1; symlink foo1 A/bar1; fsync A"),
    ("fscq-12", "creat foo; fsync foo; mkdir A; truncate foo 5595; wr foo 1303 4000; fsync ."),
    (
        "generic-040",
        "creat foo; link foo f1; link foo f2; link foo f3; link foo f4; sync; link foo f5; fsync foo",
    ),
];

/// The suite.
pub fn all() -> Vec<KnownWorkload> {
    KNOWN
        .iter()
        .map(|(name, text)| KnownWorkload { name, ops: Builder::default().build(text) })
        .collect()
}

const FILE: OpenFlags = OpenFlags::O_RDWR.union(OpenFlags::O_CREAT);

/// Builds operations; every file that is needed is open in a slot of its own.
#[derive(Default)]
struct Builder {
    ops: Vec<Op>,
    /// The paths that are open: the index is the slot.
    open: Vec<String>,
    seed: u64,
}

impl Builder {
    fn build(mut self, text: &str) -> Vec<Op> {
        for call in text.split(';') {
            let words: Vec<&str> = call.split_whitespace().collect();
            self.call(&words);
        }
        self.ops
    }

    /// The slot of a path, which is opened if it is not open.
    fn slot(&mut self, path: &str, flags: OpenFlags) -> Slot {
        if let Some(slot) = self.open.iter().position(|open| open == path) {
            return slot as Slot;
        }
        let slot = self.open.len() as Slot;
        self.open.push(path.to_owned());
        self.ops.push(Op::Open { slot, path: FsPath::from(path), flags, mode: Mode(0o644) });
        slot
    }

    fn data(&mut self, len: u64) -> Pattern {
        self.seed += 1;
        Pattern { seed: self.seed, len }
    }

    /// What was open under a name is not what the name leads to now.
    fn forget(&mut self, path: &str) {
        for (slot, open) in self.open.iter_mut().enumerate() {
            let below = open.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
            if open == path || below {
                self.ops.push(Op::Close { slot: slot as Slot });
                open.clear();
            }
        }
    }

    fn call(&mut self, words: &[&str]) {
        let word = |index: usize| words.get(index).copied().unwrap_or_default();
        let number = |index: usize| word(index).parse::<i64>().unwrap_or_default();
        let path = |index: usize| FsPath::from(word(index));
        match word(0) {
            "creat" => drop(self.slot(word(1), FILE)),
            "mkdir" => self.ops.push(Op::Mkdir { path: path(1), mode: Mode(0o755) }),
            "sync" => self.ops.push(Op::Sync),
            "fsync" | "fdatasync" => {
                let slot = self.slot(word(1), OpenFlags::empty());
                self.ops.push(match word(0) {
                    "fsync" => Op::Fsync { slot },
                    _ => Op::Fdatasync { slot },
                });
            }
            "wr" | "mmap" => {
                let (slot, offset) = (self.slot(word(1), FILE), number(2));
                let data = self.data(number(3) as u64);
                self.ops.push(match word(0) {
                    "wr" => Op::Pwrite { slot, offset, data },
                    _ => Op::MmapStore { slot, offset, data, sync: MsyncFlags::MS_SYNC },
                });
            }
            "dwr" => self.direct_write(word(1), number(2), number(3) as u64),
            "falloc" => {
                let (slot, mode) = (self.slot(word(1), FILE), mode_of(word(2)));
                self.ops.push(Op::Fallocate { slot, mode, offset: number(3), len: number(4) });
            }
            "rename" => {
                self.forget(word(1));
                self.forget(word(2));
                let flags = RenameFlags::empty();
                self.ops.push(Op::Rename { from: path(1), to: path(2), flags });
            }
            "link" => self.ops.push(Op::Link { from: path(1), to: path(2), follow: false }),
            "unlink" => {
                self.forget(word(1));
                self.ops.push(Op::Unlink { path: path(1) });
            }
            "symlink" => {
                let target = FsBytes::from(word(1));
                self.ops.push(Op::Symlink { target, path: path(2) });
            }
            "mkfifo" => {
                let mode = Mode(Mode::S_IFIFO | 0o644);
                self.ops.push(Op::Mknod { path: path(1), mode, dev: (0, 0) });
            }
            _ => self.attribute(words),
        }
    }

    fn attribute(&mut self, words: &[&str]) {
        let word = |index: usize| words.get(index).copied().unwrap_or_default();
        let target = Target::Path(FsPath::from(word(1)));
        let name = FsBytes::from(word(2));
        let number = word(2).parse().unwrap_or_default();
        self.ops.push(match word(0) {
            "setxattr" => {
                let value = Pattern { seed: 1, len: 8 };
                Op::Setxattr { target, name, value, flags: XattrFlags::empty() }
            }
            "removexattr" => Op::Removexattr { target, name },
            "truncate" => Op::Truncate { target, len: number },
            "chmod" => Op::Chmod { target, mode: Mode(0o600) },
            "utime" => {
                let mtime = TimeArg::At { sec: number, nsec: 0 };
                Op::Utimens { target, atime: TimeArg::Omit, mtime }
            }
            "chown" => Op::Chown { target, uid: Some(number as u32), gid: None },
            other => unreachable!("the workloads are tested: {other}"),
        });
    }

    fn direct_write(&mut self, path: &str, offset: i64, len: u64) {
        let slot = self.open.len() as Slot;
        self.open.push(String::new());
        let flags = OpenFlags::O_RDWR | OpenFlags::O_DIRECT | OpenFlags::O_SYNC;
        let data = self.data(len);
        self.ops.extend([
            Op::Open { slot, path: FsPath::from(path), flags, mode: Mode(0) },
            Op::Pwrite { slot, offset, data },
            Op::Close { slot },
        ]);
    }
}

fn mode_of(text: &str) -> FallocateMode {
    let mut mode = FallocateMode::empty();
    for letter in text.chars() {
        mode |= match letter {
            'z' => FallocateMode::FALLOC_FL_ZERO_RANGE,
            'p' => FallocateMode::FALLOC_FL_PUNCH_HOLE,
            _ => FallocateMode::FALLOC_FL_KEEP_SIZE,
        };
    }
    mode
}

#[cfg(test)]
mod tests {
    use fathom_core::Subject;
    use fathom_model::{Config, Model};

    use super::*;

    #[test]
    fn every_workload_can_be_executed_and_ends_with_something_durable() {
        for known in all() {
            let mut model = Model::new(Config::default()).unwrap();
            for op in &known.ops {
                let outcome = model.apply(op).unwrap();
                // One of them renames over a directory that is not empty, as it was published.
                let published = known.name == "crashmonkey-2" || known.name == "generic-479";
                assert!(outcome.result.is_ok() || published, "{}: {op}: {outcome}", known.name);
            }
            assert!(known.ops.len() > 1, "{}", known.name);
        }
        assert!(all().iter().any(|known| known.name == "generic-335"));
    }
}
