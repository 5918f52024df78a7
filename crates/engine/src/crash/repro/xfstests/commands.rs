//! Operations as commands of xfstests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fathom_core::flags::{
    FallocateMode, Mode, MsyncFlags, OpenFlags, RenameFlags, SyncRangeFlags, Whence,
};
use fathom_core::{FsPath, Op, Pattern, Slot, Target, TimeArg};
use fathom_model::{Config, Model};

/// The umask of the script.
const UMASK: u32 = 0o022;

/// The byte of the first write; each seed has another one.
const FIRST_BYTE: u8 = b'a';

/// An open file: what has to be opened again for each of its calls.
struct Open {
    /// Its name; none if it has lost the one under which it was opened.
    path: Option<FsPath>,
    flags: OpenFlags,
    /// Where the next write without an offset goes, if that is known.
    position: Option<i64>,
    /// The shell's descriptor that keeps a file without a name.
    held: Option<usize>,
}

impl Open {
    /// The options with which xfs_io opens it as it was opened.
    fn options(&self) -> String {
        let options = [
            (OpenFlags::O_DIRECT, " -d"),
            (OpenFlags::O_SYNC, " -s"),
            (OpenFlags::O_APPEND, " -a"),
        ];
        let set = options.into_iter().filter(|(flag, _)| self.flags.contains(*flag));
        set.map(|(_, option)| option).collect()
    }
}

/// A command, or why there is none.
type Expressed<T> = Result<T, String>;

/// The commands of a workload.
pub(in crate::crash::repro) struct Commands {
    pub(super) lines: String,
    requirements: BTreeSet<&'static str>,
    open: BTreeMap<Slot, Open>,
    /// Descriptors that the shell keeps so far.
    held: usize,
    bytes: BTreeMap<u64, u8>,
}

impl Commands {
    /// The commands of some operations, those that fail left out.
    ///
    /// # Errors
    /// Names the operation for which there is no command.
    pub(in crate::crash::repro) fn of(ops: &[&Op]) -> Expressed<Commands> {
        let mut commands = Commands {
            lines: String::new(),
            requirements: BTreeSet::new(),
            open: BTreeMap::new(),
            held: 0,
            bytes: BTreeMap::new(),
        };
        let mut model = Model::new(Config::default()).expect("the default can work");
        for op in ops {
            let before = model.clone();
            let Ok(done) = model.execute(op).result else { continue };
            // No call returns more than a file can be long.
            let done = done as i64;
            let text = commands.express(op, &before, done).map_err(|why| format!("{op}: {why}"))?;
            if !text.is_empty() {
                // Writing to a string does not fail.
                let _ = writeln!(commands.lines, "{text}");
            }
            commands.note(op, done);
        }
        Ok(commands)
    }

    /// Whether an open file has this name in the end.
    pub(super) fn is_open_as(&self, slot: Slot, path: &str) -> bool {
        let open = self.open.get(&slot).and_then(|open| open.path.as_ref());
        open.is_some_and(|open| open.to_string() == path)
    }

