//! Access control lists (acl(5)), where the mount has them (`-o acl`).
//!
//! The kernel checks permissions by them (`FUSE_POSIX_ACL`) and leaves three things to the server: the
//! permission bits and the list agree, a change of one changes the other, and what is made in a
//! directory inherits its default list, if it has one, instead of losing what the mask takes away
//! (`FUSE_DONT_MASK`). The lists are stored as the extended attributes by which programs set them.

use fathom_core::flags::XattrFlags;
use fathom_core::{Errno, Mode};
use fathom_model::{Identity, Ino, NewNode, Volume};
use fuser::{FileAttr, Request};

use super::caller;
use super::state::State;

/// The attribute with the list by which access is decided.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the list that new entries of a directory inherit.
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The version of the attributes (include/uapi/linux/posix_acl_xattr.h).
const VERSION: u32 = 2;

/// Kinds of entries (include/uapi/linux/posix_acl.h).
mod tag {
    pub(super) const USER_OBJ: u16 = 0x01;
    pub(super) const GROUP_OBJ: u16 = 0x04;
    pub(super) const MASK: u16 = 0x10;
    pub(super) const OTHER: u16 = 0x20;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A list, in the order of the attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Acl(Vec<Entry>);

impl Acl {
    fn parse(bytes: &[u8]) -> Result<Acl, Errno> {
        let (version, rest) = bytes.split_first_chunk().ok_or(Errno::EINVAL)?;
        let (entries, left) = rest.as_chunks::<8>();
        if u32::from_le_bytes(*version) != VERSION || !left.is_empty() || entries.is_empty() {
            return Err(Errno::EINVAL);
        }
        let half = |entry: &[u8; 8], at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let entry = |bytes: &[u8; 8]| Entry {
            tag: half(bytes, 0),
            perm: half(bytes, 2) & 7,
            id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        Ok(Acl(entries.iter().map(entry).collect()))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend(entry.tag.to_le_bytes());
            bytes.extend(entry.perm.to_le_bytes());
            bytes.extend(entry.id.to_le_bytes());
        }
        bytes
    }

    /// The entry that the permissions of the group stand for: the mask, if there is one.
    fn group_tag(&self) -> u16 {
        match self.0.iter().any(|entry| entry.tag == tag::MASK) {
            true => tag::MASK,
            false => tag::GROUP_OBJ,
        }
    }

    /// The entries that correspond to permission bits, each with the position of those.
    fn shifts(&self) -> [(u16, u32); 3] {
        [(tag::USER_OBJ, 6), (self.group_tag(), 3), (tag::OTHER, 0)]
    }

    /// The permission bits that agree with the list.
    fn permissions(&self) -> u32 {
        let bits = |(wanted, shift): (u16, u32)| {
            let entry = self.0.iter().find(|entry| entry.tag == wanted);
            entry.map_or(0, |entry| u32::from(entry.perm) << shift)
        };
        self.shifts().into_iter().map(bits).sum()
    }

    /// Whether the list says no more than permission bits do.
    fn is_plain(&self) -> bool {
        let plain = [tag::USER_OBJ, tag::GROUP_OBJ, tag::OTHER];
        self.0.iter().all(|entry| plain.contains(&entry.tag))
    }

    /// The list after chmod(2).
    fn with_permissions(mut self, mode: u32) -> Acl {
        for (wanted, shift) in self.shifts() {
            for entry in self.0.iter_mut().filter(|entry| entry.tag == wanted) {
                entry.perm = (mode >> shift & 7) as u16;
            }
        }
        self
    }

