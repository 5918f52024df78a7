//! A trace that was recorded by really executing it, exported as C or shell, gives the same outcomes.

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use fathom_core::export::{Assert, c, shell};
use fathom_core::flags::{AccessMode, FallocateMode, OpenFlags, RenameFlags, Whence, XattrFlags};
use fathom_core::{
    Capability, FsBytes, HarnessFault, Header, Mode, Op, Outcome, Pattern, Slot, Step, Subject,
    Target, TimeArg, Trace, Tree, pattern,
};
use fathom_subjects::dir::DirSubject;
use fathom_subjects::sys::View;

/// Keeps what a subject is asked and answers.
struct Recorder {
    subject: DirSubject,
    steps: Vec<Step>,
}

impl Recorder {
    fn new(place: &Path) -> Recorder {
        let subject = DirSubject::create(place, View::default()).unwrap();
        Recorder { subject, steps: Vec::new() }
    }

    fn trace(self) -> Trace {
        Trace { header: Header::new(self.subject.name(), "none"), steps: self.steps }
    }
}

impl Subject for Recorder {
    fn name(&self) -> String {
        self.subject.name()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.subject.capabilities()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        let outcome = self.subject.apply(op)?;
        let (n, op) = (self.steps.len() as u64, op.clone());
        self.steps.push(Step::new(n, op, outcome.clone()));
        Ok(outcome)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.subject.observe()
    }
}

