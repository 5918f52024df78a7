//! Named bugs that only several callers at once can show: calls that are not one step.
//!
//! One caller alone sees nothing of them. Each does its work in two halves and lets others in between, as a
//! file system does that forgets a lock.

use fathom_core::flags::{OpenFlags, RenameFlags, XattrFlags};
use fathom_core::{Caller, Errno, FsBytes, FsPath, Op, Outcome, Pattern, Payload, Slot, Target};
use serde::{Deserialize, Serialize};

use crate::syscall::Model;

macro_rules! races {
    ($($variant:ident $name:literal $describe:literal;)*) => {
        /// One bug of calls that overlap.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Race {
            $(#[doc = $describe] #[serde(rename = $name)] $variant,)*
        }

        impl Race {
            /// Every one.
            pub const ALL: &[Race] = &[$(Race::$variant,)*];

            /// How it is called on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Race::$variant => $name,)* }
            }

            /// What it does wrong.
            pub fn describe(self) -> &'static str {
                match self { $(Race::$variant => $describe,)* }
            }
        }
    };
}

races! {
    Append "race-append"
        "An append reads the size before it takes the lock: two at once write to the same place.";
    Rename "race-rename"
        "A rename takes the old name away before it makes the new one.";
    Read "race-read"
        "A read takes the size of one moment and the data of a later one.";
    Listing "race-listing"
        "A directory is listed in two halves: a file that is renamed meanwhile is listed twice.";
    Create "race-create"
        "Whether a name exists is looked up without the lock under which it is made: two callers make it.";
    Xattr "race-xattr"
        "An extended attribute is taken away before its new value is there.";
}

/// Hands the one file system to whoever asks, for as long as the work takes.
type Locked<'a> = &'a dyn Fn(&mut dyn FnMut(&mut Model));

/// Executes a call in halves; `locked` gives the one file system to each half, `gap` lets others in.
pub(crate) fn execute(
    race: Race,
    caller: Caller,
    op: &Op,
    locked: Locked<'_>,
    gap: &dyn Fn(),
) -> Outcome {
    let halves = Halves { caller, locked, gap };
    match (race, op) {
        (Race::Append, Op::Write { slot, data }) => halves.append(op, *slot, *data),
        (Race::Rename, Op::Rename { from, to, flags }) if flags.is_empty() && from != to => {
            halves.rename(op, from, to)
        }
        (Race::Read, Op::Pread { slot, offset, len }) if *offset >= 0 => {
            halves.read(op, *slot, *offset as u64, *len)
        }
        (Race::Listing, Op::Getdents { .. }) => halves.list(op),
        (Race::Create, Op::Open { flags, path, .. }) if flags.contains(OpenFlags::O_EXCL) => {
            halves.create(op, path)
        }
        (Race::Xattr, Op::Setxattr { target, name, .. }) => halves.set_attribute(op, target, name),
        _ => halves.whole(op),
    }
}

/// A call that is done in halves.
struct Halves<'a> {
    caller: Caller,
    locked: Locked<'a>,
    gap: &'a dyn Fn(),
}