    /// The list of a new inode that inherits this one, and its mode: each takes from the other
    /// (posix_acl_create_masq, fs/posix_acl.c).
    fn inherited(self, mode: u32) -> (Acl, u32) {
        let allowed = self.permissions();
        let mode = mode & (allowed | !0o777);
        (self.with_permissions(mode), mode)
    }
}

fn stored(volume: &Volume, ino: Ino, name: &[u8]) -> Option<Acl> {
    let value = volume.getxattr(ino, name).ok()?;
    Acl::parse(value.as_bytes()).ok()
}

fn store(volume: &mut Volume, ino: Ino, name: &[u8], acl: &Acl) -> Result<(), Errno> {
    volume.setxattr(ino, name, &acl.bytes(), XattrFlags::empty())
}

/// Makes an inode that inherits the default list of its directory, or else obeys the mask.
pub(super) fn make(
    state: &mut State,
    caller: &Identity,
    (dir, name): (Ino, &[u8]),
    node: NewNode,
    mode: Mode,
    umask: u32,
) -> Result<FileAttr, Errno> {
    let is_link = matches!(node, NewNode::Symlink(_));
    let is_dir = matches!(node, NewNode::Dir);
    let default = stored(state.volume(), dir, DEFAULT).filter(|_| !is_link);
    let Some(default) = default else {
        let mode = if is_link { mode } else { Mode(mode.0 & !umask) };
        return state.make(caller, dir, name, node, mode);
    };
    let (access, bits) = default.clone().inherited(mode.0);
    let attr = state.make(caller, dir, name, node, Mode(bits))?;
    let volume = state.volume_mut();
    if !access.is_plain() {
        store(volume, attr.ino.0, ACCESS, &access)?;
    }
    if is_dir {
        store(volume, attr.ino.0, DEFAULT, &default)?;
    }
    state.attr(attr.ino.0)
}

/// Sets a list; that of access sets the permission bits, and is stored only if it says more. It takes setgid away
/// if chmod(2) would (posix_acl_update_mode, fs/posix_acl.c; the kernel would only say so with
/// `FUSE_SETXATTR_EXT`, which fuser does not speak).
pub(super) fn set(
    volume: &mut Volume,
    req: &Request,
    ino: Ino,
    name: &[u8],
    value: &[u8],
) -> Result<(), Errno> {
    let acl = Acl::parse(value)?;
    if name == DEFAULT {
        return store(volume, ino, name, &acl);
    }
    let attr = volume.attr(ino)?;
    let kept = if caller::keeps_setgid(req, attr.gid) { !0o777 } else { !(0o777 | Mode::S_ISGID) };
    if acl.is_plain() {
        // Without a list there is nothing to remove.
        let _ = volume.removexattr(ino, ACCESS);
    } else {
        store(volume, ino, name, &acl)?;
    }
    volume.chmod(ino, Mode((attr.mode.0 & kept) | acl.permissions()))
}

/// Lets the list follow a change of the permission bits.
pub(super) fn follow_chmod(volume: &mut Volume, ino: Ino, mode: u32) -> Result<(), Errno> {
    match stored(volume, ino, ACCESS) {
        Some(acl) => store(volume, ino, ACCESS, &acl.with_permissions(mode)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Acl {
        Acl(entries
            .iter()
            .map(|(tag, perm)| Entry { tag: *tag, perm: *perm, id: u32::MAX })
            .collect())
    }

    #[test]
    fn lists_and_permission_bits_agree() {
        const USER: u16 = 0x02;
        let list = acl(&[
            (tag::USER_OBJ, 7),
            (USER, 6),
            (tag::GROUP_OBJ, 5),
            (tag::MASK, 4),
            (tag::OTHER, 1),
        ]);
        assert_eq!(Acl::parse(&list.bytes()), Ok(list.clone()));
        assert_eq!(list.permissions(), 0o741, "the mask is what the group shows");
        assert!(!list.is_plain());
        let (inherited, mode) = list.clone().inherited(0o2660);
        assert_eq!(mode, 0o2640);
        assert_eq!(inherited.permissions(), 0o640);
        assert_eq!(list.with_permissions(0o123).permissions(), 0o123);
        assert_eq!(Acl::parse(b"\x01\0\0\0"), Err(Errno::EINVAL));
        assert!(acl(&[(tag::USER_OBJ, 6), (tag::GROUP_OBJ, 4), (tag::OTHER, 4)]).is_plain());
    }
}
