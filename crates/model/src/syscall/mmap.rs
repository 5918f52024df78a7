//! mmap(2), a store or a load, msync(2): mm/mmap.c `do_mmap`, mm/msync.c.
//!
//! An executor maps the whole pages that contain the given range, so any offset will do. It loads only bytes
//! inside the file, and stores as far as the last page of the file reaches: beyond it the kernel would send
//! `SIGBUS`. What is stored behind the end is nowhere: POSIX, mmap: "the system shall never write out any
//! modified portions of the last page of an object which are beyond its end", ftruncate: "the extended area
//! shall appear as if it were zero-filled".

use std::ops::Range;

use fathom_core::flags::MsyncFlags;
use fathom_core::{Errno, Kind, Pattern, Slot};

use super::Model;
use super::file::OpenFile;
use crate::volume::SetTime;

const PAGE_BYTES: u64 = 4096;

impl Model {
    /// Returns how many bytes were stored. Setuid and setgid stay: no call writes.
    pub(super) fn mmap_store(
        &mut self,
        slot: Slot,
        offset: i64,
        data: Pattern,
        sync: MsyncFlags,
    ) -> Result<u64, Errno> {
        let file = self.map(slot, offset, data.len, true)?;
        let stored = self.bytes_inside(&file, offset, data.len)?;
        if stored > 0 {
            let bytes = Pattern { seed: data.seed, len: stored }.to_vec();
            // A page fault that cannot be served.
            self.volume.write(file.ino, offset as u64, &bytes).map_err(|_| Errno::EFAULT)?;
        }
        if let Some(tail) = self.tail(&file, offset, data.len) {
            // The page was made writable, which sets the times, wherever in it the bytes are.
            self.volume.set_times(file.ino, None, Some(SetTime::Now))?;
            let bytes = data.to_vec();
            let skipped = (tail.start - offset as u64) as usize;
            let bytes = &bytes[skipped..skipped + (tail.end - tail.start) as usize];
            self.volume.store_behind_end(file.ino, tail.start, bytes);
        }
        check_msync(sync)?;
        Ok(stored)
    }

    pub(super) fn mmap_load(
        &mut self,
        slot: Slot,
        offset: i64,
        len: u64,
    ) -> Result<Vec<u8>, Errno> {
        let file = self.map(slot, offset, len, false)?;
        let loaded = self.bytes_inside(&file, offset, len)?;
        let mut bytes = Vec::new();
        if loaded > 0 {
            self.volume.read(file.ino, offset as u64, loaded as usize, &mut bytes)?;
            self.volume.note_access(file.ino);
        }
        Ok(bytes)
    }

    fn map(&self, slot: Slot, offset: i64, len: u64, store: bool) -> Result<OpenFile, Errno> {
        let file = self.file(slot)?;
        let lead_bytes = offset.rem_euclid(PAGE_BYTES as i64) as u64;
        let Some(mapped_bytes) = len.checked_add(lead_bytes + PAGE_BYTES - 1) else {
            return Err(Errno::ENOMEM);
        };
        let mapped_bytes = mapped_bytes / PAGE_BYTES * PAGE_BYTES;
        if mapped_bytes == 0 {
            return Err(Errno::EINVAL);
        }
        // file_mmap_ok; a negative offset is one beyond every file.
        let offset_max = if file.kind == Kind::File { i64::MAX as u64 } else { u64::MAX };
        let first_page = (offset as u64) / PAGE_BYTES;
        match offset_max.checked_sub(mapped_bytes) {
            Some(last_start) if first_page <= last_start / PAGE_BYTES => {}
            _ => return Err(Errno::EOVERFLOW),
        }
        if !file.readable() || store && !file.writable() {
            return Err(Errno::EACCES);
        }
        if file.kind != Kind::File {
            return Err(Errno::ENODEV);
        }
        Ok(file)
    }

    /// The part of a range that lies behind the end of a file, but within its last page.
    pub(super) fn tail(&self, file: &OpenFile, offset: i64, len: u64) -> Option<Range<u64>> {
        let size = self.volume.attr(file.ino).ok()?.size;
        let offset = u64::try_from(offset).ok()?;
        let end = size.checked_next_multiple_of(PAGE_BYTES)?.min(offset.saturating_add(len));
        let start = size.max(offset);
        (start < end).then_some(start..end)
    }

    fn bytes_inside(&self, file: &OpenFile, offset: i64, len: u64) -> Result<u64, Errno> {
        let size = self.volume.attr(file.ino)?.size;
        Ok(size.saturating_sub(offset as u64).min(len))
    }
}

