//! open(2): fs/open.c, fs/namei.c `path_openat`.

use fathom_core::flags::{Access, OpenFlags};
use fathom_core::plain::FILE_MODE;
use fathom_core::{Errno, FsPath, Kind, Mode, Slot};

use super::Model;
use super::file::OpenFile;
use super::permission::Mask;
use super::resolve::{Follow, Last};
use crate::volume::{Ino, NewNode, SetTime};

/// With `O_PATH`, no other flag counts.
const PATH_FLAGS: OpenFlags = OpenFlags::O_PATH
    .union(OpenFlags::O_DIRECTORY)
    .union(OpenFlags::O_NOFOLLOW)
    .union(OpenFlags::O_CLOEXEC);
/// Only effective while opening.
const CREATION_FLAGS: OpenFlags = OpenFlags::O_CREAT
    .union(OpenFlags::O_EXCL)
    .union(OpenFlags::O_NOCTTY)
    .union(OpenFlags::O_TRUNC);

/// The inode that an open found or made.
struct Found {
    ino: Ino,
    created: bool,
    /// It must be a directory: `O_DIRECTORY`, or a slash at the end of the path.
    directory: bool,
    /// The directory of its name, unless the path ends with a dot or two.
    dir: Option<Ino>,
}

impl Model {
    pub(super) fn open(
        &mut self,
        slot: Slot,
        path: &FsPath,
        flags: OpenFlags,
        mode: Mode,
    ) -> Result<u64, Errno> {
        if self.current.files.get(slot).is_some() {
            self.close(slot)?;
        }
        let flags = check_flags(flags)?;
        if flags.contains(OpenFlags::O_TMPFILE_BIT) {
            return self.open_tmpfile(slot, path, flags, mode);
        }
        if flags.contains(OpenFlags::O_PATH) {
            let ino = self.resolve_for_open(path, flags)?;
            return self.install(slot, ino, flags);
        }
        let found = self.find_or_create(path, flags, mode)?;
        self.check_found(&found, flags)?;
        if !found.created {
            self.may_open(found.ino, flags)?;
        }
        self.open_special(found.ino, flags)?;
        let truncate = flags.contains(OpenFlags::O_TRUNC) && !found.created;
        if truncate && self.volume.attr(found.ino)?.kind == Kind::File {
            // handle_truncate: as ftruncate(2), privileges and times included.
            self.truncate_without_privileges(found.ino, 0)?;
            self.volume.set_times(found.ino, None, Some(SetTime::Now))?;
        }
        self.install(slot, found.ino, flags)
    }

    /// `do_tmpfile`, `vfs_tmpfile`: a file without a name, in the directory of the path.
    fn open_tmpfile(
        &mut self,
        slot: Slot,
        path: &FsPath,
        flags: OpenFlags,
        mode: Mode,
    ) -> Result<u64, Errno> {
        let dir = self.resolve_for_open(path, flags)?;
        self.permission(dir, Mask::WRITE | Mask::SEARCH)?;
        if !self.quirks().tmpfile {
            return Err(Errno::EOPNOTSUPP);
        }
        let mode = self.creation_mode(dir, mode, 0o7777)?;
        let ino = self.volume.make_tmpfile(&self.current.identity, dir, mode)?;
        if flags.contains(OpenFlags::O_EXCL) {
            self.volume.forbid_link(ino)?;
        }
        let opened = self.open_special(ino, flags).and_then(|()| self.install(slot, ino, flags));
        // The volume gave it one pin, and the slot holds its own.
        self.volume.unpin(ino);
        opened
    }

    /// `path_lookupat` with the flags of an open.
    fn resolve_for_open(&self, path: &FsPath, flags: OpenFlags) -> Result<Ino, Errno> {
        let follow = if flags.contains(OpenFlags::O_NOFOLLOW) { Follow::No } else { Follow::Yes };
        match flags.contains(OpenFlags::O_DIRECTORY) {
            true => self.resolve_dir(path, follow),
            false => self.resolve(path, follow),
        }
    }

