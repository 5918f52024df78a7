//! The three workloads that the paper prints: two that crash F2FS, one that crashes ReiserFS, as they are printed.
//!
//! Names, modes, flags and sizes are those of the paper. Two words of the last one are lost in the copy at hand and
//! are taken to be `mkdir` and `open`. `deepen` makes as many of its 4,096 levels as a path can name: how long its
//! names are is not printed; here they have 25 letters, the mean of the tool's.

use std::collections::BTreeMap;

use super::Call;
use super::core::{Command, Name, NodeId};
use super::preset::Preset;

/// Letters of the names that `deepen` makes: those of the tool have 1 to 50.
const LEVEL_LETTERS: u64 = 25;

/// Blocks of 4,096 bytes of the write of the last workload: 57,344 bytes.
const WRITTEN_BLOCKS: u64 = 14;

/// A workload of the paper.
#[derive(Clone, Debug)]
pub struct PrintedWorkload {
    /// Which file system it crashed, and where it is printed.
    pub name: &'static str,
    /// Its commands.
    pub calls: Vec<Call>,
    /// Every parameter is the usual one; names are those of the paper.
    pub preset: Preset,
}

impl PrintedWorkload {
    /// All three.
    pub fn all() -> Vec<PrintedWorkload> {
        vec![f2fs_figure_3(), f2fs_section_6(), reiserfs_section_6()]
    }

    fn new(
        name: &'static str,
        names: &[(Name, &str)],
        commands: Vec<(Command, Option<u64>)>,
    ) -> PrintedWorkload {
        let usual = Preset::named("dogfood").expect("it is one of ours");
        let names: BTreeMap<Name, String> =
            names.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        let preset = Preset {
            other_percent: 0,
            flag_percent: 0,
            level_letters: LEVEL_LETTERS,
            names,
            ..usual
        };
        let call = |(command, size)| Call { command, seed: 1, size };
        PrintedWorkload { name, calls: commands.into_iter().map(call).collect(), preset }
    }

    /// Its commands without their sizes.
    pub fn commands(&self) -> Vec<Command> {
        self.calls.iter().map(|call| call.command).collect()
    }
}

fn mkdir(dir: NodeId, new: NodeId) -> (Command, Option<u64>) {
    (Command::Mkdir { dir, name: new, new }, None)
}

/// F2FS-204193: a null pointer; with `noinline_dentry`, `checkpoint=disable` and quota.
fn f2fs_figure_3() -> PrintedWorkload {
    let names = [(1, "a"), (9, "b1"), (2, "b2"), (3, "b3"), (4, "b4"), (5, "b5")];
    let commands = vec![
        mkdir(0, 1),
        (Command::Deepen { node: 1 }, Some(4096)),
        (Command::Rename { node: 1, dir: 0, name: 9 }, None),
        mkdir(1, 2),
        mkdir(2, 3),
        mkdir(3, 4),
        mkdir(4, 5),
        (Command::Sync, None),
        (Command::Enlarge { node: 5 }, Some(512)),
    ];
    PrintedWorkload::new("F2FS, figure 3", &names, commands)
}

/// The other one of F2FS.
fn f2fs_section_6() -> PrintedWorkload {
    let names = [(1, "a"), (2, "b"), (3, "c"), (4, "d")];
    let commands = vec![
        mkdir(0, 1),
        mkdir(0, 2),
        mkdir(1, 3),
        mkdir(3, 4),
        (Command::Enlarge { node: 0 }, Some(4096)),
        (Command::Sync, None),
    ];
    PrintedWorkload::new("F2FS, section 6", &names, commands)
}

/// That of ReiserFS: a write to a file that has lost its name.
fn reiserfs_section_6() -> PrintedWorkload {
    let names = [(1, "a"), (2, "b"), (3, "c"), (9, "e"), (4, "f"), (5, "g"), (6, "h")];
    let commands = vec![
        mkdir(0, 1),
        mkdir(1, 2),
        mkdir(2, 3),
        (Command::Rename { node: 2, dir: 0, name: 9 }, None),
        mkdir(3, 4),
        mkdir(4, 5),
        (Command::Create { dir: 5, name: 6, new: 6 }, None),
        (Command::Open { node: 6, new: 0 }, None),
        (Command::Prune { node: 4 }, None),
        (Command::Sync, None),
        (Command::Write { file: 0 }, Some(WRITTEN_BLOCKS)),
    ];
    PrintedWorkload::new("ReiserFS, section 6", &names, commands)
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::{OpenFlags, RenameFlags};
    use fathom_core::{Mode, Op, Pattern};

    use super::super::Refiner;
    use super::*;

    fn ops(workload: &PrintedWorkload) -> Vec<Op> {
        Refiner::ops(&workload.preset, false, &workload.calls)
    }

    fn made(path: &str) -> Op {
        Op::Mkdir { path: path.into(), mode: Mode(0o775) }
    }

    #[test]
    fn they_are_the_calls_of_the_paper() {
        let all = PrintedWorkload::all();
        let [figure_3, section_6, reiserfs] = &all[..] else { panic!("there are three") };
        let renamed = |from: &str, to: &str| Op::Rename {
            from: from.into(),
            to: to.into(),
            flags: RenameFlags::empty(),
        };
        let first = ops(figure_3);
        // Levels of 26 bytes, up to paths of 4,000.
        let levels = 153;
        assert_eq!(first.len(), 1 + levels + 1 + 4 + 1 + 512);
        assert_eq!(first[1 + levels], renamed("a", "b1"));
        assert_eq!(first[1 + levels + 4], made("b1/b2/b3/b4/b5"));
        assert_eq!(ops(section_6).len(), 4 + 4096 + 1);
        assert_eq!(ops(section_6)[3], made("a/c/d"));
        let open = |slot, flags, mode| Op::Open { slot, path: "e/c/f/g/h".into(), flags, mode };
        let create = OpenFlags::O_CREAT | OpenFlags::O_WRONLY | OpenFlags::O_TRUNC;
        let expected = [
            made("a"),
            made("a/b"),
            made("a/b/c"),
            renamed("a/b", "e"),
            made("e/c/f"),
            made("e/c/f/g"),
            open(255, create, Mode(0o775)),
            Op::Close { slot: 255 },
            open(0, OpenFlags::O_RDWR, Mode(0o644)),
            Op::Unlink { path: "e/c/f/g/h".into() },
            Op::Rmdir { path: "e/c/f/g".into() },
            Op::Sync,
            Op::Write { slot: 0, data: Pattern { seed: 1, len: 57344 } },
        ];
        assert_eq!(ops(reiserfs), expected);
    }
}
