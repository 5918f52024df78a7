//! [`KernelLog`]: what the kernel has to say about a device.
//!
//! `/dev/kmsg` gives every record since we opened it with its severity (the kernel's
//! Documentation/ABI/testing/dev-kmsg). A record belongs to a device if it names it; a bug, a
//! warning, an oops or a hung task that names no device belongs to everybody who was there.

use std::os::fd::OwnedFd;

use fathom_core::HarnessFault;
use rustix::fs::{CWD, Mode, OFlags, SeekFrom, openat, seek};
use rustix::io::Errno;

use crate::sys::in_guest;

const LOG: &str = "/dev/kmsg";

/// No record is longer (PRINTKRB_RECORD_MAX and its prefix in kernel/printk).
const RECORD_BYTES: usize = 8192;

/// syslog(2): errors and worse count, warnings if they sound like damage, notes never.
const KERN_ERR: u8 = 3;
const KERN_WARNING: u8 = 4;

/// In records that name no device: the kernel itself is in trouble. As the kernel writes them
/// (lib/bug.c, kernel/hung_task.c, arch/*/kernel/dumpstack.c, mm/kasan, lib/ubsan.c, lockdep).
const ALARMS: [&str; 12] = [
    "BUG:",
    "kernel BUG at",
    "WARNING:",
    "Oops",
    "general protection fault",
    "Unable to handle kernel",
    "UBSAN:",
    "INFO: task ",
    "soft lockup",
    "rcu: INFO:",
    "refcount_t:",
    "Kernel panic",
];

/// In alarms that a machine with too much to do raises by itself: work waits for a processor
/// (kernel/workqueue.c). A worker that never ends is told as a soft lockup or a hung task as well.
const STARVED: &str = "workqueue lockup";

/// In warnings about our device.
const DAMAGE: [&str; 4] = ["error", "corrupt", "csum failed", "checksum"];

/// Names another file than the kernel's log. It exists to test the tester: an oops cannot be had for
/// the asking.
const TEST_LOG: &str = "FATHOM_TEST_KERNEL_LOG";

/// Kills by the kernel for want of memory (mm/oom_kill.c).
const OUT_OF_MEMORY: [&str; 2] = ["Out of memory: Killed process", "oom-kill:"];

/// A position in the log.
pub struct KernelLog {
    log: OwnedFd,
}

impl KernelLog {
    /// From now on.
    ///
    /// # Errors
    /// If the log cannot be read, which only root may do.
    pub fn open() -> Result<KernelLog, HarnessFault> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = std::env::var_os(TEST_LOG).unwrap_or_else(|| LOG.into());
        let opened = openat(CWD, &name, flags, Mode::empty());
        let log = opened.map_err(|errno| HarnessFault::new(format!("opening {LOG}"), errno))?;
        let log = KernelLog { log };
        log.skip()?;
        Ok(log)
    }

    /// Leaves out what was logged until now.
    pub(super) fn skip(&self) -> Result<(), HarnessFault> {
        let done = seek(&self.log, SeekFrom::End(0));
        done.map(drop).map_err(|errno| HarnessFault::new(format!("skipping in {LOG}"), errno))
    }

    /// What was logged since the last call and says that the kernel itself is in trouble, or killed
    /// somebody for want of memory: see [`is_out_of_memory`].
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn trouble(&mut self) -> Result<Vec<String>, HarnessFault> {
        self.records(|record| {
            let message = record.split_once(';')?.1.lines().next()?;
            complaint(record, &[], false).or_else(|| is_out_of_memory(message).then_some(message))
        })
    }

    /// What was logged since the last call and concerns a device of these names (`loop3`).
    pub(super) fn complaints(&mut self, devices: &[String]) -> Result<Vec<String>, HarnessFault> {
        self.records(|record| complaint(record, devices, in_guest()))
    }

    /// What was logged since the last call and has one of these words in it, whatever its case.
    pub(super) fn lines_about(&mut self, words: &[&str]) -> Result<Vec<String>, HarnessFault> {
        self.records(|record| {
            let message = record.split_once(';')?.1.lines().next()?;
            let lower = message.to_lowercase();
            words.iter().any(|word| lower.contains(&word.to_lowercase())).then_some(message)
        })
    }

    fn records(
        &mut self,
        wanted: impl Fn(&str) -> Option<&str>,
    ) -> Result<Vec<String>, HarnessFault> {
        let mut found = Vec::new();
        let mut record = [0; RECORD_BYTES];
        loop {
            match rustix::io::read(&self.log, &mut record) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(found),
                Ok(count) => {
                    let text = String::from_utf8_lossy(&record[..count]);
                    // The kernel gives one record per read; a file of a test gives all of them.
                    found.extend(text.split_inclusive('\n').filter_map(&wanted).map(str::to_owned));
                }
                // Records were overwritten before we read them; the next read goes on after them.
                Err(Errno::PIPE | Errno::INTR) => {}
                Err(errno) => return Err(HarnessFault::new(format!("reading {LOG}"), errno)),
            }
        }
    }
}

