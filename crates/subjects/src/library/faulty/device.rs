//! Faults below the file system: what it wrote, repeated on another device, wrongly.

use fathom_block::{Event, Geometry, Recorder, WriteLog};
use fathom_core::Op;

use super::Fault;

/// Every how manieth write [`Fault::LostWrite`] loses.
const LOST_EVERY: usize = 3;

/// The bytes at the start of a device in which every file system keeps what it needs to mount: for ext4
/// the superblock is at 1024. At least two erase blocks: littlefs has two copies.
const START_BYTES: usize = 4096;

/// Something that changes a device; an [`Event`] that can wait.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Write { at: usize, data: Vec<u8>, fua: bool },
    Erase { at: usize, len: usize },
    Flush,
}

impl Change {
    fn of(event: Event<'_>) -> Option<Change> {
        match event {
            Event::Write { at, data, fua, .. } => {
                Some(Change::Write { at, data: data.to_vec(), fua })
            }
            Event::Erase { at, len } => Some(Change::Erase { at, len }),
            Event::Flush => Some(Change::Flush),
            Event::Mark(_) => None,
        }
    }

    fn is_write(&self) -> bool {
        matches!(self, Change::Write { .. })
    }
}

/// The device that the crash checker sees.
pub(super) struct Outside {
    device: Recorder,
    geometry: Geometry,
    fault: Fault,
    /// What is still to be done, with the next operation or at the latest when unmounting.
    held: Vec<Change>,
    writes: usize,
}

