//! [`KernelReport`]: what a kernel's console says about its end, as a person would name it.
//!
//! The first report counts: what follows it is its consequence. Addresses, offsets, task names, process
//! numbers and line numbers are left out, so that the same fault has the same title whatever led to it.

use fathom_core::ReportKind;

/// A fault that a kernel reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelReport {
    /// What kind it is.
    pub kind: ReportKind,
    /// One line: "KASAN: use-after-free in jfs_lazycommit, reached from umount".
    pub title: String,
    /// The functions that led to it, the innermost first.
    pub stack: Vec<String>,
    /// The report as it was printed.
    pub lines: Vec<String>,
}

/// The longest report that is kept.
const LINES_MAX: usize = 200;

/// Functions that report, which are never the place of a fault.
const REPORTING: [&str; 28] = [
    "show_stack",
    "dump_stack",
    "dump_stack_lvl",
    "dump_stack_print_info",
    "panic",
    "__warn",
    "warn_slowpath_fmt",
    "report_bug",
    "check_panic_on_warn",
    "print_report",
    "print_address_description",
    "kasan_report",
    "kasan_check_range",
    "ubsan_epilogue",
    "lockdep_rcu_suspicious",
    "print_circular_bug",
    "check_noncircular",
    "__lock_acquire",
    "lock_acquire",
    "hung_task_panic",
    "watchdog",
    "die",
    "_printk",
    "segv",
    "segv_handler",
    "sig_handler_common",
    "assfail",
    "asswarn",
];

/// Ends of a report.
const ENDS: [&str; 2] = ["---[ end trace", "---[ end Kernel panic"];

/// Reads the first report of a console's text. `None` if the kernel did not report anything.
pub fn read(console: &str) -> Option<KernelReport> {
    let lines: Vec<&str> = console.lines().map(without_time).collect();
    let (at, kind) = lines.iter().enumerate().find_map(|(at, line)| Some((at, kind_of(line)?)))?;
    let mut report: Vec<String> = Vec::new();
    for line in lines[at..].iter().take(LINES_MAX) {
        report.push((*line).to_owned());
        if ENDS.iter().any(|end| line.contains(end)) {
            break;
        }
    }
    // Lockdep first shows how the locks were taken before: who takes them now is at the end.
    let own = report.iter().position(|line| line == "stack backtrace:").unwrap_or(0);
    let stack = stack(&report[own..]);
    let title = title(kind, &report, &stack);
    Some(KernelReport { kind, title, stack, lines: report })
}

/// Whether the text has a report after which a kernel goes on, and whose guest should be ended.
pub fn is_survivable(console: &str) -> bool {
    read(console).is_some_and(|report| report.kind == ReportKind::Lockdep)
}

/// Whether the file that is the guest's memory could not grow: the kernel then says so and panics.
pub(crate) fn is_without_space(console: &str) -> bool {
    console.contains("likely just ran out of space")
}

/// Whether the kernel killed a process for want of memory.
pub fn is_out_of_memory(console: &str) -> bool {
    console.contains("Out of memory: Killed process")
        || console.contains("Out of memory and no killable")
}

/// Whether the host gave a process of the guest no further mapping: its memory is limited, or it has as many
/// as Linux allows (`report_enomem` in arch/um/kernel/tlb.c).
pub fn is_out_of_mappings(console: &str) -> bool {
    console.contains("UML ran out of memory on the host side")
}

/// `[    0.000000] text` without the time.
fn without_time(line: &str) -> &str {
    match line.trim_end().strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((time, text)) if time.trim().parse::<f64>().is_ok() => text,
        _ => line.trim_end(),
    }
}

fn kind_of(line: &str) -> Option<ReportKind> {
    let lockdep = [
        "possible circular locking dependency",
        "possible recursive locking",
        "possible irq lock inversion",
        "bad unlock balance",
        "inconsistent lock state",
        "suspicious RCU usage",
        "held lock freed",
        "lock held when returning to user space",
    ];
    let is = |text: &str| line.contains(text);
    Some(match () {
        () if is("KASAN:") => ReportKind::Kasan,
        () if is("UBSAN:") => ReportKind::Ubsan,
        () if lockdep.iter().any(|text| is(text)) => ReportKind::Lockdep,
        () if is("blocked for more than") && is("INFO: task") => ReportKind::HungTask,
        () if is("kernel BUG at") || is("BUG: failure at") => ReportKind::Bug,
        // XFS and btrfs name what does not hold, and stop after that.
        () if is("ssertion failed: ") => ReportKind::Bug,
        () if line.starts_with("WARNING: ") && is(" at ") => ReportKind::Warning,
        () if is("Kernel mode fault at") || line.starts_with("BUG: ") || is("Oops:") => {
            ReportKind::Oops
        }
        () if is("Kernel panic - not syncing: Segfault") => ReportKind::Oops,
        () if is("Kernel panic - not syncing") => ReportKind::Panic,
        () => return None,
    })
}