    /// What the case asks of the machine.
    pub(super) fn requirements(&self) -> String {
        self.requirements.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Closes what the shell keeps open once nothing reaches the disk any more: what is unlinked and open
    /// when the power fails is an orphan then.
    pub(super) fn released(&self) -> String {
        let held: Vec<String> =
            self.open.values().filter_map(|open| open.held).map(release).collect();
        match held.as_slice() {
            [] => String::new(),
            held => format!("_load_flakey_table $FLAKEY_DROP_WRITES\n{}\n", held.join("\n")),
        }
    }

    /// The command of an operation that succeeds and returns `done`; empty if nothing has to be done.
    fn express(&mut self, op: &Op, before: &Model, done: i64) -> Expressed<String> {
        Ok(match op {
            Op::Open { slot, path, flags, mode } => {
                self.open_file(*slot, path, *flags, *mode, before)?
            }
            Op::Close { slot } => {
                let open = self.open.get(slot);
                open.and_then(|open| open.held).map(release).unwrap_or_default()
            }
            Op::Pwrite { slot, offset, data } => self.write(*slot, Some(*offset), data)?,
            Op::Write { slot, data } => self.write(*slot, None, data)?,
            Op::MmapStore { slot, offset, data, sync } => {
                self.store(*slot, *offset, data, *sync, done)?
            }
            Op::CopyFileRange { .. } => self.copy(op, done)?,
            Op::Fsync { slot } => self.xfs_io(*slot, &["fsync".to_owned()])?,
            Op::Fdatasync { slot } => self.xfs_io(*slot, &["fdatasync".to_owned()])?,
            Op::Syncfs { slot } => {
                self.require("_require_xfs_io_command syncfs");
                self.xfs_io(*slot, &["syncfs".to_owned()])?
            }
            Op::SyncFileRange { slot, offset, len, flags } => {
                let flags = sync_range(*flags);
                self.xfs_io(*slot, &[format!("sync_range{flags} {offset} {len}")])?
            }
            Op::Sync => "run sync".to_owned(),
            Op::Fallocate { slot, mode, offset, len } => {
                let command = self.allocation(*mode)?;
                self.xfs_io(*slot, &[format!("{command} {offset} {len}")])?
            }
            Op::Truncate { target: Target::Slot(slot), len } => {
                self.xfs_io(*slot, &[format!("truncate {len}")])?
            }
            Op::Truncate { target: Target::Path(path) | Target::Link(path), len } => {
                format!("run $XFS_IO_PROG -c \"truncate {len}\" {}", word(path))
            }
            Op::Remount => self.remount(),
            Op::Wait { seconds } => format!("run sleep {seconds}"),
            Op::Umask { .. } | Op::Identity { .. } | Op::Server { .. } => {
                return Err("the case has one user with one umask, and no server".to_owned());
            }
            Op::Read { .. } | Op::Pread { .. } | Op::Lseek { .. } | Op::Readlink { .. } => {
                String::new()
            }
            Op::Getxattr { .. } | Op::Listxattr { .. } | Op::Stat { .. } => String::new(),
            Op::Getdents { .. } | Op::ListPiece { .. } | Op::Statfs { .. } => String::new(),
            Op::Access { .. } | Op::MmapLoad { .. } => String::new(),
            op => self.express_name(op, before)?,
        })
    }

    /// The same for what is done to names and attributes.
    fn express_name(&mut self, op: &Op, before: &Model) -> Expressed<String> {
        Ok(match op {
            Op::Mkdir { path, mode } => {
                format!("run mkdir -m {} {}", plain_mode(*mode)?, word(path))
            }
            Op::Rmdir { path } => format!("run rmdir {}", word(path)),
            Op::Unlink { path } => format!("{}run unlink {}", self.hold(path), word(path)),
            Op::Rename { from, to, flags } => self.rename(from, to, *flags, before)?,
            Op::Link { from, to, follow } => {
                let follow = if *follow { "-L" } else { "-P" };
                format!("run ln {follow} -T {} {}", word(from), word(to))
            }
            Op::LinkSlot { slot, to, .. } => {
                format!("run ln -P -T {} {}", word(self.named(*slot)?), word(to))
            }
            Op::Symlink { target, path } => {
                format!("run ln -sT {} {}", quote(target.as_bytes()), word(path))
            }
            Op::Mknod { path, mode, dev } => mknod(path, *mode, *dev)?,
            Op::Chmod { target: Target::Link(_), .. } => {
                return Err("chmod(1) follows symbolic links".to_owned());
            }
            Op::Chmod { target, mode } => {
                format!("run chmod {:o} {}", mode.0 & 0o7777, self.path(target)?)
            }
            Op::Chown { target, uid, gid } => {
                let owner = match (uid, gid) {
                    (Some(uid), Some(gid)) => format!("{uid}:{gid}"),
                    (Some(uid), None) => uid.to_string(),
                    (None, Some(gid)) => format!(":{gid}"),
                    (None, None) => return Err("chown(1) of nothing does nothing".to_owned()),
                };
                format!("run chown{} {owner} {}", no_follow(target), self.path(target)?)
            }
            Op::Utimens { target, atime, mtime } => self.touch(target, *atime, *mtime)?,
            Op::Setxattr { target, name, value, .. } => {
                self.require("_require_attrs");
                let (name, value) = (quote(name.as_bytes()), hex(value));
                format!(
                    "run setfattr{} -n {name} -v {value} {}",
                    no_follow(target),
                    self.path(target)?
                )
            }
            Op::Removexattr { target, name } => {
                self.require("_require_attrs");
                let name = quote(name.as_bytes());
                format!("run setfattr{} -x {name} {}", no_follow(target), self.path(target)?)
            }
            _ => return Err("no command does this".to_owned()),
        })
    }

    fn require(&mut self, line: &'static str) {
        self.requirements.insert(line);
    }

    /// The name of an open file.
    fn named(&self, slot: Slot) -> Expressed<&FsPath> {
        let open = self.open.get(&slot).ok_or_else(|| "it is not open".to_owned())?;
        open.path
            .as_ref()
            .ok_or_else(|| "a file without a name can be kept open, no more".to_owned())
    }

    fn path(&self, target: &Target) -> Expressed<String> {
        match target {
            Target::Path(path) | Target::Link(path) => Ok(word(path)),
            Target::Slot(slot) => self.named(*slot).map(word),
        }
    }

    /// xfs_io with commands for an open file.
    fn xfs_io(&mut self, slot: Slot, commands: &[String]) -> Expressed<String> {
        let path = word(self.named(slot)?);
        let options = self.open[&slot].options();
        if options.contains("-d") {
            self.require("_require_odirect");
        }
        let commands: String =
            commands.iter().map(|command| format!(" -c \"{command}\"")).collect();
        Ok(format!("run $XFS_IO_PROG{options}{commands} {path}"))
    }

    fn open_file(
        &mut self,
        slot: Slot,
        path: &FsPath,
        flags: OpenFlags,
        mode: Mode,
        before: &Model,
    ) -> Expressed<String> {
        if flags.contains(OpenFlags::O_TMPFILE) {
            return Err("a file without a name ends with the xfs_io that made it".to_owned());
        }
        let closed = self.open.get(&slot).and_then(|open| open.held).map(release);
        let makes = flags.contains(OpenFlags::O_CREAT) && kind_of(before, path).is_none();
        let mut options = String::new();
        if makes {
            // xfs_io has no O_EXCL; what it makes is not there yet.
            options.push_str(&format!(" -f -m 0{:o}", mode.0 & 0o7777));
        }
        if flags.contains(OpenFlags::O_TRUNC) && !makes {
            options.push_str(" -t");
        }
        let made = match options.as_str() {
            "" => String::new(),
            options => format!("run $XFS_IO_PROG{options} -c quit {}", word(path)),
        };
        let lines: Vec<String> =
            closed.into_iter().chain([made]).filter(|line| !line.is_empty()).collect();
        Ok(lines.join("\n"))
    }

    /// The byte that stands for the pattern of a seed.
    fn byte(&mut self, data: &Pattern) -> Expressed<String> {
        let next = FIRST_BYTE.checked_add(self.bytes.len() as u8);
        let next = next.ok_or_else(|| "there are more writes than bytes".to_owned())?;
        Ok(format!("0x{:02x}", self.bytes.entry(data.seed).or_insert(next)))
    }

    fn write(&mut self, slot: Slot, offset: Option<i64>, data: &Pattern) -> Expressed<String> {
        let (byte, len) = (self.byte(data)?, data.len);
        self.named(slot)?;
        let open = &self.open[&slot];
        let unknown = || "where it writes depends on calls that only look".to_owned();
        let offset = offset.or(open.position).ok_or_else(unknown)?;
        if len == 0 {
            return Ok(String::new());
        }
        let whole = open.flags.contains(OpenFlags::O_SYNC);
        let durable = if !whole && open.flags.contains(OpenFlags::O_DSYNC) { " -D" } else { "" };
        // One call, however long.
        self.xfs_io(slot, &[format!("pwrite -q{durable} -b {len} -S {byte} {offset} {len}")])
    }

    fn store(
        &mut self,
        slot: Slot,
        offset: i64,
        data: &Pattern,
        sync: MsyncFlags,
        done: i64,
    ) -> Expressed<String> {
        let byte = self.byte(data)?;
        let end = offset + done;
        let mut commands = Vec::new();
        if done > 0 {
            commands.push(format!("mmap -rw 0 {end}"));
            commands.push(format!("mwrite -S {byte} {offset} {done}"));
            let flags = [
                (MsyncFlags::MS_ASYNC, " -a"),
                (MsyncFlags::MS_INVALIDATE, " -i"),
                (MsyncFlags::MS_SYNC, " -s"),
            ];
            let flags: String = flags
                .into_iter()
                .filter(|(flag, _)| sync.contains(*flag))
                .map(|(_, text)| text)
                .collect();
            if !flags.is_empty() {
                commands.push(format!("msync{flags} 0 {end}"));
            }
        }
        if commands.is_empty() { Ok(String::new()) } else { self.xfs_io(slot, &commands) }
    }

    fn copy(&mut self, op: &Op, done: i64) -> Expressed<String> {
        let Op::CopyFileRange { from, from_offset, to, to_offset, .. } = op else {
            return Err("it is no copy".to_owned());
        };
        self.require("_require_xfs_io_command copy_range");
        let unknown = || "where it copies depends on calls that only look".to_owned();
        let position = |slot: &Slot| self.open.get(slot).and_then(|open| open.position);
        let from_offset = from_offset.or_else(|| position(from)).ok_or_else(unknown)?;
        let to_offset = to_offset.or_else(|| position(to)).ok_or_else(unknown)?;
        let source = word(self.named(*from)?);
        if source.contains(['$', '\'', ' ']) {
            return Err("xfs_io takes plain names in its commands".to_owned());
        }
        if done == 0 {
            return Ok(String::new());
        }
        let copy = format!("copy_range -s {from_offset} -d {to_offset} -l {done} {source}");
        self.xfs_io(*to, &[copy])
    }

    /// The command of xfs_io for a mode of fallocate(2).
    fn allocation(&mut self, mode: FallocateMode) -> Expressed<&'static str> {
        let keeps = FallocateMode::FALLOC_FL_KEEP_SIZE;
        let plain = FallocateMode::empty();
        let table = [
            (plain, "_require_xfs_io_command falloc", "falloc"),
            (keeps, "_require_xfs_io_command falloc", "falloc -k"),
            (
                FallocateMode::FALLOC_FL_PUNCH_HOLE.union(keeps),
                "_require_xfs_io_command fpunch",
                "fpunch",
            ),
            (FallocateMode::FALLOC_FL_ZERO_RANGE, "_require_xfs_io_command fzero", "fzero"),
            (
                FallocateMode::FALLOC_FL_ZERO_RANGE.union(keeps),
                "_require_xfs_io_command fzero",
                "fzero -k",
            ),
            (
                FallocateMode::FALLOC_FL_COLLAPSE_RANGE,
                "_require_xfs_io_command fcollapse",
                "fcollapse",
            ),
            (FallocateMode::FALLOC_FL_INSERT_RANGE, "_require_xfs_io_command finsert", "finsert"),
            (
                FallocateMode::FALLOC_FL_UNSHARE_RANGE,
                "_require_xfs_io_command funshare",
                "funshare",
            ),
        ];
        let known = table.into_iter().find(|(known, ..)| *known == mode);
        let (_, require, command) =
            known.ok_or_else(|| "xfs_io has no such mode of fallocate".to_owned())?;
        self.require(require);
        Ok(command)
    }