/// Compiles the trace's C program and runs it in a fresh directory of the same file system.
fn assert_program_repeats(trace: &Trace, place: &Path) {
    let build = tempfile::tempdir().unwrap();
    std::fs::write(build.path().join("repro.c"), c::program(trace, Assert::Recorded).unwrap())
        .unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-o", "repro", "repro.c"])
        .current_dir(build.path())
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let work = tempfile::tempdir_in(place).unwrap();
    std::fs::set_permissions(work.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = Command::new(build.path().join("repro")).arg(work.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.ends_with(&format!("0 of {} steps are DIFFERENT\n", trace.steps.len())), "{said}");
}

fn places() -> Vec<PathBuf> {
    let shm = PathBuf::from("/dev/shm");
    std::iter::once(std::env::temp_dir()).chain(shm.is_dir().then_some(shm)).collect()
}

#[test]
fn the_program_of_every_operation_gives_the_same_outcomes() {
    for place in places() {
        let mut recorder = Recorder::new(&place);
        every_operation(&mut recorder, true);
        assert_program_repeats(&recorder.trace(), &place);
    }
}

/// Numbers from a seed.
struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.thrown += 1;
        (pattern::word(self.seed, self.thrown) >> 17) % limit
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    fn path(&mut self) -> FsBytes {
        self.pick(&["a", "b", "d", "d/a", "d/e", "d/e/a", "s", "missing/a", "."]).into()
    }

    fn slot(&mut self) -> Slot {
        self.below(3) as Slot
    }

    fn target(&mut self) -> Target {
        match self.below(3) {
            0 => Target::Slot(self.slot()),
            1 => Target::Link(self.path()),
            _ => Target::Path(self.path()),
        }
    }

    fn mode(&mut self) -> Mode {
        Mode(self.pick(&[0o644, 0o755, 0o2770, 0o4711, 0o600]))
    }

    fn amount(&mut self) -> u64 {
        self.pick(&[0, 1, 511, 4096, 4097, 10_000])
    }

    fn data(&mut self) -> Pattern {
        Pattern { seed: self.below(1 << 40), len: self.amount() }
    }

    fn op(&mut self) -> Op {
        use OpenFlags as O;
        let flags = [
            O::empty(),
            O::O_RDWR,
            O::O_RDWR | O::O_CREAT,
            O::O_WRONLY | O::O_TRUNC | O::O_CREAT,
            O::O_RDWR | O::O_APPEND | O::O_CREAT,
            O::O_DIRECTORY,
            O::O_PATH,
            O::O_TMPFILE | O::O_RDWR,
        ];
        let modes = [
            FallocateMode::empty(),
            FallocateMode::FALLOC_FL_KEEP_SIZE,
            FallocateMode::FALLOC_FL_PUNCH_HOLE | FallocateMode::FALLOC_FL_KEEP_SIZE,
        ];
        let whences = [Whence::Set, Whence::Cur, Whence::End];
        let (slot, offset) = (self.slot(), self.amount() as i64 - 1);
        match self.below(23) {
            0..=3 => {
                Op::Open { slot, path: self.path(), flags: self.pick(&flags), mode: self.mode() }
            }
            4 => Op::Close { slot },
            5 => Op::Read { slot, len: self.amount() },
            6 => Op::Pread { slot, offset, len: self.amount() },
            7 => Op::Write { slot, data: self.data() },
            8 => Op::Pwrite { slot, offset, data: self.data() },
            9 => Op::Lseek { slot, offset, whence: self.pick(&whences) },
            10 => Op::Truncate { target: self.target(), len: offset },
            11 => {
                Op::Fallocate { slot, mode: self.pick(&modes), offset, len: self.amount() as i64 }
            }
            12 => Op::Mkdir { path: self.path(), mode: self.mode() },
            13 => Op::Rename {
                from: self.path(),
                to: self.path(),
                flags: RenameFlags::from_bits_retain(self.below(4) as u32),
            },
            14 => Op::Link { from: self.path(), to: self.path(), follow: self.below(2) == 0 },
            15 => {
                Op::Symlink { target: self.pick(&["a", "d", "nothing"]).into(), path: "s".into() }
            }
            21 => Op::LinkSlot { slot, to: self.path(), by_proc: self.below(2) == 0 },
            16 => Op::Unlink { path: self.path() },
            17 => Op::Rmdir { path: self.path() },
            18 => Op::Chmod { target: self.target(), mode: self.mode() },
            19 => self.xattr_op(),
            20 => Op::Utimens {
                target: self.target(),
                atime: TimeArg::Omit,
                mtime: TimeArg::At { sec: 7, nsec: 9 },
            },
            _ => self.look(),
        }
    }

    fn xattr_op(&mut self) -> Op {
        let (target, name) =
            (self.target(), FsBytes::from(self.pick(&["user.a", "user.b", "bad"])));
        match self.below(4) {
            0 => Op::Getxattr { target, name, len: self.amount() },
            1 => Op::Listxattr { target, len: self.amount() },
            2 => Op::Removexattr { target, name },
            _ => {
                let value = Pattern { seed: 3, len: self.below(100) };
                Op::Setxattr {
                    target,
                    name,
                    value,
                    flags: XattrFlags::from_bits_retain(self.below(3) as u32),
                }
            }
        }
    }

    fn look(&mut self) -> Op {
        let (target, slot) = (self.target(), self.slot());
        match self.below(6) {
            0 => Op::Access {
                target,
                mode: AccessMode::from_bits_retain(self.below(8) as u32),
                effective: true,
            },
            1 => Op::Getdents { slot },
            2 => Op::Readlink { path: self.path(), len: self.amount() },
            3 => Op::MmapLoad { slot, offset: self.amount() as i64, len: self.amount() },
            4 => Op::ListPiece {
                slot,
                back: self.below(3) as u32,
                len: self.pick(&[30, 100, 40_000]),
            },
            _ => Op::Stat { target },
        }
    }
}

#[test]
fn the_programs_of_random_traces_give_the_same_outcomes() {
    for place in places() {
        for seed in 0..3 {
            let mut recorder = Recorder::new(&place);
            let mut dice = Dice { seed, thrown: 0 };
            for _ in 0..500 {
                recorder.apply(&dice.op()).unwrap();
            }
            let trace = recorder.trace();
            let succeeded = trace.steps.iter().filter(|step| step.outcome.result.is_ok()).count();
            assert!(succeeded > 70, "{succeeded} of 500 operations did something");
            assert_program_repeats(&trace, &place);
            if seed == 0 {
                assert_script_repeats(&trace, &place);
            }
        }
    }
}

/// The script has every step, too.
fn assert_script_repeats(trace: &Trace, place: &Path) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), shell::script(trace, Assert::Recorded).unwrap()).unwrap();
    let work = tempfile::tempdir_in(place).unwrap();
    std::fs::set_permissions(work.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = Command::new("bash").arg(file.path()).arg(work.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        said.ends_with("\n0 steps are DIFFERENT\n"),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
