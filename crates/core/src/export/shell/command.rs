//! One operation as one shell command, where a command exists that does exactly this; the others are
//! [the helper's](super::python).

use std::collections::BTreeMap;

use crate::bytes::FsBytes;
use crate::flags::{AccessMode, FallocateMode, Mode, OpenFlags};
use crate::op::{Op, Slot, Target, TimeArg};
use crate::pattern::Pattern;

/// Longest data of one `dd` or pattern: more takes the shell too long.
const DATA_BYTES_MAX: u64 = 16 << 20;

/// Longest xattr value: it goes through one argument in hexadecimal (MAX_ARG_STRLEN is 128 KiB).
const XATTR_BYTES_MAX: u64 = 32 << 10;

/// Flags without consequence for what is compared.
const HARMLESS: OpenFlags =
    OpenFlags::O_CLOEXEC.union(OpenFlags::O_LARGEFILE).union(OpenFlags::O_NOCTTY);

/// What the shell knows of the slots and of who is acting.
#[derive(Default)]
pub(super) struct Script {
    slots: BTreeMap<Slot, Opened>,
    acting_as_other: bool,
    /// Open files are the helper's, and so is everything done with them.
    helper: bool,
}

/// A slot that the script has opened.
#[derive(Clone, Copy)]
struct Opened {
    readable: bool,
    writable: bool,
    append: bool,
    /// Its position is the recorded one: no step that moves it was left out.
    position: bool,
}

impl Script {
    /// A script whose open files are the helper's.
    pub(super) fn with_helper() -> Script {
        Script { helper: true, ..Script::default() }
    }

