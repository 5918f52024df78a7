//! Causes: what violations that come from the same mistake have in common.

use std::collections::BTreeSet;

use crate::judge::{Observation, Seen};

/// Lines of the output that a shape keeps.
const LINES_MAX: usize = 2;
/// Functions of a sanitizer's report that a cause keeps.
const FRAMES_MAX: usize = 3;
/// Problem codes that a cause keeps.
const CODES_MAX: usize = 3;

/// The first telling lines of an output without what differs from case to case.
pub(crate) fn shape(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut kept: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_boilerplate = boilerplate(line.trim());
        let line = without_numbers(line.trim());
        if !is_boilerplate && !kept.contains(&line) {
            kept.push(line);
        }
        if kept.len() == LINES_MAX {
            break;
        }
    }
    kept.join(" | ")
}

/// The innermost functions of a sanitizer's report, innermost first.
pub(crate) fn frames(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let frames = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let rest = line.strip_prefix('#')?.split_once(" in ")?.1;
        line.contains(" 0x").then(|| rest.split_whitespace().next().unwrap_or_default().to_owned())
    });
    frames.take(FRAMES_MAX).collect::<Vec<_>>().join(" < ")
}

fn boilerplate(line: &str) -> bool {
    let heads = [
        "Pass ",
        "Phase ",
        "- ",
        "e2fsck 1.",
        "fsck.",
        "fathom:",
        "**Phase",
        "processing",
        "The current",
        "Block size in bytes",
        "Filesystem size in blocks",
        "Forcing filesystem check",
        "Opening filesystem to check",
        "Checking filesystem on",
        "UUID:",
        "[",
        "Info:",
        "**",
        "Will ",
        "Do you want to run this program",
        "Cannot change the system limit",
        "###",
        // xfs_repair on a file, whatever is wrong with it.
        "Cannot get host filesystem geometry",
        "Repair may fail if there is a sector size mismatch",
        "the image and the host filesystem",
        // btrfs check and fsck.f2fs, in every run.
        "Fixed 0 roots",
        "enabling repair mode",
        "Done: ",
        "reiserfsck --check started",
        "reiserfsck --rebuild-tree started",
        "Replaying journal",
    ];
    // Names and versions of programs.
    let is_version = line.contains(" version ") || line.starts_with("reiserfsck 3.");
    line.len() < 3 || is_version || heads.iter().any(|head| line.starts_with(head))
}

/// A line with every number (also a hexadecimal one) replaced by `N`.
fn without_numbers(line: &str) -> String {
    let mut out = String::new();
    let mut number = false;
    let bytes: Vec<char> = line.chars().take(120).collect();
    let mut index = 0;
    while index < bytes.len() {
        let c = bytes[index];
        // A word of hexadecimal digits that begins with a decimal one is a number, too: "6e20".
        let begins = index == 0 || !bytes[index - 1].is_alphanumeric();
        let word = bytes[index..].iter().take_while(|c| c.is_alphanumeric()).count();
        if begins
            && c.is_ascii_digit()
            && bytes[index..index + word].iter().all(char::is_ascii_hexdigit)
        {
            out.push('N');
            index += word;
            number = true;
            continue;
        }
        let is_hex = c == '0' && bytes.get(index + 1) == Some(&'x');
        if c.is_ascii_digit() {
            if !number {
                out.push('N');
            }
            number = true;
            index += 1;
            if is_hex {
                index += 1;
                while bytes.get(index).is_some_and(char::is_ascii_hexdigit) {
                    index += 1;
                }
            }
            continue;
        }
        number = false;
        // What is not text (a name with arbitrary bytes) does not tell causes apart.
        out.push(if c.is_control() || c == '\u{fffd}' { '?' } else { c });
        index += 1;
    }
    out
}

/// The distinct problem codes of e2fsck's log, in order.
pub(crate) fn codes(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let codes: BTreeSet<&str> = text
        .match_indices("code=\"")
        .filter_map(|(at, found)| text[at + found.len()..].split('"').next())
        // Codes that end so announce a pass.
        .filter(|code| code.starts_with("0x") && !code.ends_with("0000"))
        .collect();
    codes.into_iter().take(CODES_MAX).collect::<Vec<_>>().join(" ")
}

/// The name of a field without places: `inode.i_mode` of every inode is the same sort.
pub(crate) fn field_sort(field: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    for c in field.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

/// What the runs printed, as evidence.
pub(crate) fn story(seen: &Observation) -> String {
    const SHOWN: usize = 4000;
    let part = |name: &str, run: &Seen| {
        let text = String::from_utf8_lossy(&run.outcome.output);
        let cut: String = text.chars().take(SHOWN).collect();
        let changed = run.changed.len();
        format!(
            "== {name}: ends with {}, {changed} bytes of the disk changed\n{}\n",
            run.end(),
            cut.trim_end()
        )
    };
    let mut out = part("looking", &seen.check);
    for (index, run) in seen.repairs.iter().enumerate() {
        out.push_str(&part(&format!("repair {}", index + 1), run));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_no_numbers() {
        let output = b"e2fsck 1.47.0\nPass 1: Checking\nInode 12, i_blocks is 0x1f, should be 4.  Fix? yes\n\n";
        assert_eq!(shape(output), "Inode N, i_blocks is N, should be N.  Fix? yes");
        assert_eq!(shape(b""), "");
        assert_eq!(
            shape(b"ERROR: /d2: unknown entry type 0x86 at 6e20 at 1. 4 of f2fs, 12 KiB"),
            "ERROR: /dN: unknown entry type N at N at N. N of fNfs, N KiB"
        );
    }

    #[test]
    fn a_sanitizers_report_is_reduced_to_its_innermost_functions() {
        let output = b"==7==ERROR: AddressSanitizer: SEGV on unknown address\n    #0 0x55d in read_block a.c:7\n    \
            #1 0x55e in pass1 b.c:9:3\n    #2 0x55f in main c.c:1\n    #3 0x560 in start d.c:1\n";
        assert_eq!(frames(output), "read_block < pass1 < main");
        assert_eq!(frames(b"#1 of the inodes is in use"), "");
    }

    #[test]
    fn codes_and_fields_are_reduced_to_their_sort() {
        assert_eq!(
            codes(b"<problem code=\"0x010007\"/> <p code=\"0x01\"/><p code=\"0x01\"/>"),
            "0x01 0x010007"
        );
        assert_eq!(field_sort("inode[12 \"/d[1]\"].i_block[3]"), "inode.i_block");
        assert_eq!(field_sort("superblock.s_wtime"), "superblock.s_wtime");
    }
}