/// The functions of ` [<60b639f5>] name+0x14d/0x366` and ` name+0x14d/0x366`; those with a question mark
/// were only found on the stack.
fn stack(report: &[String]) -> Vec<String> {
    let function = |line: &String| {
        let text = line.trim_start();
        let text = match text.strip_prefix("[<") {
            Some(rest) => rest.split_once(">] ")?.1,
            None => text,
        };
        let (name, rest) = text.split_once("+0x")?;
        let is_name = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        (is_name && rest.contains("/0x")).then(|| plain(name))
    };
    let mut functions: Vec<String> = report.iter().filter_map(function).collect();
    functions.retain(|name| !REPORTING.contains(&name.as_str()));
    functions
}

/// A function without what the compiler adds to its name.
fn plain(name: &str) -> String {
    name.split('.').next().unwrap_or(name).to_owned()
}

/// The system call in a stack.
fn call_of(stack: &[String]) -> Option<String> {
    let name = |function: &String| {
        let prefixes = ["__se_sys_", "__do_sys_", "__x64_sys_", "ksys_", "sys_"];
        let rest = prefixes.iter().find_map(|prefix| function.strip_prefix(prefix))?;
        Some(rest.to_owned())
    };
    stack.iter().find_map(name).filter(|name| name != "exit_group")
}

/// The lock that a task wants and where, of "(&oi->ip_alloc_sem){++++}-{3:3}, at: ocfs2_x+0x11b/0x967".
/// Numbers that tell locks of one name apart depend on what was used before.
fn wanted_lock(report: &[String]) -> Option<String> {
    let at = report.iter().position(|line| line.ends_with("is trying to acquire lock:"))?;
    let (lock, place) = report.get(at + 1)?.split_once("at: ")?;
    let name = lock.split_once('(')?.1.split_once("){")?.0;
    let name = name.split(['#', '/']).next().unwrap_or(name);
    let function = place.split('+').next().unwrap_or(place);
    Some(format!(" of {name} in {}", plain(function)))
}

fn title(kind: ReportKind, report: &[String], stack: &[String]) -> String {
    let line = report[0].as_str();
    let place = stack.first().map(|name| format!(" in {name}")).unwrap_or_default();
    let after = |mark: &str| line.split_once(mark).map_or("", |(_, rest)| rest.trim());
    let what = match kind {
        // "BUG: KASAN: use-after-free in jfs_x+0x12/0x34" names its place itself.
        ReportKind::Kasan => {
            let text = after("KASAN:");
            format!("KASAN: {}", text.split('+').next().unwrap_or(text))
        }
        ReportKind::Ubsan => {
            let text = after("UBSAN:");
            format!("UBSAN: {}{place}", text.split(" in ").next().unwrap_or(text))
        }
        ReportKind::Lockdep => {
            let text = line.trim_start_matches("WARNING: ").trim_start_matches("INFO: ");
            let place = wanted_lock(report).unwrap_or(place);
            format!("lockdep: {}{place}", text.trim_end_matches(" detected"))
        }
        ReportKind::HungTask => {
            let waits = ["__schedule", "schedule", "schedule_timeout", "io_schedule"];
            let place = stack.iter().find(|name| !waits.contains(&name.as_str()));
            let place = place.map(|name| format!(" in {name}")).unwrap_or_default();
            format!("a task waits for ever{place}")
        }
        ReportKind::Bug => match after("ssertion failed: ") {
            "" => format!("BUG at {}{place}", file_of(after(" at "))),
            // "new_size <= XFS_ISIZE(ip), file: fs/xfs/…", "ret == 0, in fs/btrfs/…".
            text => {
                let end = [", file:", ", in "].iter().filter_map(|mark| text.find(mark)).min();
                format!("assertion failed: {}{place}", &text[..end.unwrap_or(text.len())])
            }
        },
        ReportKind::Warning => format!("WARNING at {}{place}", file_of(after(" at "))),
        ReportKind::Oops => format!("bad access to memory{place}"),
        ReportKind::Panic => {
            let text = after("not syncing:");
            let text = text.split([':', '!']).next().unwrap_or(text);
            let words = text.split_whitespace().filter(|word| !word.starts_with("exitcode"));
            format!("panic: {}{place}", words.collect::<Vec<_>>().join(" "))
        }
    };
    match call_of(stack) {
        Some(call) => format!("{what}, reached from {call}"),
        None => what,
    }
}

