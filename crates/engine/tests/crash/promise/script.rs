//! Histories and found trees as short scripts: `creat a; write a 1 0 512; fsync a; rename a b`.
//!
//! A script is executed by the reference; what was found is the state after another script, so that it
//! has contents too.

use fathom_block::Guarantee;
use fathom_core::flags::{
    FallocateMode, MsyncFlags, OpenFlags, RenameFlags, SyncRangeFlags, XattrFlags,
};
use fathom_core::{DataSum, FsPath, Mode, Op, Pattern, Target, Tree};
use fathom_engine::crash::promise::{BrokenPromise, Contents, Promise};
use fathom_model::{Config, Model, Quirks, TreeOptions};

/// Shows the contents of a reference file system.
struct ModelContents<'a>(&'a Model);

impl Contents for ModelContents<'_> {
    fn sum(&mut self, path: &FsPath, offset: u64, len: u64) -> Option<DataSum> {
        let volume = self.0.volume();
        let mut bytes = Vec::new();
        volume.read(volume.find(path, false)?, offset, len as usize, &mut bytes).ok()?;
        (bytes.len() as u64 == len).then(|| DataSum::of(&bytes))
    }
}

fn open(path: &str, flags: OpenFlags) -> Op {
    Op::Open { slot: 0, path: path.into(), flags, mode: Mode(0o644) }
}

fn pattern(seed: &str, len: &str) -> Pattern {
    Pattern { seed: number(seed), len: number(len) }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is a number"))
}

fn mode(text: &str) -> Mode {
    Mode(u32::from_str_radix(text, 8).unwrap_or_else(|_| panic!("{text} is a mode")))
}

/// The operations of one command. Whatever works on an open file opens it first and closes it.
fn ops(command: &str) -> Vec<Op> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let rdwr = OpenFlags::O_RDWR;
    let target = |path: &str| Target::Path(path.into());
    let held = |path: &str, flags, op| vec![open(path, flags), op, Op::Close { slot: 0 }];
    let write = |seed: &str, offset: &str, len: &str| Op::Pwrite {
        slot: 0,
        offset: number(offset) as i64,
        data: pattern(seed, len),
    };
    match words.as_slice() {
        ["creat", path] => vec![open(path, rdwr | OpenFlags::O_CREAT), Op::Close { slot: 0 }],
        ["mkdir", path] => vec![Op::Mkdir { path: (*path).into(), mode: Mode(0o755) }],
        ["write", path, seed, offset, len] => held(path, rdwr, write(seed, offset, len)),
        ["osync", path, seed, offset, len] => {
            held(path, rdwr | OpenFlags::O_SYNC, write(seed, offset, len))
        }
        ["odsync", path, seed, offset, len] => {
            held(path, rdwr | OpenFlags::O_DSYNC, write(seed, offset, len))
        }
        ["msync", path, seed, offset, len] => {
            let (offset, data) = (number(offset) as i64, pattern(seed, len));
            held(path, rdwr, Op::MmapStore { slot: 0, offset, data, sync: MsyncFlags::MS_SYNC })
        }
        ["range", path] => {
            let flags = SyncRangeFlags::SYNC_FILE_RANGE_WAIT_BEFORE
                | SyncRangeFlags::SYNC_FILE_RANGE_WRITE
                | SyncRangeFlags::SYNC_FILE_RANGE_WAIT_AFTER;
            held(path, rdwr, Op::SyncFileRange { slot: 0, offset: 0, len: 0, flags })
        }
        ["trunc", path, len] => {
            vec![Op::Truncate { target: target(path), len: number(len) as i64 }]
        }
        [call @ ("falloc" | "keep"), path, offset, len] => {
            let (offset, len) = (number(offset) as i64, number(len) as i64);
            let keep = FallocateMode::FALLOC_FL_KEEP_SIZE;
            let mode = if *call == "keep" { keep } else { FallocateMode::empty() };
            held(path, rdwr, Op::Fallocate { slot: 0, mode, offset, len })
        }
        ["chmod", path, bits] => vec![Op::Chmod { target: target(path), mode: mode(bits) }],
        ["chown", path, uid] => {
            vec![Op::Chown { target: target(path), uid: Some(number(uid) as u32), gid: None }]
        }
        ["setxattr", path, name, seed] => {
            let (value, flags) = (pattern(seed, "4"), XattrFlags::empty());
            vec![Op::Setxattr { target: target(path), name: (*name).into(), value, flags }]
        }
        ["link", from, to] => {
            vec![Op::Link { from: (*from).into(), to: (*to).into(), follow: false }]
        }
        ["rename", from, to] => {
            let flags = RenameFlags::empty();
            vec![Op::Rename { from: (*from).into(), to: (*to).into(), flags }]
        }
        ["exchange", from, to] => {
            let flags = RenameFlags::RENAME_EXCHANGE;
            vec![Op::Rename { from: (*from).into(), to: (*to).into(), flags }]
        }
        ["symlink", to, path] => vec![Op::Symlink { target: (*to).into(), path: (*path).into() }],
        ["unlink", path] => vec![Op::Unlink { path: (*path).into() }],
        ["fsync", path] => held(path, OpenFlags::empty(), Op::Fsync { slot: 0 }),
        ["fdatasync", path] => held(path, OpenFlags::empty(), Op::Fdatasync { slot: 0 }),
        ["syncfs"] => held(".", OpenFlags::empty(), Op::Syncfs { slot: 0 }),
        ["sync"] => vec![Op::Sync],
        ["remount"] => vec![Op::Remount],
        other => panic!("no command {other:?}"),
    }
}

