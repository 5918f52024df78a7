//! Hears of the ends of processes while waiting for something else, so that nobody is idle until the next look.

use std::process::Child;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// What becomes readable when a child ends; none where the kernel has no such thing (before Linux 5.3).
pub(crate) fn of(child: &Child) -> Option<OwnedFd> {
    pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()
}

/// Waits until one of them ends, but not for long. For each, whether it has ended.
pub(crate) fn wait(ends: &[BorrowedFd<'_>], at_most: Duration) -> Vec<bool> {
    let mut polled: Vec<PollFd<'_>> =
        ends.iter().map(|end| PollFd::from_borrowed_fd(*end, PollFlags::IN)).collect();
    let timeout =
        Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
    if poll(&mut polled, Some(&timeout)).is_err() {
        // A signal, or too many: whoever waits looks for itself, and must not do that without a pause.
        std::thread::sleep(at_most);
        return vec![false; ends.len()];
    }
    polled.iter().map(|end| !end.revents().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use rustix::fd::AsFd as _;

    use super::*;

    #[test]
    fn an_end_is_heard_of_before_the_time_is_over() {
        let start = |seconds: &str| Command::new("sleep").arg(seconds).spawn().unwrap();
        let (mut short, mut long) = (start("0.1"), start("60"));
        let ends = [of(&long).unwrap(), of(&short).unwrap()];
        let began = Instant::now();
        let over = wait(&ends.each_ref().map(|end| end.as_fd()), Duration::from_secs(30));
        assert_eq!(over, [false, true]);
        assert!(began.elapsed() < Duration::from_secs(20));
        // One that has ended is heard of again, until it is not asked about any more.
        assert_eq!(wait(&[ends[1].as_fd()], Duration::from_secs(30)), [true]);
        assert_eq!(wait(&[ends[0].as_fd()], Duration::from_millis(10)), [false]);
        long.kill().unwrap();
        long.wait().unwrap();
        short.wait().unwrap();
    }
}
