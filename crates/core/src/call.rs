//! An operation as people write it: `pwrite(#0, 4096 bytes of pattern 7, at 0)`. `#0` is slot 0.
//!
//! Used wherever a person reads an operation: stories of findings, exported programs, progress.

use std::fmt::{self, Display};

use crate::flags::Whence;
use crate::op::{Op, Target, TimeArg};
use crate::operand::{AT_EACCESS, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, AtFlags, Operand};

impl Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.call(), self.arguments().join(", "))
    }
}

impl Op {
    fn arguments(&self) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        self.operands(|operand| match operand {
            // The position belongs to the slot before it.
            Operand::Position(position, _) => {
                let slot = out.pop().unwrap_or_default();
                let position =
                    position.map_or("at its position".to_owned(), |at| format!("at {at}"));
                out.push(format!("{slot} {position}"));
            }
            Operand::At(flags) => out.extend(at_flags(flags).map(str::to_owned)),
            other => out.extend(argument(other)),
        });
        out
    }
}

/// An operand as people write it, if they do.
fn argument(operand: Operand<'_>) -> Option<String> {
    Some(match operand {
        Operand::Slot(slot, ..) | Operand::Target(Target::Slot(slot), ..) => format!("#{slot}"),
        Operand::Path(text, ..)
        | Operand::Target(Target::Path(text) | Target::Link(text), ..)
        | Operand::Text(text, _)
        | Operand::XattrName(text, _) => format!("\"{text}\""),
        Operand::Offset(offset, _) => format!("at {offset}"),
        Operand::Distance(distance, _) => distance.to_string(),
        Operand::Length(len, _) | Operand::IntLength(len, _) => format!("{len} bytes"),
        Operand::SignedLength(len, _) => format!("{len} bytes"),
        Operand::Data(data, ..) => format!("{} bytes of pattern {}", data.len, data.seed),
        Operand::Flags(flags, _) => return Some(flags.text()).filter(|text| !text.is_empty()),
        Operand::Number(number, _) => number.to_string(),
        Operand::Back(&u32::MAX) => "from the start".to_owned(),
        Operand::Back(pieces) => format!("{pieces} back"),
        Operand::Whence(whence, _) => seek(*whence).to_owned(),
        Operand::Mode(mode, _) | Operand::Mask(mode, _) => mode.to_string(),
        Operand::Device((major, minor)) => format!("{major}:{minor}"),
        Operand::Owner(id, _) => id.map_or("-1".to_owned(), |id| id.to_string()),
        Operand::Id(id, label) => format!("{label} {id}"),
        Operand::Groups(groups) => format!("groups {groups:?}"),
        Operand::Time(time) => time_text(time),
        Operand::Position(..) | Operand::At(_) | Operand::Buffer(_) | Operand::Fixed(..) => {
            return None;
        }
    })
}

/// The names of the flags that are shown.
fn at_flags(flags: AtFlags) -> impl Iterator<Item = &'static str> {
    let names = [
        (AT_SYMLINK_FOLLOW, "AT_SYMLINK_FOLLOW"),
        (AT_EACCESS, "AT_EACCESS"),
        (AT_SYMLINK_NOFOLLOW, "AT_SYMLINK_NOFOLLOW"),
    ];
    names
        .into_iter()
        .filter(move |(bit, _)| flags.shown && flags.bits & bit != 0)
        .map(|(_, name)| name)
}

fn time_text(time: &TimeArg) -> String {
    match time {
        TimeArg::Now => "UTIME_NOW".to_owned(),
        TimeArg::Omit => "UTIME_OMIT".to_owned(),
        TimeArg::At { sec, nsec } => format!("{sec}.{nsec:09}"),
    }
}

/// The name of a whence.
pub(crate) fn seek(whence: Whence) -> &'static str {
    match whence {
        Whence::Set => "SEEK_SET",
        Whence::Cur => "SEEK_CUR",
        Whence::End => "SEEK_END",
        Whence::Data => "SEEK_DATA",
        Whence::Hole => "SEEK_HOLE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Mode, OpenFlags, RenameFlags};
    use crate::pattern::Pattern;

    #[test]
    fn calls_read_like_calls() {
        let data = Pattern { seed: 7, len: 4096 };
        let flags = OpenFlags::O_CREAT | OpenFlags::O_EXCL;
        let ops = [
            Op::Open { slot: 0, path: "f0".into(), flags, mode: Mode(0o644) },
            Op::Pwrite { slot: 0, offset: -1, data },
            Op::Rename { from: "a".into(), to: "b".into(), flags: RenameFlags::empty() },
            Op::Chown { target: Target::Link("l".into()), uid: None, gid: Some(3) },
            Op::Utimens {
                target: Target::Link("l".into()),
                atime: TimeArg::Omit,
                mtime: TimeArg::At { sec: 1, nsec: 5 },
            },
            Op::Sync,
        ];
        assert_eq!(
            ops.map(|op| op.to_string()),
            [
                "open(#0, \"f0\", O_RDONLY|O_CREAT|O_EXCL, 0644)",
                "pwrite(#0, 4096 bytes of pattern 7, at -1)",
                "rename(\"a\", \"b\")",
                "lchown(\"l\", -1, 3)",
                "utimensat(\"l\", UTIME_OMIT, 1.000000005, AT_SYMLINK_NOFOLLOW)",
                "sync()",
            ]
        );
    }
}