    fn rename(
        &mut self,
        from: &FsPath,
        to: &FsPath,
        flags: RenameFlags,
        before: &Model,
    ) -> Expressed<String> {
        let (old, new) = (word(from), word(to));
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            self.require("_require_renameat2 exchange");
            return Ok(format!("run $here/src/renameat2 -x {old} {new}"));
        }
        let same = |path| before.volume().find(path, false);
        if same(from).is_some() && same(from) == same(to) {
            // rename(2) does nothing then; mv(1) would remove one of the names.
            return Ok(String::new());
        }
        let hold = self.hold(to);
        let command = match (
            flags.contains(RenameFlags::RENAME_WHITEOUT),
            flags.contains(RenameFlags::RENAME_NOREPLACE),
        ) {
            (false, false) => "mv -fT",
            (true, false) => {
                self.require("_require_renameat2 whiteout");
                "$here/src/renameat2 -w"
            }
            (false, true) => {
                self.require("_require_renameat2 noreplace");
                "$here/src/renameat2 -n"
            }
            (true, true) => return Err("src/renameat2 takes one flag".to_owned()),
        };
        Ok(format!("{hold}run {command} {old} {new}"))
    }

    /// Keeps an open file whose name goes away.
    fn hold(&mut self, path: &FsPath) -> String {
        let (held, mut text) = (&mut self.held, String::new());
        for open in self.open.values_mut().filter(|open| open.path.as_ref() == Some(path)) {
            *held += 1;
            open.held = Some(*held);
            text.push_str(&format!("exec {{held{held}}}< {}\n", word(path)));
        }
        text
    }

    fn remount(&mut self) -> String {
        let held: Vec<String> =
            self.open.values().filter_map(|open| open.held).map(release).collect();
        let held: String = held.iter().map(|line| format!("{line}\n")).collect();
        format!("{held}cd /\n_unmount_flakey\n_mount_flakey\ncd $SCRATCH_MNT")
    }

    fn touch(&self, target: &Target, atime: TimeArg, mtime: TimeArg) -> Expressed<String> {
        let path = self.path(target)?;
        let one = |letter: &str, time: TimeArg| {
            let when = match time {
                TimeArg::Omit => return None,
                TimeArg::Now => String::new(),
                TimeArg::At { sec, nsec } => format!(" -d @{sec}.{nsec:09}"),
            };
            Some(format!("run touch -c{} {letter}{when} {path}", no_follow(target)))
        };
        if atime == mtime {
            return Ok(one("-am", atime).unwrap_or_default());
        }
        let both = one("-a", atime).into_iter().chain(one("-m", mtime));
        Ok(both.collect::<Vec<_>>().join("\n"))
    }

    /// Follows open files and their names.
    fn note(&mut self, op: &Op, done: i64) {
        match op {
            Op::Open { slot, path, flags, .. } => {
                let open =
                    Open { path: Some(path.clone()), flags: *flags, position: Some(0), held: None };
                self.open.insert(*slot, open);
            }
            Op::Close { slot } => drop(self.open.remove(slot)),
            Op::Remount => self.open.clear(),
            Op::Unlink { path } | Op::Rmdir { path } => self.rename_open(path, None),
            Op::Rename { from, to, flags } if flags.contains(RenameFlags::RENAME_EXCHANGE) => {
                self.exchange(from, to);
            }
            Op::Rename { from, to, .. } if from != to => {
                self.rename_open(to, None);
                self.rename_open(from, Some(to));
            }
            Op::Write { slot, .. } => self.go_on(*slot, |at| Some(at + done)),
            Op::Lseek { slot, offset, whence: Whence::Set } => self.go_on(*slot, |_| Some(*offset)),
            Op::Lseek { slot, .. } => self.go_on(*slot, |_| Some(done)),
            Op::Read { slot, .. } => self.go_on(*slot, |at| Some(at + done)),
            Op::CopyFileRange { from, from_offset, to, to_offset, .. } => {
                for (slot, offset) in [(from, from_offset), (to, to_offset)] {
                    if offset.is_none() {
                        self.go_on(*slot, |at| Some(at + done));
                    }
                }
            }
            _ => {}
        }
    }

    /// Moves the position of an open file.
    fn go_on(&mut self, slot: Slot, to: impl Fn(i64) -> Option<i64>) {
        if let Some(open) = self.open.get_mut(&slot) {
            // A file that is only appended to has its position at its end, which nobody counts.
            let appends = open.flags.contains(OpenFlags::O_APPEND);
            open.position = if appends { Some(0) } else { open.position.and_then(to) };
        }
    }

    /// Open files below `from`, or it itself, are below `to` now, or have no name.
    fn rename_open(&mut self, from: &FsPath, to: Option<&FsPath>) {
        for open in self.open.values_mut() {
            let Some(rest) = open.path.as_ref().and_then(|path| below(path, from)) else {
                continue;
            };
            open.path = to.map(|to| FsPath::from([to.as_bytes(), &rest].concat()));
        }
    }

    fn exchange(&mut self, one: &FsPath, other: &FsPath) {
        for open in self.open.values_mut() {
            let Some(path) = &open.path else { continue };
            let moved = match (below(path, one), below(path, other)) {
                (Some(rest), _) => [other.as_bytes(), &rest].concat(),
                (None, Some(rest)) => [one.as_bytes(), &rest].concat(),
                (None, None) => continue,
            };
            open.path = Some(FsPath::from(moved));
        }
    }
}

