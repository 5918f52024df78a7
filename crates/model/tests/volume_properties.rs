//! Random operations on a volume: everything it keeps redundantly agrees at every step, errors change
//! nothing, snapshots come back, removal gives everything back; and file contents behave like a
//! plain array of bytes.

use fathom_core::flags::{FallocateMode, RenameFlags, XattrFlags};
use fathom_core::{FsBytes, Mode};
use fathom_model::{Config, Identity, Ino, Mutant, NewNode, ROOT, SetTime, TreeOptions, Volume};
use proptest::prelude::*;

const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"long name"];

fn tiny() -> Config {
    Config { block_bytes: 1024, blocks: 24, inodes: 12, ..Config::default() }
}

/// One step; numbers choose among what exists.
#[derive(Clone, Debug)]
enum Step {
    Make(usize, usize, u8),
    Tmpfile(usize),
    Link(usize, usize, usize),
    Unlink(usize, usize),
    Rmdir(usize, usize),
    Rename(usize, usize, usize, usize, u32),
    Write(usize, u64, usize),
    Truncate(usize, u64),
    Fallocate(usize, u32, u64, u64),
    Copy(usize, usize, u64),
    Attributes(usize, u32),
    Setxattr(usize, usize, usize, u32),
    Removexattr(usize, usize),
    Pin(usize),
    Unpin,
    Remount,
    Save,
    Restore,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (any, name) = (0usize..16, 0usize..NAMES.len());
    let offset = prop_oneof![0u64..9000, (0u64..9).prop_map(|block| block * 1024)];
    let modes = prop::sample::select(vec![0u32, 1, 3, 16, 17, 8, 32, 64, 2, 9]);
    let step = prop_oneof![
        5 => (any.clone(), name.clone(), 0u8..7).prop_map(|(d, n, k)| Step::Make(d, n, k)),
        1 => any.clone().prop_map(Step::Tmpfile),
        2 => (any.clone(), any.clone(), name.clone()).prop_map(|(i, d, n)| Step::Link(i, d, n)),
        2 => (any.clone(), name.clone()).prop_map(|(d, n)| Step::Unlink(d, n)),
        2 => (any.clone(), name.clone()).prop_map(|(d, n)| Step::Rmdir(d, n)),
        4 => (any.clone(), name.clone(), any.clone(), name.clone(), 0u32..9)
            .prop_map(|(d, n, e, m, f)| Step::Rename(d, n, e, m, f)),
        3 => (any.clone(), offset.clone(), 1usize..6000).prop_map(|(i, o, l)| Step::Write(i, o, l)),
        1 => (any.clone(), offset.clone()).prop_map(|(i, o)| Step::Truncate(i, o)),
        2 => (any.clone(), modes, offset.clone(), offset.clone())
            .prop_map(|(i, m, o, l)| Step::Fallocate(i, m, o, l)),
        1 => (any.clone(), any.clone(), offset).prop_map(|(i, j, l)| Step::Copy(i, j, l)),
        1 => (any.clone(), 0u32..0o10000).prop_map(|(i, m)| Step::Attributes(i, m)),
        1 => (any.clone(), name.clone(), 0usize..2000, 0u32..4)
            .prop_map(|(i, n, l, f)| Step::Setxattr(i, n, l, f)),
        1 => (any.clone(), name).prop_map(|(i, n)| Step::Removexattr(i, n)),
        1 => any.prop_map(Step::Pin),
        1 => Just(Step::Unpin),
        1 => Just(Step::Remount),
        1 => Just(Step::Save),
        1 => Just(Step::Restore),
    ];
    prop::collection::vec(step, 1..60)
}

/// A volume with what a user of it would hold.
struct World {
    volume: Volume,
    /// Every inode that was ever seen, the dead ones too: stale numbers must be harmless.
    seen: Vec<Ino>,
    pins: Vec<Ino>,
    saved: Option<Volume>,
}

impl World {
    fn ino(&self, choice: usize) -> Ino {
        self.seen[choice % self.seen.len()]
    }

    /// Whether the step succeeded.
    fn apply(&mut self, step: &Step) -> bool {
        match step {
            Step::Make(..)
            | Step::Tmpfile(_)
            | Step::Link(..)
            | Step::Unlink(..)
            | Step::Rmdir(..)
            | Step::Rename(..) => self.apply_to_names(step),
            Step::Pin(_) | Step::Unpin | Step::Remount | Step::Save | Step::Restore => {
                self.apply_to_lifetime(step)
            }
            _ => self.apply_to_inode(step),
        }
    }

