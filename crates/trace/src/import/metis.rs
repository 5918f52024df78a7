//! Logs of Metis.
//!
//! Sequence logs have one operation per line, inputs only:
//! `write_file, /mnt/test-ext4/f-00, 1, 0x7f.., 0, 4096`. Output logs have both:
//! `[12.345] [seqid = 7] write_file (/mnt/test-ext4/f-00, 1, 0x7f.., 0, 4096) -> ret = 4096, errno = 0`.
//! An operation of Metis is one or more calls: `write_file` opens, seeks, writes and closes.

use std::path::PathBuf;

use fathom_core::Errno;

use super::paths::Mounts;
use super::values::{Word, number, sample};
use super::{Found, Reader};
use crate::layout::{Source, index_of};
use crate::sample::{Samples, Touch};

/// An operation, its call, and the position of each argument of the call in the line (0 is the path).
type Operation = (&'static str, &'static str, &'static [(&'static str, usize)]);

const OPERATIONS: &[Operation] = &[
    ("create_file", "open", &[("path", 0), ("flags", 1), ("mode", 2)]),
    ("write_file", "open", &[("path", 0), ("flags", 1)]),
    ("write_file", "pwrite64", &[("offset", 3), ("count", 4)]),
    ("read", "pread64", &[("offset", 2), ("count", 3)]),
    ("truncate", "truncate", &[("path", 0), ("length", 1)]),
    ("mkdir", "mkdir", &[("path", 0), ("mode", 1)]),
    ("rmdir", "rmdir", &[("path", 0)]),
    ("unlink", "unlink", &[("path", 0)]),
    ("chmod", "chmod", &[("path", 0), ("mode", 1)]),
    ("chown_file", "chown", &[("path", 0), ("owner", 1)]),
    ("chgrp_file", "chown", &[("path", 0), ("group", 1)]),
    ("rename", "rename", &[("oldpath", 0), ("newpath", 1)]),
    ("link", "link", &[("oldpath", 0), ("newpath", 1)]),
    ("symlink", "symlink", &[("target", 0), ("linkpath", 1)]),
    ("access", "access", &[("path", 0), ("mode", 1)]),
    ("setxattr", "setxattr", &[("path", 0), ("name", 1), ("size", 3), ("flags", 4)]),
    ("removexattr", "removexattr", &[("path", 0), ("name", 1)]),
    ("fallocate", "fallocate", &[("mode", 1), ("offset", 2), ("len", 3)]),
];

/// Lines about the checker, not about the file system.
const OTHERS: [&str; 6] = ["checkpoint", "restore", "mount_all", "unmount_all", "BEGIN", "END"];

/// Reads logs of Metis.
#[derive(Default)]
pub(super) struct Metis {
    mounts: Mounts,
    samples: Samples,
    with_results: u64,
    without_results: u64,
}

/// Whether a line starts with an operation.
pub(super) fn looks_like(line: &str) -> bool {
    let name = line.split(',').next().unwrap_or_default().trim();
    line.contains(',') && OPERATIONS.iter().any(|(operation, ..)| *operation == name)
}

impl Metis {
    pub(super) fn new(mounts: &[PathBuf]) -> Metis {
        Metis { mounts: Mounts::new(mounts), ..Metis::default() }
    }

    /// Whether an operation is on a watched mount. Metis does everything on several file systems;
    /// the paths, which are absolute, say on which.
    fn is_watched(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.mounts.touch(word.as_bytes()) == Touch::Inside)
    }
}

impl Reader for Metis {
    fn line(&mut self, line: &[u8]) -> bool {
        let Ok(line) = std::str::from_utf8(line) else { return false };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || OTHERS.iter().any(|o| line.starts_with(o)) {
            return true;
        }
        let (name, args, result) = match line.split_once("seqid = ") {
            Some((_, rest)) => match output_line(rest) {
                Some(parts) => parts,
                // Messages of the checker have a sequence number too.
                None => return true,
            },
            None => match line.split_once(',') {
                Some((name, args)) => (name.trim(), args, None),
                None => return false,
            },
        };
        let words: Vec<&str> = args.split(',').map(str::trim).collect();
        let known = OPERATIONS.iter().any(|(operation, ..)| *operation == name);
        if known && !self.is_watched(&words) {
            return true;
        }
        match result {
            Some(_) => self.with_results += 1,
            None => self.without_results += 1,
        }
        let calls = OPERATIONS.iter().filter(|(operation, ..)| *operation == name);
        for (_, call, places) in calls {
            let Some(index) = index_of(call) else { continue };
            let word = |arg: &str| {
                let place = places.iter().find(|(name, _)| *name == arg).map(|(_, place)| *place);
                place
                    .and_then(|place| words.get(place))
                    .map_or(Word::Unknown, |text| word(arg, text))
            };
            let found =
                sample(index, Touch::Inside, result.unwrap_or(0), |_, source, arg| match source {
                    Source::Register(_) => word(arg),
                    Source::Field { .. } => Word::Unknown,
                });
            self.samples.add(found, 1);
        }
        known
    }