/// What follows `dir` in a path: nothing, or `/` and the rest; `None` for a path elsewhere.
fn below(path: &FsPath, dir: &FsPath) -> Option<Vec<u8>> {
    let rest = path.as_bytes().strip_prefix(dir.as_bytes())?;
    (rest.is_empty() || rest.starts_with(b"/")).then(|| rest.to_vec())
}

fn kind_of(model: &Model, path: &FsPath) -> Option<fathom_core::Kind> {
    let ino = model.volume().find(path, true)?;
    model.volume().attr(ino).ok().map(|attr| attr.kind)
}

fn release(held: usize) -> String {
    format!("exec {{held{held}}}<&-")
}

/// The option for a symbolic link itself.
fn no_follow(target: &Target) -> &'static str {
    if matches!(target, Target::Link(_)) { " -h" } else { "" }
}

/// The mode of a new directory, for a command that does not apply the umask.
fn plain_mode(mode: Mode) -> Expressed<String> {
    match mode.0 & 0o7000 {
        0 => Ok(format!("{:o}", mode.0 & 0o777 & !UMASK)),
        _ => Err("mkdir(1) sets such bits with a chmod of its own".to_owned()),
    }
}

fn mknod(path: &FsPath, mode: Mode, (major, minor): (u32, u32)) -> Expressed<String> {
    let kind = match mode.0 & Mode::S_IFMT {
        Mode::S_IFCHR => format!("c {major} {minor}"),
        Mode::S_IFBLK => format!("b {major} {minor}"),
        Mode::S_IFIFO => "p".to_owned(),
        _ => return Err("mknod(1) makes devices and pipes".to_owned()),
    };
    match mode.0 & 0o7000 {
        0 => Ok(format!("run mknod -m {:o} {} {kind}", mode.0 & 0o777 & !UMASK, word(path))),
        _ => Err("mknod(1) sets such bits with a chmod of its own".to_owned()),
    }
}

fn sync_range(flags: SyncRangeFlags) -> String {
    let options = [
        (SyncRangeFlags::SYNC_FILE_RANGE_WAIT_BEFORE, " -b"),
        (SyncRangeFlags::SYNC_FILE_RANGE_WRITE, " -w"),
        (SyncRangeFlags::SYNC_FILE_RANGE_WAIT_AFTER, " -a"),
    ];
    options.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, text)| text).collect()
}

/// A value as setfattr(1) takes it.
fn hex(value: &Pattern) -> String {
    let bytes = value.to_vec();
    match bytes.as_slice() {
        [] => "''".to_owned(),
        bytes => {
            format!("0x{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
    }
}

/// A path as a word of the shell that no command takes for an option.
fn word(path: &FsPath) -> String {
    match path.as_bytes().first() {
        Some(b'-') => quote(&[b"./", path.as_bytes()].concat()),
        _ => quote(path.as_bytes()),
    }
}

/// Bytes as a word of the shell.
pub(in crate::crash::repro) fn quote(bytes: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._/-+".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return bytes.iter().map(|byte| char::from(*byte)).collect();
    }
    let escape = |byte: &u8| match is_plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("\\x{byte:02x}"),
    };
    format!("$'{}'", bytes.iter().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests;