impl Halves<'_> {
    /// Does one half.
    fn half<T>(&self, mut work: impl FnMut(&mut Model) -> T) -> Option<T> {
        let mut done = None;
        (self.locked)(&mut |model| done = Some(work(model)));
        done
    }

    /// Does all of a call as one step.
    fn whole(&self, op: &Op) -> Outcome {
        let done = self.half(|model| model.execute_as(self.caller, op));
        done.unwrap_or_else(|| Outcome::err(Errno::EIO))
    }

    fn append(&self, op: &Op, slot: Slot, data: Pattern) -> Outcome {
        let size = self.half(|model| model.append_size(self.caller, slot)).flatten();
        let Some(size) = size else { return self.whole(op) };
        (self.gap)();
        let written = self.half(|model| model.write_to(self.caller, slot, size, data));
        written.unwrap_or(Err(Errno::EIO)).into()
    }

    fn rename(&self, op: &Op, from: &FsPath, to: &FsPath) -> Outcome {
        let aside = FsPath::from(format!("aside-{}", self.caller).as_str());
        let moving = |from: &FsPath, to: &FsPath, flags| Op::Rename {
            from: from.clone(),
            to: to.clone(),
            flags,
        };
        let works = self.half(|model| model.clone().execute_as(self.caller, op).result.is_ok());
        let first = moving(from, &aside, RenameFlags::RENAME_NOREPLACE);
        if works != Some(true) || self.whole(&first).result.is_err() {
            return self.whole(op);
        }
        (self.gap)();
        let second = self.whole(&moving(&aside, to, RenameFlags::empty()));
        if second.result.is_err() {
            self.whole(&moving(&aside, from, RenameFlags::empty()));
        }
        second
    }

    fn read(&self, op: &Op, slot: Slot, offset: u64, len: u64) -> Outcome {
        let Payload::Stat(stat) = self.whole(&fstat(slot)).payload else { return self.whole(op) };
        (self.gap)();
        let wanted = stat.size.saturating_sub(offset).min(len) as usize;
        let bytes = self.half(|model| model.bytes_of(self.caller, slot, offset, wanted)).flatten();
        let Some(mut bytes) = bytes else { return self.whole(op) };
        bytes.resize(wanted, 0);
        Outcome::data(&bytes)
    }

    fn list(&self, op: &Op) -> Outcome {
        let first = self.whole(op);
        (self.gap)();
        let mut second = self.whole(op);
        if let (Payload::Entries(seen), Payload::Entries(entries)) =
            (first.payload, &mut second.payload)
        {
            entries.extend(seen);
            entries.sort();
            entries.dedup();
        }
        second
    }

    fn create(&self, op: &Op, path: &FsPath) -> Outcome {
        let there = self.whole(&Op::Stat { target: Target::Link(path.clone()) });
        if there.result != Err(Errno::ENOENT) {
            return self.whole(op);
        }
        (self.gap)();
        let mut careless = op.clone();
        if let Op::Open { flags, .. } = &mut careless {
            flags.remove(OpenFlags::O_EXCL);
        }
        self.whole(&careless)
    }

    fn set_attribute(&self, op: &Op, target: &Target, name: &FsBytes) -> Outcome {
        let works = self.half(|model| model.clone().execute_as(self.caller, op).result.is_ok());
        let remove = Op::Removexattr { target: target.clone(), name: name.clone() };
        if works != Some(true) || self.whole(&remove).result.is_err() {
            return self.whole(op);
        }
        (self.gap)();
        let mut again = op.clone();
        if let Op::Setxattr { flags, .. } = &mut again {
            *flags = XattrFlags::empty();
        }
        self.whole(&again)
    }
}

fn fstat(slot: Slot) -> Op {
    Op::Stat { target: Target::Slot(slot) }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::config::Config;

    #[test]
    fn alone_nobody_sees_a_difference() {
        let open = |slot, path: &str, flags| Op::Open {
            slot,
            path: path.into(),
            flags,
            mode: fathom_core::Mode(0o644),
        };
        let rw = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
        let data = fathom_core::Pattern { seed: 1, len: 9 };
        let attribute = |flags| Op::Setxattr {
            target: Target::Path("x".into()),
            name: "user.a".into(),
            value: data,
            flags,
        };
        let ops = [
            Op::Mkdir { path: "d".into(), mode: fathom_core::Mode(0o755) },
            open(0, "d/f", rw | OpenFlags::O_APPEND),
            Op::Write { slot: 0, data },
            Op::Write { slot: 0, data },
            Op::Pread { slot: 0, offset: 4, len: 99 },
            Op::Rename { from: "d/f".into(), to: "g".into(), flags: RenameFlags::empty() },
            Op::Rename { from: "no".into(), to: "g".into(), flags: RenameFlags::empty() },
            open(1, "d", OpenFlags::O_DIRECTORY),
            Op::Getdents { slot: 1 },
            open(2, "x", rw | OpenFlags::O_EXCL),
            open(2, "x", rw | OpenFlags::O_EXCL),
            attribute(XattrFlags::XATTR_REPLACE),
            attribute(XattrFlags::empty()),
            attribute(XattrFlags::XATTR_REPLACE),
            attribute(XattrFlags::XATTR_CREATE),
        ];
        for race in Race::ALL {
            let mut right = Model::new(Config::default()).unwrap();
            let wrong = RefCell::new(right.clone());
            let locked = |work: &mut dyn FnMut(&mut Model)| work(&mut wrong.borrow_mut());
            for op in &ops {
                let expected = right.execute_as(3, op);
                assert_eq!(execute(*race, 3, op, &locked, &|| {}), expected, "{race:?} {op}");
            }
            assert_eq!(wrong.borrow().digest(), right.digest(), "{race:?}");
        }
    }
}