    fn apply_to_names(&mut self, step: &Step) -> bool {
        let caller = Identity { uid: 7, gid: 8, groups: [9].into() };
        let volume = &mut self.volume;
        let ino = |choice: &usize| self.seen[choice % self.seen.len()];
        match step {
            Step::Make(dir, name, kind) => {
                let node = match kind {
                    0 | 1 => NewNode::File,
                    2 | 3 => NewNode::Dir,
                    4 => NewNode::Symlink(FsBytes::from(vec![b't'; 80])),
                    5 => NewNode::Fifo,
                    _ => NewNode::Char(1, 3),
                };
                let made = volume.make(&caller, ino(dir), NAMES[*name], node, Mode(0o2751));
                made.map(|ino| self.seen.push(ino)).is_ok()
            }
            Step::Tmpfile(dir) => {
                let made = volume.make_tmpfile(&caller, ino(dir), Mode(0o600));
                self.seen.extend(made);
                self.pins.extend(made);
                made.is_ok()
            }
            Step::Link(target, dir, name) => {
                volume.link(ino(target), ino(dir), NAMES[*name]).is_ok()
            }
            Step::Unlink(dir, name) => volume.unlink(ino(dir), NAMES[*name]).is_ok(),
            Step::Rmdir(dir, name) => volume.rmdir(ino(dir), NAMES[*name]).is_ok(),
            Step::Rename(from_dir, from, to_dir, to, flags) => {
                let flags = RenameFlags::from_bits_retain(*flags);
                let (from_dir, to_dir) = (ino(from_dir), ino(to_dir));
                volume.rename(&caller, from_dir, NAMES[*from], to_dir, NAMES[*to], flags).is_ok()
            }
            _ => unreachable!("not about names: {step:?}"),
        }
    }

    fn apply_to_inode(&mut self, step: &Step) -> bool {
        let volume = &mut self.volume;
        let ino = |choice: &usize| self.seen[choice % self.seen.len()];
        match step {
            Step::Write(target, offset, len) => {
                volume.write(ino(target), *offset, &vec![(*len % 255) as u8; *len]).is_ok()
            }
            Step::Truncate(target, size) => volume.truncate(ino(target), *size).is_ok(),
            Step::Fallocate(target, mode, offset, len) => {
                let mode = FallocateMode::from_bits_retain(*mode);
                volume.fallocate(ino(target), mode, *offset, *len).is_ok()
            }
            Step::Copy(from, to, len) => {
                volume.copy_range(ino(from), 0, ino(to), 700, *len).is_ok()
            }
            Step::Attributes(target, mode) => {
                let target = ino(target);
                let time = Some(SetTime::At { sec: 5, nsec: 6 });
                volume.note_access(target);
                volume.chmod(target, Mode(*mode)).is_ok()
                    && volume.kill_privileges(target).is_ok()
                    && volume.chown(target, Some(*mode), None).is_ok()
                    && volume.set_times(target, time, None).is_ok()
            }
            Step::Setxattr(target, name, len, flags) => {
                let flags = XattrFlags::from_bits_retain(*flags);
                volume.setxattr(ino(target), NAMES[*name], &vec![1; *len], flags).is_ok()
            }
            Step::Removexattr(target, name) => {
                volume.removexattr(ino(target), NAMES[*name]).is_ok()
            }
            _ => unreachable!("not about an inode: {step:?}"),
        }
    }

    fn apply_to_lifetime(&mut self, step: &Step) -> bool {
        match step {
            Step::Pin(target) => {
                let target = self.ino(*target);
                self.volume.pin(target).map(|()| self.pins.push(target)).is_ok()
            }
            Step::Unpin => self.pins.pop().map(|ino| self.volume.unpin(ino)).is_some(),
            Step::Remount => {
                self.volume.remount();
                self.pins.clear();
                true
            }
            Step::Save => {
                self.saved = Some(self.volume.clone());
                true
            }
            Step::Restore => match &self.saved {
                Some(saved) => {
                    self.volume.restore(saved);
                    assert_eq!(self.volume.digest(), saved.digest());
                    true
                }
                None => false,
            },
            _ => unreachable!("not about lifetime: {step:?}"),
        }
    }