/// `fs/ext4/inode.c:123 name+0x1/0x2` or `fs/ext4/inode.c:123!`: the file.
fn file_of(text: &str) -> &str {
    text.split([':', ' ', '!']).next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_report_is_named_like_a_person_would() {
        let console = "[    1.250000] ==================================================================\n\
            [    1.250000] BUG: KASAN: slab-use-after-free in jfs_lazycommit+0x1c2/0x700\n\
            [    1.250000] Read of size 4 at addr 000000006189a3f4 by task jfsCommit/29\n\
            [    1.250000] Call Trace:\n\
            [    1.250000]  [<600303d8>] ? um_set_signals+0x0/0x43\n\
            [    1.250000]  [<60030fca>] show_stack+0x184/0x193\n\
            [    1.250000]  [<60145d3d>] jfs_lazycommit.isra.0+0x1c2/0x700\n\
            [    1.250000]  [<60145d3d>] jfs_umount+0x1c2/0x700\n\
            [    1.250000]  [<60145d3d>] __se_sys_umount+0x1c2/0x700\n\
            [    1.250000] Kernel panic - not syncing: kasan.fault=panic set ...\n";
        let report = read(console).unwrap();
        assert_eq!(report.kind, ReportKind::Kasan);
        assert_eq!(
            report.title,
            "KASAN: slab-use-after-free in jfs_lazycommit, reached from umount"
        );
        assert_eq!(report.stack, ["jfs_lazycommit", "jfs_umount", "__se_sys_umount"]);
        assert!(report.lines[0].starts_with("BUG: KASAN"));
    }

    #[test]
    fn every_kind_is_recognised_and_has_no_numbers_in_its_name() {
        let titles = [
            (
                "WARNING: CPU: 0 PID: 42 at fs/ext4/inode.c:1234 ext4_x+0x12/0x34\n [<6004f3a2>] ext4_x+0x12/0x34\n",
                "WARNING at fs/ext4/inode.c in ext4_x",
            ),
            (
                "kernel BUG at fs/btrfs/tree.c:77!\n [<6004f3a2>] btrfs_y+0x1/0x2\n [<1>] sys_rename+0x1/0x2\n",
                "BUG at fs/btrfs/tree.c in btrfs_y, reached from rename",
            ),
            (
                "XFS: Assertion failed: new_size <= XFS_ISIZE(ip), file: fs/xfs/xfs_inode.c, line: 1028\n\
                 BUG: failure at fs/xfs/xfs_message.c:102/assfail()!\n [<6>] assfail+0x1/0x2\n [<6>] xfs_z+0x1/0x2\n",
                "assertion failed: new_size <= XFS_ISIZE(ip) in xfs_z",
            ),
            (
                "BUG: failure at fs/jfs/jfs_txnmgr.c:77/txEnd()!\n [<6>] txEnd+0x1/0x2\n",
                "BUG at fs/jfs/jfs_txnmgr.c in txEnd",
            ),
            ("Kernel mode fault at addr 0x18, ip 0x60123456\n", "bad access to memory"),
            (
                "Kernel panic - not syncing: sysrq triggered crash\n [<6>] sysrq_handle_crash+0x1/0x2\n [<6>] sys_write+0x1/0x2\n",
                "panic: sysrq triggered crash in sysrq_handle_crash, reached from write",
            ),
            (
                "INFO: task fathom:33 blocked for more than 122 seconds.\n [<6>] schedule+0x1/0x2\n [<6>] jbd2_journal_commit+0x1/0x2\n",
                "a task waits for ever in jbd2_journal_commit",
            ),
            (
                "UBSAN: shift-out-of-bounds in fs/jfs/x.c:12:3\n [<6>] dbMount+0x1/0x2\n",
                "UBSAN: shift-out-of-bounds in dbMount",
            ),
            (
                "WARNING: possible circular locking dependency detected\n [<6>] ext4_z+0x1/0x2\n",
                "lockdep: possible circular locking dependency in ext4_z",
            ),
        ];
        let circular = "[    6.0] WARNING: possible circular locking dependency detected\n\
            [    6.0] fathom/61 is trying to acquire lock:\n\
            [    6.0] 000000006ec02258 (&oi->ip_alloc_sem#3){++++}-{3:3}, at: ocfs2_xattr_set+0x11b/0x967\n\
            [    6.0] but task is already holding lock:\n\
            [    6.0] 000000006e0988e0 (jbd2_handle){++++}-{0:0}, at: start_this_handle+0x119b/0x13af\n\
            [    6.0] -> #2 (jbd2_handle){++++}-{0:0}:\n\
            [    6.0]        save_stack_trace+0x99/0xb3\n\
            [    6.0]        sys_unlinkat+0x51/0x58\n\
            [    6.0] stack backtrace:\n\
            [    6.0]  [<60030fca>] show_stack+0x184/0x193\n\
            [    6.0]  [<60145d3d>] ocfs2_mknod+0x1c2/0x700\n\
            [    6.0]  [<60145d3d>] sys_openat+0x1c2/0x700\n";
        let report = read(circular).unwrap();
        let expected = "lockdep: possible circular locking dependency of &oi->ip_alloc_sem in ocfs2_xattr_set, reached from openat";
        assert_eq!(report.title, expected);
        assert_eq!(report.stack, ["ocfs2_mknod", "sys_openat"]);
        for (console, title) in titles {
            assert_eq!(read(console).map(|report| report.title).as_deref(), Some(title));
        }
        assert!(is_survivable(titles[8].0) && !is_survivable(titles[0].0));
        assert_eq!(read("EXT4-fs (loop0): mounted filesystem\n"), None);
        assert!(is_out_of_memory("Out of memory: Killed process 12 (fathom)"));
        assert!(is_out_of_mappings(
            "[  1.5] UML ran out of memory on the host side! This can happen"
        ));
    }
}