    /// The command of an operation whose call succeeded or failed when it was recorded; none if no
    /// tool expresses it.
    pub(super) fn command(&mut self, op: &Op, ok: bool) -> Option<String> {
        let command = match op {
            Op::Open { slot, path, flags, mode } => self.open(*slot, path, *flags, *mode, ok),
            Op::Close { slot } => self.slots.remove(slot).map(|_| format!("close_slot {slot}")),
            Op::Identity { uid, gid, groups } => {
                self.acting_as_other = (*uid, *gid, groups.len()) != (0, 0, 0);
                let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
                Some(format!("identity {uid} {gid} '{}'", groups.join(",")))
            }
            Op::Remount => {
                self.slots.clear();
                Some("remount".to_owned())
            }
            Op::Umask { mask } => Some(format!("umask {:04o}", mask.0 & 0o777)),
            Op::Sync => Some("sync".to_owned()),
            Op::Wait { seconds } => Some(format!("sleep {seconds}")),
            Op::Server { events } => Some(format!("true '{events}'")),
            Op::Fsync { slot } => Some(format!("sync -- {}", self.file(*slot)?)),
            Op::Fdatasync { slot } => Some(format!("sync -d -- {}", self.file(*slot)?)),
            Op::Syncfs { slot } => Some(format!("sync -f -- {}", self.file(*slot)?)),
            Op::Getdents { slot } => Some(format!("ls -a -- {}/", self.file(*slot)?)),
            // No tool reads a piece of a directory.
            Op::ListPiece { .. } => None,
            Op::Read { .. }
            | Op::Pread { .. }
            | Op::Write { .. }
            | Op::Pwrite { .. }
            | Op::Fallocate { .. } => self.on_contents(op),
            Op::Mkdir { .. }
            | Op::Rmdir { .. }
            | Op::Unlink { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::Symlink { .. }
            | Op::Readlink { .. }
            | Op::Mknod { .. } => on_names(op),
            Op::Truncate { .. }
            | Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::Utimens { .. }
            | Op::Setxattr { .. }
            | Op::Getxattr { .. }
            | Op::Listxattr { .. }
            | Op::Removexattr { .. }
            | Op::Stat { .. }
            | Op::Statfs { .. }
            | Op::Access { .. } => self.on_target(op),
            // No common tool makes these calls.
            Op::Lseek { .. }
            | Op::LinkSlot { .. }
            | Op::SyncFileRange { .. }
            | Op::MmapStore { .. }
            | Op::MmapLoad { .. }
            | Op::CopyFileRange { .. } => None,
        };
        if command.is_none() {
            self.forget(op);
        }
        command
    }

    fn open(
        &mut self,
        slot: Slot,
        path: &FsBytes,
        flags: OpenFlags,
        mode: Mode,
        ok: bool,
    ) -> Option<String> {
        use OpenFlags as O;
        self.slots.remove(&slot);
        if self.acting_as_other || self.helper {
            return None;
        }
        let flags = flags.difference(HARMLESS);
        let creates = flags.contains(O::O_CREAT);
        let redirection = match flags.difference(O::O_CREAT | O::O_DIRECTORY) {
            rest if rest.is_empty() && !creates => "<",
            rest if rest == O::O_RDWR => "<>",
            rest if rest == O::O_WRONLY | O::O_TRUNC => ">",
            rest if rest == O::O_WRONLY | O::O_APPEND => ">>",
            _ => return None,
        };
        let directory = flags.contains(O::O_DIRECTORY);
        if directory && redirection != "<" || creates && mode.0 & !0o666 != 0 {
            return None;
        }
        if ok {
            let (readable, writable) = (redirection.starts_with('<'), redirection.contains('>'));
            let opened = Opened { readable, writable, append: redirection == ">>", position: true };
            self.slots.insert(slot, opened);
        }
        let path = quote(path.as_bytes());
        let open = format!("open_slot {slot} '{redirection}' {path}");
        Some(match (creates, directory) {
            (true, _) => format!("with_mode {mode} {open}"),
            (false, true) => format!("if_exists {}/ {open}", path),
            (false, false) => format!("if_exists {path} {open}"),
        })
    }

    fn on_contents(&mut self, op: &Op) -> Option<String> {
        let usable = |len: u64| (1..=DATA_BYTES_MAX).contains(&len);
        match op {
            Op::Read { slot, len } if usable(*len) => {
                let opened = self.slots.get(slot)?;
                (opened.readable && opened.position).then(|| format!("read_slot {slot} {len}"))
            }
            Op::Pread { slot, offset: offset @ 0.., len }
                if usable(*len) && !self.acting_as_other =>
            {
                let opened = self.slots.get(slot)?;
                opened.readable.then(|| format!("pread_slot {slot} {offset} {len}"))
            }
            Op::Write { slot, data: Pattern { seed, len } } if usable(*len) => {
                let opened = self.slots.get(slot)?;
                let possible = opened.writable && (opened.position || opened.append);
                possible.then(|| format!("write_slot {slot} {seed:#x} {len}"))
            }
            Op::Pwrite { slot, offset: offset @ 0.., data: Pattern { seed, len } }
                if usable(*len) && !self.acting_as_other =>
            {
                let opened = self.slots.get(slot)?;
                let possible = opened.writable && !opened.append;
                possible.then(|| format!("pwrite_slot {slot} {offset} {seed:#x} {len}"))
            }
            Op::Fallocate { slot, mode, offset: offset @ 0.., len: len @ 1.. } => {
                let mode = fallocate_options(*mode)?;
                let file = self.writable_file(*slot)?;
                Some(format!("fallocate {mode}-o {offset} -l {len} {file}"))
            }
            _ => None,
        }
    }

    /// The operations on a [`Target`].
    fn on_target(&mut self, op: &Op) -> Option<String> {
        match op {
            Op::Truncate { target: Target::Slot(slot), len: len @ 0.. } => {
                Some(format!("truncate -c -s {len} -- {}", self.writable_file(*slot)?))
            }
            Op::Truncate { target: Target::Path(path) | Target::Link(path), len: len @ 0.. } => {
                let path = quote(path.as_bytes());
                Some(format!("if_exists {path} truncate -c -s {len} -- {path}"))
            }
            Op::Chmod { target, mode } if !matches!(target, Target::Link(_)) => {
                // Five digits: with four, chmod(1) keeps the setgid bit of a directory.
                Some(format!("chmod {:05o} -- {}", mode.0 & 0o7777, self.plain(target)?))
            }
            Op::Chown { target, uid, gid } => {
                let id = |id: &Option<u32>| id.map(|id| format!("+{id}")).unwrap_or_default();
                let unsayable =
                    (uid, gid) == (&None, &None) || [*uid, *gid].contains(&Some(u32::MAX));
                let option = if matches!(target, Target::Link(_)) { "-h " } else { "" };
                let owner =
                    if gid.is_none() { id(uid) } else { format!("{}:{}", id(uid), id(gid)) };
                (!unsayable).then_some(format!("chown {option}-- {owner} {}", self.plain(target)?))
            }
            Op::Utimens { target, atime, mtime } => self.touch(target, atime, mtime),
            Op::Setxattr { target, name, value, flags }
                if flags.is_empty() && value.len <= XATTR_BYTES_MAX =>
            {
                let option = if matches!(target, Target::Link(_)) { " -h" } else { "" };
                let (at, name) = (self.plain(target)?, quote(name.as_bytes()));
                Some(format!("set_xattr {at} {name} {:#x} {}{option}", value.seed, value.len))
            }
            Op::Getxattr { target, name, len: 0 | 65536.. } => {
                let name = quote(name.as_bytes());
                Some(format!(
                    "getfattr {}--only-values -n {name} -- {}",
                    no_follow(target),
                    self.plain(target)?
                ))
            }
            Op::Listxattr { target, len: 0 | 65536.. } => {
                Some(format!("getfattr {}-m - -- {}", no_follow(target), self.plain(target)?))
            }
            Op::Removexattr { target, name } => {
                let name = quote(name.as_bytes());
                Some(format!("setfattr {}-x {name} -- {}", no_follow(target), self.plain(target)?))
            }
            Op::Stat { target } => {
                let follow = if matches!(target, Target::Link(_)) { "" } else { "-L " };
                Some(format!("stat {follow}-- {}", self.plain(target)?))
            }
            Op::Statfs { target } => Some(format!("stat -f -- {}", self.plain(target)?)),
            Op::Access { target: target @ (Target::Path(_) | Target::Slot(_)), mode, .. }
                if !self.acting_as_other =>
            {
                Some(format!("accessible {} {}", access_letters(*mode)?, self.plain(target)?))
            }
            _ => None,
        }
    }

    fn touch(&self, target: &Target, atime: &TimeArg, mtime: &TimeArg) -> Option<String> {
        let (which, time) = match (atime, mtime) {
            (TimeArg::Omit, TimeArg::Omit) => return None,
            (time, TimeArg::Omit) => ("-a ", time),
            (TimeArg::Omit, time) => ("-m ", time),
            (atime, mtime) if atime == mtime => ("", atime),
            _ => return None,
        };
        let time = match time {
            TimeArg::At { sec: sec @ 0.., nsec: nsec @ ..=999_999_999 } => {
                format!("-d @{sec}.{nsec:09} ")
            }
            TimeArg::Now => String::new(),
            _ => return None,
        };
        let at = self.plain(target)?;
        Some(match target {
            Target::Link(_) => format!("if_named {at} touch -c -h {which}{time}-- {at}"),
            _ => format!("if_exists {at} touch -c {which}{time}-- {at}"),
        })
    }

    /// A target as an argument.
    fn plain(&self, target: &Target) -> Option<String> {
        match target {
            Target::Path(path) | Target::Link(path) => Some(quote(path.as_bytes())),
            Target::Slot(slot) => self.file(*slot),
        }
    }

    /// The file of a slot as an argument. Opening it anew asks for permission anew, which another
    /// user may not have.
    fn file(&self, slot: Slot) -> Option<String> {
        let possible = self.slots.contains_key(&slot) && !self.acting_as_other;
        possible.then(|| format!("\"$(fd {slot})\""))
    }

    fn writable_file(&self, slot: Slot) -> Option<String> {
        self.slots.get(&slot).filter(|opened| opened.writable).and_then(|_| self.file(slot))
    }

    /// A step that is left out may have moved positions.
    fn forget(&mut self, op: &Op) {
        let moved: &[Slot] = match op {
            Op::Read { slot, .. } | Op::Write { slot, .. } | Op::Lseek { slot, .. } => &[*slot],
            Op::CopyFileRange { from, to, .. } => &[*from, *to],
            _ => &[],
        };
        for slot in moved {
            if let Some(opened) = self.slots.get_mut(slot) {
                opened.position = false;
            }
        }
    }
}

fn on_names(op: &Op) -> Option<String> {
    let quote = |bytes: &FsBytes| quote(bytes.as_bytes());
    match op {
        Op::Mkdir { path, mode } if mode.0 & !0o777 == 0 => {
            Some(format!("with_mode {mode} mkdir -- {}", quote(path)))
        }
        Op::Rmdir { path } => Some(format!("rmdir -- {}", quote(path))),
        Op::Unlink { path } => Some(format!("unlink -- {}", quote(path))),
        // mv(1) refuses to move a file onto itself, rename(2) says 0.
        Op::Rename { from, to, flags } if flags.is_empty() && from != to => {
            Some(format!("mv -f -T -- {} {}", quote(from), quote(to)))
        }
        Op::Link { from, to, follow: false } => {
            Some(format!("link -- {} {}", quote(from), quote(to)))
        }
        Op::Link { from, to, follow: true } => {
            Some(format!("ln -L -T -- {} {}", quote(from), quote(to)))
        }
        Op::Symlink { target, path } => {
            Some(format!("ln -s -T -- {} {}", quote(target), quote(path)))
        }
        Op::Readlink { path, len: 1..=0x7fff_ffff } => Some(format!("readlink -- {}", quote(path))),
        Op::Mknod { path, mode, dev } if mode.perm() & !0o666 == 0 => {
            let kind = match mode.0 & Mode::S_IFMT {
                Mode::S_IFIFO => "p".to_owned(),
                Mode::S_IFCHR => format!("c {} {}", dev.0, dev.1),
                Mode::S_IFBLK => format!("b {} {}", dev.0, dev.1),
                _ => return None,
            };
            Some(format!("with_mode {} mknod -- {} {kind}", Mode(mode.perm()), quote(path)))
        }
        _ => None,
    }
}

fn no_follow(target: &Target) -> &'static str {
    if matches!(target, Target::Link(_)) { "-h " } else { "" }
}