    fn remove_everything(&mut self) {
        let mut dirs = vec![ROOT];
        while let Some(dir) = dirs.last().copied() {
            let entries = self.volume.entries(dir, 0).unwrap();
            let Some(entry) = entries.first() else {
                dirs.pop();
                continue;
            };
            let name = entry.name.as_bytes();
            if self.volume.unlink(dir, name).is_err() && self.volume.rmdir(dir, name).is_err() {
                dirs.push(entry.ino);
            }
        }
        for name in self.volume.listxattr(ROOT).unwrap() {
            self.volume.removexattr(ROOT, name.as_bytes()).unwrap();
        }
        self.volume.remount();
    }
}

/// `PROPTEST_CASES` asks for more cases than the default.
fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn everything_agrees_at_every_step(steps in steps()) {
        let volume = Volume::new(tiny()).unwrap();
        let empty = volume.clone();
        let mut world = World { volume, seen: vec![ROOT], pins: Vec::new(), saved: None };
        for step in &steps {
            let before = world.volume.clone();
            let options = TreeOptions { segments: true, times: true };
            let tree_before = before.tree(options);
            let succeeded = world.apply(step);
            if let Err(what) = world.volume.check_invariants() {
                panic!("{step:?}: {what}\n{}", world.volume.tree(options));
            }
            let changed = world.volume.tree(options) != tree_before;
            prop_assert!(succeeded || !changed, "{:?} failed and changed something", step);
            prop_assert_eq!(before.tree(options), tree_before, "{:?} changed a clone", step);
        }
        let text = serde_json::to_string(&world.volume.export()).unwrap();
        let image = serde_json::from_str(&text).unwrap();
        let copy = Volume::import(image).unwrap();
        let options = TreeOptions { segments: true, times: true };
        prop_assert_eq!(copy.tree(options), world.volume.tree(options));
        prop_assert_eq!(copy.digest(), world.volume.digest());
        world.remove_everything();
        prop_assert_eq!(world.volume.statfs(), empty.statfs());
        world.volume.check_invariants().unwrap();
    }
}

/// A file as a plain array: what every byte is, and what every block is.
#[derive(Clone, Debug)]
struct Plain {
    block: usize,
    size: usize,
    bytes: Vec<u8>,
    /// `None`: hole; `Some(false)`: reserved; `Some(true)`: written.
    blocks: Vec<Option<bool>>,
}

/// More than any step reaches.
const PLAIN_BYTES: usize = 1 << 17;

impl Plain {
    fn new(block: usize) -> Plain {
        Plain {
            block,
            size: 0,
            bytes: vec![0; PLAIN_BYTES],
            blocks: vec![None; PLAIN_BYTES / block],
        }
    }

    fn write(&mut self, offset: usize, len: usize, byte: u8) {
        self.bytes[offset..offset + len].fill(byte);
        self.blocks[offset / self.block..(offset + len).div_ceil(self.block)].fill(Some(true));
        self.size = self.size.max(offset + len);
    }

    fn truncate(&mut self, size: usize) {
        if size <= self.size {
            self.bytes[size..].fill(0);
            self.blocks[size.div_ceil(self.block)..].fill(None);
        }
        self.size = size;
    }

    fn fallocate(&mut self, mode: u32, offset: usize, len: usize) {
        let (block, end) = (self.block, offset + len);
        let touched = offset / block..end.div_ceil(block);
        let mut covered = offset.div_ceil(block)..(end / block).max(offset.div_ceil(block));
        let aligned = offset.is_multiple_of(block) && len.is_multiple_of(block);
        match mode {
            0 | 1 | 16 | 17 => {
                if mode & 16 != 0 {
                    self.bytes[offset..end].fill(0);
                    self.blocks[covered].fill(Some(false));
                }
                for state in &mut self.blocks[touched] {
                    state.get_or_insert(false);
                }
                if mode & 1 == 0 {
                    self.size = self.size.max(end);
                }
            }
            3 => {
                self.bytes[offset..end].fill(0);
                if end >= self.size {
                    covered.end = covered.end.max(self.size.div_ceil(block));
                }
                if covered.start < covered.end {
                    self.blocks[covered].fill(None);
                }
            }
            8 if aligned && end < self.size => {
                self.bytes.drain(offset..end);
                self.bytes.resize(PLAIN_BYTES, 0);
                self.blocks.drain(offset / block..end / block);
                self.blocks.resize(PLAIN_BYTES / block, None);
                self.size -= len;
            }
            32 if aligned && offset < self.size => {
                self.bytes.splice(offset..offset, vec![0; len]);
                self.bytes.truncate(PLAIN_BYTES);
                self.blocks.splice(offset / block..offset / block, vec![None; len / block]);
                self.blocks.truncate(PLAIN_BYTES / block);
                self.size += len;
            }
            _ => {}
        }
    }

