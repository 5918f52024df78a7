//! setxattr(2), getxattr(2), listxattr(2), removexattr(2) and their variants: xattr(7), fs/xattr.c.

use std::collections::BTreeSet;

use fathom_core::flags::XattrFlags;
use fathom_core::{Errno, FsBytes, Kind, Mode, Outcome, Pattern, Payload, Target};

use super::Model;
use super::permission::Mask;
use crate::quirks::{Quirks, XattrOrder};
use crate::volume::Ino;

/// `XATTR_NAME_MAX`
const NAME_BYTES_MAX: usize = 255;
/// `XATTR_SIZE_MAX`
const VALUE_BYTES_MAX: u64 = 65536;

/// What the first part of a name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    User,
    Trusted,
    Security,
    /// Access control lists: not part of the model.
    System,
    /// No file system knows it.
    Unknown,
}

const PREFIXES: [(&[u8], Namespace); 4] = [
    (b"user.", Namespace::User),
    (b"trusted.", Namespace::Trusted),
    (b"security.", Namespace::Security),
    (b"system.", Namespace::System),
];

impl Namespace {
    pub(super) fn of(name: &FsBytes) -> Namespace {
        let found = PREFIXES.iter().find(|(prefix, _)| name.as_bytes().starts_with(prefix));
        found.map_or(Namespace::Unknown, |(_, namespace)| *namespace)
    }
}

impl Model {
    pub(super) fn setxattr(
        &mut self,
        target: &Target,
        name: &FsBytes,
        value: Pattern,
        flags: XattrFlags,
    ) -> Result<u64, Errno> {
        self.xattr_change_file_first(target)?;
        // setxattr_copy: the arguments come before the file.
        if !(XattrFlags::XATTR_CREATE | XattrFlags::XATTR_REPLACE).contains(flags) {
            return Err(Errno::EINVAL);
        }
        check_name(name)?;
        if value.len > VALUE_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        let ino = self.target(target)?;
        self.may_change_xattr(ino, name)?;
        handler(self.quirks(), name)?;
        let both = XattrFlags::XATTR_CREATE | XattrFlags::XATTR_REPLACE;
        if self.quirks().xattr_both_flags_invalid && flags.contains(both) {
            return Err(Errno::EINVAL);
        }
        // Before they look for the attribute (ubifs_xattr_set, btrfs_setxattr).
        if value.len > u64::from(self.quirks().xattr_value_bytes_max) {
            return Err(Errno::ERANGE);
        }
        if name.as_bytes().len() as u64 + value.len > u64::from(self.quirks().xattr_bytes_max) {
            return Err(Errno::ENOSPC);
        }
        let create_alone =
            self.quirks().xattr_create_wins && flags.contains(XattrFlags::XATTR_CREATE);
        let flags = if create_alone { XattrFlags::XATTR_CREATE } else { flags };
        self.volume.setxattr(ino, name.as_bytes(), &value.to_vec(), flags)?;
        Ok(0)
    }

    pub(super) fn getxattr(
        &mut self,
        target: &Target,
        name: &FsBytes,
        len: u64,
    ) -> Result<Outcome, Errno> {
        self.xattr_file_first(target)?;
        check_name(name)?;
        let ino = self.target(target)?;
        self.xattr_permission(ino, name, Mask::READ)?;
        handler(self.quirks(), name)?;
        let value = self.volume.getxattr(ino, name.as_bytes())?;
        let value = value.as_bytes();
        match len {
            0 => Ok(Outcome::ok(value.len() as u64)),
            len if len < value.len() as u64 => Err(Errno::ERANGE),
            _ => Ok(Outcome::data(value)),
        }
    }

    /// Needs no permission. `trusted.*` shows only to CAP_SYS_ADMIN.
    pub(super) fn listxattr(&mut self, target: &Target, len: u64) -> Result<Outcome, Errno> {
        let ino = self.target(target)?;
        let sees_trusted =
            self.current.identity.is_privileged() || self.quirks().trusted_listed_to_all;
        let names: BTreeSet<FsBytes> = self
            .volume
            .listxattr(ino)?
            .into_iter()
            .filter(|name| sees_trusted || Namespace::of(name) != Namespace::Trusted)
            .collect();
        // Each with a NUL at its end.
        let list_bytes: u64 = names.iter().map(|name| name.as_bytes().len() as u64 + 1).sum();
        match len {
            0 => Ok(Outcome::ok(list_bytes)),
            len if len < list_bytes => Err(Errno::ERANGE),
            _ => Ok(Outcome { result: Ok(list_bytes), payload: Payload::Names(names) }),
        }
    }