    fn finish(self: Box<Self>) -> Found {
        let has_outputs = self.with_results > 0 && self.without_results == 0;
        let mut limits =
            vec!["the calls inside of an operation are those that Metis documents".to_owned()];
        if !has_outputs {
            limits.push("a sequence log has no results: inputs only".to_owned());
        }
        Found { samples: self.samples, has_outputs, limits }
    }
}

/// Splits `7] name (a, b) -> ret = R, errno = E` into name, arguments, result.
fn output_line(rest: &str) -> Option<(&str, &str, Option<i64>)> {
    let (_, rest) = rest.split_once(']')?;
    let (name, rest) = rest.trim_start().split_once('(')?;
    let (args, rest) = rest.split_once(')')?;
    let (_, rest) = rest.split_once("ret =")?;
    let (value, error) = rest.split_once(',')?;
    let value: i64 = value.trim().parse().ok()?;
    let error = error.split_once('=').map_or("", |(_, name)| name.trim());
    let errno = error
        .parse::<Errno>()
        .map(|errno| i64::from(errno.0))
        .or_else(|_| error.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse());
    let result = match errno {
        Ok(errno) if value < 0 => -errno,
        _ => value,
    };
    Some((name.trim(), args, Some(result)))
}

/// Reads an argument: modes are octal with and without a leading zero, everything else says its
/// base.
fn word<'a>(arg: &str, text: &'a str) -> Word<'a> {
    if text.starts_with('/')
        || matches!(arg, "path" | "name" | "oldpath" | "newpath" | "target" | "linkpath")
    {
        return Word::Text { bytes: text.as_bytes(), length: text.len() };
    }
    if arg == "mode" {
        return u64::from_str_radix(text, 8).map_or(Word::Unknown, Word::Number);
    }
    number(text.as_bytes()).map_or(Word::Unknown, Word::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> Found {
        let mut reader = Metis::default();
        for line in log.lines() {
            assert!(reader.line(line.as_bytes()), "{line}");
        }
        Box::new(reader).finish()
    }

    #[test]
    fn sequence_logs_have_inputs_only() {
        let found = read(
            "create_file, /mnt/test/f-00, 66, 0644\ncheckpoint\n\
             write_file, /mnt/test/f-00, 1, 0x7f00, 4096, 100\nrestore\nmkdir, /mnt/test/d, 0755\n",
        );
        assert!(!found.has_outputs);
        let mut names: Vec<_> =
            found.samples.iter().map(|(sample, _)| sample.call().name).collect();
        names.sort_unstable();
        assert_eq!(names, ["mkdir", "open", "open", "pwrite64"]);
        let mkdir = found.samples.iter().find(|(s, _)| s.call().name == "mkdir").unwrap().0;
        assert_eq!(mkdir.slots[1], 0o755);
    }

    #[test]
    fn one_of_the_compared_file_systems_can_be_chosen() {
        let mut reader = Metis::new(&[PathBuf::from("/mnt/test-xfs")]);
        assert!(reader.line(b"mkdir, /mnt/test-ext4/d, 0755"));
        assert!(reader.line(b"mkdir, /mnt/test-xfs/d, 0755"));
        assert!(reader.line(b"mkdir, /mnt/test-xfs2/d, 0755"));
        assert_eq!(Box::new(reader).finish().samples.calls(), 1);
    }

    #[test]
    fn output_logs_have_results() {
        let found =
            read("[1.5] [seqid = 3] mkdir (/mnt/test/d, 0755) -> ret = -1, errno = EEXIST\n");
        assert!(found.has_outputs);
        let (sample, _) = found.samples.iter().next().unwrap();
        assert_eq!(sample.result(), Err(Errno::EEXIST));
        assert!(!Metis::default().line(b"nonsense"));
    }
}