    fn segments(&self) -> Vec<(u64, u64)> {
        let mut segments: Vec<(u64, u64)> = Vec::new();
        for at in (0..self.size).step_by(self.block) {
            let end = (at + self.block).min(self.size) as u64;
            match segments.last_mut() {
                _ if self.blocks[at / self.block] != Some(true) => {}
                Some(last) if last.1 == at as u64 => last.1 = end,
                _ => segments.push((at as u64, end)),
            }
        }
        segments
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn contents_behave_like_an_array(
        block in prop::sample::select(vec![512usize, 1024, 4096]),
        steps in prop::collection::vec((0u8..8, 0usize..10_000, 1usize..9000, any::<bool>()), 1..25),
    ) {
        let config = Config { block_bytes: block as u32, ..Config::default() };
        let mut volume = Volume::new(config).unwrap();
        let free = volume.statfs().blocks_free as usize;
        let file = volume.make(&Identity::root(), ROOT, b"f", NewNode::File, Mode(0o644)).unwrap();
        let mut plain = Plain::new(block);
        for (what, offset, len, align) in steps {
            let unit = if align { block } else { 1 };
            let (offset, len) = (offset / unit * unit, len.div_ceil(unit) * unit);
            // Insertions must not push anything past the plain array.
            if plain.size + offset + len > PLAIN_BYTES / 2 {
                continue;
            }
            match what {
                0 | 1 => {
                    let byte = 1 + (offset % 250) as u8;
                    let written = volume.write(file, offset as u64, &vec![byte; len]);
                    prop_assert_eq!(written, Ok(len));
                    plain.write(offset, len, byte);
                }
                2 => {
                    volume.truncate(file, offset as u64).unwrap();
                    plain.truncate(offset);
                }
                _ => {
                    let mode = [0, 1, 3, 16, 17, 8, 32][(what as usize + len) % 7];
                    let bits = FallocateMode::from_bits_retain(mode);
                    let _ = volume.fallocate(file, bits, offset as u64, len as u64);
                    plain.fallocate(mode, offset, len);
                }
            }
            volume.check_invariants().unwrap();
            let mut bytes = Vec::new();
            volume.read(file, 0, PLAIN_BYTES, &mut bytes).unwrap();
            prop_assert_eq!(&bytes[..], &plain.bytes[..plain.size]);
            let mut middle = Vec::new();
            volume.read(file, offset as u64, len, &mut middle).unwrap();
            let end = (offset + len).min(plain.size).max(offset.min(plain.size));
            prop_assert_eq!(&middle[..], &plain.bytes[offset.min(plain.size)..end]);
            let tree = volume.tree(TreeOptions { segments: true, times: false });
            let entry = &tree.entries[&FsBytes::from("f")];
            prop_assert_eq!(entry.segments.as_ref(), Some(&plain.segments()));
            prop_assert_eq!(entry.content, fathom_core::digest::content_digest(&bytes));
            let taken = plain.blocks.iter().flatten().count();
            prop_assert_eq!(free - volume.statfs().blocks_free as usize, taken);
        }
    }
}

proptest! {
    #![proptest_config(cases())]

    /// A mutant lies, but it never crashes.
    #[test]
    fn mutants_survive_anything(mutant in prop::sample::select(Mutant::ALL), steps in steps()) {
        let volume = Volume::new(Config { mutant: Some(mutant), ..tiny() }).unwrap();
        let mut world = World { volume, seen: vec![ROOT], pins: Vec::new(), saved: None };
        for step in &steps {
            world.apply(step);
            world.volume.tree(TreeOptions { segments: true, times: true });
        }
        Volume::import(world.volume.export()).unwrap();
    }
}