    /// `open_last_lookups`, `lookup_open`
    fn find_or_create(
        &mut self,
        path: &FsPath,
        flags: OpenFlags,
        mode: Mode,
    ) -> Result<Found, Errno> {
        let create = flags.contains(OpenFlags::O_CREAT);
        let exclusive = create && flags.contains(OpenFlags::O_EXCL);
        let mut follow = !exclusive && !flags.contains(OpenFlags::O_NOFOLLOW);
        let mut directory = flags.contains(OpenFlags::O_DIRECTORY);
        let mut walk = self.begin_walk(path)?;
        loop {
            let place = self.walk_to_last(&mut walk)?;
            let Last::Name(name) = &place.last else {
                let ino = self.lookup_last(&place)?;
                return Ok(Found { ino, created: false, directory, dir: None });
            };
            if place.slash && create {
                return Err(Errno::EISDIR);
            }
            if place.slash {
                (follow, directory) = (true, true);
            }
            match self.lookup(place.dir, name) {
                Ok(ino) if follow && self.volume.attr(ino)?.kind == Kind::Symlink => {
                    self.follow_last(&mut walk, place.dir, ino)?;
                }
                Ok(ino) => {
                    return Ok(Found { ino, created: false, directory, dir: Some(place.dir) });
                }
                Err(Errno::ENOENT) if create => {
                    self.may_create(place.dir)?;
                    let mode = if self.quirks().modes_not_kept { FILE_MODE } else { mode };
                    let mode = self.creation_mode(place.dir, mode, 0o7777)?;
                    let file = NewNode::File;
                    let ino =
                        self.volume.make(&self.current.identity, place.dir, name, file, mode)?;
                    return Ok(Found { ino, created: true, directory, dir: Some(place.dir) });
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// `do_open`, before permissions.
    fn check_found(&self, found: &Found, flags: OpenFlags) -> Result<(), Errno> {
        let kind = self.volume.attr(found.ino)?.kind;
        if flags.contains(OpenFlags::O_CREAT) && !found.created {
            if flags.contains(OpenFlags::O_EXCL) {
                return Err(Errno::EEXIST);
            }
            if kind == Kind::Dir {
                return Err(Errno::EISDIR);
            }
            self.may_create_in_sticky(found)?;
        }
        if found.directory && kind != Kind::Dir {
            return Err(Errno::ENOTDIR);
        }
        Ok(())
    }

    /// `may_create_in_sticky`: with `O_CREAT` in a sticky directory, the files of others are not
    /// opened if `fs.protected_regular` and `fs.protected_fifos` say so.
    fn may_create_in_sticky(&self, found: &Found) -> Result<(), Errno> {
        let Some(dir) = found.dir else { return Ok(()) };
        let (dir, attr) = (self.volume.attr(dir)?, self.volume.attr(found.ino)?);
        let protection = match attr.kind {
            Kind::File => self.quirks().protected_regular,
            Kind::Fifo => self.quirks().protected_fifos,
            // The kernel asks only these two whether they are protected.
            _ => 1,
        };
        let trusted = attr.uid == dir.uid || attr.uid == self.current.identity.uid;
        if dir.mode.0 & Mode::S_ISVTX == 0 || protection == 0 || trusted {
            return Ok(());
        }
        let by_group = dir.mode.0 & 0o020 != 0 && protection >= 2;
        if dir.mode.0 & 0o002 != 0 || by_group { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// `may_open`
    fn may_open(&self, ino: Ino, flags: OpenFlags) -> Result<(), Errno> {
        let mask = access_mask(flags);
        let attr = self.volume.attr(ino)?;
        match attr.kind {
            Kind::Symlink => return Err(Errno::ELOOP),
            Kind::Dir if mask.contains(Mask::WRITE) => return Err(Errno::EISDIR),
            Kind::Char | Kind::Block if self.quirks().nodev => return Err(Errno::EACCES),
            _ => {}
        }
        self.permission(ino, mask)?;
        if flags.contains(OpenFlags::O_NOATIME) && !self.owns(&attr) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// What the type of the file has to say (`do_dentry_open`).
    fn open_special(&self, ino: Ino, flags: OpenFlags) -> Result<(), Errno> {
        let kind = self.volume.attr(ino)?.kind;
        match kind {
            Kind::Fifo => self.open_fifo(ino, flags)?,
            // A socket is not opened by its name, and the devices of a test have no driver.
            Kind::Socket | Kind::Char | Kind::Block => return Err(Errno::ENXIO),
            Kind::File | Kind::Dir | Kind::Symlink => {}
        }
        let direct_works = match kind {
            Kind::File => self.quirks().direct,
            Kind::Dir => self.quirks().direct_directories,
            _ => false,
        };
        if flags.contains(OpenFlags::O_DIRECT) && !direct_works {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// fifo(7), fs/pipe.c `fifo_open`. Where the call would wait for a peer, the answer is that of
    /// an interrupted call.
    fn open_fifo(&self, ino: Ino, flags: OpenFlags) -> Result<(), Errno> {
        let (readers, writers) = self.fifo_peers(ino);
        let blocking = !flags.contains(OpenFlags::O_NONBLOCK);
        match flags.access() {
            Access::Read if writers == 0 && blocking => Err(Errno::EINTR),
            Access::Write if readers == 0 && blocking => Err(Errno::EINTR),
            Access::Write if readers == 0 => Err(Errno::ENXIO),
            Access::Neither => Err(Errno::EINVAL),
            Access::Read | Access::Write | Access::ReadWrite => Ok(()),
        }
    }

    /// How many slots, of all callers, have a FIFO open for reading and for writing.
    pub(super) fn fifo_peers(&self, ino: Ino) -> (usize, usize) {
        let peers = || self.open_files().filter(|file| file.ino == ino);
        (
            peers().filter(|file| file.readable()).count(),
            peers().filter(|file| file.writable()).count(),
        )
    }

    fn install(&mut self, slot: Slot, ino: Ino, flags: OpenFlags) -> Result<u64, Errno> {
        self.volume.pin(ino)?;
        let kind = self.volume.attr(ino)?.kind;
        let flags = flags.difference(CREATION_FLAGS);
        self.current_mut().files.set(slot, Some(OpenFile { ino, kind, flags, position: 0 }));
        Ok(0)
    }
}

/// `build_open_how`, `build_open_flags`. Unknown bits are ignored, as openat(2) always did.
fn check_flags(flags: OpenFlags) -> Result<OpenFlags, Errno> {
    if flags.contains(OpenFlags::O_PATH) {
        return Ok(flags.intersection(PATH_FLAGS));
    }
    if flags.contains(OpenFlags::O_DIRECTORY | OpenFlags::O_CREAT) {
        return Err(Errno::EINVAL);
    }
    if flags.contains(OpenFlags::O_TMPFILE_BIT) {
        let writable = access_mask(flags.difference(OpenFlags::O_TRUNC)).contains(Mask::WRITE);
        if !flags.contains(OpenFlags::O_DIRECTORY) || !writable {
            return Err(Errno::EINVAL);
        }
    }
    Ok(flags)
}

/// `ACC_MODE`, and what `O_TRUNC` adds.
fn access_mask(flags: OpenFlags) -> Mask {
    let mask = match flags.access() {
        Access::Read => Mask::READ,
        Access::Write => Mask::WRITE,
        Access::ReadWrite | Access::Neither => Mask::READ | Mask::WRITE,
    };
    if flags.contains(OpenFlags::O_TRUNC) { mask | Mask::WRITE } else { mask }
}

#[cfg(test)]
mod tests {
    use fathom_core::{Op, Pattern};

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    const CREAT: OpenFlags = OpenFlags::O_CREAT;
    const EXCL: OpenFlags = OpenFlags::O_EXCL;
    const TRUNC: OpenFlags = OpenFlags::O_TRUNC;
    const RDONLY: OpenFlags = OpenFlags::empty();
    const WRONLY: OpenFlags = OpenFlags::O_WRONLY;
    const RDWR: OpenFlags = OpenFlags::O_RDWR;
    const NEITHER: OpenFlags = OpenFlags::O_WRONLY.union(OpenFlags::O_RDWR);
    const DIRECTORY: OpenFlags = OpenFlags::O_DIRECTORY;
    const NOFOLLOW: OpenFlags = OpenFlags::O_NOFOLLOW;
    const NONBLOCK: OpenFlags = OpenFlags::O_NONBLOCK;
    const DIRECT: OpenFlags = OpenFlags::O_DIRECT;
    const TMPFILE: OpenFlags = OpenFlags::O_TMPFILE;
    const PATH: OpenFlags = OpenFlags::O_PATH;

    fn furnished() -> Model {
        let mut m = model();
        given(
            &mut m,
            &[file("f", 0o644), mkdir("d", 0o755), symlink("f", "l"), symlink("d", "ld")],
        );
        given(&mut m, &[symlink("new", "dangling"), symlink("new/", "dangling-slash")]);
        given(&mut m, &[mknod("p", Mode::S_IFIFO | 0o666), mknod("s", Mode::S_IFSOCK | 0o666)]);
        m
    }

    #[test]
    fn flags_and_types() {
        let table = [
            ("f", CREAT | DIRECTORY, Err(E::EINVAL)),
            ("", CREAT | DIRECTORY, Err(E::EINVAL)),
            ("", RDONLY, Err(E::ENOENT)),
            ("new", CREAT, Ok(0)),
            ("new/", CREAT, Err(E::EISDIR)),
            ("f/", CREAT, Err(E::EISDIR)),
            ("d/", CREAT, Err(E::EISDIR)),
            ("d", CREAT, Err(E::EISDIR)),
            (".", CREAT, Err(E::EISDIR)),
            ("d", CREAT | EXCL, Err(E::EEXIST)),
            (".", CREAT | EXCL, Err(E::EEXIST)),
            ("l", CREAT | EXCL, Err(E::EEXIST)),
            ("dangling", CREAT | EXCL, Err(E::EEXIST)),
            ("dangling", CREAT, Ok(0)),
            ("dangling", RDONLY, Err(E::ENOENT)),
            ("dangling-slash", CREAT, Err(E::EISDIR)),
            ("l", NOFOLLOW, Err(E::ELOOP)),
            ("l/", NOFOLLOW, Err(E::ENOTDIR)),
            ("ld/", NOFOLLOW, Ok(0)),
            ("ld", NOFOLLOW | DIRECTORY, Err(E::ENOTDIR)),
            ("f/", RDONLY, Err(E::ENOTDIR)),
            ("f/x", CREAT, Err(E::ENOTDIR)),
            ("f", DIRECTORY | WRONLY, Err(E::ENOTDIR)),
            ("d", WRONLY, Err(E::EISDIR)),
            ("d", NEITHER, Err(E::EISDIR)),
            ("d", TRUNC, Err(E::EISDIR)),
            ("d", DIRECTORY, Ok(0)),
            ("d", DIRECT, Err(E::EINVAL)),
            ("f", NEITHER, Ok(0)),
            ("f", DIRECT, Ok(0)),
            ("f", OpenFlags::from_bits_retain(1 << 30), Ok(0)),
            ("s", RDONLY, Err(E::ENXIO)),
            ("p", NEITHER | NONBLOCK, Err(E::EINVAL)),
            ("p", WRONLY | NONBLOCK, Err(E::ENXIO)),
            ("p", RDONLY | NONBLOCK, Ok(0)),
            ("p", RDWR, Ok(0)),
            ("p", RDWR | DIRECT, Err(E::EINVAL)),
            ("p", DIRECTORY | NONBLOCK, Err(E::ENOTDIR)),
        ];
        check_each(
            &furnished(),
            &table.map(|(name, flags, expected)| (open(0, name, flags), expected)),
        );
    }

    #[test]
    fn tmpfile_and_path() {
        let table = [
            ("d", TMPFILE, Err(E::EINVAL)),
            ("d", OpenFlags::O_TMPFILE_BIT | RDWR, Err(E::EINVAL)),
            ("d", TMPFILE | RDWR | CREAT, Err(E::EINVAL)),
            ("d", TMPFILE | RDWR, Ok(0)),
            ("d", TMPFILE | RDWR | EXCL, Ok(0)),
            ("f", TMPFILE | RDWR, Err(E::ENOTDIR)),
            ("ld", TMPFILE | RDWR, Ok(0)),
            ("ld", TMPFILE | RDWR | NOFOLLOW, Err(E::ENOTDIR)),
            ("nope", TMPFILE | RDWR, Err(E::ENOENT)),
            ("d", PATH | TMPFILE | RDWR, Ok(0)),
            ("nope", PATH | CREAT, Err(E::ENOENT)),
            ("f", PATH | TRUNC | DIRECT, Ok(0)),
            ("s", PATH, Ok(0)),
            ("l", PATH | NOFOLLOW, Ok(0)),
            ("l", PATH | NOFOLLOW | DIRECTORY, Err(E::ENOTDIR)),
            ("l/", PATH | NOFOLLOW, Err(E::ENOTDIR)),
        ];
        check_each(
            &furnished(),
            &table.map(|(name, flags, expected)| (open(0, name, flags), expected)),
        );
        let mut m = model_with(Quirks { tmpfile: false, ..Quirks::default() });
        check(&mut m, &[(open(0, ".", TMPFILE | RDWR), Err(E::EOPNOTSUPP))]);
    }

    #[test]
    fn a_tmpfile_goes_with_its_slot() {
        let mut m = model();
        let free = m.volume().statfs();
        given(&mut m, &[open(0, ".", TMPFILE | RDWR), write(0, 1, 5000)]);
        assert_ne!(m.volume().statfs(), free);
        assert_eq!(m.volume().tree(Default::default()).entries.len(), 1);
        given(&mut m, &[close(0)]);
        assert_eq!(m.volume().statfs(), free);
    }

    #[test]
    fn permissions() {
        let mut m = model();
        given(&mut m, &[file("r", 0o444), file("w", 0o222), mkdir("d", 0o555), file("d/f", 0o666)]);
        given(&mut m, &[mkdir("x", 0o666), become_user(ALICE)]);
        let table = [
            ("r", RDONLY, Ok(0)),
            ("r", WRONLY, Err(E::EACCES)),
            ("r", TRUNC, Err(E::EACCES)),
            ("r", NEITHER, Err(E::EACCES)),
            ("r", OpenFlags::O_NOATIME, Err(E::EPERM)),
            ("w", OpenFlags::O_NOATIME, Err(E::EACCES)),
            ("r", PATH, Ok(0)),
            ("w", WRONLY, Ok(0)),
            ("d/new", CREAT, Err(E::EACCES)),
            ("d/f", CREAT | WRONLY, Ok(0)),
            ("d/f", CREAT | EXCL, Err(E::EEXIST)),
            ("d", TMPFILE | RDWR, Err(E::EACCES)),
            ("x/new", CREAT, Err(E::EACCES)),
            ("x", RDONLY, Ok(0)),
        ];
        check_each(&m, &table.map(|(name, flags, expected)| (open(0, name, flags), expected)));
        // The mode of a new file does not concern the open that makes it.
        check(
            &mut m,
            &[
                (open_mode(0, "none", CREAT | RDWR, 0), Ok(0)),
                (open(0, "none", RDONLY), Err(E::EACCES)),
            ],
        );
    }

    #[test]
    fn truncation_empties_the_file_and_its_privileges_go() {
        let mut m = model();
        given(
            &mut m,
            &[
                open_mode(0, "f", CREAT | RDWR, 0o666),
                write(0, 1, 100),
                chown("f", ALICE, ALICE),
                chmod("f", 0o6777),
            ],
        );
        given(&mut m, &[become_user(BOB), open(1, "f", TRUNC)]);
        assert_eq!((attr(&m, "f").size, mode_of(&m, "f")), (0, 0o777));
    }

    #[test]
    fn umask_applies_and_the_slot_is_replaced() {
        let mut m = model();
        given(
            &mut m,
            &[Op::Umask { mask: Mode(0o027) }, open_mode(0, "f", CREAT | WRONLY, 0o6777)],
        );
        assert_eq!(mode_of(&m, "f"), 0o6750);
        check(
            &mut m,
            &[
                (write(0, 1, 1), Ok(1)),
                (open(0, "nope", RDONLY), Err(E::ENOENT)),
                (write(0, 1, 1), Err(E::EBADF)),
            ],
        );
    }

    #[test]
    fn protected_files_of_others_in_sticky_directories() {
        let quirks = Quirks { protected_regular: 1, protected_fifos: 2, ..Quirks::default() };
        let mut m = model_with(quirks);
        given(&mut m, &[mkdir("tmp", 0o1777), mkdir("group", 0o1770), chown("group", 0, ALICE)]);
        given(
            &mut m,
            &[
                become_user(BOB),
                file("tmp/f", 0o666),
                mknod("tmp/p", Mode::S_IFIFO | 0o666),
                become_user(0),
            ],
        );
        given(
            &mut m,
            &[
                file("group/f", 0o666),
                chown("group/f", BOB, BOB),
                mknod("group/p", Mode::S_IFIFO | 0o666),
                chown("group/p", BOB, BOB),
            ],
        );
        let table = [
            (open(0, "tmp/f", CREAT | RDWR), Err(E::EACCES)),
            (open(0, "tmp/f", RDWR), Ok(0)),
            (open(0, "tmp/p", CREAT | RDWR), Err(E::EACCES)),
            (open(0, "group/f", CREAT | RDWR), Ok(0)),
            (open(0, "group/p", CREAT | RDWR), Err(E::EACCES)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn a_fifo_waits_for_its_peer() {
        let mut m = furnished();
        let (reader, writer) = (open(0, "p", RDONLY), open(1, "p", WRONLY));
        assert!(m.would_block(&reader) && m.would_block(&writer));
        assert!(!m.would_block(&open(0, "p", CREAT | EXCL)));
        given(&mut m, &[open(2, "p", RDONLY | NONBLOCK)]);
        assert!(m.would_block(&reader) && !m.would_block(&writer));
        given(&mut m, &[writer, reader]);
        let read = |slot| Op::Read { slot, len: 1 };
        assert!(m.would_block(&read(0)));
        check(
            &mut m,
            &[(read(2), Err(E::EAGAIN)), (close(1), Ok(0)), (read(0), Ok(0)), (read(2), Ok(0))],
        );
        given(&mut m, &[open(1, "p", RDWR), close(0), close(2)]);
        let data = Pattern { seed: 1, len: 1 };
        check(
            &mut m,
            &[(Op::Pwrite { slot: 1, offset: 0, data }, Err(E::ESPIPE)), (write(1, 1, 0), Ok(0))],
        );
    }
}