/// Comes after the store.
fn check_msync(flags: MsyncFlags) -> Result<(), Errno> {
    let known = MsyncFlags::MS_ASYNC | MsyncFlags::MS_INVALIDATE | MsyncFlags::MS_SYNC;
    if !known.contains(flags) || flags.contains(MsyncFlags::MS_ASYNC | MsyncFlags::MS_SYNC) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Mode, Op};

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    fn store(slot: Slot, offset: i64, len: u64, sync: u32) -> Op {
        let data = Pattern { seed: 9, len };
        Op::MmapStore { slot, offset, data, sync: MsyncFlags::from_bits_retain(sync) }
    }

    fn load(slot: Slot, offset: i64, len: u64) -> Op {
        Op::MmapLoad { slot, offset, len }
    }

    #[test]
    fn protections_and_types() {
        let mut m = model();
        let (r, w, rw) = (OpenFlags::empty(), OpenFlags::O_WRONLY, OpenFlags::O_RDWR);
        given(&mut m, &[file("f", 0o644), mknod("p", Mode::S_IFIFO | 0o666)]);
        given(
            &mut m,
            &[
                open(0, "f", r),
                open(1, "f", w),
                open(2, "f", rw),
                open(3, ".", r),
                open(4, "p", rw),
                open(5, "f", OpenFlags::O_PATH),
            ],
        );
        for (slot, loads, stores) in [
            (0, Ok(0), Err(E::EACCES)),
            (1, Err(E::EACCES), Err(E::EACCES)),
            (2, Ok(0), Ok(0)),
            (3, Err(E::ENODEV), Err(E::EACCES)),
            (4, Err(E::ENODEV), Err(E::ENODEV)),
            (5, Err(E::EBADF), Err(E::EBADF)),
            (6, Err(E::EBADF), Err(E::EBADF)),
        ] {
            check(&mut m, &[(load(slot, 0, 1), loads), (store(slot, 0, 1, 4), stores)]);
        }
        let table = [
            (load(0, 0, 0), Err(E::EINVAL)),
            (load(0, 1, 0), Ok(0)),
            (load(0, -1, 1), Err(E::EOVERFLOW)),
            (load(1, i64::MAX, 1), Err(E::EOVERFLOW)),
            (load(0, i64::MAX - 8191, 1), Ok(0)),
            (store(2, 0, 1, 5), Err(E::EINVAL)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn only_bytes_inside_the_file_are_touched() {
        let mut m = model();
        given(
            &mut m,
            &[
                open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR),
                Op::Truncate { target: at("f"), len: 10 },
                chmod("f", 0o4755),
            ],
        );
        check(
            &mut m,
            &[(store(0, 6, 100, 4), Ok(4)), (store(0, 10, 1, 4), Ok(0)), (load(0, 5000, 1), Ok(0))],
        );
        let mut expected = vec![0; 10];
        expected[6..].copy_from_slice(&Pattern { seed: 9, len: 4 }.to_vec());
        data_of(m.execute(&load(0, 0, 100)), &expected);
        assert_eq!((attr(&m, "f").size, mode_of(&m, "f")), (10, 0o4755));
        given(&mut m, &[Op::Truncate { target: at("f"), len: 20 }]);
        expected.resize(20, 0);
        data_of(m.execute(&load(0, 0, 100)), &expected);
    }

    #[test]
    fn stores_behind_the_end_are_left_out_where_they_show() {
        left_out_behind_the_end(Quirks { mapped_tail_shows: true, ..Quirks::default() });
        let mut elsewhere = model();
        let flags = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
        given(&mut elsewhere, &[open(0, "f", flags), Op::Truncate { target: at("f"), len: 5000 }]);
        assert!(elsewhere.unspecified(&store(0, 5000, 1, 4)).is_none());
    }

    #[test]
    fn stores_behind_the_end_are_left_out_where_they_allocate() {
        left_out_behind_the_end(Quirks { mapped_tail_allocates: true, ..Quirks::default() });
    }

    #[track_caller]
    fn left_out_behind_the_end(quirks: Quirks) {
        let mut m = model_with(quirks);
        let flags = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
        given(&mut m, &[open(0, "f", flags), Op::Truncate { target: at("f"), len: 5000 }]);
        for (offset, len, shows) in
            [(0, 5000, false), (4999, 2, true), (5000, 1, true), (8191, 1, true), (8192, 1, false)]
        {
            assert_eq!(m.unspecified(&store(0, offset, len, 4)).is_some(), shows, "{offset} {len}");
        }
        assert!(m.unspecified(&store(9, 5000, 1, 4)).is_none());
        given(&mut m, &[Op::Truncate { target: at("f"), len: 4096 }]);
        assert!(m.unspecified(&store(0, 4000, 200, 4)).is_none());
    }
}