/// Whether a line of the log says that somebody was killed for want of memory.
pub fn is_out_of_memory(line: &str) -> bool {
    OUT_OF_MEMORY.iter().any(|words| line.contains(words))
}

/// The message of a record (`6,1234,5678,-;message`), if it is one to worry about. In a guest, what lockdep
/// reports is left to the host, which reads the console and makes a finding of it with the whole report.
fn complaint<'a>(record: &'a str, devices: &[String], in_guest: bool) -> Option<&'a str> {
    let (prefix, message) = record.split_once(';')?;
    let message = message.lines().next()?;
    let severity = prefix.split(',').next()?.parse::<u32>().ok()? as u8 & 7;
    match loop_named_in(message) {
        Some(device) if !devices.iter().any(|ours| ours == device) => None,
        Some(_) => {
            let lower = message.to_ascii_lowercase();
            let damage = DAMAGE.iter().any(|word| lower.contains(word));
            (severity <= KERN_ERR || severity == KERN_WARNING && damage).then_some(message)
        }
        None if message.contains(STARVED) || (in_guest && is_of_lockdep(message)) => None,
        None => ALARMS.iter().any(|alarm| message.contains(alarm)).then_some(message),
    }
}

/// Whether lockdep warns: "WARNING: possible circular locking dependency detected". A broken expectation of
/// the kernel has a place: "WARNING: CPU: 1 PID: 7 at fs/inode.c:301".
fn is_of_lockdep(message: &str) -> bool {
    message.starts_with("WARNING: ") && !message.contains(" at ")
}

/// The loop device that a message is about.
fn loop_named_in(message: &str) -> Option<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    message.split(|c: char| !is_word(c)).find(|word| {
        word.strip_prefix("loop")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trouble_of_our_device_or_of_nobody_else_counts() {
        let ours = ["loop3".to_owned()];
        let trouble = [
            "2,1,1,-;EXT4-fs error (device loop3): ext4_lookup:1787: inode #2: comm x: bad",
            "1,1,1,-;XFS (loop3): Metadata corruption detected at xfs_agi_verify",
            "3,1,1,-;BTRFS error (device loop3): parent transid verify failed",
            "4,1,1,-;BTRFS warning (device loop3 state A): csum failed root 5 ino 257",
            "3,1,1,-;I/O error, dev loop3, sector 8 op 0x0:(READ)",
            "4,1,1,-;WARNING: CPU: 1 PID: 7 at fs/inode.c:301 drop_nlink+0x2c/0x40",
            "3,1,1,-;INFO: task fathom:12 blocked for more than 120 seconds.",
            "0,1,1,-;BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "0,1,1,-;watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [kworker/1:0:17]",
        ];
        for record in trouble {
            for in_guest in [false, true] {
                let expected = record.split_once(';').map(|(_, text)| text);
                assert_eq!(complaint(record, &ours, in_guest), expected);
            }
        }
        let noise = [
            "2,1,1,-;EXT4-fs error (device loop31): ext4_lookup:1787: inode #2: comm x: bad",
            "1,1,1,-;XFS (loop4): Metadata corruption detected at xfs_agi_verify",
            "6,1,1,-;EXT4-fs (loop3): mounted filesystem ro with ordered data mode.",
            "4,1,1,-;EXT4-fs (loop3): warning: mounting unchecked fs, running e2fsck is recommended",
            "6,1,1,-;BTRFS info (device loop3): using crc32c (crc32c-lib) checksum algorithm",
            "6,1,1,-;loop3: detected capacity change from 0 to 4096",
            "4,1,1,-;process x is using a deprecated option",
            "0,1,1,-;BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0 nice=0 stuck for 33s!",
            "no record",
        ];
        for record in noise {
            assert_eq!(complaint(record, &ours, false), None, "{record}");
        }
        let lockdep = "4,1,1,-;WARNING: possible circular locking dependency detected";
        assert!(complaint(lockdep, &ours, false).is_some());
        assert_eq!(complaint(lockdep, &ours, true), None, "the host reads it on the console");
    }
}