    pub(super) fn removexattr(&mut self, target: &Target, name: &FsBytes) -> Result<u64, Errno> {
        self.xattr_change_file_first(target)?;
        check_name(name)?;
        let ino = self.target(target)?;
        self.may_change_xattr(ino, name)?;
        handler(self.quirks(), name)?;
        self.volume.removexattr(ino, name.as_bytes())?;
        Ok(0)
    }

    /// Older kernels find the file before they look at the arguments ([`Quirks::xattr_order`]).
    fn xattr_file_first(&mut self, target: &Target) -> Result<(), Errno> {
        match self.quirks().xattr_order {
            XattrOrder::ArgumentsFirst => Ok(()),
            XattrOrder::PathLast | XattrOrder::FileFirst => self.target(target).map(|_| ()),
        }
    }

    /// The same for calls that change something.
    fn xattr_change_file_first(&mut self, target: &Target) -> Result<(), Errno> {
        match (self.quirks().xattr_order, target) {
            (XattrOrder::PathLast, Target::Slot(_)) | (XattrOrder::FileFirst, _) => {
                self.xattr_file_first(target)
            }
            _ => Ok(()),
        }
    }

    fn may_change_xattr(&self, ino: Ino, name: &FsBytes) -> Result<(), Errno> {
        self.xattr_permission(ino, name, Mask::WRITE)?;
        // security/commoncap.c: CAP_SYS_ADMIN.
        if Namespace::of(name) == Namespace::Security && !self.current.identity.is_privileged() {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// The sum of [`Quirks::xattr_cost`] of an inode once `name` has a value of `value_bytes`.
    pub(super) fn xattr_cost_after(
        &self,
        ino: Ino,
        name: &FsBytes,
        value_bytes: u64,
    ) -> Result<u64, Errno> {
        let mut cost = Quirks::xattr_cost(name.as_bytes(), value_bytes as usize);
        for other in self.volume.listxattr(ino)?.iter().filter(|other| *other != name) {
            let value = self.volume.getxattr(ino, other.as_bytes())?;
            cost += Quirks::xattr_cost(other.as_bytes(), value.as_bytes().len());
        }
        Ok(cost as u64)
    }

    /// `xattr_permission`
    fn xattr_permission(&self, ino: Ino, name: &FsBytes, mask: Mask) -> Result<(), Errno> {
        let denied = if mask == Mask::WRITE { Errno::EPERM } else { Errno::ENODATA };
        match Namespace::of(name) {
            Namespace::Security | Namespace::System => return Ok(()),
            Namespace::Trusted if self.current.identity.is_privileged() => return Ok(()),
            Namespace::Trusted => return Err(denied),
            Namespace::User => {
                let attr = self.volume.attr(ino)?;
                let sticky = attr.kind == Kind::Dir && attr.mode.0 & Mode::S_ISVTX != 0;
                if !matches!(attr.kind, Kind::File | Kind::Dir) {
                    return Err(denied);
                }
                if sticky && mask == Mask::WRITE && !self.owns(&attr) {
                    return Err(Errno::EPERM);
                }
            }
            Namespace::Unknown => {}
        }
        self.permission(ino, mask)
    }
}

/// `import_xattr_name`
fn check_name(name: &FsBytes) -> Result<(), Errno> {
    match name.as_bytes().len() {
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(Errno::ERANGE),
    }
}

/// `xattr_resolve_name`: the namespace must be known, and something must follow it.
fn handler(quirks: &Quirks, name: &FsBytes) -> Result<(), Errno> {
    if quirks.xattr_any_name {
        return Ok(());
    }
    let is_known = match Namespace::of(name) {
        Namespace::User => quirks.user_xattrs,
        Namespace::Trusted => quirks.trusted_xattrs,
        Namespace::Security => true,
        Namespace::System | Namespace::Unknown => false,
    };
    if !is_known {
        return Err(Errno::EOPNOTSUPP);
    }
    match PREFIXES.iter().any(|(prefix, _)| *prefix == name.as_bytes()) {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;
    use fathom_core::flags::OpenFlags;

    use super::super::testing::*;
    use super::*;

    fn set(target: Target, name: &str, len: u64, flags: u32) -> Op {
        let flags = XattrFlags::from_bits_retain(flags);
        Op::Setxattr { target, name: FsBytes::from(name), value: Pattern { seed: 3, len }, flags }
    }

    fn get(target: Target, name: &str, len: u64) -> Op {
        Op::Getxattr { target, name: FsBytes::from(name), len }
    }

    fn remove(target: Target, name: &str) -> Op {
        Op::Removexattr { target, name: FsBytes::from(name) }
    }

    #[test]
    fn arguments_come_before_the_file() {
        let mut m = model();
        let long = format!("user.{}", "n".repeat(251));
        let table = [
            (set(at("nope"), "", 0, 4), Err(E::EINVAL)),
            (set(at("nope"), "", 70_000, 0), Err(E::ERANGE)),
            (set(at("nope"), &long, 0, 0), Err(E::ERANGE)),
            (set(at("nope"), "user.a", 65_537, 0), Err(E::E2BIG)),
            (set(at("nope"), "user.a", 65_536, 0), Err(E::ENOENT)),
            (set(Target::Slot(9), "user.a", 1, 0), Err(E::EBADF)),
            (get(at("nope"), "", 0), Err(E::ERANGE)),
            (remove(at("nope"), &long), Err(E::ERANGE)),
        ];
        check(&mut m, &table);
    }

    /// Found with ext4 behind NFS 4.2, as `EINVAL` instead of `EEXIST` and `ENODATA`.
    #[test]
    fn nfs_has_one_option_and_so_refuses_both_flags() {
        let layered = |layer| Quirks::default().with_layer(layer, (6, 12)).unwrap();
        let both = (XattrFlags::XATTR_CREATE | XattrFlags::XATTR_REPLACE).bits();
        let mut m = model_with(layered("nfs-4.2"));
        given(&mut m, &[file("f", 0o644)]);
        let table = [
            (set(at("f"), "user.a", 1, both), Err(E::EINVAL)),
            (set(at("f"), "user.a", 1, 0), Ok(0)),
            (set(at("f"), "user.a", 1, both), Err(E::EINVAL)),
            (set(at("f"), "user.a", 1, 1), Err(E::EEXIST)),
            (set(at("f"), "user.b", 1, 2), Err(E::ENODATA)),
            // The client looks at these first.
            (set(at("nope"), "user.a", 1, both), Err(E::ENOENT)),
            (set(at("f"), "trusted.a", 1, both), Err(E::EOPNOTSUPP)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn before_linux_6_13_the_file_comes_before_the_arguments() {
        let ordered = |xattr_order| model_with(Quirks { xattr_order, ..Quirks::default() });
        let mut m = ordered(XattrOrder::PathLast);
        given(&mut m, &[file("f", 0o644)]);
        let table = [
            (set(at("nope"), "", 0, 4), Err(E::EINVAL)),
            (set(Target::Slot(9), "", 1, 0), Err(E::EBADF)),
            (get(at("nope"), "", 0), Err(E::ENOENT)),
            (remove(at("nope"), ""), Err(E::ERANGE)),
            (remove(Target::Slot(9), ""), Err(E::EBADF)),
        ];
        check(&mut m, &table);
        let mut m = ordered(XattrOrder::FileFirst);
        given(&mut m, &[file("f", 0o644)]);
        let long = format!("user.{}", "n".repeat(251));
        let table = [
            (set(at("nope"), "", 0, 4), Err(E::ENOENT)),
            (set(at("f"), "", 0, 4), Err(E::EINVAL)),
            (set(Target::Slot(9), "", 1, 0), Err(E::EBADF)),
            (set(at("f"), "user.a", 65_537, 0), Err(E::E2BIG)),
            (get(Target::Slot(9), "", 0), Err(E::EBADF)),
            (get(at("f"), "", 0), Err(E::ERANGE)),
            (remove(at("nope"), &long), Err(E::ENOENT)),
            (remove(at("f"), &long), Err(E::ERANGE)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn a_value_that_is_longer_than_the_file_system_takes() {
        let mut m = model_with(Quirks { xattr_value_bytes_max: 10, ..Quirks::default() });
        given(&mut m, &[file("f", 0o644)]);
        let table = [
            (set(at("f"), "user.a", 10, 0), Ok(0)),
            (set(at("f"), "user.a", 11, 1), Err(E::ERANGE)),
            (set(at("f"), "user.b", 11, 2), Err(E::ERANGE)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn create_replace_get_list_remove() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644)]);
        let list = |len| Op::Listxattr { target: at("f"), len };
        let table = [
            (list(0), Ok(0)),
            (list(1), Ok(0)),
            (set(at("f"), "user.a", 5, 2), Err(E::ENODATA)),
            (set(at("f"), "user.a", 5, 3), Err(E::ENODATA)),
            (set(at("f"), "user.a", 5, 1), Ok(0)),
            (set(at("f"), "user.a", 5, 1), Err(E::EEXIST)),
            (set(at("f"), "user.a", 5, 3), Err(E::EEXIST)),
            (set(at("f"), "user.a", 7, 2), Ok(0)),
            (get(at("f"), "user.a", 0), Ok(7)),
            (get(at("f"), "user.a", 6), Err(E::ERANGE)),
            (get(at("f"), "user.b", 6), Err(E::ENODATA)),
            (list(0), Ok(7)),
            (list(6), Err(E::ERANGE)),
            (list(7), Ok(7)),
            (remove(at("f"), "user.b"), Err(E::ENODATA)),
            (remove(at("f"), "user.a"), Ok(0)),
            (set(at("f"), "user.empty", 0, 0), Ok(0)),
            (get(at("f"), "user.empty", 9), Ok(0)),
        ];
        check(&mut m, &table);
        data_of(m.execute(&get(at("f"), "user.empty", 9)), b"");
    }

    #[test]
    fn any_name_is_one_where_the_handler_takes_all() {
        let mut m = model_with(Quirks { xattr_any_name: true, ..Quirks::default() });
        given(&mut m, &[file("f", 0o644), set(at("f"), "foo.bar", 1, 0)]);
        let table = [
            (remove(at("f"), "user."), Err(E::ENODATA)),
            (set(at("f"), "user.", 1, 0), Ok(0)),
            (remove(at("f"), "user."), Ok(0)),
            (remove(at("f"), "foo.bar"), Ok(0)),
            (remove(at("f"), "system.x"), Err(E::ENODATA)),
            // The length is the kernel's matter, before the file system is asked.
            (set(at("f"), "", 1, 0), Err(E::ERANGE)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn namespaces() {
        let mut m = model();
        given(
            &mut m,
            &[file("f", 0o644), set(at("f"), "trusted.t", 1, 0), set(at("f"), "security.s", 1, 0)],
        );
        let table = [
            (set(at("f"), "user.", 1, 0), Err(E::EINVAL)),
            (get(at("f"), "trusted.", 1), Err(E::EINVAL)),
            (set(at("f"), "user", 1, 0), Err(E::EOPNOTSUPP)),
            (set(at("f"), "foo.bar", 1, 0), Err(E::EOPNOTSUPP)),
            (get(at("f"), "system.x", 1), Err(E::EOPNOTSUPP)),
            (remove(at("f"), "foo.bar"), Err(E::EOPNOTSUPP)),
        ];
        check(&mut m, &table);
        given(&mut m, &[become_user(ALICE)]);
        let table = [
            (set(at("f"), "trusted.t", 1, 0), Err(E::EPERM)),
            (get(at("f"), "trusted.t", 1), Err(E::ENODATA)),
            (set(at("f"), "security.s", 1, 0), Err(E::EPERM)),
            (get(at("f"), "security.s", 1), Ok(1)),
            (set(at("f"), "user.a", 1, 0), Err(E::EACCES)),
            (set(at("f"), "foo.bar", 1, 0), Err(E::EACCES)),
            (get(at("f"), "user.a", 1), Err(E::ENODATA)),
            (Op::Listxattr { target: at("f"), len: 0 }, Ok(11)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn namespaces_that_a_file_system_does_not_keep() {
        let mut m = model_with(Quirks { user_xattrs: false, ..Quirks::default() });
        given(&mut m, &[file("f", 0o644)]);
        let table = [
            (set(at("f"), "user.a", 1, 0), Err(E::EOPNOTSUPP)),
            (set(at("f"), "user.", 1, 0), Err(E::EOPNOTSUPP)),
            (get(at("f"), "user.a", 1), Err(E::EOPNOTSUPP)),
            (remove(at("f"), "user.a"), Err(E::EOPNOTSUPP)),
            (set(at("f"), "trusted.a", 1, 0), Ok(0)),
            (Op::Listxattr { target: at("f"), len: 0 }, Ok(10)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn types_and_sticky_directories() {
        let mut m = model();
        given(
            &mut m,
            &[
                mknod("p", Mode::S_IFIFO | 0o666),
                symlink("p", "l"),
                mkdir("tmp", 0o1777),
                file("f", 0o222),
                become_user(ALICE),
            ],
        );
        let table = [
            (set(at("p"), "user.a", 1, 0), Err(E::EPERM)),
            (get(at("p"), "user.a", 1), Err(E::ENODATA)),
            (set(at_link("l"), "user.a", 1, 0), Err(E::EPERM)),
            (set(at("tmp"), "user.a", 1, 0), Err(E::EPERM)),
            (get(at("tmp"), "user.a", 1), Err(E::ENODATA)),
            (get(at("f"), "user.a", 1), Err(E::EACCES)),
            (set(at("f"), "user.a", 1, 0), Ok(0)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn path_descriptors_are_refused() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644), open(0, "f", OpenFlags::O_PATH)]);
        let slot = || Target::Slot(0);
        let table = [
            (set(slot(), "user.a", 1, 0), Err(E::EBADF)),
            (get(slot(), "user.a", 1), Err(E::EBADF)),
            (Op::Listxattr { target: slot(), len: 0 }, Err(E::EBADF)),
            (remove(slot(), "user.a"), Err(E::EBADF)),
        ];
        check(&mut m, &table);
    }
}