/// The operations of a script.
pub(crate) fn all_ops(script: &str) -> Vec<Op> {
    commands(script).flat_map(ops).collect()
}

fn commands(script: &str) -> impl Iterator<Item = &str> {
    script.split(';').map(str::trim).filter(|command| !command.is_empty())
}

fn execute(model: &mut Model, op: &Op) {
    let answer = model.execute(op);
    assert!(answer.result.is_ok(), "{op}: {answer}");
}

pub(crate) fn reference(guarantee: &Guarantee) -> Model {
    let profile = guarantee.reference.as_ref().map(|claim| claim.is.as_str());
    let quirks = profile.and_then(Quirks::profile).unwrap_or_default();
    Model::new(Config { quirks, ..Config::default() }).expect("a sound configuration")
}

/// What is promised after a history. The power fails inside of a last command that begins with `~`.
pub(crate) fn promise(guarantee: &Guarantee, history: &str) -> Promise {
    let mut model = reference(guarantee);
    let mut promise = Promise::new(model.clone());
    for command in commands(history) {
        let (interrupted, command) = match command.strip_prefix('~') {
            Some(command) => (true, command),
            None => (false, command),
        };
        for op in ops(command) {
            execute(&mut model, &op);
            let during = promise.step(guarantee, &op, &model);
            if interrupted && !matches!(op, Op::Open { .. }) {
                return during;
            }
        }
    }
    promise
}

/// What a script leaves; `nlink PATH COUNT` afterwards tells a lie about a link count.
pub(crate) fn found(guarantee: &Guarantee, script: &str) -> (Model, Tree) {
    let mut model = reference(guarantee);
    let (lies, honest): (Vec<&str>, Vec<&str>) =
        commands(script).partition(|command| command.starts_with("nlink"));
    for op in honest.into_iter().flat_map(ops) {
        execute(&mut model, &op);
    }
    let mut tree = model.volume().tree(TreeOptions::default());
    for lie in lies {
        let words: Vec<&str> = lie.split_whitespace().collect();
        let entry = tree.entries.get_mut(&FsPath::from(words[1])).expect("it is there");
        entry.nlink = number(words[2]) as u32;
    }
    (model, tree)
}

/// The promise that is broken if a state is found.
pub(crate) fn broken_by(promise: &Promise, found: &(Model, Tree)) -> Option<BrokenPromise> {
    assert!(promise.is_per_object(), "judged per object");
    promise.violation(&found.1, &mut ModelContents(&found.0))
}

/// The promise that is broken if a script's state is found after a history.
pub(crate) fn broken(guarantee: &Guarantee, history: &str, script: &str) -> Option<BrokenPromise> {
    broken_by(&promise(guarantee, history), &found(guarantee, script))
}

/// Whether a script's state is legal, for guarantees that judge whole trees.
pub(crate) fn allows(guarantee: &Guarantee, history: &str, script: &str) -> bool {
    let (_, tree) = found(guarantee, script);
    promise(guarantee, history).allows(tree.digest(), || tree.clone())
}