/// The options of fallocate(1) for a mode.
fn fallocate_options(mode: FallocateMode) -> Option<&'static str> {
    use FallocateMode as F;
    Some(match mode {
        mode if mode.is_empty() => "",
        F::FALLOC_FL_KEEP_SIZE => "-n ",
        F::FALLOC_FL_COLLAPSE_RANGE => "-c ",
        F::FALLOC_FL_INSERT_RANGE => "-i ",
        F::FALLOC_FL_ZERO_RANGE => "-z ",
        mode if mode == F::FALLOC_FL_ZERO_RANGE | F::FALLOC_FL_KEEP_SIZE => "-z -n ",
        mode if mode == F::FALLOC_FL_PUNCH_HOLE | F::FALLOC_FL_KEEP_SIZE => "-p ",
        _ => return None,
    })
}

/// The letters of test(1) for a mode; none if it has bits without a name.
fn access_letters(mode: AccessMode) -> Option<String> {
    if mode.is_empty() {
        return Some("e".to_owned());
    }
    let known = AccessMode::R_OK | AccessMode::W_OK | AccessMode::X_OK;
    let letters = [(AccessMode::R_OK, 'r'), (AccessMode::W_OK, 'w'), (AccessMode::X_OK, 'x')];
    known.contains(mode).then(|| {
        letters.iter().filter(|(bit, _)| mode.contains(*bit)).map(|(_, letter)| letter).collect()
    })
}

/// A word of bash that stands for these bytes.
pub(super) fn quote(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./-".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    if bytes.iter().all(|byte| (b' '..=b'~').contains(byte) && *byte != b'\'') {
        return format!("'{}'", String::from_utf8_lossy(bytes));
    }
    let mut text = String::from("$'");
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', byte as char]),
            b' '..=b'~' => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_little_as_possible() {
        assert_eq!(quote(b"d0/f_1"), "d0/f_1");
        assert_eq!(quote(b""), "''");
        assert_eq!(quote(b"a b$"), "'a b$'");
        assert_eq!(quote(b"it's\n\xff"), "$'it\\'s\\x0a\\xff'");
    }
}