impl Outside {
    pub(super) fn new(device: Recorder, fault: Fault) -> Outside {
        let geometry = *device.geometry();
        let mut device = device;
        if !geometry.rewritable {
            // Faults write where nothing is erased. The recorder refuses that on flash, so the log goes
            // on in one that does not; repeating all changes on their own result changes nothing.
            let (image, log) = device.into_parts();
            let lenient = Geometry { rewritable: true, ..geometry };
            device = Recorder::new(image, lenient).expect("it is the geometry of this image");
            for event in log.events() {
                match event {
                    Event::Mark(name) => device.mark(name),
                    other => issue(&mut device, Change::of(other).expect("marks are done")),
                }
            }
        }
        Outside { device, geometry, fault, held: Vec::new(), writes: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.device.position()
    }

    /// The unit in which space is erased.
    pub(super) fn block_bytes(&self) -> usize {
        self.geometry.erase_bytes
    }

    pub(super) fn device(&self) -> &Recorder {
        &self.device
    }

    pub(super) fn into_device(self) -> Recorder {
        self.device
    }

    /// Repeats the events of `log` from `since` on, which are those of `op`, with the fault.
    pub(super) fn repeat(&mut self, op: Option<&Op>, log: &WriteLog, since: usize) {
        let events = (since..log.len()).map(|index| log.event(index));
        let changes: Vec<Change> = events.filter_map(Change::of).collect();
        self.settle();
        let changes = self.spoil(op, changes);
        changes.into_iter().for_each(|change| self.issue(change));
    }

    /// Does what was held back.
    pub(super) fn settle(&mut self) {
        std::mem::take(&mut self.held).into_iter().for_each(|change| self.issue(change));
    }

    /// Erases the start of the device and writes it again.
    pub(super) fn rewrite_start(&mut self) {
        let len = START_BYTES.max(2 * self.geometry.erase_bytes).min(self.geometry.size_bytes);
        self.rewrite(0, len, |_| {});
    }

    /// Erases whole erase blocks and writes them again, changed.
    fn rewrite(&mut self, at: usize, len: usize, change: impl FnOnce(&mut [u8])) {
        let mut bytes = vec![0; len];
        self.device.image().read(at, &mut bytes);
        change(&mut bytes);
        issue(&mut self.device, Change::Erase { at, len });
        issue(&mut self.device, Change::Write { at, data: bytes, fua: false });
    }

    /// What becomes of the changes of an operation; the rest is held back.
    fn spoil(&mut self, op: Option<&Op>, mut changes: Vec<Change>) -> Vec<Change> {
        match self.fault {
            Fault::DropFlush => changes.retain(|change| *change != Change::Flush),
            Fault::SkipErase => changes.retain(|change| !matches!(change, Change::Erase { .. })),
            Fault::ReorderFlush => swap_around_flushes(&mut changes),
            Fault::LateWrite => {
                let last = changes.iter().rposition(Change::is_write);
                self.held.extend(last.map(|last| changes.remove(last)));
            }
            Fault::TearCommit => {
                if let Some(last) = changes.iter().rposition(Change::is_write) {
                    let half = tear(&mut changes[last], self.geometry.write_bytes);
                    self.held.push(half);
                }
            }
            Fault::LostWrite => changes.retain(|change| {
                self.writes += usize::from(change.is_write());
                !change.is_write() || !self.writes.is_multiple_of(LOST_EVERY)
            }),
            Fault::EarlyAck
                if matches!(
                    op,
                    Some(Op::Close { .. } | Op::Fsync { .. } | Op::Fdatasync { .. })
                ) =>
            {
                self.held.append(&mut changes);
            }
            Fault::LazyUnlink if matches!(op, Some(Op::Unlink { .. })) => {
                self.held.append(&mut changes);
            }
            Fault::SuperblockWindow if !changes.is_empty() => self.rewrite_start(),
            _ => {}
        }
        changes
    }

    /// Does one change, as the device would.
    fn issue(&mut self, mut change: Change) {
        if let Change::Write { at, data, .. } = &mut change {
            if self.fault == Fault::WideRewrite {
                let unit_bytes = 2 * self.geometry.erase_bytes;
                let start = *at - *at % unit_bytes;
                let end = (*at + data.len()).next_multiple_of(unit_bytes);
                let end = end.min(self.geometry.size_bytes);
                let within = *at - start;
                return self.rewrite(start, end - start, |bytes| {
                    bytes[within..within + data.len()].copy_from_slice(data);
                });
            }
            if !self.geometry.rewritable {
                // Programming flash can only clear bits.
                let mut old = vec![0; data.len()];
                self.device.image().read(*at, &mut old);
                data.iter_mut().zip(old).for_each(|(new, old)| *new &= old);
            }
        }
        issue(&mut self.device, change);
    }
}

/// Passes a change on. Nothing is refused: it comes from a device of the same shape.
fn issue(device: &mut Recorder, change: Change) {
    let result = match change {
        Change::Write { at, data, fua: false } => device.write(at, &data),
        Change::Write { at, data, fua: true } => device.write_fua(at, &data),
        Change::Erase { at, len } => device.erase(at, len),
        Change::Flush => {
            device.flush();
            Ok(())
        }
    };
    result.expect("it was done on a device of the same geometry");
}

/// `write 1, flush, …, write 2, flush` becomes `flush, …, write 2, write 1, flush`.
fn swap_around_flushes(changes: &mut [Change]) {
    let is_flush = |change: &Change| *change == Change::Flush;
    let mut from = 0;
    while let Some(flush) = changes[from..].iter().position(is_flush).map(|at| from + at) {
        let Some(next) = changes[flush + 1..].iter().position(is_flush) else { return };
        let next = flush + 1 + next;
        match changes[from..flush].iter().rposition(Change::is_write).map(|at| from + at) {
            Some(last) => {
                changes[last..next].rotate_left(1);
                from = next + 1;
            }
            None => from = flush + 1,
        }
    }
}

/// Cuts a write in the middle; returns the second half (all of it, if it is one unit).
fn tear(write: &mut Change, unit_bytes: usize) -> Change {
    let Change::Write { at, data, fua } = write else { unreachable!("only writes are torn") };
    let units = data.len() / unit_bytes;
    let first_bytes = units / 2 * unit_bytes;
    let second = data.split_off(first_bytes);
    Change::Write { at: *at + first_bytes, data: second, fua: *fua }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flash() -> Recorder {
        let geometry = Geometry::flash(8192, 16, 256);
        Recorder::new(geometry.blank_image(), geometry).unwrap()
    }

    /// Erase, two writes with a flush between, a flush: the commit of a small file system.
    fn commit() -> WriteLog {
        let mut device = flash();
        device.erase(512, 256).unwrap();
        device.write(512, &[1; 32]).unwrap();
        device.flush();
        device.write(768, &[2; 32]).unwrap();
        device.flush();
        device.into_parts().1
    }

    fn spoilt(fault: Fault, op: Option<&Op>) -> (Outside, String) {
        let mut outside = Outside::new(flash(), fault);
        outside.repeat(op, &commit(), 0);
        let text = format!("{:?}", outside.device.log());
        (outside, text)
    }

    const ERASE: &str = "erase 256 bytes at 0x200";
    const ONE: &str = "write 32 bytes at 0x200";
    const TWO: &str = "write 32 bytes at 0x300";

    fn log(events: &[&str]) -> String {
        format!("[{}]", events.join(", "))
    }

    #[test]
    fn without_a_fault_nothing_changes() {
        let (outside, _) = spoilt(Fault::Nothing, None);
        assert_eq!(*outside.device.log(), commit());
    }

    #[test]
    fn each_fault_does_to_the_log_what_it_says() {
        let text = |fault| spoilt(fault, None).1;
        assert_eq!(text(Fault::DropFlush), log(&[ERASE, ONE, TWO]));
        assert_eq!(text(Fault::SkipErase), log(&[ONE, "flush", TWO, "flush"]));
        assert_eq!(text(Fault::ReorderFlush), log(&[ERASE, "flush", TWO, ONE, "flush"]));
        assert_eq!(text(Fault::LateWrite), log(&[ERASE, ONE, "flush", "flush"]));
        let half = "write 16 bytes at 0x300";
        assert_eq!(text(Fault::TearCommit), log(&[ERASE, ONE, "flush", half, "flush"]));
        let unit = ["erase 512 bytes at 0x200", "write 512 bytes at 0x200", "flush"];
        let all = [&[ERASE][..], &unit, &unit].concat();
        assert_eq!(text(Fault::WideRewrite), log(&all));
        let start = ["erase 4096 bytes at 0x0", "write 4096 bytes at 0x0"];
        let all = [&start[..], &[ERASE, ONE, "flush", TWO, "flush"]].concat();
        assert_eq!(text(Fault::SuperblockWindow), log(&all));
    }

    /// Only the last write of an epoch moves, and nothing where no other flush follows.
    #[test]
    fn reordering_keeps_everything_else() {
        let write = |at| Change::Write { at, data: vec![0; 16], fua: false };
        let erase = Change::Erase { at: 256, len: 256 };
        let (one, two, three) = (write(0), write(16), write(256));
        let flush = Change::Flush;
        let mut changes = [&one, &two, &flush, &erase, &three, &flush, &one].map(Clone::clone);
        swap_around_flushes(&mut changes);
        assert_eq!(changes.each_ref(), [&one, &flush, &erase, &three, &two, &flush, &one]);
        let mut alone = [&one, &flush, &two].map(Clone::clone);
        swap_around_flushes(&mut alone);
        assert_eq!(alone.each_ref(), [&one, &flush, &two]);
    }

    #[test]
    fn some_operations_return_before_anything_is_written() {
        let (close, unlink) = (Op::Close { slot: 0 }, Op::Unlink { path: "a".into() });
        assert_eq!(spoilt(Fault::EarlyAck, Some(&close)).1, "[]");
        assert_eq!(spoilt(Fault::LazyUnlink, Some(&unlink)).1, "[]");
        assert_eq!(spoilt(Fault::EarlyAck, Some(&unlink)).0.position(), 5);
        assert_eq!(spoilt(Fault::LazyUnlink, Some(&close)).0.position(), 5);
    }

    #[test]
    fn what_is_held_back_is_done_at_last() {
        let close = Op::Close { slot: 0 };
        let right = spoilt(Fault::Nothing, None).0.device.image().clone();
        for fault in [Fault::LateWrite, Fault::TearCommit, Fault::EarlyAck] {
            let mut outside = spoilt(fault, Some(&close)).0;
            assert_ne!(*outside.device.image(), right, "{fault:?}");
            outside.settle();
            assert_eq!(*outside.device.image(), right, "{fault:?}");
        }
    }

    #[test]
    fn every_third_write_is_lost() {
        let mut outside = Outside::new(flash(), Fault::LostWrite);
        outside.repeat(None, &commit(), 0);
        outside.repeat(None, &commit(), 0);
        let twice = [ERASE, ONE, "flush", TWO, "flush", ERASE, "flush", TWO, "flush"];
        assert_eq!(format!("{:?}", outside.device.log()), log(&twice));
    }

    #[test]
    fn flash_that_is_not_erased_keeps_its_cleared_bits() {
        let mut outside = Outside::new(flash(), Fault::SkipErase);
        let program = |byte: u8| {
            let mut device = flash();
            device.erase(0, 256).unwrap();
            device.write(0, &[byte; 16]).unwrap();
            device.into_parts().1
        };
        outside.repeat(None, &program(0b1100), 0);
        outside.repeat(None, &program(0b1010), 0);
        assert_eq!(outside.device.image().to_vec()[..16], [0b1000; 16]);
    }

    #[test]
    fn the_log_goes_on() {
        let mut device = flash();
        device.mark(b"before");
        device.write(0, &[7; 16]).unwrap();
        let image = device.image().clone();
        let outside = Outside::new(device, Fault::Nothing);
        assert_eq!(format!("{:?}", outside.device.log()), "[mark before, write 16 bytes at 0x0]");
        assert_eq!(*outside.device.image(), image);
    }
}
